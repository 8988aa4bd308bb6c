//! `ocimod provider import`: a folder of providers into the registry.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde::Serialize;
use serde_json::Value;

use super::super::Context;
use super::super::failure::{ErrorKind, ExitStatus, Failure};
use super::super::printer::Answer;
use crate::operations::providers::import::{self, ImportedVersion};

/// Push every provider of a folder that `tofu providers mirror` wrote
///
/// All hosts, types, versions and platforms. The hashes in its JSON files are compared with the zips. What is in the registry already is
/// skipped.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:
  tofu providers mirror -platform=linux_amd64 mirror
  ocimod provider import mirror")]
pub(super) struct Import {
    /// The folder, with a folder for each host in it
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) folder: PathBuf,
    /// Check everything and say what would be pushed
    #[arg(long, short = 'n')]
    pub(super) dry_run: bool,
}

/// `dry_run`, `imported`, `skipped`, `failed`; and `error` where there are any.
#[derive(Serialize)]
struct ImportAnswer {
    /// Whether nothing was written: what is `imported` would be.
    dry_run: bool,
    imported: Vec<ShownVersion>,
    skipped: Vec<ShownVersion>,
    failed: Vec<FailedVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

#[derive(Serialize)]
struct ShownVersion {
    address: String,
    version: String,
    reference: String,
    /// Of the index.
    digest: String,
    /// Those that are new, or, of what was skipped, all that were found.
    platforms: Vec<String>,
    bytes_sent: u64,
}

impl ShownVersion {
    fn of(version: &ImportedVersion) -> Self {
        let pushed = &version.pushed;
        let is_new = pushed.is_created();
        let shown = pushed.targets.iter().filter(|target| target.created == is_new);
        Self {
            address: version.address.to_string(),
            version: version.version.to_string(),
            reference: pushed.reference.clone(),
            digest: pushed.digest.to_string(),
            platforms: shown.map(|target| target.stored.target.platform.to_string()).collect(),
            bytes_sent: pushed.bytes_sent,
        }
    }
}

#[derive(Serialize)]
struct FailedVersion {
    /// `ADDRESS@VERSION`; `ADDRESS` where its list of versions cannot be read, or the folder that cannot be
    provider: String,
    kind: ErrorKind,
    message: String,
}

impl Answer for ImportAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        self.imported
            .iter()
            .try_for_each(|it| writeln!(text, "{}@{}  {}", it.address, it.version, it.platforms.join(" ")))
    }
}

impl Import {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let choice = context.registry.choose_to_write(context, "provider import", self.dry_run)?;
        let routes = if self.dry_run {
            context.routes_to_read(&choice).await?
        } else {
            context.routes_to_write(&choice).await?
        };
        let folder = context.environment.absolute(&self.folder);
        let imported = import::import(&routes, &folder, self.dry_run, context.printer.progress()).await?;
        let mut first: Option<ErrorKind> = None;
        let failed: Vec<_> = imported
            .failed
            .into_iter()
            .map(|(provider, error)| {
                let failure = Failure::from(error);
                let (kind, message) = (failure.kind(), failure.message().to_owned());
                first.get_or_insert(kind);
                context.printer.warning(&format!("{provider} was left out: {message}"));
                FailedVersion { provider, kind, message }
            })
            .collect();
        let failure = first
            .map(|kind| Failure::new(kind, format!("versions that could not be imported: {}", failed.len())));
        let shown = |versions: &[ImportedVersion]| versions.iter().map(ShownVersion::of).collect::<Vec<_>>();
        let answer = ImportAnswer {
            dry_run: self.dry_run,
            imported: shown(&imported.imported),
            skipped: shown(&imported.skipped),
            failed,
            error: failure.as_ref().map(|failure| failure.as_json()["error"].clone()),
        };
        if !answer.skipped.is_empty() {
            context.printer.note(&format!("versions that were there already: {}", answer.skipped.len()));
        }
        if self.dry_run && !answer.imported.is_empty() {
            context.printer.note("would be imported:");
        }
        context.printer.answer(&answer)?;
        Ok(failure.map_or(ExitStatus::Done, |failure| context.printer.failure_beside_answer(&failure)))
    }
}
