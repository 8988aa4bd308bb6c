//! Withdraws a version from listings, and takes that back.
//!
//! The version stays where it is: who installed it has it, and who names it exactly gets it. Only what chooses among versions passes it
//! over. What says so is a mark beside it ([`crate::artifact::YankMark`]), which is seen in the list of tags, so that a listing reads no
//! more than the few marks that there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

use crate::artifact::{self, MarkForm, Reason, YankMark, media_types};
use crate::module::{Address, AddressAt, Constraint, Version, VersionQuery};
use crate::oci::{Digest, IMAGE_MANIFEST, Manifest, Reference, Tag};
use crate::registry::{BytesSource, Condition, NewManifest, RegistryError};

use super::delete;
use super::error::{OperationError, Result};
use super::providers::{self, PublishedProvider, StoredProvider};
use super::published::{self, Published, StoredModule};
use super::routes::{ModuleName, Place, Routes};

/// The yanked versions of a module or provider, each with the reason that was given.
pub type Yanked = BTreeMap<Version, Option<Reason>>;

/// How many marks of a repository are read, those of the newest versions first: one request each. Nobody withdraws so many by hand;
/// whoever does it by a program has all the older ones taken for withdrawn.
const MAX_MARKS: usize = 1_000;
/// Marks that are read at once.
const CONCURRENCY: usize = 8;

/// The tags of a repository that may say that a version is yanked, also one that is not here itself; and what they say, once somebody
/// has asked.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    tags: BTreeMap<Version, Vec<Tag>>,
    read: Arc<OnceCell<Yanked>>,
}

/// What to withdraw.
#[derive(Clone, Debug)]
pub struct YankRequest {
    /// The module or provider, with its exact version.
    pub address: AddressAt,
    /// Why; the one that was given before stays where there is none.
    pub reason: Option<Reason>,
    /// Withdraw a version that is neither in its own repository nor found in any other module.
    pub force: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// How a version stands now.
#[derive(Clone, Debug)]
pub struct YankState {
    /// The module or provider.
    pub address: String,
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
    /// Whether the version is in its own repository, and not in other modules alone.
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
        write(found.home.place(), &tag, &found.version, &YankMark::Yanked(reason.clone())).await?;
    }
    Ok(found.state(tag, true, reason, changed))
}

/// Takes a yank back: its mark is deleted, or says that it is no more where the registry keeps it.
pub async fn unyank(routes: &Routes, address: &AddressAt, dry_run: bool) -> Result<YankState> {
    let found = Found::find(routes, address, "unyank").await?;
    if !found.is_published() && found.marks.is_empty() {
        return Err(found.missing());
    }
    let place = found.home.place();
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

impl Marks {
    /// Those among these tags.
    pub(super) fn of_tags<'a>(tags: impl IntoIterator<Item = &'a Tag>) -> Self {
        Self { tags: artifact::yank_tags(tags), read: Arc::default() }
    }

    /// Those of a version.
    pub(super) fn of(&self, version: &Version) -> &[Tag] {
        self.tags.get(version).map_or(&[], Vec::as_slice)
    }

    /// What they say. It costs nothing where there are none, and a request for each where there are some.
    pub(super) async fn read(&self, place: &Place) -> Result<&Yanked> {
        self.read.get_or_try_init(|| self.read_all(place)).await
    }

    async fn read_all(&self, place: &Place) -> Result<Yanked> {
        if self.tags.len() > MAX_MARKS {
            tracing::warn!(
                "{place:?} yanks more than {MAX_MARKS} versions; the oldest of these count as yanked unread"
            );
        }
        // Owned, since a stream of references is no future that every caller could send to another thread.
        let marks: Vec<(Version, Vec<Tag>)> =
            self.tags.iter().rev().map(|(version, tags)| (version.clone(), tags.clone())).collect();
        let read: Vec<Option<(Version, _)>> = stream::iter(marks.into_iter().enumerate())
            .map(|(position, (version, tags))| async move {
                if position >= MAX_MARKS {
                    return Ok(Some((version, None)));
                }
                for tag in &tags {
                    if let Some(YankMark::Yanked(reason)) = read(place, tag).await? {
                        return Ok(Some((version, reason)));
                    }
                }
                Ok::<_, OperationError>(None)
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        Ok(read.into_iter().flatten().collect())
    }
}

/// The reason of a version's yank; `None` where it is not yanked. For who came to the version by its own name, and not by the list.
pub async fn of(stored: &StoredModule) -> Result<Option<Option<Reason>>> {
    let Some(version) = &stored.version else { return Ok(None) };
    of_version(&stored.place, version).await
}

/// The same for a provider.
pub async fn of_provider(stored: &StoredProvider) -> Result<Option<Option<Reason>>> {
    of_version(&stored.place, &stored.version).await
}

async fn of_version(place: &Place, version: &Version) -> Result<Option<Option<Reason>>> {
    let canonical = artifact::module_tag(version)?;
    // The other spelling is the same without the `v`.
    let bare = canonical.as_str().trim_start_matches('v').parse().ok();
    for tag in std::iter::once(canonical).chain(bare) {
        // A tag of the full length has no mark.
        let Ok(tag) = artifact::yank_tag(&tag) else { continue };
        if let Some(YankMark::Yanked(reason)) = read(place, &tag).await? {
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

/// The repository of a module or provider.
enum Home {
    Module(ModuleName, Published),
    Provider(PublishedProvider),
}

impl Home {
    async fn find(routes: &Routes, address: &AddressAt) -> Result<Self> {
        if let Address::Provider(provider) = &address.address {
            return Ok(Self::Provider(providers::at(provider, routes.provider_place(provider)?).await?));
        }
        let module = published::name(address)?;
        let published = published::home(routes, &module).await?;
        Ok(Self::Module(module, published))
    }

    fn place(&self) -> &Place {
        match self {
            Self::Module(_, published) => &published.place,
            Self::Provider(published) => &published.place,
        }
    }

    /// Whose it is, as it is addressed.
    fn address(&self) -> String {
        match self {
            Self::Module(module, _) => module.to_string(),
            Self::Provider(published) => Address::Provider(published.address.clone()).to_string(),
        }
    }

    fn marks(&self, version: &Version) -> &[Tag] {
        match self {
            Self::Module(_, published) => published.marks(version),
            Self::Provider(published) => published.marks(version),
        }
    }

    /// The tag of a version as it is spelt here.
    fn tag(&self, version: &Version) -> Option<&Tag> {
        match self {
            Self::Module(_, published) => {
                let mut versions = published.versions.iter();
                versions.find(|tagged| tagged.version == *version).map(|tagged| &tagged.tag)
            }
            Self::Provider(published) => {
                let mut versions = published.versions.iter();
                versions.find(|(known, _)| known == version).map(|(_, tag)| tag)
            }
        }
    }

    /// The tag that a version would have.
    fn canonical_tag(&self, version: &Version) -> Result<Tag> {
        Ok(match self {
            Self::Module(..) => artifact::module_tag(version)?,
            Self::Provider(_) => artifact::provider_tag(version)?,
        })
    }
}

/// A version, whether it is in its own repository or not, and its marks.
struct Found {
    home: Home,
    version: Version,
    marks: Vec<(Tag, Option<YankMark>)>,
}

impl Found {
    async fn find(routes: &Routes, address: &AddressAt, verb: &str) -> Result<Self> {
        let version = exact_version(address, verb)?;
        let home = Home::find(routes, address).await?;
        let mut marks = Vec::new();
        for tag in home.marks(&version) {
            marks.push((tag.clone(), read(home.place(), tag).await?));
        }
        Ok(Self { home, version, marks })
    }

    fn is_published(&self) -> bool {
        self.home.tag(&self.version).is_some()
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
        let tag = match self.home.tag(&self.version) {
            Some(tag) => tag.clone(),
            None => self.home.canonical_tag(&self.version)?,
        };
        Ok(artifact::yank_tag(&tag)?)
    }

    /// A version that nobody has is a slip of the pen. A provider is embedded nowhere.
    async fn expect_embedded(&self, routes: &Routes) -> Result<()> {
        let Home::Module(module, _) = &self.home else { return Err(self.missing()) };
        let holders = delete::holders(routes, module.path(), &self.version).await;
        if holders.found.is_empty() { Err(self.missing()) } else { Ok(()) }
    }

    fn missing(&self) -> OperationError {
        let address = self.home.address();
        let versions: Vec<Version> = match &self.home {
            Home::Module(_, published) => published.listed().cloned().collect(),
            Home::Provider(published) => published.listed().cloned().collect(),
        };
        match &self.home {
            _ if !versions.is_empty() => OperationError::NoVersion {
                module: address,
                constraint: Constraint::exactly(&self.version),
                versions,
                yanked: Vec::new(),
            },
            Home::Module(_, published) => OperationError::NoModule {
                module: format!("{address}@{}", self.version),
                places: vec![published.place.name()],
            },
            Home::Provider(published) => published.no_provider(),
        }
    }

    fn state(&self, tag: Tag, yanked: bool, reason: Option<Reason>, changed: bool) -> YankState {
        YankState {
            address: self.home.address(),
            version: self.version.clone(),
            reference: self.home.place().reference(&Reference::Tag(tag)),
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
