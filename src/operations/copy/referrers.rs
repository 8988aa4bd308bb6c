//! What refers to a manifest: signatures, attestations, lists of what is in it.
//!
//! There are three ways to keep these, and all are read: the registry's own list, the index at the tag `sha256-HEX` where a registry has
//! no list (both are one call of the seam), and cosign's tags `sha256-HEX.sig` and the like. What is written is a manifest about its
//! subject, which the destination then lists in the way that it has, and the tags as they are.

use std::collections::{HashSet, VecDeque};

use crate::oci::{Descriptor, Digest, Manifest, Reference, Tag};
use crate::operations::error::{OperationError, Result};
use crate::operations::routes::Place;
use crate::registry::{Condition, PageRequest, RegistryError};

use super::Copier;
use super::content::{Tally, differs, parse};
use super::pair::Pair;

/// A version with more of them is broken off: somebody's registry goes on without end.
const MAX_REFERRERS: usize = 1_000;
/// How cosign's tags end: signatures, attestations, lists of contents.
const SUFFIXES: [&str; 3] = [".sig", ".att", ".sbom"];

/// What refers to a version and is not at the destination.
#[derive(Debug, Default)]
pub(super) struct Referrers {
    /// Manifests without a tag, each with what it is about and after it.
    pub(super) manifests: Vec<(Digest, Digest)>,
    /// Tags that may be missing, or say more than those at the destination.
    tags: Vec<Tag>,
}

impl Copier {
    /// Looks for whatever refers to these manifests, and for what refers to that. The bundle is about the version too, and has a tag.
    pub(super) async fn missing_referrers(
        &self,
        pair: &Pair,
        subjects: Vec<Digest>,
        bundle: Option<&Digest>,
    ) -> Result<Referrers> {
        let mut found = Referrers::default();
        let mut seen: HashSet<Digest> = subjects.iter().chain(bundle).cloned().collect();
        let mut open: VecDeque<Digest> = subjects.into_iter().chain(bundle.cloned()).collect();
        while let Some(subject) = open.pop_front() {
            found.tags.extend(signature_tags(&subject).filter(|tag| pair.tags.contains(tag)));
            let mut ours = listed(&pair.from, &subject).await?;
            if pair.tags.contains(&Tag::of_referrers(&subject)) {
                ours.extend(at_tag(&pair.from, &subject).await?);
            }
            if ours.is_empty() {
                continue;
            }
            let theirs: HashSet<Digest> =
                listed(&pair.to, &subject).await?.into_iter().map(|descriptor| descriptor.digest).collect();
            for digest in ours.into_iter().map(|descriptor| descriptor.digest) {
                if !seen.insert(digest.clone()) {
                    continue;
                }
                if seen.len() > MAX_REFERRERS {
                    let error = RegistryError::TooMany { what: "referrers", limit: MAX_REFERRERS };
                    return Err(OperationError::registry(pair.from.name())(error));
                }
                if !theirs.contains(&digest) {
                    found.manifests.push((digest.clone(), subject.clone()));
                }
                open.push_back(digest);
            }
        }
        Ok(found)
    }

    /// Copies them. One after another: where the list is an index at a tag, each adds to it.
    pub(super) async fn copy_referrers(
        &self,
        pair: &Pair,
        referrers: Referrers,
        count: &mut usize,
        tags: &mut Vec<Tag>,
        tally: &Tally,
    ) -> Result<()> {
        for (digest, subject) in referrers.manifests {
            let reference = Reference::Digest(digest);
            let stored = match self.read(pair, &reference).await {
                // A list may outlive what it lists.
                Err(OperationError::Registry { source, .. }) if source.is_not_found() => continue,
                stored => stored?,
            };
            let manifest = parse(pair, &reference, &stored)?;
            if manifest.subject.as_ref().is_none_or(|about| about.digest != subject) {
                // At the destination, too, it would be found by what it says itself.
                self.progress.warn(&format!(
                    "{} is left out: it is listed as being about {subject}, and does not say so",
                    pair.from.reference(&reference)
                ));
                continue;
            }
            self.bring_needs(pair, &manifest, tally).await?;
            self.put(pair, &stored, &[], Condition::None, tally).await?;
            *count += 1;
        }
        for tag in referrers.tags {
            if self.copy_signature_tag(pair, &tag, tally).await? {
                tags.push(tag);
            }
        }
        Ok(())
    }

    /// Copies a tag that grows with each signature; `false` where everything is there. Signatures that are only there are not lost.
    async fn copy_signature_tag(&self, pair: &Pair, tag: &Tag, tally: &Tally) -> Result<bool> {
        let reference = Reference::Tag(tag.clone());
        let stored = self.read(pair, &reference).await?;
        let ours = parse(pair, &reference, &stored)?;
        let there = if pair.there.contains(tag) { self.head_there(pair, tag).await? } else { None };
        let condition = match there {
            None => Condition::AbsentOrSame,
            Some(there) if there.digest == stored.digest => return Ok(false),
            Some(there) => {
                let by_digest = Reference::Digest(there.digest.clone());
                let theirs = pair.to.registry().manifest(&pair.to.repository, &by_digest).await;
                let theirs = theirs.map_err(OperationError::registry(pair.to.reference(&by_digest)))?;
                let theirs = parse(pair, &by_digest, &theirs)?;
                if has_all(&theirs, &ours) {
                    return Ok(false);
                }
                if !has_all(&ours, &theirs) {
                    return Err(differs(pair, tag, stored.digest, tag, there.digest));
                }
                Condition::None
            }
        };
        self.bring_needs(pair, &ours, tally).await?;
        self.put(pair, &stored, std::slice::from_ref(tag), condition, tally).await?;
        Ok(true)
    }
}

/// Whether a manifest has every layer of another one: each signature is one.
fn has_all(manifest: &Manifest, other: &Manifest) -> bool {
    other.layers.iter().all(|layer| manifest.layers.contains(layer))
}

/// The tags that cosign keeps about a manifest.
fn signature_tags(subject: &Digest) -> impl Iterator<Item = Tag> {
    let base = format!("{}-{}", subject.algorithm().name(), subject.hex());
    // A digest of the longer kind leaves no room for it.
    SUFFIXES.into_iter().filter_map(move |suffix| format!("{base}{suffix}").parse().ok())
}

/// What a registry lists about a manifest.
async fn listed(place: &Place, subject: &Digest) -> Result<Vec<Descriptor>> {
    let mut found = Vec::new();
    let mut request = PageRequest::default();
    loop {
        let page = match place.registry().referrers(&place.repository, subject, None, &request).await {
            Err(RegistryError::Unsupported { .. }) => return Ok(found),
            Err(error) if error.is_not_found() => return Ok(found),
            page => page.map_err(OperationError::registry(place.name()))?,
        };
        let is_empty = page.items.is_empty();
        found.extend(page.items);
        if found.len() > MAX_REFERRERS {
            let error = RegistryError::TooMany { what: "referrers", limit: MAX_REFERRERS };
            return Err(OperationError::registry(place.name())(error));
        }
        match page.next {
            // A page without anything says nothing of the next one, and a list may go in circles.
            Some(next) if !is_empty && request.after.as_ref() != Some(&next) => request.after = Some(next),
            _ => return Ok(found),
        }
    }
}

/// What stands in the index at the tag for it.
async fn at_tag(place: &Place, subject: &Digest) -> Result<Vec<Descriptor>> {
    let reference = Reference::Tag(Tag::of_referrers(subject));
    let stored = match place.registry().manifest(&place.repository, &reference).await {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        stored => stored.map_err(OperationError::registry(place.reference(&reference)))?,
    };
    // Somebody may have put something else there.
    let index = Manifest::parse(&stored.media_type, &stored.bytes).ok();
    Ok(index.and_then(|index| index.manifests).unwrap_or_default())
}
