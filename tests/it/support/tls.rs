//! A certificate for loopback that the test's clients are told to trust.

use std::path::{Path, PathBuf};

/// A self-signed certificate and its key, in files.
pub(crate) struct Certificate {
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
}

impl Certificate {
    /// One for `localhost` and `127.0.0.1`, in `folder`.
    pub(crate) fn create(folder: &Path) -> Self {
        Self::create_for(folder, &["localhost", "127.0.0.1"])
    }

    /// One for these names, in `folder`.
    pub(crate) fn create_for(folder: &Path, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate can be made");
        let (certificate_file, key_file) = (folder.join("certificate.pem"), folder.join("key.pem"));
        std::fs::write(&certificate_file, made.cert.pem()).expect("the folder is ours");
        std::fs::write(&key_file, made.signing_key.serialize_pem()).expect("the folder is ours");
        Self { certificate_file, key_file }
    }
}
