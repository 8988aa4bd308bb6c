//! Withdraws a version from listings, and takes that back.
//!
//! The version stays where it is: who installed it has it, and who names it exactly gets it. Only what chooses among versions passes it
//! over. What says so is a mark beside it ([`crate::artifact::YankMark`]), which is seen in the list of tags, so that a listing reads no
//! more than the few marks that there are.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::artifact::{self, MarkForm, Reason, YankMark, media_types};
use crate::module::{AddressAt, Constraint, Version, VersionQuery};
use crate::oci::{Digest, IMAGE_MANIFEST, Manifest, Reference, Tag};
use crate::registry::{BytesSource, Condition, NewManifest, RegistryError};

use super::delete;
use super::error::{OperationError, Result};
use super::published::{self, Published, StoredModule};
use super::routes::{ModuleName, Place, Routes};

/// The yanked versions of a module, each with the reason that was given.
pub type Yanked = BTreeMap<Version, Option<Reason>>;

/// What to withdraw.
#[derive(Clone, Debug)]
pub struct YankRequest {
    /// The module, with its exact version.
    pub address: AddressAt,
    /// Why; the one that was given before stays where there is none.
    pub reason: Option<Reason>,
    /// Withdraw a version that is neither in the module's repository nor found in any other module.
    pub force: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// How a version stands now.
#[derive(Clone, Debug)]
pub struct YankState {
    /// The module.
    pub module: String,
    /// The version.
    pub version: Version,
    /// `registry/repository:tag` of the mark.
    pub reference: String,
    /// Whether it is withdrawn.
    pub yanked: bool,
    /// Why.
    pub reason: Option<Reason>,
    /// Whether anything was written, or would be.
    pub changed: bool,
    /// Whether the version is in the module's repository, and not in other modules alone.
    pub is_published: bool,
}

/// Withdraws a version. One that is withdrawn stays so.
pub async fn yank(routes: &Routes, request: &YankRequest) -> Result<YankState> {
    let found = Found::find(routes, &request.address, "yank").await?;
    let current = found.current();
    let reason = request.reason.clone().or_else(|| current.and_then(|(_, reason)| reason.clone()));
    let tag = match current {
        Some((tag, _)) => tag.clone(),
        None => found.mark_tag()?,
    };
    let changed = current.is_none_or(|(_, known)| *known != reason);
    if current.is_none() && !found.is_published() && !request.force {
        found.expect_embedded(routes).await?;
    }
    if changed && !request.dry_run {
        write(&found.published.place, &tag, &found.version, &YankMark::Yanked(reason.clone())).await?;
    }
    Ok(found.state(tag, true, reason, changed))
}

/// Takes a yank back: its mark is deleted, or says that it is no more where the registry keeps it.
pub async fn unyank(routes: &Routes, address: &AddressAt, dry_run: bool) -> Result<YankState> {
    let found = Found::find(routes, address, "unyank").await?;
    if !found.is_published() && found.marks.is_empty() {
        return Err(found.missing());
    }
    let place = &found.published.place;
    let yanked = || found.marks.iter().filter(|(_, mark)| matches!(mark, Some(YankMark::Yanked(_))));
    if !dry_run {
        for (tag, _) in yanked() {
            match place.registry().delete_tag(&place.repository, tag).await {
                Ok(()) => {}
                Err(error) if error.is_not_found() => {}
                // The right to push is all that is needed for the other way.
                Err(
                    error @ (RegistryError::Unsupported { .. }
                    | RegistryError::Denied { .. }
                    | RegistryError::Unauthorized { .. }
                    | RegistryError::Protocol { .. }),
                ) => {
                    tracing::debug!("{place:?} does not delete the tag `{tag}`: {error}");
                    write(place, tag, &found.version, &YankMark::Unyanked).await?;
                }
                Err(error) => return Err(OperationError::registry(place.name())(error)),
            }
        }
    }
    let changed = yanked().next().is_some();
    let tag = match yanked().next() {
        Some((tag, _)) => tag.clone(),
        None => found.mark_tag()?,
    };
    Ok(found.state(tag, false, None, changed))
}

/// The reason of a version's yank; `None` where it is not yanked. For who came to the version by its own name, and not by the list.
pub async fn of(stored: &StoredModule) -> Result<Option<Option<Reason>>> {
    let Some(version) = &stored.version else { return Ok(None) };
    let canonical = artifact::module_tag(version)?;
    // The other spelling is the same without the `v`.
    let bare = canonical.as_str().trim_start_matches('v').parse().ok();
    for tag in std::iter::once(canonical).chain(bare) {
        // A tag of the full length has no mark.
        let Ok(tag) = artifact::yank_tag(&tag) else { continue };
        if let Some(YankMark::Yanked(reason)) = read(&stored.place, &tag).await? {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

/// What the mark at a tag says. What cannot be read there, or says something else, withdraws nothing.
pub(super) async fn read(place: &Place, tag: &Tag) -> Result<Option<YankMark>> {
    let reference = Reference::Tag(tag.clone());
    let name = place.reference(&reference);
    let said = match place.registry().manifest(&place.repository, &reference).await {
        Ok(stored) => Manifest::parse(&stored.media_type, &stored.bytes)
            .map_err(|error| error.to_string())
            .and_then(|manifest| YankMark::read(&manifest).map_err(|error| error.to_string())),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(
            error @ (RegistryError::ManifestInvalid(_)
            | RegistryError::DigestMismatch { .. }
            | RegistryError::SizeMismatch { .. }
            | RegistryError::TooLarge { .. }),
        ) => Err(error.to_string()),
        Err(error) => return Err(OperationError::registry(name)(error)),
    };
    match said {
        Ok(mark) => Ok(Some(mark)),
        Err(why) => {
            tracing::warn!("{name} withdraws nothing: {why}");
            Ok(None)
        }
    }
}

/// A reason behind what it is the reason of.
pub fn because(reason: Option<&Reason>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// The one version that an address names.
pub(super) fn exact_version(address: &AddressAt, verb: &str) -> Result<Version> {
    match &address.version {
        Some(VersionQuery::Constraint(constraint)) => constraint.exact(),
        Some(VersionQuery::Latest | VersionQuery::Major(_)) | None => None,
    }
    .ok_or_else(|| OperationError::Usage {
        message: format!("`{verb}` needs one exact version of `{}`", address.address),
        hint: format!("write for example `ocimod {verb} {}@1.2.0`", address.address),
    })
}

/// A version, whether it is in the module's repository or not, and its marks.
struct Found {
    module: ModuleName,
    version: Version,
    published: Published,
    marks: Vec<(Tag, Option<YankMark>)>,
}

impl Found {
    async fn find(routes: &Routes, address: &AddressAt, verb: &str) -> Result<Self> {
        let version = exact_version(address, verb)?;
        let module = published::name(address)?;
        let published = published::home(routes, &module).await?;
        let mut marks = Vec::new();
        for tag in published.marks(&version) {
            marks.push((tag.clone(), read(&published.place, tag).await?));
        }
        Ok(Self { module, version, published, marks })
    }

    fn is_published(&self) -> bool {
        self.published.versions.iter().any(|tagged| tagged.version == self.version)
    }

    /// The mark that withdraws the version, and the reason that it gives.
    fn current(&self) -> Option<(&Tag, &Option<Reason>)> {
        self.marks.iter().find_map(|(tag, mark)| match mark {
            Some(YankMark::Yanked(reason)) => Some((tag, reason)),
            _ => None,
        })
    }

    /// Where its mark belongs: beside its tag as that is spelt.
    fn mark_tag(&self) -> Result<Tag> {
        let tagged = self.published.versions.iter().find(|tagged| tagged.version == self.version);
        let tag = match tagged {
            Some(tagged) => tagged.tag.clone(),
            None => artifact::module_tag(&self.version)?,
        };
        Ok(artifact::yank_tag(&tag)?)
    }

    /// A version that nobody has is a slip of the pen.
    async fn expect_embedded(&self, routes: &Routes) -> Result<()> {
        let holders = delete::holders(routes, self.module.path(), &self.version).await;
        if holders.found.is_empty() { Err(self.missing()) } else { Ok(()) }
    }

    fn missing(&self) -> OperationError {
        if self.published.versions.is_empty() {
            return OperationError::NoModule {
                module: format!("{}@{}", self.module, self.version),
                places: vec![self.published.place.name()],
            };
        }
        OperationError::NoVersion {
            module: self.module.to_string(),
            constraint: Constraint::exactly(&self.version),
            versions: self.published.listed().cloned().collect(),
            yanked: Vec::new(),
        }
    }

    fn state(&self, tag: Tag, yanked: bool, reason: Option<Reason>, changed: bool) -> YankState {
        YankState {
            module: self.module.to_string(),
            version: self.version.clone(),
            reference: self.published.place.reference(&Reference::Tag(tag)),
            yanked,
            reason,
            changed,
            is_published: self.is_published(),
        }
    }
}

/// Puts a mark at its tag, in whichever form the registry takes.
async fn write(place: &Place, tag: &Tag, version: &Version, mark: &YankMark) -> Result<()> {
    let (registry, repository) = (place.registry(), &place.repository);
    let failed = || OperationError::registry(place.reference(&Reference::Tag(tag.clone())));
    let (bytes, digest) =
        (Bytes::from_static(media_types::EMPTY_CONFIG), Digest::of(media_types::EMPTY_CONFIG));
    match registry.blob_size(repository, &digest).await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => {
            registry.put_blob(repository, &digest, &BytesSource(bytes)).await.map_err(failed())?;
        }
        Err(error) => return Err(failed()(error)),
    }
    let new = |form| NewManifest {
        media_type: IMAGE_MANIFEST.to_owned(),
        bytes: mark.to_manifest(version, form),
        digest: None,
        tags: vec![tag.clone()],
        condition: Condition::None,
    };
    let refused = match registry.put_manifest(repository, &new(MarkForm::Artifact)).await {
        Ok(_) => return Ok(()),
        Err(error @ (RegistryError::Protocol { .. } | RegistryError::ManifestInvalid(_))) => error,
        Err(error) => return Err(failed()(error)),
    };
    tracing::debug!("{place:?} does not take a yank mark as an artifact of its own type: {refused}");
    let second = registry.put_manifest(repository, &new(MarkForm::LikeAModule)).await;
    // What was said to the first form is about the form that people read of.
    second.map(drop).map_err(|_| failed()(refused))
}
