//! CUE modules of a registry that lies about them: a module file beside the zip that is not the one in it, a zip of another module in a
//! dependency's place, bytes that are not those of their digest. Each is refused by name on every way in: where it would be embedded by a
//! push, where its version is there already, in a pull, in the view for `cue`, and on the way into the cache of `cue`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ocimod::oci::Digest;
use ocimod::registry::Registry;
use serde_json::{Value, json};

use super::server::{Hostile, Request, Step, answer};
use crate::support::cue::module;
use crate::support::modules::write;
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{Answer, run};

const LEAF: &str = "acme.example/leaf";
const OTHER: &str = "acme.example/other";
const TOP: &str = "acme.example/top";

/// What a registry has, all of it as version 1.0.0.
#[derive(Clone)]
struct Stock {
    manifests: BTreeMap<String, Value>,
    blobs: BTreeMap<String, Vec<u8>>,
}

/// Where the modules of the tests are before anybody lies about them.
struct Folders {
    ocimod: Ocimod,
    top: PathBuf,
}

impl Stock {
    /// `leaf` and `other`, which need nothing, and `top`, which has `leaf` inside.
    async fn good() -> (Folders, Self) {
        let (folder, store) = crate::conformance::directory();
        let ocimod = Ocimod::new();
        let registry = format!("dir:{}", folder.path().display());
        let mut stock = Self { manifests: BTreeMap::new(), blobs: BTreeMap::new() };
        let importing = "package top\n\nimport \"acme.example/leaf@v1\"\n\nx: leaf.x\n";
        let deps = [("acme.example/leaf@v1", "v1.0.0")];
        for (name, deps, text) in [
            (LEAF, &[][..], "package leaf\n\nx: 1\n"),
            (OTHER, &[], "package other\n\nx: 1\n"),
            (TOP, &deps, importing),
        ] {
            let folder = ocimod.folder(name);
            module(&folder, &format!("{name}@v1"), deps, &[("a.cue", text)]);
            ocimod.push(&registry, &folder, &format!("{name}@v1.0.0"), &[]);
            let repository = name.parse().unwrap();
            let stored = store.manifest(&repository, &super::tag("v1.0.0")).await.unwrap();
            let manifest: Value = serde_json::from_slice(&stored.bytes).unwrap();
            for descriptor in manifest["layers"].as_array().unwrap().iter().chain([&manifest["config"]]) {
                let digest: Digest = descriptor["digest"].as_str().unwrap().parse().unwrap();
                let bytes =
                    (&*store as &dyn Registry).small_blob(&repository, &digest, 1 << 20).await.unwrap();
                stock.blobs.insert(digest.to_string(), bytes.to_vec());
            }
            stock.manifests.insert(name.to_owned(), manifest);
        }
        let top = ocimod.folder(TOP);
        (Folders { ocimod, top }, stock)
    }

    fn layer(&self, name: &str, number: usize) -> Value {
        self.manifests[name]["layers"][number].clone()
    }

    fn layer_mut(&mut self, name: &str, number: usize) -> &mut Value {
        &mut self.manifests.get_mut(name).unwrap()["layers"][number]
    }

    /// The module file beside the zip is another one than that in it.
    fn with_another_module_file(mut self, name: &str) -> Self {
        let lie = format!("module: \"{name}@v1\"\nlanguage: version: \"v0.9.1\"\nsource: kind: \"self\"\n");
        let digest = Digest::of(lie.as_bytes()).to_string();
        *self.layer_mut(name, 1) =
            json!({"mediaType": "application/vnd.cue.modulefile.v1", "digest": digest, "size": lie.len()});
        self.blobs.insert(digest, lie.into_bytes());
        self
    }

    /// The zip of `other` stands for `leaf`: inside of `top`, and in the repository of `leaf`.
    fn with_another_module(mut self) -> Self {
        let zip = self.layer(OTHER, 0);
        for field in ["digest", "size"] {
            self.layer_mut(TOP, 2)[field] = zip[field].clone();
        }
        let other = self.manifests[OTHER].clone();
        self.manifests.insert(LEAF.to_owned(), other);
        self
    }

    /// A byte of what is packed is another one; the zip's directory is as it was.
    fn with_another_byte(mut self, name: &str) -> (Self, String) {
        let digest = self.layer(name, 0)["digest"].as_str().unwrap().to_owned();
        let zip = self.blobs.get_mut(&digest).unwrap();
        // Behind the head of the first entry, and its name.
        zip[30 + "a.cue".len() + 3] ^= 1;
        (self, digest)
    }

    async fn serve(self) -> Hostile {
        Hostile::start(move |request| self.answer(request)).await
    }

    fn answer(&self, request: &Request) -> Vec<Step> {
        let path = request.path().split('?').next().unwrap_or_default();
        let is_head = request.method() == "HEAD";
        let send = |kind: &str, body: &[u8]| {
            let length = body.len().to_string();
            let headers = [("content-type", kind), ("content-length", length.as_str())];
            answer(200, &headers, if is_head { b"" } else { body })
        };
        if path == "/v2/_catalog" {
            let names: Vec<_> = self.manifests.keys().collect();
            return send("application/json", json!({ "repositories": names }).to_string().as_bytes());
        }
        let found = self.manifests.iter().find_map(|(name, manifest)| {
            let rest = path.strip_prefix("/v2/")?.strip_prefix(name.as_str())?.strip_prefix('/')?;
            Some((name, manifest.to_string(), rest.split_once('/')?))
        });
        match found {
            Some((name, _, ("tags", "list"))) => {
                send("application/json", json!({"name": name, "tags": ["v1.0.0"]}).to_string().as_bytes())
            }
            Some((_, manifest, ("manifests", reference)))
                if reference == "v1.0.0" || reference == Digest::of(manifest.as_bytes()).as_str() =>
            {
                send("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes())
            }
            Some((_, _, ("blobs", digest))) if self.blobs.contains_key(digest) => {
                send("application/octet-stream", &self.blobs[digest])
            }
            _ => answer(404, &[], b""),
        }
    }
}

/// How a registry lies.
#[derive(Clone, Copy)]
enum Lie {
    ModuleFile,
    Path,
    Byte,
}

impl Lie {
    /// A registry that lies about `name` in this way, and the words that tell of it.
    async fn told(self, stock: Stock, name: &str) -> (Hostile, Vec<String>) {
        match self {
            Self::ModuleFile => {
                let words = ["is not the one that its manifest names", name].map(str::to_owned);
                (stock.with_another_module_file(name).serve().await, words.into())
            }
            Self::Path => {
                let words = [LEAF, "says that it is `acme.example/other@v1`"].map(str::to_owned);
                (stock.with_another_module().serve().await, words.into())
            }
            Self::Byte => {
                let (stock, digest) = stock.with_another_byte(name);
                (stock.serve().await, vec![name.to_owned(), digest])
            }
        }
    }
}

#[track_caller]
fn is_refused(answer: &Answer, words: &[String]) {
    assert!(matches!(answer.status, Some(status) if status != 0), "{}", answer.all());
    for word in words {
        assert!(answer.stderr.contains(word.as_str()), "{word}: {}", answer.all());
    }
}

/// A new module that needs `leaf`, about which the registry lies.
async fn push(lie: Lie) {
    let (Folders { ocimod, .. }, stock) = Stock::good().await;
    let (server, words) = lie.told(stock, LEAF).await;
    let user = ocimod.folder("user");
    let text = "package user\n\nimport \"acme.example/leaf@v1\"\n\nx: leaf.x\n";
    module(&user, "acme.example/user@v1", &[("acme.example/leaf@v1", "v1.0.0")], &[("a.cue", text)]);
    let mut command = ocimod.command();
    command
        .args(["push", "--registry", &server.address.to_string()])
        .arg(&user)
        .arg("acme.example/user@v1.0.0");
    is_refused(&run(&mut command), &words);
    let written =
        server.requests().into_iter().filter(|request| !["GET", "HEAD"].contains(&request.method()));
    assert_eq!(written.map(|request| request.line).collect::<Vec<_>>(), Vec::<String>::new());
}

/// `top` once more, about which the registry lies: it is not taken for the same. Whoever has the very zip that was there may mend it.
async fn push_again(lie: Lie) {
    let (Folders { ocimod, top }, stock) = Stock::good().await;
    let (server, words) = lie.told(stock, TOP).await;
    if matches!(lie, Lie::Byte) {
        write(&top, &[("README.md", "another one\n")]);
    }
    let mut command = ocimod.command();
    command
        .args(["push", "--registry", &server.address.to_string()])
        .arg(&top)
        .arg("acme.example/top@v1.0.0");
    is_refused(&run(&mut command), &words);
}

async fn pull(lie: Lie, more: &[&str]) {
    let (Folders { ocimod, .. }, stock) = Stock::good().await;
    let (server, words) = lie.told(stock, TOP).await;
    let (folder, cache) = (ocimod.home.path().join("pulled"), ocimod.home.path().join("cache"));
    let mut command = ocimod.command();
    command
        .args(["pull", "--registry", &server.address.to_string(), "acme.example/top@v1.0.0"])
        .args(more)
        .env("CUE_CACHE_DIR", &cache);
    if more.is_empty() {
        command.arg("-o").arg(&folder);
    }
    is_refused(&run(&mut command), &words);
    assert!(!folder.exists());
    let cached = std::fs::read_dir(cache.join("mod/download")).map_or(0, Iterator::count);
    assert_eq!(cached, 0);
}

/// What `cue` would be shown of `top`.
struct Viewed {
    /// Of the manifest.
    status: u16,
    said: String,
    /// Of its zip, where it came whole.
    blob: Option<u16>,
    words: Vec<String>,
    serve: Serve,
}

async fn viewed(lie: Lie) -> Viewed {
    let (Folders { ocimod, .. }, stock) = Stock::good().await;
    let zip = stock.layer(TOP, 0)["digest"].as_str().unwrap().to_owned();
    let (server, words) = lie.told(stock, TOP).await;
    let serve = ocimod.serve(["--registry", &server.address.to_string()]);
    ocimod::registry::remote::install_crypto_provider();
    let view = format!("http://{}/v2/cue.mod/acme.example/top", serve.address);
    let manifest = reqwest::get(format!("{view}/manifests/v1.0.0")).await.unwrap();
    let (status, said) = (manifest.status().as_u16(), manifest.text().await.unwrap());
    let blob = match reqwest::get(format!("{view}/blobs/{zip}")).await {
        Ok(blob) => {
            let status = blob.status().as_u16();
            blob.bytes().await.ok().map(|_| status)
        }
        Err(_) => None,
    };
    Viewed { status, said, blob, words, serve }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_good_ones_are_taken() {
    let (Folders { ocimod, top }, stock) = Stock::good().await;
    let server = stock.serve().await;
    let registry = server.address.to_string();
    let folder = ocimod.home.path().join("pulled");
    let into = folder.display().to_string();
    ocimod.run(["pull", "--registry", &registry, "acme.example/top@v1.0.0", "-o", &into]).success();
    let mut command = ocimod.command();
    command
        .args(["pull", "--registry", &registry, "acme.example/top@v1.0.0", "--into-cue-cache"])
        .env("CUE_CACHE_DIR", ocimod.home.path().join("cache"));
    run(&mut command).success();
    let top = top.display().to_string();
    ocimod.run(["push", "--registry", &registry, &top, "acme.example/top@v1.0.0"]).success();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_push_embeds_a_module_whose_module_file_differs() {
    push(Lie::ModuleFile).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_push_embeds_a_module_of_another_path() {
    push(Lie::Path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_push_embeds_a_module_whose_bytes_differ() {
    push(Lie::Byte).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_push_takes_a_version_for_the_same_whose_module_file_differs() {
    push_again(Lie::ModuleFile).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_push_takes_a_version_for_the_same_that_embeds_another_module() {
    push_again(Lie::Path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_push_takes_a_version_for_the_same_whose_bytes_differ() {
    push_again(Lie::Byte).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pull_unpacks_a_module_whose_module_file_differs() {
    pull(Lie::ModuleFile, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pull_unpacks_a_module_that_embeds_another_one() {
    pull(Lie::Path, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pull_unpacks_a_module_whose_bytes_differ() {
    pull(Lie::Byte, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cache_is_filled_with_a_module_whose_module_file_differs() {
    pull(Lie::ModuleFile, &["--into-cue-cache"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cache_is_filled_with_a_module_that_embeds_another_one() {
    pull(Lie::Path, &["--into-cue-cache"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cache_is_filled_with_a_module_whose_bytes_differ() {
    pull(Lie::Byte, &["--into-cue-cache"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_view_shows_a_module_whose_module_file_differs() {
    let Viewed { status, said, .. } = viewed(Lie::ModuleFile).await;
    assert_eq!(status, 422, "{said}");
    assert!(said.contains("acme.example/top@v1.0.0 is not shown: the module file in its zip"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_view_shows_a_module_that_embeds_another_one() {
    let Viewed { status, said, words, .. } = viewed(Lie::Path).await;
    assert_eq!(status, 422, "{said}");
    for word in words.iter().map(String::as_str).chain(["acme.example/top@v1.0.0"]) {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// Whoever asks for the zip gets an error, or an answer that breaks off; which zip it is, and what it should be, the server notes.
#[tokio::test(flavor = "multi_thread")]
async fn no_view_hands_out_a_zip_whose_bytes_differ() {
    let Viewed { blob, said, words, mut serve, .. } = viewed(Lie::Byte).await;
    assert!(blob.is_none_or(|status| status >= 400), "{blob:?} {said}");
    let noted = serve.server.wait_for(|line| line.contains(&words[1]).then(|| line.to_owned()));
    assert!(noted.contains("ERROR") && noted.contains("the content has the digest"), "{noted}");
}
