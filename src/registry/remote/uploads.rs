//! Upload sessions in pieces, for callers who have a blob in no other way (specification, "Pushing a blob in chunks").
//!
//! What registries make of chunks differs too much to be passed on: some want each to have a least length, some refuse more than
//! a few megabytes, some know none at all. So the pieces are gathered in a file of our own, and the blob goes out at the end as
//! every other does (`sending`): in one request, which is repeated where it fails.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use tempfile::TempPath;
use tokio::io::AsyncWriteExt;

use super::RemoteRegistry;
use crate::oci::{Algorithm, Digest, Hasher, Repository};
use crate::registry::{ByteStream, FileSource, RegistryError, Result, UploadId};

/// Sessions at a time; of a caller that leaves more behind some are forgotten, with their files.
const MAX_SESSIONS: usize = 4096;

/// The sessions that are open.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<UploadId, SharedSession>>);

/// One piece at a time is added to a session.
type SharedSession = Arc<tokio::sync::Mutex<Session>>;

struct Session {
    repository: Repository,
    /// What has arrived. It goes with the session.
    file: TempPath,
    length: u64,
    /// Of all that has arrived.
    hasher: Hasher,
    algorithm: Algorithm,
}

impl Sessions {
    fn with<T>(&self, use_sessions: impl FnOnce(&mut HashMap<UploadId, SharedSession>) -> T) -> T {
        use_sessions(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A session of that repository, for one caller at a time.
    async fn get(
        &self,
        repository: &Repository,
        upload: &UploadId,
    ) -> Result<tokio::sync::OwnedMutexGuard<Session>> {
        let session = self.with(|sessions| sessions.get(upload).cloned());
        let session = session.ok_or(RegistryError::UploadUnknown)?.lock_owned().await;
        // Whoever had it before may have ended it.
        let is_open = self.with(|sessions| sessions.contains_key(upload));
        if is_open && session.repository == *repository {
            Ok(session)
        } else {
            Err(RegistryError::UploadUnknown)
        }
    }

    fn add(&self, upload: UploadId, session: Session) {
        self.with(|sessions| {
            if sessions.len() >= MAX_SESSIONS {
                let left = sessions.keys().next().cloned();
                left.map(|left| sessions.remove(&left));
            }
            sessions.insert(upload, Arc::new(tokio::sync::Mutex::new(session)));
        });
    }

    fn remove(&self, upload: &UploadId) {
        self.with(|sessions| sessions.remove(upload));
    }
}

impl RemoteRegistry {
    pub(super) async fn new_upload(&self, repository: &Repository, algorithm: Algorithm) -> Result<UploadId> {
        let mut random = [0; 16];
        let made = getrandom::fill(&mut random).ok().and_then(|()| UploadId::new(&hex::encode(random)));
        let upload = made.ok_or_else(|| {
            RegistryError::io("naming an upload")(std::io::Error::other("the system gives no random numbers"))
        })?;
        let file = tokio::task::spawn_blocking(tempfile::NamedTempFile::new).await;
        let file = file
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(RegistryError::io("making a temporary file"))?;
        let session = Session {
            repository: repository.clone(),
            file: file.into_temp_path(),
            length: 0,
            hasher: Hasher::new(algorithm),
            algorithm,
        };
        self.sessions.add(upload.clone(), session);
        Ok(upload)
    }

    pub(super) async fn ask_offset(&self, repository: &Repository, upload: &UploadId) -> Result<u64> {
        Ok(self.sessions.get(repository, upload).await?.length)
    }

    pub(super) async fn append(
        &self,
        repository: &Repository,
        upload: &UploadId,
        offset: Option<u64>,
        mut bytes: ByteStream,
    ) -> Result<u64> {
        let mut session = self.sessions.get(repository, upload).await?;
        if offset.is_some_and(|offset| offset != session.length) {
            return Err(RegistryError::OutOfOrder { offset: session.length });
        }
        let writing = || RegistryError::io("writing a temporary file");
        let file = tokio::fs::OpenOptions::new().append(true).open(&session.file).await;
        let mut file = file.map_err(writing())?;
        while let Some(piece) = bytes.next().await {
            // What came before a break has arrived.
            let piece = piece?;
            let written = async {
                file.write_all(&piece).await?;
                file.flush().await
            };
            if let Err(error) = written.await {
                // Nobody knows how much of it is there.
                self.sessions.remove(upload);
                return Err(writing()(error));
            }
            session.hasher.update(&piece);
            session.length += piece.len() as u64;
        }
        Ok(session.length)
    }

    pub(super) async fn finish(
        &self,
        repository: &Repository,
        upload: &UploadId,
        digest: &Digest,
    ) -> Result<()> {
        let session = self.sessions.get(repository, upload).await?;
        if session.algorithm == digest.algorithm() {
            let actual = session.hasher.clone().finish();
            if actual != *digest {
                self.sessions.remove(upload);
                return Err(RegistryError::DigestMismatch { expected: digest.clone(), actual });
            }
        }
        let source = FileSource::new(&session.file, session.length);
        let outcome = self.write_blob(repository, digest, &source).await;
        // Whatever may pass can be tried once more with what is here.
        if !outcome.as_ref().is_err_and(RegistryError::is_passing) {
            self.sessions.remove(upload);
        }
        outcome
    }

    pub(super) async fn cancel(&self, repository: &Repository, upload: &UploadId) -> Result<()> {
        drop(self.sessions.get(repository, upload).await?);
        self.sessions.remove(upload);
        Ok(())
    }
}
