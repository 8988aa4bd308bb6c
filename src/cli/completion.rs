//! `ocimod completion`: a script that completes our command line, made from the same types that parse it.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::failure::{ExitStatus, Failure};
use super::{Cli, Context};

/// Print a completion script for a shell
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  source <(ocimod completion bash)
  ocimod completion zsh > \"${fpath[1]}/_ocimod\"
  ocimod completion fish > ~/.config/fish/completions/ocimod.fish")]
pub struct Completion {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

impl Completion {
    pub(super) fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let mut command = Cli::command();
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        context.printer.raw(&script)?;
        Ok(ExitStatus::Done)
    }
}
