//! `ocimod logout`: removes every login for a registry.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::login::parse_registry;
use super::printer::Answer;
use crate::operations::login;

/// Log out of a registry: its login is removed from every file and credential helper
#[derive(Args, Clone, Debug)]
pub struct Logout {
    /// The registry, or one and the beginning of its repositories' names, as it was logged in to
    #[arg(value_name = "REGISTRY")]
    pub address: String,
    /// Only say what would be removed
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// `registry`, `files`, `helpers`, `left`, `removed`.
#[derive(Serialize)]
struct LogoutAnswer {
    registry: String,
    files: Vec<PathBuf>,
    helpers: Vec<String>,
    left: Vec<String>,
    removed: bool,
}

impl Answer for LogoutAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write as _;
        let files = self.files.iter().map(|file| file.display().to_string());
        let helpers = self.helpers.iter().map(|helper| format!("docker-credential-{helper}"));
        let places = files.chain(helpers).collect::<Vec<_>>().join(", ");
        let registry = &self.registry;
        match (places.is_empty(), self.removed) {
            (true, _) => writeln!(text, "there is no login for {registry}"),
            (false, true) => writeln!(text, "logged out of {registry}; removed from {places}"),
            (false, false) => writeln!(text, "the login for {registry} would be removed from {places}"),
        }
    }
}

impl Logout {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let (_, scope) = parse_registry(&self.address)?;
        let done = login::log_out(&context.credential_environment(), &scope, self.dry_run).await?;
        for left in &done.left {
            context.printer.warning(&format!("there is still a login for {left}"));
        }
        let is_known = !(done.files.is_empty() && done.helpers.is_empty());
        context.printer.answer(&LogoutAnswer {
            registry: scope.to_string(),
            files: done.files,
            helpers: done.helpers,
            left: done.left,
            removed: is_known && !self.dry_run,
        })?;
        Ok(ExitStatus::Done)
    }
}
