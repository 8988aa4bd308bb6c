//! Writes providers as a static site of the provider network mirror protocol: what `tofu providers mirror` writes, out of the registry.
//!
//! A second run writes the same bytes. Zips that are there and right stay; the files that lead to them are written after them, each in
//! one step, so that a site can be brought up to date while it is served.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::module::{PackageName, ProviderAddress};

use super::super::Progress;
use super::super::error::{OperationError, Result};
use super::super::routes::Routes;
use super::package::{self, Package};
use super::{PublishedProvider, StoredProvider, StoredTarget, at, find, list, pull};

/// What came of an export.
#[derive(Clone, Debug, Default)]
pub struct Exported {
    /// The providers, each with the number of its versions.
    pub providers: Vec<(ProviderAddress, usize)>,
    /// How many files were written; the others were there.
    pub written: usize,
    /// How many files the site has.
    pub files: usize,
}

/// `index.json` (provider network mirror protocol, "List Available Versions").
#[derive(Debug, Default, Serialize)]
pub struct VersionsDocument {
    /// The versions.
    #[serde(serialize_with = "as_object")]
    pub versions: BTreeSet<String>,
}

/// A field for each name, whose value is an object that has none.
fn as_object<S: Serializer>(names: &BTreeSet<String>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct NoFields {}
    serializer.collect_map(names.iter().map(|name| (name, NoFields {})))
}

/// `VERSION.json` (the same, "List Available Installation Packages").
#[derive(Debug, Default, Serialize)]
pub struct ArchivesDocument {
    /// The packages by platform.
    pub archives: BTreeMap<String, ArchiveDocument>,
}

/// A package of it.
#[derive(Debug, Serialize)]
pub struct ArchiveDocument {
    /// Its hashes: `h1:` where it is known, then `zh:`.
    pub hashes: Vec<String>,
    /// Where it is, seen from the document.
    pub url: String,
}

/// Writes these providers, or all where none is named, into `folder`. Yanked versions are in no list, so they are left out.
pub async fn export(
    routes: &Routes,
    addresses: &[ProviderAddress],
    folder: &Path,
    progress: Arc<dyn Progress>,
) -> Result<Exported> {
    let mut published = Vec::new();
    if addresses.is_empty() {
        for (address, place) in list::places(routes).await? {
            published.push(at(&address, place).await?);
        }
    } else {
        for address in addresses {
            published.push(find(routes, address).await?);
        }
    }
    let mut site = Site { exported: Exported::default(), progress };
    for provider in &mut published {
        provider.leave_unyanked().await?;
        site.provider(provider, folder).await?;
    }
    Ok(site.exported)
}

struct Site {
    exported: Exported,
    progress: Arc<dyn Progress>,
}

impl Site {
    async fn provider(&mut self, provider: &PublishedProvider, root: &Path) -> Result<()> {
        let address = &provider.address;
        let folder = root.join(address.host().as_str()).join(address.namespace()).join(address.kind());
        let mut index = VersionsDocument::default();
        for (version, tag) in &provider.versions {
            let stored = match provider.load(version, tag).await {
                Ok(stored) => stored,
                // Something else under a version's tag.
                Err(OperationError::NotAProvider { .. }) => continue,
                Err(error) => return Err(error),
            };
            if !stored.index.entries.is_empty() {
                self.version(&stored, &folder).await?;
                index.versions.insert(version.to_string());
            }
        }
        let file = folder.join("index.json");
        if !index.versions.is_empty() {
            self.exported.providers.push((address.clone(), index.versions.len()));
        } else if !file.is_file() {
            return Ok(());
        }
        // Where an earlier export listed what is gone or yanked by now, it says so no more.
        self.document(&file, &index)
    }

    async fn version(&mut self, stored: &StoredProvider, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(OperationError::io(format!("making {}", folder.display())))?;
        let mut document = ArchivesDocument::default();
        for target in stored.targets(&[]).await? {
            let name = PackageName::of(&stored.address, &stored.version, &target.target.platform).to_string();
            let package = self.package(stored, &target, &folder.join(&name)).await?;
            let hashes = vec![package.h1.to_string(), target.target.zh()];
            let archive = ArchiveDocument { hashes, url: name };
            document.archives.insert(target.target.platform.to_string(), archive);
        }
        self.document(&folder.join(format!("{}.json", stored.version)), &document)
    }

    /// The zip in its place: fetched, unless the right one is there.
    async fn package(
        &mut self,
        stored: &StoredProvider,
        target: &StoredTarget,
        file: &Path,
    ) -> Result<Package> {
        self.exported.files += 1;
        let there = if file.is_file() {
            package::read(file, &stored.address, &file.display().to_string()).await.ok()
        } else {
            None
        };
        if let Some(package) = there.filter(|package| package.archive == target.target.archive) {
            return Ok(package);
        }
        let writing = || OperationError::io(format!("writing {}", file.display()));
        let folder = file.parent().unwrap_or(Path::new("."));
        let staging = tempfile::Builder::new().prefix(".ocimod-").tempdir_in(folder).map_err(writing())?;
        let fetched = staging.path().join("package.zip");
        let package = pull::fetch(stored, target, &fetched, &*self.progress).await?;
        fs::rename(&fetched, file).map_err(writing())?;
        self.exported.written += 1;
        Ok(package)
    }

    /// Writes a file of the protocol in one step, unless it is there.
    fn document(&mut self, path: &Path, document: &impl Serialize) -> Result<()> {
        let writing = || OperationError::io(format!("writing {}", path.display()));
        self.exported.files += 1;
        // As the clients' own `providers mirror` indents it.
        let mut text = serde_json::to_vec_pretty(document).map_err(|error| writing()(error.into()))?;
        text.push(b'\n');
        if fs::read(path).is_ok_and(|known| known == text) {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let staging = tempfile::Builder::new().prefix(".ocimod-").tempdir_in(folder).map_err(writing())?;
        let written = staging.path().join("document.json");
        let mut file = fs::File::create_new(&written).map_err(writing())?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(writing())?;
        fs::rename(&written, path).map_err(writing())?;
        self.exported.written += 1;
        Ok(())
    }
}
