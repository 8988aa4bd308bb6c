//! Answers whose reader does not go on are given up, where one connection carries many of them.
//!
//! Over HTTP/1.1 the connection itself sees that nobody reads ([`super::connection`]). An HTTP/2 client may leave a stream's window
//! shut and answer every ping: nothing is written, so nothing fails, and the answer's body is never asked for again. Some
//! connections with a hundred such streams each would hold every turn that there is, together with what they answer from. What
//! is behind such an answer is let go of; the stream itself costs little, and breaks off should its reader come back.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::Version;
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// How long a reader may take for the next piece: as long as a connection may stand still.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// What is handed over at a time. As soon as the window is open for one byte, a whole piece is taken into the stream's memory, where
/// nothing bounds it: a manifest of 4 MiB would stay there. A frame holds so much anyway.
const PIECE: usize = 16 * 1024;

/// Gives up answers that are not read any further.
pub(super) async fn give_up(request: Request, next: Next) -> Response {
    let version = request.version();
    bounded(version, next.run(request).await)
}

/// The answer to a request of that version of HTTP, to be given up if it is not read.
pub(super) fn bounded(version: Version, response: Response) -> Response {
    if version < Version::HTTP_2 || response.body().is_end_stream() {
        response
    } else {
        response.map(|body| Body::new(ReadBody::new(body, READ_TIMEOUT)))
    }
}

/// A body that goes away where nobody asks for its next piece.
struct ReadBody {
    source: Arc<Mutex<Source>>,
    watch: AbortHandle,
}

struct Source {
    /// `None` once it was given up.
    body: Option<Body>,
    /// What is left of a piece.
    rest: Bytes,
    /// Since when it is for the reader to ask; `None` while the reader waits.
    idle: Option<Instant>,
}

impl Source {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))));
        };
        if self.rest.is_empty() {
            let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else { return Poll::Pending };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl ReadBody {
    fn new(body: Body, patience: Duration) -> Self {
        let source = Source { body: Some(body), rest: Bytes::new(), idle: Some(Instant::now()) };
        let source = Arc::new(Mutex::new(source));
        let watch = tokio::spawn(watch(Arc::downgrade(&source), patience)).abort_handle();
        Self { source, watch }
    }

    fn with<T>(&self, read: impl FnOnce(&mut Source) -> T) -> T {
        read(&mut self.source.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Waits until the reader has not asked for so long, and lets the body go.
async fn watch(source: Weak<Mutex<Source>>, patience: Duration) {
    let mut end = Instant::now() + patience;
    loop {
        sleep_until(end).await;
        let Some(source) = source.upgrade() else { return };
        let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
        end = source.idle.unwrap_or_else(Instant::now) + patience;
        if end <= Instant::now() {
            source.rest.clear();
            let body = source.body.take();
            drop(source);
            drop(body);
            return;
        }
    }
}

impl HttpBody for ReadBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.with(|source| {
            let polled = source.poll(context);
            source.idle = polled.is_ready().then(Instant::now);
            polled
        })
    }

    fn is_end_stream(&self) -> bool {
        self.with(|source| {
            source.rest.is_empty() && source.body.as_ref().is_some_and(HttpBody::is_end_stream)
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|source| {
            let left = source.rest.len() as u64;
            let hint = source.body.as_ref().map(HttpBody::size_hint).unwrap_or_default();
            let mut whole = SizeHint::new();
            whole.set_lower(hint.lower().saturating_add(left));
            if let Some(upper) = hint.upper() {
                whole.set_upper(upper.saturating_add(left));
            }
            whole
        })
    }
}

impl Drop for ReadBody {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::{StreamExt, stream};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_nobody_reads_lets_go_of_what_it_holds() {
        let (held, gone) = oneshot::channel::<()>();
        let endless = Body::from_stream(stream::repeat_with(move || {
            let _held = &held;
            Ok::<_, io::Error>(Bytes::from_static(&[0; 8]))
        }));
        let mut body = Body::new(ReadBody::new(endless, Duration::from_millis(20))).into_data_stream();
        assert_eq!(body.next().await.unwrap().unwrap().len(), 8);
        assert!(gone.await.is_err(), "it is dropped though the answer is not");
        assert!(body.next().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn who_waits_for_us_is_waited_for() {
        let late = stream::once(async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok::<_, io::Error>(Bytes::from_static(b"late"))
        });
        let body = ReadBody::new(Body::from_stream(late), Duration::from_millis(20));
        assert_eq!(axum::body::to_bytes(Body::new(body), 10).await.unwrap(), "late");
    }

    #[tokio::test]
    async fn a_large_piece_is_handed_over_in_small_ones() {
        let body = ReadBody::new(Body::from(vec![1; 2 * PIECE + 1]), Duration::from_hours(1));
        assert_eq!(body.size_hint().exact(), Some(2 * PIECE as u64 + 1));
        let mut pieces = Body::new(body).into_data_stream();
        for length in [PIECE, PIECE, 1] {
            assert_eq!(pieces.next().await.unwrap().unwrap().len(), length);
        }
        assert!(pieces.next().await.is_none());
    }
}
