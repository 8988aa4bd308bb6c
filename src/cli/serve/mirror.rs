//! The options of `serve` for providers that the registry lacks.

use std::sync::Arc;

use clap::Args;

use super::super::Context;
use super::super::failure::Failure;
use crate::operations::providers::upstream::{Allowed, Upstream, UpstreamOptions};
use crate::operations::routes::Routes;

/// Options for providers that the registry lacks
#[derive(Args, Clone, Debug)]
pub struct MirrorOptions {
    /// Fetch providers that the registry lacks from their origins, and keep them there
    #[arg(long)]
    pub mirror_upstream: bool,
    /// The providers that may be fetched, such as `registry.opentofu.org/hashicorp/*` (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    pub mirror_allow: Vec<Allowed>,
}

impl MirrorOptions {
    /// What is looked up, where anything is.
    pub(super) fn options(&self, context: &Context) -> Result<Option<UpstreamOptions>, Failure> {
        match (self.mirror_upstream, self.mirror_allow.is_empty()) {
            (false, true) => Ok(None),
            (false, false) => {
                Err(Failure::usage("`--mirror-allow` says what `--mirror-upstream` may fetch, which is off")
                    .with_hint("give `--mirror-upstream` too"))
            }
            (true, true) => {
                Err(Failure::usage("`--mirror-upstream` does not say which providers may be fetched")
                    .with_hint("name them, such as `--mirror-allow 'registry.opentofu.org/hashicorp/*'`"))
            }
            (true, false) => {
                let proxies = context.proxies().map_err(|error| Failure::usage(error.to_string()))?;
                let allow = self.mirror_allow.clone();
                Ok(Some(UpstreamOptions { allow, proxies, folder: std::env::temp_dir() }))
            }
        }
    }
}

/// What looks origins up. What it fetches goes past any memory of what the registry has: another replica may have added to it since.
pub(super) fn upstream(options: Option<UpstreamOptions>, routes: &Routes) -> Option<Arc<Upstream>> {
    options.map(|options| Arc::new(Upstream::new(options, routes.clone())))
}
