//! `ocimod login`: keeps a login for a registry, where every tool finds it.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::context::wrong;
use super::failure::{ExitStatus, Failure};
use super::printer::Answer;
use super::prompt;
use crate::operations::login;
use crate::operations::registry_setting::RegistryLocation;
use crate::registry::credentials::{Credential, LoginScope};
use crate::registry::remote::LoginOutcome;

/// Log in to a registry: `docker`, `podman`, `crane` and the like are logged in too
///
/// The registry is asked whether it takes the login, which is then kept in the file that wins for that registry, or by the credential
/// helper that this file names. The password is asked for, or read from stdin; it is never an argument.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod login ghcr.io
  echo \"$TOKEN\" | ocimod login registry.example.com/acme -u robot --password-stdin")]
pub struct Login {
    /// The registry, or one and the beginning of its repositories' names
    #[arg(value_name = "REGISTRY")]
    pub address: String,
    /// Who you are there
    #[arg(long, short, value_name = "NAME")]
    pub username: Option<String>,
    /// Read the password, or a token in its place, from stdin
    #[arg(long)]
    pub password_stdin: bool,
    /// Read an identity token (a refresh token of OAuth2) from stdin
    #[arg(long)]
    pub identity_token_stdin: bool,
    /// Ask the registry, and only say where the login would be kept
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// `registry`, `username`, `file`, `helper`, `verified`, `kept`.
#[derive(Serialize)]
struct LoginAnswer {
    registry: String,
    username: Option<String>,
    file: PathBuf,
    helper: Option<String>,
    verified: bool,
    kept: bool,
}

impl Answer for LoginAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let who = self.username.as_ref().map(|name| format!(" as {name}")).unwrap_or_default();
        let place = match &self.helper {
            Some(helper) => format!("by docker-credential-{helper}, as {} says", self.file.display()),
            None => format!("in {}", self.file.display()),
        };
        if self.kept {
            writeln!(text, "logged in to {}{who}; kept {place}", self.registry)
        } else {
            writeln!(text, "the login to {}{who} would be kept {place}", self.registry)
        }
    }
}

/// The registry of a login or logout.
pub(super) fn parse_registry(address: &str) -> Result<(RegistryLocation, LoginScope), Failure> {
    let location: RegistryLocation = address.parse().map_err(wrong)?;
    let scope = login::scope(&location)?;
    Ok((location, scope))
}

impl Login {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let (location, scope) = parse_registry(&self.address)?;
        let connection = context.connection_alone()?;
        self.check()?;
        let place = login::place(context.credential_environment(), scope.clone()).await?;
        let (username, credential) = self.credential(context, &scope).await?;
        let (file, helper) = (place.file().to_owned(), place.helper().map(str::to_owned));
        let narrower = place.narrower().to_vec();

        let outcome = login::log_in(&connection, &location, place, credential, self.dry_run).await;
        // The advice to log in is none for whoever does just that.
        let outcome = outcome.map_err(|error| Failure::from(error).without_hints())?;
        if outcome == LoginOutcome::NotAsked {
            context.printer.warning(&format!(
                "{} asks nobody for a login, so nothing is known of this one",
                scope.registry
            ));
        }
        if helper.is_none() && !self.dry_run {
            context.printer.note(&format!(
                "the login stands in {} as it is, for you alone to read; a credential helper that is named there would lock it away",
                file.display()
            ));
        }
        for narrower in &narrower {
            context.printer.note(&format!("the login for {narrower} goes before this one there"));
        }
        context.printer.answer(&LoginAnswer {
            registry: scope.to_string(),
            username,
            file,
            helper,
            verified: outcome == LoginOutcome::Accepted,
            kept: !self.dry_run,
        })?;
        Ok(ExitStatus::Done)
    }

    /// What can be said of the options before anything is read.
    fn check(&self) -> Result<(), Failure> {
        if self.password_stdin && self.identity_token_stdin {
            return Err(Failure::usage(
                "`--password-stdin` and `--identity-token-stdin` exclude each other: there is one stdin",
            ));
        }
        if self.password_stdin && self.username.is_none() {
            return Err(Failure::usage("`--password-stdin` needs to know whose password it is")
                .with_hint("say it with `-u NAME`"));
        }
        match &self.username {
            Some(name) => check_username(name),
            None => Ok(()),
        }
    }

    /// The user name and the credential, of the options, of stdin, or of the person in front of the terminal.
    async fn credential(
        &self,
        context: &Context,
        scope: &LoginScope,
    ) -> Result<(Option<String>, Credential), Failure> {
        let is_terminal = context.environment.stdin_is_terminal;
        let reads_stdin = self.password_stdin || self.identity_token_stdin;
        if !is_terminal && !reads_stdin {
            return Err(Failure::usage("there is no terminal to ask for a password at")
                .with_hint("write it to stdin: `... | ocimod login REGISTRY -u NAME --password-stdin`"));
        }
        let username = match &self.username {
            Some(name) => Some(name.clone()),
            None if self.identity_token_stdin => None,
            None => {
                let name = prompt::line(context, &format!("User name for {scope}: ")).await?;
                check_username(&name)?;
                Some(name)
            }
        };
        let what = if self.identity_token_stdin { "Identity token" } else { "Password" };
        let secret = if is_terminal {
            prompt::secret(context, &format!("{what} for {scope}: ")).await?
        } else {
            prompt::secret_of_stdin().await?
        };
        if secret.is_empty() {
            return Err(Failure::usage(format!("the {} is empty", what.to_lowercase())));
        }
        let credential = if self.identity_token_stdin {
            Credential::identity_token(username.clone().unwrap_or_default(), secret)
        } else {
            Credential::Basic { username: username.clone().unwrap_or_default(), password: secret }
        };
        Ok((username, credential))
    }
}

/// What cannot stand before the colon of a login (RFC 7617), or would be taken for nobody.
fn check_username(name: &str) -> Result<(), Failure> {
    let is_fine = !name.is_empty() && !name.contains(|letter: char| letter == ':' || letter.is_control());
    if is_fine && name != "<token>" {
        return Ok(());
    }
    Err(Failure::usage(format!("`{}` cannot be a user name", name.escape_debug())).with_hint(
        "a user name is not empty and holds no colon; an identity token is handed over with `--identity-token-stdin`",
    ))
}
