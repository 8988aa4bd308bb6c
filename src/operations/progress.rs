//! How an operation tells whoever waits how far it is, without knowing who that is: a terminal, a log, nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;

use crate::registry::{BlobSource, ByteStream};

/// Hears of transfers, one after another: begun, further, done. And of what deserves a word on the way.
pub trait Progress: Send + Sync {
    /// A transfer begins: what it is, in a few words, and how many bytes long where that is known.
    fn started(&self, what: &str, bytes: Option<u64>);
    /// That many more bytes have passed since the last call.
    fn advanced(&self, bytes: u64);
    /// The transfer has turned out to be so many bytes longer.
    fn grown(&self, bytes: u64);
    /// The transfer has ended, well or not.
    fn finished(&self);
    /// Something that the user should know although the operation goes on.
    fn warn(&self, message: &str);
}

/// Nobody waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn started(&self, _what: &str, _bytes: Option<u64>) {}
    fn advanced(&self, _bytes: u64) {}
    fn grown(&self, _bytes: u64) {}
    fn finished(&self) {}
    fn warn(&self, _message: &str) {}
}

/// A source that tells how far it was read.
pub(super) struct CountedSource<'a> {
    source: &'a dyn BlobSource,
    progress: Arc<dyn Progress>,
    is_opened: AtomicBool,
}

impl<'a> CountedSource<'a> {
    /// Tells `progress` of every byte that is read from `source`.
    pub(super) fn new(source: &'a dyn BlobSource, progress: Arc<dyn Progress>) -> Self {
        Self { source, progress, is_opened: AtomicBool::new(false) }
    }

    /// Whether anybody has begun to read it: a store that has the content already does not.
    pub(super) fn is_opened(&self) -> bool {
        self.is_opened.load(Ordering::Relaxed)
    }
}

impl BlobSource for CountedSource<'_> {
    fn size(&self) -> u64 {
        self.source.size()
    }

    fn open(&self) -> BoxFuture<'_, crate::registry::Result<ByteStream>> {
        Box::pin(async move {
            self.is_opened.store(true, Ordering::Relaxed);
            let progress = Arc::clone(&self.progress);
            let bytes = self.source.open().await?;
            Ok(bytes
                .inspect(move |piece| {
                    if let Ok(piece) = piece {
                        progress.advanced(piece.len() as u64);
                    }
                })
                .boxed())
        })
    }
}
