//! Who sent a request, by its headers: a token of the access file, one that `/v2/token` gave out, or nobody.
//!
//! [`identify`] stands before every route and leaves a [`Caller`] with the request; what the caller may do is for the handler to ask,
//! which knows the repository. Whatever is no token that is known here is 401, and is never taken for nobody's: somebody whose token
//! has expired shall hear that, and not see a smaller world.
//!
//! The answer tells how to ask again. OpenTofu and Terraform know no way but Bearer. Clients of the distribution API take Basic, but
//! where strangers may read they are sent to `/v2/token` instead, since OpenTofu gives up at Basic, and skopeo forgets its credentials
//! where nobody asks for them.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::error::ApiError;
use super::oci::{API_VERSION, DistributionRequest, api_version};
use super::reload::Live;
use super::request_log::TokenName;
use super::signature::Keys;
use super::{App, ServerOptions};
use crate::operations::access::{AccessFile, Anonymous, Caller, Right, Rules, TokenRule, now};

/// What a user and a password may be long together: some of the tokens that others give out have kilobytes.
const MAX_CREDENTIAL: usize = 8 * 1024;

/// How long what `/v2/token` gives out holds: the time that a client takes between two requests, and a clock of a replica may be
/// wrong. What a token was taken away from ends at once, for the rule is looked up each time.
pub(super) const SESSION_LIFETIME: i64 = 5 * 60;

/// The purpose of signatures of what `/v2/token` gives out.
const SESSION: &str = "token of the distribution API";

/// In front of what `/v2/token` gives out. There are four parts with dots between them, since clients take three for a JWT.
const SESSION_PREFIX: &str = "v2";

/// Who may do what on a server.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Everybody may do everything that the server can do.
    #[default]
    Open,
    /// The rules of an access file hold.
    Guarded(Arc<Guard>),
}

impl Access {
    /// The rules of a file, and what those may do who show no token. The keys sign what `/v2/token` gives out.
    pub fn guarded(file: AccessFile, anonymous: Anonymous, keys: Live<Keys>) -> Self {
        Self::Guarded(Arc::new(Guard { file: Arc::new(file), anonymous, keys }))
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether callers without a token may read everything.
    pub fn strangers_may_read(&self) -> bool {
        match self {
            Self::Open => true,
            Self::Guarded(guard) => guard.anonymous == Anonymous::Read,
        }
    }

    /// Reads the access file again, where there is one. Blocks.
    pub fn reload(&self) {
        if let Self::Guarded(guard) = self {
            guard.file.reload();
        }
    }
}

/// What decides who a caller is.
pub struct Guard {
    file: Arc<AccessFile>,
    anonymous: Anonymous,
    keys: Live<Keys>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Guard")
            .field("file", &self.file)
            .field("anonymous", &self.anonymous)
            .finish_non_exhaustive()
    }
}

/// What a request leads to, as far as it matters for who may send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It names nothing that is kept here: everybody may see it.
    Public,
    /// A zip, by a link that is signed itself.
    Archive,
    /// The distribution API.
    Distribution,
    /// Where its clients get their tokens.
    Token,
    /// Everything else.
    Other,
}

impl Place {
    fn of(method: &Method, path: &str) -> Self {
        match path {
            "/healthz" | "/readyz" | "/.well-known/terraform.json" => Self::Public,
            "/" if method.is_safe() => Self::Public,
            "/v2/token" => Self::Token,
            path if path == "/v2" || path.starts_with("/v2/") => Self::Distribution,
            path if path.starts_with("/v1/") && path.ends_with("/archive.zip") => Self::Archive,
            path if path.starts_with("/v1/mirror/") && path.rsplit('.').next() == Some("zip") => {
                Self::Archive
            }
            _ => Self::Other,
        }
    }
}

/// What a request shows of its sender.
#[derive(PartialEq, Eq)]
enum Shown {
    Nothing,
    /// What can be no token.
    Garbage,
    Token(String),
}

impl Shown {
    fn by(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Self::Nothing };
        // Of two, another reader might believe the other one.
        if values.next().is_some() {
            return Self::Garbage;
        }
        let Ok(value) = value.to_str() else { return Self::Garbage };
        let (scheme, credential) = value.split_once(' ').unwrap_or((value, ""));
        let credential = credential.trim();
        if credential.len() > MAX_CREDENTIAL {
            Self::Garbage
        } else if scheme.eq_ignore_ascii_case("bearer") && !credential.is_empty() {
            Self::Token(credential.to_owned())
        } else if scheme.eq_ignore_ascii_case("basic") {
            Self::by_password(credential)
        } else {
            Self::Garbage
        }
    }

    /// The token is the password, whoever the user is. Without a password it is nobody, who some clients present like that.
    fn by_password(credential: &str) -> Self {
        let decoded = STANDARD.decode(credential).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        match decoded.as_deref().map(|text| text.split_once(':').unwrap_or((text, ""))) {
            None => Self::Garbage,
            Some((_, "")) => Self::Nothing,
            Some((_, password)) => Self::Token(password.to_owned()),
        }
    }
}

impl Guard {
    /// The rules in force; looks after the file when it is time to.
    async fn rules(&self) -> Arc<Rules> {
        if self.file.is_due() {
            let file = Arc::clone(&self.file);
            // That it panicked would be a bug; the rules that there are hold all the same.
            if let Err(error) = tokio::task::spawn_blocking(move || file.refresh()).await {
                tracing::error!("the access file could not be looked at: {error}");
            }
        }
        self.file.rules()
    }

    /// Who holds that token of the access file.
    pub(super) async fn holder(&self, token: &str) -> Option<Caller> {
        let rule = self.rules().await.holder(token, now())?;
        Some(Caller::holder(rule, self.anonymous))
    }

    /// Who sent a request; `None` where what it shows is not known here, or where it shows nothing and has to.
    async fn caller(&self, place: Place, shown: &Shown, path: &str) -> Result<Caller, Refusal> {
        if place == Place::Public {
            return Ok(Caller::stranger(self.anonymous));
        }
        match shown {
            Shown::Garbage => Err(Refusal::Wrong),
            Shown::Token(token) => {
                let caller = if place == Place::Distribution && is_session(token) {
                    self.by_session(token, now()).await
                } else {
                    self.holder(token).await
                };
                caller.ok_or(Refusal::Wrong)
            }
            Shown::Nothing => match place {
                Place::Public | Place::Archive | Place::Token => Ok(Caller::stranger(self.anonymous)),
                // To be asked is what makes clients show what they have.
                Place::Distribution if matches!(path, "/v2" | "/v2/") => Err(Refusal::Missing),
                _ if self.anonymous == Anonymous::Nothing => Err(Refusal::Missing),
                Place::Distribution | Place::Other => Ok(Caller::stranger(self.anonymous)),
            },
        }
    }

    /// Something that stands for the caller's token for a while, with the time at which it ends; `None` for a stranger who may do
    /// nothing.
    pub(super) fn session(&self, caller: &Caller, now: i64) -> Option<String> {
        let rule = caller.token();
        if rule.is_none() && self.anonymous == Anonymous::Nothing {
            return None;
        }
        let name = rule.map_or("", |rule| rule.name());
        let expires = now.saturating_add(SESSION_LIFETIME).to_string();
        let signature = self.keys.get().sign(SESSION, &[&expires, name, &hash(rule)]);
        Some(format!("{SESSION_PREFIX}.{expires}.{}.{signature}", URL_SAFE_NO_PAD.encode(name)))
    }

    /// Who was given a session. It names the token's rule, which is looked up: a token that is gone, or is another one by now, has no
    /// sessions.
    async fn by_session(&self, session: &str, now: i64) -> Option<Caller> {
        let mut parts = session.split('.').skip(1);
        let (expires, name, signature) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || expires.parse::<i64>().ok()? <= now {
            return None;
        }
        let name = String::from_utf8(URL_SAFE_NO_PAD.decode(name).ok()?).ok()?;
        let rule = if name.is_empty() { None } else { Some(self.rules().await.named(&name, now)?) };
        if !self.keys.get().verify(SESSION, &[expires, &name, &hash(rule.as_ref())], signature) {
            return None;
        }
        match rule {
            Some(rule) => Some(Caller::holder(rule, self.anonymous)),
            None => (self.anonymous == Anonymous::Read).then(|| Caller::stranger(self.anonymous)),
        }
    }

    /// How the sender of a request is to ask again.
    fn challenge(&self, place: Place, target: &Target<'_>) -> String {
        const BASIC: &str = "Basic realm=\"ocimod\"";
        let realm = match (place, self.anonymous) {
            (Place::Token, _) | (Place::Distribution, Anonymous::Nothing) => return BASIC.to_owned(),
            (Place::Distribution, Anonymous::Read) => target.token_endpoint(),
            _ => return "Bearer".to_owned(),
        };
        // Without a name that the client knows the server by there is no URL.
        let Some(realm) = realm else { return BASIC.to_owned() };
        let scope = target.scope().map(|scope| format!(",scope=\"{scope}\"")).unwrap_or_default();
        format!("Bearer realm=\"{realm}\",service=\"ocimod\"{scope}")
    }
}

fn is_session(token: &str) -> bool {
    token.strip_prefix(SESSION_PREFIX).is_some_and(|rest| rest.starts_with('.'))
}

fn hash(rule: Option<&Arc<TokenRule>>) -> String {
    rule.map(|rule| rule.hash().to_hex()).unwrap_or_default()
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Missing,
    Wrong,
}

/// What a request was sent to, for the address and the scope in a challenge.
struct Target<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    is_secure: bool,
}

impl Target<'_> {
    /// The URL of `/v2/token`, by the name that the client used. Only the client itself chooses that name, so it cannot be sent
    /// anywhere that it did not want to go; what a proxy says of it counts more, since proxies may use another name towards us.
    fn token_endpoint(&self) -> Option<String> {
        let forwarded = |name: &str| {
            let value = self.headers.get(name)?.to_str().ok()?;
            value.split(',').next().map(|first| first.trim().to_owned())
        };
        let named = forwarded("x-forwarded-host")
            .or_else(|| Some(self.headers.get(header::HOST)?.to_str().ok()?.to_owned()))
            .or_else(|| self.uri.authority().map(ToString::to_string))?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        let authority = Authority::try_from(named.as_str()).ok().filter(|_| named.bytes().all(is_plain))?;
        let is_https = match forwarded("x-forwarded-proto").as_deref() {
            Some("https") => true,
            Some("http") => false,
            _ => self.is_secure,
        };
        // The distribution API is at the root of a host, whatever path the other routes are below.
        Some(format!("{}://{authority}/v2/token", if is_https { "https" } else { "http" }))
    }

    /// What the client is to ask a token for.
    fn scope(&self) -> Option<String> {
        let request = DistributionRequest::parse(self.method, self.uri.path(), self.uri.query()).ok()?;
        let Some(repository) = request.repository() else {
            return matches!(request, DistributionRequest::Catalog(_))
                .then(|| "registry:catalog:*".to_owned());
        };
        let actions = match request.right()? {
            Right::Read => "pull",
            Right::Push => "pull,push",
            Right::Delete => "delete",
        };
        Some(format!("repository:{repository}:{actions}"))
    }
}

/// Whether this server speaks https itself; behind a proxy that does, the proxy says so.
fn is_secure(options: &ServerOptions) -> bool {
    options.certificate.is_some()
}

/// Leaves the caller with the request, or asks for a token.
pub(super) async fn identify(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let Access::Guarded(guard) = &app.options.access else {
        request.extensions_mut().insert(Caller::everybody());
        return next.run(request).await;
    };
    let path = request.uri().path();
    let place = Place::of(request.method(), path);
    let refusal = match guard.caller(place, &Shown::by(request.headers()), path).await {
        Ok(caller) => {
            if let (Some(name), Some(told)) = (caller.name(), request.extensions().get::<TokenName>()) {
                told.set(name);
            }
            request.extensions_mut().insert(caller);
            return next.run(request).await;
        }
        Err(refusal) => refusal,
    };
    let target = Target {
        method: request.method(),
        uri: request.uri(),
        headers: request.headers(),
        is_secure: is_secure(&app.options),
    };
    let challenge = guard.challenge(place, &target);
    let mut response = match refusal {
        Refusal::Missing => ApiError::NoToken { challenge },
        Refusal::Wrong => ApiError::WrongToken { challenge },
    }
    .into_response();
    if matches!(place, Place::Distribution | Place::Token) {
        response.headers_mut().insert(API_VERSION, api_version());
    }
    response
}

/// Who asks for what the module registry protocol answers, where that can be told at once; `None` where somebody has to look, and for
/// whoever is to be refused.
pub(super) fn known_caller(app: &App, headers: &HeaderMap) -> Option<Caller> {
    let Access::Guarded(guard) = &app.options.access else { return Some(Caller::everybody()) };
    if !guard.file.is_fresh() {
        return None;
    }
    match Shown::by(headers) {
        Shown::Garbage => None,
        Shown::Token(token) => {
            let rule = guard.file.rules().holder(&token, now())?;
            Some(Caller::holder(rule, guard.anonymous))
        }
        Shown::Nothing if guard.anonymous == Anonymous::Nothing => None,
        Shown::Nothing => Some(Caller::stranger(guard.anonymous)),
    }
}

/// The error for a stranger who would need a token for this request.
pub(super) fn token_needed(app: &App, parts: &Parts) -> ApiError {
    let Access::Guarded(guard) = &app.options.access else { return ApiError::Denied };
    let target = Target {
        method: &parts.method,
        uri: &parts.uri,
        headers: &parts.headers,
        is_secure: is_secure(&app.options),
    };
    let challenge = guard.challenge(Place::of(&parts.method, parts.uri.path()), &target);
    ApiError::NoToken { challenge }
}

/// Lets through who may read every repository; for all others there is nothing here. For routes that tell of all of them at once.
pub(super) async fn require_everywhere(caller: Caller, request: Request, next: Next) -> Response {
    if caller.may_everywhere(Right::Read) {
        next.run(request).await
    } else {
        ApiError::NoEndpoint.into_response()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    /// The caller that [`identify`] found; nobody, who may do nothing, where it was not asked.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_else(Self::nobody))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::operations::access::{NewToken, TokenEntry, add_token};

    /// A guard with one token of that name; the folder holds its file.
    fn guard(name: &str, anonymous: Anonymous, keys: &Keys) -> (tempfile::TempDir, Arc<Guard>, NewToken) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        let token = NewToken::generate().unwrap();
        let entry = TokenEntry {
            name: name.to_owned(),
            hash: token.hash(),
            rights: vec![Right::Read],
            repositories: Vec::new(),
            expires: None,
        };
        add_token(&path, &entry).unwrap();
        let access = Access::guarded(AccessFile::open(&path).unwrap(), anonymous, Live::fixed(keys.clone()));
        let Access::Guarded(guard) = access else { unreachable!() };
        (folder, guard, token)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn shown(authorization: &str) -> Shown {
        Shown::by(&headers(&[("authorization", authorization)]))
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn the_token_is_the_bearer_s_or_the_password() {
        let token = |text: &str| Shown::Token(text.to_owned());
        assert!(Shown::by(&HeaderMap::new()) == Shown::Nothing);
        assert!(shown("Bearer abc") == token("abc") && shown("bearer  abc ") == token("abc"));
        assert!(shown(&basic("any:abc")) == token("abc") && shown(&basic(":a:b")) == token("a:b"));
        for nobody in [basic(""), basic(":"), basic("user:"), basic("user")] {
            assert!(shown(&nobody) == Shown::Nothing, "{nobody}");
        }
        for garbage in ["", "abc", "Bearer", "Bearer ", "Basic !", "Digest abc", "Basic /w==", "Negotiate x"]
        {
            assert!(shown(garbage) == Shown::Garbage, "{garbage}");
        }
        assert!(shown(&format!("Bearer {}", "a".repeat(MAX_CREDENTIAL + 1))) == Shown::Garbage);
        let twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
        assert!(Shown::by(&headers(&twice)) == Shown::Garbage);
    }

    #[test]
    fn only_what_names_nothing_is_public() {
        let place = |method: &str, path: &str| Place::of(&method.parse().unwrap(), path);
        for path in ["/", "/healthz", "/readyz", "/.well-known/terraform.json"] {
            assert_eq!(place("GET", path), Place::Public, "{path}");
        }
        assert_eq!(place("POST", "/"), Place::Other);
        for path in
            ["", "//", "/healthz/", "/metrics", "/v1/modules/a/b/c/versions", "/x", "/archive.zip", "*"]
        {
            assert_eq!(place("GET", path), Place::Other, "{path}");
        }
        assert_eq!(place("GET", "/v1/modules/a/b/c/1.0.0/archive.zip"), Place::Archive);
        assert_eq!(place("GET", "/v2/archive.zip"), Place::Distribution);
        assert_eq!(place("GET", "/v2"), Place::Distribution);
        assert_eq!(place("GET", "/v2x"), Place::Other);
        assert_eq!(place("POST", "/v2/token"), Place::Token);
        assert_eq!(place("POST", "/v2/token/"), Place::Distribution);
    }

    #[tokio::test]
    async fn a_session_stands_for_its_token_until_either_ends() {
        let keys = Keys::generate().unwrap();
        let (_folder, ours, token) = guard("ci", Anonymous::Nothing, &keys);
        let caller = ours.holder(token.reveal()).await.unwrap();
        let session = ours.session(&caller, 0).unwrap();
        assert!(!session.contains(token.reveal()) && !session.contains(&token.hash().to_hex()));
        assert_eq!(session.split('.').count(), 4, "three parts are taken for a JWT");
        assert_eq!(ours.by_session(&session, 0).await.unwrap().name(), Some("ci"));
        assert!(ours.by_session(&session, SESSION_LIFETIME - 1).await.is_some());
        assert!(ours.by_session(&session, SESSION_LIFETIME).await.is_none());

        let (_folder, replica, _) = guard("other", Anonymous::Nothing, &keys);
        assert!(replica.by_session(&session, 0).await.is_none(), "the token is not there");
        let (_folder, replaced, _) = guard("ci", Anonymous::Nothing, &keys);
        assert!(replaced.by_session(&session, 0).await.is_none(), "the name has another token");
        let parts: Vec<_> = session.split('.').collect();
        let later = format!("v2.{}.{}.{}", i64::MAX, parts[2], parts[3]);
        let unnamed = format!("v2.{}..{}", parts[1], parts[3]);
        for altered in [later.as_str(), &unnamed, "v2", "v2.", "v2...", "v2.1.2", &format!("{session}.x")] {
            assert!(ours.by_session(altered, 0).await.is_none(), "{altered}");
        }
    }

    #[tokio::test]
    async fn a_stranger_s_session_is_only_for_where_strangers_may_read() {
        let keys = Keys::generate().unwrap();
        let (_folder, public, _) = guard("ci", Anonymous::Read, &keys);
        let session = public.session(&Caller::stranger(Anonymous::Read), 0).unwrap();
        let stranger = public.by_session(&session, 0).await.unwrap();
        assert!(stranger.may(Right::Read, "a") && !stranger.may(Right::Push, "a"));
        let (_folder, private, _) = guard("ci", Anonymous::Nothing, &keys);
        assert!(private.by_session(&session, 0).await.is_none());
        assert!(private.session(&Caller::nobody(), 0).is_none());
        let (_folder, foreign, _) = guard("ci", Anonymous::Read, &Keys::generate().unwrap());
        assert!(foreign.by_session(&session, 0).await.is_none());
    }

    #[test]
    fn the_token_endpoint_is_where_the_client_went() {
        let endpoint = |pairs: &[(&'static str, &str)], is_secure| {
            let (uri, headers) = (Uri::from_static("/v2/"), headers(pairs));
            let target = Target { method: &Method::GET, uri: &uri, headers: &headers, is_secure };
            target.token_endpoint()
        };
        let at = |text: &str| Some(text.to_owned());
        assert_eq!(endpoint(&[("host", "a.example:5000")], false), at("http://a.example:5000/v2/token"));
        assert_eq!(endpoint(&[("host", "[::1]:80")], true), at("https://[::1]:80/v2/token"));
        let proxied =
            [("host", "backend:8080"), ("x-forwarded-host", "a.example, b"), ("x-forwarded-proto", "https")];
        assert_eq!(endpoint(&proxied, false), at("https://a.example/v2/token"));
        for host in ["", "a\"b", "user@a.example", "a b", "a/b", "a,b", "a\\b", "%41"] {
            assert_eq!(endpoint(&[("host", host)], false), None, "{host}");
        }
        assert_eq!(endpoint(&[], false), None);
    }

    #[test]
    fn the_scope_is_what_the_request_needs() {
        let scope = |method: &str, target: &str| {
            let (method, uri, headers) = (method.parse().unwrap(), target.parse().unwrap(), HeaderMap::new());
            let target = Target { method: &method, uri: &uri, headers: &headers, is_secure: false };
            target.scope()
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(scope("GET", "/v2/"), None);
        assert_eq!(scope("GET", "/v2/_catalog"), is("registry:catalog:*"));
        assert_eq!(scope("GET", "/v2/a/b/tags/list"), is("repository:a/b:pull"));
        assert_eq!(scope("POST", "/v2/a/b/blobs/uploads/"), is("repository:a/b:pull,push"));
        assert_eq!(scope("DELETE", "/v2/a/b/manifests/v1"), is("repository:a/b:delete"));
        assert_eq!(scope("GET", "/v2/A\"/tags/list"), None);
    }
}
