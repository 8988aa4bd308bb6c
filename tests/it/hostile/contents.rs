//! Bytes that are not those that were asked for: none of them reaches anybody.

use ocimod::oci::{Digest, IMAGE_INDEX, IMAGE_MANIFEST};
use ocimod::operations::OperationError;
use ocimod::registry::RegistryError;
use serde_json::json;

use super::server::{Hostile, answer};
use super::{Module, ends, offered, pulled, remote, repository, tag};

#[track_caller]
fn cause(error: &OperationError) -> &RegistryError {
    match error.cause() {
        OperationError::Registry { source, .. } => source,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_good_registry_has_is_pulled_and_offered() {
    let server = Module::good().await.serve().await;
    assert!(pulled(remote(&server)).await.unwrap().contains(&"main.tf".to_owned()));
    let (status, said) = offered(remote(&server)).await;
    assert_eq!(status, 200, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zip_of_other_bytes_leaves_no_file() {
    let good = Module::good().await;
    let zip = good.zip().1.clone();
    let mut changed = zip.clone();
    *changed.last_mut().unwrap() ^= 1;
    let longer = [&zip[..], b"x"].concat();
    for bytes in [changed, longer, zip[..zip.len() - 1].to_vec(), Vec::new()] {
        let mut module = good.clone();
        module.blobs[0].1 = bytes;
        let server = module.serve().await;
        let error = pulled(remote(&server)).await.unwrap_err();
        let is_right = matches!(
            cause(&error),
            RegistryError::DigestMismatch { .. } | RegistryError::SizeMismatch { .. }
        );
        assert!(is_right, "{error}");
        assert_ne!(offered(remote(&server)).await.0, 500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_lies_is_noticed_and_nothing_is_made_ready_for_it() {
    let good = Module::good().await;
    let size = good.zip().1.len() as u64;
    for lie in [0, 1, size - 1, size + 1, 1 << 40, u64::MAX] {
        let mut module = good.clone();
        module.manifest["layers"][0]["size"] = lie.into();
        let server = module.serve().await;
        let error = pulled(remote(&server)).await.unwrap_err();
        let is_right = match cause(&error) {
            RegistryError::SizeMismatch { .. } => lie < 1 << 40,
            RegistryError::TooLarge { .. } => lie >= 1 << 40,
            _ => false,
        };
        assert!(is_right, "{lie}: {error}");
        let (status, said) = offered(remote(&server)).await;
        assert!(status >= 400 && !said.contains("archive.zip"), "{lie}: {status} {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_file_of_other_bytes_is_not_read() {
    let good = Module::good().await;
    for (name, size) in [("other bytes", None), ("longer", Some(7)), ("without end", Some(1_u64 << 40))] {
        let mut module = good.clone();
        module.manifest["layers"][1].as_object_mut().unwrap().remove("data");
        module.blobs[1].1 = b"module: \"evil.example/x@v1\"\nlanguage: version: \"v0.9.0\"\n".to_vec();
        if let Some(size) = size {
            module.manifest["layers"][1]["size"] = size.into();
        }
        let server = module.serve().await;
        let registry = remote(&server);
        let stored =
            ends(ocimod::operations::published::select(&super::routes(registry), &super::address(), None))
                .await;
        let error = match stored {
            Ok(stored) => ends(stored.module_file()).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(!error.is_passing(), "{name}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_of_other_bytes_than_its_digest_is_refused() {
    let good = Module::good().await;
    let (manifest, other) = (good.manifest.to_string(), r#"{"schemaVersion":2,"layers":[]}"#);
    let digest = Digest::of(manifest.as_bytes());
    // The header is right, and the body is not.
    let header = digest.to_string();
    let server = Hostile::start(move |_| {
        answer(200, &[("content-type", IMAGE_MANIFEST), ("docker-content-digest", &header)], other.as_bytes())
    })
    .await;
    let error = ends(remote(&server).manifest(&repository(), &digest.clone().into())).await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");

    // The header is wrong, and the body is right.
    let server = Hostile::start(move |_| {
        let lie = Digest::of(b"lie").to_string();
        answer(200, &[("content-type", IMAGE_MANIFEST), ("docker-content-digest", &lie)], manifest.as_bytes())
    })
    .await;
    let stored = ends(remote(&server).manifest(&repository(), &tag("v1.0.0"))).await.unwrap();
    assert_eq!(stored.digest, digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_never_taken_for_a_manifest_nor_the_reverse() {
    let good = Module::good().await;
    let both = {
        let mut manifest = good.manifest.clone();
        manifest["manifests"] = json!([{"mediaType": IMAGE_MANIFEST, "digest": good.zip().0, "size": 1}]);
        manifest
    };
    let index = json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": []});
    for (manifest, media_type) in [
        (good.manifest.clone(), IMAGE_INDEX),
        (both.clone(), IMAGE_MANIFEST),
        (both, IMAGE_INDEX),
        (index.clone(), IMAGE_MANIFEST),
        (index, IMAGE_INDEX),
        (good.manifest.clone(), "text/html"),
        (good.manifest.clone(), "application/vnd.docker.distribution.manifest.v1+prettyjws"),
        (json!({"schemaVersion": 1, "layers": []}), IMAGE_MANIFEST),
        (json!([]), IMAGE_MANIFEST),
    ] {
        let module = Module { manifest, media_type: media_type.to_owned(), ..good.clone() };
        let shown = format!("{media_type}: {}", module.manifest);
        let server = module.serve().await;
        let error = pulled(remote(&server)).await.unwrap_err();
        assert!(!error.is_passing(), "{shown}: {error}");
        let (status, said) = offered(remote(&server)).await;
        assert!((400..500).contains(&status) || status == 502, "{shown}: {status} {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_over_four_mebibytes_is_not_read() {
    let mut module = Module::good().await;
    module.manifest["annotations"]["filling"] = "x".repeat(5 << 20).into();
    let server = module.serve().await;
    let error = pulled(remote(&server)).await.unwrap_err();
    assert!(matches!(cause(&error), RegistryError::TooLarge { limit: 4_194_304 }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_nested_without_end_is_an_error_and_no_crash() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let text =
            format!("{{\"schemaVersion\":2,\"x\":{}1{}}}", open.repeat(300_000), close.repeat(300_000));
        let server =
            Hostile::start(move |_| answer(200, &[("content-type", IMAGE_MANIFEST)], text.as_bytes())).await;
        let error = pulled(remote(&server)).await.unwrap_err();
        assert!(!error.is_passing(), "{error}");
    }
}
