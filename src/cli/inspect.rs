//! `ocimod inspect`: what a registry knows of a module's version.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::module_options::parse_address;
use super::printer::{Answer, visible_line};
use super::provider;
use crate::artifact::DependencyLayer;
use crate::module::{Address, Host};
use crate::operations::{inspect, yank};

/// Show a module's manifest, module file, dependencies, inputs and outputs
#[derive(Args, Clone, Debug)]
pub struct Inspect {
    /// The module or `provider:HOST/NAMESPACE/TYPE`, and which of its versions
    #[arg(value_name = "ADDRESS[@CONSTRAINT]")]
    pub address: String,
    /// Which versions will do: `1.2.0`, `~> 1.2`, `>= 1, < 2` [default: the newest release]
    #[arg(long, value_name = "CONSTRAINT")]
    pub version: Option<String>,
}

/// A module that another one brings along.
#[derive(Serialize)]
pub(super) struct ShownDependency {
    /// `path@version`
    module: String,
    /// Of its zip.
    digest: String,
    /// Of its zip, in bytes.
    size: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    main_only: bool,
}

impl ShownDependency {
    pub(super) fn of(layer: &DependencyLayer) -> Self {
        Self {
            module: layer.module.to_string(),
            digest: layer.archive.digest.to_string(),
            size: layer.archive.size,
            main_only: layer.main_only,
        }
    }
}

/// `address`, `version`, `yanked`, `reason`, `digest`, `kind`, `reference`, `manifest`, `module_file`, `dependencies`, `inputs`, `outputs`.
#[derive(Serialize)]
struct InspectAnswer {
    address: String,
    version: Option<String>,
    yanked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    digest: String,
    kind: &'static str,
    reference: String,
    /// The module's own word for its path.
    module: Option<String>,
    manifest: Value,
    module_file: Option<String>,
    dependencies: Vec<ShownDependency>,
    inputs: Value,
    outputs: Value,
}

impl Answer for InspectAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let mut line = |label: &str, value: &str| writeln!(text, "{label:<13} {}", visible_line(value));
        line("address", &self.address)?;
        line("version", self.version.as_deref().unwrap_or("-"))?;
        if self.yanked {
            line("yanked", self.reason.as_deref().unwrap_or("yes"))?;
        }
        line("kind", self.kind)?;
        line("reference", &self.reference)?;
        line("digest", &self.digest)?;
        line("module", self.module.as_deref().map_or("-", without_placeholder))?;
        for dependency in &self.dependencies {
            line("brings along", without_placeholder(&dependency.module))?;
        }
        if let Some(annotations) = self.manifest["annotations"].as_object() {
            for (key, value) in annotations {
                let line = format!("{key} {}", value.as_str().unwrap_or_default());
                writeln!(text, "{}", visible_line(&line))?;
            }
        }
        write_values(text, "inputs", &self.inputs)?;
        write_values(text, "outputs", &self.outputs)
    }
}

/// The names of inputs or outputs, each with the first line of its description.
fn write_values(text: &mut String, label: &str, values: &Value) -> std::fmt::Result {
    let Some(values) = values.as_array().filter(|values| !values.is_empty()) else { return Ok(()) };
    writeln!(text, "{label}")?;
    for value in values {
        let description =
            value["description"].as_str().and_then(|text| text.lines().next()).unwrap_or_default();
        let line = format!("  {:<24} {description}", value["name"].as_str().unwrap_or_default());
        writeln!(text, "{}", visible_line(line.trim_end()))?;
    }
    Ok(())
}

/// The path of an OpenTofu module as people write it, where it has no host of its own. A CUE module is never on the placeholder
/// host.
pub(super) fn without_placeholder(path: &str) -> &str {
    let rest = path.strip_prefix(Host::INTERNAL).and_then(|rest| rest.strip_prefix('/'));
    rest.unwrap_or(path)
}

impl Inspect {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        if let Address::Provider(_) = parse_address(&self.address)?.address {
            return provider::inspect(context, &self.address, self.version.as_deref()).await;
        }
        let (address, stored) = context.stored(&self.address, self.version.as_deref()).await?;
        let inspected = inspect::inspect(&stored).await?;
        let yank = yank::of(&stored).await?;
        context.printer.answer(&InspectAnswer {
            address: address.to_string(),
            version: stored.version.as_ref().map(ToString::to_string),
            yanked: yank.is_some(),
            reason: yank.flatten().map(|reason| reason.to_string()),
            digest: stored.digest.to_string(),
            kind: stored.artifact.kind.as_str(),
            reference: stored.name(),
            module: inspected.module,
            manifest: inspected.manifest,
            module_file: inspected.module_file,
            dependencies: inspected.dependencies.iter().map(ShownDependency::of).collect(),
            inputs: inspected.inputs,
            outputs: inspected.outputs,
        })?;
        Ok(ExitStatus::Done)
    }
}
