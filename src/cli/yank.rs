//! `ocimod yank` and `ocimod unyank`: withdraw a version from listings, and take that back.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::module_options::parse_address;
use super::printer::Answer;
use crate::module::Address;
use crate::operations::routes::Routes;
use crate::operations::yank::{self, YankRequest, YankState};

/// Withdraw a version from new installs
///
/// It leaves the lists that `tofu`, `terraform` and constraints choose from, also where it is embedded in other modules. It is not
/// deleted: `ocimod pull` and `inspect` by its exact version, `oci://` sources and what is installed go on as before.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:
  ocimod yank acme/vpc/aws@1.2.0 --reason 'opens port 22 to everybody; use 1.2.1'")]
pub struct Yank {
    /// The module or `provider:HOST/NAMESPACE/TYPE`, and its exact version
    #[arg(value_name = "ADDRESS@VERSION")]
    pub address: String,
    /// Why, in one line, for those who list the versions
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Withdraw a version that is found nowhere: it may be embedded in modules that cannot be searched
    #[arg(long)]
    pub force: bool,
    /// Only say what would be done
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// Take back a yank: the version is installed again
#[derive(Args, Clone, Debug)]
pub struct Unyank {
    /// The module or `provider:HOST/NAMESPACE/TYPE`, and its exact version
    #[arg(value_name = "ADDRESS@VERSION")]
    pub address: String,
    /// Only say what would be done
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// `address`, `version`, `reference` of the mark, `yanked`, `reason`, `changed`.
#[derive(Serialize)]
struct YankAnswer {
    address: String,
    version: String,
    reference: String,
    yanked: bool,
    reason: Option<String>,
    changed: bool,
}

impl YankAnswer {
    fn of(state: YankState) -> Self {
        Self {
            address: state.address,
            version: state.version.to_string(),
            reference: state.reference,
            yanked: state.yanked,
            reason: state.reason.map(|reason| reason.to_string()),
            changed: state.changed,
        }
    }
}

impl Answer for YankAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let state = if self.yanked { "yanked" } else { "not yanked" };
        let reason = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        writeln!(text, "{}@{} {state}{reason}", self.address, self.version)
    }
}

impl Yank {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let reason = self.reason.as_deref().map(str::parse).transpose();
        let request = YankRequest {
            address: parse_address(&self.address)?,
            reason: reason
                .map_err(|error: crate::artifact::ReasonError| Failure::usage(error.to_string()))?,
            force: self.force,
            dry_run: self.dry_run,
        };
        let is_provider = matches!(request.address.address, Address::Provider(_));
        let routes = routes(context, "yank", self.dry_run).await?;
        let state = yank::yank(&routes, &request).await.map_err(|error| match Failure::from(error) {
            failure if failure.kind() == ErrorKind::NotFound => failure.with_hint(if is_provider {
                "`--force` withdraws it before it is there"
            } else {
                "where the version is embedded in modules that cannot be searched, `--force` withdraws it all the same"
            }),
            failure => failure,
        })?;
        if !state.is_published {
            context.printer.note(if is_provider {
                "the version is not in the provider's repository, so this is about when it comes there"
            } else {
                "the version is not in the module's own repository, so this is about where others embed it"
            });
        }
        context.printer.note(match (state.changed, self.dry_run) {
            (true, false) if is_provider => {
                "withdrawn from lists and from what constraints choose from; `ocimod provider pull` by its exact version, what is \
                 installed, and `oci_mirror`, which reads the tags itself, go on as before (`ocimod unyank` takes it back)"
            }
            (true, false) => {
                "withdrawn from new installs; `ocimod pull` by its exact version, oci:// sources and what is installed go on as \
                 before (`ocimod unyank` takes it back)"
            }
            (true, true) => "would be withdrawn from new installs",
            (false, _) => "it is yanked already, so there is nothing to change",
        });
        context.printer.answer(&YankAnswer::of(state))?;
        Ok(ExitStatus::Done)
    }
}

impl Unyank {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let address = parse_address(&self.address)?;
        let routes = routes(context, "unyank", self.dry_run).await?;
        let state = yank::unyank(&routes, &address, self.dry_run).await?;
        if !state.changed {
            context.printer.note("it is not yanked, so there is nothing to change");
        }
        context.printer.answer(&YankAnswer::of(state))?;
        Ok(ExitStatus::Done)
    }
}

/// The registries of a verb that changes what is there, and makes no store where there is none.
pub(super) async fn routes(context: &Context, verb: &str, is_dry_run: bool) -> Result<Routes, Failure> {
    let choice = context.registry.choose_to_write(context, verb, is_dry_run)?;
    choice.expect_folders()?;
    context.routes_to_read(&choice).await
}
