//! What is copied: versions with all that belongs to them, and nothing else.

use super::*;
use ocimod::module::Constraint;
use ocimod::operations::yank::{self, YankRequest};

async fn yank(rig: &Rig, registry: SharedRegistry, address: &str, reason: &str) {
    let name = if Arc::ptr_eq(&registry, &rig.source()) { "from.example" } else { "to.example" };
    let request = YankRequest {
        address: address.parse().unwrap(),
        reason: Some(reason.parse().unwrap()),
        force: true,
        dry_run: false,
    };
    yank::yank(&routes(name, registry), &request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_is_copied_with_the_same_digests_and_not_sent_again() {
    let rig = Rig::new().await;
    for version in ["1.0.0", "1.1.0", "2.0.0-rc.1"] {
        rig.push(&format!("acme/leaf/null@{version}"), version, &[], DependencyForm::Inline).await;
    }
    let leaf = repository("acme/leaf/null");
    let image = artifact(&rig.source(), &leaf, "application/vnd.example.image", "image").await;
    put(&rig.source(), &leaf, &image, &["latest", "v1", "v3.0.0"]).await;
    let done = Rig::done(rig.copy(&named(&["acme/leaf/null"])).await);
    let expected =
        ["1.0.0", "1.1.0", "2.0.0-rc.1"].map(|version| format!("acme/leaf/null {version} v{version}"));
    assert_eq!(copied(&done), expected);
    // What floats, and what is no module, stays where it is.
    assert_eq!(done.skipped.len(), 1);
    assert!(matches!(&done.skipped[0].reason, SkipReason::NotOurs(found) if found.contains("artifact")));
    let mut from = tags(&rig.source()).await;
    from.retain(|name, _| !["latest", "v1", "v3.0.0"].iter().any(|tag| name.ends_with(&format!(":{tag}"))));
    assert_eq!(tags(&rig.destination()).await, from);
    expect_whole(&rig.destination()).await;

    rig.to.take_calls();
    rig.from.take_calls();
    let again = Rig::done(rig.copy(&named(&["acme/leaf/null"])).await);
    assert_eq!((copied(&again).len(), there(&again).len(), again.bytes_sent), (0, 3, 0));
    for operation in ["put_blob", "put_manifest", "mount"] {
        assert_eq!(rig.to.count(operation), 0, "{operation}");
    }
    assert_eq!(rig.from.count("blob"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_constraint_chooses_and_what_nothing_fits_is_an_error_before_anything_is_sent() {
    let rig = Rig::new().await;
    for version in ["0.9.0", "1.0.0", "1.2.0", "1.3.0-rc.1", "2.0.0"] {
        rig.push(&format!("acme/leaf/null@{version}"), version, &[], DependencyForm::Inline).await;
    }
    rig.push("acme/other/null@1.0.0", "other", &[], DependencyForm::Inline).await;
    yank(&rig, rig.source(), "acme/leaf/null@2.0.0", "broken").await;
    let chosen = async |addresses: &[&str], constraint: Option<&str>| {
        let rig_to = Rig::new().await;
        let from = routes("from.example", rig.source());
        let to = Destination { routes: routes("to.example", rig_to.destination()), files: Vec::new() };
        let constraint = constraint.map(|text| text.parse::<Constraint>().unwrap());
        let request = CopyRequest { constraint, ..named(addresses) };
        let done = copy::copy(&from, &to, &request, Arc::new(NoProgress)).await?;
        Ok::<_, OperationError>(
            done.copied.iter().map(|it| it.version.to_string()).collect::<Vec<_>>().join(" "),
        )
    };
    for (address, constraint, expected) in [
        ("acme/leaf/null@~> 1.0", None, "1.0.0 1.2.0"),
        ("acme/leaf/null@1.3.0-rc.1", None, "1.3.0-rc.1"),
        ("acme/leaf/null", Some(">= 1.1"), "1.2.0 2.0.0"),
        ("acme/leaf/null@latest", None, "1.2.0"),
        ("acme/leaf/null@v1", None, "1.0.0 1.2.0 1.3.0-rc.1"),
    ] {
        assert_eq!(chosen(&[address], constraint).await.unwrap(), expected, "{address} {constraint:?}");
    }
    let twice = ["acme/leaf/null@1.0.0", "acme/leaf/null@~> 1.0", "acme/other/null"];
    assert_eq!(chosen(&twice, None).await.unwrap(), "1.0.0 1.2.0 1.0.0");
    for (addresses, message) in [
        (&["acme/other/null", "acme/leaf/null@7.0.0"][..], "no version"),
        (&["acme/other/null", "acme/nothing/null"], "not in the registry"),
        (&["provider:registry.opentofu.org/hashicorp/aws"], "not in the registry"),
    ] {
        let error = rig.copy(&named(addresses)).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(rig.to.count("put_blob"), 0);
    }
    let both = CopyRequest { constraint: Some("1.0.0".parse().unwrap()), ..named(&["acme/leaf/null@1.0.0"]) };
    assert!(matches!(rig.copy(&both).await, Err(OperationError::Usage { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_spellings_of_a_version_are_copied_and_one_that_is_there_in_the_other_is_the_same() {
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "one", &[], DependencyForm::Inline).await;
    let leaf = repository("acme/leaf/null");
    let stored = rig.source().manifest(&leaf, &by_tag("v1.0.0")).await.unwrap();
    let manifest: Value = serde_json::from_slice(&stored.bytes).unwrap();
    put(&rig.source(), &leaf, &manifest, &["1.0.0"]).await;
    // The destination has the other spelling alone.
    rig.copy(&named(&["acme/leaf/null"])).await.unwrap();
    rig.destination().delete_tag(&leaf, &"v1.0.0".parse().unwrap()).await.unwrap();
    let done = Rig::done(rig.copy(&named(&["acme/leaf/null"])).await);
    assert_eq!(copied(&done), ["acme/leaf/null 1.0.0 v1.0.0"]);
    assert_eq!(tags(&rig.destination()).await, tags(&rig.source()).await);
    // There as other content, in whichever spelling, it is another version.
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "one", &[], DependencyForm::Inline).await;
    let other = artifact(&rig.destination(), &leaf, media_types::OPENTOFU_MODULE, "other").await;
    put(&rig.destination(), &leaf, &other, &["1.0.0"]).await;
    let done = rig.copy(&named(&["acme/leaf/null"])).await.unwrap();
    assert!(matches!(done.failed[0].error, OperationError::Differs { .. }), "{:?}", done.failed);
    assert_eq!(tags(&rig.destination()).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_differs_is_named_with_both_digests_and_the_others_are_copied() {
    let rig = Rig::new().await;
    let ours = rig.push("acme/leaf/null@1.0.0", "ours", &[], DependencyForm::Inline).await;
    rig.push("acme/leaf/null@1.1.0", "new", &[], DependencyForm::Inline).await;
    let leaf = repository("acme/leaf/null");
    let theirs = artifact(&rig.destination(), &leaf, media_types::OPENTOFU_MODULE, "theirs").await;
    let theirs = put(&rig.destination(), &leaf, &theirs, &["v1.0.0"]).await.digest;
    let done = rig.copy(&everything()).await.unwrap();
    assert_eq!(copied(&done), ["modules.internal/acme/leaf/null 1.1.0 v1.1.0"]);
    let [failed] = &done.failed[..] else { panic!("{:?}", done.failed) };
    let message = failed.error.to_string();
    assert!(message.contains(ours.as_str()) && message.contains(theirs.as_str()), "{message}");
    assert!(message.contains("to.example/acme/leaf/null:v1.0.0"), "{message}");
    assert!(!done.is_broken_off);
    assert_eq!(tags(&rig.destination()).await["acme/leaf/null:v1.0.0"], theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_of_another_module_is_left_alone() {
    let rig = Rig::new().await;
    let host = |address: &str| format!("a.example/{address}");
    rig.push(&host("acme/leaf/null@1.0.0"), "ours", &[], DependencyForm::Inline).await;
    let other = Rig::new().await;
    other.push("b.example/acme/leaf/null@2.0.0", "theirs", &[], DependencyForm::Inline).await;
    let (from, to) = (routes("from.example", rig.source()), routes("to.example", other.source()));
    let to = Destination { routes: to, files: Vec::new() };
    for request in [named(&["a.example/acme/leaf/null"]), everything()] {
        let outcome = copy::copy(&from, &to, &request, Arc::new(NoProgress)).await;
        let error = match outcome {
            Ok(mut done) => done.failed.remove(0).error,
            Err(error) => error,
        };
        assert!(matches!(error, OperationError::OtherModule { .. }), "{error}");
    }
    assert_eq!(tags(&other.source()).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yank_goes_along_and_is_never_taken_back() {
    let rig = Rig::new().await;
    for version in ["1.0.0", "1.1.0", "1.2.0"] {
        rig.push(&format!("acme/leaf/null@{version}"), version, &[], DependencyForm::Inline).await;
    }
    yank(&rig, rig.source(), "acme/leaf/null@1.0.0", "leaks keys").await;
    // One that is only embedded somewhere.
    yank(&rig, rig.source(), "acme/leaf/null@0.1.0", "ancient").await;
    let done = Rig::done(rig.copy(&named(&["acme/leaf/null"])).await);
    assert_eq!(
        copied(&done),
        [
            "acme/leaf/null 0.1.0 yanked.v0.1.0",
            "acme/leaf/null 1.0.0 v1.0.0,yanked.v1.0.0",
            "acme/leaf/null 1.1.0 v1.1.0",
            "acme/leaf/null 1.2.0 v1.2.0"
        ]
    );
    assert_eq!(tags(&rig.destination()).await, tags(&rig.source()).await);
    // The mark is there before the version is.
    let calls = rig.to.take_calls();
    let position = |tag: &str| {
        let is_put = |call: &crate::failing_registry::Call| {
            call.operation == "put_manifest" && call.arguments.ends_with(tag)
        };
        calls.iter().position(is_put).unwrap()
    };
    assert!(position(" yanked.v1.0.0") < position(" v1.0.0"));

    // Withdrawn later here; withdrawn there alone; and withdrawn on both sides for two reasons.
    yank(&rig, rig.source(), "acme/leaf/null@1.1.0", "here").await;
    yank(&rig, rig.destination(), "acme/leaf/null@1.2.0", "there").await;
    yank(&rig, rig.destination(), "acme/leaf/null@1.0.0", "for a reason of ours").await;
    let before = tags(&rig.destination()).await;
    let done = Rig::done(rig.copy(&named(&["acme/leaf/null"])).await);
    assert_eq!(copied(&done), ["acme/leaf/null 1.1.0 yanked.v1.1.0"]);
    let mut after = tags(&rig.destination()).await;
    assert!(after.remove("acme/leaf/null:yanked.v1.1.0").is_some());
    assert_eq!(after, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn dependencies_are_copied_from_their_own_repositories_and_before_what_needs_them() {
    let rig = Rig::new().await;
    for (address, calls) in [
        ("acme/leaf/null@1.0.0", &[][..]),
        ("acme/branch/null@1.0.0", &["acme/leaf/null"]),
        ("acme/leaf/null@1.5.0", &[]),
        ("acme/tree/null@1.0.0", &["acme/branch/null"]),
    ] {
        let form = if address.contains("tree") { DependencyForm::None } else { DependencyForm::Separate };
        rig.push(address, "it", calls, form).await;
    }
    let request = CopyRequest { with_dependencies: true, ..named(&["acme/tree/null"]) };
    let done = Rig::done(rig.copy(&request).await);
    assert_eq!(
        sorted(copied(&done)),
        [
            "acme/tree/null 1.0.0 v1.0.0",
            "modules.internal/acme/branch/null 1.0.0 v1.0.0,bundle.v1.0.0",
            "modules.internal/acme/leaf/null 1.0.0 v1.0.0"
        ]
    );
    let calls = rig.to.take_calls();
    let last = |repository: &str| {
        calls.iter().rposition(|call| call.operation == "put_manifest" && call.repository == repository)
    };
    assert!(
        last("acme/leaf/null") < last("acme/branch/null")
            && last("acme/branch/null") < last("acme/tree/null")
    );
    // The leaf's zip is a layer of the branch's bundle too: it came once.
    let zip = rig.source().manifest(&repository("acme/leaf/null"), &by_tag("v1.0.0")).await.unwrap();
    let zip = Manifest::parse(IMAGE_MANIFEST, &zip.bytes).unwrap().layers[0].digest.to_string();
    assert_eq!(calls.iter().filter(|call| call.operation == "put_blob" && call.arguments == zip).count(), 1);
    assert_eq!(
        calls.iter().filter(|call| call.operation == "mount" && call.arguments.starts_with(&zip)).count(),
        1
    );
    expect_whole(&rig.destination()).await;
    assert_eq!(copied(&Rig::done(rig.copy(&request).await)), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_modules_and_providers_and_no_images() {
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "one", &[], DependencyForm::Inline).await;
    let (image, aws) = (repository("acme/image"), repository("providers/registry.opentofu.org/acme/cloud"));
    let manifest = artifact(&rig.source(), &image, "application/vnd.example.image", "image").await;
    put(&rig.source(), &image, &manifest, &["1.0.0", "1.0.1", "latest"]).await;
    provider(&rig.source(), &aws, &["linux_amd64", "darwin_arm64"], "3.2.1").await;
    let done = Rig::done(rig.copy(&everything()).await);
    assert_eq!(
        copied(&done),
        [
            "modules.internal/acme/leaf/null 1.0.0 v1.0.0",
            "provider:registry.opentofu.org/acme/cloud 3.2.1 3.2.1"
        ]
    );
    assert_eq!(tags(&rig.destination()).await.len(), 2);
    expect_whole(&rig.destination()).await;
    let nothing = Rig::done(rig.copy(&everything()).await);
    assert_eq!((nothing.copied.len(), nothing.bytes_sent), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_copied_whole_or_by_platform_and_grows() {
    let address = "provider:registry.opentofu.org/acme/cloud";
    let cloud = repository("providers/registry.opentofu.org/acme/cloud");
    let rig = Rig::new().await;
    let platforms = ["linux_amd64", "darwin_arm64", "windows_amd64"];
    let whole = provider(&rig.source(), &cloud, &platforms, "3.2.1").await;
    let by = |platforms: &[&str]| CopyRequest {
        platforms: platforms.iter().map(|platform| platform.parse().unwrap()).collect(),
        ..named(&[address])
    };
    let systems = async || {
        let stored = rig.destination().manifest(&cloud, &by_tag("3.2.1")).await.unwrap();
        let index = Manifest::parse(&stored.media_type, &stored.bytes).unwrap();
        let system = |entry: &Descriptor| entry.platform.clone().unwrap().os;
        (stored.digest, index.entries().iter().map(system).collect::<Vec<_>>())
    };
    let none = Rig::done(rig.copy(&by(&["plan9_386"])).await);
    assert_eq!(none.skipped[0].reason, SkipReason::NoPlatform);
    Rig::done(rig.copy(&by(&["linux_amd64"])).await);
    assert_eq!(systems().await.1, ["linux"]);
    assert_eq!(copied(&Rig::done(rig.copy(&by(&["linux_amd64"])).await)), Vec::<String>::new());
    Rig::done(rig.copy(&by(&["windows_amd64"])).await);
    assert_eq!(systems().await.1, ["linux", "windows"]);
    expect_whole(&rig.destination()).await;
    Rig::done(rig.copy(&named(&[address])).await);
    assert_eq!(
        systems().await,
        (whole.digest.clone(), vec!["linux".into(), "darwin".into(), "windows".into()])
    );
    // What has fewer takes nothing away.
    let fewer = Rig::new().await;
    provider(&fewer.source(), &cloud, &platforms[..1], "3.2.1").await;
    let (from, to) = (routes("from.example", fewer.source()), routes("to.example", rig.destination()));
    let to = Destination { routes: to, files: Vec::new() };
    let done = Rig::done(copy::copy(&from, &to, &named(&[address]), Arc::new(NoProgress)).await);
    assert_eq!(there(&done).len(), 1);
    assert_eq!(systems().await.0, whole.digest);
    // Another zip for a platform that is there is another version.
    let other = Rig::new().await;
    let manifest =
        artifact(&other.source(), &cloud, "application/vnd.opentofu.provider-target", "other").await;
    let target = put(&other.source(), &cloud, &manifest, &[]).await;
    let index = json!({
        "schemaVersion": 2, "artifactType": media_types::OPENTOFU_PROVIDER,
        "manifests": [{
            "mediaType": target.media_type, "digest": target.digest, "size": target.size,
            "platform": {"os": "linux", "architecture": "amd64"},
        }],
    });
    put(&other.source(), &cloud, &index, &["3.2.1"]).await;
    let from = routes("from.example", other.source());
    let done = copy::copy(&from, &to, &named(&[address]), Arc::new(NoProgress)).await.unwrap();
    assert!(matches!(done.failed[0].error, OperationError::Differs { .. }));
    assert_eq!(systems().await.0, whole.digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_refers_to_a_version_goes_along_where_it_is_asked_for() {
    let rig = Rig::new().await;
    let (from, to) = (rig.source(), rig.destination());
    let leaf = repository("acme/leaf/null");
    let digest = rig.push("acme/leaf/null@1.0.0", "one", &[], DependencyForm::Inline).await;
    let stored = from.manifest(&leaf, &by_tag("v1.0.0")).await.unwrap();
    let subject = Descriptor::new(IMAGE_MANIFEST, digest.clone(), stored.bytes.len() as u64);
    let signature = about(&from, &leaf, &subject, "a signature").await;
    let attestation = about(&from, &leaf, &signature, "about the signature").await;
    let cosign = format!("sha256-{}.sig", digest.hex());
    let layers = async |registry: &SharedRegistry, layers: &[&str]| {
        let mut manifest = artifact(registry, &leaf, "application/vnd.example", layers[0]).await;
        for layer in &layers[1..] {
            put_blob(registry, &leaf, layer.as_bytes()).await;
            let layer = entry("application/octet-stream", layer.as_bytes());
            manifest["layers"].as_array_mut().unwrap().push(layer);
        }
        put(registry, &leaf, &manifest, &[&cosign]).await.digest
    };
    layers(&from, &["one"]).await;

    Rig::done(rig.copy(&named(&["acme/leaf/null"])).await);
    assert_eq!(referrers(&to, &leaf, &digest).await, []);
    assert_eq!(tags(&to).await.len(), 1);
    let with = CopyRequest { referrers: true, ..named(&["acme/leaf/null"]) };
    let done = Rig::done(rig.copy(&with).await);
    assert_eq!(copied(&done), [format!("acme/leaf/null 1.0.0 {cosign}")]);
    assert_eq!(done.copied[0].referrers, 2);
    assert_eq!(referrers(&to, &leaf, &digest).await, std::slice::from_ref(&signature.digest));
    assert_eq!(referrers(&to, &leaf, &signature.digest).await, std::slice::from_ref(&attestation.digest));
    read_whole(&to, &leaf, attestation.digest.clone().into()).await;
    assert_eq!(Rig::done(rig.copy(&with).await).bytes_sent, 0);

    // A second signature here is added there; one that is there alone is not lost; two that exclude each other are named.
    let two = layers(&from, &["one", "two"]).await;
    assert_eq!(copied(&Rig::done(rig.copy(&with).await)), [format!("acme/leaf/null 1.0.0 {cosign}")]);
    assert_eq!(tags(&to).await[&format!("{leaf}:{cosign}")], two);
    let three = layers(&to, &["one", "two", "three"]).await;
    assert_eq!(copied(&Rig::done(rig.copy(&with).await)), Vec::<String>::new());
    assert_eq!(tags(&to).await[&format!("{leaf}:{cosign}")], three);
    layers(&from, &["four"]).await;
    let done = rig.copy(&with).await.unwrap();
    assert!(matches!(done.failed[0].error, OperationError::Differs { .. }));
    assert_eq!(tags(&to).await[&format!("{leaf}:{cosign}")], three);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_refers_to_a_version_is_there_before_its_tag() {
    let rig = Rig::new().await;
    let leaf = repository("acme/leaf/null");
    let digest = rig.push("acme/leaf/null@1.0.0", "one", &[], DependencyForm::Inline).await;
    let size = rig.source().manifest(&leaf, &by_tag("v1.0.0")).await.unwrap().bytes.len() as u64;
    let subject = Descriptor::new(IMAGE_MANIFEST, digest.clone(), size);
    let signature = about(&rig.source(), &leaf, &subject, "a signature").await;
    Rig::done(rig.copy(&CopyRequest { referrers: true, ..everything() }).await);
    let calls = rig.to.take_calls();
    let puts: Vec<_> = calls
        .iter()
        .filter(|call| call.operation == "put_manifest")
        .map(|call| call.arguments.as_str())
        .collect();
    assert_eq!(puts, [digest.to_string(), signature.digest.to_string(), format!("{digest} v1.0.0")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_be_sent_and_sends_nothing() {
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "one", &[], DependencyForm::Inline).await;
    rig.push("acme/tree/null@1.0.0", "two", &["acme/leaf/null"], DependencyForm::Separate).await;
    yank(&rig, rig.source(), "acme/leaf/null@1.0.0", "broken").await;
    for request in [everything(), CopyRequest { with_dependencies: true, ..named(&["acme/tree/null"]) }] {
        let dry = Rig::done(rig.copy(&CopyRequest { dry_run: true, ..request.clone() }).await);
        for operation in ["put_blob", "put_manifest", "mount"] {
            assert_eq!(rig.to.count(operation), 0, "{operation}");
        }
        let other = Rig::new().await;
        let to = Destination { routes: routes("to.example", other.destination()), files: Vec::new() };
        let wet =
            copy::copy(&routes("from.example", rig.source()), &to, &request, Arc::new(NoProgress)).await;
        let wet = Rig::done(wet);
        assert_eq!(copied(&dry), copied(&wet));
        // What two repositories need at the same moment may be sent to both.
        let (dry, wet) = (dry.bytes_sent, wet.bytes_sent);
        assert!(dry > 1000 && dry <= wet && wet <= 2 * dry, "{dry} and {wet}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn within_one_registry_blobs_are_mounted() {
    let folder = tempfile::tempdir().unwrap();
    let registry = FailingRegistry::new(connect::directory(folder.path().to_owned()).await.unwrap());
    let rig = Rig { from: registry.clone(), to: registry, folder };
    rig.push("acme/leaf/null@1.0.0", "one", &[], DependencyForm::Inline).await;
    let from = routes("from.example", rig.source());
    let below = Target { prefix: "copy".into(), ..from.targets().next().unwrap().clone() };
    let below = Routes::new(vec![(None, Some(below))], RepositoryTemplate::default());
    let to = Destination { routes: below, files: Vec::new() };
    rig.from.take_calls();
    let done = Rig::done(copy::copy(&from, &to, &named(&["acme/leaf/null"]), Arc::new(NoProgress)).await);
    assert_eq!((rig.to.count("mount"), rig.to.count("put_blob")), (3, 0));
    let manifest =
        rig.source().manifest(&repository("copy/acme/leaf/null"), &by_tag("v1.0.0")).await.unwrap();
    assert_eq!(done.bytes_sent, manifest.bytes.len() as u64);
    let to_itself = Destination { routes: from.clone(), files: Vec::new() };
    let error = copy::copy(&from, &to_itself, &everything(), Arc::new(NoProgress)).await.unwrap_err();
    assert!(matches!(error, OperationError::Usage { .. }), "{error}");
}
