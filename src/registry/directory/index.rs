//! `index.json` of an image layout (image specification, "index.json file"): which manifests a repository has, and their tags.
//!
//! Other tools write it too, so whatever is not understood is kept as it is. A tag is an entry's annotation
//! `org.opencontainers.image.ref.name`; a manifest without tags has an entry without it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::oci::{Descriptor, Digest, IMAGE_INDEX, MANIFEST_TYPES, Tag};

/// The annotation that holds a tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// The manifests and tags of a repository.
///
/// Entries stay text until one is changed: a repository may have tens of thousands, and a push changes one.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// The members of the document in their order; `None` where `manifests` stands.
    members: Vec<(String, Option<Box<RawValue>>)>,
    entries: Vec<Entry>,
}

/// An element of `manifests`.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    text: Box<RawValue>,
    /// `None` where it is no digest that ocimod reads; such an entry is kept and not shown.
    pub(super) digest: Option<Digest>,
    /// Empty where the entry gives none.
    pub(super) media_type: Cow<'static, str>,
    /// `None` where there is none, or one that cannot be a tag (a whole reference, as some tools write).
    pub(super) tag: Option<Tag>,
    /// Whether it has a name, be it a tag or not.
    pub(super) is_named: bool,
}

/// What is read of an entry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow, default)]
    digest: Cow<'a, str>,
    #[serde(borrow, default)]
    media_type: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<Names<'a>>,
}

#[derive(Deserialize)]
struct Names<'a> {
    #[serde(borrow, default, rename = "org.opencontainers.image.ref.name")]
    name: Option<Cow<'a, str>>,
}

impl Entry {
    fn new(text: Box<RawValue>) -> Self {
        let (digest, media_type, name, is_named) = match serde_json::from_str::<Fields>(text.get()) {
            Ok(Fields { digest, media_type, annotations }) => {
                let name = annotations.and_then(|names| names.name);
                let is_named = name.is_some();
                (digest.parse().ok(), kept(&media_type), name.and_then(|name| name.parse().ok()), is_named)
            }
            // No object, or one with members of other types than they should have.
            Err(_) => Self::read_loosely(&serde_json::from_str(text.get()).unwrap_or_default()),
        };
        Self { text, digest, media_type, tag: name, is_named }
    }

    fn read_loosely(value: &Value) -> (Option<Digest>, Cow<'static, str>, Option<Tag>, bool) {
        let name = &value["annotations"][REF_NAME];
        (
            value["digest"].as_str().and_then(|digest| digest.parse().ok()),
            kept(value["mediaType"].as_str().unwrap_or_default()),
            name.as_str().and_then(|tag| tag.parse().ok()),
            !name.is_null(),
        )
    }

    fn set_tag(&mut self, tag: &Tag) {
        self.change(|fields| {
            let annotations = fields.entry("annotations").or_insert_with(|| json!({}));
            if !annotations.is_object() {
                *annotations = json!({});
            }
            annotations[REF_NAME] = Value::from(tag.as_str());
        });
    }

    fn remove_tag(&mut self) {
        self.change(|fields| {
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                annotations.shift_remove(REF_NAME);
                if annotations.is_empty() {
                    fields.shift_remove("annotations");
                }
            }
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
        if let Ok(Value::Object(mut fields)) = serde_json::from_str(self.text.get()) {
            change(&mut fields);
            if let Ok(text) = to_raw_value(&fields) {
                *self = Self::new(text);
            }
        }
    }
}

/// A media type to be kept: nearly always one of few, which take no memory.
fn kept(media_type: &str) -> Cow<'static, str> {
    let known = MANIFEST_TYPES.iter().find(|known| **known == media_type);
    known.map_or_else(|| Cow::Owned(media_type.to_owned()), |&known| Cow::Borrowed(known))
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Index;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an image index")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
                let mut members = Vec::new();
                let mut entries = None;
                while let Some(name) = map.next_key::<String>()? {
                    if name == "manifests" {
                        let list: Option<Vec<Entry>> = map.next_value()?;
                        if entries.replace(list.unwrap_or_default()).is_none() {
                            members.push((name, None));
                        }
                    } else {
                        members.push((name, Some(map.next_value()?)));
                    }
                }
                if entries.is_none() {
                    members.push(("manifests".into(), None));
                }
                Ok(Index { members, entries: entries.unwrap_or_default() })
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::new)
    }
}

impl Default for Index {
    fn default() -> Self {
        let text = |value: Value| to_raw_value(&value).ok();
        Self {
            members: vec![
                ("schemaVersion".into(), text(2.into())),
                ("mediaType".into(), text(IMAGE_INDEX.into())),
                ("manifests".into(), None),
            ],
            entries: Vec::new(),
        }
    }
}

impl Index {
    /// Reads the file's bytes.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The file's bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let length: usize = self.entries.iter().map(|entry| entry.text.get().len() + 1).sum();
        let mut bytes = Vec::with_capacity(length + 256);
        let mut before = b'{';
        for (name, text) in &self.members {
            bytes.push(before);
            bytes.extend_from_slice(Value::from(name.as_str()).to_string().as_bytes());
            bytes.push(b':');
            before = b',';
            if let Some(text) = text {
                bytes.extend_from_slice(text.get().as_bytes());
                continue;
            }
            bytes.push(b'[');
            for (position, entry) in self.entries.iter().enumerate() {
                if position > 0 {
                    bytes.push(b',');
                }
                bytes.extend_from_slice(entry.text.get().as_bytes());
            }
            bytes.push(b']');
        }
        bytes.push(b'}');
        bytes
    }

    /// Every entry, in the order of the file.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What a tag points at. Where a tag is there twice, the first counts, as with the tools that write it.
    pub(super) fn tagged(&self, tag: &Tag) -> Option<&Digest> {
        let tagged = |entry: &&Entry| entry.tag.as_ref() == Some(tag) && entry.digest.is_some();
        self.entries.iter().find(tagged)?.digest.as_ref()
    }

    /// Whether a manifest has an entry.
    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.entries.iter().any(|entry| entry.digest.as_ref() == Some(digest))
    }

    /// Adds a manifest and points tags at it. `false` where all of that is so already.
    pub(super) fn put(&mut self, manifest: &Descriptor, tags: &[Tag]) -> bool {
        let digest = &manifest.digest;
        let mut is_changed = false;
        if !self.has(digest) {
            let mut value = json!({
                "mediaType": manifest.media_type, "digest": digest.as_str(), "size": manifest.size,
            });
            if let Some(artifact_type) = &manifest.artifact_type {
                value["artifactType"] = Value::from(artifact_type.as_str());
            }
            self.entries.extend(to_raw_value(&value).map(Entry::new));
            is_changed = true;
        }
        for tag in tags {
            if self.tagged(tag) == Some(digest) {
                continue;
            }
            is_changed = true;
            self.remove_tag(tag);
            let of_manifest = |entry: &&mut Entry| entry.digest.as_ref() == Some(digest);
            // An entry whose name is no tag is somebody else's: it keeps its name.
            let free = self.entries.iter_mut().filter(of_manifest).find(|entry| !entry.is_named);
            if let Some(entry) = free {
                entry.set_tag(tag);
            } else if let Some(mut entry) =
                self.entries.iter_mut().find(of_manifest).map(|entry| entry.clone())
            {
                entry.set_tag(tag);
                self.entries.push(entry);
            }
        }
        is_changed
    }

    /// Removes a tag; its manifest stays listed. `false` where there is no such tag.
    pub(super) fn remove_tag(&mut self, tag: &Tag) -> bool {
        let is_there = |entry: &Entry| entry.tag.as_ref() == Some(tag);
        let mut is_found = false;
        while let Some(position) = self.entries.iter().position(is_there) {
            is_found = true;
            let digest = self.entries[position].digest.clone();
            if digest.is_some() && self.entries.iter().filter(|entry| entry.digest == digest).count() > 1 {
                self.entries.remove(position);
            } else {
                self.entries[position].remove_tag();
            }
        }
        is_found
    }

    /// Removes manifests and their tags. `false` where none of them has an entry.
    pub(super) fn remove_manifests(&mut self, is_removed: impl Fn(&Digest) -> bool) -> bool {
        let count = self.entries.len();
        self.entries.retain(|entry| !entry.digest.as_ref().is_some_and(&is_removed));
        self.entries.len() < count
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::oci::IMAGE_MANIFEST;

    fn tag(text: &str) -> Tag {
        text.parse().unwrap()
    }

    fn manifest(bytes: &[u8]) -> Descriptor {
        Descriptor::of(IMAGE_MANIFEST, bytes)
    }

    fn shape(index: &Index) -> Vec<(Option<&str>, &str)> {
        index
            .entries
            .iter()
            .map(|entry| (entry.tag.as_ref().map(Tag::as_str), &entry.digest.as_ref().unwrap().hex()[..2]))
            .collect()
    }

    #[test]
    fn tags_move_and_manifests_stay() {
        let (one, two) = (manifest(b"1"), manifest(b"2"));
        let (first, second) = (&one.digest.hex()[..2], &two.digest.hex()[..2]);
        let mut index = Index::default();
        assert!(index.put(&one, &[]));
        assert_eq!(shape(&index), [(None, first)]);
        assert!(index.put(&one, &[tag("a"), tag("b")]));
        assert!(!index.put(&one, &[tag("a"), tag("b")]), "nothing to do the second time");
        assert_eq!(shape(&index), [(Some("a"), first), (Some("b"), first)]);
        assert!(index.put(&two, &[tag("a")]));
        assert_eq!(shape(&index), [(Some("b"), first), (Some("a"), second)]);
        assert!(index.remove_tag(&tag("b")));
        assert!(!index.remove_tag(&tag("b")));
        assert_eq!(shape(&index), [(None, first), (Some("a"), second)]);
        assert!(index.remove_manifests(|digest| *digest == two.digest));
        assert_eq!(index.tagged(&tag("a")), None);
    }

    #[test]
    fn what_other_tools_wrote_is_kept() {
        let text = r#"{"extra":1,"manifests":[{"digest":"md5:0","annotations":{"org.opencontainers.image.ref.name":"x"}},{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","size":1,"annotations":{"org.opencontainers.image.ref.name":"host/name:tag","k":"v"},"own":true},7],"schemaVersion":2}"#;
        let mut index = Index::parse(text.as_bytes()).unwrap();
        assert_eq!(
            index.entries().iter().filter(|entry| entry.tag.is_some() && entry.digest.is_some()).count(),
            0
        );
        assert_eq!(index.entries().iter().filter(|entry| entry.digest.is_some()).count(), 1);
        assert_eq!(String::from_utf8(index.to_bytes()).unwrap(), text);
        assert!(index.put(&manifest(b"1"), &[tag("v1")]));
        let text = String::from_utf8(index.to_bytes()).unwrap();
        assert!(
            text.contains("host/name:tag") && text.contains(r#""md5:0""#) && text.contains(",7,"),
            "{text}"
        );
        assert_eq!(text.matches(r#""own":true"#).count(), 2, "{text}");
        assert!(index.remove_tag(&tag("v1")));
        assert!(!String::from_utf8(index.to_bytes()).unwrap().contains("v1\"}"));
    }

    #[test]
    fn what_is_no_index_is_an_error() {
        for text in ["", "[]", "{", "{\"manifests\":{}}", "null", &"[".repeat(100_000)] {
            assert!(Index::parse(text.as_bytes()).is_err(), "{}", &text[..text.len().min(20)]);
        }
        for text in
            ["{}", "{\"manifests\":null}", "{\"manifests\":[null,[],{\"digest\":1,\"annotations\":[]}]}"]
        {
            let mut index = Index::parse(text.as_bytes()).unwrap();
            assert!(index.entries().iter().all(|entry| entry.digest.is_none()));
            index.put(&manifest(b"1"), &[tag("v1")]);
            assert_eq!(index.entries().iter().filter(|entry| entry.tag.is_some()).count(), 1);
        }
    }
}
