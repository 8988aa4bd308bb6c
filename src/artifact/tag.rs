//! Versions as tags and back.
//!
//! A tag cannot hold a `+`, so build metadata `+b` is written `_b`, as OpenTofu and Helm do. `v1.2.0` and `1.2.0` are the same
//! version; where both are there, the first wins. Fewer than three numbers make a floating tag, which is passed over, since
//! `cue` chokes on it and nobody can tell what it will be tomorrow.

use std::collections::BTreeMap;
use std::mem;

use crate::module::Version;
use crate::oci::Tag;

/// Begins the tag of a version's bundle: its manifest with dependency layers, where the version's own tag has none.
///
/// In front, since a suffix would be read as a pre-release or as build metadata.
const BUNDLE: &str = "bundle.";

/// Begins the tag of the mark that withdraws a version. In front, for the same reason.
const YANKED: &str = "yanked.";

/// The version would not fit a tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// Longer than the 128 characters of a tag.
    #[error(
        "version `{0}` is too long for a tag, which has at most 128 characters; shorten its pre-release or build part"
    )]
    TooLong(String),
    /// Build metadata where the module's kind has none.
    #[error(
        "version `{0}` has build metadata, which CUE modules cannot have; leave out the part from `+` on"
    )]
    BuildMetadata(String),
}

/// The tag that a module's version is written to: `v1.2.0`.
pub fn module_tag(version: &Version) -> Result<Tag, TagError> {
    format!("v{version}").replace('+', "_").parse().map_err(|_| TagError::TooLong(version.to_string()))
}

/// The same for a CUE module, which `cue` asks for by exactly this tag.
pub fn cue_tag(version: &Version) -> Result<Tag, TagError> {
    if version.build().is_empty() {
        module_tag(version)
    } else {
        Err(TagError::BuildMetadata(version.to_string()))
    }
}

/// The tag that a provider's version is written to: `1.2.0`, as OpenTofu looks for it.
pub fn provider_tag(version: &Version) -> Result<Tag, TagError> {
    version.to_string().replace('+', "_").parse().map_err(|_| TagError::TooLong(version.to_string()))
}

/// The version of a provider that a tag says. OpenTofu takes no `v` in front, so neither is it taken here: what the mirror lists,
/// `oci_mirror` lists too.
pub fn provider_version_of(tag: &Tag) -> Option<Version> {
    if tag.as_str().starts_with('v') { None } else { version_of(tag) }
}

/// Where the bundle of the version at `tag` is.
pub fn bundle_tag(tag: &Tag) -> Result<Tag, TagError> {
    format!("{BUNDLE}{tag}").parse().map_err(|_| TagError::TooLong(tag.to_string()))
}

/// Where the mark of a yank is for the version at `tag`.
pub fn yank_tag(tag: &Tag) -> Result<Tag, TagError> {
    format!("{YANKED}{tag}").parse().map_err(|_| TagError::TooLong(tag.to_string()))
}

/// The version that a tag says, in either spelling; `None` for everything else.
pub fn version_of(tag: &Tag) -> Option<Version> {
    // A pre-release and a build part have no `_` of their own, so the first one stands for the `+`.
    let text = tag.as_str();
    if text.contains('_') {
        Version::parse(&text.replacen('_', "+", 1)).ok()
    } else {
        Version::parse(text).ok()
    }
}

/// The tags of yank marks, by the version that each is about: of both spellings where both are there, and also of versions that have
/// no tag themselves. What they say is for their manifests to tell.
pub fn yank_tags<'a>(tags: impl IntoIterator<Item = &'a Tag>) -> BTreeMap<Version, Vec<Tag>> {
    let mut marks: BTreeMap<Version, Vec<Tag>> = BTreeMap::new();
    for tag in tags {
        let about = tag.as_str().strip_prefix(YANKED).and_then(|bare| bare.parse().ok());
        if let Some(version) = about.as_ref().and_then(version_of) {
            marks.entry(version).or_default().push(tag.clone());
        }
    }
    marks
}

/// The tags of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionTags {
    /// Its own, in each spelling.
    pub own: Vec<Tag>,
    /// Those of its bundle.
    pub bundles: Vec<Tag>,
    /// Those of its yank mark.
    pub marks: Vec<Tag>,
}

/// The tags of a repository by the version that they are about, each list sorted. Others are passed over.
pub fn tags_by_version<'a>(tags: impl IntoIterator<Item = &'a Tag>) -> BTreeMap<Version, VersionTags> {
    let mut versions: BTreeMap<Version, VersionTags> = BTreeMap::new();
    for tag in tags {
        let text = tag.as_str();
        let (bare, list): (_, fn(&mut VersionTags) -> &mut Vec<Tag>) =
            match (text.strip_prefix(BUNDLE), text.strip_prefix(YANKED)) {
                (Some(bare), _) => (bare.parse().ok(), |tags| &mut tags.bundles),
                (None, Some(bare)) => (bare.parse().ok(), |tags| &mut tags.marks),
                (None, None) => (Some(tag.clone()), |tags| &mut tags.own),
            };
        if let Some(version) = bare.as_ref().and_then(version_of) {
            list(versions.entry(version).or_default()).push(tag.clone());
        }
    }
    for tags in versions.values_mut() {
        for list in [&mut tags.own, &mut tags.bundles, &mut tags.marks] {
            list.sort();
        }
    }
    versions
}

/// Every tag of a version: its own in each spelling, then those of its bundle, then those of its yank mark.
pub fn tags_of<'a>(version: &Version, tags: impl IntoIterator<Item = &'a Tag>) -> Vec<Tag> {
    let VersionTags { own, bundles, marks } = tags_by_version(tags).remove(version).unwrap_or_default();
    own.into_iter().chain(bundles).chain(marks).collect()
}

/// Whether a tag is that of a version or of its bundle, and so must not be moved once it is there: the other spelling of the same
/// then, which must not be another thing either. `None` for every other tag: the mark of a yank comes and goes.
pub fn immutable_twins(tag: &Tag) -> Option<Vec<Tag>> {
    let (prefix, bare) = match tag.as_str().strip_prefix(BUNDLE) {
        Some(bare) => (BUNDLE, bare),
        None => ("", tag.as_str()),
    };
    version_of(&bare.parse().ok()?)?;
    let twin = match bare.strip_prefix('v') {
        Some(rest) => format!("{prefix}{rest}"),
        None => format!("{prefix}v{bare}"),
    };
    // A tag of the full length has no longer spelling.
    Some(twin.parse().into_iter().collect())
}

/// Where a version of a repository is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaggedVersion {
    /// The version.
    pub version: Version,
    /// The tag of its manifest; where only the bundle was copied here, this tag is not in the repository.
    pub tag: Tag,
    /// Whether the tag is there.
    pub has_tag: bool,
    /// Whether the tag's bundle is there.
    pub has_bundle: bool,
}

/// The versions that a repository's tags say, ascending; ties of precedence (build metadata) by the bytes of the tag, so that
/// every listing has the same order.
pub fn versions(tags: impl IntoIterator<Item = Tag>) -> Vec<TaggedVersion> {
    let read = |tag: Tag| {
        let (tag, is_bundle) = match tag.as_str().strip_prefix(BUNDLE) {
            Some(bare) => (bare.parse().ok()?, true),
            None => (tag, false),
        };
        let version = version_of(&tag)?;
        Some(TaggedVersion { version, tag, has_tag: !is_bundle, has_bundle: is_bundle })
    };
    let mut found: Vec<TaggedVersion> = tags.into_iter().filter_map(read).collect();
    found.sort_by(|one, other| one.version.cmp(&other.version).then_with(|| one.tag.cmp(&other.tag)));
    // A tag and its bundle are one version.
    found.dedup_by(|next, kept| {
        let is_same = next.tag == kept.tag;
        kept.has_tag |= is_same && next.has_tag;
        kept.has_bundle |= is_same && next.has_bundle;
        is_same
    });
    // Of two spellings the one that is there beats the one that only a bundle tells of, and then the one with `v` wins.
    let rank = |one: &TaggedVersion| (one.has_tag, one.tag.as_str().starts_with('v'));
    found.dedup_by(|next, kept| {
        let is_same = next.version == kept.version;
        if is_same && rank(next) > rank(kept) {
            mem::swap(next, kept);
        }
        is_same
    });
    found.sort_by(|one, other| one.version.precedence(&other.version).then_with(|| one.tag.cmp(&other.tag)));
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn list(tags: &[&str]) -> Vec<String> {
        versions(tags.iter().map(|tag| tag.parse().unwrap()))
            .into_iter()
            .map(|found| {
                let bundle = if found.has_bundle { " bundle" } else { "" };
                format!("{} {}{bundle}", found.version, if found.has_tag { found.tag.as_str() } else { "-" })
            })
            .collect()
    }

    #[test]
    fn versions_come_ascending_whatever_else_is_tagged() {
        let tags = [
            "latest",
            "v1.10.0",
            "v1.2.0",
            "v1.2.0-rc.1",
            "v1",
            "1.2",
            "sha256-abc.sig",
            "v1.2.0_b2",
            "v1.2.0_b1",
            "bundle.v1",
            "yanked.v1.2.0",
            "v01.2.0",
        ];
        assert_eq!(
            list(&tags),
            [
                "1.2.0-rc.1 v1.2.0-rc.1",
                "1.2.0 v1.2.0",
                "1.2.0+b1 v1.2.0_b1",
                "1.2.0+b2 v1.2.0_b2",
                "1.10.0 v1.10.0"
            ]
        );
    }

    #[test]
    fn both_spellings_are_one_version_and_v_wins() {
        assert_eq!(list(&["1.2.0", "v1.2.0"]), ["1.2.0 v1.2.0"]);
        assert_eq!(list(&["v1.2.0", "1.2.0"]), ["1.2.0 v1.2.0"]);
        assert_eq!(list(&["1.2.0"]), ["1.2.0 1.2.0"]);
    }

    #[test]
    fn a_bundle_alone_is_a_version_too() {
        assert_eq!(list(&["bundle.v1.2.0"]), ["1.2.0 - bundle"]);
        assert_eq!(list(&["bundle.v1.2.0", "v1.2.0"]), ["1.2.0 v1.2.0 bundle"]);
        assert_eq!(list(&["v1.2.0", "bundle.v1.2.0", "1.2.0"]), ["1.2.0 v1.2.0 bundle"]);
        assert_eq!(list(&["bundle.v1.2.0", "1.2.0"]), ["1.2.0 1.2.0"]);
        assert_eq!(list(&["1.2.0", "bundle.v1.2.0", "v1.2.0"]), ["1.2.0 v1.2.0 bundle"]);
    }

    #[test]
    fn tags_are_written_and_read_back() {
        let version = Version::parse("1.2.0-rc.1+build.5").unwrap();
        let tag = module_tag(&version).unwrap();
        assert_eq!(tag.as_str(), "v1.2.0-rc.1_build.5");
        assert_eq!(version_of(&tag), Some(version.clone()));
        assert!(matches!(cue_tag(&version), Err(TagError::BuildMetadata(_))));
    }

    #[test]
    fn versions_of_providers_have_no_v() {
        let version = Version::parse("1.2.0-rc.1+build.5").unwrap();
        let tag = provider_tag(&version).unwrap();
        assert_eq!(tag.as_str(), "1.2.0-rc.1_build.5");
        assert_eq!(provider_version_of(&tag), Some(version));
        for tag in ["v1.2.0", "1.2", "latest", "yanked.1.2.0"] {
            assert_eq!(provider_version_of(&tag.parse().unwrap()), None, "{tag}");
        }
    }

    #[test]
    fn only_versions_and_their_bundles_are_immutable() {
        for (tag, twin) in [
            ("v1.2.0", Some("1.2.0")),
            ("1.2.0", Some("v1.2.0")),
            ("bundle.v1.2.0", Some("bundle.1.2.0")),
            ("v1.2.0_b", Some("1.2.0_b")),
            ("latest", None),
            ("v1", None),
            ("yanked.v1.2.0", None),
            ("sha256-ab", None),
        ] {
            let twins = immutable_twins(&tag.parse().unwrap());
            assert_eq!(twins, twin.map(|twin| vec![twin.parse().unwrap()]), "{tag}");
        }
    }

    #[test]
    fn the_tags_of_a_version_are_found_whichever_way_they_are_spelt() {
        let tags: Vec<Tag> = [
            "yanked.1.2.0",
            "v1.2.0",
            "latest",
            "bundle.v1.2.0",
            "yanked.v1.2.0",
            "v1.2.0_b",
            "1.2.0",
            "yanked.v1.2.0_b",
            "yanked.latest",
            "yanked.",
            "yanked.bundle.v1.2.0",
            "v1.2.1",
        ]
        .iter()
        .map(|tag| tag.parse().unwrap())
        .collect();
        let version = Version::parse("1.2.0").unwrap();
        let texts = |tags: &[Tag]| tags.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            texts(&tags_of(&version, &tags)),
            ["1.2.0", "v1.2.0", "bundle.v1.2.0", "yanked.1.2.0", "yanked.v1.2.0"]
        );
        let marks = yank_tags(&tags);
        assert_eq!(texts(&marks[&version]), ["yanked.1.2.0", "yanked.v1.2.0"]);
        assert_eq!(texts(&marks[&Version::parse("1.2.0+b").unwrap()]), ["yanked.v1.2.0_b"]);
        assert_eq!(marks.len(), 2);
        assert_eq!(yank_tag(&"v1.2.0".parse().unwrap()).unwrap().as_str(), "yanked.v1.2.0");
    }
}
