//! What clients of a network mirror ask for: the versions of a provider, and the packages of one of them.

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::artifact;
use crate::module::{ProviderAddress, ProviderPlatform, Version};
use crate::oci::Tag;
use crate::registry::RegistryError;

use super::super::error::{OperationError, Result};
use super::super::finding::Finding;
use super::super::routes::Place;
use super::super::zip_facts::KnownZips;
use super::{CONCURRENCY, StoredProvider, StoredTarget, at, load};

/// How many versions of a remote repository are looked at to leave out what is no provider. Beyond it the tags are believed, as OpenTofu
/// believes them: a client waits 10 s, and does not ask again.
const MAX_LOOKS: usize = 64;

/// The versions that a client may choose from, ascending; [`OperationError::NoProvider`] where there is no provider. One whose versions
/// are all yanked is there, and has none.
pub async fn versions(address: &ProviderAddress, place: &Place) -> Result<Vec<Version>> {
    let mut published = at(address, place.clone()).await?;
    let had_any = !published.versions.is_empty();
    published.leave_unyanked().await?;
    let is_withdrawn = had_any && published.versions.is_empty();
    let is_looked_at = place.target.is_local || published.versions.len() <= MAX_LOOKS;
    let versions: Vec<Version> = if is_looked_at {
        let read: Vec<Option<Version>> = stream::iter(published.versions.clone())
            .map(|(version, tag)| async move {
                is_offered(address, place, &version, &tag).await.map(|is| is.then_some(version))
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        read.into_iter().flatten().collect()
    } else {
        published.versions.iter().map(|(version, _)| version.clone()).collect()
    };
    if versions.is_empty() && !is_withdrawn { Err(published.no_provider()) } else { Ok(versions) }
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
