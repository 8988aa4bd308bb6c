//! https and base paths, as clients see them.

use std::path::Path;

use reqwest::{Response, Version};
use serde_json::{Value, json};

use crate::support::clients;
use crate::support::modules::{Root, example};
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{kill, run};
use crate::support::tls::Certificate;

/// A client that trusts what is in a file and nothing else; each one has connections of its own.
fn client(authority: &Path) -> reqwest::Client {
    ocimod::registry::remote::install_crypto_provider();
    let pem = std::fs::read(authority).expect("there is a certificate");
    let trusted = reqwest::Certificate::from_pem_bundle(&pem).expect("it is PEM");
    reqwest::Client::builder().tls_certs_only(trusted).build().expect("a client")
}

async fn get(authority: &Path, serve: &Serve, path: &str) -> reqwest::Result<Response> {
    client(authority).get(format!("https://{}{path}", serve.address)).send().await
}

fn stored(ocimod: &Ocimod) -> String {
    let store = format!("dir:{}", ocimod.folder("store").display());
    ocimod.push(&store, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    store
}

fn with_certificate(ocimod: &Ocimod, certificate: &Certificate) -> Serve {
    let text = |path: &Path| path.to_str().expect("a path of the test").to_owned();
    let (certificate, key) = (text(&certificate.certificate_file), text(&certificate.key_file));
    ocimod.serve(["--temporary", "--tls-cert", &certificate, "--tls-key", &key])
}

#[tokio::test(flavor = "multi_thread")]
async fn https_is_spoken_in_both_versions_of_http_and_plain_http_is_not() {
    let ocimod = Ocimod::new();
    let certificate = Certificate::create(ocimod.home.path());
    let serve = with_certificate(&ocimod, &certificate);
    let answer = get(&certificate.certificate_file, &serve, "/healthz").await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
    let pem = std::fs::read(&certificate.certificate_file).unwrap();
    let old = reqwest::Client::builder()
        .tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem).unwrap())
        .http1_only()
        .build()
        .unwrap();
    let answer = old.get(format!("https://{}/healthz", serve.address)).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_11));
    let plain = reqwest::get(format!("http://{}/healthz", serve.address)).await;
    assert!(plain.is_err(), "nothing is answered in the clear");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_taken_over_and_a_bad_one_is_not() {
    let ocimod = Ocimod::new();
    let certificate = Certificate::create(ocimod.home.path());
    let mut serve = with_certificate(&ocimod, &certificate);
    let first = ocimod.home.path().join("first.pem");
    std::fs::copy(&certificate.certificate_file, &first).unwrap();
    assert!(get(&first, &serve, "/healthz").await.is_ok());

    // A certificate whose key has not come yet.
    let other = Certificate::create(&ocimod.folder("other"));
    std::fs::copy(&other.certificate_file, &certificate.certificate_file).unwrap();
    kill(serve.server.pid(), "HUP");
    serve.server.wait_for(|line| line.contains("the key is not that of the certificate").then_some(()));
    assert!(get(&first, &serve, "/healthz").await.is_ok());

    std::fs::copy(&other.key_file, &certificate.key_file).unwrap();
    kill(serve.server.pid(), "HUP");
    serve.server.wait_for(|line| line.contains("read again").then_some(()));
    assert!(get(&first, &serve, "/healthz").await.is_err());
    assert!(get(&other.certificate_file, &serve, "/healthz").await.is_ok());

    // Nobody has to send a signal.
    let third = Certificate::create(&ocimod.folder("third"));
    std::fs::copy(&third.key_file, &certificate.key_file).unwrap();
    std::fs::copy(&third.certificate_file, &certificate.certificate_file).unwrap();
    serve.server.wait_for(|line| line.contains("read again").then_some(()));
    assert!(get(&third.certificate_file, &serve, "/healthz").await.is_ok());
    assert!(!serve.server.log().contains("PRIVATE"));
}

#[test]
fn options_that_contradict_each_other_are_wrong_usage() {
    let ocimod = Ocimod::new();
    let certificate = Certificate::create(ocimod.home.path());
    let (cert, key) = (&certificate.certificate_file, &certificate.key_file);
    let text = |path: &Path| path.to_str().expect("a path of the test").to_owned();
    let (cert, key) = (text(cert), text(key));
    for (arguments, word) in [
        (vec!["--tls-cert", &cert], "give both"),
        (vec!["--tls-key", &key], "give both"),
        (vec!["--tls-cert", &cert, "--tls-key", &key, "--tls-self-signed", "tls"], "of its own"),
        (vec!["--tls-cert", &cert, "--tls-key", &cert], "no private key"),
        (vec!["--tls-cert", &key, "--tls-key", &key], "no certificate"),
        (vec!["--tls-cert", "nothing", "--tls-key", &key], "cannot be read"),
        (vec!["--base-path", "ocimod"], "no base path"),
        (vec!["--base-path", "/v2"], "would hide"),
    ] {
        let failed = ocimod.run(["serve", "--temporary"].into_iter().chain(arguments)).fails_with(2);
        assert!(failed.stderr.contains(word), "{word}: {}", failed.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_trials_is_made_once_and_its_use_is_told() {
    let ocimod = Ocimod::new();
    let start =
        || ocimod.serve(["--temporary", "--tls-self-signed", "tls", "--host", "modules.acme.example"]);
    let folder = ocimod.home.path().join("tls");
    let mut first = start();
    let authority = std::fs::read(folder.join("ca.pem")).unwrap();
    for trusted in ["ca.pem", "ca-bundle.pem"] {
        assert!(get(&folder.join(trusted), &first, "/healthz").await.is_ok(), "{trusted}");
    }
    let port = first.address.split_once(':').unwrap().1.to_owned();
    let log = first.server.log();
    for line in [
        format!("serving modules on https://{}", first.address),
        format!("source  = \"modules.acme.example:{port}/NAMESPACE/NAME/SYSTEM\""),
        format!("SSL_CERT_FILE={}", folder.join("ca-bundle.pem").display()),
        "security add-trusted-cert".to_owned(),
        "certutil".to_owned(),
    ] {
        assert!(log.contains(&line), "{line} is not in:\n{log}");
    }
    assert!(!log.contains("host \""), "discovery finds the rest:\n{log}");
    drop(first);
    let again = start();
    assert_eq!(std::fs::read(folder.join("ca.pem")).unwrap(), authority);
    assert!(get(&folder.join("ca.pem"), &again, "/healthz").await.is_ok());
}

const LABEL: &str = "  version = \"~> 1.0\"\n  namespace = \"acme\"\n  stage = \"test\"\n  name = \"shop\"\n";

fn main(source: &str) -> String {
    format!(
        "module \"it\" {{\n  source = \"{source}\"\n{LABEL}}}\n\noutput \"it\" {{\n  value = module.it.id\n}}\n"
    )
}

#[test]
fn clients_install_over_https_by_discovery() {
    let ocimod = Ocimod::new();
    let store = stored(&ocimod);
    for base in ["", "/ocimod"] {
        let mut arguments = vec!["--registry", &store, "--tls-self-signed", "tls"];
        if !base.is_empty() {
            arguments.extend(["--base-path", base]);
        }
        let serve = ocimod.serve(arguments);
        for tofu in clients::tofus() {
            let name = tofu.file_name().expect("a program has a name").to_string_lossy().into_owned();
            let folder = ocimod.folder(&format!("{name}{}", base.replace('/', "-")));
            let main = main(&format!("{}/acme/label/null", serve.address));
            let root = Root::new(&tofu, &folder, "unused.example", &serve.address, &main);
            let bundle = ocimod.home.path().join("tls/ca-bundle.pem");
            let say = |arguments: &[&str]| run(root.command().env("SSL_CERT_FILE", &bundle).args(arguments));
            // Who does not trust the authority gets nothing.
            let refused = run(root.command().env("SSL_CERT_FILE", "/dev/null").args(["init", "-no-color"]));
            refused.fails_with(1);
            say(&["init", "-no-color", "-input=false"]).success();
            say(&["apply", "-no-color", "-input=false", "-auto-approve"]).success();
            assert_eq!(say(&["output", "-json", "it"]).success().json(), json!("acme-test-shop"), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_base_path_is_everything_but_what_clients_expect_at_the_root() {
    let ocimod = Ocimod::new();
    let store = stored(&ocimod);
    let mut serve = ocimod.serve(["--registry", &store, "--base-path", "/team/ocimod"]);
    ocimod::registry::remote::install_crypto_provider();
    let url = |path: &str| format!("http://{}{path}", serve.address);
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/.well-known/terraform.json", 200),
        ("/v2/", 200),
        ("/v2/acme/label/null/tags/list", 200),
        ("/team/ocimod", 200),
        ("/team/ocimod/", 200),
        ("/team/ocimod/healthz", 200),
        ("/team/ocimod/readyz", 200),
        ("/team/ocimod/.well-known/terraform.json", 200),
        ("/team/ocimod/v1/modules/acme/label/null/versions", 200),
        ("/team/ocimod/v1/modules/acme/label/null/1.0.0/archive.zip", 200),
        ("/v1/modules/acme/label/null/versions", 404),
        ("/v1/modules/acme/label/null/1.0.0/download", 404),
        ("/v1/modules/acme/label/null/1.0.0/archive.zip", 404),
        ("/team/ocimod/v2/", 404),
        ("/team/ocimod/v2/acme/label/null/tags/list", 404),
        ("/team", 404),
        ("/team/ocimodv1/modules/acme/label/null/versions", 404),
        ("/team/ocimod/nothing", 404),
        ("/nothing", 404),
    ] {
        let answer = reqwest::get(url(path)).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
    }
    for path in ["/.well-known/terraform.json", "/team/ocimod/.well-known/terraform.json"] {
        let services: Value = reqwest::get(url(path)).await.unwrap().json().await.unwrap();
        assert_eq!(services, json!({"modules.v1": "/team/ocimod/v1/modules/"}));
    }
    let unknown = reqwest::get(url("/team/ocimod/v1/modules/acme/nothing/null/versions")).await.unwrap();
    assert!(unknown.json::<Value>().await.unwrap()["errors"][0].is_string(), "errors keep their form");
    let missing = reqwest::get(url("/v2/acme/nothing/manifests/v1")).await.unwrap();
    assert!(missing.json::<Value>().await.unwrap()["errors"][0]["code"].is_string());
    // The link is relative, so it stays below the base path.
    let download = url("/team/ocimod/v1/modules/acme/label/null/1.0.0/download");
    let answer: Value = reqwest::get(&download).await.unwrap().json().await.unwrap();
    let location = answer["location"].as_str().unwrap();
    let archive = download.parse::<url::Url>().unwrap().join(location).unwrap();
    assert_eq!(reqwest::get(archive).await.unwrap().status(), 200);

    let log = serve.server.log();
    assert!(log.contains(&format!("\"http://{}/team/ocimod/v1/modules/\"", serve.address)), "{log}");
    let server = format!("{}/team/ocimod", serve.address);
    tokio::task::spawn_blocking(move || {
        for tofu in clients::tofus() {
            let name = tofu.file_name().expect("a program has a name").to_string_lossy().into_owned();
            let main = main("modules.internal/acme/label/null");
            let root = Root::new(&tofu, &ocimod.folder(&name), "modules.internal", &server, &main);
            assert_eq!(root.apply("it"), json!("acme-test-shop"), "{name}");
        }
    })
    .await
    .unwrap();
}
