//! A registry whose every call is told to an observer: what was asked for, what came of it, how long it took, and how many bytes
//! of blobs went either way.
//!
//! Whoever runs a server wants to know what stands behind it, so this is what the registries of a server are wrapped in, below any
//! cache. How it is counted is the observer's matter: nothing here knows of metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;

use super::{
    Answer, Blob, BlobRequest, BlobSource, BlobStream, ByteStream, ManifestHead, NewManifest, Page,
    PageRequest, PutManifest, Registry, RegistryError, Result, SharedRegistry, StoredManifest, UploadId,
};
use crate::oci::{Algorithm, Descriptor, Digest, Reference, Repository, Tag};

/// What a registry is asked for: the operations of [`Registry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // they are named as the trait names them
pub enum Operation {
    Tags,
    Repositories,
    Manifest,
    ManifestHead,
    PutManifest,
    DeleteTag,
    DeleteManifest,
    DeleteBlob,
    Blob,
    BlobSize,
    PutBlob,
    Mount,
    OpenUpload,
    UploadOffset,
    AppendUpload,
    FinishUpload,
    CancelUpload,
    Referrers,
}

impl Operation {
    /// Those that every server asks for.
    pub const READS: [Self; 6] =
        [Self::Tags, Self::Repositories, Self::Manifest, Self::ManifestHead, Self::Blob, Self::BlobSize];

    /// Its name, in snake case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tags => "tags",
            Self::Repositories => "repositories",
            Self::Manifest => "manifest",
            Self::ManifestHead => "manifest_head",
            Self::PutManifest => "put_manifest",
            Self::DeleteTag => "delete_tag",
            Self::DeleteManifest => "delete_manifest",
            Self::DeleteBlob => "delete_blob",
            Self::Blob => "blob",
            Self::BlobSize => "blob_size",
            Self::PutBlob => "put_blob",
            Self::Mount => "mount",
            Self::OpenUpload => "open_upload",
            Self::UploadOffset => "upload_offset",
            Self::AppendUpload => "append_upload",
            Self::FinishUpload => "finish_upload",
            Self::CancelUpload => "cancel_upload",
            Self::Referrers => "referrers",
        }
    }
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was answered.
    Ok,
    /// There is no such thing.
    NotFound,
    /// The registry wants other credentials, or says no.
    Denied,
    /// It cannot be reached, or fails.
    Unavailable,
    /// It asks for patience.
    TooManyRequests,
    /// Anything else: bytes that are wrong, an answer that no registry may give, a full disk, a refused push.
    Error,
    /// Nobody waited for the answer any longer: a time-out of ours, or a caller who went away.
    Abandoned,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::NotFound,
        Self::Denied,
        Self::Unavailable,
        Self::TooManyRequests,
        Self::Error,
        Self::Abandoned,
    ];

    /// Its name, in snake case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotFound => "not_found",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::TooManyRequests => "too_many_requests",
            Self::Error => "error",
            Self::Abandoned => "abandoned",
        }
    }

    fn of(error: &RegistryError) -> Self {
        match error {
            error if error.is_not_found() => Self::NotFound,
            RegistryError::Unauthorized { .. } | RegistryError::Denied { .. } => Self::Denied,
            RegistryError::Unavailable { .. } => Self::Unavailable,
            RegistryError::TooManyRequests { .. } => Self::TooManyRequests,
            _ => Self::Error,
        }
    }
}

/// Is told of every call of a registry. It is called on the way of the answer, so it must be quick.
pub trait Observer: Send + Sync {
    /// A call was answered after `duration`; a stream is answered when it begins.
    fn called(&self, operation: Operation, outcome: Outcome, duration: Duration);
    /// So many bytes of a blob came.
    fn read(&self, bytes: u64);
    /// So many bytes of a blob were sent.
    fn written(&self, bytes: u64);
}

/// A registry that is observed.
pub struct CountedRegistry {
    inner: SharedRegistry,
    observer: Arc<dyn Observer>,
}

impl CountedRegistry {
    /// Tells `observer` of every call of `inner`.
    pub fn new(inner: SharedRegistry, observer: Arc<dyn Observer>) -> Self {
        Self { inner, observer }
    }

    fn count<'a, T: Send + 'a>(&'a self, operation: Operation, answer: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            let mut call = Call {
                observer: &*self.observer,
                operation,
                outcome: Outcome::Abandoned,
                started: Instant::now(),
            };
            let answer = answer.await;
            call.outcome = answer.as_ref().map_or_else(Outcome::of, |_| Outcome::Ok);
            answer
        })
    }

    fn counted_bytes(&self, bytes: ByteStream, count: fn(&dyn Observer, u64)) -> ByteStream {
        counted(bytes, Arc::clone(&self.observer), count)
    }
}

/// A call that is under way; the observer is told when this is dropped, however that comes about.
struct Call<'a> {
    observer: &'a dyn Observer,
    operation: Operation,
    outcome: Outcome,
    started: Instant,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.observer.called(self.operation, self.outcome, self.started.elapsed());
    }
}

fn counted(bytes: ByteStream, observer: Arc<dyn Observer>, count: fn(&dyn Observer, u64)) -> ByteStream {
    bytes
        .inspect(move |piece| {
            if let Ok(piece) = piece {
                count(&*observer, piece.len() as u64);
            }
        })
        .boxed()
}

/// A source that is observed: a push may open it more than once, and each time counts.
struct CountedSource<'a> {
    inner: &'a dyn BlobSource,
    observer: &'a Arc<dyn Observer>,
}

impl BlobSource for CountedSource<'_> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn open(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(async move {
            let bytes = self.inner.open().await?;
            Ok(counted(bytes, Arc::clone(self.observer), |observer, bytes| observer.written(bytes)))
        })
    }
}

impl Registry for CountedRegistry {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        self.count(Operation::Tags, self.inner.tags(repository, page))
    }

    /// A call, however many pages there are.
    fn all_tags<'a>(&'a self, repository: &'a Repository, limit: usize) -> Answer<'a, Vec<Tag>> {
        self.count(Operation::Tags, self.inner.all_tags(repository, limit))
    }

    fn repositories<'a>(&'a self, page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        self.count(Operation::Repositories, self.inner.repositories(page))
    }

    /// Nobody is asked for it.
    fn revision<'a>(&'a self, repository: &'a Repository) -> Answer<'a, Option<u64>> {
        self.inner.revision(repository)
    }

    /// Nor for this.
    fn blob_url<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, url::Url> {
        self.inner.blob_url(repository, digest)
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        self.count(Operation::Manifest, self.inner.manifest(repository, reference))
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        self.count(Operation::ManifestHead, self.inner.manifest_head(repository, reference))
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        self.count(Operation::PutManifest, self.inner.put_manifest(repository, manifest))
    }

    fn delete_tag<'a>(&'a self, repository: &'a Repository, tag: &'a Tag) -> Answer<'a, ()> {
        self.count(Operation::DeleteTag, self.inner.delete_tag(repository, tag))
    }

    fn delete_manifest<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        self.count(Operation::DeleteManifest, self.inner.delete_manifest(repository, digest))
    }

    fn delete_blob<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        self.count(Operation::DeleteBlob, self.inner.delete_blob(repository, digest))
    }

    fn blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        request: BlobRequest,
    ) -> Answer<'a, Blob> {
        Box::pin(async move {
            Ok(match self.count(Operation::Blob, self.inner.blob(repository, digest, request)).await? {
                Blob::Stream(BlobStream { size, span, bytes }) => {
                    let bytes = self.counted_bytes(bytes, |observer, bytes| observer.read(bytes));
                    Blob::Stream(BlobStream { size, span, bytes })
                }
                Blob::File(file) => {
                    // Nobody here sees how much of it is sent.
                    self.observer.read(file.wanted().length);
                    Blob::File(file)
                }
                location @ Blob::Location(_) => location,
            })
        })
    }

    fn blob_in_memory(&self, repository: &Repository, digest: &Digest) -> Option<Bytes> {
        let started = Instant::now();
        let bytes = self.inner.blob_in_memory(repository, digest)?;
        self.observer.called(Operation::Blob, Outcome::Ok, started.elapsed());
        self.observer.read(bytes.len() as u64);
        Some(bytes)
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        self.count(Operation::BlobSize, self.inner.blob_size(repository, digest))
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let source = CountedSource { inner: source, observer: &self.observer };
            self.count(Operation::PutBlob, self.inner.put_blob(repository, digest, &source)).await
        })
    }

    fn mount<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        from: Option<&'a Repository>,
    ) -> Answer<'a, bool> {
        self.count(Operation::Mount, self.inner.mount(repository, digest, from))
    }

    fn open_upload<'a>(&'a self, repository: &'a Repository, algorithm: Algorithm) -> Answer<'a, UploadId> {
        self.count(Operation::OpenUpload, self.inner.open_upload(repository, algorithm))
    }

    fn upload_offset<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, u64> {
        self.count(Operation::UploadOffset, self.inner.upload_offset(repository, upload))
    }

    fn append_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        offset: Option<u64>,
        bytes: ByteStream,
    ) -> Answer<'a, u64> {
        let bytes = self.counted_bytes(bytes, |observer, bytes| observer.written(bytes));
        self.count(Operation::AppendUpload, self.inner.append_upload(repository, upload, offset, bytes))
    }

    fn finish_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        digest: &'a Digest,
    ) -> Answer<'a, ()> {
        self.count(Operation::FinishUpload, self.inner.finish_upload(repository, upload, digest))
    }

    fn cancel_upload<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, ()> {
        self.count(Operation::CancelUpload, self.inner.cancel_upload(repository, upload))
    }

    fn referrers<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        artifact_type: Option<&'a str>,
        page: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        self.count(Operation::Referrers, self.inner.referrers(repository, digest, artifact_type, page))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;

    use super::super::{BytesSource, DirectoryOptions, DirectoryRegistry};
    use super::*;

    #[derive(Default)]
    struct Seen(Mutex<Counts>);

    type Counts = (Vec<(Operation, Outcome)>, u64, u64);

    impl Observer for Seen {
        fn called(&self, operation: Operation, outcome: Outcome, _duration: Duration) {
            self.0.lock().unwrap().0.push((operation, outcome));
        }

        fn read(&self, bytes: u64) {
            self.0.lock().unwrap().1 += bytes;
        }

        fn written(&self, bytes: u64) {
            self.0.lock().unwrap().2 += bytes;
        }
    }

    fn observed(inner: SharedRegistry) -> (CountedRegistry, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        (CountedRegistry::new(inner, Arc::clone(&seen) as Arc<dyn Observer>), seen)
    }

    #[tokio::test]
    async fn calls_and_bytes_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let store = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
        let (registry, seen) = observed(Arc::new(store));
        let repository: Repository = "acme/vpc".parse().unwrap();
        let digest = Digest::of(b"abc");
        registry.put_blob(&repository, &digest, &BytesSource(Bytes::from_static(b"abc"))).await.unwrap();
        let registry: &dyn Registry = &registry;
        assert_eq!(registry.small_blob(&repository, &digest, 10).await.unwrap(), "abc");
        assert!(registry.blob_size(&repository, &Digest::of(b"x")).await.is_err());
        let (calls, read, written) = &*seen.0.lock().unwrap();
        assert_eq!(
            calls[..],
            [
                (Operation::PutBlob, Outcome::Ok),
                (Operation::Blob, Outcome::Ok),
                (Operation::BlobSize, Outcome::NotFound)
            ]
        );
        assert_eq!((*read, *written), (3, 3));
    }

    struct Silent;

    impl Registry for Silent {
        fn tags<'a>(&'a self, _: &'a Repository, _: &'a PageRequest) -> Answer<'a, Page<Tag>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_call_that_nobody_waits_for_is_told_too() {
        let (registry, seen) = observed(Arc::new(Silent));
        let repository: Repository = "acme/vpc".parse().unwrap();
        let page = PageRequest::default();
        let mut tags = registry.tags(&repository, &page);
        assert!(futures_util::poll!(&mut tags).is_pending());
        drop(tags);
        assert_eq!(seen.0.lock().unwrap().0[..], [(Operation::Tags, Outcome::Abandoned)]);
    }
}
