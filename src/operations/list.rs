//! Lists the modules of a registry.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::archive::ModuleKind;
use crate::artifact::ArtifactError;
use crate::module::{CuePath, Version};
use crate::oci::{Digest, Reference, Repository};
use crate::registry::RegistryError;

use super::error::{OperationError, Result};
use super::published::{self, Published};
use super::routes::{ModuleName, Place, Routes, Target};

/// A catalog with more repositories is broken off: somebody's registry goes on without end.
const MAX_REPOSITORIES: usize = 100_000;
/// Requests under way at once: enough to hide the delay of a far registry, few enough not to be throttled.
const CONCURRENCY: usize = 8;

/// A module of a registry.
#[derive(Clone, Debug)]
pub struct ListedModule {
    /// Its path; that of its repository where nothing says it.
    pub module: String,
    /// `registry/repository`.
    pub repository: String,
    /// Who can read it.
    pub kind: ModuleKind,
    /// Its newest version: the highest one that is no pre-release, where there is one.
    pub latest: Version,
    /// How many versions there are.
    pub versions: usize,
}

/// A version of a module.
#[derive(Clone, Debug)]
pub struct ListedVersion {
    /// The version.
    pub version: Version,
    /// The digest of its manifest, where it was asked for.
    pub digest: Option<Digest>,
}

/// What a registry has of modules.
#[derive(Debug, Default)]
pub struct Listing {
    /// The modules, sorted by path.
    pub modules: Vec<ListedModule>,
    /// The repositories that cannot be read, and why: one that is damaged does not hide the others.
    pub failed: Vec<(Place, OperationError)>,
}

/// Every module in every registry that is set. Fails where a registry does not answer at all.
pub async fn modules(routes: &Routes) -> Result<Listing> {
    // Several prefixes may lead to one registry.
    let targets: BTreeMap<_, _> = routes
        .targets()
        .map(|target| ((target.identity.to_string(), target.prefix.clone()), target))
        .collect();
    let mut listing = Listing::default();
    for target in targets.into_values() {
        let mut listed = stream::iter(repositories(target).await?)
            .map(|place| async move { (module_at(&place).await, place) })
            .buffered(CONCURRENCY);
        while let Some((module, place)) = listed.next().await {
            match module {
                Ok(module) => listing.modules.extend(module),
                Err(error) if is_passing(&error) => return Err(error),
                Err(error) => listing.failed.push((place, error)),
            }
        }
    }
    let order = |module: &ListedModule| (module.module.clone(), module.repository.clone());
    listing.modules.sort_by_cached_key(order);
    Ok(listing)
}

/// Whether a registry has gone or asks for patience: the repositories behind this one would fail like it.
fn is_passing(error: &OperationError) -> bool {
    let OperationError::Registry { source, .. } = error else { return false };
    matches!(source, RegistryError::Unavailable { .. } | RegistryError::TooManyRequests { .. })
}

/// The repositories of a registry below its prefix.
async fn repositories(target: &Target) -> Result<Vec<Place>> {
    let names = target.registry.all_repositories(MAX_REPOSITORIES).await;
    let names = names.map_err(OperationError::registry(target.name.clone()))?;
    let below = |name: &Repository| {
        let rest = name.as_str().strip_prefix(&target.prefix);
        target.prefix.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let places = names.into_iter().filter(below);
    Ok(places.map(|repository| Place { target: target.clone(), repository }).collect())
}

/// The module in a repository; `None` where it holds none.
async fn module_at(place: &Place) -> Result<Option<ListedModule>> {
    let below = match place.target.prefix.as_str() {
        "" => place.repository.as_str(),
        prefix => place.repository.as_str().get(prefix.len() + 1..).unwrap_or_default(),
    };
    // Any name will do: it is only the repository that is looked at.
    let Ok(name) = CuePath::parse(&format!("{}/{below}", crate::module::Host::INTERNAL)) else {
        return Ok(None);
    };
    let published = published::at(&ModuleName::Cue(name), place).await?;
    let newest_stable = published.versions.iter().rev().find(|tagged| !tagged.version.is_prerelease());
    let Some(latest) = newest_stable.or(published.versions.last()) else { return Ok(None) };
    let stored = match published.load(latest).await {
        Ok(stored) => stored,
        Err(OperationError::NotAModule { source: ArtifactError::NotAModule { .. }, .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let file = stored.module_file().await?;
    Ok(Some(ListedModule {
        module: file.map_or_else(|| below.to_owned(), |file| file.module.base().to_string()),
        repository: place.name(),
        kind: stored.artifact.kind,
        latest: latest.version.clone(),
        versions: published.versions.len(),
    }))
}

/// The versions of a module, ascending; with their digests where `digests` says so, a request for each.
pub async fn versions(published: &Published, digests: bool) -> Result<Vec<ListedVersion>> {
    let place = &published.place;
    stream::iter(&published.versions)
        .map(|tagged| async move {
            let digest = if digests {
                let tag = if tagged.has_tag {
                    tagged.tag.clone()
                } else {
                    crate::artifact::bundle_tag(&tagged.tag)?
                };
                let head = place.registry().manifest_head(&place.repository, &Reference::Tag(tag)).await;
                Some(head.map_err(OperationError::registry(place.name()))?.digest)
            } else {
                None
            };
            Ok(ListedVersion { version: tagged.version.clone(), digest })
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await
}
