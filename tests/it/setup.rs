//! What users of a server paste: `GET /`, `ocimod config client`, and that it works when it is pasted.

use serde_json::Value;

use crate::support::clients;
use crate::support::modules::{example, write};
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{isolated, run};

fn served(ocimod: &Ocimod, more: &[&str]) -> Serve {
    let label = format!("{}@1.0.0", example("terraform-null-label").display());
    let arguments = ["--temporary", "--namespace", "acme", "--push", &label];
    ocimod.serve(arguments.into_iter().chain(more.iter().copied()))
}

async fn start_page(serve: &Serve, headers: &[(&str, &str)]) -> reqwest::Response {
    ocimod::registry::remote::install_crypto_provider();
    let mut request = reqwest::Client::new().get(format!("http://{}/", serve.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.expect("the server answers")
}

#[tokio::test]
async fn the_start_page_says_what_to_paste_and_names_no_module() {
    let ocimod = Ocimod::new();
    let serve = served(&ocimod, &[]);
    let text = start_page(&serve, &[]).await;
    assert_eq!(text.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(text.headers()["cache-control"], "no-store");
    let text = text.text().await.unwrap();
    assert!(
        text.contains(&format!("services = {{ \"modules.v1\" = \"http://{}/v1/modules/\" }}", serve.address)),
        "{text}"
    );
    assert!(text.contains(&format!("crane catalog --insecure {}", serve.address)), "{text}");
    let page = start_page(&serve, &[("accept", "text/html")]).await;
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    assert!(page.headers()["vary"].to_str().unwrap().contains("Accept"));
    assert!(page.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    let page = page.text().await.unwrap();
    assert!(page.contains("services = { &quot;modules.v1&quot;"), "{page}");
    for answer in [text, page] {
        for secret in ["acme", "label", "/tmp", "dir:", "<script"] {
            assert!(!answer.contains(secret), "{secret}: {answer}");
        }
    }
}

#[tokio::test]
async fn behind_a_proxy_the_page_has_the_proxy_s_address_and_no_markup_of_anybody() {
    let ocimod = Ocimod::new();
    let serve = served(&ocimod, &["--allow-anonymous"]);
    let proxied = [("x-forwarded-host", "modules.acme.example"), ("x-forwarded-proto", "https")];
    let text = start_page(&serve, &proxied).await.text().await.unwrap();
    assert!(text.starts_with("ocimod serves modules on https://modules.acme.example\n"), "{text}");
    assert!(text.contains("source  = \"modules.acme.example/NAMESPACE/NAME/SYSTEM\""), "{text}");
    assert!(!text.contains("host \""), "it is found by itself: {text}");
    for word in
        ["<script>alert(1)</script>", "a.example/<b>", "a\"b", "a.example@evil.example", "evil.example/path"]
    {
        for name in ["x-forwarded-host", "host", "x-forwarded-proto"] {
            let page = start_page(&serve, &[(name, word), ("accept", "text/html")]).await;
            let page = page.text().await.unwrap();
            assert!(
                !page.contains(word)
                    && !page.contains("<script")
                    && !page.contains("<b>")
                    && !page.contains("evil"),
                "{name}: {page}"
            );
        }
    }
}

#[test]
fn what_a_user_pastes_is_told_for_programs_too() {
    let ocimod = Ocimod::new();
    let shown =
        ocimod.run(["config", "client", "modules.acme-corp.example", "--format", "json"]).success().json();
    assert_eq!(shown["url"], "https://modules.acme-corp.example");
    assert_eq!(shown["host_block"], Value::Null);
    assert_eq!(shown["token_variable"], "export TF_TOKEN_modules_acme__corp_example=TOKEN");
    assert_eq!(shown["cue_registry"], "export CUE_REGISTRY=modules.acme-corp.example/cue.mod");
    let other =
        ["config", "client", "acme.example", "--base-path", "/ocimod", "--for", "registry.opentofu.org"];
    let told = ocimod.run(other).success().stdout;
    assert!(
        told.contains(
            "\"modules.v1\" = \"https://acme.example/ocimod/v1/hosts/registry.opentofu.org/modules/\""
        ),
        "{told}"
    );
    assert!(told.contains("its providers are switched off"), "{told}");
    for wrong in ["a b", "ftp://a.example", "a.example/../b"] {
        ocimod.run(["config", "client", wrong]).fails_with(2);
    }
}

#[test]
fn what_is_shown_works_when_it_is_pasted() {
    for tofu in clients::tofus() {
        let ocimod = Ocimod::new();
        let serve = served(&ocimod, &[]);
        let url = format!("http://{}", serve.address);
        let shown = ocimod.run(["config", "client", &url, "--format", "json"]).success().json();
        let part = |name: &str| shown[name].as_str().unwrap_or_default().to_owned();
        let root = ocimod.folder("root");
        let call = part("module_block").replace("NAMESPACE/NAME/SYSTEM", "acme/label/null");
        // A shell takes the line as it is, quotes and all.
        let script = format!("{}\nexec \"$0\" init -no-color -input=false", part("token_variable"));
        let configuration = format!("{}\n{}\n", part("host_block"), part("credentials_block"));
        write(&root, &[("main.tf", &call), ("client.tfrc", &configuration)]);
        let mut command = isolated("sh".as_ref(), &root);
        command.args(["-ec", &script]).arg(&tofu).current_dir(&root);
        command.env("TF_CLI_CONFIG_FILE", root.join("client.tfrc")).env("CHECKPOINT_DISABLE", "1");
        run(&mut command).success();
        let installed = std::fs::read_to_string(root.join(".terraform/modules/modules.json")).unwrap();
        assert!(installed.contains("modules.internal/acme/label/null"), "{installed}");
    }
}
