//! Patterns of repository names. `*` stands for anything, slashes included; everything else for itself.

use std::fmt;
use std::str::FromStr;

/// A repository's name has at most 255 bytes, and a pattern of it has no reason to be longer.
const MAX_LENGTH: usize = 255;

/// Which repositories are meant: `acme/*`, `acme/vpc/aws`, `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

/// The text is no pattern that could match a repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is empty, which would match nothing.
    #[error("a pattern is empty; write `*` for every repository")]
    Empty,
    /// It is longer than any repository's name.
    #[error("a pattern has {0} bytes; no repository has a name of more than {MAX_LENGTH}")]
    TooLong(usize),
    /// It has a letter that is in no repository's name.
    #[error(
        "the pattern `{pattern}` has a `{letter}`; names of repositories have lower-case letters, digits and `.`, `_`, `-`, `/`, and \
         `*` stands for anything"
    )]
    Letter {
        /// The pattern.
        pattern: String,
        /// What cannot be in it.
        letter: char,
    },
    /// A slash where no repository's name has one.
    #[error(
        "the pattern `{0}` begins or ends with `/`, or has two of them; write `acme/*` for everything below `acme`"
    )]
    Slash(String),
}

impl Pattern {
    /// Whether it matches a name. It takes time as the name and the pattern are long, whatever they are.
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(name) = name.strip_prefix(first) else { return false };
        // What stands between two stars may be taken where it comes first: that leaves the most for the rest.
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut name) = name.strip_suffix(last) else { return false };
        for piece in middle.split('*') {
            let Some(at) = name.find(piece) else { return false };
            name = &name[at + piece.len()..];
        }
        true
    }

    /// Whether it matches every name.
    pub fn matches_everything(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > MAX_LENGTH {
            return Err(PatternError::TooLong(text.len()));
        }
        let is_fine =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "._-/*".contains(letter);
        if let Some(letter) = text.chars().find(|letter| !is_fine(*letter)) {
            return Err(PatternError::Letter { pattern: text.to_owned(), letter });
        }
        if text.starts_with('/') || text.ends_with('/') || text.contains("//") {
            return Err(PatternError::Slash(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(name)
    }

    #[test]
    fn a_star_crosses_slashes_and_all_else_stands_for_itself() {
        for (pattern, name) in [
            ("acme/vpc", "acme/vpc"),
            ("acme/*", "acme/vpc"),
            ("acme/*", "acme/vpc/aws"),
            ("acme*", "acme"),
            ("acme*", "acme-other/vpc"),
            ("*", "a"),
            ("*/aws", "acme/vpc/aws"),
            ("*/vpc/*", "acme/vpc/aws"),
            ("a*b*c", "a-b-b-c"),
            ("a*b*b", "abb"),
            ("**", "a/b"),
            ("a**b", "ab"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("acme/vpc", "acme/vpc/aws"),
            ("acme/vpc", "acme/vp"),
            ("acme/*", "acme"),
            ("acme/*", "acmeevil/vpc"),
            ("acme/*", "x/acme/vpc"),
            ("*/aws", "aws"),
            ("a*b*b", "ab"),
            ("ab*ba", "aba"),
            ("a.c", "abc"),
            ("a*b*c", "a-c-b"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn what_could_match_nothing_is_refused() {
        let error = |text: &str| text.parse::<Pattern>().unwrap_err();
        assert_eq!(error(""), PatternError::Empty);
        assert!(matches!(error("Acme/*"), PatternError::Letter { letter: 'A', .. }));
        for text in ["acme/?", "acme/[ab]", "a b", "a,b", "!acme", "é", "a\n"] {
            assert!(matches!(error(text), PatternError::Letter { .. }), "{text}");
        }
        for text in ["/acme", "acme/", "a//b", "/"] {
            assert_eq!(error(text), PatternError::Slash(text.to_owned()));
        }
        assert_eq!(error(&"a".repeat(256)), PatternError::TooLong(256));
    }

    #[test]
    fn a_pattern_of_stars_takes_no_longer_than_any_other() {
        // A matcher that went back would be at this until the end of days.
        let pattern = "a*".repeat(120) + "b";
        assert!(!matches(&pattern, &"a".repeat(255)));
    }

    /// The definition, word for word.
    fn by_definition(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|at| by_definition(rest, &name[at..])),
            Some((letter, rest)) => name.first() == Some(letter) && by_definition(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_matches_what_the_definition_matches(pattern in "[ab*]{1,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &name), by_definition(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
