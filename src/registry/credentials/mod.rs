//! Which credential goes to which registry: the files of Docker and of the containers tools, in OpenTofu's order, and their
//! credential helpers; and behind them the tokens of `cue login`, which each go to the one host that they are for.
//!
//! A credential is chosen by the exact host and the longest repository prefix, never by anything that a registry says. Where
//! two entries are equally specific, the file that comes first wins. Paths and variables are handed in, so that nothing
//! depends on the environment of the process.
//!
//! - [`environment`] says where files are, [`mod@file`] what stands in them, [`helper`] runs the programs;
//! - [`kept`] remembers what they said, and for how long;
//! - [`login`] finds the place of a new login, and [`edit`] changes a file.

mod edit;
mod environment;
mod file;
mod helper;
mod kept;
mod login;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::remote::RegistryHost;
use crate::oci::Repository;

pub use self::environment::CredentialEnvironment;
pub use self::login::{LoginPlace, LoginScope, Logout, forget_login};

use self::environment::Kind;
use self::file::{CredentialFile, TOKEN_USER, UselessEntry};
use self::kept::{Kept, Pace};

/// Who is asking.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// Nobody in particular.
    Anonymous,
    /// A user name and a password.
    Basic {
        /// The user name.
        username: String,
        /// The password, or a token in its place.
        password: String,
    },
    /// A refresh token (`identitytoken`), which is exchanged for access tokens.
    IdentityToken {
        /// Whose it is; empty where that is not said.
        username: String,
        /// The token.
        token: String,
    },
    /// An access token that is sent to the registry as it is (`registrytoken`).
    Bearer(String),
}

impl Credential {
    /// A refresh token; Docker's name for nobody is nobody.
    pub fn identity_token(username: String, token: String) -> Self {
        let username = if username == TOKEN_USER { String::new() } else { username };
        Self::IdentityToken { username, token }
    }

    /// What a user name and a password stand for; nothing where both are empty.
    fn of_pair(username: String, password: String) -> Option<Self> {
        match (username.as_str(), password.as_str()) {
            ("" | TOKEN_USER, "") => None,
            (TOKEN_USER, _) => Some(Self::identity_token(String::new(), password)),
            _ => Some(Self::Basic { username, password }),
        }
    }
}

impl fmt::Debug for Credential {
    /// Names the kind alone.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic(..)",
            Self::IdentityToken { .. } => "IdentityToken(..)",
            Self::Bearer(_) => "Bearer(..)",
        })
    }
}

/// A credential is somewhere, but cannot be had, or cannot be put there.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CredentialError {
    /// A credential file that is there cannot be read.
    #[error("the credential file {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: Arc<std::io::Error>,
    },
    /// A credential file is not what it should be. Its content is not repeated: it holds secrets.
    #[error("the credential file {} is not valid JSON of the kind that `docker login` writes", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
    },
    /// An entry of a credential file is not what it should be.
    #[error("in the credential file {}, `auth` of `{key}` is no user name and password in base64", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// The entry.
        key: String,
    },
    /// The file of `cue login` is not what it should be. Its content is not repeated: it holds secrets.
    #[error("{} is not what `cue login` writes; remove it, and run `cue login` again", path.display())]
    InvalidCueLogins {
        /// The file.
        path: PathBuf,
    },
    /// The token of a login has run out.
    #[error(
        "the login of `cue` to `{host}` in {} has expired; run `cue login {host}` for a new one, or `ocimod login {host}`, which goes before it",
        path.display()
    )]
    Expired {
        /// The file.
        path: PathBuf,
        /// The registry.
        host: String,
    },
    /// A credential helper did not answer as it should. Its output is not repeated: it may hold secrets.
    #[error("the credential helper docker-credential-{helper} {reason}")]
    Helper {
        /// The helper's name, as configured.
        helper: String,
        /// What happened.
        reason: &'static str,
    },
    /// A credential file cannot be written.
    #[error("the credential file {} cannot be written: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: Arc<std::io::Error>,
    },
    /// The variable goes before every file.
    #[error("the variable DOCKER_AUTH_CONFIG has a login for `{0}`, which goes before every file")]
    Overridden(LoginScope),
    /// A helper has one login for a host.
    #[error(
        "{} leaves logins to docker-credential-{helper}, which keeps one for a whole registry and none for `{scope}`", file.display()
    )]
    TooNarrow {
        /// The file that names the helper.
        file: PathBuf,
        /// The helper.
        helper: String,
        /// What was to be logged in to.
        scope: LoginScope,
    },
    /// Neither a home folder nor a variable that names a file.
    #[error("there is no home folder to keep a login in")]
    NoPlace,
}

/// Where one identity's credentials come from. Clones share what was read.
#[derive(Clone)]
pub struct CredentialSource(Arc<Origin>);

enum Origin {
    Fixed(Credential),
    Environment(Box<Kept>),
}

impl fmt::Debug for CredentialSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match &*self.0 {
            Origin::Fixed(_) => "CredentialSource::Fixed",
            Origin::Environment(_) => "CredentialSource::Environment",
        })
    }
}

impl CredentialSource {
    /// No credential for any registry.
    pub fn none() -> Self {
        Self::fixed(Credential::Anonymous)
    }

    /// This credential, for whichever registry the source is handed to.
    pub fn fixed(credential: Credential) -> Self {
        Self(Arc::new(Origin::Fixed(credential)))
    }

    /// What the files and helpers say that the environment names, and say from then on.
    pub fn from_environment(environment: CredentialEnvironment) -> Self {
        Self::with_pace(environment, Pace::default())
    }

    fn with_pace(environment: CredentialEnvironment, pace: Pace) -> Self {
        Self(Arc::new(Origin::Environment(Box::new(Kept::new(environment, pace)))))
    }

    /// The credential for a repository of a registry, or for the registry as a whole.
    pub async fn credential(
        &self,
        registry: &RegistryHost,
        repository: Option<&Repository>,
    ) -> Result<Credential, CredentialError> {
        match &*self.0 {
            Origin::Fixed(credential) => Ok(credential.clone()),
            Origin::Environment(kept) => find(kept, registry, repository).await,
        }
    }

    /// Looks at files and asks helpers again the next time: the registry did not take what they said.
    pub fn doubt(&self, registry: &RegistryHost) {
        if let Origin::Environment(kept) = &*self.0 {
            kept.doubt(helper::server(registry));
        }
    }
}

/// A place where the credential may be.
enum Candidate {
    Entry(Credential),
    Useless(CredentialError),
    Helper(String),
}

/// Goes through all candidates, the most specific first.
async fn find(
    kept: &Kept,
    registry: &RegistryHost,
    repository: Option<&Repository>,
) -> Result<Credential, CredentialError> {
    let mut candidates = Vec::new();
    if let Some(file) = kept.variable()? {
        add_candidates(&mut candidates, file, Path::new(VARIABLE), registry, repository);
    }
    for (place, file) in &*kept.files().await? {
        add_candidates(&mut candidates, file, &place.path, registry, repository);
    }
    // The sort is stable: of those that fit equally well the first stays the first.
    candidates.sort_by_key(|(fit, _)| std::cmp::Reverse(*fit));
    for (_, candidate) in candidates {
        match candidate {
            Candidate::Entry(credential) => return Ok(credential),
            Candidate::Useless(error) => return Err(error),
            Candidate::Helper(helper) => {
                if let Some(credential) = kept.ask(&helper, helper::server(registry)).await? {
                    return Ok(credential);
                }
            }
        }
    }
    Ok(Credential::Anonymous)
}

/// The variable that holds what a file would.
const VARIABLE: &str = "DOCKER_AUTH_CONFIG";

fn read_variable(environment: &CredentialEnvironment) -> Result<Option<CredentialFile>, CredentialError> {
    let Some(text) = &environment.docker_auth_config else { return Ok(None) };
    let invalid = || CredentialError::Invalid { path: VARIABLE.into() };
    CredentialFile::parse(text.as_bytes(), Kind::Named).ok_or_else(invalid).map(Some)
}

/// Adds what a file has for a repository, with how well it fits.
fn add_candidates(
    candidates: &mut Vec<(usize, Candidate)>,
    file: &CredentialFile,
    path: &Path,
    registry: &RegistryHost,
    repository: Option<&Repository>,
) {
    for (key, helper) in file.helpers() {
        if let Some(fit) = key.fit(registry.as_str(), repository) {
            candidates.push((fit, Candidate::Helper(helper.to_owned())));
        }
    }
    for (text, key, entry) in file.entries() {
        let Some(fit) = key.fit(registry.as_str(), repository) else { continue };
        match entry.credential() {
            Ok(Some(credential)) => candidates.push((fit, Candidate::Entry(credential))),
            Ok(None) => {}
            Err(useless) => {
                let (path, key) = (path.to_owned(), text.to_owned());
                let error = match useless {
                    UselessEntry::Unreadable => CredentialError::Entry { path, key },
                    UselessEntry::Expired => CredentialError::Expired { path, host: key },
                };
                candidates.push((fit, Candidate::Useless(error)));
            }
        }
    }
    candidates.extend(file.store().map(|helper| (0, Candidate::Helper(helper.to_owned()))));
}
