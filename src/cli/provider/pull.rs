//! `ocimod provider pull`: a provider's zips, into a folder.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::super::Context;
use super::super::failure::{ExitStatus, Failure};
use super::super::printer::Answer;
use super::{ShownTarget, parse_platforms, stored};
use crate::operations::providers::pull;

/// Fetch the zips of a provider
///
/// A folder that is not empty is refused.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod provider pull hashicorp/time
  ocimod provider pull 'hashicorp/time@~> 0.14' --platform linux_amd64 -o time")]
pub(super) struct Pull {
    /// The provider, and which of its versions
    #[arg(value_name = "ADDRESS[@CONSTRAINT]")]
    pub(super) address: String,
    /// Which versions will do: `1.2.0`, `~> 1.2`, `>= 1, < 2` [default: the newest release]
    #[arg(long, value_name = "CONSTRAINT")]
    pub(super) version: Option<String>,
    /// Only this platform (may be repeated) [default: all]
    #[arg(long, value_name = "OS_ARCH")]
    pub(super) platform: Vec<String>,
    /// The folder to write [default: the provider's type]
    #[arg(long, short, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
}

/// `address`, `version`, `reference`, `digest`, `folder`, `platforms`.
#[derive(Serialize)]
struct PullAnswer {
    address: String,
    version: String,
    reference: String,
    digest: String,
    folder: String,
    platforms: Vec<PulledPlatform>,
}

#[derive(Serialize)]
struct PulledPlatform {
    #[serde(flatten)]
    target: ShownTarget,
    /// The name of the zip in the folder.
    file: String,
}

impl Answer for PullAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}", self.folder)
    }
}

impl Pull {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let platforms = parse_platforms(&self.platform)?;
        let stored = stored(context, &self.address, self.version.as_deref()).await?;
        let folder = self.output.clone().unwrap_or_else(|| PathBuf::from(stored.address.kind()));
        let into = context.environment.absolute(&folder);
        let pulled = pull::pull(&stored, &platforms, &into, context.printer.progress()).await?;
        let shown = pulled.iter().map(|package| PulledPlatform {
            target: ShownTarget::of(&package.stored),
            file: package.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        });
        context.printer.answer(&PullAnswer {
            address: stored.address.to_string(),
            version: stored.version.to_string(),
            reference: stored.name(),
            digest: stored.digest.to_string(),
            folder: folder.display().to_string(),
            platforms: shown.collect(),
        })?;
        Ok(ExitStatus::Done)
    }
}
