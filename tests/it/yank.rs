//! Yank, unyank and delete: over the folder, over our own `/v2/`, and over registries that delete less.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use ocimod::artifact::Reason;
use ocimod::module::AddressAt;
use ocimod::oci::{Digest, IMAGE_MANIFEST, Manifest, Reference, Repository, Tag};
use ocimod::operations::routes::{RepositoryTemplate, Routes, Target};
use ocimod::operations::yank::{self, YankRequest};
use ocimod::operations::{OperationError, connect, delete};
use ocimod::registry::{
    Answer, BlobSource, BytesSource, Condition, ManifestHead, NewManifest, Page, PageRequest, PutManifest,
    Registry, RegistryError, SharedRegistry, StoredManifest,
};
use serde_json::{Value, json};

use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::{Root, write};
use crate::support::ocimod::Ocimod;
use crate::support::process;

const MODULE: &str = "acme/leaf/null";

fn module(ocimod: &Ocimod, folder: &str, main: &str) -> PathBuf {
    let folder = ocimod.folder(folder);
    write(&folder, &[("main.tf", main)]);
    folder
}

fn output(value: &str) -> String {
    format!("output \"it\" {{\n  value = \"{value}\"\n}}\n")
}

fn call(version: &str) -> String {
    format!("module \"leaf\" {{\n  source  = \"modules.internal/{MODULE}\"\n  version = \"{version}\"\n}}\n")
}

/// Versions of one module whose output is the version.
fn push(ocimod: &Ocimod, registry: &str, versions: &[&str]) {
    for version in versions {
        let folder = module(ocimod, &format!("leaf-{version}"), &output(version));
        ocimod.push(registry, &folder, &format!("{MODULE}@{version}"), &[]);
    }
}

fn json_of(ocimod: &Ocimod, registry: &str, arguments: &[&str]) -> Value {
    let fixed = ["--registry", registry, "--format", "json"];
    ocimod.run(arguments.iter().copied().chain(fixed)).success().json()
}

/// What is listed: versions, and whether they are yanked.
fn listed(ocimod: &Ocimod, registry: &str) -> Vec<(String, bool)> {
    let answer = json_of(ocimod, registry, &["list", MODULE]);
    let versions = answer["versions"].as_array().expect("an array").clone();
    let entry = |it: &Value| (it["version"].as_str().unwrap().to_owned(), it["yanked"].as_bool().unwrap());
    versions.iter().map(entry).collect()
}

fn is_yanked(ocimod: &Ocimod, registry: &str, version: &str) -> bool {
    listed(ocimod, registry).contains(&(version.to_owned(), true))
}

/// The version that a pull of what was asked for gets.
fn pulled(ocimod: &Ocimod, registry: &str, address: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("into").display().to_string();
    let answer = json_of(ocimod, registry, &["pull", address, "-o", &folder]);
    answer["version"].as_str().unwrap().to_owned()
}

/// Every registry to go through: a folder, our own server over another, and other people's.
fn everywhere(test: impl Fn(&Ocimod, &str)) {
    let ocimod = Ocimod::new();
    test(&ocimod, &format!("dir:{}", ocimod.folder("store").display()));
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let serve = ocimod.serve(["--registry", &store]);
    test(&ocimod, &serve.address);
    let others =
        [DockerRegistry::start(), DockerRegistry::start_v3(), DockerRegistry::start_without_deletion()];
    for registry in others.into_iter().flatten() {
        test(&Ocimod::new(), &format!("{}/below", registry.address));
    }
}

#[test]
fn a_yanked_version_is_chosen_by_its_exact_number_alone() {
    everywhere(|ocimod, registry| {
        push(ocimod, registry, &["1.0.0", "1.1.0"]);
        let yank = ["yank", "acme/leaf/null@v1.1.0", "--reason", "it leaks"];
        let dry = json_of(ocimod, registry, &[&yank[..], &["-n"]].concat());
        assert_eq!(
            (&dry["changed"], is_yanked(ocimod, registry, "1.1.0")),
            (&json!(true), false),
            "{registry}"
        );

        let answer = json_of(ocimod, registry, &yank);
        assert_eq!(
            [&answer["version"], &answer["yanked"], &answer["reason"], &answer["changed"]],
            [&json!("1.1.0"), &json!(true), &json!("it leaks"), &json!(true)],
            "{registry}"
        );
        assert!(answer["reference"].as_str().unwrap().ends_with("acme/leaf/null:yanked.v1.1.0"));
        assert_eq!(json_of(ocimod, registry, &yank)["changed"], json!(false));
        // No reason takes none away, and another one replaces it.
        assert_eq!(json_of(ocimod, registry, &yank[..2])["changed"], json!(false));
        let other = json_of(ocimod, registry, &["yank", "acme/leaf/null@1.1.0", "--reason", "really"]);
        assert_eq!((&other["changed"], &other["reason"]), (&json!(true), &json!("really")));

        assert_eq!(listed(ocimod, registry), [("1.0.0".to_owned(), false), ("1.1.0".to_owned(), true)]);
        let text = ocimod.run(["list", "--registry", registry, MODULE]).success().stdout;
        assert!(text.lines().nth(1).unwrap().ends_with("  yanked: really"), "{text}");
        let modules = json_of(ocimod, registry, &["list"]);
        assert_eq!(
            [&modules["modules"][0]["version"], &modules["modules"][0]["yanked"]],
            [&json!("1.0.0"), &json!(false)]
        );

        for address in [MODULE, "acme/leaf/null@latest", "acme/leaf/null@~> 1.0", "acme/leaf/null@>= 1.0"] {
            assert_eq!(pulled(ocimod, registry, address), "1.0.0", "{registry} {address}");
        }
        assert_eq!(pulled(ocimod, registry, "acme/leaf/null@1.1.0"), "1.1.0");
        let refused = ocimod.run(["pull", "--registry", registry, "acme/leaf/null@> 1.0.0"]).fails_with(3);
        assert!(refused.stderr.contains("yanked"), "{}", refused.stderr);
        let inspected = json_of(ocimod, registry, &["inspect", "acme/leaf/null@1.1.0"]);
        assert_eq!([&inspected["yanked"], &inspected["reason"]], [&json!(true), &json!("really")]);
        assert_eq!(json_of(ocimod, registry, &["inspect", MODULE])["yanked"], json!(false));

        for (number, (constraint, embedded)) in
            [("~> 1.0", "1.0.0"), ("1.1.0", "1.1.0")].into_iter().enumerate()
        {
            let caller = module(ocimod, &format!("caller-{number}"), &call(constraint));
            let pushed = ocimod.push(registry, &caller, &format!("acme/caller{number}/null@1.0.0"), &[]);
            let expected = format!("modules.internal/acme/leaf/null@v{embedded}");
            assert_eq!(pushed["dependencies"][0]["module"], json!(expected), "{registry}");
        }

        let unyank = ["unyank", "acme/leaf/null@1.1.0"];
        assert_eq!(
            json_of(ocimod, registry, &[&unyank[..], &["--dry-run"]].concat())["changed"],
            json!(true)
        );
        assert!(is_yanked(ocimod, registry, "1.1.0"));
        assert_eq!(json_of(ocimod, registry, &unyank)["changed"], json!(true));
        assert!(!is_yanked(ocimod, registry, "1.1.0"), "{registry}");
        assert_eq!(json_of(ocimod, registry, &unyank)["changed"], json!(false));
        assert_eq!(pulled(ocimod, registry, MODULE), "1.1.0");
        // A mark that says it is no more is written over.
        assert_eq!(json_of(ocimod, registry, &yank)["changed"], json!(true));
        assert!(is_yanked(ocimod, registry, "1.1.0"), "{registry}");
        // What is pushed again is what it was, and stays withdrawn.
        push(ocimod, registry, &["1.1.0"]);
        assert!(is_yanked(ocimod, registry, "1.1.0"), "{registry}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn installing_clients_do_not_see_a_yanked_version() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    push(&ocimod, &registry, &["1.0.0", "1.1.0"]);
    json_of(&ocimod, &registry, &["yank", "acme/leaf/null@1.1.0"]);
    let serve = ocimod.serve(["--registry", &registry]);
    let get = |path: &str| {
        ocimod::registry::remote::install_crypto_provider();
        reqwest::get(format!("http://{}/v1/modules/{MODULE}/{path}", serve.address))
    };
    let versions: Value = get("versions").await.unwrap().json().await.unwrap();
    assert_eq!(versions["modules"][0]["versions"], json!([{"version": "1.0.0"}]));
    // Who has it in a lock or a cache, or asks for it outright, gets it.
    assert!(get("1.1.0/download").await.unwrap().status().is_success());
    for tofu in clients::tofus() {
        let name = tofu.file_name().unwrap().to_string_lossy().into_owned();
        let root = |version: &str| {
            let main = format!("{}output \"it\" {{\n  value = module.leaf.it\n}}\n", call(version));
            Root::new(
                &tofu,
                &ocimod.folder(&format!("{name}-{}", version.len())),
                "modules.internal",
                &serve.address,
                &main,
            )
        };
        assert_eq!(root("~> 1.0").apply("it"), json!("1.0.0"), "{name}");
        root("1.1.0").run(&["init", "-no-color", "-input=false"]).fails_with(1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yank_withdraws_what_others_bring_along() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    push(&ocimod, &registry, &["1.0.0", "1.1.0"]);
    for (number, version) in ["1.0.0", "1.1.0"].into_iter().enumerate() {
        let top = module(&ocimod, "top", &call(version));
        ocimod.push(&registry, &top, &format!("acme/top/null@1.{number}.0"), &[]);
    }
    let leaf = Store::open(&ocimod, MODULE).await;
    for tag in ["v1.0.0", "v1.1.0"] {
        leaf.untag(tag).await;
        let left = leaf.tags().await.len();
        let served = async || {
            let serve = ocimod.serve(["--registry", &registry]);
            ocimod::registry::remote::install_crypto_provider();
            let url = format!("http://{}/v1/modules/{MODULE}/versions", serve.address);
            let versions: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
            versions["modules"][0]["versions"].clone()
        };
        // At first beside a version of its own, then without any.
        assert_eq!(served().await, json!([{"version": "1.0.0"}, {"version": "1.1.0"}]), "{left}");
        json_of(&ocimod, &registry, &["yank", "acme/leaf/null@1.0.0"]);
        assert_eq!(served().await, json!([{"version": "1.1.0"}]), "{left}");
        json_of(&ocimod, &registry, &["unyank", "acme/leaf/null@1.0.0"]);
    }
}

#[test]
fn only_one_exact_version_is_yanked_or_deleted() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    push(&ocimod, &registry, &["1.0.0"]);
    for verb in ["yank", "unyank", "delete"] {
        let run = |address: &str| ocimod.run([verb, "--registry", &registry, address]);
        for address in [MODULE, "acme/leaf/null@latest", "acme/leaf/null@~> 1.0", "acme/leaf/null@1.0"] {
            assert!(run(address).fails_with(2).stderr.contains("exact version"), "{verb} {address}");
        }
        run("acme/leaf/null@2.0.0").fails_with(3);
        run("acme/nothing/null@1.0.0").fails_with(3);
        run("oci://127.0.0.1:1/acme/leaf/null:v1.0.0").fails_with(2);
        ocimod.run([verb, "--registry", "dir:nowhere", "acme/leaf/null@1.0.0"]).fails_with(3);
        // A published version is not changed on a machine that is thrown away.
        let on_ci = process::run(ocimod.command().env("CI", "true").args([verb, "acme/leaf/null@1.0.0"]));
        assert!(on_ci.fails_with(2).stderr.contains("CI"), "{verb}");
    }
    for reason in ["a\nb", "", "  ", &"x".repeat(501)] {
        ocimod
            .run(["yank", "--registry", &registry, "acme/leaf/null@1.0.0", "--reason", reason])
            .fails_with(2);
    }
    assert_eq!(listed(&ocimod, &registry), [("1.0.0".to_owned(), false)]);
}

/// A store as somebody else writes to it.
struct Store {
    registry: SharedRegistry,
    repository: Repository,
}

impl Store {
    async fn open(ocimod: &Ocimod, repository: &str) -> Self {
        let registry = connect::directory(ocimod.folder("store")).await.expect("the store opens");
        Self { registry, repository: repository.parse().unwrap() }
    }

    async fn put(&self, tag: &str, manifest: &Value) {
        let config = Bytes::from_static(b"{}");
        let digest = Digest::of(&config);
        self.registry.put_blob(&self.repository, &digest, &BytesSource(config)).await.unwrap();
        let new = NewManifest {
            media_type: IMAGE_MANIFEST.to_owned(),
            bytes: serde_json::to_vec(manifest).unwrap().into(),
            digest: None,
            tags: vec![tag.parse().unwrap()],
            condition: Condition::None,
        };
        self.registry.put_manifest(&self.repository, &new).await.unwrap();
    }

    /// One more tag for a manifest that has one.
    async fn retag(&self, from: &str, to: &str) {
        let stored =
            self.registry.manifest(&self.repository, &from.parse::<Reference>().unwrap()).await.unwrap();
        self.put(to, &serde_json::from_slice(&stored.bytes).unwrap()).await;
    }

    async fn untag(&self, tag: &str) {
        self.registry.delete_tag(&self.repository, &tag.parse().unwrap()).await.unwrap();
    }

    async fn tags(&self) -> Vec<String> {
        let tags = self.registry.all_tags(&self.repository, 100).await.unwrap_or_default();
        tags.iter().map(ToString::to_string).collect()
    }
}

fn mark(yanked: &str, config: &str) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": IMAGE_MANIFEST,
        "config": {"mediaType": config, "digest": Digest::of(b"{}"), "size": 2},
        "layers": [],
        "annotations": {"works.ocimod.yanked": yanked, "works.ocimod.yanked.reason": "one\ntwo\u{1b}[2J"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_mark_withdraws_nothing() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    push(&ocimod, &registry, &["1.0.0"]);
    let store = Store::open(&ocimod, MODULE).await;
    let image = "application/vnd.oci.image.config.v1+json";
    for said in ["", "yes", "TRUE"] {
        store.put("yanked.v1.0.0", &mark(said, image)).await;
        let answer = ocimod.run(["list", "--registry", &registry, MODULE]).success();
        assert!(
            answer.stdout.starts_with("1.0.0  sha256:") && !answer.stdout.contains("yanked"),
            "{answer:?}"
        );
        assert!(answer.stderr.contains("withdraws nothing"), "{answer:?}");
    }
    // A mark that was made by hand does, in either spelling, and its reason is a line.
    store.put("yanked.1.0.0", &mark("true", image)).await;
    let answer = json_of(&ocimod, &registry, &["list", MODULE]);
    assert_eq!(answer["versions"][0]["reason"], json!("one"));
    assert_eq!(json_of(&ocimod, &registry, &["unyank", "acme/leaf/null@1.0.0"])["changed"], json!(true));
    assert!(!is_yanked(&ocimod, &registry, "1.0.0"));
    assert_eq!(store.tags().await, ["v1.0.0", "yanked.v1.0.0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_has_only_a_bundle_is_yanked_and_deleted() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    push(&ocimod, &registry, &["1.0.0"]);
    let top = module(&ocimod, "top", &call("1.0.0"));
    ocimod.push(&registry, &top, "acme/top/null@1.0.0", &["--deps", "separate"]);
    let store = Store::open(&ocimod, "acme/top/null").await;
    store.untag("v1.0.0").await;
    let run = |arguments: &[&str]| json_of(&ocimod, &registry, arguments);
    assert_eq!(run(&["yank", "acme/top/null@1.0.0"])["changed"], json!(true));
    assert_eq!(run(&["list", "acme/top/null"])["versions"][0]["yanked"], json!(true));
    assert_eq!(run(&["delete", "acme/top/null@1.0.0"])["tags"], json!(["bundle.v1.0.0", "yanked.v1.0.0"]));
    assert_eq!(store.tags().await, Vec::<String>::new());
}

#[test]
fn a_version_that_is_only_embedded_elsewhere_is_yanked_too() {
    everywhere(|ocimod, registry| {
        push(ocimod, registry, &["1.0.0", "1.1.0"]);
        let top = module(ocimod, "top", &call("1.0.0"));
        ocimod.push(registry, &top, "acme/top/null@1.0.0", &[]);
        let dry = json_of(ocimod, registry, &["delete", "-n", "acme/leaf/null@1.0.0"]);
        let holder = dry["embedded_in"][0].clone();
        assert_eq!(holder["module"], json!("modules.internal/acme/top/null@v1.0.0"), "{registry}");
        assert_eq!((&dry["deleted"], &dry["not_searched"]), (&json!(false), &json!([])));
        assert_eq!(listed(ocimod, registry).len(), 2);

        let deleted = ocimod.run(["delete", "--registry", registry, "acme/leaf/null@1.0.0"]);
        if deleted.status != Some(0) {
            let deleted = deleted.fails_with(1);
            assert!(deleted.stderr.contains("yank"), "{}", deleted.stderr);
            return;
        }
        assert!(deleted.stderr.contains("acme/top/null@v1.0.0 embeds it"), "{}", deleted.stderr);
        assert_eq!(listed(ocimod, registry).len(), 1, "{registry}");
        let yanked = ocimod.run(["yank", "--registry", registry, "acme/leaf/null@1.0.0"]).success();
        assert!(yanked.stderr.contains("embed"), "{}", yanked.stderr);
        assert_eq!(json_of(ocimod, registry, &["yank", "acme/leaf/null@1.0.0"])["changed"], json!(false));
        assert_eq!(json_of(ocimod, registry, &["unyank", "acme/leaf/null@1.0.0"])["changed"], json!(true));
        // One that nobody has is a slip of the pen, unless somebody insists.
        let unknown = ocimod.run(["yank", "--registry", registry, "acme/leaf/null@7.0.0"]).fails_with(3);
        assert!(unknown.stderr.contains("--force"), "{}", unknown.stderr);
        json_of(ocimod, registry, &["yank", "--force", "acme/leaf/null@7.0.0"]);
    });
}

#[test]
fn a_deleted_version_leaves_nothing_behind_that_has_a_name() {
    everywhere(|ocimod, registry| {
        push(ocimod, registry, &["1.0.0"]);
        let top = module(ocimod, "top", &call("1.0.0"));
        for version in ["1.0.0", "1.1.0"] {
            ocimod.push(registry, &top, &format!("acme/top/null@{version}"), &["--deps", "separate"]);
        }
        json_of(ocimod, registry, &["yank", "acme/top/null@1.0.0"]);
        let deleted =
            ocimod.run(["delete", "--format", "json", "--registry", registry, "acme/top/null@v1.0.0"]);
        if deleted.status != Some(0) {
            let error = deleted.fails_with(1).json()["error"].clone();
            assert_eq!(error["kind"], json!("unsupported"), "{registry}");
            assert!(error["hint"].as_str().unwrap().contains("storage.delete.enabled"), "{error}");
            return;
        }
        let deleted = deleted.json();
        let tags: Vec<_> = deleted["tags"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(tags[..3], ["v1.0.0", "bundle.v1.0.0", "yanked.v1.0.0"], "{registry}");
        // A registry that keeps no list of referrers has it at a tag, which goes too.
        assert!(tags[3..].iter().all(|tag| tag.starts_with("sha256-")), "{registry}: {tags:?}");
        assert_eq!(deleted["manifests"].as_array().map(Vec::len), Some(tags.len()), "{registry}");
        assert_eq!([&deleted["deleted"], &deleted["embedded_in"]], [&json!(true), &json!([])]);
        ocimod.run(["inspect", "--registry", registry, "acme/top/null@1.0.0"]).fails_with(3);
        ocimod.run(["delete", "--registry", registry, "acme/top/null@1.0.0"]).fails_with(3);
        let left = json_of(ocimod, registry, &["inspect", "acme/top/null"]);
        assert_eq!(
            (&left["version"], left["dependencies"].as_array().map(Vec::len)),
            (&json!("1.1.0"), Some(1))
        );
        // Its number is free again.
        write(&top, &[("main.tf", &call("~> 1.0"))]);
        ocimod.push(registry, &top, "acme/top/null@1.0.0", &[]);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_shares_the_manifest_is_not_lost_with_a_deleted_version() {
    let (Some(crane), Some(registry)) = (clients::find("crane"), DockerRegistry::start()) else { return };
    let ocimod = Ocimod::new();
    push(&ocimod, &registry.address, &["1.0.0"]);
    let crane = |arguments: &[&str]| {
        process::run(process::isolated(&crane, ocimod.home.path()).args(arguments)).success()
    };
    let reference = format!("{}/{MODULE}:v1.0.0", registry.address);
    crane(&["tag", "--insecure", &reference, "latest"]);
    let refused =
        ocimod.run(["delete", "--registry", &registry.address, "acme/leaf/null@1.0.0"]).fails_with(4);
    assert!(
        refused.stderr.contains("`latest`") && refused.stderr.contains("manifest-shared"),
        "{}",
        refused.stderr
    );
    crane(&["manifest", "--insecure", &reference]);

    // Where tags can be deleted, the other one stays and so does the manifest.
    let store = format!("dir:{}", ocimod.folder("store").display());
    push(&ocimod, &store, &["1.0.0"]);
    let opened = Store::open(&ocimod, MODULE).await;
    opened.retag("v1.0.0", "latest").await;
    let deleted = json_of(&ocimod, &store, &["delete", "acme/leaf/null@1.0.0"]);
    assert_eq!([&deleted["tags"], &deleted["manifests"]], [&json!(["v1.0.0"]), &json!([])]);
    assert_eq!(opened.tags().await, ["latest"]);
    assert!(opened.registry.manifest(&opened.repository, &"latest".parse().unwrap()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_module_is_not_deleted() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    push(&ocimod, &registry, &["1.0.0"]);
    let store = Store::open(&ocimod, MODULE).await;
    store.put("v2.0.0", &mark("", "application/vnd.oci.image.config.v1+json")).await;
    let refused = ocimod.run(["delete", "--registry", &registry, "acme/leaf/null@2.0.0"]).fails_with(3);
    assert!(refused.stderr.contains("a container image"), "{}", refused.stderr);
    assert_eq!(store.tags().await, ["v1.0.0", "v2.0.0"]);
}

/// A registry that takes artifact types from a list alone, deletes nothing and has no catalog.
struct Strict(SharedRegistry);

impl Registry for Strict {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        self.0.tags(repository, page)
    }

    fn repositories<'a>(&'a self, _: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        Box::pin(async { Err(RegistryError::NoCatalog) })
    }

    fn manifest<'a>(&'a self, repository: &'a Repository, at: &'a Reference) -> Answer<'a, StoredManifest> {
        self.0.manifest(repository, at)
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        at: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        self.0.manifest_head(repository, at)
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        new: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        let manifest = Manifest::parse(&new.media_type, &new.bytes).unwrap();
        let types = [manifest.artifact_type, manifest.config.map(|config| config.media_type)];
        if types.into_iter().flatten().all(|kind| kind == "application/vnd.cue.module.v1+json") {
            return self.0.put_manifest(repository, new);
        }
        let reason = "status 400 (MANIFEST_INVALID) to pushing manifests".to_owned();
        Box::pin(async { Err(RegistryError::Protocol { registry: "strict".to_owned(), reason }) })
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        self.0.blob_size(repository, digest)
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        self.0.put_blob(repository, digest, source)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_takes_only_known_types_deletes_nothing_and_lists_nothing_yanks_all_the_same() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    push(&ocimod, &registry, &["1.0.0"]);
    let store = Store::open(&ocimod, MODULE).await;
    let target = Target {
        registry: Arc::new(Strict(Arc::clone(&store.registry))),
        prefix: String::new(),
        name: "ghcr.io".to_owned(),
        identity: "ghcr.io".into(),
        is_local: false,
    };
    let routes = Routes::new(vec![(None, Some(target))], RepositoryTemplate::default());
    let address = |text: &str| text.parse::<AddressAt>().unwrap();
    let request = |version: &str, force| YankRequest {
        address: address(&format!("{MODULE}@{version}")),
        reason: Some("why".parse::<Reason>().unwrap()),
        force,
        dry_run: false,
    };
    assert!(yank::yank(&routes, &request("1.0.0", false)).await.unwrap().changed);
    assert!(!yank::yank(&routes, &request("1.0.0", false)).await.unwrap().changed);
    assert!(is_yanked(&ocimod, &registry, "1.0.0"));
    let state = yank::unyank(&routes, &address("acme/leaf/null@1.0.0"), false).await.unwrap();
    assert!(state.changed && !state.yanked);
    assert!(!is_yanked(&ocimod, &registry, "1.0.0"));
    assert!(!yank::unyank(&routes, &address("acme/leaf/null@1.0.0"), false).await.unwrap().changed);
    assert_eq!(store.tags().await, ["v1.0.0", "yanked.v1.0.0"]);

    // Who embeds what cannot be found out here.
    let unknown = yank::yank(&routes, &request("0.9.0", false)).await.unwrap_err();
    assert!(matches!(unknown, OperationError::NoVersion { .. }), "{unknown}");
    let forced = yank::yank(&routes, &request("0.9.0", true)).await.unwrap();
    assert!(forced.changed && !forced.is_published);
    let dry = delete::delete(&routes, &address("acme/leaf/null@1.0.0"), true).await.unwrap();
    assert!(matches!(&dry.holders.unsearched[..], [(name, _)] if name == "ghcr.io"));
    let refused = delete::delete(&routes, &address("acme/leaf/null@1.0.0"), false).await.unwrap_err();
    assert!(delete::own_way(&refused).unwrap().contains("GitHub"), "{refused}");
    assert!(store.tags().await.contains(&"v1.0.0".to_owned()));
}
