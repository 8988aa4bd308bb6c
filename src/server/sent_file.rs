//! Files that the system sends out of its own memory, without a copy of their bytes passing through this process (`sendfile`).
//!
//! Between a handler and the connection there is only a body of pieces. So the body leaves the file with the connection
//! ([`Handover`]) and gives out a stand-in of the same length; nobody looks into the pieces of a body on their way, they are
//! written as they are. Where the connection is asked to write a stand-in, it has the system send the part. Should a stand-in come
//! to it as a copy, it would go out as it is: the connection sees that a part is due which it is not asked for, and breaks off.
//!
//! This is for HTTP/1.1 without TLS. Everywhere else, and where a part would have to come from the disk first, the file is read.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use http_body::Frame;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use url::Url;

use crate::oci::Span;
use crate::registry::{Blob, BlobFile, BlobStream, ByteStream};

/// How much of a file is sent at a time: some times as much as a socket takes at once, so that it is never short of bytes.
const PART: usize = 2 * 1024 * 1024;

/// What stands for a part of a file. It is known by where it is, not by what is in it.
static STAND_IN: [u8; PART] = [0; PART];

fn is_stand_in(slice: &[u8]) -> bool {
    STAND_IN.as_ptr_range().contains(&slice.as_ptr())
}

/// Parts of files that a connection is going to send.
#[derive(Clone, Debug, Default)]
pub(super) struct Handover(Arc<Mutex<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    /// In their order.
    due: VecDeque<Part>,
    /// Whether the system waits for packets to be full.
    is_corked: bool,
}

/// A part of a file that is to be sent.
#[derive(Debug)]
struct Part {
    file: Arc<File>,
    at: u64,
    left: usize,
    /// Whether nothing of the file comes behind it.
    is_last: bool,
}

impl Parts {
    /// Has the system send full packets alone, or whatever it has. Without that, the end of each part is a small packet of its own,
    /// and whoever receives them is woken for each.
    fn cork(&mut self, stream: &impl SendFile, is_corked: bool) {
        if self.is_corked != is_corked {
            stream.cork(is_corked);
            self.is_corked = is_corked;
        }
    }
}

impl Handover {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes slices, or sends the part that the first of them stands for; what goes out at once.
    pub(super) fn poll_write<S: AsyncWrite + SendFile + Unpin>(
        &self,
        stream: &mut S,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut parts = self.parts();
        let sends_files = !parts.due.is_empty();
        parts.cork(stream, sends_files);
        let lost = || Poll::Ready(Err(io::Error::other("a part of a file has lost its place in the answer")));
        let Some(part) = parts.due.front_mut() else {
            // What stands for nothing must not go out in its place.
            if slices.iter().any(|slice| is_stand_in(slice)) {
                return lost();
            }
            return Pin::new(stream).poll_write_vectored(context, slices);
        };
        let Some(first) = slices.iter().position(|slice| !slice.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        if !is_stand_in(&slices[first]) {
            // What came before the part.
            return match slices.iter().position(|slice| is_stand_in(slice)) {
                Some(end) => Pin::new(stream).poll_write_vectored(context, &slices[..end]),
                None => lost(),
            };
        }
        let count = slices[first].len().min(part.left);
        let sent = ready!(stream.poll_send_file(context, &part.file, part.at, count))?;
        if sent == 0 {
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter");
            return Poll::Ready(Err(error));
        }
        part.at += sent as u64;
        part.left = part.left.saturating_sub(sent);
        if part.left == 0 {
            let is_last = part.is_last;
            parts.due.pop_front();
            parts.cork(stream, !is_last);
        }
        Poll::Ready(Ok(sent))
    }
}

/// A stream that the system can send a file to.
pub(super) trait SendFile {
    /// Sends at most `count` bytes of a file, from `at` on; none where the file has no more.
    fn poll_send_file(
        &self,
        context: &mut Context<'_>,
        file: &File,
        at: u64,
        count: usize,
    ) -> Poll<io::Result<usize>>;

    /// Has the system wait until packets are full, or no longer. It is no matter if it does not.
    fn cork(&self, is_corked: bool);
}

impl SendFile for TcpStream {
    #[cfg(target_os = "linux")]
    fn poll_send_file(
        &self,
        context: &mut Context<'_>,
        file: &File,
        at: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        use rustix::io::retry_on_intr;
        loop {
            ready!(self.poll_write_ready(context))?;
            let sent = self.try_io(tokio::io::Interest::WRITABLE, || {
                let mut at = at;
                Ok(retry_on_intr(|| rustix::fs::sendfile(self, file, Some(&mut at), count))?)
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn cork(&self, is_corked: bool) {
        #[cfg(target_os = "linux")]
        let _ = rustix::net::sockopt::set_tcp_cork(self, is_corked);
        #[cfg(not(target_os = "linux"))]
        let _ = is_corked;
    }

    #[cfg(not(target_os = "linux"))]
    fn poll_send_file(
        &self,
        _context: &mut Context<'_>,
        _file: &File,
        _at: u64,
        _count: usize,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

#[cfg(test)]
impl SendFile for tokio::io::DuplexStream {
    fn poll_send_file(&self, _: &mut Context<'_>, _: &File, _: u64, _: usize) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn cork(&self, _: bool) {}
}

/// Where the body of an answer finds the connection that it goes out on, if that one sends files.
#[derive(Clone, Debug, Default)]
struct Connected(Arc<OnceLock<Handover>>);

/// Tells the answer's body of the connection. It goes around everything else that may wrap a body.
pub(super) async fn connect(mut request: Request, next: Next) -> Response {
    let handover = request.extensions_mut().remove::<Handover>();
    let mut response = next.run(request).await;
    if let Some((connected, handover)) = response.extensions_mut().remove::<Connected>().zip(handover) {
        let _ = connected.0.set(handover);
    }
    response
}

/// A blob that is to be sent, or the piece of it that was asked for.
pub(super) struct Sent {
    /// Size of the whole blob in bytes.
    pub(super) size: u64,
    /// Which piece it is.
    pub(super) span: Option<Span>,
    content: Content,
}

enum Content {
    Stream(ByteStream),
    File(BlobFile),
}

impl Sent {
    /// What a registry answered, unless that is where the blob can be had.
    pub(super) fn of(blob: Blob) -> Result<Self, Url> {
        match blob {
            Blob::Stream(BlobStream { size, span, bytes }) => {
                Ok(Self { size, span, content: Content::Stream(bytes) })
            }
            Blob::File(file) => Ok(Self { size: file.size, span: file.span, content: Content::File(file) }),
            Blob::Location(url) => Err(url),
        }
    }

    /// Makes it the body of an answer.
    pub(super) fn fill(self, mut response: Response) -> Response {
        *response.body_mut() = match self.content {
            Content::Stream(bytes) => Body::from_stream(bytes),
            Content::File(file) => {
                let connected = Connected::default();
                response.extensions_mut().insert(connected.clone());
                Body::new(SentFile { left: file.wanted(), file, connected, reading: None })
            }
        };
        response
    }
}

struct SentFile {
    file: BlobFile,
    /// What was not given out yet.
    left: Span,
    connected: Connected,
    /// A part that is read.
    reading: Option<ByteStream>,
}

impl SentFile {
    /// Takes at most so many bytes of what is left.
    fn take(&mut self, most: u64) -> Span {
        let part = Span { length: self.left.length.min(most), ..self.left };
        self.left = Span { start: part.start + part.length, length: self.left.length - part.length };
        part
    }
}

impl HttpBody for SentFile {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            if let Some(bytes) = &mut self.reading {
                if let Some(piece) = ready!(bytes.poll_next_unpin(context)) {
                    return Poll::Ready(Some(piece.map(Frame::data).map_err(axum::Error::new)));
                }
                self.reading = None;
            }
            if self.left.length == 0 {
                return Poll::Ready(None);
            }
            let handover = self.connected.0.get().filter(|_| cfg!(target_os = "linux")).cloned();
            let Some(handover) = handover else {
                let whole = self.take(u64::MAX);
                self.reading = Some(self.file.read(whole));
                continue;
            };
            let part = self.take(PART as u64);
            // No longer than a part is, which is a number of bytes in memory.
            let length = usize::try_from(part.length).unwrap_or(PART).min(PART);
            if self.file.is_cached(part) {
                let file = Arc::clone(self.file.file());
                let is_last = self.left.length == 0;
                handover.parts().due.push_back(Part { file, at: part.start, left: length, is_last });
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&STAND_IN[..length])))));
            }
            self.reading = Some(self.file.read(part));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left.length == 0 && self.reading.is_none()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::poll_fn;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// Takes a few bytes at a time.
    #[derive(Default)]
    struct Slow {
        written: Mutex<Vec<u8>>,
        corks: Mutex<Vec<(bool, usize)>>,
    }

    impl Slow {
        fn take(&self, bytes: &[u8]) -> usize {
            let count = bytes.len().min(1000);
            self.written.lock().unwrap().extend_from_slice(&bytes[..count]);
            count
        }
    }

    impl AsyncWrite for Slow {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(self.take(bytes)))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl SendFile for Slow {
        fn poll_send_file(
            &self,
            _: &mut Context<'_>,
            file: &File,
            at: u64,
            count: usize,
        ) -> Poll<io::Result<usize>> {
            let mut bytes = vec![0; count];
            let read = file.read_at(&mut bytes, at)?;
            Poll::Ready(Ok(self.take(&bytes[..read])))
        }

        fn cork(&self, is_corked: bool) {
            self.corks.lock().unwrap().push((is_corked, self.written.lock().unwrap().len()));
        }
    }

    /// Writes slices to their end, as a connection does.
    async fn write(files: &Handover, stream: &mut Slow, pieces: &[&[u8]]) -> io::Result<()> {
        let mut pieces = pieces.to_vec();
        while !pieces.is_empty() {
            let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut count = poll_fn(|context| files.poll_write(stream, context, &slices)).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            while let Some(first) = pieces.first_mut() {
                let used = first.len().min(count);
                *first = &first[used..];
                count -= used;
                if !first.is_empty() {
                    break;
                }
                pieces.remove(0);
            }
        }
        Ok(())
    }

    /// A file that the system has in its memory, and what is in it.
    fn file(length: usize) -> (File, Vec<u8>) {
        let bytes: Vec<u8> =
            (0..length).map(|index| index.to_le_bytes()[0] ^ index.to_le_bytes()[1]).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        (file, bytes)
    }

    /// The body of a whole file.
    fn body(file: File, length: usize, handover: Option<&Handover>) -> SentFile {
        let file = BlobFile::new(file, length as u64, None);
        let connected = Connected::default();
        if let Some(handover) = handover {
            connected.0.set(handover.clone()).unwrap();
        }
        SentFile { left: file.wanted(), file, connected, reading: None }
    }

    async fn frame(body: &mut SentFile) -> Option<Bytes> {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        Some(frame.unwrap().into_data().unwrap())
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn parts_are_sent_in_the_place_of_what_stands_for_them() {
        const LENGTH: usize = 2 * PART + 77;
        let (file, bytes) = file(LENGTH);
        let files = Handover::default();
        let mut stream = Slow::default();
        let mut body = body(file, LENGTH, Some(&files));
        let [one, two, three] =
            [frame(&mut body).await, frame(&mut body).await, frame(&mut body).await].map(Option::unwrap);
        assert!([&one, &two, &three].iter().all(|frame| is_stand_in(frame)));
        assert!(frame(&mut body).await.is_none() && body.is_end_stream());
        write(&files, &mut stream, &[b"head", b"", &one, &two]).await.unwrap();
        write(&files, &mut stream, &[&three]).await.unwrap();
        // What comes behind is no part.
        write(&files, &mut stream, &[b"next"]).await.unwrap();
        assert!(*stream.written.lock().unwrap() == [b"head", &bytes[..], b"next"].concat());
        let corks = stream.corks.lock().unwrap().clone();
        assert_eq!(corks, [(true, 0), (false, 4 + LENGTH)], "packets are full but for the last");
    }

    #[tokio::test]
    async fn a_copy_of_what_stands_for_a_part_is_not_sent() {
        let (file, _) = file(10);
        let files = Handover::default();
        let file = Arc::new(file);
        files.parts().due.push_back(Part { file, at: 0, left: 10, is_last: true });
        let mut stream = Slow::default();
        let copy = STAND_IN[..10].to_vec();
        write(&files, &mut stream, &[b"head", &copy]).await.unwrap_err();
        assert!(stream.written.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_stands_for_no_part_is_not_sent() {
        let mut stream = Slow::default();
        write(&Handover::default(), &mut stream, &[b"head", &STAND_IN[..10]]).await.unwrap_err();
        assert!(stream.written.lock().unwrap().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_file_that_has_become_shorter_is_no_whole_one() {
        const LENGTH: usize = 100_000;
        let (file, bytes) = file(LENGTH);
        let shorter = file.try_clone().unwrap();
        let files = Handover::default();
        let mut body = body(file, LENGTH, Some(&files));
        let part = frame(&mut body).await.unwrap();
        shorter.set_len(50_000).unwrap();
        let mut stream = Slow::default();
        let error = write(&files, &mut stream, &[&part]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(*stream.written.lock().unwrap() == bytes[..50_000]);
    }

    /// What comes behind a part that is not the last is read from the disk: it does not wait for packets to be full.
    #[tokio::test]
    async fn what_is_written_goes_out_at_once() {
        let (file, _) = file(10);
        let files = Handover::default();
        files.parts().due.push_back(Part { file: Arc::new(file), at: 0, left: 10, is_last: false });
        let mut stream = Slow::default();
        write(&files, &mut stream, &[&STAND_IN[..10]]).await.unwrap();
        write(&files, &mut stream, &[b"read"]).await.unwrap();
        assert_eq!(*stream.corks.lock().unwrap(), [(true, 0), (false, 10)]);
    }

    #[tokio::test]
    async fn where_nobody_sends_files_they_are_read() {
        const LENGTH: usize = PART + 5;
        let (file, bytes) = file(LENGTH);
        let mut body = body(file, LENGTH, None);
        let mut read = Vec::new();
        while let Some(piece) = frame(&mut body).await {
            assert!(!is_stand_in(&piece));
            read.extend_from_slice(&piece);
        }
        assert!(read == bytes);
    }
}
