//! The origin of a provider: a server that speaks the provider registry protocol over TLS, and whose every file can be exchanged.
//!
//! Addresses of providers have no port, so it is reached through a proxy, under its name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Response, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use ocimod::oci::Digest;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::ocimod::{Ocimod, Serve};
use super::openpgp::SigningKey;
use super::proxy::Proxy;
use super::tls::Certificate;

/// What is answered at a path.
#[derive(Clone)]
pub(crate) enum Given {
    Bytes(Vec<u8>),
    Status(u16),
    Redirect(String),
    /// Without end.
    Endless,
    /// It says that it is so long, and never comes.
    Announced(u64),
    /// The first half, and the rest when there is a permit.
    Halting(Vec<u8>, Arc<Semaphore>),
}

#[derive(Clone, Default)]
struct Files {
    files: Arc<Mutex<HashMap<String, Given>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

/// A running origin with one version of one provider.
pub(crate) struct Origin {
    files: Files,
    pub(crate) zips: Vec<PathBuf>,
    pub(crate) key: SigningKey,
    proxy: Proxy,
    certificate: Certificate,
    host: String,
    provider: String,
    version: String,
    runtime: Option<tokio::runtime::Runtime>,
}

const PROXY_USER: &str = "a:b";

impl Origin {
    /// One at `host` that has these zips of `provider` (`NAMESPACE/TYPE`), whose checksums are signed.
    pub(crate) fn start(
        ocimod: &Ocimod,
        host: &str,
        provider: &str,
        version: &str,
        zips: Vec<PathBuf>,
    ) -> Self {
        ocimod::registry::remote::install_crypto_provider();
        let certificate = Certificate::create_for(&ocimod.folder("origin-tls"), &[host, "elsewhere.example"]);
        let files = Files::default();
        let (address, runtime) = listen(&files, &certificate);
        let origin = Self {
            files,
            zips,
            key: SigningKey::generate(),
            proxy: Proxy::start(&address, &STANDARD.encode(PROXY_USER)),
            certificate,
            host: host.to_owned(),
            provider: provider.to_owned(),
            version: version.to_owned(),
            runtime: Some(runtime),
        };
        origin.publish();
        origin
    }

    fn publish(&self) {
        self.put(DISCOVERY, Given::json(&json!({"providers.v1": "/providers/"})));
        let systems: Vec<Value> = self
            .zips
            .iter()
            .map(|zip| {
                let (os, arch) = self.system(zip);
                json!({"os": os, "arch": arch})
            })
            .collect();
        let versions =
            json!({"versions": [{"version": self.version, "protocols": ["5.0"], "platforms": systems}]});
        self.put(&self.versions(), Given::json(&versions));
        let mut sums = String::new();
        for (number, zip) in self.zips.iter().enumerate() {
            let bytes = std::fs::read(zip).unwrap();
            sums.extend([Digest::of(&bytes).hex(), "  ", name(zip), "\n"]);
            self.put(&self.zip(number), Given::Bytes(bytes));
            self.put(&self.package(number), Given::json(&self.document(number)));
        }
        self.put(SUMS, Given::Bytes(sums.clone().into_bytes()));
        self.put(SIGNATURE, Given::Bytes(self.key.sign(sums.as_bytes())));
    }

    /// "Find a Provider Package" of a zip.
    pub(crate) fn document(&self, zip: usize) -> Value {
        let file = &self.zips[zip];
        let (os, arch) = self.system(file);
        // URLs are relative to where the document is, as for clients.
        let up = "../../../../../../files";
        json!({
            "protocols": ["5.0"], "os": os, "arch": arch, "filename": name(file),
            "shasum": Digest::of(&std::fs::read(file).unwrap()).hex(),
            "download_url": format!("{up}/{}", name(file)),
            "shasums_url": format!("{up}/SHA256SUMS"),
            "shasums_signature_url": format!("{up}/SHA256SUMS.sig"),
            "signing_keys": {"gpg_public_keys": [{"key_id": "ABCDEF", "ascii_armor": self.key.public()}]},
        })
    }

    fn system(&self, zip: &Path) -> (String, String) {
        let name = name(zip);
        let platform =
            name.strip_suffix(".zip").unwrap().split_once(&format!("_{}_", self.version)).unwrap().1;
        let (os, arch) = platform.split_once('_').unwrap();
        (os.to_owned(), arch.to_owned())
    }

    /// Where its versions are.
    pub(crate) fn versions(&self) -> String {
        format!("/providers/{}/versions", self.provider)
    }

    /// Where the document of a zip is.
    pub(crate) fn package(&self, zip: usize) -> String {
        let (os, arch) = self.system(&self.zips[zip]);
        format!("/providers/{}/{}/download/{os}/{arch}", self.provider, self.version)
    }

    /// Where a zip is.
    pub(crate) fn zip(&self, zip: usize) -> String {
        format!("/files/{}", name(&self.zips[zip]))
    }

    pub(crate) fn put(&self, path: &str, given: Given) {
        self.files.files.lock().unwrap().insert(path.to_owned(), given);
    }

    pub(crate) fn take(&self, path: &str) {
        self.files.files.lock().unwrap().remove(path);
    }

    /// How often a path was asked for.
    pub(crate) fn asked(&self, path: &str) -> usize {
        self.files.asked.lock().unwrap().iter().filter(|asked| *asked == path).count()
    }

    /// What was asked for at all.
    pub(crate) fn all_asked(&self) -> Vec<String> {
        self.files.asked.lock().unwrap().clone()
    }

    /// What the proxy was asked for.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.proxy.heads()
    }

    /// Answers nobody any more.
    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// A server that looks the origin's providers up.
    pub(crate) fn serve(&self, ocimod: &Ocimod, registry: &str, more: &[&str]) -> Serve {
        let allow = format!("{}/{}", self.host, self.provider);
        let common = ["--registry", registry, "--mirror-upstream", "--mirror-allow", &allow];
        let words: Vec<&str> = common.iter().chain(more).copied().collect();
        self.serve_with(ocimod, &[], &words)
    }

    /// A server with these variables and options, which could reach the origin.
    pub(crate) fn serve_with(&self, ocimod: &Ocimod, variables: &[(&str, &str)], words: &[&str]) -> Serve {
        let own = self.variables();
        let all: Vec<(&str, &str)> = own
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .chain(variables.iter().copied())
            .collect();
        ocimod.serve_with(&all, words.iter().copied())
    }

    /// What a program is told that can reach the origin.
    pub(crate) fn variables(&self) -> [(&'static str, String); 2] {
        let trusted = self.certificate.certificate_file.to_str().expect("the folder's name is text");
        let proxy = format!("http://{PROXY_USER}@{}", self.proxy.address);
        [("HTTPS_PROXY", proxy), ("SSL_CERT_FILE", trusted.to_owned())]
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // Dropping a runtime waits, which a test on a runtime of its own may not.
        self.stop();
    }
}

pub(crate) const DISCOVERY: &str = "/.well-known/terraform.json";
pub(crate) const SUMS: &str = "/files/SHA256SUMS";
pub(crate) const SIGNATURE: &str = "/files/SHA256SUMS.sig";

fn name(zip: &Path) -> &str {
    zip.file_name().and_then(|name| name.to_str()).expect("a zip has a name")
}

impl Given {
    pub(crate) fn json(document: &Value) -> Self {
        Self::Bytes(document.to_string().into_bytes())
    }

    fn answer(self) -> Response<Body> {
        let answer = Response::builder();
        let built = match self {
            Self::Bytes(bytes) => answer.body(Body::from(bytes)),
            Self::Status(status) => answer.status(status).body(Body::empty()),
            Self::Redirect(location) => answer.status(302).header("location", location).body(Body::empty()),
            Self::Endless => {
                let spaces = Bytes::from(vec![b' '; 64 * 1024]);
                let pieces = stream::repeat(spaces).map(Ok::<_, std::io::Error>);
                answer.body(Body::from_stream(pieces))
            }
            Self::Announced(length) => {
                let nothing = stream::pending::<Result<Bytes, std::io::Error>>();
                answer.header("content-length", length).body(Body::from_stream(nothing))
            }
            Self::Halting(bytes, gate) => {
                let length = bytes.len();
                let rest = Bytes::from(bytes.clone()).slice(length / 2..);
                let first = Bytes::from(bytes).slice(..length / 2);
                let rest = stream::once(async move {
                    let _permit = gate.acquire().await;
                    Ok::<_, std::io::Error>(rest)
                });
                let pieces = stream::once(async { Ok(first) }).chain(rest);
                answer.header("content-length", length).body(Body::from_stream(pieces))
            }
        };
        built.expect("an answer")
    }
}

fn listen(files: &Files, certificate: &Certificate) -> (String, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket of ours");
    let address = listener.local_addr().expect("an address").to_string();
    let files = files.clone();
    let read = move |uri: Uri| {
        files.asked.lock().unwrap().push(uri.path().to_owned());
        let given = files.files.lock().unwrap().get(uri.path()).cloned();
        // Clients take documents of this type alone.
        let is_document = uri.path() == DISCOVERY || uri.path().starts_with("/providers/");
        let kind = if is_document { "application/json" } else { "application/octet-stream" };
        async move { ([("content-type", kind)], given.unwrap_or(Given::Status(404)).answer()) }
    };
    let router = axum::Router::new().fallback(read);
    let (certificate, key) = (certificate.certificate_file.clone(), certificate.key_file.clone());
    runtime.spawn(async move {
        let config = axum_server::tls_rustls::RustlsConfig::from_pem_file(certificate, key).await?;
        axum_server::from_tcp_rustls(listener, config)?.serve(router.into_make_service()).await
    });
    (address, runtime)
}
