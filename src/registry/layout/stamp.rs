//! Whether a file is still the one that was read.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

/// Clocks of file systems tick as slowly as every two seconds (FAT): a file that was changed within that may be changed once more and
/// look the same.
const TICK: Duration = Duration::from_secs(2);

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    /// Device, inode, and time of the last change of either, where the system has these.
    file: [i64; 4],
    /// In bytes.
    pub(super) size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// That of a file as it is now.
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { file: file(metadata), size: metadata.len(), modified: metadata.modified().ok() }
    }

    /// Whether a change from now on shows in the stamp. Where the clock stands before the file's time, none is sure to.
    pub(super) fn is_settled(&self) -> bool {
        let age = self.modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
        age.is_some_and(|age| age > TICK)
    }

    /// The same as a number.
    pub(super) fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(unix)]
fn file(metadata: &Metadata) -> [i64; 4] {
    use std::os::unix::fs::MetadataExt;
    // They are compared, and nothing else.
    [metadata.dev().cast_signed(), metadata.ino().cast_signed(), metadata.ctime(), metadata.ctime_nsec()]
}

#[cfg(not(unix))]
fn file(_metadata: &Metadata) -> [i64; 4] {
    [0; 4]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_written_just_now_may_still_change_unseen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar");
        std::fs::write(&path, "abc").unwrap();
        let stamp = Stamp::of(&std::fs::metadata(&path).unwrap());
        assert!(!stamp.is_settled());
        let long_ago = SystemTime::now() - Duration::from_mins(1);
        std::fs::File::open(&path).unwrap().set_modified(long_ago).unwrap();
        let older = Stamp::of(&std::fs::metadata(&path).unwrap());
        assert!(older.is_settled());
        assert_ne!(stamp, older);
    }
}
