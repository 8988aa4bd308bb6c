//! A module with everything that it needs, each with where its zip is: as layers of its own, else from beside it in the registry.

use crate::archive::ModuleKind;
use crate::artifact::Content;
use crate::module::{CuePath, ModuleVersion, TofuAddress, Version};

use super::error::{OperationError, Result};
use super::finding::Finding;
use super::prepare::MODULE_FILE;
use super::published::{self, StoredModule};
use super::resolve::MAX_DEPENDENCIES;
use super::routes::{ModuleName, Place, RouteError, Routes};

/// A module that is needed, and where its zip is.
#[derive(Clone, Debug)]
pub struct Needed {
    /// The module and its version.
    pub module: ModuleVersion,
    /// The zip.
    pub archive: Content,
    /// A repository that has it.
    pub place: Place,
}

/// The module itself, which is called `path`, and then every module that it brings along or that its module file lists.
pub async fn everything(stored: &StoredModule, path: &CuePath, routes: &Routes) -> Result<Vec<Needed>> {
    let name = stored.name();
    let refused = |rule, message: String| OperationError::refused(Finding::general(rule, message));
    let Some(version) = stored.version.clone() else {
        return Err(refused(
            "module-version",
            format!("{name} does not say its version; name it by its tag, or as `{path}@VERSION`"),
        ));
    };
    let module = ModuleVersion::new(path.clone(), version);
    let mut needed =
        vec![Needed { module, archive: stored.artifact.archive.clone(), place: stored.place.clone() }];
    needed.extend(stored.artifact.dependencies.iter().map(|layer| Needed {
        module: layer.module.clone(),
        archive: layer.archive.clone(),
        place: stored.place.clone(),
    }));
    let listed = listed(stored).await?;
    // The module itself is among the needed ones.
    if listed.len() > MAX_DEPENDENCIES || needed.len() > MAX_DEPENDENCIES + 1 {
        let message = format!("{name} needs more than {MAX_DEPENDENCIES} others");
        return Err(refused("too-many-dependencies", message));
    }
    for (module, line) in listed {
        if needed.iter().any(|known| known.module == module) {
            continue;
        }
        let asked = match stored.artifact.kind {
            ModuleKind::Cue => ModuleName::Cue(module.base().clone()),
            ModuleKind::OpenTofu => name_of(&module),
        };
        match beside(routes, &asked, &module).await? {
            Some(found) => needed.push(found),
            None => {
                return Err(OperationError::refused(Finding {
                    file: Some(MODULE_FILE.to_owned()),
                    line,
                    rule: "dependency-missing",
                    message: format!(
                        "{name} needs `{module}`, which is neither a part of it nor beside it in the registry; push it with `--deps \
                         inline`, or copy what it needs there"
                    ),
                }));
            }
        }
    }
    Ok(needed)
}

/// What the module file lists, with the lines.
async fn listed(stored: &StoredModule) -> Result<Vec<(ModuleVersion, Option<usize>)>> {
    if stored.artifact.kind == ModuleKind::OpenTofu {
        // `deps` has room for one version of each, so there the list is elsewhere.
        let recorded = stored.recorded_dependencies().await?;
        return Ok(recorded.into_iter().map(|module| (module, None)).collect());
    }
    let deps = stored.module_file().await?.map(|file| file.deps).unwrap_or_default();
    let listed = |entry: &crate::module::Dependency| {
        (ModuleVersion::new(entry.path.base().clone(), entry.version.clone()), Some(entry.line))
    };
    Ok(deps.iter().map(listed).collect())
}

/// A version of another module in its own repository.
async fn beside(routes: &Routes, name: &ModuleName, module: &ModuleVersion) -> Result<Option<Needed>> {
    let published = match published::find(routes, name).await {
        Err(OperationError::NoModule { .. } | OperationError::Route(RouteError::NoRegistry(_))) => {
            return Ok(None);
        }
        published => published?,
    };
    let is_it = |version: &Version| version == module.version();
    let Some(tagged) = published.versions.iter().find(|tagged| is_it(&tagged.version)) else {
        return Ok(None);
    };
    let found = published.load(tagged).await?;
    Ok(Some(Needed { module: module.clone(), archive: found.artifact.archive, place: found.place }))
}

/// The module that a version is of, going by its path.
pub(super) fn name_of(version: &ModuleVersion) -> ModuleName {
    let path = version.base().clone();
    match TofuAddress::from_cue_path(&path) {
        Some(address) => ModuleName::Tofu { address, path },
        None => ModuleName::Cue(path),
    }
}
