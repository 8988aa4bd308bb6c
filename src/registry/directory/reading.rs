//! Reads contents: small ones that were asked for lately out of memory, others piece by piece.
//!
//! What the system has in its memory is read where we are, for a thread to get there and back takes longer than to copy a piece.
//! What has to come from the disk is read on the threads that may block.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};

use super::stamp::Stamp;
use super::store::{Store, check_digest, is_absent, read_whole, reading};
use crate::oci::{Digest, MAX_MANIFEST_SIZE, Repository, Span};
use crate::registry::{ByteStream, RegistryError, Result};

/// How much of a blob is read at a time: a copy that stays in a processor's own memory until it is sent, and nobody waits long for
/// their turn meanwhile.
const PIECE: usize = 256 * 1024;

/// So many pieces are used again for one blob; the server writes one while the next is read.
const PIECES: usize = 3;

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

/// A part of a file, which ends in an error where the file has become shorter.
pub(super) fn pieces(file: impl Source, span: Span) -> ByteStream {
    let reading =
        Reading { file: Arc::new(file), at: span.start, span, lent: VecDeque::new(), is_cached: true };
    stream::try_unfold(reading, |mut reading| async {
        Ok(reading.next().await?.map(|piece| (piece, reading)))
    })
    .boxed()
}

/// What pieces are read from: a file, or what a test puts in its place.
pub(super) trait Source: Send + Sync + 'static {
    /// Reads what the system has in memory.
    fn read_cached(&self, at: u64, piece: &mut [u8]) -> Cached;

    /// Reads from the disk; fewer bytes than there is room for are not the end.
    fn read(&self, at: u64, piece: &mut [u8]) -> io::Result<usize>;
}

/// What a look at the system's own memory brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cached {
    /// So many bytes.
    Yes(usize),
    /// They have to come from the disk.
    No,
    /// This file system does not tell.
    Never,
}

impl Source for File {
    #[cfg(target_os = "linux")]
    fn read_cached(&self, at: u64, piece: &mut [u8]) -> Cached {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        match preadv2(self, &mut [io::IoSliceMut::new(piece)], at, ReadWriteFlags::NOWAIT) {
            Ok(count) => Cached::Yes(count),
            Err(Errno::AGAIN | Errno::INTR) => Cached::No,
            Err(_) => Cached::Never,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn read_cached(&self, _at: u64, _piece: &mut [u8]) -> Cached {
        Cached::Never
    }

    fn read(&self, at: u64, piece: &mut [u8]) -> io::Result<usize> {
        let mut file = self;
        file.seek(SeekFrom::Start(at))?;
        Read::read(&mut file, piece)
    }
}

/// A file that is being read.
struct Reading<S> {
    file: Arc<S>,
    at: u64,
    span: Span,
    /// Pieces that were given away, to be used again when nobody has them any more: new memory costs more than what is done with it.
    lent: VecDeque<Bytes>,
    /// Whether it is worth while to look whether the system has the next piece in memory.
    is_cached: bool,
}

impl<S: Source> Reading<S> {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let actual = self.at - self.span.start;
        let left = self.span.length - actual;
        if left == 0 {
            return Ok(None);
        }
        let mut piece = self.free_piece(usize::try_from(left).unwrap_or(PIECE).min(PIECE));
        let cached = if self.is_cached { self.file.read_cached(self.at, &mut piece) } else { Cached::Never };
        let (mut piece, count) = if let Cached::Yes(count) = cached {
            (piece, count)
        } else {
            self.is_cached = cached == Cached::No;
            let (file, at) = (Arc::clone(&self.file), self.at);
            let read = tokio::task::spawn_blocking(move || {
                loop {
                    match file.read(at, &mut piece) {
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        read => return read.map(|count| (piece, count)),
                    }
                }
            });
            read.await.map_err(io::Error::other)??
        };
        if count == 0 {
            return Err(RegistryError::SizeMismatch { expected: self.span.length, actual }.into());
        }
        piece.truncate(count);
        self.at += count as u64;
        let piece = piece.freeze();
        if self.lent.len() < PIECES {
            self.lent.push_back(piece.clone());
        }
        Ok(Some(piece))
    }

    /// Memory for a piece of that length.
    fn free_piece(&mut self, length: usize) -> BytesMut {
        let mut piece = match self.lent.pop_front().map(Bytes::try_into_mut) {
            Some(Ok(piece)) => piece,
            Some(Err(lent)) => {
                self.lent.push_back(lent);
                BytesMut::new()
            }
            None => BytesMut::new(),
        };
        piece.resize(length, 0);
        piece
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::registry::{read_bounded, verified};

    /// Gives what it has in small and odd portions, is interrupted now and then, and fails where it is told to.
    struct Dribble {
        bytes: Vec<u8>,
        fails_at: u64,
        calls: AtomicUsize,
    }

    impl Dribble {
        fn new(bytes: Vec<u8>) -> Self {
            Self { bytes, fails_at: u64::MAX, calls: AtomicUsize::new(0) }
        }

        fn give(&self, at: u64, piece: &mut [u8], most: usize) -> usize {
            let rest = self.bytes.get(usize::try_from(at).unwrap()..).unwrap_or_default();
            let count = rest.len().min(piece.len()).min(most);
            piece[..count].copy_from_slice(&rest[..count]);
            count
        }
    }

    impl Source for Dribble {
        fn read_cached(&self, at: u64, piece: &mut [u8]) -> Cached {
            match self.calls.fetch_add(1, Ordering::Relaxed) % 3 {
                0 => Cached::No,
                portion if at < self.fails_at => Cached::Yes(self.give(at, piece, portion)),
                _ => Cached::No,
            }
        }

        fn read(&self, at: u64, piece: &mut [u8]) -> io::Result<usize> {
            if at >= self.fails_at {
                return Err(io::Error::other("the disk is broken"));
            }
            match self.calls.fetch_add(1, Ordering::Relaxed) % 5 {
                0 => Err(ErrorKind::Interrupted.into()),
                portion => Ok(self.give(at, piece, portion)),
            }
        }
    }

    fn content() -> Vec<u8> {
        (0..2_000_u16).flat_map(u16::to_le_bytes).collect()
    }

    #[tokio::test]
    async fn short_reads_are_not_the_end() {
        let bytes = content();
        for span in
            [Span { start: 0, length: 4_000 }, Span { start: 17, length: 100 }, Span { start: 0, length: 0 }]
        {
            let read = read_bounded(pieces(Dribble::new(content()), span), u64::MAX).await.unwrap();
            let start = usize::try_from(span.start).unwrap();
            assert_eq!(read, bytes[start..start + usize::try_from(span.length).unwrap()]);
        }
        let whole = pieces(Dribble::new(content()), Span { start: 0, length: 4_000 });
        assert_eq!(read_bounded(verified(whole, &Digest::of(&bytes), 4_000), u64::MAX).await.unwrap(), bytes);
    }

    #[tokio::test]
    async fn a_file_that_ends_early_or_cannot_be_read_is_no_whole_one() {
        let span = Span { start: 0, length: 4_000 };
        let short = Dribble::new(content()[..3_999].to_vec());
        let outcome = read_bounded(pieces(short, span), u64::MAX).await;
        assert!(
            matches!(outcome, Err(RegistryError::SizeMismatch { expected: 4_000, actual: 3_999 })),
            "{outcome:?}"
        );
        let broken = Dribble { fails_at: 2_000, ..Dribble::new(content()) };
        let outcome = read_bounded(pieces(broken, span), u64::MAX).await;
        assert!(matches!(outcome, Err(RegistryError::Io { .. })), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_file_is_read_from_the_system_s_memory_or_from_the_disk() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = content().into_iter().cycle().take(3 * PIECE + 5).collect();
        fs::write(file.path(), &bytes).unwrap();
        let whole = Span { start: 0, length: bytes.len() as u64 };
        let read = read_bounded(pieces(file.reopen().unwrap(), whole), u64::MAX).await.unwrap();
        assert!(read == bytes);
        // Whoever keeps pieces has what was in them.
        let kept: Vec<Bytes> = pieces(file.reopen().unwrap(), whole).map(Result::unwrap).collect().await;
        assert!(kept.concat() == bytes);
        // A folder is no file whose bytes the system has.
        let folder = File::open(std::env::temp_dir()).unwrap();
        assert!(read_bounded(pieces(folder, whole), u64::MAX).await.is_err());
    }
}
