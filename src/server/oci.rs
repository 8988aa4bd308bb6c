//! The distribution API under `/v2/`, over any [`Registry`] (distribution specification 1.1).
//!
//! Bodies stream both ways. A stream that ends in an error breaks the connection off, so that nobody takes a piece for the
//! whole. `Location` is a path without a host: right behind any proxy, and there is no `Host` header to be believed.

mod absent;
mod request;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;

pub use request::{DistributionRequest, RequestError};

use self::absent::Absent;
use super::App;
use super::access::token_needed;
use super::error::{ApiError, received};
use super::modules::reads;
use super::request_log::Route;
use super::sent_file::Sent;
use crate::oci::{
    ByteRange, Descriptor, Digest, IMAGE_INDEX, MAX_MANIFEST_SIZE, Reference, Repository, Span, Tag,
};
use crate::operations::access::{Caller, Right};
use crate::operations::cue_view::{self, CueView};
use crate::operations::install::Asked as Module;
use crate::registry::{
    BlobRequest, ByteStream, Condition, ManifestHead, NewManifest, Page, PageRequest, Registry,
    RegistryError, StoredManifest, UploadId, read_bounded,
};

/// Tells clients of Docker's kind that this is a registry, also where they are turned away.
pub(super) const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
const FILTERS_APPLIED: HeaderName = HeaderName::from_static("oci-filters-applied");
const SUBJECT: HeaderName = HeaderName::from_static("oci-subject");
const TAG: HeaderName = HeaderName::from_static("oci-tag");
const UPLOAD_ID: HeaderName = HeaderName::from_static("docker-upload-uuid");

/// What a digest names never changes. `private`: a cache between us and the caller does not know who may read it.
const FOR_EVER: &str = "private, max-age=31536000, immutable";
/// A tag may move at any time.
const NOT_FOR_LONG: &str = "no-cache";

/// How many pages of a registry's list are gone through for one page of a caller's. The store behind `/v2/` has one.
const MAX_CATALOG_PAGES: usize = 1_000;

type Answer = Result<Response, ApiError>;

/// The value of [`API_VERSION`].
pub(super) fn api_version() -> HeaderValue {
    HeaderValue::from_static("registry/2.0")
}

/// Every request below `/v2/`.
pub(super) async fn serve(State(app): State<Arc<App>>, caller: Caller, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = match DistributionRequest::parse(&parts.method, parts.uri.path(), parts.uri.query()) {
        Ok(request) => {
            let route = Route(request.route());
            let changed = changed_repository(&app, &request);
            let answer = Box::pin(permitted(&app, &caller, request, &parts, body)).await;
            let mut response = answer.into_response();
            response.extensions_mut().insert(route);
            if let Some(repository) = changed.filter(|_| response.status().is_success()) {
                app.changed(&repository);
            }
            response
        }
        Err(error) => ApiError::from(error).into_response(),
    };
    response.headers_mut().insert(API_VERSION, api_version());
    response
}

/// The repository of the store that a request changes.
fn changed_repository(app: &App, request: &DistributionRequest) -> Option<Repository> {
    let changed = request.changed_repository()?;
    if cue_view::is_in_view(changed) {
        CueView::target(&app.installer, changed).map(|place| place.repository)
    } else {
        Some(changed.clone())
    }
}

/// Answers what the caller may ask. It is decided by the name of the repository before anything is looked up, so that no answer, and
/// no time that it takes, depends on what there is.
async fn permitted(
    app: &App,
    caller: &Caller,
    request: DistributionRequest,
    parts: &Parts,
    body: Body,
) -> Answer {
    let (registry, headers) = (&*app.registry, &parts.headers);
    let max_blob = app.options.limits.max_blob;
    let request = request.within(caller);
    if let Some(repository) = request.repository().filter(|repository| cue_view::is_in_view(repository)) {
        let may_read = reads(caller);
        let module = cue_view::module_of(repository).map(Module::Cue);
        let places = module.map(|module| app.installer.places(&module)).unwrap_or_default();
        let may = |right| match right {
            Right::Read => places.iter().any(&may_read),
            Right::Push | Right::Delete => CueView::target(&app.installer, repository)
                .is_some_and(|place| caller.may(right, place.below_prefix())),
        };
        let rights = Rights { allowed: request.right().is_some_and(may), reads: may(Right::Read) };
        let (installer, memory, is_writable) = (&app.installer, &app.cue_memory, app.options.distribution);
        let view = CueView { installer, memory, may_read: &may_read, is_writable };
        return within_rights(app, caller, &view, rights, request, parts, body).await;
    }
    if let DistributionRequest::Ping = request {
        return answer(registry, request, headers, body, max_blob).await;
    }
    if !app.options.distribution {
        return Err(ApiError::NoEndpoint);
    }
    if let DistributionRequest::Catalog(page) = &request {
        return catalog(registry, page, caller).await;
    }
    let Some((right, repository)) = request.right().zip(request.repository()) else {
        return answer(registry, request, headers, body, max_blob).await;
    };
    let rights = Rights {
        allowed: caller.may(right, repository.as_str()),
        reads: caller.may(Right::Read, repository.as_str()),
    };
    within_rights(app, caller, registry, rights, request, parts, body).await
}

/// What a caller may do in the repository that a request is about.
#[derive(Clone, Copy)]
struct Rights {
    /// What is asked for.
    allowed: bool,
    /// Read.
    reads: bool,
}

async fn within_rights(
    app: &App,
    caller: &Caller,
    registry: &dyn Registry,
    rights: Rights,
    request: DistributionRequest,
    parts: &Parts,
    body: Body,
) -> Answer {
    let (right, max_blob) = (request.right(), app.options.limits.max_blob);
    if rights.allowed {
        return match answer(registry, request, &parts.headers, body, max_blob).await {
            // What the tag points at is for those who may read.
            Err(ApiError::Push(RegistryError::TagExists { .. })) if !rights.reads => Err(ApiError::Denied),
            answer => answer,
        };
    }
    match right {
        _ if caller.is_stranger() => Err(token_needed(app, parts)),
        Some(Right::Read) => answer(&Absent, request, &parts.headers, body, max_blob).await,
        Some(Right::Push | Right::Delete) | None => Err(ApiError::Denied),
    }
}

async fn answer(
    registry: &dyn Registry,
    request: DistributionRequest,
    headers: &HeaderMap,
    body: Body,
    max_blob: u64,
) -> Answer {
    use DistributionRequest as Asked;
    match request {
        Asked::Ping => Ok(json_answer(&json!({}))),
        // Its list depends on the caller; nobody is told of anything.
        Asked::Catalog(page) => catalog(registry, &page, &Caller::nobody()).await,
        Asked::Tags { repository, page } => tags(registry, &repository, &page).await,
        Asked::Manifest { repository, reference, head: false } => {
            manifest(registry, &repository, &reference, headers).await
        }
        Asked::Manifest { repository, reference, head: true } => {
            let ManifestHead { media_type, digest, size } =
                registry.manifest_head(&repository, &reference).await?;
            if is_known(headers, &digest) {
                return Ok(unchanged(&digest));
            }
            Ok(manifest_answer(&reference, media_type, &digest, size, Body::empty()))
        }
        Asked::PutManifest { repository, reference, tags } => {
            put_manifest(registry, &repository, reference, tags, headers, body).await
        }
        Asked::DeleteManifest { repository, reference: Reference::Tag(tag) } => {
            registry.delete_tag(&repository, &tag).await?;
            Ok(StatusCode::ACCEPTED.into_response())
        }
        Asked::DeleteManifest { repository, reference: Reference::Digest(digest) } => {
            registry.delete_manifest(&repository, &digest).await?;
            Ok(StatusCode::ACCEPTED.into_response())
        }
        Asked::Blob { repository, digest, head: false } => {
            blob(registry, &repository, &digest, headers).await
        }
        Asked::Blob { repository, digest, head: true } => {
            let size = registry.blob_size(&repository, &digest).await?;
            if is_known(headers, &digest) {
                return Ok(unchanged(&digest));
            }
            Ok((blob_headers(&digest, size), Body::empty()).into_response())
        }
        Asked::DeleteBlob { repository, digest } => {
            registry.delete_blob(&repository, &digest).await?;
            Ok(StatusCode::ACCEPTED.into_response())
        }
        Asked::OpenUpload { repository, algorithm } => {
            let upload = registry.open_upload(&repository, algorithm).await.map_err(ApiError::Push)?;
            Ok(upload_answer(StatusCode::ACCEPTED, &repository, &upload, 0))
        }
        Asked::PushBlob { repository, digest } => {
            within_bound(headers, max_blob)?;
            push_blob(registry, &repository, &digest, body).await
        }
        Asked::Mount { repository, digest, from } => {
            mount(registry, &repository, &digest, from.as_ref()).await
        }
        Asked::UploadStatus { repository, upload } => {
            let offset = registry.upload_offset(&repository, &upload).await?;
            Ok(upload_answer(StatusCode::NO_CONTENT, &repository, &upload, offset))
        }
        Asked::AppendUpload { repository, upload } => {
            let offset = append(registry, &repository, &upload, headers, body, max_blob).await?;
            Ok(upload_answer(StatusCode::ACCEPTED, &repository, &upload, offset))
        }
        Asked::FinishUpload { repository, upload, digest } => {
            if !body.is_end_stream() {
                append(registry, &repository, &upload, headers, body, max_blob).await?;
            }
            registry.finish_upload(&repository, &upload, &digest).await.map_err(ApiError::Push)?;
            Ok(blob_created(&repository, &digest))
        }
        Asked::CancelUpload { repository, upload } => {
            registry.cancel_upload(&repository, &upload).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        Asked::Referrers { repository, digest, artifact_type, page } => {
            referrers(registry, &repository, &digest, artifact_type.as_deref(), &page).await
        }
    }
}

// Lists.

/// The repositories that the caller may read.
async fn catalog(registry: &dyn Registry, page: &PageRequest, caller: &Caller) -> Answer {
    let Page { items, next } = if caller.may_everywhere(Right::Read) {
        registry.repositories(page).await?
    } else {
        readable_repositories(registry, page, caller).await?
    };
    let names: Vec<_> = items.iter().map(Repository::as_str).collect();
    let list = json_answer(&json!({ "repositories": names }));
    Ok(with_next(list, "/v2/_catalog", page, next, None))
}

/// A page of what the caller may read, as full as a page of everything would be. It goes on behind its own last name: the name that
/// the registry would go on behind may be one that the caller must not see.
async fn readable_repositories(
    registry: &dyn Registry,
    page: &PageRequest,
    caller: &Caller,
) -> Result<Page<Repository>, RegistryError> {
    let wanted = page.count.unwrap_or(usize::MAX);
    let mut items = Vec::new();
    // Everything that is left, since nobody knows how much of it is for this caller, and a store goes through all of it for each page.
    let mut rest = PageRequest { count: None, after: page.after.clone() };
    for _ in 0..MAX_CATALOG_PAGES {
        let part = registry.repositories(&rest).await?;
        let readable = part.items.into_iter().filter(|name| caller.may(Right::Read, name.as_str()));
        items.extend(readable.take(wanted.saturating_sub(items.len()).saturating_add(1)));
        if items.len() > wanted {
            items.truncate(wanted);
            let next = items.last().map(ToString::to_string);
            return Ok(Page { items, next });
        }
        let Some(next) = part.next else { return Ok(Page { items, next: None }) };
        rest = PageRequest::after(next);
    }
    Err(RegistryError::TooMany { what: "pages", limit: MAX_CATALOG_PAGES })
}

async fn tags(registry: &dyn Registry, repository: &Repository, page: &PageRequest) -> Answer {
    let Page { items, next } = registry.tags(repository, page).await?;
    let tags: Vec<_> = items.iter().map(Tag::as_str).collect();
    let list = json_answer(&json!({ "name": repository.as_str(), "tags": tags }));
    Ok(with_next(list, &format!("/v2/{repository}/tags/list"), page, next, None))
}

/// Never 404: clients take that for a registry without this endpoint, and fall back to tags.
async fn referrers(
    registry: &dyn Registry,
    repository: &Repository,
    digest: &Digest,
    artifact_type: Option<&str>,
    page: &PageRequest,
) -> Answer {
    let Page { items, next } = match registry.referrers(repository, digest, artifact_type, page).await {
        Err(error) if error.is_not_found() => Page::<Descriptor> { items: Vec::new(), next: None },
        answer => answer?,
    };
    let mut index = json_answer(&json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": items }));
    index.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(IMAGE_INDEX));
    if artifact_type.is_some() {
        index.headers_mut().insert(FILTERS_APPLIED, HeaderValue::from_static("artifactType"));
    }
    Ok(with_next(index, &format!("/v2/{repository}/referrers/{digest}"), page, next, artifact_type))
}

fn json_answer(value: &serde_json::Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Says where a list goes on. A page of nothing (`n=0`) was asked for as such and goes on nowhere.
fn with_next(
    mut list: Response,
    path: &str,
    page: &PageRequest,
    next: Option<String>,
    artifact_type: Option<&str>,
) -> Response {
    let Some(next) = next.filter(|_| page.count != Some(0)) else { return list };
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    if let Some(count) = page.count {
        query.append_pair("n", &count.to_string());
    }
    query.append_pair("last", &next);
    if let Some(artifact_type) = artifact_type {
        query.append_pair("artifactType", artifact_type);
    }
    if let Ok(link) = HeaderValue::try_from(format!("<{path}?{}>; rel=\"next\"", query.finish())) {
        list.headers_mut().insert(header::LINK, link);
    }
    list
}

// Manifests.

/// Whatever the caller accepts: there is one manifest, and a client can read its type.
async fn manifest(
    registry: &dyn Registry,
    repository: &Repository,
    reference: &Reference,
    headers: &HeaderMap,
) -> Answer {
    let StoredManifest { media_type, digest, bytes } = registry.manifest(repository, reference).await?;
    if is_known(headers, &digest) {
        return Ok(unchanged(&digest));
    }
    let size = bytes.len() as u64;
    Ok(manifest_answer(reference, media_type, &digest, size, Body::from(bytes)))
}

fn manifest_answer(
    reference: &Reference,
    media_type: String,
    digest: &Digest,
    size: u64,
    body: Body,
) -> Response {
    let caching = match reference {
        Reference::Tag(_) => NOT_FOR_LONG,
        Reference::Digest(_) => FOR_EVER,
    };
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_LENGTH, size.to_string()),
        (CONTENT_DIGEST, digest.to_string()),
        (header::ETAG, etag(digest)),
        (header::CACHE_CONTROL, caching.to_owned()),
    ];
    (headers, body).into_response()
}

async fn put_manifest(
    registry: &dyn Registry,
    repository: &Repository,
    reference: Reference,
    named: Vec<Tag>,
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    let media_type = media_type(headers).ok_or(ApiError::NoMediaType)?;
    if content_length(headers).is_some_and(|length| length > MAX_MANIFEST_SIZE) {
        return Err(ApiError::Push(RegistryError::TooLarge { limit: MAX_MANIFEST_SIZE }));
    }
    let (body, origin) = incoming(body.into_data_stream(), None);
    let bytes = read_bounded(body, MAX_MANIFEST_SIZE).await.map_err(|error| origin.blame(error))?;
    let mut tags = named.clone();
    let digest = match reference {
        Reference::Tag(tag) => {
            tags.insert(0, tag);
            None
        }
        Reference::Digest(digest) => Some(digest),
    };
    let manifest = NewManifest { media_type, bytes, digest, tags, condition: Condition::None };
    let put = registry.put_manifest(repository, &manifest).await.map_err(ApiError::Push)?;
    let headers = [
        (header::LOCATION, format!("/v2/{repository}/manifests/{}", put.digest)),
        (CONTENT_DIGEST, put.digest.to_string()),
    ];
    let subject = put.subject.map(|subject| (SUBJECT, subject.to_string()));
    let named = AppendHeaders(named.into_iter().map(|tag| (TAG, tag.to_string())));
    Ok((StatusCode::CREATED, headers, AppendHeaders(subject), named).into_response())
}

/// The media type of the body without its parameters: it is given back as it is kept, and `cue` reads no others.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let media_type = value.split(';').next().unwrap_or_default().trim();
    (!media_type.is_empty()).then(|| media_type.to_owned())
}

// Blobs.

async fn blob(
    registry: &dyn Registry,
    repository: &Repository,
    digest: &Digest,
    headers: &HeaderMap,
) -> Answer {
    if is_known(headers, digest) {
        registry.blob_size(repository, digest).await?;
        return Ok(unchanged(digest));
    }
    let request = BlobRequest { range: range(headers, digest), location: true, file: true };
    Ok(match Sent::of(registry.blob(repository, digest, request).await?) {
        Ok(sent) => {
            let answer = blob_answer(digest, sent.size, sent.span, Body::empty());
            sent.fill(answer)
        }
        // The URL is good for GET alone, which is why HEAD never comes here.
        Err(url) => {
            let headers = [(header::LOCATION, url.as_str()), (header::CACHE_CONTROL, "no-store")];
            (StatusCode::TEMPORARY_REDIRECT, headers).into_response()
        }
    })
}

/// A blob of `size` bytes, or the piece `span` of it.
fn blob_answer(digest: &Digest, size: u64, span: Option<Span>, body: Body) -> Response {
    match span {
        None => (blob_headers(digest, size), body).into_response(),
        Some(span) => {
            let piece = [(header::CONTENT_RANGE, span.content_range(size))];
            (StatusCode::PARTIAL_CONTENT, blob_headers(digest, span.length), piece, body).into_response()
        }
    }
}

/// A whole blob as this API answers it.
pub(super) fn blob_in_memory(digest: &Digest, bytes: Bytes) -> Response {
    let mut response = blob_answer(digest, bytes.len() as u64, None, Body::from(bytes));
    response.headers_mut().insert(API_VERSION, api_version());
    response
}

fn blob_headers(digest: &Digest, length: u64) -> [(HeaderName, String); 6] {
    [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (CONTENT_DIGEST, digest.to_string()),
        (header::ETAG, etag(digest)),
        (header::CACHE_CONTROL, FOR_EVER.to_owned()),
    ]
}

/// The range that is asked for; none where it holds for another content (`If-Range`).
pub(super) fn range(headers: &HeaderMap, digest: &Digest) -> Option<ByteRange> {
    if headers.get(header::IF_RANGE).is_some_and(|condition| *condition != etag(digest)) {
        return None;
    }
    headers.get(header::RANGE)?.to_str().ok().and_then(ByteRange::parse)
}

pub(super) fn etag(digest: &Digest) -> String {
    format!("\"{digest}\"")
}

/// Whether the caller has this content already (`If-None-Match`).
pub(super) fn is_known(headers: &HeaderMap, digest: &Digest) -> bool {
    let etag = etag(digest);
    let values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag
    })
}

fn unchanged(digest: &Digest) -> Response {
    let headers = [(CONTENT_DIGEST, digest.to_string()), (header::ETAG, etag(digest))];
    (StatusCode::NOT_MODIFIED, headers).into_response()
}

fn blob_created(repository: &Repository, digest: &Digest) -> Response {
    let headers = [
        (header::LOCATION, format!("/v2/{repository}/blobs/{digest}")),
        (CONTENT_DIGEST, digest.to_string()),
    ];
    (StatusCode::CREATED, headers).into_response()
}

// Uploads.

async fn push_blob(registry: &dyn Registry, repository: &Repository, digest: &Digest, body: Body) -> Answer {
    let upload = registry.open_upload(repository, digest.algorithm()).await.map_err(ApiError::Push)?;
    let (body, origin) = incoming(body.into_data_stream(), None);
    let pushed = match registry.append_upload(repository, &upload, Some(0), body).await {
        Ok(_) => registry.finish_upload(repository, &upload, digest).await,
        Err(error) => Err(error),
    };
    if let Err(error) = pushed {
        // Nobody knows of the session, so nobody could go on with it. It may be gone already.
        let _ = registry.cancel_upload(repository, &upload).await;
        return Err(origin.blame(error));
    }
    Ok(blob_created(repository, digest))
}

/// A blob that cannot be taken over is sent: never 404, which clients take for the end.
async fn mount(
    registry: &dyn Registry,
    repository: &Repository,
    digest: &Digest,
    from: Option<&Repository>,
) -> Answer {
    let is_mounted = match registry.mount(repository, digest, from).await {
        Err(error) if error.is_not_found() || matches!(error, RegistryError::Unsupported { .. }) => false,
        answer => answer.map_err(ApiError::Push)?,
    };
    if is_mounted {
        return Ok(blob_created(repository, digest));
    }
    let upload = registry.open_upload(repository, digest.algorithm()).await.map_err(ApiError::Push)?;
    Ok(upload_answer(StatusCode::ACCEPTED, repository, &upload, 0))
}

/// Adds the body to an upload and answers where it stands then.
async fn append(
    registry: &dyn Registry,
    repository: &Repository,
    upload: &UploadId,
    headers: &HeaderMap,
    body: Body,
    max_blob: u64,
) -> Result<u64, ApiError> {
    let location = || upload_location(repository, upload);
    let mut body = body.into_data_stream().peekable();
    let piece = match headers.get(header::CONTENT_RANGE) {
        None => None,
        // An empty piece has no range, whatever clients write: 0-0 or 5-4.
        Some(_) if Pin::new(&mut body).peek().await.is_none() => None,
        Some(range) => {
            let Some((first, length)) = range.to_str().ok().and_then(chunk) else {
                let offset = registry.upload_offset(repository, upload).await?;
                return Err(ApiError::OutOfOrder { offset, location: location() });
            };
            if let Some(actual) = content_length(headers).filter(|actual| *actual != length) {
                return Err(ApiError::Push(RegistryError::SizeMismatch { expected: length, actual }));
            }
            Some((first, length))
        }
    };
    within_bound(headers, max_blob)?;
    let (start, length) = piece.unzip();
    let (body, origin) = incoming(body, length);
    registry.append_upload(repository, upload, start, body).await.map_err(|error| match error {
        RegistryError::OutOfOrder { offset } => ApiError::OutOfOrder { offset, location: location() },
        error => origin.blame(error),
    })
}

/// Reads the `Content-Range` of a piece: `first-last` in the specification, which has no unit; some clients write the form of
/// RFC 9110, `bytes first-last/size`. Answers the first byte's offset and the length.
fn chunk(range: &str) -> Option<(u64, u64)> {
    let range = range.strip_prefix("bytes ").unwrap_or(range);
    let (first, last) = range.split('/').next()?.trim().split_once('-')?;
    let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
    Some((first, last.checked_sub(first)?.checked_add(1)?))
}

/// Refuses a body that tells that it is more than the registry takes, before any of it is read.
fn within_bound(headers: &HeaderMap, limit: u64) -> Result<(), ApiError> {
    if content_length(headers).is_some_and(|length| length > limit) {
        return Err(ApiError::Push(RegistryError::TooLarge { limit }));
    }
    Ok(())
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn upload_location(repository: &Repository, upload: &UploadId) -> String {
    format!("/v2/{repository}/blobs/uploads/{}", upload.as_str())
}

fn upload_answer(status: StatusCode, repository: &Repository, upload: &UploadId, offset: u64) -> Response {
    let headers = [
        (header::LOCATION, upload_location(repository, upload)),
        (header::RANGE, received(offset)),
        (UPLOAD_ID, upload.as_str().to_owned()),
    ];
    (status, headers).into_response()
}

/// What a body did wrong on its way in.
#[derive(Clone, Copy)]
enum Fault {
    /// It ended before its time.
    Broken,
    /// It is not as long as the range of the piece says.
    Length { expected: u64, actual: u64 },
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Broken => io::ErrorKind::UnexpectedEof.into(),
            Fault::Length { expected, actual } => RegistryError::SizeMismatch { expected, actual }.into(),
        }
    }
}

/// Knows whether a body failed on its way in, so that what a caller did is not taken for a failure of the server, or of a registry
/// that the body was passed on to.
struct Origin(Arc<OnceLock<Fault>>);

impl Origin {
    fn blame(&self, error: RegistryError) -> ApiError {
        match self.0.get() {
            None => ApiError::Push(error),
            Some(Fault::Broken) => ApiError::BrokenBody,
            Some(&Fault::Length { expected, actual }) => {
                ApiError::Push(RegistryError::SizeMismatch { expected, actual })
            }
        }
    }
}

/// A body as a stream, which ends in an error where it breaks off, or where it is not as long as it should be. Nothing at all is as good
/// as any length: an empty piece has no range.
fn incoming(
    body: impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static,
    expected: Option<u64>,
) -> (ByteStream, Origin) {
    let fault = Arc::new(OnceLock::new());
    let origin = Origin(Arc::clone(&fault));
    let wrong = move |kind: Fault| {
        let _ = fault.set(kind);
        Some(Err(kind.into()))
    };
    let mut actual = 0;
    let pieces = body.map(Some).chain(stream::once(async { None }));
    let bytes = pieces.filter_map(move |piece| {
        let piece = match (piece, expected) {
            (Some(Err(_)), _) => wrong(Fault::Broken),
            (Some(Ok(piece)), _) => {
                actual += piece.len() as u64;
                match expected.filter(|expected| actual > *expected) {
                    Some(expected) => wrong(Fault::Length { expected, actual }),
                    None => Some(Ok(piece)),
                }
            }
            (None, Some(expected)) if actual > 0 && actual < expected => {
                wrong(Fault::Length { expected, actual })
            }
            (None, _) => None,
        };
        std::future::ready(piece)
    });
    (bytes.boxed(), origin)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::Method;
    use tokio::sync::oneshot;
    use tower::ServiceExt;

    use super::super::{ServerOptions, router};
    use super::*;
    use crate::operations::install::Installer;
    use crate::operations::routes::{RepositoryTemplate, Routes};
    use crate::registry::{DirectoryOptions, DirectoryRegistry};

    #[tokio::test]
    async fn who_finds_every_turn_to_write_taken_is_asked_to_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = DirectoryOptions { concurrent_uploads: 1, ..DirectoryOptions::default() };
        let registry = DirectoryRegistry::open(folder.path(), store).unwrap();
        let options = ServerOptions { distribution: true, allow_anonymous: true, ..ServerOptions::default() };
        let installer =
            Installer::without_search(Routes::new(Vec::new(), RepositoryTemplate::default()), None);
        let router = router(Arc::new(App::new(Arc::new(registry), installer, options)));
        let send = async |method: Method, target: &str, body: Body| {
            let request = Request::builder().method(method).uri(target).body(body).unwrap();
            router.clone().oneshot(request).await.unwrap()
        };
        let open = async || {
            let opened = send(Method::POST, "/v2/acme/a/blobs/uploads/", Body::empty()).await;
            opened.headers()[header::LOCATION].to_str().unwrap().to_owned()
        };
        let (slow, other) = (open().await, open().await);
        let (rest, waits) = oneshot::channel::<Bytes>();
        let body = stream::once(async { Ok(Bytes::from_static(b"begun")) })
            .chain(stream::once(waits).map(|rest| rest.map_err(io::Error::other)));
        let writing = send(Method::PATCH, &slow, Body::from_stream(body));
        let asking = async {
            while send(Method::GET, &slow, Body::empty()).await.headers()[header::RANGE] != "0-4" {
                tokio::task::yield_now().await;
            }
            let refused = send(Method::PATCH, &other, Body::from("later")).await;
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
            let body = axum::body::to_bytes(refused.into_body(), 1000).await.unwrap();
            assert!(body.starts_with(b"{\"errors\":[{\"code\":\"TOOMANYREQUESTS\""), "{body:?}");
            rest.send(Bytes::from_static(b" and ended")).unwrap();
        };
        let (written, ()) = tokio::join!(writing, asking);
        assert_eq!(written.status(), StatusCode::ACCEPTED);
        let later = send(Method::PATCH, &other, Body::from("later")).await;
        assert_eq!(later.headers()[header::RANGE], "0-4");
    }

    #[test]
    fn both_ways_to_write_the_range_of_a_piece_are_read() {
        assert_eq!(chunk("0-9"), Some((0, 10)));
        assert_eq!(chunk("10-10"), Some((10, 1)));
        assert_eq!(chunk("bytes 5-9/20"), Some((5, 5)));
        assert_eq!(chunk("bytes 5-9/*"), Some((5, 5)));
        for range in
            ["", "-", "9-5", "a-b", "0-18446744073709551615", "0-99999999999999999999", "-5", "5-", "0"]
        {
            assert_eq!(chunk(range), None, "{range}");
        }
    }

    #[test]
    fn parameters_of_a_media_type_are_dropped() {
        let of = |value: &'static str| {
            media_type(&HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(value))]))
        };
        assert_eq!(of("a/b+json; charset=utf-8").as_deref(), Some("a/b+json"));
        assert_eq!(of("; charset=utf-8"), None);
    }
}
