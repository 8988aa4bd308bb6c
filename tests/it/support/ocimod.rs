//! The program itself: run as users run it, with a home of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::process::{Answer, Server, isolated, run};

/// A home folder, a working folder, and the program in them.
pub(crate) struct Ocimod {
    pub(crate) home: TempDir,
}

impl Ocimod {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a temporary folder") }
    }

    /// A folder below the home, made where it is not there.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.home.path().join(name);
        std::fs::create_dir_all(&folder).expect("the folder is ours");
        folder
    }

    /// The program, not started yet.
    pub(crate) fn command(&self) -> Command {
        let mut command = isolated(Path::new(env!("CARGO_BIN_EXE_ocimod")), self.home.path());
        command.current_dir(self.home.path());
        command
    }

    /// Runs the program with these arguments.
    #[track_caller]
    pub(crate) fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Answer {
        run(self.command().args(arguments))
    }

    /// Pushes a folder and answers the JSON.
    #[track_caller]
    pub(crate) fn push(
        &self,
        registry: &str,
        folder: &Path,
        address: &str,
        more: &[&str],
    ) -> serde_json::Value {
        let mut command = self.command();
        command
            .args(["push", "--format", "json", "--registry", registry])
            .args(more)
            .arg(folder)
            .arg(address);
        run(&mut command).success().json()
    }

    /// Starts `ocimod serve` on a free port.
    #[track_caller]
    pub(crate) fn serve<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Serve {
        self.serve_with(&[], arguments)
    }

    /// The same with these variables.
    #[track_caller]
    pub(crate) fn serve_with<'a>(
        &self,
        variables: &[(&str, &str)],
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Serve {
        let address_file = self
            .home
            .path()
            .join(format!("address-{}", self.home.path().read_dir().map_or(0, Iterator::count)));
        let mut command = self.command();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--print-address"])
            .arg(&address_file)
            .args(arguments)
            .envs(variables.iter().copied());
        let server = Server::start(&mut command);
        let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
        let mut serve = Serve { address: String::new(), server };
        while serve.address.is_empty() {
            let written = std::fs::read_to_string(&address_file).unwrap_or_default();
            written.trim().clone_into(&mut serve.address);
            assert!(std::time::Instant::now() < end, "ocimod serve did not start:\n{}", serve.server.log());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        serve
    }
}

/// A running `ocimod serve`.
pub(crate) struct Serve {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    pub(crate) server: Server,
}
