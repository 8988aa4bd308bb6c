//! A registry somewhere else, spoken to over HTTP (OCI distribution specification 1.1) as one identity.
//!
//! Whatever answers is a stranger: it gets no credential that is not its own, is read no further than a limit, sends us to no
//! place that the rules of `redirect` do not allow, and is believed no byte that has not the digest that was asked for.
//! Its quirks are met where they occur (`paging`, `manifests`, `referrers`, `download`, `sending`, `provisioning`).
//!
//! # What is left to `oci-client`, and why
//!
//! One call: `blob_exists`, in `existence`, wrapped so that it makes no handshake, no request to another host, and reads no body.
//! The other calls of version 0.18 do not keep the promises of this room:
//!
//! | call | what it does not keep |
//! |---|---|
//! | every call but `blob_exists` | the body of a refusal is read whole, of any length (a test holds this to be so still) |
//! | `pull_blob_stream` | the location of a redirect cannot be seen, the length of the blob is not checked |
//! | `push_blob_stream` | no client certificate; `Retry-After` and the codes of a refusal are lost; a location on another host is followed to any address |
//! | `mount_blob` | a registry that answers with an upload session instead is left with it; no mount without a source |
//! | `pull_referrers` | a refusal counts as "none"; no further pages |
//! | `list_tags`, `catalog`, `pull_manifest*`, `fetch_manifest_digest` | make a handshake of their own, which sends passwords to any realm |
//! | `push_manifest*`, `push_blob` | panic on a missing or a relative `Location` |
//! | deletes, the size of a blob | are missing |

mod authorization;
mod blobs;
mod client;
mod download;
mod existence;
#[cfg(test)]
#[path = "../../../tests/fuzz/remote.rs"]
pub(crate) mod fuzz_targets;
mod host;
mod manifests;
mod paging;
mod provisioning;
mod proxies;
mod redirect;
mod referrers;
mod retry;
#[cfg(test)]
mod scripted;
mod sending;
mod site;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod uploads;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use url::Url;

use self::authorization::{Authorization, Scopes};
use self::client::{Client, Purpose, Subject};
use self::existence::Existence;
use self::paging::{Field, Habits, List};
use self::tls::Certificates;
use self::transport::Transport;
use self::uploads::Sessions;
use super::credentials::CredentialSource;
use super::{
    Answer, Blob, BlobRequest, BlobSource, ByteStream, ManifestHead, NewManifest, Page, PageRequest,
    PutManifest, Registry, RegistryError, StoredManifest, UploadId,
};
use crate::oci::{Algorithm, Descriptor, Digest, Reference, Repository, Tag};

pub use self::authorization::LoginOutcome;
pub(super) use self::host::canonical_name;
pub use self::host::{RegistryHost, RegistryHostError};
pub use self::proxies::{Proxies, ProxyError};
pub use self::retry::RetryPolicy;
pub use self::tls::{TlsError, TlsOptions, install_crypto_provider};
pub use self::transport::Timeouts;
pub use site::{Document as SiteDocument, File as SiteFile, Site};

/// What is known of a registry before it is spoken to.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Which registry.
    pub registry: RegistryHost,
    /// As whom.
    pub credentials: CredentialSource,
    /// Whether http or https is asked for. Where nothing is: https, and on this machine alone http, if that is what is answered
    /// there and no certificates are given.
    pub plain_http: Option<bool>,
    /// Certificates.
    pub tls: TlsOptions,
    /// What stands between us and the registry.
    pub proxies: Proxies,
    /// How long is waited.
    pub timeouts: Timeouts,
    /// How often is tried.
    pub retry: RetryPolicy,
}

impl RemoteOptions {
    /// A registry as it comes.
    pub fn new(registry: RegistryHost, credentials: CredentialSource) -> Self {
        Self {
            registry,
            credentials,
            plain_http: None,
            tls: TlsOptions::default(),
            proxies: Proxies::default(),
            timeouts: Timeouts::default(),
            retry: RetryPolicy::default(),
        }
    }
}

/// One registry as one identity. Repositories are named in full: a prefix is the caller's business.
pub struct RemoteRegistry {
    /// Shared with the blobs that are being read.
    client: Arc<Client>,
    existence: Existence,
    habits: Habits,
    /// The smallest blob that was refused as too large for one request: it and larger ones go in chunks.
    refused_size: AtomicU64,
    sessions: Sessions,
}

impl RemoteRegistry {
    /// Reads the certificates; nothing is sent before the first operation.
    pub fn new(options: RemoteOptions) -> Result<Self, TlsError> {
        let RemoteOptions { registry, credentials, plain_http, tls, proxies, timeouts, retry } = options;
        let has_certificates = !tls.is_empty();
        let scheme = match plain_http {
            Some(true) => Some("http"),
            None if registry.is_loopback() && !has_certificates => None,
            None | Some(false) => Some("https"),
        };
        let certificates = Certificates::read(&tls)?;
        // On this machine, where the scheme may not be known yet, nothing is asked for through a proxy.
        let is_proxied = scheme.is_some_and(|scheme| proxies.of(&registry.base(scheme)).is_some());
        let existence =
            Existence::new(certificates.authorities.clone(), !certificates.has_identity() && !is_proxied);
        let transport = Transport::new(registry, (tls, certificates), proxies, timeouts, retry)?;
        let client = Arc::new(Client::new(transport, Authorization::new(credentials), scheme));
        Ok(Self {
            client,
            existence,
            habits: Habits::default(),
            refused_size: AtomicU64::new(u64::MAX),
            sessions: Sessions::default(),
        })
    }

    /// Whether the registry takes the credentials for those of somebody ("Determining Support", with them).
    pub async fn check_login(&self) -> Result<LoginOutcome, RegistryError> {
        self.client.check_login().await
    }
}

impl Registry for RemoteRegistry {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        Box::pin(async move {
            let list = List::of_tags(repository);
            paging::read_page(&self.client, &self.habits, &list, page).await
        })
    }

    fn all_tags<'a>(&'a self, repository: &'a Repository, limit: usize) -> Answer<'a, Vec<Tag>> {
        Box::pin(async move {
            let list = List::of_tags(repository);
            paging::read_all(&self.client, &self.habits, &list, limit).await
        })
    }

    fn repositories<'a>(&'a self, page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        Box::pin(async move {
            let list = List {
                path: "v2/_catalog".to_owned(),
                scopes: Scopes::catalog(),
                purpose: Purpose { operation: "listing repositories", subject: Subject::Catalog },
                field: Field::Repositories,
            };
            match paging::read_page(&self.client, &self.habits, &list, page).await {
                // Large registries have no list for anybody, and each says so in its own way.
                Err(RegistryError::Denied { .. } | RegistryError::Unsupported { .. }) => {
                    Err(RegistryError::NoCatalog)
                }
                outcome => outcome,
            }
        })
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        Box::pin(self.read_manifest(repository, reference))
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        Box::pin(self.read_manifest_head(repository, reference))
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        Box::pin(self.write_manifest(repository, manifest))
    }

    fn delete_tag<'a>(&'a self, repository: &'a Repository, tag: &'a Tag) -> Answer<'a, ()> {
        Box::pin(async move { self.remove_manifest(repository, &Reference::Tag(tag.clone())).await })
    }

    fn delete_manifest<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        Box::pin(async move { self.remove_manifest(repository, &Reference::Digest(digest.clone())).await })
    }

    fn delete_blob<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, ()> {
        Box::pin(self.remove_blob(repository, digest))
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
        Box::pin(self.read_blob_size(repository, digest))
    }

    fn blob_url<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, Url> {
        Box::pin(self.bare_url(repository, digest))
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        Box::pin(self.write_blob(repository, digest, source))
    }

    fn mount<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        from: Option<&'a Repository>,
    ) -> Answer<'a, bool> {
        Box::pin(async move { Ok(self.try_mount(repository, digest, from).await) })
    }

    fn open_upload<'a>(&'a self, repository: &'a Repository, algorithm: Algorithm) -> Answer<'a, UploadId> {
        Box::pin(self.new_upload(repository, algorithm))
    }

    fn upload_offset<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, u64> {
        Box::pin(self.ask_offset(repository, upload))
    }

    fn append_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        offset: Option<u64>,
        bytes: ByteStream,
    ) -> Answer<'a, u64> {
        Box::pin(self.append(repository, upload, offset, bytes))
    }

    fn finish_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        digest: &'a Digest,
    ) -> Answer<'a, ()> {
        Box::pin(self.finish(repository, upload, digest))
    }

    fn cancel_upload<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, ()> {
        Box::pin(self.cancel(repository, upload))
    }

    fn referrers<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        artifact_type: Option<&'a str>,
        page: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        Box::pin(self.read_referrers(repository, digest, artifact_type, page))
    }
}
