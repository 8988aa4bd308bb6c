//! Modules as OCI manifests: the one place that knows how a module's parts become layers, types, annotations and tags.

pub mod media_types;
mod module;
mod tag;
mod yank;

pub use module::{ArtifactError, Content, DependencyLayer, ModuleArtifact, ModuleFileLayer};
pub use tag::{
    TagError, TaggedVersion, bundle_tag, cue_tag, immutable_twins, module_tag, tags_of, version_of, versions,
    yank_tag, yank_tags,
};
pub use yank::{MarkForm, NoMark, Reason, ReasonError, YankMark};
