//! Service discovery (OpenTofu, "Remote Service Discovery"): where the module registry protocol is spoken on this host.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

/// Clients take exactly this type.
const JSON: &str = "application/json";
/// Where [`super::modules`] is mounted. Relative, so that it is right behind any proxy.
const SERVICES: &str = "{\"modules.v1\":\"/v1/modules/\"}\n";

/// `/.well-known/terraform.json`
pub(super) async fn services() -> impl IntoResponse {
    ([(CONTENT_TYPE, JSON)], SERVICES)
}
