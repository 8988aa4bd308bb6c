//! `ocimod copy`: between registries that fail on demand, between those of other people, and into a file.

mod clients;
mod content;
mod failures;
mod file;
mod forms;
mod hostile_files;
mod verb;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ocimod::artifact::media_types;
use ocimod::oci::{Descriptor, Digest, IMAGE_INDEX, IMAGE_MANIFEST, Manifest, Reference, Repository, Tag};
use ocimod::operations::catalog::CatalogSource;
use ocimod::operations::connect::Destination;
use ocimod::operations::copy::{self, Copied, CopyRequest, SkipReason, Source, What};
use ocimod::operations::prepare::Naming;
use ocimod::operations::published::DependencyForm;
use ocimod::operations::push::{self, PushRequest};
use ocimod::operations::routes::{RepositoryTemplate, Routes, Target};
use ocimod::operations::{NoProgress, OperationError, connect};
use ocimod::registry::{
    BytesSource, Condition, NewManifest, PageRequest, Registry, SharedRegistry, read_bounded,
};
use serde_json::{Value, json};

use crate::failing_registry::FailingRegistry;
use crate::support::modules::write;

/// Two registries that note what they are asked, each a folder.
struct Rig {
    from: Arc<FailingRegistry>,
    to: Arc<FailingRegistry>,
    folder: tempfile::TempDir,
}

/// The routes to a registry of that name.
fn routes(name: &str, registry: SharedRegistry) -> Routes {
    let target =
        Target { registry, prefix: String::new(), name: name.into(), identity: name.into(), is_local: false };
    Routes::new(vec![(None, Some(target))], RepositoryTemplate::default())
}

fn named(addresses: &[&str]) -> CopyRequest {
    let source = |address: &&str| Source::Address(Box::new(address.parse().unwrap()));
    CopyRequest {
        what: What::Named(addresses.iter().map(source).collect()),
        constraint: None,
        with_dependencies: false,
        referrers: false,
        platforms: Vec::new(),
        form: None,
        dry_run: false,
    }
}

fn everything() -> CopyRequest {
    CopyRequest { what: What::All(CatalogSource::Registry), ..named(&[]) }
}

impl Rig {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = |name: &str| connect::directory(folder.path().join(name));
        let (from, to) = (store("from").await.unwrap(), store("to").await.unwrap());
        Self { from: FailingRegistry::new(from), to: FailingRegistry::new(to), folder }
    }

    fn source(&self) -> SharedRegistry {
        self.from.clone()
    }

    fn destination(&self) -> SharedRegistry {
        self.to.clone()
    }

    /// Pushes a module whose only output is this text, with some calls.
    async fn push(&self, address: &str, text: &str, calls: &[&str], form: DependencyForm) -> Digest {
        let name = address.replace(['/', '@'], "-");
        let folder = self.folder.path().join(format!("{name}-{text}"));
        let mut main = format!("output \"it\" {{\n  value = \"{text}\"\n}}\n");
        for (number, call) in calls.iter().enumerate() {
            let source = format!("modules.internal/{call}");
            main.push_str(
                &["module \"call", &number.to_string(), "\" {\n  source = \"", &source, "\"\n}\n"].concat(),
            );
        }
        write(&folder, &[("main.tf", main.as_str())]);
        self.push_folder(folder, address, form).await
    }

    async fn push_folder(&self, source: PathBuf, address: &str, form: DependencyForm) -> Digest {
        let request = PushRequest {
            source,
            naming: Naming { address: Some(address.parse().unwrap()), ..Naming::default() },
            host_aliases: Vec::new(),
            form: Some(form),
            strict: false,
            dry_run: false,
            created: Some(0),
        };
        let routes = routes("from.example", self.source());
        push::push(&routes, &request, Arc::new(NoProgress)).await.unwrap().digest.unwrap()
    }

    async fn copy(&self, request: &CopyRequest) -> Result<Copied, OperationError> {
        let from = routes("from.example", self.source());
        let to = Destination { routes: routes("to.example", self.destination()), files: Vec::new() };
        copy::copy(&from, &to, request, Arc::new(NoProgress)).await
    }

    /// The same where nothing may fail.
    #[track_caller]
    fn done(copied: Result<Copied, OperationError>) -> Copied {
        let copied = copied.unwrap();
        assert!(copied.failed.is_empty(), "{:?}", copied.failed);
        copied
    }
}

/// What was copied: `ADDRESS VERSION tag,tag`.
fn copied(copied: &Copied) -> Vec<String> {
    let tags = |tags: &[Tag]| tags.iter().map(Tag::as_str).collect::<Vec<_>>().join(",");
    copied.copied.iter().map(|it| format!("{} {} {}", it.address, it.version, tags(&it.tags))).collect()
}

/// What was there: `ADDRESS VERSION`.
fn there(copied: &Copied) -> Vec<String> {
    let is_there =
        |it: &&ocimod::operations::copy::SkippedVersion| matches!(it.reason, SkipReason::Exists(_));
    copied.skipped.iter().filter(is_there).map(|it| format!("{} {}", it.address, it.version)).collect()
}

fn repository(text: &str) -> Repository {
    text.parse().unwrap()
}

fn by_tag(text: &str) -> Reference {
    Reference::Tag(text.parse().unwrap())
}

/// Every tag of every repository, and what it names.
async fn tags(registry: &SharedRegistry) -> BTreeMap<String, Digest> {
    let mut found = BTreeMap::new();
    for repository in registry.all_repositories(1000).await.unwrap() {
        for tag in registry.all_tags(&repository, 10_000).await.unwrap() {
            let head = registry.manifest_head(&repository, &Reference::Tag(tag.clone())).await.unwrap();
            found.insert(format!("{repository}:{tag}"), head.digest);
        }
    }
    found
}

/// Reads everything that a tag names, down to the last blob. Answers the digests.
async fn read_whole(registry: &SharedRegistry, repository: &Repository, reference: Reference) -> Vec<Digest> {
    let mut open = vec![reference];
    let mut seen = Vec::new();
    while let Some(reference) = open.pop() {
        let stored = registry.manifest(repository, &reference).await;
        let stored = stored.unwrap_or_else(|error| panic!("{repository} {reference}: {error}"));
        seen.push(stored.digest.clone());
        let manifest = Manifest::parse(&stored.media_type, &stored.bytes).unwrap();
        if manifest.is_index() {
            open.extend(manifest.entries().iter().map(|entry| Reference::Digest(entry.digest.clone())));
            continue;
        }
        for blob in manifest.needed() {
            let stream = registry.blob_stream(repository, &blob.digest).await;
            let stream = stream.unwrap_or_else(|error| panic!("{repository} {}: {error}", blob.digest));
            assert_eq!(read_bounded(stream.bytes, 64 << 20).await.unwrap().len() as u64, blob.size);
            seen.push(blob.digest.clone());
        }
    }
    seen
}

/// Reads everything that any tag names.
async fn expect_whole(registry: &SharedRegistry) {
    for name in tags(registry).await.into_keys() {
        let (repository, tag) = name.rsplit_once(':').unwrap();
        read_whole(registry, &repository.parse().unwrap(), by_tag(tag)).await;
    }
}

async fn put_blob(registry: &SharedRegistry, repository: &Repository, bytes: &[u8]) -> Digest {
    let digest = Digest::of(bytes);
    let source = BytesSource(Bytes::copy_from_slice(bytes));
    registry.put_blob(repository, &digest, &source).await.unwrap();
    digest
}

async fn put(
    registry: &SharedRegistry,
    repository: &Repository,
    manifest: &Value,
    tags: &[&str],
) -> Descriptor {
    let is_index = !manifest["manifests"].is_null();
    let media_type = if is_index { IMAGE_INDEX } else { IMAGE_MANIFEST };
    let bytes = Bytes::from(manifest.to_string());
    let new = NewManifest {
        media_type: media_type.into(),
        bytes: bytes.clone(),
        digest: None,
        tags: tags.iter().map(|tag| tag.parse().unwrap()).collect(),
        condition: Condition::None,
    };
    registry.put_manifest(repository, &new).await.unwrap();
    Descriptor::of(media_type, &bytes)
}

fn entry(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(content), "size": content.len()})
}

/// An artifact with one layer, its blobs pushed.
async fn artifact(registry: &SharedRegistry, repository: &Repository, kind: &str, layer: &str) -> Value {
    put_blob(registry, repository, b"{}").await;
    put_blob(registry, repository, layer.as_bytes()).await;
    json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "artifactType": kind,
        "config": entry("application/vnd.oci.empty.v1+json", b"{}"),
        "layers": [entry("application/octet-stream", layer.as_bytes())],
    })
}

/// A manifest about another one.
async fn about(
    registry: &SharedRegistry,
    repository: &Repository,
    subject: &Descriptor,
    note: &str,
) -> Descriptor {
    let mut manifest = artifact(registry, repository, "application/vnd.example.signature", note).await;
    manifest["subject"] =
        json!({"mediaType": subject.media_type, "digest": subject.digest, "size": subject.size});
    put(registry, repository, &manifest, &[]).await
}

/// A provider with these platforms, as OpenTofu's documentation has it.
async fn provider(
    registry: &SharedRegistry,
    repository: &Repository,
    platforms: &[&str],
    tag: &str,
) -> Descriptor {
    let mut entries = Vec::new();
    for platform in platforms {
        let (system, architecture) = platform.split_once('_').unwrap();
        let zip = format!("zip for {platform}");
        let mut manifest =
            artifact(registry, repository, "application/vnd.opentofu.provider-target", &zip).await;
        manifest["layers"][0]["mediaType"] = "archive/zip".into();
        let target = put(registry, repository, &manifest, &[]).await;
        entries.push(json!({
            "mediaType": target.media_type, "digest": target.digest, "size": target.size,
            "artifactType": "application/vnd.opentofu.provider-target",
            "platform": {"architecture": architecture, "os": system},
        }));
    }
    let index = json!({
        "schemaVersion": 2, "mediaType": IMAGE_INDEX, "artifactType": media_types::OPENTOFU_PROVIDER,
        "manifests": entries,
    });
    put(registry, repository, &index, &[tag]).await
}

/// The digests of what refers to a manifest.
async fn referrers(registry: &SharedRegistry, repository: &Repository, subject: &Digest) -> Vec<Digest> {
    let page = registry.referrers(repository, subject, None, &PageRequest::default()).await.unwrap();
    let mut found: Vec<Digest> = page.items.into_iter().map(|descriptor| descriptor.digest).collect();
    found.sort();
    found
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

/// The path of a file as an argument.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
