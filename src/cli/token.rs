//! `ocimod token new`: a token for a server's access file.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;

use super::Context;
use super::expiry::Expiry;
use super::failure::{Classify, ErrorKind, ExitStatus, Failure};
use super::printer::Answer;
use crate::operations::access::{AccessFileError, NewToken, Pattern, Right, TokenEntry, add_token, now};
use crate::operations::{blocking, rfc3339};

/// Make tokens for `ocimod serve --access`
#[derive(Args, Clone, Debug)]
pub struct Token {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Clone, Debug, Subcommand)]
enum TokenVerb {
    New(New),
}

/// Add a token to an access file and print it, once: only its hash is kept
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod token new alice --allow read --access access.toml
  ocimod token new ci --allow read,push --repositories 'acme/*' --expires 90d --access access.toml")]
struct New {
    /// What the token is called, in the file and in the log
    #[arg(value_name = "NAME")]
    name: String,
    /// What it allows; to push is not to read
    #[arg(long, value_name = "RIGHT", value_delimiter = ',', value_parser = rights())]
    allow: Vec<Right>,
    /// Where: patterns of repositories, in which `*` stands for anything [default: everywhere]
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    repositories: Vec<Pattern>,
    /// When it ends: `90d`, `12h`, or a date [default: never]
    #[arg(long, value_name = "WHEN")]
    expires: Option<Expiry>,
    /// The access file; made where there is none
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    access: Option<PathBuf>,
}

fn rights() -> impl TypedValueParser<Value = Right> {
    PossibleValuesParser::new(Right::ALL.map(Right::as_str)).try_map(|text| text.parse::<Right>())
}

/// `name`, `token`, `file`, `allow`, `repositories` (null for all of them), `expires` (null for never).
#[derive(Serialize)]
struct NewAnswer<'a> {
    name: &'a str,
    token: &'a str,
    file: PathBuf,
    allow: Vec<&'static str>,
    repositories: Option<Vec<&'a str>>,
    expires: Option<String>,
}

impl Answer for NewAnswer<'_> {
    /// The token alone, so that it can go where it belongs without being looked at.
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        text.push_str(self.token);
        text.push('\n');
        Ok(())
    }
}

impl Token {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let TokenVerb::New(new) = &self.verb;
        new.run(context).await
    }
}

impl New {
    async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let Some(file) = &self.access else {
            return Err(Failure::usage("`ocimod token new` needs to know the access file")
                .with_hint("name the one that the server reads: `--access FILE`"));
        };
        if self.allow.is_empty() {
            return Err(Failure::usage(format!("it is not said what the token `{}` allows", self.name))
                .with_hint("say it with `--allow read`, or `--allow read,push`"));
        }
        let expires = self.expires.map(|expiry| expiry.after(now())).map(|expires| {
            expires.ok_or_else(|| {
                Failure::usage("`--expires` is in the past, or beyond the year 9999")
                    .with_hint("a date ends a token where that day begins, in UTC")
            })
        });
        let expires = expires.transpose()?;
        let mut rights = self.allow.clone();
        rights.sort_unstable();
        rights.dedup();

        let file = context.environment.absolute(file);
        let token =
            NewToken::generate().map_err(|error| Failure::new(ErrorKind::Failed, error.to_string()))?;
        let entry = TokenEntry {
            name: self.name.clone(),
            hash: token.hash(),
            rights: rights.clone(),
            repositories: self.repositories.clone(),
            expires,
        };
        let path = file.clone();
        blocking(move || Ok(add_token(&path, &entry))).await??;
        context.printer.answer(&NewAnswer {
            name: &self.name,
            token: token.reveal(),
            file: file.clone(),
            allow: rights.iter().map(|right| right.as_str()).collect(),
            repositories: (!self.repositories.is_empty())
                .then(|| self.repositories.iter().map(Pattern::as_str).collect()),
            expires: expires.map(rfc3339),
        })?;
        context.printer.note(&format!(
            "added `{}` to {}; the token is not kept anywhere, so keep it now",
            self.name,
            file.display()
        ));
        if !rights.contains(&Right::Read) {
            context.printer.hint(
                "the token sees nothing of what is there, as `read` is not among what it allows; most clients want both",
            );
        }
        Ok(ExitStatus::Done)
    }
}

impl Classify for AccessFileError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Exists { .. } => ErrorKind::Refused,
            Self::TooLarge { .. } | Self::Wrong { .. } | Self::Name(_) | Self::NotAppendable { .. } => {
                ErrorKind::Usage
            }
            Self::Unreadable { .. } | Self::Unwritable { .. } | Self::Owner { .. } => ErrorKind::Failed,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Exists { .. } => {
                "take another name, such as one with the date; the old token goes when its table is removed from the file".to_owned()
            }
            Self::Owner { .. } => "run it as the user whose file it is".to_owned(),
            _ => return None,
        })
    }
}
