//! The loop: chooses an input, changes it, has it read, and keeps it where it has reached something new.
//!
//! By these variables, which `tests/fuzz/run` sets:
//!
//! - `OCIMOD_FUZZ_SECONDS`: for how long. Without it a fixed number of inputs is read, nothing is measured and nothing kept.
//! - `OCIMOD_FUZZ_SEED`: a number that decides all choices; it is printed.
//! - `OCIMOD_FUZZ_FOLDER`: where the inputs that reached something are kept for the next time (`corpus/NAME`), and where an
//!   input is written that broke a promise (`findings`).

use std::any::Any;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::Target;
use super::counters::Counters;
use super::limits::{self, MAX_MEMORY, MAX_TIME, TRIES, Watchdog};
use super::mutation::{Random, mutate};

/// The seed where none is given. Any other would do.
const SEED: u64 = 1;
/// How many mutated inputs a plain `cargo test` reads.
const QUICK_INPUTS: usize = 1500;
/// As little as a thread of the runtime has: a recursion that is too deep for it has to be found here.
const STACK: usize = 2 << 20;
/// So many inputs share one look at the memory.
const BATCH: usize = 256;
/// Tries at making a finding smaller.
const SHRINKS: usize = 4000;

/// Reads inputs until the time is over; panics at the first one that breaks a promise.
pub(super) fn fuzz(target: &'static Target) {
    // A thread of its own, since the stack of the main one is larger than any other.
    let run = thread::Builder::new().name(target.name.to_owned()).stack_size(STACK).spawn(move || {
        let variable = |name: &str| std::env::var(name).ok();
        let number = |name: &str| variable(name).map(|text| text.parse::<u64>().unwrap());
        let seed = number("OCIMOD_FUZZ_SEED").unwrap_or(SEED);
        match number("OCIMOD_FUZZ_SECONDS") {
            Some(seconds) => {
                let folder =
                    variable("OCIMOD_FUZZ_FOLDER").expect("`OCIMOD_FUZZ_FOLDER` says where to keep inputs");
                Long::start(target, seed, &PathBuf::from(folder)).run(Duration::from_secs(seconds));
            }
            None => quick(target, seed),
        }
    });
    if let Err(panic) = run.unwrap().join() {
        panic::resume_unwind(panic);
    }
}

/// To whoever looks on.
#[allow(clippy::print_stderr)] // The printer is for the program's users.
pub(super) fn say(text: &str) {
    eprintln!("{text}");
}

/// The inputs that once broke a promise, and those to begin with.
fn beginnings(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/regressions").join(target.name);
    let mut inputs = files_in(&folder);
    inputs.extend((target.seeds)());
    inputs
}

/// The files of a folder in the order of their names; none where there is no folder.
fn files_in(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().filter(|path| path.is_file()).map(|path| fs::read(path).unwrap()).collect()
}

/// Always the same inputs, and not many.
fn quick(target: &Target, seed: u64) {
    let corpus = beginnings(target);
    let mut random = Random::new(seed);
    let mut accepted = 0;
    let mut read = |input: &[u8]| {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
        match outcome {
            Ok(taken) => accepted += usize::from(taken),
            Err(panic) => {
                let path = std::env::temp_dir().join(format!("ocimod-fuzz-{}", name_of(input)));
                fs::write(&path, input).unwrap();
                fail(target, &path, &message(panic.as_ref()));
            }
        }
    };
    for input in &corpus {
        read(input);
    }
    for _ in 0..QUICK_INPUTS {
        read(&mutate(target, &mut random, &corpus));
    }
    assert!(accepted > 0, "the target `{}` takes none of its inputs: it tests nothing", target.name);
}

fn fail(target: &Target, path: &Path, message: &str) -> ! {
    panic!(
        "`{}` breaks a promise: {message}\nthe input is {}; mend the reader, then keep it in tests/fuzz/regressions/{}/",
        target.name,
        path.display(),
        target.name
    );
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
    text.chars().take(1000).collect()
}

fn name_of(input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// A run of some time, guided by counters, within limits.
struct Long {
    target: &'static Target,
    random: Random,
    seed: u64,
    counters: Option<Counters>,
    corpus: Vec<Vec<u8>>,
    kept: PathBuf,
    findings: PathBuf,
    /// The input that is being read, for the case that the process does not survive it.
    current: PathBuf,
    file: fs::File,
    watchdog: Watchdog,
    /// What was read since the last look at the memory.
    batch: Vec<Vec<u8>>,
    /// Memory in KiB before the batch.
    memory: u64,
    read: u64,
    accepted: u64,
}

impl Long {
    fn start(target: &'static Target, seed: u64, folder: &Path) -> Self {
        let (kept, findings) = (folder.join("corpus").join(target.name), folder.join("findings"));
        fs::create_dir_all(&kept).unwrap();
        fs::create_dir_all(&findings).unwrap();
        let current = findings.join(format!("{}.current", target.name));
        let counters = Counters::open().unwrap();
        if counters.is_none() {
            say("without counters: inputs are changed blindly");
        }
        Self {
            target,
            random: Random::new(seed),
            seed,
            counters,
            corpus: Vec::new(),
            kept,
            findings,
            file: fs::File::create(&current).unwrap(),
            watchdog: Watchdog::start(current.clone()),
            current,
            batch: Vec::new(),
            memory: 0,
            read: 0,
            accepted: 0,
        }
    }

    fn run(mut self, time: Duration) {
        // What breaks is told once, at the end.
        panic::set_hook(Box::new(|_| {}));
        let mut beginnings = beginnings(self.target);
        beginnings.extend(files_in(&self.kept));
        self.measure_anew();
        for input in beginnings {
            self.read(input, true);
        }
        let start = Instant::now();
        while start.elapsed() < time {
            let input = mutate(self.target, &mut self.random, &self.corpus);
            self.read(input, false);
        }
        self.check_memory();
        // It has survived them all.
        fs::remove_file(&self.current).unwrap();
        let reached = self.counters.as_ref().map_or(0, Counters::reached);
        say(&format!(
            "{}: {} inputs, of which {} were taken; {reached} counters reached; {} inputs kept; seed {}",
            self.target.name,
            self.read,
            self.accepted,
            self.corpus.len(),
            self.seed
        ));
        assert!(
            self.accepted > 0,
            "the target `{}` takes none of its inputs: it tests nothing",
            self.target.name
        );
    }

    /// Reads one input, and keeps it where it is `known` to be of use or has reached something new.
    fn read(&mut self, input: Vec<u8>, known: bool) {
        self.file.write_all_at(&input, 0).unwrap();
        self.file.set_len(input.len() as u64).unwrap();
        self.watchdog.beat();
        let run = self.target.run;
        let began = Instant::now();
        let work = || panic::catch_unwind(AssertUnwindSafe(|| run(&input)));
        let (outcome, is_new) = match &mut self.counters {
            Some(counters) => counters.watch(work).unwrap(),
            None => (work(), false),
        };
        let took = began.elapsed();
        match outcome {
            Ok(taken) => self.accepted += u64::from(taken),
            Err(panic) => self.report(&input, &message(panic.as_ref())),
        }
        if took > MAX_TIME {
            self.check_time(&input);
        }
        self.read += 1;
        if known || is_new {
            if is_new && !known {
                fs::write(self.kept.join(name_of(&input)), &input).unwrap();
            }
            self.corpus.push(input.clone());
        }
        self.batch.push(input);
        if self.batch.len() >= BATCH {
            self.check_memory();
        }
    }

    fn check_time(&mut self, input: &[u8]) {
        let times = (0..TRIES).map(|_| {
            let began = Instant::now();
            drop(panic::catch_unwind(|| (self.target.run)(input)));
            began.elapsed()
        });
        if let Some(best) = times.min().filter(|best| *best > MAX_TIME) {
            self.write_finding(input, &format!("it took {best:?}"));
        }
    }

    fn measure_anew(&mut self) {
        self.batch.clear();
        if limits::forget_peak()
            && let Some((now, _)) = limits::memory()
        {
            self.memory = now;
        }
    }

    /// Whether the inputs since the last time took more memory than any may take; if so, which one it was.
    fn check_memory(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if limits::memory().is_some_and(|(_, peak)| peak > self.memory + MAX_MEMORY) {
            for input in batch {
                self.measure_anew();
                drop(panic::catch_unwind(|| (self.target.run)(&input)));
                let took = limits::memory().map_or(0, |(_, peak)| peak.saturating_sub(self.memory));
                if took > MAX_MEMORY {
                    self.write_finding(&input, &format!("it took {took} KiB of memory"));
                }
            }
        }
        self.measure_anew();
    }

    /// Makes the input smaller as long as it breaks a promise, and ends the run.
    fn report(&self, input: &[u8], message: &str) -> ! {
        let breaks = |input: &[u8]| panic::catch_unwind(|| (self.target.run)(input)).is_err();
        let mut smallest = input.to_vec();
        let (mut tries, mut length) = (0, smallest.len() / 2);
        while length > 0 && tries < SHRINKS {
            let (mut at, before) = (0, smallest.len());
            while at < smallest.len() && tries < SHRINKS {
                let mut smaller = smallest.clone();
                smaller.drain(at..(at + length).min(smallest.len()));
                self.watchdog.beat();
                tries += 1;
                if breaks(&smaller) { smallest = smaller } else { at += length }
            }
            if smallest.len() == before {
                length /= 2;
            }
        }
        self.write_finding(&smallest, message)
    }

    fn write_finding(&self, input: &[u8], message: &str) -> ! {
        let path = self.findings.join(format!("{}-{}", self.target.name, name_of(input)));
        fs::write(&path, input).unwrap();
        drop(fs::remove_file(&self.current));
        say(&format!("{}: seed {}, input {}: {message}", self.target.name, self.seed, self.read));
        fail(self.target, &path, message);
    }
}
