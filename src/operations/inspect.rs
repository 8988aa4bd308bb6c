//! Shows what is known of a published module.

use serde_json::Value;

use crate::archive::{ModuleKind, Tree};
use crate::artifact::DependencyLayer;
use crate::module::{ModuleFile, TofuModule};

use super::download;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::prepare;
use super::published::StoredModule;

/// What is known of a published module.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// Its path; `None` where another tool pushed it without a module file.
    pub module: Option<String>,
    /// The module file's text.
    pub module_file: Option<String>,
    /// The manifest as it is stored.
    pub manifest: Value,
    /// What it brings along.
    pub dependencies: Vec<DependencyLayer>,
    /// The inputs of an OpenTofu module: an array of objects.
    pub inputs: Value,
    /// Its outputs: an array of objects.
    pub outputs: Value,
}

/// Looks at a published module. What its `.tf` files say comes from its module file where ocimod wrote that, else from its zip.
pub async fn inspect(stored: &StoredModule) -> Result<Inspected> {
    let file_bytes = stored.module_file_bytes().await?;
    let file = stored.module_file().await?;
    let (inputs, outputs) = match (stored.artifact.kind, file.as_ref().and_then(ModuleFile::custom_ocimod)) {
        (ModuleKind::Cue, _) => (Value::Array(Vec::new()), Value::Array(Vec::new())),
        (ModuleKind::OpenTofu, Some(ocimod)) if ocimod.is_generated() => (ocimod.inputs(), ocimod.outputs()),
        (ModuleKind::OpenTofu, _) => {
            let tofu = read_tofu(stored).await?;
            (tofu.inputs_json(), tofu.outputs_json())
        }
    };
    Ok(Inspected {
        module: file.map(|file| file.module.to_string()),
        module_file: file_bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        // It was parsed before, so this cannot fail; a manifest that is none would have been refused.
        manifest: serde_json::from_slice(&stored.manifest).unwrap_or_default(),
        dependencies: stored.artifact.dependencies.clone(),
        inputs,
        outputs,
    })
}

/// What the `.tf` files of a stored module say; its zip is fetched and checked for that.
pub(super) async fn read_tofu(stored: &StoredModule) -> Result<TofuModule> {
    let zip = download::archive(&stored.place, &stored.artifact.archive).await?;
    let name = stored.name();
    super::blocking(move || {
        let tree = Tree::from_zip(zip.path(), ModuleKind::OpenTofu)
            .map_err(|error| OperationError::refused(Finding::of_check(&error, &name)))?;
        prepare::read_tofu(&tree)
    })
    .await
}
