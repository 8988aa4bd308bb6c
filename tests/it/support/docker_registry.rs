//! Real registries that are not ours: Debian's docker-registry (distribution 2.8), and distribution 3.

use std::path::Path;

use tempfile::TempDir;

use super::clients;
use super::process::{Server, isolated};
use super::tls::Certificate;
use super::token_service::TokenService;

/// A running registry with a folder of its own.
pub(crate) struct DockerRegistry {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    _folder: TempDir,
    _server: Server,
}

/// How one differs from the rest.
struct Setting {
    program: &'static str,
    address: &'static str,
    deletion: bool,
    /// Of the section `http`.
    http: String,
    /// The section `auth`.
    auth: String,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            program: "docker-registry",
            address: "127.0.0.1:0",
            deletion: true,
            http: String::new(),
            auth: String::new(),
        }
    }
}

impl DockerRegistry {
    /// An empty registry over plain http, open to everybody; `None` where the program is not there.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&Setting::default())
    }

    /// One where nothing can be deleted, as most registries are set up.
    pub(crate) fn start_without_deletion() -> Option<Self> {
        Self::start_with(&Setting { deletion: false, ..Setting::default() })
    }

    /// The same of distribution 3.
    pub(crate) fn start_v3() -> Option<Self> {
        Self::start_with(&Setting { program: "registry-v3", ..Setting::default() })
    }

    /// The same over TLS.
    pub(crate) fn start_tls(certificate: &Certificate) -> Option<Self> {
        Self::start_with(&Setting { http: tls(certificate), ..Setting::default() })
    }

    /// One over TLS that speaks to nobody without a certificate of that authority.
    pub(crate) fn start_for_certificates(certificate: &Certificate, authority: &Path) -> Option<Self> {
        let http = format!("{}    clientcas:\n      - {}\n", tls(certificate), authority.display());
        Self::start_with(&Setting { http, ..Setting::default() })
    }

    /// One that asks everybody for [`USER`] and [`PASSWORD`].
    pub(crate) fn start_with_password() -> Option<Self> {
        Self::start_with(&Setting { auth: htpasswd(), ..Setting::default() })
    }

    /// The same at `[::1]`.
    pub(crate) fn start_on_ipv6() -> Option<Self> {
        Self::start_with(&Setting { address: "[::1]:0", auth: htpasswd(), ..Setting::default() })
    }

    /// One that asks everybody for a token of this service.
    pub(crate) fn start_with_tokens(service: &TokenService) -> Option<Self> {
        Self::start_with(&Setting { auth: service.registry_section(), ..Setting::default() })
    }

    fn start_with(setting: &Setting) -> Option<Self> {
        let program = clients::find(setting.program)?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join("config.yml");
        std::fs::write(folder.path().join("htpasswd"), HTPASSWD).expect("the folder is ours");
        std::fs::write(&config, configuration(folder.path(), setting)).expect("the folder is ours");
        let mut command = isolated(&program, folder.path());
        // Distribution 3 looks for a collector of traces unless it is told that there is none.
        command.args(["serve".as_ref(), config.as_os_str()]).env("OTEL_TRACES_EXPORTER", "none");
        command.current_dir(folder.path());
        let mut server = Server::start(&mut command);
        let (host, _) = setting.address.rsplit_once(':').expect("an address has a port");
        let address = server.wait_for(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            let address = rest.split(['"', ',', ' ']).next()?;
            address.starts_with(&format!("{host}:")).then(|| address.to_owned())
        });
        Some(Self { address, _folder: folder, _server: server })
    }
}

fn tls(certificate: &Certificate) -> String {
    format!(
        "  tls:\n    certificate: {}\n    key: {}\n",
        certificate.certificate_file.display(),
        certificate.key_file.display()
    )
}

/// The file stands in the folder that the registry is started in.
fn htpasswd() -> String {
    "auth:\n  htpasswd:\n    realm: registry\n    path: htpasswd\n".to_owned()
}

/// Who may do everything in a registry with a password.
pub(crate) const USER: &str = "shim";
pub(crate) const PASSWORD: &str = "matrix-password";
/// The two of them as `htpasswd -B` has them.
const HTPASSWD: &str = "shim:$2y$05$abcdefghijklmnopqrstuufYOxMOMJdPHL5uXcq7VLIS12uDQf8JG\n";

fn configuration(folder: &Path, setting: &Setting) -> String {
    let Setting { address, deletion, http, auth, .. } = setting;
    format!(
        "version: 0.1\nlog:\n  level: info\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: {}\n  \
         delete:\n    enabled: {deletion}\n{auth}http:\n  addr: '{address}'\n{http}",
        folder.join("data").display()
    )
}
