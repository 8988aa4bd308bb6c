//! Addresses as they are typed: of an OpenTofu module, a CUE module, a provider, or a place in a registry, with what is asked of
//! its versions.

use std::fmt;
use std::str::FromStr;

use super::constraint::{Constraint, ConstraintError};
use super::path::{CuePath, Host, PathError, parse_major, shorten};
use super::tofu_address::TofuAddress;
use crate::oci::{Digest, Repository, Tag};

/// What an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `[HOST/]NAMESPACE/NAME/SYSTEM`
    Tofu(TofuAddress),
    /// A CUE module by its path.
    Cue(CuePath),
    /// `provider:HOST/NAMESPACE/TYPE`
    Provider(ProviderAddress),
    /// `oci://...`
    Oci(OciAddress),
}

/// An address and what stands behind its `@`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressAt {
    /// What is named.
    pub address: Address,
    /// Which versions are meant; any where nothing stands there.
    pub version: Option<VersionQuery>,
}

/// What is asked of the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionQuery {
    /// `1.2.0`, `~> 1.2`
    Constraint(Constraint),
    /// `latest`
    Latest,
    /// `v1`: the newest of that major version (CUE modules).
    Major(u64),
}

/// `HOST/NAMESPACE/TYPE`, lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderAddress {
    host: Host,
    namespace: String,
    kind: String,
}

/// A manifest in a registry, outside of all rules of where modules are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciAddress {
    /// Host and port.
    pub registry: String,
    /// The repository.
    pub repository: Repository,
    /// The tag; `latest` where neither it nor a digest is named.
    pub tag: Option<Tag>,
    /// The digest.
    pub digest: Option<Digest>,
}

/// The text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// What is named cannot be read.
    #[error(transparent)]
    Path(#[from] PathError),
    /// What is asked of the version cannot be read.
    #[error("in `{address}`: {source}")]
    Version {
        /// The whole.
        address: String,
        /// Why.
        source: ConstraintError,
    },
    /// Neither an address of OpenTofu's nor a path of CUE's.
    #[error(
        "`{0}` is not an address: expected `NAMESPACE/NAME/SYSTEM` (OpenTofu), `example.com/PATH@v1` (CUE), `provider:HOST/NAMESPACE/TYPE` \
         or `oci://HOST/REPOSITORY:TAG`"
    )]
    Unknown(String),
}

impl FromStr for AddressAt {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(rest) = text.strip_prefix("oci://") {
            return Ok(Self { address: Address::Oci(OciAddress::parse(rest)?), version: None });
        }
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let address = if let Some(path) = name.strip_prefix("cue:") {
            Address::Cue(CuePath::parse(path)?)
        } else if let Some(provider) = name.strip_prefix("provider:") {
            Address::Provider(ProviderAddress::parse(provider)?)
        } else {
            match (TofuAddress::parse(name), CuePath::parse(name)) {
                (Ok(address), _) => Address::Tofu(address),
                (Err(_), Ok(path)) => Address::Cue(path),
                // These say more than that it is no address at all.
                (Err(error @ (PathError::ForgeHost(_) | PathError::Host(_))), Err(_))
                    if name.contains('/') =>
                {
                    return Err(error.into());
                }
                _ => return Err(AddressError::Unknown(shorten(text))),
            }
        };
        let version = version
            .map(VersionQuery::from_str)
            .transpose()
            .map_err(|source| AddressError::Version { address: shorten(text), source })?;
        Ok(Self { address, version })
    }
}

impl FromStr for VersionQuery {
    type Err = ConstraintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        match text.strip_prefix('v').and_then(parse_major) {
            Some(major) => Ok(Self::Major(major)),
            None => text.parse().map(Self::Constraint),
        }
    }
}

impl ProviderAddress {
    /// Reads `HOST/NAMESPACE/TYPE`, or `NAMESPACE/TYPE` on OpenTofu's default host. A host with a port is refused: the network mirror
    /// protocol has no way to ask for it.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let error = || PathError::Provider(shorten(text));
        let parts: Vec<&str> = text.split('/').collect();
        let (host, namespace, kind) = match parts[..] {
            [namespace, kind] => (Host::opentofu_default(), namespace, kind),
            [host, namespace, kind] if !host.contains(':') => (Host::parse(host)?, namespace, kind),
            _ => return Err(error()),
        };
        let (namespace, kind) = (namespace.to_ascii_lowercase(), kind.to_ascii_lowercase());
        let is_word =
            |text: &String| text.len() <= 64 && !text.contains('.') && text.parse::<Repository>().is_ok();
        if is_word(&namespace) && is_word(&kind) { Ok(Self { host, namespace, kind }) } else { Err(error()) }
    }

    /// The host of its origin.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Whose provider it is.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What it is for.
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

impl OciAddress {
    /// Reads what stands behind `oci://`: `host/repo:tag`, `host/repo@sha256:...`, or OpenTofu's `host/repo?tag=...`.
    fn parse(text: &str) -> Result<Self, PathError> {
        let error = || PathError::Oci(format!("oci://{}", shorten(text)));
        let (registry, rest) = text.split_once('/').ok_or_else(error)?;
        let (name, tag, digest) = if let Some((name, query)) = rest.split_once('?') {
            match query.split_once('=') {
                Some(("tag", tag)) => (name, Some(tag), None),
                Some(("digest", digest)) => (name, None, Some(digest)),
                _ => return Err(error()),
            }
        } else if let Some((name, digest)) = rest.split_once('@') {
            (name, None, Some(digest))
        } else if let Some((name, tag)) = rest.split_once(':') {
            (name, Some(tag), None)
        } else {
            (rest, None, None)
        };
        let is_host =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
        if registry.is_empty() || !registry.bytes().all(is_host) {
            return Err(error());
        }
        Ok(Self {
            registry: registry.to_ascii_lowercase(),
            repository: name.parse().map_err(|_| error())?,
            tag: tag.map(str::parse).transpose().map_err(|_| error())?,
            digest: digest.map(str::parse).transpose().map_err(|_| error())?,
        })
    }
}

impl Address {
    /// What a folder with the thing is called where nothing else is said.
    pub fn short_name(&self) -> &str {
        let last = |text: &'_ str| -> usize { text.rfind('/').map_or(0, |slash| slash + 1) };
        match self {
            Self::Tofu(address) => address.name(),
            Self::Cue(path) => &path.as_str()[last(path.as_str())..],
            Self::Provider(address) => address.kind(),
            Self::Oci(address) => &address.repository.as_str()[last(address.repository.as_str())..],
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tofu(address) => address.fmt(formatter),
            // A path that would be read as an address of OpenTofu's says that it is none.
            Self::Cue(path) if TofuAddress::from_cue_path(path).is_some() => write!(formatter, "cue:{path}"),
            Self::Cue(path) => path.fmt(formatter),
            Self::Provider(address) => write!(formatter, "provider:{address}"),
            Self::Oci(address) => address.fmt(formatter),
        }
    }
}

impl fmt::Display for ProviderAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.host, self.namespace, self.kind)
    }
}

impl fmt::Display for OciAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "oci://{}/{}", self.registry, self.repository)?;
        match (&self.tag, &self.digest) {
            (_, Some(digest)) => write!(formatter, "@{digest}"),
            (Some(tag), None) => write!(formatter, ":{tag}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> AddressAt {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_form_of_an_address_is_read() {
        assert!(matches!(parse("acme/vpc/aws").address, Address::Tofu(_)));
        assert!(matches!(parse("modules.acme.example/acme/vpc/aws").address, Address::Tofu(_)));
        assert!(matches!(parse("example.com/net/vpc/a/b").address, Address::Cue(_)));
        assert!(matches!(parse("cue:modules.acme.example/acme/vpc/aws").address, Address::Cue(_)));
        assert!(matches!(
            parse("provider:registry.opentofu.org/hashicorp/time").address,
            Address::Provider(_)
        ));
        // OpenTofu takes this host for a repository of files; to CUE it is a host as any other.
        for text in ["github.com/acme/vpc", "github.com/acme/vpc/aws"] {
            assert!(matches!(parse(text).address, Address::Cue(_)), "{text}");
        }
        let digest = Digest::of(b"");
        for text in [
            "oci://127.0.0.1:5000/acme/vpc/aws:v1.0.0".to_owned(),
            format!("oci://ghcr.io/acme/vpc@{digest}"),
            "oci://ghcr.io/a".to_owned(),
        ] {
            let read = parse(&text);
            assert!(matches!(read.address, Address::Oci(_)), "{text}");
            assert_eq!(read.address.to_string(), text);
        }
        assert_eq!(
            parse("oci://localhost:5000/a/b?tag=v1").address.to_string(),
            "oci://localhost:5000/a/b:v1"
        );
    }

    #[test]
    fn what_stands_behind_the_at_sign_is_read() {
        let version = |text: &str| parse(text).version;
        assert_eq!(version("acme/vpc/aws"), None);
        assert_eq!(version("example.com/net/vpc@v1"), Some(VersionQuery::Major(1)));
        assert_eq!(version("example.com/net/vpc@latest"), Some(VersionQuery::Latest));
        let exact = |text: &str| match version(text) {
            Some(VersionQuery::Constraint(constraint)) => {
                constraint.exact().map(|version| version.to_string())
            }
            _ => None,
        };
        assert_eq!(exact("example.com/net/vpc@v1.2.0").as_deref(), Some("1.2.0"));
        assert_eq!(exact("acme/vpc/aws@1.2.0").as_deref(), Some("1.2.0"));
        assert_eq!(version("acme/vpc/aws@~> 1.2"), Some(VersionQuery::Constraint("~> 1.2".parse().unwrap())));
    }

    #[test]
    fn an_empty_version_is_wrong_and_says_why() {
        let error = "acme/vpc/aws@".parse::<AddressAt>().unwrap_err();
        assert!(error.to_string().contains("in quotes"), "{error}");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "vpc",
            "a/b",
            "./module",
            "https://x/y",
            "oci://",
            "oci://host",
            "oci://ho st/a",
            "oci://h/A",
            "oci://u@h/a",
            "provider:a:1/b/c",
            "provider:x",
            "cue:vpc",
            "github.com/Acme/vpc/aws",
            "acme/vpc/aws@^1",
        ] {
            assert!(text.parse::<AddressAt>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(text in "\\PC*") {
            let _ = text.parse::<AddressAt>();
        }
    }
}
