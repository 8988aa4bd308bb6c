//! Lists of referrers as every store of ours gives them: pages with an end, and every annotation of the manifests on them.
//!
//! Who may push, or who has written a file, decides how many referrers there are and what stands in them. So a page is bounded by
//! number and by bytes, and annotations are kept in memory as far as there is room; the others are read again for each list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::{Page, PageRequest, Result};
use crate::oci::{Descriptor, Digest, Manifest};

/// How many referrers a page has at most.
const MAX_REFERRERS: usize = 100;
/// How many bytes a page of referrers has, unless one of them alone is longer: clients read some megabytes of a list.
const MAX_REFERRERS_SIZE: usize = 2 * 1024 * 1024;
/// Annotations up to this are kept in memory for lists of referrers; longer ones are read from the manifest for each list.
const MAX_ANNOTATIONS: usize = 32 * 1024;

/// Room for so many bytes of annotations, which is taken and given back.
#[derive(Clone, Debug)]
pub(super) struct Room(Arc<AtomicUsize>);

impl Room {
    pub(super) fn new(size: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(size)))
    }

    /// Takes so many bytes until the answer is dropped; `None` where there is no room for them.
    pub(super) fn take(&self, size: usize) -> Option<Taken> {
        let less = |left: usize| left.checked_sub(size);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        Some(Taken { size, room: self.clone() })
    }
}

/// Bytes that were taken of a [`Room`].
#[derive(Debug)]
pub(super) struct Taken {
    size: usize,
    room: Room,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.size, Ordering::Relaxed);
    }
}

/// A manifest as lists of referrers show it, whether it is on one or not.
#[derive(Debug)]
pub(super) struct Shown {
    /// With its annotations where room is taken for them.
    pub(super) descriptor: Descriptor,
    annotations: Annotations,
    /// What it is about.
    pub(super) subject: Option<Digest>,
}

/// Where a manifest's annotations are.
#[derive(Debug)]
enum Annotations {
    /// Nobody asks for them, or there are none.
    Unused,
    /// In its descriptor.
    Kept { _room: Taken },
    /// In the manifest alone: they are long, or there is no room.
    InManifest,
}

impl Shown {
    /// A manifest with that descriptor.
    pub(super) fn of(mut descriptor: Descriptor, manifest: Manifest, room: &Room) -> Self {
        descriptor.artifact_type = manifest.referrer_type().map(ToOwned::to_owned);
        let subject = manifest.subject.map(|subject| subject.digest);
        let size: usize = manifest.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        let annotations = if subject.is_none() || size == 0 {
            Annotations::Unused
        } else if let Some(room) = (size <= MAX_ANNOTATIONS).then(|| room.take(size)).flatten() {
            descriptor.annotations = manifest.annotations;
            Annotations::Kept { _room: room }
        } else {
            Annotations::InManifest
        };
        Self { descriptor, annotations, subject }
    }

    /// The descriptor with all annotations of its manifest. What cannot be read any longer is listed as it is known.
    fn whole(&self, read: impl Fn(&Digest) -> Result<Bytes>) -> Descriptor {
        let mut descriptor = self.descriptor.clone();
        if matches!(self.annotations, Annotations::InManifest) {
            let manifest = read(&descriptor.digest).ok();
            let manifest = manifest.and_then(|bytes| Manifest::parse(&descriptor.media_type, &bytes).ok());
            descriptor.annotations = manifest.map(|manifest| manifest.annotations).unwrap_or_default();
        }
        descriptor
    }
}

/// A page of what is about one manifest, given in the order of their digests. `read` gives the bytes of a manifest.
pub(super) fn page<'a>(
    about: impl Iterator<Item = &'a Shown>,
    artifact_type: Option<&str>,
    request: &PageRequest,
    read: impl Fn(&Digest) -> Result<Bytes>,
) -> Page<Descriptor> {
    let after = request.after.as_deref().unwrap_or("");
    let found = about
        .filter(|shown| artifact_type.is_none() || shown.descriptor.artifact_type.as_deref() == artifact_type)
        .filter(|shown| shown.descriptor.digest.as_str() > after);
    let count = request.count.unwrap_or(MAX_REFERRERS).min(MAX_REFERRERS);
    let (mut items, mut size) = (Vec::<Descriptor>::new(), 0);
    for shown in found.take(if count == 0 { 0 } else { count + 1 }) {
        let descriptor = shown.whole(&read);
        // As it is sent: what has to be escaped is up to six times as long.
        size += serde_json::to_vec(&descriptor).map_or(0, |text| text.len());
        if items.len() == count || (size > MAX_REFERRERS_SIZE && !items.is_empty()) {
            let next = items.last().map(|last| last.digest.to_string());
            return Page { items, next };
        }
        items.push(descriptor);
    }
    Page { items, next: None }
}
