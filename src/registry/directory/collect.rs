//! Collects garbage: whatever no tag reaches, once it is old enough that nobody is about to need it.
//!
//! A repository is marked and swept under its lock, so no manifest is listed meanwhile; a push of one checks under the same
//! lock that what it needs is there. Blobs come before the manifest that needs them, without the lock: the grace is for
//! these. A blob's age is the time since its inode changed last, which linking it does, and asking for it by HEAD too.
//!
//! Whatever is not understood is kept: where a manifest that counts cannot be read, nothing is swept in its repository.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::index::{Change, Index};
use super::index_file::links;
use super::stamp::Stamp;
use super::store::{Store, is_absent, reading, type_of, writing};
use super::verify::{ALGORITHMS, contents};
use crate::oci::{Digest, MANIFEST_TYPES, Manifest, Repository};
use crate::registry::Result;

/// The grace where none is given: longer than any upload should take from its first blob to its manifest.
pub const DEFAULT_GRACE: Duration = Duration::from_hours(1);

/// An upload that nothing was added to for so long is given up; so is a file that a crash left half written.
const IDLE: Duration = Duration::from_hours(24);

/// How garbage is collected.
#[derive(Clone, Copy, Debug)]
pub struct CollectOptions {
    /// What is younger is kept.
    pub grace: Duration,
    /// Only tell what would be removed.
    pub dry_run: bool,
}

/// What was removed, or would be.
#[derive(Clone, Debug, Default)]
pub struct Collection {
    /// Each name that was removed, in the order of repositories; contents that were kept for all come last.
    pub removed: Vec<Removed>,
    /// By how many bytes that makes the store smaller: a content with several names counts when the last has gone.
    pub freed: u64,
    /// Repositories where nothing was swept, and why.
    pub skipped: Vec<(Repository, String)>,
}

/// Something that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// `None` for what belongs to no repository.
    pub repository: Option<Repository>,
    /// `None` for an upload and other leftovers.
    pub digest: Option<Digest>,
    /// What it was.
    pub kind: RemovedKind,
    /// Its size in bytes.
    pub size: u64,
}

/// What can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedKind {
    /// A manifest of a repository.
    Manifest,
    /// A blob of a repository.
    Blob,
    /// A content that no repository has any more.
    Content,
    /// An upload, or another file that was never finished.
    Upload,
}

impl RemovedKind {
    /// The word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Blob => "blob",
            Self::Content => "content",
            Self::Upload => "upload",
        }
    }
}

/// What a manifest refers to.
struct Node {
    /// All that it needs.
    children: Vec<Digest>,
    subject: Option<Digest>,
}

/// A collection under way.
struct Sweep {
    options: CollectOptions,
    collection: Collection,
    /// How many names of a file (device, inode) there were, and how many of them go.
    names: HashMap<(u64, u64), (u64, u64)>,
    /// The contents of which a repository's name goes.
    released: HashSet<Digest>,
}

impl Store {
    /// Removes what nothing refers to.
    pub(super) fn collect(&self, options: CollectOptions) -> Result<Collection> {
        let mut sweep = Sweep {
            options,
            collection: Collection::default(),
            names: HashMap::new(),
            released: HashSet::new(),
        };
        for repository in self.repository_names()? {
            if self.layout.image_layout(&repository).is_dir() {
                self.collect_repository(&repository, &mut sweep)?;
            }
        }
        self.collect_shared(&mut sweep)?;
        self.collect_uploads(&mut sweep)?;
        Ok(sweep.collection)
    }

    fn collect_repository(&self, repository: &Repository, sweep: &mut Sweep) -> Result<()> {
        let mut lock = self.layout.lock(repository)?;
        let marked = self.current(repository, &mut lock).map_err(|error| error.to_string());
        let marked = marked.and_then(|current| {
            let live = self.mark(repository, &current.index, sweep.options.grace)?;
            Ok((current, live))
        });
        let (current, live) = match marked {
            Ok(marked) => marked,
            Err(reason) => {
                sweep.collection.skipped.push((repository.clone(), reason));
                return Ok(());
            }
        };
        let listed: HashSet<_> = current.index.entries().filter_map(|entry| entry.digest).collect();
        // The list goes first: what a crash leaves then is a file that nothing refers to.
        let swept = current.index.without_manifests(|digest| !live.contains(digest));
        if let Some(swept) = swept.filter(|_| !sweep.options.dry_run) {
            self.write_index(repository, current, Change::Rewritten(swept), &mut lock)?;
        }
        let layout = self.layout.image_layout(repository);
        sweep.leftovers(&layout, Some(repository))?;
        for algorithm in ALGORITHMS {
            for (path, digest) in contents(&layout.join("blobs"), algorithm)? {
                let kind = if listed.contains(&digest) { RemovedKind::Manifest } else { RemovedKind::Blob };
                if !live.contains(&digest)
                    && let Some(metadata) = look_at(&path)?
                    && Stamp::of(&metadata).age() > sweep.options.grace
                {
                    sweep.released.insert(digest.clone());
                    sweep.remove(&path, &metadata, kind, Some(repository), Some(digest))?;
                }
            }
            sweep.leftovers(&layout.join("blobs").join(algorithm.name()), Some(repository))?;
        }
        Ok(())
    }

    /// What is reached from the tags of a repository, from its other named manifests and from its young ones. An error is the
    /// reason why that cannot be told.
    fn mark(
        &self,
        repository: &Repository,
        index: &Index,
        grace: Duration,
    ) -> Result<HashSet<Digest>, String> {
        let mut open = Vec::new();
        let mut roots = Vec::new();
        for entry in index.entries() {
            let Some(digest) = &entry.digest else { continue };
            let is_known = entry.media_type.is_empty() || MANIFEST_TYPES.contains(&entry.media_type);
            if !is_known {
                return Err(format!(
                    "{digest} is listed as `{}`, which ocimod does not read",
                    entry.media_type
                ));
            }
            let metadata =
                look_at(&self.layout.blob(repository, digest)).map_err(|error| error.to_string())?;
            match metadata.map(|metadata| Stamp::of(&metadata).age()) {
                None if entry.is_named => return Err(format!("the manifest {digest} is not there")),
                None => continue,
                Some(age) if entry.is_named || age <= grace => roots.push(digest.clone()),
                Some(_) => {}
            }
            open.push((digest.clone(), entry.media_type.to_owned()));
        }
        let nodes = self.read_nodes(repository, open)?;
        let mut referrers: HashMap<&Digest, Vec<&Digest>> = HashMap::new();
        for (digest, node) in &nodes {
            if let Some(subject) = &node.subject {
                referrers.entry(subject).or_default().push(digest);
            }
        }
        let mut live = HashSet::new();
        while let Some(digest) = roots.pop() {
            if !live.insert(digest.clone()) {
                continue;
            }
            roots.extend(referrers.get(&digest).into_iter().flatten().map(|&referrer| referrer.clone()));
            if let Some(node) = nodes.get(&digest) {
                roots.extend(node.children.iter().chain(&node.subject).cloned());
            }
        }
        Ok(live)
    }

    /// Reads manifests, and those that they list.
    fn read_nodes(
        &self,
        repository: &Repository,
        mut open: Vec<(Digest, String)>,
    ) -> Result<HashMap<Digest, Node>, String> {
        let mut nodes = HashMap::new();
        while let Some((digest, media_type)) = open.pop() {
            if nodes.contains_key(&digest) {
                continue;
            }
            let mut node = Node { children: Vec::new(), subject: None };
            match self.read_manifest(repository, &digest) {
                Ok(bytes) => {
                    let given = Some(media_type).filter(|given| !given.is_empty());
                    let media_type = given.or_else(|| type_of(&bytes)).unwrap_or_default();
                    let manifest = Manifest::parse(&media_type, &bytes)
                        .map_err(|error| format!("the manifest {digest}: {error}"))?;
                    let all = manifest.config.iter().chain(&manifest.layers).chain(manifest.entries());
                    node.children = all.map(|child| child.digest.clone()).collect();
                    node.subject = manifest.subject.as_ref().map(|subject| subject.digest.clone());
                    let is_manifest =
                        |media_type: &str| media_type.is_empty() || MANIFEST_TYPES.contains(&media_type);
                    let entries = manifest.entries().iter().filter(|entry| is_manifest(&entry.media_type));
                    open.extend(entries.map(|entry| (entry.digest.clone(), entry.media_type.clone())));
                }
                // Some tools copy an index and not all of what it lists.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(format!("the manifest {digest}: {error}")),
            }
            nodes.insert(digest, node);
        }
        Ok(nodes)
    }

    /// Removes the contents that no repository has. Nobody is hurt who comes for one at this moment: a push that does not find
    /// it uses the file that it has, and a mount that does not find it is an upload.
    fn collect_shared(&self, sweep: &mut Sweep) -> Result<()> {
        for algorithm in ALGORITHMS {
            for (path, digest) in contents(&self.layout.shared_blobs(), algorithm)? {
                let Some(metadata) = look_at(&path)? else { continue };
                let stamp = Stamp::of(&metadata);
                let is_old = sweep.released.contains(&digest) || stamp.age() > sweep.options.grace;
                if is_old && sweep.links(&metadata) <= 1 {
                    sweep.remove(&path, &metadata, RemovedKind::Content, None, Some(digest))?;
                }
            }
            sweep.leftovers(&self.layout.shared_blobs().join(algorithm.name()), None)?;
        }
        Ok(())
    }

    fn collect_uploads(&self, sweep: &mut Sweep) -> Result<()> {
        let folder = self.layout.uploads();
        for entry in fs::read_dir(&folder).map_err(reading(&folder))? {
            let path = entry.map_err(reading(&folder))?.path();
            let Some(metadata) = look_at(&path)?.filter(is_idle) else { continue };
            // One that is being ended right now is held.
            let hold = || -> io::Result<Option<File>> {
                let file = File::open(&path)?;
                Ok(file.try_lock().is_ok().then_some(file))
            };
            if let Ok(Some(_held)) = hold() {
                sweep.remove(&path, &metadata, RemovedKind::Upload, None, None)?;
            }
        }
        Ok(())
    }
}

impl Sweep {
    /// How many names a file has that are not among those that go.
    fn links(&self, metadata: &Metadata) -> u64 {
        let links = links(metadata);
        let going = self.names.get(&Stamp::of(metadata).file()).map_or(0, |names| names.1);
        // What has gone is not counted by the system any more.
        if self.options.dry_run { links.saturating_sub(going) } else { links }
    }

    fn remove(
        &mut self,
        path: &Path,
        metadata: &Metadata,
        kind: RemovedKind,
        repository: Option<&Repository>,
        digest: Option<Digest>,
    ) -> Result<()> {
        if !self.options.dry_run {
            // Not flushed: what a crash brings back, the next collection removes.
            match fs::remove_file(path) {
                Err(error) if !is_absent(&error) => return Err(writing(path)(error)),
                _ => {}
            }
        }
        let names = self.names.entry(Stamp::of(metadata).file()).or_insert((links(metadata), 0));
        names.1 += 1;
        if names.1 >= names.0 {
            self.collection.freed += metadata.len();
        }
        let size = metadata.len();
        self.collection.removed.push(Removed { repository: repository.cloned(), digest, kind, size });
        Ok(())
    }

    /// Removes the files that a crash left half written in a folder.
    fn leftovers(&mut self, folder: &Path, repository: Option<&Repository>) -> Result<()> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(reading(folder)(error)),
        };
        for entry in entries {
            let path = entry.map_err(reading(folder))?.path();
            if is_half_written(&path)
                && let Some(metadata) = look_at(&path)?.filter(is_idle)
            {
                self.remove(&path, &metadata, RemovedKind::Upload, repository, None)?;
            }
        }
        Ok(())
    }
}

/// A name that only files have which are not yet what they will be.
fn is_half_written(path: &Path) -> bool {
    let is_ours = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with('_'));
    is_ours && path.extension().is_some_and(|extension| extension == "part")
}

fn is_idle(metadata: &Metadata) -> bool {
    let written = metadata.modified().ok();
    let since = written.and_then(|written| SystemTime::now().duration_since(written).ok());
    metadata.is_file() && since.is_some_and(|since| since > IDLE) && Stamp::of(metadata).age() > IDLE
}

/// `None` where it has gone.
fn look_at(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(reading(path)(error)),
    }
}
