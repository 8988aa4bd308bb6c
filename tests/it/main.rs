//! The integration tests: one binary, one module a subject.

#![allow(clippy::unwrap_used)]

mod conformance;
mod failing_registry;
