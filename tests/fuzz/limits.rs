//! How long one input may take and how much memory, as the system counts it.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// No input of a target's length may take longer, by the best of [`TRIES`] times, so that a busy machine is not taken for a slow
/// reader: ordinary ones take microseconds.
pub(super) const MAX_TIME: Duration = Duration::from_secs(1);
/// How often a slow input is tried.
pub(super) const TRIES: usize = 3;
/// After so long an input is taken to be without end.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// So many KiB may an input take above what the process had before: inputs are thousand times smaller.
pub(super) const MAX_MEMORY: u64 = 32 * 1024;

/// The process's memory in KiB, and the most that it ever was since [`forget_peak`].
pub(super) fn memory() -> Option<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

/// From here on the most that the process had is what it has now. `false` where the system cannot say.
pub(super) fn forget_peak() -> bool {
    // `proc(5)`: 5 resets the "high water mark".
    let file = fs::OpenOptions::new().write(true).open("/proc/self/clear_refs");
    file.and_then(|mut file| file.write_all(b"5")).is_ok()
}

/// Ends the process where an input takes without end.
pub(super) struct Watchdog(Arc<AtomicU64>);

impl Watchdog {
    /// `input` is where the input that is being read can be found.
    pub(super) fn start(input: PathBuf) -> Self {
        let beat = Arc::new(AtomicU64::new(0));
        let watched = Arc::downgrade(&beat);
        thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            while let Some(beat) = watched.upgrade() {
                let now = beat.load(Ordering::Relaxed);
                drop(beat);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > MAX_WAIT {
                    super::engine::say(&format!("{} is read without end", input.display()));
                    std::process::abort();
                }
                thread::sleep(Duration::from_secs(1));
            }
        });
        Self(beat)
    }

    /// The next input.
    pub(super) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
