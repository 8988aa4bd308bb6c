//! Every way that a module can come to a client: each transport, with each sort of token, in each mode of archives, from each sort of
//! registry. Each client installs in every one of them; in being refused they take turns.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::support::clients;
use crate::support::docker_registry::{DockerRegistry, PASSWORD, USER};
use crate::support::modules::{Root, example};
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{Answer, run};

/// How a client speaks to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    /// Plain http, to where a `host` block says.
    HostBlock,
    /// https, to where discovery leads, by a certificate that is told of.
    Discovery,
}

/// What the client has for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Right,
    Wrong,
    Absent,
}

/// What the server keeps its modules in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Embedded,
    Open,
    WithPassword,
}

const MODES: [&str; 4] = ["auto", "proxy", "redirect", "direct"];

/// A registry with the example in it, and a home where its password is known and a token was made.
struct Site {
    ocimod: Ocimod,
    setting: String,
    token: String,
    _registry: Option<DockerRegistry>,
}

impl Site {
    /// `None` where the registry's program is not there.
    fn start(kind: Kind) -> Option<Self> {
        let ocimod = Ocimod::new();
        let (setting, registry) = match kind {
            Kind::Embedded => (format!("dir:{}", ocimod.folder("store").display()), None),
            Kind::Open => remote(DockerRegistry::start()?),
            Kind::WithPassword => {
                let (setting, registry) = remote(DockerRegistry::start_with_password()?);
                let address = registry.as_ref().map(|registry| registry.address.as_str());
                let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
                let file = json!({ "auths": { address.unwrap_or_default(): { "auth": auth } } });
                std::fs::write(ocimod.folder(".docker").join("config.json"), file.to_string())
                    .expect("the folder is ours");
                (setting, registry)
            }
        };
        ocimod.push(&setting, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
        let new = ["token", "new", "team", "--allow", "read", "--repositories", "acme/*"];
        let made = ocimod.run(new.into_iter().chain(["--access", "access.toml"])).success();
        let token = made.stdout.trim_end().to_owned();
        Some(Self { ocimod, setting, token, _registry: registry })
    }

    fn serve(&self, transport: Transport, mode: &str) -> Serve {
        let mut arguments = vec!["--registry", &self.setting, "--access", "access.toml", "--archives", mode];
        if transport == Transport::Discovery {
            arguments.extend(["--tls-self-signed", "tls"]);
        }
        self.ocimod.serve(arguments)
    }
}

fn remote(registry: DockerRegistry) -> (String, Option<DockerRegistry>) {
    (format!("{}+insecure", registry.address), Some(registry))
}

/// One client in one place.
struct Cell<'a> {
    root: Root<'a>,
    trusted: PathBuf,
    variables: Vec<(String, String)>,
}

impl<'a> Cell<'a> {
    fn new(
        site: &Site,
        serve: &Serve,
        tofu: &'a Path,
        name: &str,
        transport: Transport,
        token: Token,
    ) -> Self {
        let host = match transport {
            Transport::HostBlock => "modules.internal",
            Transport::Discovery => &serve.address,
        };
        let main = format!(
            "module \"it\" {{\n  source = \"{host}/acme/label/null\"\n  version = \"~> 1.0\"\n  namespace = \"acme\"\n  \
             stage = \"test\"\n  name = \"shop\"\n}}\n\noutput \"it\" {{\n  value = module.it.id\n}}\n"
        );
        // The block of a host that nobody asks for, where discovery finds the server.
        let in_block = if transport == Transport::HostBlock { host } else { "unused.example" };
        let root = Root::new(tofu, &site.ocimod.folder(name), in_block, &serve.address, &main);
        let mut variables = Vec::new();
        let shown = match token {
            Token::Right => Some(site.token.as_str()),
            Token::Wrong => Some("ocimod_0000000000000000000000000000000000000000000"),
            Token::Absent => None,
        };
        match (shown, transport) {
            (None, _) => {}
            // A variable's name can hold no port.
            (Some(shown), Transport::HostBlock) => {
                variables.push(("TF_TOKEN_modules_internal".to_owned(), shown.to_owned()));
            }
            (Some(shown), Transport::Discovery) => {
                let file = root.folder.join("client.tfrc");
                let text = std::fs::read_to_string(&file).expect("it is ours");
                let text = format!("{text}credentials \"{host}\" {{\n  token = \"{shown}\"\n}}\n");
                std::fs::write(&file, text).expect("the folder is ours");
            }
        }
        let trusted = match transport {
            Transport::HostBlock => PathBuf::from("/dev/null"),
            Transport::Discovery => site.ocimod.home.path().join("tls/ca-bundle.pem"),
        };
        Self { root, trusted, variables }
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        let mut command = self.root.command();
        command.env("SSL_CERT_FILE", &self.trusted).args(arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        run(&mut command)
    }

    /// Asserts that the module is installed and does its work.
    #[track_caller]
    fn works(&self, name: &str) {
        self.run(&["init", "-no-color", "-input=false"]).success();
        self.run(&["apply", "-no-color", "-input=false", "-auto-approve"]).success();
        assert_eq!(self.run(&["output", "-json", "it"]).success().json(), json!("acme-test-shop"), "{name}");
    }

    /// Asserts that the client gives up, says why, and has nothing of the module.
    #[track_caller]
    fn is_refused(&self, name: &str) {
        let answer = self.run(&["init", "-no-color", "-input=false"]).fails_with(1);
        let said = answer.all().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("401"), "{name}: {said}");
        let left = files_below(&self.root.folder.join(".terraform/modules"));
        let left: Vec<_> = left.iter().filter(|file| !file.ends_with("modules.json")).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

/// Walks through everything with one sort of registry.
fn walk(kind: Kind) {
    let tofus = clients::tofus();
    let Some(site) = Site::start(kind).filter(|_| !tofus.is_empty()) else { return };
    let mut turn = kind as usize;
    for transport in [Transport::HostBlock, Transport::Discovery] {
        for mode in MODES {
            let serve = site.serve(transport, mode);
            // Clients have no password for the registry, and are given none: `direct` is for where everybody may read.
            let is_locked = mode == "direct" && kind == Kind::WithPassword;
            let named = |tofu: &Path, token| {
                let client = tofu.file_name().unwrap_or_default().to_string_lossy();
                format!("{client}-{transport:?}-{mode}-{token:?}")
            };
            for tofu in &tofus {
                let name = named(tofu, Token::Right);
                let cell = Cell::new(&site, &serve, tofu, &name, transport, Token::Right);
                if is_locked { cell.is_refused(&name) } else { cell.works(&name) }
            }
            for token in [Token::Wrong, Token::Absent] {
                let tofu = &tofus[turn % tofus.len()];
                turn += 1;
                let name = named(tofu, token);
                Cell::new(&site, &serve, tofu, &name, transport, token).is_refused(&name);
            }
        }
    }
}

#[test]
fn from_the_embedded_registry() {
    walk(Kind::Embedded);
}

#[test]
fn from_a_registry_that_everybody_reads() {
    walk(Kind::Open);
}

#[test]
fn from_a_registry_with_a_password() {
    walk(Kind::WithPassword);
}
