//! `ocimod.toml`: which one counts, and what stands in it.
//!
//! One file counts: what `--config` names, else the nearest one from the working folder up to the root of its repository, else
//! the user's. Outside of a repository nothing above the working folder is looked at, so that nobody's file in a shared folder
//! further up decides where modules go. Its keys are the names of the options, without a table around them; the values are read
//! as the options read theirs. A key that is no option is an error: a misspelt one would otherwise be passed over in silence.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::Environment;
use super::failure::{Classify, ErrorKind};
use crate::operations::registry_setting::{RegistryLocation, RegistrySetting};

/// Its name, everywhere.
const FILE_NAME: &str = "ocimod.toml";

/// A file of settings is some lines long; more is a mistake, and is not read into memory.
const MAX_SIZE: u64 = 1024 * 1024;

/// How alike two keys are (Jaro, from 0 to 1) when one may have been meant for the other; clap's own measure for options.
const ALIKE: f64 = 0.7;

/// Why `ocimod.toml` cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsFileError {
    /// It cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// It is too large to be one.
    #[error("{} is larger than {MAX_SIZE} bytes, so it is no file of settings", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It is no TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// A key is no option's name.
    #[error("{}:{line}: there is no setting `{key}`", path.display())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The key as it stands there.
        key: String,
        /// The setting that it resembles most.
        nearest: Option<String>,
    },
    /// A repository's file decides what is written, opened or trusted on the machine of whoever works in it.
    #[error("{}:{line}: `{key}` cannot be set in the file of a repository: {reason}", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The key.
        key: String,
        /// What could be done with it.
        reason: &'static str,
    },
    /// A value is of the wrong sort.
    #[error("{}:{line}: `{key}` has to be {expected}", path.display())]
    WrongValue {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The key.
        key: String,
        /// What it takes.
        expected: &'static str,
    },
}

impl Classify for SettingsFileError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::UnknownKey { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::UnknownKey { nearest: None, .. } => "`ocimod config show` lists every setting".into(),
            Self::NotOurs { key, .. } => format!(
                "give it on the command line, as {}, in your own ocimod.toml, or name this file with `--config`",
                super::settings::variable_name(key)
            ),
            _ => return None,
        })
    }
}

/// What the file may say for one option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One value.
    One,
    /// Any number of them.
    Many,
}

/// A key with its values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) values: Vec<OsString>,
    /// From 1.
    pub(super) line: usize,
}

/// What a repository that somebody else wrote must not decide, and why.
const NOT_FROM_A_REPOSITORY: &[(&str, &str)] = &[
    ("output", WRITES),
    ("into-cue-cache", WRITES),
    ("lock", WRITES),
    ("update-lock", "what was locked would not count"),
    ("print-address", WRITES),
    ("cache-dir", WRITES),
    ("cache-disk", FILLS),
    ("cache-size", FILLS),
    ("max-blob", FILLS),
    ("max-uploads", FILLS),
    ("quota", FILLS),
    ("catalog", "it would choose which file of your machine is read"),
    ("mirror-upstream", "it would have your machine fetch from others"),
    ("mirror-allow", "it would have your machine fetch from others"),
    ("trust-embedded", "it would decide whose word is taken"),
    ("push", "a server would push what it names"),
    ("force", "it would do for you what you were to be asked for"),
    ("to", "it would choose where copies are written"),
    ("temporary", "a server would not serve your registry"),
    ("listen", OPENS),
    ("allow-anonymous", OPENS),
    ("metrics-listen", OPENS),
    ("plain-http", WEAKENS),
    ("ca-file", WEAKENS),
    ("cert-file", "it would show your certificate around"),
    ("key-file", "it would use your key"),
    ("access", "it would say who may use your server"),
    ("anonymous", OPENS),
    ("allow", GIVES),
    ("repositories", GIVES),
    ("expires", GIVES),
    ("username", LOGS_IN),
    ("password-stdin", LOGS_IN),
    ("identity-token-stdin", LOGS_IN),
    ("link-key", "a server would take links that others sign"),
    ("tls-cert", "a server would show another certificate than yours"),
    ("tls-key", "it would use your key"),
    ("tls-self-signed", WRITES),
];
const WRITES: &str = "it would choose where files are written on your machine";
const GIVES: &str = "it would say what a token of yours is good for";
const FILLS: &str = "it would choose how much of your machine is taken";
const OPENS: &str = "it would open a server on your machine to others";
const LOGS_IN: &str = "it would say who you are to a registry";
const WEAKENS: &str = "it would decide whom your credentials are shown to";

/// Why an entry of a repository's file is not taken; `None` where it is.
pub(super) fn refusal(entry: &Entry, folder: &Path) -> Option<&'static str> {
    let listed = NOT_FROM_A_REPOSITORY.iter().find(|(key, _)| *key == entry.key).map(|(_, reason)| *reason);
    let sends_in_clear = || {
        let text = entry.values.first()?.to_str()?;
        let setting = RegistrySetting::read(text, folder).ok()?;
        let is_clear = setting.locations().any(|(_, location)| match location {
            RegistryLocation::Remote { host, insecure: Some(true), .. } => !host.is_loopback(),
            _ => false,
        });
        is_clear.then_some(WEAKENS)
    };
    listed
        .or_else(|| if ["registry", "from"].contains(&entry.key.as_str()) { sends_in_clear() } else { None })
}

/// Whether a file is the user's own, and not that of whatever repository the user happens to be in.
pub(super) fn is_of_the_user(path: &Path, environment: &Environment) -> bool {
    environment.configuration_folder().is_some_and(|folder| path == folder.join(FILE_NAME))
}

/// Where the file is that counts, unless one was named.
pub(super) fn find(environment: &Environment) -> Option<PathBuf> {
    let start = &environment.working_folder;
    let is_root = |folder: &Path| folder.join(".git").exists();
    // `skip_while` cannot say "up to and with the root, if there is one"; the position can.
    let height = start.ancestors().position(is_root).unwrap_or(0);
    start
        .ancestors()
        .take(height + 1)
        .map(|folder| folder.join(FILE_NAME))
        .chain(environment.configuration_folder().map(|folder| folder.join(FILE_NAME)))
        .find(|file| file.is_file())
}

/// Reads the file; `shape_of` knows the settings by name, `names` are all of them.
pub(super) fn read(
    path: &Path,
    shape_of: impl Fn(&str) -> Option<Shape>,
    names: &[&str],
) -> Result<Vec<Entry>, SettingsFileError> {
    let unreadable = |source| SettingsFileError::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    let mut file = File::open(path).map_err(unreadable)?.take(MAX_SIZE + 1);
    file.read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(SettingsFileError::TooLarge { path: path.to_owned() });
    }

    let line_of = |span: Range<usize>| text.get(..span.start).unwrap_or(&text).matches('\n').count() + 1;
    let table = DeTable::parse(&text).map_err(|error| SettingsFileError::Syntax {
        path: path.to_owned(),
        line: line_of(error.span().unwrap_or(0..0)),
        message: error.message().to_owned(),
    })?;
    let mut entries = Vec::new();
    for (key, value) in table.into_inner() {
        let line = line_of(key.span());
        let key = key.into_inner().into_owned();
        let Some(shape) = shape_of(&key) else {
            let nearest = nearest(&key, names).map(str::to_owned);
            return Err(SettingsFileError::UnknownKey { path: path.to_owned(), line, key, nearest });
        };
        let values = values(value, shape).map_err(|expected| SettingsFileError::WrongValue {
            path: path.to_owned(),
            line,
            key: key.clone(),
            expected,
        })?;
        entries.push(Entry { key, values, line });
    }
    Ok(entries)
}

/// The values as the command line would have them.
fn values(value: Spanned<DeValue<'_>>, shape: Shape) -> Result<Vec<OsString>, &'static str> {
    let one = |value: DeValue<'_>| match value {
        DeValue::String(text) => Some(OsString::from(text.into_owned())),
        DeValue::Integer(number) => Some(number.to_string().into()),
        DeValue::Boolean(truth) => Some(truth.to_string().into()),
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    };
    match (value.into_inner(), shape) {
        (DeValue::Array(items), Shape::Many) => items
            .into_iter()
            .map(|item| one(item.into_inner()))
            .collect::<Option<_>>()
            .ok_or("a list of texts"),
        (value, Shape::Many) => one(value).map(|value| vec![value]).ok_or("a text or a list of texts"),
        (value, Shape::One) => {
            one(value).map(|value| vec![value]).ok_or("a text, a whole number, or true or false")
        }
    }
}

fn nearest<'a>(key: &str, names: &[&'a str]) -> Option<&'a str> {
    let key = key.to_lowercase().replace('_', "-");
    names
        .iter()
        .map(|name| (strsim::jaro(&key, name), *name))
        .filter(|(likeness, _)| *likeness > ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cli::failure::Failure;

    const NAMES: &[&str] = &["ca-file", "host-alias", "module-repository", "registry", "strict"];

    fn read_text(text: &str) -> Result<Vec<Entry>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        fs::write(&path, text).unwrap();
        let shape_of = |key: &str| {
            NAMES.contains(&key).then(|| if key == "host-alias" { Shape::Many } else { Shape::One })
        };
        read(&path, shape_of, NAMES).map_err(|error| {
            let failure = Failure::from(error);
            let message = failure.message().replace(&*path.to_string_lossy(), FILE_NAME);
            format!("{message} | {}", failure.hints().join(" "))
        })
    }

    fn entry(key: &str, values: &[&str], line: usize) -> Entry {
        Entry { key: key.into(), values: values.iter().map(OsString::from).collect(), line }
    }

    #[test]
    fn values_are_read_as_the_command_line_has_them() {
        let entries =
            read_text("# ours\nregistry = 'ghcr.io/acme'\n\nstrict = true\nhost-alias = ['a', 'b']\n")
                .unwrap();
        assert_eq!(entries.len(), 3);
        assert!(entries.contains(&entry("registry", &["ghcr.io/acme"], 2)));
        assert!(entries.contains(&entry("strict", &["true"], 4)));
        assert!(entries.contains(&entry("host-alias", &["a", "b"], 5)));
        assert_eq!(read_text("host-alias = 'a'").unwrap(), [entry("host-alias", &["a"], 1)]);
        assert_eq!(read_text("").unwrap(), []);
    }

    #[test]
    fn an_unknown_key_is_refused_with_file_line_and_the_nearest_right_one() {
        insta::assert_snapshot!(read_text("\nregistyr = 'x'").unwrap_err(), @"ocimod.toml:2: there is no setting `registyr` | did you mean `registry`?");
        insta::assert_snapshot!(read_text("CA_file = 'x'").unwrap_err(), @"ocimod.toml:1: there is no setting `CA_file` | did you mean `ca-file`?");
        insta::assert_snapshot!(read_text("[push]\nstrict = true").unwrap_err(), @"ocimod.toml:1: there is no setting `push` | `ocimod config show` lists every setting");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_file_and_line() {
        insta::assert_snapshot!(read_text("strict = true\nregistry = \n").unwrap_err(), @"ocimod.toml:2: string values must be quoted, expected literal string |");
        insta::assert_snapshot!(read_text("registry = ['a']").unwrap_err(), @"ocimod.toml:1: `registry` has to be a text, a whole number, or true or false | ");
        insta::assert_snapshot!(read_text("host-alias = ['a', ['b']]").unwrap_err(), @"ocimod.toml:1: `host-alias` has to be a list of texts | ");
        insta::assert_snapshot!(read_text("registry.a = 'b'").unwrap_err(), @"ocimod.toml:1: `registry` has to be a text, a whole number, or true or false | ");
        assert!(read_text(&"#".repeat(1024 * 1024 + 1)).unwrap_err().contains("no file of settings"));
        assert!(read_text(&format!("registry = {}", "[".repeat(100_000))).is_err(), "and not a crash");
    }

    #[test]
    fn the_nearest_file_within_the_repository_counts() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        fs::create_dir_all(top.join("repository/.git")).unwrap();
        fs::create_dir_all(top.join("repository/modules/vpc")).unwrap();
        fs::create_dir_all(top.join("home/.config/ocimod")).unwrap();
        let found = |working_folder: &str| {
            let environment = Environment {
                working_folder: top.join(working_folder),
                home: Some(top.join("home")),
                ..Environment::default()
            };
            find(&environment).map(|path| path.strip_prefix(top).unwrap().to_str().unwrap().to_owned())
        };
        let file = |path: &str| fs::write(top.join(path), "").unwrap();

        assert_eq!(found("repository/modules/vpc"), None);
        file("ocimod.toml");
        assert_eq!(
            found("repository/modules/vpc"),
            None,
            "above the root of the repository is foreign ground"
        );
        assert_eq!(found("home"), None, "and so is whatever is above a folder that is in no repository");
        file("home/.config/ocimod/ocimod.toml");
        assert_eq!(found("repository/modules/vpc").as_deref(), Some("home/.config/ocimod/ocimod.toml"));
        file("repository/ocimod.toml");
        assert_eq!(found("repository/modules/vpc").as_deref(), Some("repository/ocimod.toml"));
        assert_eq!(found("repository").as_deref(), Some("repository/ocimod.toml"));
        file("repository/modules/ocimod.toml");
        assert_eq!(found("repository/modules/vpc").as_deref(), Some("repository/modules/ocimod.toml"));
    }
}
