//! `ocimod pull`: a module's files, into a folder.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::printer::Answer;
use crate::operations::pull;

/// Fetch a module and unpack it
///
/// A folder that is not empty is refused.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod pull acme/vpc/aws
  ocimod pull 'acme/vpc/aws@~> 1.2' -o vpc
  ocimod pull oci://ghcr.io/acme/modules/acme/vpc/aws:v1.2.0")]
pub struct Pull {
    /// The module, and which of its versions
    #[arg(value_name = "ADDRESS[@CONSTRAINT]")]
    pub address: String,
    /// Which versions will do: `1.2.0`, `~> 1.2`, `>= 1, < 2` [default: the newest release]
    #[arg(long, value_name = "CONSTRAINT")]
    pub version: Option<String>,
    /// The folder to write [default: the module's name]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// `address`, `version`, `reference`, `digest`, `folder`, `files`.
#[derive(Serialize)]
struct PullAnswer {
    address: String,
    version: Option<String>,
    reference: String,
    digest: String,
    folder: String,
    files: usize,
}

impl Answer for PullAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}", self.folder)
    }
}

impl Pull {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let (address, stored) = context.stored(&self.address, self.version.as_deref()).await?;
        let folder = self.output.clone().unwrap_or_else(|| PathBuf::from(address.short_name()));
        let pulled = pull::pull(&stored, &context.environment.absolute(&folder)).await?;
        context.printer.answer(&PullAnswer {
            address: address.to_string(),
            version: stored.version.as_ref().map(ToString::to_string),
            reference: pulled.reference,
            digest: pulled.digest.to_string(),
            folder: folder.display().to_string(),
            files: pulled.files,
        })?;
        Ok(ExitStatus::Done)
    }
}
