//! Blobs that are kept: small ones in memory, all of them on disk where there is a folder.
//!
//! A content is here by its digest alone. Whether a repository has it, and whether it may be read there, is asked elsewhere.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};

use super::copies::Copies;
use super::fill::{Again, Fill, Target, read_file};
use super::folder::{Folder, remove};
use super::scopes::{Key, Name};
use super::shelf::{Shelf, note_use};
use crate::oci::{ByteRange, Digest, Hasher, Span};
use crate::registry::{BlobStream, ByteStream, RegistryError, Result, read_bounded, verified};

/// Up to this a blob is kept in memory: module files, configurations, the zips of small modules.
pub(super) const SMALL: u64 = 64 * 1024;

/// Up to this a file whose bytes are not known to be right is read whole before anything of it is given out, so that a wrong one
/// can be replaced for whoever asked. Beyond, it breaks off, and is replaced for the next.
const READ_FIRST: u64 = 1024 * 1024;

/// How many files are remembered as right: some megabytes. Where there are more, all are hashed once more.
const REMEMBERED: usize = 65_536;

/// A file by what changes when its bytes do. Not by the time of change, which is another after each use that is noted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    content: Name,
    device: u64,
    inode: u64,
    size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    #[cfg(unix)]
    fn of(content: Name, metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Self { content, device, inode, size: metadata.len(), modified: metadata.modified().ok() }
    }

    #[cfg(not(unix))]
    fn of(content: Name, metadata: &Metadata) -> Self {
        Self { content, device: 0, inode: 0, size: metadata.len(), modified: metadata.modified().ok() }
    }
}

/// The files that were found right by this process.
#[derive(Clone, Default)]
struct KnownFiles(Arc<Mutex<HashSet<Stamp>>>);

impl KnownFiles {
    fn knows(&self, stamp: &Stamp) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(stamp)
    }

    fn remember(&self, stamp: Stamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(stamp);
    }
}

/// Where contents are on disk.
pub(super) struct Disk {
    pub(super) folder: Folder,
    pub(super) shelf: Arc<Shelf>,
}

/// Every content that is kept.
pub(super) struct Contents {
    small: Copies<Bytes>,
    disk: Option<Disk>,
    known: KnownFiles,
    fills: Mutex<HashMap<Name, Weak<Fill>>>,
}

/// A content that is there.
pub(super) enum Content {
    /// Verified, in memory.
    Small(Bytes),
    /// In a file.
    OnDisk(Kept),
}

/// A file with a content that may yet turn out to be wrong.
pub(super) struct Kept {
    file: Arc<File>,
    path: PathBuf,
    stamp: Stamp,
    is_known: bool,
    known: KnownFiles,
}

impl Content {
    /// In bytes.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Small(bytes) => bytes.len() as u64,
            Self::OnDisk(kept) => kept.stamp.size,
        }
    }

    /// The blob or a piece of it; `None` where the piece cannot be had from what is here.
    pub(super) fn read(self, digest: &Digest, range: Option<ByteRange>) -> Result<Option<BlobStream>> {
        let size = self.size();
        let within = |range: ByteRange| range.within(size).ok_or(RegistryError::RangeNotSatisfiable { size });
        let span = range.map(within).transpose()?;
        let bytes = match (self, span) {
            (Self::Small(bytes), span) => {
                let Span { start, length } = span.unwrap_or(Span { start: 0, length: size });
                // Both lie within the bytes.
                let at = |offset: u64| usize::try_from(offset).unwrap_or(bytes.len());
                let piece = bytes.slice(at(start)..at(start + length));
                stream::iter((!piece.is_empty()).then_some(Ok(piece))).boxed()
            }
            // A piece cannot be verified, so the whole has to have been.
            (Self::OnDisk(kept), Some(_)) if !kept.is_known => return Ok(None),
            (Self::OnDisk(kept), Some(span)) => read_file(kept.file, span.start, span.length),
            (Self::OnDisk(kept), None) => kept.read(digest),
        };
        Ok(Some(BlobStream { size, span, bytes }))
    }
}

impl Kept {
    /// All of it, verified in passing; where it is wrong, it is removed.
    fn read(self, digest: &Digest) -> ByteStream {
        let size = self.stamp.size;
        let bytes = verified(read_file(Arc::clone(&self.file), 0, size), digest, size);
        let mut seen = 0;
        bytes
            .inspect(move |piece| match piece {
                Ok(piece) => {
                    seen += piece.len() as u64;
                    // The last piece passes only when the whole was right.
                    if seen == size {
                        self.known.remember(self.stamp);
                    }
                }
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "a damaged blob was removed from the cache");
                    // One call, and nobody else would do it.
                    let _ = remove(&self.path);
                }
            })
            .boxed()
    }
}

fn key(digest: &Digest) -> Key {
    Key { name: Name::of(&[digest.as_str()]), epoch: 0 }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

impl Contents {
    pub(super) fn new(small: Copies<Bytes>, disk: Option<Disk>) -> Self {
        Self { small, disk, known: KnownFiles::default(), fills: Mutex::default() }
    }

    /// About how much memory they take, in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.small.memory()
    }

    fn path(&self, digest: &Digest) -> Option<PathBuf> {
        let disk = self.disk.as_ref()?;
        let hex = digest.hex();
        Some(disk.shelf.root.join(digest.algorithm().name()).join(&hex[..2]).join(hex))
    }

    /// A small content.
    pub(super) async fn in_memory(&self, digest: &Digest) -> Option<Bytes> {
        self.small.kept(key(digest)).await
    }

    /// A content that is here.
    pub(super) async fn find(&self, digest: &Digest) -> Option<Content> {
        if let Some(bytes) = self.in_memory(digest).await {
            return Some(Content::Small(bytes));
        }
        let (path, wanted, known) = (self.path(digest)?, digest.clone(), self.known.clone());
        let found = blocking(move || open(path, &wanted, known)).await?;
        match found {
            Ok(Content::Small(bytes)) => {
                self.small.keep(key(digest), bytes.clone()).await;
                Some(Content::Small(bytes))
            }
            Ok(content) => Some(content),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(%error, "a blob in the cache cannot be read");
                }
                None
            }
        }
    }

    /// The fetch of a content that is under way.
    pub(super) fn filling(&self, digest: &Digest) -> Option<Arc<Fill>> {
        let fills = self.fills.lock().unwrap_or_else(PoisonError::into_inner);
        fills.get(&key(digest).name)?.upgrade().filter(|fill| fill.is_good())
    }

    /// Takes in what the registry sends: what is small is here afterwards, what is large begins to fill a file. What can be
    /// neither is handed back.
    pub(super) async fn take(&self, digest: &Digest, scope: Name, blob: BlobStream) -> Result<Taken> {
        let size = blob.size;
        if size <= SMALL {
            let bytes = read_bounded(verified(blob.bytes, digest, size), SMALL).await?;
            self.small.keep(key(digest), bytes.clone()).await;
            self.write_small(digest, bytes.clone()).await;
            return Ok(Taken::Small(bytes));
        }
        let Some(target) = self.target(digest, size).await else { return Ok(Taken::Not(blob)) };
        let mut fills = self.fills.lock().unwrap_or_else(PoisonError::into_inner);
        let name = key(digest).name;
        if let Some(fill) = fills.get(&name).and_then(Weak::upgrade).filter(|fill| fill.is_good()) {
            // Another repository has the same, and was asked at the same time.
            return Ok(Taken::Filling(fill));
        }
        let shelf = self.disk.as_ref().map(|disk| Arc::clone(&disk.shelf));
        let known = self.known.clone();
        let fill = Fill::start(digest.clone(), scope, blob, target, move |file| {
            if let Ok(metadata) = file.metadata() {
                known.remember(Stamp::of(name, &metadata));
            }
            if let Some(shelf) = shelf {
                shelf.added(size);
            }
        });
        fills.retain(|_, fill| fill.strong_count() > 0);
        fills.insert(name, Arc::downgrade(&fill));
        Ok(Taken::Filling(fill))
    }

    /// Room on disk, and a file there; `None` where there is none.
    async fn target(&self, digest: &Digest, size: u64) -> Option<Target> {
        let (disk, path) = (self.disk.as_ref()?, self.path(digest)?);
        let (shelf, folder) = (Arc::clone(&disk.shelf), disk.folder.clone());
        blocking(move || {
            let reservation = shelf.reserve(size)?;
            match folder.temporary() {
                Ok(temporary) => Some(Target { temporary, reservation, path }),
                Err(error) => {
                    tracing::warn!(%error, "the cache on disk cannot be written; a blob is streamed past it");
                    None
                }
            }
        })
        .await?
    }

    async fn write_small(&self, digest: &Digest, bytes: Bytes) {
        let size = bytes.len() as u64;
        let Some(target) = self.target(digest, size).await else { return };
        let Some(shelf) = self.disk.as_ref().map(|disk| Arc::clone(&disk.shelf)) else { return };
        blocking(move || {
            let Target { temporary, reservation, path } = target;
            let written = (&*temporary.file).write_all(&bytes).and_then(|()| temporary.keep_as(&path));
            match written {
                Ok(()) => shelf.added(size),
                Err(error) => tracing::warn!(%error, "a blob cannot be kept in the cache"),
            }
            drop(reservation);
        })
        .await;
    }

    /// Removes a copy that is not what it should be.
    pub(super) async fn remove(&self, digest: &Digest) {
        self.small.forget(key(digest)).await;
        if let Some(path) = self.path(digest) {
            blocking(move || remove(&path)).await;
        }
    }
}

/// What became of a blob.
pub(super) enum Taken {
    /// It is in memory.
    Small(Bytes),
    /// It is on its way to the disk.
    Filling(Arc<Fill>),
    /// It is not kept.
    Not(BlobStream),
}

impl Taken {
    /// The blob from its beginning.
    pub(super) fn read(self, again: Again) -> BlobStream {
        match self {
            Self::Small(bytes) => {
                let size = bytes.len() as u64;
                let bytes = stream::iter((!bytes.is_empty()).then_some(Ok(bytes))).boxed();
                BlobStream { size, span: None, bytes }
            }
            Self::Filling(fill) => fill.read(again),
            Self::Not(blob) => blob,
        }
    }
}

/// Opens a file; and reads it where it is small, or short and not known to be right.
fn open(path: PathBuf, digest: &Digest, known: KnownFiles) -> io::Result<Content> {
    let file = File::open(&path)?;
    let metadata = file.metadata()?;
    note_use(&file, &metadata);
    let stamp = Stamp::of(key(digest).name, &metadata);
    let mut is_known = known.knows(&stamp);
    if stamp.size <= SMALL || (!is_known && stamp.size <= READ_FIRST) {
        let mut hasher = Hasher::new(digest.algorithm());
        let mut bytes = Vec::new();
        (&file).take(READ_FIRST + 1).read_to_end(&mut bytes)?;
        hasher.update(&bytes);
        if hasher.finish() != *digest {
            tracing::warn!(path = %path.display(), "a damaged blob was removed from the cache");
            remove(&path)?;
            return Err(ErrorKind::NotFound.into());
        }
        if bytes.len() as u64 <= SMALL {
            return Ok(Content::Small(bytes.into()));
        }
        known.remember(stamp);
        is_known = true;
    }
    Ok(Content::OnDisk(Kept { file: Arc::new(file), path, stamp, is_known, known }))
}
