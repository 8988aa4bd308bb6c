//! Stores on disk under what can happen to them: damage, collections beside pushes, and in the modules below crashes, races and
//! faults of the disk.
//!
//! The numbers of rounds are those of CI and come from variables, for those who want to know better:
//!
//! ```sh
//! OCIMOD_TEST_CRASH_ROUNDS=1000 OCIMOD_TEST_RACE_ROUNDS=1000 cargo test --release --test it store::
//! ```

mod crashes;
mod faults;
mod races;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use crate::support::modules::write;
use crate::support::ocimod::Ocimod;

fn store() -> (Ocimod, String) {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    (ocimod, registry)
}

fn rounds(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(default)
}

/// A module that says what it is, with enough in it that a push takes its time.
fn module(ocimod: &Ocimod, name: &str, says: &str) -> PathBuf {
    let folder = ocimod.folder(&format!("modules/{name}"));
    write(&folder, &[("main.tf", &format!("output \"says\" {{\n  value = \"{says}\"\n}}\n"))]);
    let mut noise = vec![0; 300_000];
    getrandom::fill(&mut noise).unwrap();
    fs::write(folder.join("noise.bin"), noise).unwrap();
    folder
}

/// Checks the store that is in `store` below the home.
#[track_caller]
fn is_whole(ocimod: &Ocimod) {
    let verified = ocimod.run(["store", "verify", "--format", "json", "store"]);
    assert_eq!((verified.status, &verified.json()["damage"]), (Some(0), &json!([])), "{}", verified.stderr);
}

fn versions(ocimod: &Ocimod, registry: &str, address: &str) -> BTreeSet<String> {
    let listed = ocimod.run(["list", "--registry", registry, "--format", "json", address]);
    if listed.status == Some(3) {
        return BTreeSet::new();
    }
    let listed = listed.success().json();
    let versions = listed["versions"].as_array().unwrap().iter();
    versions.map(|version| version["version"].as_str().unwrap().to_owned()).collect()
}

/// What `main.tf` of a published version has in it.
#[track_caller]
fn main_of(ocimod: &Ocimod, registry: &str, address: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("pulled");
    ocimod.run(["pull", "--registry", registry, address, "-o", folder.to_str().unwrap()]).success();
    fs::read_to_string(folder.join("main.tf")).unwrap()
}

#[test]
fn damage_is_reported_and_a_push_mends_it() {
    let (ocimod, registry) = store();
    let folder = module(&ocimod, "a", "hello");
    let pushed = ocimod.push(&registry, &folder, "acme/a/null@1.0.0", &[]);
    let clean = ocimod.run(["store", "verify", "store"]).success();
    assert_eq!(clean.stdout, "");
    assert!(clean.stderr.contains("no damage"), "{}", clean.stderr);

    let inspected = ocimod.run(["inspect", "--registry", &registry, "--format", "json", "acme/a/null"]);
    let layer = inspected.success().json()["manifest"]["layers"][0]["digest"].as_str().unwrap().to_owned();
    let hex = layer.strip_prefix("sha256:").unwrap();
    let blob = ocimod.home.path().join("store/repos/acme/a/null/_oci/blobs/sha256").join(hex);
    // In place of the file, which its other names keep.
    fs::remove_file(&blob).unwrap();
    fs::write(&blob, "wrong").unwrap();
    let found = ocimod.run(["store", "verify", "store"]).fails_with(1);
    assert!(found.stdout.starts_with(&format!("content acme/a/null@{layer} (v1.0.0): ")), "{}", found.stdout);
    let found = ocimod.run(["store", "verify", "--format", "json", "--repair", "store"]).fails_with(1).json();
    let damage = &found["damage"][0];
    assert_eq!((&damage["kind"], &damage["tags"]), (&json!("content"), &json!(["v1.0.0"])));
    assert_eq!(fs::read_to_string(damage["moved_to"].as_str().unwrap()).unwrap(), "wrong");
    assert_eq!(found["error"]["kind"], json!("damaged"));
    let found = ocimod.run(["store", "verify", "--format", "json", "store"]).fails_with(1).json();
    assert_eq!(found["damage"][0]["kind"], json!("missing"));

    // Whoever has the module pushes it again; another one is not taken for it.
    let mended = ocimod.push(&registry, &folder, "acme/a/null@1.0.0", &[]);
    assert_eq!((&mended["digest"], &mended["created"]), (&pushed["digest"], &json!(false)));
    assert!(mended["bytes_sent"].as_u64().is_some_and(|bytes| bytes > 0));
    is_whole(&ocimod);
    fs::remove_file(&blob).unwrap();
    let other = module(&ocimod, "b", "world").display().to_string();
    ocimod.run(["push", "--registry", &registry, &other, "acme/a/null@1.0.0"]).fails_with(1);
    ocimod.push(&registry, &folder, "acme/a/null@1.0.0", &[]);
    is_whole(&ocimod);
}

#[test]
fn garbage_is_told_and_removed() {
    let (ocimod, registry) = store();
    ocimod.push(&registry, &module(&ocimod, "a", "hello"), "acme/a/null@1.0.0", &[]);
    let kept = ocimod.run(["store", "gc", "--grace", "0", "store"]).success();
    assert_eq!(kept.stdout, "", "what a tag reaches stays");
    let index = ocimod.home.path().join("store/repos/acme/a/null/_oci/index.json");
    fs::write(&index, r#"{"schemaVersion":2,"manifests":[]}"#).unwrap();
    assert_eq!(ocimod.run(["store", "gc", "store"]).success().stdout, "", "it is younger than an hour");
    let gc = |more: &[&str]| {
        let words = ["store", "gc", "--format", "json", "--grace", "0", "store"].iter().chain(more).copied();
        ocimod.run(words).success().json()
    };
    let told = gc(&["--dry-run"]);
    assert_eq!(told["removed"].as_array().map(Vec::len), Some(8), "{told}");
    assert!(told["freed"].as_u64().is_some_and(|freed| freed > 300_000), "{told}");
    let done = gc(&[]);
    assert_eq!((&done["freed"], &done["dry_run"]), (&told["freed"], &json!(false)));
    assert_eq!(gc(&[])["removed"], json!([]));
    is_whole(&ocimod);
}

#[test]
fn a_mistyped_folder_does_not_become_a_store() {
    let ocimod = Ocimod::new();
    for verb in ["verify", "gc"] {
        let refused = ocimod.run(["store", verb, "sotre"]).fails_with(2);
        assert!(refused.stderr.contains("is no store"), "{}", refused.stderr);
    }
    ocimod.run(["store", "gc", "--grace", "1 week", "store"]).fails_with(2);
    assert!(!ocimod.home.path().join("sotre").exists());
}

/// Pushes `count` versions one after another, and says which were acknowledged.
fn push_versions(ocimod: &Ocimod, registry: &str, name: &str, count: usize) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for version in (0..count).map(|number| format!("1.0.{number}")) {
        let folder = module(ocimod, name, &version);
        let folder = folder.display().to_string();
        let address = format!("acme/{name}/null@{version}");
        if ocimod.run(["push", "--registry", registry, &folder, &address]).status == Some(0) {
            acknowledged.insert(version);
        }
    }
    acknowledged
}

/// A collection after the other while two push, one of them through the server.
fn collect_beside_pushes(grace: &str, count: usize) -> [usize; 2] {
    let (ocimod, registry) = store();
    ocimod.push(&registry, &module(&ocimod, "first", "x"), "acme/first/null@1.0.0", &[]);
    let serve = ocimod.serve(["--registry", &registry]);
    let remote = format!("{}+insecure", serve.address);
    let is_done = AtomicBool::new(false);
    let acknowledged = thread::scope(|scope| {
        let collector = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                ocimod.run(["store", "gc", "--grace", grace, "store"]).success();
            }
        });
        let pushers = [("direct", &registry), ("served", &remote)]
            .map(|(name, registry)| scope.spawn(|| push_versions(&ocimod, registry, name, count)));
        let acknowledged = pushers.map(|pusher| pusher.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
        collector.join().unwrap();
        acknowledged
    });
    is_whole(&ocimod);
    for (name, acknowledged) in ["direct", "served"].iter().zip(&acknowledged) {
        let address = format!("acme/{name}/null");
        let listed = versions(&ocimod, &registry, &address);
        assert!(acknowledged.is_subset(&listed), "{acknowledged:?} {listed:?}");
        for version in acknowledged {
            assert!(main_of(&ocimod, &registry, &format!("{address}@{version}")).contains(version));
        }
    }
    acknowledged.map(|acknowledged| acknowledged.len())
}

#[test]
fn a_collection_beside_pushes_takes_nothing_that_they_need() {
    assert_eq!(collect_beside_pushes("5s", 8), [8, 8]);
}

#[test]
fn without_grace_pushes_may_fail_and_nothing_is_damaged() {
    collect_beside_pushes("0", 8);
}
