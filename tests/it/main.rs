//! The integration tests: one binary, one module a subject.
#![allow(clippy::unwrap_used)] // in a test a panic is the message

mod access;
mod archive_links;
mod cached;
mod clients;
mod conformance;
mod copy;
mod cue_view;
mod distribution;
mod embedded;
mod failing_registry;
mod foreign;
mod hostile;
mod interrupted_push;
mod limits;
mod login;
mod metrics;
mod modules_access;
mod outlived;
mod providers;
mod proxies;
mod published_versions;
mod push;
mod quirks;
mod redirect;
mod registry_tls;
mod regression;
mod sent_files;
mod serve;
mod setup;
mod shortcut;
mod specification;
mod store;
mod support;
mod tls;
mod yank;
