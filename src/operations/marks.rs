//! The marks in a repository that say which of its versions are yanked, of modules and of providers alike.
//!
//! They are seen in the list of tags, so that they cost nothing where there are none, and a request for each where there are some.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

use crate::artifact::{self, YankMark};
use crate::module::Version;
use crate::oci::Tag;

use super::error::{OperationError, Result};
use super::routes::Place;
use super::yank::{self, Yanked};

/// Marks that are read at once.
const CONCURRENCY: usize = 8;
/// How many yank marks of a repository are read, those of the newest versions first: one request each. Nobody withdraws so many by
/// hand; whoever does it by a program has all the older ones taken for withdrawn.
const MAX_MARKS: usize = 1_000;

/// The marks of a repository.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    place: Place,
    /// The tags that may say that a version is yanked, also one that is not here itself.
    tags: BTreeMap<Version, Vec<Tag>>,
    /// What they say, once it was asked.
    yanked: Arc<OnceCell<Yanked>>,
}

impl Marks {
    /// What the tags of a repository say.
    pub(super) fn of_tags(place: &Place, tags: &[Tag]) -> Self {
        Self { place: place.clone(), tags: artifact::yank_tags(tags), yanked: Arc::default() }
    }

    /// The marks of a version that may be yanked.
    pub(super) fn of(&self, version: &Version) -> &[Tag] {
        self.tags.get(version).map_or(&[], Vec::as_slice)
    }

    /// The versions that are yanked, and why: those of the repository, and those that it yanks where they are embedded elsewhere.
    pub(super) async fn yanked(&self) -> Result<&Yanked> {
        self.yanked.get_or_try_init(|| self.read()).await
    }

    async fn read(&self) -> Result<Yanked> {
        let place = &self.place;
        if self.tags.len() > MAX_MARKS {
            tracing::warn!(
                "{place:?} yanks more than {MAX_MARKS} versions; the oldest of these count as yanked unread"
            );
        }
        // Owned, since a stream of references is no future that every caller could send to another thread.
        let marks: Vec<(Version, Vec<Tag>)> =
            self.tags.iter().rev().map(|(version, tags)| (version.clone(), tags.clone())).collect();
        let read: Vec<Option<(Version, _)>> = stream::iter(marks.into_iter().enumerate())
            .map(|(position, (version, tags))| async move {
                if position >= MAX_MARKS {
                    return Ok(Some((version, None)));
                }
                for tag in &tags {
                    if let Some(YankMark::Yanked(reason)) = yank::read(place, tag).await? {
                        return Ok(Some((version, reason)));
                    }
                }
                Ok::<_, OperationError>(None)
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        Ok(read.into_iter().flatten().collect())
    }
}
