//! `ocimod provider`, as users see it: what is pushed, listed and fetched, and what is in the registry after.

mod mirror;
mod mirrors;
pub(crate) mod packages;
mod upstream;
mod yank;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ocimod::archive;
use ocimod::module::ProviderAddress;
use ocimod::oci::{Digest, IMAGE_INDEX, Reference, Repository, Tag};
use ocimod::operations::NoProgress;
use ocimod::operations::connect;
use ocimod::operations::providers::push::{self, PackageSource, ProviderPush};
use ocimod::operations::routes::{RepositoryTemplate, Routes, Target};
use ocimod::registry::{
    Answer, BlobSource, Condition, ManifestHead, NewManifest, Page, PageRequest, PutManifest, Registry,
    SharedRegistry, StoredManifest,
};
use serde_json::{Value, json};

use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::ocimod::Ocimod;
use crate::support::process::run;
use packages::{package, zip};

const TIME: &str = "registry.opentofu.org/hashicorp/time";
const REPOSITORY: &str = "providers/registry.opentofu.org/hashicorp/time";

/// A home, and the setting of a store in it.
fn store() -> (Ocimod, String) {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    (ocimod, registry)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the folder's name is text")
}

/// `provider VERB` with JSON as its answer.
#[track_caller]
fn provider(ocimod: &Ocimod, registry: &str, words: &[&str]) -> Value {
    let common = ["provider", words[0], "--registry", registry, "--format", "json"];
    ocimod.run(common.into_iter().chain(words[1..].iter().copied())).success().json()
}

/// The same where it fails with that status; answers the kind and the message.
#[track_caller]
fn refused(ocimod: &Ocimod, registry: &str, status: i32, words: &[&str]) -> (String, String) {
    let common = ["provider", words[0], "--registry", registry, "--format", "json"];
    let answer = ocimod.run(common.into_iter().chain(words[1..].iter().copied())).fails_with(status).json();
    let said = |name: &str| answer["error"][name].as_str().unwrap_or_default().to_owned();
    (said("kind"), said("message"))
}

fn platforms(answer: &Value) -> Vec<&str> {
    let platforms = answer["platforms"].as_array().expect("there are platforms");
    platforms.iter().map(|it| it["platform"].as_str().expect("a platform is text")).collect()
}

fn zh(file: &Path) -> String {
    format!("zh:{}", Digest::of(&std::fs::read(file).unwrap()).hex())
}

fn h1(file: &Path) -> String {
    let bytes = std::fs::read(file).unwrap();
    archive::hash_package(std::io::Cursor::new(&bytes), bytes.len() as u64).unwrap().1
}

async fn index(registry: &dyn Registry, tag: &str) -> (Digest, Value) {
    let repository: Repository = REPOSITORY.parse().unwrap();
    let stored =
        registry.manifest(&repository, &tag.parse::<Reference>().unwrap()).await.expect("it is there");
    assert_eq!(stored.media_type, IMAGE_INDEX);
    (stored.digest, serde_json::from_slice(&stored.bytes).expect("an index is JSON"))
}

fn walk(registry: &str) {
    let ocimod = Ocimod::new();
    let folder = ocimod.folder("zips");
    let linux = package(&folder, "time", "0.14.2", "linux_amd64", "");
    let darwin = package(&folder, "time", "0.14.2", "darwin_arm64", "");
    let old = package(&folder, "time", "0.9.1", "linux_amd64", "");

    let pushed = provider(&ocimod, registry, &["push", "hashicorp/time@0.14.2", text(&linux), text(&darwin)]);
    assert_eq!((&pushed["address"], &pushed["version"]), (&json!(TIME), &json!("0.14.2")));
    assert_eq!(pushed["created"], json!(true));
    assert_eq!(platforms(&pushed), ["darwin_arm64", "linux_amd64"]);
    assert_eq!(pushed["platforms"][1]["zh"], json!(zh(&linux)));
    assert_eq!(pushed["platforms"][1]["h1"], json!(h1(&linux)));
    assert!(pushed["reference"].as_str().unwrap().ends_with(&format!("{REPOSITORY}:0.14.2")), "{pushed}");
    provider(&ocimod, registry, &["push", &format!("provider:{TIME}@0.9.1"), text(&old)]);

    let listed = provider(&ocimod, registry, &["list"]);
    let only = &listed["providers"][0];
    assert_eq!(
        (&only["provider"], &only["version"], &only["versions"]),
        (&json!(TIME), &json!("0.14.2"), &json!(2))
    );
    assert_eq!(listed["providers"].as_array().unwrap().len(), 1);
    let versions = provider(&ocimod, registry, &["list", "hashicorp/time"]);
    assert_eq!(versions["versions"][0]["version"], json!("0.9.1"));
    assert_eq!(versions["versions"][1]["platforms"], json!(["darwin_arm64", "linux_amd64"]));

    let inspected = provider(&ocimod, registry, &["inspect", "hashicorp/time@~> 0.14"]);
    assert_eq!((&inspected["kind"], &inspected["digest"]), (&json!("provider"), &pushed["digest"]));
    assert_eq!(inspected["platforms"][0]["h1"], json!(h1(&darwin)));

    let pulled = provider(&ocimod, registry, &["pull", "hashicorp/time", "-o", "out"]);
    assert_eq!(platforms(&pulled), ["darwin_arm64", "linux_amd64"]);
    let out = ocimod.home.path().join("out");
    for file in [&linux, &darwin] {
        assert_eq!(std::fs::read(out.join(file.file_name().unwrap())).unwrap(), std::fs::read(file).unwrap());
    }
    assert_eq!(out.read_dir().unwrap().count(), 2, "nothing else is left there");
    let one = ["pull", "hashicorp/time@0.14.2", "--platform", "linux_amd64", "-o", "one"];
    assert_eq!(platforms(&provider(&ocimod, registry, &one)), ["linux_amd64"]);
}

#[test]
fn what_is_pushed_is_listed_and_fetched() {
    let (_ocimod, registry) = store();
    walk(&registry);
}

#[test]
fn what_is_pushed_to_a_registry_of_others_is_listed_and_fetched() {
    for registry in [DockerRegistry::start(), DockerRegistry::start_v3()].into_iter().flatten() {
        walk(&format!("{}/some/prefix+insecure", registry.address));
    }
}

#[tokio::test]
async fn platforms_are_added_and_none_is_changed() {
    let (ocimod, registry) = store();
    let (folder, other) = (ocimod.folder("zips"), ocimod.folder("other"));
    let linux = package(&folder, "time", "0.14.2", "linux_amd64", "");
    let darwin = package(&folder, "time", "0.14.2", "darwin_arm64", "");
    let changed = package(&other, "time", "0.14.2", "linux_amd64", "changed");
    let address = "hashicorp/time@0.14.2";

    let first = provider(&ocimod, &registry, &["push", address, text(&linux)]);
    let again = provider(&ocimod, &registry, &["push", address, text(&linux)]);
    assert_eq!((&again["created"], &again["digest"]), (&json!(false), &first["digest"]));
    assert_eq!(again["bytes_sent"], json!(0));

    let dry = provider(&ocimod, &registry, &["push", "-n", address, text(&linux), text(&darwin)]);
    let opened = connect::directory(ocimod.folder("store")).await.unwrap();
    assert_eq!(json!(index(&*opened, "0.14.2").await.0), first["digest"], "a dry run changes nothing");
    let both = provider(&ocimod, &registry, &["push", address, text(&linux), text(&darwin)]);
    assert_eq!(both["digest"], dry["digest"]);
    assert_eq!(
        (&both["platforms"][0]["created"], &both["platforms"][1]["created"]),
        (&json!(true), &json!(false))
    );
    let (digest, stored) = index(&*opened, "0.14.2").await;
    assert_eq!(json!(digest), both["digest"]);
    let systems: Vec<&str> = stored["manifests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["platform"]["os"].as_str().unwrap())
        .collect();
    assert_eq!(systems, ["darwin", "linux"]);

    let more = package(&other, "time", "0.14.2", "windows_amd64", "");
    let (kind, message) = refused(&ocimod, &registry, 4, &["push", address, text(&more), text(&changed)]);
    assert_eq!(kind, "immutable");
    assert!(message.contains("another zip for `linux_amd64`"), "{message}");
    assert_eq!(index(&*opened, "0.14.2").await.0, digest, "a push that is refused adds nothing");
}

#[tokio::test]
async fn build_metadata_is_part_of_a_version() {
    let (ocimod, registry) = store();
    let folder = ocimod.folder("zips");
    for version in ["1.0.0", "1.0.0+b.1", "1.0.0+b.2", "1.1.0-rc.1"] {
        let zip = package(&folder, "time", version, "linux_amd64", version);
        provider(&ocimod, &registry, &["push", &format!("hashicorp/time@{version}"), text(&zip)]);
    }
    let opened = connect::directory(ocimod.folder("store")).await.unwrap();
    index(&*opened, "1.0.0_b.1").await;
    let listed = provider(&ocimod, &registry, &["list", "hashicorp/time"]);
    let versions: Vec<_> =
        listed["versions"].as_array().unwrap().iter().map(|it| it["version"].clone()).collect();
    assert_eq!(versions, ["1.0.0", "1.0.0+b.1", "1.0.0+b.2", "1.1.0-rc.1"]);
    provider(&ocimod, &registry, &["pull", "hashicorp/time@1.0.0+b.2", "-o", "out"]);
    let name = "terraform-provider-time_1.0.0+b.2_linux_amd64.zip";
    assert_eq!(
        std::fs::read(ocimod.home.path().join("out").join(name)).unwrap(),
        std::fs::read(folder.join(name)).unwrap()
    );
    assert_eq!(provider(&ocimod, &registry, &["inspect", "hashicorp/time"])["version"], json!("1.0.0"));
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_written() {
    let (ocimod, registry) = store();
    let folder = ocimod.folder("zips");
    let good = package(&folder, "time", "0.14.2", "linux_amd64", "");
    let nameless = folder.join("time.zip");
    std::fs::copy(&good, &nameless).unwrap();
    let escaping = folder.join("terraform-provider-time_0.14.2_darwin_arm64.zip");
    zip(&escaping, &[("../terraform-provider-time", b"x")]);
    let no_zip = folder.join("terraform-provider-time_0.14.2_windows_386.zip");
    std::fs::write(&no_zip, "no zip").unwrap();
    let [good, nameless, escaping, no_zip] = [&good, &nameless, &escaping, &no_zip].map(|path| text(path));
    let time = "hashicorp/time@0.14.2";
    for (status, words, said) in [
        (2, &["push", "hashicorp/time", good][..], "names no version"),
        (2, &["push", "hashicorp/time@0.14", good], "not a version"),
        (2, &["push", "hashicorp@0.14.2", good], "not the address of a provider"),
        (2, &["push", "host:8443/hashicorp/time@0.14.2", good], "not the address of a provider"),
        (2, &["push", "hashicorp/time@0.14.3", good], "calls itself `time` 0.14.2"),
        (2, &["push", "hashicorp/tls@0.14.2", good], "calls itself `time` 0.14.2"),
        (2, &["push", time, nameless], "does not say for which platform"),
        (2, &["push", time, nameless, "--platform", "linux"], "not a platform"),
        (2, &["push", time, good, nameless, "--platform", "linux_amd64"], "there are 2 zips"),
        (
            2,
            &["push", time, good, nameless, "--platform=linux_amd64", "--platform=linux_amd64"],
            "two of the files",
        ),
        (2, &["push", time, good, "--platform", "darwin_arm64"], "it is for `linux_amd64`"),
        (4, &["push", time, good, escaping], "leads to a parent folder"),
        (4, &["push", time, good, no_zip], "not a zip"),
        (1, &["push", time, "missing.zip", "--platform", "linux_amd64"], "missing.zip"),
        (3, &["inspect", "hashicorp/time"], "is not in the registry"),
        (3, &["pull", "hashicorp/time"], "is not in the registry"),
        (3, &["list", "hashicorp/time"], "is not in the registry"),
    ] {
        let (_, message) = refused(&ocimod, &registry, status, words);
        assert!(message.contains(said), "{words:?}: {message}");
    }
    assert_eq!(provider(&ocimod, &registry, &["list"])["providers"], json!([]));

    provider(&ocimod, &registry, &["push", time, nameless, "--platform", "linux_amd64"]);
    let (_, message) = refused(&ocimod, &registry, 3, &["pull", time, "--platform", "darwin_arm64"]);
    assert!(message.contains("is not for `darwin_arm64`, but for linux_amd64"), "{message}");
    let (kind, _) = refused(&ocimod, &registry, 4, &["pull", time, "-o", text(&folder)]);
    assert_eq!(kind, "refused");
    assert_eq!(refused(&ocimod, &registry, 3, &["inspect", "hashicorp/time@~> 1.0"]).0, "not-found");
}

#[test]
fn many_who_add_at_once_all_win() {
    let (ocimod, registry) = store();
    let folder = ocimod.folder("zips");
    let names = ["linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_386", "freebsd_arm"];
    let pushes: Vec<_> = names
        .iter()
        .map(|platform| {
            let zip = package(&folder, "time", "0.14.2", platform, "");
            let mut command = ocimod.command();
            command.args(["provider", "push", "--registry", &registry, "hashicorp/time@0.14.2"]).arg(zip);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
        })
        .collect();
    for push in pushes {
        let output = push.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut sorted = names;
    sorted.sort_unstable();
    assert_eq!(platforms(&provider(&ocimod, &registry, &["inspect", "hashicorp/time"])), sorted);
}

/// A registry without conditions, as remote ones are, where a rival stores what it has read before: it overwrites the first index that
/// somebody else stores.
struct Rivalled {
    registry: SharedRegistry,
    rival: std::sync::Mutex<Option<NewManifest>>,
}

impl Registry for Rivalled {
    fn tags<'a>(&'a self, repository: &'a Repository, page: &'a PageRequest) -> Answer<'a, Page<Tag>> {
        self.registry.tags(repository, page)
    }

    fn manifest<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, StoredManifest> {
        self.registry.manifest(repository, reference)
    }

    fn manifest_head<'a>(
        &'a self,
        repository: &'a Repository,
        reference: &'a Reference,
    ) -> Answer<'a, ManifestHead> {
        self.registry.manifest_head(repository, reference)
    }

    fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
        self.registry.blob_size(repository, digest)
    }

    fn put_blob<'a>(
        &'a self,
        repository: &'a Repository,
        digest: &'a Digest,
        source: &'a dyn BlobSource,
    ) -> Answer<'a, ()> {
        self.registry.put_blob(repository, digest, source)
    }

    fn put_manifest<'a>(
        &'a self,
        repository: &'a Repository,
        manifest: &'a NewManifest,
    ) -> Answer<'a, PutManifest> {
        Box::pin(async move {
            let stored = self.registry.put_manifest(repository, manifest).await?;
            let rival =
                if manifest.media_type == IMAGE_INDEX { self.rival.lock().unwrap().take() } else { None };
            if let Some(rival) = rival {
                self.registry.put_manifest(repository, &rival).await?;
            }
            Ok(stored)
        })
    }
}

fn request(folder: &Path, platform: &str) -> ProviderPush {
    ProviderPush {
        address: ProviderAddress::parse("hashicorp/time").unwrap(),
        version: ocimod::module::Version::parse("0.14.2").unwrap(),
        packages: vec![PackageSource {
            path: package(folder, "time", "0.14.2", platform, ""),
            platform: None,
            hashes: Vec::new(),
        }],
        dry_run: false,
    }
}

fn routes(registry: SharedRegistry) -> Routes {
    let target = Target {
        registry,
        prefix: String::new(),
        name: "registry.example".into(),
        identity: "registry.example".into(),
        is_local: false,
    };
    Routes::new(vec![(None, Some(target))], RepositoryTemplate::default())
}

#[tokio::test]
async fn an_addition_that_is_overwritten_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let options = ocimod::registry::DirectoryOptions::default();
    let store: SharedRegistry =
        Arc::new(ocimod::registry::DirectoryRegistry::open(&folder.path().join("store"), options).unwrap());
    let plain = routes(Arc::clone(&store));
    push::push(&plain, &request(folder.path(), "linux_amd64"), Arc::new(NoProgress)).await.unwrap();
    // What a rival has made of it, and is about to store.
    push::push(&plain, &request(folder.path(), "windows_386"), Arc::new(NoProgress)).await.unwrap();
    let repository: Repository = REPOSITORY.parse().unwrap();
    let of_rival = store.manifest(&repository, &"0.14.2".parse().unwrap()).await.unwrap().bytes;
    let manifest = |bytes: Bytes| NewManifest {
        media_type: IMAGE_INDEX.to_owned(),
        bytes,
        digest: None,
        tags: vec!["0.14.2".parse().unwrap()],
        condition: Condition::None,
    };
    let rivalled = Rivalled { registry: Arc::clone(&store), rival: Some(manifest(of_rival)).into() };
    let routes = routes(Arc::new(rivalled));
    let pushed =
        push::push(&routes, &request(folder.path(), "darwin_arm64"), Arc::new(NoProgress)).await.unwrap();
    assert!(pushed.is_created());
    let (digest, stored) = index(&*store, "0.14.2").await;
    assert_eq!((stored["manifests"].as_array().unwrap().len(), &digest), (3, &pushed.digest));
}

#[tokio::test]
async fn a_tag_that_the_registry_keeps_from_moving_is_explained() {
    /// Lets no tag move, as registries with immutable tags do.
    struct Locked(SharedRegistry);
    impl Registry for Locked {
        fn manifest<'a>(
            &'a self,
            repository: &'a Repository,
            reference: &'a Reference,
        ) -> Answer<'a, StoredManifest> {
            self.0.manifest(repository, reference)
        }
        fn blob_size<'a>(&'a self, repository: &'a Repository, digest: &'a Digest) -> Answer<'a, u64> {
            self.0.blob_size(repository, digest)
        }
        fn put_blob<'a>(
            &'a self,
            repository: &'a Repository,
            digest: &'a Digest,
            source: &'a dyn BlobSource,
        ) -> Answer<'a, ()> {
            self.0.put_blob(repository, digest, source)
        }
        fn put_manifest<'a>(
            &'a self,
            repository: &'a Repository,
            manifest: &'a NewManifest,
        ) -> Answer<'a, PutManifest> {
            Box::pin(async move {
                let new = NewManifest { condition: Condition::AbsentOrSame, ..manifest.clone() };
                self.0.put_manifest(repository, &new).await
            })
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let store = connect::directory(folder.path().join("store")).await.unwrap();
    let routes = routes(Arc::new(Locked(store)));
    push::push(&routes, &request(folder.path(), "linux_amd64"), Arc::new(NoProgress)).await.unwrap();
    let error =
        push::push(&routes, &request(folder.path(), "darwin_arm64"), Arc::new(NoProgress)).await.unwrap_err();
    assert!(error.to_string().contains("push all platforms of a version at once"), "{error}");
}

/// Pushes a provider as OpenTofu's documentation shows; `None` where `oras` is not there.
pub(crate) fn push_with_oras(
    folder: &Path,
    registry: &str,
    version: &str,
    zips: &[(&str, PathBuf)],
) -> Option<()> {
    let oras = clients::find("oras")?;
    let command = |arguments: &[&str]| {
        let mut command = crate::support::process::isolated(&oras, folder);
        command.current_dir(folder).args(arguments);
        run(&mut command).success();
    };
    for (platform, zip) in zips {
        let (layout, system) = (format!("layout:{platform}"), platform.replace('_', "/"));
        let name = zip.file_name().unwrap().to_str().unwrap();
        std::fs::copy(zip, folder.join(name)).unwrap();
        let (kind, file) = ("application/vnd.opentofu.provider-target", format!("{name}:archive/zip"));
        command(&[
            "push",
            "--artifact-type",
            kind,
            "--artifact-platform",
            &system,
            "--oci-layout",
            &layout,
            &file,
        ]);
    }
    let tag = format!("layout:{version}");
    let mut create = vec![
        "manifest",
        "index",
        "create",
        "--artifact-type=application/vnd.opentofu.provider",
        "--oci-layout",
        &tag,
    ];
    create.extend(zips.iter().map(|(platform, _)| *platform));
    command(&create);
    let to = format!("{registry}/{REPOSITORY}:{version}");
    command(&["cp", "--to-plain-http", "--from-oci-layout", &tag, &to]);
    Some(())
}

#[test]
fn what_oras_pushed_is_a_provider_and_can_be_added_to() {
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let folder = ocimod.folder("zips");
    let zip = |platform| package(&folder, "time", "0.14.2", platform, "");
    let (linux, darwin) = (zip("linux_amd64"), zip("darwin_arm64"));
    let pushed = push_with_oras(
        &ocimod.folder("oras"),
        &registry.address,
        "0.14.2",
        &[("linux_amd64", linux.clone()), ("darwin_arm64", darwin)],
    );
    if pushed.is_none() {
        return;
    }
    let setting = format!("{}+insecure", registry.address);
    let inspected = provider(&ocimod, &setting, &["inspect", "hashicorp/time"]);
    assert_eq!(platforms(&inspected), ["darwin_arm64", "linux_amd64"]);
    assert_eq!(
        (&inspected["platforms"][1]["zh"], &inspected["platforms"][1]["h1"]),
        (&json!(zh(&linux)), &Value::Null)
    );
    let address = "hashicorp/time@0.14.2";
    assert_eq!(provider(&ocimod, &setting, &["push", address, text(&linux)])["created"], json!(false));
    let windows = zip("windows_amd64");
    assert_eq!(provider(&ocimod, &setting, &["push", address, text(&windows)])["created"], json!(true));
    let inspected = provider(&ocimod, &setting, &["inspect", "hashicorp/time"]);
    assert_eq!(platforms(&inspected), ["darwin_arm64", "linux_amd64", "windows_amd64"]);
}

/// What was pushed has to be read back, so who may only push is told so, and does not try for ever.
#[test]
fn who_may_push_and_not_read_is_told_so_at_once() {
    let (ocimod, registry) = store();
    let zip = package(&ocimod.folder("zips"), "time", "0.14.2", "linux_amd64", "");
    let token = ["token", "new", "ci", "--allow", "push", "--access", "access.toml"];
    let token = ocimod.run(token).success().stdout.trim_end().to_owned();
    let serve = ocimod.serve(["--registry", &registry, "--access", "access.toml"]);
    let login = json!({"auths": {serve.address.as_str(): {"auth": STANDARD.encode(format!("ci:{token}"))}}})
        .to_string();
    let mut command = ocimod.command();
    command
        .env("DOCKER_AUTH_CONFIG", login)
        .args(["provider", "push", "--format", "json", "--registry", &format!("{}+insecure", serve.address)])
        .args(["hashicorp/time@0.14.2", text(&zip)]);
    let answer = run(&mut command).fails_with(5).json();
    assert_eq!(answer["error"]["kind"], json!("denied"));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("reading back what was pushed"), "{message}");
}
