//! Connections whose other end has stopped reading are given up, and those whose other end still sends are closed so that it reads the
//! answer first.
//!
//! Time-outs on headers and bodies catch who sends slowly or not at all. A caller who asks for a large blob and then reads
//! nothing would hold a connection, an open file and buffers for as long as it likes: only the connection itself sees that.
//! Those beyond the number that the server takes are closed at once.
//!
//! A push that is refused is answered before all of it has come. To close the connection then would be to throw away what comes, and
//! the system says so to the sender, who may lose the answer over it and read "connection reset". So what comes is read for a while
//! (RFC 9112, section 9.6).

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::limits::{Connections, Place};
use super::sent_file::{Handover, SendFile};
use super::shortcut::Shortcut;

/// How long not one byte may be taken: more than any break of a line that is still in use.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);

/// How long is read what nobody wants: some round trips around the world. Who reads an answer closes the connection earlier.
const LINGER: Duration = Duration::from_secs(2);

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
        let connection = Connection { place: Some(place), ..Connection::new(stream, WRITE_TIMEOUT, LINGER) };
        ready(connection.stream.set_nodelay(true).map(|()| (connection, service)))
    }
}

/// The same, for connections that say what is written on them as it is: they send files too.
#[derive(Clone)]
pub(super) struct PlainAcceptor(pub(super) Acceptor);

impl Accept<TcpStream, Shortcut> for PlainAcceptor {
    type Stream = Connection<TcpStream>;
    type Service = Shortcut;
    type Future = Ready<io::Result<(Self::Stream, Shortcut)>>;

    fn accept(&self, stream: TcpStream, service: Shortcut) -> Self::Future {
        let accepted = self.0.accept(stream, service).into_inner();
        ready(accepted.map(|(mut connection, service)| {
            let files = Handover::default();
            connection.files = Some(files.clone());
            (connection, service.with_files(files))
        }))
    }
}

/// A stream of bytes whose writes fail where none of them goes on for a while, and which is read for a while after its end.
pub(super) struct Connection<S> {
    stream: S,
    patience: Duration,
    linger: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Runs once everything is written.
    lingering: Option<Pin<Box<Sleep>>>,
    /// Whether the other end has said everything.
    is_at_end: bool,
    /// Files to be sent, where it sends any.
    files: Option<Handover>,
    /// Its place among all connections, until it ends.
    #[allow(dead_code)] // what it does is to be dropped
    place: Option<Place>,
}

impl<S> Connection<S> {
    fn new(stream: S, patience: Duration, linger: Duration) -> Self {
        Self {
            stream,
            patience,
            linger,
            waiting: None,
            lingering: None,
            is_at_end: false,
            files: None,
            place: None,
        }
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

impl<S: AsyncRead + Unpin> Connection<S> {
    /// Throws away what comes, until the other end has said everything or the time is over.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger;
        let lingering = self.lingering.get_or_insert_with(|| Box::pin(sleep(linger)));
        let is_over = lingering.as_mut().poll(context).is_ready();
        let mut buffer = [0; 4 * 1024];
        while !self.is_at_end && !is_over {
            let mut piece = ReadBuf::new(&mut buffer);
            match ready!(Pin::new(&mut self.stream).poll_read(context, &mut piece)) {
                Ok(()) if !piece.filled().is_empty() => {}
                _ => self.is_at_end = true,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let is_nothing = buffer.filled().len() == before && buffer.remaining() > 0;
        self.is_at_end |= read.is_ready() && is_nothing;
        read
    }
}

impl<S: AsyncRead + AsyncWrite + SendFile + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, files, .. } = &mut *self;
        let written = match files {
            None => Pin::new(stream).poll_write_vectored(context, slices),
            Some(files) => files.poll_write(stream, context, slices),
        };
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
        if self.lingering.is_none() {
            let shut = Pin::new(&mut self.stream).poll_shutdown(context);
            ready!(self.bound(context, shut))?;
        }
        self.poll_linger(context).map(Ok)
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
        let mut connection = Connection::new(ours, Duration::from_millis(20), LINGER);
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
        Connection::new(ours, Duration::from_millis(500), LINGER).write_all(&[0; 64]).await.unwrap();
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn who_still_sends_is_read_until_the_answer_is() {
        let (ours, mut theirs) = duplex(16);
        let closing = tokio::spawn(async move {
            let mut connection = Connection::new(ours, WRITE_TIMEOUT, Duration::from_hours(1));
            connection.write_all(b"no").await.unwrap();
            connection.shutdown().await.unwrap();
        });
        theirs.write_all(&[0; 1000]).await.unwrap();
        let mut answer = Vec::new();
        theirs.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"no");
        drop(theirs);
        closing.await.unwrap();
    }

    #[tokio::test]
    async fn who_never_stops_sending_is_hung_up_on() {
        let (ours, mut theirs) = duplex(16);
        let sending = tokio::spawn(async move { while theirs.write_all(&[0; 8]).await.is_ok() {} });
        let mut connection = Connection::new(ours, WRITE_TIMEOUT, Duration::from_millis(20));
        connection.shutdown().await.unwrap();
        drop(connection);
        sending.await.unwrap();
    }

    #[tokio::test]
    async fn who_has_said_everything_is_not_waited_for() {
        let (ours, mut theirs) = duplex(16);
        theirs.shutdown().await.unwrap();
        let mut connection = Connection::new(ours, WRITE_TIMEOUT, Duration::from_hours(1));
        assert_eq!(connection.read(&mut [0; 1]).await.unwrap(), 0);
        connection.shutdown().await.unwrap();
    }
}
