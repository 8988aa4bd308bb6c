//! `ocimod pack`: the zip that a push would send.

use std::path::PathBuf;

use clap::Args;

use super::module_options::ModuleOptions;

/// Write the zip that `push` would send
#[derive(Args, Clone, Debug)]
pub struct Pack {
    /// The module's folder
    #[arg(value_name = "DIR")]
    pub source: PathBuf,
    /// Its address [default: from the module file, else from the folder's name and `--namespace`]
    #[arg(value_name = "ADDRESS[@VERSION]")]
    pub address: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub module: ModuleOptions,
    /// The zip to write [default: the folder's name, with `.zip`]
    #[arg(long, short, value_name = "FILE.zip")]
    pub output: Option<PathBuf>,
}
