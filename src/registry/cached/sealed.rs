//! Small files that say themselves whether they are whole: what stands in them is preceded by its sum, which counts in the name
//! too. One that was cut off, changed, or put in another's place is none.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::folder::{Folder, remove};
use super::shelf::{Shelf, note_use};

/// Begins every one of them, and says how the rest is laid out.
const MAGIC: &[u8] = b"ocimod.1";

/// Length of the sum.
const SUM: usize = 32;

/// Small files on a shelf.
pub(super) struct Sealed {
    folder: Folder,
    shelf: Arc<Shelf>,
    /// The most bytes that one may have.
    limit: u64,
}

impl Sealed {
    pub(super) fn new(folder: Folder, shelf: Shelf, limit: u64) -> Self {
        Self { folder, shelf: Arc::new(shelf), limit }
    }

    /// What stands in a file; `None` where there is none that is whole. Blocks.
    pub(super) fn read(&self, name: &str) -> Option<Bytes> {
        let path = self.shelf.root.join(name);
        match self.read_whole(&path) {
            Ok(bytes) => {
                let content = MAGIC.len() + SUM;
                if bytes.len() >= content
                    && bytes.starts_with(MAGIC)
                    && bytes[MAGIC.len()..content] == sum(name, &bytes[content..])
                {
                    return Some(bytes.slice(content..));
                }
                tracing::warn!(path = %path.display(), "a damaged file was removed from the cache");
                let _ = remove(&path);
                None
            }
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "a file of the cache cannot be read");
                }
                None
            }
        }
    }

    fn read_whole(&self, path: &Path) -> io::Result<Bytes> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        note_use(&file, &metadata);
        let mut bytes = Vec::new();
        // One byte more than there can be, so that what is too long is not taken for what is whole.
        let most = self.limit + (MAGIC.len() + SUM) as u64 + 1;
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Writes a file in place of an earlier one. Where that cannot be, there is none. Blocks.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        if bytes.len() as u64 > self.limit {
            return;
        }
        let path = self.shelf.root.join(name);
        let size = bytes.len() as u64;
        let Some(_held) = self.shelf.reserve(size) else { return };
        let write = || -> io::Result<()> {
            let temporary = self.folder.temporary()?;
            let mut file = &*temporary.file;
            file.write_all(MAGIC)?;
            file.write_all(&sum(name, bytes))?;
            file.write_all(bytes)?;
            temporary.keep_as(&path)?;
            self.shelf.added(size);
            Ok(())
        };
        if let Err(error) = write() {
            tracing::warn!(path = %path.display(), %error, "a file of the cache cannot be written");
        }
    }

    /// Whether there is anything of that name. Blocks.
    pub(super) fn is_there(&self, name: &str) -> bool {
        self.shelf.root.join(name).exists()
    }

    /// Removes a file, or all below a name. Blocks.
    pub(super) fn remove(&self, name: &str) {
        let path = self.shelf.root.join(name);
        let outcome = if path.is_dir() { std::fs::remove_dir_all(&path) } else { remove(&path) };
        if let Err(error) = outcome.or_else(|error| match error.kind() {
            ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }) {
            tracing::warn!(path = %path.display(), %error, "a file of the cache cannot be removed");
        }
    }
}

fn sum(name: &str, bytes: &[u8]) -> [u8; SUM] {
    let mut hasher = Sha256::new();
    hasher.update(name.as_bytes());
    hasher.update([0]);
    hasher.update(bytes);
    hasher.finalize().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_damaged_file_is_none() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let shelf = Shelf::new(root.path().join("records"), 1 << 20, &Arc::default(), None);
        let sealed = Sealed::new(folder, shelf, 100);
        let name = "listing/ab/abc";
        let path = root.path().join("records").join(name);
        assert_eq!(sealed.read(name), None);
        sealed.write(name, b"some content");
        assert_eq!(sealed.read(name).unwrap(), "some content");
        sealed.write(name, b"other content");
        assert_eq!(sealed.read(name).unwrap(), "other content");
        sealed.write(name, &[0; 101]);
        assert_eq!(sealed.read(name).unwrap(), "other content", "what is too large is not written");

        let good = fs::read(&path).unwrap();
        let mut damages = vec![Vec::new(), good[..good.len() - 1].to_vec(), [&good[..], b"x"].concat()];
        for at in [0, 10, good.len() - 1] {
            let mut changed = good.clone();
            changed[at] ^= 1;
            damages.push(changed);
        }
        damages.push(vec![b'x'; 10_000]);
        for damage in damages {
            fs::write(&path, damage).unwrap();
            assert_eq!(sealed.read(name), None);
            assert!(!path.exists(), "and does not stay");
        }
        fs::write(&path, &good).unwrap();
        fs::rename(&path, path.with_file_name("abd")).unwrap();
        assert_eq!(sealed.read("listing/ab/abd"), None, "another's place");
        sealed.write(name, b"x");
        sealed.remove("listing");
        assert_eq!(sealed.read(name), None);
    }
}
