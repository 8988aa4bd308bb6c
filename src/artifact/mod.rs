//! Modules and providers as OCI manifests: the one place that knows how their parts become layers, types, annotations and tags.

pub mod form;
pub mod media_types;
mod module;
mod provider;
mod tag;
mod yank;

pub use module::{ArtifactError, Content, DependencyLayer, ModuleArtifact, ModuleFileLayer};
pub use provider::{
    PackageHash, PackageHashError, ProviderEntry, ProviderError, ProviderIndex, ProviderTarget,
};
pub use tag::{
    TagError, TaggedVersion, VersionTags, bundle_tag, cue_tag, immutable_twins, module_tag, provider_tag,
    provider_version_of, tags_by_version, tags_of, version_of, versions, yank_tag, yank_tags,
};
pub use yank::{MarkForm, NoMark, Reason, ReasonError, YankMark};
