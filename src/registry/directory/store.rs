//! What a store does, in calls that block: the rules of tags, manifests, blobs and referrers over the files.
//!
//! Writers hold the repository's lock and read `index.json` afresh under it. Readers keep what they read until the file's
//! stamp is another, so that they see what other processes and other tools write.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::Semaphore;

use super::DirectoryOptions;
use super::index::{Change, Index};
use super::index_file::{Document, links};
use super::layout::{Layout, Lock, Scratch, flush_folder};
use super::memory::{InMemory, Loaded, Memory};
use super::reading::Recent;
use super::stamp::{REFRESH_AFTER, Stamp, Verified};
use super::usage::Usage;
use crate::oci::ManifestError;
use crate::oci::{
    Descriptor, Digest, Hasher, MANIFEST_TYPES, MAX_MANIFEST_SIZE, Manifest, Reference, Repository, Tag,
};
use crate::registry::referrers::{self, Shown};
use crate::registry::{
    Condition, ManifestHead, NewManifest, Page, PageRequest, PutManifest, RegistryError, Result,
    StoredManifest,
};

/// `index.json` is read into memory. At some 300 bytes a manifest this is room for 400,000 in one repository.
const MAX_INDEX_SIZE: u64 = 128 * 1024 * 1024;
/// So long a document is still written: with the room for more that it is given, it can be read.
const MAX_INDEX_LENGTH: usize = 127 * 1024 * 1024;

/// A folder of image layouts, the options that it was opened with, and what is remembered of it.
pub(super) struct Store {
    pub(super) layout: Layout,
    pub(super) options: DirectoryOptions,
    pub(super) verified: Verified,
    pub(super) recent: Recent,
    pub(super) usage: Usage,
    /// One for each upload that may be written at a time.
    pub(super) upload_turns: Arc<Semaphore>,
    /// How old a blob has to be before a mention makes it young again: [`REFRESH_AFTER`] but in tests.
    pub(super) refresh_after: Duration,
    pub(super) memory: Memory,
}

/// What a manifest says of others.
pub(super) struct References {
    shown: Shown,
    children: Vec<Digest>,
}

impl Store {
    pub(super) fn open(root: &Path, options: DirectoryOptions) -> Result<Self> {
        let layout = Layout::open(root)?;
        let quota = options.quota.into_iter().chain(layout.quota).min();
        Ok(Self {
            layout,
            usage: Usage::new(quota),
            upload_turns: Arc::new(Semaphore::new(options.concurrent_uploads.min(Semaphore::MAX_PERMITS))),
            options,
            verified: Verified::default(),
            recent: Recent::default(),
            refresh_after: REFRESH_AFTER,
            memory: Memory::default(),
        })
    }

    // Reading what there is.

    /// A number for the index as it is on disk, by the same signs that [`Loaded::is_current`] goes by, so that it is another one
    /// for every index; `None` where the file is too young for them. The index is not read.
    pub(super) fn revision(&self, repository: &Repository) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        match fs::metadata(self.layout.index(repository)) {
            Ok(metadata) => {
                let stamp = Stamp::of(&metadata);
                stamp.hash(&mut hasher);
                if !stamp.is_settled() {
                    let word = self.layout.word(repository);
                    if word.is_empty() {
                        return None;
                    }
                    word.hash(&mut hasher);
                }
            }
            Err(error) if is_absent(&error) => self.layout.has_repository(repository).hash(&mut hasher),
            Err(_) => return None,
        }
        Some(hasher.finish())
    }

    /// The repository as it is now; [`RegistryError::RepositoryUnknown`] where nothing was ever written to it.
    fn load(&self, repository: &Repository) -> Result<(Arc<InMemory>, Arc<Loaded>)> {
        let path = self.layout.index(repository);
        let stamp = match fs::metadata(&path) {
            Ok(metadata) => Some(Stamp::of(&metadata)),
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(reading(&path)(error)),
        };
        if stamp.is_none() && !self.layout.has_repository(repository) {
            return Err(RegistryError::RepositoryUnknown(repository.to_string()));
        }
        let memory = self.memory.of(repository);
        if let Some(kept) = memory.loaded()
            && kept.is_current(stamp.as_ref(), || self.layout.word(repository))
        {
            return Ok((memory, kept));
        }
        // The word before the index: a writer leaves it afterwards, so at worst it is too old, which is found out.
        let word = self.layout.word(repository);
        let loaded = Arc::new(self.read_index(repository, word)?);
        self.memory.keep(&memory, Some(loaded.clone()));
        Ok((memory, loaded))
    }

    /// The index that is on disk, to be changed under the lock.
    pub(super) fn current(&self, repository: &Repository, lock: &mut Lock) -> Result<Arc<Loaded>> {
        let memory = self.memory.of(repository);
        let stamp = fs::metadata(self.layout.index(repository)).ok().map(|metadata| Stamp::of(&metadata));
        if let Some(kept) = memory.loaded()
            && kept.is_current(stamp.as_ref(), || lock.word())
        {
            return Ok(kept);
        }
        let loaded = Arc::new(self.read_index(repository, lock.word())?);
        self.memory.keep(&memory, Some(loaded.clone()));
        Ok(loaded)
    }

    /// Reads `index.json`; an empty one where there is none. The word is what was beside it before it was read.
    pub(super) fn read_index(&self, repository: &Repository, word: String) -> Result<Loaded> {
        let path = self.layout.index(repository);
        let read = || -> io::Result<(Vec<u8>, Stamp)> {
            let mut file = File::open(&path)?;
            let stamp = Stamp::of(&file.metadata()?);
            Ok((read_whole(&mut file, MAX_INDEX_SIZE)?, stamp))
        };
        let mut broken = None;
        loop {
            let (index, stamp, is_plain) = match read() {
                Ok((bytes, stamp)) => match Index::parse(bytes) {
                    Ok((index, is_plain)) => (index, Some(stamp), is_plain),
                    // Other tools write into the file that is there, and ours into the one before (see `index_file`). Only the same
                    // file twice is what it is.
                    Err(_) if broken.replace(stamp) != Some(stamp) => continue,
                    Err(error) => {
                        return Err(reading(&path)(io::Error::new(ErrorKind::InvalidData, error)));
                    }
                },
                Err(error) if is_absent(&error) => (Index::default(), None, false),
                Err(error) => return Err(reading(&path)(error)),
            };
            return Ok(Loaded { index, stamp, word, is_plain, spare: None, references: OnceLock::new() });
        }
    }

    /// A page of the tags of a repository.
    pub(super) fn tags(&self, repository: &Repository, request: &PageRequest) -> Result<Page<Tag>> {
        let (_, loaded) = self.load(repository)?;
        let after = request.after.as_deref().unwrap_or("");
        // Only what is a tag is listed as one.
        let tags = loaded.index.tags_from(|tag| tag <= after).filter_map(|tag| tag.parse().ok());
        Ok(Page::first_of(tags, request.count, Tag::as_str))
    }

    /// A page of the names of those repositories that have a manifest.
    pub(super) fn repositories(&self, request: &PageRequest) -> Result<Page<Repository>> {
        let after = request.after.as_deref().unwrap_or("");
        let mut held = Vec::new();
        let wanted = request.count.map_or(usize::MAX, |count| count.saturating_add(1));
        for name in Names::after(&self.layout, after) {
            if held.len() >= wanted {
                break;
            }
            let name = name?;
            if self.holds_something(&name)? {
                held.push(name);
            }
        }
        Ok(Page::first_of(held.into_iter(), request.count, Repository::as_str))
    }

    /// The names of everything that is or could be a repository, in ASCII order.
    pub(super) fn repository_names(&self) -> Result<Vec<Repository>> {
        Names::after(&self.layout, "").collect()
    }

    fn holds_something(&self, repository: &Repository) -> Result<bool> {
        #[derive(Deserialize)]
        struct Count {
            #[serde(default)]
            manifests: Option<Vec<IgnoredAny>>,
        }
        let path = self.layout.index(repository);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(false),
            Err(error) => return Err(reading(&path)(error)),
        };
        let bytes = read_whole(&mut file, MAX_INDEX_SIZE).map_err(reading(&path))?;
        // A damaged list hides its own repository and no other.
        let count = serde_json::from_slice::<Count>(&bytes).ok().and_then(|count| count.manifests);
        Ok(count.is_some_and(|manifests| !manifests.is_empty()))
    }

    /// A manifest, whole and verified.
    pub(super) fn manifest(&self, repository: &Repository, reference: &Reference) -> Result<StoredManifest> {
        let (digest, media_type) = self.resolve(repository, reference)?;
        let bytes = self.read_manifest(repository, &digest)?;
        let media_type = media_type.or_else(|| type_of(&bytes)).unwrap_or_default();
        Ok(StoredManifest { media_type, digest, bytes })
    }

    /// A manifest's type, digest and size.
    pub(super) fn manifest_head(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<ManifestHead> {
        if let (digest, Some(media_type)) = self.resolve(repository, reference)? {
            let path = self.layout.blob(repository, &digest);
            return match fs::metadata(&path) {
                // Who asks by digest may be about to push an index of it. What has a tag is not swept anyway.
                Ok(metadata)
                    if matches!(reference, Reference::Digest(_))
                        && !self.refresh(repository, &digest, &Stamp::of(&metadata))? =>
                {
                    Err(unknown(repository, reference))
                }
                Ok(metadata) => Ok(ManifestHead { media_type, digest, size: metadata.len() }),
                Err(error) if is_absent(&error) => Err(unknown(repository, reference)),
                Err(error) => Err(reading(&path)(error)),
            };
        }
        let StoredManifest { media_type, digest, bytes } = self.manifest(repository, reference)?;
        Ok(ManifestHead { media_type, digest, size: bytes.len() as u64 })
    }

    /// The digest of what a reference names, and its media type where the index gives it.
    fn resolve(&self, repository: &Repository, reference: &Reference) -> Result<(Digest, Option<String>)> {
        let (memory, loaded) = self.load(repository)?;
        let given = |media_type: &str| (!media_type.is_empty()).then(|| media_type.to_owned());
        let digest = match reference {
            Reference::Digest(digest) => digest.clone(),
            Reference::Tag(tag) => {
                let (digest, media_type) =
                    loaded.index.find(tag).ok_or_else(|| unknown(repository, reference))?;
                return Ok((digest, given(media_type)));
            }
        };
        if let Some(media_type) = loaded.index.media_type(&digest) {
            return Ok((digest, given(media_type)));
        }
        // Other tools list an index and not the manifests in it. A client that asks whether it has to push at all is
        // answered without a look at every manifest.
        if !self.layout.blob(repository, &digest).exists() {
            return Err(unknown(repository, reference));
        }
        let references = self.references(repository, &memory, &loaded);
        let found = references.get(&digest).ok_or_else(|| unknown(repository, reference))?;
        Ok((digest, Some(found.shown.descriptor.media_type.clone())))
    }

    /// Reads a manifest and verifies it.
    pub(super) fn read_manifest(&self, repository: &Repository, digest: &Digest) -> Result<Bytes> {
        let found = self.find_manifest(repository, digest)?;
        found.ok_or_else(|| unknown(repository, &digest.clone().into()))
    }

    /// Every manifest that can be reached from the index, with what it refers to. Read when it is first needed.
    fn references<'a>(
        &self,
        repository: &Repository,
        memory: &InMemory,
        loaded: &'a Loaded,
    ) -> &'a BTreeMap<Digest, Arc<References>> {
        loaded.references.get_or_init(|| {
            let mut found = BTreeMap::new();
            let mut seen: HashSet<Digest> = HashSet::new();
            let listed = loaded.index.entries();
            let mut open: Vec<(Digest, String)> =
                listed.filter_map(|entry| Some((entry.digest?, entry.media_type.to_owned()))).collect();
            while let Some((digest, media_type)) = open.pop() {
                if !seen.insert(digest.clone()) {
                    continue;
                }
                let Some(references) = self.read_references(repository, memory, &digest, &media_type) else {
                    continue;
                };
                open.extend(references.children.iter().map(|child| (child.clone(), String::new())));
                found.insert(digest, references);
            }
            let kept =
                found.iter().map(|(digest, references)| (digest.clone(), references.clone())).collect();
            *memory.read.lock().unwrap_or_else(PoisonError::into_inner) = kept;
            found
        })
    }

    /// `None` for what is not there or cannot be read: that hides a manifest's references, never those of others.
    fn read_references(
        &self,
        repository: &Repository,
        memory: &InMemory,
        digest: &Digest,
        media_type: &str,
    ) -> Option<Arc<References>> {
        let kept = memory.read.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned();
        if let Some(kept) = kept
            && self.layout.blob(repository, digest).exists()
        {
            return Some(kept);
        }
        let bytes = match self.read_manifest(repository, digest) {
            Ok(bytes) => bytes,
            Err(error) => {
                if !error.is_not_found() {
                    tracing::warn!(%repository, %digest, %error, "a manifest in the store cannot be read");
                }
                return None;
            }
        };
        let media_type = if media_type.is_empty() { type_of(&bytes)? } else { media_type.to_owned() };
        let manifest = Manifest::parse(&media_type, &bytes).ok()?;
        let descriptor = Descriptor::new(&media_type, digest.clone(), bytes.len() as u64);
        let children = manifest.entries().iter().map(|entry| entry.digest.clone()).collect();
        let shown = Shown::of(descriptor, manifest, &self.memory.room);
        Some(Arc::new(References { shown, children }))
    }

    /// A page of the manifests whose subject is `digest`, in the order of their digests.
    pub(super) fn referrers(
        &self,
        repository: &Repository,
        digest: &Digest,
        artifact_type: Option<&str>,
        request: &PageRequest,
    ) -> Result<Page<Descriptor>> {
        let (memory, loaded) = match self.load(repository) {
            Ok(found) => found,
            Err(RegistryError::RepositoryUnknown(_)) => return Ok(Page { items: Vec::new(), next: None }),
            Err(error) => return Err(error),
        };
        let all = self.references(repository, &memory, &loaded).values().map(|references| &references.shown);
        let about = all.filter(|shown| shown.subject.as_ref() == Some(digest));
        Ok(referrers::page(about, artifact_type, request, |digest| self.read_manifest(repository, digest)))
    }

    // Writing manifests and tags. The caller has this process's turn; the lock is for other processes.

    /// Stores a manifest and points tags at it.
    pub(super) fn put_manifest(&self, repository: &Repository, new: &NewManifest) -> Result<PutManifest> {
        if new.bytes.len() as u64 > MAX_MANIFEST_SIZE {
            return Err(RegistryError::TooLarge { limit: MAX_MANIFEST_SIZE });
        }
        let manifest = Manifest::parse(&new.media_type, &new.bytes)?;
        let digest = match &new.digest {
            Some(digest) => {
                check_digest(&new.bytes, digest)?;
                digest.clone()
            }
            None => Digest::of(&new.bytes),
        };
        // Once before anything is made, for a refused push leaves no repository behind, and once under the lock.
        self.check_children(repository, &manifest)?;
        self.layout.make_repository(repository)?;
        let mut lock = self.layout.lock(repository)?;
        self.check_children(repository, &manifest)?;
        let current = self.current(repository, &mut lock)?;
        for tag in &new.tags {
            if let Some(existing) = current.index.tagged(tag).filter(|existing| *existing != digest)
                && !self.may_move(repository, tag, &existing, new.condition, &manifest)
            {
                return Err(RegistryError::TagExists { tag: tag.clone(), existing });
            }
            for twin in self.twins(tag) {
                if let Some(existing) = current.index.tagged(&twin).filter(|existing| *existing != digest) {
                    return Err(RegistryError::TagExists { tag: twin.clone(), existing });
                }
            }
        }
        // Nothing is swept while the lock is held, and afterwards the manifest is listed.
        if !self.has_intact(repository, &digest)? {
            self.usage.check(&self.layout, new.bytes.len() as u64)?;
            self.usage.add(new.bytes.len() as u64)?;
            let (mut file, scratch) = self.layout.scratch()?;
            file.write_all(&new.bytes).map_err(writing(&scratch.0))?;
            self.put_in_place(repository, &digest, &scratch)?;
        }
        let mut descriptor = Descriptor::new(&new.media_type, digest.clone(), new.bytes.len() as u64);
        descriptor.artifact_type = manifest.artifact_type.filter(|kind| !kind.is_empty());
        if let Some(change) = current.index.put(&descriptor, &new.tags) {
            self.write_index(repository, current, change, &mut lock)?;
        }
        Ok(PutManifest { digest, subject: manifest.subject.map(|subject| subject.digest) })
    }

    fn check_children(&self, repository: &Repository, manifest: &Manifest) -> Result<()> {
        for child in manifest.needed() {
            let blob = fs::metadata(self.layout.blob(repository, &child.digest));
            let Some(blob) = blob.ok().filter(fs::Metadata::is_file) else {
                return Err(RegistryError::ManifestBlobUnknown(child.digest.clone()));
            };
            if blob.len() != child.size {
                let error = ManifestError::Size {
                    digest: child.digest.clone(),
                    given: child.size,
                    stored: blob.len(),
                };
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Whether a tag that points at `existing` may point at `manifest` from now on.
    fn may_move(
        &self,
        repository: &Repository,
        tag: &Tag,
        existing: &Digest,
        condition: Condition,
        manifest: &Manifest,
    ) -> bool {
        match condition {
            Condition::AbsentOrSame => false,
            Condition::None => {
                self.options.immutable.as_ref().is_none_or(|immutable| immutable(tag).is_none())
                    || self
                        .manifest(repository, &existing.clone().into())
                        .ok()
                        .and_then(|stored| Manifest::parse(&stored.media_type, &stored.bytes).ok())
                        .is_some_and(|earlier| manifest.extends(&earlier))
            }
        }
    }

    /// The other spellings of an immutable tag.
    fn twins(&self, tag: &Tag) -> Vec<Tag> {
        self.options.immutable.as_ref().and_then(|immutable| immutable(tag)).unwrap_or_default()
    }

    /// Removes a tag; its manifest stays.
    pub(super) fn delete_tag(&self, repository: &Repository, tag: &Tag) -> Result<()> {
        let mut lock = self.lock_existing(repository)?;
        let current = self.current(repository, &mut lock)?;
        let Some(index) = current.index.without_tag(tag) else {
            return Err(unknown(repository, &tag.clone().into()));
        };
        self.write_index(repository, current, Change::Rewritten(index), &mut lock)
    }

    /// Removes a manifest and every tag that points at it.
    pub(super) fn delete_manifest(&self, repository: &Repository, digest: &Digest) -> Result<()> {
        let mut lock = self.lock_existing(repository)?;
        self.resolve(repository, &digest.clone().into())?;
        let current = self.current(repository, &mut lock)?;
        let index = current.index.without_manifests(|listed| listed == digest);
        // Written even where the manifest was listed by an index alone, so that every reader looks again.
        let index = index.unwrap_or_else(|| current.index.clone());
        self.write_index(repository, current, Change::Rewritten(index), &mut lock)?;
        self.remove_blob(repository, digest)?
            .then_some(())
            .ok_or_else(|| unknown(repository, &digest.clone().into()))
    }

    /// Removes a blob, even one that a manifest refers to: that is what was asked for. A manifest is no blob here.
    pub(super) fn delete_blob(&self, repository: &Repository, digest: &Digest) -> Result<()> {
        let missing = || RegistryError::BlobUnknown(digest.clone());
        if !self.layout.has_repository(repository) {
            return Err(missing());
        }
        let mut lock = self.lock_existing(repository)?;
        let current = self.current(repository, &mut lock)?;
        if current.index.has(digest) || !self.remove_blob(repository, digest)? {
            return Err(missing());
        }
        Ok(())
    }

    fn lock_existing(&self, repository: &Repository) -> Result<Lock> {
        if self.layout.has_repository(repository) {
            self.layout.lock(repository)
        } else {
            Err(RegistryError::RepositoryUnknown(repository.to_string()))
        }
    }

    /// Changes the index that is [`Self::current`], and remembers it for whoever reads it next.
    pub(super) fn write_index(
        &self,
        repository: &Repository,
        current: Arc<Loaded>,
        change: Change,
        lock: &mut Lock,
    ) -> Result<()> {
        let path = self.layout.index(repository);
        let (index, added, known, spare) = match &change {
            Change::Added(added) => (&current.index, added.as_bytes(), current.spare, current.to_spare()),
            Change::Rewritten(index) => (index, &[][..], None, None),
        };
        let document = Document { text: index.text(), added, tail: index.tail() };
        if document.length() > MAX_INDEX_LENGTH {
            let limit = format!("its list of manifests would be longer than {MAX_INDEX_LENGTH} bytes");
            return Err(writing(&path)(io::Error::new(ErrorKind::FileTooLarge, limit)));
        }
        let file = self.layout.write_index(repository, &document, known).map_err(writing(&path))?;
        let memory = self.memory.of(repository);
        self.memory.keep(&memory, None);
        // What cannot be remembered is read again.
        if let (Ok(metadata), Ok(word)) = (file.metadata(), lock.leave_word()) {
            let index = match change {
                Change::Rewritten(index) => index,
                Change::Added(added) => {
                    // A copy only where somebody reads it at this moment.
                    let current = Arc::try_unwrap(current);
                    let mut index =
                        current.map_or_else(|current| current.index.clone(), |current| current.index);
                    index.add(&added);
                    index
                }
            };
            let stamp = Some(Stamp::of(&metadata));
            let loaded = Loaded { index, stamp, word, is_plain: true, spare, references: OnceLock::new() };
            self.memory.keep(&memory, Some(Arc::new(loaded)));
        }
        Ok(())
    }

    // Blobs.

    /// The size of a blob in bytes. Who asks may be about to push a manifest that needs it, so it counts as new from now on.
    pub(super) fn blob_size(&self, repository: &Repository, digest: &Digest) -> Result<u64> {
        let path = self.layout.blob(repository, digest);
        let missing = || RegistryError::BlobUnknown(digest.clone());
        match fs::metadata(&path) {
            Ok(metadata) if self.refresh(repository, digest, &Stamp::of(&metadata))? => Ok(metadata.len()),
            Ok(_) => Err(missing()),
            Err(error) if is_absent(&error) => Err(missing()),
            Err(error) => Err(reading(&path)(error)),
        }
    }

    /// Keeps a blob that somebody counts on from being swept as long as a new one would be. `false` where it is gone.
    fn refresh(&self, repository: &Repository, digest: &Digest, stamp: &Stamp) -> Result<bool> {
        if stamp.age() < self.refresh_after {
            return Ok(true);
        }
        // Shared with others who do this, so that no sweep comes between the look at a blob's age and its end.
        let _lock = self.layout.share_lock(repository);
        let path = self.layout.blob(repository, digest);
        self.verified.refresh(&path, digest).map_err(reading(&path))
    }

    /// Whether a repository has a blob with the right bytes already. Where it has, its name is on disk afterwards, whoever
    /// is still about to bring it there, and it counts as new.
    pub(super) fn keep_blob(&self, repository: &Repository, digest: &Digest) -> Result<bool> {
        if !self.has_intact(repository, digest)? {
            return Ok(false);
        }
        let path = self.layout.blob(repository, digest);
        match fs::metadata(&path) {
            Ok(metadata) => self.refresh(repository, digest, &Stamp::of(&metadata)),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(reading(&path)(error)),
        }
    }

    fn has_intact(&self, repository: &Repository, digest: &Digest) -> Result<bool> {
        let path = self.layout.blob(repository, digest);
        let keep = || -> io::Result<bool> {
            let is_intact = self.verified.is_intact(&path, digest)?;
            if is_intact {
                path.parent().map_or(Ok(()), flush_folder)?;
            }
            Ok(is_intact)
        };
        match keep() {
            Ok(is_intact) => Ok(is_intact),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(reading(&path)(error)),
        }
    }

    /// Makes a complete file a blob of a repository, which counts as new.
    pub(super) fn publish(&self, repository: &Repository, digest: &Digest, complete: &Scratch) -> Result<()> {
        self.put_in_place(repository, digest, complete)?;
        let own = self.layout.blob(repository, digest);
        let is_kept = match fs::metadata(&own) {
            Ok(metadata) => self.refresh(repository, digest, &Stamp::of(&metadata))?,
            Err(error) if is_absent(&error) => false,
            Err(error) => return Err(reading(&own)(error)),
        };
        // One that was there and old was swept at this moment: now there is none, and what is put there is new.
        if is_kept { Ok(()) } else { self.put_in_place(repository, digest, complete) }
    }

    /// The same without making young what is there already, for which the caller would have to be without the lock.
    fn put_in_place(&self, repository: &Repository, digest: &Digest, complete: &Scratch) -> Result<()> {
        self.layout.make_repository(repository)?;
        let (shared, own) = (self.layout.shared_blob(digest), self.layout.blob(repository, digest));
        let publish = || -> io::Result<()> {
            // What is here already is on disk: to bring the same bytes there again is most of what a push of them would take.
            if !self.is_here(&shared, digest)? {
                flush_content(&complete.0)?;
                self.place(&complete.0, &shared, digest)?;
            }
            match self.place(&shared, &own, digest) {
                // A collection of garbage took the unused content between the two steps.
                Err(error) if is_absent(&error) => {
                    flush_content(&complete.0)?;
                    self.place(&complete.0, &own, digest)?;
                }
                other => other?,
            }
            // The shared name needs no flush: without it the content is stored once more, and nothing is lost.
            own.parent().map_or(Ok(()), flush_folder)
        };
        publish().map_err(writing(&own))
    }

    /// Whether the file at `path` is there and has the right bytes.
    fn is_here(&self, path: &Path, digest: &Digest) -> io::Result<bool> {
        match self.verified.is_intact(path, digest) {
            Err(error) if is_absent(&error) => Ok(false),
            other => other,
        }
    }

    /// Gives a verified file that is [on disk](flush_content) another name. What has that name already is left there where its bytes are
    /// right.
    fn place(&self, verified: &Path, name: &Path, digest: &Digest) -> io::Result<()> {
        match self.layout.link_or_copy(verified, name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let stamp = |path: &Path| fs::metadata(path).map(|metadata| Stamp::of(&metadata));
                if stamp(verified)?.is_same_file(&stamp(name)?) || self.verified.is_intact(name, digest)? {
                    return Ok(());
                }
                tracing::warn!(%digest, "a damaged blob in the store was replaced by a good one");
                self.layout.link_over(verified, name)
            }
            other => other,
        }
    }

    /// Makes a blob of `from`, or of the whole store, a blob of this repository. `false` where it is not there.
    pub(super) fn mount(
        &self,
        repository: &Repository,
        digest: &Digest,
        from: Option<&Repository>,
    ) -> Result<bool> {
        let source = match from {
            Some(from) => self.layout.blob(from, digest),
            None => match self.held_blob(digest)? {
                Some(held) => held,
                None => return Ok(false),
            },
        };
        let own = self.layout.blob(repository, digest);
        let mount = || -> io::Result<bool> {
            if !source.is_file() {
                return Ok(false);
            }
            self.layout.make_repository(repository).map_err(io::Error::from)?;
            match self.layout.link_or_copy(&source, &own) {
                Err(error) if is_absent(&error) => return Ok(false),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    let stamp = Stamp::of(&fs::metadata(&own)?);
                    if !self.refresh(repository, digest, &stamp).map_err(io::Error::from)? {
                        return Ok(false);
                    }
                }
                other => other?,
            }
            own.parent().map_or(Ok(()), flush_folder)?;
            Ok(true)
        };
        mount().map_err(writing(&own))
    }

    /// A content that any repository has. One that all of them have deleted is still there until the next collection, and must not
    /// come back by its digest alone.
    fn held_blob(&self, digest: &Digest) -> Result<Option<PathBuf>> {
        let shared = self.layout.shared_blob(digest);
        match fs::metadata(&shared) {
            Ok(metadata) if links(&metadata) > 1 => return Ok(Some(shared)),
            Ok(_) => {}
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(reading(&shared)(error)),
        }
        // Deleted, or every repository has a copy, as where there are no links.
        let names = self.repository_names()?;
        Ok(names.iter().map(|name| self.layout.blob(name, digest)).find(|path| path.is_file()))
    }

    /// Removes a blob's or manifest's file. The shared copy is left to the collection of garbage.
    fn remove_blob(&self, repository: &Repository, digest: &Digest) -> Result<bool> {
        let path = self.layout.blob(repository, digest);
        match fs::remove_file(&path).and_then(|()| path.parent().map_or(Ok(()), flush_folder)) {
            Ok(()) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(writing(&path)(error)),
        }
    }
}

/// Brings a complete file to disk, before it gets the name of a content.
fn flush_content(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // Nobody appends to a content by mistake, also not through another of its names.
    let mut permissions = file.metadata()?.permissions();
    permissions.set_readonly(true);
    file.set_permissions(permissions)?;
    file.sync_all()
}

/// The names of everything that is or could be a repository, in ASCII order. A folder is read when its turn comes, so that a page costs
/// what is on it, and not what there is. Links to folders are not followed here: they cannot lead in circles.
pub(super) struct Names<'a> {
    after: &'a str,
    /// What was found and is still to come: names, and folders by what the names in them begin with. In the order of the bytes `a-b`
    /// stands between `a` and `a/b`, so the two are not together.
    open: BinaryHeap<Reverse<(String, Pending)>>,
    root: PathBuf,
}

/// What has its turn when the names before it are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pending {
    Folder,
    Name(Repository),
}

impl<'a> Names<'a> {
    /// Those behind a name, which need not be there.
    pub(super) fn after(layout: &Layout, after: &'a str) -> Self {
        let open = BinaryHeap::from([Reverse((String::new(), Pending::Folder))]);
        Self { after, open, root: layout.repositories() }
    }

    /// Finds what is in a folder, given as what the names in it begin with.
    fn look_into(&mut self, beginning: &str) -> Result<()> {
        let folder = self.root.join(beginning);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(reading(&folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(reading(&folder))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let whole = format!("{beginning}{name}");
            let Ok(repository) = whole.parse::<Repository>() else { continue };
            if !entry.file_type().map_err(reading(&folder))?.is_dir() {
                continue;
            }
            let below = format!("{whole}/");
            // All that begins with it comes before, unless it is what `after` begins with too.
            if below.as_str() > self.after || self.after.starts_with(&below) {
                self.open.push(Reverse((below, Pending::Folder)));
            }
            if whole.as_str() > self.after {
                self.open.push(Reverse((whole, Pending::Name(repository))));
            }
        }
        Ok(())
    }

    /// How many folders were found and not read.
    #[cfg(test)]
    pub(super) fn unread(&self) -> usize {
        self.open.iter().filter(|Reverse((_, found))| *found == Pending::Folder).count()
    }
}

impl Iterator for Names<'_> {
    type Item = Result<Repository>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Reverse((text, found)) = self.open.pop()?;
            match found {
                Pending::Name(repository) => return Some(Ok(repository)),
                Pending::Folder => {
                    if let Err(error) = self.look_into(&text) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

/// The type that a manifest's bytes show, where nothing else tells it.
pub(super) fn type_of(bytes: &[u8]) -> Option<String> {
    MANIFEST_TYPES.iter().find(|kind| Manifest::parse(kind, bytes).is_ok()).map(|&kind| kind.to_owned())
}

pub(super) fn check_digest(bytes: &[u8], expected: &Digest) -> Result<()> {
    let mut hasher = Hasher::new(expected.algorithm());
    hasher.update(bytes);
    let actual = hasher.finish();
    if actual == *expected {
        Ok(())
    } else {
        Err(RegistryError::DigestMismatch { expected: expected.clone(), actual })
    }
}

pub(super) fn read_whole(file: &mut File, limit: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len().min(limit);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default().saturating_add(1));
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("over the limit of {limit} bytes")));
    }
    Ok(bytes)
}

/// Not there, or below something that is no folder.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn unknown(repository: &Repository, reference: &Reference) -> RegistryError {
    RegistryError::ManifestUnknown { repository: repository.to_string(), reference: reference.to_string() }
}

pub(super) fn reading(path: &Path) -> impl FnOnce(io::Error) -> RegistryError {
    RegistryError::io(format!("reading {}", path.display()))
}

pub(super) fn writing(path: &Path) -> impl FnOnce(io::Error) -> RegistryError {
    RegistryError::io(format!("writing {}", path.display()))
}
