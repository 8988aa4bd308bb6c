//! Files that people and other programs write too: read when they have changed, and changed as a whole, so that a reader finds
//! the old content or the new one and never half of either.
//!
//! Whoever changes one holds a lock on the file that is there, writes the new one beside it and renames it into its place. Two
//! of us never lose each other's change; programs that know nothing of the lock replace the file as they always did.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

/// A file that was written so shortly before it was read may be written again within the same tick of its clock: it is read once
/// more. File systems tell times to two seconds at worst (FAT).
const SETTLES_IN: Duration = Duration::from_secs(2);

/// How often a change is begun anew where another process was quicker.
const TRIES: usize = 100;

/// How many symbolic links may lead to a file, as on Linux.
const MAX_LINKS: usize = 40;

/// What tells one content of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
    /// Device, file and last change of either, where the system tells them.
    identity: (u64, u64, i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { length: metadata.len(), modified: metadata.modified().ok(), identity: identity(metadata) }
    }

    /// Whether the file was at rest when this was taken: else it tells nothing of what was read.
    pub(crate) fn is_settled(&self) -> bool {
        self.modified.is_some_and(|modified| modified.elapsed().is_ok_and(|age| age > SETTLES_IN))
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64, i64, i64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64, i64, i64) {
    (0, 0, 0, 0)
}

fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    let (one, other) = (identity(one), identity(other));
    (one.0, one.1) == (other.0, other.1)
}

/// Whom a changed file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Whoever it was for before; a new file is its owner's alone.
    Kept,
    /// Its owner, whatever it was before: it holds secrets.
    Private,
}

/// Why a file could not be changed.
#[derive(Debug)]
pub(crate) enum ChangeError<E> {
    /// What is to be in it could not be made of what is in it.
    Refused(E),
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is over the limit.
    TooLarge,
    /// It cannot be written.
    Unwritable(io::Error),
    /// The file that takes its place would belong to somebody else.
    Owner(io::Error),
}

/// The content and the stamp of a file that is no longer than `limit` bytes; the stamp is `None` where it cannot be relied upon.
/// The outer `None` stands for a file over the limit. Blocks.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Option<(Vec<u8>, Option<Stamp>)>> {
    let mut file = File::open(path)?;
    // Before the content: at worst it is that of an older one, and the file is read again.
    let stamp = Stamp::of(&file.metadata()?);
    let bytes = read_open(&mut file, limit)?;
    Ok(bytes.map(|bytes| (bytes, stamp.is_settled().then_some(stamp))))
}

fn read_open(file: &mut File, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// Where symbolic links lead, also where nothing is there yet.
pub(crate) fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            // No link, or nothing there.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Changes a file of at most `limit` bytes. `change` gets what is in it, or `None` where it is not there, and answers what is to
/// be in it, or `None` where that is so already; it is called again where another process was quicker. Answers whether the file
/// was written. Where `path` is a symbolic link, the link itself is replaced: see [`followed`]. Blocks.
pub(crate) fn change<E>(
    path: &Path,
    limit: u64,
    mode: Mode,
    mut change: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, E>,
) -> Result<bool, ChangeError<E>> {
    for _ in 0..TRIES {
        let outcome = match open_for_lock(path) {
            Ok(file) => replace(path, file, limit, mode, &mut change)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(path, &mut change)?,
            Err(error) => return Err(ChangeError::Unreadable(error)),
        };
        if let Some(is_written) = outcome {
            return Ok(is_written);
        }
    }
    let error = io::Error::new(io::ErrorKind::ResourceBusy, "others keep on writing it");
    Err(ChangeError::Unwritable(error))
}

/// Some network file systems lock only what is open for writing.
fn open_for_lock(path: &Path) -> io::Result<File> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => File::open(path),
        outcome => outcome,
    }
}

/// `None` where another process has replaced the file meanwhile.
fn replace<E>(
    path: &Path,
    mut file: File,
    limit: u64,
    mode: Mode,
    change: &mut impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, E>,
) -> Result<Option<bool>, ChangeError<E>> {
    // Whoever changes holds the file that is there. One that waited for it finds another file in its place. Where the file
    // system has no locks, a change is still whole; of two at the same moment one may be lost.
    let _ = file.lock();
    let metadata = file.metadata().map_err(ChangeError::Unreadable)?;
    if !fs::metadata(path).is_ok_and(|named| is_same_file(&named, &metadata)) {
        return Ok(None);
    }
    let old = read_open(&mut file, limit).map_err(ChangeError::Unreadable)?.ok_or(ChangeError::TooLarge)?;
    let Some(new) = change(Some(&old)).map_err(ChangeError::Refused)? else { return Ok(Some(false)) };
    let beside = write_beside(path, &new)?;
    keep_owner(beside.as_file(), &metadata).map_err(ChangeError::Owner)?;
    if mode == Mode::Kept {
        beside.as_file().set_permissions(metadata.permissions()).map_err(ChangeError::Unwritable)?;
    }
    beside.as_file().sync_all().map_err(ChangeError::Unwritable)?;
    beside.persist(path).map_err(|error| ChangeError::Unwritable(error.error))?;
    flush_folder(path).map_err(ChangeError::Unwritable)?;
    Ok(Some(true))
}

/// Makes a file that only its owner can read; `None` where another process has made one meanwhile.
fn make<E>(
    path: &Path,
    change: &mut impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, E>,
) -> Result<Option<bool>, ChangeError<E>> {
    let Some(new) = change(None).map_err(ChangeError::Refused)? else { return Ok(Some(false)) };
    let beside = write_beside(path, &new)?;
    beside.as_file().sync_all().map_err(ChangeError::Unwritable)?;
    match beside.persist_noclobber(path) {
        Ok(_) => flush_folder(path).map(|()| Some(true)).map_err(ChangeError::Unwritable),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(ChangeError::Unwritable(error.error)),
    }
}

/// A file that is its owner's alone, in the same folder.
fn write_beside<E>(path: &Path, bytes: &[u8]) -> Result<NamedTempFile, ChangeError<E>> {
    let written = || {
        let mut beside = NamedTempFile::new_in(folder_of(path))?;
        beside.write_all(bytes)?;
        Ok(beside)
    };
    written().map_err(ChangeError::Unwritable)
}

#[cfg(unix)]
fn keep_owner(file: &File, like: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let own = file.metadata()?;
    let user = (own.uid() != like.uid()).then_some(like.uid());
    let group = (own.gid() != like.gid()).then_some(like.gid());
    if user.is_none() && group.is_none() { Ok(()) } else { fchown(file, user, group) }
}

// One signature for all systems.
#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps)]
fn keep_owner(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// That a file has another name is on disk once its folder is.
fn flush_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder_of(path))?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    type Never = std::convert::Infallible;

    fn append(path: &Path, mode: Mode, word: &str) -> Result<bool, ChangeError<Never>> {
        change(path, 100, mode, |old| Ok(Some([old.unwrap_or_default(), word.as_bytes()].concat())))
    }

    #[test]
    fn a_change_is_made_of_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert!(append(&path, Mode::Kept, "one").unwrap());
        assert!(append(&path, Mode::Kept, "two").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"onetwo");
        assert!(!change::<Never>(&path, 100, Mode::Kept, |_| Ok(None)).unwrap());
        assert!(matches!(change(&path, 100, Mode::Kept, |_| Err(7)), Err(ChangeError::Refused(7))));
        assert!(matches!(change::<Never>(&path, 5, Mode::Kept, |_| Ok(None)), Err(ChangeError::TooLarge)));
        assert_eq!(fs::read(&path).unwrap(), b"onetwo");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "nothing is left beside it");
    }

    #[cfg(unix)]
    #[test]
    fn what_holds_secrets_is_its_owner_s_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        append(&path, Mode::Kept, "x").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        append(&path, Mode::Kept, "x").unwrap();
        assert_eq!(mode(), 0o644);
        append(&path, Mode::Private, "x").unwrap();
        assert_eq!(mode(), 0o600);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_to_what_is_not_there_yet() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        symlink("two", path("one")).unwrap();
        symlink(path("three"), path("two")).unwrap();
        assert_eq!(followed(&path("one")).unwrap(), path("three"));
        assert_eq!(followed(&path("none")).unwrap(), path("none"));
        symlink("loop", path("loop")).unwrap();
        followed(&path("loop")).unwrap_err();
    }

    #[test]
    fn of_many_who_change_at_the_same_time_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| append(&path, Mode::Kept, "x").unwrap());
            }
        });
        assert_eq!(fs::read(&path).unwrap(), b"x".repeat(16));
    }
}
