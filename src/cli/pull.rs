//! `ocimod pull`: a module's files, into a folder.

use std::path::PathBuf;

use clap::Args;

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
