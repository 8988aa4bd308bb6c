//! The registry clients push to our own `/v2/` and pull from it.

use std::path::Path;

use crate::support::clients;
use crate::support::modules::{example, write};
use crate::support::ocimod::Ocimod;
use crate::support::process::{isolated, run};

/// A registry of ours with one module in it.
fn served() -> (Ocimod, crate::support::ocimod::Serve, String) {
    let ocimod = Ocimod::new();
    let store = format!("dir:{}", ocimod.folder("store").display());
    let pushed = ocimod.push(&store, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    let serve = ocimod.serve(["--registry", &store]);
    let digest = pushed["digest"].as_str().expect("push answers a digest").to_owned();
    (ocimod, serve, digest)
}

#[track_caller]
fn say(program: &Path, home: &Path, arguments: &[&str]) -> String {
    run(isolated(program, home).args(arguments)).success().stdout
}

#[test]
fn crane_lists_copies_and_deletes() {
    let Some(crane) = clients::find("crane") else { return };
    let (ocimod, serve, digest) = served();
    let home = ocimod.home.path();
    let repository = format!("{}/acme/label/null", serve.address);
    assert_eq!(say(&crane, home, &["ls", "--insecure", &repository]), "v1.0.0\n");
    assert_eq!(say(&crane, home, &["catalog", "--insecure", &serve.address]), "acme/label/null\n");
    let copied = format!("{}/mirror/label:v1.0.0", serve.address);
    say(&crane, home, &["copy", "--insecure", &format!("{repository}:v1.0.0"), &copied]);
    assert_eq!(say(&crane, home, &["digest", "--insecure", &copied]).trim(), digest);
    say(&crane, home, &["delete", "--insecure", &copied]);
    let gone = run(isolated(&crane, home).args(["digest", "--insecure", &copied]));
    gone.fails_with(1);
}

#[test]
fn skopeo_copies_in_and_out() {
    let Some(skopeo) = clients::find("skopeo") else { return };
    let (ocimod, serve, digest) = served();
    let home = ocimod.home.path();
    let layout = format!("oci:{}:v1", ocimod.folder("layout").display());
    let copy = ["--insecure-policy", "copy", "--src-tls-verify=false", "--dest-tls-verify=false"];
    let ours = format!("docker://{}/acme/label/null:v1.0.0", serve.address);
    say(&skopeo, home, &[&copy[..], &[&ours, &layout]].concat());
    let back = format!("docker://{}/from/skopeo:v1.0.0", serve.address);
    say(&skopeo, home, &[&copy[..], &[&layout, &back]].concat());
    let listed = say(
        &skopeo,
        home,
        &["list-tags", "--tls-verify=false", &format!("docker://{}/from/skopeo", serve.address)],
    );
    assert!(listed.contains("v1.0.0"), "{listed}");
    let crane = clients::find("crane");
    if let Some(crane) = crane {
        let copied = format!("{}/from/skopeo:v1.0.0", serve.address);
        assert_eq!(say(&crane, home, &["digest", "--insecure", &copied]).trim(), digest);
    }
}

#[test]
fn oras_pushes_attaches_discovers_and_pulls() {
    let Some(oras) = clients::find("oras") else { return };
    let (ocimod, serve, _) = served();
    let home = ocimod.home.path();
    let folder = ocimod.folder("oras");
    write(&folder, &[("note.txt", "a note\n"), ("signature.txt", "a signature\n")]);
    let repository = format!("{}/acme/notes", serve.address);
    let reference = format!("{repository}:v1.0.0");
    let say_here =
        |arguments: &[&str]| run(isolated(&oras, home).current_dir(&folder).args(arguments)).success().stdout;
    say_here(&[
        "push",
        "--plain-http",
        "--artifact-type",
        "application/vnd.acme.note",
        &reference,
        "note.txt:text/plain",
    ]);
    say_here(&[
        "attach",
        "--plain-http",
        "--artifact-type",
        "application/vnd.acme.signature",
        &reference,
        "signature.txt:text/plain",
    ]);
    let discovered = say_here(&["discover", "--plain-http", "--format", "json", &reference]);
    assert!(discovered.contains("application/vnd.acme.signature"), "{discovered}");
    let out = ocimod.folder("oras-out");
    say_here(&["pull", "--plain-http", "-o", &out.display().to_string(), &reference]);
    assert_eq!(std::fs::read_to_string(out.join("note.txt")).expect("it was pulled"), "a note\n");
}

#[test]
fn regctl_pushes_attaches_lists_copies_and_deletes() {
    let Some(regctl) = clients::find("regctl") else { return };
    let (ocimod, serve, digest) = served();
    let home = ocimod.home.path();
    let folder = ocimod.folder("regctl");
    write(&folder, &[("note.txt", "a note\n"), ("signature.txt", "a signature\n")]);
    let plain = format!("reg={},tls=disabled", serve.address);
    let say_here = |arguments: &[&str]| {
        let mut command = isolated(&regctl, home);
        run(command.current_dir(&folder).args(["--verbosity", "error", "--host", &plain]).args(arguments))
            .success()
            .stdout
    };
    let repository = format!("{}/acme/notes", serve.address);
    let note = format!("{repository}:v1.0.0");
    let put = ["artifact", "put", "--file"];
    say_here(&[&put[..], &["note.txt", "--artifact-type", "application/vnd.acme.note", &note]].concat());
    let kind = "application/vnd.acme.signature";
    say_here(&[&put[..], &["signature.txt", "--artifact-type", kind, "--subject", &note]].concat());
    assert_eq!(
        say_here(&["tag", "ls", &repository]),
        "v1.0.0\n",
        "the list of referrers is the registry's own"
    );
    let found = say_here(&[
        "artifact",
        "list",
        &note,
        "--filter-artifact-type",
        kind,
        "--format",
        "{{ len .Descriptors }}",
    ]);
    assert_eq!(found.trim(), "1");
    assert_eq!(say_here(&["artifact", "get", "--subject", &note]), "a signature\n");
    let repositories = say_here(&["repo", "ls", &serve.address]);
    assert_eq!(repositories, "acme/label/null\nacme/notes\n");

    // A module, as it is; blobs are mounted.
    let (module, copied) = (
        format!("{}/acme/label/null:v1.0.0", serve.address),
        format!("{}/mirror/label:v1.0.0", serve.address),
    );
    say_here(&["image", "copy", "--digest-tags", "--referrers", &module, &copied]);
    assert_eq!(say_here(&["manifest", "head", &copied]).trim(), digest);
    // A blob above its limit for one request goes in pieces.
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(folder.join("large.bin"), &large).expect("the folder is ours");
    let pieces = format!("{plain},blobMax=1000000,blobChunk=700000");
    let mut command = isolated(&regctl, home);
    let file = std::fs::File::open(folder.join("large.bin")).expect("it was written");
    command.args(["--verbosity", "error", "--host", &pieces, "blob", "put", &repository]).stdin(file);
    let pushed = run(&mut command).success().stdout;
    let mut command = isolated(&regctl, home);
    command.args(["--verbosity", "error", "--host", &plain, "blob", "head", &repository, pushed.trim()]);
    let head = run(&mut command).success().stdout;
    assert!(head.contains("Content-Length: 3000000"), "{head}");

    say_here(&["tag", "delete", &copied]);
    say_here(&["manifest", "delete", &format!("{}/mirror/label@{digest}", serve.address)]);
    let gone = run(isolated(&regctl, home).args(["--host", &plain, "manifest", "head", &copied]));
    gone.fails_with(1);
    assert_eq!(say_here(&["manifest", "head", &module]).trim(), digest);
}

#[test]
fn crane_pushes_an_image_over_a_version_only_once() {
    let Some(crane) = clients::find("crane") else { return };
    let (ocimod, serve, digest) = served();
    let home = ocimod.home.path();
    // A published version does not change, whoever comes.
    write(&ocimod.folder("other"), &[("main.tf", "output \"other\" {\n  value = 1\n}\n")]);
    let other = format!("dir:{}", ocimod.folder("other-store").display());
    ocimod.push(&other, &ocimod.folder("other"), "acme/label/null@1.0.0", &[]);
    let elsewhere = ocimod.serve(["--registry", &other]);
    let (from, to) = (
        format!("{}/acme/label/null:v1.0.0", elsewhere.address),
        format!("{}/acme/label/null:v1.0.0", serve.address),
    );
    let refused = run(isolated(&crane, home).args(["copy", "--insecure", &from, &to])).fails_with(1);
    assert!(refused.all().contains("DENIED"), "{}", refused.all());
    assert_eq!(say(&crane, home, &["digest", "--insecure", &to]).trim(), digest);
}
