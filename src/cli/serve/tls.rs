//! The options of `serve` for certificates, and the path in front of every route.

use clap::Args;

/// Options for certificates, and the path in front of every route
#[derive(Args, Clone, Debug, Default)]
pub struct TlsOptions {}
