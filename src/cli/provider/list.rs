//! `ocimod provider list`: the providers of a registry, or the versions of one.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::super::Context;
use super::super::failure::{ErrorKind, ExitStatus, Failure};
use super::super::printer::{Answer, visible_line, write_columns};
use super::super::registry_options::RegistryChoice;
use super::parse_provider;
use crate::operations::providers::{find, list};

/// List the providers in the registry, or the versions of one with their platforms
#[derive(Args, Clone, Debug)]
pub(super) struct List {
    /// The provider whose versions are listed
    #[arg(value_name = "ADDRESS[@CONSTRAINT]")]
    pub(super) address: Option<String>,
    /// Show the digest of each version's index, too
    #[arg(long)]
    pub(super) digests: bool,
}

/// `providers`: an array of objects.
#[derive(Serialize)]
struct ProvidersAnswer {
    providers: Vec<ShownProvider>,
}

#[derive(Serialize)]
struct ShownProvider {
    provider: String,
    repository: String,
    /// The newest version.
    version: String,
    /// Whether all versions are yanked.
    yanked: bool,
    versions: usize,
}

impl Answer for ProvidersAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let row = |it: &ShownProvider| {
            let version = if it.yanked { format!("{} (yanked)", it.version) } else { it.version.clone() };
            [it.provider.clone(), version]
        };
        let rows: Vec<_> = self.providers.iter().map(row).collect();
        let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(String::as_str)).collect();
        write_columns(text, &rows)
    }
}

/// `provider`, `repository`, and `versions`: an array of objects, ascending.
#[derive(Serialize)]
struct VersionsAnswer {
    provider: String,
    repository: String,
    versions: Vec<ShownVersion>,
    /// Whether the text has digests, as `list --digests` asks for.
    #[serde(skip)]
    shows_digests: bool,
}

#[derive(Serialize)]
struct ShownVersion {
    version: String,
    digest: String,
    platforms: Vec<String>,
    yanked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Answer for VersionsAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        for it in &self.versions {
            let digest = if self.shows_digests { format!("  {}", it.digest) } else { String::new() };
            let yanked = match (&it.reason, it.yanked) {
                (Some(reason), true) => format!("  yanked: {}", visible_line(reason)),
                (None, true) => "  yanked".to_owned(),
                (_, false) => String::new(),
            };
            writeln!(text, "{}{digest}  {}{yanked}", it.version, it.platforms.join(" "))?;
        }
        Ok(())
    }
}

impl List {
    async fn providers(context: &Context, choice: &RegistryChoice) -> Result<ExitStatus, Failure> {
        let routes = context.routes_to_read(choice).await?;
        let listed = list::providers(&routes).await.map_err(|error| explain_no_catalog(error.into()))?;
        if listed.is_empty() {
            context.printer.note("there are no providers in the registry");
            if let Some(hint) = choice.hint() {
                context.printer.hint(&hint);
            }
        }
        let providers = listed.into_iter().map(|it| ShownProvider {
            provider: it.address.to_string(),
            repository: it.repository,
            version: it.latest.to_string(),
            yanked: it.yanked,
            versions: it.versions,
        });
        context.printer.answer(&ProvidersAnswer { providers: providers.collect() })?;
        Ok(ExitStatus::Done)
    }

    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let choice = context.registry.choose(context)?;
        choice.expect_folders()?;
        let Some(address) = &self.address else { return Self::providers(context, &choice).await };
        let (address, constraint) = parse_provider(address)?;
        let routes = context.routes_to_read(&choice).await?;
        let published = find(&routes, &address).await.map_err(|error| choice.explain(error.into()))?;
        let listed = list::versions(&published, constraint.as_ref()).await?;
        let versions = listed.into_iter().map(|it| ShownVersion {
            version: it.version.to_string(),
            digest: it.digest.to_string(),
            platforms: it.platforms.iter().map(ToString::to_string).collect(),
            yanked: it.yanked,
            reason: it.reason.map(|reason| reason.to_string()),
        });
        context.printer.answer(&VersionsAnswer {
            provider: address.to_string(),
            repository: published.place.name(),
            versions: versions.collect(),
            shows_digests: self.digests,
        })?;
        Ok(ExitStatus::Done)
    }
}

/// A registry without a list of its repositories is one whose providers have to be named.
pub(super) fn explain_no_catalog(failure: Failure) -> Failure {
    match failure.kind() {
        ErrorKind::Unsupported => Failure::new(ErrorKind::Unsupported, failure.message())
            .with_hint("name each provider, such as `hashicorp/time`"),
        _ => failure,
    }
}
