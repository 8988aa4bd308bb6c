//! The verbs: what the commands and the endpoints do. Whoever wants to know how a push works opens [`push`].

pub mod access;
pub mod catalog;
pub mod check;
pub mod client_setup;
pub mod closure;
pub mod connect;
pub mod copy;
pub mod cue_cache;
mod cue_module;
mod cue_packages;
pub mod cue_view;
pub mod delete;
pub mod download;
pub mod embedded;
pub mod encoding;
pub mod error;
mod finding;
pub mod git;
pub mod inspect;
pub mod install;
mod license;
pub mod list;
pub mod lock;
pub mod login;
pub mod pack;
pub mod pattern;
pub mod prepare;
mod progress;
pub mod providers;
pub mod published;
pub mod pull;
pub mod push;
pub mod registry_setting;
pub mod resolve;
pub mod routes;
pub mod search;
pub mod store;
pub mod yank;
pub mod zip_facts;

pub use error::OperationError;
pub use finding::Finding;
pub use progress::{NoProgress, Progress};

/// Runs work that reads and writes files, or that computes for long, where it does not hold up other tasks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> error::Result<T> + Send + 'static,
) -> error::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            // A bug: it shall be seen as what it is.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(OperationError::io("waiting for work")(error.into())),
        },
    }
}

/// A time in seconds since 1970 as RFC 3339, in UTC.
pub(crate) fn rfc3339(seconds: i64) -> String {
    let time = chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default();
    time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}
