//! A server that runs for longer than its credentials.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::docker_registry::{DockerRegistry, PASSWORD, USER};
use crate::support::modules::example;
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::run_with_input;
use crate::support::tls::Certificate;
use crate::support::token_service::{self, TokenService};

const LABEL: &str = "acme/label/null@1.0.0";

async fn status(serve: &Serve) -> u16 {
    ocimod::registry::remote::install_crypto_provider();
    let url = format!("http://{}/v1/modules/acme/label/null/versions", serve.address);
    reqwest::get(url).await.expect("the server answers").status().as_u16()
}

fn log_in(ocimod: &Ocimod, address: &str, user: &str, password: &str) {
    let mut login = ocimod.command();
    login.args(["login", address, "-u", user, "--password-stdin"]);
    run_with_input(&mut login, password).success();
}

/// What a person would write who mistypes the password.
fn write_wrong(ocimod: &Ocimod, address: &str) {
    let text = format!(r#"{{"auths":{{"{address}":{{"username":"{USER}","password":"wrong"}}}}}}"#);
    std::fs::write(ocimod.folder(".docker").join("config.json"), text).expect("the folder is ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_takes_up_a_new_login_without_a_restart() {
    let service = TokenService::start();
    let (Some(basic), Some(tokens)) =
        (DockerRegistry::start_with_password(), DockerRegistry::start_with_tokens(&service))
    else {
        return;
    };
    for (registry, user, password) in
        [(basic, USER, PASSWORD), (tokens, token_service::USER, token_service::PASSWORD)]
    {
        let (publisher, ocimod, address) = (Ocimod::new(), Ocimod::new(), registry.address.as_str());
        log_in(&publisher, address, user, password);
        publisher.push(address, &example("terraform-null-label"), LABEL, &[]);

        write_wrong(&ocimod, address);
        let mut serve = ocimod.serve(["--registry", address, "--cache-for", "0", "--catalog", "none"]);
        assert_eq!(status(&serve).await, 502);
        log_in(&ocimod, address, user, password);
        assert_eq!(status(&serve).await, 200);
        assert!(!serve.server.log().contains(password));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_takes_up_a_new_client_certificate_without_a_restart() {
    let (publisher, ocimod) = (Ocimod::new(), Ocimod::new());
    let server = Certificate::create(publisher.home.path());
    let known = Certificate::create(&publisher.folder("known"));
    let Some(registry) = DockerRegistry::start_for_certificates(&server, &known.certificate_file) else {
        return;
    };
    let text = |path: &Path| path.to_str().expect("a path of the test").to_owned();
    let ca = text(&server.certificate_file);
    let own = [text(&known.certificate_file), text(&known.key_file)];
    let options = ["--ca-file", &ca, "--cert-file", &own[0], "--key-file", &own[1]];
    publisher.push(&registry.address, &example("terraform-null-label"), LABEL, &options);

    let stranger = Certificate::create(ocimod.home.path());
    let own = [text(&stranger.certificate_file), text(&stranger.key_file)];
    let options = ["--ca-file", &ca, "--cert-file", &own[0], "--key-file", &own[1]];
    let more = ["--registry", &registry.address, "--cache-for", "0", "--catalog", "none"];
    let serve = ocimod.serve(more.into_iter().chain(options));
    assert_eq!(status(&serve).await, 503);
    // As whatever renews a certificate does it: one file after the other.
    std::fs::copy(&known.certificate_file, &stranger.certificate_file).unwrap();
    std::fs::copy(&known.key_file, &stranger.key_file).unwrap();
    let end = Instant::now() + Duration::from_mins(1);
    while status(&serve).await != 200 {
        assert!(Instant::now() < end, "the new certificate is not shown");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
