//! Who may do what on a server with an access file, over HTTP against the program itself, and by the clients that people use.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ocimod::oci::{Digest, IMAGE_MANIFEST};
use ocimod::operations::access::TokenHash;
use serde_json::{Value, json};

use crate::support::clients;
use crate::support::modules::{Root, example};
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{isolated, kill, run};
use crate::support::tls::Certificate;

/// What is in every repository of the tests: the configuration of an image of nothing.
const CONFIG: &[u8] = b"{}";

/// Far longer than a server takes to see a changed file, also where the machine is busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// The tokens of the tests, by what they are for: name, what it allows, where, and when it ends.
pub(crate) const TOKENS: &[(&str, &str, Option<&str>, Option<&str>)] = &[
    ("admin", "'read', 'push', 'delete'", None, None),
    ("read-all", "'read'", None, None),
    ("read-acme", "'read'", Some("'acme/*'"), None),
    ("read-other", "'read'", Some("'other/*'"), None),
    ("push-acme", "'read', 'push'", Some("'acme/*'"), None),
    ("only-push-acme", "'push'", Some("'acme/*'"), None),
    ("delete-acme", "'read', 'delete'", Some("'acme/*'"), None),
    ("expired", "'read', 'push', 'delete'", None, Some("2001-01-01")),
    ("until-9000", "'read'", None, Some("9000-01-01")),
];

/// The token of that name.
pub(crate) fn token(name: &str) -> String {
    format!("secret-token-of-{name}")
}

/// An access file with all of them.
fn access_file(ocimod: &Ocimod) -> PathBuf {
    let path = ocimod.home.path().join("access.toml");
    let mut text = String::new();
    for (name, allow, repositories, expires) in TOKENS {
        let hash = TokenHash::of(&token(name)).expect("a token").to_hex();
        write!(text, "[[token]]\nname = '{name}'\nsha256 = '{hash}'\nallow = [{allow}]\n").unwrap();
        if let Some(repositories) = repositories {
            writeln!(text, "repositories = [{repositories}]").unwrap();
        }
        if let Some(expires) = expires {
            writeln!(text, "expires = {expires}").unwrap();
        }
    }
    std::fs::write(&path, text).expect("the folder is ours");
    path
}

/// A server with these tokens over an empty store.
pub(crate) struct Site {
    pub(crate) ocimod: Ocimod,
    pub(crate) serve: Serve,
    access: PathBuf,
    client: reqwest::Client,
}

/// What came back, as far as two answers can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Site {
    fn start(more: &[&str]) -> Self {
        let ocimod = Ocimod::new();
        let store = format!("dir:{}", ocimod.folder("store").display());
        Self::over(ocimod, &store, more)
    }

    /// The same over a registry that has something in it already.
    pub(crate) fn over(ocimod: Ocimod, registry: &str, more: &[&str]) -> Self {
        ocimod::registry::remote::install_crypto_provider();
        let access = access_file(&ocimod);
        let file = access.display().to_string();
        let serve = ocimod.serve([&["--registry", registry, "--access", &file], more].concat());
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        Self { ocimod, serve, access, client: client.build().expect("a client") }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Answer {
        let method = method.parse().expect("a method");
        let mut request = self.client.request(method, format!("http://{}{path}", self.serve.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.body(body.into()).send().await.expect("the server answers");
        let status = answer.status().as_u16();
        // These are of the moment and not of what was asked for.
        let kept =
            answer.headers().iter().filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()));
        let headers =
            kept.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        Answer { status, headers, body: String::from_utf8_lossy(&answer.bytes().await.unwrap()).into_owned() }
    }

    /// Sends a request with a token of [`TOKENS`], or as nobody.
    async fn as_holder(&self, name: &str, method: &str, path: &str, body: &[u8]) -> Answer {
        let authorization = match name {
            "nobody" => None,
            "wrong" => Some("Bearer no-such-token".to_owned()),
            name => Some(format!("Bearer {}", token(name))),
        };
        let authorization = authorization.as_deref().map(|value| ("authorization", value));
        self.send(method, path, authorization.as_slice(), body).await
    }

    pub(crate) async fn get(&self, name: &str, path: &str) -> Answer {
        self.as_holder(name, "GET", path, b"").await
    }

    /// Pushes an image of nothing, and answers its digest.
    async fn push_image(&self, repository: &str, tag: &str) -> Digest {
        let config = Digest::of(CONFIG);
        let blob = format!("/v2/{repository}/blobs/uploads/?digest={config}");
        assert_eq!(self.as_holder("admin", "POST", &blob, CONFIG).await.status, 201);
        let manifest = image(&config);
        let headers =
            [("authorization", &*format!("Bearer {}", token("admin"))), ("content-type", IMAGE_MANIFEST)];
        let put = self.send("PUT", &format!("/v2/{repository}/manifests/{tag}"), &headers, &*manifest).await;
        assert_eq!(put.status, 201, "{put:?}");
        Digest::of(manifest.as_bytes())
    }

    /// Asks until the answer has that status.
    async fn wait_for(&self, status: u16, authorization: &str, path: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.send("GET", path, &[("authorization", authorization)], "").await;
            if answer.status == status {
                return;
            }
            assert!(Instant::now() < end, "{path} stays {answer:?} instead of {status}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn image(config: &Digest) -> String {
    let empty = "application/vnd.oci.empty.v1+json";
    json!({
        "schemaVersion": 2,
        "mediaType": IMAGE_MANIFEST,
        "artifactType": "application/vnd.acme.nothing",
        "config": { "mediaType": empty, "digest": config, "size": 2 },
        "layers": [],
    })
    .to_string()
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// The endpoints of the distribution API that read a repository, as method and path behind its name.
fn reads(manifest: &Digest) -> Vec<(&'static str, String)> {
    let config = Digest::of(CONFIG);
    let paths = [
        "tags/list".to_owned(),
        "tags/list?n=1&last=a".to_owned(),
        "manifests/v1.0.0".to_owned(),
        format!("manifests/{manifest}"),
        "manifests/v9.9.9".to_owned(),
        format!("blobs/{config}"),
        format!("blobs/{}", Digest::of(b"no such blob")),
        format!("referrers/{manifest}"),
        format!("referrers/{manifest}?artifactType=a%2Fb"),
    ];
    paths.into_iter().flat_map(|path| [("GET", path.clone()), ("HEAD", path)]).collect()
}

/// Those that push to it, with what comes of it where it is allowed.
fn pushes() -> Vec<(&'static str, String, u16)> {
    let config = Digest::of(CONFIG);
    vec![
        ("POST", "blobs/uploads/".to_owned(), 202),
        ("POST", format!("blobs/uploads/?digest={config}"), 400),
        ("POST", format!("blobs/uploads/?mount={config}&from=other/label"), 202),
        ("POST", format!("blobs/uploads/?mount={config}"), 202),
        ("GET", "blobs/uploads/nothing".to_owned(), 404),
        ("PATCH", "blobs/uploads/nothing".to_owned(), 404),
        ("PUT", format!("blobs/uploads/nothing?digest={config}"), 404),
        ("DELETE", "blobs/uploads/nothing".to_owned(), 404),
        ("PUT", "manifests/v2.0.0".to_owned(), 400),
    ]
}

/// Those that delete from it, with what comes of it where it is allowed: there is no such thing.
fn deletes() -> Vec<(&'static str, String, u16)> {
    let nothing = Digest::of(b"no such blob");
    vec![
        ("DELETE", "manifests/v9.9.9".to_owned(), 404),
        ("DELETE", format!("manifests/{nothing}"), 404),
        ("DELETE", format!("blobs/{nothing}"), 404),
    ]
}

pub(crate) fn may(name: &str, right: &str, repository: &str) -> bool {
    let is_in = |pattern: &str| repository.starts_with(pattern.trim_matches(['\'', '*']));
    TOKENS.iter().any(|(token, allow, repositories, _)| {
        *token == name && allow.contains(&format!("'{right}'")) && repositories.is_none_or(is_in)
    })
}

#[tokio::test]
async fn every_endpoint_asks_for_a_token_that_allows_it() {
    let site = Site::start(&[]);
    let manifest = site.push_image("acme/label", "v1.0.0").await;
    site.push_image("other/label", "v1.0.0").await;
    let repositories = ["acme/label", "acme/nothing", "other/label", "other/nothing", "acmeevil/label"];
    for repository in repositories {
        for (method, path) in reads(&manifest) {
            let path = format!("/v2/{repository}/{path}");
            let by_admin = site.as_holder("admin", method, &path, b"").await;
            for name in ["nobody", "wrong", "expired"] {
                assert_eq!(
                    site.as_holder(name, method, &path, b"").await.status,
                    401,
                    "{name} {method} {path}"
                );
            }
            for (name, ..) in TOKENS.iter().filter(|(name, ..)| *name != "expired") {
                let answer = site.as_holder(name, method, &path, b"").await;
                if may(name, "read", repository) {
                    assert_eq!(answer, by_admin, "{name} {method} {path}");
                } else {
                    let expected = if path.contains("/referrers/") { 200 } else { 404 };
                    assert_eq!(answer.status, expected, "{name} {method} {path}");
                    assert!(!answer.body.contains("\"digest\""), "{name} {method} {path}: {}", answer.body);
                }
            }
        }
    }
    for repository in repositories {
        let writes = pushes().into_iter().map(|write| ("push", write));
        let writes = writes.chain(deletes().into_iter().map(|write| ("delete", write)));
        for (right, (method, path, status)) in writes {
            let path = format!("/v2/{repository}/{path}");
            // Blobs can be taken over by whoever may read everything, and by nobody else of these.
            let is_mounted = path.contains("mount=");
            for name in ["nobody", "wrong", "expired"] {
                assert_eq!(
                    site.as_holder(name, method, &path, b"x").await.status,
                    401,
                    "{name} {method} {path}"
                );
            }
            for (name, ..) in TOKENS.iter().filter(|(name, ..)| !["expired", "admin"].contains(name)) {
                let answer = site.as_holder(name, method, &path, b"x").await;
                let expected = if may(name, right, repository) { status } else { 403 };
                assert_eq!(answer.status, expected, "{name} {method} {path}: {answer:?}");
                assert!(!is_mounted || answer.status != 201, "{name} {path}");
            }
        }
    }
    for path in ["/v2/", "/v2", "/v2/_catalog"] {
        for name in ["nobody", "wrong", "expired"] {
            assert_eq!(site.get(name, path).await.status, 401, "{name} {path}");
        }
        for name in ["read-all", "only-push-acme", "until-9000"] {
            assert_eq!(site.get(name, path).await.status, 200, "{name} {path}");
        }
    }
}

#[tokio::test]
async fn whoever_shows_no_token_is_turned_away_everywhere_but_where_nothing_is_named() {
    let site = Site::start(&[]);
    for path in ["/healthz", "/readyz", "/.well-known/terraform.json"] {
        for name in ["nobody", "wrong", "read-acme"] {
            assert_eq!(site.get(name, path).await.status, 200, "{name} {path}");
        }
    }
    for path in [
        "/v1/modules/acme/label/null/versions",
        "/v1/modules/acme/label/null/1.0.0/download",
        "/v1/hosts/example.com/modules/a/b/c/versions",
        "/v1/mirror/example.com/a/b/index.json",
        "/metrics",
        "/nothing",
    ] {
        for name in ["nobody", "wrong", "expired"] {
            let answer = site.get(name, path).await;
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, "Bearer"), "{name} {path}");
            assert_eq!(answer.header("cache-control"), "no-store");
        }
    }
    assert!(site.get("nobody", "/v1/modules/a/b/c/versions").await.json()["errors"][0].is_string());
    // A link is let through to where it is looked at; a wrong token with it is not.
    let archive = "/v1/modules/acme/label/null/1.0.0/archive.zip";
    assert_ne!(site.get("nobody", archive).await.status, 401);
    assert_eq!(site.get("wrong", archive).await.status, 401);
    for (name, status) in
        [("read-all", 200), ("until-9000", 200), ("read-acme", 404), ("only-push-acme", 404)]
    {
        assert_eq!(site.get(name, "/metrics").await.status, status, "{name}: it tells of all repositories");
    }
    // An error in the request is none for whoever may not ask.
    for path in ["/v2/A/tags/list", "/v2/a/manifests/sha256:x", "/v2/_catalog?n=x", "/v2/nothing"] {
        assert_eq!(site.get("nobody", path).await.status, 401, "{path}");
    }
    let denied = site.as_holder("read-all", "POST", "/v2/acme/label/blobs/uploads/", b"").await;
    assert_eq!(denied.json()["errors"][0]["code"], "DENIED");
    let unknown = site.get("wrong", "/v2/").await;
    assert_eq!(unknown.json()["errors"][0]["code"], "UNAUTHORIZED");
    assert_eq!(unknown.header("docker-distribution-api-version"), "registry/2.0");
    // The rules decide, and neither the name that the server is called by nor the way to it.
    let proxied = [
        ("authorization", &*format!("Bearer {}", token("admin"))),
        ("host", "a.example"),
        ("x-forwarded-for", "10.0.0.1"),
    ];
    assert_eq!(site.send("GET", "/v2/", &proxied, "").await.status, 200);
    let foreign = [proxied[0], ("origin", "https://evil.example")];
    assert_eq!(site.send("POST", "/v2/acme/label/blobs/uploads/", &foreign, "").await.status, 403);
}

#[tokio::test]
async fn what_may_not_be_known_is_answered_like_what_is_not_there() {
    let site = Site::start(&[]);
    let manifest = site.push_image("other/label", "v1.0.0").await;
    site.push_image("acme/label", "v1.0.0").await;
    let conditions: [&[(&str, &str)]; 4] = [
        &[],
        &[("if-none-match", "*")],
        &[("range", "bytes=0-0")],
        &[("accept", "application/vnd.oci.image.index.v1+json")],
    ];
    for name in ["read-acme", "only-push-acme"] {
        let authorization = format!("Bearer {}", token(name));
        for (method, path) in reads(&manifest) {
            for condition in conditions {
                let headers = [&[("authorization", authorization.as_str())], condition].concat();
                let mut answers = Vec::new();
                // There and not for this caller; not there and not for this caller; not there.
                for repository in ["other/label", "other/nothing", "acme/nothing"] {
                    let answer = site.send(method, &format!("/v2/{repository}/{path}"), &headers, "").await;
                    // They may differ in what the caller wrote.
                    let same = |text: &str| text.replace(repository, "REPOSITORY");
                    // Their names are of different lengths, which is the caller's doing too.
                    let longer = answer.body.matches(repository).count() * repository.len();
                    let headers = answer.headers.iter().map(|(name, value)| {
                        match (name.as_str(), value.parse::<usize>()) {
                            ("content-length", Ok(length)) if method == "GET" => {
                                (name.clone(), (length - longer).to_string())
                            }
                            ("content-length", Ok(_)) => (name.clone(), String::new()),
                            _ => (name.clone(), same(value)),
                        }
                    });
                    answers.push(Answer {
                        headers: headers.collect(),
                        body: same(&answer.body),
                        ..answer.clone()
                    });
                }
                assert_eq!(answers[0], answers[1], "{name} {method} {path}");
                assert_eq!(answers[0], answers[2], "{name} {method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn blobs_are_taken_over_only_from_where_they_may_be_read() {
    let site = Site::start(&[]);
    site.push_image("other/label", "v1.0.0").await;
    site.push_image("acme/label", "v1.0.0").await;
    let config = Digest::of(CONFIG);
    let mount = async |name: &str, to: &str, from: &str| {
        let path = format!("/v2/{to}/blobs/uploads/?mount={config}{from}");
        let answer = site.as_holder(name, "POST", &path, b"").await;
        let head = site.as_holder("admin", "HEAD", &format!("/v2/{to}/blobs/{config}"), b"").await;
        (answer.status, head.status)
    };
    assert_eq!(mount("push-acme", "acme/one", "&from=other/label").await, (202, 404));
    assert_eq!(mount("push-acme", "acme/one", "&from=other/nothing").await, (202, 404));
    assert_eq!(mount("push-acme", "acme/one", "").await, (202, 404), "from wherever it is");
    assert_eq!(mount("only-push-acme", "acme/one", "&from=acme/label").await, (202, 404));
    assert_eq!(mount("push-acme", "acme/one", "&from=acme/label").await, (201, 200));
    assert_eq!(mount("admin", "acme/two", "").await, (201, 200));
    assert_eq!(mount("push-acme", "other/one", "&from=acme/label").await, (403, 404));

    // A manifest may name what is in its own repository, and nothing else.
    let headers =
        [("authorization", &*format!("Bearer {}", token("push-acme"))), ("content-type", IMAGE_MANIFEST)];
    let put = site.send("PUT", "/v2/acme/three/manifests/v1.0.0", &headers, image(&config)).await;
    assert_eq!((put.status, &put.json()["errors"][0]["code"]), (400, &json!("MANIFEST_BLOB_UNKNOWN")));
    // Nobody goes on with an upload of another repository.
    let opened = site.as_holder("admin", "POST", "/v2/other/label/blobs/uploads/", b"").await;
    let location = opened.header("location").replace("/v2/other/label/", "/v2/acme/label/");
    assert_eq!(site.as_holder("push-acme", "PATCH", &location, b"x").await.status, 404);
}

#[tokio::test]
async fn who_may_only_push_is_not_told_what_is_there() {
    let site = Site::start(&[]);
    let manifest = site.push_image("acme/label", "v1.0.0").await;
    let headers = |name: &str| {
        [("authorization", format!("Bearer {}", token(name))), ("content-type", IMAGE_MANIFEST.to_owned())]
    };
    let other = image(&Digest::of(CONFIG)).replace("vnd.acme.nothing", "vnd.acme.other");
    let put = async |name: &str| {
        let headers = headers(name);
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        site.send("PUT", "/v2/acme/label/manifests/v1.0.0", &headers, &*other).await
    };
    let (told, refused) = (put("push-acme").await, put("only-push-acme").await);
    assert_eq!((told.status, refused.status), (403, 403));
    assert!(told.body.contains(manifest.as_str()) && !refused.body.contains("sha256"), "{refused:?}");
}

#[tokio::test]
async fn the_catalog_names_what_the_caller_may_read_page_by_page() {
    let site = Site::start(&[]);
    for repository in ["a/one", "acme/a", "acme/b", "between/x", "acme/c", "zeta/z"] {
        site.push_image(repository, "v1.0.0").await;
    }
    let all = site.get("read-all", "/v2/_catalog").await.json();
    assert_eq!(all["repositories"].as_array().map(Vec::len), Some(6));
    for (count, expected) in [(1, 3), (2, 2), (3, 1), (4, 1)] {
        let (mut names, mut pages) = (Vec::new(), 0);
        let mut next = format!("/v2/_catalog?n={count}");
        while !next.is_empty() {
            let page = site.get("read-acme", &next).await;
            let listed = page.json()["repositories"].as_array().expect("a list").clone();
            assert!(!listed.is_empty() && listed.len() <= count, "{page:?}");
            names.extend(listed);
            pages += 1;
            let link = page.header("link").to_owned();
            assert!(
                ["a%2F", "between", "zeta", "a/one"].iter().all(|hidden| !link.contains(hidden)),
                "{link}"
            );
            next = link.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        }
        assert_eq!((json!(names), pages), (json!(["acme/a", "acme/b", "acme/c"]), expected), "n={count}");
    }
    let behind_a_hidden_one = site.get("read-acme", "/v2/_catalog?last=between/x").await;
    assert_eq!(behind_a_hidden_one.json()["repositories"], json!([]));
    assert_eq!(
        site.get("read-acme", "/v2/_catalog").await.json()["repositories"],
        json!(["acme/a", "acme/b", "acme/c"])
    );
    let nothing = site.get("only-push-acme", "/v2/_catalog?n=1").await;
    assert_eq!((nothing.json()["repositories"].clone(), nothing.header("link")), (json!([]), ""));
}

#[tokio::test]
async fn tokens_are_taken_as_password_or_bearer_and_given_out_for_a_while() {
    let site = Site::start(&[]);
    site.push_image("acme/label", "v1.0.0").await;
    let tags = "/v2/acme/label/tags/list";
    let by = async |authorization: &str, path: &str| {
        site.send("GET", path, &[("authorization", authorization)], "").await
    };
    assert_eq!(site.get("nobody", "/v2/").await.header("www-authenticate"), "Basic realm=\"ocimod\"");
    for user in ["anybody", "", "x:y"] {
        let expected = if user == "x:y" { 401 } else { 200 };
        assert_eq!(by(&basic(user, &token("read-acme")), tags).await.status, expected, "{user}");
    }
    // Nobody at all, as some clients say it.
    assert_eq!(by(&basic("", ""), tags).await.status, 401);

    let given =
        by(&basic("x", &token("read-acme")), "/v2/token?service=ocimod&scope=repository:a:pull").await;
    assert_eq!((given.status, given.header("cache-control")), (200, "no-store"));
    let given = given.json();
    assert_eq!((&given["token"], &given["expires_in"]), (&given["access_token"], &json!(300)));
    let session = format!("Bearer {}", given["token"].as_str().expect("a token"));
    assert_eq!(by(&session, tags).await.status, 200);
    assert_eq!(by(&session, "/v2/").await.status, 200);
    assert_eq!(by(&session, "/v2/other/label/tags/list").await.status, 404);
    assert_eq!(
        by(&session, "/v1/modules/a/b/c/versions").await.status,
        401,
        "it is for the distribution API"
    );
    assert_eq!(by(&session, "/v2/token").await.status, 401, "it cannot be made to last");
    let altered = session.replace("v2.1", "v2.2");
    assert!(altered != session && by(&altered, tags).await.status == 401);

    let form = async |form: String| {
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        site.send("POST", "/v2/token", &headers, form).await
    };
    let read = token("read-acme");
    for good in [
        format!(
            "grant_type=password&username=x&password={read}&service=ocimod&client_id=docker&access_type=offline"
        ),
        format!("grant_type=refresh_token&refresh_token={read}&service=ocimod&client_id=docker"),
    ] {
        let answer = form(good).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let session = format!("Bearer {}", answer.json()["access_token"].as_str().expect("a token"));
        assert_eq!(by(&session, tags).await.status, 200);
    }
    for (wrong, status) in [
        ("grant_type=password&username=x&password=wrong", 401),
        ("grant_type=refresh_token&refresh_token=wrong", 401),
        ("grant_type=password&username=x", 401),
        ("grant_type=authorization_code", 400),
        ("", 400),
    ] {
        assert_eq!(form(wrong.to_owned()).await.status, status, "{wrong}");
    }
    // Right but for its length: more than the server reads, and not so much that it hangs up before all of it is sent.
    let long =
        format!("grant_type=password&username={}&password={}", "a".repeat(16 * 1024), token("read-acme"));
    assert_eq!(form(long).await.status, 400);
    assert_eq!(by(&basic("x", "wrong"), "/v2/token").await.status, 401);
    assert_eq!(by(&basic("x", &token("expired")), "/v2/token").await.status, 401);
    assert_eq!(site.get("nobody", "/v2/token").await.status, 401);

    // Without the token, what was given out for it is worth nothing.
    let text = std::fs::read_to_string(&site.access).unwrap();
    std::fs::write(&site.access, text.replace("'read-acme'", "'renamed'")).unwrap();
    site.wait_for(401, &session, tags).await;
}

#[tokio::test]
async fn where_strangers_may_read_they_read_and_do_nothing_else() {
    let site = Site::start(&["--anonymous", "read"]);
    site.push_image("acme/label", "v1.0.0").await;
    let tags = "/v2/acme/label/tags/list";
    let by = async |authorization: &str, method: &str, path: &str| {
        site.send(method, path, &[("authorization", authorization)], "").await
    };
    let endpoint = format!("http://{}/v2/token", site.serve.address);
    let ping = site.get("nobody", "/v2/").await;
    assert_eq!(ping.status, 401, "whoever has a token shall show it");
    assert_eq!(ping.header("www-authenticate"), format!("Bearer realm=\"{endpoint}\",service=\"ocimod\""));
    assert_eq!(site.get("nobody", tags).await.status, 200);
    assert_eq!(by(&basic("", ""), "GET", tags).await.status, 200);
    for name in ["wrong", "expired"] {
        assert_eq!(site.get(name, tags).await.status, 401, "{name} is not taken for nobody");
    }
    let push = site.as_holder("nobody", "POST", "/v2/acme/label/blobs/uploads/", b"").await;
    assert_eq!(push.status, 401);
    let challenge =
        format!("Bearer realm=\"{endpoint}\",service=\"ocimod\",scope=\"repository:acme/label:pull,push\"");
    assert_eq!(push.header("www-authenticate"), challenge);

    let given = site.get("nobody", "/v2/token?service=ocimod&scope=repository:acme/label:pull").await;
    let stranger = format!("Bearer {}", given.json()["token"].as_str().expect("a token"));
    assert_eq!(by(&stranger, "GET", "/v2/").await.status, 200);
    assert_eq!(by(&stranger, "GET", tags).await.status, 200);
    for (method, path) in
        [("POST", "blobs/uploads/"), ("DELETE", "manifests/v1.0.0"), ("PUT", "manifests/v1.0.0")]
    {
        assert_eq!(by(&stranger, method, &format!("/v2/acme/label/{path}")).await.status, 401, "{path}");
    }
    // A holder may read what strangers may; what it may write stays what its token says.
    assert_eq!(site.get("only-push-acme", "/v2/acme/label/manifests/v1.0.0").await.status, 200);
    assert_eq!(site.as_holder("only-push-acme", "POST", "/v2/other/x/blobs/uploads/", b"").await.status, 403);
}

#[tokio::test]
async fn the_rules_follow_the_file_while_the_server_runs() {
    let mut site = Site::start(&[]);
    site.push_image("acme/label", "v1.0.0").await;
    let tags = "/v2/acme/label/tags/list";
    let file = site.access.display().to_string();
    let made = site.ocimod.run(["token", "new", "late", "--allow", "read", "--access", &file]).success();
    let late = format!("Bearer {}", made.stdout.trim_end());
    site.wait_for(200, &late, tags).await;

    std::fs::write(&site.access, "[[token]]\nname = 'half").unwrap();
    kill(site.serve.server.pid(), "HUP");
    site.serve.server.wait_for(|line| line.contains("stay in force").then_some(()));
    assert_eq!(site.send("GET", tags, &[("authorization", &late)], "").await.status, 200);
    std::fs::remove_file(&site.access).unwrap();
    kill(site.serve.server.pid(), "HUP");
    site.serve.server.wait_for(|line| line.contains("cannot be read").then_some(()));
    assert_eq!(site.send("GET", tags, &[("authorization", &late)], "").await.status, 200);

    access_file(&site.ocimod);
    kill(site.serve.server.pid(), "HUP");
    site.wait_for(401, &late, tags).await;
    assert_eq!(site.get("read-all", tags).await.status, 200);
}

#[test]
fn a_new_token_is_printed_once_and_its_hash_kept() {
    let ocimod = Ocimod::new();
    let file = ocimod.home.path().join("access.toml");
    let made =
        ocimod.run(["token", "new", "ci", "--allow", "push,read", "--access", "access.toml"]).success();
    let token = made.stdout.strip_suffix('\n').expect("one line").to_owned();
    assert!(token.starts_with("ocimod_") && token.len() == 50, "{token}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&token) && text.contains(&TokenHash::of(&token).unwrap().to_hex()), "{text}");
    assert!(!made.stderr.contains(&token), "{}", made.stderr);

    let json = ocimod.run([
        "token",
        "new",
        "robot",
        "--allow=push",
        "--repositories",
        "acme/*,b",
        "--expires",
        "2100-01-31",
        "--access",
        "access.toml",
        "--format",
        "json",
    ]);
    let json = json.success();
    assert!(json.stderr.contains("sees nothing"), "{}", json.stderr);
    let json = json.json();
    let shown = json!({
        "name": "robot", "token": json["token"], "file": json["file"], "allow": ["push"],
        "repositories": ["acme/*", "b"], "expires": "2100-01-31T00:00:00Z",
    });
    assert_eq!(json, shown);

    let refused =
        ocimod.run(["token", "new", "ci", "--allow", "read", "--access", "access.toml"]).fails_with(4);
    assert!(
        refused.stderr.contains("`ci` already") && refused.stderr.contains("hint: "),
        "{}",
        refused.stderr
    );
    for wrong in [
        &["token", "new", "x", "--allow", "read"][..],
        &["token", "new", "x", "--access", "access.toml"],
        &["token", "new", "x", "--allow", "write", "--access", "access.toml"],
        &["token", "new", "x y", "--allow", "read", "--access", "access.toml"],
        &["token", "new", "x", "--allow", "read", "--repositories", "ACME/*", "--access", "access.toml"],
        &["token", "new", "x", "--allow", "read", "--expires", "2001-01-01", "--access", "access.toml"],
        &["token", "new", "x", "--allow", "read", "--expires", "soon", "--access", "access.toml"],
    ] {
        let failed = ocimod.run(wrong.iter().copied()).fails_with(2);
        assert_eq!(failed.stdout, "", "{wrong:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap().matches("[[token]]").count(), 2);
}

#[test]
fn a_server_that_others_reach_says_who_may_do_what_or_does_not_start() {
    let ocimod = Ocimod::new();
    let refuses = |arguments: &[&str], expected: &str| {
        let line = [&["serve", "--temporary", "--listen", "127.0.0.1:0"], arguments].concat();
        let failed = ocimod.run(line).fails_with(2);
        assert!(failed.stderr.contains(expected), "{arguments:?}: {}", failed.stderr);
    };
    let open = ocimod.run(["serve", "--temporary", "--listen", "0.0.0.0:0"]).fails_with(2);
    for word in ["ocimod token new", "--access FILE", "--allow-anonymous"] {
        assert!(open.stderr.contains(word), "{}", open.stderr);
    }
    refuses(&["--anonymous", "read"], "--access");
    std::fs::write(ocimod.home.path().join("bad.toml"), "\n[[token]]\nnames = 'a'\n").unwrap();
    refuses(&["--access", "bad.toml"], "bad.toml:3: a token has no key `names`");
    let access = access_file(&ocimod).display().to_string();
    refuses(&["--access", &access, "--allow-anonymous"], "leave out one of the two");
    let absent = ocimod
        .run(["serve", "--temporary", "--listen", "127.0.0.1:0", "--access", "absent.toml"])
        .fails_with(1);
    assert!(absent.stderr.contains("ocimod token new"), "{}", absent.stderr);
    // What a repository says about it counts for nothing.
    std::fs::create_dir(ocimod.home.path().join(".git")).unwrap();
    std::fs::write(ocimod.home.path().join("ocimod.toml"), format!("access = '{access}'\n")).unwrap();
    refuses(&[], "cannot be set in the file of a repository");
}

#[tokio::test]
async fn no_log_line_holds_a_token_at_any_level() {
    let mut site = Site::start(&["--anonymous", "read", "--log-level", "trace"]);
    site.push_image("acme/label", "v1.0.0").await;
    let mut secrets = Vec::new();
    for name in ["admin", "read-acme", "expired", "unknown"] {
        let token = token(name);
        let hash = TokenHash::of(&token).unwrap().to_hex();
        for authorization in [format!("Bearer {token}"), basic("user", &token), format!("Garbage {token}")] {
            for path in
                ["/v2/", "/v2/acme/label/tags/list", "/v2/token", "/v1/modules/a/b/c/versions", "/v2/A", "/x"]
            {
                for method in ["GET", "POST", "DELETE"] {
                    site.send(method, path, &[("authorization", &authorization)], "").await;
                }
            }
            let given = site.send("GET", "/v2/token", &[("authorization", &authorization)], "").await;
            if let Some(session) =
                given.status.eq(&200).then(|| given.json()["token"].as_str().unwrap().to_owned())
            {
                site.send("GET", "/v2/", &[("authorization", &format!("Bearer {session}"))], "").await;
                secrets.push(session.rsplit('.').next().unwrap().to_owned());
            }
        }
        let form = format!("grant_type=password&username=x&password={token}");
        site.send("POST", "/v2/token", &[], form).await;
        site.send("GET", &format!("/v2/?token={token}"), &[], "").await;
        secrets.extend([token.clone(), STANDARD.encode(format!("user:{token}")), hash]);
    }
    // The last line is of the last request.
    site.get("nobody", "/healthz").await;
    site.serve.server.wait_for(|line| line.contains("/healthz").then_some(()));
    let log = site.serve.server.log();
    assert!(log.contains("401") && log.contains("the token `expired` has expired"), "{log}");
    assert!(log.contains("token=\"read-acme\""), "a token's name is what its use is found by: {log}");
    for secret in secrets {
        assert!(!log.contains(&secret), "{secret}");
    }
}

/// A home where these clients are logged in.
fn logged_in(site: &Site, name: &str) -> PathBuf {
    let home = site.ocimod.folder(&format!("home-of-{name}"));
    let auth = STANDARD.encode(format!("anybody:{}", token(name)));
    let file = home.join(".docker/config.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, json!({ "auths": { &site.serve.address: { "auth": auth } } }).to_string()).unwrap();
    home
}

fn client(program: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = isolated(program, home);
    command.args(arguments).current_dir(home);
    command
}

#[tokio::test]
async fn the_clients_that_people_use_log_in_push_and_pull() {
    for anonymous in ["none", "read"] {
        let site = Site::start(&["--anonymous", anonymous]);
        site.push_image("other/label", "v1.0.0").await;
        let registry = site.serve.address.clone();
        let (label, other) = (format!("{registry}/acme/label"), format!("{registry}/other/label"));
        let token = token("push-acme");
        let strangers_read = anonymous == "read";

        if let Some(crane) = clients::find("crane") {
            let home = site.ocimod.folder("crane");
            let stranger = run(&mut client(&crane, &home, &["ls", "--insecure", &other]));
            assert_eq!(stranger.status == Some(0), strangers_read, "{stranger:?}");
            run(&mut client(&crane, &home, &["auth", "login", &registry, "-u", "x", "-p", &token])).success();
            let (image, layer) = (home.join("image.tar"), home.join("layer.tar"));
            std::fs::write(&layer, [0_u8; 1024]).unwrap();
            let (image, layer) = (image.display().to_string(), layer.display().to_string());
            let tag = format!("{label}:crane");
            run(&mut client(&crane, &home, &["append", "--insecure", "-f", &layer, "-t", &tag])).success();
            run(&mut client(&crane, &home, &["pull", "--insecure", &tag, &image])).success();
            let copied = format!("{registry}/acme/copied:crane");
            run(&mut client(&crane, &home, &["copy", "--insecure", &tag, &copied])).success();
            let refused =
                run(&mut client(&crane, &home, &["copy", "--insecure", &tag, &format!("{other}:crane")]));
            assert_ne!(refused.status, Some(0));
            let hidden = run(&mut client(&crane, &home, &["ls", "--insecure", &other]));
            assert_eq!(hidden.status == Some(0), strangers_read, "{hidden:?}");
            let deleted = run(&mut client(&crane, &home, &["delete", "--insecure", &copied]));
            assert_ne!(deleted.status, Some(0), "{deleted:?}");
        }
        if let Some(skopeo) = clients::find("skopeo") {
            let home = site.ocimod.folder("skopeo");
            let authfile = home.join("auth.json").display().to_string();
            let login = ["login", "--tls-verify=false", "--authfile", &authfile, "-u", "x", "-p"];
            let wrong = run(&mut client(&skopeo, &home, &[&login[..], &["wrong", &registry]].concat()));
            assert_ne!(wrong.status, Some(0), "{wrong:?}");
            run(&mut client(&skopeo, &home, &[&login[..], &[&token, &registry]].concat())).success();
            let source = site.ocimod.folder(&format!("layout-{anonymous}"));
            layout(&source);
            let copy = [
                "--insecure-policy",
                "copy",
                "--authfile",
                &authfile,
                "--src-tls-verify=false",
                "--dest-tls-verify=false",
            ];
            let (layout, ours) = (format!("oci:{}:v1", source.display()), format!("docker://{label}:skopeo"));
            run(&mut client(&skopeo, &home, &[&copy[..], &[&layout, &ours]].concat())).success();
            let back = format!("oci:{}:back", source.display());
            run(&mut client(&skopeo, &home, &[&copy[..], &[&ours, &back]].concat())).success();
            let elsewhere = format!("docker://{other}:skopeo");
            let refused = run(&mut client(&skopeo, &home, &[&copy[..], &[&layout, &elsewhere]].concat()));
            assert_ne!(refused.status, Some(0), "{refused:?}");
        }
        if let Some(oras) = clients::find("oras") {
            let home = site.ocimod.folder("oras");
            let login = ["login", "--plain-http", &registry, "-u", "x", "-p"];
            let wrong = run(&mut client(&oras, &home, &[&login[..], &["wrong"]].concat()));
            assert_ne!(wrong.status, Some(0), "{wrong:?}");
            run(&mut client(&oras, &home, &[&login[..], &[&token]].concat())).success();
            std::fs::write(home.join("note.txt"), "a note\n").unwrap();
            let tag = format!("{label}:oras");
            run(&mut client(&oras, &home, &["push", "--plain-http", &tag, "note.txt:text/plain"])).success();
            run(&mut client(&oras, &home, &["pull", "--plain-http", "-o", "out", &tag])).success();
            assert_eq!(std::fs::read_to_string(home.join("out/note.txt")).unwrap(), "a note\n");
            let elsewhere = format!("{other}:oras");
            let refused =
                run(&mut client(&oras, &home, &["push", "--plain-http", &elsewhere, "note.txt:text/plain"]));
            assert_ne!(refused.status, Some(0), "{refused:?}");
        }
        // Ourselves, from the other end.
        let mut push = site.ocimod.command();
        push.env("DOCKER_CONFIG", logged_in(&site, "push-acme").join(".docker"));
        push.args(["push", "--registry", &registry])
            .arg(example("terraform-null-label"))
            .arg("acme/label/null@1.0.0");
        run(&mut push).success();
        let mut push = site.ocimod.command();
        push.env("DOCKER_CONFIG", logged_in(&site, "read-acme").join(".docker"));
        push.args(["push", "--registry", &registry])
            .arg(example("terraform-null-label"))
            .arg("acme/label/null@1.1.0");
        run(&mut push).fails_with(5);
    }
}

/// An image layout with one image of nothing, under the tag `v1`.
pub(crate) fn layout(folder: &Path) {
    let config =
        json!({ "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": [] } })
            .to_string();
    let put = |bytes: &str| {
        let digest = Digest::of(bytes.as_bytes());
        std::fs::write(folder.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        json!({ "digest": digest, "size": bytes.len() })
    };
    let typed = |mut descriptor: Value, media_type: &str| {
        descriptor["mediaType"] = json!(media_type);
        descriptor
    };
    std::fs::create_dir_all(folder.join("blobs/sha256")).unwrap();
    let config = typed(put(&config), "application/vnd.oci.image.config.v1+json");
    let manifest = json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [] })
        .to_string();
    let mut manifest = typed(put(&manifest), IMAGE_MANIFEST);
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": "v1" });
    std::fs::write(
        folder.join("index.json"),
        json!({ "schemaVersion": 2, "manifests": [manifest] }).to_string(),
    )
    .unwrap();
    std::fs::write(folder.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}").unwrap();
}

#[tokio::test]
async fn cue_publishes_and_reads_with_the_credentials_of_docker() {
    let Some(cue) = clients::find("cue") else { return };
    for anonymous in ["none", "read"] {
        let site = Site::start(&["--anonymous", anonymous]);
        let cue = |name: &str, folder: &Path, arguments: &[&str]| {
            let mut command = isolated(&cue, site.ocimod.home.path());
            command
                .current_dir(folder)
                .env("CUE_REGISTRY", format!("{}/acme+insecure", site.serve.address))
                .env("CUE_CACHE_DIR", site.ocimod.folder(&format!("cue-cache-{name}")))
                .env("CUE_CONFIG_DIR", site.ocimod.folder("cue-config"))
                .env("DOCKER_CONFIG", logged_in(&site, name).join(".docker"))
                .args(arguments);
            run(&mut command)
        };
        let label = example("cue-label");
        let refused = cue("read-acme", &label, &["mod", "publish", "v1.0.0"]);
        assert_ne!(refused.status, Some(0), "{refused:?}");
        cue("push-acme", &label, &["mod", "publish", "v1.0.0"]).success();
        let user = site.ocimod.folder("user");
        let module = "module: \"user.example/main@v0\"\nlanguage: version: \"v0.9.2\"\ndeps: \"acme.example/label@v1\": v: \"v1.0.0\"\n";
        crate::support::modules::write(
            &user,
            &[
                ("cue.mod/module.cue", module),
                (
                    "main.cue",
                    "package main\n\nimport \"acme.example/label@v1\"\n\nlabel.#Label & {namespace: \"a\", stage: \"b\", name: \"c\"}\n",
                ),
            ],
        );
        cue("read-acme", &user, &["mod", "tidy", "--check"]).success();
        let _ = Command::new("chmod").args(["-R", "u+w"]).arg(site.ocimod.home.path()).status();
    }
}

/// A proxy that speaks https on a free port of `localhost` and hands everything to `server`; answers its port.
async fn https_proxy(server: String, certificate: &Certificate) -> u16 {
    let tls = RustlsConfig::from_pem_file(&certificate.certificate_file, &certificate.key_file);
    let tls = tls.await.expect("the certificate is ours");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    listener.set_nonblocking(true).expect("a socket");
    let client = reqwest::Client::new();
    let routes = axum::Router::new().fallback(move |request: Request| async move {
        let (parts, body) = request.into_parts();
        let url = format!("http://{server}{}", parts.uri.path_and_query().expect("a path"));
        let body = to_bytes(body, 1 << 20).await.expect("a small body");
        // As proxies do that have another name for the server than their clients have.
        let name = format!("localhost:{port}");
        let mut forwarded = client.request(parts.method, url).headers(parts.headers).body(body);
        forwarded = forwarded.header("x-forwarded-proto", "https").header("x-forwarded-host", name);
        let answer = forwarded.header("host", &server).send().await.expect("the server answers");
        let mut response = axum::response::Response::new(Body::empty());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        *response.body_mut() = Body::from(answer.bytes().await.expect("a body"));
        response
    });
    tokio::spawn(
        axum_server::from_tcp_rustls(listener, tls).expect("a server").serve(routes.into_make_service()),
    );
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn tofu_installs_from_an_oci_address_with_a_token_and_without_where_strangers_may_read() {
    for anonymous in ["none", "read"] {
        let site = Site::start(&["--anonymous", anonymous]);
        let mut push = site.ocimod.command();
        push.env("DOCKER_CONFIG", logged_in(&site, "push-acme").join(".docker"));
        push.args(["push", "--registry", &site.serve.address]).arg(example("terraform-null-label"));
        run(push.arg("acme/label/null@1.0.0")).success();
        let certificate = Certificate::create(site.ocimod.home.path());
        let port = https_proxy(site.serve.address.clone(), &certificate).await;
        let main = format!(
            "module \"it\" {{\n  source = \"oci://localhost:{port}/acme/label/null?tag=v1.0.0\"\n}}\n"
        );
        for tofu in ["tofu-1.10", "tofu-1.12"].into_iter().filter_map(clients::find) {
            let version = tofu.file_name().expect("a program has a name").to_string_lossy().into_owned();
            for who in ["nobody", "read-acme", "until-9000", "expired", "wrong"] {
                let folder = site.ocimod.folder(&format!("{version}-{who}"));
                let root = Root::new(&tofu, &folder, "modules.internal", &site.serve.address, &main);
                if who != "nobody" {
                    let credentials = format!(
                        "oci_credentials \"localhost:{port}\" {{\n  username = \"x\"\n  password = \"{}\"\n}}\n",
                        token(who)
                    );
                    let file = folder.join("client.tfrc");
                    let text = std::fs::read_to_string(&file).expect("it is ours");
                    std::fs::write(&file, text + &credentials).expect("the folder is ours");
                }
                let mut get = root.command();
                get.env("SSL_CERT_FILE", &certificate.certificate_file).args(["get", "-no-color"]);
                let answer = run(&mut get);
                let expected = match who {
                    "nobody" => anonymous == "read",
                    who => !["expired", "wrong"].contains(&who),
                };
                assert_eq!(answer.status == Some(0), expected, "{version} {who} {anonymous}: {answer:?}");
            }
        }
    }
}
