//! The distribution API over HTTP, point by point, against every kind of server that there is.
//!
//! What the specification says (distribution specification 1.1) and what its own suite asks for, one point a function, and stricter:
//! every header, every code, what stays after a refusal, the order of lists. `docs/conformance.md` puts the points of the official
//! suite beside these, and a test holds it to that. A point makes repositories of its own, so that all of them run on one server.

mod blobs;
pub(crate) mod client;
mod errors;
mod lists;
mod manifests;
mod table;
mod versions;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ocimod::oci::Algorithm;
use ocimod::operations::connect;

use self::client::{Server, bytes, digest};
use crate::access::{Site, token};
use crate::conformance::{cached, remote, served};
use crate::support::ocimod::Ocimod;
use crate::support::process::kill;

/// A point, under the name of its function.
type Point = (&'static str, for<'a> fn(&'a Server) -> BoxFuture<'a, ()>);

macro_rules! points {
    ($($module:ident :: $name:ident),* $(,)?) => {
        /// Everything that is asked of a server.
        const POINTS: &[Point] =
            &[$((concat!(stringify!($module), "::", stringify!($name)), |server| Box::pin($module::$name(server)))),*];
    };
}

points! {
    lists::the_base,
    lists::an_empty_repository,
    lists::tags_in_pages,
    lists::repositories_in_pages,
    lists::referrers_in_pages,
    lists::referrers_by_the_tag_of_their_subject,
    blobs::a_missing_blob,
    blobs::a_blob_in_one_request,
    blobs::a_blob_in_two_requests,
    blobs::a_blob_in_one_piece,
    blobs::a_blob_in_pieces,
    blobs::a_blob_in_pieces_the_last_with_its_end,
    blobs::a_blob_as_a_stream,
    blobs::pieces_out_of_order,
    blobs::pieces_out_of_order_the_last_with_its_end,
    blobs::pieces_of_a_wrong_length,
    blobs::a_cancelled_upload,
    blobs::an_upload_of_another_repository,
    blobs::a_mounted_blob,
    blobs::a_blob_mounted_from_anywhere,
    blobs::a_mount_of_a_missing_blob,
    blobs::ranges,
    blobs::the_empty_blob,
    blobs::the_empty_object,
    blobs::a_wrong_digest_in_one_request,
    blobs::a_wrong_digest_in_two_requests,
    blobs::a_wrong_digest_of_pieces,
    blobs::a_wrong_digest_of_pieces_the_last_with_its_end,
    blobs::a_wrong_digest_of_a_stream,
    blobs::a_digest_that_is_none,
    blobs::a_blob_is_deleted_in_its_repository_alone,
    manifests::an_image,
    manifests::an_image_without_compression,
    manifests::a_large_manifest,
    manifests::an_index,
    manifests::an_index_of_indexes,
    manifests::an_empty_index,
    manifests::an_artifact,
    manifests::an_index_of_artifacts,
    manifests::an_artifact_without_layers,
    manifests::artifacts_with_a_subject,
    manifests::an_index_with_a_subject,
    manifests::a_subject_that_is_missing,
    manifests::descriptors_with_data,
    manifests::layers_that_are_kept_elsewhere,
    manifests::fields_that_nobody_knows,
    manifests::an_image_without_layers,
    manifests::digests_by_sha512,
    manifests::tags_as_parameters,
    manifests::tags_as_parameters_by_sha512,
    manifests::docker_s_types,
    manifests::a_manifest_with_another_digest,
    manifests::a_manifest_with_a_digest_that_is_none,
    manifests::a_missing_manifest,
    manifests::a_manifest_whose_children_are_missing,
    manifests::whatever_the_client_accepts,
    manifests::what_the_client_has_already,
    manifests::tags_go_alone_and_manifests_with_their_tags,
    manifests::many_at_once,
    versions::a_published_version_does_not_change,
    versions::the_other_spelling_of_a_version_is_the_same,
    versions::an_index_of_a_version_may_grow,
    versions::what_is_no_version_moves,
    versions::a_deleted_version_is_free,
    errors::every_code_of_the_specification,
    errors::names_that_are_none,
    errors::methods_that_are_none,
}

/// Asks everything of a server. Says which points failed; what exactly stands above that.
async fn check(server: Server) {
    let mut failed = Vec::new();
    for (name, point) in POINTS {
        if AssertUnwindSafe(point(&server)).catch_unwind().await.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_as_it_starts() {
    let ocimod = Ocimod::new();
    let serve = ocimod.serve([]);
    check(Server::open(&serve.address)).await;
    let store = ocimod.home.path().join(".local/share/ocimod/registry");
    ocimod.run(["store", "verify", store.to_str().unwrap()]).success();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_access_rules() {
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let site = Site::over(ocimod, &store, &[]);
    check(Server::guarded(&site.serve.address, &token("admin"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_access_rules_where_strangers_may_read() {
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let site = Site::over(ocimod, &store, &["--anonymous", "read"]);
    check(Server::guarded(&site.serve.address, &token("admin"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_over_a_remote_registry_that_is_a_server() {
    let ocimod = Ocimod::new();
    let serve = ocimod.serve([]);
    let mut server = Server::open(&served(remote(&serve.address)));
    (server.knows_last_page, server.is_relay) = (false, true);
    check(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_over_a_cache_over_a_remote_registry_that_is_a_server() {
    let ocimod = Ocimod::new();
    let serve = ocimod.serve([]);
    let (_cache, registry) = cached(remote(&serve.address), Duration::from_hours(1));
    let mut server = Server::open(&served(registry));
    server.is_relay = true;
    check(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_over_a_cache_over_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let directory = connect::directory(folder.path().to_owned()).await.unwrap();
    let (_cache, registry) = cached(Arc::clone(&directory), Duration::from_hours(1));
    check(Server::open(&served(registry))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_goes_on_after_the_server_was_killed() {
    let ocimod = Ocimod::new();
    let content = bytes("killed", 300_000);
    let digest = digest(Algorithm::Sha512, &content);
    let mut serve = ocimod.serve([]);
    let location = Server::open(&serve.address).open_upload("acme/a").await;
    // Killed between pieces, and with a piece half sent.
    for (start, end) in [(0, 100_000), (100_000, 200_000)] {
        let range = format!("{start}-{}", end - 1);
        let server = Server::open(&serve.address);
        let added = server
            .send("PATCH", &location, &[("content-range", &range)], &content[start..end])
            .await
            .expect(202);
        assert_eq!(added.header("range"), format!("0-{}", end - 1));
        let mut stream = std::net::TcpStream::connect(&serve.address).unwrap();
        let head =
            format!("PATCH {location} HTTP/1.1\r\nHost: {}\r\nContent-Length: 1000\r\n\r\n", serve.address);
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        kill(serve.server.pid(), "KILL");
        serve.server.wait();
        serve = ocimod.serve([]);
        let status = Server::open(&serve.address).get(&location).await.expect(204);
        assert_eq!(status.header("range"), format!("0-{}", end - 1));
    }
    let server = Server::open(&serve.address);
    let refused = server.send("PATCH", &location, &[("content-range", "0-9")], "0123456789").await;
    assert_eq!(refused.fails(416, "BLOB_UPLOAD_INVALID").header("range"), "0-199999");
    let target = format!("{location}?digest={digest}");
    let ended = server.send("PUT", &target, &[("content-range", "200000-299999")], &content[200_000..]).await;
    assert!(server.get(ended.expect(201).header("location")).await.expect(200).body == content);
}
