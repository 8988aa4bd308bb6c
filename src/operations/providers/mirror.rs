//! What clients of a network mirror ask for: the versions of a provider, and the packages of one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::artifact;
use crate::module::{ProviderAddress, ProviderPlatform, Version};
use crate::oci::{Digest, Tag};
use crate::registry::RegistryError;

use super::super::error::{OperationError, Result};
use super::super::finding::Finding;
use super::super::routes::Place;
use super::super::yank::Yanked;
use super::super::zip_facts::KnownZips;
use super::upstream::Upstream;
use super::{CONCURRENCY, StoredProvider, StoredTarget, at, load};

/// How many versions of a remote repository are looked at to leave out what is no provider. Beyond it the tags are believed, as OpenTofu
/// believes them: a client waits 10 s, and does not ask again.
const MAX_LOOKS: usize = 64;

/// What the registry has of a provider.
#[derive(Default)]
struct Known {
    /// The versions that are not yanked.
    versions: BTreeSet<Version>,
    yanked: Yanked,
    /// Whether it has any, yanked or not.
    is_there: bool,
}

/// The versions that a client may choose from, ascending; [`OperationError::NoProvider`] where there is no provider, neither here nor at
/// its origin. One whose versions are all yanked is there, and has none.
pub async fn versions(
    address: &ProviderAddress,
    place: &Place,
    upstream: Option<&Arc<Upstream>>,
) -> Result<BTreeSet<Version>> {
    // Both at once: a client waits 10 s for the two of them.
    let (known, origin) = tokio::join!(known_versions(address, place), async {
        match upstream {
            Some(upstream) => upstream.versions(address).await,
            None => Ok(None),
        }
    });
    let (Known { mut versions, yanked, mut is_there }, missing) = match known {
        Err(error) if upstream.is_some() && error.may_be_absence() => (Known::default(), error),
        known => known?,
    };
    match origin {
        Ok(Some(origin)) => {
            let new = origin
                .iter()
                .filter(|(version, systems)| !systems.is_empty() && !yanked.contains_key(*version));
            versions.extend(new.map(|(version, _)| version.clone()));
            is_there = true;
        }
        Ok(None) => {}
        Err(error) if is_there => tracing::warn!("{address} is listed without its origin: {error}"),
        Err(error) => return Err(error),
    }
    if is_there { Ok(versions) } else { Err(missing) }
}

/// What is in the registry, and the error of who finds nothing.
async fn known_versions(address: &ProviderAddress, place: &Place) -> Result<(Known, OperationError)> {
    let mut published = at(address, place.clone()).await?;
    let had_any = !published.versions.is_empty();
    let yanked = published.yanked().await?.clone();
    published.leave_unyanked().await?;
    let is_withdrawn = had_any && published.versions.is_empty();
    let is_looked_at = place.target.is_local || published.versions.len() <= MAX_LOOKS;
    let versions: BTreeSet<Version> = if is_looked_at {
        let read: Vec<Option<Version>> = stream::iter(published.versions.clone())
            .map(|(version, tag)| async move {
                is_offered(address, place, &version, &tag).await.map(|is| is.then_some(version))
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        read.into_iter().flatten().collect()
    } else {
        published.listed().cloned().collect()
    };
    let is_there = is_withdrawn || !versions.is_empty();
    Ok((Known { versions, yanked, is_there }, published.no_provider()))
}

/// Whether a tag holds a provider with any package.
async fn is_offered(address: &ProviderAddress, place: &Place, version: &Version, tag: &Tag) -> Result<bool> {
    match load(address, place, version, tag).await {
        Ok(Ok(stored)) => Ok(!stored.index.entries.is_empty()),
        Ok(Err(OperationError::NotAProvider { .. })) => Ok(false),
        Ok(Err(error)) => Err(error),
        // It was deleted meanwhile, or cannot be read as a manifest at all.
        Err(error) if error.is_not_found() || matches!(error, RegistryError::ManifestInvalid(_)) => Ok(false),
        Err(error) => Err(OperationError::registry(place.name())(error)),
    }
}

/// One version, yanked or not; [`OperationError::NoProvider`] where it is not there.
pub async fn version(address: &ProviderAddress, place: &Place, version: &Version) -> Result<StoredProvider> {
    let tag = artifact::provider_tag(version)?;
    match load(address, place, version, &tag).await {
        Ok(stored) => stored,
        Err(error) if error.is_not_found() => {
            Err(OperationError::NoProvider { provider: format!("{address}@{version}"), place: place.name() })
        }
        Err(error) => Err(OperationError::registry(place.name())(error)),
    }
}

/// A package of a version, as clients are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is in the registry, and its zip was looked at.
    Stored(StoredTarget),
    /// It is at its origin, which says that the zip has this digest.
    Origin(Digest),
}

/// The packages of a version, here and at its origin; [`OperationError::NoProvider`] where there is no such version. What is here goes
/// before what the origin has for the same system, and what is here and not served is not looked for there.
pub async fn offered(
    zips: &KnownZips,
    address: &ProviderAddress,
    place: &Place,
    wanted: &Version,
    upstream: Option<&Arc<Upstream>>,
) -> Result<BTreeMap<ProviderPlatform, Offered>> {
    let (stored, origin) = tokio::join!(version(address, place, wanted), async {
        match upstream {
            Some(upstream) => upstream.release(address, wanted).await,
            None => Ok(None),
        }
    });
    let (mut offered, mut kept) = (BTreeMap::new(), BTreeSet::new());
    let missing = match stored {
        Ok(stored) => {
            kept.extend(stored.index.entries.iter().map(|entry| entry.platform.clone()));
            kept.extend(stored.index.ambiguous.iter().cloned());
            for target in packages(zips, &stored).await? {
                offered.insert(target.target.platform.clone(), Offered::Stored(target));
            }
            None
        }
        Err(error @ OperationError::NoProvider { .. }) => Some(error),
        Err(error) if upstream.is_some() && error.may_be_absence() => Some(error),
        Err(error) => return Err(error),
    };
    match (origin, missing) {
        (Ok(Some(release)), _) => {
            let new = release.packages.iter().filter(|(platform, _)| !kept.contains(*platform));
            offered.extend(new.map(|(platform, digest)| (platform.clone(), Offered::Origin(digest.clone()))));
            Ok(offered)
        }
        (Ok(None), None) => Ok(offered),
        (Err(error), None) => {
            tracing::warn!("{address}@{wanted} is answered without its origin: {error}");
            Ok(offered)
        }
        (Ok(None), Some(missing)) => Err(missing),
        (Err(error), Some(_)) => Err(error),
    }
}

/// The packages that clients are given, sorted by platform: each was looked at, once for each digest, and keeps the rules. What is
/// damaged or refused is left out, so that it does not keep the others back.
pub async fn packages(zips: &KnownZips, stored: &StoredProvider) -> Result<Vec<StoredTarget>> {
    let looked: Vec<Option<StoredTarget>> = stream::iter(stored.index.entries.clone())
        .map(|entry| async move {
            match look(zips, stored, &entry.platform).await {
                Ok(target) => Ok(Some(target)),
                Err(error) if is_of_this_package(&error) => {
                    tracing::warn!("{} is not served for {}: {error}", stored.name(), entry.platform);
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    Ok(looked.into_iter().flatten().collect())
}

/// The package for one platform, its zip looked at.
pub async fn look(
    zips: &KnownZips,
    stored: &StoredProvider,
    platform: &ProviderPlatform,
) -> Result<StoredTarget> {
    let target = stored.target(stored.entry(platform)?).await?;
    match zips.package(&stored.place, &target.target.archive).await? {
        None => Ok(target),
        Some(finding) => Err(OperationError::Refused(vec![Finding::clone(&finding)])),
    }
}

/// Whether something is wrong with what is stored, and not with the registry.
fn is_of_this_package(error: &OperationError) -> bool {
    match error.cause() {
        OperationError::Refused(_) | OperationError::NotAProvider { .. } => true,
        OperationError::Registry { source, .. } => {
            source.is_not_found()
                || matches!(
                    source,
                    RegistryError::ManifestInvalid(_)
                        | RegistryError::DigestMismatch { .. }
                        | RegistryError::SizeMismatch { .. }
                )
        }
        _ => false,
    }
}
