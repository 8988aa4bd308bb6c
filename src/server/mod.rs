//! The HTTP face: parses a request, calls one operation, answers.
//!
//! Every route stands in [`router`], every layer around them beneath it. Whoever calls [`serve`] owns the listener and the
//! signal to stop, so tests do too.

mod access;
mod connection;
mod discovery;
mod error;
mod health;
mod host_check;
mod modules;
mod oci;
mod request_log;
mod signature;
mod token;

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
pub use access::{Access, Guard};
pub use error::ApiError;
pub use modules::Modules;
pub use oci::{DistributionRequest, RequestError};
pub use signature::{Keys, KeysError};

/// A request's line and headers are read into memory. The largest that there is reason for is a bearer token of some 16 KiB.
const MAX_HEADER_SIZE: usize = 64 * 1024;

/// How long a request's headers may take, and a connection be idle: as Nginx and hyper have it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a body may pause, in and out. A registry behind us may be slow to begin with a blob; a client waits as long.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

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
    /// Who may do what.
    pub access: Access,
}

/// What the handlers share.
pub struct App {
    /// Where everything is kept: what is served under `/v2/`, and what readiness asks.
    pub registry: SharedRegistry,
    /// What the module registry protocol answers from.
    pub modules: Modules,
    /// How the server is run.
    pub options: ServerOptions,
    readiness: health::Readiness,
    stopping: AtomicBool,
}

impl App {
    /// A server over a registry, and over the modules in it.
    pub fn new(registry: SharedRegistry, modules: Modules, options: ServerOptions) -> Self {
        Self {
            registry,
            modules,
            options,
            readiness: health::Readiness::default(),
            stopping: AtomicBool::new(false),
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Every route.
pub fn router(app: Arc<App>) -> Router {
    let mut routes = Router::new() //
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/.well-known/terraform.json", get(discovery::services))
        .route("/v1/modules/{namespace}/{name}/{system}/versions", get(modules::versions))
        .route("/v1/modules/{namespace}/{name}/{system}/{version}/download", get(modules::download))
        .route("/v1/modules/{namespace}/{name}/{system}/{version}/archive.zip", get(modules::archive));
    if app.options.distribution {
        if !app.options.access.is_open() {
            routes = routes.route("/v2/token", get(token::get).post(token::post));
        }
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

/// The layers, from the innermost to the outermost: what a stranger sent reaches no handler, and every
/// handler knows who calls; a panic is an error like others;
/// errors get their body; and the log sees what the caller sees, with every byte of it.
fn layered(routes: Router, app: Arc<App>) -> Router {
    let nosniff = HeaderValue::from_static("nosniff");
    routes
        .layer(from_fn_with_state(Arc::clone(&app), access::identify))
        .layer(from_fn_with_state(app, host_check::check))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(error::render))
        .layer(SetResponseHeaderLayer::overriding(header::X_CONTENT_TYPE_OPTIONS, nosniff))
        .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
        .layer(map_response(bounded))
        .layer(from_fn(request_log::log))
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
    let mut server = axum_server::from_tcp(listener)?.acceptor(connection::Acceptor).handle(handle.clone());
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
