//! The options of `serve` for what is kept of a registry's answers, and for how long.

use clap::Args;

/// Options for what is kept of a registry's answers, and for how long
#[derive(Args, Clone, Debug, Default)]
pub struct CacheOptions {}
