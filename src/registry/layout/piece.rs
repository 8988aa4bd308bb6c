//! A piece of a file that several read at a time.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};

use crate::registry::ByteStream;

/// How much is read at a time: every read is handed to another thread, which small pieces would not be worth.
const READ_SIZE: usize = 256 * 1024;

/// `size` bytes of a file from `start`.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) file: Arc<File>,
    pub(super) start: u64,
    pub(super) size: u64,
}

impl Piece {
    /// A part of it, which lies within.
    pub(super) fn part(&self, start: u64, size: u64) -> Self {
        Self { file: Arc::clone(&self.file), start: self.start + start, size }
    }

    /// Shows all of it, piece by piece. [`ErrorKind::UnexpectedEof`] where the file ends before. Blocks.
    pub(super) fn each(&self, mut show: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut buffer = vec![0; READ_SIZE.min(usize::try_from(self.size).unwrap_or(READ_SIZE))];
        let mut rest = self.clone();
        while rest.size > 0 {
            let count = rest.take(&mut buffer)?;
            show(&buffer[..count])?;
        }
        Ok(())
    }

    /// All of it at once: for what is known to be small. Blocks.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.each(|piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// All of it as a stream.
    pub(super) fn stream(self) -> ByteStream {
        stream::try_unfold(self, |mut rest| async move {
            if rest.size == 0 {
                return Ok(None);
            }
            let read = tokio::task::spawn_blocking(move || {
                let mut buffer = vec![0; READ_SIZE.min(usize::try_from(rest.size).unwrap_or(READ_SIZE))];
                let count = rest.take(&mut buffer)?;
                buffer.truncate(count);
                Ok::<_, io::Error>((Bytes::from(buffer), rest))
            });
            read.await.map_err(io::Error::other)?.map(Some)
        })
        .boxed()
    }

    /// Reads from the front of it, and leaves the rest.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.size).map_or(buffer.len(), |size| size.min(buffer.len()));
        loop {
            match read_at(&self.file, &mut buffer[..wanted], self.start) {
                Ok(0) => {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "the file has become shorter"));
                }
                Ok(count) => {
                    self.start += count as u64;
                    self.size -= count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}
