//! A closed network serves the modules of another host from its own registry, to clients that paste what `config client` prints.

use serde_json::{Value, json};

use crate::support::clients;
use crate::support::modules::{Root, example};
use crate::support::ocimod::Ocimod;

const LABEL: &str = "module \"it\" {\n  source    = \"acme/label/null\"\n  version   = \"~> 1.0\"\n  namespace = \"acme\"\n  stage     = \"test\"\n  \
                     name      = \"shop\"\n}\n\noutput \"it\" {\n  value = module.it.id\n}\n";

#[test]
fn modules_of_the_default_host_come_from_the_own_registry() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    let label = example("terraform-null-label");
    ocimod.push(&registry, &label, "registry.opentofu.org/acme/label/null@1.0.0", &[]);
    ocimod.push(&registry, &label, "acme/other/null@1.0.0", &[]);
    // The server's own host is another one, and its modules are no others' modules.
    let serve = ocimod.serve(["--registry", &registry, "--host", "modules.acme.example"]);

    for tofu in clients::tofus() {
        let name = tofu.file_name().unwrap_or_default().display().to_string();
        let default =
            if name.starts_with("tofu") { "registry.opentofu.org" } else { "registry.terraform.io" };
        let url = format!("http://{}", serve.address);
        let pasted =
            ocimod.run(["config", "client", &url, "--for", default, "--format", "json"]).success().json();
        let block = pasted["host_block"].as_str().expect("plain http needs a block").to_owned();
        let init = |main: &str, test: &str| {
            let root =
                Root::new(&tofu, &ocimod.folder(&format!("{name}-{test}")), "unused.example", "x", main);
            std::fs::write(root.folder.join("client.tfrc"), format!("disable_checkpoint = true\n{block}\n"))
                .expect("the folder is ours");
            root
        };
        if default == "registry.opentofu.org" {
            assert_eq!(init(LABEL, "label").apply("it"), json!("acme-test-shop"), "{name}");
        }
        // What calls itself a module of nobody's host is not passed off as one of this.
        let other = LABEL.replace("acme/label", "acme/other");
        let refused = init(&other, "other").run(&["init", "-no-color", "-input=false"]).fails_with(1).all();
        assert!(refused.contains("Module not found"), "{name}: {refused}");
    }
}

#[tokio::test]
async fn a_repository_below_the_host_is_that_host_s_and_another_is_not() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    let label = example("terraform-null-label");
    let template = ["--module-repository", "{host}/{namespace}/{name}/{system}"];
    ocimod.push(&registry, &label, "registry.opentofu.org/acme/label/null@1.0.0", &template);
    let serve = ocimod.serve(["--registry", &registry]);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ask = async |path: &str| {
        let url = format!("http://{}/v1/{path}/acme/label/null/versions", serve.address);
        let answer = reqwest::get(url).await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let listed = ask("hosts/registry.opentofu.org/modules").await;
    assert_eq!(listed.1["modules"][0]["versions"], json!([{"version": "1.0.0"}]));
    assert_eq!(ask("hosts/Registry.OpenTofu.org:443/modules").await.0, 200, "hosts have no case and no port");
    for other in
        ["registry.terraform.io", "..", "registry.opentofu.org%2f..", "modules.internal", "-", "a%00b"]
    {
        assert_eq!(ask(&format!("hosts/{other}/modules")).await.0, 404, "{other}");
    }
}
