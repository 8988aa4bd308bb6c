//! A registry that has the ways of others: our own `/v2/` over a folder, behind a front that lists, redirects, refuses and forgets
//! as it is told to.
//!
//! What is stored is stored for real, so whatever comes through such a front can be compared with what was sent.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use ocimod::oci::Reference;
use ocimod::operations::install::Installer;
use ocimod::operations::routes::{RepositoryTemplate, Routes};
use ocimod::registry::SharedRegistry;
use ocimod::server::{self, App, DistributionRequest as Asked, ServerOptions};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The blobs of tests are small.
const MAX_BODY: usize = 64 << 20;

/// What a registry does in its own way. None of it by default.
#[derive(Clone, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a quirk of its own
pub(crate) struct Quirks {
    // Lists.
    /// No page has more entries than this, whatever `n` says.
    pub(crate) page_cap: Option<usize>,
    /// A larger `n` is answered with this status.
    pub(crate) largest_count: Option<(usize, u16)>,
    /// How a page names the next one.
    pub(crate) link: Link,
    /// `last` is a word that only the registry itself knows how to make.
    pub(crate) opaque_last: bool,
    /// `n` and `last` are not looked at.
    pub(crate) ignores_pages: bool,
    /// In no order that has a name.
    pub(crate) is_unordered: bool,
    /// A page begins with what the one before ended with.
    pub(crate) repeats: bool,
    /// What else stands among the tags.
    pub(crate) among_tags: Vec<Value>,
    /// The list of repositories is refused with this.
    pub(crate) no_catalog: Option<u16>,

    // Headers.
    /// No `Docker-Content-Digest`.
    pub(crate) no_digests: bool,
    /// No `Location` where a manifest or a blob was stored.
    pub(crate) no_created_location: bool,
    /// How the place of an upload is named.
    pub(crate) upload: UploadPlace,
    /// The length of a blob is not said with its bytes.
    pub(crate) no_lengths: bool,
    /// HEAD is answered with this.
    pub(crate) no_head: Option<u16>,

    // Refusals.
    /// What is not there is answered with 403.
    pub(crate) denies_unknown: bool,
    /// What is not there is answered with this code, or with a page for people.
    pub(crate) own_code: Option<&'static str>,
    /// Nothing can be deleted: this status.
    pub(crate) no_delete: Option<u16>,
    /// A repository has to be made before anything is pushed.
    pub(crate) made_first: bool,

    // Uploads.
    /// No PATCH: this status.
    pub(crate) no_chunks: Option<u16>,
    /// A request with a longer body is answered with 413.
    pub(crate) largest_body: Option<usize>,
    /// Every chunk but the last has to be as long as this.
    pub(crate) least_chunk: Option<usize>,
    /// A mount is answered with this.
    pub(crate) mount: Option<u16>,
    /// A mount has to name its source.
    pub(crate) no_anonymous_mount: bool,
    /// A blob without a byte is refused.
    pub(crate) no_empty_blobs: bool,

    // Referrers.
    /// There is no list of referrers: this status.
    pub(crate) no_referrers: Option<u16>,
    /// And it is said that there is one.
    pub(crate) claims_referrers: bool,
    /// A manifest whose subject is not there is refused.
    pub(crate) wants_subject: bool,

    // Blobs.
    /// Blobs are somewhere else, behind a signed URL that is good for GET alone: this status.
    pub(crate) redirects: Option<u16>,
    /// The first time that a blob is read, the connection is lost half-way.
    pub(crate) breaks_off: bool,
    /// Pieces of blobs are not known.
    pub(crate) ignores_ranges: bool,

    // Everything.
    /// Every so manyth request is answered with 429 or 503, and with a `Retry-After` of this form.
    pub(crate) patience: Option<(usize, u16, &'static str)>,
    /// Who asks has to show a token, which is good for so many requests and is then refused with this status.
    pub(crate) tokens: Option<(usize, u16)>,
    /// A token to read what is not there is refused with 403.
    pub(crate) denies_tokens: bool,
    /// Without a token a request other than the first is answered with a bare 401.
    pub(crate) no_late_challenge: bool,
}

/// How a page names the next one.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Link {
    /// `</v2/...?last=b&n=2>; rel="next"`
    #[default]
    Path,
    /// With scheme and host.
    Absolute,
    /// With another scheme and port, as behind a proxy that the registry knows nothing of.
    BehindProxy,
    /// The query alone, after a link to something else, and with quotes that nobody expects.
    Odd,
    /// Not at all: whoever wants more asks for what comes after the last one.
    None,
}

/// How the place of an upload is named.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum UploadPlace {
    /// `/v2/.../uploads/ID`
    #[default]
    Path,
    /// With scheme and host, and a query that has to come back as it is.
    AbsoluteWithState,
    /// `ID`, from where the request went.
    Relative,
    /// Outside of `/v2/`.
    Outside,
}

/// The query of [`UploadPlace::AbsoluteWithState`].
const STATE: &str = "_state=a%2Bb%2F%3D&x";

/// A registry on a free port, until it is dropped.
pub(crate) struct QuirkyRegistry {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// What is stored behind it.
    pub(crate) store: SharedRegistry,
    front: Arc<Front>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Drop for QuirkyRegistry {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl QuirkyRegistry {
    pub(crate) async fn start(quirks: Quirks) -> Self {
        let (folder, store) = crate::conformance::directory();
        let routes = Routes::new(Vec::new(), RepositoryTemplate::default());
        let installer = Installer::without_search(routes, None);
        let options = ServerOptions { distribution: true, ..ServerOptions::default() };
        let behind = server::router(Arc::new(App::new(store.clone(), installer, options)));
        let [(front_listener, own), (storage_listener, storage)] = [listen().await, listen().await];
        let front = Arc::new(Front {
            quirks,
            behind,
            store: store.clone(),
            own,
            storage,
            requests: Mutex::default(),
            broken: Mutex::default(),
            tokens: Mutex::default(),
            ended: Mutex::default(),
        });
        let answer = {
            let front = Arc::clone(&front);
            move |request: Request| {
                let front = Arc::clone(&front);
                async move { front.answer(request).await }
            }
        };
        let from_storage = {
            let front = Arc::clone(&front);
            move |request: Request| {
                let front = Arc::clone(&front);
                async move { front.stored(request).await }
            }
        };
        let tasks = vec![
            tokio::spawn(run(front_listener, Router::new().fallback(answer))),
            tokio::spawn(run(storage_listener, Router::new().fallback(from_storage))),
        ];
        Self { address: own.to_string(), store, front, tasks, _folder: folder }
    }

    /// Method and path of every request so far, forgotten afterwards.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.front.requests.lock().unwrap())
    }
}

async fn listen() -> (tokio::net::TcpListener, SocketAddr) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

async fn run(listener: tokio::net::TcpListener, router: Router) {
    axum::serve(listener, router).await.expect("the server runs");
}

struct Front {
    quirks: Quirks,
    behind: Router,
    store: SharedRegistry,
    own: SocketAddr,
    storage: SocketAddr,
    requests: Mutex<Vec<String>>,
    /// Blobs whose first transfer has been broken off.
    broken: Mutex<HashSet<String>>,
    /// The tokens that were given, and how often each may still be shown.
    tokens: Mutex<HashMap<String, usize>>,
    /// Uploads that had a chunk which could only be their last.
    ended: Mutex<HashSet<String>>,
}

fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let builder = headers
        .iter()
        .fold(Response::builder().status(status), |builder, (name, value)| builder.header(*name, *value));
    builder.body(body.into()).unwrap()
}

fn refusal(status: u16, code: &str) -> Response<Body> {
    let body = json!({"errors": [{"code": code, "message": "no", "detail": null}]}).to_string();
    reply(status, &[("content-type", "application/json")], body)
}

/// A request without its body, and the body.
struct Come {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Front {
    async fn answer(&self, request: Request) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, MAX_BODY).await.unwrap_or_default();
        // Who takes this for a proxy asks for a whole URL; where it leads is settled.
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = path.parse().expect("a path");
        let mut come = Come { method: parts.method, uri, headers: parts.headers, body };
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(format!("{} {}", come.method, come.uri));
            requests.len()
        };
        let quirks = &self.quirks;
        if let Some((every, status, after)) = quirks.patience
            && number.is_multiple_of(every)
        {
            return reply(
                status,
                &[("retry-after", after), ("date", "Fri, 31 Dec 2027 23:59:59 GMT")],
                "later",
            );
        }
        if quirks.denies_tokens && come.uri.path() == "/token" && self.is_for_nothing(&come).await {
            return refusal(403, "DENIED");
        }
        if let Some(answer) = self.tokens(&come) {
            return answer;
        }
        if quirks.largest_body.is_some_and(|largest| come.body.len() > largest) {
            return reply(413, &[], "<html>413 Request Entity Too Large</html>");
        }
        if let Err(answer) = self.inward(&mut come) {
            return *answer;
        }
        let (path, query) = (come.uri.path().to_owned(), come.uri.query().map(str::to_owned));
        let Ok(asked) = Asked::parse(&come.method, &path, query.as_deref()) else {
            return self.pass(&come).await;
        };
        let mut answer = self.asked(&asked, &come).await;
        if answer.status() == StatusCode::NOT_FOUND {
            if quirks.denies_unknown {
                answer = refusal(403, "DENIED");
            } else if let Some(code) = quirks.own_code {
                answer = if code.starts_with('<') { reply(404, &[], code) } else { refusal(404, code) };
            }
        }
        if come.method == Method::HEAD {
            *answer.body_mut() = Body::empty();
        }
        answer
    }

    /// Whether a token is asked for to read what is not there.
    async fn is_for_nothing(&self, come: &Come) -> bool {
        let query = come.uri.query().unwrap_or_default();
        let scopes = url::form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "scope");
        let registry: &dyn ocimod::registry::Registry = &*self.store;
        let there = registry.all_repositories(1000).await.unwrap();
        let mut repositories = scopes.filter_map(|(_, scope)| {
            Some(scope.strip_prefix("repository:")?.strip_suffix(":pull")?.to_owned())
        });
        repositories.any(|wanted| !there.iter().any(|known| known.as_str() == wanted))
    }

    /// What the request is answered with before anybody looks at it, where a token is wanted.
    fn tokens(&self, come: &Come) -> Option<Response<Body>> {
        let (uses, refused) = self.quirks.tokens?;
        let path = come.uri.path();
        let mut tokens = self.tokens.lock().unwrap();
        if path == "/token" {
            let token = format!("t{}", tokens.len());
            tokens.insert(format!("Bearer {token}"), uses);
            return Some(reply(200, &[], json!({"token": token, "expires_in": 3600}).to_string()));
        }
        let given = come.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let challenge = format!(r#"Bearer realm="http://{}/token",service="quirky""#, self.own);
        match given.and_then(|given| tokens.get_mut(given)) {
            Some(left) if *left > 0 => {
                *left -= 1;
                None
            }
            Some(_) if refused == 403 => Some(refusal(403, "DENIED")),
            None if self.quirks.no_late_challenge && path != "/v2/" => Some(reply(401, &[], "")),
            _ => Some(reply(401, &[("www-authenticate", &challenge)], "")),
        }
    }

    /// Brings the place of an upload back into the form that the server behind knows.
    fn inward(&self, come: &mut Come) -> Result<(), Box<Response<Body>>> {
        let text = come.uri.to_string();
        let inner = match self.quirks.upload {
            UploadPlace::Outside => text.replace("/elsewhere/", "/v2/"),
            UploadPlace::AbsoluteWithState if is_upload(&come.uri) => {
                let Some((path, rest)) = text.split_once(&format!("?{STATE}")) else {
                    return Err(Box::new(refusal(400, "BLOB_UPLOAD_INVALID")));
                };
                match rest.strip_prefix('&') {
                    Some(rest) => format!("{path}?{rest}"),
                    None => path.to_owned(),
                }
            }
            _ => text,
        };
        come.uri = inner.parse().expect("a path");
        Ok(())
    }

    /// The place of an upload in the form of this registry.
    fn outward(&self, answer: &mut Response<Body>) {
        let headers = answer.headers_mut();
        if let Some(least) = self.quirks.least_chunk {
            headers.insert("oci-chunk-min-length", least.into());
        }
        let Some(path) = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()) else { return };
        let place = match self.quirks.upload {
            UploadPlace::Path => return,
            UploadPlace::AbsoluteWithState => format!("http://{}{path}?{STATE}", self.own),
            UploadPlace::Relative => path.rsplit('/').next().unwrap_or_default().to_owned(),
            UploadPlace::Outside => path.replacen("/v2/", "/elsewhere/", 1),
        };
        headers.insert(header::LOCATION, place.parse().unwrap());
    }

    async fn asked(&self, asked: &Asked, come: &Come) -> Response<Body> {
        let quirks = &self.quirks;
        let status = |status: u16| refusal(status, "UNSUPPORTED");
        if come.method == Method::HEAD
            && let Some(refused) = quirks.no_head
        {
            return status(refused);
        }
        if come.method == Method::DELETE
            && !is_upload(&come.uri)
            && let Some(refused) = quirks.no_delete
        {
            return status(refused);
        }
        let is_push = matches!(
            asked,
            Asked::OpenUpload { .. }
                | Asked::PutManifest { .. }
                | Asked::PushBlob { .. }
                | Asked::Mount { .. }
        );
        if quirks.made_first && is_push && !self.is_made(asked).await {
            return refusal(404, "NAME_UNKNOWN");
        }
        match asked {
            Asked::Catalog(_) if quirks.no_catalog.is_some() => {
                let mut refused = refusal(quirks.no_catalog.unwrap(), "DENIED");
                if refused.status() == StatusCode::UNAUTHORIZED {
                    // The token is right, and good for something else.
                    let challenge = format!(
                        r#"Bearer realm="http://{}/token",service="quirky",scope="registry:catalog:*",error="insufficient_scope""#,
                        self.own
                    );
                    refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.parse().unwrap());
                }
                refused
            }
            Asked::Catalog(_) => self.list(come, "repositories").await,
            Asked::Tags { .. } => self.list(come, "tags").await,
            Asked::PutManifest { .. } => self.put_manifest(come).await,
            Asked::Manifest { .. } => {
                let mut answer = self.pass(come).await;
                self.forget_headers(&mut answer);
                answer
            }
            Asked::Blob { .. } => self.blob(asked, come).await,
            Asked::Mount { from, .. } => match quirks.mount {
                Some(refused) if refused != 202 => status(refused),
                _ if quirks.no_anonymous_mount && from.is_none() => refusal(400, "UNSUPPORTED"),
                refused => {
                    let mut come = Come { uri: come.uri.clone(), ..come.copy() };
                    if refused.is_some() {
                        come.uri = come.uri.path().parse().expect("a path");
                    }
                    let mut answer = self.pass(&come).await;
                    if answer.status() == StatusCode::ACCEPTED {
                        self.outward(&mut answer);
                    }
                    answer
                }
            },
            Asked::AppendUpload { .. } if quirks.no_chunks.is_some() => status(quirks.no_chunks.unwrap()),
            Asked::OpenUpload { .. }
            | Asked::AppendUpload { .. }
            | Asked::UploadStatus { .. }
            | Asked::FinishUpload { .. } => self.upload(asked, come).await,
            Asked::Referrers { .. } if quirks.no_referrers.is_some() => {
                // An endpoint that is not there has no codes of the specification either.
                reply(quirks.no_referrers.unwrap(), &[("content-type", "text/plain")], "404 page not found")
            }
            _ => self.pass(come).await,
        }
    }

    async fn is_made(&self, asked: &Asked) -> bool {
        let (Asked::OpenUpload { repository, .. }
        | Asked::PutManifest { repository, .. }
        | Asked::PushBlob { repository, .. }
        | Asked::Mount { repository, .. }) = asked
        else {
            return true;
        };
        let registry: &dyn ocimod::registry::Registry = &*self.store;
        registry.all_repositories(1000).await.unwrap().contains(repository)
    }

    async fn upload(&self, asked: &Asked, come: &Come) -> Response<Body> {
        let quirks = &self.quirks;
        if quirks.no_empty_blobs
            && let Asked::FinishUpload { digest, .. } = asked
            && *digest == ocimod::oci::Digest::of(b"")
        {
            return refusal(400, "BLOB_UPLOAD_INVALID");
        }
        if let (Asked::AppendUpload { .. }, Some(least)) = (asked, quirks.least_chunk) {
            let mut ended = self.ended.lock().unwrap();
            let upload = come.uri.path().to_owned();
            if ended.contains(&upload) {
                return refusal(400, "BLOB_UPLOAD_INVALID");
            }
            if come.body.len() < least {
                ended.insert(upload);
            }
        }
        let mut answer = self.pass(come).await;
        if answer.status() == StatusCode::ACCEPTED || answer.status() == StatusCode::NO_CONTENT {
            self.outward(&mut answer);
        }
        self.forget_headers(&mut answer);
        answer
    }

    async fn put_manifest(&self, come: &Come) -> Response<Body> {
        let quirks = &self.quirks;
        let manifest: Value = serde_json::from_slice(&come.body).unwrap_or_default();
        let subject = manifest["subject"]["digest"].as_str();
        if let Some(subject) = subject.filter(|_| quirks.wants_subject) {
            let path = come.uri.path();
            let repository = path.trim_start_matches("/v2/").split("/manifests/").next().unwrap();
            let reference = Reference::Digest(subject.parse().unwrap());
            if self.store.manifest_head(&repository.parse().unwrap(), &reference).await.is_err() {
                return refusal(404, "MANIFEST_UNKNOWN");
            }
        }
        let mut answer = self.pass(come).await;
        if quirks.no_referrers.is_some() && !quirks.claims_referrers {
            answer.headers_mut().remove("oci-subject");
        }
        self.forget_headers(&mut answer);
        answer
    }

    /// Leaves out the headers that this registry does not send.
    fn forget_headers(&self, answer: &mut Response<Body>) {
        let created = answer.status() == StatusCode::CREATED;
        let headers = answer.headers_mut();
        if self.quirks.no_digests {
            headers.remove("docker-content-digest");
        }
        if self.quirks.no_created_location && created {
            headers.remove(header::LOCATION);
        }
    }

    /// A page of a list, made of the whole.
    async fn list(&self, come: &Come, field: &str) -> Response<Body> {
        let quirks = &self.quirks;
        let whole = self.pass(&Come { uri: come.uri.path().parse().expect("a path"), ..come.copy() }).await;
        if !whole.status().is_success() {
            return whole;
        }
        let bytes = axum::body::to_bytes(whole.into_body(), MAX_BODY).await.unwrap();
        let mut answered: Value = serde_json::from_slice(&bytes).unwrap();
        let mut entries: Vec<String> = answered[field]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| entry.as_str().unwrap().to_owned())
            .collect();
        if quirks.is_unordered {
            // Every other one first.
            let (one, other): (Vec<_>, Vec<_>) =
                entries.drain(..).enumerate().partition(|(index, _)| index % 2 == 1);
            entries.extend(one.into_iter().chain(other).map(|(_, entry)| entry));
        }
        let query = |name: &str| {
            let pairs = url::form_urlencoded::parse(come.uri.query().unwrap_or_default().as_bytes());
            pairs.into_owned().find(|(key, _)| key == name).map(|(_, value)| value)
        };
        let count = query("n").map(|count| count.parse::<usize>().unwrap());
        if let (Some((largest, status)), Some(count)) = (quirks.largest_count, count)
            && count > largest
        {
            return refusal(status, "UNSUPPORTED");
        }
        let mut next = None;
        if !quirks.ignores_pages {
            let start = match query("last") {
                None => 0,
                Some(last) if quirks.opaque_last => match last.strip_prefix("after/") {
                    Some(index) => index.trim_end_matches('=').parse().unwrap(),
                    None => return refusal(400, "UNSUPPORTED"),
                },
                Some(last) => entries.iter().filter(|entry| **entry <= last).count(),
            };
            let length = count.unwrap_or(usize::MAX).min(quirks.page_cap.unwrap_or(usize::MAX));
            let end = start.saturating_add(length).min(entries.len());
            if end < entries.len() && length > 0 {
                let last =
                    if quirks.opaque_last { format!("after/{end}==") } else { entries[end - 1].clone() };
                next = Some((last, length));
            }
            let first = if quirks.repeats { start.saturating_sub(1) } else { start };
            entries = entries.drain(first.min(end)..end).collect();
        }
        let others = if field == "tags" { &quirks.among_tags[..] } else { &[] };
        answered[field] = entries.into_iter().map(Value::from).chain(others.iter().cloned()).collect();
        let mut answer = reply(200, &[("content-type", "application/json")], answered.to_string());
        if let Some((last, length)) = next {
            self.link(&mut answer, come.uri.path(), &last, length);
        }
        answer
    }

    fn link(&self, answer: &mut Response<Body>, path: &str, last: &str, length: usize) {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let query = query.append_pair("last", last).append_pair("n", &length.to_string()).finish();
        let link = match self.quirks.link {
            Link::Path => format!(r#"<{path}?{query}>; rel="next""#),
            Link::Absolute => format!(r#"<http://{}{path}?{query}>; rel="next""#, self.own),
            Link::BehindProxy => format!(r#"<https://127.0.0.1:8443{path}?{query}>; rel="next""#),
            Link::Odd => format!("<{path}>; rel=\"first\"; title=\"a, b\" , <?{query}> ; Rel='prev next'"),
            Link::None => return,
        };
        answer.headers_mut().insert(header::LINK, link.parse().unwrap());
    }

    async fn blob(&self, asked: &Asked, come: &Come) -> Response<Body> {
        let Asked::Blob { digest, head, .. } = asked else { return reply(500, &[], "") };
        let quirks = &self.quirks;
        let mut come = come.copy();
        if quirks.ignores_ranges {
            come.headers.remove(header::RANGE);
        }
        if let Some(status) = quirks.redirects {
            let known = self.pass(&Come { method: Method::HEAD, ..come.copy() }).await;
            if !known.status().is_success() {
                return known;
            }
            let url = format!("http://{}{}?X-Sig=s3cret", self.storage, come.uri.path());
            return reply(status, &[("location", &url)], "");
        }
        let mut answer = self.pass(&come).await;
        self.forget_headers(&mut answer);
        if *head {
            return answer;
        }
        self.of_blob(digest.as_str(), answer).await
    }

    /// The body of a blob as this registry, or its storage, sends it.
    async fn of_blob(&self, digest: &str, answer: Response<Body>) -> Response<Body> {
        if !answer.status().is_success() {
            return answer;
        }
        let (mut parts, body) = answer.into_parts();
        let bytes = axum::body::to_bytes(body, MAX_BODY).await.unwrap();
        if self.quirks.no_lengths {
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        let breaks = self.quirks.breaks_off
            && bytes.len() > 1
            && self.broken.lock().unwrap().insert(digest.to_owned());
        let body = if breaks {
            let half = bytes.slice(..bytes.len() / 2);
            let lost = stream::once(async {
                // A moment without anything more, in which what is there is sent.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("the connection is lost"))
            });
            Body::from_stream(stream::iter([Ok(half)]).chain(lost))
        } else if self.quirks.no_lengths {
            Body::from_stream(stream::iter([Ok::<_, std::io::Error>(bytes)]))
        } else {
            Body::from(bytes)
        };
        Response::from_parts(parts, body)
    }

    /// The storage behind the registry: a signed URL is good for GET, and for nobody who brings a second way to say who he is.
    async fn stored(&self, request: Request) -> Response<Body> {
        let (parts, _) = request.into_parts();
        let is_signed = parts.uri.query() == Some("X-Sig=s3cret");
        if parts.method != Method::GET || !is_signed {
            return reply(403, &[], "<Error><Code>SignatureDoesNotMatch</Code></Error>");
        }
        if parts.headers.contains_key(header::AUTHORIZATION) {
            return reply(400, &[], "<Error>Only one auth mechanism allowed</Error>");
        }
        let mut come = Come {
            method: Method::GET,
            uri: parts.uri.path().parse().expect("a path"),
            headers: parts.headers,
            body: Bytes::new(),
        };
        if self.quirks.ignores_ranges {
            come.headers.remove(header::RANGE);
        }
        let digest = come.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        let answer = self.pass(&come).await;
        self.of_blob(&digest, answer).await
    }

    /// What the server behind says.
    async fn pass(&self, come: &Come) -> Response<Body> {
        let mut request = Request::new(Body::from(come.body.clone()));
        *request.method_mut() = come.method.clone();
        *request.uri_mut() = come.uri.clone();
        *request.headers_mut() = come.headers.clone();
        // It is asked as what it is: the front may be known by another name.
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("127.0.0.1"));
        request.headers_mut().remove(header::AUTHORIZATION);
        self.behind.clone().oneshot(request).await.expect("a router always answers")
    }
}

impl Come {
    fn copy(&self) -> Self {
        Self {
            method: self.method.clone(),
            uri: self.uri.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
        }
    }
}

/// Whether a path is that of an upload that has begun.
fn is_upload(uri: &Uri) -> bool {
    uri.path().rsplit_once("/blobs/uploads/").is_some_and(|(_, upload)| !upload.is_empty())
}
