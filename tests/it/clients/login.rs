//! One login for all tools: that of ocimod for theirs, and theirs for ocimod.

use std::path::Path;
use std::process::Command;

use crate::support::clients;
use crate::support::docker_registry::{DockerRegistry, PASSWORD, USER};
use crate::support::modules::example;
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, isolated, run, run_with_input};
use crate::support::token_service::{self, TokenService};

/// Who somebody is at a registry.
#[derive(Clone, Copy)]
struct User {
    name: &'static str,
    password: &'static str,
}

/// Registries that ask in different ways, with who is known there.
fn registries() -> Option<Vec<(DockerRegistry, User, Option<TokenService>)>> {
    let service = TokenService::start();
    let (basic, tokens) =
        (DockerRegistry::start_with_password()?, DockerRegistry::start_with_tokens(&service)?);
    let user = User { name: USER, password: PASSWORD };
    let of_service = User { name: token_service::USER, password: token_service::PASSWORD };
    Some(vec![(basic, user, None), (tokens, of_service, Some(service))])
}

/// Where each of them looks, and nothing of the machine's own.
fn command(program: &Path, home: &Path) -> Command {
    let mut command = isolated(program, home);
    command.env("XDG_RUNTIME_DIR", home.join("run"));
    command
}

fn push(ocimod: &Ocimod, address: &str) -> Answer {
    let mut push = command(Path::new(env!("CARGO_BIN_EXE_ocimod")), ocimod.home.path());
    push.current_dir(ocimod.home.path()).args(["push", "--registry", address]);
    run(push.arg(example("terraform-null-label")).arg("acme/label/null@1.0.0"))
}

/// Reads what was pushed, by another tool.
fn read(program: &str, home: &Path, address: &str) -> Option<Answer> {
    let mut command = command(&clients::find(program)?, home);
    let reference = format!("{address}/acme/label/null:v1.0.0");
    match program {
        "crane" => command.args(["manifest", "--insecure", &reference]),
        "oras" => command.args(["manifest", "fetch", "--plain-http", &reference]),
        "skopeo" => {
            command.args(["inspect", "--raw", "--tls-verify=false", &format!("docker://{reference}")])
        }
        _ => unreachable!("{program} reads no manifests"),
    };
    Some(run(&mut command))
}

/// Logs in by another tool.
fn log_in(program: &str, home: &Path, address: &str, user: User) -> Option<()> {
    let mut command = command(&clients::find(program)?, home);
    let name = ["-u", user.name, "--password-stdin", address];
    match program {
        "crane" => command.args(["auth", "login", "--insecure"]).args(name),
        "oras" => command.args(["login", "--plain-http"]).args(name),
        "skopeo" => command.args(["login", "--tls-verify=false"]).args(name),
        _ => unreachable!("{program} does not log in"),
    };
    run_with_input(&mut command, user.password).success();
    Some(())
}

#[test]
fn a_login_of_ours_is_one_for_all_tools() {
    let Some(registries) = registries() else { return };
    for (registry, user, service) in registries {
        // crane goes to no token service on this machine but one at the registry's own port.
        let programs = if service.is_some() { &["oras", "skopeo"][..] } else { &["crane", "oras", "skopeo"] };
        let ocimod = Ocimod::new();
        let (home, address) = (ocimod.home.path(), registry.address.as_str());
        let mut login = ocimod.command();
        login.args(["login", address, "-u", user.name, "--password-stdin"]);
        run_with_input(&mut login, user.password).success();
        push(&ocimod, address).success();
        for program in programs {
            if let Some(answer) = read(program, home, address) {
                answer.success();
            }
        }
        ocimod.run(["logout", address]).success();
        for program in programs {
            if let Some(answer) = read(program, home, address) {
                assert_ne!(answer.status, Some(0), "{program} is known still");
            }
        }
    }
}

#[test]
fn a_login_of_another_tool_is_one_for_us() {
    let Some(registries) = registries() else { return };
    for (registry, user, _service) in registries {
        for program in ["crane", "oras", "skopeo"] {
            let ocimod = Ocimod::new();
            ocimod.folder("run");
            let (home, address) = (ocimod.home.path(), registry.address.as_str());
            push(&ocimod, address).fails_with(5);
            if log_in(program, home, address, user).is_none() {
                continue;
            }
            push(&ocimod, address).success();
            let mut logout = command(Path::new(env!("CARGO_BIN_EXE_ocimod")), home);
            run(logout.args(["logout", address])).success();
            push(&ocimod, address).fails_with(5);
        }
    }
}

/// Where the login of another tool is, ours goes too, so that neither of the two is the wrong one.
#[test]
fn a_login_goes_where_another_tool_has_put_one() {
    let Some(skopeo) = clients::find("skopeo") else { return };
    let Some(registry) = DockerRegistry::start_with_password() else { return };
    let (ocimod, address) = (Ocimod::new(), registry.address.as_str());
    ocimod.folder("run");
    let home = ocimod.home.path();
    log_in("skopeo", home, address, User { name: USER, password: PASSWORD });
    let mut login = command(Path::new(env!("CARGO_BIN_EXE_ocimod")), home);
    login.args(["login", "--format", "json", address, "-u", USER, "--password-stdin"]);
    let done = run_with_input(&mut login, PASSWORD).success().json();
    assert_eq!(done["file"], serde_json::json!(home.join("run/containers/auth.json")));
    assert!(!home.join(".docker").exists());
    let logged_in = run(command(&skopeo, home).args(["login", "--get-login", address])).success();
    assert_eq!(logged_in.stdout.trim(), USER);
}
