//! `ocimod list`: the modules of a registry, or the versions of one.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::inspect::without_placeholder;
use super::module_options::parse_address;
use super::printer::{Answer, write_columns};
use super::registry_options::RegistryChoice;
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

/// `modules`: an array of objects; `failed`: an array of `repository`, `kind`, `message`; and `error` where there are any.
#[derive(Serialize)]
struct ModulesAnswer {
    modules: Vec<ShownModule>,
    failed: Vec<FailedRepository>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

#[derive(Serialize)]
struct FailedRepository {
    repository: String,
    kind: ErrorKind,
    message: String,
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
        let rows: Vec<_> =
            self.modules.iter().map(|it| [without_placeholder(&it.module), &it.version, it.kind]).collect();
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
    async fn modules(context: &Context, choice: &RegistryChoice) -> Result<ExitStatus, Failure> {
        let routes = &context.routes_to_read(choice).await?;
        let list::Listing { modules, failed } = list::modules(routes).await?;
        if modules.is_empty() && failed.is_empty() {
            context.printer.note("there are no modules in the registry");
            if let Some(hint) = choice.hint() {
                context.printer.hint(&hint);
            }
        }
        let failed: Vec<_> = failed
            .into_iter()
            .map(|(place, error)| {
                let failure = Failure::from(error);
                let message = failure.message().to_owned();
                context.printer.warning(&format!("left out: {message}"));
                FailedRepository { repository: place.name(), kind: failure.kind(), message }
            })
            .collect();
        let failure = (!failed.is_empty()).then(|| {
            Failure::new(ErrorKind::Failed, format!("repositories that cannot be read: {}", failed.len()))
        });
        let error = failure.as_ref().map(|failure| failure.as_json()["error"].clone());
        let modules = modules.into_iter().map(ShownModule::of).collect();
        context.printer.answer(&ModulesAnswer { modules, failed, error })?;
        Ok(failure.map_or(ExitStatus::Done, |failure| context.printer.failure_beside_answer(&failure)))
    }

    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let choice = context.registry.choose(context)?;
        choice.expect_folders()?;
        let Some(address) = &self.address else { return Self::modules(context, &choice).await };
        let routes = context.routes_to_read(&choice).await?;
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
