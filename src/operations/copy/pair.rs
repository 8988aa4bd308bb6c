//! A repository, and the one that it is copied to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use crate::artifact::{self, TaggedVersion, VersionTags};
use crate::module::Version;
use crate::oci::{Digest, Tag};
use crate::operations::error::{OperationError, Result};
use crate::operations::published;
use crate::operations::routes::{ModuleName, Place};
use crate::registry::RegistryError;

/// Done once, whoever needs it: the others wait for the one who does it, and try themselves where that fails.
type Once = Arc<OnceCell<()>>;

/// A repository, the one that it is copied to, and what is known of both.
pub(super) struct Pair {
    pub(super) from: Place,
    pub(super) to: Place,
    /// The tags of the one.
    pub(super) tags: HashSet<Tag>,
    /// Its versions, ascending.
    pub(super) versions: Vec<TaggedVersion>,
    /// All tags of each, and of those that are only marked as yanked.
    pub(super) by_version: BTreeMap<Version, VersionTags>,
    /// The tags of the other.
    pub(super) there: HashSet<Tag>,
    /// The contents that are known to be there, or on their way.
    settled: Mutex<HashMap<Digest, Once>>,
    /// Whether the other one takes no blobs.
    takes_no_blobs: AtomicBool,
    /// Whether that was told.
    is_told: AtomicBool,
}

/// One version, or the mark of one: what is copied as a whole.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) version: Version,
    /// Where it is found; `None` where there is only the mark of its yank.
    pub(super) tagged: Option<TaggedVersion>,
    /// The same version spelt otherwise.
    pub(super) twins: Vec<Tag>,
    /// The marks of its yank.
    pub(super) marks: Vec<Tag>,
}

impl Pair {
    /// Lists the tags of both.
    pub(super) async fn open(from: Place, to: Place) -> Result<Self> {
        let (tags, there) = tokio::try_join!(tags(&from), tags_if_readable(&to))?;
        Ok(Self {
            by_version: artifact::tags_by_version(&tags),
            versions: artifact::versions(tags.iter().cloned()),
            tags: tags.into_iter().collect(),
            there: there.into_iter().collect(),
            from,
            to,
            settled: Mutex::default(),
            takes_no_blobs: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        })
    }

    /// Refused where the other repository holds another module: a repository holds one.
    pub(super) async fn expect_same_module(&self, module: &ModuleName) -> Result<()> {
        let theirs = match published::at(module, &self.to).await {
            // It may not be there, which the upload tells.
            Err(error) if error.may_be_absence() => return Ok(()),
            theirs => theirs?,
        };
        if theirs.versions.is_empty() {
            return Ok(());
        }
        let Some(theirs) = theirs.owner().await? else { return Ok(()) };
        match published::at(module, &self.from).await?.owner().await? {
            Some(ours) if !published::same_module(&ours, &theirs) => Err(OperationError::OtherModule {
                place: self.to.name(),
                stored: theirs.to_string(),
                pushed: ours.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// The version that a tag says, with everything that belongs to it.
    pub(super) fn part(&self, tagged: &TaggedVersion) -> Part {
        let VersionTags { own, marks, .. } =
            self.by_version.get(&tagged.version).cloned().unwrap_or_default();
        let twins = own.into_iter().filter(|tag| *tag != tagged.tag).collect();
        Part { version: tagged.version.clone(), tagged: Some(tagged.clone()), twins, marks }
    }

    /// The marks of versions that have no tag themselves: those are embedded elsewhere.
    pub(super) fn loose_marks(&self, is_wanted: impl Fn(&Version) -> bool) -> Vec<Part> {
        let marked =
            self.by_version.iter().filter(|(_, tags)| tags.own.is_empty() && tags.bundles.is_empty());
        marked
            .filter(|(version, _)| is_wanted(version))
            .map(|(version, tags)| Part {
                version: version.clone(),
                tagged: None,
                twins: Vec::new(),
                marks: tags.marks.clone(),
            })
            .collect()
    }

    /// Notes that the other repository takes no blobs.
    pub(super) fn refuse(&self) {
        self.takes_no_blobs.store(true, Ordering::Relaxed);
    }

    /// Whether the other repository takes no blobs.
    pub(super) fn is_refused(&self) -> bool {
        self.takes_no_blobs.load(Ordering::Relaxed)
    }

    /// Whether that was told; from now on it is.
    pub(super) fn is_told(&self) -> bool {
        self.is_told.swap(true, Ordering::Relaxed)
    }

    /// What stands for a content in this pair.
    pub(super) fn once(&self, digest: &Digest) -> Once {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(settled.entry(digest.clone()).or_default())
    }
}

async fn tags(place: &Place) -> Result<Vec<Tag>> {
    match place.registry().all_tags(&place.repository, published::MAX_TAGS).await {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        tags => tags.map_err(OperationError::registry(place.name())),
    }
}

/// Where a repository that is not there yet may not be listed, the upload itself will tell.
async fn tags_if_readable(place: &Place) -> Result<Vec<Tag>> {
    match tags(place).await {
        Err(OperationError::Registry { source: RegistryError::Denied { .. }, .. }) => Ok(Vec::new()),
        tags => tags,
    }
}
