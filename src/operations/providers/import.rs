//! Pushes a folder of providers, laid out as `tofu providers mirror` and `terraform providers mirror` write it, or as a client's
//! `filesystem_mirror` has it: `HOST/NAMESPACE/TYPE/terraform-provider-TYPE_VERSION_OS_ARCH.zip`, and beside the zips `index.json` and
//! a `VERSION.json` for each version with the hashes of its zips.
//!
//! The files of the protocol are claims about the zips: each hash is checked, and a zip that is named has to be there. What one version
//! lacks does not keep the others back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::module::{PackageName, ProviderAddress, ProviderPlatform, Version};

use super::super::Progress;
use super::super::error::{OperationError, Result};
use super::super::finding::Finding;
use super::super::routes::Routes;
use super::push::{self, PackageSource, ProviderPush, PushedProvider};

/// The files of the protocol are a line for each platform and hash.
const MAX_DOCUMENT: u64 = 16 << 20;

/// What came of an import.
#[derive(Debug, Default)]
pub struct Imported {
    /// Versions of which something was new.
    pub imported: Vec<ImportedVersion>,
    /// Versions that were there already, all of what the folder has of them.
    pub skipped: Vec<ImportedVersion>,
    /// Versions that could not be pushed, and why.
    pub failed: Vec<(String, OperationError)>,
}

/// A version of a provider that is in the registry now.
#[derive(Debug)]
pub struct ImportedVersion {
    /// The provider.
    pub address: ProviderAddress,
    /// Its version.
    pub version: Version,
    /// What a push of it came to.
    pub pushed: PushedProvider,
}

/// A version in the folder.
#[derive(Debug, Default)]
struct Found {
    packages: BTreeMap<ProviderPlatform, PackageSource>,
    /// What is wrong with the files of the protocol.
    findings: Vec<Finding>,
}

/// A provider in the folder, and its versions.
type FoundProvider = (ProviderAddress, BTreeMap<Version, Found>);

/// Pushes every version of every provider in a folder. Breaks off where the registry has gone.
pub async fn import(
    routes: &Routes,
    folder: &Path,
    is_dry_run: bool,
    progress: Arc<dyn Progress>,
) -> Result<Imported> {
    let (root, warned) = (folder.to_owned(), Arc::clone(&progress));
    let providers = super::super::blocking(move || read_folder(&root, &*warned)).await?;
    if providers.is_empty() {
        return Err(OperationError::Usage {
            message: format!("there is no provider in {}", folder.display()),
            hint: "name the folder that `tofu providers mirror` wrote, with a folder for each host in it"
                .to_owned(),
        });
    }
    let mut imported = Imported::default();
    for (address, versions) in providers {
        for (version, Found { packages, findings }) in versions {
            let name = format!("{address}@{version}");
            if !findings.is_empty() {
                imported.failed.push((name, OperationError::Refused(findings)));
                continue;
            }
            let request = ProviderPush {
                address: address.clone(),
                version: version.clone(),
                packages: packages.into_values().collect(),
                dry_run: is_dry_run,
            };
            match push::push(routes, &request, Arc::clone(&progress)).await {
                Ok(pushed) => {
                    let list =
                        if pushed.is_created() { &mut imported.imported } else { &mut imported.skipped };
                    list.push(ImportedVersion { address: address.clone(), version, pushed });
                }
                Err(error) if error.is_passing() => return Err(error),
                Err(error) => imported.failed.push((name, error)),
            }
        }
    }
    Ok(imported)
}

/// The folders in a folder with their names, sorted. What is hidden is none of ours.
fn folders(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    Ok(names(folder)?.into_iter().filter(|(_, path)| path.is_dir()).collect())
}

fn names(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let reading = || OperationError::io(format!("reading {}", folder.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(reading())? {
        let entry = entry.map_err(reading())?;
        if let Some(name) = entry.file_name().to_str().filter(|name| !name.starts_with('.')) {
            names.push((name.to_owned(), entry.path()));
        }
    }
    names.sort();
    Ok(names)
}

fn read_folder(root: &Path, progress: &dyn Progress) -> Result<Vec<FoundProvider>> {
    let mut providers = Vec::new();
    for (host, path) in folders(root)? {
        for (namespace, path) in folders(&path)? {
            for (kind, path) in folders(&path)? {
                let address = match ProviderAddress::parse(&format!("{host}/{namespace}/{kind}")) {
                    Ok(address) => address,
                    Err(error) => {
                        progress.warn(&format!("left out {}: {error}", path.display()));
                        continue;
                    }
                };
                let versions = read_provider(&address, &path, progress)?;
                if !versions.is_empty() {
                    providers.push((address, versions));
                }
            }
        }
    }
    Ok(providers)
}

fn read_provider(
    address: &ProviderAddress,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<BTreeMap<Version, Found>> {
    let mut versions: BTreeMap<Version, Found> = BTreeMap::new();
    let files = names(folder)?;
    for (name, path) in &files {
        let Some(package) = PackageName::parse(name).filter(|package| package.kind == address.kind()) else {
            if path.extension().is_some_and(|extension| extension == "zip") {
                progress.warn(&format!(
                    "left out {}: its name is not that of a package of `{address}`",
                    path.display()
                ));
            }
            continue;
        };
        let source = PackageSource {
            path: path.clone(),
            platform: Some(package.platform.clone()),
            hashes: Vec::new(),
        };
        versions.entry(package.version).or_default().packages.insert(package.platform, source);
    }
    for (name, path) in &files {
        if let Some(version) = name.strip_suffix(".json").and_then(|text| Version::parse(text).ok()) {
            read_version(&version, path, versions.entry(version.clone()).or_default())?;
        }
    }
    for version in listed(&folder.join("index.json"))? {
        let found = versions.entry(version.clone()).or_default();
        if found.packages.is_empty() && found.findings.is_empty() {
            let message =
                format!("{}: `index.json` lists {version}, and there is no package of it", folder.display());
            found.findings.push(Finding::general("missing-package", message));
        }
    }
    Ok(versions)
}

/// `VERSION.json` (provider network mirror protocol, "List Available Installation Packages").
#[derive(Deserialize)]
struct Archives {
    archives: BTreeMap<String, Archive>,
}

#[derive(Deserialize)]
struct Archive {
    url: String,
    #[serde(default)]
    hashes: Vec<String>,
}

/// Adds what `VERSION.json` says to the packages that are there.
fn read_version(version: &Version, path: &Path, found: &mut Found) -> Result<()> {
    let Archives { archives } = match document(path)? {
        Ok(archives) => archives,
        Err(reason) => {
            found.findings.push(Finding::general("mirror-document", format!("{}: {reason}", path.display())));
            return Ok(());
        }
    };
    for (name, Archive { url, hashes }) in archives {
        let finding = |rule, reason: String| Finding::general(rule, format!("{}: {reason}", path.display()));
        let Ok(platform) = name.parse::<ProviderPlatform>() else {
            found
                .findings
                .push(finding("mirror-document", format!("`{}` is not a platform", name.escape_debug())));
            continue;
        };
        // A file elsewhere is not in this folder, and a path out of it is none of ours.
        let named = PackageName::parse(url.strip_prefix("./").unwrap_or(&url));
        let package = found.packages.get_mut(&platform);
        match (named.filter(|named| named.platform == platform && named.version == *version), package) {
            (Some(_), Some(package)) => package.hashes = hashes,
            (Some(_), None) => {
                found
                    .findings
                    .push(finding("missing-package", format!("the zip for `{platform}` is not there")));
            }
            (None, _) => {
                let reason =
                    format!("the package for `{platform}` is at `{}`, not beside it", url.escape_debug());
                found.findings.push(finding("missing-package", reason));
            }
        }
    }
    Ok(())
}

/// The versions in `index.json`; none where there is no such file. What cannot be read as a version is passed over, as clients do.
fn listed(path: &Path) -> Result<BTreeSet<Version>> {
    #[derive(Deserialize)]
    struct Index {
        versions: Map<String, Value>,
    }
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    let index: Index = document(path)?.map_err(|reason| {
        OperationError::refused(Finding::general("mirror-document", format!("{}: {reason}", path.display())))
    })?;
    Ok(index.versions.keys().filter_map(|text| Version::parse(text).ok()).collect())
}

/// A file of the protocol; the inner error says why it is none.
fn document<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Result<T, String>> {
    let reading = || OperationError::io(format!("reading {}", path.display()));
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(reading())?;
    file.take(MAX_DOCUMENT + 1).read_to_end(&mut bytes).map_err(reading())?;
    if bytes.len() as u64 > MAX_DOCUMENT {
        return Ok(Err(format!("it is longer than {MAX_DOCUMENT} bytes")));
    }
    Ok(serde_json::from_slice(&bytes).map_err(|error| error.to_string()))
}
