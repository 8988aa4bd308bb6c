//! A large blob on its way from the registry to the disk, read by many while it comes.
//!
//! One request fills a temporary file, and each reader follows the file at a pace of its own. What is held in memory is a piece
//! for each of them. The last piece comes to the file when the whole is known to be right, so no reader has a whole that is
//! wrong. When no reader is left, the request is given up. Where the disk fails, each reader goes on with a request of its own.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use tokio::sync::watch;

use super::folder::{Temporary, read_at};
use super::scopes::Name;
use super::shelf::Reservation;
use crate::oci::Digest;
use crate::registry::{BlobStream, ByteStream, RegistryError, Result, verified};

/// How much of a file is read at a time: every read is handed to another thread, which small pieces would not be worth.
pub(super) const READ_SIZE: usize = 256 * 1024;

/// How many pieces of the registry's are written at once where they have come already.
const PIECES: usize = 8;

/// How far it is.
#[derive(Clone)]
struct Progress {
    /// So many bytes can be read from the file.
    written: u64,
    stage: Stage,
}

#[derive(Clone)]
enum Stage {
    Running,
    /// Everything is there and right.
    Done,
    /// The registry broke off, or sent wrong bytes.
    Failed(Arc<RegistryError>),
    /// The disk takes no more.
    Unwritable,
}

/// A blob that is being fetched. It is given up when the last of these is dropped.
pub(super) struct Fill {
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// The repository that it is read from.
    pub(super) scope: Name,
    file: Arc<File>,
    progress: watch::Receiver<Progress>,
}

/// Where the bytes go.
pub(super) struct Target {
    pub(super) temporary: Temporary,
    pub(super) reservation: Reservation,
    pub(super) path: PathBuf,
}

/// Opens the blob once more, from its beginning.
pub(super) type Again = Box<dyn FnOnce() -> BoxFuture<'static, Result<BlobStream>> + Send>;

impl Fill {
    /// Begins to write `blob` to `target`. `done` is called, where it may block, when the file has its name.
    pub(super) fn start(
        digest: Digest,
        scope: Name,
        blob: BlobStream,
        target: Target,
        done: impl FnOnce(&File) + Send + 'static,
    ) -> Arc<Self> {
        let (sender, progress) = watch::channel(Progress { written: 0, stage: Stage::Running });
        let (size, file) = (blob.size, Arc::clone(&target.temporary.file));
        let bytes = verified(blob.bytes, &digest, size);
        tokio::spawn(run(bytes, size, target, sender, done));
        Arc::new(Self { digest, size, scope, file, progress })
    }

    /// Whether whoever comes now can still have the whole from it.
    pub(super) fn is_good(&self) -> bool {
        matches!(self.progress.borrow().stage, Stage::Running | Stage::Done)
    }

    /// The blob from its beginning.
    pub(super) fn read(self: Arc<Self>, again: Again) -> BlobStream {
        let size = self.size;
        let reader = Reader {
            progress: self.progress.clone(),
            fill: self,
            at: 0,
            state: ReaderState::Following(again),
        };
        let bytes = stream::unfold(reader, |mut reader| async move {
            let piece = reader.next().await.transpose()?;
            if piece.is_err() {
                reader.state = ReaderState::Ended;
            }
            Some((piece.map_err(Into::into), reader))
        });
        BlobStream { size, span: None, bytes: bytes.boxed() }
    }
}

async fn run(
    bytes: ByteStream,
    size: u64,
    target: Target,
    sender: watch::Sender<Progress>,
    done: impl FnOnce(&File) + Send + 'static,
) {
    let mut pieces = bytes.ready_chunks(PIECES);
    let mut written = 0;
    let stage = loop {
        let chunk = tokio::select! {
            biased;
            () = sender.closed() => break Stage::Unwritable,
            chunk = pieces.next() => chunk,
        };
        let Some(chunk) = chunk else { break Stage::Done };
        let (mut good, mut failure) = (Vec::with_capacity(chunk.len()), None);
        for piece in chunk {
            match piece {
                Ok(piece) => good.push(piece),
                Err(error) => failure = Some(Arc::new(RegistryError::from(error))),
            }
        }
        let length: usize = good.iter().map(Bytes::len).sum();
        if let Err(error) = write(Arc::clone(&target.temporary.file), good).await {
            tracing::warn!(%error, "the cache on disk cannot be written; the blob is streamed past it");
            break Stage::Unwritable;
        }
        written += length as u64;
        if let Some(error) = failure {
            break Stage::Failed(error);
        }
        // The end is told when the file has its name, so that whoever comes after a reader finds it there.
        if written < size {
            sender.send_replace(Progress { written, stage: Stage::Running });
        }
    };
    let is_done = matches!(stage, Stage::Done);
    let settle = move || {
        let Target { temporary, reservation, path } = target;
        if is_done {
            let file = Arc::clone(&temporary.file);
            match temporary.keep_as(&path) {
                Ok(()) => done(&file),
                Err(error) => tracing::warn!(%error, "a blob cannot be kept in the cache"),
            }
        }
        drop(reservation);
    };
    // It panics only where the runtime ends.
    let _ = tokio::task::spawn_blocking(settle).await;
    sender.send_modify(|progress| {
        if is_done {
            progress.written = written;
        }
        progress.stage = stage;
    });
}

async fn write(file: Arc<File>, pieces: Vec<Bytes>) -> io::Result<()> {
    let write = move || pieces.iter().try_for_each(|piece| (&*file).write_all(piece));
    tokio::task::spawn_blocking(write).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Up to [`READ_SIZE`] bytes of a file; an error where it has none there.
pub(super) async fn read_piece(file: &Arc<File>, at: u64, left: u64) -> Result<Bytes> {
    let file = Arc::clone(file);
    let length = READ_SIZE.min(usize::try_from(left).unwrap_or(READ_SIZE));
    let read = move || -> io::Result<Bytes> {
        let mut piece = vec![0; length];
        let count = loop {
            match read_at(&file, &mut piece, at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome?,
            }
        };
        piece.truncate(count);
        Ok(piece.into())
    };
    let outcome = tokio::task::spawn_blocking(read).await;
    let piece = outcome.unwrap_or_else(|error| Err(io::Error::other(error)));
    let piece = piece.map_err(RegistryError::io("reading the cache"))?;
    if piece.is_empty() {
        return Err(RegistryError::SizeMismatch { expected: at + left, actual: at });
    }
    Ok(piece)
}

struct Reader {
    fill: Arc<Fill>,
    progress: watch::Receiver<Progress>,
    /// How many bytes were given out.
    at: u64,
    state: ReaderState,
}

enum ReaderState {
    /// Reading what the file has.
    Following(Again),
    /// Reading the blob once more; its first bytes have to be those that the file has.
    Alone {
        bytes: ByteStream,
        compared: u64,
    },
    Ended,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            match &mut self.state {
                ReaderState::Ended => return Ok(None),
                ReaderState::Following(_) => {
                    let Progress { written, stage } = self.progress.borrow_and_update().clone();
                    if self.at < written {
                        let piece = read_piece(&self.fill.file, self.at, written - self.at).await?;
                        self.at += piece.len() as u64;
                        return Ok(Some(piece));
                    }
                    match stage {
                        Stage::Done => return Ok(None),
                        Stage::Failed(error) => return Err(error.duplicate()),
                        Stage::Unwritable => self.go_alone().await?,
                        Stage::Running => {
                            // The sender goes with a task that has ended without a word: the runtime stops.
                            if self.progress.changed().await.is_err() {
                                self.go_alone().await?;
                            }
                        }
                    }
                }
                ReaderState::Alone { bytes, compared } => {
                    let Some(piece) = bytes.next().await else { return Ok(None) };
                    let mut piece = piece?;
                    if *compared < self.at {
                        let length =
                            usize::try_from(self.at - *compared).unwrap_or(usize::MAX).min(piece.len());
                        let earlier = piece.split_to(length);
                        expect_same(&self.fill.file, *compared, &earlier).await?;
                        *compared += length as u64;
                    }
                    if !piece.is_empty() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }

    async fn go_alone(&mut self) -> Result<()> {
        let ReaderState::Following(again) = std::mem::replace(&mut self.state, ReaderState::Ended) else {
            return Ok(());
        };
        let blob = again().await?;
        if blob.size != self.fill.size {
            return Err(RegistryError::SizeMismatch { expected: self.fill.size, actual: blob.size });
        }
        let bytes = verified(blob.bytes, &self.fill.digest, blob.size);
        self.state = ReaderState::Alone { bytes, compared: 0 };
        Ok(())
    }
}

/// What a reader was given before it went on alone must be the beginning of what is verified now.
async fn expect_same(file: &Arc<File>, mut at: u64, expected: &[u8]) -> Result<()> {
    let mut left = expected;
    while !left.is_empty() {
        let piece = read_piece(file, at, left.len() as u64).await?;
        let (same, rest) = left.split_at(piece.len());
        if same != piece {
            return Err(RegistryError::Protocol {
                registry: "the registry".to_owned(),
                reason: "it sends a blob with other bytes than before".to_owned(),
            });
        }
        (at, left) = (at + piece.len() as u64, rest);
    }
    Ok(())
}

/// A part of a file as a stream, which ends in an error where the file ends first.
pub(super) fn read_file(file: Arc<File>, start: u64, length: u64) -> ByteStream {
    stream::try_unfold((file, start, length), |(file, at, left)| async move {
        if left == 0 {
            return Ok::<_, io::Error>(None);
        }
        let piece = read_piece(&file, at, left).await?;
        let count = piece.len() as u64;
        Ok(Some((piece, (file, at + count, left - count))))
    })
    .boxed()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::sync::mpsc;

    use super::*;
    use crate::registry::cached::folder::Folder;
    use crate::registry::cached::shelf::Shelf;
    use crate::registry::read_bounded;

    struct Setting {
        root: tempfile::TempDir,
        shelf: Arc<Shelf>,
    }

    impl Setting {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let shelf = Arc::new(Shelf::new(root.path().join("blobs"), 1 << 30, &Arc::default(), None));
            Self { root, shelf }
        }

        fn target(&self) -> Target {
            let temporary = Folder::open(self.root.path()).unwrap().temporary().unwrap();
            let path = self.path();
            Target { temporary, reservation: self.shelf.reserve(100).unwrap(), path }
        }

        /// One whose file cannot be written.
        fn read_only(&self) -> Target {
            let mut target = self.target();
            let path = self.root.path().join("read-only");
            std::fs::write(&path, "").unwrap();
            target.temporary.file = Arc::new(File::open(path).unwrap());
            target
        }

        fn path(&self) -> PathBuf {
            self.root.path().join("blobs/sha256/ab/abc")
        }
    }

    fn whole(text: &'static str) -> BlobStream {
        let bytes =
            stream::iter(text.as_bytes().chunks(2).map(|piece| Ok(Bytes::from_static(piece)))).boxed();
        BlobStream { size: text.len() as u64, span: None, bytes }
    }

    fn by_hand(size: u64) -> (mpsc::UnboundedSender<&'static str>, BlobStream) {
        let (sender, receiver) = mpsc::unbounded_channel::<&'static str>();
        let bytes = stream::unfold(receiver, |mut receiver| async move {
            let piece = receiver.recv().await?;
            Some((Ok(Bytes::from_static(piece.as_bytes())), receiver))
        });
        (sender, BlobStream { size, span: None, bytes: bytes.boxed() })
    }

    fn never() -> Again {
        Box::new(|| async { panic!("nobody has to ask again") }.boxed())
    }

    fn once_more(text: &'static str) -> Again {
        Box::new(move || async move { Ok(whole(text)) }.boxed())
    }

    async fn read(fill: &Arc<Fill>, again: Again) -> Result<Bytes> {
        read_bounded(Arc::clone(fill).read(again).bytes, 100).await
    }

    #[tokio::test]
    async fn readers_follow_at_their_own_pace() {
        let setting = Setting::new();
        let (sender, blob) = by_hand(6);
        let is_kept = Arc::new(AtomicBool::new(false));
        let kept = Arc::clone(&is_kept);
        let fill = Fill::start(Digest::of(b"abcdef"), Name::of(&[]), blob, setting.target(), move |_| {
            kept.store(true, Ordering::Relaxed);
        });
        let mut early = Arc::clone(&fill).read(never()).bytes;
        sender.send("ab").unwrap();
        sender.send("cd").unwrap();
        assert_eq!(early.next().await.unwrap().unwrap(), "ab");
        sender.send("ef").unwrap();
        drop(sender);
        assert_eq!(read(&fill, never()).await.unwrap(), "abcdef");
        assert!(is_kept.load(Ordering::Relaxed) && setting.path().is_file());
        assert_eq!(read_bounded(early, 9).await.unwrap(), "cdef");
        assert_eq!(std::fs::read(setting.path()).unwrap(), b"abcdef");
    }

    #[tokio::test]
    async fn wrong_bytes_reach_nobody_whole_and_are_not_kept() {
        let setting = Setting::new();
        let fill = Fill::start(
            Digest::of(b"abcdef"),
            Name::of(&[]),
            whole("abcdeX"),
            setting.target(),
            |_| panic!(),
        );
        let mut bytes = Arc::clone(&fill).read(never()).bytes;
        let mut seen = 0;
        let error = loop {
            match bytes.next().await.unwrap() {
                Ok(piece) => seen += piece.len(),
                Err(error) => break RegistryError::from(error),
            }
        };
        assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
        assert!(seen < 6 && bytes.next().await.is_none());
        assert!(!setting.path().exists() && !fill.is_good());
    }

    #[tokio::test]
    async fn it_is_given_up_with_its_last_reader() {
        let setting = Setting::new();
        let (sender, blob) = by_hand(6);
        let fill = Fill::start(Digest::of(b"abcdef"), Name::of(&[]), blob, setting.target(), |_| panic!());
        let (one, other) = (Arc::clone(&fill).read(never()), Arc::clone(&fill).read(never()));
        drop(fill);
        drop(one);
        // One piece is always held back.
        sender.send("ab").unwrap();
        sender.send("cd").unwrap();
        let mut bytes = other.bytes;
        assert_eq!(bytes.next().await.unwrap().unwrap(), "ab");
        drop(bytes);
        tokio::time::timeout(Duration::from_mins(1), sender.closed()).await.unwrap();
    }

    #[tokio::test]
    async fn where_the_disk_fails_readers_go_on_alone() {
        let setting = Setting::new();
        let fill = Fill::start(
            Digest::of(b"abcdef"),
            Name::of(&[]),
            whole("abcdef"),
            setting.read_only(),
            |_| panic!(),
        );
        assert_eq!(read(&fill, once_more("abcdef")).await.unwrap(), "abcdef");
        assert!(!fill.is_good() && !setting.path().exists());
        assert!(read(&fill, once_more("abcdeX")).await.is_err());
        assert!(read(&fill, once_more("abcdefg")).await.is_err());
    }

    #[tokio::test]
    async fn what_was_given_out_must_be_the_beginning_of_the_rest() {
        let setting = Setting::new();
        for (first, expected) in [("abc", true), ("abX", false)] {
            let file = setting.root.path().join(first);
            std::fs::write(&file, first).unwrap();
            let (sender, progress) = watch::channel(Progress { written: 3, stage: Stage::Running });
            let fill = Arc::new(Fill {
                digest: Digest::of(b"abcdef"),
                size: 6,
                scope: Name::of(&[]),
                file: Arc::new(File::open(file).unwrap()),
                progress,
            });
            let mut bytes = fill.read(once_more("abcdef")).bytes;
            assert_eq!(bytes.next().await.unwrap().unwrap(), first);
            sender.send_modify(|progress| progress.stage = Stage::Unwritable);
            let rest = read_bounded(bytes, 9).await;
            assert_eq!(rest.is_ok_and(|rest| rest == "def"), expected);
        }
    }
}
