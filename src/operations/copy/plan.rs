//! Which repositories are copied to which, and which of their versions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinSet;

use crate::artifact::TaggedVersion;
use crate::module::{Address, AddressAt, Constraint, CuePath, ModuleVersion, Version, VersionQuery};
use crate::oci::{Manifest, Reference, Repository, Tag};
use crate::operations::catalog::{self, CatalogSource};
use crate::operations::closure::name_of;
use crate::operations::error::{OperationError, Result};
use crate::operations::finding::Finding;
use crate::operations::list;
use crate::operations::published::{self, Published};
use crate::operations::routes::{ModuleName, Place, RouteError, Target};
use crate::registry::RegistryError;

use super::pair::{Pair, Part};
use super::version::not_ours;
use super::{Copier, FailedCopy, REPOSITORIES_AT_ONCE, Source, expect_no_panic};

/// Manifests that are read at once to find out what versions need.
const LOOKS_AT_ONCE: usize = 8;
/// How many manifests are read to find out whether a repository holds a module or provider at all: most in a shared registry hold images.
const MAX_CANDIDATES: usize = 4;
/// More versions that others need are not looked for: a registry that makes up its answers has another one for each.
const MAX_DEPENDENCIES: usize = 10_000;

/// What is copied of one repository.
pub(super) struct Batch {
    /// The module or provider.
    pub(super) address: String,
    pub(super) pair: Arc<Pair>,
    pub(super) parts: Vec<Part>,
}

impl Copier {
    /// What is named, and with it what that needs, if that is asked for: in steps, of which each needs those before it.
    pub(super) async fn plan(&self, sources: &[Source]) -> Result<Vec<Vec<Batch>>> {
        let mut batches: Vec<Batch> = Vec::new();
        for source in sources {
            let batch = match source {
                Source::Address(address) => self.named(address).await?,
                Source::Tag(place, tag) => self.tagged(place, tag).await?,
            };
            match batches.iter_mut().find(|known| known.pair.from == batch.pair.from) {
                Some(known) => {
                    let is_new = |part: &Part| known.parts.iter().all(|other| other.version != part.version);
                    let new: Vec<Part> = batch.parts.into_iter().filter(is_new).collect();
                    known.parts.extend(new);
                }
                None => batches.push(batch),
            }
        }
        if self.request.with_dependencies { self.with_dependencies(batches).await } else { Ok(vec![batches]) }
    }

    /// What an address names.
    async fn named(&self, address: &AddressAt) -> Result<Batch> {
        let query = address.version.as_ref();
        if matches!(query, Some(VersionQuery::Constraint(_))) && self.request.constraint.is_some() {
            return Err(OperationError::Usage {
                message: "the address and `--version` both say which version is meant".to_owned(),
                hint: "give one of them".to_owned(),
            });
        }
        if let Address::Provider(provider) = &address.address {
            let (from, to) = (self.from.provider_place(provider)?, self.to.provider_place(provider)?);
            let pair = self.pair(from, to).await?;
            let name = address.address.to_string();
            let parts = self.select(&pair, query, None).await?;
            if pair.versions.is_empty() {
                let (provider, place) = (provider.to_string(), pair.from.name());
                return Err(OperationError::NoProvider { provider, place });
            }
            if parts.is_empty() {
                return Err(OperationError::NoVersion {
                    module: name,
                    constraint: self.constraint(query),
                    versions: pair.versions.iter().map(|tagged| tagged.version.clone()).collect(),
                    yanked: Vec::new(),
                });
            }
            return Ok(Batch { address: name, pair: Arc::new(pair), parts });
        }
        let module = published::name(address)?;
        let published = published::find(&self.from, &module).await?;
        let pair = self.module_pair(&module, &published.place).await?;
        let parts = self.select(&pair, query, Some(&published)).await?;
        if parts.is_empty() {
            return Err(published.no_version(&self.constraint(query)).await?);
        }
        Ok(Batch { address: module.to_string(), pair: Arc::new(pair), parts })
    }

    /// The version at a tag of a repository that is named outright.
    async fn tagged(&self, from: &Place, tag: &Tag) -> Result<Batch> {
        // Below the prefix of the source, where it is in that registry.
        let is_below = |target: &&Target| {
            let prefix = &target.prefix;
            target.identity == from.target.identity
                && (prefix.is_empty()
                    || from
                        .repository
                        .as_str()
                        .strip_prefix(prefix.as_str())
                        .is_some_and(|rest| rest.starts_with('/')))
        };
        let target = self.from.targets().filter(is_below).max_by_key(|target| target.prefix.len());
        let from =
            Place { target: target.unwrap_or(&from.target).clone(), repository: from.repository.clone() };
        let to = self.same_place(&from, None)?;
        let pair = self.pair(from, to).await?;
        let reference = pair.from.reference(&tag.clone().into());
        let found = pair.versions.iter().find(|tagged| tagged.tag == *tag);
        let Some(tagged) = found else {
            return Err(OperationError::Usage {
                message: format!("{reference} is not the tag of a version there"),
                hint: "name the tag of a version, such as `v1.2.0`; with `--from` and an address whole repositories are copied"
                    .to_owned(),
            });
        };
        let parts = vec![pair.part(tagged)];
        Ok(Batch { address: reference, pair: Arc::new(pair), parts })
    }

    /// What is asked of the versions.
    fn constraint(&self, query: Option<&VersionQuery>) -> Constraint {
        match query {
            Some(VersionQuery::Constraint(constraint)) => constraint.clone(),
            _ => self.request.constraint.clone().unwrap_or_else(Constraint::any),
        }
    }

    /// The versions of a repository that are asked for: every one where nothing is said.
    async fn select(
        &self,
        pair: &Pair,
        query: Option<&VersionQuery>,
        published: Option<&Published>,
    ) -> Result<Vec<Part>> {
        let is_every =
            matches!(query, None | Some(VersionQuery::Major(_))) && self.request.constraint.is_none();
        let constraint = self.constraint(query);
        let is_wanted = |version: &Version| {
            let is_major = match query {
                Some(VersionQuery::Major(major)) => version.major() == *major,
                _ => true,
            };
            // No constraint at all takes pre-releases too.
            is_major && (is_every || constraint.matches(version))
        };
        if let Some(VersionQuery::Latest) = query {
            let newest = if let Some(published) = published {
                published.newest(&constraint).await?.map(|(tagged, _)| tagged)
            } else {
                let newest = constraint.highest(pair.versions.iter().map(|tagged| &tagged.version)).cloned();
                pair.versions.iter().find(|tagged| Some(&tagged.version) == newest.as_ref()).cloned()
            };
            return Ok(newest.iter().map(|tagged| pair.part(tagged)).collect());
        }
        let wanted = pair.versions.iter().filter(|tagged| is_wanted(&tagged.version));
        Ok(wanted.map(|tagged| pair.part(tagged)).chain(pair.loose_marks(is_wanted)).collect())
    }

    /// The repository of a module, and the one that it goes to: where it is already, else the one that corresponds.
    async fn module_pair(&self, module: &ModuleName, from: &Place) -> Result<Pair> {
        let position = self.from.places(module)?.iter().position(|place| place == from).unwrap_or(0);
        let places = self.to.places(module)?;
        let mut to = None;
        for place in &places {
            let published = match published::at(module, place).await {
                // It may not be there, which the upload tells.
                Err(error) if error.may_be_absence() => continue,
                published => published?,
            };
            if !published.versions.is_empty() && published.holds(module).await? {
                to = Some(place.clone());
                break;
            }
        }
        let to = to.or_else(|| places.get(position).or(places.first()).cloned());
        let to = to.ok_or_else(|| RouteError::NoRegistry(module.path().to_string()))?;
        let pair = self.pair(from.clone(), to).await?;
        pair.expect_same_module(module).await?;
        Ok(pair)
    }

    async fn pair(&self, from: Place, to: Place) -> Result<Pair> {
        if from == to {
            return Err(OperationError::Usage {
                message: format!("{} cannot be copied to itself", from.name()),
                hint: "name another registry or prefix with `--from` or `--to`".to_owned(),
            });
        }
        Pair::open(from, to).await
    }

    /// The repository of the same name below the destination's prefix.
    fn same_place(&self, from: &Place, path: Option<&CuePath>) -> Result<Place> {
        if self.from.is_encoded(&from.target) || self.to.targets().any(|target| self.to.is_encoded(target)) {
            // The one name says nothing of the other, so it takes the module's own.
            let Some(path) = path else {
                return Err(OperationError::Usage {
                    message: format!(
                        "{} has no name that says where it would be at the destination, where names are encoded",
                        from.name()
                    ),
                    hint: "name the module by its address, and the registry with `--from`".to_owned(),
                });
            };
            let places = self.to.places(&ModuleName::Cue(path.clone()))?;
            return places.into_iter().next().ok_or_else(|| RouteError::NoRegistry(path.to_string()).into());
        }
        let below: Repository = from.below_prefix().parse().map_err(RouteError::from)?;
        let target = match (self.to.only_target(), path) {
            (Some(target), _) => Some(target),
            (None, Some(path)) => self.to.target(path),
            (None, None) => CuePath::parse(below.as_str()).ok().and_then(|path| self.to.target(&path)),
        };
        let target = target
            .ok_or_else(|| RouteError::NoRegistry(path.map_or(below.to_string(), ToString::to_string)))?;
        Ok(target.place(&below).map_err(RouteError::from)?)
    }

    // Dependencies.

    /// Adds the modules that these versions need, and those that these need, from their own repositories; in steps, so that whatever is
    /// needed is there before what needs it.
    async fn with_dependencies(&self, roots: Vec<Batch>) -> Result<Vec<Vec<Batch>>> {
        let mut graph = Graph::default();
        let mut open = Vec::new();
        let roots_count: usize = roots.iter().map(|batch| batch.parts.len()).sum();
        for Batch { address, pair, parts } in roots {
            graph.pairs.insert(pair.from.clone(), (address, Arc::clone(&pair)));
            open.extend(parts.into_iter().map(|part| graph.add(&pair, part)));
        }
        while !open.is_empty() {
            let looks: Vec<_> = open.iter().map(|&at| (at, graph.nodes[at].tagged())).collect();
            let looked: Vec<(usize, Vec<ModuleVersion>)> = stream::iter(looks)
                .map(|(at, tagged)| async move {
                    let Some((place, tagged)) = tagged else { return Ok((at, Vec::new())) };
                    self.needed_by(&place, &tagged).await.map(|needed| (at, needed))
                })
                .buffered(LOOKS_AT_ONCE)
                .try_collect()
                .await?;
            open = Vec::new();
            for (at, needed) in looked {
                for needed in needed {
                    if graph.nodes.len() - roots_count > MAX_DEPENDENCIES {
                        return Err(OperationError::refused(Finding::general(
                            "too-many-dependencies",
                            format!("what is to be copied needs more than {MAX_DEPENDENCIES} other versions"),
                        )));
                    }
                    let known = graph.known.get(&needed).copied();
                    let found = match known {
                        Some(found) => found,
                        None => self.find_dependency(&mut graph, &needed, &mut open).await?,
                    };
                    graph.known.insert(needed, found);
                    graph.nodes[at].needs.extend(found);
                }
            }
        }
        Ok(graph.into_steps())
    }

    /// The node of a version that another one needs; `None` where it has no repository of its own.
    async fn find_dependency(
        &self,
        graph: &mut Graph,
        needed: &ModuleVersion,
        open: &mut Vec<usize>,
    ) -> Result<Option<usize>> {
        let Some((tagged, stored)) = self.locate(needed).await? else {
            self.progress.warn(&format!(
                "`{needed}` has no repository of its own in {}, so it is copied only as a part of what embeds it",
                self.from.describe()
            ));
            return Ok(None);
        };
        // Another name of the same, such as that of the placeholder host.
        if let Some(at) = graph.position(&stored.place, &tagged.version) {
            return Ok(Some(at));
        }
        let pair = if let Some((_, pair)) = graph.pairs.get(&stored.place) {
            Arc::clone(pair)
        } else {
            let name = name_of(needed);
            let pair = Arc::new(self.module_pair(&name, &stored.place).await?);
            graph.pairs.insert(stored.place, (name.to_string(), Arc::clone(&pair)));
            pair
        };
        let at = graph.add(&pair, pair.part(&tagged));
        open.push(at);
        Ok(Some(at))
    }

    /// The versions of other modules that a version needs; none for what is no module.
    async fn needed_by(&self, place: &Place, tagged: &TaggedVersion) -> Result<Vec<ModuleVersion>> {
        let Some((name, _)) = list::name_of(place) else { return Ok(Vec::new()) };
        match published::load(place, tagged).await {
            Ok(stored) => self.needed(&name, &stored).await,
            Err(OperationError::NotAModule { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    // Whole registries.

    /// Copies every repository with modules or providers.
    pub(super) async fn run_all(self: &Arc<Self>, source: &CatalogSource) -> Result<()> {
        let catalog = catalog::read(&self.from, source).await?;
        if let Some(target) = catalog.unlisted.first() {
            return Err(OperationError::registry(target.name.clone())(RegistryError::NoCatalog));
        }
        let mut running = JoinSet::new();
        for place in catalog.places {
            if self.is_broken_off() {
                break;
            }
            if running.len() >= REPOSITORIES_AT_ONCE {
                expect_no_panic(running.join_next().await);
            }
            let copier = Arc::clone(self);
            running.spawn(async move {
                match copier.whole(&place).await {
                    Ok(Some(batch)) => copier.run_batch(batch).await,
                    Ok(None) => {}
                    Err(error) => copier.fail(FailedCopy {
                        address: place.below_prefix().to_owned(),
                        version: None,
                        from: place.name(),
                        error,
                    }),
                }
            });
        }
        while !running.is_empty() {
            expect_no_panic(running.join_next().await);
        }
        Ok(())
    }

    /// What is copied of a repository; `None` where it holds neither modules nor a provider.
    async fn whole(&self, from: &Place) -> Result<Option<Batch>> {
        let Some((name, below)) = list::name_of(from) else { return Ok(None) };
        let published = published::at(&name, from).await?;
        let Some(holds) = self.holds(&published).await? else {
            tracing::info!("{from:?} holds neither modules nor a provider");
            return Ok(None);
        };
        let is_module = holds == Holds::Module;
        let path = if is_module { published.owner().await? } else { None };
        let provider = if is_module { None } else { self.from.provider_at(from) };
        let address = match (&path, &provider) {
            (Some(path), _) => path.to_string(),
            (None, Some(provider)) => Address::Provider(provider.clone()).to_string(),
            (None, None) => below.to_owned(),
        };
        let to = match &provider {
            Some(provider) => self.to.provider_place(provider)?,
            None => self.same_place(from, path.as_ref())?,
        };
        if to == *from {
            // One of several registries that are copied from is the one that is copied to.
            return Ok(None);
        }
        let pair = Pair::open(from.clone(), to).await?;
        if is_module {
            pair.expect_same_module(&name).await?;
        }
        let parts = self.select(&pair, None, Some(&published)).await?;
        Ok(Some(Batch { address, pair: Arc::new(pair), parts }))
    }

    /// What the newest versions of a repository are.
    async fn holds(&self, published: &Published) -> Result<Option<Holds>> {
        let place = &published.place;
        for tagged in published.versions.iter().rev().take(MAX_CANDIDATES) {
            match published.load(tagged).await {
                Ok(_) => return Ok(Some(Holds::Module)),
                Err(OperationError::NotAModule { .. }) => {}
                Err(OperationError::Registry { source, .. })
                    if source.is_not_found() || matches!(source, RegistryError::ManifestInvalid(_)) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            }
            let reference = Reference::Tag(tagged.tag.clone());
            let stored = match place.registry().manifest(&place.repository, &reference).await {
                Err(error) if error.is_not_found() || matches!(error, RegistryError::ManifestInvalid(_)) => {
                    continue;
                }
                stored => stored.map_err(OperationError::registry(place.reference(&reference)))?,
            };
            let manifest = Manifest::parse(&stored.media_type, &stored.bytes);
            if manifest.is_ok_and(|manifest| not_ours(&manifest).is_none()) {
                return Ok(Some(Holds::Provider));
            }
        }
        Ok(None)
    }
}

/// Versions, and which of them need which.
#[derive(Default)]
struct Graph {
    nodes: Vec<Node>,
    positions: HashMap<(Place, Version), usize>,
    /// What a version that something needs turned out to be.
    known: HashMap<ModuleVersion, Option<usize>>,
    pairs: HashMap<Place, (String, Arc<Pair>)>,
}

struct Node {
    pair: Arc<Pair>,
    part: Part,
    needs: Vec<usize>,
}

impl Node {
    /// Where it is found.
    fn tagged(&self) -> Option<(Place, TaggedVersion)> {
        Some((self.pair.from.clone(), self.part.tagged.clone()?))
    }
}

impl Graph {
    fn position(&self, place: &Place, version: &Version) -> Option<usize> {
        self.positions.get(&(place.clone(), version.clone())).copied()
    }

    fn add(&mut self, pair: &Arc<Pair>, part: Part) -> usize {
        let at = self.nodes.len();
        self.positions.insert((pair.from.clone(), part.version.clone()), at);
        self.nodes.push(Node { pair: Arc::clone(pair), part, needs: Vec::new() });
        at
    }

    fn into_steps(mut self) -> Vec<Vec<Batch>> {
        let needs: Vec<_> = self.nodes.iter_mut().map(|node| std::mem::take(&mut node.needs)).collect();
        let depths = depths(&needs);
        let mut steps: BTreeMap<usize, BTreeMap<String, Batch>> = BTreeMap::new();
        for (Node { pair, part, .. }, depth) in self.nodes.into_iter().zip(depths) {
            let address = self.pairs.get(&pair.from).map(|(address, _)| address.clone()).unwrap_or_default();
            let batches = steps.entry(depth).or_default();
            let batch = batches.entry(pair.from.name()).or_insert(Batch { address, pair, parts: Vec::new() });
            batch.parts.push(part);
        }
        steps.into_values().map(|batches| batches.into_values().collect()).collect()
    }
}

/// How many steps come before each of those that need others: one more than before anything that it needs. A circle ends where it
/// began.
fn depths(needs: &[Vec<usize>]) -> Vec<usize> {
    let mut depths: Vec<Option<usize>> = vec![None; needs.len()];
    let mut is_entered = vec![false; needs.len()];
    for root in 0..needs.len() {
        // A list and no recursion: how deep it goes is decided by what strangers published.
        let mut open = vec![root];
        while let Some(&at) = open.last() {
            if !std::mem::replace(&mut is_entered[at], true) {
                open.extend(needs[at].iter().filter(|&&need| !is_entered[need]));
                continue;
            }
            open.pop();
            if depths[at].is_none() {
                let before = needs[at].iter().filter_map(|&need| depths[need]).max();
                depths[at] = Some(before.map_or(0, |depth| depth + 1));
            }
        }
    }
    depths.into_iter().map(Option::unwrap_or_default).collect()
}

/// What a repository holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Module,
    Provider,
}

#[cfg(test)]
mod tests {
    use super::depths;

    #[test]
    fn what_is_needed_comes_in_an_earlier_step() {
        let diamond = [vec![1, 2], vec![3], vec![3, 1], vec![]];
        assert_eq!(depths(&diamond), [3, 1, 2, 0]);
        assert_eq!(depths(&[vec![], vec![0], vec![0]]), [0, 1, 1]);
        let chain: Vec<Vec<usize>> =
            (0..100_000).map(|at| if at == 0 { Vec::new() } else { vec![at - 1] }).collect();
        assert_eq!(depths(&chain)[99_999], 99_999);
    }

    #[test]
    fn circles_end_where_they_began() {
        assert_eq!(depths(&[vec![0]]), [0]);
        // 0 needs 1 needs 2 needs 0: 2 is reached last, and comes first.
        assert_eq!(depths(&[vec![1], vec![2], vec![0]]), [2, 1, 0]);
    }
}
