//! Repository names (distribution specification, "Pulling manifests": `<name>`).

use std::fmt;
use std::str::FromStr;

/// A name has to fit, with the host, into 255 characters in many clients; the host's share is not known here.
const MAX_LENGTH: usize = 255;

/// A repository's name within a registry: lower-case components separated by `/`.
///
/// No component begins with a `_` or a dot, so a store may use such names for its own folders.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository(String);

/// The text is no repository name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a repository name: lower-case letters and digits, joined by `.`, `_`, `__` or `-`, in parts \
     separated by `/`, at most {MAX_LENGTH} characters"
)]
pub struct RepositoryError {
    text: String,
}

impl Repository {
    /// The name as it stands in a URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parts between the slashes.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// This name below `prefix`, which may be empty.
    pub fn below(&self, prefix: &str) -> Result<Self, RepositoryError> {
        if prefix.is_empty() { Ok(self.clone()) } else { format!("{prefix}/{}", self.0).parse() }
    }
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else { return false };
    if !is_word(first) || !is_word(last) {
        return false;
    }
    bytes.split(|&byte| is_word(byte)).all(|separator| {
        matches!(separator, b"" | b"." | b"_" | b"__") || separator.iter().all(|&byte| byte == b'-')
    })
}

impl FromStr for Repository {
    type Err = RepositoryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() <= MAX_LENGTH && text.split('/').all(is_component) {
            Ok(Self(text.to_owned()))
        } else {
            Err(RepositoryError { text: text.chars().take(MAX_LENGTH).collect() })
        }
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_specification_are_taken() {
        for name in ["a", "acme/vpc/aws", "a.b_c__d-e---f/0", "example.com/net/vpc", "a1/b2"] {
            assert_eq!(name.parse::<Repository>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn whatever_could_leave_a_folder_or_a_url_is_refused() {
        for name in [
            "", "/", "a/", "/a", "a//b", "A", "a/../b", "..", ".", "a/.b", "_a", "a_", "a___b", "a..b",
            "a-.b", "a b", "é", "a%2fb", "a\\b", "a?b", "a#b", "a:b", "a\0b",
        ] {
            assert!(name.parse::<Repository>().is_err(), "{name:?}");
        }
        assert!("a".repeat(256).parse::<Repository>().is_err());
    }

    #[test]
    fn a_prefix_goes_in_front() {
        let name: Repository = "acme/vpc/aws".parse().unwrap();
        assert_eq!(name.below("").unwrap(), name);
        assert_eq!(name.below("modules").unwrap().as_str(), "modules/acme/vpc/aws");
    }
}
