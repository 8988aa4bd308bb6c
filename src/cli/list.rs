//! `ocimod list`: the modules of a registry, or the versions of one.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::catalog_option::{CatalogOption, for_lists};
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::inspect::without_placeholder;
use super::module_options::parse_address;
use super::printer::{Answer, visible_line, write_columns};
use super::provider;
use super::registry_options::RegistryChoice;
use crate::module::Address;
use crate::operations::list::{self, ListedModule};
use crate::operations::published;

/// List the modules in the registry, or the versions of one
#[derive(Args, Clone, Debug)]
#[command(mut_arg("catalog", for_lists))]
pub struct List {
    /// The module or `provider:HOST/NAMESPACE/TYPE` whose versions are listed
    #[arg(value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Give each version's digest, at the cost of a request for each
    #[arg(long)]
    pub digests: bool,
    /// Where the names of repositories come from
    #[command(flatten)]
    pub catalog: CatalogOption,
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
    /// Whether all versions are yanked.
    yanked: bool,
}

impl ShownModule {
    fn of(listed: ListedModule) -> Self {
        Self {
            module: listed.module,
            kind: listed.kind.as_str(),
            repository: listed.repository,
            version: listed.latest.to_string(),
            versions: listed.versions,
            yanked: listed.yanked,
        }
    }
}

impl Answer for ModulesAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let row = |it: &ShownModule| {
            let version = if it.yanked { format!("{} (yanked)", it.version) } else { it.version.clone() };
            [without_placeholder(&it.module).to_owned(), version, it.kind.to_owned()]
        };
        let rows: Vec<_> = self.modules.iter().map(row).collect();
        let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(String::as_str)).collect();
        write_columns(text, &rows)
    }
}

/// `module`, `repository`, `checked`, and `versions`: an array of objects, ascending.
#[derive(Serialize)]
struct VersionsAnswer {
    module: String,
    repository: String,
    /// Whether what is no module was left out.
    checked: bool,
    versions: Vec<ShownVersion>,
}

#[derive(Serialize)]
struct ShownVersion {
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    yanked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Answer for VersionsAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        for it in &self.versions {
            let digest = it.digest.iter().map(|digest| format!("  {digest}"));
            let yanked = it.yanked.then(|| match &it.reason {
                Some(reason) => format!("  yanked: {}", visible_line(reason)),
                None => "  yanked".to_owned(),
            });
            writeln!(text, "{}{}", it.version, digest.chain(yanked).collect::<String>())?;
        }
        Ok(())
    }
}

impl List {
    async fn modules(&self, context: &Context, choice: &RegistryChoice) -> Result<ExitStatus, Failure> {
        let routes = &context.routes_to_read(choice).await?;
        let source = self.catalog.repositories(context);
        let list::Listing { modules, failed } = list::modules(routes, &source).await?;
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
        let Some(text) = &self.address else { return self.modules(context, &choice).await };
        let address = parse_address(text)?;
        if let Address::Provider(_) = &address.address {
            return provider::list(context, text, self.digests).await;
        }
        let routes = context.routes_to_read(&choice).await?;
        let module = published::name(&address)?;
        let mut published =
            published::find(&routes, &module).await.map_err(|error| choice.explain(error.into()))?;
        published.keep(address.version.as_ref());
        let listed = list::versions(&published, self.digests).await?;
        if !listed.is_checked {
            context.printer.note(
                "there are too many versions to look at each, so tags that look like versions and hold something else are among them",
            );
        }
        context.printer.answer(&VersionsAnswer {
            module: module.to_string(),
            repository: published.place.name(),
            checked: listed.is_checked,
            versions: listed
                .versions
                .into_iter()
                .map(|listed| ShownVersion {
                    version: listed.version.to_string(),
                    digest: listed.digest.map(|digest| digest.to_string()),
                    yanked: listed.yanked,
                    reason: listed.reason.map(|reason| reason.to_string()),
                })
                .collect(),
        })?;
        Ok(ExitStatus::Done)
    }
}
