//! A registry that fails when it is told to: what callers do then cannot be tested with one that works.
//!
//! It passes every operation on to another registry and notes it. Armed for an operation, named as in [`Registry`], it lets the
//! call fail, breaks off or changes the bytes of a blob, or makes the caller wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use ocimod::oci::{Algorithm, Descriptor, Digest, Reference, Repository, Tag};
use ocimod::registry::{
    Answer, Blob, BlobRequest, BlobSource, BlobStream, ByteStream, ManifestHead, NewManifest, Page,
    PageRequest, PutManifest, Registry, RegistryError, Result, SharedRegistry, StoredManifest, UploadId,
};

/// What happens to a call.
#[derive(Clone)]
pub(crate) enum Failure {
    /// It fails with this, and does not reach the registry behind.
    Error(Arc<dyn Fn() -> RegistryError + Send + Sync>),
    /// It succeeds, and then fails: the caller does not know that it was done.
    ErrorAfterwards(Arc<dyn Fn() -> RegistryError + Send + Sync>),
    /// The stream of a blob ends in an error after so many bytes.
    CutAfter(u64),
    /// The byte at this offset of the stream of a blob is another one. It passes no verification on its way.
    Corrupt(u64),
    /// It takes so much longer.
    Delay(Duration),
}

impl Failure {
    /// It fails with what `error` makes.
    pub(crate) fn error(error: impl Fn() -> RegistryError + Send + Sync + 'static) -> Self {
        Self::Error(Arc::new(error))
    }

    /// It succeeds, and then fails with what `error` makes.
    pub(crate) fn error_afterwards(error: impl Fn() -> RegistryError + Send + Sync + 'static) -> Self {
        Self::ErrorAfterwards(Arc::new(error))
    }
}

/// Which calls of an operation fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The one call with this number; 1 is the next.
    Nth(usize),
    /// Each one from now on.
    Always,
    /// Each one about this repository.
    In(&'static str),
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The operation's name in [`Registry`].
    pub(crate) operation: &'static str,
    /// The repository; empty for the list of repositories.
    pub(crate) repository: String,
    /// The other arguments: digests, tags, offsets, with a space in between.
    pub(crate) arguments: String,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    armed: HashMap<&'static str, Vec<(When, Failure)>>,
}

/// A registry that passes on what it is asked, notes it, and fails on demand.
pub(crate) struct FailingRegistry {
    inner: SharedRegistry,
    state: Mutex<State>,
}

impl FailingRegistry {
    /// One that does not fail yet.
    pub(crate) fn new(inner: SharedRegistry) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::default() })
    }

    /// Arms a failure. Several for one operation count their calls each on its own; the first that is due happens.
    pub(crate) fn fail(&self, operation: &'static str, when: When, failure: Failure) {
        let streams = matches!(failure, Failure::CutAfter(_) | Failure::Corrupt(_));
        assert!(!streams || operation == "blob", "only blobs are streams");
        self.state.lock().unwrap().armed.entry(operation).or_default().push((when, failure));
    }

    /// Forgets every failure that is armed.
    pub(crate) fn work_again(&self) {
        self.state.lock().unwrap().armed.clear();
    }

    /// Every call so far, in order; forgotten afterwards.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    /// How often an operation was called since [`Self::take_calls`].
    pub(crate) fn count(&self, operation: &str) -> usize {
        self.state.lock().unwrap().calls.iter().filter(|call| call.operation == operation).count()
    }

    /// Notes a call and says what is due for it.
    fn note(&self, operation: &'static str, repository: &str, arguments: String) -> Option<Failure> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(Call { operation, repository: repository.to_owned(), arguments });
        let armed = state.armed.entry(operation).or_default();
        let mut due = None;
        armed.retain_mut(|(when, failure)| match when {
            When::In(other) if *other != repository => true,
            When::Always | When::In(_) => {
                due.get_or_insert(failure.clone());
                true
            }
            When::Nth(1) => {
                due.get_or_insert(failure.clone());
                false
            }
            When::Nth(left) => {
                *left -= 1;
                true
            }
        });
        due
    }

    /// Passes a call on, or not.
    fn pass<'a, T: Send + 'a>(
        &'a self,
        operation: &'static str,
        repository: Option<&Repository>,
        arguments: String,
        call: impl Future<Output = Result<T>> + Send + 'a,
    ) -> Answer<'a, T> {
        let due = self.note(operation, repository.map_or("", Repository::as_str), arguments);
        Box::pin(async move {
            match due {
                Some(Failure::Error(error)) => Err(error()),
                Some(Failure::ErrorAfterwards(error)) => {
                    call.await?;
                    Err(error())
                }
                Some(Failure::Delay(delay)) => {
                    tokio::time::sleep(delay).await;
                    call.await
                }
                Some(Failure::CutAfter(_) | Failure::Corrupt(_)) | None => call.await,
            }
        })
    }
}

/// The same bytes, broken off after `left` of them.
fn cut(bytes: ByteStream, left: u64) -> ByteStream {
    let cut = |(mut bytes, left): (ByteStream, Option<u64>)| async move {
        let left = left?;
        if left == 0 {
            return Some((Err(std::io::Error::other("cut on demand")), (bytes, None)));
        }
        let piece = bytes.next().await?.map(|mut piece| {
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            piece
        });
        let left = left - piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Some((piece, (bytes, Some(left))))
    };
    stream::unfold((bytes, Some(left)), cut).boxed()
}

/// The same bytes but for one.
fn corrupt(bytes: ByteStream, offset: u64) -> ByteStream {
    let mut start = 0;
    bytes
        .map(move |piece| {
            let piece = piece?;
            let position = offset.checked_sub(start).and_then(|position| usize::try_from(position).ok());
            start += piece.len() as u64;
            let mut changed = piece.to_vec();
            if let Some(byte) = position.and_then(|position| changed.get_mut(position)) {
                *byte ^= 1;
            }
            Ok(Bytes::from(changed))
        })
        .boxed()
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

fn of_page(page: &PageRequest) -> String {
    format!("{} {}", shown(page.count), shown(page.after.as_ref()))
}

impl Registry for FailingRegistry {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        self.pass("tags", Some(repository), of_page(page), self.inner.tags(repository, page))
    }

    fn repositories<'a>(&'a self, page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        self.pass("repositories", None, of_page(page), self.inner.repositories(page))
    }

    /// Neither noted nor failed: nobody is asked for it.
    fn revision<'a>(&'a self, repository: &'a Repository) -> Answer<'a, Option<u64>> {
        self.inner.revision(repository)
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        let call = self.inner.manifest(repository, reference);
        self.pass("manifest", Some(repository), reference.to_string(), call)
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        let call = self.inner.manifest_head(repository, reference);
        self.pass("manifest_head", Some(repository), reference.to_string(), call)
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        let tags: Vec<&str> = manifest.tags.iter().map(Tag::as_str).collect();
        let arguments = format!("{} {}", Digest::of(&manifest.bytes), tags.join(" "));
        let call = self.inner.put_manifest(repository, manifest);
        self.pass("put_manifest", Some(repository), arguments.trim_end().to_owned(), call)
    }

    fn delete_tag<'a>(&'a self, repository: &'a Repository, tag: &'a Tag) -> Answer<'a, ()> {
        self.pass("delete_tag", Some(repository), tag.to_string(), self.inner.delete_tag(repository, tag))
    }

    fn delete_manifest<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        let call = self.inner.delete_manifest(repository, digest);
        self.pass("delete_manifest", Some(repository), digest.to_string(), call)
    }

    fn delete_blob<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        let call = self.inner.delete_blob(repository, digest);
        self.pass("delete_blob", Some(repository), digest.to_string(), call)
    }

    fn blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        request: BlobRequest,
    ) -> Answer<'a, Blob> {
        let range = request.range.map_or(String::new(), |range| format!(" {}", range.header()));
        let due = self.note("blob", repository.as_str(), format!("{digest}{range}"));
        Box::pin(async move {
            match &due {
                Some(Failure::Error(error)) => return Err(error()),
                Some(Failure::Delay(delay)) => tokio::time::sleep(*delay).await,
                _ => {}
            }
            let blob = self.inner.blob(repository, digest, request).await?;
            Ok(match (due, blob) {
                (Some(Failure::ErrorAfterwards(error)), _) => return Err(error()),
                (Some(Failure::CutAfter(left)), Blob::Stream(stream)) => {
                    Blob::Stream(BlobStream { bytes: cut(stream.bytes, left), ..stream })
                }
                (Some(Failure::Corrupt(offset)), Blob::Stream(stream)) => {
                    Blob::Stream(BlobStream { bytes: corrupt(stream.bytes, offset), ..stream })
                }
                (_, blob) => blob,
            })
        })
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        let call = self.inner.blob_size(repository, digest);
        self.pass("blob_size", Some(repository), digest.to_string(), call)
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        let call = self.inner.put_blob(repository, digest, source);
        self.pass("put_blob", Some(repository), digest.to_string(), call)
    }

    fn mount<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        from: Option<&'a Repository>,
    ) -> Answer<'a, bool> {
        let call = self.inner.mount(repository, digest, from);
        self.pass("mount", Some(repository), format!("{digest} {}", shown(from)), call)
    }

    fn open_upload<'a>(&'a self, repository: &'a Repository, algorithm: Algorithm) -> Answer<'a, UploadId> {
        let call = self.inner.open_upload(repository, algorithm);
        self.pass("open_upload", Some(repository), algorithm.name().to_owned(), call)
    }

    fn upload_offset<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, u64> {
        let call = self.inner.upload_offset(repository, upload);
        self.pass("upload_offset", Some(repository), upload.as_str().to_owned(), call)
    }

    fn append_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        offset: Option<u64>,
        bytes: ByteStream,
    ) -> Answer<'a, u64> {
        let call = self.inner.append_upload(repository, upload, offset, bytes);
        self.pass("append_upload", Some(repository), format!("{} {}", upload.as_str(), shown(offset)), call)
    }

    fn finish_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        digest: &'a Digest,
    ) -> Answer<'a, ()> {
        let call = self.inner.finish_upload(repository, upload, digest);
        self.pass("finish_upload", Some(repository), format!("{} {digest}", upload.as_str()), call)
    }

    fn cancel_upload<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, ()> {
        let call = self.inner.cancel_upload(repository, upload);
        self.pass("cancel_upload", Some(repository), upload.as_str().to_owned(), call)
    }

    fn referrers<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        artifact_type: Option<&'a str>,
        page: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        let arguments = format!("{digest} {} {}", shown(artifact_type), of_page(page));
        let call = self.inner.referrers(repository, digest, artifact_type, page);
        self.pass("referrers", Some(repository), arguments, call)
    }
}

mod tests {
    use ocimod::registry::{BytesSource, DirectoryOptions, DirectoryRegistry};

    use super::*;

    async fn armed() -> (tempfile::TempDir, Arc<FailingRegistry>, Repository, Digest) {
        let folder = tempfile::tempdir().unwrap();
        let inner = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
        let registry = FailingRegistry::new(Arc::new(inner));
        let (repository, digest) = ("acme/vpc".parse().unwrap(), Digest::of(b"abcdef"));
        registry.put_blob(&repository, &digest, &BytesSource(Bytes::from_static(b"abcdef"))).await.unwrap();
        (folder, registry, repository, digest)
    }

    async fn read(
        registry: &Arc<FailingRegistry>,
        repository: &Repository,
        digest: &Digest,
    ) -> Result<Bytes> {
        let registry: SharedRegistry = registry.clone();
        registry.small_blob(repository, digest, 100).await
    }

    #[tokio::test]
    async fn the_call_that_was_named_fails_and_no_other() {
        let (_folder, registry, repository, digest) = armed().await;
        registry.fail(
            "blob_size",
            When::Nth(2),
            Failure::error(|| RegistryError::Unsupported { operation: "a test" }),
        );
        assert_eq!(registry.blob_size(&repository, &digest).await.unwrap(), 6);
        assert!(registry.blob_size(&repository, &digest).await.is_err());
        assert_eq!(registry.blob_size(&repository, &digest).await.unwrap(), 6);
        assert_eq!(registry.count("blob_size"), 3);
        assert_eq!(registry.take_calls()[0].operation, "put_blob");
        assert_eq!(registry.count("blob_size"), 0);
    }

    #[tokio::test]
    async fn streams_break_off_and_change() {
        let (_folder, registry, repository, digest) = armed().await;
        registry.fail("blob", When::Nth(1), Failure::CutAfter(2));
        registry.fail("blob", When::Nth(2), Failure::Corrupt(5));
        let cut = read(&registry, &repository, &digest).await.unwrap_err();
        assert!(cut.to_string().contains("broke off"), "{cut}");
        assert_eq!(read(&registry, &repository, &digest).await.unwrap(), "abcdeg");
        assert_eq!(read(&registry, &repository, &digest).await.unwrap(), "abcdef");
    }

    #[tokio::test]
    async fn what_was_done_can_look_undone() {
        let (_folder, registry, repository, digest) = armed().await;
        let error = || RegistryError::Unsupported { operation: "a test" };
        registry.fail("delete_blob", When::Always, Failure::error_afterwards(error));
        registry.fail("blob_size", When::Nth(1), Failure::Delay(Duration::from_millis(1)));
        assert!(registry.delete_blob(&repository, &digest).await.is_err());
        assert!(registry.blob_size(&repository, &digest).await.unwrap_err().is_not_found());
        registry.work_again();
        let again = registry.delete_blob(&repository, &digest).await.unwrap_err();
        assert!(again.is_not_found());
    }
}
