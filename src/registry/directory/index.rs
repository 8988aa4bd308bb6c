//! `index.json` of an image layout (image specification, "index.json file"): which manifests a repository has, and their tags.
//!
//! Other tools write it too, so whatever is not understood is kept as it is. A tag is an entry's annotation
//! `org.opencontainers.image.ref.name`; a manifest without tags has an entry without it.

use serde_json::{Map, Value, json};

use crate::oci::{Descriptor, Digest, IMAGE_INDEX, Tag};

/// The annotation that holds a tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// The manifests and tags of a repository.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// The whole document, its `manifests` taken out.
    rest: Map<String, Value>,
    entries: Vec<Entry>,
}

/// An element of `manifests`.
#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    /// `None` where it is no digest that ocimod reads; such an entry is kept and not shown.
    digest: Option<Digest>,
    /// `None` where there is none, or one that cannot be a tag (a whole reference, as some tools write).
    tag: Option<Tag>,
}

impl Entry {
    fn new(value: Value) -> Self {
        let digest = value["digest"].as_str().and_then(|digest| digest.parse().ok());
        let tag = value["annotations"][REF_NAME].as_str().and_then(|tag| tag.parse().ok());
        Self { value, digest, tag }
    }

    fn set_tag(&mut self, tag: &Tag) {
        if let Value::Object(fields) = &mut self.value {
            let annotations = fields.entry("annotations").or_insert_with(|| json!({}));
            if !annotations.is_object() {
                *annotations = json!({});
            }
            annotations[REF_NAME] = Value::from(tag.as_str());
            self.tag = Some(tag.clone());
        }
    }

    fn remove_tag(&mut self) {
        if let Value::Object(fields) = &mut self.value
            && let Some(Value::Object(annotations)) = fields.get_mut("annotations")
        {
            annotations.shift_remove(REF_NAME);
            if annotations.is_empty() {
                fields.shift_remove("annotations");
            }
        }
        self.tag = None;
    }
}

impl Default for Index {
    fn default() -> Self {
        let mut rest = Map::new();
        rest.insert("schemaVersion".into(), Value::from(2));
        rest.insert("mediaType".into(), Value::from(IMAGE_INDEX));
        rest.insert("manifests".into(), Value::Null);
        Self { rest, entries: Vec::new() }
    }
}

impl Index {
    /// Reads the file's bytes.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let mut rest: Map<String, Value> = serde_json::from_slice(bytes)?;
        let entries = match rest.insert("manifests".into(), Value::Null) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(entries)) => entries.into_iter().map(Entry::new).collect(),
            Some(_) => return Err(serde::de::Error::custom("`manifests` is not a list")),
        };
        Ok(Self { rest, entries })
    }

    /// The file's bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut document = self.rest.clone();
        let entries = self.entries.iter().map(|entry| entry.value.clone()).collect();
        document.insert("manifests".into(), Value::Array(entries));
        Value::Object(document).to_string().into_bytes()
    }

    /// The tags and what each points at. Where a tag is there twice, the first counts, as with the tools that write it.
    pub(super) fn tags(&self) -> impl Iterator<Item = (&Tag, &Digest)> {
        self.entries.iter().filter_map(|entry| Some((entry.tag.as_ref()?, entry.digest.as_ref()?)))
    }

    /// What a tag points at.
    pub(super) fn tagged(&self, tag: &Tag) -> Option<&Digest> {
        self.tags().find(|entry| entry.0 == tag).map(|entry| entry.1)
    }

    /// The digests of the manifests with the media types that the entries give, which may be empty.
    pub(super) fn manifests(&self) -> impl Iterator<Item = (&Digest, &str)> {
        self.entries.iter().filter_map(|entry| {
            Some((entry.digest.as_ref()?, entry.value["mediaType"].as_str().unwrap_or("")))
        })
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
            self.entries.push(Entry::new(value));
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
            let is_free = |entry: &&mut Entry| entry.value["annotations"][REF_NAME].is_null();
            if let Some(entry) = self.entries.iter_mut().filter(of_manifest).find(is_free) {
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

    /// Removes a manifest and its tags. `false` where it has no entry.
    pub(super) fn remove_manifest(&mut self, digest: &Digest) -> bool {
        let count = self.entries.len();
        self.entries.retain(|entry| entry.digest.as_ref() != Some(digest));
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
            .map(|entry| {
                (entry.tag.as_ref().map(Tag::as_str), &entry.value["digest"].as_str().unwrap()[7..9])
            })
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
        assert!(index.remove_manifest(&two.digest));
        assert_eq!(index.tagged(&tag("a")), None);
    }

    #[test]
    fn what_other_tools_wrote_is_kept() {
        let text = r#"{"extra":1,"manifests":[{"digest":"md5:0","annotations":{"org.opencontainers.image.ref.name":"x"}},{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","size":1,"annotations":{"org.opencontainers.image.ref.name":"host/name:tag","k":"v"},"own":true},7],"schemaVersion":2}"#;
        let mut index = Index::parse(text.as_bytes()).unwrap();
        assert_eq!(index.tags().count(), 0);
        assert_eq!(index.manifests().count(), 1);
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
            assert_eq!(index.manifests().count(), 0);
            index.put(&manifest(b"1"), &[tag("v1")]);
            assert_eq!(index.tags().count(), 1);
        }
    }
}
