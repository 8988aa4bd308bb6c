//! The promises of this room, each against a server that tries to break it.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;

use super::scripted::{Request, Scripted, broken, endless, reply, status};
use super::*;
use crate::oci::{ByteRange, Hasher, IMAGE_INDEX, IMAGE_MANIFEST, Span};
use crate::registry::credentials::Credential;
use crate::registry::{BytesSource, Condition, read_bounded};

fn options(server: &Scripted, credential: Credential) -> RemoteOptions {
    let registry = server.address.to_string().parse().unwrap();
    let moment = Duration::from_millis(1);
    RemoteOptions {
        plain_http: Some(true),
        retry: RetryPolicy {
            tries: 3,
            first_wait: moment,
            longest_wait: moment,
            longest_asked: Duration::ZERO,
        },
        ..RemoteOptions::new(registry, CredentialSource::fixed(credential))
    }
}

fn remote(server: &Scripted) -> RemoteRegistry {
    RemoteRegistry::new(options(server, Credential::Anonymous)).unwrap()
}

fn remote_as(server: &Scripted, user: &str) -> RemoteRegistry {
    RemoteRegistry::new(options(server, basic(user))).unwrap()
}

fn basic(user: &str) -> Credential {
    Credential::Basic { username: user.into(), password: "s3cret".into() }
}

fn basic_header(user: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:s3cret")))
}

fn repository() -> Repository {
    "acme/vpc".parse().unwrap()
}

fn tag(text: &str) -> Reference {
    Reference::Tag(text.parse().unwrap())
}

const MANIFEST: &str = r#"{"schemaVersion":2,"config":{"mediaType":"a/b","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[]}"#;

fn manifest(body: impl Into<Body>) -> Response<Body> {
    reply(200, &[("content-type", IMAGE_MANIFEST)], body)
}

/// A registry that wants tokens `token-USER-N` of its own `/token`, and answers by `inner` where it gets the newest.
struct TokenRegistry {
    server: Scripted,
    given: Arc<AtomicUsize>,
}

impl TokenRegistry {
    async fn start(inner: impl Fn(&Request) -> Response<Body> + Send + Sync + 'static) -> Self {
        let given = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&given);
        let server = Scripted::start(move |request, _| {
            if request.path.starts_with("/token") {
                let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
                let sent = request.header("authorization");
                let user = sent.strip_prefix("Basic ").map_or_else(String::new, |text| {
                    String::from_utf8(STANDARD.decode(text).unwrap())
                        .unwrap()
                        .split(':')
                        .next()
                        .unwrap()
                        .into()
                });
                return reply(200, &[], format!(r#"{{"token":"token-{user}-{number}","expires_in":300}}"#));
            }
            if request.header("authorization").starts_with("Bearer token-") {
                return inner(request);
            }
            let realm = format!(r#"Bearer realm="http://{}/token",service="s""#, request.header("host"));
            reply(401, &[("www-authenticate", &realm)], "")
        })
        .await;
        Self { server, given }
    }

    fn tokens(&self) -> usize {
        self.given.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn the_password_goes_to_the_realm_and_the_token_to_the_registry() {
    let registry = TokenRegistry::start(|_| manifest(MANIFEST)).await;
    let remote = remote_as(&registry.server, "ann");
    for _ in 0..3 {
        remote.manifest(&repository(), &tag("v1")).await.unwrap();
    }
    assert_eq!(registry.tokens(), 1, "a token is kept");
    for request in registry.server.requests() {
        let expected = match request.path.as_str() {
            "/v2/" => String::new(),
            "/token?service=s&scope=repository%3Aacme%2Fvpc%3Apull" => basic_header("ann"),
            _ => "Bearer token-ann-1".into(),
        };
        assert_eq!(request.header("authorization"), expected, "{}", request.line());
    }
    remote.delete_tag(&repository(), &"v1".parse().unwrap()).await.unwrap();
    assert_eq!(registry.tokens(), 2, "another scope, another token");
}

#[tokio::test]
async fn a_realm_elsewhere_gets_the_password_and_the_registry_never_does() {
    let realm = Scripted::start(|_, _| reply(200, &[], r#"{"access_token":"t"}"#)).await;
    let url = realm.url("/token");
    let registry = Scripted::start(move |request, _| match request.header("authorization").as_str() {
        "Bearer t" => manifest(MANIFEST),
        _ => reply(401, &[("www-authenticate", &format!("Bearer realm=\"{url}\""))], ""),
    })
    .await;
    remote_as(&registry, "ann").manifest(&repository(), &tag("v1")).await.unwrap();
    assert_eq!(realm.requests()[0].header("authorization"), basic_header("ann"));
    assert!(registry.requests().iter().all(|request| !request.header("authorization").starts_with("Basic")));
}

#[tokio::test]
async fn a_realm_that_is_not_allowed_gets_nothing() {
    for realm in ["http://169.254.169.254/token", "http://10.0.0.1/token", "ftp://127.0.0.1/", "nonsense"] {
        let challenge = format!("Bearer realm=\"{realm}\"");
        let server = Scripted::start(move |_, _| reply(401, &[("www-authenticate", &challenge)], "")).await;
        let error = remote_as(&server, "ann").manifest(&repository(), &tag("v1")).await.unwrap_err();
        assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
        assert!(server.requests().iter().all(|request| request.header("authorization").is_empty()));
    }
}

#[tokio::test]
async fn a_realm_that_redirects_is_not_followed() {
    let thief = Scripted::start(|_, _| reply(200, &[], r#"{"token":"t"}"#)).await;
    let url = thief.url("/token");
    let server = Scripted::start(move |request, _| {
        if request.path.starts_with("/token") {
            return reply(307, &[("location", &url)], "");
        }
        let realm = format!("Bearer realm=\"http://{}/token\"", request.header("host"));
        reply(401, &[("www-authenticate", &realm)], "")
    })
    .await;
    remote_as(&server, "ann").manifest(&repository(), &tag("v1")).await.unwrap_err();
    assert!(thief.requests().is_empty());
}

#[tokio::test]
async fn tokens_that_are_no_header_are_never_sent() {
    for answer in [
        r#"{"token":"a\nb"}"#.to_owned(),
        r#"{"token":"a\u007f"}"#.to_owned(),
        r#"{"token":"é"}"#.to_owned(),
        r#"{"token":""}"#.to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        format!(r#"{{"token":"{}"}}"#, "x".repeat(1 << 19)),
    ] {
        let server = Scripted::start(move |request, _| {
            if request.path.starts_with("/token") {
                return reply(200, &[], answer.clone());
            }
            let realm = format!("Bearer realm=\"http://{}/token\"", request.header("host"));
            reply(401, &[("www-authenticate", &realm)], "")
        })
        .await;
        let error = remote(&server).manifest(&repository(), &tag("v1")).await.unwrap_err();
        assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
        assert!(server.lines().iter().all(|line| line.starts_with("GET /token")));
    }
}

#[tokio::test]
async fn a_refused_token_is_replaced_once() {
    let registry = TokenRegistry::start(|_| status(401)).await;
    let error = remote_as(&registry.server, "ann").manifest(&repository(), &tag("v1")).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
    assert_eq!(registry.tokens(), 2);
}

#[tokio::test]
async fn a_403_with_a_kept_token_asks_for_a_new_one() {
    let registry = TokenRegistry::start(|request| {
        let is_old = request.path.contains("v2-tag") && request.header("authorization").ends_with("-1");
        if is_old { status(403) } else { manifest(MANIFEST) }
    })
    .await;
    let remote = remote_as(&registry.server, "ann");
    remote.manifest(&repository(), &tag("v1")).await.unwrap();
    remote.manifest(&repository(), &tag("v2-tag")).await.unwrap();
    assert_eq!(registry.tokens(), 2);
}

#[tokio::test]
async fn a_403_with_a_new_token_is_an_answer() {
    let registry = TokenRegistry::start(|_| status(403)).await;
    let error = remote_as(&registry.server, "ann").manifest(&repository(), &tag("v1")).await.unwrap_err();
    assert!(matches!(error, RegistryError::Denied { .. }), "{error}");
    assert_eq!(registry.tokens(), 1);
}

#[tokio::test]
async fn two_identities_never_use_each_others_tokens() {
    let registry = TokenRegistry::start(|_| manifest(MANIFEST)).await;
    let identities = ["ann", "bob"].map(|user| (user, remote_as(&registry.server, user)));
    let (one, two) = (repository(), tag("v1"));
    let calls = identities.iter().flat_map(|(_, remote)| (0..20).map(|_| remote.manifest(&one, &two)));
    futures_util::future::try_join_all(calls).await.unwrap();
    let sent: std::collections::BTreeSet<_> =
        registry.server.requests().iter().map(|request| request.header("authorization")).collect();
    assert_eq!(registry.tokens(), 2);
    assert_eq!(sent.iter().filter(|sent| sent.starts_with("Bearer token-ann-")).count(), 1);
    assert_eq!(sent.iter().filter(|sent| sent.starts_with("Bearer token-bob-")).count(), 1);
}

#[tokio::test]
async fn a_refresh_token_is_exchanged_by_post() {
    let server = Scripted::start(|request, _| {
        if request.line() == "POST /token" {
            return reply(200, &[], r#"{"access_token":"t"}"#);
        }
        if request.header("authorization") == "Bearer t" {
            return manifest(MANIFEST);
        }
        let realm = format!(r#"Bearer realm="http://{}/token",service="s""#, request.header("host"));
        reply(401, &[("www-authenticate", &realm)], "")
    })
    .await;
    let token = Credential::identity_token(String::new(), "r&t".into());
    let remote = RemoteRegistry::new(options(&server, token)).unwrap();
    remote.manifest(&repository(), &tag("v1")).await.unwrap();
    let request = server.requests().into_iter().find(|request| request.method == "POST").unwrap();
    let form = "grant_type=refresh_token&client_id=ocimod&service=s&scope=repository%3Aacme%2Fvpc%3Apull&refresh_token=r%26t";
    assert_eq!(request.body, form);
    assert_eq!(request.header("authorization"), "");
}

#[tokio::test]
async fn basic_and_open_registries_are_understood() {
    let server = Scripted::start(|request, _| {
        if request.header("authorization").is_empty() {
            reply(401, &[("www-authenticate", "Basic realm=\"r\"")], "")
        } else {
            manifest(MANIFEST)
        }
    })
    .await;
    remote_as(&server, "ann").manifest(&repository(), &tag("v1")).await.unwrap();
    let error = remote(&server).manifest(&repository(), &tag("v1")).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");

    let open = Scripted::start(|_, _| manifest(MANIFEST)).await;
    remote_as(&open, "ann").manifest(&repository(), &tag("v1")).await.unwrap();
    assert!(open.requests().iter().all(|request| request.header("authorization").is_empty()));
}

#[tokio::test]
async fn an_open_registry_may_begin_to_ask() {
    let server =
        Scripted::start(|request, before| match (before, request.header("authorization").is_empty()) {
            (0, _) => status(200),
            (_, true) => reply(401, &[("www-authenticate", "Basic realm=\"r\"")], ""),
            (_, false) => manifest(MANIFEST),
        })
        .await;
    remote_as(&server, "ann").manifest(&repository(), &tag("v1")).await.unwrap();
}

#[tokio::test]
async fn a_redirect_gets_no_authorization_and_its_bytes_are_verified() {
    let good = Digest::of(b"content");
    let storage = Scripted::start(|_, _| reply(200, &[], "content")).await;
    let url = storage.url("/blob?X-Sig=s3cret");
    let registry = TokenRegistry::start(move |_| reply(307, &[("location", &url)], "")).await;
    let remote = remote_as(&registry.server, "ann");
    let any: &dyn Registry = &remote;
    assert_eq!(any.small_blob(&repository(), &good, 99).await.unwrap(), "content");
    assert_eq!(remote.blob_size(&repository(), &good).await.unwrap(), 7);
    let other = any.small_blob(&repository(), &Digest::of(b"kontent"), 99).await;
    assert!(matches!(other, Err(RegistryError::DigestMismatch { .. })));
    let requests = storage.requests();
    assert_eq!(requests.len(), 3);
    assert!(
        requests.iter().all(|request| request.header("authorization").is_empty() && request.method == "GET")
    );
}

#[tokio::test]
async fn a_redirect_that_comes_back_brings_no_authorization_along() {
    let here = Arc::new(Mutex::new(String::new()));
    let back = Arc::clone(&here);
    let storage =
        Scripted::start(move |_, _| reply(302, &[("location", &back.lock().unwrap().clone())], "")).await;
    let url = storage.url("/x");
    let registry = TokenRegistry::start(move |_| reply(307, &[("location", &url)], "")).await;
    *here.lock().unwrap() = registry.server.url("/v2/acme/other/blobs/secret");
    remote_as(&registry.server, "ann").manifest(&repository(), &tag("v1")).await.unwrap_err();
    let came_back =
        registry.server.requests().into_iter().find(|request| request.path.contains("secret")).unwrap();
    assert_eq!(came_back.header("authorization"), "");
}

#[tokio::test]
async fn redirects_end_and_lead_to_no_inner_address() {
    let server =
        Scripted::start(|request, _| reply(302, &[("location", &format!("{}x", request.path))], "")).await;
    let error = remote(&server).manifest(&repository(), &tag("v1")).await.unwrap_err();
    assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
    assert_eq!(server.lines().len(), 6);
    for location in
        ["http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "http://user@127.0.0.1/", "http://"]
    {
        let server = Scripted::start(move |_, _| reply(302, &[("location", location)], "")).await;
        let error = remote(&server).manifest(&repository(), &tag("v1")).await.unwrap_err();
        assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
        assert_eq!(server.lines().len(), 1);
    }
}

async fn location(registry: &RemoteRegistry) -> Option<String> {
    let wanted = BlobRequest { location: true, ..BlobRequest::default() };
    match registry.blob(&repository(), &Digest::of(b"content"), wanted).await.unwrap() {
        Blob::Location(url) => Some(url.into()),
        Blob::Stream(_) | Blob::File(_) => None,
    }
}

#[tokio::test]
async fn a_location_is_handed_out_where_it_is_elsewhere() {
    let server = Scripted::start(|_, _| reply(307, &[("location", "https://cdn.example/b?sig=1")], "")).await;
    assert_eq!(location(&remote(&server)).await.as_deref(), Some("https://cdn.example/b?sig=1"));

    let storage = Scripted::start(|_, _| reply(200, &[], "content")).await;
    let url = storage.url("/b");
    let expected = url.clone();
    let server = Scripted::start(move |_, _| reply(307, &[("location", &url)], "")).await;
    assert_eq!(location(&remote(&server)).await, Some(expected), "the registry itself is plain http");

    let server = Scripted::start(|request, _| match request.path.as_str() {
        "/moved" => reply(200, &[], "content"),
        _ => reply(307, &[("location", "/moved")], ""),
    })
    .await;
    assert_eq!(location(&remote(&server)).await, None, "only we may read at the registry itself");
}

#[tokio::test]
async fn a_location_with_a_credential_of_ours_in_it_is_handed_to_nobody() {
    for secret in ["token-ann-1", "x%2Dtoken%2Dann%2D1"] {
        let storage = Scripted::start(|_, _| reply(200, &[], "content")).await;
        for url in [storage.url(&format!("/b?token={secret}")), storage.url(&format!("/{secret}/b"))] {
            let registry = TokenRegistry::start(move |_| reply(307, &[("location", &url)], "")).await;
            assert_eq!(location(&remote_as(&registry.server, "ann")).await, None, "{secret}");
        }
    }
    let storage = Scripted::start(|_, _| reply(200, &[], "content")).await;
    let url = storage.url("/b?password=s3cret");
    let registry = Scripted::start(move |request, _| {
        if request.header("authorization").is_empty() {
            return reply(401, &[("www-authenticate", "Basic realm=\"r\"")], "");
        }
        reply(307, &[("location", &url)], "")
    })
    .await;
    assert_eq!(location(&remote_as(&registry, "ann")).await, None);
}

#[tokio::test]
async fn the_url_of_a_blob_names_the_registry_itself_and_nobody_s_credential() {
    let registry = TokenRegistry::start(|_| status(200)).await;
    let digest = Digest::of(b"content");
    let url = remote_as(&registry.server, "ann").blob_url(&repository(), &digest).await.unwrap();
    assert_eq!(url.as_str(), registry.server.url(&format!("/v2/acme/vpc/blobs/{digest}")));
    assert!(registry.server.lines().is_empty(), "nothing is asked but how the registry is spoken to");
}

#[tokio::test]
async fn bodies_without_end_are_broken_off() {
    for code in [200, 404, 400, 401] {
        let taken = Arc::new(Mutex::new(0));
        let counter = Arc::clone(&taken);
        let server = Scripted::start(move |request, _| match request.path.as_str() {
            "/v2/" => status(200),
            _ => reply(code, &[("content-type", IMAGE_MANIFEST)], endless(&counter)),
        })
        .await;
        let remote = remote(&server);
        remote.manifest(&repository(), &tag("v1")).await.unwrap_err();
        remote.tags(&repository(), &PageRequest::default()).await.unwrap_err();
        let _ = remote.referrers(&repository(), &Digest::of(b"x"), None, &PageRequest::default()).await;
        remote
            .put_blob(&repository(), &Digest::of(b"x"), &BytesSource(Bytes::from_static(b"x")))
            .await
            .unwrap_err();
        assert!(!remote.mount(&repository(), &Digest::of(b"x"), None).await.unwrap());
        // Six answers of at most 4 MiB, and what lies in the buffers of the connections.
        assert!(*taken.lock().unwrap() < 6 * 64 + 6 * 200, "{code}: {}", *taken.lock().unwrap());
    }
}

#[tokio::test]
async fn a_token_without_end_is_broken_off() {
    let taken = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&taken);
    let server = Scripted::start(move |request, _| {
        if request.path.starts_with("/token") {
            return reply(200, &[], endless(&counter));
        }
        let realm = format!("Bearer realm=\"http://{}/token\"", request.header("host"));
        reply(401, &[("www-authenticate", &realm)], "")
    })
    .await;
    let error = remote(&server).manifest(&repository(), &tag("v1")).await.unwrap_err();
    assert!(matches!(error, RegistryError::TooLarge { .. }), "{error}");
    assert!(*taken.lock().unwrap() < 16 + 200);
}

#[tokio::test]
async fn a_registry_that_never_answers_is_left() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let moment = Duration::from_millis(30);
    let registry = listener.local_addr().unwrap().to_string().parse().unwrap();
    let options = RemoteOptions {
        plain_http: Some(true),
        timeouts: Timeouts { answer: moment, idle: moment, commit: moment, ..Timeouts::default() },
        retry: RetryPolicy { tries: 1, ..RetryPolicy::default() },
        ..RemoteOptions::new(registry, CredentialSource::none())
    };
    let error = RemoteRegistry::new(options).unwrap().manifest(&repository(), &tag("v1")).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn a_transfer_that_halts_or_breaks_is_an_error() {
    for body in [true, false] {
        let server = Scripted::open(move |_| {
            let rest = if body {
                broken(b"cont")
            } else {
                Body::from_stream(
                    futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"cont"))])
                        .chain(futures_util::stream::pending()),
                )
            };
            reply(200, &[("content-length", "7")], rest)
        })
        .await;
        let mut options = options(&server, Credential::Anonymous);
        options.timeouts.idle = Duration::from_millis(50);
        let remote = RemoteRegistry::new(options).unwrap();
        let any: &dyn Registry = &remote;
        let error = any.small_blob(&repository(), &Digest::of(b"content"), 99).await.unwrap_err();
        assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
    }
}

async fn content_of(remote: &RemoteRegistry) -> crate::registry::Result<Bytes> {
    let any: &dyn Registry = remote;
    any.small_blob(&repository(), &Digest::of(b"content"), 99).await
}

#[tokio::test]
async fn a_download_that_breaks_off_is_taken_up_where_it_stopped() {
    for (name, sent_back) in [("\"v1\"", "\"v1\""), ("W/\"v1\"", "")] {
        let server = Scripted::open(move |request| match request.header("range").as_str() {
            "" => reply(200, &[("content-length", "7"), ("etag", name)], broken(b"cont")),
            "bytes=4-6" => reply(206, &[("content-range", "bytes 4-6/7")], "ent"),
            _ => status(416),
        })
        .await;
        assert_eq!(content_of(&remote(&server)).await.unwrap(), "content");
        let again = server.requests().pop().unwrap();
        assert_eq!(again.header("if-range"), sent_back, "a weak name names no bytes");
    }
}

#[tokio::test]
async fn a_registry_that_knows_no_pieces_gives_the_whole_again() {
    let server = Scripted::open(move |request| match request.header("range").as_str() {
        "" => reply(200, &[("content-length", "7")], broken(b"cont")),
        _ => reply(200, &[], "content"),
    })
    .await;
    assert_eq!(content_of(&remote(&server)).await.unwrap(), "content");
}

#[tokio::test]
async fn what_was_put_together_is_verified_as_one() {
    for (headers, body) in
        [(&[("content-range", "bytes 4-6/7")][..], "ENT"), (&[][..], "CONTENT"), (&[][..], "co")]
    {
        let code = if headers.is_empty() { 200 } else { 206 };
        let server = Scripted::open(move |request| match request.header("range").as_str() {
            "" => reply(200, &[("content-length", "7")], broken(b"cont")),
            _ => reply(code, headers, body),
        })
        .await;
        let error = content_of(&remote(&server)).await.unwrap_err();
        assert!(
            matches!(error, RegistryError::DigestMismatch { .. } | RegistryError::SizeMismatch { .. }),
            "{error}"
        );
    }
    for range in ["bytes 3-6/7", "bytes 4-7/8", "bytes 4-5/7", "bytes 4-6/*"] {
        let server = Scripted::open(move |request| match request.header("range").as_str() {
            "" => reply(200, &[("content-length", "7")], broken(b"cont")),
            _ => reply(206, &[("content-range", range)], "ent"),
        })
        .await;
        let error = content_of(&remote(&server)).await.unwrap_err();
        assert!(matches!(error, RegistryError::Protocol { .. }), "{range}: {error}");
    }
}

#[tokio::test]
async fn a_piece_that_breaks_off_is_taken_up_too() {
    let server = Scripted::open(move |request| match request.header("range").as_str() {
        "bytes=1-5" => {
            reply(206, &[("content-range", "bytes 1-5/7"), ("content-length", "5")], broken(b"on"))
        }
        "bytes=3-5" => reply(206, &[("content-range", "bytes 3-5/7")], "ten"),
        _ => status(416),
    })
    .await;
    let wanted =
        BlobRequest { range: Some(ByteRange::FromTo { first: 1, last: 5 }), ..BlobRequest::default() };
    let Ok(Blob::Stream(blob)) = remote(&server).blob(&repository(), &Digest::of(b"content"), wanted).await
    else {
        panic!("the piece is there")
    };
    assert_eq!(read_bounded(blob.bytes, 99).await.unwrap(), "onten");
}

#[tokio::test]
async fn a_download_is_taken_up_at_the_registry_and_not_at_a_link_that_may_have_expired() {
    let storage =
        Scripted::start(|request, _| match (request.path.as_str(), request.header("range").as_str()) {
            ("/1", "") => reply(200, &[("content-length", "7")], broken(b"cont")),
            ("/2", "bytes=4-6") => reply(206, &[("content-range", "bytes 4-6/7")], "ent"),
            _ => status(403),
        })
        .await;
    let (url, given) = (storage.url("/"), AtomicUsize::new(0));
    let registry = TokenRegistry::start(move |_| {
        let number = given.fetch_add(1, Ordering::SeqCst) + 1;
        reply(307, &[("location", &format!("{url}{number}"))], "")
    })
    .await;
    assert_eq!(content_of(&remote_as(&registry.server, "ann")).await.unwrap(), "content");
    assert_eq!(storage.lines(), ["GET /1", "GET /2"]);
    assert!(storage.requests().iter().all(|request| request.header("authorization").is_empty()));
}

#[tokio::test]
async fn a_download_that_never_gets_on_is_given_up() {
    for whole in [true, false] {
        let server = Scripted::open(move |request| match (whole, request.header("range").as_str()) {
            (true, _) | (_, "") => reply(200, &[("content-length", "7")], broken(b"cont")),
            _ => reply(206, &[("content-range", "bytes 4-6/7"), ("content-length", "3")], broken(b"")),
        })
        .await;
        let error = content_of(&remote(&server)).await.unwrap_err();
        assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
        assert_eq!(server.lines().len(), 3, "as often as any request");
    }
}

#[tokio::test]
async fn a_blob_that_drips_is_given_up() {
    let server = Scripted::open(|_| {
        let drops = futures_util::stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok::<_, std::io::Error>(Bytes::from_static(b"x"))
        });
        reply(200, &[("content-length", "1000000000")], Body::from_stream(drops))
    })
    .await;
    let mut options = options(&server, Credential::Anonymous);
    options.timeouts.idle = Duration::from_millis(500);
    let remote = RemoteRegistry::new(options).unwrap();
    let any: &dyn Registry = &remote;
    let error = any.small_blob(&repository(), &Digest::of(b"content"), u64::MAX).await.unwrap_err();
    assert!(
        matches!(&error, RegistryError::Unavailable { reason, .. } if reason.contains("slow")),
        "{error}"
    );
    assert_eq!(server.lines().len(), 1, "and not begun again");
}

#[tokio::test]
async fn manifests_are_known_by_their_bytes() {
    let digest = Digest::of(MANIFEST.as_bytes());
    let lie = Digest::of(b"lie").to_string();
    let server = Scripted::start(move |request, _| {
        let headers = [("content-type", "application/vnd.oci.image.manifest.v1+json; charset=utf-8")];
        let mut response = reply(200, &headers, if request.method == "HEAD" { "" } else { MANIFEST });
        response.headers_mut().insert("docker-content-digest", lie.parse().unwrap());
        response
    })
    .await;
    let remote = remote(&server);
    let manifest = remote.manifest(&repository(), &tag("v1")).await.unwrap();
    assert_eq!((manifest.digest, manifest.media_type.as_str()), (digest.clone(), IMAGE_MANIFEST));
    assert_eq!(remote.manifest(&repository(), &digest.into()).await.unwrap().bytes, MANIFEST);
    let other = remote.manifest(&repository(), &Digest::of(b"other").into()).await;
    assert!(matches!(other, Err(RegistryError::DigestMismatch { .. })));
    let sha512: Digest = format!("sha512:{}", "0".repeat(128)).parse().unwrap();
    let other = remote.manifest(&repository(), &sha512.into()).await;
    assert!(matches!(other, Err(RegistryError::DigestMismatch { .. })));
}

/// The digest of a text in the algorithm that is not the usual one.
fn by_sha512(text: &str) -> Digest {
    let mut hasher = Hasher::new(Algorithm::Sha512);
    hasher.update(text.as_bytes());
    hasher.finish()
}

#[tokio::test]
async fn a_manifest_that_its_tag_knows_by_sha512_is_known_by_that() {
    let (sha512, lie) = (by_sha512(MANIFEST), by_sha512("lie"));
    for (header, known_by) in [(&sha512, &sha512), (&lie, &Digest::of(MANIFEST.as_bytes()))] {
        let header = header.to_string();
        let server = Scripted::start(move |_, _| {
            reply(200, &[("content-type", IMAGE_MANIFEST), ("docker-content-digest", &header)], MANIFEST)
        })
        .await;
        assert_eq!(remote(&server).manifest(&repository(), &tag("v1")).await.unwrap().digest, *known_by);
    }
}

#[tokio::test]
async fn a_head_without_a_digest_is_read() {
    let server = Scripted::start(|_, _| manifest(MANIFEST)).await;
    let head = remote(&server).manifest_head(&repository(), &tag("v1")).await.unwrap();
    assert_eq!((head.digest, head.size), (Digest::of(MANIFEST.as_bytes()), MANIFEST.len() as u64));
    assert_eq!(server.lines(), ["HEAD /v2/acme/vpc/manifests/v1", "GET /v2/acme/vpc/manifests/v1"]);
}

#[tokio::test]
async fn a_page_of_html_is_no_manifest() {
    let server = Scripted::start(|_, _| reply(200, &[("content-type", "text/html")], "<html>")).await;
    let error = remote(&server).manifest(&repository(), &tag("v1")).await.unwrap_err();
    assert!(matches!(error, RegistryError::ManifestInvalid(_)), "{error}");
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let body = |code: &str| format!(r#"{{"errors":[{{"code":"{code}","message":"s3cret"}}]}}"#);
    for (code, text, expected) in [
        (404, body("MANIFEST_UNKNOWN"), "ManifestUnknown"),
        (404, body("NAME_UNKNOWN"), "RepositoryUnknown"),
        (404, body("NOT_FOUND"), "ManifestUnknown"),
        (404, "<html>s3cret".into(), "ManifestUnknown"),
        (403, body("DENIED"), "Denied"),
        (401, body("UNAUTHORIZED"), "Unauthorized"),
        (405, body("UNSUPPORTED"), "Unsupported"),
        (400, body("UNSUPPORTED"), "Unsupported"),
        (400, body("s3cret"), "Protocol"),
        (501, String::new(), "Unsupported"),
        (503, "s3cret".into(), "Unavailable"),
        (507, "s3cret".into(), "Full"),
        (413, "<html>s3cret".into(), "SizeRefused"),
        (429, "s3cret".into(), "TooManyRequests"),
        (418, String::new(), "Protocol"),
    ] {
        let server = Scripted::start(move |request, _| match request.path.as_str() {
            "/v2/" => status(200),
            _ => reply(code, &[], text.clone()),
        })
        .await;
        let error = remote(&server).manifest(&repository(), &tag("v1")).await.unwrap_err();
        let shown = format!("{error:?} {error}");
        assert!(shown.starts_with(expected), "{code}: {shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[tokio::test]
async fn a_signed_url_that_fails_is_in_no_error() {
    for code in [403, 500] {
        let storage = Scripted::start(move |_, _| reply(code, &[], "X-Sig=s3cret")).await;
        let url = storage.url("/blob?X-Sig=s3cret");
        let server = Scripted::start(move |_, _| reply(307, &[("location", &url)], "")).await;
        let error =
            remote(&server).blob(&repository(), &Digest::of(b"x"), BlobRequest::default()).await.unwrap_err();
        assert!(!format!("{error:?} {error}").contains("s3cret"));
    }
    let server =
        Scripted::start(|_, _| reply(307, &[("location", "http://127.0.0.1:1/blob?X-Sig=s3cret")], "")).await;
    let error =
        remote(&server).blob(&repository(), &Digest::of(b"x"), BlobRequest::default()).await.unwrap_err();
    assert!(!format!("{error:?} {error}").contains("s3cret"), "{error:?}");
}

#[tokio::test]
async fn failures_that_pass_are_tried_again() {
    let server = Scripted::start(|request, before| match (request.path.as_str(), before) {
        ("/v2/", _) => status(200),
        (_, 1) => status(503),
        (_, 2) => reply(429, &[("retry-after", "0")], ""),
        _ => manifest(MANIFEST),
    })
    .await;
    remote(&server).manifest(&repository(), &tag("v1")).await.unwrap();
    assert_eq!(server.lines().len(), 3);

    let server = Scripted::start(|request, _| match request.path.as_str() {
        "/v2/" => status(200),
        _ => reply(429, &[("retry-after", "90")], ""),
    })
    .await;
    let error = remote(&server).manifest(&repository(), &tag("v1")).await.unwrap_err();
    let asked = Some(Duration::from_secs(90));
    assert!(
        matches!(error, RegistryError::TooManyRequests { retry_after, .. } if retry_after == asked),
        "{error}"
    );
    assert_eq!(server.lines().len(), 1, "nobody waits that long");
}

async fn all(remote: &RemoteRegistry) -> crate::registry::Result<Vec<String>> {
    let any: &dyn Registry = remote;
    let tags = any.all_tags(&repository(), 5000).await?;
    Ok(tags.iter().map(ToString::to_string).collect())
}

#[tokio::test]
async fn tags_are_paged_by_link_with_whatever_it_holds() {
    let server = Scripted::start(|request, _| match request.path.as_str() {
        "/v2/acme/vpc/tags/list?n=1000" => reply(
            200,
            &[("link", r#"</v2/acme/vpc/tags/list?last=b%2Fopaque%3D&n=2>; rel="next""#)],
            r#"{"tags":["b","a",null,"not a tag",7]}"#,
        ),
        "/v2/acme/vpc/tags/list?last=b%2Fopaque%3D&n=2" => reply(200, &[], r#"{"tags":["c"]}"#),
        _ => status(404),
    })
    .await;
    assert_eq!(all(&remote(&server)).await.unwrap(), ["b", "a", "c"]);
}

#[tokio::test]
async fn a_link_to_elsewhere_is_not_followed() {
    let thief = Scripted::start(|_, _| reply(200, &[], r#"{"tags":["stolen"]}"#)).await;
    let port = thief.address.port();
    let linking = async |host: &str| {
        let link = format!("<http://{host}:{port}/v2/acme/vpc/tags/list?last=a>; rel=\"next\"");
        TokenRegistry::start(move |_| reply(200, &[("link", &link)], r#"{"tags":["a"],"manifests":[]}"#))
            .await
    };
    let other_host = linking("localhost").await;
    let remote = remote_as(&other_host.server, "ann");
    let error = all(&remote).await.unwrap_err();
    assert!(matches!(error, RegistryError::Protocol { .. }), "nobody knows what is missing: {error}");
    let page = PageRequest::default();
    remote.referrers(&repository(), &Digest::of(b"x"), None, &page).await.unwrap_err();

    // Behind a proxy a registry may not know its own port: what the link asks for is asked of the registry itself.
    let other_port = linking("127.0.0.1").await;
    assert_eq!(all(&remote_as(&other_port.server, "ann")).await.unwrap(), ["a"]);
    assert!(thief.requests().is_empty());
}

#[tokio::test]
async fn lists_without_end_come_to_one() {
    let same = r#"</v2/acme/vpc/tags/list?last=a>; rel="next""#;
    let server = Scripted::start(move |_, _| reply(200, &[("link", same)], r#"{"tags":["a"]}"#)).await;
    assert_eq!(all(&remote(&server)).await.unwrap(), ["a"], "the same page again is the end");

    let link = |before: usize| format!("</v2/acme/vpc/tags/list?last={before}>; rel=\"next\"");
    let server =
        Scripted::start(move |_, before| reply(200, &[("link", &link(before))], r#"{"tags":[]}"#)).await;
    assert!(matches!(all(&remote(&server)).await, Err(RegistryError::Protocol { .. })));
    assert!(server.lines().len() < 20);

    let many = |before: usize| {
        let tags: Vec<_> = (0..1000).map(|number| format!("x{before}-{number}")).collect();
        serde_json::json!({ "tags": tags }).to_string()
    };
    let server = Scripted::start(move |_, before| reply(200, &[("link", &link(before))], many(before))).await;
    assert!(matches!(all(&remote(&server)).await, Err(RegistryError::TooMany { .. })));
}

#[tokio::test]
async fn a_list_whose_pages_come_again_under_new_links_ends() {
    let link = |before: usize| format!("</v2/acme/vpc/tags/list?last={before}>; rel=\"next\"");
    let pages = [r#"{"tags":["c","a","c"]}"#, r#"{"tags":["a","b"]}"#, r#"{"tags":["b","c"]}"#];
    let server = Scripted::start(move |_, before| {
        reply(200, &[("link", &link(before))], pages[before.saturating_sub(1).min(2)])
    })
    .await;
    assert_eq!(
        all(&remote(&server)).await.unwrap(),
        ["c", "a", "b"],
        "each once, and nothing new is the end"
    );
    // The last was asked for while the third came, of which nothing was new.
    assert_eq!(server.lines().len(), 4);
}

#[tokio::test]
async fn a_registry_that_refuses_n_is_asked_without() {
    let server = Scripted::start(|request, _| match request.path.as_str() {
        "/v2/" => status(200),
        "/v2/acme/vpc/tags/list" => reply(200, &[], r#"{"name":"acme/vpc","tags":["a"]}"#),
        _ => status(413),
    })
    .await;
    let remote = remote(&server);
    assert_eq!(all(&remote).await.unwrap(), ["a"]);
    assert_eq!(all(&remote).await.unwrap(), ["a"]);
    assert_eq!(server.lines().len(), 3, "it is told so once");
}

#[tokio::test]
async fn a_made_up_page_leads_to_no_other_path() {
    let server = Scripted::start(|_, _| reply(200, &[], r#"{"tags":null}"#)).await;
    let remote = remote(&server);
    for after in ["/v2/_catalog", "?n=1#x", "?x=/../../y", "//evil.example/x", "a&n=9", "?../.."] {
        let page = PageRequest { count: Some(5), after: Some(after.into()) };
        remote.tags(&repository(), &page).await.unwrap();
    }
    for request in server.requests().iter().skip(1) {
        assert!(request.path.starts_with("/v2/acme/vpc/tags/list?"), "{}", request.path);
    }
}

#[tokio::test]
async fn a_registry_without_a_catalog_says_so() {
    for code in [403, 404, 405, 501] {
        let server = Scripted::start(move |request, _| match request.path.as_str() {
            "/v2/" => status(200),
            _ => status(code),
        })
        .await;
        let error = remote(&server).repositories(&PageRequest::default()).await.unwrap_err();
        assert!(matches!(error, RegistryError::NoCatalog), "{code}: {error}");
    }
    let server = Scripted::start(|_, _| reply(200, &[], r#"{"repositories":["a/b","UPPER"]}"#)).await;
    let page = remote(&server).repositories(&PageRequest::default()).await.unwrap();
    assert_eq!(page.items, ["a/b".parse().unwrap()]);
}

/// Sends `content` as the blob of `content`.
async fn push(remote: &RemoteRegistry, content: &'static str) -> crate::registry::Result<()> {
    let bytes = Bytes::from_static(content.as_bytes());
    remote.put_blob(&repository(), &Digest::of(&bytes), &BytesSource(bytes)).await
}

#[tokio::test]
async fn blobs_are_sent_whole_to_whatever_location() {
    let digest = Digest::of(b"content");
    for location in ["/v2/acme/vpc/blobs/uploads/1?state=a%3D", "1?state=a%3D"] {
        let server = Scripted::start(move |request, _| match request.method.as_str() {
            "POST" => reply(202, &[("location", location)], ""),
            "PUT" => status(201),
            _ => status(200),
        })
        .await;
        push(&remote(&server), "content").await.unwrap();
        let put = server.requests().pop().unwrap();
        assert_eq!(put.line(), format!("PUT /v2/acme/vpc/blobs/uploads/1?state=a%3D&digest={digest}"));
        assert_eq!((put.body.as_ref(), put.header("content-length").as_str()), (&b"content"[..], "7"));
    }
}

#[tokio::test]
async fn an_upload_elsewhere_gets_no_credentials() {
    let storage = Scripted::start(|_, _| status(201)).await;
    let url = storage.url("/upload?sig=1");
    let registry = TokenRegistry::start(move |_| reply(202, &[("location", &url)], "")).await;
    push(&remote_as(&registry.server, "ann"), "content").await.unwrap();
    let requests = storage.requests();
    assert_eq!((requests.len(), requests[0].body.as_ref()), (1, &b"content"[..]));
    assert_eq!(requests[0].header("authorization"), "");
}

#[tokio::test]
async fn an_upload_leads_to_no_inner_address_and_not_to_nowhere() {
    for headers in [&[("location", "http://169.254.169.254/x")][..], &[("location", "http://[::")], &[]] {
        let server = Scripted::start(move |_, _| reply(202, headers, "")).await;
        let error = push(&remote(&server), "content").await.unwrap_err();
        assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_failed_transfer_is_begun_again() {
    let server = Scripted::start(|request, before| match request.method.as_str() {
        "POST" => reply(202, &[("location", &format!("/u/{before}"))], ""),
        "PUT" if before < 3 => status(503),
        "PUT" => status(201),
        "HEAD" => status(404),
        _ => status(200),
    })
    .await;
    push(&remote(&server), "content").await.unwrap();
    let puts: Vec<_> = server.requests().into_iter().filter(|request| request.method == "PUT").collect();
    assert_eq!(puts.len(), 2);
    assert!(puts.iter().all(|put| put.body == "content"), "the source is opened again");
    assert_ne!(puts[0].path, puts[1].path, "a session is used once");
}

#[tokio::test]
async fn a_token_may_run_out_in_the_middle_of_an_upload() {
    let registry = TokenRegistry::start(|request| {
        match (request.method.as_str(), request.header("authorization").ends_with("-1")) {
            ("POST", _) => reply(202, &[("location", "/u")], ""),
            ("PUT", true) => status(401),
            _ => status(201),
        }
    })
    .await;
    push(&remote_as(&registry.server, "ann"), "content").await.unwrap();
    assert_eq!(registry.tokens(), 2);
    let registry = TokenRegistry::start(|request| match request.method.as_str() {
        "POST" => reply(202, &[("location", "/u")], ""),
        _ => status(401),
    })
    .await;
    let error = push(&remote_as(&registry.server, "ann"), "content").await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
}

#[tokio::test]
async fn a_redirected_upload_is_sent_again_from_its_beginning() {
    let server = Scripted::start(|request, _| match request.method.as_str() {
        "POST" => reply(202, &[("location", "/u")], ""),
        "PUT" if request.path.starts_with("/u") => reply(307, &[("location", "/w")], ""),
        "PUT" => status(201),
        _ => status(200),
    })
    .await;
    push(&remote(&server), "content").await.unwrap();
    assert_eq!(server.requests().pop().unwrap().body, "content");
}

#[tokio::test]
async fn a_source_with_other_bytes_is_not_sent_to_its_end() {
    let server = Scripted::start(|request, _| match request.method.as_str() {
        "POST" => reply(202, &[("location", "/u")], ""),
        _ => status(201),
    })
    .await;
    let source = BytesSource(Bytes::from_static(b"kontent"));
    let error = remote(&server).put_blob(&repository(), &Digest::of(b"content"), &source).await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
    assert!(server.requests().iter().all(|request| request.body != "kontent"));
}

#[tokio::test]
async fn a_blob_that_arrived_in_spite_of_a_failure_is_not_sent_again() {
    for bearer in [true, false] {
        let server = Scripted::start(move |request, _| {
            if request.path.starts_with("/token") {
                return reply(200, &[], r#"{"token":"t"}"#);
            }
            if request.header("authorization").is_empty() {
                let realm = if bearer {
                    format!("Bearer realm=\"http://{}/token\"", request.header("host"))
                } else {
                    "Basic realm=\"r\"".to_owned()
                };
                return reply(401, &[("www-authenticate", &realm)], "");
            }
            match request.method.as_str() {
                "POST" => reply(202, &[("location", "/u")], ""),
                "PUT" => status(504),
                _ => status(200),
            }
        })
        .await;
        push(&remote_as(&server, "ann"), "content").await.unwrap();
        let lines: Vec<_> = server.requests().iter().map(Request::line).collect();
        assert_eq!(
            lines.iter().filter(|line| *line == "GET /v2/").count(),
            1,
            "no handshake but ours: {lines:?}"
        );
        assert_eq!(lines.iter().filter(|line| line.starts_with("PUT")).count(), 1);
        let head = server.requests().pop().unwrap();
        assert_eq!(head.line(), format!("HEAD /v2/acme/vpc/blobs/{}", Digest::of(b"content")));
        let expected = if bearer { "Bearer t".to_owned() } else { basic_header("ann") };
        assert_eq!(head.header("authorization"), expected);
    }
}

#[tokio::test]
async fn the_question_whether_a_blob_arrived_leads_nowhere() {
    let thief = Scripted::start(|_, _| status(200)).await;
    let url = format!("http://localhost:{}/x", thief.address.port());
    let server = Scripted::start(move |request, _| match request.method.as_str() {
        "HEAD" => reply(307, &[("location", &url)], ""),
        "POST" => reply(202, &[("location", "/u")], ""),
        "PUT" => status(504),
        _ => status(200),
    })
    .await;
    push(&remote(&server), "content").await.unwrap_err();
    assert!(thief.requests().is_empty());
}

/// Why pushes are not left to `oci-client`: should this fail, a new version of it keeps more than the one in use.
#[tokio::test]
async fn oci_client_reads_refusals_whole() {
    install_crypto_provider();
    let server = Scripted::start(|_, _| reply(500, &[], vec![b'x'; 8 * 1024 * 1024])).await;
    let config = oci_client::client::ClientConfig {
        protocol: oci_client::client::ClientProtocol::Http,
        use_monolithic_push: true,
        ..oci_client::client::ClientConfig::default()
    };
    let client = oci_client::Client::try_from(config).unwrap();
    let reference = oci_client::Reference::with_tag(server.address.to_string(), "a".into(), "b".into());
    let digest = Digest::of(b"").to_string();
    let outcome = client.push_blob_stream(&reference, futures_util::stream::empty(), &digest, Some(0)).await;
    match outcome.unwrap_err() {
        oci_client::errors::OciDistributionError::ServerError { message, .. } => {
            assert_eq!(message.len(), 8 << 20);
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_mount_is_done_or_it_is_not() {
    let digest = Digest::of(b"x");
    let other: Repository = "acme/other".parse().unwrap();
    for (code, done) in [(201, true), (202, false), (404, false), (403, false), (500, false), (405, false)] {
        let registry = TokenRegistry::start(move |request| match request.method.as_str() {
            "POST" => reply(code, &[("location", "/u/1")], ""),
            _ => status(204),
        })
        .await;
        let remote = remote_as(&registry.server, "ann");
        assert_eq!(remote.mount(&repository(), &digest, Some(&other)).await.unwrap(), done, "{code}");
        let lines = registry.server.lines();
        let mount = format!("POST /v2/acme/vpc/blobs/uploads/?mount={digest}&from=acme/other");
        let tries = if code == 500 { 3 } else { 1 };
        assert_eq!(lines.iter().filter(|line| **line == mount).count(), tries, "{lines:?}");
        let scopes = "scope=repository%3Aacme%2Fvpc%3Apull%2Cpush&scope=repository%3Aacme%2Fother%3Apull";
        assert!(lines.iter().any(|line| line.contains(scopes)), "{lines:?}");
        assert_eq!(lines.iter().any(|line| line == "DELETE /u/1"), code == 202, "no session is left behind");
    }
}

fn new_manifest(tags: &[&str], condition: Condition) -> NewManifest {
    NewManifest {
        media_type: IMAGE_MANIFEST.into(),
        bytes: Bytes::from_static(MANIFEST.as_bytes()),
        digest: None,
        tags: tags.iter().map(|tag| tag.parse().unwrap()).collect(),
        condition,
    }
}

#[tokio::test]
async fn a_manifest_is_put_without_a_location_in_the_answer() {
    let server = Scripted::start(|request, _| match request.method.as_str() {
        "PUT" => status(201),
        _ => status(200),
    })
    .await;
    let remote = remote(&server);
    let digest = Digest::of(MANIFEST.as_bytes());
    let put = remote.put_manifest(&repository(), &new_manifest(&[], Condition::None)).await.unwrap();
    assert_eq!(put, PutManifest { digest: digest.clone(), subject: None });
    remote.put_manifest(&repository(), &new_manifest(&["a", "b"], Condition::None)).await.unwrap();
    let path = "PUT /v2/acme/vpc/manifests/";
    let [by_digest, a, b] = [digest.to_string(), "a".into(), "b".into()].map(|name| format!("{path}{name}"));
    assert_eq!(server.lines(), [by_digest.clone(), format!("{by_digest}?tag=a&tag=b"), a, b]);
    let request = server.requests().pop().unwrap();
    assert_eq!(
        (request.body.as_ref(), request.header("content-type").as_str()),
        (MANIFEST.as_bytes(), IMAGE_MANIFEST)
    );

    let named = NewManifest { digest: Some(Digest::of(b"other")), ..new_manifest(&["c"], Condition::None) };
    let error = remote.put_manifest(&repository(), &named).await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
}

#[tokio::test]
async fn tags_are_set_together_where_the_registry_can_do_that() {
    let server = Scripted::start(|request, _| {
        let set = |tags: &[&str]| {
            let headers: Vec<_> = tags.iter().map(|tag| ("oci-tag", *tag)).collect();
            reply(201, &headers, "")
        };
        match request.path.split_once('?') {
            Some((_, "tag=a&tag=b")) => set(&["a", "b"]),
            Some((_, "tag=a")) => set(&["a"]),
            _ => status(200),
        }
    })
    .await;
    let remote = remote(&server);
    remote.put_manifest(&repository(), &new_manifest(&["a", "b"], Condition::None)).await.unwrap();
    // A tag in the path would store it by sha256.
    let sha512 = by_sha512(MANIFEST);
    let named = NewManifest { digest: Some(sha512.clone()), ..new_manifest(&["a"], Condition::None) };
    assert_eq!(remote.put_manifest(&repository(), &named).await.unwrap().digest, sha512);
    let path = "PUT /v2/acme/vpc/manifests/";
    let digest = Digest::of(MANIFEST.as_bytes());
    assert_eq!(server.lines(), [format!("{path}{digest}?tag=a&tag=b"), format!("{path}{sha512}?tag=a")]);
}

#[tokio::test]
async fn a_tag_that_may_not_move_holds_back_the_others() {
    let server = Scripted::start(|request, _| match request.path.as_str() {
        "/v2/" => status(200),
        "/v2/acme/vpc/manifests/taken" => manifest("{}"),
        _ => status(404),
    })
    .await;
    let new = new_manifest(&["free", "taken"], Condition::AbsentOrSame);
    let error = remote(&server).put_manifest(&repository(), &new).await.unwrap_err();
    assert!(matches!(error, RegistryError::TagExists { tag, .. } if tag.as_str() == "taken"));
    assert!(server.lines().iter().all(|line| !line.starts_with("PUT")));
}

#[tokio::test]
async fn what_is_no_manifest_is_not_sent() {
    let server = Scripted::start(|_, _| status(201)).await;
    for (media_type, bytes) in [(IMAGE_MANIFEST, "{"), (IMAGE_INDEX, MANIFEST), ("text/plain", MANIFEST)] {
        let new = NewManifest {
            media_type: media_type.into(),
            bytes: bytes.into(),
            ..new_manifest(&["v1"], Condition::None)
        };
        let error = remote(&server).put_manifest(&repository(), &new).await.unwrap_err();
        assert!(matches!(error, RegistryError::ManifestInvalid(_)), "{error}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_tag_that_is_there_stays() {
    for (there, outcome) in [(MANIFEST, true), ("{}", false)] {
        let server = Scripted::start(move |_, _| manifest(there)).await;
        let new = new_manifest(&["v1"], Condition::AbsentOrSame);
        let put = remote(&server).put_manifest(&repository(), &new).await;
        assert_eq!(put.is_ok(), outcome);
        if let Err(error) = put {
            assert!(matches!(error, RegistryError::TagExists { .. }), "{error}");
        }
        assert!(server.lines().iter().all(|line| !line.starts_with("PUT")));
    }
}

#[tokio::test]
async fn who_pushes_a_tag_at_the_same_time_is_noticed() {
    let server = Scripted::start(|request, before| match (request.method.as_str(), before) {
        ("PUT", _) => status(201),
        (_, 0) => status(200),
        (_, 1) => status(404),
        _ => manifest("{}"),
    })
    .await;
    let new = new_manifest(&["v1"], Condition::AbsentOrSame);
    let error = remote(&server).put_manifest(&repository(), &new).await.unwrap_err();
    assert!(matches!(error, RegistryError::TagExists { .. }), "{error}");
}

#[tokio::test]
async fn a_registry_with_immutable_tags_is_understood() {
    let server = Scripted::start(|request, _| match request.method.as_str() {
        "PUT" => reply(400, &[], r#"{"errors":[{"code":"TAG_INVALID"}]}"#),
        _ => manifest("{}"),
    })
    .await;
    let error = remote(&server)
        .put_manifest(&repository(), &new_manifest(&["v1"], Condition::None))
        .await
        .unwrap_err();
    assert!(matches!(error, RegistryError::TagExists { existing, .. } if existing == Digest::of(b"{}")));
}

#[tokio::test]
async fn a_missing_blob_is_named() {
    let missing = Digest::of(b"missing");
    let body =
        format!(r#"{{"errors":[{{"code":"MANIFEST_BLOB_UNKNOWN","detail":{{"digest":"{missing}"}}}}]}}"#);
    let server = Scripted::start(move |request, _| match request.method.as_str() {
        "PUT" => reply(400, &[], body.clone()),
        _ => status(404),
    })
    .await;
    let error = remote(&server)
        .put_manifest(&repository(), &new_manifest(&["v1"], Condition::None))
        .await
        .unwrap_err();
    assert!(matches!(error, RegistryError::ManifestBlobUnknown(digest) if digest == missing));
}

/// A registry without a list of referrers, that keeps manifests by whatever they are put under.
async fn without_referrers() -> Scripted {
    let kept: Mutex<std::collections::HashMap<String, (String, Bytes)>> = Mutex::default();
    Scripted::start(move |request, _| {
        let mut kept = kept.lock().unwrap();
        match request.method.as_str() {
            _ if request.path == "/v2/" => status(200),
            "PUT" => {
                kept.insert(request.path.clone(), (request.header("content-type"), request.body.clone()));
                // Known by both, where it is known by a tag.
                let digest = format!("/v2/acme/vpc/manifests/{}", Digest::of(&request.body));
                kept.insert(digest, (request.header("content-type"), request.body.clone()));
                status(201)
            }
            "DELETE" => match kept.get(&request.path) {
                Some((_, body)) if String::from_utf8_lossy(body).contains("a/kept") => status(405),
                Some((_, body)) => {
                    // Its tags go with it.
                    let body = body.clone();
                    kept.retain(|_, (_, other)| *other != body);
                    status(202)
                }
                None => status(404),
            },
            _ => match kept.get(&request.path) {
                Some((media_type, body)) => reply(200, &[("content-type", media_type)], body.clone()),
                None => status(404),
            },
        }
    })
    .await
}

fn referrer(subject: &Digest, kind: &str) -> NewManifest {
    let config = MANIFEST.replace(
        r#""layers":[]"#,
        &format!(
            r#""layers":[],"artifactType":"{kind}","annotations":{{"k":"v"}},"subject":{{"mediaType":"{IMAGE_MANIFEST}","digest":"{subject}","size":7}}"#
        ),
    );
    NewManifest { bytes: config.into(), ..new_manifest(&[], Condition::None) }
}

#[tokio::test]
async fn referrers_are_kept_under_a_tag_where_the_registry_keeps_none() {
    let server = without_referrers().await;
    let remote = remote(&server);
    let subject = Digest::of(b"subject");
    let page = PageRequest::default();
    assert!(remote.referrers(&repository(), &subject, None, &page).await.unwrap().items.is_empty());
    let one = remote.put_manifest(&repository(), &referrer(&subject, "a/one")).await.unwrap();
    for _ in 0..2 {
        remote.put_manifest(&repository(), &referrer(&subject, "a/two")).await.unwrap();
    }
    let all = remote.referrers(&repository(), &subject, None, &page).await.unwrap().items;
    assert_eq!(all.len(), 2, "each once");
    assert!(all.iter().all(|found| found.annotations["k"] == "v"));
    let some = remote.referrers(&repository(), &subject, Some("a/one"), &page).await.unwrap().items;
    assert_eq!(some.iter().map(|found| &found.digest).collect::<Vec<_>>(), [&one.digest]);
    let fallback = format!("PUT /v2/acme/vpc/manifests/sha256-{}", subject.hex());
    assert_eq!(server.lines().iter().filter(|line| **line == fallback).count(), 2);
}

#[tokio::test]
async fn a_referrer_that_is_deleted_leaves_the_tag_for_its_subject() {
    let server = without_referrers().await;
    let remote = remote(&server);
    let subject = Digest::of(b"subject");
    let page = PageRequest::default();
    let mut digests = Vec::new();
    for kind in ["a/one", "a/two"] {
        digests.push(remote.put_manifest(&repository(), &referrer(&subject, kind)).await.unwrap().digest);
    }
    let listed = async || {
        let page = remote.referrers(&repository(), &subject, None, &page).await.unwrap();
        page.items.into_iter().map(|found| found.digest).collect::<Vec<_>>()
    };
    remote.delete_manifest(&repository(), &digests[0]).await.unwrap();
    assert_eq!(listed().await, digests[1..]);
    remote.delete_manifest(&repository(), &digests[1]).await.unwrap();
    assert_eq!(listed().await, []);
    let reference = Reference::Tag(Tag::of_referrers(&subject));
    let error = remote.manifest(&repository(), &reference).await.unwrap_err();
    assert!(error.is_not_found(), "a list of nothing is none: {error}");
    let error = remote.delete_manifest(&repository(), &digests[1]).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!(
        remote.put_manifest(&repository(), &referrer(&subject, "a/one")).await.unwrap().digest,
        digests[0]
    );
    assert_eq!(listed().await, digests[..1], "it can come again");
}

#[tokio::test]
async fn a_signature_that_cannot_be_deleted_is_found_still() {
    let server = without_referrers().await;
    let remote = remote(&server);
    let subject = Digest::of(b"subject");
    let put = remote.put_manifest(&repository(), &referrer(&subject, "a/kept")).await.unwrap();
    let error = remote.delete_manifest(&repository(), &put.digest).await;
    assert!(matches!(error, Err(RegistryError::Unsupported { .. })), "{error:?}");
    let listed = remote.referrers(&repository(), &subject, None, &PageRequest::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
}

#[tokio::test]
async fn a_registry_that_keeps_referrers_is_left_to_it() {
    let subject = Digest::of(b"subject");
    let header = subject.to_string();
    let server = Scripted::start(move |request, _| match request.method.as_str() {
        "PUT" => reply(201, &[("oci-subject", &header)], ""),
        _ => reply(200, &[("content-type", IMAGE_INDEX)], r#"{"schemaVersion":2,"manifests":[]}"#),
    })
    .await;
    let put = remote(&server).put_manifest(&repository(), &referrer(&subject, "a/b")).await.unwrap();
    assert_eq!(put.subject, Some(subject));
    assert_eq!(server.lines().iter().filter(|line| line.starts_with("PUT")).count(), 1);
}

#[tokio::test]
async fn referrers_come_in_pages_as_small_as_they_are_wanted() {
    let server = Scripted::start(|request, _| {
        let list = |texts: [&str; 3]| {
            let entries = texts.map(|text| Descriptor::of(IMAGE_MANIFEST, text.as_bytes()));
            serde_json::json!({"schemaVersion": 2, "manifests": entries}).to_string()
        };
        let (kind, link) = (("content-type", IMAGE_INDEX), ("link", r#"<?page=2>; rel="next""#));
        match request.path.split_once('?') {
            None => reply(200, &[kind, link], list(["a", "b", "c"])),
            Some(_) => reply(200, &[kind], list(["d", "e", "f"])),
        }
    })
    .await;
    let remote = remote(&server);
    let mut all = ["a", "b", "c", "d", "e", "f"].map(|text| Digest::of(text.as_bytes()));
    all.sort();
    for count in 1..5 {
        let (mut seen, mut request) = (Vec::new(), PageRequest { count: Some(count), after: None });
        loop {
            let page = remote.referrers(&repository(), &Digest::of(b"x"), None, &request).await.unwrap();
            assert!(page.items.len() <= count);
            seen.extend(page.items.into_iter().map(|found| found.digest));
            request.after = page.next;
            if request.after.is_none() {
                break;
            }
        }
        seen.sort();
        assert_eq!(seen, all, "by {count}");
    }
}

#[tokio::test]
async fn a_refusal_is_never_taken_for_no_referrers() {
    for code in [401, 403, 429, 500] {
        let server = Scripted::open(move |request| {
            let is_list = request.path.contains("/referrers/");
            if is_list { reply(code, &[], r#"{"errors":[{"code":"DENIED"}]}"#) } else { status(404) }
        })
        .await;
        let found =
            remote(&server).referrers(&repository(), &Digest::of(b"x"), None, &PageRequest::default()).await;
        assert!(found.is_err(), "{code}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_tag_for_referrers_is_never_taken_for_none() {
    for code in [401, 403, 429, 500] {
        let server = Scripted::open(move |request| {
            let is_list = request.path.contains("/referrers/");
            if is_list { status(404) } else { reply(code, &[], r#"{"errors":[{"code":"DENIED"}]}"#) }
        })
        .await;
        let (remote, page) = (remote(&server), PageRequest::default());
        assert!(remote.referrers(&repository(), &Digest::of(b"x"), None, &page).await.is_err(), "{code}");
    }
}

#[tokio::test]
async fn ranges_are_what_was_asked_for() {
    let digest = Digest::of(b"0123456789");
    let range = |range| BlobRequest { range: Some(range), ..BlobRequest::default() };
    for honours in [true, false] {
        let server = Scripted::start(move |request, _| match (honours, request.header("range").as_str()) {
            (true, "bytes=2-4") => reply(206, &[("content-range", "bytes 2-4/10")], "234"),
            (true, "bytes=-2") => reply(206, &[("content-range", "bytes 0-1/10")], "01"),
            (true, "bytes=-3") => status(416),
            (true, "bytes=7-9") => reply(206, &[("content-range", "bytes 7-9/10")], "789"),
            (true, "bytes=20-") => reply(416, &[("content-range", "bytes */10")], ""),
            _ => reply(200, &[], "0123456789"),
        })
        .await;
        let remote = remote(&server);
        let Blob::Stream(blob) = remote
            .blob(&repository(), &digest, range(ByteRange::FromTo { first: 2, last: 4 }))
            .await
            .unwrap()
        else {
            panic!("a stream was asked for")
        };
        assert_eq!((blob.size, blob.span), (10, Some(Span { start: 2, length: 3 })));
        assert_eq!(read_bounded(blob.bytes, 99).await.unwrap(), "234");
        let Ok(Blob::Stream(blob)) = remote.blob(&repository(), &digest, range(ByteRange::Last(3))).await
        else {
            panic!("the last bytes are there")
        };
        assert_eq!(read_bounded(blob.bytes, 99).await.unwrap(), "789");
        let beyond = remote.blob(&repository(), &digest, range(ByteRange::From(20))).await;
        assert!(matches!(beyond, Err(RegistryError::RangeNotSatisfiable { size: 10 })));
        if honours {
            let other = remote.blob(&repository(), &digest, range(ByteRange::Last(2))).await;
            assert!(matches!(other, Err(RegistryError::Protocol { .. })), "another range than was asked for");
        }
    }
}

/// A registry that takes blobs in one piece, and says that it knows no other way.
async fn without_chunks() -> Scripted {
    Scripted::start(|request, before| match request.method.as_str() {
        "POST" => reply(202, &[("location", &format!("{before}"))], ""),
        "PUT" => status(201),
        "PATCH" => status(405),
        _ => status(200),
    })
    .await
}

fn stream(text: &'static str) -> ByteStream {
    futures_util::stream::iter([Ok(Bytes::from_static(text.as_bytes()))]).boxed()
}

#[tokio::test]
async fn pieces_are_gathered_and_sent_as_one() {
    let server = without_chunks().await;
    let remote = remote(&server);
    let name = repository();
    let upload = remote.open_upload(&name, Algorithm::Sha256).await.unwrap();
    assert_eq!(remote.append_upload(&name, &upload, Some(0), stream("con")).await.unwrap(), 3);
    let late = remote.append_upload(&name, &upload, Some(0), stream("x")).await;
    assert!(matches!(late, Err(RegistryError::OutOfOrder { offset: 3 })));
    let broken = futures_util::stream::iter([
        Ok(Bytes::from_static(b"te")),
        Err(std::io::Error::other("the caller has gone")),
    ]);
    remote.append_upload(&name, &upload, None, broken.boxed()).await.unwrap_err();
    assert_eq!(remote.upload_offset(&name, &upload).await.unwrap(), 5, "what came before the break is there");
    assert_eq!(remote.append_upload(&name, &upload, Some(5), stream("nt")).await.unwrap(), 7);
    let other = "acme/other".parse().unwrap();
    assert!(matches!(remote.upload_offset(&other, &upload).await, Err(RegistryError::UploadUnknown)));
    assert!(server.requests().is_empty(), "nothing is sent before it is whole");
    let digest = Digest::of(b"content");
    remote.finish_upload(&name, &upload, &digest).await.unwrap();
    assert!(matches!(remote.upload_offset(&name, &upload).await, Err(RegistryError::UploadUnknown)));
    let base = "/v2/acme/vpc/blobs/uploads";
    assert_eq!(server.lines(), [format!("POST {base}/"), format!("PUT {base}/1?digest={digest}")]);
    assert_eq!(server.requests().pop().unwrap().body, "content");
}

#[tokio::test]
async fn an_upload_of_other_bytes_is_given_up() {
    let server = without_chunks().await;
    let remote = remote(&server);
    let name = repository();
    for opened_for in [Algorithm::Sha256, Algorithm::Sha512] {
        let upload = remote.open_upload(&name, opened_for).await.unwrap();
        remote.append_upload(&name, &upload, None, stream("kontent")).await.unwrap();
        let error = remote.finish_upload(&name, &upload, &Digest::of(b"content")).await.unwrap_err();
        assert!(
            matches!(error, RegistryError::DigestMismatch { actual, .. } if actual == Digest::of(b"kontent"))
        );
        assert!(matches!(remote.cancel_upload(&name, &upload).await, Err(RegistryError::UploadUnknown)));
    }
    assert!(server.requests().iter().all(|request| request.body != "kontent"));
}

#[tokio::test]
async fn an_upload_that_fails_in_passing_can_be_ended_again() {
    let is_down = Arc::new(AtomicUsize::new(1));
    let down = Arc::clone(&is_down);
    let server = Scripted::start(move |request, _| match request.method.as_str() {
        "POST" => reply(202, &[("location", "/u")], ""),
        "PUT" if down.load(Ordering::SeqCst) == 0 => status(201),
        "HEAD" => status(404),
        "PUT" => status(503),
        _ => status(200),
    })
    .await;
    let (remote, name, digest) = (remote(&server), repository(), Digest::of(b"content"));
    let upload = remote.open_upload(&name, Algorithm::Sha256).await.unwrap();
    remote.append_upload(&name, &upload, None, stream("content")).await.unwrap();
    let error = remote.finish_upload(&name, &upload, &digest).await.unwrap_err();
    assert!(error.is_passing(), "{error}");
    is_down.store(0, Ordering::SeqCst);
    remote.finish_upload(&name, &upload, &digest).await.unwrap();
}

/// A registry, or a proxy in front of one, that takes no request body of more than `limit` bytes; with `least`, no smaller chunk but
/// the last; and that keeps what it is sent, or only the last of it.
async fn with_small_bodies(limit: usize, least: Option<usize>, keeps: fn(&mut Vec<u8>, &[u8])) -> Scripted {
    let held: Mutex<(Vec<u8>, bool)> = Mutex::default();
    Scripted::start(move |request, before| {
        let (held, has_lost) = &mut *held.lock().unwrap();
        let location = format!("/u/{before}?state=a%2Fb");
        if request.body.len() > limit {
            return status(413);
        }
        match request.method.as_str() {
            "POST" => {
                held.clear();
                let mut response = reply(202, &[("location", &location)], "");
                if let Some(least) = least {
                    response.headers_mut().insert("oci-chunk-min-length", least.into());
                }
                response
            }
            "PATCH" => {
                let start = held.len();
                let range = format!("{start}-{}", start + request.body.len() - 1);
                assert_eq!(request.header("content-range"), range, "the next bytes and no others");
                keeps(held, &request.body);
                // The answer to one of them is lost.
                if !std::mem::replace(has_lost, true) {
                    return status(502);
                }
                reply(202, &[("location", &location)], "")
            }
            "GET" if request.path.starts_with("/u") => {
                reply(204, &[("range", &format!("0-{}", held.len() - 1)), ("location", &location)], "")
            }
            "PUT" => status(201),
            "HEAD" => reply(200, &[("content-length", &held.len().to_string())], ""),
            _ => status(200),
        }
    })
    .await
}

#[tokio::test]
async fn a_blob_that_is_too_large_for_one_request_goes_in_chunks() {
    let content = Bytes::from((0..5_000_000_u32).map(|number| (number % 251) as u8).collect::<Vec<_>>());
    let digest = Digest::of(&content);
    for (limit, least) in [(4 << 20, None), (1 << 20, None), (600_000, Some(300_000))] {
        let server = with_small_bodies(limit, least, |held, chunk| held.extend(chunk)).await;
        let remote = remote(&server);
        let source = BytesSource(content.clone());
        remote.put_blob(&repository(), &digest, &source).await.unwrap();
        let taken: Vec<_> = server
            .requests()
            .into_iter()
            .filter(|request| request.method == "PATCH" && request.body.len() <= limit)
            .collect();
        let sent: Vec<u8> = taken.iter().flat_map(|request| request.body.to_vec()).collect();
        assert_eq!(Digest::of(&sent), digest, "{limit}: each byte once, though an answer was lost");
        let (last, others) = taken.split_last().unwrap();
        assert!(others.iter().all(|request| request.body.len() >= least.unwrap_or(1)), "{last:?}");
        let lines = server.lines();
        let whole = |lines: &[String]| lines.iter().filter(|line| line.starts_with("PUT")).count();
        assert_eq!(whole(&lines), 2, "one that was refused, and the end: {lines:?}");
        remote.put_blob(&repository(), &digest, &source).await.unwrap();
        assert_eq!(whole(&server.lines()), 3, "what was refused once is not tried again");
    }
}

#[tokio::test]
async fn a_registry_that_loses_chunks_is_found_out() {
    let server = with_small_bodies(4 << 20, None, |held, chunk| *held = chunk.to_vec()).await;
    let content = Bytes::from(vec![7; 5_000_000]);
    let source = BytesSource(content.clone());
    let error = remote(&server).put_blob(&repository(), &Digest::of(&content), &source).await;
    assert!(matches!(error, Err(RegistryError::Protocol { .. })), "{error:?}");
}

#[tokio::test]
async fn chunks_that_no_memory_should_hold_are_not_made() {
    let server = with_small_bodies(1 << 20, Some(65 << 20), |held, chunk| held.extend(chunk)).await;
    let content = Bytes::from(vec![7; 2 << 20]);
    let error =
        remote(&server).put_blob(&repository(), &Digest::of(&content), &BytesSource(content.clone())).await;
    assert!(matches!(error, Err(RegistryError::Protocol { .. })), "{error:?}");
    assert!(server.lines().iter().all(|line| !line.starts_with("PATCH")));
}

#[tokio::test]
async fn a_push_that_is_too_much_for_the_registry_says_what_is_in_the_way() {
    for (code, expected, is_passing) in
        [(413, "SizeRefused", false), (507, "Full", false), (429, "TooManyRequests", true)]
    {
        let server = Scripted::start(move |request, _| match request.method.as_str() {
            "POST" => reply(202, &[("location", "/u")], ""),
            "HEAD" => status(404),
            "PUT" | "PATCH" => reply(code, &[("retry-after", "0")], "<html>"),
            _ => status(200),
        })
        .await;
        let remote = remote(&server);
        let content = Bytes::from(vec![7; 700_000]);
        let blob = remote.put_blob(&repository(), &Digest::of(&content), &BytesSource(content.clone())).await;
        let blob_requests = server.lines().iter().filter(|line| line.starts_with("PUT")).count();
        let manifest = remote.put_manifest(&repository(), &new_manifest(&["v1"], Condition::None)).await;
        for error in [blob.unwrap_err(), manifest.unwrap_err()] {
            let shown = format!("{error:?}");
            assert!(shown.starts_with(expected), "{code}: {shown}");
            assert_eq!(error.is_passing(), is_passing, "{code}");
        }
        // Nothing is sent again that cannot pass; chunks are tried where the whole is too large, down to the smallest.
        assert_eq!(blob_requests > 1, is_passing, "{code}: {:?}", server.lines());
    }
}

#[tokio::test]
async fn a_repository_that_has_to_be_made_first_is_said_to_be() {
    let server = Scripted::start(|request, _| match request.path.as_str() {
        "/v2/" => status(200),
        _ => reply(404, &[], r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#),
    })
    .await;
    let remote = remote(&server);
    let blob = push(&remote, "content").await;
    let manifest = remote.put_manifest(&repository(), &new_manifest(&["v1"], Condition::None)).await;
    for error in [blob.unwrap_err(), manifest.unwrap_err()] {
        assert!(
            matches!(&error, RegistryError::RepositoryNotMade { repository, .. } if repository == "acme/vpc"),
            "{error}"
        );
        assert!(!error.is_not_found(), "what was pushed is nothing that was looked for");
    }
    let error = remote.tags(&repository(), &PageRequest::default()).await.unwrap_err();
    assert!(matches!(error, RegistryError::RepositoryUnknown(_)), "{error}");
}

#[tokio::test]
async fn a_refusal_says_that_it_may_mean_that_there_is_nothing() {
    let server = Scripted::start(|request, _| match request.path.as_str() {
        "/v2/" => status(200),
        _ => reply(403, &[], r#"{"errors":[{"code":"DENIED"}]}"#),
    })
    .await;
    let error = remote(&server).manifest(&repository(), &tag("v1")).await.unwrap_err();
    assert!(error.may_be_absence() && !error.is_not_found());
    let said = error.to_string();
    assert!(said.contains("do not allow") && said.contains("no such repository"), "{said}");
}

#[tokio::test]
async fn http_is_found_on_this_machine_without_being_told() {
    let server = Scripted::start(|_, _| manifest(MANIFEST)).await;
    let options = RemoteOptions { plain_http: None, ..options(&server, Credential::Anonymous) };
    RemoteRegistry::new(options).unwrap().manifest(&repository(), &tag("v1")).await.unwrap();
}

#[tokio::test]
async fn deleting_tags_may_be_unknown_to_a_registry() {
    let server = Scripted::start(|request, _| match request.path.as_str() {
        "/v2/" => status(200),
        _ => reply(400, &[], r#"{"errors":[{"code":"DIGEST_INVALID"}]}"#),
    })
    .await;
    let error = remote(&server).delete_tag(&repository(), &"v1".parse().unwrap()).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unsupported { .. }), "{error}");
}
