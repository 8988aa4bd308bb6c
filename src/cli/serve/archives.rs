//! The options of `serve` for how zips reach the client.

use clap::Args;

/// Options for how zips reach the client
#[derive(Args, Clone, Debug, Default)]
pub struct ArchiveOptions {}
