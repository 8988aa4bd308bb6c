//! `ocimod copy`: modules and providers from one registry to another.

use std::fmt::Write as _;

use clap::Args;
use indicatif::BinaryBytes;
use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::catalog_option::CatalogOption;
use super::failure::{ErrorKind, ExitStatus, Failure};
use super::module_options::{parse_address, parse_constraint};
use super::printer::Answer;
use super::push::Dependencies;
use super::registry_options::RegistryChoice;
use crate::module::{Address, OciAddress};
use crate::operations::connect::Connection;
use crate::operations::copy::{
    self, Copied, CopiedVersion, CopyRequest, FailedCopy, SkipReason, SkippedVersion, Source, What,
};

/// Copy modules and providers from one registry to another, byte for byte
///
/// What is there already is not sent again, so a copy that broke off goes on where it stood. A version that is there with other
/// content is left alone and reported.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod copy acme/vpc/aws --from ghcr.io/acme/modules --to registry.example.com/modules
  ocimod copy 'acme/vpc/aws@~> 1.2' example.com/net/vpc@v1 --with-dependencies --to dir:./store
  ocimod copy --all --referrers --from harbor.acme.example/modules --to layout:modules.tar
  ocimod copy --all --from layout:modules.tar --to registry.closed.example")]
#[allow(clippy::struct_excessive_bools)] // switches that have nothing to do with each other
pub struct Copy {
    /// What to copy: a module, `provider:HOST/NAMESPACE/TYPE`, or `oci://HOST/REPOSITORY:TAG`; every version where none is asked for
    #[arg(value_name = "ADDRESS[@CONSTRAINT]")]
    pub addresses: Vec<String>,
    /// Copy every module and provider
    #[arg(long)]
    pub all: bool,
    /// Where from [default: `--registry`]
    #[arg(long, value_name = "REGISTRY")]
    pub from: Option<String>,
    /// Where to [default: `--registry`]
    #[arg(long, value_name = "REGISTRY")]
    pub to: Option<String>,
    /// Which versions, of all that is copied: `1.2.0`, `~> 1.2`, `>= 1, < 2`
    #[arg(long, value_name = "CONSTRAINT")]
    pub version: Option<String>,
    /// Copy the modules that these need, too, each to a repository of its own
    #[arg(long)]
    pub with_dependencies: bool,
    /// Copy signatures and whatever else refers to these, too
    #[arg(long)]
    pub referrers: bool,
    /// Of providers copy this system alone, such as `linux_amd64` (may be repeated)
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Vec<String>,
    /// Bring modules into this form, which gives them other digests [default: as they are]
    #[arg(long, value_name = "FORM")]
    pub deps: Option<Dependencies>,
    /// Only say what would be copied
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Where the names of repositories come from, with `--all`
    #[command(flatten)]
    pub catalog: CatalogOption,
}

/// `copied`, `skipped`, `failed`, `bytes_sent`, `dry_run`, `files`; and `error` where anything failed.
#[derive(Serialize)]
struct CopyAnswer {
    copied: Vec<ShownCopied>,
    skipped: Vec<ShownSkipped>,
    failed: Vec<ShownFailed>,
    bytes_sent: u64,
    dry_run: bool,
    files: Vec<ShownFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

#[derive(Serialize)]
struct ShownCopied {
    address: String,
    version: String,
    from: String,
    to: String,
    /// Null where only the mark of its yank was copied.
    digest: Option<String>,
    tags: Vec<String>,
    referrers: usize,
    bytes_sent: u64,
}

#[derive(Serialize)]
struct ShownSkipped {
    address: String,
    version: String,
    to: String,
    /// `exists`, `not-ours` or `no-platform`.
    reason: &'static str,
    /// Null where it is not known, or nothing is there.
    digest: Option<String>,
}

#[derive(Serialize)]
struct ShownFailed {
    address: String,
    /// Null where it is a whole repository.
    version: Option<String>,
    from: String,
    kind: ErrorKind,
    message: String,
    /// What to do about it; null where the message says it.
    hint: Option<String>,
}

#[derive(Serialize)]
struct ShownFile {
    name: String,
    /// In bytes.
    size: u64,
    written: bool,
}

impl ShownCopied {
    fn of(copied: CopiedVersion) -> Self {
        Self {
            address: copied.address,
            version: copied.version.to_string(),
            from: copied.from,
            to: copied.to,
            digest: copied.digest.map(|digest| digest.to_string()),
            tags: copied.tags.iter().map(ToString::to_string).collect(),
            referrers: copied.referrers,
            bytes_sent: copied.bytes_sent,
        }
    }
}

impl ShownSkipped {
    fn of(skipped: SkippedVersion) -> Self {
        let (reason, digest) = match skipped.reason {
            SkipReason::Exists(digest) => ("exists", digest),
            SkipReason::NotOurs(_) => ("not-ours", None),
            SkipReason::NoPlatform => ("no-platform", None),
        };
        Self {
            address: skipped.address,
            version: skipped.version.to_string(),
            to: skipped.to,
            reason,
            digest: digest.map(|digest| digest.to_string()),
        }
    }
}

impl Answer for CopyAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        for it in &self.copied {
            match (it.tags.first(), &it.digest) {
                (Some(tag), _) => writeln!(text, "{}:{tag}", it.to)?,
                (None, Some(digest)) => writeln!(text, "{}@{digest}", it.to)?,
                (None, None) => {}
            }
        }
        Ok(())
    }
}

impl Copy {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let (from, to) = (self.choose_from(context)?, self.choose_to(context)?);
        let (from_connection, to_connection) = (context.connection(&from)?, context.connection(&to)?);
        from_connection.check_schemes([&from.setting()?, &to.setting()?])?;
        let what = self.what(context, &from_connection).await?;
        let request = CopyRequest {
            constraint: self.version.as_deref().map(parse_constraint).transpose()?,
            with_dependencies: self.with_dependencies,
            referrers: self.referrers,
            platforms: self
                .platform
                .iter()
                .map(|name| name.parse().map_err(|error| Failure::usage(format!("`--platform`: {error}"))))
                .collect::<Result<_, _>>()?,
            form: self.deps.map(Into::into),
            dry_run: self.dry_run,
            what,
        };
        let is_named_outright =
            |sources: &[Source]| sources.iter().all(|source| matches!(source, Source::Tag(..)));
        // Whatever `--registry` says, what is named outright does not come from there.
        if !matches!(&request.what, What::Named(sources) if is_named_outright(sources)) {
            from.expect_folders()?;
        }
        let routes = context.routes_to_read(&from).await?;
        let destination = context.destination(&to, to_connection, self.dry_run).await?;
        let copied = copy::copy(&routes, &destination, &request, context.printer.progress()).await;
        self.answer(context, copied.map_err(|error| from.explain(error.into()))?)
    }

    fn choose_from(&self, context: &Context) -> Result<RegistryChoice, Failure> {
        if self.from.is_none() && self.to.is_none() {
            return Err(Failure::usage(
                "a copy needs two registries, and neither `--from` nor `--to` is given",
            )
            .with_hint("what is not given is the registry of every verb (`--registry`, `OCIMOD_REGISTRY`)"));
        }
        RegistryChoice::named("from", self.from.as_deref(), context)
            .map_or_else(|| context.registry.choose(context), Ok)
    }

    fn choose_to(&self, context: &Context) -> Result<RegistryChoice, Failure> {
        RegistryChoice::named("to", self.to.as_deref(), context)
            .map_or_else(|| context.registry.choose_to_write(context, "copy", self.dry_run), Ok)
    }

    async fn what(&self, context: &Context, connection: &Connection) -> Result<What, Failure> {
        match (self.all, &self.addresses[..]) {
            (true, []) => return Ok(What::All(self.catalog.repositories(context))),
            (true, [address, ..]) => {
                return Err(Failure::usage(format!(
                    "`--all` copies everything, so `{address}` cannot go with it"
                )));
            }
            (false, []) => {
                return Err(Failure::usage("there is nothing to copy").with_hint(
                    "name modules, as in `ocimod copy acme/vpc/aws`, or copy everything with `--all`",
                ));
            }
            (false, _) => {}
        }
        let mut sources = Vec::new();
        for address in &self.addresses {
            let address = parse_address(address)?;
            sources.push(match &address.address {
                Address::Oci(OciAddress { tag: Some(tag), digest: None, .. }) if self.version.is_some() => {
                    return Err(Failure::usage(format!(
                        "`{}` is one version (`{tag}`), so `--version` has nothing to choose from",
                        address.address
                    )));
                }
                Address::Oci(place @ OciAddress { tag: Some(tag), digest: None, .. }) => {
                    Source::Tag(connection.place(place).await?, tag.clone())
                }
                Address::Oci(place) => {
                    return Err(Failure::usage(format!(
                        "`{place}` names no tag, and a copy needs one to put it at"
                    ))
                    .with_hint("write for example `oci://ghcr.io/acme/modules/acme/vpc/aws:v1.2.0`"));
                }
                Address::Tofu(_) | Address::Cue(_) | Address::Provider(_) => {
                    Source::Address(Box::new(address))
                }
            });
        }
        Ok(What::Named(sources))
    }

    fn answer(&self, context: &Context, copied: Copied) -> Result<ExitStatus, Failure> {
        let printer = &context.printer;
        for skipped in &copied.skipped {
            let why = match &skipped.reason {
                SkipReason::Exists(_) => continue,
                SkipReason::NotOurs(found) => format!("{found}, and neither a module nor a provider"),
                SkipReason::NoPlatform => "it has none of the platforms that were asked for".to_owned(),
            };
            printer.note(&format!("left out: {} {}: {why}", skipped.address, skipped.version));
        }
        let failed =
            copied.failed.into_iter().map(|failed| Self::failed(context, failed)).collect::<Vec<_>>();
        let failure = Self::failure(&failed, copied.is_broken_off);
        if self.dry_run {
            printer.note("would be copied:");
        }
        let there = copied.skipped.iter().filter(|it| matches!(it.reason, SkipReason::Exists(_))).count();
        let summary = format!(
            "{} versions {}, {there} there already, {} {}",
            copied.copied.len(),
            if self.dry_run { "to copy" } else { "copied" },
            BinaryBytes(copied.bytes_sent),
            if self.dry_run { "to send" } else { "sent" },
        );
        let files: Vec<_> = copied
            .files
            .into_iter()
            .map(|file| ShownFile { name: file.name, size: file.size, written: file.is_changed })
            .collect();
        printer.answer(&CopyAnswer {
            copied: copied.copied.into_iter().map(ShownCopied::of).collect(),
            skipped: copied.skipped.into_iter().map(ShownSkipped::of).collect(),
            failed,
            bytes_sent: copied.bytes_sent,
            dry_run: self.dry_run,
            files,
            error: failure.as_ref().map(|failure| failure.as_json()["error"].clone()),
        })?;
        printer.note(&summary);
        Ok(failure.map_or(ExitStatus::Done, |failure| printer.failure_beside_answer(&failure)))
    }

    fn failed(context: &Context, failed: FailedCopy) -> ShownFailed {
        let failure = Failure::from(failed.error);
        let version = failed.version.map(|version| version.to_string());
        let what = match &version {
            Some(version) => format!("{} {version}", failed.address),
            None => failed.address.clone(),
        };
        context.printer.warning(&format!("not copied: {what}: {}", failure.message()));
        for hint in failure.hints() {
            context.printer.hint(hint);
        }
        ShownFailed {
            address: failed.address,
            version,
            from: failed.from,
            kind: failure.kind(),
            message: failure.message().to_owned(),
            hint: failure.hint(),
        }
    }

    /// What the whole failed with: the kind that all failures have, if it is one.
    fn failure(failed: &[ShownFailed], is_broken_off: bool) -> Option<Failure> {
        let [first, rest @ ..] = failed else { return None };
        let kind =
            if rest.iter().all(|other| other.kind == first.kind) { first.kind } else { ErrorKind::Failed };
        if is_broken_off {
            return Some(
                Failure::new(kind, "the copy broke off")
                    .with_hint("run the same again once that is mended: what is there is not sent again"),
            );
        }
        Some(Failure::new(kind, format!("could not be copied: {}", failed.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: ErrorKind) -> ShownFailed {
        let text = || "x".to_owned();
        ShownFailed { address: text(), version: None, from: text(), kind, message: text(), hint: None }
    }

    #[test]
    fn the_exit_status_is_that_of_the_failures_where_it_is_one() {
        let kind = |kinds: &[ErrorKind]| {
            let failed: Vec<_> = kinds.iter().map(|kind| failed(*kind)).collect();
            Copy::failure(&failed, false).map(|failure| failure.kind())
        };
        assert_eq!(kind(&[]), None);
        assert_eq!(kind(&[ErrorKind::Immutable; 2]), Some(ErrorKind::Immutable));
        assert_eq!(kind(&[ErrorKind::Immutable, ErrorKind::Denied]), Some(ErrorKind::Failed));
    }
}
