//! Small modules to push, and roots that call them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{Answer, isolated, run};

/// Writes files below a folder.
pub(crate) fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder is ours");
        std::fs::write(path, text).expect("the folder is ours");
    }
}

/// An example of the documents.
pub(crate) fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples").join(name)
}

/// A root module that calls `source`, and an OpenTofu or Terraform that looks for `host` at a server over plain http.
pub(crate) struct Root<'a> {
    pub(crate) tofu: &'a Path,
    pub(crate) folder: PathBuf,
}

impl<'a> Root<'a> {
    pub(crate) fn new(tofu: &'a Path, folder: &Path, host: &str, server: &str, main: &str) -> Self {
        write(folder, &[("main.tf", main)]);
        let configuration = format!(
            "disable_checkpoint = true\nhost \"{host}\" {{\n  services = {{ \"modules.v1\" = \"http://{server}/v1/modules/\" }}\n}}\n"
        );
        std::fs::write(folder.join("client.tfrc"), configuration).expect("the folder is ours");
        Self { tofu, folder: folder.to_owned() }
    }

    /// The client with an environment of its own, in the root's folder.
    pub(crate) fn command(&self) -> Command {
        let mut command = isolated(self.tofu, &self.folder);
        command
            .current_dir(&self.folder)
            .env("TF_CLI_CONFIG_FILE", self.folder.join("client.tfrc"))
            .env("CHECKPOINT_DISABLE", "1")
            .env("TF_IN_AUTOMATION", "1");
        command
    }

    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Answer {
        run(self.command().args(arguments))
    }

    /// `init`, `apply`, and one output as JSON.
    #[track_caller]
    pub(crate) fn apply(&self, output: &str) -> serde_json::Value {
        self.run(&["init", "-no-color", "-input=false"]).success();
        self.run(&["apply", "-no-color", "-input=false", "-auto-approve"]).success();
        self.run(&["output", "-json", output]).success().json()
    }
}
