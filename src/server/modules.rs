//! The module registry protocol (OpenTofu, "Module Registry Protocol") out of an OCI registry.
//!
//! `versions` is a tag listing, `download` names the zip, and `archive.zip` is the blob: streamed, or where the registry itself
//! can be asked for it. Terraform reads only the header of `download`, OpenTofu the body first, so both say the same. The link
//! carries `checksum`, which every client verifies and takes out before it asks, hence `digest` beside it.

use std::sync::Arc;

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
use crate::module::{Host, TofuAddress, Version};
use crate::oci::{ByteRange, Digest};
use crate::operations::OperationError;
use crate::operations::install::{self, Asked, Installable};
use crate::registry::{Blob, BlobRequest};

type Answer = Result<Response<Body>, ApiError>;

/// The address in a path, below `/v1/modules/` or below `/v1/hosts/{hostname}/modules/`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct AddressPath {
    /// Another host than this server's, whose modules are kept here.
    hostname: Option<String>,
    namespace: String,
    name: String,
    system: String,
}

impl AddressPath {
    fn unknown(&self) -> ApiError {
        let Self { namespace, name, system, .. } = self;
        ApiError::NotFound(format!("there is no module `{namespace}/{name}/{system}`"))
    }

    /// What is asked for. What can be no address is the name of nothing.
    fn asked(&self) -> Result<Asked, ApiError> {
        let Self { hostname, namespace, name, system } = self;
        // Names match in any case, as at the public registries.
        let text = format!("{namespace}/{name}/{}", system.to_ascii_lowercase());
        let address = TofuAddress::parse(&text).map_err(|_| self.unknown())?;
        let host = hostname.as_deref().map(Host::parse).transpose().map_err(|_| self.unknown())?;
        Ok(Asked { address, host })
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct VersionPath {
    #[serde(flatten)]
    address: AddressPath,
    version: String,
}

impl VersionPath {
    /// That version, its zip looked at.
    async fn find(&self, app: &App) -> Result<Installable, ApiError> {
        let asked = self.address.asked()?;
        let unknown =
            || ApiError::NotFound(format!("there is no version `{}` of `{}`", self.version, asked.address));
        let version = Version::parse(&self.version).map_err(|_| unknown())?;
        app.installer.version(&asked, &version, &|_| true).await.map_err(|error| match error.into() {
            // Which registries are set is nobody's business out there.
            ApiError::Operation(OperationError::Route(_)) => self.address.unknown(),
            error => error,
        })
    }
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
    let offer = app.installer.versions(&address.asked()?, &|_| true).await?;
    let listed: Vec<_> =
        offer.versions.iter().map(|(version, _)| json!({"version": version.to_string()})).collect();
    let mut module = serde_json::Map::new();
    if let Some(own) = &offer.own
        && let Some(source) = install::source(own).await
    {
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
pub(super) async fn download(State(app): State<Arc<App>>, path: Given<Path<VersionPath>>) -> Answer {
    let Path(path) = given(path)?;
    let installable = path.find(&app).await?;
    let digest = &installable.archive.digest;
    let location = format!("./archive.zip?checksum={digest}&digest={digest}");
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
    let installable = path.find(&app).await?;
    let content = &installable.archive;
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
    match install::archive(&installable.place, content, request).await? {
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
