//! Opens the registries that a setting names.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::artifact::{self, TaggedVersion};
use crate::module::OciAddress;
use crate::oci::{Descriptor, Digest, Reference, Repository, Tag};
use crate::registry::credentials::CredentialSource;
use crate::registry::directory::{DirectoryOptions, DirectoryRegistry};
use crate::registry::remote::{
    Proxies, ProxyError, RegistryHost, RegistryHostError, RemoteOptions, RemoteRegistry, TlsOptions,
};
use crate::registry::{
    Answer, LayoutRegistry, ManifestHead, Page, PageRequest, Registry, RegistryError, SharedRegistry,
    StoredManifest,
};

use super::error::{OperationError, Result};
use super::published::{self, StoredModule};
use super::registry_setting::{RegistryLocation, RegistryRoute, RegistrySetting, RegistrySettingError};
use super::routes::{Place, RepositoryTemplate, Route, Routes, Target};

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
    /// What stands between this machine and the registries elsewhere; only who asks one of these has to know.
    pub proxies: std::result::Result<Proxies, ProxyError>,
    /// The folder that relative paths count from.
    pub folder: PathBuf,
    /// Whether a folder that is no store is made one. Else it is a registry that holds nothing.
    pub makes_stores: bool,
    /// The bounds of stores. That published versions do not change holds in every one.
    pub store: DirectoryOptions,
}

/// Where a copy goes.
pub struct Destination {
    /// The registries.
    pub routes: Routes,
    /// Those of them that are files: they are written when all is done.
    pub files: Vec<LayoutFile>,
}

/// A layout that is written.
pub struct LayoutFile {
    /// `layout:FILE.tar`, as it was named.
    pub name: String,
    /// The file.
    pub registry: Arc<LayoutRegistry>,
}

/// Registries that are open already, by what they are reached by; and whether files among them are written.
#[derive(Default)]
struct Opened {
    registries: HashMap<String, SharedRegistry>,
    files: Option<Vec<LayoutFile>>,
}

impl Connection {
    /// Opens every registry of a setting.
    pub async fn routes(&self, setting: &RegistrySetting, template: RepositoryTemplate) -> Result<Routes> {
        self.check_schemes([setting])?;
        self.open_all(setting, template, &mut Opened::default()).await
    }

    /// The same for what a copy writes to: files with a layout are opened to be written.
    pub async fn destination(
        &self,
        setting: &RegistrySetting,
        template: RepositoryTemplate,
    ) -> Result<Destination> {
        let mut opened = Opened { files: Some(Vec::new()), ..Opened::default() };
        let routes = self.open_all(setting, template, &mut opened).await?;
        Ok(Destination { routes, files: opened.files.unwrap_or_default() })
    }

    async fn open_all(
        &self,
        setting: &RegistrySetting,
        template: RepositoryTemplate,
        opened: &mut Opened,
    ) -> Result<Routes> {
        let mut routes = Vec::new();
        for RegistryRoute { prefix, location, encoding } in setting.routes() {
            let target = self.open(location, opened).await?;
            routes.push(Route { prefix: prefix.clone(), target, encoding: encoding.clone() });
        }
        Ok(Routes::encoded(routes, template))
    }

    /// A host that is named for plain http once and for https elsewhere would get the credentials of the one on the other way.
    pub fn check_schemes<'a>(&self, settings: impl IntoIterator<Item = &'a RegistrySetting>) -> Result<()> {
        let mut known: HashMap<&RegistryHost, bool> = HashMap::new();
        for (_, location) in settings.into_iter().flat_map(RegistrySetting::locations) {
            if let RegistryLocation::Remote { host, insecure, .. } = location
                && let Some(plain) = self.is_plain(host, *insecure)
                && known.insert(host, plain).is_some_and(|known| known != plain)
            {
                return Err(RegistrySettingError::BothSchemes(host.to_string()).into());
            }
        }
        Ok(())
    }

    /// Whether a registry is spoken to in plain http; `None` where it is left to what answers, as on this machine.
    fn is_plain(&self, host: &RegistryHost, insecure: Option<bool>) -> Option<bool> {
        insecure.or(self.plain_http.then_some(true)).or((!host.is_loopback()).then_some(false))
    }

    /// The repository of a place that is named outright.
    pub async fn place(&self, address: &OciAddress) -> Result<Place> {
        let host = address.registry.parse().map_err(|error: RegistryHostError| OperationError::Usage {
            message: error.to_string(),
            hint: "write for example `oci://ghcr.io/acme/vpc:v1.0.0`".to_owned(),
        })?;
        let location = RegistryLocation::Remote { host, prefix: String::new(), insecure: None };
        let missing = || OperationError::Usage {
            message: format!("`{address}` names no registry"),
            hint: String::new(),
        };
        let target = self.open(&location, &mut Opened::default()).await?.ok_or_else(missing)?;
        Ok(Place { target, repository: address.repository.clone() })
    }

    /// The module at a place that is named outright. A version brings its bundle along, as everywhere.
    pub async fn load(&self, address: &OciAddress) -> Result<StoredModule> {
        let place = self.place(address).await?;
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
        match version_at(&place, &reference).await? {
            Some(version) => published::load(&place, &version).await,
            None => published::load_reference(&place, &reference).await,
        }
    }

    async fn open(&self, location: &RegistryLocation, opened: &mut Opened) -> Result<Option<Target>> {
        let (key, prefix) = match location {
            RegistryLocation::None => return Ok(None),
            RegistryLocation::Directory(path) => {
                (format!("dir:{}", self.folder.join(path).display()), String::new())
            }
            RegistryLocation::Layout(path) => {
                (format!("layout:{}", self.folder.join(path).display()), String::new())
            }
            RegistryLocation::Remote { host, prefix, insecure } => {
                let scheme = match self.is_plain(host, *insecure) {
                    Some(true) => "http:",
                    Some(false) => "https:",
                    None => "",
                };
                (format!("{scheme}{host}"), prefix.clone())
            }
        };
        let registry = match opened.registries.get(&key) {
            Some(registry) => Arc::clone(registry),
            None => match location {
                RegistryLocation::Directory(path) => {
                    open_directory(self.folder.join(path), self.makes_stores, self.store.clone()).await?
                }
                RegistryLocation::Layout(path) => {
                    open_layout(location.to_string(), self.folder.join(path), opened.files.as_mut()).await?
                }
                RegistryLocation::Remote { .. } | RegistryLocation::None => self.remote(location)?,
            },
        };
        opened.registries.insert(key.clone(), Arc::clone(&registry));
        Ok(Some(Target {
            registry,
            prefix,
            name: match location {
                RegistryLocation::Remote { host, .. } => host.to_string(),
                other => other.to_string(),
            },
            // Not the key: spoken to in another way it is the same registry.
            identity: match location {
                RegistryLocation::Remote { host, .. } => host.to_string().into(),
                _ => key.into(),
            },
            is_local: matches!(location, RegistryLocation::Directory(_) | RegistryLocation::Layout(_)),
        }))
    }

    fn remote(&self, location: &RegistryLocation) -> Result<SharedRegistry> {
        let RegistryLocation::Remote { host, insecure, .. } = location else {
            return Err(OperationError::registry(location.to_string())(RegistryError::Unsupported {
                operation: "opening this",
            }));
        };
        Ok(Arc::new(self.registry(host, *insecure)?))
    }

    /// A registry elsewhere; nothing is sent yet.
    pub(super) fn registry(&self, host: &RegistryHost, insecure: Option<bool>) -> Result<RemoteRegistry> {
        let proxies = self.proxies.clone().map_err(|error| OperationError::Usage {
            message: error.to_string(),
            hint: "set the variable to a proxy, or unset it".to_owned(),
        })?;
        let options = RemoteOptions {
            plain_http: self.is_plain(host, insecure),
            tls: TlsOptions { ca_file: self.ca_file.clone(), client_certificate: self.identity.clone() },
            proxies,
            ..RemoteOptions::new(host.clone(), self.credentials.clone())
        };
        RemoteRegistry::new(options).map_err(|error| OperationError::Usage {
            message: error.to_string(),
            hint: "the options are `--ca-file`, `--cert-file` and `--key-file`".to_owned(),
        })
    }
}

/// The version that a tag says, with what there is of it; `None` for every other reference.
async fn version_at(place: &Place, reference: &Reference) -> Result<Option<TaggedVersion>> {
    let Reference::Tag(tag) = reference else { return Ok(None) };
    let Some(version) = artifact::version_of(tag) else { return Ok(None) };
    let has_bundle = match artifact::bundle_tag(tag) {
        Ok(bundle) => has(place, bundle).await?,
        // No tag is so long, so neither is the bundle's.
        Err(_) => false,
    };
    // Where there is no bundle it is for the tag itself to say that it is not there.
    let has_tag = !has_bundle || has(place, tag.clone()).await?;
    Ok(Some(TaggedVersion { version, tag: tag.clone(), has_tag, has_bundle }))
}

async fn has(place: &Place, tag: Tag) -> Result<bool> {
    let reference = Reference::Tag(tag);
    match place.registry().manifest_head(&place.repository, &reference).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(OperationError::registry(place.reference(&reference))(error)),
    }
}

/// A directory of OCI image layouts, where published versions do not change; made where there is none.
pub async fn directory(path: PathBuf) -> Result<SharedRegistry> {
    open_directory(path, true, DirectoryOptions::default()).await
}

async fn open_directory(
    path: PathBuf,
    makes_store: bool,
    options: DirectoryOptions,
) -> Result<SharedRegistry> {
    let name = path.display().to_string();
    super::blocking(move || {
        let options = DirectoryOptions { immutable: Some(Arc::new(artifact::immutable_twins)), ..options };
        let opened = if makes_store {
            DirectoryRegistry::open(&path, options).map(Some)
        } else {
            DirectoryRegistry::open_existing(&path, options)
        };
        Ok(match opened.map_err(OperationError::registry(name))? {
            Some(registry) => Arc::new(registry) as SharedRegistry,
            None => Arc::new(NoStore),
        })
    })
    .await
}

/// A file with an image layout; to be written, and noted, where files are.
async fn open_layout(
    name: String,
    path: PathBuf,
    written: Option<&mut Vec<LayoutFile>>,
) -> Result<SharedRegistry> {
    let Some(written) = written else {
        let registry = LayoutRegistry::open(path).await;
        return Ok(Arc::new(registry.map_err(OperationError::registry(name))?));
    };
    let registry = LayoutRegistry::open_to_write(path).await;
    let registry = Arc::new(registry.map_err(OperationError::registry(name.clone()))?);
    written.push(LayoutFile { name, registry: Arc::clone(&registry) });
    Ok(registry)
}

/// A folder that is no store, or not there at all, for who only reads: it holds nothing, and nothing is written to it.
struct NoStore;

impl NoStore {
    fn unknown(repository: &Repository) -> RegistryError {
        RegistryError::RepositoryUnknown(repository.to_string())
    }
}

impl Registry for NoStore {
    fn tags<'a>(&'a self, repository: &'a Repository, _page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        Box::pin(async { Err(Self::unknown(repository)) })
    }

    fn repositories<'a>(&'a self, _page: &'a PageRequest) -> Answer<'a, Page<Repository>> {
        Box::pin(async { Ok(Page { items: Vec::new(), next: None }) })
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        _reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        Box::pin(async { Err(Self::unknown(repository)) })
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        _reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        Box::pin(async { Err(Self::unknown(repository)) })
    }

    fn blob_size<'a>(&'a self, _repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        Box::pin(async { Err(RegistryError::BlobUnknown(digest.clone())) })
    }

    fn referrers<'a>(
        &'a self,
        _repository: &'a Repository,
        _digest: &'a Digest,
        _artifact_type: Option<&'a str>,
        _page: &'a PageRequest,
    ) -> Answer<'a, Page<Descriptor>> {
        Box::pin(async { Ok(Page { items: Vec::new(), next: None }) })
    }
}
