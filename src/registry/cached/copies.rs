//! Answers that are kept in memory, and requests that several callers share.
//!
//! A request for something that is not kept runs on a task of its own. Who asks for the same meanwhile waits for it too, and it
//! goes on when somebody gives up. Its answer is kept; a refusal takes away what was kept; an outage leaves it, and callers
//! are given the copy, as they are when the answer takes too long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use moka::future::Cache;
use moka::notification::RemovalCause;
use moka::policy::EvictionPolicy;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::observed::Counter;
use super::scopes::Key;
use crate::registry::{RegistryError, Result};

/// What an entry takes in memory beside its value: key, links of two queues, a slot of the table, counters of references.
const ENTRY_SIZE: usize = 320;

/// How many requests are under way at a time, those that nobody waits for any longer among them. Each holds a connection, so
/// more would only wait elsewhere.
pub(super) const MAX_REQUESTS: usize = 256;

/// How long is waited for a registry that did not answer the last time: enough for one that works again to show it, and little
/// for the callers of one that does not.
const PATIENCE_IN_TROUBLE: Duration = Duration::from_millis(250);

/// moka refuses times that no clock can count to; this is as good as for ever.
const LONGEST: Duration = Duration::from_hours(24 * 365 * 100);

/// What a request came to, for each who waited for it.
type Outcome<V> = Result<V, Arc<RegistryError>>;

/// Makes the request of a key, as often as it is called.
pub(super) type Fetch<'a, V> = &'a (dyn Fn() -> BoxFuture<'static, Result<V>> + Send + Sync);

/// A request that is under way.
pub(super) struct Flight<V> {
    outcome: Shared<BoxFuture<'static, Outcome<V>>>,
    began: Instant,
}

impl<V> Clone for Flight<V> {
    fn clone(&self) -> Self {
        Self { outcome: self.outcome.clone(), began: self.began }
    }
}

impl<V: Clone> Flight<V> {
    /// What it comes to.
    pub(super) async fn land(self) -> Result<V> {
        self.outcome.await.map_err(|error| error.duplicate())
    }
}

struct Board<V> {
    flights: HashMap<Key, Flight<V>>,
    /// How many have landed: who saw none under way can tell whether one has come and gone since.
    landed: u64,
}

/// The requests that are under way, at most one for a key.
pub(super) struct Flights<V>(Arc<Mutex<Board<V>>>);

impl<V> Clone for Flights<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> Default for Flights<V> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Board { flights: HashMap::new(), landed: 0 })))
    }
}

/// Takes a request off the board, also where it panics.
struct Landing<V>(Flights<V>, Key);

impl<V> Drop for Landing<V> {
    fn drop(&mut self) {
        let Self(flights, key) = self;
        let mut board = flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.landed += 1;
        board.flights.remove(key);
    }
}

impl<V: Clone + Send + Sync + 'static> Flights<V> {
    /// The one that is under way; else how many have landed so far, for [`Self::start`].
    pub(super) fn under_way(&self, key: &Key) -> Result<Flight<V>, u64> {
        let board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.flights.get(key).cloned().ok_or(board.landed)
    }

    /// Starts one, or joins one that was started meanwhile. `None` where one may have landed since `landed` was read: then it
    /// may have left what is wanted. `keep` sees the outcome before anybody else.
    pub(super) fn start(
        &self,
        key: Key,
        landed: u64,
        turn: OwnedSemaphorePermit,
        fetch: Fetch<'_, V>,
        keep: impl AsyncKeep<V>,
    ) -> Option<Flight<V>> {
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = board.flights.get(&key) {
            return Some(flight.clone());
        }
        if board.landed != landed {
            return None;
        }
        let landing = Landing(self.clone(), key);
        let request = fetch();
        let task = tokio::spawn(async move {
            // Both go when this ends, and the turn last.
            let _turn = turn;
            let landing = landing;
            let outcome = request.await;
            keep.keep(&outcome).await;
            drop(landing);
            outcome.map_err(Arc::new)
        });
        let outcome = async move {
            task.await.unwrap_or_else(|error| {
                let source = std::io::Error::other(error);
                Err(Arc::new(RegistryError::Io { action: "asking the registry".to_owned(), source }))
            })
        };
        let flight = Flight { outcome: outcome.boxed().shared(), began: Instant::now() };
        board.flights.insert(key, flight.clone());
        Some(flight)
    }
}

/// What is done with the outcome of a request before anybody sees it.
pub(super) trait AsyncKeep<V>: Send + 'static {
    fn keep(self, outcome: &Result<V>) -> impl Future<Output = ()> + Send;
}

/// Nothing.
pub(super) struct KeepNothing;

impl<V: Sync> AsyncKeep<V> for KeepNothing {
    async fn keep(self, _outcome: &Result<V>) {}
}

/// An answer that is kept.
#[derive(Clone)]
struct Copy<V> {
    value: V,
    since: Instant,
    /// Another one for each answer.
    serial: u64,
}

struct KeepCopy<V: Clone + Send + Sync + 'static> {
    kept: Cache<Key, Copy<V>>,
    serials: Arc<AtomicU64>,
    key: Key,
    trouble: Arc<AtomicBool>,
}

impl<V: Clone + Send + Sync + 'static> AsyncKeep<V> for KeepCopy<V> {
    async fn keep(self, outcome: &Result<V>) {
        let is_outage = outcome.as_ref().is_err_and(RegistryError::is_outage);
        self.trouble.store(is_outage, Ordering::Relaxed);
        match outcome {
            Ok(value) => {
                let serial = self.serials.fetch_add(1, Ordering::Relaxed);
                let copy = Copy { value: value.clone(), since: Instant::now(), serial };
                self.kept.insert(self.key, copy).await;
                // What is over the limit goes now and not some time: a list may be as large as the whole.
                self.kept.run_pending_tasks().await;
            }
            Err(_) if is_outage => {}
            Err(_) => self.kept.invalidate(&self.key).await,
        }
    }
}

/// How long a copy counts, and how long is waited for a better one.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) fresh: Duration,
    pub(super) stale: Duration,
    pub(super) patience: Duration,
}

impl Terms {
    /// Of what never changes.
    pub(super) const FOR_GOOD: Self =
        Self { fresh: Duration::MAX, stale: Duration::MAX, patience: Duration::MAX };
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// A copy that counts.
    Kept,
    /// The registry.
    Asked,
    /// A copy of this age, since the registry does not answer.
    Stale(Duration),
}

/// Answers of one kind, in memory.
pub(super) struct Copies<V: Clone + Send + Sync + 'static> {
    kept: Cache<Key, Copy<V>>,
    flights: Flights<V>,
    turns: Arc<Semaphore>,
    serials: Arc<AtomicU64>,
}

impl<V: Clone + Send + Sync + 'static> Copies<V> {
    /// At most `memory` bytes of them, `weight` being that of a value, none for longer than `longest`.
    pub(super) fn new(
        memory: u64,
        longest: Option<Duration>,
        weight: fn(&V) -> usize,
        turns: Arc<Semaphore>,
        counter: &Arc<[Counter; 4]>,
        kind: usize,
    ) -> Self {
        let counter = Arc::clone(counter);
        let kept = Cache::builder()
            .max_capacity(memory)
            .weigher(move |_: &Key, copy: &Copy<V>| {
                u32::try_from(weight(&copy.value).saturating_add(ENTRY_SIZE)).unwrap_or(u32::MAX)
            })
            .eviction_policy(EvictionPolicy::lru())
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    Counter::count(&counter[kind].evictions);
                }
            })
            .time_to_live(longest.unwrap_or(LONGEST).min(LONGEST))
            .build();
        Self { kept, flights: Flights::default(), turns, serials: Arc::default() }
    }

    /// About how much memory the copies take, in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.kept.weighted_size()
    }

    /// A copy, however old.
    pub(super) async fn kept(&self, key: Key) -> Option<V> {
        self.kept.get(&key).await.map(|copy| copy.value)
    }

    /// Which copy it is that counts now.
    pub(super) async fn serial(&self, key: Key, fresh: Duration) -> Option<u64> {
        let copy = self.kept.get(&key).await?;
        (copy.since.elapsed() < fresh).then_some(copy.serial)
    }

    /// Keeps what came in another way.
    pub(super) async fn keep(&self, key: Key, value: V) {
        let (kept, serials) = (self.kept.clone(), Arc::clone(&self.serials));
        KeepCopy { kept, serials, key, trouble: Arc::default() }.keep(&Ok(value)).await;
    }

    /// Takes a copy away.
    pub(super) async fn forget(&self, key: Key) {
        self.kept.invalidate(&key).await;
    }

    /// The answer to a question: a copy that counts, or what the registry says, or where it says nothing an earlier copy.
    /// `trouble` is whether the registry answered the last time.
    pub(super) async fn ask(
        &self,
        key: Key,
        terms: Terms,
        trouble: &Arc<AtomicBool>,
        fetch: Fetch<'_, V>,
    ) -> Result<(V, How)> {
        let began = Instant::now();
        let copy = self.kept.get(&key).await.map(|copy| (copy.since.elapsed(), copy));
        let (age, copy) = match copy {
            Some((age, copy)) if age < terms.fresh => return Ok((copy.value, How::Kept)),
            Some((age, copy)) if age <= terms.stale => (age, copy),
            _ => return self.answer(key, began, trouble, fetch).await,
        };
        let in_trouble = trouble.load(Ordering::Relaxed);
        let patience = if in_trouble { terms.patience.min(PATIENCE_IN_TROUBLE) } else { terms.patience };
        let answer = self.in_time(patience, self.answer_or_flight(key, began, trouble, fetch)).await;
        match answer {
            Some(Err(error)) if error.is_outage() => Ok((copy.value, How::Stale(age))),
            Some(answer) => answer.map(|value| (value, How::Asked)),
            None => {
                trouble.store(true, Ordering::Relaxed);
                Ok((copy.value, How::Stale(age)))
            }
        }
    }

    async fn answer(
        &self,
        key: Key,
        began: Instant,
        trouble: &Arc<AtomicBool>,
        fetch: Fetch<'_, V>,
    ) -> Result<(V, How)> {
        let value = match self.answer_or_flight(key, began, trouble, fetch).await {
            Source::Copy(value) => value,
            Source::Flight(flight) => flight.land().await?,
        };
        Ok((value, How::Asked))
    }

    /// What comes in time, counted from when the request began and not from when this caller joined it.
    async fn in_time(
        &self,
        patience: Duration,
        source: impl Future<Output = Source<V>>,
    ) -> Option<Result<V>> {
        match tokio::time::timeout(patience, source).await.ok()? {
            Source::Copy(value) => Some(Ok(value)),
            Source::Flight(flight) => {
                let left = patience.saturating_sub(flight.began.elapsed());
                tokio::time::timeout(left, flight.land()).await.ok()
            }
        }
    }

    /// The request that is under way for a key, or a new one; or the copy that one left which has ended since `began`.
    async fn answer_or_flight(
        &self,
        key: Key,
        began: Instant,
        trouble: &Arc<AtomicBool>,
        fetch: Fetch<'_, V>,
    ) -> Source<V> {
        loop {
            let landed = match self.flights.under_way(&key) {
                Ok(flight) => return Source::Flight(flight),
                Err(landed) => landed,
            };
            if let Some(copy) = self.kept.get(&key).await.filter(|copy| copy.since >= began) {
                return Source::Copy(copy.value);
            }
            // Never closed.
            let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await else { continue };
            let keep = KeepCopy {
                kept: self.kept.clone(),
                serials: Arc::clone(&self.serials),
                key,
                trouble: Arc::clone(trouble),
            };
            if let Some(flight) = self.flights.start(key, landed, turn, fetch, keep) {
                return Source::Flight(flight);
            }
        }
    }
}

enum Source<V> {
    Copy(V),
    Flight(Flight<V>),
}
