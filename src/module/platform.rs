//! The systems that a provider is built for, and the names of its packages.

use std::fmt;
use std::str::FromStr;

use super::address::ProviderAddress;
use super::path::shorten;
use super::version::Version;

/// Longer words are no system of Go's.
const MAX_WORD: usize = 32;

/// Operating system and processor in Go's names, as OpenTofu writes them: `linux_amd64`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderPlatform {
    os: String,
    architecture: String,
}

/// The text is no platform.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a platform: expected an operating system and a processor, as in `linux_amd64`")]
pub struct PlatformError(String);

impl ProviderPlatform {
    /// From an operating system and a processor.
    pub fn new(os: &str, architecture: &str) -> Result<Self, PlatformError> {
        let is_word = |text: &str| {
            (1..=MAX_WORD).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if is_word(os) && is_word(architecture) {
            Ok(Self { os: os.to_owned(), architecture: architecture.to_owned() })
        } else {
            Err(PlatformError(shorten(&format!("{os}_{architecture}"))))
        }
    }

    /// The operating system, such as `linux`.
    pub fn os(&self) -> &str {
        &self.os
    }

    /// The processor, such as `amd64`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }
}

impl FromStr for ProviderPlatform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('_') {
            Some((os, architecture)) => Self::new(os, architecture),
            None => Err(PlatformError(shorten(text))),
        }
    }
}

impl fmt::Display for ProviderPlatform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}_{}", self.os, self.architecture)
    }
}

/// What the name of a package says: `terraform-provider-TYPE_VERSION_OS_ARCH.zip`, as release tools and mirrors write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageName {
    /// What the provider is for.
    pub kind: String,
    /// Its version.
    pub version: Version,
    /// The system that it is built for.
    pub platform: ProviderPlatform,
}

impl PackageName {
    /// Reads the name of a file; `None` where it is no package's.
    pub fn parse(file: &str) -> Option<Self> {
        let rest = file.strip_prefix("terraform-provider-")?.strip_suffix(".zip")?;
        let (rest, architecture) = rest.rsplit_once('_')?;
        let (rest, os) = rest.rsplit_once('_')?;
        let (kind, version) = rest.split_once('_')?;
        let platform = ProviderPlatform::new(os, architecture).ok()?;
        let version = Version::parse(version).ok()?;
        (!kind.is_empty()).then(|| Self { kind: kind.to_ascii_lowercase(), version, platform })
    }

    /// The name of a provider's package.
    pub fn of(address: &ProviderAddress, version: &Version, platform: &ProviderPlatform) -> Self {
        Self { kind: address.kind().to_owned(), version: version.clone(), platform: platform.clone() }
    }
}

impl fmt::Display for PackageName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "terraform-provider-{}_{}_{}.zip", self.kind, self.version, self.platform)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn platforms_are_read_as_opentofu_writes_them() {
        for text in ["linux_amd64", "windows_386", "darwin_arm64"] {
            assert_eq!(text.parse::<ProviderPlatform>().unwrap().to_string(), text);
        }
        let long = format!("linux_{}", "a".repeat(MAX_WORD + 1));
        for text in ["", "linux", "linux_", "_amd64", "linux/amd64", "Linux_amd64", "a_b_c", "../_x", &long] {
            assert!(text.parse::<ProviderPlatform>().is_err(), "{text}");
        }
    }

    #[test]
    fn packages_are_known_by_their_names() {
        for (name, kind, version, platform) in [
            ("terraform-provider-time_0.14.2_linux_amd64.zip", "time", "0.14.2", "linux_amd64"),
            (
                "terraform-provider-google-beta_1.0.0-rc.1+b.2_darwin_arm64.zip",
                "google-beta",
                "1.0.0-rc.1+b.2",
                "darwin_arm64",
            ),
        ] {
            let read = PackageName::parse(name).unwrap();
            assert_eq!((read.kind.as_str(), read.version.to_string().as_str()), (kind, version));
            assert_eq!(read.platform.to_string(), platform);
            assert_eq!(read.to_string(), name);
        }
        for name in [
            "",
            "time.zip",
            "terraform-provider-time_0.14.2_linux_amd64.tar",
            "terraform-provider-time_0.14_linux_amd64.zip",
            "terraform-provider-_0.14.2_linux_amd64.zip",
            "terraform-provider-time_0.14.2_amd64.zip",
            "terraform-provider-time_0.14.2_SHA256SUMS",
        ] {
            assert_eq!(PackageName::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_read_or_not(name in "(terraform-provider-)?\\PC{0,40}(\\.zip)?") {
            let _ = PackageName::parse(&name);
        }
    }
}
