//! Stores on disk under what can happen to them: crashes, races, collections beside pushes, full and read-only disks.
//!
//! The numbers of rounds are small here and come from variables, for those who want to know better:
//!
//! ```sh
//! OCIMOD_TEST_CRASH_ROUNDS=1000 OCIMOD_TEST_RACE_ROUNDS=100 cargo test --release --test it store::
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::clients;
use crate::support::modules::write;
use crate::support::ocimod::Ocimod;
use crate::support::process::{isolated, kill, run};

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

    // Whoever has the module puts it back: into another store, and from there by a tool of images, or by the API.
    let again = format!("dir:{}", ocimod.folder("again").display());
    assert_eq!(ocimod.push(&again, &folder, "acme/a/null@1.0.0", &[])["digest"], pushed["digest"]);
    fs::copy(ocimod.home.path().join("again/_blobs/sha256").join(hex), &blob).unwrap();
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

/// A child that is killed when it is told to stop.
fn finish_unless(child: &mut Child, stop: &AtomicBool) -> Option<i32> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if stop.load(Ordering::Relaxed) {
            child.kill().unwrap();
            return child.wait().unwrap().code();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The server and what pushes to the same folder are killed at some moment. Nothing that was acknowledged is lost, and nothing is
/// there but what was pushed.
#[test]
fn a_crash_loses_nothing_that_was_acknowledged() {
    let (ocimod, registry) = store();
    let crane = clients::find("crane");
    let source = Ocimod::new();
    let source_registry = format!("dir:{}", source.folder("store").display());
    source.push(&source_registry, &module(&source, "src", "copied"), "acme/src/null@1.0.0", &[]);
    let layout = source.home.path().join("store/repos/acme/src/null/_oci");
    let names = ["direct", "served"];
    let attempted = names.map(|_| Mutex::new(BTreeSet::new()));
    let acknowledged = names.map(|_| Mutex::new(BTreeSet::new()));
    let copied = Mutex::new(BTreeSet::new());
    let mut landed = 0;
    for round in 0..rounds("OCIMOD_TEST_CRASH_ROUNDS", 20) {
        let mut serve = ocimod.serve(["--registry", &registry]);
        let remote = format!("{}+insecure", serve.address);
        let stop = AtomicBool::new(false);
        let before = acknowledged.each_ref().map(|versions| versions.lock().unwrap().clone());
        thread::scope(|scope| {
            for (who, registry) in [&registry, &remote].into_iter().enumerate() {
                let (ocimod, stop, attempted, acknowledged) =
                    (&ocimod, &stop, &attempted[who], &acknowledged[who]);
                scope.spawn(move || {
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let version = format!("1.{round}.{number}");
                        let folder = module(ocimod, names[who], &version);
                        attempted.lock().unwrap().insert(version.clone());
                        let mut command = ocimod.command();
                        command.args(["push", "--registry", registry]).arg(folder);
                        command.arg(format!("acme/{}/null@{version}", names[who]));
                        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
                        if finish_unless(&mut child.unwrap(), stop) == Some(0) {
                            acknowledged.lock().unwrap().insert(version);
                        }
                    }
                });
            }
            if let Some(crane) = &crane {
                let (home, address, stop, copied) = (source.home.path(), &serve.address, &stop, &copied);
                let layout = &layout;
                scope.spawn(move || {
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let tag = format!("round{round}-{number}");
                        let mut command = isolated(crane, home);
                        command.args(["push", "--insecure"]).arg(layout);
                        command.arg(format!("{address}/copied:{tag}"));
                        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
                        if finish_unless(&mut child.unwrap(), stop) == Some(0) {
                            copied.lock().unwrap().insert(tag);
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(getrandom::u64().unwrap() % 600));
            kill(serve.server.pid(), "KILL");
            stop.store(true, Ordering::Relaxed);
        });
        serve.server.wait();
        is_whole(&ocimod);
        for (who, name) in names.iter().enumerate() {
            let address = format!("acme/{name}/null");
            let (attempted, acknowledged) =
                (attempted[who].lock().unwrap(), acknowledged[who].lock().unwrap());
            let listed = versions(&ocimod, &registry, &address);
            assert!(acknowledged.is_subset(&listed), "lost: {:?}", acknowledged.difference(&listed));
            assert!(listed.is_subset(&attempted), "from nowhere: {:?}", listed.difference(&attempted));
            for version in listed.difference(&before[who]) {
                assert!(
                    main_of(&ocimod, &registry, &format!("{address}@{version}")).contains(version.as_str())
                );
            }
            landed += acknowledged.len() - before[who].len();
        }
    }
    let index = fs::read(ocimod.home.path().join("store/repos/copied/_oci/index.json")).unwrap_or_default();
    let index: Value = serde_json::from_slice(&index).unwrap_or_default();
    for tag in copied.lock().unwrap().iter() {
        let is_tagged =
            |entry: &Value| entry["annotations"]["org.opencontainers.image.ref.name"] == json!(tag);
        assert!(index["manifests"].as_array().unwrap().iter().any(is_tagged), "{tag} is lost");
    }
    assert!(landed > 0, "no push ended before its crash");
    // What was cut off is no damage, and goes when it is old.
    ocimod.run(["store", "gc", "--grace", "0", "store"]).success();
    is_whole(&ocimod);
}

#[test]
fn of_two_pushes_of_one_version_exactly_one_wins() {
    let (ocimod, registry) = store();
    let serve = ocimod.serve(["--registry", &registry]);
    let remote = format!("{}+insecure", serve.address);
    let folders = ["one", "other"].map(|name| module(&ocimod, name, name));
    for round in 0..rounds("OCIMOD_TEST_RACE_ROUNDS", 10) {
        let address = format!("acme/race/null@1.0.{round}");
        let barrier = Barrier::new(2);
        // Both in the folder, both through the server, and one each.
        let registries = [[&registry, &registry], [&remote, &remote], [&registry, &remote]][round % 3];
        let push = |folder: &Path, registry: &str| {
            barrier.wait();
            ocimod.run(["push", "--registry", registry, folder.to_str().unwrap(), &address])
        };
        let answers = thread::scope(|scope| {
            [0, 1]
                .map(|who| {
                    scope.spawn({
                        let (push, folder, registry) = (&push, &folders[who], registries[who]);
                        move || push(folder, registry)
                    })
                })
                .map(|push| push.join().unwrap())
        });
        let statuses = answers.each_ref().map(|answer| answer.status);
        let winner = statuses.iter().position(|status| *status == Some(0)).expect("one wins");
        assert_eq!(statuses[1 - winner], Some(4), "{answers:?}");
        let says = main_of(&ocimod, &registry, &address);
        assert!(says.contains(["\"one\"", "\"other\""][winner]), "{says}");
    }
    is_whole(&ocimod);
}

/// In a mount namespace of its own, so that nobody has to be root.
const FULL_AND_READ_ONLY: &str = r#"
set -u
mount -t tmpfs -o size=2m tmpfs store || { echo skipped; exit 0; }
push() { "$1" push --registry dir:store "modules/$2" "acme/$2/null@$3" >out 2>&1; echo "push $2 $?"; cat out >&2; }
push "$1" small 1.0.0
push "$1" large 1.0.0
"$1" store verify store; echo "verify $?"
push "$1" small 1.0.1
find store/_uploads -type f | wc -l
mount -o remount,ro store
push "$1" small 1.0.2
"$1" store verify store; echo "verify $?"
"$1" list --registry dir:store acme/small/null >out && cut -d' ' -f1 out; echo "list $?"
"$1" store gc --grace 0 store; echo "gc $?"
"#;

#[cfg(target_os = "linux")]
#[test]
fn a_full_or_read_only_disk_is_an_error_and_nothing_is_lost() {
    let ocimod = Ocimod::new();
    ocimod.folder("store");
    write(&ocimod.folder("modules/small"), &[("main.tf", "output \"says\" {\n  value = 1\n}\n")]);
    let large = module(&ocimod, "large", "large");
    let mut noise = vec![0; 4_000_000];
    getrandom::fill(&mut noise).unwrap();
    fs::write(large.join("noise.bin"), noise).unwrap();
    let program = env!("CARGO_BIN_EXE_ocimod");
    let mut command = isolated(Path::new("unshare"), ocimod.home.path());
    command.current_dir(ocimod.home.path()).args(["-rm", "sh", "-c", FULL_AND_READ_ONLY, "sh", program]);
    if command.output().is_err() {
        return; // There is no `unshare`; the store's own tests have a link that fails in its place.
    }
    let answer = run(&mut command);
    // Where namespaces are forbidden there is nothing to be shown.
    if answer.status != Some(0) && answer.stdout.is_empty() || answer.stdout == "skipped\n" {
        return;
    }
    let expected = "push small 0\npush large 1\nverify 0\npush small 0\n0\npush small 1\nverify 0\n1.0.0\n1.0.1\nlist 0\ngc 1\n";
    assert_eq!(answer.stdout, expected, "{}", answer.stderr);
    for reason in ["no space left", "read-only"] {
        assert!(answer.stderr.to_lowercase().contains(reason), "{}", answer.stderr);
    }
}

/// Not a test but a measure: what a push costs in a repository of many versions. `cargo test --release -- --ignored --nocapture`
/// prints it.
#[test]
#[ignore = "prints times"]
fn what_a_push_costs_by_the_number_of_versions() {
    for count in [10, 1_000, 10_000] {
        let (ocimod, registry) = store();
        let folder = module(&ocimod, "many", "many");
        ocimod.push(&registry, &folder, "acme/many/null@0.0.0", &[]);
        let index = ocimod.home.path().join("store/repos/acme/many/null/_oci/index.json");
        let mut list: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        let entries = list["manifests"].as_array_mut().unwrap();
        let blobs = index.with_file_name("blobs").join("sha256");
        let first = entries[0].clone();
        let hex = first["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let manifest: Value = serde_json::from_slice(&fs::read(blobs.join(hex)).unwrap()).unwrap();
        for number in 1..count {
            let mut manifest = manifest.clone();
            manifest["annotations"]["org.opencontainers.image.version"] = json!(format!("0.0.{number}"));
            let bytes = manifest.to_string();
            let digest = ocimod::oci::Digest::of(bytes.as_bytes());
            fs::write(blobs.join(digest.hex()), &bytes).unwrap();
            let mut entry = first.clone();
            entry["digest"] = json!(digest);
            entry["size"] = json!(bytes.len());
            entry["annotations"]["org.opencontainers.image.ref.name"] = json!(format!("v0.0.{number}"));
            entries.push(entry);
        }
        fs::write(&index, list.to_string()).unwrap();
        let serve = ocimod.serve(["--registry", &registry]);
        for (how, registry) in
            [("folder", registry.clone()), ("server", format!("{}+insecure", serve.address))]
        {
            let mut times: Vec<_> = (0..9)
                .map(|number| {
                    let start = Instant::now();
                    ocimod.push(&registry, &folder, &format!("acme/many/null@1.0.{number}-{how}"), &[]);
                    start.elapsed()
                })
                .collect();
            times.sort_unstable();
            #[allow(clippy::print_stderr)] // what this is for
            {
                eprintln!("{count} versions, {how}: {:?}", times[times.len() / 2]);
            }
        }
    }
}
