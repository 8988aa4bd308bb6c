//! The zip of a provider on this machine: checked and hashed in two passes, and never whole in memory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::archive;
use crate::artifact::{Content, PackageHash};
use crate::module::ProviderAddress;
use crate::oci::{Algorithm, Hasher};

use super::super::error::{OperationError, Result};
use super::super::finding::Finding;

/// A zip that keeps the rules.
#[derive(Clone, Debug)]
pub struct Package {
    /// Where it is.
    pub path: PathBuf,
    /// Digest and size.
    pub archive: Content,
    /// Its `h1:` hash.
    pub h1: PackageHash,
    /// Whether the program that clients start is in it.
    pub has_program: bool,
}

/// Checks a zip in full and hashes it. Where it breaks a rule, the finding names it as `name`.
pub async fn read(path: &Path, address: &ProviderAddress, name: &str) -> Result<Package> {
    let (path, name) = (path.to_owned(), name.to_owned());
    // Clients look for a file of this name, whatever follows in it, at the root of the zip.
    let program = format!("terraform-provider-{}", address.kind());
    super::super::blocking(move || {
        let reading = || OperationError::io(format!("reading {}", path.display()));
        // Before it is opened: a pipe would be waited for.
        if !fs::metadata(&path).map_err(reading())?.is_file() {
            let message = format!("{}: it is not a file", path.display());
            return Err(OperationError::refused(Finding::general("not-a-file", message)));
        }
        let mut file = File::open(&path).map_err(reading())?;
        let size = file.metadata().map_err(reading())?.len();
        let refused = |error| OperationError::refused(Finding::of_check(&error, &name));
        let (listing, h1) = archive::hash_package(&file, size).map_err(refused)?;
        let is_program =
            |name: &str| !name.contains('/') && name.to_ascii_lowercase().starts_with(program.as_str());
        let has_program = listing.entries.iter().any(|entry| is_program(&entry.name));
        let h1 = h1.parse().map_err(|error| reading()(io::Error::other(error)))?;
        let mut hasher = Hasher::new(Algorithm::Sha256);
        io::Seek::rewind(&mut file).map_err(reading())?;
        let count = io::copy(&mut file, &mut hasher).map_err(reading())?;
        if count != size {
            return Err(reading()(io::Error::other("it was changed meanwhile")));
        }
        let archive = Content { digest: hasher.finish(), size };
        Ok(Package { path, archive, h1, has_program })
    })
    .await
}
