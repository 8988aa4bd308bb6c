//! `ocimod login` and `logout`: what is asked of the registry, what is kept where, and for whom to read.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::docker_registry::{DockerRegistry, PASSWORD, USER};
use crate::support::modules::{example, write};
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, isolated, run, run_with_input};
use crate::support::token_service::{self, TokenService};

const LABEL: &str = "acme/label/null@1.0.0";

fn config(ocimod: &Ocimod) -> PathBuf {
    ocimod.home.path().join(".docker/config.json")
}

fn log_in(ocimod: &Ocimod, arguments: &[&str], input: &str) -> Answer {
    run_with_input(ocimod.command().args(["login", "--format", "json"]).args(arguments), input)
}

fn push(ocimod: &Ocimod, registry: &str) -> Answer {
    let mut command = ocimod.command();
    command.args(["push", "--registry", registry]).arg(example("terraform-null-label")).arg(LABEL);
    run(&mut command)
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("there is a file")).expect("it is JSON")
}

#[test]
fn a_login_is_tried_kept_used_and_removed() {
    let Some(registry) = DockerRegistry::start_with_password() else { return };
    let (ocimod, address) = (Ocimod::new(), registry.address.as_str());
    let refused = push(&ocimod, address).fails_with(5);
    assert!(refused.stderr.contains(&format!("ocimod login {address}")), "{}", refused.stderr);

    let wrong = log_in(&ocimod, &[address, "-u", USER, "--password-stdin"], "wrong\n").fails_with(5);
    assert_eq!(wrong.json()["error"]["kind"], "unauthorized");
    assert!(!wrong.all().contains("ocimod login"), "no advice to do what was just done: {}", wrong.all());
    assert!(!config(&ocimod).exists(), "what is refused is not kept");

    let arguments = [address, "-u", USER, "--password-stdin"];
    let dry = log_in(&ocimod, &[&arguments[..], &["-n"]].concat(), PASSWORD).success().json();
    assert_eq!((&dry["kept"], &dry["verified"]), (&json!(false), &json!(true)));
    assert!(!config(&ocimod).exists());

    let done = log_in(&ocimod, &arguments, &format!("{PASSWORD}\n")).success();
    assert!(!done.all().contains(PASSWORD), "{}", done.all());
    assert_eq!(
        done.json(),
        json!({
            "registry": address, "username": USER, "file": config(&ocimod), "helper": null, "verified": true, "kept": true
        })
    );
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    assert_eq!(read(&config(&ocimod)), json!({ "auths": { address: { "auth": auth } } }));
    push(&ocimod, address).success();

    let out = ["logout", "--format", "json", address];
    let dry = ocimod.run(out.into_iter().chain(["-n"])).success().json();
    assert_eq!((&dry["removed"], &dry["files"]), (&json!(false), &json!([config(&ocimod)])));
    push(&ocimod, address).success();
    let done = ocimod.run(out).success().json();
    assert_eq!(
        done,
        json!({ "registry": address, "files": [config(&ocimod)], "helpers": [], "left": [], "removed": true })
    );
    push(&ocimod, address).fails_with(5);
    assert_eq!(ocimod.run(out).success().json()["removed"], json!(false));
}

#[test]
fn what_is_said_is_for_people_too() {
    let Some(registry) = DockerRegistry::start_with_password() else { return };
    let (ocimod, address) = (Ocimod::new(), registry.address.as_str());
    let arguments = ["login", address, "-u", USER, "--password-stdin"];
    let done = run_with_input(ocimod.command().args(arguments), PASSWORD).success();
    let file = config(&ocimod).display().to_string();
    assert_eq!(done.stdout, format!("logged in to {address} as {USER}; kept in {file}\n"));
    assert!(done.stderr.contains("credential helper"), "{}", done.stderr);
    let done = ocimod.run(["logout", address]).success();
    assert_eq!(done.stdout, format!("logged out of {address}; removed from {file}\n"));
    assert_eq!(
        ocimod.run(["logout", address]).success().stdout,
        format!("there is no login for {address}\n")
    );
}

#[test]
fn an_open_registry_takes_every_login_and_that_is_said() {
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let done = log_in(&ocimod, &[&registry.address, "-u", "x", "--password-stdin"], "y").success();
    assert_eq!(done.json()["verified"], json!(false));
    assert!(done.stderr.contains("asks nobody for a login"), "{}", done.stderr);
}

#[test]
fn what_cannot_be_a_login_is_wrong_usage() {
    let ocimod = Ocimod::new();
    for (arguments, input, word) in [
        (&["r.example"][..], "", "no terminal"),
        (&["r.example", "-u", "ann"], "", "--password-stdin"),
        (&["r.example", "--password-stdin"], "x", "whose password"),
        (&["r.example", "-u", "ann", "--password-stdin"], "", "is empty"),
        (&["r.example", "-u", "ann", "--password-stdin"], "\n", "is empty"),
        (&["r.example", "-u", "a:b", "--password-stdin"], "x", "cannot be a user name"),
        (&["r.example", "-u", "<token>", "--password-stdin"], "x", "--identity-token-stdin"),
        (&["r.example", "-u", "ann", "--password-stdin", "--identity-token-stdin"], "x", "exclude"),
        (&["https://r.example", "-u", "ann", "--password-stdin"], "x", "is a URL"),
        (&["dir:store", "-u", "ann", "--password-stdin"], "x", "no registry that anybody logs in to"),
        (&["none", "-u", "ann", "--password-stdin"], "x", "no registry that anybody logs in to"),
    ] {
        let failed = log_in(&ocimod, arguments, input).fails_with(2);
        assert!(failed.all().contains(word), "{arguments:?}: {}", failed.all());
    }
    let long = "x".repeat(70_000);
    log_in(&ocimod, &["r.example", "-u", "ann", "--password-stdin"], &long).fails_with(2);
    assert!(!config(&ocimod).exists());
    // A repository's file does not say who somebody is.
    std::fs::write(ocimod.home.path().join("ocimod.toml"), "username = \"eve\"\n").unwrap();
    let refused = log_in(&ocimod, &["r.example", "--password-stdin"], "x").fails_with(2);
    assert!(refused.all().contains("cannot be set in the file of a repository"), "{}", refused.all());
}

#[test]
fn a_variable_that_goes_before_every_file_is_told_of_before_anything_is_asked() {
    let ocimod = Ocimod::new();
    let auths = json!({ "auths": { "r.example": { "auth": STANDARD.encode("ann:s3cret") } } }).to_string();
    let mut command = ocimod.command();
    command.args(["login", "r.example", "-u", "ann", "--password-stdin"]).env("DOCKER_AUTH_CONFIG", &auths);
    let failed = run_with_input(&mut command, "x").fails_with(2);
    assert!(failed.stderr.contains("DOCKER_AUTH_CONFIG") && !failed.all().contains("s3cret"));
    let mut command = ocimod.command();
    command.args(["logout", "r.example"]).env("DOCKER_AUTH_CONFIG", auths);
    let done = run(&mut command).success();
    assert!(done.stderr.contains("still a login"), "{}", done.stderr);
}

#[test]
fn a_login_for_a_part_of_a_registry_is_for_that_part() {
    let Some(registry) = DockerRegistry::start_with_password() else { return };
    let (ocimod, address) = (Ocimod::new(), registry.address.as_str());
    let part = format!("{address}/team");
    log_in(&ocimod, &[&part, "-u", USER, "--password-stdin"], PASSWORD).success();
    push(&ocimod, &part).success();
    push(&ocimod, address).fails_with(5);
    let out = ocimod.run(["logout", address]).success();
    assert!(out.stderr.contains(&format!("still a login for {part}")), "{}", out.stderr);
    push(&ocimod, &part).success();
    ocimod.run(["logout", &part]).success();
    push(&ocimod, &part).fails_with(5);
}

#[test]
fn a_helper_keeps_the_login_and_gives_it() {
    let Some(registry) = DockerRegistry::start_with_password() else { return };
    let (ocimod, address) = (Ocimod::new(), registry.address.as_str());
    let bin = ocimod.folder("bin");
    let script = "#!/bin/sh\nkept=$HOME/kept\ncase $1 in\nstore) cat >\"$kept\" ;;\nget) cat \"$kept\" 2>/dev/null || { echo \
                  'credentials not found in native keychain'; exit 1; } ;;\nerase) rm \"$kept\" ;;\nesac\n";
    let helper = bin.join("docker-credential-tests");
    let install = format!("cat >'{0}' && chmod 755 '{0}'", helper.display());
    run_with_input(Command::new("sh").args(["-c", &install]), script).success();
    write(&ocimod.folder(".docker"), &[("config.json", r#"{"credsStore":"tests","currentContext":"x"}"#)]);
    let path = std::env::join_paths(
        std::iter::once(bin).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let path = path.expect("no folder has a colon");
    let with_helper = |arguments: &[&str], input: &str| {
        run_with_input(ocimod.command().args(arguments).env("PATH", &path), input)
    };
    let done = with_helper(
        &["login", "--format", "json", address, "-u", USER, "--password-stdin"],
        &format!("{PASSWORD}\n"),
    );
    assert_eq!(done.success().json()["helper"], json!("tests"));
    assert_eq!(read(&config(&ocimod)), json!({ "credsStore": "tests", "currentContext": "x" }));
    let kept = read(&ocimod.home.path().join("kept"));
    assert_eq!(kept, json!({ "ServerURL": address, "Username": USER, "Secret": PASSWORD }));
    let label = example("terraform-null-label").display().to_string();
    with_helper(&["push", "--registry", address, &label, LABEL], "").success();
    let without = push(&ocimod, address).fails_with(1);
    assert!(without.stderr.contains("docker-credential-tests is not in PATH"), "{}", without.stderr);
    let done = with_helper(&["logout", "--format", "json", address], "").success().json();
    assert_eq!(done["helpers"], json!(["tests"]));
    with_helper(&["push", "--registry", address, &label, LABEL], "").fails_with(5);
}

#[test]
fn tokens_are_had_for_a_password_and_for_an_identity_token() {
    let service = TokenService::start();
    let Some(registry) = DockerRegistry::start_with_tokens(&service) else { return };
    let address = registry.address.as_str();
    for (arguments, secret) in [
        (&["-u", token_service::USER, "--password-stdin"][..], token_service::PASSWORD),
        (&["--identity-token-stdin"], token_service::REFRESH_TOKEN),
    ] {
        let ocimod = Ocimod::new();
        let line = [&[address][..], arguments].concat();
        log_in(&ocimod, &line, "wrong").fails_with(5);
        let done = log_in(&ocimod, &line, secret).success().json();
        assert_eq!(done["verified"], json!(true));
        // Into another repository, for which blobs are mounted from the first.
        for prefix in ["", "/copy"] {
            let registry = format!("{address}{prefix}");
            ocimod.push(&registry, &example("terraform-null-label"), LABEL, &[]);
            ocimod.push(&registry, &example("terraform-null-stack"), "acme/stack/null@1.0.0", &[]);
        }
        let listed = ocimod.run(["list", "--registry", address, "--format", "json"]).success().json();
        assert!(listed["modules"].as_array().is_some_and(|modules| modules.len() >= 2), "{listed}");
    }
    let requests = service.requests();
    assert!(requests.iter().any(|line| line == "GET ann "), "a login asks for nothing more: {requests:?}");
    assert!(requests.iter().any(|line| line.starts_with("POST ann repository:")), "{requests:?}");
    let mounts = "repository:acme/stack/null:pull,push repository:acme/label/null:pull";
    assert!(requests.iter().any(|line| line.ends_with(mounts)), "both ends of a mount: {requests:?}");
    assert!(requests.iter().any(|line| line.ends_with("registry:catalog:*")), "{requests:?}");
}

/// A program at a terminal of its own, which `script` makes.
struct Terminal {
    child: std::process::Child,
    stdin: std::process::ChildStdin,
    stdout: std::process::ChildStdout,
    shown: String,
}

impl Terminal {
    /// `None` where there is no `script`.
    fn start(ocimod: &Ocimod, line: &str) -> Option<Self> {
        let script = Path::new("/usr/bin/script");
        if !script.is_file() {
            return None;
        }
        let mut command = isolated(script, ocimod.home.path());
        command.current_dir(ocimod.home.path()).args(["-qec", line, "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Some(Self { child, stdin, stdout, shown: String::new() })
    }

    /// Types something once it is asked for.
    fn answer(&mut self, question: &str, typed: &str) {
        while !self.shown.contains(question) {
            let mut piece = [0; 1024];
            let length = self.stdout.read(&mut piece).unwrap();
            assert!(length > 0, "nothing more is shown: {}", self.shown);
            self.shown.push_str(&String::from_utf8_lossy(&piece[..length]));
        }
        self.stdin.write_all(typed.as_bytes()).unwrap();
    }

    /// Everything that is shown until the program ends.
    fn finish(mut self) -> String {
        self.stdout.read_to_string(&mut self.shown).unwrap();
        self.child.wait().unwrap();
        self.shown
    }
}

#[test]
fn a_password_that_is_typed_is_not_shown() {
    let Some(registry) = DockerRegistry::start_with_password() else { return };
    let (ocimod, address) = (Ocimod::new(), registry.address.as_str());
    let line = format!("{} login {address}; stty -a", env!("CARGO_BIN_EXE_ocimod"));
    let Some(mut terminal) = Terminal::start(&ocimod, &line) else { return };
    terminal.answer("User name for", &format!("{USER}\n"));
    terminal.answer("Password for", &format!("{PASSWORD}\n"));
    let shown = terminal.finish();
    assert!(shown.contains(&format!("logged in to {address} as {USER}")), "{shown}");
    assert!(!shown.contains(PASSWORD), "{shown}");
    assert!(shown.contains(" echo ") && !shown.contains("-echo "), "the terminal is as it was: {shown}");
    push(&ocimod, address).success();
}

#[test]
fn who_is_interrupted_while_typing_a_password_gets_the_terminal_back() {
    let ocimod = Ocimod::new();
    let line = format!("trap true INT; {} login r.example -u ann; stty -a", env!("CARGO_BIN_EXE_ocimod"));
    let Some(mut terminal) = Terminal::start(&ocimod, &line) else { return };
    // Ctrl-C.
    terminal.answer("Password for", "\u{3}");
    let shown = terminal.finish();
    assert!(shown.contains("interrupted"), "{shown}");
    assert!(shown.contains(" echo ") && !shown.contains("-echo "), "{shown}");
    assert!(!config(&ocimod).exists());
}
