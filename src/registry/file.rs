//! Reads files piece by piece, and hands open ones on to whoever can send them without reading them.
//!
//! What the system has in its memory is read where we are, for a thread to get there and back takes longer than to copy a piece.
//! What has to come from the disk is read on the threads that may block.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};

use super::{ByteStream, RegistryError};
use crate::oci::Span;

/// How much of a blob is read at a time: a copy that stays in a processor's own memory until it is sent, and nobody waits long for
/// their turn meanwhile.
const PIECE: usize = 256 * 1024;

/// So many pieces are used again for one blob; the server writes one while the next is read.
const PIECES: usize = 3;

/// A blob, or a piece of it, as an open file whose bytes are known to be right.
#[derive(Clone, Debug)]
pub struct BlobFile {
    /// Size of the whole blob in bytes.
    pub size: u64,
    /// Which piece is wanted, where a range was asked for.
    pub span: Option<Span>,
    file: Arc<File>,
}

impl BlobFile {
    /// A file of `size` bytes, of which `span` is wanted, or all.
    pub fn new(file: File, size: u64, span: Option<Span>) -> Self {
        Self { size, span, file: Arc::new(file) }
    }

    /// What is wanted of the file.
    pub fn wanted(&self) -> Span {
        self.span.unwrap_or(Span { start: 0, length: self.size })
    }

    /// The file itself. Its position means nothing.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Whether the system seems to have a part of the file in its memory, so that nobody waits for the disk who has it sent: it
    /// forgets and reads in large pieces, so both ends of a part tell enough.
    pub fn is_cached(&self, part: Span) -> bool {
        let Some(last) = part.length.checked_sub(1) else { return true };
        [part.start, part.start.saturating_add(last)]
            .into_iter()
            .all(|at| matches!(self.file.read_cached(at, &mut [0]), Cached::Yes(1)))
    }

    /// A part of the file as a stream, which ends in an error where the file has become shorter.
    pub fn read(&self, part: Span) -> ByteStream {
        pieces(Arc::clone(&self.file), part)
    }
}

/// A part of a file, which ends in an error where the file has become shorter.
pub(super) fn pieces<S: Source>(file: Arc<S>, span: Span) -> ByteStream {
    let reading = Reading { file, at: span.start, span, lent: VecDeque::new(), is_cached: true };
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

    #[cfg(unix)]
    fn read(&self, at: u64, piece: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, piece, at)
    }

    #[cfg(windows)]
    fn read(&self, at: u64, piece: &mut [u8]) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, piece, at)
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
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::oci::Digest;
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
            let read = read_bounded(pieces(Arc::new(Dribble::new(content())), span), u64::MAX).await.unwrap();
            let start = usize::try_from(span.start).unwrap();
            assert_eq!(read, bytes[start..start + usize::try_from(span.length).unwrap()]);
        }
        let whole = pieces(Arc::new(Dribble::new(content())), Span { start: 0, length: 4_000 });
        assert_eq!(read_bounded(verified(whole, &Digest::of(&bytes), 4_000), u64::MAX).await.unwrap(), bytes);
    }

    #[tokio::test]
    async fn a_file_that_ends_early_or_cannot_be_read_is_no_whole_one() {
        let span = Span { start: 0, length: 4_000 };
        let short = Dribble::new(content()[..3_999].to_vec());
        let outcome = read_bounded(pieces(Arc::new(short), span), u64::MAX).await;
        assert!(
            matches!(outcome, Err(RegistryError::SizeMismatch { expected: 4_000, actual: 3_999 })),
            "{outcome:?}"
        );
        let broken = Dribble { fails_at: 2_000, ..Dribble::new(content()) };
        let outcome = read_bounded(pieces(Arc::new(broken), span), u64::MAX).await;
        assert!(matches!(outcome, Err(RegistryError::Io { .. })), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_file_is_read_from_the_system_s_memory_or_from_the_disk() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = content().into_iter().cycle().take(3 * PIECE + 5).collect();
        fs::write(file.path(), &bytes).unwrap();
        let whole = Span { start: 0, length: bytes.len() as u64 };
        let read = read_bounded(pieces(Arc::new(file.reopen().unwrap()), whole), u64::MAX).await.unwrap();
        assert!(read == bytes);
        // Whoever keeps pieces has what was in them.
        let kept: Vec<Bytes> =
            pieces(Arc::new(file.reopen().unwrap()), whole).map(Result::unwrap).collect().await;
        assert!(kept.concat() == bytes);
        // What was read a moment ago is there, and nothing behind the end is.
        let open = BlobFile::new(file.reopen().unwrap(), whole.length, None);
        assert_eq!(open.wanted(), whole);
        if cfg!(target_os = "linux") {
            assert!(open.is_cached(whole));
        }
        assert!(!open.is_cached(Span { start: 1, ..whole }));
        assert!(
            read_bounded(open.read(Span { start: 3, length: 5 }), u64::MAX).await.unwrap() == bytes[3..8]
        );
        // A folder is no file whose bytes the system has.
        let folder = File::open(std::env::temp_dir()).unwrap();
        assert!(read_bounded(pieces(Arc::new(folder), whole), u64::MAX).await.is_err());
    }
}
