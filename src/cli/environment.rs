//! What the process was started with: variables, working folder, home, terminal.
//!
//! It is read once, in `main`, and handed down, so that a test makes its own and never touches the process's.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// The surroundings of one run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The variables, by name. Names that are not Unicode are none of ours.
    pub variables: HashMap<String, OsString>,
    /// The folder that relative paths count from.
    pub working_folder: PathBuf,
    /// The user's home, where there is one.
    pub home: Option<PathBuf>,
    /// Whether a person types what comes from stdin.
    pub stdin_is_terminal: bool,
    /// Whether a person sees what goes to stdout.
    pub stdout_is_terminal: bool,
    /// Whether a person sees what goes to stderr.
    pub stderr_is_terminal: bool,
}

impl Environment {
    /// That of this process. Fails where the working folder is gone.
    pub fn of_process() -> io::Result<Self> {
        Ok(Self {
            variables: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
                .collect(),
            working_folder: std::env::current_dir()?,
            home: std::env::home_dir().filter(|home| home.is_absolute()),
            stdin_is_terminal: io::stdin().is_terminal(),
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
        })
    }

    /// A variable; an empty one counts as not set, as a CI system leaves it where a secret is missing.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(name).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Whether a CI system runs this: `CI` is set, and not to `false`.
    pub fn is_ci(&self) -> bool {
        self.variable("CI").is_some_and(|value| value != "false")
    }

    /// Whether colours are wanted on a stream (<https://no-color.org>).
    pub fn wants_colour(&self, is_terminal: bool) -> bool {
        is_terminal
            && self.variable("NO_COLOR").is_none()
            && self.variable("TERM").is_none_or(|terminal| terminal != "dumb")
    }

    /// A path as seen from the working folder.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        self.working_folder.join(path)
    }

    /// Where this user's `ocimod.toml` lies (XDG base directories; on Windows the roaming application data).
    pub fn configuration_folder(&self) -> Option<PathBuf> {
        self.user_folder("XDG_CONFIG_HOME", "APPDATA", ".config")
    }

    /// Where this user's registry lies while none is set (XDG base directories; on Windows the local application data).
    pub fn data_folder(&self) -> Option<PathBuf> {
        self.user_folder("XDG_DATA_HOME", "LOCALAPPDATA", ".local/share")
    }

    /// Where this user's copies of what can be fetched again lie (XDG base directories; on Windows the local application data).
    pub fn cache_folder(&self) -> Option<PathBuf> {
        self.user_folder("XDG_CACHE_HOME", "LOCALAPPDATA", ".cache")
    }

    /// Where `cue` keeps what it has fetched: `CUE_CACHE_DIR`, else below the folder that Go takes for a user's cache.
    pub fn cue_cache_folder(&self) -> Option<PathBuf> {
        let folder = |name: &str| self.variable(name).map(PathBuf::from);
        let of_the_system = || {
            if cfg!(windows) {
                folder("LOCALAPPDATA")
            } else if cfg!(target_os = "macos") {
                self.home.as_ref().map(|home| home.join("Library/Caches"))
            } else {
                folder("XDG_CACHE_HOME")
                    .filter(|path| path.is_absolute())
                    .or_else(|| self.home.as_ref().map(|home| home.join(".cache")))
            }
        };
        match folder("CUE_CACHE_DIR") {
            Some(named) => Some(self.absolute(&named)),
            None => of_the_system().map(|folder| folder.join("cue")),
        }
    }

    /// Where `cue` keeps its settings: `CUE_CONFIG_DIR`, else below the folder that Go takes for a user's settings.
    pub fn cue_configuration_folder(&self) -> Option<PathBuf> {
        let folder = |name: &str| self.variable(name).map(PathBuf::from);
        let of_the_system = || {
            if cfg!(windows) {
                folder("APPDATA")
            } else if cfg!(target_os = "macos") {
                self.home.as_ref().map(|home| home.join("Library/Application Support"))
            } else {
                folder("XDG_CONFIG_HOME")
                    .filter(|path| path.is_absolute())
                    .or_else(|| self.home.as_ref().map(|home| home.join(".config")))
            }
        };
        match folder("CUE_CONFIG_DIR") {
            Some(named) => Some(self.absolute(&named)),
            None => of_the_system().map(|folder| folder.join("cue")),
        }
    }

    /// The XDG specification says that a relative path in one of its variables is to be ignored.
    fn user_folder(&self, xdg: &str, windows: &str, below_home: &str) -> Option<PathBuf> {
        let named = |name: &str| self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        named(xdg)
            .or_else(|| named(windows).filter(|_| cfg!(windows)))
            .or_else(|| self.home.as_ref().map(|home| home.join(below_home)))
            .map(|folder| folder.join("ocimod"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Environment {
        Environment {
            variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect(),
            home: Some("/home/jo".into()),
            working_folder: "/projects".into(),
            ..Environment::default()
        }
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        assert!(with(&[("CI", "")]).variable("CI").is_none());
        assert!(!with(&[("CI", "")]).is_ci());
        assert!(!with(&[("CI", "false")]).is_ci());
        assert!(with(&[("CI", "true")]).is_ci());
    }

    #[test]
    fn no_color_and_a_dumb_terminal_are_heeded() {
        assert!(with(&[]).wants_colour(true));
        assert!(!with(&[]).wants_colour(false));
        assert!(!with(&[("NO_COLOR", "1")]).wants_colour(true));
        assert!(!with(&[("TERM", "dumb")]).wants_colour(true));
    }

    #[cfg(unix)]
    #[test]
    fn the_user_s_folders_follow_xdg() {
        let folder = |variables: &[(&str, &str)]| with(variables).configuration_folder();
        assert_eq!(folder(&[]), Some("/home/jo/.config/ocimod".into()));
        assert_eq!(folder(&[("XDG_CONFIG_HOME", "/etc/jo")]), Some("/etc/jo/ocimod".into()));
        assert_eq!(folder(&[("XDG_CONFIG_HOME", "relative")]), Some("/home/jo/.config/ocimod".into()));
        assert_eq!(with(&[]).data_folder(), Some("/home/jo/.local/share/ocimod".into()));
        assert_eq!(with(&[]).cache_folder(), Some("/home/jo/.cache/ocimod".into()));
        #[cfg(not(target_os = "macos"))]
        assert_eq!(with(&[]).cue_cache_folder(), Some("/home/jo/.cache/cue".into()));
        assert_eq!(with(&[("CUE_CACHE_DIR", "c")]).cue_cache_folder(), Some("/projects/c".into()));
        #[cfg(not(target_os = "macos"))]
        assert_eq!(with(&[]).cue_configuration_folder(), Some("/home/jo/.config/cue".into()));
        assert_eq!(with(&[("CUE_CONFIG_DIR", "c")]).cue_configuration_folder(), Some("/projects/c".into()));
    }
}
