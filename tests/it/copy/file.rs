//! `layout:FILE.tar`: written the same every time, all of it or nothing, and read in place.

use std::fs;
use std::time::{Duration, SystemTime};

use ocimod::oci::{Algorithm, ByteRange};
use ocimod::operations::connect::LayoutFile;
use ocimod::registry::layout::Committed;
use ocimod::registry::{Blob, BlobRequest, LayoutRegistry, RegistryError};

use super::*;
use crate::conformance::{self, Profile};
use crate::failing_registry::{Failure, When};

async fn to_write(path: &Path) -> Arc<LayoutRegistry> {
    Arc::new(LayoutRegistry::open_to_write(path.to_owned()).await.unwrap())
}

async fn open(path: &Path) -> SharedRegistry {
    Arc::new(LayoutRegistry::open(path.to_owned()).await.unwrap())
}

async fn commit(registry: &LayoutRegistry) -> Committed {
    registry.commit(|_| {}).await.unwrap()
}

/// Copies from a source into a file.
async fn copy_into(source: &Rig, path: &Path, request: &CopyRequest) -> Result<Copied, OperationError> {
    let registry = to_write(path).await;
    let to = routes("layout:x.tar", registry.clone());
    let to = Destination { routes: to, files: vec![LayoutFile { name: "layout:x.tar".into(), registry }] };
    copy::copy(&routes("from.example", source.source()), &to, request, Arc::new(NoProgress)).await
}

/// Modules, a yank, a signature and a provider.
async fn filled() -> Rig {
    let rig = Rig::new().await;
    rig.push("acme/leaf/null@1.0.0", "leaf", &[], DependencyForm::Inline).await;
    let digest =
        rig.push("acme/tree/null@1.0.0", "tree", &["acme/leaf/null"], DependencyForm::Separate).await;
    let tree = repository("acme/tree/null");
    let size = rig.source().manifest(&tree, &by_tag("v1.0.0")).await.unwrap().bytes.len() as u64;
    about(&rig.source(), &tree, &Descriptor::new(IMAGE_MANIFEST, digest, size), "signed").await;
    let cloud = repository("providers/registry.opentofu.org/acme/cloud");
    provider(&rig.source(), &cloud, &["linux_amd64", "darwin_arm64"], "1.0.0").await;
    rig
}

fn with_referrers() -> CopyRequest {
    CopyRequest { referrers: true, ..everything() }
}

fn names_in(path: &Path) -> Vec<String> {
    let listed = std::process::Command::new("tar").arg("-tf").arg(path).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What a registry shows of another one's content, read in every way that there is.
async fn expect_same(reading: &SharedRegistry, expected: &SharedRegistry) {
    assert_eq!(tags(reading).await, tags(expected).await);
    let names = reading.all_repositories(1000).await.unwrap();
    let elsewhere = repository("never/heard/of");
    for repository in &names {
        for tag in reading.all_tags(repository, 1000).await.unwrap() {
            let reference = Reference::Tag(tag);
            let (ours, theirs) = (
                reading.manifest(repository, &reference).await.unwrap(),
                expected.manifest(repository, &reference).await.unwrap(),
            );
            assert_eq!(ours, theirs);
            let by_digest = Reference::Digest(ours.digest.clone());
            assert_eq!(reading.manifest(repository, &by_digest).await.unwrap(), theirs);
            let head = reading.manifest_head(repository, &by_digest).await.unwrap();
            assert_eq!((&head.digest, head.size), (&theirs.digest, theirs.bytes.len() as u64));
            assert!(reading.manifest(&elsewhere, &by_digest).await.unwrap_err().is_not_found());
            let about = referrers(expected, repository, &ours.digest).await;
            assert_eq!(referrers(reading, repository, &ours.digest).await, about);
            for digest in read_whole(reading, repository, reference).await {
                let size = reading.blob_size(repository, &digest).await.unwrap();
                assert!(reading.blob_size(&elsewhere, &digest).await.unwrap_err().is_not_found());
                let of_others = names.iter().filter(|other| *other != repository);
                for other in of_others {
                    assert_eq!(
                        reading.blob_size(other, &digest).await.is_ok(),
                        expected.blob_size(other, &digest).await.is_ok(),
                        "{digest} in {other}"
                    );
                }
                if size > 2 {
                    let request = BlobRequest {
                        range: Some(ByteRange::FromTo { first: 1, last: 2 }),
                        ..BlobRequest::default()
                    };
                    let Blob::Stream(piece) = reading.blob(repository, &digest, request).await.unwrap()
                    else {
                        panic!("a location")
                    };
                    let piece = read_bounded(piece.bytes, 2).await.unwrap();
                    let whole = reading.small_blob(repository, &digest, 64 << 20).await.unwrap();
                    assert_eq!(piece, whole[1..3]);
                    let beyond = BlobRequest { range: Some(ByteRange::From(size)), ..BlobRequest::default() };
                    assert!(matches!(
                        reading.blob(repository, &digest, beyond).await,
                        Err(RegistryError::RangeNotSatisfiable { .. })
                    ));
                }
            }
            for digest in about {
                read_whole(reading, repository, digest.into()).await;
            }
        }
    }
    let page = PageRequest { count: Some(1), after: None };
    assert_eq!(reading.repositories(&page).await.unwrap(), expected.repositories(&page).await.unwrap());
    for repository in names {
        let (ours, theirs) =
            (reading.tags(&repository, &page).await, expected.tags(&repository, &page).await);
        assert_eq!(ours.unwrap(), theirs.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_every_registry_has_to_do_a_layout_that_is_written_does_and_the_file_shows_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let registry = to_write(&path).await;
    let profile = Profile {
        algorithms: &[Algorithm::Sha256, Algorithm::Sha512],
        has_uploads: false,
        has_immutable_tags: false,
        has_tag_delete: false,
        has_delete: false,
        ..Profile::full()
    };
    let shared: SharedRegistry = registry.clone();
    conformance::check(shared.clone(), profile).await;
    assert!(!path.exists(), "nothing is there before it is all there");
    let shows = async |registry: &SharedRegistry| {
        let mut shown = BTreeMap::new();
        for name in tags(registry).await.into_keys() {
            let (repository, tag) = name.rsplit_once(':').unwrap();
            let repository = repository.parse().unwrap();
            let stored = registry.manifest(&repository, &by_tag(tag)).await.unwrap();
            let about = referrers(registry, &repository, &stored.digest).await;
            shown.insert(name, (stored.media_type, stored.bytes, about));
        }
        shown
    };
    let before = shows(&shared).await;
    commit(&registry).await;
    let reading = open(&path).await;
    assert_eq!(shows(&reading).await, before);
    assert!(before.len() > 30, "{}", before.len());
    assert!(!folder.path().join("x.tar.part").exists());
    for name in names_in(&path) {
        assert!(
            ["oci-layout", "index.json"].contains(&name.as_str()) || name.starts_with("blobs/"),
            "{name}"
        );
    }
    assert!(matches!(
        reading.put_blob(&repository("a"), &Digest::of(b""), &BytesSource(Bytes::new())).await,
        Err(RegistryError::Unsupported { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_holds_what_was_copied_and_gives_it_back() {
    let (rig, folder) = (filled().await, tempfile::tempdir().unwrap());
    let path = folder.path().join("x.tar");
    Rig::done(copy_into(&rig, &path, &with_referrers()).await);
    expect_same(&open(&path).await, &rig.source()).await;
    let back = Rig { from: FailingRegistry::new(open(&path).await), ..Rig::new().await };
    Rig::done(back.copy(&with_referrers()).await);
    expect_same(&back.destination(), &rig.source()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_content_gives_the_same_bytes_however_it_came() {
    let (rig, folder) = (filled().await, tempfile::tempdir().unwrap());
    let at_once = folder.path().join("at-once.tar");
    Rig::done(copy_into(&rig, &at_once, &with_referrers()).await);
    let bit_by_bit = folder.path().join("bit-by-bit.tar");
    for address in ["provider:registry.opentofu.org/acme/cloud", "acme/tree/null", "acme/leaf/null"] {
        let request = CopyRequest { referrers: true, ..named(&[address]) };
        let done = Rig::done(copy_into(&rig, &bit_by_bit, &request).await);
        assert!(done.files[0].is_changed);
        assert_eq!(done.files[0].size, fs::metadata(&bit_by_bit).unwrap().len());
    }
    assert!(fs::read(&at_once).unwrap() == fs::read(&bit_by_bit).unwrap(), "not the same bytes");
    // Nothing new: the file is not even touched.
    let long_ago = SystemTime::now() - Duration::from_hours(1);
    fs::File::open(&at_once).unwrap().set_modified(long_ago).unwrap();
    let done = Rig::done(copy_into(&rig, &at_once, &with_referrers()).await);
    assert!(!done.files[0].is_changed);
    assert_eq!(fs::metadata(&at_once).unwrap().modified().unwrap(), long_ago);
    assert!(!folder.path().join("at-once.tar.part").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_to_a_file_leaves_what_was_there() {
    let (rig, folder) = (filled().await, tempfile::tempdir().unwrap());
    let path = folder.path().join("x.tar");
    Rig::done(copy_into(&rig, &path, &named(&["acme/leaf/null"])).await);
    let before = tags(&open(&path).await).await;
    let other = Rig::new().await;
    other.push("acme/other/null@1.0.0", "other", &[], DependencyForm::Inline).await;
    other.push("acme/leaf/null@1.0.0", "another leaf", &[], DependencyForm::Inline).await;
    let done = copy_into(&other, &path, &everything()).await.unwrap();
    assert!(matches!(done.failed[0].error, OperationError::Differs { .. }));
    let mut after = tags(&open(&path).await).await;
    assert!(after.remove("acme/other/null:v1.0.0").is_some());
    assert_eq!(after, before);
    expect_whole(&open(&path).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_into_a_file_that_breaks_off_writes_nothing_and_fetches_nothing_twice() {
    let (rig, folder) = (filled().await, tempfile::tempdir().unwrap());
    let path = folder.path().join("x.tar");
    Rig::done(copy_into(&rig, &path, &named(&["acme/leaf/null"])).await);
    let before = fs::read(&path).unwrap();
    let broken = || RegistryError::Unavailable { registry: "from.example".into(), reason: "a test".into() };
    rig.from.fail("blob", When::Nth(4), Failure::error(broken));
    let done = copy_into(&rig, &path, &with_referrers()).await.unwrap();
    assert!(done.is_broken_off && done.copied.is_empty() && done.files.is_empty());
    assert!(fs::read(&path).unwrap() == before, "the file has changed");
    let part = folder.path().join("x.tar.part");
    assert!(part.is_dir());
    rig.from.work_again();
    let first: Vec<_> = rig.from.take_calls().into_iter().filter(|call| call.operation == "blob").collect();
    Rig::done(copy_into(&rig, &path, &with_referrers()).await);
    let second: Vec<_> = rig.from.take_calls().into_iter().filter(|call| call.operation == "blob").collect();
    // All but the one that failed.
    let twice =
        second.iter().filter(|call| first.iter().any(|other| other.arguments == call.arguments)).count();
    assert_eq!(twice, 1, "{first:?} {second:?}");
    assert!(!part.exists());
    expect_same(&open(&path).await, &rig.source()).await;
    // What a run that broke off had staged makes no other file of it.
    let clean = folder.path().join("clean.tar");
    Rig::done(copy_into(&rig, &clean, &with_referrers()).await);
    assert!(fs::read(&clean).unwrap() == fs::read(&path).unwrap(), "not the same bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_staged_and_changed_since_is_fetched_again() {
    let (rig, folder) = (filled().await, tempfile::tempdir().unwrap());
    let path = folder.path().join("x.tar");
    let registry = to_write(&path).await;
    let leaf = repository("acme/leaf/null");
    put_blob(&(registry.clone() as SharedRegistry), &leaf, b"{}").await;
    let staged = registry.left_behind().unwrap().to_owned();
    drop(registry);
    let file = fs::read_dir(&staged)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap() != "lock")
        .unwrap();
    fs::write(&file, "[]").unwrap();
    Rig::done(copy_into(&rig, &path, &with_referrers()).await);
    expect_same(&open(&path).await, &rig.source()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_copy_at_a_time_writes_to_a_file_and_none_loses_what_another_wrote() {
    let (rig, folder) = (filled().await, tempfile::tempdir().unwrap());
    let path = folder.path().join("x.tar");
    let (one, two) = (to_write(&path).await, to_write(&path).await);
    let leaf = repository("acme/leaf/null");
    put_blob(&(one.clone() as SharedRegistry), &leaf, b"{}").await;
    let source = BytesSource(Bytes::from_static(b"{}"));
    let error = two.put_blob(&leaf, &Digest::of(b"{}"), &source).await.unwrap_err();
    assert!(error.to_string().contains("another copy writes"), "{error}");
    drop((one, two));
    // One that came and went in the meantime.
    let late = to_write(&path).await;
    Rig::done(copy_into(&rig, &path, &with_referrers()).await);
    let shared: SharedRegistry = late.clone();
    let manifest = artifact(&shared, &leaf, "application/vnd.example", "late").await;
    put(&shared, &leaf, &manifest, &["v9.0.0"]).await;
    let error = late.commit(|_| {}).await.unwrap_err();
    assert!(error.to_string().contains("somebody else has changed it"), "{error}");
    expect_same(&open(&path).await, &rig.source()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_the_file_are_noticed_and_readers_under_way_are_not_disturbed() {
    let (rig, folder) = (filled().await, tempfile::tempdir().unwrap());
    let path = folder.path().join("x.tar");
    Rig::done(copy_into(&rig, &path, &named(&["acme/leaf/null"])).await);
    let reading = open(&path).await;
    let leaf = repository("acme/leaf/null");
    let stored = reading.manifest(&leaf, &by_tag("v1.0.0")).await.unwrap();
    let zip = Manifest::parse(IMAGE_MANIFEST, &stored.bytes).unwrap().layers[0].digest.clone();
    let stream = reading.blob_stream(&leaf, &zip).await.unwrap();
    Rig::done(copy_into(&rig, &path, &with_referrers()).await);
    assert_eq!(Digest::of(&read_bounded(stream.bytes, 1 << 20).await.unwrap()), zip);
    expect_same(&reading, &rig.source()).await;
    // Damaged in place, with the times set back: what is read whole is verified all the same.
    let mut bytes = fs::read(&path).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let content = reading.small_blob(&leaf, &zip, 1 << 20).await.unwrap();
    let at = bytes.windows(content.len()).position(|window| *window == content).unwrap();
    bytes[at + 8] ^= 1;
    fs::write(&path, &bytes).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let error = reading.small_blob(&leaf, &zip, 1 << 20).await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
    let piece = BlobRequest { range: Some(ByteRange::From(1)), ..BlobRequest::default() };
    let error = reading.blob(&leaf, &zip, piece).await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
    fs::remove_file(&path).unwrap();
    assert!(reading.manifest(&leaf, &by_tag("v1.0.0")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_beside_the_file_is_ours_alone_or_is_not_used() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (path, part) = (folder.path().join("x.tar"), folder.path().join("x.tar.part"));
    let leaf = repository("acme/leaf/null");
    let source = BytesSource(Bytes::from_static(b"{}"));
    let attempt = async || to_write(&path).await.put_blob(&leaf, &Digest::of(b"{}"), &source).await;
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &part).unwrap();
    assert!(attempt().await.unwrap_err().to_string().contains("move it away"));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    fs::remove_file(&part).unwrap();
    fs::create_dir(&part).unwrap();
    fs::set_permissions(&part, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(attempt().await.unwrap_err().to_string().contains("move it away"));
    fs::set_permissions(&part, fs::Permissions::from_mode(0o700)).unwrap();
    attempt().await.unwrap();
    assert_eq!(fs::metadata(&part).unwrap().permissions().mode() & 0o777, 0o700);
    // A writer that was given nothing leaves nothing.
    fs::remove_dir_all(&part).unwrap();
    drop(to_write(&path).await);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
