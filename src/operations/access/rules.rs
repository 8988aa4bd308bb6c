//! The text of an access file, and what it says.
//!
//! It is read strictly: a key that is misspelt, a token that is there twice or a pattern that matches nothing is an error with its
//! line, since what is passed over in silence here is a door that stands open, or one that nobody gets through.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use subtle::ConstantTimeEq;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Pattern, PatternError, Right, RightError, TokenHash};

/// A token's name stands in log lines, where nothing is escaped that it could hold.
const MAX_NAME_LENGTH: usize = 64;

/// What is wrong in an access file. No message quotes what stands for `sha256`: it may be the token itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct RuleError {
    /// From 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: RuleProblem,
}

/// What can be wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleProblem {
    /// It is no TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key at the top is not `token`.
    #[error("there is no key `{0}` here; tokens are tables that begin with `[[token]]`")]
    UnknownKey(String),
    /// `token` is no list of tables.
    #[error("each token is a table that begins with `[[token]]`, in two brackets")]
    NoTables,
    /// A key of a token is unknown.
    #[error("a token has no key `{0}`; it has `name`, `sha256`, `allow`, `repositories` and `expires`")]
    UnknownTokenKey(String),
    /// A key of a token is missing.
    #[error("the token that begins here has no `{0}`")]
    Missing(&'static str),
    /// A value is of the wrong sort.
    #[error("`{key}` has to be {expected}")]
    WrongValue {
        /// The key.
        key: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// The name cannot be one.
    #[error(
        "`name` has to be 1 to {MAX_NAME_LENGTH} letters, digits and `.`, `_`, `-`, `+`, `@`, `:`, `/`: it stands in log lines"
    )]
    Name,
    /// Two tokens have one name.
    #[error(
        "there is another token with the name `{0}`; give each its own, so that the log can tell them apart"
    )]
    SameName(String),
    /// The hash is none.
    #[error(
        "`sha256` has to be the 64 hexadecimal digits of a token's SHA-256, as `ocimod token new` writes them or \
         `printf %s \"$TOKEN\" | sha256sum`"
    )]
    Hash,
    /// The hash is that of no token at all.
    #[error("`sha256` is that of an empty text, so the token was not there when it was made; make it again")]
    EmptyHash,
    /// Two tokens have one hash.
    #[error("this is the same `sha256` as that of the token `{0}`; remove one of the two")]
    SameHash(String),
    /// A right is none.
    #[error(transparent)]
    Right(#[from] RightError),
    /// A pattern can match nothing.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The date is none, or says no zone.
    #[error(
        "`expires` has to be a date, such as 2027-01-31, or a time with its zone, such as 2027-01-31T12:00:00Z"
    )]
    Expires,
}

/// A token, without the token: what it is called and what it allows.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRule {
    name: String,
    hash: TokenHash,
    rights: Vec<Right>,
    /// Everywhere where absent.
    repositories: Option<Vec<Pattern>>,
    /// Seconds since 1970, from which on it is worth nothing.
    expires: Option<i64>,
}

impl TokenRule {
    /// What it is called, in the log too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is kept of the token.
    pub fn hash(&self) -> TokenHash {
        self.hash
    }

    /// Whether it is worth nothing any more.
    pub fn is_expired(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    pub(super) fn allows(&self, right: Right, repository: &str) -> bool {
        self.rights.contains(&right)
            && self
                .repositories
                .as_ref()
                .is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(repository)))
    }

    pub(super) fn allows_everywhere(&self, right: Right) -> bool {
        self.rights.contains(&right)
            && self
                .repositories
                .as_ref()
                .is_none_or(|patterns| patterns.iter().any(Pattern::matches_everything))
    }
}

impl fmt::Debug for TokenRule {
    /// Leaves out the hash.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TokenRule")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .field("repositories", &self.repositories)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// Every token of an access file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Rules {
    by_hash: HashMap<[u8; 32], Arc<TokenRule>>,
    by_name: HashMap<String, Arc<TokenRule>>,
}

impl Rules {
    /// Reads the text of an access file.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let lines = Lines(text);
        let table = DeTable::parse(text).map_err(|error| {
            lines.wrong(error.span().unwrap_or(0..0), RuleProblem::Syntax(error.message().to_owned()))
        })?;
        let mut rules = Self::default();
        for (key, value) in table.into_inner() {
            if key.get_ref() != "token" {
                let problem = RuleProblem::UnknownKey(key.get_ref().to_string());
                return Err(lines.wrong(key.span(), problem));
            }
            let DeValue::Array(tokens) = value.into_inner() else {
                return Err(lines.wrong(key.span(), RuleProblem::NoTables));
            };
            for token in tokens {
                let span = token.span();
                let DeValue::Table(table) = token.into_inner() else {
                    return Err(lines.wrong(span, RuleProblem::NoTables));
                };
                rules.add(read_token(&lines, span, table)?)?;
            }
        }
        Ok(rules)
    }

    fn add(&mut self, read: ReadToken) -> Result<(), RuleError> {
        let ReadToken { rule, name_line, hash_line } = read;
        if self.by_name.contains_key(&rule.name) {
            return Err(RuleError { line: name_line, problem: RuleProblem::SameName(rule.name) });
        }
        if let Some(other) = self.by_hash.get(&rule.hash.0) {
            return Err(RuleError { line: hash_line, problem: RuleProblem::SameHash(other.name.clone()) });
        }
        let rule = Arc::new(rule);
        self.by_hash.insert(rule.hash.0, Arc::clone(&rule));
        self.by_name.insert(rule.name.clone(), rule);
        Ok(())
    }

    /// The rule of a token that is shown; `None` where there is none, or it has expired.
    pub fn holder(&self, token: &str, now: i64) -> Option<Arc<TokenRule>> {
        let hash = TokenHash::of(token)?;
        let rule = self.by_hash.get(&hash.0)?;
        // What the map takes long over tells of a hash at most, from which nobody gets to a token; this is for who doubts it.
        let is_same = bool::from(rule.hash.0.ct_eq(&hash.0));
        (is_same && is_valid(rule, now)).then(|| Arc::clone(rule))
    }

    /// The rule of that name, for who has proved to hold its token; `None` where it is gone or has expired.
    pub fn named(&self, name: &str, now: i64) -> Option<Arc<TokenRule>> {
        self.by_name.get(name).filter(|rule| is_valid(rule, now)).cloned()
    }

    /// Whether there is a token of that name, expired or not.
    pub fn has_name(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl fmt::Debug for Rules {
    /// Tells how many there are.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rules({})", self.len())
    }
}

fn is_valid(rule: &TokenRule, now: i64) -> bool {
    let is_expired = rule.is_expired(now);
    if is_expired {
        tracing::info!(token = rule.name, "the token `{}` has expired", rule.name);
    }
    !is_expired
}

/// Whether a text can be a token's name.
pub(super) fn is_name(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@:/".contains(&byte);
    (1..=MAX_NAME_LENGTH).contains(&text.len()) && text.bytes().all(is_fine)
}

/// Tells the line of a place in the text.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn of(&self, span: Range<usize>) -> usize {
        self.0.get(..span.start).unwrap_or(self.0).matches('\n').count() + 1
    }

    fn wrong(&self, span: Range<usize>, problem: impl Into<RuleProblem>) -> RuleError {
        RuleError { line: self.of(span), problem: problem.into() }
    }
}

/// A token with the lines that are named where it is not the only one of its kind.
struct ReadToken {
    rule: TokenRule,
    name_line: usize,
    hash_line: usize,
}

fn read_token(lines: &Lines<'_>, place: Range<usize>, table: DeTable<'_>) -> Result<ReadToken, RuleError> {
    let (mut name, mut hash, mut rights, mut repositories, mut expires) = (None, None, None, None, None);
    let (mut name_line, mut hash_line) = (0, 0);
    for (key, value) in table {
        let span = value.span();
        match &**key.get_ref() {
            "name" => {
                let text = text(lines, "name", value)?;
                if !is_name(&text) {
                    return Err(lines.wrong(span, RuleProblem::Name));
                }
                name_line = lines.of(span);
                name = Some(text);
            }
            "sha256" => {
                let text = text(lines, "sha256", value)?;
                let read =
                    TokenHash::parse(&text).ok_or_else(|| lines.wrong(span.clone(), RuleProblem::Hash))?;
                if read.0[..] == EMPTY {
                    return Err(lines.wrong(span, RuleProblem::EmptyHash));
                }
                hash_line = lines.of(span);
                hash = Some(read);
            }
            "allow" => {
                let parse = |text: String| text.parse::<Right>().map_err(RuleProblem::from);
                rights = Some(list(lines, "allow", RIGHTS, value, parse)?);
            }
            "repositories" => {
                let parse = |text: String| text.parse::<Pattern>().map_err(RuleProblem::from);
                repositories = Some(list(lines, "repositories", PATTERNS, value, parse)?);
            }
            "expires" => {
                expires =
                    Some(moment(&value.into_inner()).ok_or_else(|| lines.wrong(span, RuleProblem::Expires))?);
            }
            other => {
                return Err(lines.wrong(key.span(), RuleProblem::UnknownTokenKey(other.to_owned())));
            }
        }
    }
    let missing = |key| lines.wrong(place.clone(), RuleProblem::Missing(key));
    let rule = TokenRule {
        name: name.ok_or_else(|| missing("name"))?,
        hash: hash.ok_or_else(|| missing("sha256"))?,
        rights: rights.ok_or_else(|| missing("allow"))?,
        repositories,
        expires,
    };
    Ok(ReadToken { rule, name_line, hash_line })
}

/// SHA-256 of nothing.
const EMPTY: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
    0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

const RIGHTS: &str = "a list of rights, such as [\"read\", \"push\"]";
const PATTERNS: &str = "a list of patterns, such as [\"acme/*\"]; leave it out for every repository";

fn text(lines: &Lines<'_>, key: &'static str, value: Spanned<DeValue<'_>>) -> Result<String, RuleError> {
    let span = value.span();
    match value.into_inner() {
        DeValue::String(text) => Ok(text.into_owned()),
        _ => Err(lines.wrong(span, RuleProblem::WrongValue { key, expected: "a text" })),
    }
}

/// A list of texts, which may not be empty: it would be a token that is good for nothing, or was meant to be good for everything.
fn list<T>(
    lines: &Lines<'_>,
    key: &'static str,
    expected: &'static str,
    value: Spanned<DeValue<'_>>,
    parse: impl Fn(String) -> Result<T, RuleProblem>,
) -> Result<Vec<T>, RuleError> {
    let span = value.span();
    let wrong = |span| lines.wrong(span, RuleProblem::WrongValue { key, expected });
    let DeValue::Array(items) = value.into_inner() else { return Err(wrong(span)) };
    let mut read = Vec::new();
    for item in items {
        let span = item.span();
        let DeValue::String(text) = item.into_inner() else { return Err(wrong(span)) };
        read.push(parse(text.into_owned()).map_err(|problem| lines.wrong(span, problem))?);
    }
    if read.is_empty() { Err(wrong(span)) } else { Ok(read) }
}

/// Seconds since 1970 of a date or a time, as TOML has them or as a text. A date is where that day begins, in UTC: of two
/// readings the one that ends earlier.
fn moment(value: &DeValue<'_>) -> Option<i64> {
    match value {
        DeValue::Datetime(moment) => parse_moment(&moment.to_string()),
        DeValue::String(text) => parse_moment(text),
        _ => None,
    }
}

/// Seconds since 1970 of `2027-01-31` (where that day begins, in UTC) or of a time of RFC 3339.
pub fn parse_moment(text: &str) -> Option<i64> {
    if let Ok(time) = chrono::DateTime::parse_from_rfc3339(text) {
        return Some(time.timestamp());
    }
    let is_date = text.len() == "2027-01-31".len();
    let date = text.parse::<chrono::NaiveDate>().ok().filter(|_| is_date)?;
    Some(date.and_time(chrono::NaiveTime::MIN).and_utc().timestamp())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn token(name: &str, secret: &str, more: &str) -> String {
        let hash = TokenHash::of(secret).unwrap().to_hex();
        format!("[[token]]\nname = \"{name}\"\nsha256 = \"{hash}\"\nallow = [\"read\"]\n{more}\n")
    }

    fn problem(text: &str) -> String {
        Rules::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        let rules = Rules::parse(&(token("one", "a", "") + &token("two", "b", ""))).unwrap();
        assert_eq!(rules.holder("a", 0).unwrap().name(), "one");
        assert_eq!(rules.holder("b", 0).unwrap().name(), "two");
        for wrong in ["", "c", "A", "a ", &TokenHash::of("a").unwrap().to_hex(), &"a".repeat(100_000)] {
            assert!(rules.holder(wrong, 0).is_none());
        }
        assert_eq!(rules.named("one", 0).unwrap().name(), "one");
        assert!(Rules::parse("# nobody yet\n").unwrap().is_empty());
    }

    #[test]
    fn a_token_is_worth_nothing_from_the_moment_that_it_expires() {
        for expires in [
            "1970-01-02",
            "1970-01-02T00:00:00Z",
            "1970-01-02 00:00:00Z",
            "1970-01-02T02:00:00+02:00",
            "\"1970-01-02\"",
            "\"1970-01-02T00:00:00Z\"",
        ] {
            let rules = Rules::parse(&token("one", "a", &format!("expires = {expires}"))).unwrap();
            assert!(rules.holder("a", 86_399).is_some(), "{expires}");
            assert!(rules.holder("a", 86_400).is_none(), "{expires}");
            assert!(rules.named("one", 86_400).is_none() && rules.has_name("one"), "{expires}");
        }
        for expires in ["1970-01-02T00:00:00", "00:00:00", "\"soon\"", "\"\"", "5", "\"1970-1-2\"", "true"] {
            let problem = problem(&token("one", "a", &format!("expires = {expires}")));
            assert!(problem.starts_with("line 5: `expires` has to be a date"), "{expires}: {problem}");
        }
    }

    #[test]
    fn whatever_is_not_meant_so_is_refused_with_its_line() {
        let same_name = token("one", "a", "") + &token("one", "b", "");
        insta::assert_snapshot!(problem(&same_name), @"line 7: there is another token with the name `one`; give each its own, so that the log can tell them apart");
        let same_hash = token("one", "a", "") + &token("two", "a", "");
        insta::assert_snapshot!(problem(&same_hash), @"line 8: this is the same `sha256` as that of the token `one`; remove one of the two");
        insta::assert_snapshot!(problem("tokens = 1"), @"line 1: there is no key `tokens` here; tokens are tables that begin with `[[token]]`");
        insta::assert_snapshot!(problem("\n[token]\nname = 'a'"), @"line 2: each token is a table that begins with `[[token]]`, in two brackets");
        insta::assert_snapshot!(problem("token = ['a']"), @"line 1: each token is a table that begins with `[[token]]`, in two brackets");
        insta::assert_snapshot!(problem(&token("one", "a", "repository = 'a'")), @"line 5: a token has no key `repository`; it has `name`, `sha256`, `allow`, `repositories` and `expires`");
        insta::assert_snapshot!(problem(&token("one", "a", "repositories = ['']")), @"line 5: a pattern is empty; write `*` for every repository");
        insta::assert_snapshot!(problem(&token("one", "a", "repositories = []")), @r#"line 5: `repositories` has to be a list of patterns, such as ["acme/*"]; leave it out for every repository"#);
        insta::assert_snapshot!(problem(&token("one", "a", "repositories = 'a'")), @r#"line 5: `repositories` has to be a list of patterns, such as ["acme/*"]; leave it out for every repository"#);
        insta::assert_snapshot!(problem("[[token]]\nname = 'a'"), @"line 1: the token that begins here has no `sha256`");
        insta::assert_snapshot!(problem("[[token]]\nname = \"a\\nb\""), @"line 2: `name` has to be 1 to 64 letters, digits and `.`, `_`, `-`, `+`, `@`, `:`, `/`: it stands in log lines");
        insta::assert_snapshot!(problem("[[token]]\nallow = ['write']"), @"line 2: `write` is no right; there are `read`, `push` and `delete`");
        insta::assert_snapshot!(problem("[[token]]\nallow = []"), @r#"line 2: `allow` has to be a list of rights, such as ["read", "push"]"#);
        insta::assert_snapshot!(problem("[[token]]\nname = 'a'\nname = 'b'"), @"line 3: duplicate key");
    }

    #[test]
    fn a_token_that_stands_where_its_hash_should_is_not_quoted() {
        let problem_of = |hash: &str| problem(&format!("[[token]]\nname = 'a'\nsha256 = '{hash}'"));
        let token = "ocimod_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert!(!problem_of(token).contains("AAAA"), "{}", problem_of(token));
        assert!(problem_of(&hex::encode(EMPTY)).contains("empty text"));
        for wrong in ["", "00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64)] {
            assert!(problem_of(wrong).starts_with("line 3: `sha256` has to be"), "{wrong}");
        }
    }

    #[test]
    fn an_absurd_text_is_an_error_and_no_crash() {
        assert!(Rules::parse(&format!("token = {}", "[".repeat(100_000))).is_err());
        assert!(Rules::parse("[[token]]\nname = ").is_err());
    }

    #[test]
    fn debug_tells_no_hash() {
        let rules = Rules::parse(&token("one", "a", "")).unwrap();
        let rule = rules.holder("a", 0).unwrap();
        assert_eq!(format!("{rules:?}"), "Rules(1)");
        assert!(!format!("{rule:?}").contains(&TokenHash::of("a").unwrap().to_hex()[..8]));
    }
}
