//! A registry of which one sees the tags that begin with some text, and without it: what is stored as `cue-v1.0.0` is `v1.0.0` here.
//!
//! Several collections of tags share a repository so without knowing of each other. Manifests by digest and blobs are what they are below,
//! and so are the tags that clients make of digests.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Answer, Blob, BlobRequest, BlobSource, ByteStream, ManifestHead, NewManifest, Page, PageRequest,
    PutManifest, Registry, RegistryError, Result, SharedRegistry, StoredManifest, UploadId,
};
use crate::oci::{Algorithm, Descriptor, Digest, Reference, Repository, Tag};

/// The registry below, and what stands in front of the tags there.
pub struct PrefixedTags {
    inner: SharedRegistry,
    prefix: String,
}

impl PrefixedTags {
    /// The registry as it is where there is no prefix.
    pub fn over(inner: &SharedRegistry, prefix: String) -> SharedRegistry {
        if prefix.is_empty() {
            Arc::clone(inner)
        } else {
            Arc::new(Self { inner: Arc::clone(inner), prefix })
        }
    }

    /// What stands in front of the tags.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The registry below.
    pub fn inner(&self) -> &SharedRegistry {
        &self.inner
    }

    /// A tag as it is stored.
    pub fn stored(&self, tag: &Tag) -> Result<Tag> {
        if names_a_digest(tag) {
            return Ok(tag.clone());
        }
        let text = format!("{}{tag}", self.prefix);
        text.parse().map_err(|error| RegistryError::Refused(format!("{error}")))
    }

    fn stored_reference(&self, reference: &Reference) -> Result<Reference> {
        match reference {
            Reference::Tag(tag) => self.stored(tag).map(Reference::Tag),
            digest @ Reference::Digest(_) => Ok(digest.clone()),
        }
    }

    /// A stored tag as it is seen; `None` for one of somebody else.
    pub fn seen(&self, tag: &Tag) -> Option<Tag> {
        if names_a_digest(tag) {
            return Some(tag.clone());
        }
        tag.as_str().strip_prefix(&self.prefix)?.parse().ok()
    }
}

/// Whether a tag is about a manifest by its digest, as lists of referrers and signatures are: whose it is, the digest says.
fn names_a_digest(tag: &Tag) -> bool {
    let text = tag.as_str();
    let rest = text.strip_prefix("sha256-").or_else(|| text.strip_prefix("sha512-"));
    rest.is_some_and(|rest| {
        let hex = rest.split('.').next().unwrap_or_default();
        hex.len() >= 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

impl Registry for PrefixedTags {
    fn prefixed(&self) -> Option<&PrefixedTags> {
        Some(self)
    }

    /// The page is one of the registry below: it has fewer entries where others share the repository.
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        Box::pin(async move {
            let Page { items, next } = self.inner.tags(repository, page).await?;
            Ok(Page { items: items.iter().filter_map(|tag| self.seen(tag)).collect(), next })
        })
    }

    /// The limit holds for the repository, and with it for what is seen of it.
    fn all_tags<'a>(&'a self, repository: &'a Repository, limit: usize) -> Answer<'a, Vec<Tag>> {
        Box::pin(async move {
            let tags = self.inner.all_tags(repository, limit).await?;
            Ok(tags.iter().filter_map(|tag| self.seen(tag)).collect())
        })
    }

    fn repositories<'a>(&'a self, page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        self.inner.repositories(page)
    }

    fn revision<'a>(&'a self, repository: &'a Repository) -> Answer<'a, Option<u64>> {
        self.inner.revision(repository)
    }

    fn always_asked(&self) -> Option<SharedRegistry> {
        let inner = self.inner.always_asked()?;
        Some(Self::over(&inner, self.prefix.clone()))
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        Box::pin(async move { self.inner.manifest(repository, &self.stored_reference(reference)?).await })
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        Box::pin(
            async move { self.inner.manifest_head(repository, &self.stored_reference(reference)?).await },
        )
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        Box::pin(async move {
            let tags = manifest.tags.iter().map(|tag| self.stored(tag)).collect::<Result<_>>()?;
            self.inner.put_manifest(repository, &NewManifest { tags, ..manifest.clone() }).await
        })
    }

    fn delete_tag<'a>(&'a self, repository: &'a Repository, tag: &'a Tag) -> Answer<'a, ()> {
        Box::pin(async move { self.inner.delete_tag(repository, &self.stored(tag)?).await })
    }

    fn delete_manifest<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        self.inner.delete_manifest(repository, digest)
    }

    fn delete_blob<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        self.inner.delete_blob(repository, digest)
    }

    fn blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        request: BlobRequest,
    ) -> Answer<'a, Blob> {
        self.inner.blob(repository, digest, request)
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        self.inner.blob_size(repository, digest)
    }

    fn blob_in_memory(&self, repository: &Repository, digest: &Digest) -> Option<Bytes> {
        self.inner.blob_in_memory(repository, digest)
    }

    fn blob_url<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, url::Url> {
        self.inner.blob_url(repository, digest)
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        self.inner.put_blob(repository, digest, source)
    }

    fn mount<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        from: Option<&'a Repository>,
    ) -> Answer<'a, bool> {
        self.inner.mount(repository, digest, from)
    }

    fn open_upload<'a>(&'a self, repository: &'a Repository, algorithm: Algorithm) -> Answer<'a, UploadId> {
        self.inner.open_upload(repository, algorithm)
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
        self.inner.finish_upload(repository, upload, digest)
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
