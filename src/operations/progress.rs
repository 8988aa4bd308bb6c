//! How an operation tells what it is doing while it lasts.

/// Told of the steps of an operation. What is shown of it is the caller's business.
pub trait Progress: Send + Sync {
    /// A step begins: what, in words, and how many bytes it will move where that is known.
    fn started(&self, what: &str, bytes: Option<u64>);
    /// So many more bytes of the step were moved.
    fn advanced(&self, bytes: u64);
    /// The step is over.
    fn finished(&self);
    /// Something that deserves a word although the operation goes on.
    fn warn(&self, message: &str);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn started(&self, _what: &str, _bytes: Option<u64>) {}
    fn advanced(&self, _bytes: u64) {}
    fn finished(&self) {}
    fn warn(&self, _message: &str) {}
}
