//! Crashes: a server and those who push are killed at some moment, again and again.
//!
//! Each store is used for some rounds, so that what one crash leaves is there in the next, and several are used at once, since a
//! round waits more than it computes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ocimod::oci::{Digest, Manifest, Repository};
use ocimod::registry::Registry;
use ocimod::registry::credentials::CredentialSource;
use ocimod::registry::remote::{RemoteOptions, RemoteRegistry};
use serde_json::{Value, json};

use super::{is_whole, rounds};
use crate::support::clients;
use crate::support::modules::write;
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{isolated, kill};

/// As often as CI kills a server; [`super`] says how to do it more often.
const ROUNDS: usize = 200;
/// How many rounds a store lives: more of them would make each look at all of it longer.
const OF_A_STORE: usize = 10;
/// Stores at once.
const LANES: usize = 3;
/// A server is killed within this time after it has started.
const LIFE: Duration = Duration::from_millis(600);
/// What a module or an image has in it, in bytes, so that a push is not over at once.
const SIZE: usize = 60_000;
/// So many tags make a list long enough not to be written anew each time.
const LONG: usize = 400;

/// Who pushes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pusher {
    /// `ocimod push` into the folder, beside the server.
    Folder,
    /// `ocimod push` to the server, into the same repository.
    Server,
    Crane,
    Oras,
    /// No pusher: `ocimod store gc` without grace, which may make pushes fail and never damages anything.
    Collector,
}

/// Those who are there in a round: each with each, and now and then a collection beside them.
const CASTS: [&[Pusher]; 5] = [
    &[Pusher::Folder, Pusher::Server],
    &[Pusher::Crane, Pusher::Oras],
    &[Pusher::Folder, Pusher::Crane],
    &[Pusher::Server, Pusher::Oras],
    &[Pusher::Folder, Pusher::Server, Pusher::Collector],
];

impl Pusher {
    /// Where it pushes.
    fn repository(self) -> &'static str {
        match self {
            Self::Folder | Self::Server | Self::Collector => "acme/both/null",
            Self::Crane => "crane/image",
            Self::Oras => "oras/files",
        }
    }

    /// A tag that nobody else pushes.
    fn tag(self, round: usize, number: usize) -> String {
        match self {
            Self::Folder => format!("v1.{round}.{number}"),
            Self::Server => format!("v2.{round}.{number}"),
            _ => format!("round{round}-{number}"),
        }
    }
}

/// A store that goes through crashes, and what was done to it.
struct Victim {
    ocimod: Ocimod,
    programs: BTreeMap<&'static str, Option<PathBuf>>,
    /// By repository and tag: what was pushed.
    attempted: BTreeSet<(String, String)>,
    /// What the pusher was told is there, with its digest.
    acknowledged: BTreeMap<(String, String), Digest>,
    /// What was seen whole already.
    seen: BTreeSet<(String, String)>,
}

/// How much came of the rounds.
#[derive(Debug, Default)]
struct Tally {
    acknowledged: BTreeMap<Pusher, usize>,
    /// Pushes that were cut off.
    cut_off: usize,
    /// Those of them that were there nevertheless, whole.
    landed: usize,
}

impl Victim {
    fn new(is_long: bool) -> Self {
        let ocimod = Ocimod::new();
        let programs = ["crane", "oras"].map(|name| (name, clients::find(name)));
        let victim = Self {
            ocimod,
            programs: programs.into(),
            attempted: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            seen: BTreeSet::new(),
        };
        let first = victim.push(Pusher::Folder, "v0.0.0", "").stderr(Stdio::null()).output().unwrap();
        assert!(first.status.success());
        if is_long {
            victim.lengthen();
        }
        victim
    }

    /// Gives the first version so many tags that the list of them is long.
    fn lengthen(&self) {
        let index = self.ocimod.folder("store").join("repos/acme/both/null/_oci/index.json");
        let mut list: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        let entries = list["manifests"].as_array_mut().unwrap();
        let first = entries[0].clone();
        for number in 1..LONG {
            let mut entry = first.clone();
            entry["annotations"]["org.opencontainers.image.ref.name"] = json!(format!("also-{number}"));
            entries.push(entry);
        }
        fs::write(index, list.to_string()).unwrap();
    }

    /// A push of something new under a tag.
    fn push(&self, pusher: Pusher, tag: &str, address: &str) -> Command {
        let name = format!("{pusher:?}").to_lowercase();
        let mut noise = vec![0; SIZE];
        getrandom::fill(&mut noise).unwrap();
        let program = |name| self.programs[name].clone().expect("who takes part is there");
        match pusher {
            Pusher::Folder | Pusher::Server => {
                let folder = self.ocimod.folder(&format!("modules/{name}"));
                write(&folder, &[("main.tf", &format!("output \"says\" {{\n  value = \"{tag}\"\n}}\n"))]);
                fs::write(folder.join("noise.bin"), noise).unwrap();
                let version = tag.trim_start_matches('v');
                let registry = match pusher {
                    Pusher::Folder => "dir:store".to_owned(),
                    _ => format!("{address}+insecure"),
                };
                let mut command = self.ocimod.command();
                command.args(["push", "--format", "json", "--registry", &registry]).arg(folder);
                command.arg(format!("{}@{version}", pusher.repository()));
                command
            }
            Pusher::Crane => {
                fs::write(self.ocimod.folder("crane").join("layer"), noise).unwrap();
                let mut command = isolated(&program("crane"), self.ocimod.home.path());
                command.current_dir(self.ocimod.folder("crane"));
                command.args(["append", "--insecure", "--new_layer", "layer", "--new_tag"]);
                command.arg(format!("{address}/{}:{tag}", pusher.repository()));
                command
            }
            Pusher::Oras => {
                fs::write(self.ocimod.folder("oras").join("file"), noise).unwrap();
                let mut command = isolated(&program("oras"), self.ocimod.home.path());
                command.current_dir(self.ocimod.folder("oras"));
                command.args(["push", "--plain-http", "--format", "go-template={{.digest}}"]);
                command.arg(format!("{address}/{}:{tag}", pusher.repository())).arg("file");
                command
            }
            Pusher::Collector => {
                let mut command = self.ocimod.command();
                command.args(["store", "gc", "--grace", "0", "store"]);
                command
            }
        }
    }

    /// One after the other until it is stopped; answers the tags, and what was said of those that were acknowledged.
    fn keep_pushing(
        &self,
        pusher: Pusher,
        round: usize,
        address: &str,
        stop: &AtomicBool,
    ) -> Vec<(String, Option<Digest>)> {
        let mut done = Vec::new();
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let tag = pusher.tag(round, number);
            let mut command = self.push(pusher, &tag, address);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let is_done = finish_unless(&mut child, stop);
            let mut said = String::new();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            let digest = said.find("sha256:").and_then(|at| said.get(at..at + 71));
            let digest = digest.filter(|_| is_done).map(|digest| digest.parse().unwrap());
            assert!(digest.is_some() || !is_done || pusher == Pusher::Collector, "{pusher:?}: {said}");
            done.push((tag, digest));
        }
        done
    }

    /// A server, those who push, and a crash.
    fn round(&mut self, round: usize, tally: &mut Tally) {
        let mut serve = self.ocimod.serve(["--registry", "dir:store"]);
        self.check(&serve, tally);
        let cast: Vec<Pusher> = CASTS[round % CASTS.len()]
            .iter()
            .copied()
            .filter(|pusher| self.programs.get(&*format!("{pusher:?}").to_lowercase()) != Some(&None))
            .collect();
        let stop = AtomicBool::new(false);
        let pushed: Vec<_> = thread::scope(|scope| {
            let pushers: Vec<_> = cast
                .iter()
                .map(|&pusher| {
                    let (victim, address, stop) = (&*self, &serve.address, &stop);
                    scope.spawn(move || victim.keep_pushing(pusher, round, address, stop))
                })
                .collect();
            let life = u64::try_from(LIFE.as_micros()).unwrap();
            thread::sleep(Duration::from_micros(getrandom::u64().unwrap() % life));
            kill(serve.server.pid(), "KILL");
            stop.store(true, Ordering::Relaxed);
            pushers.into_iter().map(|pusher| pusher.join().unwrap()).collect()
        });
        serve.server.wait();
        is_whole(&self.ocimod);
        for (&pusher, pushes) in cast.iter().zip(pushed) {
            for (tag, digest) in pushes.into_iter().filter(|_| pusher != Pusher::Collector) {
                let key = (pusher.repository().to_owned(), tag);
                self.attempted.insert(key.clone());
                match digest {
                    Some(digest) => {
                        self.acknowledged.insert(key, digest);
                        *tally.acknowledged.entry(pusher).or_default() += 1;
                    }
                    None => tally.cut_off += 1,
                }
            }
        }
    }

    /// What the server that was started behind a crash has to have, and may have: everything that was acknowledged, and nothing that
    /// nobody pushed; all of it whole.
    fn check(&mut self, serve: &Serve, tally: &mut Tally) {
        let options =
            RemoteOptions::new(serve.address.parse().expect("an address"), CredentialSource::none());
        let registry: Arc<dyn Registry> = Arc::new(RemoteRegistry::new(options).expect("a client"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for pusher in [Pusher::Folder, Pusher::Crane, Pusher::Oras] {
            let repository: Repository = pusher.repository().parse().unwrap();
            let of_it = |key: &&(String, String)| key.0 == pusher.repository();
            let tags = match runtime.block_on(registry.all_tags(&repository, 10_000)) {
                Err(error) if error.is_not_found() => Vec::new(),
                tags => tags.unwrap(),
            };
            let listed: BTreeSet<&str> = tags.iter().map(ocimod::oci::Tag::as_str).collect();
            for (_, tag) in self.acknowledged.keys().filter(of_it) {
                assert!(listed.contains(&**tag), "{repository}:{tag} was acknowledged and is lost");
            }
            for tag in
                tags.iter().filter(|tag| !tag.as_str().starts_with("also-") && tag.as_str() != "v0.0.0")
            {
                let key = (pusher.repository().to_owned(), tag.to_string());
                assert!(self.attempted.contains(&key), "nobody pushed {repository}:{tag}");
                if !self.seen.insert(key.clone()) {
                    continue;
                }
                let found = runtime.block_on(registry.manifest(&repository, &tag.clone().into())).unwrap();
                match self.acknowledged.get(&key) {
                    Some(digest) => assert_eq!(found.digest, *digest, "{repository}:{tag}"),
                    None => tally.landed += 1,
                }
                let manifest = Manifest::parse(&found.media_type, &found.bytes).unwrap();
                for part in manifest.config.iter().chain(&manifest.layers) {
                    let blob = runtime.block_on(registry.small_blob(&repository, &part.digest, 1 << 20));
                    assert_eq!(blob.unwrap().len() as u64, part.size, "{repository}:{tag}");
                }
            }
        }
    }
}

/// Waits for a child, or kills it when it is told to; whether it succeeded.
fn finish_unless(child: &mut Child, stop: &AtomicBool) -> bool {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if stop.load(Ordering::Relaxed) {
            child.kill().unwrap();
            return child.wait().unwrap().success();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Goes through these rounds with a store of their own.
fn crash(rounds: Range<usize>) -> Tally {
    let mut tally = Tally::default();
    let mut victim = Victim::new((rounds.start / OF_A_STORE).is_multiple_of(2));
    for round in rounds {
        victim.round(round, &mut tally);
    }
    let serve = victim.ocimod.serve(["--registry", "dir:store"]);
    victim.check(&serve, &mut tally);
    drop(serve);
    // What was cut off is no damage, and goes when it is old.
    victim.ocimod.run(["store", "gc", "--grace", "0", "store"]).success();
    is_whole(&victim.ocimod);
    let serve = victim.ocimod.serve(["--registry", "dir:store"]);
    victim.seen.clear();
    victim.check(&serve, &mut Tally::default());
    tally
}

/// The server and what pushes to the same folder are killed at some moment. Nothing that was acknowledged is lost, and nothing is
/// there but what was pushed, whole.
#[test]
fn a_crash_loses_nothing_that_was_acknowledged() {
    let rounds = rounds("OCIMOD_TEST_CRASH_ROUNDS", ROUNDS);
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut tallies = Vec::new();
        loop {
            let start = next.fetch_add(OF_A_STORE, Ordering::Relaxed);
            if start >= rounds {
                return tallies;
            }
            tallies.push(crash(start..rounds.min(start + OF_A_STORE)));
        }
    };
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    let mut all = Tally::default();
    for tally in tallies {
        for (pusher, count) in tally.acknowledged {
            *all.acknowledged.entry(pusher).or_default() += count;
        }
        all.cut_off += tally.cut_off;
        all.landed += tally.landed;
    }
    #[allow(clippy::print_stderr)] // what a thousand rounds are run for
    {
        eprintln!("{rounds} crashes: {all:?}");
    }
    assert!(all.acknowledged.contains_key(&Pusher::Server), "no push ended before its crash: {all:?}");
    assert!(all.cut_off > 0, "no push was cut off: {all:?}");
}
