//! `ocimod inspect`: what a registry knows of a module's version.

use clap::Args;

/// Show a module's manifest, module file, dependencies, inputs and outputs
#[derive(Args, Clone, Debug)]
pub struct Inspect {
    /// The module, and which of its versions
    #[arg(value_name = "ADDRESS[@CONSTRAINT]")]
    pub address: String,
    /// Which versions will do: `1.2.0`, `~> 1.2`, `>= 1, < 2` [default: the newest release]
    #[arg(long, value_name = "CONSTRAINT")]
    pub version: Option<String>,
}
