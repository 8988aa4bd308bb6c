//! What `ocimod serve` is compared with: servers of others, and this program once more, as a bare handler or as a registry that
//! counts, so that both sides of a comparison are processes of their own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use bytes::Bytes;
use ocimod::oci::{Digest, IMAGE_MANIFEST};
use serde_json::json;
use tokio::net::TcpListener;

use crate::modules;
use crate::processes::{self, Server};

/// How many tags every module of the mock registry has.
pub(crate) const TAGS: usize = 10_000;
/// How many of them are a page.
pub(crate) const PAGE: usize = 1000;

/// What this program can be instead of the benchmark.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// An axum handler that answers `versions` with the bytes of a file.
    Handler(PathBuf),
    /// A registry that has every module, each with [`TAGS`] versions, and waits so long before each answer.
    Registry(Duration),
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(file) => write!(formatter, "handler:{}", file.display()),
            Self::Registry(delay) => write!(formatter, "registry:{}", delay.as_millis()),
        }
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("handler", file)) => Ok(Self::Handler(file.into())),
            Some(("registry", delay)) => {
                let delay = delay.parse().map_err(|error| format!("{delay}: {error}"))?;
                Ok(Self::Registry(Duration::from_millis(delay)))
            }
            _ => Err(format!("there is no peer `{text}`")),
        }
    }
}

/// Serves until the other end closes our input.
pub(crate) fn run(peer: Peer) -> Result<()> {
    let router = match peer {
        Peer::Handler(file) => handler(std::fs::read(file)?.into()),
        Peer::Registry(delay) => registry(delay),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let parent_is_gone = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            served = axum::serve(listener, router) => served?,
            _ = parent_is_gone => {}
        }
        Ok(())
    })
}

fn handler(body: Bytes) -> Router {
    let answer = move || async move { ([(header::CONTENT_TYPE, "application/json")], body) };
    Router::new().route("/v1/modules/{namespace}/{name}/{system}/versions", get(answer))
}

/// What a repository of the mock registry was asked for.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// First pages of a list.
    listings: usize,
    /// Pages of a list.
    pages: usize,
    manifests: usize,
}

struct Registry {
    delay: Duration,
    tags: Vec<String>,
    counts: Mutex<HashMap<String, Counts>>,
    /// Those that were asked for by tag, which may be asked for by digest next.
    manifests: Mutex<HashMap<String, Bytes>>,
}

fn registry(delay: Duration) -> Router {
    let registry =
        Registry { delay, tags: modules::tags(TAGS), counts: Mutex::default(), manifests: Mutex::default() };
    Router::new()
        .route("/v2/", get(|| async { "{}" }))
        .fallback(get(Registry::answer))
        .with_state(Arc::new(registry))
}

impl Registry {
    async fn answer(State(registry): State<Arc<Self>>, request: Request) -> Result<Response, Infallible> {
        let path = request.uri().path();
        if let Some(repository) = path.strip_prefix("/counts/") {
            return Ok(registry.counts(repository));
        }
        tokio::time::sleep(registry.delay).await;
        let path = path.strip_prefix("/v2/").unwrap_or_default();
        // A module is in one of the two repositories that it may be in.
        let is_there = !path.starts_with("modules.internal/");
        let answer = if !is_there {
            None
        } else if let Some(repository) = path.strip_suffix("/tags/list") {
            Some(registry.page(repository, request.uri().query().unwrap_or_default()))
        } else if let Some((repository, reference)) = path.split_once("/manifests/") {
            registry.manifest(repository, reference)
        } else {
            None
        };
        let unknown = || (StatusCode::NOT_FOUND, r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#).into_response();
        Ok(answer.unwrap_or_else(unknown))
    }

    fn count(&self, repository: &str, count: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        count(counts.entry(repository.to_owned()).or_default());
    }

    fn counts(&self, repository: &str) -> Response {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { listings, pages, manifests } = counts.get(repository).cloned().unwrap_or_default();
        let body = json!({"listings": listings, "pages": pages, "manifests": manifests});
        ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
    }

    /// A page, in the order of the bytes, as the specification has it.
    fn page(&self, repository: &str, query: &str) -> Response {
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let length = value("n").and_then(|n| n.parse().ok()).unwrap_or(PAGE).min(PAGE);
        let last = value("last");
        self.count(repository, |counts| {
            counts.pages += 1;
            counts.listings += usize::from(last.is_none());
        });
        let start = last.map_or(0, |last| self.tags.partition_point(|tag| tag.as_str() <= last));
        let rest = &self.tags[start..];
        let page = &rest[..length.min(rest.len())];
        let body = format!(r#"{{"name":"{repository}","tags":["{}"]}}"#, page.join("\",\""));
        let answer = ([(header::CONTENT_TYPE, "application/json")], body);
        match page.last().filter(|_| page.len() < rest.len()) {
            Some(last) => {
                let link = format!("</v2/{repository}/tags/list?last={last}&n={length}>; rel=\"next\"");
                ([(header::LINK, link)], answer).into_response()
            }
            None => answer.into_response(),
        }
    }

    fn manifest(&self, repository: &str, reference: &str) -> Option<Response> {
        self.count(repository, |counts| counts.manifests += 1);
        let mut manifests = self.manifests.lock().unwrap_or_else(PoisonError::into_inner);
        let (digest, bytes) = if let Some(bytes) = manifests.get(reference) {
            (reference.to_owned(), bytes.clone())
        } else {
            self.tags.iter().find(|tag| *tag == reference)?;
            let bytes = modules::manifest(repository, reference);
            let digest = Digest::of(&bytes).to_string();
            manifests.insert(digest.clone(), bytes.clone());
            (digest, bytes)
        };
        let headers = [(header::CONTENT_TYPE.as_str(), IMAGE_MANIFEST), ("docker-content-digest", &digest)];
        Some((headers, bytes).into_response())
    }
}

/// Distribution's registry and the folder of its storage, which is empty; `None` where it is not installed. Its log has errors alone.
pub(crate) fn docker_registry(processor: Option<usize>) -> Result<Option<(Server, PathBuf)>> {
    let Some(program) = processes::find("docker-registry") else { return Ok(None) };
    let home = tempfile::tempdir()?;
    let storage = home.path().join("storage");
    let address = processes::free_address()?;
    let configuration = home.path().join("configuration.yml");
    let text = format!(
        "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
         http:\n  addr: {address}\n",
        storage.display()
    );
    fs::write(&configuration, text)?;
    let arguments = ["serve", &configuration.display().to_string()];
    Ok(Some((processes::foreign(&program, home, &arguments, address, processor)?, storage)))
}

/// Nginx with a folder as its root; `None` where it is not installed. As it comes with Debian: with `sendfile`, and a line for each
/// request in a log. Its connections are kept for as long as the client likes.
pub(crate) fn nginx(root: &Path, processor: Option<usize>) -> Result<Option<Server>> {
    let Some(program) = processes::find("nginx") else { return Ok(None) };
    let home = tempfile::tempdir()?;
    let address = processes::free_address()?;
    let configuration = home.path().join("nginx.conf");
    let text = format!(
        "daemon off;\nmaster_process off;\npid {home}/pid;\nerror_log {home}/error.log;\nevents {{}}\nhttp {{\n  sendfile on;\n  \
         tcp_nopush on;\n  access_log {home}/access.log;\n  keepalive_requests 1000000000;\n  client_body_temp_path {home}/body;\n  \
         proxy_temp_path {home}/proxy;\n  fastcgi_temp_path {home}/fastcgi;\n  uwsgi_temp_path {home}/uwsgi;\n  \
         scgi_temp_path {home}/scgi;\n  server {{\n    listen {address};\n    root {root};\n  }}\n}}\n",
        home = home.path().display(),
        root = root.display(),
    );
    fs::write(&configuration, text)?;
    let arguments = ["-p", &home.path().display().to_string(), "-c", &configuration.display().to_string()]
        .map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    processes::foreign(&program, home, &arguments, address, processor).map(Some)
}
