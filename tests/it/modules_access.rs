//! Who is told what by the module registry protocol: every sort of token on every endpoint, for modules that have a repository and for
//! those that are only inside others. What a caller may not know is answered like what does not exist, to the byte, whatever is kept
//! of the answers that others were given.

use std::collections::BTreeMap;

use futures_util::stream::{self, StreamExt};
use ocimod::module::TofuAddress;
use ocimod::oci::Repository;
use ocimod::operations::OperationError;
use ocimod::operations::install::{Asked, Installer};
use ocimod::operations::routes::{RepositoryTemplate, Routes, Target};
use serde_json::{Value, json};

use crate::access::{Answer, Site, TOKENS, may, token};
use crate::archive_links::{archive, as_sent};
use crate::embedded::{fresh, push, push_holder};
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::kill;

/// A module, and which repositories its versions are in. Its own comes first: who may not read that one may not know of it.
struct Module {
    name: &'static str,
    /// Version and the repository that has it.
    versions: &'static [(&'static str, &'static str)],
}

/// What is there. All names below a namespace that are compared with each other are of one length.
const MODULES: &[Module] = &[
    Module {
        name: "acme/label/null",
        // The last is brought along by somebody who is believed, and may not be read by all who may read the first.
        versions: &[
            ("1.0.0", "acme/label/null"),
            ("1.1.0", "acme/stack/null"),
            ("2.0.0", "other/shelf/null"),
        ],
    },
    Module { name: "other/label/null", versions: &[("1.0.0", "other/label/null")] },
    // These are in other modules only.
    Module { name: "acme/inner/null", versions: &[("1.0.0", "acme/group/null")] },
    Module { name: "acme/outer/null", versions: &[("1.0.0", "other/stack/null")] },
    Module { name: "other/inner/null", versions: &[("1.0.0", "acme/crate/null")] },
    Module { name: "other/outer/null", versions: &[("1.0.0", "other/group/null")] },
];

/// The tokens of [`TOKENS`] that read in different ways.
const ASKING: [&str; 5] = ["read-all", "read-acme", "read-other", "only-push-acme", "expired"];

/// Names of nothing, one below each namespace.
const NOTHING: [&str; 2] = ["acme/never/null", "other/never/null"];

/// The same of names that nobody asked for before the registry went away: nothing is kept of them.
const NEVER_ASKED: [&str; 2] = ["acme/fresh/null", "other/fresh/null"];

/// Versions that are asked for: of a module's own, of one that only some may know of, and of nothing.
const VERSIONS: [&str; 3] = ["1.0.0", "2.0.0", "9.9.9"];

impl Module {
    /// The versions that a token may know of.
    fn visible(&self, token: &str) -> Vec<&'static str> {
        let is_visible = |(_, repository): &&(&str, &str)| may(token, "read", repository);
        if !may(token, "read", self.name) {
            return Vec::new();
        }
        self.versions.iter().filter(is_visible).map(|(version, _)| *version).collect()
    }
}

/// A store with all of them.
async fn stored() -> Ocimod {
    let ocimod = fresh().await;
    push(&ocimod, "acme/label/null", "1.0.0", "own", &[]);
    push(&ocimod, "other/label/null", "1.0.0", "own", &[]);
    for (holder, module, version) in [
        ("acme/stack/null", "acme/label/null", "1.1.0"),
        ("other/shelf/null", "acme/label/null", "2.0.0"),
        ("acme/group/null", "acme/inner/null", "1.0.0"),
        ("other/stack/null", "acme/outer/null", "1.0.0"),
        ("acme/crate/null", "other/inner/null", "1.0.0"),
        ("other/group/null", "other/outer/null", "1.0.0"),
    ] {
        push_holder(&ocimod, holder, &[(module, version)], &format!("in-{}", holder.replace('/', "-")));
    }
    ocimod
}

const TRUST: [&str; 4] = ["--trust-embedded", "other/*", "--cache-for", "0"];

/// A server over the store itself, which keeps answers as they were sent.
async fn over_a_folder() -> Site {
    let ocimod = stored().await;
    let store = format!("dir:{}", ocimod.folder("store").display());
    Site::over(ocimod, &store, &TRUST)
}

/// One over a registry that has the store, which keeps what the registry answers.
async fn over_a_registry() -> (Site, Serve) {
    let ocimod = stored().await;
    let registry = ocimod.serve(["--registry", &format!("dir:{}", ocimod.folder("store").display())]);
    let setting = format!("{}+insecure", registry.address);
    (Site::over(ocimod, &setting, &TRUST), registry)
}

/// Where the modules of a host are asked for that has none here.
const FOREIGN: &str = "/v1/hosts/example.com/modules";

/// What can be asked about a module: each path, and the version that it is about.
fn questions(module: &str) -> Vec<(String, Option<&'static str>)> {
    let mut questions = Vec::new();
    // Nothing is here of this host.
    questions.push((format!("{FOREIGN}/{module}/versions"), None));
    for base in ["/v1/modules", "/v1/hosts/modules.internal/modules"] {
        questions.push((format!("{base}/{module}/versions"), None));
        for version in VERSIONS {
            questions.push((format!("{base}/{module}/{version}/download"), Some(version)));
            questions.push((format!("{base}/{module}/{version}/archive.zip"), Some(version)));
        }
    }
    questions
}

/// How many requests are under way at once: one for what does not exist waits for a look through the registry, which they share.
const AT_ONCE: usize = 100;

/// Asks all of it.
async fn ask_all<T>(questions: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    stream::iter(questions).buffered(AT_ONCE).collect().await
}

/// An answer without what the caller wrote, and without the length of that.
fn comparable(answer: &Answer, module: &str) -> Answer {
    let mut body = answer.body.replace(module, "MODULE");
    for version in VERSIONS {
        body = body.replace(version, "VERSION");
    }
    let mut headers: BTreeMap<_, _> = answer.headers.clone();
    if headers.get("content-length").is_some_and(|length| *length == answer.body.len().to_string()) {
        headers.remove("content-length");
    }
    Answer { status: answer.status, headers, body }
}

/// Whoever may read everything asks everything, so that all of it is kept; answers what it was told.
async fn warm(site: &Site) -> BTreeMap<String, Answer> {
    let paths = MODULES.iter().flat_map(|module| questions(module.name)).map(|(path, _)| path);
    let mut told = BTreeMap::new();
    // Each is asked twice: the second answer is one that is kept.
    for _ in 0..2 {
        let answers = paths.clone().map(async |path| (site.get("admin", &path).await, path));
        told = ask_all(answers).await.into_iter().map(|(answer, path)| (path, answer)).collect();
    }
    for module in MODULES {
        let versions = &told[&format!("/v1/modules/{}/versions", module.name)];
        assert_eq!(versions.status, 200, "{}: {versions:?}", module.name);
        assert_eq!(listed(versions), module.visible("admin"), "{}", module.name);
    }
    told
}

fn listed(answer: &Answer) -> Vec<String> {
    let body = answer.json();
    let versions = body["modules"][0]["versions"].as_array().expect("a list").clone();
    versions.iter().map(|version| version["version"].as_str().expect("a version").to_owned()).collect()
}

/// One request of one token.
struct Request<'a> {
    token: &'static str,
    method: &'static str,
    module: &'a Module,
    path: String,
    version: Option<&'static str>,
    /// `If-None-Match`
    known: Option<String>,
}

/// Every request of a token, with each condition that could tell something of what is kept.
fn requests<'a>(token: &'static str, told: &BTreeMap<String, Answer>) -> Vec<Request<'a>> {
    let mut requests = Vec::new();
    for module in MODULES {
        for (path, version) in questions(module.name) {
            let etag = told[&path].header("etag").to_owned();
            let etag = (!etag.is_empty()).then_some(etag);
            let conditions =
                [("HEAD", None), ("GET", Some("*".to_owned())), ("GET", etag.clone()), ("HEAD", etag)];
            // Only lists have something that a condition could tell.
            let conditions = conditions.into_iter().filter(|_| version.is_none());
            for (method, known) in std::iter::once(("GET", None)).chain(conditions) {
                requests.push(Request { token, method, module, path: path.clone(), version, known });
            }
        }
    }
    requests
}

async fn is_told_their_own(site: &Site, request: Request<'_>) {
    let Request { token: name, method, module, path, version, known } = request;
    let authorization = format!("Bearer {}", token(name));
    let mut headers = vec![("authorization", &*authorization)];
    headers.extend(known.as_deref().map(|known| ("if-none-match", known)));
    let answer = site.send(method, &path, &headers, "").await;
    let what = format!("{name} {method} {path} {known:?}: {answer:?}");
    if name == "expired" {
        assert_eq!(answer.status, 401, "{what}");
        return;
    }
    let visible = module.visible(name);
    let is_visible = version.map_or(!visible.is_empty(), |version| visible.contains(&version));
    if is_visible && !path.starts_with(FOREIGN) {
        assert!([200, 304].contains(&answer.status), "{what}");
        if version.is_none() && answer.status == 200 && method == "GET" {
            assert_eq!(listed(&answer), visible, "{what}");
        }
        return;
    }
    assert_eq!(answer.status, 404, "{what}");
    for nothing in NOTHING {
        // They are of the same length only below the same namespace.
        let is_beside = nothing.split('/').next() == module.name.split('/').next();
        if is_beside || method == "GET" {
            let of_nothing = site.send(method, &path.replace(module.name, nothing), &headers, "").await;
            assert_eq!(comparable(&answer, module.name), comparable(&of_nothing, nothing), "{what}");
        }
    }
}

/// Asserts that everybody is told what they may know and nothing else.
async fn everybody_is_told_their_own(site: &Site, told: &BTreeMap<String, Answer>) {
    for (name, ..) in TOKENS.iter().filter(|(name, ..)| ASKING.contains(name)) {
        ask_all(requests(name, told).into_iter().map(|request| is_told_their_own(site, request))).await;
    }
    for name in ["nobody", "wrong"] {
        let names = MODULES.iter().map(|module| module.name).chain(NOTHING);
        let paths =
            names.flat_map(questions).map(|(path, _)| path).filter(|path| !path.ends_with("archive.zip"));
        let seen = ask_all(paths.map(async |path| site.get(name, &path).await)).await;
        assert_eq!(seen[0].status, 401);
        assert!(seen.iter().all(|answer| *answer == seen[0]), "{name}: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_folder_everybody_is_told_what_they_may_know() {
    let site = over_a_folder().await;
    let told = warm(&site).await;
    everybody_is_told_their_own(&site, &told).await;
    // What less was told to others is not what is kept for all.
    warm(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_registry_everybody_is_told_what_they_may_know_also_when_it_is_away() {
    let (site, registry) = over_a_registry().await;
    let told = warm(&site).await;
    everybody_is_told_their_own(&site, &told).await;

    drop(registry);
    for name in ["read-acme", "read-other", "only-push-acme"] {
        for module in MODULES.iter().filter(|module| module.visible(name).is_empty()) {
            // That something is kept of the one and nothing of the other is not told either.
            for nothing in NEVER_ASKED.iter().filter(|nothing| !may(name, "read", nothing)) {
                if may(name, "read", module.name) {
                    continue;
                }
                for ((path, _), (of_nothing, _)) in questions(module.name).iter().zip(questions(nothing)) {
                    let (answer, of_nothing) =
                        (site.get(name, path).await, site.get(name, &of_nothing).await);
                    let answer = comparable(&answer, module.name);
                    assert_eq!(answer, comparable(&of_nothing, nothing), "{name} {path}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_s_request_for_a_zip_without_a_link_is_one_for_nothing() {
    let site = over_a_folder().await;
    warm(&site).await;
    let mut seen = Vec::new();
    for module in MODULES.iter().map(|module| module.name).chain(NOTHING) {
        for version in VERSIONS {
            let path = format!("/v1/modules/{module}/{version}/archive.zip");
            seen.push(comparable(&site.get("nobody", &path).await, module));
            assert_eq!(site.get("wrong", &path).await.status, 401);
        }
    }
    assert_eq!(seen[0].status, 404, "{seen:?}");
    assert!(seen.iter().all(|answer| *answer == seen[0]), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_its_zip_for_whoever_was_handed_it_and_nothing_else() {
    let mut site = over_a_folder().await;
    for (module, version) in
        [("other/label/null", "1.0.0"), ("acme/outer/null", "1.0.0"), ("acme/label/null", "2.0.0")]
    {
        let base = format!("/v1/modules/{module}/{version}");
        let download = site.get("read-all", &format!("{base}/download")).await;
        let pairs = as_sent(download.header("x-terraform-get"));
        let link = archive(&base, &pairs);
        let zip = site.get("read-all", &link).await;
        assert_eq!(zip.status, 200);
        for name in ["nobody", "read-acme", "read-other", "only-push-acme"] {
            assert_eq!(site.get(name, &link).await, zip, "{name} {module}");
        }
        // What is no token of this server is not taken for nobody.
        for name in ["wrong", "expired"] {
            assert_eq!(site.get(name, &link).await.status, 401, "{name} {module}");
        }
        // It opens nothing where it was not made for, whether that is there or not.
        let elsewhere = ["acme/inner/null", "other/inner/null", NOTHING[0], NOTHING[1]];
        let mut refused = Vec::new();
        for other in elsewhere {
            let path = archive(&format!("/v1/modules/{other}/1.0.0"), &pairs);
            refused.push(comparable(&site.get("nobody", &path).await, other));
        }
        assert_eq!(refused[0].status, 403);
        assert!(refused.iter().all(|answer| *answer == refused[0]), "{refused:?}");
    }
    kill(site.serve.server.pid(), "TERM");
    assert_eq!(site.serve.server.wait(), Some(0));
    let log = site.serve.server.log();
    assert!(!log.contains("secret-token-of-"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_everything_are_for_whoever_may_read_everything() {
    let site = over_a_folder().await;
    warm(&site).await;
    for (name, ..) in TOKENS.iter().filter(|(name, ..)| *name != "expired") {
        let (metrics, nothing) = (site.get(name, "/metrics").await, site.get(name, "/nothing").await);
        if may(name, "read", "any/thing") {
            assert_eq!(metrics.status, 200, "{name}");
        } else {
            assert_eq!(metrics, nothing, "{name}");
        }
        let catalog = site.get(name, "/v2/_catalog").await.json();
        let repositories: Vec<Value> = catalog["repositories"].as_array().expect("a list").clone();
        let is_readable = |repository: &Value| may(name, "read", repository.as_str().expect("a name"));
        assert!(repositories.iter().all(is_readable), "{name}: {repositories:?}");
        assert_eq!(repositories.contains(&json!("other/label/null")), may(name, "read", "other/label/null"));
    }
    // The pages that anybody may see name nothing.
    for path in ["/", "/readyz", "/healthz", "/.well-known/terraform.json"] {
        let page = site.get("nobody", path).await;
        assert!(page.status == 200 && !page.body.contains("label"), "{path}: {page:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_for_who_may_read_the_repository_that_has_it() {
    // A module has two places, and a caller may read the one and not the other.
    let (_folder, store) = crate::conformance::directory();
    let (first, second): (Repository, Repository) =
        ("acme/label/null".parse().unwrap(), "modules.internal/acme/label/null".parse().unwrap());
    crate::hostile::Module::good().await.store(&*store, &second).await;
    let target = Target {
        registry: store,
        prefix: String::new(),
        name: "registry.example".into(),
        identity: "registry.example".into(),
        is_local: true,
    };
    let routes = Routes::new(vec![(None, Some(target))], RepositoryTemplate::default());
    let installer = Installer::without_search(routes, None);
    let asked = Asked::Tofu { address: TofuAddress::parse("acme/label/null").unwrap(), host: None };
    let version = "1.0.0".parse().unwrap();
    assert_eq!(installer.version(&asked, &version, &|_| true).await.unwrap().place.repository, second);
    let error = installer.version(&asked, &version, &|place| place.repository == first).await.unwrap_err();
    assert!(
        matches!(error, OperationError::NoModule { .. } | OperationError::NotSearchedYet { .. }),
        "{error}"
    );
}
