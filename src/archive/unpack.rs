//! Unpacks a zip into a folder: all of it or nothing.
//!
//! The zip is checked in full before the first file is made. Files go into a temporary folder beside the target, which is
//! then renamed. A target that is there already and empty stays (it may be the working folder of a shell, or mounted): then
//! the temporary folder is in it, and what it holds is moved up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::check::{CheckError, ListedEntry, check_content};
use super::content::{ContentReader, locate_content};

/// How temporary folders begin: hidden, and recognisable should a killed process leave one.
const TEMPORARY_PREFIX: &str = ".ocimod-";

/// Why a zip was not unpacked; the target is as it was.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The zip breaks a rule.
    #[error("`{}` is refused", zip.display())]
    Refused {
        /// The zip.
        zip: PathBuf,
        /// The rule and the entry.
        source: CheckError,
    },
    /// The target holds something.
    #[error("`{}` is not empty; name a folder that is, or one that does not exist yet", folder.display())]
    NotEmpty {
        /// The target.
        folder: PathBuf,
    },
    /// The target, or something in it, could not be read or made.
    #[error("`{}` cannot be written", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Unpacks `zip` into the folder `into`, which is made with those above it, or is empty. Returns the number of files. They
/// get mode 0644, or 0755 where the zip says executable, less the umask; folders for which there are only entries are not made.
pub fn unpack(zip: &Path, into: &Path) -> Result<usize, UnpackError> {
    let refused = |source| UnpackError::Refused { zip: zip.to_owned(), source };
    let unwritable = |source| UnpackError::Unwritable { path: into.to_owned(), source };
    let exists = match fs::read_dir(into).map(|mut items| items.next().is_none()) {
        Ok(true) => true,
        Ok(false) => return Err(UnpackError::NotEmpty { folder: into.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(source) => return Err(unwritable(source)),
    };
    let file = File::open(zip).map_err(|error| refused(CheckError::Unreadable(error)))?;
    let size = file.metadata().map_err(|error| refused(CheckError::Unreadable(error)))?.len();
    let listing = check_content(&file, size, None).map_err(refused)?;

    let parent = into.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = if exists { into } else { parent };
    fs::create_dir_all(beside).map_err(unwritable)?;
    let temporary =
        tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempdir_in(beside).map_err(unwritable)?;
    // A folder in the temporary one: that one is private, this one has the modes that a folder has here.
    let content = temporary.path().join("content");
    fs::create_dir(&content).map_err(unwritable)?;
    let mut reader = BufReader::new(&file);
    let mut files = 0;
    for entry in listing.entries.iter().filter(|entry| !entry.is_folder()) {
        let path = content.join(&entry.name);
        let mut source = open_content(&mut reader, entry).map_err(refused)?;
        write_file(&path, entry.is_executable(), &mut source).map_err(|error| match error.downcast() {
            Ok(refusal) => refused(refusal),
            Err(source) => UnpackError::Unwritable { path: into.join(&entry.name), source },
        })?;
        files += 1;
    }
    if exists { move_up(&content, into) } else { fs::rename(&content, into) }.map_err(unwritable)?;
    Ok(files)
}

fn open_content<'a>(
    reader: &'a mut BufReader<&File>,
    entry: &ListedEntry,
) -> Result<ContentReader<impl io::BufRead + 'a>, CheckError> {
    locate_content(reader, entry)?;
    Ok(ContentReader::new(reader, entry))
}

/// Makes a file that was not there. Its name has been checked, and everything on the way was made here: no link among it.
fn write_file(path: &Path, executable: bool, content: &mut impl io::Read) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, if executable { 0o755 } else { 0o644 });
    #[cfg(not(unix))]
    let _ = executable;
    io::copy(content, &mut options.open(path)?).map(drop)
}

/// Moves what is in `from` into the empty folder `to`; takes back what was moved if one fails.
fn move_up(from: &Path, to: &Path) -> io::Result<()> {
    let mut moved = Vec::new();
    let outcome = fs::read_dir(from).and_then(|items| {
        for item in items {
            let item = item?;
            let target = to.join(item.file_name());
            fs::rename(item.path(), &target)?;
            moved.push((target, item.path()));
        }
        Ok(())
    });
    if outcome.is_err() {
        // They go back into the temporary folder, which is then removed; the error that counts is the first.
        for (target, origin) in moved {
            drop(fs::rename(target, origin));
        }
    }
    outcome
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::hand_zip::{HandEntry, zip_of};
    use super::*;

    fn folder_with_zip(entries: &[HandEntry]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let zip = folder.path().join("module.zip");
        fs::write(&zip, zip_of(entries)).unwrap();
        (folder, zip)
    }

    fn listed(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|item| item.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn module() -> Vec<HandEntry> {
        vec![
            HandEntry::stored("empty/", b"").mode(0o040_777),
            HandEntry::deflated("main.tf", b"text").mode(0o100_666),
            HandEntry::deflated("modules/a/run.sh", b"#!/bin/sh").mode(0o104_711),
        ]
    }

    #[test]
    fn a_zip_is_unpacked_with_plain_modes() {
        let (folder, zip) = folder_with_zip(&module());
        let target = folder.path().join("new/deep");
        assert_eq!(unpack(&zip, &target).unwrap(), 2);
        assert_eq!(listed(&target), ["main.tf", "modules"]);
        assert_eq!(fs::read(target.join("modules/a/run.sh")).unwrap(), b"#!/bin/sh");
        let mode = |name: &str| fs::metadata(target.join(name)).unwrap().permissions().mode() & 0o7777;
        fs::create_dir(folder.path().join("plain")).unwrap();
        let plain = fs::metadata(folder.path().join("plain")).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("main.tf") & 0o111, mode("modules/a/run.sh") & 0o7700), (0, 0o700));
        assert_eq!((mode("."), mode("modules")), (plain, plain));
        assert_eq!(listed(&folder.path().join("new")), ["deep"], "nothing temporary is left");
    }

    #[test]
    fn an_empty_folder_is_filled_and_stays_the_folder_that_it_is() {
        use std::os::unix::fs::MetadataExt;
        let (folder, zip) = folder_with_zip(&module());
        let target = folder.path().join("target");
        fs::create_dir(&target).unwrap();
        let before = fs::metadata(&target).unwrap().ino();
        unpack(&zip, &target).unwrap();
        assert_eq!(listed(&target), ["main.tf", "modules"]);
        assert_eq!(fs::metadata(&target).unwrap().ino(), before);
    }

    #[test]
    fn a_folder_that_holds_something_is_left_alone() {
        let (folder, zip) = folder_with_zip(&module());
        let target = folder.path().join("target");
        fs::create_dir(&target).unwrap();
        fs::write(target.join(".hidden"), "mine").unwrap();
        assert!(
            matches!(unpack(&zip, &target).unwrap_err(), UnpackError::NotEmpty { folder } if folder == target)
        );
        assert_eq!(listed(&target), [".hidden"]);
        let refusal = unpack(&zip, &target.join(".hidden")).unwrap_err();
        assert!(matches!(refusal, UnpackError::Unwritable { .. }));
    }

    #[test]
    fn a_hostile_zip_leaves_nothing() {
        let good = || HandEntry::deflated("a-good", b"text");
        for (entry, expected) in [
            (HandEntry::stored("../escaped", b"x"), "parent-folder"),
            (HandEntry::stored("/tmp/escaped", b"x"), "absolute-name"),
            (HandEntry::stored("link", b"/tmp").mode(0o120_777), "symlink"),
            (HandEntry::stored("a-good/below", b"x"), "file-and-folder"),
            (HandEntry::stored("A-GOOD", b"x"), "case-clash"),
            (HandEntry::stored("x", b"x").both(|header| header.flags = 1), "encrypted-entry"),
            (HandEntry::deflated("x", &vec![0; 1 << 20]).both(|header| header.size = 10), "size-mismatch"),
            (HandEntry::stored("x", b"x").both(|header| header.crc32 = 0), "checksum-mismatch"),
        ] {
            for exists in [false, true] {
                let (folder, zip) = folder_with_zip(&[good(), entry.clone()]);
                let target = folder.path().join("target");
                if exists {
                    fs::create_dir(&target).unwrap();
                }
                match unpack(&zip, &target).unwrap_err() {
                    UnpackError::Refused { source, .. } => assert_eq!(source.rule(), expected),
                    other => panic!("{other}"),
                }
                assert_eq!(target.exists(), exists);
                assert_eq!(listed(folder.path()).len(), 1 + usize::from(exists));
                assert!(!exists || listed(&target).is_empty());
            }
        }
        assert!(!Path::new("/tmp/escaped").exists());
    }
}
