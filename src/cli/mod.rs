//! The command line face: what may be typed, one file a verb, and how a run goes from there to an exit status.
//!
//! No rule of the domain is here: a verb reads its options, calls one operation, and prints its answer.
//!
//! - [`settings`] completes what was typed by variables and by `ocimod.toml` ([`settings_file`]);
//! - [`printer`] is the only place that writes to the terminal;
//! - [`failure`] says what each error means to the caller.

mod catalog_option;
mod check;
mod completion;
mod config;
mod context;
mod copy;
mod delete;
mod duration;
mod environment;
mod expiry;
mod failure;
mod inspect;
mod list;
mod lock_options;
mod log_writer;
mod logging;
mod login;
mod logout;
mod module_options;
mod pack;
mod printer;
mod prompt;
mod provider;
mod pull;
mod push;
mod registry_options;
mod request_lines;
mod serve;
mod settings;
mod settings_file;
mod size;
mod store;
mod token;
mod version;
mod yank;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use check::Check;
pub use completion::Completion;
pub use config::Config;
pub use context::Context;
pub use copy::Copy;
pub use delete::Delete;
pub use environment::Environment;
pub use failure::{Classify, ErrorKind, ExitStatus, Failure};
pub use inspect::Inspect;
pub use list::List;
pub use logging::{LogFormat, LogLevel};
pub use login::Login;
pub use logout::Logout;
pub use module_options::ModuleOptions;
pub use pack::Pack;
pub use printer::{Answer, Format, Printer, Streams, visible};
pub use provider::Provider;
pub use pull::Pull;
pub use push::{Dependencies, Push};
pub use registry_options::{RegistryChoice, RegistryOptions};
pub use serve::Serve;
pub use settings::{Origin, Setting, Settings, variable_name};
pub use store::Store;
pub use token::Token;
pub use version::Version;
pub use yank::{Unyank, Yank};

use settings::Stop;

/// OpenTofu, Terraform and CUE modules in the OCI registry that you already have
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ocimod",
    version,
    max_term_width = 100,
    after_help = "Every option is also a variable (`--ca-file` is OCIMOD_CA_FILE) and a key of ocimod.toml (`ca-file`); \
`ocimod config show` lists them all.",
    after_long_help = "\
Every option is also a variable (`--ca-file` is OCIMOD_CA_FILE) and a key of ocimod.toml (`ca-file`), the nearest one
from here up to the root of the repository, else the user's. Options win over variables, and variables over the file.
What may be repeated is a list with commas in a variable; a switch is turned off by `=false`. `ocimod config show`
lists every setting, its value and where it comes from.

Exit status: 0 done; 1 failed; 2 wrong usage; 3 not found; 4 refused (a check, an immutable version); 5 not authorised;
6 unavailable, a second try may help."
)]
pub struct Cli {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub registry: RegistryOptions,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub global: GlobalOptions,
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub verb: Verb,
}

/// How a run is set up and speaks.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub struct GlobalOptions {
    /// Read settings from this file
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How to answer
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Print results and failures only
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// How to write the log
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// From which importance on to log [default: warn; info for `serve`]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
#[allow(missing_docs)] // each verb's type says it
pub enum Verb {
    Push(Push),
    Pull(Pull),
    Copy(Box<Copy>),
    #[command(visible_alias = "ls")]
    List(List),
    Inspect(Inspect),
    Check(Check),
    Pack(Pack),
    Serve(Box<Serve>),
    Provider(Provider),
    Yank(Yank),
    Unyank(Unyank),
    Delete(Delete),
    Login(Login),
    Logout(Logout),
    Store(Store),
    Token(Token),
    Config(Config),
    Completion(Completion),
    Version(Version),
}

/// Runs what was typed; the first argument is the program's name.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    environment: Environment,
    streams: Streams,
) -> ExitStatus {
    let arguments = arguments.into_iter().collect::<Vec<_>>();
    let (cli, settings) = match settings::resolve(&arguments, &environment) {
        Ok(resolved) => resolved,
        Err(Stop::Told(help)) => {
            let printer = Printer::new(streams, Format::Text, false);
            let told = printer.raw(help.render().ansi().to_string().as_bytes());
            return told.map_or_else(|failure| printer.failure(&failure), |()| ExitStatus::Done);
        }
        Err(Stop::Failed(failure, format)) => return Printer::new(streams, format, false).failure(&failure),
    };
    let Cli { registry, global, verb } = cli;
    let printer = Printer::new(streams, global.format, global.quiet);
    let is_server = matches!(verb, Verb::Serve(_));
    let usual_level = if is_server { LogLevel::Info } else { LogLevel::Warn };
    let level = global.log_level.unwrap_or(usual_level);
    let request_log = logging::start(&printer, global.log_format, level, is_server);

    let context = Context { environment, settings, registry, printer, request_log };
    let outcome = run_verb(verb, &context);
    log_writer::finish();
    outcome.unwrap_or_else(|failure| context.printer.failure(&failure))
}

fn run_verb(verb: Verb, context: &Context) -> Result<ExitStatus, Failure> {
    // These wait for nothing.
    match &verb {
        Verb::Completion(verb) => return verb.run(context),
        Verb::Version(verb) => return verb.run(context),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Failure::new(ErrorKind::Failed, format!("the program cannot start its threads: {error}"))
    })?;
    let outcome = runtime.block_on(async {
        match verb {
            Verb::Serve(verb) => verb.run(context).await,
            // Boxed, since a push is the largest of them by far, and a check is one that stops before the end.
            Verb::Push(verb) => until_interrupted(Box::pin(verb.run(context))).await,
            Verb::Pull(verb) => until_interrupted(verb.run(context)).await,
            Verb::Copy(verb) => until_interrupted(Box::pin(verb.run(context))).await,
            Verb::List(verb) => until_interrupted(verb.run(context)).await,
            Verb::Inspect(verb) => until_interrupted(verb.run(context)).await,
            Verb::Check(verb) => until_interrupted(Box::pin(verb.run(context))).await,
            Verb::Pack(verb) => until_interrupted(verb.run(context)).await,
            Verb::Provider(verb) => until_interrupted(Box::pin(verb.run(context))).await,
            Verb::Yank(verb) => until_interrupted(verb.run(context)).await,
            Verb::Unyank(verb) => until_interrupted(verb.run(context)).await,
            Verb::Delete(verb) => until_interrupted(verb.run(context)).await,
            Verb::Login(verb) => until_interrupted(verb.run(context)).await,
            Verb::Logout(verb) => until_interrupted(verb.run(context)).await,
            Verb::Store(verb) => until_interrupted(verb.run(context)).await,
            Verb::Token(verb) => verb.run(context).await,
            Verb::Config(verb) => verb.run(context).await,
            Verb::Completion(verb) => verb.run(context),
            Verb::Version(verb) => verb.run(context),
        }
    });
    // Work that still reads a file must not hold up the end.
    runtime.shutdown_background();
    outcome
}

/// Runs a verb until it ends or the user interrupts it: temporary files are removed either way.
async fn until_interrupted(
    verb: impl Future<Output = Result<ExitStatus, Failure>>,
) -> Result<ExitStatus, Failure> {
    tokio::select! {
        // First, so that a signal is waited for before there is anything to be interrupted: a terminal that shows nothing, say.
        biased;
        Ok(()) = tokio::signal::ctrl_c() => Err(Failure::new(ErrorKind::Failed, "interrupted")),
        outcome = verb => outcome,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::printer::captured;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment {
            working_folder: "/nowhere".into(),
            home: Some("/home/jo".into()),
            variables: variables.iter().map(|(name, value)| ((*name).into(), value.into())).collect(),
            ..Environment::default()
        }
    }

    fn run_line(line: &str, variables: &[(&str, &str)]) -> (ExitStatus, String, String) {
        let (streams, stdout, stderr) = captured::streams();
        let arguments = ["ocimod"].into_iter().chain(line.split_whitespace()).map(OsString::from);
        let status = run(arguments, environment(variables), streams);
        (status, stdout.text(), stderr.text())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_verbs_are_those_that_are_documented() {
        let command = Cli::command();
        let verbs = command.get_subcommands().map(clap::Command::get_name).collect::<Vec<_>>();
        assert_eq!(
            verbs,
            [
                "push",
                "pull",
                "copy",
                "list",
                "inspect",
                "check",
                "pack",
                "serve",
                "provider",
                "yank",
                "unyank",
                "delete",
                "login",
                "logout",
                "store",
                "token",
                "config",
                "completion",
                "version"
            ]
        );
        assert!(command.find_subcommand("ls").is_some());
    }

    #[test]
    fn the_version_is_told_in_both_formats() {
        let (status, stdout, stderr) = run_line("version", &[]);
        assert_eq!((status, stderr.as_str()), (ExitStatus::Done, ""));
        assert_eq!(stdout, format!("ocimod {}\n", env!("CARGO_PKG_VERSION")));
        assert_eq!(run_line("--version", &[]).1, stdout);
        let (_, stdout, _) = run_line("version --format json", &[]);
        let version: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn wrong_usage_has_status_two_and_json_where_asked_for() {
        let (status, stdout, stderr) = run_line("push --format json", &[]);
        assert_eq!(status, ExitStatus::WrongUsage);
        let failure: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(failure["error"]["kind"], "usage");
        assert!(stderr.contains("Usage: ocimod push"), "{stderr}");
        let (status, stdout, stderr) = run_line("", &[]);
        assert_eq!((status, stdout.as_str()), (ExitStatus::WrongUsage, ""));
        assert!(stderr.contains("Commands:") && stderr.contains("--plain-http  "), "{stderr}");
    }

    #[test]
    fn a_wrong_variable_names_itself_once() {
        let (status, _, stderr) = run_line("version", &[("OCIMOD_FORMAT", "xml")]);
        assert_eq!(status, ExitStatus::WrongUsage);
        insta::assert_snapshot!(stderr, @r"
        error: invalid value 'xml' for '--format <FORMAT>'
          [possible values: text, json]

        For more information, try '--help'.
        hint: the value of `format` comes from variable OCIMOD_FORMAT
        ");
    }

    #[test]
    fn the_settings_are_shown_with_where_they_come_from() {
        let variables = [("OCIMOD_CA_FILE", "/ca.pem"), ("OCIMOD_HOST_ALIAS", "a,b")];
        let (status, stdout, _) = run_line("config show --module-repository m/{name}", &variables);
        assert_eq!(status, ExitStatus::Done);
        insta::assert_snapshot!(stdout, @r"
        access                -                                          default
        all                   false                                      default
        allow                 -                                          default
        allow-anonymous       false                                      default
        anonymous             -                                          default
        archives              auto                                       default
        base-path             -                                          default
        ca-file               /ca.pem                                    variable OCIMOD_CA_FILE
        cache-dir             -                                          default
        cache-disk            10GiB                                      default
        cache-for             10s                                        default
        cache-size            64MiB                                      default
        catalog               -                                          default
        cert-file             -                                          default
        config                -                                          default
        deps                  -                                          default
        digests               false                                      default
        dry-run               false                                      default
        expires               -                                          default
        for                   -                                          default
        force                 false                                      default
        format                text                                       default
        from                  -                                          default
        grace                 1h                                         default
        host                  -                                          default
        host-alias            a,b                                        variable OCIMOD_HOST_ALIAS
        identity-token-stdin  false                                      default
        into-cue-cache        false                                      default
        key-file              -                                          default
        link-key              -                                          default
        link-lifetime         5m                                         default
        listen                127.0.0.1:8080                             default
        lock                  -                                          default
        locked                false                                      default
        log-format            text                                       default
        log-level             -                                          default
        max-blob              10GiB                                      default
        max-connections       -                                          default
        max-requests          -                                          default
        max-uploads           64                                         default
        metrics-listen        -                                          default
        mirror-allow          -                                          default
        mirror-upstream       false                                      default
        module-repository     m/{name}                                   command line
        namespace             -                                          default
        output                -                                          default
        password-stdin        false                                      default
        plain-http            false                                      default
        platform              -                                          default
        print-address         -                                          default
        provider-repository   providers/{hostname}/{namespace}/{type}    default
        push                  -                                          default
        quiet                 false                                      default
        quota                 -                                          default
        reason                -                                          default
        referrers             false                                      default
        registry              dir:/home/jo/.local/share/ocimod/registry  default
        repair                false                                      default
        repositories          -                                          default
        request-timeout       1m                                         default
        scan-every            60s                                        default
        stale-for             24h                                        default
        strict                false                                      default
        temporary             false                                      default
        tls-cert              -                                          default
        tls-key               -                                          default
        tls-self-signed       -                                          default
        to                    -                                          default
        trust-embedded        -                                          default
        update-lock           false                                      default
        username              -                                          default
        version               -                                          default
        with-dependencies     false                                      default
        ");
        let (_, stdout, _) = run_line("config show --format json", &variables);
        let shown: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let aliases = shown["settings"].as_array().unwrap().iter().find(|entry| entry["key"] == "host-alias");
        insta::assert_snapshot!(aliases.unwrap(), @r#"{"key":"host-alias","value":["a","b"],"origin":{"from":"variable","name":"OCIMOD_HOST_ALIAS"},"variable":"OCIMOD_HOST_ALIAS"}"#);
    }

    #[test]
    fn completion_scripts_are_made_for_every_shell() {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let (status, stdout, _) = run_line(&format!("completion {shell}"), &[]);
            assert_eq!(status, ExitStatus::Done);
            assert!(stdout.contains("module-repository"), "{shell}");
        }
    }
}
