//! `ocimod list`: the modules of a registry, or the versions of one.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::module_options::parse_address;
use super::printer::{Answer, write_columns};
use crate::operations::list::{self, ListedModule};
use crate::operations::published;

/// List the modules in the registry, or the versions of one
#[derive(Args, Clone, Debug)]
pub struct List {
    /// The module whose versions are listed
    #[arg(value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Give each version's digest, at the cost of a request for each
    #[arg(long)]
    pub digests: bool,
}

/// `modules`: an array of objects.
#[derive(Serialize)]
struct ModulesAnswer {
    modules: Vec<ShownModule>,
}

#[derive(Serialize)]
struct ShownModule {
    module: String,
    kind: &'static str,
    repository: String,
    /// The newest version.
    version: String,
    versions: usize,
}

impl ShownModule {
    fn of(listed: ListedModule) -> Self {
        Self {
            module: listed.module,
            kind: listed.kind.as_str(),
            repository: listed.repository,
            version: listed.latest.to_string(),
            versions: listed.versions,
        }
    }
}

impl Answer for ModulesAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let rows: Vec<_> = self.modules.iter().map(|it| [it.module.as_str(), &it.version, it.kind]).collect();
        write_columns(text, &rows)
    }
}

/// `module`, `repository`, and `versions`: an array of objects, ascending.
#[derive(Serialize)]
struct VersionsAnswer {
    module: String,
    repository: String,
    versions: Vec<ShownVersion>,
}

#[derive(Serialize)]
struct ShownVersion {
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    yanked: bool,
}

impl Answer for VersionsAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        self.versions.iter().try_for_each(|it| match &it.digest {
            Some(digest) => writeln!(text, "{}  {digest}", it.version),
            None => writeln!(text, "{}", it.version),
        })
    }
}

impl List {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let choice = context.registry.choose(context)?;
        let routes = context.routes(&choice).await?;
        let Some(address) = &self.address else {
            let modules = list::modules(&routes).await?;
            if modules.is_empty() {
                context.printer.note("there are no modules in the registry");
            }
            let modules = modules.into_iter().map(ShownModule::of).collect();
            context.printer.answer(&ModulesAnswer { modules })?;
            return Ok(ExitStatus::Done);
        };
        let address = parse_address(address)?;
        let module = published::name(&address)?;
        let mut published =
            published::find(&routes, &module).await.map_err(|error| choice.explain(error.into()))?;
        published.keep(address.version.as_ref());
        published.leave_modules().await?;
        let versions = list::versions(&published, self.digests || published.place.target.is_local).await?;
        context.printer.answer(&VersionsAnswer {
            module: module.to_string(),
            repository: published.place.name(),
            versions: versions
                .into_iter()
                .map(|listed| ShownVersion {
                    version: listed.version.to_string(),
                    digest: listed.digest.map(|digest| digest.to_string()),
                    yanked: false,
                })
                .collect(),
        })?;
        Ok(ExitStatus::Done)
    }
}
