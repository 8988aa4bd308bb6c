//! Lists that go on, go round, or hold what is no entry.

use std::sync::atomic::{AtomicUsize, Ordering};

use ocimod::module::Version;
use ocimod::oci::Digest;
use ocimod::operations::{published, published::MAX_TAGS};
use ocimod::registry::{PageRequest, Registry, RegistryError};
use serde_json::json;

use super::server::{Hostile, answer};
use super::{Module, address, ends, offered, remote, repository, routes};

/// A list of tags that is given page by page; the page's number is in the link.
async fn paged(page: impl Fn(usize) -> (Vec<String>, Option<usize>) + Send + Sync + 'static) -> Hostile {
    Hostile::start(move |request| {
        let number =
            request.path().split_once("page=").and_then(|(_, number)| number.parse().ok()).unwrap_or(0);
        let (tags, next) = page(number);
        let body = json!({"name": "acme/label/null", "tags": tags}).to_string();
        let link = next.map(|next| format!("<?page={next}>; rel=\"next\""));
        let headers: Vec<_> = link.as_deref().map(|link| ("link", link)).into_iter().collect();
        answer(200, &headers, body.as_bytes())
    })
    .await
}

async fn all(server: &Hostile, limit: usize) -> Result<Vec<String>, RegistryError> {
    let registry = remote(server);
    let tags = ends((&*registry as &dyn Registry).all_tags(&repository(), limit)).await?;
    Ok(tags.iter().map(ToString::to_string).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_always_has_more_is_broken_off() {
    let server =
        paged(|number| ((0..1000).map(|entry| format!("v{number}.{entry}.0")).collect(), Some(number + 1)))
            .await;
    let error = all(&server, 20_000).await.unwrap_err();
    assert!(matches!(error, RegistryError::TooMany { what: "tags", limit: 20_000 }), "{error}");
    assert!(server.requests().len() <= 22, "one is asked for ahead");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_goes_round_has_each_entry_once() {
    for length in [1, 2, 3, 7] {
        let server = paged(move |number| (vec![format!("v1.{number}.0")], Some((number + 1) % length))).await;
        let mut tags = all(&server, 1000).await.unwrap();
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), length);
        assert!(server.requests().len() <= length + 2, "{length}, and one that is asked for ahead");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_nothing_but_pages_is_broken_off() {
    let server = paged(|number| (Vec::new(), Some(number + 1))).await;
    let error = all(&server, 1000).await.unwrap_err();
    assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
    assert!(server.requests().len() < 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_not_looked_for_on_and_on() {
    let server = paged(|number| (Vec::new(), Some(number + 1))).await;
    let registry = remote(&server);
    let error = ends(registry.tags(&repository(), &PageRequest::default())).await.unwrap_err();
    assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
    assert!(server.requests().len() < 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_too_large_is_not_read_to_its_end() {
    for tag in ["\"v1.0.0\"", "1", "[]"] {
        let body = format!("{{\"tags\":[{}{tag}]}}", format!("{tag},").repeat(20 << 20 >> 3));
        let server = Hostile::start(move |_| answer(200, &[], body.as_bytes())).await;
        let error = all(&server, MAX_TAGS).await.unwrap_err();
        assert!(matches!(error, RegistryError::TooLarge { .. } | RegistryError::Protocol { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn referrers_without_end_are_given_page_by_page_and_no_further() {
    let count = AtomicUsize::new(0);
    let server = Hostile::start(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let entries: Vec<_> = (0..100)
            .map(|entry| {
                let digest = Digest::of(format!("{number} {entry}").as_bytes());
                json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 7})
            })
            .collect();
        let body = json!({"schemaVersion": 2, "manifests": entries}).to_string();
        let link = format!("<?page={number}>; rel=\"next\"");
        answer(200, &[("content-type", "application/vnd.oci.image.index.v1+json"), ("link", &link)], body.as_bytes())
    })
    .await;
    let page = PageRequest::default();
    let found = ends(remote(&server).referrers(&repository(), &Digest::of(b"x"), None, &page)).await.unwrap();
    assert_eq!((found.items.len(), found.next.is_some(), server.requests().len()), (100, true, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_version_is_offered_to_nobody() {
    let mut module = Module::good().await;
    let hex = "0".repeat(64);
    module.tags = json!([
        "v1.0.0", "1.0.0", null, 7, ["v2.0.0"], {"name": "v3.0.0"}, "latest", "v4", "5.0", "1.0.0_build", "v6.0.0-",
        "07.0.0", "v18446744073709551616.0.0", format!("sha256-{hex}"), format!("sha256-{hex}.sig"),
        format!("sha256:{hex}"), "../../v8.0.0", "v9.0.0/../..", "v10.0.0\n", "", " ", "v11.0.0?x=y", "?last=x",
        "v".repeat(200), "v\u{e9}1.0.0", "bundle.latest", "yanked.latest",
    ]);
    let server = module.serve().await;
    let address = address();
    let found =
        ends(published::find(&routes(remote(&server)), &published::name(&address).unwrap())).await.unwrap();
    let versions: Vec<String> = found.listed().map(Version::to_string).collect();
    assert_eq!(versions, ["1.0.0+build", "1.0.0"]);
    let (status, said) = offered(remote(&server)).await;
    assert!([200, 204].contains(&status), "{status} {said}");
    assert!(!said.contains(".."), "{said}");
}
