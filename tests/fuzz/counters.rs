//! Which code an input has reached, by the counters that the compiler puts into every branch (`-C instrument-coverage`).
//!
//! The run-time of these counters keeps them in a file that is mapped into memory (`%c` in `LLVM_PROFILE_FILE`), so that they
//! can be read like any file while the program runs: no `unsafe`, no library in C, no nightly compiler. Nothing is assumed of the
//! file's form: a word of it that grows while an input is read is a counter.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Words of eight bytes that are read at once.
const BLOCK: usize = 256;
/// The file is read whole for one input of so many; for the others only the blocks that have ever changed.
const WHOLE: u64 = 256;

/// The counters of this process.
pub(super) struct Counters {
    file: File,
    words: usize,
    /// Blocks in which something has changed.
    active: BTreeSet<usize>,
    before: Vec<u8>,
    after: Vec<u8>,
    /// For each word, which magnitudes of growth were seen.
    seen: Vec<u16>,
    inputs: u64,
}

impl Counters {
    /// The counters in the file that `LLVM_PROFILE_FILE` names; `None` where the program was built without, or the file is
    /// written at the end alone.
    pub(super) fn open() -> io::Result<Option<Self>> {
        let Ok(path) = std::env::var("LLVM_PROFILE_FILE") else { return Ok(None) };
        let Some(path) = path.strip_suffix("%c") else { return Ok(None) };
        let file = File::open(path)?;
        let words = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / 8;
        if words == 0 {
            return Err(io::Error::other(
                "the file of counters is empty: the program was built without them",
            ));
        }
        Ok(Some(Self {
            file,
            words,
            active: BTreeSet::new(),
            before: vec![0; words * 8],
            after: vec![0; words * 8],
            seen: vec![0; words],
            inputs: 0,
        }))
    }

    /// How many counters have moved so far.
    pub(super) fn reached(&self) -> usize {
        self.seen.iter().filter(|magnitudes| **magnitudes != 0).count()
    }

    /// Runs `work`, and says whether it has gone where none has gone before.
    pub(super) fn watch<T>(&mut self, work: impl FnOnce() -> T) -> io::Result<(T, bool)> {
        // Of the first inputs everything is looked at.
        let whole = self.inputs < WHOLE || self.inputs.is_multiple_of(WHOLE);
        self.inputs += 1;
        let blocks: Vec<usize> = if whole {
            (0..self.words.div_ceil(BLOCK)).collect()
        } else {
            self.active.iter().copied().collect()
        };
        let runs = runs(&blocks, self.words);
        for run in &runs {
            self.file.read_exact_at(&mut self.before[run.clone()], run.start as u64)?;
        }
        let outcome = work();
        for run in &runs {
            self.file.read_exact_at(&mut self.after[run.clone()], run.start as u64)?;
        }
        let mut is_new = false;
        for run in runs {
            if self.before[run.clone()] == self.after[run.clone()] {
                continue;
            }
            let words = self.before[run.clone()].chunks_exact(8).zip(self.after[run.clone()].chunks_exact(8));
            for (index, (before, after)) in words.enumerate() {
                if before == after {
                    continue;
                }
                let [before, after] =
                    [before, after].map(|word| word.try_into().map_or(0, u64::from_le_bytes));
                let place = run.start / 8 + index;
                self.active.insert(place / BLOCK);
                let magnitude = 1_u16 << magnitude(after.wrapping_sub(before));
                is_new |= self.seen[place] & magnitude == 0;
                self.seen[place] |= magnitude;
            }
        }
        Ok((outcome, is_new))
    }
}

/// Bytes of neighbouring blocks, so that few reads are enough.
fn runs(blocks: &[usize], words: usize) -> Vec<std::ops::Range<usize>> {
    let runs = blocks.chunk_by(|one, next| one + 1 == *next);
    let ends = runs.filter_map(|run| Some((*run.first()?, *run.last()?)));
    ends.map(|(first, last)| first * BLOCK * 8..((last + 1) * BLOCK).min(words) * 8).collect()
}

/// Once, twice, three times, and then by powers: that a loop runs 1,000 or 1,001 times is no news.
fn magnitude(growth: u64) -> u32 {
    match growth {
        0..=3 => u32::try_from(growth).unwrap_or_default(),
        4..=7 => 4,
        8..=15 => 5,
        16..=31 => 6,
        32..=127 => 7,
        128..=1023 => 8,
        1024..=65_535 => 9,
        _ => 10,
    }
}
