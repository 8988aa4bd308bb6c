//! A token service as real registries have one beside them: it knows users by their passwords and refresh tokens, and signs what
//! it gives, so that a real registry believes it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

/// Who may do everything, by password and by refresh token.
pub(crate) const USER: &str = "ann";
pub(crate) const PASSWORD: &str = "token-password";
pub(crate) const REFRESH_TOKEN: &str = "refresh-token-of-ann";

const ISSUER: &str = "tests";
const SERVICE: &str = "registry-of-tests";

/// A service on a free port. Its thread ends with the process.
pub(crate) struct TokenService {
    realm: String,
    certificate_file: PathBuf,
    requests: Arc<Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
}

struct Signer {
    key: EcdsaKeyPair,
    certificate: String,
}

impl TokenService {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let made = rcgen::generate_simple_self_signed(["tokens".to_owned()]).expect("a certificate");
        let certificate_file = folder.path().join("tokens.pem");
        std::fs::write(&certificate_file, made.cert.pem()).expect("the folder is ours");
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &made.signing_key.serialize_der(),
            &SystemRandom::new(),
        );
        let key = key.expect("the key is of that kind");
        let signer = Arc::new(Signer { key, certificate: STANDARD.encode(made.cert.der()) });
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();

        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let realm = format!("http://{}/token", listener.local_addr().expect("an address"));
        let seen = Arc::clone(&requests);
        let answer = move |request: Request| {
            let (signer, seen) = (Arc::clone(&signer), Arc::clone(&seen));
            async move { answer(&signer, &seen, request).await }
        };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                axum::serve(listener, axum::Router::new().fallback(answer)).await
            })
        });
        Self { realm, certificate_file, requests, _folder: folder }
    }

    /// The section `auth` of a registry that believes it.
    pub(crate) fn registry_section(&self) -> String {
        format!(
            "auth:\n  token:\n    realm: {}\n    service: {SERVICE}\n    issuer: {ISSUER}\n    rootcertbundle: {}\n",
            self.realm,
            self.certificate_file.display()
        )
    }

    /// The scopes of each request until now, with `POST` or `GET` and who asked.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("nobody panicked").clone()
    }
}

async fn answer(signer: &Signer, seen: &Mutex<Vec<String>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 64 * 1024).await.unwrap_or_default();
    let parameters: Vec<(String, String)> = if parts.method == "POST" {
        url::form_urlencoded::parse(&body).into_owned().collect()
    } else {
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect()
    };
    let all = |name: &str| -> Vec<&str> {
        parameters.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    };
    let scopes: Vec<&str> = all("scope").into_iter().flat_map(str::split_whitespace).collect();
    let user = match parts.method.as_str() {
        "POST" if all("refresh_token") == [REFRESH_TOKEN] && all("service") == [SERVICE] => Some(USER),
        "GET" => by_password(&parts.headers),
        _ => None,
    };
    let who = user.unwrap_or("nobody");
    seen.lock().expect("nobody panicked").push(format!("{} {who} {}", parts.method, scopes.join(" ")));
    match user {
        Some(user) => axum::Json(json!({ "access_token": signer.token(user, &scopes), "expires_in": 300 }))
            .into_response(),
        None => StatusCode::UNAUTHORIZED.into_response(),
    }
}

fn by_password(headers: &HeaderMap) -> Option<&'static str> {
    let expected = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
    (headers.get("authorization")? == expected.as_str()).then_some(USER)
}

impl Signer {
    /// A JWT that the registry takes for what it asks: everything that was asked for.
    fn token(&self, user: &str, scopes: &[&str]) -> String {
        let access: Vec<Value> = scopes
            .iter()
            .filter_map(|scope| {
                let (kind, rest) = scope.split_once(':')?;
                let (name, actions) = rest.rsplit_once(':')?;
                Some(json!({ "type": kind, "name": name, "actions": actions.split(',').collect::<Vec<_>>() }))
            })
            .collect();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        let header = json!({ "typ": "JWT", "alg": "ES256", "x5c": [self.certificate] });
        let claims = json!({
            "iss": ISSUER, "sub": user, "aud": SERVICE, "iat": now, "nbf": now - 60, "exp": now + 300, "jti": "1", "access": access
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).expect("the key signs");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
