//! Single HTTP exchanges with bounds: how long an answer may take, how much of it is read, how often it is asked for.
//!
//! There are two HTTP clients. One speaks to the registry's own origin and may have a client certificate. The other speaks to
//! wherever the registry sends us (storage, token services), has no identity of any kind, and resolves no name to an address
//! that the registry may not send us to. Neither follows a redirect. No error names a URL: it may be signed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use reqwest::{Body, RequestBuilder, Response};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::host::RegistryHost;
use super::redirect::{self, GuardedResolver, Reach, RedirectError};
use super::retry::{self, RetryPolicy};
use super::tls::{Certificates, TlsError};
use crate::registry::{ByteStream, RegistryError, Result, read_bounded};

/// How long a registry may keep us waiting.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the head of an answer, and for the whole of a small one (manifests, lists, tokens).
    pub answer: Duration,
    /// Between two pieces of a blob on its way to us.
    pub idle: Duration,
    /// Between two pieces of a blob on its way out, and for the answer after the last one: a registry may have to copy the
    /// blob to its storage before it answers.
    pub commit: Duration,
    /// Bytes a second that a blob has to have on its way, in and out, while it is waited for: what drips never pauses for long.
    pub least_rate: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            answer: Duration::from_mins(1),
            idle: Duration::from_mins(1),
            commit: Duration::from_mins(5),
            // Less than any network gives that people work over, and enough for the largest module to end within two days.
            least_rate: 4 * 1024,
        }
    }
}

/// The way to one registry and to where it sends us.
pub(super) struct Transport {
    pub(super) registry: RegistryHost,
    certificates: Certificates,
    timeouts: Timeouts,
    retry: RetryPolicy,
    own: reqwest::Client,
    elsewhere: OnceCell<(Reach, reqwest::Client)>,
}

impl Transport {
    pub(super) fn new(
        registry: RegistryHost,
        certificates: Certificates,
        timeouts: Timeouts,
        retry: RetryPolicy,
    ) -> Result<Self, TlsError> {
        // No proxy reaches this machine's own loopback.
        let own = certificates.client(registry.is_loopback())?;
        Ok(Self { registry, certificates, timeouts, retry, own, elsewhere: OnceCell::new() })
    }

    /// The client for the registry's own origin.
    pub(super) fn own(&self) -> &reqwest::Client {
        &self.own
    }

    /// The client for another origin, once the rules allow to go there from `from`.
    pub(super) async fn elsewhere(&self, from: &Url, target: &Url) -> Result<&reqwest::Client> {
        let (reach, client) = self.elsewhere_unchecked().await?;
        redirect::check(from, target, *reach).map_err(|error| self.astray(error))?;
        Ok(client)
    }

    /// The client for a token service that [`redirect::check_realm`] has let pass.
    pub(super) async fn realm(&self) -> Result<&reqwest::Client> {
        Ok(&self.elsewhere_unchecked().await?.1)
    }

    async fn elsewhere_unchecked(&self) -> Result<&(Reach, reqwest::Client)> {
        self.elsewhere
            .get_or_try_init(|| async {
                let reach = Reach::of_registry(&self.registry).await;
                let client = self
                    .certificates
                    .client_elsewhere(&GuardedResolver::shared(reach))
                    .map_err(|error| self.unavailable(error.to_string()))?;
                Ok((reach, client))
            })
            .await
    }

    /// Sends a request without a body or with one in memory, once, and waits for the head of the answer.
    pub(super) async fn exchange(&self, request: RequestBuilder) -> Result<Response> {
        timeout(self.timeouts.answer, request.send())
            .await
            .map_err(|_| self.unavailable("it does not answer in time"))?
            .map_err(|error| self.broken(error))
    }

    /// Sends a request with a stream for a body. What broke the stream is reported rather than what the registry makes of it.
    pub(super) async fn upload(&self, request: RequestBuilder, bytes: ByteStream) -> Result<Response> {
        let progress = Arc::new(Mutex::new(Progress { last: Instant::now(), failure: None }));
        let locked = || progress.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = {
            let progress = Arc::clone(&progress);
            bytes.map(move |piece| {
                let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                progress.last = Instant::now();
                piece.map_err(|error| {
                    progress.failure = Some(error.into());
                    std::io::Error::other("the source broke off")
                })
            })
        };
        let sending = request.body(Body::wrap_stream(watched)).send();
        tokio::pin!(sending);
        let outcome = loop {
            let deadline = locked().last + self.timeouts.commit;
            match timeout_at(deadline, &mut sending).await {
                Ok(outcome) => break outcome.map_err(|error| self.broken(error)),
                Err(_) if locked().last + self.timeouts.commit > Instant::now() => {}
                Err(_) => break Err(self.unavailable("it takes nothing any more, and does not answer")),
            }
        };
        match locked().failure.take() {
            Some(failure) => Err(failure),
            None => outcome,
        }
    }

    /// Sends a request until there is an answer other than a failure that may pass, or the tries are used up: then the last
    /// answer or error.
    pub(super) async fn repeat<F, T>(&self, send: F) -> Result<Response>
    where
        F: Fn() -> T,
        T: Future<Output = Result<Response>>,
    {
        let mut tried = 0;
        loop {
            tried += 1;
            let outcome = send().await;
            let asked = match &outcome {
                Ok(response) if retry::is_passing(response.status()) => retry::asked_wait(response.headers()),
                Err(error) if error.is_passing() => None,
                _ => return outcome,
            };
            match self.retry.wait(tried, asked) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return outcome,
            }
        }
    }

    /// How long is waited.
    pub(super) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// How often a request may be sent.
    pub(super) fn retry(&self) -> &RetryPolicy {
        &self.retry
    }

    /// The whole body, within a size and a time.
    pub(super) async fn body(&self, response: Response, limit: u64) -> Result<Bytes> {
        if response.content_length().is_some_and(|length| length > limit) {
            return Err(RegistryError::TooLarge { limit });
        }
        timeout(self.timeouts.answer, read_bounded(self.stream(response), limit))
            .await
            .map_err(|_| self.unavailable("its answer does not end in time"))?
    }

    /// The body as it comes.
    pub(super) fn stream(&self, response: Response) -> ByteStream {
        let (registry, idle) = (self.registry.to_string(), self.timeouts.idle);
        stream::try_unfold(response, move |mut response| {
            let registry = registry.clone();
            async move {
                let reason = match timeout(idle, response.chunk()).await {
                    Ok(Ok(piece)) => return Ok(piece.map(|piece| (piece, response))),
                    Ok(Err(_)) => "the transfer broke off",
                    Err(_) => "the transfer has come to a halt",
                };
                Err(RegistryError::Unavailable { registry, reason: reason.into() }.into())
            }
        })
        .boxed()
    }

    /// The registry cannot be used now.
    pub(super) fn unavailable(&self, reason: impl Into<String>) -> RegistryError {
        RegistryError::Unavailable { registry: self.registry.to_string(), reason: reason.into() }
    }

    /// The registry answers what it must not.
    pub(super) fn protocol(&self, reason: impl Into<String>) -> RegistryError {
        RegistryError::Protocol { registry: self.registry.to_string(), reason: reason.into() }
    }

    /// The registry does not take us for who we say that we are.
    pub(super) fn unauthorized(&self, reason: impl Into<String>) -> RegistryError {
        RegistryError::Unauthorized { registry: self.registry.to_string(), reason: reason.into() }
    }

    /// The registry sends us where we do not go.
    pub(super) fn astray(&self, error: RedirectError) -> RegistryError {
        self.protocol(error.to_string())
    }

    /// A connection that did not come about or broke: the innermost cause, which names no URL.
    fn broken(&self, error: reqwest::Error) -> RegistryError {
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            if let Some(error) = source.downcast_ref::<RedirectError>() {
                return self.astray(*error);
            }
            cause = source;
        }
        let what = if error.is_connect() { "no connection" } else { "the connection broke off" };
        self.unavailable(format!("{what} ({cause})"))
    }
}

/// How an upload gets on.
struct Progress {
    last: Instant,
    failure: Option<RegistryError>,
}
