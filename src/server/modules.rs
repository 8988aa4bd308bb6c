//! The module registry protocol (OpenTofu, "Module Registry Protocol") out of an OCI registry.
//!
//! `versions` is a tag listing, `download` names the zip, and `archive.zip` is the blob: streamed, or where the registry itself
//! can be asked for it. Terraform reads only the header of `download`, OpenTofu the body first, so both say the same. The link
//! carries `checksum`, which every client verifies and takes out before it asks, hence `digest` beside it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
    RANGE,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::App;
use super::error::ApiError;
use super::request_log::{self, Download};
use crate::module::{Host, TofuAddress, Version};
use crate::oci::{ByteRange, Digest};
use crate::operations::published::{Published, StoredModule};
use crate::operations::routes::{ModuleName, RouteError, Routes};
use crate::operations::{OperationError, install};
use crate::registry::{Blob, BlobRequest};

/// What the endpoints answer from.
pub struct Modules {
    /// Where modules are.
    routes: Routes,
    /// Only the modules of this host; those of every host where there is none.
    host: Option<Host>,
    /// Zips whose directory was looked at.
    checked: Mutex<HashSet<Digest>>,
}

/// How many zips are remembered as checked; beyond, all are forgotten and looked at again when they are next asked for.
const MAX_CHECKED: usize = 100_000;

type Answer = Result<Response<Body>, ApiError>;

impl Modules {
    /// The modules of these registries.
    pub fn new(routes: Routes, host: Option<Host>) -> Self {
        Self { routes, host, checked: Mutex::default() }
    }

    /// The modules that an address may mean, best first: that of the host, else one of each host that there may be modules of.
    fn names(&self, address: &AddressPath) -> Result<Vec<ModuleName>, ApiError> {
        let AddressPath { namespace, name, system } = address;
        // Names match in any case, as at the public registries.
        let text = format!("{namespace}/{name}/{}", system.to_ascii_lowercase());
        let parsed = TofuAddress::parse(&text).map_err(|_| address.unknown())?;
        let hosts = self.host.clone().map_or_else(|| self.routes.hosts(), |host| vec![host]);
        Ok(hosts.iter().filter_map(|host| ModuleName::tofu(&parsed, host).ok()).collect())
    }

    /// The versions of the first of these modules that is there.
    async fn find(&self, address: &AddressPath) -> Result<Published, ApiError> {
        for name in self.names(address)? {
            match install::versions(&self.routes, &name, self.host.as_ref()).await {
                Ok(published) => return Ok(published),
                // A prefix leads to a part of its host's modules alone, so this one may have no registry at all.
                Err(OperationError::NoModule { .. } | OperationError::Route(RouteError::NoRegistry(_))) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(address.unknown())
    }

    /// One version, its zip looked at once.
    async fn version(&self, address: &AddressPath, version: &str) -> Result<StoredModule, ApiError> {
        let name = match &self.names(address)?[..] {
            [] => return Err(address.unknown()),
            [name] => name.clone(),
            // The version is that of the module whose versions are listed, and not of another host's.
            _ => self.find(address).await?.module,
        };
        let unknown = || ApiError::NotFound(format!("there is no version `{version}` of `{name}`"));
        let version = Version::parse(version).map_err(|_| unknown())?;
        let stored = install::version(&self.routes, &name, self.host.as_ref(), &version).await;
        let stored = stored.map_err(|error| match error {
            // Which registries are set is nobody's business out there.
            OperationError::Route(RouteError::NoRegistry(_)) => address.unknown(),
            error => error.into(),
        })?;
        let digest = &stored.artifact.archive.digest;
        if self.checked.lock().unwrap_or_else(PoisonError::into_inner).contains(digest) {
            return Ok(stored);
        }
        let listing = install::checked_listing(&stored).await?;
        if !stored.is_opentofu(&listing) {
            return Err(ApiError::NotFound(format!(
                "`{name}` holds no `.tf` files, so it is no OpenTofu module"
            )));
        }
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.len() >= MAX_CHECKED {
            checked.clear();
        }
        checked.insert(digest.clone());
        drop(checked);
        Ok(stored)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct AddressPath {
    namespace: String,
    name: String,
    system: String,
}

impl AddressPath {
    fn unknown(&self) -> ApiError {
        let Self { namespace, name, system } = self;
        ApiError::NotFound(format!("there is no module `{namespace}/{name}/{system}`"))
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct VersionPath {
    #[serde(flatten)]
    address: AddressPath,
    version: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ArchiveQuery {
    /// The zip that the link was made for.
    digest: Option<String>,
}

/// A part of the request that may not be readable: bytes that are no text, a parameter twice.
type Given<T> = Result<T, <T as FromRequestParts<Arc<App>>>::Rejection>;

/// What cannot be read is the name of nothing.
fn given<T, E>(part: Result<T, E>) -> Result<T, ApiError> {
    part.map_err(|_| ApiError::NotFound("there is no such module".to_owned()))
}

/// "List Available Versions for a Specific Module"
pub(super) async fn versions(
    State(app): State<Arc<App>>,
    address: Given<Path<AddressPath>>,
    headers: HeaderMap,
) -> Answer {
    let Path(address) = given(address)?;
    let published = app.modules.find(&address).await?;
    let listed: Vec<_> = published.listed().map(|version| json!({"version": version.to_string()})).collect();
    let mut module = serde_json::Map::new();
    if let Some(source) = install::source(&published).await {
        module.insert("source".to_owned(), source.into());
    }
    module.insert("versions".to_owned(), listed.into());
    let body = json!({"modules": [module]}).to_string();
    let etag = format!("\"{}\"", Digest::of(body.as_bytes()).hex());
    let is_known = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|value| value.trim().trim_start_matches("W/") == etag);
    let answer = Response::builder().header(ETAG, etag).header(CACHE_CONTROL, "no-cache");
    let answer = if is_known {
        answer.status(StatusCode::NOT_MODIFIED).body(Body::empty())
    } else {
        answer.header(CONTENT_TYPE, "application/json").body(Body::from(body))
    };
    answer.map_err(unbuildable)
}

/// "Download Source Code for a Specific Module Version"
pub(super) async fn download(
    State(app): State<Arc<App>>,
    path: Given<Path<VersionPath>>,
    headers: HeaderMap,
) -> Answer {
    let Path(path) = given(path)?;
    let stored = app.modules.version(&path.address, &path.version).await?;
    let digest = &stored.artifact.archive.digest;
    let location = format!("./archive.zip?checksum={digest}&digest={digest}");
    let AddressPath { namespace, name, system } = &path.address;
    let module = format!("{namespace}/{name}/{system}");
    request_log::download(
        &app,
        &headers,
        &Download { token: None, namespace, module, version: &path.version },
    );
    let body = json!({"location": location}).to_string();
    Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .header("X-Terraform-Get", &location)
        .body(Body::from(body))
        .map_err(unbuildable)
}

/// The zip, or a piece of it, or where it is. HEAD is answered without asking for the blob: a URL that is signed for GET would refuse
/// it.
pub(super) async fn archive(
    State(app): State<Arc<App>>,
    path: Given<Path<VersionPath>>,
    query: Given<Query<ArchiveQuery>>,
    method: Method,
    headers: HeaderMap,
) -> Answer {
    let (Path(path), Query(query)) = (given(path)?, given(query)?);
    let stored = app.modules.version(&path.address, &path.version).await?;
    let content = &stored.artifact.archive;
    if query.digest.is_some_and(|digest| digest != content.digest.as_str()) {
        return Err(ApiError::NotFound("the version has another zip than the link says".to_owned()));
    }
    let range = headers.get(RANGE).and_then(|value| value.to_str().ok()).and_then(ByteRange::parse);
    let answer = Response::builder()
        .header(CONTENT_TYPE, "application/zip")
        .header(ACCEPT_RANGES, "bytes")
        .header(ETAG, format!("\"{}\"", content.digest));
    if method == Method::HEAD {
        return answer.header(CONTENT_LENGTH, content.size).body(Body::empty()).map_err(unbuildable);
    }
    let request = BlobRequest { range, location: true };
    match install::archive(&stored.place, content, request).await? {
        Blob::Location(url) => {
            let mut location = HeaderValue::from_str(url.as_str()).map_err(unbuildable)?;
            location.set_sensitive(true);
            Response::builder()
                .status(StatusCode::TEMPORARY_REDIRECT)
                .header(LOCATION, location)
                .header(CACHE_CONTROL, "no-store")
                .body(Body::empty())
                .map_err(unbuildable)
        }
        Blob::Stream(stream) => {
            let answer = match stream.span {
                Some(span) => answer
                    .status(StatusCode::PARTIAL_CONTENT)
                    .header(CONTENT_RANGE, span.content_range(stream.size))
                    .header(CONTENT_LENGTH, span.length),
                None => answer.header(CONTENT_LENGTH, stream.size),
            };
            answer.body(Body::from_stream(stream.bytes)).map_err(unbuildable)
        }
    }
}

/// An answer that cannot be built of what is in it: a bug, or a registry's location that no header can hold.
fn unbuildable(error: impl std::error::Error + Send + Sync + 'static) -> ApiError {
    ApiError::Unbuildable(Box::new(error))
}
