//! What was answered before is answered again without the way through the router and its layers.
//!
//! A CI system that starts asks for the `versions` of one module a thousand times a second, and for its zip. All that has to be decided
//! for each of these requests is whether the answer still holds and whether its caller may have it, and that is decided here by the same
//! rules as on the long way; whoever may not, and whatever is no such request, takes that way. Nothing is left out: the answer, its line
//! in the log and its numbers are the same. Blobs are those that the embedded registry has in memory.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::HttpBody;
use axum::http::{HeaderValue, Method, Request, StatusCode, Version, header};
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use tower::{Service, ServiceExt};

use super::oci::{self, DistributionRequest};
use super::rendered::Kept;
use super::request_log::{REQUEST_ID, RequestLine, request_id};
use super::sent_file::Handover;
use super::{App, access, host_check, modules, stalled};
use crate::oci::{Digest, Repository};
use crate::operations::access::Right;
use crate::operations::cue_view;

/// Every route, and a shorter way to some of the answers.
#[derive(Clone)]
pub(super) struct Shortcut {
    app: Arc<App>,
    routes: Router,
    /// The connection, where it sends files.
    files: Option<Handover>,
}

/// An answer that is at hand for what a request asks.
enum Found {
    /// A list of versions that was sent before.
    Versions { route: Arc<str>, kept: Arc<Kept> },
    /// A blob of the embedded registry.
    Blob { route: &'static str, repository: Repository, digest: Digest },
}

impl Shortcut {
    pub(super) fn new(app: Arc<App>, routes: Router) -> Self {
        Self { app, routes, files: None }
    }

    /// The same for a connection that sends files.
    pub(super) fn with_files(self, files: Handover) -> Self {
        Self { files: Some(files), ..self }
    }

    fn find<B: HttpBody>(&self, request: &Request<B>) -> Option<Found> {
        let is_plain = request.method() == Method::GET && request.body().is_end_stream();
        let uri = request.uri();
        if !is_plain || uri.query().is_some() {
            return None;
        }
        if !uri.path().starts_with("/v2/") {
            let (route, kept) = self.app.answers.at(uri.path())?;
            return Some(Found::Versions { route, kept });
        }
        let is_whole = |name| !request.headers().contains_key(name);
        let may_be_blob = self.app.options.distribution && uri.path().contains("/blobs/");
        if !may_be_blob || ![header::RANGE, header::IF_NONE_MATCH].into_iter().all(is_whole) {
            return None;
        }
        let asked = DistributionRequest::parse(request.method(), uri.path(), None).ok()?;
        let route = asked.route();
        match asked {
            DistributionRequest::Blob { repository, digest, .. } if !cue_view::is_in_view(&repository) => {
                Some(Found::Blob { route, repository, digest })
            }
            _ => None,
        }
    }

    /// The way through the router.
    fn call_routes<B>(&mut self, mut request: Request<B>) -> OfRouter<B>
    where
        Router: Service<Request<B>>,
    {
        if let Some(files) = self.files.clone().filter(|_| request.version() < Version::HTTP_2) {
            request.extensions_mut().insert(files);
        }
        self.routes.call(request)
    }
}

impl App {
    /// The answer to a request, where its caller may have it.
    fn answer<B>(&self, request: &Request<B>, started: Instant, found: &Found) -> Option<Response> {
        let headers = request.headers();
        if !host_check::may_read(self, request.uri(), headers) {
            return None;
        }
        let caller = access::known_caller(self, headers)?;
        let (route, numbers, mut response) = match found {
            Found::Versions { route, kept } => {
                if !kept.is_for(&modules::reads(&caller)) {
                    return None;
                }
                let response = kept.rendered.answer(headers);
                (&**route, kept.numbers(&self.metrics, route, response.status()), response)
            }
            Found::Blob { route, repository, digest } => {
                if !caller.may(Right::Read, repository.as_str()) {
                    return None;
                }
                let bytes = self.registry.blob_in_memory(repository, digest)?;
                let numbers = || self.metrics.numbers(&Arc::from(*route), &Method::GET, StatusCode::OK);
                (*route, self.blob_numbers.get_or_init(numbers), oci::blob_in_memory(digest, bytes))
            }
        };
        let (status, id) = (response.status(), request_id(headers));
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let bytes = response.body().size_hint().exact().unwrap_or_default();
        let duration = started.elapsed();
        numbers.count(duration, duration, bytes);
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
        let started = Instant::now();
        let Some(found) = self.find(&request) else {
            return Either::Right(Either::Right(self.call_routes(request)));
        };
        let kept = match &found {
            Found::Versions { kept, .. } if !self.app.answers.held_a_moment_ago(kept, started) => {
                Arc::clone(kept)
            }
            _ => {
                return match self.app.answer(&request, started, &found) {
                    Some(answer) => Either::Left(ready(Ok(answer))),
                    None => Either::Right(Either::Right(self.call_routes(request))),
                };
            }
        };
        let (app, routes) = (Arc::clone(&self.app), self.routes.clone());
        let look = async move {
            if app.answers.still_holds(&app.installer, &kept).await
                && let Some(answer) = app.answer(&request, started, &found)
            {
                return Ok(answer);
            }
            routes.oneshot(request).await
        };
        Either::Right(Either::Left(look.boxed()))
    }
}
