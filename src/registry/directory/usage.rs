//! How full a store may become: a quota on what it holds.
//!
//! What it holds is measured by a walk over the files now and then, since other processes fill the same folder; in between this
//! process counts what it adds. Each content counts once, as it is stored.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::layout::Layout;
use super::store::{is_absent, reading};
use crate::registry::{RegistryError, Result};

/// How long a measure is believed. A walk over 100,000 files takes some tenths of a second.
const MEASURE_AGAIN: Duration = Duration::from_mins(1);

/// How long it is believed when it would refuse something: what was collected meanwhile should count soon.
const DOUBT_AFTER: Duration = Duration::from_secs(1);

/// The quota of a store, and how much of it is used.
pub(super) struct Usage {
    /// In bytes; `None` where there is no quota.
    quota: Option<u64>,
    measured: Mutex<Option<Measure>>,
}

#[derive(Clone, Copy)]
struct Measure {
    at: Instant,
    bytes: u64,
    /// Whether something was refused because of it.
    has_refused: bool,
}

impl Usage {
    pub(super) fn new(quota: Option<u64>) -> Self {
        Self { quota, measured: Mutex::default() }
    }

    /// Refuses what could not be stored any more: `expected` bytes, as far as that is known. May read the whole folder's names.
    pub(super) fn check(&self, layout: &Layout, expected: u64) -> Result<()> {
        let Some(quota) = self.quota else { return Ok(()) };
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |measure: &Measure| expected <= quota.saturating_sub(measure.bytes);
        let is_believed = |measure: &Measure| {
            let is_enough = fits(measure) && !measure.has_refused;
            measure.at.elapsed() < if is_enough { MEASURE_AGAIN } else { DOUBT_AFTER }
        };
        let measure = match measured.filter(is_believed) {
            Some(measure) => measure,
            None => {
                *measured.insert(Measure { at: Instant::now(), bytes: measure(layout)?, has_refused: false })
            }
        };
        if fits(&measure) { Ok(()) } else { Err(exceeded(quota)) }
    }

    /// Counts bytes that are about to be written; refuses those above the quota.
    pub(super) fn add(&self, bytes: u64) -> Result<()> {
        let Some(quota) = self.quota else { return Ok(()) };
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(measure) = measured.as_mut() else { return Ok(()) };
        if bytes > quota.saturating_sub(measure.bytes) {
            measure.has_refused = true;
            return Err(exceeded(quota));
        }
        measure.bytes += bytes;
        Ok(())
    }
}

fn exceeded(quota: u64) -> RegistryError {
    RegistryError::io(format!("storing more than the quota of {quota} bytes"))(
        io::ErrorKind::QuotaExceeded.into(),
    )
}

/// The sizes of all contents and uploads.
fn measure(layout: &Layout) -> Result<u64> {
    let mut bytes = 0;
    let mut folders = vec![layout.shared_blobs(), layout.uploads()];
    while let Some(folder) = folders.pop() {
        for (path, metadata) in files(&folder)? {
            if metadata.is_dir() {
                folders.push(path);
            } else {
                bytes += metadata.len();
            }
        }
    }
    Ok(bytes)
}

/// What is in a folder and has not gone meanwhile. Links are not followed.
fn files(folder: &Path) -> Result<Vec<(std::path::PathBuf, fs::Metadata)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(reading(folder))? {
        let entry = entry.map_err(reading(folder))?;
        match entry.metadata() {
            Ok(metadata) => found.push((entry.path(), metadata)),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(reading(&entry.path())(error)),
        }
    }
    Ok(found)
}
