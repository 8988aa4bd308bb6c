//! The registry with a memory, over one that fails on demand: what it keeps, for how long, and what it never says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use ocimod::oci::{ByteRange, Digest, IMAGE_MANIFEST, Reference, Repository, Span, Tag};
use ocimod::registry::cached::observed;
use ocimod::registry::{
    Blob, BlobRequest, BytesSource, Cache, CacheOptions, CachedRegistry, Condition, DirectoryOptions,
    DirectoryRegistry, NewManifest, PageRequest, Registry, RegistryError, Result, SharedRegistry,
    StoredManifest, read_bounded,
};
use serde_json::json;

use crate::failing_registry::{FailingRegistry, Failure, When};
use crate::support::modules::example;
use crate::support::ocimod::{Ocimod, Serve};

/// So long that nothing in a test is ever old, and no call that takes it ends before the test.
const LONG: Duration = Duration::from_hours(1);

fn down() -> Failure {
    Failure::error(|| RegistryError::Unavailable { registry: "r.example".into(), reason: "it is off".into() })
}

fn busy() -> Failure {
    Failure::error(|| RegistryError::TooManyRequests { registry: "r.example".into(), retry_after: None })
}

fn denied() -> Failure {
    Failure::error(|| RegistryError::Denied { registry: "r.example".into(), operation: "reading".into() })
}

fn unauthorized() -> Failure {
    Failure::error(|| RegistryError::Unauthorized { registry: "r.example".into(), reason: "wrong".into() })
}

fn gone() -> Failure {
    Failure::error(|| RegistryError::RepositoryUnknown("acme/vpc".into()))
}

/// Every operation that reads what a repository has.
const READS: [&str; 6] = ["tags", "repositories", "manifest", "manifest_head", "blob", "blob_size"];

/// A registry that works, one that fails in front of it, and folders.
struct Setting {
    folder: tempfile::TempDir,
    failing: Arc<FailingRegistry>,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let directory =
            DirectoryRegistry::open(&folder.path().join("registry"), DirectoryOptions::default()).unwrap();
        Self { folder, failing: FailingRegistry::new(Arc::new(directory)) }
    }

    fn cache_folder(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// What trusts nothing it has while the registry answers, and any of it while it does not.
    fn options(&self) -> CacheOptions {
        CacheOptions {
            fresh: Duration::ZERO,
            stale: LONG,
            patience: LONG,
            folder: Some(self.cache_folder()),
            ..CacheOptions::default()
        }
    }

    fn open(&self, options: CacheOptions) -> (Arc<Cache>, Cached) {
        let cache = Cache::open(options).unwrap();
        let registry = cache.over(self.failing.clone(), "r.example");
        (cache, Cached(registry))
    }

    fn cached(&self) -> Cached {
        self.open(self.options()).1
    }

    async fn put_blob(&self, repository: &str, bytes: Bytes) -> Digest {
        let digest = Digest::of(&bytes);
        self.failing.put_blob(&name(repository), &digest, &BytesSource(bytes)).await.unwrap();
        digest
    }

    /// Pushes past the cache.
    async fn push(&self, repository: &str, tag: &str, note: &str) -> Digest {
        push(&*self.failing, repository, tag, note).await
    }

    fn all_fail(&self, failure: &Failure) {
        for operation in READS {
            self.failing.fail(operation, When::Always, failure.clone());
        }
    }

    fn blob_file(&self, digest: &Digest) -> PathBuf {
        self.cache_folder().join("blobs/sha256").join(&digest.hex()[..2]).join(digest.hex())
    }

    fn unfinished(&self) -> usize {
        let entries = fs::read_dir(self.cache_folder().join("temporary")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().extension().is_some()).count()
    }
}

async fn push(registry: &dyn Registry, repository: &str, tag: &str, note: &str) -> Digest {
    let repository = name(repository);
    registry
        .put_blob(&repository, &Digest::of(b"{}"), &BytesSource(Bytes::from_static(b"{}")))
        .await
        .unwrap();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": IMAGE_MANIFEST,
        "config": {"mediaType": "application/vnd.example+json", "digest": Digest::of(b"{}"), "size": 2},
        "layers": [],
        "annotations": {"note": note},
    });
    let new = NewManifest {
        media_type: IMAGE_MANIFEST.into(),
        bytes: manifest.to_string().into(),
        digest: None,
        tags: vec![tag.parse().unwrap()],
        condition: Condition::None,
    };
    registry.put_manifest(&repository, &new).await.unwrap().digest
}

fn name(repository: &str) -> Repository {
    repository.parse().unwrap()
}

fn large(seed: u8, size: usize) -> Bytes {
    (0..=250_u8).cycle().take(size).map(|byte| byte ^ seed).collect::<Vec<_>>().into()
}

/// The cached registry in the words of these tests.
#[derive(Clone)]
struct Cached(CachedRegistry);

impl Cached {
    async fn tags(&self, repository: &str) -> Result<String> {
        let page = self.0.tags(&name(repository), &PageRequest::default()).await?;
        assert_eq!(page.next, None);
        Ok(page.items.iter().map(Tag::as_str).collect::<Vec<_>>().join(" "))
    }

    async fn repositories(&self) -> Result<usize> {
        Ok(self.0.repositories(&PageRequest::default()).await?.items.len())
    }

    async fn manifest(&self, repository: &str, tag: &str) -> Result<StoredManifest> {
        self.0.manifest(&name(repository), &Reference::Tag(tag.parse().unwrap())).await
    }

    async fn manifest_at(&self, repository: &str, digest: &Digest) -> Result<StoredManifest> {
        self.0.manifest(&name(repository), &digest.clone().into()).await
    }

    async fn head(&self, repository: &str, tag: &str) -> Result<Digest> {
        let reference = Reference::Tag(tag.parse().unwrap());
        Ok(self.0.manifest_head(&name(repository), &reference).await?.digest)
    }

    async fn blob(&self, repository: &str, digest: &Digest) -> Result<Bytes> {
        let registry: &dyn Registry = &self.0;
        let stream = registry.blob_stream(&name(repository), digest).await?;
        read_bounded(stream.bytes, 1 << 30).await
    }

    async fn piece(&self, repository: &str, digest: &Digest, range: ByteRange) -> Result<(Span, Bytes)> {
        let request = BlobRequest { range: Some(range), location: true, file: false };
        match self.0.blob(&name(repository), digest, request).await? {
            Blob::Stream(stream) => Ok((stream.span.unwrap(), read_bounded(stream.bytes, 1 << 30).await?)),
            other => panic!("{other:?}, which nobody asked for"),
        }
    }

    async fn revision(&self, repository: &str) -> Option<u64> {
        self.0.revision(&name(repository)).await.unwrap()
    }
}

async fn stale<T>(future: impl Future<Output = T>) -> (T, bool) {
    let (output, observed) = observed(future).await;
    (output, observed.stale)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_asked_for_once_while_it_is_fresh_and_pages_come_from_the_whole() {
    let setting = Setting::new();
    for tag in ["a", "b", "c"] {
        setting.push("acme/vpc", tag, "").await;
    }
    let (cache, cached) = setting.open(CacheOptions { fresh: LONG, ..setting.options() });
    assert_eq!(cached.tags("acme/vpc").await.unwrap(), "a b c");
    setting.push("acme/vpc", "d", "").await;
    assert_eq!(cached.tags("acme/vpc").await.unwrap(), "a b c");
    let request = PageRequest { count: Some(1), after: Some("a".into()) };
    let page = cached.0.tags(&name("acme/vpc"), &request).await.unwrap();
    assert_eq!((page.items[0].as_str(), page.next.as_deref()), ("b", Some("b")));
    assert_eq!(cached.repositories().await.unwrap(), 1);
    setting.push("acme/other", "a", "").await;
    assert_eq!(cached.repositories().await.unwrap(), 1);
    assert_eq!((setting.failing.count("tags"), setting.failing.count("repositories")), (1, 1));
    let listing = cache.statistics().listing;
    assert_eq!((listing.hits, listing.misses, listing.stale), (3, 2, 0));
    assert!(cache.memory() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_callers_are_one_request() {
    for fresh in [Duration::ZERO, LONG] {
        let setting = Setting::new();
        setting.push("acme/vpc", "v1.0.0", "").await;
        let small = setting.put_blob("acme/vpc", large(1, 1000)).await;
        let zip = setting.put_blob("acme/vpc", large(2, 1 << 20)).await;
        let expected = (large(1, 1000), large(2, 1 << 20));
        setting.failing.take_calls();
        for operation in READS {
            setting.failing.fail(operation, When::Nth(1), Failure::Delay(Duration::from_millis(300)));
        }
        let cached = setting.open(CacheOptions { fresh, ..setting.options() }).1;
        let callers: Vec<_> = (0..100)
            .map(|_| {
                let (cached, small, zip, expected) =
                    (cached.clone(), small.clone(), zip.clone(), expected.clone());
                tokio::spawn(async move {
                    let tags = cached.tags("acme/vpc");
                    let (tags, manifest, small, zip) = tokio::join!(
                        tags,
                        cached.manifest("acme/vpc", "v1.0.0"),
                        cached.blob("acme/vpc", &small),
                        cached.blob("acme/vpc", &zip),
                    );
                    assert_eq!(tags.unwrap(), "v1.0.0");
                    assert_eq!(manifest.unwrap().media_type, IMAGE_MANIFEST);
                    assert_eq!((small.unwrap(), zip.unwrap()), expected);
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        let calls = setting.failing.take_calls();
        let count = |operation| calls.iter().filter(|call| call.operation == operation).count();
        assert_eq!((count("tags"), count("manifest")), (1, 1));
        assert_eq!(count("blob"), 2, "one for each blob");
        if !fresh.is_zero() {
            assert_eq!(count("blob_size"), 0, "that they are there was seen");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_takes_nothing_from_the_others() {
    let setting = Setting::new();
    setting.push("acme/vpc", "a", "").await;
    setting.failing.fail("tags", When::Nth(1), Failure::Delay(Duration::from_millis(300)));
    let cached = setting.cached();
    let first = tokio::spawn({
        let cached = cached.clone();
        async move { cached.tags("acme/vpc").await }
    });
    while setting.failing.count("tags") == 0 {
        tokio::task::yield_now().await;
    }
    let second = tokio::spawn({
        let cached = cached.clone();
        async move { cached.tags("acme/vpc").await }
    });
    tokio::task::yield_now().await;
    first.abort();
    assert_eq!(second.await.unwrap().unwrap(), "a");
    assert_eq!(setting.failing.count("tags"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_shared_and_is_never_none() {
    let setting = Setting::new();
    setting.push("acme/vpc", "a", "").await;
    let cached = setting.open(CacheOptions { fresh: LONG, ..setting.options() }).1;
    for failure in [down(), busy(), denied(), unauthorized()] {
        setting.all_fail(&failure);
        let errors = [
            cached.tags("acme/vpc").await.unwrap_err(),
            cached.repositories().await.unwrap_err(),
            cached.manifest("acme/vpc", "a").await.unwrap_err(),
            cached.head("acme/vpc", "a").await.unwrap_err(),
            cached.blob("acme/vpc", &Digest::of(b"{}")).await.unwrap_err(),
        ];
        assert!(errors.iter().all(|error| !error.is_not_found()), "{errors:?}");
        setting.failing.work_again();
    }
    assert_eq!(cached.tags("acme/vpc").await.unwrap(), "a", "and is not kept");
    assert_eq!(cached.repositories().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_registry_is_down_the_last_good_copies_answer() {
    for failure in [down(), busy()] {
        let setting = Setting::new();
        let digest = setting.push("acme/vpc", "v1.0.0", "").await;
        let zip = setting.put_blob("acme/vpc", large(1, 200_000)).await;
        let (cache, cached) = setting.open(setting.options());
        let ask = async || {
            assert_eq!(cached.tags("acme/vpc").await.unwrap(), "v1.0.0");
            assert_eq!(cached.repositories().await.unwrap(), 1);
            assert_eq!(cached.manifest("acme/vpc", "v1.0.0").await.unwrap().digest, digest);
            assert_eq!(cached.blob("acme/vpc", &zip).await.unwrap(), large(1, 200_000));
            assert_eq!(cached.0.blob_size(&name("acme/vpc"), &zip).await.unwrap(), 200_000);
            let range = ByteRange::Last(5);
            assert_eq!(cached.piece("acme/vpc", &zip, range).await.unwrap().1, large(1, 200_000)[199_995..]);
        };
        assert!(!stale(ask()).await.1);
        assert_eq!(cache.statistics().listing.stale, 0);
        setting.all_fail(&failure);
        assert!(stale(ask()).await.1);
        ask().await;
        let statistics = cache.statistics();
        assert!(statistics.listing.stale > 0 && statistics.tag.stale > 0 && statistics.blob.stale > 0);
        assert_eq!(statistics.manifest.stale, 0, "what has a digest is never old");
        setting.failing.work_again();
        setting.push("acme/vpc", "v1.1.0", "").await;
        let ((), is_stale) = stale(async {
            assert_eq!(cached.tags("acme/vpc").await.unwrap(), "v1.0.0 v1.1.0");
        })
        .await;
        assert!(!is_stale, "and as soon as it is back they do not");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_too_old_answers_nothing() {
    let setting = Setting::new();
    setting.push("acme/vpc", "a", "").await;
    let cached = setting.open(CacheOptions { stale: Duration::ZERO, ..setting.options() }).1;
    cached.tags("acme/vpc").await.unwrap();
    cached.manifest("acme/vpc", "a").await.unwrap();
    setting.all_fail(&down());
    assert!(cached.tags("acme/vpc").await.unwrap_err().is_passing());
    assert!(cached.manifest("acme/vpc", "a").await.unwrap_err().is_passing());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_registry_is_not_waited_for_where_there_is_a_copy() {
    let setting = Setting::new();
    let digest = setting.push("acme/vpc", "a", "").await;
    let cached = setting.open(CacheOptions { patience: Duration::from_millis(20), ..setting.options() }).1;
    cached.tags("acme/vpc").await.unwrap();
    cached.head("acme/vpc", "a").await.unwrap();
    setting.failing.take_calls();
    setting.failing.fail("tags", When::Nth(1), Failure::Delay(LONG));
    setting.failing.fail("manifest_head", When::Nth(1), Failure::Delay(LONG));
    for _ in 0..5 {
        assert_eq!(stale(cached.tags("acme/vpc")).await.0.unwrap(), "a");
        let (head, is_stale) = stale(cached.head("acme/vpc", "a")).await;
        assert_eq!((head.unwrap(), is_stale), (digest.clone(), true));
    }
    assert_eq!(setting.failing.count("tags"), 1, "one request at a time");
    assert_eq!(setting.failing.count("manifest_head"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_is_kept_when_it_comes() {
    let setting = Setting::new();
    setting.push("acme/vpc", "a", "").await;
    let options = CacheOptions { patience: Duration::from_millis(1), fresh: LONG, ..setting.options() };
    let cached = setting.open(options).1;
    // Nothing is there yet, so this waits as long as it takes.
    setting.failing.fail("tags", When::Nth(1), Failure::Delay(Duration::from_millis(100)));
    assert_eq!(cached.tags("acme/vpc").await.unwrap(), "a");
    let slow = setting.open(CacheOptions { patience: Duration::ZERO, ..setting.options() }).1;
    slow.tags("acme/vpc").await.unwrap();
    setting.push("acme/vpc", "b", "").await;
    while slow.tags("acme/vpc").await.unwrap() != "a b" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_is_gone_and_what_is_revoked_is_not_served() {
    for failure in [gone(), denied(), unauthorized()] {
        let setting = Setting::new();
        let digest = setting.push("acme/vpc", "a", "").await;
        let zip = setting.put_blob("acme/vpc", large(1, 200_000)).await;
        let cached = setting.cached();
        cached.tags("acme/vpc").await.unwrap();
        cached.manifest("acme/vpc", "a").await.unwrap();
        cached.blob("acme/vpc", &zip).await.unwrap();
        setting.all_fail(&failure);
        assert!(!cached.tags("acme/vpc").await.unwrap_err().is_outage());
        setting.failing.work_again();
        setting.all_fail(&down());
        assert!(cached.tags("acme/vpc").await.is_err(), "no older copy comes back");
        assert!(cached.head("acme/vpc", "a").await.is_err());
        assert!(cached.manifest("acme/vpc", "a").await.is_err());
        assert!(cached.manifest_at("acme/vpc", &digest).await.is_err(), "not by its digest either");
        assert!(cached.blob("acme/vpc", &zip).await.is_err());
        setting.failing.work_again();
        assert_eq!(cached.manifest_at("acme/vpc", &digest).await.unwrap().digest, digest);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn that_there_is_none_is_kept_as_long_as_a_list() {
    let setting = Setting::new();
    let cached = setting.open(CacheOptions { fresh: LONG, ..setting.options() }).1;
    assert!(cached.tags("acme/vpc").await.unwrap_err().is_not_found());
    setting.push("acme/vpc", "a", "").await;
    assert!(cached.tags("acme/vpc").await.unwrap_err().is_not_found());
    assert_eq!(setting.failing.count("tags"), 1);
    assert_eq!(
        cached.manifest("acme/vpc", "a").await.unwrap().media_type,
        IMAGE_MANIFEST,
        "a tag is asked for"
    );
    assert_eq!(setting.cached().tags("acme/vpc").await.unwrap(), "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_moves_is_seen_at_once_and_a_manifest_is_fetched_once() {
    let setting = Setting::new();
    let one = setting.push("acme/vpc", "a", "one").await;
    let (cache, cached) = setting.open(CacheOptions { fresh: LONG, ..setting.options() });
    for _ in 0..3 {
        assert_eq!(cached.manifest("acme/vpc", "a").await.unwrap().digest, one);
    }
    // Where nothing of the repository is kept yet, the manifest itself is asked for.
    assert_eq!((setting.failing.count("manifest_head"), setting.failing.count("manifest")), (2, 1));
    let two = setting.push("acme/vpc", "a", "two").await;
    assert_eq!(cached.manifest("acme/vpc", "a").await.unwrap().digest, two);
    assert_eq!(cached.manifest_at("acme/vpc", &one).await.unwrap().digest, one);
    let statistics = cache.statistics();
    assert_eq!((statistics.manifest.hits, statistics.manifest.misses), (3, 2));
    assert_eq!(statistics.tag.misses, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_without_head_is_asked_for_the_manifest() {
    let setting = Setting::new();
    let digest = setting.push("acme/vpc", "a", "").await;
    let unsupported = || RegistryError::Unsupported { operation: "HEAD" };
    setting.failing.fail("manifest_head", When::Always, Failure::error(unsupported));
    let cached = setting.cached();
    assert_eq!(cached.head("acme/vpc", "a").await.unwrap(), digest);
    assert_eq!(cached.manifest("acme/vpc", "a").await.unwrap().digest, digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_seen_at_once_however_it_ends() {
    let setting = Setting::new();
    setting.push("acme/vpc", "a", "").await;
    let cached = setting.open(CacheOptions { fresh: LONG, ..setting.options() }).1;
    let before = cached.revision("acme/vpc").await;
    assert_eq!((before, cached.tags("acme/vpc").await.unwrap()), (None, "a".into()));
    assert_eq!(cached.repositories().await.unwrap(), 1);
    let first = cached.revision("acme/vpc").await;
    assert!(first.is_some());
    assert_eq!(first, cached.revision("acme/vpc").await);

    // A list that is on its way meanwhile does not come back as the newest.
    setting.failing.fail("tags", When::Nth(1), Failure::Delay(Duration::from_millis(100)));
    push(&cached.0, "acme/vpc", "b", "").await;
    let slow = tokio::spawn({
        let cached = cached.clone();
        async move { cached.tags("acme/vpc").await }
    });
    while setting.failing.count("tags") < 2 {
        tokio::task::yield_now().await;
    }
    push(&cached.0, "acme/vpc", "c", "").await;
    assert_eq!(cached.tags("acme/vpc").await.unwrap(), "a b c");
    slow.await.unwrap().unwrap();
    assert_eq!(cached.tags("acme/vpc").await.unwrap(), "a b c");
    assert_ne!(cached.revision("acme/vpc").await, first);

    push(&cached.0, "acme/other", "a", "").await;
    assert_eq!(cached.repositories().await.unwrap(), 2);

    setting.failing.fail(
        "delete_tag",
        When::Nth(1),
        Failure::error_afterwards(|| RegistryError::Unavailable {
            registry: "r".into(),
            reason: "cut".into(),
        }),
    );
    assert!(cached.0.delete_tag(&name("acme/vpc"), &"a".parse().unwrap()).await.is_err());
    assert_eq!(cached.tags("acme/vpc").await.unwrap(), "b c");
    let digest = cached.head("acme/vpc", "c").await.unwrap();
    cached.manifest("acme/vpc", "c").await.unwrap();
    cached.0.delete_manifest(&name("acme/vpc"), &digest).await.unwrap();
    assert!(cached.manifest_at("acme/vpc", &digest).await.unwrap_err().is_not_found());
    assert!(setting.cached().manifest_at("acme/vpc", &digest).await.unwrap_err().is_not_found());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_has_a_revision_that_follows_every_change() {
    let folder = tempfile::tempdir().unwrap();
    let registry = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
    let other = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
    let mut seen = Vec::new();
    let repository = name("acme/vpc");
    for tag in ["", "a", "b", "c"] {
        if !tag.is_empty() {
            push(&other, "acme/vpc", tag, tag).await;
        }
        let revision = registry.revision(&repository).await.unwrap().unwrap();
        assert_eq!(registry.revision(&repository).await.unwrap(), Some(revision));
        assert!(!seen.contains(&revision), "{tag}");
        seen.push(revision);
    }
    other.delete_tag(&repository, &"a".parse().unwrap()).await.unwrap();
    assert!(!seen.contains(&registry.revision(&repository).await.unwrap().unwrap()));
    // Whoever writes without a word, and not long ago, is not known.
    let index = folder.path().join("repos/acme/vpc/_oci/index.json");
    let bytes = fs::read(&index).unwrap();
    fs::remove_file(folder.path().join("repos/acme/vpc/_lock")).unwrap();
    fs::write(&index, bytes).unwrap();
    assert_eq!(registry.revision(&repository).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_registries_and_two_repositories_never_mix() {
    let (one, other) = (Setting::new(), Setting::new());
    let digest = one.push("acme/vpc", "a", "").await;
    let zip = one.put_blob("acme/vpc", large(1, 200_000)).await;
    other.push("acme/vpc", "b", "other").await;
    one.push("acme/other", "c", "c").await;
    let cache = Cache::open(CacheOptions { fresh: LONG, ..one.options() }).unwrap();
    let first = Cached(cache.over(one.failing.clone(), "one.example"));
    let second = Cached(cache.over(other.failing.clone(), "two.example"));
    assert_eq!(first.tags("acme/vpc").await.unwrap(), "a");
    assert_eq!(second.tags("acme/vpc").await.unwrap(), "b");
    assert_eq!((first.repositories().await.unwrap(), second.repositories().await.unwrap()), (2, 1));
    first.manifest("acme/vpc", "a").await.unwrap();
    first.blob("acme/vpc", &zip).await.unwrap();
    for (cached, repository) in [(&second, "acme/vpc"), (&first, "acme/other")] {
        assert!(cached.manifest_at(repository, &digest).await.unwrap_err().is_not_found());
        assert!(cached.blob(repository, &zip).await.unwrap_err().is_not_found());
        assert!(cached.piece(repository, &zip, ByteRange::From(0)).await.unwrap_err().is_not_found());
        assert!(cached.0.blob_size(&name(repository), &zip).await.unwrap_err().is_not_found());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_a_digest_outlives_a_restart() {
    let setting = Setting::new();
    let digest = setting.push("acme/vpc", "a", "").await;
    let zip = setting.put_blob("acme/vpc", large(1, 2 << 20)).await;
    let small = setting.put_blob("acme/vpc", large(2, 5000)).await;
    let cached = setting.cached();
    cached.manifest("acme/vpc", "a").await.unwrap();
    cached.blob("acme/vpc", &zip).await.unwrap();
    cached.blob("acme/vpc", &small).await.unwrap();
    drop(cached);
    let cached = setting.cached();
    setting.failing.take_calls();
    assert_eq!(cached.manifest("acme/vpc", "a").await.unwrap().digest, digest);
    assert_eq!(cached.blob("acme/vpc", &zip).await.unwrap(), large(1, 2 << 20));
    assert_eq!(cached.blob("acme/vpc", &small).await.unwrap(), large(2, 5000));
    assert_eq!((setting.failing.count("manifest"), setting.failing.count("blob")), (0, 0));
    // Now that the whole was read and was right, pieces come from the disk too.
    let range = ByteRange::FromTo { first: 1000, last: 600_000 };
    let (span, bytes) = cached.piece("acme/vpc", &zip, range).await.unwrap();
    assert_eq!(
        (span, bytes),
        (Span { start: 1000, length: 599_001 }, large(1, 2 << 20).slice(1000..600_001))
    );
    assert_eq!(setting.failing.count("blob"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_on_disk_counts_only_when_the_registry_lets_us_read_there() {
    let setting = Setting::new();
    let digest = setting.push("acme/vpc", "a", "").await;
    setting.cached().manifest("acme/vpc", "a").await.unwrap();
    let another = setting.cached();
    setting.all_fail(&down());
    assert!(another.manifest_at("acme/vpc", &digest).await.is_err(), "nobody said that we may");
    setting.failing.work_again();
    another.tags("acme/vpc").await.unwrap();
    setting.all_fail(&down());
    assert_eq!(another.manifest_at("acme/vpc", &digest).await.unwrap().digest, digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piece_does_not_come_from_a_file_that_may_be_wrong() {
    let setting = Setting::new();
    let zip = setting.put_blob("acme/vpc", large(1, 2 << 20)).await;
    setting.cached().blob("acme/vpc", &zip).await.unwrap();
    let file = setting.blob_file(&zip);
    let mut bytes = fs::read(&file).unwrap();
    bytes[1000] ^= 1;
    fs::write(&file, bytes).unwrap();
    let cached = setting.cached();
    let (_, piece) =
        cached.piece("acme/vpc", &zip, ByteRange::FromTo { first: 1000, last: 1000 }).await.unwrap();
    assert_eq!(piece, large(1, 2 << 20).slice(1000..1001));
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_on_disk_reaches_nobody_whole_and_is_mended() {
    for (size, at_once) in [(5000, true), (500_000, true), (3 << 20, false)] {
        for at in [0, size / 2, size - 1] {
            let setting = Setting::new();
            let zip = setting.put_blob("acme/vpc", large(1, size)).await;
            setting.cached().blob("acme/vpc", &zip).await.unwrap();
            let file = setting.blob_file(&zip);
            let mut bytes = fs::read(&file).unwrap();
            bytes[at] ^= 1;
            fs::write(&file, bytes).unwrap();
            let cached = setting.cached();
            match cached.blob("acme/vpc", &zip).await {
                Ok(bytes) => assert!(at_once && bytes == large(1, size)),
                Err(error) => {
                    assert!(!at_once && matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
                }
            }
            assert_eq!(cached.blob("acme/vpc", &zip).await.unwrap(), large(1, size), "{size} {at}");
            assert_eq!(fs::read(&file).unwrap(), large(1, size));
        }
        let setting = Setting::new();
        let zip = setting.put_blob("acme/vpc", large(1, size)).await;
        setting.cached().blob("acme/vpc", &zip).await.unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(setting.blob_file(&zip))
            .unwrap()
            .set_len(size as u64 / 2)
            .unwrap();
        let cached = setting.cached();
        assert_eq!(cached.blob("acme/vpc", &zip).await.unwrap(), large(1, size), "cut off at {}", size / 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_a_manifest_on_disk_is_mended() {
    let setting = Setting::new();
    let digest = setting.push("acme/vpc", "a", "").await;
    setting.cached().manifest("acme/vpc", "a").await.unwrap();
    let mut files = Vec::new();
    files_below(&setting.cache_folder().join("manifests"), &mut files);
    assert_eq!(files.len(), 1);
    let mut bytes = fs::read(&files[0]).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&files[0], bytes).unwrap();
    assert_eq!(setting.cached().manifest("acme/vpc", "a").await.unwrap().digest, digest);
    assert_eq!(setting.failing.count("manifest"), 2);
    setting.cached().manifest("acme/vpc", "a").await.unwrap();
    assert_eq!(setting.failing.count("manifest"), 2);
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, files) } else { files.push(path) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_of_the_registry_reach_nobody_whole() {
    for size in [5000, 500_000] {
        for offset in [0, size as u64 - 1] {
            let setting = Setting::new();
            let zip = setting.put_blob("acme/vpc", large(1, size)).await;
            let cached = setting.cached();
            for failure in [Failure::Corrupt(offset), Failure::CutAfter(offset)] {
                setting.failing.fail("blob", When::Nth(1), failure);
                assert!(cached.blob("acme/vpc", &zip).await.is_err(), "{size} {offset}");
                assert!(!setting.blob_file(&zip).exists());
            }
            assert_eq!(cached.blob("acme/vpc", &zip).await.unwrap(), large(1, size));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_goes_on_for_whoever_is_left_and_ends_with_the_last() {
    let setting = Setting::new();
    let zip = setting.put_blob("acme/vpc", large(1, 3 << 20)).await;
    let cached = setting.cached();
    let open = async || match cached.0.blob(&name("acme/vpc"), &zip, BlobRequest::default()).await.unwrap() {
        Blob::Stream(stream) => stream.bytes,
        other => panic!("{other:?}, which nobody asked for"),
    };
    let mut first = open().await;
    let second = open().await;
    first.next().await.unwrap().unwrap();
    drop(first);
    assert_eq!(read_bounded(second, 1 << 30).await.unwrap(), large(1, 3 << 20));
    assert_eq!(setting.failing.count("blob"), 1);

    let setting = Setting::new();
    let zip = setting.put_blob("acme/vpc", large(1, 64 << 20)).await;
    let cached = setting.cached();
    let Blob::Stream(stream) = cached.0.blob(&name("acme/vpc"), &zip, BlobRequest::default()).await.unwrap()
    else {
        panic!("no location was asked for")
    };
    drop(stream);
    while setting.unfinished() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_disk_cannot_be_written_blobs_pass() {
    let setting = Setting::new();
    let zip = setting.put_blob("acme/vpc", large(1, 500_000)).await;
    let small = setting.put_blob("acme/vpc", large(2, 500)).await;
    let cached = setting.cached();
    fs::remove_dir_all(setting.cache_folder()).unwrap();
    fs::write(setting.cache_folder(), "no folder").unwrap();
    for _ in 0..2 {
        assert_eq!(cached.blob("acme/vpc", &zip).await.unwrap(), large(1, 500_000));
        assert_eq!(cached.blob("acme/vpc", &small).await.unwrap(), large(2, 500));
    }
    assert_eq!(setting.failing.count("blob"), 3);
    assert!(Cache::open(setting.options()).is_err());

    let setting = Setting::new();
    let zip = setting.put_blob("acme/vpc", large(1, 500_000)).await;
    for options in [
        CacheOptions { folder: None, ..setting.options() },
        CacheOptions { disk: 100_000, ..setting.options() },
        CacheOptions { disk: 0, memory: 0, ..setting.options() },
    ] {
        let cached = setting.open(options).1;
        assert_eq!(cached.blob("acme/vpc", &zip).await.unwrap(), large(1, 500_000));
        assert!(!setting.blob_file(&zip).exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_takes_what_it_may_and_the_least_recently_used_goes_first() {
    let setting = Setting::new();
    let (cache, cached) = setting.open(CacheOptions { disk: 1 << 20, ..setting.options() });
    let mut zips = Vec::new();
    for seed in 0..10 {
        let zip = setting.put_blob("acme/vpc", large(seed, 200_000)).await;
        assert_eq!(cached.blob("acme/vpc", &zip).await.unwrap(), large(seed, 200_000));
        zips.push(zip);
    }
    let mut files = Vec::new();
    files_below(&setting.cache_folder().join("blobs"), &mut files);
    let total: u64 = files.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(total <= 1 << 20 && files.len() >= 3, "{files:?}");
    assert!(setting.blob_file(&zips[9]).exists() && !setting.blob_file(&zips[0]).exists());
    assert!(cache.statistics().blob.evictions >= 5);
    assert_eq!(cached.blob("acme/vpc", &zips[0]).await.unwrap(), large(0, 200_000), "and can be had again");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded() {
    let setting = Setting::new();
    let memory = 1 << 20;
    let (cache, cached) =
        setting.open(CacheOptions { memory, folder: None, fresh: LONG, ..setting.options() });
    for number in 0..200_u8 {
        let repository = format!("acme/vpc{number}");
        setting.push(&repository, "a", &"x".repeat(20_000)).await;
        cached.manifest(&repository, "a").await.unwrap();
        cached.tags(&repository).await.unwrap();
        let blob = setting.put_blob(&repository, large(number, 20_000)).await;
        cached.blob(&repository, &blob).await.unwrap();
    }
    assert!(cache.memory() <= memory, "{}", cache.memory());
    let statistics = cache.statistics();
    assert!(statistics.manifest.evictions > 100 && statistics.blob.evictions > 100, "{statistics:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_caches_share_a_folder() {
    let setting = Setting::new();
    let options = CacheOptions { disk: 2 << 20, ..setting.options() };
    let (one, other) = (setting.open(options.clone()).1, setting.open(options).1);
    let mut tasks = Vec::new();
    for seed in 0..12 {
        let zip = setting.put_blob("acme/vpc", large(seed, 300_000)).await;
        for cached in [&one, &other] {
            let (cached, zip) = (cached.clone(), zip.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..3 {
                    assert_eq!(cached.blob("acme/vpc", &zip).await.unwrap(), large(seed, 300_000));
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let zip = setting.put_blob("acme/vpc", large(99, 300_000)).await;
    setting.failing.take_calls();
    one.blob("acme/vpc", &zip).await.unwrap();
    assert_eq!(other.blob("acme/vpc", &zip).await.unwrap(), large(99, 300_000));
    assert_eq!(setting.failing.count("blob"), 1, "what one has fetched the other has");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_left_is_cleared_away() {
    let setting = Setting::new();
    drop(setting.cached());
    let left = setting.cache_folder().join("temporary/0123.part");
    fs::write(&left, large(1, 1000)).unwrap();
    let zip = setting.put_blob("acme/vpc", large(1, 500_000)).await;
    assert_eq!(setting.cached().blob("acme/vpc", &zip).await.unwrap(), large(1, 500_000));
    assert!(!left.exists());
    assert_eq!(setting.unfinished(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_outlive_a_restart() {
    let setting = Setting::new();
    let (cache, _) = setting.open(setting.options());
    let digest = Digest::of(b"a zip");
    assert_eq!(cache.record("listing", &digest).await, None);
    cache.keep_record("listing", &digest, Bytes::from_static(b"some")).await;
    cache.keep_record("../listing", &digest, Bytes::from_static(b"other")).await;
    cache.keep_record("large", &digest, large(1, 65_537)).await;
    for cache in [cache, setting.open(setting.options()).0] {
        assert_eq!(cache.record("listing", &digest).await.unwrap(), "some");
        assert_eq!(cache.record("other", &digest).await, None);
        assert_eq!(cache.record("../listing", &digest).await, None);
        assert_eq!(cache.record("large", &digest).await, None);
    }
    let file = setting.cache_folder().join("records/listing").join(&digest.hex()[..2]).join(digest.hex());
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(setting.open(setting.options()).0.record("listing", &digest).await, None);
    let (cache, _) = setting.open(CacheOptions { folder: None, ..setting.options() });
    cache.keep_record("listing", &digest, Bytes::from_static(b"some")).await;
    assert_eq!(cache.record("listing", &digest).await.unwrap(), "some");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_registry_can_be_wrapped_twice() {
    let setting = Setting::new();
    setting.push("acme/vpc", "a", "").await;
    let cache = Cache::open(setting.options()).unwrap();
    let inner: SharedRegistry = Arc::new(cache.over(setting.failing.clone(), "inner"));
    let outer = Cached(cache.over(inner, "outer"));
    assert_eq!(outer.tags("acme/vpc").await.unwrap(), "a");
    assert_eq!(outer.manifest("acme/vpc", "a").await.unwrap().media_type, IMAGE_MANIFEST);
}

async fn get(serve: &Serve, path: &str) -> (u16, String, Bytes) {
    ocimod::registry::remote::install_crypto_provider();
    let response = reqwest::get(format!("http://{}{path}", serve.address)).await.unwrap();
    let link = response.headers().get("x-terraform-get").map(|link| link.to_str().unwrap().to_owned());
    (response.status().as_u16(), link.unwrap_or_default(), response.bytes().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_registry_stopped_serve_answers_what_it_answered_before() {
    let ocimod = Ocimod::new();
    let label = format!("{}@1.0.0", example("terraform-null-label").display());
    let registry = ocimod.serve(["--temporary", "--namespace", "acme", "--push", &label]);
    let setting = format!("{}+insecure", registry.address);
    let serve = ocimod.serve(["--registry", &setting]);
    let base = "/v1/modules/acme/label/null";
    let ask = async || {
        let versions = get(&serve, &format!("{base}/versions")).await;
        let download = get(&serve, &format!("{base}/1.0.0/download")).await;
        let archive = get(&serve, &format!("{base}/1.0.0/{}", download.1.trim_start_matches("./"))).await;
        // When a link expires is of the moment, and so is what it is signed with.
        let link = crate::archive_links::as_sent(&download.1).into_iter();
        let link: Vec<_> = link.filter(|(name, _)| !["expires", "signature"].contains(&&**name)).collect();
        (versions, (download.0, link), archive)
    };
    let warm = ask().await;
    assert_eq!((warm.0.0, warm.1.0, warm.2.0), (200, 200, 200));
    drop(registry);
    assert_eq!(ask().await, warm);
    let missing = get(&serve, "/v1/modules/acme/never-seen/null/versions").await;
    assert!(missing.0 >= 500, "{missing:?}");
    assert!(ocimod.home.path().join(".cache/ocimod/blobs").is_dir());
}

#[test]
fn a_folder_that_was_named_for_the_cache_has_to_be_usable() {
    let ocimod = Ocimod::new();
    let file = ocimod.home.path().join("file");
    fs::write(&file, "").unwrap();
    let named = file.to_str().unwrap();
    let refused = ocimod
        .run(["serve", "--listen", "127.0.0.1:0", "--registry", "127.0.0.1:1+insecure", "--cache-dir", named])
        .fails_with(1);
    assert!(refused.stderr.contains("--cache-dir"), "{}", refused.stderr);
    // One that nobody named is not needed, and a folder that is the registry needs none at all.
    fs::write(ocimod.home.path().join(".cache"), "").unwrap();
    let mut serve = ocimod.serve(["--registry", "127.0.0.1:1+insecure"]);
    serve.server.wait_for(|line| line.contains("nothing is kept on disk").then_some(()));
    ocimod.serve(["--temporary", "--cache-dir", named]);
}
