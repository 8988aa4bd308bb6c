//! A registry that keeps its blobs elsewhere: the archive is answered with 307 to where the registry itself points.

use std::sync::Arc;

use ocimod::oci::{Digest, Reference, Repository, Tag};
use ocimod::operations::connect;
use ocimod::operations::install::Installer;
use ocimod::operations::routes::{RepositoryTemplate, Routes};
use ocimod::registry::{
    Answer, Blob, BlobRequest, ManifestHead, Page, PageRequest, Registry, SharedRegistry, StoredManifest,
};
use ocimod::server::{self, App, ServerOptions};

use crate::support::modules::example;
use crate::support::ocimod::Ocimod;
use crate::support::process::run;

/// A registry in front of a storage service: whole blobs are there, pieces and everything else are here.
struct Redirecting(SharedRegistry);

impl Registry for Redirecting {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        self.0.tags(repository, page)
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        self.0.manifest(repository, reference)
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        self.0.manifest_head(repository, reference)
    }

    fn blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        request: BlobRequest,
    ) -> Answer<'a, Blob> {
        if request.location && request.range.is_none() {
            let location = format!("https://storage.example/{digest}?X-Signature=secret");
            return Box::pin(async move { Ok(Blob::Location(location.parse().expect("a URL"))) });
        }
        self.0.blob(repository, digest, request)
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        self.0.blob_size(repository, digest)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirecting_registry_is_pointed_at_and_its_signature_stays_out_of_the_log() {
    let ocimod = Ocimod::new();
    let store = ocimod.folder("store");
    let label = example("terraform-null-label");
    let mut push = ocimod.command();
    push.args(["push", "--registry"])
        .arg(format!("dir:{}", store.display()))
        .arg(label)
        .arg("acme/label/null@1.0.0");
    run(&mut push).success();

    let registry = connect::directory(store).await.expect("the store opens");
    let installer = Installer::without_search(Routes::new(Vec::new(), RepositoryTemplate::default()), None);
    let options = ServerOptions { distribution: true, ..ServerOptions::default() };
    let app = Arc::new(App::new(Arc::new(Redirecting(registry)), installer, options));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let upstream = tokio::spawn(server::serve(listener, app, std::future::pending::<()>()));

    let mut serve = ocimod.serve(["--registry", &address, "--log-level", "trace"]);
    ocimod::registry::remote::install_crypto_provider();
    let client =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let archive = format!("http://{}/v1/modules/acme/label/null/1.0.0/archive.zip", serve.address);
    let answer = client.get(&archive).send().await.expect("the server answers");
    assert_eq!(answer.status(), 307);
    let location = answer.headers()["location"].to_str().expect("a location");
    assert!(location.starts_with("https://storage.example/sha256:"), "{location}");

    // A URL that is signed for GET refuses HEAD, so HEAD is answered here; and a piece comes through the server.
    let head = client.head(&archive).send().await.expect("the server answers");
    assert_eq!(head.status(), 200);
    assert!(head.headers().contains_key("content-length"));
    let piece = client.get(&archive).header("range", "bytes=0-3").send().await.expect("the server answers");
    assert_eq!(piece.status(), 206);
    assert_eq!(piece.bytes().await.expect("a body").as_ref(), b"PK\x03\x04");

    upstream.abort();
    let log = serve.server.log();
    assert!(log.contains("archive.zip") && !log.contains("X-Signature") && !log.contains("secret"), "{log}");
}
