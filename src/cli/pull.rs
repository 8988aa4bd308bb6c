//! `ocimod pull`: a module's files, into a folder.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::lock_options::{LockAnswer, LockOptions};
use super::module_options::parse_address;
use super::printer::Answer;
use crate::module::{Address, CuePath};
use crate::operations::closure::{self, Needed};
use crate::operations::lock::Lock;
use crate::operations::published::{self, StoredModule};
use crate::operations::{cue_cache, pull};

/// Fetch a module and unpack it
///
/// A folder that is not empty is refused. With `--into-cue-cache` the module and every module that it needs go where `cue` looks before it
/// asks a registry, and the module is unpacked only where `--output` says so.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod pull acme/vpc/aws
  ocimod pull 'acme/vpc/aws@~> 1.2' -o vpc
  ocimod pull example.com/net/vpc@v1 --into-cue-cache && CUE_REGISTRY=none cue eval .
  ocimod pull oci://ghcr.io/acme/modules/acme/vpc/aws:v1.2.0")]
pub struct Pull {
    /// The module, and which of its versions
    #[arg(value_name = "ADDRESS[@CONSTRAINT]")]
    pub address: String,
    /// Which versions will do: `1.2.0`, `~> 1.2`, `>= 1, < 2` [default: the newest release]
    #[arg(long, value_name = "CONSTRAINT")]
    pub version: Option<String>,
    /// The folder to write [default: the module's name]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Put the module, and what it needs, into the cache of `cue` (`CUE_CACHE_DIR`)
    #[arg(long)]
    pub into_cue_cache: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lock: LockOptions,
    /// Refuse to go on where the lock is not there yet
    #[arg(long)]
    pub locked: bool,
}

/// `address`, `version`, `reference`, `digest`; `folder`, `files` where it was unpacked; `cached` where it went into the cache of `cue`; `lock`
/// where there is one.
#[derive(Serialize)]
struct PullAnswer {
    address: String,
    version: Option<String>,
    reference: String,
    digest: String,
    #[serde(flatten)]
    unpacked: Option<Unpacked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<Vec<CachedAnswer>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<LockAnswer>,
}

#[derive(Serialize)]
struct Unpacked {
    folder: String,
    files: usize,
}

/// A module in the cache of `cue`: `created` is false where the same was there.
#[derive(Serialize)]
struct CachedAnswer {
    module: String,
    digest: String,
    created: bool,
}

impl Answer for PullAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        for cached in self.cached.iter().flatten() {
            writeln!(text, "{}", cached.module)?;
        }
        self.unpacked.as_ref().map_or(Ok(()), |unpacked| writeln!(text, "{}", unpacked.folder))
    }
}

impl Pull {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        if let Address::Provider(provider) = parse_address(&self.address)?.address {
            return Err(Failure::usage(format!("`{}` is a provider, and not a module", self.address))
                .with_hint(format!("write `ocimod provider pull {provider}`")));
        }
        let lock = self.lock.open(context)?;
        match (&lock, self.locked) {
            (Some(_), true) if self.lock.update_lock => {
                return Err(Failure::usage("`--locked` and `--update-lock` contradict each other"));
            }
            (Some(file), true) => LockOptions::expect_there(file)?,
            (None, true) => {
                return Err(Failure::usage("`--locked` does not say which lock")
                    .with_hint("name it with `--lock FILE`"));
            }
            (_, false) => {}
        }
        let (address, stored, routes) =
            context.stored_among(&self.address, self.version.as_deref(), lock.as_ref()).await?;
        let needed = if self.into_cue_cache {
            cue_cache::everything(&stored, &routes).await?
        } else if lock.is_some() {
            closure::everything(&stored, &self.path(&stored).await?, &routes).await?
        } else {
            Vec::new()
        };
        let found = lock.as_ref().and_then(|_| Lock::of(&needed));
        if let (Some(lock), Some(found)) = (&lock, &found) {
            lock.verify(found)?;
        }
        let cached =
            if self.into_cue_cache { Some(Self::cache(context, &stored, needed).await?) } else { None };
        let folder = match (&self.output, self.into_cue_cache) {
            (Some(folder), _) => Some(folder.clone()),
            (None, true) => None,
            (None, false) => Some(PathBuf::from(address.short_name())),
        };
        let unpacked = match folder {
            Some(folder) => {
                let pulled = pull::pull(&stored, &context.environment.absolute(&folder)).await?;
                Some(Unpacked { folder: folder.display().to_string(), files: pulled.files })
            }
            None => None,
        };
        // Last: what was not pulled is not locked.
        let lock = match (lock, found) {
            (Some(file), Some(found)) => {
                let written = file.lock.is_none() && file.write(&found)?;
                Some(LockAnswer { file: file.path.display().to_string(), written })
            }
            _ => None,
        };
        context.printer.answer(&PullAnswer {
            address: address.to_string(),
            version: stored.version.as_ref().map(ToString::to_string),
            reference: stored.name(),
            digest: stored.digest.to_string(),
            unpacked,
            cached,
            lock,
        })?;
        Ok(ExitStatus::Done)
    }

    /// What the module is called: as it says itself, else as it was asked for.
    async fn path(&self, stored: &StoredModule) -> Result<CuePath, Failure> {
        if let Some(file) = stored.module_file().await? {
            return Ok(file.module.base().clone());
        }
        match published::name(&parse_address(&self.address)?) {
            Ok(name) => Ok(name.path().clone()),
            Err(_) => Err(Failure::usage(format!("nothing in {} says which module it is", stored.name()))
                .with_hint("for a lock, name it by its address and its registry by `--registry`")),
        }
    }

    /// Puts the module and what it needs where `cue` looks first.
    async fn cache(
        context: &Context,
        stored: &StoredModule,
        needed: Vec<Needed>,
    ) -> Result<Vec<CachedAnswer>, Failure> {
        let folder = context.environment.cue_cache_folder().ok_or_else(|| {
            Failure::usage("the cache of `cue` has no place: there is neither CUE_CACHE_DIR nor a home")
                .with_hint("name its folder with the variable CUE_CACHE_DIR")
        })?;
        let cached = cue_cache::fill(stored, needed, &folder).await?;
        let answer = |cached: cue_cache::Cached| CachedAnswer {
            module: cached.module.to_string(),
            digest: cached.digest.to_string(),
            created: cached.created,
        };
        Ok(cached.into_iter().map(answer).collect())
    }
}
