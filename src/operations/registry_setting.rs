//! What `--registry` says: which registry a module is kept in, by its path, and what it is called there.
//!
//! The forms are those of `CUE_REGISTRY` (`cue help registryconfig`): a list with commas, or a configuration in CUE, in a file or in the
//! setting itself. What is added are the registries that are folders and files here. One thing is otherwise: a path that nothing fits has no
//! registry at all, so that a private name is never asked for at somebody's public one.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::module::{CueError, CueField, CueStruct, CueValue, parse_cue};
use crate::oci::{Repository, Tag};
use crate::registry::remote::RegistryHost;

use super::encoding::{Encoding, PathEncoding};

/// More than any list of registries has; what is behind it is not read.
const MAX_FILE_SIZE: u64 = 1024 * 1024;

/// What `--registry` says: parsed, nothing opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrySetting {
    routes: Vec<RegistryRoute>,
}

/// One of the registries, and whose modules are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryRoute {
    /// What the paths of its modules begin with; `None` for all the rest.
    pub prefix: Option<String>,
    /// The registry.
    pub location: RegistryLocation,
    /// What modules are called there.
    pub encoding: Encoding,
}

/// One registry, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryLocation {
    /// `dir:PATH`: a folder of OCI image layouts.
    Directory(PathBuf),
    /// `layout:FILE.tar`: one OCI image layout in a file.
    Layout(PathBuf),
    /// `host[:port][/prefix]`, with `+insecure` or `+secure` where plain http or https is asked for.
    Remote {
        /// Host and port.
        host: RegistryHost,
        /// In front of every repository's name; empty where there is none.
        prefix: String,
        /// Whether plain http is asked for; the client's own rule decides where nothing is.
        insecure: Option<bool>,
    },
    /// `none`: nothing is kept here.
    None,
}

/// The text is no registry setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrySettingError {
    /// Nothing stands there.
    #[error(
        "the registry is empty; write for example `ghcr.io/acme/modules`, `127.0.0.1:5000` or `dir:./store`"
    )]
    Empty,
    /// A URL.
    #[error(
        "`{0}` is a URL; write the registry without the scheme, and `+insecure` behind it for plain http"
    )]
    Url(String),
    /// Not a host, or not a repository prefix.
    #[error(
        "`{0}` is not a registry: expected `host[:port][/prefix]`, `dir:PATH`, `layout:FILE.tar` or `prefix=host[/prefix]`, joined by commas"
    )]
    Malformed(String),
    /// `dir:` or `layout:` without a path.
    #[error("`{0}:` needs a path behind it")]
    NoPath(String),
    /// A kind of registry that is not known.
    #[error("`{0}:` is not a kind of registry that is known; `dir:PATH` and `layout:FILE.tar` are")]
    UnknownKind(String),
    /// A path goes on behind a comma, as it seems.
    #[error(
        "{source}; in `{text}` the comma begins another registry: where it is part of the name of a folder or file, give that another one"
    )]
    Comma {
        /// The path, and what stands behind the comma.
        text: String,
        /// Why that is no further registry.
        source: Box<RegistrySettingError>,
    },
    /// A host that is spoken to in two ways.
    #[error(
        "`{0}` is set for plain http and for https; write the same of `+insecure` and `+secure` behind it everywhere"
    )]
    BothSchemes(String),
    /// The same prefix twice.
    #[error("there are two registries for {0}; a module path can have only one")]
    Duplicate(String),
    /// The file of `file:` cannot be read.
    #[error("`file:{}` cannot be read: {reason}; write the path of a registry configuration in CUE behind `file:`", path.display())]
    File {
        /// As it was named.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What is written is no CUE, or more than data.
    #[error(
        "{name}:{source}; a registry configuration is data alone, without packages, definitions or references"
    )]
    Cue {
        /// The file, or `inline`.
        name: String,
        /// Where and what.
        source: CueError,
    },
    /// A field is not what it should be.
    #[error("{name}:{line}: `{field}` {reason}")]
    Field {
        /// The file, or `inline`.
        name: String,
        /// From 1.
        line: usize,
        /// The field.
        field: String,
        /// What is wrong, and what to write.
        reason: String,
    },
    /// No registry is named at all.
    #[error(
        "{0} names no registry; write for example `defaultRegistry: registry: \"ghcr.io/acme\"`, or one for each prefix below `moduleRegistries`"
    )]
    NoRegistries(String),
}

impl RegistrySetting {
    /// The setting of one directory and nothing else.
    pub fn directory(path: &Path) -> Self {
        let location = RegistryLocation::Directory(path.to_owned());
        Self { routes: vec![RegistryRoute { prefix: None, location, encoding: Encoding::default() }] }
    }

    /// Reads a setting, and the file that it may name. `folder` is where relative paths count from. Blocks.
    pub fn read(text: &str, folder: &Path) -> Result<Self, RegistrySettingError> {
        let Some(named) = text.strip_prefix("file:") else { return text.parse() };
        if named.is_empty() {
            return Err(RegistrySettingError::NoPath("file".to_owned()));
        }
        let error = |reason: String| RegistrySettingError::File { path: named.into(), reason };
        let path = folder.join(named);
        // Opening something else could wait for ever.
        let metadata = std::fs::metadata(&path).map_err(|source| error(source.to_string()))?;
        if !metadata.is_file() {
            return Err(error("it is no file".to_owned()));
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path).map_err(|source| error(source.to_string()))?;
        let read = file.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes);
        read.map_err(|source| error(source.to_string()))?;
        if bytes.len() as u64 > MAX_FILE_SIZE {
            return Err(error("it is larger than any list of registries".to_owned()));
        }
        let text = String::from_utf8(bytes).map_err(|_| error("it is not UTF-8".to_owned()))?;
        Configuration { name: named }.read(&text)
    }

    /// Every registry, with whose modules it has and what they are called there.
    pub fn routes(&self) -> &[RegistryRoute] {
        &self.routes
    }

    /// Every registry with the prefix that leads to it.
    pub fn locations(&self) -> impl Iterator<Item = (Option<&str>, &RegistryLocation)> {
        self.routes.iter().map(|route| (route.prefix.as_deref(), &route.location))
    }

    /// The directory, where there is one registry and it is a directory.
    pub fn single_directory(&self) -> Option<&Path> {
        match &self.routes[..] {
            [RegistryRoute { prefix: None, location: RegistryLocation::Directory(path), .. }] => Some(path),
            _ => None,
        }
    }

    /// Takes one registry in.
    fn add(&mut self, part: &str) -> Result<(), RegistrySettingError> {
        // A path of a `dir:` may hold a `=`; a module path never holds a `:`.
        let (prefix, location) = match part.split_once('=') {
            Some((prefix, location)) if !prefix.contains(':') => (Some(prefix), location),
            _ => (None, part),
        };
        if prefix.is_some_and(|prefix| !is_path_prefix(prefix)) {
            return Err(RegistrySettingError::Malformed(part.to_owned()));
        }
        if self.routes.iter().any(|known| known.prefix.as_deref() == prefix) {
            let name = prefix.map_or("every module path".to_owned(), |prefix| format!("`{prefix}`"));
            return Err(RegistrySettingError::Duplicate(name));
        }
        self.routes.push(RegistryRoute {
            prefix: prefix.map(str::to_owned),
            location: location.parse()?,
            encoding: Encoding::default(),
        });
        Ok(())
    }
}

impl FromStr for RegistrySetting {
    type Err = RegistrySettingError;

    /// Reads every form but `file:`, for which [`RegistrySetting::read`] is.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(configuration) = text.strip_prefix("inline:") {
            return Configuration { name: "inline" }.read(configuration);
        }
        let text = text.strip_prefix("simple:").unwrap_or(text);
        if text.trim().is_empty() {
            return Err(RegistrySettingError::Empty);
        }
        let mut setting = Self { routes: Vec::new() };
        for part in text.split(',').map(str::trim) {
            setting.add(part).map_err(|source| match setting.routes.last().map(|route| &route.location) {
                // It may well be the rest of the path's name.
                Some(path @ (RegistryLocation::Directory(_) | RegistryLocation::Layout(_)))
                    if !part.contains([':', '=']) =>
                {
                    RegistrySettingError::Comma { text: format!("{path},{part}"), source: Box::new(source) }
                }
                _ => source,
            })?;
        }
        Ok(setting)
    }
}

/// A configuration in CUE (`cue help registryconfig`), by its name in messages.
struct Configuration<'a> {
    name: &'a str,
}

impl Configuration<'_> {
    fn read(&self, text: &str) -> Result<RegistrySetting, RegistrySettingError> {
        let cue = |source| RegistrySettingError::Cue { name: self.name.to_owned(), source };
        let file = parse_cue(text).map_err(cue)?;
        self.only(&file, "", &["defaultRegistry", "moduleRegistries"])?;
        let mut routes = Vec::new();
        if let Some(default) = file.get("defaultRegistry") {
            routes.push(self.route(default, "defaultRegistry", None)?);
        }
        if let Some(registries) = file.get("moduleRegistries") {
            for field in self.fields(registries, "moduleRegistries")?.iter() {
                let name = format!("moduleRegistries.\"{}\"", short(&field.label));
                // A repository may lack the dot of a domain. A module path may not, and `cue` does not take one that does.
                let is_prefix = is_path_prefix(&field.label)
                    && field.label.split('/').next().is_some_and(|first| first.contains('.'));
                if !is_prefix {
                    let reason = "is not the beginning of a module path; write for example `\"example.com/net\"`, without a version";
                    return Err(self.wrong(field, name, reason));
                }
                routes.push(self.route(field, &name, Some(&field.label))?);
            }
        }
        if routes.is_empty() {
            return Err(RegistrySettingError::NoRegistries(self.name.to_owned()));
        }
        Ok(RegistrySetting { routes })
    }

    fn route(
        &self,
        field: &CueField,
        name: &str,
        prefix: Option<&str>,
    ) -> Result<RegistryRoute, RegistrySettingError> {
        let fields = self.fields(field, name)?;
        self.only(
            fields,
            &format!("{name}."),
            &["registry", "pathEncoding", "prefixForTags", "stripPrefix"],
        )?;
        let within = |label: &str| format!("{name}.{label}");
        let Some(registry) = fields.get("registry") else {
            let reason = "lacks its `registry`; write for example `registry: \"ghcr.io/acme\"`, or `registry: \"none\"`";
            return Err(self.wrong(field, name, reason));
        };
        let location = self.text(registry, within("registry"))?.parse::<RegistryLocation>();
        let location = location
            .map_err(|error| self.wrong(registry, within("registry"), format!("is wrong: {error}")))?;
        let strips = match fields.get("stripPrefix").map(|field| (field, &field.value)) {
            None | Some((_, CueValue::Bool(false))) => None,
            Some((field, CueValue::Bool(true))) => Some(field),
            Some((field, _)) => {
                return Err(self.wrong(field, within("stripPrefix"), "has to be `true` or `false`"));
            }
        };
        let (encoded, path) = match fields.get("pathEncoding") {
            None => (None, PathEncoding::Path),
            Some(field) => match self.text(field, within("pathEncoding"))? {
                "path" => (None, PathEncoding::Path),
                "hashAsRepo" => (Some(field), PathEncoding::HashAsRepository),
                "hashAsTag" => (Some(field), PathEncoding::HashAsTag),
                other => {
                    let reason =
                        format!("is `{}`; known are `path`, `hashAsRepo` and `hashAsTag`", short(other));
                    return Err(self.wrong(field, within("pathEncoding"), reason));
                }
            },
        };
        if let (Some(field), Some(_)) = (strips, encoded) {
            let reason = "goes with `pathEncoding: \"path\"` alone: there is no prefix in a hash";
            return Err(self.wrong(field, within("stripPrefix"), reason));
        }
        let path = match (strips, prefix) {
            (Some(_), Some(prefix)) => PathEncoding::Stripped(prefix.to_owned()),
            _ => path,
        };
        let (prefixed, tag_prefix) = match fields.get("prefixForTags") {
            None => (None, String::new()),
            Some(field) => (Some(field), self.text(field, within("prefixForTags"))?.to_owned()),
        };
        if let Some(field) = prefixed.filter(|_| !tag_prefix.is_empty() && tag_prefix.parse::<Tag>().is_err())
        {
            let reason = "cannot begin a tag; write letters, digits, `_`, `.` and `-`, such as `cue-`";
            return Err(self.wrong(field, within("prefixForTags"), reason));
        }
        let encoding = Encoding::new(path, tag_prefix);
        let special = encoded.or(strips).or(prefixed.filter(|_| !encoding.is_plain()));
        if let (Some(field), Some(reason)) = (special, misfit(&location, &encoding)) {
            return Err(self.wrong(field, within(&field.label), reason));
        }
        Ok(RegistryRoute { prefix: prefix.map(str::to_owned), location, encoding })
    }

    fn wrong(
        &self,
        field: &CueField,
        name: impl Into<String>,
        reason: impl Into<String>,
    ) -> RegistrySettingError {
        RegistrySettingError::Field {
            name: self.name.to_owned(),
            line: field.line,
            field: name.into(),
            reason: reason.into(),
        }
    }

    /// Refuses fields that are not known: a slip of the pen would send modules elsewhere.
    fn only(&self, fields: &CueStruct, within: &str, known: &[&str]) -> Result<(), RegistrySettingError> {
        match fields.iter().find(|field| !known.contains(&field.label.as_str())) {
            None => Ok(()),
            Some(field) => {
                let reason = format!("is not known here; known are {}", known.join(", "));
                Err(self.wrong(field, format!("{within}{}", short(&field.label)), reason))
            }
        }
    }

    fn fields<'a>(&self, field: &'a CueField, name: &str) -> Result<&'a CueStruct, RegistrySettingError> {
        let wrong = || self.wrong(field, name, format!("is {}; it has to be a struct", field.value.kind()));
        field.value.as_struct().ok_or_else(wrong)
    }

    fn text<'a>(&self, field: &'a CueField, name: String) -> Result<&'a str, RegistrySettingError> {
        let wrong = || self.wrong(field, name, format!("is {}; it has to be a string", field.value.kind()));
        field.value.as_str().ok_or_else(wrong)
    }
}

/// Why modules cannot be called so in a registry; `None` where they can.
fn misfit(location: &RegistryLocation, encoding: &Encoding) -> Option<&'static str> {
    match location {
        // What holds published versions unchanged there knows versions by their tags.
        RegistryLocation::Directory(_) | RegistryLocation::Layout(_) => Some(
            "is for registries elsewhere; a folder or file of this machine has room for every path, so leave it out",
        ),
        RegistryLocation::Remote { prefix, .. } if prefix.is_empty() && encoding.needs_repository() => Some(
            "needs a repository behind the registry's host, as in `registry: \"ghcr.io/acme\"`; `cue` reads nothing without one",
        ),
        RegistryLocation::Remote { .. } | RegistryLocation::None => None,
    }
}

/// As much of a text as an error has room for.
fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

/// A module path or its first elements: the grammar of a repository, since that is what it becomes.
fn is_path_prefix(text: &str) -> bool {
    text.parse::<Repository>().is_ok()
}

impl FromStr for RegistryLocation {
    type Err = RegistrySettingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self::None);
        }
        match text.split_once(':') {
            Some((kind @ ("dir" | "layout"), "")) => {
                return Err(RegistrySettingError::NoPath(kind.to_owned()));
            }
            Some(("dir", path)) => return Ok(Self::Directory(path.into())),
            Some(("layout", path)) => return Ok(Self::Layout(path.into())),
            _ => {}
        }
        if text.contains("://") {
            return Err(RegistrySettingError::Url(text.to_owned()));
        }
        let malformed = || RegistrySettingError::Malformed(text.to_owned());
        let (bare, insecure) = match text.rsplit_once('+') {
            Some((bare, "insecure")) => (bare, Some(true)),
            Some((bare, "secure")) => (bare, Some(false)),
            Some(_) => return Err(malformed()),
            None => (text, None),
        };
        let (host, prefix) = bare.split_once('/').unwrap_or((bare, ""));
        if let Some((kind, rest)) = host.split_once(':')
            && !rest.is_empty()
            && !rest.bytes().all(|byte| byte.is_ascii_digit())
            && kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            return Err(RegistrySettingError::UnknownKind(kind.to_owned()));
        }
        if bare.ends_with('/') || (!prefix.is_empty() && prefix.parse::<Repository>().is_err()) {
            return Err(malformed());
        }
        let host = host.parse().map_err(|_| malformed())?;
        Ok(Self::Remote { host, prefix: prefix.to_owned(), insecure })
    }
}

impl fmt::Display for RegistryLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(formatter, "dir:{}", path.display()),
            Self::Layout(path) => write!(formatter, "layout:{}", path.display()),
            Self::Remote { host, prefix, .. } if prefix.is_empty() => write!(formatter, "{host}"),
            Self::Remote { host, prefix, .. } => write!(formatter, "{host}/{prefix}"),
            Self::None => formatter.write_str("none"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn setting(text: &str) -> Result<Vec<(Option<String>, RegistryLocation)>, RegistrySettingError> {
        let setting = text.parse::<RegistrySetting>()?;
        assert!(setting.routes.iter().all(|route| route.encoding.is_plain()));
        Ok(setting.routes.into_iter().map(|route| (route.prefix, route.location)).collect())
    }

    fn remote(host: &str, prefix: &str, insecure: Option<bool>) -> RegistryLocation {
        RegistryLocation::Remote { host: host.parse().unwrap(), prefix: prefix.into(), insecure }
    }

    #[test]
    fn every_form_of_a_registry_is_read() {
        assert_eq!(
            setting("ghcr.io/acme/modules").unwrap(),
            [(None, remote("ghcr.io", "acme/modules", None))]
        );
        assert_eq!(
            setting("127.0.0.1:5000+insecure").unwrap(),
            [(None, remote("127.0.0.1:5000", "", Some(true)))]
        );
        assert_eq!(setting("[::1]:5000").unwrap(), [(None, remote("[::1]:5000", "", None))]);
        assert_eq!(setting("dir:./a=b").unwrap(), [(None, RegistryLocation::Directory("./a=b".into()))]);
        assert_eq!(
            setting("example.com=registry.example.com/cue, ghcr.io/acme").unwrap(),
            [
                (Some("example.com".into()), remote("registry.example.com", "cue", None)),
                (None, remote("ghcr.io", "acme", None)),
            ]
        );
        assert_eq!(setting("layout:./x.tar").unwrap(), [(None, RegistryLocation::Layout("./x.tar".into()))]);
        assert_eq!(setting("a.com=none").unwrap(), [(Some("a.com".into()), RegistryLocation::None)]);
    }

    #[test]
    fn what_could_end_up_elsewhere_is_refused() {
        use RegistrySettingError as E;
        assert_eq!(setting(" "), Err(E::Empty));
        assert_eq!(setting("dir:"), Err(E::NoPath("dir".into())));
        assert_eq!(setting("layout:"), Err(E::NoPath("layout".into())));
        assert!(matches!(setting("https://ghcr.io"), Err(E::Url(_))));
        assert!(matches!(setting("ghcr.io,docker.io"), Err(E::Duplicate(_))));
        assert!(matches!(setting("s3:bucket"), Err(E::UnknownKind(_))));
        for text in [
            "user@host",
            "host/UPPER",
            "host/a/../b",
            "host:0",
            "host:99999",
            "host?x",
            "ho st",
            "a b=host",
            "host+odd",
            "[::1",
            "[x]:1",
            "host/",
            "/x",
            "host:",
        ] {
            assert!(setting(text).is_err(), "{text}");
        }
    }
}
