//! Files of one kind up to a limit, of which the least recently used go first.
//!
//! The time of a file's last use is its time of access, set by hand: that works where the disk does not note it, two processes
//! see each other's, and the time of modification stays what the bytes are known by. Each process counts what it adds itself and
//! looks at the folder again when that comes to something, so that together they are over the limit for short and by little.

use std::fs::{self, File, FileTimes, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::folder::remove;
use super::observed::Counter;

/// A file takes whole blocks of the disk.
const BLOCK: u64 = 4096;

/// How often a use of a file is noted: an order of minutes is enough for what lives for days.
const NOTED_EVERY: Duration = Duration::from_mins(1);

/// The part of the limit that is made free at once, so that not every new file leads to a look at all of them.
const SLACK: u64 = 16;

/// The part of the limit that a process may add before it looks again what others have added.
const UNSEEN: u64 = 8;

/// How many files a shelf has at most. A look at all of them takes some megabytes and less than a second.
const MAX_FILES: u64 = 65_536;

#[derive(Default)]
struct Ledger {
    /// Of the last look, and what was added since; `None` before the first.
    bytes: Option<u64>,
    files: u64,
    added: u64,
    /// Held for files that are on their way.
    reserved: u64,
}

/// A folder with two levels of folders below it, and files in these.
pub(super) struct Shelf {
    pub(super) root: PathBuf,
    limit: u64,
    ledger: Mutex<Ledger>,
    counter: Arc<[Counter; 4]>,
    kind: Option<usize>,
}

/// Room for a file that is on its way.
pub(super) struct Reservation {
    shelf: Arc<Shelf>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shelf.ledger().reserved -= self.bytes;
    }
}

fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK).max(1).saturating_mul(BLOCK)
}

impl Shelf {
    pub(super) fn new(root: PathBuf, limit: u64, counter: &Arc<[Counter; 4]>, kind: Option<usize>) -> Self {
        Self { root, limit, ledger: Mutex::default(), counter: Arc::clone(counter), kind }
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for a file of `size` bytes, and holds it. `None` where it, and what else is on its way, is more than the
    /// whole limit. Blocks.
    pub(super) fn reserve(self: &Arc<Self>, size: u64) -> Option<Reservation> {
        let bytes = blocks(size);
        let mut ledger = self.ledger();
        if ledger.reserved.saturating_add(bytes) > self.limit {
            return None;
        }
        let free = |ledger: &Ledger, room: u64| {
            let taken = ledger.bytes.unwrap_or_default().saturating_add(ledger.reserved);
            taken.saturating_add(bytes).saturating_add(room) <= self.limit && ledger.files < MAX_FILES
        };
        let is_known = ledger.bytes.is_some() && ledger.added < self.limit / UNSEEN;
        if (!is_known || !free(&ledger, 0))
            && let Err(error) = self.clear(&mut ledger, bytes)
        {
            tracing::warn!(%error, folder = %self.root.display(), "the cache on disk cannot be looked at");
            return None;
        }
        ledger.reserved += bytes;
        Some(Reservation { shelf: Arc::clone(self), bytes })
    }

    /// Counts a file that has come to its name.
    pub(super) fn added(&self, size: u64) {
        let mut ledger = self.ledger();
        ledger.added += blocks(size);
        ledger.files += 1;
        if let Some(bytes) = &mut ledger.bytes {
            *bytes += blocks(size);
        }
    }

    /// Looks at all files, and removes the least recently used where `wanted` bytes would be too many.
    fn clear(&self, ledger: &mut Ledger, wanted: u64) -> io::Result<()> {
        let mut found = Vec::new();
        for outer in folders(&self.root)? {
            for inner in folders(&self.root.join(&outer))? {
                let middle = Path::new(&outer).join(&inner);
                for entry in entries(&self.root.join(&middle))? {
                    let entry = entry?;
                    let Ok(metadata) = entry.metadata() else { continue };
                    if metadata.is_file() {
                        let path = middle.join(entry.file_name()).into_boxed_path();
                        found.push((last_use(&metadata), blocks(metadata.len()), path));
                    }
                }
            }
        }
        let mut bytes: u64 = found.iter().map(|(_, size, _)| size).sum();
        let mut files = found.len() as u64;
        let taken = wanted.saturating_add(ledger.reserved);
        if bytes.saturating_add(taken) > self.limit || files >= MAX_FILES {
            let most_bytes = self.limit.saturating_sub(taken).min(self.limit - self.limit / SLACK);
            let most_files = MAX_FILES - MAX_FILES / SLACK;
            found.sort_unstable_by_key(|(used, _, _)| *used);
            for (_, size, path) in found {
                if bytes <= most_bytes && files <= most_files {
                    break;
                }
                let path = self.root.join(path);
                remove(&path)?;
                // Only what is empty goes.
                let _ = path.parent().map(fs::remove_dir);
                if let Some(kind) = self.kind {
                    Counter::count(&self.counter[kind].evictions);
                }
                bytes -= size;
                files -= 1;
            }
        }
        (ledger.bytes, ledger.files, ledger.added) = (Some(bytes), files, 0);
        Ok(())
    }
}

fn entries(folder: &Path) -> io::Result<Box<dyn Iterator<Item = io::Result<fs::DirEntry>>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Box::new(entries)),
        // Removed by another process, or nothing was ever put there.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Box::new(std::iter::empty())),
        Err(error) => Err(error),
    }
}

fn folders(folder: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in entries(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name());
        }
    }
    Ok(names)
}

fn last_use(metadata: &Metadata) -> SystemTime {
    let accessed = metadata.accessed().unwrap_or(SystemTime::UNIX_EPOCH);
    metadata.modified().map_or(accessed, |modified| accessed.max(modified))
}

/// Notes that a file was used now.
pub(super) fn note_use(file: &File, metadata: &Metadata) {
    let now = SystemTime::now();
    if now.duration_since(last_use(metadata)).is_ok_and(|age| age >= NOTED_EVERY) {
        // Where this is not allowed the file goes somewhat earlier.
        let _ = file.set_times(FileTimes::new().set_accessed(now));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn put(shelf: &Arc<Shelf>, name: &str, size: u64, age: u64) -> bool {
        let Some(_held) = shelf.reserve(size) else { return false };
        let path = shelf.root.join("sha256/ab").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        let then = SystemTime::now() - Duration::from_hours(age);
        file.set_times(FileTimes::new().set_accessed(then).set_modified(then)).unwrap();
        shelf.added(size);
        true
    }

    fn names(shelf: &Shelf) -> Vec<String> {
        let entries = entries(&shelf.root.join("sha256/ab")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let counter: Arc<[Counter; 4]> = Arc::default();
        let shelf = Arc::new(Shelf::new(folder.path().to_owned(), 10 * BLOCK, &counter, Some(3)));
        assert!(!put(&shelf, "whale", 11 * BLOCK, 0), "more than there will ever be room for");
        assert!(
            put(&shelf, "a", 3 * BLOCK, 5)
                && put(&shelf, "b", 3 * BLOCK, 9)
                && put(&shelf, "c", 3 * BLOCK, 7)
        );
        assert_eq!(names(&shelf), ["a", "b", "c"]);
        let path = shelf.root.join("sha256/ab/b");
        let file = File::open(path).unwrap();
        note_use(&file, &file.metadata().unwrap());
        assert!(put(&shelf, "d", 2 * BLOCK, 1));
        assert_eq!(names(&shelf), ["a", "b", "d"]);
        assert_eq!(counter[3].snapshot().evictions, 1);
    }

    #[test]
    fn what_another_process_added_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let counter: Arc<[Counter; 4]> = Arc::default();
        let make = || Arc::new(Shelf::new(folder.path().to_owned(), 32 * BLOCK, &counter, None));
        let (one, other) = (make(), make());
        for number in 0..40 {
            assert!(put(&one, &format!("one{number}"), BLOCK, 100 - number));
            assert!(put(&other, &format!("other{number}"), BLOCK, 100 - number));
        }
        assert!(names(&one).len() <= 32 + 32 / 8, "{}", names(&one).len());
    }

    #[test]
    fn room_that_is_held_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Arc::new(Shelf::new(folder.path().to_owned(), 10 * BLOCK, &Arc::default(), None));
        let held = shelf.reserve(6 * BLOCK).unwrap();
        assert!(shelf.reserve(6 * BLOCK).is_none());
        drop(held);
        assert!(shelf.reserve(6 * BLOCK).is_some());
    }
}
