//! A line in the log for each request, written when its answer has gone out or has broken off.
//!
//! It says the route and not the path, and nothing of the query or the headers: there are tokens and signed links in them. The one
//! exception is what a download is asked with, shortened to a product's name and version. The same numbers go to the metrics.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use tracing::{Instrument, Span};

use super::App;
use super::limits::Turn;
use super::metrics::{Ended, Metrics, Present};

/// What is said of a request once its answer has gone out or has broken off.
#[derive(Clone, Debug)]
pub struct RequestLine<'a> {
    /// What names it in our log and in that of a proxy before us.
    pub id: &'a str,
    /// The name of the caller's token, where there was one.
    pub token: Option<&'a str>,
    /// As it came.
    pub method: &'a str,
    /// The router's pattern, or what is more exact than that.
    pub route: &'a str,
    /// Of the answer.
    pub status: u16,
    /// To the end of the answer.
    pub duration: Duration,
    /// Bytes of the answer's body.
    pub bytes: u64,
    /// Bytes of the request's body.
    pub received: u64,
    /// Whether the answer came to its end.
    pub complete: bool,
}

/// Where the lines of requests go.
pub trait RequestLog: Send + Sync {
    /// Takes one. A request waits for this.
    fn write(&self, line: &RequestLine<'_>);
}

impl fmt::Debug for dyn RequestLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RequestLog")
    }
}

/// The name of the caller's token, once it is known whose request it is.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenName(Arc<OnceLock<Box<str>>>);

impl TokenName {
    /// Whatever is logged of the request from now on has the name.
    pub(super) fn set(&self, name: &str) {
        let _ = self.0.set(name.into());
        Span::current().record("token", name);
    }
}

/// Names the request in our log and in that of a proxy before us.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A product's name and version are some 20 characters long.
const MAX_CLIENT: usize = 64;

/// The route that a request took, where the router's own word for it is too coarse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route(pub(super) &'static str);

/// Gives the request an id, and its answer a line in the log.
pub(super) async fn log(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let present = app.metrics.request_begins();
    let method = request.method().clone();
    let id = request_id(request.headers());
    let token = TokenName::default();
    request.extensions_mut().insert(token.clone());
    let matched = request.extensions().get::<MatchedPath>().map(|path| Arc::from(path.as_str()));
    // Of the highest importance, so that whatever is logged of a request has its id.
    let span =
        tracing::error_span!("request", id = id.to_str().unwrap_or_default(), token = tracing::field::Empty);
    let (request, received) = counted(request);

    let mut response = next.run(request).instrument(span.clone()).await;
    response.headers_mut().insert(REQUEST_ID, id.clone());
    let route = response.extensions().get::<Route>().map(|route| Arc::from(route.0)).or(matched);
    let turn = response.extensions_mut().remove::<Turn>();
    let length = response.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let has_no_body = method == Method::HEAD || response.body().is_end_stream();
    let line = Line {
        span,
        id,
        token,
        route: route.unwrap_or_else(|| Arc::from("none")),
        status: response.status(),
        length: length.and_then(|length| length.parse().ok()),
        bytes: 0,
        received,
        complete: has_no_body,
        method,
        started,
        until_headers: started.elapsed(),
        metrics: Arc::clone(&app.metrics),
        log: app.options.request_log.clone(),
        _held: (present, turn),
    };
    response.map(|body| Body::new(LoggedBody { body, line }))
}

/// The request with its body counted, where it has one.
fn counted(request: Request) -> (Request, Option<Arc<AtomicU64>>) {
    if request.body().is_end_stream() {
        return (request, None);
    }
    let bytes = Arc::new(AtomicU64::new(0));
    let received = Arc::clone(&bytes);
    (request.map(|body| Body::new(ReceivedBody { body, bytes })), Some(received))
}

/// What a download is of, by its name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Product<'a> {
    Module(&'a str),
    Provider(&'a str),
}

/// A zip was asked for and its link given, or those of a provider's version: who, what, and with what.
pub(super) struct Download<'a> {
    /// The name of the caller's token, as the access file has it; `None` where nobody had to say who they are.
    pub(super) token: Option<&'a str>,
    /// Whose it is, and what: names of something that is there.
    pub(super) namespace: &'a str,
    pub(super) product: Product<'a>,
    /// Its version, as it was asked for.
    pub(super) version: &'a str,
}

/// Logs and counts a download. All but the client are names of what there is, and what is logged as a field is written quoted and escaped
/// in both formats, so that nobody makes lines or fields of their own.
pub(super) fn download(app: &App, headers: &HeaderMap, download: &Download<'_>) {
    let Download { token, namespace, product, version } = download;
    let (token, client) = (token.unwrap_or("none"), client(headers));
    match product {
        Product::Module(module) => tracing::info!(token, module, version, client, "download"),
        Product::Provider(provider) => tracing::info!(token, provider, version, client, "download"),
    }
    app.metrics.downloaded(*product, namespace);
}

/// The product that asks, as `OpenTofu/1.12.6`: the first word of `User-Agent`, and nothing that could be more than a name.
fn client(headers: &HeaderMap) -> &str {
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let product = agent.split([' ', '(', ';']).next().unwrap_or_default();
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./+".contains(&byte);
    let end = product.bytes().take(MAX_CLIENT).take_while(|byte| is_fine(*byte)).count();
    // What was counted is ASCII.
    product.get(..end).filter(|client| !client.is_empty()).unwrap_or("none")
}

/// What names a request: what a proxy calls it, or something new.
pub(super) fn request_id(headers: &HeaderMap) -> HeaderValue {
    headers.get(REQUEST_ID).filter(|id| is_id(id)).cloned().unwrap_or_else(new_id)
}

/// An id of a proxy is taken over if it can be nothing else than an id.
fn is_id(id: &HeaderValue) -> bool {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    (1..=64).contains(&id.len()) && id.as_bytes().iter().all(is_fine)
}

/// Another id for each request of this process, and hardly ever one of another process: a random number, and a count from there on.
/// Nothing depends on nobody guessing it.
fn new_id() -> HeaderValue {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let mut random = [0_u8; 8];
        // Without random numbers processes have ids in common, which is a nuisance and no danger.
        let _ = getrandom::fill(&mut random);
        AtomicU64::new(u64::from_ne_bytes(random))
    });
    // An odd factor leaves each number to one id, and no two that follow look alike.
    let number = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    HeaderValue::from_str(&format!("{number:016x}")).unwrap_or(HeaderValue::from_static("-"))
}

/// What is known of an answer; the line is written when this is dropped.
struct Line {
    span: Span,
    id: HeaderValue,
    token: TokenName,
    method: Method,
    route: Arc<str>,
    status: StatusCode,
    started: Instant,
    until_headers: Duration,
    /// What the headers promise.
    length: Option<u64>,
    bytes: u64,
    /// What came of the request's body.
    received: Option<Arc<AtomicU64>>,
    complete: bool,
    metrics: Arc<Metrics>,
    log: Option<Arc<dyn RequestLog>>,
    /// What lasts as long as the answer.
    _held: (Present, Option<Turn>),
}

impl Drop for Line {
    fn drop(&mut self) {
        let (duration, complete) = (self.started.elapsed(), self.complete || self.length == Some(self.bytes));
        let received = self.received.as_ref().map_or(0, |bytes| bytes.load(Ordering::Relaxed));
        self.metrics.request_ends(&Ended {
            route: Arc::clone(&self.route),
            method: self.method.clone(),
            status: self.status,
            until_headers: self.until_headers,
            duration,
            request_bytes: received,
            response_bytes: self.bytes,
            complete,
        });
        if let Some(log) = &self.log {
            log.write(&RequestLine {
                id: self.id.to_str().unwrap_or_default(),
                token: self.token.0.get().map(|name| &**name),
                method: self.method.as_str(),
                route: &self.route,
                status: self.status.as_u16(),
                duration,
                bytes: self.bytes,
                received,
                complete,
            });
        }
    }
}

/// A request's body that counts what passes.
struct ReceivedBody {
    body: Body,
    bytes: Arc<AtomicU64>,
}

impl HttpBody for ReceivedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            self.bytes.fetch_add(length, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that counts what passes.
struct LoggedBody {
    body: Body,
    line: Line,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = {
            let this = &mut *self;
            let _entered = this.line.span.enter();
            Pin::new(&mut this.body).poll_frame(context)
        };
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                self.line.complete = self.body.is_end_stream();
            }
            Poll::Ready(Some(Err(error))) => {
                let _entered = self.line.span.enter();
                tracing::error!("the answer broke off: {error}");
            }
            Poll::Ready(None) => self.line.complete = true,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_nothing_but_an_id_is_taken_over() {
        for id in ["a", "7f3c-11_x.y", &"a".repeat(64)] {
            assert!(is_id(&HeaderValue::from_str(id).expect("visible ASCII")), "{id}");
        }
        for id in ["", "a b", "a=1", "\"", &"a".repeat(65)] {
            assert!(!is_id(&HeaderValue::from_str(id).expect("visible ASCII")), "{id}");
        }
        assert!(is_id(&new_id()));
        assert_ne!(new_id(), new_id());
    }

    #[test]
    fn a_client_is_a_product_s_name_and_nothing_else() {
        let of = |agent: &[u8]| {
            let agent = HeaderValue::from_bytes(agent).expect("a header's value");
            client(&HeaderMap::from_iter([(header::USER_AGENT, agent)])).to_owned()
        };
        assert_eq!(of(b"OpenTofu/1.12.6 (+https://opentofu.org) more"), "OpenTofu/1.12.6");
        assert_eq!(of(b"Terraform/1.11.4"), "Terraform/1.11.4");
        assert_eq!(of(b"x\" status=200 token=\"admin"), "x");
        assert_eq!(of(b"a\tb"), "a");
        assert_eq!(of(b"=x"), "none");
        assert_eq!(of("\u{202e}x".as_bytes()), "none");
        assert_eq!(of(&[b'a'; 1000]).len(), MAX_CLIENT);
        assert_eq!(client(&HeaderMap::new()), "none");
    }
}
