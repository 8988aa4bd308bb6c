//! What can go wrong between a caller and a registry, in terms that both the wire and a person understand.
//!
//! No variant holds a body, a URL or a token of a remote party: what is shown to a caller may be shown to strangers.

use std::time::Duration;

use crate::oci::{Digest, ErrorCode, ManifestError, Tag};

/// The outcome of an operation on a registry.
pub type Result<T, E = RegistryError> = std::result::Result<T, E>;

/// Why an operation on a registry failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// There is no such repository, or the caller may not know of it.
    #[error("there is no repository `{0}`")]
    RepositoryUnknown(String),
    /// A push into a repository that is not there, of a registry that makes none by itself.
    #[error("{registry} has no repository `{repository}`, and makes none when something is pushed")]
    RepositoryNotMade {
        /// Host of the registry.
        registry: String,
        /// The repository.
        repository: String,
        /// What makes it, to be typed into a shell, where that is known.
        command: Option<String>,
    },
    /// There is no such tag or manifest in the repository.
    #[error("there is no manifest `{reference}` in `{repository}`")]
    ManifestUnknown {
        /// The repository.
        repository: String,
        /// Tag or digest.
        reference: String,
    },
    /// There is no such blob in the repository.
    #[error("there is no blob `{0}` in the repository")]
    BlobUnknown(Digest),
    /// There is no such upload session.
    #[error("there is no such upload, or it has ended")]
    UploadUnknown,
    /// The bytes are not those that the digest names.
    #[error("the content has the digest `{actual}`, not `{expected}`")]
    DigestMismatch {
        /// What was asked for or announced.
        expected: Digest,
        /// What the bytes have.
        actual: Digest,
    },
    /// The content is shorter or longer than was said.
    #[error("the content is {actual} bytes long, not {expected}")]
    SizeMismatch {
        /// What was said.
        expected: u64,
        /// What came.
        actual: u64,
    },
    /// A piece of an upload that does not begin where the last one ended (416).
    #[error("the upload stands at byte {offset}")]
    OutOfOrder {
        /// Where the next piece has to begin.
        offset: u64,
    },
    /// A range that the blob has nothing of (416).
    #[error("the range lies outside of the blob, which is {size} bytes long")]
    RangeNotSatisfiable {
        /// Size of the blob in bytes.
        size: u64,
    },
    /// The manifest cannot be read.
    #[error(transparent)]
    ManifestInvalid(#[from] ManifestError),
    /// The manifest names a blob or manifest that the repository has not.
    #[error("the manifest refers to `{0}`, which is not in the repository; push it first")]
    ManifestBlobUnknown(Digest),
    /// The tag is there and points at something else, and may not be moved.
    #[error(
        "`{tag}` exists already with other content (`{existing}`), and a published version does not change"
    )]
    TagExists {
        /// The tag.
        tag: Tag,
        /// What it points at.
        existing: Digest,
    },
    /// What is there, or was to be put there, breaks a rule of who shows it; said in words that anybody may read.
    #[error("{0}")]
    Refused(String),
    /// The registry has no list of its repositories.
    #[error("this registry has no list of its repositories")]
    NoCatalog,
    /// The operation is not offered here.
    #[error("{operation} is not supported here")]
    Unsupported {
        /// What was asked for.
        operation: &'static str,
    },
    /// More than the caller is ready to take.
    #[error("the registry sent more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many are taken.
        limit: usize,
    },
    /// A body or a content over its limit.
    #[error("the content is over the limit of {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The registry, or a proxy in front of it, takes nothing as long as what it was sent (413).
    #[error(
        "{registry} refuses {operation}: it takes nothing as large as this (status 413), or a proxy in front of it does not"
    )]
    SizeRefused {
        /// Host of the registry.
        registry: String,
        /// What was asked for.
        operation: String,
    },
    /// The registry has no room left (507).
    #[error("{registry} refuses {operation}: it has no room left (status 507)")]
    Full {
        /// Host of the registry.
        registry: String,
        /// What was asked for.
        operation: String,
    },
    /// The registry wants to know who asks, and there are no credentials or they are wrong (401).
    #[error("{registry} asks for credentials: {reason}")]
    Unauthorized {
        /// Host of the registry.
        registry: String,
        /// What is missing or wrong.
        reason: String,
    },
    /// The registry knows who asks and says no (403).
    #[error(
        "{registry} refuses {operation}; the credentials do not allow it, or there is no such repository"
    )]
    Denied {
        /// Host of the registry.
        registry: String,
        /// What was asked for.
        operation: String,
    },
    /// The registry asks for patience (429).
    #[error("{registry} answers that there are too many requests")]
    TooManyRequests {
        /// Host of the registry.
        registry: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The registry cannot be reached or answers with a failure of its own; a second try may help.
    #[error("{registry} cannot be used at the moment: {reason}")]
    Unavailable {
        /// Host of the registry.
        registry: String,
        /// What happened, without URLs.
        reason: String,
    },
    /// The registry answers something that the specification does not allow.
    #[error("{registry} answers what a registry must not: {reason}")]
    Protocol {
        /// Host of the registry.
        registry: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// A store on disk cannot be read or written. The message names paths, so it is for the log and the command line alone.
    #[error("{action}: {source}")]
    Io {
        /// What was being done, with the path.
        action: String,
        /// The operating system's word.
        source: std::io::Error,
    },
}

impl RegistryError {
    /// Whether the thing that was asked for is not there (and nothing else went wrong).
    pub fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::RepositoryUnknown(_)
                | Self::ManifestUnknown { .. }
                | Self::BlobUnknown(_)
                | Self::UploadUnknown
        )
    }

    /// Whether the thing that was asked for may not be there. Many registries answer 403 for that too, so that nobody learns of it
    /// who may not know; nobody can tell then which of the two it is.
    pub fn may_be_absence(&self) -> bool {
        self.is_not_found() || matches!(self, Self::Denied { .. })
    }

    /// Whether a second try may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::TooManyRequests { .. })
    }

    /// The specification's code for this error; `None` for a failure of the server itself.
    pub fn code(&self) -> Option<ErrorCode> {
        Some(match self {
            Self::RepositoryUnknown(_) | Self::RepositoryNotMade { .. } => ErrorCode::NameUnknown,
            Self::ManifestUnknown { .. } => ErrorCode::ManifestUnknown,
            Self::BlobUnknown(_) => ErrorCode::BlobUnknown,
            Self::UploadUnknown => ErrorCode::BlobUploadUnknown,
            Self::DigestMismatch { .. } => ErrorCode::DigestInvalid,
            Self::SizeMismatch { .. } | Self::TooLarge { .. } | Self::SizeRefused { .. } => {
                ErrorCode::SizeInvalid
            }
            Self::OutOfOrder { .. } | Self::RangeNotSatisfiable { .. } => ErrorCode::BlobUploadInvalid,
            Self::ManifestInvalid(_) | Self::Refused(_) => ErrorCode::ManifestInvalid,
            Self::ManifestBlobUnknown(_) => ErrorCode::ManifestBlobUnknown,
            Self::TagExists { .. } | Self::Denied { .. } => ErrorCode::Denied,
            Self::NoCatalog | Self::Unsupported { .. } => ErrorCode::Unsupported,
            Self::Unauthorized { .. } => ErrorCode::Unauthorized,
            Self::TooManyRequests { .. } => ErrorCode::TooManyRequests,
            Self::TooMany { .. }
            | Self::Full { .. }
            | Self::Unavailable { .. }
            | Self::Protocol { .. }
            | Self::Io { .. } => return None,
        })
    }

    /// Whether this says nothing of what was asked for, only that the registry cannot tell at the moment: whoever has an earlier
    /// answer may go on with it. A refusal is none of these, and neither is "there is none".
    pub fn is_outage(&self) -> bool {
        self.is_passing() || matches!(self, Self::Full { .. } | Self::Protocol { .. } | Self::Io { .. })
    }

    /// The same error once more, for each of several callers who waited for one request.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::RepositoryUnknown(name) => Self::RepositoryUnknown(name.clone()),
            Self::RepositoryNotMade { registry, repository, command } => Self::RepositoryNotMade {
                registry: registry.clone(),
                repository: repository.clone(),
                command: command.clone(),
            },
            Self::ManifestUnknown { repository, reference } => {
                Self::ManifestUnknown { repository: repository.clone(), reference: reference.clone() }
            }
            Self::BlobUnknown(digest) => Self::BlobUnknown(digest.clone()),
            Self::UploadUnknown => Self::UploadUnknown,
            Self::DigestMismatch { expected, actual } => {
                Self::DigestMismatch { expected: expected.clone(), actual: actual.clone() }
            }
            Self::SizeMismatch { expected, actual } => {
                Self::SizeMismatch { expected: *expected, actual: *actual }
            }
            Self::OutOfOrder { offset } => Self::OutOfOrder { offset: *offset },
            Self::RangeNotSatisfiable { size } => Self::RangeNotSatisfiable { size: *size },
            Self::ManifestInvalid(error) => Self::ManifestInvalid(error.clone()),
            Self::ManifestBlobUnknown(digest) => Self::ManifestBlobUnknown(digest.clone()),
            Self::TagExists { tag, existing } => {
                Self::TagExists { tag: tag.clone(), existing: existing.clone() }
            }
            Self::Refused(reason) => Self::Refused(reason.clone()),
            Self::NoCatalog => Self::NoCatalog,
            Self::Unsupported { operation } => Self::Unsupported { operation },
            Self::TooMany { what, limit } => Self::TooMany { what, limit: *limit },
            Self::TooLarge { limit } => Self::TooLarge { limit: *limit },
            Self::SizeRefused { registry, operation } => {
                Self::SizeRefused { registry: registry.clone(), operation: operation.clone() }
            }
            Self::Full { registry, operation } => {
                Self::Full { registry: registry.clone(), operation: operation.clone() }
            }
            Self::Unauthorized { registry, reason } => {
                Self::Unauthorized { registry: registry.clone(), reason: reason.clone() }
            }
            Self::Denied { registry, operation } => {
                Self::Denied { registry: registry.clone(), operation: operation.clone() }
            }
            Self::TooManyRequests { registry, retry_after } => {
                Self::TooManyRequests { registry: registry.clone(), retry_after: *retry_after }
            }
            Self::Unavailable { registry, reason } => {
                Self::Unavailable { registry: registry.clone(), reason: reason.clone() }
            }
            Self::Protocol { registry, reason } => {
                Self::Protocol { registry: registry.clone(), reason: reason.clone() }
            }
            Self::Io { action, source } => Self::Io {
                action: action.clone(),
                source: std::io::Error::new(source.kind(), source.to_string()),
            },
        }
    }

    /// An input or output error with what was being done.
    pub fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}

/// A stream of bytes carries its error as an input error; this brings the cause back.
impl From<std::io::Error> for RegistryError {
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(cause) => cause,
            Err(source) => Self::Io { action: "the transfer broke off".into(), source },
        }
    }
}

impl From<RegistryError> for std::io::Error {
    fn from(error: RegistryError) -> Self {
        Self::other(error)
    }
}
