//! The options of `serve` for who may do what.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::super::Context;
use super::super::failure::{ErrorKind, Failure};
use crate::operations::access::{AccessFile, AccessFileError, Anonymous};
use crate::server::{Access, Archives, KeysError};

/// Options for who may do what
#[derive(Args, Clone, Debug, Default)]
pub struct AccessOptions {
    /// Answer only who shows a token of this file, which `ocimod token new` writes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub access: Option<PathBuf>,
    /// What callers without a token may do where there is an access file [default: none]
    #[arg(long, value_name = "WHAT")]
    pub anonymous: Option<AnonymousChoice>,
}

/// What callers without a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AnonymousChoice {
    /// Nothing
    None,
    /// Read everything
    Read,
}

impl AccessOptions {
    /// Refuses what would open a server to others without anybody having said so, and what contradicts itself.
    pub(super) fn check(&self, listen: SocketAddr, allow_anonymous: bool) -> Result<(), Failure> {
        if self.access.is_some() && allow_anonymous {
            return Err(Failure::usage(
                "`--access` says who may do what, and `--allow-anonymous` lets everybody do everything",
            )
            .with_hint("leave out one of the two; `--anonymous read` lets everybody read"));
        }
        if self.access.is_none() && self.anonymous.is_some() {
            return Err(Failure::usage("`--anonymous` says what those may do who show no token of `--access`, and there is no such file")
                .with_hint("name one with `--access FILE`; `--allow-anonymous` lets everybody do everything without one"));
        }
        if !listen.ip().is_loopback() && !allow_anonymous && self.access.is_none() {
            return Err(Failure::usage(format!(
                "on {listen} the server could be reached from elsewhere, and there are no rules for who may do what"
            ))
            .with_hint("make a token with `ocimod token new NAME --allow read --access FILE`, and name that file here: `--access FILE`")
            .with_hint("or listen on 127.0.0.1, or say `--allow-anonymous` where everybody may do everything"));
        }
        Ok(())
    }

    /// Reads the access file. What the token endpoint gives out is signed with the keys of links, which replicas share.
    pub(super) fn open(&self, context: &Context, archives: &Archives) -> Result<Access, Failure> {
        let Some(file) = &self.access else { return Ok(Access::Open) };
        let anonymous = match self.anonymous {
            None | Some(AnonymousChoice::None) => Anonymous::Nothing,
            Some(AnonymousChoice::Read) => Anonymous::Read,
        };
        let file = AccessFile::open(&context.environment.absolute(file)).map_err(|error| {
            let is_absent = matches!(&error, AccessFileError::Unreadable { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
            let failure = Failure::from(error);
            if is_absent {
                failure.with_hint("`ocimod token new NAME --allow read --access FILE` makes one")
            } else {
                failure
            }
        })?;
        let no_random = || Failure::new(ErrorKind::Failed, KeysError::NoRandom.to_string());
        Ok(Access::guarded(file, anonymous, archives.keys.clone().ok_or_else(no_random)?))
    }
}

/// Reads the access file again at each SIGHUP, which would otherwise end the process.
pub(super) fn reload_at_hangup(access: Access) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                let access = access.clone();
                // That it panicked would be a bug; the rules that there are hold all the same.
                let _ = tokio::task::spawn_blocking(move || access.reload()).await;
            }
        });
    }
    #[cfg(not(unix))]
    drop(access);
}
