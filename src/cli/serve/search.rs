//! The options of `serve` for how modules without a repository of their own are found.

use std::time::Duration;

use clap::Args;

use crate::cli::Context;
use crate::cli::catalog_option::CatalogOption;
use crate::cli::duration::parse_duration;
use crate::cli::failure::Failure;
use crate::operations::pattern::Pattern;
use crate::operations::search;

/// Options for how modules without a repository of their own are found
#[derive(Args, Clone, Debug)]
pub struct SearchOptions {
    /// Where the names of repositories come from
    #[command(flatten)]
    pub catalog: CatalogOption,
    /// How often the registry is looked through
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub scan_every: Duration,
    /// Repositories whose word on the versions of every module is taken (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    pub trust_embedded: Vec<Pattern>,
}

impl SearchOptions {
    /// What they say.
    pub fn options(&self, context: &Context) -> Result<search::SearchOptions, Failure> {
        let catalog = self.catalog.source(context);
        catalog.check()?;
        // A look without any pause between it and the next would be all that the server does.
        let every = self.scan_every.max(Duration::from_secs(1));
        let trusted = self.trust_embedded.clone();
        Ok(search::SearchOptions { catalog, every, trusted, ..search::SearchOptions::default() })
    }
}
