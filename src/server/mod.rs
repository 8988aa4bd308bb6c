//! The HTTP face: parses a request, calls one operation, answers.
//!
//! Every route stands in [`router`], every layer around them beneath it. Whoever calls [`serve`] owns the listener and the
//! signal to stop, so tests do too.

mod connection;
mod discovery;
mod error;
mod health;
mod host_check;
mod limits;
mod metrics;
mod modules;
mod oci;
mod request_log;
mod start_page;

use std::any::Any;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum_server::Handle;
use hyper_util::rt::TokioTimer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::{RequestBodyTimeoutLayer, TimeoutBody};

use crate::registry::SharedRegistry;
pub use error::ApiError;
use limits::Connections;
pub use limits::Limits;
pub use metrics::{CacheNumbers, Metrics, MetricsPlace};
pub use modules::Modules;
pub use oci::{DistributionRequest, RequestError};
pub use start_page::StartPage;

/// A request's line and headers are read into memory. The largest that there is reason for is a bearer token of some 16 KiB.
const MAX_HEADER_SIZE: usize = 64 * 1024;

/// How long a request's headers may take, and a connection be idle: as Nginx and hyper have it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a body may pause, in and out. A registry behind us may be slow to begin with a blob; a client waits as long.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// How many connections the address of the metrics has open: a few collectors and probes. They are not taken from the others, so that a
/// server with too much to do can still be looked at.
const MAX_METRICS_CONNECTIONS: usize = 32;

/// How many requests one HTTP/2 connection may have open: what a client needs to pull a large image.
const MAX_STREAMS: u32 = 128;

/// How long requests may go on once the server is told to stop. Whoever stops services waits for 10 s (containers) to 90 s
/// (systemd) before it kills.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(8);

/// How a server is run.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Whether the distribution API is offered under `/v2/`.
    pub distribution: bool,
    /// The host that clients know the server by, with or without a port: a request may be sent to that name too.
    pub host: Option<String>,
    /// Whether everybody is meant to be answered, through proxies and by any name too.
    pub allow_anonymous: bool,
    /// Whether requests can be answered from copies while the registry is away.
    pub serves_copies: bool,
    /// Whether `/metrics` is among the routes.
    pub metrics: MetricsPlace,
    /// What keeps the server within bounds.
    pub limits: Limits,
    /// What the start page has to know.
    pub start_page: StartPage,
}

/// What the handlers share.
pub struct App {
    /// Where everything is kept: what is served under `/v2/`, and what readiness asks.
    pub registry: SharedRegistry,
    /// What the module registry protocol answers from.
    pub modules: Modules,
    /// How the server is run.
    pub options: ServerOptions,
    metrics: Arc<Metrics>,
    gate: limits::Gate,
    readiness: health::Readiness,
    starting: AtomicBool,
    stopping: AtomicBool,
}

impl App {
    /// A server over a registry, and over the modules in it.
    pub fn new(registry: SharedRegistry, modules: Modules, options: ServerOptions) -> Self {
        Self {
            registry,
            modules,
            gate: limits::Gate::new(&options.limits),
            options,
            metrics: Arc::default(),
            readiness: health::Readiness::default(),
            starting: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    /// Counts into these numbers, which others count into too.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    /// Says whether the registry is still being looked through for the first time. Until that is over the server is not ready; one that
    /// nobody says it of has nothing to look for.
    pub fn set_starting(&self, is_starting: bool) {
        self.starting.store(is_starting, Ordering::Relaxed);
    }

    fn is_starting(&self) -> bool {
        self.starting.load(Ordering::Relaxed)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Every route.
pub fn router(app: Arc<App>) -> Router {
    let mut routes = Router::new() //
        .route("/", get(start_page::show))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/.well-known/terraform.json", get(discovery::services))
        .route("/v1/modules/{namespace}/{name}/{system}/versions", get(modules::versions))
        .route("/v1/modules/{namespace}/{name}/{system}/{version}/download", get(modules::download))
        .route("/v1/modules/{namespace}/{name}/{system}/{version}/archive.zip", get(modules::archive));
    if app.options.metrics == MetricsPlace::Beside {
        routes = routes.route("/metrics", get(metrics::serve));
    }
    if app.options.distribution {
        routes = routes
            .route("/v2", any(oci::serve))
            .route("/v2/", any(oci::serve))
            .route("/v2/{*rest}", any(oci::serve));
    }
    let routes = routes
        .fallback(|| async { ApiError::NoEndpoint })
        .method_not_allowed_fallback(|| async { ApiError::ReadOnly })
        .with_state(Arc::clone(&app));
    layered(routes, app)
}

/// The layers, from the innermost to the outermost: what a stranger sent reaches no handler; a panic is an error like others; there are
/// bounds to what goes on at a time; errors get their body; and the log sees what the caller sees, with every byte of it.
fn layered(routes: Router, app: Arc<App>) -> Router {
    let nosniff = HeaderValue::from_static("nosniff");
    routes
        .layer(from_fn_with_state(Arc::clone(&app), host_check::check))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(Arc::clone(&app), limits::bound))
        .layer(from_fn(error::render))
        .layer(SetResponseHeaderLayer::overriding(header::X_CONTENT_TYPE_OPTIONS, nosniff))
        .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
        .layer(map_response(bounded))
        .layer(from_fn_with_state(app, request_log::log))
}

/// Breaks an answer off whose source has stopped. A body of known length is in memory already; wrapped, it would lose that
/// length, and the header that tells it.
async fn bounded(response: Response) -> Response {
    if response.body().size_hint().exact().is_some() {
        response
    } else {
        response.map(|body| Body::new(TimeoutBody::new(BODY_TIMEOUT, body)))
    }
}

// The layer hands over the box.
#[allow(clippy::needless_pass_by_value)]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    ApiError::Panicked(message.unwrap_or_default()).into_response()
}

/// Answers on `listener` until `shutdown` comes; then requests that have begun have [`SHUTDOWN_DEADLINE`] to end.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let handle = Handle::new();
    let connections = Connections::new(app.options.limits.max_connections, &app.metrics);
    let mut server =
        axum_server::from_tcp(listener)?.acceptor(connection::Acceptor(connections)).handle(handle.clone());
    let builder = server.http_builder();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_SIZE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HEADER_TIMEOUT)
        .keep_alive_timeout(HEADER_TIMEOUT)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEADER_SIZE).unwrap_or(u32::MAX));
    let serving = server.serve(router(Arc::clone(&app)).into_make_service());
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended,
        () = shutdown => {}
    }
    app.stopping.store(true, Ordering::Relaxed);
    handle.graceful_shutdown(Some(SHUTDOWN_DEADLINE));
    serving.await
}

/// Answers `/metrics`, and the probes, on an address of their own until the future is dropped. Whoever opens that address says who
/// reaches it; on this machine a page in a browser must not.
pub async fn serve_metrics(listener: TcpListener, app: Arc<App>) -> io::Result<()> {
    let is_local = listener.local_addr()?.ip().is_loopback();
    let routes = Router::new()
        .route("/metrics", get(metrics::serve))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .fallback(|| async { ApiError::NoEndpoint })
        .with_state(Arc::clone(&app));
    let routes =
        if is_local { routes.layer(from_fn_with_state(Arc::clone(&app), host_check::check)) } else { routes };
    listener.set_nonblocking(true)?;
    let connections = Connections::new(MAX_METRICS_CONNECTIONS, &app.metrics);
    let mut server = axum_server::from_tcp(listener)?.acceptor(connection::Acceptor(connections));
    let builder = server.http_builder();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_SIZE);
    server.serve(routes.layer(from_fn(error::render)).into_make_service()).await
}
