//! What other tools pushed: modules of `oras` and `cue`, and everything that is none, in other people's registries and in ours.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::{Root, write};
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{Answer, isolated, run};
use crate::support::tls::Certificate;

const OUTPUT: &str = "output \"it\" {\n  value = \"foreign\"\n}\n";

/// Runs one of the programs in a folder.
fn tool(program: &str, folder: &Path, arguments: &[&str]) -> Option<Answer> {
    let mut command = isolated(&clients::find(program)?, folder);
    Some(run(command.current_dir(folder).args(arguments)))
}

/// A folder with `module.zip` in it, as `zip -r` makes it.
fn zipped(ocimod: &Ocimod, files: &[(&str, &str)]) -> PathBuf {
    use std::io::Write;
    let folder = ocimod.folder("zipped");
    let file = std::fs::File::create(folder.join("module.zip")).unwrap();
    let mut writer = zip::ZipWriter::new(file);
    for (name, text) in files {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap();
    folder
}

/// `oras push` as the documentation of OpenTofu has it.
fn oras_push(folder: &Path, reference: &str, more: &[&str]) -> Option<()> {
    let fixed = [
        "push",
        "--artifact-type",
        "application/vnd.opentofu.modulepkg",
        reference,
        "module.zip:archive/zip",
    ];
    tool("oras", folder, &[&fixed[..], more].concat()).map(|answer| drop(answer.success()))
}

/// Somebody else's registry, and ours.
fn everywhere(test: impl Fn(&Ocimod, &str) -> Option<()>) {
    if let Some(registry) = DockerRegistry::start() {
        test(&Ocimod::new(), &registry.address);
    }
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let serve = ocimod.serve(["--registry", &store]);
    test(&ocimod, &serve.address);
}

fn json_of(ocimod: &Ocimod, registry: &str, arguments: &[&str]) -> Value {
    let fixed = ["--registry", registry, "--format", "json"];
    ocimod.run(arguments.iter().copied().chain(fixed)).success().json()
}

fn versions_of(answer: &Value) -> Vec<&str> {
    answer["versions"].as_array().unwrap().iter().filter_map(|it| it["version"].as_str()).collect()
}

/// What the shim lists.
fn served(serve: &Serve, address: &str) -> Value {
    ocimod::registry::remote::install_crypto_provider();
    let url = format!("http://{}/v1/modules/{address}/versions", serve.address);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { reqwest::get(url).await.unwrap().json().await.unwrap() })
}

#[test]
fn what_oras_pushed_for_tofu_is_a_module_and_what_else_is_tagged_is_none() {
    everywhere(|ocimod, registry| {
        let folder = zipped(ocimod, &[("main.tf", OUTPUT)]);
        let repository = format!("{registry}/acme/foreign/null");
        for tag in ["1.0.0", "v1.1.0"] {
            oras_push(&folder, &format!("{repository}:{tag}"), &["--plain-http"])?;
        }
        // A floating tag and a signature's, an image, an index, and an artifact of another type.
        for tag in ["latest", "v1", "1.2", &format!("sha256-{}.sig", "a".repeat(64))] {
            oras_push(&folder, &format!("{repository}:{tag}"), &["--plain-http"])?;
        }
        std::fs::write(folder.join("layer.tar"), [0; 1024]).unwrap();
        let image = format!("{repository}:v9.0.0");
        tool(
            "crane",
            &folder,
            &["append", "--insecure", "--oci-empty-base", "-f", "layer.tar", "-t", &image],
        )?
        .success();
        let index = format!("{repository}:v8.0.0");
        tool("crane", &folder, &["index", "append", "--insecure", "-m", &image, "-t", &index])?.success();
        let chart = format!("{repository}:7.0.0");
        tool(
            "oras",
            &folder,
            &["push", "--plain-http", "--artifact-type", "application/vnd.acme.chart", &chart, "layer.tar"],
        )?
        .success();

        let listed = json_of(ocimod, registry, &["list", "acme/foreign/null"]);
        assert_eq!(
            (versions_of(&listed), &listed["checked"]),
            (vec!["1.0.0", "1.1.0"], &json!(true)),
            "{registry}"
        );
        let modules = json_of(ocimod, registry, &["list"]);
        assert_eq!(
            [&modules["modules"][0]["module"], &modules["modules"][0]["version"], &modules["failed"]],
            [&json!("acme/foreign/null"), &json!("1.1.0"), &json!([])],
            "{registry}"
        );

        let inspected = json_of(ocimod, registry, &["inspect", "acme/foreign/null"]);
        assert_eq!(
            [
                &inspected["version"],
                &inspected["kind"],
                &inspected["module"],
                &inspected["outputs"][0]["name"]
            ],
            [&json!("1.1.0"), &json!("opentofu"), &Value::Null, &json!("it")],
            "{registry}"
        );
        for (address, name) in [("acme/foreign/null", "newest"), ("acme/foreign/null@v1.0.0", "exact")] {
            ocimod.run(["pull", "--registry", registry, address, "-o", name]).success();
            assert_eq!(
                std::fs::read_to_string(ocimod.home.path().join(name).join("main.tf")).unwrap(),
                OUTPUT
            );
        }
        for (version, what) in [
            ("9.0.0", "a container image"),
            ("8.0.0", "an image index"),
            ("7.0.0", "an artifact of type `application/vnd.acme.chart`"),
        ] {
            for verb in ["pull", "inspect"] {
                let refused = ocimod
                    .run([verb, "--registry", registry, &format!("acme/foreign/null@{version}")])
                    .fails_with(3);
                assert!(refused.stderr.contains(what), "{registry} {verb} {version}: {}", refused.stderr);
            }
        }

        let serve = ocimod.serve(["--registry", registry]);
        for tofu in clients::tofus() {
            let name = tofu.file_name().unwrap().to_string_lossy().into_owned();
            for (version, expected) in [("1.0.0", 0), ("~> 1.0", 0), ("9.0.0", 1), ("7.0.0", 1)] {
                let main = format!(
                    "module \"it\" {{\n  source  = \"modules.internal/acme/foreign/null\"\n  version = \"{version}\"\n}}\n\n\
                     output \"it\" {{\n  value = module.it.it\n}}\n"
                );
                let folder = ocimod.folder(&format!("{name}-{}", version.replace(['~', '>', ' '], "x")));
                let root = Root::new(&tofu, &folder, "modules.internal", &serve.address, &main);
                if expected == 0 {
                    assert_eq!(root.apply("it"), json!("foreign"), "{registry} {name} {version}");
                } else {
                    root.run(&["init", "-no-color", "-input=false"]).fails_with(expected);
                }
            }
        }
        Some(())
    });
}

#[test]
fn a_long_list_of_a_remote_registry_goes_by_the_tags_and_says_so() {
    everywhere(|ocimod, registry| {
        let folder = zipped(ocimod, &[("main.tf", OUTPUT)]);
        let repository = format!("{registry}/acme/many/null");
        let tags: Vec<_> = (0..64).map(|number| format!("1.{number}.0")).collect();
        oras_push(&folder, &format!("{repository}:{}", tags.join(",")), &["--plain-http"])?;
        let list =
            || ocimod.run(["list", "--registry", registry, "--format", "json", "acme/many/null"]).success();
        assert_eq!(list().json()["checked"], json!(true), "{registry}");
        let other = ["push", "--plain-http", "--artifact-type", "application/vnd.acme.chart"];
        let reference = format!("{repository}:2.0.0");
        tool("oras", &folder, &[&other[..], &[&reference, "module.zip"]].concat())?.success();
        let answer = list();
        assert!(answer.stderr.contains("too many versions"), "{registry}: {}", answer.stderr);
        let answer = answer.json();
        assert_eq!((&answer["checked"], versions_of(&answer).last()), (&json!(false), Some(&"2.0.0")));
        // Whatever is chosen is looked at.
        assert_eq!(json_of(ocimod, registry, &["inspect", "acme/many/null"])["version"], json!("1.63.0"));
        Some(())
    });
}

#[test]
fn what_oras_pushed_is_embedded_with_what_its_files_call() {
    everywhere(|ocimod, registry| {
        let folder = zipped(ocimod, &[("main.tf", OUTPUT)]);
        oras_push(&folder, &format!("{registry}/acme/inner/null:v1.0.0"), &["--plain-http"])?;
        let call = |name: &str| {
            format!(
                "module \"it\" {{\n  source  = \"modules.internal/acme/{name}/null\"\n  version = \"~> 1.0\"\n}}\n"
            )
        };
        let folder = zipped(ocimod, &[("main.tf", &call("inner"))]);
        oras_push(&folder, &format!("{registry}/acme/outer/null:1.0.0"), &["--plain-http"])?;
        let top = ocimod.folder("top");
        write(&top, &[("main.tf", &call("outer"))]);
        let pushed = ocimod.push(registry, &top, "acme/top/null@1.0.0", &[]);
        let names: Vec<_> = pushed["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["module"].as_str())
            .collect();
        let expected = ["modules.internal/acme/inner/null@v1.0.0", "modules.internal/acme/outer/null@v1.0.0"];
        assert_eq!(names, expected, "{registry}");
        Some(())
    });
}

#[test]
fn what_oras_pushed_is_installed_by_tofu_as_oci_source() {
    let Some(tofu) = clients::find("tofu-1.12") else { return };
    let ocimod = Ocimod::new();
    let certificate = Certificate::create(ocimod.home.path());
    let Some(registry) = DockerRegistry::start_tls(&certificate) else { return };
    let address = registry.address.replace("127.0.0.1", "localhost");
    let ca_file = certificate.certificate_file.display().to_string();
    let folder = zipped(&ocimod, &[("main.tf", OUTPUT)]);
    let Some(()) = oras_push(
        &folder,
        &format!("{address}/acme/foreign/null:1.0.0"),
        &["--plain-http=false", "--ca-file", &ca_file],
    ) else {
        return;
    };
    let main = format!(
        "module \"it\" {{\n  source = \"oci://{address}/acme/foreign/null?tag=1.0.0\"\n}}\n\noutput \"it\" {{\n  value = module.it.it\n}}\n"
    );
    let install = |folder: &str| {
        let root = Root::new(&tofu, &ocimod.folder(folder), "modules.internal", "127.0.0.1:1", &main);
        let arguments = ["init", "-no-color", "-input=false"];
        run(root.command().env("SSL_CERT_FILE", &certificate.certificate_file).args(arguments)).success();
    };
    install("before");
    // A yank is for those who choose among versions.
    let yank = ["yank", "--registry", &address, "--ca-file", &ca_file, "acme/foreign/null@1.0.0"];
    ocimod.run(yank).success();
    install("after");
    let pulled = format!("oci://{address}/acme/foreign/null:1.0.0");
    ocimod.run(["pull", "--ca-file", &ca_file, &pulled, "-o", "pulled"]).success();
    let inspected =
        ocimod.run(["inspect", "--format", "json", "--ca-file", &ca_file, &pulled]).success().json();
    assert_eq!(inspected["yanked"], json!(true));
}

#[test]
fn what_cue_published_is_served_to_tofu_where_it_has_tf_files() {
    everywhere(|ocimod, registry| {
        let cue = clients::find("cue")?;
        let file = |name: &str| {
            format!(
                "module: \"acme.example/acme/{name}/null@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n"
            )
        };
        for (name, more) in [("mixed", Some(("main.tf", OUTPUT))), ("pure", None)] {
            let folder = ocimod.folder(&format!("cue-{name}"));
            write(&folder, &[("cue.mod/module.cue", &file(name)), ("a.cue", "package a\n\nx: 1\n")]);
            write(&folder, &more.into_iter().collect::<Vec<_>>());
            let mut publish = isolated(&cue, ocimod.home.path());
            publish
                .current_dir(&folder)
                .env("CUE_REGISTRY", format!("{registry}+insecure"))
                .env("CUE_CACHE_DIR", ocimod.folder("cue-cache"))
                .env("CUE_CONFIG_DIR", ocimod.folder("cue-config"))
                .env("DOCKER_CONFIG", ocimod.folder("no-docker-config"));
            run(publish.args(["mod", "publish", "v1.0.0"])).success();

            let address = format!("cue:acme.example/acme/{name}/null");
            assert_eq!(versions_of(&json_of(ocimod, registry, &["list", &address])), ["1.0.0"]);
            let inspected = json_of(ocimod, registry, &["inspect", &address]);
            assert_eq!(inspected["kind"], json!("cue"), "{registry}");
            ocimod.run(["pull", "--registry", registry, &address, "-o", &format!("pulled-{name}")]).success();
            assert!(ocimod.home.path().join(format!("pulled-{name}/cue.mod/module.cue")).exists());
        }

        let serve = ocimod.serve(["--registry", registry, "--host", "acme.example"]);
        let versions = served(&serve, "acme/mixed/null");
        assert_eq!(versions["modules"][0]["versions"], json!([{"version": "1.0.0"}]), "{registry}");
        for tofu in clients::tofus() {
            let program = tofu.file_name().unwrap().to_string_lossy().into_owned();
            for (name, status) in [("mixed", 0), ("pure", 1)] {
                let main = format!(
                    "module \"it\" {{\n  source  = \"acme.example/acme/{name}/null\"\n  version = \"~> 1.0\"\n}}\n"
                );
                let folder = ocimod.folder(&format!("{program}-{name}"));
                let root = Root::new(&tofu, &folder, "acme.example", &serve.address, &main);
                root.run(&["init", "-no-color", "-input=false"]).fails_with(status);
            }
        }

        json_of(ocimod, registry, &["yank", "cue:acme.example/acme/mixed/null@v1.0.0"]);
        assert_eq!(
            json_of(ocimod, registry, &["list", "cue:acme.example/acme/mixed/null"])["versions"][0]["yanked"],
            json!(true)
        );
        // `cue` goes by tags that are versions, and a mark is none.
        let user = ocimod.folder("user");
        let deps = "deps: \"acme.example/acme/mixed/null@v1\": v: \"v1.0.0\"\n";
        let module_file = format!("module: \"user.example/main@v0\"\nlanguage: version: \"v0.9.2\"\n{deps}");
        write(
            &user,
            &[
                ("cue.mod/module.cue", &module_file),
                ("main.cue", "package main\n\nimport \"acme.example/acme/mixed/null@v1:a\"\n\nx: a.x\n"),
            ],
        );
        for arguments in [&["mod", "tidy"][..], &["export", "."]] {
            let mut command = isolated(&cue, ocimod.home.path());
            command
                .current_dir(&user)
                .env("CUE_REGISTRY", format!("{registry}+insecure"))
                .env("CUE_CACHE_DIR", ocimod.folder("cue-cache-2"))
                .env("CUE_CONFIG_DIR", ocimod.folder("cue-config"))
                .env("DOCKER_CONFIG", ocimod.folder("no-docker-config"));
            run(command.args(arguments)).success();
        }
        // Its cache has folders that may not be written, which would keep the test's own folder from being removed.
        let _ = std::process::Command::new("chmod").args(["-R", "u+w"]).arg(ocimod.home.path()).status();
        Some(())
    });
}
