//! What is wrong with a module: everything that a push would refuse, gathered instead of stopping at the first.

use std::fmt;
use std::path::Path;

use crate::archive::CheckError;

use super::error::{OperationError, Result};
use super::prepare::{self, Prepared};
use super::resolve::{self, OwnHosts};
use super::routes::Routes;

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
pub struct CheckRequest<'a> {
    /// A module's folder, or a zip.
    pub source: &'a Path,
    /// Whose modules count as own.
    pub own: &'a OwnHosts,
    /// Whether calls that cannot be embedded count.
    pub strict: bool,
}

/// Everything that is wrong with a module; its dependencies too where registries are given.
pub async fn check(request: CheckRequest<'_>, routes: Option<&Routes>) -> Result<Vec<Finding>> {
    let prepared = match prepare::read(request.source).await {
        Ok(prepared) => prepared,
        Err(OperationError::Refused(findings)) => return Ok(findings),
        Err(error) => return Err(error),
    };
    let mut findings = prepared.findings.clone();
    let outside = match routes {
        Some(routes) => dependencies(&prepared, &request, routes, &mut findings).await?,
        None => Vec::new(),
    };
    if request.strict {
        findings.extend(outside);
    }
    Ok(findings)
}

async fn dependencies(
    prepared: &Prepared,
    request: &CheckRequest<'_>,
    routes: &Routes,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Finding>> {
    let resolution = match (&prepared.tofu, &prepared.module_file) {
        (Some(tofu), _) => resolve::opentofu(routes, request.own, None, None, tofu).await,
        (None, Some(file)) => resolve::cue(routes, file).await,
        (None, None) => return Ok(Vec::new()),
    };
    match resolution {
        Ok(resolution) => Ok(resolution.outside),
        Err(OperationError::Refused(refused)) => {
            findings.extend(refused);
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}
