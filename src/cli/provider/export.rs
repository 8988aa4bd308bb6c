//! `ocimod provider export`: providers as a static site.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde::Serialize;

use super::super::Context;
use super::super::failure::{ExitStatus, Failure};
use super::super::printer::Answer;
use super::list::explain_no_catalog;
use super::parse_provider;
use crate::operations::providers::export;

/// Write providers as the files of a network mirror, for any static host
///
/// A second run writes the same bytes, and fetches only what is not there. Nothing is removed.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod provider export site
  ocimod provider export site hashicorp/time hashicorp/tls")]
pub(super) struct Export {
    /// The folder to write
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) folder: PathBuf,
    /// Only these providers [default: all]
    #[arg(value_name = "ADDRESS")]
    pub(super) addresses: Vec<String>,
}

/// `folder`, `providers`, `files`, `written`.
#[derive(Serialize)]
struct ExportAnswer {
    folder: String,
    providers: Vec<ShownProvider>,
    files: usize,
    /// The others were there.
    written: usize,
}

#[derive(Serialize)]
struct ShownProvider {
    provider: String,
    versions: usize,
}

impl Answer for ExportAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}", self.folder)
    }
}

impl Export {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let mut addresses = Vec::new();
        for text in &self.addresses {
            let (address, constraint) = parse_provider(text)?;
            if constraint.is_some() {
                return Err(Failure::usage(format!(
                    "`{text}` names a version, and every version is written"
                ))
                .with_hint(format!("write `{address}`")));
            }
            addresses.push(address);
        }
        let choice = context.registry.choose(context)?;
        choice.expect_folders()?;
        let routes = context.routes_to_read(&choice).await?;
        let folder = context.environment.absolute(&self.folder);
        let exported = export::export(&routes, &addresses, &folder, context.printer.progress())
            .await
            .map_err(|error| choice.explain(explain_no_catalog(error.into())))?;
        if exported.providers.is_empty() {
            context.printer.note("there are no providers in the registry");
        }
        let providers = exported
            .providers
            .iter()
            .map(|(address, versions)| ShownProvider { provider: address.to_string(), versions: *versions });
        context.printer.answer(&ExportAnswer {
            folder: self.folder.display().to_string(),
            providers: providers.collect(),
            files: exported.files,
            written: exported.written,
        })?;
        Ok(ExitStatus::Done)
    }
}
