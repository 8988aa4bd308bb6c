//! Zips that mean harm, on every way that a zip can take: they are not pushed, not pulled, and not offered to whoever installs.

use std::sync::Arc;

use ocimod::artifact::Content;
use ocimod::operations::published::DependencyForm;
use ocimod::operations::routes::{Place, Target};
use ocimod::operations::zip_facts::{KnownZips, ZipFacts};
use ocimod::operations::{NoProgress, OperationError, prepare::Naming, push};
use ocimod::registry::{Cache, CacheOptions};

use super::server::Hostile;
use super::zips::{Entry, deflated, file, zip_of};
use super::{Module, ends, offered, pulled, remote, repository, routes};

/// The rule that a push of the zip breaks.
async fn pushed(zip: &[u8]) -> Result<(), OperationError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("module.zip");
    std::fs::write(&path, zip).unwrap();
    let (_store_folder, store) = crate::conformance::directory();
    let request = push::PushRequest {
        source: path,
        naming: Naming { address: Some("acme/label/null@1.0.0".parse().unwrap()), ..Naming::default() },
        host_aliases: Vec::new(),
        form: Some(DependencyForm::Inline),
        strict: false,
        dry_run: false,
        created: Some(0),
    };
    let routes = routes(store.clone());
    let push = push::push(&routes, &request, Arc::new(NoProgress));
    Box::pin(ends(push)).await.map(drop)
}

#[track_caller]
fn rule(what: &str, outcome: Result<impl std::fmt::Debug, OperationError>) -> &'static str {
    match outcome {
        Err(OperationError::Refused(findings)) => findings[0].rule,
        other => panic!("{what}: {other:?}"),
    }
}

/// Refused by that rule on every way. What only its contents show is not seen by the server, which reads no more than the directory;
/// the client that it hands the zip to compares it with its digest, and unpacks it by its own rules.
async fn is_refused(entries: &[Entry], count: Option<u64>, expected: &str, shows_in_directory: bool) {
    let main = file("main.tf", b"output \"it\" {\n  value = 1\n}\n");
    let zip = zip_of(&[std::slice::from_ref(&main), entries].concat(), count);
    assert_eq!(rule(expected, pushed(&zip).await), expected, "push");
    let server = Module::good().await.with_zip(&zip).serve().await;
    assert_eq!(rule(expected, pulled(remote(&server)).await), expected, "pull");
    let (status, said) = offered(remote(&server)).await;
    if shows_in_directory {
        assert_eq!(status, 422, "serve, {expected}: {said}");
        assert!(said.contains(expected) && !said.contains("archive.zip?"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zip_that_keeps_the_rules_goes_every_way() {
    let zip = zip_of(&[file("main.tf", b"output \"it\" {\n  value = 1\n}\n"), deflated("a/b.tf", b"")], None);
    pushed(&zip).await.unwrap();
    let server = Module::good().await.with_zip(&zip).serve().await;
    assert_eq!(pulled(remote(&server)).await.unwrap().len(), 2);
    assert_eq!(offered(remote(&server)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_name_leads_out_of_the_folder_or_means_two_things() {
    for (name, expected) in [
        (&b"../x"[..], "parent-folder"),
        (b"a/../../x", "parent-folder"),
        (b"/etc/cron.d/x", "absolute-name"),
        (b"C:\\x", "backslash"),
        (b"C:x", "drive-letter"),
        (b"a\\b", "backslash"),
        (b"a\0.tf", "control-character"),
        (b"a//b", "unclean-name"),
        (b"./a", "unclean-name"),
        (b"a\xff", "name-not-utf8"),
        (b"main.tf", "duplicate-name"),
        (b"MAIN.tf", "case-clash"),
        (b"main.tf/x", "file-and-folder"),
        (b".git/hooks/post-checkout", "version-control"),
    ] {
        let entry = Entry { name: name.into(), ..file("x", b"x") };
        is_refused(&[entry], None, expected, true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_entry_is_a_link_or_a_device() {
    let link = |name: &str, target: &str| Entry { mode: 0o120_777, ..file(name, target.as_bytes()) };
    is_refused(&[link("x", "/etc/passwd")], None, "symlink", true).await;
    is_refused(&[link("x", ".."), file("x2", b"x")], None, "symlink", true).await;
    // A link, and a file through it; one link through another.
    is_refused(&[link("x", "/tmp"), file("x/y", b"x")], None, "symlink", true).await;
    is_refused(&[link("x", "y"), link("y", "..")], None, "symlink", true).await;
    let hard = Entry { extra: [&[0x0d, 0, 18, 0][..], &[0; 12], b"target"].concat(), ..file("x", b"x") };
    is_refused(&[hard], None, "hard-link", true).await;
    for mode in [0o020_666, 0o060_666, 0o010_666, 0o140_666] {
        is_refused(&[Entry { mode, ..file("x", b"") }], None, "special-file", true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_zip_says_that_it_is_larger_or_smaller_than_it_is() {
    is_refused(&[file("x", b"x")], Some(1_000_000), "too-many-entries", true).await;
    is_refused(&[file("x", b"x")], Some(3), "entry-count", true).await;
    let large = |name: String| Entry { size: 60 << 20, method: 8, ..file(&name, b"x") };
    let many: Vec<Entry> = (0..9).map(|number| large(format!("x{number}"))).collect();
    is_refused(&many, None, "unpacked-too-large", true).await;
    is_refused(&[Entry { offset: Some(0), ..file("x", b"x") }], None, "overlapping-entries", true).await;
    is_refused(&[Entry { size: 2, ..file("x", b"x") }], None, "size-mismatch", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_is_inflated_no_further_than_it_says() {
    let bomb = Entry { size: 1000, ..deflated("x", &vec![0; 64 << 20]) };
    is_refused(&[bomb], None, "size-mismatch", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_entry_is_encrypted_or_compressed_in_a_way_that_nobody_expects() {
    is_refused(&[Entry { flags: 1, ..file("x", b"x") }], None, "encrypted-entry", true).await;
    is_refused(&[Entry { method: 14, ..file("x", b"x") }], None, "compression-method", true).await;
    // Sizes and checksum behind the content, where nothing is.
    is_refused(&[Entry { flags: 8, ..file("x", b"x") }], None, "data-descriptor", false).await;
    is_refused(&[Entry { crc32: 1, ..file("x", b"x") }], None, "checksum-mismatch", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_lies_about_another_s_zip_lies_about_its_own_alone() {
    let good = Module::good().await;
    let mut bad = good.clone();
    // The same manifest; in the place of the zip as many bytes that are none.
    bad.blobs[0].1.fill(0);
    let (digest, zip) = good.zip().clone();
    let content = Content { digest, size: zip.len() as u64 };
    let (good, bad) = (good.serve().await, bad.serve().await);
    let place = |server: &Hostile, name: &str| Place {
        target: Target {
            registry: remote(server),
            prefix: String::new(),
            name: name.into(),
            identity: name.into(),
            is_local: false,
        },
        repository: repository(),
    };
    // Nor is what is good elsewhere believed of the liar.
    for liar_first in [true, false] {
        let mut places = [(place(&bad, "bad.example"), false), (place(&good, "good.example"), true)];
        if !liar_first {
            places.reverse();
        }
        let folder = tempfile::tempdir().unwrap();
        let options = CacheOptions { folder: Some(folder.path().join("cache")), ..CacheOptions::default() };
        // The second process has what the first one has written down.
        for _ in 0..2 {
            let known = KnownZips::new(Some(Cache::open(options.clone()).unwrap()));
            for (place, is_good) in &places {
                let facts = ends(known.of(place, &content)).await.unwrap();
                assert_eq!(matches!(*facts, ZipFacts::Good { .. }), *is_good, "{}", place.name());
                let package = ends(known.package(place, &content)).await.unwrap();
                assert_eq!(package.is_none(), *is_good, "{}", place.name());
            }
        }
    }
}
