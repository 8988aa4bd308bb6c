//! Modules as OCI manifests: the one place that knows how a module's parts become layers, types, annotations and tags.

pub mod media_types;
mod module;
mod tag;

pub use module::{ArtifactError, Content, DependencyLayer, ModuleArtifact, ModuleFileLayer};
pub use tag::{
    TagError, TaggedVersion, bundle_tag, cue_tag, immutable_twins, module_tag, version_of, versions,
};
