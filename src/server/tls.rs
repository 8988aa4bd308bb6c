//! https: the server's certificate, read again while it runs, and how connections are accepted.
//!
//! TLS 1.2 and 1.3, with the suites that `rustls` offers; HTTP/2 is offered and HTTP/1.1 goes as well. A new certificate is shown to
//! whoever connects from then on; connections that are open stay as they are.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::connection;
use super::reload::Live;

/// How long a handshake may take: a few round trips on the worst of lines.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a certificate and its key cannot be used. No message quotes the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// There is no certificate where one should be.
    #[error("there is no certificate in PEM form in it")]
    NoCertificate,
    /// There is no key where one should be.
    #[error("there is no private key in PEM form in the file of the key")]
    NoKey,
    /// Several keys, of which one would have to be chosen.
    #[error("there is more than one private key in the file of the key")]
    SeveralKeys,
    /// The key belongs to another certificate.
    #[error("the key is not that of the certificate")]
    Mismatch,
    /// The certificate or the key is of a sort that cannot be used.
    #[error("the certificate or its key cannot be used: {0}")]
    Unusable(String),
    /// There is no protocol that both the provider and the program know.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// A certificate with its chain and key.
pub struct ServerCertificate(Arc<CertifiedKey>);

impl ServerCertificate {
    /// Takes two files in PEM form: the certificate with its chain, and the key.
    pub fn parse(certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::NoCertificate)?;
        let keys: Result<Vec<_>, _> = PrivateKeyDer::pem_slice_iter(key).collect();
        let mut keys = keys.map_err(|_| TlsError::NoKey)?;
        let key = keys.pop().ok_or(TlsError::NoKey)?;
        if !keys.is_empty() {
            return Err(TlsError::SeveralKeys);
        }
        match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
            Ok(certified) => Ok(Self(Arc::new(certified))),
            Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError::Mismatch),
            Err(error) => Err(TlsError::Unusable(error.to_string())),
        }
    }
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ServerCertificate({} in its chain)", self.0.cert.len())
    }
}

/// The certificate of the moment.
#[derive(Debug)]
struct Current(Live<ServerCertificate>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.get().0))
    }
}

/// Speaks TLS on every connection, and below it bounds writes in time as without.
pub(super) fn acceptor(
    certificate: Live<ServerCertificate>,
    connection: connection::Acceptor,
) -> Result<RustlsAcceptor<connection::Acceptor>, TlsError> {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Setup(error.to_string()))?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(Current(certificate)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config)));
    Ok(acceptor.handshake_timeout(HANDSHAKE_TIMEOUT).acceptor(connection))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::limits::Connections;
    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn error(certificate: &str, key: &str) -> Option<TlsError> {
        ServerCertificate::parse(certificate.as_bytes(), key.as_bytes()).err()
    }

    #[test]
    fn a_certificate_is_taken_with_its_own_key_alone() {
        let ((certificate, key), (other, other_key)) = (pair(), pair());
        assert_eq!(error(&certificate, &key), None);
        assert_eq!(error(&format!("{certificate}{other}"), &key), None, "a chain");
        assert_eq!(error(&certificate, &format!("{certificate}{key}")), None, "both in one file");
        assert_eq!(error(&certificate, &other_key), Some(TlsError::Mismatch));
        assert_eq!(error(&certificate, &format!("{key}{other_key}")), Some(TlsError::SeveralKeys));
        assert_eq!(error(&key, &key), Some(TlsError::NoCertificate));
        assert_eq!(error("", &key), Some(TlsError::NoCertificate));
        assert_eq!(error(&certificate, ""), Some(TlsError::NoKey));
        assert_eq!(error(&certificate, &key[..key.len() / 2]), Some(TlsError::NoKey));
    }

    #[test]
    fn nothing_of_the_key_is_shown() {
        let (certificate, key) = pair();
        let parsed = ServerCertificate::parse(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(format!("{parsed:?}"), "ServerCertificate(1 in its chain)");
        let connections = Connections::new(1, &Arc::default());
        acceptor(Live::fixed(parsed), connection::Acceptor(connections)).unwrap();
    }
}
