//! `ocimod copy` as its users see it, between a folder, our own server and other people's registries.

use std::fs;

use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::{example, write};
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, run};

use super::*;

fn copy_json(ocimod: &Ocimod, arguments: &[&str]) -> Value {
    let fixed = ["copy", "--format", "json"];
    ocimod.run(fixed.iter().copied().chain(arguments.iter().copied())).success().json()
}

fn module(ocimod: &Ocimod, name: &str, text: &str) -> PathBuf {
    let folder = ocimod.folder(name);
    write(&folder, &[("main.tf", &format!("output \"it\" {{\n  value = \"{text}\"\n}}\n"))]);
    folder
}

/// A store with two versions of a leaf, one of them yanked, and a tree that embeds it in each form.
fn filled(ocimod: &Ocimod) -> String {
    let store = format!("dir:{}", shown(&ocimod.folder("source")));
    for version in ["1.0.0", "1.1.0"] {
        let folder = module(ocimod, &format!("leaf-{version}"), version);
        ocimod.push(&store, &folder, &format!("acme/leaf/null@{version}"), &[]);
    }
    let tree = ocimod.folder("tree");
    write(
        &tree,
        &[(
            "main.tf",
            "module \"it\" {\n  source  = \"modules.internal/acme/leaf/null\"\n  version = \"~> 1.0\"\n}\n",
        )],
    );
    for (name, form) in [("one", "inline"), ("two", "separate")] {
        ocimod.push(&store, &tree, &format!("acme/{name}/null@1.0.0"), &["--deps", form]);
    }
    ocimod
        .run(["yank", "acme/leaf/null@1.0.0", "--reason", "leaks keys", "--registry", store.as_str()])
        .success();
    store
}

/// Every tag and what it names, as `list --digests` and the tags of marks do not tell it: by the registry itself.
fn tags_in(registry: &str) -> BTreeMap<String, Digest> {
    use ocimod::operations::connect::Connection;
    use ocimod::registry::DirectoryOptions;
    use ocimod::registry::credentials::CredentialSource;
    use ocimod::registry::remote::Proxies;
    let connection = Connection {
        credentials: CredentialSource::none(),
        proxies: Ok(Proxies::default()),
        plain_http: false,
        ca_file: None,
        identity: None,
        folder: "/".into(),
        makes_stores: false,
        store: DirectoryOptions::default(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let routes =
            connection.routes(&registry.parse().unwrap(), RepositoryTemplate::default()).await.unwrap();
        let target = routes.targets().next().unwrap();
        let mut found = tags(&target.registry).await;
        // Where a registry has no list of referrers, there is a tag for it.
        found.retain(|name, _| !name.contains(":sha256-"));
        expect_whole(&target.registry).await;
        let below = |name: String| match target.prefix.as_str() {
            "" => Some(name),
            prefix => name.strip_prefix(prefix)?.strip_prefix('/').map(str::to_owned),
        };
        found.into_iter().filter_map(|(name, digest)| Some((below(name)?, digest))).collect()
    })
}

#[test]
fn everything_is_copied_between_all_kinds_of_registries() {
    let ocimod = Ocimod::new();
    let store = filled(&ocimod);
    let expected = tags_in(&store);
    assert_eq!(expected.len(), 6, "{expected:?}");
    let ours = Ocimod::new();
    let serve = ours.serve(["--registry", &format!("dir:{}", shown(&ours.folder("store")))]);
    let file = shown(&ocimod.home.path().join("x.tar"));
    let mut registries = vec![
        format!("dir:{}", shown(&ocimod.folder("other"))),
        serve.address.clone(),
        format!("layout:{file}"),
    ];
    let others: Vec<_> =
        [DockerRegistry::start(), DockerRegistry::start_v3()].into_iter().flatten().collect();
    registries.extend(others.iter().map(|registry| format!("{}/below/it", registry.address)));
    // From each to the next, so that each is read and written.
    let mut from = store;
    for to in &registries {
        let answer = copy_json(&ocimod, &["--all", "--referrers", "--from", &from, "--to", to]);
        assert_eq!(answer["copied"].as_array().unwrap().len(), 4, "{to}: {answer:#}");
        assert_eq!((&answer["failed"], &answer["dry_run"]), (&json!([]), &json!(false)), "{to}");
        assert!(answer["bytes_sent"].as_u64().unwrap() > 1000);
        assert_eq!(tags_in(to), expected, "{to}");
        let again = copy_json(&ocimod, &["--all", "--referrers", "--from", &from, "--to", to]);
        assert_eq!((&again["copied"], &again["bytes_sent"]), (&json!([]), &json!(0)), "{to}");
        assert_eq!(again["skipped"].as_array().unwrap().len(), 4, "{to}");
        from.clone_from(to);
    }
    // And back to where nothing is.
    let last = format!("dir:{}", shown(&ocimod.folder("last")));
    let answer = copy_json(&ocimod, &["--all", "--from", &from, "--to", &last]);
    assert_eq!(answer["copied"].as_array().unwrap().len(), 4, "{answer:#}");
    assert_eq!(tags_in(&last), expected);
    let listed = ocimod.run(["list", "acme/leaf/null", "--registry", last.as_str()]).success().stdout;
    assert!(listed.contains("1.0.0") && listed.contains("yanked: leaks keys"), "{listed}");
}

#[test]
fn the_answer_has_the_fields_that_are_documented() {
    let ocimod = Ocimod::new();
    let store = filled(&ocimod);
    let to = format!("dir:{}", shown(&ocimod.folder("to")));
    let answer = copy_json(&ocimod, &["acme/leaf/null@1.0.0", "--from", &store, "--to", &to]);
    let digest = tags_in(&store)["acme/leaf/null:v1.0.0"].to_string();
    assert_eq!(
        answer["copied"],
        json!([{
            "address": "acme/leaf/null", "version": "1.0.0", "digest": digest,
            "from": format!("{store}/acme/leaf/null"), "to": format!("{to}/acme/leaf/null"),
            "tags": ["v1.0.0", "yanked.v1.0.0"], "referrers": 0, "bytes_sent": answer["bytes_sent"],
        }])
    );
    assert_eq!(answer["files"], json!([]));
    let text =
        ocimod.run(["copy", "acme/leaf/null", "--from", store.as_str(), "--to", to.as_str()]).success();
    assert_eq!(text.stdout, format!("{to}/acme/leaf/null:v1.1.0\n"));
    assert!(text.stderr.contains("1 versions copied, 1 there already"), "{}", text.stderr);

    // Other content in the place of a version.
    let other = Ocimod::new();
    let elsewhere = format!("dir:{}", shown(&other.folder("store")));
    other.push(&elsewhere, &module(&other, "leaf", "other"), "acme/leaf/null@1.0.0", &[]);
    let theirs = tags_in(&elsewhere)["acme/leaf/null:v1.0.0"].to_string();
    let refused = ocimod
        .run([
            "copy",
            "acme/leaf/null",
            "--from",
            elsewhere.as_str(),
            "--to",
            to.as_str(),
            "--format",
            "json",
        ])
        .fails_with(4);
    let answer = refused.json();
    assert_eq!(answer["failed"][0]["kind"], "immutable");
    let message = answer["failed"][0]["message"].as_str().unwrap();
    assert!(message.contains(&theirs) && message.contains(&digest), "{message}");
    assert_eq!(answer["error"]["kind"], "immutable");
    assert!(refused.stderr.contains(&theirs), "{}", refused.stderr);
}

#[test]
fn what_is_not_given_is_the_registry_of_every_verb() {
    let ocimod = Ocimod::new();
    let store = filled(&ocimod);
    let file = format!("layout:{}", shown(&ocimod.home.path().join("x.tar")));
    copy_json(&ocimod, &["acme/leaf/null", "--registry", &store, "--to", &file]);
    let to = format!("dir:{}", shown(&ocimod.folder("to")));
    copy_json(&ocimod, &["--all", "--registry", &to, "--from", &file]);
    assert_eq!(tags_in(&to).len(), 3);
    // A path counts from the working folder.
    let answer = run(ocimod.command().args([
        "copy",
        "--all",
        "--from",
        &file,
        "--to",
        "layout:y.tar",
        "--format",
        "json",
    ]));
    assert_eq!(answer.success().json()["files"][0]["name"], "layout:y.tar");
    assert!(ocimod.home.path().join("y.tar").is_file());
}

#[test]
fn wrong_usage_is_told_before_anything_is_done() {
    let ocimod = Ocimod::new();
    let store = filled(&ocimod);
    let to = format!("dir:{}", shown(&ocimod.home.path().join("nowhere")));
    let refused = |arguments: &[&str], status: i32| -> Answer {
        ocimod.run(std::iter::once("copy").chain(arguments.iter().copied())).fails_with(status)
    };
    for (arguments, word) in [
        (&["acme/leaf/null"][..], "neither `--from` nor `--to`"),
        (&["--from", &store, "--to", &to], "nothing to copy"),
        (&["acme/leaf/null", "--all", "--from", &store, "--to", &to], "cannot go with it"),
        (&["acme/leaf/null", "--from", &store, "--to", &store], "to itself"),
        (
            &["acme/leaf/null@1.0.0", "--version", "1.0.0", "--from", &store, "--to", &to],
            "both say which version",
        ),
        (
            &[
                "oci://127.0.0.1:1/a@sha256:0000000000000000000000000000000000000000000000000000000000000000",
                "--to",
                &to,
            ],
            "names no tag",
        ),
        (&["acme/leaf/null@", "--from", &store, "--to", &to], "quote"),
        (&["acme/leaf/null", "--platform", "linux", "--from", &store, "--to", &to], "is not a platform"),
        (&["acme/leaf/null", "--from", "layout:", "--to", &to], "needs a path"),
        (&["--all", "--from", "a.example+insecure", "--to", "a.example/below"], "plain http and for https"),
    ] {
        let answer = refused(arguments, 2);
        assert!(answer.stderr.contains(word), "{arguments:?}: {}", answer.stderr);
    }
    let absent = refused(&["--all", "--from", "layout:absent.tar", "--to", &to], 3);
    assert!(absent.stderr.contains("there is no file"), "{}", absent.stderr);
    refused(&["acme/nothing/null", "--from", &store, "--to", &to], 3);
    let mut command = ocimod.command();
    let on_ci = run(command.env("CI", "true").args(["copy", "--all", "--from", &store]));
    assert!(on_ci.fails_with(2).stderr.contains("on a CI system"));
    // A dry run makes no store, and says what would come.
    let to = format!("dir:{}", shown(&ocimod.home.path().join("dry")));
    let dry = ocimod.run(["copy", "--all", "-n", "--from", store.as_str(), "--to", to.as_str()]).success();
    assert_eq!(dry.stdout.lines().count(), 4);
    assert!(dry.stderr.contains("to send"), "{}", dry.stderr);
    let file = ocimod.home.path().join("dry.tar");
    let dry = ocimod.run([
        "copy",
        "--all",
        "-n",
        "--from",
        store.as_str(),
        "--to",
        &format!("layout:{}", shown(&file)),
    ]);
    assert_eq!(dry.success().stdout.lines().count(), 4);
    assert!(!ocimod.home.path().join("dry").exists() && !file.exists());
    assert!(!ocimod.home.path().join("dry.tar.part").exists());
}

#[test]
fn a_file_is_read_by_every_verb_and_written_by_none_but_copy() {
    let ocimod = Ocimod::new();
    let store = filled(&ocimod);
    let path = ocimod.home.path().join("x.tar");
    let file = format!("layout:{}", shown(&path));
    copy_json(&ocimod, &["--all", "--from", &store, "--to", &file]);
    let bytes = fs::read(&path).unwrap();
    let json_of = |arguments: &[&str], registry: &str| {
        let fixed = ["--registry", registry, "--format", "json"];
        ocimod.run(arguments.iter().copied().chain(fixed)).success().json()
    };
    for arguments in [&["list"][..], &["list", "acme/leaf/null", "--digests"], &["inspect", "acme/two/null"]]
    {
        let rename = |answer: Value| answer.to_string().replace(&store, &file);
        assert_eq!(rename(json_of(arguments, &store)), rename(json_of(arguments, &file)), "{arguments:?}");
    }
    let into = shown(&ocimod.home.path().join("into"));
    json_of(&["pull", "acme/one/null", "-o", &into], &file);
    assert!(ocimod.home.path().join("into/main.tf").is_file());
    let verified = ocimod.run(["store", "verify", shown(&path).as_str()]).success();
    assert!(verified.stderr.contains("no damage"), "{}", verified.stderr);
    for arguments in [
        &["push", "tree", "acme/three/null@1.0.0"][..],
        &["yank", "acme/leaf/null@1.1.0"],
        &["unyank", "acme/leaf/null@1.0.0"],
        &["delete", "acme/leaf/null@1.1.0"],
        &["serve", "--push", "acme/three/null=tree@1.0.0"],
    ] {
        let refused =
            ocimod.run(arguments.iter().copied().chain(["--registry", file.as_str()])).fails_with(2);
        assert!(refused.stderr.contains("ocimod copy ADDRESS --to"), "{arguments:?}: {}", refused.stderr);
    }
    ocimod.run(["store", "gc", shown(&path).as_str()]).fails_with(2);
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn a_version_that_is_named_outright_is_copied_by_its_tag() {
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let from = format!("{}/modules", registry.address);
    ocimod.push(&from, &module(&ocimod, "leaf", "it"), "acme/leaf/null@1.0.0", &[]);
    let to = format!("dir:{}", shown(&ocimod.folder("to")));
    let address = format!("oci://{from}/acme/leaf/null:v1.0.0");
    let answer = copy_json(&ocimod, &[&address, "--to", &to]);
    assert_eq!(answer["copied"][0]["to"], format!("{to}/modules/acme/leaf/null"));
    // Below the prefix of the registry that it is in, where that is said.
    let to = format!("dir:{}", shown(&ocimod.folder("to-too")));
    let answer = copy_json(&ocimod, &[&address, "--from", &from, "--to", &to]);
    assert_eq!(answer["copied"][0]["to"], format!("{to}/acme/leaf/null"));
    let missing = format!("oci://{from}/acme/leaf/null:latest");
    let refused = ocimod.run(["copy", missing.as_str(), "--to", to.as_str()]).fails_with(2);
    assert!(refused.stderr.contains("is not the tag of a version"), "{}", refused.stderr);
}

#[test]
fn several_registries_by_prefix_take_each_what_is_theirs() {
    let ocimod = Ocimod::new();
    let store = filled(&ocimod);
    ocimod.push(&store, &example("cue-label"), "acme.example/label@1.0.0", &[]);
    let (modules, cue) = (shown(&ocimod.folder("modules")), shown(&ocimod.folder("cue")));
    let to = format!("acme.example=dir:{cue},dir:{modules}");
    let answer = copy_json(&ocimod, &["--all", "--from", &store, "--to", &to]);
    assert_eq!(answer["failed"], json!([]), "{answer:#}");
    assert_eq!(tags_in(&format!("dir:{cue}")).into_keys().collect::<Vec<_>>(), ["acme.example/label:v1.0.0"]);
    assert_eq!(tags_in(&format!("dir:{modules}")).len(), 6);
    // Where no registry is for it, that is told, and the rest goes its way.
    let to = format!("acme.example=dir:{}", shown(&ocimod.folder("cue-alone")));
    let refused = ocimod.run(["copy", "--all", "--from", store.as_str(), "--to", to.as_str()]).fails_with(2);
    assert!(refused.stderr.contains("no registry is set"), "{}", refused.stderr);
    assert!(refused.stdout.contains("acme.example/label:v1.0.0"), "{}", refused.stdout);
}

#[test]
fn a_copy_that_is_killed_is_finished_by_the_next_which_sends_what_is_missing_and_nothing_else() {
    let (Some(source), Some(target)) = (DockerRegistry::start(), DockerRegistry::start()) else { return };
    let ocimod = Ocimod::new();
    let folder = module(&ocimod, "leaf", "it");
    for number in 0..40 {
        ocimod.push(&source.address, &folder, &format!("acme/leaf/null@1.{number}.0"), &[]);
    }
    let arguments = ["copy", "acme/leaf/null", "--from", &source.address, "--to", &target.address];
    let missing = || {
        let dry = ocimod.run(arguments.iter().copied().chain(["-n", "--format", "json"])).success().json();
        (dry["bytes_sent"].as_u64().unwrap(), dry["copied"].as_array().unwrap().len())
    };
    let (all, versions) = missing();
    assert_eq!(versions, 40);
    let mut killed = ocimod.command().args(arguments).stdout(std::process::Stdio::null()).spawn().unwrap();
    while missing().1 > 30 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Where it has ended already, there is nothing left to do.
    let _ = killed.kill();
    killed.wait().unwrap();
    let (rest, versions) = missing();
    assert!(rest < all && versions <= 30, "{rest} of {all}");
    let again = copy_json(&ocimod, &arguments[1..]);
    // The registry may still have finished what it was asked for last.
    assert!(
        again["bytes_sent"].as_u64().unwrap() <= rest
            && again["copied"].as_array().unwrap().len() <= versions
    );
    assert_eq!(missing(), (0, 0));
    assert_eq!(tags_in(&target.address), tags_in(&source.address));
}
