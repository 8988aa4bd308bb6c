//! `ocimod delete`: removes a version.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::inspect::without_placeholder;
use super::module_options::parse_address;
use super::printer::Answer;
use super::yank::routes;
use crate::module::Address;
use crate::operations::delete::{self, Deleted};

/// Remove a version, with its `bundle.` and `yanked.` tags
///
/// Asks for nothing. `--dry-run` says what would be removed and who embeds it; `ocimod yank` withdraws a version and keeps it.
#[derive(Args, Clone, Debug)]
pub struct Delete {
    /// The module and its exact version
    #[arg(value_name = "ADDRESS@VERSION")]
    pub address: String,
    /// Only say what would be removed
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// `address`, `version`, `repository`, `tags`, `manifests`, `deleted`, `embedded_in`, `not_searched`.
#[derive(Serialize)]
struct DeleteAnswer {
    address: String,
    version: String,
    repository: String,
    tags: Vec<String>,
    manifests: Vec<String>,
    /// `false` in a dry run.
    deleted: bool,
    embedded_in: Vec<ShownHolder>,
    not_searched: Vec<Unsearched>,
}

/// A module that brings the version along.
#[derive(Serialize)]
struct ShownHolder {
    /// `path@version`
    module: String,
    repository: String,
}

/// A registry or repository that could not be looked through.
#[derive(Serialize)]
struct Unsearched {
    place: String,
    kind: ErrorKind,
    message: String,
}

impl DeleteAnswer {
    fn of(deleted: Deleted, is_dry_run: bool) -> Self {
        let holders = deleted.holders.found.into_iter().map(|holder| ShownHolder {
            module: format!("{}@v{}", holder.module, holder.version),
            repository: holder.repository,
        });
        let unsearched = deleted.holders.unsearched.into_iter().map(|(place, error)| {
            let failure = Failure::from(error);
            Unsearched { place, kind: failure.kind(), message: failure.message().to_owned() }
        });
        Self {
            address: deleted.module,
            version: deleted.version.to_string(),
            repository: deleted.repository,
            tags: deleted.tags.iter().map(ToString::to_string).collect(),
            manifests: deleted.manifests.iter().map(ToString::to_string).collect(),
            deleted: !is_dry_run,
            embedded_in: holders.collect(),
            not_searched: unsearched.collect(),
        }
    }
}

impl Answer for DeleteAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        self.tags.iter().try_for_each(|tag| writeln!(text, "{}:{tag}", self.repository))
    }
}

impl Delete {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let address = parse_address(&self.address)?;
        if let Address::Provider(_) = address.address {
            return Err(Failure::usage(format!("`{}` is a provider, and not a module", self.address))
                .with_hint(format!(
                    "`ocimod yank {}` withdraws a version; its tag is deleted by the registry's own means",
                    self.address
                )));
        }
        let routes = routes(context, "delete", self.dry_run).await?;
        let deleted = delete::delete(&routes, &address, self.dry_run).await.map_err(|error| {
            let hint = delete::own_way(&error);
            let failure = Failure::from(error);
            hint.into_iter().fold(failure, Failure::with_hint)
        })?;
        let was_yanked = deleted.was_yanked;
        let answer = DeleteAnswer::of(deleted, self.dry_run);
        let printer = &context.printer;
        for holder in &answer.embedded_in {
            let module = without_placeholder(&holder.module);
            printer.warning(&format!("{module} embeds it, and goes on bringing it along"));
        }
        if was_yanked && !answer.embedded_in.is_empty() {
            printer.hint("its yank goes with it; `ocimod yank` withdraws it anew where it is embedded");
        }
        for unsearched in &answer.not_searched {
            printer.note(&format!("could not look who embeds it: {}", unsearched.message));
        }
        if self.dry_run {
            printer.note("would be deleted:");
        }
        printer.answer(&answer)?;
        Ok(ExitStatus::Done)
    }
}
