//! `pull --lock` and `check --lock`: the digest of every module that is used, written once and compared ever after.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::cue::module;
use crate::support::modules::{example, write};
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, run};

const APP: &str = "acme.example/app";

/// The folder of a module of the tests; `needs` is one that it imports.
fn folder(ocimod: &Ocimod, name: &str, word: &str, needs: Option<&str>) -> PathBuf {
    let folder = ocimod.folder(&format!("{name}-{word}"));
    let (imports, said) = match needs {
        Some(needs) => {
            (format!("import \"acme.example/{needs}@v1\"\n\n"), format!("\"{word}\", {needs}.says"))
        }
        None => (String::new(), format!("\"{word}\"")),
    };
    let path = needs.map(|needs| format!("acme.example/{needs}@v1"));
    let deps: Vec<_> = path.iter().map(|path| (path.as_str(), "v1.0.0")).collect();
    let text = format!("package {name}\n\n{imports}says: [{said}]\n");
    module(&folder, &format!("acme.example/{name}@v1"), &deps, &[("a.cue", &text)]);
    folder
}

/// A registry with `app`, which needs `lib`; `word` is what that says.
fn registry(ocimod: &Ocimod, name: &str, word: &str, more: &[&str]) -> String {
    let registry = format!("dir:{}", ocimod.folder(name).display());
    ocimod.push(&registry, &folder(ocimod, "lib", word, None), "acme.example/lib@v1.0.0", &[]);
    ocimod.push(&registry, &folder(ocimod, "app", "app", Some("lib")), &format!("{APP}@v1.0.0"), more);
    registry
}

#[track_caller]
fn pull(ocimod: &Ocimod, registry: &str, address: &str, output: &str, more: &[&str]) -> Answer {
    let mut command = ocimod.command();
    command.args([
        "pull",
        "--registry",
        registry,
        address,
        "-o",
        output,
        "--lock",
        "x.lock",
        "--format",
        "json",
    ]);
    run(command.args(more))
}

fn text(ocimod: &Ocimod) -> String {
    std::fs::read_to_string(ocimod.home.path().join("x.lock")).unwrap()
}

fn read(ocimod: &Ocimod) -> Value {
    serde_json::from_str(&text(ocimod)).unwrap()
}

fn names(lock: &Value) -> Vec<&str> {
    lock["modules"].as_array().unwrap().iter().map(|module| module["module"].as_str().unwrap()).collect()
}

#[test]
fn a_lock_is_written_once_and_its_version_is_taken_from_then_on() {
    let ocimod = Ocimod::new();
    let store = registry(&ocimod, "store", "lib", &[]);
    pull(&ocimod, &store, APP, "zero", &["--locked"]).fails_with(3);
    let first = pull(&ocimod, &store, APP, "one", &[]).success().json();
    assert_eq!(first["lock"]["written"], json!(true));
    let written = text(&ocimod);
    let lock = read(&ocimod);
    assert_eq!((&lock["version"], &lock["module"]), (&json!(1), &json!("acme.example/app@v1.0.0")));
    assert_eq!(names(&lock), ["acme.example/app@v1.0.0", "acme.example/lib@v1.0.0"]);

    // A later version is out, and is not what was locked.
    ocimod.push(&store, &folder(&ocimod, "app", "newer", Some("lib")), &format!("{APP}@v1.1.0"), &[]);
    for (output, address) in [("two", APP.to_owned()), ("three", format!("{APP}@v1"))] {
        let again = pull(&ocimod, &store, &address, output, &["--locked"]).success().json();
        assert_eq!((&again["version"], &again["lock"]["written"]), (&json!("1.0.0"), &json!(false)));
    }
    let refused = pull(&ocimod, &store, &format!("{APP}@1.1.0"), "four", &[]).fails_with(4);
    assert!(
        refused.stderr.contains("has version 1.0.0") && refused.stderr.contains("--update-lock"),
        "{}",
        refused.stderr
    );
    assert_eq!(text(&ocimod), written);
    let updated = pull(&ocimod, &store, APP, "five", &["--update-lock"]).success().json();
    assert_eq!((&updated["version"], &updated["lock"]["written"]), (&json!("1.1.0"), &json!(true)));
    assert_eq!(names(&read(&ocimod))[0], "acme.example/app@v1.1.0");
    // Another module's lock is not written over by a slip of the pen.
    let refused = pull(&ocimod, &store, "acme.example/lib", "six", &[]).fails_with(4);
    assert!(refused.stderr.contains("is the lock of `acme.example/app`"), "{}", refused.stderr);
    pull(&ocimod, &store, APP, "seven", &["--locked", "--update-lock"]).fails_with(2);
    for more in [["--update-lock"], ["--locked"]] {
        let mut command = ocimod.command();
        run(command.args(["pull", "--registry", &store, APP, "-o", "eight"]).args(more)).fails_with(2);
    }
}

#[test]
fn one_lock_is_good_for_every_form_and_every_copy() {
    let ocimod = Ocimod::new();
    let mut locks = Vec::new();
    for form in ["inline", "separate", "none"] {
        let store = registry(&ocimod, form, "lib", &["--deps", form]);
        pull(&ocimod, &store, APP, &format!("{form}-pulled"), &["--update-lock"]).success();
        locks.push(text(&ocimod));
        let copy = format!("layout:{}", ocimod.home.path().join(format!("{form}.tar")).display());
        ocimod.run(["copy", APP, "--with-dependencies", "--from", &store, "--to", &copy]).success();
        pull(&ocimod, &copy, APP, &format!("{form}-copy"), &["--locked"]).success();
    }
    assert!(locks.iter().all(|lock| *lock == locks[0]), "{locks:?}");
}

#[test]
fn what_is_published_anew_by_the_same_name_is_refused_and_nothing_of_it_is_written() {
    let ocimod = Ocimod::new();
    let store = registry(&ocimod, "store", "lib", &[]);
    pull(&ocimod, &store, APP, "one", &[]).success();
    let written = text(&ocimod);
    let locked = |name: &str| {
        let lock = read(&ocimod);
        let modules = lock["modules"].as_array().unwrap().clone();
        let found =
            modules.iter().find(|module| module["module"] == json!(format!("acme.example/{name}@v1.0.0")));
        found.unwrap()["digest"].as_str().unwrap().to_owned()
    };
    // The dependency is another: as a layer, and beside the module.
    for form in ["inline", "none"] {
        let changed = registry(&ocimod, &format!("changed-{form}"), "changed", &["--deps", form]);
        let refused = pull(&ocimod, &changed, APP, "two", &[]).fails_with(4);
        let inspected =
            ocimod.run(["inspect", "--registry", &changed, "acme.example/lib@v1.0.0", "--format", "json"]);
        let manifest = &inspected.success().json()["manifest"];
        let digest = manifest["layers"][0]["digest"].as_str().unwrap().to_owned();
        for part in ["`acme.example/lib@v1.0.0`", &locked("lib"), &digest, "[lock-differs]", "x.lock"] {
            assert!(refused.stderr.contains(part), "no {part} in {}", refused.stderr);
        }
        assert!(!refused.stderr.contains("`acme.example/app@v1.0.0`"), "{}", refused.stderr);
        assert!(!ocimod.home.path().join("two").exists());
        // Nor is anything put into the cache of `cue`.
        let cache = ocimod.home.path().join("cache");
        let mut command = ocimod.command();
        command.args(["pull", "--registry", &changed, APP, "--into-cue-cache", "--lock", "x.lock"]);
        run(command.env("CUE_CACHE_DIR", &cache)).fails_with(4);
        assert!(!cache.exists());
    }
    // The module itself is another.
    let other = format!("dir:{}", ocimod.folder("other").display());
    ocimod.push(&other, &folder(&ocimod, "lib", "lib", None), "acme.example/lib@v1.0.0", &[]);
    ocimod.push(&other, &folder(&ocimod, "app", "other", Some("lib")), &format!("{APP}@v1.0.0"), &[]);
    let refused = pull(&ocimod, &other, APP, "three", &[]).fails_with(4);
    assert!(refused.stderr.contains("`acme.example/app@v1.0.0`"), "{}", refused.stderr);
    assert_eq!(text(&ocimod), written);
}

#[test]
fn an_entry_too_few_and_one_too_many_are_refused_and_so_is_what_is_no_lock() {
    let ocimod = Ocimod::new();
    let store = registry(&ocimod, "store", "lib", &[]);
    pull(&ocimod, &store, APP, "one", &[]).success();
    let path = ocimod.home.path().join("x.lock");
    let good = read(&ocimod);
    let mut few = good.clone();
    few["modules"].as_array_mut().unwrap().pop();
    let mut many = good.clone();
    let more =
        json!({ "module": "acme.example/more@v1.0.0", "digest": format!("sha256:{}", "0".repeat(64)) });
    many["modules"].as_array_mut().unwrap().push(more);
    for (lock, rule, name) in
        [(few, "lock-missing", "acme.example/lib"), (many, "lock-unused", "acme.example/more")]
    {
        std::fs::write(&path, lock.to_string()).unwrap();
        let refused = pull(&ocimod, &store, APP, "two", &[]).fails_with(4);
        assert!(refused.stderr.contains(&format!("[{rule}]")), "{}", refused.stderr);
        assert!(refused.stderr.contains(&format!("`{name}@v1.0.0`")), "{}", refused.stderr);
    }
    for hostile in ["", "{}", "\u{0}", "[1", "{\"version\": 7}", &"[".repeat(200_000), &" ".repeat(2_000_000)]
    {
        std::fs::write(&path, hostile).unwrap();
        let refused = pull(&ocimod, &store, APP, "two", &[]).fails_with(2);
        assert!(refused.stderr.contains("x.lock"), "{}", refused.stderr);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), hostile, "it stays as it was");
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    pull(&ocimod, &store, APP, "two", &[]).fails_with(2);
    assert!(!ocimod.home.path().join("two").exists());
}

#[test]
fn a_module_that_is_worked_on_is_checked_against_its_lock() {
    let ocimod = Ocimod::new();
    let store = registry(&ocimod, "store", "lib", &[]);
    let source = folder(&ocimod, "app", "app", Some("lib")).display().to_string();
    let check = |registry: &str, more: &[&str]| {
        let mut command = ocimod.command();
        command.args(["check", &source, "--registry", registry, "--lock", "x.lock", "--format", "json"]);
        run(command.args(more))
    };
    check(&store, &[]).fails_with(3);
    assert_eq!(check(&store, &["--update-lock"]).success().json()["lock"]["written"], json!(true));
    let lock = read(&ocimod);
    assert_eq!((&lock["module"], names(&lock)), (&json!(APP), vec!["acme.example/lib@v1.0.0"]));
    assert_eq!(check(&store, &[]).success().json()["lock"]["written"], json!(false));
    // One that `pull` wrote is as good: what the folder itself is, is about to change.
    pull(&ocimod, &store, APP, "pulled", &["--update-lock"]).success();
    check(&store, &[]).success();
    let changed = registry(&ocimod, "changed", "changed", &[]);
    let refused = check(&changed, &[]).fails_with(4);
    assert_eq!(refused.json()["findings"][0]["rule"], json!("lock-differs"));
    assert!(refused.stderr.contains("is not as it is locked"), "{}", refused.stderr);
    // Without a registry there is nothing to compare with.
    run(ocimod.command().args(["check", &source, "--lock", "x.lock"])).fails_with(2);
}

#[test]
fn opentofu_modules_are_locked_with_what_they_embed() {
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let more = ["--host", "modules.acme.example"];
    ocimod.push(&store, &example("terraform-null-label"), "acme/label/null@1.0.0", &more);
    let stack = ocimod.folder("terraform-null-stack");
    let call = "module \"label\" {\n  source  = \"modules.acme.example/acme/label/null\"\n  version = \"~> 1.0\"\n}\n";
    write(&stack, &[("main.tf", call)]);
    ocimod.push(&store, &stack, "acme/stack/null@1.0.0", &more);
    pull(&ocimod, &store, "acme/stack/null", "one", &[]).success();
    let lock = read(&ocimod);
    let locked =
        ["modules.acme.example/acme/label/null@v1.0.0", "modules.acme.example/acme/stack/null@v1.0.0"];
    assert_eq!(names(&lock), locked);
    pull(&ocimod, &store, "acme/stack/null", "two", &["--locked"]).success();
    let check = |status: i32| {
        let mut command = ocimod.command();
        command.args(["check", "--registry", &store, "--lock", "x.lock", "--format", "json"]);
        command.args(["--namespace", "acme"]).args(more);
        let checked = run(command.arg(Path::new(&stack)));
        assert_eq!(checked.status, Some(status), "{checked:?}");
        checked.json()["findings"].clone()
    };
    check(0);
    // A push would embed another version now.
    ocimod.push(&store, &example("terraform-null-label"), "acme/label/null@1.0.1", &more);
    let findings = check(4);
    let rules: Vec<_> = findings.as_array().unwrap().iter().map(|finding| finding["rule"].clone()).collect();
    assert_eq!(json!(rules), json!(["lock-missing", "lock-unused"]));
    // The published module has what it had.
    pull(&ocimod, &store, "acme/stack/null", "three", &["--locked"]).success();
}
