//! Takes each guard out in turn and sees its test fail:
//!
//! ```sh
//! cargo test --test guards -- --ignored --nocapture
//! ```
//!
//! A guard is an expression in the sources that keeps a promise: a bound, a check, a comparison. The lists beside this file say for
//! each what stands there, what would stand there without it, and which test would notice. A test that passes without its guard
//! guards nothing.
//!
//! The sources know nothing of this. They are copied, and in the copy every guard becomes a choice between the two expressions, so
//! that one build does for all; which of them is out, a file says. In every `cargo test` the lists are held against the sources, so
//! that a guard that is moved or changed takes its entry along.

#![allow(clippy::unwrap_used)] // in a test a panic is the message
#![allow(clippy::print_stdout)] // a run takes minutes, and whoever started it wants to see how far it is

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// A test that has not ended after this has no end any more: what the guard kept from happening happens.
const DEADLINE: Duration = Duration::from_mins(1);

/// Which guard is out, in the copy. Empty where none is.
const OUT: &str = "guard-out";

/// What is copied.
const COPIED: [&str; 5] = ["Cargo.toml", "Cargo.lock", "src", "tests", "docs"];

/// The end of the copy's `lib.rs`.
const SWITCH: &str = r#"
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod guards {
    pub fn is_out(guard: &str) -> bool {
        static OUT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        OUT.get_or_init(|| {
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/guard-out")).unwrap_or_default()
        }) == guard
    }
}
"#;

/// The lists: one for each part of the crate.
const LISTS: &[(&str, &str)] = &[
    ("access", include_str!("access.toml")),
    ("credentials", include_str!("credentials.toml")),
    ("identity", include_str!("identity.toml")),
    ("layouts", include_str!("layouts.toml")),
    ("links", include_str!("links.toml")),
    ("modules", include_str!("modules.toml")),
    ("paths", include_str!("paths.toml")),
    ("remote", include_str!("remote.toml")),
    ("store", include_str!("store.toml")),
    ("upstream", include_str!("upstream.toml")),
    ("zips", include_str!("zips.toml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    guard: Vec<Guard>,
}

/// A guard.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Guard {
    /// What it sees to.
    name: String,
    /// Where it stands.
    file: String,
    /// What stands there, an expression. It is there once, or once in `within`.
    code: String,
    /// A longer text around it that is there once, where the expression is there more often.
    within: Option<String>,
    /// What would stand there without the guard, of the same type.
    without: String,
    /// The test that fails then: `lib::` or `it::`, and its path.
    test: String,
}

fn guards() -> Vec<Guard> {
    let read = |(name, text): &(&str, &str)| {
        toml::from_str::<List>(text).unwrap_or_else(|error| panic!("tests/guards/{name}.toml: {error}")).guard
    };
    LISTS.iter().flat_map(read).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where a text stands that has to be there once.
fn only(text: &str, part: &str) -> Option<usize> {
    let first = text.find(part)?;
    text[first + 1..].find(part).is_none().then_some(first)
}

impl Guard {
    /// Where the expression stands in the file.
    fn place(&self, text: &str) -> Option<Range<usize>> {
        let (start, around) = match &self.within {
            Some(within) => (only(text, within)?, within.as_str()),
            None => (0, text),
        };
        let start = start + only(around, &self.code)?;
        Some(start..start + self.code.len())
    }

    /// Both expressions, and the choice between them.
    fn choice(&self) -> String {
        let Self { name, code, without, .. } = self;
        format!("(if crate::guards::is_out({name:?}) {{ {without} }} else {{ {code} }})")
    }

    /// Which test program has the test, and its name there.
    fn test(&self) -> (&str, &str) {
        self.test.split_once("::").unwrap_or_default()
    }
}

/// Every file below a folder, by its path from `root`.
fn files(root: &Path, below: &str, found: &mut BTreeSet<String>) {
    let path = root.join(below);
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            files(root, &format!("{below}/{name}"), found);
        }
    } else if path.is_file() {
        found.insert(below.to_owned());
    }
}

fn files_of(root: &Path, folders: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in folders {
        files(root, folder, &mut found);
    }
    found
}

#[test]
fn every_guard_stands_where_its_list_says_and_has_its_test() {
    let sources = |folder: &str| -> String {
        let files = files_of(root(), &[folder]);
        files
            .iter()
            .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "rs"))
            .map(|name| fs::read_to_string(root().join(name)).unwrap())
            .collect()
    };
    let tests = BTreeMap::from([("lib", sources("src")), ("it", sources("tests/it"))]);
    let (mut names, mut wrong, mut places) = (BTreeSet::new(), Vec::new(), BTreeMap::<_, Vec<_>>::new());
    for guard in guards() {
        let Guard { name, file, .. } = &guard;
        if !names.insert(name.clone()) {
            wrong.push(format!("{name}: another guard has this name"));
        }
        match fs::read_to_string(root().join(file)).ok().and_then(|text| guard.place(&text)) {
            Some(place) => {
                places.entry(file.clone()).or_default().push((place.start, place.end, name.clone()));
            }
            None => wrong.push(format!("{name}: what it says of {file} does not stand there once")),
        }
        let (program, test) = guard.test();
        let function = format!("fn {}(", test.rsplit("::").next().unwrap_or_default());
        if !tests.get(program).is_some_and(|text| text.contains(&function)) {
            wrong.push(format!("{name}: there is no test {}", guard.test));
        }
    }
    for places in places.values_mut() {
        places.sort();
        for pair in places.windows(2) {
            if pair[0].1 > pair[1].0 {
                wrong.push(format!("{} and {} overlap", pair[0].2, pair[1].2));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "builds the crate once more, and takes minutes"]
fn each_guard_is_missed_when_it_is_out() {
    // Parts of names, with commas between them, to look at some alone.
    let wanted = std::env::var("OCIMOD_GUARDS").unwrap_or_default();
    let guards = guards();
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guards");
    make_copy(&guards, &copy.join("tree"));
    let programs = build(&copy);
    let chosen: Vec<&Guard> =
        guards.iter().filter(|guard| wanted.split(',').any(|part| guard.name.contains(part))).collect();
    assert!(!chosen.is_empty(), "there is no guard with `{wanted}` in its name");

    take_out(&copy, "");
    for (program, path) in &programs {
        let tests: BTreeSet<&str> = chosen
            .iter()
            .map(|guard| guard.test())
            .filter(|test| test.0 == program)
            .map(|test| test.1)
            .collect();
        if !tests.is_empty() {
            let outcome = run(path, &copy, &tests.iter().copied().collect::<Vec<_>>());
            let expected = format!("{} passed; 0 failed", tests.len());
            assert!(outcome.text.contains(&expected), "with every guard in place:\n{}", outcome.text);
        }
    }
    let mut unmissed = Vec::new();
    for (number, guard) in chosen.iter().enumerate() {
        take_out(&copy, &guard.name);
        let (program, test) = guard.test();
        let outcome = run(&programs[program], &copy, &[test]);
        let said = match outcome.success {
            Some(_) if !outcome.text.contains("running 1 test") => panic!("{}: {}", guard.test, outcome.text),
            Some(true) => {
                unmissed.push(format!("{}: {} passes without it", guard.name, guard.test));
                "NOBODY MISSES IT"
            }
            Some(false) if outcome.text.contains("0 passed; 1 failed") => "its test fails",
            Some(false) => "its test crashes",
            None => "its test does not end",
        };
        println!(
            "{:>3}/{} {}: {said} ({:.1} s)",
            number + 1,
            chosen.len(),
            guard.name,
            outcome.time.as_secs_f64()
        );
    }
    take_out(&copy, "");
    assert!(unmissed.is_empty(), "\n{}", unmissed.join("\n"));
}

fn take_out(copy: &Path, guard: &str) {
    fs::write(copy.join("tree").join(OUT), guard).unwrap();
}

/// Brings the copy up to date. What has not changed is not written, so that it is not built again.
fn make_copy(guards: &[Guard], tree: &Path) {
    let (wanted, there) = (files_of(root(), &COPIED), files_of(tree, &COPIED));
    for name in there.difference(&wanted) {
        fs::remove_file(tree.join(name)).unwrap();
    }
    for name in wanted {
        let mut bytes = fs::read(root().join(&name)).unwrap();
        let mut chosen: Vec<_> = guards
            .iter()
            .filter(|guard| guard.file == name)
            .map(|guard| {
                let text = std::str::from_utf8(&bytes).unwrap();
                (guard.place(text).unwrap_or_else(|| panic!("{} is not in {name}", guard.name)), guard)
            })
            .collect();
        chosen.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
        for (place, guard) in chosen {
            bytes.splice(place, guard.choice().into_bytes());
        }
        if name == "src/lib.rs" {
            bytes.extend(SWITCH.as_bytes());
        }
        let target = tree.join(&name);
        if fs::read(&target).ok().as_ref() != Some(&bytes) {
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::write(target, bytes).unwrap();
        }
    }
}

/// Builds the tests of the copy; answers where they are.
fn build(copy: &Path) -> BTreeMap<String, PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--no-run", "--locked", "--lib", "--test", "it"])
        .args(["--message-format", "json-render-diagnostics", "--manifest-path"])
        .arg(copy.join("tree/Cargo.toml"))
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .env("RUSTFLAGS", "-Awarnings")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the copy cannot be built");
    let messages = String::from_utf8(output.stdout).unwrap();
    let program = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        let kind = message["target"]["kind"][0].as_str()?;
        let is_test = message["profile"]["test"].as_bool()?;
        is_test.then(|| (if kind == "lib" { "lib" } else { "it" }.to_owned(), path))
    };
    messages.lines().filter_map(program).collect()
}

struct Outcome {
    text: String,
    /// Whether every test passed; `None` where they did not end.
    success: Option<bool>,
    time: Duration,
}

/// Runs some tests of a program to their end, or to the deadline.
fn run(program: &Path, copy: &Path, tests: &[&str]) -> Outcome {
    let log = copy.join("log");
    let file = fs::File::create(&log).unwrap();
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(tests)
        .arg("--exact")
        .current_dir(copy.join("tree"))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    // All of them together may take longer than any one.
    let deadline = if tests.len() > 1 { DEADLINE * 5 } else { DEADLINE };
    let success = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status.success()),
            None if began.elapsed() > deadline => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    Outcome { text: fs::read_to_string(log).unwrap(), success, time: began.elapsed() }
}
