//! `ocimod push`: pack, check, resolve dependencies, push.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::inspect::ShownDependency;
use super::module_options::ModuleOptions;
use super::printer::Answer;
use crate::operations::published::DependencyForm;
use crate::operations::push::{self, PushRequest};

/// Pack a module, check it, resolve its dependencies and push it
///
/// A version that is there with the same content is a success that changes nothing; with other content it is refused.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod push . acme/vpc/aws@1.2.0
  ocimod push terraform-aws-vpc --namespace acme --version 1.2.0
  cosign sign $(ocimod push . acme/vpc/aws@1.2.0)")]
pub struct Push {
    /// The module's folder, or a zip that `pack` wrote
    #[arg(value_name = "DIR|ZIP")]
    pub source: PathBuf,
    /// Its address [default: from the module file, else from the folder's name and `--namespace`]
    #[arg(value_name = "ADDRESS[@VERSION]")]
    pub address: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub module: ModuleOptions,
    /// How dependencies travel with the module [default: inline]
    #[arg(long, value_name = "FORM")]
    pub deps: Option<Dependencies>,
    /// Check everything and say what would be pushed
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// How dependencies travel with a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dependencies {
    /// As layers of the one manifest: a copy of the tag carries everything
    Inline,
    /// As layers of a second manifest at `bundle.TAG`: the `cue` of today reads the first
    Separate,
    /// Not at all
    None,
}

impl From<Dependencies> for DependencyForm {
    fn from(form: Dependencies) -> Self {
        match form {
            Dependencies::Inline => Self::Inline,
            Dependencies::Separate => Self::Separate,
            Dependencies::None => Self::None,
        }
    }
}

/// `address`, `version`, `reference`, `digest`, `created`, `dependencies`, `bytes_sent`, and in a dry run `files`.
#[derive(Serialize)]
struct PushAnswer {
    address: String,
    version: Option<String>,
    reference: Option<String>,
    digest: Option<String>,
    /// Whether the version is new; absent where no version is known.
    created: Option<bool>,
    dependencies: Vec<ShownDependency>,
    bytes_sent: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<String>>,
    /// `registry/repository@digest`, which is all of the answer as text.
    #[serde(skip)]
    pinned: Option<String>,
}

impl Answer for PushAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        match (&self.files, &self.pinned) {
            (Some(files), _) => files.iter().try_for_each(|file| writeln!(text, "{file}")),
            (None, Some(pinned)) => writeln!(text, "{pinned}"),
            (None, None) => Ok(()),
        }
    }
}

impl Push {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let choice = context.registry.choose_to_write(context, "push", self.dry_run)?;
        let routes = if self.dry_run {
            context.routes_to_read(&choice).await?
        } else {
            context.routes_to_write(&choice).await?
        };
        let request = PushRequest {
            source: context.environment.absolute(&self.source),
            naming: self.module.naming(context, self.address.as_deref())?,
            host_aliases: self.module.host_aliases()?,
            form: self.deps.map(Into::into),
            strict: self.module.strict,
            dry_run: self.dry_run,
            created: context.source_date()?,
        };
        let pushed = push::push(&routes, &request, context.printer.progress()).await?;
        if let (true, Some(reference)) = (self.dry_run, &pushed.reference) {
            context.printer.note(&if pushed.created {
                format!("would be pushed as {reference}")
            } else {
                format!("{reference} is there already with the same content, so a push would change nothing")
            });
        }
        context.printer.answer(&PushAnswer {
            address: pushed.address,
            version: pushed.version.map(|version| version.to_string()),
            created: pushed.reference.is_some().then_some(pushed.created),
            reference: pushed.reference,
            digest: pushed.digest.map(|digest| digest.to_string()),
            dependencies: pushed.dependencies.iter().map(ShownDependency::of).collect(),
            bytes_sent: pushed.bytes_sent,
            files: self.dry_run.then_some(pushed.files),
            pinned: pushed.pinned,
        })?;
        Ok(ExitStatus::Done)
    }
}
