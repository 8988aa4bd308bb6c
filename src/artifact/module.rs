//! A module as an OCI image manifest, written and read.
//!
//! Written so that one manifest without dependencies is what `tofu` reads as `oci://...`, what `cue` reads, and what the shim
//! serves. `cue` refuses a manifest whose `layers` is not exactly two long, hence the two forms: with dependency layers, and
//! the first two layers alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::media_types as types;
use crate::archive::ModuleKind;
use crate::module::ModuleVersion;
use crate::oci::{Annotations, Descriptor, Digest, IMAGE_MANIFEST, Manifest};

/// A module file of at most so many bytes stands in its descriptor too (`data`), which saves readers a request; above that
/// the manifest would grow for everybody.
const INLINE_MODULE_FILE: usize = 4 * 1024;

/// The parts of a module's manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleArtifact {
    /// Who can read it: decides the media type of the zip and the artifact type.
    pub kind: ModuleKind,
    /// The module's zip: digest and size in bytes.
    pub archive: Content,
    /// The module file; absent in what other tools wrote for `tofu` alone.
    pub module_file: Option<ModuleFileLayer>,
    /// The zips of the dependencies, in the order of the layers.
    pub dependencies: Vec<DependencyLayer>,
    /// Annotations of the whole.
    pub annotations: Annotations,
}

/// A blob by digest and size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Content {
    /// Digest of the bytes.
    pub digest: Digest,
    /// Their number; a claim until they were counted.
    pub size: u64,
}

/// The layer with the bytes of `cue.mod/module.cue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFileLayer {
    /// Digest and size.
    pub content: Content,
    /// The bytes, where the descriptor holds them. They were compared with the digest.
    pub data: Option<Bytes>,
}

impl ModuleFileLayer {
    /// The layer for these bytes.
    pub fn of(bytes: Bytes) -> Self {
        Self { content: Content { digest: Digest::of(&bytes), size: bytes.len() as u64 }, data: Some(bytes) }
    }
}

/// A layer that is the zip of a module which this one needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependencyLayer {
    /// Which module, in which version.
    pub module: ModuleVersion,
    /// Its zip: the same blob as the first layer of its own manifest.
    pub archive: Content,
    /// Only needed where the holder is the main module (its tests and tools).
    pub main_only: bool,
}

/// The manifest is not that of a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    /// Something else is kept under that tag.
    #[error("this is {found}, not a module")]
    NotAModule {
        /// What it is, in words.
        found: String,
    },
    /// `tofu` takes the one layer of type `archive/zip`; with several nobody knows which.
    #[error("the manifest has {0} layers of type `archive/zip`; a module has exactly one")]
    ArchiveLayers(usize),
    /// The annotation of a dependency layer cannot be read.
    #[error(
        "the layer `{digest}` says in `works.cue.module` that it is `{text}`, which is not `path@version`"
    )]
    Dependency {
        /// The layer.
        digest: Digest,
        /// What it says.
        text: String,
    },
    /// `data` of the module file's descriptor is not what its digest says.
    #[error("the module file inside the manifest does not have the digest `{0}`")]
    ModuleFileData(Digest),
    /// A layer that a registry need not have, since its bytes are said to be somewhere else.
    #[error("the layer `{0}` says that its bytes are somewhere else; nothing is fetched from there")]
    Elsewhere(Digest),
}

impl ModuleArtifact {
    /// The manifest's bytes, with the dependency layers. The same parts give the same bytes.
    pub fn to_manifest(&self) -> Bytes {
        self.render(&self.dependencies, None)
    }

    /// The manifest that today's `cue` reads: the first two layers alone.
    pub fn to_two_layer_manifest(&self) -> Bytes {
        self.render(&[], None)
    }

    /// The bundle: the manifest with the dependency layers, about the two-layer one.
    pub fn to_bundle(&self, two_layers: &[u8]) -> Bytes {
        let mut subject = Descriptor::of(IMAGE_MANIFEST, two_layers);
        subject.artifact_type = self.artifact_type().map(str::to_owned);
        self.render(&self.dependencies, Some(subject))
    }

    fn artifact_type(&self) -> Option<&'static str> {
        match self.kind {
            ModuleKind::OpenTofu => Some(types::OPENTOFU_MODULE),
            ModuleKind::Cue => None,
        }
    }

    fn render(&self, dependencies: &[DependencyLayer], subject: Option<Descriptor>) -> Bytes {
        let archive_type = match self.kind {
            ModuleKind::OpenTofu => types::ARCHIVE_ZIP,
            ModuleKind::Cue => types::APPLICATION_ZIP,
        };
        let mut layers = vec![self.archive.descriptor(archive_type)];
        if let Some(module_file) = &self.module_file {
            let mut layer = module_file.content.descriptor(types::CUE_MODULE_FILE);
            layer.data = module_file
                .data
                .as_ref()
                .filter(|data| data.len() <= INLINE_MODULE_FILE)
                .map(|data| STANDARD.encode(data));
            layers.push(layer);
        }
        layers.extend(dependencies.iter().map(DependencyLayer::descriptor));
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(IMAGE_MANIFEST.to_owned()),
            artifact_type: self.artifact_type().map(str::to_owned),
            config: Some(Descriptor::of(types::CUE_MODULE, types::EMPTY_CONFIG)),
            layers,
            manifests: None,
            subject,
            annotations: self.annotations.clone(),
        };
        // Strings, numbers and lists alone: there is nothing in it that JSON could not hold.
        serde_json::to_vec(&manifest).map(Bytes::from).unwrap_or_default()
    }

    /// Reads a manifest that ocimod, `cue mod publish` or `oras` wrote.
    pub fn read(manifest: &Manifest) -> Result<Self, ArtifactError> {
        let is_opentofu = manifest.artifact_type.as_deref() == Some(types::OPENTOFU_MODULE);
        let config_type = manifest.config.as_ref().map(|config| config.media_type.as_str());
        if !is_opentofu && config_type != Some(types::CUE_MODULE) {
            return Err(ArtifactError::NotAModule { found: describe(manifest) });
        }
        let (kind, archive) = if is_opentofu {
            let archives: Vec<_> =
                manifest.layers.iter().filter(|layer| layer.media_type == types::ARCHIVE_ZIP).collect();
            let [archive] = archives[..] else { return Err(ArtifactError::ArchiveLayers(archives.len())) };
            (ModuleKind::OpenTofu, archive)
        } else {
            // `cue` never looks at the type of the first layer, so neither is it looked at here.
            let first = manifest.layers.first();
            let found = || "a CUE module manifest without layers".to_owned();
            (ModuleKind::Cue, first.ok_or_else(|| ArtifactError::NotAModule { found: found() })?)
        };
        let archive = held(archive)?;
        let is_module_file = |layer: &&Descriptor| {
            layer.media_type == types::CUE_MODULE_FILE
                || layer.artifact_type.as_deref() == Some(types::CUE_MODULE_FILE)
        };
        let module_file = manifest.layers.iter().find(is_module_file).map(read_module_file).transpose()?;
        let dependencies = manifest
            .layers
            .iter()
            .filter_map(|layer| layer.annotations.get(types::DEPENDENCY).map(|text| (layer, text)))
            .map(|(layer, text)| DependencyLayer::read(layer, text))
            .collect::<Result<_, _>>()?;
        Ok(Self { kind, archive, module_file, dependencies, annotations: manifest.annotations.clone() })
    }
}

impl Content {
    pub(super) fn of(descriptor: &Descriptor) -> Self {
        Self { digest: descriptor.digest.clone(), size: descriptor.size }
    }

    pub(super) fn descriptor(&self, media_type: &str) -> Descriptor {
        Descriptor::new(media_type, self.digest.clone(), self.size)
    }
}

impl DependencyLayer {
    /// The layer as a manifest has it.
    pub(super) fn descriptor(&self) -> Descriptor {
        let mut descriptor = self.archive.descriptor(types::APPLICATION_ZIP);
        descriptor.annotations.insert(types::DEPENDENCY.to_owned(), self.module.to_string());
        if self.main_only {
            descriptor.annotations.insert(types::MAIN_ONLY.to_owned(), "true".to_owned());
        }
        descriptor
    }

    fn read(layer: &Descriptor, text: &str) -> Result<Self, ArtifactError> {
        let module = text.parse().map_err(|_| ArtifactError::Dependency {
            digest: layer.digest.clone(),
            text: text.chars().take(200).collect::<String>().escape_debug().to_string(),
        })?;
        let main_only = layer.annotations.get(types::MAIN_ONLY).is_some_and(|value| value == "true");
        Ok(Self { module, archive: held(layer)?, main_only })
    }
}

/// A layer that is in the registry. One that says that it is kept elsewhere is not taken, for the registry need not have it (image
/// specification, "Non-Distributable Layers"), and whoever installs would fetch from where a stranger says.
fn held(layer: &Descriptor) -> Result<Content, ArtifactError> {
    if layer.is_elsewhere() {
        return Err(ArtifactError::Elsewhere(layer.digest.clone()));
    }
    Ok(Content::of(layer))
}

fn read_module_file(layer: &Descriptor) -> Result<ModuleFileLayer, ArtifactError> {
    let content = held(layer)?;
    // `data` that is no base64 is passed over: the blob is there.
    let data = layer.data.as_ref().and_then(|data| STANDARD.decode(data).ok()).map(Bytes::from);
    if data.as_ref().is_some_and(|data| Digest::of(data) != content.digest) {
        return Err(ArtifactError::ModuleFileData(content.digest));
    }
    Ok(ModuleFileLayer { content, data })
}

/// What a manifest is that is not what was looked for, for an error message.
pub(super) fn describe(manifest: &Manifest) -> String {
    if manifest.is_index() {
        return match &manifest.artifact_type {
            Some(kind) => format!("an index of type `{}`", shorten(kind)),
            None => "an image index".to_owned(),
        };
    }
    match manifest.referrer_type() {
        Some(
            "application/vnd.oci.image.config.v1+json" | "application/vnd.docker.container.image.v1+json",
        ) => "a container image".to_owned(),
        Some(kind) => format!("an artifact of type `{}`", shorten(kind)),
        None => "an artifact of no known type".to_owned(),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn content(of: &[u8]) -> Content {
        Content { digest: Digest::of(of), size: of.len() as u64 }
    }

    fn module(kind: ModuleKind) -> ModuleArtifact {
        ModuleArtifact {
            kind,
            archive: content(b"zip"),
            module_file: Some(ModuleFileLayer::of(Bytes::from_static(b"module: \"example.com/a@v1\"\n"))),
            dependencies: vec![DependencyLayer {
                module: "example.com/b@v1.2.0".parse().unwrap(),
                archive: content(b"other zip"),
                main_only: true,
            }],
            annotations: [(types::VERSION.to_owned(), "1.0.0".to_owned())].into(),
        }
    }

    fn parse(bytes: &[u8]) -> Manifest {
        Manifest::parse(IMAGE_MANIFEST, bytes).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back() {
        for kind in [ModuleKind::OpenTofu, ModuleKind::Cue] {
            let module = module(kind);
            assert_eq!(ModuleArtifact::read(&parse(&module.to_manifest())).unwrap(), module);
            let two = module.to_two_layer_manifest();
            assert_eq!(parse(&two).layers.len(), 2);
            let bundle = parse(&module.to_bundle(&two));
            assert_eq!(bundle.subject.as_ref().unwrap().digest, Digest::of(&two));
            assert_eq!(ModuleArtifact::read(&bundle).unwrap(), module);
        }
    }

    #[test]
    fn a_layer_that_is_kept_elsewhere_is_none_of_a_module() {
        for kind in [ModuleKind::OpenTofu, ModuleKind::Cue] {
            let bytes = module(kind).to_manifest();
            for layer in 0..3 {
                let mut manifest: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                manifest["layers"][layer]["urls"] = serde_json::json!(["https://x.example/zip"]);
                let digest = manifest["layers"][layer]["digest"].as_str().unwrap().to_owned();
                let error = ModuleArtifact::read(&parse(manifest.to_string().as_bytes())).unwrap_err();
                assert!(error.to_string().contains(&format!("`{digest}`")), "{error}");
            }
        }
    }

    #[test]
    fn the_manifest_of_an_opentofu_module_is_what_tofu_and_cue_check() {
        let manifest: serde_json::Value =
            serde_json::from_slice(&module(ModuleKind::OpenTofu).to_manifest()).unwrap();
        assert_eq!(manifest["mediaType"], IMAGE_MANIFEST);
        assert_eq!(manifest["artifactType"], "application/vnd.opentofu.modulepkg");
        assert_eq!(manifest["config"]["mediaType"], "application/vnd.cue.module.v1+json");
        assert_eq!(manifest["config"]["size"], 2);
        let layers = manifest["layers"].as_array().unwrap();
        let of_type = |kind: &str| layers.iter().filter(|layer| layer["mediaType"] == kind).count();
        assert_eq!(of_type("archive/zip"), 1);
        assert_eq!(layers[0]["mediaType"], "archive/zip");
        assert_eq!(layers[1]["mediaType"], "application/vnd.cue.modulefile.v1");
        assert_eq!(layers[2]["annotations"]["works.cue.module"], "example.com/b@v1.2.0");
        assert_eq!(layers[2]["annotations"]["works.cue.mainonly"], "true");
    }

    #[test]
    fn a_cue_module_has_no_artifact_type_as_cue_writes_it() {
        let manifest: serde_json::Value =
            serde_json::from_slice(&module(ModuleKind::Cue).to_manifest()).unwrap();
        assert!(manifest.get("artifactType").is_none());
        assert_eq!(manifest["layers"][0]["mediaType"], "application/zip");
    }

    #[test]
    fn a_long_module_file_stays_a_blob() {
        let mut module = module(ModuleKind::Cue);
        module.module_file = Some(ModuleFileLayer::of(Bytes::from(vec![b'x'; INLINE_MODULE_FILE + 1])));
        assert_eq!(parse(&module.to_manifest()).layers[1].data, None);
    }

    #[test]
    fn what_oras_pushes_for_tofu_is_a_module_without_module_file() {
        let text = format!(
            r#"{{"schemaVersion":2,"mediaType":"{IMAGE_MANIFEST}","artifactType":"application/vnd.opentofu.modulepkg",
            "config":{{"mediaType":"application/vnd.oci.empty.v1+json","digest":"{}","size":2}},
            "layers":[{{"mediaType":"archive/zip","digest":"{}","size":3}}]}}"#,
            Digest::of(b"{}"),
            Digest::of(b"zip")
        );
        let module = ModuleArtifact::read(&parse(text.as_bytes())).unwrap();
        assert_eq!((module.kind, module.module_file), (ModuleKind::OpenTofu, None));
    }

    #[test]
    fn everything_else_is_named_for_what_it_is() {
        let image = format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{}","size":2}},"layers":[]}}"#,
            Digest::of(b"{}")
        );
        let error = ModuleArtifact::read(&parse(image.as_bytes())).unwrap_err();
        assert_eq!(error.to_string(), "this is a container image, not a module");
        let index =
            Manifest::parse(crate::oci::IMAGE_INDEX, br#"{"schemaVersion":2,"manifests":[]}"#).unwrap();
        assert_eq!(
            ModuleArtifact::read(&index).unwrap_err().to_string(),
            "this is an image index, not a module"
        );
    }

    #[test]
    fn two_archives_and_false_data_are_refused() {
        let good = String::from_utf8(module(ModuleKind::OpenTofu).to_manifest().to_vec()).unwrap();
        let two = good.replace("application/zip", "archive/zip");
        assert_eq!(ModuleArtifact::read(&parse(two.as_bytes())), Err(ArtifactError::ArchiveLayers(2)));
        let mut lie = parse(good.as_bytes());
        lie.layers[1].data = Some(STANDARD.encode("module: \"evil.example/a@v1\""));
        assert!(matches!(ModuleArtifact::read(&lie), Err(ArtifactError::ModuleFileData(_))));
        let mut lie = parse(good.as_bytes());
        lie.layers[2].annotations.insert(types::DEPENDENCY.to_owned(), "no version".to_owned());
        assert!(matches!(ModuleArtifact::read(&lie), Err(ArtifactError::Dependency { .. })));
    }
}
