//! What the integration tests share: folders, programs, servers that end with the test.

pub(crate) mod answer;
pub(crate) mod clients;
pub(crate) mod cue;
pub(crate) mod docker_registry;
pub(crate) mod modules;
pub(crate) mod ocimod;
pub(crate) mod openpgp;
pub(crate) mod origin;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod tls;
pub(crate) mod tls_server;
pub(crate) mod token_service;
