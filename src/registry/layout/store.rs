//! What a layout does, in calls that block: the rules of tags, manifests, blobs and referrers over the entries of the tar.
//!
//! One who reads looks at the file's stamp before each answer, and reads the file anew where it is another. One who writes works with
//! what was there at the beginning and what was staged since.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Deserialize;

use super::index::{Index, Listed};
use super::piece::Piece;
use super::reach::{Allowance, Reach};
use super::staging::{Scratch, Staging};
use super::stamp::Stamp;
use super::tar::{Entries, Entry, TarError};
use crate::oci::{
    Descriptor, Digest, Hasher, MANIFEST_TYPES, MAX_MANIFEST_SIZE, Manifest, Reference, Repository, Tag,
};
use crate::registry::referrers::{self, Room};
use crate::registry::{
    Condition, ManifestHead, NewManifest, Page, PageRequest, PutManifest, RegistryError, Result,
    StoredManifest,
};

/// `index.json` is read into memory. At some 300 bytes a manifest this is room for 400,000.
const MAX_INDEX_SIZE: u64 = 128 * 1024 * 1024;
/// The content of `oci-layout`, and what others may add to it.
const MAX_LAYOUT_FILE: u64 = 64 * 1024;
/// How many bytes of annotations are kept for lists of referrers.
const ANNOTATIONS: usize = 64 * 1024 * 1024;

/// Where the bytes of a content are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In the tar.
    Tar { offset: u64, size: u64 },
    /// In the folder beside it.
    Staged { size: u64 },
}

impl Place {
    pub(super) fn size(self) -> u64 {
        match self {
            Self::Tar { size, .. } | Self::Staged { size } => size,
        }
    }
}

/// What is known of a layout.
pub(super) struct State {
    /// The tar, open, and its stamp; `None` where there is none yet. Where another file takes its name meanwhile, this one can be read
    /// to its end.
    tar: Option<(Arc<File>, Stamp)>,
    pub(super) blobs: HashMap<Digest, Place>,
    pub(super) index: Index,
    /// The digest of `index.json` as it was read: where it comes out the same, nothing has to be written.
    pub(super) index_digest: Option<Digest>,
    /// A file that a rewritten tar would not have.
    pub(super) odd_file: Option<String>,
    reaches: HashMap<Repository, Arc<Reach>>,
    /// What may still be read for those that are not there yet.
    allowance: Allowance,
    room: Room,
    /// What was pushed to a repository before the manifest that names it.
    members: HashSet<(Repository, Digest)>,
    /// The contents that were hashed, and were right.
    verified: HashSet<Digest>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            tar: None,
            blobs: HashMap::new(),
            index: Index::default(),
            index_digest: None,
            odd_file: None,
            reaches: HashMap::new(),
            allowance: Allowance::default(),
            room: Room::new(ANNOTATIONS),
            members: HashSet::new(),
            verified: HashSet::new(),
        }
    }
}

/// A file with a layout, and what is remembered of it.
pub(super) struct Layout {
    pub(super) path: PathBuf,
    /// Where it is written to; `None` where it is only read.
    pub(super) staging: Option<Staging>,
    state: Mutex<State>,
}

/// A content that can be read.
pub(super) struct Content {
    pub(super) bytes: Piece,
    /// Whether they are known to be right.
    pub(super) is_verified: bool,
}

impl Layout {
    /// Reads a file that is there.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let state = Mutex::new(load(path)?);
        Ok(Self { path: path.to_owned(), staging: None, state })
    }

    /// The same to be written; an empty layout where there is no file.
    pub(super) fn open_to_write(path: &Path) -> Result<Self> {
        let mut state = match load(path) {
            Err(RegistryError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => State::default(),
            state => state?,
        };
        let lost = state.odd_file.as_ref().map(|name| format!("a file `{name}`"));
        let lost = lost
            .or_else(|| state.index.odd_member.as_ref().map(|name| format!("`{name}` in its index.json")));
        if let Some(lost) = lost {
            let reason = format!("it has {lost}, which ocimod would not keep; write to another file");
            return Err(reading(path)(io::Error::new(ErrorKind::InvalidData, reason)));
        }
        let staging = Staging::beside(path)?;
        for (digest, size) in staging.leftovers()? {
            state.blobs.entry(digest).or_insert(Place::Staged { size });
        }
        state.allowance = state.whole_allowance();
        Ok(Self { path: path.to_owned(), staging: Some(staging), state: Mutex::new(state) })
    }

    /// What is known, of the file as it is now.
    pub(super) fn state(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.staging.is_none() {
            let metadata = std::fs::metadata(&self.path).map_err(reading(&self.path))?;
            if state.stamp() != Some(Stamp::of(&metadata)) {
                *state = load(&self.path)?;
            }
        }
        Ok(state)
    }

    /// A number that changes with the file; `None` while it is so young that a change might not show.
    pub(super) fn revision(&self) -> Option<u64> {
        let stamp = Stamp::of(&std::fs::metadata(&self.path).ok()?);
        stamp.is_settled().then(|| stamp.number())
    }

    // Reading.

    /// A page of the tags of a repository.
    pub(super) fn tags(&self, repository: &Repository, request: &PageRequest) -> Result<Page<Tag>> {
        let state = self.state()?;
        let listed = state.listed(repository)?;
        Ok(page(listed.tagged.keys(), request, Tag::as_str))
    }

    /// A page of the names of all repositories.
    pub(super) fn repositories(&self, request: &PageRequest) -> Result<Page<Repository>> {
        let state = self.state()?;
        let held = state.index.repositories.iter().filter(|(_, listed)| listed.entries().next().is_some());
        Ok(page(held.map(|(name, _)| name), request, Repository::as_str))
    }

    /// A manifest, whole and verified.
    pub(super) fn manifest(&self, repository: &Repository, reference: &Reference) -> Result<StoredManifest> {
        let mut state = self.state()?;
        let Descriptor { media_type, digest, .. } = self.resolve(&mut state, repository, reference)?;
        let bytes = self.read_manifest(&state, &digest)?;
        Ok(StoredManifest { media_type, digest, bytes })
    }

    /// A manifest's type, digest and size.
    pub(super) fn manifest_head(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<ManifestHead> {
        let mut state = self.state()?;
        let Descriptor { media_type, digest, size, .. } = self.resolve(&mut state, repository, reference)?;
        Ok(ManifestHead { media_type, digest, size })
    }

    fn resolve(
        &self,
        state: &mut State,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<Descriptor> {
        let digest = match reference {
            Reference::Digest(digest) => digest.clone(),
            Reference::Tag(tag) => {
                let entry = state.listed(repository).ok().and_then(|listed| listed.tagged.get(tag));
                entry.ok_or_else(|| unknown(repository, reference))?.digest.clone()
            }
        };
        let reach = self.reach(state, repository)?;
        let known = reach.manifests.get(&digest).ok_or_else(|| unknown(repository, reference))?;
        Ok(known.shown.descriptor.clone())
    }

    /// What belongs to a repository. Its manifests are read when that is first asked.
    pub(super) fn reach(&self, state: &mut State, repository: &Repository) -> Result<Arc<Reach>> {
        if let Some(reach) = state.reaches.get(repository) {
            return Ok(Arc::clone(reach));
        }
        let listed = state.index.repositories.get(repository).cloned();
        let listed = match listed {
            // Nothing is remembered of a name that anybody made up.
            None if self.staging.is_none() => return Ok(Arc::default()),
            listed => listed.unwrap_or_default(),
        };
        let mut allowance = state.allowance;
        let reach = Self::follow(state, &listed, &mut allowance, |digest| self.read_manifest(state, digest));
        state.allowance = allowance;
        let reach = Arc::new(reach?);
        state.reaches.insert(repository.clone(), Arc::clone(&reach));
        Ok(reach)
    }

    /// What these entries lead to, with manifests as `read` gives them.
    pub(super) fn follow(
        state: &State,
        listed: &Listed,
        allowance: &mut Allowance,
        read: impl Fn(&Digest) -> Result<Bytes>,
    ) -> Result<Reach> {
        let size = |digest: &Digest| match state.blobs.get(digest).map(|place| place.size()) {
            Some(size) if size <= MAX_MANIFEST_SIZE => size,
            // It is not there, or is not read.
            _ => 0,
        };
        Reach::of(listed, &state.room, allowance, size, read)
    }

    /// The size of a blob in bytes.
    pub(super) fn blob_size(&self, repository: &Repository, digest: &Digest) -> Result<u64> {
        let mut state = self.state()?;
        self.place(&mut state, repository, digest).map(Place::size)
    }

    fn place(&self, state: &mut State, repository: &Repository, digest: &Digest) -> Result<Place> {
        let missing = || RegistryError::BlobUnknown(digest.clone());
        let is_member =
            !state.members.is_empty() && state.members.contains(&(repository.clone(), digest.clone()));
        if !is_member && !self.reach(state, repository)?.has_blob(digest) {
            return Err(missing());
        }
        state.blobs.get(digest).copied().ok_or_else(missing)
    }

    /// A blob to be read. With `whole_first` it is hashed before, unless its bytes are known to be right.
    pub(super) fn blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        whole_first: bool,
    ) -> Result<Content> {
        let mut content = {
            let mut state = self.state()?;
            let place = self.place(&mut state, repository, digest)?;
            self.content(&state, digest, place)?
        };
        if whole_first && !content.is_verified {
            if let Some(actual) = self.mismatch(&content, digest)? {
                return Err(RegistryError::DigestMismatch { expected: digest.clone(), actual });
            }
            content.is_verified = true;
        }
        Ok(content)
    }

    /// A content, wherever it is.
    pub(super) fn content(&self, state: &State, digest: &Digest, place: Place) -> Result<Content> {
        let bytes = match (place, &state.tar, &self.staging) {
            (Place::Tar { offset, size }, Some((file, _)), _) => {
                Piece { file: Arc::clone(file), start: offset, size }
            }
            (Place::Staged { size }, _, Some(staging)) => {
                let path = staging.file(digest);
                let file = File::open(&path).map_err(reading(&path))?;
                Piece { file: Arc::new(file), start: 0, size }
            }
            _ => return Err(RegistryError::BlobUnknown(digest.clone())),
        };
        Ok(Content { bytes, is_verified: state.verified.contains(digest) })
    }

    /// Hashes a content; answers the digest that it has in place of its own.
    pub(super) fn mismatch(&self, content: &Content, digest: &Digest) -> Result<Option<Digest>> {
        let mut hasher = Hasher::new(digest.algorithm());
        content
            .bytes
            .each(|piece| {
                hasher.update(piece);
                Ok(())
            })
            .map_err(reading(&self.path))?;
        let actual = hasher.finish();
        if actual != *digest {
            return Ok(Some(actual));
        }
        self.remember(content, digest);
        Ok(None)
    }

    /// Notes that a content was hashed and was right, if a later change of the file would show.
    pub(super) fn remember(&self, content: &Content, digest: &Digest) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = match &state.tar {
            Some((tar, stamp)) if Arc::ptr_eq(tar, &content.bytes.file) => {
                stamp.is_settled() && tar.metadata().is_ok_and(|metadata| Stamp::of(&metadata) == *stamp)
            }
            // What is staged is ours alone; what was in another file than the one of now is of no interest any more.
            _ => self.staging.is_some(),
        };
        if is_kept {
            state.verified.insert(digest.clone());
        }
    }

    /// The bytes of a manifest, verified.
    pub(super) fn read_manifest(&self, state: &State, digest: &Digest) -> Result<Bytes> {
        let place =
            state.blobs.get(digest).copied().ok_or_else(|| RegistryError::BlobUnknown(digest.clone()))?;
        if place.size() > MAX_MANIFEST_SIZE {
            return Err(RegistryError::TooLarge { limit: MAX_MANIFEST_SIZE });
        }
        let bytes = self.content(state, digest, place)?.bytes.read().map_err(reading(&self.path))?;
        check(&bytes, digest)?;
        Ok(bytes.into())
    }

    /// A page of the manifests whose subject is `digest`, in the order of their digests.
    pub(super) fn referrers(
        &self,
        repository: &Repository,
        digest: &Digest,
        artifact_type: Option<&str>,
        request: &PageRequest,
    ) -> Result<Page<Descriptor>> {
        let mut state = self.state()?;
        let reach = self.reach(&mut state, repository)?;
        let about = reach.about(digest);
        Ok(referrers::page(about, artifact_type, request, |digest| self.read_manifest(&state, digest)))
    }

    // Writing.

    /// Whether a content is here already with the right bytes; it belongs to the repository then.
    pub(super) fn keep_blob(&self, repository: &Repository, digest: &Digest) -> Result<bool> {
        let content = {
            let state = self.state()?;
            let Some(place) = state.blobs.get(digest).copied() else { return Ok(false) };
            match self.content(&state, digest, place) {
                // What an earlier run had staged, and somebody has removed since.
                Err(RegistryError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    return Ok(false);
                }
                content => content?,
            }
        };
        if !content.is_verified && self.mismatch(&content, digest)?.is_some() {
            return Ok(false);
        }
        self.state()?.members.insert((repository.clone(), digest.clone()));
        Ok(true)
    }

    /// A new file to stage a content in.
    pub(super) fn scratch(&self) -> Result<(File, Scratch)> {
        self.staging_or("pushing blobs")?.scratch()
    }

    /// Takes in a content that was staged, verified.
    pub(super) fn keep_staged(
        &self,
        complete: &Scratch,
        repository: &Repository,
        digest: &Digest,
        size: u64,
    ) -> Result<()> {
        self.staging_or("pushing blobs")?.keep(complete, digest)?;
        let mut state = self.state()?;
        state.blobs.insert(digest.clone(), Place::Staged { size });
        state.verified.insert(digest.clone());
        state.members.insert((repository.clone(), digest.clone()));
        Ok(())
    }

    fn staging_or(&self, operation: &'static str) -> Result<&Staging> {
        self.staging.as_ref().ok_or(RegistryError::Unsupported { operation })
    }

    /// Makes a content of `from`, or of any repository, one of this repository. `false` where it is not there.
    pub(super) fn mount(
        &self,
        repository: &Repository,
        digest: &Digest,
        from: Option<&Repository>,
    ) -> Result<bool> {
        self.staging_or("mounting blobs")?;
        let mut state = self.state()?;
        let is_there = match from {
            Some(from) => self.place(&mut state, from, digest).is_ok(),
            None => state.blobs.contains_key(digest),
        };
        if is_there {
            state.members.insert((repository.clone(), digest.clone()));
        }
        Ok(is_there)
    }

    /// Stores a manifest and points tags at it.
    pub(super) fn put_manifest(&self, repository: &Repository, new: &NewManifest) -> Result<PutManifest> {
        let staging = self.staging_or("pushing manifests")?;
        if new.bytes.len() as u64 > MAX_MANIFEST_SIZE {
            return Err(RegistryError::TooLarge { limit: MAX_MANIFEST_SIZE });
        }
        let manifest = Manifest::parse(&new.media_type, &new.bytes)?;
        let digest = match &new.digest {
            Some(digest) => {
                check(&new.bytes, digest)?;
                digest.clone()
            }
            None => Digest::of(&new.bytes),
        };
        let mut state = self.state()?;
        for needed in manifest.needed() {
            if manifest.is_index() && MANIFEST_TYPES.contains(&needed.media_type.as_str()) {
                if !self.reach(&mut state, repository)?.manifests.contains_key(&needed.digest) {
                    return Err(RegistryError::ManifestBlobUnknown(needed.digest.clone()));
                }
            } else if self.place(&mut state, repository, &needed.digest).is_err() {
                return Err(RegistryError::ManifestBlobUnknown(needed.digest.clone()));
            }
        }
        let listed = state.index.repositories.get(repository);
        for tag in &new.tags {
            let existing = listed.and_then(|listed| listed.tagged.get(tag)).map(|entry| &entry.digest);
            if let Some(existing) = existing.filter(|existing| **existing != digest)
                && new.condition == Condition::AbsentOrSame
            {
                return Err(RegistryError::TagExists { tag: tag.clone(), existing: existing.clone() });
            }
        }
        // What the file has already, and is right, stays where it is.
        if !state.verified.contains(&digest) && self.read_manifest(&state, &digest).is_err() {
            staging.write(&digest, &new.bytes)?;
            state.blobs.insert(digest.clone(), Place::Staged { size: new.bytes.len() as u64 });
            state.verified.insert(digest.clone());
        }
        let mut descriptor = Descriptor::new(&new.media_type, digest.clone(), new.bytes.len() as u64);
        descriptor.artifact_type.clone_from(&manifest.artifact_type);
        state.index.repositories.entry(repository.clone()).or_default().put(&descriptor, &new.tags);
        let subject = manifest.subject.as_ref().map(|subject| subject.digest.clone());
        let mut reach = self.reach(&mut state, repository)?;
        // Taken out of the map, so that it is not copied.
        state.reaches.remove(repository);
        Arc::make_mut(&mut reach).add(descriptor, manifest, &state.room);
        state.reaches.insert(repository.clone(), reach);
        Ok(PutManifest { digest, subject })
    }
}

impl State {
    /// That of the file that is read; `None` where there is none yet.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        self.tar.as_ref().map(|(_, stamp)| *stamp)
    }

    /// What may be read to find what belongs to all repositories.
    pub(super) fn whole_allowance(&self) -> Allowance {
        Allowance::of(self.blobs.values().map(|place| place.size()))
    }

    fn listed(&self, repository: &Repository) -> Result<&Listed> {
        let listed = self.index.repositories.get(repository);
        listed
            .filter(|listed| listed.entries().next().is_some())
            .ok_or_else(|| RegistryError::RepositoryUnknown(repository.to_string()))
    }
}

/// Reads the headers of a tar, and `index.json`.
pub(super) fn load(path: &Path) -> Result<State> {
    let open = || -> io::Result<(File, Stamp)> {
        let metadata = std::fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(io::Error::other(
                "it is a folder; `dir:PATH` is for folders, and `layout:FILE.tar` for files",
            ));
        }
        // A pipe would be waited for without end.
        if !metadata.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is no ordinary file"));
        }
        let file = File::open(path)?;
        let stamp = Stamp::of(&file.metadata()?);
        Ok((file, stamp))
    };
    let (file, stamp) = open().map_err(reading(path))?;
    let wrong = |error: TarError| {
        let source = match error {
            TarError::Io(error) => error,
            error => io::Error::new(ErrorKind::InvalidData, error.to_string()),
        };
        reading(path)(source)
    };
    let mut state = State::default();
    let mut files: BTreeMap<&str, Entry> = BTreeMap::new();
    let mut entries = Entries::new(io::BufReader::with_capacity(512, &file), stamp.size);
    while let Some(entry) = entries.next().map_err(wrong)? {
        let known = [LAYOUT_FILE, INDEX_FILE].into_iter().find(|known| *known == entry.name);
        let digest = blob_digest(&entry.name);
        if entry.is_folder {
            if known.is_some() || digest.is_some() {
                return Err(wrong(TarError::Kind(entry.name, "a folder")));
            }
            continue;
        }
        let twice = match (known, digest) {
            (Some(known), _) => files.insert(known, entry.clone()).is_some(),
            (None, Some(digest)) => {
                let place = Place::Tar { offset: entry.offset, size: entry.size };
                state.blobs.insert(digest, place).is_some()
            }
            (None, None) => {
                let shown = || entry.name.chars().take(200).collect::<String>().escape_debug().to_string();
                state.odd_file.get_or_insert_with(shown);
                false
            }
        };
        if twice {
            return Err(wrong(TarError::Duplicate(entry.name)));
        }
    }
    let file = Arc::new(file);
    let small = |name: &str, limit: u64| -> io::Result<Vec<u8>> {
        let invalid = |reason: String| io::Error::new(ErrorKind::InvalidData, reason);
        let entry = files.get(name);
        let entry =
            entry.ok_or_else(|| invalid(format!("it has no `{name}`, so it is no OCI image layout")))?;
        if entry.size > limit {
            return Err(invalid(format!("its `{name}` is over the limit of {limit} bytes")));
        }
        Piece { file: Arc::clone(&file), start: entry.offset, size: entry.size }.read()
    };
    let layout = small(LAYOUT_FILE, MAX_LAYOUT_FILE).map_err(reading(path))?;
    check_version(&layout).map_err(reading(path))?;
    let index = small(INDEX_FILE, MAX_INDEX_SIZE).map_err(reading(path))?;
    let unreadable = |error: serde_json::Error| {
        io::Error::new(ErrorKind::InvalidData, format!("its `{INDEX_FILE}` cannot be read: {error}"))
    };
    state.index = Index::parse(&index).map_err(unreadable).map_err(reading(path))?;
    state.index_digest = Some(Digest::of(&index));
    state.tar = Some((file, stamp));
    state.allowance = state.whole_allowance();
    Ok(state)
}

/// The file that says what this is (image specification, "oci-layout file").
pub(super) const LAYOUT_FILE: &str = "oci-layout";
/// The file that lists the manifests.
pub(super) const INDEX_FILE: &str = "index.json";
/// Of the specification: what [`LAYOUT_FILE`] says.
const LAYOUT_VERSION: &str = "1.0.0";

/// Version 1 alone has the form that is read here.
fn check_version(bytes: &[u8]) -> io::Result<()> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LayoutFile {
        image_layout_version: String,
    }
    let invalid = |reason: String| io::Error::new(ErrorKind::InvalidData, reason);
    let file: LayoutFile = serde_json::from_slice(bytes)
        .map_err(|error| invalid(format!("its `{LAYOUT_FILE}` cannot be read: {error}")))?;
    if file.image_layout_version == LAYOUT_VERSION {
        return Ok(());
    }
    let version: String = file.image_layout_version.chars().take(40).collect();
    Err(invalid(format!(
        "it is an image layout of version `{}`; only {LAYOUT_VERSION} is known",
        version.escape_debug()
    )))
}

/// The name of a content in the tar.
pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm().name(), digest.hex())
}

/// The content that has this name.
fn blob_digest(name: &str) -> Option<Digest> {
    let (algorithm, hex) = name.strip_prefix("blobs/")?.split_once('/')?;
    format!("{algorithm}:{hex}").parse().ok()
}

fn check(bytes: &[u8], expected: &Digest) -> Result<()> {
    let mut hasher = Hasher::new(expected.algorithm());
    hasher.update(bytes);
    let actual = hasher.finish();
    if actual == *expected {
        Ok(())
    } else {
        Err(RegistryError::DigestMismatch { expected: expected.clone(), actual })
    }
}

/// A page of a list that is sorted by `key`.
fn page<'a, T: Clone + 'a>(
    items: impl Iterator<Item = &'a T>,
    request: &PageRequest,
    key: impl Fn(&T) -> &str,
) -> Page<T> {
    let after = request.after.as_deref().unwrap_or("");
    let items = items.skip_while(|item| key(item) <= after).cloned();
    Page::first_of(items, request.count, &key)
}

fn unknown(repository: &Repository, reference: &Reference) -> RegistryError {
    RegistryError::ManifestUnknown { repository: repository.to_string(), reference: reference.to_string() }
}

pub(super) fn reading(path: &Path) -> impl FnOnce(io::Error) -> RegistryError {
    RegistryError::io(format!("reading {}", path.display()))
}
