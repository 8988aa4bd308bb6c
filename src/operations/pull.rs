//! Fetches a module into a folder.

use std::path::{Path, PathBuf};

use crate::archive::{self, ModuleKind, Tree, UnpackError};
use crate::oci::Digest;

use super::cue_module;
use super::download;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::published::StoredModule;
use super::zip_facts::KnownZips;

/// What came of a pull.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// `registry/repository:tag`.
    pub reference: String,
    /// Digest of the manifest.
    pub digest: Digest,
    /// The folder with the module's files.
    pub folder: PathBuf,
    /// How many files were written.
    pub files: usize,
}

/// Fetches the zip of a module, checks it, and unpacks it into `folder`, which must be empty or absent. Where anything is wrong,
/// nothing is left there. A module that says two things of itself, or calls what it embeds by another name, is refused.
pub async fn pull(stored: &StoredModule, folder: &Path) -> Result<Pulled> {
    let (into, name, kind) = (folder.to_owned(), stored.name(), stored.artifact.kind);
    cue_module::expect_layers(&KnownZips::new(None), &stored.place, &stored.artifact, &name).await?;
    let layer = stored.module_file_bytes().await?;
    let zip = download::archive(&stored.place, &stored.artifact.archive).await?;
    let files = super::blocking(move || {
        if let Some(layer) = layer {
            let tree = Tree::from_zip(zip.path(), None::<ModuleKind>)
                .map_err(|error| OperationError::refused(Finding::of_check(&error, &name)))?;
            cue_module::expect_module_file(&tree, kind, &layer, &name)?;
        }
        archive::unpack(zip.path(), &into).map_err(|error| match error {
            UnpackError::Refused { source, .. } => OperationError::refused(Finding::of_check(&source, &name)),
            error @ UnpackError::NotEmpty { .. } => {
                OperationError::refused(Finding::general("target-not-empty", error.to_string()))
            }
            UnpackError::Unwritable { path, source } => {
                OperationError::io(format!("writing {}", path.display()))(source)
            }
        })
    })
    .await?;
    Ok(Pulled { reference: stored.name(), digest: stored.digest.clone(), folder: folder.to_owned(), files })
}
