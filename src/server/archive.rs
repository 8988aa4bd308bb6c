//! The zips of modules and providers: the link that `download` or `VERSION.json` gives, and the bytes behind it.
//!
//! A link is given for a zip whose directory was looked at, in every mode. The link alone lets its bearer in: the request that brings
//! it is not looked up again, so the registry is asked for the blob and nothing else. A request that brings no link is that of a
//! person who names a version, and is resolved as `download` is. What is half a link is refused: it must not fall back to anything.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LOCATION,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use url::Url;

use super::App;
use super::archive_link::{ArchiveLink, GivenLink, LinkError, Route};
use super::error::ApiError;
use super::modules::{Given, VersionPath, given, unbuildable};
use super::oci;
use super::reload::Live;
use super::sent_file::Sent;
use super::signature::{Keys, KeysError};
use crate::artifact::Content;
use crate::operations::access::Caller;
use crate::operations::routes::Place;
use crate::operations::{OperationError, install};
use crate::registry::{Blob, BlobRequest, RegistryError};

/// How long a link holds unless somebody says otherwise: a client asks for the zip at once, and has this long to begin again where a
/// transfer broke off.
pub const DEFAULT_LINK_LIFETIME: Duration = Duration::from_mins(5);

/// How zips reach the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArchiveMode {
    /// From where the registry points to, if that is https; else through the server.
    #[default]
    Auto,
    /// Through the server.
    Proxy,
    /// From where the registry points to, if it does; else through the server.
    Redirect,
    /// From the registry itself, where everybody may read.
    Direct,
}

impl ArchiveMode {
    /// Whether clients may be sent to where the registry points to.
    fn allows(self, location: &Url) -> bool {
        match self {
            Self::Proxy => false,
            Self::Redirect => true,
            Self::Auto | Self::Direct => location.scheme() == "https",
        }
    }
}

/// How zips reach the client, and what their links are signed with.
#[derive(Clone, Debug)]
pub struct Archives {
    /// By which way.
    pub mode: ArchiveMode,
    /// How long a link holds.
    pub link_lifetime: Duration,
    /// What signs links; no link is given or taken where this process could not make a key.
    pub keys: Option<Live<Keys>>,
}

impl Default for Archives {
    /// With keys that nobody else has.
    fn default() -> Self {
        Self {
            mode: ArchiveMode::default(),
            link_lifetime: DEFAULT_LINK_LIFETIME,
            keys: Keys::generate().ok().map(Live::fixed),
        }
    }
}

impl Archives {
    fn keys(&self) -> Result<Arc<Keys>, ApiError> {
        self.keys.as_ref().map(Live::get).ok_or_else(|| unbuildable(KeysError::NoRandom))
    }
}

fn seconds_now() -> u64 {
    // A clock before 1970 makes every link expired, which is the safe side.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |elapsed| elapsed.as_secs())
}

/// Where a client finds a zip that was looked at: seen from the answer, the file of that name beside it, on the route that the link is
/// good for.
pub(super) async fn location(
    app: &App,
    route: Route,
    file: &str,
    place: &Place,
    content: &Content,
) -> Result<String, ApiError> {
    if app.options.archives.mode == ArchiveMode::Direct
        && let Some(location) = bare_location(app, place, content).await?
    {
        return Ok(location);
    }
    link(app, route, file, place, content)
}

/// The link itself, also to what is no blob yet.
pub(super) fn link(
    app: &App,
    route: Route,
    file: &str,
    place: &Place,
    content: &Content,
) -> Result<String, ApiError> {
    let target = &place.target;
    let registry = app.installer.routes().targets().position(|known| known.identity == target.identity);
    let link = ArchiveLink {
        route,
        identity: target.identity.to_string(),
        registry: registry.unwrap_or_default(),
        repository: place.repository.clone(),
        content: content.clone(),
        expires: seconds_now().saturating_add(app.options.archives.link_lifetime.as_secs()),
    };
    Ok(format!("./{file}?{}", link.query(&*app.options.archives.keys()?)))
}

/// The blob's own URL, for clients that bring no token; `None` where it has none, or where they may not read there.
async fn bare_location(app: &App, place: &Place, content: &Content) -> Result<Option<String>, ApiError> {
    let digest = &content.digest;
    if place.target.is_local {
        let url = format!("/v2/{}/blobs/{digest}?archive=zip&checksum={digest}", place.repository);
        return Ok(app.everybody_reads_blobs().then_some(url));
    }
    match place.registry().blob_url(&place.repository, digest).await {
        Ok(mut url) => {
            url.set_query(Some(&format!("archive=zip&checksum={digest}")));
            Ok(Some(url.into()))
        }
        Err(RegistryError::Unsupported { .. }) => Ok(None),
        Err(error) => Err(OperationError::registry(place.name())(error).into()),
    }
}

impl App {
    /// Whether callers without a token may read the blobs of the embedded registry.
    fn everybody_reads_blobs(&self) -> bool {
        self.options.distribution && self.options.access.strangers_may_read()
    }
}

/// A zip that a request may have.
pub(super) struct Opened {
    /// A repository that has it.
    pub(super) place: Place,
    /// The zip.
    pub(super) content: Content,
}

/// What a link opens, if it is one of ours, for this route.
pub(super) fn opened(app: &App, route: Route, link: &GivenLink<'_>) -> Result<Opened, ApiError> {
    let targets: Vec<_> = app.installer.routes().targets().collect();
    let identities: Vec<&str> = targets.iter().map(|target| &*target.identity).collect();
    let keys = app.options.archives.keys()?;
    let link = link.verify(&keys, route, &identities, seconds_now())?;
    let target = targets.get(link.registry).ok_or(LinkError::Invalid)?;
    let place = Place { target: (*target).clone(), repository: link.repository };
    Ok(Opened { place, content: link.content })
}

/// The zip, or a piece of it, or where it is.
pub(super) async fn archive(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Given<Path<VersionPath>>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let Path(path) = given(path)?;
    let opened = if let Some(link) = GivenLink::read(query.as_deref().unwrap_or_default())? {
        opened(&app, path.archive_route(), &link)?
    } else {
        let installable = path.find(&app, &caller).await?;
        Opened { place: installable.place, content: installable.archive }
    };
    answer(app.options.archives.mode, &opened, &method, &headers).await
}

/// HEAD is answered without asking for the blob: a URL that is signed for GET would refuse it.
pub(super) async fn answer(
    mode: ArchiveMode,
    Opened { place, content }: &Opened,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let answer = Response::builder()
        .header(ACCEPT_RANGES, "bytes")
        .header(ETAG, oci::etag(&content.digest))
        .header(CACHE_CONTROL, "private");
    if oci::is_known(headers, &content.digest) {
        return answer.status(StatusCode::NOT_MODIFIED).body(Body::empty()).map_err(unbuildable);
    }
    let answer = answer.header(CONTENT_TYPE, "application/zip");
    if method == Method::HEAD {
        return answer.header(CONTENT_LENGTH, content.size).body(Body::empty()).map_err(unbuildable);
    }
    let range = oci::range(headers, &content.digest);
    let ask = |location| install::archive(place, content, BlobRequest { range, location, file: true });
    let blob = match ask(mode != ArchiveMode::Proxy).await? {
        Blob::Location(url) if mode.allows(&url) => return redirect(&url),
        Blob::Location(_) => ask(false).await?,
        blob => blob,
    };
    let refused = |error| Err(OperationError::registry(place.name())(error).into());
    let Ok(sent) = Sent::of(blob) else {
        return refused(RegistryError::Unsupported { operation: "reading blobs elsewhere" });
    };
    if sent.size != content.size {
        return refused(RegistryError::SizeMismatch { expected: content.size, actual: sent.size });
    }
    let answer = match sent.span {
        Some(span) => answer
            .status(StatusCode::PARTIAL_CONTENT)
            .header(CONTENT_RANGE, span.content_range(sent.size))
            .header(CONTENT_LENGTH, span.length),
        None => answer.header(CONTENT_LENGTH, sent.size),
    };
    answer.body(Body::empty()).map(|answer| sent.fill(answer)).map_err(unbuildable)
}

fn redirect(url: &Url) -> Result<Response<Body>, ApiError> {
    let mut location = HeaderValue::from_str(url.as_str()).map_err(unbuildable)?;
    location.set_sensitive(true);
    Response::builder()
        .status(StatusCode::TEMPORARY_REDIRECT)
        .header(LOCATION, location)
        .header(CACHE_CONTROL, "no-store")
        .body(Body::empty())
        .map_err(unbuildable)
}
