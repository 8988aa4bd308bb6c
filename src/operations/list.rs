//! Lists the modules of a registry.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::archive::ModuleKind;
use crate::artifact::{ArtifactError, Reason, TaggedVersion};
use crate::module::{CuePath, Version};
use crate::oci::{Digest, Reference};
use crate::registry::RegistryError;

use super::catalog;
use super::error::{OperationError, Result};
use super::published::{self, Published};
use super::routes::{ModuleName, Place, Routes, Target};

/// Requests under way at once: enough to hide the delay of a far registry, few enough not to be throttled.
const CONCURRENCY: usize = 8;
/// How many manifests of a remote repository are read to leave out what is no module: more versions are listed as their tags say them.
/// Most modules have fewer, and then a list is true at the cost of a second.
const MAX_LOOKS: usize = 64;
/// How many manifests are read to find out whether a repository holds a module at all: most in a shared registry hold images.
const MAX_CANDIDATES: usize = 4;

/// A module of a registry.
#[derive(Clone, Debug)]
pub struct ListedModule {
    /// Its path; that of its repository where nothing says it.
    pub module: String,
    /// `registry/repository`.
    pub repository: String,
    /// Who can read it.
    pub kind: ModuleKind,
    /// Its newest version: the highest one that is neither yanked nor a pre-release, where there is one; then the highest that is not
    /// yanked.
    pub latest: Version,
    /// Whether that is yanked, and so are all of them.
    pub yanked: bool,
    /// How many versions there are, yanked ones among them.
    pub versions: usize,
}

/// A version of a module.
#[derive(Clone, Debug)]
pub struct ListedVersion {
    /// The version.
    pub version: Version,
    /// The digest of its manifest, where it was asked for or came by the way.
    pub digest: Option<Digest>,
    /// Whether it is yanked.
    pub yanked: bool,
    /// Why it is.
    pub reason: Option<Reason>,
}

/// The versions of a module.
#[derive(Clone, Debug)]
pub struct ListedVersions {
    /// The versions, ascending.
    pub versions: Vec<ListedVersion>,
    /// Whether each was looked at; else there may be tags among them that look like versions and are something else.
    pub is_checked: bool,
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
    let mut listing = Listing::default();
    for target in targets(routes) {
        let mut listed = stream::iter(catalog::repositories(target).await?)
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

/// Every registry that is set, each once: several prefixes may lead to one.
pub(super) fn targets(routes: &Routes) -> Vec<&Target> {
    let targets: BTreeMap<_, _> =
        routes.targets().map(|target| ((target.identity.as_ref(), target.prefix.as_str()), target)).collect();
    targets.into_values().collect()
}

/// Whether a registry has gone or asks for patience: the repositories behind this one would fail like it.
pub(super) fn is_passing(error: &OperationError) -> bool {
    let OperationError::Registry { source, .. } = error else { return false };
    matches!(source, RegistryError::Unavailable { .. } | RegistryError::TooManyRequests { .. })
}

/// What to call whatever is in a repository, and the repository below the registry's prefix; `None` where nothing could be called so.
/// Any name will do: it is only the repository that is looked at.
pub(super) fn name_of(place: &Place) -> Option<(ModuleName, &str)> {
    let below = place.below_prefix();
    let path = CuePath::parse(&format!("{}/{below}", crate::module::Host::INTERNAL)).ok()?;
    Some((ModuleName::Cue(path), below))
}

/// The module in a repository; `None` where it holds none.
async fn module_at(place: &Place) -> Result<Option<ListedModule>> {
    let Some((name, below)) = name_of(place) else { return Ok(None) };
    let published = published::at(&name, place).await?;
    let yanked = published.yanked().await?;
    let rank =
        |tagged: &&TaggedVersion| (!yanked.contains_key(&tagged.version), !tagged.version.is_prerelease());
    let mut found = None;
    // Best first: a repository may have tags that look like versions and are something else.
    let mut candidates: Vec<&TaggedVersion> = published.versions.iter().rev().collect();
    candidates.sort_by_key(|tagged| std::cmp::Reverse(rank(tagged)));
    for tagged in candidates.into_iter().take(MAX_CANDIDATES) {
        match published.load(tagged).await {
            Ok(stored) => {
                found = Some((tagged, stored));
                break;
            }
            Err(OperationError::NotAModule { source: ArtifactError::NotAModule { .. }, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let Some((latest, stored)) = found else { return Ok(None) };
    let file = stored.module_file().await?;
    Ok(Some(ListedModule {
        module: file.map_or_else(|| below.to_owned(), |file| file.module.base().to_string()),
        repository: place.name(),
        kind: stored.artifact.kind,
        latest: latest.version.clone(),
        yanked: yanked.contains_key(&latest.version),
        versions: published.versions.len(),
    }))
}

/// The versions of a module, ascending, yanked ones among them. Tags that look like versions and hold something else are left out where
/// that costs little; there digests are known too, elsewhere they cost a request each, which `digests` asks for.
pub async fn versions(published: &Published, digests: bool) -> Result<ListedVersions> {
    let yanked = published.yanked().await?;
    let is_checked = published.place.target.is_local || published.versions.len() <= MAX_LOOKS;
    let digests: Vec<Option<Option<Digest>>> = stream::iter(published.versions.clone())
        .map(|tagged| async move {
            if is_checked {
                Ok(module_digest(&published.place, &tagged).await?.map(Some))
            } else if digests {
                tag_digest(&published.place, &tagged).await.map(|digest| Some(Some(digest)))
            } else {
                Ok::<_, OperationError>(Some(None))
            }
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    let versions = published.versions.iter().zip(digests).filter_map(|(tagged, digest)| {
        Some(ListedVersion {
            version: tagged.version.clone(),
            digest: digest?,
            yanked: yanked.contains_key(&tagged.version),
            reason: yanked.get(&tagged.version).cloned().flatten(),
        })
    });
    Ok(ListedVersions { versions: versions.collect(), is_checked })
}

/// The digest of a version's manifest; `None` where it is no module's.
async fn module_digest(place: &Place, tagged: &TaggedVersion) -> Result<Option<Digest>> {
    match published::load(place, tagged).await {
        Ok(stored) => Ok(Some(stored.digest)),
        Err(OperationError::NotAModule { reference, source }) => {
            if !matches!(source, ArtifactError::NotAModule { .. }) {
                tracing::warn!("{reference} is not listed: {source}");
            }
            Ok(None)
        }
        // It has gone since the tags were listed, or some registry lists what it does not have.
        Err(OperationError::Registry { source, .. }) if source.is_not_found() => Ok(None),
        Err(error @ OperationError::Registry { source: RegistryError::ManifestInvalid(_), .. }) => {
            tracing::warn!("not listed: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn tag_digest(place: &Place, tagged: &TaggedVersion) -> Result<Digest> {
    let tag = if tagged.has_tag { tagged.tag.clone() } else { crate::artifact::bundle_tag(&tagged.tag)? };
    let head = place.registry().manifest_head(&place.repository, &Reference::Tag(tag)).await;
    Ok(head.map_err(OperationError::registry(place.name()))?.digest)
}
