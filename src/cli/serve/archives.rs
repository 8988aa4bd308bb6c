//! The options of `serve` for how zips reach the client.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::super::Context;
use super::super::duration::parse_duration;
use super::super::failure::Failure;
use crate::server::{ArchiveMode, Archives, Keys, Reloads};

/// Options for how zips reach the client
#[derive(Args, Clone, Debug)]
pub struct ArchiveOptions {
    /// How zips reach the client
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub archives: ArchiveChoice,
    /// Sign links to zips with these keys: one in base64 a line, the first signs [default: a key of the process's own]
    #[arg(long, value_name = "FILE")]
    pub link_key: Option<PathBuf>,
    /// How long a link to a zip holds
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub link_lifetime: Duration,
}

/// How zips reach the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArchiveChoice {
    /// From where the registry points to, if that is https elsewhere; else through this server
    Auto,
    /// Through this server
    Proxy,
    /// From where the registry points to, if it does; else through this server
    Redirect,
    /// From the registry itself, which has to let everybody read
    Direct,
}

impl ArchiveOptions {
    /// Reads the keys; from then on they are what the file says.
    pub(super) fn open(&self, context: &Context, reloads: &mut Reloads) -> Result<Archives, Failure> {
        if self.link_lifetime < Duration::from_secs(1) {
            return Err(Failure::usage("`--link-lifetime` is `0`, so every link would have expired at once")
                .with_hint("leave it out for 5m"));
        }
        let mode = match self.archives {
            ArchiveChoice::Auto => ArchiveMode::Auto,
            ArchiveChoice::Proxy => ArchiveMode::Proxy,
            ArchiveChoice::Redirect => ArchiveMode::Redirect,
            ArchiveChoice::Direct => ArchiveMode::Direct,
        };
        let archives = Archives { mode, link_lifetime: self.link_lifetime, ..Archives::default() };
        let Some(file) = &self.link_key else { return Ok(archives) };
        let parse = |contents: &[Vec<u8>]| {
            let text = contents.first().map(|content| str::from_utf8(content));
            let text = text.transpose().map_err(|_| "it is no text".to_owned())?;
            Keys::parse(text.unwrap_or_default()).map_err(|error| error.to_string())
        };
        let keys = reloads.read(vec![context.environment.absolute(file)], parse);
        let keys = keys.map_err(|error| {
            Failure::usage(error.to_string())
                .with_hint("the option is `--link-key`; every replica needs the same file")
        })?;
        Ok(Archives { keys: Some(keys), ..archives })
    }
}
