//! `copy --deps`: modules in another form, with the same zips.

use super::*;
use ocimod::module::AddressAt;
use ocimod::operations::published::{self, StoredModule};

async fn load(registry: SharedRegistry, address: &str) -> StoredModule {
    let address: AddressAt = address.parse().unwrap();
    published::select(&routes("to.example", registry), &address, None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_becomes_what_a_push_in_it_would_have_written() {
    use DependencyForm::{Inline, None, Separate};
    let pushed = async |form| {
        let rig = Rig::new().await;
        rig.push("acme/leaf/null@1.0.0", "leaf", &[], Inline).await;
        rig.push("acme/tree/null@1.0.0", "tree", &["acme/leaf/null"], form).await;
        rig
    };
    let mut expected = Vec::new();
    for form in [Inline, Separate, None] {
        let mut tags = tags(&pushed(form).await.source()).await;
        tags.retain(|name, _| name.starts_with("acme/tree/"));
        expected.push((form, tags));
    }
    for from in [Inline, Separate, None] {
        let rig = pushed(from).await;
        for (to, expected) in &expected {
            let rig = Rig { from: rig.from.clone(), ..Rig::new().await };
            let request = CopyRequest { form: Some(*to), ..named(&["acme/tree/null"]) };
            Rig::done(rig.copy(&request).await);
            assert_eq!(&tags(&rig.destination()).await, expected, "{from:?} to {to:?}");
            expect_whole(&rig.destination()).await;
            let stored = load(rig.destination(), "acme/tree/null").await;
            assert_eq!(stored.form, *to);
            assert_eq!(stored.artifact.dependencies.len(), usize::from(*to != None));
            assert_eq!(copied(&Rig::done(rig.copy(&request).await)), Vec::<String>::new());
            // What has no dependencies is the same in every form.
            let leaf = CopyRequest { form: Some(*to), ..named(&["acme/leaf/null"]) };
            Rig::done(rig.copy(&leaf).await);
            let name = "acme/leaf/null:v1.0.0";
            assert_eq!(tags(&rig.destination()).await[name], tags(&rig.source()).await[name]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_without_its_version_becomes_both() {
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "leaf", &[], DependencyForm::Inline).await;
    rig.push("acme/tree/null@1.0.0", "tree", &["acme/leaf/null"], DependencyForm::Separate).await;
    let expected = tags(&rig.source()).await;
    let tree = repository("acme/tree/null");
    rig.source().delete_tag(&tree, &"v1.0.0".parse().unwrap()).await.unwrap();
    rig.source().delete_manifest(&tree, &expected["acme/tree/null:v1.0.0"]).await.unwrap();
    // As it is, it is the version all the same.
    let done = Rig::done(rig.copy(&named(&["acme/tree/null"])).await);
    assert_eq!(copied(&done), ["acme/tree/null 1.0.0 bundle.v1.0.0"]);
    let request = CopyRequest { form: Some(DependencyForm::Separate), ..named(&["acme/tree/null"]) };
    Rig::done(rig.copy(&request).await);
    for (name, digest) in tags(&rig.destination()).await {
        assert_eq!(expected[&name], digest, "{name}");
    }
    assert_eq!(tags(&rig.destination()).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_in_another_form_is_left_alone() {
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "leaf", &[], DependencyForm::Inline).await;
    rig.push("acme/tree/null@1.0.0", "tree", &["acme/leaf/null"], DependencyForm::Inline).await;
    Rig::done(rig.copy(&named(&["acme/tree/null"])).await);
    let before = tags(&rig.destination()).await;
    let request = CopyRequest { form: Some(DependencyForm::None), ..named(&["acme/tree/null"]) };
    let done = rig.copy(&request).await.unwrap();
    let OperationError::OtherForm { stored: "inline", .. } = &done.failed[0].error else {
        panic!("{}", done.failed[0].error)
    };
    assert_eq!(tags(&rig.destination()).await, before);
    // Likewise the other way round, and without a word of the form.
    for (there, name) in [(DependencyForm::None, "none"), (DependencyForm::Separate, "separate")] {
        let rig = Rig { from: rig.from.clone(), ..Rig::new().await };
        let request = CopyRequest { form: Some(there), ..named(&["acme/tree/null"]) };
        Rig::done(rig.copy(&request).await);
        for form in [Some(DependencyForm::Inline), None] {
            let done = rig.copy(&CopyRequest { form, ..named(&["acme/tree/null"]) }).await.unwrap();
            let error = &done.failed[0].error;
            assert!(matches!(error, OperationError::OtherForm { stored, .. } if *stored == name), "{error}");
            assert!(error.hint().unwrap().contains(&format!("--deps {name}")));
        }
    }
    // Other content is other content in whatever form.
    let other = Rig::new().await;
    other.push("acme/tree/null@1.0.0", "another tree", &[], DependencyForm::Inline).await;
    let rig = Rig { to: other.from.clone(), ..rig };
    let done = rig.copy(&request).await.unwrap();
    assert!(matches!(done.failed[0].error, OperationError::Differs { .. }), "{}", done.failed[0].error);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_found_cannot_be_embedded() {
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "leaf", &[], DependencyForm::Inline).await;
    rig.push("acme/tree/null@1.0.0", "tree", &["acme/leaf/null"], DependencyForm::None).await;
    rig.source().delete_tag(&repository("acme/leaf/null"), &"v1.0.0".parse().unwrap()).await.unwrap();
    let request = CopyRequest { form: Some(DependencyForm::Inline), ..named(&["acme/tree/null"]) };
    let done = rig.copy(&request).await.unwrap();
    let message = done.failed[0].error.to_string();
    assert!(message.contains("acme/leaf/null@v1.0.0") && message.contains("which is not in"), "{message}");
    assert!(tags(&rig.destination()).await.is_empty());
}
