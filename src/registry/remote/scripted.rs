//! A server for tests that answers by a script and writes down every request.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use futures_util::StreamExt;

/// Uploads of tests are small.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    /// Method and path, as scripts match them.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// A header, empty where it is absent.
    pub(super) fn header(&self, name: &str) -> String {
        self.headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .unwrap_or_default()
    }
}

/// A server on a free port of this machine, until it is dropped.
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scripted {
    /// Starts a server. The script gets the request and how many came before it.
    pub(super) async fn start(
        script: impl Fn(&Request, usize) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (script, seen) = (Arc::new(script), Arc::clone(&requests));
        let answer = move |request: axum::extract::Request| {
            let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
            async move {
                let (parts, body) = request.into_parts();
                let request = Request {
                    method: parts.method.to_string(),
                    path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
                    headers: parts.headers,
                    body: axum::body::to_bytes(body, MAX_BODY).await.unwrap_or_default(),
                };
                let before = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request.clone());
                    seen.len() - 1
                };
                script(&request, before)
            }
        };
        let router = axum::Router::new().fallback(answer);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, requests, task }
    }

    /// The same, of a registry that is open to everybody: the script is not asked for the ping.
    pub(super) async fn open(script: impl Fn(&Request) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::start(move |request, _| if request.path == "/v2/" { status(200) } else { script(request) })
            .await
    }

    /// Every request until now.
    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Method and path of every request but the ping.
    pub(super) fn lines(&self) -> Vec<String> {
        self.requests().iter().map(Request::line).filter(|line| line != "GET /v2/").collect()
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// An answer.
pub(super) fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let builder = headers
        .iter()
        .fold(Response::builder().status(status), |builder, (name, value)| builder.header(*name, *value));
    builder.body(body.into()).unwrap()
}

/// An answer that has nothing to say.
pub(super) fn status(status: u16) -> Response<Body> {
    reply(status, &[], "")
}

/// A body without end, that counts how often 64 KiB of it were taken.
pub(super) fn endless(taken: &Arc<Mutex<usize>>) -> Body {
    let taken = Arc::clone(taken);
    let pieces = futures_util::stream::repeat(()).map(move |()| {
        *taken.lock().unwrap() += 1;
        Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 64 * 1024]))
    });
    Body::from_stream(pieces)
}

/// A body that breaks off after its first bytes, which arrive: they are sent when there is nothing more for a moment.
pub(super) fn broken(first: &'static [u8]) -> Body {
    let breaks = futures_util::stream::once(async {
        tokio::task::yield_now().await;
        Err(std::io::Error::other("broken"))
    });
    let first = futures_util::stream::iter([Ok(Bytes::from_static(first))]);
    Body::from_stream(first.chain(breaks))
}
