//! The registries in use, each with its own ways: what every registry has to do is done by all of them, and modules go there and
//! come back.
//!
//! A profile is a registry as it is known to be, or a way that several have ([`server::Quirks`]). Each is held to the conformance suite
//! as far as that goes, and then pushed to, listed, withdrawn, pulled and deleted from. What only one of them does has a test of its own.

mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ocimod::module::{AddressAt, TofuAddress, Version};
use ocimod::oci::{Algorithm, Digest, Repository, Tag};
use ocimod::operations::connect::Destination;
use ocimod::operations::copy::{self, Copied, CopyRequest, Source, What};
use ocimod::operations::install::{Asked, Installer};
use ocimod::operations::prepare::Naming;
use ocimod::operations::published::DependencyForm;
use ocimod::operations::push::{self, PushRequest, Pushed};
use ocimod::operations::routes::{RepositoryTemplate, Routes, Target};
use ocimod::operations::search::{Search, SearchOptions};
use ocimod::operations::yank::{self, YankRequest};
use ocimod::operations::{NoProgress, OperationError, delete, published, pull};
use ocimod::registry::credentials::CredentialSource;
use ocimod::registry::remote::{RemoteOptions, RemoteRegistry, RetryPolicy};
use ocimod::registry::{
    BytesSource, Condition, NewManifest, PageRequest, Registry, RegistryError, SharedRegistry,
};
use serde_json::json;

use self::server::{Link, Quirks, QuirkyRegistry, UploadPlace};
use crate::conformance::{Profile, check};
use crate::support::modules::example;
use crate::support::ocimod::Ocimod;
use crate::support::process::run;

/// What all of them have in common with ours: tags that begin with `v` are immutable.
fn common() -> Profile {
    Profile { algorithms: &[Algorithm::Sha256], ..Profile::remote() }
}

/// Lists by `Link` in small pages, blobs elsewhere, tokens for everybody, no referrers, and now and then too many requests.
fn docker_hub() -> (Quirks, Profile) {
    let quirks = Quirks {
        page_cap: Some(3),
        redirects: Some(307),
        no_referrers: Some(404),
        no_catalog: Some(401),
        no_delete: Some(405),
        tokens: Some((40, 401)),
        patience: Some((13, 429, "0")),
        ..Quirks::default()
    };
    let profile = Profile {
        has_pages: false,
        has_referrers_list: false,
        has_catalog: false,
        has_delete: false,
        has_tag_delete: false,
        ..common()
    };
    (quirks, profile)
}

/// GitHub's: as Docker Hub, and no PATCH of more than a few megabytes.
fn ghcr() -> (Quirks, Profile) {
    let quirks = Quirks {
        page_cap: Some(4),
        redirects: Some(307),
        no_referrers: Some(404),
        no_catalog: Some(404),
        no_delete: Some(405),
        no_chunks: Some(413),
        tokens: Some((100, 401)),
        ..Quirks::default()
    };
    let profile = Profile {
        has_pages: false,
        has_referrers_list: false,
        has_catalog: false,
        has_delete: false,
        has_tag_delete: false,
        ..common()
    };
    (quirks, profile)
}

/// Amazon's: its own order and its own words for pages, headers that are not there, tokens that are refused with 403 when they have
/// run out, and once a word of referrers that it did not keep.
fn ecr() -> (Quirks, Profile) {
    let quirks = Quirks {
        page_cap: Some(3),
        largest_count: Some((1000, 400)),
        link: Link::Absolute,
        opaque_last: true,
        is_unordered: true,
        no_digests: true,
        no_created_location: true,
        upload: UploadPlace::AbsoluteWithState,
        redirects: Some(307),
        no_referrers: Some(405),
        claims_referrers: true,
        no_catalog: Some(403),
        tokens: Some((30, 403)),
        ..Quirks::default()
    };
    let profile = Profile { has_pages: false, has_referrers_list: false, has_catalog: false, ..common() };
    (quirks, profile)
}

/// Google's: everything on one page, uploads in one piece and outside of `/v2/`, nothing empty, and no challenge but to the first
/// request.
fn artifact_registry() -> (Quirks, Profile) {
    let quirks = Quirks {
        ignores_pages: true,
        no_chunks: Some(405),
        no_empty_blobs: true,
        upload: UploadPlace::Outside,
        redirects: Some(302),
        tokens: Some((60, 401)),
        no_late_challenge: true,
        mount: Some(202),
        ..Quirks::default()
    };
    // That `last` is not looked at is seen where it is among the entries, and a caller may make one up.
    let profile = Profile {
        has_pages: false,
        has_empty_blobs: false,
        has_mount: false,
        has_anonymous_mount: false,
        ..common()
    };
    (quirks, profile)
}

/// Azure's: pages by `Link`, blobs elsewhere.
fn acr() -> (Quirks, Profile) {
    let quirks = Quirks {
        page_cap: Some(5),
        redirects: Some(307),
        no_anonymous_mount: true,
        no_catalog: Some(401),
        tokens: Some((500, 401)),
        ..Quirks::default()
    };
    (quirks, Profile { has_pages: false, has_catalog: false, has_anonymous_mount: false, ..common() })
}

/// A code of its own for what is not there.
fn harbor() -> (Quirks, Profile) {
    (Quirks { own_code: Some("NOT_FOUND"), no_lengths: true, ..Quirks::default() }, common())
}

/// Refuses long pages, and mounts that name no source; older releases have words of their own for pages.
fn quay() -> (Quirks, Profile) {
    let quirks = Quirks {
        largest_count: Some((100, 413)),
        page_cap: Some(4),
        link: Link::Odd,
        opaque_last: true,
        redirects: Some(302),
        no_anonymous_mount: true,
        no_catalog: Some(404),
        ..Quirks::default()
    };
    (quirks, Profile { has_pages: false, has_catalog: false, has_anonymous_mount: false, ..common() })
}

/// Digests and referrers' tags among the tags, links with parameters of its own, a page for people where something is not there.
fn artifactory() -> (Quirks, Profile) {
    let quirks = Quirks {
        among_tags: vec![json!(format!("sha256:{}", "0".repeat(64)))],
        largest_count: Some((2, 400)),
        own_code: Some("<html>no</html>"),
        page_cap: Some(2),
        redirects: Some(302),
        no_chunks: Some(400),
        ..Quirks::default()
    };
    (quirks, Profile { has_pages: false, ..common() })
}

/// `null` and worse among the tags.
fn nexus() -> (Quirks, Profile) {
    let among_tags =
        vec![json!(null), json!(7), json!({"name": "v9.9.9"}), json!("not a tag"), json!("?n=1")];
    (
        Quirks { among_tags, no_referrers: Some(404), ..Quirks::default() },
        Profile { has_referrers_list: false, ..common() },
    )
}

/// No list of referrers, and no HEAD that is answered.
fn gitea() -> (Quirks, Profile) {
    let quirks = Quirks { no_referrers: Some(501), no_head: Some(405), ..Quirks::default() };
    (quirks, Profile { has_referrers_list: false, ..common() })
}

/// Relative locations, pages that overlap, and no digest in any header.
fn an_old_one() -> (Quirks, Profile) {
    let quirks = Quirks {
        upload: UploadPlace::Relative,
        repeats: true,
        page_cap: Some(3),
        no_digests: true,
        no_created_location: true,
        no_lengths: true,
        ignores_ranges: true,
        mount: Some(405),
        no_catalog: Some(404),
        ..Quirks::default()
    };
    let profile = Profile {
        has_pages: false,
        has_catalog: false,
        has_mount: false,
        has_anonymous_mount: false,
        ..common()
    };
    (quirks, profile)
}

/// Goes by `last` alone, without a word of where a list ends.
fn one_without_links() -> (Quirks, Profile) {
    (Quirks { link: Link::None, ..Quirks::default() }, common())
}

/// A proxy in front that fails now and then, loses connections, takes no long request, and tells the registry nothing of how it is
/// reached.
fn one_behind_a_bad_proxy() -> (Quirks, Profile) {
    let quirks = Quirks {
        link: Link::BehindProxy,
        page_cap: Some(6),
        patience: Some((7, 503, "Fri, 31 Dec 2027 23:59:59 GMT")),
        breaks_off: true,
        largest_body: Some(1 << 20),
        least_chunk: Some(100_000),
        ..Quirks::default()
    };
    (quirks, Profile { has_pages: false, manifest_limit: 1 << 20, ..common() })
}

/// The same in front of a storage that breaks off and knows no pieces.
fn one_with_a_bad_storage() -> (Quirks, Profile) {
    let quirks = Quirks {
        redirects: Some(307),
        breaks_off: true,
        ignores_ranges: true,
        patience: Some((11, 502, "soon")),
        ..Quirks::default()
    };
    (quirks, common())
}

/// The tests that each profile has to pass.
macro_rules! each_profile {
    ($($profile:ident),* $(,)?) => {
        mod conformance {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $profile() {
                let (quirks, profile) = super::$profile();
                let registry = super::QuirkyRegistry::start(quirks).await;
                super::check(super::remote(&registry), profile).await;
            })*
        }

        mod modules {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $profile() {
                let (quirks, profile) = super::$profile();
                super::go_there_and_come_back(quirks, &profile).await;
            })*
        }

        mod copies {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $profile() {
                super::are_copied_there_and_back(super::$profile().0).await;
            })*
        }
    };
}

each_profile! {
    docker_hub, ghcr, ecr, artifact_registry, acr, harbor, quay, artifactory, nexus, gitea, an_old_one, one_without_links,
    one_behind_a_bad_proxy, one_with_a_bad_storage,
}

/// The registry as a client sees it that does not wait for long.
fn remote(registry: &QuirkyRegistry) -> SharedRegistry {
    let moment = Duration::from_millis(1);
    let options = RemoteOptions {
        retry: RetryPolicy { tries: 4, first_wait: moment, longest_wait: moment, longest_asked: moment },
        ..RemoteOptions::new(registry.address.parse().unwrap(), CredentialSource::none())
    };
    Arc::new(RemoteRegistry::new(options).unwrap())
}

fn routes(registry: SharedRegistry) -> Routes {
    routes_to("registry.example", registry)
}

/// The routes to a registry of that name.
fn routes_to(host: &str, registry: SharedRegistry) -> Routes {
    let target = Target {
        registry,
        prefix: "modules".into(),
        name: format!("{host}/modules").into(),
        identity: host.into(),
        is_local: false,
    };
    Routes::new(vec![(None, Some(target))], RepositoryTemplate::default())
}

async fn push(
    routes: &Routes,
    folder: &str,
    address: &str,
    form: DependencyForm,
) -> Result<Pushed, OperationError> {
    let request = PushRequest {
        source: example(folder),
        naming: Naming { address: Some(address.parse().unwrap()), ..Naming::default() },
        host_aliases: Vec::new(),
        form: Some(form),
        strict: false,
        dry_run: false,
        created: Some(0),
    };
    push::push(routes, &request, Arc::new(NoProgress)).await
}

/// The versions that are offered, without those that are withdrawn.
async fn offered(routes: &Routes, address: &str) -> Vec<String> {
    let address: AddressAt = address.parse().unwrap();
    let mut published = published::find(routes, &published::name(&address).unwrap()).await.unwrap();
    published.leave_unyanked().await.unwrap();
    published.listed().map(Version::to_string).collect()
}

fn files(folder: &Path) -> Vec<(String, Digest)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(
                files(&entry.path()).into_iter().map(|(below, digest)| (format!("{name}/{below}"), digest)),
            );
        } else {
            found.push((name, Digest::of(&std::fs::read(entry.path()).unwrap())));
        }
    }
    found.sort();
    found
}

/// Pushes modules in every form, finds them, withdraws one, pulls it, and deletes another, by a registry of that kind.
async fn go_there_and_come_back(quirks: Quirks, profile: &Profile) {
    let registry = QuirkyRegistry::start(quirks).await;
    let routes = routes(remote(&registry));
    let one =
        push(&routes, "terraform-null-label", "acme/label/null@1.0.0", DependencyForm::Inline).await.unwrap();
    for version in ["1.1.0", "1.2.0", "1.10.0"] {
        let address = format!("acme/label/null@{version}");
        assert!(
            push(&routes, "terraform-null-label", &address, DependencyForm::Inline).await.unwrap().created
        );
    }
    for (name, form) in [("inline", DependencyForm::Inline), ("separate", DependencyForm::Separate)] {
        let address = format!("acme/{name}/null@1.0.0");
        let pushed = push(&routes, "terraform-null-stack", &address, form).await.unwrap();
        assert_eq!(pushed.dependencies.len(), 1);
        let again = push(&routes, "terraform-null-stack", &address, form).await.unwrap();
        assert_eq!((again.created, again.digest, again.bytes_sent), (false, pushed.digest, 0));
        assert_eq!(offered(&routes, &format!("acme/{name}/null")).await, ["1.0.0"]);
    }
    assert_eq!(offered(&routes, "acme/label/null").await, ["1.0.0", "1.1.0", "1.2.0", "1.10.0"]);

    let address: AddressAt = "acme/label/null@1.0.0".parse().unwrap();
    let request = YankRequest { address: address.clone(), reason: None, force: false, dry_run: false };
    assert!(yank::yank(&routes, &request).await.unwrap().changed);
    assert_eq!(offered(&routes, "acme/label/null").await, ["1.1.0", "1.2.0", "1.10.0"]);
    assert!(yank::unyank(&routes, &address, false).await.unwrap().changed);
    assert_eq!(offered(&routes, "acme/label/null").await, ["1.0.0", "1.1.0", "1.2.0", "1.10.0"]);

    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let stored = published::select(&routes, &address, None).await.unwrap();
    assert_eq!(Some(&stored.digest), one.digest.as_ref());
    pull::pull(&stored, &first).await.unwrap();
    // The same by way of the store behind it, which has no quirks.
    let straight = self::routes(Arc::clone(&registry.store));
    pull::pull(&published::select(&straight, &address, None).await.unwrap(), &second).await.unwrap();
    assert_eq!(files(&first), files(&second));
    assert!(files(&first).iter().any(|(name, _)| name == "main.tf"));

    let deleted = delete::delete(&routes, &address, false).await;
    if profile.has_delete {
        deleted.unwrap();
        assert_eq!(offered(&routes, "acme/label/null").await, ["1.1.0", "1.2.0", "1.10.0"]);
    } else {
        let error = deleted.unwrap_err();
        let OperationError::Registry { source: RegistryError::Unsupported { .. }, .. } = error else {
            panic!("{error}")
        };
    }
}

async fn copied(from: Routes, to: Routes, addresses: &[&str]) -> Copied {
    let source = |address: &&str| Source::Address(Box::new(address.parse().unwrap()));
    let request = CopyRequest {
        what: What::Named(addresses.iter().map(source).collect()),
        constraint: None,
        with_dependencies: false,
        referrers: true,
        platforms: Vec::new(),
        form: None,
        dry_run: false,
    };
    let to = Destination { routes: to, files: Vec::new() };
    copy::copy(&from, &to, &request, Arc::new(NoProgress)).await.unwrap()
}

/// Every tag of the modules that are copied, and what it names.
async fn tagged(store: &SharedRegistry) -> Vec<(String, Digest)> {
    let mut found = Vec::new();
    for name in COPIED {
        let repository: Repository = format!("modules/{name}").parse().unwrap();
        let mut tags = store.all_tags(&repository, 1000).await.unwrap();
        // Where there is no list of referrers, a tag takes its place.
        tags.retain(|tag| !tag.as_str().starts_with("sha256-"));
        for tag in tags {
            let head = store.manifest_head(&repository, &tag.clone().into()).await.unwrap();
            found.push((format!("{name}:{tag}"), head.digest));
        }
    }
    found.sort();
    found
}

const COPIED: [&str; 2] = ["acme/label/null", "acme/stack/null"];

/// Copies modules, with all that belongs to them, to a registry of that kind, and from there to where nothing is.
async fn are_copied_there_and_back(quirks: Quirks) {
    let registry = QuirkyRegistry::start(quirks).await;
    let [(_first, from), (_last, back)] = [crate::conformance::directory(), crate::conformance::directory()];
    let source = routes_to("from.example", from.clone());
    for version in ["1.0.0", "1.1.0"] {
        let address = format!("acme/label/null@{version}");
        push(&source, "terraform-null-label", &address, DependencyForm::Inline).await.unwrap();
    }
    push(&source, "terraform-null-stack", "acme/stack/null@1.0.0", DependencyForm::Separate).await.unwrap();
    let address: AddressAt = "acme/label/null@1.0.0".parse().unwrap();
    let request = YankRequest { address, reason: None, force: false, dry_run: false };
    yank::yank(&source, &request).await.unwrap();
    let expected = tagged(&from).await;
    assert_eq!(expected.len(), 5, "{expected:?}");

    let quirky = || routes(remote(&registry));
    let done = copied(source.clone(), quirky(), &COPIED).await;
    assert_eq!((done.copied.len(), done.failed.len()), (3, 0), "{:?}", done.failed);
    assert_eq!(tagged(&registry.store).await, expected);
    let again = copied(source, quirky(), &COPIED).await;
    assert_eq!((again.copied.len(), again.failed.len(), again.bytes_sent), (0, 0, 0), "{:?}", again.failed);

    let done = copied(quirky(), routes_to("back.example", back.clone()), &COPIED).await;
    assert_eq!((done.copied.len(), done.failed.len()), (3, 0), "{:?}", done.failed);
    assert_eq!(tagged(&back).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_says_403_for_what_is_not_there_takes_a_first_push() {
    let quirks = Quirks { denies_unknown: true, ..Quirks::default() };
    let registry = QuirkyRegistry::start(quirks).await;
    let routes = routes(remote(&registry));
    for (folder, address, form) in [
        ("terraform-null-label", "acme/label/null@1.0.0", DependencyForm::Inline),
        ("terraform-null-label", "acme/label/null@1.1.0", DependencyForm::Inline),
        ("terraform-null-stack", "acme/inline/null@1.0.0", DependencyForm::Inline),
        ("terraform-null-stack", "acme/separate/null@1.0.0", DependencyForm::Separate),
    ] {
        assert!(push(&routes, folder, address, form).await.unwrap().created, "{address}");
        assert!(!push(&routes, folder, address, form).await.unwrap().created, "{address}");
    }
    // Each module has two places, and one of them is never there.
    assert_eq!(offered(&routes, "acme/label/null").await, ["1.0.0", "1.1.0"]);
    let nothing: AddressAt = "acme/nothing/null".parse().unwrap();
    let error = published::find(&routes, &published::name(&nothing).unwrap()).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("do not allow") && said.contains("no such repository"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_says_403_for_what_is_not_there_is_copied_to() {
    are_copied_there_and_back(Quirks { denies_unknown: true, ..Quirks::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_service_that_says_403_for_what_is_not_there_takes_a_first_push_and_hides_no_embedded_module()
{
    let quirks = Quirks { denies_tokens: true, tokens: Some((100, 401)), ..Quirks::default() };
    let registry = QuirkyRegistry::start(quirks).await;
    let routes = routes(remote(&registry));
    let (_folder, store) = crate::conformance::directory();
    let source = routes_to("from.example", store);
    push(&source, "terraform-null-label", "acme/label/null@1.0.0", DependencyForm::Inline).await.unwrap();
    push(&source, "terraform-null-stack", "acme/stack/null@1.0.0", DependencyForm::Inline).await.unwrap();
    let done = copied(source, routes.clone(), &["acme/stack/null"]).await;
    assert_eq!((done.copied.len(), done.failed.len()), (1, 0), "{:?}", done.failed);

    let search = Arc::new(Search::new(&routes, SearchOptions::default()));
    search.look().await.unwrap();
    let installer = Installer::new(routes.clone(), None, search, None);
    let asked = |address: &str| Asked::Tofu { address: TofuAddress::parse(address).unwrap(), host: None };
    let offer = installer.versions(&asked("acme/label/null"), &|_| true).await.unwrap();
    assert_eq!(offer.versions.len(), 1);
    // What nobody brings along may be there and closed to us.
    let error = installer.versions(&asked("acme/nothing/null"), &|_| true).await.unwrap_err().to_string();
    assert!(error.contains("anonymous callers") && error.contains("no such repository"), "{error}");
    assert!(
        push(&routes, "terraform-null-label", "acme/label/null@1.0.0", DependencyForm::Inline)
            .await
            .unwrap()
            .created
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_wants_repositories_made_first_says_so_before_anything_is_sent() {
    let registry = QuirkyRegistry::start(Quirks { made_first: true, ..Quirks::default() }).await;
    let routes = routes(remote(&registry));
    let address = "acme/label/null@1.0.0";
    let error = push(&routes, "terraform-null-label", address, DependencyForm::Inline).await.unwrap_err();
    let OperationError::Registry { source: RegistryError::RepositoryNotMade { repository, .. }, .. } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(repository, "modules/acme/label/null");
    assert!(registry.take_requests().iter().all(|request| !request.starts_with("PUT")));

    // Somebody makes it.
    let manifest = NewManifest {
        media_type: ocimod::oci::IMAGE_INDEX.into(),
        bytes: json!({"schemaVersion": 2, "manifests": []}).to_string().into(),
        digest: None,
        tags: vec!["made".parse().unwrap()],
        condition: Condition::None,
    };
    registry.store.put_manifest(&repository.parse().unwrap(), &manifest).await.unwrap();
    assert!(push(&routes, "terraform-null-label", address, DependencyForm::Inline).await.unwrap().created);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_into_a_repository_that_has_to_be_made_first_names_the_line_that_makes_it() {
    let quirks = Quirks { made_first: true, tokens: None, ..ecr().0 };
    let registry = QuirkyRegistry::start(quirks).await;
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    for version in ["1.0.0", "1.1.0"] {
        let address = format!("acme/label/null@{version}");
        ocimod.push(&store, &example("terraform-null-label"), &address, &[]);
    }
    // Whatever that name stands for, the way there is by this registry.
    let host = "123456789012.dkr.ecr.eu-west-1.amazonaws.com";
    let (to, proxy) = (format!("{host}+insecure"), format!("http://{}", registry.address));
    let line = "aws ecr create-repository --registry-id 123456789012 --region eu-west-1 --repository-name acme/label/null";
    let copy = |more: &[&str]| {
        let mut command = ocimod.command();
        command.args(["copy", "acme/label/null", "--from", &store, "--to", &to]).args(more);
        run(command.env("HTTP_PROXY", &proxy)).fails_with(3)
    };
    let failed = copy(&[]).stderr;
    assert!(failed.contains(&format!("{host} has no repository `acme/label/null`")), "{failed}");
    assert!(failed.contains(&format!("make it first: {line}\n")), "{failed}");
    // Once for all versions.
    assert_eq!(failed.matches(line).count(), 1, "{failed}");
    let answer = copy(&["--format", "json"]).json();
    assert_eq!(answer["failed"][0]["hint"], format!("make it first: {line}"), "{answer:#}");
    let mut push = ocimod.command();
    push.args(["push", "--registry", &to]).arg(example("terraform-null-label")).arg("acme/label/null@1.0.0");
    let failed = run(push.env("HTTP_PROXY", &proxy)).fails_with(3).stderr;
    assert!(failed.contains(&format!("make it first: {line}\n")), "{failed}");
    assert!(registry.take_requests().iter().all(|request| !request.starts_with("PUT")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_meets_403_says_that_it_may_mean_either() {
    let quirks = Quirks { made_first: true, denies_unknown: true, ..Quirks::default() };
    let registry = QuirkyRegistry::start(quirks).await;
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    ocimod.push(&store, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    for (from, to) in [(&store, &registry.address), (&registry.address, &store)] {
        let failed = ocimod.run(["copy", "acme/label/null", "--from", from, "--to", to]).fails_with(5);
        let both = "the credentials do not allow it, or there is no such repository";
        assert!(failed.stderr.contains(both), "{}", failed.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_wants_the_subject_first_gets_it_first() {
    for no_referrers in [None, Some(404)] {
        let quirks = Quirks { wants_subject: true, no_referrers, ..Quirks::default() };
        let registry = QuirkyRegistry::start(quirks).await;
        let routes = routes(remote(&registry));
        push(&routes, "terraform-null-label", "acme/label/null@1.0.0", DependencyForm::Inline).await.unwrap();
        push(&routes, "terraform-null-stack", "acme/stack/null@1.0.0", DependencyForm::Separate)
            .await
            .unwrap();
        assert_eq!(offered(&routes, "acme/stack/null").await, ["1.0.0"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_go_in_one_request_unless_that_is_refused() {
    let repository: Repository = "acme/vpc".parse().unwrap();
    let content = vec![0x5a; 3 << 20];
    let digest = Digest::of(&content);
    let source = BytesSource(content.into());
    for (largest_body, chunks) in [(None, 0), (Some(1 << 20), 3)] {
        let quirks = Quirks { largest_body, ..Quirks::default() };
        let registry = QuirkyRegistry::start(quirks).await;
        let remote = remote(&registry);
        remote.put_blob(&repository, &digest, &source).await.unwrap();
        assert_eq!(remote.blob_size(&repository, &digest).await.unwrap(), source.0.len() as u64);
        let sent = registry.take_requests();
        let accepted = sent.iter().filter(|request| request.starts_with("PATCH")).count();
        assert!(if chunks == 0 { accepted == 0 } else { accepted >= chunks }, "{sent:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_many_pages_has_each_tag_once_in_whatever_form_it_comes() {
    let repository: Repository = "acme/vpc".parse().unwrap();
    let named: Vec<String> = (0..40).map(|number| format!("v1.{number}.0")).collect();
    for link in [Link::Path, Link::Absolute, Link::BehindProxy, Link::Odd, Link::None] {
        for (opaque_last, repeats) in [(false, false), (true, false), (false, true)] {
            // Without a `Link`, `last` is all there is, and a page that is not full ends the list.
            if link == Link::None && (opaque_last || repeats) {
                continue;
            }
            let page_cap = (link != Link::None).then_some(7);
            let quirks = Quirks { page_cap, link, opaque_last, repeats, ..Quirks::default() };
            let registry = QuirkyRegistry::start(quirks).await;
            let manifest = NewManifest {
                media_type: ocimod::oci::IMAGE_INDEX.into(),
                bytes: json!({"schemaVersion": 2, "manifests": []}).to_string().into(),
                digest: None,
                tags: named.iter().map(|name| name.parse().unwrap()).collect(),
                condition: Condition::None,
            };
            registry.store.put_manifest(&repository, &manifest).await.unwrap();
            let remote = remote(&registry);
            let registry: &dyn Registry = &*remote;
            let mut tags = registry.all_tags(&repository, 1000).await.unwrap();
            tags.sort();
            let mut expected: Vec<Tag> = named.iter().map(|name| name.parse().unwrap()).collect();
            expected.sort();
            assert_eq!(tags, expected);
            if link == Link::None {
                let mut page = PageRequest { count: Some(9), after: None };
                let mut seen = 0;
                loop {
                    let found = registry.tags(&repository, &page).await.unwrap();
                    seen += found.items.len();
                    page.after = found.next;
                    if page.after.is_none() {
                        break;
                    }
                }
                assert_eq!(seen, 40);
            }
        }
    }
}
