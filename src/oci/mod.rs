//! The nouns of the OCI distribution and image specifications, parsed once at the edge.

mod digest;
mod error_code;
mod manifest;
mod range;
mod repository;
mod tag;

pub use digest::{Algorithm, Digest, DigestError, Hasher};
pub use error_code::ErrorCode;
pub use manifest::{
    Annotations, DOCKER_MANIFEST, DOCKER_MANIFEST_LIST, Descriptor, IMAGE_INDEX, IMAGE_MANIFEST,
    MANIFEST_TYPES, MAX_MANIFEST_SIZE, Manifest, ManifestError, Platform,
};
pub use range::{ByteRange, Span};
pub use repository::{Repository, RepositoryError};
pub use tag::{Reference, Tag, TagError};
