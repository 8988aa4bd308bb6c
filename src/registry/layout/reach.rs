//! What belongs to a repository of a layout: whatever its listed manifests lead to.
//!
//! All repositories share one folder of blobs there, so that a blob is in the file says nothing. What a manifest of the repository
//! names is readable in it, and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::oci::{Descriptor, Digest, MANIFEST_TYPES, Manifest};
use crate::registry::referrers::{Room, Shown};
use crate::registry::{RegistryError, Result};

use super::index::Listed;

/// A repository with more contents is broken off: some 150 MB of memory.
pub(super) const MAX_CONTENTS: usize = 1_000_000;
/// The same for all repositories of a file. What belongs to each is remembered, so that nothing is followed twice.
const MAX_ALL_CONTENTS: usize = 2 * MAX_CONTENTS;
/// So many times as much as is in a file may be read to find what belongs to its repositories. Two of them may have the same manifests,
/// which are in the file once; where a hundred thousand have, nobody has written that file to be read.
const READ_AGAIN: u64 = 4;
/// So much may be read in any case.
const SMALL_FILE: u64 = 64 * 1024 * 1024;

/// A manifest of a repository.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) shown: Arc<Shown>,
    /// The manifests that it lists.
    children: Vec<Digest>,
}

/// What can be read in a repository.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    pub(super) manifests: BTreeMap<Digest, Known>,
    blobs: HashSet<Digest>,
    /// By what they are about.
    referrers: HashMap<Digest, BTreeSet<Digest>>,
}

/// How much may still be looked at to find what belongs to the repositories of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    contents: usize,
    bytes: u64,
}

impl Allowance {
    /// For a file whose contents have these sizes.
    pub(super) fn of(sizes: impl Iterator<Item = u64>) -> Self {
        let all = sizes.fold(SMALL_FILE, u64::saturating_add);
        Self { contents: MAX_ALL_CONTENTS, bytes: all.saturating_mul(READ_AGAIN) }
    }

    /// Takes as much from it; an error where it is used up. From then on it stays so, since what was refused once would be asked for again.
    fn take(&mut self, contents: usize, bytes: u64) -> Result<()> {
        let left = self.contents.checked_sub(contents).zip(self.bytes.checked_sub(bytes));
        let Some((contents, bytes)) = left else {
            *self = Self::default();
            let reason =
                "the repositories of this layout lead to the same manifests too often, or to too many";
            return Err(RegistryError::Refused(reason.into()));
        };
        *self = Self { contents, bytes };
        Ok(())
    }
}

impl Reach {
    /// Follows everything that is listed. What cannot be read hides what it leads to, and nothing else. `size` says how many bytes `read`
    /// reads of a manifest, good or bad.
    pub(super) fn of(
        listed: &Listed,
        room: &Room,
        allowance: &mut Allowance,
        size: impl Fn(&Digest) -> u64,
        read: impl Fn(&Digest) -> Result<Bytes>,
    ) -> Result<Self> {
        let mut reach = Self::default();
        // Also of what cannot be read: a manifest that is named a thousand times is looked at once.
        let mut seen = HashSet::new();
        let mut open: Vec<_> =
            listed.entries().map(|entry| (entry.digest.clone(), entry.media_type.clone())).collect();
        while let Some((digest, media_type)) = open.pop() {
            if !seen.insert(digest.clone()) {
                continue;
            }
            if seen.len().max(reach.size()) > MAX_CONTENTS {
                return Err(RegistryError::TooMany {
                    what: "contents of one repository",
                    limit: MAX_CONTENTS,
                });
            }
            if !MANIFEST_TYPES.contains(&media_type.as_str()) {
                // An index may list what is no manifest.
                allowance.take(1, 0)?;
                reach.blobs.insert(digest);
                continue;
            }
            allowance.take(1, size(&digest))?;
            let before = reach.size();
            let parsed = read(&digest).and_then(|bytes| Ok((Manifest::parse(&media_type, &bytes)?, bytes)));
            let (manifest, bytes) = match parsed {
                Ok(parsed) => parsed,
                Err(error) => {
                    tracing::warn!(%digest, %error, "a manifest in the layout cannot be read");
                    continue;
                }
            };
            let children = manifest.entries().iter();
            open.extend(children.map(|child| (child.digest.clone(), child.media_type.clone())));
            reach.add(Descriptor::new(&media_type, digest, bytes.len() as u64), manifest, room);
            // It counts already.
            allowance.take((reach.size() - before).saturating_sub(1), 0)?;
        }
        if reach.size() > MAX_CONTENTS {
            return Err(RegistryError::TooMany { what: "contents of one repository", limit: MAX_CONTENTS });
        }
        Ok(reach)
    }

    /// Takes in a manifest; what it lists is another's matter. A layer that is kept elsewhere is none of its: who pushed that need not
    /// have had its bytes, which may be those of another repository.
    pub(super) fn add(&mut self, descriptor: Descriptor, manifest: Manifest, room: &Room) {
        let layers = manifest.layers.iter().filter(|layer| !layer.is_elsewhere());
        self.blobs.extend(manifest.config.iter().chain(layers).map(|blob| blob.digest.clone()));
        let is_manifest = |child: &&Descriptor| MANIFEST_TYPES.contains(&child.media_type.as_str());
        let (children, blobs): (Vec<_>, Vec<_>) = manifest.entries().iter().partition(is_manifest);
        self.blobs.extend(blobs.into_iter().map(|blob| blob.digest.clone()));
        let children = children.into_iter().map(|child| child.digest.clone()).collect();
        let digest = descriptor.digest.clone();
        let shown = Arc::new(Shown::of(descriptor, manifest, room));
        if let Some(subject) = &shown.subject {
            self.referrers.entry(subject.clone()).or_default().insert(digest.clone());
        }
        self.manifests.insert(digest, Known { shown, children });
    }

    /// The manifests that are about this one, in the order of their digests.
    pub(super) fn about(&self, subject: &Digest) -> impl Iterator<Item = &Shown> {
        let digests = self.referrers.get(subject).into_iter().flatten();
        digests.filter_map(|digest| self.manifests.get(digest)).map(|known| &*known.shown)
    }

    /// Whether a blob can be read. Manifests are blobs too, to those who ask for them as such.
    pub(super) fn has_blob(&self, digest: &Digest) -> bool {
        self.blobs.contains(digest) || self.manifests.contains_key(digest)
    }

    /// Everything, manifests among it.
    pub(super) fn contents(&self) -> impl Iterator<Item = &Digest> {
        self.blobs.iter().chain(self.manifests.keys())
    }

    /// How much memory this takes, in contents.
    pub(super) fn size(&self) -> usize {
        self.blobs.len() + self.manifests.len()
    }

    /// The manifests that these lead to, and those that are about any of them, and so on.
    pub(super) fn kept<'a>(&'a self, roots: impl Iterator<Item = &'a Digest>) -> BTreeSet<&'a Digest> {
        let mut kept = BTreeSet::new();
        let mut open: Vec<&Digest> = roots.collect();
        while let Some(digest) = open.pop() {
            if let Some((digest, known)) = self.manifests.get_key_value(digest)
                && kept.insert(digest)
            {
                open.extend(&known.children);
                open.extend(self.referrers.get(digest).into_iter().flatten());
            }
        }
        kept
    }

    /// The manifests that others list.
    pub(super) fn listed_by_others(&self) -> HashSet<&Digest> {
        self.manifests.values().flat_map(|known| &known.children).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::super::index::Index;
    use super::*;
    use crate::oci::{IMAGE_INDEX, IMAGE_MANIFEST};

    /// What an index leads to that lists these contents, by their types.
    fn reach(entries: &[(&str, &[u8])], contents: &[&[u8]], reads: &Cell<usize>) -> Reach {
        let mut allowance = Allowance::of(std::iter::empty());
        reach_within(&mut allowance, entries, contents, reads).unwrap()
    }

    fn reach_within(
        allowance: &mut Allowance,
        entries: &[(&str, &[u8])],
        contents: &[&[u8]],
        reads: &Cell<usize>,
    ) -> Result<Reach> {
        let entry = |(at, (media_type, content)): (usize, &(&str, &[u8]))| {
            json!({"mediaType": media_type, "digest": Digest::of(content), "size": content.len(),
                   "annotations": {"org.opencontainers.image.ref.name": format!("acme/a:t{at}")}})
        };
        let entries: Vec<_> = entries.iter().enumerate().map(entry).collect();
        let index = json!({"schemaVersion": 2, "manifests": entries}).to_string();
        let index = Index::parse(index.as_bytes()).unwrap();
        let listed = &index.repositories[&"acme/a".parse().unwrap()];
        let find = |digest: &Digest| contents.iter().find(|content| Digest::of(content) == *digest);
        let size = |digest: &Digest| find(digest).map_or(0, |content| content.len() as u64);
        Reach::of(listed, &Room::new(1000), allowance, size, |digest| {
            reads.set(reads.get() + 1);
            find(digest)
                .map(|content| Bytes::copy_from_slice(content))
                .ok_or_else(|| RegistryError::BlobUnknown(digest.clone()))
        })
    }

    #[test]
    fn what_is_read_again_for_every_repository_has_an_end() {
        let bytes = |number: u64| Allowance { contents: 100, bytes: number };
        let index = json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": []}).to_string();
        let (entries, contents) = ([(IMAGE_INDEX, index.as_bytes())], [index.as_bytes()]);
        let broken = [(IMAGE_INDEX, b"{".as_slice())];
        let size = index.len() as u64;
        for (mut allowance, entries, contents, times) in [
            (bytes(2 * size + 1), &entries, &contents[..], 2),
            (Allowance { contents: 3, bytes: 1000 }, &entries, &contents, 3),
            (bytes(3), &broken, &[b"{".as_slice()][..], 3),
        ] {
            let reads = Cell::new(0);
            for _ in 0..times {
                reach_within(&mut allowance, entries, contents, &reads).unwrap();
            }
            for _ in 0..2 {
                let error = reach_within(&mut allowance, entries, contents, &reads).unwrap_err();
                assert!(matches!(error, RegistryError::Refused(_)), "{error}");
            }
            assert_eq!(reads.get(), times, "what is refused is not read");
        }
    }

    #[test]
    fn what_cannot_be_read_is_looked_at_once() {
        let broken = b"{".as_slice();
        let child = json!({"mediaType": IMAGE_MANIFEST, "digest": Digest::of(broken), "size": 1});
        let index = json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": vec![child; 50]});
        let index = index.to_string();
        let entries = [(IMAGE_INDEX, index.as_bytes()), (IMAGE_MANIFEST, broken), (IMAGE_MANIFEST, broken)];
        let reads = Cell::new(0);
        let reach = reach(&entries, &[broken, index.as_bytes()], &reads);
        assert_eq!((reach.manifests.len(), reads.get()), (1, 2));
    }

    #[test]
    fn a_layer_that_is_kept_elsewhere_is_nobody_s() {
        let own = json!({"mediaType": "archive/zip", "digest": Digest::of(b"own"), "size": 3});
        let other = json!({"mediaType": "archive/zip", "digest": Digest::of(b"secret"), "size": 6, "urls": ["https://x.example"]});
        let config =
            json!({"mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest::of(b"{}"), "size": 2});
        let manifest = json!({"schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [own, other]});
        let manifest = manifest.to_string();
        let reach = reach(&[(IMAGE_MANIFEST, manifest.as_bytes())], &[manifest.as_bytes()], &Cell::new(0));
        let readable = |content: &[u8]| reach.has_blob(&Digest::of(content));
        assert_eq!([readable(b"own"), readable(b"{}"), readable(b"secret")], [true, true, false]);
    }
}
