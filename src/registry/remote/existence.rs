//! Whether a blob is there, asked through `oci-client`: the one call of it that keeps every promise of this room.
//!
//! `oci-client` is wrapped so that it can do nothing of its own:
//!
//! - its store of credentials holds a placeholder, and the finished `Authorization` is put into its cache of tokens before the
//!   call, so it never pings, never meets a challenge and never sees a realm;
//! - it is given a proxy that leads nowhere for every host but the registry's, so a redirect leads nowhere either;
//! - it is asked by HEAD, whose answer has no body (it reads the bodies of refusals whole, of any length);
//! - it runs in a task of its own, so that a panic in it is an answer like any other failure: not known to be there.
//!
//! A new one is made for each question, which is asked only where a transfer has failed: so no identity ever meets what another
//! has left in it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::token_cache::{RegistryOperation, RegistryToken, RegistryTokenType};
use oci_client::{Client as OciClient, Reference};
use tokio_util::task::AbortOnDropHandle;

use super::authorization::Scopes;
use super::client::Client;
use super::tls::{CONNECT_TIMEOUT, USER_AGENT, install_crypto_provider};
use crate::oci::{Digest, Repository};

/// For the whole of a question that need not be answered.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Three parts that are no token: `oci-client` does not keep such a one, so it never stands before a real one.
const PLACEHOLDER: &str = "ocimod.expired.token";
/// The discard service of this machine, where nothing listens.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Asks whether blobs have arrived.
pub(super) struct Existence {
    authorities: Vec<u8>,
    /// `oci-client` knows no client certificates; nothing is asked where the registry wants one.
    possible: bool,
}

impl Existence {
    pub(super) fn new(authorities: Vec<u8>, possible: bool) -> Self {
        Self { authorities, possible }
    }

    /// Whether the blob is known to be there. `false` also where that cannot be found out.
    pub(super) async fn has_arrived(
        &self,
        client: &Client,
        repository: &Repository,
        digest: &Digest,
    ) -> bool {
        if !self.possible {
            return false;
        }
        let Ok(base) = client.base().await else { return false };
        let Ok(ticket) = client.ticket(&Scopes::pull(repository)).await else { return false };
        let header = ticket.map(|ticket| ticket.header().1);
        let token = header.as_ref().and_then(|header| as_token(header.to_str().ok()?));
        let Some(host) = base.host_str() else { return false };
        let endpoint = client.transport.registry.endpoint().to_owned();
        install_crypto_provider();
        let extra_root_certificates = if self.authorities.is_empty() {
            Vec::new()
        } else {
            vec![Certificate { encoding: CertificateEncoding::Pem, data: self.authorities.clone() }]
        };
        let config = ClientConfig {
            protocol: if base.scheme() == "http" { ClientProtocol::Http } else { ClientProtocol::Https },
            extra_root_certificates,
            platform_resolver: None,
            connect_timeout: Some(CONNECT_TIMEOUT),
            read_timeout: Some(TIMEOUT),
            user_agent: USER_AGENT,
            http_proxy: Some(NOWHERE.to_owned()),
            https_proxy: Some(NOWHERE.to_owned()),
            no_proxy: Some(host.trim_matches(['[', ']']).to_owned()),
            ..ClientConfig::default()
        };
        let (repository, digest) = (repository.to_string(), digest.to_string());
        let question = AbortOnDropHandle::new(tokio::spawn(async move {
            let view = OciClient::try_from(config).ok()?;
            let reference = Reference::with_tag(endpoint, repository, "latest".to_owned());
            if let Some(token) = token {
                let placeholder = RegistryAuth::Bearer(PLACEHOLDER.to_owned());
                view.store_auth_if_needed(reference.resolve_registry(), &placeholder).await;
                view.tokens.insert(&reference, RegistryOperation::Pull, token).await;
            }
            view.blob_exists(&reference, &digest).await.ok()
        }));
        matches!(tokio::time::timeout(TIMEOUT, question).await, Ok(Ok(Some(true))))
    }
}

/// An `Authorization` header in the terms of `oci-client`.
fn as_token(header: &str) -> Option<RegistryTokenType> {
    if let Some(token) = header.strip_prefix("Bearer ") {
        return Some(RegistryTokenType::Bearer(RegistryToken::Token { token: token.to_owned() }));
    }
    let decoded = STANDARD.decode(header.strip_prefix("Basic ")?).ok()?;
    let (username, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(RegistryTokenType::Basic(username.to_owned(), password.to_owned()))
}
