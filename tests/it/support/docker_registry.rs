//! Real registries that are not ours: Debian's docker-registry (distribution 2.8), and distribution 3.

use std::path::Path;

use tempfile::TempDir;

use super::clients;
use super::process::{Server, isolated};
use super::tls::Certificate;

/// A running registry with a folder of its own.
pub(crate) struct DockerRegistry {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    _folder: TempDir,
    _server: Server,
}

impl DockerRegistry {
    /// An empty registry over plain http, open to everybody; `None` where the program is not there.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with("docker-registry", "")
    }

    /// One where nothing can be deleted, as most registries are set up.
    pub(crate) fn start_without_deletion() -> Option<Self> {
        Self::start_with("docker-registry", NO_DELETION)
    }

    /// The same of distribution 3.
    pub(crate) fn start_v3() -> Option<Self> {
        Self::start_with("registry-v3", "")
    }

    /// The same over TLS.
    pub(crate) fn start_tls(certificate: &Certificate) -> Option<Self> {
        let tls = format!(
            "  tls:\n    certificate: {}\n    key: {}\n",
            certificate.certificate_file.display(),
            certificate.key_file.display()
        );
        Self::start_with("docker-registry", &tls)
    }

    /// One that asks everybody for [`USER`] and [`PASSWORD`].
    pub(crate) fn start_with_password() -> Option<Self> {
        Self::start_with("docker-registry", PASSWORD_NEEDED)
    }

    fn start_with(program: &str, http: &str) -> Option<Self> {
        let program = clients::find(program)?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join("config.yml");
        std::fs::write(folder.path().join("htpasswd"), HTPASSWD).expect("the folder is ours");
        std::fs::write(&config, configuration(folder.path(), http)).expect("the folder is ours");
        let mut command = isolated(&program, folder.path());
        // Distribution 3 looks for a collector of traces unless it is told that there is none.
        command.args(["serve".as_ref(), config.as_os_str()]).env("OTEL_TRACES_EXPORTER", "none");
        let mut server = Server::start(&mut command);
        let address = server.wait_for(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            let address = rest.split(['"', ',', ' ']).next()?;
            address.starts_with("127.0.0.1:").then(|| address.to_owned())
        });
        Some(Self { address, _folder: folder, _server: server })
    }
}

/// Stands for itself: it is no part of `http`.
const NO_DELETION: &str = "no deletion";

/// Likewise.
const PASSWORD_NEEDED: &str = "a password is needed";

/// Who may do everything in a registry with a password.
pub(crate) const USER: &str = "shim";
pub(crate) const PASSWORD: &str = "matrix-password";
/// The two of them as `htpasswd -B` has them.
const HTPASSWD: &str = "shim:$2y$05$abcdefghijklmnopqrstuufYOxMOMJdPHL5uXcq7VLIS12uDQf8JG\n";

fn configuration(folder: &Path, setting: &str) -> String {
    let deletion = setting != NO_DELETION;
    let http = if [NO_DELETION, PASSWORD_NEEDED].contains(&setting) { "" } else { setting };
    let auth = if setting == PASSWORD_NEEDED {
        format!("auth:\n  htpasswd:\n    realm: registry\n    path: {}\n", folder.join("htpasswd").display())
    } else {
        String::new()
    };
    format!(
        "version: 0.1\nlog:\n  level: info\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: {}\n  \
         delete:\n    enabled: {deletion}\n{auth}http:\n  addr: 127.0.0.1:0\n{http}",
        folder.join("data").display()
    )
}
