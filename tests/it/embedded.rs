//! Who is believed about the modules that are only inside others, and what is answered while nobody knows yet.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use ocimod::module::TofuAddress;
use ocimod::operations::catalog::CatalogSource;
use ocimod::operations::connect;
use ocimod::operations::install::{Asked, Installer};
use ocimod::operations::list;
use ocimod::operations::routes::{RepositoryTemplate, Routes, Target};
use ocimod::operations::search::{Search, SearchOptions};
use ocimod::registry::{Cache, CacheOptions, RegistryError};
use ocimod::server::{App, ServerOptions, router};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::failing_registry::{FailingRegistry, Failure, When};
use crate::support::modules::write;
use crate::support::ocimod::Ocimod;

/// A store, a registry in front of it that fails on demand, and a server.
struct Shim {
    ocimod: Ocimod,
    registry: Arc<FailingRegistry>,
    search: Arc<Search>,
    routes: Routes,
    router: Router,
}

impl Shim {
    async fn new(ocimod: Ocimod, options: SearchOptions) -> Self {
        let registry = FailingRegistry::new(connect::directory(store(&ocimod)).await.expect("a store"));
        let target = Target {
            registry: registry.clone(),
            prefix: String::new(),
            name: "registry.example".to_owned(),
            identity: "registry.example".into(),
            is_local: false,
        };
        let routes = Routes::new(vec![(None, Some(target))], RepositoryTemplate::default());
        let search = Arc::new(Search::new(&routes, options));
        let installer = Installer::new(routes.clone(), None, Arc::clone(&search), None);
        let app = Arc::new(App::new(registry.clone(), installer, ServerOptions::default()));
        Self { ocimod, registry, search, routes, router: router(app) }
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let request = Request::get(path).header("host", "127.0.0.1").body(Body::empty()).expect("a request");
        let answer = self.router.clone().oneshot(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// The versions of a module, or the status.
    async fn versions(&self, module: &str) -> Result<Vec<String>, u16> {
        let (status, body) = self.get(&format!("/v1/modules/{module}/versions")).await;
        if status != 200 {
            return Err(status);
        }
        let versions = body["modules"][0]["versions"].as_array().expect("a list").iter();
        Ok(versions.map(|version| version["version"].as_str().expect("a version").to_owned()).collect())
    }

    async fn download(&self, module: &str, version: &str) -> u16 {
        self.get(&format!("/v1/modules/{module}/{version}/download")).await.0
    }
}

fn store(ocimod: &Ocimod) -> PathBuf {
    ocimod.folder("store")
}

/// Pushes a module that calls others into the store.
pub(crate) fn push(ocimod: &Ocimod, address: &str, version: &str, text: &str, calls: &[&str]) {
    push_to(ocimod, &store(ocimod), address, version, text, calls);
}

fn push_to(ocimod: &Ocimod, store: &Path, address: &str, version: &str, text: &str, calls: &[&str]) {
    let folder = ocimod.folder(&format!("{}-{version}-{text}", address.replace('/', "-")));
    let mut main = format!("output \"text\" {{\n  value = \"{text}\"\n}}\n");
    for (index, called) in calls.iter().enumerate() {
        let _ = write!(main, "\nmodule \"m{index}\" {{\n  source = \"modules.internal/{called}\"\n}}\n");
    }
    write(&folder, &[("main.tf", &main)]);
    let registry = format!("dir:{}", store.display());
    ocimod.push(&registry, &folder, &format!("{address}@{version}"), &[]);
}

/// Pushes a module somewhere else, and copies nothing of it but the holder.
pub(crate) fn push_holder(ocimod: &Ocimod, holder: &str, embedded: &[(&str, &str)], text: &str) {
    let elsewhere = ocimod.folder(&format!("elsewhere-{}-{text}", holder.replace('/', "-")));
    for (address, version) in embedded {
        push_to(ocimod, &elsewhere, address, version, text, &[]);
    }
    let calls: Vec<_> = embedded.iter().map(|(address, _)| *address).collect();
    push_to(ocimod, &elsewhere, holder, "1.0.0", text, &calls);
    let (from, to) = (elsewhere.join("repos").join(holder), store(ocimod).join("repos").join(holder));
    let copied = std::process::Command::new("cp")
        .args(["-r", "--"])
        .arg(&from)
        .arg({
            let parent = to.parent().expect("a parent");
            std::fs::create_dir_all(parent).expect("a folder");
            parent
        })
        .status();
    assert!(copied.expect("cp runs").success());
}

/// A store that has been opened once, so that it is one.
pub(crate) async fn fresh() -> Ocimod {
    let ocimod = Ocimod::new();
    connect::directory(store(&ocimod)).await.expect("a store");
    ocimod
}

#[tokio::test]
async fn a_module_that_has_no_repository_is_served_from_whoever_has_it() {
    let ocimod = fresh().await;
    push_holder(&ocimod, "other/stack/null", &[("acme/label/null", "1.2.0")], "a");
    let shim = Shim::new(ocimod, SearchOptions::default()).await;
    shim.search.look().await.expect("the store is there");
    assert_eq!(shim.versions("acme/label/null").await, Ok(vec!["1.2.0".to_owned()]));
    assert_eq!(shim.download("acme/label/null", "1.2.0").await, 200);
    assert_eq!(shim.download("acme/label/null", "1.3.0").await, 404);
    assert_eq!(shim.versions("acme/nothing/null").await, Err(404));
}

#[tokio::test]
async fn a_foreign_namespace_changes_nothing_for_a_module_that_has_a_repository() {
    let ocimod = fresh().await;
    push(&ocimod, "acme/label/null", "1.0.0", "own", &[]);
    push_holder(&ocimod, "evil/stack/null", &[("acme/label/null", "99.0.0")], "evil");
    push_holder(&ocimod, "evil/again/null", &[("acme/label/null", "1.0.0")], "other");
    push_holder(&ocimod, "acme/stack/null", &[("acme/label/null", "1.1.0")], "good");
    let shim = Shim::new(ocimod, SearchOptions::default()).await;
    shim.search.look().await.expect("the store is there");
    let versions = vec!["1.0.0".to_owned(), "1.1.0".to_owned()];
    assert_eq!(shim.versions("acme/label/null").await, Ok(versions));
    assert_eq!(shim.download("acme/label/null", "99.0.0").await, 404);
    assert_eq!(shim.download("acme/label/null", "1.1.0").await, 200);
    assert_eq!(shim.download("acme/label/null", "1.0.0").await, 200);

    // Unless the operator says so.
    let trusted = vec!["evil/*".parse().expect("a pattern")];
    let trusting = Shim::new(shim.ocimod, SearchOptions { trusted, ..SearchOptions::default() }).await;
    trusting.search.look().await.expect("the store is there");
    assert_eq!(trusting.download("acme/label/null", "99.0.0").await, 200);
}

#[tokio::test]
async fn of_two_that_disagree_neither_is_served() {
    let ocimod = fresh().await;
    push_holder(&ocimod, "one/stack/null", &[("acme/label/null", "1.0.0"), ("acme/lamp/null", "1.0.0")], "a");
    push_holder(&ocimod, "two/stack/null", &[("acme/label/null", "1.0.0")], "b");
    let shim = Shim::new(ocimod, SearchOptions::default()).await;
    shim.search.look().await.expect("the store is there");
    assert_eq!(shim.versions("acme/label/null").await, Err(404));
    assert_eq!(shim.download("acme/label/null", "1.0.0").await, 404);
    assert_eq!(shim.versions("acme/lamp/null").await, Ok(vec!["1.0.0".to_owned()]));
}

#[tokio::test]
async fn before_everything_was_looked_at_nobody_says_that_there_is_none() {
    let ocimod = fresh().await;
    push(&ocimod, "acme/stack/null", "1.0.0", "a", &[]);
    let options = SearchOptions { patience: Duration::from_millis(50), ..SearchOptions::default() };
    let shim = Shim::new(ocimod, options).await;
    assert_eq!(shim.versions("acme/stack/null").await, Ok(vec!["1.0.0".to_owned()]), "its own tags answer");
    assert_eq!(shim.versions("acme/label/null").await, Err(503));
    assert_eq!(shim.download("acme/label/null", "1.0.0").await, 503);

    // A registry that does not answer was not looked at.
    let gone = || RegistryError::Unavailable { registry: "registry.example".into(), reason: "gone".into() };
    shim.registry.fail("repositories", When::Always, Failure::error(gone));
    assert!(shim.search.look().await.is_err());
    assert_eq!(shim.versions("acme/label/null").await, Err(503));
    shim.registry.work_again();
    shim.search.look().await.expect("it is back");
    assert_eq!(shim.versions("acme/label/null").await, Err(404));
}

#[tokio::test]
async fn a_registry_without_a_list_is_looked_through_by_a_file() {
    let ocimod = fresh().await;
    push_holder(&ocimod, "acme/stack/null", &[("acme/label/null", "1.2.0")], "a");
    let file = ocimod.folder("catalog").join("modules");
    write(file.parent().expect("a folder"), &[("modules", "# what is there\nacme/stack/null\n")]);
    let none = || RegistryError::NoCatalog;

    let source = CatalogSource::File(file);
    let options = SearchOptions { catalog: source.clone(), ..SearchOptions::default() };
    let shim = Shim::new(ocimod, options).await;
    shim.registry.fail("repositories", When::Always, Failure::error(none));
    shim.search.look().await.expect("the file says what is there");
    assert_eq!(shim.versions("acme/label/null").await, Ok(vec!["1.2.0".to_owned()]));
    let listed = list::modules(&shim.routes, &source).await.expect("the file says what is there").modules;
    assert_eq!(
        listed.iter().map(|it| it.repository.as_str()).collect::<Vec<_>>(),
        ["registry.example/acme/stack/null"]
    );

    // Without one, nobody can know; what is there by its own name is served.
    let shim = Shim::new(shim.ocimod, SearchOptions::default()).await;
    shim.registry.fail("repositories", When::Always, Failure::error(none));
    let catalog = shim.search.look().await.expect("that is no failure");
    assert_eq!(catalog.unlisted.len(), 1);
    let error = list::modules(&shim.routes, &CatalogSource::Registry).await.expect_err("nobody can know");
    assert!(error.to_string().contains("has no list of its repositories"), "{error}");
    assert_eq!(shim.versions("acme/label/null").await, Err(404));
    assert_eq!(shim.versions("acme/stack/null").await, Ok(vec!["1.0.0".to_owned()]));
    // That it was asked for here must not make this server know what another one does not.
    assert_eq!(shim.download("acme/stack/null", "1.0.0").await, 200);
    assert_eq!(shim.versions("acme/label/null").await, Err(404));
}

#[tokio::test]
async fn a_repository_that_has_just_appeared_is_found_when_it_is_needed() {
    let ocimod = fresh().await;
    let shim = Shim::new(ocimod, SearchOptions::default()).await;
    shim.search.look().await.expect("the store is there");
    push_holder(&shim.ocimod, "acme/stack/null", &[("acme/label/null", "1.2.0")], "a");
    assert_eq!(shim.versions("acme/label/null").await, Ok(vec!["1.2.0".to_owned()]));
}

#[tokio::test]
async fn what_was_read_is_not_read_again() {
    let ocimod = fresh().await;
    push_holder(&ocimod, "acme/stack/null", &[("acme/label/null", "1.2.0")], "a");
    let shim =
        Shim::new(ocimod, SearchOptions { every: Duration::from_secs(1), ..SearchOptions::default() }).await;
    shim.search.look().await.expect("the store is there");
    let revision = shim.search.found().revision;
    let manifests = || shim.registry.count("manifest");
    let read = manifests();
    shim.search.look().await.expect("the store is there");
    assert_eq!(manifests(), read);
    assert_eq!(shim.search.found().revision, revision);
}

#[tokio::test]
async fn the_zip_of_another_module_is_not_taken_for_this_one() {
    let ocimod = fresh().await;
    push_holder(&ocimod, "acme/stack/null", &[("acme/label/null", "1.2.0")], "a");
    // The same layer under another name.
    let index = store(&ocimod).join("repos/acme/stack/null/_oci/index.json");
    let text = std::fs::read_to_string(&index).expect("an index");
    let index_json: Value = serde_json::from_str(&text).expect("JSON");
    let digest = index_json["manifests"][0]["digest"].as_str().expect("a digest");
    let blobs = store(&ocimod).join("repos/acme/stack/null/_oci/blobs/sha256");
    let manifest = std::fs::read_to_string(blobs.join(&digest["sha256:".len()..])).expect("a manifest");
    let forged = manifest.replace("acme/label/null@v1.2.0", "acme/lamp/null@v1.2.0");
    assert_ne!(manifest, forged);
    let address = ocimod.serve(["--registry", &format!("dir:{}", store(&ocimod).display())]);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://{}/v2/acme/stack/null/manifests/v1.1.0", address.address);
    let answer = reqwest::Client::new()
        .put(url)
        .header("content-type", "application/vnd.oci.image.manifest.v1+json")
        .body(forged)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 201);
    // Through this server it is known at once, and not believed.
    let versions =
        |module: &str| reqwest::get(format!("http://{}/v1/modules/{module}/versions", address.address));
    assert_eq!(versions("acme/lamp/null").await.expect("an answer").status(), 404);
    let label: Value = versions("acme/label/null").await.expect("an answer").json().await.expect("JSON");
    assert_eq!(label["modules"][0]["versions"], json!([{"version": "1.2.0"}]));
}

#[tokio::test]
async fn after_a_restart_only_new_manifests_are_fetched() {
    let ocimod = fresh().await;
    push_holder(&ocimod, "acme/stack/null", &[("acme/label/null", "1.2.0")], "a");
    push(&ocimod, "acme/site/null", "1.0.0", "site", &[]);
    let registry = FailingRegistry::new(connect::directory(store(&ocimod)).await.expect("a store"));
    let folder = ocimod.folder("cache");
    let manifests = async || {
        let options = CacheOptions { folder: Some(folder.clone()), ..CacheOptions::default() };
        let cache = Cache::open(options).expect("the folder is ours");
        let target = Target {
            registry: Arc::new(cache.over(registry.clone(), "registry.example")),
            prefix: String::new(),
            name: "registry.example".to_owned(),
            identity: "registry.example".into(),
            is_local: false,
        };
        let routes = Routes::new(vec![(None, Some(target))], RepositoryTemplate::default());
        let search = Arc::new(Search::new(&routes, SearchOptions::default()));
        let before = registry.count("manifest");
        search.look().await.expect("the store is there");
        let read = registry.count("manifest") - before;
        let before = registry.count("blob");
        let installer = Installer::new(routes, None, search, Some(cache));
        let address = TofuAddress::parse("acme/label/null").expect("an address");
        let asked = Asked::Tofu { address, host: None };
        let offer = installer.versions(&asked, &|_| true).await.expect("it is embedded");
        assert_eq!(offer.versions.len(), 1);
        (read, registry.count("blob") - before)
    };
    let (first, looks) = manifests().await;
    assert!(first >= 2 && looks >= 1, "{first} manifests, {looks} looks into zips");
    assert_eq!(manifests().await, (0, 0));
    push(&ocimod, "acme/site/null", "1.1.0", "newer", &[]);
    assert_eq!(manifests().await, (1, 0));
}

fn denied() -> Failure {
    Failure::error(|| RegistryError::Denied {
        registry: "registry.example".into(),
        operation: "listing tags".into(),
    })
}

#[tokio::test]
async fn a_registry_that_says_403_of_what_is_not_there_hides_no_embedded_module() {
    let ocimod = fresh().await;
    push_holder(&ocimod, "other/stack/null", &[("acme/label/null", "1.2.0")], "a");
    let shim = Shim::new(ocimod, SearchOptions::default()).await;
    shim.search.look().await.expect("the store is there");
    shim.registry.fail("tags", When::Always, denied());
    assert_eq!(shim.versions("acme/label/null").await, Ok(vec!["1.2.0".to_owned()]));
    assert_eq!(shim.download("acme/label/null", "1.2.0").await, 200);
    // What nobody brings along may be there and closed to us.
    let answer = shim.versions("acme/nothing/null").await;
    assert!(answer.is_err() && answer != Err(404), "{answer:?}");
}

#[tokio::test]
async fn a_repository_that_always_fails_hides_nothing_but_what_may_be_in_it() {
    let ocimod = fresh().await;
    push_holder(&ocimod, "acme/stack/null", &[("acme/label/null", "1.2.0")], "a");
    push_holder(&ocimod, "acme/broken/null", &[("acme/lamp/null", "1.0.0")], "b");
    let shim = Shim::new(ocimod, SearchOptions::default()).await;
    let away =
        || RegistryError::Unavailable { registry: "registry.example".into(), reason: "it fails".into() };
    shim.registry.fail("tags", When::In("acme/broken/null"), Failure::error(away));
    while !shim.search.is_complete() {
        assert!(shim.registry.count("tags") < 20, "no look is complete");
        let _ = shim.search.look().await;
    }
    assert_eq!(shim.versions("acme/label/null").await, Ok(vec!["1.2.0".to_owned()]));
    // It may be in there; what is of others is not.
    for module in ["acme/lamp/null", "acme/nothing/null"] {
        assert_eq!(shim.versions(module).await, Err(503), "{module}");
        assert_eq!(shim.download(module, "1.0.0").await, 503, "{module}");
    }
    assert_eq!(shim.versions("other/nothing/null").await, Err(404));
    shim.registry.work_again();
    shim.search.look().await.expect("everything answers");
    assert_eq!(shim.versions("acme/lamp/null").await, Ok(vec!["1.0.0".to_owned()]));
    assert_eq!(shim.versions("acme/nothing/null").await, Err(404));
}

#[tokio::test]
async fn a_listed_repository_that_may_not_be_read_is_not_taken_for_none() {
    let ocimod = fresh().await;
    push(&ocimod, "acme/label/null", "1.0.0", "own", &[]);
    push_holder(&ocimod, "evil/stack/null", &[("acme/label/null", "99.0.0")], "evil");
    let shim = Shim::new(ocimod, SearchOptions::default()).await;
    // The first of the two repositories in the order of the list is the module's own, and it is closed to us.
    shim.registry.fail("tags", When::Nth(1), denied());
    shim.registry.fail("tags", When::Nth(2), denied());
    let looked = shim.search.look().await;
    assert!(looked.is_ok() && shim.search.is_complete());
    shim.registry.work_again();
    shim.registry.fail("tags", When::Always, denied());
    let answer = shim.versions("acme/label/null").await;
    assert!(answer.is_err() && answer != Err(404), "{answer:?}");
}
