//! Looks at everything in a layout: whether each content has its digest, and whether what manifests refer to is there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::store::{Layout, Place, State};
use crate::oci::{Digest, MANIFEST_TYPES, Manifest, Repository, Tag};
use crate::registry::Result;
use crate::registry::directory::{Damage, DamageKind, Verification};

/// What is wrong with a content, in two forms.
type Wrong = (DamageKind, String);

/// So many steps are made to find whom damage concerns. Of a file with a hundred thousand damaged contents that a hundred thousand tags
/// need, nobody reads who needs which.
const MAX_STEPS: usize = 4_000_000;

/// What leads to what.
#[derive(Default)]
struct Graph<'a> {
    by_name: HashMap<(Digest, Option<&'static str>), usize>,
    nodes: Vec<Node<'a>>,
}

/// A content, taken as what it is named as.
struct Node<'a> {
    digest: Digest,
    /// Of manifests.
    kind: Option<&'static str>,
    wrong: Option<Wrong>,
    /// The manifests that need it.
    parents: Vec<usize>,
    /// Where it is listed, and under which tag.
    roots: Vec<(&'a Repository, Option<&'a Tag>)>,
}

/// What is wrong with a content of a repository, and the tags that need it.
type Needed<'a> = BTreeMap<(&'a Repository, &'a Digest), (Wrong, BTreeSet<Tag>)>;

impl Graph<'_> {
    /// The place of a content that is named as that.
    fn node(&mut self, digest: &Digest, media_type: &str) -> usize {
        let kind = MANIFEST_TYPES.into_iter().find(|kind| *kind == media_type);
        *self.by_name.entry((digest.clone(), kind)).or_insert_with(|| {
            let (parents, roots) = (Vec::new(), Vec::new());
            self.nodes.push(Node { digest: digest.clone(), kind, wrong: None, parents, roots });
            self.nodes.len() - 1
        })
    }

    /// Everything that is damaged.
    fn damage(&self) -> impl Iterator<Item = (&Digest, &Wrong)> {
        self.nodes.iter().filter_map(|node| Some((&node.digest, node.wrong.as_ref()?)))
    }

    /// Whom damage concerns, as far as that is found in time.
    fn needed(&self) -> Needed<'_> {
        let mut needed = Needed::new();
        let mut steps = MAX_STEPS;
        let damaged = self.nodes.iter().enumerate();
        for (at, wrong) in damaged.filter_map(|(at, node)| Some((at, node.wrong.as_ref()?))) {
            let (mut open, mut passed) = (vec![at], HashSet::from([at]));
            while let Some(above) = open.pop() {
                let above = &self.nodes[above];
                let Some(left) = steps.checked_sub(1 + above.parents.len() + above.roots.len()) else {
                    return needed;
                };
                steps = left;
                for (repository, tag) in &above.roots {
                    let place = (*repository, &self.nodes[at].digest);
                    let (_, tags) = needed.entry(place).or_insert_with(|| (wrong.clone(), BTreeSet::new()));
                    tags.extend(tag.cloned());
                }
                open.extend(above.parents.iter().filter(|parent| passed.insert(**parent)));
            }
        }
        needed
    }
}

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
        let graph = self.graph(&state, &wrong);
        let needed = graph.needed();
        let placed: HashSet<&Digest> = needed.keys().map(|(_, digest)| *digest).collect();
        let elsewhere = graph.damage().chain(wrong.iter());
        let elsewhere: BTreeMap<_, _> = elsewhere.filter(|(digest, _)| !placed.contains(digest)).collect();
        let elsewhere = elsewhere
            .into_iter()
            .map(|(digest, (kind, detail))| found(None, digest, BTreeSet::new(), *kind, detail));
        let damage = needed.iter().map(|((repository, digest), ((kind, detail), tags))| {
            found(Some(repository), digest, tags.clone(), *kind, detail)
        });
        Ok(Verification {
            repositories: state.index.repositories.len() as u64,
            files: state.blobs.len() as u64,
            damage: elsewhere.chain(damage).collect(),
        })
    }

    /// Whatever the listed manifests lead to. Each is read once, however many name it.
    fn graph<'a>(&self, state: &'a State, wrong: &BTreeMap<Digest, Wrong>) -> Graph<'a> {
        let mut graph = Graph::default();
        for (repository, listed) in &state.index.repositories {
            let tagged = listed.tagged.iter().map(|(tag, entry)| (Some(tag), entry));
            for (tag, entry) in tagged.chain(listed.untagged.values().map(|entry| (None, entry))) {
                let node = graph.node(&entry.digest, &entry.media_type);
                graph.nodes[node].roots.push((repository, tag));
            }
        }
        let mut at = 0;
        while at < graph.nodes.len() {
            let (digest, kind) = (graph.nodes[at].digest.clone(), graph.nodes[at].kind);
            if let Some(wrong) = wrong.get(&digest) {
                graph.nodes[at].wrong = Some(wrong.clone());
            } else if !state.blobs.contains_key(&digest) {
                let detail = "it is referred to and not there".to_owned();
                graph.nodes[at].wrong = Some((DamageKind::Missing, detail));
            } else if let Some(media_type) = kind {
                match self.needs(state, &digest, media_type) {
                    Ok(manifest) => {
                        for needed in manifest.needed() {
                            let child = graph.node(&needed.digest, &needed.media_type);
                            // One after the other, so that one that is named twice has this one last.
                            if graph.nodes[child].parents.last() != Some(&at) {
                                graph.nodes[child].parents.push(at);
                            }
                        }
                    }
                    Err(wrong) => graph.nodes[at].wrong = Some(wrong),
                }
            }
            at += 1;
        }
        graph
    }

    fn needs(&self, state: &State, digest: &Digest, media_type: &str) -> Result<Manifest, Wrong> {
        let bytes =
            self.read_manifest(state, digest).map_err(|error| (DamageKind::Unreadable, error.to_string()))?;
        Manifest::parse(media_type, &bytes).map_err(|error| (DamageKind::Manifest, error.to_string()))
    }
}

fn found(
    repository: Option<&Repository>,
    digest: &Digest,
    tags: BTreeSet<Tag>,
    kind: DamageKind,
    detail: &str,
) -> Damage {
    let (digest, detail) = (Some(digest.clone()), detail.to_owned());
    Damage {
        repository: repository.cloned(),
        digest,
        tags: tags.into_iter().collect(),
        kind,
        detail,
        moved_to: None,
    }
}
