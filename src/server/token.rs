//! `/v2/token`: gives clients of the distribution API something short-lived that stands for their token, or for nobody.
//!
//! GET with Basic, as every client can (distribution, "Token Authentication Specification"); POST with a form, as Docker's do first
//! ("Oauth2 Token Authentication"), where the token is the password or the refresh token. Scopes are not looked at: what is given out
//! allows what the token allows, and each request is decided on by itself.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt;
use serde_json::json;

use super::App;
use super::access::{Access, SESSION_LIFETIME, token_needed};
use super::error::ApiError;
use super::oci::{API_VERSION, api_version};
use crate::operations::access::{Caller, now};
use crate::operations::rfc3339;
use crate::registry::read_bounded;

/// A form holds a token and some names.
const MAX_FORM: u64 = 16 * 1024;

/// `GET /v2/token`
pub(super) async fn get(State(app): State<Arc<App>>, caller: Caller, parts: Parts) -> Response {
    finished(give(&app, &caller, &parts))
}

/// `POST /v2/token`
pub(super) async fn post(State(app): State<Arc<App>>, caller: Caller, parts: Parts, body: Body) -> Response {
    finished(match read(&app, caller, &parts, body).await {
        Ok(caller) => give(&app, &caller, &parts),
        Err(error) => Err(error),
    })
}

fn finished(answer: Result<Response, ApiError>) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().insert(API_VERSION, api_version());
    response
}

/// Who the form says that it is from. The headers may have said it already.
async fn read(app: &App, caller: Caller, parts: &Parts, body: Body) -> Result<Caller, ApiError> {
    let Access::Guarded(guard) = &app.options.access else { return Err(ApiError::NoEndpoint) };
    let bytes = body.into_data_stream().map_err(std::io::Error::other);
    let form = read_bounded(Box::pin(bytes), MAX_FORM).await.map_err(|_| ApiError::BrokenBody)?;
    let field = |name: &str| {
        let mut pairs = url::form_urlencoded::parse(&form);
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let token = match field("grant_type").as_str() {
        "password" => field("password"),
        "refresh_token" => field("refresh_token"),
        _ => return Err(ApiError::Grant),
    };
    if token.is_empty() {
        return Ok(caller);
    }
    guard.holder(&token).await.ok_or_else(|| match token_needed(app, parts) {
        ApiError::NoToken { challenge } => ApiError::WrongToken { challenge },
        other => other,
    })
}

fn give(app: &App, caller: &Caller, parts: &Parts) -> Result<Response, ApiError> {
    let Access::Guarded(guard) = &app.options.access else { return Err(ApiError::NoEndpoint) };
    let now = now();
    let session = guard.session(caller, now).ok_or_else(|| token_needed(app, parts))?;
    // Both names: one of each specification, and clients that read only one of them.
    let answer = json!({
        "token": session,
        "access_token": session,
        "token_type": "Bearer",
        "expires_in": SESSION_LIFETIME,
        "issued_at": rfc3339(now),
    });
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, answer.to_string()).into_response())
}
