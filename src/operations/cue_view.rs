//! The modules of a registry as today's `cue` reads them: repositories below `cue.mod/`, named by module paths.
//!
//! `cue` reads manifests of exactly two layers, the zip and the module file. A version that is stored so is shown as it is. One that
//! has its dependencies as further layers is shown without them, and a module that is nowhere but inside others has a repository here
//! like any other. Such a manifest is made of what is stored and of nothing else, so that it has the same bytes every time and at every
//! replica. Nobody has to remember its digest: where it is asked for one that was not seen yet, it is found by making all of them.
//!
//! What is shown under a path calls itself by it: the module file of the manifest, the one in the zip, and the path are one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use moka::future::Cache;

use crate::archive::ModuleKind;
use crate::artifact::{
    self, ArtifactError, Content, ModuleArtifact, ModuleFileLayer, TaggedVersion, media_types,
};
use crate::module::{CuePath, ModulePath, Version};
use crate::oci::{
    Algorithm, Annotations, Descriptor, Digest, IMAGE_MANIFEST, Manifest, Reference, Repository, Tag,
};
use crate::registry::{
    Answer, Blob, BlobRequest, BlobStream, ByteStream, BytesSource, ManifestHead, NewManifest, Page,
    PageRequest, PutManifest, Registry, RegistryError, StoredManifest, UploadId,
};

use super::cue_module;
use super::embedded::Claim;
use super::error::OperationError;
use super::install::{Asked, Installable, Installer, MayRead};
use super::published::{self, StoredModule};
use super::routes::{ModuleName, Place};
use super::zip_facts::{NamedModule, ZipFacts};

/// The first part of every repository of the view. It is the name of the folder that makes a module, and no domain.
pub const VIEW: &str = "cue.mod";

/// How many versions are remembered, some hundred bytes each.
const MAX_REMEMBERED: u64 = 50_000;
/// A tag of a remote registry can be moved in spite of everything. So often each is asked for again.
const READ_AGAIN_AFTER: Duration = Duration::from_mins(15);
/// So many of a module's versions, the newest, are looked at one by one. Older ones are listed by their tags alone, and are found by them.
const MAX_LOOKS: usize = 1_000;
/// Requests under way at once for one answer.
const CONCURRENCY: usize = 8;

type Result<T, E = RegistryError> = std::result::Result<T, E>;

/// What is remembered of the view between requests. None of it is believed about who may read what, or about what is stored now.
pub struct CueMemory {
    /// What the version at a tag is shown as.
    shown: Cache<(Place, Reference), Option<Arc<Shown>>>,
    /// What a module that is only inside others is shown as, by its zip: by nothing else is it made.
    embedded: Cache<Content, Digest>,
    /// The version that a digest stands for.
    versions: Cache<(CuePath, Digest), Version>,
}

impl Default for CueMemory {
    fn default() -> Self {
        Self {
            shown: Cache::builder().max_capacity(MAX_REMEMBERED).time_to_live(READ_AGAIN_AFTER).build(),
            embedded: Cache::new(MAX_REMEMBERED),
            versions: Cache::new(MAX_REMEMBERED),
        }
    }
}

/// A version of a module in the view.
#[derive(Debug)]
struct Shown {
    digest: Digest,
    module: ModulePath,
}

/// The module whose repository in the view this is; `None` where it is none of the view, or the name of no module.
pub fn module_of(repository: &Repository) -> Option<CuePath> {
    CuePath::parse(repository.as_str().strip_prefix(VIEW)?.strip_prefix('/')?).ok()
}

/// Whether a repository's name belongs to the view.
pub fn is_in_view(repository: &Repository) -> bool {
    repository.components().next() == Some(VIEW)
}

/// The modules that one caller may read, and where it may push.
pub struct CueView<'a> {
    /// What knows the modules.
    pub installer: &'a Installer,
    /// What was learned by earlier requests.
    pub memory: &'a CueMemory,
    /// Which repositories the caller may read.
    pub may_read: MayRead<'a>,
    /// Whether what is pushed is stored. Who may push is for the caller of this to know.
    pub is_writable: bool,
}

/// A manifest of the view.
struct ViewManifest {
    bytes: Bytes,
    digest: Digest,
}

impl ViewManifest {
    fn of(bytes: Bytes) -> Self {
        Self { digest: Digest::of(&bytes), bytes }
    }
}

impl CueView<'_> {
    /// The repository that a push to a repository of the view goes to.
    pub fn target(installer: &Installer, repository: &Repository) -> Option<Place> {
        installer.routes().places(&ModuleName::Cue(module_of(repository)?)).ok()?.into_iter().next()
    }

    fn writable(&self, repository: &Repository, operation: &'static str) -> Result<Place> {
        let place = Self::target(self.installer, repository).filter(|_| self.is_writable);
        place.ok_or(RegistryError::Unsupported { operation })
    }

    /// The repositories that a module may have, as far as the caller may read them.
    fn places(&self, asked: &Asked) -> impl Iterator<Item = Place> {
        self.installer.places(asked).into_iter().filter(|place| (self.may_read)(place))
    }

    /// What there is of a module, as its manifests in the view: each digest with its version. Yanked versions are among them: what uses
    /// one already goes on.
    async fn manifests(&self, path: &CuePath) -> Result<Vec<(Digest, Version)>, OperationError> {
        let (own, embedded) = self.installer.known(&Asked::Cue(path.clone()), self.may_read).await?;
        let mut found = Vec::new();
        for published in &own {
            let newest: Vec<_> = published.versions.iter().rev().take(MAX_LOOKS).cloned().collect();
            let shown = self.shown_of(path, &published.place, newest).await?;
            found.extend(shown.into_iter().map(|(tagged, digest)| (digest, tagged.version)));
        }
        let embedded: Vec<_> = stream::iter(embedded)
            .map(|claim| async move {
                let version = claim.module.version().clone();
                self.embedded_digest(&claim).await.map(|digest| Some((digest?, version)))
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        found.extend(embedded.into_iter().flatten());
        for (digest, version) in &found {
            self.memory.versions.insert((path.clone(), digest.clone()), version.clone()).await;
        }
        Ok(found)
    }

    /// Of these versions of a repository those that are in the view, with their digests there.
    async fn shown_of(
        &self,
        path: &CuePath,
        place: &Place,
        versions: Vec<TaggedVersion>,
    ) -> Result<Vec<(TaggedVersion, Digest)>, OperationError> {
        let shown: Vec<_> = stream::iter(versions)
            .map(|tagged| async move {
                let shown = self.shown(place, &tagged).await?;
                let is_module = |shown: &&Arc<Shown>| {
                    shown.module.base() == path && shown.module.major() == tagged.version.major()
                };
                let digest = shown.as_ref().filter(is_module).map(|shown| shown.digest.clone());
                Ok::<_, OperationError>(digest.map(|digest| (tagged, digest)))
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        Ok(shown.into_iter().flatten().collect())
    }

    /// What a stored version is shown as; `None` where it is nothing to `cue`.
    async fn shown(
        &self,
        place: &Place,
        tagged: &TaggedVersion,
    ) -> Result<Option<Arc<Shown>>, OperationError> {
        if tag_of(&tagged.version).is_none() {
            return Ok(None);
        }
        let tag = if tagged.has_tag { tagged.tag.clone() } else { artifact::bundle_tag(&tagged.tag)? };
        let key = (place.clone(), Reference::Tag(tag));
        let shown = self.memory.shown.try_get_with_by_ref(&key, async {
            let stored = match published::load_reference(place, &key.1).await {
                Ok(stored) => stored,
                Err(OperationError::NotAModule { reference, source }) => {
                    if !matches!(source, ArtifactError::NotAModule { .. }) {
                        tracing::warn!("{reference} is not shown to cue: {source}");
                    }
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let Some(file) = stored.module_file().await? else { return Ok(None) };
            Ok(manifest_of(&stored)
                .map(|bytes| Arc::new(Shown { digest: Digest::of(&bytes), module: file.module })))
        });
        match shown.await {
            // It was deleted meanwhile, or lacks a part: the other versions are shown all the same.
            Err(error)
                if matches!(&*error, OperationError::Registry { source, .. }
                    if source.is_not_found() || matches!(source, RegistryError::ManifestInvalid(_))) =>
            {
                Ok(None)
            }
            shown => shown.map_err(OperationError::Shared),
        }
    }

    async fn embedded_digest(&self, claim: &Claim) -> Result<Option<Digest>, OperationError> {
        if tag_of(claim.module.version()).is_none() {
            return Ok(None);
        }
        let Some(holder) = claim.holders.first() else { return Ok(None) };
        let digest = self.memory.embedded.try_get_with_by_ref(&claim.archive, async {
            let facts = self.installer.zips().of(&holder.place, &claim.archive).await?;
            let bytes = self.embedded_manifest(&holder.place, &claim.archive, &facts).await?;
            bytes.as_deref().map(Digest::of).ok_or_else(|| OperationError::NoModule {
                module: claim.module.to_string(),
                places: Vec::new(),
            })
        });
        digest.await.map(Some).map_err(OperationError::Shared)
    }

    /// The manifest of a module that is only inside others, made of its zip; `None` where the zip has no module file.
    async fn embedded_manifest(
        &self,
        place: &Place,
        archive: &Content,
        facts: &ZipFacts,
    ) -> Result<Option<Bytes>, OperationError> {
        let ZipFacts::Good { has_tofu_files, module_file: Some(file), .. } = facts else { return Ok(None) };
        let bytes = self.installer.zips().module_file(place, archive, file).await?;
        let artifact = ModuleArtifact {
            kind: if *has_tofu_files { ModuleKind::OpenTofu } else { ModuleKind::Cue },
            archive: archive.clone(),
            module_file: Some(ModuleFileLayer::of(bytes)),
            dependencies: Vec::new(),
            annotations: Annotations::new(),
        };
        Ok(Some(artifact.to_two_layer_manifest()))
    }

    /// The manifest of a version.
    async fn manifest_of_version(&self, path: &CuePath, version: &Version) -> Result<ViewManifest, Missing> {
        let asked = Asked::Cue(path.clone());
        let installable = self.installer.version(&asked, version, self.may_read).await?;
        let Installable { place, archive, stored, facts, .. } = &installable;
        let name = format!("{path}@v{version}");
        let (module, file) = match &**facts {
            ZipFacts::Good { module: NamedModule::Path(module), module_file: Some(file), .. } => {
                (module, file)
            }
            ZipFacts::Good { .. } => {
                return Err(refused(format!(
                    "{name} is not shown: its zip has no module file that can be read"
                )));
            }
            ZipFacts::Refused(finding) => {
                return Err(refused(format!(
                    "{name} is not shown: its zip breaks the rule `{}`",
                    finding.rule
                )));
            }
        };
        if let Some(stored) = stored {
            let layer = stored.artifact.module_file.as_ref();
            let is_same = match layer {
                Some(layer) if layer.content.digest == file.digest => true,
                // By another algorithm, perhaps.
                Some(_) => {
                    stored.module_file_bytes().await?.as_deref().map(Digest::of).as_ref()
                        == Some(&file.digest)
                }
                None => false,
            };
            if !is_same {
                return Err(refused(format!(
                    "{name} is not shown: the module file in its zip is not the one that its manifest names"
                )));
            }
        }
        if module.base() != path || module.major() != version.major() {
            return Err(refused(format!("{name} is not shown: its module file says that it is `{module}`")));
        }
        if let Some(stored) = stored {
            let zips = self.installer.zips();
            match cue_module::expect_layers(zips, place, &stored.artifact, &name).await {
                Err(OperationError::Refused(findings)) => {
                    let said: Vec<_> = findings.iter().map(|finding| finding.message.as_str()).collect();
                    return Err(refused(format!("{} ({name} is not shown)", said.join("; "))));
                }
                // A layer that is not to be had is missed by whoever wants it.
                Err(error) => tracing::debug!("{name}: {error}"),
                Ok(()) => {}
            }
        }
        let bytes = match stored {
            Some(stored) => manifest_of(stored),
            None => self.embedded_manifest(place, archive, facts).await?,
        };
        let manifest = ViewManifest::of(bytes.ok_or(Missing::Nothing)?);
        self.memory.versions.insert((path.clone(), manifest.digest.clone()), version.clone()).await;
        Ok(manifest)
    }

    /// The manifest that has a digest.
    async fn manifest_of_digest(&self, path: &CuePath, digest: &Digest) -> Result<ViewManifest, Missing> {
        let key = (path.clone(), digest.clone());
        if let Some(version) = self.memory.versions.get(&key).await {
            match self.manifest_of_version(path, &version).await {
                Ok(manifest) if manifest.digest == *digest => return Ok(manifest),
                // The version is another one now, or is gone.
                Ok(_) | Err(Missing::Nothing) => {}
                Err(error) => return Err(error),
            }
        }
        let asked = Asked::Cue(path.clone());
        let began = Instant::now();
        for is_first in [true, false] {
            let version = match self.manifests(path).await {
                Ok(found) => found.into_iter().find(|(known, _)| known == digest).map(|(_, version)| version),
                Err(error) => match Missing::from(error) {
                    Missing::Nothing => None,
                    error @ Missing::Error(_) => return Err(error),
                },
            };
            if let Some(version) = version {
                let manifest = self.manifest_of_version(path, &version).await?;
                return if manifest.digest == *digest { Ok(manifest) } else { Err(Missing::Nothing) };
            }
            if is_first {
                if let Some(manifest) = self.stored_referrer(&asked, digest).await? {
                    return Ok(manifest);
                }
                self.installer.look_again(&asked, began).await?;
            }
        }
        Err(Missing::Nothing)
    }

    /// A manifest that is stored beside the module and is about another one: a signature, say. It is named by a list of referrers.
    async fn stored_referrer(&self, asked: &Asked, digest: &Digest) -> Result<Option<ViewManifest>> {
        let reference = Reference::Digest(digest.clone());
        for place in self.places(asked) {
            let stored = match place.registry().manifest(&place.repository, &reference).await {
                Err(error) if error.may_be_absence() => continue,
                stored => stored?,
            };
            let manifest = Manifest::parse(&stored.media_type, &stored.bytes);
            if stored.media_type == IMAGE_MANIFEST
                && manifest.is_ok_and(|manifest| manifest.subject.is_some())
            {
                return Ok(Some(ViewManifest { bytes: stored.bytes, digest: digest.clone() }));
            }
        }
        Ok(None)
    }

    async fn read(&self, repository: &Repository, reference: &Reference) -> Result<ViewManifest> {
        let unknown = || RegistryError::ManifestUnknown {
            repository: repository.to_string(),
            reference: reference.to_string(),
        };
        let no_repository = || RegistryError::RepositoryUnknown(repository.to_string());
        let path = module_of(repository).ok_or_else(no_repository)?;
        let read = match reference {
            Reference::Tag(tag) => match version_of(tag) {
                Some(version) => self.manifest_of_version(&path, &version).await,
                None => Err(Missing::Nothing),
            },
            Reference::Digest(digest) => self.manifest_of_digest(&path, digest).await,
        };
        match read {
            Ok(manifest) => Ok(manifest),
            Err(Missing::Error(error)) => Err(error),
            // The module is there, or it is not.
            Err(Missing::Nothing) => match self.installer.known(&Asked::Cue(path), self.may_read).await {
                Ok((own, embedded)) if own.is_empty() && embedded.is_empty() => Err(no_repository()),
                Ok(_) => Err(unknown()),
                Err(error) => match Missing::from(error) {
                    Missing::Nothing => Err(no_repository()),
                    Missing::Error(error) => Err(error),
                },
            },
        }
    }

    async fn listed(&self, repository: &Repository, page: &PageRequest) -> Result<Page<Tag>> {
        let unknown = || RegistryError::RepositoryUnknown(repository.to_string());
        let path = module_of(repository).ok_or_else(unknown)?;
        let known = |error: OperationError| match Missing::from(error) {
            Missing::Nothing => unknown(),
            Missing::Error(error) => error,
        };
        let offer = self.installer.versions(&Asked::Cue(path.clone()), self.may_read).await.map_err(known)?;
        let mut tags = Vec::new();
        if let Some(own) = &offer.own {
            let first = own.versions.len().saturating_sub(MAX_LOOKS);
            let (older, newest) = own.versions.split_at(first);
            tags.extend(older.iter().filter_map(|tagged| tag_of(&tagged.version)));
            let shown = self.shown_of(&path, &own.place, newest.to_vec()).await.map_err(known)?;
            tags.extend(shown.iter().filter_map(|(tagged, _)| tag_of(&tagged.version)));
        }
        let embedded = offer.versions.iter().filter(|(_, claim)| claim.is_some());
        tags.extend(embedded.filter_map(|(version, _)| tag_of(version)));
        tags.sort();
        tags.dedup();
        let after = page.after.as_deref().unwrap_or_default();
        Ok(Page::first_of(tags.into_iter().filter(|tag| tag.as_str() > after), page.count, Tag::as_str))
    }

    /// A blob of a module: wherever it is kept, as far as the caller may read there.
    async fn found_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        range: Option<crate::oci::ByteRange>,
    ) -> Result<BlobStream> {
        let unknown = || RegistryError::BlobUnknown(digest.clone());
        let asked = Asked::Cue(module_of(repository).ok_or_else(unknown)?);
        // Through here: `cue` checks bytes by a header that another server would have to send.
        let request = BlobRequest { range, ..BlobRequest::default() };
        for place in self.places(&asked) {
            match place.registry().blob(&place.repository, digest, request).await {
                Ok(Blob::Stream(stream)) => return Ok(stream),
                Ok(Blob::Location(_) | Blob::File(_)) => {}
                Err(error) if error.may_be_absence() => {}
                Err(error) => return Err(error),
            }
        }
        let began = Instant::now();
        for is_first in [true, false] {
            let known = match self.installer.known(&asked, self.may_read).await {
                Ok(known) => Some(known),
                Err(error) => match Missing::from(error) {
                    Missing::Nothing => None,
                    Missing::Error(error) => return Err(error),
                },
            };
            let (own, embedded) = known.unwrap_or_default();
            // No program reads the configuration, and not every tool stores it.
            if *digest == Digest::of(media_types::EMPTY_CONFIG) && !(own.is_empty() && embedded.is_empty()) {
                return in_memory(Bytes::from_static(media_types::EMPTY_CONFIG), range);
            }
            for claim in &embedded {
                if let Some(stream) = self.blob_of_claim(claim, digest, request).await? {
                    return Ok(stream);
                }
            }
            if is_first {
                self.installer.look_again(&asked, began).await.map_err(|error| {
                    match Missing::from(error) {
                        Missing::Nothing => unknown(),
                        Missing::Error(error) => error,
                    }
                })?;
            }
        }
        Err(unknown())
    }

    /// A blob of a module that is only inside others: its zip, or the module file in that.
    async fn blob_of_claim(
        &self,
        claim: &Claim,
        digest: &Digest,
        request: BlobRequest,
    ) -> Result<Option<BlobStream>> {
        for holder in &claim.holders {
            let place = &holder.place;
            if claim.archive.digest == *digest {
                match place.registry().blob(&place.repository, digest, request).await {
                    Ok(Blob::Stream(stream)) => return Ok(Some(stream)),
                    Ok(Blob::Location(_) | Blob::File(_)) => {}
                    Err(error) if error.may_be_absence() => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            let facts = self.installer.zips().of(place, &claim.archive).await.map_err(flattened)?;
            if let ZipFacts::Good { module_file: Some(file), .. } = &*facts
                && file.digest == *digest
            {
                let zips = self.installer.zips();
                let bytes = zips.module_file(place, &claim.archive, file).await.map_err(flattened)?;
                return in_memory(bytes, request.range).map(Some);
            }
        }
        Ok(None)
    }

    /// Stores a manifest that was pushed to the view.
    async fn store(&self, repository: &Repository, manifest: &NewManifest) -> Result<PutManifest> {
        let place = self.writable(repository, "pushing manifests")?;
        let read = Manifest::parse(&manifest.media_type, &manifest.bytes)?;
        // What is about another manifest is no version: a signature that came along.
        if read.subject.is_none() || !manifest.tags.is_empty() {
            let path =
                module_of(repository).ok_or(RegistryError::Unsupported { operation: "this repository" })?;
            self.check_pushed(repository, &path, &place, &read, &manifest.tags).await?;
        }
        place.registry().put_manifest(&place.repository, manifest).await
    }

    /// Whether what is pushed is what the view would show: two layers, and a module file that says whose version this is.
    async fn check_pushed(
        &self,
        repository: &Repository,
        path: &CuePath,
        place: &Place,
        manifest: &Manifest,
        tags: &[Tag],
    ) -> Result<()> {
        let refuse = |reason: String| Err(RegistryError::Refused(reason));
        let artifact = match ModuleArtifact::read(manifest) {
            Ok(artifact) if is_two_layered(manifest) => artifact,
            Ok(_) => {
                return refuse(format!(
                    "{path} is not taken: `cue` reads modules of two layers, the zip and the module file; push one with \
                     dependencies by `ocimod push`"
                ));
            }
            Err(error) => return refuse(format!("{path} is not taken: {error}")),
        };
        for descriptor in manifest.config.iter().chain(&manifest.layers) {
            self.bring(repository, place, descriptor).await?;
        }
        let unknown = |error: OperationError| match flattened(error) {
            error if error.is_not_found() => {
                RegistryError::ManifestBlobUnknown(artifact.archive.digest.clone())
            }
            error => error,
        };
        let facts = self.installer.zips().of(place, &artifact.archive).await.map_err(unknown)?;
        let (module, file) = match &*facts {
            ZipFacts::Good { module: NamedModule::Path(module), module_file: Some(file), .. } => {
                (module, file)
            }
            ZipFacts::Good { .. } => {
                return refuse(format!("{path} is not taken: its zip has no module file that can be read"));
            }
            ZipFacts::Refused(finding) => {
                return refuse(format!("{path} is not taken: its zip breaks the rule `{}`", finding.rule));
            }
        };
        let layer = artifact.module_file.as_ref().map(|layer| &layer.content);
        let registry = place.registry();
        let is_same = match layer {
            Some(layer) if layer.digest == file.digest => true,
            Some(layer) => {
                let limit = crate::archive::check::MAX_MODULE_FILE_SIZE;
                Digest::of(&registry.small_blob(&place.repository, &layer.digest, limit).await?)
                    == file.digest
            }
            None => false,
        };
        if !is_same {
            return refuse(format!(
                "{path} is not taken: the module file in its zip is not the one that its manifest names"
            ));
        }
        if module.base() != path {
            return refuse(format!("{path} is not taken: its module file says that it is `{module}`"));
        }
        for tag in tags {
            match version_of(tag) {
                Some(version) if version.major() == module.major() => {}
                Some(version) => {
                    return refuse(format!(
                        "{path}@v{version} is not taken: its module file says that it is `{module}`"
                    ));
                }
                None => {
                    return refuse(format!(
                        "`{tag}` is no version of a CUE module; those are three numbers, as in `v1.2.0`"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Sees to it that a blob that the view has shown is in the repository that is pushed to: who saw it does not send it.
    async fn bring(&self, repository: &Repository, place: &Place, descriptor: &Descriptor) -> Result<()> {
        let (registry, digest) = (place.registry(), &descriptor.digest);
        match registry.blob_size(&place.repository, digest).await {
            Err(error) if error.is_not_found() => {}
            other => return other.map(drop),
        }
        if *digest == Digest::of(media_types::EMPTY_CONFIG) {
            let config = BytesSource(Bytes::from_static(media_types::EMPTY_CONFIG));
            return registry.put_blob(&place.repository, digest, &config).await;
        }
        let unknown = || RegistryError::ManifestBlobUnknown(digest.clone());
        let asked = Asked::Cue(module_of(repository).ok_or_else(unknown)?);
        let known = self.installer.known(&asked, self.may_read).await;
        let (_, embedded) = known.map_err(|error| match Missing::from(error) {
            Missing::Nothing => unknown(),
            Missing::Error(error) => error,
        })?;
        for claim in &embedded {
            if claim.archive.digest == *digest {
                for holder in &claim.holders {
                    if registry.mount(&place.repository, digest, Some(&holder.place.repository)).await? {
                        return Ok(());
                    }
                }
            }
            if let Some(stream) = self.blob_of_claim(claim, digest, BlobRequest::default()).await? {
                let limit = crate::archive::check::MAX_MODULE_FILE_SIZE;
                let bytes = crate::registry::read_bounded(stream.bytes, limit).await?;
                return registry.put_blob(&place.repository, digest, &BytesSource(bytes)).await;
            }
        }
        Err(unknown())
    }
}

/// Why there is no manifest.
enum Missing {
    /// There is none.
    Nothing,
    /// Something else.
    Error(RegistryError),
}

impl From<OperationError> for Missing {
    fn from(error: OperationError) -> Self {
        match error.cause() {
            OperationError::NoModule { .. }
            | OperationError::Route(_)
            | OperationError::Tag(_)
            | OperationError::NotAModule { source: ArtifactError::NotAModule { .. }, .. } => Self::Nothing,
            OperationError::Registry { source, .. } if source.is_not_found() => Self::Nothing,
            _ => Self::Error(flattened(error)),
        }
    }
}

impl From<RegistryError> for Missing {
    fn from(error: RegistryError) -> Self {
        Self::Error(error)
    }
}

fn refused(reason: String) -> Missing {
    Missing::Error(RegistryError::Refused(reason))
}

/// The error as one of a registry. Names of other registries and places are for the log alone.
fn flattened(error: OperationError) -> RegistryError {
    match error.cause() {
        OperationError::Registry { source, .. } => source.duplicate(),
        OperationError::Refused(findings) => {
            let rule = findings.first().map_or("unknown", |finding| finding.rule);
            RegistryError::Refused(format!("the module's zip breaks the rule `{rule}`, so it is not shown"))
        }
        OperationError::NotSearchedYet { .. } => RegistryError::Unavailable {
            registry: "the server".to_owned(),
            reason: "it has just started and looks through its registry".to_owned(),
        },
        OperationError::NotAModule { .. } => {
            tracing::warn!("{error}");
            RegistryError::Refused("the module's manifest contradicts itself, so it is not shown".to_owned())
        }
        _ => RegistryError::Io {
            action: "looking for a module".to_owned(),
            source: std::io::Error::other(error),
        },
    }
}

/// The tag of a version in the view; `None` for what `cue` has no tag for.
fn tag_of(version: &Version) -> Option<Tag> {
    artifact::cue_tag(version).ok()
}

/// The version that a tag of the view says: only the one spelling that is listed.
fn version_of(tag: &Tag) -> Option<Version> {
    artifact::version_of(tag).filter(|version| tag_of(version).as_ref() == Some(tag))
}

/// What a stored version is shown as; `None` where it has no module file.
fn manifest_of(stored: &StoredModule) -> Option<Bytes> {
    let manifest = Manifest::parse(IMAGE_MANIFEST, &stored.manifest).ok();
    if manifest.is_some_and(|manifest| is_two_layered(&manifest)) {
        return Some(stored.manifest.clone());
    }
    stored.artifact.module_file.is_some().then(|| stored.artifact.to_two_layer_manifest())
}

/// Whether `cue` reads a manifest: what it looks at, and nothing else.
fn is_two_layered(manifest: &Manifest) -> bool {
    let [_, file] = &manifest.layers[..] else { return false };
    let is = |kind: Option<&str>| kind == Some(media_types::CUE_MODULE_FILE);
    manifest.config.as_ref().is_some_and(|config| config.media_type == media_types::CUE_MODULE)
        && (is(Some(&file.media_type)) || is(file.artifact_type.as_deref()))
}

/// A piece of what is in memory.
fn in_memory(bytes: Bytes, range: Option<crate::oci::ByteRange>) -> Result<BlobStream> {
    let size = bytes.len() as u64;
    let span = range
        .map(|range| range.within(size).ok_or(RegistryError::RangeNotSatisfiable { size }))
        .transpose()?;
    let piece = match span {
        None => bytes,
        Some(span) => {
            // It lies within what is in memory.
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            bytes.slice(at(span.start)..at(span.start + span.length))
        }
    };
    Ok(BlobStream { size, span, bytes: stream::iter([Ok(piece)]).boxed() })
}

impl Registry for CueView<'_> {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        Box::pin(self.listed(repository, page))
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        Box::pin(async move {
            let ViewManifest { bytes, digest } = self.read(repository, reference).await?;
            Ok(StoredManifest { media_type: IMAGE_MANIFEST.to_owned(), digest, bytes })
        })
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        Box::pin(async move {
            let ViewManifest { bytes, digest } = self.read(repository, reference).await?;
            Ok(ManifestHead { media_type: IMAGE_MANIFEST.to_owned(), digest, size: bytes.len() as u64 })
        })
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        Box::pin(self.store(repository, manifest))
    }

    fn blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        request: BlobRequest,
    ) -> Answer<'a, Blob> {
        Box::pin(async move { self.found_blob(repository, digest, request.range).await.map(Blob::Stream) })
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        Box::pin(async move {
            let asked = module_of(repository).map(Asked::Cue);
            for place in asked.iter().flat_map(|asked| self.places(asked)) {
                match place.registry().blob_size(&place.repository, digest).await {
                    Err(error) if error.may_be_absence() => {}
                    size => return size,
                }
            }
            self.found_blob(repository, digest, None).await.map(|stream| stream.size)
        })
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn crate::registry::BlobSource,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let place = self.writable(repository, "pushing blobs")?;
            place.registry().put_blob(&place.repository, digest, source).await
        })
    }

    fn mount<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        from: Option<&'a Repository>,
    ) -> Answer<'a, bool> {
        Box::pin(async move {
            let place = self.writable(repository, "mounting blobs")?;
            let theirs = from.filter(|from| is_in_view(from)).map(|from| Self::target(self.installer, from));
            match theirs {
                None => place.registry().mount(&place.repository, digest, from).await,
                Some(Some(from)) if (self.may_read)(&from) => {
                    place.registry().mount(&place.repository, digest, Some(&from.repository)).await
                }
                Some(_) => Ok(false),
            }
        })
    }

    fn open_upload<'a>(&'a self, repository: &'a Repository, algorithm: Algorithm) -> Answer<'a, UploadId> {
        Box::pin(async move {
            let place = self.writable(repository, "uploading in pieces")?;
            place.registry().open_upload(&place.repository, algorithm).await
        })
    }

    fn upload_offset<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, u64> {
        Box::pin(async move {
            let place = self.writable(repository, "uploading in pieces")?;
            place.registry().upload_offset(&place.repository, upload).await
        })
    }

    fn append_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        offset: Option<u64>,
        bytes: ByteStream,
    ) -> Answer<'a, u64> {
        Box::pin(async move {
            let place = self.writable(repository, "uploading in pieces")?;
            place.registry().append_upload(&place.repository, upload, offset, bytes).await
        })
    }

    fn finish_upload<'a>(
        &'a self,
        repository: &'a Repository,
        upload: &'a UploadId,
        digest: &'a Digest,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let place = self.writable(repository, "uploading in pieces")?;
            place.registry().finish_upload(&place.repository, upload, digest).await
        })
    }

    fn cancel_upload<'a>(&'a self, repository: &'a Repository, upload: &'a UploadId) -> Answer<'a, ()> {
        Box::pin(async move {
            let place = self.writable(repository, "uploading in pieces")?;
            place.registry().cancel_upload(&place.repository, upload).await
        })
    }

    /// Of a manifest that is stored as it is shown. One that was made for the view has none: a signature of another is not its own.
    fn referrers<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        artifact_type: Option<&'a str>,
        page: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        Box::pin(async move {
            let nothing = Page { items: Vec::new(), next: None };
            let Some(path) = module_of(repository) else { return Ok(nothing) };
            let reference = Reference::Digest(digest.clone());
            for place in self.places(&Asked::Cue(path.clone())) {
                let registry = place.registry();
                match registry.manifest_head(&place.repository, &reference).await {
                    Err(error) if error.may_be_absence() => continue,
                    head => head?,
                };
                // What the view shows in another form has referrers there, and none here.
                return match self.manifest_of_digest(&path, digest).await {
                    Ok(_) => registry.referrers(&place.repository, digest, artifact_type, page).await,
                    Err(Missing::Nothing) => Ok(nothing),
                    Err(Missing::Error(error)) => Err(error),
                };
            }
            Ok(nothing)
        })
    }
}
