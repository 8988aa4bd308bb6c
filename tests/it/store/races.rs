//! Races: several processes write to one version at the same time.

use std::sync::{Arc, Barrier};
use std::thread;

use ocimod::oci::{Descriptor, IMAGE_INDEX, IMAGE_MANIFEST, Manifest, Platform, Reference, Repository, Tag};
use ocimod::operations::connect;
use ocimod::registry::credentials::CredentialSource;
use ocimod::registry::remote::{RemoteOptions, RemoteRegistry};
use ocimod::registry::{BytesSource, Condition, NewManifest, SharedRegistry};
use serde_json::json;

use super::{is_whole, rounds, store};
use crate::support::modules::write;
use crate::support::process::run;

/// As often as the promise says.
const ROUNDS: usize = 100;

#[test]
fn of_two_pushes_of_one_version_exactly_one_wins() {
    let (ocimod, registry) = store();
    let serve = ocimod.serve(["--registry", &registry]);
    let remote = format!("{}+insecure", serve.address);
    let folders = ["one", "other"].map(|says| {
        let folder = ocimod.folder(&format!("modules/{says}"));
        write(&folder, &[("main.tf", &format!("output \"says\" {{\n  value = \"{says}\"\n}}\n"))]);
        folder
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reader = runtime.block_on(connect::directory(ocimod.folder("store"))).unwrap();
    for round in 0..rounds("OCIMOD_TEST_RACE_ROUNDS", ROUNDS) {
        let address = format!("acme/race/null@1.0.{round}");
        let barrier = Barrier::new(2);
        // Both in the folder, both through the server, and one each.
        let registries = [[&registry, &registry], [&remote, &remote], [&registry, &remote]][round % 3];
        let push = |who: usize| {
            let mut command = ocimod.command();
            command.args(["push", "--format", "json", "--registry", registries[who]]);
            command.arg(&folders[who]).arg(&address);
            barrier.wait();
            run(&mut command)
        };
        let answers = thread::scope(|scope| {
            let other = scope.spawn(|| push(1));
            [push(0), other.join().unwrap()]
        });
        let statuses = answers.each_ref().map(|answer| answer.status);
        let winner = statuses.iter().position(|status| *status == Some(0)).expect("one wins");
        assert_eq!(statuses[1 - winner], Some(4), "{answers:?}");
        let digest = answers[winner].json()["digest"].as_str().unwrap().to_owned();
        let tag: Tag = format!("v1.0.{round}").parse().unwrap();
        let repository = "acme/race/null".parse().unwrap();
        let head = runtime.block_on(reader.manifest_head(&repository, &tag.into())).unwrap();
        assert_eq!(head.digest.as_str(), digest, "the winner's content is there");
    }
    is_whole(&ocimod);
}

/// A registry over HTTP.
fn remote(address: &str) -> SharedRegistry {
    let address = address.parse().expect("an address");
    Arc::new(RemoteRegistry::new(RemoteOptions::new(address, CredentialSource::none())).expect("a client"))
}

/// Pushes a manifest of one platform.
async fn push_platform(registry: &SharedRegistry, repository: &Repository, os: &str) -> Descriptor {
    let config = Descriptor::of("application/vnd.oci.empty.v1+json", b"{}");
    let source = BytesSource("{}".into());
    registry.put_blob(repository, &config.digest, &source).await.unwrap();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [], "annotations": {"os": os},
    });
    let bytes = manifest.to_string();
    let mut entry = Descriptor::of(IMAGE_MANIFEST, bytes.as_bytes());
    entry.platform =
        Some(Platform { architecture: "amd64".into(), os: os.into(), os_version: None, variant: None });
    let manifest = NewManifest {
        media_type: IMAGE_MANIFEST.into(),
        bytes: bytes.into(),
        digest: Some(entry.digest.clone()),
        tags: Vec::new(),
        condition: Condition::None,
    };
    registry.put_manifest(repository, &manifest).await.unwrap();
    entry
}

/// Adds a platform to an index as whoever publishes one does, and again where another one came between: the store refuses an index
/// that lacks what is there.
async fn add(registry: &SharedRegistry, repository: &Repository, tag: &Tag, entry: &Descriptor) {
    let reference = Reference::from(tag.clone());
    for _ in 0..50 {
        let mut entries = match registry.manifest(repository, &reference).await {
            Ok(stored) => Manifest::parse(&stored.media_type, &stored.bytes).unwrap().entries().to_vec(),
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        if entries.contains(entry) {
            return;
        }
        entries.push(entry.clone());
        let index = json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": entries});
        let manifest = NewManifest {
            media_type: IMAGE_INDEX.into(),
            bytes: index.to_string().into(),
            digest: None,
            tags: vec![tag.clone()],
            condition: Condition::None,
        };
        // Whether it won is seen by what is there then.
        let _ = registry.put_manifest(repository, &manifest).await;
    }
    panic!("{repository}:{tag} never got its platform");
}

#[test]
fn two_that_add_platforms_to_one_version_both_win() {
    let (ocimod, setting) = store();
    let serve = ocimod.serve(["--registry", &setting]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = ocimod.folder("store");
        // Each has what it knows for itself, as processes have; one is in another process indeed.
        let local =
            [connect::directory(folder.clone()).await.unwrap(), connect::directory(folder).await.unwrap()];
        let served = [remote(&serve.address), remote(&serve.address)];
        let repository: Repository = "providers/registry.example/acme/thing".parse().unwrap();
        let mut entries = Vec::new();
        for os in ["linux", "darwin", "windows"] {
            entries.push(push_platform(&local[0], &repository, os).await);
        }
        for round in 0..rounds("OCIMOD_TEST_RACE_ROUNDS", ROUNDS) {
            let tag: Tag = format!("1.0.{round}").parse().unwrap();
            let pairs = [[&local[0], &local[1]], [&served[0], &served[1]], [&local[0], &served[0]]];
            let [one, other] = pairs[round % 3];
            // What is there already stays, in every second round.
            if round % 2 == 0 {
                add(one, &repository, &tag, &entries[2]).await;
            }
            tokio::join!(
                add(one, &repository, &tag, &entries[0]),
                add(other, &repository, &tag, &entries[1])
            );
            let stored = served[0].manifest(&repository, &tag.into()).await.unwrap();
            let index = Manifest::parse(&stored.media_type, &stored.bytes).unwrap();
            assert_eq!(index.entries().len(), 3 - round % 2, "round {round}: {:?}", index.entries());
            assert!(entries[..2].iter().all(|entry| index.entries().contains(entry)), "round {round}");
        }
    });
    is_whole(&ocimod);
}
