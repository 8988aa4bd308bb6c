//! The path in front of every route, for a server that shares its host name with others.
//!
//! Two things stay at the root, since clients look for them nowhere else: `/.well-known/terraform.json`, which tells the base path,
//! and the distribution API, which begins with `/v2/` on every host. So does the health of the process, for whoever asks it past the
//! proxy.

use std::fmt;
use std::str::FromStr;

/// A path of one or more parts, with a `/` in front and none behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePath(String);

/// The text is no base path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BasePathError {
    /// It has not the form of one.
    #[error(
        "`{0}` is no base path: expected parts of letters, digits, `-`, `.`, `_` and `~`, each behind a `/` and none behind the last, \
         such as `/ocimod`"
    )]
    Malformed(String),
    /// It begins like a route that stays at the root.
    #[error("the base path `{0}` would hide what clients expect at the root; let it begin with another word")]
    Taken(String),
}

/// What stands at the root whatever the base path is.
const AT_ROOT: [&str; 5] = ["v2", ".well-known", "healthz", "readyz", "metrics"];

/// Longer than any proxy is told.
const MAX_LENGTH: usize = 255;

impl BasePath {
    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BasePath {
    type Err = BasePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || BasePathError::Malformed(text.chars().take(MAX_LENGTH).collect());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let is_part =
            |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain);
        let parts = text.strip_prefix('/').filter(|_| text.len() <= MAX_LENGTH).ok_or_else(malformed)?;
        if !parts.split('/').all(is_part) {
            return Err(malformed());
        }
        match parts.split('/').next() {
            Some(first) if AT_ROOT.contains(&first) => Err(BasePathError::Taken(text.to_owned())),
            _ => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_that_hide_nothing_are_taken() {
        for text in ["/ocimod", "/a/b-c/d_e.f~1", "/v1", "/v2x"] {
            assert_eq!(text.parse::<BasePath>().map(|path| path.to_string()), Ok(text.to_owned()));
        }
        for text in [
            "", "/", "ocimod", "/ocimod/", "//ocimod", "/a//b", "/a/../b", "/.", "/a b", "/a%2fb", "/{a}",
            "/*a", "/a?b", "/é",
        ] {
            assert!(matches!(text.parse::<BasePath>(), Err(BasePathError::Malformed(_))), "{text}");
        }
        for text in ["/v2", "/v2/x", "/.well-known", "/healthz", "/readyz/x"] {
            assert!(matches!(text.parse::<BasePath>(), Err(BasePathError::Taken(_))), "{text}");
        }
    }
}
