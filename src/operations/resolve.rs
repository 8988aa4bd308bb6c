//! Which modules a module needs, in which versions, and where their zips are.
//!
//! An OpenTofu module says it in its `module` blocks: the highest version that satisfies each, with everything that this
//! version brings along. A CUE module says it in its module file, versions included.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::archive::ModuleKind;
use crate::artifact::{Content, DependencyLayer};
use crate::module::{
    Call, Constraint, CuePath, Host, ModuleFile, ModuleVersion, Scope, Source, TofuAddress, TofuModule,
    Version,
};

use super::check::Finding;
use super::error::{OperationError, Result};
use super::published::{self, Published, StoredModule};
use super::routes::{ModuleName, Place, Routes};

/// More dependency layers than this fit into no registry's manifest: ECR takes 500 layers.
pub const MAX_DEPENDENCIES: usize = 498;

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
    fn contains(&self, host: &Host) -> bool {
        *host == self.host || self.aliases.contains(host)
    }
}

/// What OpenTofu modules a module calls, all the way down.
pub async fn opentofu(
    routes: &Routes,
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
        walked: BTreeSet::new(),
        outside: Vec::new(),
        findings: Vec::new(),
    };
    resolver.calls(&tofu.calls, false).await?;
    resolver.finish()
}

/// The entries of `deps` in a CUE module's file. Each has to be in the registry.
pub async fn cue(routes: &Routes, file: &ModuleFile) -> Result<Resolution> {
    let mut dependencies = Vec::new();
    let mut findings = Vec::new();
    for entry in &file.deps {
        let name = ModuleName::Cue(entry.path.base().clone());
        let missing = |message: String| Finding {
            file: Some("cue.mod/module.cue".to_owned()),
            line: Some(entry.line),
            rule: "dependency-missing",
            message,
        };
        let exact = Constraint::exactly(&entry.version);
        let found = match published::find(routes, &name).await {
            Ok(published) => match published.choose(&exact) {
                Ok(version) => Ok(published.load(version).await?),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match found {
            Ok(stored) => dependencies.push(Dependency {
                layer: DependencyLayer {
                    module: ModuleVersion::new(entry.path.base().clone(), entry.version.clone()),
                    archive: stored.artifact.archive.clone(),
                    main_only: false,
                },
                place: stored.place,
            }),
            Err(error @ (OperationError::NoModule { .. } | OperationError::NoVersion { .. })) => {
                findings.push(missing(format!("{error}; publish it there first, or run `cue mod tidy`")));
            }
            Err(error) => return Err(error),
        }
    }
    if !findings.is_empty() {
        return Err(OperationError::Refused(findings));
    }
    dependencies.sort_by(|one, other| one.layer.module.cmp(&other.layer.module));
    Ok(Resolution { dependencies, outside: Vec::new() })
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
        let host = address.host().cloned().unwrap_or_else(Host::opentofu_default);
        let path = address.cue_path(&host).ok()?;
        let constraint = call.version.as_deref().map_or(Some(Constraint::any()), |text| text.parse().ok())?;
        let same: Vec<_> =
            recorded.iter().filter(|known| published::same_module(known.base(), &path)).collect();
        let needed = own.contains(&host) && !published::same_module(module.path(), &path);
        let fits = constraint.highest(same.iter().map(|known| known.version())).is_some();
        let message = || format!("the stored version has no `{address}` that satisfies `{constraint}`");
        (!fits && (needed || !same.is_empty())).then(|| finding(call, "dependency-missing", message()))
    })
}

struct Resolver<'a> {
    routes: &'a Routes,
    own: &'a OwnHosts,
    /// What is being pushed, where that is known.
    module: Option<&'a ModuleName>,
    version: Option<&'a Version>,
    /// What was looked up: one listing a module.
    known: BTreeMap<CuePath, Option<Published>>,
    found: BTreeMap<ModuleVersion, Dependency>,
    /// Modules whose calls were followed: circles end where they began.
    walked: BTreeSet<ModuleVersion>,
    outside: Vec<Finding>,
    findings: Vec<Finding>,
}

/// Whether a call's module has to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// On the own host, or on one that is routed.
    Ours,
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
                    self.outside.push(finding(
                        call,
                        "source-not-embedded",
                        format!("`{source}` cannot be embedded"),
                    ));
                }
                Source::Registry { address, .. } => {
                    // Boxed, since what is called may call in turn.
                    Box::pin(self.registry_call(call, address, main_only || call.scope == Scope::TestOnly))
                        .await?;
                }
            }
        }
        Ok(())
    }

    async fn registry_call(&mut self, call: &Call, address: &TofuAddress, main_only: bool) -> Result<()> {
        let host = address.host().cloned().unwrap_or_else(Host::opentofu_default);
        let path = match address.cue_path(&host) {
            Ok(path) => path,
            Err(error) => {
                self.findings.push(finding(call, "module-address", error.to_string()));
                return Ok(());
            }
        };
        let reach = if self.own.contains(&host) || self.routes.is_routed(&path) {
            Reach::Ours
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
        let constraint = match call.version.as_deref().map(str::parse::<Constraint>).transpose() {
            Ok(constraint) => constraint.unwrap_or_else(Constraint::any),
            Err(error) => {
                self.findings.push(finding(call, "version-constraint", error.to_string()));
                return Ok(());
            }
        };
        let Some(published) = self.published(address, path).await? else {
            self.missing(call, address, reach, &constraint, None);
            return Ok(());
        };
        let highest = constraint.highest(published.listed()).cloned();
        let chosen =
            published.versions.iter().find(|tagged| Some(&tagged.version) == highest.as_ref()).cloned();
        let Some(chosen) = chosen else {
            self.missing(call, address, reach, &constraint, Some(&published));
            return Ok(());
        };
        let stored = published.load(&chosen).await?;
        self.add(stored, ModuleVersion::new(published.module.path().clone(), chosen.version), main_only).await
    }

    /// The versions of a called module, looked up once.
    async fn published(&mut self, address: &TofuAddress, path: CuePath) -> Result<Option<Published>> {
        if let Some(known) = self.known.get(&path) {
            return Ok(known.clone());
        }
        let name = ModuleName::Tofu { address: address.clone(), path: path.clone() };
        let published = match published::find(self.routes, &name).await {
            Ok(published) => Some(published),
            Err(OperationError::NoModule { .. } | OperationError::Route(_)) => None,
            Err(error) => return Err(error),
        };
        // The placeholder host stands for the own host alone: a module that was pushed without a host is not what somebody
        // publishes under that name on OpenTofu's registry.
        let published = match published {
            Some(published) if !self.own.contains(path_host(&path).as_ref().unwrap_or(&self.own.host)) => {
                let stored = published.stored_path().await?;
                stored.is_none_or(|stored| stored == path).then_some(published)
            }
            other => other,
        };
        self.known.insert(path, published.clone());
        Ok(published)
    }

    fn missing(
        &mut self,
        call: &Call,
        address: &TofuAddress,
        reach: Reach,
        constraint: &Constraint,
        published: Option<&Published>,
    ) {
        // A module may call what calls it: while its first version is pushed, that version is not there yet.
        let path = address.cue_path(&Host::opentofu_default());
        let is_self = self.module.is_some_and(|module| path.is_ok_and(|path| path == *module.path()));
        if is_self && self.version.is_some_and(|version| constraint.matches(version)) {
            return;
        }
        if reach == Reach::Default {
            let message = format!("`{address}` is not in the registry, so it is not embedded");
            self.outside.push(finding(call, "source-not-embedded", message));
            return;
        }
        let message = match published {
            Some(published) => OperationError::NoVersion {
                module: address.to_string(),
                constraint: constraint.clone(),
                versions: published.listed().cloned().collect(),
            }
            .to_string(),
            None => format!("module `{address}` is not in the registry; push it first"),
        };
        self.findings.push(finding(call, "dependency-missing", message));
    }

    /// Takes a version in, with what it brings along.
    async fn add(&mut self, stored: StoredModule, called: ModuleVersion, main_only: bool) -> Result<()> {
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
        let brings_its_own = stored.needed_by_dependents().next().is_some();
        if brings_its_own || !self.walked.insert(module) {
            return Ok(());
        }
        let recorded =
            file.as_ref().and_then(ModuleFile::custom_ocimod).filter(|ocimod| ocimod.is_generated());
        match recorded {
            // Pushed by ocimod: its file says what it needs, embedded or not.
            Some(recorded) => {
                for needed in recorded.dependencies() {
                    Box::pin(self.recorded_dependency(needed, main_only)).await?;
                }
                Ok(())
            }
            // Pushed by another tool: its files say it.
            None if stored.artifact.kind == ModuleKind::OpenTofu || file.is_none() => {
                let tofu = super::inspect::read_tofu(&stored).await?;
                Box::pin(self.calls(&tofu.calls, main_only)).await
            }
            None => Ok(()),
        }
    }

    /// A version that a module was pushed with, without its zip.
    async fn recorded_dependency(&mut self, needed: &ModuleVersion, main_only: bool) -> Result<()> {
        if self.found.contains_key(needed) {
            return Ok(());
        }
        let name = match TofuAddress::from_cue_path(needed.base()) {
            Some(address) => ModuleName::Tofu { address, path: needed.base().clone() },
            None => ModuleName::Cue(needed.base().clone()),
        };
        let published = published::find(self.routes, &name).await?;
        let version = published.choose(&Constraint::exactly(needed.version()))?;
        let stored = published.load(version).await?;
        self.add(stored, needed.clone(), main_only).await
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
        if self.found.len() > MAX_DEPENDENCIES {
            let message = format!(
                "the module needs more than {MAX_DEPENDENCIES} others; no registry takes so many layers"
            );
            return Err(OperationError::refused(Finding::general("too-many-dependencies", message)));
        }
        Ok(())
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

/// The host in front of a module path.
fn path_host(path: &CuePath) -> Option<Host> {
    Host::parse(path.first_element()).ok()
}

fn finding(call: &Call, rule: &'static str, message: String) -> Finding {
    Finding { file: Some(call.file.clone()), line: Some(call.line), rule, message }
}
