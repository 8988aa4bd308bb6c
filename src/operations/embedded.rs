//! Which version of a module is a dependency layer of whom, and which of these claims are believed.
//!
//! A dependency layer is a claim: whoever may push anything may put any bytes under anybody's name. It counts where nobody else
//! speaks for the module (it has no repository of its own), where the holder lives in the module's own namespace, or where the
//! operator trusts the holder. By repository and not by what the holder says of itself: rights are given for repositories.

use std::collections::{BTreeMap, HashMap};

use crate::artifact::{Content, DependencyLayer};
use crate::module::{CuePath, ModuleVersion, Version};
use crate::oci::Digest;

use super::pattern::Pattern;
use super::published::same_module;
use super::routes::{ModuleName, Place, Routes};

/// More distinct claims than this are not kept: a few hundred bytes each. A registry of that size has modules by the ten
/// thousand that are nowhere but inside others.
const MAX_CLAIMS: usize = 200_000;
/// So many repositories are remembered for one claim: any one of them has the bytes.
const MAX_HOLDERS: usize = 64;

/// A module that has another one as a layer.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Its repository, which has the layer's blob.
    pub place: Place,
    /// What it calls itself.
    pub path: Option<CuePath>,
}

impl Holder {
    fn is_same(&self, other: &Self) -> bool {
        self.place == other.place && self.path == other.path
    }
}

/// That these bytes are that version of that module, by the word of these holders.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The module and its version.
    pub module: ModuleVersion,
    /// The zip.
    pub archive: Content,
    /// Who says so.
    pub holders: Vec<Holder>,
}

/// Every claim of a registry.
#[derive(Debug, Default)]
pub struct Claims {
    /// By the path below the host, since the placeholder host stands for any.
    by_name: HashMap<String, Vec<Claim>>,
    count: usize,
}

/// The path without its host.
fn below_host(path: &CuePath) -> &str {
    path.as_str().split_once('/').map_or("", |(_, rest)| rest)
}

impl Claims {
    /// Takes a dependency layer of a module in. `false` where there are too many.
    pub fn add(&mut self, place: &Place, path: Option<&CuePath>, layer: &DependencyLayer) -> bool {
        let claims = self.by_name.entry(below_host(layer.module.base()).to_owned()).or_default();
        let holder = Holder { place: place.clone(), path: path.cloned() };
        let known =
            claims.iter_mut().find(|claim| claim.module == layer.module && claim.archive == layer.archive);
        if let Some(claim) = known {
            if claim.holders.len() < MAX_HOLDERS && !claim.holders.iter().any(|known| known.is_same(&holder))
            {
                claim.holders.push(holder);
            }
            return true;
        }
        if self.count == MAX_CLAIMS {
            return false;
        }
        self.count += 1;
        claims.push(Claim {
            module: layer.module.clone(),
            archive: layer.archive.clone(),
            holders: vec![holder],
        });
        true
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Every claim about a module, whoever makes it.
    pub fn about<'a>(&'a self, path: &'a CuePath) -> impl Iterator<Item = &'a Claim> {
        let claims = self.by_name.get(below_host(path)).map(Vec::as_slice).unwrap_or_default();
        claims.iter().filter(move |claim| same_module(claim.module.base(), path))
    }
}

/// Who is believed about a module.
pub struct Belief<'a> {
    /// How repositories are laid out.
    pub routes: &'a Routes,
    /// Holders that are believed about every module.
    pub trusted: &'a [Pattern],
    /// Whether the module has a repository of its own, with versions in it.
    pub has_own: bool,
}

impl Belief<'_> {
    /// The claims about a module that are made by somebody who is believed, with these holders alone.
    pub fn believed(&self, claims: &Claims, module: &ModuleName) -> Vec<Claim> {
        let Some(target) = self.routes.target(module.path()) else { return Vec::new() };
        let is_believed = |holder: &Holder| {
            // Another registry speaks for other modules.
            holder.place.target.is_same(target)
                && (!self.has_own
                    || self.trusted.iter().any(|pattern| pattern.matches(holder.place.below_prefix()))
                    || self.routes.shares_namespace(module, &holder.place, holder.path.as_ref()))
        };
        claims
            .about(module.path())
            .filter_map(|claim| {
                let holders: Vec<_> =
                    claim.holders.iter().filter(|holder| is_believed(holder)).cloned().collect();
                (!holders.is_empty()).then(|| Claim { holders, ..claim.clone() })
            })
            .collect()
    }
}

/// Of the claims that turned out to be true, those about which there is one voice: where two say different bytes of one version, neither
/// counts.
pub fn settle(claims: Vec<Claim>) -> BTreeMap<Version, Claim> {
    let mut by_version: BTreeMap<Version, (Claim, bool)> = BTreeMap::new();
    for claim in claims {
        let version = claim.module.version().clone();
        match by_version.get_mut(&version) {
            None => drop(by_version.insert(version, (claim, true))),
            Some((first, _)) if first.archive.digest == claim.archive.digest => {
                first.holders.extend(claim.holders);
            }
            Some((first, agreed)) => {
                if *agreed {
                    warn_of(&first.module, [&first.archive.digest, &claim.archive.digest]);
                }
                *agreed = false;
            }
        }
    }
    by_version
        .into_iter()
        .filter_map(|(version, (claim, agreed))| agreed.then_some((version, claim)))
        .collect()
}

fn warn_of(module: &ModuleVersion, [one, other]: [&Digest; 2]) {
    tracing::warn!(
        "{}@{} is embedded with different content, `{one}` and `{other}`, so neither is served",
        module.base(),
        module.version()
    );
}
