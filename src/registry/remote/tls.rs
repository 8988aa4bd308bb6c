//! What HTTP clients are made of: the provider of cryptography, trust, and the identity of the client.
//!
//! The system's certificates are trusted; where `SSL_CERT_FILE` or `SSL_CERT_DIR` is set, those instead, as every tool that
//! uses OpenSSL does. A client certificate is a credential: the client for other origins than the registry's has none.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use reqwest::dns::Resolve;
use reqwest::{Certificate, ClientBuilder, Identity};

/// How ocimod calls itself.
pub(super) const USER_AGENT: &str = concat!("ocimod/", env!("CARGO_PKG_VERSION"));

/// How long a connection, with its TLS handshake, may take to come about.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Certificates that go with a registry.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// PEM file of certificate authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM files of the client's certificate (with its chain) and key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// The certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: std::io::Error,
    },
    /// A file is not PEM, or has nothing of what it is for.
    #[error("{path} holds no {expected} in PEM form")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
    },
    /// No client can be made of all this.
    #[error("no TLS client can be made: {0}")]
    Client(String),
}

/// Installs the provider of cryptography for the process, once. Without one, making any client panics, so everything that makes
/// one calls this first.
pub fn install_crypto_provider() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // An error means that the program around the library has chosen one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// The certificates, read once: a client for other origins is made later, and files may have changed by then.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    /// The extra authorities as they stood in the file.
    pub(super) authorities: Vec<u8>,
    identity: Option<Identity>,
}

impl Certificates {
    pub(super) fn read(options: &TlsOptions) -> Result<Self, TlsError> {
        let authorities = match &options.ca_file {
            Some(path) => {
                let pem = read(path)?;
                match Certificate::from_pem_bundle(&pem) {
                    Ok(certificates) if !certificates.is_empty() => pem,
                    _ => return Err(TlsError::Invalid { path: path.clone(), expected: "certificate" }),
                }
            }
            None => Vec::new(),
        };
        let identity = match &options.client_certificate {
            Some((certificate, key)) => {
                let mut pem = read(certificate)?;
                pem.push(b'\n');
                pem.extend(read(key)?);
                let invalid =
                    |_| TlsError::Invalid { path: key.clone(), expected: "key for the certificate" };
                Some(Identity::from_pem(&pem).map_err(invalid)?)
            }
            None => None,
        };
        Ok(Self { authorities, identity })
    }

    /// Whether the registry is to know the client by a certificate.
    pub(super) fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// A client for the registry's own origin.
    pub(super) fn client(&self, direct: bool) -> Result<reqwest::Client, TlsError> {
        self.build(|builder| {
            let builder = if direct { builder.no_proxy() } else { builder };
            match &self.identity {
                Some(identity) => builder.identity(identity.clone()),
                None => builder,
            }
        })
    }

    /// A client for other origins.
    pub(super) fn client_elsewhere<R: Resolve + 'static>(
        &self,
        resolver: &Arc<R>,
    ) -> Result<reqwest::Client, TlsError> {
        self.build(|builder| builder.dns_resolver(Arc::clone(resolver)))
    }

    fn build(&self, adapt: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<reqwest::Client, TlsError> {
        install_crypto_provider();
        let authorities = || Certificate::from_pem_bundle(&self.authorities).unwrap_or_default();
        let builder = || {
            adapt(
                reqwest::Client::builder()
                    .user_agent(USER_AGENT)
                    .connect_timeout(CONNECT_TIMEOUT)
                    .redirect(reqwest::redirect::Policy::none())
                    .referer(false),
            )
        };
        builder()
            .tls_certs_merge(authorities())
            .build()
            // A machine without any certificates can still speak plain http, and https by the authorities that it was given.
            .or_else(|_| builder().tls_certs_only(authorities()).build())
            .map_err(|error| TlsError::Client(error.without_url().to_string()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_nothing_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let options = TlsOptions { ca_file: Some(path.clone()), client_certificate: None };
        assert!(matches!(Certificates::read(&options), Err(TlsError::Unreadable { .. })));
        std::fs::write(&path, "nothing").unwrap();
        assert!(matches!(Certificates::read(&options), Err(TlsError::Invalid { .. })));
        let options = TlsOptions { ca_file: None, client_certificate: Some((path.clone(), path.clone())) };
        assert!(matches!(Certificates::read(&options), Err(TlsError::Invalid { .. })));
    }

    #[test]
    fn an_authority_and_an_identity_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["registry.example".to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let options =
            TlsOptions { ca_file: Some(certificate.clone()), client_certificate: Some((certificate, key)) };
        let certificates = Certificates::read(&options).unwrap();
        assert!(certificates.has_identity() && !certificates.authorities.is_empty());
        certificates.client(false).unwrap();
    }
}
