//! Requests to one registry as one identity: where they go, with which header, how often, and what a refusal means.
//!
//! The registry's own origin gets the `Authorization` header; no other place does, and once a redirect has led elsewhere it does
//! not come back. Bodies of refusals are read for the specification's error codes and dropped.

use std::borrow::Cow;

use bytes::Bytes;
use reqwest::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;
use tokio::sync::OnceCell;
use url::Url;

use super::authorization::{Authorization, Challenge, Demand, LoginOutcome, Scopes, Ticket};
use super::redirect::{self, MAX_REDIRECTS, RedirectError};
use super::retry;
use super::transport::Transport;
use crate::oci::{Digest, ErrorCode, Reference, Repository};
use crate::registry::{ByteStream, RegistryError, Result};

/// Of the body of a refusal, as much as any registry's own words need.
const MAX_ERROR_BODY: u64 = 64 * 1024;

/// Where a request goes.
#[derive(Clone)]
pub(super) enum Place<'a> {
    /// A path, with query, below the registry's base.
    Path(Cow<'a, str>),
    /// A URL that the registry gave.
    Url(Url),
}

/// A request, as often as it has to be sent.
#[derive(Clone)]
pub(super) struct Call<'a> {
    method: Method,
    place: Place<'a>,
    scopes: Scopes,
    headers: HeaderMap,
    body: Option<Bytes>,
    repeatable: bool,
    authorized: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, path: impl Into<Cow<'a, str>>, scopes: Scopes) -> Self {
        Self {
            method,
            place: Place::Path(path.into()),
            scopes,
            headers: HeaderMap::new(),
            body: None,
            repeatable: true,
            authorized: true,
        }
    }

    /// To a URL that the registry gave for an upload.
    pub(super) fn to(method: Method, url: Url, scopes: Scopes) -> Self {
        Self { place: Place::Url(url), ..Self::new(method, "", scopes) }
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// With a body and its type.
    pub(super) fn body(mut self, media_type: HeaderValue, body: Bytes) -> Self {
        self.body = Some(body);
        self.header(CONTENT_TYPE, media_type)
    }

    /// With an empty body, which some registries want to be told of.
    pub(super) fn empty_body(self) -> Self {
        self.header(CONTENT_LENGTH, HeaderValue::from_static("0"))
    }

    /// Sent once, whatever comes of it: a second time would do something else.
    pub(super) fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }
}

/// What a request was for, so that a refusal can be put into words.
#[derive(Clone, Copy)]
pub(super) struct Purpose<'a> {
    /// As in "REGISTRY refuses ...".
    pub(super) operation: &'static str,
    pub(super) subject: Subject<'a>,
}

/// What is missing where the registry answers that something is.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Repository(&'a Repository),
    Manifest(&'a Repository, &'a Reference),
    Blob(&'a Repository, &'a Digest),
    Upload(&'a Repository),
    Catalog,
}

/// One registry as one identity.
pub(super) struct Client {
    pub(super) transport: Transport,
    authorization: Authorization,
    /// `None`: http or https, whichever answers (on this machine alone).
    scheme: Option<&'static str>,
    base: OnceCell<Url>,
}

impl Client {
    pub(super) fn new(
        transport: Transport,
        authorization: Authorization,
        scheme: Option<&'static str>,
    ) -> Self {
        Self { transport, authorization, scheme, base: OnceCell::new() }
    }

    /// The registry's origin. The first call asks it what it wants to know of us (specification, "Determining Support").
    pub(super) async fn base(&self) -> Result<&Url> {
        self.base.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Url> {
        let base = match self.scheme {
            Some(scheme) => self.transport.registry.base(scheme),
            None => self.probe().await,
        };
        self.ask(&base).await?;
        Ok(base)
    }

    /// Asks the registry what it wants to know of us.
    async fn ask(&self, base: &Url) -> Result<()> {
        let response = self.transport.repeat(|| self.ping(base)).await?;
        self.authorization.set_challenge(match response.status() {
            StatusCode::UNAUTHORIZED => Demand::read(base, response.headers()).challenge,
            status if retry::is_passing(status) => return Err(self.passing(&response)),
            // Whatever else it says to this request: the ones that follow show what it wants.
            _ => Challenge::Open,
        });
        Ok(())
    }

    async fn ping(&self, base: &Url) -> Result<Response> {
        let request = self.transport.own().await.get(resolve(base, "v2/"));
        let response = self.transport.exchange(request).await?;
        self.transport.answered(&response);
        Ok(response)
    }

    /// On this machine a registry may speak either. A TLS server answers http with 400, with the way to https, or not at all.
    async fn probe(&self) -> Url {
        let http = self.transport.registry.base("http");
        let is_https =
            |target: Result<Option<Url>>| matches!(target, Ok(Some(target)) if target.scheme() == "https");
        match self.ping(&http).await {
            Ok(response)
                if response.status() != StatusCode::BAD_REQUEST && !is_https(self.target(&response)) =>
            {
                http
            }
            _ => self.transport.registry.base("https"),
        }
    }

    /// Has credentials looked up again, as after a refusal.
    #[cfg(test)]
    pub(super) fn doubt(&self) {
        self.authorization.doubt(&self.transport);
    }

    /// Asks the registry whether it takes the credentials.
    pub(super) async fn check_login(&self) -> Result<LoginOutcome> {
        self.base().await?;
        let scopes = Scopes::none();
        let response = self.send(&Call::new(Method::GET, "v2/", scopes.clone())).await?;
        if self.target(&response)?.is_some() {
            return Err(self.transport.protocol("it leads elsewhere; log in to the registry itself"));
        }
        match response.status() {
            status if status.is_success() && self.authorization.is_open() => Ok(LoginOutcome::NotAsked),
            status if status.is_success() => Ok(LoginOutcome::Accepted),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(self.transport.unauthorized("this login is not accepted"))
            }
            status if retry::is_passing(status) => Err(self.passing(&response)),
            status => Err(self.transport.protocol(format!("status {} to a login", status.as_u16()))),
        }
    }

    /// The URL of a path, with query, below the registry's base.
    pub(super) async fn url(&self, path: &str) -> Result<Url> {
        Ok(resolve(self.base().await?, path))
    }

    /// Whether a place that the registry sends us to has a credential of ours in it: a gateway may have written it there, and
    /// nobody else must come to see it.
    pub(super) async fn is_ours(&self, target: &Url, scopes: &Scopes) -> Result<bool> {
        Ok(self.ticket(scopes).await?.is_some_and(|ticket| ticket.is_in(target)))
    }

    /// What a request with these scopes is sent with.
    pub(super) async fn ticket(&self, scopes: &Scopes) -> Result<Option<Ticket>> {
        let base = self.base().await?;
        match self.authorization.ticket(&self.transport, base, scopes).await {
            // It may have been mended since.
            Err(_) if self.authorization.is_unmet() => {
                self.ask(base).await?;
                self.authorization.ticket(&self.transport, base, scopes).await
            }
            outcome => outcome,
        }
    }

    /// Sends a call, with a new token where the old one is refused. Any answer is an answer.
    pub(super) async fn send(&self, call: &Call<'_>) -> Result<Response> {
        self.dispatch(call, |request| self.transport.exchange(request)).await
    }

    /// Sends a call with a stream for a body: once, since a stream cannot be had again.
    pub(super) async fn send_stream(&self, call: Call<'_>, bytes: ByteStream) -> Result<Response> {
        let bytes = std::sync::Mutex::new(Some(bytes));
        self.dispatch(&call.once(), |request| {
            let bytes = bytes.lock().ok().and_then(|mut bytes| bytes.take());
            let bytes = bytes.unwrap_or_else(|| Box::pin(futures_util::stream::empty()));
            async move { self.transport.upload(request, bytes).await }
        })
        .await
    }

    async fn dispatch<F, T>(&self, call: &Call<'_>, send: F) -> Result<Response>
    where
        F: Fn(reqwest::RequestBuilder) -> T,
        T: Future<Output = Result<Response>>,
    {
        let base = self.base().await?;
        let url = match &call.place {
            Place::Path(path) => resolve(base, path),
            Place::Url(url) => url.clone(),
        };
        let is_own = redirect::same_origin(base, &url);
        let client =
            if is_own { self.transport.own().await } else { self.transport.elsewhere(base, &url).await? };
        let authorized = is_own && call.authorized;
        let mut ticket = if authorized { self.ticket(&call.scopes).await? } else { None };
        let mut renewed = false;
        loop {
            let attempt = || {
                let mut headers = call.headers.clone();
                headers.extend(ticket.as_ref().map(Ticket::header));
                let request = client.request(call.method.clone(), url.clone()).headers(headers);
                send(match &call.body {
                    Some(body) => request.body(body.clone()),
                    None => request,
                })
            };
            let response =
                if call.repeatable { self.transport.repeat(attempt).await? } else { attempt().await? };
            if is_own {
                self.transport.answered(&response);
            }
            let may_be_stale = match response.status() {
                StatusCode::UNAUTHORIZED => true,
                // ECR's word for a token, and for a password, that has run out.
                StatusCode::FORBIDDEN => ticket.as_ref().is_some_and(|ticket| ticket.cached),
                _ => false,
            };
            if !authorized || renewed || !may_be_stale {
                return Ok(response);
            }
            let headers = response.headers().clone();
            let other = self
                .authorization
                .renew(&self.transport, base, &call.scopes, ticket.as_ref(), &headers)
                .await?;
            // A stream is gone; the new token is there for whoever tries again.
            if !call.repeatable || Ticket::is_same(other.as_ref(), ticket.as_ref()) {
                return Ok(response);
            }
            ticket = other;
            renewed = true;
        }
    }

    /// Sends a call that changes nothing, and goes where redirects lead.
    pub(super) async fn get(&self, call: Call<'_>) -> Result<Response> {
        let response = self.send(&call).await?;
        self.follow(call, response).await
    }

    /// Goes where an answer to `call` leads, and on from there.
    pub(super) async fn follow(&self, mut call: Call<'_>, mut response: Response) -> Result<Response> {
        let base = self.base().await?;
        for _ in 0..MAX_REDIRECTS {
            let Some(target) = self.target(&response)? else { return Ok(response) };
            let from = response.url().clone();
            if !redirect::same_origin(base, &target) {
                // What comes after is no business of the registry's.
                call.authorized = false;
                self.transport.elsewhere(&from, &target).await?;
            } else if from.scheme() == "https" && target.scheme() == "http" {
                return Err(self.transport.astray(RedirectError::Downgrade));
            }
            call.place = Place::Url(target);
            response = self.send(&call).await?;
        }
        match self.target(&response)? {
            Some(_) => Err(self.transport.astray(RedirectError::TooMany)),
            None => Ok(response),
        }
    }

    /// Sends a call that changes something. It stays within the registry's origin, and is repeated as it is (307, 308) alone.
    pub(super) async fn write(&self, mut call: Call<'_>) -> Result<Response> {
        let base = self.base().await?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(&call).await?;
            let is_same =
                matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            match self.target(&response)? {
                Some(target) if is_same && redirect::same_origin(base, &target) => {
                    call.place = Place::Url(target);
                }
                Some(_) => {
                    return Err(self
                        .transport
                        .protocol("it leads a request that changes something elsewhere"));
                }
                None => return Ok(response),
            }
        }
        Err(self.transport.astray(RedirectError::TooMany))
    }

    /// Where an answer leads; `None` where it is no redirect.
    pub(super) fn target(&self, response: &Response) -> Result<Option<Url>> {
        if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        self.location(response)?.map(Some).ok_or_else(|| self.transport.protocol("it redirects to nowhere"))
    }

    /// The `Location` of an answer, relative to the URL that was asked.
    pub(super) fn location(&self, response: &Response) -> Result<Option<Url>> {
        let Some(value) = response.headers().get(LOCATION) else { return Ok(None) };
        let text = value.to_str().ok();
        text.and_then(|text| response.url().join(text).ok())
            .map(Some)
            .ok_or_else(|| self.transport.protocol("its Location header is no URL"))
    }

    /// The error that an answer without success stands for.
    pub(super) async fn failure(
        &self,
        response: Response,
        scopes: &Scopes,
        purpose: Purpose<'_>,
    ) -> RegistryError {
        let status = response.status();
        if retry::is_passing(status) {
            return self.passing(&response);
        }
        if status == StatusCode::UNAUTHORIZED {
            // The token is good, and this is not among what anybody gets one for (RFC 6750 section 3.1).
            if matches!(purpose.subject, Subject::Catalog) && lacks_scope(response.headers()) {
                return RegistryError::NoCatalog;
            }
            return self.authorization.refusal(&self.transport, scopes).await;
        }
        let codes = match self.transport.body(response, MAX_ERROR_BODY).await {
            Ok(body) => read_error_codes(&body),
            // What the status says is known, whatever the body holds.
            Err(_) => Vec::new(),
        };
        let has = |wanted: ErrorCode| codes.iter().any(|(code, _)| *code == wanted);
        let (operation, registry) = (purpose.operation, self.transport.registry.to_string());
        let missing = codes.iter().find_map(|(code, digest)| match code {
            ErrorCode::ManifestBlobUnknown => digest.clone(),
            _ => None,
        });
        if let Some(digest) = missing {
            return RegistryError::ManifestBlobUnknown(digest);
        }
        match status {
            StatusCode::NOT_FOUND => match purpose.subject {
                Subject::Catalog => RegistryError::NoCatalog,
                Subject::Manifest(repository, _)
                | Subject::Blob(repository, _)
                | Subject::Repository(repository)
                | Subject::Upload(repository)
                    if has(ErrorCode::NameUnknown) =>
                {
                    RegistryError::RepositoryUnknown(repository.to_string())
                }
                Subject::Manifest(repository, reference) => RegistryError::ManifestUnknown {
                    repository: repository.to_string(),
                    reference: reference.to_string(),
                },
                Subject::Blob(_, digest) => RegistryError::BlobUnknown(digest.clone()),
                Subject::Upload(_) => RegistryError::UploadUnknown,
                Subject::Repository(repository) => RegistryError::RepositoryUnknown(repository.to_string()),
            },
            StatusCode::FORBIDDEN => RegistryError::Denied { registry, operation: operation.to_owned() },
            StatusCode::PAYLOAD_TOO_LARGE => {
                RegistryError::SizeRefused { registry, operation: operation.to_owned() }
            }
            StatusCode::INSUFFICIENT_STORAGE => {
                RegistryError::Full { registry, operation: operation.to_owned() }
            }
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                RegistryError::Unsupported { operation }
            }
            _ if has(ErrorCode::Unsupported) => RegistryError::Unsupported { operation },
            status => {
                let named: Vec<_> = codes.iter().map(|(code, _)| code.as_str()).collect();
                let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
                self.transport.protocol(format!("status {}{named} to {operation}", status.as_u16()))
            }
        }
    }

    /// The error of a failure that may pass.
    fn passing(&self, response: &Response) -> RegistryError {
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            let registry = self.transport.registry.to_string();
            return RegistryError::TooManyRequests {
                registry,
                retry_after: retry::asked_wait(response.headers()),
            };
        }
        self.transport.unavailable(format!("it answers with status {}", response.status().as_u16()))
    }
}

/// Whether a challenge says that the token was not given for what was asked.
fn lacks_scope(headers: &HeaderMap) -> bool {
    let mut challenges = headers.get_all(WWW_AUTHENTICATE).iter();
    challenges.any(|value| value.to_str().is_ok_and(|text| text.contains("insufficient_scope")))
}

/// A path, with query, below the registry's base.
fn resolve(base: &Url, path: &str) -> Url {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(query);
    url
}

/// The specification's error body ("Error Codes").
#[derive(Deserialize)]
struct ErrorBody {
    errors: Vec<ErrorEntry>,
}

#[derive(Deserialize)]
struct ErrorEntry {
    code: Option<String>,
    detail: Option<serde_json::Value>,
}

/// How many errors of one answer are looked at.
const MAX_ERRORS: usize = 8;

/// The codes that the specification knows, with the digest that `detail` names.
fn read_error_codes(body: &[u8]) -> Vec<(ErrorCode, Option<Digest>)> {
    let Ok(body) = serde_json::from_slice::<ErrorBody>(body) else { return Vec::new() };
    let digest = |detail: &serde_json::Value| {
        let text =
            detail.as_str().or_else(|| ["digest", "Digest"].iter().find_map(|key| detail.get(key)?.as_str()));
        text?.parse().ok()
    };
    let known = |entry: ErrorEntry| {
        Some((ErrorCode::from_text(&entry.code?)?, entry.detail.as_ref().and_then(digest)))
    };
    body.errors.into_iter().take(MAX_ERRORS).filter_map(known).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn error_bodies_are_read_for_codes_alone() {
        let digest = Digest::of(b"x");
        let body = format!(
            r#"{{"errors":[{{"code":"MANIFEST_BLOB_UNKNOWN","message":"m","detail":"{digest}"}},
                {{"code":"NAME_UNKNOWN","detail":{{"digest":"{digest}"}}}},{{"code":"OWN"}},{{}}]}}"#
        );
        let codes = read_error_codes(body.as_bytes());
        assert_eq!(codes[0], (ErrorCode::ManifestBlobUnknown, Some(digest.clone())));
        assert_eq!(codes[1], (ErrorCode::NameUnknown, Some(digest)));
        assert_eq!(codes.len(), 2);
        for nothing in ["", "<html>", "[]", r#"{"errors":7}"#, r#"{"errors":null}"#] {
            assert!(read_error_codes(nothing.as_bytes()).is_empty());
        }
    }

    #[test]
    fn a_path_stays_below_the_base() {
        let base: Url = "https://registry.example/".parse().unwrap();
        assert_eq!(
            resolve(&base, "v2/a/tags/list?n=1").as_str(),
            "https://registry.example/v2/a/tags/list?n=1"
        );
        assert_eq!(resolve(&base, "//evil.example/v2").host_str(), Some("registry.example"));
    }
}
