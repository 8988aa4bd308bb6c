//! What stands in a credential file, as far as it is about credentials; and what its keys are about.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::environment::Kind;
use super::{Credential, LoginScope};
use crate::oci::Repository;
use crate::registry::remote::canonical_name;

/// Docker's helpers and files mark a refresh token by this user name.
pub(super) const TOKEN_USER: &str = "<token>";

/// A file, as far as it is about credentials. The maps are sorted: of two spellings of one host it does not depend on the order
/// of the file which one is taken.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CredentialFile {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) auths: BTreeMap<String, Option<Entry>>,
    #[serde(rename = "credHelpers", deserialize_with = "null_is_empty")]
    pub(super) helpers: BTreeMap<String, String>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

/// Go writes an empty map as `null`.
fn null_is_empty<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

impl CredentialFile {
    /// `None` where the bytes are no such file.
    pub(super) fn parse(bytes: &[u8], kind: Kind) -> Option<Self> {
        if bytes.trim_ascii().is_empty() {
            return Some(Self::default());
        }
        match kind {
            Kind::Legacy => {
                let auths = serde_json::from_slice(bytes).ok()?;
                Some(Self { auths, ..Self::default() })
            }
            Kind::Cue => {
                let logins: CueLogins = serde_json::from_slice(bytes).ok()?;
                let entries = logins.registries.into_iter();
                let entries = entries.map(|(host, login)| Some((host, Some(login.entry()?))));
                Some(Self { auths: entries.collect::<Option<_>>()?, ..Self::default() })
            }
            Kind::Named | Kind::Containers | Kind::Docker => serde_json::from_slice(bytes).ok(),
        }
    }

    /// The helper for every registry that no key names.
    pub(super) fn store(&self) -> Option<&str> {
        self.store.as_deref().filter(|name| !name.is_empty())
    }

    /// The entries, with what each key is about.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, Key<'_>, &Entry)> {
        self.auths.iter().filter_map(|(key, entry)| Some((key.as_str(), Key::parse(key), entry.as_ref()?)))
    }

    /// The helpers, with what each key is about.
    pub(super) fn helpers(&self) -> impl Iterator<Item = (Key<'_>, &str)> {
        let named = self.helpers.iter().filter(|(_, helper)| !helper.is_empty());
        named.map(|(key, helper)| (Key::parse(key), helper.as_str()))
    }
}

/// One entry of `auths`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
    /// When the token runs out, where whoever wrote it says so.
    #[serde(skip)]
    expiry: Option<DateTime<Utc>>,
}

/// What `cue login` writes.
#[derive(Deserialize)]
struct CueLogins {
    #[serde(default, deserialize_with = "null_is_empty")]
    registries: BTreeMap<String, CueLogin>,
}

/// A token of `cue login`, for a host with its port.
#[derive(Deserialize)]
struct CueLogin {
    access_token: String,
    #[serde(default)]
    expiry: Option<String>,
}

impl CueLogin {
    /// `None` where it is none: `cue` takes it for damaged too.
    fn entry(self) -> Option<Entry> {
        let expiry = self
            .expiry
            .map(|text| DateTime::parse_from_rfc3339(&text).ok())
            .map_or(Some(None), |time| time.map(Some))?;
        // Go writes the year 1 for no time at all.
        let expiry = expiry.map(|time| time.to_utc()).filter(|time| time.timestamp() > 0);
        let registrytoken = Some(self.access_token).filter(|token| !token.is_empty())?;
        Some(Entry { registrytoken: Some(registrytoken), expiry, ..Entry::default() })
    }
}

/// The fields of an entry that hold a credential.
pub(super) const SECRET_FIELDS: [&str; 5] =
    ["auth", "username", "password", "identitytoken", "registrytoken"];

/// An entry is there and of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UselessEntry {
    /// `auth` is not what it should be.
    Unreadable,
    /// The token has run out.
    Expired,
}

/// Some tools pad, some do not.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Entry {
    /// What the entry holds; Docker leaves an empty one where a helper has the credential.
    pub(super) fn credential(&self) -> Result<Option<Credential>, UselessEntry> {
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = filled(&self.registrytoken) {
            if self.expiry.is_some_and(|expiry| expiry <= now()) {
                return Err(UselessEntry::Expired);
            }
            return Ok(Some(Credential::Bearer(token)));
        }
        let pair = filled(&self.auth).map(|auth| decode_pair(&auth).ok_or(UselessEntry::Unreadable));
        if let Some(token) = filled(&self.identitytoken) {
            let username = match pair {
                Some(Ok((username, _))) => Some(username),
                _ => filled(&self.username),
            };
            return Ok(Some(Credential::identity_token(username.unwrap_or_default(), token)));
        }
        let (username, password) = match pair {
            Some(pair) => pair?,
            None => (filled(&self.username).unwrap_or_default(), filled(&self.password).unwrap_or_default()),
        };
        Ok(Credential::of_pair(username, password))
    }
}

fn now() -> DateTime<Utc> {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| DateTime::from_timestamp(i64::try_from(since.as_secs()).ok()?, 0))
        .unwrap_or_default()
}

/// `user:password` in base64.
fn decode_pair(auth: &str) -> Option<(String, String)> {
    let text = String::from_utf8(BASE64.decode(auth.trim()).ok()?).ok()?;
    let (username, password) = text.trim_end_matches('\0').split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

/// What a key of a file is about: a registry, or the repositories of one that begin with a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key<'a> {
    host: String,
    path: &'a str,
}

impl<'a> Key<'a> {
    pub(super) fn parse(key: &'a str) -> Self {
        let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
        let key = key.trim_end_matches('/');
        let (host, path) = key.split_once('/').unwrap_or((key, ""));
        // `https://registry.example/v1/`: the path of an API, not of a repository.
        let path = if matches!(path, "v1" | "v2") { "" } else { path };
        Self { host: canonical_name(host), path }
    }

    /// How well it fits a repository, or a registry as a whole: the number of its parts.
    pub(super) fn fit(&self, registry: &str, repository: Option<&Repository>) -> Option<usize> {
        if self.host != registry {
            return None;
        }
        if self.path.is_empty() {
            return Some(1);
        }
        let rest = repository?.as_str().strip_prefix(self.path)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| 2 + self.path.matches('/').count())
    }

    /// Whether it is about just that, in whatever spelling.
    pub(super) fn is(&self, scope: &LoginScope) -> bool {
        self.host == scope.registry.as_str() && self.path == scope.path()
    }

    /// Whether it is about something in it.
    pub(super) fn is_within(&self, scope: &LoginScope) -> bool {
        let rest = self.path.strip_prefix(scope.path());
        self.host == scope.registry.as_str()
            && rest.is_some_and(|rest| scope.path().is_empty() || rest.is_empty() || rest.starts_with('/'))
    }
}
