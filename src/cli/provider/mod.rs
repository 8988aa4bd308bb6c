//! `ocimod provider`: providers in the registry, one file a verb.

mod export;
mod import;
mod inspect;
mod list;
mod pull;
mod push;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::module_options::{parse_address, parse_constraint};
use crate::module::{Address, Constraint, ProviderAddress, ProviderPlatform, VersionQuery};
use crate::operations::providers::{StoredProvider, StoredTarget, find};
use export::Export;
use import::Import;
use inspect::Inspect;
use list::List;
use pull::Pull;
use push::Push;

/// Push, list, look at and fetch providers, one by one or as a whole mirror
#[derive(Args, Clone, Debug)]
pub struct Provider {
    #[command(subcommand)]
    verb: ProviderVerb,
}

#[derive(Clone, Debug, Subcommand)]
enum ProviderVerb {
    Push(Push),
    #[command(visible_alias = "ls")]
    List(List),
    Inspect(Inspect),
    Pull(Pull),
    Import(Import),
    Export(Export),
}

impl Provider {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        match &self.verb {
            ProviderVerb::Push(verb) => verb.run(context).await,
            ProviderVerb::List(verb) => verb.run(context).await,
            ProviderVerb::Inspect(verb) => verb.run(context).await,
            ProviderVerb::Pull(verb) => verb.run(context).await,
            ProviderVerb::Import(verb) => verb.run(context).await,
            ProviderVerb::Export(verb) => verb.run(context).await,
        }
    }
}

/// `ocimod list provider:ADDRESS`: the same as `ocimod provider list ADDRESS`.
pub(super) async fn list(context: &Context, address: &str, digests: bool) -> Result<ExitStatus, Failure> {
    List { address: Some(address.to_owned()), digests }.run(context).await
}

/// `ocimod inspect provider:ADDRESS`: the same as `ocimod provider inspect ADDRESS`.
pub(super) async fn inspect(
    context: &Context,
    address: &str,
    version: Option<&str>,
) -> Result<ExitStatus, Failure> {
    Inspect { address: address.to_owned(), version: version.map(str::to_owned) }.run(context).await
}

/// The package for one system, in answers.
#[derive(Serialize)]
struct ShownTarget {
    platform: String,
    /// Of its manifest.
    digest: String,
    /// Of the zip, in bytes.
    size: u64,
    zh: String,
    h1: Option<String>,
}

impl ShownTarget {
    fn of(stored: &StoredTarget) -> Self {
        let StoredTarget { manifest, target } = stored;
        Self {
            platform: target.platform.to_string(),
            digest: manifest.to_string(),
            size: target.archive.size,
            zh: target.zh(),
            h1: target.h1.as_ref().map(ToString::to_string),
        }
    }
}

/// ADDRESS or ADDRESS@CONSTRAINT of a provider, with `provider:` in front or without.
fn parse_provider(text: &str) -> Result<(ProviderAddress, Option<Constraint>), Failure> {
    let text = text.strip_prefix("provider:").unwrap_or(text);
    let read = parse_address(&format!("provider:{text}"))?;
    let Address::Provider(address) = read.address else {
        return Err(Failure::usage(format!("`{text}` is not the address of a provider")));
    };
    match read.version {
        Some(VersionQuery::Constraint(constraint)) => Ok((address, Some(constraint))),
        Some(VersionQuery::Latest) | None => Ok((address, None)),
        Some(VersionQuery::Major(major)) => {
            Err(Failure::usage(format!("`v{major}` is not a version of a provider"))
                .with_hint(format!("write `'{address}@~> {major}.0'`")))
        }
    }
}

fn parse_platforms(texts: &[String]) -> Result<Vec<ProviderPlatform>, Failure> {
    let parse =
        |text: &String| text.parse().map_err(|error| Failure::usage(format!("`--platform`: {error}")));
    texts.iter().map(parse).collect()
}

/// The version that an address and `--version` name.
async fn stored(context: &Context, address: &str, version: Option<&str>) -> Result<StoredProvider, Failure> {
    let (address, constraint) = parse_provider(address)?;
    let constraint = match (constraint, version.map(parse_constraint).transpose()?) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("the address and `--version` both say which version is meant")
                .with_hint("give one of them"));
        }
        (one, other) => one.or(other).unwrap_or_else(Constraint::any),
    };
    let choice = context.registry.choose(context)?;
    choice.expect_folders()?;
    let routes = context.routes_to_read(&choice).await?;
    let chosen = async { find(&routes, &address).await?.choose(&constraint).await };
    chosen.await.map_err(|error| choice.explain(error.into()))
}
