//! Providers by `provider:ADDRESS` in the verbs of modules, and versions of them that are withdrawn.

use super::*;

/// A verb of modules with JSON as its answer.
#[track_caller]
fn verb(ocimod: &Ocimod, registry: &str, words: &[&str]) -> Value {
    let common = [words[0], "--registry", registry, "--format", "json"];
    ocimod.run(common.into_iter().chain(words[1..].iter().copied())).success().json()
}

fn filled(ocimod: &Ocimod, registry: &str) {
    let folder = ocimod.folder("zips");
    for version in ["0.13.0", "0.14.2", "0.15.0-rc.1"] {
        let zip = package(&folder, "time", version, "linux_amd64", "");
        provider(ocimod, registry, &["push", &format!("hashicorp/time@{version}"), text(&zip)]);
    }
}

/// The versions of a list, each with whether it is yanked.
fn versions(answer: &Value) -> Vec<(&str, bool)> {
    let versions = answer["versions"].as_array().expect("there are versions");
    versions.iter().map(|it| (it["version"].as_str().unwrap(), it["yanked"].as_bool().unwrap())).collect()
}

fn withdraw(registry: &str, from_others: bool) {
    let ocimod = Ocimod::new();
    filled(&ocimod, registry);
    let named = format!("provider:{TIME}");
    let at = |version: &str| format!("{named}@{version}");
    let yanked = verb(&ocimod, registry, &["yank", &at("0.14.2"), "--reason", "wrong clock"]);
    assert_eq!(
        (&yanked["address"], &yanked["version"], &yanked["changed"]),
        (&json!(named), &json!("0.14.2"), &json!(true))
    );
    let mark = yanked["reference"].as_str().unwrap();
    assert!(mark.ends_with(&format!("{REPOSITORY}:yanked.0.14.2")), "{mark}");
    assert_eq!(verb(&ocimod, registry, &["yank", &at("0.14.2")])["changed"], json!(false));

    for listed in
        [verb(&ocimod, registry, &["list", &named]), provider(&ocimod, registry, &["list", "hashicorp/time"])]
    {
        assert_eq!(versions(&listed), [("0.13.0", false), ("0.14.2", true), ("0.15.0-rc.1", false)]);
        assert_eq!(listed["versions"][1]["reason"], json!("wrong clock"));
    }
    let all = provider(&ocimod, registry, &["list"]);
    assert_eq!(
        (&all["providers"][0]["version"], &all["providers"][0]["yanked"]),
        (&json!("0.13.0"), &json!(false))
    );
    // What chooses passes it over; who names it exactly gets it.
    for address in [named.clone(), at("~> 0.13"), at("latest")] {
        let inspected = verb(&ocimod, registry, &["inspect", &address]);
        assert_eq!(
            (&inspected["version"], &inspected["yanked"], &inspected["kind"]),
            (&json!("0.13.0"), &json!(false), &json!("provider")),
            "{address}"
        );
    }
    let inspected = verb(&ocimod, registry, &["inspect", &at("0.14.2")]);
    assert_eq!((&inspected["yanked"], &inspected["reason"]), (&json!(true), &json!("wrong clock")));
    let (kind, message) = refused(&ocimod, registry, 3, &["pull", "hashicorp/time@>= 0.14, < 0.15"]);
    assert_eq!(kind, "not-found");
    assert!(message.contains("0.14.2"), "{message}");
    let pulled = provider(&ocimod, registry, &["pull", "hashicorp/time@0.14.2", "-o", "exactly"]);
    assert_eq!(pulled["version"], json!("0.14.2"));

    let back = verb(&ocimod, registry, &["unyank", &at("0.14.2")]);
    assert_eq!((&back["yanked"], &back["changed"]), (&json!(false), &json!(true)));
    assert_eq!(verb(&ocimod, registry, &["unyank", &at("0.14.2")])["changed"], json!(false));
    assert_eq!(verb(&ocimod, registry, &["inspect", &named])["version"], json!("0.14.2"));
    if from_others {
        return;
    }
    let text = ocimod.run(["list", named.as_str(), "--digests", "--registry", registry]).success().stdout;
    let digest = inspected["digest"].as_str().unwrap();
    assert!(text.contains(&format!("0.14.2  {digest}  linux_amd64\n")), "{text}");
}

#[test]
fn a_version_of_a_provider_is_withdrawn_and_comes_back() {
    let (_ocimod, registry) = store();
    withdraw(&registry, false);
}

#[test]
fn the_same_in_a_registry_of_others() {
    for registry in [DockerRegistry::start(), DockerRegistry::start_v3()].into_iter().flatten() {
        withdraw(&format!("{}/some/prefix+insecure", registry.address), true);
    }
}

#[test]
fn what_is_not_there_is_withdrawn_by_force_alone() {
    let (ocimod, registry) = store();
    filled(&ocimod, &registry);
    let run = |words: &[&str]| {
        ocimod.run(words.iter().copied().chain(["--registry", registry.as_str(), "--format", "json"]))
    };
    let missing = format!("provider:{TIME}@0.16.0");
    let refused = run(&["yank", &missing]).fails_with(3);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(refused.json()["error"]["kind"], json!("not-found"));
    run(&["unyank", &missing]).fails_with(3);
    run(&["yank", "provider:example.com/nobody/nothing@1.0.0"]).fails_with(3);
    run(&["yank", &format!("provider:{TIME}")]).fails_with(2);
    run(&["yank", &missing, "--force", "-n"]).success();
    assert_eq!(run(&["unyank", &missing]).fails_with(3).json()["error"]["kind"], json!("not-found"));
    run(&["yank", &missing, "--force"]).success();
    // When it comes, it is withdrawn.
    let zip = package(&ocimod.folder("later"), "time", "0.16.0", "linux_amd64", "");
    provider(&ocimod, &registry, &["push", "hashicorp/time@0.16.0", text(&zip)]);
    let inspected = provider(&ocimod, &registry, &["inspect", "hashicorp/time"]);
    assert_eq!(inspected["version"], json!("0.14.2"));
}

#[test]
fn a_provider_of_a_registry_is_copied_with_its_yanks_by_its_address() {
    let (ocimod, registry) = store();
    filled(&ocimod, &registry);
    let named = format!("provider:{TIME}");
    verb(&ocimod, &registry, &["yank", &format!("{named}@0.14.2")]);
    let file = format!("layout:{}", ocimod.home.path().join("x.tar").display());
    let answer =
        ocimod.run(["copy", &named, "--from", &registry, "--to", &file, "--format", "json"]).success().json();
    assert_eq!(answer["copied"].as_array().unwrap().len(), 3, "{answer:#}");
    for words in [&["list", &named][..], &["inspect", &named], &["inspect", &format!("{named}@0.14.2")]] {
        let rename = |answer: Value| answer.to_string().replace(&registry, &file);
        let (ours, theirs) = (verb(&ocimod, &registry, words), verb(&ocimod, &file, words));
        assert_eq!(rename(ours), rename(theirs), "{words:?}");
    }
}

#[test]
fn a_mirror_that_is_exported_lists_what_is_not_yanked() {
    let (ocimod, registry) = store();
    filled(&ocimod, &registry);
    let site = ocimod.home.path().join("site");
    let file = site.join("registry.opentofu.org/hashicorp/time/index.json");
    let listed = || -> Vec<String> {
        provider(&ocimod, &registry, &["export", text(&site)]);
        let index: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        index["versions"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(listed(), ["0.13.0", "0.14.2", "0.15.0-rc.1"]);
    verb(&ocimod, &registry, &["yank", &format!("provider:{TIME}@0.14.2")]);
    assert_eq!(listed(), ["0.13.0", "0.15.0-rc.1"]);
    for version in ["0.13.0", "0.15.0-rc.1"] {
        verb(&ocimod, &registry, &["yank", &format!("provider:{TIME}@{version}")]);
    }
    assert_eq!(listed(), Vec::<String>::new());
}

#[test]
fn verbs_of_modules_say_what_to_do_with_a_provider() {
    let (ocimod, registry) = store();
    ocimod.folder("store");
    let other = format!("dir:{}", ocimod.folder("other").display());
    let address = "provider:hashicorp/time";
    let copied = ocimod.run(["copy", "--from", &registry, "--to", &other, address]).fails_with(3);
    assert!(
        copied.stderr.contains(&format!("provider `{TIME}` is not in the registry")),
        "{}",
        copied.stderr
    );
    assert!(!copied.stderr.contains("module"), "{}", copied.stderr);
    let pulled = ocimod.run(["pull", "--registry", &registry, address]).fails_with(2);
    assert!(pulled.stderr.contains(&format!("`ocimod provider pull {TIME}`")), "{}", pulled.stderr);
    let exact = "provider:hashicorp/time@1.0.0";
    let deleted = ocimod.run(["delete", "--registry", &registry, exact]).fails_with(2);
    assert!(deleted.stderr.contains(&format!("`ocimod yank {exact}`")), "{}", deleted.stderr);
}
