//! Puts a module, with everything that it needs, where `cue` looks before it asks a registry: its cache.
//!
//! `cue` believes whatever is in its cache and compares it with nothing, whichever registry it came from. So everything is fetched and
//! checked before the first file has its name, and what is there already is compared with what was fetched: another module under the
//! same name is not passed over in silence. `cue` may be at work in the cache at the same time; both hold the lock of a version while
//! they write it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::archive::{Contents, ModuleKind, Tree};
use crate::module::{ModuleFile, ModuleVersion, Version};
use crate::oci::Digest;

use super::closure::{self, Needed};
use super::cue_module;
use super::download;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::prepare::MODULE_FILE;
use super::published::StoredModule;
use super::routes::Routes;
use super::{NoProgress, blocking};

/// A module in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The module and its version.
    pub module: ModuleVersion,
    /// The digest of the zip that was fetched.
    pub digest: Digest,
    /// Whether it is new there; `false` where the same was there.
    pub created: bool,
}

/// A module that was fetched and is what it should be.
struct Fetched {
    needed: Needed,
    zip: NamedTempFile,
    module_file: Vec<u8>,
}

/// Puts a module and what it needs, which is [`everything`], into the cache at `folder` (`CUE_CACHE_DIR`). Nothing is put there unless all of it
/// is good.
pub async fn fill(stored: &StoredModule, everything: Vec<Needed>, folder: &Path) -> Result<Vec<Cached>> {
    let modules = folder.join("mod");
    // Beside what they become, so that they can be given their names.
    let incoming = modules.join("download");
    fs::create_dir_all(&incoming).map_err(OperationError::io(format!("making {}", incoming.display())))?;
    let mut fetched = Vec::new();
    for needed in everything {
        fetched.push(fetch(stored, needed, &incoming).await?);
    }
    blocking(move || {
        for module in &fetched {
            Slot::of(&modules, &module.needed.module).compare(module)?;
        }
        fetched.into_iter().map(|module| place(module, &modules)).collect()
    })
    .await
}

/// The module itself and the modules that its module file lists, all of which `cue` knows.
pub async fn everything(stored: &StoredModule, routes: &Routes) -> Result<Vec<Needed>> {
    let name = stored.name();
    let refused = |rule, message: String| OperationError::refused(Finding::general(rule, message));
    let file = match stored.module_file_bytes().await? {
        Some(bytes) => ModuleFile::parse(&bytes, true).map_err(|error| {
            let finding = Finding {
                file: Some(MODULE_FILE.to_owned()),
                line: error.line(),
                rule: "module-file",
                message: format!("{name}: {error}"),
            };
            OperationError::refused(finding)
        })?,
        None => {
            return Err(refused(
                "module-file-missing",
                format!("{name} has no {MODULE_FILE}, so it is no module to `cue`"),
            ));
        }
    };
    let needed = closure::everything(stored, file.module.base(), routes).await?;
    if let Some(known) = needed.iter().find(|known| !known.module.version().build().is_empty()) {
        return Err(refused(
            "module-version",
            format!("{name}: `{}` has build metadata, which `cue` does not know", known.module),
        ));
    }
    Ok(needed)
}

/// Fetches a zip, verified, and finds out whether it is that of the module.
async fn fetch(stored: &StoredModule, needed: Needed, incoming: &Path) -> Result<Fetched> {
    let making = || OperationError::io(format!("writing to {}", incoming.display()));
    let zip = tempfile::Builder::new().prefix(".ocimod-").tempfile_in(incoming).map_err(making())?;
    let file = zip.reopen().map_err(making())?;
    let contents = Contents::Module(Some(ModuleKind::Cue));
    download::write(&needed.place, &needed.archive, contents, (file, zip.path()), &NoProgress).await?;
    let name = format!("{} in {}", needed.module, needed.place.name());
    let is_itself = needed.archive == stored.artifact.archive;
    let layer = if is_itself { stored.module_file_bytes().await? } else { None };
    blocking(move || {
        let module = needed.module.module_path();
        let (_, module_file) = cue_module::open(zip.path(), &module, layer.as_deref(), &name)?;
        Ok(Fetched { needed, zip, module_file })
    })
    .await
}

/// As `cue` writes a version in a file's name: an upper-case letter as `!` and the lower-case one, since some file systems know no
/// difference.
fn escaped(version: &Version) -> String {
    let mut text = String::from("v");
    for character in version.to_string().chars() {
        if character.is_ascii_uppercase() {
            text.push('!');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}

/// Where a version is in the cache.
struct Slot {
    /// What all of its files begin with.
    base: PathBuf,
    /// Where `cue` unpacks it.
    extracted: PathBuf,
}

impl Slot {
    fn of(modules: &Path, module: &ModuleVersion) -> Self {
        let (path, version) = (module.base().as_str(), escaped(module.version()));
        Self {
            base: modules.join("download").join(path).join("@v").join(&version),
            extracted: modules.join("extract").join(format!("{path}@{version}")),
        }
    }

    /// A file by its extension. There are dots in a version, so it is no extension to be replaced.
    fn file(&self, extension: &str) -> PathBuf {
        let mut name = self.base.clone().into_os_string();
        name.push(".");
        name.push(extension);
        name.into()
    }

    /// Refuses to go on where another module has the place.
    fn compare(&self, fetched: &Fetched) -> Result<()> {
        let is_same = same_zip(&self.file("zip"), fetched.zip.path())
            && same_bytes(&self.file("mod"), &fetched.module_file)?
            && (self.file("partial").exists() || same_folder(&self.extracted, fetched.zip.path())?);
        if is_same {
            return Ok(());
        }
        Err(OperationError::refused(Finding::general(
            "cache-differs",
            format!(
                "the cache of `cue` has another `{}` already, from another registry perhaps, or it was changed there; remove {}.* and {} \
                 to have this one",
                fetched.needed.module,
                self.base.display(),
                self.extracted.display()
            ),
        )))
    }
}

/// Gives the files of a module their names in the cache.
fn place(fetched: Fetched, modules: &Path) -> Result<Cached> {
    let slot = Slot::of(modules, &fetched.needed.module);
    let writing = |path: &Path| OperationError::io(format!("writing {}", path.display()));
    let folder = slot.base.parent().unwrap_or(modules);
    fs::create_dir_all(folder).map_err(writing(folder))?;
    let lock = slot.file("lock");
    let held =
        OpenOptions::new().create(true).truncate(false).write(true).open(&lock).map_err(writing(&lock))?;
    held.lock().map_err(writing(&lock))?;
    slot.compare(&fetched)?;
    let Fetched { needed: Needed { module, archive, .. }, zip, module_file } = fetched;
    let (zip_file, mod_file) = (slot.file("zip"), slot.file("mod"));
    let created = !zip_file.exists();
    if created {
        give_name(zip, &zip_file)?;
    }
    if !mod_file.exists() {
        let mut temporary =
            tempfile::Builder::new().prefix(".ocimod-").tempfile_in(folder).map_err(writing(folder))?;
        temporary.write_all(&module_file).map_err(writing(&mod_file))?;
        give_name(temporary, &mod_file)?;
    }
    Ok(Cached { module, digest: archive.digest, created })
}

/// Gives a file that is whole its name. Everybody who may read the folder may read the file, as where `cue` made it.
pub(super) fn give_name(file: NamedTempFile, path: &Path) -> Result<()> {
    let writing = || OperationError::io(format!("writing {}", path.display()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(writing())?;
    }
    file.as_file().sync_all().map_err(writing())?;
    file.persist(path).map(drop).map_err(|error| writing()(error.error))
}

/// Whether a zip is not there, or has the files of another one: their bytes alone depend on who packed them.
fn same_zip(there: &Path, fetched: &Path) -> bool {
    let hash = |path: &Path| Tree::from_zip(path, ModuleKind::Cue).ok()?.content_hash(&[]).ok();
    !there.exists() || hash(there).is_some_and(|known| hash(fetched) == Some(known))
}

/// Whether a file is not there, or has these bytes.
fn same_bytes(there: &Path, bytes: &[u8]) -> Result<bool> {
    match File::open(there) {
        Ok(file) => {
            let mut known = Vec::new();
            let reading = OperationError::io(format!("reading {}", there.display()));
            file.take(bytes.len() as u64 + 1).read_to_end(&mut known).map_err(reading)?;
            Ok(known == bytes)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(OperationError::io(format!("reading {}", there.display()))(error)),
    }
}

/// Whether a folder is not there, or has just the files of a zip. `cue` takes what was unpacked there for the module.
fn same_folder(there: &Path, zip: &Path) -> Result<bool> {
    if !there.exists() {
        return Ok(true);
    }
    let refused = |error| OperationError::refused(Finding::of_check(&error, &zip.display().to_string()));
    let tree = Tree::from_zip(zip, ModuleKind::Cue).map_err(refused)?;
    let mut files = 0;
    for entry in tree.entries() {
        let content = tree.open(entry).map_err(OperationError::io(format!("reading {}", zip.display())))?;
        if !is_alike(&there.join(&entry.name), content).unwrap_or(false) {
            return Ok(false);
        }
        files += 1;
    }
    let counted =
        count_files(there.to_owned()).map_err(OperationError::io(format!("reading {}", there.display())))?;
    Ok(counted == files)
}

fn is_alike(file: &Path, mut content: impl Read) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(file)?;
    if !metadata.is_file() {
        return Ok(false);
    }
    let mut file = io::BufReader::new(File::open(file)?);
    let (mut ours, mut theirs) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let count = content.read(&mut ours)?;
        if count == 0 {
            return Ok(file.read(&mut theirs)? == 0);
        }
        match file.read_exact(&mut theirs[..count]) {
            Ok(()) if ours[..count] == theirs[..count] => {}
            _ => return Ok(false),
        }
    }
}

fn count_files(folder: PathBuf) -> io::Result<usize> {
    let (mut folders, mut files) = (vec![folder], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() { folders.push(entry.path()) } else { files += 1 }
        }
    }
    Ok(files)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_escaped_as_cue_escapes_them() {
        for (version, name) in
            [("1.2.0", "v1.2.0"), ("0.1.0-RC.1", "v0.1.0-!r!c.1"), ("1.0.0-a-B", "v1.0.0-a-!b")]
        {
            assert_eq!(escaped(&Version::parse(version).unwrap()), name);
        }
    }
}
