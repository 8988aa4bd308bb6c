//! The distribution API where something is not as it should be: hostile requests, and registries that misbehave behind the server. What
//! it answers when all is well stands in `specification`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::Request;
use futures_util::{StreamExt, stream};
use ocimod::oci::{Digest, IMAGE_MANIFEST, Repository};
use ocimod::operations::install::Installer;
use ocimod::operations::routes::{RepositoryTemplate, Routes};
use ocimod::registry::{
    Answer as RegistryAnswer, Blob, BlobRequest, BlobStream, DirectoryOptions, DirectoryRegistry, Page,
    PageRequest, Registry, RegistryError, SharedRegistry,
};
use ocimod::server::{App, RequestLine, RequestLog, ServerOptions, router, serve};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::ServiceExt;

use crate::support::answer::Answer;

/// A server without a socket, over a store of its own.
struct Server {
    router: Router,
    folder: tempfile::TempDir,
}

impl Server {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
        Self { router: over(Arc::new(registry)), folder }
    }

    async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        send(&self.router, method, target, headers, body).await
    }

    async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[], "").await
    }

    /// Pushes in one request.
    async fn push_blob(&self, repository: &str, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        let target = format!("/v2/{repository}/blobs/uploads/?digest={digest}");
        self.send("POST", &target, &[], bytes.to_vec()).await.expect(201);
        digest
    }

    async fn push_manifest(&self, repository: &str, reference: &str, manifest: &Value) -> Answer {
        let media_type = manifest["mediaType"].as_str().unwrap();
        let target = format!("/v2/{repository}/manifests/{reference}");
        self.send("PUT", &target, &[("content-type", media_type)], manifest.to_string()).await
    }

    /// Pushes a manifest of nothing; `extra` makes it one of its own.
    async fn push_image(&self, repository: &str, reference: &str, extra: &Value) -> Digest {
        self.push_blob(repository, b"{}").await;
        let mut manifest = image();
        manifest.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let put = self.push_manifest(repository, reference, &manifest).await.expect(201);
        put.header("docker-content-digest").parse().unwrap()
    }
}

/// The distribution API over a registry, and no modules.
fn over(registry: SharedRegistry) -> Router {
    router(app(registry, ServerOptions { distribution: true, ..ServerOptions::default() }))
}

fn app(registry: SharedRegistry, options: ServerOptions) -> Arc<App> {
    let installer = Installer::without_search(Routes::new(Vec::new(), RepositoryTemplate::default()), None);
    Arc::new(App::new(registry, installer, options))
}

async fn send(
    router: &Router,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(target);
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", "127.0.0.1:8080");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
    let (parts, body) = answer.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    Answer { status: parts.status, headers: parts.headers, body }
}

fn descriptor(media_type: &str, digest: &Digest, size: usize) -> Value {
    json!({ "mediaType": media_type, "digest": digest, "size": size })
}

fn image() -> Value {
    let empty = descriptor("application/vnd.oci.empty.v1+json", &Digest::of(b"{}"), 2);
    json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": empty, "layers": [] })
}

#[tokio::test]
async fn hostile_names_are_the_callers_fault_and_tell_nothing_of_the_disk() {
    let server = Server::new();
    server.push_image("acme/a", "v1", &json!({})).await;
    let digest = Digest::of(b"{}");
    let long = "a".repeat(300);
    let longer = vec!["a"; 2000].join("/");
    let mut targets = Vec::new();
    for name in [
        "..",
        "acme/../a",
        "%2e%2e",
        "%2e%2e/%2e%2e/etc",
        "acme%2fa",
        "acme%2Fa",
        "ACME/a",
        "a\u{301}",
        "%00",
        "_blobs",
        "acme/_oci",
        "acme//a",
        "acme/a/",
        ".",
        "%",
        "%zz",
        "a;b",
        "acme\\a",
        &long,
        &longer,
    ] {
        for rest in ["tags/list", "manifests/v1", "blobs/uploads/", "blobs/uploads/x"] {
            targets.push(format!("/v2/{name}/{rest}"));
        }
        targets.push(format!("/v2/{name}/blobs/{digest}"));
        targets.push(format!("/v2/{name}/referrers/{digest}"));
        targets.push(format!("/v2/acme/a/manifests/{name}"));
        targets.push(format!("/v2/acme/a/blobs/{name}"));
        targets.push(format!("/v2/acme/a/blobs/uploads/{name}"));
        targets.push(format!("/v2/acme/a/blobs/uploads/?mount={name}&from={name}"));
        targets.push(format!("/v2/acme/a/tags/list?n={name}"));
        targets.push(format!("/{name}"));
    }
    let folder = server.folder.path().to_str().unwrap();
    for target in targets {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let Ok(request) = Request::builder()
                .method(method)
                .uri(&target)
                .header("host", "localhost")
                .body(Body::empty())
            else {
                continue; // no URI: hyper refuses it
            };
            let answer = server.router.clone().oneshot(request).await.unwrap();
            assert!(answer.status().is_client_error(), "{method} {target}: {}", answer.status());
            let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(!body.contains(folder) && !body.contains("os error"), "{method} {target}: {body}");
            assert!(body.len() < 1000, "{method} {target}: {} bytes", body.len());
            if method == "HEAD" {
                assert!(body.is_empty());
            }
        }
    }
}

#[tokio::test]
async fn errors_have_the_form_of_their_place() {
    let server = Server::new();
    assert_eq!(
        server.get("/v1/nothing").await.expect(404).json(),
        json!({ "errors": ["there is nothing here"] })
    );
    assert_eq!(server.get("/nothing").await.expect(404).body, "there is nothing here\n");
    let refused = server.send("PUT", "/healthz", &[], "").await.expect(405);
    assert_eq!(refused.header("allow"), "GET, HEAD");
    let refused = server.send("PATCH", "/v2/acme/a/tags/list", &[], "").await.fails(405, "UNSUPPORTED");
    assert_eq!(refused.header("allow"), "GET, HEAD");
    let head = server.send("HEAD", "/v2/acme/a/manifests/v1", &[], "").await.expect(404);
    assert!(head.body.is_empty());

    let options = ServerOptions::default();
    let folder = tempfile::tempdir().unwrap();
    let registry = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
    let without = router(app(Arc::new(registry), options));
    // The view for cue is there, and nothing else.
    send(&without, "GET", "/v2/", &[], "").await.expect(200);
    send(&without, "GET", "/v2/acme/a/tags/list", &[], "").await.fails(404, "UNSUPPORTED");
    send(&without, "GET", "/readyz", &[], "").await.expect(200);
}

#[tokio::test]
async fn strangers_are_refused_before_anything_else() {
    let server = Server::new();
    for headers in [[("host", "evil.example")], [("x-forwarded-for", "198.51.100.7")]] {
        server.send("GET", "/v2/", &headers, "").await.fails(403, "DENIED");
    }
    let headers = [("origin", "https://evil.example")];
    server.send("POST", "/v2/acme/a/blobs/uploads/", &headers, "").await.fails(403, "DENIED");

    let options = ServerOptions { distribution: true, allow_anonymous: true, ..ServerOptions::default() };
    let folder = tempfile::tempdir().unwrap();
    let registry = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
    let open = router(app(Arc::new(registry), options));
    let headers = [("host", "registry.example"), ("x-forwarded-for", "198.51.100.7")];
    send(&open, "GET", "/v2/", &headers, "").await.expect(200);
}

/// A registry that does one thing wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// A blob of ten bytes whose stream fails after five.
    BreaksOff,
    /// The same, but it ends after five as if they were all.
    EndsEarly,
    /// It names a place that is a secret.
    SendsElsewhere,
    /// It panics.
    Panics,
    /// It cannot be reached, and its disk is full of secrets.
    IsAway,
    /// It does not answer.
    IsSilent,
}

impl Registry for Wrong {
    fn blob<'a>(
        &'a self,
        _repository: &'a Repository,
        digest: &'a Digest,
        _request: BlobRequest,
    ) -> RegistryAnswer<'a, Blob> {
        Box::pin(async move {
            let five = stream::once(async { Ok(Bytes::from_static(b"five5")) });
            // What came before a pause is on its way by then.
            let after_a_pause = |end: io::Result<Bytes>| {
                stream::once(async {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    end
                })
            };
            let bytes = match self {
                Self::BreaksOff => five
                    .chain(after_a_pause(Err(io::Error::other("connection reset by secret.example"))))
                    .boxed(),
                Self::EndsEarly => five.chain(after_a_pause(Ok(Bytes::new()))).boxed(),
                Self::SendsElsewhere => {
                    return Ok(Blob::Location("https://bucket.example/x?signature=secret".parse().unwrap()));
                }
                Self::Panics => panic!("secret"),
                Self::IsAway => {
                    let action = format!("reading /srv/secret/{}", digest.hex());
                    return Err(RegistryError::io(action)(io::ErrorKind::PermissionDenied.into()));
                }
                Self::IsSilent => std::future::pending().await,
            };
            Ok(Blob::Stream(BlobStream { size: 10, span: None, bytes }))
        })
    }

    fn blob_size<'a>(&'a self, _repository: &'a Repository, _digest: &'a Digest) -> RegistryAnswer<'a, u64> {
        Box::pin(async { Ok(10) })
    }

    fn repositories<'a>(&'a self, _page: &'a PageRequest) -> RegistryAnswer<'a, Page<Repository>> {
        Box::pin(async move {
            match self {
                Self::IsAway => Err(RegistryError::Unavailable {
                    registry: "secret.example".into(),
                    reason: "refused".into(),
                }),
                Self::IsSilent => std::future::pending().await,
                _ => Err(RegistryError::NoCatalog),
            }
        })
    }
}

fn blob_target() -> String {
    format!("/v2/acme/a/blobs/{}", Digest::of(b"0123456789"))
}

#[tokio::test]
async fn failures_behind_the_server_are_told_without_their_secrets() {
    for wrong in [Wrong::Panics, Wrong::IsAway] {
        let failed = send(&over(Arc::new(wrong)), "GET", &blob_target(), &[], "").await.fails(500, "UNKNOWN");
        let body = String::from_utf8(failed.body.to_vec()).unwrap();
        assert!(!body.contains("secret") && !body.contains("denied"), "{body}");
    }
    let router = over(Arc::new(Wrong::EndsEarly));
    send(&router, "PUT", &format!("{}x", blob_target()), &[], "").await.fails(400, "DIGEST_INVALID");
    send(&router, "POST", "/v2/acme/a/blobs/uploads/", &[], "").await.fails(405, "UNSUPPORTED");
    send(&router, "GET", "/v2/_catalog", &[], "").await.fails(405, "UNSUPPORTED");
}

#[tokio::test]
async fn a_location_is_given_to_get_and_never_to_head() {
    let router = over(Arc::new(Wrong::SendsElsewhere));
    let elsewhere = send(&router, "GET", &blob_target(), &[], "").await.expect(307);
    assert_eq!(elsewhere.header("location"), "https://bucket.example/x?signature=secret");
    let here = send(&router, "HEAD", &blob_target(), &[], "").await.expect(200);
    assert_eq!(here.header("content-length"), "10");
    assert!(!here.headers.contains_key("location"));
}

#[tokio::test]
async fn readiness_is_what_the_registry_says_in_time() {
    for (wrong, status) in [(Wrong::BreaksOff, 200), (Wrong::IsAway, 503), (Wrong::IsSilent, 503)] {
        let router = over(Arc::new(wrong));
        let ready = send(&router, "GET", "/readyz", &[], "").await.expect(status);
        assert!(!String::from_utf8_lossy(&ready.body).contains("secret"));
        assert_eq!(ready.headers.contains_key("retry-after"), status == 503);
        send(&router, "GET", "/healthz", &[], "").await.expect(200);
    }
}

/// A server on a socket, until the sender is dropped.
fn listen(
    registry: SharedRegistry,
) -> (SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let options = ServerOptions { distribution: true, ..ServerOptions::default() };
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(serve(listener, app(registry, options), async move { drop(stopped.await) }));
    (address, stop, serving)
}

/// Sends bytes and reads until the connection ends.
async fn exchange(address: SocketAddr, request: String) -> String {
    let talk = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    tokio::task::spawn_blocking(talk).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_fails_breaks_the_connection_off() {
    for wrong in [Wrong::BreaksOff, Wrong::EndsEarly] {
        let (address, stop, serving) = listen(Arc::new(wrong));
        // Without `Connection: close`: the server has to end it of itself.
        let request = format!("GET {} HTTP/1.1\r\nHost: {address}\r\n\r\n", blob_target());
        let answer = exchange(address, request).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.to_lowercase().contains("content-length: 10\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nfive5"), "five of ten bytes, and no end: {answer}");
        drop(stop);
        serving.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_tells_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let registry = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
    let (address, stop, serving) = listen(Arc::new(registry));
    for target in ["/v2/", "/v2/_catalog", "/v2/acme/a/tags/list", "/v2/A", "/healthz", "/nothing"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let answer = exchange(address, request).await.to_lowercase();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{target}: {answer}");
    }
    drop(stop);
    serving.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_without_end_are_refused() {
    let (address, stop, serving) = listen(Arc::new(Wrong::BreaksOff));
    let long = "a".repeat(200 * 1024);
    let answer =
        exchange(address, format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nX: {long}\r\n\r\n")).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    drop(stop);
    serving.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_have_begun_are_answered_before_the_server_ends() {
    let folder = tempfile::tempdir().unwrap();
    let registry = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
    let (address, stop, serving) = listen(Arc::new(registry));
    let digest = Digest::of(b"0123456789");
    let talk = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST /v2/acme/a/blobs/uploads/?digest={digest} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 10\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"01234").unwrap();
        std::thread::sleep(Duration::from_millis(100));
        drop(stop);
        std::thread::sleep(Duration::from_millis(100));
        assert!(TcpStream::connect(address).is_err(), "nobody else is let in");
        stream.write_all(b"56789").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(talk.await.unwrap().starts_with("HTTP/1.1 201 Created\r\n"));
    serving.await.unwrap().unwrap();
}

/// A log that is kept in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RequestLog for Log {
    fn write(&self, line: &RequestLine<'_>) {
        let RequestLine { id, token, method, route, status, duration, bytes, received, complete } = *line;
        let fields = json!({
            "method": method, "route": route, "status": status, "duration_ms": duration.as_millis(), "bytes": bytes,
            "received": received, "complete": complete,
        });
        let line = json!({"fields": fields, "span": {"id": id, "token": token}});
        self.0.lock().unwrap().extend(format!("{line}\n").bytes());
    }
}

impl Log {
    /// A server that logs its requests here.
    fn of(&self, registry: SharedRegistry) -> Router {
        let request_log: Option<Arc<dyn RequestLog>> = Some(Arc::new(self.clone()));
        router(app(registry, ServerOptions { distribution: true, request_log, ..ServerOptions::default() }))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test]
async fn the_log_has_a_line_for_each_request_and_no_secret() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().unwrap();
    let registry = DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap();
    let server = Server { router: log.of(Arc::new(registry)), folder };
    let digest = server.push_blob("acme/a", b"bytes").await;
    let secrets =
        [("authorization", "Bearer secret"), ("cookie", "secret"), ("x-request-id", "from-a-proxy")];
    server.send("GET", &format!("/v2/acme/a/blobs/{digest}?token=secret"), &secrets, "").await.expect(200);
    let elsewhere = log.of(Arc::new(Wrong::SendsElsewhere));
    send(&elsewhere, "GET", &blob_target(), &secrets, "").await.expect(307);
    send(&log.of(Arc::new(Wrong::IsAway)), "GET", &blob_target(), &[], "").await.expect(500);
    drop(guard);

    let log = log.text();
    assert!(!log.contains("Bearer") && !log.contains("signature=") && !log.contains("token="), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests: Vec<_> = lines.iter().filter(|line| line["fields"]["duration_ms"].is_u64()).collect();
    assert_eq!(requests.len(), 4, "{log}");
    let got = &requests[1]["fields"];
    assert_eq!(got["route"], "/v2/{repository}/blobs/{digest}");
    assert_eq!((&got["method"], &got["status"], &got["bytes"]), (&json!("GET"), &json!(200), &json!(5)));
    assert_eq!(got["complete"], true);
    assert_eq!(requests[1]["span"]["id"], "from-a-proxy");
    let causes: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!(causes.len(), 1, "a failure is told once: {log}");
    assert!(
        causes[0]["fields"]["message"].as_str().unwrap().contains("/srv/secret/"),
        "the log has the cause"
    );
}
