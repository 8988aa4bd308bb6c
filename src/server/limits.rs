//! What keeps one caller, or many at once, from taking the server from all the others: bounds in number and in time.
//!
//! Each bound is a setting. Requests beyond their number wait in a short queue and are then asked to come again; connections
//! beyond theirs are closed at once, since a connection that waits takes a file as much as one that is served. Time-outs for headers and
//! for pauses in a body stand in [`super`] and in [`super::connection`]; here is what they do not catch: a handler that is not
//! done, and a body that never pauses but comes a byte at a time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::App;
use super::error::ApiError;
use super::metrics::{Metrics, Present, Refusal};
use super::request_log::Route;

/// More connections than this are no ordinary use: a proxy needs some dozens, and each costs some 10 KiB.
const MOST_CONNECTIONS: usize = 4096;

/// Each request that is answered from a blob holds some 100 KiB of buffers, so this many hold 100 MiB.
const MOST_REQUESTS: usize = 1024;

/// Where the system does not say how many files may be open: what most give a process.
const USUAL_FILES: usize = 1024;

/// How long an answer's headers may take. Clients of modules give up after 10 s, those of images wait longer; a listing of ten thousand
/// tags from a slow registry takes some tens of seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a request waits for one of those before it to end: less than any client's patience, and enough for a burst.
const QUEUE_WAIT: Duration = Duration::from_secs(1);

/// 1 KiB a second over a minute. A modem is faster; 64 uploads at a byte a second would hold every turn of the embedded registry.
const PACE: Pace = Pace { window: Duration::from_mins(1), least: 60 * 1024 };

/// The bounds of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many requests are answered at a time.
    pub max_requests: usize,
    /// How many connections are open at a time.
    pub max_connections: usize,
    /// How long an answer's headers may take.
    pub request_timeout: Duration,
    /// What the registry behind `/v2/` takes of a blob: one whose length is known to be more is refused before it is read.
    pub max_blob: u64,
}

impl Default for Limits {
    /// Half of the files that may be open are for connections; a request opens one or two of its own, so a quarter of them bounds requests.
    fn default() -> Self {
        let files = open_files().map_or(USUAL_FILES, |files| usize::try_from(files).unwrap_or(usize::MAX));
        Self {
            max_requests: (files / 4).clamp(1, MOST_REQUESTS),
            max_connections: (files / 2).clamp(1, MOST_CONNECTIONS),
            request_timeout: REQUEST_TIMEOUT,
            max_blob: u64::MAX,
        }
    }
}

/// How many files the process may have open, where the system says it.
pub(super) fn open_files() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Lets a number of connections in.
#[derive(Clone)]
pub(super) struct Connections {
    places: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Connections {
    pub(super) fn new(most: usize, metrics: &Arc<Metrics>) -> Self {
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self { places, metrics: Arc::clone(metrics) }
    }

    /// A connection's place, until it is dropped; `None` where all are taken.
    pub(super) fn enter(&self) -> Option<Place> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(Place { _place: place, _present: self.metrics.connection_opens() });
        }
        self.metrics.refuse(Refusal::Connections);
        None
    }
}

/// The place of a connection among all others.
pub(super) struct Place {
    _place: OwnedSemaphorePermit,
    _present: Present,
}

/// Lets a number of requests in.
pub(super) struct Gate {
    turns: Arc<Semaphore>,
    queue: Semaphore,
    request_timeout: Duration,
    pace: Pace,
}

impl Gate {
    pub(super) fn new(limits: &Limits) -> Self {
        let permits = |count: usize| count.min(Semaphore::MAX_PERMITS);
        Self {
            turns: Arc::new(Semaphore::new(permits(limits.max_requests))),
            // As many may wait as are served: they take no longer than one turn each.
            queue: Semaphore::new(permits(limits.max_requests)),
            request_timeout: limits.request_timeout,
            pace: PACE,
        }
    }

    /// A request's turn; `None` where there is none to be had soon.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Some(turn);
        }
        let _place = self.queue.try_acquire().ok()?;
        timeout(QUEUE_WAIT, Arc::clone(&self.turns).acquire_owned()).await.ok()?.ok()
    }
}

/// A request's turn, on its way to the answer's body, which holds it to its end. An extension has to be clonable, hence the `Arc`.
#[derive(Clone, Debug)]
pub(super) struct Turn(#[allow(dead_code)] Arc<OwnedSemaphorePermit>); // what it does is to be dropped

/// Bounds requests in number and in time, and the pace of their bodies.
pub(super) async fn bound(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_probe = request.extensions().get::<MatchedPath>().is_some_and(|path| is_probe(path.as_str()));
    if is_probe {
        return next.run(request).await;
    }
    let brings_body = brings_body(&request);
    let Some(turn) = app.gate.turn().await else {
        app.metrics.refuse(Refusal::Busy);
        let response = ApiError::Busy.into_response();
        return if brings_body { closing(response) } else { response };
    };
    let is_upload = is_upload(request.method(), request.uri().path());
    let (request, progress) = paced(request, app.gate.pace);
    let answer = next.run(request);
    let mut response = if is_upload {
        answer.await
    } else if let Ok(response) = timeout(app.gate.request_timeout, answer).await {
        response
    } else {
        app.metrics.refuse(Refusal::SlowAnswer);
        ApiError::SlowAnswer.into_response()
    };
    if progress.as_ref().is_some_and(|body| body.is_slow()) && is_broken_body(&response) {
        app.metrics.refuse(Refusal::SlowBody);
        let route = response.extensions().get::<Route>().copied();
        response = ApiError::SlowBody.into_response();
        if let Some(route) = route {
            response.extensions_mut().insert(route);
        }
    }
    if brings_body && progress.is_some_and(|body| !body.is_read()) {
        response = closing(response);
    }
    response.extensions_mut().insert(Turn(Arc::new(turn)));
    response
}

/// What is asked when nothing else works: whoever restarts a server that has too much to do makes it worse.
fn is_probe(route: &str) -> bool {
    ["/healthz", "/readyz", "/metrics"].iter().any(|probe| route.ends_with(probe))
}

/// Whether a blob comes, which takes as long as it takes.
fn is_upload(method: &Method, path: &str) -> bool {
    !method.is_safe() && path.contains("/blobs/uploads/")
}

fn is_broken_body(response: &Response) -> bool {
    let error = response.extensions().get::<Arc<ApiError>>();
    error.is_some_and(|error| matches!(**error, ApiError::BrokenBody))
}

/// Whether a request says that a body follows on its connection. In HTTP/2 each has a stream of its own, which can be given up alone.
fn brings_body(request: &Request) -> bool {
    let length = request.headers().get(header::CONTENT_LENGTH);
    request.version() < Version::HTTP_2
        && (length.is_some_and(|length| length != "0")
            || request.headers().contains_key(header::TRANSFER_ENCODING))
}

/// Says that nothing else can come on this connection: what is left of the body is not read.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The request with a bound to how slowly its body may come; and, where it has one, how far that has come.
fn paced(request: Request, pace: Pace) -> (Request, Option<Arc<Progress>>) {
    if request.body().is_end_stream() {
        return (request, None);
    }
    let progress = Arc::<Progress>::default();
    let body = Arc::clone(&progress);
    (request.map(|source| Body::new(PacedBody::new(source, pace, body))), Some(progress))
}

/// How far a body has come.
#[derive(Debug, Default)]
struct Progress {
    slow: AtomicBool,
    read: AtomicBool,
}

impl Progress {
    /// Whether it was broken off because it came too slowly.
    fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }

    /// Whether it was read to its end.
    fn is_read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }
}

/// The least that has to come in a while.
#[derive(Clone, Copy, Debug)]
struct Pace {
    window: Duration,
    least: u64,
}

/// A body that breaks off where it comes too slowly. Only the time counts in which we wait for the caller, and not that in which the
/// caller waits for us: an upload may have to wait for its turn.
struct PacedBody {
    body: Body,
    pace: Pace,
    /// In this window: what came, and how long it was waited for.
    bytes: u64,
    waited: Duration,
    /// Since when it is waited for the next piece, and until the window ends.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    progress: Arc<Progress>,
}

impl PacedBody {
    fn new(body: Body, pace: Pace, progress: Arc<Progress>) -> Self {
        Self { body, pace, bytes: 0, waited: Duration::ZERO, waiting: None, progress }
    }

    /// Ends a window: was it enough?
    fn turn(&mut self) -> Result<(), axum::Error> {
        if self.bytes < self.pace.least {
            self.progress.slow.store(true, Ordering::Relaxed);
            return Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)));
        }
        (self.bytes, self.waited, self.waiting) = (0, Duration::ZERO, None);
        Ok(())
    }
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some((since, _)) = self.waiting.take() {
                self.waited += since.elapsed();
            }
            if frame.is_none() {
                self.progress.read.store(true, Ordering::Relaxed);
            }
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
            self.bytes += data.map_or(0, |data| data.len() as u64);
            if self.waited >= self.pace.window
                && frame.is_some()
                && let Err(error) = self.turn()
            {
                return Poll::Ready(Some(Err(error)));
            }
            return Poll::Ready(frame);
        }
        loop {
            let left = self.pace.window.saturating_sub(self.waited);
            let (_, end) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
            if end.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if let Err(error) = self.turn() {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::StatusCode;
    use futures_util::{StreamExt, stream};
    use tower::ServiceExt;

    use super::super::{ServerOptions, router};
    use super::*;
    use crate::oci::{Algorithm, Digest, Repository, Tag};
    use crate::operations::install::Installer;
    use crate::operations::routes::{RepositoryTemplate, Routes};
    use crate::registry::{Answer, ByteStream, Page, PageRequest, Registry, UploadId, read_bounded};

    /// Takes every upload, and never answers a question.
    struct Sink;

    impl Registry for Sink {
        fn tags<'a>(&'a self, _: &'a Repository, _: &'a PageRequest) -> Answer<'a, Page<Tag>> {
            Box::pin(std::future::pending())
        }

        fn open_upload<'a>(&'a self, _: &'a Repository, _: Algorithm) -> Answer<'a, UploadId> {
            Box::pin(async { Ok(UploadId::new("x").unwrap()) })
        }

        fn append_upload<'a>(
            &'a self,
            _: &'a Repository,
            _: &'a UploadId,
            _: Option<u64>,
            bytes: ByteStream,
        ) -> Answer<'a, u64> {
            Box::pin(async { Ok(read_bounded(bytes, u64::MAX).await?.len() as u64) })
        }

        fn finish_upload<'a>(&'a self, _: &'a Repository, _: &'a UploadId, _: &'a Digest) -> Answer<'a, ()> {
            Box::pin(async { Ok(()) })
        }
    }

    async fn ask(request: Request, request_timeout: Duration) -> Response {
        let options = ServerOptions {
            distribution: true,
            allow_anonymous: true,
            limits: Limits { request_timeout, ..Limits::default() },
            ..ServerOptions::default()
        };
        let installer =
            Installer::without_search(Routes::new(Vec::new(), RepositoryTemplate::default()), None);
        let mut app = App::new(Arc::new(Sink), installer, options);
        app.gate.pace = QUICK;
        router(Arc::new(app)).oneshot(request).await.unwrap()
    }

    fn push(body: Body) -> Request {
        let uri = format!("/v2/acme/vpc/blobs/uploads/?digest={}", Digest::of(b""));
        Request::post(uri).body(body).unwrap()
    }

    #[tokio::test]
    async fn who_pushes_a_byte_at_a_time_is_told_so_and_a_push_may_take_its_time() {
        let pieces = |size, count| pieces(size, count, Duration::from_millis(5));
        let slow = ask(push(pieces(1, usize::MAX)), Duration::from_hours(1)).await;
        assert_eq!(slow.status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(slow.headers()[header::CONNECTION], "close");
        let long = ask(push(pieces(1000, 50)), Duration::from_millis(20)).await;
        assert_eq!(long.status(), StatusCode::CREATED);
    }

    #[tokio::test]
    async fn an_answer_that_takes_too_long_is_given_up() {
        let request = Request::get("/v2/acme/vpc/tags/list").body(Body::empty()).unwrap();
        let answer = ask(request, Duration::from_millis(20)).await;
        assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
        let body = axum::body::to_bytes(answer.into_body(), 1000).await.unwrap();
        assert_eq!(body, r#"{"errors":[{"code":"UNKNOWN","message":"the answer took too long"}]}"#);
    }

    /// A body whose pieces come one after the other, with a pause before each.
    fn pieces(size: usize, count: usize, pause: Duration) -> Body {
        Body::from_stream(stream::iter(0..count).then(move |_| async move {
            sleep(pause).await;
            Ok::<_, io::Error>(Bytes::from(vec![0; size]))
        }))
    }

    async fn read(body: Body, pace: Pace) -> (u64, bool) {
        let progress = Arc::<Progress>::default();
        let mut bytes = Body::new(PacedBody::new(body, pace, Arc::clone(&progress))).into_data_stream();
        let mut seen = 0;
        while let Some(Ok(piece)) = bytes.next().await {
            seen += piece.len() as u64;
        }
        assert_ne!(progress.is_slow(), progress.is_read());
        (seen, progress.is_slow())
    }

    const QUICK: Pace = Pace { window: Duration::from_millis(50), least: 100 };

    #[tokio::test]
    async fn a_body_that_never_pauses_and_never_ends_is_broken_off() {
        let (seen, slow) = read(pieces(1, usize::MAX, Duration::from_millis(5)), QUICK).await;
        assert!(slow && seen < 100, "{seen}");
        let (seen, slow) = read(pieces(1000, usize::MAX, Duration::from_hours(1)), QUICK).await;
        assert_eq!((seen, slow), (0, true));
    }

    #[tokio::test]
    async fn what_comes_quickly_passes_and_however_long_we_take_to_read_it() {
        let body = pieces(100, 50, Duration::from_millis(5));
        assert_eq!(read(body, Pace { window: Duration::from_millis(50), least: 1 }).await, (5000, false));
        let progress = Arc::<Progress>::default();
        let body = pieces(1, 3, Duration::ZERO);
        let mut bytes = Body::new(PacedBody::new(body, QUICK, Arc::clone(&progress))).into_data_stream();
        while let Some(piece) = bytes.next().await {
            assert_eq!(piece.unwrap(), [0_u8][..]);
            sleep(QUICK.window * 2).await;
        }
        assert!(!progress.is_slow());
    }

    #[tokio::test]
    async fn beyond_their_number_requests_are_turned_away() {
        let gate = Gate::new(&Limits { max_requests: 1, ..Limits::default() });
        let turn = gate.turn().await;
        assert!(turn.is_some());
        let (second, third) = tokio::join!(gate.turn(), gate.turn());
        assert!(second.is_none() && third.is_none());
        drop(turn);
        assert!(gate.turn().await.is_some());
    }

    #[test]
    fn beyond_their_number_connections_are_turned_away() {
        let connections = Connections::new(1, &Arc::default());
        let place = connections.enter();
        assert!(place.is_some() && connections.enter().is_none());
        drop(place);
        assert!(connections.enter().is_some());
    }

    #[tokio::test]
    async fn who_waits_a_little_gets_the_next_turn() {
        let gate = Gate::new(&Limits { max_requests: 1, ..Limits::default() });
        let first = gate.turn().await;
        let (second, ()) = tokio::join!(gate.turn(), async { drop(first) });
        assert!(second.is_some());
    }

    #[test]
    fn only_blobs_and_probes_are_exempt() {
        let path = "/v2/acme/vpc/blobs/uploads/x";
        assert!(is_upload(&Method::PATCH, path) && is_upload(&Method::PUT, path));
        assert!(!is_upload(&Method::GET, path) && !is_upload(&Method::PUT, "/v2/acme/vpc/manifests/v1"));
        assert!(is_probe("/healthz") && is_probe("/ocimod/readyz") && is_probe("/metrics"));
        assert!(!is_probe("/v1/modules/{namespace}/{name}/{system}/versions") && !is_probe("/v2/{*rest}"));
    }

    #[test]
    fn the_defaults_fit_the_process() {
        let limits = Limits::default();
        assert!(limits.max_requests >= 1 && limits.max_connections >= limits.max_requests);
        if cfg!(target_os = "linux") {
            assert!(open_files().is_none_or(|files| files >= limits.max_connections as u64));
        }
    }
}
