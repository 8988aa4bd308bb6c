//! The options of `serve` for how modules without a repository of their own are found.

use clap::Args;

/// Options for how modules without a repository of their own are found
#[derive(Args, Clone, Debug, Default)]
pub struct SearchOptions {}
