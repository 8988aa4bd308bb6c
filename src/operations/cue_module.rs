//! Whether the zips of a CUE module are those that its manifest calls them.
//!
//! A manifest names a module file beside the zip, and a path for each dependency layer. Nothing but the module file in a zip says whose zip
//! it is, and `cue` compares none of these: so it is done here, wherever one is taken over.

use std::path::Path;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::archive::check::MAX_MODULE_FILE_SIZE;
use crate::archive::{ModuleKind, Tree};
use crate::artifact::ModuleArtifact;
use crate::module::{ModuleFile, ModulePath};

use super::error::{OperationError, Result};
use super::finding::Finding;
use super::prepare::MODULE_FILE;
use super::routes::Place;
use super::zip_facts::{KnownZips, NamedModule, ZipFacts};

/// Zips that are looked at once.
const LOOKS_AT_ONCE: usize = 8;

/// The files of a zip, and its module file; refused where that is of another module, or not the one that the manifest names (`layer`).
/// `name` is the module's.
pub(super) fn open(
    zip: &Path,
    module: &ModulePath,
    layer: Option<&[u8]>,
    name: &str,
) -> Result<(Tree, Vec<u8>)> {
    let tree = Tree::from_zip(zip, ModuleKind::Cue)
        .map_err(|error| OperationError::refused(Finding::of_check(&error, name)))?;
    let module_file = tree.read(MODULE_FILE, MAX_MODULE_FILE_SIZE).map_err(OperationError::packing)?;
    let module_file = module_file.unwrap_or_default();
    if layer.is_some_and(|layer| *layer != *module_file) {
        return Err(differs(name));
    }
    match ModuleFile::parse(&module_file, true) {
        Ok(file) if file.module == *module => Ok((tree, module_file)),
        Ok(file) => Err(refused(
            "module-path",
            format!("{name}: its zip's {MODULE_FILE} says that it is `{}`", file.module),
        )),
        Err(error) => Err(refused("module-file", format!("{name}: {error}"))),
    }
}

/// Refuses a zip whose module file is not the one that the manifest names. `name` is the module's. An OpenTofu module is as good without
/// one: other tools know of none.
pub(super) fn expect_module_file(tree: &Tree, kind: ModuleKind, layer: &[u8], name: &str) -> Result<()> {
    let module_file = tree.read(MODULE_FILE, MAX_MODULE_FILE_SIZE).map_err(OperationError::packing)?;
    let is_same = module_file.as_ref().map_or(kind == ModuleKind::OpenTofu, |file| *file == *layer);
    if is_same { Ok(()) } else { Err(differs(name)) }
}

fn differs(name: &str) -> OperationError {
    let message = format!("{name}: the {MODULE_FILE} in its zip is not the one that its manifest names");
    refused("module-file-differs", message)
}

fn refused(rule: &'static str, message: String) -> OperationError {
    OperationError::refused(Finding::general(rule, message))
}

/// Refuses a CUE module with a dependency layer whose zip is of another module than the layer says. `name` is the module's. Only the
/// directory and the module file of each zip are fetched; who takes the zip itself compares its digest.
pub(super) async fn expect_layers(
    zips: &KnownZips,
    place: &Place,
    artifact: &ModuleArtifact,
    name: &str,
) -> Result<()> {
    if artifact.kind != ModuleKind::Cue {
        return Ok(());
    }
    let looked = stream::iter(artifact.dependencies.clone()).map(|layer| async move {
        let says = match &*zips.of(place, &layer.archive).await? {
            ZipFacts::Good { module: NamedModule::Path(path), .. } if *path == layer.module.module_path() => {
                return Ok(());
            }
            ZipFacts::Good { module: NamedModule::Path(path), .. } => format!("says that it is `{path}`"),
            ZipFacts::Good { .. } => format!("has no {MODULE_FILE} that can be read"),
            ZipFacts::Refused(finding) => format!("breaks the rule `{}`", finding.rule),
        };
        let message = format!("{name}: the zip that it embeds as `{}` {says}", layer.module);
        Err(refused("dependency-other-module", message))
    });
    looked.buffered(LOOKS_AT_ONCE).try_collect().await
}
