//! TLS towards registries: who is trusted, to whom a client certificate is shown, and how long a handshake may take.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use ocimod::oci::Digest;
use ocimod::registry::credentials::{Credential, CredentialSource};
use ocimod::registry::remote::{RemoteOptions, RemoteRegistry, RetryPolicy, Timeouts, TlsOptions};
use ocimod::registry::{Blob, BlobRequest, Registry, RegistryError, read_bounded};

use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::example;
use crate::support::ocimod::Ocimod;
use crate::support::process::run;
use crate::support::tls::Certificate;
use crate::support::tls_server::{TlsServer, answer};

fn options(registry: &str, credential: Credential) -> RemoteOptions {
    let moment = Duration::from_millis(1);
    let retry =
        RetryPolicy { tries: 1, first_wait: moment, longest_wait: moment, longest_asked: Duration::ZERO };
    let options = RemoteOptions::new(registry.parse().unwrap(), CredentialSource::fixed(credential));
    RemoteOptions { plain_http: Some(false), retry, ..options }
}

#[test]
fn a_client_certificate_opens_a_registry() {
    let ocimod = Ocimod::new();
    let server = Certificate::create(ocimod.home.path());
    let own = Certificate::create(&ocimod.folder("own"));
    let Some(registry) = DockerRegistry::start_for_certificates(&server, &own.certificate_file) else {
        return;
    };
    let text = |path: &Path| path.to_str().expect("a path of the test").to_owned();
    let (ca, certificate, key) =
        (text(&server.certificate_file), text(&own.certificate_file), text(&own.key_file));
    let push = |more: &[&str]| {
        let mut command = ocimod.command();
        command.args(["push", "--registry", &registry.address]).args(more);
        run(command.arg(example("terraform-null-label")).arg("acme/label/null@1.0.0"))
    };
    push(&["--ca-file", &ca]).fails_with(6);
    push(&["--ca-file", &ca, "--cert-file", &ca, "--key-file", &text(&server.key_file)]).fails_with(6);
    push(&["--ca-file", &ca, "--cert-file", &certificate]).fails_with(2);
    push(&["--ca-file", &ca, "--cert-file", &certificate, "--key-file", &key]).success();
    let unknown = push(&["--cert-file", &certificate, "--key-file", &key]).fails_with(6);
    assert!(unknown.stderr.contains("certificate"), "{}", unknown.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_shown_to_the_registry_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = Certificate::create(folder.path());
    let own_folder = folder.path().join("own");
    std::fs::create_dir(&own_folder).unwrap();
    let own = Certificate::create(&own_folder);

    let storage = TlsServer::start(&server, |_| answer("200 OK", "", "content"));
    let tokens = TlsServer::start(&server, |_| answer("200 OK", "", r#"{"token":"t"}"#));
    let (to, realm) = (storage.port, tokens.port);
    let registry = TlsServer::start(&server, move |line| {
        if line == "GET /v2/" {
            let challenge = format!("www-authenticate: Bearer realm=\"https://localhost:{realm}/token\"\r\n");
            return answer("401 Unauthorized", &challenge, "");
        }
        answer("307 Temporary Redirect", &format!("location: https://localhost:{to}/signed\r\n"), "")
    });

    let credential = Credential::Basic { username: "ann".into(), password: "s3cret".into() };
    let tls = TlsOptions {
        ca_file: Some(server.certificate_file.clone()),
        client_certificate: Some((own.certificate_file.clone(), own.key_file.clone())),
    };
    let options = RemoteOptions { tls, ..options(&format!("localhost:{}", registry.port), credential) };
    let remote = RemoteRegistry::new(options).unwrap();
    let (repository, digest) = ("acme/vpc".parse().unwrap(), Digest::of(b"content"));
    let blob = remote.blob(&repository, &digest, BlobRequest::default()).await.unwrap();
    let Blob::Stream(blob) = blob else { panic!("a location that nobody asked for") };
    assert_eq!(read_bounded(blob.bytes, 100).await.unwrap().as_ref(), b"content");

    assert!(registry.requests().iter().all(|request| request.certificate.is_some()));
    for elsewhere in [&storage, &tokens] {
        let requests = elsewhere.requests();
        assert!(!requests.is_empty() && requests.iter().all(|request| request.certificate.is_none()));
    }
    assert!(storage.requests().iter().all(|request| !request.head.contains("authorization")));
    assert!(tokens.requests()[0].head.contains("authorization: basic "), "the realm was checked, so it may");
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_left() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let timeouts = Timeouts { connect: Duration::from_millis(50), ..Timeouts::default() };
    let options = RemoteOptions { timeouts, ..options(&address, Credential::Anonymous) };
    let remote = RemoteRegistry::new(options).unwrap();
    let (repository, digest) = ("acme/vpc".parse().unwrap(), Digest::of(b"content"));
    let error = remote.blob_size(&repository, &digest).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unavailable { .. }), "{error}");
}
