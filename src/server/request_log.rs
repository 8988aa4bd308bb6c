//! A line in the log for each request, written when its answer has gone out or has broken off.
//!
//! It says the route and not the path, and nothing of the query or the headers: there are tokens and signed links in them.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use tracing::{Instrument, Span};

/// Names the request in our log and in that of a proxy before us.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The route that a request took, where the router's own word for it is too coarse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route(pub(super) &'static str);

/// Gives the request an id, and its answer a line in the log.
pub(super) async fn log(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let id = request.headers().get(REQUEST_ID).filter(|id| is_id(id)).cloned().unwrap_or_else(new_id);
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let span =
        tracing::info_span!("request", id = id.to_str().unwrap_or_default(), token = tracing::field::Empty);

    let mut response = next.run(request).instrument(span.clone()).await;
    response.headers_mut().insert(REQUEST_ID, id);
    let route = response.extensions().get::<Route>().map(|route| route.0.to_owned()).or(matched);
    let length = response.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let has_no_body = method == Method::HEAD || response.body().is_end_stream();
    let line = Line {
        span,
        route: route.unwrap_or_else(|| "none".to_owned()),
        status: response.status(),
        length: length.and_then(|length| length.parse().ok()),
        bytes: 0,
        complete: has_no_body,
        method,
        started,
    };
    response.map(|body| Body::new(LoggedBody { body, line }))
}

/// An id of a proxy is taken over if it can be nothing else than an id.
fn is_id(id: &HeaderValue) -> bool {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    (1..=64).contains(&id.len()) && id.as_bytes().iter().all(is_fine)
}

fn new_id() -> HeaderValue {
    let mut random = [0_u8; 8];
    // Without random numbers the ids are all the same, which is a nuisance and no danger.
    let _ = getrandom::fill(&mut random);
    HeaderValue::from_str(&hex::encode(random)).unwrap_or(HeaderValue::from_static("-"))
}

/// What is known of an answer; the line is written when this is dropped.
struct Line {
    span: Span,
    method: Method,
    route: String,
    status: StatusCode,
    started: Instant,
    /// What the headers promise.
    length: Option<u64>,
    bytes: u64,
    complete: bool,
}

impl Drop for Line {
    fn drop(&mut self) {
        let _entered = self.span.enter();
        tracing::info!(
            method = self.method.as_str(),
            route = self.route,
            status = self.status.as_u16(),
            duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            bytes = self.bytes,
            complete = self.complete || self.length == Some(self.bytes),
            "{} {} {}",
            self.method,
            self.route,
            self.status.as_u16(),
        );
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
}
