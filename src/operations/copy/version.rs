//! Copies one version: what is there already, in which order the rest is written, and when nothing is.
//!
//! First come blobs and the manifests that an index lists; then the mark of a yank, so that nobody is offered what was withdrawn; then
//! the bundle and what refers to the version; and the version's own tag at the end. Whenever it breaks off, no tag names anything that
//! is not whole.

use crate::artifact::{
    self, ArtifactError, ModuleArtifact, ProviderEntry, ProviderIndex, YankMark, media_types,
};
use crate::oci::{Descriptor, Digest, IMAGE_MANIFEST, Manifest, ManifestError, Reference, Tag};
use crate::operations::error::{OperationError, Result};
use crate::operations::published::DependencyForm;
use crate::operations::yank;
use crate::registry::{Condition, ManifestHead, RegistryError, StoredManifest};

use super::content::{Tally, differs, is_refusal, parse};
use super::form::Converted;
use super::pair::{Pair, Part};
use super::referrers::Referrers;
use super::{CopiedVersion, Copier, FailedCopy, SkipReason, SkippedVersion};

/// What was done about a version.
#[derive(Debug, Default)]
struct Done {
    digest: Option<Digest>,
    tags: Vec<Tag>,
    referrers: usize,
}

/// How a version's tag stands at the destination.
enum Standing {
    /// It names the same there, or more of the same.
    There(ManifestHead),
    /// It is not there.
    New(StoredManifest, Manifest),
    /// It names an index there that this one only adds to.
    Extended(StoredManifest, Manifest),
}

/// What is not copied although nothing went wrong, and why.
type Perhaps<T> = std::result::Result<T, SkipReason>;

impl Copier {
    /// Copies one part of a repository, and reports what came of it.
    pub(super) async fn run_part(&self, address: &str, pair: &Pair, part: &Part) {
        let tally = Tally::default();
        let (address, version) = (address.to_owned(), part.version.clone());
        let done = match self.copy_part(pair, part, &tally).await {
            Ok(Ok(done)) if done.tags.is_empty() && done.referrers == 0 => {
                Err(SkipReason::Exists(done.digest))
            }
            Ok(done) => done,
            Err(error) => {
                let from = pair.from.name();
                if !(pair.is_refused() && is_refusal(&error)) {
                    return self.fail(FailedCopy { address, version: Some(version), from, error });
                }
                // One word for all versions that were on their way.
                if pair.is_told() {
                    return;
                }
                return self.fail(FailedCopy { address, version: None, from, error });
            }
        };
        let (from, to, bytes_sent) = (pair.from.name(), pair.to.name(), tally.bytes());
        let mut report = self.report();
        match done {
            Ok(Done { digest, tags, referrers }) => {
                report.bytes_sent = report.bytes_sent.saturating_add(bytes_sent);
                report.copied.push(CopiedVersion {
                    address,
                    version,
                    from,
                    to,
                    digest,
                    tags,
                    referrers,
                    bytes_sent,
                });
            }
            Err(reason) => report.skipped.push(SkippedVersion { address, version, to, reason }),
        }
    }

    async fn copy_part(&self, pair: &Pair, part: &Part, tally: &Tally) -> Result<Perhaps<Done>> {
        let mut done = Done::default();
        let Some(tagged) = &part.tagged else {
            self.copy_marks(pair, part, &mut done, tally).await?;
            return Ok(Ok(done));
        };
        if let Some(form) = self.request.form
            && let Some(converted) = self.convert(pair, tagged, form).await?
        {
            self.copy_converted(pair, part, converted, &mut done, tally).await?;
            return Ok(Ok(done));
        }
        // Where one tag alone was copied before, and it was the bundle's, that is the version.
        let bundle = if tagged.has_bundle { Some(artifact::bundle_tag(&tagged.tag)?) } else { None };
        let (main, bundle) = match (tagged.has_tag, bundle) {
            (false, Some(bundle)) => (bundle, None),
            (_, bundle) => (tagged.tag.clone(), bundle),
        };
        let twins = if tagged.has_tag { &part.twins[..] } else { &[] };
        let standing = match self.standing(pair, &main, twins).await? {
            Ok(standing) => standing,
            Err(reason) => return Ok(Err(reason)),
        };
        let bundle = match bundle {
            Some(tag) => Some(self.bundle(pair, tag).await?),
            None => None,
        };
        let twins = self.missing_twins(pair, twins, standing.digest()).await?;

        // Everything that is named comes before what names it.
        if let Standing::New(_, manifest) | Standing::Extended(_, manifest) = &standing {
            self.bring_needs(pair, manifest, tally).await?;
        }
        if let Some(Bundle { tag, missing: Some(stored), .. }) = &bundle {
            let manifest = parse(pair, &tag.clone().into(), stored)?;
            self.bring_needs(pair, &manifest, tally).await?;
        }
        let referrers = if self.request.referrers {
            let bundle = bundle.as_ref().map(|bundle| &bundle.digest);
            self.missing_referrers(pair, self.subjects(pair, &standing).await?, bundle).await?
        } else {
            Referrers::default()
        };
        self.copy_marks(pair, part, &mut done, tally).await?;
        let new = match &standing {
            Standing::New(stored, _) => Some((stored, Condition::AbsentOrSame)),
            Standing::Extended(stored, _) => Some((stored, Condition::None)),
            Standing::There(_) => None,
        };
        let bundle = bundle.and_then(|bundle| Some((bundle.tag, bundle.missing?)));
        // A registry may refuse what is about something that is not there.
        if let Some((stored, _)) = new.filter(|_| bundle.is_some() || !referrers.manifests.is_empty()) {
            self.put(pair, stored, &[], Condition::None, &Tally::default()).await?;
        }
        if let Some((tag, stored)) = bundle {
            self.put(pair, &stored, std::slice::from_ref(&tag), Condition::AbsentOrSame, tally).await?;
            done.tags.push(tag);
        }
        self.copy_referrers(pair, referrers, &mut done.referrers, &mut done.tags, tally).await?;
        done.digest = Some(standing.digest().clone());
        let missing: Vec<Tag> = std::iter::once(main)
            .filter(|tag| new.is_some() || !pair.there.contains(tag))
            .chain(twins)
            .collect();
        if let Some((stored, condition)) = new {
            self.put(pair, stored, &missing, condition, tally).await?;
            if condition == Condition::None && !self.request.dry_run {
                self.expect_ours(pair, &missing, &stored.digest).await?;
            }
        } else if !missing.is_empty() {
            let reference = Reference::Digest(standing.digest().clone());
            let stored = pair.to.registry().manifest(&pair.to.repository, &reference).await;
            let stored = stored.map_err(OperationError::registry(pair.to.reference(&reference)))?;
            self.put(pair, &stored, &missing, Condition::AbsentOrSame, tally).await?;
        }
        done.tags.splice(0..0, missing);
        Ok(Ok(done))
    }

    /// Compares what a version's tag names here and there.
    async fn standing(&self, pair: &Pair, main: &Tag, twins: &[Tag]) -> Result<Perhaps<Standing>> {
        let reference = Reference::Tag(main.clone());
        let existing = self.existing(pair, std::iter::once(main).chain(twins)).await?;
        if let Some((_, there)) = &existing
            && self.request.platforms.is_empty()
        {
            let head = pair.from.registry().manifest_head(&pair.from.repository, &reference).await;
            let head = head.map_err(OperationError::registry(pair.from.reference(&reference)))?;
            if head.digest == there.digest {
                return Ok(Ok(Standing::There(head)));
            }
        }
        let stored = match self.read(pair, &reference).await {
            // What tools pushed before there was OCI, say; a registry that answers a page of HTML fails.
            Err(OperationError::Registry {
                source: RegistryError::ManifestInvalid(ManifestError::UnknownType(kind)),
                ..
            }) if kind.starts_with("application/vnd.") => {
                return Ok(Err(SkipReason::NotOurs(format!("a manifest of type `{kind}`"))));
            }
            stored => stored?,
        };
        let manifest = parse(pair, &reference, &stored)?;
        if let Some(found) = not_ours(&manifest) {
            return Ok(Err(SkipReason::NotOurs(found)));
        }
        let Some((tag, there)) = existing else {
            let Some((stored, manifest)) = self.for_platforms(pair, stored, manifest, None)? else {
                return Ok(Err(SkipReason::NoPlatform));
            };
            return Ok(Ok(Standing::New(stored, manifest)));
        };
        let by_digest = Reference::Digest(there.digest.clone());
        let theirs = pair.to.registry().manifest(&pair.to.repository, &by_digest).await;
        let theirs = theirs.map_err(OperationError::registry(pair.to.reference(&by_digest)))?;
        let theirs = Manifest::parse(&theirs.media_type, &theirs.bytes).ok();
        let Some((stored, manifest)) = self.for_platforms(pair, stored, manifest, theirs.as_ref())? else {
            return Ok(Err(SkipReason::NoPlatform));
        };
        match theirs {
            _ if stored.digest == there.digest => Ok(Ok(Standing::There(there))),
            // A platform was added to a provider, here or there.
            Some(theirs) if manifest.extends(&theirs) => Ok(Ok(Standing::Extended(stored, manifest))),
            Some(theirs) if theirs.extends(&manifest) => Ok(Ok(Standing::There(there))),
            theirs => {
                Err(conflict(pair, main, (&manifest, stored.digest), &tag, (theirs.as_ref(), there.digest)))
            }
        }
    }

    /// The first of these tags that is at the destination, and what it names.
    async fn existing<'a>(
        &self,
        pair: &Pair,
        tags: impl Iterator<Item = &'a Tag> + Send,
    ) -> Result<Option<(Tag, ManifestHead)>> {
        let tags: Vec<Tag> = tags.filter(|tag| pair.there.contains(tag)).cloned().collect();
        for tag in tags {
            if let Some(head) = self.head_there(pair, &tag).await? {
                return Ok(Some((tag, head)));
            }
        }
        Ok(None)
    }

    pub(super) async fn head_there(&self, pair: &Pair, tag: &Tag) -> Result<Option<ManifestHead>> {
        let reference = Reference::Tag(tag.clone());
        match pair.to.registry().manifest_head(&pair.to.repository, &reference).await {
            Ok(head) => Ok(Some(head)),
            Err(error) if error.may_be_absence() => Ok(None),
            Err(error) => Err(OperationError::registry(pair.to.reference(&reference))(error)),
        }
    }

    /// An index with the entries that are wanted: those of the platforms that were asked for, and those that are there. `None` where no
    /// entry is for any of these platforms.
    fn for_platforms(
        &self,
        pair: &Pair,
        mut stored: StoredManifest,
        manifest: Manifest,
        theirs: Option<&Manifest>,
    ) -> Result<Option<(StoredManifest, Manifest)>> {
        let platforms = &self.request.platforms;
        if platforms.is_empty() || !manifest.is_index() {
            return Ok(Some((stored, manifest)));
        }
        let is_wanted = |entry: &Descriptor| {
            ProviderEntry::read(entry).is_some_and(|entry| platforms.contains(&entry.platform))
        };
        if !manifest.entries().iter().any(is_wanted) {
            return Ok(None);
        }
        let unreadable = || OperationError::registry(pair.from.name());
        let bytes = ProviderIndex::reduced_bytes(&manifest, &stored.bytes, |entry| {
            is_wanted(entry) || theirs.is_some_and(|theirs| theirs.entries().contains(entry))
        });
        let bytes = bytes.map_err(RegistryError::from).map_err(unreadable())?;
        let manifest = Manifest::parse(&stored.media_type, &bytes);
        let manifest = manifest.map_err(RegistryError::from).map_err(unreadable())?;
        if bytes != stored.bytes {
            stored.digest = Digest::of(&bytes);
            stored.bytes = bytes;
        }
        Ok(Some((stored, manifest)))
    }

    /// The bundle, with its bytes where it is not there yet.
    async fn bundle(&self, pair: &Pair, tag: Tag) -> Result<Bundle> {
        let reference = Reference::Tag(tag.clone());
        let there = if pair.there.contains(&tag) { self.head_there(pair, &tag).await? } else { None };
        let Some(there) = there else {
            let stored = self.read(pair, &reference).await?;
            return Ok(Bundle { tag, digest: stored.digest.clone(), missing: Some(stored) });
        };
        let ours = pair.from.registry().manifest_head(&pair.from.repository, &reference).await;
        let ours = ours.map_err(OperationError::registry(pair.from.reference(&reference)))?;
        if ours.digest == there.digest {
            Ok(Bundle { tag, digest: ours.digest, missing: None })
        } else {
            Err(differs(pair, &tag, ours.digest, &tag, there.digest))
        }
    }

    /// The other spellings of the version that are not there, as far as they name the same. One that names something else is read by
    /// nobody, for the first one wins.
    async fn missing_twins(&self, pair: &Pair, twins: &[Tag], digest: &Digest) -> Result<Vec<Tag>> {
        let mut missing = Vec::new();
        for tag in twins.iter().filter(|tag| !pair.there.contains(tag)) {
            let reference = Reference::Tag(tag.clone());
            match pair.from.registry().manifest_head(&pair.from.repository, &reference).await {
                Ok(head) if head.digest == *digest => missing.push(tag.clone()),
                Ok(_) => self.progress.warn(&format!(
                    "{} is left out: it names something else than the version's other tag, which wins",
                    pair.from.reference(&reference)
                )),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(OperationError::registry(pair.from.reference(&reference))(error)),
            }
        }
        Ok(missing)
    }

    /// Copies the marks of a yank. A copy withdraws a version and never takes a withdrawal back: who has withdrawn it there had a reason.
    async fn copy_marks(&self, pair: &Pair, part: &Part, done: &mut Done, tally: &Tally) -> Result<()> {
        for tag in &part.marks {
            let Some(ours) = yank::read(&pair.from, tag).await? else { continue };
            let theirs = if pair.there.contains(tag) { yank::read(&pair.to, tag).await? } else { None };
            match (&ours, &theirs) {
                (YankMark::Yanked(_), Some(YankMark::Yanked(_)))
                | (YankMark::Unyanked, Some(YankMark::Unyanked)) => {
                    continue;
                }
                (YankMark::Unyanked, Some(YankMark::Yanked(_))) => {
                    self.progress.warn(&format!(
                        "{} is yanked and stays so, although it is not yanked in {}",
                        pair.to.reference(&tag.clone().into()),
                        pair.from.name()
                    ));
                    continue;
                }
                (_, None) | (YankMark::Yanked(_), Some(YankMark::Unyanked)) => {}
            }
            let reference = Reference::Tag(tag.clone());
            let stored = self.read(pair, &reference).await?;
            let manifest = parse(pair, &reference, &stored)?;
            self.bring_needs(pair, &manifest, tally).await?;
            self.put(pair, &stored, std::slice::from_ref(tag), Condition::None, tally).await?;
            done.tags.push(tag.clone());
        }
        Ok(())
    }

    /// Writes a version in another form than it has at the source.
    async fn copy_converted(
        &self,
        pair: &Pair,
        part: &Part,
        converted: Converted,
        done: &mut Done,
        tally: &Tally,
    ) -> Result<()> {
        let Converted { tag, tagged, bundle, dependencies } = converted;
        done.digest = Some(Digest::of(&tagged));
        let bundle = bundle.map(|(tag, bytes)| (tag, bytes, &[][..]));
        let mut writes = Vec::new();
        for (tag, bytes, twins) in bundle.into_iter().chain([(tag, tagged, &part.twins[..])]) {
            let digest = Digest::of(&bytes);
            match self.existing(pair, std::iter::once(&tag).chain(twins)).await? {
                Some((_, there)) if there.digest == digest => {}
                Some((other, there)) => {
                    let by_digest = Reference::Digest(there.digest.clone());
                    let theirs = pair.to.registry().manifest(&pair.to.repository, &by_digest).await;
                    let theirs = theirs.map_err(OperationError::registry(pair.to.reference(&by_digest)))?;
                    let theirs = Manifest::parse(&theirs.media_type, &theirs.bytes).ok();
                    let ours = Manifest::parse(IMAGE_MANIFEST, &bytes).map_err(RegistryError::from);
                    let ours = ours.map_err(OperationError::registry(pair.from.name()))?;
                    let theirs = (theirs.as_ref(), there.digest);
                    return Err(conflict(pair, &tag, (&ours, digest), &other, theirs));
                }
                None => {
                    let stored = StoredManifest { media_type: IMAGE_MANIFEST.to_owned(), digest, bytes };
                    writes.push((tag, stored));
                }
            }
        }
        for (from, content) in &dependencies {
            if !writes.is_empty() {
                self.bring_blob(pair, from, &content.digest, content.size, tally).await?;
            }
        }
        for (tag, stored) in &writes {
            let manifest = parse(pair, &tag.clone().into(), stored)?;
            self.bring_needs(pair, &manifest, tally).await?;
        }
        self.copy_marks(pair, part, done, tally).await?;
        if let [_, (_, main)] = &writes[..] {
            // The bundle is about it.
            self.put(pair, main, &[], Condition::None, &Tally::default()).await?;
        }
        for (tag, stored) in &writes {
            self.put(pair, stored, std::slice::from_ref(tag), Condition::AbsentOrSame, tally).await?;
            done.tags.insert(0, tag.clone());
        }
        Ok(())
    }

    /// The manifests whose referrers belong to a version: its own, and those that it lists.
    async fn subjects(&self, pair: &Pair, standing: &Standing) -> Result<Vec<Digest>> {
        let listed = |manifest: &Manifest| {
            let entries = manifest.entries().iter().map(|entry| entry.digest.clone());
            std::iter::once(standing.digest().clone()).chain(entries).collect()
        };
        match standing {
            Standing::New(_, manifest) | Standing::Extended(_, manifest) => Ok(listed(manifest)),
            Standing::There(head) if head.media_type == IMAGE_MANIFEST => Ok(vec![head.digest.clone()]),
            Standing::There(head) => {
                let reference = Reference::Digest(head.digest.clone());
                let stored = pair.to.registry().manifest(&pair.to.repository, &reference).await;
                let stored = stored.map_err(OperationError::registry(pair.to.reference(&reference)))?;
                Ok(listed(&parse(pair, &reference, &stored)?))
            }
        }
    }

    /// Whether tags name what was put there: somebody else may have moved one meanwhile, where nothing holds it.
    async fn expect_ours(&self, pair: &Pair, tags: &[Tag], digest: &Digest) -> Result<()> {
        for tag in tags {
            if let Some(head) = self.head_there(pair, tag).await?
                && head.digest != *digest
            {
                return Err(differs(pair, tag, digest.clone(), tag, head.digest));
            }
        }
        Ok(())
    }
}

/// The bundle of a version.
struct Bundle {
    tag: Tag,
    digest: Digest,
    /// `None` where it is there.
    missing: Option<StoredManifest>,
}

impl Standing {
    /// What the tag names at the destination in the end.
    fn digest(&self) -> &Digest {
        match self {
            Self::There(head) => &head.digest,
            Self::New(stored, _) | Self::Extended(stored, _) => &stored.digest,
        }
    }
}

/// What stands in the way of a tag: the same module in another form of `--deps`, or something else.
fn conflict(
    pair: &Pair,
    tag: &Tag,
    (ours, digest): (&Manifest, Digest),
    other: &Tag,
    (theirs, there): (Option<&Manifest>, Digest),
) -> OperationError {
    let modules = ModuleArtifact::read(ours).ok().zip(theirs.and_then(|it| ModuleArtifact::read(it).ok()));
    let has_other_form = |(ours, theirs): &(ModuleArtifact, ModuleArtifact)| {
        ours.archive == theirs.archive && ours.dependencies.is_empty() != theirs.dependencies.is_empty()
    };
    let Some((_, theirs)) = modules.filter(has_other_form) else {
        return differs(pair, tag, digest, other, there);
    };
    let has_bundle = || artifact::bundle_tag(other).is_ok_and(|bundle| pair.there.contains(&bundle));
    let stored = match theirs.dependencies.is_empty() {
        false => DependencyForm::Inline,
        true if has_bundle() => DependencyForm::Separate,
        true => DependencyForm::None,
    };
    OperationError::OtherForm { reference: pair.to.reference(&other.clone().into()), stored: stored.name() }
}

/// What a manifest is, in words, that is neither a module's nor a provider's.
pub(super) fn not_ours(manifest: &Manifest) -> Option<String> {
    let is_provider =
        manifest.is_index() && manifest.artifact_type.as_deref() == Some(media_types::OPENTOFU_PROVIDER);
    match ModuleArtifact::read(manifest) {
        Ok(_) => None,
        Err(_) if is_provider => None,
        Err(ArtifactError::NotAModule { found }) => Some(found),
        Err(error) => Some(error.to_string()),
    }
}
