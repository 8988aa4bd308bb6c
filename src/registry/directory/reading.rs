//! Finds contents: small ones that were asked for lately in memory, others as open files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};

use super::stamp::Stamp;
use super::store::{Store, check_digest, is_absent, read_whole, reading};
use crate::oci::{Digest, MAX_MANIFEST_SIZE, Repository, Span};
use crate::registry::{ByteStream, RegistryError, Result};

/// Contents up to this are read whole and kept in memory: manifests, module files, and most modules.
pub(super) const SMALL: u64 = 64 * 1024;

/// How many bytes of small contents are kept in memory.
const KEPT: u64 = 16 * 1024 * 1024;

/// What an entry takes beside its bytes, about.
const OVERHEAD: u32 = 512;

/// Small contents that were asked for lately.
pub(super) struct Recent(moka::sync::Cache<Digest, (Stamp, Bytes)>);

impl Default for Recent {
    fn default() -> Self {
        let weigh = |_: &Digest, kept: &(Stamp, Bytes)| {
            u32::try_from(kept.1.len()).unwrap_or(u32::MAX).saturating_add(OVERHEAD)
        };
        Self(moka::sync::Cache::builder().max_capacity(KEPT).weigher(weigh).build())
    }
}

/// A blob to be sent.
pub(super) enum Found {
    /// All of it, known to be right.
    Small(Bytes),
    Open(OpenBlob),
}

/// A blob's file, ready to be read.
pub(super) struct OpenBlob {
    pub(super) file: File,
    pub(super) stamp: Stamp,
    /// Whether its bytes are known to be right.
    pub(super) is_verified: bool,
}

impl Store {
    /// A small content of a repository, where it is in memory and its file has not changed since. Looks at the file's metadata alone,
    /// which takes less time than to get to another thread and back.
    pub(super) fn recent(&self, repository: &Repository, digest: &Digest) -> Option<Bytes> {
        let (stamp, bytes) = self.recent.0.get(digest)?;
        let metadata = fs::metadata(self.layout.blob(repository, digest)).ok()?;
        stamp.is_still(&Stamp::of(&metadata)).then_some(bytes)
    }

    /// Opens a blob for reading, or reads it where it is small. With `whole` its bytes are known to be right then.
    pub(super) fn find_blob(&self, repository: &Repository, digest: &Digest, whole: bool) -> Result<Found> {
        let path = self.layout.blob(repository, digest);
        let (mut file, stamp) = open(&path).map_err(|error| match error {
            error if is_absent(&error) => RegistryError::BlobUnknown(digest.clone()),
            error => reading(&path)(error),
        })?;
        if stamp.size <= SMALL {
            return self.read_small(&path, &mut file, stamp, digest).map(Found::Small);
        }
        let mut is_verified = self.verified.knows(digest, stamp);
        if whole && !is_verified {
            let mismatch = self.verified.mismatch(&mut file, stamp, digest).map_err(reading(&path))?;
            if let Some(actual) = mismatch {
                return Err(RegistryError::DigestMismatch { expected: digest.clone(), actual });
            }
            is_verified = true;
        }
        Ok(Found::Open(OpenBlob { file, stamp, is_verified }))
    }

    /// Reads a manifest's file and verifies it; `None` where it is not there.
    pub(super) fn find_manifest(&self, repository: &Repository, digest: &Digest) -> Result<Option<Bytes>> {
        if let Some(bytes) = self.recent(repository, digest) {
            return Ok(Some(bytes));
        }
        let path = self.layout.blob(repository, digest);
        let (mut file, stamp) = match open(&path) {
            Ok(open) => open,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(reading(&path)(error)),
        };
        if stamp.size <= SMALL {
            return self.read_small(&path, &mut file, stamp, digest).map(Some);
        }
        let bytes = read_whole(&mut file, MAX_MANIFEST_SIZE).map_err(reading(&path))?;
        check_digest(&bytes, digest)?;
        Ok(Some(bytes.into()))
    }

    /// Reads a small file that had this stamp, verifies it, and keeps its bytes in memory.
    fn read_small(&self, path: &Path, file: &mut File, stamp: Stamp, digest: &Digest) -> Result<Bytes> {
        let bytes = Bytes::from(read_whole(file, SMALL).map_err(reading(path))?);
        check_digest(&bytes, digest)?;
        self.verified.remember(digest, stamp);
        // What is not told from a later change is read again anyway.
        if stamp.is_settled() {
            self.recent.0.insert(digest.clone(), (stamp, bytes.clone()));
        }
        Ok(bytes)
    }
}

fn open(path: &Path) -> io::Result<(File, Stamp)> {
    let file = File::open(path)?;
    let stamp = Stamp::of(&file.metadata()?);
    Ok((file, stamp))
}

/// A part of what is in memory.
pub(super) fn piece(bytes: &Bytes, span: Span) -> ByteStream {
    // A span is within the bytes, and these are few.
    let [start, length] =
        [span.start, span.length].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    let end = start.saturating_add(length).min(bytes.len());
    let piece = bytes.slice(start.min(end)..end);
    stream::iter((!piece.is_empty()).then_some(Ok(piece))).boxed()
}
