//! Addresses of OpenTofu modules in a registry: `[HOST/]NAMESPACE/NAME/SYSTEM`.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::path::{CuePath, Host, PathError, shorten};
use crate::oci::Repository;

/// Hosts whose paths OpenTofu takes for repositories of files.
const FORGES: [&str; 2] = ["github.com", "bitbucket.org"];

/// An address. Namespace and name keep their case, but compare without it, as at the public registries.
#[derive(Clone, Debug)]
pub struct TofuAddress {
    host: Option<Host>,
    namespace: String,
    name: String,
    system: String,
}

impl TofuAddress {
    /// Reads `acme/vpc/aws` or `host[:port]/acme/vpc/aws`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let error = || PathError::Address(shorten(text));
        let parts: Vec<&str> = text.split('/').collect();
        let (host, [namespace, name, system]) = match parts[..] {
            [namespace, name, system] => (None, [namespace, name, system]),
            [host, namespace, name, system] => (Some(Self::parse_host(host)?), [namespace, name, system]),
            _ => return Err(error()),
        };
        if !is_word(namespace) || !is_word(name) || !is_system(system) {
            return Err(error());
        }
        Ok(Self { host, namespace: namespace.to_owned(), name: name.to_owned(), system: system.to_owned() })
    }

    fn parse_host(text: &str) -> Result<Host, PathError> {
        let host = Host::parse(text)?;
        if FORGES.contains(&host.as_str()) {
            return Err(PathError::ForgeHost(host.to_string()));
        }
        // Without a dot it would be a folder to OpenTofu.
        if host.as_str().contains('.') { Ok(host) } else { Err(PathError::Host(shorten(text))) }
    }

    /// Reads the `source` of a module block as OpenTofu does: `None` where it is something else than a registry's address. What
    /// stands behind `//` is a folder inside of the module, here without `.`, `..` and empty parts. An address that takes
    /// parameters or leads out of the module is none of a registry's.
    pub fn parse_source(text: &str) -> Option<(Self, Option<String>)> {
        let (address, folder) = text.split_once("//").unwrap_or((text, ""));
        if folder.contains('?') {
            return None;
        }
        let mut parts: Vec<&str> = Vec::new();
        for part in folder.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()?),
                part => parts.push(part),
            }
        }
        let folder = (!parts.is_empty()).then(|| parts.join("/"));
        Some((Self::parse(address).ok()?, folder))
    }

    /// The host, where the address names one.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Whose module it is, as it was written.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What it is called, as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which system it is for; lower case.
    pub fn system(&self) -> &str {
        &self.system
    }

    /// The same module on another host.
    #[must_use]
    pub fn with_host(&self, host: Host) -> Self {
        Self { host: Some(host), ..self.clone() }
    }

    /// The address as a module path; on `default_host` where it names no host. Upper case is folded, since a repository has none.
    pub fn cue_path(&self, default_host: &Host) -> Result<CuePath, PathError> {
        let host = self.host.as_ref().unwrap_or(default_host);
        for part in [&self.namespace, &self.name] {
            let folded = part.to_ascii_lowercase();
            let unstorable =
                |reason| PathError::Unstorable { address: self.to_string(), part: part.clone(), reason };
            if folded.parse::<Repository>().is_err() {
                return Err(unstorable(
                    "letters and digits are joined there by one `_`, two `_`, or any number of `-`, not by a mixture",
                ));
            }
        }
        let path = format!("{host}/{}/{}/{}", self.namespace, self.name, self.system).to_ascii_lowercase();
        CuePath::parse(&path)
    }

    /// The address that a path of four parts is, where they fit.
    pub fn from_cue_path(path: &CuePath) -> Option<Self> {
        if path.as_str().matches('/').count() == 3 { Self::parse(path.as_str()).ok() } else { None }
    }

    fn folded(&self) -> (Option<&Host>, String, String, &str) {
        (
            self.host.as_ref(),
            self.namespace.to_ascii_lowercase(),
            self.name.to_ascii_lowercase(),
            &self.system,
        )
    }
}

/// `[0-9A-Za-z](?:[0-9A-Za-z-_]{0,62}[0-9A-Za-z])?`
fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && bytes[0].is_ascii_alphanumeric()
        && bytes[bytes.len() - 1].is_ascii_alphanumeric()
}

/// `[0-9a-z]{1,64}`
fn is_system(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

impl PartialEq for TofuAddress {
    fn eq(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl Eq for TofuAddress {}

impl Hash for TofuAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded().hash(state);
    }
}

impl fmt::Display for TofuAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(formatter, "{host}/")?;
        }
        write!(formatter, "{}/{}/{}", self.namespace, self.name, self.system)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_host() {
        let address = TofuAddress::parse("Azure/naming/azurerm").unwrap();
        assert_eq!((address.host(), address.to_string().as_str()), (None, "Azure/naming/azurerm"));
        let address = TofuAddress::parse("Modules.acme.example:8443/acme/vpc/aws").unwrap();
        assert_eq!(address.to_string(), "modules.acme.example/acme/vpc/aws");
        assert_eq!(address, TofuAddress::parse("modules.acme.example/ACME/Vpc/aws").unwrap());
    }

    #[test]
    fn what_opentofu_does_not_take_is_refused() {
        for text in [
            "",
            "a/b",
            "a/b/C",
            "-a/b/c",
            "a/b_/c",
            "a//c",
            "a/b/c/d/e",
            "localhost:8443/a/b/c",
            "github.com/a/b",
            "github.com/a/b/c",
            "a/b/c-d",
            "é/b/c",
            "../b/c",
            "a b/c/d",
        ] {
            assert!(TofuAddress::parse(text).is_err(), "{text:?}");
        }
        assert!(TofuAddress::parse("127.0.0.1:8443/a/b/c").is_ok());
    }

    #[test]
    fn sources_are_told_apart_as_opentofu_does() {
        let (address, folder) = TofuAddress::parse_source("acme/vpc/aws//modules/subnet").unwrap();
        assert_eq!((address.name(), folder.as_deref()), ("vpc", Some("modules/subnet")));
        for (source, expected) in [
            ("a/b/c//", None),
            ("a/b/c//.", None),
            ("a/b/c//./x//y/../z/", Some("x/z")),
            ("a.b/c/d/e//x//y", Some("x/y")),
        ] {
            assert_eq!(TofuAddress::parse_source(source).unwrap().1.as_deref(), expected, "{source}");
        }
        for source in [
            "./a/b/c",
            "../a",
            "git::https://x/y",
            "https://x/y.zip",
            "github.com/acme/vpc",
            "oci://a/b",
            "hashicorp/consul",
            "acme/vpc/aws?x=y",
            "acme/vpc/aws//modules/subnet?ref=v1",
            "acme/vpc/aws//../other",
            "acme/vpc/aws//x/../..",
        ] {
            assert!(TofuAddress::parse_source(source).is_none(), "{source}");
        }
    }

    #[test]
    fn an_address_becomes_a_path_in_lower_case_or_is_refused() {
        let host = Host::internal();
        let path = |text: &str| TofuAddress::parse(text).unwrap().cue_path(&host);
        assert_eq!(path("Azure/naming/azurerm").unwrap().as_str(), "modules.internal/azure/naming/azurerm");
        assert_eq!(path("x.y/a/b__c/d").unwrap().as_str(), "x.y/a/b__c/d");
        for text in ["a/a_-b/c", "a/b___c/d", "a_-b/c/d"] {
            assert!(matches!(path(text), Err(PathError::Unstorable { .. })), "{text}");
        }
        let back = TofuAddress::from_cue_path(&path("acme/vpc/aws").unwrap()).unwrap();
        assert_eq!(back.to_string(), "modules.internal/acme/vpc/aws");
        assert!(TofuAddress::from_cue_path(&CuePath::parse("example.com/net/vpc").unwrap()).is_none());
    }
}
