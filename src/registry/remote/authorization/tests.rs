//! Registries and token services that answer by a script: what goes where, how often, and as whom.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;

use crate::oci::{Digest, IMAGE_MANIFEST, Reference, Repository};
use crate::registry::credentials::{Credential, CredentialEnvironment, CredentialSource};
use crate::registry::remote::scripted::{Request, Scripted, reply, status};
use crate::registry::remote::{LoginOutcome, Proxies, RemoteOptions, RemoteRegistry, RetryPolicy};
use crate::registry::{
    Blob, BlobRequest, Cache, CacheOptions, PageRequest, Registry, RegistryError, Result, SharedRegistry,
    read_bounded,
};

const MANIFEST: &str = r#"{"schemaVersion":2,"config":{"mediaType":"a/b","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[]}"#;

fn repository() -> Repository {
    "acme/vpc".parse().unwrap()
}

fn basic(user: &str, password: &str) -> Credential {
    Credential::Basic { username: user.into(), password: password.into() }
}

fn basic_header(user: &str, password: &str) -> String {
    super::basic_header(user, password)
}

fn remote_of(address: &str, credentials: CredentialSource) -> RemoteRegistry {
    let moment = Duration::from_millis(1);
    let retry =
        RetryPolicy { tries: 2, first_wait: moment, longest_wait: moment, longest_asked: Duration::ZERO };
    let options = RemoteOptions::new(address.parse().unwrap(), credentials);
    RemoteRegistry::new(RemoteOptions { plain_http: Some(true), retry, ..options }).unwrap()
}

fn remote(server: &Scripted, credential: Credential) -> RemoteRegistry {
    remote_of(&server.address.to_string(), CredentialSource::fixed(credential))
}

async fn read(remote: &dyn Registry) -> Result<()> {
    let tag = Reference::Tag("v1".parse().unwrap());
    remote.manifest(&repository(), &tag).await.map(|_| ())
}

fn manifest() -> Response<Body> {
    reply(200, &[("content-type", IMAGE_MANIFEST)], MANIFEST)
}

fn token(text: &str) -> Response<Body> {
    reply(200, &[], format!(r#"{{"token":"{text}"}}"#))
}

fn challenge(request: &Request, more: &str) -> Response<Body> {
    let challenge = format!(r#"Bearer realm="http://{}/token",service="s"{more}"#, request.header("host"));
    reply(401, &[("www-authenticate", &challenge)], "")
}

/// The requests to the token service.
fn token_lines(server: &Scripted) -> Vec<String> {
    server.lines().into_iter().filter(|line| line.contains(" /token")).collect()
}

/// A home with one credential file, which can be written anew.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, server: &Scripted, user: &str, password: &str) {
        let auth = STANDARD.encode(format!("{user}:{password}"));
        let text = format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, server.address);
        std::fs::write(self.0.path().join("auth.json"), text).unwrap();
    }

    fn source(&self) -> CredentialSource {
        CredentialSource::from_environment(CredentialEnvironment {
            registry_auth_file: Some(self.0.path().join("auth.json")),
            ..CredentialEnvironment::default()
        })
    }
}

#[tokio::test]
async fn scopes_that_the_registry_names_are_asked_for_beside_our_own() {
    // Behind this gateway the repository has another name, which only its challenges say.
    let server = Scripted::start(|request, _| {
        if request.path.starts_with("/token") {
            let is_wide = request.path.contains("inner%2Facme%2Fvpc");
            return token(if is_wide { "wide" } else { "narrow" });
        }
        match request.header("authorization").as_str() {
            "Bearer wide" => manifest(),
            _ => challenge(request, r#",scope="repository:acme/vpc:pull repository:inner/acme/vpc:pull""#),
        }
    })
    .await;
    let remote = remote(&server, basic("ann", "p"));
    for _ in 0..3 {
        read(&remote).await.unwrap();
    }
    assert_eq!(
        token_lines(&server),
        [
            "GET /token?service=s&scope=repository%3Aacme%2Fvpc%3Apull",
            "GET /token?service=s&scope=repository%3Aacme%2Fvpc%3Apull&scope=repository%3Ainner%2Facme%2Fvpc%3Apull",
        ]
    );
}

#[tokio::test]
async fn repositories_may_ask_in_different_ways() {
    let server = Scripted::start(|request, _| {
        let is_basic = request.path.starts_with("/v2/basic/");
        match (request.path.as_str(), request.header("authorization").as_str()) {
            ("/v2/", _) => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
            (path, _) if path.starts_with("/token") => token("t"),
            (_, authorization) if is_basic && authorization.starts_with("Basic") => manifest(),
            (_, "Bearer t") if !is_basic => manifest(),
            _ if is_basic => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
            _ => challenge(request, ""),
        }
    })
    .await;
    let remote = remote(&server, basic("ann", "p"));
    let tag = Reference::Tag("v1".parse().unwrap());
    for _ in 0..3 {
        for name in ["basic/a", "bearer/b"] {
            remote.manifest(&name.parse().unwrap(), &tag).await.unwrap();
        }
    }
    // What was learned of one is not forgotten for the other.
    assert_eq!(server.lines().len(), 6 + 1 + 1, "{:?}", server.lines());
}

#[tokio::test]
async fn a_password_that_has_run_out_is_looked_up_again_on_401_and_on_403() {
    // ECR says 403 to a password of twelve hours.
    for refusal in [401, 403] {
        let server = Scripted::start(move |request, _| {
            match (request.header("authorization"), request.path.as_str()) {
                (authorization, _) if authorization == basic_header("ann", "new") => manifest(),
                (_, "/v2/") => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
                _ => status(refusal),
            }
        })
        .await;
        let home = Home::new();
        home.write(&server, "ann", "old");
        let remote = remote_of(&server.address.to_string(), home.source());
        let error = read(&remote).await.unwrap_err();
        let is_refused = matches!(error, RegistryError::Unauthorized { .. } | RegistryError::Denied { .. });
        assert!(is_refused, "{error}");
        assert_eq!(server.lines().len(), 1, "the same password is not sent twice");
        home.write(&server, "ann", "new");
        read(&remote).await.unwrap();
        assert_eq!(server.lines().len(), 3);
    }
}

#[tokio::test]
async fn a_password_that_a_token_service_refuses_is_looked_up_again() {
    for refusal in [400, 401, 403] {
        let home = Arc::new(Home::new());
        let (file, written) = (Arc::clone(&home), Arc::new(AtomicUsize::new(0)));
        let counter = Arc::clone(&written);
        let server = Scripted::start(move |request, _| {
            if request.path.starts_with("/token") {
                if request.header("authorization") == basic_header("ann", "new") {
                    return token("t");
                }
                // Whatever renews the password does so just now.
                if counter.fetch_add(1, Ordering::SeqCst) == 0 {
                    let auth = STANDARD.encode("ann:new");
                    let text = format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, request.header("host"));
                    std::fs::write(file.0.path().join("auth.json"), text).unwrap();
                }
                return status(refusal);
            }
            match request.header("authorization").as_str() {
                "Bearer t" => manifest(),
                _ => challenge(request, ""),
            }
        })
        .await;
        home.write(&server, "ann", "old");
        read(&remote_of(&server.address.to_string(), home.source())).await.unwrap();
        assert_eq!(token_lines(&server).len(), 2);
    }
}

#[tokio::test]
async fn a_token_is_for_the_credential_that_it_was_given_for() {
    let server = Scripted::start(|request, _| {
        if request.path.starts_with("/token") {
            let pair = request.header("authorization");
            let pair = STANDARD.decode(pair.trim_start_matches("Basic ")).unwrap();
            return token(&String::from_utf8(pair).unwrap().replace(':', "-"));
        }
        match request.header("authorization").as_str() {
            "" => challenge(request, ""),
            _ => manifest(),
        }
    })
    .await;
    let home = Home::new();
    let remote = remote_of(&server.address.to_string(), home.source());
    for user in ["ann", "ben"] {
        home.write(&server, user, "p");
        // The file is looked at once a second; this is what a refusal does.
        remote.client.doubt();
        read(&remote).await.unwrap();
        let last = server.requests().pop().unwrap();
        assert_eq!(last.header("authorization"), format!("Bearer {user}-p"));
    }
}

#[tokio::test]
async fn a_service_without_oauth2_is_asked_by_get() {
    for refusal in [400, 401, 404, 405, 415, 501] {
        let server = Scripted::start(move |request, _| match request.line().as_str() {
            "POST /token" => status(refusal),
            line if line.starts_with("GET /token") => {
                let is_known = request.header("authorization") == basic_header("ann", "refresh");
                if is_known { token("t") } else { status(401) }
            }
            _ if request.header("authorization") == "Bearer t" => manifest(),
            _ => challenge(request, ""),
        })
        .await;
        let ann = Credential::identity_token("ann".into(), "refresh".into());
        read(&remote(&server, ann)).await.unwrap();
        let nobody = Credential::identity_token("<token>".into(), "refresh".into());
        let error = read(&remote(&server, nobody)).await.unwrap_err();
        assert!(error.to_string().contains(&format!("status {refusal}")), "{error}");
        let last = server.requests().into_iter().rev().find(|request| request.method == "GET").unwrap();
        assert_eq!(last.header("authorization"), basic_header("<token>", "refresh"));
    }
}

#[tokio::test]
async fn a_refresh_token_that_a_service_gives_takes_the_place_of_the_old_one() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    let server = Scripted::start(move |request, _| {
        if request.method == "POST" {
            let form = String::from_utf8(request.body.to_vec()).unwrap();
            let (_, refresh) = form.split_once("refresh_token=").unwrap();
            log.lock().unwrap().push(refresh.rsplit('=').next().unwrap().to_owned());
            let number = log.lock().unwrap().len();
            // The third has been taken back.
            return match number {
                3 => status(400),
                _ => reply(
                    200,
                    &[],
                    format!(r#"{{"access_token":"t{number}","refresh_token":"refresh{number}"}}"#),
                ),
            };
        }
        match request.header("authorization").as_str() {
            "" => challenge(request, ""),
            _ => manifest(),
        }
    })
    .await;
    let remote = remote(&server, Credential::identity_token(String::new(), "refresh".into()));
    let tag = Reference::Tag("v1".parse().unwrap());
    for name in ["a", "b", "c"] {
        remote.manifest(&name.parse().unwrap(), &tag).await.unwrap();
    }
    assert_eq!(*asked.lock().unwrap(), ["refresh", "refresh1", "refresh2", "refresh"]);
}

#[tokio::test]
async fn a_token_that_was_given_beforehand_needs_no_token_service() {
    // The realm is one that is never asked, so it may be any.
    let server = Scripted::start(|request, _| match request.header("authorization").as_str() {
        "Bearer given" => manifest(),
        _ => reply(401, &[("www-authenticate", r#"Bearer realm="http://169.254.169.254/token""#)], ""),
    })
    .await;
    let given = remote(&server, Credential::Bearer("given".into()));
    for _ in 0..2 {
        read(&given).await.unwrap();
    }
    assert_eq!(server.requests().len(), 3);
    let error = read(&remote(&server, basic("ann", "p"))).await.unwrap_err();
    assert!(error.to_string().contains("not trusted"), "{error}");
    let wrong = read(&remote(&server, Credential::Bearer("a\nb".into()))).await.unwrap_err();
    assert!(matches!(wrong, RegistryError::Unauthorized { .. }), "{wrong}");
}

#[tokio::test]
async fn a_registry_that_asked_for_what_nobody_has_is_asked_again() {
    let is_mended = Arc::new(AtomicUsize::new(0));
    let switch = Arc::clone(&is_mended);
    let server = Scripted::start(move |request, _| {
        let is_mended = switch.load(Ordering::SeqCst) == 1;
        match request.path.as_str() {
            _ if is_mended && request.header("authorization").starts_with("Basic") => manifest(),
            _ if is_mended => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
            _ => reply(401, &[("www-authenticate", "Negotiate")], ""),
        }
    })
    .await;
    let remote = remote(&server, basic("ann", "p"));
    let error = read(&remote).await.unwrap_err();
    assert!(error.to_string().contains("no way to authenticate"), "{error}");
    assert!(server.lines().is_empty(), "nothing goes out without a login in its place");
    is_mended.store(1, Ordering::SeqCst);
    read(&remote).await.unwrap();
}

#[tokio::test]
async fn two_users_of_one_registry_see_nothing_of_each_other() {
    // Who may see a tag is in its name, and the token says who asks.
    let server = Scripted::start(|request, _| {
        if request.path.starts_with("/token") {
            let pair = STANDARD.decode(request.header("authorization").trim_start_matches("Basic "));
            let pair = String::from_utf8(pair.unwrap_or_default()).unwrap();
            return token(&format!("for-{}", pair.split(':').next().unwrap()));
        }
        let authorization = request.header("authorization");
        let Some(user) = authorization.strip_prefix("Bearer for-") else { return challenge(request, "") };
        if request.path.contains("/tags/list") {
            return reply(200, &[], format!(r#"{{"name":"acme/vpc","tags":["of-{user}"]}}"#));
        }
        // What is behind a tag is other bytes for each.
        let bytes = MANIFEST.replace("a/b", &format!("a/{user}"));
        match request.path.rsplit('/').next() {
            Some(tag) if tag == "v1" || tag == format!("of-{user}") => {
                reply(200, &[("content-type", IMAGE_MANIFEST)], bytes)
            }
            _ => status(404),
        }
    })
    .await;
    // One memory for both, under one name: what keeps them apart is that they are two.
    let cache = Cache::open(CacheOptions::default()).unwrap();
    let user = |name: &'static str| {
        let remote: SharedRegistry = Arc::new(remote(&server, basic(name, "p")));
        (name, cache.over(remote, "r.example"))
    };
    let users = [user("ann"), user("ben")];
    let look = async |(name, registry): &(&'static str, crate::registry::CachedRegistry)| {
        let page = crate::registry::PageRequest::default();
        let tags = registry.tags(&repository(), &page).await.unwrap();
        assert_eq!(tags.items.iter().map(ToString::to_string).collect::<Vec<_>>(), [format!("of-{name}")]);
        let tag = Reference::Tag("v1".parse().unwrap());
        let manifest = registry.manifest(&repository(), &tag).await.unwrap();
        assert!(String::from_utf8_lossy(&manifest.bytes).contains(&format!("a/{name}")));
        let other = if *name == "ann" { "of-ben" } else { "of-ann" };
        let hidden = registry.manifest(&repository(), &Reference::Tag(other.parse().unwrap())).await;
        assert!(hidden.is_err_and(|error| error.is_not_found()));
    };
    for _ in 0..10 {
        join_all(users.iter().cycle().take(10).map(look)).await;
    }
    for request in server.requests() {
        let sent = request.header("authorization");
        assert!(request.path != "/v2/" || sent.is_empty());
        assert!(sent.is_empty() || request.path.starts_with("/token") == sent.starts_with("Basic"), "{sent}");
    }
    // Each got a token of its own, once for what it does.
    assert_eq!(token_lines(&server).len(), 2);
}

#[tokio::test]
async fn a_login_is_tried() {
    let server = Scripted::start(|request, _| match request.header("authorization") {
        sent if sent == basic_header("ann", "right") => status(200),
        sent if sent == basic_header("ben", "right") => status(403),
        _ => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
    })
    .await;
    let outcome = remote(&server, basic("ann", "right")).check_login().await.unwrap();
    assert_eq!(outcome, LoginOutcome::Accepted);
    for (user, password) in [("ann", "wrong"), ("ben", "right")] {
        let error = remote(&server, basic(user, password)).check_login().await.unwrap_err();
        assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
    }

    let server = Scripted::start(|request, _| match request.header("authorization").as_str() {
        _ if request.path.starts_with("/token") => {
            let is_known = request.header("authorization") == basic_header("ann", "right");
            if is_known { token("t") } else { status(401) }
        }
        "Bearer t" => status(200),
        _ => challenge(request, ""),
    })
    .await;
    let outcome = remote(&server, basic("ann", "right")).check_login().await.unwrap();
    assert_eq!(outcome, LoginOutcome::Accepted);
    assert_eq!(token_lines(&server), ["GET /token?service=s"]);
    let error = remote(&server, basic("ann", "wrong")).check_login().await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");

    for (answer, outcome) in [(200, Some(LoginOutcome::NotAsked)), (404, None), (302, None), (503, None)] {
        let server =
            Scripted::start(move |_, _| reply(answer, &[("location", "https://elsewhere.example/v2/")], ""))
                .await;
        let remote = remote(&server, basic("ann", "p"));
        assert_eq!(remote.check_login().await.ok(), outcome, "{answer}");
        assert!(server.requests().iter().all(|request| request.header("authorization").is_empty()));
    }
}

#[tokio::test]
async fn a_proxy_is_asked_for_everything_and_gets_its_own_login_alone() {
    // The proxy, and behind it a registry, a token service and a storage, each at an address of its own (RFC 5737).
    let server = Scripted::start(|request, _| match request.header("host").as_str() {
        "198.51.100.2" => token("t"),
        "192.0.2.1" => reply(200, &[], "content"),
        _ if request.header("authorization") != "Bearer t" => {
            reply(401, &[("www-authenticate", r#"Bearer realm="http://198.51.100.2/token""#)], "")
        }
        _ => reply(307, &[("location", "http://192.0.2.1/signed")], ""),
    })
    .await;
    // By a name, which itself stands for an address that no registry may send us to.
    let url = format!("http://proxy:s3cret@localhost:{}", server.address.port());
    let proxies = Proxies::from_variables(|name| (name == "HTTP_PROXY").then(|| url.clone())).unwrap();
    let credentials = CredentialSource::fixed(basic("ann", "p"));
    let options = RemoteOptions::new("198.51.100.1:5000".parse().unwrap(), credentials);
    let remote = RemoteRegistry::new(RemoteOptions { plain_http: Some(true), proxies, ..options }).unwrap();
    let digest = Digest::of(b"content");
    let blob = remote.blob(&repository(), &digest, BlobRequest::default()).await.unwrap();
    let Blob::Stream(blob) = blob else { panic!("a location that nobody asked for") };
    assert_eq!(read_bounded(blob.bytes, 100).await.unwrap().as_ref(), b"content");
    let seen: Vec<_> = server
        .requests()
        .iter()
        .map(|request| {
            assert_eq!(request.header("proxy-authorization"), basic_header("proxy", "s3cret"));
            (request.header("host"), request.header("authorization"))
        })
        .collect();
    let of = |host: &str, sent: &str| (host.to_owned(), sent.to_owned());
    assert_eq!(
        seen,
        [
            of("198.51.100.1:5000", ""),
            of("198.51.100.2", &basic_header("ann", "p")),
            of("198.51.100.1:5000", "Bearer t"),
            of("192.0.2.1", ""),
        ]
    );
}

#[tokio::test]
async fn a_token_service_s_403_may_mean_that_there_is_nothing() {
    let server = Scripted::start(|request, _| {
        let is_of_nobody = request.header("authorization").is_empty();
        match request.path.as_str() {
            path if path.starts_with("/token") => status(if is_of_nobody { 403 } else { 401 }),
            _ => challenge(request, ""),
        }
    })
    .await;
    let nobody = remote(&server, Credential::Anonymous);
    let error = read(&nobody).await.unwrap_err();
    assert!(matches!(error, RegistryError::Denied { .. }) && error.may_be_absence(), "{error}");
    let said = error.to_string();
    assert!(said.contains("anonymous callers") && said.contains("no such repository"), "{said}");
    let error = nobody.repositories(&PageRequest::default()).await.unwrap_err();
    assert!(matches!(error, RegistryError::NoCatalog), "{error}");
    // Who asks for nothing is refused himself.
    let error = nobody.check_login().await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
    let error = read(&remote(&server, basic("ann", "p"))).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
}
