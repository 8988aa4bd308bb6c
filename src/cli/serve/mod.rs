//! `ocimod serve`: the module registry protocol over any registry, and the embedded registry.

mod access;
mod archives;
mod cache;
mod limits;
mod search;
mod tls;

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use self::access::AccessOptions;
use self::archives::ArchiveOptions;
use self::cache::CacheOptions;
use self::limits::LimitOptions;
use self::search::SearchOptions;
use self::tls::TlsOptions;
use super::Context;
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::module_options::{parse_address, parse_host, parse_version};
use super::registry_options::RegistryChoice;
use super::settings::Origin;
use crate::module::Host;
use crate::operations::prepare::Naming;
use crate::operations::push::{self, PushRequest};
use crate::operations::routes::Routes;
use crate::server::{self, App, Keys, Modules, ServerOptions};

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
    /// Who may do what
    #[command(flatten)]
    pub access: AccessOptions,
    /// How zips reach the client
    #[command(flatten)]
    pub archives: ArchiveOptions,
    /// What is kept of a registry's answers
    #[command(flatten)]
    pub cache: CacheOptions,
    /// What keeps the server within bounds
    #[command(flatten)]
    pub limits: LimitOptions,
    /// How modules without a repository of their own are found
    #[command(flatten)]
    pub search: SearchOptions,
    /// Certificates, and the path in front of every route
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// A module that is pushed before the server listens: `[ADDRESS=]DIR[@VERSION]`.
#[derive(Debug, PartialEq, Eq)]
struct FirstPush<'a> {
    address: Option<&'a str>,
    folder: &'a str,
    version: Option<&'a str>,
}

impl<'a> FirstPush<'a> {
    fn parse(text: &'a str) -> Self {
        // An address never holds a `.` or `/` before a `=` that a folder's name could not hold too, but `./a=b` is a folder.
        let (address, rest) = match text.split_once('=') {
            Some((address, rest)) if !address.starts_with(['.', '/']) && !rest.is_empty() => {
                (Some(address), rest)
            }
            _ => (None, text),
        };
        // What stands behind the last `@` is a version, unless it is part of a path.
        let (folder, version) = match rest.rsplit_once('@') {
            Some((folder, version)) if !folder.is_empty() && !version.contains(['/', '\\']) => {
                (folder, Some(version))
            }
            _ => (rest, None),
        };
        Self { address, folder, version }
    }
}

impl Serve {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let host = self.host.as_deref().map(parse_host).transpose()?;
        self.access.check(self.listen, self.allow_anonymous)?;
        // A key of this process's own: what it signs is good for nothing at another one.
        let keys =
            Arc::new(Keys::generate().map_err(|error| Failure::new(ErrorKind::Failed, error.to_string()))?);
        let access = self.access.open(context, move || Arc::clone(&keys))?;
        // A store of its own goes with the process, so it is held until the end.
        let temporary = self.temporary.then(tempfile::tempdir).transpose();
        let temporary = temporary.map_err(|error| {
            Failure::new(ErrorKind::Failed, format!("a temporary folder cannot be made: {error}"))
        })?;
        let choice = match &temporary {
            Some(folder) => Self::temporary_choice(context, folder.path())?,
            None if self.push.is_empty() => context.registry.choose(context)?,
            None => context.registry.choose_to_write(context, "serve --push", false).map_err(|failure| {
                failure.with_hint("or let the modules go with the process: `--temporary`")
            })?,
        };
        let routes = context.routes_to_write(&choice).await?;
        for first in &self.push {
            self.push_first(context, &routes, first, host.as_ref()).await?;
        }
        let listener = self.bind()?;
        let address = listener.local_addr().map_err(|error| {
            Failure::new(ErrorKind::Failed, format!("the address cannot be read: {error}"))
        })?;
        let embedded = choice.setting()?.single_directory().is_some();
        context.printer.note(&lines_to_paste(address, host.as_ref(), &routes, embedded));
        let options = ServerOptions {
            distribution: embedded,
            host: host.as_ref().map(ToString::to_string),
            allow_anonymous: self.allow_anonymous,
            access,
        };
        let registry =
            routes.targets().next().map(|target| Arc::clone(&target.registry)).ok_or_else(|| {
                Failure::usage("there is no registry to serve from")
                    .with_hint("set one with `--registry`, or leave it out to serve the folder of your own")
            })?;
        if let Some(file) = &self.print_address {
            let file = context.environment.absolute(file);
            write_address(&file, address).map_err(|error| {
                Failure::new(ErrorKind::Failed, format!("{} cannot be written: {error}", file.display()))
            })?;
        }
        access::reload_at_hangup(options.access.clone());
        let app = Arc::new(App::new(registry, Modules::new(routes, host), options));
        server::serve(listener, app, stop_signal())
            .await
            .map_err(|error| Failure::new(ErrorKind::Failed, format!("the server stopped: {error}")))?;
        Ok(ExitStatus::Done)
    }

    /// The store of `--temporary`; a registry that was named on the command line would never be used.
    fn temporary_choice(context: &Context, folder: &Path) -> Result<RegistryChoice, Failure> {
        if matches!(context.settings.origin("registry"), Origin::Flag) {
            return Err(Failure::usage(
                "`--temporary` is a registry of its own, so `--registry` cannot go with it",
            ));
        }
        Ok(RegistryChoice::Temporary(folder.to_owned()))
    }

    async fn push_first(
        &self,
        context: &Context,
        routes: &Routes,
        first: &str,
        host: Option<&Host>,
    ) -> Result<(), Failure> {
        let FirstPush { address, folder, version } = FirstPush::parse(first);
        let request = PushRequest {
            source: context.environment.absolute(Path::new(folder)),
            naming: Naming {
                address: address.map(parse_address).transpose()?,
                version: version.map(parse_version).transpose()?,
                namespace: self.namespace.clone(),
                host: host.cloned(),
            },
            host_aliases: Vec::new(),
            form: None,
            strict: false,
            dry_run: false,
            created: context.source_date()?,
        };
        let pushed = push::push(routes, &request, context.printer.progress()).await?;
        let version = pushed.version.map(|version| version.to_string()).unwrap_or_default();
        context.printer.note(&format!("pushed {} {version}", pushed.address));
        Ok(())
    }

    fn bind(&self) -> Result<TcpListener, Failure> {
        TcpListener::bind(self.listen).map_err(|error| {
            let failure =
                Failure::new(ErrorKind::Failed, format!("cannot listen on {}: {error}", self.listen));
            match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    let other = SocketAddr::new(self.listen.ip(), 0);
                    failure.with_hint(format!(
                        "take a free port with `--listen {other}`, or stop what uses this one"
                    ))
                }
                std::io::ErrorKind::PermissionDenied => failure.with_hint(
                    "ports below 1024 are the system's; take another, such as `--listen 127.0.0.1:8080`",
                ),
                _ => failure,
            }
        })
    }
}

/// What a user of this server pastes into the client's configuration.
fn lines_to_paste(address: SocketAddr, host: Option<&Host>, routes: &Routes, embedded: bool) -> String {
    let host = host.map_or(Host::INTERNAL, Host::as_str);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "serving modules on http://{address} from {}", routes.describe());
    let _ = writeln!(text, "\nin ~/.tofurc or ~/.terraformrc:\n");
    let _ = writeln!(text, "  host \"{host}\" {{");
    let _ = writeln!(text, "    services = {{ \"modules.v1\" = \"http://{address}/v1/modules/\" }}");
    let _ = writeln!(text, "  }}\n\nin a configuration:\n");
    let _ = writeln!(text, "  module \"vpc\" {{");
    let _ = writeln!(text, "    source  = \"{host}/NAMESPACE/NAME/SYSTEM\"");
    let _ = write!(text, "    version = \"~> 1.0\"\n  }}");
    if embedded {
        let _ = write!(text, "\n\nfor OCI clients:\n\n  crane catalog --insecure {address}");
    }
    text
}

/// Puts the address into a file that readers find whole or not at all.
fn write_address(file: &Path, address: SocketAddr) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut beside = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut beside, format!("{address}\n").as_bytes())?;
    beside.persist(file)?;
    Ok(())
}

/// Ends at the first signal to stop.
async fn stop_signal() {
    #[cfg(unix)]
    {
        let terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
        if let Ok(mut terminated) = terminated {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    // Without a signal to wait for, the server runs until it is killed.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::FirstPush;

    fn parse(text: &str) -> (Option<&str>, &str, Option<&str>) {
        let FirstPush { address, folder, version } = FirstPush::parse(text);
        (address, folder, version)
    }

    #[test]
    fn address_folder_and_version_are_told_apart() {
        assert_eq!(parse("docs/vpc"), (None, "docs/vpc", None));
        assert_eq!(parse("docs/vpc@1.0.0"), (None, "docs/vpc", Some("1.0.0")));
        assert_eq!(parse("acme/vpc/aws=./vpc@1.0.0"), (Some("acme/vpc/aws"), "./vpc", Some("1.0.0")));
        assert_eq!(parse("./a=b@1.0.0"), (None, "./a=b", Some("1.0.0")));
        assert_eq!(parse("/srv/a@b/vpc"), (None, "/srv/a@b/vpc", None));
    }
}
