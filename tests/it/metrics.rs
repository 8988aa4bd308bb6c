//! What operators see: `/metrics`, the log, the probes; and the limits that keep a server within bounds.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::modules::example;
use crate::support::ocimod::{Ocimod, Serve};

fn served(ocimod: &Ocimod, more: &[&str]) -> Serve {
    let label = format!("{}@1.0.0", example("terraform-null-label").display());
    let arguments = ["--temporary", "--namespace", "acme", "--push", &label];
    ocimod.serve(arguments.into_iter().chain(more.iter().copied()))
}

fn client() -> reqwest::Client {
    ocimod::registry::remote::install_crypto_provider();
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client")
}

async fn get(address: &str, path: &str) -> reqwest::Response {
    client().get(format!("http://{address}{path}")).send().await.expect("the server answers")
}

/// The metrics, once they have all these lines: an answer is counted when its last byte is gone, which the caller may see a little
/// earlier.
pub(crate) async fn metrics_with<T: AsRef<str>>(address: &str, lines: &[T]) -> String {
    let mut text = String::new();
    for _ in 0..500 {
        text = get(address, "/metrics").await.text().await.expect("text");
        if lines.iter().all(|line| text.contains(line.as_ref())) {
            return text;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let missing = lines.iter().map(AsRef::as_ref).filter(|line| !text.contains(line)).collect::<Vec<_>>();
    panic!("there never was {missing:?} in\n{text}");
}

#[tokio::test]
async fn requests_registry_calls_and_downloads_are_counted() {
    let ocimod = Ocimod::new();
    let serve = served(&ocimod, &[]);
    get(&serve.address, "/v1/modules/acme/label/null/versions").await.bytes().await.unwrap();
    let download = get(&serve.address, "/v1/modules/acme/label/null/1.0.0/download").await;
    let location = download.json::<Value>().await.unwrap()["location"].as_str().unwrap().to_owned();
    let archive = get(&serve.address, &format!("/v1/modules/acme/label/null/1.0.0/{}", &location[2..])).await;
    let size = archive.bytes().await.unwrap().len();
    get(&serve.address, "/v1/modules/acme/nothing/null/versions").await.bytes().await.unwrap();
    client()
        .post(format!(
            "http://{}/v2/acme/x/blobs/uploads/?digest={}",
            serve.address,
            ocimod::oci::Digest::of(b"abc")
        ))
        .body("abc")
        .send()
        .await
        .unwrap();

    let versions = "/v1/modules/{namespace}/{name}/{system}/versions";
    let lines = [
        format!("ocimod_http_requests_total{{route=\"{versions}\",method=\"GET\",status=\"200\"}} 1\n"),
        format!("ocimod_http_requests_total{{route=\"{versions}\",method=\"GET\",status=\"404\"}} 1\n"),
        format!("ocimod_http_request_duration_seconds_count{{route=\"{versions}\"}} 2\n"),
        format!(
            "ocimod_http_response_body_bytes_total{{route=\"/v1/modules/{{namespace}}/{{name}}/{{system}}/{{version}}/archive.zip\"}} {size}\n"
        ),
        "ocimod_http_request_body_bytes_total{route=\"/v2/{repository}/blobs/uploads/\"} 3\n".to_owned(),
        "ocimod_module_downloads_total{namespace=\"acme\"} 1\n".to_owned(),
        "ocimod_registry_calls_total{registry=\"dir\",operation=\"blob\",outcome=\"ok\"}".to_owned(),
        "ocimod_registry_calls_total{registry=\"dir\",operation=\"tags\",outcome=\"not_found\"}".to_owned(),
        "ocimod_registry_written_bytes_total{registry=\"dir\"} 3\n".to_owned(),
        format!("ocimod_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION")),
    ];
    let text = metrics_with(&serve.address, &lines).await;
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn no_word_of_a_stranger_becomes_a_label() {
    let ocimod = Ocimod::new();
    let serve = served(&ocimod, &[]);
    for number in 0..20 {
        let path = format!("/v1/modules/stranger-{number}/label/null/versions");
        get(&serve.address, &path).await.bytes().await.unwrap();
        get(&serve.address, &format!("/stranger-{number}")).await.bytes().await.unwrap();
        get(&serve.address, &format!("/v2/stranger-{number}/tags/list")).await.bytes().await.unwrap();
        let method = reqwest::Method::from_bytes(format!("STRANGER{number}").as_bytes()).unwrap();
        client().request(method, format!("http://{}/", serve.address)).send().await.unwrap();
    }
    let text = metrics_with(&serve.address, &["method=\"other\",status=\"405\"} 20"]).await;
    assert!(!text.to_lowercase().contains("stranger"), "{text}");
}

#[tokio::test]
async fn the_metrics_can_have_an_address_of_their_own() {
    let ocimod = Ocimod::new();
    let mut serve = served(&ocimod, &["--metrics-listen", "127.0.0.1:0"]);
    let metrics = serve.server.wait_for(|line| {
        line.strip_prefix("metrics on http://")?.strip_suffix("/metrics").map(str::to_owned)
    });
    assert_eq!(get(&serve.address, "/metrics").await.status(), 404);
    assert_eq!(get(&metrics, "/v1/modules/acme/label/null/versions").await.status(), 404);
    assert_eq!(get(&metrics, "/readyz").await.status(), 200);
    metrics_with(&metrics, &["route=\"none\",method=\"GET\",status=\"404\"} 1\n"]).await;
    let rebound = client()
        .get(format!("http://{metrics}/metrics"))
        .header("host", "evil.example")
        .send()
        .await
        .unwrap();
    assert_eq!(rebound.status(), 403);
}

#[tokio::test]
async fn each_download_is_a_line_of_the_log_that_nobody_forges() {
    let ocimod = Ocimod::new();
    let mut serve = served(&ocimod, &["--log-format", "json"]);
    client()
        .get(format!("http://{}/v1/modules/acme/label/null/1.0.0/download", serve.address))
        .header("user-agent", "OpenTofu/1.12.6 (token=\"admin\")")
        .header("x-request-id", "proxy-7")
        .send()
        .await
        .unwrap();
    let line = serve.server.wait_for(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["fields"]["message"] == "download").then_some(line)
    });
    assert_eq!(line["fields"]["client"], "OpenTofu/1.12.6");
    assert_eq!(line["fields"]["module"], "acme/label/null");
    assert_eq!(line["fields"]["version"], "1.0.0");
    assert_eq!(line["fields"]["token"], "none");
    assert_eq!(line["span"]["id"], "proxy-7");
    let request = serve.server.wait_for(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["fields"]["status"] == 200).then_some(line)
    });
    assert_eq!(request["fields"]["complete"], true);
    assert!(request["fields"]["duration_ms"].is_u64());
}

/// A request whose body never ends: it holds its turn.
fn half_a_request(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "POST /v2/acme/x/blobs/uploads/?digest={} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 10\r\n\r\nabc", ocimod::oci::Digest::of(b""))
        .unwrap();
    stream
}

#[tokio::test]
async fn beyond_their_number_requests_are_asked_to_come_again_but_not_the_probes() {
    let ocimod = Ocimod::new();
    let serve = served(&ocimod, &["--max-requests", "1"]);
    let held = half_a_request(&serve.address);
    metrics_with(&serve.address, &["ocimod_http_requests_in_flight 2\n"]).await;
    let refused = get(&serve.address, "/v1/modules/acme/label/null/versions").await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "5");
    assert_eq!(get(&serve.address, "/healthz").await.status(), 200);
    assert_eq!(get(&serve.address, "/readyz").await.status(), 200);
    metrics_with(&serve.address, &["ocimod_http_refused_total{reason=\"busy\"} 1\n"]).await;
    drop(held);
    // It is known to be gone when its turn is free again.
    metrics_with(&serve.address, &["ocimod_http_requests_in_flight 1\n"]).await;
    assert_eq!(get(&serve.address, "/v1/modules/acme/label/null/versions").await.status(), 200);
}

#[tokio::test]
async fn beyond_their_number_connections_are_closed() {
    let ocimod = Ocimod::new();
    let serve = served(&ocimod, &["--max-connections", "1"]);
    let mut first = TcpStream::connect(&serve.address).unwrap();
    write!(first, "GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", serve.address).unwrap();
    let mut answered = [0; 12];
    first.read_exact(&mut answered).unwrap();
    assert_eq!(&answered, b"HTTP/1.1 200");
    let mut second = TcpStream::connect(&serve.address).unwrap();
    // It is closed with or without a word of the operating system.
    assert!(matches!(second.read(&mut [0; 1]), Ok(0) | Err(_)));
    drop(first);
    // The place is free as soon as the server has seen the end.
    let mut answer = None;
    for _ in 0..500 {
        answer = client().get(format!("http://{}/metrics", serve.address)).send().await.ok();
        if answer.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let text = answer.expect("there is a place again").text().await.unwrap();
    assert!(text.contains("ocimod_http_refused_total{reason=\"connections\"}"), "{text}");
    assert!(text.contains("ocimod_http_connections 1\n"), "{text}");
}
