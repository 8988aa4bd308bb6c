//! Whether the process is alive, and whether it can answer: for whoever restarts it, and for whoever sends it requests.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::App;
use super::error::ApiError;
use crate::registry::{PageRequest, Registry, RegistryError};

/// A registry that takes longer is none that callers could be sent to; below the usual time-out of a probe.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long an answer holds: anybody may ask, and each question would be a request to the registry.
const HOLDS: Duration = Duration::from_secs(2);

/// What the registry said last, and when.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<Option<(Instant, bool)>>);

impl Readiness {
    /// Whether the registry answers. Callers at one time cause one question.
    async fn of(&self, registry: &dyn Registry) -> bool {
        let mut last = self.0.lock().await;
        if let Some((_, is_ready)) = last.filter(|(asked, _)| asked.elapsed() < HOLDS) {
            return is_ready;
        }
        let is_ready = answers(registry).await;
        *last = Some((Instant::now(), is_ready));
        is_ready
    }
}

/// Asks for the first repository. To be told that there is no such list, or not for us, is an answer too.
async fn answers(registry: &dyn Registry) -> bool {
    let page = PageRequest { count: Some(1), after: None };
    let error = match timeout(PATIENCE, registry.repositories(&page)).await {
        Ok(Ok(_)) => return true,
        Ok(Err(error)) => error,
        Err(_) => {
            tracing::warn!("the registry has not answered in {} s", PATIENCE.as_secs());
            return false;
        }
    };
    let is_away =
        error.is_passing() || matches!(error, RegistryError::Io { .. } | RegistryError::Protocol { .. });
    if is_away {
        tracing::warn!("the registry does not answer: {error}");
    }
    !is_away
}

/// `/healthz`: the process runs.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// `/readyz`: requests can be answered; not while the server stops, and not while its registry is away.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, ApiError> {
    if app.is_stopping() {
        Err(ApiError::Stopping)
    } else if app.readiness.of(&*app.registry).await {
        Ok("ready\n")
    } else {
        Err(ApiError::NotReady)
    }
}
