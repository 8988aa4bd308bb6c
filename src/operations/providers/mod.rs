//! Providers: what the verbs and the mirror do with them. Whoever wants to know how a push works opens [`push`].
//!
//! A provider's version is an image index at the version's tag, with a manifest for each system that it is built for.

pub mod export;
pub mod import;
pub mod list;
pub mod mirror;
pub mod package;
pub mod pull;
pub mod push;
pub mod upstream;

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::artifact::{self, ProviderEntry, ProviderIndex, ProviderTarget};
use crate::module::{Constraint, ProviderAddress, ProviderPlatform, Version};
use crate::oci::{Digest, Manifest, Reference, Tag};
use crate::registry::RegistryError;

use super::error::{OperationError, Result};
use super::published::MAX_TAGS;
use super::routes::{Place, Routes};
use super::yank::{self, Marks, Yanked};

/// Manifests that are read at once.
const CONCURRENCY: usize = 8;
/// How many indexes are read, from the newest version on, to find one that is a provider's: a repository may have tags without end that
/// look like versions and are none.
const MAX_LOOKS: usize = 50;

/// The versions of a provider in its repository.
#[derive(Clone, Debug)]
pub struct PublishedProvider {
    /// The provider.
    pub address: ProviderAddress,
    /// Its repository.
    pub place: Place,
    /// The versions that its tags say, ascending, each with its tag.
    pub versions: Vec<(Version, Tag)>,
    marks: Marks,
}

/// A version of a provider as it is stored.
#[derive(Clone, Debug)]
pub struct StoredProvider {
    /// The provider.
    pub address: ProviderAddress,
    /// Its repository.
    pub place: Place,
    /// The version.
    pub version: Version,
    /// The version's tag.
    pub tag: Tag,
    /// The digest of the index.
    pub digest: Digest,
    /// Its bytes.
    pub bytes: Bytes,
    /// What it says.
    pub index: ProviderIndex,
}

/// The package for one system as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTarget {
    /// The digest of its manifest.
    pub manifest: Digest,
    /// What the manifest says.
    pub target: ProviderTarget,
}

/// The versions of a provider; [`OperationError::NoProvider`] where there are none.
pub async fn find(routes: &Routes, address: &ProviderAddress) -> Result<PublishedProvider> {
    let published = at(address, routes.provider_place(address)?).await?;
    if published.versions.is_empty() { Err(published.no_provider()) } else { Ok(published) }
}

/// The versions in a repository; none where there is no such repository.
pub async fn at(address: &ProviderAddress, place: Place) -> Result<PublishedProvider> {
    let tags = match place.registry().all_tags(&place.repository, MAX_TAGS).await {
        Err(error) if error.is_not_found() => Vec::new(),
        tags => tags.map_err(OperationError::registry(place.name()))?,
    };
    let marks = Marks::of_tags(&tags);
    let read = |tag: Tag| Some((artifact::provider_version_of(&tag)?, tag));
    let mut versions: Vec<_> = tags.into_iter().filter_map(read).collect();
    versions.sort();
    versions.dedup_by(|one, other| one.0 == other.0);
    Ok(PublishedProvider { address: address.clone(), place, versions, marks })
}

impl PublishedProvider {
    /// The versions alone, ascending.
    pub fn listed(&self) -> impl DoubleEndedIterator<Item = &Version> {
        self.versions.iter().map(|(version, _)| version)
    }

    /// The versions that are yanked, and why. It costs nothing where there are none.
    pub async fn yanked(&self) -> Result<&Yanked> {
        self.marks.read(&self.place).await
    }

    /// The marks of a version that may be yanked.
    pub(super) fn marks(&self, version: &Version) -> &[Tag] {
        self.marks.of(version)
    }

    /// Leaves out the versions that are yanked, as every list for installing clients does.
    pub async fn leave_unyanked(&mut self) -> Result<()> {
        let yanked = self.yanked().await?.clone();
        self.versions.retain(|(version, _)| !yanked.contains_key(version));
        Ok(())
    }

    pub(super) fn no_provider(&self) -> OperationError {
        OperationError::NoProvider { provider: self.address.to_string(), place: self.place.name() }
    }

    /// The highest version that satisfies a constraint. A tag that holds something else than a provider is passed over, and a yanked
    /// version too, unless the exact version is asked for.
    pub async fn choose(&self, constraint: &Constraint) -> Result<StoredProvider> {
        let (yanked, exact) = (self.yanked().await?, constraint.exact());
        let is_left = |version: &Version| !yanked.contains_key(version) || exact.as_ref() == Some(version);
        let mut left: Vec<&(Version, Tag)> =
            self.versions.iter().filter(|(version, _)| is_left(version)).collect();
        for _ in 0..MAX_LOOKS {
            let chosen = constraint.highest(left.iter().map(|(version, _)| version)).cloned();
            let Some(index) = left.iter().position(|(version, _)| Some(version) == chosen.as_ref()) else {
                break;
            };
            let (version, tag) = left.remove(index);
            match self.load(version, tag).await {
                Err(OperationError::NotAProvider { .. }) if exact.is_none() => {}
                loaded => {
                    if let (Ok(stored), Some(reason)) = (&loaded, yanked.get(version)) {
                        tracing::warn!("{} is yanked{}", stored.name(), yank::because(reason.as_ref()));
                    }
                    return loaded;
                }
            }
        }
        let (yanked, versions) =
            self.listed().cloned().partition(|version: &Version| yanked.contains_key(version));
        Err(OperationError::NoVersion {
            module: self.address.to_string(),
            constraint: constraint.clone(),
            versions,
            yanked,
        })
    }

    /// One version.
    pub async fn load(&self, version: &Version, tag: &Tag) -> Result<StoredProvider> {
        let read = load(&self.address, &self.place, version, tag).await;
        read.map_err(OperationError::registry(self.place.reference(&tag.clone().into())))?
    }
}

/// One version. The registry's own errors are apart from all others, since a missing tag means something to who pushes.
async fn load(
    address: &ProviderAddress,
    place: &Place,
    version: &Version,
    tag: &Tag,
) -> Result<Result<StoredProvider>, RegistryError> {
    let reference = Reference::Tag(tag.clone());
    let stored = place.registry().manifest(&place.repository, &reference).await?;
    let manifest = Manifest::parse(&stored.media_type, &stored.bytes)?;
    let named = |source| OperationError::NotAProvider { reference: place.reference(&reference), source };
    Ok(ProviderIndex::read(&manifest).map_err(named).map(|index| StoredProvider {
        address: address.clone(),
        place: place.clone(),
        version: version.clone(),
        tag: tag.clone(),
        digest: stored.digest,
        bytes: stored.bytes,
        index,
    }))
}

impl StoredProvider {
    /// `registry/repository:tag`.
    pub fn name(&self) -> String {
        self.place.reference(&self.tag.clone().into())
    }

    /// `registry/repository@digest`.
    pub fn pinned(&self) -> String {
        self.place.reference(&self.digest.clone().into())
    }

    /// The package that an entry of the index names.
    pub async fn target(&self, entry: &ProviderEntry) -> Result<StoredTarget> {
        let reference = Reference::Digest(entry.manifest.digest.clone());
        let name = || self.place.reference(&reference);
        let stored = self.place.registry().manifest(&self.place.repository, &reference).await;
        let stored = stored.map_err(OperationError::registry(name()))?;
        let manifest = Manifest::parse(&stored.media_type, &stored.bytes);
        let manifest = manifest.map_err(|error| OperationError::registry(name())(error.into()))?;
        let target = ProviderTarget::read(entry, &manifest);
        let target = target.map_err(|source| OperationError::NotAProvider { reference: name(), source })?;
        Ok(StoredTarget { manifest: entry.manifest.digest.clone(), target })
    }

    /// The packages of these systems, or of all where none is named, sorted.
    pub async fn targets(&self, platforms: &[ProviderPlatform]) -> Result<Vec<StoredTarget>> {
        let entries: Vec<ProviderEntry> = if platforms.is_empty() {
            self.index.entries.clone()
        } else {
            let platforms: BTreeSet<_> = platforms.iter().collect();
            let wanted = platforms.into_iter().map(|platform| self.entry(platform).cloned());
            wanted.collect::<Result<_>>()?
        };
        stream::iter(entries)
            .map(|entry| async move { self.target(&entry).await })
            .buffered(CONCURRENCY)
            .try_collect()
            .await
    }

    fn entry(&self, platform: &ProviderPlatform) -> Result<&ProviderEntry> {
        self.index.get(platform).ok_or_else(|| OperationError::NoPlatform {
            reference: self.name(),
            platform: platform.clone(),
            platforms: self.index.entries.iter().map(|entry| entry.platform.clone()).collect(),
        })
    }
}
