//! A server that keeps to no protocol: what it sends is written by the test, byte by byte, and it may send without end, a drop at a
//! time, or nothing at all.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// No request of ours has a longer head.
const MAX_HEAD: usize = 64 * 1024;

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// `GET /v2/`
    pub(super) line: String,
    /// The head in lower case, line by line.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(super) fn method(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// A header, empty where it is absent.
    pub(super) fn header(&self, name: &str) -> &str {
        let value = |line: &'_ str| line.strip_prefix(name)?.strip_prefix(':').map(str::trim).map(str::len);
        let line = self.head.lines().find(|line| value(line).is_some());
        line.map_or("", |line| line[name.len() + 1..].trim())
    }
}

/// What is done with a connection once a request has come.
#[derive(Clone)]
pub(super) enum Step {
    /// Sends this.
    Send(Vec<u8>),
    /// Sends this again and again, until the other side has had enough.
    Endless(Vec<u8>),
    /// The same with a pause after each.
    Drip(Vec<u8>, Duration),
    /// Takes so many bytes of the request's body at a time, with a pause after each.
    Sip(usize, Duration),
    /// Does nothing, until the other side has had enough.
    Hang,
}

/// The steps of an ordinary answer.
pub(super) fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<Step> {
    let mut head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    if !headers.iter().any(|(name, _)| ["content-length", "transfer-encoding"].contains(name)) {
        head.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
    }
    head.push_str("\r\n");
    vec![Step::Send([head.as_bytes(), body].concat())]
}

/// A server on a free port, until it is dropped.
pub(super) struct Hostile {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    sent: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hostile {
    /// Answers the ping as a registry that is open to everybody, and everything else by the script.
    pub(super) async fn start(script: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (requests, sent) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::<AtomicUsize>::default());
        let (seen, counter, script) = (Arc::clone(&requests), Arc::clone(&sent), Arc::new(script));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, counter, script) = (Arc::clone(&seen), Arc::clone(&counter), Arc::clone(&script));
                connections.spawn(async move {
                    let mut stream = stream;
                    let Some(request) = read(&mut stream, &*script).await else { return };
                    let steps =
                        if request.line == "GET /v2/" { answer(200, &[], b"") } else { script(&request) };
                    if request.line != "GET /v2/" {
                        seen.lock().unwrap().push(request);
                    }
                    for step in steps {
                        if perform(&mut stream, step, &counter).await.is_none() {
                            return;
                        }
                    }
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { address, requests, sent, task }
    }

    /// Every request until now but the ping.
    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// How many bytes were sent, as far as the system took them.
    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

/// Reads a request with its body, unless the script means to take that its own way.
async fn read(
    stream: &mut TcpStream,
    script: &(dyn Fn(&Request) -> Vec<Step> + Send + Sync),
) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if bytes.len() > MAX_HEAD || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let line = head.split(" HTTP/").next().unwrap_or_default().to_owned();
    let mut request = Request { line, head: head.to_ascii_lowercase(), body: bytes.split_off(end) };
    if script(&request).iter().any(|step| matches!(step, Step::Sip(..))) {
        return Some(request);
    }
    let length: usize = request.header("content-length").parse().unwrap_or(0);
    while request.body.len() < length {
        if stream.read_buf(&mut request.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(request)
}

/// One step; `None` where the other side has gone.
async fn perform(stream: &mut TcpStream, step: Step, sent: &AtomicUsize) -> Option<()> {
    let write = async |stream: &mut TcpStream, bytes: &[u8]| {
        stream.write_all(bytes).await.ok()?;
        sent.fetch_add(bytes.len(), Ordering::SeqCst);
        Some(())
    };
    match step {
        Step::Send(bytes) => write(stream, &bytes).await,
        Step::Endless(bytes) => loop {
            write(stream, &bytes).await?;
        },
        Step::Drip(bytes, pause) => loop {
            write(stream, &bytes).await?;
            stream.flush().await.ok()?;
            tokio::time::sleep(pause).await;
        },
        Step::Sip(count, pause) => {
            let mut taken = vec![0; count];
            while stream.read_exact(&mut taken).await.is_ok() {
                tokio::time::sleep(pause).await;
            }
            None
        }
        Step::Hang => {
            let mut rest = [0; 1024];
            while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
            None
        }
    }
}
