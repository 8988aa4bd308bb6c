//! Links to archives: what they open, what they cost, and how the bytes come, in every mode of `--archives`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ocimod::oci::{Digest, Reference, Repository, Tag};
use ocimod::operations::connect;
use ocimod::operations::install::Installer;
use ocimod::operations::routes::{RepositoryTemplate, Routes, Target};
use ocimod::registry::{
    Answer, Blob, BlobRequest, BytesSource, Condition, ManifestHead, NewManifest, Page, PageRequest,
    Registry, SharedRegistry, StoredManifest,
};
use ocimod::server::{self, App, ArchiveMode, Archives, Keys, Live, ServerOptions};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::access::{Site, token};
use crate::failing_registry::{FailingRegistry, Failure, When};
use crate::support::clients;
use crate::support::modules::{Root, example};
use crate::support::ocimod::Ocimod;
use crate::support::process::kill;

const MODULE: &str = "/v1/modules/acme/label/null/1.0.0";

/// A registry that keeps its blobs elsewhere: there the whole of each can be had.
struct Pointing {
    inner: SharedRegistry,
    elsewhere: String,
}

impl Registry for Pointing {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        self.inner.tags(repository, page)
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        self.inner.manifest(repository, reference)
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        self.inner.manifest_head(repository, reference)
    }

    fn blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        request: BlobRequest,
    ) -> Answer<'a, Blob> {
        if request.location {
            let url = format!("{}/v2/{repository}/blobs/{digest}?sig=secret", self.elsewhere);
            return Box::pin(async move { Ok(Blob::Location(url.parse().expect("a URL"))) });
        }
        self.inner.blob(repository, digest, request)
    }

    fn blob_url<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, url::Url> {
        let url = format!("https://registry.example/v2/{repository}/blobs/{digest}");
        Box::pin(async move { Ok(url.parse().expect("a URL")) })
    }
}

/// A store with the example in it.
pub(crate) fn stored(ocimod: &Ocimod) -> String {
    let store = format!("dir:{}", ocimod.folder("store").display());
    ocimod.push(&store, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    ocimod.push(&store, &example("terraform-null-label"), "acme/label/null@1.1.0", &[]);
    ocimod.push(&store, &example("terraform-null-stack"), "acme/stack/null@1.0.0", &[]);
    store
}

pub(crate) async fn opened(ocimod: &Ocimod) -> SharedRegistry {
    connect::directory(ocimod.folder("store")).await.expect("the store opens")
}

/// A server within the test.
pub(crate) struct Served {
    pub(crate) address: String,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    pub(crate) fn start(registry: SharedRegistry, archives: Archives) -> Self {
        Self::listen(Self::app(registry, archives))
    }

    /// What such a server serves, for whoever puts something in front of it.
    pub(crate) fn app(registry: SharedRegistry, archives: Archives) -> Arc<App> {
        let target = Target {
            registry: Arc::clone(&registry),
            prefix: String::new(),
            name: "registry.example".to_owned(),
            identity: "registry.example".into(),
            is_local: false,
        };
        let routes = Routes::new(vec![(None, Some(target))], RepositoryTemplate::default());
        let options = ServerOptions { distribution: true, archives, ..ServerOptions::default() };
        Arc::new(App::new(registry, Installer::without_search(routes, None), options))
    }

    fn listen(app: Arc<App>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        Self { address, task: tokio::spawn(server::serve(listener, app, std::future::pending::<()>())) }
    }
}

fn mode(mode: ArchiveMode) -> Archives {
    Archives { mode, ..Archives::default() }
}

fn request(method: Method, address: &str, path: &str, headers: &[(&str, &str)]) -> reqwest::RequestBuilder {
    ocimod::registry::remote::install_crypto_provider();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    let request = client.expect("a client").request(method, format!("http://{address}{path}"));
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

async fn ask(method: Method, address: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    request(method, address, path, headers).send().await.expect("the server answers")
}

async fn get(address: &str, path: &str) -> Response {
    ask(Method::GET, address, path, &[]).await
}

fn header(response: &Response, name: &str) -> String {
    response.headers().get(name).map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default()
}

/// What `download` answers.
pub(crate) async fn location(address: &str, module: &str) -> String {
    let answer = get(address, &format!("{module}/download")).await;
    assert_eq!(answer.status(), 200);
    let location = header(&answer, "x-terraform-get");
    assert_eq!(answer.json::<Value>().await.unwrap(), json!({ "location": location }));
    location
}

/// The query that a client asks with: without `checksum`, sorted, escaped.
pub(crate) fn as_sent(location: &str) -> Vec<(String, String)> {
    let (path, query) = location.split_once('?').expect("a link has a query");
    assert_eq!(path, "./archive.zip");
    let mut pairs: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .filter(|(name, _)| name != "checksum")
        .collect();
    pairs.sort();
    pairs
}

pub(crate) fn archive(module: &str, pairs: &[(String, String)]) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    format!("{module}/archive.zip?{query}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_costs_no_request_but_that_of_the_blob() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let registry = FailingRegistry::new(opened(&ocimod).await);
    let serve = Served::start(registry.clone(), Archives::default());
    let link = archive(MODULE, &as_sent(&location(&serve.address, MODULE).await));
    registry.take_calls();
    let head = ask(Method::HEAD, &serve.address, &link, &[]).await;
    assert_eq!((head.status().as_u16(), registry.take_calls()), (200, vec![]));
    let whole = get(&serve.address, &link).await;
    assert_eq!(header(&whole, "content-length"), header(&head, "content-length"));
    let bytes = whole.bytes().await.unwrap();
    assert!(link.contains(Digest::of(&bytes).hex()));
    let calls = registry.take_calls();
    assert_eq!(calls.iter().map(|call| call.operation).collect::<Vec<_>>(), ["blob"], "{calls:?}");
    // As often as a client likes.
    assert_eq!(get(&serve.address, &link).await.bytes().await.unwrap(), bytes);
    // Which zip was looked at is remembered, so a second link costs no look at it.
    registry.take_calls();
    location(&serve.address, MODULE).await;
    assert_eq!(registry.count("blob"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_altered_link_and_one_used_elsewhere_open_nothing() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let registry = FailingRegistry::new(opened(&ocimod).await);
    let serve = Served::start(registry.clone(), Archives::default());
    let link = as_sent(&location(&serve.address, MODULE).await);
    let stack = "/v1/modules/acme/stack/null/1.0.0";
    let other = as_sent(&location(&serve.address, stack).await);
    let value = |link: &[(String, String)], name: &str| {
        link.iter().find(|pair| pair.0 == name).expect("a parameter").1.clone()
    };
    registry.take_calls();

    let mut requests = vec![
        // Another module, another version, and the same module by another spelling of its path.
        archive(stack, &link),
        archive("/v1/modules/acme/label/null/1.1.0", &link),
        archive("/v1/modules/acme/label/null/v1.0.0", &link),
        archive("/v1/modules/Acme/label/null/1.0.0", &link),
        archive("/v1/modules/acme/label%2Fnull/x/1.0.0", &link),
        format!("{MODULE}/archive.zip?checksum={}", value(&link, "digest")),
        format!("{}&checksum={}", archive(MODULE, &link), value(&other, "digest")),
        format!("{}&digest={}", archive(MODULE, &link), value(&link, "digest")),
    ];
    for (index, (name, _)) in link.iter().enumerate() {
        let mut without = link.clone();
        without.remove(index);
        if name != "registry" {
            requests.push(archive(MODULE, &without));
        }
        for changed in [value(&other, name), format!("{}0", link[index].1), String::new()] {
            // The number of the registry is a hint, and both links expire in the same second.
            if name == "registry" || changed == link[index].1 {
                continue;
            }
            let mut altered = link.clone();
            altered[index].1 = changed;
            requests.push(archive(MODULE, &altered));
        }
    }
    assert!(requests.len() > 20, "{}", requests.len());
    for request in &requests {
        for method in [Method::GET, Method::HEAD] {
            let is_head = method == Method::HEAD;
            let refused = ask(method, &serve.address, request, &[]).await;
            assert_eq!(refused.status(), 403, "{request}");
            let body: String = refused.text().await.unwrap();
            assert!(is_head || body.contains("run init again"), "{request}: {body}");
        }
    }
    assert_eq!(registry.take_calls(), vec![], "the registry is not asked for what nobody may have");
    assert_eq!(get(&serve.address, &archive(MODULE, &link)).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_link_and_one_of_other_keys_open_nothing() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let registry = opened(&ocimod).await;
    let at_once = Archives { link_lifetime: Duration::ZERO, ..Archives::default() };
    let serve = Served::start(Arc::clone(&registry), at_once);
    let link = archive(MODULE, &as_sent(&location(&serve.address, MODULE).await));
    let expired = get(&serve.address, &link).await;
    assert_eq!(expired.status(), 403);
    let body = expired.text().await.unwrap();
    assert!(body.contains("expired") && body.contains("run init again"), "{body}");

    let keys = || Some(Live::fixed(Keys::generate().expect("random numbers")));
    let one = Served::start(Arc::clone(&registry), Archives { keys: keys(), ..Archives::default() });
    let other = Served::start(registry, Archives { keys: keys(), ..Archives::default() });
    let link = archive(MODULE, &as_sent(&location(&one.address, MODULE).await));
    assert_eq!(get(&one.address, &link).await.status(), 200);
    assert_eq!(get(&other.address, &link).await.status(), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_conditions_and_what_caches_are_told() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let serve = Served::start(opened(&ocimod).await, Archives::default());
    let link = archive(MODULE, &as_sent(&location(&serve.address, MODULE).await));

    let whole = ask(Method::GET, &serve.address, &link, &[("accept-encoding", "gzip, br")]).await;
    assert_eq!(whole.status(), 200);
    assert_eq!(header(&whole, "cache-control"), "private");
    assert_eq!(header(&whole, "content-type"), "application/zip");
    assert_eq!(header(&whole, "content-encoding"), "");
    let etag = header(&whole, "etag");
    let bytes = whole.bytes().await.unwrap();
    assert_eq!(etag, format!("\"{}\"", Digest::of(&bytes)));

    let piece = ask(Method::GET, &serve.address, &link, &[("range", "bytes=4-9")]).await;
    assert_eq!(piece.status(), 206);
    assert_eq!(header(&piece, "content-range"), format!("bytes 4-9/{}", bytes.len()));
    assert_eq!(piece.bytes().await.unwrap(), bytes[4..10]);
    let beyond = ask(Method::GET, &serve.address, &link, &[("range", "bytes=99999999-")]).await;
    assert_eq!(
        (beyond.status().as_u16(), header(&beyond, "content-range")),
        (416, format!("bytes */{}", bytes.len()))
    );
    let changed =
        ask(Method::GET, &serve.address, &link, &[("range", "bytes=4-9"), ("if-range", "\"other\"")]).await;
    assert_eq!((changed.status().as_u16(), changed.bytes().await.unwrap()), (200, bytes.clone()));
    let same = ask(Method::GET, &serve.address, &link, &[("range", "bytes=4-9"), ("if-range", &etag)]).await;
    assert_eq!(same.status(), 206);
    let known = ask(Method::GET, &serve.address, &link, &[("if-none-match", &etag)]).await;
    assert_eq!(known.status(), 304);
    let head = ask(Method::HEAD, &serve.address, &link, &[("range", "bytes=4-9")]).await;
    assert_eq!((head.status().as_u16(), header(&head, "content-length")), (200, bytes.len().to_string()));
    let download = get(&serve.address, &format!("{MODULE}/download")).await;
    assert_eq!(header(&download, "cache-control"), "no-store", "a link is a secret for some minutes");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_names_a_version_and_brings_no_link_gets_it_all_the_same() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let serve = Served::start(opened(&ocimod).await, Archives::default());
    for path in ["archive.zip", "archive.zip?", "archive.zip?terraform-get=1"] {
        assert_eq!(get(&serve.address, &format!("{MODULE}/{path}")).await.status(), 200, "{path}");
    }
    let unknown = get(&serve.address, "/v1/modules/acme/label/null/2.0.0/archive.zip").await;
    assert_eq!(unknown.status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mode_sends_clients_where_it_says() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let inner = opened(&ocimod).await;
    for (elsewhere, chosen, expected) in [
        ("https://storage.example", ArchiveMode::Auto, 307),
        ("https://storage.example", ArchiveMode::Redirect, 307),
        ("https://storage.example", ArchiveMode::Proxy, 200),
        ("http://storage.example", ArchiveMode::Auto, 200),
        ("http://storage.example", ArchiveMode::Redirect, 307),
        ("http://storage.example", ArchiveMode::Proxy, 200),
    ] {
        let registry = Arc::new(Pointing { inner: Arc::clone(&inner), elsewhere: elsewhere.to_owned() });
        let serve = Served::start(registry, mode(chosen));
        let link = archive(MODULE, &as_sent(&location(&serve.address, MODULE).await));
        let answer = get(&serve.address, &link).await;
        assert_eq!(answer.status(), expected, "{elsewhere} {chosen:?}");
        if expected == 307 {
            assert!(header(&answer, "location").starts_with(elsewhere));
            assert_eq!(header(&answer, "cache-control"), "no-store");
        } else {
            let bytes = answer.bytes().await.unwrap();
            assert!(link.contains(Digest::of(&bytes).hex()), "{elsewhere} {chosen:?}");
        }
        // What is signed for GET refuses HEAD.
        let head = ask(Method::HEAD, &serve.address, &link, &[]).await;
        assert_eq!((head.status().as_u16(), header(&head, "location")), (200, String::new()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_names_the_registry_s_own_url() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let inner = opened(&ocimod).await;
    let registry = Arc::new(Pointing { inner: Arc::clone(&inner), elsewhere: String::new() });
    let serve = Served::start(registry, mode(ArchiveMode::Direct));
    let bare = location(&serve.address, MODULE).await;
    let (url, query) = bare.split_once('?').expect("a query");
    let digest = url.strip_prefix("https://registry.example/v2/acme/label/null/blobs/").expect(&bare);
    assert_eq!(query, format!("archive=zip&checksum={digest}"));
    // A registry that has no such URL is none that clients can be sent to.
    let serve = Served::start(FailingRegistry::new(inner), mode(ArchiveMode::Direct));
    let link = location(&serve.address, MODULE).await;
    assert_eq!(get(&serve.address, &archive(MODULE, &as_sent(&link))).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_names_the_server_s_own_blob_only_where_everybody_reads_it() {
    for (more, is_bare) in [(&[][..], false), (&["--anonymous", "read"], true)] {
        let ocimod = Ocimod::new();
        stored(&ocimod);
        let registry = format!("dir:{}", ocimod.folder("store").display());
        let site = Site::over(ocimod, &registry, &[&["--archives", "direct"], more].concat());
        let authorization = format!("Bearer {}", token("read-all"));
        let path = format!("{MODULE}/download");
        let answer = site.send("GET", &path, &[("authorization", &authorization)], Vec::new()).await;
        let location = answer.header("x-terraform-get");
        assert_eq!(location.starts_with("/v2/"), is_bare, "clients send no token there: {location}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_mode_no_link_is_given_to_a_zip_that_breaks_the_rules() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let registry = opened(&ocimod).await;
    let repository: Repository = "acme/label/null".parse().unwrap();
    let reference = Reference::Tag("v1.0.0".parse().unwrap());
    let good = registry.manifest(&repository, &reference).await.unwrap();
    let mut manifest: Value = serde_json::from_slice(&good.bytes).unwrap();
    let bad = Bytes::from_static(
        b"PK\x03\x04 and nothing that a zip ends with, but long enough to be taken for one",
    );
    let mut layers = manifest["layers"].as_array_mut().unwrap().iter_mut();
    let zip = layers.find(|layer| layer["mediaType"].as_str().unwrap().contains("zip")).unwrap();
    zip["digest"] = Digest::of(&bad).as_str().into();
    zip["size"] = bad.len().into();
    registry.put_blob(&repository, &Digest::of(&bad), &BytesSource(bad)).await.unwrap();
    let manifest = NewManifest {
        media_type: good.media_type,
        bytes: manifest.to_string().into(),
        digest: None,
        tags: vec!["v6.6.6".parse().unwrap()],
        condition: Condition::None,
    };
    registry.put_manifest(&repository, &manifest).await.unwrap();
    for chosen in [ArchiveMode::Auto, ArchiveMode::Proxy, ArchiveMode::Redirect, ArchiveMode::Direct] {
        let elsewhere = "https://storage.example".to_owned();
        let serve =
            Served::start(Arc::new(Pointing { inner: Arc::clone(&registry), elsewhere }), mode(chosen));
        for path in ["download", "archive.zip"] {
            let refused = get(&serve.address, &format!("/v1/modules/acme/label/null/6.6.6/{path}")).await;
            assert_eq!(refused.status(), 422, "{chosen:?} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_archive_of_a_corrupted_blob_breaks_off() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let registry = FailingRegistry::new(opened(&ocimod).await);
    let upstream = Served::start(registry.clone(), Archives::default());
    // What came once is kept, so each failure has a server of its own that has not had it.
    let server = |name: &str| {
        let folder = ocimod.folder(name).display().to_string();
        ocimod.serve(["--registry", &upstream.address, "--archives", "proxy", "--cache-dir", &folder])
    };
    let serve = server("cache");
    let link = archive(MODULE, &as_sent(&location(&serve.address, MODULE).await));
    let good = get(&serve.address, &link).await.bytes().await.unwrap();
    let failures = [Failure::Corrupt(0), Failure::Corrupt(good.len() as u64 - 1), Failure::CutAfter(9)];
    for (number, failure) in failures.into_iter().enumerate() {
        let serve = server(&format!("cache-{number}"));
        let link = archive(MODULE, &as_sent(&location(&serve.address, MODULE).await));
        registry.fail("blob", When::Always, failure);
        // The connection ends within the body or before the head of the answer. Where the registry behind fails before its first
        // byte is on the way, that can still be said.
        let whole = async {
            let answer = request(Method::GET, &serve.address, &link, &[]).send().await?.error_for_status()?;
            answer.bytes().await
        };
        assert!(whole.await.is_err(), "wrong bytes came to a clean end");
        registry.work_again();
        assert_eq!(get(&serve.address, &link).await.bytes().await.unwrap(), good);
    }
}

/// Asks until the server has read its files again.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..300 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("in half a minute: {what}");
}

const ONE: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const OTHER: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_keys_and_take_new_ones_while_they_run() {
    let ocimod = Ocimod::new();
    let store = stored(&ocimod);
    let file = ocimod.home.path().join("keys");
    std::fs::write(&file, format!("{ONE}\n")).unwrap();
    let start = || ocimod.serve(["--registry", &store, "--link-key", "keys"]);
    let (mut one, other) = (start(), start());
    let link = archive(MODULE, &as_sent(&location(&one.address, MODULE).await));
    assert_eq!(get(&other.address, &link).await.status(), 200, "the key is the same");

    // What is no list of keys changes nothing, and is said.
    std::fs::write(&file, "my secret").unwrap();
    kill(one.server.pid(), "HUP");
    one.server.wait_for(|line| line.contains("what was read before stays in use").then_some(()));
    assert_eq!(get(&one.address, &link).await.status(), 200);

    // The new key signs, and what the old one signed is good until it goes.
    std::fs::write(&file, format!("{OTHER}\n{ONE}\n")).unwrap();
    kill(one.server.pid(), "HUP");
    until("the new key signs", async || {
        let new = archive(MODULE, &as_sent(&location(&one.address, MODULE).await));
        new != link && get(&one.address, &link).await.status() == 200
    })
    .await;
    // Nobody has to send a signal.
    std::fs::write(&file, format!("{OTHER}\n")).unwrap();
    until("the old key is gone", async || get(&other.address, &link).await.status() == 403).await;
    let log = one.server.log();
    assert!(!log.contains("my secret") && !log.contains(ONE) && !log.contains(OTHER), "{log}");
}

#[test]
fn keys_that_cannot_be_used_keep_the_server_from_starting() {
    let ocimod = Ocimod::new();
    std::fs::write(ocimod.home.path().join("keys"), "my secret").unwrap();
    for (arguments, word) in [
        (["--link-key", "keys"], "line 1 is no base64"),
        (["--link-key", "nothing"], "cannot be read"),
        (["--link-lifetime", "0"], "expired at once"),
    ] {
        let failed = ocimod.run(["serve", "--temporary"].into_iter().chain(arguments)).fails_with(2);
        assert!(failed.stderr.contains(word) && !failed.stderr.contains("secret"), "{}", failed.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_link_stands_in_the_log_at_any_level() {
    let ocimod = Ocimod::new();
    let store = stored(&ocimod);
    let mut serve = ocimod.serve(["--registry", &store, "--log-level", "trace"]);
    let pairs = as_sent(&location(&serve.address, MODULE).await);
    let mut altered = pairs.clone();
    let size = altered.iter_mut().find(|pair| pair.0 == "size").expect("a link says the size");
    size.1.push('0');
    for (pairs, status) in [(&pairs, 200), (&altered, 403)] {
        assert_eq!(get(&serve.address, &archive(MODULE, pairs)).await.status(), status);
    }
    kill(serve.server.pid(), "TERM");
    assert_eq!(serve.server.wait(), Some(0));
    serve.server.wait_for(|line| (line.contains("archive.zip") && line.contains("403")).then_some(()));
    let log = serve.server.log();
    for (name, value) in &pairs {
        if ["signature", "expires", "digest"].contains(&name.as_str()) {
            assert!(!log.contains(value.as_str()), "{name} is in the log:\n{log}");
        }
    }
}

pub(crate) fn installs(ocimod: &Ocimod, tofu: &Path, folder: &str, address: &str) {
    let main = "module \"it\" {\n  source = \"modules.internal/acme/label/null\"\n  version = \"1.0.0\"\n  namespace = \"acme\"\n  \
                stage = \"test\"\n  name = \"shop\"\n}\n\noutput \"it\" {\n  value = module.it.id\n}\n";
    let root = Root::new(tofu, &ocimod.folder(folder), "modules.internal", address, main);
    assert_eq!(root.apply("it"), json!("acme-test-shop"), "{folder}");
}

#[test]
fn clients_install_in_every_mode() {
    let ocimod = Ocimod::new();
    let store = stored(&ocimod);
    let registry = ocimod.serve(["--registry", &store]);
    for tofu in clients::tofus() {
        let name = tofu.file_name().expect("a program has a name").to_string_lossy().into_owned();
        for mode in ["auto", "proxy", "redirect", "direct"] {
            for (sort, place) in [("embedded", store.as_str()), ("remote", registry.address.as_str())] {
                let serve = ocimod.serve(["--registry", place, "--archives", mode]);
                installs(&ocimod, &tofu, &format!("{name}-{mode}-{sort}"), &serve.address);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_follow_to_where_the_registry_points() {
    let ocimod = Ocimod::new();
    let store = stored(&ocimod);
    let storage = ocimod.serve(["--registry", &store]);
    let elsewhere = format!("http://{}", storage.address);
    let registry = Arc::new(Pointing { inner: opened(&ocimod).await, elsewhere });
    let serve = Served::start(registry, mode(ArchiveMode::Redirect));
    let address = serve.address.clone();
    tokio::task::spawn_blocking(move || {
        for tofu in clients::tofus() {
            let name = tofu.file_name().expect("a program has a name").to_string_lossy().into_owned();
            installs(&ocimod, &tofu, &name, &address);
        }
    })
    .await
    .unwrap();
}
