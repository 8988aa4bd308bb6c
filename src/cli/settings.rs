//! The one mechanism of settings: every option of the command line is a variable and a key of `ocimod.toml` too.
//!
//! No table says so: an option's long name *is* its key, and `OCIMOD_` with the name in capitals its variable, so an option
//! cannot miss either. clap's types are the only definition. A run parses twice: first what was typed, which tells the verb and
//! what was given; then the same once more with everything that variables and the file say and the command line does not, written
//! as options. So each value passes the same parser, wherever it comes from, and [`Settings`] keeps where that was.
//!
//! Flags win over variables, and variables over the file. A switch may be given as `--strict=false`, since what the file turns
//! on has to be turned off somehow. No option takes a secret, only files that hold one, so every setting can be shown.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind as ClapErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches, ValueHint};
use serde::Serialize;

use super::Cli;
use super::environment::Environment;
use super::failure::Failure;
use super::printer::Format;
use super::settings_file::{self, SettingsFileError, Shape};

/// What stands before each of our variables.
const VARIABLE_PREFIX: &str = "OCIMOD_";

/// Names the settings file itself, so it has no key in it.
const CONFIG: &str = "config";

/// Between the values of a variable for an option that may be repeated.
const VALUE_SEPARATOR: u8 = b',';

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "kebab-case")]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// `ocimod.toml`.
    File {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// A variable of the environment.
    Variable {
        /// Its name.
        name: String,
    },
    /// The command line.
    Flag,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Self::Variable { name } => write!(formatter, "variable {name}"),
            Self::Flag => formatter.write_str("command line"),
        }
    }
}

/// One setting.
#[derive(Clone, Debug)]
pub struct Setting {
    /// As they would stand on the command line; none where it is not set and has no default.
    pub values: Vec<OsString>,
    /// Where they come from.
    pub origin: Origin,
    /// Whether it takes several values.
    pub is_repeatable: bool,
    is_path: bool,
}

/// Every setting of every verb, with its value and where that comes from.
#[derive(Clone, Debug)]
pub struct Settings {
    by_key: BTreeMap<String, Setting>,
    file: Option<PathBuf>,
    working_folder: PathBuf,
}

impl Settings {
    /// Every setting by its key, which is the option's name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.by_key.iter().map(|(key, setting)| (key.as_str(), setting))
    }

    /// The settings file that was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Where a setting's value comes from; of what is no setting: nowhere.
    pub fn origin(&self, key: &str) -> &Origin {
        self.by_key.get(key).map_or(&Origin::Default, |setting| &setting.origin)
    }

    /// The folder that relative paths within a setting's value count from: the file's own, where the file says it.
    ///
    /// Values that are paths as a whole are resolved already.
    pub fn folder_of(&self, key: &str) -> &Path {
        match self.origin(key) {
            Origin::File { path, .. } => path.parent().unwrap_or(&self.working_folder),
            _ => &self.working_folder,
        }
    }

    /// Nothing but the defaults.
    fn of_defaults(command: &Command, environment: &Environment) -> Self {
        let mut by_key = BTreeMap::new();
        for arg in all_arguments(command) {
            let Some(key) = arg.get_long() else { continue };
            by_key.entry(key.to_owned()).or_insert_with(|| Setting {
                values: arg.get_default_values().iter().map(OsString::from).collect(),
                origin: Origin::Default,
                is_repeatable: matches!(arg.get_action(), ArgAction::Append),
                is_path: matches!(
                    arg.get_value_hint(),
                    ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath
                ),
            });
        }
        Self { by_key, file: None, working_folder: environment.working_folder.clone() }
    }

    fn set(&mut self, key: &str, values: Vec<OsString>, origin: Origin) {
        if let Some(setting) = self.by_key.get_mut(key) {
            setting.values = values;
            setting.origin = origin;
        }
    }

    /// Adds what a file says; what a repository's file may not decide is refused.
    fn add_file(&mut self, path: &Path, is_trusted: bool) -> Result<(), Failure> {
        let names = self.by_key.keys().map(String::as_str).filter(|key| *key != CONFIG).collect::<Vec<_>>();
        let shape_of = |key: &str| {
            let setting = self.by_key.get(key).filter(|_| key != CONFIG)?;
            Some(if setting.is_repeatable { Shape::Many } else { Shape::One })
        };
        let entries = settings_file::read(path, shape_of, &names)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for entry in entries {
            if let Some(reason) = settings_file::refusal(&entry, folder).filter(|_| !is_trusted) {
                let (path, line, key) = (path.to_owned(), entry.line, entry.key);
                return Err(SettingsFileError::NotOurs { path, line, key, reason }.into());
            }
            let is_path = self.by_key.get(&entry.key).is_some_and(|setting| setting.is_path);
            let resolve = |value: OsString| if is_path { folder.join(value).into() } else { value };
            let values = entry.values.into_iter().map(resolve).collect();
            self.set(&entry.key, values, Origin::File { path: path.to_owned(), line: entry.line });
        }
        self.file = Some(path.to_owned());
        Ok(())
    }

    fn add_variables(&mut self, environment: &Environment) {
        for (key, setting) in &mut self.by_key {
            let name = variable_name(key);
            let Some(value) = environment.variable(&name) else { continue };
            setting.values = if setting.is_repeatable { split(value) } else { vec![value.to_owned()] };
            setting.origin = Origin::Variable { name };
        }
    }
}

/// The variable that sets an option.
pub fn variable_name(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.to_uppercase().replace('-', "_"))
}

/// Why there is nothing to run.
pub(super) enum Stop {
    /// Somebody asked for help or for the version; the text for stdout.
    Told(clap::Error),
    /// What was typed, a variable or the file is wrong; how it is to be told.
    Failed(Failure, Format),
}

/// What was typed, completed by what variables and the file say.
pub(super) fn resolve(arguments: &[OsString], environment: &Environment) -> Result<(Cli, Settings), Stop> {
    let plain = Cli::command();
    let command = with_negatable_switches(plain.clone());
    let typed = command.clone().try_get_matches_from(arguments);

    let mut settings = Settings::of_defaults(&command, environment);
    let config = match &typed {
        Ok(typed) => Typed::of(&command, typed).values(CONFIG).pop(),
        Err(_) => scan(arguments, CONFIG),
    };
    let config = config.or_else(|| environment.variable(&variable_name(CONFIG)).map(OsStr::to_owned));
    let file = match config {
        Some(path) => Some((environment.absolute(Path::new(&path)), true)),
        None => settings_file::find(environment).map(|path| {
            let is_trusted = settings_file::is_of_the_user(&path, environment);
            (path, is_trusted)
        }),
    };
    let file_outcome = file.map_or(Ok(()), |(path, is_trusted)| settings.add_file(&path, is_trusted));
    settings.add_variables(environment);

    let typed = match typed {
        Ok(typed) => typed,
        Err(error) => {
            // What clap tells reads better without the `=false` of switches.
            let error = match plain.try_get_matches_from(arguments) {
                Err(plain) if plain.kind() == error.kind() => plain,
                _ => error,
            };
            if !error.use_stderr() {
                return Err(Stop::Told(error));
            }
            if let Some(format) = scan(arguments, "format") {
                settings.set("format", vec![format], Origin::Flag);
            }
            return Err(Stop::Failed(error.into(), format(&settings)));
        }
    };
    let typed = Typed::of(&command, &typed);
    typed.add_to(&mut settings);
    file_outcome.map_err(|failure| Stop::Failed(failure, format(&settings)))?;

    let completed = command.clone().try_get_matches_from(typed.completed_by(&settings));
    match completed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok((cli, settings)),
        Err(error) => {
            let hint = origin_hint(&error, &settings);
            let failure = hint.into_iter().fold(Failure::from(error), Failure::with_hint);
            Err(Stop::Failed(failure, format(&settings)))
        }
    }
}

/// A command line that clap has made sense of: a verb, and what it was given.
struct Typed<'a> {
    command: &'a Command,
    /// `config show` is two words.
    words: Vec<OsString>,
    verb: &'a Command,
    matches: &'a ArgMatches,
}

impl<'a> Typed<'a> {
    fn of(command: &'a Command, matches: &'a ArgMatches) -> Self {
        let mut typed = Self { command, words: Vec::new(), verb: command, matches };
        while let Some((name, matches)) = typed.matches.subcommand()
            && let Some(verb) = typed.verb.find_subcommand(name)
        {
            typed.words.push(name.into());
            (typed.verb, typed.matches) = (verb, matches);
        }
        typed
    }

    fn values(&self, id: &str) -> Vec<OsString> {
        let values = self.matches.try_get_raw(id).ok().flatten();
        values.map(|values| values.map(OsStr::to_owned).collect()).unwrap_or_default()
    }

    fn add_to(&self, settings: &mut Settings) {
        for arg in options(self.command, self.verb) {
            let id = arg.get_id().as_str();
            if let Some(key) = arg.get_long()
                && self.matches.value_source(id) == Some(ValueSource::CommandLine)
            {
                settings.set(key, self.values(id), Origin::Flag);
            }
        }
    }

    /// The same, with every setting that somebody made written as an option.
    fn completed_by(&self, settings: &Settings) -> Vec<OsString> {
        let mut line = vec![self.command.get_name().into()];
        line.extend(self.words.iter().cloned());
        for key in options(self.command, self.verb).filter_map(Arg::get_long) {
            let Some(setting) = settings.by_key.get(key) else { continue };
            if setting.origin != Origin::Default {
                line.extend(setting.values.iter().map(|value| {
                    let mut option = OsString::from(format!("--{key}="));
                    option.push(value);
                    option
                }));
            }
        }
        line.push("--".into());
        line.extend(self.verb.get_positionals().flat_map(|arg| self.values(arg.get_id().as_str())));
        line
    }
}

/// The same command line, with switches that may also be turned off: `--strict`, `--strict=false`.
fn with_negatable_switches(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_action() {
            ArgAction::SetTrue => arg
                .action(ArgAction::Set)
                .num_args(0..=1)
                .require_equals(true)
                .value_name("true|false")
                .default_missing_value("true")
                .default_value("false")
                .value_parser(BoolishValueParser::new()),
            _ => arg,
        })
        .mut_subcommands(with_negatable_switches)
}

/// The options of every verb and those of a verb itself.
fn options<'a>(command: &'a Command, verb: &'a Command) -> impl Iterator<Item = &'a Arg> {
    command.get_arguments().chain(verb.get_arguments()).filter(|arg| arg.get_long().is_some())
}

fn all_arguments(command: &Command) -> Vec<&Arg> {
    let below = command.get_subcommands().flat_map(all_arguments);
    command.get_arguments().chain(below).collect()
}

/// An option's value in a command line that clap could not make sense of.
fn scan(arguments: &[OsString], key: &str) -> Option<OsString> {
    let option = format!("--{key}");
    let words = arguments.iter().take_while(|word| *word != "--").collect::<Vec<_>>();
    words.iter().enumerate().rev().find_map(|(position, word)| {
        let word = word.to_str()?;
        match word.strip_prefix(&option)? {
            "" => words.get(position + 1).map(|value| (*value).clone()),
            rest => rest.strip_prefix('=').map(OsString::from),
        }
    })
}

fn format(settings: &Settings) -> Format {
    let value = settings.by_key.get("format").and_then(|setting| setting.values.last()?.to_str());
    value.and_then(|value| clap::ValueEnum::from_str(value, false).ok()).unwrap_or_default()
}

/// Where a wrong value stands, when it was not typed.
fn origin_hint(error: &clap::Error, settings: &Settings) -> Option<String> {
    if !matches!(error.kind(), ClapErrorKind::InvalidValue | ClapErrorKind::ValueValidation) {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let key = option.trim_start_matches("--").split([' ', '[', '=']).next()?;
    let origin = settings.origin(key);
    (*origin != Origin::Flag).then(|| format!("the value of `{key}` comes from {origin}"))
}

fn split(values: &OsStr) -> Vec<OsString> {
    // A separator is ASCII, so it never lies within another character.
    match values.to_str() {
        Some(text) => text.split(char::from(VALUE_SEPARATOR)).map(|value| value.trim().into()).collect(),
        None => vec![values.to_owned()],
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::cli::{Dependencies, LogLevel, Verb};

    /// Folders of a user in a repository, with variables.
    struct Surroundings {
        folder: tempfile::TempDir,
        environment: Environment,
    }

    impl Surroundings {
        fn new(file: &str, variables: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join(".git")).unwrap();
            fs::create_dir_all(folder.path().join("vpc")).unwrap();
            if !file.is_empty() {
                fs::write(folder.path().join("ocimod.toml"), file).unwrap();
            }
            let environment = Environment {
                working_folder: folder.path().join("vpc"),
                variables: variables.iter().map(|(name, value)| ((*name).into(), value.into())).collect(),
                ..Environment::default()
            };
            Self { folder, environment }
        }

        /// The file of the repository.
        fn file(&self) -> PathBuf {
            self.folder.path().join("ocimod.toml")
        }

        fn resolve(&self, line: &str) -> Result<(Cli, Settings), Stop> {
            let arguments = ["ocimod"].into_iter().chain(line.split_whitespace()).map(OsString::from);
            resolve(&arguments.collect::<Vec<_>>(), &self.environment)
        }

        fn push(&self, line: &str) -> (crate::cli::Push, Settings) {
            match self.resolve(line) {
                Ok((Cli { verb: Verb::Push(push), .. }, settings)) => (push, settings),
                Ok(_) => panic!("not a push"),
                Err(stop) => panic!("{}", told(stop).1),
            }
        }

        fn refused(&self, line: &str) -> (Format, String) {
            told(self.resolve(line).err().unwrap())
        }
    }

    fn told(stop: Stop) -> (Format, String) {
        match stop {
            Stop::Told(help) => (Format::Text, help.to_string()),
            Stop::Failed(failure, format) => {
                (format, format!("{} | {}", failure.message(), failure.hints().join(" | ")))
            }
        }
    }

    #[test]
    fn every_option_has_a_variable_and_a_key() {
        let command = with_negatable_switches(Cli::command());
        let mut seen = BTreeSet::new();
        for verb in command.get_subcommands() {
            for arg in options(&command, verb) {
                let key = arg.get_long().unwrap();
                let value = match (key, arg.get_possible_values().first()) {
                    (_, Some(value)) => value.get_name().to_owned(),
                    ("metrics-listen", None) => "127.0.0.1:0".to_owned(),
                    ("mirror-allow", None) => "registry.example/*".to_owned(),
                    ("max-requests" | "max-connections" | "quota", None) => "7".to_owned(),
                    (CONFIG, None) => "ocimod.toml".to_owned(),
                    ("base-path", None) => "/x".to_owned(),
                    // What has a form of its own has a default of that form.
                    _ => arg
                        .get_default_values()
                        .first()
                        .map_or("x".to_owned(), |value| value.to_string_lossy().into_owned()),
                };
                let words = match verb.get_name() {
                    "config" => "config show".to_owned(),
                    "completion" => "completion bash".to_owned(),
                    "store" => "store verify x".to_owned(),
                    "token" => "token new x".to_owned(),
                    "provider" => "provider list".to_owned(),
                    name => format!(
                        "{name}{}",
                        " x".repeat(verb.get_positionals().filter(|arg| arg.is_required_set()).count())
                    ),
                };

                let surroundings = Surroundings::new(" ", &[(&variable_name(key), &value)]);
                fs::write(surroundings.environment.working_folder.join("ocimod.toml"), "").unwrap();
                let Ok((_, settings)) = surroundings.resolve(&words) else { panic!("{words} with {key}") };
                assert_eq!(*settings.origin(key), Origin::Variable { name: variable_name(key) }, "{words}");

                if key != CONFIG {
                    let surroundings = Surroundings::new(&format!("{key} = '{value}'"), &[]);
                    // Named, for in the file of a repository not every key may stand.
                    let words = format!("{words} --config {}", surroundings.file().display());
                    let Ok((_, settings)) = surroundings.resolve(&words) else {
                        panic!("{words} with {key}")
                    };
                    assert!(
                        matches!(settings.origin(key), Origin::File { line: 1, .. }),
                        "{words} with {key}"
                    );
                }
                seen.insert(key);
            }
            assert!(
                options(&command, verb).all(|arg| !arg.is_required_set()),
                "an option that must be typed could not be set elsewhere"
            );
            let unnamed = verb.get_opts().filter(|arg| arg.get_long().is_none()).count();
            assert_eq!(unnamed, 0, "an option without a long name has no key");
        }
        assert!(seen.len() > 20);
    }

    #[test]
    fn an_option_of_two_verbs_takes_the_same_in_both() {
        let command = Cli::command();
        let mut kinds = BTreeMap::new();
        for arg in all_arguments(&command) {
            let Some(key) = arg.get_long() else { continue };
            let kind = (format!("{:?}", arg.get_action()), arg.get_value_parser().type_id());
            assert_eq!(*kinds.entry(key).or_insert_with(|| kind.clone()), kind, "{key}");
        }
    }

    #[test]
    fn no_option_takes_a_secret() {
        for arg in all_arguments(&Cli::command()) {
            let key = arg.get_long().unwrap_or_default();
            let is_secret = ["password", "token", "secret", "key"].iter().any(|word| key.contains(word));
            let is_file = arg.get_value_names().is_some_and(|names| *names == ["FILE"]);
            assert!(!is_secret || is_file || key.ends_with("-stdin"), "{key}");
        }
    }

    #[test]
    fn options_win_over_variables_and_variables_over_the_file() {
        let file = "namespace = 'file'\nhost = 'file.example'\nversion = '1.0.0'\n";
        let surroundings =
            Surroundings::new(file, &[("OCIMOD_HOST", "variable.example"), ("OCIMOD_VERSION", "2.0.0")]);
        let (push, settings) = surroundings.push("push vpc acme/vpc/aws --version 3.0.0");
        let path = surroundings.folder.path().join("ocimod.toml");
        assert_eq!(push.module.namespace.as_deref(), Some("file"));
        assert_eq!(*settings.origin("namespace"), Origin::File { path: path.clone(), line: 1 });
        assert_eq!(push.module.host.as_deref(), Some("variable.example"));
        assert_eq!(*settings.origin("host"), Origin::Variable { name: "OCIMOD_HOST".into() });
        assert_eq!(push.module.version.as_deref(), Some("3.0.0"));
        assert_eq!(*settings.origin("version"), Origin::Flag);
        assert_eq!(push.deps, None);
        assert_eq!(*settings.origin("deps"), Origin::Default);
        assert_eq!((push.source, push.address.as_deref()), ("vpc".into(), Some("acme/vpc/aws")));
        assert_eq!(settings.file(), Some(path.as_path()));
    }

    #[test]
    fn options_of_every_verb_stand_before_or_behind_it() {
        let surroundings = Surroundings::new("registry = 'file'", &[("OCIMOD_LOG_LEVEL", "debug")]);
        for line in
            ["--registry r --plain-http push vpc", "push vpc --registry=r --plain-http", "push -- vpc"]
        {
            let (cli, settings) = surroundings.resolve(line).ok().unwrap();
            let is_typed = line.contains("--registry");
            assert_eq!(cli.registry.registry.as_deref(), Some(if is_typed { "r" } else { "file" }), "{line}");
            assert_eq!(*settings.origin("registry") == Origin::Flag, is_typed, "{line}");
            assert_eq!(cli.registry.plain_http, is_typed, "{line}");
            assert_eq!(cli.global.log_level, Some(LogLevel::Debug));
        }
    }

    #[test]
    fn a_switch_that_is_on_can_be_turned_off() {
        let surroundings = Surroundings::new("strict = true\ndry-run = true", &[("OCIMOD_QUIET", "1")]);
        let (push, _) = surroundings.push("push vpc");
        assert!(push.module.strict && push.dry_run);
        let (push, _) = surroundings.push("push vpc --strict=false");
        assert!(!push.module.strict && push.dry_run);
        let surroundings = Surroundings::new("strict = true", &[("OCIMOD_STRICT", "off")]);
        assert!(!surroundings.push("push vpc").0.module.strict);
        assert!(surroundings.push("push -qn vpc --strict").0.dry_run);
    }

    #[test]
    fn lists_are_replaced_as_a_whole() {
        let surroundings = Surroundings::new("host-alias = ['a', 'b']", &[]);
        assert_eq!(surroundings.push("push vpc").0.module.host_alias, ["a", "b"]);
        assert_eq!(
            surroundings.push("push vpc --host-alias c --host-alias d").0.module.host_alias,
            ["c", "d"]
        );
        let surroundings = Surroundings::new("host-alias = ['a']", &[("OCIMOD_HOST_ALIAS", "c, d")]);
        assert_eq!(surroundings.push("push vpc").0.module.host_alias, ["c", "d"]);
    }

    #[test]
    fn what_begins_with_a_hyphen_or_is_empty_passes() {
        let surroundings = Surroundings::new("namespace = '--strict'", &[("OCIMOD_HOST", "")]);
        let (push, settings) = surroundings.push("push -- -n");
        assert_eq!(push.module.namespace.as_deref(), Some("--strict"));
        assert_eq!(push.source, PathBuf::from("-n"));
        assert!(!push.module.strict && !push.dry_run);
        assert_eq!(*settings.origin("host"), Origin::Default);
    }

    #[test]
    fn a_repository_s_file_does_not_decide_what_is_written_opened_or_trusted() {
        for line in [
            "output = '/etc/x'",
            "print-address = 'x'",
            "cache-dir = 'x'",
            "cache-disk = '1MiB'",
            "cache-size = '1MiB'",
            "listen = '0.0.0.0:1'",
            "allow-anonymous = true",
            "plain-http = true",
            "ca-file = 'ca.pem'",
            "registry = 'a.example,b.example=c.example+insecure'",
            "from = 'c.example+insecure'",
            "to = 'registry.example.com'",
        ] {
            let surroundings = Surroundings::new(line, &[]);
            let Err(stop) = surroundings.resolve("serve") else { panic!("{line}") };
            let (_, message) = told(stop);
            assert!(message.contains("ocimod.toml:1: "), "{message}");
            // The user may name the file, or say it in an own one.
            let named = format!("serve --config {}", surroundings.file().display());
            assert!(surroundings.resolve(&named).is_ok(), "{line}");
        }
        for line in
            ["registry = 'ghcr.io/acme'", "registry = '127.0.0.1:5000+insecure'", "namespace = 'acme'"]
        {
            assert!(Surroundings::new(line, &[]).resolve("serve").is_ok(), "{line}");
        }
    }

    #[test]
    fn paths_in_the_file_count_from_the_file() {
        let surroundings = Surroundings::new("ca-file = 'ca.pem'\nregistry = 'dir:store'", &[]);
        let named = format!("--config {}", surroundings.file().display());
        let (cli, settings) = surroundings.resolve(&format!("push . {named}")).ok().unwrap();
        assert_eq!(cli.registry.ca_file, Some(surroundings.folder.path().join("ca.pem")));
        assert_eq!(cli.registry.registry.as_deref(), Some("dir:store"));
        assert_eq!(settings.folder_of("registry"), surroundings.folder.path());
        let (cli, settings) =
            surroundings.resolve(&format!("push . {named} --ca-file x.pem --registry dir:y")).ok().unwrap();
        assert_eq!(cli.registry.ca_file, Some("x.pem".into()));
        assert_eq!(settings.folder_of("registry"), surroundings.environment.working_folder);
    }

    #[test]
    fn a_file_may_be_named() {
        let surroundings = Surroundings::new("nonsense = 1", &[]);
        let named = surroundings.environment.working_folder.join("other.toml");
        fs::write(&named, "deps = 'none'").unwrap();
        let (push, settings) = surroundings.push("push x --config other.toml");
        assert_eq!(push.deps, Some(Dependencies::None));
        assert_eq!(settings.file(), Some(named.as_path()));
        let (_, told) = surroundings.refused("push x --config absent.toml");
        assert!(told.contains("absent.toml cannot be read"), "{told}");
    }

    #[test]
    fn a_wrong_value_is_refused_with_the_place_where_it_stands() {
        let surroundings = Surroundings::new("deps = 'inlined'", &[("OCIMOD_LOG_LEVEL", "loud")]);
        let (_, told) = surroundings.refused("push x --log-level info");
        assert!(told.starts_with("invalid value 'inlined' for '--deps <FORM>'"), "{told}");
        assert!(
            told.contains("the value of `deps` comes from /") && told.ends_with("ocimod.toml:1"),
            "{told}"
        );
        let (_, told) = surroundings.refused("push x --deps none");
        assert!(told.ends_with("the value of `log-level` comes from variable OCIMOD_LOG_LEVEL"), "{told}");
        let (_, told) = surroundings.refused("push x --deps nine --log-level info");
        assert!(!told.contains("comes from"), "{told}");
        assert!(
            surroundings.resolve("push x --deps none --log-level info").is_ok(),
            "what is overruled is not read"
        );
    }

    #[test]
    fn wrong_usage_is_told_in_the_format_that_was_asked_for() {
        let surroundings = Surroundings::new("", &[]);
        let (format, told) = surroundings.refused("push x --format json --frobnicate");
        assert_eq!(format, Format::Json);
        insta::assert_snapshot!(told, @"unexpected argument '--frobnicate' found | a similar argument exists: '--format'");
        assert_eq!(surroundings.refused("push --format=json").0, Format::Json);
        assert_eq!(surroundings.refused("push --format json --format text").0, Format::Text);
        assert_eq!(surroundings.refused("push -- --format json -n a b c").0, Format::Text);
        assert_eq!(surroundings.refused("push --strcit").0, Format::Text);
        insta::assert_snapshot!(surroundings.refused("push x --strcit").1, @"unexpected argument '--strcit' found | a similar argument exists: '--strict'");
        insta::assert_snapshot!(surroundings.refused("pusj x").1, @"unrecognized subcommand 'pusj' | a similar subcommand exists: 'push'");
        insta::assert_snapshot!(surroundings.refused("pull").1, @"the following required arguments were not provided: <ADDRESS[@CONSTRAINT]> |");
        let surroundings = Surroundings::new("format = 'json'\nnonsense = 1", &[]);
        assert_eq!(surroundings.refused("push x").0, Format::Text, "a file with an error says nothing");
        let surroundings = Surroundings::new("nonsense = 1", &[("OCIMOD_FORMAT", "json")]);
        assert_eq!(surroundings.refused("push x").0, Format::Json);
    }

    #[test]
    fn help_needs_no_settings_that_are_right() {
        let surroundings = Surroundings::new("nonsense = 1", &[("OCIMOD_FORMAT", "xml")]);
        let Err(Stop::Told(help)) = surroundings.resolve("push --help") else { panic!("no help") };
        let help = help.to_string();
        assert!(help.contains("--strict\n") && help.contains("-n, --dry-run\n"), "{help}");
        assert!(matches!(surroundings.resolve("--version"), Err(Stop::Told(_))));
    }
}
