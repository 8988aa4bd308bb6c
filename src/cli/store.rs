//! `ocimod store`: is a store on disk whole, and what of it can go.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::duration::parse_duration;
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::printer::Answer;
use crate::operations::store;
use crate::registry::directory::{CollectOptions, Damage, DamageKind, Removed};

/// Look after a store on disk, also while it is served
#[derive(Args, Clone, Debug)]
pub struct Store {
    #[command(subcommand)]
    verb: StoreVerb,
}

#[derive(Clone, Debug, Subcommand)]
enum StoreVerb {
    Verify(Verify),
    Gc(Gc),
}

/// Check every digest and every reference; the exit status is 1 where something is damaged
#[derive(Args, Clone, Debug)]
struct Verify {
    /// The store's folder, or a file with a layout
    #[arg(value_name = "DIR|FILE.tar", value_hint = ValueHint::AnyPath)]
    folder: PathBuf,
    /// Move contents with wrong bytes to `_damaged/`, so that a push brings them back
    #[arg(long)]
    repair: bool,
}

/// Remove what no tag reaches: blobs, manifests and uploads that were given up
#[derive(Args, Clone, Debug)]
struct Gc {
    /// The store's folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// Keep what is younger: longer than a push takes, or pushes that run now may fail and have to be repeated
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    grace: Duration,
    /// Remove nothing, and tell what would be removed
    #[arg(long, short = 'n')]
    dry_run: bool,
}

/// `folder`, `repositories`, `files`, `damage`; and `error` where there is any.
#[derive(Serialize)]
struct VerifyAnswer {
    folder: PathBuf,
    repositories: u64,
    files: u64,
    damage: Vec<ShownDamage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

#[derive(Serialize)]
struct ShownDamage {
    /// Null for a content that is kept for all repositories.
    repository: Option<String>,
    /// Null where it is `index.json`.
    digest: Option<String>,
    /// The tags that need it.
    tags: Vec<String>,
    /// `content`, `missing`, `manifest`, `index` or `unreadable`.
    kind: &'static str,
    detail: String,
    /// Where `--repair` put it.
    moved_to: Option<PathBuf>,
}

impl ShownDamage {
    fn of(damage: &Damage) -> Self {
        Self {
            repository: damage.repository.as_ref().map(ToString::to_string),
            digest: damage.digest.as_ref().map(ToString::to_string),
            tags: damage.tags.iter().map(ToString::to_string).collect(),
            kind: damage.kind.as_str(),
            detail: damage.detail.clone(),
            moved_to: damage.moved_to.clone(),
        }
    }
}

impl Answer for VerifyAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        for damage in &self.damage {
            write!(text, "{} {}", damage.kind, place(damage.repository.as_ref(), damage.digest.as_ref()))?;
            if !damage.tags.is_empty() {
                write!(text, " ({})", damage.tags.join(", "))?;
            }
            write!(text, ": {}", damage.detail)?;
            match &damage.moved_to {
                Some(path) => writeln!(text, "; moved to {}", path.display())?,
                None => writeln!(text)?,
            }
        }
        Ok(())
    }
}

/// `dry_run`, `removed`, `freed`, `skipped`.
#[derive(Serialize)]
struct GcAnswer {
    dry_run: bool,
    removed: Vec<ShownRemoved>,
    /// In bytes.
    freed: u64,
    skipped: Vec<Skipped>,
}

#[derive(Serialize)]
struct ShownRemoved {
    /// Null for what belongs to no repository.
    repository: Option<String>,
    /// Null for an upload.
    digest: Option<String>,
    /// `manifest`, `blob`, `content` or `upload`.
    kind: &'static str,
    /// In bytes.
    size: u64,
}

impl ShownRemoved {
    fn of(removed: &Removed) -> Self {
        Self {
            repository: removed.repository.as_ref().map(ToString::to_string),
            digest: removed.digest.as_ref().map(ToString::to_string),
            kind: removed.kind.as_str(),
            size: removed.size,
        }
    }
}

/// A repository where nothing was removed.
#[derive(Serialize)]
struct Skipped {
    repository: String,
    reason: String,
}

impl Answer for GcAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        self.removed.iter().try_for_each(|removed| {
            writeln!(text, "{} {}", removed.kind, place(removed.repository.as_ref(), removed.digest.as_ref()))
        })
    }
}

/// `repository@digest`, as far as there is any.
fn place(repository: Option<&String>, digest: Option<&String>) -> String {
    match (repository, digest) {
        (Some(repository), Some(digest)) => format!("{repository}@{digest}"),
        (Some(only), None) | (None, Some(only)) => only.clone(),
        (None, None) => "-".to_owned(),
    }
}

impl Store {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        match &self.verb {
            StoreVerb::Verify(verify) => verify.run(context).await,
            StoreVerb::Gc(gc) => gc.run(context).await,
        }
    }
}

impl Verify {
    async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let folder = context.environment.absolute(&self.folder);
        let may_be_repaired = folder.is_dir() && !self.repair;
        let found = store::verify(&folder, self.repair).await?;
        let damage: Vec<_> = found.damage.iter().map(ShownDamage::of).collect();
        let looked_at = format!("{} files in {} repositories", found.files, found.repositories);
        let failure = (!damage.is_empty()).then(|| {
            Failure::new(ErrorKind::Damaged, format!("{} of {looked_at} are damaged", damage.len()))
        });
        context.printer.answer(&VerifyAnswer {
            folder,
            repositories: found.repositories,
            files: found.files,
            damage,
            error: failure.as_ref().map(|failure| failure.as_json()["error"].clone()),
        })?;
        let Some(failure) = failure else {
            context.printer.note(&format!("{looked_at}, and no damage"));
            return Ok(ExitStatus::Done);
        };
        context.printer.note(failure.message());
        if may_be_repaired && found.damage.iter().any(|damage| damage.kind == DamageKind::Content) {
            context.printer.hint("`--repair` moves contents with wrong bytes aside; push them again then");
        }
        Ok(failure.kind().exit_status())
    }
}

impl Gc {
    async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let folder = context.environment.absolute(&self.folder);
        let options = CollectOptions { grace: self.grace, dry_run: self.dry_run };
        let collection = store::collect(&folder, options).await?;
        context.printer.answer(&GcAnswer {
            dry_run: self.dry_run,
            removed: collection.removed.iter().map(ShownRemoved::of).collect(),
            freed: collection.freed,
            skipped: collection
                .skipped
                .iter()
                .map(|(repository, reason)| Skipped {
                    repository: repository.to_string(),
                    reason: reason.clone(),
                })
                .collect(),
        })?;
        for (repository, reason) in &collection.skipped {
            context.printer.warning(&format!("nothing is removed from {repository}: {reason}"));
        }
        if !collection.skipped.is_empty() {
            context.printer.hint("`ocimod store verify` says what is damaged");
        }
        let verb = if self.dry_run { "would free" } else { "freed" };
        context.printer.note(&format!("{verb} {} bytes", collection.freed));
        Ok(ExitStatus::Done)
    }
}
