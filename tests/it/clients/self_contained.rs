//! One tag is copied to a registry that has nothing else, and everything that the module needs is installed from there.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::{Root, write};
use crate::support::ocimod::Ocimod;
use crate::support::process::{isolated, run};

/// A module whose output says what it is, and what the modules that it calls say.
fn module(ocimod: &Ocimod, name: &str, says: &str, calls: &[(&str, &str)]) -> std::path::PathBuf {
    let folder = ocimod.folder(&format!("terraform-null-{name}-{says}"));
    let mut main = String::new();
    let mut said = vec![format!("\"{says}\"")];
    for (index, (called, version)) in calls.iter().enumerate() {
        let _ = write!(
            main,
            "module \"m{index}\" {{\n  source  = \"modules.internal/acme/{called}/null\"\n  version = \"{version}\"\n}}\n\n"
        );
        said.push(format!("module.m{index}.said"));
    }
    let _ = write!(main, "output \"said\" {{\n  value = flatten([{}])\n}}\n", said.join(", "));
    write(&folder, &[("main.tf", &main)]);
    folder
}

/// `label` 1 and 2, `group` which calls the first, `stack` which calls `group`, `site` which calls the second, and `shelf`, whose
/// dependencies are in a bundle.
pub(super) fn publish(ocimod: &Ocimod, registry: &str) {
    let push = |name: &str, version: &str, calls: &[(&str, &str)], more: &[&str]| {
        let folder = module(ocimod, name, &format!("{name}{version}"), calls);
        ocimod.push(registry, &folder, &format!("acme/{name}/null@{version}"), more);
    };
    push("label", "1.0.0", &[], &[]);
    push("label", "2.0.0", &[], &[]);
    push("group", "1.0.0", &[("label", "~> 1.0")], &[]);
    push("stack", "1.0.0", &[("group", "~> 1.0"), ("label", "~> 1.0")], &[]);
    push("site", "1.0.0", &[("label", ">= 2.0")], &[]);
    push("shelf", "1.0.0", &[("group", "1.0.0")], &["--deps", "separate"]);
}

pub(super) fn copy(crane: &Path, home: &Path, from: &str, to: &str, what: &str) {
    let (from, to) = (format!("{from}/{what}"), format!("{to}/{what}"));
    run(isolated(crane, home).args(["copy", "--insecure", &from, &to])).success();
}

/// What a root module hears from the modules that it calls.
pub(super) fn hears(ocimod: &Ocimod, server: &str, tofu: &Path, test: &str, calls: &[(&str, &str)]) -> Value {
    let folder = ocimod.folder(&format!("root-{test}-{}", tofu.file_name().unwrap_or_default().display()));
    let mut main = String::new();
    for (name, version) in calls {
        let _ = write!(
            main,
            "module \"{name}\" {{\n  source  = \"modules.internal/acme/{name}/null\"\n  version = \"{version}\"\n}}\n\n"
        );
    }
    let said: Vec<_> = calls.iter().map(|(name, _)| format!("module.{name}.said")).collect();
    let _ = write!(main, "output \"it\" {{\n  value = [{}]\n}}\n", said.join(", "));
    Root::new(tofu, &folder, "modules.internal", server, &main).apply("it")
}

#[test]
fn a_tag_that_was_copied_alone_brings_everything_along() {
    let (Some(crane), Some(source), Some(target)) =
        (clients::find("crane"), DockerRegistry::start(), DockerRegistry::start())
    else {
        return;
    };
    let ocimod = Ocimod::new();
    let home = ocimod.home.path();
    publish(&ocimod, &source.address);

    // It is running when the first module comes, and finds it.
    let serve = ocimod.serve(["--registry", &target.address]);
    copy(&crane, home, &source.address, &target.address, "acme/stack/null:v1.0.0");
    let stack = json!([["stack1.0.0", "group1.0.0", "label1.0.0", "label1.0.0"]]);
    for tofu in clients::tofus() {
        assert_eq!(hears(&ocimod, &serve.address, &tofu, "stack", &[("stack", "~> 1.0")]), stack);
    }

    // A replica that has just started and is asked for the nested module first.
    let replica = ocimod.serve(["--registry", &target.address]);
    if let Some(tofu) = clients::tofus().first() {
        let calls = [("label", "1.0.0"), ("group", "1.0.0")];
        let label = hears(&ocimod, &replica.address, tofu, "replica", &calls);
        assert_eq!(label, json!([["label1.0.0"], ["group1.0.0", "label1.0.0"]]));
    }

    // Another module that needs another version of the same one, and one of which the bundle alone was copied.
    copy(&crane, home, &source.address, &target.address, "acme/site/null:v1.0.0");
    copy(&crane, home, &source.address, &target.address, "acme/shelf/null:bundle.v1.0.0");
    for tofu in clients::tofus() {
        let calls = [("stack", "~> 1.0"), ("site", "1.0.0"), ("shelf", "~> 1.0")];
        let heard = json!([
            ["stack1.0.0", "group1.0.0", "label1.0.0", "label1.0.0"],
            ["site1.0.0", "label2.0.0"],
            ["shelf1.0.0", "group1.0.0", "label1.0.0"],
        ]);
        assert_eq!(hears(&ocimod, &serve.address, &tofu, "all", &calls), heard);
        // And right after a restart.
        let again = ocimod.serve(["--registry", &target.address]);
        assert_eq!(hears(&ocimod, &again.address, &tofu, "restart", &calls), heard);
    }
}
