//! What a user of a server pastes: the client's configuration, a token, a module block, and what CUE and OCI clients need.
//!
//! There is one text for the three places that show it: `ocimod serve` when it begins, the start page of a server, and `ocimod config
//! client`, so that they do not come to differ. Nothing here is looked up: a server is taken to be what its address says.
//!
//! OpenTofu and Terraform find a host's services at `https://HOST/.well-known/terraform.json`. A `host` block tells them instead, and is
//! the only way where there is no TLS, where a path stands in front, or where modules are called by a name that is not the server's. It is
//! all that a client then knows of that host.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::Serialize;

use super::cue_view::VIEW;
use crate::module::{Host, TofuAddress};

/// The text is no address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address of a server; write for example `modules.acme.example` or `http://127.0.0.1:8080`"
)]
pub struct ServerAddressError(String);

/// Where a server is for those who use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    is_tls: bool,
    /// Without a port; an IPv6 address in brackets.
    name: String,
    /// Where it is not the scheme's own.
    port: Option<u16>,
    /// In front of every route: empty, or `/ocimod`.
    base_path: String,
}

impl ServerAddress {
    /// Reads `HOST[:PORT][/PATH]`, with `http://` or `https://` in front. Without either it is https, except on this machine, where nobody
    /// has a certificate.
    pub fn parse(text: &str) -> Result<Self, ServerAddressError> {
        let error = || ServerAddressError(text.chars().take(200).collect());
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            Some(_) => return Err(error()),
            None => (None, text),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (name, port) = match authority.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (authority, None),
        };
        let port = port.map(|port| port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(error));
        let port = port.transpose()?;
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let name = match address {
            Some(address) => format!("[{}]", address.parse::<Ipv6Addr>().map_err(|_| error())?),
            // A `:` in it would be a second port.
            None if name.contains(':') => return Err(error()),
            None => Host::parse(name).map_err(|_| error())?.to_string(),
        };
        let is_tls = scheme.unwrap_or_else(|| !is_loopback(&name));
        let default_port = if is_tls { 443 } else { 80 };
        let address =
            Self { is_tls, name, port: port.filter(|port| *port != default_port), base_path: String::new() };
        address.below(path).ok_or_else(error)
    }

    /// A server that listens on an address; one that listens on every address of this machine is taken to be asked here.
    pub fn listening(address: SocketAddr, is_tls: bool) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let name = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Self { is_tls, name, port: Some(address.port()), base_path: String::new() }
    }

    /// What stands for a server whose address nobody has told.
    pub fn unknown() -> Self {
        Self { is_tls: true, name: "modules.example".to_owned(), port: None, base_path: String::new() }
    }

    /// The same server with a path in front of every route; `None` where it is none.
    #[must_use]
    pub fn below(mut self, path: &str) -> Option<Self> {
        let is_fine = |part: &str| {
            let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            part.bytes().all(is_fine) && !part.is_empty() && part != "." && part != ".."
        };
        let path = path.trim_matches('/');
        if path.is_empty() {
            return Some(self);
        }
        if !path.split('/').all(is_fine) {
            return None;
        }
        self.base_path = format!("{}/{path}", self.base_path);
        Some(self)
    }

    /// `host[:port]`
    pub fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.name),
            None => self.name.clone(),
        }
    }

    /// Scheme, host and path, without a `/` at the end.
    pub fn url(&self) -> String {
        format!("{}{}", self.root(), self.base_path)
    }

    fn root(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// The host in the address of a module, where the server's name can be one: it has a dot.
    fn source_host(&self) -> Option<String> {
        let sample = format!("{}/a/b/c", self.authority());
        // An address is taken for a host where it is asked over https; else a name is better to have in a source.
        let is_name = self.name.parse::<IpAddr>().is_err();
        ((is_name || self.is_tls) && TofuAddress::parse(&sample).is_ok()).then(|| self.authority())
    }
}

fn is_loopback(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What is wanted to be set up.
#[derive(Clone, Debug)]
pub struct ClientSetupRequest {
    /// The server.
    pub server: ServerAddress,
    /// The host in the addresses of its modules; the server's own name where absent.
    pub host: Option<Host>,
    /// Another host whose modules are to come from this server; then `host` does not count.
    pub in_place_of: Option<Host>,
    /// Whether the server asks for tokens; `None` where that is not known.
    pub asks_for_tokens: Option<bool>,
    /// Whether it is a registry for OCI clients too; `None` where that is not known.
    pub is_registry: Option<bool>,
}

/// What a user pastes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientSetup {
    /// The server's address.
    pub url: String,
    /// The host in the addresses of modules.
    pub host: String,
    /// For `~/.tofurc` or `~/.terraformrc`: the `host` block. Null where the client finds the server by itself.
    pub host_block: Option<String>,
    /// For the same file: the `credentials` block. `TOKEN` stands for the token.
    pub credentials_block: Option<String>,
    /// The token as a variable: a line for a shell.
    pub token_variable: Option<String>,
    /// A module block.
    pub module_block: String,
    /// `CUE_REGISTRY`: a line for a shell.
    pub cue_registry: String,
    /// Lines for a shell by which OCI clients come to know the token, or a first one to try.
    pub oci_clients: Vec<String>,
    /// What is to be known beside.
    pub notes: Vec<String>,
}

/// A part of it, with what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// Where the text belongs.
    pub heading: &'static str,
    /// What is pasted.
    pub text: &'a str,
}

/// Hosts whose providers are at the usual place.
const PUBLIC_HOSTS: [&str; 2] = ["registry.opentofu.org", "registry.terraform.io"];

impl ClientSetup {
    /// Writes it all down.
    pub fn new(request: &ClientSetupRequest) -> Self {
        let ClientSetupRequest { server, host, in_place_of, .. } = request;
        let own = host.as_ref().map(ToString::to_string).or_else(|| server.source_host());
        let own = own.unwrap_or_else(|| Host::INTERNAL.to_owned());
        let (host, modules) = match in_place_of {
            Some(other) => (other.to_string(), format!("{}/v1/hosts/{other}/modules/", server.url())),
            None => (own, format!("{}/v1/modules/", server.url())),
        };
        let is_found = server.is_tls && server.base_path.is_empty() && host == server.authority();
        let host_block = (!is_found)
            .then(|| format!("host \"{host}\" {{\n  services = {{ \"modules.v1\" = \"{modules}\" }}\n}}"));
        let has_tokens = request.asks_for_tokens.unwrap_or(true);
        let is_registry = request.is_registry.unwrap_or(true);
        Self {
            host_block,
            credentials_block: has_tokens
                .then(|| format!("credentials \"{host}\" {{\n  token = \"TOKEN\"\n}}")),
            token_variable: has_tokens.then(|| token_variable(&host)),
            module_block: format!(
                "module \"vpc\" {{\n  source  = \"{host}/NAMESPACE/NAME/SYSTEM\"\n  version = \"~> 1.0\"\n}}"
            ),
            cue_registry: cue_registry(server),
            oci_clients: if is_registry { oci_clients(server, has_tokens) } else { Vec::new() },
            notes: notes(server, &host, in_place_of.as_ref(), is_registry),
            url: server.url(),
            host,
        }
    }

    /// Its parts in the order in which they are needed.
    pub fn sections(&self) -> Vec<Section<'_>> {
        let texts = [
            ("in ~/.tofurc or ~/.terraformrc", self.host_block.as_deref()),
            ("the token, in the same file", self.credentials_block.as_deref()),
            ("or the token in the environment", self.token_variable.as_deref()),
            ("in a configuration", Some(self.module_block.as_str())),
            ("for CUE", Some(self.cue_registry.as_str())),
        ];
        let commands = self.oci_clients.iter().map(|command| ("for OCI clients", Some(command.as_str())));
        let parts = texts.into_iter().chain(commands);
        parts.filter_map(|(heading, text)| Some(Section { heading, text: text? })).collect()
    }

    /// All of it for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for Section { heading, text: part } in self.sections() {
            // Writing to a string cannot fail.
            if heading != last {
                let _ = writeln!(text, "{}{heading}:\n", if last.is_empty() { "" } else { "\n" });
            }
            last = heading;
            for line in part.lines() {
                let _ = writeln!(text, "  {line}");
            }
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text
    }
}

/// The variable that holds a host's token: `_` for `.` and `__` for `-`. With a port the name is none that a shell can set.
fn token_variable(host: &str) -> String {
    if host.contains(':') {
        format!("env 'TF_TOKEN_{host}=TOKEN' tofu init")
    } else {
        format!("export TF_TOKEN_{}=TOKEN", host.replace('-', "__").replace('.', "_"))
    }
}

fn cue_registry(server: &ServerAddress) -> String {
    // On this machine CUE takes plain http for granted, and refuses to be told.
    let scheme = if server.is_tls || is_loopback(&server.name) { "" } else { "+insecure" };
    format!("export CUE_REGISTRY={}/{VIEW}{scheme}", server.authority())
}

fn oci_clients(server: &ServerAddress, has_tokens: bool) -> Vec<String> {
    let (authority, insecure) = (server.authority(), if server.is_tls { "" } else { " --insecure" });
    if has_tokens {
        vec![
            format!("docker login {authority} -u token --password-stdin < TOKENFILE"),
            format!("crane auth login {authority} -u token --password-stdin < TOKENFILE"),
        ]
    } else {
        vec![format!("crane catalog{insecure} {authority}")]
    }
}

fn notes(server: &ServerAddress, host: &str, in_place_of: Option<&Host>, is_registry: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if in_place_of.is_some() {
        let mut note = format!(
            "The `host` block is all that a client then knows of {host}: its providers are switched off, unless they come from a mirror \
             (`provider_installation`)"
        );
        if PUBLIC_HOSTS.contains(&host) {
            let _ = write!(
                note,
                " or the block's `services` have `\"providers.v1\" = \"https://{host}/v1/providers/\"` too"
            );
        } else {
            note.push_str(" or the block's `services` have the host's own `\"providers.v1\"` too");
        }
        notes.push(note + ".");
    }
    if !server.base_path.is_empty() {
        let root = server.root();
        if in_place_of.is_none() && server.is_tls && host == server.authority() {
            notes.push(format!(
                "The `host` block can be left out where {root}/.well-known/terraform.json leads to this server."
            ));
        }
        notes.push(if is_registry {
            format!(
                "OCI clients and CUE know no path in front: for them {root}/v2/ has to lead to this server."
            )
        } else {
            format!("CUE knows no path in front: for it {root}/v2/ has to lead to this server.")
        });
    }
    notes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn setup(server: &str) -> ClientSetup {
        ClientSetup::new(&request(server))
    }

    fn request(server: &str) -> ClientSetupRequest {
        ClientSetupRequest {
            server: ServerAddress::parse(server).unwrap(),
            host: None,
            in_place_of: None,
            asks_for_tokens: None,
            is_registry: None,
        }
    }

    #[test]
    fn a_host_with_a_certificate_needs_a_token_at_most() {
        insta::assert_snapshot!(setup("modules.acme-corp.example").text(), @r#"
        the token, in the same file:

          credentials "modules.acme-corp.example" {
            token = "TOKEN"
          }

        or the token in the environment:

          export TF_TOKEN_modules_acme__corp_example=TOKEN

        in a configuration:

          module "vpc" {
            source  = "modules.acme-corp.example/NAMESPACE/NAME/SYSTEM"
            version = "~> 1.0"
          }

        for CUE:

          export CUE_REGISTRY=modules.acme-corp.example/cue.mod

        for OCI clients:

          docker login modules.acme-corp.example -u token --password-stdin < TOKENFILE
          crane auth login modules.acme-corp.example -u token --password-stdin < TOKENFILE
        "#);
    }

    #[test]
    fn plain_http_needs_a_host_block() {
        let setup = ClientSetup::new(&ClientSetupRequest {
            asks_for_tokens: Some(false),
            ..request("http://127.0.0.1:8080")
        });
        insta::assert_snapshot!(setup.text(), @r#"
        in ~/.tofurc or ~/.terraformrc:

          host "modules.internal" {
            services = { "modules.v1" = "http://127.0.0.1:8080/v1/modules/" }
          }

        in a configuration:

          module "vpc" {
            source  = "modules.internal/NAMESPACE/NAME/SYSTEM"
            version = "~> 1.0"
          }

        for CUE:

          export CUE_REGISTRY=127.0.0.1:8080/cue.mod

        for OCI clients:

          crane catalog --insecure 127.0.0.1:8080
        "#);
    }

    #[test]
    fn a_port_belongs_to_the_host() {
        let setup = setup("modules.acme.example:8443");
        assert_eq!(setup.host_block, None);
        assert_eq!(setup.host, "modules.acme.example:8443");
        assert_eq!(setup.token_variable.unwrap(), "env 'TF_TOKEN_modules.acme.example:8443=TOKEN' tofu init");
        assert_eq!(super::tests::setup("modules.acme.example:443").host, "modules.acme.example");
    }

    #[test]
    fn a_path_in_front_needs_a_host_block_and_a_word() {
        let setup = setup("https://acme.example/ocimod/");
        assert_eq!(
            setup.host_block.as_deref().unwrap(),
            "host \"acme.example\" {\n  services = { \"modules.v1\" = \"https://acme.example/ocimod/v1/modules/\" }\n}"
        );
        assert_eq!(
            setup.notes,
            [
                "The `host` block can be left out where https://acme.example/.well-known/terraform.json leads to this server.",
                "OCI clients and CUE know no path in front: for them https://acme.example/v2/ has to lead to this server."
            ]
        );
    }

    #[test]
    fn another_host_s_modules_come_with_a_warning() {
        let other = Host::parse("registry.opentofu.org").unwrap();
        let setup = ClientSetup::new(&ClientSetupRequest {
            in_place_of: Some(other),
            ..request("modules.acme.example")
        });
        assert_eq!(
            setup.host_block.unwrap(),
            "host \"registry.opentofu.org\" {\n  services = { \"modules.v1\" = \
             \"https://modules.acme.example/v1/hosts/registry.opentofu.org/modules/\" }\n}"
        );
        assert_eq!(
            setup.credentials_block.unwrap().lines().next(),
            Some("credentials \"registry.opentofu.org\" {")
        );
        insta::assert_snapshot!(setup.notes.join("\n"), @r#"The `host` block is all that a client then knows of registry.opentofu.org: its providers are switched off, unless they come from a mirror (`provider_installation`) or the block's `services` have `"providers.v1" = "https://registry.opentofu.org/v1/providers/"` too."#);
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let url = |text: &str| ServerAddress::parse(text).map(|address| address.url());
        for (text, expected) in [
            ("Modules.Acme.example", "https://modules.acme.example"),
            ("http://a.example:80", "http://a.example"),
            ("localhost:8080", "http://localhost:8080"),
            ("https://localhost:8443", "https://localhost:8443"),
            ("127.0.0.1:8080/x/y/", "http://127.0.0.1:8080/x/y"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("[2001:db8::1]", "https://[2001:db8::1]"),
        ] {
            assert_eq!(url(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "ftp://a.example",
            "a b",
            "a.example:0",
            "a.example:99999",
            "a.example:1:2",
            "user@a.example",
            "a\"b",
            "[x]:1",
            "::1",
            "a.example/../b",
            "a.example/a//b",
            "a.example/\"",
            "a.example?x",
            "a.example/#x",
            "https://",
            "<b>",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_that_no_address_can_have_is_replaced() {
        for server in [
            "http://localhost:8080",
            "[::1]:8080",
            "https://[2001:db8::1]",
            "https://registry",
            "https://github.com",
        ] {
            let setup = setup(server);
            assert_eq!(setup.host, "modules.internal", "{server}");
            assert!(setup.host_block.is_some());
        }
    }
}
