//! What is wrong with a module: everything that a push would refuse, gathered instead of stopping at the first.

use std::fmt;
use std::path::PathBuf;

use crate::archive::CheckError;

use super::error::{OperationError, Result};
use super::prepare::{self, Naming};
use super::resolve::{self, OwnHosts};
use super::routes::Routes;
use crate::module::Host;

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The file within the module; absent where the whole is meant.
    pub file: Option<String>,
    /// The line in that file, from 1.
    pub line: Option<usize>,
    /// Name of the rule; names are not changed.
    pub rule: &'static str,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    /// A finding about the module as a whole.
    pub fn general(rule: &'static str, message: impl Into<String>) -> Self {
        Self { file: None, line: None, rule, message: message.into() }
    }

    /// What a check of a zip found; `name` is the zip.
    pub fn of_check(error: &CheckError, name: &str) -> Self {
        Self::general(error.rule(), format!("{name}: {error}"))
    }
}

impl fmt::Display for Finding {
    /// `file:line: message [rule]`
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(formatter, "{file}:")?;
            if let Some(line) = self.line {
                write!(formatter, "{line}:")?;
            }
            formatter.write_str(" ")?;
        }
        write!(formatter, "{} [{}]", self.message, self.rule)
    }
}

/// What a check looks at.
#[derive(Clone, Debug)]
pub struct CheckRequest {
    /// A module's folder, or a zip.
    pub source: PathBuf,
    /// What the caller says of its name; it may be unknown.
    pub naming: Naming,
    /// Hosts that the module's own host had before.
    pub host_aliases: Vec<Host>,
    /// Whether calls that cannot be embedded count.
    pub strict: bool,
}

/// Everything that is wrong with a module; whether its dependencies are there too, where registries are given.
pub async fn check(request: &CheckRequest, routes: Option<&Routes>) -> Result<Vec<Finding>> {
    let prepared = match prepare::read(&request.source).await {
        Ok(prepared) => prepared,
        Err(OperationError::Refused(findings)) => return Ok(findings),
        Err(error) => return Err(error),
    };
    let mut findings = prepared.findings.clone();
    // A name is no condition: who checks a pull request has none yet. One that contradicts the module is a finding.
    let named = match prepared.name(&request.naming) {
        Ok(named) => Some(named),
        Err(OperationError::Usage { .. }) => None,
        Err(OperationError::Refused(refused)) => {
            findings.extend(refused.into_iter().filter(|finding| !prepared.findings.contains(finding)));
            None
        }
        Err(error) => return Err(error),
    };
    let host = named.as_ref().map(|named| named.host.clone()).or_else(|| request.naming.host.clone());
    let own = OwnHosts {
        host: host.unwrap_or_else(|| prepared.stated_host()),
        aliases: request.host_aliases.clone(),
    };
    let resolution = match (&prepared.tofu, &prepared.module_file, routes) {
        (Some(tofu), _, routes) => {
            let module = named.as_ref().map(|named| &named.module);
            resolve::opentofu(routes, &own, module, None, tofu).await
        }
        (None, Some(file), Some(routes)) => resolve::cue(routes, file).await,
        (None, ..) => return Ok(findings),
    };
    match resolution {
        Ok(resolution) => {
            if request.strict {
                findings.extend(resolution.outside);
            }
            if routes.is_some() {
                let layers: Vec<_> = resolution.dependencies.into_iter().map(|found| found.layer).collect();
                findings.extend(prepared.disagreements(&layers));
            }
        }
        Err(OperationError::Refused(refused)) => findings.extend(refused),
        Err(error) => return Err(error),
    }
    Ok(findings)
}
