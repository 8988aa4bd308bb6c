//! `index.json` of an image layout (image specification, "index.json file"): which manifests a repository has, and their tags.
//!
//! Other tools write it too, so whatever is not understood is kept as it is. A tag is an entry's annotation
//! `org.opencontainers.image.ref.name`; a manifest without tags has an entry without it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::oci::{Descriptor, Digest, IMAGE_INDEX, Tag};

/// The annotation that holds a tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Where text that had to be decoded is taken to stand: behind every document, since none is so long.
const DECODED: usize = 1 << 31;

/// The manifests and tags of a repository.
///
/// A repository may have tens of thousands, and a push adds one. So the document stays the text that it is, an entry is a place in
/// it, and what is added goes to its end.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// The document up to its last entry, with one comma between two of them and no other blanks than their own.
    text: String,
    /// What follows the last entry.
    tail: String,
    entries: Vec<Entry>,
    /// Digests, media types and tags that are written with escapes, without these.
    decoded: String,
    /// Where the first entry begins.
    start: usize,
    /// Whether an entry has a tag and no digest that ocimod reads.
    has_lone_tags: bool,
    /// The positions of the entries with tag and digest, in ASCII order of the tags; of a tag that is there twice the first one
    /// counts, as with the tools that write it.
    by_tag: OnceLock<Vec<u32>>,
    /// The positions of the entries with digests, in the order of the first digits of these.
    by_digest: OnceLock<Vec<(u64, u32)>>,
}

/// An element of `manifests`.
#[derive(Clone, Debug)]
struct Entry {
    text: Part,
    /// Empty where it is no digest that ocimod reads; such an entry is kept and not shown.
    digest: Part,
    /// Empty where the entry gives none.
    media_type: Part,
    /// Empty where there is none, or one that cannot be a tag (a whole reference, as some tools write).
    tag: Part,
    /// Whether it has a name, be it a tag or not.
    is_named: bool,
}

/// A part of the document. Documents are far below 4 GiB.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    at: u32,
    length: u32,
}

impl Part {
    fn new(at: usize, length: usize) -> Self {
        // What is longer is not read in the first place.
        match (u32::try_from(at), u32::try_from(length)) {
            (Ok(at), Ok(length)) => Self { at, length },
            _ => Self::default(),
        }
    }

    fn range(self) -> Range<usize> {
        let at = self.at as usize;
        at..at + self.length as usize
    }

    fn is_empty(self) -> bool {
        self.length == 0
    }
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed<'a> {
    /// `None` where it is no digest that ocimod reads.
    pub(super) digest: Option<Digest>,
    /// Empty where the entry gives none.
    pub(super) media_type: &'a str,
    /// `None` where there is none, or one that cannot be a tag.
    pub(super) tag: Option<Tag>,
    /// Whether it has a name, be it a tag or not.
    pub(super) is_named: bool,
}

/// What has to be done to an index.
#[derive(Debug)]
pub(super) enum Change {
    /// To add entries at its end.
    Added(Added),
    /// To write all of it.
    Rewritten(Index),
}

/// Entries to be added at the end of the index that made them.
#[derive(Debug)]
pub(super) struct Added {
    /// As it follows the last entry.
    text: String,
    /// Where each of them begins in it, and ends.
    entries: Vec<Range<usize>>,
}

impl Added {
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// What is read of an entry.
#[derive(Default, Deserialize)]
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
    name: Option<Name<'a>>,
}

/// A text of its own, since serde borrows none inside an `Option`.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A document with its members in their order.
struct Document<'a> {
    /// `None` where `manifests` stands.
    members: Vec<(String, Option<&'a RawValue>)>,
    entries: Vec<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Document<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Document<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an image index")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                let mut entries = None;
                while let Some(name) = map.next_key::<String>()? {
                    if name == "manifests" {
                        let list: Option<Vec<&RawValue>> = map.next_value()?;
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
                Ok(Document { members, entries: entries.unwrap_or_default() })
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Document<'_> {
    /// What stands before the first entry, and behind the last one.
    fn frame(&self) -> (String, String) {
        let (mut head, mut tail) = (String::new(), String::new());
        let mut part = &mut head;
        for (position, (name, text)) in self.members.iter().enumerate() {
            part.push(if position == 0 { '{' } else { ',' });
            part.push_str(&Value::from(name.as_str()).to_string());
            part.push(':');
            if let Some(text) = text {
                part.push_str(text.get());
            } else {
                part.push('[');
                part = &mut tail;
                part.push(']');
            }
        }
        part.push('}');
        (head, tail)
    }
}

impl Default for Index {
    fn default() -> Self {
        let head = format!(r#"{{"schemaVersion":2,"mediaType":"{IMAGE_INDEX}","manifests":["#);
        Self::new(head, "]}".to_owned())
    }
}

impl Index {
    /// One without entries.
    fn new(head: String, tail: String) -> Self {
        Self {
            start: head.len(),
            text: head,
            tail,
            entries: Vec::new(),
            decoded: String::new(),
            has_lone_tags: false,
            by_tag: OnceLock::new(),
            by_digest: OnceLock::new(),
        }
    }

    /// Reads the file's bytes. Also answers whether these are [`Self::text`], blanks, and [`Self::tail`], as ocimod writes them.
    pub(super) fn parse(bytes: Vec<u8>) -> Result<(Self, bool), serde_json::Error> {
        // With the error that the parser would give.
        let text = String::from_utf8(bytes).map_err(|error| {
            let broken = serde_json::from_slice::<&RawValue>(error.as_bytes()).err();
            broken.unwrap_or_else(|| serde::de::Error::custom("it is no UTF-8"))
        })?;
        let text = match Self::scan(text) {
            Ok(index) => return Ok((index, true)),
            Err(text) => text,
        };
        let document: Document = serde_json::from_str(&text)?;
        let (head, tail) = document.frame();
        let base = text.as_ptr().addr();
        let places = |entry: &&RawValue| {
            let at = entry.get().as_ptr().addr() - base;
            at..at + entry.get().len()
        };
        let places: Vec<_> = document.entries.iter().map(places).collect();
        let follows = |(one, next): (&Range<usize>, &Range<usize>)| {
            next.start == one.end + 1 && text.as_bytes()[one.end] == b','
        };
        let end = places.last().map_or(head.len(), |last| last.end);
        let is_plain = text.starts_with(&head)
            && places.first().is_none_or(|first| first.start == head.len())
            && places.iter().zip(places.iter().skip(1)).all(follows)
            && text.get(end..).is_some_and(|rest| rest.trim_start_matches(' ') == tail);
        let mut index = Self::new(head, tail);
        if is_plain {
            index.text = text;
            index.text.truncate(end);
            index.entries.reserve(places.len());
            for place in places {
                index.note(place);
            }
        } else {
            let added = Added::of(&index, document.entries.iter().map(|entry| entry.get()));
            index.add(&added);
        }
        Ok((index, is_plain))
    }

    /// Reads a document that has the form of our own to the letter, several times as fast as a parser does; else gives it back.
    fn scan(text: String) -> Result<Self, String> {
        let mut index = Self::default();
        let (head, tail) = (index.start, index.tail.len());
        let Some(end) = text.len().checked_sub(tail).filter(|_| text.starts_with(&index.text)) else {
            return Err(text);
        };
        let Some(body) = text.get(head..end).filter(|_| text.ends_with(&index.tail)) else {
            return Err(text);
        };
        let body = body.trim_end_matches(' ');
        let mut at = 0;
        while at < body.len() {
            let Some(entry) = scan_entry(&body[at..]) else { return Err(text) };
            let start = head + at;
            at += entry.length;
            index.entries.push(entry.found(start));
            match body.as_bytes().get(at) {
                Some(b',') if at + 1 < body.len() => at += 1,
                Some(_) => return Err(text),
                None => {}
            }
        }
        let length = head + body.len();
        index.text = text;
        index.text.truncate(length);
        Ok(index)
    }

    /// What it takes in memory, about, in bytes.
    pub(super) fn weight(&self) -> usize {
        let entry = size_of::<Entry>() + size_of::<(u64, u32)>() + size_of::<u32>();
        size_of::<Self>() + self.text.len() + self.decoded.len() + self.entries.len() * entry
    }

    /// The document up to its last entry. What is added to it follows here.
    pub(super) fn text(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// What follows the last entry. Blanks may stand before it.
    pub(super) fn tail(&self) -> &[u8] {
        self.tail.as_bytes()
    }

    /// Reads the entry that stands there.
    fn note(&mut self, place: Range<usize>) {
        let text = &self.text[place.clone()];
        if let Some(entry) = scan_entry(text).filter(|entry| entry.length == text.len()) {
            self.entries.push(entry.found(place.start));
            return;
        }
        let fields = match serde_json::from_str::<Fields>(text) {
            Ok(fields) => fields,
            // No object, or one with members of other types than they should have.
            Err(_) => read_loosely(&serde_json::from_str(text).unwrap_or_default()),
        };
        let name = fields.annotations.and_then(|names| names.name).map(|Name(name)| name);
        let is_named = name.is_some();
        let digest = fields.digest.parse::<Digest>().is_ok().then_some(fields.digest);
        let tag = name.filter(|name| name.parse::<Tag>().is_ok());
        let (base, decoded) = (self.text.as_ptr().addr(), &mut self.decoded);
        let mut part = |text: Option<Cow<str>>| match text {
            Some(Cow::Borrowed(text)) if !text.is_empty() => {
                Part::new(text.as_ptr().addr() - base, text.len())
            }
            Some(Cow::Owned(text)) if !text.is_empty() => {
                decoded.push_str(&text);
                Part::new(DECODED + decoded.len() - text.len(), text.len())
            }
            _ => Part::default(),
        };
        let entry = Entry {
            digest: part(digest),
            media_type: part(Some(fields.media_type)),
            tag: part(tag),
            text: Part::new(place.start, place.len()),
            is_named,
        };
        self.has_lone_tags |= entry.digest.is_empty() && !entry.tag.is_empty();
        self.entries.push(entry);
    }

    fn str(&self, part: Part) -> &str {
        let Range { start, end } = part.range();
        let found = match start.checked_sub(DECODED) {
            Some(start) => self.decoded.get(start..end - DECODED),
            None => self.text.get(start..end),
        };
        found.unwrap_or_default()
    }

    /// Every entry, in the order of the file.
    pub(super) fn entries(&self) -> impl Iterator<Item = Listed<'_>> {
        self.entries.iter().map(|entry| Listed {
            digest: self.str(entry.digest).parse().ok(),
            media_type: self.str(entry.media_type),
            tag: self.str(entry.tag).parse().ok(),
            is_named: entry.is_named,
        })
    }

    /// The positions of the entries with tags, in ASCII order of these.
    fn by_tag(&self) -> &[u32] {
        self.by_tag.get_or_init(|| {
            let tag = |&at: &u32| self.str(self.entries[at as usize].tag);
            let is_tagged = |entry: &Entry| !entry.tag.is_empty() && !entry.digest.is_empty();
            let tagged = (0..).zip(&self.entries).filter(|(_, entry)| is_tagged(entry));
            let mut positions: Vec<u32> = tagged.map(|(at, _)| at).collect();
            // Stable, so that the first one counts.
            positions.sort_by(|one, other| tag(one).cmp(tag(other)));
            positions.dedup_by(|one, other| tag(one) == tag(other));
            positions
        })
    }

    fn by_digest(&self) -> &[(u64, u32)] {
        self.by_digest.get_or_init(|| {
            let known = (0..).zip(&self.entries).filter(|(_, entry)| !entry.digest.is_empty());
            let mut positions: Vec<_> =
                known.map(|(at, entry)| (first_digits(self.str(entry.digest)), at)).collect();
            positions.sort_unstable();
            positions
        })
    }

    /// The positions of a manifest's entries, in the order of the file.
    fn positions<'a>(&'a self, digest: &'a Digest) -> impl Iterator<Item = usize> {
        let by_digest = self.by_digest();
        let digits = first_digits(digest.as_str());
        let first = by_digest.partition_point(|&(other, _)| other < digits);
        let alike = by_digest[first..].iter().take_while(move |&&(other, _)| other == digits);
        alike
            .map(|&(_, at)| at as usize)
            .filter(move |&at| self.str(self.entries[at].digest) == digest.as_str())
    }

    /// Tags in ASCII order, from the first that is not before what is wanted.
    pub(super) fn tags_from(&self, is_before: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
        let by_tag = self.by_tag();
        let tag = |&at: &u32| self.str(self.entries[at as usize].tag);
        let first = by_tag.partition_point(|at| is_before(tag(at)));
        by_tag[first..].iter().map(tag)
    }

    /// What a tag points at.
    pub(super) fn tagged(&self, tag: &Tag) -> Option<Digest> {
        self.find(tag).map(|(digest, _)| digest)
    }

    /// What a tag points at, and the media type that is given of it, which may be empty.
    pub(super) fn find(&self, tag: &Tag) -> Option<(Digest, &str)> {
        let entry = &self.entries[self.position_of(tag)?];
        Some((self.str(entry.digest).parse().ok()?, self.str(entry.media_type)))
    }

    fn position_of(&self, tag: &Tag) -> Option<usize> {
        let by_tag = self.by_tag();
        let text = |at: u32| self.str(self.entries[at as usize].tag);
        let found = by_tag.binary_search_by(|&at| text(at).cmp(tag.as_str())).ok()?;
        Some(by_tag[found] as usize)
    }

    /// Whether a manifest has an entry.
    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.positions(digest).next().is_some()
    }

    /// The media type that is given of a listed manifest, which may be empty.
    pub(super) fn media_type(&self, digest: &Digest) -> Option<&str> {
        Some(self.str(self.entries[self.positions(digest).next()?].media_type))
    }

    /// What has to be done so that a manifest is listed and tags point at it; `None` where it is so already.
    pub(super) fn put(&self, manifest: &Descriptor, tags: &[Tag]) -> Option<Change> {
        let positions: Vec<usize> = self.positions(&manifest.digest).collect();
        let points_there = |tag: &Tag| self.tagged(tag).is_some_and(|digest| digest == manifest.digest);
        let mut wanted: Vec<&Tag> = Vec::new();
        for tag in tags {
            if !points_there(tag) && !wanted.contains(&tag) {
                wanted.push(tag);
            }
        }
        if wanted.is_empty() && !positions.is_empty() {
            return None;
        }
        let is_new = |tag: &&Tag| self.position_of(tag).is_none() && !self.has_lone_tags;
        let has_nameless = positions.iter().any(|&at| !self.entries[at].is_named);
        if has_nameless || !wanted.iter().all(is_new) {
            return Some(Change::Rewritten(self.with(manifest, &wanted)));
        }
        let entry = match positions.first() {
            Some(&at) => self.str(self.entries[at].text).to_owned(),
            None => text_of(manifest),
        };
        let mut texts: Vec<String> = wanted.iter().map(|tag| with_tag(&entry, tag)).collect();
        if texts.is_empty() {
            texts.push(entry);
        }
        Some(Change::Added(Added::of(self, texts.iter().map(String::as_str))))
    }

    /// Does what [`Change::Added`] has of this index.
    pub(super) fn add(&mut self, added: &Added) {
        let (by_tag, by_digest) = (self.by_tag.take(), self.by_digest.take());
        let (before, base) = (self.entries.len(), self.text.len());
        self.text.push_str(&added.text);
        for place in &added.entries {
            self.note(base + place.start..base + place.end);
        }
        // What was put in order stays so: to begin anew would take longer than all the rest of a push.
        if let Some(mut by_digest) = by_digest {
            for (at, entry) in (0..).zip(&self.entries).skip(before) {
                if !entry.digest.is_empty() {
                    let item = (first_digits(self.str(entry.digest)), at);
                    by_digest.insert(by_digest.partition_point(|other| *other < item), item);
                }
            }
            self.by_digest = OnceLock::from(by_digest);
        }
        if let Some(mut by_tag) = by_tag {
            for (at, entry) in (0..).zip(&self.entries).skip(before) {
                let tag = self.str(entry.tag);
                let text = |at: u32| self.str(self.entries[at as usize].tag);
                if !tag.is_empty()
                    && !entry.digest.is_empty()
                    && let Err(place) = by_tag.binary_search_by(|&other| text(other).cmp(tag))
                {
                    by_tag.insert(place, at);
                }
            }
            self.by_tag = OnceLock::from(by_tag);
        }
    }

    /// The same index without a tag; its manifest stays listed. `None` where there is no such tag.
    pub(super) fn without_tag(&self, tag: &Tag) -> Option<Self> {
        self.without_tags(&[tag])
    }

    /// The same index without tags, however often each is there. A manifest stays listed, once where it has no name any longer.
    fn without_tags(&self, tags: &[&Tag]) -> Option<Self> {
        let is_removed = |entry: &Entry| {
            let tag = self.str(entry.tag);
            tags.iter().any(|removed| removed.as_str() == tag)
        };
        let removed = self.entries.iter().filter(|entry| is_removed(entry));
        // How many entries there are of each manifest that loses a tag.
        let mut left: HashMap<&str, usize> = removed.map(|entry| (self.str(entry.digest), 0)).collect();
        if left.is_empty() {
            return None;
        }
        for entry in &self.entries {
            if let Some(count) = left.get_mut(self.str(entry.digest)) {
                *count += 1;
            }
        }
        let mut texts = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let text = self.str(entry.text);
            if !is_removed(entry) {
                texts.push(Cow::Borrowed(text));
                continue;
            }
            match left.get_mut(self.str(entry.digest)) {
                Some(count) if *count > 1 && !entry.digest.is_empty() => *count -= 1,
                _ => texts.push(Cow::Owned(without_tag(text))),
            }
        }
        Some(self.of_entries(texts.iter().map(AsRef::as_ref)))
    }

    /// The same index without manifests and their tags. `None` where none of them has an entry.
    pub(super) fn without_manifests(&self, is_removed: impl Fn(&Digest) -> bool) -> Option<Self> {
        let is_kept = |entry: &&Entry| {
            let digest: Option<Digest> = self.str(entry.digest).parse().ok();
            !digest.is_some_and(|digest| is_removed(&digest))
        };
        let kept: Vec<&Entry> = self.entries.iter().filter(is_kept).collect();
        (kept.len() < self.entries.len())
            .then(|| self.of_entries(kept.iter().map(|entry| self.str(entry.text))))
    }

    /// An index with the same frame and other entries.
    fn of_entries<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Self {
        let mut index = Self::new(self.text[..self.start].to_owned(), self.tail.clone());
        let added = Added::of(&index, texts);
        index.add(&added);
        index
    }

    /// The same index with a manifest listed, and with tags pointing at it that do not point there yet.
    fn with(&self, manifest: &Descriptor, tags: &[&Tag]) -> Self {
        let mut index = self.without_tags(tags).unwrap_or_else(|| self.clone());
        if !index.has(&manifest.digest) {
            index.push(&text_of(manifest));
        }
        let positions: Vec<usize> = index.positions(&manifest.digest).collect();
        let Some(&first) = positions.first().filter(|_| !tags.is_empty()) else { return index };
        let entry = index.str(index.entries[first].text);
        let mut texts: Vec<Cow<str>> =
            index.entries.iter().map(|entry| index.str(entry.text).into()).collect();
        // An entry whose name is no tag is somebody else's: it keeps its name.
        let mut free = positions.iter().filter(|&&at| !index.entries[at].is_named);
        for tag in tags {
            match free.next() {
                Some(&at) => texts[at] = with_tag(index.str(index.entries[at].text), tag).into(),
                None => texts.push(with_tag(entry, tag).into()),
            }
        }
        index.of_entries(texts.iter().map(AsRef::as_ref))
    }

    fn push(&mut self, text: &str) {
        let added = Added::of(self, std::iter::once(text));
        self.add(&added);
    }
}

/// Where everything is in an entry, from its beginning.
struct Scanned {
    length: usize,
    digest: Range<usize>,
    media_type: Range<usize>,
    tag: Option<Range<usize>>,
}

impl Scanned {
    /// The entry that begins there in the document.
    fn found(self, start: usize) -> Entry {
        let part = |range: Range<usize>| Part::new(start + range.start, range.len());
        Entry {
            text: part(0..self.length),
            digest: part(self.digest),
            media_type: part(self.media_type),
            is_named: self.tag.is_some(),
            tag: self.tag.map(part).unwrap_or_default(),
        }
    }
}

/// Reads an entry as [`text_of`] and [`with_tag`] write it, and nothing else.
fn scan_entry(text: &str) -> Option<Scanned> {
    let mut at = 0;
    let skip = |at: &mut usize, what: &str| {
        let follows = text.as_bytes()[*at..].starts_with(what.as_bytes());
        *at += if follows { what.len() } else { 0 };
        follows.then_some(())
    };
    let string = |at: &mut usize| {
        let start = *at;
        let length =
            text.as_bytes()[start..].iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        *at += length;
        skip(at, "\"").map(|()| start..start + length)
    };
    skip(&mut at, "{\"mediaType\":\"")?;
    let media_type = string(&mut at)?;
    skip(&mut at, ",\"digest\":\"")?;
    let digest = string(&mut at)?;
    text[digest.clone()].parse::<Digest>().ok()?;
    skip(&mut at, ",\"size\":")?;
    let size = text.as_bytes()[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    // No number has a nought in front.
    if size == 0 || (size > 1 && text.as_bytes()[at] == b'0') {
        return None;
    }
    at += size;
    if skip(&mut at, ",\"artifactType\":\"").is_some() {
        string(&mut at)?;
    }
    let mut tag = None;
    if skip(&mut at, ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"").is_some() {
        let name = string(&mut at)?;
        text[name.clone()].parse::<Tag>().ok()?;
        tag = Some(name);
        skip(&mut at, "}")?;
    }
    skip(&mut at, "}")?;
    Some(Scanned { length: at, digest, media_type, tag })
}

impl Added {
    fn of<'a>(index: &Index, texts: impl Iterator<Item = &'a str>) -> Self {
        let mut added = Self { text: String::new(), entries: Vec::new() };
        for text in texts {
            if !index.entries.is_empty() || !added.entries.is_empty() {
                added.text.push(',');
            }
            let start = added.text.len();
            added.text.push_str(text);
            added.entries.push(start..added.text.len());
        }
        added
    }
}

/// What orders digests nearly as their text does, and is quicker to compare.
fn first_digits(digest: &str) -> u64 {
    let hex = digest.split_once(':').map_or("", |(_, hex)| hex);
    hex.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

fn read_loosely(value: &Value) -> Fields<'static> {
    let text = |value: &Value| Cow::Owned(value.as_str().unwrap_or_default().to_owned());
    let name = &value["annotations"][REF_NAME];
    Fields {
        digest: text(&value["digest"]),
        media_type: text(&value["mediaType"]),
        annotations: (!name.is_null()).then(|| Names { name: Some(Name(text(name))) }),
    }
}

/// The entry of a manifest without a tag.
fn text_of(manifest: &Descriptor) -> String {
    let mut value = json!({
        "mediaType": manifest.media_type, "digest": manifest.digest.as_str(), "size": manifest.size,
    });
    if let Some(artifact_type) = &manifest.artifact_type {
        value["artifactType"] = Value::from(artifact_type.as_str());
    }
    value.to_string()
}

/// The same entry with another tag, or its first.
fn with_tag(entry: &str, tag: &Tag) -> String {
    changed(entry, |fields| {
        let annotations = fields.entry("annotations").or_insert_with(|| json!({}));
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[REF_NAME] = Value::from(tag.as_str());
    })
}

/// The same entry without its tag.
fn without_tag(entry: &str) -> String {
    changed(entry, |fields| {
        if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
            annotations.shift_remove(REF_NAME);
            if annotations.is_empty() {
                fields.shift_remove("annotations");
            }
        }
    })
}

fn changed(entry: &str, change: impl FnOnce(&mut Map<String, Value>)) -> String {
    match serde_json::from_str(entry) {
        Ok(Value::Object(mut fields)) => {
            change(&mut fields);
            Value::Object(fields).to_string()
        }
        // Only objects have tags and digests.
        _ => entry.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::oci::IMAGE_MANIFEST;

    fn tag(text: &str) -> Tag {
        text.parse().unwrap()
    }

    fn manifest(bytes: &[u8]) -> Descriptor {
        Descriptor::of(IMAGE_MANIFEST, bytes)
    }

    fn parse(text: &str) -> Index {
        Index::parse(text.as_bytes().to_vec()).unwrap().0
    }

    fn written(index: &Index) -> String {
        String::from_utf8([index.text(), index.tail()].concat()).unwrap()
    }

    /// Does what has to be done; `false` where that is nothing.
    fn put(index: &mut Index, manifest: &Descriptor, tags: &[Tag]) -> bool {
        match index.put(manifest, tags) {
            None => return false,
            Some(Change::Added(added)) => index.add(&added),
            Some(Change::Rewritten(changed)) => *index = changed,
        }
        // What is remembered of it is what would be read.
        let read = parse(&written(index));
        assert_eq!(seen(&read), seen(index));
        true
    }

    /// Everything that is asked of an index: its entries, its tags with what they are on, and the order of its digests.
    type Seen<'a> = (Vec<Listed<'a>>, Vec<&'a str>, Vec<Option<String>>, Vec<(u64, u32)>);

    fn seen(index: &Index) -> Seen<'_> {
        let tags: Vec<_> = index.tags_from(|_| false).collect();
        let digests =
            tags.iter().map(|tag| index.tagged(&tag.parse().unwrap()).map(|found| found.to_string()));
        (index.entries().collect(), tags.clone(), digests.collect(), index.by_digest().to_vec())
    }

    fn shape(index: &Index) -> Vec<(Option<String>, String)> {
        let of = |entry: Listed| {
            (entry.tag.map(|tag| tag.to_string()), entry.digest.unwrap().hex()[..2].to_owned())
        };
        index.entries().map(of).collect()
    }

    #[test]
    fn tags_move_and_manifests_stay() {
        let (one, two) = (manifest(b"1"), manifest(b"2"));
        let (first, second) = (one.digest.hex()[..2].to_owned(), two.digest.hex()[..2].to_owned());
        let tagged = |tag: &str, digest: &String| (Some(tag.to_owned()), digest.clone());
        let mut index = Index::default();
        assert!(put(&mut index, &one, &[]));
        assert_eq!(shape(&index), [(None, first.clone())]);
        assert!(put(&mut index, &one, &[tag("a"), tag("b")]));
        assert!(!put(&mut index, &one, &[tag("a"), tag("b")]), "nothing to do the second time");
        assert_eq!(shape(&index), [tagged("a", &first), tagged("b", &first)]);
        assert!(put(&mut index, &two, &[tag("a")]));
        assert_eq!(shape(&index), [tagged("b", &first), tagged("a", &second)]);
        let mut index = index.without_tag(&tag("b")).unwrap();
        assert!(index.without_tag(&tag("b")).is_none());
        assert_eq!(shape(&index), [(None, first.clone()), tagged("a", &second)]);
        assert!(put(&mut index, &one, &[]) || index.has(&one.digest));
        let index = index.without_manifests(|digest| *digest == two.digest).unwrap();
        assert!(index.without_manifests(|digest| *digest == two.digest).is_none());
        assert_eq!(index.tagged(&tag("a")), None);
        assert_eq!(shape(&index), [(None, first)]);
    }

    #[test]
    fn a_new_version_is_added_at_the_end() {
        let mut index = Index::default();
        for number in 0..20_u8 {
            let before = index.text().to_vec();
            let change =
                index.put(&manifest(&[number]), &[tag(&format!("v{number}")), tag(&format!("w{number}"))]);
            let Some(Change::Added(added)) = change else { panic!("{change:?}") };
            index.add(&added);
            assert_eq!(index.text(), [&before, added.as_bytes()].concat());
        }
        // Another tag for a manifest that has one, too.
        let change = index.put(&manifest(&[7]), &[tag("seven"), tag("v7"), tag("seven")]);
        let Some(Change::Added(added)) = change else { panic!("{change:?}") };
        assert_eq!(added.entries.len(), 1);
        index.add(&added);
        assert_eq!(seen(&parse(&written(&index))), seen(&index));
        assert_eq!(index.tagged(&tag("seven")), Some(manifest(&[7]).digest));
    }

    #[test]
    fn a_tag_that_is_there_very_often_goes_at_once() {
        let one = manifest(b"1");
        let other = manifest(b"2");
        let entry = |manifest: &Descriptor| with_tag(&text_of(manifest), &tag("v1"));
        let all = [&one, &other].repeat(50_000);
        let all: Vec<String> = all.into_iter().map(entry).collect();
        let index = parse(&format!("{{\"manifests\":[{}]}}", all.join(",")));
        let left = index.without_tag(&tag("v1")).unwrap();
        let listed = [(None, one.digest.hex()[..2].to_owned()), (None, other.digest.hex()[..2].to_owned())];
        assert_eq!(shape(&left), listed);
        let Some(Change::Rewritten(moved)) = index.put(&manifest(b"3"), &[tag("v1")]) else { panic!() };
        assert_eq!(shape(&moved)[..2], listed);
        assert_eq!(moved.entries().count(), 3);
        assert_eq!(moved.tagged(&tag("v1")), Some(manifest(b"3").digest));
    }

    #[test]
    fn tags_move_together() {
        let mut index = Index::default();
        let (one, two) = (manifest(b"1"), manifest(b"2"));
        let tags: Vec<Tag> = (0..64).map(|number| tag(&format!("t{number}"))).collect();
        assert!(put(&mut index, &one, &tags));
        assert!(put(&mut index, &two, &[]));
        assert!(put(&mut index, &two, &tags));
        assert_eq!(index.entries().count(), 65, "one stays listed without a name, and no name is lost");
        assert!(tags.iter().all(|tag| index.tagged(tag).as_ref() == Some(&two.digest)));
        assert!(put(&mut index, &one, &tags[..2]));
        assert_eq!(index.entries().count(), 64, "the name of one is used, and another comes");
        assert_eq!(index.tagged(&tags[1]), Some(one.digest));
        assert_eq!(index.tagged(&tags[2]), Some(two.digest));
    }

    #[test]
    fn what_other_tools_wrote_is_kept() {
        let text = r#"{"extra":1,"manifests":[{"digest":"md5:0","annotations":{"org.opencontainers.image.ref.name":"x"}},{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","size":1,"annotations":{"org.opencontainers.image.ref.name":"host/name:tag","k":"v"},"own":true},7],"schemaVersion":2}"#;
        let (mut index, is_plain) = Index::parse(text.as_bytes().to_vec()).unwrap();
        assert!(is_plain);
        assert_eq!(index.entries().filter(|entry| entry.tag.is_some() && entry.digest.is_some()).count(), 0);
        assert_eq!(index.entries().filter(|entry| entry.digest.is_some()).count(), 1);
        assert_eq!(written(&index), text);
        assert!(put(&mut index, &manifest(b"1"), &[tag("v1")]));
        let text = written(&index);
        assert!(
            text.contains("host/name:tag") && text.contains(r#""md5:0""#) && text.contains(",7,"),
            "{text}"
        );
        assert_eq!(text.matches(r#""own":true"#).count(), 2, "{text}");
        let index = index.without_tag(&tag("v1")).unwrap();
        assert!(!written(&index).contains("v1\"}"));
        // A tag whose digest is not understood gives way like any other.
        let mut index = index;
        assert!(put(&mut index, &manifest(b"1"), &[tag("x")]));
        assert_eq!(written(&index).matches(r#":"x""#).count(), 1, "{}", written(&index));
    }

    #[test]
    fn blanks_and_escapes_are_read_through() {
        let digest = manifest(b"1").digest;
        let entry = format!(
            r#"{{ "mediaType": "application\/vnd.oci.image.manifest.v1\u002bjson", "digest": "{digest}",
                "size": 1, "annotations": {{ "org.opencontainers.image.ref.name": "v\u0031" }} }}"#
        );
        let text = format!("{{ \"schemaVersion\": 2,\n \"manifests\": [\n {entry} ,{entry}\n ] }}\n");
        let (mut index, is_plain) = Index::parse(text.into_bytes()).unwrap();
        assert!(!is_plain);
        assert_eq!(index.media_type(&digest), Some(IMAGE_MANIFEST));
        assert_eq!(index.tagged(&tag("v1")), Some(digest.clone()));
        assert!(written(&index).contains("u002b"), "kept as it is");
        assert!(put(&mut index, &manifest(b"2"), &[tag("v2")]));
        let (again, is_plain) = Index::parse(written(&index).into_bytes()).unwrap();
        assert!(is_plain);
        assert_eq!(seen(&again), seen(&index));
        // As it is written with room for more.
        let padded = [index.text(), b"     ", index.tail()].concat();
        let (padded, is_plain) = Index::parse(padded).unwrap();
        assert!(is_plain);
        assert_eq!(seen(&padded), seen(&index));
    }

    /// What the parser makes of a document.
    fn parse_slowly(text: &str) -> Option<(Index, bool)> {
        // A blank in front is all that keeps it from being scanned.
        let (index, _) = Index::parse(format!(" {text}").into_bytes()).ok()?;
        let is_plain = text.as_bytes().strip_prefix(index.text()).is_some_and(|rest| {
            String::from_utf8_lossy(rest).trim_start_matches(' ').as_bytes() == index.tail()
        });
        Some((index, is_plain))
    }

    /// A document of ours, which is scanned.
    fn ours() -> String {
        let mut index = Index::default();
        put(&mut index, &manifest(b"0"), &[]);
        put(
            &mut index,
            &Descriptor { artifact_type: Some("a/b".into()), ..manifest(b"1") },
            &[tag("v1"), tag("1")],
        );
        put(&mut index, &Descriptor::new("", manifest(b"2").digest, 0), &[tag("v2")]);
        let sha512 = format!("sha512:{}", "0".repeat(128)).parse().unwrap();
        put(&mut index, &Descriptor::new("x/y", sha512, u64::MAX), &[tag("v3")]);
        written(&index)
    }

    #[test]
    fn what_is_scanned_is_what_is_parsed() {
        let text = ours();
        for text in [&text, &written(&Index::default()), &text.replace("]}", "   ]}")] {
            let scanned = Index::scan(text.clone()).expect("it has our form");
            let (parsed, _) = parse_slowly(text).unwrap();
            assert_eq!(seen(&scanned), seen(&parsed));
            assert_eq!((scanned.text(), scanned.tail()), (parsed.text(), parsed.tail()));
            assert!(text.as_bytes().starts_with(scanned.text()));
        }
        for other in [",]}", ",,", "[,", "]]}", "] }", "]}\n", "}}", "\\"] {
            assert!(Index::scan(text.replacen("]}", other, 1)).is_err(), "{other}");
        }
    }

    #[test]
    fn what_is_no_index_is_an_error() {
        for text in ["", "[]", "{", "{\"manifests\":{}}", "null", &"[".repeat(100_000)] {
            assert!(Index::parse(text.as_bytes().to_vec()).is_err(), "{}", &text[..text.len().min(20)]);
        }
        for bytes in [b"{\"manifests\":[\"\xff\"]}".to_vec(), b"\xff".to_vec(), b"{}\xff".to_vec()] {
            assert!(Index::parse(bytes).is_err());
        }
        for text in
            ["{}", "{\"manifests\":null}", "{\"manifests\":[null,[],{\"digest\":1,\"annotations\":[]}]}"]
        {
            let mut index = parse(text);
            assert!(index.entries().all(|entry| entry.digest.is_none()));
            assert!(put(&mut index, &manifest(b"1"), &[tag("v1")]));
            assert_eq!(index.entries().filter(|entry| entry.tag.is_some()).count(), 1);
        }
    }

    proptest! {
        /// Whatever becomes of a document of ours: if it is scanned at all, then as it is parsed.
        #[test]
        fn nothing_is_scanned_that_is_not_parsed_alike(
            at in 0_usize..4_000, removed in 0_usize..3,
            inserted in "[{}\\[\\]\",:\\\\ 0-9a-e\u{0}-\u{1f}é]{0,3}",
        ) {
            let mut text = ours();
            let at = (0..=at % (text.len() + 1)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
            let end = (at + removed).min(text.len());
            text.replace_range(at..end, &inserted);
            if let Ok(scanned) = Index::scan(text.clone()) {
                let (parsed, is_plain) = parse_slowly(&text).expect("a parser reads it too");
                prop_assert!(is_plain);
                prop_assert_eq!(seen(&scanned), seen(&parsed));
            }
        }

        /// However tags are pushed and deleted, what is remembered is what would be read.
        #[test]
        fn what_is_remembered_is_what_is_written(steps in prop::collection::vec((0_u8..5, 0_u8..6, 0_u8..5), 0..40)) {
            let mut index = Index::default();
            let mut expected: std::collections::BTreeMap<String, Digest> = std::collections::BTreeMap::new();
            for (kind, content, name) in steps {
                let (content, name) = (manifest(&[content]), tag(&format!("t{name}")));
                match kind {
                    0 => drop(put(&mut index, &content, &[])),
                    1 => {
                        index = index.without_tag(&name).unwrap_or(index);
                        expected.remove(name.as_str());
                    }
                    2 => {
                        index = index.without_manifests(|digest| *digest == content.digest).unwrap_or(index);
                        expected.retain(|_, digest| *digest != content.digest);
                    }
                    3 => {
                        put(&mut index, &content, std::slice::from_ref(&name));
                        expected.insert(name.to_string(), content.digest);
                    }
                    _ => {
                        let names = [name, tag("t0"), tag("t9")];
                        put(&mut index, &content, &names);
                        expected.extend(names.map(|name| (name.to_string(), content.digest.clone())));
                    }
                }
                let tags: Vec<_> = index.tags_from(|_| false).map(ToOwned::to_owned).collect();
                prop_assert_eq!(&tags, &expected.keys().cloned().collect::<Vec<_>>());
                for (name, digest) in &expected {
                    prop_assert_eq!(index.tagged(&tag(name)), Some(digest.clone()));
                }
            }
        }
    }
}
