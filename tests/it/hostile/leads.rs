//! Whatever a registry, a manifest or a module names: nobody is asked there.

use std::sync::Arc;

use ocimod::operations::published::DependencyForm;
use ocimod::operations::{NoProgress, prepare::Naming, push};
use ocimod::registry::{BytesSource, PageRequest, Registry};
use serde_json::json;

use super::server::{Hostile, answer};
use super::{Module, ends, offered, pulled, remote, repository, routes};
use crate::support::modules::write;

/// Somebody who was not named by the user: whoever is asked here has been led astray.
async fn thief() -> Hostile {
    Hostile::start(|_| answer(200, &[], b"stolen")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_urls_of_a_layer_are_never_fetched() {
    let thief = thief().await;
    let url = format!("http://{}/layer.zip", thief.address);
    let good = Module::good().await;
    for is_there in [true, false] {
        let mut module = good.clone();
        for layer in module.manifest["layers"].as_array_mut().unwrap() {
            layer["urls"] = json!([url, "file:///etc/passwd"]);
        }
        module.manifest["config"]["urls"] = json!([url]);
        if !is_there {
            module.blobs.clear();
        }
        let zip = module.manifest["layers"][0]["digest"].as_str().unwrap().to_owned();
        let server = module.serve().await;
        let error = pulled(remote(&server)).await.unwrap_err().to_string();
        assert!(error.contains(&zip) && error.contains("somewhere else"), "{is_there}: {error}");
        let (status, said) = offered(remote(&server)).await;
        assert!(status >= 400 && !said.contains("layer.zip"), "{is_there}: {status} {said}");
    }
    assert!(thief.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_module_calls_is_not_fetched_when_it_is_pushed_or_read() {
    let thief = thief().await;
    let folder = tempfile::tempdir().unwrap();
    let main = format!(
        "module \"a\" {{\n  source = \"http://{0}/a.zip\"\n}}\nmodule \"b\" {{\n  source = \"git::http://{0}/b.git\"\n}}\n\
         module \"c\" {{\n  source = \"{0}/acme/c/null\"\n}}\nmodule \"d\" {{\n  source = \"oci://{0}/d\"\n}}\n\
         module \"e\" {{\n  source = \"file:///etc\"\n}}\n",
        thief.address
    );
    write(folder.path(), &[("main.tf", &main)]);
    let (_store_folder, store) = crate::conformance::directory();
    let request = push::PushRequest {
        source: folder.path().to_owned(),
        naming: Naming { address: Some("acme/label/null@1.0.0".parse().unwrap()), ..Naming::default() },
        host_aliases: Vec::new(),
        form: Some(DependencyForm::Inline),
        strict: false,
        dry_run: false,
        created: Some(0),
    };
    let routes = routes(store.clone());
    let push = push::push(&routes, &request, Arc::new(NoProgress));
    Box::pin(ends(push)).await.unwrap();
    assert!(pulled(store.clone()).await.unwrap().contains(&"main.tf".to_owned()));
    assert_eq!(offered(store).await.0, 200);
    assert!(thief.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_leads_to_an_address_of_an_inner_network() {
    // The registry is on this machine, so other ports of it are allowed; the link-local network of a cloud's machines never is.
    for target in [
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1]/",
        "http://0.0.0.0:1/",
        "gopher://127.0.0.1/",
    ] {
        for status in [301, 302, 303, 307, 308] {
            let server = Hostile::start(move |request| match request.method() {
                "POST" => answer(202, &[("location", target)], b""),
                _ => answer(status, &[("location", target)], b""),
            })
            .await;
            let registry = remote(&server);
            let digest = ocimod::oci::Digest::of(b"content");
            ends(async {
                let registry: &dyn Registry = &*registry;
                let page = PageRequest::default();
                let source = BytesSource("content".into());
                registry.manifest(&repository(), &super::tag("v1.0.0")).await.unwrap_err();
                registry.small_blob(&repository(), &digest, 99).await.unwrap_err();
                registry.blob_size(&repository(), &digest).await.unwrap_err();
                registry.tags(&repository(), &page).await.unwrap_err();
                registry.referrers(&repository(), &digest, None, &page).await.unwrap_err();
                registry.put_blob(&repository(), &digest, &source).await.unwrap_err();
                registry.delete_manifest(&repository(), &digest).await.unwrap_err();
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_changes_something_is_sent_nowhere_else() {
    let thief = thief().await;
    let url = format!("http://localhost:{}/x", thief.address.port());
    let server = Hostile::start(move |_| answer(307, &[("location", &url)], b"")).await;
    let registry = remote(&server);
    let digest = ocimod::oci::Digest::of(b"content");
    ends(async {
        let source = BytesSource("content".into());
        registry.put_blob(&repository(), &digest, &source).await.unwrap_err();
        assert!(!registry.mount(&repository(), &digest, None).await.unwrap());
        registry.delete_blob(&repository(), &digest).await.unwrap_err();
        registry.delete_tag(&repository(), &"v1.0.0".parse().unwrap()).await.unwrap_err();
    })
    .await;
    assert!(thief.requests().is_empty());
}
