//! What a verb works with, beside its own options, and how that becomes what operations ask for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::environment::Environment;
use super::failure::Failure;
use super::module_options::{parse_address, parse_constraint};
use super::printer::Printer;
use super::registry_options::{RegistryChoice, RegistryOptions};
use super::settings::Settings;
use crate::module::{Address, AddressAt, Constraint};
use crate::operations::connect::{Connection, Destination};
use crate::operations::lock::LockFile;
use crate::operations::published::{self, StoredModule};
use crate::operations::routes::{ProviderTemplate, RepositoryTemplate, Routes};
use crate::registry::DirectoryOptions;
use crate::registry::credentials::{CredentialEnvironment, CredentialSource};
use crate::registry::remote::{Proxies, ProxyError};
use crate::server::RequestLog;

/// What a verb works with, beside its own options.
pub struct Context {
    /// What the process was started with.
    pub environment: Environment,
    /// Every setting, with where it comes from.
    pub settings: Settings,
    /// The registry's options.
    pub registry: RegistryOptions,
    /// Where output goes.
    pub printer: Printer,
    /// Where the lines of requests go; nowhere where they are not wanted.
    pub request_log: Option<Arc<dyn RequestLog>>,
}

impl Context {
    /// How registries are reached, by who only reads.
    pub(super) fn connection(&self, choice: &RegistryChoice) -> Result<Connection, Failure> {
        let path = |key: &str, path: &PathBuf| self.settings.folder_of(key).join(path);
        let identity = match (&self.registry.cert_file, &self.registry.key_file) {
            (Some(certificate), Some(key)) => Some((path("cert-file", certificate), path("key-file", key))),
            (None, None) => None,
            _ => return Err(Failure::usage("`--cert-file` and `--key-file` go together; give both")),
        };
        let folder = match choice {
            RegistryChoice::Named { folder, .. } => folder.clone(),
            RegistryChoice::UserFolder(_) | RegistryChoice::Temporary(_) => {
                self.environment.working_folder.clone()
            }
        };
        Ok(Connection {
            credentials: CredentialSource::from_environment(self.credential_environment()),
            proxies: self.proxies(),
            plain_http: self.registry.plain_http,
            ca_file: self.registry.ca_file.as_ref().map(|file| path("ca-file", file)),
            identity,
            folder,
            makes_stores: false,
            store: DirectoryOptions::default(),
        })
    }

    /// How a registry is reached that no setting names.
    pub(super) fn connection_alone(&self) -> Result<Connection, Failure> {
        self.connection(&RegistryChoice::Temporary(PathBuf::new()))
    }

    /// Where the user's logins are.
    pub(super) fn credential_environment(&self) -> CredentialEnvironment {
        let path = |name: &str| {
            self.environment.variable(name).map(|path| self.environment.absolute(Path::new(path)))
        };
        CredentialEnvironment {
            home: self.environment.home.clone(),
            runtime_folder: path("XDG_RUNTIME_DIR"),
            config_folder: path("XDG_CONFIG_HOME"),
            docker_config: path("DOCKER_CONFIG"),
            registry_auth_file: path("REGISTRY_AUTH_FILE"),
            docker_auth_config: self
                .environment
                .variable("DOCKER_AUTH_CONFIG")
                .map(|text| text.to_string_lossy().into_owned()),
            cue_config: self.environment.cue_configuration_folder(),
            search_path: self.environment.variable("PATH").map(Into::into),
        }
    }

    pub(super) fn proxies(&self) -> Result<Proxies, ProxyError> {
        let text =
            |name: &str| self.environment.variable(name).map(|text| text.to_string_lossy().into_owned());
        Proxies::from_variables(text)
    }

    /// The registries of a choice, opened for reading.
    pub(super) async fn routes_to_read(&self, choice: &RegistryChoice) -> Result<Routes, Failure> {
        self.routes(choice, self.connection(choice)?).await
    }

    /// The same for writing: folders become stores where they are none.
    pub(super) async fn routes_to_write(&self, choice: &RegistryChoice) -> Result<Routes, Failure> {
        self.routes_to_serve(choice, DirectoryOptions::default()).await
    }

    /// The same for a server, which has bounds for what it stores.
    pub(super) async fn routes_to_serve(
        &self,
        choice: &RegistryChoice,
        store: DirectoryOptions,
    ) -> Result<Routes, Failure> {
        self.routes(choice, Connection { makes_stores: true, store, ..self.connection(choice)? }).await
    }

    /// Where a copy goes; in a dry run no folder becomes a store.
    pub(super) async fn destination(
        &self,
        choice: &RegistryChoice,
        connection: Connection,
        dry_run: bool,
    ) -> Result<Destination, Failure> {
        let connection = Connection { makes_stores: !dry_run, ..connection };
        let mut destination = connection.destination(&choice.setting()?, self.template()?).await?;
        destination.routes = destination.routes.with_providers(self.provider_template()?);
        Ok(destination)
    }

    fn template(&self) -> Result<RepositoryTemplate, Failure> {
        self.registry.module_repository.parse().map_err(wrong)
    }

    fn provider_template(&self) -> Result<ProviderTemplate, Failure> {
        self.registry.provider_repository.parse().map_err(wrong)
    }

    async fn routes(&self, choice: &RegistryChoice, connection: Connection) -> Result<Routes, Failure> {
        let routes = connection.routes(&choice.setting()?, self.template()?).await?;
        Ok(routes.with_providers(self.provider_template()?))
    }

    /// The version of a module that an address and `--version` name.
    pub(super) async fn stored(
        &self,
        address: &str,
        version: Option<&str>,
    ) -> Result<(Address, StoredModule), Failure> {
        let (address, stored, _) = self.stored_among(address, version, None).await?;
        Ok((address, stored))
    }

    /// The same with the registries where other modules are: of a place that is named outright, that one's own. Where a lock has a version
    /// of the module it is that one.
    pub(super) async fn stored_among(
        &self,
        address: &str,
        version: Option<&str>,
        lock: Option<&LockFile>,
    ) -> Result<(Address, StoredModule, Routes), Failure> {
        let address = parse_address(address)?;
        let constraint = version.map(parse_constraint).transpose()?;
        let choice = self.registry.choose(self)?;
        let stored = if let Address::Oci(place) = &address.address {
            if constraint.is_some() {
                return Err(Failure::usage(format!(
                    "`{place}` is one manifest, so `--version` has nothing to choose from"
                ))
                .with_hint("leave out `--version`, or write the module's address"));
            }
            match self.connection(&choice)?.load(place).await {
                Ok(stored) => {
                    let beside = vec![(None, Some(stored.place.target.clone()))];
                    Ok((stored, Routes::new(beside, self.template()?)))
                }
                Err(error) => Err(error),
            }
        } else {
            choice.expect_folders()?;
            let routes = self.routes_to_read(&choice).await?;
            let locked = match lock {
                Some(lock) => {
                    let name = published::name(&address)?;
                    lock.version(name.path(), address.version.as_ref(), constraint.as_ref())?
                }
                None => None,
            };
            let selected = match locked {
                Some(version) => {
                    let address = AddressAt { version: None, ..address.clone() };
                    published::select(&routes, &address, Some(&Constraint::exactly(&version))).await
                }
                None => published::select(&routes, &address, constraint.as_ref()).await,
            };
            selected.map(|stored| (stored, routes))
        };
        let (stored, routes) = stored.map_err(|error| choice.explain(error.into()))?;
        Ok((address.address, stored, routes))
    }

    /// `SOURCE_DATE_EPOCH` (<https://reproducible-builds.org/specs/source-date-epoch/>).
    pub(super) fn source_date(&self) -> Result<Option<i64>, Failure> {
        let Some(text) = self.environment.variable("SOURCE_DATE_EPOCH") else { return Ok(None) };
        let seconds = text.to_str().and_then(|text| text.parse::<i64>().ok());
        let wrong = || {
            Failure::usage(format!(
                "SOURCE_DATE_EPOCH is `{}`; expected the seconds from 1970 to a date before the year 10000",
                text.display()
            ))
        };
        seconds.filter(|seconds| (0..=LAST_SECOND).contains(seconds)).map(Some).ok_or_else(wrong)
    }
}

/// 9999-12-31T23:59:59Z: a year has four digits in RFC 3339, and so in annotations.
const LAST_SECOND: i64 = 253_402_300_799;

/// A setting that cannot be read.
pub(super) fn wrong(error: impl std::fmt::Display) -> Failure {
    Failure::usage(error.to_string())
}
