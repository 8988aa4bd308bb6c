//! The documents of the provider registry protocol (OpenTofu, "Provider Registry Protocol"), as an origin answers them. All of them are a
//! stranger's words: what cannot be read is passed over where it is one of many, and refused where it is what was asked for.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::module::{PackageName, ProviderAddress, ProviderPlatform, Version};
use crate::oci::Digest;

/// `/.well-known/terraform.json`
#[derive(Deserialize)]
pub(super) struct Discovery {
    #[serde(rename = "providers.v1")]
    pub(super) providers: Option<String>,
}

/// "List Available Versions"
#[derive(Deserialize)]
struct VersionsDocument {
    #[serde(default)]
    versions: Vec<VersionEntry>,
}

#[derive(Deserialize)]
struct VersionEntry {
    version: String,
    #[serde(default)]
    platforms: Vec<PlatformEntry>,
}

#[derive(Deserialize)]
struct PlatformEntry {
    os: String,
    arch: String,
}

/// The versions that an origin has, and for which systems.
pub(super) type Versions = BTreeMap<Version, BTreeSet<ProviderPlatform>>;

/// Reads `versions`. A version or a system that is none is passed over, as clients do.
pub(super) fn read_versions(bytes: &[u8]) -> Result<Versions, serde_json::Error> {
    let document: VersionsDocument = serde_json::from_slice(bytes)?;
    let mut versions = Versions::new();
    for entry in document.versions {
        let Ok(version) = Version::parse(&entry.version) else { continue };
        let platform = |it: PlatformEntry| ProviderPlatform::new(&it.os, &it.arch).ok();
        versions.entry(version).or_default().extend(entry.platforms.into_iter().filter_map(platform));
    }
    Ok(versions)
}

/// "Find a Provider Package", as far as it is used. Clients ask for all of it but the signature too.
#[derive(Deserialize)]
pub(super) struct PackageDocument {
    pub(super) os: String,
    pub(super) arch: String,
    pub(super) filename: String,
    pub(super) download_url: String,
    pub(super) shasum: String,
    pub(super) shasums_url: String,
    pub(super) shasums_signature_url: Option<String>,
    signing_keys: Option<SigningKeys>,
}

impl PackageDocument {
    /// The keys that may have signed the checksums, as they are.
    pub(super) fn armored_keys(&self) -> Vec<String> {
        let keys = self.signing_keys.as_ref().and_then(|keys| keys.gpg_public_keys.as_ref());
        keys.into_iter().flatten().map(|key| key.ascii_armor.clone()).collect()
    }
}

#[derive(Deserialize)]
struct SigningKeys {
    gpg_public_keys: Option<Vec<SigningKey>>,
}

#[derive(Deserialize)]
struct SigningKey {
    ascii_armor: String,
}

/// Reads `SHA256SUMS`: the digest of each file by its name. A line that is none is passed over, and a name that stands there with two
/// digests is left out, since nobody knows which one counts.
pub(super) fn read_sums(text: &[u8]) -> BTreeMap<String, Digest> {
    let mut sums: BTreeMap<String, Option<Digest>> = BTreeMap::new();
    for line in String::from_utf8_lossy(text).lines() {
        let Some((hex, name)) = line.split_once([' ', '\t']) else { continue };
        // `*` says that the file was read as it is, which is how all are.
        let name = name.trim_start().trim_start_matches('*').trim_end();
        let text = format!("sha256:{}", hex.to_ascii_lowercase());
        let (Ok(digest), false) = (text.parse::<Digest>(), name.is_empty()) else { continue };
        let known = sums.entry(name.to_owned()).or_insert_with(|| Some(digest.clone()));
        if known.as_ref() != Some(&digest) {
            *known = None;
        }
    }
    sums.into_iter().filter_map(|(name, digest)| Some((name, digest?))).collect()
}

/// The packages of a version among the files of `SHA256SUMS`, by the names that packages have everywhere.
pub(super) fn packages(
    address: &ProviderAddress,
    version: &Version,
    sums: &BTreeMap<String, Digest>,
) -> BTreeMap<ProviderPlatform, Digest> {
    let named = |(file, digest): (&String, &Digest)| {
        let name = PackageName::parse(file)?;
        (name.kind == address.kind() && name.version == *version).then(|| (name.platform, digest.clone()))
    };
    sums.iter().filter_map(named).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_and_systems_that_are_none_are_passed_over() {
        let versions = read_versions(
            br#"{"id":"x","versions":[
                {"version":"1.0.0","protocols":["5.0"],"platforms":[{"os":"linux","arch":"amd64"},{"os":"../x","arch":"amd64"}]},
                {"version":"latest","platforms":[]},
                {"version":"1.1.0-rc.1"}
            ]}"#,
        )
        .unwrap();
        let shown: Vec<String> = versions.keys().map(ToString::to_string).collect();
        assert_eq!(shown, ["1.0.0", "1.1.0-rc.1"]);
        assert_eq!(versions.values().next().unwrap().len(), 1);
        assert!(read_versions(b"{\"versions\": 1}").is_err());
    }

    #[test]
    fn sums_are_read_as_tools_write_them() {
        let (one, other) = ("a".repeat(64), "b".repeat(64));
        let name = |platform: &str| format!("terraform-provider-time_1.0.0_{platform}.zip");
        let text = format!(
            "{one}  {}\n{other} *{}\nnonsense\n{one}  {}\n{other}  {}\n{one}  terraform-provider-time_1.0.0_manifest.json\n",
            name("linux_amd64"),
            name("darwin_arm64"),
            name("windows_386"),
            name("windows_386"),
        );
        let sums = read_sums(text.as_bytes());
        let address = ProviderAddress::parse("hashicorp/time").unwrap();
        let packages = packages(&address, &Version::parse("1.0.0").unwrap(), &sums);
        let shown: Vec<_> =
            packages.iter().map(|(platform, digest)| (platform.to_string(), digest.hex())).collect();
        assert_eq!(
            shown,
            [("darwin_arm64".to_owned(), other.as_str()), ("linux_amd64".to_owned(), one.as_str())]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_sums_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_sums(&bytes);
        }
    }
}
