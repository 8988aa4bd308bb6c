//! Fetches a module into a folder.

use std::path::{Path, PathBuf};

use crate::archive::{self, UnpackError};
use crate::oci::Digest;

use super::download;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::published::StoredModule;

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
/// nothing is left there.
pub async fn pull(stored: &StoredModule, folder: &Path) -> Result<Pulled> {
    let zip = download::archive(&stored.place, &stored.artifact.archive).await?;
    let (into, name) = (folder.to_owned(), stored.name());
    let files = super::blocking(move || {
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
