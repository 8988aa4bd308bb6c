//! Which version of a module is a dependency layer of whom, and which of these claims are believed.
//!
//! A dependency layer is a claim: whoever may push anything may put any bytes under anybody's name. It counts where nobody else
//! speaks for the module (it has no repository of its own), where the holder lives in the module's own namespace, or where the
//! operator trusts the holder. By repository and not by what the holder says of itself: rights are given for repositories.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::artifact::{Content, DependencyLayer};
use crate::module::{CuePath, ModuleVersion, Version};
use crate::oci::Digest;

use super::pattern::Pattern;
use super::published::same_module;
use super::routes::{ModuleName, Place, Routes};

/// More distinct claims than this are not kept: a few hundred bytes each. A registry of that size has modules by the ten
/// thousand that are nowhere but inside others.
const MAX_CLAIMS: usize = 200_000;
/// So many repositories of one namespace are remembered for one claim: any one of them has the bytes. Those of another namespace are
/// counted by themselves: whoever repeats somebody's claim a hundred times must not push out the one who is believed.
const MAX_HOLDERS: usize = 64;
/// So many versions of one module are taken from the repositories of one namespace. Each may have to be looked at before an answer,
/// and nobody brings more of them along than there are versions of anything.
const MAX_VERSIONS: usize = 1_000;

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
    /// Whether one of them is believed about the module in any case, and not only because nobody else speaks for it.
    pub is_close: bool,
}

impl Claim {
    fn remember(&mut self, holder: Holder) {
        let mut neighbours = 0;
        for known in &self.holders {
            if known.is_same(&holder) {
                return;
            }
            neighbours += usize::from(namespace(&known.place) == namespace(&holder.place));
        }
        if neighbours < MAX_HOLDERS {
            self.holders.push(holder);
        }
    }
}

/// Every claim of a registry.
#[derive(Debug)]
pub struct Claims {
    /// By the path below the host, since the placeholder host stands for any.
    by_name: HashMap<String, Vec<Claim>>,
    count: usize,
    /// How many were brought in by each namespace, and how many one of them may.
    of_namespaces: HashMap<String, usize>,
    share: usize,
}

impl Default for Claims {
    fn default() -> Self {
        Self { by_name: HashMap::new(), count: 0, of_namespaces: HashMap::new(), share: MAX_CLAIMS }
    }
}

/// Rights to push are given by namespace, and so is room.
pub(super) fn namespace(place: &Place) -> &str {
    place.below_prefix().split('/').next().unwrap_or_default()
}

/// The path without its host.
fn below_host(path: &CuePath) -> &str {
    path.as_str().split_once('/').map_or("", |(_, rest)| rest)
}

impl Claims {
    /// Gives every namespace as much room as any other; then, with [`Self::leave_the_rest_to_all`], what nobody took to whoever comes.
    pub fn shared_by(namespaces: usize) -> Self {
        Self { share: MAX_CLAIMS / namespaces.max(1), ..Self::default() }
    }

    /// From here on one namespace may take all the room that is left.
    pub fn leave_the_rest_to_all(&mut self) {
        self.share = MAX_CLAIMS;
    }

    /// Takes a dependency layer of a module in. `false` where there are too many.
    pub fn add(&mut self, place: &Place, path: Option<&CuePath>, layer: &DependencyLayer) -> bool {
        let name = below_host(layer.module.base());
        let holder = Holder { place: place.clone(), path: path.cloned() };
        let mut versions = 0;
        for claim in self.by_name.get_mut(name).into_iter().flatten() {
            if claim.module == layer.module && claim.archive == layer.archive {
                claim.remember(holder);
                return true;
            }
            let first = claim.holders.first();
            versions += usize::from(first.is_some_and(|first| namespace(&first.place) == namespace(place)));
        }
        let taken = self.of_namespaces.get(namespace(place)).copied().unwrap_or_default();
        if versions >= MAX_VERSIONS || taken >= self.share || self.count >= MAX_CLAIMS {
            return false;
        }
        self.count += 1;
        self.of_namespaces.insert(namespace(place).to_owned(), taken + 1);
        self.by_name.entry(name.to_owned()).or_default().push(Claim {
            module: layer.module.clone(),
            archive: layer.archive.clone(),
            holders: vec![holder],
            is_close: false,
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
        // Another registry speaks for other modules.
        let is_here = |holder: &&Holder| holder.place.target.is_same(target);
        let is_close = |holder: &Holder| {
            self.trusted.iter().any(|pattern| pattern.matches(holder.place.below_prefix()))
                || self.routes.shares_namespace(module, &holder.place, holder.path.as_ref())
        };
        claims
            .about(module.path())
            .filter_map(|claim| {
                let holders = claim.holders.iter().filter(is_here);
                let holders: Vec<_> =
                    holders.filter(|holder| !self.has_own || is_close(holder)).cloned().collect();
                let is_close = holders.iter().any(is_close);
                (!holders.is_empty()).then(|| Claim { holders, is_close, ..claim.clone() })
            })
            .collect()
    }
}

/// Of the claims that turned out to be true, those about which there is one voice: where two say different bytes of one version, neither
/// counts. Strangers do not count beside a holder who is believed in any case: they could take every version away.
pub fn settle(mut claims: Vec<Claim>) -> BTreeMap<Version, Claim> {
    let close = claims.iter().filter(|claim| claim.is_close);
    let spoken_for: HashSet<Version> = close.map(|claim| claim.module.version().clone()).collect();
    claims.retain(|claim| claim.is_close || !spoken_for.contains(claim.module.version()));
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::super::routes::Target;
    use super::*;
    use crate::registry::Registry;

    struct Nothing;

    impl Registry for Nothing {}

    fn place(repository: &str) -> Place {
        let target = Target {
            registry: Arc::new(Nothing),
            prefix: String::new(),
            name: "test".into(),
            identity: "test".into(),
            is_local: true,
        };
        Place { target, repository: repository.parse().unwrap() }
    }

    fn layer(module: &str) -> DependencyLayer {
        let archive = Content { digest: Digest::of(module.as_bytes()), size: 1 };
        DependencyLayer { module: module.parse().unwrap(), archive, main_only: false }
    }

    #[test]
    fn strangers_who_repeat_a_claim_do_not_push_out_the_holder_who_is_believed() {
        let (mut claims, label) = (Claims::default(), layer("modules.internal/acme/label/null@v1.0.0"));
        for number in 0..2 * MAX_HOLDERS {
            assert!(claims.add(&place(&format!("aaa/m{number}/null")), None, &label));
        }
        assert!(claims.add(&place("acme/stack/null"), None, &label));
        let claim = claims.about(label.module.base()).next().unwrap();
        assert_eq!(claim.holders.len(), MAX_HOLDERS + 1);
        assert_eq!(claim.holders.last().unwrap().place, place("acme/stack/null"));
    }

    #[test]
    fn strangers_take_no_version_away_that_its_own_namespace_embeds() {
        let claim = |digest: &str, is_close| Claim {
            module: "modules.internal/acme/label/null@v1.0.0".parse().unwrap(),
            archive: Content { digest: Digest::of(digest.as_bytes()), size: 1 },
            holders: vec![Holder { place: place("x/y/z"), path: None }],
            is_close,
        };
        let settled = |claims: &[(&str, bool)]| {
            let claims = claims.iter().map(|(digest, is_close)| claim(digest, *is_close)).collect();
            settle(claims).into_values().map(|claim| claim.archive.digest).collect::<Vec<_>>()
        };
        assert_eq!(settled(&[("a", false), ("b", true), ("c", false)]), [Digest::of(b"b")]);
        assert_eq!(settled(&[("a", false), ("b", false)]), []);
        assert_eq!(settled(&[("a", true), ("b", true)]), []);
        assert_eq!(settled(&[("a", false), ("a", false)]), [Digest::of(b"a")]);
    }

    #[test]
    fn a_namespace_full_of_claims_leaves_room_for_the_others() {
        let (evil, acme) = (place("aaa/evil/null"), place("acme/stack/null"));
        let mut claims = Claims::shared_by(2);
        claims.share = 3;
        let many: Vec<_> = (0..5).map(|n| layer(&format!("modules.internal/aaa/m{n}/null@v1.0.0"))).collect();
        let taken = many.iter().filter(|layer| claims.add(&evil, None, layer)).count();
        assert_eq!(taken, 3);
        let label = layer("modules.internal/acme/label/null@v1.0.0");
        assert!(claims.add(&acme, None, &label));
        claims.leave_the_rest_to_all();
        assert!(many.iter().all(|layer| claims.add(&evil, None, layer)));
        assert_eq!(claims.len(), 6);
    }

    #[test]
    fn nobody_brings_versions_of_a_module_without_end() {
        let (evil, acme) = (place("aaa/evil/null"), place("acme/stack/null"));
        let mut claims = Claims::default();
        let version = |n: usize| layer(&format!("modules.internal/acme/label/null@v1.0.{n}"));
        let taken = (0..MAX_VERSIONS + 5).filter(|n| claims.add(&evil, None, &version(*n))).count();
        assert_eq!(taken, MAX_VERSIONS);
        assert!(claims.add(&acme, None, &version(MAX_VERSIONS + 1)));
    }
}
