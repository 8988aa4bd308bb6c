//! Pushes a module: packs it, resolves what it needs, sends what the registry lacks, and tags it as the last step.
//!
//! A version is immutable. The same content again is a success that changes nothing; other content is refused. A remote registry
//! has no conditional request for that, so it is looked at before anything is sent, and again around the request that tags.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::NamedTempFile;

use crate::archive::{self, Entry, ModuleKind, Tree};
use crate::artifact::{
    self, Content, DependencyLayer, ModuleArtifact, ModuleFileLayer, TaggedVersion, media_types,
};
use crate::module::{CuePath, Host, ModuleFile, Ocimod, Version};
use crate::oci::{Algorithm, Annotations, Digest, Hasher, IMAGE_MANIFEST, Reference, Tag};
use crate::registry::{
    BlobSource, BytesSource, Condition, FileSource, NewManifest, RegistryError, RegistrySource,
};

use super::Progress;
use super::cue_module;
use super::download;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::prepare::{self, MODULE_FILE, Named, Naming, Prepared};
use super::progress::CountedSource;
use super::published::{self, DependencyForm, Published, StoredModule};
use super::resolve::{self, Dependency, OwnHosts, Resolution};
use super::routes::{Place, RouteError, Routes};
use super::zip_facts::KnownZips;

/// What to push, and how.
#[derive(Clone, Debug)]
pub struct PushRequest {
    /// A module's folder, or a zip.
    pub source: PathBuf,
    /// What the caller says of name and version.
    pub naming: Naming,
    /// Hosts that the module's own host had before.
    pub host_aliases: Vec<Host>,
    /// `--deps`; the stored form of an existing version, else the kind's own, where it is absent.
    pub form: Option<DependencyForm>,
    /// Refuse calls that cannot be embedded.
    pub strict: bool,
    /// Check everything and send nothing. A version may be left out then.
    pub dry_run: bool,
    /// `SOURCE_DATE_EPOCH`: seconds since 1970 that the artifact is said to be made at.
    pub created: Option<i64>,
}

/// What came of a push.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// The module's address or path.
    pub address: String,
    /// The version; `None` only in a dry run without one.
    pub version: Option<Version>,
    /// `registry/repository:tag`.
    pub reference: Option<String>,
    /// `registry/repository@digest`.
    pub pinned: Option<String>,
    /// Digest of the manifest at the version's tag.
    pub digest: Option<Digest>,
    /// Whether the version is new; `false` where the same was there.
    pub created: bool,
    /// What the artifact has of other modules.
    pub dependencies: Vec<DependencyLayer>,
    /// Bytes of blobs and manifests that were sent.
    pub bytes_sent: u64,
    /// The files in the zip, sorted.
    pub files: Vec<String>,
}

/// Pushes a module.
pub async fn push(routes: &Routes, request: &PushRequest, progress: Arc<dyn Progress>) -> Result<Pushed> {
    let prepared = prepare::read(&request.source).await?;
    for warning in &prepared.warnings {
        progress.warn(warning);
    }
    if !prepared.findings.is_empty() {
        return Err(OperationError::Refused(prepared.findings.clone()));
    }
    let named = prepared.name(&request.naming)?;
    let own = OwnHosts { host: named.host.clone(), aliases: request.host_aliases.clone() };
    let places = routes.places(&named.module)?;
    let [first, ..] = &places[..] else { return Err(no_place(&named)) };
    if named.version.is_none() && !request.dry_run {
        return Err(prepared.no_version(&named.module));
    }
    let mut push = Push { routes, request, prepared, named, own, place: first.clone(), progress };
    let published = push.find_place(&places).await?;
    if let Some(version) = push.named.version.clone()
        && let Some(existing) = published.versions.iter().find(|tagged| tagged.version == version)
    {
        return push.compare(existing, &published).await;
    }
    push.send(&published).await
}

struct Push<'a> {
    routes: &'a Routes,
    request: &'a PushRequest,
    prepared: Prepared,
    named: Named,
    own: OwnHosts,
    place: Place,
    progress: Arc<dyn Progress>,
}

impl Push<'_> {
    /// Where the module goes: to the repository where it is already, else to the first; and what is there. Refused where another
    /// module has that place.
    async fn find_place(&mut self, places: &[Place]) -> Result<Published> {
        let pushed = self.named.module.path().clone();
        let (mut first, mut unknown) = (None, None);
        for place in places {
            let module = &self.named.module;
            // A first push into a repository that is not there yet, or one that is not allowed: the push itself tells.
            let published = published::at_or_unknown(module, place, &mut unknown).await?;
            let published = published.unwrap_or_else(|| Published::of_tags(module, place, Vec::new()));
            let owner = published.owner().await?;
            // A placeholder host gives way to a real one, and not the other way round.
            let takes_over = |owner: &CuePath| {
                owner.first_element() == Host::INTERNAL && published::same_module(owner, &pushed)
            };
            let is_ours = owner.as_ref().is_none_or(|owner| *owner == pushed || takes_over(owner));
            if is_ours && !published.versions.is_empty() {
                self.place = place.clone();
                return Ok(published);
            }
            first.get_or_insert((published, owner.filter(|_| !is_ours)));
        }
        match first {
            Some((published, None)) => Ok(published),
            Some((published, Some(stored))) => Err(OperationError::OtherModule {
                place: published.place.name(),
                stored: stored.to_string(),
                pushed: pushed.to_string(),
            }),
            None => Err(no_place(&self.named)),
        }
    }

    /// The version is there: the same content is a success, other content is refused.
    async fn compare(&self, existing: &TaggedVersion, published: &Published) -> Result<Pushed> {
        let stored = match published.load(existing).await {
            Err(OperationError::NotAModule { reference, source }) => {
                let message = format!("{reference}: {source}; push the module under another version or name");
                return Err(OperationError::refused(Finding::general("version-taken", message)));
            }
            stored => stored?,
        };
        let exists = |difference: String| OperationError::Exists {
            reference: stored.name(),
            digest: stored.digest.clone(),
            difference,
        };
        if stored.artifact.kind != self.prepared.kind {
            return Err(exists("is a module of another kind".to_owned()));
        }
        let zip = match download::archive(&stored.place, &stored.artifact.archive).await {
            Err(OperationError::Registry { source, place }) if is_damage(&source) => {
                return self.mend(&stored, existing, OperationError::registry(place)(source)).await;
            }
            zip => zip?,
        };
        let ours = self.prepared.tree.clone();
        // A generated module file depends on what else is in the registry; the files that it is generated from are compared.
        let file = stored.module_file().await?;
        let is_generated = |file: &ModuleFile| file.custom_ocimod().is_some_and(Ocimod::is_generated);
        let generated = self.prepared.is_module_file_ours() && file.as_ref().is_none_or(is_generated);
        let (kind, reference) = (self.prepared.kind, stored.name());
        cue_module::expect_layers(&KnownZips::new(None), &stored.place, &stored.artifact, &reference).await?;
        let layer = stored.module_file_bytes().await?;
        let difference = super::blocking(move || -> Result<Option<String>> {
            let theirs = Tree::from_zip(zip.path(), kind)
                .map_err(|error| OperationError::refused(Finding::of_check(&error, &reference)))?;
            if let Some(layer) = layer {
                cue_module::expect_module_file(&theirs, kind, &layer, &reference)?;
            }
            let except: &[&str] = if generated { &[MODULE_FILE] } else { &[] };
            compare_trees(&ours, &theirs, except)
        })
        .await?;
        if let Some(difference) = difference {
            return Err(exists(difference));
        }
        let recorded = stored.recorded_dependencies().await?;
        let unsatisfied = self
            .prepared
            .tofu
            .as_ref()
            .and_then(|tofu| resolve::still_satisfied(&self.own, &self.named.module, tofu, &recorded));
        if let Some(finding) = unsatisfied {
            return Err(exists(format!("was pushed with other dependencies ({finding})")));
        }
        if let Some(form) = self.request.form
            && form != stored.form
            && !recorded.is_empty()
        {
            return Err(OperationError::OtherForm { reference: stored.name(), stored: stored.form.name() });
        }
        if self.request.strict {
            let (own, version) = (&self.own, stored.version.as_ref());
            let outside = match &self.prepared.tofu {
                Some(tofu) => {
                    resolve::opentofu(None, own, Some(&self.named.module), version, tofu).await?.outside
                }
                None => Vec::new(),
            };
            if !outside.is_empty() {
                return Err(OperationError::Refused(outside));
            }
        }
        let (digest, bytes_sent) = self.complete(&stored, existing).await?;
        Ok(self.unchanged(&stored, existing, digest, bytes_sent))
    }

    /// The answer of a push that found its version there.
    fn unchanged(
        &self,
        stored: &StoredModule,
        existing: &TaggedVersion,
        digest: Digest,
        bytes_sent: u64,
    ) -> Pushed {
        // Where the bundle alone was copied, its tag is all there is.
        let is_tagged = existing.has_tag || digest != stored.digest;
        let reference =
            if is_tagged { Reference::Tag(existing.tag.clone()) } else { stored.reference.clone() };
        Pushed {
            address: self.named.module.to_string(),
            version: stored.version.clone(),
            reference: Some(stored.place.reference(&reference)),
            pinned: Some(stored.place.reference(&digest.clone().into())),
            digest: Some(digest),
            created: false,
            dependencies: stored.artifact.dependencies.clone(),
            bytes_sent,
            files: self.prepared.tree.entries().iter().map(|entry| entry.name.clone()).collect(),
        }
    }

    /// The stored zip is gone or damaged. Where this push has the same, it is sent again; else nothing can be compared.
    async fn mend(
        &self,
        stored: &StoredModule,
        existing: &TaggedVersion,
        damage: OperationError,
    ) -> Result<Pushed> {
        let assembled = match &stored.version {
            Some(version) => Some(self.assemble(version, &stored.artifact.dependencies).await?),
            None => None,
        };
        let Some(assembled) = assembled.filter(|ours| ours.artifact.archive == stored.artifact.archive)
        else {
            return Err(damage);
        };
        let Content { digest, size } = &stored.artifact.archive;
        let mut bytes_sent = 0;
        if !self.request.dry_run {
            let zip = FileSource::new(assembled.zip.path(), *size);
            bytes_sent = self.put("module", digest, &zip).await?;
            self.progress.warn(&format!("{} had lost its zip; it was sent again", stored.name()));
        }
        let (manifest, completed) = self.complete(stored, existing).await?;
        Ok(self.unchanged(stored, existing, manifest, bytes_sent + completed))
    }

    /// Sets the version's tag where an earlier push was cut off between the bundle's tag and that one; answers the digest at the
    /// tag, and the bytes sent. Where the bundle alone was copied, its subject is not there, and the bundle is the version.
    async fn complete(&self, stored: &StoredModule, existing: &TaggedVersion) -> Result<(Digest, u64)> {
        let nothing = Ok((stored.digest.clone(), 0));
        let Some(subject) = stored.subject.as_ref().filter(|_| !existing.has_tag) else { return nothing };
        let registry = self.place.registry();
        match registry.manifest(&self.place.repository, &Reference::Digest(subject.clone())).await {
            Ok(subject) if !self.request.dry_run => {
                let size = subject.bytes.len() as u64;
                self.put_manifest(subject.bytes, vec![existing.tag.clone()]).await?;
                Ok((subject.digest, size))
            }
            Ok(_) => nothing,
            Err(error) if error.is_not_found() => nothing,
            Err(error) => Err(OperationError::registry(self.place.name())(error)),
        }
    }

    /// The version is new: packs it, sends what is missing, and tags it.
    async fn send(&self, published: &Published) -> Result<Pushed> {
        let resolution =
            resolve(self.routes, &self.prepared, &self.named, &self.own, self.request.strict).await?;
        for outside in &resolution.outside {
            self.progress.warn(&outside.to_string());
        }
        let form = self.form(published).await?;
        let layers: Vec<DependencyLayer> =
            resolution.dependencies.iter().map(|found| found.layer.clone()).collect();
        if self.prepared.kind == ModuleKind::Cue && form == DependencyForm::Inline && !layers.is_empty() {
            self.progress.warn(
                "the `cue` of today refuses a manifest with dependency layers; its users read this module through `ocimod serve`, at \
                 CUE_REGISTRY=HOST/cue.mod, or push it with `--deps separate`, which keeps the layers beside the module",
            );
        }
        // Without a version there is no major version and so no module file; what a dry run then packs is the rest.
        let assembled = match &self.named.version {
            Some(version) => Some(self.assemble(version, &layers).await?),
            None => None,
        };
        let mut pushed = Pushed {
            address: self.named.module.to_string(),
            version: self.named.version.clone(),
            reference: None,
            pinned: None,
            digest: None,
            created: true,
            dependencies: if form == DependencyForm::None { Vec::new() } else { layers },
            bytes_sent: 0,
            files: assembled
                .as_ref()
                .map_or(&self.prepared.tree, |assembled| &assembled.tree)
                .entries()
                .iter()
                .map(|entry| entry.name.clone())
                .collect(),
        };
        let (Some(assembled), Some(version)) = (assembled, &self.named.version) else { return Ok(pushed) };
        let tag = match self.prepared.kind {
            ModuleKind::OpenTofu => artifact::module_tag(version)?,
            ModuleKind::Cue => artifact::cue_tag(version)?,
        };
        let manifests = Manifests::of(&assembled.artifact, form);
        let digest = Digest::of(&manifests.tagged);
        pushed.reference = Some(self.place.reference(&tag.clone().into()));
        pushed.pinned = Some(self.place.reference(&digest.clone().into()));
        pushed.digest = Some(digest);
        if self.request.dry_run {
            return Ok(pushed);
        }
        let embedded: &[Dependency] =
            if form == DependencyForm::None { &[] } else { &resolution.dependencies };
        pushed.bytes_sent = self.upload(&assembled, embedded).await?;
        pushed.bytes_sent += self.tag(&tag, manifests).await?;
        Ok(pushed)
    }

    /// The form of `--deps`: what was asked for, else, for a CUE module, whatever the users of its repository can read already.
    async fn form(&self, published: &Published) -> Result<DependencyForm> {
        if let Some(form) = self.request.form {
            return Ok(form);
        }
        let Some(newest) = published.versions.last().filter(|_| self.prepared.kind == ModuleKind::Cue) else {
            return Ok(DependencyForm::Inline);
        };
        let newest = match published.load(newest).await {
            Ok(stored) => stored,
            Err(OperationError::NotAModule { .. }) => return Ok(DependencyForm::Inline),
            Err(error) => return Err(error),
        };
        // What `cue mod publish` writes, and has to be able to read.
        let two_layers = newest.form != DependencyForm::Inline;
        Ok(if two_layers { DependencyForm::Separate } else { DependencyForm::Inline })
    }

    async fn assemble(&self, version: &Version, layers: &[DependencyLayer]) -> Result<Assembled> {
        self.progress.started("packing", None);
        let assembled = assemble(&self.prepared, &self.named, version, layers, self.request.created).await;
        self.progress.finished();
        assembled
    }

    /// Sends the blobs that the repository lacks; answers how many bytes were sent.
    async fn upload(&self, assembled: &Assembled, dependencies: &[Dependency]) -> Result<u64> {
        let artifact = &assembled.artifact;
        let config = BytesSource(Bytes::from_static(media_types::EMPTY_CONFIG));
        let mut sent = self.blob("configuration", &Digest::of(media_types::EMPTY_CONFIG), &config).await?;
        let zip = FileSource::new(assembled.zip.path(), artifact.archive.size);
        sent += self.blob("module", &artifact.archive.digest, &zip).await?;
        let file = BytesSource(assembled.module_file.clone());
        sent += self.blob("module file", &Digest::of(&assembled.module_file), &file).await?;
        for dependency in dependencies {
            sent += self.dependency(dependency).await?;
        }
        Ok(sent)
    }

    async fn dependency(&self, dependency: &Dependency) -> Result<u64> {
        let Content { digest, size } = &dependency.layer.archive;
        if self.has(digest).await? {
            return Ok(0);
        }
        let from = &dependency.place;
        if from.target.identity == self.place.target.identity {
            let registry = self.place.registry();
            let mounted = registry.mount(&self.place.repository, digest, Some(&from.repository)).await;
            if mounted.map_err(OperationError::registry(self.place.name()))? {
                return Ok(0);
            }
        }
        let registry = Arc::clone(&from.target.registry);
        let source = RegistrySource::new(registry, from.repository.clone(), digest.clone(), *size);
        self.put(&dependency.layer.module.to_string(), digest, &source).await
    }

    async fn blob(&self, what: &str, digest: &Digest, source: &dyn BlobSource) -> Result<u64> {
        if self.has(digest).await? { Ok(0) } else { self.put(what, digest, source).await }
    }

    async fn has(&self, digest: &Digest) -> Result<bool> {
        match self.place.registry().blob_size(&self.place.repository, digest).await {
            Ok(_) => Ok(true),
            Err(error) if error.may_be_absence() => Ok(false),
            Err(error) => Err(OperationError::registry(self.place.name())(error)),
        }
    }

    async fn put(&self, what: &str, digest: &Digest, source: &dyn BlobSource) -> Result<u64> {
        self.progress.started(what, Some(source.size()));
        let counted = CountedSource::new(source, Arc::clone(&self.progress));
        let answer = self.place.registry().put_blob(&self.place.repository, digest, &counted).await;
        self.progress.finished();
        answer.map_err(OperationError::registry(self.place.name()))?;
        Ok(source.size())
    }

    /// Stores the manifests, the version's tag last.
    async fn tag(&self, tag: &Tag, manifests: Manifests) -> Result<u64> {
        let mut sent = manifests.tagged.len() as u64;
        let is_bundled = manifests.bundle.is_some();
        if let Some(bundle) = manifests.bundle {
            sent += bundle.len() as u64;
            // GitLab refuses a manifest whose subject is not there, so the subject goes first, without its tag. The bundle goes
            // before the version's tag, so that nobody sees the version without it.
            self.put_manifest(manifests.tagged.clone(), Vec::new()).await?;
            self.refuse_rival(tag, &Digest::of(&manifests.tagged)).await?;
            self.put_manifest(bundle, vec![artifact::bundle_tag(tag)?]).await?;
        }
        match self.put_manifest(manifests.tagged, vec![tag.clone()]).await {
            Ok(()) => Ok(sent),
            // Somebody else pushed the version meanwhile.
            Err(OperationError::Registry { source: RegistryError::TagExists { existing, .. }, .. }) => {
                if is_bundled {
                    self.withdraw_bundle(tag, &existing).await;
                }
                Err(self.rival(tag, existing))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether somebody else pushed the version while this push was under way.
    async fn refuse_rival(&self, tag: &Tag, ours: &Digest) -> Result<()> {
        let reference = Reference::Tag(tag.clone());
        match self.place.registry().manifest_head(&self.place.repository, &reference).await {
            Ok(head) if head.digest != *ours => Err(self.rival(tag, head.digest)),
            Ok(_) => Ok(()),
            Err(error) if error.may_be_absence() => Ok(()),
            Err(error) => Err(OperationError::registry(self.place.name())(error)),
        }
    }

    fn rival(&self, tag: &Tag, existing: Digest) -> OperationError {
        OperationError::Exists {
            reference: self.place.reference(&Reference::Tag(tag.clone())),
            digest: existing,
            difference: "was pushed by somebody else in the meantime".to_owned(),
        }
    }

    /// Takes the bundle of a push back that lost its version to another one. A bundle about a manifest that is not the version's is
    /// believed by nobody, so it does no harm where it has to stay.
    async fn withdraw_bundle(&self, tag: &Tag, existing: &Digest) {
        let Ok(bundle) = artifact::bundle_tag(tag) else { return };
        let stored = published::load_reference(&self.place, &Reference::Tag(bundle.clone())).await;
        if stored.is_ok_and(|stored| stored.subject.as_ref() != Some(existing)) {
            let deleted = self.place.registry().delete_tag(&self.place.repository, &bundle).await;
            if let Err(error) = deleted {
                tracing::debug!("the bundle of a push that lost its version stays: {error}");
            }
        }
    }

    async fn put_manifest(&self, bytes: Bytes, tags: Vec<Tag>) -> Result<()> {
        let manifest = NewManifest {
            media_type: IMAGE_MANIFEST.to_owned(),
            digest: tags.is_empty().then(|| Digest::of(&bytes)),
            bytes,
            tags,
            condition: Condition::AbsentOrSame,
        };
        let answer = self.place.registry().put_manifest(&self.place.repository, &manifest).await;
        answer.map(drop).map_err(OperationError::registry(self.place.name()))
    }
}

/// What a prepared module needs; refused where its own files contradict each other, and with `strict` where something cannot be
/// embedded.
pub async fn resolve(
    routes: &Routes,
    prepared: &Prepared,
    named: &Named,
    own: &OwnHosts,
    strict: bool,
) -> Result<Resolution> {
    let resolution = match (&prepared.tofu, &prepared.module_file) {
        (Some(tofu), _) => {
            let (module, version) = (&named.module, named.version.as_ref());
            resolve::opentofu(Some(routes), own, Some(module), version, tofu).await?
        }
        (None, Some(file)) => resolve::cue(routes, prepared, file).await?,
        (None, None) => Resolution::default(),
    };
    if strict && !resolution.outside.is_empty() {
        return Err(OperationError::Refused(resolution.outside));
    }
    let layers: Vec<_> = resolution.dependencies.iter().map(|found| found.layer.clone()).collect();
    let disagreements = prepared.disagreements(&layers);
    if disagreements.is_empty() { Ok(resolution) } else { Err(OperationError::Refused(disagreements)) }
}

fn no_place(named: &Named) -> OperationError {
    OperationError::Route(RouteError::NoRegistry(named.module.path().to_string()))
}

/// A module as it is sent.
pub struct Assembled {
    /// The zip, in a temporary file.
    pub zip: NamedTempFile,
    /// What is in the zip.
    pub tree: Tree,
    /// The module file.
    pub module_file: Bytes,
    /// The manifest's parts, dependencies included.
    pub artifact: ModuleArtifact,
}

/// Packs a module with its module file.
pub async fn assemble(
    prepared: &Prepared,
    named: &Named,
    version: &Version,
    layers: &[DependencyLayer],
    created: Option<i64>,
) -> Result<Assembled> {
    let module_file = prepared.module_file_bytes(named, version, layers)?;
    let tree = prepared.tree.clone();
    let tree =
        if prepared.is_module_file_ours() { tree.with_file(MODULE_FILE, module_file.to_vec()) } else { tree };
    let (tree, zip, packed) = super::blocking(move || -> Result<_> {
        let mut zip = NamedTempFile::new().map_err(OperationError::io("making a temporary file"))?;
        let packed = archive::pack(&tree, zip.as_file_mut()).map_err(OperationError::packing)?;
        Ok((tree, zip, packed))
    })
    .await?;
    let artifact = ModuleArtifact {
        kind: prepared.kind,
        archive: Content { digest: packed.digest, size: packed.size },
        module_file: Some(ModuleFileLayer::of(module_file.clone())),
        dependencies: layers.to_vec(),
        annotations: annotations(prepared, named, version, created),
    };
    Ok(Assembled { zip, tree, module_file, artifact })
}

fn annotations(prepared: &Prepared, named: &Named, version: &Version, created: Option<i64>) -> Annotations {
    let mut annotations = Annotations::new();
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            annotations.insert(key.to_owned(), value);
        }
    };
    // A commit says nothing of files that were changed after it.
    let commit = prepared.git.as_ref().filter(|git| git.is_clean);
    let created = created.or_else(|| commit.map(|git| git.commit_time));
    add(media_types::VERSION, Some(version.to_string()));
    add(media_types::TITLE, Some(named.module.path().to_string()));
    add(media_types::CREATED, created.map(super::rfc3339));
    add(media_types::REVISION, commit.map(|git| git.revision.clone()));
    add(media_types::SOURCE, prepared.git.as_ref().and_then(|git| git.source.clone()));
    add(media_types::LICENSES, super::license::of(&prepared.tree));
    if prepared.kind == ModuleKind::Cue
        && prepared.module_file.as_ref().is_some_and(crate::module::ModuleFile::is_from_git)
        && let Some(git) = commit
    {
        add("org.cuelang.vcs-type", Some("git".to_owned()));
        add("org.cuelang.vcs-commit", Some(git.revision.clone()));
        add("org.cuelang.vcs-commit-time", Some(super::rfc3339(git.commit_time)));
    }
    annotations
}

/// The manifests of a push.
struct Manifests {
    /// At the version's tag.
    tagged: Bytes,
    /// At the bundle's tag.
    bundle: Option<Bytes>,
}

impl Manifests {
    fn of(artifact: &ModuleArtifact, form: DependencyForm) -> Self {
        if artifact.dependencies.is_empty() {
            return Self { tagged: artifact.to_manifest(), bundle: None };
        }
        let two_layers = artifact.to_two_layer_manifest();
        match form {
            DependencyForm::Inline => Self { tagged: artifact.to_manifest(), bundle: None },
            DependencyForm::None => Self { tagged: two_layers, bundle: None },
            DependencyForm::Separate => {
                let bundle = artifact.to_bundle(&two_layers);
                Self { tagged: two_layers, bundle: Some(bundle) }
            }
        }
    }
}

/// In which way two trees differ, in words that name the first file; `None` where they do not.
fn compare_trees(ours: &Tree, theirs: &Tree, except: &[&str]) -> Result<Option<String>> {
    let hash = |tree: &Tree| tree.content_hash(except).map_err(OperationError::packing);
    if hash(ours)? == hash(theirs)? {
        return Ok(None);
    }
    let differs = |one: &Tree, entry: &Entry, other: &Tree| -> Result<bool> {
        let Some(twin) = other.get(&entry.name) else { return Ok(true) };
        if (twin.executable, twin.size) != (entry.executable, entry.size) {
            return Ok(true);
        }
        let hash = |tree: &Tree, entry: &Entry| -> std::io::Result<Digest> {
            let mut hasher = Hasher::new(Algorithm::Sha256);
            std::io::copy(&mut tree.open(entry)?, &mut hasher)?;
            Ok(hasher.finish())
        };
        let reading = || OperationError::io(format!("reading {}", entry.name));
        Ok(hash(one, entry).map_err(reading())? != hash(other, twin).map_err(reading())?)
    };
    for (one, other) in [(ours, theirs), (theirs, ours)] {
        for entry in one.entries().iter().filter(|entry| !except.contains(&entry.name.as_str())) {
            if differs(one, entry, other)? {
                return Ok(Some(format!("has other content: `{}` differs", entry.name.escape_debug())));
            }
        }
    }
    Ok(Some("has other content".to_owned()))
}

/// Whether a stored blob is not there or not what it was: a push of the same can mend that.
fn is_damage(error: &RegistryError) -> bool {
    matches!(
        error,
        RegistryError::BlobUnknown(_)
            | RegistryError::DigestMismatch { .. }
            | RegistryError::SizeMismatch { .. }
    )
}
