//! The base, and lists: tags, repositories, referrers (specification, "Determining Support", "Listing Tags", "Listing Referrers").

use ocimod::oci::{Algorithm, Digest, IMAGE_INDEX, IMAGE_MANIFEST};
use serde_json::{Value, json};

use super::client::Server;

pub(super) async fn the_base(server: &Server) {
    for target in ["/v2/", "/v2"] {
        let got = server.get(target).await.expect(200);
        assert_eq!(got.header("docker-distribution-api-version"), "registry/2.0");
        assert_eq!(got.header("x-content-type-options"), "nosniff");
        assert!(!got.header("x-request-id").is_empty());
        server.head(target).await.expect(200);
    }
}

pub(super) async fn an_empty_repository(server: &Server) {
    let repository = "lists/empty";
    let digest = Digest::of(b"nothing");
    for _ in 0..2 {
        server.get(&format!("/v2/{repository}/tags/list")).await.fails(404, "NAME_UNKNOWN");
        let referrers = server.get(&format!("/v2/{repository}/referrers/{digest}")).await.expect(200);
        assert_eq!(referrers.header("content-type"), IMAGE_INDEX);
        let nothing = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [] });
        assert_eq!(referrers.json(), nothing);
        referrers.has_no("link");
        server.get(&format!("/v2/{repository}/referrers/sha256:none")).await.fails(400, "DIGEST_INVALID");
    }
    let all = server.get("/v2/_catalog").await.expect(200).json();
    assert!(!all["repositories"].as_array().unwrap().contains(&json!(repository)), "to ask makes nothing");
}

/// Pushes an index of nothing that is like no other.
async fn push(server: &Server, repository: &str, reference: &str, number: usize) {
    let index = json!({
        "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [], "annotations": { "number": number.to_string() },
    });
    server.put_manifest(repository, reference, &index).await.expect(201);
}

/// Goes through the pages of a list; answers all entries, and how many pages there were.
async fn pages(server: &Server, first: &str, entries: &str, most: usize) -> (Vec<Value>, usize) {
    let (mut seen, mut count, mut target) = (Vec::new(), 0, first.to_owned());
    loop {
        let page = server.get(&target).await.expect(200);
        let listed = page.json()[entries].as_array().unwrap().clone();
        assert!(listed.len() <= most, "{target}: {} entries", listed.len());
        let next = page.next();
        assert!(next.is_none() || listed.len() == most, "{target}: a short page goes on");
        seen.extend(listed);
        count += 1;
        match next {
            // A path without a host: right behind any proxy.
            Some(next) => assert!(next.starts_with("/v2/") && next != target, "{next}"),
            None => return (seen, count),
        }
        target = page.next().unwrap();
        assert!(count < 1000, "{target}: there is no end");
    }
}

pub(super) async fn tags_in_pages(server: &Server) {
    let repository = "lists/tags";
    // In the order of ASCII, as nobody pushes them.
    let sorted = ["1.0.0", "1.10.0", "1.2.0", "A", "Z", "_", "a", "a-b", "a.b", "a_b", "b"];
    for index in [3, 9, 0, 7, 10, 1, 8, 2, 6, 4, 5] {
        push(server, repository, sorted[index], index).await;
    }
    assert_eq!(server.tags(repository).await, json!(sorted));
    let list = format!("/v2/{repository}/tags/list");
    for count in 1..=sorted.len() + 1 {
        let (seen, pages) = pages(server, &format!("{list}?n={count}"), "tags", count).await;
        assert_eq!(json!(seen), json!(sorted), "by {count}");
        let least = sorted.len().div_ceil(count);
        assert!(
            pages == least || (!server.knows_last_page && pages == least + 1),
            "{pages} pages by {count}"
        );
    }
    let ask = async |query: &str| server.get(&format!("{list}?{query}")).await.expect(200);
    for (query, expected) in [
        ("last=a-b", &["a.b", "a_b", "b"][..]),
        ("last=a-", &["a-b", "a.b", "a_b", "b"]),
        ("last=zzz", &[]),
        ("last=", &sorted),
        ("last=0", &sorted),
        ("n=2&last=A", &["Z", "_"]),
        ("last=A&n=2", &["Z", "_"]),
        ("n=0", &[]),
        ("n=0&last=A", &[]),
        ("n=1000000", &sorted),
    ] {
        assert_eq!(ask(query).await.json(), json!({ "name": repository, "tags": expected }), "{query}");
    }
    ask("n=0").await.has_no("link");
    ask("last=a").await.has_no("link");
    if !server.is_relay {
        assert_eq!(ask("n=2").await.next().unwrap(), format!("{list}?n=2&last=1.10.0"));
    }
    for wrong in ["-1", "x", "1.5", "99999999999999999999999"] {
        server.get(&format!("{list}?n={wrong}")).await.expect(400);
    }
    server.head(&list).await.expect(200);
}

pub(super) async fn repositories_in_pages(server: &Server) {
    // In the order of the bytes `-` comes before `.` and both before `/`, whatever the folders are.
    let sorted = ["a", "a-b", "a.b", "a/b", "a/b/c", "b"].map(|name| format!("lists/catalog/{name}"));
    for (number, repository) in sorted.iter().rev().enumerate() {
        push(server, repository, "latest", number).await;
    }
    for count in [1, 2, 5, 1000] {
        let first = format!("/v2/_catalog?n={count}&last=lists/catalog");
        let (mut seen, _) = pages(server, &first, "repositories", count).await;
        seen.retain(|name| name.as_str().is_some_and(|name| name.starts_with("lists/catalog/")));
        assert_eq!(json!(seen), json!(sorted), "by {count}");
    }
    let none = server.get("/v2/_catalog?n=0").await.expect(200);
    assert_eq!(none.json(), json!({ "repositories": [] }));
    none.has_no("link");
    server.get("/v2/_catalog?n=x").await.expect(400);
}

/// An image of nothing that refers to another; answers its descriptor in a list of referrers.
async fn refer(server: &Server, repository: &str, subject: &Value, kind: &str, number: usize) -> Value {
    if number == 0 {
        server.push_blob(repository, Algorithm::Sha256, b"{}").await;
    }
    let config =
        json!({ "mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest::of(b"{}"), "size": 2 });
    let image = json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "artifactType": kind, "config": config, "layers": [],
        "subject": subject, "annotations": { "number": number.to_string() },
    });
    let digest = Digest::of(image.to_string().as_bytes());
    let pushed = server.put_manifest(repository, digest.as_str(), &image).await.expect(201);
    assert_eq!(pushed.header("oci-subject"), subject["digest"].as_str().unwrap());
    json!({
        "mediaType": IMAGE_MANIFEST, "digest": digest, "size": image.to_string().len(), "artifactType": kind,
        "annotations": { "number": number.to_string() },
    })
}

fn by_digest(mut descriptors: Vec<Value>) -> Value {
    descriptors.sort_by(|one, other| one["digest"].as_str().cmp(&other["digest"].as_str()));
    json!(descriptors)
}

pub(super) async fn referrers_in_pages(server: &Server) {
    let repository = "lists/referrers";
    let subject = json!({ "mediaType": IMAGE_MANIFEST, "digest": Digest::of(b"the subject"), "size": 11 });
    let mut expected = Vec::new();
    // More than one page has.
    for number in 0..104 {
        let kind =
            if number % 3 == 0 { "application/vnd.example.a+json" } else { "application/vnd.example.b" };
        expected.push(refer(server, repository, &subject, kind, number).await);
    }
    let target = format!("/v2/{repository}/referrers/{}", subject["digest"].as_str().unwrap());
    for (query, most) in [("", 100), ("?n=50", 50), ("?n=104", 100), ("?n=1000", 100)] {
        let (seen, _) = pages(server, &format!("{target}{query}"), "manifests", most).await;
        assert_eq!(by_digest(seen), by_digest(expected.clone()), "{query}");
    }
    // Whoever asks for one type gets the pages of that type, and each of them says so.
    let of_a = expected.iter().filter(|listed| listed["artifactType"] == "application/vnd.example.a+json");
    let of_a: Vec<_> = of_a.cloned().collect();
    for plus in ["%2B", "+"] {
        let mut next = Some(format!("{target}?artifactType=application%2Fvnd.example.a{plus}json&n=15"));
        let mut seen = Vec::new();
        while let Some(target) = next {
            let page = server.get(&target).await.expect(200);
            assert_eq!(page.header("oci-filters-applied"), "artifactType", "{target}");
            seen.extend(page.json()["manifests"].as_array().unwrap().clone());
            next = page.next();
        }
        assert_eq!(by_digest(seen), by_digest(of_a.clone()));
    }
    server.head(&target).await.expect(200);
}

/// Where a registry has no list of referrers, clients keep one in an index, under a tag that is made of the subject's digest. What comes
/// from there, by a tool that copies tags, is found here as if it had been pushed here.
pub(super) async fn referrers_by_the_tag_of_their_subject(server: &Server) {
    for (name, subject) in [
        ("sha256", Digest::of(b"a subject by sha256")),
        ("sha512", super::client::digest(Algorithm::Sha512, b"a subject by sha512")),
    ] {
        let repository = format!("lists/fallback/{name}");
        let tag = format!("{name}-{}", &subject.hex()[..64]);
        let subject = json!({ "mediaType": IMAGE_MANIFEST, "digest": subject, "size": 19 });
        let mut expected = Vec::new();
        for number in 0..3 {
            expected.push(
                refer(server, &repository, &subject, "application/vnd.example.signature", number).await,
            );
            let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": expected });
            server.put_manifest(&repository, &tag, &index).await.expect(201);
        }
        let target = format!("/v2/{repository}/referrers/{}", subject["digest"].as_str().unwrap());
        let listed = async || server.get(&target).await.expect(200).json()["manifests"].clone();
        assert_eq!(listed().await, by_digest(expected.clone()), "each of them once, and the index is none");
        let some =
            server.get(&format!("{target}?artifactType=application/vnd.example.signature")).await.expect(200);
        assert_eq!(some.json()["manifests"], by_digest(expected.clone()));
        // The index under the tag is a manifest as others are; what it names stays.
        assert_eq!(server.tags(&repository).await, json!([tag]));
        server.delete(&format!("/v2/{repository}/manifests/{tag}")).await.expect(202);
        assert_eq!(listed().await, by_digest(expected));
    }
}
