//! Brings contents from one repository to another: blobs, and manifests with all that they need.
//!
//! A blob that is there is not sent. One that another repository of the same registry is known to have is mounted. Two versions that
//! need the same one have it sent once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;

use crate::oci::{Descriptor, Digest, MANIFEST_TYPES, Manifest, Reference, Repository, Tag};
use crate::operations::error::{OperationError, Result};
use crate::operations::finding::Finding;
use crate::operations::progress::CountedSource;
use crate::operations::routes::Place;
use crate::registry::{Condition, NewManifest, RegistryError, RegistrySource, StoredManifest};

use super::Copier;
use super::pair::Pair;

/// Blobs that are sent at once, of all versions together.
const BLOBS_AT_ONCE: usize = 8;
/// Blobs of one manifest that are looked after at once.
const BLOBS_OF_ONE: usize = 4;
/// An index within an index within an index is nobody's provider.
const MAX_DEPTH: usize = 4;
/// How many blobs are remembered with a repository that has them, for mounts: some 200 MB.
const MAX_HOMES: usize = 1_000_000;
/// A blob of so many bytes is waited for while it is sent to another repository, to be mounted then; a smaller one is sent sooner.
const WORTH_WAITING: u64 = 64 * 1024;

/// A blob of a registry, by the registry's identity.
type Key = (Arc<str>, Digest);

/// Held by whoever sends a blob.
type Way = tokio::sync::Mutex<()>;

/// What is known of transfers, whichever repositories they are between.
pub(super) struct Transfers {
    /// A repository that has a blob.
    homes: Mutex<HashMap<Key, Repository>>,
    /// The large blobs that are being sent.
    on_their_way: Mutex<HashMap<Key, Weak<Way>>>,
    turns: Semaphore,
}

impl Default for Transfers {
    fn default() -> Self {
        Self { homes: Mutex::default(), on_their_way: Mutex::default(), turns: Semaphore::new(BLOBS_AT_ONCE) }
    }
}

impl Transfers {
    fn home(&self, place: &Place, digest: &Digest) -> Option<Repository> {
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        let home = homes.get(&(Arc::clone(&place.target.identity), digest.clone()));
        home.filter(|home| **home != place.repository).cloned()
    }

    /// Held by whoever sends a large blob to a registry.
    fn way(&self, place: &Place, digest: &Digest) -> Arc<Way> {
        let mut ways = self.on_their_way.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Arc::clone(&place.target.identity), digest.clone());
        if let Some(way) = ways.get(&key).and_then(Weak::upgrade) {
            return way;
        }
        ways.retain(|_, way| way.strong_count() > 0);
        let way = Arc::default();
        ways.insert(key, Arc::downgrade(&way));
        way
    }

    fn remember(&self, place: &Place, digest: &Digest) {
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        if homes.len() < MAX_HOMES {
            let key = (Arc::clone(&place.target.identity), digest.clone());
            homes.entry(key).or_insert_with(|| place.repository.clone());
        }
    }
}

/// What was sent of one version, or would be.
#[derive(Debug, Default)]
pub(super) struct Tally(AtomicU64);

impl Tally {
    pub(super) fn add(&self, bytes: u64) {
        // Strangers say how large things are.
        let sum = |sent: u64| Some(sent.saturating_add(bytes));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Copier {
    /// Reads a manifest of the source.
    pub(super) async fn read(&self, pair: &Pair, reference: &Reference) -> Result<StoredManifest> {
        let stored = pair.from.registry().manifest(&pair.from.repository, reference).await;
        stored.map_err(OperationError::registry(pair.from.reference(reference)))
    }

    /// Brings everything that a manifest needs; the manifest itself is for the caller to put.
    pub(super) async fn bring_needs(&self, pair: &Pair, manifest: &Manifest, tally: &Tally) -> Result<()> {
        self.bring_needs_at(pair, manifest.clone(), tally, 0).await
    }

    /// Boxed, since an index may list indexes.
    fn bring_needs_at<'a>(
        &'a self,
        pair: &'a Pair,
        manifest: Manifest,
        tally: &'a Tally,
        depth: usize,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            // Layers that are kept elsewhere are named and not there; the others follow in their order.
            let needed: Vec<Descriptor> = manifest.needed().cloned().collect();
            let is_index = manifest.is_index();
            drop(manifest);
            let has_failed = &AtomicBool::new(false);
            let brought: Vec<Result<()>> = stream::iter(needed)
                .map(|descriptor| async move {
                    if has_failed.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    let brought = if is_index && MANIFEST_TYPES.contains(&descriptor.media_type.as_str()) {
                        self.bring_child(pair, descriptor, tally, depth + 1).await
                    } else {
                        self.bring_blob(pair, &pair.from, &descriptor.digest, descriptor.size, tally).await
                    };
                    has_failed.fetch_or(brought.is_err(), Ordering::Relaxed);
                    brought
                })
                .buffer_unordered(BLOBS_OF_ONE)
                .collect()
                .await;
            // What was on its way when another failed has come to its end: the next run finds it there.
            brought.into_iter().collect()
        })
    }

    /// Brings a manifest that an index lists, with everything that it needs.
    async fn bring_child(
        &self,
        pair: &Pair,
        descriptor: Descriptor,
        tally: &Tally,
        depth: usize,
    ) -> Result<()> {
        if depth > MAX_DEPTH {
            let name = pair.from.reference(&descriptor.digest.into());
            let message = format!("{name}: there are more than {MAX_DEPTH} indexes within each other");
            return Err(OperationError::refused(Finding::general("index-too-deep", message)));
        }
        let once = pair.once(&descriptor.digest);
        let bring = || async move {
            let reference = Reference::Digest(descriptor.digest.clone());
            match pair.to.registry().manifest_head(&pair.to.repository, &reference).await {
                Ok(_) => return Ok(()),
                Err(error) if error.may_be_absence() => {}
                Err(error) => return Err(OperationError::registry(pair.to.reference(&reference))(error)),
            }
            let stored = self.read(pair, &reference).await?;
            let manifest = parse(pair, &reference, &stored)?;
            self.bring_needs_at(pair, manifest, tally, depth).await?;
            self.put(pair, &stored, &[], Condition::None, tally).await
        };
        once.get_or_try_init(bring).await?;
        Ok(())
    }

    /// Brings a blob from `from`, unless it is there.
    pub(super) async fn bring_blob(
        &self,
        pair: &Pair,
        from: &Place,
        digest: &Digest,
        size: u64,
        tally: &Tally,
    ) -> Result<()> {
        let once = pair.once(digest);
        let bring = || async move {
            let there = pair.to.registry().blob_size(&pair.to.repository, digest).await;
            match there {
                Ok(_) => {}
                Err(error) if error.may_be_absence() => {
                    let way = (size >= WORTH_WAITING).then(|| self.transfers.way(&pair.to, digest));
                    let _way = match &way {
                        Some(way) => Some(way.lock().await),
                        None => None,
                    };
                    // Who only waits takes no turn, so as to hold nobody up.
                    let _turn = self.transfers.turns.acquire().await;
                    let sent = self.send_blob(&pair.to, from, digest, size, tally).await;
                    // A tag may have a rule of its own; a blob that is refused is refused to all versions.
                    if sent.as_ref().is_err_and(is_refusal) {
                        pair.refuse();
                    }
                    sent?;
                }
                Err(error) => return Err(OperationError::registry(pair.to.name())(error)),
            }
            self.transfers.remember(&pair.to, digest);
            Ok(())
        };
        once.get_or_try_init(bring).await?;
        Ok(())
    }

    /// Mounts a blob that is not there, or sends it.
    async fn send_blob(
        &self,
        to: &Place,
        from: &Place,
        digest: &Digest,
        size: u64,
        tally: &Tally,
    ) -> Result<()> {
        let failed = || OperationError::registry(to.name());
        let is_same_registry = from.target.identity == to.target.identity;
        let home =
            self.transfers.home(to, digest).or_else(|| is_same_registry.then(|| from.repository.clone()));
        if self.request.dry_run {
            if home.is_none() {
                tally.add(size);
            }
            return Ok(());
        }
        if let Some(home) = home
            && to.registry().mount(&to.repository, digest, Some(&home)).await.map_err(failed())?
        {
            return Ok(());
        }
        let registry = Arc::clone(&from.target.registry);
        let source = RegistrySource::new(registry, from.repository.clone(), digest.clone(), size);
        self.progress.grown(size);
        let counted = CountedSource::new(&source, Arc::clone(&self.progress));
        let sent = to.registry().put_blob(&to.repository, digest, &counted).await;
        sent.map_err(OperationError::registry(format!("{} ({digest})", to.name())))?;
        if counted.is_opened() {
            tally.add(size);
        } else {
            self.progress.advanced(size);
        }
        Ok(())
    }

    /// Stores a manifest as it came, with these tags; without any by its digest alone.
    pub(super) async fn put(
        &self,
        pair: &Pair,
        stored: &StoredManifest,
        tags: &[Tag],
        condition: Condition,
        tally: &Tally,
    ) -> Result<()> {
        tally.add(stored.bytes.len() as u64);
        if self.request.dry_run {
            return Ok(());
        }
        let new = NewManifest {
            media_type: stored.media_type.clone(),
            bytes: stored.bytes.clone(),
            digest: Some(stored.digest.clone()),
            tags: tags.to_vec(),
            condition,
        };
        match pair.to.registry().put_manifest(&pair.to.repository, &new).await {
            Ok(_) => Ok(()),
            // Somebody else was there in the meantime.
            Err(RegistryError::TagExists { tag, existing }) => {
                Err(differs(pair, &tag, stored.digest.clone(), &tag, existing))
            }
            Err(error) => Err(OperationError::registry(pair.to.name())(error)),
        }
    }
}

/// Whether an error says that nothing may be pushed, or that there is nothing to push into.
pub(super) fn is_refusal(error: &OperationError) -> bool {
    use RegistryError::{Denied, RepositoryNotMade};
    matches!(error.cause(), OperationError::Registry { source: Denied { .. } | RepositoryNotMade { .. }, .. })
}

/// Reads what a manifest of the source says.
pub(super) fn parse(pair: &Pair, reference: &Reference, stored: &StoredManifest) -> Result<Manifest> {
    Manifest::parse(&stored.media_type, &stored.bytes)
        .map_err(RegistryError::from)
        .map_err(OperationError::registry(pair.from.reference(reference)))
}

/// Two contents for one tag.
pub(super) fn differs(
    pair: &Pair,
    from: &Tag,
    from_digest: Digest,
    to: &Tag,
    to_digest: Digest,
) -> OperationError {
    OperationError::Differs {
        from: pair.from.reference(&from.clone().into()),
        from_digest,
        to: pair.to.reference(&to.clone().into()),
        to_digest,
    }
}
