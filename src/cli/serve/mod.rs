//! `ocimod serve`: the module registry protocol over any registry, and the embedded registry.

mod access;
mod archives;
mod cache;
mod limits;
mod mirror;
mod search;
mod tls;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use self::access::AccessOptions;
use self::archives::ArchiveOptions;
use self::cache::CacheOptions;
use self::limits::LimitOptions;
use self::mirror::MirrorOptions;
use self::search::SearchOptions;
use self::tls::TlsOptions;
use super::Context;
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::module_options::{parse_address, parse_host, parse_version};
use super::registry_options::RegistryChoice;
use super::settings::Origin;
use crate::module::Host;
use crate::operations::client_setup::{ClientSetup, ClientSetupRequest, ServerAddress};
use crate::operations::install::Installer;
use crate::operations::prepare::Naming;
use crate::operations::push::{self, PushRequest};
use crate::operations::routes::Routes;
use crate::operations::search::{LeftOut, Search};
use crate::registry::cached::CacheStatistics;
use crate::registry::counted::CountedRegistry;
use crate::registry::{Cache, SharedRegistry};
use crate::server::{
    self, App, BasePath, CacheNumbers, Hangups, Metrics, MetricsPlace, Reloads, SearchNumbers, ServerOptions,
    StartPage,
};

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
    /// Providers that the registry lacks
    #[command(flatten)]
    pub mirror: MirrorOptions,
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
        let limits = self.limits.limits()?;
        let search_options = self.search.options(context)?;
        let mirrored = self.mirror.options(context)?;
        self.access.check(self.listen, self.allow_anonymous)?;
        // From here on the signal to read files again does not end the process.
        let (hangups, mut reloads) = (Hangups::listen(), Reloads::default());
        let archives = self.archives.open(context, &mut reloads)?;
        let access = self.access.open(context, &archives)?;
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
        let cache = self.cache.open(context, &choice)?;
        let routes = context.routes_to_serve(&choice, self.limits.store()).await?;
        for first in &self.push {
            self.push_first(context, &routes, first, host.as_ref()).await?;
        }
        let certificate = self.tls.open(context, self.listen.ip(), host.as_ref(), &mut reloads)?;
        let metrics = Arc::new(Metrics::default());
        // Below any cache: what is counted is what registries are asked for.
        let routes = routes.wrapped(|target| {
            let name = if target.is_local { "dir" } else { &target.name };
            Arc::new(CountedRegistry::new(Arc::clone(&target.registry), metrics.observer(name)))
                as SharedRegistry
        });
        let listener = bind(self.listen)?;
        let metrics_listener = self.limits.metrics_listen.map(bind).transpose()?;
        let address = listener.local_addr().map_err(|error| {
            Failure::new(ErrorKind::Failed, format!("the address cannot be read: {error}"))
        })?;
        let embedded = choice.setting()?.single_directory().is_some();
        if !embedded {
            self.warn_of_unused_limits(context);
        }
        let is_tls = certificate.is_some();
        let asks_for_tokens = !access.is_open();
        let options = ServerOptions {
            distribution: embedded,
            host: host.as_ref().map(ToString::to_string),
            allow_anonymous: self.allow_anonymous,
            access,
            archives,
            certificate,
            base_path: self.tls.base_path.clone(),
            serves_copies: cache.is_some(),
            metrics: if metrics_listener.is_some() { MetricsPlace::Apart } else { MetricsPlace::Beside },
            limits,
            request_log: context.request_log.clone(),
            start_page: StartPage {
                is_tls,
                base_path: self.tls.base_path.as_ref().map(ToString::to_string).unwrap_or_default(),
                asks_for_tokens: Some(asks_for_tokens),
            },
        };
        Self::say_what_to_paste(context, address, host.as_ref(), &routes, &options)?;
        let behind: Vec<_> = routes.targets().map(|target| Arc::clone(&target.registry)).collect();
        let registry = behind.first().map(Arc::clone).ok_or_else(|| {
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
        let upstream = mirror::upstream(mirrored, &routes);
        let routes = kept(routes, cache.as_ref(), &metrics);
        let search = Arc::new(Search::new(&routes, search_options));
        count_left_out(&metrics, &search);
        let looking = tokio::spawn({
            let search = Arc::clone(&search);
            async move { search.run().await }
        });
        let installer = Installer::new(routes, host, search, cache);
        let app = Arc::new(
            App::new(registry, installer, options).over(behind).with_metrics(metrics).with_upstream(upstream),
        );
        tokio::spawn(reloads.run(hangups));
        if let Some(listener) = metrics_listener {
            if let Ok(address) = listener.local_addr() {
                context.printer.note(&format!("metrics on http://{address}/metrics"));
            }
            tokio::spawn(serve_metrics(listener, Arc::clone(&app)));
        }
        server::serve(listener, app, stop_signal())
            .await
            .map_err(|error| Failure::new(ErrorKind::Failed, format!("the server stopped: {error}")))?;
        looking.abort();
        Ok(ExitStatus::Done)
    }

    /// Says so where options are about an embedded registry that is not there.
    fn warn_of_unused_limits(&self, context: &Context) {
        let unused = self.limits.of_the_embedded_registry();
        if !unused.is_empty() {
            context.printer.warning(&format!(
                "there is no embedded registry, which is what {} would be about: nothing is pushed through this server",
                unused.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(" and ")
            ));
        }
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

    /// Says where the server is, and what its users paste.
    fn say_what_to_paste(
        context: &Context,
        address: SocketAddr,
        host: Option<&Host>,
        routes: &Routes,
        options: &ServerOptions,
    ) -> Result<(), Failure> {
        let (is_tls, is_registry) = (options.certificate.is_some(), options.distribution);
        let wrong = || Failure::usage("there is no address that clients could reach this server by");
        let listening = ServerAddress::listening(address, is_tls);
        // With a certificate clients ask the host itself, and find the rest by discovery; else its name is in a `host` block alone.
        let named = host.filter(|_| is_tls).map(|host| format!("https://{host}:{}", address.port()));
        let server = named.and_then(|url| ServerAddress::parse(&url).ok()).unwrap_or(listening);
        let base_path = options.base_path.as_ref().map_or("", BasePath::as_str);
        let setup = ClientSetup::new(&ClientSetupRequest {
            server: server.below(base_path).ok_or_else(wrong)?,
            host: if is_tls { None } else { Some(host.cloned().unwrap_or_else(Host::internal)) },
            in_place_of: None,
            asks_for_tokens: Some(!options.access.is_open()),
            is_registry: Some(is_registry),
        });
        let (from, text) = (routes.describe(), setup.text());
        let url = ServerAddress::listening(address, is_tls).below(base_path).ok_or_else(wrong)?.url();
        context.printer.note(&format!("serving modules on {url} from {from}\n\n{}", text.trim_end()));
        Ok(())
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
}

/// Has the metrics tell what the search leaves out.
fn count_left_out(metrics: &Metrics, search: &Arc<Search>) {
    let search = Arc::clone(search);
    metrics.search(move || {
        let LeftOut { repositories, registries } = search.left_out();
        SearchNumbers { repositories, registries }
    });
}

/// The registries elsewhere with a memory: a folder is a disk already.
fn kept(routes: Routes, cache: Option<&Arc<Cache>>, metrics: &Metrics) -> Routes {
    let Some(cache) = cache else { return routes };
    let numbers = Arc::clone(cache);
    metrics.caches(move || cache_numbers(&numbers));
    routes.wrapped(|target| {
        let registry = Arc::clone(&target.registry);
        if target.is_local { registry } else { Arc::new(cache.over(registry, &target.identity)) }
    })
}

fn cache_numbers(cache: &Cache) -> Vec<CacheNumbers> {
    let CacheStatistics { listing, tag, manifest, blob } = cache.statistics();
    [("listing", listing), ("tag", tag), ("manifest", manifest), ("blob", blob)]
        .into_iter()
        .map(|(kind, numbers)| CacheNumbers {
            kind,
            hits: numbers.hits,
            // There, what ends with an old copy is a miss too.
            misses: numbers.misses.saturating_sub(numbers.stale),
            stale: numbers.stale,
            bytes: numbers.memory,
        })
        .collect()
}

fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        let failure = Failure::new(ErrorKind::Failed, format!("cannot listen on {address}: {error}"));
        match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                let other = SocketAddr::new(address.ip(), 0);
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

/// Modules are served without metrics too, so a failure here is for the log.
async fn serve_metrics(listener: TcpListener, app: Arc<App>) {
    if let Err(error) = server::serve_metrics(listener, app).await {
        tracing::error!("the metrics are not served any longer: {error}");
    }
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
