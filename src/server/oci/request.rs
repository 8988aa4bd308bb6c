//! What a request below `/v2/` asks for, as a value: method, path and query are read here and nowhere else.
//!
//! A repository name has slashes in it, so a path is read from its right end, where the endpoints differ. Reading knows
//! nothing of a registry or a connection: whoever decides about access decides about the same value that is carried out.

use axum::http::Method;

use crate::oci::{
    Algorithm, Digest, DigestError, ErrorCode, Reference, Repository, RepositoryError, Tag, TagError,
};
use crate::operations::access::{Caller, Right};
use crate::registry::{PageRequest, UploadId};

/// More entries than this are not put on one page, whatever `n` says: an answer is built in memory. `cue` takes a page that is
/// shorter than its `n` of 1,000 for the last one, so the limit has to be well above that.
const MAX_PAGE_SIZE: usize = 10_000;

/// How many `tag` parameters a manifest is pushed with at most: far above what a release needs. The answer has a header line for each,
/// and clients written in Python or Rust read a hundred lines at most.
const MAX_TAGS: usize = 64;

/// One request of the distribution API (distribution specification 1.1, "Endpoints").
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DistributionRequest {
    /// Is this a registry (end-1)?
    Ping,
    /// The names of all repositories: not in the specification, but asked for by clients.
    Catalog(PageRequest),
    /// The tags of a repository (end-8).
    Tags {
        /// The repository.
        repository: Repository,
        /// Which part of the list.
        page: PageRequest,
    },
    /// A manifest (end-3).
    Manifest {
        /// The repository.
        repository: Repository,
        /// Its tag or digest.
        reference: Reference,
        /// Whether its headers are enough.
        head: bool,
    },
    /// Store a manifest (end-7).
    PutManifest {
        /// The repository.
        repository: Repository,
        /// The tag or digest in the path.
        reference: Reference,
        /// The tags of the query.
        tags: Vec<Tag>,
    },
    /// Remove a tag or a manifest (end-9).
    DeleteManifest {
        /// The repository.
        repository: Repository,
        /// A tag, which leaves the manifest, or a digest.
        reference: Reference,
    },
    /// A blob (end-2).
    Blob {
        /// The repository.
        repository: Repository,
        /// Its digest.
        digest: Digest,
        /// Whether its headers are enough.
        head: bool,
    },
    /// Remove a blob (end-10).
    DeleteBlob {
        /// The repository.
        repository: Repository,
        /// Its digest.
        digest: Digest,
    },
    /// Open an upload (end-4a).
    OpenUpload {
        /// The repository.
        repository: Repository,
        /// What the digest will be in.
        algorithm: Algorithm,
    },
    /// Push a blob in one request (end-4b).
    PushBlob {
        /// The repository.
        repository: Repository,
        /// Its digest.
        digest: Digest,
    },
    /// Take a blob over from another repository, or open an upload where that cannot be done (end-11).
    Mount {
        /// The repository.
        repository: Repository,
        /// The blob's digest.
        digest: Digest,
        /// Where it is; `None` for anywhere.
        from: Option<Repository>,
    },
    /// Where an upload stands (end-13).
    UploadStatus {
        /// The repository.
        repository: Repository,
        /// The session.
        upload: UploadId,
    },
    /// Add to an upload (end-5).
    AppendUpload {
        /// The repository.
        repository: Repository,
        /// The session.
        upload: UploadId,
    },
    /// End an upload, with its last piece or with nothing (end-6).
    FinishUpload {
        /// The repository.
        repository: Repository,
        /// The session.
        upload: UploadId,
        /// The digest of the whole.
        digest: Digest,
    },
    /// Give an upload up (end-14).
    CancelUpload {
        /// The repository.
        repository: Repository,
        /// The session.
        upload: UploadId,
    },
    /// The manifests that refer to one (end-12).
    Referrers {
        /// The repository.
        repository: Repository,
        /// The digest that they refer to.
        digest: Digest,
        /// Only artifacts of this type.
        artifact_type: Option<String>,
        /// Which part of the list.
        page: PageRequest,
    },
}

/// The request is none of the distribution API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No endpoint has such a path.
    #[error("there is no such endpoint")]
    NoEndpoint,
    /// The endpoint has no such method.
    #[error("the endpoint takes {allow}")]
    Method {
        /// The methods that it has, as in the `Allow` header.
        allow: &'static str,
    },
    /// The repository is none.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// A digest in the path or the query is none.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// An upload is ended, or a manifest is pushed, without saying what it is.
    #[error("the parameter `digest` is missing")]
    NoDigest,
    /// A manifest is pushed by something that can be no tag.
    #[error(transparent)]
    Tag(#[from] TagError),
    /// A manifest is asked for by something that can be no tag: there cannot be one, which is another thing than a bad request to
    /// clients that try.
    #[error("there is no such manifest: {0}")]
    NoSuchManifest(TagError),
    /// The session's name is none that was ever given out.
    #[error("there is no such upload, or it has ended")]
    NoSuchUpload,
    /// `n` is no number.
    #[error("the parameter `n` has to be a number, 0 or more")]
    Count,
    /// More than [`MAX_TAGS`].
    #[error("a manifest is pushed with at most {MAX_TAGS} `tag` parameters")]
    TooManyTags,
}

impl RequestError {
    /// Status and code of the answer.
    pub(crate) fn status(&self) -> (u16, ErrorCode) {
        match self {
            Self::NoEndpoint => (404, ErrorCode::Unsupported),
            Self::Method { .. } => (405, ErrorCode::Unsupported),
            Self::Repository(_) => (400, ErrorCode::NameInvalid),
            Self::Digest(_) | Self::NoDigest => (400, ErrorCode::DigestInvalid),
            Self::Tag(_) => (400, ErrorCode::ManifestInvalid),
            Self::NoSuchManifest(_) => (404, ErrorCode::ManifestUnknown),
            Self::NoSuchUpload => (404, ErrorCode::BlobUploadUnknown),
            Self::Count => (400, ErrorCode::Unsupported),
            Self::TooManyTags => (414, ErrorCode::ManifestInvalid),
        }
    }
}

impl DistributionRequest {
    /// Reads a request. `path` begins with `/v2` and is as it came: no part of a name may be percent-encoded, since none has
    /// to be, and two spellings of one thing are one too many for rules about access.
    pub fn parse(method: &Method, path: &str, query: Option<&str>) -> Result<Self, RequestError> {
        let rest = path.strip_prefix("/v2").ok_or(RequestError::NoEndpoint)?;
        let query = Query(query.unwrap_or_default());
        match rest.strip_prefix('/') {
            None if rest.is_empty() => return read_only(method, Self::Ping),
            None => return Err(RequestError::NoEndpoint),
            Some("") => return read_only(method, Self::Ping),
            Some("_catalog") => return read_only(method, Self::Catalog(query.page()?)),
            Some(_) => {}
        }
        let (rest, last) = rest[1..].rsplit_once('/').ok_or(RequestError::NoEndpoint)?;
        let (name, kind) = rest.rsplit_once('/').ok_or(RequestError::NoEndpoint)?;
        match (kind, last) {
            ("tags", "list") => {
                read_only(method, Self::Tags { repository: name.parse()?, page: query.page()? })
            }
            ("manifests", reference) => Self::parse_manifest(method, name.parse()?, reference, &query),
            ("referrers", digest) => {
                let request = Self::Referrers {
                    repository: name.parse()?,
                    digest: with_colon(digest).parse()?,
                    artifact_type: query.artifact_type(),
                    page: query.page()?,
                };
                read_only(method, request)
            }
            ("blobs", "uploads") => Self::parse_new_upload(method, name.parse()?, &query),
            ("blobs", digest) => Self::parse_blob(method, name.parse()?, with_colon(digest).parse()?),
            ("uploads", upload) => {
                let repository = name.strip_suffix("/blobs").ok_or(RequestError::NoEndpoint)?.parse()?;
                if upload.is_empty() {
                    return Self::parse_new_upload(method, repository, &query);
                }
                let upload = UploadId::new(upload).ok_or(RequestError::NoSuchUpload)?;
                Self::parse_upload(method, repository, upload, &query)
            }
            _ => Err(RequestError::NoEndpoint),
        }
    }

    fn parse_manifest(
        method: &Method,
        repository: Repository,
        reference: &str,
        query: &Query<'_>,
    ) -> Result<Self, RequestError> {
        let text = with_colon(reference);
        // What has a colon was meant for a digest, since no tag has one.
        let reference = if text.contains(':') { Ok(text.parse::<Digest>()?.into()) } else { text.parse() };
        match *method {
            Method::GET | Method::HEAD => {
                let reference = reference.map_err(RequestError::NoSuchManifest)?;
                Ok(Self::Manifest { repository, reference, head: method == Method::HEAD })
            }
            Method::PUT => Ok(Self::PutManifest { repository, reference: reference?, tags: query.tags()? }),
            Method::DELETE => {
                let reference = reference.map_err(RequestError::NoSuchManifest)?;
                Ok(Self::DeleteManifest { repository, reference })
            }
            _ => Err(RequestError::Method { allow: "GET, HEAD, PUT, DELETE" }),
        }
    }

    fn parse_blob(method: &Method, repository: Repository, digest: Digest) -> Result<Self, RequestError> {
        match *method {
            Method::GET | Method::HEAD => Ok(Self::Blob { repository, digest, head: method == Method::HEAD }),
            Method::DELETE => Ok(Self::DeleteBlob { repository, digest }),
            _ => Err(RequestError::Method { allow: "GET, HEAD, DELETE" }),
        }
    }

    fn parse_new_upload(
        method: &Method,
        repository: Repository,
        query: &Query<'_>,
    ) -> Result<Self, RequestError> {
        if method != Method::POST {
            return Err(RequestError::Method { allow: "POST" });
        }
        let algorithm =
            query.get("digest-algorithm").map_or(Ok(Algorithm::default()), |name| name.parse())?;
        if let Some(digest) = query.get("mount") {
            let digest: Digest = digest.parse()?;
            return Ok(match query.get("from").map(|name| name.parse::<Repository>()) {
                None => Self::Mount { repository, digest, from: None },
                Some(Ok(from)) => Self::Mount { repository, digest, from: Some(from) },
                // What can be no repository has no blobs: the blob has to be sent.
                Some(Err(_)) => Self::OpenUpload { repository, algorithm: digest.algorithm() },
            });
        }
        match query.get("digest") {
            Some(digest) => Ok(Self::PushBlob { repository, digest: digest.parse()? }),
            None => Ok(Self::OpenUpload { repository, algorithm }),
        }
    }

    fn parse_upload(
        method: &Method,
        repository: Repository,
        upload: UploadId,
        query: &Query<'_>,
    ) -> Result<Self, RequestError> {
        match *method {
            Method::GET | Method::HEAD => Ok(Self::UploadStatus { repository, upload }),
            Method::PATCH => Ok(Self::AppendUpload { repository, upload }),
            Method::PUT => {
                let digest = query.get("digest").ok_or(RequestError::NoDigest)?.parse()?;
                Ok(Self::FinishUpload { repository, upload, digest })
            }
            Method::DELETE => Ok(Self::CancelUpload { repository, upload }),
            _ => Err(RequestError::Method { allow: "GET, HEAD, PATCH, PUT, DELETE" }),
        }
    }

    /// The repository whose tags or manifests the request changes.
    pub fn changed_repository(&self) -> Option<&Repository> {
        match self {
            Self::PutManifest { repository, .. } | Self::DeleteManifest { repository, .. } => {
                Some(repository)
            }
            _ => None,
        }
    }

    /// The repository that is read or written; `None` for the registry as a whole.
    pub fn repository(&self) -> Option<&Repository> {
        match self {
            Self::Ping | Self::Catalog(_) => None,
            Self::Tags { repository, .. }
            | Self::Manifest { repository, .. }
            | Self::PutManifest { repository, .. }
            | Self::DeleteManifest { repository, .. }
            | Self::Blob { repository, .. }
            | Self::DeleteBlob { repository, .. }
            | Self::OpenUpload { repository, .. }
            | Self::PushBlob { repository, .. }
            | Self::Mount { repository, .. }
            | Self::UploadStatus { repository, .. }
            | Self::AppendUpload { repository, .. }
            | Self::FinishUpload { repository, .. }
            | Self::CancelUpload { repository, .. }
            | Self::Referrers { repository, .. } => Some(repository),
        }
    }

    /// The right that the request needs in its repository; `None` where it is about none. An upload is part of a push from its
    /// beginning to its end, also where it is only asked after or given up.
    pub fn right(&self) -> Option<Right> {
        match self {
            Self::Ping | Self::Catalog(_) => None,
            Self::Tags { .. } | Self::Manifest { .. } | Self::Blob { .. } | Self::Referrers { .. } => {
                Some(Right::Read)
            }
            Self::PutManifest { .. }
            | Self::OpenUpload { .. }
            | Self::PushBlob { .. }
            | Self::Mount { .. }
            | Self::UploadStatus { .. }
            | Self::AppendUpload { .. }
            | Self::FinishUpload { .. }
            | Self::CancelUpload { .. } => Some(Right::Push),
            Self::DeleteManifest { .. } | Self::DeleteBlob { .. } => Some(Right::Delete),
        }
    }

    /// The request as the caller may make it: a blob is taken over only from where the caller may read. From everywhere else it has to
    /// be sent, as if it were not there.
    #[must_use]
    pub fn within(self, caller: &Caller) -> Self {
        match self {
            Self::Mount { repository, digest, from } => {
                let may_read = match &from {
                    Some(from) => caller.may(Right::Read, from.as_str()),
                    None => caller.may_everywhere(Right::Read),
                };
                if may_read {
                    Self::Mount { repository, digest, from }
                } else {
                    Self::OpenUpload { repository, algorithm: digest.algorithm() }
                }
            }
            other => other,
        }
    }

    /// The endpoint with placeholders, as the log names it.
    pub fn route(&self) -> &'static str {
        match self {
            Self::Ping => "/v2/",
            Self::Catalog(_) => "/v2/_catalog",
            Self::Tags { .. } => "/v2/{repository}/tags/list",
            Self::Manifest { .. } | Self::PutManifest { .. } | Self::DeleteManifest { .. } => {
                "/v2/{repository}/manifests/{reference}"
            }
            Self::Blob { .. } | Self::DeleteBlob { .. } => "/v2/{repository}/blobs/{digest}",
            Self::OpenUpload { .. } | Self::PushBlob { .. } | Self::Mount { .. } => {
                "/v2/{repository}/blobs/uploads/"
            }
            Self::UploadStatus { .. }
            | Self::AppendUpload { .. }
            | Self::FinishUpload { .. }
            | Self::CancelUpload { .. } => "/v2/{repository}/blobs/uploads/{upload}",
            Self::Referrers { .. } => "/v2/{repository}/referrers/{digest}",
        }
    }
}

fn read_only(method: &Method, request: DistributionRequest) -> Result<DistributionRequest, RequestError> {
    if method == Method::GET || method == Method::HEAD {
        Ok(request)
    } else {
        Err(RequestError::Method { allow: "GET, HEAD" })
    }
}

/// Some clients encode the colon of a digest.
fn with_colon(text: &str) -> String {
    text.replace("%3A", ":").replace("%3a", ":")
}

/// The query as it came. Of a parameter that is there twice, the first counts.
struct Query<'a>(&'a str);

impl Query<'_> {
    fn get(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.0.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    fn page(&self) -> Result<PageRequest, RequestError> {
        let count = match self.get("n") {
            Some(count) => Some(count.parse::<usize>().map_err(|_| RequestError::Count)?.min(MAX_PAGE_SIZE)),
            None => None,
        };
        Ok(PageRequest { count, after: self.get("last").filter(|last| !last.is_empty()) })
    }

    fn tags(&self) -> Result<Vec<Tag>, RequestError> {
        let tags = url::form_urlencoded::parse(self.0.as_bytes()).filter(|(key, _)| key == "tag");
        let tags = tags.take(MAX_TAGS + 1).map(|(_, tag)| tag.parse()).collect::<Result<Vec<_>, _>>()?;
        if tags.len() > MAX_TAGS { Err(RequestError::TooManyTags) } else { Ok(tags) }
    }

    /// A media type has no space: where there is one, a client has left the `+` of `+json` as it is.
    fn artifact_type(&self) -> Option<String> {
        self.get("artifactType").map(|kind| kind.replace(' ', "+"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    fn parse(method: &str, target: &str) -> Result<DistributionRequest, RequestError> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        DistributionRequest::parse(&method.parse().unwrap(), path, query)
    }

    fn repository(name: &str) -> Repository {
        name.parse().unwrap()
    }

    fn digest() -> Digest {
        DIGEST.parse().unwrap()
    }

    #[test]
    #[allow(clippy::too_many_lines)] // a table
    fn every_endpoint_is_read() {
        use DistributionRequest as R;
        let acme = || repository("acme/vpc/aws");
        let upload = || UploadId::new("u-1").unwrap();
        let tag: Reference = "v1.0.0".parse().unwrap();
        let page = |count, after: Option<&str>| PageRequest { count, after: after.map(str::to_owned) };
        let all = [
            ("GET", "/v2/".to_owned(), R::Ping),
            ("HEAD", "/v2".to_owned(), R::Ping),
            ("GET", "/v2/_catalog?n=5&last=a%2Fb".into(), R::Catalog(page(Some(5), Some("a/b")))),
            (
                "GET",
                "/v2/acme/vpc/aws/tags/list?n=99999999".into(),
                R::Tags { repository: acme(), page: page(Some(MAX_PAGE_SIZE), None) },
            ),
            (
                "HEAD",
                "/v2/acme/vpc/aws/manifests/v1.0.0".into(),
                R::Manifest { repository: acme(), reference: tag.clone(), head: true },
            ),
            (
                "GET",
                format!("/v2/acme/vpc/aws/manifests/{}", DIGEST.replace(':', "%3A")),
                R::Manifest { repository: acme(), reference: digest().into(), head: false },
            ),
            (
                "PUT",
                format!("/v2/acme/vpc/aws/manifests/{DIGEST}?tag=a&tag=b"),
                R::PutManifest {
                    repository: acme(),
                    reference: digest().into(),
                    tags: vec!["a".parse().unwrap(), "b".parse().unwrap()],
                },
            ),
            (
                "DELETE",
                "/v2/acme/vpc/aws/manifests/v1.0.0".into(),
                R::DeleteManifest { repository: acme(), reference: tag },
            ),
            (
                "GET",
                format!("/v2/acme/vpc/aws/blobs/{DIGEST}"),
                R::Blob { repository: acme(), digest: digest(), head: false },
            ),
            (
                "DELETE",
                format!("/v2/acme/vpc/aws/blobs/{DIGEST}"),
                R::DeleteBlob { repository: acme(), digest: digest() },
            ),
            (
                "POST",
                "/v2/acme/vpc/aws/blobs/uploads/?digest-algorithm=sha512".into(),
                R::OpenUpload { repository: acme(), algorithm: Algorithm::Sha512 },
            ),
            (
                "POST",
                format!("/v2/acme/vpc/aws/blobs/uploads?digest={DIGEST}"),
                R::PushBlob { repository: acme(), digest: digest() },
            ),
            (
                "POST",
                format!("/v2/acme/vpc/aws/blobs/uploads/?mount={DIGEST}&from=acme%2Flabel"),
                R::Mount { repository: acme(), digest: digest(), from: Some(repository("acme/label")) },
            ),
            (
                "POST",
                format!("/v2/acme/vpc/aws/blobs/uploads/?mount={DIGEST}"),
                R::Mount { repository: acme(), digest: digest(), from: None },
            ),
            (
                "POST",
                format!("/v2/acme/vpc/aws/blobs/uploads/?mount={DIGEST}&from=../etc"),
                R::OpenUpload { repository: acme(), algorithm: Algorithm::Sha256 },
            ),
            (
                "GET",
                "/v2/acme/vpc/aws/blobs/uploads/u-1".into(),
                R::UploadStatus { repository: acme(), upload: upload() },
            ),
            (
                "PATCH",
                "/v2/acme/vpc/aws/blobs/uploads/u-1".into(),
                R::AppendUpload { repository: acme(), upload: upload() },
            ),
            (
                "PUT",
                format!("/v2/acme/vpc/aws/blobs/uploads/u-1?digest={}", DIGEST.replace(':', "%3a")),
                R::FinishUpload { repository: acme(), upload: upload(), digest: digest() },
            ),
            (
                "DELETE",
                "/v2/acme/vpc/aws/blobs/uploads/u-1".into(),
                R::CancelUpload { repository: acme(), upload: upload() },
            ),
            (
                "GET",
                format!("/v2/acme/vpc/aws/referrers/{DIGEST}?artifactType=a/b+json"),
                R::Referrers {
                    repository: acme(),
                    digest: digest(),
                    artifact_type: Some("a/b+json".into()),
                    page: PageRequest::default(),
                },
            ),
        ];
        for (method, target, expected) in all {
            assert_eq!(parse(method, &target), Ok(expected), "{method} {target}");
        }
    }

    #[test]
    fn repositories_named_like_endpoints_are_read_from_the_right() {
        for name in ["tags", "blobs", "manifests/tags", "a/blobs/uploads", "a/tags/list", "v2"] {
            let request = parse("GET", &format!("/v2/{name}/tags/list")).unwrap();
            assert_eq!(request.repository(), Some(&repository(name)));
            let request = parse("POST", &format!("/v2/{name}/blobs/uploads/")).unwrap();
            assert_eq!(request.repository(), Some(&repository(name)));
        }
    }

    #[test]
    fn what_is_none_of_it_is_refused_with_the_status_of_its_kind() {
        let long = "a".repeat(300);
        for (method, target, status) in [
            ("GET", "/v2/acme".to_owned(), 404),
            ("GET", "/v2x".into(), 404),
            ("GET", "/v2//tags/list".into(), 400),
            ("GET", "/v2/tags/list".into(), 404),
            ("GET", "/v2/acme/../x/tags/list".into(), 400),
            ("GET", "/v2/%2e%2e/tags/list".into(), 400),
            ("GET", "/v2/acme%2fvpc/tags/list".into(), 400),
            ("GET", "/v2/Acme/tags/list".into(), 400),
            ("GET", "/v2/%C3%A9/tags/list".into(), 400),
            ("GET", format!("/v2/{long}/tags/list"), 400),
            ("GET", "/v2/acme/tags/list?n=-1".into(), 400),
            ("GET", "/v2/acme/tags/list?n=99999999999999999999999".into(), 400),
            ("GET", "/v2/acme/manifests/".into(), 404),
            ("GET", "/v2/acme/manifests/v1.0.0+meta".into(), 404),
            ("PUT", "/v2/acme/manifests/v1.0.0+meta".into(), 400),
            ("PUT", "/v2/acme/manifests/sha256:baddigeststring".into(), 400),
            ("PUT", format!("/v2/acme/manifests/{DIGEST}?tag=%2e%2e"), 400),
            ("PUT", format!("/v2/acme/manifests/{DIGEST}?{}", "tag=a&".repeat(101)), 414),
            ("GET", format!("/v2/acme/blobs/{}", &DIGEST[..20]), 400),
            ("GET", "/v2/acme/blobs/uploads/..".into(), 404),
            ("PUT", "/v2/acme/blobs/uploads/u-1".into(), 400),
            ("POST", "/v2/acme/blobs/uploads/?digest=x".into(), 400),
            ("POST", "/v2/acme/blobs/uploads/?digest-algorithm=md5".into(), 400),
            ("POST", "/v2/acme/blobs/uploads/?mount=x&from=acme".into(), 400),
            ("GET", "/v2/acme/blobs/uploads/".into(), 405),
            ("POST", "/v2/acme/tags/list".into(), 405),
            ("OPTIONS", format!("/v2/acme/blobs/{DIGEST}"), 405),
        ] {
            let error = parse(method, &target).unwrap_err();
            assert_eq!(error.status().0, status, "{method} {target}: {error}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            method in "GET|HEAD|PUT|POST|PATCH|DELETE|BREW",
            path in r"/v2(/|/_catalog|(/[a-z%.]{0,6}|/tags|/list|/blobs|/uploads|/manifests|/referrers|/\PC{0,4}){0,7})",
            query in proptest::option::of(r"((n|last|tag|digest|mount|from|artifactType)=[a-z0-9%+&\PC]{0,9}&?){0,4}"),
        ) {
            let _ = DistributionRequest::parse(&method.parse().unwrap(), &path, query.as_deref());
        }

        #[test]
        fn a_name_comes_back_as_it_was_written(name in "[a-z0-9]{1,4}(/[a-z0-9]{1,4}){0,5}", tag in "[a-zA-Z0-9_]{1,9}") {
            let request = parse("GET", &format!("/v2/{name}/manifests/{tag}")).unwrap();
            let expected = DistributionRequest::Manifest {
                repository: repository(&name),
                reference: Reference::Tag(tag.parse().unwrap()),
                head: false,
            };
            prop_assert_eq!(request, expected);
        }
    }
}
