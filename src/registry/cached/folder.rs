//! The folder of a cache: how a file comes to its name whole or not at all, and what becomes of those whose process has died.
//!
//! ```text
//! blobs/sha256/<2>/<hex>       blobs by digest
//! manifests/<2>/<scope>/<hex>  manifests by registry, repository and digest
//! records/<kind>/<2>/<hex>     what callers noted
//! temporary/                   files on their way there, each locked by who writes it
//! ```
//!
//! Everything in it can be fetched again, so nothing is flushed to disk, and whatever is read is verified. Several processes may
//! use one folder. Nobody but their user may look into it: it has what the registry shows to who has credentials.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::registry::{RegistryError, Result};

/// The folder, and the one in it for files that are not complete.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) root: PathBuf,
    temporary: PathBuf,
}

impl Folder {
    /// Makes the folder where it is not there, and removes what dead processes left.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let folder = Self { root: root.to_owned(), temporary: root.join("temporary") };
        let open = || -> io::Result<()> {
            make_folder(root)?;
            for name in ["blobs", "manifests", "records", "temporary"] {
                let inner = root.join(name);
                make_folder(&inner)?;
                close_to_others(&inner)?;
            }
            folder.remove_leftovers()?;
            folder.temporary().map(drop)
        };
        open().map_err(RegistryError::io(format!("opening the cache {}", root.display())))?;
        Ok(folder)
    }

    /// A new file, which is removed again unless it is given a name.
    pub(super) fn temporary(&self) -> io::Result<Temporary> {
        let mut word = [0; 16];
        getrandom::fill(&mut word).map_err(|error| io::Error::other(error.to_string()))?;
        let path = self.temporary.join(format!("{}.part", hex::encode(word)));
        // Nobody clears up between the making of the file and its lock.
        let turn = self.lock_file()?;
        let is_locked = turn.lock_shared().is_ok();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        if is_locked {
            // Where there are no locks nothing is cleared up either.
            let _ = file.try_lock();
        }
        Ok(Temporary { file: Arc::new(file), path, is_kept: false })
    }

    /// Removes files whose writer is no more: it would hold their lock.
    fn remove_leftovers(&self) -> io::Result<()> {
        let turn = self.lock_file()?;
        if turn.lock().is_err() {
            return Ok(());
        }
        for entry in fs::read_dir(&self.temporary)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "part")
                && File::open(&path).is_ok_and(|file| file.try_lock().is_ok())
            {
                remove(&path)?;
            }
        }
        Ok(())
    }

    fn lock_file(&self) -> io::Result<File> {
        let path = self.temporary.join("lock");
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    }
}

/// A file that is not complete yet.
pub(super) struct Temporary {
    pub(super) file: Arc<File>,
    path: PathBuf,
    is_kept: bool,
}

impl Temporary {
    /// Gives it a name, in place of what has it now.
    pub(super) fn keep_as(mut self, path: &Path) -> io::Result<()> {
        // Who clears up may take an empty folder away between the two steps.
        for _ in 0..3 {
            if let Some(folder) = path.parent() {
                make_folder(folder)?;
            }
            match fs::rename(&self.path, path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                outcome => {
                    self.is_kept = outcome.is_ok();
                    return outcome;
                }
            }
        }
        Err(ErrorKind::NotFound.into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_kept {
            // Where this fails there is one more leftover for the next process.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a file; that it is gone already is as good.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(unix)]
fn close_to_others(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = fs::metadata(folder)?.permissions();
    if permissions.mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Elsewhere a folder below the user's own is closed by itself.
#[cfg(not(unix))]
fn close_to_others(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Reads at an offset, so that many read one file and none moves another's place.
#[cfg(unix)]
pub(super) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

/// Reads at an offset.
#[cfg(windows)]
pub(super) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, offset)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn leftovers(root: &Path) -> usize {
        let entries = fs::read_dir(root.join("temporary")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name() != "lock").count()
    }

    #[test]
    fn leftovers_of_the_dead_are_removed_and_those_of_the_living_are_not() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let living = folder.temporary().unwrap();
        fs::write(root.path().join("temporary/dead.part"), "x").unwrap();
        Folder::open(root.path()).unwrap();
        assert_eq!(leftovers(root.path()), 1);
        let name = root.path().join("blobs/a/b");
        living.keep_as(&name).unwrap();
        assert!(name.is_file());
        drop(folder.temporary().unwrap());
        assert_eq!(leftovers(root.path()), 0);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_looks_into_it() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cache");
        Folder::open(&folder).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        fs::set_permissions(folder.join("blobs"), fs::Permissions::from_mode(0o755)).unwrap();
        Folder::open(&folder).unwrap();
        assert_eq!(mode(&folder.join("blobs")), 0o700);
    }
}
