//! Modules and providers as OCI manifests.
