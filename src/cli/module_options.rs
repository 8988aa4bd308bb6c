//! What a module is called and which version it has, where the command line does not say it in the address: for every verb that
//! turns a folder into a module.

use clap::Args;

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
