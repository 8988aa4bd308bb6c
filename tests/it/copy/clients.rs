//! A file with a layout in the hands of the tools that read such files, and of clients that install from it.

use std::fs;

use super::*;
use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::{Root, example};
use crate::support::ocimod::Ocimod;
use crate::support::process::{isolated, run};

/// A file with two modules, and the digests of their manifests.
fn carried(ocimod: &Ocimod) -> (PathBuf, Vec<(&'static str, String)>) {
    let store = format!("dir:{}", shown(&ocimod.folder("store")));
    let mut digests = Vec::new();
    for (folder, name) in
        [("terraform-null-label", "acme/label/null"), ("terraform-null-stack", "acme/stack/null")]
    {
        let pushed = ocimod.push(&store, &example(folder), &format!("{name}@1.0.0"), &[]);
        digests.push((name, pushed["digest"].as_str().unwrap().to_owned()));
    }
    let path = ocimod.home.path().join("modules.tar");
    let to = format!("layout:{}", shown(&path));
    ocimod.run(["copy", "--all", "--from", store.as_str(), "--to", to.as_str()]).success();
    (path, digests)
}

#[test]
fn a_file_is_carried_to_an_empty_registry_and_installed_from_there() {
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let (path, digests) = carried(&ocimod);
    let moved = Ocimod::new();
    let there = moved.home.path().join("carried.tar");
    fs::rename(&path, &there).unwrap();
    let from = format!("layout:{}", shown(&there));
    moved.run(["copy", "--all", "--from", from.as_str(), "--to", registry.address.as_str()]).success();
    if let Some(crane) = clients::find("crane") {
        for (name, digest) in &digests {
            let reference = format!("{}/{name}:v1.0.0", registry.address);
            let found =
                run(isolated(&crane, moved.home.path()).args(["digest", "--insecure", &reference])).success();
            assert_eq!(found.stdout.trim(), digest);
        }
    }
    let main = "module \"it\" {\n  source     = \"modules.internal/acme/stack/null\"\n  version    = \"~> 1.0\"\n  namespace  = \
                \"acme\"\n  stage      = \"test\"\n  name       = \"shop\"\n  components = [\"api\"]\n}\n\noutput \"it\" {\n  value = \
                module.it.ids\n}\n";
    // From the registry that it was carried to, and from the file itself.
    for registry in [registry.address.as_str(), &from] {
        let serve = moved.serve(["--registry", registry]);
        for tofu in clients::tofus() {
            let folder = tempfile::tempdir().unwrap();
            let root = Root::new(&tofu, folder.path(), "modules.internal", &serve.address, main);
            assert_eq!(root.apply("it"), json!({"api": "acme-test-shop-api"}), "{registry}");
        }
    }
}

#[test]
fn a_server_over_a_file_sees_that_it_was_written_anew() {
    let Some(tofu) = clients::find("tofu-1.12") else { return };
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", shown(&ocimod.folder("store")));
    let file = format!("layout:{}", shown(&ocimod.home.path().join("x.tar")));
    let publish = |version: &str| {
        let address = format!("acme/label/null@{version}");
        ocimod.push(&store, &example("terraform-null-label"), &address, &[]);
        ocimod.run(["copy", address.as_str(), "--from", store.as_str(), "--to", file.as_str()]).success();
    };
    publish("1.0.0");
    let serve = ocimod.serve(["--registry", &file]);
    let init = |version: &str| {
        let folder = tempfile::tempdir().unwrap();
        let main = format!(
            "module \"it\" {{\n  source  = \"modules.internal/acme/label/null\"\n  version = \"{version}\"\n}}\n"
        );
        let root = Root::new(&tofu, folder.path(), "modules.internal", &serve.address, &main);
        root.run(&["init", "-no-color", "-input=false"])
    };
    init("1.0.0").success();
    init("1.1.0").fails_with(1);
    publish("1.1.0");
    init("1.1.0").success();
    init("1.0.0").success();
}

#[test]
fn skopeo_reads_it_by_name() {
    let Some(skopeo) = clients::find("skopeo") else { return };
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let (path, digests) = carried(&ocimod);
    let home = ocimod.home.path();
    for (name, digest) in &digests {
        let from = format!("oci-archive:{}:{name}:v1.0.0", path.display());
        let raw = run(isolated(&skopeo, home).args(["inspect", "--raw", &from])).success();
        assert_eq!(Digest::of(raw.stdout.as_bytes()).to_string(), *digest);
        let to = format!("docker://{}/{name}:v1.0.0", registry.address);
        run(isolated(&skopeo, home).args([
            "--insecure-policy",
            "copy",
            "--dest-tls-verify=false",
            &from,
            &to,
        ]))
        .success();
    }
    let from = registry.address.as_str();
    let to = format!("layout:{}", shown(&home.join("back.tar")));
    ocimod.run(["copy", "--all", "--from", from, "--to", &to]).success();
    assert!(fs::read(home.join("back.tar")).unwrap() == fs::read(&path).unwrap(), "not the same bytes");
}

#[test]
fn what_skopeo_wrote_by_such_a_name_is_read() {
    let Some(skopeo) = clients::find("skopeo") else { return };
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let pushed =
        ocimod.push(&registry.address, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    let home = ocimod.home.path();
    let path = home.join("skopeo.tar");
    let (from, to) = (
        format!("docker://{}/acme/label/null:v1.0.0", registry.address),
        format!("oci-archive:{}:acme/label/null:v1.0.0", path.display()),
    );
    run(isolated(&skopeo, home).args(["--insecure-policy", "copy", "--src-tls-verify=false", &from, &to]))
        .success();
    let file = format!("layout:{}", shown(&path));
    let inspected =
        ocimod.run(["inspect", "acme/label/null", "--registry", file.as_str(), "--format", "json"]);
    assert_eq!(inspected.success().json()["digest"], pushed["digest"]);
    // And it may be added to.
    let store = format!("dir:{}", shown(&ocimod.folder("store")));
    ocimod.push(&store, &example("terraform-null-label"), "acme/label/null@1.1.0", &[]);
    ocimod.run(["copy", "acme/label/null", "--from", store.as_str(), "--to", file.as_str()]).success();
    for version in ["1.0.0", "1.1.0"] {
        let from = format!("oci-archive:{}:acme/label/null:v{version}", path.display());
        run(isolated(&skopeo, home).args(["inspect", "--raw", &from])).success();
    }
}

#[test]
fn oras_reads_it_by_digest() {
    let Some(oras) = clients::find("oras") else { return };
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let (path, digests) = carried(&ocimod);
    let home = ocimod.home.path();
    for (name, digest) in &digests {
        let from = format!("{}@{digest}", path.display());
        let manifest =
            run(isolated(&oras, home).args(["manifest", "fetch", "--oci-layout", &from])).success();
        assert_eq!(Digest::of(manifest.stdout.as_bytes()).to_string(), *digest);
        let to = format!("{}/{name}:v1.0.0", registry.address);
        run(isolated(&oras, home).args(["copy", "--from-oci-layout", "--to-plain-http", &from, &to]))
            .success();
    }
    let back = format!("layout:{}", shown(&home.join("back.tar")));
    ocimod.run(["copy", "--all", "--from", registry.address.as_str(), "--to", back.as_str()]).success();
    assert!(fs::read(home.join("back.tar")).unwrap() == fs::read(&path).unwrap(), "not the same bytes");
}

#[test]
fn what_oras_attached_is_found_where_it_was_carried_to() {
    let Some(oras) = clients::find("oras") else { return };
    let Some(target) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let home = ocimod.home.path();
    let ours = Ocimod::new();
    let serve = ours.serve(["--registry", &format!("dir:{}", shown(&ours.folder("store")))]);
    ocimod.push(&serve.address, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    let folder = ocimod.folder("attached");
    fs::write(folder.join("signature.txt"), "a signature\n").unwrap();
    let attach = |address: &str| {
        let reference = format!("{address}/acme/label/null:v1.0.0");
        let arguments = [
            "attach",
            "--plain-http",
            "--artifact-type",
            "application/vnd.acme.signature",
            &reference,
            "signature.txt:text/plain",
        ];
        run(isolated(&oras, home).current_dir(&folder).args(arguments)).success();
    };
    let discovered = |address: &str| {
        let reference = format!("{address}/acme/label/null:v1.0.0");
        let answer =
            run(isolated(&oras, home).args(["discover", "--plain-http", "--format", "json", &reference]))
                .success();
        answer.stdout.matches("application/vnd.acme.signature").count()
    };
    attach(&serve.address);
    // From a list of the registry's own, through a file, to an index at a tag; and back.
    let file = format!("layout:{}", shown(&home.join("x.tar")));
    for (from, to) in [(serve.address.as_str(), file.as_str()), (&file, &target.address)] {
        ocimod.run(["copy", "--all", "--referrers", "--from", from, "--to", to]).success();
    }
    assert_eq!((discovered(&serve.address), discovered(&target.address)), (1, 1));
    let back = Ocimod::new();
    let again = back.serve(["--registry", &format!("dir:{}", shown(&back.folder("store")))]);
    ocimod
        .run([
            "copy",
            "--all",
            "--referrers",
            "--from",
            target.address.as_str(),
            "--to",
            again.address.as_str(),
        ])
        .success();
    assert_eq!(discovered(&again.address), 1);
}

#[test]
fn a_copy_of_a_copy_by_crane_is_the_same() {
    let Some(crane) = clients::find("crane") else { return };
    let (Some(from), Some(by_crane), Some(by_us)) =
        (DockerRegistry::start(), DockerRegistry::start(), DockerRegistry::start())
    else {
        return;
    };
    let ocimod = Ocimod::new();
    let home = ocimod.home.path();
    for version in ["1.0.0", "1.1.0", "1.2.0"] {
        ocimod.push(
            &from.address,
            &example("terraform-null-label"),
            &format!("acme/label/null@{version}"),
            &[],
        );
    }
    ocimod.run(["yank", "acme/label/null@1.1.0", "--registry", from.address.as_str()]).success();
    let name = |registry: &DockerRegistry| format!("{}/acme/label/null", registry.address);
    run(isolated(&crane, home).args(["copy", "--insecure", "-a", &name(&from), &name(&by_crane)])).success();
    ocimod
        .run(["copy", "acme/label/null", "--from", from.address.as_str(), "--to", by_us.address.as_str()])
        .success();
    let tags = |registry: &DockerRegistry| {
        let listed = run(isolated(&crane, home).args(["ls", "--insecure", &name(registry)])).success().stdout;
        let digest = |tag: &str| {
            let reference = format!("{}:{tag}", name(registry));
            run(isolated(&crane, home).args(["digest", "--insecure", &reference])).success().stdout
        };
        sorted(listed.lines().map(|tag| (tag.to_owned(), digest(tag))).collect())
    };
    assert_eq!(tags(&by_us), tags(&by_crane));
    assert_eq!(tags(&by_us).len(), 4);
}
