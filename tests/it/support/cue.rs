//! `cue` with a cache and a configuration of its own, and modules for it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::clients;
use super::modules::write;
use super::process::{Answer, isolated, run};

/// The client. Its cache goes with the value.
pub(crate) struct Cue {
    program: PathBuf,
    home: TempDir,
}

impl Cue {
    /// One that has seen nothing yet; `None` where there is no `cue`.
    pub(crate) fn new() -> Option<Self> {
        Some(Self { program: clients::find("cue")?, home: tempfile::tempdir().expect("a temporary folder") })
    }

    /// What it keeps.
    pub(crate) fn cache(&self) -> PathBuf {
        self.home.path().join("cache")
    }

    /// In a folder, with `CUE_REGISTRY`.
    pub(crate) fn command(&self, registry: &str, folder: &Path) -> Command {
        let mut command = isolated(&self.program, self.home.path());
        command
            .current_dir(folder)
            .env("CUE_REGISTRY", registry)
            .env("CUE_CACHE_DIR", self.cache())
            .env("CUE_CONFIG_DIR", self.home.path().join("config"))
            .env("DOCKER_CONFIG", self.home.path().join("no-docker-config"));
        command
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run(&self, registry: &str, folder: &Path, arguments: &[&str]) -> Answer {
        run(self.command(registry, folder).args(arguments))
    }
}

impl Drop for Cue {
    /// The cache has folders that may not be written, which would keep the test's own folder from being removed.
    fn drop(&mut self) {
        let _ = Command::new("chmod").args(["-R", "u+w"]).arg(self.home.path()).status();
    }
}

/// Writes a module: its path with a major version, what it needs, and its files.
pub(crate) fn module(folder: &Path, path: &str, deps: &[(&str, &str)], files: &[(&str, &str)]) {
    let mut file = format!("module: \"{path}\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n");
    for (path, version) in deps {
        // Fields of one label unify. Writing to a string cannot fail.
        let _ = writeln!(file, "deps: \"{path}\": v: \"{version}\"");
    }
    write(folder, &[("cue.mod/module.cue", &file)]);
    write(folder, files);
}
