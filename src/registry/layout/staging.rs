//! What shall become part of a layout's file, until it is written: a folder beside it, `FILE.tar.part`.
//!
//! The order of contents in the file is fixed, so that the same contents give the same bytes, and they come in another one. The folder
//! stays where a run breaks off, and the next one takes up what is there: what is complete has its digest for a name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::store::reading;
use crate::oci::Digest;
use crate::registry::{RegistryError, Result};

/// The file that whoever writes here holds locked.
const LOCK: &str = "lock";
/// How the names of files end that are not complete.
const INCOMPLETE: &str = "tmp";

/// The folder, from when it is first needed.
pub(super) struct Staging {
    folder: PathBuf,
    /// Held from the first write to the end.
    lock: Mutex<Option<File>>,
}

impl Staging {
    /// The folder that goes with a file. Nothing is made yet.
    pub(super) fn beside(file: &Path) -> Result<Self> {
        let mut name = file.file_name().map(ToOwned::to_owned).ok_or_else(|| {
            reading(file)(io::Error::new(ErrorKind::InvalidInput, "it has no name that a file could have"))
        })?;
        name.push(".part");
        Ok(Self { folder: file.with_file_name(name), lock: Mutex::new(None) })
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What an earlier run left, with its size. Nobody has looked yet whether it is right. Blocks.
    pub(super) fn leftovers(&self) -> Result<Vec<(Digest, u64)>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(reading(&self.folder)(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(reading(&self.folder))?;
            let digest = entry.file_name().to_str().and_then(digest_of);
            let metadata = entry.metadata().map_err(reading(&self.folder))?;
            found.extend(digest.filter(|_| metadata.is_file()).map(|digest| (digest, metadata.len())));
        }
        Ok(found)
    }

    /// The file of a content.
    pub(super) fn file(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}-{}", digest.algorithm().name(), digest.hex()))
    }

    /// A new file that is not complete yet; it goes unless it is kept. Blocks.
    pub(super) fn scratch(&self) -> Result<(File, Scratch)> {
        self.hold()?;
        let mut word = [0; 16];
        getrandom::fill(&mut word).map_err(|error| self.failed()(io::Error::other(error.to_string())))?;
        let path = self.folder.join(format!("{}.{INCOMPLETE}", hex::encode(word)));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(RegistryError::io(format!("making {}", path.display())))?;
        Ok((file, Scratch(path)))
    }

    /// Writes a small content. Blocks.
    pub(super) fn write(&self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        let (mut file, scratch) = self.scratch()?;
        file.write_all(bytes).map_err(self.failed())?;
        drop(file);
        self.keep(&scratch, digest)
    }

    /// Gives a complete file its name. Blocks.
    pub(super) fn keep(&self, complete: &Scratch, digest: &Digest) -> Result<()> {
        fs::rename(&complete.0, self.file(digest)).map_err(self.failed())
    }

    /// Removes a content that is not what its name says.
    pub(super) fn discard(&self, digest: &Digest) {
        let _ = fs::remove_file(self.file(digest));
    }

    /// Removes everything: it is in the file now. Blocks.
    pub(super) fn clear(&self) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() {
            // What cannot be removed now is found by the next run, which has it in the file already.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    /// Makes the folder, and keeps others out of it.
    fn hold(&self) -> Result<()> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() {
            return Ok(());
        }
        let file = self.make().map_err(self.failed())?;
        file.try_lock().map_err(|error| {
            self.failed()(match error {
                TryLockError::WouldBlock => io::Error::new(
                    ErrorKind::WouldBlock,
                    "another copy writes to the same file at the moment; wait for its end",
                ),
                TryLockError::Error(error) => error,
            })
        })?;
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == INCOMPLETE) {
                let _ = fs::remove_file(entry.path());
            }
        }
        *lock = Some(file);
        Ok(())
    }

    /// Makes the folder where there is none. One that is there has to be ours alone: somebody else could lay links into it.
    fn make(&self) -> io::Result<File> {
        #[cfg_attr(not(unix), allow(unused_mut))]
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(&self.folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.expect_ours()?,
            made => made?,
        }
        OpenOptions::new().write(true).create(true).truncate(false).open(self.folder.join(LOCK))
    }

    fn expect_ours(&self) -> io::Result<()> {
        let metadata = fs::symlink_metadata(&self.folder)?;
        if !metadata.is_dir() {
            return Err(io::Error::other(
                "it is no folder, and a folder of that name is needed; move it away",
            ));
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            // Whoever makes a file owns it: that is who we are.
            let own =
                tempfile::tempfile_in(self.folder.parent().unwrap_or(Path::new(".")))?.metadata()?.uid();
            if metadata.mode() & 0o077 != 0 || metadata.uid() != own {
                return Err(io::Error::other(
                    "it is not yours alone, so others may have put there what they like; move it away",
                ));
            }
        }
        Ok(())
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> RegistryError {
        RegistryError::io(format!("using {}", self.folder.display()))
    }
}

impl Drop for Staging {
    /// A folder that nothing was put into does not stay.
    fn drop(&mut self) {
        let is_held = self.lock.get_mut().unwrap_or_else(PoisonError::into_inner).is_some();
        // The lock itself is there.
        if is_held && fs::read_dir(&self.folder).is_ok_and(|entries| entries.take(2).count() < 2) {
            self.clear();
        }
    }
}

/// A file that is not complete, and goes with this unless it got its name.
pub(super) struct Scratch(pub(super) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn digest_of(name: &str) -> Option<Digest> {
    name.replacen('-', ":", 1).parse().ok()
}
