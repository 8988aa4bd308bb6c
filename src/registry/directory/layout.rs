//! Where everything is below the root of a store, and how it gets there so that a crash leaves nothing half done.
//!
//! ```text
//! ocimod.json                            format version, and a quota where the operator sets one
//! _blobs/sha256/<hex>                    every content once
//! _damaged/<hex>-<word>                  what `store verify --repair` took out of the way
//! _uploads/<repository's hash>-<id>      an upload session; its length is its state
//! repos/<name...>/_lock                  held by whoever writes to the repository; another word in it for every index.json
//! repos/<name...>/_index                 a long index.json's file of before, for the next one (see `index_file`)
//! repos/<name...>/_oci/                  an OCI image layout: oci-layout, index.json, blobs/<algorithm>/<hex>
//! ```
//!
//! No component of a repository's name begins with `_`, so no repository can be in the way of these. A file comes to its
//! name by `link` or `rename` when its bytes are on disk, and the folder is flushed before anything is answered.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::oci::{Digest, Repository};
use crate::registry::{RegistryError, Result, UploadId};

/// The layout described above. A store of another version is not touched.
const FORMAT_VERSION: u32 = 1;

/// What an image layout says of itself (image specification, "oci-layout file").
const OCI_LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Format {
    format_version: u32,
    /// The most bytes that the store may hold, for every process that uses it. Written by the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota: Option<u64>,
}

/// Makes a second name of a file: `std::fs::hard_link`, or what a test puts in its place.
pub(super) type Link = fn(&Path, &Path) -> io::Result<()>;

/// The paths of a store.
pub(super) struct Layout {
    root: PathBuf,
    /// What `ocimod.json` says of it, in bytes.
    pub(super) quota: Option<u64>,
    pub(super) link: Link,
}

/// Why the file cannot be read, in words for who wrote a quota into it.
fn unreadable(bytes: &[u8], error: &serde_json::Error) -> String {
    let file: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
    match file.as_ref().and_then(|file| file.get("quota")) {
        Some(quota) if !quota.is_u64() && !quota.is_null() => {
            let quota: String = quota.to_string().chars().take(40).collect();
            format!(
                "its `quota` is {quota}; write a whole number of bytes without a unit, such as 5368709120 for 5 GiB"
            )
        }
        _ => error.to_string(),
    }
}

impl Layout {
    /// Opens the store at `root`, or makes one where none is.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let mut layout =
            Self { root: root.to_owned(), quota: None, link: |from, to| fs::hard_link(from, to) };
        let format = root.join("ocimod.json");
        let failed = || RegistryError::io(format!("opening the store {}", root.display()));
        match fs::read(&format) {
            Ok(bytes) => match serde_json::from_slice::<Format>(&bytes) {
                Ok(Format { format_version: FORMAT_VERSION, quota }) => {
                    layout.quota = quota;
                    // Somebody may have written the file alone, or lost what was empty. Where it cannot be made, who reads can do without.
                    let _ = layout.make_folders();
                    Ok(layout)
                }
                Ok(Format { format_version: version, .. }) => Err(failed()(io::Error::new(
                    ErrorKind::InvalidData,
                    format!(
                        "it has format version {version}, this ocimod knows {FORMAT_VERSION}; use a newer one"
                    ),
                ))),
                Err(error) => Err(failed()(io::Error::new(
                    ErrorKind::InvalidData,
                    format!("ocimod.json cannot be read: {}", unreadable(&bytes, &error)),
                ))),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let make = || -> io::Result<()> {
                    layout.make_folders()?;
                    let text = serde_json::to_vec(&Format { format_version: FORMAT_VERSION, quota: None })?;
                    replace(&format, &text).map(drop)
                };
                make().map_err(failed())?;
                Ok(layout)
            }
            Err(error) => Err(failed()(error)),
        }
    }

    fn make_folders(&self) -> io::Result<()> {
        for folder in ["_blobs", "_uploads", "repos"] {
            fs::create_dir_all(self.root.join(folder))?;
        }
        Ok(())
    }

    /// Whether there is a store at `root`.
    pub(super) fn is_at(root: &Path) -> bool {
        root.join("ocimod.json").is_file()
    }

    /// The folder that has every content once.
    pub(super) fn shared_blobs(&self) -> PathBuf {
        self.root.join("_blobs")
    }

    /// The folder that has uploads.
    pub(super) fn uploads(&self) -> PathBuf {
        self.root.join("_uploads")
    }

    /// Takes a damaged file out of the way of a good one; answers where it is now.
    pub(super) fn set_aside(&self, path: &Path, digest: &Digest) -> io::Result<PathBuf> {
        let folder = self.root.join("_damaged");
        fs::create_dir_all(&folder)?;
        // Every name of a file gets one of its own: a rename onto another name of the same file does nothing at all.
        let aside = folder.join(format!("{}-{}", digest.hex(), random_word().map_err(io::Error::from)?));
        fs::rename(path, &aside)?;
        flush_folder(&folder)?;
        path.parent().map_or(Ok(()), flush_folder)?;
        Ok(aside)
    }

    /// The folder that has the repositories.
    pub(super) fn repositories(&self) -> PathBuf {
        self.root.join("repos")
    }

    fn repository(&self, repository: &Repository) -> PathBuf {
        let mut path = self.repositories();
        path.extend(repository.components());
        path
    }

    /// The image layout of a repository.
    pub(super) fn image_layout(&self, repository: &Repository) -> PathBuf {
        self.repository(repository).join("_oci")
    }

    /// The list of the manifests and tags of a repository.
    pub(super) fn index(&self, repository: &Repository) -> PathBuf {
        self.image_layout(repository).join("index.json")
    }

    /// The file that was [`Self::index`] before the one that is.
    pub(super) fn spare_index(&self, repository: &Repository) -> PathBuf {
        self.repository(repository).join("_index")
    }

    /// A blob or manifest of a repository. That it is there is the right to read it.
    pub(super) fn blob(&self, repository: &Repository, digest: &Digest) -> PathBuf {
        blob_below(&self.image_layout(repository).join("blobs"), digest)
    }

    /// The first copy of a content, which the repositories' own are links to.
    pub(super) fn shared_blob(&self, digest: &Digest) -> PathBuf {
        blob_below(&self.shared_blobs(), digest)
    }

    /// An upload session. It is bound to its repository by the name of the file, so no other repository's requests reach it.
    pub(super) fn upload(&self, repository: &Repository, upload: &UploadId) -> PathBuf {
        let repository = Digest::of(repository.as_str().as_bytes());
        self.uploads().join(format!("{}-{}", &repository.hex()[..16], upload.as_str()))
    }

    /// Whether anything was ever written to the repository, by us or by another tool.
    pub(super) fn has_repository(&self, repository: &Repository) -> bool {
        self.image_layout(repository).join("oci-layout").exists()
    }

    /// Makes the folders of a repository. Where `oci-layout` is there they are all on disk: it is written last.
    pub(super) fn make_repository(&self, repository: &Repository) -> Result<()> {
        if self.has_repository(repository) {
            return Ok(());
        }
        let folder = self.image_layout(repository);
        let make = || -> io::Result<()> {
            fs::create_dir_all(folder.join("blobs").join("sha256"))?;
            let path = folder.join("oci-layout");
            // With a new file a file system brings along what came before it, so the folders cost no more than a look then.
            let (_, beside) = written_beside(&path, OCI_LAYOUT)?;
            flush_folder(&folder.join("blobs"))?;
            fs::rename(&beside.0, &path)?;
            // Another process may have made a parent and not flushed it yet, so each one is flushed, made here or not.
            folder.ancestors().take(repository.components().count() + 2).try_for_each(flush_folder)
        };
        make().map_err(RegistryError::io(format!("making {}", folder.display())))
    }

    /// Takes the lock under which a repository is written, waiting for other threads and processes. Held until dropped.
    pub(super) fn lock(&self, repository: &Repository) -> Result<Lock> {
        let path = self.lock_file(repository);
        let lock = || -> io::Result<Lock> {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            file.lock()?;
            Ok(Lock(file))
        };
        lock().map_err(RegistryError::io(format!("locking {}", path.display())))
    }

    /// Takes a share in that lock: nothing is swept meanwhile. `None` where a store cannot be written, so not swept either.
    pub(super) fn share_lock(&self, repository: &Repository) -> Option<Lock> {
        let path = self.lock_file(repository);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).ok()?;
        file.lock_shared().ok()?;
        Some(Lock(file))
    }

    fn lock_file(&self, repository: &Repository) -> PathBuf {
        self.repository(repository).join("_lock")
    }

    /// The word that whoever wrote the index last left beside it; empty where there is none.
    pub(super) fn word(&self, repository: &Repository) -> String {
        File::open(self.lock_file(repository)).and_then(|mut file| read_word(&mut file)).unwrap_or_default()
    }

    /// A new file for bytes that have no digest yet.
    pub(super) fn scratch(&self) -> Result<(File, Scratch)> {
        let path = self.uploads().join(format!("{}.part", random_word()?));
        let action = RegistryError::io(format!("making {}", path.display()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(action)?;
        Ok((file, Scratch(path)))
    }

    /// Takes an upload out of reach of further requests: `.` is in no upload's name. What is appended to a file that is a
    /// blob already would change the blob.
    pub(super) fn seal_upload(&self, repository: &Repository, upload: &UploadId) -> io::Result<Scratch> {
        let path = self.upload(repository, upload);
        let sealed = path.with_extension("part");
        fs::rename(&path, &sealed)?;
        Ok(Scratch(sealed))
    }

    /// Gives a complete file a second name, where nothing is there yet.
    pub(super) fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        // Other tools make only the folders that they need.
        if let Some(folder) = to.parent()
            && !folder.exists()
        {
            fs::create_dir_all(folder)?;
            folder.parent().map_or(Ok(()), flush_folder)?;
        }
        match (self.link)(from, to) {
            Err(error) if is_final(error.kind()) => Err(error),
            // Another file system, or one without links, or the file has as many as it can have.
            Err(_) => copy(from, to),
            Ok(()) => Ok(()),
        }
    }

    /// Gives a complete file a second name in place of what has it now.
    pub(super) fn link_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        let beside = Scratch(beside(to)?);
        self.link_or_copy(from, &beside.0)?;
        fs::rename(&beside.0, to)
    }
}

/// What a copy would not cure.
fn is_final(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::AlreadyExists
            | ErrorKind::NotFound
            | ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::ReadOnlyFilesystem
    )
}

fn blob_below(folder: &Path, digest: &Digest) -> PathBuf {
    folder.join(digest.algorithm().name()).join(digest.hex())
}

/// The lock of a repository, until it is dropped.
pub(super) struct Lock(File);

impl Lock {
    /// Leaves a new word for those who remember what they read: every writer does after it has replaced the index, so the
    /// same word means the same index even where the file's stamp is too young to tell. It need not survive a crash of the
    /// machine, which nobody's memory does either.
    pub(super) fn leave_word(&mut self) -> io::Result<String> {
        let word = random_word().map_err(io::Error::from)?;
        self.0.rewind()?;
        self.0.write_all(word.as_bytes())?;
        Ok(word)
    }

    /// The word that the last writer left; empty where there is none.
    pub(super) fn word(&mut self) -> String {
        self.0.rewind().and_then(|()| read_word(&mut self.0)).unwrap_or_default()
    }
}

fn read_word(file: &mut File) -> io::Result<String> {
    let mut word = String::new();
    file.take(WORD_LENGTH).read_to_string(&mut word)?;
    Ok(if word.len() as u64 == WORD_LENGTH { word } else { String::new() })
}

/// A file that is removed when it is no longer needed, whatever happens.
pub(super) struct Scratch(pub(super) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Where this fails there is one more leftover, which nothing finds and the collection of garbage removes.
        let _ = fs::remove_file(&self.0);
    }
}

/// Length of a [`random_word`] in characters.
const WORD_LENGTH: u64 = 32;

/// 128 random bits in hexadecimal: a name that nobody guesses and no other process has.
pub(super) fn random_word() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| RegistryError::io("asking for random bits")(io::Error::other(error.to_string())))?;
    Ok(hex::encode(bytes))
}

/// A name in the same folder that is no digest and no file of a layout.
pub(super) fn beside(path: &Path) -> io::Result<PathBuf> {
    let word = random_word().map_err(io::Error::from)?;
    Ok(path.with_file_name(format!("_{word}.part")))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let beside = Scratch(beside(to)?);
    fs::copy(from, &beside.0)?;
    File::open(&beside.0)?.sync_all()?;
    if to.exists() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    fs::rename(&beside.0, to)
}

/// Writes a whole file so that after a crash it is there with the old bytes or with the new ones. Answers the file.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let (file, beside) = written_beside(path, bytes)?;
    fs::rename(&beside.0, path)?;
    path.parent().map_or(Ok(()), flush_folder)?;
    Ok(file)
}

/// Writes a whole file that is to have the name of `path`, and brings it to disk under another one.
pub(super) fn written_beside(path: &Path, bytes: &[u8]) -> io::Result<(File, Scratch)> {
    let beside = Scratch(beside(path)?);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&beside.0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok((file, beside))
}

/// Brings the names in a folder to disk.
#[cfg(unix)]
pub(super) fn flush_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Only Unix opens a folder to flush it; elsewhere the file system's journal has to do.
#[cfg(not(unix))]
pub(super) fn flush_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}
