//! `ocimod push` and the verbs around it, as users see them: text, JSON, exit statuses, and what is in the registry after.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::modules::{example, write};
use crate::support::ocimod::Ocimod;
use crate::support::process::run;

/// A home, and the setting of a store in it.
fn store() -> (Ocimod, String) {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    (ocimod, registry)
}

/// A module of one file.
fn module(ocimod: &Ocimod, folder: &str, main: &str) -> PathBuf {
    let folder = ocimod.folder(folder);
    write(&folder, &[("main.tf", main)]);
    folder
}

/// Every file below a folder with its content: what is in a store.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is ours").map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                files.push((entry.path(), fs::read(entry.path()).unwrap()));
            }
        }
    }
    files.sort();
    files
}

fn versions(ocimod: &Ocimod, registry: &str, address: &str) -> Vec<String> {
    let listed = ocimod.run(["list", "--registry", registry, "--format", "json", address]).success().json();
    let versions = listed["versions"].as_array().expect("list answers versions");
    versions.iter().map(|it| it["version"].as_str().expect("a version is text").to_owned()).collect()
}

#[test]
fn a_push_answers_one_line_or_one_object() {
    let (ocimod, registry) = store();
    let label = example("terraform-null-label");
    let pushed = ocimod.push(&registry, &label, "acme/label/null@1.0.0", &[]);
    let digest = pushed["digest"].as_str().expect("there is a digest").to_owned();
    assert_eq!(pushed["address"], json!("modules.internal/acme/label/null"));
    assert_eq!(pushed["version"], json!("1.0.0"));
    assert_eq!(pushed["reference"], json!(format!("{registry}/acme/label/null:v1.0.0")));
    assert_eq!(pushed["created"], json!(true));
    assert_eq!(pushed["dependencies"], json!([]));
    assert!(pushed["bytes_sent"].as_u64().is_some_and(|bytes| bytes > 0));

    let label = label.display().to_string();
    let again = ocimod.run(["push", "--registry", &registry, &label, "acme/label/null@v1.0.0"]).success();
    assert_eq!(again.stdout, format!("{registry}/acme/label/null@{digest}\n"));
}

#[test]
fn the_same_tree_again_changes_nothing() {
    let (ocimod, registry) = store();
    let label = example("terraform-null-label");
    let stack = example("terraform-null-stack");
    ocimod.push(&registry, &label, "acme/label/null@1.0.0", &[]);
    let first = ocimod.push(&registry, &stack, "acme/stack/null@1.0.0", &[]);
    let dependency = "modules.internal/acme/label/null@v1.0.0";
    assert_eq!(first["dependencies"][0]["module"], json!(dependency));

    // A newer version of what it calls came out, and the tree is a copy with other times and other modes of the umask.
    ocimod.push(&registry, &label, "acme/label/null@1.1.0", &[]);
    let copy = ocimod.folder("copy");
    for (path, bytes) in snapshot(&stack) {
        let target = copy.join(path.strip_prefix(&stack).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(&target, bytes).unwrap();
        #[cfg(unix)]
        fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    let before = snapshot(&ocimod.folder("store"));
    let second = ocimod.push(&registry, &copy, "acme/stack/null@1.0.0", &[]);
    assert_eq!(second["digest"], first["digest"]);
    assert_eq!((&second["created"], &second["bytes_sent"]), (&json!(false), &json!(0)));
    assert_eq!(second["dependencies"][0]["module"], json!(dependency));
    assert_eq!(snapshot(&ocimod.folder("store")), before);

    // A new version takes the newest.
    let third = ocimod.push(&registry, &copy, "acme/stack/null@1.0.1", &[]);
    assert_eq!(third["dependencies"][0]["module"], json!("modules.internal/acme/label/null@v1.1.0"));
}

#[test]
fn the_same_tree_gives_the_same_digest_in_another_registry() {
    let (ocimod, registry) = store();
    let other = format!("dir:{}", ocimod.folder("other").display());
    let label = example("terraform-null-label");
    let zip = ocimod.home.path().join("label.zip");
    let first = ocimod.push(&registry, &label, "acme/label/null@1.0.0", &["--host", "modules.acme.example"]);
    let mut pack = ocimod.command();
    pack.args(["pack", "--registry", &registry, "--host", "modules.acme.example", "-o"]).arg(&zip);
    run(pack.arg(&label).arg("acme/label/null@1.0.0")).success();
    let copy = ocimod.folder("terraform-null-label");
    run(ocimod
        .command()
        .arg("pull")
        .args(["--registry", &registry, "acme/label/null", "-o"])
        .arg(copy.join("x")))
    .success();
    let from_zip = ocimod.push(&other, &zip, "acme/label/null@1.0.0", &["--host", "modules.acme.example"]);
    let layer = |pushed: &Value, registry: &str| {
        let inspected =
            ocimod.run(["inspect", "--registry", registry, "--format", "json", "acme/label/null"]);
        let digest = inspected.success().json()["manifest"]["layers"][0]["digest"].clone();
        assert_ne!(digest, pushed["digest"]);
        digest
    };
    assert_eq!(layer(&first, &registry), layer(&from_zip, &other));
}

#[test]
fn changed_content_under_the_same_version_is_refused_and_changes_nothing() {
    let (ocimod, registry) = store();
    let folder = module(&ocimod, "terraform-null-a", "output \"a\" {\n  value = 1\n}\n");
    ocimod.push(&registry, &folder, "acme/a/null@1.0.0", &[]);
    write(&folder, &[("main.tf", "output \"a\" {\n  value = 2\n}\n")]);
    let before = snapshot(&ocimod.folder("store"));
    let text = folder.display().to_string();
    for version in ["1.0.0", "v1.0.0"] {
        let address = format!("acme/a/null@{version}");
        let refused =
            ocimod.run(["push", "--format", "json", "--registry", &registry, &text, &address]).fails_with(4);
        assert_eq!(refused.json()["error"]["kind"], json!("immutable"));
        assert!(refused.stderr.contains("`main.tf` differs"), "{}", refused.stderr);
    }
    assert_eq!(snapshot(&ocimod.folder("store")), before);
    assert_eq!(versions(&ocimod, &registry, "acme/a/null"), ["1.0.0"]);
}

#[test]
fn address_and_version_are_found_where_they_are_not_said() {
    let (ocimod, registry) = store();
    let folder = module(&ocimod, "terraform-aws-vpc", "output \"a\" {\n  value = 1\n}\n");
    let text = folder.display().to_string();

    let missing = ocimod.run(["push", "--registry", &registry, &text]).fails_with(2);
    assert!(missing.stderr.contains("NAMESPACE/vpc/aws@1.0.0"), "{}", missing.stderr);
    let missing = ocimod.run(["push", "--registry", &registry, "--namespace", "acme", &text]).fails_with(2);
    assert!(missing.stderr.contains("modules.internal/acme/vpc/aws@1.0.0"), "{}", missing.stderr);

    let git = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.current_dir(&folder).env("GIT_CONFIG_GLOBAL", "/dev/null").args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.com",
        ]);
        command.args(arguments).output().is_ok_and(|output| output.status.success())
    };
    // Where git is not installed there is nothing to find.
    if !git(&["init", "-q"]) {
        return;
    }
    assert!(git(&["add", "."]) && git(&["commit", "-q", "-m", "first"]) && git(&["tag", "v1.4.0"]));
    let pushed = ocimod
        .run(["push", "--format", "json", "--registry", &registry, "--namespace", "acme", &text])
        .success();
    assert_eq!(pushed.json()["version"], json!("1.4.0"));
    assert_eq!(pushed.json()["address"], json!("modules.internal/acme/vpc/aws"));
    let inspected =
        ocimod.run(["inspect", "--registry", &registry, "--format", "json", "acme/vpc/aws"]).success().json();
    let annotations = &inspected["manifest"]["annotations"];
    assert_eq!(annotations["org.opencontainers.image.version"], json!("1.4.0"));
    assert_eq!(annotations["org.opencontainers.image.revision"].as_str().map(str::len), Some(40));
}

#[test]
fn a_dry_run_sends_nothing_and_lists_the_files() {
    let (ocimod, registry) = store();
    let label = example("terraform-null-label").display().to_string();
    let dry = ocimod.run(["push", "-n", "--registry", &registry, "--namespace", "acme", &label]).success();
    assert!(dry.stdout.lines().any(|line| line == "modules/suffix/main.tf"), "{}", dry.stdout);
    let dry = ocimod.run([
        "push",
        "-n",
        "--format",
        "json",
        "--registry",
        &registry,
        &label,
        "acme/label/null@1.0.0",
    ]);
    let dry = dry.success().json();
    assert!(dry["files"].as_array().is_some_and(|files| files.contains(&json!("cue.mod/module.cue"))));
    let pushed = ocimod.push(&registry, Path::new(&label), "acme/label/null@1.0.0", &[]);
    assert_eq!(dry["digest"], pushed["digest"]);
    ocimod.run(["list", "--registry", &registry, "acme/other/null"]).fails_with(3);
}

#[test]
fn the_three_forms_of_dependencies_are_written_and_not_mixed() {
    let (ocimod, registry) = store();
    ocimod.push(&registry, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    let stack = example("terraform-null-stack");
    let inspect = |address: &str| {
        ocimod.run(["inspect", "--registry", &registry, "--format", "json", address]).success().json()
    };
    for (form, layers, dependencies) in [("inline", 3, 1), ("separate", 2, 1), ("none", 2, 0)] {
        let address = format!("{form}/stack/null@1.0.0");
        ocimod.push(&registry, &stack, &address, &["--deps", form]);
        let inspected = inspect(&address);
        assert_eq!(inspected["manifest"]["layers"].as_array().map(Vec::len), Some(layers), "{form}");
        assert_eq!(inspected["dependencies"].as_array().map(Vec::len), Some(dependencies), "{form}");
        // The same again is fine, another form is not.
        ocimod.push(&registry, &stack, &address, &["--deps", form]);
        ocimod.push(&registry, &stack, &address, &[]);
        let other = if form == "inline" { "none" } else { "inline" };
        let stack = stack.display().to_string();
        let refused =
            ocimod.run(["push", "--registry", &registry, "--deps", other, &stack, &address]).fails_with(4);
        assert!(refused.stderr.contains(&format!("--deps {form}")), "{}", refused.stderr);
    }
}

#[test]
fn a_repository_holds_one_module() {
    let (ocimod, registry) = store();
    let folder = module(&ocimod, "a", "output \"a\" {\n  value = 1\n}\n");
    // The placeholder host gives way to a real one, which then stays.
    ocimod.push(&registry, &folder, "acme/a/null@1.0.0", &[]);
    ocimod.push(&registry, &folder, "acme/a/null@1.1.0", &["--host", "modules.acme.example"]);
    let text = folder.display().to_string();
    for host in ["modules.other.example", "modules.internal"] {
        let refused = ocimod
            .run(["push", "--registry", &registry, "--host", host, &text, "acme/a/null@1.2.0"])
            .fails_with(4);
        assert!(refused.stderr.contains("modules.acme.example/acme/a/null"), "{}", refused.stderr);
    }
}

#[test]
fn what_is_wrong_is_found_by_check_and_refused_by_push() {
    let (ocimod, registry) = store();
    let folder = module(
        &ocimod,
        "bad",
        "module \"out\" {\n  source = \"../elsewhere\"\n}\n\nmodule \"missing\" {\n  source  = \"modules.internal/acme/missing/null\"\n  version = \
         \"~> 1.0\"\n}\n",
    );
    let text = folder.display().to_string();
    let found =
        ocimod.run(["check", "--format", "json", "--registry", &registry, &text]).fails_with(4).json();
    let findings = found["findings"].as_array().expect("there are findings").clone();
    let rule = |rule: &str| {
        findings.iter().find(|finding| finding["rule"] == json!(rule)).cloned().unwrap_or_default()
    };
    assert_eq!(rule("source-leaves-module")["file"], json!("main.tf"));
    assert_eq!(rule("source-leaves-module")["line"], json!(2), "{findings:?}");
    assert_eq!(rule("dependency-missing")["line"], json!(5), "{findings:?}");
    ocimod.run(["push", "--registry", &registry, &text, "acme/bad/null@1.0.0"]).fails_with(4);
    ocimod.run(["check", &example("terraform-null-label").display().to_string()]).success();
    ocimod.run(["check", &ocimod.folder("empty").display().to_string()]).fails_with(4);
    ocimod.run(["check", "no-such-folder"]).fails_with(1);
}

#[test]
fn what_cannot_be_embedded_is_a_warning_or_with_strict_a_refusal() {
    let (ocimod, registry) = store();
    let folder =
        module(&ocimod, "far", "module \"far\" {\n  source = \"git::https://example.com/far.git\"\n}\n");
    let text = folder.display().to_string();
    let refused =
        ocimod.run(["push", "--strict", "--registry", &registry, &text, "acme/far/null@1.0.0"]).fails_with(4);
    assert!(refused.stderr.contains("main.tf:1"), "{}", refused.stderr);
    let warned = ocimod.run(["push", "--registry", &registry, &text, "acme/far/null@1.0.0"]).success();
    assert!(warned.stderr.contains("main.tf:1"), "{}", warned.stderr);
}

#[test]
fn three_levels_and_two_versions_of_one_module_are_embedded() {
    let (ocimod, registry) = store();
    let call = |name: &str, constraint: &str| {
        format!(
            "module \"{name}\" {{\n  source  = \"modules.internal/acme/{name}/null\"\n  version = \"{constraint}\"\n}}\n"
        )
    };
    let leaf = module(&ocimod, "leaf", "output \"a\" {\n  value = 1\n}\n");
    ocimod.push(&registry, &leaf, "acme/leaf/null@1.0.0", &[]);
    let middle = module(&ocimod, "middle", &call("leaf", "1.0.0"));
    ocimod.push(&registry, &middle, "acme/middle/null@1.0.0", &[]);
    ocimod.push(&registry, &leaf, "acme/leaf/null@2.0.0", &[]);
    let top = module(&ocimod, "top", &format!("{}\n{}", call("middle", "~> 1.0"), call("leaf", ">= 2")));
    let pushed = ocimod.push(&registry, &top, "acme/top/null@1.0.0", &[]);
    let embedded: Vec<_> = pushed["dependencies"]
        .as_array()
        .expect("there are dependencies")
        .iter()
        .map(|it| it["module"].as_str().unwrap_or_default().replace("modules.internal/acme/", ""))
        .collect();
    assert_eq!(embedded, ["leaf/null@v1.0.0", "leaf/null@v2.0.0", "middle/null@v1.0.0"]);

    // A circle ends where it began: the leaf may call the middle that calls it.
    write(&leaf, &[("circle.tf", &call("middle", "~> 1.0"))]);
    ocimod.push(&registry, &leaf, "acme/leaf/null@1.1.0", &[]);
}

#[test]
fn a_pull_gives_the_files_back_and_never_mixes_them_with_others() {
    let (ocimod, registry) = store();
    let label = example("terraform-null-label");
    ocimod.push(&registry, &label, "acme/label/null@1.0.0", &[]);
    ocimod.push(&registry, &label, "acme/label/null@1.1.0-rc.1", &[]);
    let pulled = ocimod
        .run(["pull", "--registry", &registry, "--format", "json", "acme/label/null@~> 1.0"])
        .success()
        .json();
    assert_eq!((&pulled["version"], &pulled["folder"]), (&json!("1.0.0"), &json!("label")));
    for (path, bytes) in snapshot(&label) {
        let name = path.strip_prefix(&label).unwrap();
        assert_eq!(
            fs::read(ocimod.home.path().join("label").join(name)).unwrap(),
            bytes,
            "{}",
            name.display()
        );
    }
    ocimod.run(["pull", "--registry", &registry, "acme/label/null"]).fails_with(4);
    ocimod.run(["pull", "--registry", &registry, "acme/label/null@2.0.0"]).fails_with(3);
    ocimod.run(["pull", "--registry", &registry, "acme/nothing/null"]).fails_with(3);
    let wrong = ocimod.run(["pull", "--registry", &registry, "acme/label/null@"]).fails_with(2);
    assert!(wrong.stderr.contains("'acme/label/null@>= 1.0'"), "{}", wrong.stderr);
    let exact = ocimod.run([
        "pull",
        "--registry",
        &registry,
        "acme/label/null",
        "--version",
        "1.1.0-rc.1",
        "-o",
        "rc",
    ]);
    exact.success();
}

#[test]
fn listings_are_sorted_and_complete() {
    let (ocimod, registry) = store();
    let folder = module(&ocimod, "a", "output \"a\" {\n  value = 1\n}\n");
    for version in ["1.10.0", "1.2.0", "1.2.0-rc.1", "1.2.0+build.1"] {
        ocimod.push(&registry, &folder, &format!("acme/a/null@{version}"), &[]);
    }
    ocimod.push(&registry, &example("cue-label"), "acme.example/label@v1.0.0", &[]);
    assert_eq!(
        versions(&ocimod, &registry, "acme/a/null"),
        ["1.2.0-rc.1", "1.2.0", "1.2.0+build.1", "1.10.0"]
    );
    assert_eq!(versions(&ocimod, &registry, "ACME/A/null").len(), 4);
    let modules = ocimod.run(["ls", "--registry", &registry, "--format", "json"]).success().json();
    let names: Vec<_> =
        modules["modules"].as_array().expect("modules").iter().map(|it| it["module"].clone()).collect();
    assert_eq!(
        names,
        [json!("acme.example/label@v1"), json!("modules.internal/acme/a/null")]
            .map(|name| { json!(name.as_str().unwrap_or_default().replace("@v1", "")) })
    );
}

#[test]
fn without_a_registry_the_users_own_folder_is_used_and_named() {
    let ocimod = Ocimod::new();
    let label = example("terraform-null-label").display().to_string();
    let pushed = ocimod.run(["push", &label, "acme/label/null@1.0.0"]).success();
    assert!(pushed.stderr.contains("no registry is set"), "{}", pushed.stderr);
    let missing = ocimod.run(["inspect", "acme/nothing/null"]).fails_with(3);
    assert!(missing.stderr.contains("no registry is set"), "{}", missing.stderr);
    let refused =
        run(ocimod.command().env("CI", "true").args(["push", &label, "acme/label/null@1.1.0"])).fails_with(2);
    assert!(refused.stderr.contains("--registry"), "{}", refused.stderr);
    run(ocimod.command().env("CI", "true").args(["push", "-n", &label, "acme/label/null@1.1.0"])).success();
}

#[test]
fn config_show_tells_where_a_module_would_be() {
    let ocimod = Ocimod::new();
    let shown = ocimod
        .run(["config", "show", "--registry", "example.com=a.example/cue,b.example/m", "acme/vpc/aws"])
        .success();
    assert_eq!(
        shown.stdout,
        "registry    b.example\nrepository  m/acme/vpc/aws\ntag         vX.Y.Z\nregistry    b.example\nrepository  \
         m/modules.internal/acme/vpc/aws\ntag         vX.Y.Z\nrule        b.example/m\n"
    );
    let shown = ocimod
        .run(["config", "show", "--registry", "example.com=a.example/cue", "example.com/net/vpc@v1"])
        .success();
    assert_eq!(
        shown.stdout,
        "registry    a.example\nrepository  cue/example.com/net/vpc\ntag         vX.Y.Z\nrule        example.com=a.example/cue\n"
    );
    ocimod.run(["config", "show", "--registry", "example.com=a.example/cue", "acme/vpc/aws"]).fails_with(2);
}
