//! `cue` and ocimod with one `CUE_REGISTRY`, in every form: what the one puts into a registry the other finds there.

use std::path::Path;

use serde_json::json;

use ocimod::operations::access::TokenHash;

use crate::support::clients;
use crate::support::cue::{Cue, module};
use crate::support::docker_registry::DockerRegistry;
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, isolated, run};

/// What the modules of the tests are called: several dots, `@v0`, `@v2`.
const LEAF: &str = "sub.a.example.com/net/leaf.v2";
const TOP: &str = "a.example.com/app_x/top--y";

/// The settings under which they are published, by a name each.
fn settings(address: &str) -> Vec<(&'static str, String)> {
    let default = |name: &str, more: &str| {
        format!("inline:defaultRegistry: {{registry: \"{address}/{name}\", {more}}}")
    };
    vec![
        ("simple", format!("simple:a.example.com={address}/simple-a,{address}/simple")),
        ("path", default("path", "pathEncoding: \"path\"")),
        ("prefixed", default("prefixed", "prefixForTags: \"cue-\"")),
        ("hash-as-repo", default("hash-as-repo", "pathEncoding: \"hashAsRepo\"")),
        ("hash-as-tag", default("hash-as-tag", "pathEncoding: \"hashAsTag\"")),
        ("hash-prefixed", default("hash-prefixed", "pathEncoding: \"hashAsTag\", prefixForTags: \"mod_\"")),
        (
            "stripped",
            format!(
                "inline:moduleRegistries: {{\"a.example.com\": {{registry: \"{address}/stripped\", stripPrefix: true}}, \"sub.a.example.com\": \
                 {{registry: \"{address}/stripped/sub\", stripPrefix: true}}}}, defaultRegistry: registry: \"none\""
            ),
        ),
    ]
}

/// A module at `@v2`, and one at `@v0` that needs it.
fn folders(ocimod: &Ocimod) -> (std::path::PathBuf, std::path::PathBuf) {
    let (leaf, top) = (ocimod.folder("leaf"), ocimod.folder("top"));
    let path = format!("{LEAF}@v2");
    module(&leaf, &path, &[], &[("leaf.cue", "package leaf\n\nsays: \"leaf\"\n")]);
    let text = format!("package top\n\nimport \"{path}:leaf\"\n\nsays: [\"top\", leaf.says]\n");
    module(&top, &format!("{TOP}@v0"), &[(&path, "v2.0.1")], &[("top.cue", &text)]);
    (leaf, top)
}

#[track_caller]
fn say(ocimod: &Ocimod, registry: &str, arguments: &[&str]) -> Answer {
    let mut command = ocimod.command();
    run(command.args(arguments).env("OCIMOD_REGISTRY", registry))
}

#[test]
fn what_cue_publishes_under_any_encoding_is_found_and_what_we_push_is_found_by_cue() {
    let Some(registry) = DockerRegistry::start() else { return };
    for (name, setting) in settings(&registry.address) {
        let Some(cue) = Cue::new() else { return };
        let ocimod = Ocimod::new();
        let (leaf, top) = folders(&ocimod);
        cue.run(&setting, &leaf, &["mod", "publish", "v2.0.1"]).success();
        cue.run(&setting, &top, &["mod", "publish", "v0.3.0-rc.1"]).success();

        let versions = say(&ocimod, &setting, &["list", LEAF, "--format", "json"]).success().json();
        assert_eq!(versions["versions"][0]["version"], json!("2.0.1"), "{name}");
        assert_eq!(versions["versions"].as_array().unwrap().len(), 1, "{name}: {versions}");
        let address = format!("{TOP}@v0.3.0-rc.1");
        let inspected = say(&ocimod, &setting, &["inspect", &address, "--format", "json"]).success().json();
        assert_eq!(inspected["kind"], json!("cue"), "{name}");
        // It is where `cue` says that it is.
        let resolved = cue.run(&setting, &top, &["mod", "resolve", &address]).success();
        assert_eq!(inspected["reference"], json!(resolved.stdout.trim()), "{name}: {inspected}");
        let pulled = ocimod.home.path().join("pulled");
        say(&ocimod, &setting, &["pull", &address, "-o", "pulled"]).success();
        for file in ["top.cue", "cue.mod/module.cue"] {
            assert_eq!(std::fs::read(pulled.join(file)).unwrap(), std::fs::read(top.join(file)).unwrap());
        }
        say(&ocimod, &setting, &["check", "top"]).success();

        // Into the cache: the dependency is looked for as `cue` would.
        let mut command = ocimod.command();
        command.args(["pull", &address, "--into-cue-cache"]).env("OCIMOD_REGISTRY", &setting);
        run(command.env("CUE_CACHE_DIR", cue.cache())).success();
        let said = cue.run("none", &pulled, &["export", "-e", "says", "."]).success().json();
        assert_eq!(said, json!(["top", "leaf"]), "{name}");

        // Through the view of a server.
        let Some(reader) = Cue::new() else { return };
        let serve = ocimod.serve(["--registry", &setting, "--catalog", "none"]);
        let view = format!("{}/cue.mod", serve.address);
        let said = reader.run(&view, &top, &["export", "-e", "says", "."]).success().json();
        assert_eq!(said, json!(["top", "leaf"]), "{name}");

        // And what we push `cue` finds, once; what is yanked we list no more.
        std::fs::write(leaf.join("leaf.cue"), "package leaf\n\nsays: \"new leaf\"\n").unwrap();
        for created in [true, false] {
            let pushed = ocimod.push(&setting, &leaf, &format!("{LEAF}@v2.1.0"), &[]);
            assert_eq!(pushed["created"], json!(created), "{name}: {pushed}");
        }
        let Some(reader) = Cue::new() else { return };
        let user = ocimod.folder("user");
        module(
            &user,
            "a.example.com/user@v0",
            &[],
            &[("x.cue", &format!("package x\n\nimport \"{LEAF}@v2:leaf\"\n\nsays: leaf.says\n"))],
        );
        reader.run(&setting, &user, &["mod", "tidy"]).success();
        assert_eq!(
            reader.run(&setting, &user, &["export", "-e", "says", "."]).success().json(),
            json!("new leaf")
        );
        // A version does not change, whatever its tag looks like.
        std::fs::write(leaf.join("leaf.cue"), "package leaf\n\nsays: \"other leaf\"\n").unwrap();
        say(&ocimod, &setting, &["push", "leaf", &format!("{LEAF}@v2.1.0")]).fails_with(4);
        say(&ocimod, &setting, &["yank", &format!("{LEAF}@v2.1.0")]).success();
        let versions = say(&ocimod, &setting, &["list", LEAF, "--format", "json"]).success().json();
        let newest = &versions["versions"].as_array().unwrap()[1];
        assert_eq!((&newest["version"], &newest["yanked"]), (&json!("2.1.0"), &json!(true)), "{name}");
    }
}

#[test]
fn modules_are_copied_from_one_encoding_to_another() {
    let (Some(cue), Some(registry)) = (Cue::new(), DockerRegistry::start()) else { return };
    let ocimod = Ocimod::new();
    let (leaf, top) = folders(&ocimod);
    let settings = settings(&registry.address);
    cue.run(&settings[0].1, &leaf, &["mod", "publish", "v2.0.1"]).success();
    cue.run(&settings[0].1, &top, &["mod", "publish", "v0.3.0"]).success();
    let address = format!("{TOP}@0.3.0");
    let digest = |setting: &str| {
        let inspected = say(&ocimod, setting, &["inspect", &address, "--format", "json"]).success().json();
        inspected["digest"].clone()
    };
    let first = digest(&settings[0].1);
    for pair in settings.windows(2) {
        let [(_, from), (name, to)] = pair else { continue };
        let copy = ["copy", &address, "--with-dependencies", "--from", from, "--to", to];
        ocimod.run(copy).success();
        assert_eq!(digest(to), first, "{name}");
        let Some(reader) = Cue::new() else { return };
        let said = reader.run(to, &top, &["export", "-e", "says", "."]).success().json();
        assert_eq!(said, json!(["top", "leaf"]), "{name}");
    }
    // All of a registry that can be looked through goes where modules are called otherwise; what has its names in tags cannot be.
    let (prefixed, hashed) = (&settings[2].1, &settings[4].1);
    let store = format!("dir:{}", ocimod.folder("store").display());
    ocimod.run(["copy", "--all", "--from", prefixed, "--to", &store]).success();
    assert_eq!(digest(&store), first);
    let unlisted = ocimod.run(["copy", "--all", "--from", hashed, "--to", &store]);
    assert_ne!(unlisted.status, Some(0), "{unlisted:?}");
    assert!(unlisted.stderr.contains("no list"), "{}", unlisted.stderr);
    let listed = say(&ocimod, &settings[3].1, &["list", "--format", "json"]).success().json();
    let mut modules: Vec<_> = listed["modules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|module| module["module"].as_str().unwrap())
        .collect();
    modules.sort_unstable();
    assert_eq!(modules, [TOP, LEAF]);
}

#[test]
fn what_is_deleted_takes_nothing_of_others_in_the_same_repository_along() {
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let (leaf, other) = (folders(&ocimod).0, ocimod.folder("other"));
    let path = "b.example.com/other";
    module(&other, &format!("{path}@v2"), &[], &[("other.cue", "package other\n\nsays: \"other\"\n")]);
    for (name, setting) in settings(&registry.address).into_iter().filter(|(name, _)| name.contains("hash")) {
        // The marks of one version are the same bytes for both, and this registry deletes manifests alone.
        for (folder, module) in [(&leaf, LEAF), (&other, path)] {
            let address = format!("{module}@v2.0.1");
            ocimod.push(&setting, folder, &address, &[]);
            say(&ocimod, &setting, &["yank", &address]).success();
        }
        let deleted = say(&ocimod, &setting, &["delete", &format!("{path}@v2.0.1")]);
        let versions = |module: &str| {
            let listed = say(&ocimod, &setting, &["list", module, "--format", "json"]);
            (listed.status == Some(0)).then(|| listed.json()["versions"].clone())
        };
        let of_leaf = versions(LEAF).unwrap();
        let first = (&of_leaf[0]["version"], &of_leaf[0]["yanked"]);
        assert_eq!(first, (&json!("2.0.1"), &json!(true)), "{name}");
        if name == "hash-as-repo" {
            deleted.success();
            assert_eq!(versions(path), None, "{name}");
        } else {
            assert!(deleted.fails_with(4).stderr.contains("[manifest-shared]"), "{name}");
        }
    }
}

/// A server that knows one token, and a home in which `cue login` has kept it.
#[test]
fn a_login_of_cue_opens_its_own_registry_and_no_other() {
    let Some(cue) = clients::find("cue") else { return };
    let ocimod = Ocimod::new();
    let token = "appv1_a-token-of-the-tests";
    let hash = TokenHash::of(token).unwrap().to_hex();
    let access = ocimod.home.path().join("access.toml");
    std::fs::write(&access, format!("[[token]]\nname = 'a'\nsha256 = '{hash}'\nallow = ['read', 'push']\n"))
        .unwrap();
    let access = access.display().to_string();
    let serve = |name: &str| {
        let store = format!("dir:{}", ocimod.folder(name).display());
        ocimod.serve(["--registry", &store, "--access", &access])
    };
    let (own, other) = (serve("one"), serve("two"));
    let config = ocimod.home.path().join("cue-config");
    let say = |registry: &str, arguments: &[&str]| {
        run(ocimod.command().env("CUE_CONFIG_DIR", &config).args(["--registry", registry]).args(arguments))
    };
    let (leaf, _) = folders(&ocimod);
    let leaf = leaf.display().to_string();
    let address = format!("{LEAF}@v2.0.1");
    say(&own.address, &["push", &leaf, &address]).fails_with(5);

    let mut login = isolated(&cue, ocimod.home.path());
    login.env("CUE_CONFIG_DIR", &config).args(["login", "--token", token, &own.address]);
    run(&mut login).success();
    say(&own.address, &["push", &leaf, &address]).success();
    say(&own.address, &["list", LEAF]).success();
    // The same token would be good there: it is not shown.
    say(&other.address, &["push", &leaf, &address]).fails_with(5);
    // Another port is another registry, also where the name is the same.
    let text = std::fs::read_to_string(config.join("logins.json")).unwrap();
    let expired = text.replace("\"access_token\"", "\"expiry\": \"2001-01-01T00:00:00Z\",\n\"access_token\"");
    std::fs::write(config.join("logins.json"), expired).unwrap();
    let refused = say(&own.address, &["list", LEAF]);
    assert_ne!(refused.status, Some(0));
    let expected = [format!("the login of `cue` to `{}`", own.address), format!("cue login {}", own.address)];
    for part in expected {
        assert!(refused.stderr.contains(&part), "{}", refused.stderr);
    }
    assert!(!refused.all().contains(token), "{}", refused.all());
    // It concerns nobody else.
    let store = format!("dir:{}", Path::new(ocimod.home.path()).join("one").display());
    say(&store, &["list", LEAF]).success();
}
