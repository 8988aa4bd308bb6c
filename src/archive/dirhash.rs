//! The `h1:` hash of Go's `dirhash.Hash1`, by which OpenTofu and Terraform know a provider package and `cue` could know a
//! module: it sees names and content, neither times, modes, order nor compression.

use std::io::{self, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// A file could not take part in a directory hash.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryHashError {
    /// The list that is hashed has a line a file, so such a name could imitate another file.
    #[error("the name {name:?} has a line feed, which a directory hash cannot hold; rename the file")]
    LineFeed {
        /// The name as it stands.
        name: String,
    },
    /// The content could not be read.
    #[error("{name:?} cannot be read")]
    Unreadable {
        /// The name as it stands.
        name: String,
        /// Why.
        source: io::Error,
    },
}

/// Collects files, in any order, into one hash. Holds their names and hashes, never their content.
#[derive(Clone, Debug, Default)]
pub struct DirectoryHash {
    files: Vec<(String, String)>,
}

impl DirectoryHash {
    /// The hash of no file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file; `name` is its path with `/`, as it stands in the zip. Folders take no part.
    pub fn add(&mut self, name: &str, mut content: impl Read) -> Result<(), DirectoryHashError> {
        if name.contains('\n') {
            return Err(DirectoryHashError::LineFeed { name: name.to_owned() });
        }
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => hasher.update(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(DirectoryHashError::Unreadable { name: name.to_owned(), source }),
            }
        }
        self.files.push((name.to_owned(), hex::encode(hasher.finalize())));
        Ok(())
    }

    /// `h1:` and base64 of the sha256 of one line a file, `<hex>  <name>`, sorted by the bytes of the name.
    pub fn finish(mut self) -> String {
        self.files.sort();
        let mut hasher = Sha256::new();
        for (name, hash) in &self.files {
            hasher.update(format!("{hash}  {name}\n"));
        }
        format!("h1:{}", STANDARD.encode(hasher.finalize()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn hash(files: &[(&str, &str)]) -> String {
        let mut hash = DirectoryHash::new();
        for (name, content) in files {
            hash.add(name, content.as_bytes()).unwrap();
        }
        hash.finish()
    }

    /// Expected values by golang.org/x/mod v0.20.0, `dirhash.Hash1`.
    #[test]
    fn hashes_are_those_of_go() {
        let files = [
            ("main.tf", "variable \"name\" {}\n"),
            ("modules/a b/ünï.tf", "# two\n"),
            ("Zeta", ""),
            ("a/b", "x"),
            ("a.b", "y"),
        ];
        let expected = "h1:mniFRHbfou2AXhM/kd+fla76TxY4+RYXobtjnQkOtbo=";
        assert_eq!(hash(&files), expected);
        let mut reversed = files;
        reversed.reverse();
        assert_eq!(hash(&reversed), expected);
        let two = [("xyz", "data for xyz"), ("abc", "data for abc")];
        assert_eq!(hash(&two), "h1:EP6WfDoQTSk9klnxcjriWJOGztueJUywHNmWeq+efB8=");
        assert_eq!(hash(&[]), "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn a_name_with_a_line_feed_is_refused() {
        let refusal = DirectoryHash::new().add("a\nb", io::empty()).unwrap_err();
        assert!(matches!(refusal, DirectoryHashError::LineFeed { name } if name == "a\nb"));
    }
}
