//! Zips in and out: packing, the one list of checks, unpacking, directory hashes.
//!
//! A zip has as many readings as it has readers: they disagree about which end record counts, whose size is true, what a
//! name means. So the records are parsed here ([`check`]), strictly, and what passes is read by the same code that checked
//! it; nothing is checked by one parser and opened by another. Whatever could be read in two ways is refused. The reader of
//! the library `zip` makes the best of what it finds instead: right for a library, wrong for a gate. Its writer has no such
//! choices to make, and writes what is packed here.
//!
//! Everything is synchronous and streams: memory grows with the number of entries, which is limited, and never with the
//! size of a file. Nothing here looks at the network, the clock or the environment.

pub mod check;
mod content;
pub mod dirhash;
mod folder;
mod names;
pub mod pack;
mod records;
pub mod tree;
pub mod unpack;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod hand_zip;

#[cfg(test)]
#[path = "../../tests/fuzz/zip.rs"]
pub(crate) mod fuzz_target;

use std::fmt;

pub use check::{CheckError, ListedEntry, Listing, check_content, check_directory, hash_package};
pub use content::read_file;
pub use dirhash::{DirectoryHash, DirectoryHashError};
pub use pack::{PackError, Packed, pack};
pub use tree::{Entry, Tree};
pub use unpack::{UnpackError, unpack};

/// The two kinds of module; they differ in which files are packed and which names may be in the zip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModuleKind {
    /// For OpenTofu and Terraform: configuration files at its root.
    OpenTofu,
    /// For CUE: everything else; has a `cue.mod/module.cue`.
    Cue,
}

impl ModuleKind {
    /// The kind of a module whose zip or folder holds these names: OpenTofu's if one of them is a configuration file at the
    /// root (`*.tf`, `*.tofu`, or these with `.json`), else CUE's. Names in folders (with `/`) and hidden names do not count:
    /// OpenTofu reads neither.
    pub fn of_names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        if names.into_iter().any(|name| is_root_configuration(name.as_ref())) {
            Self::OpenTofu
        } else {
            Self::Cue
        }
    }

    /// `opentofu` or `cue`, as it stands in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenTofu => "opentofu",
            Self::Cue => "cue",
        }
    }
}

impl fmt::Display for ModuleKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What a zip holds, which decides how large it may be and which names may be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A module, of that kind where it is known.
    Module(Option<ModuleKind>),
    /// A provider for one system.
    Provider,
}

impl From<Option<ModuleKind>> for Contents {
    fn from(kind: Option<ModuleKind>) -> Self {
        Self::Module(kind)
    }
}

impl Contents {
    /// The most bytes that the zip may have.
    pub fn max_zip_size(self) -> u64 {
        match self {
            Self::Module(_) => check::MAX_ZIP_SIZE,
            Self::Provider => check::MAX_PROVIDER_ZIP_SIZE,
        }
    }

    /// The most bytes that all files may have, unpacked.
    pub fn max_unpacked_size(self) -> u64 {
        match self {
            Self::Module(_) => check::MAX_UNPACKED_SIZE,
            Self::Provider => check::MAX_PROVIDER_UNPACKED_SIZE,
        }
    }
}

fn is_root_configuration(name: &str) -> bool {
    let stem = name.strip_suffix(".json").unwrap_or(name);
    !name.contains('/') && !name.starts_with('.') && matches!(stem.rsplit_once('.'), Some((_, "tf" | "tofu")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_at_the_root_makes_an_opentofu_module() {
        for names in [
            &["main.tf"][..],
            &["x.cue", "a.tofu"],
            &["cue.mod/module.cue", "main.tf.json"],
            &["a.tofu.json"],
        ] {
            assert_eq!(ModuleKind::of_names(names), ModuleKind::OpenTofu, "{names:?}");
        }
        for names in [
            &[][..],
            &["modules/a/main.tf"],
            &[".main.tf"],
            &["main.tf.md"],
            &["a.json"],
            &["main.tftest.hcl"],
        ] {
            assert_eq!(ModuleKind::of_names(names), ModuleKind::Cue, "{names:?}");
        }
    }
}
