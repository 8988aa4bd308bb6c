//! What was answered before is answered again without the way through the router and its layers.
//!
//! A CI system that starts asks for the `versions` of one module a thousand times a second. All that has to be decided for each of these
//! requests is whether the answer still holds and whether its caller may have it, and that is decided here by the same rules as on the
//! long way; whoever may not, and whatever is no such request, takes that way. Nothing is left out: the answer, its line in the log and
//! its numbers are the same.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::HttpBody;
use axum::http::{HeaderValue, Method, Request, header};
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use tower::{Service, ServiceExt};

use super::rendered::Kept;
use super::request_log::{REQUEST_ID, RequestLine, request_id};
use super::{App, access, host_check, modules, stalled};

/// Every route, and a shorter way to some of the answers.
#[derive(Clone)]
pub(super) struct Shortcut {
    app: Arc<App>,
    routes: Router,
}

/// An answer that is kept for what a request asks.
struct Found {
    started: Instant,
    route: Arc<str>,
    kept: Arc<Kept>,
}

impl Shortcut {
    pub(super) fn new(app: Arc<App>, routes: Router) -> Self {
        Self { app, routes }
    }

    fn find<B: HttpBody>(&self, request: &Request<B>) -> Option<Found> {
        let is_plain = request.method() == Method::GET && request.body().is_end_stream();
        let uri = request.uri();
        if !is_plain || uri.query().is_some() {
            return None;
        }
        let started = Instant::now();
        let (route, kept) = self.app.answers.at(uri.path())?;
        Some(Found { started, route, kept })
    }
}

impl App {
    /// The answer to a request, where its caller may have it.
    fn answer<B>(&self, request: &Request<B>, found: &Found) -> Option<Response> {
        let Found { started, route, kept } = found;
        let headers = request.headers();
        if !host_check::may_read(self, request.uri(), headers) {
            return None;
        }
        let caller = access::known_caller(self, headers)?;
        if !kept.is_for(&modules::reads(&caller)) {
            return None;
        }
        let mut response = kept.rendered.answer(headers);
        let (status, id) = (response.status(), request_id(headers));
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let bytes = response.body().size_hint().exact().unwrap_or_default();
        let duration = started.elapsed();
        kept.numbers(&self.metrics, route, status).count(duration, duration, bytes);
        if let Some(log) = &self.options.request_log {
            log.write(&RequestLine {
                id: id.to_str().unwrap_or_default(),
                token: caller.name(),
                method: request.method().as_str(),
                route,
                status: status.as_u16(),
                duration,
                bytes,
                received: 0,
                complete: true,
            });
        }
        response.headers_mut().insert(REQUEST_ID, id);
        Some(stalled::bounded(request.version(), response))
    }
}

type Answer = Result<Response, Infallible>;
type OfRouter<B> = <Router as Service<Request<B>>>::Future;

impl<B> Service<Request<B>> for Shortcut
where
    B: HttpBody + Send + 'static,
    Router: Service<Request<B>, Response = Response, Error = Infallible>,
    OfRouter<B>: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Answer>, Either<BoxFuture<'static, Answer>, OfRouter<B>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.routes.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some(found) = self.find(&request) else {
            return Either::Right(Either::Right(self.routes.call(request)));
        };
        if self.app.answers.held_a_moment_ago(&found.kept, found.started) {
            return match self.app.answer(&request, &found) {
                Some(answer) => Either::Left(ready(Ok(answer))),
                None => Either::Right(Either::Right(self.routes.call(request))),
            };
        }
        let (app, routes) = (Arc::clone(&self.app), self.routes.clone());
        let look = async move {
            if app.answers.still_holds(&app.installer, &found.kept).await
                && let Some(answer) = app.answer(&request, &found)
            {
                return Ok(answer);
            }
            routes.oneshot(request).await
        };
        Either::Right(Either::Left(look.boxed()))
    }
}
