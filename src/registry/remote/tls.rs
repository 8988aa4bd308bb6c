//! What HTTP clients are made of: the provider of cryptography, trust, and the identity of the client.
//!
//! The system's certificates are trusted; where `SSL_CERT_FILE` or `SSL_CERT_DIR` is set, those instead, as every tool that
//! uses OpenSSL does. A client certificate is a credential: the client for other origins than the registry's has none; and its
//! files are read again when they change, as those of other credentials are.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use reqwest::dns::Resolve;
use reqwest::{Certificate, ClientBuilder, Identity, Proxy};

use super::proxies::Proxies;
use crate::registry::whole_file::{self, Stamp};

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

impl TlsOptions {
    /// The files that hold something.
    fn files(&self) -> impl Iterator<Item = &Path> {
        let identity = self.client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.ca_file.iter().chain(identity).map(PathBuf::as_path)
    }

    /// Whether there is anything to look at again.
    pub(super) fn is_empty(&self) -> bool {
        self.files().next().is_none()
    }
}

/// The most that a file of certificates has.
const MAX_FILE_SIZE: u64 = 4 * 1024 * 1024;

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

/// The certificates as they stood in the files.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    /// The extra authorities as they stood in the file.
    pub(super) authorities: Vec<u8>,
    identity: Option<Identity>,
    /// Of each file; `None` where one was being written.
    stamps: Vec<Option<Stamp>>,
}

impl Certificates {
    /// Reads the files. Blocks.
    pub(super) fn read(options: &TlsOptions) -> Result<Self, TlsError> {
        let mut stamps = Vec::new();
        let mut read = |path: &PathBuf| {
            let too_large = || TlsError::Invalid { path: path.clone(), expected: "certificate or key" };
            let (bytes, stamp) = whole_file::read(path, MAX_FILE_SIZE)
                .map_err(|source| TlsError::Unreadable { path: path.clone(), source })?
                .ok_or_else(too_large)?;
            stamps.push(stamp);
            Ok::<_, TlsError>(bytes)
        };
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
        Ok(Self { authorities, identity, stamps })
    }

    /// Whether the files are known to be as they were. Blocks.
    pub(super) fn are_current(&self, options: &TlsOptions) -> bool {
        let now = |path: &Path| std::fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata));
        options.files().map(now).eq(self.stamps.iter().copied()) && self.stamps.iter().all(Option::is_some)
    }

    /// Whether the registry is to know the client by a certificate.
    pub(super) fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// A client for the registry's own origin.
    pub(super) fn client(&self, proxies: &Proxies, connect: Duration) -> Result<reqwest::Client, TlsError> {
        self.build(connect, |builder| {
            let builder = through(builder, proxies);
            match &self.identity {
                Some(identity) => builder.identity(identity.clone()),
                None => builder,
            }
        })
    }

    /// A client for other origins that are asked directly.
    pub(super) fn client_elsewhere<R: Resolve + 'static>(
        &self,
        resolver: &Arc<R>,
        connect: Duration,
    ) -> Result<reqwest::Client, TlsError> {
        self.build(connect, |builder| builder.no_proxy().dns_resolver(Arc::clone(resolver)))
    }

    /// A client for other origins that a proxy is asked for.
    pub(super) fn client_proxied(
        &self,
        proxies: &Proxies,
        connect: Duration,
    ) -> Result<reqwest::Client, TlsError> {
        self.build(connect, |builder| through(builder, proxies))
    }

    fn build(
        &self,
        connect: Duration,
        adapt: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Result<reqwest::Client, TlsError> {
        install_crypto_provider();
        let authorities = || Certificate::from_pem_bundle(&self.authorities).unwrap_or_default();
        let builder = || {
            adapt(
                reqwest::Client::builder()
                    .user_agent(USER_AGENT)
                    .connect_timeout(connect)
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

/// With these proxies and none that the process's own variables name.
fn through(builder: ClientBuilder, proxies: &Proxies) -> ClientBuilder {
    let proxies = proxies.clone();
    builder.no_proxy().proxy(Proxy::custom(move |url| proxies.of(url).cloned()))
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
        certificates.client(&Proxies::default(), CONNECT_TIMEOUT).unwrap();
    }

    #[test]
    fn files_that_changed_are_told_from_those_that_did_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let made = rcgen::generate_simple_self_signed(["registry.example".to_owned()]).unwrap();
        std::fs::write(&path, made.cert.pem()).unwrap();
        let options = TlsOptions { ca_file: Some(path.clone()), client_certificate: None };
        assert!(!Certificates::read(&options).unwrap().are_current(&options), "it may be written still");
        let hour_ago = std::time::SystemTime::now() - Duration::from_hours(1);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(hour_ago).unwrap();
        let certificates = Certificates::read(&options).unwrap();
        assert!(certificates.are_current(&options));
        std::fs::write(&path, made.cert.pem()).unwrap();
        assert!(!certificates.are_current(&options));
        std::fs::remove_file(&path).unwrap();
        assert!(!certificates.are_current(&options));
        assert!(Certificates::default().are_current(&TlsOptions::default()));
    }
}
