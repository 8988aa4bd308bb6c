//! Today's `cue` reads what its users' own copies brought along, and publishes, through the view of `ocimod serve`.

use std::iter;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::clients;
use crate::support::cue::{Cue, module};
use crate::support::docker_registry::DockerRegistry;
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{isolated, run};

/// A module of the tests: its name, its version, and the others that it needs, those of its dependencies included, as `cue mod tidy`
/// would have them. It says its version, and what those say that it imports itself.
struct Module {
    name: &'static str,
    version: &'static str,
    imports: &'static [&'static str],
    deps: &'static [(&'static str, &'static str)],
}

/// `top` is three levels above `leaf`; `side` needs a later `leaf`.
const MODULES: [Module; 5] = [
    Module { name: "leaf", version: "1.0.0", imports: &[], deps: &[] },
    Module { name: "leaf", version: "1.1.0", imports: &[], deps: &[] },
    Module { name: "mid", version: "1.0.0", imports: &["leaf"], deps: &[("leaf", "1.0.0")] },
    Module { name: "top", version: "1.0.0", imports: &["mid"], deps: &[("leaf", "1.0.0"), ("mid", "1.0.0")] },
    Module { name: "side", version: "1.0.0", imports: &["leaf"], deps: &[("leaf", "1.1.0")] },
];

pub(super) fn path_of(name: &str) -> String {
    format!("acme.example/net/{name}@v1")
}

/// A file that imports these modules and says what they say, and a word of its own.
pub(super) fn says(package: &str, word: &str, imports: &[&str]) -> String {
    let lines: Vec<_> = imports.iter().map(|name| format!("import \"{}\"", path_of(name))).collect();
    let said: Vec<_> =
        iter::once(format!("\"{word}\"")).chain(imports.iter().map(|name| format!("{name}.says"))).collect();
    format!("package {package}\n\n{}\n\nsays: [{}]\n", lines.join("\n"), said.join(", "))
}

/// Writes all of them: the folder, the path without its major version, and the version.
pub(super) fn written(ocimod: &Ocimod) -> Vec<(PathBuf, String, &'static str)> {
    let write = |Module { name, version, imports, deps }: &Module| {
        let folder = ocimod.folder(&format!("{name}-{version}"));
        let deps: Vec<_> =
            deps.iter().map(|(name, version)| (path_of(name), format!("v{version}"))).collect();
        let deps: Vec<_> = deps.iter().map(|(path, version)| (path.as_str(), version.as_str())).collect();
        let text = says(name, &format!("{name}{version}"), imports);
        module(&folder, &path_of(name), &deps, &[("a.cue", &text)]);
        (folder, format!("acme.example/net/{name}"), *version)
    };
    MODULES.iter().map(write).collect()
}

/// Pushes all of them.
pub(super) fn publish(ocimod: &Ocimod, registry: &str, more: &[&str]) {
    for (folder, path, version) in written(ocimod) {
        ocimod.push(registry, &folder, &format!("{path}@v{version}"), more);
    }
}

pub(super) fn copy(crane: &Path, ocimod: &Ocimod, from: &str, to: &str, what: &str) {
    let (from, to) = (format!("{from}/{what}"), format!("{to}/{what}"));
    run(isolated(crane, ocimod.home.path()).args(["copy", "--insecure", &from, &to])).success();
}

/// The view of a server.
fn view(serve: &Serve) -> String {
    format!("{}/cue.mod", serve.address)
}

/// What `cue` says of the main module in a folder.
#[track_caller]
pub(super) fn said(cue: &Cue, registry: &str, folder: &Path) -> Value {
    cue.run(registry, folder, &["export", "-e", "says", "."]).success().json()
}

#[test]
fn a_tag_that_was_copied_alone_is_enough_for_cue() {
    let (Some(cue), Some(crane), Some(source), Some(target)) =
        (Cue::new(), clients::find("crane"), DockerRegistry::start(), DockerRegistry::start())
    else {
        return;
    };
    let ocimod = Ocimod::new();
    publish(&ocimod, &source.address, &[]);
    copy(&crane, &ocimod, &source.address, &target.address, "acme.example/net/top:v1.0.0");
    let serve = ocimod.serve(["--registry", &target.address]);
    let registry = view(&serve);

    // A module that says nothing of what it needs: `cue` finds it all by itself.
    let user = ocimod.folder("user");
    module(&user, "user.example/main@v0", &[], &[("main.cue", &says("main", "user", &["top"]))]);
    cue.run(&registry, &user, &["mod", "tidy"]).success();
    cue.run(&registry, &user, &["mod", "tidy", "--check"]).success();
    let module_file = std::fs::read_to_string(user.join("cue.mod/module.cue")).unwrap();
    for name in ["top", "mid", "leaf"] {
        assert!(module_file.contains(&path_of(name)), "{module_file}");
    }
    let top = json!(["user", ["top1.0.0", ["mid1.0.0", ["leaf1.0.0"]]]]);
    assert_eq!(said(&cue, &registry, &user), top);
    cue.run(&registry, &user, &["eval", "."]).success();
    cue.run(&registry, &user, &["vet", "."]).success();
    let resolved = cue.run(&registry, &user, &["mod", "resolve", "acme.example/net/mid@v1.0.0"]).success();
    assert_eq!(resolved.stdout.trim(), format!("{registry}/acme.example/net/mid:v1.0.0"));

    // Each of them is a module of its own there: also the one that is inside others alone.
    let other = ocimod.folder("other");
    module(&other, "user.example/other@v0", &[], &[("main.cue", &says("main", "other", &["leaf"]))]);
    cue.run(&registry, &other, &["mod", "get", "acme.example/net/leaf@v1"]).success();
    assert_eq!(said(&cue, &registry, &other), json!(["other", ["leaf1.0.0"]]));
    let absent = cue.run(&registry, &other, &["mod", "get", "acme.example/net/leaf@v1.1.0"]).fails_with(1);
    assert!(absent.stderr.contains("not found"), "{}", absent.stderr);

    // A second module, which needs a later version of a third: both together, at a server that is running and at a new one.
    copy(&crane, &ocimod, &source.address, &target.address, "acme.example/net/side:v1.0.0");
    let both = ocimod.folder("both");
    module(&both, "user.example/both@v0", &[], &[("main.cue", &says("main", "both", &["top", "side"]))]);
    let heard = json!(["both", ["top1.0.0", ["mid1.0.0", ["leaf1.1.0"]]], ["side1.0.0", ["leaf1.1.0"]]]);
    cue.run(&registry, &both, &["mod", "tidy"]).success();
    assert_eq!(said(&cue, &registry, &both), heard);
    let replica = ocimod.serve(["--registry", &target.address]);
    let fresh = Cue::new().unwrap();
    assert_eq!(said(&fresh, &view(&replica), &both), heard);
    fresh.run(&view(&replica), &both, &["mod", "tidy", "--check"]).success();
}

#[test]
fn every_form_of_dependencies_is_read_through_the_view() {
    let Some(registry) = DockerRegistry::start() else { return };
    for form in ["inline", "separate", "none"] {
        let Some(cue) = Cue::new() else { return };
        let ocimod = Ocimod::new();
        let prefixed = format!("{}/{form}", registry.address);
        publish(&ocimod, &prefixed, &["--deps", form]);
        let serve = ocimod.serve(["--registry", &prefixed]);
        let user = ocimod.folder("user");
        let text = says("main", "user", &["top", "side"]);
        module(&user, "user.example/main@v0", &[], &[("main.cue", &text)]);
        cue.run(&view(&serve), &user, &["mod", "tidy"]).success();
        let heard = json!(["user", ["top1.0.0", ["mid1.0.0", ["leaf1.1.0"]]], ["side1.0.0", ["leaf1.1.0"]]]);
        assert_eq!(said(&cue, &view(&serve), &user), heard, "{form}");
    }
}

#[test]
fn what_cue_publishes_into_the_view_is_the_module_itself() {
    let (Some(cue), Some(crane)) = (Cue::new(), clients::find("crane")) else { return };
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let serve = ocimod.serve(["--registry", &store]);
    let registry = view(&serve);
    for Module { name, version, imports, deps } in &MODULES {
        let folder = ocimod.folder(&format!("{name}-{version}"));
        let deps: Vec<_> =
            deps.iter().map(|(name, version)| (path_of(name), format!("v{version}"))).collect();
        let deps: Vec<_> = deps.iter().map(|(path, version)| (path.as_str(), version.as_str())).collect();
        let text = says(name, &format!("{name}{version}"), imports);
        module(&folder, &path_of(name), &deps, &[("a.cue", &text)]);
        cue.run(&registry, &folder, &["mod", "publish", &format!("v{version}")]).success();
    }
    let inspect = ["inspect", "--registry", &store, "--format", "json", "cue:acme.example/net/top@v1.0.0"];
    let inspected = ocimod.run(inspect).success().json();
    let digest_at = |reference: &str| {
        let answer = run(isolated(&crane, ocimod.home.path()).args(["digest", "--insecure", reference]));
        answer.success().stdout.trim().to_owned()
    };
    let stored = digest_at(&format!("{}/acme.example/net/top:v1.0.0", serve.address));
    assert_eq!(json!(stored), inspected["digest"]);
    assert_eq!(digest_at(&format!("{registry}/acme.example/net/top:v1.0.0")), stored);
    let user = ocimod.folder("user");
    let text = says("main", "user", &["top"]);
    module(&user, "user.example/main@v0", &[], &[("main.cue", &text)]);
    cue.run(&registry, &user, &["mod", "tidy"]).success();
    assert_eq!(said(&cue, &registry, &user), json!(["user", ["top1.0.0", ["mid1.0.0", ["leaf1.0.0"]]]]));
    // The same once more is no error; something else is refused.
    let leaf = ocimod.folder("leaf-1.0.0");
    cue.run(&registry, &leaf, &["mod", "publish", "v1.0.0"]).success();
    std::fs::write(leaf.join("a.cue"), "package leaf\n\nsays: [\"other\"]\n").unwrap();
    let other = cue.run(&registry, &leaf, &["mod", "publish", "v1.0.0"]).fails_with(1);
    assert!(other.stderr.contains("does not change"), "{}", other.stderr);
}

#[test]
fn modules_are_mirrored_to_another_registry_and_back() {
    let (Some(cue), Some(other)) = (Cue::new(), DockerRegistry::start()) else { return };
    let (ocimod, again) = (Ocimod::new(), Ocimod::new());
    let store = format!("dir:{}", ocimod.folder("store").display());
    publish(&ocimod, &store, &[]);
    let serve = ocimod.serve(["--registry", &store]);
    let empty = format!("dir:{}", again.folder("store").display());
    let back = again.serve(["--registry", &empty]);
    let (ours, theirs, ours_again) = (view(&serve), other.address.clone(), view(&back));
    let here = ocimod.folder("nowhere");
    for (from, to) in
        [(&ours, &theirs), (&theirs, &ours_again), (&ours_again, &ours_again), (&ours_again, &ours)]
    {
        let modules = ["acme.example/net/top@v1.0.0", "acme.example/net/side@v1.0.0"];
        let arguments = [&["mod", "mirror", "--from", from, "--to", to][..], &modules].concat();
        cue.run(from, &here, &arguments).success();
    }
    let user = ocimod.folder("user");
    let text = says("main", "user", &["top", "side"]);
    module(&user, "user.example/main@v0", &[], &[("main.cue", &text)]);
    let heard = json!(["user", ["top1.0.0", ["mid1.0.0", ["leaf1.1.0"]]], ["side1.0.0", ["leaf1.1.0"]]]);
    for registry in [&ours, &theirs, &ours_again] {
        let cue = Cue::new().unwrap();
        cue.run(registry, &user, &["mod", "tidy"]).success();
        assert_eq!(said(&cue, registry, &user), heard, "{registry}");
    }
    // With their own repositories: nothing but what was copied.
    let listed = again.run(["list", "--registry", &empty, "--format", "json"]).success().json();
    assert_eq!(listed["modules"].as_array().unwrap().len(), 4, "{listed}");
}

#[test]
fn who_may_not_publish_into_the_view_is_told_why() {
    let (Some(cue), Some(registry)) = (Cue::new(), DockerRegistry::start()) else { return };
    let ocimod = Ocimod::new();
    let folder = ocimod.folder("leaf");
    module(&folder, &path_of("leaf"), &[], &[("a.cue", &says("leaf", "leaf", &[]))]);
    // Over a registry elsewhere the view is for reading.
    let serve = ocimod.serve(["--registry", &registry.address]);
    let refused = cue.run(&view(&serve), &folder, &["mod", "publish", "v1.0.0"]).fails_with(1);
    assert!(refused.stderr.contains("405"), "{}", refused.stderr);
    assert!(refused.stderr.contains("not supported here"), "{}", refused.stderr);
    let listed = ocimod.run(["list", "--registry", &registry.address, "acme.example/net/leaf"]);
    listed.fails_with(3);
    // Over the embedded one it takes the right to push.
    let hash = ocimod::operations::access::TokenHash::of("a-token-to-read").unwrap().to_hex();
    let access = ocimod.home.path().join("access.toml");
    std::fs::write(&access, format!("[[token]]\nname = 'reader'\nsha256 = '{hash}'\nallow = ['read']\n"))
        .unwrap();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let serve = ocimod.serve(["--registry", &store, "--access", &access.display().to_string()]);
    let auths =
        json!({ "auths": { &serve.address: { "username": "reader", "password": "a-token-to-read" } } });
    let mut command = cue.command(&view(&serve), &folder);
    let refused =
        run(command.env("DOCKER_AUTH_CONFIG", auths.to_string()).args(["mod", "publish", "v1.0.0"]));
    assert!(refused.fails_with(1).stderr.contains("403"));
}
