//! What a module is called and which version it has, where the command line does not say it in the address: for every verb that
//! turns a folder into a module.

use clap::Args;

use super::Context;
use super::failure::Failure;
use super::settings::Origin;
use crate::module::{Address, AddressAt, Constraint, Host, Version};
use crate::operations::prepare::Naming;

/// Name, version and dependencies of a module that is packed.
#[derive(Args, Clone, Debug)]
pub struct ModuleOptions {
    /// The version, where the address has none [default: the git tag at HEAD]
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// The namespace, where the address is found from the folder's name
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The host that users write in `source` [default: the module file's, else `modules.internal`]
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Another host that counts as the module's own when dependencies are resolved (may be repeated)
    #[arg(long, value_name = "HOST")]
    pub host_alias: Vec<String>,
    /// Refuse dependencies that cannot be embedded (git, http, other registries)
    #[arg(long)]
    pub strict: bool,
}

impl ModuleOptions {
    /// What the caller says of the module's name and version.
    pub(super) fn naming(&self, context: &Context, address: Option<&str>) -> Result<Naming, Failure> {
        let naming = Naming {
            address: address.map(parse_address).transpose()?,
            version: self.version.as_deref().map(parse_version).transpose()?,
            namespace: self.namespace.clone(),
            host: self.host.as_deref().map(parse_host).transpose()?,
        };
        // A variable or the file says what holds where the command line says nothing; an address says it.
        if let (Some(AddressAt { address: Address::Tofu(address), .. }), Some(host)) =
            (&naming.address, &naming.host)
            && let Some(other) = address.host()
            && other != host
            && *context.settings.origin("host") == Origin::Flag
        {
            return Err(Failure::usage(format!("`{address}` is on `{other}`, and `--host` says `{host}`"))
                .with_hint("leave out `--host`, or the host of the address"));
        }
        Ok(naming)
    }

    /// The hosts that the module had before.
    pub(super) fn host_aliases(&self) -> Result<Vec<Host>, Failure> {
        self.host_alias.iter().map(|host| parse_host(host)).collect()
    }
}

/// ADDRESS or ADDRESS@VERSION.
pub(super) fn parse_address(text: &str) -> Result<AddressAt, Failure> {
    let failure = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
    match text.parse() {
        Ok(address) => Ok(address),
        // A shell takes an unquoted `>` and what follows it for itself.
        Err(error) if text.ends_with('@') => {
            let name = text.trim_end_matches('@');
            Err(failure(&error).with_hint(format!("quote the address: `'{name}@>= 1.0'`")))
        }
        Err(error) => Err(failure(&error)),
    }
}

/// `--version` of a module that is pushed.
pub(super) fn parse_version(text: &str) -> Result<Version, Failure> {
    Version::parse(text).map_err(|error| Failure::usage(error.to_string()))
}

/// `--version` where several will do.
pub(super) fn parse_constraint(text: &str) -> Result<Constraint, Failure> {
    text.parse().map_err(|error: crate::module::ConstraintError| Failure::usage(error.to_string()))
}

/// A host name.
pub(super) fn parse_host(text: &str) -> Result<Host, Failure> {
    Host::parse(text).map_err(|error| Failure::usage(error.to_string()))
}
