//! Bugs that were there once: a test each, named for what holds now.

use std::fs;
use std::path::Path;

use ocimod::module::{Host, TofuAddress};
use ocimod::oci::{Digest, IMAGE_MANIFEST, Repository};
use ocimod::operations::routes::{ModuleName, RepositoryTemplate, Routes, Target};
use ocimod::operations::{connect, published};
use ocimod::registry::{BytesSource, Condition, NewManifest, RegistryError};
use serde_json::{Value, json};

use crate::failing_registry::{FailingRegistry, Failure, When};
use crate::support::modules::{example, write};
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{Answer, run};

/// A home, and the setting of a store in it.
fn store() -> (Ocimod, String) {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    (ocimod, registry)
}

fn label() -> String {
    example("terraform-null-label").display().to_string()
}

async fn status(serve: &Serve, path: &str) -> u16 {
    ocimod::registry::remote::install_crypto_provider();
    let url = format!("http://{}/v1/modules/{path}", serve.address);
    reqwest::get(url).await.expect("the server answers").status().as_u16()
}

/// Puts a manifest into a store as a stranger would; what `content` says becomes the layer.
async fn put(store: &Path, repository: &str, tag: &str, mut manifest: Value) {
    let registry = connect::directory(store.to_owned()).await.expect("the store opens");
    let repository: Repository = repository.parse().unwrap();
    if manifest["layers"][0]["mediaType"] == "archive/zip" {
        manifest["artifactType"] = json!("application/vnd.opentofu.modulepkg");
    }
    for layer in manifest["layers"].as_array_mut().unwrap() {
        let content = layer.as_object_mut().unwrap().remove("content").unwrap();
        let content = content.as_str().unwrap().to_owned();
        let digest = Digest::of(content.as_bytes());
        layer["digest"] = json!(digest);
        layer["size"] = json!(content.len());
        registry.put_blob(&repository, &digest, &BytesSource(content.into())).await.unwrap();
    }
    let config = Digest::of(b"{}");
    registry.put_blob(&repository, &config, &BytesSource("{}".into())).await.unwrap();
    manifest["schemaVersion"] = json!(2);
    manifest["mediaType"] = json!(IMAGE_MANIFEST);
    manifest["config"] =
        json!({"mediaType": "application/vnd.cue.module.v1+json", "digest": config, "size": 2});
    let new = NewManifest {
        media_type: IMAGE_MANIFEST.into(),
        bytes: manifest.to_string().into(),
        digest: None,
        tags: vec![tag.parse().unwrap()],
        condition: Condition::None,
    };
    registry.put_manifest(&repository, &new).await.unwrap();
}

#[tokio::test]
async fn where_no_host_is_said_the_modules_of_every_prefix_are_served() {
    let (ocimod, registry) = store();
    let registry = format!("b.example=dir:other,a.example/acme={registry}");
    ocimod.push(&registry, Path::new(&label()), "a.example/acme/label/null@1.0.0", &[]);
    let serve = ocimod.serve(["--registry", &registry]);
    assert_eq!(status(&serve, "acme/label/null/versions").await, 200);
    assert_eq!(status(&serve, "acme/label/null/1.0.0/download").await, 200);
    assert_eq!(status(&serve, "acme/label/null/2.0.0/download").await, 404);
    assert_eq!(status(&serve, "acme/nothing/null/versions").await, 404);
    assert_eq!(status(&serve, "other/label/null/versions").await, 404);

    let serve = ocimod.serve(["--registry", &registry, "--host", "c.example"]);
    assert_eq!(status(&serve, "acme/label/null/versions").await, 404);
}

#[tokio::test]
async fn a_catch_all_and_prefixes_are_served_together() {
    let (ocimod, registry) = store();
    let registry = format!("a.example=dir:other,{registry}");
    ocimod.push(&registry, Path::new(&label()), "a.example/acme/label/null@1.0.0", &[]);
    ocimod.push(&registry, Path::new(&label()), "b.example/acme/other/null@1.0.0", &[]);
    let serve = ocimod.serve(["--registry", &registry]);
    for module in ["acme/label/null", "acme/other/null"] {
        assert_eq!(status(&serve, &format!("{module}/versions")).await, 200, "{module}");
        assert_eq!(status(&serve, &format!("{module}/1.0.0/archive.zip")).await, 200, "{module}");
    }
}

#[test]
fn a_path_that_is_kept_nowhere_does_not_fall_to_the_catch_all() {
    let ocimod = Ocimod::new();
    let registry = "private.example=none,b.example";
    ocimod.run(["config", "show", "--registry", registry, "private.example/net/vpc@v1"]).fails_with(2);
    ocimod.run(["config", "show", "--registry", registry, "other.example/net/vpc@v1"]).success();
}

#[test]
fn on_a_ci_system_serve_pushes_nothing_to_the_machine_s_own_disk() {
    let ocimod = Ocimod::new();
    let first = format!("{}@1.0.0", label());
    let line = ["serve", "--listen", "127.0.0.1:0", "--namespace", "acme", "--push", &first];
    let refused = run(ocimod.command().env("CI", "true").args(line)).fails_with(2);
    assert!(refused.stderr.contains("--temporary"), "{}", refused.stderr);
    assert!(!ocimod.home.path().join(".local").exists());
}

#[test]
fn a_zip_is_not_packed_into_the_folder_that_it_is_made_of() {
    let (ocimod, registry) = store();
    let folder = ocimod.folder("q");
    write(&folder, &[("main.tf", "output \"a\" {\n  value = 1\n}\n")]);
    let pack = |more: &[&str]| {
        let line = ["pack", ".", "acme/q/null@1.0.0", "--registry", &registry];
        run(ocimod.command().current_dir(&folder).args(line).args(more))
    };
    for more in [&[][..], &["-o", "sub.zip"], &["-o", "../q/x.zip"], &["-o", "./modules/../x.zip"]] {
        fs::create_dir_all(folder.join("modules")).unwrap();
        let refused = pack(more).fails_with(2);
        assert!(refused.stderr.contains("-o ../q.zip"), "{}", refused.stderr);
    }
    pack(&["-o", "../q.zip"]).success();
    assert!(ocimod.home.path().join("q.zip").is_file());
    assert!(!folder.join("q.zip").exists());
}

#[cfg(unix)]
#[test]
fn a_packed_zip_follows_the_umask_like_any_file() {
    use std::os::unix::fs::PermissionsExt;
    let (ocimod, registry) = store();
    let script = r#"umask 027 && exec "$0" pack "$1" acme/label/null@1.0.0 --registry "$2" -o label.zip"#;
    let mut shell = crate::support::process::isolated(Path::new("/bin/sh"), ocimod.home.path());
    shell.current_dir(ocimod.home.path()).args(["-c", script, env!("CARGO_BIN_EXE_ocimod")]);
    run(shell.args([&label(), &registry])).success();
    let mode = fs::metadata(ocimod.home.path().join("label.zip")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[tokio::test]
async fn a_damaged_repository_does_not_hide_the_others() {
    let (ocimod, registry) = store();
    let store = ocimod.folder("store");
    ocimod.push(&registry, Path::new(&label()), "acme/a/null@1.0.0", &[]);
    let pushed = ocimod.push(&registry, Path::new(&label()), "acme/b/null@1.0.0", &[]);
    let digest: Digest = pushed["digest"].as_str().unwrap().parse().unwrap();
    fs::write(store.join("repos/acme/b/null/_oci/blobs/sha256").join(digest.hex()), "{}").unwrap();
    put(&store, "acme/c/null", "v1.0.0", two_archives()).await;
    let listed = ocimod.run(["list", "--registry", &registry]).fails_with(1);
    assert_eq!(listed.stdout, "acme/a/null  1.0.0  opentofu\n");
    assert!(listed.stderr.contains("/acme/b/null") && listed.stderr.contains("/acme/c/null"));
    let listed = ocimod.run(["list", "--registry", &registry, "--format", "json"]).fails_with(1).json();
    assert_eq!(listed["modules"][0]["module"], json!("modules.internal/acme/a/null"));
    assert_eq!(listed["failed"][0]["repository"], json!(format!("{registry}/acme/b/null")));
    assert_eq!(listed["failed"][1]["kind"], json!("damaged"));
    assert_eq!(listed["error"]["kind"], json!("failed"));
}

#[test]
fn one_host_is_not_spoken_to_in_two_ways() {
    let ocimod = Ocimod::new();
    let show = |registry: &str| ocimod.run(["config", "show", "--registry", registry, "acme/vpc/aws"]);
    for registry in [
        "a.example=h.example+insecure,h.example+secure",
        "a.example=h.example+insecure,h.example",
        "a.example=127.0.0.1:5000/x+insecure,127.0.0.1:5000/y+secure",
    ] {
        let refused = show(registry).fails_with(2);
        assert!(refused.stderr.contains("plain http and"), "{}", refused.stderr);
    }
    show("a.example=h.example+secure,h.example").success();
    show("a.example=127.0.0.1:5000+insecure,127.0.0.1:5000").success();
    show("a.example=h.example:1+insecure,h.example:2").success();
}

#[test]
fn a_version_beside_a_place_in_a_registry_is_wrong_usage() {
    let ocimod = Ocimod::new();
    for verb in ["inspect", "pull"] {
        let line = [verb, "oci://127.0.0.1:1/acme/vpc/aws:v1.0.0", "--version", "1.0.0"];
        let refused = ocimod.run(line).fails_with(2);
        assert!(refused.stderr.contains("--version"), "{}", refused.stderr);
    }
}

#[test]
fn a_place_in_a_registry_has_the_dependencies_of_its_bundle() {
    let (ocimod, registry) = store();
    ocimod.push(&registry, Path::new(&label()), "acme/label/null@1.0.0", &[]);
    let stack = example("terraform-null-stack");
    ocimod.push(&registry, &stack, "acme/stack/null@1.0.0", &["--deps", "separate"]);
    ocimod.push(&registry, &stack, "acme/stack/null@1.1.0", &["--deps", "inline"]);
    let serve = ocimod.serve(["--registry", &registry]);
    for reference in [":v1.0.0", "?tag=v1.0.0", ":v1.1.0", ":bundle.v1.0.0"] {
        let address = format!("oci://{}/acme/stack/null{reference}", serve.address);
        let shown = ocimod.run(["inspect", "--format", "json", &address]).success().json();
        assert_eq!(shown["dependencies"].as_array().map(Vec::len), Some(1), "{reference}");
    }
    let address = format!("oci://{}/acme/stack/null:v2.0.0", serve.address);
    ocimod.run(["inspect", &address]).fails_with(3);
}

fn two_archives() -> Value {
    json!({"layers": [
        {"mediaType": "archive/zip", "content": "one"},
        {"mediaType": "archive/zip", "content": "two"},
    ]})
}

#[tokio::test]
async fn a_manifest_that_lies_is_damaged_and_not_absent() {
    let (ocimod, registry) = store();
    let folder = ocimod.folder("store");
    let zip = json!({"mediaType": "archive/zip", "content": "zip"});
    let dependency = json!({
        "mediaType": "application/zip",
        "content": "dependency",
        "annotations": {"works.cue.module": "no version"},
    });
    let file = json!({
        "mediaType": "application/vnd.cue.modulefile.v1",
        "content": "module: \"modules.internal/acme/file/null@v1\"\n",
        "data": "bW9kdWxlOiAiZXZpbC5leGFtcGxlL2FAdjEiCg==",
    });
    put(&folder, "acme/archives/null", "v1.0.0", two_archives()).await;
    put(&folder, "acme/dependency/null", "v1.0.0", json!({"layers": [zip, dependency]})).await;
    put(&folder, "acme/file/null", "v1.0.0", json!({"layers": [zip, file]})).await;
    for name in ["archives", "dependency", "file"] {
        let address = format!("acme/{name}/null@1.0.0");
        let line = ["inspect", "--format", "json", "--registry", &registry, &address];
        let failed = ocimod.run(line).fails_with(1).json();
        assert_eq!(failed["error"]["kind"], json!("damaged"), "{name}");
    }
}

#[test]
fn a_comma_in_the_path_of_the_temporary_folder_does_no_harm() {
    let ocimod = Ocimod::new();
    let folder = ocimod.folder("a,b");
    let address = ocimod.home.path().join("address");
    let mut command = ocimod.command();
    command.env("TMPDIR", &folder).args(["serve", "--temporary", "--listen", "127.0.0.1:0"]);
    command.args(["--namespace", "acme", "--push", &format!("{}@1.0.0", label()), "--print-address"]);
    let mut server = crate::support::process::Server::start(command.arg(&address));
    server.wait_for(|line| line.contains("serving modules").then_some(()));
}

#[test]
fn a_comma_in_the_path_of_a_store_is_named() {
    let ocimod = Ocimod::new();
    for path in ["dir:/a,b", "dir:/a,b c", "x.example=dir:/a,b/../c"] {
        let refused = ocimod.run(["list", "--registry", path]).fails_with(2);
        assert!(refused.stderr.contains("comma"), "{}", refused.stderr);
    }
    let refused = ocimod.run(["list", "--registry", "a.example,b.example"]).fails_with(2);
    assert!(!refused.stderr.contains("comma"), "{}", refused.stderr);
}

#[test]
fn a_dry_run_says_that_a_version_is_there_already() {
    let (ocimod, registry) = store();
    ocimod.push(&registry, Path::new(&label()), "acme/label/null@1.0.0", &[]);
    let push = |version: &str| {
        let address = format!("acme/label/null@{version}");
        let label = label();
        let line = ["push", "-n", "--format", "json", "--registry", &registry, &label, &address];
        ocimod.run(line).success()
    };
    let there = push("1.0.0");
    assert!(!there.stderr.contains("would be pushed as"), "{}", there.stderr);
    assert!(there.stderr.contains("is there already"), "{}", there.stderr);
    assert_eq!(there.json()["created"], json!(false));
    assert!(push("1.1.0").stderr.contains("would be pushed as"));
}

#[test]
fn a_folder_that_is_not_there_is_not_made_by_who_reads() {
    let ocimod = Ocimod::new();
    let absent = ocimod.home.path().join("typo");
    let registry = format!("dir:{}", absent.display());
    for line in
        [&["list"][..], &["list", "acme/a/null"], &["pull", "acme/a/null"], &["inspect", "acme/a/null"]]
    {
        let failed = ocimod.run(line.iter().copied().chain(["--registry", &registry])).fails_with(3);
        assert!(failed.stderr.contains("typo"), "{}", failed.stderr);
    }
    let label = label();
    ocimod.run(["push", "-n", "--registry", &registry, &label, "acme/label/null@1.0.0"]).success();
    ocimod.run(["check", "--registry", &registry, &label]).success();
    ocimod.run(["config", "show", "--registry", &registry, "acme/label/null"]).success();
    assert!(!absent.exists());
    ocimod.run(["list"]).success();
    ocimod.push(&registry, Path::new(&label), "acme/label/null@1.0.0", &[]);
    assert!(absent.exists());
}

#[test]
fn a_date_that_no_calendar_has_is_wrong_usage() {
    let (ocimod, registry) = store();
    let push = |date: &str| -> Answer {
        let label = label();
        let line = ["push", "-n", "--registry", &registry, &label, "acme/label/null@1.0.0"];
        run(ocimod.command().env("SOURCE_DATE_EPOCH", date).args(line))
    };
    for date in ["9223372036854775807", "253402300800", "-1", "soon"] {
        let refused = push(date).fails_with(2);
        assert!(refused.stderr.contains("SOURCE_DATE_EPOCH"), "{}", refused.stderr);
    }
    push("253402300799").success();
}

#[tokio::test]
async fn strangers_words_stay_on_their_line() {
    let (ocimod, registry) = store();
    let manifest = json!({
        "layers": [{"mediaType": "application/zip", "content": "zip"}, {
            "mediaType": "application/vnd.cue.modulefile.v1",
            "content": "module: \"acme.example/fake@v1\"\n",
        }],
        "annotations": {"a": "one\ndigest        sha256:fake", "b\nversion": "9.9.9"},
    });
    put(&ocimod.folder("store"), "acme.example/fake", "v1.0.0", manifest).await;
    let shown = ocimod.run(["inspect", "--registry", &registry, "acme.example/fake"]).success();
    assert!(shown.stdout.contains("a one\\ndigest"), "{}", shown.stdout);
    assert!(
        !shown.stdout.lines().any(|line| line.starts_with("digest        sha256:fake")),
        "{}",
        shown.stdout
    );
    assert!(!shown.stdout.lines().any(|line| line.starts_with("version 9.9.9")), "{}", shown.stdout);
}

#[test]
fn the_placeholder_host_is_not_shown_to_people() {
    let (ocimod, registry) = store();
    ocimod.push(&registry, Path::new(&label()), "acme/label/null@1.0.0", &[]);
    ocimod.push(&registry, &example("terraform-null-stack"), "acme/stack/null@1.0.0", &[]);
    let listed = ocimod.run(["list", "--registry", &registry]).success();
    assert_eq!(listed.stdout, "acme/label/null  1.0.0  opentofu\nacme/stack/null  1.0.0  opentofu\n");
    let shown = ocimod.run(["inspect", "--registry", &registry, "acme/stack/null"]).success();
    assert!(shown.stdout.contains("acme/label/null@v1.0.0"), "{}", shown.stdout);
    // What the annotations say is what was pushed.
    let shown =
        shown.stdout.lines().take_while(|line| !line.contains("org.opencontainers")).collect::<String>();
    assert!(!shown.contains("modules.internal"), "{shown}");
    let shown = ocimod.run(["inspect", "--format", "json", "--registry", &registry, "acme/stack/null"]);
    assert_eq!(shown.success().json()["module"], json!("modules.internal/acme/stack/null@v1"));
}

#[test]
fn two_hosts_on_one_command_line_are_wrong_usage() {
    let (ocimod, registry) = store();
    let label = label();
    let address = "a.example/acme/label/null@1.0.0";
    let line = ["push", "-n", "--registry", &registry, &label, address];
    let refused = ocimod.run(line.iter().copied().chain(["--host", "b.example"])).fails_with(2);
    assert!(refused.stderr.contains("a.example") && refused.stderr.contains("b.example"));
    ocimod.run(line.iter().copied().chain(["--host", "A.example"])).success();
    // A setting is what holds where the command line says nothing.
    run(ocimod.command().env("OCIMOD_HOST", "b.example").args(line)).success();
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_not_waited_for() {
    let ocimod = Ocimod::new();
    let pipe = ocimod.home.path().join("module.zip");
    run(std::process::Command::new("mkfifo").arg(&pipe)).success();
    ocimod.run(["check", &pipe.display().to_string()]).fails_with(4);
}

#[test]
fn rules_of_ignore_files_have_a_limit() {
    let ocimod = Ocimod::new();
    let folder = ocimod.folder("a");
    write(&folder, &[("main.tf", ""), (".gitignore", &"a*b\n".repeat(100_000))]);
    let refused = ocimod.run(["check", &folder.display().to_string()]).fails_with(4);
    assert!(
        refused.stdout.contains("[ignore-file]") && refused.stdout.contains(".gitignore"),
        "{}",
        refused.stdout
    );
}

#[test]
fn a_repository_s_settings_write_nothing_elsewhere() {
    let ocimod = Ocimod::new();
    let folder = ocimod.folder("cloned");
    let victim = ocimod.home.path().join("victim");
    write(
        &folder,
        &[(".git/HEAD", ""), ("main.tf", ""), ("ocimod.toml", &format!("output = '{}'\n", victim.display()))],
    );
    let mut pack = ocimod.command();
    pack.current_dir(&folder).args(["pack", ".", "acme/a/null@1.0.0"]);
    let refused = run(&mut pack).fails_with(2);
    assert!(refused.stderr.contains("ocimod.toml:1"), "{}", refused.stderr);
    assert!(!victim.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_is_listed_before_there_is_anything_at_it_is_passed_over() {
    let (ocimod, store) = store();
    for version in ["1.0.0", "1.1.0"] {
        ocimod.push(&store, Path::new(&label()), &format!("acme/label/null@{version}"), &[]);
    }
    let inner = connect::directory(ocimod.folder("store")).await.unwrap();
    let registry = FailingRegistry::new(inner);
    let target = Target {
        registry: registry.clone(),
        prefix: String::new(),
        name: "registry.example".into(),
        identity: "registry.example".into(),
        is_local: false,
    };
    let routes = Routes::new(vec![(None, Some(target))], RepositoryTemplate::default());
    let address = TofuAddress::parse("acme/label/null").unwrap();
    let module = ModuleName::tofu(&address, &Host::internal()).unwrap();
    registry.fail(
        "manifest",
        When::Nth(1),
        Failure::error(|| RegistryError::ManifestUnknown {
            repository: "acme/label/null".into(),
            reference: "v1.1.0".into(),
        }),
    );
    let found = published::find(&routes, &module).await.unwrap();
    assert_eq!(found.listed().count(), 2);
    assert_eq!(registry.count("manifest"), 2, "the older version tells whose the repository is");
}
