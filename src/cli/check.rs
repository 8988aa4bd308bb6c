//! `ocimod check`: everything that a push would refuse.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::lock_options::{LockAnswer, LockOptions};
use super::module_options::ModuleOptions;
use super::printer::Answer;
use super::registry_options::RegistryChoice;
use crate::operations::Finding;
use crate::operations::OperationError;
use crate::operations::check::{self, CheckRequest, Checked};
use crate::operations::lock::{Lock, LockFile};

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
    #[command(flatten)]
    #[allow(missing_docs)]
    pub lock: LockOptions,
}

/// `findings`: an array of `file`, `line`, `rule`, `message`; `lock` where one was compared or written; and `error` where there are findings.
#[derive(Serialize)]
struct CheckAnswer {
    findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<LockAnswer>,
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
        let lock = self.lock.open(context)?;
        if let (Some(_), None) = (&lock, &routes) {
            return Err(Failure::usage("`--lock` is about what is in a registry, and none is set")
                .with_hint("name it with `--registry` or `OCIMOD_REGISTRY`"));
        }
        if let Some(file) = lock.as_ref().filter(|_| !self.lock.update_lock) {
            LockOptions::expect_there(file)?;
        }
        let mut checked = check::check(&request, routes.as_ref()).await?;
        // What a push would refuse is mended first: it may change what is needed.
        let lock = match lock.filter(|_| checked.findings.is_empty()) {
            Some(file) => self.compare(&mut checked, file)?,
            None => None,
        };
        let findings = checked.findings;
        if findings.is_empty() {
            context.printer.answer(&CheckAnswer { findings, lock, error: None })?;
            context.printer.note("nothing that a push would refuse");
            return Ok(ExitStatus::Done);
        }
        let is_locked = |finding: &Finding| finding.rule.starts_with("lock-");
        let what = if findings.iter().all(is_locked) {
            "what the module needs is not as it is locked"
        } else {
            "a push would be refused"
        };
        let failure = Failure::new(ErrorKind::Refused, format!("{what}: {} to mend", findings.len()));
        let error = Some(failure.as_json()["error"].clone());
        context.printer.answer(&CheckAnswer { findings, lock, error })?;
        Ok(context.printer.failure_beside_answer(&failure))
    }

    /// Compares what the module needs with what is locked, or locks it.
    fn compare(&self, checked: &mut Checked, file: LockFile) -> Result<Option<LockAnswer>, Failure> {
        let (Some(module), Some(dependencies)) = (&checked.module, &checked.dependencies) else {
            return Err(Failure::usage("a lock is of a module, and this one does not say what it is called")
                .with_hint("give its address with `--namespace` and `--host`, or a cue.mod/module.cue"));
        };
        let modules = dependencies.iter().map(|layer| (layer.module.clone(), layer.archive.digest.clone()));
        let found = Lock { module: module.clone(), version: None, modules: modules.collect() };
        // One that `pull` wrote has the module itself too, and what is in the folder is about to be another.
        let file = LockFile { lock: file.lock.map(Lock::of_dependencies), ..file };
        match file.verify(&found) {
            Err(OperationError::Refused(findings)) => checked.findings.extend(findings),
            outcome => outcome?,
        }
        let written = self.lock.update_lock && file.write(&found)?;
        Ok(Some(LockAnswer { file: file.path.display().to_string(), written }))
    }
}
