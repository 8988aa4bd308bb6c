//! The options of `serve` for who may do what.

use clap::Args;

/// Options for who may do what
#[derive(Args, Clone, Debug, Default)]
pub struct AccessOptions {}
