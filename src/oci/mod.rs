//! The nouns of the OCI distribution and image specifications, parsed once at the edge.

mod digest;

pub use digest::{Algorithm, Digest, DigestError, Hasher};
