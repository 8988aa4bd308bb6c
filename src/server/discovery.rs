//! Service discovery (OpenTofu, "Remote Service Discovery"): where the module registry protocol is spoken on this host.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

/// Clients take exactly this type.
const JSON: &str = "application/json";
/// Where [`super::modules`] is mounted. Relative, so that it is right behind any proxy.
const SERVICES: &str = "{\"modules.v1\":\"/v1/modules/\"}\n";

/// `/.well-known/terraform.json`
pub(super) fn router() -> Router {
    Router::new().route("/.well-known/terraform.json", get(services))
}

async fn services() -> impl IntoResponse {
    ([(CONTENT_TYPE, JSON)], SERVICES)
}
