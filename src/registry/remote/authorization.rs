//! Who we are to the registry: challenges, token services, and the tokens that they gave.
//!
//! The handshake is our own, since a registry chooses where it leads: a realm has to pass [`redirect::check_realm`] before
//! anything is sent there, and what comes back is checked before it becomes a header. Tokens are kept per set of scopes and
//! credential (distribution project, "Token Authentication Specification"), and an [`Authorization`] belongs to one registry
//! and one identity alone. A failed handshake is an error: nothing goes out anonymously in its place.
//!
//! Whatever is refused is had anew, once: a token by its credential, and the credential itself where it has changed since, in its
//! file or by its helper.
//!
//! [`redirect::check_realm`]: super::redirect::check_realm

mod challenge;
#[cfg(test)]
mod tests;
mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use tokio::time::Instant;
use url::{Url, form_urlencoded};

use super::transport::Transport;
use crate::oci::Repository;
use crate::registry::credentials::{Credential, CredentialSource};
use crate::registry::{RegistryError, Result};

pub(super) use self::challenge::{Challenge, Demand};
use self::token::{Granted, TokenError, TokenService};

/// More sets of scopes than are in use at a time; the memory is emptied then.
const MAX_TOKENS: usize = 4096;
/// More refresh tokens than one identity has; likewise.
const MAX_REFRESHED: usize = 64;
/// Who somebody with a refresh token is where nothing says it, to a service that wants a user name (docker-credential-helpers).
const TOKEN_USER: &str = "<token>";

/// What a registry makes of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginOutcome {
    /// The registry takes it.
    Accepted,
    /// The registry asks nobody who he is, so nothing is known of it.
    NotAsked,
}

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

    /// To be known, and nothing else.
    pub(super) fn none() -> Self {
        Self { repository: None, texts: Vec::new() }
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

    /// Those of `named` that a token for these is not good for.
    fn beyond(&self, named: Vec<String>) -> Vec<String> {
        let is_covered = |wanted: &String| self.texts.iter().any(|own| challenge::covers(own, wanted));
        named.into_iter().filter(|wanted| !is_covered(wanted)).collect()
    }
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

/// What is known of one set of scopes.
#[derive(Default)]
struct State {
    /// What the registry asked for when it was last asked with these; `None` where that was what it asks for everywhere.
    challenge: Option<Challenge>,
    /// Scopes of the registry's own that go with these: one behind a gateway may call its repositories otherwise.
    named: Vec<String>,
    token: Option<Token>,
}

/// A place for one token; whoever needs it waits for the one who fetches it.
type Slot = Arc<tokio::sync::Mutex<State>>;

/// One identity at one registry.
pub(super) struct Authorization {
    credentials: CredentialSource,
    challenge: Mutex<Challenge>,
    slots: Mutex<HashMap<Scopes, Slot>>,
    /// The refresh tokens that services gave in exchange for those of credentials, by what they were given for and by whom.
    refreshed: Mutex<HashMap<(Credential, Url), String>>,
}

impl Authorization {
    pub(super) fn new(credentials: CredentialSource) -> Self {
        Self {
            credentials,
            challenge: Mutex::new(Challenge::Open),
            slots: Mutex::default(),
            refreshed: Mutex::default(),
        }
    }

    /// What the registry asks for from now on, where it says nothing else.
    pub(super) fn set_challenge(&self, challenge: Challenge) {
        *self.challenge.lock().unwrap_or_else(PoisonError::into_inner) = challenge;
    }

    fn challenge(&self) -> Challenge {
        self.challenge.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the registry asks for nothing.
    pub(super) fn is_open(&self) -> bool {
        self.challenge() == Challenge::Open
    }

    /// Whether the registry asks for something that cannot be given.
    pub(super) fn is_unmet(&self) -> bool {
        matches!(self.challenge(), Challenge::Unmet(_))
    }

    /// The header for a request with these scopes; `None` where the registry wants none, or where there is nothing to send.
    pub(super) async fn ticket(
        &self,
        transport: &Transport,
        base: &Url,
        scopes: &Scopes,
    ) -> Result<Option<Ticket>> {
        let slot = self.slot(scopes);
        let mut state = slot.lock().await;
        self.ticket_of(&mut state, transport, base, scopes).await
    }

    async fn ticket_of(
        &self,
        state: &mut State,
        transport: &Transport,
        base: &Url,
        scopes: &Scopes,
    ) -> Result<Option<Ticket>> {
        let challenge = state.challenge.clone().unwrap_or_else(|| self.challenge());
        if challenge == Challenge::Open {
            return Ok(None);
        }
        let credential = self.credential(transport, scopes).await?;
        let unusable = |reason: &str| transport.unauthorized(format!("the credential for it {reason}"));
        match (challenge, credential) {
            // No token service has a part in this.
            (_, Credential::Bearer(token)) => {
                let ticket = token::bearer(&token).ok_or_else(|| unusable(token::UNUSABLE))?;
                Ok(Some(Ticket { cached: true, ..ticket }))
            }
            (Challenge::Bearer { realm, service }, credential) => {
                if let Some(token) = &state.token
                    && token.until > Instant::now()
                    && token.credential == credential
                {
                    return Ok(Some(Ticket { cached: true, ..token.ticket.clone() }));
                }
                let scopes_texts = scopes.texts.iter().chain(&state.named).map(String::as_str).collect();
                let service = TokenService {
                    transport,
                    base,
                    realm: &realm,
                    service: service.as_deref(),
                    scopes: scopes_texts,
                };
                let (granted, credential) = self.granted(&service, scopes, credential).await?;
                let ticket = granted.ticket.clone();
                let until = Instant::now() + granted.lifetime;
                state.token = Some(Token { ticket: granted.ticket, until, credential });
                Ok(Some(ticket))
            }
            (Challenge::Unmet(error), _) => Err(transport.unauthorized(error.to_string())),
            (_, Credential::Basic { username, password }) => {
                let ticket = Ticket::new(&basic_header(&username, &password), true);
                ticket.map(Some).ok_or_else(|| unusable("holds bytes that no header can"))
            }
            (_, Credential::Anonymous) => Ok(None),
            (_, Credential::IdentityToken { .. }) => Err(transport
                .unauthorized("it takes user name and password alone, and there is only a refresh token")),
        }
    }

    /// A token, and whose it is: where the service refuses the credential, and that has changed since it was looked up, another
    /// one is tried.
    async fn granted(
        &self,
        service: &TokenService<'_>,
        scopes: &Scopes,
        credential: Credential,
    ) -> Result<(Granted, Credential)> {
        let mut outcome = self.exchange(service, &credential).await;
        let mut credential = credential;
        if let Err(error) = &outcome
            && error.is_of_the_credential()
        {
            self.credentials.doubt(&service.transport.registry);
            let other = self.credential(service.transport, scopes).await?;
            if other != credential {
                outcome = self.exchange(service, &other).await;
                credential = other;
            }
        }
        match outcome {
            Ok(granted) => Ok((granted, credential)),
            Err(TokenError::Failed(error)) => Err(error),
            Err(TokenError::Refused(status)) => {
                let who =
                    if credential == Credential::Anonymous { "anonymous callers" } else { "the credentials" };
                // A registry's own word for what is not there, or is for others: a token service says it in its place.
                if status == StatusCode::FORBIDDEN && !scopes.texts.is_empty() {
                    return Err(RegistryError::Denied {
                        registry: service.transport.registry.to_string(),
                        operation: format!("{who} a token for `{}`", scopes.texts.join(" ")),
                    });
                }
                let reason = format!("its token service refuses {who} (status {})", status.as_u16());
                Err(service.transport.unauthorized(reason))
            }
        }
    }

    /// A token for a credential, in the way that is right for it.
    async fn exchange(
        &self,
        service: &TokenService<'_>,
        credential: &Credential,
    ) -> Result<Granted, TokenError> {
        let (username, token) = match credential {
            Credential::Basic { username, password } => {
                return service.by_password(Some((username, password))).await;
            }
            Credential::IdentityToken { username, token } => (username, token),
            Credential::Anonymous | Credential::Bearer(_) => return service.by_password(None).await,
        };
        let key = (credential.clone(), service.realm.clone());
        let newer = self.refreshed.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(newer) = newer {
            match service.by_refresh_token(&newer).await {
                Err(error) if error.is_of_the_credential() => self.keep_refreshed(key.clone(), None),
                outcome => {
                    return outcome
                        .inspect(|granted| self.keep_refreshed(key, granted.refresh_token.clone()));
                }
            }
        }
        match service.by_refresh_token(token).await {
            Ok(granted) => {
                self.keep_refreshed(key, granted.refresh_token.clone().filter(|newer| newer != token));
                Ok(granted)
            }
            // Not every service knows OAuth2; those that do not take the token for a password.
            Err(error) if error.may_be_of_the_way() => {
                let username = if username.is_empty() { TOKEN_USER } else { username };
                match service.by_password(Some((username, token))).await {
                    Err(TokenError::Refused(_)) => Err(error),
                    outcome => outcome,
                }
            }
            Err(error) => Err(error),
        }
    }

    /// What to ask a token service with the next time.
    fn keep_refreshed(&self, key: (Credential, Url), token: Option<String>) {
        let mut refreshed = self.refreshed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = token {
            if refreshed.len() >= MAX_REFRESHED && !refreshed.contains_key(&key) {
                refreshed.clear();
            }
            refreshed.insert(key, token);
        } else {
            refreshed.remove(&key);
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
        let slot = self.slot(scopes);
        let mut state = slot.lock().await;
        let demand = Demand::read(base, headers);
        if !demand.is_nothing() {
            if self.is_open() || self.is_unmet() {
                self.set_challenge(demand.challenge.clone());
            }
            let named = scopes.beyond(demand.scopes);
            // A token of another service, or for less, is none for this.
            let is_other = state.challenge.as_ref().is_some_and(|known| *known != demand.challenge);
            if is_other || named != state.named {
                state.token = None;
            }
            (state.challenge, state.named) = (Some(demand.challenge), named);
        }
        if state.token.as_ref().is_some_and(|token| Ticket::is_same(Some(&token.ticket), refused)) {
            state.token = None;
        }
        self.credentials.doubt(&transport.registry);
        let outcome = self.ticket_of(&mut state, transport, base, scopes).await;
        if matches!(state.challenge, Some(Challenge::Unmet(_))) {
            // The next request is met by what the registry says then.
            state.challenge = None;
        }
        outcome
    }

    /// Has credentials looked up again.
    #[cfg(test)]
    pub(super) fn doubt(&self, transport: &Transport) {
        self.credentials.doubt(&transport.registry);
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
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MAX_TOKENS && !slots.contains_key(scopes) {
            slots.clear();
        }
        Arc::clone(slots.entry(scopes.clone()).or_default())
    }
}

fn basic_header(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}
