//! What is published does not change and is nobody else's: pushes against registries that others write to as well.

use std::path::PathBuf;

use bytes::Bytes;
use ocimod::oci::{Digest, IMAGE_MANIFEST, Manifest, Reference, Repository};
use ocimod::operations::connect;
use ocimod::registry::{BytesSource, Condition, NewManifest, SharedRegistry};
use serde_json::{Value, json};

use crate::support::modules::write;
use crate::support::ocimod::Ocimod;

const PLAIN: &str = "output \"a\" {\n  value = 1\n}\n";

/// A home with a store, and its setting.
fn store() -> (Ocimod, String) {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    (ocimod, registry)
}

fn module(ocimod: &Ocimod, folder: &str, main: &str) -> PathBuf {
    let folder = ocimod.folder(folder);
    write(&folder, &[("main.tf", main)]);
    folder
}

fn call(address: &str) -> String {
    format!("module \"it\" {{\n  source = \"{address}\"\n}}\n")
}

/// The store as somebody else writes to it.
async fn opened(ocimod: &Ocimod) -> SharedRegistry {
    connect::directory(ocimod.folder("store")).await.expect("the store opens")
}

async fn read(registry: &SharedRegistry, repository: &str, tag: &str) -> (Digest, Value) {
    let (repository, reference): (Repository, Reference) =
        (repository.parse().unwrap(), tag.parse().unwrap());
    let stored = registry.manifest(&repository, &reference).await.expect("the tag is there");
    (stored.digest, serde_json::from_slice(&stored.bytes).expect("a manifest is JSON"))
}

async fn put(registry: &SharedRegistry, repository: &str, tag: &str, manifest: &Value) -> bool {
    let bytes = Bytes::from(serde_json::to_vec(manifest).unwrap());
    let parsed = Manifest::parse(IMAGE_MANIFEST, &bytes).expect("a manifest");
    let repository: Repository = repository.parse().unwrap();
    let config = Bytes::from_static(b"{}");
    registry.put_blob(&repository, &Digest::of(&config), &BytesSource(config)).await.unwrap();
    assert_eq!(parsed.config.map(|config| config.digest), Some(Digest::of(b"{}")));
    let new = NewManifest {
        media_type: IMAGE_MANIFEST.to_owned(),
        bytes,
        digest: None,
        tags: vec![tag.parse().unwrap()],
        condition: Condition::None,
    };
    registry.put_manifest(&repository, &new).await.is_ok()
}

/// A container image, as somebody may push it under a version's tag.
fn image() -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": IMAGE_MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json", "digest": Digest::of(b"{}"), "size": 2,
        },
        "layers": [],
    })
}

fn dependencies(ocimod: &Ocimod, registry: &str, address: &str) -> Vec<String> {
    let inspected =
        ocimod.run(["inspect", "--registry", registry, "--format", "json", address]).success().json();
    let layers = inspected["dependencies"].as_array().expect("dependencies").clone();
    layers.iter().map(|layer| layer["module"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_beside_a_version_changes_nothing_of_it() {
    let (ocimod, registry) = store();
    let leaf = module(&ocimod, "leaf", PLAIN);
    ocimod.push(&registry, &leaf, "acme/leaf/null@1.0.0", &[]);
    let top = module(&ocimod, "top", &call("modules.internal/acme/leaf/null"));
    ocimod.push(&registry, &top, "acme/top/null@1.0.0", &[]);
    let expected = ["modules.internal/acme/leaf/null@v1.0.0"];
    assert_eq!(dependencies(&ocimod, &registry, "acme/top/null"), expected);

    let opened = opened(&ocimod).await;
    let (digest, manifest) = read(&opened, "acme/top/null", "v1.0.0").await;
    let mut bundle = manifest;
    bundle["layers"][2]["annotations"]["works.cue.module"] = json!("modules.internal/acme/leaf/null@v9.0.0");
    assert!(put(&opened, "acme/top/null", "bundle.v1.0.0", &bundle).await);
    assert_eq!(dependencies(&ocimod, &registry, "acme/top/null"), expected);
    // Nor does one that names the version as its subject: the version says itself what it needs.
    bundle["subject"] = json!({"mediaType": IMAGE_MANIFEST, "digest": digest, "size": 1});
    assert!(put(&opened, "acme/top/null", "bundle.v2.0.0", &bundle).await);
    assert_eq!(dependencies(&ocimod, &registry, "acme/top/null@1.0.0"), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_spelling_is_the_same_version() {
    let (ocimod, registry) = store();
    ocimod.push(&registry, &module(&ocimod, "a", PLAIN), "acme/a/null@1.0.0", &[]);
    let opened = opened(&ocimod).await;
    let (_, same) = read(&opened, "acme/a/null", "v1.0.0").await;
    let mut other = same.clone();
    other["annotations"]["more"] = json!("more");
    assert!(!put(&opened, "acme/a/null", "1.0.0", &other).await);
    assert!(put(&opened, "acme/a/null", "1.0.0", &same).await);
    assert!(!put(&opened, "acme/a/null", "v1.0.0", &other).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_goes_where_the_module_is_already() {
    let (ocimod, registry) = store();
    let folder = module(&ocimod, "a", PLAIN);
    let elsewhere = ["--host", "a.example", "--module-repository", "{host}/{namespace}/{name}/{system}"];
    ocimod.push(&registry, &folder, "acme/a/null@1.0.0", &elsewhere);
    let pushed = ocimod.push(&registry, &folder, "acme/a/null@1.1.0", &["--host", "a.example"]);
    assert_eq!(pushed["reference"], json!(format!("{registry}/a.example/acme/a/null:v1.1.0")));
    write(&folder, &[("main.tf", "# changed\n")]);
    let text = folder.display().to_string();
    ocimod
        .run(["push", "--registry", &registry, "--host", "a.example", &text, "acme/a/null@1.0.0"])
        .fails_with(4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_stays_with_the_host_that_took_it_over() {
    let (ocimod, registry) = store();
    let folder = module(&ocimod, "a", PLAIN);
    let text = folder.display().to_string();
    ocimod.push(&registry, &folder, "acme/a/null@2.0.0", &[]);
    ocimod.push(&registry, &folder, "acme/a/null@1.0.0", &["--host", "a.example"]);
    let push = |host: &str, version: &str| {
        let address = format!("acme/a/null@{version}");
        ocimod.run(["push", "--registry", &registry, "--host", host, &text, &address])
    };
    push("b.example", "1.1.0").fails_with(4);
    push("modules.internal", "1.1.0").fails_with(4);
    // Something else under the newest version's tag changes nothing of that.
    assert!(put(&opened(&ocimod).await, "acme/a/null", "v9.0.0", &image()).await);
    push("b.example", "1.1.0").fails_with(4);
    push("a.example", "9.0.0").fails_with(4);
    push("a.example", "1.1.0").success();
    // It is no version either.
    let listed = ocimod.run(["list", "--registry", &registry, "acme/a/null"]).success();
    assert_eq!(
        listed.stdout.lines().filter(|line| line.starts_with("9.0.0")).count(),
        0,
        "{}",
        listed.stdout
    );
    ocimod.run(["pull", "--registry", &registry, "acme/a/null", "-o", "newest"]).success();
    let named = ocimod.run(["pull", "--registry", &registry, "acme/a/null@9.0.0", "-o", "image"]);
    assert!(named.fails_with(3).stderr.contains("a container image"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_push_is_completed_by_the_next_one() {
    let (ocimod, registry) = store();
    ocimod.push(&registry, &module(&ocimod, "leaf", PLAIN), "acme/leaf/null@1.0.0", &[]);
    let top = module(&ocimod, "top", &call("modules.internal/acme/leaf/null"));
    let first = ocimod.push(&registry, &top, "acme/top/null@1.0.0", &["--deps", "separate"]);
    let opened = opened(&ocimod).await;
    opened.delete_tag(&"acme/top/null".parse().unwrap(), &"v1.0.0".parse().unwrap()).await.unwrap();
    let second = ocimod.push(&registry, &top, "acme/top/null@1.0.0", &["--deps", "separate"]);
    assert_eq!(second["digest"], first["digest"]);
    assert_eq!(second["reference"], first["reference"]);
    assert_eq!(json!(read(&opened, "acme/top/null", "v1.0.0").await.0), first["digest"]);
}

#[test]
fn a_hand_written_module_file_belongs_to_the_content() {
    let (ocimod, registry) = store();
    let folder = module(&ocimod, "a", PLAIN);
    let file =
        "module: \"a.example/acme/a/null@v1\"\nlanguage: version: \"v0.9.0\"\nsource: kind: \"self\"\n";
    write(&folder, &[("cue.mod/module.cue", file)]);
    let text = folder.display().to_string();
    ocimod.push(&registry, &folder, "a.example/acme/a/null@1.0.0", &[]);
    std::fs::remove_dir_all(folder.join("cue.mod")).unwrap();
    ocimod.run(["push", "--registry", &registry, &text, "a.example/acme/a/null@1.0.0"]).fails_with(4);
    // What it says has to agree with the command line.
    write(&folder, &[("cue.mod/module.cue", file)]);
    ocimod.run(["push", "--registry", &registry, &text, "b.example/acme/a/null@1.1.0"]).fails_with(4);
    ocimod.run(["push", "--registry", &registry, &text, "a.example/acme/a/null@2.0.0"]).fails_with(4);
    let deps = format!("{file}deps: \"a.example/acme/b/null@v1\": v: \"v1.0.0\"\n");
    write(&folder, &[("cue.mod/module.cue", &deps)]);
    for verb in [&["push"][..], &["check"]] {
        let mut arguments = vec![verb[0], "--registry", &registry, &text];
        if verb[0] == "push" {
            arguments.push("a.example/acme/a/null@1.2.0");
        }
        let refused = ocimod.run(arguments).fails_with(4);
        assert!(refused.all().contains("[deps-disagree]"), "{}", refused.all());
    }
}

#[test]
fn names_of_other_hosts_are_not_mixed_up() {
    let (ocimod, registry) = store();
    let leaf = module(&ocimod, "leaf", PLAIN);
    // Pushed without a host: not what anybody publishes under that name on OpenTofu's registry.
    ocimod.push(&registry, &leaf, "acme/leaf/null@1.0.0", &[]);
    let top = module(&ocimod, "top", &call("acme/leaf/null"));
    let pushed = ocimod.push(&registry, &top, "acme/top/null@1.0.0", &["--host", "a.example"]);
    assert_eq!(pushed["dependencies"], json!([]));

    // A former host counts as the own one, wherever the module is called by it.
    ocimod.push(&registry, &leaf, "acme/moved/null@1.0.0", &["--host", "new.example"]);
    let caller = module(&ocimod, "caller", &call("old.example/acme/moved/null"));
    let alias = ["--host", "new.example", "--host-alias", "old.example"];
    for _ in 0..2 {
        let pushed = ocimod.push(&registry, &caller, "acme/caller/null@1.0.0", &alias);
        assert_eq!(pushed["dependencies"][0]["module"], json!("new.example/acme/moved/null@v1.0.0"));
    }
}

/// More than fit on the stack where a call is a call.
const LENGTH: usize = 310;

#[tokio::test(flavor = "multi_thread")]
async fn a_long_chain_of_foreign_modules_is_followed_without_a_crash() {
    let (ocimod, registry) = store();
    let opened = opened(&ocimod).await;
    // Modules as `oras` pushes them, each of which calls the next.
    for number in 0..LENGTH {
        let main = if number + 1 < LENGTH {
            call(&format!("modules.internal/acme/m{}/null", number + 1))
        } else {
            PLAIN.to_owned()
        };
        let zip = Bytes::from(zip_of(&[("main.tf", main.as_bytes())]));
        let repository = format!("acme/m{number}/null");
        let name: Repository = repository.parse().unwrap();
        opened.put_blob(&name, &Digest::of(&zip), &BytesSource(zip.clone())).await.unwrap();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": IMAGE_MANIFEST,
            "artifactType": "application/vnd.opentofu.modulepkg",
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest::of(b"{}"), "size": 2},
            "layers": [{"mediaType": "archive/zip", "digest": Digest::of(&zip), "size": zip.len()}],
        });
        assert!(put(&opened, &repository, "1.0.0", &manifest).await);
    }
    let top = module(&ocimod, "top", &call("modules.internal/acme/m0/null"));
    let pushed = ocimod.push(&registry, &top, "acme/top/null@1.0.0", &[]);
    assert_eq!(pushed["dependencies"].as_array().map(Vec::len), Some(LENGTH));
}

/// A zip as another tool makes it.
fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    use std::io::Write;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in files {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}
