//! `ocimod provider push`: a provider's zips into the registry.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::super::Context;
use super::super::failure::{ExitStatus, Failure};
use super::super::module_options::parse_version;
use super::super::printer::Answer;
use super::{ShownTarget, parse_platforms, parse_provider};
use crate::operations::providers::push::{self, PackageSource, ProviderPush, PushedTarget};

/// Push a version of a provider, or more platforms of one
///
/// A platform that is there with the same zip is a success that changes nothing; with another one it is refused.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod provider push hashicorp/time@0.14.2 terraform-provider-time_0.14.2_*.zip
  ocimod provider push tf.acme.example/acme/tool@1.0.0 tool.zip --platform linux_amd64")]
pub(super) struct Push {
    /// The provider and its version; without a host it is on registry.opentofu.org
    #[arg(value_name = "ADDRESS@VERSION")]
    pub(super) address: String,
    /// Its zips as they were released, one for each platform
    #[arg(value_name = "ZIP", required = true)]
    pub(super) zips: Vec<PathBuf>,
    /// The platform of a zip whose name does not say it: as often as there are zips, in their order
    #[arg(long, value_name = "OS_ARCH")]
    pub(super) platform: Vec<String>,
    /// Check everything and say what would be pushed
    #[arg(long, short = 'n')]
    pub(super) dry_run: bool,
}

/// `address`, `version`, `reference`, `digest`, `created`, `platforms`, `bytes_sent`.
#[derive(Serialize)]
struct PushAnswer {
    address: String,
    version: String,
    reference: String,
    /// Of the index.
    digest: String,
    /// Whether any platform is new.
    created: bool,
    platforms: Vec<PushedPlatform>,
    bytes_sent: u64,
    /// `registry/repository@digest`, which is all of the answer as text.
    #[serde(skip)]
    pinned: String,
}

#[derive(Serialize)]
struct PushedPlatform {
    #[serde(flatten)]
    target: ShownTarget,
    created: bool,
}

impl PushedPlatform {
    fn of(pushed: &PushedTarget) -> Self {
        Self { target: ShownTarget::of(&pushed.stored), created: pushed.created }
    }
}

impl Answer for PushAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}", self.pinned)
    }
}

impl Push {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let (name, version) = match self.address.split_once('@') {
            Some((name, version)) if !version.is_empty() => (name, version),
            _ => {
                let bare = self.address.trim_end_matches('@');
                return Err(Failure::usage(format!("`{}` names no version", self.address))
                    .with_hint(format!("write it behind an `@`, as in `{bare}@1.0.0`")));
            }
        };
        let (address, _) = parse_provider(name)?;
        let version = parse_version(version)?;
        let platforms = parse_platforms(&self.platform)?;
        if !platforms.is_empty() && platforms.len() != self.zips.len() {
            return Err(Failure::usage(format!(
                "there are {} zips, and `--platform` is given {} times",
                self.zips.len(),
                platforms.len()
            ))
            .with_hint("give it once for each zip, in the same order, or not at all"));
        }
        let mut platforms = platforms.into_iter();
        let choice = context.registry.choose_to_write(context, "provider push", self.dry_run)?;
        let routes = if self.dry_run {
            context.routes_to_read(&choice).await?
        } else {
            context.routes_to_write(&choice).await?
        };
        let zips = self.zips.iter().map(|zip| PackageSource {
            path: context.environment.absolute(zip),
            platform: platforms.next(),
            hashes: Vec::new(),
        });
        let request = ProviderPush { address, version, packages: zips.collect(), dry_run: self.dry_run };
        let pushed = push::push(&routes, &request, context.printer.progress()).await?;
        if self.dry_run {
            context.printer.note(&if pushed.is_created() {
                format!("would be pushed as {}", pushed.reference)
            } else {
                format!("{} has the same already, so a push would change nothing", pushed.reference)
            });
        }
        context.printer.answer(&PushAnswer {
            address: request.address.to_string(),
            version: request.version.to_string(),
            created: pushed.is_created(),
            reference: pushed.reference,
            digest: pushed.digest.to_string(),
            platforms: pushed.targets.iter().map(PushedPlatform::of).collect(),
            bytes_sent: pushed.bytes_sent,
            pinned: pushed.pinned,
        })?;
        Ok(ExitStatus::Done)
    }
}
