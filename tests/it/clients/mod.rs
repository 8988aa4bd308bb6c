//! The real clients against the real program.

mod copy;
mod cue;
mod cue_cache;
mod cue_copy;
mod cue_corpus;
mod cue_registry;
mod cue_view;
mod install;
mod login;
mod matrix;
mod other_hosts;
mod outage;
mod registry;
mod self_contained;
mod tokens;
