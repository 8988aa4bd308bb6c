//! Blobs on their way to a remote registry (specification, "Pushing a blob monolithically", "Pushing a blob in chunks").
//!
//! A blob is sent in one request. That every registry takes, whatever it thinks of chunks: some know none (Artifact Registry),
//! some take small ones alone (GHCR), one has kept the last and called it the blob (Artifactory). Where a registry, or a proxy in
//! front of it, refuses a request as too large (413), and nowhere else, the blob goes in chunks; it is looked at afterwards
//! whether the whole of it has arrived.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue, RANGE};
use reqwest::{Method, Response, StatusCode};
use tokio::time::{sleep, timeout};
use url::Url;

use super::RemoteRegistry;
use super::authorization::Scopes;
use super::client::{Call, Purpose, Subject};
use super::provisioning;
use super::redirect::{MAX_REDIRECTS, RedirectError};
use super::retry;
use crate::oci::{Algorithm, Digest, Repository};
use crate::registry::{BlobSource, ByteStream, RegistryError, Result, verified};

const OCI_CHUNK_MIN_LENGTH: HeaderName = HeaderName::from_static("oci-chunk-min-length");
/// A chunk is held in memory, since it may have to be sent again. This is the most that GHCR takes.
const CHUNK: u64 = 4 * 1024 * 1024;
/// The largest chunk that a registry may want.
const MAX_CHUNK: u64 = 64 * 1024 * 1024;
/// Smaller chunks are not tried: a registry that refuses this much as too large refuses blobs.
const MIN_CHUNK: u64 = 64 * 1024;
/// How much of a chunk is handed to the connection at a time, and so what has to get on within the time for a pause.
const PIECE: usize = 64 * 1024;

/// An upload session.
struct Session {
    /// Where the next request goes: of another origin, it gets no credentials.
    location: Url,
    /// How long every chunk but the last has to be.
    least_chunk: u64,
}

impl RemoteRegistry {
    /// Sends a blob. What fails in a way that may pass is begun again: a session is of no use after that.
    pub(super) async fn write_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        source: &dyn BlobSource,
    ) -> Result<()> {
        let scopes = Scopes::push(repository);
        let (mut tried, mut is_renewed) = (0, false);
        loop {
            let in_one = source.size() < self.refused_size.load(Ordering::Relaxed);
            let outcome = if in_one {
                self.send_whole(repository, digest, source, &scopes).await
            } else {
                self.send_in_chunks(repository, digest, source, &scopes).await
            };
            let error = match outcome {
                // A token that ran out in the middle of an upload (ECR says 403): there is a new one by now.
                Ok(response)
                    if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                        && !is_renewed =>
                {
                    is_renewed = true;
                    continue;
                }
                Ok(response) if response.status() == StatusCode::PAYLOAD_TOO_LARGE && in_one => {
                    self.refused_size.fetch_min(source.size(), Ordering::Relaxed);
                    continue;
                }
                Ok(response) => match self.expect_stored(response, repository, &scopes).await {
                    Ok(()) if in_one => return Ok(()),
                    Ok(()) => return self.expect_whole(repository, digest, source.size()).await,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            tried += 1;
            let asked = match &error {
                RegistryError::TooManyRequests { retry_after, .. } => *retry_after,
                error if error.is_passing() => None,
                _ => return Err(error),
            };
            let Some(wait) = self.client.transport.retry().wait(tried, asked) else { return Err(error) };
            sleep(wait).await;
            // Gateways lose patience with registries that copy a large blob to its place.
            if self.existence.has_arrived(&self.client, repository, digest).await {
                return Ok(());
            }
        }
    }

    /// One session: POST, and PUT of all the bytes to where that leads.
    async fn send_whole(
        &self,
        repository: &Repository,
        digest: &Digest,
        source: &dyn BlobSource,
        scopes: &Scopes,
    ) -> Result<Response> {
        let session = self.begin_upload(repository, digest.algorithm()).await?;
        let mut url = with_digest(session.location, digest);
        for _ in 0..=MAX_REDIRECTS {
            let size = source.size();
            let bytes = verified(source.open().await?, digest, size);
            let call = Call::to(Method::PUT, url, scopes.clone());
            let response = self.send_bytes(call, bytes, size).await?;
            match self.client.target(&response)? {
                None => return Ok(response),
                Some(target) => url = target,
            }
        }
        Err(self.client.transport.astray(RedirectError::TooMany))
    }

    /// Sends `size` bytes, within the time that the slowest of all networks takes for so many.
    async fn send_bytes(&self, call: Call<'_>, bytes: ByteStream, size: u64) -> Result<Response> {
        let call = call
            .header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))
            .header(CONTENT_LENGTH, HeaderValue::from(size));
        let transport = &self.client.transport;
        let timeouts = transport.timeouts();
        let longest = timeouts.commit + Duration::from_secs(size / timeouts.least_rate.max(1));
        timeout(longest, self.client.send_stream(call, bytes))
            .await
            .map_err(|_| transport.unavailable("it takes the upload too slowly to come to an end"))?
    }

    /// One session: POST, a PATCH for each chunk, and a PUT with nothing but the digest.
    async fn send_in_chunks(
        &self,
        repository: &Repository,
        digest: &Digest,
        source: &dyn BlobSource,
        scopes: &Scopes,
    ) -> Result<Response> {
        let mut session = self.begin_upload(repository, digest.algorithm()).await?;
        let least = session.least_chunk.max(MIN_CHUNK);
        if least > MAX_CHUNK {
            let reason =
                format!("it wants chunks of at least {least} bytes; {MAX_CHUNK} are the most that are sent");
            return Err(self.client.transport.protocol(reason));
        }
        let mut bytes = verified(source.open().await?, digest, source.size());
        let (mut chunk, mut start, mut held) = (CHUNK.max(least), 0, BytesMut::new());
        loop {
            while (held.len() as u64) < chunk {
                match bytes.next().await {
                    Some(piece) => held.extend_from_slice(&piece?),
                    None => break,
                }
            }
            if held.is_empty() {
                break;
            }
            let length = usize::try_from(chunk).map_or(held.len(), |chunk| chunk.min(held.len()));
            let sent = held.split_to(length).freeze();
            if let Some(refusal) = self.send_chunk(&mut session, start, &sent, scopes).await? {
                if refusal.status() != StatusCode::PAYLOAD_TOO_LARGE || chunk == least {
                    return Ok(refusal);
                }
                chunk = (chunk / 2).max(least);
                let mut again = BytesMut::from(sent);
                again.unsplit(held);
                held = again;
                continue;
            }
            start += sent.len() as u64;
        }
        let url = with_digest(session.location, digest);
        self.send_bytes(Call::to(Method::PUT, url, scopes.clone()), stream::empty().boxed(), 0).await
    }

    /// One chunk; answers a refusal. What was lost on its way is asked for and, where it has not arrived, sent again.
    async fn send_chunk(
        &self,
        session: &mut Session,
        start: u64,
        chunk: &Bytes,
        scopes: &Scopes,
    ) -> Result<Option<Response>> {
        let end = start + chunk.len() as u64;
        let range = HeaderValue::from_str(&format!("{start}-{}", end - 1));
        let range = range.map_err(|_| self.client.transport.protocol("a range that is no header"))?;
        let (mut tried, mut is_renewed) = (0, false);
        loop {
            let call = Call::to(Method::PATCH, session.location.clone(), scopes.clone())
                .header(CONTENT_RANGE, range.clone());
            let outcome = self.send_bytes(call, pieces(chunk), chunk.len() as u64).await;
            let asked = match &outcome {
                Ok(response) if response.status().is_success() => {
                    self.advance(session, response)?;
                    return Ok(None);
                }
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED && !is_renewed => {
                    is_renewed = true;
                    continue;
                }
                Ok(response) if retry::is_passing(response.status()) => retry::asked_wait(response.headers()),
                Err(error) if error.is_passing() => None,
                _ => return outcome.map(Some),
            };
            tried += 1;
            let Some(wait) = self.client.transport.retry().wait(tried, asked) else {
                return outcome.map(Some);
            };
            sleep(wait).await;
            match self.received(session, scopes).await {
                Some(stands) if stands == end => return Ok(None),
                Some(stands) if stands == start => {}
                // Whatever it holds, it is not what was sent: the session is of no use.
                _ => return outcome.map(Some),
            }
        }
    }

    /// How many bytes a session has, where the registry says it.
    async fn received(&self, session: &mut Session, scopes: &Scopes) -> Option<u64> {
        let call = Call::to(Method::GET, session.location.clone(), scopes.clone());
        let response = self.client.send(&call).await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        self.advance(session, &response).ok()?;
        // Without the header there is nothing yet (`0-0` would be one byte).
        let Some(range) = response.headers().get(RANGE) else { return Some(0) };
        let range = range.to_str().ok()?;
        let last: u64 = range.strip_prefix("bytes=").unwrap_or(range).strip_prefix("0-")?.parse().ok()?;
        last.checked_add(1)
    }

    /// The next request goes where the answer to this one says.
    fn advance(&self, session: &mut Session, response: &Response) -> Result<()> {
        if let Some(location) = self.client.location(response)? {
            session.location = location;
        }
        Ok(())
    }

    /// The answer to the request that ends an upload.
    async fn expect_stored(
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

    /// What was sent in chunks has to be there as one.
    async fn expect_whole(&self, repository: &Repository, digest: &Digest, size: u64) -> Result<()> {
        match self.read_blob_size(repository, digest).await? {
            kept if kept == size => Ok(()),
            kept => {
                let reason =
                    format!("it took a blob of {size} bytes in chunks, and keeps {kept} bytes of it");
                Err(self.client.transport.protocol(reason))
            }
        }
    }

    async fn begin_upload(&self, repository: &Repository, algorithm: Algorithm) -> Result<Session> {
        let scopes = Scopes::push(repository);
        let query = match algorithm {
            Algorithm::Sha256 => "",
            Algorithm::Sha512 => "?digest-algorithm=sha512",
        };
        let path = format!("v2/{repository}/blobs/uploads/{query}");
        let call = Call::new(Method::POST, path, scopes.clone()).empty_body();
        let response = self.client.write(call).await?;
        if response.status() == StatusCode::ACCEPTED {
            let least = response.headers().get(OCI_CHUNK_MIN_LENGTH);
            let least_chunk = least.and_then(|least| least.to_str().ok()?.trim().parse().ok()).unwrap_or(0);
            let location = self.client.location(&response)?;
            let nowhere = || self.client.transport.protocol("it opens an upload without a place for it");
            return Ok(Session { location: location.ok_or_else(nowhere)?, least_chunk });
        }
        let purpose = Purpose { operation: "pushing blobs", subject: Subject::Repository(repository) };
        let error = self.client.failure(response, &scopes, purpose).await;
        Err(provisioning::of_push(error, &self.client.transport.registry))
    }
}

/// A chunk as a stream that can be seen to get on.
fn pieces(chunk: &Bytes) -> ByteStream {
    let chunk = chunk.clone();
    let starts = (0..chunk.len()).step_by(PIECE);
    stream::iter(starts.map(move |start| Ok(chunk.slice(start..chunk.len().min(start + PIECE))))).boxed()
}

/// The URL that ends a session. Its query belongs to the registry and stays as it is.
fn with_digest(mut session: Url, digest: &Digest) -> Url {
    let query = match session.query() {
        Some(query) if !query.is_empty() => format!("{query}&digest={digest}"),
        _ => format!("digest={digest}"),
    };
    session.set_query(Some(&query));
    session
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_a_session_stays() {
        let digest = Digest::of(b"");
        let url = with_digest("https://r.example/u?_state=a%2Bb%3D".parse().unwrap(), &digest);
        assert_eq!(url.as_str(), format!("https://r.example/u?_state=a%2Bb%3D&digest={digest}"));
        let url = with_digest("https://r.example/u".parse().unwrap(), &digest);
        assert_eq!(url.as_str(), format!("https://r.example/u?digest={digest}"));
    }
}
