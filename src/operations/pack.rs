//! Writes the zip that a push would send.

use std::path::{Path, PathBuf};

use crate::artifact::DependencyLayer;
use crate::module::{Host, Version};
use crate::oci::Digest;

use super::error::{OperationError, Result};
use super::prepare::{self, Naming};
use super::push;
use super::resolve::OwnHosts;
use super::routes::Routes;

/// What to pack.
#[derive(Clone, Debug)]
pub struct PackRequest {
    /// A module's folder, or a zip.
    pub source: PathBuf,
    /// What the caller says of name and version.
    pub naming: Naming,
    /// Hosts that the module's own host had before.
    pub host_aliases: Vec<Host>,
    /// Refuse calls that cannot be embedded.
    pub strict: bool,
    /// Where the zip goes. A file that is there is replaced.
    pub output: PathBuf,
}

/// What came of packing.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The module's address or path.
    pub address: String,
    /// The version that the module file was written for.
    pub version: Version,
    /// Digest of the zip: the first layer's.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The files in it, sorted.
    pub files: Vec<String>,
}

/// Packs a module. The registries are asked for what it calls, since its module file lists that.
pub async fn pack(routes: &Routes, request: &PackRequest) -> Result<Packed> {
    refuse_inside(&request.source, &request.output)?;
    let prepared = prepare::read(&request.source).await?;
    if !prepared.findings.is_empty() {
        return Err(OperationError::Refused(prepared.findings));
    }
    let named = prepared.name(&request.naming)?;
    let Some(version) = named.version.clone() else { return Err(prepared.no_version(&named.module)) };
    let own = OwnHosts { host: named.host.clone(), aliases: request.host_aliases.clone() };
    let resolution = push::resolve(routes, &prepared, &named, &own, request.strict).await?;
    let layers: Vec<DependencyLayer> = resolution.dependencies.into_iter().map(|found| found.layer).collect();
    let assembled = push::assemble(&prepared, &named, &version, &layers, None).await?;
    let files = assembled.tree.entries().iter().map(|entry| entry.name.clone()).collect();
    let (digest, size) = (assembled.artifact.archive.digest.clone(), assembled.artifact.archive.size);
    let output = request.output.clone();
    super::blocking(move || place(&assembled, &output)).await?;
    Ok(Packed { address: named.module.to_string(), version, digest, size, files })
}

/// A zip in the folder that is packed would be in the next zip.
fn refuse_inside(source: &Path, output: &Path) -> Result<()> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // What cannot be found is said by whoever needs it.
    let (Ok(source), Ok(folder)) = (source.canonicalize(), folder.canonicalize()) else { return Ok(()) };
    if !source.is_dir() || !folder.starts_with(&source) {
        return Ok(());
    }
    let name = source.file_name().unwrap_or("module".as_ref()).display().to_string();
    Err(OperationError::Usage {
        message: format!(
            "{} is in the folder that is packed, so the next zip would hold it",
            output.display()
        ),
        hint: format!("name a file outside of it, such as `-o ../{name}.zip`"),
    })
}

/// Puts the finished zip where it belongs: whole or not at all.
fn place(assembled: &push::Assembled, output: &Path) -> Result<()> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writing = || OperationError::io(format!("writing {}", output.display()));
    let mut builder = tempfile::Builder::new();
    // Others may read it, as the umask has it: it is no secret.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut beside = builder.tempfile_in(folder).map_err(writing())?;
    let mut zip = assembled.zip.reopen().map_err(writing())?;
    std::io::copy(&mut zip, beside.as_file_mut()).map_err(writing())?;
    beside.persist(output).map_err(|error| writing()(error.error))?;
    Ok(())
}
