//! Which files are known to have the bytes that their name says.
//!
//! A blob is hashed when it is first read and again when its inode, size, time of modification or time of change is another;
//! in between it is sent as a file server sends it.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::oci::{Algorithm, Digest, Hasher};

/// How old a file's last change has to be before its stamp tells it from a later change. Clocks of file systems tick as
/// slowly as every two seconds (FAT); a younger file is read again.
const TICK: Duration = Duration::from_secs(2);

/// How old a file has to be before a mention of it makes it young again. Above [`TICK`], for a file made young is hashed
/// anew when it is read within that; and far below any sensible grace of the collection of garbage.
pub(super) const REFRESH_AFTER: Duration = Duration::from_mins(5);

/// How many verified files are remembered: about 15 MB. Where there are more, all are forgotten and hashed once more.
const REMEMBERED: usize = 65_536;

/// How much is read at a time while hashing.
const PIECE: usize = 128 * 1024;

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    /// Length in bytes.
    pub(super) size: u64,
    modified: Option<SystemTime>,
    changed: (i64, i64),
    /// Whether a change from now on would show.
    is_settled: bool,
}

impl Stamp {
    /// The stamp of a file as it is now.
    #[cfg(unix)]
    pub(super) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let change = Duration::from_secs(u64::try_from(changed.0).unwrap_or(u64::MAX));
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: metadata.modified().ok(),
            changed,
            is_settled: since_epoch.checked_sub(change).is_some_and(|age| age > TICK),
        }
    }

    /// The stamp of a file as it is now, on systems that have neither inode nor time of change.
    #[cfg(not(unix))]
    pub(super) fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().ok();
        let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
        Self {
            device: 0,
            inode: 0,
            size: metadata.len(),
            modified,
            changed: (0, 0),
            is_settled: age.is_some_and(|age| age > TICK),
        }
    }

    /// Whether a change from now on would show.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Whether two stamps are of one file, known to be unchanged from this one to the other.
    pub(super) fn is_still(&self, later: &Self) -> bool {
        self.is_settled && self.is_alike(later)
    }

    /// Whether two stamps of one time, both too young to tell a change, are nevertheless alike.
    pub(super) fn is_alike_and_young(&self, later: &Self) -> bool {
        !later.is_settled && self.is_alike(later)
    }

    fn is_alike(&self, other: &Self) -> bool {
        Self { is_settled: other.is_settled, ..*self } == *other
    }

    /// Whether all but the time of change is as it was.
    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        self.is_alike(&Self { changed: self.changed, ..*other })
    }

    /// The time since the file was last changed, linked or refreshed; none where that lies ahead.
    pub(super) fn age(&self) -> Duration {
        let changed = if cfg!(unix) {
            let nanoseconds = u32::try_from(self.changed.1).unwrap_or_default();
            u64::try_from(self.changed.0)
                .ok()
                .and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds)))
        } else {
            self.modified
        };
        changed.and_then(|changed| SystemTime::now().duration_since(changed).ok()).unwrap_or_default()
    }

    /// What is the same for all names of one file.
    pub(super) fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Whether both are names of one file. Always `false` where the system does not tell.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        self.inode != 0 && (self.device, self.inode) == (other.device, other.inode)
    }
}

/// The files that have been hashed and were right.
#[derive(Default)]
pub(super) struct Verified(Mutex<HashSet<(Digest, Stamp)>>);

impl Verified {
    /// Whether a file of this stamp has been found to have that digest.
    pub(super) fn knows(&self, digest: &Digest, stamp: Stamp) -> bool {
        stamp.is_settled
            && self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&(digest.clone(), stamp))
    }

    /// Notes that the bytes of a file, which had this stamp before they were read, have that digest.
    pub(super) fn remember(&self, digest: &Digest, stamp: Stamp) {
        if stamp.is_settled {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert((digest.clone(), stamp));
        }
    }

    /// The digest that the content of an open file has, in place of `expected`; `None` where it is the one.
    pub(super) fn mismatch(
        &self,
        file: &mut File,
        stamp: Stamp,
        expected: &Digest,
    ) -> io::Result<Option<Digest>> {
        if self.knows(expected, stamp) {
            return Ok(None);
        }
        let actual = hash(file, expected.algorithm())?;
        if actual == *expected {
            self.remember(expected, stamp);
            return Ok(None);
        }
        Ok(Some(actual))
    }

    /// Makes a file young again for the collection of garbage, since somebody counts on it. `false` where it is gone.
    ///
    /// Setting the mode that a file has changes its time of change and nothing else, so what is known of its bytes stays
    /// known. Where that is not allowed (another user's file, a read-only disk) the file stays as old as it is.
    pub(super) fn refresh(&self, path: &Path, digest: &Digest) -> io::Result<bool> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let before = Stamp::of(&metadata);
        if cfg!(unix) && file.set_permissions(metadata.permissions()).is_ok() && self.knows(digest, before) {
            let after = Stamp::of(&file.metadata()?);
            if before.has_same_content(&after) {
                self.remember(digest, Stamp { is_settled: true, ..after });
            }
        }
        Ok(true)
    }

    /// Whether the file at `path` has the bytes that `digest` names.
    pub(super) fn is_intact(&self, path: &Path, digest: &Digest) -> io::Result<bool> {
        let mut file = File::open(path)?;
        let stamp = Stamp::of(&file.metadata()?);
        Ok(self.mismatch(&mut file, stamp, digest)?.is_none())
    }
}

/// The digest of what comes from `reader` until its end.
pub(super) fn hash(reader: &mut impl Read, algorithm: Algorithm) -> io::Result<Digest> {
    let mut hasher = Hasher::new(algorithm);
    let mut piece = vec![0; PIECE];
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => hasher.update(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stamp_of(path: &Path) -> Stamp {
        Stamp::of(&std::fs::metadata(path).unwrap())
    }

    #[test]
    fn a_young_file_is_never_taken_for_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blob");
        std::fs::write(&path, "abc").unwrap();
        let stamp = stamp_of(&path);
        assert!(!stamp.is_still(&stamp));
        let verified = Verified::default();
        verified.remember(&Digest::of(b"abc"), stamp);
        assert!(!verified.knows(&Digest::of(b"abc"), stamp));
    }

    #[test]
    fn an_old_file_is_remembered_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blob");
        std::fs::write(&path, "abc").unwrap();
        let stamp = Stamp { is_settled: true, ..stamp_of(&path) };
        let (verified, digest) = (Verified::default(), Digest::of(b"abc"));
        verified.remember(&digest, stamp);
        assert!(verified.knows(&digest, stamp));
        assert!(!verified.knows(&digest, Stamp { changed: (0, 0), ..stamp }));
        assert!(!verified.knows(&Digest::of(b"abd"), stamp));
        assert!(stamp.is_still(&Stamp { is_settled: false, ..stamp }));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let stamp = Stamp { is_settled: true, ..stamp_of(folder.path()) };
        let verified = Verified::default();
        for size in 0..=REMEMBERED as u64 {
            verified.remember(&Digest::of(b""), Stamp { size, ..stamp });
        }
        assert!(verified.0.lock().unwrap().len() <= REMEMBERED);
    }
}
