//! Where a login is kept, and keeping it there: in the place that wins for the registry, so that it is the one that is used.
//!
//! A helper that the file names keeps it; else the file does, as Docker writes it. `logout` looks everywhere: whoever has logged
//! out is not to be known to the registry any more.

use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::path::{Path, PathBuf};

use super::edit::{self, Change};
use super::environment::{CredentialEnvironment, Kind, Place};
use super::file::{CredentialFile, Key, TOKEN_USER};
use super::helper::{self, DOCKER_HUB_SERVER, Helper};
use super::kept::{self, HELPER_TIMEOUT, MAX_FILE_SIZE};
use super::{Credential, CredentialError, VARIABLE};
use crate::oci::Repository;
use crate::registry::remote::RegistryHost;
use crate::registry::whole_file::{self, ChangeError, Mode};

/// What a login is for: a registry, or the repositories of one whose names begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginScope {
    /// The registry.
    pub registry: RegistryHost,
    /// The prefix, of whole elements.
    pub prefix: Option<Repository>,
}

impl LoginScope {
    pub(super) fn path(&self) -> &str {
        self.prefix.as_ref().map_or("", Repository::as_str)
    }
}

impl fmt::Display for LoginScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.prefix {
            Some(prefix) => write!(formatter, "{}/{prefix}", self.registry),
            None => self.registry.fmt(formatter),
        }
    }
}

/// Where a login for a scope goes.
#[derive(Clone)]
pub struct LoginPlace {
    environment: CredentialEnvironment,
    scope: LoginScope,
    place: Place,
    helper: Option<String>,
    /// What else the file has for repositories in the scope.
    narrower: Vec<String>,
}

impl LoginPlace {
    /// Finds the place: where a login for the scope is already, else the file that most tools read. Blocks.
    pub fn find(environment: &CredentialEnvironment, scope: LoginScope) -> Result<Self, CredentialError> {
        if super::read_variable(environment)?.is_some_and(|file| knows(&file, &scope)) {
            return Err(CredentialError::Overridden(scope));
        }
        let mut files = Vec::new();
        for place in environment.places() {
            let content = kept::read_file(&place)?.map(|(content, _)| content);
            files.push((place, content));
        }
        // Docker's own file comes before its file of old, so what is written there wins over that.
        let writable = |place: &Place| place.kind != Kind::Legacy;
        let first = |holds: fn(&CredentialFile, &LoginScope) -> bool| {
            files.iter().find(|(place, content)| {
                writable(place) && content.as_ref().is_some_and(|content| holds(content, &scope))
            })
        };
        // What names the registry goes before a helper for all of them.
        let known = first(knows).or_else(|| first(leaves_to_store));
        let usual = || {
            let of = |kind: Kind| files.iter().find(move |(place, _)| place.kind == kind);
            // The one that somebody named; else Docker's, which all tools read. Where there is none yet but one of the
            // containers tools, that: tools that look for it only in the absence of Docker's go on finding it.
            of(Kind::Named)
                .or_else(|| of(Kind::Docker).filter(|(_, content)| content.is_some()))
                .or_else(|| files.iter().find(|(place, content)| writable(place) && content.is_some()))
                .or_else(|| of(Kind::Docker))
                .or_else(|| files.iter().find(|(place, _)| writable(place)))
        };
        let (place, content) = known.or_else(usual).ok_or(CredentialError::NoPlace)?;
        let helper = content.as_ref().and_then(|content| helper_for(content, &scope)).map(str::to_owned);
        if let (Some(helper), Some(_)) = (&helper, &scope.prefix) {
            return Err(CredentialError::TooNarrow {
                file: place.path.clone(),
                helper: helper.clone(),
                scope: scope.clone(),
            });
        }
        if let Some(helper) = &helper {
            // Else somebody would type a password for nothing.
            Helper::find(environment, helper, HELPER_TIMEOUT)?;
        }
        let narrower = narrower(&files, &scope);
        Ok(Self { environment: environment.clone(), place: place.clone(), helper, narrower, scope })
    }

    /// The file that keeps the login, or names the helper that does.
    pub fn file(&self) -> &Path {
        &self.place.path
    }

    /// The name of the helper that keeps the login.
    pub fn helper(&self) -> Option<&str> {
        self.helper.as_deref()
    }

    /// Logins for a part of the scope, which go before this one there.
    pub fn narrower(&self) -> &[String] {
        &self.narrower
    }

    /// Puts the login there.
    pub async fn keep(self, credential: Credential) -> Result<(), CredentialError> {
        let Some(name) = &self.helper else {
            let key = key(&self.place, &self.scope);
            return blocking(move || {
                write(&self.place, &self.scope, &key, Change::Hold(&credential)).map(|_| ())
            })
            .await;
        };
        let (username, secret) = match &credential {
            Credential::Basic { username, password } => (username.as_str(), password.as_str()),
            Credential::IdentityToken { token, .. } => (TOKEN_USER, token.as_str()),
            Credential::Anonymous | Credential::Bearer(_) => {
                return Err(CredentialError::Helper {
                    helper: name.clone(),
                    reason: "keeps user names and passwords, and identity tokens",
                });
            }
        };
        let helper = Helper::find(&self.environment, name, HELPER_TIMEOUT)?;
        helper.store(helper::server(&self.scope.registry), username, secret).await?;
        // A password that stood in the file until now would go before the helper.
        let key = key(&self.place, &self.scope);
        blocking(move || write(&self.place, &self.scope, &key, Change::Empty).map(|_| ())).await
    }
}

/// What a logout has done.
#[derive(Debug, Default)]
pub struct Logout {
    /// The files in which there was a login.
    pub files: Vec<PathBuf>,
    /// The helpers that had one.
    pub helpers: Vec<String>,
    /// What there still is: logins for a part of the scope, and the variable.
    pub left: Vec<String>,
}

/// Removes every login for a scope. Where one cannot be removed the others are all the same; the error is of the first. In a dry
/// run nothing is removed.
pub async fn forget_login(
    environment: &CredentialEnvironment,
    scope: &LoginScope,
    dry_run: bool,
) -> Result<Logout, CredentialError> {
    let (places, read) = (environment.places(), |places: Vec<Place>| {
        let read = |place: Place| Ok((kept::read_file(&place)?.map(|(content, _)| content), place));
        places.into_iter().map(read).collect::<Result<Vec<_>, CredentialError>>()
    });
    let files = blocking(move || read(places)).await?;
    let mut logout = Logout::default();
    let mut first_error = None;
    for (content, place) in &files {
        let Some(content) = content else { continue };
        let helper = helper_for(content, scope).filter(|_| scope.prefix.is_none());
        if let Some(name) = helper.filter(|name| !logout.helpers.iter().any(|known| known == name)) {
            match erase(environment, name, scope, dry_run).await {
                Ok(true) => logout.helpers.push(name.to_owned()),
                Ok(false) => {}
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        if content.entries().any(|(_, key, _)| key.is(scope)) {
            let (place, scope) = (place.clone(), scope.clone());
            let path = place.path.clone();
            let removed =
                blocking(move || if dry_run { Ok(true) } else { write(&place, &scope, "", Change::Remove) });
            match removed.await {
                Ok(true) => logout.files.push(path),
                Ok(false) => {}
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
    }
    if let Some(error) = first_error {
        return Err(error);
    }
    if super::read_variable(environment)?.is_some_and(|file| knows(&file, scope)) {
        logout.left.push(format!("{scope} in the variable {VARIABLE}"));
    }
    let files: Vec<_> = files.into_iter().map(|(content, place)| (place, content)).collect();
    logout.left.extend(narrower(&files, scope));
    Ok(logout)
}

/// Has a helper forget the registry; whether it knew it.
async fn erase(
    environment: &CredentialEnvironment,
    name: &str,
    scope: &LoginScope,
    dry_run: bool,
) -> Result<bool, CredentialError> {
    let helper = Helper::find(environment, name, HELPER_TIMEOUT)?;
    let server = helper::server(&scope.registry);
    if helper.get(server).await?.is_none() {
        return Ok(false);
    }
    if !dry_run {
        helper.erase(server).await?;
    }
    Ok(true)
}

/// Whether a file has a login for just this scope, or names a helper for it.
fn knows(file: &CredentialFile, scope: &LoginScope) -> bool {
    let has_entry =
        file.entries().any(|(_, key, entry)| key.is(scope) && !matches!(entry.credential(), Ok(None)));
    has_entry || file.helpers().any(|(key, _)| key.is(scope))
}

/// Whether a file says by an entry without a credential that its helper has the login.
fn leaves_to_store(file: &CredentialFile, scope: &LoginScope) -> bool {
    file.store().is_some() && file.entries().any(|(_, key, _)| key.is(scope))
}

/// The helper that a file leaves the logins of a registry to.
fn helper_for<'a>(file: &'a CredentialFile, scope: &LoginScope) -> Option<&'a str> {
    let whole = LoginScope { prefix: None, ..scope.clone() };
    let own = file.helpers().find(|(key, _)| key.is(&whole)).map(|(_, helper)| helper);
    own.or_else(|| file.store())
}

/// Logins for a part of a scope.
fn narrower(files: &[(Place, Option<CredentialFile>)], scope: &LoginScope) -> Vec<String> {
    let mut found = Vec::new();
    for (place, content) in files {
        for (text, key, entry) in content.iter().flat_map(CredentialFile::entries) {
            if key.is_within(scope) && !key.is(scope) && !matches!(entry.credential(), Ok(None)) {
                found.push(format!("{text} in {}", place.path.display()));
            }
        }
    }
    found
}

/// How a file names a scope. Docker's tools know Docker Hub by one name alone.
fn key(place: &Place, scope: &LoginScope) -> String {
    match (place.kind, &scope.prefix) {
        (Kind::Docker, None) if scope.registry.is_docker_hub() => DOCKER_HUB_SERVER.to_owned(),
        _ => scope.to_string(),
    }
}

/// Changes the entry of a scope; whether there was anything to change. Blocks.
fn write(place: &Place, scope: &LoginScope, key: &str, change: Change<'_>) -> Result<bool, CredentialError> {
    let unwritable =
        |source: io::Error| CredentialError::Unwritable { path: place.path.clone(), source: source.into() };
    let path = whole_file::followed(&place.path).map_err(unwritable)?;
    if matches!(change, Change::Hold(_))
        && let Some(folder) = path.parent()
    {
        make_folder(folder).map_err(unwritable)?;
    } else if !kept::exists(&path) {
        return Ok(false);
    }
    let is_legacy = place.kind == Kind::Legacy;
    let is_same = |key: &str| Key::parse(key).is(scope);
    whole_file::change(&path, MAX_FILE_SIZE, Mode::Private, |old| {
        edit::changed(old.unwrap_or_default(), is_legacy, key, is_same, change)
    })
    .map_err(|error| match error {
        ChangeError::Refused(_) | ChangeError::TooLarge => {
            CredentialError::Invalid { path: place.path.clone() }
        }
        ChangeError::Unreadable(source) => {
            CredentialError::Unreadable { path: place.path.clone(), source: source.into() }
        }
        ChangeError::Unwritable(source) | ChangeError::Owner(source) => unwritable(source),
    })
}

/// A folder that only its owner looks into, where there is none.
fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Runs what waits for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CredentialError> + Send + 'static,
) -> Result<T, CredentialError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| CredentialError::Unwritable {
        path: PathBuf::from("of the user"),
        source: io::Error::other(error.to_string()).into(),
    })?
}
