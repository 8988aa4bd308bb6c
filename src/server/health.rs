//! Whether the process is alive, and whether it can answer: for whoever restarts it, and for whoever sends it requests.
//!
//! A server that keeps copies answers while its registry is away, so it stays ready and says that it is `degraded`: a balancer that took
//! all replicas out at once would turn a registry's failure into one of everything.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::App;
use super::error::ApiError;
use crate::registry::{PageRequest, Registry, RegistryError, SharedRegistry};

/// A registry that takes longer is none that callers could be sent to; below the usual time-out of a probe.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long an answer holds: anybody may ask, and each question would be a request to the registry.
const HOLDS: Duration = Duration::from_secs(2);

/// Whether the registries answered the last time, and when that was.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<Option<(Instant, bool)>>);

impl Readiness {
    /// Whether every registry answers. Callers at one time cause one question.
    async fn of(&self, registries: &[SharedRegistry]) -> bool {
        let mut last = self.0.lock().await;
        if let Some((_, is_ready)) = last.filter(|(asked, _)| asked.elapsed() < HOLDS) {
            return is_ready;
        }
        let asked = registries.iter().map(|registry| answers(&**registry));
        let is_ready = join_all(asked).await.into_iter().all(|is_ready| is_ready);
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

/// `/readyz`: requests can be answered; not while the server stops, not before it has looked through the registry for the first
/// time, and not while the registry is away, unless there are copies to answer from.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, ApiError> {
    if app.is_stopping() {
        Err(ApiError::Stopping)
    } else if app.is_starting() {
        Err(ApiError::Starting)
    } else if app.readiness.of(&app.behind).await {
        Ok("ready\n")
    } else if app.options.serves_copies {
        Ok("degraded\n")
    } else {
        Err(ApiError::NotReady)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use tower::ServiceExt;

    use super::super::{ServerOptions, router};
    use super::*;
    use crate::oci::Repository;
    use crate::operations::install::Installer;
    use crate::operations::routes::{RepositoryTemplate, Routes};
    use crate::operations::search::{Search, SearchOptions};
    use crate::registry::{Answer, Page};

    /// A registry that is away, or has nothing.
    struct Listed {
        is_away: bool,
    }

    impl Registry for Listed {
        fn repositories<'a>(&'a self, _: &'a PageRequest) -> Answer<'a, Page<Repository>> {
            Box::pin(async {
                if self.is_away {
                    return Err(RegistryError::Unavailable { registry: "x".into(), reason: "gone".into() });
                }
                Ok(Page { items: Vec::new(), next: None })
            })
        }
    }

    fn app(is_away: bool, serves_copies: bool) -> App {
        let routes = Routes::new(Vec::new(), RepositoryTemplate::default());
        over(is_away, serves_copies, Installer::without_search(routes, None))
    }

    fn over(is_away: bool, serves_copies: bool, installer: Installer) -> App {
        let options = ServerOptions { allow_anonymous: true, serves_copies, ..ServerOptions::default() };
        App::new(Arc::new(Listed { is_away }), installer, options)
    }

    async fn asked(app: &Arc<App>) -> (StatusCode, String) {
        let request = Request::get("/readyz").body(Body::empty()).unwrap();
        let answer = router(Arc::clone(app)).oneshot(request).await.unwrap();
        let (status, body) = (answer.status(), to_bytes(answer.into_body(), 1000).await.unwrap());
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn who_has_copies_stays_in_service_without_its_registry() {
        assert_eq!(asked(&Arc::new(app(false, false))).await, (StatusCode::OK, "ready\n".to_owned()));
        assert_eq!(asked(&Arc::new(app(true, true))).await, (StatusCode::OK, "degraded\n".to_owned()));
        assert_eq!(asked(&Arc::new(app(true, false))).await.0, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn one_registry_of_several_that_is_away_counts() {
        let behind = |away: [bool; 2]| away.map(|is_away| Arc::new(Listed { is_away }) as SharedRegistry);
        let over = |away| Arc::new(app(false, true).over(behind(away).to_vec()));
        assert_eq!(asked(&over([false, false])).await.1, "ready\n");
        assert_eq!(asked(&over([false, true])).await.1, "degraded\n");
        assert_eq!(asked(&over([true, false])).await.1, "degraded\n");
    }

    #[tokio::test]
    async fn nobody_is_sent_to_a_server_that_does_not_know_yet_what_there_is() {
        let routes = Routes::new(Vec::new(), RepositoryTemplate::default());
        let search = Arc::new(Search::new(&routes, SearchOptions::default()));
        let app = Arc::new(over(false, true, Installer::new(routes, None, Arc::clone(&search), None)));
        assert_eq!(asked(&app).await.0, StatusCode::SERVICE_UNAVAILABLE);
        search.look().await.unwrap();
        assert_eq!(asked(&app).await.0, StatusCode::OK);
        app.stopping.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(asked(&app).await.0, StatusCode::SERVICE_UNAVAILABLE);
    }
}
