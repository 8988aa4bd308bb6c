//! Which repositories there are to look through: the registry's own list, or a file where it has none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::module::{Address, AddressAt};
use crate::oci::Repository;
use crate::registry::RegistryError;

use super::encoding::Encoding;
use super::error::{OperationError, Result};
use super::pattern::{Pattern, PatternError};
use super::published;
use super::routes::{Place, Routes, Target};

/// A catalog with more repositories is broken off: somebody's registry goes on without end.
pub const MAX_REPOSITORIES: usize = 100_000;
/// A longer file is no list of modules that somebody wrote.
const MAX_FILE_SIZE: u64 = 16 * 1024 * 1024;

/// Where the names of repositories come from (`--catalog`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CatalogSource {
    /// Each registry's own list.
    #[default]
    Registry,
    /// What a file names: addresses, and patterns over the registry's own list.
    File(PathBuf),
    /// Nowhere: nothing is looked through.
    None,
}

impl CatalogSource {
    /// Reads the file, where it is one, so that a mistake in it is told at once. Blocks.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::File(path) => CatalogFile::read(path).map(drop),
            Self::Registry | Self::None => Ok(()),
        }
    }
}

/// A line of a catalog file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Module(Box<AddressAt>),
    Pattern(Pattern),
}

/// What a catalog file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CatalogFile {
    lines: Vec<Line>,
}

/// A catalog file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogFileError {
    /// Neither address nor pattern.
    #[error(
        "line {line}: `{text}` is neither the address of a module, such as `acme/vpc/aws`, nor a pattern of repositories, such as `acme/*`"
    )]
    Line {
        /// From 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// An address with a version: every one is looked at.
    #[error("line {line}: `{text}` names a version; leave it out, since every version is looked at")]
    Version {
        /// From 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// No pattern.
    #[error("line {line}: {source}")]
    Pattern {
        /// From 1.
        line: usize,
        /// Why not.
        source: PatternError,
    },
}

impl CatalogFile {
    /// A line each; blank ones, and what stands behind a `#`, are passed over.
    fn parse(text: &str) -> Result<Self, CatalogFileError> {
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let (line_number, line) = (number + 1, line.split('#').next().unwrap_or_default().trim());
            if line.is_empty() {
                continue;
            }
            if line.contains('*') {
                let pattern = line.parse();
                let pattern =
                    pattern.map_err(|source| CatalogFileError::Pattern { line: line_number, source })?;
                lines.push(Line::Pattern(pattern));
                continue;
            }
            let text = || line.chars().take(200).collect::<String>();
            let address: AddressAt =
                line.parse().map_err(|_| CatalogFileError::Line { line: line_number, text: text() })?;
            if address.version.is_some() {
                return Err(CatalogFileError::Version { line: line_number, text: text() });
            }
            if !matches!(address.address, Address::Tofu(_) | Address::Cue(_)) {
                return Err(CatalogFileError::Line { line: line_number, text: text() });
            }
            lines.push(Line::Module(Box::new(address)));
        }
        Ok(Self { lines })
    }

    fn read(path: &Path) -> Result<Self> {
        let usage = |message: String| {
            OperationError::Usage {
            message: format!("{}: {message}", path.display()),
            hint: "`--catalog` names a file with the address of a module, or a pattern of repositories, on each line"
                .to_owned(),
        }
        };
        let size = std::fs::metadata(path).map_err(|error| usage(error.to_string()))?.len();
        if size > MAX_FILE_SIZE {
            return Err(usage("the file is too large for a list of modules".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| usage(error.to_string()))?;
        Self::parse(&text).map_err(|error| usage(error.to_string()))
    }

    fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.lines.iter().filter_map(|line| match line {
            Line::Pattern(pattern) => Some(pattern),
            Line::Module(_) => None,
        })
    }

    /// The repositories that the addresses may be in.
    fn places(&self, routes: &Routes) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        for line in &self.lines {
            if let Line::Module(address) = line {
                places.extend(routes.places(&published::name(address)?)?);
            }
        }
        Ok(places)
    }
}

/// The repositories that are to be looked through, each once and in one order.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The repositories.
    pub places: Vec<Place>,
    /// The registries that have no list and of which no file says anything: what is in them is not known.
    pub unlisted: Vec<Target>,
    /// The registries with more repositories than are read of one.
    pub cut: Vec<Target>,
}

/// Reads the lists of every registry. One that is too long is an error.
pub async fn read(routes: &Routes, source: &CatalogSource) -> Result<Catalog> {
    let catalog = read_part(routes, source).await?;
    match catalog.cut.first() {
        None => Ok(catalog),
        Some(target) => Err(OperationError::registry(target.name.clone())(RegistryError::TooMany {
            what: "repositories",
            limit: MAX_REPOSITORIES,
        })),
    }
}

/// The same with as many repositories of each registry as are read of one.
pub(super) async fn read_part(routes: &Routes, source: &CatalogSource) -> Result<Catalog> {
    let file = match source {
        CatalogSource::None => return Ok(Catalog::default()),
        CatalogSource::Registry => None,
        CatalogSource::File(path) => {
            let path = path.clone();
            Some(super::blocking(move || CatalogFile::read(&path)).await?)
        }
    };
    let mut catalog = Catalog::default();
    for (target, encoding) in module_targets(routes) {
        let has_patterns = file.as_ref().is_none_or(|file| file.patterns().next().is_some());
        if !has_patterns {
            continue;
        }
        // In one repository for all the modules of a tag are known by their paths alone.
        let Some(tag_prefix) = encoding.common_tag_prefix() else {
            catalog.unlisted.push(target.clone());
            continue;
        };
        match first_repositories(&target.with_tag_prefix(tag_prefix.to_owned())).await {
            Ok((places, is_cut)) => {
                catalog.cut.extend(is_cut.then(|| target.clone()));
                let is_named = |place: &Place| match &file {
                    None => true,
                    Some(file) => file.patterns().any(|pattern| pattern.matches(place.below_prefix())),
                };
                catalog.places.extend(places.into_iter().filter(is_named));
            }
            Err(OperationError::Registry { source: RegistryError::NoCatalog, .. }) => {
                catalog.unlisted.push(target.clone());
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(file) = &file {
        catalog.places.extend(file.places(routes)?);
    }
    let order = |place: &Place| {
        let tags = place.tag_prefix().to_owned();
        (place.target.identity.to_string(), place.repository.to_string(), tags)
    };
    catalog.places.sort_by_cached_key(order);
    catalog.places.dedup();
    Ok(catalog)
}

/// Every registry that is set, each once: several prefixes may lead to one.
pub(super) fn targets(routes: &Routes) -> Vec<&Target> {
    let targets: BTreeMap<_, _> =
        routes.targets().map(|target| ((target.identity.as_ref(), target.prefix.as_str()), target)).collect();
    targets.into_values().collect()
}

/// The same with what modules are called there: a registry more than once where they are called in several ways.
pub(super) fn module_targets(routes: &Routes) -> Vec<(&Target, &Encoding)> {
    let mut found: Vec<(&Target, &Encoding)> = Vec::new();
    for (target, encoding) in routes.encodings() {
        let is_known = |(other, known): &(&Target, &Encoding)| {
            other.is_same(target) && known.common_tag_prefix() == encoding.common_tag_prefix()
        };
        if !found.iter().any(is_known) {
            found.push((target, encoding));
        }
    }
    found
}

/// The repositories of a registry below its prefix.
pub async fn repositories(target: &Target) -> Result<Vec<Place>> {
    let names = target.registry.all_repositories(MAX_REPOSITORIES).await;
    Ok(below_prefix(target, names.map_err(OperationError::registry(target.name.clone()))?))
}

/// The same as far as is read of one registry, and whether it has more.
async fn first_repositories(target: &Target) -> Result<(Vec<Place>, bool)> {
    let names = target.registry.first_repositories(MAX_REPOSITORIES).await;
    let (names, is_cut) = names.map_err(OperationError::registry(target.name.clone()))?;
    Ok((below_prefix(target, names), is_cut))
}

fn below_prefix(target: &Target, names: Vec<Repository>) -> Vec<Place> {
    let below = |name: &Repository| {
        let rest = name.as_str().strip_prefix(&target.prefix);
        target.prefix.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let places = names.into_iter().filter(below);
    places.map(|repository| Place { target: target.clone(), repository }).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_addresses_and_patterns() {
        let text = "# ours\nacme/vpc/aws\n\n  modules.acme.example/acme/label/null # one more\nacme/*\nexample.com/net/vpc@v1\n";
        let error = CatalogFile::parse(text).unwrap_err();
        assert_eq!(error, CatalogFileError::Version { line: 6, text: "example.com/net/vpc@v1".into() });
        let file = CatalogFile::parse(&text.replace("vpc@v1", "vpc")).unwrap();
        assert_eq!(file.lines.len(), 4);
        assert_eq!(file.patterns().count(), 1);
    }

    #[test]
    fn what_is_neither_is_refused_with_its_line() {
        for text in ["x\nacme", "\noci://host/a:v1", "acme/vpc/aws\nprovider:a.b/c/d", "acme/V*"] {
            let error = CatalogFile::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("line "), "{error}");
        }
    }
}
