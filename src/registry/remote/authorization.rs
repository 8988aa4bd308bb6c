//! Who we are to the registry: challenges, token services, and the tokens that they gave.
//!
//! The handshake is our own, since a registry chooses where it leads: a realm has to pass [`redirect::check_realm`] before
//! anything is sent there, and what comes back is checked before it becomes a header. Tokens are kept per set of scopes and
//! credential (distribution project, "Token Authentication Specification"), and an [`Authorization`] belongs to one registry
//! and one identity alone. A failed handshake is an error: nothing goes out anonymously in its place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_auth::ChallengeParser;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use serde::Deserialize;
use tokio::time::Instant;
use url::{Url, form_urlencoded};

use super::redirect::{self, RedirectError};
use super::retry;
use super::transport::Transport;
use crate::oci::Repository;
use crate::registry::credentials::{Credential, CredentialSource};
use crate::registry::{RegistryError, Result};

/// The whole answer of a token service: tokens of cloud registries are a few KiB.
const MAX_TOKEN_ANSWER: u64 = 1024 * 1024;
/// A token becomes a header, and servers refuse headers that are much longer than this.
const MAX_TOKEN: usize = 32 * 1024;
/// The lifetime of a token that says nothing of it, and the shortest one that is believed ("Token Authentication
/// Specification": clients may assume 60 seconds).
const DEFAULT_LIFETIME: Duration = Duration::from_mins(1);
/// The longest lifetime that is believed: ECR's tokens live for 12 hours.
const MAX_LIFETIME: Duration = Duration::from_hours(12);
/// More sets of scopes than are in use at a time; the memory is emptied then.
const MAX_TOKENS: usize = 4096;

/// What a request needs the right to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scopes {
    /// Whose credential is used.
    repository: Option<Repository>,
    texts: Vec<String>,
}

impl Scopes {
    fn of(repository: &Repository, actions: &str) -> Self {
        let texts = vec![format!("repository:{repository}:{actions}")];
        Self { repository: Some(repository.clone()), texts }
    }

    pub(super) fn pull(repository: &Repository) -> Self {
        Self::of(repository, "pull")
    }

    pub(super) fn push(repository: &Repository) -> Self {
        Self::of(repository, "pull,push")
    }

    /// Everything: distribution wants `delete`, Quay gives no token for that word, both understand this one.
    pub(super) fn delete(repository: &Repository) -> Self {
        Self::of(repository, "*")
    }

    pub(super) fn mount(target: &Repository, source: Option<&Repository>) -> Self {
        let mut scopes = Self::push(target);
        if let Some(source) = source.filter(|source| *source != target) {
            scopes.texts.push(format!("repository:{source}:pull"));
        }
        scopes
    }

    pub(super) fn catalog() -> Self {
        Self { repository: None, texts: vec!["registry:catalog:*".into()] }
    }
}

/// How a registry wants to be told who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Not at all.
    Open,
    /// User name and password with every request.
    Basic,
    /// A token of a token service.
    Bearer { realm: Url, service: Option<String> },
}

/// Why no challenge of an answer can be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChallengeError {
    #[error("it names no way to authenticate that is known here")]
    None,
    #[error("its token service is not trusted: {0}")]
    Realm(#[from] RedirectError),
}

/// Chooses among the challenges of an answer from `base`: Bearer, else Basic.
pub(super) fn read_challenges(base: &Url, headers: &HeaderMap) -> Result<Challenge, ChallengeError> {
    let mut otherwise = Err(ChallengeError::None);
    let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    for challenge in values.flat_map(|value| ChallengeParser::new(value).map_while(Result::ok)) {
        let parameter = |name: &str| {
            let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_unescaped())
        };
        if challenge.scheme.eq_ignore_ascii_case("bearer") {
            let realm = parameter("realm").and_then(|realm| realm.parse::<Url>().ok());
            match realm.ok_or(RedirectError::Scheme).and_then(|realm| {
                redirect::check_realm(base, &realm)?;
                Ok(realm)
            }) {
                Ok(realm) => return Ok(Challenge::Bearer { realm, service: parameter("service") }),
                Err(error) if otherwise.is_err() => otherwise = Err(error.into()),
                Err(_) => {}
            }
        } else if challenge.scheme.eq_ignore_ascii_case("basic") {
            otherwise = Ok(Challenge::Basic);
        }
    }
    otherwise
}

/// The `Authorization` header of a request.
#[derive(Clone)]
pub(super) struct Ticket {
    value: HeaderValue,
    /// Whether it is older than the request, and so may have run out.
    pub(super) cached: bool,
}

impl Ticket {
    /// A header whose value no log shows.
    fn new(text: &str, cached: bool) -> Option<Self> {
        let mut value = HeaderValue::from_str(text).ok()?;
        value.set_sensitive(true);
        Some(Self { value, cached })
    }

    /// The header.
    pub(super) fn header(&self) -> (reqwest::header::HeaderName, HeaderValue) {
        (AUTHORIZATION, self.value.clone())
    }

    /// Whether the token or password stands in a URL, escaped or not.
    pub(super) fn is_in(&self, url: &Url) -> bool {
        let value = self.value.to_str().unwrap_or_default();
        let secret = value.split_once(' ').map_or(value, |(_, secret)| secret);
        let basic = STANDARD.decode(secret).ok().and_then(|pair| String::from_utf8(pair).ok());
        let password = basic.as_ref().and_then(|pair| Some(pair.split_once(':')?.1));
        let unescaped = |text: &str| form_urlencoded::parse(text.as_bytes()).into_owned().collect::<Vec<_>>();
        let parts = [unescaped(url.path()), unescaped(url.query().unwrap_or_default())].concat();
        [Some(secret), password].into_iter().flatten().any(|secret| {
            url.as_str().contains(secret)
                || parts.iter().any(|(name, value)| name.contains(secret) || value.contains(secret))
        })
    }

    /// Whether the registry would see the same.
    pub(super) fn is_same(one: Option<&Self>, other: Option<&Self>) -> bool {
        one.map(|ticket| &ticket.value) == other.map(|ticket| &ticket.value)
    }
}

/// A token and for how long and for whom it is good.
struct Token {
    ticket: Ticket,
    until: Instant,
    credential: Credential,
}

/// A place for one token; whoever needs it waits for the one who fetches it.
type Slot = Arc<tokio::sync::Mutex<Option<Token>>>;

/// One identity at one registry.
pub(super) struct Authorization {
    credentials: CredentialSource,
    challenge: Mutex<Challenge>,
    tokens: Mutex<HashMap<Scopes, Slot>>,
}

impl Authorization {
    pub(super) fn new(credentials: CredentialSource) -> Self {
        Self { credentials, challenge: Mutex::new(Challenge::Open), tokens: Mutex::default() }
    }

    /// What the registry asks for from now on.
    pub(super) fn set_challenge(&self, challenge: Challenge) {
        *self.challenge.lock().unwrap_or_else(PoisonError::into_inner) = challenge;
    }

    /// The header for a request with these scopes; `None` where the registry wants none, or where there is nothing to send.
    pub(super) async fn ticket(
        &self,
        transport: &Transport,
        base: &Url,
        scopes: &Scopes,
    ) -> Result<Option<Ticket>> {
        let challenge = self.challenge.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if challenge == Challenge::Open {
            return Ok(None);
        }
        let credential = self.credential(transport, scopes).await?;
        let unusable = || transport.unauthorized("the credential holds bytes that no header can");
        match (challenge, credential) {
            (_, Credential::Bearer(token)) => {
                check_token(&token).map_err(|_| unusable())?;
                Ok(Some(Ticket::new(&format!("Bearer {token}"), false).ok_or_else(unusable)?))
            }
            (Challenge::Bearer { realm, service }, credential) => {
                let slot = self.slot(scopes);
                let mut slot = slot.lock().await;
                match &*slot {
                    Some(token) if token.until > Instant::now() && token.credential == credential => {
                        Ok(Some(Ticket { cached: true, ..token.ticket.clone() }))
                    }
                    _ => {
                        let service = service.as_deref();
                        let token = fetch(transport, base, &realm, service, scopes, credential).await?;
                        let ticket = token.ticket.clone();
                        *slot = Some(token);
                        Ok(Some(ticket))
                    }
                }
            }
            (_, Credential::Basic { username, password }) => {
                Ok(Some(Ticket::new(&basic_header(&username, &password), false).ok_or_else(unusable)?))
            }
            (_, Credential::Anonymous) => Ok(None),
            (_, Credential::IdentityToken(_)) => Err(transport
                .unauthorized("it takes user name and password alone, and there is only a refresh token")),
        }
    }

    /// A header in place of one that was refused: its token is forgotten, credentials are looked up again, and a new challenge
    /// in the refusal is heeded.
    pub(super) async fn renew(
        &self,
        transport: &Transport,
        base: &Url,
        scopes: &Scopes,
        refused: Option<&Ticket>,
        headers: &HeaderMap,
    ) -> Result<Option<Ticket>> {
        match read_challenges(base, headers) {
            Ok(challenge) => self.set_challenge(challenge),
            Err(ChallengeError::None) => {}
            Err(error) => return Err(transport.unauthorized(error.to_string())),
        }
        self.credentials.forget(&transport.registry);
        let slot = self.slot(scopes);
        let mut token = slot.lock().await;
        if token.as_ref().is_some_and(|token| Ticket::is_same(Some(&token.ticket), refused)) {
            *token = None;
        }
        drop(token);
        self.ticket(transport, base, scopes).await
    }

    /// What a 401 means after all that could be done.
    pub(super) async fn refusal(&self, transport: &Transport, scopes: &Scopes) -> RegistryError {
        match self.credential(transport, scopes).await {
            Ok(Credential::Anonymous) => transport.unauthorized("none are known for it"),
            Ok(_) => transport.unauthorized("those that are known for it are not accepted"),
            Err(error) => error,
        }
    }

    async fn credential(&self, transport: &Transport, scopes: &Scopes) -> Result<Credential> {
        self.credentials
            .credential(&transport.registry, scopes.repository.as_ref())
            .await
            .map_err(|error| RegistryError::io("looking for credentials")(std::io::Error::other(error)))
    }

    fn slot(&self, scopes: &Scopes) -> Slot {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MAX_TOKENS && !tokens.contains_key(scopes) {
            tokens.clear();
        }
        Arc::clone(tokens.entry(scopes.clone()).or_default())
    }
}

fn basic_header(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

/// The answer of a token service. Both names are in use.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<serde_json::Number>,
}

/// Why a token is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is empty, over {MAX_TOKEN} bytes long, or not of printable ASCII characters")]
struct TokenError;

/// Whether a token can stand in a header as it is.
fn check_token(token: &str) -> Result<(), TokenError> {
    let is_fine = (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_fine { Ok(()) } else { Err(TokenError) }
}

/// Gets a token of a token service, for anonymous callers too: open repositories of large registries want one.
async fn fetch(
    transport: &Transport,
    base: &Url,
    realm: &Url,
    service: Option<&str>,
    scopes: &Scopes,
    credential: Credential,
) -> Result<Token> {
    let client = if redirect::same_origin(base, realm) { transport.own() } else { transport.realm().await? };
    let request = || {
        let mut url = realm.clone();
        match &credential {
            Credential::IdentityToken(token) => {
                // OAuth2, RFC 6749 section 6.
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                form.append_pair("grant_type", "refresh_token").append_pair("client_id", "ocimod");
                if let Some(service) = service {
                    form.append_pair("service", service);
                }
                form.append_pair("scope", &scopes.texts.join(" ")).append_pair("refresh_token", token);
                client
                    .post(url)
                    .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form.finish())
            }
            credential => {
                {
                    let mut query = url.query_pairs_mut();
                    if let Some(service) = service {
                        query.append_pair("service", service);
                    }
                    for scope in &scopes.texts {
                        query.append_pair("scope", scope);
                    }
                }
                let request = client.get(url);
                match credential {
                    Credential::Basic { username, password } => {
                        match Ticket::new(&basic_header(username, password), false) {
                            Some(ticket) => request.header(AUTHORIZATION, ticket.value),
                            None => request,
                        }
                    }
                    _ => request,
                }
            }
        }
    };
    let response = transport.repeat(|| transport.exchange(request())).await?;
    let status = response.status();
    if !status.is_success() {
        return Err(match status {
            StatusCode::TOO_MANY_REQUESTS => RegistryError::TooManyRequests {
                registry: transport.registry.to_string(),
                retry_after: retry::asked_wait(response.headers()),
            },
            status if status.is_server_error() => {
                transport.unavailable(format!("its token service answers with status {}", status.as_u16()))
            }
            status if status.is_client_error() => {
                let who =
                    if credential == Credential::Anonymous { "anonymous callers" } else { "the credentials" };
                transport
                    .unauthorized(format!("its token service refuses {who} (status {})", status.as_u16()))
            }
            status => {
                transport.protocol(format!("its token service answers with status {}", status.as_u16()))
            }
        });
    }
    let body = transport.body(response, MAX_TOKEN_ANSWER).await?;
    let answer: TokenAnswer = serde_json::from_slice(&body)
        .map_err(|_| transport.protocol("its token service answers something that is no token"))?;
    let token = answer.token.filter(|token| !token.is_empty()).or(answer.access_token).unwrap_or_default();
    let unusable =
        || transport.protocol(format!("its token service gave a token that is not used: {TokenError}"));
    check_token(&token).map_err(|_| unusable())?;
    let ticket = Ticket::new(&format!("Bearer {token}"), false).ok_or_else(unusable)?;
    let until = Instant::now() + lifetime(answer.expires_in.as_ref());
    Ok(Token { ticket, until, credential })
}

/// For how long a token is used: a tenth less than it says, so that it does not run out on its way.
fn lifetime(expires_in: Option<&serde_json::Number>) -> Duration {
    let seconds = expires_in.and_then(|number| number.as_u64().or_else(|| whole_seconds(number.as_f64()?)));
    let said = seconds.map_or(DEFAULT_LIFETIME, Duration::from_secs);
    said.clamp(DEFAULT_LIFETIME, MAX_LIFETIME).mul_f64(0.9)
}

/// Some services write `300.0`.
fn whole_seconds(seconds: f64) -> Option<u64> {
    Duration::try_from_secs_f64(seconds).ok().map(|duration| duration.as_secs())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, value.parse().unwrap());
        }
        headers
    }

    fn read(values: &[&str]) -> Result<Challenge, ChallengeError> {
        read_challenges(&"https://registry.example/".parse().unwrap(), &headers(values))
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let bearer = Challenge::Bearer {
            realm: "https://auth.example/token".parse().unwrap(),
            service: Some("registry".into()),
        };
        let one =
            r#"Basic realm="x", Bearer realm="https://auth.example/token",service="registry",scope="a,b""#;
        assert_eq!(read(&[one]).unwrap(), bearer);
        let two = r#"bearer REALM="https://auth.example/token", Service=registry"#;
        assert_eq!(read(&["Basic realm=x", two]).unwrap(), bearer);
        assert_eq!(read(&["Negotiate", r#"Basic realm="x""#]).unwrap(), Challenge::Basic);
    }

    #[test]
    fn what_cannot_be_met_is_said() {
        for values in
            [&[][..], &["Negotiate"], &["Bearer realm=\"unclosed"], &["=="], &["Digest realm=\"x\""]]
        {
            assert_eq!(read(values), Err(ChallengeError::None), "{values:?}");
        }
    }

    #[test]
    fn a_realm_is_checked_before_it_is_used() {
        for (value, error) in [
            (r#"Bearer realm="http://auth.example/token""#, RedirectError::Downgrade),
            (r#"Bearer realm="https://169.254.169.254/latest""#, RedirectError::PrivateAddress),
            (r#"Bearer realm="https://127.0.0.1/token""#, RedirectError::PrivateAddress),
            (r#"Bearer realm="https://user:x@auth.example/token""#, RedirectError::Scheme),
            (r#"Bearer realm="/token""#, RedirectError::Scheme),
            (r#"Bearer service="x""#, RedirectError::Scheme),
        ] {
            assert_eq!(read(&[value]), Err(ChallengeError::Realm(error)), "{value}");
        }
        let both = [r#"Bearer realm="http://auth.example/""#, r#"Basic realm="x""#];
        assert_eq!(read(&both).unwrap(), Challenge::Basic);
    }

    #[test]
    fn tokens_that_are_no_header_are_refused() {
        for token in ["", "a\nb", "a b", "é", "a\u{7f}", &"x".repeat(MAX_TOKEN + 1)] {
            assert_eq!(check_token(token), Err(TokenError));
        }
        assert_eq!(check_token("abc.DEF-_~+/="), Ok(()));
    }

    #[test]
    fn lifetimes_are_kept_within_reason() {
        let of = |text: &str| lifetime(Some(&serde_json::from_str(text).unwrap())).as_secs();
        assert_eq!(of("300"), 270);
        assert_eq!(of("300.0"), 270);
        for short in ["0", "-5", "1"] {
            assert_eq!(of(short), 54);
        }
        assert_eq!(of("18446744073709551615"), 38_880);
        assert_eq!(of("1e300"), 54);
        assert_eq!(lifetime(None).as_secs(), 54);
    }

    #[test]
    fn scopes_name_what_is_needed() {
        let (target, source): (Repository, Repository) = ("a/b".parse().unwrap(), "c".parse().unwrap());
        assert_eq!(
            Scopes::mount(&target, Some(&source)).texts,
            ["repository:a/b:pull,push", "repository:c:pull"]
        );
        assert_eq!(Scopes::mount(&target, Some(&target)).texts, ["repository:a/b:pull,push"]);
    }

    proptest! {
        #[test]
        fn no_challenge_makes_us_panic(text in "[ -~]{0,200}") {
            let _ = read(&[&text]);
        }

        #[test]
        fn nothing_near_a_challenge_makes_us_panic(
            text in r#"(Bearer|Basic|,| |=|"|\\|realm|service|https://a\.example/|x){0,30}"#
        ) {
            let _ = read(&[&text]);
        }
    }
}
