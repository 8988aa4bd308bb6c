//! Writes the file of a layout anew: what was there and what was staged, in an order that depends on nothing else.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use super::index::Index;
use super::stamp::Stamp;
use super::store::{INDEX_FILE, LAYOUT_FILE, Layout, Place, State, blob_name, load};
use super::tar::{self, END};
use crate::oci::{Algorithm, Digest, Hasher};
use crate::registry::{RegistryError, Result};

/// What stands in `oci-layout`.
const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
/// Headers are gathered, so that a small content is not three calls of the system.
const BUFFER: usize = 1024 * 1024;

/// How the file was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Whether it was written; else it has everything already.
    pub is_changed: bool,
    /// Its size in bytes.
    pub size: u64,
}

impl Layout {
    /// Writes what was staged into the file, all of it or nothing, and removes the folder beside it. Tells how many bytes have passed.
    pub(super) fn commit(&self, advanced: &dyn Fn(u64)) -> Result<Committed> {
        let Some(staging) = &self.staging else {
            return Err(RegistryError::Unsupported {
                operation: "writing a layout that was opened for reading",
            });
        };
        let mut state = self.state()?;
        let (index, contents) = self.kept(&mut state)?;
        let index = index.to_bytes();
        let is_new = contents.values().any(|place| matches!(place, Place::Staged { .. }));
        if let Some(stamp) = state.stamp()
            && !is_new
            && state.index_digest == Some(Digest::of(&index))
        {
            staging.clear();
            return Ok(Committed { is_changed: false, size: stamp.size });
        }
        let folder =
            self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let writing = || RegistryError::io(format!("writing {}", self.path.display()));
        let mut file = tempfile::Builder::new();
        #[cfg(unix)]
        let file = file.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = file.tempfile_in(folder).map_err(writing())?;
        self.write(
            &state,
            &index,
            &contents,
            &mut BufWriter::with_capacity(BUFFER, file.as_file_mut()),
            advanced,
        )?;
        let finish = || -> io::Result<u64> {
            let before = present(&self.path)?;
            if before.as_ref().map(Stamp::of) != state.stamp() {
                return Err(io::Error::other("somebody else has changed it meanwhile; run the same again"));
            }
            if let Some(before) = before {
                file.as_file().set_permissions(before.permissions())?;
            }
            file.as_file().sync_all()?;
            let size = file.as_file().metadata()?.len();
            file.persist(&self.path)?;
            flush_folder(folder)?;
            Ok(size)
        };
        let size = finish().map_err(writing())?;
        staging.clear();
        *state = load(&self.path)?;
        Ok(Committed { is_changed: true, size })
    }

    /// What the file shall list, and every content that it shall have.
    fn kept(&self, state: &mut State) -> Result<(Index, BTreeMap<Digest, Place>)> {
        let mut index = state.index.clone();
        for (repository, listed) in &mut index.repositories {
            let reach = self.reach(state, repository)?;
            // What a run that broke off left without a tag is nobody's, unless it is about something that stays. What the file lists
            // already stays, also where a run has put it again and got no further.
            let tagged = listed.tagged.values().map(|entry| &entry.digest);
            let old = listed.untagged.values().filter(|entry| entry.was_there).map(|entry| &entry.digest);
            let kept = reach.kept(tagged.chain(old));
            let children = reach.listed_by_others();
            let is_kept = |digest: &Digest| kept.contains(digest) && !children.contains(digest);
            let dropped: Vec<_> = listed.untagged.keys().filter(|digest| !is_kept(digest)).cloned().collect();
            for digest in dropped {
                listed.untagged.remove(&digest);
            }
        }
        index.repositories.retain(|_, listed| listed.entries().next().is_some());
        let is_old = |(_, place): &(&Digest, &Place)| matches!(place, Place::Tar { .. });
        let old = state.blobs.iter().filter(is_old);
        let mut contents: BTreeMap<Digest, Place> =
            old.map(|(digest, place)| (digest.clone(), *place)).collect();
        let mut allowance = state.whole_allowance();
        for listed in index.repositories.values() {
            let failure = RefCell::new(None);
            let reach = Self::follow(state, listed, &mut allowance, |digest| {
                let read = self.read_manifest(state, digest);
                // What is damaged in the old file stays as it is. What was staged is ours to get right.
                if let (Err(error), Some(Place::Staged { .. })) = (&read, state.blobs.get(digest)) {
                    failure.borrow_mut().get_or_insert_with(|| error.duplicate());
                }
                read
            })?;
            if let Some(error) = failure.into_inner() {
                return Err(error);
            }
            for digest in reach.contents() {
                // What is not there is a layer that is kept elsewhere: a manifest was taken only with the others.
                if let Some(place) = state.blobs.get(digest) {
                    contents.insert(digest.clone(), *place);
                }
            }
        }
        Ok((index, contents))
    }

    fn write(
        &self,
        state: &State,
        index: &[u8],
        contents: &BTreeMap<Digest, Place>,
        to: &mut impl Write,
        advanced: &dyn Fn(u64),
    ) -> Result<()> {
        let writing = || RegistryError::io(format!("writing what shall become {}", self.path.display()));
        let mut small = |name: &str, bytes: &[u8]| -> io::Result<()> {
            to.write_all(&tar::header(name, false, bytes.len() as u64))?;
            to.write_all(bytes)?;
            to.write_all(tar::padding(bytes.len() as u64))
        };
        small(LAYOUT_FILE, LAYOUT).map_err(writing())?;
        small(INDEX_FILE, index).map_err(writing())?;
        to.write_all(&tar::header("blobs", true, 0)).map_err(writing())?;
        let mut within: Option<Algorithm> = None;
        // By algorithm and digest, which is the order of their names.
        for (digest, place) in contents {
            if within.replace(digest.algorithm()) != Some(digest.algorithm()) {
                let folder = format!("blobs/{}", digest.algorithm().name());
                to.write_all(&tar::header(&folder, true, 0)).map_err(writing())?;
            }
            let size = place.size();
            to.write_all(&tar::header(&blob_name(digest), false, size)).map_err(writing())?;
            let mut hasher = Hasher::new(digest.algorithm());
            let copied = self.content(state, digest, *place)?.bytes.each(|piece| {
                hasher.update(piece);
                advanced(piece.len() as u64);
                to.write_all(piece)
            });
            copied.map_err(writing())?;
            let actual = hasher.finish();
            if actual != *digest {
                if let (Some(staging), Place::Staged { .. }) = (&self.staging, place) {
                    // The next run fetches it again.
                    staging.discard(digest);
                }
                return Err(RegistryError::DigestMismatch { expected: digest.clone(), actual });
            }
            to.write_all(tar::padding(size)).map_err(writing())?;
        }
        to.write_all(&END).and_then(|()| to.flush()).map_err(writing())
    }
}

/// What there is of a file; `None` where it is not there.
fn present(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Brings the names in a folder to disk.
#[cfg(unix)]
fn flush_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Only Unix opens a folder to flush it; elsewhere the file system's journal has to do.
#[cfg(not(unix))]
fn flush_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}
