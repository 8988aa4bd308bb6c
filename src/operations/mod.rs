//! The verbs: what the command line and the endpoints do.

mod progress;

pub use progress::{NoProgress, Progress};
