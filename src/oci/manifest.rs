//! Descriptors and manifests (image specification, "Content Descriptors", "Image Manifest", "Image Index").
//!
//! Manifests are parsed for reading alone. Their bytes are kept and passed on as they came, since a re-serialised
//! manifest has another digest.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::digest::Digest;

/// Media type of an image manifest.
pub const IMAGE_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an image index.
pub const IMAGE_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Docker's media type of what OCI calls an image manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's media type of what OCI calls an image index.
pub const DOCKER_MANIFEST_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Every manifest type that is asked for and accepted, in the order of preference.
pub const MANIFEST_TYPES: [&str; 4] = [IMAGE_MANIFEST, IMAGE_INDEX, DOCKER_MANIFEST, DOCKER_MANIFEST_LIST];
/// A manifest is read into memory, so it has a limit: the one of OpenTofu and of distribution.
pub const MAX_MANIFEST_SIZE: u64 = 4 * 1024 * 1024;

/// Free key and value pairs; sorted, so that what is written is the same every time.
pub type Annotations = BTreeMap<String, String>;

/// Names a piece of content by type, digest and size in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the content.
    #[serde(default)]
    pub media_type: String,
    /// Digest of the content.
    pub digest: Digest,
    /// Length of the content in bytes: a claim until the bytes were counted, never a reason to allocate.
    pub size: u64,
    /// Type of the artifact, where the content is a manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Annotations of the reference, not of the content.
    #[serde(default, skip_serializing_if = "Annotations::is_empty", deserialize_with = "null_is_empty")]
    pub annotations: Annotations,
    /// The content itself, base64, where it is small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// For which system the content is, in an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Other places of the content. Never fetched; their presence marks a layer that need not be in the registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub urls: Vec<String>,
}

impl Descriptor {
    /// A descriptor of `bytes`.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self::new(media_type, Digest::of(bytes), bytes.len() as u64)
    }

    /// A descriptor without annotations or data.
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest,
            size,
            artifact_type: None,
            annotations: Annotations::new(),
            data: None,
            platform: None,
            urls: Vec::new(),
        }
    }

    /// Whether the content is one that a registry need not have: its bytes are somewhere else.
    pub fn is_elsewhere(&self) -> bool {
        !self.urls.is_empty() || NON_DISTRIBUTABLE.iter().any(|kind| self.media_type.starts_with(kind))
    }
}

/// Layers that a registry need not have (image specification, "Non-Distributable Layers", and Docker's own).
const NON_DISTRIBUTABLE: [&str; 2] =
    ["application/vnd.oci.image.layer.nondistributable.", "application/vnd.docker.image.rootfs.foreign."];

/// Operating system and processor, in Go's names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// Processor, such as `amd64`.
    pub architecture: String,
    /// Operating system, such as `linux`.
    pub os: String,
    /// A version of the operating system; a provider must have none.
    #[serde(rename = "os.version", skip_serializing_if = "Option::is_none")]
    pub os_version: Option<String>,
    /// Variant of the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// An image manifest or an image index, as far as ocimod reads it. Fields that it does not know are not lost: the bytes
/// are kept beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// 2 in every manifest that is accepted.
    pub schema_version: u32,
    /// The manifest's own type, where it says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// What kind of artifact this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Configuration; an image manifest has it, an index has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Descriptor>,
    /// The layers of an image manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub layers: Vec<Descriptor>,
    /// The manifests of an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifests: Option<Vec<Descriptor>>,
    /// The manifest that this one is about (a signature, a bundle).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Annotations of the whole.
    #[serde(default, skip_serializing_if = "Annotations::is_empty", deserialize_with = "null_is_empty")]
    pub annotations: Annotations,
}

/// Go writes an empty map or list as `null`.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The bytes are no manifest that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or fields of a wrong type.
    #[error("the manifest is not valid: {0}")]
    Json(String),
    /// Neither an image manifest nor an index of schema version 2.
    #[error("the manifest has schemaVersion {0}; only version 2 is supported")]
    SchemaVersion(u32),
    /// Content-Type and body disagree (CVE-2021-41190).
    #[error("the manifest was given as `{given}` and calls itself `{body}`")]
    MediaType {
        /// From the Content-Type or the descriptor.
        given: String,
        /// From the body's `mediaType`.
        body: String,
    },
    /// The type is not one of [`MANIFEST_TYPES`].
    #[error("`{0}` is not a manifest type that is supported")]
    UnknownType(String),
    /// Both `config` or `layers` and `manifests`, or neither: it could be read as two different things.
    #[error("the manifest is neither plainly an image manifest nor plainly an index")]
    Ambiguous,
    /// A descriptor gives another size than its content has.
    #[error("the manifest says that `{digest}` is {given} bytes long, but it is {stored}")]
    Size {
        /// The content.
        digest: Digest,
        /// What the manifest says.
        given: u64,
        /// What is stored.
        stored: u64,
    },
    /// Over [`MAX_MANIFEST_SIZE`].
    #[error("the manifest is {0} bytes long; at most {MAX_MANIFEST_SIZE} are allowed")]
    TooLarge(u64),
}

impl Manifest {
    /// Reads `bytes` that came as `media_type` (a Content-Type without parameters, or a descriptor's type).
    ///
    /// The body's own `mediaType`, where it has one, must agree, and an index is never taken for an image manifest.
    pub fn parse(media_type: &str, bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() as u64 > MAX_MANIFEST_SIZE {
            return Err(ManifestError::TooLarge(bytes.len() as u64));
        }
        if !MANIFEST_TYPES.contains(&media_type) {
            return Err(ManifestError::UnknownType(media_type.chars().take(200).collect()));
        }
        let manifest: Self =
            serde_json::from_slice(bytes).map_err(|error| ManifestError::Json(error.to_string()))?;
        if manifest.schema_version != 2 {
            return Err(ManifestError::SchemaVersion(manifest.schema_version));
        }
        if let Some(body) = manifest.media_type.as_deref().filter(|body| *body != media_type) {
            return Err(ManifestError::MediaType {
                given: media_type.to_owned(),
                body: body.chars().take(200).collect(),
            });
        }
        let is_index = matches!(media_type, IMAGE_INDEX | DOCKER_MANIFEST_LIST);
        let fits = if is_index {
            manifest.manifests.is_some() && manifest.config.is_none() && manifest.layers.is_empty()
        } else {
            manifest.config.is_some() && manifest.manifests.is_none()
        };
        if fits { Ok(manifest) } else { Err(ManifestError::Ambiguous) }
    }

    /// Whether this is an index of manifests.
    pub fn is_index(&self) -> bool {
        self.config.is_none()
    }

    /// The manifests of an index; none for an image manifest.
    pub fn entries(&self) -> &[Descriptor] {
        self.manifests.as_deref().unwrap_or_default()
    }

    /// What has to be there for the manifest to be whole: all that it refers to but its subject, and layers that are kept elsewhere.
    pub fn needed(&self) -> impl Iterator<Item = &Descriptor> {
        let layers = self.layers.iter().filter(|layer| !layer.is_elsewhere());
        self.config.iter().chain(layers).chain(self.entries())
    }

    /// Whether an index keeps all that an earlier one gave: every entry, and for each system the same first choice. Then who has used the
    /// earlier one finds what it found there.
    pub fn extends(&self, earlier: &Self) -> bool {
        /// The first entry for each system.
        fn first_choices(manifest: &Manifest) -> HashMap<(&str, &str), &Descriptor> {
            let mut choices = HashMap::new();
            for entry in manifest.entries() {
                if let Some(platform) = &entry.platform {
                    choices.entry((platform.os.as_str(), platform.architecture.as_str())).or_insert(entry);
                }
            }
            choices
        }
        // In a stranger's index there may be a great many, so each is looked up, and not looked for.
        let text = |entry: &Descriptor| serde_json::to_string(entry).ok();
        let entries: HashSet<_> = self.entries().iter().filter_map(text).collect();
        let choices = first_choices(self);
        earlier.is_index()
            && self.is_index()
            && earlier.artifact_type == self.artifact_type
            && earlier.subject == self.subject
            && earlier.entries().iter().all(|entry| text(entry).is_some_and(|text| entries.contains(&text)))
            && first_choices(earlier).iter().all(|(system, entry)| choices.get(system) == Some(entry))
    }

    /// The type that a list of referrers gives: the artifact's, else, for an image manifest, that of its configuration
    /// (distribution specification, "Listing Referrers").
    pub fn referrer_type(&self) -> Option<&str> {
        self.artifact_type
            .as_deref()
            .filter(|kind| !kind.is_empty())
            .or_else(|| self.config.as_ref().map(|config| config.media_type.as_str()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    fn image(extra: &str) -> String {
        format!(
            r#"{{"schemaVersion":2{extra},"config":{{"mediaType":"a/b","digest":"{DIGEST}","size":2}},"layers":[]}}"#
        )
    }

    #[test]
    fn unknown_fields_and_nulls_are_fine() {
        let text = image(r#","annotations":null,"more":{"x":1}"#);
        let manifest = Manifest::parse(IMAGE_MANIFEST, text.as_bytes()).unwrap();
        assert_eq!(manifest.referrer_type(), Some("a/b"));
        assert!(!manifest.is_index());
    }

    #[test]
    fn an_index_is_never_taken_for_an_image_manifest() {
        let both = image(r#","manifests":[]"#);
        for media_type in [IMAGE_MANIFEST, IMAGE_INDEX] {
            assert_eq!(Manifest::parse(media_type, both.as_bytes()), Err(ManifestError::Ambiguous));
        }
        let index = br#"{"schemaVersion":2,"manifests":[]}"#;
        assert!(Manifest::parse(IMAGE_INDEX, index).unwrap().is_index());
        assert_eq!(Manifest::parse(IMAGE_MANIFEST, index), Err(ManifestError::Ambiguous));
    }

    #[test]
    fn an_index_extends_what_it_keeps_whole() {
        let entry = |number: u8, os: &str| {
            let digest = Digest::of(&[number]);
            format!(
                r#"{{"mediaType":"{IMAGE_MANIFEST}","digest":"{digest}","size":1,"platform":{{"os":"{os}","architecture":"amd64"}}}}"#
            )
        };
        let index = |entries: &[&str]| {
            let text = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","));
            Manifest::parse(IMAGE_INDEX, text.as_bytes()).unwrap()
        };
        let (linux, darwin, other_linux) = (entry(1, "linux"), entry(2, "darwin"), entry(3, "linux"));
        let (one, both) = (index(&[&linux]), index(&[&darwin, &linux]));
        assert!(both.extends(&one) && one.extends(&one) && one.extends(&index(&[])));
        assert!(!one.extends(&both) && !index(&[&other_linux]).extends(&one));
        assert!(!index(&[&other_linux, &linux]).extends(&one), "another one would be found first");
        assert!(index(&[&linux, &other_linux]).extends(&one));
        let image = Manifest::parse(IMAGE_MANIFEST, image("").as_bytes()).unwrap();
        assert!(!image.extends(&image));
    }

    #[test]
    fn what_a_manifest_needs_is_all_but_its_subject_and_what_is_kept_elsewhere() {
        let layer = |kind: &str, number: u8, more: &str| {
            format!(r#"{{"mediaType":"{kind}","digest":"{}","size":1{more}}}"#, Digest::of(&[number]))
        };
        let layers = [
            layer("application/zip", 1, ""),
            layer("application/vnd.oci.image.layer.nondistributable.v1.tar", 2, ""),
            layer("application/zip", 3, r#","urls":["https://example.com/x"]"#),
        ];
        let text = format!(
            r#"{{"schemaVersion":2,"config":{},"layers":[{}],"subject":{}}}"#,
            layer("a/b", 4, ""),
            layers.join(","),
            layer(IMAGE_MANIFEST, 5, "")
        );
        let manifest = Manifest::parse(IMAGE_MANIFEST, text.as_bytes()).unwrap();
        let needed: Vec<_> = manifest.needed().map(|descriptor| descriptor.digest.clone()).collect();
        assert_eq!(needed, [Digest::of(&[4]), Digest::of(&[1])]);
    }

    #[test]
    fn type_and_body_must_agree() {
        let text = image(&format!(r#","mediaType":"{IMAGE_INDEX}""#));
        assert!(matches!(
            Manifest::parse(IMAGE_MANIFEST, text.as_bytes()),
            Err(ManifestError::MediaType { .. })
        ));
        assert!(matches!(Manifest::parse("text/html", text.as_bytes()), Err(ManifestError::UnknownType(_))));
    }

    #[test]
    fn lies_about_sizes_do_not_parse() {
        for size in ["-1", "1.5", "99999999999999999999", "\"2\""] {
            let text = format!(
                r#"{{"schemaVersion":2,"config":{{"mediaType":"a/b","digest":"{DIGEST}","size":{size}}},"layers":[]}}"#
            );
            assert!(matches!(Manifest::parse(IMAGE_MANIFEST, text.as_bytes()), Err(ManifestError::Json(_))));
        }
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        let text = format!(r#"{{"schemaVersion":2,"x":{}"#, "[".repeat(200_000));
        assert!(matches!(Manifest::parse(IMAGE_MANIFEST, text.as_bytes()), Err(ManifestError::Json(_))));
    }
}
