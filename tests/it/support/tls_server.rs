//! A server over TLS that asks for a certificate, takes whatever it is shown or nothing, and answers by a script.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme};

use super::tls::Certificate;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The head, in lower case.
    pub(crate) head: String,
    /// The certificate that the client showed.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

/// A server on a free port. Its threads end with the process.
pub(crate) struct TlsServer {
    /// The port on 127.0.0.1.
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl TlsServer {
    /// Answers each request by what `script` makes of its line: a whole answer, in HTTP/1.1.
    pub(crate) fn start(
        certificate: &Certificate,
        script: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        ocimod::registry::remote::install_crypto_provider();
        let chain = CertificateDer::from_pem_file(&certificate.certificate_file).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(&certificate.key_file).expect("a key");
        let config = ServerConfig::builder()
            .with_client_cert_verifier(Arc::new(Anybody))
            .with_single_cert(vec![chain], key)
            .expect("they go together");
        let (config, script) = (Arc::new(config), Arc::new(script));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, script, seen) = (Arc::clone(&config), Arc::clone(&script), Arc::clone(&seen));
                std::thread::spawn(move || {
                    let mut connection = ServerConnection::new(config).ok()?;
                    let mut stream = stream;
                    let mut tls = rustls::Stream::new(&mut connection, &mut stream);
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") {
                        tls.read_exact(&mut byte).ok()?;
                        head.push(byte[0]);
                    }
                    let certificate = tls.conn.peer_certificates().and_then(<[_]>::first);
                    let certificate = certificate.map(|certificate| certificate.clone().into_owned());
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let line = head.split(" HTTP/").next()?.to_owned();
                    let answer = script(&line);
                    seen.lock().ok()?.push(Request { head: head.to_lowercase(), certificate });
                    tls.write_all(answer.as_bytes()).ok()?;
                    tls.conn.send_close_notify();
                    tls.flush().ok()
                });
            }
        });
        Self { port, requests }
    }

    /// Every request until now.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("nobody panicked").clone()
    }
}

/// An answer that ends its connection.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

/// Takes every certificate for good, and none too.
#[derive(Debug)]
struct Anybody;

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: rustls::pki_types::UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
