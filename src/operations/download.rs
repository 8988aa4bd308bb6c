//! Fetches a zip into a file: verified, and never whole in memory.

use std::fs::File;
use std::path::Path;

use futures_util::StreamExt;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;

use crate::archive::Contents;
use crate::artifact::Content;
use crate::registry::RegistryError;

use super::error::{OperationError, Result};
use super::routes::Place;
use super::{NoProgress, Progress};

/// The zip of a module in a temporary file that goes with the answer.
pub async fn archive(place: &Place, content: &Content) -> Result<NamedTempFile> {
    let temporary = NamedTempFile::new().map_err(OperationError::io("making a temporary file"))?;
    let writing = || OperationError::io(format!("writing {}", temporary.path().display()));
    let file = temporary.reopen().map_err(writing())?;
    write(place, content, Contents::Module(None), (file, temporary.path()), &NoProgress).await?;
    Ok(temporary)
}

/// Writes a zip to a file that is open and empty. What is larger than every check allows is not fetched.
pub(super) async fn write(
    place: &Place,
    content: &Content,
    contents: Contents,
    (file, path): (File, &Path),
    progress: &dyn Progress,
) -> Result<()> {
    let name = || format!("{}@{}", place.name(), content.digest);
    let limit = contents.max_zip_size();
    if content.size > limit {
        return Err(OperationError::registry(name())(RegistryError::TooLarge { limit }));
    }
    let blob = place
        .registry()
        .blob_stream(&place.repository, &content.digest)
        .await
        .map_err(OperationError::registry(name()))?;
    if blob.size != content.size {
        let error = RegistryError::SizeMismatch { expected: content.size, actual: blob.size };
        return Err(OperationError::registry(name())(error));
    }
    let writing = || OperationError::io(format!("writing {}", path.display()));
    let mut file = tokio::fs::File::from_std(file);
    let mut bytes = blob.bytes;
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|error| OperationError::registry(name())(error.into()))?;
        file.write_all(&piece).await.map_err(writing())?;
        progress.advanced(piece.len() as u64);
    }
    file.flush().await.map_err(writing())
}
