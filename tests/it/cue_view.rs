//! The view for `cue` as requests see it: what it shows and in which bytes, who may see it, what may be pushed to it.

use std::collections::BTreeMap;
use std::path::Path;

use ocimod::oci::{Digest, IMAGE_MANIFEST};
use ocimod::operations::access::TokenHash;
use serde_json::{Value, json};

use crate::support::cue::module;
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::write;
use crate::support::ocimod::{Ocimod, Serve};

const TOP: &str = "acme.example/net/top";
const MID: &str = "acme.example/net/mid";
const CUE_CONFIG: &str = "application/vnd.cue.module.v1+json";
const MODULE_FILE: &str = "application/vnd.cue.modulefile.v1";

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of an error of the distribution API.
    fn code(&self) -> String {
        self.json()["errors"][0]["code"].as_str().unwrap_or_default().to_owned()
    }
}

async fn send(
    serve: &Serve,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Vec<u8>>,
) -> Answer {
    ocimod::registry::remote::install_crypto_provider();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let mut request = client.request(method.parse().unwrap(), format!("http://{}/v2/{path}", serve.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.body(body.into()).send().await.expect("the server answers");
    let of_the_moment = ["date", "x-request-id"];
    let headers = answer.headers().iter().filter(|(name, _)| !of_the_moment.contains(&name.as_str()));
    let headers =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    Answer { status: answer.status().as_u16(), headers, body: answer.bytes().await.unwrap().to_vec() }
}

async fn get(serve: &Serve, path: &str) -> Answer {
    send(serve, "GET", path, &[], "").await
}

async fn tags(serve: &Serve, path: &str) -> Value {
    get(serve, &format!("cue.mod/{path}/tags/list")).await.json()["tags"].clone()
}

/// Pushes `mid`, which needs nothing, and `top`, which needs it.
fn publish(ocimod: &Ocimod, registry: &str, more: &[&str]) {
    let (mid, top) = (ocimod.folder("mid"), ocimod.folder("top"));
    module(&mid, &format!("{MID}@v1"), &[], &[("a.cue", "package mid\n\nx: 1\n")]);
    let importing = format!("package top\n\nimport \"{MID}@v1\"\n\ny: mid.x\n");
    module(&top, &format!("{TOP}@v1"), &[(&format!("{MID}@v1"), "v1.2.0")], &[("a.cue", &importing)]);
    ocimod.push(registry, &mid, &format!("{MID}@v1.2.0"), more);
    ocimod.push(registry, &top, &format!("{TOP}@v1.0.0"), more);
}

/// A store that has `top` alone, and a server over it.
fn with_top_alone(ocimod: &Ocimod) -> (String, Serve) {
    with_top_and(ocimod, |_| ())
}

/// The same with more versions of `top`, which are pushed where what it needs is.
fn with_top_and(ocimod: &Ocimod, push: impl FnOnce(&str)) -> (String, Serve) {
    let elsewhere = ocimod.folder("elsewhere");
    publish(ocimod, &format!("dir:{}", elsewhere.display()), &[]);
    push(&format!("dir:{}", elsewhere.display()));
    let store = format!("dir:{}", ocimod.folder("store").display());
    // Made by whoever opens it first.
    ocimod.run(["list", "--registry", &store]).success();
    copy_repository(&elsewhere, &ocimod.folder("store"), TOP);
    let serve = ocimod.serve(["--registry", &store]);
    (store, serve)
}

fn copy_repository(from: &Path, to: &Path, name: &str) {
    let to = to.join("repos").join(name);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let copied =
        std::process::Command::new("cp").arg("-r").arg(from.join("repos").join(name)).arg(&to).status();
    assert!(copied.unwrap().success());
}

fn digest_in(answer: &Answer) -> String {
    answer.header("docker-content-digest").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_shows_the_same_two_layers() {
    let ocimod = Ocimod::new();
    let (store, serve) = with_top_alone(&ocimod);
    let mut seen = Vec::new();
    for (name, version) in [(TOP, "v1.0.0"), (MID, "v1.2.0")] {
        let path = format!("cue.mod/{name}/manifests/{version}");
        let shown = get(&serve, &path).await;
        assert_eq!(shown.status, 200, "{shown:?}");
        assert_eq!(shown.header("content-type"), IMAGE_MANIFEST);
        assert_eq!(shown.header("content-length"), shown.body.len().to_string());
        assert_eq!(digest_in(&shown), Digest::of(&shown.body).to_string());
        let manifest = shown.json();
        assert_eq!(manifest["config"]["mediaType"], CUE_CONFIG);
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 2);
        assert_eq!(manifest["layers"][0]["mediaType"], "application/zip");
        assert_eq!(manifest["layers"][1]["mediaType"], MODULE_FILE);
        let head = send(&serve, "HEAD", &path, &[], "").await;
        assert_eq!((head.status, &head.headers), (200, &shown.headers));
        for descriptor in
            manifest["layers"].as_array().unwrap().iter().chain(std::iter::once(&manifest["config"]))
        {
            let digest = descriptor["digest"].as_str().unwrap();
            let blob = get(&serve, &format!("cue.mod/{name}/blobs/{digest}")).await;
            assert_eq!((blob.status, Digest::of(&blob.body).to_string().as_str()), (200, digest));
            assert_eq!(blob.header("content-length"), descriptor["size"].to_string());
            assert_eq!(digest_in(&blob), digest);
            let head = send(&serve, "HEAD", &format!("cue.mod/{name}/blobs/{digest}"), &[], "").await;
            assert_eq!((head.status, head.headers), (200, blob.headers));
            let range = [("range", "bytes=1-")];
            let piece = send(&serve, "GET", &format!("cue.mod/{name}/blobs/{digest}"), &range, "").await;
            assert_eq!((piece.status, &piece.body[..]), (206, &blob.body[1..]));
        }
        seen.push((name, shown));
    }
    // The annotations of what was pushed are there, and its other layers are not.
    let stored = get(&serve, &format!("{TOP}/manifests/v1.0.0")).await.json();
    assert_eq!(stored["layers"].as_array().unwrap().len(), 3);
    assert_eq!(seen[0].1.json()["annotations"], stored["annotations"]);

    // A replica that has seen none of this is asked by digest.
    for (name, shown) in &seen {
        let replica = ocimod.serve(["--registry", &store]);
        let digest = digest_in(shown);
        let found = get(&replica, &format!("cue.mod/{name}/manifests/{digest}")).await;
        assert_eq!((found.status, &found.body), (200, &shown.body));
        let other = Digest::of(b"nothing");
        let absent = get(&replica, &format!("cue.mod/{name}/manifests/{other}")).await;
        assert_eq!((absent.status, absent.code().as_str()), (404, "MANIFEST_UNKNOWN"));
        let absent = get(&replica, &format!("cue.mod/{name}/blobs/{other}")).await;
        assert_eq!((absent.status, absent.code().as_str()), (404, "BLOB_UNKNOWN"));
    }
    // What the view does not show, it does not show by digest either; nor what another module's repository has.
    let stored = digest_in(&get(&serve, &format!("{TOP}/manifests/v1.0.0")).await);
    assert_eq!(get(&serve, &format!("cue.mod/{TOP}/manifests/{stored}")).await.status, 404);
    let zip = seen[0].1.json()["layers"][0]["digest"].as_str().unwrap().to_owned();
    assert_eq!(get(&serve, &format!("cue.mod/{MID}/blobs/{zip}")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_versions_as_cue_writes_them_are_listed_and_found() {
    let ocimod = Ocimod::new();
    let (store, serve) = with_top_and(&ocimod, |elsewhere| {
        let folder = ocimod.folder("top");
        ocimod.push(elsewhere, &folder, &format!("{TOP}@v1.10.0-rc.1"), &["--deps", "none"]);
        write(&folder, &[("b.cue", "package top\n\nz: 1\n")]);
        ocimod.push(elsewhere, &folder, &format!("{TOP}@v1.9.0"), &["--deps", "separate"]);
    });
    // The manifest itself under names that are no versions of CUE.
    let stored = get(&serve, &format!("{TOP}/manifests/v1.0.0")).await;
    let headers = [("content-type", IMAGE_MANIFEST)];
    for tag in ["latest", "v1", "v1.0", "v1.0.0_b", "v2.0.0"] {
        let put = send(&serve, "PUT", &format!("{TOP}/manifests/{tag}"), &headers, stored.body.clone()).await;
        assert_eq!(put.status, 201, "{put:?}");
    }
    // `v2.0.0` says itself that it is of version 1.
    assert_eq!(tags(&serve, TOP).await, json!(["v1.0.0", "v1.10.0-rc.1", "v1.9.0"]));
    assert_eq!(tags(&serve, MID).await, json!(["v1.2.0"]));
    let page = get(&serve, &format!("cue.mod/{TOP}/tags/list?n=1&last=v1.0.0")).await;
    assert_eq!(page.json()["tags"], json!(["v1.10.0-rc.1"]));
    let next = format!("</v2/cue.mod/{TOP}/tags/list?n=1&last=v1.10.0-rc.1>; rel=\"next\"");
    assert_eq!(page.header("link"), next);
    for tag in ["latest", "v1", "v1.0", "1.0.0", "v1.0.0_b", "bundle.v1.9.0", "v9.9.9"] {
        let absent = get(&serve, &format!("cue.mod/{TOP}/manifests/{tag}")).await;
        assert_eq!((absent.status, absent.code().as_str()), (404, "MANIFEST_UNKNOWN"), "{tag}");
    }
    let lie = get(&serve, &format!("cue.mod/{TOP}/manifests/v2.0.0")).await;
    assert_eq!((lie.status, lie.code().as_str()), (422, "MANIFEST_INVALID"));
    assert!(lie.text().contains("acme.example/net/top@v2.0.0"), "{lie:?}");
    assert_eq!(get(&serve, &format!("cue.mod/{MID}/manifests/v1.0.0")).await.status, 404);
    for nothing in ["acme.example/net/none", "acme.example", "no-host", "cue.mod", "acme.example/con"] {
        for what in ["tags/list", "manifests/v1.0.0"] {
            let absent = get(&serve, &format!("cue.mod/{nothing}/{what}")).await;
            assert_eq!((absent.status, absent.code().as_str()), (404, "NAME_UNKNOWN"), "{nothing}/{what}");
        }
    }
    // A yanked version is found by whoever uses it, and by nobody else.
    ocimod.run(["yank", "--registry", &store, &format!("{TOP}@v1.9.0")]).success();
    assert_eq!(tags(&serve, TOP).await, json!(["v1.0.0", "v1.10.0-rc.1"]));
    let yanked = get(&serve, &format!("cue.mod/{TOP}/manifests/v1.9.0")).await;
    assert_eq!(yanked.status, 200);
    let replica = ocimod.serve(["--registry", &store]);
    assert_eq!(get(&replica, &format!("cue.mod/{TOP}/manifests/{}", digest_in(&yanked))).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_refers_to_a_manifest_refers_to_nothing_that_was_made_of_it() {
    let ocimod = Ocimod::new();
    let (_, serve) = with_top_and(&ocimod, |elsewhere| {
        let folder = ocimod.folder("top");
        write(&folder, &[("b.cue", "package top\n\nz: 1\n")]);
        ocimod.push(elsewhere, &folder, &format!("{TOP}@v1.9.0"), &["--deps", "separate"]);
    });
    for (version, is_as_stored) in [("v1.0.0", false), ("v1.9.0", true)] {
        let stored = get(&serve, &format!("{TOP}/manifests/{version}")).await;
        let (subject, size) = (digest_in(&stored), stored.body.len());
        let signature = json!({
            "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "artifactType": "application/vnd.acme.signature",
            "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest::of(b"{}"), "size": 2 },
            "layers": [],
            "subject": { "mediaType": IMAGE_MANIFEST, "digest": subject, "size": size },
        })
        .to_string();
        let named = Digest::of(signature.as_bytes());
        let headers = [("content-type", IMAGE_MANIFEST)];
        let put = send(&serve, "PUT", &format!("{TOP}/manifests/{named}"), &headers, signature).await;
        assert_eq!(put.status, 201, "{put:?}");
        let shown = digest_in(&get(&serve, &format!("cue.mod/{TOP}/manifests/{version}")).await);
        assert_eq!(shown == subject, is_as_stored, "{version}");
        for digest in [&shown, &subject] {
            let list = get(
                &serve,
                &format!("cue.mod/{TOP}/referrers/{digest}?artifactType=application/vnd.acme.signature"),
            )
            .await;
            let expected = usize::from(is_as_stored);
            assert_eq!(list.json()["manifests"].as_array().unwrap().len(), expected, "{version} {digest}");
        }
        // Who was told of it can have it.
        let signed = get(&serve, &format!("cue.mod/{TOP}/manifests/{named}")).await;
        assert_eq!(signed.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_of_opentofu_is_one_of_cue_too() {
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let (label, stack) = (ocimod.folder("label"), ocimod.folder("stack"));
    write(&label, &[("main.tf", "output \"x\" {\n  value = 1\n}\n"), ("a.cue", "package label\n\nx: 1\n")]);
    write(&stack, &[("main.tf", "module \"x\" {\n  source = \"modules.acme.example/acme/label/null\"\n}\n")]);
    for (folder, name) in [(&label, "label"), (&stack, "stack")] {
        let address = format!("modules.acme.example/acme/{name}/null@1.0.0");
        ocimod.push(&store, folder, &address, &["--host", "modules.acme.example"]);
    }
    for arguments in [&["--host", "modules.acme.example"][..], &["--host", "other.example"], &[]] {
        let serve = ocimod.serve([&["--registry", &store], arguments].concat());
        for name in ["label", "stack"] {
            let path = format!("modules.acme.example/acme/{name}/null");
            assert_eq!(tags(&serve, &path).await, json!(["v1.0.0"]), "{arguments:?}");
            let shown = get(&serve, &format!("cue.mod/{path}/manifests/v1.0.0")).await.json();
            assert_eq!(shown["layers"].as_array().unwrap().len(), 2);
        }
        // Only under the path that it has itself.
        for other in ["other.example/acme/label/null", "acme/label/null", "modules.internal/acme/label/null"]
        {
            assert_eq!(get(&serve, &format!("cue.mod/{other}/tags/list")).await.status, 404, "{other}");
        }
    }
}

/// An access file: name, what it allows, and where.
fn access(ocimod: &Ocimod, tokens: &[(&str, &str, &str)]) -> String {
    let path = ocimod.home.path().join("access.toml");
    let entry = |(name, allow, repositories): &(&str, &str, &str)| {
        let hash = TokenHash::of(&format!("token-of-{name}")).unwrap().to_hex();
        format!(
            "[[token]]\nname = '{name}'\nsha256 = '{hash}'\nallow = [{allow}]\nrepositories = ['{repositories}']\n"
        )
    };
    std::fs::write(&path, tokens.iter().map(entry).collect::<String>()).unwrap();
    path.display().to_string()
}

async fn as_holder(serve: &Serve, name: &str, method: &str, path: &str) -> Answer {
    let authorization = format!("Bearer token-of-{name}");
    send(serve, method, path, &[("authorization", &authorization)], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_know_of_a_module_learns_nothing() {
    let ocimod = Ocimod::new();
    let (store, open) = with_top_alone(&ocimod);
    let manifest = get(&open, &format!("cue.mod/{TOP}/manifests/v1.0.0")).await;
    let (digest, zip) = (digest_in(&manifest), manifest.json()["layers"][0]["digest"].clone());
    let zip = zip.as_str().unwrap();
    drop(open);
    let file = access(
        &ocimod,
        &[
            ("all", "'read', 'push', 'delete'", "*"),
            ("other", "'read', 'push', 'delete'", "other.example/*"),
            ("top", "'read'", "acme.example/net/top"),
            ("mid", "'read'", "acme.example/net/mid"),
            ("letterbox", "'push'", "acme.example/*"),
            // The name of the view is nobody's repository.
            ("view", "'read', 'push', 'delete'", "cue.mod/*"),
        ],
    );
    let serve = ocimod.serve(["--registry", &store, "--access", &file]);
    let questions = |name: &str| {
        [
            "tags/list",
            "manifests/v1.0.0",
            "manifests/v1.2.0",
            &format!("manifests/{digest}"),
            &format!("blobs/{zip}"),
        ]
        .map(|what| format!("cue.mod/{name}/{what}"))
        .into_iter()
        .chain([format!("cue.mod/{name}/referrers/{digest}")])
        .collect::<Vec<_>>()
    };
    let comparable = |answer: Answer, name: &str| {
        let mut headers = answer.headers.clone();
        headers.remove("content-length");
        (answer.status, headers, answer.text().replace(name, "NAME"))
    };
    for (holder, sees) in [
        ("all", true),
        ("top", true),
        ("other", false),
        ("letterbox", false),
        ("view", false),
        ("mid", false),
    ] {
        for method in ["GET", "HEAD"] {
            for (asked, nothing) in questions(TOP).iter().zip(questions("acme.example/net/nothing")) {
                let answer = as_holder(&serve, holder, method, asked).await;
                if sees && !asked.ends_with("v1.2.0") {
                    assert_eq!(answer.status, 200, "{holder} {method} {asked}");
                } else if !sees {
                    let of_nothing = as_holder(&serve, holder, method, &nothing).await;
                    let (one, other) =
                        (comparable(answer, TOP), comparable(of_nothing, "acme.example/net/nothing"));
                    assert_eq!(one, other, "{holder} {method} {asked}");
                }
            }
        }
    }
    // What is only inside others takes both: the right to know of it, and to read one who has it.
    for (holder, status) in [("all", 200), ("top", 404), ("mid", 404), ("other", 404), ("letterbox", 404)] {
        for what in ["tags/list", "manifests/v1.2.0"] {
            let answer = as_holder(&serve, holder, "GET", &format!("cue.mod/{MID}/{what}")).await;
            assert_eq!(answer.status, status, "{holder} {what}");
        }
    }
    // Who pushes has to be allowed to where it goes.
    for (holder, status) in [("all", 202), ("letterbox", 202), ("top", 403), ("other", 403), ("view", 403)] {
        let opened = as_holder(&serve, holder, "POST", &format!("cue.mod/{TOP}/blobs/uploads/")).await;
        assert_eq!(opened.status, status, "{holder}");
    }
    assert_eq!(
        as_holder(&serve, "all", "DELETE", &format!("cue.mod/{TOP}/manifests/v1.0.0")).await.status,
        405
    );
    for (method, path) in [("GET", "tags/list"), ("POST", "blobs/uploads/"), ("DELETE", "manifests/v1.0.0")] {
        for name in [TOP, "acme.example/net/nothing", "none"] {
            assert_eq!(send(&serve, method, &format!("cue.mod/{name}/{path}"), &[], "").await.status, 401);
            assert_eq!(
                as_holder(&serve, "wrong", method, &format!("cue.mod/{name}/{path}")).await.status,
                401
            );
        }
    }
}

/// Pushes a blob and answers its descriptor.
async fn push_blob(serve: &Serve, repository: &str, media_type: &str, bytes: &[u8]) -> Value {
    let digest = Digest::of(bytes);
    let put = send(serve, "POST", &format!("{repository}/blobs/uploads/?digest={digest}"), &[], bytes).await;
    assert_eq!(put.status, 201, "{put:?}");
    json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
}

async fn put(serve: &Serve, repository: &str, tag: &str, layers: &[Value]) -> Answer {
    let config = push_blob(serve, repository, CUE_CONFIG, b"{}").await;
    let manifest =
        json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": layers });
    let headers = [("content-type", IMAGE_MANIFEST)];
    send(serve, "PUT", &format!("{repository}/manifests/{tag}"), &headers, manifest.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_says_two_things_is_refused_by_name() {
    let ocimod = Ocimod::new();
    let (_, serve) = with_top_alone(&ocimod);
    let shown = get(&serve, &format!("cue.mod/{TOP}/manifests/v1.0.0")).await.json();
    let zip = shown["layers"][0]["digest"].as_str().unwrap().to_owned();
    let zip = get(&serve, &format!("cue.mod/{TOP}/blobs/{zip}")).await.body;
    let file =
        get(&serve, &format!("cue.mod/{TOP}/blobs/{}", shown["layers"][1]["digest"].as_str().unwrap()))
            .await
            .body;
    let lie = format!("module: \"{TOP}@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n");

    // Beside the view, where nobody looks at what is pushed.
    let layers = [
        push_blob(&serve, TOP, "application/zip", &zip).await,
        push_blob(&serve, TOP, MODULE_FILE, lie.as_bytes()).await,
    ];
    assert_eq!(put(&serve, TOP, "v1.3.0", &layers).await.status, 201);
    let refused = get(&serve, &format!("cue.mod/{TOP}/manifests/v1.3.0")).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "MANIFEST_INVALID"));
    assert!(refused.text().contains("acme.example/net/top@v1.3.0"), "{refused:?}");
    assert!(refused.text().contains("the module file in its zip"), "{refused:?}");

    // Under another module's name; as a layer, where the claim is not believed.
    let other = "acme.example/net/other";
    let layers = [
        push_blob(&serve, other, "application/zip", &zip).await,
        push_blob(&serve, other, MODULE_FILE, &file).await,
    ];
    assert_eq!(put(&serve, other, "v1.0.0", &layers).await.status, 201);
    assert_eq!(get(&serve, &format!("cue.mod/{other}/manifests/v1.0.0")).await.status, 404);
    assert_eq!(get(&serve, &format!("cue.mod/{other}/tags/list")).await.status, 404);
    let mut claim = layers[0].clone();
    claim["annotations"] = json!({ "works.cue.module": "acme.example/net/claimed@v1.0.0" });
    let with_claim = [layers[0].clone(), layers[1].clone(), claim];
    assert_eq!(put(&serve, other, "v1.1.0", &with_claim).await.status, 201);
    assert_eq!(get(&serve, "cue.mod/acme.example/net/claimed/tags/list").await.status, 404);
    assert_eq!(get(&serve, "cue.mod/acme.example/net/claimed/manifests/v1.0.0").await.status, 404);

    // Into the view, where it is looked at.
    for (repository, tag, layers, word) in [
        (other, "v1.5.0", &layers[..], "its module file says that it is `acme.example/net/top@v1`"),
        (TOP, "v2.5.0", &layers, "its module file says that it is `acme.example/net/top@v1`"),
        (TOP, "v1.5", &layers, "is no version of a CUE module"),
        (TOP, "latest", &layers, "is no version of a CUE module"),
        (TOP, "v1.5.0", &with_claim, "modules of two layers"),
        (TOP, "v1.5.0", &layers[..1], "modules of two layers"),
    ] {
        let repository = format!("cue.mod/{repository}");
        for layer in layers {
            let bytes = if layer["mediaType"] == MODULE_FILE { &file } else { &zip };
            push_blob(&serve, &repository, "", bytes).await;
        }
        let refused = put(&serve, &repository, tag, layers).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "MANIFEST_INVALID"), "{refused:?}");
        assert!(refused.text().contains(word), "{refused:?}");
    }
    let repository = format!("cue.mod/{TOP}");
    let lying = [
        push_blob(&serve, &repository, "application/zip", &zip).await,
        push_blob(&serve, &repository, MODULE_FILE, lie.as_bytes()).await,
    ];
    let refused = put(&serve, &repository, "v1.5.0", &lying).await;
    assert!(refused.status == 400 && refused.text().contains("the module file in its zip"), "{refused:?}");
    let no_zip = [
        json!({ "mediaType": "application/zip", "digest": Digest::of(b"no zip"), "size": 6 }),
        lying[1].clone(),
    ];
    let refused = put(&serve, &repository, "v1.5.0", &no_zip).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "MANIFEST_BLOB_UNKNOWN"));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_another_registry_there_is_the_view_alone_and_nothing_is_written() {
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    publish(&ocimod, &registry.address, &[]);
    let serve = ocimod.serve(["--registry", &registry.address]);
    assert_eq!(get(&serve, "").await.status, 200);
    assert_eq!(tags(&serve, TOP).await, json!(["v1.0.0"]));
    for path in ["_catalog", &format!("{TOP}/tags/list"), &format!("{TOP}/manifests/v1.0.0"), "nothing"] {
        assert_eq!(get(&serve, path).await.status, 404, "{path}");
    }
    let opened = send(&serve, "POST", &format!("cue.mod/{TOP}/blobs/uploads/"), &[], "").await;
    assert_eq!((opened.status, opened.code().as_str()), (405, "UNSUPPORTED"));
    let opened = send(&serve, "POST", &format!("{TOP}/blobs/uploads/"), &[], "").await;
    assert_eq!(opened.status, 404);
}
