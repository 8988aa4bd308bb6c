//! Looks through the registries for what cannot be asked for by name: the modules that are nowhere but inside others, and the tags that
//! look like versions and hold something else.
//!
//! An answer comes of a complete look, so that every replica gives the same one and a restart changes nothing. What is learned
//! between two looks (of a repository that is pushed to here, or that has just appeared) is taken in at once. A tag that was read is
//! read again only after a while, since versions do not change.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::watch;

use crate::artifact::{ArtifactError, DependencyLayer, TaggedVersion};
use crate::module::CuePath;
use crate::oci::{Digest, Tag};

use super::catalog::{self, Catalog, CatalogSource};
use super::embedded::{self, Claims};
use super::error::{OperationError, Result};
use super::list;
use super::pattern::Pattern;
use super::published;
use super::routes::{ModuleName, Place, Routes, Target};

/// Repositories that are looked at together: enough to hide the delay of a far registry, few enough not to be throttled.
const CONCURRENT_REPOSITORIES: usize = 4;
/// Manifests of one repository that are read together.
const CONCURRENT_MANIFESTS: usize = 4;
/// A tag of a remote registry can be moved in spite of everything. So often each is asked for again.
const READ_AGAIN_AFTER: Duration = Duration::from_mins(15);
/// So often a repository that fails is tried, in one look after the other, before a look counts as complete without it.
const TRIES: u32 = 3;
/// How soon a look that failed is repeated.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How long a look that a caller waits for is good enough for the next caller, at least; and so many times as long as it took, so that
/// callers never make the registry do much more than without them.
const GOOD_FOR: Duration = Duration::from_millis(250);
const GOOD_FOR_TIMES: u32 = 10;

/// How registries are looked through.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Where the names of repositories come from.
    pub catalog: CatalogSource,
    /// How often.
    pub every: Duration,
    /// Holders that are believed about every module.
    pub trusted: Vec<Pattern>,
    /// How long a caller waits for the first complete look. Clients give up after 10 s.
    pub patience: Duration,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            catalog: CatalogSource::Registry,
            every: Duration::from_mins(1),
            trusted: Vec::new(),
            patience: Duration::from_secs(8),
        }
    }
}

/// What a complete look found, and what was learned since.
#[derive(Debug, Default)]
pub struct Found {
    /// What modules say of others.
    pub claims: Claims,
    /// What was read of each repository.
    read: HashMap<Place, Arc<Read>>,
    /// Another number whenever any of this is another.
    pub revision: u64,
}

impl Found {
    /// Whether anything of a repository was read.
    pub fn knows(&self, place: &Place) -> bool {
        self.read.contains_key(place)
    }

    /// Whether a version's tag holds a module; `None` where it was not read.
    pub fn is_module(&self, place: &Place, tag: &Tag) -> Option<bool> {
        self.read.get(place)?.tags.get(tag).map(|read| read.module.is_some())
    }
}

/// Looks again and again.
pub struct Search {
    routes: Routes,
    options: SearchOptions,
    found: RwLock<Arc<Found>>,
    /// What was read of each repository.
    memory: Mutex<HashMap<Place, Arc<Read>>>,
    /// Whether there is something in memory that answers do not know yet. Not a variable of the look that read it: whoever waits for a
    /// look may go away in the middle of it.
    is_unpublished: AtomicBool,
    /// Repositories that have changed since.
    changed: Mutex<HashSet<Place>>,
    /// Held while something is looked at, so that what is found is not mixed up.
    looking: tokio::sync::Mutex<Looks>,
    is_complete: watch::Sender<bool>,
    /// The registries that nobody knows a list of, as the last look had it.
    unlisted: Mutex<Vec<Target>>,
    /// The registries of which a part alone is looked through, as the last look had it.
    cut: Mutex<Vec<Target>>,
    /// Repositories that are listed and could not be read.
    unread: Mutex<HashMap<Place, Unread>>,
}

/// Why a repository was not read when it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// It is damaged, or closed to us.
    Closed,
    /// It has failed so often, one look after the other.
    Failing(u32),
}

/// What a look leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Repositories that could not be read.
    pub repositories: u64,
    /// Registries that have more repositories than are looked through.
    pub registries: u64,
}

/// When was looked last.
#[derive(Debug, Default)]
struct Looks {
    at_everything: Option<Look>,
    at_the_list: Option<Look>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    began: Instant,
    took: Duration,
}

impl Look {
    fn ended(began: Instant) -> Self {
        Self { began, took: began.elapsed() }
    }

    /// When the next one may begin.
    fn over(&self) -> Instant {
        self.began + self.took + GOOD_FOR.max(self.took * GOOD_FOR_TIMES)
    }

    fn is_over(look: Option<Self>) -> bool {
        look.is_none_or(|look| look.over() <= Instant::now())
    }
}

/// The repositories that have changed, while they are looked at. Those of a look that did not come to its end, also since nobody waits
/// for it any longer, are there for the next one.
struct Changed<'a> {
    all: &'a Mutex<HashSet<Place>>,
    places: Vec<Place>,
}

impl<'a> Changed<'a> {
    fn take(all: &'a Mutex<HashSet<Place>>) -> Self {
        let places = std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner));
        Self { all, places: places.into_iter().collect() }
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).extend(self.places.drain(..));
    }
}

/// What was read of a repository.
#[derive(Debug, Default)]
struct Read {
    /// In order, so that every replica takes claims in alike.
    tags: BTreeMap<Tag, ReadTag>,
}

#[derive(Clone, Debug)]
struct ReadTag {
    has_tag: bool,
    has_bundle: bool,
    at: Instant,
    /// `None`: something else than a module.
    module: Option<Arc<ReadModule>>,
}

#[derive(Debug)]
struct ReadModule {
    digest: Digest,
    path: Option<CuePath>,
    dependencies: Vec<DependencyLayer>,
}

impl ReadTag {
    fn is_same(&self, other: &Self) -> bool {
        let digest = |read: &Self| read.module.as_ref().map(|module| module.digest.clone());
        (self.has_tag, self.has_bundle, digest(self)) == (other.has_tag, other.has_bundle, digest(other))
    }
}

impl Search {
    /// Over these registries.
    pub fn new(routes: &Routes, options: SearchOptions) -> Self {
        let is_complete = options.catalog == CatalogSource::None;
        Self {
            routes: routes.always_asked(),
            options,
            found: RwLock::default(),
            memory: Mutex::default(),
            is_unpublished: AtomicBool::default(),
            changed: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            is_complete: watch::Sender::new(is_complete),
            unlisted: Mutex::default(),
            cut: Mutex::default(),
            unread: Mutex::default(),
        }
    }

    /// What the last look left out.
    pub fn left_out(&self) -> LeftOut {
        let repositories = self.unread.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let registries = self.cut.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        LeftOut { repositories, registries }
    }

    /// Whether a repository fails that is believed about a module like this one: nobody knows then whether the module is inside another.
    pub fn may_be_in_a_failing_one(&self, module: &ModuleName) -> bool {
        let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        let failing = unread.iter().filter(|(_, why)| matches!(why, Unread::Failing(_)));
        let mut places = failing.map(|(place, _)| place);
        places.any(|place| {
            self.options.trusted.iter().any(|pattern| pattern.matches(place.below_prefix()))
                || self.routes.shares_namespace(module, place, None)
        })
    }

    /// How long a caller waits for the first complete look.
    pub fn patience(&self) -> Duration {
        self.options.patience
    }

    /// Holders that are believed about every module.
    pub fn trusted(&self) -> &[Pattern] {
        &self.options.trusted
    }

    /// What was found so far.
    pub fn found(&self) -> Arc<Found> {
        Arc::clone(&self.found.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same, with what was pushed here since. What cannot be looked at soon, since its registry fails or a look at everything takes
    /// long, holds nobody up who asks for something else: it stays to be looked at.
    pub async fn found_now(&self) -> Arc<Found> {
        if self.is_behind() {
            let looked = tokio::time::timeout(self.options.patience / 2, self.look_at_changed()).await;
            if let Ok(Err(error)) = looked {
                tracing::warn!("what has changed could not be looked at: {error}");
            }
        }
        self.found()
    }

    async fn look_at_changed(&self) -> Result<()> {
        let _looking = self.looking.lock().await;
        let mut changed = Changed::take(&self.changed);
        self.look_at(changed.places.clone()).await?;
        changed.places.clear();
        Ok(())
    }

    /// Whether a repository has changed since, and was not looked at.
    pub fn is_behind(&self) -> bool {
        !self.changed.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether a complete look went by a list that does not name a repository. Where the registry refuses to speak of it (many say 403 of
    /// what is not there), what others bring along may stand for it then.
    pub fn rules_out(&self, place: &Place) -> bool {
        let is_unread = || self.unread.lock().unwrap_or_else(PoisonError::into_inner).contains_key(place);
        self.options.catalog != CatalogSource::None
            && self.is_complete()
            && !is_among(&self.unlisted, place)
            && !is_among(&self.cut, place)
            && !self.found().knows(place)
            && !is_unread()
    }

    /// Whether there was a complete look.
    pub fn is_complete(&self) -> bool {
        *self.is_complete.borrow()
    }

    /// Waits for the first complete look, for so long at most; whether there was one.
    pub async fn completed(&self, patience: Duration) -> bool {
        let mut complete = self.is_complete.subscribe();
        tokio::time::timeout(patience, complete.wait_for(|complete| *complete))
            .await
            .is_ok_and(|done| done.is_ok())
    }

    /// Says that a repository of the registry has changed: it was pushed to through this server, or is newer than the last look.
    pub fn changed(&self, place: Place) {
        if self.will_look_at(&place) {
            let place = Place { target: self.always_asked(place.target), ..place };
            self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(place);
        }
    }

    /// Whether a complete look goes to a repository too. Else it would be known until the next one alone, and to this server alone.
    fn will_look_at(&self, place: &Place) -> bool {
        match self.options.catalog {
            CatalogSource::None => false,
            CatalogSource::Registry if !is_among(&self.cut, place) => !is_among(&self.unlisted, place),
            CatalogSource::File(_) | CatalogSource::Registry => {
                self.memory.lock().unwrap_or_else(PoisonError::into_inner).contains_key(place)
            }
        }
    }

    fn always_asked(&self, target: Target) -> Target {
        let same = self.routes.targets().find(|known| known.is_same(&target)).cloned();
        same.unwrap_or(target)
    }

    /// Looks for ever.
    pub async fn run(&self) {
        if self.options.catalog == CatalogSource::None {
            return;
        }
        let mut has_warned = false;
        loop {
            let began = Instant::now();
            let wait = match self.look().await {
                Ok(catalog) => {
                    if !std::mem::replace(&mut has_warned, true) {
                        warn_of_unlisted(&catalog);
                    }
                    let found = self.found();
                    tracing::debug!(
                        repositories = catalog.places.len(),
                        embedded = found.claims.len(),
                        duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                        "looked through the registry"
                    );
                    self.options.every
                }
                Err(error) => {
                    tracing::warn!("the registry could not be looked through for embedded modules: {error}");
                    AFTER_FAILURE.min(self.options.every)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Looks through everything.
    pub async fn look(&self) -> Result<Catalog> {
        self.look_holding(&mut *self.looking.lock().await).await
    }

    async fn look_holding(&self, looks: &mut Looks) -> Result<Catalog> {
        let began = Instant::now();
        let catalog = catalog::read_part(&self.routes, &self.options.catalog).await?;
        looks.at_the_list = Some(Look::ended(began));
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&catalog.unlisted);
        self.note_cut(&catalog.cut);
        {
            let listed: HashSet<&Place> = catalog.places.iter().collect();
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            memory.retain(|place, _| listed.contains(place));
            let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
            unread.retain(|place, _| listed.contains(place));
        }
        self.look_at(catalog.places.clone()).await?;
        looks.at_everything = Some(Look::ended(began));
        self.is_complete.send_replace(true);
        Ok(catalog)
    }

    /// Looks for what has come since, for a caller who asks for something that only a look can tell: at everything where that is
    /// quick, else at the repositories that are new. A caller who would be told that there is nothing waits for a look that began after
    /// `asked`, where it can be had soon.
    pub async fn look_for_new(&self, asked: Option<Instant>) -> Result<()> {
        if self.options.catalog == CatalogSource::None {
            return Ok(());
        }
        let mut looks = self.looking.lock().await;
        if let (Some(asked), Some(look)) = (asked, looks.at_everything)
            && look.began < asked
        {
            let wait = look.over().saturating_duration_since(Instant::now());
            if wait <= GOOD_FOR {
                tokio::time::sleep(wait).await;
            }
        }
        if Look::is_over(looks.at_everything) {
            return self.look_holding(&mut looks).await.map(drop);
        }
        if !Look::is_over(looks.at_the_list) {
            return Ok(());
        }
        let began = Instant::now();
        let catalog = catalog::read_part(&self.routes, &self.options.catalog).await?;
        let new: Vec<_> = {
            let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = |place: &Place| memory.get(place).is_none_or(|read| read.tags.is_empty());
            catalog.places.into_iter().filter(is_new).collect()
        };
        let looked = self.look_at(new).await;
        looks.at_the_list = Some(Look::ended(began));
        looked
    }

    /// Looks at these repositories and takes in what is in them. Whoever calls holds `looking`.
    async fn look_at(&self, places: Vec<Place>) -> Result<()> {
        let mut passing = None;
        let mut looked = stream::iter(places)
            .map(|place| async move {
                let known = {
                    let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
                    memory.get(&place).cloned()
                };
                (read(&place, known.as_deref()).await, known, place)
            })
            .buffer_unordered(CONCURRENT_REPOSITORIES);
        while let Some((answer, known, place)) = looked.next().await {
            match answer {
                Ok(read) => {
                    let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
                    if !known.is_some_and(|known| known.is_same(&read)) {
                        self.is_unpublished.store(true, Ordering::Relaxed);
                    }
                    self.unread.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
                    memory.insert(place, Arc::new(read));
                }
                Err(error) => {
                    if self.is_passed_over(&place, &error) {
                        // One that is damaged or closed to us does not hide the others, nor does one that always fails; what was known
                        // of it stays.
                        tracing::warn!("{} is passed over: {error}", place.name());
                    } else {
                        // What was not read is not known, which is not the same as not there.
                        passing = Some(error);
                    }
                }
            }
        }
        drop(looked);
        let is_fewer = {
            let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            memory.len() != self.found().read.len()
        };
        if is_fewer || self.is_unpublished.load(Ordering::Relaxed) {
            self.publish();
        }
        passing.map_or(Ok(()), Err)
    }

    /// Notes that a repository could not be read; whether a look is complete without it.
    fn is_passed_over(&self, place: &Place, error: &OperationError) -> bool {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        let why = match unread.get(place) {
            _ if !error.is_passing() => Unread::Closed,
            Some(Unread::Failing(times)) => Unread::Failing(times.saturating_add(1)),
            Some(Unread::Closed) | None => Unread::Failing(1),
        };
        unread.insert(place.clone(), why);
        match why {
            Unread::Closed => true,
            Unread::Failing(times) => times >= TRIES,
        }
    }

    /// Notes which registries have too many repositories, and says in the log where that is new.
    fn note_cut(&self, now: &[Target]) {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        for target in now.iter().filter(|target| !cut.iter().any(|known| known.is_same(target))) {
            tracing::warn!(
                "{} has more than {} repositories, and no more are looked through: a module that is only inside one of the others is \
                 not found there; name what is to be looked through with `--catalog FILE`",
                target.name,
                catalog::MAX_REPOSITORIES
            );
        }
        *cut = now.to_vec();
    }

    /// Makes what is in memory what is answered from.
    fn publish(&self) {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Found { revision: self.found().revision + 1, ..Found::default() };
        let mut places: Vec<_> = memory.iter().collect();
        // Where there are too many claims, every replica leaves out the same ones.
        places.sort_by_cached_key(|(place, _)| place.name());
        let namespaces: HashSet<&str> = places.iter().map(|(place, _)| embedded::namespace(place)).collect();
        found.claims = Claims::shared_by(namespaces.len());
        let mut is_full = add_claims(&mut found.claims, &places);
        if is_full {
            found.claims.leave_the_rest_to_all();
            is_full = add_claims(&mut found.claims, &places);
        }
        found.read = memory.iter().map(|(place, read)| (place.clone(), Arc::clone(read))).collect();
        self.is_unpublished.store(false, Ordering::Relaxed);
        drop(memory);
        if is_full {
            tracing::error!("there are too many embedded modules; some of them are not served");
        }
        *self.found.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
    }
}

/// Whether a repository is of one of these registries.
fn is_among(targets: &Mutex<Vec<Target>>, place: &Place) -> bool {
    let targets = targets.lock().unwrap_or_else(PoisonError::into_inner);
    targets.iter().any(|target| target.is_same(&place.target))
}

/// Takes in what these repositories say of others; whether there was too much of it.
fn add_claims(claims: &mut Claims, places: &[(&Place, &Arc<Read>)]) -> bool {
    let mut is_full = false;
    for (place, read) in places {
        for module in read.tags.values().filter_map(|read| read.module.as_ref()) {
            for layer in &module.dependencies {
                is_full |= !claims.add(place, module.path.as_ref(), layer);
            }
        }
    }
    is_full
}

impl Read {
    fn is_same(&self, other: &Self) -> bool {
        self.tags.len() == other.tags.len()
            && self
                .tags
                .iter()
                .all(|(tag, read)| other.tags.get(tag).is_some_and(|other| read.is_same(other)))
    }
}

/// Reads what is new in a repository.
async fn read(place: &Place, known: Option<&Read>) -> Result<Read> {
    let Some((name, _)) = list::name_of(place) else { return Ok(Read::default()) };
    let published = published::at(&name, place).await?;
    let tags = stream::iter(published.versions)
        .map(|tagged| async move {
            let known = known.and_then(|known| known.tags.get(&tagged.tag)).filter(|known| {
                (known.has_tag, known.has_bundle) == (tagged.has_tag, tagged.has_bundle)
                    && known.at.elapsed() < READ_AGAIN_AFTER
            });
            match known {
                Some(known) => Ok((tagged.tag, known.clone())),
                None => read_tag(place, &tagged).await.map(|read| (tagged.tag, read)),
            }
        })
        .buffer_unordered(CONCURRENT_MANIFESTS)
        .try_collect()
        .await?;
    Ok(Read { tags })
}

async fn read_tag(place: &Place, tagged: &TaggedVersion) -> Result<ReadTag> {
    let module = match published::load(place, tagged).await {
        Ok(stored) => {
            let path = if stored.artifact.dependencies.is_empty() {
                None
            } else {
                stored.module_file().await?.map(|file| file.module.base().clone())
            };
            Some(Arc::new(ReadModule {
                digest: stored.digest,
                path,
                dependencies: stored.artifact.dependencies,
            }))
        }
        Err(OperationError::NotAModule { reference, source }) => {
            if !matches!(source, ArtifactError::NotAModule { .. }) {
                tracing::warn!("{reference} is passed over: {source}");
            }
            None
        }
        // Deleted since it was listed.
        Err(OperationError::Registry { source, .. }) if source.is_not_found() => None,
        Err(error) => return Err(error),
    };
    Ok(ReadTag { has_tag: tagged.has_tag, has_bundle: tagged.has_bundle, at: Instant::now(), module })
}

fn warn_of_unlisted(catalog: &Catalog) {
    for target in &catalog.unlisted {
        tracing::warn!(
            "{} has no list of its repositories, so a module that is only inside another one is not found there; name \
             the modules with `--catalog FILE`, or say `--catalog none`",
            target.name
        );
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::routes::RepositoryTemplate;
    use super::*;
    use std::sync::atomic::AtomicUsize;

    use crate::module::{Host, TofuAddress};
    use crate::oci::{Descriptor, IMAGE_MANIFEST, Manifest, Reference, Repository};
    use crate::registry::{Answer, Page, PageRequest, Registry, RegistryError, StoredManifest};

    /// Two repositories; the second does not answer while it is told so.
    #[derive(Default)]
    struct Halting {
        tags: Mutex<Vec<Tag>>,
        is_halted: AtomicBool,
        /// The second one fails.
        is_broken: AtomicBool,
        /// So many more are listed, with nothing in them.
        more: AtomicUsize,
    }

    const REPOSITORIES: [&str; 2] = ["acme/a/null", "acme/b/null"];

    impl Registry for Halting {
        fn repositories<'a>(&'a self, _: &'a PageRequest) -> Answer<'a, Page<Repository>> {
            let mut items: Vec<Repository> = REPOSITORIES.map(|name| name.parse().unwrap()).into();
            let more = 0..self.more.load(Ordering::Relaxed);
            items.extend(more.map(|number| format!("other{number}").parse().unwrap()));
            Box::pin(async { Ok(Page { items, next: None }) })
        }

        fn tags<'a>(&'a self, repository: &'a Repository, _: &'a PageRequest) -> Answer<'a, Page<Tag>> {
            Box::pin(async {
                if repository.as_str() == REPOSITORIES[1] && self.is_halted.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                if repository.as_str() == REPOSITORIES[1] && self.is_broken.load(Ordering::Relaxed) {
                    return Err(RegistryError::Unavailable {
                        registry: "test".into(),
                        reason: "it fails".into(),
                    });
                }
                Ok(Page { items: self.tags.lock().unwrap().clone(), next: None })
            })
        }

        fn manifest<'a>(&'a self, _: &'a Repository, _: &'a Reference) -> Answer<'a, StoredManifest> {
            let manifest = Manifest {
                schema_version: 2,
                media_type: Some(IMAGE_MANIFEST.to_owned()),
                artifact_type: None,
                config: Some(Descriptor::of("application/vnd.oci.image.config.v1+json", b"{}")),
                layers: Vec::new(),
                manifests: None,
                subject: None,
                annotations: BTreeMap::new(),
            };
            let bytes = serde_json::to_vec(&manifest).unwrap();
            let digest = Digest::of(&bytes);
            let stored =
                StoredManifest { media_type: IMAGE_MANIFEST.to_owned(), digest, bytes: bytes.into() };
            Box::pin(async { Ok(stored) })
        }
    }

    fn search() -> (Arc<Halting>, Search, [Place; 2]) {
        let registry = Arc::new(Halting::default());
        registry.tags.lock().unwrap().push("v1.0.0".parse().unwrap());
        let target = Target {
            registry: Arc::clone(&registry) as _,
            prefix: String::new(),
            name: "test".into(),
            identity: "test".into(),
            is_local: true,
        };
        let routes = Routes::new(vec![(None, Some(target.clone()))], RepositoryTemplate::default());
        let options = SearchOptions { patience: Duration::from_millis(40), ..SearchOptions::default() };
        let place = |name: &str| Place { target: target.clone(), repository: name.parse().unwrap() };
        (registry, Search::new(&routes, options), REPOSITORIES.map(place))
    }

    #[tokio::test]
    async fn what_a_look_that_was_broken_off_has_read_is_answered_after_the_next_one() {
        let (registry, search, [a, _]) = search();
        search.look().await.unwrap();
        let tag: Tag = "v2.0.0".parse().unwrap();
        registry.tags.lock().unwrap().push(tag.clone());
        registry.is_halted.store(true, Ordering::Relaxed);
        assert!(tokio::time::timeout(Duration::from_millis(20), search.look()).await.is_err());
        registry.is_halted.store(false, Ordering::Relaxed);
        search.look().await.unwrap();
        assert_eq!(search.found().is_module(&a, &tag), Some(false));
    }

    #[tokio::test]
    async fn a_repository_that_always_fails_is_passed_over_and_speaks_for_nothing() {
        let (registry, search, [a, b]) = search();
        registry.is_broken.store(true, Ordering::Relaxed);
        for _ in 1..TRIES {
            assert!(search.look().await.is_err() && !search.is_complete());
        }
        search.look().await.unwrap();
        assert!(search.is_complete() && search.found().knows(&a) && !search.found().knows(&b));
        assert_eq!(search.left_out(), LeftOut { repositories: 1, registries: 0 });
        // What it has of its own may be there, and what it says of its like is not known.
        assert!(!search.rules_out(&b));
        let module = |text: &str| {
            let address = TofuAddress::parse(text).unwrap();
            ModuleName::tofu(&address, &Host::internal()).unwrap()
        };
        assert!(search.may_be_in_a_failing_one(&module("acme/c/null")));
        assert!(!search.may_be_in_a_failing_one(&module("other/c/null")));
        registry.is_broken.store(false, Ordering::Relaxed);
        search.look().await.unwrap();
        assert!(search.found().knows(&b) && !search.may_be_in_a_failing_one(&module("acme/c/null")));
        assert_eq!(search.left_out(), LeftOut::default());
        // It counts anew, and what was read stays.
        registry.is_broken.store(true, Ordering::Relaxed);
        assert!(search.look().await.is_err());
        assert!(search.found().knows(&b));
    }

    #[tokio::test]
    async fn a_registry_with_too_many_repositories_is_looked_through_as_far_as_that_goes() {
        let (registry, search, [a, _]) = search();
        registry.more.store(catalog::MAX_REPOSITORIES, Ordering::Relaxed);
        let catalog = search.look().await.unwrap();
        assert_eq!((catalog.places.len(), catalog.cut.len()), (catalog::MAX_REPOSITORIES, 1));
        assert!(search.is_complete() && search.found().knows(&a));
        assert_eq!(search.left_out(), LeftOut { repositories: 0, registries: 1 });
        // Whether there is one that is not among them, the list does not say.
        let beyond = Place { repository: "acme/z/null".parse().unwrap(), ..a };
        assert!(!search.rules_out(&beyond));
        let options = SearchOptions::default();
        assert!(catalog::read(&search.routes, &options.catalog).await.is_err(), "who wants all is told");
    }

    #[tokio::test]
    async fn a_repository_that_does_not_answer_holds_nobody_up_and_stays_to_be_looked_at() {
        let (registry, search, [_, b]) = search();
        search.look().await.unwrap();
        let tag: Tag = "v2.0.0".parse().unwrap();
        registry.tags.lock().unwrap().push(tag.clone());
        registry.is_halted.store(true, Ordering::Relaxed);
        search.changed(b.clone());
        assert!(search.found_now().await.is_module(&b, &tag).is_none());
        assert!(search.is_behind());
        registry.is_halted.store(false, Ordering::Relaxed);
        assert!(search.found_now().await.is_module(&b, &tag).is_some());
        assert!(!search.is_behind());
    }
}
