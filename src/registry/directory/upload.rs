//! Upload sessions: a file that grows. Its length is how far the upload is, so a session outlives the process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;

use super::layout::random_word;
use super::stamp::{Stamp, hash};
use super::store::{Store, writing};
use crate::oci::{Digest, Repository};
use crate::registry::{RegistryError, Result, UploadId};

/// How many uploads may be open, whoever opened them: far more than clients use, few enough that those of clients that never
/// end theirs take no disk's files. The collection of garbage removes idle ones.
const OPEN_UPLOADS: usize = 10_000;

/// An upload that nobody else appends to or ends for as long as this is there.
pub(super) struct Session {
    pub(super) file: File,
    /// How many bytes have arrived.
    pub(super) offset: u64,
}

impl Store {
    /// Opens an upload session.
    pub(super) fn open_upload(&self, repository: &Repository) -> Result<UploadId> {
        let folder = self.layout.uploads();
        let open = std::fs::read_dir(&folder).map_err(writing(&folder))?.take(OPEN_UPLOADS).count();
        if open >= OPEN_UPLOADS {
            return Err(RegistryError::TooManyRequests { registry: "the store".into(), retry_after: None });
        }
        self.usage.check(&self.layout, 0)?;
        let word = random_word()?;
        let upload = UploadId::new(&word).ok_or(RegistryError::UploadUnknown)?;
        let path = self.layout.upload(repository, &upload);
        OpenOptions::new().write(true).create_new(true).open(&path).map_err(writing(&path))?;
        Ok(upload)
    }

    /// How many bytes of an upload have arrived.
    pub(super) fn upload_offset(&self, repository: &Repository, upload: &UploadId) -> Result<u64> {
        let path = self.layout.upload(repository, upload);
        std::fs::metadata(&path).map(|metadata| metadata.len()).map_err(unless_absent(&path))
    }

    /// Takes hold of an upload. Where another request has it, this one is told how far that is.
    pub(super) fn hold_upload(&self, repository: &Repository, upload: &UploadId) -> Result<Session> {
        let path = self.layout.upload(repository, upload);
        let file = OpenOptions::new().read(true).append(true).open(&path).map_err(unless_absent(&path))?;
        let offset = || file.metadata().map(|metadata| metadata.len()).map_err(writing(&path));
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RegistryError::OutOfOrder { offset: offset()? }),
            Err(TryLockError::Error(error)) => return Err(writing(&path)(error)),
        }
        // Whoever held it before may have ended it: then the name is gone or of another file.
        let held = Stamp::of(&file.metadata().map_err(writing(&path))?);
        let named = Stamp::of(&std::fs::metadata(&path).map_err(unless_absent(&path))?);
        if cfg!(unix) && !held.is_same_file(&named) {
            return Err(RegistryError::UploadUnknown);
        }
        Ok(Session { offset: offset()?, file })
    }

    /// Ends an upload.
    pub(super) fn finish_upload(
        &self,
        repository: &Repository,
        upload: &UploadId,
        digest: &Digest,
    ) -> Result<()> {
        let Session { mut file, .. } = self.hold_upload(repository, upload)?;
        let path = self.layout.upload(repository, upload);
        let sealed = self.layout.seal_upload(repository, upload).map_err(unless_absent(&path))?;
        let actual = hash(&mut file, digest.algorithm()).map_err(writing(&path))?;
        if actual != *digest {
            return Err(RegistryError::DigestMismatch { expected: digest.clone(), actual });
        }
        self.publish(repository, digest, &sealed)
    }

    /// Forgets an upload and what arrived of it.
    pub(super) fn cancel_upload(&self, repository: &Repository, upload: &UploadId) -> Result<()> {
        let path = self.layout.upload(repository, upload);
        std::fs::remove_file(&path).map_err(unless_absent(&path))
    }
}

fn unless_absent(path: &Path) -> impl FnOnce(io::Error) -> RegistryError {
    move |error| match error.kind() {
        ErrorKind::NotFound => RegistryError::UploadUnknown,
        _ => writing(path)(error),
    }
}
