//! `ocimod push`: pack, check, resolve dependencies, push.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::module_options::ModuleOptions;

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
