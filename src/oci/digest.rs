//! Content digests (image specification, "Digests"): the algorithm and lower-case hex of a fixed length, nothing else.
//!
//! A digest becomes part of file names and URLs, so it is parsed to the last character before it is used for either.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest as _;

/// The algorithms of the image specification that are accepted; `sha256` is the one that ocimod writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// 256 bits: what every client and registry understands.
    #[default]
    Sha256,
    /// 512 bits: registered by the specification, rarely met.
    Sha512,
}

impl Algorithm {
    /// The name as it stands before the colon.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Length of the hex part in characters.
    pub fn hex_length(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl FromStr for Algorithm {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "sha256" => Ok(Self::Sha256),
            "sha512" => Ok(Self::Sha512),
            _ => Err(DigestError::new(text)),
        }
    }
}

/// `sha256:<64 hex>` or `sha512:<128 hex>`, lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    text: String,
    algorithm: Algorithm,
}

/// The text is no digest that ocimod accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a digest: expected `sha256:` and 64, or `sha512:` and 128, lower-case hexadecimal digits"
)]
pub struct DigestError {
    text: String,
}

impl DigestError {
    fn new(text: &str) -> Self {
        // A hostile answer may hold megabytes where a digest is expected.
        Self { text: text.chars().take(160).collect() }
    }
}

impl Digest {
    /// The sha256 digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The algorithm before the colon.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hexadecimal part: safe as a file name.
    pub fn hex(&self) -> &str {
        &self.text[self.algorithm.name().len() + 1..]
    }

    /// The whole, as it is written in manifests.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The digest of a finished hash.
    fn from_hash(algorithm: Algorithm, hash: &[u8]) -> Self {
        Self { text: format!("{}:{}", algorithm.name(), hex::encode(hash)), algorithm }
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, hex) = text.split_once(':').ok_or_else(|| DigestError::new(text))?;
        let algorithm: Algorithm = name.parse().map_err(|_| DigestError::new(text))?;
        let is_lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() != algorithm.hex_length() || !hex.bytes().all(is_lower_hex) {
            return Err(DigestError::new(text));
        }
        Ok(Self { text: text.to_owned(), algorithm })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Computes a digest piece by piece, so that no blob has to be held whole.
#[derive(Clone)]
pub struct Hasher(State);

#[derive(Clone)]
enum State {
    Sha256(sha2::Sha256),
    Sha512(Box<sha2::Sha512>),
}

impl fmt::Debug for Hasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hasher")
    }
}

impl Hasher {
    /// An empty hash of the given algorithm.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Box::new(sha2::Sha512::new())),
        })
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(hasher) => hasher.update(bytes),
            State::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The digest of everything that was added.
    pub fn finish(self) -> Digest {
        match self.0 {
            State::Sha256(hasher) => Digest::from_hash(Algorithm::Sha256, &hasher.finalize()),
            State::Sha512(hasher) => Digest::from_hash(Algorithm::Sha512, &hasher.finalize()),
        }
    }
}

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_the_empty_object_is_the_known_one() {
        let expected = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(Digest::of(b"{}").as_str(), expected);
        assert_eq!(expected.parse::<Digest>().unwrap().hex().len(), 64);
    }

    #[test]
    fn whatever_is_not_exactly_a_digest_is_refused() {
        let good = "a".repeat(64);
        for text in [
            String::new(),
            "sha256".into(),
            "sha256:".into(),
            format!("sha256:{}", "A".repeat(64)),
            format!("sha256:{}", "a".repeat(63)),
            format!("sha256:{}", "a".repeat(65)),
            format!("sha512:{good}"),
            format!("md5:{}", "a".repeat(32)),
            format!("sha256:../{}", "a".repeat(61)),
            format!("sha256:{good}\n"),
            format!("sha256:{}é", "a".repeat(62)),
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_error_does_not_repeat_megabytes() {
        let error = "x".repeat(1 << 20).parse::<Digest>().unwrap_err();
        assert!(error.to_string().len() < 400);
    }

    #[test]
    fn pieces_and_whole_agree() {
        let mut hasher = Hasher::new(Algorithm::Sha512);
        hasher.update(b"ab");
        hasher.update(b"c");
        let digest = hasher.finish();
        assert!(digest.as_str().starts_with("sha512:ddaf35a193617abacc417349ae204131"));
        assert_eq!(digest.hex().len(), 128);
    }
}
