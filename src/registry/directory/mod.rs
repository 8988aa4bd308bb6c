//! A registry in a folder: an OCI image layout per repository, each content stored once.
//!
//! The folder is read by whatever reads image layouts, and what such tools write there is seen. Several processes may use
//! one folder. A write that was answered is on disk; one that was cut off is not visible. Blocking calls run on the threads
//! that are there for them.

mod collect;
mod index;
mod index_file;
mod layout;
mod memory;
mod reading;
mod stamp;
mod store;
mod upload;
mod usage;
mod verify;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use self::collect::{CollectOptions, Collection, DEFAULT_GRACE, Removed, RemovedKind};
pub use self::verify::{Damage, DamageKind, Verification};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use tokio::io::AsyncWriteExt;
use tokio::sync::OwnedSemaphorePermit;

use self::reading::{Found, OpenBlob, piece};
use self::store::{Store, writing};
use self::upload::Session;
use super::{
    Answer, Blob, BlobFile, BlobRequest, BlobSource, BlobStream, ByteStream, ManifestHead, NewManifest, Page,
    PageRequest, PutManifest, Registry, RegistryError, Result, StoredManifest, UploadId, verified,
};
use crate::oci::{Algorithm, Descriptor, Digest, Reference, Repository, Span, Tag};

/// The limit of an upload where none is given: far above any module or provider, far below any disk.
pub const DEFAULT_UPLOAD_LIMIT: u64 = 10 * 1024 * 1024 * 1024;

/// How many uploads are written at a time where nobody says it: more keep no disk busier, and each holds a file open.
pub const DEFAULT_CONCURRENT_UPLOADS: usize = 64;

/// How long an upload waits for its turn before the client is asked to come back.
const UPLOAD_WAIT: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(10) };

/// Says of a tag whether it must stay with what it first pointed at: `None` where it may move, else the other tags that mean the
/// same, which may not point at anything else either.
pub type ImmutableTags = Arc<dyn Fn(&Tag) -> Option<Vec<Tag>> + Send + Sync>;

/// How a store is used. It is no property of the folder: each process has its own.
#[derive(Clone)]
pub struct DirectoryOptions {
    /// Tags that do not move. Deleting one frees it. An index may still be replaced by one that keeps all its entries.
    pub immutable: Option<ImmutableTags>,
    /// The most bytes that a blob may have.
    pub upload_limit: u64,
    /// The most bytes that the store may hold, each content counted once; no limit where absent. Where `ocimod.json` has a
    /// `quota` too, the smaller counts.
    pub quota: Option<u64>,
    /// How many uploads are written at a time. Others wait, and are then told to come back.
    pub concurrent_uploads: usize,
}

impl Default for DirectoryOptions {
    /// Every tag moves; [`DEFAULT_UPLOAD_LIMIT`], [`DEFAULT_CONCURRENT_UPLOADS`], no quota.
    fn default() -> Self {
        Self {
            immutable: None,
            upload_limit: DEFAULT_UPLOAD_LIMIT,
            quota: None,
            concurrent_uploads: DEFAULT_CONCURRENT_UPLOADS,
        }
    }
}

/// A registry in a folder.
#[derive(Clone)]
pub struct DirectoryRegistry {
    store: Arc<Store>,
}

impl DirectoryRegistry {
    /// Opens the store at `root`, or makes one where none is.
    ///
    /// Of an existing one only its format is read; repositories are read when they are used.
    /// [`RegistryError::Io`] where the folder cannot be used or has a format of a newer ocimod.
    pub fn open(root: &Path, options: DirectoryOptions) -> Result<Self> {
        Ok(Self { store: Arc::new(Store::open(root, options)?) })
    }

    /// Opens the store at `root`; `None` where there is none.
    pub fn open_existing(root: &Path, options: DirectoryOptions) -> Result<Option<Self>> {
        if self::layout::Layout::is_at(root) { Self::open(root, options).map(Some) } else { Ok(None) }
    }

    /// Looks at every content and every reference. With `repair`, contents whose bytes are wrong are moved to `_damaged/`;
    /// nothing is deleted. Others may use the store meanwhile.
    pub async fn verify(&self, repair: bool) -> Result<Verification> {
        self.run(move |store| store.verify(repair)).await
    }

    /// Removes what no tag reaches. Others may use the store meanwhile: see [`CollectOptions::grace`].
    pub async fn collect(&self, options: CollectOptions) -> Result<Collection> {
        self.run(move |store| store.collect(options)).await
    }

    /// Runs `work` where it may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || work(&store))
            .await
            .unwrap_or_else(|error| Err(RegistryError::io("working on the store")(io::Error::other(error))))
    }

    /// The same, after the writers of this repository that came before.
    async fn write<T: Send + 'static>(
        &self,
        repository: &Repository,
        work: impl FnOnce(&Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // Both go with the work, so that a caller who gives up does not let the next one in too early.
        let memory = self.store.memory.of(repository);
        let turn = memory.turn.clone().lock_owned().await;
        self.run(move |store| {
            let outcome = work(store);
            drop((turn, memory));
            outcome
        })
        .await
    }

    /// Waits until one more upload may be written.
    async fn upload_turn(&self) -> Result<OwnedSemaphorePermit> {
        let turn = self.store.upload_turns.clone().acquire_owned();
        match tokio::time::timeout(UPLOAD_WAIT, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(RegistryError::TooManyRequests {
                registry: "the store".into(),
                retry_after: Some(UPLOAD_WAIT),
            }),
        }
    }

    /// A blob that was found, whole or a piece of it, verified or known to be right.
    fn send(&self, digest: &Digest, found: Found, request: BlobRequest) -> Result<Blob> {
        let size = match &found {
            Found::Small(bytes) => bytes.len() as u64,
            Found::Open(open) => open.stamp.size,
        };
        let span = match request.range {
            Some(range) => Some(range.within(size).ok_or(RegistryError::RangeNotSatisfiable { size })?),
            None => None,
        };
        let sent = span.unwrap_or(Span { start: 0, length: size });
        let bytes = match found {
            Found::Small(bytes) => piece(&bytes, sent),
            Found::Open(OpenBlob { file, is_verified: true, .. }) => {
                let file = BlobFile::new(file, size, span);
                if request.file {
                    return Ok(Blob::File(file));
                }
                file.read(sent)
            }
            Found::Open(OpenBlob { file, stamp, .. }) => {
                let (store, digest_read) = (self.store.clone(), digest.clone());
                let mut seen = 0;
                let bytes = BlobFile::new(file, size, None).read(sent);
                let noted = verified(bytes, digest, size).inspect_ok(move |piece| {
                    // The last piece passes only when the whole was right.
                    seen += piece.len() as u64;
                    if seen == size {
                        store.verified.remember(&digest_read, stamp);
                    }
                });
                noted.boxed()
            }
        };
        Ok(Blob::Stream(BlobStream { size, span, bytes }))
    }
}

/// Appends what comes to a file, as far as the store's limits go, and answers its length.
async fn append(
    store: &Store,
    file: std::fs::File,
    path: &Path,
    mut offset: u64,
    mut bytes: ByteStream,
) -> Result<u64> {
    let limit = store.options.upload_limit;
    let mut file = tokio::fs::File::from_std(file);
    let outcome = loop {
        let piece = match bytes.next().await {
            None => break Ok(()),
            Some(Err(error)) => break Err(error.into()),
            Some(Ok(piece)) => piece,
        };
        if piece.len() as u64 > limit.saturating_sub(offset) {
            break Err(RegistryError::TooLarge { limit });
        }
        if let Err(error) = store.usage.add(piece.len() as u64) {
            break Err(error);
        }
        if let Err(error) = file.write_all(&piece).await {
            break Err(writing(path)(error));
        }
        offset += piece.len() as u64;
    };
    // What arrived before an error counts: the upload goes on from there.
    let flushed = file.flush().await;
    // To close it is not enough: a program that is being started at this moment holds every file that is open here.
    let _ = file.into_std().await.unlock();
    flushed.map_err(writing(path))?;
    outcome.map(|()| offset)
}

impl Registry for DirectoryRegistry {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        let (repository, page) = (repository.clone(), page.clone());
        Box::pin(self.run(move |store| store.tags(&repository, &page)))
    }

    fn repositories<'a>(&'a self, page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        let page = page.clone();
        Box::pin(self.run(move |store| store.repositories(&page)))
    }

    /// Not on another thread: it looks at one file's metadata, which takes less time than to get there and back.
    fn revision<'a>(&'a self, repository: &'a Repository) -> Answer<'a, Option<u64>> {
        Box::pin(std::future::ready(Ok(self.store.revision(repository))))
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        let (repository, reference) = (repository.clone(), reference.clone());
        Box::pin(self.run(move |store| store.manifest(&repository, &reference)))
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        let (repository, reference) = (repository.clone(), reference.clone());
        Box::pin(self.run(move |store| store.manifest_head(&repository, &reference)))
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        let (name, manifest) = (repository.clone(), manifest.clone());
        Box::pin(self.write(repository, move |store| store.put_manifest(&name, &manifest)))
    }

    fn delete_tag<'a>(&'a self, repository: &'a Repository, tag: &'a Tag) -> Answer<'a, ()> {
        let (name, tag) = (repository.clone(), tag.clone());
        Box::pin(self.write(repository, move |store| store.delete_tag(&name, &tag)))
    }

    fn delete_manifest<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        let (name, digest) = (repository.clone(), digest.clone());
        Box::pin(self.write(repository, move |store| store.delete_manifest(&name, &digest)))
    }

    fn delete_blob<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        let (name, digest) = (repository.clone(), digest.clone());
        Box::pin(self.write(repository, move |store| store.delete_blob(&name, &digest)))
    }

    fn blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        request: BlobRequest,
    ) -> Answer<'a, Blob> {
        Box::pin(async move {
            let found = if let Some(bytes) = self.store.recent(repository, digest) {
                Found::Small(bytes)
            } else {
                let (repository, name) = (repository.clone(), digest.clone());
                // A piece cannot be verified, so the whole is, before any of it goes out.
                let whole = request.range.is_some();
                self.run(move |store| store.find_blob(&repository, &name, whole)).await?
            };
            self.send(digest, found, request)
        })
    }

    fn blob_in_memory(&self, repository: &Repository, digest: &Digest) -> Option<Bytes> {
        self.store.recent(repository, digest)
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        let (repository, digest) = (repository.clone(), digest.clone());
        Box::pin(self.run(move |store| store.blob_size(&repository, &digest)))
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let (size, limit) = (source.size(), self.store.options.upload_limit);
            if size > limit {
                return Err(RegistryError::TooLarge { limit });
            }
            let (name, expected) = (repository.clone(), digest.clone());
            if self.run(move |store| store.keep_blob(&name, &expected)).await? {
                return Ok(());
            }
            let turn = self.upload_turn().await?;
            let make = self.run(move |store| {
                store.usage.check(&store.layout, size)?;
                store.layout.scratch()
            });
            let (file, scratch) = make.await?;
            let bytes = verified(source.open().await?, digest, size);
            append(&self.store, file, &scratch.0, 0, bytes).await?;
            drop(turn);
            let (name, digest) = (repository.clone(), digest.clone());
            self.run(move |store| store.publish(&name, &digest, &scratch)).await
        })
    }

    fn mount<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        from: Option<&'a Repository>,
    ) -> Answer<'a, bool> {
        let (repository, digest, from) = (repository.clone(), digest.clone(), from.cloned());
        Box::pin(self.run(move |store| store.mount(&repository, &digest, from.as_ref())))
    }

    /// The algorithm does not matter: the digest is computed when the upload ends.
    fn open_upload<'a>(&'a self, repository: &'a Repository, _algorithm: Algorithm) -> Answer<'a, UploadId> {
        let repository = repository.clone();
        Box::pin(self.run(move |store| store.open_upload(&repository)))
    }

    fn upload_offset<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, u64> {
        let (repository, upload) = (repository.clone(), upload.clone());
        Box::pin(self.run(move |store| store.upload_offset(&repository, &upload)))
    }

    fn append_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        offset: Option<u64>,
        bytes: ByteStream,
    ) -> Answer<'a, u64> {
        Box::pin(async move {
            let (name, session) = (repository.clone(), upload.clone());
            let _turn = self.upload_turn().await?;
            let hold = self.run(move |store| {
                store.usage.check(&store.layout, 0)?;
                store.hold_upload(&name, &session)
            });
            let Session { file, offset: stands } = hold.await?;
            if offset.is_some_and(|offset| offset != stands) {
                return Err(RegistryError::OutOfOrder { offset: stands });
            }
            let path = self.store.layout.upload(repository, upload);
            append(&self.store, file, &path, stands, bytes).await
        })
    }

    fn finish_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        digest: &'a Digest,
    ) -> Answer<'a, ()> {
        let (repository, upload, digest) = (repository.clone(), upload.clone(), digest.clone());
        Box::pin(self.run(move |store| store.finish_upload(&repository, &upload, &digest)))
    }

    fn cancel_upload<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, ()> {
        let (repository, upload) = (repository.clone(), upload.clone());
        Box::pin(self.run(move |store| store.cancel_upload(&repository, &upload)))
    }

    fn referrers<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        artifact_type: Option<&'a str>,
        page: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        let (repository, digest, page) = (repository.clone(), digest.clone(), page.clone());
        let artifact_type = artifact_type.map(ToOwned::to_owned);
        Box::pin(
            self.run(move |store| store.referrers(&repository, &digest, artifact_type.as_deref(), &page)),
        )
    }
}

#[cfg(test)]
mod tests;
