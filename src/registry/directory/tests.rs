//! What is particular to a store on disk. What every registry has to do is in the conformance suite.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tempfile::TempDir;

use super::store::Names;
use super::*;
use crate::oci::{ByteRange, IMAGE_INDEX, IMAGE_MANIFEST};
use crate::registry::referrers::Room;
use crate::registry::{BytesSource, Condition};

fn open(folder: &TempDir) -> DirectoryRegistry {
    DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).unwrap()
}

fn open_immutable(folder: &TempDir) -> DirectoryRegistry {
    let immutable: ImmutableTags = Arc::new(|tag| tag.as_str().starts_with('v').then(Vec::new));
    let options = DirectoryOptions { immutable: Some(immutable), ..DirectoryOptions::default() };
    DirectoryRegistry::open(folder.path(), options).unwrap()
}

fn name(text: &str) -> Repository {
    text.parse().unwrap()
}

async fn put(registry: &DirectoryRegistry, repository: &str, text: &str) -> Digest {
    let digest = Digest::of(text.as_bytes());
    let source = BytesSource(Bytes::copy_from_slice(text.as_bytes()));
    registry.put_blob(&name(repository), &digest, &source).await.unwrap();
    digest
}

async fn read(registry: &DirectoryRegistry, repository: &str, digest: &Digest) -> Result<Bytes> {
    (registry as &dyn Registry).small_blob(&name(repository), digest, 1 << 20).await
}

/// An image manifest whose only layer is `layer`.
async fn push(registry: &DirectoryRegistry, repository: &str, layer: &str, tags: &[&str]) -> Result<Digest> {
    let size = layer.len();
    let layer = put(registry, repository, layer).await;
    let config = put(registry, repository, "{}").await;
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST,
        "config": {"mediaType": "a/b", "digest": config, "size": 2},
        "layers": [{"mediaType": "a/c", "digest": layer, "size": size}],
    });
    put_json(registry, repository, IMAGE_MANIFEST, &manifest, tags).await
}

/// How long a manifest is, as a descriptor of it has to say.
async fn size_of(registry: &DirectoryRegistry, repository: &str, digest: &Digest) -> u64 {
    registry.manifest_head(&name(repository), &digest.clone().into()).await.unwrap().size
}

async fn put_json(
    registry: &DirectoryRegistry,
    repository: &str,
    media_type: &str,
    manifest: &serde_json::Value,
    tags: &[&str],
) -> Result<Digest> {
    let manifest = NewManifest {
        media_type: media_type.into(),
        bytes: manifest.to_string().into(),
        digest: None,
        tags: tags.iter().map(|tag| tag.parse().unwrap()).collect(),
        condition: Condition::None,
    };
    Ok(registry.put_manifest(&name(repository), &manifest).await?.digest)
}

async fn tags(registry: &DirectoryRegistry, repository: &str) -> Vec<String> {
    let page = registry.tags(&name(repository), &PageRequest::default()).await.unwrap();
    page.items.iter().map(ToString::to_string).collect()
}

/// Writes over a file that is read-only.
fn overwrite(path: &Path, text: &str) {
    let mut permissions = fs::metadata(path).unwrap().permissions();
    #[allow(clippy::permissions_set_readonly_false)] // a test's own folder
    permissions.set_readonly(false);
    fs::set_permissions(path, permissions).unwrap();
    fs::write(path, text).unwrap();
}

#[tokio::test]
async fn what_a_crash_leaves_is_not_visible() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let digest = push(&registry, "acme/vpc", "layer", &["v1.0.0"]).await.unwrap();
    let layout = folder.path().join("repos/acme/vpc/_oci");
    // Cut off: an upload, a sealed upload, a copy, a list, a manifest that is not yet listed, a repository just begun.
    let other = r#"{"schemaVersion":2,"manifests":[]}"#;
    fs::write(folder.path().join("_uploads/0123456789abcdef-x"), "half").unwrap();
    fs::write(folder.path().join("_uploads/0123456789abcdef-y.part"), "half").unwrap();
    fs::write(layout.join("_word.part"), "{").unwrap();
    fs::write(layout.join("blobs/sha256/_word.part"), "half").unwrap();
    fs::write(layout.join("blobs/sha256").join(Digest::of(other.as_bytes()).hex()), other).unwrap();
    fs::create_dir_all(folder.path().join("repos/acme/begun/_oci/blobs")).unwrap();
    let registry = open(&folder);
    assert_eq!(tags(&registry, "acme/vpc").await, ["v1.0.0"]);
    let catalog = registry.repositories(&PageRequest::default()).await.unwrap();
    assert_eq!(catalog.items, [name("acme/vpc")]);
    let manifest = registry.manifest(&name("acme/vpc"), &digest.into()).await.unwrap();
    assert_eq!(manifest.media_type, IMAGE_MANIFEST);
    let unlisted = Digest::of(other.as_bytes()).into();
    assert!(registry.manifest(&name("acme/vpc"), &unlisted).await.unwrap_err().is_not_found());
    let begun = registry.tags(&name("acme/begun"), &PageRequest::default()).await;
    assert!(matches!(begun, Err(RegistryError::RepositoryUnknown(_))));
}

#[tokio::test]
async fn a_refused_push_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let absent = Digest::of(b"absent");
    let manifest = serde_json::json!({
        "schemaVersion": 2, "layers": [], "config": {"mediaType": "a/b", "digest": absent, "size": 6},
    });
    let refused = put_json(&registry, "acme/vpc", IMAGE_MANIFEST, &manifest, &["v1"]).await;
    assert!(matches!(refused, Err(RegistryError::ManifestBlobUnknown(digest)) if digest == absent));
    let source = BytesSource(Bytes::from_static(b"wrong"));
    registry.put_blob(&name("acme/vpc"), &absent, &source).await.unwrap_err();
    for below in ["repos", "_blobs", "_uploads"] {
        assert_eq!(fs::read_dir(folder.path().join(below)).unwrap().count(), 0, "{below}");
    }
}

#[tokio::test]
async fn two_instances_on_one_folder_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(&folder), open(&folder));
    for round in 0..5 {
        let tag = format!("v{round}");
        let digest = push(&one, "acme/vpc", &tag, &[&tag]).await.unwrap();
        let head = other.manifest_head(&name("acme/vpc"), &tag.parse().unwrap()).await.unwrap();
        assert_eq!(head.digest, digest);
    }
    other.delete_tag(&name("acme/vpc"), &"v3".parse().unwrap()).await.unwrap();
    assert_eq!(tags(&one, "acme/vpc").await, ["v0", "v1", "v2", "v4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_pushes_of_one_version_exactly_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..10 {
        let repository = format!("acme/round{round}");
        let pushes = (0..6).map(|pusher| {
            // Each its own instance, as processes have.
            let (registry, repository) = (open_immutable(&folder), repository.clone());
            tokio::spawn(
                async move { push(&registry, &repository, &format!("from {pusher}"), &["v1.0.0"]).await },
            )
        });
        let mut winners = Vec::new();
        let mut losers = Vec::new();
        for push in pushes.collect::<Vec<_>>() {
            match push.await.unwrap() {
                Ok(digest) => winners.push(digest),
                Err(RegistryError::TagExists { existing, .. }) => losers.push(existing),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((winners.len(), losers.len()), (1, 5));
        assert!(losers.iter().all(|existing| *existing == winners[0]));
        let registry = open(&folder);
        let head = registry.manifest_head(&name(&repository), &"v1.0.0".parse().unwrap()).await.unwrap();
        assert_eq!(head.digest, winners[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pushes_of_different_versions_all_stay() {
    let folder = tempfile::tempdir().unwrap();
    let pushes = (0..16).map(|number| {
        let registry = open(&folder);
        tokio::spawn(async move {
            push(&registry, "acme/vpc", &format!("layer {number}"), &[&format!("v{number:02}")]).await
        })
    });
    for push in pushes.collect::<Vec<_>>() {
        push.await.unwrap().unwrap();
    }
    assert_eq!(tags(&open(&folder), "acme/vpc").await.len(), 16);
}

/// Whether a blob is sent without being hashed once more.
fn is_remembered(registry: &DirectoryRegistry, repository: &str, digest: &Digest) -> bool {
    registry.store.recent(&name(repository), digest).is_some()
        || matches!(
            registry.store.find_blob(&name(repository), digest, false),
            Ok(Found::Open(OpenBlob { is_verified: true, .. }))
        )
}

#[tokio::test]
async fn a_changed_blob_is_never_served_as_whole() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let vpc = name("acme/vpc");
    // One that is kept in memory, and one that is not.
    let contents = ["right bytes".to_owned(), "right bytes".repeat(10_000)];
    let mut digests = Vec::new();
    for content in &contents {
        digests.push(put(&registry, "acme/vpc", content).await);
    }
    // Long enough for the file system's clock, so that what is read now counts as verified.
    tokio::time::sleep(Duration::from_millis(3100)).await;
    for (content, digest) in contents.iter().zip(&digests) {
        let path = registry.store.layout.blob(&vpc, digest);
        assert!(!is_remembered(&registry, "acme/vpc", digest) || content.len() as u64 <= reading::SMALL);
        assert_eq!(read(&registry, "acme/vpc", digest).await.unwrap(), content);
        assert!(is_remembered(&registry, "acme/vpc", digest));
        assert_eq!(read(&registry, "acme/vpc", digest).await.unwrap(), content);
        overwrite(&path, &content.replace("right", "wrong"));
        let changed = read(&registry, "acme/vpc", digest).await;
        assert!(matches!(changed, Err(RegistryError::DigestMismatch { .. })));
        let range = BlobRequest { range: Some(ByteRange::Last(2)), ..BlobRequest::default() };
        let piece = registry.blob(&vpc, digest, range).await;
        assert!(matches!(piece, Err(RegistryError::DigestMismatch { .. })));
        overwrite(&path, "short");
        assert!(read(&registry, "acme/vpc", digest).await.is_err());
        fs::remove_file(&path).unwrap();
        assert!(matches!(read(&registry, "acme/vpc", digest).await, Err(RegistryError::BlobUnknown(_))));
        // Pushed again, it is whole again, also for those that share it.
        put(&registry, "acme/vpc", content).await;
        assert_eq!(read(&registry, "acme/vpc", digest).await.unwrap(), content);
        assert!(registry.mount(&name("acme/other"), digest, None).await.unwrap());
        assert_eq!(read(&registry, "acme/other", digest).await.unwrap(), content);
    }
}

#[tokio::test]
async fn what_is_in_memory_is_for_those_whose_repository_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let digest = put(&registry, "acme/vpc", "a small module").await;
    put(&registry, "acme/other", "something else").await;
    tokio::time::sleep(Duration::from_millis(3100)).await;
    read(&registry, "acme/vpc", &digest).await.unwrap();
    assert!(is_remembered(&registry, "acme/vpc", &digest));
    for repository in ["acme/other", "acme/none"] {
        assert!(matches!(read(&registry, repository, &digest).await, Err(RegistryError::BlobUnknown(_))));
    }
    let range = |range| BlobRequest { range: Some(range), ..BlobRequest::default() };
    for (asked, expected) in [
        (ByteRange::From(8), "module"),
        (ByteRange::FromTo { first: 2, last: 6 }, "small"),
        (ByteRange::Last(99), "a small module"),
    ] {
        let Ok(Blob::Stream(piece)) = registry.blob(&name("acme/vpc"), &digest, range(asked)).await else {
            panic!("it is there")
        };
        assert_eq!(crate::registry::read_bounded(piece.bytes, 99).await.unwrap(), expected);
    }
    let beyond = registry.blob(&name("acme/vpc"), &digest, range(ByteRange::From(14))).await;
    assert!(matches!(beyond, Err(RegistryError::RangeNotSatisfiable { size: 14 })));
    registry.delete_blob(&name("acme/vpc"), &digest).await.unwrap();
    assert!(matches!(read(&registry, "acme/vpc", &digest).await, Err(RegistryError::BlobUnknown(_))));
}

#[tokio::test]
async fn a_blob_cut_short_while_it_is_sent_ends_in_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let digest = put(&registry, "acme/vpc", &"x".repeat(1 << 20)).await;
    let path = registry.store.layout.blob(&name("acme/vpc"), &digest);
    let found = registry.store.find_blob(&name("acme/vpc"), &digest, true).unwrap();
    let Blob::Stream(stream) = registry.send(&digest, found, BlobRequest::default()).unwrap() else {
        panic!("nobody asked for a file");
    };
    overwrite(&path, "short");
    let outcome = crate::registry::read_bounded(stream.bytes, u64::MAX).await;
    assert!(matches!(outcome, Err(RegistryError::SizeMismatch { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_changed_manifest_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let digest = push(&registry, "acme/vpc", "layer", &["v1"]).await.unwrap();
    overwrite(&registry.store.layout.blob(&name("acme/vpc"), &digest), "{}");
    let changed = registry.manifest(&name("acme/vpc"), &"v1".parse().unwrap()).await;
    assert!(matches!(changed, Err(RegistryError::DigestMismatch { .. })));
}

#[tokio::test]
async fn where_links_fail_contents_are_copied() {
    for kind in [ErrorKind::CrossesDevices, ErrorKind::TooManyLinks, ErrorKind::PermissionDenied] {
        let folder = tempfile::tempdir().unwrap();
        let mut registry = open(&folder);
        Arc::get_mut(&mut registry.store).unwrap().layout.link = match kind {
            ErrorKind::CrossesDevices => |_, _| Err(ErrorKind::CrossesDevices.into()),
            ErrorKind::TooManyLinks => |_, _| Err(ErrorKind::TooManyLinks.into()),
            _ => |_, _| Err(ErrorKind::PermissionDenied.into()),
        };
        let manifest = push(&registry, "acme/vpc", "layer", &["v1"]).await.unwrap();
        let layer = Digest::of(b"layer");
        assert!(registry.mount(&name("acme/other"), &layer, Some(&name("acme/vpc"))).await.unwrap());
        for repository in ["acme/vpc", "acme/other"] {
            assert_eq!(read(&registry, repository, &layer).await.unwrap(), "layer");
        }
        assert_eq!(push(&registry, "acme/vpc", "layer", &["v1"]).await.unwrap(), manifest);
        assert_eq!(fs::read_dir(folder.path().join("_uploads")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn what_every_repository_has_deleted_is_not_mounted_again() {
    for has_links in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut registry = open(&folder);
        if !has_links {
            let store = Arc::get_mut(&mut registry.store).unwrap();
            store.layout.link = |_, _| Err(ErrorKind::Unsupported.into());
        }
        let digest = put(&registry, "acme/vpc", "layer").await;
        let mount = async |to: &str| registry.mount(&name(to), &digest, None).await.unwrap();
        assert!(mount("acme/other").await, "links: {has_links}");
        registry.delete_blob(&name("acme/vpc"), &digest).await.unwrap();
        assert!(mount("acme/third").await, "links: {has_links}");
        for repository in ["acme/other", "acme/third"] {
            registry.delete_blob(&name(repository), &digest).await.unwrap();
        }
        assert!(!mount("acme/vpc").await, "links: {has_links}");
        put(&registry, "acme/vpc", "layer").await;
        assert!(mount("acme/other").await, "links: {has_links}");
    }
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_nothing_is_visible() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = open(&folder);
    push(&registry, "acme/vpc", "layer", &["v1"]).await.unwrap();
    Arc::get_mut(&mut registry.store).unwrap().layout.link = |_, _| Err(ErrorKind::StorageFull.into());
    let source = BytesSource(Bytes::from_static(b"more"));
    let full = registry.put_blob(&name("acme/vpc"), &Digest::of(b"more"), &source).await;
    assert!(matches!(full, Err(RegistryError::Io { .. })));
    assert!(registry.blob_size(&name("acme/vpc"), &Digest::of(b"more")).await.unwrap_err().is_not_found());
    assert_eq!(tags(&registry, "acme/vpc").await, ["v1"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_content_is_stored_once() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let digest = put(&registry, "acme/vpc", "layer").await;
    put(&registry, "acme/other", "layer").await;
    assert!(registry.mount(&name("acme/third"), &digest, Some(&name("acme/vpc"))).await.unwrap());
    let metadata = fs::metadata(registry.store.layout.shared_blob(&digest)).unwrap();
    assert_eq!(metadata.nlink(), 4);
    assert_eq!(metadata.mode() & 0o222, 0, "read-only");
}

#[tokio::test]
async fn an_upload_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let repository = name("acme/vpc");
    let upload = {
        let registry = open(&folder);
        let upload = registry.open_upload(&repository, Algorithm::Sha256).await.unwrap();
        let piece = stream::iter([Ok(Bytes::from_static(b"first ")), Err(io::Error::other("cut"))]).boxed();
        assert!(registry.append_upload(&repository, &upload, Some(0), piece).await.is_err());
        upload
    };
    let registry = open(&folder);
    assert_eq!(registry.upload_offset(&repository, &upload).await.unwrap(), 6);
    let piece = stream::iter([Ok(Bytes::from_static(b"second"))]).boxed();
    assert_eq!(registry.append_upload(&repository, &upload, Some(6), piece).await.unwrap(), 12);
    let digest = Digest::of(b"first second");
    registry.finish_upload(&repository, &upload, &digest).await.unwrap();
    assert_eq!(read(&registry, "acme/vpc", &digest).await.unwrap(), "first second");
    assert_eq!(fs::read_dir(folder.path().join("_uploads")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_program_that_is_started_does_not_hold_an_upload() {
    let folder = TempDir::new().unwrap();
    let (registry, repository) = (open(&folder), name("acme/vpc"));
    let upload = registry.open_upload(&repository, Algorithm::Sha256).await.unwrap();
    let held = registry.store.hold_upload(&repository, &upload).unwrap();
    // What a child has between its start and the program that it becomes.
    let inherited = held.file.try_clone().unwrap();
    let path = registry.store.layout.upload(&repository, &upload);
    let piece = stream::iter([Ok(Bytes::from_static(b"abc"))]).boxed();
    super::append(&registry.store, held.file, &path, 0, piece).await.unwrap();
    registry.finish_upload(&repository, &upload, &Digest::of(b"abc")).await.unwrap();
    drop(inherited);
}

#[tokio::test]
async fn one_request_at_a_time_appends_to_an_upload() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let repository = name("acme/vpc");
    let upload = registry.open_upload(&repository, Algorithm::Sha256).await.unwrap();
    let held = registry.store.hold_upload(&repository, &upload).unwrap();
    let piece = || stream::iter([Ok(Bytes::from_static(b"abc"))]).boxed();
    let second = open(&folder).append_upload(&repository, &upload, None, piece()).await;
    assert!(matches!(second, Err(RegistryError::OutOfOrder { offset: 0 })));
    let finish = registry.finish_upload(&repository, &upload, &Digest::of(b"")).await;
    assert!(matches!(finish, Err(RegistryError::OutOfOrder { offset: 0 })));
    drop(held);
    assert_eq!(registry.append_upload(&repository, &upload, None, piece()).await.unwrap(), 3);
}

#[tokio::test]
async fn uploads_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let options = DirectoryOptions { upload_limit: 4, ..DirectoryOptions::default() };
    let registry = DirectoryRegistry::open(folder.path(), options).unwrap();
    let repository = name("acme/vpc");
    let upload = registry.open_upload(&repository, Algorithm::Sha256).await.unwrap();
    let piece = || stream::iter([Ok(Bytes::from_static(b"abc"))]).boxed();
    assert_eq!(registry.append_upload(&repository, &upload, None, piece()).await.unwrap(), 3);
    let over = registry.append_upload(&repository, &upload, None, piece()).await;
    assert!(matches!(over, Err(RegistryError::TooLarge { limit: 4 })));
    let source = BytesSource(Bytes::from_static(b"abcde"));
    let over = registry.put_blob(&repository, &Digest::of(b"abcde"), &source).await;
    assert!(matches!(over, Err(RegistryError::TooLarge { limit: 4 })));
}

#[tokio::test]
async fn what_another_tool_wrote_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    // A layout as copy tools make it: an index is listed, the manifests in it are not.
    let layout = folder.path().join("repos/acme/tool/_oci");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let store = |text: String| {
        let digest = Digest::of(text.as_bytes());
        fs::write(layout.join("blobs/sha256").join(digest.hex()), &text).unwrap();
        (digest, text.len())
    };
    let (config, size) = store("{}".into());
    let subject = Digest::of(b"subject");
    let (child, child_size) = store(format!(
        r#"{{"schemaVersion":2,"artifactType":"x/y","config":{{"mediaType":"a/b","digest":"{config}","size":{size}}},"layers":[],"subject":{{"mediaType":"{IMAGE_MANIFEST}","digest":"{subject}","size":7}},"annotations":{{"k":"v"}}}}"#
    ));
    let (top, size) = store(format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"{IMAGE_MANIFEST}","digest":"{child}","size":{child_size}}}]}}"#
    ));
    fs::write(
        layout.join("index.json"),
        format!(
            r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"{IMAGE_INDEX}","digest":"{top}","size":{size},"annotations":{{"org.opencontainers.image.ref.name":"v1"}}}}]}}"#
        ),
    )
    .unwrap();
    let repository = name("acme/tool");
    assert_eq!(tags(&registry, "acme/tool").await, ["v1"]);
    let manifest = registry.manifest(&repository, &child.clone().into()).await.unwrap();
    assert_eq!(manifest.media_type, IMAGE_MANIFEST);
    let head = registry.manifest_head(&repository, &"v1".parse().unwrap()).await.unwrap();
    assert_eq!((head.media_type.as_str(), head.size), (IMAGE_INDEX, size as u64));
    let referrers =
        registry.referrers(&repository, &subject, Some("x/y"), &PageRequest::default()).await.unwrap();
    assert_eq!(referrers.items.len(), 1);
    assert_eq!(referrers.items[0].digest, child);
    assert_eq!(referrers.items[0].annotations["k"], "v");
    registry.delete_manifest(&repository, &child).await.unwrap();
    assert!(registry.manifest(&repository, &child.clone().into()).await.unwrap_err().is_not_found());
    let referrers = registry.referrers(&repository, &subject, None, &PageRequest::default()).await.unwrap();
    assert_eq!(referrers.items, []);
}

#[tokio::test]
async fn a_damaged_list_is_an_error_and_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    push(&registry, "acme/vpc", "layer", &["v1"]).await.unwrap();
    let path = folder.path().join("repos/acme/vpc/_oci/index.json");
    fs::write(&path, "{\"manifests\":[").unwrap();
    let page = registry.tags(&name("acme/vpc"), &PageRequest::default()).await;
    assert!(matches!(page, Err(RegistryError::Io { .. })));
    assert!(push(&registry, "acme/vpc", "other", &["v2"]).await.is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"manifests\":[");
}

#[tokio::test]
async fn an_index_of_an_immutable_tag_grows_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open_immutable(&folder);
    let mut children = Vec::new();
    for layer in ["linux", "darwin", "evil"] {
        let child = push(&registry, "acme/provider", layer, &[]).await.unwrap();
        let size = size_of(&registry, "acme/provider", &child).await;
        children.push((child, size));
    }
    let entry = |child: usize, os: &str| {
        serde_json::json!({
            "mediaType": IMAGE_MANIFEST, "digest": children[child].0, "size": children[child].1,
            "platform": {"os": os, "architecture": "amd64"},
        })
    };
    let put = async |entries: Vec<serde_json::Value>| {
        let manifest = serde_json::json!({"schemaVersion": 2, "manifests": entries});
        put_json(&registry, "acme/provider", IMAGE_INDEX, &manifest, &["v1"]).await
    };
    let (linux, darwin) = (entry(0, "linux"), entry(1, "darwin"));
    put(vec![linux.clone()]).await.unwrap();
    put(vec![darwin.clone(), linux.clone()]).await.unwrap();
    for changed in [
        vec![darwin.clone()],
        vec![darwin.clone(), entry(2, "linux")],
        vec![entry(2, "linux"), darwin, linux],
        vec![],
    ] {
        assert!(matches!(put(changed).await, Err(RegistryError::TagExists { .. })));
    }
    assert!(push(&registry, "acme/provider", "linux", &["v1"]).await.is_err());
    push(&registry, "acme/provider", "linux", &["latest"]).await.unwrap();
    push(&registry, "acme/provider", "evil", &["latest"]).await.unwrap();
}

#[test]
fn a_store_of_a_newer_ocimod_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    for text in ["{\"formatVersion\":2}", "nonsense"] {
        fs::write(folder.path().join("ocimod.json"), text).unwrap();
        assert!(DirectoryRegistry::open(folder.path(), DirectoryOptions::default()).is_err());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn collect_all(grace: Duration) -> CollectOptions {
    CollectOptions { grace, dry_run: false }
}

/// What a collection removes, as `kind digest` without that of the algorithm.
async fn collect(
    registry: &DirectoryRegistry,
    options: CollectOptions,
) -> Vec<(RemovedKind, Option<Digest>)> {
    // A grace of nothing is older than this.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let collection = registry.collect(options).await.unwrap();
    assert_eq!(collection.skipped, []);
    collection.removed.into_iter().map(|removed| (removed.kind, removed.digest)).collect()
}

#[tokio::test]
async fn what_no_tag_reaches_is_collected_and_the_rest_stays() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let vpc = name("acme/vpc");
    let child = push(&registry, "acme/vpc", "child", &[]).await.unwrap();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [
        {"mediaType": IMAGE_MANIFEST, "digest": child, "size": size_of(&registry, "acme/vpc", &child).await}]});
    let top = put_json(&registry, "acme/vpc", IMAGE_INDEX, &index, &["v1"]).await.unwrap();
    let config = put(&registry, "acme/vpc", "{}").await;
    let signature = |subject: &Digest| {
        serde_json::json!({"schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "layers": [],
            "config": {"mediaType": "a/b", "digest": config, "size": 2},
            "subject": {"mediaType": IMAGE_MANIFEST, "digest": subject, "size": 1}})
    };
    let signed = put_json(&registry, "acme/vpc", IMAGE_MANIFEST, &signature(&child), &[]).await.unwrap();
    let counter = put_json(&registry, "acme/vpc", IMAGE_MANIFEST, &signature(&signed), &[]).await.unwrap();
    // Garbage: a manifest without a tag, what is about it, and a blob that no manifest took.
    let untagged = push(&registry, "acme/vpc", "untagged", &[]).await.unwrap();
    let about = put_json(&registry, "acme/vpc", IMAGE_MANIFEST, &signature(&untagged), &[]).await.unwrap();
    let lost = put(&registry, "acme/vpc", "lost").await;
    let layer = Digest::of(b"untagged");
    // Another repository needs one of these.
    push(&registry, "acme/other", "untagged", &["v1"]).await.unwrap();

    assert_eq!(collect(&registry, collect_all(DEFAULT_GRACE)).await, [], "all of it is young");
    let dry = CollectOptions { grace: Duration::ZERO, dry_run: true };
    let before = collect(&registry, dry).await;
    let removed = collect(&registry, collect_all(Duration::ZERO)).await;
    let sorted = |mut removed: Vec<(RemovedKind, Option<Digest>)>| {
        removed.sort_by_key(|(kind, digest)| (kind.as_str(), digest.clone()));
        removed
    };
    assert_eq!(sorted(before), sorted(removed.clone()), "a dry run tells what a real one does");
    let mut expected =
        vec![(RemovedKind::Blob, Some(lost.clone())), (RemovedKind::Blob, Some(layer.clone()))];
    expected.extend([&untagged, &about].map(|digest| (RemovedKind::Manifest, Some(digest.clone()))));
    expected.extend([&lost, &about].map(|digest| (RemovedKind::Content, Some(digest.clone()))));
    // The untagged manifest's bytes are those of the other repository's tagged one.
    assert_eq!(sorted(removed), sorted(expected));
    for kept in [&top, &child, &signed, &counter] {
        registry.manifest(&vpc, &kept.clone().into()).await.unwrap();
    }
    assert!(registry.manifest(&vpc, &untagged.into()).await.unwrap_err().is_not_found());
    assert_eq!(read(&registry, "acme/other", &layer).await.unwrap(), "untagged");
    assert_eq!(registry.verify(false).await.unwrap().damage, []);
    assert_eq!(collect(&registry, collect_all(Duration::ZERO)).await, [], "nothing is left to do");

    registry.delete_tag(&vpc, &"v1".parse().unwrap()).await.unwrap();
    assert!(collect(&registry, collect_all(DEFAULT_GRACE)).await.is_empty());
    collect(&registry, collect_all(Duration::ZERO)).await;
    let left = |below: &str| fs::read_dir(folder.path().join(below)).unwrap().count();
    assert_eq!(left("repos/acme/vpc/_oci/blobs/sha256"), 0);
    assert_eq!(left("_blobs/sha256"), 3, "those of the other repository");
}

#[tokio::test]
async fn where_a_manifest_cannot_be_read_nothing_is_collected() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let lost = put(&registry, "acme/vpc", "lost").await;
    let manifest = push(&registry, "acme/vpc", "layer", &["v1"]).await.unwrap();
    let path = registry.store.layout.blob(&name("acme/vpc"), &manifest);
    for damage in ["{}", ""] {
        if damage.is_empty() {
            fs::remove_file(&path).unwrap();
        } else {
            overwrite(&path, damage);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let collection = registry.collect(collect_all(Duration::ZERO)).await.unwrap();
        assert_eq!(collection.skipped.len(), 1, "{collection:?}");
        assert_eq!(read(&registry, "acme/vpc", &Digest::of(b"layer")).await.unwrap(), "layer");
        assert_eq!(read(&registry, "acme/vpc", &lost).await.unwrap(), "lost");
    }
    let index = folder.path().join("repos/acme/vpc/_oci/index.json");
    fs::write(&index, format!(r#"{{"manifests":[{{"mediaType":"a/b","digest":"{lost}"}}]}}"#)).unwrap();
    assert_eq!(registry.collect(collect_all(Duration::ZERO)).await.unwrap().skipped.len(), 1);
    assert_eq!(read(&registry, "acme/vpc", &lost).await.unwrap(), "lost");
}

#[cfg(unix)]
#[tokio::test]
async fn who_asks_for_a_blob_may_count_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = open(&folder);
    Arc::get_mut(&mut registry.store).unwrap().refresh_after = Duration::ZERO;
    let vpc = name("acme/vpc");
    let grace = Duration::from_millis(600);
    let asked = put(&registry, "acme/vpc", "asked").await;
    let pushed = put(&registry, "acme/vpc", "pushed").await;
    let mounted = put(&registry, "acme/vpc", "mounted").await;
    let uploaded = put(&registry, "acme/vpc", "uploaded").await;
    let manifest = push(&registry, "acme/vpc", "{}", &[]).await.unwrap();
    let forgotten = put(&registry, "acme/vpc", "forgotten").await;
    tokio::time::sleep(grace).await;
    registry.blob_size(&vpc, &asked).await.unwrap();
    put(&registry, "acme/vpc", "pushed").await;
    assert!(registry.mount(&vpc, &mounted, None).await.unwrap());
    registry.manifest_head(&vpc, &manifest.clone().into()).await.unwrap();
    let upload = registry.open_upload(&vpc, Algorithm::Sha256).await.unwrap();
    let bytes = stream::iter([Ok(Bytes::from_static(b"uploaded"))]).boxed();
    registry.append_upload(&vpc, &upload, None, bytes).await.unwrap();
    registry.finish_upload(&vpc, &upload, &uploaded).await.unwrap();
    let removed = registry.collect(collect_all(grace)).await.unwrap().removed;
    let removed: HashSet<_> = removed.into_iter().filter_map(|removed| removed.digest).collect();
    assert_eq!(removed, HashSet::from([forgotten]));
    for kept in [asked, pushed, mounted, uploaded] {
        registry.blob_size(&vpc, &kept).await.unwrap();
    }
}

#[cfg(unix)]
#[tokio::test]
async fn to_ask_for_a_blob_does_not_make_it_be_hashed_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = open(&folder);
    Arc::get_mut(&mut registry.store).unwrap().refresh_after = Duration::ZERO;
    let digest = put(&registry, "acme/vpc", "layer").await;
    tokio::time::sleep(Duration::from_millis(3100)).await;
    assert_eq!(read(&registry, "acme/vpc", &digest).await.unwrap(), "layer");
    let path = registry.store.layout.blob(&name("acme/vpc"), &digest);
    let stamp = || self::stamp::Stamp::of(&fs::metadata(&path).unwrap());
    let before = stamp();
    registry.blob_size(&name("acme/vpc"), &digest).await.unwrap();
    assert_ne!(stamp(), before, "it counts as new");
    tokio::time::sleep(Duration::from_millis(3100)).await;
    assert!(registry.store.verified.knows(&digest, stamp()));
    // But a change is still seen.
    overwrite(&registry.store.layout.blob(&name("acme/vpc"), &digest), "LAYER");
    assert!(read(&registry, "acme/vpc", &digest).await.is_err());
}

#[tokio::test]
async fn damage_is_named_and_moved_aside_and_mended_by_a_push() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let vpc = name("acme/vpc");
    push(&registry, "acme/vpc", "layer", &["v1", "v2"]).await.unwrap();
    push(&registry, "acme/vpc", "other", &["v3"]).await.unwrap();
    let verification = registry.verify(false).await.unwrap();
    assert_eq!((verification.repositories, verification.files, verification.damage.len()), (1, 10, 0));

    let bad = Digest::of(b"layer");
    overwrite(&registry.store.layout.blob(&vpc, &bad), "LAYER");
    fs::remove_file(registry.store.layout.blob(&vpc, &Digest::of(b"other"))).unwrap();
    let found = |damage: &[Damage]| {
        let one = |found: &Damage| {
            let tags: Vec<_> = found.tags.iter().map(ToString::to_string).collect();
            (found.repository.is_some(), found.kind.as_str(), found.digest.clone().unwrap(), tags.join(" "))
        };
        damage.iter().map(one).collect::<Vec<_>>()
    };
    let expected = vec![
        (false, "content", bad.clone(), String::new()),
        (true, "content", bad.clone(), "v1 v2".into()),
        (true, "missing", Digest::of(b"other"), "v3".into()),
    ];
    let damage = registry.verify(false).await.unwrap().damage;
    assert_eq!(found(&damage), expected);
    assert!(damage.iter().all(|found| found.moved_to.is_none()));
    let damage = registry.verify(true).await.unwrap().damage;
    assert_eq!(found(&damage), expected);
    let aside = fs::read_dir(folder.path().join("_damaged")).unwrap().map(|entry| entry.unwrap().path());
    assert!(aside.map(|path| fs::read_to_string(path).unwrap()).eq(["LAYER", "LAYER"].map(String::from)));
    let damage = registry.verify(true).await.unwrap().damage;
    assert!(damage.iter().all(|found| found.kind == DamageKind::Missing), "{damage:?}");
    assert_eq!(damage.len(), 2);

    put(&registry, "acme/vpc", "layer").await;
    put(&registry, "acme/vpc", "other").await;
    assert_eq!(registry.verify(false).await.unwrap().damage, []);
}

#[tokio::test]
async fn damage_of_manifests_and_lists_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let manifest = push(&registry, "acme/vpc", "layer", &["v1"]).await.unwrap();
    let lonely = put(&registry, "acme/bad", "no manifest").await;
    let index = folder.path().join("repos/acme/bad/_oci/index.json");
    fs::write(&index, format!(r#"{{"manifests":[{{"mediaType":"{IMAGE_MANIFEST}","digest":"{lonely}"}}]}}"#))
        .unwrap();
    let broken = folder.path().join("repos/acme/broken/_oci");
    fs::create_dir_all(&broken).unwrap();
    fs::write(broken.join("index.json"), "{").unwrap();
    overwrite(&registry.store.layout.blob(&name("acme/vpc"), &manifest), "{}");
    let damage = registry.verify(false).await.unwrap().damage;
    let kinds: Vec<_> = damage
        .iter()
        .map(|found| {
            (found.repository.as_ref().map_or("", Repository::as_str), found.kind.as_str(), found.tags.len())
        })
        .collect();
    let expected = [
        ("", "content", 0),
        ("acme/bad", "manifest", 0),
        ("acme/broken", "index", 0),
        ("acme/vpc", "content", 1),
    ];
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn only_a_store_is_opened_as_one() {
    let folder = tempfile::tempdir().unwrap();
    assert!(DirectoryRegistry::open_existing(folder.path(), DirectoryOptions::default()).unwrap().is_none());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    open(&folder);
    assert!(DirectoryRegistry::open_existing(folder.path(), DirectoryOptions::default()).unwrap().is_some());
}

#[tokio::test]
async fn a_store_grows_up_to_its_quota_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = DirectoryOptions { quota: Some(1100), ..DirectoryOptions::default() };
    let registry = DirectoryRegistry::open(folder.path(), options).unwrap();
    let vpc = name("acme/vpc");
    push(&registry, "acme/vpc", &"x".repeat(400), &["v1"]).await.unwrap();
    let is_full = |outcome: Result<()>| {
        let Err(RegistryError::Io { source, action }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(source.kind(), ErrorKind::QuotaExceeded);
        assert!(action.contains("1100"), "{action}");
    };
    let large = "y".repeat(400);
    let source = BytesSource(Bytes::from(large.clone()));
    is_full(registry.put_blob(&vpc, &Digest::of(large.as_bytes()), &source).await);
    // An upload whose length nobody knows before.
    let upload = registry.open_upload(&vpc, Algorithm::Sha256).await.unwrap();
    let pieces = stream::iter([Ok(Bytes::from(vec![0; 100])), Ok(Bytes::from(vec![0; 300]))]).boxed();
    is_full(registry.append_upload(&vpc, &upload, None, pieces).await.map(drop));
    assert_eq!(registry.upload_offset(&vpc, &upload).await.unwrap(), 100, "it may go on when there is room");
    is_full(push(&registry, "acme/vpc", "small", &["v2"]).await.map(drop));
    assert_eq!(tags(&registry, "acme/vpc").await, ["v1"]);
    // What other processes remove counts.
    registry.cancel_upload(&vpc, &upload).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    push(&registry, "acme/vpc", "small", &["v2"]).await.unwrap();
}

#[tokio::test]
async fn the_folder_s_own_quota_counts_for_everybody() {
    let folder = tempfile::tempdir().unwrap();
    open(&folder);
    fs::write(folder.path().join("ocimod.json"), r#"{"formatVersion":1,"quota":10}"#).unwrap();
    let source = BytesSource(Bytes::from_static(b"more than that"));
    let full = open(&folder).put_blob(&name("a"), &Digest::of(b"more than that"), &source).await;
    assert!(
        matches!(full, Err(RegistryError::Io { source, .. }) if source.kind() == ErrorKind::QuotaExceeded)
    );
}

#[tokio::test]
async fn uploads_wait_for_their_turn_and_are_then_sent_away() {
    let folder = tempfile::tempdir().unwrap();
    let options = DirectoryOptions { concurrent_uploads: 1, ..DirectoryOptions::default() };
    let registry = DirectoryRegistry::open(folder.path(), options).unwrap();
    let turn = registry.upload_turn().await.unwrap();
    let refused = registry.upload_turn().await;
    assert!(matches!(refused, Err(RegistryError::TooManyRequests { retry_after: Some(_), .. })));
    drop(turn);
    drop(registry.upload_turn().await.unwrap());
}

#[tokio::test]
async fn a_manifest_has_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let manifest = NewManifest {
        media_type: IMAGE_INDEX.into(),
        bytes: format!(r#"{{"schemaVersion":2,"manifests":[],"x":"{}"}}"#, "x".repeat(4 << 20)).into(),
        digest: None,
        tags: Vec::new(),
        condition: Condition::None,
    };
    let refused = registry.put_manifest(&name("a"), &manifest).await;
    assert!(matches!(refused, Err(RegistryError::TooLarge { .. })));
}

#[tokio::test]
async fn a_manifest_that_says_wrong_sizes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let config = put(&registry, "acme/vpc", "{}").await;
    for size in [1_u64, 3, 1 << 40] {
        let manifest = serde_json::json!({"schemaVersion": 2, "layers": [],
            "config": {"mediaType": "a/b", "digest": config, "size": size}});
        let refused = put_json(&registry, "acme/vpc", IMAGE_MANIFEST, &manifest, &["v1"]).await;
        assert!(matches!(refused, Err(RegistryError::ManifestInvalid(_))), "{size}: {refused:?}");
    }
}

#[tokio::test]
async fn a_page_of_referrers_has_an_end_and_every_annotation() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let config = put(&registry, "acme/vpc", "{}").await;
    let subject = Digest::of(b"not there yet");
    for number in 0..102 {
        // The last of the long ones is longer yet when it is written as JSON.
        let long = match number {
            0..3 => number.to_string().repeat(1 << 20),
            3 => "\u{1}".repeat(300_000),
            _ => number.to_string(),
        };
        let manifest = serde_json::json!({"schemaVersion": 2, "layers": [], "annotations": {"a": long},
            "config": {"mediaType": "a/b", "digest": config, "size": 2},
            "subject": {"mediaType": IMAGE_MANIFEST, "digest": subject, "size": 1}});
        put_json(&registry, "acme/vpc", IMAGE_MANIFEST, &manifest, &[]).await.unwrap();
    }
    let vpc = name("acme/vpc");
    let (mut seen, mut request) = (Vec::new(), PageRequest::default());
    loop {
        let page = registry.referrers(&vpc, &subject, None, &request).await.unwrap();
        let length = serde_json::to_string(&page.items).unwrap().len();
        assert!(page.items.len() <= 100 && length <= 2 << 20, "{} of {length} bytes", page.items.len());
        seen.extend(page.items);
        match page.next {
            Some(next) => request = PageRequest::after(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), 102);
    assert_eq!(seen.iter().filter(|item| item.annotations["a"].len() >= 300_000).count(), 4);
    let none = PageRequest { count: Some(0), after: None };
    let none = registry.referrers(&vpc, &subject, None, &none).await.unwrap();
    assert_eq!((none.items.len(), none.next), (0, None));

    // Where there is no room to keep them they are the same, and what was kept gives its room back.
    let mut other = open(&folder);
    Arc::get_mut(&mut other.store).unwrap().memory.room = Room::new(7);
    let page = other.referrers(&vpc, &subject, None, &PageRequest::default()).await.unwrap();
    assert_eq!(page.items[..], seen[..page.items.len()]);
    assert!(other.store.memory.room.take(4).is_none(), "some are kept");
    for number in 0..2 {
        let config = put(&other, "acme/vpc", &number.to_string()).await;
        let manifest = serde_json::json!({"schemaVersion": 2, "layers": [], "annotations": {"a": "b"},
            "config": {"mediaType": "a/b", "digest": config, "size": 1}});
        put_json(&other, "acme/vpc", IMAGE_MANIFEST, &manifest, &[]).await.unwrap();
        other.referrers(&vpc, &subject, None, &PageRequest::default()).await.unwrap();
    }
    for item in seen {
        other.delete_manifest(&vpc, &item.digest).await.unwrap();
    }
    assert_eq!(other.referrers(&vpc, &subject, None, &PageRequest::default()).await.unwrap().items, []);
    assert!(other.store.memory.room.take(7).is_some(), "all of it is free again");
}

/// Tags a manifest whose entry in the list is some kilobytes long, so that the list soon is too.
async fn push_long(registry: &DirectoryRegistry, tag: &str) -> Digest {
    let config = put(registry, "acme/long", "{}").await;
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "layers": [], "annotations": {"tag": tag},
        "artifactType": format!("a/{}", "b".repeat(4_000)),
        "config": {"mediaType": "a/b", "digest": config, "size": 2},
    });
    put_json(registry, "acme/long", IMAGE_MANIFEST, &manifest, &[tag]).await.unwrap()
}

/// The tags that anybody else reads in the long list, sorted.
fn tags_on_disk(folder: &TempDir) -> Vec<String> {
    let bytes = fs::read(folder.path().join("repos/acme/long/_oci/index.json")).unwrap();
    let list: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let name = |entry: &serde_json::Value| {
        entry["annotations"]["org.opencontainers.image.ref.name"].as_str().map(ToOwned::to_owned)
    };
    let mut tags: Vec<_> = list["manifests"].as_array().unwrap().iter().filter_map(name).collect();
    tags.sort();
    tags
}

#[cfg(unix)]
#[tokio::test]
async fn a_long_list_is_not_written_anew_for_each_push() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let index = folder.path().join("repos/acme/long/_oci/index.json");
    let mut expected = Vec::new();
    let mut files = Vec::new();
    for number in 0..80 {
        // A client that began to read before this push, and goes on behind the next one.
        let mut reader = fs::File::open(&index).ok();
        let before = expected.clone();
        for half in ["a", "b"] {
            let tag = format!("v{number:02}{half}");
            // Processes take turns: each knows of its own writes alone.
            let writer = if number % 7 == 0 { open(&folder) } else { registry.clone() };
            push_long(&writer, &tag).await;
            expected.push(tag);
            assert_eq!(tags_on_disk(&folder), expected);
            files.push(fs::metadata(&index).unwrap().ino());
        }
        if let Some(reader) = &mut reader {
            let list: serde_json::Value = serde_json::from_reader(reader).unwrap();
            assert!(list["manifests"].as_array().unwrap().len() >= before.len());
        }
    }
    assert_eq!(tags(&registry, "acme/long").await, expected);
    let used_again = files.windows(3).filter(|files| files[0] == files[2]).count();
    assert!(used_again > 90, "{used_again} of 160 pushes wrote what they added");
    registry.delete_tag(&name("acme/long"), &"v40a".parse().unwrap()).await.unwrap();
    expected.retain(|tag| tag != "v40a");
    assert_eq!(tags_on_disk(&folder), expected);
    push_long(&registry, "v40a").await;
    expected.push("v40a".into());
    expected.sort();
    assert_eq!(tags_on_disk(&folder), expected);
    assert_eq!(registry.verify(false).await.unwrap().damage, []);
}

#[cfg(unix)]
#[tokio::test]
async fn only_a_spare_list_that_is_what_it_should_be_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = open(&folder);
    let repository = folder.path().join("repos/acme/long");
    let (index, spare) = (repository.join("_oci/index.json"), repository.join("_index"));
    let mut expected = Vec::new();
    let mut push = async |registry: &DirectoryRegistry| {
        let tag = format!("v{:03}", expected.len());
        push_long(registry, &tag).await;
        expected.push(tag);
        assert_eq!(tags_on_disk(&folder), expected);
    };
    for _ in 0..20 {
        push(&registry).await;
    }
    // Somebody's copy made of links stays as it was.
    let copy = folder.path().join("copy");
    fs::hard_link(&index, &copy).unwrap();
    let copied = fs::read(&copy).unwrap();
    for _ in 0..4 {
        push(&registry).await;
        assert_eq!(fs::read(&copy).unwrap(), copied);
    }
    // What a writer left who was killed, was cut off, or was none of ours.
    let whole = fs::read(&spare).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let end = text.rfind("}}").unwrap() + 2;
    let mut half = whole.clone();
    half[end..end + 9].copy_from_slice(b",{\"digest");
    let mut early = whole.clone();
    early[50] = b'x';
    let short = whole[..whole.len() / 2].to_vec();
    let long = [&whole[..], &vec![b' '; 1 << 20]].concat();
    for content in [half, early, short, long, Vec::new(), b"]}".to_vec(), vec![b' '; whole.len()]] {
        for registry in [&registry, &open(&folder)] {
            fs::write(&spare, &content).unwrap();
            push(registry).await;
        }
    }
    fs::remove_file(&spare).unwrap();
    std::os::unix::fs::symlink(&index, &spare).unwrap();
    push(&registry).await;
    fs::remove_file(&spare).unwrap();
    fs::hard_link(&index, &spare).unwrap();
    push(&open(&folder)).await;
    let _ = fs::remove_file(&spare);
    fs::create_dir(&spare).unwrap();
    push(&registry).await;
    push(&registry).await;
    fs::remove_dir(&spare).unwrap();
    // Where there are no links, none is kept.
    Arc::get_mut(&mut registry.store).unwrap().layout.link = |_, _| Err(ErrorKind::TooManyLinks.into());
    for _ in 0..3 {
        let _ = fs::remove_file(&spare);
        push(&registry).await;
        assert!(!spare.exists());
    }
    assert_eq!(fs::read_dir(&repository).unwrap().count(), 2, "`_oci` and `_lock`");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_spare_list_that_cannot_take_the_place_is_written_anew() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let mut expected = Vec::new();
    for number in 0..20 {
        expected.push(format!("v{number:02}"));
        push_long(&registry, &expected[number]).await;
    }
    let repository = folder.path().join("repos/acme/long");
    // An operator moves a repository to another disk, where neither link nor rename leads.
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else { return };
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    if device(elsewhere.path()) == device(folder.path()) {
        return;
    }
    let (layout, moved) = (repository.join("_oci"), elsewhere.path().join("layout"));
    let copied = std::process::Command::new("cp").arg("-a").args([&layout, &moved]).status().unwrap();
    assert!(copied.success() && repository.join("_index").is_file());
    fs::remove_dir_all(&layout).unwrap();
    std::os::unix::fs::symlink(&moved, &layout).unwrap();
    for number in 20..24 {
        expected.push(format!("v{number:02}"));
        push_long(&registry, &expected[number]).await;
        assert_eq!(tags_on_disk(&folder), expected);
    }
    assert_eq!(tags(&open(&folder), "acme/long").await, expected);
}

#[tokio::test]
async fn a_long_list_that_became_short_keeps_nothing_beside() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let mut digests = Vec::new();
    for number in 0..20 {
        digests.push(push_long(&registry, &format!("v{number}")).await);
    }
    for digest in digests {
        registry.delete_manifest(&name("acme/long"), &digest).await.unwrap();
    }
    push_long(&registry, "v1").await;
    assert_eq!(tags_on_disk(&folder), ["v1"]);
    assert!(!folder.path().join("repos/acme/long/_index").exists());
}

#[tokio::test]
async fn a_store_is_opened_without_a_look_at_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    open(&folder);
    // Whoever looked at the repositories, contents or uploads would fail.
    for name in ["repos", "_blobs", "_uploads"] {
        fs::remove_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name), "no folder").unwrap();
    }
    let registry = open(&folder);
    assert!(registry.tags(&name("acme/vpc"), &PageRequest::default()).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_repository_is_read_when_it_is_asked_for_and_no_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    push(&registry, "acme/vpc", "layer", &["v1"]).await.unwrap();
    // All others are damaged.
    for number in 0..20 {
        let layout = folder.path().join(format!("repos/acme/other{number}/_oci"));
        fs::create_dir_all(&layout).unwrap();
        fs::write(layout.join("oci-layout"), "{}").unwrap();
        fs::write(layout.join("index.json"), "no list").unwrap();
    }
    let registry = open(&folder);
    assert_eq!(tags(&registry, "acme/vpc").await, ["v1"]);
    push(&registry, "acme/vpc", "another", &["v2"]).await.unwrap();
    push(&registry, "acme/new", "another", &["v2"]).await.unwrap();
    assert_eq!(tags(&registry, "acme/vpc").await, ["v1", "v2"]);
    assert!(registry.tags(&name("acme/other7"), &PageRequest::default()).await.is_err());
}

#[cfg(unix)]
#[tokio::test]
async fn a_page_of_repositories_reads_the_folders_that_are_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let registry = open(&folder);
    let mut expected: Vec<String> = (0..50).map(|number| format!("acme/m{number:02}/null")).collect();
    expected.extend(["a", "a-b", "a-b/c", "a.b/c", "a/b", "a/b-c", "a/b/c", "a0", "b"].map(String::from));
    for name in expected.iter().rev() {
        push(&registry, name, "layer", &["v1"]).await.unwrap();
    }
    // What is no repository is passed over.
    for other in ["repos/Acme/x", "repos/acme/_none", "repos/a/b/-"] {
        fs::create_dir_all(folder.path().join(other)).unwrap();
    }
    fs::write(folder.path().join("repos/file"), "").unwrap();
    std::os::unix::fs::symlink(folder.path().join("repos"), folder.path().join("repos/circle")).unwrap();
    expected.sort();
    let list = async |after: &str, count: Option<usize>| {
        let request = PageRequest { count, after: Some(after.to_owned()) };
        let page = registry.repositories(&request).await.unwrap();
        page.items.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>()
    };
    let others = ["", "0", "a-", "a.", "a/", "a/b/", "acme", "acme/", "acme/m07", "acme/m07/", "zz", "~"];
    for after in expected.iter().map(String::as_str).chain(others) {
        let rest: Vec<_> = expected.iter().filter(|name| name.as_str() > after).cloned().collect();
        assert_eq!(list(after, None).await, rest, "after {after}");
        assert_eq!(list(after, Some(3)).await, rest[..rest.len().min(3)], "after {after}");
    }
    let mut names = Names::after(&registry.store.layout, "acme/m19/null");
    let next: Vec<_> = names.by_ref().take(3).map(Result::unwrap).collect();
    assert_eq!(
        next.iter().map(Repository::as_str).collect::<Vec<_>>(),
        ["acme/m20", "acme/m20/null", "acme/m21"]
    );
    // Those from 21 to 49, and `b`; and nothing that came before.
    assert_eq!(names.unread(), 30);
}

#[tokio::test]
async fn the_lists_in_memory_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = open(&folder);
    for number in 0..10 {
        push(&registry, &format!("acme/r{number}"), "layer", &["v1"]).await.unwrap();
    }
    let registry_of_all = open(&folder);
    let mut most = 0;
    for number in 0..10 {
        assert_eq!(tags(&registry_of_all, &format!("acme/r{number}")).await, ["v1"]);
        most = registry_of_all.store.memory.used();
    }
    assert_eq!(registry.store.memory.used(), most, "what was written is what would be read");
    let limit = most / 3;
    Arc::get_mut(&mut registry.store).unwrap().memory.limit = limit;
    for number in (0..10).chain(0..10) {
        let repository = format!("acme/r{number}");
        push(&registry, &repository, "another", &["v2"]).await.unwrap();
        assert_eq!(tags(&registry, &repository).await, ["v1", "v2"]);
        assert!(registry.store.memory.used() <= limit);
    }
    // One that is larger than the limit is kept for as long as no other is asked for.
    Arc::get_mut(&mut registry.store).unwrap().memory.limit = 0;
    assert_eq!(tags(&registry, "acme/r1").await, ["v1", "v2"]);
    let one = registry.store.memory.used();
    assert_eq!(tags(&registry, "acme/r2").await, ["v1", "v2"]);
    assert_eq!(registry.store.memory.used(), one);
}

#[test]
fn a_folder_with_its_settings_alone_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ocimod.json"), r#"{"formatVersion":1,"quota":1000000}"#).unwrap();
    open(&folder);
    for made in ["_blobs", "_uploads", "repos"] {
        assert!(folder.path().join(made).is_dir(), "{made}");
    }
}
