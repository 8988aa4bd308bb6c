//! Removes a version of a module: its tags, and the manifests that nothing else points at.
//!
//! Registries differ in what DELETE does. Where tags can be deleted, they are, and nothing else is touched that has a name. Where only
//! manifests can be, every tag of a manifest goes with it, so the others are looked at first. Blobs are for the registry to clear away.

use std::collections::BTreeSet;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::artifact::{self, ArtifactError};
use crate::module::{AddressAt, Constraint, CuePath, Version};
use crate::oci::{Digest, IMAGE_INDEX, Manifest, Reference, Tag};
use crate::registry::{ManifestHead, RegistryError};

use super::catalog;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::list;
use super::published::{self, Published};
use super::routes::{Place, Routes, Target};
use super::yank;

/// Requests under way at once.
const CONCURRENCY: usize = 8;
/// With more tags than these in a remote repository, a manifest whose tags are gone is left for the registry to clear away: finding out
/// that nothing else points at it takes a request for each.
const MAX_COMPARED: usize = 1_000;

/// What was removed, or would be.
#[derive(Debug)]
pub struct Deleted {
    /// The module.
    pub module: String,
    /// The version.
    pub version: Version,
    /// `registry/repository`.
    pub repository: String,
    /// The tags that were removed.
    pub tags: Vec<Tag>,
    /// The manifests that were removed with them.
    pub manifests: Vec<Digest>,
    /// Whether it was yanked, which goes with it.
    pub was_yanked: bool,
    /// Who brings it along.
    pub holders: Holders,
}

/// Who brings a version of a module along, as far as could be looked.
#[derive(Debug, Default)]
pub struct Holders {
    /// The versions of other modules that embed it.
    pub found: Vec<Holder>,
    /// Registries and repositories that could not be looked through, and why.
    pub unsearched: Vec<(String, OperationError)>,
}

/// A version of a module that embeds another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Its path, or its repository below the registry's prefix where nothing says it.
    pub module: String,
    /// Its version.
    pub version: Version,
    /// `registry/repository`.
    pub repository: String,
}

/// Removes a version; in a dry run only finds out what would be removed, and who embeds it.
pub async fn delete(routes: &Routes, address: &AddressAt, dry_run: bool) -> Result<Deleted> {
    let version = yank::exact_version(address, "delete")?;
    let published = published::find(routes, &published::name(address)?).await?;
    if !published.versions.iter().any(|tagged| tagged.version == version) {
        return Err(published.no_version(&Constraint::exactly(&version)).await?);
    }
    let doomed = Doomed::find(&published, &version).await?;
    let was_yanked = published.yanked().await?.contains_key(&version);
    let mut holders = holders(routes, published.module.path(), &version).await;
    // A circle of modules embeds itself.
    holders.found.retain(|holder| holder.repository != published.place.name() || holder.version != version);
    let manifests = if dry_run { doomed.unshared().await? } else { doomed.remove().await? };
    Ok(Deleted {
        module: published.module.to_string(),
        version,
        repository: published.place.name(),
        tags: doomed.tags.into_iter().map(|(tag, _)| tag).collect(),
        manifests,
        was_yanked,
        holders,
    })
}

/// The registry's own way to remove what it does not let others remove, where that is known.
pub fn own_way(error: &OperationError) -> Option<String> {
    let OperationError::Registry { place, source } = error else { return None };
    if !matches!(source, RegistryError::Unsupported { .. } | RegistryError::Denied { .. }) {
        return None;
    }
    let host = place.split('/').next().unwrap_or_default().split(':').next().unwrap_or_default();
    let is = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    Some(if is("ghcr.io") {
        "GitHub deletes a version on the package's page, or by `gh api -X DELETE \
         /orgs/ORGANISATION/packages/container/PACKAGE/versions/ID`"
            .to_owned()
    } else if is("docker.io") {
        "Docker Hub deletes tags on the repository's page alone".to_owned()
    } else if host.contains(".dkr.ecr.") {
        "ECR deletes it by `aws ecr batch-delete-image --repository-name REPOSITORY --image-ids imageTag=TAG`"
            .to_owned()
    } else if is("pkg.dev") || is("gcr.io") {
        "Google deletes it by `gcloud artifacts docker images delete IMAGE:TAG`".to_owned()
    } else if is("azurecr.io") {
        "Azure deletes it by `az acr repository delete --image REPOSITORY:TAG`".to_owned()
    } else {
        "the registry may have to be told to allow it (`storage.delete.enabled` of distribution), or has a way of its own, \
         such as a page or a retention rule; `ocimod yank` withdraws the version without deleting it"
            .to_owned()
    })
}

/// The tags that go, with the manifests that they name, and the tags that stay.
struct Doomed<'a> {
    place: &'a Place,
    /// The same with the tags of everybody.
    stored: Place,
    tags: Vec<(Tag, Digest)>,
    /// As they are stored.
    others: Vec<Tag>,
}

impl<'a> Doomed<'a> {
    async fn find(published: &'a Published, version: &Version) -> Result<Self> {
        let place = &published.place;
        // The tags of everybody: a manifest that goes is to be nobody else's.
        let stored = place.as_stored();
        let all = stored.registry().all_tags(&place.repository, published::MAX_TAGS).await;
        let all = all.map_err(OperationError::registry(place.name()))?;
        let prefixed = place.registry().prefixed();
        let seen = |tag: &Tag| prefixed.map_or_else(|| Some(tag.clone()), |prefixed| prefixed.seen(tag));
        let own: Vec<Tag> = all.iter().filter_map(seen).collect();
        let (mut tags, mut foreign) = (Vec::new(), None);
        for tag in artifact::tags_of(version, &own) {
            let reference = Reference::Tag(tag.clone());
            let is_mark = published.marks(version).contains(&tag);
            match published::load_reference(place, &reference).await {
                // What is of no use to anybody any more may well be removed; what is another thing is not ours to remove.
                Err(error @ OperationError::NotAModule { source: ArtifactError::NotAModule { .. }, .. })
                    if !is_mark =>
                {
                    foreign.get_or_insert(error);
                    continue;
                }
                Err(OperationError::Registry { source, .. }) if source.is_passing() => {
                    return Err(OperationError::registry(place.name())(source));
                }
                _ => {}
            }
            match place.registry().manifest_head(&place.repository, &reference).await {
                Ok(head) => tags.push((tag, head.digest)),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(OperationError::registry(place.reference(&reference))(error)),
            }
        }
        if let (Some(error), true) =
            (foreign, tags.iter().all(|(tag, _)| published.marks(version).contains(tag)))
        {
            return Err(error);
        }
        let is_doomed = |tag: &Tag| {
            seen(tag).is_some_and(|tag| tags.iter().any(|(doomed, _): &(Tag, Digest)| *doomed == tag))
        };
        let others = all.into_iter().filter(|tag| !is_doomed(tag)).collect();
        let mut doomed = Self { place, stored, tags, others };
        doomed.take_referrers().await?;
        Ok(doomed)
    }

    /// The list of what refers to the version, which stands at a tag where the registry has none itself, holds nothing: it is about what
    /// goes. Where there is nothing else in it, such as a signature, it goes too.
    async fn take_referrers(&mut self) -> Result<()> {
        let lists: Vec<Tag> = self.digests().into_iter().map(Tag::of_referrers).collect();
        for tag in lists {
            let Some(position) = self.others.iter().position(|other| *other == tag) else { continue };
            self.others.remove(position);
            let (list, entries) = match &self.needed_by(&tag).await?[..] {
                [] => continue,
                [list, entries @ ..] => (list.clone(), entries.to_vec()),
            };
            let doomed = self.digests();
            if entries.iter().all(|entry| doomed.contains(entry)) {
                self.tags.push((tag, list));
            }
        }
        Ok(())
    }

    fn digests(&self) -> BTreeSet<&Digest> {
        self.tags.iter().map(|(_, digest)| digest).collect()
    }

    /// Removes it; answers the manifests that went with the tags.
    async fn remove(&self) -> Result<Vec<Digest>> {
        let (registry, repository) = (self.place.registry(), &self.place.repository);
        for (position, (tag, _)) in self.tags.iter().enumerate() {
            match registry.delete_tag(repository, tag).await {
                Ok(()) => {}
                Err(error) if error.is_not_found() => {}
                Err(RegistryError::Unsupported { .. } | RegistryError::Protocol { .. }) if position == 0 => {
                    return self.remove_manifests().await;
                }
                Err(error) => return Err(OperationError::registry(self.place.name())(error)),
            }
        }
        let mut removed = Vec::new();
        for digest in self.unshared().await? {
            match registry.delete_manifest(repository, &digest).await {
                Ok(()) => removed.push(digest),
                // It has no name any more, so it is the registry's to clear away.
                Err(error) => tracing::debug!("{:?} keeps the manifest `{digest}`: {error}", self.place),
            }
        }
        Ok(removed)
    }

    /// Removes the manifests, and all of their tags with them.
    async fn remove_manifests(&self) -> Result<Vec<Digest>> {
        let (registry, repository) = (self.place.registry(), &self.place.repository);
        let shared = self.shared().await?;
        if let Some((other, digest)) = shared.first() {
            let tag = self.tags.iter().find(|(_, doomed)| doomed == digest).map(|(tag, _)| tag.to_string());
            let message = format!(
                "{}: this registry deletes manifests and not tags, and `{other}` needs the manifest of `{}`, so it would go too; delete \
                 or move `{other}` first",
                self.place.name(),
                tag.unwrap_or_default()
            );
            return Err(OperationError::refused(Finding::general("manifest-shared", message)));
        }
        let mut removed = Vec::new();
        // In the order of the tags: the version goes before its bundle and its mark.
        for (_, digest) in &self.tags {
            if removed.contains(digest) {
                continue;
            }
            match registry.delete_manifest(repository, digest).await {
                Ok(()) => removed.push(digest.clone()),
                // It was there a moment ago: a list of referrers goes with its last entry.
                Err(error) if error.is_not_found() => removed.push(digest.clone()),
                Err(error) => return Err(OperationError::registry(self.place.name())(error)),
            }
        }
        Ok(removed)
    }

    /// The manifests that nothing else points at, as far as that can be found out at a bearable price.
    async fn unshared(&self) -> Result<Vec<Digest>> {
        if self.others.len() > MAX_COMPARED && !self.place.target.is_local {
            return Ok(Vec::new());
        }
        let shared = self.shared().await?;
        let is_shared = |digest: &Digest| shared.iter().any(|(_, known)| known == digest);
        Ok(self.digests().into_iter().filter(|digest| !is_shared(digest)).cloned().collect())
    }

    /// The tags that stay and need one of the manifests, itself or as an entry of an index.
    async fn shared(&self) -> Result<Vec<(Tag, Digest)>> {
        let needed: Vec<Vec<(Tag, Digest)>> = stream::iter(self.others.clone())
            .map(|tag| async move {
                let digests = self.needed_by(&tag).await?;
                Ok::<_, OperationError>(digests.into_iter().map(|digest| (tag.clone(), digest)).collect())
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        let doomed = self.digests();
        Ok(needed.into_iter().flatten().filter(|(_, digest)| doomed.contains(digest)).collect())
    }

    /// The manifest at a tag, and those that it lists.
    async fn needed_by(&self, tag: &Tag) -> Result<Vec<Digest>> {
        let (registry, repository) = (self.stored.registry(), &self.stored.repository);
        let reference = Reference::Tag(tag.clone());
        let failed = || OperationError::registry(self.stored.reference(&reference));
        let ManifestHead { media_type, digest, .. } =
            match registry.manifest_head(repository, &reference).await {
                Ok(head) => head,
                // It has gone meanwhile, or is nothing that a module's manifest could be part of.
                Err(error) if error.is_not_found() => return Ok(Vec::new()),
                Err(RegistryError::ManifestInvalid(_)) => return Ok(Vec::new()),
                Err(error) => return Err(failed()(error)),
            };
        let mut digests = vec![digest];
        if media_type == IMAGE_INDEX {
            let stored = registry.manifest(repository, &reference).await.map_err(failed())?;
            let index = Manifest::parse(&stored.media_type, &stored.bytes);
            digests.extend(index.iter().flat_map(Manifest::entries).map(|entry| entry.digest.clone()));
        }
        Ok(digests)
    }
}

/// The versions of all modules that embed one version of one module. Every manifest of every registry is read for that.
pub async fn holders(routes: &Routes, module: &CuePath, version: &Version) -> Holders {
    let mut holders = Holders::default();
    for (target, encoding) in catalog::module_targets(routes) {
        let searched = match encoding.common_tag_prefix() {
            Some(prefix) => {
                search(&target.with_tag_prefix(prefix.to_owned()), module, version, &mut holders).await
            }
            None => Err(OperationError::registry(target.name.clone())(RegistryError::NoCatalog)),
        };
        if let Err(error) = searched {
            holders.unsearched.push((target.name.clone(), error));
        }
    }
    holders.found.sort();
    holders
}

async fn search(target: &Target, module: &CuePath, version: &Version, holders: &mut Holders) -> Result<()> {
    for place in catalog::repositories(target).await? {
        match holders_in(&place, module, version).await {
            Ok(found) => holders.found.extend(found),
            Err(error) if error.is_passing() => return Err(error),
            Err(error) => holders.unsearched.push((place.name(), error)),
        }
    }
    Ok(())
}

async fn holders_in(place: &Place, module: &CuePath, version: &Version) -> Result<Vec<Holder>> {
    let Some((name, below)) = list::name_of(place) else { return Ok(Vec::new()) };
    let published = published::at(&name, place).await?;
    let found: Vec<Option<Holder>> = stream::iter(published.versions)
        .map(|tagged| async move {
            let stored = match published::load(place, &tagged).await {
                Ok(stored) => stored,
                Err(OperationError::NotAModule { .. }) => return Ok(None),
                Err(OperationError::Registry { source, .. }) if source.is_not_found() => return Ok(None),
                Err(error) => return Err(error),
            };
            let embeds = stored.artifact.dependencies.iter().any(|layer| {
                layer.module.version() == version && published::same_module(layer.module.base(), module)
            });
            if !embeds {
                return Ok(None);
            }
            let file = stored.module_file().await?;
            Ok(Some(Holder {
                module: file.map_or_else(|| below.to_owned(), |file| file.module.base().to_string()),
                version: tagged.version,
                repository: place.name(),
            }))
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    Ok(found.into_iter().flatten().collect())
}
