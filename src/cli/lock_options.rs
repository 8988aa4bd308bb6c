//! The options of verbs that heed a lock.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::failure::{ErrorKind, Failure};
use crate::operations::lock::LockFile;

/// Which lock counts, and whether it is written.
#[derive(Args, Clone, Debug)]
pub struct LockOptions {
    /// Refuse what is not as this file has it: the digest of every module that is used
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Write the lock anew, whatever is in it
    #[arg(long)]
    pub update_lock: bool,
}

/// `file`, and whether it was `written`.
#[derive(Serialize)]
pub(super) struct LockAnswer {
    pub(super) file: String,
    pub(super) written: bool,
}

impl LockOptions {
    /// The lock that is named; without one there is nothing to update.
    pub(super) fn open(&self, context: &Context) -> Result<Option<LockFile>, Failure> {
        let Some(path) = &self.lock else {
            if self.update_lock {
                return Err(Failure::usage("`--update-lock` does not say which lock")
                    .with_hint("name it with `--lock FILE`"));
            }
            return Ok(None);
        };
        let path = context.environment.absolute(path);
        if self.update_lock {
            return Ok(Some(LockFile { path, lock: None }));
        }
        Ok(Some(LockFile::read(&path)?))
    }

    /// Refuses to go on without a lock that is there already.
    pub(super) fn expect_there(file: &LockFile) -> Result<(), Failure> {
        if file.lock.is_some() {
            return Ok(());
        }
        let message = format!("there is no lock {}", file.path.display());
        Err(Failure::new(ErrorKind::NotFound, message).with_hint("`--update-lock` writes it"))
    }
}
