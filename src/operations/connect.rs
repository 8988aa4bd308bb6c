//! Opens the registries that a setting names.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::artifact;
use crate::module::OciAddress;
use crate::oci::Reference;
use crate::registry::credentials::CredentialSource;
use crate::registry::directory::{DirectoryOptions, DirectoryRegistry};
use crate::registry::remote::{RegistryHostError, RemoteOptions, RemoteRegistry, TlsOptions};
use crate::registry::{RegistryError, SharedRegistry};

use super::error::{OperationError, Result};
use super::published::{self, StoredModule};
use super::routes::{Place, RegistryLocation, RegistrySetting, RepositoryTemplate, Routes, Target};

/// How registries are reached, whichever they are.
#[derive(Clone)]
pub struct Connection {
    /// Whose registries these are.
    pub credentials: CredentialSource,
    /// Plain http where the registry's own name does not say.
    pub plain_http: bool,
    /// Certificates that are trusted beside the system's, in PEM.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The folder that relative paths count from.
    pub folder: PathBuf,
}

impl Connection {
    /// Opens every registry of a setting.
    pub async fn routes(&self, setting: &RegistrySetting, template: RepositoryTemplate) -> Result<Routes> {
        let mut opened: HashMap<String, SharedRegistry> = HashMap::new();
        let mut routes = Vec::new();
        for (prefix, location) in setting.locations() {
            if let Some(target) = self.open(location, &mut opened).await? {
                routes.push((prefix.map(str::to_owned), target));
            }
        }
        Ok(Routes::new(routes, template))
    }

    /// The module at a place that is named outright.
    pub async fn load(&self, address: &OciAddress) -> Result<StoredModule> {
        let host = address.registry.parse().map_err(|error: RegistryHostError| OperationError::Usage {
            message: error.to_string(),
            hint: "write for example `oci://ghcr.io/acme/vpc:v1.0.0`".to_owned(),
        })?;
        let location = RegistryLocation::Remote { host, prefix: String::new(), insecure: None };
        let missing = || OperationError::Usage {
            message: format!("`{address}` names no registry"),
            hint: String::new(),
        };
        let target = self.open(&location, &mut HashMap::new()).await?.ok_or_else(missing)?;
        let place = Place { target, repository: address.repository.clone() };
        let reference = match (&address.digest, &address.tag) {
            (Some(digest), _) => Reference::Digest(digest.clone()),
            (None, Some(tag)) => Reference::Tag(tag.clone()),
            (None, None) => {
                return Err(OperationError::Usage {
                    message: format!("`{address}` names no version"),
                    hint: format!("add a tag, as in `{address}:v1.0.0`, or a digest"),
                });
            }
        };
        published::load_reference(&place, &reference).await
    }

    async fn open(
        &self,
        location: &RegistryLocation,
        opened: &mut HashMap<String, SharedRegistry>,
    ) -> Result<Option<Target>> {
        let (key, prefix) = match location {
            RegistryLocation::None => return Ok(None),
            RegistryLocation::Directory(path) => {
                (format!("dir:{}", self.folder.join(path).display()), String::new())
            }
            RegistryLocation::Remote { host, prefix, .. } => (host.to_string(), prefix.clone()),
        };
        let registry = match opened.get(&key) {
            Some(registry) => Arc::clone(registry),
            None => match location {
                RegistryLocation::Directory(path) => directory(self.folder.join(path)).await?,
                _ => self.remote(location)?,
            },
        };
        opened.insert(key.clone(), Arc::clone(&registry));
        Ok(Some(Target {
            registry,
            prefix,
            name: match location {
                RegistryLocation::Remote { host, .. } => host.to_string(),
                other => other.to_string(),
            },
            identity: key.into(),
            is_local: matches!(location, RegistryLocation::Directory(_)),
        }))
    }

    fn remote(&self, location: &RegistryLocation) -> Result<SharedRegistry> {
        let RegistryLocation::Remote { host, insecure, .. } = location else {
            return Err(OperationError::registry(location.to_string())(RegistryError::Unsupported {
                operation: "opening this",
            }));
        };
        let options = RemoteOptions {
            plain_http: insecure.map_or(self.plain_http.then_some(true), Some),
            tls: TlsOptions { ca_file: self.ca_file.clone(), client_certificate: self.identity.clone() },
            ..RemoteOptions::new(host.clone(), self.credentials.clone())
        };
        let registry = RemoteRegistry::new(options).map_err(|error| OperationError::Usage {
            message: error.to_string(),
            hint: "the options are `--ca-file`, `--cert-file` and `--key-file`".to_owned(),
        })?;
        Ok(Arc::new(registry))
    }
}

/// A directory of OCI image layouts, where published versions do not change.
pub async fn directory(path: PathBuf) -> Result<SharedRegistry> {
    let name = path.display().to_string();
    super::blocking(move || {
        let options = DirectoryOptions {
            immutable: Some(Arc::new(artifact::immutable_twins)),
            ..DirectoryOptions::default()
        };
        let registry = DirectoryRegistry::open(&path, options).map_err(OperationError::registry(name))?;
        Ok(Arc::new(registry) as SharedRegistry)
    })
    .await
}
