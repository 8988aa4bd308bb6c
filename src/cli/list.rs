//! `ocimod list`: the modules of a registry, or the versions of one.

use clap::Args;

/// List the modules in the registry, or the versions of one
#[derive(Args, Clone, Debug)]
pub struct List {
    /// The module whose versions are listed
    #[arg(value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Give each version's digest, at the cost of a request for each
    #[arg(long)]
    pub digests: bool,
}
