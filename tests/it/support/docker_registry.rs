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

    fn start_with(program: &str, http: &str) -> Option<Self> {
        let program = clients::find(program)?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join("config.yml");
        std::fs::write(&config, configuration(&folder.path().join("data"), http))
            .expect("the folder is ours");
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

fn configuration(data: &Path, http: &str) -> String {
    let (deletion, http) = if http == NO_DELETION { (false, "") } else { (true, http) };
    format!(
        "version: 0.1\nlog:\n  level: info\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: {}\n  \
         delete:\n    enabled: {deletion}\nhttp:\n  addr: 127.0.0.1:0\n{http}",
        data.display()
    )
}
