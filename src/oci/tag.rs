//! Tags, and references to a manifest by tag or by digest (distribution specification, "Pulling manifests").

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::digest::Digest;

/// The specification's limit.
const MAX_LENGTH: usize = 128;

/// `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`; there is no `+`, so build metadata has to be written otherwise.
///
/// Whoever keeps a list and gives it out shares the text: lists are long.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(Arc<str>);

/// The text is no tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a tag: letters, digits, `_`, `.` and `-`, not beginning with `.` or `-`, at most {MAX_LENGTH} \
     characters"
)]
pub struct TagError {
    text: String,
}

impl Tag {
    /// The tag that stands for a manifest's referrers where a registry has no list of them: algorithm and hex, the latter cut to what a
    /// tag can hold (distribution specification, "Referrers Tag Schema").
    pub fn of_referrers(subject: &Digest) -> Self {
        // Letters, a hyphen and 64 hexadecimal digits are a tag.
        Self(format!("{}-{}", subject.algorithm().name(), &subject.hex()[..64]).into())
    }

    /// The tag as it stands in a URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_tag = (1..=MAX_LENGTH).contains(&text.len())
            && text.bytes().next().is_some_and(is_first)
            && text.bytes().all(|byte| is_first(byte) || byte == b'.' || byte == b'-');
        if is_tag {
            Ok(Self(text.into()))
        } else {
            Err(TagError { text: text.chars().take(MAX_LENGTH).collect() })
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What names a manifest within a repository: `<reference>` in the specification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reference {
    /// A tag: it may move.
    Tag(Tag),
    /// A digest: it names these bytes for ever.
    Digest(Digest),
}

impl FromStr for Reference {
    type Err = TagError;

    /// A digest has a colon, a tag has none.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(digest) => Ok(Self::Digest(digest)),
            Err(_) => text.parse().map(Self::Tag),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => tag.fmt(formatter),
            Self::Digest(digest) => digest.fmt(formatter),
        }
    }
}

impl From<Tag> for Reference {
    fn from(tag: Tag) -> Self {
        Self::Tag(tag)
    }
}

impl From<Digest> for Reference {
    fn from(digest: Digest) -> Self {
        Self::Digest(digest)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_digests_are_told_apart() {
        assert!(matches!("v1.0.0".parse().unwrap(), Reference::Tag(_)));
        assert!(matches!("sha256-abc.sig".parse().unwrap(), Reference::Tag(_)));
        let digest = Digest::of(b"{}").to_string();
        assert!(matches!(digest.parse().unwrap(), Reference::Digest(_)));
        assert!("sha256:baddigeststring".parse::<Reference>().is_err());
    }

    #[test]
    fn every_digest_has_a_tag_for_its_referrers() {
        let sha256 = Digest::of(b"x");
        assert_eq!(Tag::of_referrers(&sha256).as_str(), format!("sha256-{}", sha256.hex()));
        let sha512: Digest = format!("sha512:{}", "ab".repeat(64)).parse().unwrap();
        let tag = Tag::of_referrers(&sha512);
        assert_eq!(tag.as_str(), format!("sha512-{}", "ab".repeat(32)));
        assert_eq!(tag.as_str().parse(), Ok(tag));
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        for text in ["", ".a", "-a", "a+b", "a/b", "a b", "é", "a:b", "a\n"] {
            assert!(text.parse::<Tag>().is_err(), "{text:?}");
        }
        assert!("a".repeat(128).parse::<Tag>().is_ok());
        assert!("a".repeat(129).parse::<Tag>().is_err());
    }
}
