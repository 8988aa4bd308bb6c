//! `cue` without any registry, after a pull into its cache.

use std::path::Path;

use serde_json::json;

use super::cue_view::{copy, path_of, publish, said, says};
use crate::support::clients;
use crate::support::cue::{Cue, module};
use crate::support::docker_registry::DockerRegistry;
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, run};

const TOP: &str = "acme.example/net/top@v1.0.0";

/// Pulls a module into the cache of a `cue`.
#[track_caller]
fn pull(ocimod: &Ocimod, cue: &Cue, registry: &str, arguments: &[&str]) -> Answer {
    let mut command = ocimod.command();
    command
        .args(["pull", "--registry", registry, "--into-cue-cache", "--format", "json"])
        .args(arguments)
        .env("CUE_CACHE_DIR", cue.cache());
    run(&mut command)
}

#[test]
fn one_self_contained_module_is_all_that_cue_needs_without_a_registry() {
    let (Some(crane), Some(source), Some(target)) =
        (clients::find("crane"), DockerRegistry::start(), DockerRegistry::start())
    else {
        return;
    };
    let ocimod = Ocimod::new();
    publish(&ocimod, &source.address, &[]);
    copy(&crane, &ocimod, &source.address, &target.address, "acme.example/net/top:v1.0.0");
    let store = format!("dir:{}", ocimod.folder("store").display());
    publish(&ocimod, &store, &["--deps", "separate"]);
    // A registry with that tag alone, and a folder with everything.
    for registry in [&target.address, &store] {
        let Some(cue) = Cue::new() else { return };
        let pulled = pull(&ocimod, &cue, registry, &[TOP]).success().json();
        let modules: Vec<_> =
            pulled["cached"].as_array().unwrap().iter().map(|cached| cached["module"].clone()).collect();
        let all = ["top@v1.0.0", "leaf@v1.0.0", "mid@v1.0.0"].map(|name| format!("acme.example/net/{name}"));
        assert_eq!(json!(modules), json!(all));
        assert_eq!(pulled.get("folder"), None);

        let user = ocimod.folder("user");
        let deps = ["leaf", "mid", "top"].map(path_of);
        let deps: Vec<_> = deps.iter().map(|path| (path.as_str(), "v1.0.0")).collect();
        module(&user, "user.example/main@v0", &deps, &[("main.cue", &says("main", "user", &["top"]))]);
        cue.run("none", &user, &["mod", "tidy", "--check"]).success();
        cue.run("none", &user, &["vet", "."]).success();
        let heard = json!(["user", ["top1.0.0", ["mid1.0.0", ["leaf1.0.0"]]]]);
        assert_eq!(said(&cue, "none", &user), heard, "{registry}");
        // Once more, where it is and was unpacked by `cue`: nothing is new.
        let again = pull(&ocimod, &cue, registry, &[TOP]).success().json();
        assert!(again["cached"].as_array().unwrap().iter().all(|cached| cached["created"] == json!(false)));

        // The module's own folder is evaluated in place.
        let folder = ocimod.home.path().join(format!("pulled-{}", registry.len()));
        pull(&ocimod, &cue, registry, &[TOP, "-o", &folder.display().to_string()]).success();
        assert_eq!(said(&cue, "none", &folder), heard[1]);
        cue.run("none", &folder, &["mod", "tidy", "--check"]).success();
    }
}

#[test]
fn what_cue_has_fetched_itself_is_the_same() {
    let Some(cue) = Cue::new() else { return };
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    publish(&ocimod, &store, &[]);
    let serve = ocimod.serve(["--registry", &store]);
    let user = ocimod.folder("user");
    module(&user, "user.example/main@v0", &[], &[("main.cue", &says("main", "user", &["top"]))]);
    cue.run(&format!("{}/cue.mod", serve.address), &user, &["mod", "tidy"]).success();
    let cached = pull(&ocimod, &cue, &store, &[TOP]).success().json()["cached"].clone();
    assert!(cached.as_array().unwrap().iter().all(|cached| cached["created"] == json!(false)), "{cached}");

    // What somebody changed there is not taken for the module.
    let extracted = cue.cache().join("mod/extract/acme.example/net/leaf@v1.0.0");
    make_writable(&extracted);
    std::fs::write(extracted.join("a.cue"), "package leaf\n\nsays: [\"changed\"]\n").unwrap();
    let refused = pull(&ocimod, &cue, &store, &[TOP]).fails_with(4);
    assert!(refused.stderr.contains("another `acme.example/net/leaf@v1.0.0`"), "{}", refused.stderr);
    assert!(refused.stderr.contains("[cache-differs]"), "{}", refused.stderr);
}

fn make_writable(folder: &Path) {
    let made = std::process::Command::new("chmod").args(["-R", "u+w"]).arg(folder).status();
    assert!(made.unwrap().success());
}

#[test]
fn nothing_is_cached_of_a_module_that_is_not_whole_or_not_itself() {
    let Some(cue) = Cue::new() else { return };
    let ocimod = Ocimod::new();
    let store = ocimod.folder("store");
    let registry = format!("dir:{}", store.display());
    publish(&ocimod, &registry, &["--deps", "none"]);
    // What it needs is beside it: until that is gone.
    std::fs::remove_dir_all(store.join("repos/acme.example/net/leaf")).unwrap();
    let refused = pull(&ocimod, &cue, &registry, &[TOP]).fails_with(4);
    assert!(refused.stderr.contains("`acme.example/net/leaf@v1.0.0`"), "{}", refused.stderr);
    assert!(refused.stderr.contains("[dependency-missing]"), "{}", refused.stderr);
    let written = std::fs::read_dir(cue.cache().join("mod/download"));
    assert_eq!(written.map_or(0, Iterator::count), 0);
}

#[test]
fn two_files_that_were_carried_are_used_together_without_a_registry() {
    let Some(cue) = Cue::new() else { return };
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    publish(&ocimod, &store, &[]);
    // `side` needs a later version of what `top` needs.
    for name in ["top", "side"] {
        let file = format!("layout:{}", ocimod.home.path().join(format!("{name}.tar")).display());
        let address = format!("acme.example/net/{name}@v1.0.0");
        ocimod.run(["copy", &address, "--from", &store, "--to", &file]).success();
        let pulled = pull(&ocimod, &cue, &file, &[&address]).success().json();
        assert!(pulled["cached"].as_array().unwrap().len() > 1, "{pulled}");
    }
    let user = ocimod.folder("user");
    let deps = [("leaf", "v1.1.0"), ("mid", "v1.0.0"), ("side", "v1.0.0"), ("top", "v1.0.0")];
    let deps = deps.map(|(name, version)| (path_of(name), version));
    let deps: Vec<_> = deps.iter().map(|(path, version)| (path.as_str(), *version)).collect();
    module(&user, "user.example/main@v0", &deps, &[("main.cue", &says("main", "user", &["top", "side"]))]);
    for verb in [&["mod", "tidy", "--check"][..], &["vet", "."], &["eval", "."]] {
        cue.run("none", &user, verb).success();
    }
    let heard = json!(["user", ["top1.0.0", ["mid1.0.0", ["leaf1.1.0"]]], ["side1.0.0", ["leaf1.1.0"]]]);
    assert_eq!(said(&cue, "none", &user), heard);
}

#[cfg(unix)]
#[test]
fn both_programs_fill_one_cache_at_a_time() {
    let Some(cue) = Cue::new() else { return };
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    publish(&ocimod, &store, &[]);
    let serve = ocimod.serve(["--registry", &store]);
    let view = format!("{}/cue.mod", serve.address);
    let user = ocimod.folder("user");
    let deps = ["leaf", "mid", "top"].map(path_of);
    let deps: Vec<_> = deps.iter().map(|path| (path.as_str(), "v1.0.0")).collect();
    module(&user, "user.example/main@v0", &deps, &[("main.cue", &says("main", "user", &["top"]))]);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (cue, ocimod, view, user, store) = (&cue, &ocimod, &view, &user, &store);
            scope.spawn(move || {
                if number % 2 == 0 {
                    cue.run(view, user, &["export", "."]).success();
                } else {
                    pull(ocimod, cue, store, &[TOP]).success();
                }
            });
        }
    });
    // Whoever was first, what is there is whole, and the same for both.
    let again = pull(&ocimod, &cue, &store, &[TOP]).success().json();
    assert!(again["cached"].as_array().unwrap().iter().all(|cached| cached["created"] == json!(false)));
    assert_eq!(said(&cue, "none", &user), json!(["user", ["top1.0.0", ["mid1.0.0", ["leaf1.0.0"]]]]));
    let left = std::fs::read_dir(cue.cache().join("mod/download")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".ocimod-")), "{left:?}");
}
