//! What a registry holds of a module: its versions, and the artifact of one of them.
//!
//! Every verb and every endpoint that reads goes through here, so that they all mean the same by "version 1.2.0".

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::archive::check::MAX_MODULE_FILE_SIZE;
use crate::archive::{Listing, ModuleKind};
use crate::artifact::{self, ArtifactError, DependencyLayer, ModuleArtifact, TaggedVersion};
use crate::module::{
    Address, AddressAt, Constraint, CuePath, Host, ModuleFile, ModuleVersion, Version, VersionQuery,
};
use crate::oci::{Digest, Manifest, ManifestError, Reference, Tag};
use crate::registry::RegistryError;

use super::error::{OperationError, Result};
use super::routes::{ModuleName, Place, Routes};
use super::yank::{self, Marks, Yanked};

/// A repository with more tags is broken off: somebody's registry goes on without end.
pub const MAX_TAGS: usize = 200_000;
/// How many manifests are read, from the newest version on, to find one that is a module's or that says its path. A repository may
/// have tags without end that look like versions and are none; one that was taken over from the placeholder host says so early.
const MAX_LOOKS: usize = 50;

/// The versions of a module in its repository.
#[derive(Clone, Debug)]
pub struct Published {
    /// The module.
    pub module: ModuleName,
    /// Its repository.
    pub place: Place,
    /// What is there, ascending.
    pub versions: Vec<TaggedVersion>,
    /// The tags that may say that a version is yanked, also one that is not here itself.
    marks: Marks,
    /// What was read of it already: one request is asked for many things.
    loaded: Arc<Mutex<HashMap<Tag, StoredModule>>>,
}

/// One version of a module as it is stored.
#[derive(Clone, Debug)]
pub struct StoredModule {
    /// Its repository.
    pub place: Place,
    /// What it was asked for by: the version's tag, or a digest.
    pub reference: Reference,
    /// The version that the tag says, or an annotation where it was asked for by something else.
    pub version: Option<Version>,
    /// The digest of the manifest at the version's tag; of the bundle's where that is all there is.
    pub digest: Digest,
    /// That manifest's bytes.
    pub manifest: Bytes,
    /// What it says; the dependencies are the bundle's where there is one.
    pub artifact: ModuleArtifact,
    /// How the dependencies are kept.
    pub form: DependencyForm,
    /// The manifest that this one is about, where it is a bundle.
    pub subject: Option<Digest>,
}

/// How a module's dependencies are kept with it (`--deps`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyForm {
    /// As layers of the module's manifest.
    Inline,
    /// As layers of a second manifest, the bundle.
    Separate,
    /// Not at all.
    None,
}

impl DependencyForm {
    /// As it is written behind `--deps`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Separate => "separate",
            Self::None => "none",
        }
    }
}

/// The versions of a module; [`OperationError::NoModule`] where there are none.
pub async fn find(routes: &Routes, module: &ModuleName) -> Result<Published> {
    let places = routes.places(module)?;
    let mut unknown = None;
    for place in &places {
        let Some(published) = at_or_unknown(module, place, &mut unknown).await? else { continue };
        if !published.versions.is_empty() && published.holds(module).await? {
            return Ok(published);
        }
    }
    Err(unknown.unwrap_or_else(|| no_module(module, &places)))
}

/// The repository that is the module's own: where its versions are, else where the first would be pushed. Never one that another module
/// has.
pub(super) async fn home(routes: &Routes, module: &ModuleName) -> Result<Published> {
    let places = routes.places(module)?;
    let (mut free, mut unknown) = (None, None);
    for place in &places {
        let Some(published) = at_or_unknown(module, place, &mut unknown).await? else { continue };
        if published.versions.is_empty() {
            free.get_or_insert(published);
        } else if published.holds(module).await? {
            return Ok(published);
        }
    }
    match unknown {
        // It may be the one that is not known of.
        Some(unknown) => Err(unknown),
        None => free.ok_or_else(|| no_module(module, &places)),
    }
}

fn no_module(module: &ModuleName, places: &[Place]) -> OperationError {
    let places = places.iter().map(Place::name).collect();
    OperationError::NoModule { module: module.to_string(), places }
}

/// The versions in one repository; none where there is no such repository.
pub async fn at(module: &ModuleName, place: &Place) -> Result<Published> {
    let tags = match place.registry().all_tags(&place.repository, MAX_TAGS).await {
        Err(error) if error.is_not_found() => Vec::new(),
        tags => tags.map_err(OperationError::registry(place.name()))?,
    };
    Ok(Published::of_tags(module, place, tags))
}

/// The same, where another repository may have the module: of one that may or may not be there `unknown` is told, and the others are
/// still looked at.
pub(super) async fn at_or_unknown(
    module: &ModuleName,
    place: &Place,
    unknown: &mut Option<OperationError>,
) -> Result<Option<Published>> {
    match at(module, place).await {
        Err(error) if error.may_be_absence() => {
            unknown.get_or_insert(error);
            Ok(None)
        }
        published => published.map(Some),
    }
}

/// The module that an address names. A provider, or a place in a registry, is none.
pub fn name(address: &AddressAt) -> Result<ModuleName> {
    match &address.address {
        Address::Tofu(address) => {
            ModuleName::tofu(address, &Host::internal()).map_err(|error| OperationError::Usage {
                message: error.to_string(),
                hint: "a module of that name cannot be in a registry".to_owned(),
            })
        }
        Address::Cue(path) => Ok(ModuleName::Cue(path.clone())),
        provider @ Address::Provider(_) => Err(OperationError::Usage {
            message: format!("`{provider}` is a provider, and not a module"),
            hint: "`ocimod provider --help` lists what is done with providers".to_owned(),
        }),
        other => Err(OperationError::Usage {
            message: format!("`{other}` is not the name of a module"),
            hint: "write `NAMESPACE/NAME/SYSTEM` for an OpenTofu module, or the module path of a CUE module"
                .to_owned(),
        }),
    }
}

/// The newest version of a module that an address and a constraint leave.
pub async fn select(
    routes: &Routes,
    address: &AddressAt,
    constraint: Option<&Constraint>,
) -> Result<StoredModule> {
    let mut published = find(routes, &name(address)?).await?;
    if let Some(query @ VersionQuery::Major(_)) = &address.version {
        published.keep(Some(query));
    }
    let constraint = match (&address.version, constraint) {
        (Some(VersionQuery::Constraint(_)), Some(_)) => {
            return Err(OperationError::Usage {
                message: "the address and `--version` both say which version is meant".to_owned(),
                hint: "give one of them".to_owned(),
            });
        }
        (Some(VersionQuery::Constraint(constraint)), None) | (_, Some(constraint)) => constraint.clone(),
        (_, None) => Constraint::any(),
    };
    published.choose(&constraint).await.map(|(_, stored)| stored)
}

impl Published {
    /// What the tags of a repository say.
    pub(super) fn of_tags(module: &ModuleName, place: &Place, tags: Vec<Tag>) -> Self {
        Self {
            module: module.clone(),
            place: place.clone(),
            marks: Marks::of_tags(&tags),
            versions: artifact::versions(tags),
            loaded: Arc::default(),
        }
    }

    /// Leaves only the versions that an address asks for.
    pub fn keep(&mut self, query: Option<&VersionQuery>) {
        match query {
            Some(VersionQuery::Major(major)) => {
                self.versions.retain(|tagged| tagged.version.major() == *major);
            }
            Some(VersionQuery::Constraint(constraint)) => {
                self.versions.retain(|tagged| constraint.matches(&tagged.version));
            }
            Some(VersionQuery::Latest) | None => {}
        }
    }

    /// The versions alone, ascending.
    pub fn listed(&self) -> impl DoubleEndedIterator<Item = &Version> {
        self.versions.iter().map(|tagged| &tagged.version)
    }

    /// The versions that are yanked, and why: those of the repository, and those that it yanks where they are embedded elsewhere. The
    /// marks are in the list of tags, so this costs nothing where there are none, and a request for each where there are some.
    pub async fn yanked(&self) -> Result<&Yanked> {
        self.marks.read(&self.place).await
    }

    /// The marks of a version that may be yanked.
    pub fn marks(&self, version: &Version) -> &[Tag] {
        self.marks.of(version)
    }

    /// Leaves out the versions that are yanked, as every list for installing clients does.
    pub async fn leave_unyanked(&mut self) -> Result<()> {
        let yanked = self.yanked().await?.clone();
        self.versions.retain(|tagged| !yanked.contains_key(&tagged.version));
        Ok(())
    }

    /// The highest version that satisfies a constraint, with its artifact. A version whose tag holds something else than a module is
    /// passed over, up to a limit, and a yanked one unless it is asked for by its exact number; `None` where no version is left.
    pub async fn newest(&self, constraint: &Constraint) -> Result<Option<(TaggedVersion, StoredModule)>> {
        let (yanked, exact) = (self.yanked().await?, constraint.exact());
        let is_left = |version: &Version| !yanked.contains_key(version) || exact.as_ref() == Some(version);
        let mut left: Vec<&TaggedVersion> =
            self.versions.iter().filter(|tagged| is_left(&tagged.version)).collect();
        for _ in 0..MAX_LOOKS {
            let chosen = constraint.highest(left.iter().map(|tagged| &tagged.version)).cloned();
            let Some(index) = left.iter().position(|tagged| Some(&tagged.version) == chosen.as_ref()) else {
                break;
            };
            let tagged = left.remove(index);
            match self.load(tagged).await {
                Ok(stored) => {
                    if let Some(reason) = yanked.get(&tagged.version) {
                        tracing::warn!("{} is yanked{}", stored.name(), yank::because(reason.as_ref()));
                    }
                    return Ok(Some((tagged.clone(), stored)));
                }
                // Asked for by its exact version, it is said what it is; and a module that lies is no other thing.
                Err(OperationError::NotAModule { source: ArtifactError::NotAModule { .. }, .. })
                    if constraint.exact().is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The same, where a version is needed.
    pub async fn choose(&self, constraint: &Constraint) -> Result<(TaggedVersion, StoredModule)> {
        match self.newest(constraint).await? {
            Some(chosen) => Ok(chosen),
            None => Err(self.no_version(constraint).await?),
        }
    }

    /// The error of a constraint that no version satisfies.
    pub async fn no_version(&self, constraint: &Constraint) -> Result<OperationError> {
        let yanked = self.yanked().await?;
        let (yanked, versions) =
            self.listed().cloned().partition(|version: &Version| yanked.contains_key(version));
        Ok(OperationError::NoVersion {
            module: self.module.to_string(),
            constraint: constraint.clone(),
            versions,
            yanked,
        })
    }

    /// That version's artifact.
    pub async fn load(&self, version: &TaggedVersion) -> Result<StoredModule> {
        let known = |loaded: &HashMap<Tag, StoredModule>| loaded.get(&version.tag).cloned();
        if let Some(stored) = known(&self.loaded.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(stored);
        }
        let stored = load(&self.place, version).await?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.insert(version.tag.clone(), stored.clone());
        Ok(stored)
    }

    /// The module path that the newest version says; `None` where none of the newest does, as where another tool pushed them.
    pub async fn stored_path(&self) -> Result<Option<CuePath>> {
        self.path_where(|_| true).await
    }

    /// The path of the module that the repository belongs to: the placeholder host gives way to any other that a version names.
    pub async fn owner(&self) -> Result<Option<CuePath>> {
        match self.path_where(|path| path.first_element() != Host::INTERNAL).await? {
            Some(path) => Ok(Some(path)),
            None => self.stored_path().await,
        }
    }

    /// The first path, from the newest version on, that will do.
    async fn path_where(&self, will_do: impl Fn(&CuePath) -> bool) -> Result<Option<CuePath>> {
        for tagged in self.versions.iter().rev().take(MAX_LOOKS) {
            let stored = match self.load(tagged).await {
                Ok(stored) => stored,
                Err(OperationError::NotAModule { .. }) => continue,
                // Somebody is about to push it: a registry may list a tag a moment before there is anything at it.
                Err(OperationError::Registry { source, .. }) if source.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            let path = stored.module_file().await?.map(|file| file.module.base().clone());
            if let Some(path) = path.filter(|path| will_do(path)) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Whether the repository holds this module, and not one of the same name on another host.
    ///
    /// `modules.internal` is a placeholder: it stands for any host, on either side.
    pub(super) async fn holds(&self, module: &ModuleName) -> Result<bool> {
        let ModuleName::Tofu { path, .. } = module else { return Ok(true) };
        Ok(self.stored_path().await?.is_none_or(|stored| same_module(&stored, path)))
    }
}

/// Whether two paths name one module, the placeholder host standing for any other.
pub fn same_module(one: &CuePath, other: &CuePath) -> bool {
    fn split(path: &CuePath) -> (&str, &str) {
        path.as_str().split_once('/').unwrap_or((path.as_str(), ""))
    }
    let ((one_host, one), (other_host, other)) = (split(one), split(other));
    let is_placeholder = |host: &str| host == Host::INTERNAL;
    one == other && (one_host == other_host || is_placeholder(one_host) || is_placeholder(other_host))
}

/// Reads one version: its manifest, and its bundle where there is one.
pub async fn load(place: &Place, version: &TaggedVersion) -> Result<StoredModule> {
    let bundle = if version.has_bundle {
        Some(load_reference(place, &Reference::Tag(artifact::bundle_tag(&version.tag)?)).await?)
    } else {
        None
    };
    let stored = match (version.has_tag, bundle) {
        // One tag was copied here, and it is the bundle's: that is the version.
        (false, Some(bundle)) => StoredModule { form: DependencyForm::Separate, ..bundle },
        (_, bundle) => {
            let mut stored = load_reference(place, &Reference::Tag(version.tag.clone())).await?;
            // A bundle is believed only about the manifest that it names, and adds nothing to one that says itself what it needs.
            let is_about = |bundle: &StoredModule| bundle.subject.as_ref() == Some(&stored.digest);
            if let Some(bundle) = bundle.filter(is_about).filter(|_| stored.form == DependencyForm::None) {
                stored.artifact.dependencies = bundle.artifact.dependencies;
                stored.form = DependencyForm::Separate;
            }
            stored
        }
    };
    Ok(StoredModule { version: Some(version.version.clone()), ..stored })
}

/// Reads the module at any tag or digest, its bundle aside.
pub async fn load_reference(place: &Place, reference: &Reference) -> Result<StoredModule> {
    let stored = match place.registry().manifest(&place.repository, reference).await {
        // What tools pushed before there was OCI, say; a registry that answers a page of HTML fails.
        Err(RegistryError::ManifestInvalid(ManifestError::UnknownType(kind)))
            if kind.starts_with("application/vnd.") =>
        {
            let source = ArtifactError::NotAModule { found: format!("a manifest of type `{kind}`") };
            return Err(OperationError::NotAModule { reference: place.reference(reference), source });
        }
        stored => stored.map_err(OperationError::registry(place.reference(reference)))?,
    };
    let manifest = Manifest::parse(&stored.media_type, &stored.bytes)
        .map_err(RegistryError::from)
        .map_err(OperationError::registry(place.reference(reference)))?;
    let artifact = ModuleArtifact::read(&manifest)
        .map_err(|source| OperationError::NotAModule { reference: place.reference(reference), source })?;
    let subject = manifest.subject.map(|subject| subject.digest);
    let tagged = match reference {
        Reference::Tag(tag) => artifact::version_of(tag),
        Reference::Digest(_) => None,
    };
    let annotated = || Version::parse(artifact.annotations.get(artifact::media_types::VERSION)?).ok();
    Ok(StoredModule {
        place: place.clone(),
        reference: reference.clone(),
        version: tagged.or_else(annotated),
        digest: stored.digest,
        manifest: stored.bytes,
        form: if artifact.dependencies.is_empty() { DependencyForm::None } else { DependencyForm::Inline },
        artifact,
        subject,
    })
}

impl StoredModule {
    /// `registry/repository:tag`.
    pub fn name(&self) -> String {
        self.place.reference(&self.reference)
    }

    /// The bytes of the module file; `None` where the artifact has none.
    pub async fn module_file_bytes(&self) -> Result<Option<Bytes>> {
        let Some(layer) = &self.artifact.module_file else { return Ok(None) };
        if let Some(data) = &layer.data {
            return Ok(Some(data.clone()));
        }
        let registry = self.place.registry();
        let bytes =
            registry.small_blob(&self.place.repository, &layer.content.digest, MAX_MODULE_FILE_SIZE).await;
        bytes.map(Some).map_err(OperationError::registry(self.name()))
    }

    /// The module file, read; `None` where the artifact has none, or none that can be read: another tool may have pushed it,
    /// and its zip is as good without.
    pub async fn module_file(&self) -> Result<Option<ModuleFile>> {
        let bytes = self.module_file_bytes().await?;
        Ok(bytes.and_then(|bytes| ModuleFile::parse(&bytes, true).ok()))
    }

    /// The versions of other modules that it was pushed with, embedded or only listed. None where another tool pushed it without a module
    /// file: then its `.tf` files alone say what it needs.
    pub async fn recorded_dependencies(&self) -> Result<Vec<ModuleVersion>> {
        if !self.artifact.dependencies.is_empty() {
            return Ok(self.artifact.dependencies.iter().map(|layer| layer.module.clone()).collect());
        }
        let file = self.module_file().await?;
        let recorded =
            file.as_ref().and_then(ModuleFile::custom_ocimod).filter(|ocimod| ocimod.is_generated());
        Ok(match (recorded, &file) {
            (Some(recorded), _) => recorded.dependencies().to_vec(),
            (None, Some(file)) => file
                .deps
                .iter()
                .map(|entry| ModuleVersion::new(entry.path.base().clone(), entry.version.clone()))
                .collect(),
            (None, None) => Vec::new(),
        })
    }

    /// Whether the module can be called by OpenTofu: it was pushed as such, or its zip has `.tf` files at its root.
    pub fn is_opentofu(&self, listing: &Listing) -> bool {
        self.artifact.kind == ModuleKind::OpenTofu || listing.has_tofu_files_at_root()
    }

    /// The zips that a user of this module as a dependency needs with it.
    pub fn needed_by_dependents(&self) -> impl Iterator<Item = &DependencyLayer> {
        self.artifact.dependencies.iter().filter(|layer| !layer.main_only)
    }
}
