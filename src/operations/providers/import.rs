//! Pushes a folder of providers, laid out as `tofu providers mirror` and `terraform providers mirror` write it, or as a client's
//! `filesystem_mirror` has it: `HOST/NAMESPACE/TYPE/terraform-provider-TYPE_VERSION_OS_ARCH.zip`, and beside the zips `index.json` and
//! a `VERSION.json` for each version with the hashes of its zips.
//!
//! The files of the protocol are claims about the zips: each hash is checked, and a zip that is named has to be there. What is wrong with one
//! version, or with one list of versions, does not keep the others back.

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
    /// Versions that could not be pushed, and lists and folders that could not be read, and why.
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

/// What is in the folder.
#[derive(Debug, Default)]
struct FoundProviders {
    providers: Vec<(ProviderAddress, BTreeMap<Version, Found>)>,
    /// What cannot be read, and why.
    failed: Vec<(String, OperationError)>,
}

/// Pushes every version of every provider in a folder. Breaks off where the registry has gone.
pub async fn import(
    routes: &Routes,
    folder: &Path,
    is_dry_run: bool,
    progress: Arc<dyn Progress>,
) -> Result<Imported> {
    let (root, warned) = (folder.to_owned(), Arc::clone(&progress));
    let FoundProviders { providers, failed } =
        super::super::blocking(move || read_folder(&root, &*warned)).await?;
    if providers.is_empty() && failed.is_empty() {
        return Err(OperationError::Usage {
            message: format!("there is no provider in {}", folder.display()),
            hint: "name the folder that `tofu providers mirror` wrote, with a folder for each host in it"
                .to_owned(),
        });
    }
    let mut imported = Imported { failed, ..Imported::default() };
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

/// Every provider below the folder. Where the folder itself cannot be read, nothing can.
fn read_folder(root: &Path, progress: &dyn Progress) -> Result<FoundProviders> {
    let mut found = FoundProviders::default();
    for (host, path) in folders(root)? {
        for (namespace, path) in found.folders(&path) {
            for (kind, path) in found.folders(&path) {
                match ProviderAddress::parse(&format!("{host}/{namespace}/{kind}")) {
                    Ok(address) => found.read_provider(address, &path, progress),
                    Err(error) => progress.warn(&format!("left out {}: {error}", path.display())),
                }
            }
        }
    }
    Ok(found)
}

impl FoundProviders {
    /// The folders in a folder; none where it cannot be read, which is noted.
    fn folders(&mut self, folder: &Path) -> Vec<(String, PathBuf)> {
        folders(folder).unwrap_or_else(|error| {
            self.failed.push((folder.display().to_string(), error));
            Vec::new()
        })
    }

    fn read_provider(&mut self, address: ProviderAddress, folder: &Path, progress: &dyn Progress) {
        let files = match names(folder) {
            Ok(files) => files,
            Err(error) => return self.failed.push((address.to_string(), error)),
        };
        let mut versions = read_versions(&address, &files, progress);
        match listed(&folder.join("index.json")) {
            Ok(listed) => {
                for version in listed {
                    let found = versions.entry(version.clone()).or_default();
                    if found.packages.is_empty() && found.findings.is_empty() {
                        let message = format!(
                            "{}: `index.json` lists {version}, and there is no package of it",
                            folder.display()
                        );
                        found.findings.push(Finding::general("missing-package", message));
                    }
                }
            }
            // The versions have files of their own that say what they are.
            Err(finding) => self.failed.push((address.to_string(), OperationError::refused(finding))),
        }
        if !versions.is_empty() {
            self.providers.push((address, versions));
        }
    }
}

/// The versions of which there is a zip or a `VERSION.json`.
fn read_versions(
    address: &ProviderAddress,
    files: &[(String, PathBuf)],
    progress: &dyn Progress,
) -> BTreeMap<Version, Found> {
    let mut versions: BTreeMap<Version, Found> = BTreeMap::new();
    for (name, path) in files {
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
    for (name, path) in files {
        if let Some(version) = name.strip_suffix(".json").and_then(|text| Version::parse(text).ok()) {
            read_version(&version, path, versions.entry(version.clone()).or_default());
        }
    }
    versions
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
fn read_version(version: &Version, path: &Path, found: &mut Found) {
    let Archives { archives } = match document(path) {
        Ok(archives) => archives,
        Err(finding) => return found.findings.push(finding),
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
}

/// The versions in `index.json`; none where there is no such file. What cannot be read as a version is passed over, as clients do.
fn listed(path: &Path) -> Result<BTreeSet<Version>, Finding> {
    #[derive(Deserialize)]
    struct Index {
        versions: Map<String, Value>,
    }
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    let index: Index = document(path)?;
    Ok(index.versions.keys().filter_map(|text| Version::parse(text).ok()).collect())
}

/// A file of the protocol, or why it is none.
fn document<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, Finding> {
    let finding =
        |reason: String| Finding::general("mirror-document", format!("{}: {reason}", path.display()));
    // Before it is opened: a pipe would be waited for.
    if !fs::metadata(path).map_err(|error| finding(error.to_string()))?.is_file() {
        return Err(finding("it is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAX_DOCUMENT + 1).read_to_end(&mut bytes));
    read.map_err(|error| finding(error.to_string()))?;
    if bytes.len() as u64 > MAX_DOCUMENT {
        return Err(finding(format!("it is longer than {MAX_DOCUMENT} bytes")));
    }
    serde_json::from_slice(&bytes).map_err(|error| finding(error.to_string()))
}
