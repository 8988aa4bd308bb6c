//! Fetches a provider's packages into a folder: verified while they come, then checked like those that are pushed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::archive::Contents;
use crate::module::{PackageName, ProviderPlatform};

use super::super::Progress;
use super::super::download;
use super::super::error::{OperationError, Result};
use super::super::finding::Finding;
use super::package::{self, Package};
use super::{StoredProvider, StoredTarget};

/// A package that was fetched.
#[derive(Clone, Debug)]
pub struct PulledPackage {
    /// What is stored.
    pub stored: StoredTarget,
    /// The zip.
    pub file: PathBuf,
}

/// Fetches the packages of these systems, or of all where none is named, into `folder`, which must be empty or absent. Where anything is
/// wrong, nothing is left there.
pub async fn pull(
    stored: &StoredProvider,
    platforms: &[ProviderPlatform],
    folder: &Path,
    progress: Arc<dyn Progress>,
) -> Result<Vec<PulledPackage>> {
    let is_new = refuse_full(folder)?;
    let targets = stored.targets(platforms).await?;
    if targets.is_empty() {
        let message = format!("{} has no package that could be fetched", stored.name());
        return Err(OperationError::refused(Finding::general("no-packages", message)));
    }
    fs::create_dir_all(folder).map_err(OperationError::io(format!("making {}", folder.display())))?;
    let pulled = fill(stored, targets, folder, &*progress).await;
    if pulled.is_err() && is_new {
        // Where somebody has put something into it meanwhile, it stays.
        let _ = fs::remove_dir(folder);
    }
    pulled
}

/// Whether a folder has to be made; refused where something is in it.
fn refuse_full(folder: &Path) -> Result<bool> {
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(false),
        Ok(false) => {
            let message = format!("{} is not empty; name a new folder", folder.display());
            Err(OperationError::refused(Finding::general("target-not-empty", message)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(OperationError::io(format!("reading {}", folder.display()))(error)),
    }
}

/// Gathers all packages in a folder of their own, on the same file system, and moves them when all are there.
async fn fill(
    stored: &StoredProvider,
    targets: Vec<StoredTarget>,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Vec<PulledPackage>> {
    let writing = || OperationError::io(format!("writing {}", folder.display()));
    let staging = tempfile::Builder::new().prefix(".ocimod-").tempdir_in(folder).map_err(writing())?;
    let mut fetched = Vec::new();
    for target in targets {
        let name = PackageName::of(&stored.address, &stored.version, &target.target.platform).to_string();
        let file = staging.path().join(&name);
        fetch(stored, &target, &file, progress).await?;
        fetched.push((target, file, name));
    }
    let mut pulled = Vec::new();
    for (target, file, name) in fetched {
        let placed = folder.join(name);
        fs::rename(&file, &placed).map_err(writing())?;
        pulled.push(PulledPackage { stored: target, file: placed });
    }
    Ok(pulled)
}

/// Fetches a package into a new file and checks it; answers what it was found to be.
pub(super) async fn fetch(
    stored: &StoredProvider,
    target: &StoredTarget,
    path: &Path,
    progress: &dyn Progress,
) -> Result<Package> {
    let StoredTarget { target, .. } = target;
    let file = File::create_new(path).map_err(OperationError::io(format!("writing {}", path.display())))?;
    progress.started(&target.platform.to_string(), Some(target.archive.size));
    let written =
        download::write(&stored.place, &target.archive, Contents::Provider, (file, path), progress).await;
    progress.finished();
    written?;
    let name = format!("{} for {}", stored.name(), target.platform);
    let package = package::read(path, &stored.address, &name).await?;
    if let Some(h1) = target.h1.as_ref().filter(|h1| **h1 != package.h1) {
        let message = format!("{name} is said to have the hash {h1}, and has {}", package.h1);
        return Err(OperationError::refused(Finding::general("hash-mismatch", message)));
    }
    Ok(package)
}
