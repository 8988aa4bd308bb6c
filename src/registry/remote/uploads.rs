//! Upload sessions in pieces (specification, "Pushing a blob in chunks").
//!
//! Where a session lives is the registry's secret, and its URL changes with every piece; callers know it by a random word of
//! ours. What passes through is hashed, so that wrong content is noticed here, with both digests to name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use reqwest::header::{CONTENT_TYPE, HeaderValue, RANGE};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::RemoteRegistry;
use super::authorization::Scopes;
use super::blobs::with_digest;
use super::client::{Call, Purpose, Subject};
use crate::oci::{Algorithm, Digest, Hasher, Repository};
use crate::registry::{ByteStream, RegistryError, Result, UploadId};

/// Sessions at a time; a caller that leaves more behind loses the knowledge of some.
const MAX_SESSIONS: usize = 4096;

/// What is known of the sessions that are open.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<UploadId, Session>>);

#[derive(Clone)]
struct Session {
    repository: Repository,
    location: Url,
    /// Where the upload stands; `None` after a failure, until the registry is asked.
    offset: Option<u64>,
    /// Of all that arrived; `None` where that is not known.
    hasher: Option<Hasher>,
    algorithm: Algorithm,
}

impl Sessions {
    fn with<T>(&self, use_sessions: impl FnOnce(&mut HashMap<UploadId, Session>) -> T) -> T {
        use_sessions(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A session of that repository.
    fn get(&self, repository: &Repository, upload: &UploadId) -> Result<Session> {
        let session = self.with(|sessions| sessions.get(upload).cloned());
        session.filter(|session| session.repository == *repository).ok_or(RegistryError::UploadUnknown)
    }

    fn put(&self, upload: UploadId, session: Session) {
        self.with(|sessions| {
            if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(&upload) {
                let left = sessions.keys().next().cloned();
                left.map(|left| sessions.remove(&left));
            }
            sessions.insert(upload, session);
        });
    }

    fn remove(&self, upload: &UploadId) {
        self.with(|sessions| sessions.remove(upload));
    }
}

impl RemoteRegistry {
    pub(super) async fn new_upload(&self, repository: &Repository, algorithm: Algorithm) -> Result<UploadId> {
        let location = self.begin_upload(repository, algorithm).await?;
        let mut random = [0; 16];
        let made = getrandom::fill(&mut random).ok().and_then(|()| UploadId::new(&hex::encode(random)));
        let upload = made.ok_or_else(|| {
            RegistryError::io("naming an upload")(std::io::Error::other("the system gives no random numbers"))
        })?;
        let session = Session {
            repository: repository.clone(),
            location,
            offset: Some(0),
            hasher: Some(Hasher::new(algorithm)),
            algorithm,
        };
        self.sessions.put(upload.clone(), session);
        Ok(upload)
    }

    pub(super) async fn ask_offset(&self, repository: &Repository, upload: &UploadId) -> Result<u64> {
        let mut session = self.sessions.get(repository, upload)?;
        if let Some(offset) = session.offset {
            return Ok(offset);
        }
        let scopes = Scopes::push(repository);
        let call = Call::to(Method::GET, session.location.clone(), scopes.clone());
        let response = self.client.send(&call).await?;
        if !response.status().is_success() {
            return Err(self.upload_failure(response, repository, upload, &scopes).await);
        }
        let offset = received(&response).unwrap_or(0);
        self.advance(&mut session, &response)?;
        session.offset = Some(offset);
        self.sessions.put(upload.clone(), session);
        Ok(offset)
    }

    pub(super) async fn append(
        &self,
        repository: &Repository,
        upload: &UploadId,
        offset: Option<u64>,
        bytes: ByteStream,
    ) -> Result<u64> {
        let start = self.ask_offset(repository, upload).await?;
        if offset.is_some_and(|offset| offset != start) {
            return Err(RegistryError::OutOfOrder { offset: start });
        }
        let mut session = self.sessions.get(repository, upload)?;
        // Until the registry has answered, nobody knows what arrived.
        let seen = Arc::new(Mutex::new((session.hasher.take(), 0_u64)));
        self.sessions.put(upload.clone(), Session { offset: None, ..session.clone() });
        let counted = {
            let seen = Arc::clone(&seen);
            bytes.inspect(move |piece| {
                if let Ok(piece) = piece {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.1 += piece.len() as u64;
                    if let Some(hasher) = &mut seen.0 {
                        hasher.update(piece);
                    }
                }
            })
        };
        let scopes = Scopes::push(repository);
        // Without Content-Range: the length of a stream is not known before its end ("the lot").
        let call = Call::to(Method::PATCH, session.location.clone(), scopes.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        let response = self.client.send_stream(call, counted.boxed()).await?;
        if !response.status().is_success() {
            return Err(self.upload_failure(response, repository, upload, &scopes).await);
        }
        self.advance(&mut session, &response)?;
        let (hasher, count) = {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            (seen.0.take(), seen.1)
        };
        let expected = start + count;
        // `0-0` is both one byte and the older word for none, so what was counted decides where it can.
        let stands = received(&response).filter(|stands| *stands > 1).unwrap_or(expected);
        session.hasher = hasher.filter(|_| stands == expected);
        session.offset = Some(stands);
        self.sessions.put(upload.clone(), session);
        Ok(stands)
    }

    pub(super) async fn finish(
        &self,
        repository: &Repository,
        upload: &UploadId,
        digest: &Digest,
    ) -> Result<()> {
        let session = self.sessions.get(repository, upload)?;
        if let Some(hasher) = session.hasher.filter(|_| session.algorithm == digest.algorithm()) {
            let actual = hasher.finish();
            if actual != *digest {
                // What is wrong is not left with the registry; whether it lets go of it is its own affair.
                let _ = self.cancel(repository, upload).await;
                return Err(RegistryError::DigestMismatch { expected: digest.clone(), actual });
            }
        }
        let scopes = Scopes::push(repository);
        let call =
            Call::to(Method::PUT, with_digest(session.location, digest), scopes.clone()).empty_body().once();
        self.sessions.remove(upload);
        let outcome = match self.client.send(&call).await {
            Ok(response) => self.expect_stored(response, repository, &scopes).await,
            Err(error) => Err(error),
        };
        match outcome {
            Err(error) if error.is_passing() => {
                if self.existence.has_arrived(&self.client, repository, digest).await {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            outcome => outcome,
        }
    }

    pub(super) async fn cancel(&self, repository: &Repository, upload: &UploadId) -> Result<()> {
        let session = self.sessions.get(repository, upload)?;
        self.sessions.remove(upload);
        let scopes = Scopes::push(repository);
        let response = self.client.send(&Call::to(Method::DELETE, session.location, scopes.clone())).await?;
        match response.status() {
            // Some registries let sessions run out and nothing else.
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(self.upload_failure(response, repository, upload, &scopes).await),
        }
    }

    /// The next piece goes where the answer to this one says.
    fn advance(&self, session: &mut Session, response: &Response) -> Result<()> {
        if let Some(location) = self.client.location(response)? {
            session.location = location;
        }
        Ok(())
    }

    async fn upload_failure(
        &self,
        response: Response,
        repository: &Repository,
        upload: &UploadId,
        scopes: &Scopes,
    ) -> RegistryError {
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE
            && let Some(offset) = received(&response)
        {
            return RegistryError::OutOfOrder { offset };
        }
        let purpose = Purpose { operation: "uploading in pieces", subject: Subject::Upload(repository) };
        let error = self.client.failure(response, scopes, purpose).await;
        if matches!(error, RegistryError::UploadUnknown) {
            self.sessions.remove(upload);
        }
        error
    }
}

/// How much has arrived, by `Range: 0-<last>`.
fn received(response: &Response) -> Option<u64> {
    let text = response.headers().get(RANGE)?.to_str().ok()?;
    let last: u64 = text.strip_prefix("bytes=").unwrap_or(text).strip_prefix("0-")?.parse().ok()?;
    last.checked_add(1)
}
