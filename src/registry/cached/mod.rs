//! A registry with a memory: what another one answered is kept, and never for longer than it is right.
//!
//! What has a digest never changes, so manifests and blobs are kept for good, as far as there is room. What changes is asked for
//! anew: a list when it is older than `fresh`, what a tag points at each time. Where the registry is down or too slow, the last
//! good copy is the answer for as long as `stale` says, and whoever looks is told ([`observed()`]).
//!
//! - **An error is never "there is none".** A copy is used in place of an outage ([`RegistryError::is_outage`]), and of nothing
//!   else: a 404 removes it, and after a 401 or 403 nothing is left of the repository.
//! - **A content alone opens nothing.** That a blob is here by its digest does not say that a repository has it. That is asked of
//!   the registry like everything that changes; and a manifest on disk, which another process with other rights may have put there,
//!   counts when the registry has answered this process for its repository.
//! - **One question is asked once.** Callers who ask it at the same time share the request, which is nobody's own: it goes on
//!   when they leave ([`copies`]).
//! - **A write through here is seen at once.** It raises a number that is part of each copy's key ([`scopes`]).
//!
//! Every registry behind one [`Cache`] shares its memory and its folder, and is kept apart by its identity.

mod contents;
mod copies;
mod fill;
mod folder;
mod listing;
mod observed;
mod scopes;
mod sealed;
mod shelf;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use url::Url;

pub use self::observed::{CacheStatistics, KindStatistics, Observed, observed};

use self::contents::{Content, Contents, Disk, Taken};
use self::copies::{Copies, Flight, Flights, How, KeepNothing, MAX_REQUESTS, Terms};
use self::fill::{Again, Fill};
use self::folder::Folder;
use self::listing::Listing;
use self::observed::{Counter, note_stale};
use self::scopes::{Key, Name, Scopes, Standing};
use self::sealed::Sealed;
use self::shelf::Shelf;
use super::{
    Answer, Blob, BlobRequest, BlobSource, BlobStream, ByteStream, ManifestHead, NewManifest, Page,
    PageRequest, PutManifest, Registry, RegistryError, Result, SharedRegistry, StoredManifest, UploadId,
};
use crate::oci::{
    Algorithm, ByteRange, Descriptor, Digest, Hasher, MAX_MANIFEST_SIZE, Reference, Repository, Tag,
};

/// How long a list counts where nobody says it.
pub const DEFAULT_FRESH: Duration = Duration::from_secs(10);
/// How long a copy may stand in for a registry that is down where nobody says it: the night until somebody comes to work.
pub const DEFAULT_STALE: Duration = Duration::from_hours(24);
/// How much memory is used where nobody says it, in bytes.
pub const DEFAULT_MEMORY: u64 = 64 * 1024 * 1024;
/// How much of the disk is used where nobody says it, in bytes.
pub const DEFAULT_DISK: u64 = 10 * 1024 * 1024 * 1024;
/// How long is waited for the registry where there is a copy: as long as a person waits without wondering.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(2);

/// A list with more entries is broken off: somebody's registry goes on without end. What asks for whole lists has the same.
const MAX_TAGS: usize = 200_000;
/// Likewise for the list of repositories.
const MAX_REPOSITORIES: usize = 100_000;

/// The most bytes that a record may have.
pub const MAX_RECORD_SIZE: u64 = 64 * 1024;
/// Manifests on disk take at most so much, and records as well: at 4 KiB each there are some ten thousand of either.
const MAX_SMALL_FILES: u64 = 256 * 1024 * 1024;
/// And no more than this part of what the disk may be used for.
const SMALL_FILES_PART: u64 = 16;
/// A media type longer than this is nobody's.
const MAX_MEDIA_TYPE: usize = 1024;

const LISTING: usize = 0;
const TAG: usize = 1;
const MANIFEST: usize = 2;
const BLOB: usize = 3;

/// How much is kept, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// How long a list counts, and that a repository has a blob. Nothing that is newer is seen meanwhile.
    pub fresh: Duration,
    /// How old a copy may be that stands in for a registry that is down or slow.
    pub stale: Duration,
    /// How much memory the copies take, in bytes.
    pub memory: u64,
    /// How long is waited for the registry where there is a copy.
    pub patience: Duration,
    /// Where blobs, manifests and records are kept. None are on disk where it is absent.
    pub folder: Option<PathBuf>,
    /// How much of the disk the blobs take, in bytes. Manifests and records take an eighth of that beside it, at most 512 MiB.
    pub disk: u64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            fresh: DEFAULT_FRESH,
            stale: DEFAULT_STALE,
            memory: DEFAULT_MEMORY,
            patience: DEFAULT_PATIENCE,
            folder: None,
            disk: DEFAULT_DISK,
        }
    }
}

/// What registries answered, in memory and on disk.
pub struct Cache {
    options: CacheOptions,
    scopes: Scopes,
    counter: Arc<[Counter; 4]>,
    turns: Arc<Semaphore>,
    tags: Copies<Option<Arc<Listing<Tag>>>>,
    catalogs: Copies<Arc<Listing<Repository>>>,
    /// What tags point at.
    heads: Copies<ManifestHead>,
    manifests: Copies<StoredManifest>,
    /// Which blobs a repository has, and their sizes.
    sizes: Copies<u64>,
    records: Copies<Bytes>,
    contents: Contents,
    openings: Flights<Opened>,
    on_disk: Option<SmallFiles>,
    /// The registries by their names. A weak one keeps its place in memory, so that no other is taken for it.
    known: Mutex<HashMap<String, Vec<Weak<dyn Registry>>>>,
}

struct SmallFiles {
    manifests: Arc<Sealed>,
    records: Arc<Sealed>,
}

impl Cache {
    /// An empty memory, and what is in the folder. [`RegistryError::Io`] where the folder cannot be used.
    pub fn open(options: CacheOptions) -> Result<Arc<Self>> {
        let counter: Arc<[Counter; 4]> = Arc::default();
        let turns = Arc::new(Semaphore::new(MAX_REQUESTS));
        let folder = options.folder.as_deref().map(Folder::open).transpose()?;
        let shelf = |folder: &Folder, name: &str, limit: u64, kind| {
            Shelf::new(folder.root.join(name), limit, &counter, kind)
        };
        let small_limit = (options.disk / SMALL_FILES_PART).min(MAX_SMALL_FILES);
        let on_disk = folder.as_ref().map(|folder| SmallFiles {
            manifests: Arc::new(Sealed::new(
                folder.clone(),
                shelf(folder, "manifests", small_limit, Some(MANIFEST)),
                MAX_MANIFEST_SIZE + MAX_MEDIA_TYPE as u64 + 1,
            )),
            records: Arc::new(Sealed::new(
                folder.clone(),
                shelf(folder, "records", small_limit, None),
                MAX_RECORD_SIZE,
            )),
        });
        let disk = folder.map(|folder| Disk {
            shelf: Arc::new(shelf(&folder, "blobs", options.disk, Some(BLOB))),
            folder,
        });
        // Lists are what takes room, and are asked for most.
        let part = |of_32: u64| options.memory / 32 * of_32;
        let stale = Some(options.stale.max(options.fresh));
        Ok(Arc::new(Self {
            tags: Copies::new(
                part(12),
                stale,
                |tags| tags.as_ref().map_or(0, |tags| tags.weight()),
                Arc::clone(&turns),
                &counter,
                LISTING,
            ),
            catalogs: Copies::new(
                part(4),
                stale,
                |list| list.weight(),
                Arc::clone(&turns),
                &counter,
                LISTING,
            ),
            heads: Copies::new(part(1), stale, weigh_head, Arc::clone(&turns), &counter, TAG),
            manifests: Copies::new(part(8), None, weigh_manifest, Arc::clone(&turns), &counter, MANIFEST),
            sizes: Copies::new(part(1), stale, |_| 0, Arc::clone(&turns), &counter, BLOB),
            records: Copies::new(part(2), None, Bytes::len, Arc::clone(&turns), &counter, MANIFEST),
            contents: Contents::new(
                Copies::new(part(4), None, Bytes::len, Arc::clone(&turns), &counter, BLOB),
                disk,
            ),
            openings: Flights::default(),
            scopes: Scopes::default(),
            options,
            counter,
            turns,
            on_disk,
            known: Mutex::default(),
        }))
    }

    /// A registry with this memory. `identity` names the registry: what is kept under one name is not shown under another.
    ///
    /// One value acts for one identity, so another value of the same name may act for somebody with other rights: it is kept apart
    /// too, by its number. The first has none, so that it finds on disk what it kept there when the process ran before.
    pub fn over(self: &Arc<Self>, registry: SharedRegistry, identity: &str) -> CachedRegistry {
        let number = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let named = known.entry(identity.to_owned()).or_default();
            // By their places alone: what a value can do may be written down more than once.
            let is_same =
                |other: &Weak<dyn Registry>| std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(&registry));
            let number = named.iter().position(is_same).unwrap_or(named.len());
            if number == named.len() {
                named.push(Arc::downgrade(&registry));
            }
            number
        };
        let identity = if number == 0 { identity.into() } else { format!("{identity} {number}").into() };
        CachedRegistry {
            cache: Arc::clone(self),
            inner: registry,
            identity,
            trouble: Arc::default(),
            always: false,
        }
    }

    /// What was kept of a content by [`Self::keep_record`], by this process or by an earlier one.
    ///
    /// A record is found by whoever knows the digest, whichever registry that is from. What is believed of one registry alone has that
    /// registry in what the digest is of.
    pub async fn record(&self, kind: &str, digest: &Digest) -> Option<Bytes> {
        let (key, name) = record_name(kind, digest)?;
        if let Some(bytes) = self.records.kept(key).await {
            return Some(bytes);
        }
        let files = Arc::clone(&self.on_disk.as_ref()?.records);
        let bytes = tokio::task::spawn_blocking(move || files.read(&name)).await.ok()??;
        self.records.keep(key, bytes.clone()).await;
        Some(bytes)
    }

    /// Notes something that was learned of a content, for as long as there is room. `kind` is a word of lower-case letters, digits
    /// and `-`; what is over [`MAX_RECORD_SIZE`] is not kept.
    pub async fn keep_record(&self, kind: &str, digest: &Digest, bytes: Bytes) {
        let Some((key, name)) = record_name(kind, digest) else { return };
        if bytes.len() as u64 > MAX_RECORD_SIZE {
            return;
        }
        self.records.keep(key, bytes.clone()).await;
        if let Some(files) = &self.on_disk {
            let files = Arc::clone(&files.records);
            // Where the write fails it is told in the log.
            let _ = tokio::task::spawn_blocking(move || files.write(&name, &bytes)).await;
        }
    }

    /// What it has done so far.
    pub fn statistics(&self) -> CacheStatistics {
        let of = |kind: usize, memory: u64| KindStatistics { memory, ..self.counter[kind].snapshot() };
        CacheStatistics {
            listing: of(LISTING, self.tags.memory() + self.catalogs.memory()),
            tag: of(TAG, self.heads.memory()),
            manifest: of(MANIFEST, self.manifests.memory() + self.records.memory()),
            blob: of(BLOB, self.sizes.memory() + self.contents.memory()),
        }
    }

    /// About how much memory the copies take, in bytes.
    pub fn memory(&self) -> u64 {
        let CacheStatistics { listing, tag, manifest, blob } = self.statistics();
        [listing, tag, manifest, blob].iter().map(|kind| kind.memory).sum()
    }

    fn terms(&self) -> Terms {
        let CacheOptions { fresh, stale, patience, .. } = self.options;
        Terms { fresh, stale, patience }
    }

    /// Counts where an answer came from, and tells who looks.
    fn note<V>(&self, kind: usize, (value, how): (V, How)) -> V {
        let counter = &self.counter[kind];
        match how {
            How::Kept => Counter::count(&counter.hits),
            How::Asked => Counter::count(&counter.misses),
            How::Stale(age) => {
                Counter::count(&counter.misses);
                Counter::count(&counter.stale);
                note_stale(age);
            }
        }
        value
    }
}

fn weigh_head(head: &ManifestHead) -> usize {
    head.media_type.len() + head.digest.as_str().len()
}

fn weigh_manifest(manifest: &StoredManifest) -> usize {
    manifest.media_type.len() + manifest.digest.as_str().len() + manifest.bytes.len()
}

fn record_name(kind: &str, digest: &Digest) -> Option<(Key, String)> {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(1..=32).contains(&kind.len()) || !kind.bytes().all(is_fine) {
        return None;
    }
    let hex = digest.hex();
    Some((Key { name: Name::of(&[kind, digest.as_str()]), epoch: 0 }, format!("{kind}/{}/{hex}", &hex[..2])))
}

/// What a request for a whole blob led to, for each who waited for it.
#[derive(Clone)]
enum Opened {
    Small(Bytes),
    Filling(Arc<Fill>),
    /// It is not kept: the first takes it, and the others ask for themselves.
    Once(Arc<Mutex<Option<BlobStream>>>),
    Location(Url),
}

/// A registry with a memory.
#[derive(Clone)]
pub struct CachedRegistry {
    cache: Arc<Cache>,
    inner: SharedRegistry,
    identity: Arc<str>,
    /// Whether the registry did not answer the last time.
    trouble: Arc<AtomicBool>,
    /// Whether lists are asked for each time.
    always: bool,
}

/// A repository, and how it stood when the question came.
#[derive(Clone, Copy)]
struct Scope {
    name: Name,
    standing: Standing,
}

impl Scope {
    fn key(&self, epoch: u64, words: &[&str]) -> Key {
        let scope = self.name.hex();
        let words: Vec<&str> = std::iter::once(scope.as_str()).chain(words.iter().copied()).collect();
        Key { name: Name::of(&words), epoch }
    }

    fn tags(&self) -> Key {
        self.key(self.standing.tags, &["tags"])
    }

    fn head(&self, tag: &Tag) -> Key {
        self.key(self.standing.tags, &["head", tag.as_str()])
    }

    fn manifest(&self, digest: &Digest) -> Key {
        self.key(self.standing.contents, &["manifest", digest.as_str()])
    }

    fn size(&self, digest: &Digest) -> Key {
        self.key(self.standing.contents, &["size", digest.as_str()])
    }

    fn opening(&self, digest: &Digest, location: bool) -> Key {
        self.key(self.standing.contents, &["blob", digest.as_str(), if location { "location" } else { "" }])
    }

    /// The folder of its manifests.
    fn folder(&self) -> String {
        let hex = self.name.hex();
        format!("{}/{hex}", &hex[..2])
    }

    fn file(&self, digest: &Digest) -> String {
        format!("{}/{}", self.folder(), digest.hex())
    }
}

/// Drops what a write makes untrue, however the write ends: it may have been done where it seems to have failed.
struct Changing<'a> {
    scopes: &'a Scopes,
    repository: Name,
    catalog: Name,
    removes: bool,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if self.removes {
            self.scopes.contents_changed(self.repository);
        } else {
            self.scopes.tags_changed(self.repository);
        }
        self.scopes.tags_changed(self.catalog);
    }
}

impl CachedRegistry {
    fn list_terms(&self) -> Terms {
        let terms = self.cache.terms();
        if self.always { Terms { fresh: Duration::ZERO, ..terms } } else { terms }
    }

    fn catalog_name(&self) -> Name {
        Name::of(&["catalog", &self.identity])
    }

    fn repository_name(&self, repository: &Repository) -> Name {
        Name::of(&["repository", &self.identity, repository.as_str()])
    }

    fn scope(&self, repository: &Repository) -> Scope {
        let name = self.repository_name(repository);
        Scope { name, standing: self.cache.scopes.standing(name) }
    }

    fn changing(&self, repository: &Repository, removes: bool) -> Changing<'_> {
        let (repository, catalog) = (self.repository_name(repository), self.catalog_name());
        Changing { scopes: &self.cache.scopes, repository, catalog, removes }
    }

    /// Learns from an answer who may read in a repository.
    async fn learn(&self, scope: Scope, error: Option<&RegistryError>) {
        match error {
            None => self.cache.scopes.proven(scope.name, scope.standing),
            Some(
                RegistryError::Unauthorized { .. }
                | RegistryError::Denied { .. }
                | RegistryError::RepositoryUnknown(_),
            ) => {
                if self.cache.scopes.revoked(scope.name)
                    && let Some(files) = &self.cache.on_disk
                {
                    let (files, folder) = (Arc::clone(&files.manifests), scope.folder());
                    // Nothing of it is read any more, so a failure is only told in the log.
                    let _ = tokio::task::spawn_blocking(move || files.remove(&folder)).await;
                }
            }
            Some(_) => {}
        }
    }

    /// A request of its own life, whose answer is learned from.
    fn request<T: Send + 'static>(
        &self,
        repository: &Repository,
        scope: Scope,
        request: impl for<'a> FnOnce(&'a SharedRegistry, &'a Repository) -> Answer<'a, T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let (registry, repository) = (self.clone(), repository.clone());
        async move {
            let outcome = request(&registry.inner, &repository).await;
            registry.learn(scope, outcome.as_ref().err()).await;
            outcome
        }
        .boxed()
    }

    async fn listed_tags(&self, repository: &Repository) -> Result<Arc<Listing<Tag>>> {
        let scope = self.scope(repository);
        let fetch = || {
            let tags = self.request(repository, scope, |registry, repository| {
                async move { registry.all_tags(repository, MAX_TAGS).await }.boxed()
            });
            async move {
                match tags.await {
                    Ok(tags) => Ok(Some(Arc::new(Listing::new(tags)))),
                    Err(error) if error.is_not_found() => Ok(None),
                    Err(error) => Err(error),
                }
            }
            .boxed()
        };
        let cache = &self.cache;
        let answer = cache.tags.ask(scope.tags(), self.list_terms(), &self.trouble, &fetch).await?;
        cache.note(LISTING, answer).ok_or_else(|| RegistryError::RepositoryUnknown(repository.to_string()))
    }

    async fn list_repositories(&self, page: &PageRequest) -> Result<Page<Repository>> {
        let name = self.catalog_name();
        let scope = Scope { name, standing: self.cache.scopes.standing(name) };
        let inner = &self.inner;
        let fetch = || {
            let inner = Arc::clone(inner);
            async move { Ok(Arc::new(Listing::new(inner.all_repositories(MAX_REPOSITORIES).await?))) }.boxed()
        };
        let cache = &self.cache;
        let answer = cache.catalogs.ask(scope.tags(), self.list_terms(), &self.trouble, &fetch).await?;
        Ok(cache.note(LISTING, answer).page(page))
    }

    /// What a tag points at. It is asked for each time; a copy is for the time when there is no answer.
    async fn head_of_tag(&self, repository: &Repository, tag: &Tag) -> Result<ManifestHead> {
        let fetch = |scope: Scope| {
            let reference = Reference::Tag(tag.clone());
            self.request(repository, scope, move |registry, repository| {
                async move { head_or_manifest(registry, repository, &reference).await }.boxed()
            })
        };
        self.ask_tag(repository, tag, &fetch).await
    }

    /// The same, where the manifest is wanted next and hardly here already: it is kept beside, and one request does for both.
    async fn head_of_tag_with_manifest(&self, repository: &Repository, tag: &Tag) -> Result<ManifestHead> {
        let fetch = |scope: Scope| {
            let reference = Reference::Tag(tag.clone());
            let manifest = self.request(repository, scope, move |registry, repository| {
                async move { registry.manifest(repository, &reference).await }.boxed()
            });
            let registry = self.clone();
            async move {
                let manifest = manifest.await?;
                check(&manifest.bytes, &manifest.digest)?;
                registry.write_manifest(scope, &manifest).await;
                let StoredManifest { media_type, digest, bytes } = &manifest;
                let (media_type, digest) = (media_type.clone(), digest.clone());
                let head = ManifestHead { media_type, size: bytes.len() as u64, digest };
                registry.cache.manifests.keep(scope.manifest(&head.digest), manifest).await;
                Ok(head)
            }
            .boxed()
        };
        self.ask_tag(repository, tag, &fetch).await
    }

    async fn ask_tag(
        &self,
        repository: &Repository,
        tag: &Tag,
        fetch: &(dyn Fn(Scope) -> BoxFuture<'static, Result<ManifestHead>> + Send + Sync),
    ) -> Result<ManifestHead> {
        let scope = self.scope(repository);
        let fetch = || fetch(scope);
        let terms = Terms { fresh: Duration::ZERO, ..self.cache.terms() };
        let answer = self.cache.heads.ask(scope.head(tag), terms, &self.trouble, &fetch).await?;
        Ok(self.cache.note(TAG, answer))
    }

    /// A manifest from memory or disk.
    async fn kept_manifest(&self, scope: Scope, digest: &Digest) -> Option<StoredManifest> {
        let cache = &self.cache;
        if let Some(manifest) = cache.manifests.kept(scope.manifest(digest)).await {
            return Some(manifest);
        }
        if !scope.standing.is_proven {
            return None;
        }
        let (files, name) = (Arc::clone(&cache.on_disk.as_ref()?.manifests), scope.file(digest));
        let bytes = tokio::task::spawn_blocking(move || files.read(&name)).await.ok()??;
        let manifest = read_manifest(digest, &bytes)?;
        cache.manifests.keep(scope.manifest(digest), manifest.clone()).await;
        Some(manifest)
    }

    async fn manifest_by_digest(&self, repository: &Repository, digest: &Digest) -> Result<StoredManifest> {
        let (scope, cache) = (self.scope(repository), &self.cache);
        if let Some(manifest) = self.kept_manifest(scope, digest).await {
            return Ok(cache.note(MANIFEST, (manifest, How::Kept)));
        }
        let fetch = || {
            let reference = Reference::Digest(digest.clone());
            let manifest = self.request(repository, scope, move |registry, repository| {
                async move { registry.manifest(repository, &reference).await }.boxed()
            });
            let (registry, digest) = (self.clone(), digest.clone());
            async move {
                let manifest = manifest.await?;
                check(&manifest.bytes, &digest)?;
                registry.write_manifest(scope, &manifest).await;
                Ok(manifest)
            }
            .boxed()
        };
        let terms = Terms::FOR_GOOD;
        let answer = cache.manifests.ask(scope.manifest(digest), terms, &self.trouble, &fetch).await?;
        Ok(cache.note(MANIFEST, answer))
    }

    async fn manifest_by_tag(&self, repository: &Repository, tag: &Tag) -> Result<StoredManifest> {
        let scope = self.scope(repository);
        let head = if self.may_have_manifests(scope).await {
            self.head_of_tag(repository, tag).await?
        } else {
            let head = self.head_of_tag_with_manifest(repository, tag).await?;
            if let Some(manifest) = self.cache.manifests.kept(scope.manifest(&head.digest)).await {
                return Ok(self.cache.note(MANIFEST, (manifest, How::Asked)));
            }
            head
        };
        match self.manifest_by_digest(repository, &head.digest).await {
            // It went between the two questions, or the digest was wrong: an answer to HEAD is a word and no proof.
            Err(error) if error.is_not_found() || matches!(error, RegistryError::DigestMismatch { .. }) => {
                let scope = self.scope(repository);
                let reference = Reference::Tag(tag.clone());
                let manifest = self.inner.manifest(repository, &reference).await;
                self.learn(scope, manifest.as_ref().err()).await;
                manifest
            }
            outcome => outcome,
        }
    }

    /// Whether any manifest of a repository may be kept: of one that nobody asked for yet there is none.
    async fn may_have_manifests(&self, scope: Scope) -> bool {
        if scope.standing.has_manifests {
            return true;
        }
        let Some(files) = &self.cache.on_disk else { return false };
        let (files, folder) = (Arc::clone(&files.manifests), scope.folder());
        let is_there = tokio::task::spawn_blocking(move || files.is_there(&folder)).await.unwrap_or(true);
        if is_there {
            self.cache.scopes.manifests_come(scope.name);
        }
        is_there
    }

    /// Writes a manifest to the disk, where there is one, unless something was removed from the repository since it was asked for.
    async fn write_manifest(&self, scope: Scope, manifest: &StoredManifest) {
        self.cache.scopes.manifests_come(scope.name);
        let Some(files) = &self.cache.on_disk else { return };
        if manifest.media_type.len() > MAX_MEDIA_TYPE {
            return;
        }
        let (cache, files, manifest) =
            (Arc::clone(&self.cache), Arc::clone(&files.manifests), manifest.clone());
        let write = move || {
            let is_current = || cache.scopes.standing(scope.name).contents == scope.standing.contents;
            let name = scope.file(&manifest.digest);
            if is_current() {
                files.write(&name, &[manifest.media_type.as_bytes(), b"\n", &manifest.bytes].concat());
                if !is_current() {
                    files.remove(&name);
                }
            }
        };
        // Where the write fails it is told in the log.
        let _ = tokio::task::spawn_blocking(write).await;
    }

    /// Whether a repository has a blob, and how long it is.
    async fn size_of(&self, repository: &Repository, digest: &Digest) -> Result<(u64, How)> {
        let scope = self.scope(repository);
        let fetch = || {
            let digest = digest.clone();
            self.request(repository, scope, move |registry, repository| {
                async move { registry.blob_size(repository, &digest).await }.boxed()
            })
        };
        self.cache.sizes.ask(scope.size(digest), self.cache.terms(), &self.trouble, &fetch).await
    }

    /// The same for who has the content already and counts the blob: only an older answer is worth a mention.
    async fn may_read(&self, repository: &Repository, digest: &Digest) -> Result<u64> {
        let (size, how) = self.size_of(repository, digest).await?;
        if let How::Stale(age) = how {
            Counter::count(&self.cache.counter[BLOB].stale);
            note_stale(age);
        }
        Ok(size)
    }

    async fn read_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        request: BlobRequest,
    ) -> Result<Blob> {
        let cache = &self.cache;
        let began = Instant::now();
        if let Some(blob) = self.kept_blob(repository, digest, request.range).await? {
            return Ok(blob);
        }
        if request.range.is_some() {
            Counter::count(&cache.counter[BLOB].misses);
            let scope = self.scope(repository);
            let outcome = self.inner.blob(repository, digest, request).await;
            self.learn(scope, outcome.as_ref().err()).await;
            return outcome;
        }
        let opened = match self.open_blob(repository, digest, request.location, Some(began)).await? {
            Some(opened) => opened,
            // Somebody has fetched it since this caller looked.
            None => match self.kept_blob(repository, digest, None).await? {
                Some(blob) => return Ok(blob),
                None => match self.open_blob(repository, digest, request.location, None).await? {
                    Some(opened) => opened,
                    None => return self.inner.blob(repository, digest, request).await,
                },
            },
        };
        Counter::count(&cache.counter[BLOB].misses);
        let again = self.again(repository, digest);
        Ok(match opened {
            Opened::Location(url) => Blob::Location(url),
            Opened::Small(bytes) => Blob::Stream(Taken::Small(bytes).read(again)),
            Opened::Filling(fill) => Blob::Stream(fill.read(again)),
            Opened::Once(stream) => {
                let first = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
                match first {
                    Some(stream) => Blob::Stream(stream),
                    None => self.inner.blob(repository, digest, request).await?,
                }
            }
        })
    }

    /// A blob that is here, or on its way.
    async fn kept_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        range: Option<ByteRange>,
    ) -> Result<Option<Blob>> {
        let cache = &self.cache;
        let hit = |stream| {
            Counter::count(&cache.counter[BLOB].hits);
            Ok(Some(Blob::Stream(stream)))
        };
        // What is on its way first: when it is no longer, it is here.
        let filling = cache.contents.filling(digest).filter(|_| range.is_none());
        let found = if filling.is_none() { cache.contents.find(digest).await } else { None };
        let Some(size) = filling.as_ref().map(|fill| fill.size).or(found.as_ref().map(Content::size)) else {
            return Ok(None);
        };
        match self.may_read(repository, digest).await {
            Ok(said) if said == size => {
                if let Some(fill) = filling {
                    return hit(fill.read(self.again(repository, digest)));
                }
                if let Some(content) = found
                    && let Some(stream) = content.read(digest, range)?
                {
                    return hit(stream);
                }
            }
            // A file that was cut off, or a registry that does not know how long its blobs are: the blob itself tells.
            Ok(_) => cache.contents.remove(digest).await,
            Err(error) if error.is_outage() => {}
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Asks for a whole blob, together with everybody who asks for it at this moment. `None` where it came since `began`.
    async fn open_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        location: bool,
        began: Option<Instant>,
    ) -> Result<Option<Opened>> {
        let cache = &self.cache;
        let scope = self.scope(repository);
        let key = scope.opening(digest, location);
        let fetch = || {
            let wanted = digest.clone();
            let blob = self.request(repository, scope, move |registry, repository| {
                let request = BlobRequest { location, ..BlobRequest::default() };
                async move { registry.blob(repository, &wanted, request).await }.boxed()
            });
            let (cache, digest) = (Arc::clone(cache), digest.clone());
            async move {
                let stream = match blob.await? {
                    Blob::Location(url) => return Ok(Opened::Location(url)),
                    Blob::Stream(stream) => stream,
                    // Nobody asked for one.
                    Blob::File(file) => {
                        BlobStream { size: file.size, span: file.span, bytes: file.read(file.wanted()) }
                    }
                };
                // Before the content, so that nobody who finds that has to ask for this; and after it, so that nobody who came
                // in between and found nothing asks for the content again.
                let (key, size) = (scope.size(&digest), stream.size);
                cache.sizes.keep(key, size).await;
                let opened = match cache.contents.take(&digest, stream).await? {
                    Taken::Small(bytes) => Opened::Small(bytes),
                    Taken::Filling(fill) => Opened::Filling(fill),
                    Taken::Not(stream) => Opened::Once(Arc::new(Mutex::new(Some(stream)))),
                };
                cache.sizes.keep(key, size).await;
                Ok(opened)
            }
            .boxed()
        };
        let flight: Flight<Opened> = loop {
            let landed = match cache.openings.under_way(&key) {
                Ok(flight) => break flight,
                Err(landed) => landed,
            };
            if let Some(began) = began
                && cache.sizes.is_kept_since(scope.size(digest), began).await
            {
                return Ok(None);
            }
            // Never closed.
            let Ok(turn) = Arc::clone(&cache.turns).acquire_owned().await else { continue };
            if let Some(flight) = cache.openings.start(key, landed, turn, &fetch, KeepNothing) {
                break flight;
            }
        };
        let outcome = flight.land().await;
        let is_outage = outcome.as_ref().is_err_and(RegistryError::is_outage);
        self.trouble.store(is_outage, Ordering::Relaxed);
        outcome.map(Some)
    }

    /// Asks the registry for a blob once more.
    fn again(&self, repository: &Repository, digest: &Digest) -> Again {
        let (inner, repository, digest) = (Arc::clone(&self.inner), repository.clone(), digest.clone());
        Box::new(move || async move { inner.blob_stream(&repository, &digest).await }.boxed())
    }
}

/// What a reference points at, also from a registry that does not know HEAD.
async fn head_or_manifest(
    registry: &SharedRegistry,
    repository: &Repository,
    reference: &Reference,
) -> Result<ManifestHead> {
    match registry.manifest_head(repository, reference).await {
        Err(RegistryError::Unsupported { .. }) => {
            let StoredManifest { media_type, digest, bytes } =
                registry.manifest(repository, reference).await?;
            Ok(ManifestHead { media_type, digest, size: bytes.len() as u64 })
        }
        outcome => outcome,
    }
}

fn check(bytes: &[u8], expected: &Digest) -> Result<()> {
    let mut hasher = Hasher::new(expected.algorithm());
    hasher.update(bytes);
    let actual = hasher.finish();
    if actual == *expected {
        return Ok(());
    }
    Err(RegistryError::DigestMismatch { expected: expected.clone(), actual })
}

/// A manifest as [`CachedRegistry::write_manifest`] writes it: its type, a line's end, and its bytes.
fn read_manifest(digest: &Digest, file: &Bytes) -> Option<StoredManifest> {
    let end = file.iter().take(MAX_MEDIA_TYPE + 1).position(|byte| *byte == b'\n')?;
    let media_type = std::str::from_utf8(&file[..end]).ok()?.to_owned();
    let bytes = file.slice(end + 1..);
    check(&bytes, digest).ok()?;
    Some(StoredManifest { media_type, digest: digest.clone(), bytes })
}

impl Registry for CachedRegistry {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        Box::pin(async move { Ok(self.listed_tags(repository).await?.page(page)) })
    }

    fn all_tags<'a>(&'a self, repository: &'a Repository, limit: usize) -> Answer<'a, Vec<Tag>> {
        Box::pin(async move {
            let listing = self.listed_tags(repository).await?;
            let tags = listing.entries();
            if tags.len() > limit {
                return Err(RegistryError::TooMany { what: "tags", limit });
            }
            Ok(tags.to_vec())
        })
    }

    fn repositories<'a>(&'a self, page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        Box::pin(self.list_repositories(page))
    }

    fn revision<'a>(&'a self, repository: &'a Repository) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            let key = self.scope(repository).tags();
            Ok(self.cache.tags.serial(key, self.cache.options.fresh).await)
        })
    }

    fn always_asked(&self) -> Option<SharedRegistry> {
        Some(Arc::new(Self { always: true, ..self.clone() }))
    }

    fn blob_url<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, url::Url> {
        self.inner.blob_url(repository, digest)
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        Box::pin(async move {
            match reference {
                Reference::Digest(digest) => self.manifest_by_digest(repository, digest).await,
                Reference::Tag(tag) => self.manifest_by_tag(repository, tag).await,
            }
        })
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        Box::pin(async move {
            let digest = match reference {
                Reference::Tag(tag) => return self.head_of_tag(repository, tag).await,
                Reference::Digest(digest) => digest,
            };
            let scope = self.scope(repository);
            if let Some(manifest) = self.kept_manifest(scope, digest).await {
                let StoredManifest { media_type, digest, bytes } =
                    self.cache.note(MANIFEST, (manifest, How::Kept));
                return Ok(ManifestHead { media_type, digest, size: bytes.len() as u64 });
            }
            Counter::count(&self.cache.counter[MANIFEST].misses);
            let head = head_or_manifest(&self.inner, repository, reference).await;
            self.learn(scope, head.as_ref().err()).await;
            head
        })
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        Box::pin(async move {
            let _changing = self.changing(repository, false);
            self.inner.put_manifest(repository, manifest).await
        })
    }

    fn delete_tag<'a>(&'a self, repository: &'a Repository, tag: &'a Tag) -> Answer<'a, ()> {
        Box::pin(async move {
            let _changing = self.changing(repository, false);
            self.inner.delete_tag(repository, tag).await
        })
    }

    fn delete_manifest<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        Box::pin(async move {
            let changing = self.changing(repository, true);
            let outcome = self.inner.delete_manifest(repository, digest).await;
            drop(changing);
            if let Some(files) = &self.cache.on_disk {
                let (files, name) = (Arc::clone(&files.manifests), self.scope(repository).file(digest));
                // A failure is told in the log.
                let _ = tokio::task::spawn_blocking(move || files.remove(&name)).await;
            }
            outcome
        })
    }

    fn delete_blob<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        Box::pin(async move {
            let _changing = self.changing(repository, true);
            self.inner.delete_blob(repository, digest).await
        })
    }

    fn blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        request: BlobRequest,
    ) -> Answer<'a, Blob> {
        Box::pin(self.read_blob(repository, digest, request))
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        Box::pin(async move { Ok(self.cache.note(BLOB, self.size_of(repository, digest).await?)) })
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let _changing = self.changing(repository, false);
            self.inner.put_blob(repository, digest, source).await
        })
    }

    fn mount<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        from: Option<&'a Repository>,
    ) -> Answer<'a, bool> {
        Box::pin(async move {
            let _changing = self.changing(repository, false);
            self.inner.mount(repository, digest, from).await
        })
    }

    fn open_upload<'a>(&'a self, repository: &'a Repository, algorithm: Algorithm) -> Answer<'a, UploadId> {
        Box::pin(async move {
            let _changing = self.changing(repository, false);
            self.inner.open_upload(repository, algorithm).await
        })
    }

    fn upload_offset<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, u64> {
        self.inner.upload_offset(repository, upload)
    }

    fn append_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        offset: Option<u64>,
        bytes: ByteStream,
    ) -> Answer<'a, u64> {
        self.inner.append_upload(repository, upload, offset, bytes)
    }

    fn finish_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        digest: &'a Digest,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let _changing = self.changing(repository, false);
            self.inner.finish_upload(repository, upload, digest).await
        })
    }

    fn cancel_upload<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, ()> {
        self.inner.cancel_upload(repository, upload)
    }

    fn referrers<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        artifact_type: Option<&'a str>,
        page: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        self.inner.referrers(repository, digest, artifact_type, page)
    }
}
