//! `ocimod provider inspect`: what a registry knows of a provider's version.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::super::Context;
use super::super::failure::{ExitStatus, Failure};
use super::super::printer::{Answer, visible_line};
use super::{ShownTarget, stored};
use crate::operations::yank;

/// Show a provider's platforms, with the hashes of their zips
#[derive(Args, Clone, Debug)]
pub(super) struct Inspect {
    /// The provider, and which of its versions
    #[arg(value_name = "ADDRESS[@CONSTRAINT]")]
    pub(super) address: String,
    /// Which versions will do: `1.2.0`, `~> 1.2`, `>= 1, < 2` [default: the newest release]
    #[arg(long, value_name = "CONSTRAINT")]
    pub(super) version: Option<String>,
}

/// `address`, `version`, `yanked`, `reason`, `digest`, `kind`, `reference`, `manifest`, `platforms`.
#[derive(Serialize)]
struct InspectAnswer {
    address: String,
    version: String,
    yanked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Of the index.
    digest: String,
    kind: &'static str,
    reference: String,
    /// The index.
    manifest: Value,
    platforms: Vec<ShownTarget>,
}

impl Answer for InspectAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let mut line = |label: &str, value: &str| writeln!(text, "{label:<13} {value}");
        line("address", &self.address)?;
        line("version", &self.version)?;
        if self.yanked {
            line("yanked", &self.reason.as_deref().map_or("yes".into(), visible_line))?;
        }
        line("kind", self.kind)?;
        line("reference", &self.reference)?;
        line("digest", &self.digest)?;
        for it in &self.platforms {
            writeln!(text, "{:<13} {} bytes", it.platform, it.size)?;
            for hash in [Some(&it.zh), it.h1.as_ref()].into_iter().flatten() {
                writeln!(text, "  {hash}")?;
            }
        }
        Ok(())
    }
}

impl Inspect {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let stored = stored(context, &self.address, self.version.as_deref()).await?;
        let targets = stored.targets(&[]).await?;
        let yank = yank::of_provider(&stored).await?;
        context.printer.answer(&InspectAnswer {
            address: stored.address.to_string(),
            version: stored.version.to_string(),
            yanked: yank.is_some(),
            reason: yank.flatten().map(|reason| reason.to_string()),
            digest: stored.digest.to_string(),
            kind: "provider",
            reference: stored.name(),
            // It was read before, so this cannot fail; an index that is none would have been refused.
            manifest: serde_json::from_slice(&stored.bytes).unwrap_or_default(),
            platforms: targets.iter().map(ShownTarget::of).collect(),
        })?;
        Ok(ExitStatus::Done)
    }
}
