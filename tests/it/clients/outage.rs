//! What clients see of a registry that is away, slow or busy, of a hundred others who come at the same time, and of replicas.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use ocimod::server::{self, Archives};
use serde_json::{Value, json};

use super::self_contained::{copy, hears, publish};
use crate::archive_links::{Served, archive, as_sent, opened, stored};
use crate::failing_registry::{Call, FailingRegistry, Failure, When};
use crate::metrics::metrics_with;
use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::Root;
use crate::support::ocimod::Ocimod;
use crate::support::process::run;

/// How much later a slow registry answers.
const LATE: Duration = Duration::from_millis(200);

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    cache: String,
    link: String,
    body: Bytes,
}

async fn get(address: &str, path: &str) -> Answer {
    ocimod::registry::remote::install_crypto_provider();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    let request = client.expect("a client").get(format!("http://{address}{path}"));
    let response = request.send().await.expect("the server answers");
    let header = |name: &str| {
        let value = response.headers().get(name);
        value.map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default()
    };
    let (status, cache, link) =
        (response.status().as_u16(), header("cache-status"), header("x-terraform-get"));
    Answer { status, cache, link, body: response.bytes().await.expect("a body") }
}

fn is_stale(answer: &Answer) -> bool {
    let age =
        answer.cache.strip_prefix("ocimod; hit; ttl=-").and_then(|rest| rest.strip_suffix("; detail=stale"));
    age.is_some_and(|age| age.parse::<u32>().is_ok())
}

/// Runs what blocks beside what is served by this process.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_registry_stopped_what_was_installed_is_installed_again() {
    let (Some(crane), Some(source), Some(target)) =
        (clients::find("crane"), DockerRegistry::start(), DockerRegistry::start())
    else {
        return;
    };
    let ocimod = Arc::new(Ocimod::new());
    publish(&ocimod, &source.address);
    copy(&crane, ocimod.home.path(), &source.address, &target.address, "acme/stack/null:v1.0.0");
    let registry = format!("{}+insecure", target.address);
    // Lists are asked for each time, so each answer after the end of the registry is one of a copy.
    let serve = ocimod.serve(["--registry", &registry, "--cache-for", "0", "--cache-dir", "cache"]);
    let address = serve.address.clone();
    // `group` and `label` have no repository: they are in the one of `stack`.
    let install = |name: &'static str| {
        let (ocimod, address) = (Arc::clone(&ocimod), address.clone());
        beside(move || {
            for tofu in clients::tofus() {
                let calls = [("stack", "~> 1.0"), ("label", "1.0.0")];
                let heard = hears(&ocimod, &address, &tofu, name, &calls);
                let stack = json!(["stack1.0.0", "group1.0.0", "label1.0.0", "label1.0.0"]);
                assert_eq!(heard, json!([stack, ["label1.0.0"]]), "{name}");
            }
        })
    };
    install("warm").await;
    let ask = async || {
        let mut answers = Vec::new();
        for module in ["stack", "group", "label"] {
            let module = format!("/v1/modules/acme/{module}/null");
            let versions = get(&address, &format!("{module}/versions")).await;
            let module = format!("{module}/1.0.0");
            let download = get(&address, &format!("{module}/download")).await;
            let zip = get(&address, &archive(&module, &as_sent(&download.link))).await;
            let by_name = get(&address, &format!("{module}/archive.zip")).await;
            answers.push([versions, download, zip, by_name]);
        }
        answers
    };
    let before = ask().await;
    assert!(
        before.iter().flatten().all(|answer| answer.status == 200 && answer.cache.is_empty()),
        "{before:?}"
    );
    assert_eq!(get(&address, "/readyz").await.body, "ready\n");

    drop(target);
    install("stopped").await;
    let after = ask().await;
    for (before, after) in before.iter().zip(&after) {
        let [versions, download, zip, by_name] = after;
        assert!(after.iter().all(|answer| answer.status == 200), "{after:?}");
        assert!(is_stale(versions) && is_stale(download), "{versions:?} {download:?}");
        assert_eq!(versions.body, before[0].body);
        assert_eq!((&zip.body, &by_name.body), (&before[2].body, &before[3].body));
    }
    let stale = |kind: &str| format!("ocimod_cache_lookups_total{{kind=\"{kind}\",result=\"stale\"}} ");
    let metrics = metrics_with(&address, &[stale("listing"), stale("tag")]).await;
    for kind in ["listing", "tag"] {
        let counted = metrics.split(&stale(kind)).nth(1).and_then(|rest| rest.split('\n').next());
        assert!(
            counted.is_some_and(|number| number.parse::<u64>().is_ok_and(|number| number > 0)),
            "{metrics}"
        );
    }
    // What the probe heard holds for a moment, and the server stays in the balancer.
    for _ in 0..500 {
        if get(&address, "/readyz").await.body == "degraded\n" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ready = get(&address, "/readyz").await;
    assert_eq!((ready.status, &*ready.body), (200, &b"degraded\n"[..]));

    // Nobody can know now that there is none: it may have been pushed the moment before.
    for unknown in [
        "never/versions",
        "never/1.0.0/download",
        "never/1.0.0/archive.zip",
        "stack/9.9.9/download",
        "label/9.9.9/download",
    ] {
        let (name, rest) = unknown.split_once('/').expect("a path");
        let answer = get(&address, &format!("/v1/modules/acme/{name}/null/{rest}")).await;
        assert!(answer.status >= 500, "{unknown}: {answer:?}");
    }
}

/// A registry that answers late, and refuses every second request for a thing: the client is to come again.
async fn late_and_busy(ocimod: &Ocimod) -> (String, Arc<AtomicUsize>) {
    let app = Served::app(opened(ocimod).await, Archives::default());
    let (asked, refusals) =
        (Arc::new(Mutex::new(HashMap::<String, usize>::new())), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&refusals);
    let busy = from_fn(move |request: Request, next: Next| {
        let (asked, refusals) = (Arc::clone(&asked), Arc::clone(&counted));
        async move {
            tokio::time::sleep(LATE).await;
            let is_refused = {
                let mut asked = asked.lock().unwrap();
                let times = asked.entry(format!("{} {}", request.method(), request.uri())).or_default();
                *times += 1;
                *times % 2 == 1
            };
            if !is_refused {
                return next.run(request).await;
            }
            let before = refusals.fetch_add(1, Ordering::Relaxed);
            let wait = if before.is_multiple_of(4) { "1" } else { "0" };
            (axum::http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", wait)]).into_response()
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let router = server::router(app).layer(busy);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, refusals)
}

const STACK: &str = "module \"it\" {\n  source = \"modules.internal/acme/stack/null\"\n  version = \"~> 1.0\"\n  namespace = \"acme\"\n  \
                     stage = \"test\"\n  name = \"shop\"\n  components = [\"api\"]\n}\n\noutput \"it\" {\n  value = module.it.ids\n}\n";

#[tokio::test(flavor = "multi_thread")]
async fn from_a_registry_that_is_slow_and_refuses_every_second_request_clients_install() {
    let ocimod = Arc::new(Ocimod::new());
    stored(&ocimod);
    for (number, tofu) in clients::tofus().into_iter().enumerate() {
        let (address, refusals) = late_and_busy(&ocimod).await;
        let ocimod = Arc::clone(&ocimod);
        beside(move || {
            // Each client comes to a server that knows nothing yet.
            let cache = ocimod.folder(&format!("cache-{number}")).display().to_string();
            let setting = format!("{address}+insecure");
            let serve = ocimod.serve(["--registry", &setting, "--cache-dir", &cache, "--cache-for", "0"]);
            for again in ["first", "second"] {
                let folder = ocimod.folder(&format!("{number}-{again}"));
                let root = Root::new(&tofu, &folder, "modules.internal", &serve.address, STACK);
                assert_eq!(root.apply("it"), json!({"api": "acme-test-shop-api"}), "{again}");
            }
        })
        .await;
        assert!(refusals.load(Ordering::Relaxed) >= 4, "{refusals:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_callers_on_a_module_that_nobody_asked_for_yet_cause_one_listing() {
    let ocimod = Ocimod::new();
    stored(&ocimod);
    let registry = FailingRegistry::new(opened(&ocimod).await);
    // Long enough for all of them to be there before the answer is.
    registry.fail("tags", When::Always, Failure::Delay(Duration::from_secs(1)));
    let upstream = Served::start(registry.clone(), Archives::default());
    let setting = format!("{}+insecure", upstream.address);
    // Without a search, nothing of it is known before the first of them asks.
    let serve = ocimod.serve(["--registry", &setting, "--catalog", "none", "--cache-for", "10m"]);
    let path = "/v1/modules/acme/label/null/versions";
    registry.take_calls();
    let answers = join_all((0..100).map(|_| get(&serve.address, path))).await;
    let versions = json!([{"version": "1.0.0"}, {"version": "1.1.0"}]);
    for answer in &answers {
        assert_eq!(answer.status, 200, "{answer:?}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["modules"][0]["versions"], versions);
    }
    let calls = registry.take_calls();
    // Each repository that the module may be in is listed once, and each manifest read once. What a tag points at is asked anew by
    // whoever comes after the answer to the one before.
    let mut once: Vec<_> = calls.iter().filter(|call| call.operation != "manifest_head").collect();
    let all = once.len();
    once.sort_by_key(|call| (call.operation, &call.repository, &call.arguments));
    once.dedup();
    assert_eq!(once.len(), all, "{calls:?}");
    let listed = |call: &&Call| call.operation == "tags" && call.repository == "acme/label/null";
    assert_eq!(calls.iter().filter(listed).count(), 1, "{calls:?}");
}

/// Hands each request to the next of the servers; answers its address.
async fn balancer(servers: Vec<String>) -> String {
    ocimod::registry::remote::install_crypto_provider();
    let client =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let turn = Arc::new(AtomicUsize::new(0));
    let routes = axum::Router::new().fallback(move |request: Request| {
        let server = servers[turn.fetch_add(1, Ordering::Relaxed) % servers.len()].clone();
        let client = client.clone();
        async move {
            let (parts, body) = request.into_parts();
            let url = format!("http://{server}{}", parts.uri.path_and_query().expect("a path"));
            let body = to_bytes(body, 1 << 20).await.expect("a small body");
            let asked = client.request(parts.method, url).headers(parts.headers).body(body);
            let answer = asked.header("x-forwarded-proto", "http").send().await.expect("the server answers");
            let (status, headers) = (answer.status(), answer.headers().clone());
            let mut response = Response::new(Body::from(answer.bytes().await.expect("a body")));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            response
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_answer_for_each_other() {
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Arc::new(Ocimod::new());
    publish(&ocimod, &registry.address);
    let token = ["token", "new", "team", "--allow", "read", "--access", "access.toml"];
    let token = ocimod.run(token).success().stdout.trim_end().to_owned();
    std::fs::write(ocimod.home.path().join("keys"), "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
        .unwrap();
    let setting = format!("{}+insecure", registry.address);
    let shared = ["--link-key", "keys", "--access", "access.toml", "--cache-dir", "cache"];
    let replica = || ocimod.serve([&["--registry", &setting], &shared[..]].concat());
    let replicas = [replica(), replica()];

    // A link that one gives opens the zip at the other, and nobody needs a token there.
    for (one, other) in [(0, 1), (1, 0)] {
        let module = "/v1/modules/acme/stack/null/1.0.0";
        let asked = reqwest::Client::new().get(format!("http://{}{module}/download", replicas[one].address));
        let answer = asked.bearer_auth(&token).send().await.unwrap();
        let location = answer.json::<Value>().await.unwrap()["location"].as_str().expect("a link").to_owned();
        let link = archive(module, &as_sent(&location));
        let zips = [get(&replicas[one].address, &link).await, get(&replicas[other].address, &link).await];
        assert_eq!((zips[0].status, zips[1].status), (200, 200));
        assert_eq!(zips[0].body, zips[1].body);
        let unnamed = get(&replicas[other].address, &format!("{module}/archive.zip")).await;
        assert_eq!(unnamed.status, 404, "without the link it is not there for a stranger");
    }

    let between = balancer(replicas.iter().map(|replica| replica.address.clone()).collect()).await;
    beside(move || {
        for tofu in clients::tofus() {
            let client = tofu.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let main = "module \"it\" {\n  source = \"modules.internal/acme/stack/null\"\n  version = \"~> 1.0\"\n}\n";
            let root = Root::new(&tofu, &ocimod.folder(&client), "modules.internal", &between, main);
            let init = |token: &str| {
                let mut command = root.command();
                command.env("TF_TOKEN_modules_internal", token).args(["init", "-no-color", "-input=false"]);
                run(&mut command)
            };
            init("wrong").fails_with(1);
            init(&token).success();
            assert!(root.folder.join(".terraform/modules/modules.json").is_file(), "{client}");
        }
        drop(replicas);
    })
    .await;
}
