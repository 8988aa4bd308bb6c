//! What a server takes at most: what its options say, what is answered beyond it, and what is there afterwards.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ocimod::oci::{Algorithm, Digest, IMAGE_MANIFEST};
use serde_json::{Value, json};

use crate::specification::client::{Body, Server, bytes};
use crate::support::answer::Answer;
use crate::support::ocimod::{Ocimod, Serve};

/// Far longer than anything here takes, also where the machine is busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server over the folder `store`, with these options.
fn serve(ocimod: &Ocimod, options: &[&str]) -> (Serve, Server) {
    let store = format!("dir:{}", ocimod.folder("store").display());
    let serve = ocimod.serve([&["--registry", &store], options].concat());
    let server = Server::open(&serve.address);
    (serve, server)
}

fn finish(location: &str, content: &[u8]) -> String {
    format!("{location}?digest={}", Digest::of(content))
}

/// Asks until the answer has that status.
async fn until(status: u16, mut ask: impl AsyncFnMut() -> Answer) -> Answer {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = ask().await;
        if answer.status == status {
            return answer;
        }
        assert!(Instant::now() < end, "it stays {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn files_in(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_has_a_limit_whichever_way_it_comes() {
    let ocimod = Ocimod::new();
    let (_serve, server) = serve(&ocimod, &["--max-blob", "1KiB"]);
    let (largest, larger) = (bytes("largest", 1024), bytes("larger", 1025));
    let is_refused = |answer: Answer| {
        let refused = answer.fails(413, "SIZE_INVALID");
        assert_eq!(refused.json()["errors"][0]["detail"], json!({ "limit": 1024 }));
    };
    let streamed = |content: &[u8]| Body::Streamed(vec![Bytes::copy_from_slice(content)]);
    let target = format!("/v2/acme/a/blobs/uploads/?digest={}", Digest::of(&larger));
    for body in [Body::from(&larger), streamed(&larger)] {
        is_refused(server.send("POST", &target, &[], body.clone()).await);
        let location = server.open_upload("acme/a").await;
        is_refused(server.send("PUT", &finish(&location, &larger), &[], body.clone()).await);
        is_refused(server.send("PATCH", &location, &[], body).await);
        server.delete(&location).await.expect(204);
    }
    let missing = format!("/v2/acme/a/blobs/{}", Digest::of(&larger));
    server.get(&missing).await.fails(404, "BLOB_UNKNOWN");
    let uploads = ocimod.home.path().join("store/_uploads");
    assert_eq!(files_in(&uploads), 0, "nothing of it is left");

    // What arrived stays, and the upload goes on with what fits.
    let location = server.open_upload("acme/a").await;
    server.send("PATCH", &location, &[], &largest[..1000]).await.expect(202);
    for range in [None, Some(("content-range", "1000-1024"))] {
        is_refused(server.send("PATCH", &location, range.as_slice(), &largest[..25]).await);
        assert_eq!(server.get(&location).await.expect(204).header("range"), "0-999");
    }
    // A range far off is out of order, and not too large.
    let far = [("content-range", "99999999999990-99999999999999")];
    server.send("PATCH", &location, &far, "0123456789").await.fails(416, "BLOB_UPLOAD_INVALID");
    server.send("PUT", &finish(&location, &largest), &[], &largest[1000..]).await.expect(201);
    let target = format!("/v2/acme/a/blobs/uploads/?digest={}", Digest::of(&largest));
    server.send("POST", &target, &[], streamed(&largest)).await.expect(201);
    // A manifest has a limit of its own.
    let config = server.push_blob("acme/a", Algorithm::Sha256, b"{}").await;
    server.put_manifest("acme/a", "v1.0.0", &image(&config, &[], &"x".repeat(2000))).await.expect(201);
}

fn image(config: &Value, layers: &[Value], says: &str) -> Value {
    json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": layers, "annotations": { "says": says },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_says_so_and_loses_nothing() {
    let ocimod = Ocimod::new();
    let (_serve, server) = serve(&ocimod, &["--quota", "100KiB"]);
    let layer = server.push_blob("acme/a", Algorithm::Sha256, &bytes("a layer", 60_000)).await;
    let config = server.push_blob("acme/a", Algorithm::Sha256, b"{}").await;
    let published = image(&config, &[layer], "published");
    server.put_manifest("acme/a", "v1.0.0", &published).await.expect(201);

    let is_full = |answer: Answer| {
        let full = answer.fails(507, "UNKNOWN");
        let message = full.json()["errors"][0]["message"].as_str().unwrap().to_owned();
        assert!(!message.contains('/') && !message.contains("quota"), "{message}");
    };
    let more = bytes("more", 50_000);
    let target = format!("/v2/acme/b/blobs/uploads/?digest={}", Digest::of(&more));
    for body in [Body::from(&more), Body::Streamed(more.chunks(1000).map(Bytes::copy_from_slice).collect())] {
        is_full(server.send("POST", &target, &[], body).await);
    }
    let uploads = ocimod.home.path().join("store/_uploads");
    assert_eq!(files_in(&uploads), 0);
    // In pieces: what fitted stays.
    let location = until(202, async || server.send("POST", "/v2/acme/b/blobs/uploads/", &[], "").await).await;
    let location = location.header("location").to_owned();
    until(202, async || {
        server.send("PATCH", &location, &[("content-range", "0-29999")], &more[..30_000]).await
    })
    .await;
    is_full(server.send("PATCH", &location, &[("content-range", "30000-49999")], &more[30_000..]).await);
    let status = server.get(&location).await.expect(204);
    let received: usize = status.header("range").strip_prefix("0-").unwrap().parse::<usize>().unwrap() + 1;
    assert!((30_000..50_000).contains(&received), "{received}");
    let large = image(&config, &[], &"x".repeat(40_000));
    is_full(server.put_manifest("acme/a", "v2.0.0", &large).await);

    // Whoever reads notices nothing; what is there can be pushed again, mounted and deleted.
    assert_eq!(server.tags("acme/a").await, json!(["v1.0.0"]));
    assert_eq!(server.get("/v2/acme/a/manifests/v1.0.0").await.expect(200).body, published.to_string());
    server.put_manifest("acme/a", "v1.0.0", &published).await.expect(201);
    let mount = format!("/v2/acme/c/blobs/uploads/?mount={}&from=acme/a", config["digest"].as_str().unwrap());
    server.send("POST", &mount, &[], "").await.expect(201);
    let by_digest = format!("/v2/acme/a/manifests/{}", Digest::of(published.to_string().as_bytes()));
    server.delete(&by_digest).await.expect(202);
    ocimod.run(["store", "gc", "--grace", "0", "store"]).success();
    // There is room now, which the server notices, and the upload goes on where it stands.
    let range = format!("{received}-49999");
    until(202, async || {
        server.send("PATCH", &location, &[("content-range", &range)], &more[received..]).await
    })
    .await;
    server.send("PUT", &finish(&location, &more), &[], "").await.expect(201);
    ocimod.run(["store", "verify", "store"]).success();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_servers_quota_and_the_folders_the_smaller_counts() {
    for (own, folders, room) in
        [("50KiB", None, 50), ("50KiB", Some(20), 20), ("20KiB", Some(50), 20), ("1KiB", Some(50), 1)]
    {
        let ocimod = Ocimod::new();
        drop(serve(&ocimod, &[]));
        if let Some(folders) = folders {
            let format = json!({ "formatVersion": 1, "quota": folders * 1024 });
            std::fs::write(ocimod.folder("store").join("ocimod.json"), format.to_string()).unwrap();
        }
        let (_serve, server) = serve(&ocimod, &["--quota", own]);
        let fits = bytes("fits", room * 1024);
        let target = |content: &[u8]| format!("/v2/acme/a/blobs/uploads/?digest={}", Digest::of(content));
        let over = bytes("does not", room * 1024 + 1);
        server.send("POST", &target(&over), &[], &over).await.fails(507, "UNKNOWN");
        // What was refused takes no room, as soon as that is looked at again.
        until(201, async || server.send("POST", &target(&fits), &[], &fits).await).await;
        // Who writes to the folder itself is bound by what the folder says.
        let module = ocimod.folder("module");
        std::fs::write(module.join("main.tf"), "output \"a\" {\n  value = 1\n}\n").unwrap();
        let pushed = ocimod.run(["push", "--registry", "dir:store", "module", "acme/module/null@1.0.0"]);
        let is_bound = folders.is_some_and(|folders| folders <= room);
        assert_eq!(pushed.status == Some(0), !is_bound, "{own} {folders:?}: {pushed:?}");
        assert_eq!(pushed.stderr.contains("quota"), is_bound, "{pushed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_have_to_wait_for_each_other_all_come_through() {
    let ocimod = Ocimod::new();
    let (_serve, server) = serve(&ocimod, &["--max-uploads", "1"]);
    let pushes: Vec<_> = (0..16)
        .map(|number| {
            let server = server.clone();
            tokio::spawn(async move {
                server.push_blob("acme/a", Algorithm::Sha256, &bytes(&number.to_string(), 100_000)).await
            })
        })
        .collect();
    for push in pushes {
        push.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_never_ends_uploads_cannot_open_them_without_end() {
    let ocimod = Ocimod::new();
    let (_serve, server) = serve(&ocimod, &[]);
    let location = server.open_upload("acme/a").await;
    // As if somebody had opened them.
    let uploads = ocimod.home.path().join("store/_uploads");
    for number in 1..10_000 {
        std::fs::write(uploads.join(format!("0123456789abcdef-{number}")), "").unwrap();
    }
    for target in [
        "/v2/acme/a/blobs/uploads/".to_owned(),
        format!("/v2/acme/a/blobs/uploads/?digest={}", Digest::of(b"x")),
    ] {
        let refused = server.send("POST", &target, &[], "x").await.fails(429, "TOOMANYREQUESTS");
        assert_eq!(refused.header("retry-after"), "5");
    }
    // One that is open goes on, and its end makes room for another.
    server.send("PUT", &finish(&location, b"x"), &[], "x").await.expect(201);
    server.open_upload("acme/a").await;
}

#[test]
fn limits_that_are_none_are_refused_at_the_start() {
    let ocimod = Ocimod::new();
    for option in ["--max-blob=0", "--max-blob=1.5GiB", "--max-uploads=0", "--quota=much", "--quota=-1"] {
        let refused = ocimod.run(["serve", "--temporary", "--listen", "127.0.0.1:0", option]).fails_with(2);
        let name = option.split('=').next().unwrap();
        assert!(refused.stderr.contains(name), "{}", refused.stderr);
    }
    // A repository's file does not say how much of the machine is taken.
    std::fs::create_dir(ocimod.home.path().join(".git")).unwrap();
    for key in ["max-blob = '1TiB'", "max-uploads = 5000", "quota = '1TiB'"] {
        std::fs::write(ocimod.home.path().join("ocimod.toml"), key).unwrap();
        let refused = ocimod.run(["serve", "--temporary", "--listen", "127.0.0.1:0"]).fails_with(2);
        assert!(refused.stderr.contains("cannot be set in the file of a repository"), "{}", refused.stderr);
    }
}

/// Sends all of a request before it reads a word, as simple clients do; answers what came back.
fn blurt(address: &str, request: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let headers =
        format!("Host: {address}\r\nContent-Type: {IMAGE_MANIFEST}\r\nContent-Length: {}\r\n", body.len());
    stream.write_all(format!("{request} HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
    // Where the server hangs up, what it has said may still be there to be read.
    let _ = body.chunks(64 * 1024).try_for_each(|piece| stream.write_all(piece));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_too_much_reads_the_refusal_and_not_the_end_of_the_connection() {
    let ocimod = Ocimod::new();
    let (serve, _) = serve(&ocimod, &["--max-blob", "1MiB"]);
    let large = bytes("large", 8 << 20);
    for _ in 0..10 {
        for request in [
            "PUT /v2/acme/a/manifests/v1.0.0".to_owned(),
            format!("POST /v2/acme/a/blobs/uploads/?digest={}", Digest::of(&large)),
        ] {
            let (address, large) = (serve.address.clone(), large.clone());
            let answer =
                tokio::task::spawn_blocking(move || blurt(&address, &request, &large)).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 413 "), "{answer:?}");
            assert!(answer.to_lowercase().contains("connection: close\r\n"), "{answer}");
            assert!(answer.ends_with("}]}"), "{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrived_before_a_connection_broke_stays_where_somebody_knows_of_it() {
    let ocimod = Ocimod::new();
    let (serve, server) = serve(&ocimod, &[]);
    let content = bytes("broken off", 100_000);
    let location = server.open_upload("acme/a").await;
    for head in [
        format!("PATCH {location}"),
        format!("POST /v2/acme/a/blobs/uploads/?digest={}", Digest::of(&content)),
    ] {
        let mut stream = TcpStream::connect(&serve.address).unwrap();
        let head = format!("{head} HTTP/1.1\r\nHost: {}\r\nContent-Length: 100000\r\n\r\n", serve.address);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&content[..40_000]).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    while server.get(&location).await.expect(204).header("range") != "0-39999" {
        assert!(Instant::now() < end, "what came has not arrived");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Nobody could go on with the other one.
    let uploads = ocimod.home.path().join("store/_uploads");
    while files_in(&uploads) != 1 {
        assert!(Instant::now() < end, "{} files", files_in(&uploads));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until(202, async || {
        server.send("PATCH", &location, &[("content-range", "40000-99999")], &content[40_000..]).await
    })
    .await;
    server.send("PUT", &finish(&location, &content), &[], "").await.expect(201);
}
