//! The real clients against the real program.

mod copy;
mod cue;
mod install;
mod other_hosts;
mod registry;
mod self_contained;
