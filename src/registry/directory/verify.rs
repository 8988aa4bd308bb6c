//! Looks at everything in a store: whether each content has its digest, and whether what manifests refer to is there.
//!
//! Others may write meanwhile. What looks damaged at first is looked at once more under the repository's lock, and only what
//! still is counts. Nothing is ever deleted: a repair moves bad contents out of the way, so that the next push of the same
//! content brings them back.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::stamp::Stamp;
use super::store::{Store, is_absent, reading, type_of};
use crate::oci::{Algorithm, Digest, MANIFEST_TYPES, Manifest, Repository, Tag};
use crate::registry::Result;

/// Hashing is bound by the processor and reading by the disk: two keep both busy, and leave the rest to a server beside.
const THREADS: usize = 2;

/// The algorithms whose contents are looked at. Folders of others are other tools' matter.
pub(super) const ALGORITHMS: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha512];

/// What was found in a store.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// How many repositories there are.
    pub repositories: u64,
    /// How many blobs and manifests these have, and how many contents are kept for all of them.
    pub files: u64,
    /// What is wrong, by repository; first what all share.
    pub damage: Vec<Damage>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// `None` for a content that is kept for all repositories.
    pub repository: Option<Repository>,
    /// The blob or manifest; `None` where it is `index.json`.
    pub digest: Option<Digest>,
    /// The tags that need it, in ASCII order.
    pub tags: Vec<Tag>,
    /// What is wrong with it.
    pub kind: DamageKind,
    /// The same in more words.
    pub detail: String,
    /// Where the repair put it.
    pub moved_to: Option<PathBuf>,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The bytes are not those that the name says.
    Content,
    /// Something refers to it, and it is not there.
    Missing,
    /// It is listed as a manifest and is none that can be read.
    Manifest,
    /// `index.json` cannot be read.
    Index,
    /// The disk or the rights to the file do not let it be read.
    Unreadable,
}

impl DamageKind {
    /// The word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Missing => "missing",
            Self::Manifest => "manifest",
            Self::Index => "index",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What manifests refer to.
type References = HashMap<Digest, Vec<Digest>>;

impl Store {
    /// Looks at everything. With `repair`, contents with wrong bytes are moved to `_damaged/`.
    pub(super) fn verify(&self, repair: bool) -> Result<Verification> {
        let mut found = Verification::default();
        let mut shared = Vec::new();
        for algorithm in ALGORITHMS {
            shared.extend(contents(&self.layout.shared_blobs(), algorithm)?);
        }
        found.files = shared.len() as u64;
        let damage = on_threads(&shared, |(path, digest)| {
            let damage = self.check_content(path, digest);
            damage.and_then(|damage| self.set_aside(damage, path, repair)).into_iter().collect()
        });
        found.damage = damage;
        let names = self.repository_names()?;
        let names: Vec<_> =
            names.into_iter().filter(|name| self.layout.image_layout(name).is_dir()).collect();
        found.repositories = names.len() as u64;
        let files = AtomicUsize::new(0);
        let mut damage = on_threads(&names, |name| {
            let (count, damage) = self.check_repository(name, repair);
            files.fetch_add(count, Ordering::Relaxed);
            damage
        });
        damage.sort_by(|one, other| one.repository.cmp(&other.repository));
        found.damage.append(&mut damage);
        found.files += files.into_inner() as u64;
        Ok(found)
    }

    /// How many files a repository has, and what is wrong with it.
    fn check_repository(&self, repository: &Repository, repair: bool) -> (usize, Vec<Damage>) {
        let (count, damage) = self.look_at(repository, false);
        if damage.is_empty() {
            return (count, damage);
        }
        // A push or a sweep may have come between two looks. Where there is no lock to be had, nobody can write either.
        let _lock = self.layout.lock(repository).ok();
        self.look_at(repository, repair)
    }

    fn look_at(&self, repository: &Repository, repair: bool) -> (usize, Vec<Damage>) {
        let mut damage = Vec::new();
        let mut bad = HashSet::new();
        let mut count = 0;
        for algorithm in ALGORITHMS {
            let files = contents(&self.layout.image_layout(repository).join("blobs"), algorithm);
            let files = files.unwrap_or_else(|error| {
                damage.push(Damage::of(None, DamageKind::Unreadable, error.to_string()));
                Vec::new()
            });
            count += files.len();
            for (path, digest) in files {
                let found = self.check_content(&path, &digest);
                if let Some(found) = found.and_then(|found| self.set_aside(found, &path, repair)) {
                    damage.push(found);
                    bad.insert(digest);
                }
            }
        }
        let mut tagged = Vec::new();
        let mut references = References::new();
        match self.read_index(repository, String::new()) {
            Ok(loaded) => {
                for entry in loaded.index.entries() {
                    let Some(digest) = entry.digest else { continue };
                    self.follow(repository, &digest, entry.media_type, &bad, &mut references, &mut damage);
                    tagged.extend(entry.tag.map(|tag| (tag, digest)));
                }
            }
            Err(error) => damage.push(Damage::of(None, DamageKind::Index, error.to_string())),
        }
        name_tags(&mut damage, tagged, &references);
        for found in &mut damage {
            found.repository = Some(repository.clone());
        }
        (count, damage)
    }

    /// Checks what a listed manifest refers to, and what that refers to in turn.
    fn follow(
        &self,
        repository: &Repository,
        digest: &Digest,
        media_type: &str,
        bad: &HashSet<Digest>,
        references: &mut References,
        damage: &mut Vec<Damage>,
    ) {
        let mut open = vec![(digest.clone(), media_type.to_owned())];
        while let Some((digest, media_type)) = open.pop() {
            if references.contains_key(&digest) {
                continue;
            }
            references.insert(digest.clone(), Vec::new());
            if bad.contains(&digest) {
                continue;
            }
            // An index may list what is no manifest; then that it is there is all that can be said.
            if !media_type.is_empty() && !MANIFEST_TYPES.contains(&media_type.as_str()) {
                if !self.layout.blob(repository, &digest).is_file() {
                    damage.push(missing(digest));
                }
                continue;
            }
            let bytes = match self.read_manifest(repository, &digest) {
                Ok(bytes) => bytes,
                Err(error) if error.is_not_found() => {
                    damage.push(missing(digest));
                    continue;
                }
                Err(error) => {
                    damage.push(Damage::of(Some(digest), DamageKind::Unreadable, error.to_string()));
                    continue;
                }
            };
            let media_type =
                if media_type.is_empty() { type_of(&bytes).unwrap_or_default() } else { media_type };
            let manifest = match Manifest::parse(&media_type, &bytes) {
                Ok(manifest) => manifest,
                Err(error) => {
                    damage.push(Damage::of(Some(digest), DamageKind::Manifest, error.to_string()));
                    continue;
                }
            };
            let mut children = Vec::new();
            for child in manifest.needed() {
                children.push(child.digest.clone());
                if manifest.is_index() {
                    open.push((child.digest.clone(), child.media_type.clone()));
                } else if !references.contains_key(&child.digest) {
                    references.insert(child.digest.clone(), Vec::new());
                    if !bad.contains(&child.digest) && !self.layout.blob(repository, &child.digest).is_file()
                    {
                        damage.push(missing(child.digest.clone()));
                    }
                }
            }
            references.insert(digest, children);
        }
    }

    /// What is wrong with a file; nothing where it has gone meanwhile.
    fn check_content(&self, path: &Path, digest: &Digest) -> Option<Damage> {
        let mismatch = || -> io::Result<Option<Digest>> {
            let mut file = fs::File::open(path)?;
            let stamp = Stamp::of(&file.metadata()?);
            self.verified.mismatch(&mut file, stamp, digest)
        };
        match mismatch() {
            Ok(None) => None,
            Ok(Some(actual)) => {
                let detail = format!("the bytes have the digest {actual}");
                Some(Damage::of(Some(digest.clone()), DamageKind::Content, detail))
            }
            Err(error) if is_absent(&error) => None,
            Err(error) => Some(Damage::of(Some(digest.clone()), DamageKind::Unreadable, error.to_string())),
        }
    }

    /// Moves what is damaged away, where that is wanted. Nothing is left of the damage where somebody has put good bytes there
    /// since they were looked at.
    fn set_aside(&self, mut damage: Damage, path: &Path, repair: bool) -> Option<Damage> {
        let (true, DamageKind::Content, Some(digest)) = (repair, damage.kind, &damage.digest) else {
            return Some(damage);
        };
        let moved = || -> io::Result<Option<PathBuf>> {
            let aside = self.layout.set_aside(path, digest)?;
            if self.verified.is_intact(&aside, digest)? {
                fs::rename(&aside, path)?;
                return Ok(None);
            }
            Ok(Some(aside))
        };
        match moved() {
            Ok(None) => return None,
            Ok(aside) => damage.moved_to = aside,
            Err(error) => damage.detail = format!("{}; it cannot be moved: {error}", damage.detail),
        }
        Some(damage)
    }
}

impl Damage {
    fn of(digest: Option<Digest>, kind: DamageKind, detail: String) -> Self {
        Self { repository: None, digest, tags: Vec::new(), kind, detail, moved_to: None }
    }
}

fn missing(digest: Digest) -> Damage {
    Damage::of(Some(digest), DamageKind::Missing, "it is referred to and not there".into())
}

/// Says of each damage which tags need what is damaged.
fn name_tags(damage: &mut [Damage], mut tagged: Vec<(Tag, Digest)>, references: &References) {
    let mut positions: HashMap<Digest, Vec<usize>> = HashMap::new();
    for (position, found) in damage.iter().enumerate() {
        if let Some(digest) = &found.digest {
            positions.entry(digest.clone()).or_default().push(position);
        }
    }
    if positions.is_empty() {
        return;
    }
    tagged.sort_unstable();
    for (tag, root) in tagged {
        let mut seen = HashSet::new();
        let mut open = vec![&root];
        while let Some(digest) = open.pop() {
            if seen.insert(digest) {
                for &position in positions.get(digest).into_iter().flatten() {
                    damage[position].tags.push(tag.clone());
                }
                open.extend(references.get(digest).into_iter().flatten());
            }
        }
    }
}

/// The contents of one algorithm in a folder of blobs, in no order. Names that are no digests are left alone.
pub(super) fn contents(blobs: &Path, algorithm: Algorithm) -> Result<Vec<(PathBuf, Digest)>> {
    let folder = blobs.join(algorithm.name());
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(reading(&folder)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(reading(&folder))?;
        let digest =
            entry.file_name().to_str().and_then(|name| format!("{}:{name}", algorithm.name()).parse().ok());
        found.extend(digest.map(|digest| (entry.path(), digest)));
    }
    Ok(found)
}

/// Does `work` for each item, on [`THREADS`] threads.
fn on_threads<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Vec<R> + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut found = work(item);
                    results.lock().unwrap_or_else(PoisonError::into_inner).append(&mut found);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}
