//! A provider's version as an OCI image index, written and read: one manifest for each system, as OpenTofu's `oci_mirror` looks for
//! them.
//!
//! The zip of a system is the provider's own, byte for byte, so that its digest is the `zh:` hash of lock files. The `h1:` hash cannot
//! be told without unpacking, so it is written down beside it, at the manifest and at its entry in the index.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::media_types as types;
use super::module::{Content, describe};
use crate::module::{PackageName, ProviderAddress, ProviderPlatform, Version};
use crate::oci::{
    Algorithm, Annotations, Descriptor, Digest, IMAGE_INDEX, IMAGE_MANIFEST, Manifest, ManifestError,
    Platform,
};

/// The `h1:` hash of a package: `h1:` and the base64 of 32 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackageHash(String);

/// The text is no `h1:` hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an `h1:` hash: expected `h1:` and 32 bytes in base64")]
pub struct PackageHashError(String);

impl FromStr for PackageHash {
    type Err = PackageHashError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.strip_prefix("h1:").and_then(|encoded| STANDARD.decode(encoded).ok());
        match bytes {
            Some(bytes) if bytes.len() == 32 => Ok(Self(text.to_owned())),
            _ => Err(PackageHashError(text.chars().take(100).collect())),
        }
    }
}

impl fmt::Display for PackageHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What is kept is no provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Something else is kept under that tag.
    #[error("this is {found}, not a provider")]
    NotAProvider {
        /// What it is, in words.
        found: String,
    },
    /// `tofu` takes the one layer of type `archive/zip`; with several nobody knows which.
    #[error(
        "the manifest for `{platform}` has {count} layers of type `archive/zip`; that of a provider has exactly one"
    )]
    ArchiveLayers {
        /// The system.
        platform: ProviderPlatform,
        /// How many there are.
        count: usize,
    },
    /// The digest of a zip is its `zh:` hash, which is by sha256.
    #[error(
        "the zip for `{platform}` is known by `{digest}`; only sha256 digests can be hashes of a provider"
    )]
    Algorithm {
        /// The system.
        platform: ProviderPlatform,
        /// The zip.
        digest: Digest,
    },
    /// A zip that a registry need not have, since its bytes are said to be somewhere else.
    #[error(
        "the zip for `{platform}` (`{digest}`) is said to be somewhere else; nothing is fetched from there"
    )]
    Elsewhere {
        /// The system.
        platform: ProviderPlatform,
        /// The zip.
        digest: Digest,
    },
    /// An index without the form of one: nothing can be added to it.
    #[error("the index cannot be added to: {0}")]
    Index(String),
}

/// The package of a provider for one system, as a manifest has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderTarget {
    /// The system.
    pub platform: ProviderPlatform,
    /// The zip: digest and size in bytes.
    pub archive: Content,
    /// Its `h1:` hash, where somebody wrote it down.
    pub h1: Option<PackageHash>,
}

impl ProviderTarget {
    /// The manifest's bytes. The same package gives the same bytes.
    pub fn to_manifest(&self, address: &ProviderAddress, version: &Version) -> Bytes {
        let mut layer = self.archive.descriptor(types::ARCHIVE_ZIP);
        let name = PackageName::of(address, version, &self.platform);
        layer.annotations.insert(types::TITLE.to_owned(), name.to_string());
        let mut annotations = annotations(address, version);
        annotations.extend(self.h1.iter().map(|h1| (types::PACKAGE_HASH.to_owned(), h1.to_string())));
        render(&Manifest {
            schema_version: 2,
            media_type: Some(IMAGE_MANIFEST.to_owned()),
            artifact_type: Some(types::OPENTOFU_PROVIDER_TARGET.to_owned()),
            config: Some(Descriptor::of(types::EMPTY, types::EMPTY_CONFIG)),
            layers: vec![layer],
            manifests: None,
            subject: None,
            annotations,
        })
    }

    /// Reads the manifest that an entry of an index names.
    pub fn read(entry: &ProviderEntry, manifest: &Manifest) -> Result<Self, ProviderError> {
        if manifest.is_index() || manifest.artifact_type.as_deref() != Some(types::OPENTOFU_PROVIDER_TARGET) {
            return Err(ProviderError::NotAProvider { found: describe(manifest) });
        }
        let archives: Vec<_> =
            manifest.layers.iter().filter(|layer| layer.media_type == types::ARCHIVE_ZIP).collect();
        let platform = || entry.platform.clone();
        let [archive] = archives[..] else {
            return Err(ProviderError::ArchiveLayers { platform: platform(), count: archives.len() });
        };
        if archive.digest.algorithm() != Algorithm::Sha256 {
            return Err(ProviderError::Algorithm { platform: platform(), digest: archive.digest.clone() });
        }
        if archive.is_elsewhere() {
            return Err(ProviderError::Elsewhere { platform: platform(), digest: archive.digest.clone() });
        }
        let written = manifest.annotations.get(types::PACKAGE_HASH);
        let h1 = entry.h1.clone().or_else(|| written.and_then(|text| text.parse().ok()));
        Ok(Self { platform: platform(), archive: Content::of(archive), h1 })
    }

    /// The entry of the index for this package's manifest.
    pub fn entry(&self, manifest: &[u8]) -> ProviderEntry {
        let manifest = Content { digest: Digest::of(manifest), size: manifest.len() as u64 };
        ProviderEntry { platform: self.platform.clone(), manifest, h1: self.h1.clone() }
    }

    /// The `zh:` hash: the zip's own.
    pub fn zh(&self) -> String {
        format!("zh:{}", self.archive.digest.hex())
    }
}

/// An entry of the index: the manifest of one system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderEntry {
    /// The system.
    pub platform: ProviderPlatform,
    /// Its manifest.
    pub manifest: Content,
    /// The `h1:` hash of its zip, where somebody wrote it down.
    pub h1: Option<PackageHash>,
}

impl ProviderEntry {
    fn descriptor(&self) -> Descriptor {
        let mut descriptor = self.manifest.descriptor(IMAGE_MANIFEST);
        descriptor.artifact_type = Some(types::OPENTOFU_PROVIDER_TARGET.to_owned());
        descriptor.platform = Some(Platform {
            architecture: self.platform.architecture().to_owned(),
            os: self.platform.os().to_owned(),
            os_version: None,
            variant: None,
        });
        let h1 = self.h1.iter().map(|h1| (types::PACKAGE_HASH.to_owned(), h1.to_string()));
        descriptor.annotations.extend(h1);
        descriptor
    }

    /// `None` for an entry that `tofu` passes over too.
    pub fn read(descriptor: &Descriptor) -> Option<Self> {
        let is_target = descriptor.artifact_type.as_deref() == Some(types::OPENTOFU_PROVIDER_TARGET)
            && descriptor.media_type == IMAGE_MANIFEST;
        let platform = descriptor.platform.as_ref().filter(|_| is_target)?;
        // A version of the system narrows the entry down, and a provider is for all of them.
        if platform.os_version.as_ref().is_some_and(|version| !version.is_empty()) {
            return None;
        }
        let h1 = descriptor.annotations.get(types::PACKAGE_HASH).and_then(|text| text.parse().ok());
        Some(Self {
            platform: ProviderPlatform::new(&platform.os, &platform.architecture).ok()?,
            manifest: Content::of(descriptor),
            h1,
        })
    }
}

/// The systems of a provider's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderIndex {
    /// The systems, sorted.
    pub entries: Vec<ProviderEntry>,
    /// The systems with several manifests. `tofu` refuses to choose, so nobody is given any of them.
    pub ambiguous: Vec<ProviderPlatform>,
}

impl ProviderIndex {
    /// Reads an index that ocimod or `oras` wrote.
    pub fn read(index: &Manifest) -> Result<Self, ProviderError> {
        if !index.is_index() || index.artifact_type.as_deref() != Some(types::OPENTOFU_PROVIDER) {
            return Err(ProviderError::NotAProvider { found: describe(index) });
        }
        let mut by_platform: BTreeMap<ProviderPlatform, Vec<ProviderEntry>> = BTreeMap::new();
        for entry in index.entries().iter().filter_map(ProviderEntry::read) {
            by_platform.entry(entry.platform.clone()).or_default().push(entry);
        }
        let mut read = Self::default();
        for (platform, mut entries) in by_platform {
            match entries.pop() {
                Some(entry) if entries.is_empty() => read.entries.push(entry),
                _ => read.ambiguous.push(platform),
            }
        }
        Ok(read)
    }

    /// The entry of a system.
    pub fn get(&self, platform: &ProviderPlatform) -> Option<&ProviderEntry> {
        self.entries.iter().find(|entry| entry.platform == *platform)
    }

    /// The bytes of a new index with these entries.
    pub fn new_bytes(address: &ProviderAddress, version: &Version, entries: &[ProviderEntry]) -> Bytes {
        let mut sorted: Vec<_> = entries.iter().collect();
        sorted.sort_by(|one, other| one.platform.cmp(&other.platform));
        render(&Manifest {
            schema_version: 2,
            media_type: Some(IMAGE_INDEX.to_owned()),
            artifact_type: Some(types::OPENTOFU_PROVIDER.to_owned()),
            config: None,
            layers: Vec::new(),
            manifests: Some(sorted.into_iter().map(ProviderEntry::descriptor).collect()),
            subject: None,
            annotations: annotations(address, version),
        })
    }

    /// The bytes of an index with more entries: what else stands in it stays, whoever wrote it and whatever it means. Sorted, so that
    /// it does not matter in which order systems were added.
    pub fn extended_bytes(index: &[u8], entries: &[ProviderEntry]) -> Result<Bytes, ProviderError> {
        let unreadable = |error: serde_json::Error| ProviderError::Index(error.to_string());
        let mut document: Value = serde_json::from_slice(index).map_err(unreadable)?;
        let Some(list) = document.get_mut("manifests").and_then(Value::as_array_mut) else {
            return Err(ProviderError::Index("it has no `manifests`".to_owned()));
        };
        for entry in entries {
            list.push(serde_json::to_value(entry.descriptor()).map_err(unreadable)?);
        }
        let key = |entry: &Value| {
            let part = |name: &str| entry["platform"][name].as_str().unwrap_or_default().to_owned();
            (part("os"), part("architecture"))
        };
        list.sort_by_cached_key(key);
        serde_json::to_vec(&document).map(Bytes::from).map_err(unreadable)
    }

    /// The bytes of an index with those of its entries that are wanted: the same bytes where that is all of them, and everything else
    /// that stands in it otherwise.
    pub fn reduced_bytes(
        index: &Manifest,
        bytes: &Bytes,
        is_wanted: impl Fn(&Descriptor) -> bool,
    ) -> Result<Bytes, ManifestError> {
        if index.entries().iter().all(&is_wanted) {
            return Ok(bytes.clone());
        }
        let unreadable = |error: serde_json::Error| ManifestError::Json(error.to_string());
        let mut fields: Map<String, Value> = serde_json::from_slice(bytes).map_err(unreadable)?;
        if let Some(Value::Array(entries)) = fields.get_mut("manifests") {
            // They were read from these very entries, one by one.
            let mut wanted = index.entries().iter().map(is_wanted);
            entries.retain(|_| wanted.next().unwrap_or(false));
        }
        serde_json::to_vec(&fields).map(Bytes::from).map_err(unreadable)
    }
}

fn annotations(address: &ProviderAddress, version: &Version) -> Annotations {
    let said = [(types::VERSION, version.to_string()), (types::TITLE, address.to_string())];
    said.map(|(key, value)| (key.to_owned(), value)).into()
}

fn render(manifest: &Manifest) -> Bytes {
    // Strings, numbers and lists alone: there is nothing in it that JSON could not hold.
    serde_json::to_vec(manifest).map(Bytes::from).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const H1: &str = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

    fn address() -> ProviderAddress {
        ProviderAddress::parse("registry.opentofu.org/hashicorp/time").unwrap()
    }

    fn version() -> Version {
        Version::parse("0.14.2").unwrap()
    }

    fn target(platform: &str) -> ProviderTarget {
        let archive = Content { digest: Digest::of(platform.as_bytes()), size: 7 };
        ProviderTarget { platform: platform.parse().unwrap(), archive, h1: Some(H1.parse().unwrap()) }
    }

    fn entry(platform: &str) -> ProviderEntry {
        let target = target(platform);
        target.entry(&target.to_manifest(&address(), &version()))
    }

    fn read(bytes: &[u8]) -> ProviderIndex {
        ProviderIndex::read(&Manifest::parse(IMAGE_INDEX, bytes).unwrap()).unwrap()
    }

    #[test]
    fn a_zip_that_is_kept_elsewhere_is_none_of_a_provider() {
        let manifest = target("linux_amd64").to_manifest(&address(), &version());
        let mut manifest = Manifest::parse(IMAGE_MANIFEST, &manifest).unwrap();
        manifest.layers[0].urls.push("https://x.example/zip".to_owned());
        let error = ProviderTarget::read(&entry("linux_amd64"), &manifest).unwrap_err();
        assert!(matches!(error, ProviderError::Elsewhere { .. }), "{error}");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let (linux, darwin) = (entry("linux_amd64"), entry("darwin_arm64"));
        let bytes = ProviderIndex::new_bytes(&address(), &version(), &[linux.clone(), darwin.clone()]);
        let index = read(&bytes);
        assert_eq!(index.entries, [darwin, linux.clone()]);
        assert_eq!(index.ambiguous, []);
        let manifest = target("linux_amd64").to_manifest(&address(), &version());
        let manifest = Manifest::parse(IMAGE_MANIFEST, &manifest).unwrap();
        let target = target("linux_amd64");
        assert_eq!(ProviderTarget::read(&linux, &manifest).unwrap(), target);
        assert_eq!(target.zh(), format!("zh:{}", Digest::of(b"linux_amd64").hex()));
    }

    #[test]
    fn the_index_is_what_opentofu_checks() {
        let bytes = ProviderIndex::new_bytes(&address(), &version(), &[entry("linux_amd64")]);
        let index: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(index["mediaType"], IMAGE_INDEX);
        assert_eq!(index["artifactType"], "application/vnd.opentofu.provider");
        let entry = &index["manifests"][0];
        assert_eq!(entry["mediaType"], IMAGE_MANIFEST);
        assert_eq!(entry["artifactType"], "application/vnd.opentofu.provider-target");
        assert_eq!(entry["platform"], serde_json::json!({"architecture": "amd64", "os": "linux"}));
        assert_eq!(entry["annotations"]["works.ocimod.h1"], H1);
        let manifest = target("linux_amd64").to_manifest(&address(), &version());
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["artifactType"], "application/vnd.opentofu.provider-target");
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
        assert_eq!(manifest["layers"][0]["mediaType"], "archive/zip");
    }

    #[test]
    fn systems_are_added_in_any_order_and_nothing_is_lost() {
        let [linux, darwin, windows] = ["linux_amd64", "darwin_arm64", "windows_386"].map(entry);
        let start = |first: &ProviderEntry| {
            ProviderIndex::new_bytes(&address(), &version(), std::slice::from_ref(first))
        };
        let one = ProviderIndex::extended_bytes(&start(&linux), &[windows.clone(), darwin.clone()]).unwrap();
        let other = ProviderIndex::extended_bytes(&start(&windows), &[linux, darwin]).unwrap();
        assert_eq!(one, other);
        assert_eq!(read(&one).entries.len(), 3);
        let mut foreign: Value = serde_json::from_slice(&start(&windows)).unwrap();
        foreign["manifests"][0]["x-more"] = 1.into();
        foreign["x-own"] = "kept".into();
        let bytes =
            ProviderIndex::extended_bytes(foreign.to_string().as_bytes(), &[entry("linux_arm64")]).unwrap();
        let kept: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((&kept["x-own"], &kept["manifests"][1]["x-more"]), (&"kept".into(), &1.into()));
        assert!(matches!(ProviderIndex::extended_bytes(b"{}", &[]), Err(ProviderError::Index(_))));
    }

    #[test]
    fn an_index_loses_the_entries_that_are_not_wanted_and_nothing_else() {
        let target = |os: &str| {
            let digest = Digest::of(os.as_bytes());
            format!(
                r#"{{"mediaType":"{IMAGE_MANIFEST}","digest":"{digest}","size":1,"own":1,"artifactType":"{}","platform":{{"architecture":"amd64","os":"{os}"}}}}"#,
                types::OPENTOFU_PROVIDER_TARGET
            )
        };
        let (linux, darwin) = (target("linux"), target("darwin"));
        let text = format!(
            r#"{{ "schemaVersion":2,"manifests":[{linux},{darwin}],"own":[2,1],"artifactType":"application/vnd.opentofu.provider"}}"#
        );
        let bytes = Bytes::from(text.clone());
        let index = Manifest::parse(IMAGE_INDEX, &bytes).unwrap();
        let platform: ProviderPlatform = "darwin_amd64".parse().unwrap();
        let is_darwin =
            |entry: &Descriptor| ProviderEntry::read(entry).is_some_and(|entry| entry.platform == platform);
        let one = ProviderIndex::reduced_bytes(&index, &bytes, is_darwin).unwrap();
        assert_eq!(one, text.replacen("{ ", "{", 1).replace(&format!("{linux},"), ""));
        assert_eq!(ProviderIndex::reduced_bytes(&index, &bytes, |_| true).unwrap(), text);
        let none = ProviderIndex::reduced_bytes(&index, &bytes, |_| false).unwrap();
        let none = Manifest::parse(IMAGE_INDEX, &none).unwrap();
        assert!(none.entries().is_empty() && index.extends(&none));
    }

    #[test]
    fn what_opentofu_passes_over_is_passed_over() {
        let bytes = ProviderIndex::new_bytes(&address(), &version(), &[entry("linux_amd64")]);
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut index: Value = serde_json::from_slice(&bytes).unwrap();
            change(&mut index["manifests"][0]);
            read(index.to_string().as_bytes()).entries.len()
        };
        assert_eq!(changed(&|_| {}), 1);
        assert_eq!(changed(&|entry| entry["platform"]["os.version"] = "10".into()), 0);
        assert_eq!(changed(&|entry| entry["platform"]["os"] = "../linux".into()), 0);
        assert_eq!(changed(&|entry| entry["artifactType"] = "application/x".into()), 0);
        assert_eq!(changed(&|entry| entry["mediaType"] = IMAGE_INDEX.into()), 0);
        assert_eq!(changed(&|entry| drop(entry.as_object_mut().unwrap().remove("platform"))), 0);
    }

    #[test]
    fn two_manifests_for_one_system_are_none() {
        let mut index: Value = serde_json::from_slice(&ProviderIndex::new_bytes(
            &address(),
            &version(),
            &[entry("linux_amd64"), entry("linux_arm")],
        ))
        .unwrap();
        index["manifests"][1]["platform"]["architecture"] = "amd64".into();
        let index = read(index.to_string().as_bytes());
        assert_eq!((index.entries.len(), index.ambiguous), (0, vec!["linux_amd64".parse().unwrap()]));
    }

    #[test]
    fn what_is_no_provider_is_named_for_what_it_is() {
        let image = Manifest::parse(IMAGE_INDEX, br#"{"schemaVersion":2,"manifests":[]}"#).unwrap();
        let error = ProviderIndex::read(&image).unwrap_err();
        assert_eq!(error.to_string(), "this is an image index, not a provider");
        let entry = entry("linux_amd64");
        let text =
            String::from_utf8(target("linux_amd64").to_manifest(&address(), &version()).to_vec()).unwrap();
        let parse = |text: &str| Manifest::parse(IMAGE_MANIFEST, text.as_bytes()).unwrap();
        let none = parse(&text.replace("archive/zip", "application/zip"));
        assert!(matches!(
            ProviderTarget::read(&entry, &none),
            Err(ProviderError::ArchiveLayers { count: 0, .. })
        ));
        let module = parse(&text.replace("opentofu.provider-target", "opentofu.modulepkg"));
        assert!(matches!(ProviderTarget::read(&entry, &module), Err(ProviderError::NotAProvider { .. })));
        let mut long = parse(&text);
        long.layers[0].digest = format!("sha512:{}", "a".repeat(128)).parse().unwrap();
        assert!(matches!(ProviderTarget::read(&entry, &long), Err(ProviderError::Algorithm { .. })));
    }

    #[test]
    fn a_hash_is_32_bytes_in_base64() {
        assert_eq!(H1.parse::<PackageHash>().unwrap().to_string(), H1);
        for text in ["", "h1:", "h1:AAAA", "zh:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "h1:\n"] {
            assert!(text.parse::<PackageHash>().is_err(), "{text:?}");
        }
    }
}
