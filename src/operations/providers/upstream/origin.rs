//! One origin: a host that speaks the provider registry protocol (OpenTofu, "Provider Registry Protocol").
//!
//! Every word of it is a stranger's. It may name other hosts, by https alone, and [`crate::registry::remote::Site`] holds them to the rules
//! for places that a registry sends us to.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::Semaphore;
use url::Url;

use crate::module::{Host, PackageName, ProviderAddress, ProviderPlatform, Version};
use crate::oci::Digest;
use crate::registry::RegistryError;
use crate::registry::remote::{Proxies, Site, SiteDocument, SiteFile, Timeouts};

use super::super::super::error::{OperationError, Result};
use super::super::super::finding::Finding;
use super::super::CONCURRENCY;
use super::openpgp::{self, Signer};
use super::protocol::{self, Discovery, PackageDocument, Versions};

/// The list of a provider with a thousand versions for a dozen systems has about 600 KiB.
const MAX_VERSIONS: u64 = 4 << 20;
/// Every other document: the longest has keys in it.
const MAX_DOCUMENT: u64 = 1 << 20;
/// A signature has less than 1 KiB; a few of them may stand there.
const MAX_SIGNATURE: u64 = 64 << 10;

/// A host of providers.
pub(super) struct Origin {
    host: Host,
    site: Site,
    /// Below which the protocol is spoken; `None` where the host has no providers.
    providers: Option<Url>,
}

/// "Find a Provider Package", and where it was found: URLs in it are relative to that.
struct FoundPackage {
    url: Url,
    document: PackageDocument,
}

impl Origin {
    /// Asks a host where its protocol is spoken ("Remote Service Discovery").
    pub(super) async fn discover(host: &Host, proxies: &Proxies, asking: &Semaphore) -> Result<Self> {
        let misled = |reason: String| protocol_error(host, reason);
        let name = host.as_str().parse().map_err(|_| misled("it is no host that can be asked".to_owned()))?;
        let site = Site::new(name, proxies.clone(), Timeouts::default());
        let site = site.map_err(|error| misled(error.to_string()))?;
        let mut origin = Self { host: host.clone(), site, providers: None };
        let url = origin.lead(origin.site.base(), ".well-known/terraform.json")?;
        if let Some(document) = origin.document(&url, MAX_DOCUMENT, asking).await? {
            let discovery: Discovery = origin.read(&document.bytes)?;
            if let Some(path) = discovery.providers {
                let mut providers = origin.lead(&document.url, &path)?;
                if !providers.path().ends_with('/') {
                    providers.set_path(&format!("{}/", providers.path()));
                }
                origin.providers = Some(providers);
            }
        }
        Ok(origin)
    }

    /// "List Available Versions"
    pub(super) async fn versions(
        &self,
        address: &ProviderAddress,
        asking: &Semaphore,
    ) -> Result<Option<Versions>> {
        let path = format!("{}/{}/versions", address.namespace(), address.kind());
        let Some(url) = self.below(&path)? else { return Ok(None) };
        let Some(document) = self.document(&url, MAX_VERSIONS, asking).await? else { return Ok(None) };
        let versions = protocol::read_versions(&document.bytes);
        versions.map(Some).map_err(|error| self.unreadable(&error))
    }

    /// The zips of a version for these systems, by `SHA256SUMS`. The list is one for all systems, as a rule: so the first system leads
    /// to it, and those that it does not name by the names that packages have everywhere are asked for one by one.
    pub(super) async fn packages(
        &self,
        address: &ProviderAddress,
        version: &Version,
        systems: &BTreeSet<ProviderPlatform>,
        asking: &Semaphore,
    ) -> Result<BTreeMap<ProviderPlatform, Digest>> {
        let mut packages = BTreeMap::new();
        let Some(first) = systems.first() else { return Ok(packages) };
        if let Some((digest, sums)) = self.sums(address, version, first, asking).await? {
            packages.extend(protocol::packages(address, version, &sums));
            packages.insert(first.clone(), digest);
        }
        packages.retain(|platform, _| systems.contains(platform));
        let others = systems.iter().skip(1).filter(|platform| !packages.contains_key(*platform)).cloned();
        let asked = stream::iter(others.collect::<Vec<_>>()).map(|platform| async move {
            let sums = self.sums(address, version, &platform, asking).await?;
            Ok::<_, OperationError>(sums.map(|(digest, _)| (platform, digest)))
        });
        let others: Vec<_> = asked.buffered(CONCURRENCY).try_collect().await?;
        packages.extend(others.into_iter().flatten());
        Ok(packages)
    }

    /// The zip for one system, on its way; `None` where it is not there any more.
    pub(super) async fn open(
        &self,
        address: &ProviderAddress,
        version: &Version,
        platform: &ProviderPlatform,
        digest: &Digest,
        asking: &Semaphore,
    ) -> Result<Option<SiteFile>> {
        let Some(found) = self.package(address, version, platform, asking).await? else { return Ok(None) };
        if found.document.shasum.to_ascii_lowercase() != digest.hex() {
            return Err(refused(address, version, "its origin has changed the zip since"));
        }
        let url = self.lead(&found.url, &found.document.download_url)?;
        let file = self.site.file(&url).await;
        file.map_err(OperationError::registry(self.host.to_string()))
    }

    /// "Find a Provider Package"
    async fn package(
        &self,
        address: &ProviderAddress,
        version: &Version,
        platform: &ProviderPlatform,
        asking: &Semaphore,
    ) -> Result<Option<FoundPackage>> {
        let (os, architecture) = (platform.os(), platform.architecture());
        let path =
            format!("{}/{}/{version}/download/{os}/{architecture}", address.namespace(), address.kind());
        let Some(url) = self.below(&path)? else { return Ok(None) };
        let Some(found) = self.document(&url, MAX_DOCUMENT, asking).await? else { return Ok(None) };
        let document: PackageDocument = self.read(&found.bytes)?;
        if document.os != os || document.arch != architecture {
            return Err(refused(
                address,
                version,
                &format!("its origin has another package for `{platform}`"),
            ));
        }
        Ok(Some(FoundPackage { url: found.url, document }))
    }

    /// The zip's checksum for one system, and the whole list that it stands in; `None` where there is no such package.
    async fn sums(
        &self,
        address: &ProviderAddress,
        version: &Version,
        platform: &ProviderPlatform,
        asking: &Semaphore,
    ) -> Result<Option<(Digest, BTreeMap<String, Digest>)>> {
        let Some(FoundPackage { url, document }) = self.package(address, version, platform, asking).await?
        else {
            return Ok(None);
        };
        let refused = |reason: &str| refused(address, version, reason);
        let list = self.lead(&url, &document.shasums_url)?;
        let Some(list) = self.document(&list, MAX_DOCUMENT, asking).await? else {
            return Err(refused("the list of its checksums is not there"));
        };
        let keys = document.armored_keys();
        if keys.is_empty() {
            tracing::warn!(
                "{address}@{version}: its origin names no keys, so the list of its checksums is taken unsigned"
            );
        } else {
            let signature = document.shasums_signature_url.as_ref().filter(|url| !url.is_empty());
            let Some(signature) = signature else {
                return Err(refused("its origin names keys, and no signature by them"));
            };
            let signature = self.document(&self.lead(&url, signature)?, MAX_SIGNATURE, asking).await?;
            let Some(signature) = signature else {
                return Err(refused("its origin names keys, and their signature is not there"));
            };
            self.check(address, version, keys, list.bytes.clone(), signature.bytes).await?;
        }
        let sums = protocol::read_sums(&list.bytes);
        let name = &document.filename;
        let Some(digest) = sums.get(name).cloned() else {
            let expected = PackageName::of(address, version, platform);
            let other = if *name == expected.to_string() { "" } else { ", which is no usual name for it" };
            return Err(refused(&format!(
                "the list of its checksums has none for `{}`{other}",
                name.escape_debug()
            )));
        };
        if digest.hex() != document.shasum.to_ascii_lowercase() {
            return Err(refused(&format!(
                "its origin says the checksum of `{}` in two ways",
                name.escape_debug()
            )));
        }
        Ok(Some((digest, sums)))
    }

    /// Whether the list is signed by one of the keys. It is all numbers, so it is done beside the threads that answer.
    async fn check(
        &self,
        address: &ProviderAddress,
        version: &Version,
        keys: Vec<String>,
        list: Bytes,
        signature: Bytes,
    ) -> Result<()> {
        let checked = tokio::task::spawn_blocking(move || openpgp::verify(&keys, &list, &signature)).await;
        let checked = checked.unwrap_or(Err(openpgp::SignatureError::Unreadable));
        let Signer { key, is_expired } = checked.map_err(|error| {
            let message = format!("{address}@{version}: {error}");
            OperationError::refused(Finding::general("origin-signature", message))
        })?;
        if is_expired {
            tracing::warn!("{address}@{version}: the key {key} that signed its checksums has expired");
        }
        Ok(())
    }

    /// A document; `None` where there is none.
    async fn document(&self, url: &Url, limit: u64, asking: &Semaphore) -> Result<Option<SiteDocument>> {
        let _turn = asking.acquire().await;
        self.site.document(url, limit).await.map_err(|error| match error {
            RegistryError::TooLarge { limit } => too_long(&self.host, limit),
            error => OperationError::registry(self.host.to_string())(error),
        })
    }

    /// A place of the protocol, by names of ours: nothing in them leads elsewhere.
    fn below(&self, path: &str) -> Result<Option<Url>> {
        self.providers.as_ref().map(|providers| self.lead(providers, path)).transpose()
    }

    /// Where a word leads to. It is https, as everything that an origin is asked by.
    fn lead(&self, from: &Url, word: &str) -> Result<Url> {
        let url = from.join(word).ok().filter(|url| url.scheme() == "https");
        url.ok_or_else(|| protocol_error(&self.host, "it names a place that is no https URL".to_owned()))
    }

    fn read<T: for<'de> serde::Deserialize<'de>>(&self, bytes: &[u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &serde_json::Error) -> OperationError {
        protocol_error(&self.host, format!("its answer is none of the protocol: {error}"))
    }
}

fn protocol_error(host: &Host, reason: String) -> OperationError {
    let registry = host.to_string();
    OperationError::registry(registry.clone())(RegistryError::Protocol { registry, reason })
}

/// What is longer than it may be is the origin's fault, and none of whoever asked.
pub(super) fn too_long(host: &Host, limit: u64) -> OperationError {
    protocol_error(host, format!("its answer is longer than {limit} bytes"))
}

fn refused(address: &ProviderAddress, version: &Version, reason: &str) -> OperationError {
    OperationError::refused(Finding::general("origin-checksum", format!("{address}@{version}: {reason}")))
}
