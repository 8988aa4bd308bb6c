//! Writes log lines; those of a server beside what the program does, many at a time.
//!
//! A server writes a line for each request. Written where the request is answered, that takes longer than many an answer, and whoever
//! reads the log slowly holds up everybody who asks. So lines are gathered, and a thread that does nothing else writes them. When too
//! many wait, lines are lost, and it is said how many: an answer is worth more than its line.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::printer::Printer;

/// How much waits at most, in bytes: a second of what a busy server writes.
const MAX_WAITING: usize = 8 * 1024 * 1024;
/// How long lines are gathered: each time that the thread is woken costs whoever wakes it more than to write a line down.
const GATHERING: Duration = Duration::from_millis(10);
/// How long the end of the program waits for lines that nobody reads.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes whole log lines.
#[derive(Clone)]
pub(super) enum LogWriter {
    /// Each is written before the program goes on.
    AtOnce(Printer),
    /// They are written by and by.
    Gathered(Arc<Waiting>),
}

/// What waits to be written.
#[derive(Default)]
pub(super) struct Waiting {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    lost: u64,
    /// Whether the thread waits for a first line, and has to be woken.
    is_idle: bool,
    /// Whether nothing more is gathered: the program ends.
    is_ending: bool,
    /// Whether the thread writes what it took.
    is_writing: bool,
}

/// What the end of the program waits for.
static GATHERED: OnceLock<Arc<Waiting>> = OnceLock::new();

impl LogWriter {
    /// One whose thread prints through `printer`; where there can be no thread, one that prints at once.
    pub(super) fn gathered(printer: &Printer) -> Self {
        let waiting = Arc::new(Waiting::default());
        let (theirs, out) = (Arc::clone(&waiting), printer.clone());
        let thread = thread::Builder::new().name("log".to_owned());
        if thread.spawn(move || theirs.write_lines(|lines| out.log_lines(lines))).is_err() {
            return Self::AtOnce(printer.clone());
        }
        // It is taken already where several runs share a process, as in tests.
        let _ = GATHERED.set(Arc::clone(&waiting));
        Self::Gathered(waiting)
    }

    /// Writes a whole line down.
    pub(super) fn line(&self, line: &[u8]) {
        match self {
            Self::AtOnce(printer) => printer.log_lines(line),
            Self::Gathered(waiting) => waiting.add(line),
        }
    }
}

/// Waits until what was logged so far is written, though not for ever.
pub(super) fn finish() {
    if let Some(waiting) = GATHERED.get() {
        waiting.finish(PATIENCE);
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: &[u8]) {
        let mut lines = self.lock();
        if lines.text.len() + line.len() > MAX_WAITING {
            lines.lost += 1;
            return;
        }
        lines.text.extend_from_slice(line);
        if mem::take(&mut lines.is_idle) {
            drop(lines);
            self.changed.notify_all();
        }
    }

    fn finish(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut lines = self.lock();
        lines.is_ending = true;
        self.changed.notify_all();
        while !lines.text.is_empty() || lines.is_writing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (lines, _) = self.changed.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner);
        }
        // Another run in the same process may go on.
        lines.is_ending = false;
    }

    /// Writes what comes, for the life of the process.
    fn write_lines(&self, mut write: impl FnMut(&[u8])) {
        let mut batch = Vec::new();
        loop {
            self.next_batch(&mut batch);
            write(&batch);
            batch.clear();
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    /// What has come, once something has.
    fn next_batch(&self, batch: &mut Vec<u8>) {
        let mut lines = self.lock();
        while lines.text.is_empty() {
            lines.is_idle = true;
            lines = self.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
        lines.is_idle = false;
        let until = Instant::now() + GATHERING;
        while !lines.is_ending {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (lines, _) = self.changed.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner);
        }
        mem::swap(&mut lines.text, batch);
        lines.is_writing = true;
        let lost = mem::take(&mut lines.lost);
        drop(lines);
        if lost > 0 {
            let told = format!("{lost} lines were left out here: the log is read too slowly\n");
            batch.extend_from_slice(told.as_bytes());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_gathered_in_order_and_those_that_were_lost_are_counted() {
        let waiting = Waiting::default();
        let half = vec![b'x'; MAX_WAITING / 2];
        waiting.add(b"0\n");
        waiting.add(&half);
        waiting.add(&half);
        waiting.add(b"1\n");
        waiting.add(&half);
        let mut batch = Vec::new();
        waiting.next_batch(&mut batch);
        assert!(batch.starts_with(b"0\nxx"));
        let end = String::from_utf8_lossy(&batch[2 + half.len()..]);
        assert!(end.starts_with("1\n2 lines were left out here"), "{end}");
        assert!(waiting.lock().text.is_empty());
    }

    #[test]
    fn the_end_waits_for_what_is_written() {
        let waiting = Arc::new(Waiting::default());
        let written = Arc::new(Mutex::new(Vec::new()));
        let (theirs, out) = (Arc::clone(&waiting), Arc::clone(&written));
        thread::spawn(move || {
            theirs.write_lines(|lines| {
                thread::sleep(Duration::from_millis(20));
                out.lock().unwrap().extend_from_slice(lines);
            });
        });
        for number in 0..5 {
            waiting.add(format!("{number}\n").as_bytes());
        }
        waiting.finish(Duration::from_mins(1));
        assert_eq!(*written.lock().unwrap(), b"0\n1\n2\n3\n4\n");
        waiting.add(b"5\n");
        waiting.finish(Duration::from_mins(1));
        assert!(written.lock().unwrap().ends_with(b"4\n5\n"));
    }

    #[test]
    fn the_end_does_not_wait_for_who_does_not_read() {
        let waiting = Arc::new(Waiting::default());
        let theirs = Arc::clone(&waiting);
        thread::spawn(move || theirs.write_lines(|_| thread::sleep(Duration::from_hours(1))));
        waiting.add(b"0\n");
        waiting.finish(Duration::from_millis(20));
    }
}
