//! Looks after a store on disk: whether it is whole, and what can go.

use std::path::Path;

use crate::registry::LayoutRegistry;
use crate::registry::directory::{
    CollectOptions, Collection, DirectoryOptions, DirectoryRegistry, Verification,
};

use super::error::{OperationError, Result};

/// Looks at everything in the store at `folder`; with `repair`, moves contents with wrong bytes aside. A file is looked at as a layout.
pub async fn verify(folder: &Path, repair: bool) -> Result<Verification> {
    if folder.is_file() {
        if repair {
            return Err(OperationError::Usage {
                message: format!("`{}` is a file, and nothing can be moved out of it", folder.display()),
                hint: "copy what is whole of it to another one: `ocimod copy --all --from layout:FILE.tar --to layout:OTHER.tar`"
                    .into(),
            });
        }
        let failed = || OperationError::registry(format!("layout:{}", folder.display()));
        let layout = LayoutRegistry::open(folder.to_owned()).await.map_err(failed())?;
        return layout.verify().await.map_err(failed());
    }
    open(folder).await?.verify(repair).await.map_err(OperationError::registry(name(folder)))
}

/// Removes what no tag reaches from the store at `folder`.
pub async fn collect(folder: &Path, options: CollectOptions) -> Result<Collection> {
    open(folder).await?.collect(options).await.map_err(OperationError::registry(name(folder)))
}

/// A store that is there: a name that was mistyped must not become a new one.
async fn open(folder: &Path) -> Result<DirectoryRegistry> {
    let path = folder.to_owned();
    super::blocking(move || {
        DirectoryRegistry::open_existing(&path, DirectoryOptions::default())
            .map_err(OperationError::registry(name(&path)))?
            .ok_or_else(|| OperationError::Usage {
                message: format!("`{}` is no store: there is no `ocimod.json` in it", path.display()),
                hint: "name the folder that stands behind `dir:` in `--registry`; `ocimod config show` tells which".into(),
            })
    })
    .await
}

fn name(folder: &Path) -> String {
    format!("dir:{}", folder.display())
}
