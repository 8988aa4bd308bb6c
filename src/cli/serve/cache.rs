//! The options of `serve` for what is kept of a registry's answers, and for how long.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueHint};

use crate::cli::duration::parse_duration;
use crate::cli::failure::{ErrorKind, Failure};
use crate::cli::size::parse_size;
use crate::cli::{Context, RegistryChoice};
use crate::operations::registry_setting::RegistryLocation;
use crate::registry::{self, Cache};

/// Options for what is kept of a registry's answers, and for how long
#[derive(Args, Clone, Debug)]
pub struct CacheOptions {
    /// How long a list of tags counts before the registry is asked again
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub cache_for: Duration,
    /// How old a copy may be that stands in for a registry that is down or slow
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    pub stale_for: Duration,
    /// How much memory the copies take
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub cache_size: u64,
    /// Where zips and manifests are kept [default: the user's cache folder]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// How much of the disk the zips take
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = parse_size)]
    pub cache_disk: u64,
}

impl CacheOptions {
    fn with_folder(&self, folder: Option<PathBuf>) -> registry::CacheOptions {
        registry::CacheOptions {
            fresh: self.cache_for,
            stale: self.stale_for,
            memory: self.cache_size,
            folder,
            disk: self.cache_disk,
            ..registry::CacheOptions::default()
        }
    }

    /// The cache of a server, where one of its registries is elsewhere: a folder needs none.
    ///
    /// A folder that was named has to be usable. Where none was, and the user's own is not, nothing is kept on disk.
    pub(super) fn open(
        &self,
        context: &Context,
        choice: &RegistryChoice,
    ) -> Result<Option<Arc<Cache>>, Failure> {
        let setting = choice.setting()?;
        if !setting.locations().any(|(_, location)| matches!(location, RegistryLocation::Remote { .. })) {
            return Ok(None);
        }
        let failed = |error: registry::RegistryError| Failure::new(ErrorKind::Failed, error.to_string());
        if let Some(folder) = &self.cache_dir {
            let folder = context.environment.absolute(folder);
            return match Cache::open(self.with_folder(Some(folder))) {
                Ok(cache) => Ok(Some(cache)),
                Err(error) => Err(failed(error).with_hint("name another folder with `--cache-dir`")),
            };
        }
        let folder = context.environment.cache_folder();
        if folder.is_none() {
            tracing::warn!(
                "there is no folder for a cache, so nothing is kept on disk; name one with `--cache-dir`"
            );
        }
        match Cache::open(self.with_folder(folder)) {
            Err(error) => {
                tracing::warn!(
                    "{error}; nothing is kept on disk, unless another folder is named with `--cache-dir`"
                );
                Cache::open(self.with_folder(None)).map(Some).map_err(failed)
            }
            cache => cache.map(Some).map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cache: CacheOptions,
    }

    #[test]
    fn what_nobody_says_is_what_the_registry_says() {
        let Line { cache } = Line::parse_from(["x"]);
        assert_eq!(cache.with_folder(None), registry::CacheOptions::default());
        let Line { cache } =
            Line::parse_from(["x", "--cache-for", "0", "--stale-for=7d", "--cache-disk", "1GiB"]);
        assert_eq!((cache.cache_for, cache.stale_for), (Duration::ZERO, Duration::from_hours(168)));
        assert_eq!(cache.with_folder(Some("a".into())).disk, 1 << 30);
    }
}
