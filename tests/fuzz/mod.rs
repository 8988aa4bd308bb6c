//! Fuzz targets: what reads the words of strangers, fed with inputs that grow towards the code that they have not reached yet.
//!
//! They are part of the crate's own test binary, since most of these readers are private and stay so. A plain `cargo test` gives
//! each target its seeds, the inputs of `regressions/`, and some hundred mutated ones that are the same every time: enough that
//! nothing rots. `tests/fuzz/run` builds the same tests with counters and lets each of them run for a minute, or as long as it is
//! told.
//!
//! A target says what must be true of every input, not only that nothing panics: see the `run` of each. Targets of private
//! readers stand as test modules next to what they read (`archive`, `module`, `registry::remote`), the others here.

mod constraint;
mod counters;
mod distribution;
mod engine;
mod limits;
mod manifest;
mod mutation;

pub(crate) use self::mutation::Random;

/// What reads one kind of input.
pub(crate) struct Target {
    /// The name of its test and of its folder of regressions.
    pub(crate) name: &'static str,
    /// Inputs to begin with: real ones and hostile ones.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
    /// Words that mean something to the reader.
    pub(crate) words: &'static [&'static str],
    /// Makes a new input of the kind's own form, where chance alone would hardly find one.
    pub(crate) generate: Option<fn(&mut Random) -> Vec<u8>>,
    /// No longer inputs than this: they would be slow, and find nothing that shorter ones do not.
    pub(crate) max_length: usize,
    /// Reads the input, and panics where what must be true is not. `true` where the reader took it.
    pub(crate) run: fn(&[u8]) -> bool,
}

/// Inputs that are texts.
pub(crate) fn texts<const N: usize>(texts: [&str; N]) -> Vec<Vec<u8>> {
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// A message about a stranger's input is one that can be printed: of bounded length, on one line or few.
#[track_caller]
pub(crate) fn assert_is_message(message: &str) {
    assert!(message.len() <= 4096, "a message of {} bytes", message.len());
    assert!(!message.is_empty(), "an empty message");
}

/// Scheme, host, port and user are the same.
pub(crate) fn same_place(one: &url::Url, other: &url::Url) -> bool {
    one.scheme() == other.scheme() && one.authority() == other.authority()
}

#[test]
fn challenge() {
    engine::fuzz(&crate::registry::remote::fuzz_targets::CHALLENGE);
}

#[test]
fn link() {
    engine::fuzz(&crate::registry::remote::fuzz_targets::LINK);
}

#[test]
fn manifest() {
    engine::fuzz(&manifest::TARGET);
}

#[test]
fn module_file() {
    engine::fuzz(&crate::module::fuzz_target::TARGET);
}

#[test]
fn constraint() {
    engine::fuzz(&constraint::TARGET);
}

#[test]
fn zip() {
    engine::fuzz(&crate::archive::fuzz_target::TARGET);
}

#[test]
fn distribution() {
    engine::fuzz(&distribution::TARGET);
}
