//! Registries behind a proxy, on this machine, and at IPv6 addresses: how the variables and the addresses that people write are read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::support::docker_registry::{DockerRegistry, PASSWORD, USER};
use crate::support::modules::example;
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, run, run_with_input};
use crate::support::proxy::Proxy;
use crate::support::tls::Certificate;
use crate::support::tls_server::{TlsServer, answer};
use crate::support::token_service::{self, TokenService};

/// What the proxy wants to know, and how it stands in a URL.
const PROXY_USER: &str = "proxy:p@ss";
const PROXY_USER_IN_URL: &str = "proxy:p%40ss";

fn proxy(registry: &DockerRegistry) -> (Proxy, String) {
    let proxy = Proxy::start(&registry.address, &STANDARD.encode(PROXY_USER));
    let url = format!("http://{PROXY_USER_IN_URL}@{}", proxy.address);
    (proxy, url)
}

fn known_at(ocimod: &Ocimod, address: &str) {
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let file = json!({ "auths": { address: { "auth": auth } } }).to_string();
    std::fs::write(ocimod.folder(".docker").join("config.json"), file).expect("the folder is ours");
}

fn push(ocimod: &Ocimod, registry: &str, more: &[&str], variables: &[(&str, &str)]) -> Answer {
    let mut command = ocimod.command();
    command.args(["push", "--registry", registry]).args(more).envs(variables.iter().copied());
    run(command.arg(example("terraform-null-label")).arg("acme/label/null@1.0.0"))
}

#[test]
fn a_registry_over_plain_http_is_asked_for_at_the_proxy() {
    let Some(registry) = DockerRegistry::start_with_password() else { return };
    let (proxy, url) = proxy(&registry);
    let ocimod = Ocimod::new();
    known_at(&ocimod, "registry.example:5000");
    push(&ocimod, "registry.example:5000+insecure", &[], &[("HTTP_PROXY", &url)]).success();
    let heads = proxy.heads();
    assert!(heads[0].starts_with("get http://registry.example:5000/v2/ http/1.1\r\n"), "{}", heads[0]);

    // The other scheme's proxy is none for this one.
    let bare = format!("http://{}", proxy.address);
    for variables in [[("HTTP_PROXY", bare.as_str())], [("http_proxy", bare.as_str())]] {
        let failed = push(&ocimod, "registry.example:5000+insecure", &[], &variables).fails_with(6);
        assert!(failed.stderr.contains("the proxy asks for credentials"), "{}", failed.stderr);
    }
}

#[test]
fn a_registry_over_tls_is_spoken_to_through_a_tunnel_that_keeps_the_two_logins_apart() {
    let ocimod = Ocimod::new();
    let certificate = Certificate::create_for(ocimod.home.path(), &["registry.example"]);
    let Some(registry) = DockerRegistry::start_tls(&certificate) else { return };
    let (proxy, url) = proxy(&registry);
    known_at(&ocimod, "registry.example");
    let ca = certificate.certificate_file.display().to_string();
    let more = ["--ca-file", ca.as_str()];
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        push(&ocimod, "registry.example", &more, &[(variable, &url)]).success();
    }
    let heads = proxy.heads();
    assert!(heads.len() >= 3);
    for head in &heads {
        assert!(head.starts_with("connect registry.example:443 http/1.1\r\n"), "{head}");
        assert!(!head.contains("\r\nauthorization:"), "{head}");
    }
    // Nor does the registry see what the proxy was told.
    let inner = TlsServer::start(&certificate, |_| answer("404 Not Found", "", ""));
    let tunnel = Proxy::start(&format!("127.0.0.1:{}", inner.port), &STANDARD.encode(PROXY_USER));
    let tunnel = format!("http://{PROXY_USER_IN_URL}@{}", tunnel.address);
    let mut list = ocimod.command();
    list.args(["list", "--registry", "registry.example", "--ca-file", &ca, "acme/label/null"]);
    run(list.env("HTTPS_PROXY", tunnel)).fails_with(3);
    assert!(inner.requests().iter().all(|request| !request.head.contains("proxy-authorization")));
    assert!(!inner.requests().is_empty());

    let shown = push(&ocimod, "registry.example", &[], &[("HTTPS_PROXY", &url)]).fails_with(6);
    assert!(shown.stderr.contains("certificate") && !shown.all().contains("p%40ss"), "{}", shown.stderr);
}

#[test]
fn nothing_on_this_machine_is_asked_for_at_a_proxy() {
    let service = TokenService::start();
    let Some(registry) = DockerRegistry::start_with_tokens(&service) else { return };
    let ocimod = Ocimod::new();
    let nowhere = [("HTTP_PROXY", "http://127.0.0.1:9"), ("HTTPS_PROXY", "http://127.0.0.1:9")];
    let mut login = ocimod.command();
    login.args(["login", &registry.address, "-u", token_service::USER, "--password-stdin"]).envs(nowhere);
    run_with_input(&mut login, token_service::PASSWORD).success();
    push(&ocimod, &registry.address, &[], &nowhere).success();
}

#[test]
fn a_variable_that_names_no_proxy_is_told_of_and_not_passed_over() {
    let ocimod = Ocimod::new();
    let failed =
        push(&ocimod, "registry.example", &[], &[("HTTPS_PROXY", "gopher://u:s3cret@p:1")]).fails_with(2);
    assert!(failed.stderr.contains("HTTPS_PROXY") && !failed.all().contains("s3cret"), "{}", failed.stderr);
    // Where nobody is asked through it, it is no matter.
    push(&ocimod, "dir:store", &[], &[("HTTPS_PROXY", "gopher://p:1")]).success();
}

#[test]
fn a_registry_at_an_ipv6_address_is_one_as_any_other() {
    let Some(registry) = DockerRegistry::start_on_ipv6() else { return };
    let (ocimod, address) = (Ocimod::new(), registry.address.as_str());
    assert!(address.starts_with("[::1]:"));
    let mut login = ocimod.command();
    login.args(["login", address, "-u", USER, "--password-stdin"]);
    run_with_input(&mut login, PASSWORD).success();
    for registry in [format!("{address}/modules"), format!("{address}/insecure+insecure")] {
        push(&ocimod, &registry, &[], &[]).success();
        let listed = ocimod.run(["list", "--registry", &registry, "acme/label/null"]).success();
        assert!(listed.stdout.contains("1.0.0"), "{}", listed.stdout);
    }
    let place = format!("oci://{address}/modules/acme/label/null:v1.0.0");
    let seen = ocimod.run(["inspect", "--format", "json", &place]).success().json();
    assert_eq!(seen["kind"], json!("opentofu"), "{seen}");
    ocimod.run(["pull", &place, "-o", "pulled"]).success();
    assert!(ocimod.home.path().join("pulled/main.tf").is_file());
    ocimod.run(["logout", address]).success();
    ocimod.run(["inspect", &place]).fails_with(5);
}
