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
    json!({
        "mediaType": IMAGE_MANIFEST, "digest": Digest::of(content), "size": content.len(),
        "annotations": {"org.opencontainers.image.ref.name": name},
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
