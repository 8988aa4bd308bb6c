//! Manifests of modules that are put together to mislead.

use ocimod::operations::{OperationError, inspect, published};
use serde_json::{Value, json};

use super::{Module, address, ends, offered, pulled, remote, routes};

/// A module with a change is neither pulled nor offered.
async fn is_refused(good: &Module, what: &str, change: impl FnOnce(&mut Value)) {
    let mut module = good.clone();
    change(&mut module.manifest);
    let server = module.serve().await;
    let error = pulled(remote(&server)).await.expect_err(what);
    assert!(!error.is_passing(), "{what}: {error}");
    let (status, said) = offered(remote(&server)).await;
    assert!((400..500).contains(&status) || status == 502, "{what}: {status} {said}");
    assert!(!said.contains("archive.zip"), "{what}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_has_one_archive_and_says_what_it_is() {
    let good = Module::good().await;
    is_refused(&good, "two archives", |manifest| {
        let layer = manifest["layers"][0].clone();
        manifest["layers"].as_array_mut().unwrap().push(layer);
    })
    .await;
    is_refused(&good, "no archive", |manifest| manifest["layers"] = json!([])).await;
    is_refused(&good, "another type", |manifest| {
        manifest["artifactType"] = "application/vnd.evil".into();
        manifest["config"]["mediaType"] = "application/vnd.oci.empty.v1+json".into();
    })
    .await;
    is_refused(&good, "an image", |manifest| {
        manifest.as_object_mut().unwrap().remove("artifactType");
        manifest["config"]["mediaType"] = "application/vnd.oci.image.config.v1+json".into();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_is_one_before_it_becomes_part_of_a_url_or_a_path() {
    let good = Module::good().await;
    let hex = good.zip().0.hex().to_owned();
    for digest in [
        "sha256:../../../../etc/passwd".to_owned(),
        "../../x".to_owned(),
        String::new(),
        "sha256:".to_owned(),
        format!("sha256:{}", hex.to_uppercase()),
        format!("sha256:{hex}0"),
        format!("sha256:{}", &hex[1..]),
        format!("md5:{}", &hex[..32]),
        format!("sha256:{hex}?x=y"),
        format!("sha256:{hex}\n"),
        format!("sha512:{hex}"),
    ] {
        let mut module = good.clone();
        module.manifest["layers"][0]["digest"] = digest.as_str().into();
        let server = module.serve().await;
        let error = pulled(remote(&server)).await.expect_err(&digest);
        assert!(!error.is_passing(), "{digest}: {error}");
        let asked = server.requests();
        assert!(asked.iter().all(|request| !request.line.contains("/blobs/")), "{digest}: {asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_file_that_means_harm_is_passed_over_and_no_crash() {
    let good = Module::good().await;
    for text in [
        String::new(),
        "\0".to_owned(),
        "module: ".to_owned(),
        format!("module: \"a.example/x@v1\"\nlanguage: version: \"v0.9.0\"\nx: {}", "[".repeat(200_000)),
        format!("module: \"a.example/x@v1\"\nlanguage: version: \"v0.9.0\"\n{}", "a: {".repeat(200_000)),
        "module: \"../../x@v1\"\nlanguage: version: \"v0.9.0\"\n".to_owned(),
        "module: \"a.example/x@v1\"\nimport \"os\"\nlanguage: version: \"v0.9.0\"\n".to_owned(),
        format!("module: \"a.example/{}@v1\"\nlanguage: version: \"v0.9.0\"\n", "x/".repeat(100_000)),
    ] {
        let mut module = good.clone();
        let digest = ocimod::oci::Digest::of(text.as_bytes());
        module.manifest["layers"][1] = json!({
            "mediaType": "application/vnd.cue.modulefile.v1", "digest": digest, "size": text.len(),
        });
        module.blobs.push((digest, text.clone().into_bytes()));
        let server = module.serve().await;
        let shown: String = text.chars().take(60).collect();
        let outcome = ends(async {
            let stored = published::select(&routes(remote(&server)), &address(), None).await?;
            inspect::inspect(&stored).await
        })
        .await;
        match outcome {
            Err(OperationError::Registry { source, .. }) => {
                assert!(!source.is_passing(), "{shown}: {source}");
            }
            Err(_) => {}
            // Another tool may have pushed it, and the zip is as good without: nothing of the file is believed.
            Ok(inspected) => assert_eq!(inspected.module, None, "{shown}"),
        }
        // Whoever installs is told of it as of anything that is not as it should be, and not that the server has failed.
        let (status, said) = offered(remote(&server)).await;
        assert_ne!(status, 500, "{shown}: {said}");
    }
}
