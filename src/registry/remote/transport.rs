//! Single HTTP exchanges with bounds: how long an answer may take, how much of it is read, how often it is asked for.
//!
//! There are several HTTP clients. One speaks to the registry's own origin and may have a client certificate. The others speak
//! to wherever the registry sends us (storage, token services), have no identity of any kind, and go to no address that the
//! registry may not send us to; one of them asks a proxy, which has its own name and address. None follows a redirect. No error
//! names a URL: it may be signed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use reqwest::{Body, RequestBuilder, Response, StatusCode};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::host::RegistryHost;
use super::proxies::Proxies;
use super::redirect::{self, GuardedResolver, Reached, RedirectError};
use super::retry::{self, RetryPolicy};
use super::tls::{CONNECT_TIMEOUT, Certificates, TlsError, TlsOptions};
use crate::registry::{ByteStream, RegistryError, Result, read_bounded};

/// How often certificates are looked at that may have been replaced.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often a host is looked up that a proxy is asked for. The proxy looks it up by itself, so this is no last word.
const LOOK_UP_EVERY: Duration = Duration::from_mins(1);
/// More hosts than a registry sends anybody to; the memory is emptied then.
const MAX_LOOKED_UP: usize = 256;

/// How long a registry may keep us waiting.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection, with its TLS handshake.
    pub connect: Duration,
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
            connect: CONNECT_TIMEOUT,
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
    reached: Arc<Reached>,
    proxies: Proxies,
    tls: TlsOptions,
    timeouts: Timeouts,
    retry: RetryPolicy,
    clients: tokio::sync::Mutex<Clients>,
    /// When hosts were last looked up that a proxy is asked for.
    looked_up: Mutex<HashMap<String, Instant>>,
}

/// What is made of the certificates as they stand.
struct Clients {
    certificates: Arc<Certificates>,
    own: reqwest::Client,
    elsewhere: OnceLock<reqwest::Client>,
    proxied: OnceLock<reqwest::Client>,
    looked: Instant,
    /// What was last said of files that cannot be used, so that it is said once.
    complaint: Option<String>,
}

impl Transport {
    pub(super) fn new(
        registry: RegistryHost,
        (tls, certificates): (TlsOptions, Certificates),
        proxies: Proxies,
        timeouts: Timeouts,
        retry: RetryPolicy,
    ) -> Result<Self, TlsError> {
        let reached = Arc::new(Reached::of(&registry));
        let clients = tokio::sync::Mutex::new(Clients::new(certificates, &proxies, timeouts.connect)?);
        let looked_up = Mutex::default();
        Ok(Self { registry, reached, proxies, tls, timeouts, retry, clients, looked_up })
    }

    /// The client for the registry's own origin.
    pub(super) async fn own(&self) -> reqwest::Client {
        self.clients().await.own.clone()
    }

    /// The client for another origin, once the rules allow to go there from `from`.
    pub(super) async fn elsewhere(&self, from: &Url, target: &Url) -> Result<reqwest::Client> {
        redirect::check(from, target, self.reached.get()).map_err(|error| self.astray(error))?;
        self.unchecked(target).await
    }

    /// The client for a token service that [`redirect::check_realm`] has let pass.
    pub(super) async fn realm(&self, realm: &Url) -> Result<reqwest::Client> {
        self.unchecked(realm).await
    }

    /// The client for another origin. What its name stands for is still looked at.
    async fn unchecked(&self, target: &Url) -> Result<reqwest::Client> {
        let connect = self.timeouts.connect;
        let is_proxied = self.proxies.of(target).is_some();
        if is_proxied && !self.was_looked_up(target) {
            let checked = redirect::check_proxied(target, self.reached.get()).await;
            checked.map_err(|error| self.astray(error))?;
            self.note_look_up(target);
        }
        let clients = self.clients().await;
        let client = if is_proxied {
            known_or(&clients.proxied, || clients.certificates.client_proxied(&self.proxies, connect))
        } else {
            let resolver = Arc::new(GuardedResolver(Arc::clone(&self.reached)));
            known_or(&clients.elsewhere, || clients.certificates.client_elsewhere(&resolver, connect))
        };
        client.map_err(|error| self.unavailable(error.to_string()))
    }

    /// Whether a host was found to be a place to go to, a short while ago.
    fn was_looked_up(&self, target: &Url) -> bool {
        let looked_up = self.looked_up.lock().unwrap_or_else(PoisonError::into_inner);
        let found = target.host_str().and_then(|host| looked_up.get(host));
        found.is_some_and(|found| found.elapsed() < LOOK_UP_EVERY)
    }

    fn note_look_up(&self, target: &Url) {
        let mut looked_up = self.looked_up.lock().unwrap_or_else(PoisonError::into_inner);
        if looked_up.len() >= MAX_LOOKED_UP {
            looked_up.clear();
        }
        looked_up.extend(target.host_str().map(|host| (host.to_owned(), Instant::now())));
    }

    /// The clients, made anew where certificates were replaced. What cannot be used is logged, and what there was before stays
    /// in use.
    async fn clients(&self) -> tokio::sync::MutexGuard<'_, Clients> {
        let mut clients = self.clients.lock().await;
        if self.tls.is_empty() || clients.looked.elapsed() < LOOK_EVERY {
            return clients;
        }
        let (tls, known) = (self.tls.clone(), Arc::clone(&clients.certificates));
        let (proxies, connect) = (self.proxies.clone(), self.timeouts.connect);
        let looked = tokio::task::spawn_blocking(move || {
            if known.are_current(&tls) {
                return Ok(None);
            }
            Certificates::read(&tls).and_then(|read| Clients::new(read, &proxies, connect)).map(Some)
        });
        clients.looked = Instant::now();
        match looked.await {
            Ok(Ok(Some(made))) => *clients = made,
            Ok(Ok(None)) => clients.complaint = None,
            Ok(Err(error)) => {
                let complaint = error.to_string();
                if clients.complaint.as_ref() != Some(&complaint) {
                    tracing::error!("{complaint}; the certificates that were read before stay in use");
                }
                clients.complaint = Some(complaint);
            }
            // The process is about to end.
            Err(_) => {}
        }
        clients
    }

    /// The registry's own origin has answered, and so it lives there. A proxy's address says nothing of that.
    pub(super) fn answered(&self, response: &Response) {
        if self.proxies.of(response.url()).is_none()
            && let Some(peer) = response.remote_addr()
        {
            self.reached.answered_from(peer.ip());
        }
    }

    /// Sends a request without a body or with one in memory, once, and waits for the head of the answer.
    pub(super) async fn exchange(&self, request: RequestBuilder) -> Result<Response> {
        let response = timeout(self.timeouts.answer, request.send())
            .await
            .map_err(|_| self.unavailable("it does not answer in time"))?
            .map_err(|error| self.broken(error))?;
        self.unless_refused_by_proxy(response)
    }

    /// An answer, unless the proxy in front gave it.
    fn unless_refused_by_proxy(&self, response: Response) -> Result<Response> {
        let is_refusal = response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        if is_refusal && self.proxies.of(response.url()).is_some() {
            return Err(self.unavailable("the proxy asks for credentials; they belong into its address"));
        }
        Ok(response)
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
                Ok(outcome) => {
                    break outcome
                        .map_err(|error| self.broken(error))
                        .and_then(|response| self.unless_refused_by_proxy(response));
                }
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

impl Clients {
    fn new(certificates: Certificates, proxies: &Proxies, connect: Duration) -> Result<Self, TlsError> {
        Ok(Self {
            own: certificates.client(proxies, connect)?,
            certificates: Arc::new(certificates),
            elsewhere: OnceLock::new(),
            proxied: OnceLock::new(),
            looked: Instant::now(),
            complaint: None,
        })
    }
}

/// A client that was made before, or is made now.
fn known_or(
    place: &OnceLock<reqwest::Client>,
    make: impl FnOnce() -> Result<reqwest::Client, TlsError>,
) -> Result<reqwest::Client, TlsError> {
    if let Some(client) = place.get() {
        return Ok(client.clone());
    }
    let client = make()?;
    Ok(place.get_or_init(|| client).clone())
}

/// How an upload gets on.
struct Progress {
    last: Instant,
    failure: Option<RegistryError>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::registry::remote::redirect::Reach;
    use crate::registry::remote::scripted::{Scripted, status};

    fn transport(registry: &str) -> Transport {
        let certificates = (TlsOptions::default(), Certificates::default());
        let (timeouts, retry) = (Timeouts::default(), RetryPolicy::default());
        Transport::new(registry.parse().unwrap(), certificates, Proxies::default(), timeouts, retry).unwrap()
    }

    #[tokio::test]
    async fn a_registry_that_answers_from_this_machine_may_send_us_to_it() {
        let server = Scripted::start(|_, _| status(200)).await;
        let transport = transport("registry.example");
        let (from, inner) =
            ("http://registry.example/".parse().unwrap(), "http://127.0.0.1:1/".parse().unwrap());
        assert_eq!(transport.reached.get(), Reach::Public);
        assert!(transport.elsewhere(&from, &inner).await.is_err());
        // As if its name stood for this machine.
        let response = transport.exchange(transport.own().await.get(server.url("/v2/"))).await.unwrap();
        transport.answered(&response);
        assert_eq!(transport.reached.get(), Reach::Loopback);
        assert!(transport.elsewhere(&from, &inner).await.is_ok());
    }
}
