//! `index.json` of a layout that has many repositories (image specification, "index.json file").
//!
//! `org.opencontainers.image.ref.name` is `repository:tag`, as skopeo asks for it. A manifest without a tag says in an annotation of
//! ours which repository it belongs to; so do entries of other tools without such a name belong to none, and are kept as they are.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::oci::{Descriptor, Digest, IMAGE_INDEX, Repository, Tag};

/// The annotation that holds `repository:tag`.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation of a manifest without a tag: the repository that it is in.
const REPOSITORY: &str = "works.ocimod.repository";

/// The members of `index.json` that are written anew; others would be lost.
const MEMBERS: [&str; 3] = ["schemaVersion", "mediaType", MANIFESTS];
/// The member that lists them.
const MANIFESTS: &str = "manifests";
/// A list with more of them is broken off: more than the tar could have contents.
const MAX_MANIFESTS: usize = 1_000_000;

/// An element of `manifests` that belongs to a repository.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) digest: Digest,
    pub(super) media_type: String,
    /// Whether the file has it already, and it was not made for a manifest that was put since.
    pub(super) was_there: bool,
    /// As it stands there, so that what is not understood is kept.
    text: Box<RawValue>,
}

/// The manifests that a repository lists.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    pub(super) tagged: BTreeMap<Tag, Entry>,
    pub(super) untagged: BTreeMap<Digest, Entry>,
    /// How many tags name a manifest: who puts a thousand of them looks through none.
    uses: HashMap<Digest, usize>,
}

/// The whole file.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub(super) repositories: BTreeMap<Repository, Listed>,
    /// Entries that belong to no repository.
    others: Vec<Box<RawValue>>,
    /// A member that a rewritten file would not have.
    pub(super) odd_member: Option<String>,
}

impl Entry {
    /// An entry for a manifest.
    pub(super) fn new(manifest: &Descriptor) -> Self {
        let mut value = json!({
            "mediaType": manifest.media_type, "digest": manifest.digest, "size": manifest.size,
        });
        if let Some(artifact_type) = &manifest.artifact_type {
            value["artifactType"] = Value::from(artifact_type.as_str());
        }
        // Strings and numbers alone: there is nothing in it that JSON could not hold.
        let text = to_raw_value(&value).unwrap_or_default();
        let (digest, media_type) = (manifest.digest.clone(), manifest.media_type.clone());
        Self { digest, media_type, was_there: false, text }
    }

    /// The same with the annotation that says where it belongs, and not with the other one.
    fn placed(&self, repository: &Repository, tag: Option<&Tag>) -> Box<RawValue> {
        let Ok(Value::Object(mut fields)) = serde_json::from_str(self.text.get()) else {
            return self.text.clone();
        };
        let annotations = fields.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.shift_remove(REF_NAME);
            annotations.shift_remove(REPOSITORY);
            match tag {
                Some(tag) => annotations.insert(REF_NAME.to_owned(), format!("{repository}:{tag}").into()),
                None => annotations.insert(REPOSITORY.to_owned(), repository.as_str().into()),
            };
        }
        to_raw_value(&fields).unwrap_or_else(|_| self.text.clone())
    }
}

impl Listed {
    /// Every entry.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.tagged.values().chain(self.untagged.values())
    }

    /// Whether it has a manifest, with a tag or without.
    fn has(&self, digest: &Digest) -> bool {
        self.untagged.contains_key(digest) || self.uses.contains_key(digest)
    }

    /// Points a tag at a manifest; answers the one that it named before.
    fn point(&mut self, tag: Tag, entry: Entry) -> Option<Entry> {
        *self.uses.entry(entry.digest.clone()).or_default() += 1;
        let earlier = self.tagged.insert(tag, entry)?;
        if let Some(uses) = self.uses.get_mut(&earlier.digest) {
            *uses -= 1;
            if *uses == 0 {
                self.uses.remove(&earlier.digest);
            }
        }
        Some(earlier)
    }

    /// Adds a manifest and points tags at it. A manifest that has lost its tag stays.
    pub(super) fn put(&mut self, manifest: &Descriptor, tags: &[Tag]) {
        let entry = self.untagged.remove(&manifest.digest).unwrap_or_else(|| Entry::new(manifest));
        for tag in tags {
            if let Some(earlier) = self.point(tag.clone(), entry.clone())
                && !self.has(&earlier.digest)
            {
                self.untagged.insert(earlier.digest.clone(), earlier);
            }
        }
        if tags.is_empty() && !self.has(&manifest.digest) {
            self.untagged.insert(manifest.digest.clone(), entry);
        }
    }
}

impl Index {
    /// Reads the file's bytes.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let index = reader.deserialize_map(Members)?;
        reader.end()?;
        Ok(index)
    }

    /// Takes in an element of `manifests`. Refused where it gives a name of another manifest once more.
    fn add(&mut self, text: &RawValue) -> Result<(), String> {
        let read = serde_json::from_str::<Descriptor>(text.get()).ok();
        let placed = read.and_then(|descriptor| Some((place(&descriptor)?, descriptor)));
        let Some(((repository, tag), Descriptor { digest, media_type, .. })) = placed else {
            self.others.push(text.to_owned());
            return Ok(());
        };
        let listed = self.repositories.entry(repository.clone()).or_default();
        let entry = Entry { digest, media_type, was_there: true, text: text.to_owned() };
        let Some(tag) = tag else {
            listed.untagged.entry(entry.digest.clone()).or_insert(entry);
            return Ok(());
        };
        if let Some(known) = listed.tagged.get(&tag) {
            if known.digest == entry.digest {
                return Ok(());
            }
            // Of tools that read it some take the first and some the last.
            return Err(format!(
                "`{repository}:{tag}` is there twice, as {} and as {}",
                known.digest, entry.digest
            ));
        }
        listed.point(tag, entry);
        Ok(())
    }

    /// The file's bytes: the same for the same entries.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let placed = self.repositories.iter().flat_map(|(repository, listed)| {
            let tagged = listed.tagged.iter().map(move |(tag, entry)| entry.placed(repository, Some(tag)));
            tagged.chain(listed.untagged.values().map(move |entry| entry.placed(repository, None)))
        });
        let manifests: Vec<_> = placed.chain(self.others.iter().cloned()).collect();
        let start = format!(r#"{{"schemaVersion":2,"mediaType":"{IMAGE_INDEX}","manifests":["#);
        let mut bytes = start.into_bytes();
        for (position, text) in manifests.iter().enumerate() {
            if position > 0 {
                bytes.push(b',');
            }
            bytes.extend_from_slice(text.get().as_bytes());
        }
        bytes.extend_from_slice(b"]}");
        bytes
    }
}

/// Reads the members of the file one by one, so that what a stranger put there takes no more memory than what is kept of it.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Index;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an image index")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Index, A::Error> {
        let (mut index, mut is_listed) = (Index::default(), false);
        while let Some(name) = members.next_key::<String>()? {
            if name == MANIFESTS {
                if std::mem::replace(&mut is_listed, true) {
                    return Err(A::Error::duplicate_field(MANIFESTS));
                }
                members.next_value_seed(Manifests(&mut index))?;
                continue;
            }
            members.next_value::<IgnoredAny>()?;
            if !MEMBERS.contains(&name.as_str()) {
                index.odd_member.get_or_insert(name);
            }
        }
        Ok(index)
    }
}

/// Reads the elements of `manifests` one by one.
struct Manifests<'a>(&'a mut Index);

impl<'de> DeserializeSeed<'de> for Manifests<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Manifests<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of manifests")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let mut count = 0;
        while let Some(text) = elements.next_element::<&'de RawValue>()? {
            count += 1;
            if count > MAX_MANIFESTS {
                return Err(A::Error::custom(format!("it lists more than {MAX_MANIFESTS} manifests")));
            }
            self.0.add(text).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Where an entry belongs.
fn place(descriptor: &Descriptor) -> Option<(Repository, Option<Tag>)> {
    match descriptor.annotations.get(REF_NAME) {
        Some(name) => {
            let (repository, tag) = name.rsplit_once(':')?;
            Some((repository.parse().ok()?, Some(tag.parse().ok()?)))
        }
        None => Some((descriptor.annotations.get(REPOSITORY)?.parse().ok()?, None)),
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

    fn shape(index: &Index) -> Vec<String> {
        let names = |(repository, listed): (&Repository, &Listed)| {
            let tagged = listed
                .tagged
                .iter()
                .map(|(tag, entry)| format!("{repository}:{tag} {}", &entry.digest.hex()[..2]));
            let untagged =
                listed.untagged.keys().map(|digest| format!("{repository} {}", &digest.hex()[..2]));
            tagged.chain(untagged).collect::<Vec<_>>()
        };
        index.repositories.iter().flat_map(names).collect()
    }

    #[test]
    fn tags_move_and_manifests_stay() {
        let (one, two) = (manifest(b"1"), manifest(b"2"));
        let mut index = Index::default();
        let listed = index.repositories.entry("acme/vpc".parse().unwrap()).or_default();
        listed.put(&one, &[]);
        listed.put(&one, &[]);
        listed.put(&one, &[tag("a"), tag("b")]);
        listed.put(&two, &[tag("a")]);
        assert_eq!(shape(&index), ["acme/vpc:a d4", "acme/vpc:b 6b"]);
        let listed = index.repositories.get_mut(&"acme/vpc".parse().unwrap()).unwrap();
        listed.put(&two, &[tag("b")]);
        assert_eq!(shape(&index), ["acme/vpc:a d4", "acme/vpc:b d4", "acme/vpc 6b"]);
        let again = Index::parse(&index.to_bytes()).unwrap();
        assert_eq!(shape(&again), shape(&index));
        assert_eq!(again.to_bytes(), index.to_bytes());
    }

    #[test]
    fn entries_of_other_tools_are_kept_and_belong_to_no_repository_unless_they_say_so() {
        let digest = Digest::of(b"1");
        let entry = |name: &str| {
            format!(
                r#"{{"mediaType":"{IMAGE_MANIFEST}","digest":"{digest}","size":1,"annotations":{{"{REF_NAME}":"{name}","k":"v"}},"own":1}}"#
            )
        };
        let named = ["acme/vpc/aws:v1.0.0", "docker.io/library/alpine:3", "acme/vpc/aws:v1.0.0"];
        let unnamed =
            ["v1.0.0", "latest", "host:5000/a:b", "a:b:c", "A/b:c", ":a", "a:", "a/../b:c", "a\\nb:c"];
        let entries: Vec<_> = named.iter().chain(&unnamed).map(|name| entry(name)).collect();
        let text = format!(
            r#"{{"schemaVersion":2,"manifests":[{},7,null,{{"digest":"md5:0"}}]}}"#,
            entries.join(",")
        );
        let index = Index::parse(text.as_bytes()).unwrap();
        assert_eq!(shape(&index), ["acme/vpc/aws:v1.0.0 6b", "docker.io/library/alpine:3 6b"]);
        assert_eq!(index.others.len(), unnamed.len() + 3);
        assert_eq!(index.odd_member, None);
        let written = String::from_utf8(index.to_bytes()).unwrap();
        assert_eq!(written.matches(r#""own":1"#).count(), unnamed.len() + 2, "{written}");
        assert!(written.contains(r#"{"digest":"md5:0"}"#) && written.contains(r#""k":"v""#));
        let odd = Index::parse(br#"{"annotations":{},"manifests":[]}"#).unwrap();
        assert_eq!(odd.odd_member.as_deref(), Some("annotations"));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_an_error() {
        let entry = |content: &[u8]| {
            let digest = Digest::of(content);
            format!(
                r#"{{"mediaType":"{IMAGE_MANIFEST}","digest":"{digest}","size":1,"annotations":{{"{REF_NAME}":"a/b:v1"}}}}"#
            )
        };
        let index = |entries: &[&str]| format!(r#"{{"manifests":[{}]}}"#, entries.join(","));
        let (one, two) = (entry(b"1"), entry(b"2"));
        assert!(Index::parse(index(&[&one, &one]).as_bytes()).is_ok());
        let error = Index::parse(index(&[&one, &two]).as_bytes()).unwrap_err().to_string();
        assert!(error.contains("`a/b:v1` is there twice"), "{error}");
        let error = Index::parse(br#"{"manifests":[],"manifests":[]}"#).unwrap_err().to_string();
        assert!(error.contains("duplicate"), "{error}");
    }

    #[test]
    fn a_list_without_end_is_broken_off() {
        let text = format!(r#"{{"manifests":[{}0]}}"#, "0,".repeat(MAX_MANIFESTS));
        let error = Index::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("more than 1000000 manifests"), "{error}");
        let members = format!("{{{}\"z\":0}}", "\"y\":[{}],".repeat(100_000));
        assert_eq!(Index::parse(members.as_bytes()).unwrap().odd_member.as_deref(), Some("y"));
    }

    #[test]
    fn what_is_no_index_is_an_error() {
        let deep = "[".repeat(100_000);
        let within = format!("{{\"manifests\":[{deep}");
        for text in ["", "[]", "{", "{\"manifests\":{}}", "null", "{}{}", &deep, &within] {
            assert!(Index::parse(text.as_bytes()).is_err(), "{}", &text[..text.len().min(20)]);
        }
        assert_eq!(shape(&Index::parse(b"{}").unwrap()), Vec::<String>::new());
    }
}
