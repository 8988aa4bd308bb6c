//! Bytes on their way: streams that are verified while they pass, and sources that can be opened again.
//!
//! A request may have to be repeated after a 401 or a 429, so what is pushed is a source and not a stream.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use tokio_util::io::ReaderStream;

use super::error::{RegistryError, Result};
use super::{Registry, SharedRegistry};
use crate::oci::{Digest, Hasher, Repository};

/// Pieces of content in order. An error ends it.
pub type ByteStream = BoxStream<'static, std::io::Result<Bytes>>;

/// How much of a file is read at a time: a compromise of calls and memory per transfer.
const READ_SIZE: usize = 64 * 1024;

/// Content whose length is known and that can be read from its beginning any number of times.
pub trait BlobSource: Send + Sync {
    /// Length in bytes.
    fn size(&self) -> u64;
    /// The content from its beginning.
    fn open(&self) -> BoxFuture<'_, Result<ByteStream>>;
}

/// Content that is in memory.
#[derive(Clone, Debug)]
pub struct BytesSource(pub Bytes);

impl BlobSource for BytesSource {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn open(&self) -> BoxFuture<'_, Result<ByteStream>> {
        let bytes = self.0.clone();
        Box::pin(async move { Ok(stream::once(async move { Ok(bytes) }).boxed()) })
    }
}

/// Content that is in a file.
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
    size: u64,
}

impl FileSource {
    /// A file of `size` bytes. Where it has changed when it is read, the digest tells.
    pub fn new(path: &Path, size: u64) -> Self {
        Self { path: path.to_owned(), size }
    }
}

impl BlobSource for FileSource {
    fn size(&self) -> u64 {
        self.size
    }

    fn open(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(async move {
            let file = tokio::fs::File::open(&self.path)
                .await
                .map_err(RegistryError::io(format!("reading {}", self.path.display())))?;
            Ok(ReaderStream::with_capacity(file, READ_SIZE).boxed())
        })
    }
}

/// A blob of another registry.
#[derive(Clone)]
pub struct RegistrySource {
    registry: SharedRegistry,
    repository: Repository,
    digest: Digest,
    size: u64,
}

impl RegistrySource {
    /// The blob `digest` of `repository`, said to be `size` bytes long.
    pub fn new(registry: SharedRegistry, repository: Repository, digest: Digest, size: u64) -> Self {
        Self { registry, repository, digest, size }
    }
}

impl BlobSource for RegistrySource {
    fn size(&self) -> u64 {
        self.size
    }

    fn open(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(async move {
            let registry: &dyn Registry = &*self.registry;
            let blob = registry.blob_stream(&self.repository, &self.digest).await?;
            if blob.size != self.size {
                return Err(RegistryError::SizeMismatch { expected: self.size, actual: blob.size });
            }
            Ok(blob.bytes)
        })
    }
}

/// Reads a whole stream into memory, at most `limit` bytes of it.
pub async fn read_bounded(mut bytes: ByteStream, limit: u64) -> Result<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(piece) = bytes.next().await {
        let piece = piece?;
        if (whole.len() + piece.len()) as u64 > limit {
            return Err(RegistryError::TooLarge { limit });
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// The same stream, verified: it ends in an error unless it was `size` bytes with that digest.
///
/// The last piece is held back until the whole is known to be right, so that nobody who reads to a clean end, or who counts
/// to `size`, has wrong bytes.
pub fn verified(bytes: ByteStream, digest: &Digest, size: u64) -> ByteStream {
    Verified {
        bytes,
        hasher: Some(Hasher::new(digest.algorithm())),
        held: None,
        digest: Arc::new(digest.clone()),
        size,
        seen: 0,
    }
    .boxed()
}

struct Verified {
    bytes: ByteStream,
    /// `None` once the stream has ended, in whatever way.
    hasher: Option<Hasher>,
    held: Option<Bytes>,
    digest: Arc<Digest>,
    size: u64,
    seen: u64,
}

impl Verified {
    fn fail(&mut self, error: impl Into<std::io::Error>) -> Poll<Option<std::io::Result<Bytes>>> {
        self.hasher = None;
        self.held = None;
        Poll::Ready(Some(Err(error.into())))
    }
}

impl Stream for Verified {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.hasher.is_none() {
                return Poll::Ready(None);
            }
            match ready!(self.bytes.poll_next_unpin(context)) {
                Some(Ok(piece)) if piece.is_empty() => {}
                Some(Ok(piece)) => {
                    self.seen += piece.len() as u64;
                    if self.seen > self.size {
                        let error = RegistryError::SizeMismatch { expected: self.size, actual: self.seen };
                        return self.fail(error);
                    }
                    if let Some(hasher) = &mut self.hasher {
                        hasher.update(&piece);
                    }
                    if let Some(earlier) = self.held.replace(piece) {
                        return Poll::Ready(Some(Ok(earlier)));
                    }
                }
                Some(Err(error)) => return self.fail(error),
                None => {
                    let (expected, seen) = (self.size, self.seen);
                    if seen != expected {
                        return self.fail(RegistryError::SizeMismatch { expected, actual: seen });
                    }
                    let Some(hasher) = self.hasher.take() else { return Poll::Ready(None) };
                    let actual = hasher.finish();
                    if actual != *self.digest {
                        let expected = (*self.digest).clone();
                        return self.fail(RegistryError::DigestMismatch { expected, actual });
                    }
                    return Poll::Ready(self.held.take().map(Ok));
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn pieces(pieces: &[&'static str]) -> ByteStream {
        stream::iter(pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect::<Vec<_>>())
            .boxed()
    }

    /// What a reader has seen when the stream ends, and how it ended.
    async fn read(mut bytes: ByteStream) -> (String, Option<RegistryError>) {
        let mut seen = String::new();
        while let Some(piece) = bytes.next().await {
            match piece {
                Ok(piece) => seen.push_str(std::str::from_utf8(&piece).unwrap()),
                Err(error) => {
                    assert!(bytes.next().await.is_none(), "an error is the end");
                    return (seen, Some(error.into()));
                }
            }
        }
        (seen, None)
    }

    #[tokio::test]
    async fn right_bytes_pass() {
        let digest = Digest::of(b"abcdef");
        let (seen, error) = read(verified(pieces(&["ab", "", "cd", "ef"]), &digest, 6)).await;
        assert_eq!(seen, "abcdef");
        assert!(error.is_none());
        let (seen, error) = read(verified(pieces(&[]), &Digest::of(b""), 0)).await;
        assert!(seen.is_empty() && error.is_none());
    }

    #[tokio::test]
    async fn wrong_bytes_never_come_whole() {
        let digest = Digest::of(b"abcdef");
        let (seen, error) = read(verified(pieces(&["ab", "cd", "eX"]), &digest, 6)).await;
        assert_eq!(seen, "abcd");
        assert!(matches!(error, Some(RegistryError::DigestMismatch { .. })));
        let (seen, error) = read(verified(pieces(&["abcdef", "g"]), &digest, 6)).await;
        assert_eq!(seen, "");
        assert!(matches!(error, Some(RegistryError::SizeMismatch { actual: 7, .. })));
        let (_, error) = read(verified(pieces(&["abc"]), &digest, 6)).await;
        assert!(matches!(error, Some(RegistryError::SizeMismatch { actual: 3, .. })));
    }

    #[tokio::test]
    async fn reading_into_memory_has_a_limit() {
        assert_eq!(read_bounded(pieces(&["ab", "cd"]), 4).await.unwrap(), "abcd");
        assert!(matches!(
            read_bounded(pieces(&["ab", "cd"]), 3).await,
            Err(RegistryError::TooLarge { limit: 3 })
        ));
    }
}
