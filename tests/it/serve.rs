//! `ocimod serve` as a plain HTTP client sees it.

use serde_json::{Value, json};

use crate::support::modules::example;
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::kill;

/// A server with the two examples, as the README starts it.
fn served(ocimod: &Ocimod) -> Serve {
    let (label, stack) = (example("terraform-null-label"), example("terraform-null-stack"));
    let label = format!("{}@1.0.0", label.display());
    let stack = format!("{}@1.0.0", stack.display());
    ocimod.serve(["--temporary", "--namespace", "acme", "--push", &label, "--push", &stack])
}

async fn get(serve: &Serve, path: &str) -> reqwest::Response {
    request(serve, reqwest::Method::GET, path, &[]).await
}

async fn request(
    serve: &Serve,
    method: reqwest::Method,
    path: &str,
    headers: &[(&str, &str)],
) -> reqwest::Response {
    ocimod::registry::remote::install_crypto_provider();
    let client =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let mut request = client.request(method, format!("http://{}{path}", serve.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.expect("the server answers")
}

fn header(response: &reqwest::Response, name: &str) -> String {
    response
        .headers()
        .get(name)
        .map(|value| value.to_str().expect("headers are text").to_owned())
        .unwrap_or_default()
}

#[tokio::test]
async fn the_protocol_is_answered_as_clients_read_it() {
    let ocimod = Ocimod::new();
    let serve = served(&ocimod);

    let discovery = get(&serve, "/.well-known/terraform.json").await;
    assert_eq!(header(&discovery, "content-type"), "application/json");
    assert_eq!(discovery.json::<Value>().await.unwrap(), json!({"modules.v1": "/v1/modules/"}));

    let versions = get(&serve, "/v1/modules/acme/label/null/versions").await;
    let etag = header(&versions, "etag");
    assert_eq!(
        versions.json::<Value>().await.unwrap(),
        json!({"modules": [{"versions": [{"version": "1.0.0"}]}]})
    );
    let again = request(
        &serve,
        reqwest::Method::GET,
        "/v1/modules/Acme/label/null/versions",
        &[("if-none-match", &etag)],
    )
    .await;
    assert_eq!(again.status(), 304);

    let download = get(&serve, "/v1/modules/acme/label/null/1.0.0/download").await;
    assert_eq!(download.status(), 200);
    let location = header(&download, "x-terraform-get");
    assert_eq!(download.json::<Value>().await.unwrap(), json!({"location": location}));
    assert!(location.starts_with("./archive.zip?checksum=sha256:"), "{location}");

    let path = format!("/v1/modules/acme/label/null/1.0.0/{}", &location[2..]);
    let whole = get(&serve, &path).await;
    assert_eq!(header(&whole, "content-type"), "application/zip");
    let length = header(&whole, "content-length");
    let bytes = whole.bytes().await.unwrap();
    assert_eq!(bytes.len().to_string(), length);
    let digest = ocimod::oci::Digest::of(&bytes);
    assert!(location.contains(digest.as_str()), "{location}");

    let head = request(&serve, reqwest::Method::HEAD, &path, &[]).await;
    assert_eq!((head.status().as_u16(), header(&head, "content-length")), (200, length));
    let piece = request(&serve, reqwest::Method::GET, &path, &[("range", "bytes=0-3")]).await;
    assert_eq!(
        (piece.status().as_u16(), header(&piece, "content-range")),
        (206, format!("bytes 0-3/{}", bytes.len()))
    );
    assert_eq!(piece.bytes().await.unwrap(), bytes[..4]);
    let beyond = request(&serve, reqwest::Method::GET, &path, &[("range", "bytes=99999999-")]).await;
    assert_eq!(beyond.status(), 416);
    let other = path.replace(&digest.hex()[..8], "00000000");
    assert_eq!(get(&serve, &other).await.status(), 403);
}

#[tokio::test]
async fn what_is_not_there_is_404_and_says_no_path() {
    let ocimod = Ocimod::new();
    let serve = served(&ocimod);
    for path in [
        "/v1/modules/acme/nothing/null/versions",
        "/v1/modules/acme/label/null/2.0.0/download",
        "/v1/modules/acme/label/null/latest/download",
        "/v1/modules/acme/label/null/1.0/download",
        "/v1/modules/%2e%2e/label/null/versions",
        "/v1/modules/a%2fb/label/null/versions",
        "/v1/modules/acme/a_-b/null/versions",
        "/v1/modules/acme/%00/null/versions",
        "/v1/modules/acme/label/N%C3%BCll/versions",
        "/nothing",
    ] {
        let answer = get(&serve, path).await;
        assert_eq!(answer.status(), 404, "{path}");
        let body = answer.text().await.unwrap();
        assert!(!body.contains("/tmp") && !body.contains(".rs"), "{path}: {body}");
    }
    let unknown = get(&serve, "/v1/modules/acme/nothing/null/versions").await;
    assert!(unknown.json::<Value>().await.unwrap()["errors"][0].is_string());
}

#[tokio::test]
async fn health_host_and_shutdown() {
    let ocimod = Ocimod::new();
    let mut serve = served(&ocimod);
    assert_eq!(get(&serve, "/healthz").await.status(), 200);
    assert_eq!(get(&serve, "/readyz").await.status(), 200);
    // Any web page could send its visitors here by a name of its own, and any proxy the whole world.
    for headers in [("host", "evil.example"), ("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=10.0.0.1")]
    {
        let refused =
            request(&serve, reqwest::Method::GET, "/v1/modules/acme/label/null/versions", &[headers]).await;
        assert!(refused.status().is_client_error(), "{headers:?}");
    }
    get(&serve, "/v1/modules/acme/label/null/1.0.0/archive.zip?digest=sha256:secret").await;
    kill(serve.server.pid(), "TERM");
    assert_eq!(serve.server.wait(), Some(0));
    let log = serve.server.log();
    assert!(log.contains("/v1/modules/{namespace}") || log.contains("versions"), "{log}");
    assert!(!log.contains("sha256:secret"), "{log}");
}

#[test]
fn a_port_that_is_taken_is_said_with_what_to_type() {
    let ocimod = Ocimod::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let failed = ocimod.run(["serve", "--temporary", "--listen", &address]).fails_with(1);
    assert!(failed.stderr.contains("--listen 127.0.0.1:0"), "{}", failed.stderr);
}
