//! Modules that `cue` published: listed, inspected, copied with what they need, and brought into the form that has it inside.

use std::path::Path;

use serde_json::{Value, json};

use super::cue_view::{path_of, said, says, written};
use crate::support::clients;
use crate::support::cue::{Cue, module};
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::write;
use crate::support::ocimod::Ocimod;
use crate::support::process::{isolated, run};

/// What `crane` finds in a registry.
struct Crane<'a> {
    program: std::path::PathBuf,
    home: &'a Path,
}

impl<'a> Crane<'a> {
    fn new(ocimod: &'a Ocimod) -> Option<Self> {
        Some(Self { program: clients::find("crane")?, home: ocimod.home.path() })
    }

    #[track_caller]
    fn say(&self, arguments: &[&str]) -> String {
        let answer = run(isolated(&self.program, self.home).args(["--insecure"]).args(arguments));
        answer.success().stdout.trim().to_owned()
    }

    #[track_caller]
    fn manifest(&self, reference: &str) -> Value {
        serde_json::from_str(&self.say(&["manifest", reference])).expect("a manifest is JSON")
    }

    /// Every repository and its tags, sorted.
    #[track_caller]
    fn tags(&self, registry: &str) -> Vec<String> {
        let repositories = self.say(&["catalog", registry]);
        let tags = |name: &str| {
            let listed = self.say(&["ls", &format!("{registry}/{name}")]);
            listed.lines().map(|tag| format!("{name}:{tag}")).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = repositories.lines().flat_map(tags).collect();
        all.sort();
        all
    }
}

/// Publishes every module of the tests by `cue` itself.
fn publish_by_cue(cue: &Cue, ocimod: &Ocimod, registry: &str) {
    for (folder, _, version) in written(ocimod) {
        cue.run(registry, &folder, &["mod", "publish", &format!("v{version}")]).success();
    }
}

/// What `cue` says of a module that uses `top`, with this registry alone.
#[track_caller]
fn said_by_a_user(ocimod: &Ocimod, registry: &str) -> Value {
    let cue = Cue::new().expect("it was there before");
    let user = ocimod.folder("user");
    let deps = ["leaf", "mid", "top"].map(path_of);
    let deps: Vec<_> = deps.iter().map(|path| (path.as_str(), "v1.0.0")).collect();
    module(&user, "user.example/main@v0", &deps, &[("main.cue", &says("main", "user", &["top"]))]);
    said(&cue, registry, &user)
}

fn heard() -> Value {
    json!(["user", ["top1.0.0", ["mid1.0.0", ["leaf1.0.0"]]]])
}

#[test]
fn what_cue_published_is_listed_inspected_and_copied_with_what_it_needs() {
    let ocimod = Ocimod::new();
    let Some(crane) = Crane::new(&ocimod) else { return };
    for (source, target) in [
        (DockerRegistry::start(), DockerRegistry::start_v3()),
        (DockerRegistry::start_v3(), DockerRegistry::start()),
    ] {
        let (Some(cue), Some(source), Some(target)) = (Cue::new(), source, target) else { return };
        let (from, to) = (source.address.as_str(), target.address.as_str());
        publish_by_cue(&cue, &ocimod, from);

        let listed = ocimod.run(["list", "--registry", from, "--format", "json"]).success().json();
        let listed: Vec<_> = listed["modules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| json!([it["module"], it["kind"], it["version"], it["versions"]]))
            .collect();
        let module = |name: &str, version: &str, count: usize| {
            json!([format!("acme.example/net/{name}"), "cue", version, count])
        };
        let expected = [
            module("leaf", "1.1.0", 2),
            module("mid", "1.0.0", 1),
            module("side", "1.0.0", 1),
            module("top", "1.0.0", 1),
        ];
        assert_eq!(json!(listed), json!(expected));
        let versions = ocimod.run(["list", "--registry", from, "acme.example/net/leaf"]).success();
        assert!(
            ["1.0.0", "1.1.0"].iter().all(|version| versions.stdout.contains(version)),
            "{}",
            versions.stdout
        );

        let reference = format!("{from}/acme.example/net/top:v1.0.0");
        let inspect = ["inspect", "--registry", from, "--format", "json", "acme.example/net/top@v1.0.0"];
        let inspected = ocimod.run(inspect).success().json();
        assert_eq!(inspected["manifest"], crane.manifest(&reference));
        assert_eq!(inspected["digest"], json!(crane.say(&["digest", &reference])));
        let file = std::fs::read_to_string(ocimod.home.path().join("top-1.0.0/cue.mod/module.cue")).unwrap();
        assert_eq!((&inspected["module_file"], &inspected["kind"]), (&json!(file), &json!("cue")));
        assert_eq!((&inspected["module"], &inspected["dependencies"]), (&json!(path_of("top")), &json!([])));

        // What it needs comes along, to repositories of their own; and nothing else.
        let copy = |what: &str| {
            ocimod.run(["copy", what, "--with-dependencies", "--from", from, "--to", to]).success();
        };
        copy("acme.example/net/top");
        let three = ["leaf", "mid", "top"].map(|name| format!("acme.example/net/{name}:v1.0.0"));
        assert_eq!(crane.tags(to), three);
        for name in &three {
            let digest = |registry: &str| crane.say(&["digest", &format!("{registry}/{name}")]);
            assert_eq!(digest(from), digest(to), "{name}");
        }
        assert_eq!(said_by_a_user(&ocimod, to), heard());
        // A later version of one of them, which another module needs.
        copy("acme.example/net/side@1.0.0");
        let mut all = three.to_vec();
        all.extend(["leaf:v1.1.0", "side:v1.0.0"].map(|name| format!("acme.example/net/{name}")));
        all.sort();
        assert_eq!(crane.tags(to), all);
    }
}

#[test]
fn what_cue_published_becomes_self_contained_and_what_it_was_again() {
    let ocimod = Ocimod::new();
    let (Some(crane), Some(cue), Some(source), Some(closed), Some(back)) = (
        Crane::new(&ocimod),
        Cue::new(),
        DockerRegistry::start(),
        DockerRegistry::start_v3(),
        DockerRegistry::start(),
    ) else {
        return;
    };
    publish_by_cue(&cue, &ocimod, &source.address);
    let name = "acme.example/net/top:v1.0.0";
    let copy = |from: &DockerRegistry, to: &DockerRegistry, form: &str| {
        let copy =
            ["copy", "acme.example/net/top", "--deps", form, "--from", &from.address, "--to", &to.address];
        ocimod.run(copy).success();
        assert_eq!(crane.tags(&to.address), [name]);
    };
    copy(&source, &closed, "inline");
    let zip = |what: &str| {
        let manifest = crane.manifest(&format!("{}/acme.example/net/{what}:v1.0.0", source.address));
        manifest["layers"][0]["digest"].clone()
    };
    let inside = crane.manifest(&format!("{}/{name}", closed.address));
    let layers: Vec<_> = inside["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|layer| json!([layer["digest"], layer["annotations"]["works.cue.module"], layer["mediaType"]]))
        .collect();
    let file = &crane.manifest(&format!("{}/{name}", source.address))["layers"][1]["digest"];
    assert_eq!(
        json!(layers),
        json!([
            [zip("top"), null, "application/zip"],
            [file, null, "application/vnd.cue.modulefile.v1"],
            [zip("leaf"), "acme.example/net/leaf@v1.0.0", "application/zip"],
            [zip("mid"), "acme.example/net/mid@v1.0.0", "application/zip"],
        ])
    );
    // That one tag is all that `cue` needs, through the view.
    let serve = ocimod.serve(["--registry", &closed.address]);
    assert_eq!(said_by_a_user(&ocimod, &format!("{}/cue.mod", serve.address)), heard());

    copy(&closed, &back, "none");
    let digest = |registry: &DockerRegistry| crane.say(&["digest", &format!("{}/{name}", registry.address)]);
    assert_eq!(digest(&back), digest(&source));
}

#[test]
fn what_only_tests_need_is_marked_however_it_is_embedded() {
    let ocimod = Ocimod::new();
    let (Some(crane), Some(cue), Some(source), Some(copied), Some(pushed)) = (
        Crane::new(&ocimod),
        Cue::new(),
        DockerRegistry::start(),
        DockerRegistry::start(),
        DockerRegistry::start(),
    ) else {
        return;
    };
    let (tool, used, main) = (ocimod.folder("tool"), ocimod.folder("used"), ocimod.folder("main"));
    module(&tool, "acme.example/tool@v0", &[], &[("a.cue", "package tool\n\nx: 1\n")]);
    module(&used, "acme.example/used@v0", &[], &[("a.cue", "package used\n\nx: 1\n")]);
    let deps = [("acme.example/tool@v0", "v0.1.0"), ("acme.example/used@v0", "v0.1.0")];
    module(
        &main,
        "acme.example/main@v1",
        &deps,
        &[("a.cue", "package main\n\nimport \"acme.example/used\"\n\nx: used.x\n")],
    );
    write(&main, &[("a_tool.cue", "package main\n\nimport \"acme.example/tool\"\n\ny: tool.x\n")]);
    for (folder, version) in [(&tool, "v0.1.0"), (&used, "v0.1.0"), (&main, "v1.0.0")] {
        cue.run(&source.address, folder, &["mod", "publish", version]).success();
    }
    for (folder, address) in [(&tool, "tool@v0.1.0"), (&used, "used@v0.1.0"), (&main, "main@v1.0.0")] {
        ocimod.push(&pushed.address, folder, &format!("acme.example/{address}"), &[]);
    }
    let copy =
        ["copy", "acme.example/main", "--deps", "inline", "--from", &source.address, "--to", &copied.address];
    ocimod.run(copy).success();
    for registry in [&copied, &pushed] {
        let manifest = crane.manifest(&format!("{}/acme.example/main:v1.0.0", registry.address));
        let layers = manifest["layers"].as_array().unwrap().iter().skip(2);
        let marks: Vec<_> = layers
            .map(|layer| {
                let annotations = &layer["annotations"];
                json!([annotations["works.cue.module"], annotations["works.cue.mainonly"]])
            })
            .collect();
        let expected = json!([["acme.example/tool@v0.1.0", "true"], ["acme.example/used@v0.1.0", null]]);
        assert_eq!(json!(marks), expected);
    }
}

#[test]
fn a_push_into_a_repository_of_cue_keeps_it_readable_for_cue() {
    let ocimod = Ocimod::new();
    let Some(crane) = Crane::new(&ocimod) else { return };
    for registry in [DockerRegistry::start(), DockerRegistry::start_v3()] {
        let (Some(cue), Some(registry)) = (Cue::new(), registry) else { return };
        publish_by_cue(&cue, &ocimod, &registry.address);
        let folder = ocimod.folder("top-1.0.0");
        write(&folder, &[("a.cue", &says("top", "top1.1.0", &["mid"]))]);
        ocimod.push(&registry.address, &folder, "acme.example/net/top@v1.1.0", &[]);
        let count = |tag: &str| {
            let manifest = crane.manifest(&format!("{}/acme.example/net/top:{tag}", registry.address));
            manifest["layers"].as_array().map(Vec::len)
        };
        assert_eq!((count("v1.1.0"), count("bundle.v1.1.0")), (Some(2), Some(4)));
        let user = ocimod.folder(&format!("user-{}", registry.address.replace(':', "-")));
        module(&user, "user.example/main@v0", &[], &[("main.cue", &says("main", "user", &["top"]))]);
        cue.run(&registry.address, &user, &["mod", "tidy"]).success();
        assert_eq!(
            said(&cue, &registry.address, &user),
            json!(["user", ["top1.1.0", ["mid1.0.0", ["leaf1.0.0"]]]])
        );
        // Where nobody's `cue` reads the repository it is one manifest with everything.
        let other = format!("{}/ours", registry.address);
        for name in ["leaf", "mid", "top"] {
            let folder = ocimod.folder(&format!("{name}-1.0.0"));
            ocimod.push(&other, &folder, &format!("acme.example/net/{name}@v1.0.0"), &[]);
        }
        let manifest = crane.manifest(&format!("{other}/acme.example/net/top:v1.0.0"));
        assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(4));
    }
}
