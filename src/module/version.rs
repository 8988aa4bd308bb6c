//! Versions of modules: semantic versions of exactly three numbers (semver.org, 2.0.0).

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A version has to fit a tag, which has 128 characters, with a `v` in front.
const MAX_LENGTH: usize = 127;

/// A semantic version. Ordered by precedence; versions that differ in build metadata alone, by its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(semver::Version);

/// The text is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a version: expected three numbers, as in `1.2.0`, `v1.2.0` or `1.2.0-rc.1`")]
pub struct VersionError {
    text: String,
}

impl Version {
    /// Reads `1.2.0` or `v1.2.0`, with a pre-release and build metadata or without.
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        let bare = text.strip_prefix('v').unwrap_or(text);
        let parsed = if bare.len() <= MAX_LENGTH { semver::Version::parse(bare).ok() } else { None };
        parsed.map(Self).ok_or_else(|| VersionError { text: text.chars().take(MAX_LENGTH + 1).collect() })
    }

    /// A version of three numbers alone.
    pub fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self(semver::Version::new(major, minor, patch))
    }

    /// The first number.
    pub fn major(&self) -> u64 {
        self.0.major
    }

    /// The three numbers.
    pub fn numbers(&self) -> [u64; 3] {
        [self.0.major, self.0.minor, self.0.patch]
    }

    /// Whether there is a part behind a `-`.
    pub fn is_prerelease(&self) -> bool {
        !self.0.pre.is_empty()
    }

    /// What stands behind the `-`; empty where there is none.
    pub fn prerelease(&self) -> &str {
        self.0.pre.as_str()
    }

    /// What stands behind the `+`; empty where there is none.
    pub fn build(&self) -> &str {
        self.0.build.as_str()
    }

    /// The same without build metadata.
    #[must_use]
    pub fn without_build(&self) -> Self {
        Self(semver::Version { build: semver::BuildMetadata::EMPTY, ..self.0.clone() })
    }

    /// The three numbers alone.
    #[must_use]
    pub fn without_prerelease(&self) -> Self {
        Self(semver::Version::new(self.0.major, self.0.minor, self.0.patch))
    }

    /// The order of semantic versions, which build metadata has no part in.
    pub fn precedence(&self, other: &Self) -> Ordering {
        self.0.cmp_precedence(&other.0)
    }

    /// Whether two versions differ in build metadata at most.
    pub fn same_precedence(&self, other: &Self) -> bool {
        self.precedence(other) == Ordering::Equal
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.precedence(other).then_with(|| self.build().cmp(other.build()))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Version {
    /// Without `v`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_spellings_are_one_version() {
        assert_eq!(Version::parse("v1.2.0").unwrap(), Version::parse("1.2.0").unwrap());
        assert_eq!(Version::parse("v1.2.0-rc.1+b.2").unwrap().to_string(), "1.2.0-rc.1+b.2");
    }

    #[test]
    fn whatever_is_not_three_numbers_is_refused() {
        for text in [
            "", "v", "1", "1.2", "v1.2", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", "vv1.2.3", "V1.2.3",
            " 1.2.3", "latest", "1.2.3+",
        ] {
            assert!(Version::parse(text).is_err(), "{text:?}");
        }
        assert!(Version::parse(&format!("1.2.3-{}", "a".repeat(200))).is_err());
    }

    #[test]
    fn the_order_is_that_of_semantic_versions() {
        let sorted = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.0+a",
            "1.0.0+b",
            "1.10.0",
            "2.0.0",
        ];
        for pair in sorted.windows(2) {
            assert!(Version::parse(pair[0]).unwrap() < Version::parse(pair[1]).unwrap(), "{pair:?}");
        }
        assert!(Version::parse("1.0.0+a").unwrap().same_precedence(&Version::parse("1.0.0+b").unwrap()));
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(text in "\\PC*") {
            let _ = Version::parse(&text);
        }

        #[test]
        fn what_is_written_is_read_back(major in 0..99u64, minor in 0..99u64, patch in 0..99u64, rest in "(-[a-z][0-9a-z]{0,4})?(\\+[0-9a-z]{1,4})?") {
            let text = format!("{major}.{minor}.{patch}{rest}");
            prop_assert_eq!(Version::parse(&text).unwrap().to_string(), text);
        }
    }
}
