//! What belongs to a repository of a layout: whatever its listed manifests lead to.
//!
//! All repositories share one folder of blobs there, so that a blob is in the file says nothing. What a manifest of the repository
//! names is readable in it, and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bytes::Bytes;

use crate::oci::{Descriptor, Digest, MANIFEST_TYPES, Manifest};
use crate::registry::{RegistryError, Result};

use super::index::Listed;

/// Annotations over this are in the manifest alone and not in lists of referrers: they are kept in memory for these.
const MAX_ANNOTATIONS: usize = 32 * 1024;
/// The same for those of a whole repository.
const MAX_ALL_ANNOTATIONS: usize = 64 * 1024 * 1024;
/// A repository with more contents is broken off: some 150 MB of memory.
pub(super) const MAX_CONTENTS: usize = 1_000_000;

/// A manifest of a repository.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// As a list of referrers gives it.
    pub(super) descriptor: Descriptor,
    /// The manifests that it lists.
    children: Vec<Digest>,
    pub(super) subject: Option<Digest>,
}

/// What can be read in a repository.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    pub(super) manifests: BTreeMap<Digest, Known>,
    blobs: HashSet<Digest>,
    /// How many bytes of annotations are kept.
    annotations: usize,
}

impl Reach {
    /// Follows everything that is listed. What cannot be read hides what it leads to, and nothing else.
    pub(super) fn of(listed: &Listed, read: impl Fn(&Digest) -> Result<Bytes>) -> Result<Self> {
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
                reach.blobs.insert(digest);
                continue;
            }
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
            reach.add(Descriptor::new(&media_type, digest, bytes.len() as u64), manifest);
        }
        if reach.size() > MAX_CONTENTS {
            return Err(RegistryError::TooMany { what: "contents of one repository", limit: MAX_CONTENTS });
        }
        Ok(reach)
    }

    /// Takes in a manifest; what it lists is another's matter. A layer that is kept elsewhere is none of its: who pushed that need not
    /// have had its bytes, which may be those of another repository.
    pub(super) fn add(&mut self, mut descriptor: Descriptor, manifest: Manifest) {
        let layers = manifest.layers.iter().filter(|layer| !layer.is_elsewhere());
        self.blobs.extend(manifest.config.iter().chain(layers).map(|blob| blob.digest.clone()));
        let is_manifest = |child: &&Descriptor| MANIFEST_TYPES.contains(&child.media_type.as_str());
        let (children, blobs): (Vec<_>, Vec<_>) = manifest.entries().iter().partition(is_manifest);
        self.blobs.extend(blobs.into_iter().map(|blob| blob.digest.clone()));
        let children = children.into_iter().map(|child| child.digest.clone()).collect();
        descriptor.artifact_type = manifest.referrer_type().map(str::to_owned);
        let subject = manifest.subject.map(|subject| subject.digest);
        let size: usize = manifest.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if subject.is_some() && size <= MAX_ANNOTATIONS && self.annotations + size <= MAX_ALL_ANNOTATIONS {
            self.annotations += size;
            descriptor.annotations = manifest.annotations;
        }
        self.manifests.insert(descriptor.digest.clone(), Known { descriptor, children, subject });
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
        let mut about: BTreeMap<&Digest, Vec<&Digest>> = BTreeMap::new();
        for (digest, known) in &self.manifests {
            if let Some(subject) = &known.subject {
                about.entry(subject).or_default().push(digest);
            }
        }
        let mut kept = BTreeSet::new();
        let mut open: Vec<&Digest> = roots.collect();
        while let Some(digest) = open.pop() {
            if let Some((digest, known)) = self.manifests.get_key_value(digest)
                && kept.insert(digest)
            {
                open.extend(&known.children);
                open.extend(about.get(digest).into_iter().flatten());
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
        let entry = |(at, (media_type, content)): (usize, &(&str, &[u8]))| {
            json!({"mediaType": media_type, "digest": Digest::of(content), "size": content.len(),
                   "annotations": {"org.opencontainers.image.ref.name": format!("acme/a:t{at}")}})
        };
        let entries: Vec<_> = entries.iter().enumerate().map(entry).collect();
        let index = json!({"schemaVersion": 2, "manifests": entries}).to_string();
        let index = Index::parse(index.as_bytes()).unwrap();
        Reach::of(&index.repositories[&"acme/a".parse().unwrap()], |digest| {
            reads.set(reads.get() + 1);
            let content = contents.iter().find(|content| Digest::of(content) == *digest);
            content
                .map(|content| Bytes::copy_from_slice(content))
                .ok_or_else(|| RegistryError::BlobUnknown(digest.clone()))
        })
        .unwrap()
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
