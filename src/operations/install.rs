//! What installing clients ask for: the versions of a module, and the zip of one of them.
//!
//! A module's versions are the tags of its own repository, and beside them what other modules brought along as dependency layers,
//! as far as that is believed ([`super::embedded`]). What a registry cannot say at the moment is never taken for "there is none".

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::artifact::{self, ArtifactError, Content, TaggedVersion};
use crate::module::{CuePath, Host, TofuAddress, Version};
use crate::oci::{Reference, Tag};
use crate::registry::{Blob, BlobRequest, Cache};

use super::catalog::CatalogSource;
use super::embedded::{self, Belief, Claim};
use super::error::{OperationError, Result};
use super::published::{self, Published, StoredModule};
use super::routes::{ModuleName, Place, RouteError, Routes};
use super::search::{Found, Search, SearchOptions};
use super::zip_facts::{KnownZips, NamedModule, ZipFacts};

/// Tags of a far registry that were not read yet are read for one answer, up to so many.
const MAX_UNREAD: usize = 64;
/// Requests under way at once for one answer.
const CONCURRENCY: usize = 8;

/// Which repositories a caller may read.
pub type MayRead<'a> = &'a (dyn Fn(&Place) -> bool + Send + Sync);

/// A module as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// As OpenTofu and Terraform do.
    Tofu {
        /// Its address, which names no host.
        address: TofuAddress,
        /// The host that it has to be on, where the client means another one than this server's.
        host: Option<Host>,
    },
    /// As `cue` does: by its path, which is a module file's own word and nothing else.
    Cue(CuePath),
}

impl Asked {
    /// The host that a client of OpenTofu's kind names.
    fn host(&self) -> Option<&Host> {
        match self {
            Self::Tofu { host, .. } => host.as_ref(),
            Self::Cue(_) => None,
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tofu { address, .. } => address.fmt(formatter),
            Self::Cue(path) => path.fmt(formatter),
        }
    }
}

/// What a client may choose from.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The module.
    pub module: ModuleName,
    /// The module's own repository, where it has one.
    pub own: Option<Published>,
    /// Every version, ascending; with the claim that it comes from, where it is embedded.
    pub versions: Vec<(Version, Option<Box<Claim>>)>,
    /// Whether anything was left out since the caller may not read it.
    pub is_cut: bool,
}

impl Offer {
    /// The repositories that a caller has to be allowed to read to be offered just this; `None` where that is not all that it takes.
    pub fn is_for_everybody_who_may_read(&self) -> Option<Vec<Place>> {
        let own = self.own.as_ref().filter(|_| !self.is_cut)?;
        let claims = self.versions.iter().filter_map(|(_, claim)| claim.as_ref());
        let holders = claims.flat_map(|claim| claim.holders.iter().map(|holder| holder.place.clone()));
        let mut shown: Vec<Place> = holders.collect();
        shown.sort_by_cached_key(Place::name);
        shown.dedup();
        shown.push(own.place.clone());
        Some(shown)
    }
}

/// A version that a client may install.
#[derive(Clone, Debug)]
pub struct Installable {
    /// The module.
    pub module: ModuleName,
    /// The version.
    pub version: Version,
    /// A repository that has the zip.
    pub place: Place,
    /// The zip.
    pub archive: Content,
    /// Its own manifest; none where it is there as a part of another module.
    pub stored: Option<Box<StoredModule>>,
    /// What was found in the zip.
    pub facts: Arc<ZipFacts>,
}

/// Where a version is, its zip not looked at yet.
struct Located {
    place: Place,
    version: Version,
    archive: Content,
    stored: Option<Box<StoredModule>>,
}

/// Answers installing clients.
pub struct Installer {
    routes: Routes,
    /// Only the modules of this host; those of every host where there is none.
    host: Option<Host>,
    search: Arc<Search>,
    zips: KnownZips,
}

/// The module's own repositories, as the caller may see them.
struct Own {
    /// All of them.
    all: Vec<Published>,
    /// The first that the caller may read.
    shown: Option<usize>,
    /// Whether there is one that the caller may not read.
    is_cut: bool,
    /// The versions that they withdraw, also where others bring them along.
    yanked: HashSet<Version>,
    places: Vec<Place>,
    /// What a registry says of one that no list names, where that may mean that it is not there.
    unknown: Option<OperationError>,
}

/// What there is of a module, as the caller may see it.
struct Gathered {
    own: Own,
    embedded: BTreeMap<Version, Claim>,
    /// Whether anything was left out since the caller may not read it.
    is_cut: bool,
    found: Arc<Found>,
}

impl Own {
    fn exists(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether their tags say a version already.
    fn has(&self, version: &Version) -> bool {
        self.all.iter().any(|published| published.listed().any(|listed| listed == version))
    }
}

impl Installer {
    /// Over these registries, for the modules of `host` alone where one is given.
    ///
    /// `cache` remembers what was found in zips.
    pub fn new(routes: Routes, host: Option<Host>, search: Arc<Search>, cache: Option<Arc<Cache>>) -> Self {
        Self { routes, host, search, zips: KnownZips::new(cache) }
    }

    /// The same without a look at what is inside others.
    pub fn without_search(routes: Routes, host: Option<Host>) -> Self {
        let options = SearchOptions { catalog: CatalogSource::None, ..SearchOptions::default() };
        let search = Arc::new(Search::new(&routes, options));
        Self::new(routes, host, search, None)
    }

    /// Where modules are.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// What is known of zips.
    pub fn zips(&self) -> &KnownZips {
        &self.zips
    }

    /// What looks through the registries.
    pub fn search(&self) -> &Arc<Search> {
        &self.search
    }

    /// The modules that may be meant, best first: that of the host, else one of each host that there may be modules of.
    fn names(&self, asked: &Asked) -> Vec<ModuleName> {
        match asked {
            Asked::Tofu { address, host } => {
                let host = host.as_ref().or(self.host.as_ref());
                let hosts = host.map_or_else(|| self.routes.hosts(), |host| vec![host.clone()]);
                hosts.iter().filter_map(|host| ModuleName::tofu(address, host).ok()).collect()
            }
            Asked::Cue(path) => {
                vec![tofu_name(path).unwrap_or_else(|| ModuleName::Cue(path.clone()))]
            }
        }
    }

    /// Every repository that a module may have of its own, best first. A module that `cue` asks for may be where the template has it and
    /// where `cue` has it.
    fn repositories(&self, asked: &Asked, module: &ModuleName) -> Result<Vec<Place>, RouteError> {
        let mut places = self.routes.places(module)?;
        if let Asked::Cue(path) = asked {
            let theirs = self.routes.places(&ModuleName::Cue(path.clone()))?;
            places.extend(theirs.into_iter().filter(|place| !places.contains(place)).collect::<Vec<_>>());
        }
        Ok(places)
    }

    /// Every repository that the module may have of its own.
    pub fn places(&self, asked: &Asked) -> Vec<Place> {
        let names = self.names(asked);
        names.iter().filter_map(|name| self.repositories(asked, name).ok()).flatten().collect()
    }

    /// The versions of a module that a client may choose from.
    pub async fn versions(&self, asked: &Asked, may_read: MayRead<'_>) -> Result<Offer> {
        self.require_some(asked, may_read, || self.nothing(asked))?;
        let began = Instant::now();
        match self.first_offer(asked, may_read).await {
            Ok(Some(offer)) => return Ok(offer),
            Err(error) if !error.may_be_absence() => return Err(error),
            Ok(None) | Err(_) => {}
        }
        self.look_further(asked, Some(began)).await?;
        if let Some(offer) = self.first_offer(asked, may_read).await? {
            return Ok(offer);
        }
        Err(self.unless_unread(asked, self.nothing(asked)))
    }

    /// That there is nothing, unless a repository fails that may have it inside another module: then nobody knows.
    fn unless_unread(&self, asked: &Asked, nothing: OperationError) -> OperationError {
        if self.names(asked).iter().any(|name| self.search.may_be_in_a_failing_one(name)) {
            return OperationError::NotSearchedYet { module: asked.to_string() };
        }
        nothing
    }

    /// What the tags of no repository answer waits for the first complete look; what that has not found may have come since.
    async fn look_further(&self, asked: &Asked, missed: Option<Instant>) -> Result<()> {
        let patience = self.search.patience();
        let looked = tokio::time::timeout(patience, async {
            if !self.search.completed(patience).await {
                return Err(OperationError::NotSearchedYet { module: asked.to_string() });
            }
            self.search.look_for_new(missed).await
        });
        looked.await.unwrap_or_else(|_| {
            // The list of repositories is slow to come. What the last complete look found still holds.
            if self.search.is_complete() {
                Ok(())
            } else {
                Err(OperationError::NotSearchedYet { module: asked.to_string() })
            }
        })
    }

    /// Who may read none of the repositories that a module could be in is told that there is none, before anybody looks: neither a
    /// failure nor the time that it takes tells whether there is one.
    fn require_some(
        &self,
        asked: &Asked,
        may_read: MayRead<'_>,
        nothing: impl FnOnce() -> OperationError,
    ) -> Result<()> {
        let places = self.places(asked);
        if places.is_empty() || places.iter().any(may_read) { Ok(()) } else { Err(nothing()) }
    }

    fn nothing(&self, asked: &Asked) -> OperationError {
        OperationError::NoModule {
            module: asked.to_string(),
            places: self.places(asked).iter().map(Place::name).collect(),
        }
    }

    async fn first_offer(&self, asked: &Asked, may_read: MayRead<'_>) -> Result<Option<Offer>> {
        for name in self.names(asked) {
            match self.offer(asked, name, may_read).await {
                Ok(Some(offer)) => return Ok(Some(offer)),
                // A prefix leads to a part of its host's modules alone, so this one may have no registry at all.
                Ok(None) | Err(OperationError::Route(RouteError::NoRegistry(_))) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn offer(&self, asked: &Asked, module: ModuleName, may_read: MayRead<'_>) -> Result<Option<Offer>> {
        // Who may not know of it is told so by its name alone: what the registry says, or fails to say, would tell more.
        if !self.repositories(asked, &module)?.iter().any(may_read) {
            return Ok(None);
        }
        let Gathered { own, mut embedded, is_cut, found } = self.gather(asked, &module, may_read).await?;
        embedded.retain(|version, _| !own.yanked.contains(version));
        let mut versions = Vec::new();
        let Own { mut all, shown, yanked, .. } = own;
        let mut published = shown.map(|index| all.swap_remove(index));
        if let Some(published) = &mut published {
            published.leave_unyanked().await?;
            leave_modules(published, &found).await?;
            versions.extend(published.listed().map(|version| (version.clone(), None)));
        }
        // A module whose versions are all withdrawn is there, and has none.
        let is_withdrawn = published.is_some() && !yanked.is_empty();
        if versions.is_empty() && embedded.is_empty() && !is_withdrawn {
            return Ok(None);
        }
        if !embedded.is_empty() {
            versions.extend(embedded.into_iter().map(|(version, claim)| (version, Some(Box::new(claim)))));
            // As in a repository: by precedence, ties by the tag that a version has.
            let tag = |version: &Version| artifact::module_tag(version).ok();
            versions.sort_by_cached_key(|(version, _)| (version.without_build(), tag(version)));
        }
        Ok(Some(Offer { module, own: published, versions, is_cut }))
    }

    /// What there is of a module, withdrawn or not.
    async fn gather(&self, asked: &Asked, module: &ModuleName, may_read: MayRead<'_>) -> Result<Gathered> {
        let mut own = self.own(asked, module, may_read).await?;
        if !own.exists()
            && self.search.is_complete()
            && self.search.found().claims.about(module.path()).next().is_some()
        {
            // Only others know of it, and more of them may have come. What is known already does not fail for that.
            if let Err(error) = self.look_further(asked, None).await {
                tracing::warn!("the registry could not be looked through again: {error}");
            }
        }
        let found = self.search.found_now().await;
        let (mut embedded, mut is_cut) = (BTreeMap::new(), own.is_cut);
        // Until everything was looked at, what others bring along adds to a module's own versions and does not stand for it.
        if own.shown.is_some() || self.search.is_complete() {
            let (believed, is_fewer) = self.embedded(asked, module, &own, None, &found, may_read).await?;
            embedded = believed;
            is_cut |= is_fewer;
        }
        match own.unknown.take() {
            // Nobody brings it along, so that the refusal may well be about something that is there.
            Some(unknown) if !own.exists() && embedded.is_empty() => Err(unknown),
            _ => Ok(Gathered { own, embedded, is_cut, found }),
        }
    }

    /// Everything that a caller may know of a module, withdrawn versions included, for who looks for one by something else than its
    /// version: its own repositories, and what others bring along.
    pub(super) async fn known(
        &self,
        asked: &Asked,
        may_read: MayRead<'_>,
    ) -> Result<(Vec<Published>, Vec<Claim>)> {
        self.require_some(asked, may_read, || self.nothing(asked))?;
        let (mut own, mut embedded) = (Vec::new(), Vec::new());
        for module in self.names(asked) {
            let gathered = self.gather(asked, &module, may_read).await?;
            own.extend(gathered.own.all.into_iter().filter(|published| may_read(&published.place)));
            embedded.extend(gathered.embedded.into_values());
        }
        Ok((own, embedded))
    }

    /// Looks for what has come since a request that found nothing began.
    pub(super) async fn look_again(&self, asked: &Asked, began: Instant) -> Result<()> {
        self.look_further(asked, Some(began)).await
    }

    /// The module's own repository.
    async fn own(&self, asked: &Asked, module: &ModuleName, may_read: MayRead<'_>) -> Result<Own> {
        let places = self.repositories(asked, module)?;
        let mut own = Own {
            all: Vec::new(),
            shown: None,
            is_cut: false,
            yanked: HashSet::new(),
            places: places.clone(),
            unknown: None,
        };
        // Together: where the registry is far, the one that is not there would cost as much time as the one that is.
        let listed = join_all(places.iter().map(|place| published::at(module, place))).await;
        let mut unknown = None;
        for (place, published) in places.iter().zip(listed) {
            let published = match published {
                Err(error) if error.may_be_absence() => {
                    let kept = if self.search.rules_out(place) { &mut own.unknown } else { &mut unknown };
                    kept.get_or_insert(error);
                    continue;
                }
                published => published?,
            };
            // A repository that has nothing but marks withdraws what is in others alone.
            if published.versions.is_empty() {
                own.yanked.extend(published.yanked().await?.keys().cloned());
                continue;
            }
            if !self.holds(asked, module, &published).await? {
                continue;
            }
            own.yanked.extend(published.yanked().await?.keys().cloned());
            if !may_read(place) {
                own.is_cut = true;
            } else if own.shown.is_none() {
                own.shown = Some(own.all.len());
            }
            own.all.push(published);
        }
        match unknown {
            // It may be the one that nothing can be said of.
            Some(unknown) if !own.exists() => Err(unknown),
            _ => Ok(own),
        }
    }

    /// Whether a repository holds the module that is asked for, and not one of the same name on another host.
    async fn holds(&self, asked: &Asked, module: &ModuleName, published: &Published) -> Result<bool> {
        let stored = published.stored_path().await?;
        Ok(self.is_meant(asked, module, &published.place, stored.as_ref()))
    }

    /// The placeholder host stands for any other; not for one that a client names, unless the repository does.
    fn is_meant(&self, asked: &Asked, module: &ModuleName, place: &Place, stored: Option<&CuePath>) -> bool {
        let path = module.path();
        // What `cue` is shown under a path calls itself by it.
        if let Asked::Cue(path) = asked {
            return stored == Some(path);
        }
        let is_named =
            asked.host().is_none() || place.below_prefix().split('/').next() == Some(path.first_element());
        match stored {
            None => is_named,
            Some(stored) if is_named => {
                published::same_module(stored, path)
                    && self
                        .host
                        .as_ref()
                        .filter(|_| asked.host().is_none())
                        .is_none_or(|host| [host.as_str(), Host::INTERNAL].contains(&stored.first_element()))
            }
            Some(stored) => stored == path,
        }
    }

    /// What others bring along of a module, without what its own repository says; of `version` alone where it is given. And whether
    /// anything was left out since the caller may not read it.
    async fn embedded(
        &self,
        asked: &Asked,
        module: &ModuleName,
        own: &Own,
        version: Option<&Version>,
        found: &Found,
        may_read: MayRead<'_>,
    ) -> Result<(BTreeMap<Version, Claim>, bool)> {
        // Who may not know of the module does not hear of it from others.
        if !own.places.iter().any(may_read) {
            return Ok((BTreeMap::new(), true));
        }
        let belief = Belief { routes: &self.routes, trusted: self.search.trusted(), has_own: own.exists() };
        let is_wanted = |claim: &Claim| {
            let (said, path) = (claim.module.version(), claim.module.base());
            !own.has(said)
                && version.is_none_or(|version| version == said)
                && match asked {
                    Asked::Tofu { host, .. } => {
                        host.as_ref().is_none_or(|host| path.first_element() == host.as_str())
                    }
                    Asked::Cue(asked) => path == asked,
                }
        };
        let in_its_own_terms = self.in_its_own_terms(asked, module, own);
        let claims = belief.believed(&found.claims, &in_its_own_terms).into_iter().filter(is_wanted);
        let true_ones: Vec<Option<Claim>> = stream::iter(claims)
            .map(|claim| async move {
                Ok::<_, OperationError>(self.is_true(asked, &claim).await?.then_some(claim))
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        let mut settled = embedded::settle(true_ones.into_iter().flatten().collect());
        let holders = |claims: &BTreeMap<Version, Claim>| -> usize {
            claims.values().map(|claim| claim.holders.len()).sum()
        };
        let before = holders(&settled);
        settled.retain(|_, claim| {
            claim.holders.retain(|holder| may_read(&holder.place));
            !claim.holders.is_empty()
        });
        let is_cut = holders(&settled) != before;
        Ok((settled, is_cut))
    }

    /// The module by the name that says who shares its namespace. One that has the path of an OpenTofu module, and is only where `cue`
    /// has its modules, is one of CUE's.
    fn in_its_own_terms(&self, asked: &Asked, module: &ModuleName, own: &Own) -> ModuleName {
        let Asked::Cue(path) = asked else { return module.clone() };
        let cue = ModuleName::Cue(path.clone());
        let theirs = self.routes.places(&cue).unwrap_or_default();
        let is_theirs = own.exists() && own.all.iter().all(|published| theirs.contains(&published.place));
        if is_theirs { cue } else { module.clone() }
    }

    /// Whether the zip is a module's, and names no other one.
    async fn is_true(&self, asked: &Asked, claim: &Claim) -> Result<bool> {
        let name = format!("{}@{}", claim.module.base(), claim.module.version());
        for holder in &claim.holders {
            let facts = match self.zips.of(&holder.place, &claim.archive).await {
                Ok(facts) => facts,
                // Nobody has it here, or it is another size than was said: the next one may be right.
                Err(error) if is_wrong(&error) => {
                    tracing::warn!("{name} in {} is passed over: {error}", holder.place.name());
                    continue;
                }
                Err(error) => return Err(error),
            };
            return Ok(match &*facts {
                ZipFacts::Good { has_tofu_files, module, .. } => {
                    let (is_named, is_readable) = match (asked, module) {
                        (Asked::Tofu { .. }, NamedModule::None) => (true, *has_tofu_files),
                        (Asked::Tofu { .. }, NamedModule::Path(path)) => {
                            (published::same_module(path.base(), claim.module.base()), *has_tofu_files)
                        }
                        (Asked::Cue(_), NamedModule::Path(path)) => {
                            (*path == claim.module.module_path(), true)
                        }
                        (Asked::Cue(_), NamedModule::None) | (_, NamedModule::Unreadable) => (false, false),
                    };
                    if !is_named {
                        tracing::warn!("{name} in {} is the zip of another module", holder.place.name());
                    }
                    is_readable && is_named
                }
                ZipFacts::Refused(finding) => {
                    tracing::warn!("{name} in {} is passed over: {finding}", holder.place.name());
                    false
                }
            });
        }
        Ok(false)
    }

    /// One version, its zip looked at. The registry is asked for the version's own tag and for no list, so that it is there as soon as
    /// it was pushed.
    pub async fn version(
        &self,
        asked: &Asked,
        version: &Version,
        may_read: MayRead<'_>,
    ) -> Result<Installable> {
        self.require_some(asked, may_read, || OperationError::NoModule {
            module: format!("{asked}@{version}"),
            places: self.places(asked).iter().map(Place::name).collect(),
        })?;
        let names = match self.names(asked) {
            // The version is that of the module whose versions are listed, and not of another host's.
            names if names.len() > 1 => vec![self.versions(asked, may_read).await?.module],
            names => names,
        };
        let Some(module) = names.into_iter().next() else { return Err(self.nothing(asked)) };
        let mut outage = None;
        let located = match self.own_version(asked, &module, version, may_read, &mut outage).await? {
            Some(located) => located,
            None => match (self.embedded_version(asked, &module, version, may_read).await, outage) {
                // It may have been pushed since the last list that is known.
                (Err(OperationError::NoModule { .. }), Some(outage)) => return Err(outage),
                (embedded, _) => embedded?,
            },
        };
        let Located { place, version, archive, stored } = located;
        let facts = self.zips.of(&place, &archive).await?;
        match (asked, &*facts) {
            (_, ZipFacts::Refused(finding)) => return Err(OperationError::refused(finding.clone())),
            (Asked::Tofu { .. }, ZipFacts::Good { has_tofu_files: false, .. }) => {
                return Err(OperationError::NotInstallable { module: module.to_string() });
            }
            _ => {}
        }
        Ok(Installable { module, version, place, archive, stored, facts })
    }

    /// The version in a repository of the module's own. `outage` is why one could not be asked that does not list the version.
    async fn own_version(
        &self,
        asked: &Asked,
        module: &ModuleName,
        version: &Version,
        may_read: MayRead<'_>,
        outage: &mut Option<OperationError>,
    ) -> Result<Option<Located>> {
        for place in self.repositories(asked, module)?.into_iter().filter(may_read) {
            let stored = match stored_version(&place, version).await {
                // What is embedded is there all the same, unless the last list that is known says that the repository has it.
                Err(error) if error.is_passing() => {
                    let published = published::at(module, &place).await?;
                    if published.listed().any(|listed| listed == version) {
                        return Err(error);
                    }
                    outage.get_or_insert(error);
                    continue;
                }
                // Neither does a repository that may or may not be there.
                Err(error) if error.may_be_absence() => {
                    outage.get_or_insert(error);
                    continue;
                }
                stored => stored?,
            };
            let Some(stored) = stored else { continue };
            self.take_note(&place, version);
            let path = match (stored.module_file().await?, asked) {
                (Some(file), _) => Some(file.module.base().clone()),
                (None, Asked::Tofu { .. }) => published::at(module, &place).await?.stored_path().await?,
                // Without a module file it is nothing to `cue`.
                (None, Asked::Cue(_)) => None,
            };
            if self.is_meant(asked, module, &place, path.as_ref()) {
                return Ok(Some(Located {
                    version: version.clone(),
                    place,
                    archive: stored.artifact.archive.clone(),
                    stored: Some(Box::new(stored)),
                }));
            }
        }
        Ok(None)
    }

    /// A version that came after the last look brings others along, which the client asks for next.
    fn take_note(&self, place: &Place, version: &Version) {
        let found = self.search.found();
        let is_read = |tag: &Tag| found.is_module(place, tag).is_some();
        if self.search.is_complete() && !tags_of(version).iter().any(is_read) {
            self.search.changed(place.clone());
        }
    }

    async fn embedded_version(
        &self,
        asked: &Asked,
        module: &ModuleName,
        version: &Version,
        may_read: MayRead<'_>,
    ) -> Result<Located> {
        let began = Instant::now();
        let places = self.repositories(asked, module)?;
        let unknown = || OperationError::NoModule {
            module: format!("{module}@{version}"),
            places: places.iter().map(Place::name).collect(),
        };
        let own = self.own(asked, module, may_read).await?;
        let mut has_looked_further = !self.search.is_complete();
        if has_looked_further {
            self.look_further(asked, Some(began)).await?;
        }
        loop {
            let found = self.search.found_now().await;
            let (mut claims, _) = self.embedded(asked, module, &own, Some(version), &found, may_read).await?;
            if let Some((version, claim)) = claims.pop_first()
                && let Some(holder) = claim.holders.into_iter().next()
            {
                return Ok(Located { version, place: holder.place, archive: claim.archive, stored: None });
            }
            if std::mem::replace(&mut has_looked_further, true) {
                return Err(self.unless_unread(asked, unknown()));
            }
            self.look_further(asked, Some(began)).await?;
        }
    }
}

/// The OpenTofu module that has this path, where it can be one's.
fn tofu_name(path: &CuePath) -> Option<ModuleName> {
    let address = TofuAddress::from_cue_path(path)?;
    let name = ModuleName::tofu(&address, address.host()?).ok()?;
    (name.path() == path).then_some(name)
}

/// Whether a failure says that the blob is not what was claimed.
fn is_wrong(error: &OperationError) -> bool {
    use crate::registry::RegistryError as E;
    let OperationError::Registry { source, .. } = error.cause() else { return false };
    source.is_not_found() || matches!(source, E::SizeMismatch { .. } | E::RangeNotSatisfiable { .. })
}

/// The tags that a version may have, the one with `v` first.
fn tags_of(version: &Version) -> Vec<Tag> {
    let Ok(tag) = artifact::module_tag(version) else { return Vec::new() };
    let bare = tag.as_str().strip_prefix('v').and_then(|bare| bare.parse().ok());
    [Some(tag), bare].into_iter().flatten().collect()
}

/// The version at the tags that it may have; of its bundle where that is all there is.
async fn stored_version(place: &Place, version: &Version) -> Result<Option<StoredModule>> {
    let tags = tags_of(version);
    let bundles: Vec<Tag> = tags.iter().filter_map(|tag| artifact::bundle_tag(tag).ok()).collect();
    for tag in tags.into_iter().chain(bundles) {
        match published::load_reference(place, &Reference::Tag(tag)).await {
            Ok(stored) => return Ok(Some(stored)),
            Err(OperationError::Registry { source, .. }) if source.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Leaves out the tags that look like versions and hold something else. What was read is known; of a far registry only so many more
/// are read for one answer.
async fn leave_modules(published: &mut Published, found: &Found) -> Result<()> {
    let place = published.place.clone();
    let is_unread = |tagged: &TaggedVersion| found.is_module(&place, &tagged.tag).is_none();
    if found.knows(&place) {
        published.versions.retain(|tagged| found.is_module(&place, &tagged.tag) != Some(false));
    }
    let most = if place.target.is_local { usize::MAX } else { MAX_UNREAD };
    let unread: Vec<_> =
        published.versions.iter().filter(|tagged| is_unread(tagged)).take(most.saturating_add(1)).collect();
    if unread.len() > most {
        return Ok(());
    }
    let unread: Vec<_> = unread.into_iter().cloned().collect();
    let all = &*published;
    let others: HashSet<Tag> = stream::iter(unread)
        .map(|tagged| async move {
            match all.load(&tagged).await {
                Ok(_) => Ok(None),
                Err(OperationError::NotAModule { reference, source }) => {
                    if !matches!(source, ArtifactError::NotAModule { .. }) {
                        tracing::warn!("{reference} is not listed: {source}");
                    }
                    Ok(Some(tagged.tag))
                }
                Err(error) => Err(error),
            }
        })
        .buffered(CONCURRENCY)
        .try_filter_map(|tag| async move { Ok(tag) })
        .try_collect()
        .await?;
    published.versions.retain(|tagged| !others.contains(&tagged.tag));
    Ok(())
}

/// The source of a module's newest version, as its annotation says it, where that is https.
pub async fn source(published: &Published) -> Option<String> {
    let stored = published.load(published.versions.last()?).await.ok()?;
    let source = stored.artifact.annotations.get(crate::artifact::media_types::SOURCE)?;
    let url = url::Url::parse(source).ok()?;
    (url.scheme() == "https" && url.username().is_empty() && url.password().is_none())
        .then(|| url.to_string())
}

/// The zip itself, or a piece of it, or where it can be had.
pub async fn archive(place: &Place, content: &Content, request: BlobRequest) -> Result<Blob> {
    let blob = place.registry().blob(&place.repository, &content.digest, request).await;
    blob.map_err(OperationError::registry(place.name()))
}
