//! `ocimod serve`: the module registry protocol over any registry, and the embedded registry.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Serve modules to OpenTofu and Terraform, and the embedded registry to every OCI client
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod serve
  ocimod serve --registry ghcr.io/acme/modules --host modules.acme.example
  ocimod serve --temporary --namespace acme --push terraform-null-label@1.0.0")]
pub struct Serve {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Write the address that it listens on to this file once it is ready
    #[arg(long, value_name = "FILE")]
    pub print_address: Option<PathBuf>,
    /// Serve only this host's modules [default: those of every host]
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Push a module before listening (may be repeated, in order)
    #[arg(long, value_name = "[ADDRESS=]DIR[@VERSION]")]
    pub push: Vec<String>,
    /// The namespace of modules that are pushed without an address
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Keep modules in a store of its own that goes with the process
    #[arg(long)]
    pub temporary: bool,
    /// Let everybody who reaches this address do what callers on this machine may
    #[arg(long)]
    pub allow_anonymous: bool,
}
