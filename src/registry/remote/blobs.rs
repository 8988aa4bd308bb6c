//! Blobs of a remote registry (specification, "Pulling blobs", "Pushing a blob monolithically", "Mounting a blob").

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE,
};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::RemoteRegistry;
use super::authorization::Scopes;
use super::client::{Call, Purpose, Subject};
use super::redirect::{self, MAX_REDIRECTS, RedirectError};
use crate::oci::{Algorithm, ByteRange, Digest, Repository, Span};
use crate::registry::{
    Blob, BlobRequest, BlobSource, BlobStream, ByteStream, RegistryError, Result, verified,
};

impl RemoteRegistry {
    pub(super) async fn read_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        request: BlobRequest,
    ) -> Result<Blob> {
        let mut call = blob_call(Method::GET, repository, digest);
        if let Some(range) = request.range {
            call = with_range(call, range);
        }
        let response = self.client.send(&call).await?;
        if request.location
            && let Some(target) = self.client.target(&response)?
            && !redirect::same_origin(response.url(), &target)
            && !self.client.is_ours(&target, &Scopes::pull(repository)).await?
        {
            self.client.transport.elsewhere(response.url(), &target).await?;
            return Ok(Blob::Location(target));
        }
        let response = self.client.follow(call, response).await?;
        let Some(range) = request.range else {
            if response.status() != StatusCode::OK {
                return Err(self.blob_failure(response, repository, digest).await);
            }
            let size = self.size_of(&response, repository, digest).await?;
            let bytes = verified(self.client.transport.stream(response), digest, size);
            return Ok(Blob::Stream(BlobStream { size, span: None, bytes }));
        };
        if response.status() != StatusCode::RANGE_NOT_SATISFIABLE {
            return self.read_piece(response, repository, digest, range).await;
        }
        let size = self.read_blob_size(repository, digest).await?;
        let span = range.within(size).ok_or(RegistryError::RangeNotSatisfiable { size })?;
        // It has the piece after all: some registries know only the form with both ends.
        let plain = ByteRange::FromTo { first: span.start, last: span.start + (span.length - 1) };
        let response = self.client.get(with_range(blob_call(Method::GET, repository, digest), plain)).await?;
        self.read_piece(response, repository, digest, plain).await
    }

    pub(super) async fn bare_url(&self, repository: &Repository, digest: &Digest) -> Result<Url> {
        self.client.url(&blob_path(repository, digest)).await
    }

    /// The answer to a request for a piece.
    async fn read_piece(
        &self,
        response: Response,
        repository: &Repository,
        digest: &Digest,
        range: ByteRange,
    ) -> Result<Blob> {
        let (size, span, skipped) = match response.status() {
            // The registry gives the whole all the same (RFC 9110 section 14.2 lets it).
            StatusCode::OK => {
                let size = self.size_of(&response, repository, digest).await?;
                let span = range.within(size).ok_or(RegistryError::RangeNotSatisfiable { size })?;
                (size, span, span.start)
            }
            StatusCode::PARTIAL_CONTENT => {
                let given = content_range(response.headers())
                    .filter(|(span, size)| range.within(*size) == Some(*span));
                let wrong = || self.client.transport.protocol("it sends another range than was asked for");
                let (span, size) = given.ok_or_else(wrong)?;
                (size, span, 0)
            }
            _ => return Err(self.blob_failure(response, repository, digest).await),
        };
        let bytes = cut(self.client.transport.stream(response), skipped, span.length);
        Ok(Blob::Stream(BlobStream { size, span: Some(span), bytes }))
    }

    async fn blob_failure(
        &self,
        response: Response,
        repository: &Repository,
        digest: &Digest,
    ) -> RegistryError {
        let purpose = Purpose { operation: "reading blobs", subject: Subject::Blob(repository, digest) };
        self.client.failure(response, &Scopes::pull(repository), purpose).await
    }

    /// The size of a whole blob that is on its way; a proxy may have taken the header that says it.
    async fn size_of(&self, response: &Response, repository: &Repository, digest: &Digest) -> Result<u64> {
        match content_length(response.headers()) {
            Some(size) => Ok(size),
            None => self.head_blob(repository, digest).await?.ok_or_else(|| self.no_size()),
        }
    }

    fn no_size(&self) -> RegistryError {
        self.client.transport.protocol("it does not say how long a blob is")
    }

    pub(super) async fn read_blob_size(&self, repository: &Repository, digest: &Digest) -> Result<u64> {
        if let Some(size) = self.head_blob(repository, digest).await? {
            return Ok(size);
        }
        // What a redirect leads to is signed for GET alone, so that is asked, and the body is left alone.
        let response = self.client.get(blob_call(Method::GET, repository, digest)).await?;
        match response.status() {
            StatusCode::OK => content_length(response.headers()).ok_or_else(|| self.no_size()),
            _ => Err(self.blob_failure(response, repository, digest).await),
        }
    }

    /// The size by HEAD; `None` where the answer does not say it.
    async fn head_blob(&self, repository: &Repository, digest: &Digest) -> Result<Option<u64>> {
        let response = self.client.send(&blob_call(Method::HEAD, repository, digest)).await?;
        match response.status() {
            StatusCode::OK => Ok(content_length(response.headers())),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Ok(None),
            _ if self.client.target(&response)?.is_some() => Ok(None),
            _ => Err(self.blob_failure(response, repository, digest).await),
        }
    }

    pub(super) async fn remove_blob(&self, repository: &Repository, digest: &Digest) -> Result<()> {
        let scopes = Scopes::delete(repository);
        let call = Call::new(Method::DELETE, blob_path(repository, digest), scopes.clone());
        let response = self.client.write(call).await?;
        if response.status().is_success() {
            return Ok(());
        }
        let purpose = Purpose { operation: "deleting blobs", subject: Subject::Blob(repository, digest) };
        Err(self.client.failure(response, &scopes, purpose).await)
    }

    /// Sends a blob in one piece. What fails in a way that may pass is begun again: a session is of no use after that.
    pub(super) async fn write_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        source: &dyn BlobSource,
    ) -> Result<()> {
        let scopes = Scopes::push(repository);
        let mut tried = 0;
        loop {
            tried += 1;
            let outcome = self.send_blob(repository, digest, source, &scopes).await;
            let error = match outcome {
                // A token that ran out in the middle of an upload: there is a new one by now.
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED && tried == 1 => continue,
                Ok(response) => match self.expect_stored(response, repository, &scopes).await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let asked = match &error {
                RegistryError::TooManyRequests { retry_after, .. } => *retry_after,
                error if error.is_passing() => None,
                _ => return Err(error),
            };
            let Some(wait) = self.client.transport.retry().wait(tried, asked) else { return Err(error) };
            tokio::time::sleep(wait).await;
            // Gateways lose patience with registries that copy a large blob to its place.
            if self.existence.has_arrived(&self.client, repository, digest).await {
                return Ok(());
            }
        }
    }

    /// One session: POST, and PUT of all the bytes to where that leads.
    async fn send_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        source: &dyn BlobSource,
        scopes: &Scopes,
    ) -> Result<Response> {
        let session = self.begin_upload(repository, digest.algorithm()).await?;
        let mut url = with_digest(session, digest);
        for _ in 0..=MAX_REDIRECTS {
            let size = source.size();
            let bytes = verified(source.open().await?, digest, size);
            let call = Call::to(Method::PUT, url, scopes.clone())
                .header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))
                .header(CONTENT_LENGTH, HeaderValue::from(size));
            let response = self.client.send_stream(call, bytes).await?;
            match self.client.target(&response)? {
                None => return Ok(response),
                Some(target) => url = target,
            }
        }
        Err(self.client.transport.astray(RedirectError::TooMany))
    }

    /// The answer to the request that ends an upload.
    pub(super) async fn expect_stored(
        &self,
        response: Response,
        repository: &Repository,
        scopes: &Scopes,
    ) -> Result<()> {
        if matches!(response.status(), StatusCode::CREATED | StatusCode::OK | StatusCode::NO_CONTENT) {
            return Ok(());
        }
        let purpose = Purpose { operation: "pushing blobs", subject: Subject::Upload(repository) };
        Err(self.client.failure(response, scopes, purpose).await)
    }

    /// Opens an upload session; its URL may be of another origin, which then gets no credentials.
    pub(super) async fn begin_upload(&self, repository: &Repository, algorithm: Algorithm) -> Result<Url> {
        let scopes = Scopes::push(repository);
        let query = match algorithm {
            Algorithm::Sha256 => "",
            Algorithm::Sha512 => "?digest-algorithm=sha512",
        };
        let path = format!("v2/{repository}/blobs/uploads/{query}");
        let call = Call::new(Method::POST, path, scopes.clone()).empty_body();
        let response = self.client.write(call).await?;
        if response.status() == StatusCode::ACCEPTED {
            let location = self.client.location(&response)?;
            return location
                .ok_or_else(|| self.client.transport.protocol("it opens an upload without a place for it"));
        }
        let purpose = Purpose { operation: "pushing blobs", subject: Subject::Repository(repository) };
        Err(self.client.failure(response, &scopes, purpose).await)
    }

    /// Asks for a mount. Whatever goes wrong, sending the blob is what remains, and it tells what is the matter.
    pub(super) async fn try_mount(
        &self,
        repository: &Repository,
        digest: &Digest,
        from: Option<&Repository>,
    ) -> bool {
        let from_query = from.map(|from| format!("&from={from}")).unwrap_or_default();
        let path = format!("v2/{repository}/blobs/uploads/?mount={digest}{from_query}");
        let call = Call::new(Method::POST, path, Scopes::mount(repository, from)).empty_body().once();
        let Ok(response) = self.client.write(call).await else { return false };
        if response.status() == StatusCode::ACCEPTED
            && let Ok(Some(session)) = self.client.location(&response)
        {
            // The registry has opened an upload instead. It is not used, and must not be left to lie about either.
            let call = Call::to(Method::DELETE, session, Scopes::push(repository)).once();
            let _ = self.client.send(&call).await;
        }
        response.status() == StatusCode::CREATED
    }
}

fn blob_path(repository: &Repository, digest: &Digest) -> String {
    format!("v2/{repository}/blobs/{digest}")
}

/// A compressed answer would be no answer: the digest is that of the bytes as they are.
fn blob_call<'a>(method: Method, repository: &Repository, digest: &Digest) -> Call<'a> {
    Call::new(method, blob_path(repository, digest), Scopes::pull(repository))
        .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}

fn with_range(call: Call<'_>, range: ByteRange) -> Call<'_> {
    match HeaderValue::from_str(&range.header()) {
        Ok(header) => call.header(RANGE, header),
        Err(_) => call,
    }
}

/// The URL that ends a session. Its query belongs to the registry and stays as it is.
pub(super) fn with_digest(mut session: Url, digest: &Digest) -> Url {
    let query = match session.query() {
        Some(query) if !query.is_empty() => format!("{query}&digest={digest}"),
        _ => format!("digest={digest}"),
    };
    session.set_query(Some(&query));
    session
}

/// The header itself: for HEAD there is no body whose length could be asked.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// `bytes 0-9/100`: which piece, and the size of the whole.
fn content_range(headers: &HeaderMap) -> Option<(Span, u64)> {
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
    use futures_util::stream;

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
    fn the_query_of_a_session_stays() {
        let digest = Digest::of(b"");
        let url = with_digest("https://r.example/u?_state=a%2Bb%3D".parse().unwrap(), &digest);
        assert_eq!(url.as_str(), format!("https://r.example/u?_state=a%2Bb%3D&digest={digest}"));
        let url = with_digest("https://r.example/u".parse().unwrap(), &digest);
        assert_eq!(url.as_str(), format!("https://r.example/u?digest={digest}"));
    }
}
