//! `cue` reads what ocimod pushes, and ocimod reads what `cue` publishes.

use std::path::PathBuf;

use serde_json::json;

use crate::support::cue::{Cue, module};
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::example;
use crate::support::ocimod::Ocimod;

/// A module that uses the example `cue-stack` from a registry.
fn user_of_stack(ocimod: &Ocimod) -> PathBuf {
    let folder = ocimod.folder("user");
    let main = "package main\n\nimport \"acme.example/stack@v1\"\n\nshop: stack.#Stack & {\n\tnamespace: \"acme\"\n\tstage: \
                \"test\"\n\tname: \"shop\"\n\tcomponents: [\"api\"]\n}\n";
    let deps = [("acme.example/label@v1", "v1.0.0"), ("acme.example/stack@v1", "v1.0.0")];
    module(&folder, "user.example/main@v0", &deps, &[("main.cue", main)]);
    folder
}

#[test]
fn cue_evaluates_modules_that_were_pushed_without_dependencies_or_with_separate_ones() {
    let Some(registry) = DockerRegistry::start() else { return };
    for form in ["none", "separate"] {
        let Some(cue) = Cue::new() else { return };
        let ocimod = Ocimod::new();
        let prefixed = format!("{}/{form}", registry.address);
        ocimod.push(&prefixed, &example("cue-label"), "acme.example/label@v1.0.0", &[]);
        ocimod.push(&prefixed, &example("cue-stack"), "acme.example/stack@v1.0.0", &["--deps", form]);
        let user = user_of_stack(&ocimod);
        let ids = cue.run(&prefixed, &user, &["export", "-e", "shop.labels.api.id", "."]).success();
        assert_eq!(ids.json(), json!("acme-test-shop-api"), "{form}");
        cue.run(&prefixed, &user, &["mod", "tidy", "--check"]).success();
    }
}

#[test]
fn what_cue_publishes_into_our_registry_is_inspected_and_pulled() {
    let Some(cue) = Cue::new() else { return };
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let serve = ocimod.serve(["--registry", &store]);
    for name in ["cue-label", "cue-stack"] {
        cue.run(&serve.address, &example(name), &["mod", "publish", "v1.0.0"]).success();
    }
    for registry in [&store, &serve.address] {
        let inspected = ocimod
            .run(["inspect", "--registry", registry, "--format", "json", "acme.example/stack@v1.0.0"])
            .success()
            .json();
        assert_eq!(inspected["kind"], json!("cue"));
        assert_eq!(inspected["version"], json!("1.0.0"));
        let pulled = ocimod.home.path().join(format!("pulled-{}", registry.len()));
        let folder = pulled.display().to_string();
        ocimod.run(["pull", "--registry", registry, "acme.example/stack@v1", "-o", &folder]).success();
        for file in ["stack.cue", "cue.mod/module.cue"] {
            let (ours, theirs) =
                (std::fs::read(pulled.join(file)), std::fs::read(example("cue-stack").join(file)));
            assert_eq!(ours.expect("it was pulled"), theirs.expect("it is an example"), "{file}");
        }
    }
}
