//! `ocimod config show`: every setting, its value, and where that comes from; and `config client`: what a server's users paste.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::module_options::{parse_address, parse_host};
use super::printer::{Answer, write_columns};
use super::registry_options::user_folder;
use super::settings::{Origin, Setting, variable_name};
use crate::artifact;
use crate::module::VersionQuery;
use crate::operations::OperationError;
use crate::operations::client_setup::{ClientSetup, ClientSetupRequest, ServerAddress};
use crate::operations::published;
use crate::operations::routes::Place;
use crate::server::BasePath;

/// Show how this program is set up
#[derive(Args, Clone, Debug)]
pub struct Config {
    #[command(subcommand)]
    verb: ConfigVerb,
}

#[derive(Clone, Debug, Subcommand)]
enum ConfigVerb {
    Show(Show),
    Client(Client),
}

/// Show every setting, its value and where it comes from; or where a module would be kept
#[derive(Args, Clone, Debug)]
struct Show {
    /// The module whose place is shown
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
}

/// Show what a user of a server pastes: client configuration, token, module block
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ocimod config client modules.acme.example
  ocimod config client http://127.0.0.1:8080
  ocimod config client modules.acme.example --for registry.opentofu.org")]
struct Client {
    /// The server: `HOST[:PORT]`, or a URL; https unless it is on this machine or says `http://`
    #[arg(value_name = "HOST")]
    server: String,
    /// The host that users write in `source` [default: the server's own]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The path in front of every route, where the server has one
    #[arg(long, value_name = "PATH")]
    base_path: Option<BasePath>,
    /// Get the modules of this other host from the server
    #[arg(long = "for", value_name = "HOST")]
    in_place_of: Option<String>,
}

impl Answer for ClientSetup {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        text.write_str(&self.text())
    }
}

/// `address`; `places`: the repositories where the module may be, it is pushed to the first; `mappings`: the same in parts; `rule`: the part of
/// the registry setting that leads there.
#[derive(Serialize)]
struct ShownPlaces {
    address: String,
    places: Vec<String>,
    mappings: Vec<Mapping>,
    rule: String,
}

/// What a module is called in a registry. Where no version is named, `X.Y.Z` stands for one in `tag`.
#[derive(Serialize)]
struct Mapping {
    registry: String,
    repository: String,
    tag: String,
}

impl Answer for ShownPlaces {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let mut rows = Vec::new();
        for mapping in &self.mappings {
            rows.extend([
                ["registry", &mapping.registry],
                ["repository", &mapping.repository],
                ["tag", &mapping.tag],
            ]);
        }
        rows.push(["rule", &self.rule]);
        write_columns(text, &rows)
    }
}

#[derive(Serialize)]
struct ShownSettings {
    /// The settings file that was read.
    file: Option<PathBuf>,
    settings: Vec<ShownSetting>,
}

#[derive(Serialize)]
struct ShownSetting {
    key: String,
    /// A text, a list of texts for what may be repeated, or null.
    value: Value,
    origin: Origin,
    variable: String,
}

impl Answer for ShownSettings {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let cells = self.settings.iter().map(ShownSetting::cells).collect::<Vec<_>>();
        let rows = cells.iter().map(|row| row.each_ref().map(String::as_str)).collect::<Vec<_>>();
        write_columns(text, &rows)
    }
}

impl ShownSetting {
    fn of(key: &str, setting: &Setting) -> Self {
        let mut texts = setting.values.iter().map(|value| value.to_string_lossy().into_owned());
        let value = if setting.is_repeatable {
            texts.collect()
        } else {
            texts.next_back().map_or(Value::Null, Value::String)
        };
        Self { key: key.to_owned(), value, origin: setting.origin.clone(), variable: variable_name(key) }
    }

    fn cells(&self) -> [String; 3] {
        let value = match &self.value {
            Value::String(value) => value.clone(),
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            _ => String::new(),
        };
        let value = if value.is_empty() { "-".to_owned() } else { value };
        [self.key.clone(), value, self.origin.to_string()]
    }
}

impl Config {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        match &self.verb {
            ConfigVerb::Show(Show { address: Some(address) }) => show_places(context, address).await,
            ConfigVerb::Show(Show { address: None }) => Self::show_settings(context),
            ConfigVerb::Client(client) => client.show(context),
        }
    }

    fn show_settings(context: &Context) -> Result<ExitStatus, Failure> {
        let mut settings =
            context.settings.iter().map(|(key, setting)| ShownSetting::of(key, setting)).collect::<Vec<_>>();
        // The one default that depends on who asks.
        let unset = settings.iter_mut().find(|setting| setting.key == "registry" && setting.value.is_null());
        if let (Some(registry), Some(folder)) = (unset, user_folder(&context.environment)) {
            registry.value = format!("dir:{}", folder.display()).into();
        }
        context.printer.answer(&ShownSettings { file: context.settings.file().map(Into::into), settings })?;
        Ok(ExitStatus::Done)
    }
}

impl Client {
    fn show(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let server = ServerAddress::parse(&self.server).map_err(|error| Failure::usage(error.to_string()))?;
        let base_path = self.base_path.as_ref().map_or("", BasePath::as_str);
        let server = server.below(base_path).ok_or_else(|| {
            Failure::usage(format!("`{base_path}` is no path that can stand in front of every route"))
                .with_hint("write for example `--base-path /ocimod`")
        })?;
        let host = |host: &Option<String>| host.as_deref().map(parse_host).transpose();
        context.printer.answer(&ClientSetup::new(&ClientSetupRequest {
            server,
            host: host(&self.host)?,
            in_place_of: host(&self.in_place_of)?,
            asks_for_tokens: None,
            is_registry: None,
        }))?;
        Ok(ExitStatus::Done)
    }
}

async fn show_places(context: &Context, address: &str) -> Result<ExitStatus, Failure> {
    let address = parse_address(address)?;
    let module = published::name(&address)?;
    let tag = match &address.version {
        Some(VersionQuery::Constraint(constraint)) => {
            constraint.exact().map(|version| artifact::module_tag(&version)).transpose()
        }
        _ => Ok(None),
    };
    let tag = tag.map_err(|error| Failure::usage(error.to_string()))?;
    let tag = tag.map_or_else(|| "vX.Y.Z".to_owned(), |tag| tag.to_string());
    let routes = context.routes_to_read(&context.registry.choose(context)?).await?;
    let places = routes.places(&module).map_err(OperationError::from)?;
    let mapping = |place: &Place| Mapping {
        registry: place.target.name.clone(),
        repository: place.repository.to_string(),
        tag: format!("{}{tag}", place.tag_prefix()),
    };
    context.printer.answer(&ShownPlaces {
        address: module.to_string(),
        places: places.iter().map(Place::name).collect(),
        mappings: places.iter().map(mapping).collect(),
        rule: routes.route(module.path().as_str()).map(ToString::to_string).unwrap_or_default(),
    })?;
    Ok(ExitStatus::Done)
}
