//! Patterns over repositories: letters as they are, and `*` for any run of them, `/` included.

use std::fmt;
use std::str::FromStr;

/// A pattern over the names of repositories below a registry's prefix: `acme/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryPattern(String);

/// The text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no pattern of repositories: write a name such as `acme/vpc/aws`, with `*` for any part of it, as in `acme/*`"
)]
pub struct RepositoryPatternError(String);

/// Longer ones match no repository: a name has at most 255 characters.
const MAX_LENGTH: usize = 512;

impl FromStr for RepositoryPattern {
    type Err = RepositoryPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_fine =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"*/._-".contains(&byte);
        if (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(is_fine) {
            Ok(Self(text.to_owned()))
        } else {
            Err(RepositoryPatternError(text.chars().take(MAX_LENGTH).collect()))
        }
    }
}

impl fmt::Display for RepositoryPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl RepositoryPattern {
    /// Whether the whole name fits. Each `*` takes the first place where what follows it fits, which is enough: the last piece is
    /// held to the end.
    pub fn matches(&self, name: &str) -> bool {
        let mut pieces = self.0.split('*');
        let first = pieces.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let mut pieces = pieces.peekable();
        if pieces.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(piece) = pieces.next() {
            if pieces.peek().is_none() {
                return rest.ends_with(piece);
            }
            let Some(at) = rest.find(piece) else { return false };
            rest = &rest[at + piece.len()..];
        }
        true
    }

    /// Whether it has a `*`, and so stands for names that it does not say.
    pub fn is_open(&self) -> bool {
        self.0.contains('*')
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<RepositoryPattern>().unwrap().matches(name)
    }

    #[test]
    fn a_star_crosses_slashes_and_the_rest_is_itself() {
        assert!(matches("acme/*", "acme/vpc/aws"));
        assert!(!matches("acme/*", "acme"));
        assert!(!matches("acme/*", "acmeevil/vpc/aws"));
        assert!(matches("*", "a/b"));
        assert!(matches("*/vpc/*", "acme/vpc/aws"));
        assert!(!matches("*/vpc/*", "acme/vpc"));
        assert!(matches("a*b*b", "ab-b"));
        assert!(!matches("a*b*b", "ab"));
        assert!(matches("acme/vpc/aws", "acme/vpc/aws"));
        assert!(!matches("acme/vpc/aws", "acme/vpc/aws2"));
        assert!(matches("a**c", "abc"));
    }

    #[test]
    fn what_no_repository_can_be_called_is_refused() {
        for text in ["", "Acme/*", "a b", "a?", "ä"] {
            assert!(text.parse::<RepositoryPattern>().is_err(), "{text}");
        }
    }
}
