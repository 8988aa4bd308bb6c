//! Blobs: every way to push one, pulling it whole and in pieces, mounting, deleting (specification, "Pushing Blobs" and "Pulling blobs").

use bytes::Bytes;
use ocimod::oci::{Algorithm, Digest};

use super::client::{Body, Server, bytes, digest};
use crate::support::answer::Answer;

/// How many bytes a piece has where there are several: three of them, and the last is shorter.
const PIECE: usize = 1024;
const THREE_PIECES: usize = 3 * PIECE - 5;

/// Every point holds for both.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha512];

/// A repository for a point and an algorithm.
fn repository(point: &str, algorithm: Algorithm) -> String {
    format!("blobs/{point}/{}", algorithm.name())
}

fn finish(location: &str, digest: &Digest) -> String {
    let joint = if location.contains('?') { '&' } else { '?' };
    format!("{location}{joint}digest={digest}")
}

/// A blob is where the answer to its push says, and where its digest says, and every header tells what it is.
async fn is_there(server: &Server, repository: &str, digest: &Digest, content: &[u8], pushed: Answer) {
    let pushed = pushed.expect(201);
    assert_eq!(pushed.header("docker-content-digest"), digest.as_str());
    assert!(pushed.body.is_empty());
    let target = format!("/v2/{repository}/blobs/{digest}");
    for target in [pushed.header("location"), &target] {
        let got = server.get(target).await.expect(200);
        assert!(got.body == content, "{target}: other bytes");
        let head = server.head(target).await.expect(200);
        for answer in [&got, &head] {
            assert_eq!(answer.header("content-length"), content.len().to_string());
            assert_eq!(answer.header("content-type"), "application/octet-stream");
            assert_eq!(answer.header("docker-content-digest"), digest.as_str());
            assert_eq!(answer.header("etag"), format!("\"{digest}\""));
            assert_eq!(answer.header("accept-ranges"), "bytes");
            answer.has_no("content-encoding");
        }
    }
}

/// Nothing of a blob is left the moment after it was deleted.
async fn goes_at_once(server: &Server, repository: &str, digest: &Digest) {
    let target = format!("/v2/{repository}/blobs/{digest}");
    server.delete(&target).await.expect(202);
    is_missing(server, repository, digest).await;
    server.delete(&target).await.fails(404, "BLOB_UNKNOWN");
}

async fn is_missing(server: &Server, repository: &str, digest: &Digest) {
    let target = format!("/v2/{repository}/blobs/{digest}");
    server.head(&target).await.expect(404);
    server.get(&target).await.fails(404, "BLOB_UNKNOWN");
    server.send("GET", &target, &[("range", "bytes=0-0")], "").await.fails(404, "BLOB_UNKNOWN");
}

/// An upload is over: nobody can ask for it or go on with it.
async fn is_over(server: &Server, location: &str, digest: &Digest) {
    server.get(location).await.fails(404, "BLOB_UPLOAD_UNKNOWN");
    server.send("PATCH", location, &[], "more").await.fails(404, "BLOB_UPLOAD_UNKNOWN");
    server.send("PUT", &finish(location, digest), &[], "").await.fails(404, "BLOB_UPLOAD_UNKNOWN");
    server.delete(location).await.fails(404, "BLOB_UPLOAD_UNKNOWN");
}

/// What an answer about an upload tells, wherever it comes from.
#[track_caller]
fn stands_at(answer: Answer, status: u16, received: usize) -> Answer {
    let answer = answer.expect(status);
    assert_eq!(answer.header("range"), format!("0-{}", received.saturating_sub(1)));
    assert!(answer.header("location").starts_with("/v2/"), "{:?}", answer.headers);
    answer
}

pub(super) async fn a_missing_blob(server: &Server) {
    for algorithm in ALGORITHMS {
        let repository = repository("missing", algorithm);
        let missing = digest(algorithm, b"nobody has pushed this");
        is_missing(server, &repository, &missing).await;
        server.push_blob(&repository, algorithm, b"this is there").await;
        is_missing(server, &repository, &missing).await;
    }
}

async fn in_one_request(server: &Server, repository: &str, digest: &Digest, content: &[u8]) -> Answer {
    let target = format!("/v2/{repository}/blobs/uploads/?digest={digest}");
    server.send("POST", &target, &[("content-type", "application/octet-stream")], content).await
}

async fn in_two_requests(server: &Server, repository: &str, digest: &Digest, content: &[u8]) -> Answer {
    let opened = server.send("POST", &format!("/v2/{repository}/blobs/uploads/"), &[], "").await;
    let opened = stands_at(opened, 202, 0);
    let target = finish(opened.header("location"), digest);
    server.send("PUT", &target, &[("content-type", "application/octet-stream")], content).await
}

async fn as_a_stream(server: &Server, repository: &str, digest: &Digest, content: &[u8]) -> Answer {
    let location = server.open_upload(repository).await;
    let pieces = content.chunks(100).map(Bytes::copy_from_slice).collect();
    let added = server.send("PATCH", &location, &[], Body::Streamed(pieces)).await;
    let added = stands_at(added, 202, content.len());
    server.send("PUT", &finish(added.header("location"), digest), &[], "").await
}

/// How a blob comes in pieces.
#[derive(Clone, Copy, Default)]
struct Pieces {
    /// How many bytes each has.
    size: usize,
    /// Before each comes one that it is not the turn of.
    out_of_order: bool,
    /// The last comes with the request that ends the upload.
    last_ends: bool,
}

async fn in_pieces(
    server: &Server,
    repository: &str,
    digest: &Digest,
    content: &[u8],
    Pieces { size, out_of_order, last_ends }: Pieces,
) -> Answer {
    let mut location = server.open_upload(repository).await;
    let range = |start: usize, length: usize| format!("{start}-{}", start + length - 1);
    let mut start = 0;
    while start < content.len() {
        let piece = &content[start..content.len().min(start + size)];
        let is_last = start + piece.len() == content.len();
        if out_of_order {
            // The one after the next, or from the beginning again where there is none.
            let wrong = if start + size < content.len() { start + size } else { 0 };
            let other = &content[wrong..content.len().min(wrong + size)];
            let mut requests = vec![("PATCH", location.clone())];
            if last_ends {
                requests.push(("PUT", finish(&location, digest)));
            }
            for (method, target) in requests {
                let headers = [("content-range", &*range(wrong, other.len()))];
                let refused = server.send(method, &target, &headers, other).await;
                let refused = stands_at(refused, 416, start).fails(416, "BLOB_UPLOAD_INVALID");
                assert_eq!(refused.json()["errors"][0]["detail"]["offset"], start);
                // What it says is so, and whoever asks hears the same.
                let status = stands_at(server.get(refused.header("location")).await, 204, start);
                stands_at(server.head(refused.header("location")).await, 204, start);
                // Also where it was the end that came out of order: some ask there, with the digest in the query.
                stands_at(server.get(&finish(refused.header("location"), digest)).await, 204, start);
                status.header("location").clone_into(&mut location);
            }
        }
        let headers =
            [("content-range", &*range(start, piece.len())), ("content-type", "application/octet-stream")];
        if is_last && last_ends {
            return server.send("PUT", &finish(&location, digest), &headers, piece).await;
        }
        let added =
            stands_at(server.send("PATCH", &location, &headers, piece).await, 202, start + piece.len());
        added.header("location").clone_into(&mut location);
        start += piece.len();
    }
    server.send("PUT", &finish(&location, digest), &[], "").await
}

/// Pushes bytes in some way, sees that they are there, and deletes them.
macro_rules! comes_and_goes {
    ($server:ident, $point:literal, $length:expr, |$repository:ident, $digest:ident, $content:ident| $push:expr) => {
        for algorithm in ALGORITHMS {
            let ($repository, $content) = (&*repository($point, algorithm), &*bytes($point, $length));
            let $digest = &digest(algorithm, $content);
            is_missing($server, $repository, $digest).await;
            // Again, where it is there already.
            for _ in 0..2 {
                is_there($server, $repository, $digest, $content, $push).await;
            }
            goes_at_once($server, $repository, $digest).await;
            is_there($server, $repository, $digest, $content, $push).await;
        }
    };
}

pub(super) async fn a_blob_in_one_request(server: &Server) {
    comes_and_goes!(server, "one-request", 512, |repository, digest, content| in_one_request(
        server, repository, digest, content
    )
    .await);
}

pub(super) async fn a_blob_in_two_requests(server: &Server) {
    comes_and_goes!(server, "two-requests", 512, |repository, digest, content| in_two_requests(
        server, repository, digest, content
    )
    .await);
}

pub(super) async fn a_blob_in_one_piece(server: &Server) {
    let pieces = Pieces { size: PIECE, ..Pieces::default() };
    comes_and_goes!(server, "one-piece", 512, |repository, digest, content| in_pieces(
        server, repository, digest, content, pieces
    )
    .await);
}

pub(super) async fn a_blob_in_pieces(server: &Server) {
    let pieces = Pieces { size: PIECE, ..Pieces::default() };
    comes_and_goes!(server, "pieces", THREE_PIECES, |repository, digest, content| in_pieces(
        server, repository, digest, content, pieces
    )
    .await);
}

pub(super) async fn a_blob_in_pieces_the_last_with_its_end(server: &Server) {
    let pieces = Pieces { size: PIECE, last_ends: true, ..Pieces::default() };
    comes_and_goes!(server, "pieces-and-end", THREE_PIECES, |repository, digest, content| in_pieces(
        server, repository, digest, content, pieces
    )
    .await);
}

pub(super) async fn a_blob_as_a_stream(server: &Server) {
    comes_and_goes!(server, "stream", 512, |repository, digest, content| as_a_stream(
        server, repository, digest, content
    )
    .await);
}

pub(super) async fn pieces_out_of_order(server: &Server) {
    let pieces = Pieces { size: PIECE, out_of_order: true, ..Pieces::default() };
    comes_and_goes!(server, "out-of-order", THREE_PIECES, |repository, digest, content| in_pieces(
        server, repository, digest, content, pieces
    )
    .await);
}

pub(super) async fn pieces_out_of_order_the_last_with_its_end(server: &Server) {
    let pieces = Pieces { size: PIECE, out_of_order: true, last_ends: true };
    comes_and_goes!(server, "out-of-order-and-end", THREE_PIECES, |repository, digest, content| in_pieces(
        server, repository, digest, content, pieces
    )
    .await);
}

pub(super) async fn pieces_of_a_wrong_length(server: &Server) {
    let repository = "blobs/wrong-length";
    let location = server.open_upload(repository).await;
    // A range that is none tells how far the upload is, as one that is not the next does.
    for range in ["5-4", "a-b", "", "-", "0", "0-18446744073709551615", "bytes 0-"] {
        let refused = server.send("PATCH", &location, &[("content-range", range)], "12345").await;
        stands_at(refused, 416, 0).fails(416, "BLOB_UPLOAD_INVALID");
    }
    // Where the length is told, nothing is taken that does not fit to it.
    for range in ["0-3", "0-5"] {
        let refused = server.send("PATCH", &location, &[("content-range", range)], "12345").await;
        refused.fails(400, "SIZE_INVALID");
        stands_at(server.get(&location).await, 204, 0);
    }
    // Where it is not, what came stays, and the upload goes on behind it.
    for (range, body) in [("0-9", "12345"), ("0-2", "12345")] {
        let location = server.open_upload(repository).await;
        let body = Body::Streamed(vec![
            Bytes::from_static(&body.as_bytes()[..2]),
            Bytes::from_static(&body.as_bytes()[2..]),
        ]);
        server.send("PATCH", &location, &[("content-range", range)], body).await.fails(400, "SIZE_INVALID");
        let status = server.get(&location).await.expect(204);
        let received: usize = status.header("range").strip_prefix("0-").unwrap().parse().unwrap();
        assert!((0..=4).contains(&received), "{range}: {received}");
        server.delete(&location).await.expect(204);
    }
    server.delete(&location).await.expect(204);
    // As RFC 9110 writes a range; and nothing at all, as cue and others write it.
    for nothing in ["0-0", "5-4", "5-5"] {
        let location = server.open_upload(repository).await;
        let added = server.send("PATCH", &location, &[("content-range", "bytes 0-4/*")], "12345").await;
        stands_at(added, 202, 5);
        let added = server.send("PATCH", &location, &[("content-range", nothing)], "").await;
        stands_at(added, 202, 5);
        let digest = digest(Algorithm::Sha256, b"12345");
        let ended = server.send("PUT", &finish(&location, &digest), &[("content-range", nothing)], "").await;
        is_there(server, repository, &digest, b"12345", ended).await;
        is_over(server, &location, &digest).await;
    }
}

pub(super) async fn a_cancelled_upload(server: &Server) {
    for algorithm in ALGORITHMS {
        let repository = repository("cancelled", algorithm);
        let content = bytes("cancelled", 512);
        let digest = digest(algorithm, &content);
        let empty = server.open_upload(&repository).await;
        let begun = server.open_upload(&repository).await;
        stands_at(server.send("PATCH", &begun, &[], &content).await, 202, 512);
        for location in [empty, begun] {
            let cancelled = server.delete(&location).await.expect(204);
            assert!(cancelled.body.is_empty());
            is_over(server, &location, &digest).await;
        }
        is_missing(server, &repository, &digest).await;
    }
}

pub(super) async fn an_upload_of_another_repository(server: &Server) {
    let (own, other) = ("blobs/own-upload", "blobs/other-upload");
    let location = server.open_upload(own).await;
    let elsewhere = location.replace(own, other);
    assert_ne!(location, elsewhere);
    is_over(server, &elsewhere, &digest(Algorithm::Sha256, b"")).await;
    stands_at(server.get(&location).await, 204, 0);
    server.delete(&location).await.expect(204);
}

pub(super) async fn a_mounted_blob(server: &Server) {
    for algorithm in ALGORITHMS {
        let (from, to) = (repository("mount/from", algorithm), repository("mount/to", algorithm));
        let content = bytes("mounted", 512);
        let digest = digest(algorithm, &content);
        server.push_blob(&from, algorithm, &content).await;
        is_missing(server, &to, &digest).await;
        let target = format!("/v2/{to}/blobs/uploads/?mount={digest}&from={}", from.replace('/', "%2F"));
        for _ in 0..2 {
            let mounted = server.send("POST", &target, &[], "").await;
            is_there(server, &to, &digest, &content, mounted).await;
        }
        let own = format!("/v2/{to}/blobs/uploads/?mount={digest}&from={to}");
        is_there(server, &to, &digest, &content, server.send("POST", &own, &[], "").await).await;
        goes_at_once(server, &to, &digest).await;
        server.head(&format!("/v2/{from}/blobs/{digest}")).await.expect(200);
        goes_at_once(server, &from, &digest).await;
    }
}

pub(super) async fn a_blob_mounted_from_anywhere(server: &Server) {
    for algorithm in ALGORITHMS {
        let (from, to) = (repository("anywhere/from", algorithm), repository("anywhere/to", algorithm));
        let content = bytes("mounted from anywhere", 512);
        let digest = digest(algorithm, &content);
        server.push_blob(&from, algorithm, &content).await;
        let mounted = server.send("POST", &format!("/v2/{to}/blobs/uploads/?mount={digest}"), &[], "").await;
        is_there(server, &to, &digest, &content, mounted).await;
        goes_at_once(server, &to, &digest).await;
        goes_at_once(server, &from, &digest).await;
    }
}

pub(super) async fn a_mount_of_a_missing_blob(server: &Server) {
    for algorithm in ALGORITHMS {
        let (from, to) = (repository("no-mount/from", algorithm), repository("no-mount/to", algorithm));
        server.push_blob(&from, algorithm, b"another blob").await;
        let content = bytes("not mounted", 512);
        let digest = digest(algorithm, &content);
        for query in [
            format!("mount={digest}&from={from}"),
            format!("mount={digest}&from=blobs/nobody"),
            format!("mount={digest}&from=NO-REPOSITORY"),
            format!("mount={digest}&from="),
            format!("mount={digest}"),
        ] {
            // Never 404: it has to be sent, and the answer says where.
            let opened = server.send("POST", &format!("/v2/{to}/blobs/uploads/?{query}"), &[], "").await;
            let opened = stands_at(opened, 202, 0);
            is_missing(server, &to, &digest).await;
            let target = finish(opened.header("location"), &digest);
            is_there(server, &to, &digest, &content, server.send("PUT", &target, &[], &content).await).await;
            goes_at_once(server, &to, &digest).await;
        }
        let none = server
            .send("POST", &format!("/v2/{to}/blobs/uploads/?mount=sha256:x&from={from}"), &[], "")
            .await;
        none.fails(400, "DIGEST_INVALID");
    }
}

pub(super) async fn ranges(server: &Server) {
    for algorithm in ALGORITHMS {
        let repository = repository("ranges", algorithm);
        let content = bytes("ranges", 2048);
        let digest = digest(algorithm, &content);
        server.push_blob(&repository, algorithm, &content).await;
        let target = format!("/v2/{repository}/blobs/{digest}");
        let ask = async |range: &str| server.send("GET", &target, &[("range", range)], "").await;
        for (range, first, last) in [
            ("bytes=500-1499", 500, 1499),
            ("bytes=500-", 500, 2047),
            ("bytes=-500", 1548, 2047),
            ("bytes=2000-5000", 2000, 2047),
            ("bytes=0-0", 0, 0),
            ("bytes=2047-2047", 2047, 2047),
            ("bytes=0-", 0, 2047),
            ("bytes=-5000", 0, 2047),
            ("bytes=0-99999999999999999999999", 0, 2047),
            ("Bytes=0-9", 0, 9),
        ] {
            let piece = ask(range).await.expect(206);
            assert!(piece.body == content[first..=last], "{range}: other bytes");
            assert_eq!(piece.header("content-range"), format!("bytes {first}-{last}/2048"));
            assert_eq!(piece.header("content-length"), (last - first + 1).to_string());
            assert_eq!(piece.header("content-type"), "application/octet-stream");
            assert_eq!(piece.header("docker-content-digest"), digest.as_str());
            assert_eq!(piece.header("etag"), format!("\"{digest}\""));
        }
        for range in ["bytes=500-0", "bytes=5000-10000", "bytes=2048-", "bytes=2048-2048", "bytes=-0"] {
            let refused = ask(range).await.expect(416);
            assert_eq!(refused.header("content-range"), "bytes */2048", "{range}");
        }
        // Whoever cannot be understood is answered the whole.
        for range in ["bytes=0-1,5-9", "items=0-1", "bytes=", "bytes=a-b", "bytes 0-1"] {
            let whole = ask(range).await.expect(200);
            assert!(whole.body == content, "{range}: other bytes");
            whole.has_no("content-range");
        }
        let etag = format!("\"{digest}\"");
        for (condition, status) in [(etag.as_str(), 206), ("\"another\"", 200), ("W/\"another\"", 200)] {
            let headers = [("range", "bytes=0-9"), ("if-range", condition)];
            server.send("GET", &target, &headers, "").await.expect(status);
        }
        goes_at_once(server, &repository, &digest).await;
    }
}

pub(super) async fn the_empty_blob(server: &Server) {
    for algorithm in ALGORITHMS {
        let repository = repository("empty", algorithm);
        let digest = digest(algorithm, b"");
        let pieces = Pieces { size: PIECE, ..Pieces::default() };
        for way in 0..5 {
            let pushed = match way {
                0 => in_one_request(server, &repository, &digest, b"").await,
                1 => in_two_requests(server, &repository, &digest, b"").await,
                2 => in_pieces(server, &repository, &digest, b"", pieces).await,
                3 => {
                    let target = finish(&server.open_upload(&repository).await, &digest);
                    server.send("PUT", &target, &[("content-range", "0-0")], "").await
                }
                _ => as_a_stream(server, &repository, &digest, b"").await,
            };
            is_there(server, &repository, &digest, b"", pushed).await;
            let target = format!("/v2/{repository}/blobs/{digest}");
            let refused = server.send("GET", &target, &[("range", "bytes=0-")], "").await.expect(416);
            assert_eq!(refused.header("content-range"), "bytes */0");
            goes_at_once(server, &repository, &digest).await;
        }
    }
}

pub(super) async fn the_empty_object(server: &Server) {
    for algorithm in ALGORITHMS {
        let repository = repository("empty-object", algorithm);
        let digest = digest(algorithm, b"{}");
        let pushed = in_one_request(server, &repository, &digest, b"{}").await;
        is_there(server, &repository, &digest, b"{}", pushed).await;
        goes_at_once(server, &repository, &digest).await;
    }
}

/// Bytes are pushed under the digest of others: refused, with both digests, and neither is there.
macro_rules! wrong_digest {
    ($server:ident, $point:literal, |$repository:ident, $digest:ident, $content:ident| $push:expr) => {
        for algorithm in ALGORITHMS {
            let ($repository, $content) = (&*repository($point, algorithm), &*bytes($point, THREE_PIECES));
            let $digest = &digest(algorithm, b"something else");
            let refused: Answer = $push;
            let actual = digest(algorithm, $content);
            // A relay has hashed what it handed on, and not by an algorithm that nobody has announced.
            if $server.is_relay && refused.status == 502 {
                assert_eq!(algorithm, Algorithm::Sha512);
            } else {
                let refused = refused.fails(400, "DIGEST_INVALID");
                let both = serde_json::json!({ "expected": $digest, "actual": actual });
                assert_eq!(refused.json()["errors"][0]["detail"], both);
            }
            is_missing($server, $repository, $digest).await;
            is_missing($server, $repository, &actual).await;
        }
    };
}

pub(super) async fn a_wrong_digest_in_one_request(server: &Server) {
    wrong_digest!(server, "wrong/one-request", |repository, digest, content| in_one_request(
        server, repository, digest, content
    )
    .await);
}

pub(super) async fn a_wrong_digest_in_two_requests(server: &Server) {
    wrong_digest!(server, "wrong/two-requests", |repository, digest, content| in_two_requests(
        server, repository, digest, content
    )
    .await);
}

pub(super) async fn a_wrong_digest_of_pieces(server: &Server) {
    let pieces = Pieces { size: PIECE, ..Pieces::default() };
    wrong_digest!(server, "wrong/pieces", |repository, digest, content| in_pieces(
        server, repository, digest, content, pieces
    )
    .await);
}

pub(super) async fn a_wrong_digest_of_pieces_the_last_with_its_end(server: &Server) {
    let pieces = Pieces { size: PIECE, last_ends: true, ..Pieces::default() };
    wrong_digest!(server, "wrong/pieces-and-end", |repository, digest, content| in_pieces(
        server, repository, digest, content, pieces
    )
    .await);
}

pub(super) async fn a_wrong_digest_of_a_stream(server: &Server) {
    wrong_digest!(server, "wrong/stream", |repository, digest, content| as_a_stream(
        server, repository, digest, content
    )
    .await);
}

pub(super) async fn a_digest_that_is_none(server: &Server) {
    let repository = "blobs/no-digest";
    let long = format!("sha256:{}", "a".repeat(65));
    let upper = format!("sha256:{}", "A".repeat(64));
    for none in
        ["sha256:baddigeststring", "sha256:", "md5:d41d8cd98f00b204e9800998ecf8427e", "x", &long, &upper]
    {
        server.get(&format!("/v2/{repository}/blobs/{none}")).await.fails(400, "DIGEST_INVALID");
        server.head(&format!("/v2/{repository}/blobs/{none}")).await.expect(400);
        server.delete(&format!("/v2/{repository}/blobs/{none}")).await.fails(400, "DIGEST_INVALID");
        let target = format!("/v2/{repository}/blobs/uploads/?digest={none}");
        server.send("POST", &target, &[], "bytes").await.fails(400, "DIGEST_INVALID");
        let location = server.open_upload(repository).await;
        stands_at(server.send("PATCH", &location, &[], "bytes").await, 202, 5);
        server.send("PUT", &format!("{location}?digest={none}"), &[], "").await.fails(400, "DIGEST_INVALID");
        server.send("PUT", &location, &[], "").await.fails(400, "DIGEST_INVALID");
        // It was no end, so the upload goes on.
        stands_at(server.get(&location).await, 204, 5);
        server.delete(&location).await.expect(204);
    }
    let target = format!("/v2/{repository}/blobs/uploads/?digest-algorithm=");
    server.send("POST", &format!("{target}md5"), &[], "").await.fails(400, "DIGEST_INVALID");
    for algorithm in ALGORITHMS {
        let opened = server.send("POST", &format!("{target}{}", algorithm.name()), &[], "").await.expect(202);
        let digest = digest(algorithm, b"announced");
        let ended = server.send("PUT", &finish(opened.header("location"), &digest), &[], "announced").await;
        is_there(server, repository, &digest, b"announced", ended).await;
        // What was announced does not bind: most clients announce nothing, whichever digest they use.
        let other = if algorithm == Algorithm::Sha256 { Algorithm::Sha512 } else { Algorithm::Sha256 };
        let opened = server.send("POST", &format!("{target}{}", other.name()), &[], "").await.expect(202);
        let ended = server.send("PUT", &finish(opened.header("location"), &digest), &[], "announced").await;
        is_there(server, repository, &digest, b"announced", ended).await;
    }
}

pub(super) async fn a_blob_is_deleted_in_its_repository_alone(server: &Server) {
    let content = bytes("in two repositories", 512);
    let digest = digest(Algorithm::Sha256, &content);
    for repository in ["blobs/delete/one", "blobs/delete/two"] {
        server.push_blob(repository, Algorithm::Sha256, &content).await;
    }
    goes_at_once(server, "blobs/delete/one", &digest).await;
    let kept = server.get(&format!("/v2/blobs/delete/two/blobs/{digest}")).await.expect(200);
    assert!(kept.body == content);
    goes_at_once(server, "blobs/delete/two", &digest).await;
    server.delete(&format!("/v2/blobs/delete/nobody/blobs/{digest}")).await.fails(404, "BLOB_UNKNOWN");
}
