//! Module paths as CUE has them, and the hosts in front of them.
//!
//! An OpenTofu module has such a path too (`host/namespace/name/system`), so that a dependency on either kind is named by one
//! grammar.

use std::fmt;
use std::str::FromStr;

use super::version::Version;
use crate::oci::Repository;

/// Names that Windows keeps for devices; `cue` refuses them as elements of a path.
const RESERVED: [&str; 4] = ["con", "prn", "aux", "nul"];

/// The text is no module path, host or address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Not the path of a module.
    #[error(
        "`{0}` is not a module path: expected a host with a dot, then lower-case parts joined by `/`, as in `example.com/net/vpc`"
    )]
    Path(String),
    /// Not a path with a major version.
    #[error("`{0}` is not a module path with a major version, as in `example.com/net/vpc@v1`")]
    Major(String),
    /// Not a path with a version.
    #[error("`{0}` is not a module with its version, as in `example.com/net/vpc@v1.2.0`")]
    Version(String),
    /// Not a host.
    #[error("`{0}` is not a host name, as in `modules.example.com`")]
    Host(String),
    /// A host that OpenTofu never asks as a module registry.
    #[error(
        "`{0}` is not a module registry to OpenTofu, which takes such a source for a repository of its files"
    )]
    ForgeHost(String),
    /// Not an address of an OpenTofu module.
    #[error(
        "`{0}` is not the address of a module: expected `NAMESPACE/NAME/SYSTEM`, as in `acme/vpc/aws`, with a host in front where it \
         has one"
    )]
    Address(String),
    /// An address that no repository can have.
    #[error(
        "`{address}` cannot be kept in a registry: the part `{part}` is no part of a repository's name ({reason})"
    )]
    Unstorable {
        /// The address.
        address: String,
        /// The offending part.
        part: String,
        /// Why.
        reason: &'static str,
    },
    /// Not an address of a provider.
    #[error(
        "`{0}` is not the address of a provider: expected `HOST/NAMESPACE/TYPE`, as in `registry.opentofu.org/hashicorp/time`"
    )]
    Provider(String),
    /// Not a reference into a registry.
    #[error(
        "`{0}` is not a reference: expected `oci://HOST/REPOSITORY:TAG` or `oci://HOST/REPOSITORY@sha256:...`"
    )]
    Oci(String),
}

/// At most so much of a wrong text is repeated.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}

/// A host name, lower case, without a port: hosts are compared without it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(String);

impl Host {
    /// The placeholder for the host of a module that was pushed without one.
    pub const INTERNAL: &'static str = "modules.internal";
    /// The host of an address that names none.
    pub const OPENTOFU_DEFAULT: &'static str = "registry.opentofu.org";

    /// Reads `host` or `host:port`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let error = || PathError::Host(shorten(text));
        let host = match text.split_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => host,
            Some(_) => return Err(error()),
            None => text,
        };
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if host.len() <= 253 && host.split('.').all(is_label) {
            Ok(Self(host.to_ascii_lowercase()))
        } else {
            Err(error())
        }
    }

    /// The placeholder.
    pub fn internal() -> Self {
        Self(Self::INTERNAL.to_owned())
    }

    /// OpenTofu's default host.
    pub fn opentofu_default() -> Self {
        Self(Self::OPENTOFU_DEFAULT.to_owned())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Host {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A module path without its major version: `example.com/net/vpc`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CuePath(String);

impl CuePath {
    /// Reads a path by the rules of `cue`: the first part has a dot and is a host's name, and the whole is a repository's name.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let first = text.split('/').next().unwrap_or_default();
        let is_host = first.contains('.') && first.bytes().all(|byte| byte != b'_');
        let is_reserved = |part: &str| {
            let stem = part.split('.').next().unwrap_or_default();
            let is_numbered = |name: &str| {
                stem.strip_prefix(name).is_some_and(|rest| matches!(rest.as_bytes(), [b'1'..=b'9']))
            };
            RESERVED.contains(&stem) || is_numbered("com") || is_numbered("lpt")
        };
        if is_host && text.parse::<Repository>().is_ok() && !text.split('/').any(is_reserved) {
            Ok(Self(text.to_owned()))
        } else {
            Err(PathError::Path(shorten(text)))
        }
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host in front.
    pub fn first_element(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl FromStr for CuePath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for CuePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A module path with its major version: `example.com/net/vpc@v1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModulePath {
    base: CuePath,
    major: u64,
}

impl ModulePath {
    /// The path of a major version.
    pub fn new(base: CuePath, major: u64) -> Self {
        Self { base, major }
    }

    /// The path without the major version.
    pub fn base(&self) -> &CuePath {
        &self.base
    }

    /// The major version.
    pub fn major(&self) -> u64 {
        self.major
    }
}

impl FromStr for ModulePath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || PathError::Major(shorten(text));
        let (base, major) = text.split_once("@v").ok_or_else(error)?;
        Ok(Self { base: base.parse()?, major: parse_major(major).ok_or_else(error)? })
    }
}

/// The digits of `v1`, without leading zeros.
pub(super) fn parse_major(digits: &str) -> Option<u64> {
    let is_canonical =
        digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if is_canonical { digits.parse().ok() } else { None }
}

impl fmt::Display for ModulePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@v{}", self.base, self.major)
    }
}

/// A version of a module: `example.com/net/vpc@v1.2.0`, the value of `works.cue.module`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleVersion {
    base: CuePath,
    version: Version,
}

impl ModuleVersion {
    /// That version of that module.
    pub fn new(base: CuePath, version: Version) -> Self {
        Self { base, version }
    }

    /// The path without a major version.
    pub fn base(&self) -> &CuePath {
        &self.base
    }

    /// The version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The path with the version's major version.
    pub fn module_path(&self) -> ModulePath {
        ModulePath { base: self.base.clone(), major: self.version.major() }
    }
}

impl FromStr for ModuleVersion {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || PathError::Version(shorten(text));
        let (base, version) = text.split_once('@').ok_or_else(error)?;
        if !version.starts_with('v') {
            return Err(error());
        }
        Ok(Self { base: base.parse()?, version: Version::parse(version).map_err(|_| error())? })
    }
}

impl fmt::Display for ModuleVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@v{}", self.base, self.version)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_cue() {
        for path in
            ["example.com", "example.com/net/vpc", "a.b/b__c/d---e/f.g", "modules.internal/acme/vpc/aws"]
        {
            assert_eq!(CuePath::parse(path).unwrap().as_str(), path);
        }
        for path in [
            "",
            "example",
            "example/vpc",
            "Example.com/a",
            "a.b/",
            "a.b//c",
            "a.b/B",
            "a.b/c_",
            "a.b/b___c",
            "a.b/con",
            "a.b/com1.x",
            "a_b.c/d",
            "a.b/../c",
            "-a.b/c",
            "a.b/c~d",
        ] {
            assert!(CuePath::parse(path).is_err(), "{path:?}");
        }
        assert!(CuePath::parse("a.b/com10/console").is_ok());
    }

    #[test]
    fn majors_and_versions_are_read_and_written() {
        let path: ModulePath = "example.com/net/vpc@v12".parse().unwrap();
        assert_eq!((path.major(), path.to_string().as_str()), (12, "example.com/net/vpc@v12"));
        for text in [
            "example.com/a",
            "example.com/a@1",
            "example.com/a@v",
            "example.com/a@v01",
            "example.com/a@v1.0.0",
            "example.com/a@latest",
            "example.com/a@v1@v2",
            "example.com/a@v+1",
        ] {
            assert!(text.parse::<ModulePath>().is_err(), "{text}");
        }
        let module: ModuleVersion = "example.com/net/vpc@v1.2.0-rc.1".parse().unwrap();
        assert_eq!(module.to_string(), "example.com/net/vpc@v1.2.0-rc.1");
        assert_eq!(module.module_path().to_string(), "example.com/net/vpc@v1");
        for text in ["example.com/a@1.2.0", "example.com/a@v1", "example.com/a", "@v1.2.0"] {
            assert!(text.parse::<ModuleVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_lose_their_port_and_their_case() {
        assert_eq!(Host::parse("Modules.Example.com:8443").unwrap().as_str(), "modules.example.com");
        assert_eq!(Host::parse("127.0.0.1:8080").unwrap().as_str(), "127.0.0.1");
        for host in
            ["", "a b", "a/b", "a:", "a:0", "a:x", "a:99999", "-a", "a..b", "é.com", "user@host", "[::1]"]
        {
            assert!(Host::parse(host).is_err(), "{host:?}");
        }
    }
}
