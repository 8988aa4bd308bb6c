//! One error for every endpoint, and its three renderings: the distribution API's, the registry protocol's, and plain text.
//!
//! A handler returns an [`ApiError`]; [`render`] gives it the form of the place that was asked and logs it, once. What a
//! caller reads is the caller's own input at most. Whatever went wrong behind the server is for the log: there may be paths in it,
//! names of hosts, and words of others.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::archive_link::LinkError;
use super::oci::RequestError;
use crate::artifact::{ArtifactError, ProviderError};
use crate::oci::ErrorCode;
use crate::operations::OperationError;
use crate::registry::RegistryError;

/// When to come back where nobody has said it: long enough for a restart behind us, short enough for a person who waits.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The code of what the specification has no code for: failures of the server.
const UNKNOWN: &str = "UNKNOWN";

/// Why a request is not answered with what it asked for.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A registry failed while something was read from it: bytes that are wrong are its fault.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A registry did not take what a caller pushed: bytes that are wrong are the caller's fault.
    #[error(transparent)]
    Push(RegistryError),
    /// What the module registry protocol asked for did not work.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// A module, a version or a zip that is not there; the message says which.
    #[error("{0}")]
    NotFound(String),
    /// An answer that cannot be built of what is in it.
    #[error("the answer cannot be built: {0}")]
    Unbuildable(Box<dyn std::error::Error + Send + Sync>),
    /// The request is none of the distribution API.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A piece of an upload that does not begin where the upload stands.
    #[error("the upload stands at byte {offset}")]
    OutOfOrder {
        /// Where the next piece has to begin.
        offset: u64,
        /// Where to send it: the path of the upload.
        location: String,
    },
    /// A manifest is pushed without its type.
    #[error("the header Content-Type has to be the media type of the manifest")]
    NoMediaType,
    /// The caller's body ended before its time, or came too slowly.
    #[error("the request's body broke off")]
    BrokenBody,
    /// A link to a zip opens nothing.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// There is nothing at this path.
    #[error("there is nothing here")]
    NoEndpoint,
    /// The path is there, but not for this method.
    #[error("this can be read with GET or HEAD alone")]
    ReadOnly,
    /// An open server was asked by a name that anybody may give to its address.
    #[error(
        "this server answers everybody, so it has to be asked as localhost or by its IP address; the option --host \
         lets another name pass, --allow-anonymous every one"
    )]
    ForeignHost,
    /// An open server was asked through a proxy, so by anybody.
    #[error("this server answers everybody, so not through a proxy unless it runs with --allow-anonymous")]
    Proxied,
    /// A page of another origin tries to change something.
    #[error("a page of another origin may not change anything here")]
    ForeignOrigin,
    /// The request shows no token, and needs one.
    #[error("this needs a token")]
    NoToken {
        /// How to ask again (`WWW-Authenticate`).
        challenge: String,
    },
    /// What the request shows is no token of this server, or one that has expired.
    #[error("the token is not known here, or has expired")]
    WrongToken {
        /// How to ask again (`WWW-Authenticate`).
        challenge: String,
    },
    /// The caller's token is right, and does not allow this.
    #[error("this is not allowed")]
    Denied,
    /// A token is asked for in a way that is none.
    #[error("the parameter `grant_type` has to be `password` or `refresh_token`")]
    Grant,
    /// There are as many requests as the server takes.
    #[error("the server has too much to do at the moment")]
    Busy,
    /// What was asked for took longer than the server waits for anything.
    #[error("the answer took too long")]
    SlowAnswer,
    /// The caller's body came a little at a time.
    #[error("the request's body came too slowly")]
    SlowBody,
    /// The server is about to end.
    #[error("the server is stopping")]
    Stopping,
    /// The server has just begun, and does not know yet what there is.
    #[error("the server is looking through the registry for the first time")]
    Starting,
    /// The registry behind the server gave no sign in time.
    #[error("the registry has not answered in time")]
    NotReady,
    /// A handler panicked: a bug.
    #[error("a request made the server panic: {0}")]
    Panicked(String),
}

impl ApiError {
    /// The status of the answer. No wildcard: whoever adds an error decides here what it means to a caller.
    fn status(&self) -> StatusCode {
        let number = match self {
            Self::Registry(error) => registry_status(error, 500),
            Self::Push(RegistryError::Refused(_)) | Self::NoMediaType | Self::BrokenBody | Self::Grant => 400,
            Self::Push(error) => registry_status(error, 400),
            Self::Operation(error) => operation_status(error),
            Self::Request(error) => error.status().0,
            Self::OutOfOrder { .. } => 416,
            Self::NotFound(_) | Self::NoEndpoint => 404,
            Self::ReadOnly => 405,
            Self::ForeignHost | Self::Proxied | Self::ForeignOrigin | Self::Link(_) | Self::Denied => 403,
            Self::NoToken { .. } | Self::WrongToken { .. } => 401,
            Self::SlowBody => 408,
            Self::Busy | Self::Stopping | Self::Starting | Self::NotReady => 503,
            Self::SlowAnswer => 504,
            Self::Unbuildable(_) | Self::Panicked(_) => 500,
        };
        StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The distribution specification's code.
    fn code(&self) -> &'static str {
        let code = match self {
            _ if self.status().is_server_error() => None,
            Self::Registry(error) | Self::Push(error) => error.code(),
            Self::Request(error) => Some(error.status().1),
            Self::OutOfOrder { .. } | Self::BrokenBody | Self::SlowBody => Some(ErrorCode::BlobUploadInvalid),
            Self::NoMediaType => Some(ErrorCode::ManifestInvalid),
            Self::NoEndpoint | Self::ReadOnly | Self::Grant => Some(ErrorCode::Unsupported),
            Self::ForeignHost | Self::Proxied | Self::ForeignOrigin | Self::Link(_) | Self::Denied => {
                Some(ErrorCode::Denied)
            }
            Self::NoToken { .. } | Self::WrongToken { .. } => Some(ErrorCode::Unauthorized),
            // None of these is an answer of the distribution API.
            Self::Operation(_) | Self::NotFound(_) => Some(ErrorCode::NameUnknown),
            Self::Busy
            | Self::SlowAnswer
            | Self::Stopping
            | Self::Starting
            | Self::NotReady
            | Self::Unbuildable(_)
            | Self::Panicked(_) => None,
        };
        code.map_or(UNKNOWN, ErrorCode::as_str)
    }

    /// The failure of a registry, where it is one.
    fn registry_error(&self) -> Option<&RegistryError> {
        match self {
            Self::Registry(error) | Self::Push(error) => Some(error),
            Self::Operation(error) => match error.cause() {
                OperationError::Registry { source, .. } => Some(source),
                _ => None,
            },
            _ => None,
        }
    }

    /// What the caller is told.
    fn public_message(&self) -> Cow<'static, str> {
        match self.status() {
            _ if matches!(
                self,
                Self::Busy | Self::SlowAnswer | Self::Stopping | Self::Starting | Self::NotReady
            ) =>
            {
                self.to_string().into()
            }
            _ if matches!(self, Self::Operation(OperationError::NotSearchedYet { .. })) => {
                "the server has just started and looks through its registry; try again".into()
            }
            StatusCode::TOO_MANY_REQUESTS => "there are too many requests at the moment".into(),
            StatusCode::BAD_GATEWAY => "the registry behind this server gave no usable answer".into(),
            StatusCode::SERVICE_UNAVAILABLE => {
                "the registry behind this server cannot be used at the moment".into()
            }
            StatusCode::INSUFFICIENT_STORAGE => "the server has no room left".into(),
            status if status.is_server_error() => "the server failed; its log says why".into(),
            status => match (self, self.registry_error()) {
                // These name the registry behind the server.
                (_, Some(RegistryError::Denied { .. })) => "this is not allowed".into(),
                (_, Some(RegistryError::SizeRefused { .. })) => {
                    "the registry behind this server takes nothing as large as this".into()
                }
                (_, Some(RegistryError::RepositoryNotMade { .. })) => {
                    "there is no such repository, and none is made by a push".into()
                }
                // Where a module was looked for is for the operator.
                (Self::Operation(error), _) if status == StatusCode::NOT_FOUND => match error.cause() {
                    OperationError::NoModule { module, .. } => {
                        format!("there is no module `{module}`").into()
                    }
                    OperationError::NotInstallable { .. } => error.to_string().into(),
                    _ => "there is no such module".into(),
                },
                (Self::Operation(error), _) if status == StatusCode::UNPROCESSABLE_ENTITY => {
                    let rule = match error.cause() {
                        OperationError::Refused(findings) => findings.first().map(|finding| finding.rule),
                        _ => None,
                    };
                    let rule = rule.unwrap_or("unknown");
                    format!("the zip breaks the rule `{rule}`, so it is not served").into()
                }
                (_, Some(error)) => error.to_string().into(),
                _ => self.to_string().into(),
            },
        }
    }

    /// What a program can use of the error, beside the code.
    fn detail(&self) -> Option<Value> {
        Some(match self {
            Self::OutOfOrder { offset, .. } => json!({ "offset": offset }),
            Self::Push(RegistryError::DigestMismatch { expected, actual }) => {
                json!({ "expected": expected, "actual": actual })
            }
            Self::Push(RegistryError::ManifestBlobUnknown(digest)) => json!({ "digest": digest }),
            Self::Push(RegistryError::TagExists { existing, .. }) => json!({ "digest": existing }),
            Self::Push(RegistryError::TooLarge { limit }) => json!({ "limit": limit }),
            _ => return None,
        })
    }

    /// The headers that go with the error.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        };
        match (self, self.registry_error()) {
            (Self::OutOfOrder { offset, location }, _) => {
                set(header::RANGE, received(*offset));
                set(header::LOCATION, location.clone());
            }
            (_, Some(RegistryError::RangeNotSatisfiable { size })) => {
                set(header::CONTENT_RANGE, format!("bytes */{size}"));
            }
            (_, Some(RegistryError::TooManyRequests { retry_after, .. })) => {
                let wait = retry_after.unwrap_or(RETRY_AFTER).max(Duration::from_secs(1));
                set(header::RETRY_AFTER, wait.as_secs().to_string());
            }
            (Self::NoToken { challenge } | Self::WrongToken { challenge }, _) => {
                set(header::WWW_AUTHENTICATE, challenge.clone());
                set(header::CACHE_CONTROL, "no-store".to_owned());
            }
            (Self::Request(RequestError::Method { allow }), _) => set(header::ALLOW, (*allow).to_owned()),
            _ if self.status() == StatusCode::METHOD_NOT_ALLOWED => {
                set(header::ALLOW, "GET, HEAD".to_owned());
            }
            // What is left of the body is not read, so nothing else can come on this connection.
            (Self::SlowBody, _) => set(header::CONNECTION, "close".to_owned()),
            _ if self.status() == StatusCode::SERVICE_UNAVAILABLE => {
                set(header::RETRY_AFTER, RETRY_AFTER.as_secs().to_string());
            }
            _ => {}
        }
        headers
    }

    fn log(&self) {
        let status = self.status();
        if status.is_server_error() {
            tracing::error!(status = status.as_u16(), "{self}");
        } else {
            tracing::debug!(status = status.as_u16(), "{self}");
        }
    }
}

/// `mismatch`: the status of content that is not what it should be, which is one thing in what was pushed and another in what is
/// kept.
fn registry_status(error: &RegistryError, mismatch: u16) -> u16 {
    match error {
        RegistryError::RepositoryUnknown(_)
        | RegistryError::RepositoryNotMade { .. }
        | RegistryError::ManifestUnknown { .. }
        | RegistryError::BlobUnknown(_)
        | RegistryError::UploadUnknown => 404,
        RegistryError::DigestMismatch { .. }
        | RegistryError::SizeMismatch { .. }
        | RegistryError::ManifestInvalid(_)
        | RegistryError::ManifestBlobUnknown(_) => mismatch,
        RegistryError::OutOfOrder { .. } | RegistryError::RangeNotSatisfiable { .. } => 416,
        RegistryError::TagExists { .. } | RegistryError::Denied { .. } => 403,
        RegistryError::NoCatalog | RegistryError::Unsupported { .. } => 405,
        RegistryError::TooLarge { .. } | RegistryError::SizeRefused { .. } => 413,
        RegistryError::Refused(_) => 422,
        RegistryError::TooManyRequests { .. } => 429,
        // It refuses the credentials of this server, not those of the caller.
        RegistryError::Unauthorized { .. }
        | RegistryError::TooMany { .. }
        | RegistryError::Protocol { .. } => 502,
        RegistryError::Unavailable { .. } => 503,
        RegistryError::Full { .. } => 507,
        RegistryError::Io { source, .. } => match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => 507,
            _ => 500,
        },
    }
}

/// What is kept and is no module that can be installed is, to a client, not there; what is refused is there and bad.
fn operation_status(error: &OperationError) -> u16 {
    match error {
        // What a registry keeps and is not what its manifest says is no fault of this server.
        OperationError::Registry { source, .. } => registry_status(source, 502),
        OperationError::Route(_)
        | OperationError::NoModule { .. }
        | OperationError::NoVersion { .. }
        | OperationError::NotInstallable { .. }
        | OperationError::NoProvider { .. }
        | OperationError::NoPlatform { .. }
        | OperationError::NotAProvider { source: ProviderError::NotAProvider { .. }, .. }
        | OperationError::NotAModule { source: ArtifactError::NotAModule { .. }, .. }
        | OperationError::Tag(_)
        | OperationError::Usage { .. } => 404,
        OperationError::Refused(_) => 422,
        OperationError::NotSearchedYet { .. } => 503,
        OperationError::Shared(error) => operation_status(error),
        // A module's manifest that contradicts itself.
        OperationError::NotAModule { .. } | OperationError::NotAProvider { .. } => 502,
        // None of these comes of reading.
        OperationError::Setting(_)
        | OperationError::Template(_)
        | OperationError::OtherModule { .. }
        | OperationError::Exists { .. }
        | OperationError::Differs { .. }
        | OperationError::OtherForm { .. }
        | OperationError::Login(_)
        | OperationError::Io { .. } => 500,
    }
}

/// How much of an upload is there, as a `Range` header tells it: the last byte's offset. Nothing at all is `0-0` too, in every
/// registry.
pub(super) fn received(offset: u64) -> String {
    format!("0-{}", offset.saturating_sub(1))
}

impl IntoResponse for ApiError {
    /// Status and headers; [`render`] adds the body.
    fn into_response(self) -> Response {
        let mut response = (self.status(), self.headers()).into_response();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// The form that an error has in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rendering {
    /// `{"errors":[{"code","message","detail"}]}` (distribution specification, "Error Codes").
    Distribution,
    /// `{"errors":["..."]}` (registry protocol of OpenTofu and Terraform).
    RegistryProtocol,
    /// A line of text.
    Text,
}

impl Rendering {
    fn of(path: &str) -> Self {
        if path == "/v2" || path.starts_with("/v2/") {
            Self::Distribution
        } else if path.starts_with("/v1/") || path.starts_with("/.well-known/") {
            Self::RegistryProtocol
        } else {
            Self::Text
        }
    }

    fn body(self, error: &ApiError) -> (&'static str, String) {
        let message = error.public_message();
        match self {
            Self::Distribution => {
                let mut entry = json!({ "code": error.code(), "message": message });
                if let Some(detail) = error.detail() {
                    entry["detail"] = detail;
                }
                ("application/json", json!({ "errors": [entry] }).to_string())
            }
            Self::RegistryProtocol => ("application/json", json!({ "errors": [message] }).to_string()),
            Self::Text => ("text/plain; charset=utf-8", format!("{message}\n")),
        }
    }
}

/// Gives errors their body and their line in the log.
pub(super) async fn render(request: Request, next: Next) -> Response {
    let rendering = Rendering::of(request.uri().path());
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<Arc<ApiError>>() {
        error.log();
        let (content_type, body) = rendering.body(&error);
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        *response.body_mut() = Body::from(body);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::{Digest, ManifestError};

    fn failures_behind_the_server() -> Vec<RegistryError> {
        let secret = || "/srv/secret/path https://upstream.example/?token=secret".to_owned();
        let digest = Digest::of(b"");
        vec![
            RegistryError::io(secret())(std::io::Error::other("No such file or directory (os error 2)")),
            RegistryError::Unavailable { registry: "secret.example".into(), reason: secret() },
            RegistryError::Protocol { registry: "secret.example".into(), reason: secret() },
            RegistryError::Unauthorized { registry: "secret.example".into(), reason: secret() },
            RegistryError::Denied { registry: "secret.example".into(), operation: secret() },
            RegistryError::TooManyRequests { registry: "secret.example".into(), retry_after: None },
            RegistryError::SizeRefused { registry: "secret.example".into(), operation: secret() },
            RegistryError::Full { registry: "secret.example".into(), operation: secret() },
            RegistryError::ManifestInvalid(ManifestError::Json(secret())),
            RegistryError::DigestMismatch { expected: digest.clone(), actual: digest },
        ]
    }

    #[test]
    fn no_body_tells_what_is_behind_the_server() {
        let operation = |source| OperationError::Registry { place: "secret.example/modules".into(), source };
        let read = failures_behind_the_server().into_iter().map(ApiError::Registry);
        let asked = failures_behind_the_server().into_iter().map(operation).map(ApiError::Operation);
        let absent = ApiError::Operation(operation(RegistryError::RepositoryUnknown("secret/acme".into())));
        for error in read.chain(asked).chain([absent]) {
            for rendering in [Rendering::Distribution, Rendering::RegistryProtocol, Rendering::Text] {
                let (_, body) = rendering.body(&error);
                for word in ["secret", "http", "os error", "/", "sha256"] {
                    assert!(!body.contains(word), "{error:?}: {body}");
                }
            }
        }
    }

    #[test]
    fn the_place_decides_about_the_form() {
        let error = ApiError::NoEndpoint;
        for (path, expected) in [
            ("/v2/x", r#"{"errors":[{"code":"UNSUPPORTED","message":"there is nothing here"}]}"#),
            ("/v1/x", r#"{"errors":["there is nothing here"]}"#),
            ("/.well-known/x", r#"{"errors":["there is nothing here"]}"#),
            ("/v2x", "there is nothing here\n"),
        ] {
            assert_eq!(Rendering::of(path).body(&error).1, expected);
        }
    }

    #[test]
    fn wrong_bytes_are_the_fault_of_whoever_brought_them() {
        let mismatch = || RegistryError::SizeMismatch { expected: 1, actual: 2 };
        assert_eq!(ApiError::Push(mismatch()).status(), StatusCode::BAD_REQUEST);
        assert_eq!(ApiError::Push(mismatch()).code(), "SIZE_INVALID");
        assert_eq!(ApiError::Registry(mismatch()).status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(ApiError::Registry(mismatch()).code(), UNKNOWN);
    }

    #[test]
    fn who_has_to_wait_is_told_how_long() {
        let asked = |retry_after| {
            let error = RegistryError::TooManyRequests { registry: String::new(), retry_after };
            ApiError::Registry(error).headers()[header::RETRY_AFTER].clone()
        };
        assert_eq!(asked(Some(Duration::from_millis(10))), "1");
        assert_eq!(asked(Some(Duration::from_secs(30))), "30");
        assert_eq!(asked(None), "5");
        assert_eq!(ApiError::NotReady.headers()[header::RETRY_AFTER], "5");
    }

    #[test]
    fn a_full_disk_has_a_status_of_its_own() {
        let error = RegistryError::io("writing")(std::io::Error::from(ErrorKind::StorageFull));
        assert_eq!(ApiError::Push(error).status(), StatusCode::INSUFFICIENT_STORAGE);
    }
}
