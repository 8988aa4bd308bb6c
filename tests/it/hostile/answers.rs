//! Answers that are none: without end, a drop at a time, in no protocol, or about another length than they have.

use std::time::Duration;

use bytes::Bytes;
use ocimod::oci::{Digest, IMAGE_MANIFEST};
use ocimod::registry::remote::RemoteRegistry;
use ocimod::registry::{BytesSource, FileSource, PageRequest, Registry, RegistryError};

use super::server::{Hostile, Step, answer};
use super::{ends, options, remote, repository, tag};

/// What lies in the buffers of a connection, both ends together, and what was not read of an answer yet.
const BUFFERS: usize = 16 << 20;

async fn manifest(server: &Hostile) -> RegistryError {
    ends(remote(server).manifest(&repository(), &tag("v1.0.0"))).await.unwrap_err()
}

/// Every kind of answer that is read whole.
async fn everything(server: &Hostile) -> Vec<RegistryError> {
    let (registry, repository, digest) = (remote(server), repository(), Digest::of(b"content"));
    let page = PageRequest::default();
    ends(async {
        let registry: &dyn Registry = &*registry;
        let source = BytesSource(Bytes::from_static(b"content"));
        [
            registry.tags(&repository, &page).await.err(),
            registry.repositories(&page).await.err(),
            registry.manifest(&repository, &tag("v1.0.0")).await.err(),
            registry.manifest_head(&repository, &tag("v1.0.0")).await.err(),
            registry.small_blob(&repository, &digest, 1 << 20).await.err(),
            registry.blob_size(&repository, &digest).await.err(),
            registry.referrers(&repository, &digest, None, &page).await.err(),
            registry.put_blob(&repository, &digest, &source).await.err(),
            registry.delete_manifest(&repository, &digest).await.err(),
        ]
    })
    .await
    .map(|error| error.expect("none of this is an answer"))
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_end_is_broken_off() {
    let line = b"x-a: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n".repeat(1000);
    let long = b"b".repeat(64 * 1024);
    for (first, endless) in [(&b"HTTP/1.1 200 OK\r\n"[..], line), (b"HTTP/1.1 200 OK\r\nx-a: ", long)] {
        let (first, endless) = (first.to_vec(), endless);
        let server =
            Hostile::start(move |_| vec![Step::Send(first.clone()), Step::Endless(endless.clone())]).await;
        let error = manifest(&server).await;
        assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
        assert!(server.sent() < BUFFERS, "{}", server.sent());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_before_the_answer_come_to_an_end() {
    for early in ["100 Continue", "102 Processing", "103 Early Hints\r\nlink: </x>; rel=preload"] {
        let early = format!("HTTP/1.1 {early}\r\n\r\n").into_bytes();
        let server = Hostile::start(move |_| vec![Step::Drip(early.clone(), Duration::from_millis(5))]).await;
        let error = manifest(&server).await;
        assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_http_is_an_error_and_no_crash() {
    let ok = "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.oci.image.manifest.v1+json\r\n";
    for text in [
        String::new(),
        "\r\n\r\n".to_owned(),
        "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{0}\u{2}".to_owned(),
        "HTTP/1.1 999999999999 X\r\n\r\n".to_owned(),
        "HTTP/1.1 -1 X\r\n\r\n".to_owned(),
        "HTTP/9.9 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\n: nothing\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent length: 1\r\n\r\n".to_owned(),
        format!("{ok}content-length: -1\r\n\r\n{{}}"),
        format!("{ok}content-length: 18446744073709551616\r\n\r\n{{}}"),
        format!("{ok}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}"),
        format!("{ok}content-length: 18446744073709551615\r\n\r\n{{}}"),
        format!("{ok}transfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n{{}}"),
        format!("{ok}transfer-encoding: chunked\r\n\r\nnothing\r\n{{}}"),
        format!("{ok}transfer-encoding: chunked\r\n\r\n2;{}\r\n{{}}", "x".repeat(1 << 20)),
        format!("{ok}transfer-encoding: gzip\r\n\r\n{{}}"),
        format!("{ok}\r\n"),
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n".to_owned(),
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-1/2\r\ncontent-length: 2\r\n\r\n{}"
            .to_owned(),
        "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned(),
        "HTTP/1.1 300 Multiple Choices\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
    ] {
        let bytes = text.clone().into_bytes();
        let server = Hostile::start(move |_| vec![Step::Send(bytes.clone())]).await;
        let manifest = ends(remote(&server).manifest(&repository(), &Digest::of(b"content").into())).await;
        let error = manifest.expect_err(&text);
        assert!(!error.is_not_found(), "{text:?} is no word about the manifest: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_closes_every_connection_is_given_up() {
    let server = Hostile::start(|_| Vec::new()).await;
    for error in everything(&server).await {
        assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_says_nothing_is_given_up() {
    let server = Hostile::start(|_| vec![Step::Hang]).await;
    let error = manifest(&server).await;
    assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
    assert_eq!(server.requests().len(), 2, "asked as often as anything, and no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_drips_is_given_up_wherever_it_does() {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {IMAGE_MANIFEST}\r\ncontent-length: 4000000\r\n");
    for (first, drop) in [("HTTP/1.1 200 OK\r\n".to_owned(), "x: y\r\n"), (format!("{head}\r\n"), " ")] {
        let server = Hostile::start(move |_| {
            let pause = Duration::from_millis(20);
            vec![Step::Send(first.clone().into_bytes()), Step::Drip(drop.into(), pause)]
        })
        .await;
        for error in [
            manifest(&server).await,
            ends(remote(&server).tags(&repository(), &PageRequest::default())).await.unwrap_err(),
        ] {
            assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_drips_or_does_not_end_says_what_its_status_says() {
    for steps in [
        vec![Step::Drip(b" ".to_vec(), Duration::from_millis(20))],
        vec![Step::Endless(b" ".repeat(64 * 1024))],
        vec![Step::Hang],
    ] {
        for length in ["", "content-length: 1000000000\r\n"] {
            let (head, steps) = (format!("HTTP/1.1 404 Not Found\r\n{length}\r\n"), steps.clone());
            let server = Hostile::start(move |_| {
                [vec![Step::Send(head.clone().into_bytes())], steps.clone()].concat()
            })
            .await;
            let error = manifest(&server).await;
            assert!(error.is_not_found(), "{error}");
            assert!(server.sent() < BUFFERS, "{}", server.sent());
        }
    }
}

async fn blob(server: &Hostile) -> RegistryError {
    let (registry, repository, digest) = (remote(server), repository(), Digest::of(b"content"));
    ends((&*registry as &dyn Registry).small_blob(&repository, &digest, u64::MAX)).await.unwrap_err()
}

/// The beginning of a blob of `length` bytes, and what comes of it.
async fn blob_of(length: usize, steps: Vec<Step>) -> Hostile {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\ncont").into_bytes();
    Hostile::start(move |_| [vec![Step::Send(head.clone())], steps.clone()].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_drips_is_given_up_though_it_never_pauses() {
    let server = blob_of(1_000_000_000, vec![Step::Drip(b"x".to_vec(), Duration::from_millis(10))]).await;
    let error = blob(&server).await;
    assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_pauses_is_given_up() {
    let server = blob_of(7, vec![Step::Hang]).await;
    let error = blob(&server).await;
    assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
    assert_eq!(server.requests().len(), 2, "taken up as often as anything is tried, and no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_never_gets_on_is_given_up() {
    let server = blob_of(7, Vec::new()).await;
    let error = blob(&server).await;
    assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_taken_by_drops_is_given_up() {
    let server = Hostile::start(|request| match request.method() {
        "POST" => answer(202, &[("location", "/u")], b""),
        "PUT" => vec![Step::Sip(64 << 10, Duration::from_millis(20))],
        _ => answer(404, &[], b""),
    })
    .await;
    let mut options = options(&server);
    // Far more than is taken in that time, and it is taken so steadily that there is no pause of that length.
    (options.timeouts.least_rate, options.timeouts.commit) = (1 << 30, Duration::from_secs(5));
    options.retry.tries = 1;
    let content = vec![7; 128 << 20];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &content).unwrap();
    // Read piece by piece, so that there is always another one soon.
    let (digest, source) = (Digest::of(&content), FileSource::new(file.path(), content.len() as u64));
    let registry = RemoteRegistry::new(options).unwrap();
    let error = ends(registry.put_blob(&repository(), &digest, &source)).await.unwrap_err();
    let RegistryError::Unavailable { reason, .. } = &error else { panic!("{error}") };
    assert!(reason.contains("too slowly"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_another_length_than_it_says_is_an_error() {
    let content_type = ("content-type", IMAGE_MANIFEST);
    let server =
        Hostile::start(move |_| answer(200, &[content_type, ("content-length", "999")], b"{}")).await;
    let error = manifest(&server).await;
    assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");

    let content = b"content";
    for length in ["6", "8", "0", "1000000000000"] {
        let server = Hostile::start(move |_| answer(200, &[("content-length", length)], content)).await;
        let registry = remote(&server);
        let (repository, digest) = (repository(), Digest::of(content));
        let blob = (&*registry as &dyn Registry).small_blob(&repository, &digest, 1 << 20);
        let error = ends(blob).await.unwrap_err();
        let is_right = matches!(
            error,
            RegistryError::Unavailable { .. }
                | RegistryError::DigestMismatch { .. }
                | RegistryError::SizeMismatch { .. }
        );
        assert!(is_right, "{length}: {error}");
    }
}

/// `{"schemaVersion":2}` and spaces, as gzip has it: a kilobyte of it stands for a megabyte.
fn gzipped(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_answer_that_nobody_asked_for_is_not_inflated() {
    let bomb = gzipped(&" ".repeat(32 << 20));
    assert!(bomb.len() < 64 * 1024);
    let server = Hostile::start(move |_| {
        answer(200, &[("content-type", IMAGE_MANIFEST), ("content-encoding", "gzip")], &bomb)
    })
    .await;
    let registry = remote(&server);
    let content = " ".repeat(32 << 20);
    let digest = Digest::of(content.as_bytes());
    // The inflated bytes would be the right ones.
    let blob = ends((&*registry as &dyn Registry).small_blob(&repository(), &digest, u64::MAX)).await;
    assert!(matches!(blob, Err(RegistryError::DigestMismatch { .. })), "{blob:?}");
    let by_digest = ends(registry.manifest(&repository(), &digest.into())).await;
    assert!(matches!(by_digest, Err(RegistryError::DigestMismatch { .. })), "{by_digest:?}");
    ends(registry.tags(&repository(), &PageRequest::default())).await.unwrap_err();
    for request in server.requests() {
        assert!(["", "identity"].contains(&request.header("accept-encoding")), "{}", request.head);
    }
}
