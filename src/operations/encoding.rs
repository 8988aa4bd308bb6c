//! What a module is called in a registry: the path encodings of `CUE_REGISTRY` (`cue help registryconfig`).
//!
//! Plain is the path itself, as it has always been. The others are for registries that take no deep or no new repositories: there a
//! module's repository, or the front of its tags, is the SHA-256 of its path. Nobody reads a path out of that, so what is encoded so is found
//! by its name alone.

use std::fmt;

use crate::module::CuePath;
use crate::oci::{Digest, Repository, RepositoryError};

/// What a module path becomes in a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    path: PathEncoding,
    /// In front of every tag; empty where there is nothing.
    tag_prefix: String,
}

/// Where the path goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PathEncoding {
    /// It is the repository's name.
    #[default]
    Path,
    /// It is the repository's name without this beginning (`stripPrefix`).
    Stripped(String),
    /// Its SHA-256 is the repository's name.
    HashAsRepository,
    /// There is one repository for all, and its SHA-256 is in front of the tags.
    HashAsTag,
}

impl Encoding {
    /// An encoding; `tag_prefix` is empty or the beginning of a tag.
    pub fn new(path: PathEncoding, tag_prefix: String) -> Self {
        Self { path, tag_prefix }
    }

    /// Where the path goes.
    pub fn path(&self) -> &PathEncoding {
        &self.path
    }

    /// Whether a path is called what it is, and a version too.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether every repository is below one that is named, or is that.
    pub fn needs_repository(&self) -> bool {
        self.path != PathEncoding::Path
    }

    /// The repository of a module below that of the registry; `None` where it is that one itself.
    pub fn repository(&self, path: &CuePath) -> Result<Option<Repository>, RepositoryError> {
        let name = match &self.path {
            PathEncoding::Path => path.as_str().to_owned(),
            PathEncoding::Stripped(prefix) => {
                let rest = path.as_str().strip_prefix(prefix.as_str()).unwrap_or(path.as_str());
                rest.trim_start_matches('/').to_owned()
            }
            PathEncoding::HashAsRepository => hash(path),
            PathEncoding::HashAsTag => String::new(),
        };
        if name.is_empty() { Ok(None) } else { name.parse().map(Some) }
    }

    /// What stands in front of the versions of a module in its tags.
    pub fn tag_prefix(&self, path: &CuePath) -> String {
        match self.path {
            PathEncoding::HashAsTag => format!("{}{}-", self.tag_prefix, hash(path)),
            _ => self.tag_prefix.clone(),
        }
    }

    /// What stands in front of every tag of a repository, whichever module it is of; `None` where that cannot be said.
    pub fn common_tag_prefix(&self) -> Option<&str> {
        (self.path != PathEncoding::HashAsTag).then_some(self.tag_prefix.as_str())
    }
}

impl fmt::Display for Encoding {
    /// As the configuration has it; nothing where it is plain.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match &self.path {
            PathEncoding::Path => "",
            PathEncoding::Stripped(_) => "stripPrefix",
            PathEncoding::HashAsRepository => "hashAsRepo",
            PathEncoding::HashAsTag => "hashAsTag",
        };
        formatter.write_str(path)?;
        if self.tag_prefix.is_empty() {
            return Ok(());
        }
        let between = if path.is_empty() { "" } else { ", " };
        write!(formatter, "{between}prefixForTags `{}`", self.tag_prefix)
    }
}

/// The SHA-256 of a path without its major version, in lower-case hexadecimal.
fn hash(path: &CuePath) -> String {
    Digest::of(path.as_str().as_bytes()).hex().to_owned()
}
