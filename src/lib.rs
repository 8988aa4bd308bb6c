//! Keeps OpenTofu, Terraform and CUE modules in an OCI registry and serves them by the protocols that their clients speak.
//!
//! The rooms, from the top down; an arrow never points up:
//!
//! - [`cli`] and [`server`] are the faces: they parse input, call one operation, and print or answer.
//! - [`operations`] are the verbs: push, pull, list, inspect, and what the endpoints ask for.
//! - [`artifact`] turns a module into an OCI manifest and back; [`registry`] keeps tags, manifests and blobs
//!   (trait [`registry::Registry`]) and knows nothing of modules.
//! - [`module`] and [`archive`] say what a module is and how its zip is made, checked and opened.
//! - [`oci`] holds the nouns of the OCI specifications, parsed once.

pub mod archive;
pub mod artifact;
pub mod cli;
pub mod module;
pub mod oci;
pub mod operations;
pub mod registry;
pub mod server;

#[cfg(test)]
#[path = "../tests/fuzz/mod.rs"]
#[allow(clippy::unwrap_used)]
mod fuzz;
