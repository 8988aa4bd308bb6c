//! Service discovery (OpenTofu, "Remote Service Discovery"): where the module registry protocol is spoken on this host.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::App;

/// Clients take exactly this type.
const JSON: &str = "application/json";

/// `/.well-known/terraform.json`. It tells a path without a host, so that it is right behind any proxy.
pub(super) async fn services(State(app): State<Arc<App>>) -> impl IntoResponse {
    let base = app.options.base_path.as_ref().map_or("", |base| base.as_str());
    ([(CONTENT_TYPE, JSON)], format!("{{\"modules.v1\":\"{base}/v1/modules/\"}}\n"))
}
