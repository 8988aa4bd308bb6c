//! A copy that breaks off, at whichever request, leaves no tag that is not whole; the next one ends well and sends nothing twice.

use std::collections::HashSet;

use ocimod::registry::RegistryError;

use super::*;
use crate::failing_registry::{Failure, When};

/// What a copy asks of the one and of the other, and may not get.
const OPERATIONS: [(&str, bool); 11] = [
    ("tags", true),
    ("manifest", true),
    ("manifest_head", true),
    ("blob", true),
    ("referrers", true),
    ("tags", false),
    ("manifest_head", false),
    ("blob_size", false),
    ("put_blob", false),
    ("put_manifest", false),
    ("referrers", false),
];

fn broken() -> RegistryError {
    RegistryError::Unavailable { registry: "registry.example".into(), reason: "it is told to be".into() }
}

/// A source with everything that a repository may have: versions, a bundle, a yank, a signature, a provider.
async fn filled() -> Rig {
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "leaf", &[], DependencyForm::Inline).await;
    let digest =
        rig.push("acme/tree/null@1.0.0", "tree", &["acme/leaf/null"], DependencyForm::Separate).await;
    let tree = repository("acme/tree/null");
    let size = rig.source().manifest(&tree, &by_tag("v1.0.0")).await.unwrap().bytes.len() as u64;
    about(&rig.source(), &tree, &Descriptor::new(IMAGE_MANIFEST, digest, size), "signed").await;
    let mark = ocimod::operations::yank::YankRequest {
        address: "acme/leaf/null@1.0.0".parse().unwrap(),
        reason: None,
        force: false,
        dry_run: false,
    };
    ocimod::operations::yank::yank(&routes("from.example", rig.source()), &mark).await.unwrap();
    let cloud = repository("providers/registry.opentofu.org/acme/cloud");
    provider(&rig.source(), &cloud, &["linux_amd64", "darwin_arm64"], "1.0.0").await;
    rig
}

/// The blobs and manifests that came whole.
fn sent(rig: &Rig) -> Vec<String> {
    let calls = rig.to.take_calls();
    let is_sent = |call: &crate::failing_registry::Call| call.operation == "put_blob";
    calls
        .iter()
        .filter(|call| is_sent(call))
        .map(|call| format!("{} {}", call.repository, call.arguments))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_breaks_off_anywhere_leaves_nothing_half_and_is_finished_by_the_next() {
    let source = filled().await;
    let request = CopyRequest { referrers: true, ..everything() };
    let expected = tags(&source.source()).await;
    let mut failures = 0;
    for (operation, is_source) in OPERATIONS {
        for nth in 1.. {
            let rig = Rig { from: source.from.clone(), ..Rig::new().await };
            let failing = if is_source { &rig.from } else { &rig.to };
            let failure = match operation {
                "blob" => Failure::CutAfter(1),
                _ => Failure::error(broken),
            };
            failing.fail(operation, When::Nth(nth), failure);
            let outcome = rig.copy(&request).await;
            let is_over = outcome.as_ref().is_ok_and(|done| done.failed.is_empty());
            rig.from.work_again();
            rig.to.work_again();
            expect_whole(&rig.destination()).await;
            // What stands there now is not sent again.
            let mut there = HashSet::new();
            for name in tags(&rig.destination()).await.keys() {
                let (repository, tag) = name.rsplit_once(':').unwrap();
                let digests = read_whole(&rig.destination(), &repository.parse().unwrap(), by_tag(tag)).await;
                there.extend(digests.iter().map(|digest| format!("{repository} {digest}")));
            }
            let first = sent(&rig);
            let again = Rig::done(rig.copy(&request).await);
            let second = sent(&rig);
            for sent in &second {
                assert!(!there.contains(sent), "{operation} {nth}: {sent} was sent again");
            }
            assert_eq!(tags(&rig.destination()).await, expected, "{operation} {nth}");
            expect_whole(&rig.destination()).await;
            let tree = repository("acme/tree/null");
            let signed = expected["acme/tree/null:v1.0.0"].clone();
            assert_eq!(
                referrers(&rig.destination(), &tree, &signed).await,
                referrers(&source.source(), &tree, &signed).await
            );
            assert_eq!(Rig::done(rig.copy(&request).await).bytes_sent, 0);
            if is_over {
                assert_eq!((again.bytes_sent, second.len()), (0, 0), "{operation} {nth}: {first:?}");
                break;
            }
            failures += 1;
        }
    }
    assert!(failures > 4 * OPERATIONS.len(), "{failures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_answers_are_lost_is_found_done() {
    let source = filled().await;
    let request = CopyRequest { referrers: true, ..everything() };
    for operation in ["put_blob", "put_manifest"] {
        for nth in [1, 3, 5] {
            let rig = Rig { from: source.from.clone(), ..Rig::new().await };
            rig.to.fail(operation, When::Nth(nth), Failure::error_afterwards(broken));
            let _ = rig.copy(&request).await;
            rig.to.work_again();
            Rig::done(rig.copy(&request).await);
            assert_eq!(tags(&rig.destination()).await, tags(&source.source()).await, "{operation} {nth}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_of_the_source_reach_no_tag() {
    let rig = Rig::new().await;
    for version in ["1.0.0", "1.1.0"] {
        rig.push(&format!("acme/leaf/null@{version}"), version, &[], DependencyForm::Inline).await;
    }
    let leaf = repository("acme/leaf/null");
    // The file itself, so that it is wrong each time that it is read.
    let stored = rig.source().manifest(&leaf, &by_tag("v1.0.0")).await.unwrap();
    let zip = Manifest::parse(IMAGE_MANIFEST, &stored.bytes).unwrap().layers[0].digest.clone();
    let file = rig.folder.path().join("from/repos/acme/leaf/null/_oci/blobs/sha256").join(zip.hex());
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[40] ^= 1;
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, bytes).unwrap();
    let done = rig.copy(&everything()).await.unwrap();
    assert_eq!(copied(&done), ["modules.internal/acme/leaf/null 1.1.0 v1.1.0"]);
    assert_eq!(done.failed[0].version.as_ref().unwrap().to_string(), "1.0.0");
    assert!(!done.is_broken_off, "it is one version's own failure");
    assert_eq!(tags(&rig.destination()).await.len(), 1);
    expect_whole(&rig.destination()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_away_is_not_asked_for_every_version() {
    let rig = Rig::new().await;
    for number in 0..40 {
        rig.push(&format!("acme/leaf/null@1.{number}.0"), "it", &[], DependencyForm::Inline).await;
    }
    rig.to.fail("blob_size", When::Always, Failure::error(broken));
    let done = rig.copy(&everything()).await.unwrap();
    assert!(done.is_broken_off && done.copied.is_empty());
    assert!(done.failed.len() < 20, "{}", done.failed.len());
    assert!(done.failed.iter().all(|failed| failed.error.is_passing()));
    // No right to one repository is its own matter.
    let rig = Rig::new().await;
    for name in ["a", "b", "c"] {
        rig.push(&format!("acme/{name}/null@1.0.0"), "it", &[], DependencyForm::Inline).await;
    }
    let denied =
        || RegistryError::Denied { registry: "to.example".into(), operation: "pushing blobs".into() };
    rig.to.fail("put_blob", When::Nth(1), Failure::error(denied));
    let done = rig.copy(&everything()).await.unwrap();
    assert_eq!((done.copied.len(), done.failed.len(), done.is_broken_off), (2, 1, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_takes_nothing_is_told_once_and_the_others_go_on() {
    let not_made: fn() -> RegistryError = || RegistryError::RepositoryNotMade {
        registry: "to.example".into(),
        repository: "acme/leaf/null".into(),
        command: Some("make it".into()),
    };
    let denied: fn() -> RegistryError =
        || RegistryError::Denied { registry: "to.example".into(), operation: "pushing blobs".into() };
    for error in [not_made, denied] {
        let rig = Rig::new().await;
        for number in 0..40 {
            let address = format!("acme/leaf/null@1.{number}.0");
            rig.push(&address, &number.to_string(), &[], DependencyForm::Inline).await;
        }
        rig.to.fail("put_blob", When::Always, Failure::error(error));
        let done = rig.copy(&everything()).await.unwrap();
        assert_eq!(
            (done.copied.len(), done.failed.len(), done.is_broken_off),
            (0, 1, false),
            "{:?}",
            done.failed
        );
        assert_eq!(done.failed[0].version, None);
        assert!(rig.to.count("put_blob") < 20, "{}", rig.to.count("put_blob"));
        rig.to.work_again();
        assert_eq!(Rig::done(rig.copy(&everything()).await).copied.len(), 40);
    }
    // A tag that may not be written is that version's own matter.
    let rig = Rig::new().await;
    for number in 0..3 {
        rig.push(&format!("acme/leaf/null@1.{number}.0"), "it", &[], DependencyForm::Inline).await;
    }
    rig.to.fail("put_manifest", When::Nth(1), Failure::error(denied));
    let done = rig.copy(&everything()).await.unwrap();
    assert_eq!((done.copied.len(), done.failed.len()), (2, 1));
    assert!(done.failed[0].version.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_within_each_other_have_an_end() {
    let rig = Rig::new().await;
    let cloud = repository("providers/registry.opentofu.org/acme/cloud");
    let mut child = provider(&rig.source(), &cloud, &["linux_amd64"], "0.0.1").await;
    for depth in 0..8 {
        let index = json!({
            "schemaVersion": 2, "artifactType": media_types::OPENTOFU_PROVIDER,
            "manifests": [{"mediaType": child.media_type, "digest": child.digest, "size": child.size}],
        });
        let tags: &[&str] = if depth == 7 { &["1.0.0"] } else { &[] };
        child = put(&rig.source(), &cloud, &index, tags).await;
    }
    let done = rig.copy(&everything()).await.unwrap();
    assert_eq!((done.copied.len(), done.failed.len()), (1, 1));
    assert!(done.failed[0].error.to_string().contains("within each other"), "{}", done.failed[0].error);
    expect_whole(&rig.destination()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_pushes_meanwhile_is_not_replaced() {
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "ours", &[], DependencyForm::Inline).await;
    let leaf = repository("acme/leaf/null");
    let theirs = artifact(&rig.destination(), &leaf, media_types::OPENTOFU_MODULE, "theirs").await;
    let theirs = put(&rig.destination(), &leaf, &theirs, &["other"]).await;
    // Between the look at the tags and the write.
    rig.to.fail("put_blob", When::Nth(1), Failure::Delay(std::time::Duration::from_millis(300)));
    let request = everything();
    let (done, ()) = tokio::join!(rig.copy(&request), async {
        while rig.to.count("put_blob") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let stored = rig.destination().manifest(&leaf, &by_tag("other")).await.unwrap();
        let manifest: Value = serde_json::from_slice(&stored.bytes).unwrap();
        put(&rig.destination(), &leaf, &manifest, &["v1.0.0"]).await;
    });
    let done = done.unwrap();
    let OperationError::Differs { to_digest, .. } = &done.failed[0].error else {
        panic!("{:?}", done.failed);
    };
    assert_eq!(*to_digest, theirs.digest);
    assert_eq!(tags(&rig.destination()).await["acme/leaf/null:v1.0.0"], theirs.digest);
}
