//! The module registry protocol (OpenTofu, "Module Registry Protocol") out of an OCI registry.
//!
//! `versions` is a tag listing, and `download` names the zip, by a link that [`super::archive`] makes and answers. Terraform reads only
//! the header of `download`, OpenTofu the body first, so both say the same.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, OriginalUri, Path, State};
use axum::http::header::{AGE, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use super::App;
use super::archive;
use super::archive_link::Route;
use super::error::ApiError;
use super::rendered::{Rendered, Way};
use super::request_log::{self, Download, Product};
use crate::module::{Host, TofuAddress, Version};
use crate::operations::OperationError;
use crate::operations::access::{Caller, Right};
use crate::operations::install::{self, Asked, Installable, MayRead, Offer};
use crate::operations::routes::Place;
use crate::registry::cached::{Observed, observed};

/// Which answers come from a cache, and how (RFC 9211).
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

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
        Ok(Asked::Tofu { address, host })
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct VersionPath {
    #[serde(flatten)]
    address: AddressPath,
    version: String,
}

impl VersionPath {
    /// Where a link to this version's zip is good.
    pub(super) fn archive_route(&self) -> Route {
        let AddressPath { hostname, namespace, name, system } = &self.address;
        let hostname = hostname.as_deref().unwrap_or_default();
        Route::module_archive([hostname, namespace, name, system, &self.version])
    }

    /// That version, its zip looked at.
    pub(super) async fn find(&self, app: &App, caller: &Caller) -> Result<Installable, ApiError> {
        let asked = self.address.asked()?;
        let unknown = || ApiError::NotFound(format!("there is no version `{}` of `{asked}`", self.version));
        let version = Version::parse(&self.version).map_err(|_| unknown())?;
        app.installer.version(&asked, &version, &reads(caller)).await.map_err(|error| match error.into() {
            // Which registries are set is nobody's business out there.
            ApiError::Operation(OperationError::Route(_)) => self.address.unknown(),
            error => error,
        })
    }
}

/// A part of the request that may not be readable: bytes that are no text, a parameter twice.
pub(super) type Given<T> = Result<T, <T as FromRequestParts<Arc<App>>>::Rejection>;

/// What cannot be read is the name of nothing.
pub(super) fn given<T, E>(part: Result<T, E>) -> Result<T, ApiError> {
    part.map_err(|_| ApiError::NotFound("there is no such module".to_owned()))
}

/// Which repositories a caller may read.
pub(super) fn reads(caller: &Caller) -> impl Fn(&Place) -> bool + Send + Sync {
    |place| caller.may(Right::Read, place.below_prefix())
}

/// "List Available Versions for a Specific Module"
pub(super) async fn versions(
    State(app): State<Arc<App>>,
    caller: Caller,
    address: Given<Path<AddressPath>>,
    OriginalUri(uri): OriginalUri,
    route: MatchedPath,
    headers: HeaderMap,
) -> Answer {
    let Path(address) = given(address)?;
    let asked = address.asked()?;
    let may_read = reads(&caller);
    let standing = app.answers.standing(&app.installer, &asked).await;
    if let Some(standing) = &standing {
        let way = Way { path: uri.path().to_owned(), route: route.as_str().into() };
        if let Some(kept) = app.answers.get(&asked, standing, way, &may_read) {
            return Ok(kept.rendered.answer(&headers));
        }
    }
    let (rendered, seen) = observed(Box::pin(render(&app, &asked, &may_read))).await;
    let (offer, rendered) = rendered?;
    if let Some(standing) = standing.filter(|_| !seen.stale) {
        app.answers.keep(asked, standing, &offer, &rendered);
    }
    Ok(marked(rendered.answer(&headers), seen))
}

/// How much text a version takes in a list, in bytes.
const USUAL_VERSION: usize = 32;

/// The answer to `versions`.
#[derive(Serialize)]
struct VersionList<'a> {
    modules: [ListedModule<'a>; 1],
}

#[derive(Serialize)]
struct ListedModule<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    versions: Vec<ListedVersion<'a>>,
}

#[derive(Serialize)]
struct ListedVersion<'a> {
    #[serde(serialize_with = "as_text")]
    version: &'a Version,
}

fn as_text<S: Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(version)
}

async fn render(app: &App, asked: &Asked, may_read: MayRead<'_>) -> Result<(Offer, Rendered), ApiError> {
    let offer = app.installer.versions(asked, may_read).await?;
    let source = match &offer.own {
        Some(own) => install::source(own).await,
        None => None,
    };
    let versions = offer.versions.iter().map(|(version, _)| ListedVersion { version }).collect();
    let list = VersionList { modules: [ListedModule { source, versions }] };
    let mut body = Vec::with_capacity(offer.versions.len().saturating_mul(USUAL_VERSION) + USUAL_VERSION);
    serde_json::to_writer(&mut body, &list).map_err(unbuildable)?;
    let rendered = Rendered::new(body);
    Ok((offer, rendered))
}

/// Says of an answer that it comes from a copy since the registry cannot be asked (RFC 9211, `Cache-Status`), and how many seconds old
/// that is (RFC 9111, `Age`).
pub(super) fn marked(mut answer: Response<Body>, seen: Observed) -> Response<Body> {
    if seen.stale {
        let headers = answer.headers_mut();
        headers.insert(CACHE_STATUS, HeaderValue::from_static("ocimod; hit; detail=stale"));
        headers.insert(AGE, seen.age.as_secs().into());
    }
    answer
}

/// "Download Source Code for a Specific Module Version"
pub(super) async fn download(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Given<Path<VersionPath>>,
    headers: HeaderMap,
) -> Answer {
    let Path(path) = given(path)?;
    let (installable, seen) = observed(Box::pin(path.find(&app, &caller))).await;
    let installable = installable?;
    let location = archive::location(
        &app,
        path.archive_route(),
        "archive.zip",
        &installable.place,
        &installable.archive,
    )
    .await?;
    let AddressPath { namespace, name, system, .. } = &path.address;
    let module = format!("{namespace}/{name}/{system}");
    request_log::download(
        &app,
        &headers,
        &Download {
            token: caller.name(),
            namespace,
            product: Product::Module(&module),
            version: &path.version,
        },
    );
    let body = json!({"location": location}).to_string();
    Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .header(CACHE_CONTROL, "no-store")
        .header("X-Terraform-Get", &location)
        .body(Body::from(body))
        .map(|answer| marked(answer, seen))
        .map_err(unbuildable)
}

/// An answer that cannot be built of what is in it: a bug, or a registry's location that no header can hold.
pub(super) fn unbuildable(error: impl std::error::Error + Send + Sync + 'static) -> ApiError {
    ApiError::Unbuildable(Box::new(error))
}
