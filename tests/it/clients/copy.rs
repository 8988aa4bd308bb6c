//! One tag is copied between real registries, byte for byte, and installed from the second.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::{Root, example};
use crate::support::ocimod::Ocimod;
use crate::support::process::{isolated, run};
use crate::support::tls::Certificate;

/// A copying program and the arguments that copy `from` to `to` over plain http.
fn copy_command(program: &str, home: &Path, from: &str, to: &str) -> Option<Command> {
    let mut command = isolated(&clients::find(program)?, home);
    match program {
        "crane" => command.args(["copy", "--insecure", from, to]),
        "oras" => command.args(["copy", "--from-plain-http", "--to-plain-http", from, to]),
        "skopeo" => command
            .args(["--insecure-policy", "copy", "--src-tls-verify=false", "--dest-tls-verify=false"])
            .args([format!("docker://{from}"), format!("docker://{to}")]),
        _ => unreachable!("{program} is not a copying program"),
    };
    Some(command)
}

fn manifest(crane: &Path, home: &Path, reference: &str) -> Value {
    run(isolated(crane, home).args(["manifest", "--insecure", reference])).success().json()
}

fn digest(crane: &Path, home: &Path, reference: &str) -> String {
    run(isolated(crane, home).args(["digest", "--insecure", reference])).success().stdout.trim().to_owned()
}

#[test]
fn one_copied_tag_keeps_its_digest_and_installs_from_where_it_was_copied_to() {
    let (Some(crane), Some(source)) = (clients::find("crane"), DockerRegistry::start()) else { return };
    let ocimod = Ocimod::new();
    let home = ocimod.home.path();
    let label = ocimod.push(&source.address, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    let stack = ocimod.push(&source.address, &example("terraform-null-stack"), "acme/stack/null@1.0.0", &[]);

    for program in ["crane", "skopeo", "oras"] {
        let Some(target) = DockerRegistry::start() else { return };
        for (name, pushed) in [("acme/label/null", &label), ("acme/stack/null", &stack)] {
            let (from, to) =
                (format!("{}/{name}:v1.0.0", source.address), format!("{}/{name}:v1.0.0", target.address));
            let Some(mut command) = copy_command(program, home, &from, &to) else { continue };
            run(&mut command).success();
            assert_eq!(json!(digest(&crane, home, &to)), pushed["digest"], "{program} {name}");
        }

        // The stack's tag brought the label's zip along: the same blob as the label's own first layer.
        let copied = manifest(&crane, home, &format!("{}/acme/stack/null:v1.0.0", target.address));
        let original = manifest(&crane, home, &format!("{}/acme/label/null:v1.0.0", source.address));
        assert_eq!(copied["layers"].as_array().map(Vec::len), Some(3));
        assert_eq!(copied["layers"][2]["digest"], original["layers"][0]["digest"]);
        let annotation = &copied["layers"][2]["annotations"]["works.cue.module"];
        assert_eq!(*annotation, json!("modules.internal/acme/label/null@v1.0.0"));
        let blob = format!(
            "{}/acme/stack/null@{}",
            target.address,
            copied["layers"][2]["digest"].as_str().unwrap_or_default()
        );
        run(isolated(&crane, home).args(["blob", "--insecure", &blob])).success();

        let serve = ocimod.serve(["--registry", &target.address]);
        for tofu in clients::tofus() {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let main = "module \"it\" {\n  source     = \"modules.internal/acme/stack/null\"\n  version    = \"~> 1.0\"\n  namespace  = \
                        \"acme\"\n  stage      = \"test\"\n  name       = \"shop\"\n  components = [\"api\"]\n}\n\noutput \"it\" {\n  value = \
                        module.it.ids\n}\n";
            let root = Root::new(&tofu, folder.path(), "modules.internal", &serve.address, main);
            assert_eq!(root.apply("it"), json!({"api": "acme-test-shop-api"}), "{program}");
        }
    }
}

#[test]
fn a_module_with_dependency_layers_is_installed_by_tofu_as_oci_source() {
    let Some(tofu) = clients::find("tofu-1.12") else { return };
    let ocimod = Ocimod::new();
    let certificate = Certificate::create(ocimod.home.path());
    let Some(registry) = DockerRegistry::start_tls(&certificate) else { return };
    let address = registry.address.replace("127.0.0.1", "localhost");
    let ca_file = certificate.certificate_file.display().to_string();
    let with_ca = ["--ca-file", ca_file.as_str()];
    ocimod.push(&address, &example("terraform-null-label"), "acme/label/null@1.0.0", &with_ca);
    let stack = ocimod.push(&address, &example("terraform-null-stack"), "acme/stack/null@1.0.0", &with_ca);
    assert_eq!(stack["dependencies"].as_array().map(Vec::len), Some(1));

    // The nested call of the label has no `oci://`: it goes through the shim.
    let serve = ocimod.serve(["--registry", &address, "--ca-file", &ca_file]);
    let main = format!(
        "module \"it\" {{\n  source     = \"oci://{address}/acme/stack/null?tag=v1.0.0\"\n  namespace  = \"acme\"\n  stage      = \
         \"test\"\n  name       = \"shop\"\n  components = [\"api\"]\n}}\n\noutput \"it\" {{\n  value = module.it.ids\n}}\n"
    );
    let root = Root::new(&tofu, &ocimod.folder("root"), "modules.internal", &serve.address, &main);
    for arguments in [&["init", "-no-color", "-input=false"][..], &["apply", "-no-color", "-auto-approve"]] {
        run(root.command().env("SSL_CERT_FILE", &certificate.certificate_file).args(arguments)).success();
    }
    assert_eq!(root.run(&["output", "-json", "it"]).success().json(), json!({"api": "acme-test-shop-api"}));
}
