//! A registry with nothing in it: what a caller is shown of a repository that it may not know of.
//!
//! Such a request takes the same way as any other, and ends here instead of at the store. So its answer is that of a repository that
//! is not there to the last byte, whatever becomes of either, and takes as long.

use crate::oci::{Descriptor, Digest, Reference, Repository, Tag};
use crate::registry::{
    Answer, Blob, BlobRequest, ManifestHead, Page, PageRequest, Registry, RegistryError, StoredManifest,
};

/// Nothing at all. It is only read from; everything else is refused by the trait.
pub(super) struct Absent;

fn no_repository<'a, T: Send + 'a>(repository: &Repository) -> Answer<'a, T> {
    let error = RegistryError::RepositoryUnknown(repository.to_string());
    Box::pin(async move { Err(error) })
}

fn no_blob<'a, T: Send + 'a>(digest: &Digest) -> Answer<'a, T> {
    let error = RegistryError::BlobUnknown(digest.clone());
    Box::pin(async move { Err(error) })
}

impl Registry for Absent {
    fn tags<'a>(&'a self, repository: &'a Repository, _: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        no_repository(repository)
    }

    fn manifest<'a>(&'a self, repository: &'a Repository, _: &'a Reference) -> Answer<'a, StoredManifest> {
        no_repository(repository)
    }

    fn manifest_head<'a>(&'a self, repository: &'a Repository, _: &'a Reference) -> Answer<'a, ManifestHead> {
        no_repository(repository)
    }

    fn blob<'a>(&'a self, _: &'a Repository, digest: &'a Digest, _: BlobRequest) -> Answer<'a, Blob> {
        no_blob(digest)
    }

    fn blob_size<'a>(&'a self, _: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        no_blob(digest)
    }

    fn referrers<'a>(
        &'a self,
        repository: &'a Repository,
        _: &'a Digest,
        _: Option<&'a str>,
        _: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        no_repository(repository)
    }
}
