//! What one process remembers of the repositories: their lists as they were last read or written, and whose turn it is to write.
//!
//! A repository is read when it is first asked for. How much memory the lists take has a limit; where they would take more, those
//! that are not in use are read again when they are.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::index::Index;
use super::index_file::Spare;
use super::stamp::Stamp;
use super::store::References;
use crate::oci::{Digest, Repository};
use crate::registry::referrers::Room;

/// How many repositories are remembered; without their lists some hundred bytes each.
const REPOSITORIES: usize = 65_536;

/// How many bytes their lists may take: of 10,000 repositories with 30 versions each, or of 30 with 10,000.
const LISTS: usize = 128 * 1024 * 1024;

/// How many bytes of annotations are kept for lists of referrers. Who may push decides how many there are.
const ANNOTATIONS: usize = 32 * 1024 * 1024;

/// Everything that is remembered.
pub(super) struct Memory {
    repositories: Mutex<HashMap<Repository, Arc<InMemory>>>,
    /// What the lists take, in bytes.
    used: AtomicUsize,
    /// [`LISTS`] but in tests.
    pub(super) limit: usize,
    /// For annotations: [`ANNOTATIONS`] but in tests.
    pub(super) room: Room,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            repositories: Mutex::default(),
            used: AtomicUsize::new(0),
            limit: LISTS,
            room: Room::new(ANNOTATIONS),
        }
    }
}

/// What is remembered of a repository.
#[derive(Default)]
pub(super) struct InMemory {
    /// One writer of this process at a time waits for the lock of the file; the others wait here and block no thread.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    loaded: Mutex<Option<Arc<Loaded>>>,
    /// Manifests that were read for their references. Content never changes, so they outlive a change of the index.
    pub(super) read: Mutex<HashMap<Digest, Arc<References>>>,
}

/// A repository's index as it was when the file had that stamp.
pub(super) struct Loaded {
    pub(super) index: Index,
    /// `None` where there is no `index.json`.
    pub(super) stamp: Option<Stamp>,
    /// What its writer left beside it; empty where that is not known.
    pub(super) word: String,
    /// Whether the file has the index's text, blanks, and its tail.
    pub(super) is_plain: bool,
    /// The file that had the name before.
    pub(super) spare: Option<Spare>,
    pub(super) references: OnceLock<BTreeMap<Digest, Arc<References>>>,
}

impl Loaded {
    /// Whether the index is still this one, going by the stamp that it has now.
    pub(super) fn is_current(&self, now: Option<&Stamp>, word: impl FnOnce() -> String) -> bool {
        match (&self.stamp, now) {
            (Some(earlier), Some(now)) => {
                earlier.is_still(now)
                    || (earlier.is_alike_and_young(now) && !self.word.is_empty() && self.word == word())
            }
            _ => false,
        }
    }

    /// What is known of its file once another one has the name.
    pub(super) fn to_spare(&self) -> Option<Spare> {
        let stamp = self.stamp.filter(|_| self.is_plain)?;
        Some(Spare { stamp, length: self.index.text().len() })
    }
}

impl Memory {
    /// What is remembered of a repository.
    pub(super) fn of(&self, repository: &Repository) -> Arc<InMemory> {
        let mut repositories = self.repositories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = repositories.get(repository) {
            return found.clone();
        }
        if repositories.len() >= REPOSITORIES {
            repositories.retain(|_, memory| {
                let is_in_use = Arc::strong_count(memory) > 1;
                if !is_in_use {
                    self.replace(memory, None);
                }
                is_in_use
            });
        }
        repositories.entry(repository.clone()).or_default().clone()
    }

    /// Remembers a repository's list in place of what was remembered of it, or nothing; then forgets others where that is too much.
    pub(super) fn keep(&self, memory: &InMemory, loaded: Option<Arc<Loaded>>) {
        self.replace(memory, loaded);
        if self.used.load(Ordering::Relaxed) <= self.limit {
            return;
        }
        let repositories = self.repositories.lock().unwrap_or_else(PoisonError::into_inner);
        for other in repositories.values().filter(|other| !std::ptr::eq(Arc::as_ptr(other), memory)) {
            self.replace(other, None);
            other.read.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    fn replace(&self, memory: &InMemory, loaded: Option<Arc<Loaded>>) {
        let weight = |loaded: &Option<Arc<Loaded>>| loaded.as_ref().map_or(0, |loaded| loaded.index.weight());
        // Counted before and after under the list's own lock, so that what one adds another takes away.
        let mut kept = memory.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        self.used.fetch_add(weight(&loaded), Ordering::Relaxed);
        self.used.fetch_sub(weight(&kept), Ordering::Relaxed);
        *kept = loaded;
    }

    /// How much the lists take, in bytes.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl InMemory {
    /// The list as it was last read or written.
    pub(super) fn loaded(&self) -> Option<Arc<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
