//! Looks at everything in a layout: whether each content has its digest, and whether what manifests refer to is there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::store::{Layout, Place, State};
use crate::oci::{Digest, MANIFEST_TYPES, Manifest, Repository, Tag};
use crate::registry::Result;
use crate::registry::directory::{Damage, DamageKind, Verification};

/// What is wrong with a content, in two forms.
type Wrong = (DamageKind, String);

impl Layout {
    /// Looks at everything, and changes nothing.
    pub(super) fn verify(&self) -> Result<Verification> {
        let state = self.state()?;
        let mut contents: Vec<(&Digest, Place)> =
            state.blobs.iter().map(|(digest, place)| (digest, *place)).collect();
        // In the order of the file, so that a disk reads it in one go.
        contents.sort_by_key(|(_, place)| match place {
            Place::Tar { offset, .. } | Place::Staged { size: offset } => *offset,
        });
        let mut wrong: BTreeMap<Digest, Wrong> = BTreeMap::new();
        for (digest, place) in contents {
            let content = self.content(&state, digest, place)?;
            let mut hasher = crate::oci::Hasher::new(digest.algorithm());
            let read = content.bytes.each(|piece| {
                hasher.update(piece);
                Ok(())
            });
            let actual = hasher.finish();
            match read {
                Err(error) => drop(wrong.insert(digest.clone(), (DamageKind::Unreadable, error.to_string()))),
                Ok(()) if actual != *digest => {
                    let detail = format!("the bytes have the digest {actual}");
                    wrong.insert(digest.clone(), (DamageKind::Content, detail));
                }
                Ok(()) => {}
            }
        }
        let mut damage = Vec::new();
        let mut placed = HashSet::new();
        // What is wrong with whatever a listed manifest leads to: several tags may name one.
        let mut followed: HashMap<Digest, Vec<(Digest, Wrong)>> = HashMap::new();
        for (repository, listed) in &state.index.repositories {
            let mut needed: BTreeMap<Digest, (Wrong, BTreeSet<Tag>)> = BTreeMap::new();
            let tagged = listed.tagged.iter().map(|(tag, entry)| (Some(tag), entry));
            for (tag, entry) in tagged.chain(listed.untagged.values().map(|entry| (None, entry))) {
                let damaged = followed.entry(entry.digest.clone());
                let damaged =
                    damaged.or_insert_with(|| self.follow(&state, &wrong, &entry.digest, &entry.media_type));
                for (digest, wrong) in damaged {
                    let needed =
                        needed.entry(digest.clone()).or_insert_with(|| (wrong.clone(), BTreeSet::new()));
                    needed.1.extend(tag.cloned());
                }
            }
            for (digest, ((kind, detail), tags)) in needed {
                placed.insert(digest.clone());
                damage.push(found(Some(repository), digest, tags, kind, detail));
            }
        }
        let elsewhere = wrong.into_iter().filter(|(digest, _)| !placed.contains(digest));
        let elsewhere =
            elsewhere.map(|(digest, (kind, detail))| found(None, digest, BTreeSet::new(), kind, detail));
        Ok(Verification {
            repositories: state.index.repositories.len() as u64,
            files: state.blobs.len() as u64,
            damage: elsewhere.chain(damage).collect(),
        })
    }

    /// What is wrong with whatever a manifest leads to, itself included.
    fn follow(
        &self,
        state: &State,
        wrong: &BTreeMap<Digest, Wrong>,
        root: &Digest,
        media_type: &str,
    ) -> Vec<(Digest, Wrong)> {
        let (mut damaged, mut open) = (Vec::new(), vec![(root.clone(), media_type.to_owned())]);
        let mut passed = HashSet::new();
        while let Some((digest, media_type)) = open.pop() {
            if !passed.insert(digest.clone()) {
                continue;
            }
            if let Some(wrong) = wrong.get(&digest) {
                damaged.push((digest, wrong.clone()));
            } else if !state.blobs.contains_key(&digest) {
                let detail = "it is referred to and not there".to_owned();
                damaged.push((digest, (DamageKind::Missing, detail)));
            } else if MANIFEST_TYPES.contains(&media_type.as_str()) {
                match self.needs(state, &digest, &media_type) {
                    Ok(manifest) => {
                        let needed = manifest.needed();
                        open.extend(needed.map(|needed| (needed.digest.clone(), needed.media_type.clone())));
                    }
                    Err(wrong) => damaged.push((digest, wrong)),
                }
            }
        }
        damaged
    }

    fn needs(&self, state: &State, digest: &Digest, media_type: &str) -> Result<Manifest, Wrong> {
        let bytes =
            self.read_manifest(state, digest).map_err(|error| (DamageKind::Unreadable, error.to_string()))?;
        Manifest::parse(media_type, &bytes).map_err(|error| (DamageKind::Manifest, error.to_string()))
    }
}

fn found(
    repository: Option<&Repository>,
    digest: Digest,
    tags: BTreeSet<Tag>,
    kind: DamageKind,
    detail: String,
) -> Damage {
    let tags = tags.into_iter().collect();
    Damage { repository: repository.cloned(), digest: Some(digest), tags, kind, detail, moved_to: None }
}
