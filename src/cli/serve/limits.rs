//! The options of `serve` for what keeps the server within bounds.

use clap::Args;

/// Options for what keeps the server within bounds
#[derive(Args, Clone, Debug, Default)]
pub struct LimitOptions {}
