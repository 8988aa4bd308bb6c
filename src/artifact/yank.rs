//! The mark of a yanked version: a small manifest of its own at `yanked.<tag>`.
//!
//! It holds nothing but annotations. It has no `subject`, since copy tools would leave behind what only refers to a manifest, and a
//! version that is embedded in another module can be yanked where it has no manifest at all. The version stands in it, so that no two
//! marks of a repository are one manifest: a registry that deletes by digest alone would take both.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use super::media_types as types;
use crate::module::Version;
use crate::oci::{Descriptor, IMAGE_MANIFEST, Manifest};

/// A reason is a line in a list: enough for a sentence and a link.
const MAX_REASON: usize = 500;

/// Why a version was yanked: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(String);

/// The text is no reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReasonError {
    /// Nothing stands there.
    #[error("the reason is empty; leave `--reason` out where there is nothing to say")]
    Empty,
    /// More than one line, or what moves a terminal's cursor.
    #[error("the reason has a line break or a control character in it; write it as one line")]
    NotOneLine,
    /// Too long for a list.
    #[error(
        "the reason has {0} characters; at most {MAX_REASON} are kept, so write less and link to the rest"
    )]
    TooLong(usize),
}

impl FromStr for Reason {
    type Err = ReasonError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let length = text.chars().count();
        if text.is_empty() {
            Err(ReasonError::Empty)
        } else if text.chars().any(char::is_control) {
            Err(ReasonError::NotOneLine)
        } else if length > MAX_REASON {
            Err(ReasonError::TooLong(length))
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

impl Reason {
    /// What a stranger wrote, as far as it can be shown.
    fn of_stranger(text: &str) -> Option<Self> {
        let line: String = text.lines().next().unwrap_or_default().chars().take(MAX_REASON).collect();
        line.replace(char::is_control, " ").parse().ok()
    }

    /// The line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What stands at the tag of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum YankMark {
    /// The version is withdrawn.
    Yanked(Option<Reason>),
    /// It was, and the registry did not let the mark be deleted.
    Unyanked,
}

/// How a mark is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkForm {
    /// As the image specification has an artifact without content: a type of its own, and the empty configuration.
    Artifact,
    /// With the configuration type of every module, for registries that take only types from a list (GitLab): modules are on it.
    LikeAModule,
}

/// The manifest is no mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the manifest does not say `works.ocimod.yanked`, `true` or `false`")]
pub struct NoMark;

impl YankMark {
    /// The manifest's bytes. Its only blob is `{}`.
    pub fn to_manifest(&self, version: &Version, form: MarkForm) -> Bytes {
        let (artifact_type, config) = match form {
            MarkForm::Artifact => (Some(types::YANK_MARK.to_owned()), types::EMPTY),
            MarkForm::LikeAModule => (None, types::CUE_MODULE),
        };
        let (yanked, reason) = match self {
            Self::Yanked(reason) => ("true", reason.as_ref()),
            Self::Unyanked => ("false", None),
        };
        let reason = reason.map(|reason| (types::YANK_REASON, reason.to_string()));
        let annotations = [(types::YANKED, yanked.to_owned()), (types::VERSION, version.to_string())];
        let annotations = annotations.into_iter().chain(reason);
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(IMAGE_MANIFEST.to_owned()),
            artifact_type,
            config: Some(Descriptor::of(config, types::EMPTY_CONFIG)),
            // Registries refuse a manifest without layers; the specification says to put this in.
            layers: vec![Descriptor::of(types::EMPTY, types::EMPTY_CONFIG)],
            manifests: None,
            subject: None,
            annotations: annotations.map(|(key, value)| (key.to_owned(), value)).collect(),
        };
        // Strings, numbers and lists alone: there is nothing in it that JSON could not hold.
        serde_json::to_vec(&manifest).map(Bytes::from).unwrap_or_default()
    }

    /// Reads a mark. Only its annotation counts, so that one can be made by hand.
    pub fn read(manifest: &Manifest) -> Result<Self, NoMark> {
        match manifest.annotations.get(types::YANKED).map(String::as_str) {
            _ if manifest.is_index() => Err(NoMark),
            Some("true") => {
                let reason = manifest.annotations.get(types::YANK_REASON);
                Ok(Self::Yanked(reason.and_then(|text| Reason::of_stranger(text))))
            }
            Some("false") => Ok(Self::Unyanked),
            _ => Err(NoMark),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::oci::IMAGE_INDEX;
    use proptest::prelude::*;

    fn version() -> Version {
        Version::parse("1.2.0+b").unwrap()
    }

    fn parse(bytes: &[u8]) -> Manifest {
        Manifest::parse(IMAGE_MANIFEST, bytes).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back_in_every_form() {
        for form in [MarkForm::Artifact, MarkForm::LikeAModule] {
            for mark in [
                YankMark::Yanked(None),
                YankMark::Yanked(Some("leaks \"keys\", see CVE-1".parse().unwrap())),
                YankMark::Unyanked,
            ] {
                let manifest = parse(&mark.to_manifest(&version(), form));
                assert_eq!(YankMark::read(&manifest), Ok(mark));
                assert_eq!((manifest.subject, manifest.layers.len()), (None, 1));
            }
        }
    }

    #[test]
    fn a_mark_is_an_artifact_without_content_as_the_image_specification_has_it() {
        let bytes =
            YankMark::Yanked(Some("why".parse().unwrap())).to_manifest(&version(), MarkForm::Artifact);
        insta::assert_snapshot!(String::from_utf8(bytes.to_vec()).unwrap(), @r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"application/vnd.ocimod.yanked.v1","config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[{"mediaType":"application/vnd.oci.empty.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2}],"annotations":{"org.opencontainers.image.version":"1.2.0+b","works.ocimod.yanked":"true","works.ocimod.yanked.reason":"why"}}"#);
    }

    #[test]
    fn marks_of_two_versions_are_two_manifests() {
        let other = Version::parse("1.2.1").unwrap();
        let mark = YankMark::Yanked(None);
        let form = MarkForm::Artifact;
        assert_ne!(mark.to_manifest(&version(), form), mark.to_manifest(&other, form));
    }

    #[test]
    fn what_is_no_mark_says_nothing() {
        let good = YankMark::Yanked(None).to_manifest(&version(), MarkForm::Artifact);
        let with = |value: &str| {
            let mut manifest = parse(&good);
            manifest.annotations.insert(types::YANKED.to_owned(), value.to_owned());
            YankMark::read(&manifest)
        };
        for value in ["", "True", "yes", "1", "true "] {
            assert_eq!(with(value), Err(NoMark), "{value:?}");
        }
        let mut none = parse(&good);
        none.annotations.clear();
        assert_eq!(YankMark::read(&none), Err(NoMark));
        let index =
            format!(r#"{{"schemaVersion":2,"manifests":[],"annotations":{{"{}":"true"}}}}"#, types::YANKED);
        assert_eq!(YankMark::read(&Manifest::parse(IMAGE_INDEX, index.as_bytes()).unwrap()), Err(NoMark));
    }

    #[test]
    fn a_reason_is_one_bounded_line() {
        assert_eq!("  it leaks ".parse::<Reason>().unwrap().as_str(), "it leaks");
        assert_eq!(" ".parse::<Reason>(), Err(ReasonError::Empty));
        assert_eq!("a\nb".parse::<Reason>(), Err(ReasonError::NotOneLine));
        assert_eq!("a\u{1b}[2Jb".parse::<Reason>(), Err(ReasonError::NotOneLine));
        assert!("ä".repeat(MAX_REASON).parse::<Reason>().is_ok());
        assert_eq!("ä".repeat(MAX_REASON + 1).parse::<Reason>(), Err(ReasonError::TooLong(MAX_REASON + 1)));
    }

    proptest! {
        #[test]
        fn the_reason_of_a_stranger_is_one_line_or_none(text in "(?s).{0,2000}") {
            if let Some(reason) = Reason::of_stranger(&text) {
                prop_assert_eq!(reason.as_str().parse::<Reason>(), Ok(reason.clone()));
            }
        }
    }
}
