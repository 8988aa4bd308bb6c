//! Who may do what: tokens, the repositories that each is good for, and how long.
//!
//! A caller is asked one question, [`Caller::may`], about one right in one repository, which is named below the registry's prefix.
//! What it answers depends on names alone and never on what there is, so that a caller who may not know of a thing cannot tell it
//! from one that is not there. Nothing here knows of HTTP.

mod file;
mod rules;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

pub use super::pattern::{Pattern, PatternError};
pub use file::{AccessFile, AccessFileError, TokenEntry, add_token};
pub use rules::{RuleError, RuleProblem, Rules, TokenRule, parse_moment};

/// In front of every token of ours, so that scanners for leaked secrets know one when they see it.
const TOKEN_PREFIX: &str = "ocimod_";

/// Random bytes in a token: nobody guesses it, so its hash may be looked up and kept as it is.
const TOKEN_BYTES: usize = 32;

/// What may be a token; longer ones are not hashed. Ours have 50 bytes, those that somebody made by other means some hundred.
pub const MAX_TOKEN_LENGTH: usize = 1024;

/// What a token allows in a repository. None of them contains another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// See what is there.
    Read,
    /// Put something there.
    Push,
    /// Take something away.
    Delete,
}

impl Right {
    /// Every right.
    pub const ALL: [Self; 3] = [Self::Read, Self::Push, Self::Delete];

    /// Its name, in the access file and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Push => "push",
            Self::Delete => "delete",
        }
    }
}

/// The text names no right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no right; there are `read`, `push` and `delete`")]
pub struct RightError(pub String);

impl FromStr for Right {
    type Err = RightError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|right| right.as_str() == text).ok_or_else(|| RightError(text.to_owned()))
    }
}

impl fmt::Display for Right {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What those may do who show no token, where there are rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Nothing.
    #[default]
    Nothing,
    /// Read everything.
    Read,
}

/// Who sent a request, and what that allows. Clones are cheap.
#[derive(Clone)]
pub struct Caller(Who);

#[derive(Clone)]
enum Who {
    /// Whoever calls a server that has no rules.
    Everybody,
    /// Somebody without a token.
    Stranger(Anonymous),
    /// The holder of a token, who may at least what strangers may.
    Holder(Arc<TokenRule>, Anonymous),
}

impl Caller {
    /// Whoever calls a server without rules: may do everything that it can do.
    pub fn everybody() -> Self {
        Self(Who::Everybody)
    }

    /// Somebody who shows no token, and may do what strangers may.
    pub fn stranger(anonymous: Anonymous) -> Self {
        Self(Who::Stranger(anonymous))
    }

    /// Somebody who may do nothing.
    pub fn nobody() -> Self {
        Self::stranger(Anonymous::Nothing)
    }

    /// The holder of a token. What strangers may, its holder may too: they would only have to leave it out.
    pub fn holder(token: Arc<TokenRule>, anonymous: Anonymous) -> Self {
        Self(Who::Holder(token, anonymous))
    }

    /// Whether the caller has that right in a repository, named below the registry's prefix.
    pub fn may(&self, right: Right, repository: &str) -> bool {
        let is_for_strangers = |anonymous| right == Right::Read && anonymous == Anonymous::Read;
        match &self.0 {
            Who::Everybody => true,
            Who::Stranger(anonymous) => is_for_strangers(*anonymous),
            Who::Holder(token, anonymous) => is_for_strangers(*anonymous) || token.allows(right, repository),
        }
    }

    /// Whether the caller has that right in every repository that there is or could be.
    pub fn may_everywhere(&self, right: Right) -> bool {
        let is_for_strangers = |anonymous| right == Right::Read && anonymous == Anonymous::Read;
        match &self.0 {
            Who::Everybody => true,
            Who::Stranger(anonymous) => is_for_strangers(*anonymous),
            Who::Holder(token, anonymous) => is_for_strangers(*anonymous) || token.allows_everywhere(right),
        }
    }

    /// The name of the caller's token, for the log; `None` for who has none.
    pub fn name(&self) -> Option<&str> {
        self.token().map(|token| token.name())
    }

    /// The caller's token.
    pub fn token(&self) -> Option<&Arc<TokenRule>> {
        match &self.0 {
            Who::Holder(token, _) => Some(token),
            Who::Everybody | Who::Stranger(_) => None,
        }
    }

    /// Whether a token would allow the caller more: there are rules, and none was shown.
    pub fn is_stranger(&self) -> bool {
        matches!(self.0, Who::Stranger(_))
    }
}

impl fmt::Debug for Caller {
    /// Tells the token's name, and nothing that the token could be known by.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Who::Everybody => formatter.write_str("Caller(everybody)"),
            Who::Stranger(anonymous) => write!(formatter, "Caller(stranger, {anonymous:?})"),
            Who::Holder(token, _) => write!(formatter, "Caller({})", token.name()),
        }
    }
}

/// SHA-256 of a token: what is kept of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// That of a token; `None` for what is too long, or empty, to be one.
    pub fn of(token: &str) -> Option<Self> {
        (1..=MAX_TOKEN_LENGTH).contains(&token.len()).then(|| Self(Sha256::digest(token.as_bytes()).into()))
    }

    /// Reads 64 hexadecimal digits.
    fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// As the access file has it.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

/// A token that was just made: a secret. It has no `Debug`, so that no log can hold it.
pub struct NewToken(String);

/// The system gives no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers to make a token of")]
pub struct NoRandom;

impl NewToken {
    /// A token that nobody has seen yet.
    pub fn generate() -> Result<Self, NoRandom> {
        let mut random = [0_u8; TOKEN_BYTES];
        getrandom::fill(&mut random).map_err(|_| NoRandom)?;
        Ok(Self(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random))))
    }

    /// The token itself, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

/// Seconds since 1970, for what expires. A clock from before that is taken for 1970, when nothing had expired: so it is told here
/// and nowhere else what such a clock means.
pub fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn holder(rights: &str, repositories: Option<&str>, anonymous: Anonymous) -> Caller {
        let repositories = repositories.map(|list| format!("repositories = [{list}]\n")).unwrap_or_default();
        let text = format!(
            "[[token]]\nname = 'ci'\nsha256 = '{}'\nallow = [{rights}]\n{repositories}",
            TokenHash::of("secret").unwrap().to_hex()
        );
        Caller::holder(Rules::parse(&text).unwrap().holder("secret", 0).unwrap(), anonymous)
    }

    #[test]
    fn a_holder_may_what_the_token_allows_where_it_is_good_for() {
        let caller = holder("'read', 'push'", Some("'acme/*'"), Anonymous::Nothing);
        assert!(caller.may(Right::Read, "acme/vpc/aws") && caller.may(Right::Push, "acme/vpc"));
        assert!(!caller.may(Right::Delete, "acme/vpc"));
        for elsewhere in ["acme", "acmeevil/vpc", "other/acme/vpc", ""] {
            assert!(!caller.may(Right::Read, elsewhere), "{elsewhere}");
        }
        assert!(!caller.may_everywhere(Right::Read));
        assert_eq!(caller.name(), Some("ci"));
        assert!(holder("'read'", None, Anonymous::Nothing).may_everywhere(Right::Read));
        assert!(holder("'read'", Some("'a', '**'"), Anonymous::Nothing).may_everywhere(Right::Read));
        assert!(!holder("'read'", None, Anonymous::Nothing).may_everywhere(Right::Push));
    }

    #[test]
    fn to_push_is_not_to_read() {
        let caller = holder("'push'", None, Anonymous::Nothing);
        assert!(caller.may(Right::Push, "a") && !caller.may(Right::Read, "a"));
        assert!(!caller.may(Right::Delete, "a"));
    }

    #[test]
    fn a_holder_may_what_strangers_may() {
        let caller = holder("'push'", Some("'acme/*'"), Anonymous::Read);
        assert!(caller.may(Right::Read, "other/vpc") && caller.may_everywhere(Right::Read));
        assert!(!caller.may(Right::Push, "other/vpc"));
    }

    #[test]
    fn strangers_may_read_at_most() {
        let reader = Caller::stranger(Anonymous::Read);
        assert!(reader.may(Right::Read, "a") && reader.may_everywhere(Right::Read));
        assert!(!reader.may(Right::Push, "a") && !reader.may(Right::Delete, "a"));
        assert!(Right::ALL.iter().all(|right| !Caller::nobody().may(*right, "a")));
        assert!(Right::ALL.iter().all(|right| Caller::everybody().may_everywhere(*right)));
        assert!(reader.is_stranger() && !Caller::everybody().is_stranger());
        assert_eq!(reader.name(), None);
    }

    #[test]
    fn tokens_can_be_recognised_and_are_all_different() {
        let (one, other) = (NewToken::generate().unwrap(), NewToken::generate().unwrap());
        assert_ne!(one.reveal(), other.reveal());
        assert!(one.reveal().starts_with("ocimod_") && one.reveal().len() == 50, "{}", one.reveal());
        assert!(one.hash() == TokenHash::of(one.reveal()).unwrap());
        assert!(TokenHash::of("").is_none() && TokenHash::of(&"a".repeat(MAX_TOKEN_LENGTH + 1)).is_none());
    }

    #[test]
    fn debug_tells_no_token_and_no_hash() {
        let caller = holder("'read'", Some("'acme/*'"), Anonymous::Nothing);
        assert_eq!(format!("{caller:?}"), "Caller(ci)");
    }
}
