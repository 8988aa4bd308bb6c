//! Lists the providers of a registry, and the versions of one.

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::artifact::Reason;
use crate::module::{Constraint, ProviderAddress, ProviderPlatform, Version};
use crate::oci::{Digest, Tag};
use crate::registry::RegistryError;

use super::super::catalog;
use super::super::error::{OperationError, Result};
use super::super::routes::{Place, Routes};
use super::{CONCURRENCY, PublishedProvider, at};

/// A provider of a registry.
#[derive(Clone, Debug)]
pub struct ListedProvider {
    /// The provider.
    pub address: ProviderAddress,
    /// `registry/repository`.
    pub repository: String,
    /// Its newest version: the highest one that is neither yanked nor a pre-release, where there is one; then the highest that is not
    /// yanked.
    pub latest: Version,
    /// Whether that is yanked, and so are all of them.
    pub yanked: bool,
    /// How many versions its tags say, yanked ones among them.
    pub versions: usize,
}

/// A version of a provider.
#[derive(Clone, Debug)]
pub struct ListedProviderVersion {
    /// The version.
    pub version: Version,
    /// The digest of its index.
    pub digest: Digest,
    /// The systems that there are packages for, sorted.
    pub platforms: Vec<ProviderPlatform>,
    /// Whether it is yanked.
    pub yanked: bool,
    /// Why it is.
    pub reason: Option<Reason>,
}

/// Every repository that a provider may be in, each with that provider, sorted by its address.
///
/// [`RegistryError::NoCatalog`] where a registry has no list of its repositories.
pub async fn places(routes: &Routes) -> Result<Vec<(ProviderAddress, Place)>> {
    let mut places = Vec::new();
    for target in catalog::targets(routes) {
        let repositories = catalog::repositories(target).await?;
        let named = |place: Place| Some((routes.provider_at(&place)?, place));
        places.extend(repositories.into_iter().filter_map(named));
    }
    places.sort_by_cached_key(|(address, place)| (address.to_string(), place.name()));
    Ok(places)
}

/// Every provider in every registry that is set.
pub async fn providers(routes: &Routes) -> Result<Vec<ListedProvider>> {
    let listed: Vec<Option<ListedProvider>> = stream::iter(places(routes).await?)
        .map(|(address, place)| async move {
            let published = at(&address, place).await?;
            newest(&published).await
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    Ok(listed.into_iter().flatten().collect())
}

async fn newest(published: &PublishedProvider) -> Result<Option<ListedProvider>> {
    let yanked = published.yanked().await?;
    let rank = |version: &&Version| (!yanked.contains_key(version), !version.is_prerelease());
    // Of equal ones the last is taken, which is the highest.
    let latest = published.listed().max_by_key(rank);
    Ok(latest.map(|latest| ListedProvider {
        address: published.address.clone(),
        repository: published.place.name(),
        latest: latest.clone(),
        yanked: yanked.contains_key(latest),
        versions: published.versions.len(),
    }))
}

/// The versions of a provider that a constraint leaves, ascending, yanked ones among them, each looked at: what is no provider is left
/// out.
pub async fn versions(
    published: &PublishedProvider,
    constraint: Option<&Constraint>,
) -> Result<Vec<ListedProviderVersion>> {
    let matches = |version: &Version| constraint.is_none_or(|constraint| constraint.matches(version));
    let yanked = published.yanked().await?;
    let wanted: Vec<(Version, Tag)> =
        published.versions.iter().filter(|(version, _)| matches(version)).cloned().collect();
    let read: Vec<Option<ListedProviderVersion>> = stream::iter(wanted)
        .map(|(version, tag)| async move {
            match published.load(&version, &tag).await {
                Ok(stored) => {
                    let platforms = stored.index.entries.into_iter().map(|entry| entry.platform).collect();
                    Ok(Some(ListedProviderVersion {
                        yanked: yanked.contains_key(&version),
                        reason: yanked.get(&version).cloned().flatten(),
                        version,
                        digest: stored.digest,
                        platforms,
                    }))
                }
                Err(OperationError::NotAProvider { .. }) => Ok(None),
                // It was deleted meanwhile.
                Err(OperationError::Registry { source: RegistryError::ManifestUnknown { .. }, .. }) => {
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    Ok(read.into_iter().flatten().collect())
}
