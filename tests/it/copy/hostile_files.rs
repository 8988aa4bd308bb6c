//! Files that lie: each is refused with a word that names it, and nothing is written anywhere.

use std::fs;

use ocimod::registry::{LayoutRegistry, RegistryError};

use super::*;
use crate::support::ocimod::Ocimod;

/// A header as POSIX has it, with a right checksum.
fn header(name: &str, kind: u8, size: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    for (at, text) in [(100, "0000644\0"), (108, "0000000\0"), (116, "0000000\0"), (136, "00000000000\0")] {
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, b'0', content.len() as u64);
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn archive(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), vec![0; 1024]].concat()
}

const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

/// A layout with these entries of its index, and these further parts.
fn layout(entries: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{entries}]}}"#);
    let fixed = [file("oci-layout", LAYOUT), file("index.json", index.as_bytes())];
    archive(&[&fixed[..], parts].concat())
}

fn blob(content: &[u8]) -> Vec<u8> {
    file(&format!("blobs/sha256/{}", Digest::of(content).hex()), content)
}

fn index_entry(content: &[u8], name: &str) -> String {
    annotated_entry(content, "org.opencontainers.image.ref.name", name)
}

/// An entry of an index for what has no tag.
fn untagged_entry(content: &[u8], repository: &str) -> String {
    annotated_entry(content, "works.ocimod.repository", repository)
}

fn annotated_entry(content: &[u8], annotation: &str, value: &str) -> String {
    json!({
        "mediaType": IMAGE_MANIFEST, "digest": Digest::of(content), "size": content.len(),
        "annotations": {annotation: value},
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_layout_or_could_be_read_in_two_ways_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let fine = layout("", &[]);
    fs::write(&path, &fine).unwrap();
    assert!(LayoutRegistry::open(path.clone()).await.is_ok());
    let long = "x".repeat(70_000);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), "no tar archive"),
        ("compressed", vec![0x1f, 0x8b, 8, 0], "no tar archive"),
        ("compressed", [vec![0x1f, 0x8b, 8], vec![0; 600]].concat(), "compressed by gzip"),
        ("zeros", vec![0; 8192], "no tar archive"),
        ("cut off", fine[..1000].to_vec(), "cut off"),
        ("cut off at an entry", fine[..2048].to_vec(), "cut off"),
        ("no index", archive(&[file("oci-layout", LAYOUT)]), "no `index.json`"),
        ("no layout", archive(&[file("index.json", b"{}")]), "no `oci-layout`"),
        (
            "version",
            archive(&[file("oci-layout", br#"{"imageLayoutVersion":"2.0.0"}"#), file("index.json", b"{}")]),
            "2.0.0",
        ),
        ("no json", archive(&[file("oci-layout", LAYOUT), file("index.json", b"<html>")]), "cannot be read"),
        ("twice", layout("", &[file("index.json", b"{}")]), "there twice"),
        ("twice, spelt otherwise", layout("", &[file("./index.json", b"{}")]), "there twice"),
        ("a blob twice", layout("", &[blob(b"x"), blob(b"x")]), "there twice"),
        (
            "a name twice",
            layout(&[index_entry(b"1", "a/b:v1"), index_entry(b"2", "a/b:v1")].join(","), &[]),
            "there twice",
        ),
        ("absolute", layout("", &[file("/etc/passwd", b"x")]), "leads out"),
        ("parent", layout("", &[file("blobs/../../x", b"x")]), "leads out"),
        ("link", layout("", &[header("blobs/sha256/x", b'1', 0)]), "a link"),
        ("symbolic link", layout("", &[header("index.json", b'2', 0)]), "symbolic link"),
        ("device", layout("", &[header("null", b'3', 0)]), "a device"),
        ("pipe", layout("", &[header("pipe", b'6', 0)]), "a pipe"),
        ("sparse", layout("", &[header("blobs/sha256/x", b'S', 0)]), "sparse"),
        ("a folder", layout("", &[header("index.json", b'5', 0)]), "a folder"),
        ("a size that lies", layout("", &[header("blobs/sha256/x", b'0', 1 << 32)]), "cut off"),
        (
            "huge extended header",
            layout("", &[[header("x", b'x', 70_000), long.into_bytes()].concat()]),
            "extended header",
        ),
    ];
    for (case, bytes, expected) in cases {
        fs::write(&path, bytes).unwrap();
        for outcome in
            [LayoutRegistry::open(path.clone()).await, LayoutRegistry::open_to_write(path.clone()).await]
        {
            let Err(error) = outcome else { panic!("{case} is taken") };
            let RegistryError::Io { action, source } = &error else { panic!("{case}: {error:?}") };
            assert!(action.contains("x.tar") && source.to_string().contains(expected), "{case}: {error}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{case}");
    }
    let error = LayoutRegistry::open(folder.path().to_owned()).await.err().unwrap();
    assert!(error.to_string().contains("it is a folder"), "{error}");
    fs::remove_file(&path).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = LayoutRegistry::open(path).await.err().unwrap();
    assert!(error.to_string().contains("no ordinary file"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_too_large_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let size = 4 << 30;
    let start = [file("oci-layout", LAYOUT), header("index.json", b'0', size)].concat();
    fs::write(&path, &start).unwrap();
    // A hole, which takes no room on disk.
    fs::File::options().write(true).open(&path).unwrap().set_len(start.len() as u64 + size + 1024).unwrap();
    let error = LayoutRegistry::open(path).await.err().unwrap();
    assert!(error.to_string().contains("`index.json` is over the limit"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_that_lie_about_sizes_are_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let module = |version: u8, size: u64| {
        let mut layer = entry("archive/zip", &[b'l', version]);
        layer["size"] = size.into();
        json!({
            "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "artifactType": media_types::OPENTOFU_MODULE,
            "config": entry("application/vnd.oci.empty.v1+json", b"{}"), "layers": [layer],
        })
        .to_string()
    };
    // The second one tells the truth.
    let modules: Vec<String> = [1, 2, 3, u64::MAX / 2, u64::MAX]
        .iter()
        .zip(0..)
        .map(|(size, version)| module(version, *size))
        .collect();
    let entries: Vec<String> = modules
        .iter()
        .enumerate()
        .map(|(version, module)| index_entry(module.as_bytes(), &format!("acme/vpc/aws:v1.{version}.0")))
        .collect();
    let contents = modules.iter().map(|module| blob(module.as_bytes()));
    let parts: Vec<_> =
        contents.chain((0..5).map(|version| blob(&[b'l', version]))).chain([blob(b"{}")]).collect();
    fs::write(&path, layout(&entries.join(","), &parts)).unwrap();
    let registry: SharedRegistry = Arc::new(LayoutRegistry::open(path).await.unwrap());
    let rig = Rig { from: crate::failing_registry::FailingRegistry::new(registry), ..Rig::new().await };
    let request = named(&["acme/vpc/aws"]);
    let dry = rig.copy(&CopyRequest { dry_run: true, ..request.clone() }).await.unwrap();
    assert_eq!((dry.copied.len(), dry.bytes_sent), (5, u64::MAX));
    let done = rig.copy(&request).await.unwrap();
    assert_eq!(copied(&done), ["acme/vpc/aws 1.1.0 v1.1.0"]);
    assert_eq!((done.failed.len(), done.is_broken_off), (4, false), "{:?}", done.failed);
    assert_eq!(tags(&rig.destination()).await.into_keys().collect::<Vec<_>>(), ["acme/vpc/aws:v1.1.0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_that_lie_hide_themselves_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let image = json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": entry("a/b", b"{}"),
        "layers": [entry("application/zip", b"layer")],
    })
    .to_string();
    let other = image.replace("a/b", "c/d");
    let damaged = file(&format!("blobs/sha256/{}", Digest::of(b"layer").hex()), b"LAYER");
    let lying = file(&format!("blobs/sha256/{}", Digest::of(other.as_bytes()).hex()), image.as_bytes());
    let entries = [
        index_entry(image.as_bytes(), "acme/vpc/aws:v1.0.0"),
        index_entry(other.as_bytes(), "acme/vpc/aws:v2.0.0"),
        index_entry(b"absent", "acme/vpc/aws:v3.0.0"),
        index_entry(b"{}", "../../etc/passwd:v1"),
        index_entry(b"{}", "acme/other:v1"),
        r#"{"digest":"sha256:../../x"}"#.to_owned(),
        format!(
            r#"{{"mediaType":"{IMAGE_MANIFEST}","digest":"{}","size":99999999999999999999}}"#,
            Digest::of(b"{}")
        ),
    ];
    fs::write(&path, layout(&entries.join(","), &[blob(image.as_bytes()), lying, blob(b"{}"), damaged]))
        .unwrap();
    let registry: SharedRegistry = Arc::new(LayoutRegistry::open(path.clone()).await.unwrap());
    let vpc = repository("acme/vpc/aws");
    assert_eq!(registry.all_repositories(10).await.unwrap().len(), 2);
    assert_eq!(registry.all_tags(&vpc, 10).await.unwrap().len(), 3);
    let stored = registry.manifest(&vpc, &by_tag("v1.0.0")).await.unwrap();
    assert_eq!(stored.bytes, image);
    for tag in ["v2.0.0", "v3.0.0"] {
        assert!(registry.manifest(&vpc, &by_tag(tag)).await.unwrap_err().is_not_found(), "{tag}");
    }
    assert!(registry.manifest(&repository("acme/other"), &by_tag("v1")).await.unwrap_err().is_not_found());
    assert_eq!(registry.small_blob(&vpc, &Digest::of(b"{}"), 10).await.unwrap(), "{}");
    let error = registry.small_blob(&vpc, &Digest::of(b"layer"), 10).await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");

    let ocimod = Ocimod::new();
    let shown = shown(&path);
    let answer = ocimod.run(["store", "verify", shown.as_str(), "--format", "json"]).fails_with(1).json();
    let found: Vec<String> = answer["damage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            format!("{} {} {}", it["kind"].as_str().unwrap(), it["repository"].as_str().unwrap(), it["tags"])
        })
        .collect();
    assert_eq!(
        sorted(found),
        [
            r#"content acme/vpc/aws ["v1.0.0"]"#,
            r#"content acme/vpc/aws ["v2.0.0"]"#,
            r#"manifest acme/other ["v1"]"#,
            r#"missing acme/vpc/aws ["v3.0.0"]"#,
        ]
    );
    ocimod.run(["store", "verify", "--repair", shown.as_str()]).fails_with(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_referrers_has_an_end_and_every_annotation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let manifest = |note: String, about: Option<&str>| {
        let mut manifest = json!({
            "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": entry("a/b", b"{}"), "layers": [],
            "annotations": {"note": note},
        });
        if let Some(about) = about {
            manifest["subject"] = entry(IMAGE_MANIFEST, about.as_bytes());
        }
        manifest.to_string()
    };
    let subject = manifest(String::new(), None);
    // Some are longer than what is kept in memory, and all of them together are longer than a page.
    let about: Vec<String> = (0..40)
        .map(|number| {
            manifest(
                format!("{number}{}", "x".repeat(if number % 2 == 0 { 20 } else { 200_000 })),
                Some(&subject),
            )
        })
        .collect();
    let entries: Vec<String> = about.iter().map(|it| untagged_entry(it.as_bytes(), "acme/vpc/aws")).collect();
    let entries = [index_entry(subject.as_bytes(), "acme/vpc/aws:v1.0.0"), entries.join(",")].join(",");
    let parts: Vec<_> =
        about.iter().chain([&subject]).map(|it| blob(it.as_bytes())).chain([blob(b"{}")]).collect();
    fs::write(&path, layout(&entries, &parts)).unwrap();
    let registry: SharedRegistry = Arc::new(LayoutRegistry::open(path).await.unwrap());
    let (vpc, subject) = (repository("acme/vpc/aws"), Digest::of(subject.as_bytes()));
    let (mut found, mut page) = (Vec::new(), PageRequest::default());
    loop {
        let answer = registry.referrers(&vpc, &subject, None, &page).await.unwrap();
        let length: usize = answer.items.iter().map(|it| serde_json::to_vec(it).unwrap().len()).sum();
        assert!(length <= 2 << 20, "{length}");
        found.extend(answer.items);
        page.after = answer.next;
        if page.after.is_none() {
            break;
        }
    }
    assert_eq!(found.len(), about.len());
    for descriptor in found {
        let bytes = about.iter().find(|it| Digest::of(it.as_bytes()) == descriptor.digest).unwrap();
        let manifest: Value = serde_json::from_str(bytes).unwrap();
        assert_eq!(manifest["annotations"]["note"], descriptor.annotations["note"].as_str());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_again_for_each_repository_has_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    // One long manifest for many repositories: in the file once, and read for each.
    let long = json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": entry("a/b", b"{}"), "layers": [],
        "annotations": {"note": "x".repeat(3 << 20)},
    })
    .to_string();
    let entries: Vec<String> =
        (0..120).map(|number| index_entry(long.as_bytes(), &format!("acme/it{number}/aws:v1.0.0"))).collect();
    fs::write(&path, layout(&entries.join(","), &[blob(long.as_bytes()), blob(b"{}")])).unwrap();
    let registry: SharedRegistry = Arc::new(LayoutRegistry::open(path).await.unwrap());
    let mut refused = 0;
    for number in 0..120 {
        match registry.manifest(&repository(&format!("acme/it{number}/aws")), &by_tag("v1.0.0")).await {
            Ok(stored) => assert_eq!((refused, stored.bytes.len()), (0, long.len())),
            Err(RegistryError::Refused(reason)) => {
                assert!(reason.contains("too often"), "{reason}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!((20..100).contains(&refused), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_told_for_whom_it_concerns_in_time_that_grows_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let index = |children: &[String], note: usize| {
        let children: Vec<Value> =
            children.iter().map(|child| entry(IMAGE_INDEX, child.as_bytes())).collect();
        json!({
            "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": children,
            "annotations": {"note": note.to_string()},
        })
        .to_string()
    };
    // Five storeys of thirty indexes, each of which lists the whole storey below it: 30^5 ways to the bottom, where nothing is.
    let mut storey: Vec<String> = (0..30).map(|number| format!("absent {number}")).collect();
    let mut parts = Vec::new();
    for _ in 0..5 {
        storey = (0..30).map(|number| index(&storey, number)).collect();
        parts.extend(storey.iter().map(|it| blob(it.as_bytes())));
    }
    let entries: Vec<String> = storey
        .iter()
        .enumerate()
        .map(|(number, it)| {
            index_entry(it.as_bytes(), &format!("acme/vpc/aws:v1.{number}.0"))
                .replace(IMAGE_MANIFEST, IMAGE_INDEX)
        })
        .collect();
    fs::write(&path, layout(&entries.join(","), &parts)).unwrap();
    let found = LayoutRegistry::open(path.clone()).await.unwrap().verify().await.unwrap();
    assert_eq!(found.damage.len(), 30);
    for damage in &found.damage {
        assert_eq!((damage.repository.as_ref().unwrap().as_str(), damage.tags.len()), ("acme/vpc/aws", 30));
    }
    // Where more is damaged than can be told of, it is told all the same, without whom it concerns: two thousand tags need two thousand
    // contents each, by one index that all of them lead to.
    let count = 2000;
    let bottom = index(&(0..count).map(|number| format!("absent {number}")).collect::<Vec<_>>(), 0);
    let indexes: Vec<String> =
        (0..count).map(|number| index(std::slice::from_ref(&bottom), number)).collect();
    let entries: Vec<String> = indexes
        .iter()
        .enumerate()
        .map(|(number, it)| {
            index_entry(it.as_bytes(), &format!("acme/vpc/aws:v1.{number}.0"))
                .replace(IMAGE_MANIFEST, IMAGE_INDEX)
        })
        .collect();
    let parts: Vec<_> = indexes.iter().chain([&bottom]).map(|it| blob(it.as_bytes())).collect();
    fs::write(&path, layout(&entries.join(","), &parts)).unwrap();
    let found = LayoutRegistry::open(path).await.unwrap().verify().await.unwrap();
    assert_eq!(found.damage.len(), count);
    let told = found.damage.iter().filter(|damage| damage.repository.is_some()).count();
    assert!((100..count).contains(&told), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_tag_and_is_put_again_stays_where_its_tag_never_comes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let leaf = repository("acme/leaf/null");
    let image = json!({
        "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": entry("a/b", b"{}"),
        "layers": [entry("application/zip", b"layer")],
    })
    .to_string();
    let bytes = layout(
        &untagged_entry(image.as_bytes(), leaf.as_str()),
        &[blob(image.as_bytes()), blob(b"{}"), blob(b"layer")],
    );
    fs::write(&path, &bytes).unwrap();
    let registry = Arc::new(LayoutRegistry::open_to_write(path.clone()).await.unwrap());
    let shared: SharedRegistry = registry.clone();
    put(&shared, &leaf, &serde_json::from_str(&image).unwrap(), &[]).await;
    // Beside it, one that is new, and whose tag does not come either.
    let mut new: Value = serde_json::from_str(&image).unwrap();
    new["annotations"] = json!({"new": "yes"});
    let new = put(&shared, &leaf, &new, &[]).await;
    // And one that does get its tag, so that the file is written.
    let manifest = artifact(&shared, &leaf, "application/vnd.example", "tagged").await;
    put(&shared, &leaf, &manifest, &["v1.0.0"]).await;
    assert!(registry.commit(|_| {}).await.unwrap().is_changed);
    let reading: SharedRegistry = Arc::new(LayoutRegistry::open(path).await.unwrap());
    let kept = Reference::Digest(Digest::of(image.as_bytes()));
    assert_eq!(reading.manifest(&leaf, &kept).await.unwrap().bytes, image);
    assert!(reading.manifest(&leaf, &new.digest.into()).await.unwrap_err().is_not_found());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_more_in_it_than_a_layout_is_read_and_not_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let more = layout("", &[file("manifest.json", b"[]")]);
    let members = archive(&[
        file("oci-layout", LAYOUT),
        file("index.json", br#"{"manifests":[],"annotations":{"a":"b"}}"#),
    ]);
    for (bytes, named) in [(more, "manifest.json"), (members, "annotations")] {
        fs::write(&path, &bytes).unwrap();
        assert!(LayoutRegistry::open(path.clone()).await.is_ok());
        let error = LayoutRegistry::open_to_write(path.clone()).await.err().unwrap().to_string();
        assert!(error.contains(named) && error.contains("write to another file"), "{error}");
        assert!(fs::read(&path).unwrap() == bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_without_a_repository_and_contents_without_an_entry_stay_when_the_file_is_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let entries = format!(r#"{},{{"digest":"md5:0"}}"#, index_entry(b"{}", "latest"));
    fs::write(&path, layout(&entries, &[blob(b"{}"), blob(b"nobody's")])).unwrap();
    let registry = Arc::new(LayoutRegistry::open_to_write(path.clone()).await.unwrap());
    let shared: SharedRegistry = registry.clone();
    let leaf = repository("acme/leaf/null");
    let manifest = artifact(&shared, &leaf, "application/vnd.example", "layer").await;
    put(&shared, &leaf, &manifest, &["v1.0.0"]).await;
    registry.commit(|_| {}).await.unwrap();
    let bytes = fs::read(&path).unwrap();
    for kept in ["\"latest\"", "md5:0", "nobody's", "acme/leaf/null:v1.0.0"] {
        assert!(bytes.windows(kept.len()).any(|window| window == kept.as_bytes()), "{kept}");
    }
    let reading: SharedRegistry = Arc::new(LayoutRegistry::open(path).await.unwrap());
    assert_eq!(tags(&reading).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_in_a_file_is_not_rewritten_as_if_it_were_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let damaged = file(&format!("blobs/sha256/{}", Digest::of(b"layer").hex()), b"LAYER");
    let bytes = layout("", &[damaged]);
    fs::write(&path, &bytes).unwrap();
    let leaf = repository("acme/leaf/null");
    let add = async |layer: &str| {
        let registry = Arc::new(LayoutRegistry::open_to_write(path.clone()).await.unwrap());
        let shared: SharedRegistry = registry.clone();
        let manifest = artifact(&shared, &leaf, "application/vnd.example", layer).await;
        put(&shared, &leaf, &manifest, &["v1.0.0"]).await;
        registry.commit(|_| {}).await
    };
    let error = add("another").await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
    assert!(fs::read(&path).unwrap() == bytes, "the file has changed");
    // The same content, sent again, mends it.
    add("layer").await.unwrap();
    let reading: SharedRegistry = Arc::new(LayoutRegistry::open(path.clone()).await.unwrap());
    expect_whole(&reading).await;
}
