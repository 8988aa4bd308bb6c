//! The files of a module, wherever they are: in a folder, in a zip, or in memory.
//!
//! A tree is names and where to read each; content is read when it is packed or hashed, block by block.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ModuleKind;
use super::check::{CheckError, ListedEntry, check_content};
use super::content::{ContentReader, locate_content};
use super::folder::list_folder;
use super::names::check_entries;
use super::pack::PackError;
use crate::oci::{Algorithm, Digest, Hasher};

/// Bytes that are read and compressed at once. Blocks are always full but for the last, so that the compressed bytes do not
/// depend on how a source hands out its content.
const BLOCK: usize = 64 << 10;

/// A file of a tree.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name relative to the root, with `/` between folders.
    pub name: String,
    /// Mode 0755 where anybody may execute it, else 0644: the rest of a mode is the umask's, not the module's.
    pub executable: bool,
    /// Bytes of the content.
    pub size: u64,
    pub(super) source: Source,
}

/// Where a file's content is.
#[derive(Clone, Debug)]
pub(super) enum Source {
    File(PathBuf),
    Zip { path: Arc<Path>, entry: Box<ListedEntry> },
    Bytes(Arc<[u8]>),
}

/// The files that a push would send, sorted by the bytes of their names.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    entries: Vec<Entry>,
    kind: Option<ModuleKind>,
    warnings: Vec<String>,
}

impl Tree {
    /// The files of a folder that belong to a module of this kind.
    ///
    /// OpenTofu: all but version control, `.terraform/`, state, and what `.gitignore`, `.terraformignore` and `.ocimodignore`
    /// say (those of the folders above too, up to the root of the git repository); links within the folder are followed, other
    /// links refused. CUE: what `cue mod publish` would take. `git_listed` are the paths, relative to `dir`, that git knows:
    /// where they are given (CUE's `source: kind: "git"`), no other file is taken.
    pub fn from_folder(
        dir: &Path,
        kind: ModuleKind,
        git_listed: Option<Vec<PathBuf>>,
    ) -> Result<Self, PackError> {
        let (mut entries, warnings) = list_folder(dir, kind, git_listed)?;
        entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        let tree = Self { entries, kind: Some(kind), warnings };
        tree.check()?;
        Ok(tree)
    }

    /// The files of a zip, which is checked in full first. Without a kind, the rules that hold for both are checked. The file
    /// must stay where it is as long as the tree is read; content that changed since is noticed.
    pub fn from_zip(path: &Path, kind: impl Into<Option<ModuleKind>>) -> Result<Self, CheckError> {
        let kind = kind.into();
        let file = File::open(path).map_err(CheckError::Unreadable)?;
        let size = file.metadata().map_err(CheckError::Unreadable)?.len();
        let path: Arc<Path> = path.into();
        let files = check_content(file, size, kind)?.entries.into_iter().filter(|entry| !entry.is_folder());
        let mut entries: Vec<Entry> = files
            .map(|entry| Entry {
                name: entry.name.clone(),
                executable: entry.is_executable(),
                size: entry.size,
                source: Source::Zip { path: Arc::clone(&path), entry: Box::new(entry) },
            })
            .collect();
        entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(Self { entries, kind, warnings: Vec::new() })
    }

    /// A tree of files in memory, none executable: what a generated module is made of.
    pub fn of_files<B: Into<Arc<[u8]>>>(files: impl IntoIterator<Item = (String, B)>) -> Self {
        let files: BTreeMap<String, Arc<[u8]>> =
            files.into_iter().map(|(name, bytes)| (name, bytes.into())).collect();
        let entry = |(name, bytes)| Entry::of_bytes(name, bytes);
        Self { entries: files.into_iter().map(entry).collect(), ..Self::default() }
    }

    /// The same with this file, not executable, added or in place of the one of that name. Whether the name may stand there
    /// is checked when the tree is packed.
    #[must_use]
    pub fn with_file(mut self, name: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        let entry = Entry::of_bytes(name.into(), bytes.into());
        match self.find(&entry.name) {
            Ok(position) => self.entries[position] = entry,
            Err(position) => self.entries.insert(position, entry),
        }
        self
    }

    /// The same without the file of this name, if it has one.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        if let Ok(position) = self.find(name) {
            self.entries.remove(position);
        }
        self
    }

    /// The files, sorted by the bytes of their names.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The file of this exact name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.find(name).ok().map(|position| &self.entries[position])
    }

    /// What was left out and deserves a word, a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The content of a file of this tree. That of a zip is checked as it is read: read to the end, and take an error for
    /// what it is.
    pub fn open(&self, entry: &Entry) -> io::Result<Box<dyn Read + '_>> {
        Ok(match &entry.source {
            Source::File(path) => Box::new(File::open(path)?),
            Source::Bytes(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
            Source::Zip { path, entry } => {
                let mut reader = BufReader::new(File::open(path)?);
                locate_content(&mut reader, entry)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                Box::new(ContentReader::new(reader, entry))
            }
        })
    }

    /// The whole content of a file that may be `limit` bytes long; `None` if there is no file of this name.
    pub fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, PackError> {
        let Some(entry) = self.get(name) else { return Ok(None) };
        if entry.size > limit {
            return Err(CheckError::FileTooLarge { name: name.to_owned(), size: entry.size, limit }.into());
        }
        let mut bytes = Vec::new();
        self.read_blocks(entry, |block| {
            bytes.extend_from_slice(block);
            Ok(())
        })?;
        Ok(Some(bytes))
    }

    /// A hash over names, modes and bytes of all files but those named in `except`: equal for trees of equal content, whatever
    /// zip they came from. It is no format of anybody's and not to be stored.
    pub fn content_hash(&self, except: &[&str]) -> Result<Digest, PackError> {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        for entry in self.entries.iter().filter(|entry| !except.contains(&entry.name.as_str())) {
            hasher.update(&(entry.name.len() as u64).to_le_bytes());
            hasher.update(entry.name.as_bytes());
            hasher.update(&[u8::from(entry.executable)]);
            hasher.update(&entry.size.to_le_bytes());
            self.read_blocks(entry, |block| {
                hasher.update(block);
                Ok(())
            })?;
        }
        Ok(hasher.finish())
    }

    /// Checks names and sizes by the rules of every zip, and by those of the tree's kind.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        check_entries(self.entries.iter().map(|entry| (entry.name.as_str(), entry.size)), self.kind)
    }

    /// Hands the content of `entry` on in full blocks, and makes sure that it is as long as when the tree was made.
    pub(super) fn read_blocks(
        &self,
        entry: &Entry,
        mut consume: impl FnMut(&[u8]) -> Result<(), PackError>,
    ) -> Result<(), PackError> {
        let unreadable = |error: io::Error| match error.downcast::<CheckError>() {
            Ok(refusal) => PackError::Refused(refusal),
            Err(source) => PackError::Unreadable { path: entry.path(), source },
        };
        let mut reader = self.open(entry).map_err(unreadable)?;
        let mut block = Vec::with_capacity(BLOCK);
        let mut total = 0;
        loop {
            block.clear();
            reader.by_ref().take(BLOCK as u64).read_to_end(&mut block).map_err(unreadable)?;
            total += block.len() as u64;
            if total > entry.size {
                break;
            }
            consume(&block)?;
            if block.len() < BLOCK {
                break;
            }
        }
        if total == entry.size { Ok(()) } else { Err(PackError::Changed { name: entry.name.clone() }) }
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name))
    }
}

impl Entry {
    fn of_bytes(name: String, bytes: Arc<[u8]>) -> Self {
        Self { name, executable: false, size: bytes.len() as u64, source: Source::Bytes(bytes) }
    }

    /// The file to name where the content cannot be read.
    fn path(&self) -> PathBuf {
        match &self.source {
            Source::File(path) => path.clone(),
            Source::Zip { path, .. } => path.to_path_buf(),
            Source::Bytes(_) => PathBuf::from(&self.name),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::hand_zip::{HandEntry, zip_of};
    use super::*;

    fn write_zip(entries: &[HandEntry]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), zip_of(entries)).unwrap();
        file
    }

    fn hash(tree: &Tree) -> Digest {
        tree.content_hash(&["cue.mod/module.cue"]).unwrap()
    }

    #[test]
    fn files_are_added_replaced_and_taken_out_in_order() {
        let tree = Tree::default()
            .with_file("b", *b"1")
            .with_file("a", *b"2")
            .with_file("b", *b"three")
            .without("c");
        let names: Vec<_> = tree.entries().iter().map(|entry| (entry.name.as_str(), entry.size)).collect();
        assert_eq!(names, [("a", 1), ("b", 5)]);
        assert_eq!(tree.read("b", 5).unwrap().unwrap(), b"three");
        assert_eq!(tree.read("b", 4).unwrap_err().rule(), "file-too-large");
        assert!(tree.read("c", 4).unwrap().is_none());
        assert!(tree.without("a").get("a").is_none());
    }

    #[test]
    fn a_zip_of_others_is_a_tree_of_its_files() {
        let file = write_zip(&[
            HandEntry::stored("b/", b""),
            HandEntry::deflated("b/run.sh", b"#!/bin/sh").mode(0o100_711).described(true, false),
            HandEntry::stored("a", b"text"),
        ]);
        let tree = Tree::from_zip(file.path(), ModuleKind::OpenTofu).unwrap();
        let names: Vec<_> =
            tree.entries().iter().map(|entry| (entry.name.as_str(), entry.executable)).collect();
        assert_eq!(names, [("a", false), ("b/run.sh", true)]);
        assert_eq!(tree.read("b/run.sh", 100).unwrap().unwrap(), b"#!/bin/sh");
        assert_eq!(Tree::from_zip(file.path(), ModuleKind::Cue).unwrap_err().rule(), "module-file-missing");
    }

    #[test]
    fn content_is_the_same_however_it_is_packed_and_differs_by_name_mode_and_bytes() {
        let memory = Tree::default().with_file("a", *b"text").with_file("b", []);
        assert_eq!(hash(&memory), hash(&memory.clone().with_file("cue.mod/module.cue", *b"generated")));
        for other in [
            memory.clone().with_file("a", *b"texT"),
            memory.clone().without("b"),
            memory.clone().without("b").with_file("c", []),
            memory.clone().with_file("a", *b"tex").with_file("b", *b"t"),
        ] {
            assert_ne!(hash(&memory), hash(&other));
        }
        let executable =
            write_zip(&[HandEntry::stored("a", b"text").mode(0o755), HandEntry::stored("b", b"")]);
        assert_ne!(hash(&memory), hash(&Tree::from_zip(executable.path(), None).unwrap()));
        for entries in [
            [HandEntry::stored("a", b"text").mode(0o640), HandEntry::stored("b", b"")],
            [
                HandEntry::deflated("b", b"").mode(0o644),
                HandEntry::deflated("a", b"text").described(false, true),
            ],
        ] {
            let zip = write_zip(&entries);
            assert_eq!(hash(&memory), hash(&Tree::from_zip(zip.path(), None).unwrap()));
        }
    }

    #[test]
    fn content_that_changes_while_it_is_used_is_noticed() {
        let file = write_zip(&[HandEntry::stored("a", b"text")]);
        let tree = Tree::from_zip(file.path(), None).unwrap();
        std::fs::write(
            file.path(),
            zip_of(&[HandEntry::stored("a", b"next").both(|header| header.crc32 = 1)]),
        )
        .unwrap();
        assert!(tree.read("a", 10).is_err());

        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("main.tf"), "1").unwrap();
        let tree = Tree::from_folder(folder.path(), ModuleKind::OpenTofu, None).unwrap();
        for text in ["", "12"] {
            std::fs::write(folder.path().join("main.tf"), text).unwrap();
            assert_eq!(tree.content_hash(&[]).unwrap_err().rule(), "changed-while-packing");
        }
        std::fs::remove_file(folder.path().join("main.tf")).unwrap();
        assert_eq!(tree.content_hash(&[]).unwrap_err().rule(), "unreadable");
    }
}
