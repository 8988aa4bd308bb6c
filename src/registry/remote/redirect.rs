//! Where a request may go when an answer names another place (redirects, upload locations, token realms).
//!
//! A registry is a stranger's machine: it may try to have credentials sent elsewhere, or to reach machines that only we can
//! reach. So credentials stay on the registry's origin, https is never left, and addresses of inner networks are refused
//! unless the registry itself lives there. Names are checked where they are resolved, so that no name stands for such an
//! address between the check and the connection. Where the registry itself lives is told by the address that it answered from,
//! and not by its name: whoever owns a name may let it stand for any address for a moment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let first = address.octets()[0];
        if address.is_loopback() {
            Self::Loopback
        } else if METADATA_V4.contains(&address)
            || address.is_link_local()
            || address.is_unspecified()
            || address.is_broadcast()
            || address.is_multicast()
            || first == 0
        {
            Self::Special
        } else if address.is_private() || is_carrier_nat(address) || first >= 240 {
            Self::Private
        } else {
            Self::Public
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if let Some(address) = embedded_v4(address) {
            return Self::of_v4(address);
        }
        let segments = address.segments();
        if address.is_loopback() {
            Self::Loopback
        } else if address == METADATA_V6
            || address.is_unicast_link_local()
            || address.is_unspecified()
            || address.is_multicast()
        {
            Self::Special
        } else if address.is_unique_local()
            || segments[0] & 0xffc0 == 0xfec0
            || segments[..3] == LOCAL_TRANSLATED
        {
            Self::Private
        } else {
            Self::Public
        }
    }

    /// What a host says by itself; a name says nothing, save `localhost`.
    fn of_host(host: &Host<&str>) -> Self {
        match host {
            Host::Domain(name) if is_local_name(name) => Self::Loopback,
            Host::Domain(_) => Self::Public,
            Host::Ipv4(address) => Self::of(IpAddr::V4(*address)),
            Host::Ipv6(address) => Self::of(IpAddr::V6(*address)),
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
/// `64:ff9b:1::/48`: the same of a network's own (RFC 8215).
const LOCAL_TRANSLATED: [u16; 3] = [0x64, 0xff9b, 1];
/// Where clouds keep their metadata service beside 169.254.169.254: Alibaba's and Azure's, in ranges that are used for other
/// things too.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
/// AWS's, likewise.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// The IPv4 address that a packet to this one ends up at: behind a translator, through 6to4 (RFC 3056) or Teredo (RFC 4380), or
/// by the notation of old (RFC 4291, "IPv4-Compatible").
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let of = |high: u16, low: u16| Some(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    match segments {
        [0x2002, high, low, ..] => of(high, low),
        [0x2001, 0, .., high, low] => of(!high, !low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => of(high, low),
        [.., high, low] if segments[..6] == TRANSLATED => of(high, low),
        _ => None,
    }
}

/// The names of this machine (RFC 6761, section 6.3).
fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether a host is this machine, as far as it says so by itself.
pub(super) fn is_loopback(host: &Host<&str>) -> bool {
    Reach::of_host(host) == Reach::Loopback
}

/// From where the registry can be reached, as far as that is known: by its address, where it is named by that, else by those
/// that it answered from. Of several the one that most can reach counts.
pub(super) struct Reached {
    named: Option<Reach>,
    answered: Mutex<Option<Reach>>,
}

impl Reached {
    pub(super) fn of(registry: &RegistryHost) -> Self {
        let named = match registry.host() {
            Host::Domain(name) if !is_local_name(name) => None,
            Host::Domain(_) => Some(Reach::Loopback),
            Host::Ipv4(address) => Some(Reach::of(IpAddr::V4(*address))),
            Host::Ipv6(address) => Some(Reach::of(IpAddr::V6(*address))),
        };
        Self { named, answered: Mutex::new(None) }
    }

    /// The registry answered from this address.
    pub(super) fn answered_from(&self, address: IpAddr) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let reach = Reach::of(address);
        *answered = Some(answered.map_or(reach, |known| known.min(reach)));
    }

    /// Where nothing is known, all the world.
    pub(super) fn get(&self) -> Reach {
        let answered = || *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        self.named.or_else(answered).unwrap_or(Reach::Public)
    }
}

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
        let is_here = |url: &Url| url.host().is_some_and(|host| is_loopback(&host));
        base.host() == realm.host() || (is_here(base) && is_here(realm))
    };
    match check(base, realm, Reach::Public) {
        Err(RedirectError::PrivateAddress) if is_own() => Ok(()),
        outcome => outcome,
    }
}

/// Resolves names for requests that leave the registry's origin, and drops addresses that the registry may not send us to.
pub(super) struct GuardedResolver(pub(super) Arc<Reached>);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let registry = self.0.get();
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

/// How long a name is looked for that a proxy looks up anyway: behind one there may be nobody to ask.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// The same for a place that a proxy goes to for us, and whose address it chooses: none of those that this machine knows may be
/// a forbidden one. A name that this machine does not know, or not soon, is left to the proxy.
pub(super) async fn check_proxied(target: &Url, registry: Reach) -> Result<(), RedirectError> {
    let Some(Host::Domain(name)) = target.host() else { return Ok(()) };
    let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((name, 0)));
    let Ok(Ok(mut addresses)) = lookup.await else { return Ok(()) };
    if addresses.all(|address| registry.allows(Reach::of(address.ip()))) {
        Ok(())
    } else {
        Err(RedirectError::PrivateAddress)
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
            ("240.0.0.1", Reach::Private),
            ("255.255.255.255", Reach::Special),
            ("224.0.0.1", Reach::Special),
            ("100.100.100.200", Reach::Special),
            ("168.63.129.16", Reach::Special),
            ("fd00:ec2::254", Reach::Special),
            ("fec0::1", Reach::Private),
            ("64:ff9b:1::a00:1", Reach::Private),
            ("64:ff9b::808:808", Reach::Public),
            ("2002:7f00:1::", Reach::Loopback),
            ("2002:a9fe:a9fe::1", Reach::Special),
            ("2002:808:808::", Reach::Public),
            ("2001:0:4136:e378:8000:63bf:f5ff:fffe", Reach::Private),
            ("::a00:1", Reach::Private),
            ("::", Reach::Special),
            ("ff02::1", Reach::Special),
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

    fn reached(registry: &str) -> Arc<Reached> {
        Arc::new(Reached::of(&registry.parse().unwrap()))
    }

    #[tokio::test]
    async fn a_name_does_not_stand_for_an_inner_address() {
        let resolve = async |registry: &Arc<Reached>| {
            GuardedResolver(Arc::clone(registry)).resolve("localhost".parse().unwrap()).await
        };
        assert!(resolve(&reached("registry.example")).await.is_err());
        assert!(resolve(&reached("127.0.0.1:5000")).await.unwrap().next().is_some());
        let local = url("https://localhost/token");
        assert_eq!(check_proxied(&local, Reach::Public).await, Err(RedirectError::PrivateAddress));
        assert_eq!(check_proxied(&local, Reach::Loopback).await, Ok(()));
    }

    #[test]
    fn a_registry_lives_where_it_answers_from() {
        for (registry, reach) in [
            ("127.0.0.1:5000", Reach::Loopback),
            ("localhost:5000", Reach::Loopback),
            ("[::1]:5000", Reach::Loopback),
            ("10.0.0.1", Reach::Private),
            ("8.8.8.8", Reach::Public),
        ] {
            let reached = reached(registry);
            reached.answered_from("8.8.8.8".parse().unwrap());
            assert_eq!(reached.get(), reach, "{registry}");
        }
        let named = reached("registry.example");
        assert_eq!(named.get(), Reach::Public);
        for (address, reach) in [
            ("127.0.0.1", Reach::Loopback),
            ("10.0.0.1", Reach::Private),
            ("8.8.8.8", Reach::Public),
            ("10.0.0.1", Reach::Public),
        ] {
            named.answered_from(address.parse().unwrap());
            assert_eq!(named.get(), reach, "{address}");
        }
    }
}
