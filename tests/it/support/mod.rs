//! What the integration tests share: folders, programs, servers that end with the test.

pub(crate) mod clients;
pub(crate) mod docker_registry;
pub(crate) mod modules;
pub(crate) mod ocimod;
pub(crate) mod process;
pub(crate) mod tls;
