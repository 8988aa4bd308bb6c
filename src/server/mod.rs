//! The HTTP face: parses a request, calls one operation, answers.
//!
//! Every route stands in [`router`], every layer around them beneath it. Whoever calls [`serve`] owns the listener and the
//! signal to stop, so tests do too.

mod access;
mod archive;
mod archive_link;
mod base_path;
mod connection;
mod discovery;
mod error;
mod health;
mod host_check;
mod limits;
mod metrics;
mod mirror;
mod modules;
mod oci;
mod reload;
mod rendered;
mod request_log;
pub mod self_signed;
mod sent_file;
mod shortcut;
mod signature;
mod stalled;
mod start_page;
mod tls;
mod token;

use std::any::Any;
use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum_server::accept::Accept;
use axum_server::{Handle, Server};
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower::{ServiceExt, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::{RequestBodyTimeoutLayer, TimeoutBody};

use crate::oci::Repository;
use crate::operations::cue_view::CueMemory;
use crate::operations::install::Installer;
use crate::operations::providers::upstream::Upstream;
use crate::operations::routes::Place;
use crate::registry::SharedRegistry;
pub use access::{Access, Guard};
pub use archive::{ArchiveMode, Archives, DEFAULT_LINK_LIFETIME};
pub use archive_link::LinkError;
pub use base_path::{BasePath, BasePathError};
pub use error::ApiError;
use limits::Connections;
pub use limits::Limits;
use metrics::AnswerNumbers;
pub use metrics::{CacheNumbers, Metrics, MetricsPlace, SearchNumbers};
pub use oci::{DistributionRequest, RequestError};
pub use reload::{Hangups, Live, ReloadError, Reloads};
pub use request_log::{RequestLine, RequestLog};
use shortcut::Shortcut;
pub use signature::{Keys, KeysError};
pub use start_page::StartPage;
pub use tls::{ServerCertificate, TlsError};

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
    /// Whether the registry itself is offered under `/v2/`, and not its modules for `cue` alone.
    pub distribution: bool,
    /// The host that clients know the server by, with or without a port: a request may be sent to that name too.
    pub host: Option<String>,
    /// Whether everybody is meant to be answered, through proxies and by any name too.
    pub allow_anonymous: bool,
    /// Who may do what.
    pub access: Access,
    /// How zips reach the client.
    pub archives: Archives,
    /// What to speak https with; plain http without it.
    pub certificate: Option<Live<ServerCertificate>>,
    /// The path in front of every route.
    pub base_path: Option<BasePath>,
    /// Whether requests can be answered from copies while the registry is away.
    pub serves_copies: bool,
    /// Whether `/metrics` is among the routes.
    pub metrics: MetricsPlace,
    /// What keeps the server within bounds.
    pub limits: Limits,
    /// Where the lines of requests go; nowhere without it.
    pub request_log: Option<Arc<dyn RequestLog>>,
    /// What the start page has to know.
    pub start_page: StartPage,
}

/// What the handlers share.
pub struct App {
    /// What is served under `/v2/`.
    pub registry: SharedRegistry,
    /// What the module registry protocol answers from.
    pub installer: Installer,
    /// How the server is run.
    pub options: ServerOptions,
    /// What looks for providers that the registry lacks.
    upstream: Option<Arc<Upstream>>,
    /// What readiness asks: the registries themselves, without what is kept of them.
    behind: Vec<SharedRegistry>,
    answers: rendered::KeptAnswers,
    cue_memory: CueMemory,
    metrics: Arc<Metrics>,
    /// Of the blobs that are answered out of memory.
    blob_numbers: OnceLock<AnswerNumbers>,
    gate: limits::Gate,
    readiness: health::Readiness,
    stopping: AtomicBool,
}

impl App {
    /// A server over a registry, and over the modules in it.
    pub fn new(registry: SharedRegistry, installer: Installer, options: ServerOptions) -> Self {
        Self {
            behind: vec![Arc::clone(&registry)],
            registry,
            installer,
            upstream: None,
            gate: limits::Gate::new(&options.limits),
            options,
            metrics: Arc::default(),
            blob_numbers: OnceLock::new(),
            answers: rendered::KeptAnswers::default(),
            cue_memory: CueMemory::default(),
            readiness: health::Readiness::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Takes note that a repository was written to.
    fn changed(&self, repository: &Repository) {
        self.answers.something_changed();
        for target in self.installer.routes().targets() {
            if Arc::ptr_eq(&target.registry, &self.registry) {
                self.installer
                    .search()
                    .changed(Place { target: target.clone(), repository: repository.clone() });
            }
        }
    }

    /// Depends on these registries, where they are several.
    #[must_use]
    pub fn over(self, behind: Vec<SharedRegistry>) -> Self {
        Self { behind, ..self }
    }

    /// Looks for providers that the registry lacks.
    #[must_use]
    pub fn with_upstream(self, upstream: Option<Arc<Upstream>>) -> Self {
        Self { upstream, ..self }
    }

    /// Counts into these numbers, which others count into too.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    fn is_starting(&self) -> bool {
        !self.installer.search().is_complete()
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Every route.
pub fn router(app: Arc<App>) -> Router {
    let routes = reachable_everywhere(&app)
        .nest("/v1/modules/{namespace}/{name}/{system}", module())
        .nest("/v1/hosts/{hostname}/modules/{namespace}/{name}/{system}", module())
        .route("/v1/mirror/{hostname}/{namespace}/{type}/{file}", get(mirror::serve));
    let Some(base) = app.options.base_path.clone() else {
        return finished(routes.merge(distribution(&app)), app);
    };
    let at_root = finished(reachable_everywhere(&app).merge(distribution(&app)), Arc::clone(&app));
    let below = finished(routes, app);
    let start_page = below.clone();
    // Proxies pass the path on with a slash behind it, and the router takes that for another one.
    let with_slash = any(move |mut request: Request| {
        *request.uri_mut() = Uri::from_static("/");
        start_page.oneshot(request)
    });
    Router::new().route(&format!("{base}/"), with_slash).nest(base.as_str(), below).fallback_service(at_root)
}

/// The module registry protocol, below a module's address.
fn module() -> Router<Arc<App>> {
    Router::new()
        .route("/versions", get(modules::versions))
        .route("/{version}/download", get(modules::download))
        .route("/{version}/archive.zip", get(archive::archive))
}

/// What is at the root, and below the base path too.
fn reachable_everywhere(app: &App) -> Router<Arc<App>> {
    let routes = match app.options.metrics {
        MetricsPlace::Beside => {
            Router::new().route("/metrics", get(metrics::serve).layer(from_fn(access::require_everywhere)))
        }
        MetricsPlace::Apart => Router::new(),
    };
    routes
        .route("/", get(start_page::show))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/.well-known/terraform.json", get(discovery::services))
}

/// The distribution API, of which there is the view for `cue` over every registry: its clients look for it at the root of a host and
/// nowhere else.
fn distribution(app: &App) -> Router<Arc<App>> {
    let tokens = if app.options.access.is_open() {
        Router::new()
    } else {
        Router::new().route("/v2/token", get(token::get).post(token::post))
    };
    tokens.route("/v2", any(oci::serve)).route("/v2/", any(oci::serve)).route("/v2/{*rest}", any(oci::serve))
}

/// Routes with an answer for what is none of them.
fn finished(routes: Router<Arc<App>>, app: Arc<App>) -> Router {
    let routes = routes
        .fallback(|| async { ApiError::NoEndpoint })
        .method_not_allowed_fallback(|| async { ApiError::ReadOnly })
        .with_state(Arc::clone(&app));
    layered(routes, app)
}

/// The layers, from the innermost to the outermost: what a stranger sent reaches no handler, and every handler knows who calls; a panic
/// is an error like others; there are bounds to what goes on at a time; errors get their body; the log sees what the caller sees,
/// with every byte of it; whoever does not read on holds none of this; and the connection sends what is a file.
fn layered(routes: Router, app: Arc<App>) -> Router {
    let nosniff = HeaderValue::from_static("nosniff");
    routes
        .layer(from_fn_with_state(Arc::clone(&app), access::identify))
        .layer(from_fn_with_state(Arc::clone(&app), host_check::check))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(Arc::clone(&app), limits::bound))
        .layer(from_fn(error::render))
        .layer(SetResponseHeaderLayer::overriding(header::X_CONTENT_TYPE_OPTIONS, nosniff))
        .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
        .layer(map_response(bounded))
        .layer(from_fn_with_state(app, request_log::log))
        .layer(from_fn(stalled::give_up))
        .layer(from_fn(sent_file::connect))
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
    let server = axum_server::from_tcp(listener)?;
    let connections = Connections::new(app.options.limits.max_connections, &app.metrics);
    let connection = connection::Acceptor(connections);
    match app.options.certificate.clone() {
        None => run(server.acceptor(connection::PlainAcceptor(connection)), app, shutdown).await,
        Some(certificate) => {
            let acceptor = tls::acceptor(certificate, connection).map_err(io::Error::other)?;
            run(server.acceptor(acceptor), app, shutdown).await
        }
    }
}

async fn run<A>(
    server: Server<SocketAddr, A>,
    app: Arc<App>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()>
where
    A: Accept<TcpStream, Shortcut, Service = Shortcut> + Clone + Send + Sync + 'static,
    A::Stream: AsyncRead + AsyncWrite + Unpin + Send,
    A::Future: Send,
{
    let handle = Handle::new();
    let mut server = server.handle(handle.clone());
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
    let shortcut = Shortcut::new(Arc::clone(&app), router(Arc::clone(&app)));
    let serving = server.serve(service_fn(move |_: SocketAddr| ready(io::Result::Ok(shortcut.clone()))));
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
    let routes = if is_local {
        routes.layer(from_fn_with_state(Arc::clone(&app), host_check::check_open))
    } else {
        routes
    };
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
