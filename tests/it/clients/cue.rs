//! `cue` reads what ocimod pushes, and ocimod reads what `cue` publishes.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::clients;
use crate::support::cue::{Cue, module};
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::example;
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, isolated, run};

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

/// The commands of the documentation's example: its blocks for a shell, one after the other.
fn documented() -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cue.md")).unwrap();
    let (_, section) = page.split_once("\n## An example, from end to end\n").expect("the section is there");
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_example_of_the_documentation_is_published_copied_and_evaluated_where_there_is_no_network() {
    let (Some(cue), Some(crane), Some(source), Some(target)) =
        (clients::find("cue"), clients::find("crane"), DockerRegistry::start(), DockerRegistry::start())
    else {
        return;
    };
    let ocimod = Ocimod::new();
    let serve = ocimod.serve(["--registry", &format!("{}/modules", target.address)]);
    let home = ocimod.folder("work");
    let examples = example("cue-label").parent().unwrap().display().to_string();
    let program = Path::new(env!("CARGO_BIN_EXE_ocimod"));
    let folders = [program, &cue, &crane].map(|program| program.parent().unwrap().to_owned());
    let path = std::env::join_paths(folders.into_iter().chain(["/usr/bin".into(), "/bin".into()])).unwrap();
    let shell = |block: &str, number: usize| -> Answer {
        let mut text = block.to_owned();
        for (written, meant) in [
            ("registry.acme.example", source.address.as_str()),
            ("closed.example", &target.address),
            ("127.0.0.1:8080", &serve.address),
            ("docs/examples", &examples),
        ] {
            text = text.replace(written, meant);
        }
        let mut command = isolated(Path::new("/bin/sh"), ocimod.home.path());
        command.current_dir(&home).args(["-e", "-c", &text]).env("PATH", &path);
        // Nothing of what the one has is there for the other.
        run(command.env("CUE_CACHE_DIR", ocimod.home.path().join(format!("cue-cache-{number}"))))
    };
    let [publish, with_registry, with_file] = &documented()[..] else { panic!("three blocks of commands") };
    shell(publish, 0).success();
    for (number, block) in [with_registry, with_file].into_iter().enumerate() {
        let said = shell(block, number + 1).success();
        let ids = "api: acme-production-shop-api\nworker: acme-production-shop-worker\n";
        assert!(said.stdout.ends_with(ids), "{}", said.stdout);
    }
    // What cue unpacks is read-only, and the home is to be removed.
    let _ = std::process::Command::new("chmod").args(["-R", "u+w"]).arg(ocimod.home.path()).status();
}
