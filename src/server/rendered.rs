//! Answers to `versions` that are kept as they were sent, for as long as nothing that they were made of has changed.
//!
//! A list of a thousand versions is read, sorted and written anew otherwise, for every `init` of every job. Nothing is kept by time:
//! each repository that was looked at has a number that is another one after every change ([`Registry::revision`]), and so has what
//! was found inside other modules. Where there is no such number, nothing is kept.
//!
//! [`Registry::revision`]: crate::registry::Registry::revision

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::HeaderValue;
use moka::sync::Cache;

use crate::oci::Digest;
use crate::operations::install::{Asked, Installer, MayRead, Offer};
use crate::operations::routes::Place;

/// How much memory the answers take, in bytes: those of some hundred modules with a thousand versions each.
const MAX_MEMORY: u64 = 16 * 1024 * 1024;
/// What an answer takes beside its text, about.
const OVERHEAD: usize = 512;

/// An answer as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Rendered {
    pub(super) body: Bytes,
    pub(super) etag: HeaderValue,
}

impl Rendered {
    /// With the body's own digest for an `ETag`.
    pub(super) fn new(body: String) -> Self {
        // A digest in quotes is made of visible characters.
        let etag = HeaderValue::try_from(format!("\"{}\"", Digest::of(body.as_bytes()).hex()));
        Self { body: body.into(), etag: etag.unwrap_or(HeaderValue::from_static("\"\"")) }
    }
}

struct Kept {
    rendered: Rendered,
    basis: Basis,
    /// What a caller has to be allowed to read to be given this answer.
    shown: Vec<Place>,
}

/// What an answer is made of: another one where anything has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    repositories: Vec<u64>,
    found: u64,
}

impl Basis {
    /// How things stand; `None` where nobody knows without asking. To be read before the answer is made.
    pub(super) async fn now(installer: &Installer, asked: &Asked) -> Option<Self> {
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

/// The answers that are kept.
pub(super) struct KeptAnswers(Cache<Asked, Arc<Kept>>);

impl Default for KeptAnswers {
    fn default() -> Self {
        let weigh = |_: &Asked, kept: &Arc<Kept>| {
            u32::try_from(kept.rendered.body.len() + OVERHEAD).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().weigher(weigh).max_capacity(MAX_MEMORY).build())
    }
}

impl KeptAnswers {
    /// The answer for a caller, where one is kept that still holds.
    pub(super) fn get(&self, asked: &Asked, basis: &Basis, may_read: MayRead<'_>) -> Option<Rendered> {
        let kept = self.0.get(asked)?;
        (kept.basis == *basis && kept.shown.iter().all(may_read)).then(|| kept.rendered.clone())
    }

    /// Keeps an answer from which nothing was left out for the caller's sake.
    pub(super) fn keep(&self, asked: Asked, basis: Basis, offer: &Offer, rendered: &Rendered) {
        if let Some(shown) = offer.is_for_everybody_who_may_read() {
            let kept = Kept { rendered: rendered.clone(), basis, shown };
            self.0.insert(asked, Arc::new(kept));
        }
    }
}
