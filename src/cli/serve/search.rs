//! The options of `serve` for how modules without a repository of their own are found.

use std::time::Duration;

use clap::Args;

use crate::cli::Context;
use crate::cli::duration::parse_duration;
use crate::operations::catalog::CatalogSource;
use crate::operations::pattern::RepositoryPattern;
use crate::operations::search;

/// Options for how modules without a repository of their own are found
#[derive(Args, Clone, Debug)]
pub struct SearchOptions {
    /// What to look through for modules inside others: a file with addresses and patterns of repositories, a line each; `none` for
    /// nothing [default: the registry's own list]
    #[arg(long, value_name = "FILE|none")]
    pub catalog: Option<String>,
    /// How often the registry is looked through
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub scan_every: Duration,
    /// Repositories whose word on the versions of every module is taken (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    pub trust_embedded: Vec<RepositoryPattern>,
}

impl SearchOptions {
    /// What they say.
    pub fn options(&self, context: &Context) -> search::SearchOptions {
        let catalog = match self.catalog.as_deref() {
            None => CatalogSource::Registry,
            Some("none") => CatalogSource::None,
            Some(file) => CatalogSource::File(context.settings.folder_of("catalog").join(file)),
        };
        // A look without any pause between it and the next would be all that the server does.
        let every = self.scan_every.max(Duration::from_secs(1));
        let trusted = self.trust_embedded.clone();
        search::SearchOptions { catalog, every, trusted, ..search::SearchOptions::default() }
    }
}
