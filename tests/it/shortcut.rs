//! Answers that somebody else was given a moment ago: who may have them too, how soon a change is seen, and that nothing is left out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::access::{Site, token};
use crate::embedded::{fresh, push};
use crate::support::modules::example;

const MODULE: &str = "acme/label/null";
const PATH: &str = "/v1/modules/acme/label/null/versions";

/// Many who ask for the same all the time, so that whoever else asks comes a moment after one of them.
struct Crowd {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Crowd {
    async fn of(address: &str, bearer: Option<String>) -> Self {
        ocimod::registry::remote::install_crypto_provider();
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            let (url, bearer) = (format!("http://{address}{PATH}"), bearer.clone());
            tasks.spawn(async move {
                let client = reqwest::Client::builder().build().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let request = client.get(&url);
                    let request = match &bearer {
                        Some(bearer) => request.bearer_auth(bearer),
                        None => request,
                    };
                    let answer = request.send().await.unwrap();
                    assert_eq!(answer.status(), 200);
                    answer.bytes().await.unwrap();
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let crowd = Self { stop, answered, tasks };
        crowd.goes_on().await;
        crowd
    }

    /// Waits until it has asked some more.
    async fn goes_on(&self) {
        let until = self.answered.load(Ordering::Relaxed) + 40;
        while self.answered.load(Ordering::Relaxed) < until {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// How many were answered.
    async fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.answered.load(Ordering::Relaxed)
    }
}

fn versions(answer: &Value) -> BTreeSet<&str> {
    let listed = answer["modules"][0]["versions"].as_array().unwrap();
    listed.iter().map(|version| version["version"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_through_the_server_is_seen_by_the_next_who_asks() {
    let ocimod = fresh().await;
    push(&ocimod, MODULE, "1.0.0", "own", &[]);
    let serve = ocimod.serve(["--registry", &format!("dir:{}", ocimod.folder("store").display())]);
    let crowd = Crowd::of(&serve.address, None).await;
    let registry = format!("{}+insecure", serve.address);
    for patch in 1..8 {
        let version = format!("1.0.{patch}");
        ocimod.push(&registry, &example("terraform-null-label"), &format!("{MODULE}@{version}"), &[]);
        let answer = reqwest::get(format!("http://{}{PATH}", serve.address)).await.unwrap();
        assert!(versions(&answer.json().await.unwrap()).contains(version.as_str()), "{version}");
        ocimod.run(["yank", "--registry", &registry, &format!("{MODULE}@{version}")]).success();
        let answer = reqwest::get(format!("http://{}{PATH}", serve.address)).await.unwrap();
        assert!(!versions(&answer.json().await.unwrap()).contains(version.as_str()), "{version} is yanked");
    }
    crowd.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_have_an_answer_is_not_given_that_of_others() {
    let ocimod = fresh().await;
    push(&ocimod, MODULE, "1.0.0", "own", &[]);
    let store = format!("dir:{}", ocimod.folder("store").display());
    let mut site = Site::over(ocimod, &store, &[]);
    let crowd = Crowd::of(&site.serve.address, Some(token("read-acme"))).await;
    let with = |name: &str| format!("Bearer {}", token(name));
    for round in 0..20 {
        for (authorization, status) in [
            (with("read-all"), 200),
            (with("read-other"), 404),
            (with("only-push-acme"), 404),
            (with("expired"), 401),
            (with("nobody"), 401),
            (with("read-acme").replace("Bearer", "Basic"), 401),
        ] {
            let answer = site.send("GET", PATH, &[("authorization", &authorization)], "").await;
            assert_eq!(answer.status, status, "{authorization} in round {round}");
            assert_eq!(answer.body.contains("1.0.0"), status == 200, "{authorization}: {}", answer.body);
        }
        assert_eq!(site.send("GET", PATH, &[], "").await.status, 401);
        let read = with("read-acme");
        let twice = [("authorization", read.as_str()), ("authorization", read.as_str())];
        assert_eq!(site.send("GET", PATH, &twice, "").await.status, 401);
    }
    let log = site.serve.server.log();
    crowd.end().await;
    assert!(!log.contains("secret-token"), "no token is in the log");
    assert!(log.contains("token=\"read-acme\""), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_host_is_not_given_that_of_others() {
    let ocimod = fresh().await;
    push(&ocimod, MODULE, "1.0.0", "own", &[]);
    let serve = ocimod.serve(["--registry", &format!("dir:{}", ocimod.folder("store").display())]);
    let crowd = Crowd::of(&serve.address, None).await;
    let client = reqwest::Client::new();
    for _ in 0..20 {
        for (name, value) in [("host", "evil.example"), ("x-forwarded-for", "192.0.2.1")] {
            let request = client.get(format!("http://{}{PATH}", serve.address)).header(name, value);
            let answer = request.send().await.unwrap();
            assert!(answer.status().is_client_error(), "{name}: {}", answer.status());
            assert!(!answer.text().await.unwrap().contains("1.0.0"));
        }
    }
    crowd.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_the_same_whichever_way_it_came() {
    let ocimod = fresh().await;
    push(&ocimod, MODULE, "1.0.0", "own", &[]);
    let store = format!("dir:{}", ocimod.folder("store").display());
    let mut site = Site::over(ocimod, &store, &["--log-format", "json"]);
    let bearer = format!("Bearer {}", token("read-all"));
    let ask = [("authorization", bearer.as_str())];
    let first = site.send("GET", PATH, &ask, "").await;
    assert_eq!(first.status, 200);
    let etag = first.header("etag").to_owned();
    let known = [ask[0], ("if-none-match", etag.as_str())];
    let first_known = site.send("GET", PATH, &known, "").await;
    assert_eq!((first_known.status, first_known.body.as_str()), (304, ""));
    let mut asked = (1, 1);
    let crowd = Crowd::of(&site.serve.address, Some(token("read-all"))).await;
    for _ in 0..20 {
        assert_eq!(site.send("GET", PATH, &ask, "").await, first);
        assert_eq!(site.send("GET", PATH, &known, "").await, first_known);
        asked = (asked.0 + 1, asked.1 + 1);
        // What is no plain question goes the long way.
        assert_eq!(site.send("HEAD", PATH, &ask, "").await.body, "");
        assert_eq!(site.send("POST", PATH, &ask, "").await.status, 405);
    }
    asked.0 += crowd.end().await;
    // Every one of them is counted, and has its line.
    let route = "route=\"/v1/modules/{namespace}/{name}/{system}/versions\",method=\"GET\"";
    let bytes = asked.0 * first.body.len();
    let lines = [
        format!("ocimod_http_requests_total{{{route},status=\"200\"}} {}\n", asked.0),
        format!("ocimod_http_requests_total{{{route},status=\"304\"}} {}\n", asked.1),
    ];
    let metrics = site.send("GET", "/metrics", &ask, "").await.body;
    for line in &lines {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    let sent = metrics.lines().find_map(|line| {
        line.strip_prefix("ocimod_http_response_body_bytes_total{route=\"/v1/modules/{namespace}/{name}/{system}/versions\"} ")
    });
    // The answers to POST are of that route too.
    assert!(sent.unwrap().parse::<usize>().unwrap() >= bytes, "{sent:?} of {bytes}");
    let logged = |log: &str, status: u64| {
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_one = |line: &Value| {
            line["fields"]["method"] == "GET"
                && line["fields"]["route"].as_str().is_some_and(|route| route.ends_with("/versions"))
                && line["fields"]["status"] == status
                && line["span"]["token"] == "read-all"
                && line["span"]["id"].as_str().is_some_and(|id| id.len() == 16)
        };
        lines.filter(is_one).count()
    };
    // Lines are gathered before they are written.
    for _ in 0..100 {
        if logged(&site.serve.server.log(), 200) == asked.0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let log = site.serve.server.log();
    assert_eq!((logged(&log, 200), logged(&log, 304)), asked);
}
