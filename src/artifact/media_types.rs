//! The media types of modules and providers in OCI manifests, as `tofu` and `cue` look for them.

/// `artifactType` of an OpenTofu module package; `tofu` takes no other.
pub const OPENTOFU_MODULE: &str = "application/vnd.opentofu.modulepkg";
/// `artifactType` of the index that is a provider's version; `tofu` takes no other.
pub const OPENTOFU_PROVIDER: &str = "application/vnd.opentofu.provider";
/// `artifactType` of a provider's manifest for one system, and of its entry in the index.
pub const OPENTOFU_PROVIDER_TARGET: &str = "application/vnd.opentofu.provider-target";
/// Type of the configuration; `cue` takes no other. Its content is [`EMPTY_CONFIG`].
pub const CUE_MODULE: &str = "application/vnd.cue.module.v1+json";
/// Type of the layer that `tofu` unpacks: exactly one layer may have it.
pub const ARCHIVE_ZIP: &str = "archive/zip";
/// Type of a zip that `tofu` must not take for the module: dependencies, and the zip of a CUE module.
pub const APPLICATION_ZIP: &str = "application/zip";
/// Type of the layer that holds the bytes of `cue.mod/module.cue`.
pub const CUE_MODULE_FILE: &str = "application/vnd.cue.modulefile.v1";

/// `artifactType` of the mark that withdraws a version.
pub const YANK_MARK: &str = "application/vnd.ocimod.yanked.v1";
/// Type of a configuration or a layer that is there only because one has to be (image specification, "Guidance for an Empty
/// Descriptor"). Its content is [`EMPTY_CONFIG`].
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// The configuration blob of every module: no program reads it.
pub const EMPTY_CONFIG: &[u8] = b"{}";

/// Annotation of a dependency layer: `path@version` of the module that the zip is.
pub const DEPENDENCY: &str = "works.cue.module";
/// Annotation of a dependency layer, `true`: only needed where the module is the main one.
pub const MAIN_ONLY: &str = "works.cue.mainonly";

/// Annotation of a provider's manifest for one system, and of its entry in the index: the `h1:` hash of the zip.
pub const PACKAGE_HASH: &str = "works.ocimod.h1";

/// Annotation of a mark: `true` where the version is withdrawn, `false` where it was.
pub const YANKED: &str = "works.ocimod.yanked";
/// Annotation of a mark: why, in one line.
pub const YANK_REASON: &str = "works.ocimod.yanked.reason";

/// Annotation of the whole: the version, without `v`.
pub const VERSION: &str = "org.opencontainers.image.version";
/// Annotation of the whole: the commit that was packed.
pub const REVISION: &str = "org.opencontainers.image.revision";
/// Annotation of the whole: where the source is kept.
pub const SOURCE: &str = "org.opencontainers.image.source";
/// Annotation of the whole: the module's address.
pub const TITLE: &str = "org.opencontainers.image.title";
/// Annotation of the whole: an SPDX expression.
pub const LICENSES: &str = "org.opencontainers.image.licenses";
/// Annotation of the whole: RFC 3339.
pub const CREATED: &str = "org.opencontainers.image.created";
