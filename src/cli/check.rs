//! `ocimod check`: everything that a push would refuse.

use std::path::PathBuf;

use clap::Args;

use super::module_options::ModuleOptions;

/// Find everything that `push` would refuse
///
/// Dependencies are looked up too where a registry is named.
#[derive(Args, Clone, Debug)]
pub struct Check {
    /// The module's folder, or a zip
    #[arg(value_name = "DIR|ZIP")]
    pub source: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub module: ModuleOptions,
}
