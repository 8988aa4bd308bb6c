//! Documents and files of a host that is no registry of ours, such as the origin of a provider.
//!
//! It is a stranger as registries are, and nobody here is known to it: no credential and no client certificate is shown. It may send us
//! on, to where the rules of [`super::redirect`] allow, and is read no further than a limit.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::header::{ACCEPT, HeaderValue, LOCATION};
use reqwest::{Response, StatusCode};
use tokio::time::Instant;
use url::Url;

use super::download::Pace;
use super::host::RegistryHost;
use super::proxies::Proxies;
use super::redirect::{self, MAX_REDIRECTS, RedirectError};
use super::retry::RetryPolicy;
use super::tls::{Certificates, TlsError, TlsOptions, install_crypto_provider};
use super::transport::{Timeouts, Transport};
use crate::registry::{ByteStream, RegistryError, Result};

/// A host that is asked over https, as nobody.
pub struct Site {
    transport: Transport,
    base: Url,
}

/// What is at a URL.
pub struct Document {
    /// Where it was found in the end: what relative URLs in it mean.
    pub url: Url,
    /// Its bytes.
    pub bytes: Bytes,
}

/// A file as it comes, at no less than the least rate of its site. Nothing is verified.
pub struct File {
    /// How long it is, where the site says so.
    pub size: Option<u64>,
    /// Its bytes.
    pub bytes: ByteStream,
}

impl Site {
    /// A site by its host. The system's certificates are trusted.
    pub fn new(host: RegistryHost, proxies: Proxies, timeouts: Timeouts) -> Result<Self, TlsError> {
        install_crypto_provider();
        let base = host.base("https");
        let certificates = (TlsOptions::default(), Certificates::default());
        let transport = Transport::new(host, certificates, proxies, timeouts, RetryPolicy::default())?;
        Ok(Self { transport, base })
    }

    /// The root of the site.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// A document of at most `limit` bytes; `None` where there is none.
    pub async fn document(&self, url: &Url, limit: u64) -> Result<Option<Document>> {
        let Some((url, response)) = self.get(url).await? else { return Ok(None) };
        let bytes = self.transport.body(response, limit).await?;
        Ok(Some(Document { url, bytes }))
    }

    /// A file; `None` where there is none.
    pub async fn file(&self, url: &Url) -> Result<Option<File>> {
        let Some((_, response)) = self.get(url).await? else { return Ok(None) };
        let size = response.content_length();
        let Timeouts { idle, least_rate, .. } = *self.transport.timeouts();
        let name = self.transport.registry.to_string();
        let state = (self.transport.stream(response), Pace::new(idle, least_rate), name);
        let bytes = stream::try_unfold(state, |(mut bytes, mut pace, name)| async move {
            let began = Instant::now();
            let Some(piece) = bytes.try_next().await? else { return Ok(None) };
            if pace.is_too_slow(began.elapsed(), piece.len() as u64) {
                let reason = "the transfer is too slow to come to an end".to_owned();
                return Err(RegistryError::Unavailable { registry: name, reason }.into());
            }
            Ok(Some((piece, (bytes, pace, name))))
        });
        Ok(Some(File { size, bytes: bytes.boxed() }))
    }

    async fn get(&self, url: &Url) -> Result<Option<(Url, Response)>> {
        let (mut from, mut at) = (self.base.clone(), url.clone());
        for _ in 0..=MAX_REDIRECTS {
            // Whatever the site names, it names by https: the base is.
            let is_own = redirect::same_origin(&self.base, &at);
            let client = if is_own {
                self.transport.own().await
            } else {
                self.transport.elsewhere(&from, &at).await?
            };
            let accept = HeaderValue::from_static("*/*");
            let send = || self.transport.exchange(client.get(at.clone()).header(ACCEPT, accept.clone()));
            let response = self.transport.repeat(send).await?;
            if is_own {
                self.transport.answered(&response);
            }
            let status = response.status();
            if !status.is_redirection() {
                return match status {
                    StatusCode::OK => Ok(Some((at, response))),
                    StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
                    _ => Err(self.refusal(status)),
                };
            }
            let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            let next = location.and_then(|location| at.join(location).ok());
            let next = next.ok_or_else(|| self.transport.protocol("it redirects to nowhere"))?;
            from = std::mem::replace(&mut at, next);
        }
        Err(self.transport.astray(RedirectError::TooMany))
    }

    fn refusal(&self, status: StatusCode) -> RegistryError {
        let reason = format!("it answers {status}");
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            self.transport.unavailable(reason)
        } else {
            self.transport.protocol(reason)
        }
    }
}
