//! Connections whose other end has stopped reading are given up.
//!
//! Time-outs on headers and bodies catch who sends slowly or not at all. A caller who asks for a large blob and then reads
//! nothing would hold a connection, an open file and buffers for as long as it likes: only the connection itself sees that.
//! Those beyond the number that the server takes are closed at once.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::limits::{Connections, Place};

/// How long not one byte may be taken: more than any break of a line that is still in use.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);

/// Sends small answers at once, and bounds writes in time and connections in number.
#[derive(Clone)]
pub(super) struct Acceptor(pub(super) Connections);

impl<S> Accept<TcpStream, S> for Acceptor {
    type Stream = Connection<TcpStream>;
    type Service = S;
    type Future = Ready<io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let Some(place) = self.0.enter() else {
            return ready(Err(io::ErrorKind::QuotaExceeded.into()));
        };
        let connection = Connection { place: Some(place), ..Connection::new(stream, WRITE_TIMEOUT) };
        ready(connection.stream.set_nodelay(true).map(|()| (connection, service)))
    }
}

/// A stream of bytes whose writes fail where none of them goes on for a while.
pub(super) struct Connection<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Its place among all connections, until it ends.
    #[allow(dead_code)] // what it does is to be dropped
    place: Option<Place>,
}

impl<S> Connection<S> {
    fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None, place: None }
    }

    /// What a write came to, or that it has waited for too long.
    fn bound<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bound(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bound(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bound(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bound(context, shut)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn who_reads_nothing_is_given_up() {
        let (ours, theirs) = duplex(16);
        let mut connection = Connection::new(ours, Duration::from_millis(20));
        let error = connection.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }

    #[tokio::test]
    async fn who_reads_slowly_is_not() {
        let (ours, mut theirs) = duplex(16);
        let reading = tokio::spawn(async move {
            let mut piece = [0; 4];
            for _ in 0..16 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                theirs.read_exact(&mut piece).await.unwrap();
            }
        });
        Connection::new(ours, Duration::from_millis(500)).write_all(&[0; 64]).await.unwrap();
        reading.await.unwrap();
    }
}
