//! What is wrong with a module: everything that a push would refuse, gathered instead of stopping at the first.

use std::path::PathBuf;
use std::sync::Arc;

use super::NoProgress;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::prepare::{self, Naming};
use super::push::{self, PushRequest};
use super::resolve::{self, OwnHosts};
use super::routes::Routes;
use crate::artifact::DependencyLayer;
use crate::module::{CuePath, Host};

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

/// What came of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What the module is called, where that is known.
    pub module: Option<CuePath>,
    /// What it needs, where that was looked up and is there.
    pub dependencies: Option<Vec<DependencyLayer>>,
}

/// Everything that is wrong with a module; whether its dependencies are there too, where registries are given.
pub async fn check(request: &CheckRequest, routes: Option<&Routes>) -> Result<Checked> {
    let prepared = match prepare::read(&request.source).await {
        Ok(prepared) => prepared,
        Err(OperationError::Refused(findings)) => return Ok(Checked { findings, ..Checked::default() }),
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
        (None, Some(file), Some(routes)) => resolve::cue(routes, &prepared, file).await,
        (None, ..) => return Ok(Checked { findings, ..Checked::default() }),
    };
    let stated = prepared.module_file.as_ref().map(|file| file.module.base().clone());
    let module = stated.or_else(|| named.as_ref().map(|named| named.module.path().clone()));
    let mut dependencies = None;
    match resolution {
        Ok(resolution) => {
            if request.strict {
                findings.extend(resolution.outside);
            }
            if routes.is_some() {
                let layers: Vec<_> = resolution.dependencies.into_iter().map(|found| found.layer).collect();
                findings.extend(prepared.disagreements(&layers));
                dependencies = Some(layers);
            }
        }
        Err(OperationError::Refused(refused)) => findings.extend(refused),
        Err(error) => return Err(error),
    }
    // What is published is compared last: where anything else is wrong, a push would not come to it.
    if let (Some(routes), true, true) =
        (routes, findings.is_empty(), named.is_some_and(|named| named.version.is_some()))
    {
        findings.extend(compare(request, routes).await?);
    }
    Ok(Checked { findings, module, dependencies })
}

/// What a push of this very version would say of what is published.
async fn compare(request: &CheckRequest, routes: &Routes) -> Result<Option<Finding>> {
    let push = PushRequest {
        source: request.source.clone(),
        naming: request.naming.clone(),
        host_aliases: request.host_aliases.clone(),
        form: None,
        strict: request.strict,
        dry_run: true,
        created: None,
    };
    match push::push(routes, &push, Arc::new(NoProgress)).await {
        Ok(_) => Ok(None),
        Err(error @ (OperationError::Exists { .. } | OperationError::OtherForm { .. })) => {
            Ok(Some(Finding::general("version-exists", error.to_string())))
        }
        Err(error @ OperationError::OtherModule { .. }) => {
            Ok(Some(Finding::general("other-module", error.to_string())))
        }
        Err(error) => Err(error),
    }
}
