//! Brings `index.json` to disk, at a cost that does not grow with the number of versions.
//!
//! A file that is complete and flushed comes to the name by a rename, so whoever opens the name reads a whole document, now and
//! after a crash. A short one is written anew each time. A long one is not: the file that had the name before is kept beside, lacks
//! only what was pushed since, and has room left. Those entries are written over its blanks, it is flushed, and the two change
//! places. Whoever still reads the older file from before sees the blanks or the entries in their place, so a whole document too.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::layout::{Layout, Scratch, beside, flush_folder, replace};
use super::stamp::Stamp;
use crate::oci::Repository;

/// A shorter document takes no longer to write anew than to write at all.
const LONG: usize = 64 * 1024;

/// The blanks that a long document is written with, for the next entries: some 200.
const ROOM: usize = 64 * 1024;

/// How much is read at a time to compare.
const PIECE: usize = 64 * 1024;

/// A document to be written.
pub(super) struct Document<'a> {
    /// What was there before.
    pub(super) text: &'a [u8],
    /// What is new, behind it.
    pub(super) added: &'a [u8],
    /// What comes last. Blanks may stand before it.
    pub(super) tail: &'a [u8],
}

impl Document<'_> {
    /// Its length in bytes, without blanks.
    pub(super) fn length(&self) -> usize {
        self.text.len() + self.added.len() + self.tail.len()
    }

    /// All of it but what comes before `start`, with so many blanks before the tail.
    fn rest(&self, start: usize, blanks: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length() + blanks - start);
        bytes.extend_from_slice(&self.text[start..]);
        bytes.extend_from_slice(self.added);
        bytes.resize(bytes.len() + blanks, b' ');
        bytes.extend_from_slice(self.tail);
        bytes
    }
}

/// What this process knows of the file that had the name before the one that has it now. Right for as long as nobody else has
/// written `index.json`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    /// As it was when it had the name.
    pub(super) stamp: Stamp,
    /// How much of the document is in it. Behind that there are blanks and the tail alone.
    pub(super) length: usize,
}

impl Layout {
    /// Puts a document in the place of a repository's `index.json`, under its lock. With a `spare` the document is what the spare
    /// has and more; it may be `None` where that is not known.
    pub(super) fn write_index(
        &self,
        repository: &Repository,
        document: &Document<'_>,
        spare: Option<Spare>,
    ) -> io::Result<File> {
        let (path, spare_path) = (self.index(repository), self.spare_index(repository));
        if document.length() < LONG {
            let file = replace(&path, &document.rest(0, 0))?;
            // Of a list that was long once.
            let _ = fs::remove_file(&spare_path);
            return Ok(file);
        }
        // Where links are missing or used up nothing is kept, and the next document is written anew.
        let kept = Scratch(spare_path.with_extension("old"));
        let _ = fs::remove_file(&kept.0);
        let is_kept = (self.link)(&path, &kept.0).is_ok();
        let file = match bring_up_to_date(&spare_path, document, spare)? {
            Some(file) if fs::rename(&spare_path, &path).is_ok() => file,
            _ => {
                let beside = Scratch(beside(&path)?);
                let mut file = OpenOptions::new().write(true).create_new(true).open(&beside.0)?;
                file.write_all(&document.rest(0, ROOM))?;
                file.sync_all()?;
                fs::rename(&beside.0, &path)?;
                file
            }
        };
        if is_kept {
            let _ = fs::rename(&kept.0, &spare_path);
        }
        path.parent().map_or(Ok(()), flush_folder)?;
        Ok(file)
    }
}

/// Writes what is missing over the blanks of the spare file. `None` where that cannot be done: it is not there, it has another
/// content or no room, it has a second name (somebody's copy made of links).
fn bring_up_to_date(path: &Path, document: &Document<'_>, known: Option<Spare>) -> io::Result<Option<File>> {
    // A link to another place would be one to what is read now. Where the system does not tell how many names a file has, none is used.
    let is_ours = |metadata: &Metadata| metadata.is_file() && links(metadata) == 1 && cfg!(unix);
    if !fs::symlink_metadata(path).is_ok_and(|metadata| is_ours(&metadata)) {
        return Ok(None);
    }
    let Ok(mut file) = OpenOptions::new().read(true).write(true).open(path) else { return Ok(None) };
    let metadata = file.metadata()?;
    let Ok(size) = usize::try_from(metadata.len()) else { return Ok(None) };
    let Some(blanks) = size.checked_sub(document.length()) else { return Ok(None) };
    let stamp = Stamp::of(&metadata);
    let known = known.filter(|known| known.stamp.has_same_content(&stamp)).map(|known| known.length);
    let Some(start) = (match known {
        Some(length) => Some(length),
        None => common_start(&mut file, document)?,
    }) else {
        return Ok(None);
    };
    // All of it to the end of the file: whoever was killed here before may have left something.
    if size.saturating_sub(start) > 2 * ROOM {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(start as u64))?;
    file.write_all(&document.rest(start, blanks))?;
    // Neither its length nor its place on disk is another.
    file.sync_data()?;
    Ok(Some(file))
}

/// How much of a document is in a file that has blanks and the tail behind that; `None` where it has anything else.
fn common_start(file: &mut File, document: &Document<'_>) -> io::Result<Option<usize>> {
    let mut piece = vec![0; PIECE];
    let mut start = 0;
    let rest = loop {
        let count = file.read(&mut piece)?;
        let wanted = &document.text[start..];
        if count > 0 && wanted.starts_with(&piece[..count]) {
            start += count;
            continue;
        }
        let alike = piece[..count].iter().zip(wanted).take_while(|(there, wanted)| there == wanted).count();
        start += alike;
        break &piece[alike..count];
    };
    let mut rest = rest.to_vec();
    file.take(2 * ROOM as u64).read_to_end(&mut rest)?;
    // Of the entries that are alike, the last one may be there in part: then what follows are no blanks.
    let is_blank =
        rest.strip_suffix(document.tail).is_some_and(|blanks| blanks.iter().all(|&byte| byte == b' '));
    Ok(is_blank.then_some(start))
}

/// How many names a file has.
#[cfg(unix)]
pub(super) fn links(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(metadata)
}

/// Where the system does not tell, one: at worst a content that is taken for unused is stored once more at its next push.
#[cfg(not(unix))]
pub(super) fn links(_metadata: &Metadata) -> u64 {
    1
}
