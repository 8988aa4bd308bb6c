//! An HTTP/1.1 client that does as little as can be: it writes bytes that were made before, and throws away what it reads.
//!
//! It must not be what is measured, so it has no headers, no pool and no decoding of its own; only what the servers at hand send
//! is understood.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};

use crate::processes;

/// As much as a socket hands over at once on loopback.
const BUFFER: usize = 256 * 1024;

/// Larger heads are none that our servers send.
const MAX_HEAD: usize = 64 * 1024;

/// What is read of an answer's head.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) status: u16,
    length: Option<u64>,
    is_chunked: bool,
    pub(crate) link: Option<String>,
    pub(crate) location: Option<String>,
}

/// A connection that is kept alive.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Box<[u8]>,
    /// What was read and not used yet.
    start: usize,
    end: usize,
}

/// The request for a path, as bytes.
pub(crate) fn get(address: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: */*\r\n\r\n").into_bytes()
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER].into_boxed_slice(), start: 0, end: 0 })
    }

    /// Sends a request without a body; answers the head, and the body's length once it was read to its end.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<(Head, u64)> {
        self.stream.write_all(request).await?;
        self.receive(&mut |_| {}).await
    }

    /// The same, with a body that was made of one piece so many times.
    pub(crate) async fn send_body(
        &mut self,
        request: &[u8],
        piece: &[u8],
        times: usize,
    ) -> Result<(Head, u64)> {
        self.stream.write_all(request).await?;
        for _ in 0..times {
            self.stream.write_all(piece).await?;
        }
        self.receive(&mut |_| {}).await
    }

    /// Sends a HEAD request, which is answered without a body whatever the head says of one.
    pub(crate) async fn send_head(&mut self, request: &[u8]) -> Result<Head> {
        self.stream.write_all(request).await?;
        self.head().await
    }

    /// The body at a path; an error unless the answer is 200.
    pub(crate) async fn body(&mut self, address: &str, path: &str) -> Result<Vec<u8>> {
        self.stream.write_all(&get(address, path)).await?;
        let mut body = Vec::new();
        let (head, _) = self.receive(&mut |piece| body.extend_from_slice(piece)).await?;
        ensure!(head.status == 200, "GET {path}: {} {}", head.status, String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Reads an answer and hands its body on.
    async fn receive(&mut self, sink: &mut impl FnMut(&[u8])) -> Result<(Head, u64)> {
        let head = self.head().await?;
        let mut length = 0;
        if head.is_chunked {
            loop {
                let line = self.line().await?;
                let size = line.split(';').next().unwrap_or_default();
                let size = u64::from_str_radix(size.trim(), 16).context("the size of a chunk")?;
                self.take(size, sink).await?;
                length += size;
                // The line's end behind each chunk, and behind the last one that of the trailers, which nobody sends.
                ensure!(self.line().await?.is_empty(), "a chunk is longer than it said");
                if size == 0 {
                    break;
                }
            }
        } else {
            length = match head.length {
                Some(length) => length,
                None if matches!(head.status, 204 | 304) => 0,
                None => bail!("an answer without a length"),
            };
            self.take(length, sink).await?;
        }
        Ok((head, length))
    }

    async fn head(&mut self) -> Result<Head> {
        let length = loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            ensure!(unread.len() < MAX_HEAD, "a head without end");
            self.fill().await?;
        };
        let text = std::str::from_utf8(&self.buffer[self.start..self.start + length])?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.get(9..12)).unwrap_or_default();
        let mut head = Head { status: status.parse().context("the status of an answer")?, ..Head::default() };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.length = Some(value.parse()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.is_chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("link") {
                head.link = Some(value.to_owned());
            } else if name.eq_ignore_ascii_case("location") {
                head.location = Some(value.to_owned());
            }
        }
        self.start += length;
        Ok(head)
    }

    async fn line(&mut self) -> Result<String> {
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = unread.windows(2).position(|window| window == b"\r\n") {
                let line = String::from_utf8_lossy(&unread[..at]).into_owned();
                self.start += at + 2;
                return Ok(line);
            }
            ensure!(unread.len() < MAX_HEAD, "a line without end");
            self.fill().await?;
        }
    }

    async fn take(&mut self, mut left: u64, sink: &mut impl FnMut(&[u8])) -> Result<()> {
        while left > 0 {
            if self.start == self.end {
                self.fill().await?;
            }
            let there = self.end - self.start;
            let used = usize::try_from(left).map_or(there, |left| left.min(there));
            sink(&self.buffer[self.start..self.start + used]);
            self.start += used;
            left -= used as u64;
        }
        Ok(())
    }

    async fn fill(&mut self) -> Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let read = self.stream.read(&mut self.buffer[self.end..]).await?;
        ensure!(read > 0, "the server closed the connection");
        self.end += read;
        Ok(())
    }
}

/// The target of `Link: <...>; rel="next"`.
pub(crate) fn next_path(head: &Head) -> Option<String> {
    let (_, rest) = head.link.as_deref()?.split_once('<')?;
    rest.split_once('>').map(|(target, _)| target.to_owned())
}

/// The path of a location with or without its origin.
pub(crate) fn path_of(location: &str) -> String {
    match location.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or_else(|| "/".to_owned(), |at| rest[at..].to_owned()),
        None => location.to_owned(),
    }
}

/// Runs on a thread with one of its own runtimes, as everything here does that is timed.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, work)
}

/// Runs on a thread of its own, so that keeping it to a processor does not keep others to it.
pub(crate) fn on_processor<T: Send>(
    processor: Option<usize>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let kept = || {
        processor.map_or(Ok(()), processes::keep_this_thread_to)?;
        work()
    };
    std::thread::scope(|scope| scope.spawn(kept).join().map_err(|_| anyhow!("the client panicked"))?)
}

/// How a server was kept busy.
pub(crate) struct Load<'a> {
    pub(crate) address: &'a str,
    pub(crate) path: &'a str,
    /// The length of every body, which is compared.
    pub(crate) length: u64,
    pub(crate) connections: usize,
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
    /// The processor that the client keeps to.
    pub(crate) processor: Option<usize>,
}

/// What came of it.
pub(crate) struct Throughput {
    pub(crate) per_second: f64,
    /// All answers, those of the warm-up too.
    pub(crate) answers: u32,
    /// The part of the time for which the client was on its processor. Near 1, the clock measured the client.
    pub(crate) client_share: f64,
}

impl Load<'_> {
    pub(crate) fn run(&self) -> Result<Throughput> {
        on_processor(self.processor, || self.run_here())
    }

    fn run_here(&self) -> Result<Throughput> {
        block_on(async {
            let request: Rc<[u8]> = get(self.address, self.path).into();
            let begin = Instant::now() + self.warm_up;
            let end = begin + self.duration;
            let (done, answers) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(0_u32)));
            let mut tasks = JoinSet::new();
            for _ in 0..self.connections {
                let mut connection = Connection::open(self.address).await?;
                let (request, length) = (Rc::clone(&request), self.length);
                let (done, answers) = (Rc::clone(&done), Rc::clone(&answers));
                tasks.spawn_local(async move {
                    loop {
                        let (head, came) = connection.send(&request).await?;
                        ensure!(head.status == 200, "status {}", head.status);
                        ensure!(came == length, "a body of {came} bytes instead of {length}");
                        answers.set(answers.get() + 1);
                        let now = Instant::now();
                        if now >= end {
                            return Ok(());
                        }
                        if now >= begin {
                            done.set(done.get() + 1);
                        }
                    }
                });
            }
            tokio::time::sleep_until(begin.into()).await;
            let before = processes::time_of_this_thread()?;
            let finish = async {
                while let Some(ended) = tasks.join_next().await {
                    ended??;
                }
                anyhow::Ok(())
            };
            // A server that takes long for one request must not make the round longer.
            if let Ok(ended) = tokio::time::timeout_at(end.into(), finish).await {
                ended?;
            }
            let busy = processes::time_of_this_thread()? - before;
            let seconds = self.duration.as_secs_f64();
            Ok(Throughput {
                per_second: f64::from(done.get()) / seconds,
                answers: answers.get(),
                client_share: busy / seconds,
            })
        })
    }
}
