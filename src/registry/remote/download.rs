//! The bytes of a blob on their way here.
//!
//! A connection may be lost in the middle of hundreds of megabytes. What has come is kept then, and the rest is asked for by
//! `Range` (RFC 9110 section 14.2); a registry that knows no pieces gives the whole once more, of which the beginning is passed
//! over. Whoever put the pieces together, they are verified as one.
//!
//! Nobody is waited for without end: a transfer that breaks off again and again without getting on is given up, and so is one
//! that drips. Only the time counts that we wait for the registry, since whoever reads here may be slow too.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE};
use reqwest::{Method, Response, StatusCode};
use tokio::time::{Instant, sleep};

use super::blobs::{blob_call, blob_failure, with_range};
use super::client::Client;
use crate::oci::{ByteRange, Digest, Repository, Span};
use crate::registry::{ByteStream, RegistryError, Result, verified};

/// So many bytes between two breaks are progress: the tries are counted anew.
const PROGRESS: u64 = 1024 * 1024;

/// A blob, or a piece of one, that is being read.
pub(super) struct Download {
    client: Arc<Client>,
    repository: Repository,
    digest: Digest,
    /// Of the whole blob.
    size: u64,
    /// The next byte that is wanted, and the one behind the last.
    next: u64,
    end: u64,
    /// What the storage calls the content, where it is a name that pieces can be asked of.
    validator: Option<HeaderValue>,
    /// What is left of the answer that is being read.
    bytes: ByteStream,
    breaks: u32,
    /// Where the last break was.
    broken_at: u64,
    pace: Pace,
}

impl Download {
    /// The blob that an answer holds whole.
    pub(super) fn whole(
        client: &Arc<Client>,
        repository: &Repository,
        digest: &Digest,
        response: Response,
        size: u64,
    ) -> ByteStream {
        let span = Span { start: 0, length: size };
        let download = Self::new(client, repository, digest, response, size, span, |bytes| bytes);
        verified(download.stream(), digest, size)
    }

    /// The piece `span`, of which an answer holds the bytes after the first `skipped` ones. It cannot be verified.
    pub(super) fn piece(
        client: &Arc<Client>,
        repository: &Repository,
        digest: &Digest,
        response: Response,
        size: u64,
        (skipped, span): (u64, Span),
    ) -> ByteStream {
        let cut_out = |bytes| cut(bytes, skipped, span.length);
        Self::new(client, repository, digest, response, size, span, cut_out).stream()
    }

    fn new(
        client: &Arc<Client>,
        repository: &Repository,
        digest: &Digest,
        response: Response,
        size: u64,
        span: Span,
        cut_out: impl FnOnce(ByteStream) -> ByteStream,
    ) -> Self {
        // A weak name stands for different bytes (RFC 9110 section 13.1.5).
        let is_strong = |name: &&HeaderValue| name.as_bytes().starts_with(b"\"");
        let validator = response.headers().get(ETAG).filter(is_strong).cloned();
        let transport = &client.transport;
        Self {
            client: Arc::clone(client),
            repository: repository.clone(),
            digest: digest.clone(),
            size,
            next: span.start,
            end: span.start.saturating_add(span.length),
            validator,
            bytes: cut_out(transport.stream(response)),
            breaks: 0,
            broken_at: span.start,
            pace: Pace::new(transport.timeouts().idle, transport.timeouts().least_rate),
        }
    }

    fn stream(self) -> ByteStream {
        let next = |mut download: Self| async move {
            Ok(download.next_piece().await?.map(|piece| (piece, download)))
        };
        stream::try_unfold(self, next).boxed()
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>> {
        loop {
            let began = Instant::now();
            let piece = self.bytes.next().await;
            let waited = began.elapsed();
            match piece {
                None => return Ok(None),
                Some(Ok(piece)) => {
                    if self.pace.is_too_slow(waited, piece.len() as u64) {
                        return Err(self
                            .client
                            .transport
                            .unavailable("the transfer is too slow to come to an end"));
                    }
                    self.next += piece.len() as u64;
                    return Ok(Some(piece));
                }
                // Everything has come, but for the word that it was everything.
                Some(Err(_)) if self.next == self.end => return Ok(None),
                Some(Err(error)) => self.take_up(error.into()).await?,
            }
        }
    }

    /// Goes on where a transfer broke off, or answers why it does not.
    async fn take_up(&mut self, mut error: RegistryError) -> Result<()> {
        loop {
            if self.next - self.broken_at >= PROGRESS {
                self.breaks = 0;
            }
            self.broken_at = self.next;
            self.breaks += 1;
            let wait = self.client.transport.retry().wait(self.breaks, None);
            let Some(wait) = wait.filter(|_| error.is_passing() && self.next < self.end) else {
                return Err(error);
            };
            sleep(wait).await;
            match self.ask().await {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
    }

    /// Asks for what is missing.
    async fn ask(&mut self) -> Result<()> {
        let mut call = blob_call(Method::GET, &self.repository, &self.digest);
        if self.next > 0 {
            call = with_range(call, ByteRange::FromTo { first: self.next, last: self.end - 1 });
            if let Some(validator) = &self.validator {
                call = call.header(IF_RANGE, validator.clone());
            }
        }
        let response = self.client.get(call).await?;
        let wanted = Span { start: self.next, length: self.end - self.next };
        let skipped = match response.status() {
            StatusCode::OK => self.next,
            StatusCode::PARTIAL_CONTENT if content_range(response.headers()) == Some((wanted, self.size)) => {
                0
            }
            StatusCode::PARTIAL_CONTENT => return Err(other_range(&self.client)),
            _ => return Err(blob_failure(&self.client, response, &self.repository, &self.digest).await),
        };
        self.bytes = cut(self.client.transport.stream(response), skipped, wanted.length);
        Ok(())
    }
}

/// The error of a piece that nobody asked for.
pub(super) fn other_range(client: &Client) -> RegistryError {
    client.transport.protocol("it sends another range than was asked for")
}

/// How fast a transfer is, over the time that was waited for it.
pub(super) struct Pace {
    /// Over so long it is looked at: a pause alone is not slow.
    window: Duration,
    /// Bytes a second.
    least: u64,
    waited: Duration,
    came: u64,
}

impl Pace {
    pub(super) fn new(idle: Duration, least: u64) -> Self {
        Self { window: idle.saturating_mul(2), least, waited: Duration::ZERO, came: 0 }
    }

    /// Counts a piece that was waited for so long.
    pub(super) fn is_too_slow(&mut self, waited: Duration, length: u64) -> bool {
        self.waited += waited;
        self.came += length;
        if self.waited < self.window {
            return false;
        }
        let is_slow = u128::from(self.came) * 1000 < self.waited.as_millis() * u128::from(self.least);
        (self.waited, self.came) = (Duration::ZERO, 0);
        is_slow
    }
}

/// `bytes 0-9/100`: which piece, and the size of the whole.
pub(super) fn content_range(headers: &HeaderMap) -> Option<(Span, u64)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, size) = text.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (start, last, size): (u64, u64, u64) = (first.parse().ok()?, last.parse().ok()?, size.parse().ok()?);
    let length = last.checked_sub(start)?.checked_add(1)?;
    (last < size).then_some((Span { start, length }, size))
}

/// `length` bytes from `start`; an error where there are fewer.
fn cut(bytes: ByteStream, start: u64, length: u64) -> ByteStream {
    Cut { bytes, skip: start, left: length, length, done: false }.boxed()
}

struct Cut {
    bytes: ByteStream,
    skip: u64,
    left: u64,
    length: u64,
    done: bool,
}

impl Stream for Cut {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while !self.done && self.left > 0 {
            let Some(piece) = ready!(self.bytes.poll_next_unpin(context)) else {
                self.done = true;
                let (expected, actual) = (self.length, self.length - self.left);
                return Poll::Ready(Some(Err(RegistryError::SizeMismatch { expected, actual }.into())));
            };
            let mut piece = match piece {
                Ok(piece) => piece,
                Err(error) => {
                    self.done = true;
                    return Poll::Ready(Some(Err(error)));
                }
            };
            let length = piece.len() as u64;
            let skipped = self.skip.min(length);
            self.skip -= skipped;
            let taken = self.left.min(length - skipped);
            self.left -= taken;
            if taken > 0 {
                // Both are at most the length of the piece, so they fit.
                let at = |offset: u64| usize::try_from(offset).unwrap_or(piece.len());
                let range = at(skipped)..at(skipped + taken);
                piece = piece.slice(range);
                return Poll::Ready(Some(Ok(piece)));
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::registry::read_bounded;

    fn pieces(pieces: &[&'static str]) -> ByteStream {
        stream::iter(pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect::<Vec<_>>())
            .boxed()
    }

    #[tokio::test]
    async fn a_piece_is_cut_out_of_the_whole() {
        let whole = ["ab", "", "cdef", "gh"];
        for (start, length, expected) in
            [(0, 8, "abcdefgh"), (1, 1, "b"), (3, 3, "def"), (7, 1, "h"), (2, 6, "cdefgh")]
        {
            assert_eq!(read_bounded(cut(pieces(&whole), start, length), 99).await.unwrap(), expected);
        }
        let short = read_bounded(cut(pieces(&whole), 6, 3), 99).await;
        assert!(matches!(short, Err(RegistryError::SizeMismatch { expected: 3, actual: 2 })));
    }

    #[test]
    fn ranges_of_answers_are_read() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_RANGE, text.parse().unwrap());
            content_range(&headers)
        };
        assert_eq!(of("bytes 2-4/10"), Some((Span { start: 2, length: 3 }, 10)));
        for wrong in [
            "bytes 4-2/10",
            "bytes 0-10/10",
            "bytes 0-1/*",
            "bytes */10",
            "0-1/10",
            "bytes 0-18446744073709551615/18446744073709551615",
            "bytes -1-2/10",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_drips_is_too_slow_and_a_pause_is_not() {
        let second = Duration::from_secs(1);
        let mut pace = Pace::new(second * 30, 1000);
        assert!((0..59).all(|_| !pace.is_too_slow(second, 1)));
        assert!(pace.is_too_slow(second, 1), "sixty bytes a minute");
        let mut pace = Pace::new(second * 30, 1000);
        assert!(!pace.is_too_slow(second * 59, 1));
        assert!(!pace.is_too_slow(second, 60_000), "a minute is looked at as one");
        assert!((0..1000).all(|_| !pace.is_too_slow(second, 10_000)));
        // What came fast at first does not make up for what drips later.
        assert!((0..120).any(|_| pace.is_too_slow(second, 1)), "two minutes hold a whole one");
    }
}
