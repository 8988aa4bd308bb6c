//! `ocimod check`: everything that a push would refuse.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::module_options::ModuleOptions;
use super::printer::Answer;
use super::registry_options::RegistryChoice;
use crate::operations::Finding;
use crate::operations::check::{self, CheckRequest};

/// Find everything that `push` would refuse
///
/// Dependencies are looked up too where a registry is named.
#[derive(Args, Clone, Debug)]
pub struct Check {
    /// The module's folder, or a zip
    #[arg(value_name = "DIR|ZIP")]
    pub source: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub module: ModuleOptions,
}

/// `findings`: an array of `file`, `line`, `rule`, `message`; and `error` where there are any.
#[derive(Serialize)]
struct CheckAnswer {
    findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

impl Answer for CheckAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(text, "{finding}"))
    }
}

impl Check {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let request = CheckRequest {
            source: context.environment.absolute(&self.source),
            naming: self.module.naming(context, None)?,
            host_aliases: self.module.host_aliases()?,
            strict: self.module.strict,
        };
        // Nobody's own folder is looked at for dependencies: that they are not there would say nothing.
        let routes = match context.registry.choose(context) {
            Ok(choice @ RegistryChoice::Named { .. }) => Some(context.routes_to_read(&choice).await?),
            _ => None,
        };
        let findings = check::check(&request, routes.as_ref()).await?;
        if findings.is_empty() {
            context.printer.answer(&CheckAnswer { findings, error: None })?;
            context.printer.note("nothing that a push would refuse");
            return Ok(ExitStatus::Done);
        }
        let failure =
            Failure::new(ErrorKind::Refused, format!("a push would be refused: {} to mend", findings.len()));
        let error = Some(failure.as_json()["error"].clone());
        context.printer.answer(&CheckAnswer { findings, error })?;
        Ok(context.printer.failure_beside_answer(&failure))
    }
}
