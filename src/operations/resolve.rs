//! Which modules a module needs, in which versions, and where their zips are.
//!
//! An OpenTofu module says it in its `module` blocks: the highest version that satisfies each, with everything that this
//! version brings along. A CUE module says it in its module file, versions included.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::archive::ModuleKind;
use crate::artifact::{Content, DependencyLayer};
use crate::module::{
    self, Call, Constraint, CuePath, Host, ModuleFile, ModulePath, ModuleVersion, Scope, Source, TofuAddress,
    TofuModule, Version,
};

use super::cue_module;
use super::cue_packages::{self, Listed};
use super::download;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::prepare::{MODULE_FILE, Prepared};
use super::published::{self, Published, StoredModule};
use super::routes::{ModuleName, Place, Routes};

/// More dependency layers than this fit into no registry's manifest: ECR takes 500 layers.
pub const MAX_DEPENDENCIES: usize = 498;
/// Modules that are looked up at once.
const LOOKS_AT_ONCE: usize = 8;

/// A module that another one needs, and where its zip is.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// The layer that it becomes.
    pub layer: DependencyLayer,
    /// The repository that has the zip already.
    pub place: Place,
}

/// What a module needs.
#[derive(Clone, Debug, Default)]
pub struct Resolution {
    /// Sorted by module path and version.
    pub dependencies: Vec<Dependency>,
    /// Calls of what cannot be embedded: git, http, other registries.
    pub outside: Vec<Finding>,
}

/// Whose modules count as one's own.
#[derive(Clone, Debug)]
pub struct OwnHosts {
    /// The host that users of the module write.
    pub host: Host,
    /// Hosts that it had before.
    pub aliases: Vec<Host>,
}

impl OwnHosts {
    /// The host that an address is on: OpenTofu's default one where it names none, and the own one in place of its aliases.
    fn host_of(&self, address: &TofuAddress) -> Host {
        let host = address.host().cloned().unwrap_or_else(Host::opentofu_default);
        if self.aliases.contains(&host) { self.host.clone() } else { host }
    }
}

/// What OpenTofu modules a module calls, all the way down.
///
/// Without registries nothing is looked up: what is wrong with the calls themselves is found all the same.
pub async fn opentofu(
    routes: Option<&Routes>,
    own: &OwnHosts,
    module: Option<&ModuleName>,
    version: Option<&Version>,
    tofu: &TofuModule,
) -> Result<Resolution> {
    let mut resolver = Resolver {
        routes,
        own,
        module,
        version,
        known: BTreeMap::new(),
        found: BTreeMap::new(),
        waiting: VecDeque::new(),
        followed: BTreeMap::new(),
        outside: Vec::new(),
        findings: Vec::new(),
    };
    resolver.calls(&tofu.calls, false).await?;
    while let Some((needed, main_only, by)) = resolver.waiting.pop_front() {
        resolver.recorded(&needed, main_only, &by).await?;
    }
    resolver.finish()
}

/// The entries of `deps` in a CUE module's file, where they are all that the module needs and nothing more.
///
/// Each has to be in the registry and to be what the entry says; none of them may need another one in a later version than is listed; and
/// every import, all the way down, has to lead to one of them, and to every one of them. But for the versions that they need of each other,
/// this is what `cue mod tidy --check` asks for.
pub async fn cue(routes: &Routes, prepared: &Prepared, file: &ModuleFile) -> Result<Resolution> {
    if file.deps.len() > MAX_DEPENDENCIES {
        return Err(too_many());
    }
    let mut listed = BTreeMap::new();
    let mut findings = Vec::new();
    let looked =
        stream::iter(&file.deps).map(|entry| listed_module(routes, file, entry)).buffered(LOOKS_AT_ONCE);
    for (entry, found) in file.deps.iter().zip(looked.try_collect::<Vec<_>>().await?) {
        match found {
            Ok(found) => drop(listed.insert(entry.path.clone(), found)),
            Err(finding) => findings.push(finding),
        }
    }
    if findings.is_empty() {
        for (path, Listed { file: theirs, .. }) in &listed {
            for needed in &theirs.deps {
                let entry = file.deps.iter().find(|entry| entry.path == needed.path);
                if let Some(entry) = entry.filter(|entry| entry.version < needed.version) {
                    let message = format!(
                        "`deps` has `{0}` in version {1}, but `{path}` needs version {2} of it; run `cue mod get {3}@v{2}`",
                        entry.path,
                        entry.version,
                        needed.version,
                        entry.path.base()
                    );
                    findings.push(of_entry(entry, "dependency-version", message));
                }
            }
        }
        let imports = cue_packages::check(cue_packages::heads_of(prepared).await?, file, &listed).await?;
        findings.extend(imports.findings);
        if findings.is_empty() {
            let dependency = |(path, Listed { stored, .. }): (ModulePath, Listed)| {
                let version = stored.version.clone()?;
                Some(Dependency {
                    layer: DependencyLayer {
                        module: ModuleVersion::new(path.base().clone(), version),
                        archive: stored.artifact.archive.clone(),
                        main_only: imports.main_only.contains(&path),
                    },
                    place: stored.place,
                })
            };
            let mut dependencies: Vec<_> = listed.into_iter().filter_map(dependency).collect();
            dependencies.sort_by(|one, other| one.layer.module.cmp(&other.layer.module));
            return Ok(Resolution { dependencies, outside: Vec::new() });
        }
    }
    Err(OperationError::Refused(findings))
}

/// What an entry of `deps` names, as it is stored; else what is wrong with the entry.
async fn listed_module(
    routes: &Routes,
    file: &ModuleFile,
    entry: &module::Dependency,
) -> Result<std::result::Result<Listed, Finding>> {
    let refused = |rule, message| Ok(Err(of_entry(entry, rule, message)));
    if entry.path == file.module {
        let message = format!("`deps` has `{}`, which is the module itself; remove it", entry.path);
        return refused("dependency-itself", message);
    }
    let found = match published::find(routes, &ModuleName::Cue(entry.path.base().clone())).await {
        Ok(published) => published.choose(&Constraint::exactly(&entry.version)).await,
        Err(error) => Err(error),
    };
    let stored = match found {
        Ok((_, stored)) => stored,
        Err(error @ (OperationError::NoModule { .. } | OperationError::NoVersion { .. })) => {
            let message = format!("{error}; publish it there first, or run `cue mod tidy`");
            return refused("dependency-missing", message);
        }
        Err(error) => return Err(error),
    };
    match listed(stored, entry).await? {
        Ok(listed) => Ok(Ok(listed)),
        Err(message) => refused("dependency-other-module", message),
    }
}

/// A stored module as what an entry of `deps` lists, or in which way it is something else.
async fn listed(
    stored: StoredModule,
    entry: &module::Dependency,
) -> Result<std::result::Result<Listed, String>> {
    let says = match stored.module_file().await? {
        Some(theirs) if theirs.module == entry.path => {
            return Ok(Ok(Listed { stored, file: theirs, line: entry.line }));
        }
        Some(theirs) => format!("says that it is `{}`", theirs.module),
        None => "has no module file that can be read".to_owned(),
    };
    Ok(Err(format!("`{}` {says}, so it is not what `deps` calls it; list another version", stored.name())))
}

/// Of the modules that a published CUE module lists, each as it is stored, those that only its tools and tests need. Refused where one of
/// them, or the module itself, is not what it is called.
pub(super) async fn main_only(
    stored: &StoredModule,
    needed: &[(ModuleVersion, StoredModule)],
) -> Result<BTreeSet<ModulePath>> {
    let Some(file) = stored.module_file().await? else { return Ok(BTreeSet::new()) };
    let mut found = BTreeMap::new();
    for (version, dependency) in needed {
        let entry = file.deps.iter().find(|entry| entry.path == version.module_path());
        let Some(entry) = entry else { continue };
        match listed(dependency.clone(), entry).await? {
            Ok(listed) => drop(found.insert(entry.path.clone(), listed)),
            Err(message) => {
                let message = format!("{}: {message}", stored.name());
                return Err(OperationError::refused(of_entry(entry, "dependency-other-module", message)));
            }
        }
    }
    let zip = download::archive(&stored.place, &stored.artifact.archive).await?;
    let (layer, module, name) = (stored.module_file_bytes().await?, file.module.clone(), stored.name());
    let heads = super::blocking(move || {
        let (tree, _) = cue_module::open(zip.path(), &module, layer.as_deref(), &name)?;
        cue_packages::heads_of_tree(&tree, &mut cue_packages::Room::default())
    });
    cue_packages::main_only(heads.await?, &file, &found).await
}

fn of_entry(entry: &module::Dependency, rule: &'static str, message: String) -> Finding {
    Finding { file: Some(MODULE_FILE.to_owned()), line: Some(entry.line), rule, message }
}

/// Whether the versions that an earlier push recorded still satisfy every call, so that the same push again has nothing to change
/// whatever came out since; else the first call that they do not.
pub fn still_satisfied(
    own: &OwnHosts,
    module: &ModuleName,
    tofu: &TofuModule,
    recorded: &[ModuleVersion],
) -> Option<Finding> {
    tofu.calls.iter().find_map(|call| {
        let Source::Registry { address, .. } = &call.source else { return None };
        let host = own.host_of(address);
        let path = address.with_host(host.clone()).cue_path(&host).ok()?;
        let constraint = call.version.as_deref().map_or(Some(Constraint::any()), |text| text.parse().ok())?;
        let same: Vec<_> =
            recorded.iter().filter(|known| published::same_module(known.base(), &path)).collect();
        let needed = host == own.host && !published::same_module(module.path(), &path);
        let fits = constraint.highest(same.iter().map(|known| known.version())).is_some();
        let message = || format!("the stored version has no `{address}` that satisfies `{constraint}`");
        (!fits && (needed || !same.is_empty())).then(|| finding(call, "dependency-missing", message()))
    })
}

struct Resolver<'a> {
    routes: Option<&'a Routes>,
    own: &'a OwnHosts,
    /// What is being pushed, where that is known.
    module: Option<&'a ModuleName>,
    version: Option<&'a Version>,
    /// What was looked up: one listing a module.
    known: BTreeMap<CuePath, Option<Published>>,
    found: BTreeMap<ModuleVersion, Dependency>,
    /// Versions that are needed and not looked at yet, whether for tests alone, and by whom. A list and no recursion: how deep it
    /// goes is decided by what strangers published.
    waiting: VecDeque<(ModuleVersion, bool, String)>,
    /// Modules whose needs were followed, and whether that was for tests alone: circles end where they began.
    followed: BTreeMap<ModuleVersion, bool>,
    outside: Vec<Finding>,
    findings: Vec<Finding>,
}

/// Whose a called module is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// On the own host: it has to be there.
    Own,
    /// On a host that is routed: it has to be there too.
    Routed,
    /// On OpenTofu's default host: embedded where the registry has it.
    Default,
    /// Somewhere else.
    Elsewhere,
}

impl Resolver<'_> {
    async fn calls(&mut self, calls: &[Call], main_only: bool) -> Result<()> {
        for call in calls {
            match &call.source {
                // The folder is in the zip, and its own calls are in the list.
                Source::Local(_) => {}
                Source::Remote(source) => {
                    let message = format!("`{source}` cannot be embedded");
                    self.outside.push(finding(call, "source-not-embedded", message));
                }
                Source::Registry { address, .. } => {
                    self.registry_call(call, address, main_only || call.scope == Scope::TestOnly).await?;
                }
            }
        }
        Ok(())
    }

    async fn registry_call(&mut self, call: &Call, address: &TofuAddress, main_only: bool) -> Result<()> {
        let host = self.own.host_of(address);
        let address = &address.with_host(host.clone());
        let path = match address.cue_path(&host) {
            Ok(path) => path,
            Err(error) => {
                self.findings.push(finding(call, "module-address", error.to_string()));
                return Ok(());
            }
        };
        let constraint = match call.version.as_deref().map(str::parse::<Constraint>).transpose() {
            Ok(constraint) => constraint.unwrap_or_else(Constraint::any),
            Err(error) => {
                self.findings.push(finding(call, "version-constraint", error.to_string()));
                return Ok(());
            }
        };
        let reach = if host == self.own.host {
            Reach::Own
        } else if self.routes.is_some_and(|routes| routes.is_routed(&path)) {
            Reach::Routed
        } else if host == Host::opentofu_default() {
            Reach::Default
        } else {
            Reach::Elsewhere
        };
        if reach == Reach::Elsewhere {
            let message = format!(
                "`{address}` is on `{host}`, which is neither the module's own host `{}` nor one that `--registry` names, so it \
                 is not embedded; did you mean `--host {host}`?",
                self.own.host
            );
            self.outside.push(finding(call, "source-not-embedded", message));
            return Ok(());
        }
        let Some(published) = self.published(address, path, reach).await? else {
            return self.missing(call, address, reach, &constraint, None).await;
        };
        let Some((tagged, stored)) = published.newest(&constraint).await? else {
            return self.missing(call, address, reach, &constraint, Some(&published)).await;
        };
        let module = ModuleVersion::new(published.module.path().clone(), tagged.version);
        self.add(&stored, module, main_only).await
    }

    /// The versions of a called module, looked up once; `None` where there are none, or another module has its place.
    async fn published(
        &mut self,
        address: &TofuAddress,
        path: CuePath,
        reach: Reach,
    ) -> Result<Option<Published>> {
        let Some(routes) = self.routes else { return Ok(None) };
        if let Some(known) = self.known.get(&path) {
            return Ok(known.clone());
        }
        let name = ModuleName::Tofu { address: address.clone(), path: path.clone() };
        let published = match published::find(routes, &name).await {
            Ok(published) => Some(published),
            Err(OperationError::NoModule { .. } | OperationError::Route(_)) => None,
            Err(error) => return Err(error),
        };
        // What somebody publishes on OpenTofu's registry is taken only from a module that calls itself so: one that was pushed here
        // without a host, or by a tool that says none, is another's of the same name.
        let published = match published {
            Some(published) if reach == Reach::Default => {
                (published.owner().await? == Some(path.clone())).then_some(published)
            }
            other => other,
        };
        self.known.insert(path, published.clone());
        Ok(published)
    }

    async fn missing(
        &mut self,
        call: &Call,
        address: &TofuAddress,
        reach: Reach,
        constraint: &Constraint,
        published: Option<&Published>,
    ) -> Result<()> {
        if self.routes.is_none() {
            return Ok(());
        }
        // A module may call what calls it: while its first version is pushed, that version is not there yet.
        let path = address.cue_path(&Host::opentofu_default());
        let is_self = self
            .module
            .is_some_and(|module| path.is_ok_and(|path| published::same_module(&path, module.path())));
        if is_self && self.version.is_none_or(|version| constraint.matches(version)) {
            return Ok(());
        }
        if reach == Reach::Default {
            let message = format!("`{address}` is not in the registry, so it is not embedded");
            self.outside.push(finding(call, "source-not-embedded", message));
            return Ok(());
        }
        let message = match published {
            Some(published) => published.no_version(constraint).await?.to_string(),
            None => format!("module `{address}` is not in the registry; push it first"),
        };
        self.findings.push(finding(call, "dependency-missing", message));
        Ok(())
    }

    /// Takes a version in, with what it brings along.
    async fn add(&mut self, stored: &StoredModule, called: ModuleVersion, main_only: bool) -> Result<()> {
        let file = stored.module_file().await?;
        // The module's own word for its path is what those who are to believe the layer will compare it with.
        let module = match &file {
            Some(file) => ModuleVersion::new(file.module.base().clone(), called.version().clone()),
            None => called,
        };
        self.insert(&stored.place, module.clone(), stored.artifact.archive.clone(), main_only)?;
        for layer in stored.needed_by_dependents() {
            self.insert(&stored.place, layer.module.clone(), layer.archive.clone(), main_only)?;
        }
        let is_followed = self.followed.get(&module).is_some_and(|for_tests| !for_tests || main_only);
        if is_followed || stored.needed_by_dependents().next().is_some() {
            return Ok(());
        }
        let by = module.to_string();
        self.followed.insert(module, main_only);
        let recorded =
            file.as_ref().and_then(ModuleFile::custom_ocimod).filter(|ocimod| ocimod.is_generated());
        match recorded {
            // Pushed by ocimod: its file says what it needs, embedded or not.
            Some(recorded) => {
                let needed = recorded.dependencies().iter().cloned();
                self.waiting.extend(needed.map(|needed| (needed, main_only, by.clone())));
                Ok(())
            }
            // Pushed by another tool: its files say it.
            None if stored.artifact.kind == ModuleKind::OpenTofu || file.is_none() => {
                let tofu = super::inspect::read_tofu(stored).await?;
                // How far that goes is decided by what strangers published.
                if self.followed.len() > MAX_DEPENDENCIES {
                    return Err(too_many());
                }
                self.foreign_calls(&tofu.calls, main_only, &by).await
            }
            None => Ok(()),
        }
    }

    /// What a module of another tool calls: chosen now, looked at later.
    async fn foreign_calls(&mut self, calls: &[Call], main_only: bool, by: &str) -> Result<()> {
        for call in calls.iter().filter(|call| call.scope == Scope::Always) {
            let Source::Registry { address, .. } = &call.source else { continue };
            let host = self.own.host_of(address);
            let address = &address.with_host(host.clone());
            let constraint =
                call.version.as_deref().map_or(Some(Constraint::any()), |text| text.parse().ok());
            let (Ok(path), Some(constraint)) = (address.cue_path(&host), constraint) else { continue };
            let reach = if host == self.own.host { Reach::Own } else { Reach::Default };
            let Some(published) = self.published(address, path.clone(), reach).await? else {
                let message =
                    format!("`{by}` calls `{address}`, which is not in the registry, so it is not embedded");
                self.outside.push(Finding::general("source-not-embedded", message));
                continue;
            };
            let Some((tagged, _)) = published.newest(&constraint).await? else { continue };
            let needed = ModuleVersion::new(path, tagged.version);
            self.waiting.push_back((needed, main_only, by.to_owned()));
        }
        Ok(())
    }

    /// A version that another module needs, looked up by its exact number.
    async fn recorded(&mut self, needed: &ModuleVersion, main_only: bool, by: &str) -> Result<()> {
        let Some(routes) = self.routes else { return Ok(()) };
        let is_followed = self.followed.get(needed).is_some_and(|for_tests| !for_tests || main_only);
        if self.found.contains_key(needed) && is_followed {
            return Ok(());
        }
        let name = match TofuAddress::from_cue_path(needed.base()) {
            Some(address) => ModuleName::Tofu { address, path: needed.base().clone() },
            None => ModuleName::Cue(needed.base().clone()),
        };
        let stored = match published::find(routes, &name).await {
            Ok(published) => published.newest(&Constraint::exactly(needed.version())).await?,
            Err(OperationError::NoModule { .. } | OperationError::Route(_)) => None,
            Err(error) => return Err(error),
        };
        let Some((_, stored)) = stored else {
            let message =
                format!("`{by}` needs `{needed}`, which is not in the registry; push or copy it there first");
            self.findings.push(Finding::general("dependency-missing", message));
            return Ok(());
        };
        self.add(&stored, needed.clone(), main_only).await
    }

    fn insert(
        &mut self,
        place: &Place,
        module: ModuleVersion,
        archive: Content,
        main_only: bool,
    ) -> Result<()> {
        match self.found.entry(module) {
            Entry::Vacant(entry) => {
                let layer = DependencyLayer { module: entry.key().clone(), archive, main_only };
                entry.insert(Dependency { layer, place: place.clone() });
            }
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                known.layer.main_only &= main_only;
                if known.layer.archive.digest != archive.digest {
                    let message = format!(
                        "there are two different zips for `{}`: {} in `{}` and {} in `{}`; push the holder of the wrong one anew",
                        known.layer.module,
                        known.layer.archive.digest,
                        known.place.name(),
                        archive.digest,
                        place.name()
                    );
                    return Err(OperationError::refused(Finding::general("dependency-ambiguous", message)));
                }
            }
        }
        if self.found.len() > MAX_DEPENDENCIES { Err(too_many()) } else { Ok(()) }
    }

    fn finish(self) -> Result<Resolution> {
        if !self.findings.is_empty() {
            return Err(OperationError::Refused(self.findings));
        }
        // An older version of the module itself may be needed; the one that is being pushed is no dependency of its own.
        let is_self = |layer: &DependencyLayer| {
            Some(layer.module.version()) == self.version
                && self
                    .module
                    .is_some_and(|module| published::same_module(layer.module.base(), module.path()))
        };
        let dependencies = self.found.into_values().filter(|found| !is_self(&found.layer)).collect();
        Ok(Resolution { dependencies, outside: self.outside })
    }
}

fn too_many() -> OperationError {
    let message =
        format!("the module needs more than {MAX_DEPENDENCIES} others; no registry takes so many layers");
    OperationError::refused(Finding::general("too-many-dependencies", message))
}

fn finding(call: &Call, rule: &'static str, message: String) -> Finding {
    Finding { file: Some(call.file.clone()), line: Some(call.line), rule, message }
}
