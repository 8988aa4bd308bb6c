//! Where tags, manifests and blobs are kept. This room knows nothing of modules.
//!
//! [`Registry`] is the one seam of the crate: everything that stores anything implements it, and the `/v2/` endpoints serve
//! any of it. One value acts for one identity: credentials are chosen when it is made, never per call. A wrapper overrides
//! the operations that it lets through; whatever it does not name is refused, so wrappers fail closed.

pub mod cached;
mod content;
pub mod counted;
pub mod credentials;
pub mod directory;
mod error;
mod file;
pub mod layout;
mod prefixed_tags;
mod referrers;
pub mod remote;
pub(crate) mod whole_file;

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::oci::{Algorithm, ByteRange, Descriptor, Digest, Reference, Repository, Tag};

pub use cached::{Cache, CacheOptions, CachedRegistry};
pub use content::{BlobSource, ByteStream, BytesSource, FileSource, RegistrySource, read_bounded, verified};
pub use directory::{DirectoryOptions, DirectoryRegistry};
pub use error::{RegistryError, Result};
pub use file::BlobFile;
pub use layout::LayoutRegistry;
pub use prefixed_tags::PrefixedTags;

/// What an operation answers, boxed so that the trait can be used as an object.
pub type Answer<'a, T> = BoxFuture<'a, Result<T>>;

/// A registry shared by many requests.
pub type SharedRegistry = Arc<dyn Registry>;

/// Tags, manifests and blobs in repositories (OCI distribution specification 1.1).
///
/// Every operation is refused with [`RegistryError::Unsupported`] unless an implementation names it.
///
/// What comes back as bytes was verified against the digest that was asked for: a stream of a whole blob ends in an error,
/// never cleanly, where the bytes are not the right ones.
pub trait Registry: Send + Sync {
    /// A page of a repository's tags, in ASCII order where the registry sorts.
    fn tags<'a>(&'a self, _repository: &'a Repository, _page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        unsupported("listing tags")
    }

    /// Every tag of a repository, each once. At most `limit`: a registry that goes on without end is broken off with an error.
    fn all_tags<'a>(&'a self, repository: &'a Repository, limit: usize) -> Answer<'a, Vec<Tag>> {
        Box::pin(async move {
            let mut pages = Pages::new("tags", limit, MAX_LIST_TIME);
            while pages.take(self.tags(repository, &pages.request).await?)? {}
            Ok(pages.entries)
        })
    }

    /// A page of the names of all repositories (`_catalog`); [`RegistryError::NoCatalog`] where there is no such list.
    fn repositories<'a>(&'a self, _page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        unsupported("listing repositories")
    }

    /// A number that is another one whenever the repository's tags have changed, where that is known without asking anybody;
    /// `None` where it is not. A repository that does not exist may have one too, and another when it appears.
    ///
    /// Whoever keeps what was made of a repository's tags asks for the number first and reads the tags afterwards: what is made
    /// is then never older than its number. Numbers of two repositories, or of two processes, have nothing to do with each other.
    fn revision<'a>(&'a self, _repository: &'a Repository) -> Answer<'a, Option<u64>> {
        Box::pin(async { Ok(None) })
    }

    /// The same registry, asked anew for each list, for who looks out for what has changed; `None` where that is so anyway.
    fn always_asked(&self) -> Option<SharedRegistry> {
        None
    }

    /// What this is where its tags are stored with something in front of them that is not seen here.
    fn prefixed(&self) -> Option<&PrefixedTags> {
        None
    }

    /// A manifest with its bytes as they were pushed.
    fn manifest<'a>(
        &'a self,
        _repository: &'a Repository,
        _reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        unsupported("reading manifests")
    }

    /// A manifest's type, digest and size.
    fn manifest_head<'a>(
        &'a self,
        _repository: &'a Repository,
        _reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        unsupported("reading manifests")
    }

    /// Stores a manifest and points tags at it.
    fn put_manifest<'a>(
        &'a self,
        _repository: &'a Repository,
        _manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        unsupported("pushing manifests")
    }

    /// Removes a tag; the manifest stays.
    fn delete_tag<'a>(&'a self, _repository: &'a Repository, _tag: &'a Tag) -> Answer<'a, ()> {
        unsupported("deleting tags")
    }

    /// Removes a manifest and every tag that points at it.
    fn delete_manifest<'a>(&'a self, _repository: &'a Repository, _digest: &'a Digest) -> Answer<'a, ()> {
        unsupported("deleting manifests")
    }

    /// Removes a blob from a repository.
    fn delete_blob<'a>(&'a self, _repository: &'a Repository, _digest: &'a Digest) -> Answer<'a, ()> {
        unsupported("deleting blobs")
    }

    /// A blob or a piece of it.
    fn blob<'a>(
        &'a self,
        _repository: &'a Repository,
        _digest: &'a Digest,
        _request: BlobRequest,
    ) -> Answer<'a, Blob> {
        unsupported("reading blobs")
    }

    /// A blob, whole and verified, where it can be had without waiting for anything; `None` says nothing about whether there is one.
    fn blob_in_memory(&self, _repository: &Repository, _digest: &Digest) -> Option<Bytes> {
        None
    }

    /// The size of a blob in bytes.
    fn blob_size<'a>(&'a self, _repository: &'a Repository, _digest: &'a Digest) -> Answer<'a, u64> {
        unsupported("reading blobs")
    }

    /// The URL of a blob in the distribution API of the registry itself, without any credential: whoever may read there without
    /// one can GET it. Nothing is asked about the blob.
    fn blob_url<'a>(&'a self, _repository: &'a Repository, _digest: &'a Digest) -> Answer<'a, url::Url> {
        unsupported("naming the URL of a blob")
    }

    /// Stores a blob whose digest is known. The source may be opened more than once.
    fn put_blob<'a>(
        &'a self,
        _repository: &'a Repository,
        _digest: &'a Digest,
        _source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        unsupported("pushing blobs")
    }

    /// Makes a blob of another repository a blob of this one without sending it; without `from`, of any repository that has
    /// it. `false` where that could not be done and the blob has to be sent.
    fn mount<'a>(
        &'a self,
        _repository: &'a Repository,
        _digest: &'a Digest,
        _from: Option<&'a Repository>,
    ) -> Answer<'a, bool> {
        unsupported("mounting blobs")
    }

    /// Opens an upload session; `algorithm` is what the digest is expected to use.
    fn open_upload<'a>(&'a self, _repository: &'a Repository, _algorithm: Algorithm) -> Answer<'a, UploadId> {
        unsupported("uploading in pieces")
    }

    /// How many bytes of an upload have arrived.
    fn upload_offset<'a>(&'a self, _repository: &'a Repository, _upload: &'a UploadId) -> Answer<'a, u64> {
        unsupported("uploading in pieces")
    }

    /// Adds bytes at `offset`, or where the upload stands, and answers where it stands then.
    /// [`RegistryError::OutOfOrder`] where `offset` is another; nothing is added then.
    fn append_upload<'a>(
        &'a self,
        _repository: &'a Repository,
        _upload: &'a UploadId,
        _offset: Option<u64>,
        _bytes: ByteStream,
    ) -> Answer<'a, u64> {
        unsupported("uploading in pieces")
    }

    /// Ends an upload: what arrived has `digest`, else [`RegistryError::DigestMismatch`] and the upload is gone.
    fn finish_upload<'a>(
        &'a self,
        _repository: &'a Repository,
        _upload: &'a UploadId,
        _digest: &'a Digest,
    ) -> Answer<'a, ()> {
        unsupported("uploading in pieces")
    }

    /// Forgets an upload and what arrived of it.
    fn cancel_upload<'a>(&'a self, _repository: &'a Repository, _upload: &'a UploadId) -> Answer<'a, ()> {
        unsupported("uploading in pieces")
    }

    /// A page of descriptors of the manifests whose `subject` is `digest`; none where nothing is known of it.
    fn referrers<'a>(
        &'a self,
        _repository: &'a Repository,
        _digest: &'a Digest,
        _artifact_type: Option<&'a str>,
        _page: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        unsupported("listing referrers")
    }
}

fn unsupported<'a, T: Send + 'a>(operation: &'static str) -> Answer<'a, T> {
    Box::pin(async move { Err(RegistryError::Unsupported { operation }) })
}

/// Which part of a list is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// At most so many; as many as the registry likes where absent.
    pub count: Option<usize>,
    /// Only what comes after this, as an earlier page's [`Page::next`] gave it or a caller asked (`last`).
    pub after: Option<String>,
}

impl PageRequest {
    /// The page that begins after what another ended with.
    pub fn after(next: String) -> Self {
        Self { count: None, after: Some(next) }
    }
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// Where the next page begins ([`PageRequest::after`]); `None` at the end. Opaque: a registry may put a URL in it.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// The first `count` entries of a list that is sorted by `key` and begins where the page should; all of them without a number.
    pub(crate) fn first_of(
        mut entries: impl Iterator<Item = T>,
        count: Option<usize>,
        key: impl Fn(&T) -> &str,
    ) -> Self {
        let Some(count) = count else { return Self { items: entries.collect(), next: None } };
        let items: Vec<T> = entries.by_ref().take(count).collect();
        let next = entries.next().and(items.last()).map(|last| key(last).to_owned());
        Self { items, next }
    }
}

/// A manifest as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredManifest {
    /// Its media type, without parameters.
    pub media_type: String,
    /// The digest of its bytes, computed, in the algorithm that was asked for.
    pub digest: Digest,
    /// The bytes as they were pushed; at most [`crate::oci::MAX_MANIFEST_SIZE`].
    pub bytes: Bytes,
}

/// What is known of a manifest without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestHead {
    /// Its media type, without parameters.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
}

/// A manifest to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewManifest {
    /// Its media type, without parameters.
    pub media_type: String,
    /// Its bytes; kept as they are.
    pub bytes: Bytes,
    /// The digest that it is pushed by, where it has been named; it must be that of the bytes.
    pub digest: Option<Digest>,
    /// The tags that point at it from then on.
    pub tags: Vec<Tag>,
    /// When a tag that is there already may be moved.
    pub condition: Condition,
}

/// What may happen to a tag that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// It moves, unless the store holds it for immutable.
    #[default]
    None,
    /// It stays: the push is refused with [`RegistryError::TagExists`] unless the tag points at the same digest. A remote
    /// registry has no such request: there it is checked before and after, which is best effort.
    AbsentOrSame,
}

/// What came of storing a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutManifest {
    /// The digest that it is stored under.
    pub digest: Digest,
    /// Its subject, where the registry said that it keeps referrers (`OCI-Subject`).
    pub subject: Option<Digest>,
}

/// How a blob is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobRequest {
    /// Only this piece. Bytes of a piece cannot be verified.
    pub range: Option<ByteRange>,
    /// Whether the answer may be [`Blob::Location`].
    pub location: bool,
    /// Whether the answer may be [`Blob::File`].
    pub file: bool,
}

/// A blob, or where it can be had.
pub enum Blob {
    /// Its bytes.
    Stream(BlobStream),
    /// A URL without authorization, on another origin than the registry's, where anybody who has it can GET the blob for a while: a
    /// secret. It is https, unless the registry itself is spoken to in plain http.
    Location(url::Url),
    /// The same bytes as [`Blob::Stream`], for who can send a file without reading it.
    File(BlobFile),
}

/// The bytes of a blob or of a piece of it.
pub struct BlobStream {
    /// Size of the whole blob in bytes.
    pub size: u64,
    /// Which piece this is, where a range was asked for.
    pub span: Option<crate::oci::Span>,
    /// The bytes.
    pub bytes: ByteStream,
}

impl std::fmt::Debug for Blob {
    /// Names no location: it is a secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Stream(_) => "Blob::Stream",
            Self::Location(_) => "Blob::Location",
            Self::File(_) => "Blob::File",
        })
    }
}

/// Names an upload session: what stands at the end of its URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UploadId(String);

impl UploadId {
    /// Takes a word of letters, digits, `-` and `_`, at most 128 long: it becomes part of a file name.
    pub fn new(text: &str) -> Option<Self> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        ((1..=128).contains(&text.len()) && text.bytes().all(is_fine)).then(|| Self(text.to_owned()))
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A list of more pages goes on without end: with a hundred entries a page it would be longer than any that is taken.
const MAX_PAGES: usize = 10_000;
/// So long a list may take: enough for the longest that is taken, from a registry on another continent.
const MAX_LIST_TIME: Duration = Duration::from_mins(15);

/// Goes through the pages of a list, and breaks off one that has no end: a page may be empty, may come again, or may take its time,
/// so that counting entries is not enough.
struct Pages<T> {
    /// The page to be read.
    request: PageRequest,
    /// What there was on those before, each once and in the order of the registry.
    entries: Vec<T>,
    /// The same, once they came in another order than their own: until then the last one tells what is new.
    seen: Option<HashSet<T>>,
    /// What the entries are, and how many of them are taken.
    what: &'static str,
    limit: usize,
    read: usize,
    until: Instant,
    /// Where an earlier page ended. It moves up at every power of two, so that a list that goes in circles, however large,
    /// comes back to it (Brent).
    landmark: Option<String>,
}

impl<T: Clone + Hash + Ord> Pages<T> {
    fn new(what: &'static str, limit: usize, time: Duration) -> Self {
        Self {
            request: PageRequest::default(),
            entries: Vec::new(),
            seen: None,
            what,
            limit,
            read: 0,
            until: Instant::now() + time,
            landmark: None,
        }
    }

    fn is_new(&mut self, entry: &T) -> bool {
        if self.seen.is_none() && self.entries.last().is_some_and(|last| last >= entry) {
            self.seen = Some(self.entries.iter().cloned().collect());
        }
        self.seen.as_mut().is_none_or(|seen| seen.insert(entry.clone()))
    }

    /// Takes a page and turns to the one behind it; `false` where that was the last.
    fn take(&mut self, page: Page<T>) -> Result<bool> {
        let (had, came) = (self.entries.len(), page.items.len());
        for entry in page.items {
            if self.is_new(&entry) {
                self.entries.push(entry);
            }
        }
        if self.entries.len() > self.limit {
            return Err(RegistryError::TooMany { what: self.what, limit: self.limit });
        }
        // A page of entries that were all on others: nothing new will come.
        let is_repeated = came > 0 && self.entries.len() == had;
        let Some(next) = page.next.filter(|_| !is_repeated) else { return Ok(false) };
        self.read += 1;
        if self.read == MAX_PAGES {
            return Err(RegistryError::TooMany { what: "pages", limit: MAX_PAGES });
        }
        let registry = || "the registry".to_owned();
        if self.landmark.as_ref() == Some(&next) {
            let reason = "its list goes in circles".to_owned();
            return Err(RegistryError::Protocol { registry: registry(), reason });
        }
        if Instant::now() >= self.until {
            let reason = format!("its list of {} does not come to an end", self.what);
            return Err(RegistryError::Unavailable { registry: registry(), reason });
        }
        if self.read.is_power_of_two() {
            self.landmark = Some(next.clone());
        }
        self.request = PageRequest::after(next);
        Ok(true)
    }
}

impl dyn Registry + '_ {
    /// The names of all repositories, page by page. At most `limit`: a registry that goes on without end is broken off with an
    /// error.
    pub async fn all_repositories(&self, limit: usize) -> Result<Vec<Repository>> {
        let mut pages = Pages::new("repositories", limit, MAX_LIST_TIME);
        while pages.take(self.repositories(&pages.request).await?)? {}
        Ok(pages.entries)
    }

    /// The same as far as it goes: the first `limit` names where there are more, and whether there are.
    pub async fn first_repositories(&self, limit: usize) -> Result<(Vec<Repository>, bool)> {
        let mut pages = Pages::new("repositories", limit, MAX_LIST_TIME);
        loop {
            match pages.take(self.repositories(&pages.request).await?) {
                Ok(true) => {}
                Ok(false) => return Ok((pages.entries, false)),
                Err(RegistryError::TooMany { .. }) => {
                    pages.entries.truncate(limit);
                    return Ok((pages.entries, true));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The bytes of a whole blob as a stream; never a location or a file.
    pub async fn blob_stream(&self, repository: &Repository, digest: &Digest) -> Result<BlobStream> {
        match self.blob(repository, digest, BlobRequest::default()).await? {
            Blob::Stream(stream) => Ok(stream),
            Blob::Location(_) | Blob::File(_) => {
                Err(RegistryError::Unsupported { operation: "reading blobs elsewhere" })
            }
        }
    }

    /// A small blob, whole and verified; [`RegistryError::TooLarge`] where it is over `limit` bytes.
    pub async fn small_blob(&self, repository: &Repository, digest: &Digest, limit: u64) -> Result<Bytes> {
        read_bounded(self.blob_stream(repository, digest).await?.bytes, limit).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Lists no entry, on as many pages as there are words, over and over where it goes in circles.
    struct Empty {
        pages: usize,
        circle: bool,
        asked: AtomicUsize,
    }

    impl Empty {
        fn page<T>(&self, request: &PageRequest) -> Page<T> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let number: usize = request.after.as_ref().map_or(0, |after| after.parse().unwrap());
            let next = (number + 1 < self.pages).then_some(number + 1).or(self.circle.then_some(3));
            Page { items: Vec::new(), next: next.map(|next| next.to_string()) }
        }
    }

    impl Registry for Empty {
        fn tags<'a>(&'a self, _: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
            Box::pin(async { Ok(self.page(page)) })
        }

        fn repositories<'a>(&'a self, page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
            Box::pin(async { Ok(self.page(page)) })
        }
    }

    async fn both(pages: usize, circle: bool) -> (Option<RegistryError>, usize) {
        let registry = Arc::new(Empty { pages, circle, asked: AtomicUsize::new(0) });
        let shared: SharedRegistry = registry.clone();
        let tags = shared.all_tags(&"acme/vpc".parse().unwrap(), 10).await.err();
        let repositories = shared.all_repositories(10).await.err();
        assert_eq!(tags.as_ref().map(ToString::to_string), repositories.map(|error| error.to_string()));
        (tags, registry.asked.load(Ordering::Relaxed) / 2)
    }

    fn page(items: &[u32], next: &str) -> Page<u32> {
        Page { items: items.to_vec(), next: Some(next.to_owned()) }
    }

    #[test]
    fn a_list_has_every_entry_once_and_ends_where_nothing_new_comes() {
        let mut pages = Pages::new("tags", 9, MAX_LIST_TIME);
        assert!(pages.take(page(&[2, 1, 2], "a")).unwrap());
        assert!(
            pages.take(page(&[1, 3], "b")).unwrap(),
            "a page may begin with what the last one ended with"
        );
        assert!(!pages.take(page(&[3, 1], "c")).unwrap());
        assert_eq!(pages.entries, [2, 1, 3]);
    }

    #[test]
    fn a_list_has_no_more_entries_than_are_taken() {
        let mut pages = Pages::new("tags", 2, MAX_LIST_TIME);
        assert!(pages.take(page(&[1, 2], "a")).unwrap());
        assert!(matches!(
            pages.take(page(&[3], "b")),
            Err(RegistryError::TooMany { what: "tags", limit: 2 })
        ));
    }

    #[test]
    fn a_list_that_takes_too_long_is_broken_off() {
        let mut pages = Pages::new("tags", 9, Duration::ZERO);
        assert!(matches!(pages.take(page(&[1], "a")), Err(RegistryError::Unavailable { .. })));
        let mut pages = Pages::new("tags", 9, Duration::ZERO);
        assert!(
            !pages.take(Page { items: vec![1], next: None }).unwrap(),
            "the end is the end, whenever it comes"
        );
    }

    #[tokio::test]
    async fn a_list_of_empty_pages_has_an_end() {
        assert!(matches!(both(9_999, false).await, (None, 9_999)));
        let (error, asked) = both(usize::MAX, false).await;
        assert!(matches!(error, Some(RegistryError::TooMany { what: "pages", limit: 10_000 })), "{error:?}");
        assert_eq!(asked, 10_000);
        for length in [4, 5, 20, 1000] {
            let (error, asked) = both(length, true).await;
            assert!(matches!(error, Some(RegistryError::Protocol { .. })), "{error:?}");
            assert!(asked < 4 * length, "{asked}");
        }
    }
}
