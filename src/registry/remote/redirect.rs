//! Where a request may go when an answer names another place (redirects, upload locations, token realms).
//!
//! A registry is a stranger's machine: it may try to have credentials sent elsewhere, or to reach machines that only we can
//! reach. So credentials stay on the registry's origin, https is never left, and addresses of inner networks are refused
//! unless the registry itself lives there. Names are checked where they are resolved, so that no name stands for such an
//! address between the check and the connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::host::RegistryHost;

/// How many redirects are followed: storage behind a registry takes one, a mirror in front of it another.
pub(super) const MAX_REDIRECTS: usize = 5;

/// From where an address can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// From everywhere.
    Public,
    /// From an inner network.
    Private,
    /// From this machine.
    Loopback,
    /// Link-local (where clouds keep their metadata service), unspecified, multicast: never a place of content.
    Special,
}

impl Reach {
    /// The reach of an address.
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) if address.is_loopback() => Self::Loopback,
            IpAddr::V4(address) if address.is_private() || is_carrier_nat(address) => Self::Private,
            IpAddr::V4(address)
                if address.is_link_local()
                    || address.is_unspecified()
                    || address.is_broadcast()
                    || address.is_multicast()
                    || address.octets()[0] == 0 =>
            {
                Self::Special
            }
            IpAddr::V6(address) if address.is_loopback() => Self::Loopback,
            IpAddr::V6(address) if address.segments()[..6] == TRANSLATED => {
                let [.., a, b, c, d] = address.octets();
                Self::of(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
            }
            IpAddr::V6(address) if address.is_unique_local() => Self::Private,
            IpAddr::V6(address)
                if address.is_unicast_link_local() || address.is_unspecified() || address.is_multicast() =>
            {
                Self::Special
            }
            _ => Self::Public,
        }
    }

    /// What a host says by itself; a name says nothing, save `localhost`.
    fn of_host(host: &Host<&str>) -> Self {
        match host {
            Host::Domain(name) if *name == "localhost" || name.ends_with(".localhost") => Self::Loopback,
            Host::Domain(_) => Self::Public,
            Host::Ipv4(address) => Self::of(IpAddr::V4(*address)),
            Host::Ipv6(address) => Self::of(IpAddr::V6(*address)),
        }
    }

    /// The reach of a registry; its name is resolved.
    pub(super) async fn of_registry(registry: &RegistryHost) -> Self {
        match registry.host() {
            Host::Ipv4(address) => Self::of(IpAddr::V4(*address)),
            Host::Ipv6(address) => Self::of(IpAddr::V6(*address)),
            Host::Domain(name) => match tokio::net::lookup_host((name.as_str(), 0)).await {
                Ok(addresses) => {
                    addresses.map(|address| Self::of(address.ip())).max().unwrap_or(Self::Public)
                }
                // A proxy may resolve what this machine cannot.
                Err(_) => Self::Public,
            },
        }
    }

    /// Whether a registry of this reach may send us to `target`.
    fn allows(self, target: Self) -> bool {
        match target {
            Self::Public => true,
            Self::Private => matches!(self, Self::Private | Self::Loopback),
            Self::Loopback => self == Self::Loopback,
            Self::Special => false,
        }
    }
}

/// `64:ff9b::/96`: an IPv4 address behind a translator (RFC 6052).
const TRANSLATED: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// 100.64.0.0/10: shared by the customers of a carrier, and used by overlay networks.
fn is_carrier_nat(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 100 && (64..128).contains(&second)
}

/// Why a place is not gone to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RedirectError {
    /// Not http or https, or with a user name in it.
    #[error("it names a place that is no plain http or https URL")]
    Scheme,
    /// From https to http.
    #[error("it leads from https to http")]
    Downgrade,
    /// An address of an inner network.
    #[error("it leads to an address of a private network, of this machine or of its link")]
    PrivateAddress,
    /// More than [`MAX_REDIRECTS`].
    #[error("it redirects more than {MAX_REDIRECTS} times")]
    TooMany,
}

/// Scheme, host and port are the same.
pub(super) fn same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host() == other.host()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// Whether an answer from `from` may send us to `target`, for a registry of reach `registry`.
pub(super) fn check(from: &Url, target: &Url, registry: Reach) -> Result<(), RedirectError> {
    if !matches!(target.scheme(), "http" | "https")
        || !target.username().is_empty()
        || target.password().is_some()
    {
        return Err(RedirectError::Scheme);
    }
    if from.scheme() == "https" && target.scheme() == "http" {
        return Err(RedirectError::Downgrade);
    }
    let host = target.host().ok_or(RedirectError::Scheme)?;
    if registry.allows(Reach::of_host(&host)) { Ok(()) } else { Err(RedirectError::PrivateAddress) }
}

/// Whether credentials may be sent to `realm` for the registry at `base`: no downgrade, and no literal private address but the
/// registry's own. Names are checked by [`GuardedResolver`] as for redirects.
pub(super) fn check_realm(base: &Url, realm: &Url) -> Result<(), RedirectError> {
    let is_own = || {
        let is_loopback = |url: &Url| url.host().is_some_and(|host| Reach::of_host(&host) == Reach::Loopback);
        base.host() == realm.host() || (is_loopback(base) && is_loopback(realm))
    };
    match check(base, realm, Reach::Public) {
        Err(RedirectError::PrivateAddress) if is_own() => Ok(()),
        outcome => outcome,
    }
}

/// Resolves names for requests that leave the registry's origin, and drops addresses that the registry may not send us to.
pub(super) struct GuardedResolver(pub(super) Reach);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let registry = self.0;
        Box::pin(async move {
            let all = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> =
                all.filter(|address| registry.allows(Reach::of(address.ip()))).collect();
            if allowed.is_empty() {
                return Err(RedirectError::PrivateAddress.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

impl GuardedResolver {
    /// As reqwest takes it.
    pub(super) fn shared(registry: Reach) -> Arc<Self> {
        Arc::new(Self(registry))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_told_apart() {
        for (address, reach) in [
            ("8.8.8.8", Reach::Public),
            ("10.1.2.3", Reach::Private),
            ("172.31.0.1", Reach::Private),
            ("192.168.0.1", Reach::Private),
            ("100.64.0.1", Reach::Private),
            ("127.8.8.8", Reach::Loopback),
            ("169.254.169.254", Reach::Special),
            ("0.0.0.0", Reach::Special),
            ("::1", Reach::Loopback),
            ("::ffff:127.0.0.1", Reach::Loopback),
            ("::ffff:169.254.169.254", Reach::Special),
            ("64:ff9b::a00:1", Reach::Private),
            ("fd00::1", Reach::Private),
            ("fe80::1", Reach::Special),
            ("2001:db8::1", Reach::Public),
        ] {
            assert_eq!(Reach::of(address.parse().unwrap()), reach, "{address}");
        }
    }

    #[test]
    fn a_public_registry_leads_to_public_places_alone() {
        let from = url("https://registry.example/v2/");
        for target in ["https://cdn.example/x", "https://8.8.8.8/x", "https://registry.example:8443/x"] {
            assert_eq!(check(&from, &url(target), Reach::Public), Ok(()), "{target}");
        }
        assert_eq!(check(&from, &url("http://cdn.example/x"), Reach::Public), Err(RedirectError::Downgrade));
        for target in ["ftp://cdn.example/", "file:///etc/passwd", "https://user@cdn.example/"] {
            assert_eq!(check(&from, &url(target), Reach::Public), Err(RedirectError::Scheme), "{target}");
        }
        for target in [
            "https://127.0.0.1/x",
            "https://localhost/x",
            "https://a.localhost/",
            "https://10.0.0.1/x",
            "https://[::1]/x",
            "https://169.254.169.254/latest",
            "https://0x7f.1/",
            "https://[::ffff:10.0.0.1]/",
        ] {
            assert_eq!(
                check(&from, &url(target), Reach::Public),
                Err(RedirectError::PrivateAddress),
                "{target}"
            );
        }
    }

    #[test]
    fn an_inner_registry_leads_to_inner_places() {
        let from = url("http://10.0.0.1/v2/");
        assert_eq!(check(&from, &url("http://10.0.0.2/x"), Reach::Private), Ok(()));
        let refused = Err(RedirectError::PrivateAddress);
        assert_eq!(check(&from, &url("http://127.0.0.1/x"), Reach::Private), refused);
        assert_eq!(check(&from, &url("http://169.254.169.254/x"), Reach::Loopback), refused);
    }

    #[test]
    fn a_realm_is_public_or_the_registry_itself() {
        let base = url("https://registry.example/");
        assert_eq!(check_realm(&base, &url("https://auth.example/token")), Ok(()));
        for realm in [
            "http://auth.example/token",
            "https://169.254.169.254/",
            "https://127.0.0.1/",
            "https://10.0.0.1/",
            "https://[fd00::1]/",
        ] {
            assert!(check_realm(&base, &url(realm)).is_err(), "{realm}");
        }
        let inner = url("http://10.0.0.1:5000/");
        assert_eq!(check_realm(&inner, &url("http://10.0.0.1:5001/token")), Ok(()));
        assert!(check_realm(&inner, &url("http://10.0.0.2/token")).is_err());
        assert_eq!(check_realm(&url("http://127.0.0.1:1/"), &url("http://localhost:2/token")), Ok(()));
    }

    #[test]
    fn origin_is_scheme_host_and_port() {
        let one = url("https://a.example/x");
        assert!(same_origin(&one, &url("https://A.example:443/y")));
        for other in ["http://a.example/x", "https://a.example:444/x", "https://b.example/x"] {
            assert!(!same_origin(&one, &url(other)), "{other}");
        }
    }

    #[tokio::test]
    async fn a_name_does_not_stand_for_an_inner_address() {
        let answer = GuardedResolver(Reach::Public).resolve("localhost".parse().unwrap()).await;
        assert!(answer.is_err());
        let answer = GuardedResolver(Reach::Loopback).resolve("localhost".parse().unwrap()).await;
        assert!(answer.unwrap().next().is_some());
    }
}
