//! What is refused: every code of the specification ("Error Codes"), names and methods.

use std::collections::BTreeSet;

use ocimod::oci::{Algorithm, Digest, IMAGE_INDEX, IMAGE_MANIFEST};
use serde_json::json;

use super::client::Server;

/// The codes that a request alone can bring about. `UNAUTHORIZED` and `DENIED` are for access rules (`access.rs`) and, the
/// latter, for published versions (`versions.rs`); `TOOMANYREQUESTS` is for limits (`limits.rs`).
const CODES: [&str; 11] = [
    "BLOB_UNKNOWN",
    "BLOB_UPLOAD_INVALID",
    "BLOB_UPLOAD_UNKNOWN",
    "DIGEST_INVALID",
    "MANIFEST_BLOB_UNKNOWN",
    "MANIFEST_INVALID",
    "MANIFEST_UNKNOWN",
    "NAME_INVALID",
    "NAME_UNKNOWN",
    "SIZE_INVALID",
    "UNSUPPORTED",
];

/// Method, target, headers and body of a request; status and code of its refusal.
type Refused<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, u16, &'a str);

pub(super) async fn every_code_of_the_specification(server: &Server) {
    let repository = "errors/codes";
    let missing = Digest::of(b"missing");
    server.push_blob(repository, Algorithm::Sha256, b"{}").await;
    let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [] });
    server.put_manifest(repository, "latest", &index).await.expect(201);
    let upload = server.open_upload(repository).await;
    let entry = json!({ "mediaType": IMAGE_MANIFEST, "digest": missing, "size": 7 });
    let sparse = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [entry] });
    let typed = [("content-type", IMAGE_INDEX)];
    let path = |rest: &str| format!("/v2/{repository}/{rest}");
    let (manifest, blob) = (path("manifests/other"), path(&format!("blobs/{missing}")));
    let sparse = sparse.to_string();
    let other_type = json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "manifests": [] }).to_string();
    let both = json!({ "schemaVersion": 2, "manifests": [], "config": entry, "layers": [] }).to_string();
    let deep = format!("{{\"schemaVersion\":2,\"manifests\":[],\"x\":{}}}", "[".repeat(100_000));
    let requests: &[Refused] = &[
        ("GET", &blob, &[], "", 404, "BLOB_UNKNOWN"),
        ("DELETE", &blob, &[], "", 404, "BLOB_UNKNOWN"),
        ("PATCH", &upload, &[("content-range", "7-9")], "789", 416, "BLOB_UPLOAD_INVALID"),
        ("GET", &path("blobs/uploads/nobody-s"), &[], "", 404, "BLOB_UPLOAD_UNKNOWN"),
        ("GET", &path("blobs/uploads/no!word"), &[], "", 404, "BLOB_UPLOAD_UNKNOWN"),
        ("PUT", &upload, &[], "", 400, "DIGEST_INVALID"),
        ("GET", &path("blobs/sha256:x"), &[], "", 400, "DIGEST_INVALID"),
        ("GET", &path("referrers/latest"), &[], "", 400, "DIGEST_INVALID"),
        ("PUT", &manifest, &typed, &sparse, 400, "MANIFEST_BLOB_UNKNOWN"),
        ("PUT", &manifest, &typed, "{", 400, "MANIFEST_INVALID"),
        ("PUT", &manifest, &typed, "", 400, "MANIFEST_INVALID"),
        ("PUT", &manifest, &typed, "[]", 400, "MANIFEST_INVALID"),
        ("PUT", &manifest, &typed, "{\"schemaVersion\":1,\"manifests\":[]}", 400, "MANIFEST_INVALID"),
        ("PUT", &manifest, &typed, &other_type, 400, "MANIFEST_INVALID"),
        ("PUT", &manifest, &typed, &both, 400, "MANIFEST_INVALID"),
        ("PUT", &manifest, &typed, &deep, 400, "MANIFEST_INVALID"),
        ("PUT", &manifest, &[], &sparse, 400, "MANIFEST_INVALID"),
        ("PUT", &manifest, &[("content-type", "text/html")], "{}", 400, "MANIFEST_INVALID"),
        ("PUT", &path("manifests/-"), &typed, "{}", 400, "MANIFEST_INVALID"),
        ("GET", &path("manifests/missing"), &[], "", 404, "MANIFEST_UNKNOWN"),
        ("GET", "/v2/UPPER/tags/list", &[], "", 400, "NAME_INVALID"),
        ("GET", "/v2/errors/nobody/tags/list", &[], "", 404, "NAME_UNKNOWN"),
        ("PATCH", &upload, &[("content-range", "0-9")], "789", 400, "SIZE_INVALID"),
        ("POST", &path("tags/list"), &[], "", 405, "UNSUPPORTED"),
        ("GET", "/v2/nothing", &[], "", 404, "UNSUPPORTED"),
    ];
    let mut seen = BTreeSet::new();
    for (method, target, headers, body, status, code) in requests {
        let refused = server.send(method, target, headers, *body).await.fails(*status, code);
        assert_eq!(refused.header("docker-distribution-api-version"), "registry/2.0", "{target}");
        seen.insert(*code);
        if *method == "GET" {
            // HEAD has the same status, and no body.
            server.head(target).await.expect(*status);
        }
    }
    assert_eq!(seen, BTreeSet::from(CODES));
    server.head(&manifest).await.expect(404);
    server.delete(&upload).await.expect(204);
    assert_eq!(server.tags(repository).await, json!(["latest"]), "what was refused has left nothing");
}

pub(super) async fn names_that_are_none(server: &Server) {
    let digest = Digest::of(b"x");
    let long = "a".repeat(256);
    for name in [
        "UPPER", "a/Upper", "-a", "a-", "a..b", "a___b", "_a", ".a", "a/_oci", "a//b", "a/-", "a%2Fb",
        "a%20b", "a@b", "a:b", &long,
    ] {
        for (method, rest) in [
            ("GET", "tags/list".to_owned()),
            ("GET", "manifests/latest".to_owned()),
            ("PUT", "manifests/latest".to_owned()),
            ("GET", format!("blobs/{digest}")),
            ("POST", "blobs/uploads/".to_owned()),
            ("GET", format!("referrers/{digest}")),
        ] {
            let target = format!("/v2/{name}/{rest}");
            server.send(method, &target, &[], "").await.fails(400, "NAME_INVALID");
        }
    }
    let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [] });
    let longest = format!("errors/{}", "a".repeat(248));
    for name in
        ["0", "a--b", "a__b", "a.b-c_d", "tags", "blobs/uploads", "manifests/tags/list", "v2", &longest]
    {
        server.put_manifest(name, "latest", &index).await.expect(201);
        assert_eq!(server.tags(name).await, json!(["latest"]), "{name}");
        server.delete(&format!("/v2/{name}/manifests/latest")).await.expect(202);
    }
}

pub(super) async fn methods_that_are_none(server: &Server) {
    let digest = Digest::of(b"x");
    for (target, allow) in [
        ("/v2/".to_owned(), "GET, HEAD"),
        ("/v2/_catalog".to_owned(), "GET, HEAD"),
        ("/v2/errors/a/tags/list".to_owned(), "GET, HEAD"),
        (format!("/v2/errors/a/referrers/{digest}"), "GET, HEAD"),
        ("/v2/errors/a/manifests/latest".to_owned(), "GET, HEAD, PUT, DELETE"),
        (format!("/v2/errors/a/blobs/{digest}"), "GET, HEAD, DELETE"),
        ("/v2/errors/a/blobs/uploads/".to_owned(), "POST"),
        ("/v2/errors/a/blobs/uploads/u".to_owned(), "GET, HEAD, PATCH, PUT, DELETE"),
    ] {
        for method in ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "BREW"] {
            if allow.split(", ").any(|allowed| allowed == method) {
                continue;
            }
            let refused = server.send(method, &target, &[], "").await.expect(405);
            assert_eq!(refused.header("allow"), allow, "{method} {target}");
            if method != "HEAD" {
                refused.fails(405, "UNSUPPORTED");
            }
        }
    }
}
