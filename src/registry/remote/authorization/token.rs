//! Token services: what is asked of them ("Token Authentication Specification" and "OAuth2 Token Authentication" of the
//! distribution project), and what of their answers is believed.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde::Deserialize;
use url::{Url, form_urlencoded};

use super::{Ticket, basic_header};
use crate::registry::RegistryError;
use crate::registry::remote::redirect;
use crate::registry::remote::retry;
use crate::registry::remote::transport::Transport;

/// The whole answer of a token service: tokens of cloud registries are a few KiB.
const MAX_ANSWER: u64 = 1024 * 1024;
/// A token becomes a header, and servers refuse headers that are much longer than this.
const MAX_TOKEN: usize = 32 * 1024;
/// The lifetime of a token that says nothing of it, and the shortest one that is believed ("Token Authentication
/// Specification": clients may assume 60 seconds).
const DEFAULT_LIFETIME: Duration = Duration::from_mins(1);
/// The longest lifetime that is believed: ECR's tokens live for 12 hours.
const MAX_LIFETIME: Duration = Duration::from_hours(12);

/// A token service, and what a token of it is to be good for.
pub(super) struct TokenService<'a> {
    pub(super) transport: &'a Transport,
    /// The registry's own origin.
    pub(super) base: &'a Url,
    pub(super) realm: &'a Url,
    pub(super) service: Option<&'a str>,
    pub(super) scopes: Vec<&'a str>,
}

/// What a token service gave.
pub(super) struct Granted {
    pub(super) ticket: Ticket,
    /// From now on, by our own clock: the service's may be another.
    pub(super) lifetime: Duration,
    /// What to ask with the next time.
    pub(super) refresh_token: Option<String>,
}

/// Why there is no token.
pub(super) enum TokenError {
    /// The service does not take the credential, or not in this way (a status from 400 to 499, or 501).
    Refused(StatusCode),
    /// Anything else.
    Failed(RegistryError),
}

impl From<RegistryError> for TokenError {
    fn from(error: RegistryError) -> Self {
        Self::Failed(error)
    }
}

impl TokenError {
    /// Whether the service may only not know the way in which it was asked. What it answers then is 404 or 405 by the book, and in
    /// the wild 400 and 401 too.
    pub(super) fn may_be_of_the_way(&self) -> bool {
        matches!(self, Self::Refused(status) if matches!(status.as_u16(), 400 | 401 | 404 | 405 | 415 | 501))
    }

    /// Whether the credential is not taken.
    pub(super) fn is_of_the_credential(&self) -> bool {
        matches!(self, Self::Refused(status) if matches!(status.as_u16(), 400 | 401 | 403))
    }
}

/// The answer of a token service. Both names are in use.
#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
    /// A number, by the book.
    expires_in: Option<serde_json::Value>,
    refresh_token: Option<String>,
}

impl TokenService<'_> {
    /// By GET, as somebody or as nobody: open repositories of large registries want a token too.
    pub(super) async fn by_password(&self, pair: Option<(&str, &str)>) -> Result<Granted, TokenError> {
        let client = self.client().await?;
        let mut url = self.realm.clone();
        if self.service.is_some() || !self.scopes.is_empty() {
            let mut query = url.query_pairs_mut();
            query.extend_pairs(self.service.map(|service| ("service", service)));
            query.extend_pairs(self.scopes.iter().map(|scope| ("scope", *scope)));
        }
        let unusable = || self.transport.unauthorized("the credential holds bytes that no header can");
        let ticket = pair.map(|(username, password)| {
            Ticket::new(&basic_header(username, password), true).ok_or_else(unusable)
        });
        let ticket = ticket.transpose()?;
        self.ask(|| match &ticket {
            Some(ticket) => client.get(url.clone()).header(AUTHORIZATION, ticket.value.clone()),
            None => client.get(url.clone()),
        })
        .await
    }

    /// By POST, with a refresh token (OAuth2, RFC 6749 section 6).
    pub(super) async fn by_refresh_token(&self, token: &str) -> Result<Granted, TokenError> {
        let client = self.client().await?;
        let form = self.refresh_form(token);
        self.ask(|| {
            client
                .post(self.realm.clone())
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.clone())
        })
        .await
    }

    fn refresh_form(&self, token: &str) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "refresh_token").append_pair("client_id", "ocimod");
        if let Some(service) = self.service {
            form.append_pair("service", service);
        }
        if !self.scopes.is_empty() {
            form.append_pair("scope", &self.scopes.join(" "));
        }
        form.append_pair("refresh_token", token).finish()
    }

    async fn client(&self) -> Result<reqwest::Client, RegistryError> {
        if redirect::same_origin(self.base, self.realm) {
            Ok(self.transport.own().await)
        } else {
            self.transport.realm(self.realm).await
        }
    }

    async fn ask(&self, request: impl Fn() -> reqwest::RequestBuilder) -> Result<Granted, TokenError> {
        let transport = self.transport;
        let response = transport.repeat(|| transport.exchange(request())).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(match status {
                StatusCode::TOO_MANY_REQUESTS => RegistryError::TooManyRequests {
                    registry: transport.registry.to_string(),
                    retry_after: retry::asked_wait(response.headers()),
                }
                .into(),
                status if status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED => {
                    TokenError::Refused(status)
                }
                status => {
                    let reason = format!("its token service answers with status {}", status.as_u16());
                    let is_passing = status.is_server_error();
                    if is_passing { transport.unavailable(reason) } else { transport.protocol(reason) }.into()
                }
            });
        }
        let body = transport.body(response, MAX_ANSWER).await?;
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| transport.protocol("its token service answers something that is no token"))?;
        let token =
            answer.token.filter(|token| !token.is_empty()).or(answer.access_token).unwrap_or_default();
        let ticket = bearer(&token).ok_or_else(|| {
            transport.protocol(format!("its token service gave a token that is not used: it {UNUSABLE}"))
        })?;
        Ok(Granted {
            ticket,
            lifetime: lifetime(answer.expires_in.as_ref()),
            refresh_token: answer.refresh_token.filter(|token| (1..=MAX_TOKEN).contains(&token.len())),
        })
    }
}

/// What is wrong with a token that is no header.
pub(super) const UNUSABLE: &str = "is empty, too long, or not of printable ASCII characters";

/// A token as a header; `None` where it cannot be one as it is.
pub(super) fn bearer(token: &str) -> Option<Ticket> {
    let is_fine = (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_fine { Ticket::new(&format!("Bearer {token}"), false) } else { None }
}

/// For how long a token is used: a tenth less than it says, so that it does not run out on its way.
fn lifetime(expires_in: Option<&serde_json::Value>) -> Duration {
    let seconds = match expires_in {
        Some(serde_json::Value::Number(number)) => number.as_f64(),
        // Some services write `"300"`.
        Some(serde_json::Value::String(text)) => text.trim().parse().ok(),
        _ => None,
    };
    let said = seconds.map_or(DEFAULT_LIFETIME, |seconds: f64| {
        // What is no time at all is not believed.
        Duration::try_from_secs_f64(seconds.min(MAX_LIFETIME.as_secs_f64())).unwrap_or(DEFAULT_LIFETIME)
    });
    said.clamp(DEFAULT_LIFETIME, MAX_LIFETIME).mul_f64(0.9)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_are_no_header_are_refused() {
        for token in ["", "a\nb", "a b", "é", "a\u{7f}", &"x".repeat(MAX_TOKEN + 1)] {
            assert!(bearer(token).is_none());
        }
        assert!(bearer("abc.DEF-_~+/=").is_some());
    }

    #[test]
    fn lifetimes_are_kept_within_reason() {
        let of = |text: &str| lifetime(Some(&serde_json::from_str(text).unwrap())).as_secs();
        for said in ["300", "300.0", "300.9", r#""300""#] {
            assert_eq!(of(said), 270, "{said}");
        }
        for short in ["0", "-5", "1", "null", "true", r#""""#, r#""soon""#, "[]", "{}"] {
            assert_eq!(of(short), 54, "{short}");
        }
        for long in ["18446744073709551615", "1e300", r#""inf""#] {
            assert_eq!(of(long), 38_880, "{long}");
        }
        assert_eq!(lifetime(None).as_secs(), 54);
    }
}
