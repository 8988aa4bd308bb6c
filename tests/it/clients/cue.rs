//! `cue` reads what ocimod pushes, and ocimod reads what `cue` publishes.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::{example, write};
use crate::support::ocimod::Ocimod;
use crate::support::process::{isolated, run};

/// `cue` with a cache and a configuration of its own, and one registry.
fn cue(program: &Path, ocimod: &Ocimod, name: &str, registry: &str, folder: &Path) -> Command {
    let mut command = isolated(program, ocimod.home.path());
    command
        .current_dir(folder)
        .env("CUE_REGISTRY", format!("{registry}+insecure"))
        .env("CUE_CACHE_DIR", ocimod.folder(&format!("{name}-cache")))
        .env("CUE_CONFIG_DIR", ocimod.folder(&format!("{name}-config")))
        .env("DOCKER_CONFIG", ocimod.folder("no-docker-config"));
    command
}

/// The cache has folders that may not be written, which would keep the test's own folder from being removed.
fn unlock(ocimod: &Ocimod) {
    let _ = Command::new("chmod").args(["-R", "u+w"]).arg(ocimod.home.path()).status();
}

/// A module that uses the example `cue-stack` from a registry.
fn user_of_stack(ocimod: &Ocimod) -> PathBuf {
    let folder = ocimod.folder("user");
    let module_file = "module: \"user.example/main@v0\"\nlanguage: version: \"v0.9.2\"\ndeps: {\n\t\"acme.example/label@v1\": v: \
                       \"v1.0.0\"\n\t\"acme.example/stack@v1\": v: \"v1.0.0\"\n}\n";
    let main = "package main\n\nimport \"acme.example/stack@v1\"\n\nshop: stack.#Stack & {\n\tnamespace: \"acme\"\n\tstage: \
                \"test\"\n\tname: \"shop\"\n\tcomponents: [\"api\"]\n}\n";
    write(&folder, &[("cue.mod/module.cue", module_file), ("main.cue", main)]);
    folder
}

#[test]
fn cue_evaluates_modules_that_were_pushed_without_dependencies_or_with_separate_ones() {
    let Some(program) = clients::find("cue") else { return };
    let Some(registry) = DockerRegistry::start() else { return };
    for form in ["none", "separate"] {
        let ocimod = Ocimod::new();
        let prefixed = format!("{}/{form}", registry.address);
        ocimod.push(&prefixed, &example("cue-label"), "acme.example/label@v1.0.0", &[]);
        ocimod.push(&prefixed, &example("cue-stack"), "acme.example/stack@v1.0.0", &["--deps", form]);
        let user = user_of_stack(&ocimod);
        let ids = run(cue(&program, &ocimod, "cue", &prefixed, &user).args([
            "export",
            "-e",
            "shop.labels.api.id",
            ".",
        ]));
        assert_eq!(ids.success().json(), json!("acme-test-shop-api"), "{form}");
        run(cue(&program, &ocimod, "cue", &prefixed, &user).args(["mod", "tidy", "--check"])).success();
        unlock(&ocimod);
    }
}

#[test]
fn what_cue_publishes_into_our_registry_is_inspected_and_pulled() {
    let Some(program) = clients::find("cue") else { return };
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let serve = ocimod.serve(["--registry", &store]);
    for name in ["cue-label", "cue-stack"] {
        let publish = run(cue(&program, &ocimod, "publish", &serve.address, &example(name))
            .args(["mod", "publish", "v1.0.0"]));
        publish.success();
    }
    unlock(&ocimod);
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
