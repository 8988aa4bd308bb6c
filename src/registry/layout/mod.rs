//! A registry in one file: an OCI image layout as a tar, for any number of repositories.
//!
//! It is made to be carried to where no network leads. One opens it for reading, in place: entries are looked up once, contents are
//! read from where they lie, and nothing is unpacked. Or one opens it for writing, which `ocimod copy` does: what comes is staged in a
//! folder beside it, and [`LayoutRegistry::commit`] writes the file anew, all of it or nothing. The same contents give the same bytes.

mod commit;
mod index;
mod piece;
mod reach;
mod staging;
mod stamp;
mod store;
mod tar;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;

pub use self::commit::Committed;

use self::store::{Content, Layout};
use super::directory::Verification;
use super::{
    Answer, Blob, BlobRequest, BlobSource, BlobStream, ManifestHead, NewManifest, Page, PageRequest,
    PutManifest, Registry, RegistryError, Result, StoredManifest, verified,
};
use crate::oci::{Descriptor, Digest, Reference, Repository, Span, Tag};

/// A file with a layout.
#[derive(Clone)]
pub struct LayoutRegistry {
    layout: Arc<Layout>,
}

impl LayoutRegistry {
    /// Opens a file for reading. Its headers and its index are read; [`RegistryError::Io`] where it is no such file.
    ///
    /// Where another file takes its place later, or it is changed, that is seen at the next call.
    pub async fn open(path: PathBuf) -> Result<Self> {
        let layout = blocking(move || Layout::open(&path)).await?;
        Ok(Self { layout: Arc::new(layout) })
    }

    /// Opens a file to add to it; an empty layout where there is none. Nothing is on disk before something is pushed, and the file is as
    /// it was before [`LayoutRegistry::commit`].
    pub async fn open_to_write(path: PathBuf) -> Result<Self> {
        let layout = blocking(move || Layout::open_to_write(&path)).await?;
        Ok(Self { layout: Arc::new(layout) })
    }

    /// Writes what was pushed into the file: every manifest with a tag, what these need, and what refers to them. `advanced` hears how
    /// many bytes have been written since the last time.
    pub async fn commit(&self, advanced: impl Fn(u64) + Send + 'static) -> Result<Committed> {
        self.run(move |layout| layout.commit(&advanced)).await
    }

    /// The folder with what was pushed and is not in the file, where there is one.
    pub fn left_behind(&self) -> Option<&Path> {
        self.layout.staging.as_ref().map(staging::Staging::folder).filter(|folder| folder.is_dir())
    }

    /// Looks at every content and every reference, and changes nothing.
    pub async fn verify(&self) -> Result<Verification> {
        self.run(Layout::verify).await
    }

    /// Runs `work` where it may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Layout) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let layout = Arc::clone(&self.layout);
        blocking(move || work(&layout)).await
    }

    /// The bytes of a content, whole or a piece of it, verified or known to be right.
    fn stream(&self, content: Content, digest: &Digest, request: BlobRequest) -> Result<BlobStream> {
        let size = content.bytes.size;
        let span = match request.range {
            Some(range) => Some(range.within(size).ok_or(RegistryError::RangeNotSatisfiable { size })?),
            None => None,
        };
        let bytes = match span {
            Some(Span { start, length }) => content.bytes.part(start, length).stream(),
            None if content.is_verified => content.bytes.clone().stream(),
            None => {
                let (layout, read) = (Arc::clone(&self.layout), digest.clone());
                let mut seen = 0;
                let bytes = verified(content.bytes.clone().stream(), digest, size);
                let noted = bytes.inspect(move |piece| {
                    // The last piece passes only when the whole was right.
                    seen += piece.as_ref().map_or(0, |piece| piece.len() as u64);
                    if piece.is_ok() && seen == size {
                        layout.remember(&content, &read);
                    }
                });
                noted.boxed()
            }
        };
        Ok(BlobStream { size, span, bytes })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let outcome = tokio::task::spawn_blocking(work).await;
    outcome.unwrap_or_else(|error| Err(RegistryError::io("working on the layout")(io::Error::other(error))))
}

impl Registry for LayoutRegistry {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        let (repository, page) = (repository.clone(), page.clone());
        Box::pin(self.run(move |layout| layout.tags(&repository, &page)))
    }

    fn repositories<'a>(&'a self, page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        let page = page.clone();
        Box::pin(self.run(move |layout| layout.repositories(&page)))
    }

    /// Not on another thread: it looks at one file's metadata, which takes less time than to get there and back.
    fn revision<'a>(&'a self, _repository: &'a Repository) -> Answer<'a, Option<u64>> {
        Box::pin(std::future::ready(Ok(self.layout.revision())))
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        let (repository, reference) = (repository.clone(), reference.clone());
        Box::pin(self.run(move |layout| layout.manifest(&repository, &reference)))
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        let (repository, reference) = (repository.clone(), reference.clone());
        Box::pin(self.run(move |layout| layout.manifest_head(&repository, &reference)))
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        let (repository, manifest) = (repository.clone(), manifest.clone());
        Box::pin(self.run(move |layout| layout.put_manifest(&repository, &manifest)))
    }

    fn blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        request: BlobRequest,
    ) -> Answer<'a, Blob> {
        let (repository, name) = (repository.clone(), digest.clone());
        Box::pin(async move {
            // A piece cannot be verified, so the whole is, before any of it goes out.
            let whole_first = request.range.is_some();
            let content = self.run(move |layout| layout.blob(&repository, &name, whole_first)).await?;
            Ok(Blob::Stream(self.stream(content, digest, request)?))
        })
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        let (repository, digest) = (repository.clone(), digest.clone());
        Box::pin(self.run(move |layout| layout.blob_size(&repository, &digest)))
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            if self.layout.staging.is_none() {
                return Err(RegistryError::Unsupported { operation: "pushing blobs" });
            }
            let (name, expected) = (repository.clone(), digest.clone());
            if self.run(move |layout| layout.keep_blob(&name, &expected)).await? {
                return Ok(());
            }
            let (file, scratch) = self.run(Layout::scratch).await?;
            let writing = || RegistryError::io(format!("writing {}", scratch.0.display()));
            let mut file = tokio::fs::File::from_std(file);
            let size = source.size();
            let mut bytes = verified(source.open().await?, digest, size);
            while let Some(piece) = bytes.next().await {
                file.write_all(&piece.map_err(RegistryError::from)?).await.map_err(writing())?;
            }
            file.flush().await.map_err(writing())?;
            drop(file);
            let (repository, digest) = (repository.clone(), digest.clone());
            self.run(move |layout| layout.keep_staged(&scratch, &repository, &digest, size)).await
        })
    }

    fn mount<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        from: Option<&'a Repository>,
    ) -> Answer<'a, bool> {
        let (repository, digest, from) = (repository.clone(), digest.clone(), from.cloned());
        Box::pin(self.run(move |layout| layout.mount(&repository, &digest, from.as_ref())))
    }

    fn referrers<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        artifact_type: Option<&'a str>,
        page: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        let (repository, digest) = (repository.clone(), digest.clone());
        let (artifact_type, page) = (artifact_type.map(str::to_owned), page.clone());
        Box::pin(
            self.run(move |layout| layout.referrers(&repository, &digest, artifact_type.as_deref(), &page)),
        )
    }
}
