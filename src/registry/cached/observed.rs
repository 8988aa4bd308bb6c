//! Who is told that an answer came from a copy: the caller, through an observer round the call, and whoever counts.
//!
//! The trait's answers have no room for it, and most callers do not care. Who does wraps the work that belongs to one answer in
//! [`observed`]; what the work starts on tasks of its own is not seen.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What was seen of the copies while a future ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Whether a copy was used since the registry could not be asked, or took too long.
    pub stale: bool,
    /// How old the oldest of these copies was.
    pub age: Duration,
}

impl Observed {
    fn and(self, other: Self) -> Self {
        Self { stale: self.stale || other.stale, age: self.age.max(other.age) }
    }
}

tokio::task_local! {
    static OBSERVER: Cell<Observed>;
}

/// Runs a future, and says what was seen of the copies that it used. May be nested.
pub async fn observed<F: Future>(future: F) -> (F::Output, Observed) {
    let watch = async {
        let output = future.await;
        (output, OBSERVER.with(Cell::get))
    };
    let (output, seen) = OBSERVER.scope(Cell::default(), watch).await;
    note(seen);
    (output, seen)
}

/// Notes that a copy of that age was used in place of the registry's answer.
pub(super) fn note_stale(age: Duration) {
    note(Observed { stale: true, age });
}

fn note(seen: Observed) {
    // Nobody may be looking.
    let _ = OBSERVER.try_with(|observer| observer.set(observer.get().and(seen)));
}

/// What is counted of one kind of thing, since the process began.
#[derive(Debug, Default)]
pub(super) struct Counter {
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) evictions: AtomicU64,
}

impl Counter {
    pub(super) fn count(number: &AtomicU64) {
        number.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> KindStatistics {
        KindStatistics {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            stale: self.stale.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            memory: 0,
        }
    }
}

/// Numbers of one kind of thing, each since the cache was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStatistics {
    /// Answered from a copy that is as good as the registry.
    pub hits: u64,
    /// The registry was asked.
    pub misses: u64,
    /// Answered from an older copy, since the registry could not be asked or took too long. Each is a miss as well.
    pub stale: u64,
    /// Copies that had to make room for others.
    pub evictions: u64,
    /// About how much memory the copies take at the moment, in bytes.
    pub memory: u64,
}

/// What a cache has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Lists of tags and of repositories.
    pub listing: KindStatistics,
    /// Which manifest a tag points at. The registry is asked each time, so there are no hits.
    pub tag: KindStatistics,
    /// Manifests by digest.
    pub manifest: KindStatistics,
    /// Blobs, in memory and on disk.
    pub blob: KindStatistics,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_used_inside_is_seen_outside_and_nowhere_else() {
        note_stale(Duration::from_secs(9));
        let (inner, outer) = observed(async {
            let (_, first) = observed(async { note_stale(Duration::from_secs(3)) }).await;
            let (_, second) = observed(async { note_stale(Duration::from_secs(2)) }).await;
            let (_, third) = observed(async {}).await;
            (first, second, third)
        })
        .await;
        let stale = |seconds| Observed { stale: true, age: Duration::from_secs(seconds) };
        assert_eq!(inner, (stale(3), stale(2), Observed::default()));
        assert_eq!(outer, stale(3));
    }
}
