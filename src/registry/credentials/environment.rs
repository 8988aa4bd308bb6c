//! Where credentials may be: the files of Docker and of the containers tools, in OpenTofu's order, and behind them that of `cue login`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Docker's file of old: the content of `auths` alone.
const LEGACY_FILE: &str = ".dockercfg";
/// The file of `cue login`.
const CUE_FILE: &str = "logins.json";
/// The file of the containers tools, below one of several folders.
const CONTAINERS_FILE: &str = "containers/auth.json";

/// Where credentials are looked for. Every field is a variable of the environment.
#[derive(Clone, Default)]
pub struct CredentialEnvironment {
    /// `HOME`, or what stands for it.
    pub home: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`
    pub runtime_folder: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`; `.config` in the home folder where absent.
    pub config_folder: Option<PathBuf>,
    /// `DOCKER_CONFIG`: the folder of `config.json`, in place of `.docker` in the home folder.
    pub docker_config: Option<PathBuf>,
    /// `REGISTRY_AUTH_FILE`: a file in place of those of the containers tools.
    pub registry_auth_file: Option<PathBuf>,
    /// `DOCKER_AUTH_CONFIG`: the content of a file, which comes before all others.
    pub docker_auth_config: Option<String>,
    /// The folder of `cue`'s settings, where `cue login` keeps its tokens.
    pub cue_config: Option<PathBuf>,
    /// `PATH`, where credential helpers are.
    pub search_path: Option<OsString>,
}

/// What else reads a file decides how things are written in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The file that `REGISTRY_AUTH_FILE` names.
    Named,
    /// Of the containers tools.
    Containers,
    /// Docker's.
    Docker,
    /// Docker's of old, which is read and never written.
    Legacy,
    /// Of `cue login`, which nobody else writes.
    Cue,
}

/// One of the files, there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
}

impl CredentialEnvironment {
    /// The files in which credentials may be, the first one first. Most are not there.
    pub(super) fn places(&self) -> Vec<Place> {
        let home = |name: &str| self.home.as_ref().map(|home| home.join(name));
        let containers = |folder: Option<PathBuf>| folder.map(|folder| folder.join(CONTAINERS_FILE));
        let config_folder = self.config_folder.clone().or_else(|| home(".config"));
        // Elsewhere the containers tools keep the file where they keep their settings, whatever the variables say.
        let runtime = if cfg!(target_os = "linux") { self.runtime_folder.clone() } else { home(".config") };
        let first = match &self.registry_auth_file {
            Some(file) => vec![(Kind::Named, Some(file.clone()))],
            None => {
                vec![(Kind::Containers, containers(runtime)), (Kind::Containers, containers(config_folder))]
            }
        };
        let docker_folder = self.docker_config.clone().or_else(|| home(".docker"));
        let docker = [
            (Kind::Docker, docker_folder.map(|folder| folder.join("config.json"))),
            (Kind::Legacy, home(LEGACY_FILE)),
        ];
        let mut places: Vec<_> = first
            .into_iter()
            .chain(docker)
            .filter_map(|(kind, path)| Some(Place { kind, path: path? }))
            .collect();
        places.dedup_by(|one, other| one.path == other.path);
        places
    }

    /// The same, and behind them what is read without being written: the file of `cue login`.
    pub(super) fn places_to_read(&self) -> Vec<Place> {
        let cue = self.cue_config.iter().map(|folder| Place { kind: Kind::Cue, path: folder.join(CUE_FILE) });
        self.places().into_iter().chain(cue).collect()
    }
}
