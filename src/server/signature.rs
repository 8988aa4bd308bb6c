//! Keys that the server signs with what it hands out and will be shown again: links to archives, tokens of `/v2/token`.
//!
//! A signature holds for one purpose and one list of fields, so what was signed for one end is worth nothing at another. Replicas
//! behind one address share the keys by a file. The first key signs and all of them verify, so that a key is changed by putting a
//! new one above it, and taking the old one away once everything that it signed has expired.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::hmac;

/// As long as what HMAC-SHA256 gives: a shorter key would be the weakest part, a longer one no stronger.
const KEY_LENGTH: usize = 32;

/// What anybody could call a key; longer ones are something else, such as a certificate.
const MAX_KEY_LENGTH: usize = 1024;

/// A key or two are in use; each one costs a computation at every request with a wrong signature.
const MAX_KEYS: usize = 16;

/// Standard base64, as `openssl rand -base64 32` writes it, with or without its padding.
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
/// The same in the alphabet of URLs.
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// The keys of a server, the one that signs first. Clones are the same keys.
#[derive(Clone)]
pub struct Keys(Vec<hmac::Key>);

/// A list of keys that cannot be used. No message quotes a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// There is none.
    #[error("there is no key in it: write one with `openssl rand -base64 32`")]
    Empty,
    /// A line is no base64.
    #[error("line {line} is no base64: each line is one key, such as `openssl rand -base64 32` writes")]
    NotBase64 {
        /// From 1.
        line: usize,
    },
    /// A line is too short or too long for a key.
    #[error(
        "the key in line {line} has {length} bytes, and needs {KEY_LENGTH} to {MAX_KEY_LENGTH}: write one with `openssl rand -base64 32`"
    )]
    Length {
        /// From 1.
        line: usize,
        /// Its bytes, decoded.
        length: usize,
    },
    /// There are more than anybody rotates.
    #[error("it has more than {MAX_KEYS} keys: take those away that sign nothing any more")]
    TooMany,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers to make a key of")]
    NoRandom,
}

impl Keys {
    /// One key that nobody else has: what it signs holds as long as this process.
    pub fn generate() -> Result<Self, KeysError> {
        let mut key = [0_u8; KEY_LENGTH];
        getrandom::fill(&mut key).map_err(|_| KeysError::NoRandom)?;
        Ok(Self(vec![hmac::Key::new(hmac::HMAC_SHA256, &key)]))
    }

    /// Reads a list of keys: one in base64 a line; blank lines and those that begin with `#` count for nothing.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line_number = index + 1;
            let key = STANDARD
                .decode(line)
                .or_else(|_| URL_SAFE.decode(line))
                .map_err(|_| KeysError::NotBase64 { line: line_number })?;
            if !(KEY_LENGTH..=MAX_KEY_LENGTH).contains(&key.len()) {
                return Err(KeysError::Length { line: line_number, length: key.len() });
            }
            if keys.len() == MAX_KEYS {
                return Err(KeysError::TooMany);
            }
            keys.push(hmac::Key::new(hmac::HMAC_SHA256, &key));
        }
        if keys.is_empty() { Err(KeysError::Empty) } else { Ok(Self(keys)) }
    }

    /// Signs fields for a purpose: 43 letters of base64 for URLs.
    pub fn sign(&self, purpose: &str, fields: &[&str]) -> String {
        // Keys are not made without one.
        let Some(key) = self.0.first() else { return String::new() };
        URL_SAFE_NO_PAD.encode(hmac::sign(key, &framed(purpose, fields)))
    }

    /// Whether one of the keys has signed these fields for this purpose. It takes as long for a signature that is nearly right as
    /// for any other.
    pub fn verify(&self, purpose: &str, fields: &[&str], signature: &str) -> bool {
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
        let message = framed(purpose, fields);
        self.0.iter().any(|key| hmac::verify(key, &message, &signature).is_ok())
    }
}

/// Each text behind its length, so that no two lists give the same bytes.
fn framed(purpose: &str, fields: &[&str]) -> Vec<u8> {
    let mut message = Vec::new();
    for text in std::iter::once(&purpose).chain(fields) {
        message.extend_from_slice(&(text.len() as u64).to_be_bytes());
        message.extend_from_slice(text.as_bytes());
    }
    message
}

impl fmt::Debug for Keys {
    /// Tells how many there are.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Keys({})", self.0.len())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ONE: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    const OTHER: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA";

    fn keys(lines: &[&str]) -> Keys {
        Keys::parse(&lines.join("\n")).unwrap()
    }

    #[test]
    fn a_signature_holds_for_one_purpose_and_one_list() {
        let keys = keys(&[ONE]);
        let signature = keys.sign("link", &["acme/vpc", "1"]);
        assert_eq!(signature.len(), 43);
        assert!(keys.verify("link", &["acme/vpc", "1"], &signature));
        for (purpose, fields) in [
            ("token", &["acme/vpc", "1"][..]),
            ("link", &["acme/vpc1", ""]),
            ("link", &["acme/vpc1"]),
            ("link", &["acme/vpc", "1", ""]),
            ("link", &["acme/vp", "c1"]),
            ("linkacme/vpc", &["1"]),
        ] {
            assert!(!keys.verify(purpose, fields, &signature), "{purpose} {fields:?}");
        }
    }

    #[test]
    fn an_altered_signature_is_none() {
        let keys = keys(&[ONE]);
        let signature = keys.sign("link", &["a"]);
        for altered in ["", "=", "é", &signature[1..], &format!("{signature}A"), &signature.to_lowercase()] {
            assert!(!keys.verify("link", &["a"], altered), "{altered}");
        }
    }

    #[test]
    fn the_first_key_signs_and_all_verify() {
        let (old, both, new) = (keys(&[ONE]), keys(&["# new", OTHER, "", " # old", ONE]), keys(&[OTHER]));
        assert!(both.verify("link", &["a"], &old.sign("link", &["a"])));
        assert!(new.verify("link", &["a"], &both.sign("link", &["a"])));
        assert!(!old.verify("link", &["a"], &both.sign("link", &["a"])));
    }

    #[test]
    fn generated_keys_are_all_different() {
        let (one, other) = (Keys::generate().unwrap(), Keys::generate().unwrap());
        assert!(!other.verify("link", &["a"], &one.sign("link", &["a"])));
    }

    #[test]
    fn what_is_no_list_of_keys_is_refused_and_not_quoted() {
        assert_eq!(Keys::parse("# nothing\n\n").unwrap_err(), KeysError::Empty);
        assert_eq!(Keys::parse("\nmy secret!").unwrap_err(), KeysError::NotBase64 { line: 2 });
        assert_eq!(Keys::parse("c2VjcmV0").unwrap_err(), KeysError::Length { line: 1, length: 6 });
        let many = [ONE; MAX_KEYS + 1].join("\n");
        assert_eq!(Keys::parse(&many).unwrap_err(), KeysError::TooMany);
        assert_eq!(format!("{:?}", keys(&[ONE, OTHER])), "Keys(2)");
    }
}
