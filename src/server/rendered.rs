//! Answers to `versions` that are kept as they were sent, for as long as nothing that they were made of has changed.
//!
//! A list of a thousand versions is read, sorted and written anew otherwise, for every `init` of every job. Nothing is kept by time:
//! each repository that was looked at has a number that is another one after every change ([`Registry::revision`]), and so has what
//! was found inside other modules. Where there is no such number, nothing is kept.
//!
//! Many callers at once need not all ask for these numbers: who asked a moment ago asked for those who come now too.
//!
//! [`Registry::revision`]: crate::registry::Registry::revision

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use moka::sync::Cache;

use super::metrics::{AnswerNumbers, Metrics};
use crate::oci::Digest;
use crate::operations::install::{Asked, Installer, MayRead, Offer};
use crate::operations::routes::Place;

/// How much memory the answers take, in bytes: those of some hundred modules with a thousand versions each.
const MAX_MEMORY: u64 = 16 * 1024 * 1024;
/// What an answer takes beside its text, about.
const OVERHEAD: usize = 512;
/// How many paths lead to answers at once; beyond that all start anew. A module has many, as upper and lower case are the same there.
const MAX_PATHS: usize = 10_000;
/// The moment: nobody can see an answer and change something because of it in that time. A change that comes through this server
/// counts at once all the same.
const MOMENT: Duration = Duration::from_millis(1);

/// An answer as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Rendered {
    body: Bytes,
    etag: HeaderValue,
}

impl Rendered {
    /// With the body's own digest for an `ETag`.
    pub(super) fn new(mut body: Vec<u8>) -> Self {
        body.shrink_to_fit();
        // A digest in quotes is made of visible characters.
        let etag = HeaderValue::try_from(format!("\"{}\"", Digest::of(&body).hex()));
        Self { body: body.into(), etag: etag.unwrap_or(HeaderValue::from_static("\"\"")) }
    }

    /// The answer to a request with these headers: that the caller knows it already, or all of it.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Response<Body> {
        let is_known = headers
            .get_all(IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|value| value.trim().trim_start_matches("W/").as_bytes() == self.etag.as_bytes());
        let mut answer = Response::new(if is_known { Body::empty() } else { self.body.clone().into() });
        let headers = answer.headers_mut();
        headers.insert(ETAG, self.etag.clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if is_known {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        answer
    }
}

/// An answer with what it is made of.
pub(super) struct Kept {
    pub(super) rendered: Rendered,
    asked: Asked,
    basis: Basis,
    /// What a caller has to be allowed to read to be given this answer.
    shown: Vec<Place>,
    /// When its basis was last seen to hold, by the clock of [`KeptAnswers`].
    held: AtomicU64,
    numbers: [OnceLock<AnswerNumbers>; 2],
}

impl Kept {
    /// Whether a caller may be given it.
    pub(super) fn is_for(&self, may_read: MayRead<'_>) -> bool {
        self.shown.iter().all(may_read)
    }

    /// Where answers that are this one are counted, on that route.
    pub(super) fn numbers(&self, metrics: &Metrics, route: &Arc<str>, status: StatusCode) -> &AnswerNumbers {
        let numbers = &self.numbers[usize::from(status == StatusCode::NOT_MODIFIED)];
        numbers.get_or_init(|| metrics.numbers(route, &Method::GET, status))
    }
}

/// What an answer is made of: another one where anything has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Basis {
    repositories: Vec<u64>,
    found: u64,
}

impl Basis {
    /// How things stand; `None` where nobody knows without asking.
    async fn now(installer: &Installer, asked: &Asked) -> Option<Self> {
        let search = installer.search();
        if search.is_behind() || !search.is_complete() {
            return None;
        }
        let mut repositories = Vec::new();
        for place in installer.places(asked) {
            repositories.push(place.registry().revision(&place.repository).await.ok()??);
        }
        Some(Self { repositories, found: search.found().revision })
    }
}

/// How things stood before an answer was made.
pub(super) struct Standing {
    basis: Basis,
    /// When that was asked.
    since: u64,
}

/// The way that a request took to its answer.
pub(super) struct Way {
    /// Its whole path.
    pub(super) path: String,
    /// The router's pattern.
    pub(super) route: Arc<str>,
}

/// Where a path led.
struct End {
    route: Arc<str>,
    kept: Weak<Kept>,
}

/// The answers that are kept.
pub(super) struct KeptAnswers {
    answers: Cache<Asked, Arc<Kept>>,
    /// Paths that led to answers, each with its route.
    ways: RwLock<HashMap<String, End>>,
    began: Instant,
    /// When something was last changed through this server.
    changed: AtomicU64,
}

impl Default for KeptAnswers {
    fn default() -> Self {
        let weigh = |_: &Asked, kept: &Arc<Kept>| {
            u32::try_from(kept.rendered.body.len() + OVERHEAD).unwrap_or(u32::MAX)
        };
        Self {
            answers: Cache::builder().weigher(weigh).max_capacity(MAX_MEMORY).build(),
            ways: RwLock::default(),
            began: Instant::now(),
            changed: AtomicU64::new(0),
        }
    }
}

impl KeptAnswers {
    /// In nanoseconds; enough for five centuries.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes note that something was changed through this server, so that no answer holds without a look.
    pub(super) fn something_changed(&self) {
        self.changed.fetch_max(self.now(), Ordering::SeqCst);
    }

    /// How things stand with what is asked for; `None` where nobody knows without asking. To be read before an answer is made, so that
    /// what is made after it is never older than it says.
    pub(super) async fn standing(&self, installer: &Installer, asked: &Asked) -> Option<Standing> {
        let since = self.now();
        Basis::now(installer, asked).await.map(|basis| Standing { basis, since })
    }

    /// The answer for a caller, where one is kept that still holds.
    pub(super) fn get(
        &self,
        asked: &Asked,
        standing: &Standing,
        way: Way,
        may_read: MayRead<'_>,
    ) -> Option<Arc<Kept>> {
        let kept = self.answers.get(asked)?;
        if kept.basis != standing.basis || !kept.is_for(may_read) {
            return None;
        }
        kept.held.fetch_max(standing.since, Ordering::SeqCst);
        self.remember(way, &kept);
        Some(kept)
    }

    fn remember(&self, way: Way, kept: &Arc<Kept>) {
        let mut ways = self.ways.write().unwrap_or_else(PoisonError::into_inner);
        if ways.len() >= MAX_PATHS && !ways.contains_key(&way.path) {
            ways.clear();
        }
        ways.insert(way.path, End { route: way.route, kept: Arc::downgrade(kept) });
    }

    /// What was answered to a path, and the route that it took.
    pub(super) fn at(&self, path: &str) -> Option<(Arc<str>, Arc<Kept>)> {
        let ways = self.ways.read().unwrap_or_else(PoisonError::into_inner);
        let End { route, kept } = ways.get(path)?;
        Some((Arc::clone(route), kept.upgrade()?))
    }

    /// Whether an answer held a moment before `now`.
    pub(super) fn held_a_moment_ago(&self, kept: &Kept, now: Instant) -> bool {
        let held = kept.held.load(Ordering::SeqCst);
        let age = now.saturating_duration_since(self.began).saturating_sub(Duration::from_nanos(held));
        age < MOMENT && held > self.changed.load(Ordering::SeqCst)
    }

    /// Whether an answer still holds.
    pub(super) async fn still_holds(&self, installer: &Installer, kept: &Kept) -> bool {
        let standing = self.standing(installer, &kept.asked).await;
        let Some(standing) = standing.filter(|standing| standing.basis == kept.basis) else { return false };
        kept.held.fetch_max(standing.since, Ordering::SeqCst);
        true
    }

    /// Keeps an answer from which nothing was left out for the caller's sake.
    pub(super) fn keep(&self, asked: Asked, standing: Standing, offer: &Offer, rendered: &Rendered) {
        if let Some(shown) = offer.is_for_everybody_who_may_read() {
            let kept = Kept {
                rendered: rendered.clone(),
                asked: asked.clone(),
                basis: standing.basis,
                shown,
                held: AtomicU64::new(standing.since),
                numbers: Default::default(),
            };
            self.answers.insert(asked, Arc::new(kept));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn kept(held: u64) -> Arc<Kept> {
        Arc::new(Kept {
            rendered: Rendered::new(b"{}".to_vec()),
            asked: Asked::Tofu {
                address: crate::module::TofuAddress::parse("acme/label/null").unwrap(),
                host: None,
            },
            basis: Basis { repositories: Vec::new(), found: 0 },
            shown: Vec::new(),
            held: AtomicU64::new(held),
            numbers: Default::default(),
        })
    }

    #[test]
    fn a_moment_is_short_and_ends_with_a_change() {
        let answers = KeptAnswers::default();
        let later = |nanoseconds| answers.began + Duration::from_nanos(nanoseconds);
        let (held, moment) = (1_000_000_000, 1_000_000);
        let kept = kept(held);
        assert!(answers.held_a_moment_ago(&kept, later(held)));
        assert!(answers.held_a_moment_ago(&kept, later(held + moment - 1)));
        assert!(!answers.held_a_moment_ago(&kept, later(held + moment)));
        // Whoever began to ask before somebody else had the answer looked at is not too early.
        assert!(answers.held_a_moment_ago(&kept, later(held - 5)));
        answers.changed.store(held, Ordering::SeqCst);
        assert!(
            !answers.held_a_moment_ago(&kept, later(held)),
            "it may have been looked at before the change"
        );
        answers.changed.store(held - 1, Ordering::SeqCst);
        assert!(answers.held_a_moment_ago(&kept, later(held)));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_keeps_no_answer() {
        let answers = KeptAnswers::default();
        let kept = kept(1);
        for number in 0..=MAX_PATHS {
            let way = Way { path: number.to_string(), route: "/".into() };
            answers.remember(way, &kept);
        }
        assert_eq!(answers.ways.read().unwrap().len(), 1);
        let path = MAX_PATHS.to_string();
        assert!(answers.at(&path).is_some());
        assert!(answers.at("0").is_none());
        drop(kept);
        assert!(answers.at(&path).is_none());
    }
}
