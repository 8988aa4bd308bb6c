//! Pushes a provider's packages: checks and hashes each, sends what the registry lacks, and adds them to the version's index as the
//! last step.
//!
//! A system that is there is immutable; a version gains systems, also from several pushes at once. In the directory store the index is
//! replaced under a lock by one that keeps every entry, or else the push reads it again and adds to that. A remote registry has no such
//! condition: the index is read back after it was stored, at once and again after a while, and the addition repeated where another
//! push has overwritten it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::artifact::{self, ProviderEntry, ProviderIndex, ProviderTarget, media_types};
use crate::module::{PackageName, ProviderAddress, ProviderPlatform, Version};
use crate::oci::{Digest, IMAGE_INDEX, IMAGE_MANIFEST, Tag};
use crate::registry::{BlobSource, BytesSource, Condition, FileSource, NewManifest, RegistryError};

use super::super::Progress;
use super::super::error::{OperationError, Result};
use super::super::finding::Finding;
use super::super::progress::CountedSource;
use super::super::routes::{Place, Routes};
use super::package::{self, Package};
use super::{StoredProvider, StoredTarget, load};

/// How often a push begins again because another one came first. Each time one of the others has ended, and there are fewer systems
/// than this.
const MAX_ATTEMPTS: usize = 100;
/// How long another push can take from reading the index to replacing it, at least and at most: so long after its own a push looks
/// again whether it was overwritten. In between it is as long as its own took, four times over.
const SETTLING: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// What to push.
#[derive(Clone, Debug)]
pub struct ProviderPush {
    /// The provider.
    pub address: ProviderAddress,
    /// Its version.
    pub version: Version,
    /// The zips.
    pub packages: Vec<PackageSource>,
    /// Check everything and send nothing.
    pub dry_run: bool,
}

/// A zip that is to be pushed.
#[derive(Clone, Debug)]
pub struct PackageSource {
    /// Where it is.
    pub path: PathBuf,
    /// Its system, where the name of the file does not say it.
    pub platform: Option<ProviderPlatform>,
    /// What somebody wrote down of it: each `h1:` and `zh:` hash has to be its own.
    pub hashes: Vec<String>,
}

/// What came of a push.
#[derive(Clone, Debug)]
pub struct PushedProvider {
    /// `registry/repository:tag`.
    pub reference: String,
    /// `registry/repository@digest`.
    pub pinned: String,
    /// Digest of the index; in a dry run of the one that would be there.
    pub digest: Digest,
    /// The systems of this push, sorted.
    pub targets: Vec<PushedTarget>,
    /// Bytes of blobs and manifests that were sent.
    pub bytes_sent: u64,
}

impl PushedProvider {
    /// Whether anything is new.
    pub fn is_created(&self) -> bool {
        self.targets.iter().any(|target| target.created)
    }
}

/// A package that is in the registry now.
#[derive(Clone, Debug)]
pub struct PushedTarget {
    /// What is stored.
    pub stored: StoredTarget,
    /// Whether it is new; `false` where the same was there.
    pub created: bool,
}

/// Pushes packages.
pub async fn push(
    routes: &Routes,
    request: &ProviderPush,
    progress: Arc<dyn Progress>,
) -> Result<PushedProvider> {
    let tag = artifact::provider_tag(&request.version)?;
    let place = routes.provider_place(&request.address)?;
    let packages = read_packages(request, &*progress).await?;
    let (address, version) = (request.address.clone(), request.version.clone());
    Push { address, version, place, tag, progress }.run(&packages, request.dry_run).await
}

/// Pushes packages that were read already.
pub(super) async fn push_packages(
    routes: &Routes,
    address: &ProviderAddress,
    version: &Version,
    packages: &BTreeMap<ProviderPlatform, Package>,
    progress: Arc<dyn Progress>,
) -> Result<PushedProvider> {
    let tag = artifact::provider_tag(version)?;
    let place = routes.provider_place(address)?;
    let (address, version) = (address.clone(), version.clone());
    Push { address, version, place, tag, progress }.run(packages, false).await
}

/// The zips by their systems, every one checked.
async fn read_packages(
    request: &ProviderPush,
    progress: &dyn Progress,
) -> Result<BTreeMap<ProviderPlatform, Package>> {
    let mut paths = BTreeMap::new();
    for PackageSource { path, platform, hashes } in &request.packages {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let platform = platform_of(request, &name, platform.as_ref())?;
        if paths.insert(platform.clone(), (path, name, hashes)).is_some() {
            return Err(OperationError::Usage {
                message: format!("two of the files are for `{platform}`"),
                hint: "a version has one zip for each platform".to_owned(),
            });
        }
    }
    let (mut packages, mut findings) = (BTreeMap::new(), Vec::new());
    for (platform, (path, name, hashes)) in paths {
        match package::read(path, &request.address, &name).await {
            Ok(package) => {
                findings.extend(wrong_hash(&package, hashes).map(|hash| {
                    let (h1, zh) = (&package.h1, package.archive.digest.hex());
                    let message = format!(
                        "{name}: the hash `{}` is not that of the zip, which has {h1} and zh:{zh}",
                        hash.escape_debug()
                    );
                    Finding::general("hash-mismatch", message)
                }));
                if !package.has_program {
                    progress.warn(&format!(
                        "{name} has no file at its root whose name begins with `terraform-provider-{}`, which clients look for",
                        request.address.kind()
                    ));
                }
                packages.insert(platform, package);
            }
            Err(OperationError::Refused(found)) => findings.extend(found),
            Err(error) => return Err(error),
        }
    }
    if findings.is_empty() { Ok(packages) } else { Err(OperationError::Refused(findings)) }
}

/// A hash that is not the zip's own. One by a scheme that is not known says nothing.
fn wrong_hash<'a>(package: &Package, hashes: &'a [String]) -> Option<&'a String> {
    hashes.iter().find(|hash| match hash.split_once(':') {
        Some(("h1", _)) => **hash != package.h1.to_string(),
        Some(("zh", hex)) => hex != package.archive.digest.hex(),
        _ => false,
    })
}

/// The system of a file: what the caller says, else what its name says. A name that says another provider or version is a slip.
fn platform_of(
    request: &ProviderPush,
    file: &str,
    said: Option<&ProviderPlatform>,
) -> Result<ProviderPlatform> {
    let usage = |message: String, hint: &str| OperationError::Usage { message, hint: hint.to_owned() };
    let Some(name) = PackageName::parse(file) else {
        let hint =
            "name it `terraform-provider-TYPE_VERSION_OS_ARCH.zip`, or say it with `--platform OS_ARCH`";
        let unknown = || usage(format!("the name of `{file}` does not say for which platform it is"), hint);
        return said.cloned().ok_or_else(unknown);
    };
    let (kind, version) = (request.address.kind(), &request.version);
    if name.kind != kind || name.version != *version {
        let message = format!(
            "`{file}` calls itself `{}` {}, and is pushed as `{kind}` {version}",
            name.kind, name.version
        );
        return Err(usage(message, "rename the file, or correct the address"));
    }
    match said {
        Some(platform) if *platform != name.platform => Err(usage(
            format!(
                "`{file}` says that it is for `{}`, and `--platform` that it is for `{platform}`",
                name.platform
            ),
            "leave out `--platform`, or rename the file",
        )),
        _ => Ok(name.platform),
    }
}

/// What became of storing an index.
enum Stored {
    Done,
    /// Another push has stored one meanwhile.
    Overtaken,
}

struct Push {
    address: ProviderAddress,
    version: Version,
    place: Place,
    tag: Tag,
    progress: Arc<dyn Progress>,
}

impl Push {
    async fn run(
        &self,
        packages: &BTreeMap<ProviderPlatform, Package>,
        is_dry_run: bool,
    ) -> Result<PushedProvider> {
        let (mut bytes_sent, mut is_sent) = (0, false);
        // What an attempt has added is not there already, though the next one finds it.
        let mut added: Vec<ProviderPlatform> = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            let began = Instant::now();
            let existing = self.existing().await?;
            let (mut targets, new) = self.compare(existing.as_ref(), packages).await?;
            if !is_dry_run && !is_sent {
                bytes_sent += self.send(packages, &new).await?;
                is_sent = true;
            }
            let entries: Vec<ProviderEntry> = new.iter().map(|(_, _, entry)| entry.clone()).collect();
            let bytes = match &existing {
                Some(existing) if entries.is_empty() => existing.bytes.clone(),
                Some(existing) => ProviderIndex::extended_bytes(&existing.bytes, &entries)
                    .map_err(|source| OperationError::NotAProvider { reference: self.name(), source })?,
                None => ProviderIndex::new_bytes(&self.address, &self.version, &entries),
            };
            let digest = Digest::of(&bytes);
            if !is_dry_run && !entries.is_empty() {
                bytes_sent += bytes.len() as u64;
                match self.put_index(existing.as_ref(), bytes, &entries, began).await? {
                    Stored::Done => {}
                    Stored::Overtaken => {
                        added.extend(entries.into_iter().map(|entry| entry.platform));
                        continue;
                    }
                }
            }
            targets.extend(new.into_iter().map(|(target, _, entry)| PushedTarget {
                stored: StoredTarget { manifest: entry.manifest.digest, target },
                created: true,
            }));
            for target in &mut targets {
                target.created |= added.contains(&target.stored.target.platform);
            }
            targets.sort_by(|one, other| one.stored.target.platform.cmp(&other.stored.target.platform));
            return Ok(PushedProvider {
                reference: self.name(),
                pinned: self.place.reference(&digest.clone().into()),
                digest,
                targets,
                bytes_sent,
            });
        }
        let reason = "other pushes of the same version came first, time and again".to_owned();
        let error = RegistryError::Unavailable { registry: self.place.target.name.clone(), reason };
        Err(OperationError::registry(self.name())(error))
    }

    fn name(&self) -> String {
        self.place.reference(&self.tag.clone().into())
    }

    /// The version as it is now.
    async fn existing(&self) -> Result<Option<StoredProvider>> {
        match load(&self.address, &self.place, &self.version, &self.tag).await {
            Ok(Ok(stored)) => Ok(Some(stored)),
            Ok(Err(OperationError::NotAProvider { reference, source })) => {
                let message = format!("{reference}: {source}; push the provider under another version");
                Err(OperationError::refused(Finding::general("version-taken", message)))
            }
            Ok(Err(error)) => Err(error),
            // Where a repository that is not there yet may not be read, the push itself will tell.
            Err(error) if error.is_not_found() || matches!(error, RegistryError::Denied { .. }) => Ok(None),
            Err(error) => Err(OperationError::registry(self.name())(error)),
        }
    }

    /// The packages that are there already, and those that are not, with their manifests and entries. Refused where one is there with
    /// other content.
    async fn compare(
        &self,
        existing: Option<&StoredProvider>,
        packages: &BTreeMap<ProviderPlatform, Package>,
    ) -> Result<(Vec<PushedTarget>, Vec<(ProviderTarget, Bytes, ProviderEntry)>)> {
        let (mut there, mut new) = (Vec::new(), Vec::new());
        for (platform, package) in packages {
            let exists = |stored: &StoredProvider, difference: String| OperationError::Exists {
                reference: self.name(),
                digest: stored.digest.clone(),
                difference,
            };
            if let Some(stored) = existing {
                if stored.index.ambiguous.contains(platform) {
                    return Err(exists(stored, format!("has several manifests for `{platform}`")));
                }
                if let Some(entry) = stored.index.get(platform) {
                    let target = stored.target(entry).await?;
                    if target.target.archive != package.archive {
                        let digest = &target.target.archive.digest;
                        return Err(exists(stored, format!("has another zip for `{platform}` ({digest})")));
                    }
                    there.push(PushedTarget { stored: target, created: false });
                    continue;
                }
            }
            let target = ProviderTarget {
                platform: platform.clone(),
                archive: package.archive.clone(),
                h1: Some(package.h1.clone()),
            };
            let manifest = target.to_manifest(&self.address, &self.version);
            let entry = target.entry(&manifest);
            new.push((target, manifest, entry));
        }
        Ok((there, new))
    }

    /// Sends the zips and manifests that the repository lacks, also the zips of systems that are there already: one that was lost comes
    /// back. Answers how many bytes were sent.
    async fn send(
        &self,
        packages: &BTreeMap<ProviderPlatform, Package>,
        new: &[(ProviderTarget, Bytes, ProviderEntry)],
    ) -> Result<u64> {
        let mut sent = 0;
        for (platform, package) in packages {
            let zip = FileSource::new(&package.path, package.archive.size);
            sent += self.blob(&platform.to_string(), &package.archive.digest, &zip).await?;
        }
        if !new.is_empty() {
            let config = BytesSource(Bytes::from_static(media_types::EMPTY_CONFIG));
            sent += self.blob("configuration", &Digest::of(media_types::EMPTY_CONFIG), &config).await?;
        }
        for (_, manifest, entry) in new {
            let manifest = NewManifest {
                media_type: IMAGE_MANIFEST.to_owned(),
                bytes: manifest.clone(),
                digest: Some(entry.manifest.digest.clone()),
                tags: Vec::new(),
                condition: Condition::None,
            };
            let stored = self.place.registry().put_manifest(&self.place.repository, &manifest).await;
            stored.map_err(OperationError::registry(self.place.name()))?;
            sent += manifest.bytes.len() as u64;
        }
        Ok(sent)
    }

    async fn blob(&self, what: &str, digest: &Digest, source: &dyn BlobSource) -> Result<u64> {
        let registry = self.place.registry();
        let failed = || OperationError::registry(self.place.name());
        match registry.blob_size(&self.place.repository, digest).await {
            Ok(_) => return Ok(0),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(failed()(error)),
        }
        self.progress.started(what, Some(source.size()));
        let counted = CountedSource::new(source, Arc::clone(&self.progress));
        let answer = registry.put_blob(&self.place.repository, digest, &counted).await;
        self.progress.finished();
        answer.map_err(failed())?;
        Ok(source.size())
    }

    /// Stores the index, in the place of the one that it was made from.
    async fn put_index(
        &self,
        existing: Option<&StoredProvider>,
        bytes: Bytes,
        entries: &[ProviderEntry],
        began: Instant,
    ) -> Result<Stored> {
        let manifest = NewManifest {
            media_type: IMAGE_INDEX.to_owned(),
            digest: None,
            bytes,
            tags: vec![self.tag.clone()],
            // The store lets an index be extended and nothing else; who finds one where none was adds to it.
            condition: if existing.is_some() { Condition::None } else { Condition::AbsentOrSame },
        };
        match self.place.registry().put_manifest(&self.place.repository, &manifest).await {
            Ok(_) => {}
            Err(RegistryError::TagExists { tag, existing: now }) => {
                return match existing {
                    // Nobody came first, and still it may not be replaced.
                    Some(existing) if existing.digest == now || tag != self.tag => Err(self.is_locked(&tag)),
                    None if tag != self.tag => Err(self.is_locked(&tag)),
                    _ => Ok(Stored::Overtaken),
                };
            }
            // The client itself looks whether the tag is what was stored.
            Err(error) if error.is_not_found() => return Err(self.is_hidden()),
            Err(error) => return Err(OperationError::registry(self.name())(error)),
        }
        if self.place.target.is_local {
            return Ok(Stored::Done);
        }
        if !self.has(entries).await? {
            return Ok(Stored::Overtaken);
        }
        let (least, most) = SETTLING;
        tokio::time::sleep((began.elapsed() * 4).clamp(least, most)).await;
        Ok(if self.has(entries).await? { Stored::Done } else { Stored::Overtaken })
    }

    /// Whether the index that was stored has these entries now. Who may not read it cannot know, and does not try for ever.
    async fn has(&self, entries: &[ProviderEntry]) -> Result<bool> {
        let Some(now) = self.existing().await? else { return Err(self.is_hidden()) };
        Ok(entries.iter().all(|entry| now.index.get(&entry.platform) == Some(entry)))
    }

    fn is_hidden(&self) -> OperationError {
        let operation = "reading back what was pushed".to_owned();
        let error = RegistryError::Denied { registry: self.place.target.name.clone(), operation };
        OperationError::registry(self.name())(error)
    }

    fn is_locked(&self, tag: &Tag) -> OperationError {
        let message = format!(
            "{} may not be replaced by an index with more platforms ({} is fixed); push all platforms of a version at once, or have the \
             registry let this tag move",
            self.name(),
            tag
        );
        OperationError::refused(Finding::general("tag-immutable", message))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn request() -> ProviderPush {
        ProviderPush {
            address: ProviderAddress::parse("hashicorp/time").unwrap(),
            version: Version::parse("0.14.2+b.1").unwrap(),
            packages: Vec::new(),
            dry_run: false,
        }
    }

    #[test]
    fn the_system_of_a_file_is_in_its_name_or_said() {
        let linux: ProviderPlatform = "linux_amd64".parse().unwrap();
        let of = |file: &str, said: Option<&ProviderPlatform>| platform_of(&request(), file, said).ok();
        let name = "terraform-provider-time_0.14.2+b.1_linux_amd64.zip";
        assert_eq!(of(name, None), Some(linux.clone()));
        assert_eq!(of(name, Some(&linux)), Some(linux.clone()));
        assert_eq!(of("time.zip", Some(&linux)), Some(linux.clone()));
        assert_eq!(of("time.zip", None), None);
        assert_eq!(of(name, Some(&"darwin_arm64".parse().unwrap())), None);
        for other in [
            "terraform-provider-time_0.14.2_linux_amd64.zip",
            "terraform-provider-tls_0.14.2+b.1_linux_amd64.zip",
        ] {
            assert_eq!(of(other, Some(&linux)), None, "{other}");
        }
    }
}
