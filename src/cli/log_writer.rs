//! Writes log lines beside what the program does, many at a time.
//!
//! A server writes a line for each request. Written where the request is answered, that takes longer than many an answer, and whoever
//! reads the log slowly holds up everybody who asks. So lines go through a queue to a thread that does nothing else. A queue that is
//! full loses lines and says how many: an answer is worth more than its line.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use super::printer::Printer;

/// How many lines wait at most: a second of what a busy server writes, some MiB.
const MAX_WAITING: usize = 16_384;
/// So much is written at once.
const MAX_BATCH: usize = 64 * 1024;
/// How long lines are gathered: each time that the thread is woken costs whoever wakes it more than to write a line down.
const GATHERING: Duration = Duration::from_millis(10);
/// How long the end of the program waits for lines that nobody reads.
const PATIENCE: Duration = Duration::from_secs(2);

/// What waits to be written.
enum Waiting {
    Line(Vec<u8>),
    /// All before it is written: say so.
    End(SyncSender<()>),
}

/// Takes log lines.
#[derive(Clone)]
pub(super) struct LogWriter {
    sender: SyncSender<Waiting>,
    lost: Arc<AtomicU64>,
}

/// The one of this process.
static WRITER: OnceLock<LogWriter> = OnceLock::new();

impl LogWriter {
    /// One whose thread prints through `printer`; `None` where there can be no thread.
    pub(super) fn start(printer: &Printer) -> Option<Self> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let (printer, counted) = (printer.clone(), Arc::clone(&lost));
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_lines(&receiver, &counted, |lines| printer.log_lines(lines)))
            .ok()?;
        let writer = Self { sender, lost };
        // It is taken already where several runs share a process, as in tests.
        let _ = WRITER.set(writer.clone());
        Some(writer)
    }

    fn end(&self) {
        let (told, ended) = sync_channel(1);
        if self.sender.try_send(Waiting::End(told)).is_ok() {
            // Who cannot be told in time is not waited for.
            let _ = ended.recv_timeout(PATIENCE);
        }
    }
}

impl Write for LogWriter {
    /// Takes a whole line, as the log's formatter hands it on.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(Waiting::Line(line.to_vec())) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until what was logged so far is written.
pub(super) fn finish() {
    if let Some(writer) = WRITER.get() {
        writer.end();
    }
}

/// Writes what comes until nobody is left to send anything.
fn write_lines(waiting: &Receiver<Waiting>, lost: &AtomicU64, mut write: impl FnMut(&[u8])) {
    let mut batch = Vec::new();
    while let Ok(first) = waiting.recv() {
        thread::sleep(GATHERING);
        let mut ended = Vec::new();
        let mut next = Some(first);
        while let Some(one) = next {
            match one {
                Waiting::Line(line) => batch.extend_from_slice(&line),
                Waiting::End(told) => ended.push(told),
            }
            next = if batch.len() < MAX_BATCH { waiting.try_recv().ok() } else { None };
        }
        let lines_lost = lost.swap(0, Ordering::Relaxed);
        if lines_lost > 0 {
            batch.extend_from_slice(
                format!("{lines_lost} lines were left out here: the log is read too slowly\n").as_bytes(),
            );
        }
        if !batch.is_empty() {
            write(&batch);
            batch.clear();
        }
        for told in ended {
            // Who asked may have gone.
            let _ = told.try_send(());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_in_order_and_those_that_were_lost_are_counted() {
        let (sender, receiver) = sync_channel(8);
        let lost = AtomicU64::new(3);
        for number in 0..5 {
            sender.send(Waiting::Line(format!("{number}\n").into_bytes())).unwrap();
        }
        let (told, ended) = sync_channel(1);
        sender.send(Waiting::End(told)).unwrap();
        drop(sender);
        let mut text = Vec::new();
        write_lines(&receiver, &lost, |lines| text.extend_from_slice(lines));
        ended.try_recv().unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("0\n1\n2\n3\n4\n3 lines were left out here"), "{text}");
    }
}
