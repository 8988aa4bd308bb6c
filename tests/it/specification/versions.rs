//! Versions that were published (docs/artifact-format.md, "A version does not change"): what a PUT is answered with, and what DELETE frees.

use ocimod::oci::{Algorithm, Digest, IMAGE_INDEX, IMAGE_MANIFEST};
use serde_json::{Value, json};

use super::client::Server;

/// A manifest of nothing that is like no other.
async fn image(server: &Server, repository: &str, says: &str) -> Value {
    let config = server.push_blob(repository, Algorithm::Sha256, b"{}").await;
    json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [], "annotations": { "says": says },
    })
}

fn digest_of(manifest: &Value) -> Digest {
    Digest::of(manifest.to_string().as_bytes())
}

async fn points_at(server: &Server, repository: &str, tag: &str, manifest: &Value) {
    let head = server.head(&format!("/v2/{repository}/manifests/{tag}")).await.expect(200);
    assert_eq!(head.header("docker-content-digest"), digest_of(manifest).as_str(), "{tag}");
}

/// A push of something else is refused, and the answer says what is there.
async fn is_refused(server: &Server, repository: &str, reference: &str, manifest: &Value, there: &Value) {
    let refused = server.put_manifest(repository, reference, manifest).await.fails(403, "DENIED");
    if !server.is_relay {
        assert_eq!(refused.json()["errors"][0]["detail"], json!({ "digest": digest_of(there) }));
    }
    refused.has_no("oci-tag");
}

pub(super) async fn a_published_version_does_not_change(server: &Server) {
    let repository = "versions/published";
    let (one, two) = (image(server, repository, "one").await, image(server, repository, "two").await);
    let versions = ["v1.0.0", "2.0.0", "v3.0.0-rc.1", "v4.0.0_build.5", "bundle.v1.0.0"];
    for version in versions {
        server.put_manifest(repository, version, &one).await.expect(201);
    }
    server.put_manifest(repository, "latest", &one).await.expect(201);
    for version in versions {
        // The same again is a success that changes nothing.
        server.put_manifest(repository, version, &one).await.expect(201);
        is_refused(server, repository, version, &two, &one).await;
        // Nor does it change on the way of another tag, which stays where it is too.
        let by_digest = digest_of(&two);
        for query in
            [format!("tag={version}"), format!("tag=latest&tag={version}"), format!("tag=new&tag={version}")]
        {
            is_refused(server, repository, &format!("{by_digest}?{query}"), &two, &one).await;
        }
        points_at(server, repository, version, &one).await;
    }
    points_at(server, repository, "latest", &one).await;
    server.head(&format!("/v2/{repository}/manifests/new")).await.expect(404);
    // Without a tag it is nobody's version.
    server.put_manifest(repository, digest_of(&two).as_str(), &two).await.expect(201);
    server.put_manifest(repository, "latest", &two).await.expect(201);
}

pub(super) async fn the_other_spelling_of_a_version_is_the_same(server: &Server) {
    let repository = "versions/spelling";
    let (one, two) = (image(server, repository, "one").await, image(server, repository, "two").await);
    for (first, second) in [("v1.0.0", "1.0.0"), ("2.0.0", "v2.0.0"), ("bundle.v3.0.0", "bundle.3.0.0")] {
        server.put_manifest(repository, first, &one).await.expect(201);
        is_refused(server, repository, second, &two, &one).await;
        server.head(&format!("/v2/{repository}/manifests/{second}")).await.expect(404);
        server.put_manifest(repository, second, &one).await.expect(201);
        is_refused(server, repository, first, &two, &one).await;
    }
}

pub(super) async fn an_index_of_a_version_may_grow(server: &Server) {
    let repository = "versions/index";
    let mut entries = Vec::new();
    for os in ["linux", "darwin", "windows"] {
        let child = image(server, repository, os).await;
        server.put_manifest(repository, digest_of(&child).as_str(), &child).await.expect(201);
        entries.push(json!({
            "mediaType": IMAGE_MANIFEST, "digest": digest_of(&child), "size": child.to_string().len(),
            "platform": { "os": os, "architecture": "amd64" },
        }));
    }
    let index =
        |entries: &[Value]| json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": entries });
    server.put_manifest(repository, "v1.0.0", &index(&entries[..1])).await.expect(201);
    server.put_manifest(repository, "v1.0.0", &index(&entries[..2])).await.expect(201);
    let there = index(&entries[..2]);
    // A platform is taken away, or is another one; or the whole is something else.
    let mut changed = entries.clone();
    changed[0]["digest"] = entries[2]["digest"].clone();
    changed[0]["size"] = entries[2]["size"].clone();
    for other in [index(&entries[..1]), index(&entries[1..]), index(&[]), index(&changed)] {
        is_refused(server, repository, "v1.0.0", &other, &there).await;
    }
    let kind = "application/vnd.example";
    let typed =
        json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "artifactType": kind, "manifests": entries });
    is_refused(server, repository, "v1.0.0", &typed, &there).await;
    is_refused(server, repository, "v1.0.0", &image(server, repository, "an image").await, &there).await;
    points_at(server, repository, "v1.0.0", &there).await;
    server.put_manifest(repository, "v1.0.0", &index(&entries)).await.expect(201);
}

pub(super) async fn what_is_no_version_moves(server: &Server) {
    let repository = "versions/floating";
    let (one, two) = (image(server, repository, "one").await, image(server, repository, "two").await);
    // A mark that withdraws a version comes and goes too.
    for tag in [
        "latest",
        "v1",
        "1.2",
        "v1.0.0.0",
        "v01.0.0",
        "vpc-v1.0.0",
        "sha256-abc",
        "yanked.v1.0.0",
        "bundle.v1",
    ] {
        for manifest in [&one, &two, &one] {
            server.put_manifest(repository, tag, manifest).await.expect(201);
            points_at(server, repository, tag, manifest).await;
        }
    }
}

pub(super) async fn a_deleted_version_is_free(server: &Server) {
    let repository = "versions/deleted";
    let (one, two) = (image(server, repository, "one").await, image(server, repository, "two").await);
    for by_digest in [false, true] {
        for tag in ["v1.0.0", "1.0.0"] {
            server.put_manifest(repository, tag, &one).await.expect(201);
        }
        if by_digest {
            server.delete(&format!("/v2/{repository}/manifests/{}", digest_of(&one))).await.expect(202);
        } else {
            server.delete(&format!("/v2/{repository}/manifests/v1.0.0")).await.expect(202);
            // The version is there still, in its other spelling.
            is_refused(server, repository, "v1.0.0", &two, &one).await;
            server.delete(&format!("/v2/{repository}/manifests/1.0.0")).await.expect(202);
        }
        server.put_manifest(repository, "v1.0.0", &two).await.expect(201);
        is_refused(server, repository, "1.0.0", &one, &two).await;
        server.delete(&format!("/v2/{repository}/manifests/v1.0.0")).await.expect(202);
    }
}
