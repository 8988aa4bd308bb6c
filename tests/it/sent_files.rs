//! Large blobs, whole and in pieces, over every kind of connection: what is sent by the system, and what is read because it cannot be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ocimod::oci::Digest;
use reqwest::{Client, Version};
use tokio::task::JoinSet;

use crate::specification::client::bytes;
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::tls::Certificate;

/// More than two of the parts that are sent at a time, and not a multiple of them.
const LENGTH: usize = 3 * 1024 * 1024 + 7;

/// A store with one large blob in it, as another tool may have written it, and what is in the blob.
fn store(ocimod: &Ocimod) -> (PathBuf, Vec<u8>, Digest) {
    let content = bytes("large", LENGTH);
    let digest = Digest::of(&content);
    let layout = ocimod.folder("store").join("repos/acme/large/_oci");
    let blobs = layout.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(ocimod.folder("store").join("ocimod.json"), r#"{"formatVersion":1}"#).unwrap();
    std::fs::write(layout.join("index.json"), r#"{"schemaVersion":2,"manifests":[]}"#).unwrap();
    std::fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let path = blobs.join(digest.hex());
    std::fs::write(&path, &content).unwrap();
    // A younger file is not told from one that changes: it is read and hashed each time.
    std::thread::sleep(Duration::from_millis(2100));
    (path, content, digest)
}

fn serve(ocimod: &Ocimod, options: &[&str]) -> Serve {
    let store = format!("dir:{}", ocimod.folder("store").display());
    ocimod.serve([&["--registry", &store], options].concat())
}

fn trusting(authority: &Path) -> reqwest::ClientBuilder {
    let pem = std::fs::read(authority).unwrap();
    Client::builder().tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem).unwrap())
}

/// The whole blob several times and pieces of it, over few connections and many at once.
async fn is_sent(client: &Client, version: Version, url: &str, content: &[u8]) {
    let mut asking = JoinSet::new();
    for round in 0..4 {
        let (client, url, content) = (client.clone(), url.to_owned(), content.to_vec());
        asking.spawn(async move {
            for _ in 0..3 {
                let answer = client.get(&url).send().await.unwrap();
                assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
                assert_eq!(answer.content_length(), Some(LENGTH as u64));
                assert!(answer.bytes().await.unwrap() == content, "the whole in round {round}");
                for (first, last) in [
                    (0, LENGTH - 1),
                    (1, 1),
                    (7, 70_000),
                    (1024 * 1024 - 1, 2 * 1024 * 1024 + 5),
                    (LENGTH - 1, LENGTH - 1),
                ] {
                    let range = format!("bytes={first}-{last}");
                    let answer = client.get(&url).header("range", &range).send().await.unwrap();
                    assert_eq!(answer.status(), 206, "{range}");
                    assert!(answer.bytes().await.unwrap() == content[first..=last], "{range}");
                }
            }
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_blob_is_the_same_over_every_connection() {
    ocimod::registry::remote::install_crypto_provider();
    let ocimod = Ocimod::new();
    let (_, content, digest) = store(&ocimod);
    let path = format!("/v2/acme/large/blobs/{digest}");
    let plain = serve(&ocimod, &[]);
    let url = format!("http://{}{path}", plain.address);
    is_sent(&Client::builder().build().unwrap(), Version::HTTP_11, &url, &content).await;
    let prior = Client::builder().http2_prior_knowledge().build().unwrap();
    is_sent(&prior, Version::HTTP_2, &url, &content).await;

    let certificate = Certificate::create(ocimod.home.path());
    let [pem, key] =
        [&certificate.certificate_file, &certificate.key_file].map(|path| path.to_str().unwrap());
    let secure = serve(&ocimod, &["--tls-cert", pem, "--tls-key", key]);
    let url = format!("https://{}{path}", secure.address);
    let old = trusting(&certificate.certificate_file).http1_only().build().unwrap();
    is_sent(&old, Version::HTTP_11, &url, &content).await;
    let new = trusting(&certificate.certificate_file).build().unwrap();
    is_sent(&new, Version::HTTP_2, &url, &content).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_is_logged_and_counted_like_what_was_read() {
    let ocimod = Ocimod::new();
    let (_, content, digest) = store(&ocimod);
    let mut serve = serve(&ocimod, &[]);
    let url = format!("http://{}/v2/acme/large/blobs/{digest}", serve.address);
    for _ in 0..2 {
        assert!(reqwest::get(&url).await.unwrap().bytes().await.unwrap() == content);
    }
    let metrics =
        reqwest::get(format!("http://{}/metrics", serve.address)).await.unwrap().text().await.unwrap();
    let sent = format!(
        "ocimod_http_response_body_bytes_total{{route=\"/v2/{{repository}}/blobs/{{digest}}\"}} {}",
        2 * LENGTH
    );
    assert!(metrics.contains(&sent), "{metrics}");
    let log = serve.server.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("/blobs/{digest}")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines.iter().all(|line| line.contains(&format!("bytes={LENGTH}"))), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_changed_is_not_sent_as_it_was_known() {
    let ocimod = Ocimod::new();
    let (path, content, digest) = store(&ocimod);
    let serve = serve(&ocimod, &[]);
    let url = format!("http://{}/v2/acme/large/blobs/{digest}", serve.address);
    for _ in 0..2 {
        assert!(reqwest::get(&url).await.unwrap().bytes().await.unwrap() == content);
    }
    let mut changed = content.clone();
    changed[LENGTH / 2] ^= 1;
    std::fs::write(&path, &changed).unwrap();
    assert!(reqwest::get(&url).await.unwrap().bytes().await.is_err(), "it is broken off");
    let answer = reqwest::Client::new().get(&url).header("range", "bytes=0-9").send().await.unwrap();
    assert!(!answer.status().is_success(), "{answer:?}");
    std::fs::write(&path, &content).unwrap();
    assert!(reqwest::get(&url).await.unwrap().bytes().await.unwrap() == content);
}
