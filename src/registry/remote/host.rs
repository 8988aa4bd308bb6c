//! Names of registries: `ghcr.io`, `127.0.0.1:5000`, `[::1]:5000`.
//!
//! A name decides which credential is sent and where to, so it is taken only in the one spelling that a URL gives back:
//! `0x7f.1` or `registry.example@evil.example` could be read in two ways.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

/// Host and, where it has one, port of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegistryHost {
    name: String,
    host: Host,
}

/// The text is no name of a registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a registry: expected a host with or without a port, such as `ghcr.io` or `127.0.0.1:5000`"
)]
pub struct RegistryHostError {
    text: String,
}

/// Docker Hub's name, and the host that answers for it.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_ENDPOINT: &str = "registry-1.docker.io";

impl RegistryHost {
    /// The name as credentials are looked up by: lower case, `docker.io` for every name of Docker Hub.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Whether this is the machine itself: `localhost`, 127.0.0.0/8 or `[::1]`, also as an IPv4 address in IPv6.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.to_canonical().is_loopback(),
        }
    }

    /// Whether this is Docker Hub, which the tools call by several names.
    pub(in crate::registry) fn is_docker_hub(&self) -> bool {
        self.name == DOCKER_HUB
    }

    /// The host without port, parsed.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Host and port that requests go to.
    pub(super) fn endpoint(&self) -> &str {
        if self.is_docker_hub() { DOCKER_HUB_ENDPOINT } else { &self.name }
    }

    /// The URL below which the API lives.
    pub(super) fn base(&self, scheme: &str) -> Url {
        let text = format!("{scheme}://{}/", self.endpoint());
        text.parse().expect("the name was parsed as the authority of a URL")
    }
}

/// The one name of a host that has several.
pub(in crate::registry) fn canonical_name(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "index.docker.io" | DOCKER_HUB_ENDPOINT => DOCKER_HUB.to_owned(),
        _ => name,
    }
}

impl FromStr for RegistryHost {
    type Err = RegistryHostError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || RegistryHostError { text: text.chars().take(255).collect() };
        let lower = text.to_ascii_lowercase();
        let url = Url::parse(&format!("https://{lower}/")).map_err(|_| error())?;
        let host = url.host().ok_or_else(error)?.to_owned();
        let rest = lower.strip_prefix(&host.to_string()).ok_or_else(error)?;
        let is_port = |port: &str| {
            port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
        };
        if rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port) {
            Ok(Self { name: canonical_name(&lower), host })
        } else {
            Err(error())
        }
    }
}

impl fmt::Display for RegistryHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read() {
        for (text, base, loopback) in [
            ("ghcr.io", "https://ghcr.io/", false),
            ("GHCR.io", "https://ghcr.io/", false),
            ("docker.io", "https://registry-1.docker.io/", false),
            ("index.docker.io", "https://registry-1.docker.io/", false),
            ("localhost:5000", "https://localhost:5000/", true),
            ("127.9.9.9:5000", "https://127.9.9.9:5000/", true),
            ("[::1]:5000", "https://[::1]:5000/", true),
            ("[::1]", "https://[::1]/", true),
            ("[FD00::1]:5000", "https://[fd00::1]:5000/", false),
            ("[::ffff:7f00:1]:5000", "https://[::ffff:7f00:1]:5000/", true),
            ("localhost.example:5000", "https://localhost.example:5000/", false),
            ("10.0.0.1", "https://10.0.0.1/", false),
        ] {
            let host: RegistryHost = text.parse().unwrap();
            assert_eq!(host.base("https").as_str(), base);
            assert_eq!(host.is_loopback(), loopback, "{text}");
        }
        assert_eq!("registry-1.docker.io".parse::<RegistryHost>().unwrap().as_str(), "docker.io");
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for text in [
            "",
            ":5000",
            "a:0",
            "a:65536",
            "a:",
            "a:b",
            "a:+1",
            "a/b",
            "a@b",
            "a:b@c",
            "a?b",
            "a#b",
            "a b",
            "a\\b",
            "http://a",
            "0x7f.1",
            "127.1",
            "a\n",
            "::1",
            "[::1",
            "é.example",
            "[0:0::1]",
        ] {
            assert!(text.parse::<RegistryHost>().is_err(), "{text:?}");
        }
    }
}
