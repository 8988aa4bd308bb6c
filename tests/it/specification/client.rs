//! A client of the distribution API that hides nothing: it follows no redirect, corrects no request, and logs in as it is told to.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use ocimod::oci::{Algorithm, Digest, Hasher};
use serde_json::{Value, json};

use crate::support::answer::Answer;

/// A registry that is asked.
#[derive(Clone)]
pub(crate) struct Server {
    /// `127.0.0.1:PORT`.
    address: String,
    /// What to show where a token is asked for.
    token: Option<String>,
    authorization: Arc<Mutex<Option<String>>>,
    client: reqwest::Client,
    /// Whether it tells that nothing comes after a full page.
    pub(crate) knows_last_page: bool,
    /// Whether it hands on what it is asked. Then the refusals of the registry behind it are told without their details, and where it
    /// cannot tell what is wrong with a push, it is the registry behind that is said to have failed.
    pub(crate) is_relay: bool,
}

/// What a request brings along.
#[derive(Clone)]
pub(crate) enum Body {
    /// Its length is told.
    Whole(Bytes),
    /// It comes in pieces, and nobody knows how many.
    Streamed(Vec<Bytes>),
}

impl<T: AsRef<[u8]> + ?Sized> From<&T> for Body {
    fn from(bytes: &T) -> Self {
        Self::Whole(Bytes::copy_from_slice(bytes.as_ref()))
    }
}

impl Server {
    /// One that everybody may do everything in.
    pub(crate) fn open(address: &str) -> Self {
        ocimod::registry::remote::install_crypto_provider();
        Self {
            address: address.to_owned(),
            token: None,
            authorization: Arc::default(),
            client: reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .build()
                .expect("a client"),
            knows_last_page: true,
            is_relay: false,
        }
    }

    /// One that asks for a token.
    pub(crate) fn guarded(address: &str, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::open(address) }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let body = body.into();
        let answer = self.send_once(method, target, headers, body.clone()).await;
        let (401, Some(token)) = (answer.status.as_u16(), &self.token) else { return answer };
        let authorization = self.log_in(answer.header("www-authenticate"), token).await;
        *self.authorization.lock().unwrap() = Some(authorization);
        self.send_once(method, target, headers, body).await
    }

    async fn send_once(&self, method: &str, target: &str, headers: &[(&str, &str)], body: Body) -> Answer {
        let url = url::Url::parse(&format!("http://{}/", self.address)).unwrap().join(target).unwrap();
        let mut request = self.client.request(method.parse().unwrap(), url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(authorization) = &*self.authorization.lock().unwrap() {
            request = request.header("authorization", authorization);
        }
        let request = match body {
            Body::Whole(bytes) => request.body(bytes),
            Body::Streamed(pieces) => request
                .body(reqwest::Body::wrap_stream(stream::iter(pieces.into_iter().map(std::io::Result::Ok)))),
        };
        let answer = request.send().await.unwrap_or_else(|error| panic!("{method} {target}: {error}"));
        let (status, headers) = (answer.status(), answer.headers().clone());
        Answer { status, headers, body: answer.bytes().await.expect("a whole body") }
    }

    /// What a challenge wants: the token as password, or what the place that it names gives for that.
    async fn log_in(&self, challenge: &str, token: &str) -> String {
        let basic = format!("Basic {}", STANDARD.encode(format!("anybody:{token}")));
        let Some(parameters) = challenge.strip_prefix("Bearer ") else {
            assert!(challenge.starts_with("Basic realm="), "{challenge}");
            return basic;
        };
        let parameter = |name: &str| {
            let rest = parameters.split_once(&format!("{name}=\""))?.1;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        let query: Vec<_> =
            ["service", "scope"].into_iter().filter_map(|name| Some((name, parameter(name)?))).collect();
        let given = self.client.get(parameter("realm").expect("a realm")).query(&query);
        let given = given.header("authorization", basic).send().await.expect("an answer");
        let given: Value = serde_json::from_slice(&given.bytes().await.unwrap()).expect("JSON");
        format!("Bearer {}", given["access_token"].as_str().expect("a token"))
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[], "").await
    }

    pub(crate) async fn head(&self, target: &str) -> Answer {
        let answer = self.send("HEAD", target, &[], "").await;
        assert!(answer.body.is_empty(), "HEAD {target} has a body");
        answer
    }

    pub(crate) async fn delete(&self, target: &str) -> Answer {
        self.send("DELETE", target, &[], "").await
    }

    /// Opens an upload, and answers where it is.
    pub(crate) async fn open_upload(&self, repository: &str) -> String {
        let opened =
            self.send("POST", &format!("/v2/{repository}/blobs/uploads/"), &[], "").await.expect(202);
        opened.header("location").to_owned()
    }

    /// Pushes a blob in one request, and answers its descriptor.
    pub(crate) async fn push_blob(&self, repository: &str, algorithm: Algorithm, bytes: &[u8]) -> Value {
        let digest = digest(algorithm, bytes);
        let target = format!("/v2/{repository}/blobs/uploads/?digest={digest}");
        self.send("POST", &target, &[], bytes).await.expect(201);
        json!({ "mediaType": "application/octet-stream", "digest": digest, "size": bytes.len() })
    }

    /// Pushes a manifest under a tag or a digest.
    pub(crate) async fn put_manifest(&self, repository: &str, reference: &str, manifest: &Value) -> Answer {
        let target = format!("/v2/{repository}/manifests/{reference}");
        let media_type = manifest["mediaType"].as_str().expect("the manifest says what it is");
        self.send("PUT", &target, &[("content-type", media_type)], &manifest.to_string()).await
    }

    /// The tags of a repository, where all are on one page.
    pub(crate) async fn tags(&self, repository: &str) -> Value {
        let list = self.get(&format!("/v2/{repository}/tags/list")).await.expect(200).json();
        assert_eq!(list["name"], repository);
        list["tags"].clone()
    }
}

/// The digest of some bytes.
pub(crate) fn digest(algorithm: Algorithm, bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(bytes);
    hasher.finish()
}

/// Bytes that no other part of a test has.
pub(crate) fn bytes(name: &str, length: usize) -> Vec<u8> {
    let seed = Digest::of(name.as_bytes());
    let turns = (0..=250_u8).flat_map(|turn| std::iter::repeat_n(turn, 64)).cycle();
    seed.hex().bytes().cycle().zip(turns).take(length).map(|(digit, turn)| digit.wrapping_add(turn)).collect()
}
