//! `ocimod version`.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::printer::Answer;

/// Print the version of this program
#[derive(Args, Clone, Debug)]
pub struct Version {}

#[derive(Serialize)]
struct ProgramVersion {
    name: &'static str,
    version: &'static str,
}

impl Answer for ProgramVersion {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{} {}", self.name, self.version)
    }
}

impl Version {
    #[allow(clippy::unused_self)] // verbs are called alike
    pub(super) fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        context
            .printer
            .answer(&ProgramVersion { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") })?;
        Ok(ExitStatus::Done)
    }
}
