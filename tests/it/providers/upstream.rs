//! Providers that the registry lacks: looked up at an origin that speaks the provider registry protocol, fetched, checked and kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::mirror::{HOST, Root, name_of, network_mirror, time_provider};
use super::packages::{package, zip};
use super::{TIME, h1, platforms, provider, store, text, zh};
use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::openpgp::SigningKey;
use crate::support::origin::{DISCOVERY, Given, Origin, SIGNATURE, SUMS};

const MIRROR: &str = "/v1/mirror/registry.opentofu.org/hashicorp/time";
const VERSION: &str = "registry.opentofu.org/hashicorp/time@1.0.0";

/// A zip of which a part may be sent before the whole is known to be right.
fn large(folder: &Path, platform: &str) -> PathBuf {
    let path = folder.join(format!("terraform-provider-time_1.0.0_{platform}.zip"));
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    let noise: Vec<u8> = noise.take(400_000).collect();
    zip(&path, &[("terraform-provider-time_v1.0.0_x5", &noise)]);
    path
}

/// An origin with one large zip and a small one.
fn origin(ocimod: &Ocimod) -> Origin {
    let folder = ocimod.folder("at-origin");
    let zips = vec![large(&folder, "linux_amd64"), package(&folder, "time", "1.0.0", "darwin_arm64", "")];
    Origin::start(ocimod, HOST, "hashicorp/time", "1.0.0", zips)
}

async fn get(serve: &Serve, path: &str) -> reqwest::Response {
    ocimod::registry::remote::install_crypto_provider();
    reqwest::get(format!("http://{}{path}", serve.address)).await.expect("the server answers")
}

async fn status(serve: &Serve, file: &str) -> u16 {
    get(serve, &format!("{MIRROR}/{file}")).await.status().as_u16()
}

async fn document(serve: &Serve, file: &str) -> Value {
    let answer = get(serve, &format!("{MIRROR}/{file}")).await;
    assert_eq!(answer.status(), 200, "{file}");
    answer.json().await.expect("JSON")
}

/// Where the zip for a platform is, by a link.
async fn link(serve: &Serve, platform: &str) -> String {
    let archives = document(serve, "1.0.0.json").await;
    let url = archives["archives"][platform]["url"].as_str().expect("a link").to_owned();
    format!("{MIRROR}/{}", url.trim_start_matches("./"))
}

async fn whole(serve: &Serve, path: &str) -> Result<Vec<u8>, u16> {
    let answer = get(serve, path).await;
    let status = answer.status().as_u16();
    match answer.bytes().await {
        Ok(bytes) if status == 200 => Ok(bytes.to_vec()),
        _ => Err(status),
    }
}

/// Waits until the log says it.
fn said(serve: &mut Serve, word: &str) {
    serve.server.wait_for(|line| line.contains(word).then_some(()));
}

/// Waits until the registry has the version for these platforms.
async fn stored(ocimod: &Ocimod, registry: &str, expected: &[&str]) {
    loop {
        let words = ["provider", "inspect", "--registry", registry, "--format", "json", VERSION];
        let answer = ocimod.run(words).json();
        if answer.get("error").is_none() && platforms(&answer) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn nothing_is_stored(ocimod: &Ocimod, registry: &str) {
    assert_eq!(provider(ocimod, registry, &["list"])["providers"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_registry_lacks_comes_from_its_origin_once_and_stays() {
    let (ocimod, registry) = store();
    let origin = origin(&ocimod);
    let mut serve = origin.serve(&ocimod, &registry, &[]);
    assert_eq!(document(&serve, "index.json").await, json!({"versions": {"1.0.0": {}}}));
    let archives = document(&serve, "1.0.0.json").await;
    for (zip, platform) in origin.zips.iter().zip(["linux_amd64", "darwin_arm64"]) {
        assert_eq!(archives["archives"][platform]["hashes"], json!([zh(zip)]));
    }
    assert_eq!(origin.asked(&origin.zip(0)), 0, "no zip is fetched for a list");
    assert_eq!(status(&serve, "2.0.0.json").await, 404);

    // Many at once cause one fetch.
    let link = link(&serve, "linux_amd64").await;
    let expected = std::fs::read(&origin.zips[0]).unwrap();
    let all = join_all((0..8).map(|_| whole(&serve, &link))).await;
    assert!(all.iter().all(|bytes| bytes.as_ref() == Ok(&expected)));
    assert_eq!(origin.asked(&origin.zip(0)), 1);

    // It is in the registry, with the hash that the origin does not say.
    stored(&ocimod, &registry, &["linux_amd64"]).await;
    let archives = document(&serve, "1.0.0.json").await;
    let hashes = |platform: &str| archives["archives"][platform]["hashes"].clone();
    assert_eq!(hashes("linux_amd64"), json!([h1(&origin.zips[0]), zh(&origin.zips[0])]));
    assert_eq!(hashes("darwin_arm64"), json!([zh(&origin.zips[1])]));
    // The link from before is as good, and so is the bare name.
    assert_eq!(whole(&serve, &link).await.as_ref(), Ok(&expected));
    let bare = link.split_once('?').unwrap().0;
    assert_eq!(whole(&serve, bare).await.as_ref(), Ok(&expected));
    assert_eq!(origin.asked(&origin.zip(0)), 1);
    // The other one joins it.
    let other = format!("{MIRROR}/terraform-provider-time_1.0.0_darwin_arm64.zip");
    assert_eq!(whole(&serve, &other).await, Ok(std::fs::read(&origin.zips[1]).unwrap()));
    stored(&ocimod, &registry, &["darwin_arm64", "linux_amd64"]).await;
    // The lists were asked for once, whatever was answered from them.
    for path in [DISCOVERY, &origin.versions(), SUMS, SIGNATURE] {
        assert_eq!(origin.asked(path), 1, "{path}");
    }
    said(&mut serve, "has the zip for linux_amd64 from its origin");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zip_is_sent_on_while_it_comes_and_kept_where_nobody_waits_for_it() {
    let (ocimod, registry) = store();
    let origin = origin(&ocimod);
    let bytes = std::fs::read(&origin.zips[0]).unwrap();
    let gate = Arc::new(Semaphore::new(0));
    origin.put(&origin.zip(0), Given::Halting(bytes, Arc::clone(&gate)));
    let temporary = ocimod.folder("temporary");
    let allow = TIME.to_owned();
    let words = ["--registry", &registry, "--mirror-upstream", "--mirror-allow", &allow];
    let serve = origin.serve_with(&ocimod, &[("TMPDIR", text(&temporary))], &words);
    let files = || temporary.read_dir().unwrap().count();
    let link = link(&serve, "linux_amd64").await;
    let mut answer = get(&serve, &link).await;
    assert!(
        !answer.chunk().await.unwrap().unwrap().is_empty(),
        "half of it is there, and half of that is sent"
    );
    assert_eq!(files(), 1);
    drop(answer);
    gate.add_permits(1);
    stored(&ocimod, &registry, &["linux_amd64"]).await;
    while files() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(origin.asked(&origin.zip(0)), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_fetch_at_once_both_win() {
    let ocimod = Ocimod::new();
    let local = format!("dir:{}", ocimod.folder("store").display());
    let remote = DockerRegistry::start();
    let remote = remote.as_ref().map(|registry| format!("{}/some+insecure", registry.address));
    for registry in [Some(local), remote].into_iter().flatten() {
        let origin = origin(&ocimod);
        let replicas = [0, 1].map(|_| origin.serve(&ocimod, &registry, &[]));
        let wanted = replicas.iter().flat_map(|serve| [(serve, "linux_amd64"), (serve, "darwin_arm64")]);
        let fetch = |(serve, platform)| async move { whole(serve, &link(serve, platform).await).await };
        let all = join_all(wanted.map(fetch)).await;
        let zips: Vec<_> = origin.zips.iter().map(|zip| std::fs::read(zip).unwrap()).collect();
        for (number, bytes) in all.iter().enumerate() {
            assert_eq!(bytes.as_ref(), Ok(&zips[number % 2]), "{number}");
        }
        stored(&ocimod, &registry, &["darwin_arm64", "linux_amd64"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zip_that_is_not_what_was_signed_never_comes_whole_and_is_not_kept() {
    let (ocimod, registry) = store();
    let origin = origin(&ocimod);
    let serve = origin.serve(&ocimod, &registry, &[]);
    let right = std::fs::read(&origin.zips[0]).unwrap();
    let mut wrong = right.clone();
    wrong[40] ^= 1;
    let longer = [right.as_slice(), b"more"].concat();
    for bytes in [wrong, longer, right[..right.len() - 1].to_vec()] {
        origin.put(&origin.zip(0), Given::Bytes(bytes));
        assert_eq!(whole(&serve, &link(&serve, "linux_amd64").await).await, Err(200));
    }
    nothing_is_stored(&ocimod, &registry);
    // A small one is not begun.
    let small = std::fs::read(&origin.zips[1]).unwrap();
    origin.put(&origin.zip(1), Given::Bytes(vec![0; small.len()]));
    assert!(whole(&serve, &link(&serve, "darwin_arm64").await).await.is_err());
    // What it is next time counts.
    origin.put(&origin.zip(0), Given::Bytes(right.clone()));
    assert_eq!(whole(&serve, &link(&serve, "linux_amd64").await).await, Ok(right));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zip_that_breaks_a_rule_never_comes_whole_and_is_not_kept() {
    let (ocimod, registry) = store();
    let folder = ocimod.folder("at-origin");
    let escaping = folder.join("terraform-provider-time_1.0.0_linux_amd64.zip");
    zip(&escaping, &[("../terraform-provider-time", b"x")]);
    let origin = Origin::start(&ocimod, HOST, "hashicorp/time", "1.0.0", vec![escaping]);
    let mut serve = origin.serve(&ocimod, &registry, &[]);
    assert_eq!(whole(&serve, &link(&serve, "linux_amd64").await).await, Err(200));
    nothing_is_stored(&ocimod, &registry);
    said(&mut serve, "leads to a parent folder");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_checksums_that_is_not_signed_right_is_refused() {
    let (ocimod, registry) = store();
    let origin = origin(&ocimod);
    let sums = {
        let hex = |zip: &PathBuf| zh(zip).trim_start_matches("zh:").to_owned();
        let line = |zip: &PathBuf| format!("{}  {}\n", hex(zip), zip.file_name().unwrap().to_str().unwrap());
        origin.zips.iter().map(line).collect::<String>()
    };
    // The first of the platforms leads to the list.
    let good = origin.document(1);
    let changed = |field: &str, value: Value| {
        let mut document = good.clone();
        document[field] = value;
        Given::json(&document)
    };
    let stranger = SigningKey::generate();
    let missing = || Given::Status(404);
    let path = origin.package(1);
    let hex = zh(&origin.zips[1]).trim_start_matches("zh:").to_owned();
    let forged = sums.replace(&hex, &"0".repeat(64));
    let cases: Vec<(&str, Vec<(&str, Given)>)> = vec![
        ("a signature by somebody else", vec![(SIGNATURE, Given::Bytes(stranger.sign(sums.as_bytes())))]),
        ("other sums than were signed", vec![(SUMS, Given::Bytes(forged.clone().into_bytes()))]),
        ("no signature", vec![(SIGNATURE, missing())]),
        ("nothing of a signature", vec![(SIGNATURE, Given::Bytes(Vec::new()))]),
        ("a key for a signature", vec![(SIGNATURE, Given::Bytes(stranger.public().into_bytes()))]),
        ("no word of a signature", vec![(&path, changed("shasums_signature_url", Value::Null))]),
        (
            "a key that is none",
            vec![(&path, changed("signing_keys", json!({"gpg_public_keys": [{"ascii_armor": "none"}]})))],
        ),
        (
            "other sums, unsigned, than the document says",
            vec![(&path, changed("signing_keys", Value::Null)), (SUMS, Given::Bytes(forged.into_bytes()))],
        ),
        ("another checksum in the document", vec![(&path, changed("shasum", json!("0".repeat(64))))]),
        ("no sums", vec![(SUMS, missing())]),
        ("another platform's document", vec![(&path, changed("os", json!("windows")))]),
        ("sums without end", vec![(SUMS, Given::Endless)]),
        ("a signature without end", vec![(SIGNATURE, Given::Endless)]),
        ("a document without end", vec![(&path, Given::Endless)]),
        ("sums over http", vec![(&path, changed("shasums_url", json!("http://registry.opentofu.org/x")))]),
        ("no document", vec![(&path, Given::Bytes(b"no JSON".to_vec()))]),
    ];
    for (what, changes) in cases {
        // What was answered before counts for a while, so each has a server of its own.
        for (path, given) in changes {
            origin.put(path, given);
        }
        let serve = origin.serve(&ocimod, &registry, &[]);
        assert_eq!(status(&serve, "index.json").await, 200, "{what}");
        let refused = status(&serve, "1.0.0.json").await;
        assert!(refused == 422 || refused == 502, "{what}: {refused}");
        let zip = "terraform-provider-time_1.0.0_darwin_arm64.zip";
        let refused = status(&serve, zip).await;
        assert!(refused == 422 || refused == 502, "{what}: {refused}");
        origin.put(SUMS, Given::Bytes(sums.clone().into_bytes()));
        origin.put(SIGNATURE, Given::Bytes(origin.key.sign(sums.as_bytes())));
        origin.put(&path, Given::json(&good));
    }
    assert_eq!(origin.asked(&origin.zip(0)) + origin.asked(&origin.zip(1)), 0);
    // Where it names no keys, what it says by TLS is all that there is; and any of several keys will do.
    let two = json!({"gpg_public_keys": [{"ascii_armor": stranger.public()}, {"ascii_armor": origin.key.public()}]});
    for (keys, word) in
        [(Value::Null, "names no keys"), (json!({"gpg_public_keys": []}), "names no keys"), (two, "")]
    {
        origin.put(&path, changed("signing_keys", keys));
        let mut serve = origin.serve(&ocimod, &registry, &[]);
        assert_eq!(status(&serve, "1.0.0.json").await, 200, "{word}");
        said(&mut serve, word);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_or_leads_astray_is_not_fetched() {
    let (ocimod, registry) = store();
    let origin = origin(&ocimod);
    let mut serve = origin.serve(&ocimod, &registry, &[]);
    let other = serde_json::to_string(&json!({"versions": []})).unwrap();
    let link = link(&serve, "linux_amd64").await;
    for given in [
        Given::Announced((4 << 30) + 1),
        Given::Redirect("https://10.0.0.1/x.zip".to_owned()),
        Given::Redirect("https://127.0.0.1:1/x.zip".to_owned()),
        Given::Redirect("https://169.254.169.254/latest".to_owned()),
        Given::Redirect("https://localhost/x.zip".to_owned()),
        Given::Redirect("http://elsewhere.example/x.zip".to_owned()),
        Given::Redirect("https://user:password@elsewhere.example/x.zip".to_owned()),
        Given::Redirect(origin.zip(0)),
    ] {
        origin.put(&origin.zip(0), given);
        let answer = get(&serve, &link).await.status().as_u16();
        assert_eq!(answer, 502, "{}", serve.server.log());
    }
    nothing_is_stored(&ocimod, &registry);
    let hosts: Vec<String> =
        origin.heads().iter().map(|head| head.lines().next().unwrap().to_owned()).collect();
    assert!(hosts.iter().all(|line| line == "connect registry.opentofu.org:443 http/1.1"), "{hosts:?}");
    // Another host of the world is as good as the origin says.
    let bytes = std::fs::read(&origin.zips[0]).unwrap();
    origin.put(&origin.zip(0), Given::Redirect("https://elsewhere.example/there.zip".to_owned()));
    origin.put("/there.zip", Given::Bytes(bytes.clone()));
    assert_eq!(whole(&serve, &link).await, Ok(bytes));

    // The same for documents, by a server that has not read them yet.
    for given in [
        Given::Endless,
        Given::Announced(1 << 40),
        Given::Redirect("https://10.0.0.1/x".to_owned()),
        Given::Redirect(DISCOVERY.to_owned()),
        Given::Bytes(b"no JSON".to_vec()),
        Given::Bytes(json!({"providers.v1": "http://elsewhere.example/"}).to_string().into_bytes()),
    ] {
        origin.put(DISCOVERY, given);
        let mut serve = origin.serve(&ocimod, &format!("dir:{}", ocimod.folder("empty").display()), &[]);
        assert_eq!(status(&serve, "index.json").await, 502, "{}", serve.server.log());
    }
    origin.put(DISCOVERY, Given::json(&json!({"providers.v1": "https://elsewhere.example/there"})));
    origin.put("/there/hashicorp/time/versions", Given::Bytes(other.into_bytes()));
    let serve = origin.serve(&ocimod, &format!("dir:{}", ocimod.folder("empty").display()), &[]);
    assert_eq!(document(&serve, "index.json").await, json!({"versions": {}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_allowed_is_looked_up_and_nothing_unless_told() {
    let (ocimod, registry) = store();
    let origin = origin(&ocimod);
    let serve = origin.serve(&ocimod, &registry, &[]);
    let wrong = ["registry.opentofu.org/hashicorp/other", "elsewhere.example/hashicorp/time"];
    for path in wrong {
        assert_eq!(get(&serve, &format!("/v1/mirror/{path}/index.json")).await.status(), 404, "{path}");
        assert_eq!(get(&serve, &format!("/v1/mirror/{path}/1.0.0.json")).await.status(), 404, "{path}");
    }
    let off = origin.serve_with(&ocimod, &[], &["--registry", &registry]);
    for file in ["index.json", "1.0.0.json", "terraform-provider-time_1.0.0_linux_amd64.zip"] {
        assert_eq!(status(&off, file).await, 404, "{file}");
    }
    assert_eq!(origin.all_asked(), Vec::<String>::new());
    for (words, said) in [
        (&["--mirror-upstream"][..], "which providers"),
        (&["--mirror-allow", "a.example/b/*"], "--mirror-upstream"),
        (&["--mirror-upstream", "--mirror-allow", "A B"], "--mirror-allow"),
        (&["--mirror-upstream", "--mirror-allow", "*/hashicorp/*"], "names no host"),
    ] {
        let all = ["serve", "--listen", "127.0.0.1:0", "--registry", &registry];
        let answer = ocimod.run(all.into_iter().chain(words.iter().copied())).fails_with(2);
        assert!(answer.stderr.contains(said), "{}", answer.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_a_provider_has_nothing_fetched() {
    let (ocimod, registry) = store();
    let origin = origin(&ocimod);
    let token = |name: &str, repositories: &str| {
        let words = ["token", "new", name, "--allow", "read", "--repositories", repositories];
        let answer = ocimod.run(words.into_iter().chain(["--access", "access.toml"])).success();
        format!("Bearer {}", answer.stdout.trim_end())
    };
    let ours = token("ours", "providers/registry.opentofu.org/hashicorp/*");
    let theirs = token("theirs", "acme/*");
    let serve = origin.serve(&ocimod, &registry, &["--access", "access.toml"]);
    let with = async |token: &str, file: &str| {
        let request = reqwest::Client::new().get(format!("http://{}{MIRROR}/{file}", serve.address));
        request.header("authorization", token).send().await.unwrap()
    };
    let zip = "terraform-provider-time_1.0.0_linux_amd64.zip";
    for file in ["index.json", "1.0.0.json", zip] {
        assert_eq!(with("Bearer wrong", file).await.status(), 401, "{file}");
        assert_eq!(with(&theirs, file).await.status(), 404, "{file}");
    }
    assert_eq!(get(&serve, &format!("{MIRROR}/{zip}")).await.status(), 404);
    assert_eq!(origin.all_asked(), Vec::<String>::new());
    let archives: Value = with(&ours, "1.0.0.json").await.json().await.unwrap();
    // It stays secret from who may not know of it, also when it is known.
    for file in ["index.json", "1.0.0.json", zip] {
        assert_eq!(with(&theirs, file).await.status(), 404, "{file}");
    }
    let link =
        archives["archives"]["linux_amd64"]["url"].as_str().unwrap().trim_start_matches("./").to_owned();
    // A link lets its bearer in, and is good for its own file and as it is.
    let other = link.replace("linux_amd64", "darwin_arm64");
    for wrong in [other, format!("{link}0")] {
        assert_eq!(get(&serve, &format!("{MIRROR}/{wrong}")).await.status(), 403, "{wrong}");
    }
    let bytes = whole(&serve, &format!("{MIRROR}/{link}")).await;
    assert_eq!(bytes, Ok(std::fs::read(&origin.zips[0]).unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_goes_before_what_the_origin_has() {
    let (ocimod, registry) = store();
    let origin = origin(&ocimod);
    let ours = package(&ocimod.folder("zips"), "time", "1.0.0", "linux_amd64", "ours");
    let old = package(&ocimod.folder("zips"), "time", "0.9.0", "linux_amd64", "");
    provider(&ocimod, &registry, &["push", VERSION, text(&ours)]);
    provider(&ocimod, &registry, &["push", &format!("{TIME}@0.9.0"), text(&old)]);
    let serve = origin.serve(&ocimod, &registry, &[]);
    assert_eq!(document(&serve, "index.json").await, json!({"versions": {"0.9.0": {}, "1.0.0": {}}}));
    let archives = document(&serve, "1.0.0.json").await;
    assert_eq!(archives["archives"]["linux_amd64"]["hashes"], json!([h1(&ours), zh(&ours)]));
    assert_eq!(archives["archives"]["darwin_arm64"]["hashes"], json!([zh(&origin.zips[1])]));
    assert_eq!(whole(&serve, &link(&serve, "linux_amd64").await).await, Ok(std::fs::read(&ours).unwrap()));
    // A version that was withdrawn here is not brought back by its origin.
    ocimod.run(["yank", "--registry", &registry, &format!("provider:{VERSION}")]).success();
    let again = origin.serve(&ocimod, &registry, &[]);
    assert_eq!(document(&again, "index.json").await, json!({"versions": {"0.9.0": {}}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_served_while_the_origin_is_away() {
    let (ocimod, registry) = store();
    let mut origin = origin(&ocimod);
    provider(&ocimod, &registry, &["push", VERSION, text(&origin.zips[1])]);
    let only_ours = async |mut serve: Serve| {
        assert_eq!(document(&serve, "index.json").await, json!({"versions": {"1.0.0": {}}}));
        let archives = document(&serve, "1.0.0.json").await;
        let names: Vec<_> = archives["archives"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, ["darwin_arm64"]);
        assert_eq!(status(&serve, "2.0.0.json").await, 503);
        said(&mut serve, "without its origin");
    };
    for given in [Given::Status(500), Given::Status(429)] {
        origin.put(DISCOVERY, given);
        only_ours(origin.serve(&ocimod, &registry, &[])).await;
    }
    origin.put(DISCOVERY, Given::Announced(10));
    only_ours(origin.serve(&ocimod, &registry, &[])).await;
    origin.stop();
    only_ours(origin.serve(&ocimod, &registry, &[])).await;
    let empty = format!("dir:{}", ocimod.folder("empty").display());
    let serve = origin.serve(&ocimod, &empty, &[]);
    assert_eq!(status(&serve, "index.json").await, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_whole_or_none() {
    let (ocimod, registry) = store();
    let origin = origin(&ocimod);
    // Sums of the first system alone, and the other one's own are not to be had just now.
    let zip = &origin.zips[1];
    let line =
        format!("{}  {}\n", zh(zip).trim_start_matches("zh:"), zip.file_name().unwrap().to_str().unwrap());
    origin.put(SUMS, Given::Bytes(line.clone().into_bytes()));
    origin.put(SIGNATURE, Given::Bytes(origin.key.sign(line.as_bytes())));
    origin.put(&origin.package(0), Given::Status(500));
    let mut serve = origin.serve(&ocimod, &registry, &[]);
    assert_eq!(status(&serve, "1.0.0.json").await, 503, "{}", serve.server.log());
    // Its own document leads to its own list, under a name of its own.
    let mut document_of_its_own = origin.document(0);
    let hex = zh(&origin.zips[0]).trim_start_matches("zh:").to_owned();
    document_of_its_own["filename"] = json!("linux.zip");
    document_of_its_own["shasums_url"] = json!("/files/linux.sums");
    document_of_its_own["shasums_signature_url"] = json!("/files/linux.sig");
    let own = format!("{hex}  linux.zip\n");
    origin.put("/files/linux.sums", Given::Bytes(own.clone().into_bytes()));
    origin.put("/files/linux.sig", Given::Bytes(origin.key.sign(own.as_bytes())));
    origin.put(&origin.package(0), Given::json(&document_of_its_own));
    let serve = origin.serve(&ocimod, &registry, &[]);
    let archives = document(&serve, "1.0.0.json").await;
    assert_eq!(archives["archives"]["linux_amd64"]["hashes"], json!([zh(&origin.zips[0])]));
    assert_eq!(archives["archives"]["darwin_arm64"]["hashes"], json!([zh(&origin.zips[1])]));
    assert_eq!(
        whole(&serve, &link(&serve, "linux_amd64").await).await,
        Ok(std::fs::read(&origin.zips[0]).unwrap())
    );
    // A platform that is listed and not there is left out.
    origin.take(&origin.package(0));
    let serve = origin.serve(&ocimod, &format!("dir:{}", ocimod.folder("empty").display()), &[]);
    let archives = document(&serve, "1.0.0.json").await;
    assert_eq!(archives["archives"].as_object().unwrap().len(), 1);
}

/// The provider is at its origin alone; what clients bring into the registry by asking for it is enough when the origin has gone.
#[test]
fn clients_install_what_only_the_origin_has_and_do_without_the_origin_after() {
    for tofu in clients::tofus() {
        let name = name_of(&tofu);
        let (ocimod, registry) = store();
        let Some(zips) = time_provider(&ocimod.folder("zips")) else { return };
        let [real, windows, _] = zips.each_ref();
        let mut origin = Origin::start(&ocimod, HOST, "hashicorp/time", "0.14.2", zips.to_vec());
        let serve = origin.serve(&ocimod, &registry, &["--tls-self-signed", "tls"]);
        let trusted = ocimod.home.path().join("tls/ca-bundle.pem");
        let folder = ocimod.folder(&name);
        let root = Root::new(&tofu, folder.clone(), &trusted, "~> 0.14", &network_mirror(&serve));
        root.init().success();
        assert_eq!(root.year(), json!(2020), "{name}");
        assert!(root.lock().contains(&h1(real)), "{name}: {}", root.lock());
        let url = format!("https://{}/v1/mirror/", serve.address);
        root.run(&["providers", "lock", "-net-mirror", &url, "-platform=windows_amd64"]).success();
        assert!(root.lock().contains(&h1(windows)), "{name}: {}", root.lock());
        for zip in 0..2 {
            assert_eq!(origin.asked(&origin.zip(zip)), 1, "{name}");
        }
        // What was fetched is stored a moment after it was sent on.
        let inspected = || provider(&ocimod, &registry, &["inspect", "hashicorp/time"]);
        while platforms(&inspected()).len() < 2 {
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(serve);
        origin.stop();
        let serve = origin.serve(&ocimod, &registry, &["--tls-self-signed", "tls"]);
        let lock = root.lock();
        std::fs::remove_dir_all(folder.join(".terraform")).unwrap();
        let root = Root::new(&tofu, folder, &trusted, "~> 0.14", &network_mirror(&serve));
        root.init().success();
        assert_eq!((root.year(), root.lock()), (json!(2020), lock), "{name}");
    }
}
