//! Fetches a zip into a temporary file: verified, and never whole in memory.

use futures_util::StreamExt;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;

use crate::artifact::Content;
use crate::registry::RegistryError;

use super::error::{OperationError, Result};
use super::routes::Place;

/// The largest zip that is fetched; larger ones are refused by every check anyway.
const MAX_ARCHIVE: u64 = crate::archive::check::MAX_ZIP_SIZE;

/// The blob in a temporary file that goes with the answer.
pub async fn archive(place: &Place, content: &Content) -> Result<NamedTempFile> {
    let name = || format!("{}@{}", place.name(), content.digest);
    if content.size > MAX_ARCHIVE {
        return Err(OperationError::registry(name())(RegistryError::TooLarge { limit: MAX_ARCHIVE }));
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
    let temporary = NamedTempFile::new().map_err(OperationError::io("making a temporary file"))?;
    let writing = || OperationError::io(format!("writing {}", temporary.path().display()));
    let file = temporary.reopen().map_err(writing())?;
    let mut file = tokio::fs::File::from_std(file);
    let mut bytes = blob.bytes;
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|error| OperationError::registry(name())(error.into()))?;
        file.write_all(&piece).await.map_err(writing())?;
    }
    file.flush().await.map_err(writing())?;
    Ok(temporary)
}
