//! The option for where the names of repositories come from, of every verb that looks through a registry.

use clap::{Arg, Args};

use super::Context;
use crate::operations::catalog::CatalogSource;

/// The help of `--catalog` for verbs that list what there is: `none` says nothing to them.
pub(super) fn for_lists(catalog: Arg) -> Arg {
    let help = "What to look through: a file with addresses of modules and patterns of repositories, a line each [default: the registry's \
                own list]";
    catalog.value_name("FILE").help(help)
}

/// Options for where the names of repositories come from
#[derive(Args, Clone, Debug, Default)]
pub struct CatalogOption {
    /// What to look through: a file with addresses of modules and patterns of repositories, a line each; `none` looks for no module
    /// inside others [default: the registry's own list]
    #[arg(long, value_name = "FILE|none")]
    pub catalog: Option<String>,
}

impl CatalogOption {
    /// The same for who lists what there is: what says that a server shall not search does not say that there is nothing to list.
    pub(super) fn repositories(&self, context: &Context) -> CatalogSource {
        match self.source(context) {
            CatalogSource::None => CatalogSource::Registry,
            source => source,
        }
    }

    /// What it says.
    pub(super) fn source(&self, context: &Context) -> CatalogSource {
        match self.catalog.as_deref() {
            None => CatalogSource::Registry,
            Some("none") => CatalogSource::None,
            Some(file) => CatalogSource::File(context.settings.folder_of("catalog").join(file)),
        }
    }
}
