//! Faults of the disk: full, read-only, without links, and a program that ends at any one of its calls to the system.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{is_whole, module, store, versions};
use crate::support::clients;
use crate::support::modules::write;
use crate::support::ocimod::Ocimod;
use crate::support::process::{Answer, isolated, run};

/// In a mount namespace of its own, so that nobody has to be root.
const FULL_AND_READ_ONLY: &str = r#"
set -u
mount -t tmpfs -o size=2m tmpfs store || { echo skipped; exit 0; }
push() { "$1" push --registry dir:store "modules/$2" "acme/$2/null@$3" >out 2>&1; echo "push $2 $?"; cat out >&2; }
push "$1" small 1.0.0
push "$1" large 1.0.0
"$1" store verify store; echo "verify $?"
push "$1" small 1.0.1
find store/_uploads -type f | wc -l
mount -o remount,ro store
push "$1" small 1.0.2
"$1" store verify store; echo "verify $?"
"$1" list --registry dir:store acme/small/null >out && cut -d' ' -f1 out; echo "list $?"
"$1" store gc --grace 0 store; echo "gc $?"
"#;

#[cfg(target_os = "linux")]
#[test]
fn a_full_or_read_only_disk_is_an_error_and_nothing_is_lost() {
    let ocimod = Ocimod::new();
    ocimod.folder("store");
    write(&ocimod.folder("modules/small"), &[("main.tf", "output \"says\" {\n  value = 1\n}\n")]);
    let large = module(&ocimod, "large", "large");
    let mut noise = vec![0; 4_000_000];
    getrandom::fill(&mut noise).unwrap();
    fs::write(large.join("noise.bin"), noise).unwrap();
    let program = env!("CARGO_BIN_EXE_ocimod");
    let mut command = isolated(Path::new("unshare"), ocimod.home.path());
    command.current_dir(ocimod.home.path()).args(["-rm", "sh", "-c", FULL_AND_READ_ONLY, "sh", program]);
    if command.output().is_err() {
        return; // There is no `unshare`; the store's own tests have a link that fails in its place.
    }
    let answer = run(&mut command);
    // Where namespaces are forbidden there is nothing to be shown.
    if answer.status != Some(0) && answer.stdout.is_empty() || answer.stdout == "skipped\n" {
        return;
    }
    let expected = "push small 0\npush large 1\nverify 0\npush small 0\n0\npush small 1\nverify 0\n1.0.0\n1.0.1\nlist 0\ngc 1\n";
    assert_eq!(answer.stdout, expected, "{}", answer.stderr);
    for reason in ["no space left", "read-only"] {
        assert!(answer.stderr.to_lowercase().contains(reason), "{}", answer.stderr);
    }
}

/// `strace`, where it is there and may be used.
fn strace(ocimod: &Ocimod) -> Option<PathBuf> {
    let strace = clients::find("strace")?;
    let mut probe = isolated(&strace, ocimod.home.path());
    probe.args(["-qq", "-f", "-o", "/dev/null", "-e", "inject=getcwd:error=ENOENT", "true"]);
    let answer = run(&mut probe);
    if answer.status != Some(0) {
        #[allow(clippy::print_stderr)] // where cargo shows it to whoever asks why a test was so quick
        {
            eprintln!("skipped: `strace` may not be used here: {}", answer.stderr);
        }
        return None;
    }
    Some(strace)
}

/// By what a push changes the disk. `write` is also how threads wake each other, so it may be the last thing that a program does,
/// but must not fail.
const CHANGES: [&str; 8] = [
    "write",
    "fsync,fdatasync",
    "ftruncate",
    "?link,linkat",
    "?rename,renameat,renameat2",
    "?unlink,unlinkat",
    "?mkdir,mkdirat",
    "?chmod,fchmod,fchmodat",
];

/// A store with a module whose list of versions is long, and a place for modules to push.
struct Rig {
    ocimod: Ocimod,
    strace: PathBuf,
}

impl Rig {
    fn new() -> Option<Self> {
        let (ocimod, registry) = store();
        let strace = strace(&ocimod)?;
        let rig = Self { ocimod, strace };
        rig.ocimod.push(&registry, &rig.module("first"), "acme/long/null@0.0.0", &[]);
        // So long that what is added to it is written over blanks of a file beside.
        let index = rig.ocimod.folder("store/repos/acme/long/null/_oci").join("index.json");
        let mut list: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        let first = list["manifests"][0].clone();
        let entries = list["manifests"].as_array_mut().unwrap();
        for number in 1..400 {
            let mut entry = first.clone();
            entry["annotations"]["org.opencontainers.image.ref.name"] = json!(format!("also-{number}"));
            entries.push(entry);
        }
        fs::write(&index, list.to_string()).unwrap();
        for version in ["0.0.1", "0.0.2"] {
            rig.ocimod.push(&registry, &rig.module(version), &format!("acme/long/null@{version}"), &[]);
        }
        assert!(rig.ocimod.home.path().join("store/repos/acme/long/null/_index").exists());
        Some(rig)
    }

    fn module(&self, says: &str) -> PathBuf {
        let folder = self.ocimod.folder("modules/module");
        write(&folder, &[("main.tf", &format!("output \"says\" {{\n  value = \"{says}\"\n}}\n"))]);
        folder
    }

    /// Pushes a module that says its address, with something that happens at a call to the system.
    fn push(&self, address: &str, inject: &str) -> Answer {
        let mut command = isolated(&self.strace, self.ocimod.home.path());
        command.current_dir(self.ocimod.home.path());
        command.args(["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &format!("inject={inject}")]);
        command.arg(env!("CARGO_BIN_EXE_ocimod")).args(["push", "--registry", "dir:store"]);
        run(command.arg(self.module(address)).arg(address))
    }

    /// Pushes with a fault at such a call, each time at a later one, until it does not come any more: to a repository that is new
    /// each time, and to one that has a long list. Threads are counted for themselves. Answers how many pushes failed.
    fn push_with(&self, calls: &str, fault: impl Fn(usize) -> String) -> usize {
        let word: String = calls.chars().filter(char::is_ascii_alphanumeric).collect();
        let mut failed = 0;
        for kind in ["new", "long"] {
            for nth in 1.. {
                let (name, version) = match kind {
                    "new" => (format!("acme/{word}{nth}/null"), "1.0.0".to_owned()),
                    _ => ("acme/long/null".to_owned(), format!("1.0.{nth}-{word}")),
                };
                let address = format!("{name}@{version}");
                let answer = self.push(&address, &format!("{calls}:{}", fault(nth)));
                assert!(!answer.all().contains("panicked"), "{address}: {}", answer.all());
                is_whole(&self.ocimod);
                let is_there = versions(&self.ocimod, "dir:store", &name).contains(&version);
                assert!(is_there || answer.status != Some(0), "{address} is lost");
                if answer.status == Some(0) {
                    break;
                }
                failed += 1;
                // Whatever is there of it, the next push of the same ends well.
                let again = self.ocimod.push("dir:store", &self.module(&address), &address, &[]);
                assert!(again["created"] == json!(!is_there), "{address}: {again}");
                assert!(nth < 200, "{kind}: there is no end");
            }
        }
        is_whole(&self.ocimod);
        failed
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_push_that_is_killed_at_any_of_its_calls_leaves_nothing_behind() {
    let Some(rig) = Rig::new() else { return };
    let killed: usize =
        CHANGES.iter().map(|calls| rig.push_with(calls, |nth| format!("signal=KILL:when={nth}"))).sum();
    assert!(killed > 20, "only {killed} pushes were killed");
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_from_any_call_on_is_an_error_and_nothing_is_lost() {
    let Some(rig) = Rig::new() else { return };
    let calls = "fsync,fdatasync,?link,linkat,?rename,renameat,renameat2,?mkdir,mkdirat";
    let failed = rig.push_with(calls, |nth| format!("error=ENOSPC:when={nth}+"));
    assert!(failed > 10, "only {failed} pushes failed");
}

#[cfg(target_os = "linux")]
#[test]
fn without_links_contents_are_copied() {
    let Some(rig) = Rig::new() else { return };
    for (number, error) in ["EMLINK", "EXDEV", "EPERM", "EOPNOTSUPP"].into_iter().enumerate() {
        for address in [format!("acme/unlinked{number}/null@1.0.0"), format!("acme/long/null@2.0.{number}")] {
            let answer = rig.push(&address, &format!("?link,linkat:error={error}"));
            assert_eq!(answer.status, Some(0), "{error}: {}", answer.all());
        }
        is_whole(&rig.ocimod);
    }
}
