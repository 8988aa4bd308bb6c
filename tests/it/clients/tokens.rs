//! The registry clients push to our own `/v2/` and pull from it with a token, wherever they keep it.
//!
//! Docker's `config.json` is read by all of them: a password in `auths`, an identity token there, or the name of a program that
//! knows either. What each of them makes of it is in the table of docs/conformance.md.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::access::{Site, layout, token};
use crate::support::clients;
use crate::support::modules::{example, write};
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, isolated, run};

/// Every client that pushes and pulls.
const CLIENTS: [&str; 6] = ["crane", "oras", "regctl", "skopeo", "cue", "ocimod"];

/// Where a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// In `auths`, as a password.
    Password,
    /// In `auths`, as what is handed in for a token of the registry's own.
    IdentityToken,
    /// A program that is asked for the password, for this registry.
    Helper,
    /// The same for all registries.
    Store,
    /// A program that is asked, and says that it is an identity token.
    IdentityTokenOfHelper,
}

impl Kept {
    /// Whether a client can use it. `asks_for_bearer`: the registry names a place that gives out tokens, which is where an identity
    /// token is handed in; a password is taken by every registry.
    fn is_used_by(self, client: &str, asks_for_bearer: bool) -> bool {
        match self {
            Self::Password | Self::Helper => true,
            Self::IdentityToken => asks_for_bearer,
            // skopeo of Debian 12 knows helpers of one registry and no others.
            Self::Store => client != "skopeo",
            Self::IdentityTokenOfHelper => asks_for_bearer && client != "skopeo",
        }
    }
}

/// A home in which a client finds a token.
fn home_with(site: &Site, name: &str, client: &str, kept: Kept, token: &str) -> PathBuf {
    let home = site.ocimod.folder(name);
    let (address, helper) = (&site.serve.address, "acme");
    let auths = |entry: Value| json!({ "auths": { address: entry } });
    let config = match kept {
        Kept::Password => auths(json!({ "auth": STANDARD.encode(format!("anybody:{token}")) })),
        // Docker writes an empty password beside it, which skopeo wants and cue refuses.
        Kept::IdentityToken if client == "skopeo" => {
            auths(json!({ "auth": STANDARD.encode("anybody:"), "identitytoken": token }))
        }
        Kept::IdentityToken => auths(json!({ "identitytoken": token })),
        Kept::Helper => json!({ "credHelpers": { address: helper } }),
        Kept::Store | Kept::IdentityTokenOfHelper => json!({ "credsStore": helper }),
    };
    let user = if kept == Kept::IdentityTokenOfHelper { "<token>" } else { "anybody" };
    write(&home, &[(".docker/config.json", &config.to_string())]);
    // Docker's protocol for such programs: a word, the registry on standard input, an object on standard output.
    let answer = json!({ "ServerURL": address, "Username": user, "Secret": token });
    let known = json!({ address: user });
    let script = format!(
        "#!/bin/sh\ncase $1 in\nget) read -r server\n[ \"$server\" = '{address}' ] || {{ echo 'credentials not found in native keychain'; exit 1; }}\necho '{answer}' ;;\nlist) echo '{known}' ;;\n*) exit 1 ;;\nesac\n"
    );
    write(&home, &[(&format!("bin/docker-credential-{helper}"), &script)]);
    let program = home.join(format!("bin/docker-credential-{helper}"));
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    home
}

/// A client in a home, with the programs of that home.
fn client(program: &Path, home: &Path) -> Command {
    let mut command = isolated(program, home);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(home.join("bin")).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(path).expect("paths without a colon")).current_dir(home);
    command
}

/// Pushes something under a tag, and pulls it where that worked; answers how the last of both went.
fn push_and_pull(name: &str, home: &Path, registry: &str, repository: &str, tag: &str) -> Option<Answer> {
    let program = if name == "ocimod" { env!("CARGO_BIN_EXE_ocimod").into() } else { clients::find(name)? };
    let say = |arguments: &[&str]| run(client(&program, home).args(arguments));
    let reference = format!("{registry}/{repository}:{tag}");
    // What nothing else has pushed.
    let note = format!("{name} {tag} {}\n", home.display());
    write(home, &[("note.txt", &note)]);
    let pushed = match name {
        "crane" => {
            std::fs::write(home.join("layer.tar"), [note.as_bytes(), &[0; 2048]].concat())
                .expect("it is ours");
            say(&["append", "--insecure", "-f", "layer.tar", "-t", &reference])
        }
        "oras" => say(&["push", "--plain-http", &reference, "note.txt:text/plain"]),
        "regctl" => {
            let host = format!("reg={registry},tls=disabled");
            let kind = "application/vnd.acme.note";
            say(&[
                "--host",
                &host,
                "artifact",
                "put",
                "--artifact-type",
                kind,
                "--file",
                "note.txt",
                &reference,
            ])
        }
        "skopeo" => {
            let source = home.join("layout");
            std::fs::create_dir_all(&source).expect("the home is ours");
            layout(&source);
            let reference = format!("docker://{reference}");
            say(&["--insecure-policy", "copy", "--dest-tls-verify=false", "oci:layout:v1", &reference])
        }
        "cue" => {
            let module = format!(
                "module: \"acme.example/{name}@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n"
            );
            write(
                &home.join("module"),
                &[("cue.mod/module.cue", &module), ("a.cue", "package a\n\n#Note: string\n")],
            );
            cue(&program, home, "module", &format!("{registry}/{repository}"), &["mod", "publish", tag])
        }
        _ => {
            let module = example("terraform-null-label").display().to_string();
            let address = format!("{repository}/null@{}", tag.trim_start_matches('v'));
            say(&["push", "--registry", registry, &module, &address])
        }
    };
    if pushed.status != Some(0) {
        return Some(pushed);
    }
    Some(match name {
        "crane" => say(&["pull", "--insecure", &reference, "image.tar"]),
        "oras" => say(&["pull", "--plain-http", "-o", "out", &reference]),
        "regctl" => say(&["--host", &format!("reg={registry},tls=disabled"), "artifact", "get", &reference]),
        "skopeo" => {
            let reference = format!("docker://{reference}");
            say(&["--insecure-policy", "copy", "--src-tls-verify=false", &reference, "oci:layout:back"])
        }
        "cue" => {
            let module = format!(
                "module: \"acme.example/user@v1\"\nlanguage: version: \"v0.9.2\"\ndeps: \"acme.example/cue@v1\": v: \"{tag}\"\n"
            );
            let user = "package user\n\nimport \"acme.example/cue@v1:a\"\n\nnote: a.#Note & \"it came\"\n";
            write(&home.join("user"), &[("cue.mod/module.cue", &module), ("user.cue", user)]);
            let exported = cue(&program, home, "user", &format!("{registry}/{repository}"), &["export"]);
            assert!(exported.status != Some(0) || exported.stdout.contains("it came"), "{exported:?}");
            // What cue unpacks is read-only, and the home is to be removed.
            let _ = Command::new("chmod").args(["-R", "u+w"]).arg(home).status();
            exported
        }
        _ => {
            let address = format!("{repository}/null@{}", tag.trim_start_matches('v'));
            say(&["pull", "--registry", registry, &address, "-o", &format!("pulled-{tag}")])
        }
    })
}

fn cue(program: &Path, home: &Path, folder: &str, registry: &str, arguments: &[&str]) -> Answer {
    let mut command = client(program, home);
    command
        .current_dir(home.join(folder))
        .env("CUE_REGISTRY", format!("{registry}+insecure"))
        .env("CUE_CACHE_DIR", home.join("cue-cache"))
        .env("CUE_CONFIG_DIR", home.join("cue-config"));
    run(command.args(arguments))
}

fn site(anonymous: &str) -> Site {
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    Site::over(ocimod, &store, &["--anonymous", anonymous])
}

#[test]
fn a_token_is_found_wherever_docker_s_file_has_it() {
    for anonymous in ["none", "read"] {
        let site = site(anonymous);
        let token = token("push-acme");
        for name in CLIENTS {
            for (number, kept) in
                [Kept::Password, Kept::IdentityToken, Kept::Helper, Kept::Store, Kept::IdentityTokenOfHelper]
                    .into_iter()
                    .enumerate()
            {
                let home = home_with(&site, &format!("{name}-{kept:?}"), name, kept, &token);
                let repository = format!("acme/{name}");
                let tag = format!("v1.{number}.0");
                let Some(answer) = push_and_pull(name, &home, &site.serve.address, &repository, &tag) else {
                    continue;
                };
                let expected = kept.is_used_by(name, anonymous == "read");
                assert_eq!(
                    answer.status == Some(0),
                    expected,
                    "{name}, {kept:?}, strangers: {anonymous}: {answer:?}"
                );
            }
        }
    }
}

#[test]
fn a_token_opens_nothing_that_it_is_not_for() {
    for anonymous in ["none", "read"] {
        let site = site(anonymous);
        for name in CLIENTS {
            for (who, repository, expected) in [
                ("push-acme", "acme/own", true),
                ("push-acme", "other/theirs", false),
                ("read-acme", "acme/own", false),
                ("expired", "acme/own", false),
                ("nobody-s", "acme/own", false),
            ] {
                let home = home_with(&site, &format!("{name}-{who}"), name, Kept::Password, &token(who));
                let repository = format!("{repository}-{name}-{who}");
                let Some(answer) = push_and_pull(name, &home, &site.serve.address, &repository, "v1.0.0")
                else {
                    continue;
                };
                assert_eq!(
                    answer.status == Some(0),
                    expected,
                    "{name}, {who}, strangers: {anonymous}: {answer:?}"
                );
            }
        }
    }
}

#[test]
fn regctl_logs_in() {
    let Some(regctl) = clients::find("regctl") else { return };
    for anonymous in ["none", "read"] {
        let site = site(anonymous);
        let home = site.ocimod.folder("regctl");
        let host = format!("reg={},tls=disabled", site.serve.address);
        let log_in = |token: &str| {
            let arguments =
                ["--host", &host, "registry", "login", &site.serve.address, "-u", "anybody", "-p", token];
            run(client(&regctl, &home).args(arguments))
        };
        let wrong = log_in("wrong");
        assert!(wrong.all().contains("nauthorized"), "{wrong:?}");
        log_in(&token("push-acme")).success();
        let pushed = push_and_pull("regctl", &home, &site.serve.address, "acme/notes", "v1.0.0");
        pushed.expect("it is there").success();
    }
}
