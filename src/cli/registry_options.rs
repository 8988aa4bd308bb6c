//! Which registry a verb uses, and how it is reached: the options that every verb has, and what holds where none is set.

use std::path::PathBuf;

use clap::Args;

use super::Context;
use super::environment::Environment;
use super::failure::{ErrorKind, Failure};
use super::settings::{Origin, Settings};
use crate::operations::registry_setting::{RegistryLocation, RegistrySetting};

/// The registry, and what goes with it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Registry")]
pub struct RegistryOptions {
    /// Where modules are kept [default: a folder of the user's own]
    ///
    /// For example `ghcr.io/acme/modules`, `127.0.0.1:5000+insecure`, `dir:PATH`, `layout:FILE.tar`; or several, each for the module paths that
    /// begin with its prefix: `example.com=registry.example.com/cue,ghcr.io/acme`; or a configuration as `CUE_REGISTRY` has it, `file:PATH` or
    /// `inline:CUE`.
    #[arg(long, global = true, value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// Talk to the registry without TLS (as `+insecure` after its name)
    #[arg(long, global = true)]
    pub plain_http: bool,
    /// Trust the certificates in this PEM file too
    #[arg(long, global = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Show the registry this client certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    pub cert_file: Option<PathBuf>,
    /// The key of the client certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Repository of an OpenTofu module
    #[arg(long, global = true, value_name = "TEMPLATE", default_value = "{namespace}/{name}/{system}")]
    pub module_repository: String,
    /// Repository of a provider
    #[arg(
        long,
        global = true,
        value_name = "TEMPLATE",
        default_value = "providers/{hostname}/{namespace}/{type}"
    )]
    pub provider_repository: String,
}

/// The registry of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryChoice {
    /// Somebody named it.
    Named {
        /// As it was written.
        text: String,
        /// The folder that relative paths in it count from.
        folder: PathBuf,
        /// Where it is written, for messages: `--registry`, a variable, a file and its line.
        origin: String,
    },
    /// Nobody did: a directory of OCI image layouts in the user's data folder.
    UserFolder(PathBuf),
    /// A directory that goes with the process.
    Temporary(PathBuf),
}

impl RegistryOptions {
    /// The registry to read from.
    pub fn choose(&self, context: &Context) -> Result<RegistryChoice, Failure> {
        choose(self.registry.as_deref(), &context.settings, &context.environment)
    }

    /// The registry to write to. Where none is set its folder is named to the user, and nothing may be written on a CI system:
    /// a published version must not vanish with a job's machine. A dry run writes nothing, so it may.
    pub fn choose_to_write(
        &self,
        context: &Context,
        verb: &str,
        is_dry_run: bool,
    ) -> Result<RegistryChoice, Failure> {
        let choice = self.choose(context)?;
        if let RegistryChoice::UserFolder(folder) = &choice {
            if context.environment.is_ci() && !is_dry_run {
                return Err(Failure::usage(format!(
                    "no registry is set, and on a CI system `{verb}` does not write to the machine's own disk"
                ))
                .with_hint("set one with `--registry`, `OCIMOD_REGISTRY` or `registry` in ocimod.toml"));
            }
            context.printer.note(&format!("no registry is set, so this is {}", folder.display()));
        }
        if let Some(file) = choice.layout()? {
            return Err(Failure::usage(format!("`{file}` is read alone; `{verb}` does not write to it")).with_hint(
                format!("write to a registry or a folder, and copy what is to be carried: `ocimod copy ADDRESS --to {file}`"),
            ));
        }
        // Whoever works in somebody's repository sees where that one's pushes go.
        if let (RegistryChoice::Named { text, .. }, Origin::File { path, line }) =
            (&choice, context.settings.origin("registry"))
        {
            context.printer.note(&format!("the registry is {text}, as {}:{line} says", path.display()));
        }
        Ok(choice)
    }
}

impl RegistryChoice {
    /// The registry that an option of that name says; `None` where it says none.
    pub(super) fn named(key: &str, text: Option<&str>, context: &Context) -> Option<Self> {
        text.map(|text| Self::of_setting(key, text, &context.settings))
    }

    fn of_setting(key: &str, text: &str, settings: &Settings) -> Self {
        let origin = match settings.origin(key) {
            Origin::Variable { name } => name.clone(),
            Origin::File { path, line } => format!("{}:{line}, `{key}`", path.display()),
            Origin::Default | Origin::Flag => format!("--{key}"),
        };
        Self::Named { text: text.to_owned(), folder: settings.folder_of(key).to_owned(), origin }
    }

    /// A file among what is opened, as it was written.
    fn layout(&self) -> Result<Option<String>, Failure> {
        let setting = self.setting()?;
        let mut locations = setting.locations().map(|(_, location)| location);
        let layout = locations.find(|location| matches!(location, RegistryLocation::Layout(_)));
        Ok(layout.map(ToString::to_string))
    }

    /// What is opened.
    pub(super) fn setting(&self) -> Result<RegistrySetting, Failure> {
        match self {
            Self::Named { text, folder, origin } => RegistrySetting::read(text, folder)
                .map_err(|error| Failure::usage(format!("{origin}: {error}"))),
            Self::UserFolder(folder) | Self::Temporary(folder) => Ok(RegistrySetting::directory(folder)),
        }
    }

    /// A folder or file that somebody names to read from and that is not there is a slip of the pen. The user's own is made by the first push.
    pub(super) fn expect_folders(&self) -> Result<(), Failure> {
        let Self::Named { folder: base, .. } = self else { return Ok(()) };
        for (_, location) in self.setting()?.locations() {
            let (path, what, hint) = match location {
                RegistryLocation::Directory(path) => (path, "folder", "a first `ocimod push` to it makes it"),
                RegistryLocation::Layout(path) => (path, "file", "`ocimod copy ADDRESS --to` makes it"),
                RegistryLocation::Remote { .. } | RegistryLocation::None => continue,
            };
            let path = base.join(path);
            if !path.exists() {
                let message =
                    format!("there is no {what} {}, so there is no module in `{location}`", path.display());
                return Err(Failure::new(ErrorKind::NotFound, message).with_hint(hint));
            }
        }
        Ok(())
    }

    /// A failure to find something, which may well be for want of a registry.
    #[must_use]
    pub fn explain(&self, failure: Failure) -> Failure {
        match self.hint() {
            Some(hint) if failure.kind() == ErrorKind::NotFound => failure.with_hint(hint),
            _ => failure,
        }
    }

    /// What to say to somebody who misses something, where it may be for want of a registry.
    pub fn hint(&self) -> Option<String> {
        let Self::UserFolder(folder) = self else { return None };
        Some(format!(
            "no registry is set, so only {} was looked at; name one with `--registry` or `OCIMOD_REGISTRY`",
            folder.display()
        ))
    }
}

fn choose(
    registry: Option<&str>,
    settings: &Settings,
    environment: &Environment,
) -> Result<RegistryChoice, Failure> {
    match registry {
        Some(text) => Ok(RegistryChoice::of_setting("registry", text, settings)),
        None => user_folder(environment).map(RegistryChoice::UserFolder).ok_or_else(|| {
            Failure::usage("no registry is set, and there is no home folder for one")
                .with_hint("set one with `--registry`, `OCIMOD_REGISTRY` or `registry` in ocimod.toml")
        }),
    }
}

/// The registry where none is set.
pub(super) fn user_folder(environment: &Environment) -> Option<PathBuf> {
    environment.data_folder().map(|folder| folder.join("registry"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::printer::captured::{self, Captured};
    use crate::cli::{Cli, Format, Printer, settings};

    fn context(registry: &str, variables: &[(&str, &str)]) -> (Context, Captured) {
        let (streams, _, stderr) = captured::streams();
        let environment = Environment {
            working_folder: "/nowhere".into(),
            home: Some("/home/jo".into()),
            variables: variables.iter().map(|(name, value)| ((*name).into(), value.into())).collect(),
            ..Environment::default()
        };
        let mut arguments = vec!["ocimod".into(), "version".into()];
        if !registry.is_empty() {
            arguments.push(format!("--registry={registry}").into());
        }
        let Ok((Cli { registry, .. }, settings)) = settings::resolve(&arguments, &environment) else {
            panic!("wrong usage")
        };
        (
            Context {
                environment,
                settings,
                registry,
                printer: Printer::new(streams, Format::Text, false),
                request_log: None,
            },
            stderr,
        )
    }

    #[test]
    fn a_registry_that_is_named_is_taken_as_it_is() {
        let (context, stderr) = context("ghcr.io/acme", &[("CI", "true")]);
        let choice = context.registry.choose_to_write(&context, "push", false).unwrap();
        assert_eq!(
            choice,
            RegistryChoice::Named {
                text: "ghcr.io/acme".into(),
                folder: "/nowhere".into(),
                origin: "--registry".into()
            }
        );
        assert_eq!(stderr.text(), "");
        let failure = choice.explain(Failure::new(ErrorKind::NotFound, "gone"));
        assert!(failure.hints().is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn where_none_is_set_the_user_is_told_of_the_folder() {
        let (context, stderr) = context("", &[]);
        let choice = context.registry.choose_to_write(&context, "push", false).unwrap();
        assert_eq!(choice, RegistryChoice::UserFolder("/home/jo/.local/share/ocimod/registry".into()));
        assert_eq!(stderr.text(), "no registry is set, so this is /home/jo/.local/share/ocimod/registry\n");
        let failure = choice.explain(Failure::new(ErrorKind::NotFound, "gone"));
        assert!(failure.hints()[0].starts_with("no registry is set, so only /home/jo/"));
    }

    #[test]
    fn nothing_is_pushed_to_a_ci_machine_s_own_disk() {
        let (context, _) = context("", &[("CI", "true")]);
        let failure = context.registry.choose_to_write(&context, "push", false).unwrap_err();
        assert_eq!(failure.kind(), ErrorKind::Usage);
        assert!(failure.hints()[0].contains("OCIMOD_REGISTRY"));
        assert!(context.registry.choose_to_write(&context, "push", true).is_ok(), "a dry run writes nothing");
        assert!(context.registry.choose(&context).is_ok(), "nor does reading");
    }
}
