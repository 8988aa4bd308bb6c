//! Requests below `/v2/`: no spelling of a path or a query leads to a name outside of the grammar.

use axum::http::Method;

use super::{Target, assert_is_message, texts};
use crate::oci::{Digest, Reference, Tag};
use crate::registry::PageRequest;
use crate::server::{DistributionRequest, RequestError};

const DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

pub(super) const TARGET: Target = Target {
    name: "distribution",
    seeds: || {
        let digest = |text: &str| text.replace("DIGEST", DIGEST);
        let mut seeds = texts([
            "GET /v2/",
            "HEAD /v2",
            "GET /v2/_catalog?n=5&last=a%2Fb",
            "GET /v2/acme/vpc/aws/tags/list?n=99999999&last=v1.0.0",
            "HEAD /v2/acme/vpc/aws/manifests/v1.0.0",
            "DELETE /v2/acme/vpc/aws/manifests/v1.0.0",
            "PATCH /v2/acme/vpc/aws/blobs/uploads/u-1",
            "DELETE /v2/acme/vpc/aws/blobs/uploads/u-1",
            "POST /v2/acme/vpc/aws/blobs/uploads/?digest-algorithm=sha512",
            "GET /v2/../../etc/passwd/tags/list",
            "GET /v2/%2e%2e/tags/list",
            "GET /v2/acme%2fvpc/manifests/..",
            "GET /v2/acme/blobs/uploads/..%2f..%2fx",
            "GET /v2/blobs/uploads/tags/manifests/tags/list",
            "GET /v2/Acme/tags/list",
            "GET /v2//tags/list",
        ]);
        seeds.extend(
            [
                "GET /v2/acme/vpc/aws/manifests/DIGEST",
                "PUT /v2/acme/vpc/aws/manifests/DIGEST?tag=a&tag=b",
                "GET /v2/acme/vpc/aws/blobs/DIGEST",
                "DELETE /v2/acme/vpc/aws/blobs/DIGEST",
                "POST /v2/acme/vpc/aws/blobs/uploads?digest=DIGEST",
                "POST /v2/acme/vpc/aws/blobs/uploads/?mount=DIGEST&from=acme%2Flabel",
                "POST /v2/acme/vpc/aws/blobs/uploads/?mount=DIGEST&from=../etc",
                "PUT /v2/acme/vpc/aws/blobs/uploads/u-1?digest=DIGEST",
                "GET /v2/acme/vpc/aws/referrers/DIGEST?artifactType=a/b+json",
            ]
            .map(|text| digest(text).into_bytes()),
        );
        seeds.push(format!("GET /v2/a/manifests/sha512:{}", "ab".repeat(64)).into_bytes());
        seeds
    },
    words: &[
        "GET ",
        "HEAD ",
        "PUT ",
        "POST ",
        "PATCH ",
        "DELETE ",
        "/v2/",
        "/tags/list",
        "/manifests/",
        "/blobs/",
        "/blobs/uploads/",
        "/uploads/",
        "/referrers/",
        "_catalog",
        "..",
        "%2e%2e",
        "%2F",
        "%3A",
        "%3a",
        "%00",
        "?",
        "&",
        "n=",
        "last=",
        "tag=",
        "digest=",
        "mount=",
        "from=",
        "artifactType=",
        "digest-algorithm=",
        "sha256:",
        "sha512:",
        "sha256",
        "sha512",
        "//",
        "__",
        "--",
        "-",
        "+",
        "acme",
    ],
    generate: None,
    max_length: 8192,
    run,
};

fn run(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let (method, target) = text.split_once(' ').unwrap_or(("GET", &text));
    let Ok(method) = method.parse::<Method>() else { return false };
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let request = match DistributionRequest::parse(&method, path, query) {
        Ok(request) => request,
        Err(error) => {
            assert!((400..500).contains(&error.status().0), "{error}");
            if let RequestError::Method { allow } = &error {
                assert!(
                    !allow.split(", ").any(|allowed| method == allowed),
                    "{method} is refused, {allow} taken"
                );
            }
            assert_is_message(&error.to_string());
            return false;
        }
    };
    if let Some(repository) = request.repository() {
        let name = repository.as_str();
        assert_is_repository(name);
        assert!(path.starts_with(&format!("/v2/{name}/")), "{path} leads to `{name}`");
        assert!(request.right().is_some(), "{path} needs no right in `{name}`");
    } else {
        assert_eq!(request.right(), None);
    }
    if let Some(changed) = request.changed_repository() {
        assert_eq!(Some(changed), request.repository());
    }
    let written = write(&request);
    let (path, query) = written.1.split_once('?').map_or((written.1.as_str(), None), |(p, q)| (p, Some(q)));
    let again = DistributionRequest::parse(&written.0, path, query);
    assert_eq!(again.as_ref(), Ok(&request), "written as {} {}", written.0, written.1);
    true
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(\/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*`, as an automaton.
fn assert_is_repository(name: &str) {
    assert!((1..=255).contains(&name.len()), "{name:?}");
    // What has been read since the last letter or digit; `None` where a component begins.
    let mut separator: Option<String> = None;
    for character in name.chars() {
        match (&mut separator, character) {
            (state, 'a'..='z' | '0'..='9') => *state = Some(String::new()),
            (Some(read), '.' | '_' | '-') => {
                read.push(character);
                let is_allowed =
                    read == "." || read == "_" || read == "__" || read.chars().all(|one| one == '-');
                assert!(is_allowed, "{name:?} has {read:?} in it");
            }
            (state @ Some(_), '/') => {
                assert_eq!(state.as_deref(), Some(""), "{name:?} has a component that ends in a separator");
                *state = None;
            }
            _ => panic!("{name:?} has {character:?} where it may not be"),
        }
    }
    assert_eq!(separator.as_deref(), Some(""), "{name:?} ends in a separator");
}

fn assert_is_tag(tag: &Tag) {
    let text = tag.as_str();
    assert!((1..=128).contains(&text.len()), "{text:?}");
    assert!(text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter)), "{text:?}");
    assert!(!text.starts_with(['.', '-']), "{text:?}");
}

fn assert_is_digest(digest: &Digest) {
    let (name, hex) = digest.as_str().split_once(':').expect("a colon");
    assert_eq!(hex.len(), if name == "sha256" { 64 } else { 128 }, "{digest}");
    assert!(["sha256", "sha512"].contains(&name), "{digest}");
    assert!(hex.chars().all(|digit| matches!(digit, '0'..='9' | 'a'..='f')), "{digest}");
}

fn assert_is_reference(reference: &Reference) {
    match reference {
        Reference::Tag(tag) => assert_is_tag(tag),
        Reference::Digest(digest) => assert_is_digest(digest),
    }
}

fn write_page(page: &PageRequest) -> String {
    assert!(page.count.is_none_or(|count| count <= 10_000), "a page of {:?}", page.count);
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    if let Some(count) = page.count {
        query.append_pair("n", &count.to_string());
    }
    if let Some(after) = &page.after {
        query.append_pair("last", after);
    }
    query.finish()
}

/// The request as a client would write it.
fn write(request: &DistributionRequest) -> (Method, String) {
    use DistributionRequest as R;
    let read = |head: bool| if head { Method::HEAD } else { Method::GET };
    match request {
        R::Ping => (Method::GET, "/v2/".to_owned()),
        R::Catalog(page) => (Method::GET, format!("/v2/_catalog?{}", write_page(page))),
        R::Tags { repository, page } => {
            (Method::GET, format!("/v2/{repository}/tags/list?{}", write_page(page)))
        }
        R::Manifest { repository, reference, head } => {
            assert_is_reference(reference);
            (read(*head), format!("/v2/{repository}/manifests/{reference}"))
        }
        R::PutManifest { repository, reference, tags } => {
            assert_is_reference(reference);
            assert!(tags.len() <= 100, "{} tags", tags.len());
            tags.iter().for_each(assert_is_tag);
            let query: Vec<String> = tags.iter().map(|tag| format!("tag={tag}")).collect();
            (Method::PUT, format!("/v2/{repository}/manifests/{reference}?{}", query.join("&")))
        }
        R::DeleteManifest { repository, reference } => {
            assert_is_reference(reference);
            (Method::DELETE, format!("/v2/{repository}/manifests/{reference}"))
        }
        R::Blob { repository, digest, head } => {
            assert_is_digest(digest);
            (read(*head), format!("/v2/{repository}/blobs/{digest}"))
        }
        R::DeleteBlob { repository, digest } => {
            assert_is_digest(digest);
            (Method::DELETE, format!("/v2/{repository}/blobs/{digest}"))
        }
        R::OpenUpload { repository, algorithm } => {
            (Method::POST, format!("/v2/{repository}/blobs/uploads/?digest-algorithm={}", algorithm.name()))
        }
        R::PushBlob { repository, digest } => {
            assert_is_digest(digest);
            (Method::POST, format!("/v2/{repository}/blobs/uploads/?digest={digest}"))
        }
        R::Mount { repository, digest, from } => {
            assert_is_digest(digest);
            let from = from.as_ref().map(|from| {
                assert_is_repository(from.as_str());
                format!("&from={from}")
            });
            let from = from.unwrap_or_default();
            (Method::POST, format!("/v2/{repository}/blobs/uploads/?mount={digest}{from}"))
        }
        R::UploadStatus { repository, upload } => {
            (Method::GET, format!("/v2/{repository}/blobs/uploads/{}", upload.as_str()))
        }
        R::AppendUpload { repository, upload } => {
            (Method::PATCH, format!("/v2/{repository}/blobs/uploads/{}", upload.as_str()))
        }
        R::FinishUpload { repository, upload, digest } => {
            assert_is_digest(digest);
            (Method::PUT, format!("/v2/{repository}/blobs/uploads/{}?digest={digest}", upload.as_str()))
        }
        R::CancelUpload { repository, upload } => {
            // A file's name later on.
            assert!(upload.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
            (Method::DELETE, format!("/v2/{repository}/blobs/uploads/{}", upload.as_str()))
        }
        R::Referrers { repository, digest, artifact_type, page } => {
            assert_is_digest(digest);
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            if let Some(kind) = artifact_type {
                query.append_pair("artifactType", kind);
            }
            let query = format!("{}&{}", query.finish(), write_page(page));
            (Method::GET, format!("/v2/{repository}/referrers/{digest}?{query}"))
        }
    }
}
