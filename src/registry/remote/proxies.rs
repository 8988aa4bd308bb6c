//! Which proxy stands between us and a host: what the variables say that every tool knows, read as Go's tools read them.
//!
//! A proxy's own credentials stand in its URL and go to the proxy alone. Nothing on this machine's loopback is ever asked for
//! through one: the proxy would look on its own.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

use super::redirect::is_loopback;

/// The proxies of one environment.
#[derive(Clone, Default)]
pub struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    direct: Vec<Direct>,
}

/// A variable that says no proxy. Its value is not repeated: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the variable {0} is no address of a proxy: expected `http://HOST:PORT`, with `USER:PASSWORD@` before the host where the proxy asks for it; \
     `https://` and `socks5://` are known too"
)]
pub struct ProxyError(&'static str);

/// Hosts that no proxy is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Direct {
    /// `*`
    All,
    /// `10.0.0.0/8`: an address, and how many of its bits count.
    Network(IpAddr, u32),
    /// `registry.example`, and with a `.` in front what is below it alone.
    Name { name: String, below_alone: bool, port: Option<u16> },
    /// `10.0.0.1:5000`
    Address(IpAddr, Option<u16>),
}

impl fmt::Debug for Proxies {
    /// Without the URLs: they may hold passwords.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (http, https) = (self.http.is_some(), self.https.is_some());
        formatter.debug_struct("Proxies").field("http", &http).field("https", &https).finish_non_exhaustive()
    }
}

impl Proxies {
    /// What `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say, or the same in lower case. `variable` gives a variable
    /// that is set and not empty.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let set = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, variable(name)?)));
        let proxy = |names: [&'static str; 2]| {
            set(names).map(|(name, value)| parse(&value).ok_or(ProxyError(name))).transpose()
        };
        let all = proxy(["ALL_PROXY", "all_proxy"])?;
        Ok(Self {
            http: proxy(["HTTP_PROXY", "http_proxy"])?.or_else(|| all.clone()),
            https: proxy(["HTTPS_PROXY", "https_proxy"])?.or(all),
            direct: set(["NO_PROXY", "no_proxy"])
                .map(|(_, value)| value.split(',').filter_map(Direct::parse).collect())
                .unwrap_or_default(),
        })
    }

    /// The proxy for a URL; `None` where it is asked directly.
    pub(super) fn of(&self, url: &Url) -> Option<&Url> {
        let host = url.host()?;
        if is_loopback(&host)
            || self.direct.iter().any(|direct| direct.fits(&host, url.port_or_known_default()))
        {
            return None;
        }
        match url.scheme() {
            "http" => self.http.as_ref(),
            "https" => self.https.as_ref(),
            _ => None,
        }
    }
}

/// A proxy's address; `http` where it says no scheme.
fn parse(text: &str) -> Option<Url> {
    let text = text.trim();
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Url = text.parse().ok()?;
    let is_known = matches!(url.scheme(), "http" | "https" | "socks4" | "socks4a" | "socks5" | "socks5h");
    (is_known && url.host_str().is_some_and(|host| !host.is_empty())).then_some(url)
}

impl Direct {
    /// `None` for what is nothing, or nothing that is known.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if text == "*" {
            return Some(Self::All);
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let bits: u32 = bits.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            return (bits <= most).then_some(Self::Network(address, bits));
        }
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Some(Self::Address(address, None));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok()?)),
            None => (text.as_str(), None),
        };
        if let Ok(address) = name.trim_matches(['[', ']']).parse() {
            return Some(Self::Address(address, port));
        }
        let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
        let below_alone = name.starts_with('.');
        let name = name.trim_matches('.');
        (!name.is_empty()).then(|| Self::Name { name: name.to_owned(), below_alone, port })
    }

    fn fits(&self, host: &Host<&str>, asked: Option<u16>) -> bool {
        let is_port = |port: &Option<u16>| port.is_none() || *port == asked;
        let address = match host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address).to_canonical()),
        };
        match (self, host) {
            (Self::All, _) => true,
            (Self::Network(network, bits), _) => {
                address.is_some_and(|address| is_in(address, *network, *bits))
            }
            (Self::Address(own, port), _) => address == Some(own.to_canonical()) && is_port(port),
            (Self::Name { name, below_alone, port }, Host::Domain(host)) => {
                let host = host.trim_end_matches('.');
                let is_below = host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'));
                is_port(port) && (is_below || (!below_alone && host == name))
            }
            (Self::Name { .. }, _) => false,
        }
    }
}

/// Whether an address has the first bits of a network's.
fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (one.to_bits() ^ other.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (one.to_bits() ^ other.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        Proxies::from_variables(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn of(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.of(&url.parse().unwrap()).map(Url::to_string)
    }

    #[test]
    fn each_scheme_has_its_variable() {
        let set =
            proxies(&[("HTTP_PROXY", "one:1"), ("https_proxy", "https://two:2"), ("ALL_PROXY", "three")]);
        let set = set.unwrap();
        assert_eq!(of(&set, "http://r.example/").as_deref(), Some("http://one:1/"));
        assert_eq!(of(&set, "https://r.example/").as_deref(), Some("https://two:2/"));
        let set = proxies(&[("all_proxy", "socks5h://u:p@three:3")]).unwrap();
        for url in ["http://r.example/", "https://r.example/"] {
            assert_eq!(of(&set, url).as_deref(), Some("socks5h://u:p@three:3"));
        }
        assert_eq!(of(&proxies(&[]).unwrap(), "https://r.example/"), None);
    }

    #[test]
    fn what_is_no_proxy_is_named_by_its_variable_alone() {
        for value in ["ftp://u:s3cret@p:1", "http://", "http://u:s3cret@", "u:s3cret@p:x"] {
            let error = proxies(&[("HTTPS_PROXY", value)]).unwrap_err().to_string();
            assert!(error.contains("HTTPS_PROXY") && !error.contains("s3cret"), "{error}");
        }
        let shown = format!("{:?}", proxies(&[("HTTPS_PROXY", "http://u:s3cret@p:1")]).unwrap());
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn this_machine_is_asked_directly() {
        let set = proxies(&[("ALL_PROXY", "p:1")]).unwrap();
        for host in [
            "localhost",
            "localhost:5000",
            "a.localhost",
            "127.0.0.1",
            "127.9.9.9:5000",
            "[::1]:5000",
            "[::ffff:127.0.0.1]",
        ] {
            assert_eq!(of(&set, &format!("http://{host}/")), None, "{host}");
        }
        for host in ["10.0.0.1", "localhost.example", "[fd00::1]"] {
            assert!(of(&set, &format!("http://{host}/")).is_some(), "{host}");
        }
    }

    #[test]
    fn no_proxy_is_read_as_go_reads_it() {
        for (list, direct, proxied) in [
            ("*", &["https://r.example", "https://10.0.0.1"][..], &[][..]),
            (
                "r.example",
                &["https://r.example", "https://R.example:5000", "https://a.r.example", "https://r.example."],
                &["https://xr.example", "https://r.example.evil"],
            ),
            (" .r.example , x", &["https://a.r.example", "https://x"], &["https://r.example"]),
            ("*.r.example", &["https://a.r.example"], &["https://r.example"]),
            ("r.example:5000", &["https://r.example:5000"], &["https://r.example", "https://r.example:5001"]),
            ("r.example:443", &["https://r.example"], &["http://r.example"]),
            ("10.0.0.1", &["https://10.0.0.1", "https://[::ffff:10.0.0.1]"], &["https://10.0.0.2"]),
            ("10.0.0.1:80", &["http://10.0.0.1"], &["https://10.0.0.1"]),
            (
                "10.1.0.0/16,fd00::/8",
                &["https://10.1.2.3", "https://[fd12::1]"],
                &["https://10.2.0.1", "https://[fe00::1]", "https://r.example"],
            ),
            ("0.0.0.0/0", &["https://8.8.8.8"], &["https://[2001:db8::1]"]),
            (
                "[fd00::1],fd00::2,[fd00::3]:5000",
                &["https://[fd00::1]", "https://[fd00::2]", "https://[fd00::3]:5000"],
                &["https://[fd00::3]"],
            ),
            (",,.,/,a:b,10.0.0.0/33,x/8", &[], &["https://r.example", "https://a", "https://10.0.0.1"]),
        ] {
            let set = proxies(&[("ALL_PROXY", "p:1"), ("NO_PROXY", list)]).unwrap();
            for url in direct {
                assert_eq!(of(&set, url), None, "{list}: {url}");
            }
            for url in proxied {
                assert!(of(&set, url).is_some(), "{list}: {url}");
            }
        }
    }
}
