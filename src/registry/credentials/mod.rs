//! Which credential goes to which registry: the files of Docker and of the containers tools, in OpenTofu's order, and their
//! credential helpers.
//!
//! A credential is chosen by the exact host and the longest repository prefix, never by anything that a registry says. Where
//! two entries are equally specific, the file that comes first wins. Paths and variables are handed in, so that nothing
//! depends on the environment of the process.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::remote::{RegistryHost, canonical_name};
use crate::oci::Repository;

/// Credential files are written by `login` commands: a few entries of a few hundred bytes.
const MAX_FILE_SIZE: u64 = 1024 * 1024;
/// A helper answers one small JSON object.
const MAX_HELPER_OUTPUT: u64 = 64 * 1024;
/// A helper may ask a person to unlock a keychain.
const HELPER_TIMEOUT: Duration = Duration::from_mins(1);
/// What Docker's tools ask a helper for when they mean Docker Hub, and name it by in their files.
const DOCKER_HUB_SERVER: &str = "https://index.docker.io/v1/";

/// Who is asking.
#[derive(Clone, PartialEq, Eq)]
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
    IdentityToken(String),
    /// An access token that is sent to the registry as it is (`registrytoken`).
    Bearer(String),
}

impl fmt::Debug for Credential {
    /// Names the kind alone.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic(..)",
            Self::IdentityToken(_) => "IdentityToken(..)",
            Self::Bearer(_) => "Bearer(..)",
        })
    }
}

/// A credential is somewhere, but cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A credential file that is there cannot be read.
    #[error("the credential file {path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: std::io::Error,
    },
    /// A credential file is not what it should be. Its content is not repeated: it holds secrets.
    #[error("the credential file {path} is not valid JSON of the kind that `docker login` writes")]
    Invalid {
        /// The file.
        path: PathBuf,
    },
    /// A credential helper did not answer as it should. Its output is not repeated: it may hold secrets.
    #[error("the credential helper docker-credential-{helper} {reason}")]
    Helper {
        /// The helper's name, as configured.
        helper: String,
        /// What happened.
        reason: &'static str,
    },
}

/// Where credentials are looked for. Every field is a variable of the environment.
#[derive(Clone, Debug, Default)]
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
    /// `PATH`, where credential helpers are.
    pub search_path: Option<OsString>,
}

impl CredentialEnvironment {
    /// The files in which credentials may be, the first one first. Most are not there.
    pub fn files(&self) -> Vec<PathBuf> {
        let home = |name: &str| self.home.as_ref().map(|home| home.join(name));
        let containers =
            |folder: &Option<PathBuf>| folder.as_ref().map(|folder| folder.join("containers/auth.json"));
        let config_folder = self.config_folder.clone().or_else(|| home(".config"));
        let first = match &self.registry_auth_file {
            Some(file) => vec![Some(file.clone())],
            None => vec![containers(&self.runtime_folder), containers(&config_folder)],
        };
        let docker_folder = self.docker_config.clone().or_else(|| home(".docker"));
        let docker = [docker_folder.map(|folder| folder.join("config.json")), home(LEGACY_FILE)];
        first.into_iter().chain(docker).flatten().collect()
    }
}

/// Docker's file of old: the content of `auths` alone.
const LEGACY_FILE: &str = ".dockercfg";

/// Where one identity's credentials come from. Clones share what was read.
#[derive(Clone)]
pub struct CredentialSource(Arc<Origin>);

enum Origin {
    Fixed(Credential),
    Environment { environment: CredentialEnvironment, known: Mutex<HashMap<LookupKey, Credential>> },
}

/// Registry and repository.
type LookupKey = (String, Option<Repository>);

/// More repositories than one process works with; the memory is emptied then.
const MAX_KNOWN: usize = 4096;

impl fmt::Debug for CredentialSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match &*self.0 {
            Origin::Fixed(_) => "CredentialSource::Fixed",
            Origin::Environment { .. } => "CredentialSource::Environment",
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

    /// What the files and helpers say that the environment names.
    pub fn from_environment(environment: CredentialEnvironment) -> Self {
        Self(Arc::new(Origin::Environment { environment, known: Mutex::default() }))
    }

    /// The credential for a repository of a registry, or for the registry as a whole. What was found is kept until
    /// [`CredentialSource::forget`].
    pub async fn credential(
        &self,
        registry: &RegistryHost,
        repository: Option<&Repository>,
    ) -> Result<Credential, CredentialError> {
        let (environment, known) = match &*self.0 {
            Origin::Fixed(credential) => return Ok(credential.clone()),
            Origin::Environment { environment, known } => (environment, known),
        };
        let key = (registry.as_str().to_owned(), repository.cloned());
        let kept = known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(credential) = kept {
            return Ok(credential);
        }
        let credential = find(environment, registry.as_str(), repository).await?;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key, credential.clone());
        Ok(credential)
    }

    /// Reads files and asks helpers again the next time: the registry did not take what they said.
    pub fn forget(&self, registry: &RegistryHost) {
        if let Origin::Environment { known, .. } = &*self.0 {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|(name, _), _| name != registry.as_str());
        }
    }
}

/// A file, as far as it is about credentials.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CredentialFile {
    #[serde(deserialize_with = "null_is_empty")]
    auths: HashMap<String, Entry>,
    #[serde(rename = "credHelpers", deserialize_with = "null_is_empty")]
    helpers: HashMap<String, String>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

/// Go writes an empty map as `null`.
fn null_is_empty<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// One entry of `auths`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// Some tools pad, some do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Entry {
    /// What the entry holds; Docker leaves an empty one where a helper has the credential.
    fn credential(&self) -> Option<Credential> {
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = filled(&self.registrytoken) {
            return Some(Credential::Bearer(token));
        }
        if let Some(token) = filled(&self.identitytoken) {
            return Some(Credential::IdentityToken(token));
        }
        if let Some(auth) = filled(&self.auth) {
            let text = String::from_utf8(BASE64.decode(auth.trim()).ok()?).ok()?;
            let (username, password) = text.trim_end_matches('\0').split_once(':')?;
            return Some(basic(username.to_owned(), password.to_owned()));
        }
        Some(basic(filled(&self.username)?, filled(&self.password)?))
    }
}

/// Docker's helpers and files mark a refresh token by this user name.
fn basic(username: String, password: String) -> Credential {
    if username == "<token>" {
        Credential::IdentityToken(password)
    } else {
        Credential::Basic { username, password }
    }
}

/// A place where the credential may be.
enum Candidate {
    Entry(Credential),
    Helper { helper: String, server: String },
}

/// How well a key of a file fits: the number of its parts, or `None`.
fn specificity(key: &str, registry: &str, repository: Option<&Repository>) -> Option<usize> {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = key.trim_end_matches('/').split_once('/').unwrap_or((key.trim_end_matches('/'), ""));
    if canonical_name(host) != registry {
        return None;
    }
    // `https://registry.example/v1/`: the path of an API, not of a repository.
    if matches!(path, "" | "v1" | "v2") {
        return Some(1);
    }
    let rest = repository?.as_str().strip_prefix(path)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| 2 + path.matches('/').count())
}

/// Goes through all candidates, the most specific first.
async fn find(
    environment: &CredentialEnvironment,
    registry: &str,
    repository: Option<&Repository>,
) -> Result<Credential, CredentialError> {
    let mut candidates = Vec::new();
    for file in read_files(environment).await? {
        let server = if registry == "docker.io" { DOCKER_HUB_SERVER } else { registry };
        for (key, helper) in file.helpers {
            if let Some(fit) = specificity(&key, registry, repository) {
                candidates.push((fit, Candidate::Helper { helper, server: server.to_owned() }));
            }
        }
        let mut entries: Vec<_> = file.auths.into_iter().collect();
        // Two spellings of one host: the outcome does not depend on the order of a map.
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (key, entry) in entries {
            let fit = specificity(&key, registry, repository);
            if let Some((fit, credential)) = fit.zip(entry.credential()) {
                candidates.push((fit, Candidate::Entry(credential)));
            }
        }
        if let Some(helper) = file.store.filter(|name| !name.is_empty()) {
            candidates.push((0, Candidate::Helper { helper, server: server.to_owned() }));
        }
    }
    candidates.sort_by_key(|(fit, _)| std::cmp::Reverse(*fit));
    for (_, candidate) in candidates {
        match candidate {
            Candidate::Entry(credential) => return Ok(credential),
            Candidate::Helper { helper, server } => {
                if let Some(credential) = ask_helper(environment, &helper, &server).await? {
                    return Ok(credential);
                }
            }
        }
    }
    Ok(Credential::Anonymous)
}

/// Every file that is there, in order.
async fn read_files(environment: &CredentialEnvironment) -> Result<Vec<CredentialFile>, CredentialError> {
    let mut files = Vec::new();
    if let Some(text) = &environment.docker_auth_config {
        let invalid = |_| CredentialError::Invalid { path: "DOCKER_AUTH_CONFIG".into() };
        files.push(serde_json::from_str(text).map_err(invalid)?);
    }
    for path in environment.files() {
        let Some(bytes) = read_file(&path).await? else { continue };
        let is_legacy = path.file_name().is_some_and(|name| name == LEGACY_FILE);
        let parsed = if bytes.trim_ascii().is_empty() {
            Ok(CredentialFile::default())
        } else if is_legacy {
            serde_json::from_slice(&bytes).map(|auths| CredentialFile { auths, ..CredentialFile::default() })
        } else {
            serde_json::from_slice(&bytes)
        };
        files.push(parsed.map_err(|_| CredentialError::Invalid { path: path.clone() })?);
    }
    Ok(files)
}

async fn read_file(path: &Path) -> Result<Option<Vec<u8>>, CredentialError> {
    let unreadable = |source| CredentialError::Unreadable { path: path.to_owned(), source };
    let file = match tokio::fs::File::open(path).await {
        Ok(file) => file,
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(unreadable(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes).await.map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_SIZE {
        return Err(CredentialError::Invalid { path: path.to_owned() });
    }
    Ok(Some(bytes))
}

/// What a helper answers to `get`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

/// Runs `docker-credential-NAME get`. `None` where the helper has nothing for the server.
async fn ask_helper(
    environment: &CredentialEnvironment,
    helper: &str,
    server: &str,
) -> Result<Option<Credential>, CredentialError> {
    let error = |reason| CredentialError::Helper { helper: helper.chars().take(100).collect(), reason };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if helper.is_empty() || !helper.bytes().all(is_name) {
        return Err(error("has a name that is no name of a program"));
    }
    let program = find_program(environment, &format!("docker-credential-{helper}"))
        .ok_or_else(|| error("is not in PATH; install it, or take it out of the credential file"))?;
    let answer = tokio::time::timeout(HELPER_TIMEOUT, run_helper(&program, server))
        .await
        .map_err(|_| error("did not answer in time"))?
        .map_err(|_| error("could not be run"))?;
    let (succeeded, output) = answer;
    if !succeeded {
        // The protocol of docker-credential-helpers: this text, whatever the language of the user.
        let text = String::from_utf8_lossy(&output).to_ascii_lowercase();
        let has_none = text.contains("credentials not found") || text.contains("no credentials");
        return if has_none { Ok(None) } else { Err(error("failed")) };
    }
    let answer: HelperAnswer =
        serde_json::from_slice(&output).map_err(|_| error("answered something that is no credential"))?;
    Ok((!answer.secret.is_empty()).then(|| basic(answer.username, answer.secret)))
}

/// The helper's success and standard output; the process does not outlive this.
async fn run_helper(program: &Path, server: &str) -> std::io::Result<(bool, Vec<u8>)> {
    let mut process = tokio::process::Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = process.stdin.take() {
        // A helper that does not read its input may still answer.
        let _ = input.write_all(server.as_bytes()).await;
    }
    let mut output = Vec::new();
    if let Some(stdout) = process.stdout.take() {
        stdout.take(MAX_HELPER_OUTPUT).read_to_end(&mut output).await?;
    }
    if output.len() as u64 == MAX_HELPER_OUTPUT {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok((process.wait().await?.success(), output))
}

/// Looks through the absolute folders of `PATH`: never the working folder, which may be a stranger's.
fn find_program(environment: &CredentialEnvironment, name: &str) -> Option<PathBuf> {
    let path = environment.search_path.as_ref()?;
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    struct Home {
        folder: tempfile::TempDir,
        environment: CredentialEnvironment,
    }

    impl Home {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| Some(folder.path().join(name));
            let environment = CredentialEnvironment {
                home: path("home"),
                runtime_folder: path("run"),
                search_path: Some(folder.path().join("bin").into()),
                ..CredentialEnvironment::default()
            };
            Self { folder, environment }
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        #[cfg(unix)]
        fn helper(&self, name: &str, script: &str) {
            use std::os::unix::fs::PermissionsExt;
            let path = format!("bin/docker-credential-{name}");
            self.write(&path, &format!("#!/bin/sh\n{script}\n"));
            let permissions = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(self.folder.path().join(path), permissions).unwrap();
        }

        async fn ask(&self, registry: &str, repository: &str) -> Result<Credential, CredentialError> {
            let source = CredentialSource::from_environment(self.environment.clone());
            source.credential(&registry.parse().unwrap(), Some(&repository.parse().unwrap())).await
        }

        async fn user(&self, registry: &str, repository: &str) -> String {
            match self.ask(registry, repository).await.unwrap() {
                Credential::Basic { username, .. } => username,
                other => format!("{other:?}"),
            }
        }
    }

    fn auths(entries: &[(&str, &str)]) -> String {
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, user)| format!(r#""{key}":{{"auth":"{}"}}"#, BASE64.encode(format!("{user}:p:w"))))
            .collect();
        format!(r#"{{"auths":{{{}}},"credHelpers":null}}"#, entries.join(","))
    }

    #[tokio::test]
    async fn files_are_read_in_the_order_of_opentofu() {
        let mut home = Home::new();
        let registry = "registry.example";
        assert_eq!(home.user(registry, "a").await, "Anonymous");
        home.write("home/.dockercfg", &format!(r#"{{"{registry}":{{"username":"legacy","password":"x"}}}}"#));
        assert_eq!(home.user(registry, "a").await, "legacy");
        home.write("home/.docker/config.json", &auths(&[(registry, "docker")]));
        assert_eq!(home.user(registry, "a").await, "docker");
        home.write("home/.config/containers/auth.json", &auths(&[(registry, "config")]));
        assert_eq!(home.user(registry, "a").await, "config");
        home.write("run/containers/auth.json", &auths(&[(registry, "runtime")]));
        assert_eq!(home.user(registry, "a").await, "runtime");
        home.write("other.json", &auths(&[(registry, "named")]));
        home.environment.registry_auth_file = Some(home.folder.path().join("other.json"));
        assert_eq!(home.user(registry, "a").await, "named");
        home.environment.docker_auth_config = Some(auths(&[(registry, "variable")]));
        assert_eq!(home.user(registry, "a").await, "variable");
    }

    #[tokio::test]
    async fn docker_config_replaces_the_folder() {
        let mut home = Home::new();
        home.write("home/.docker/config.json", &auths(&[("a.example", "home")]));
        home.write("elsewhere/config.json", &auths(&[("b.example", "elsewhere")]));
        home.environment.docker_config = Some(home.folder.path().join("elsewhere"));
        assert_eq!(home.user("a.example", "a").await, "Anonymous");
        assert_eq!(home.user("b.example", "a").await, "elsewhere");
    }

    #[tokio::test]
    async fn the_most_specific_prefix_wins_whatever_the_file() {
        let home = Home::new();
        home.write("run/containers/auth.json", &auths(&[("r.example", "host"), ("r.example/acme/x", "x")]));
        home.write("home/.docker/config.json", &auths(&[("r.example/acme", "acme")]));
        for (repository, user) in [
            ("acme/vpc", "acme"),
            ("acme/x/y", "x"),
            ("acme/x", "x"),
            ("acme/xy", "acme"),
            ("acmeother", "host"),
        ] {
            assert_eq!(home.user("r.example", repository).await, user, "{repository}");
        }
    }

    #[tokio::test]
    async fn hosts_match_exactly() {
        let home = Home::new();
        home.write(
            "run/containers/auth.json",
            &auths(&[("r.example:5000", "port"), ("https://r.example/v1/", "plain"), ("docker.io", "hub")]),
        );
        for (registry, user) in [
            ("r.example", "plain"),
            ("R.example", "plain"),
            ("r.example:5000", "port"),
            ("r.example:5001", "Anonymous"),
            ("xr.example", "Anonymous"),
            ("r.example.evil", "Anonymous"),
            ("sub.r.example", "Anonymous"),
            ("index.docker.io", "hub"),
        ] {
            assert_eq!(home.user(registry, "a/b").await, user, "{registry}");
        }
    }

    #[tokio::test]
    async fn tokens_are_told_from_passwords() {
        let home = Home::new();
        home.write(
            "run/containers/auth.json",
            &format!(
                r#"{{"auths":{{"i.example":{{"auth":"{}","identitytoken":"it"}},
                    "b.example":{{"registrytoken":"rt"}},"e.example":{{}},"n.example":{{"auth":"!!"}}}}}}"#,
                BASE64.encode("user:")
            ),
        );
        assert_eq!(home.ask("i.example", "a").await.unwrap(), Credential::IdentityToken("it".into()));
        assert_eq!(home.ask("b.example", "a").await.unwrap(), Credential::Bearer("rt".into()));
        assert_eq!(home.ask("e.example", "a").await.unwrap(), Credential::Anonymous);
        assert_eq!(home.ask("n.example", "a").await.unwrap(), Credential::Anonymous);
    }

    #[tokio::test]
    async fn a_broken_file_is_named_and_not_repeated() {
        let home = Home::new();
        home.write("run/containers/auth.json", r#"{"auths": "s3cret""#);
        let error = home.ask("r.example", "a").await.unwrap_err().to_string();
        assert!(error.contains("run/containers/auth.json") && !error.contains("s3cret"), "{error}");
    }

    #[tokio::test]
    async fn secrets_do_not_show() {
        let credential = Credential::Basic { username: "u".into(), password: "s3cret".into() };
        let shown = format!("{credential:?} {:?}", CredentialSource::fixed(credential.clone()));
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn helpers_answer_for_their_hosts() {
        let home = Home::new();
        home.write(
            "home/.docker/config.json",
            r#"{"credHelpers":{"h.example":"good","t.example":"token","f.example":"bad","m.example":"missing",
                "p.example":"../good"},"credsStore":"store","auths":{"h.example":{}}}"#,
        );
        home.helper("good", r#"read server; printf '{"Username":"%s","Secret":"s3cret"}' "$1-$server""#);
        home.helper("token", r#"echo '{"Username":"<token>","Secret":"refresh"}'"#);
        home.helper("bad", "echo s3cret; exit 1");
        home.helper("store", r"echo 'credentials not found in native keychain'; exit 1");
        assert_eq!(home.user("h.example", "a").await, "get-h.example");
        assert_eq!(home.ask("t.example", "a").await.unwrap(), Credential::IdentityToken("refresh".into()));
        assert_eq!(home.ask("other.example", "a").await.unwrap(), Credential::Anonymous);
        for (registry, word) in [("f.example", "failed"), ("m.example", "PATH"), ("p.example", "name")] {
            let error = home.ask(registry, "a").await.unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("s3cret"), "{error}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn an_endless_helper_is_broken_off() {
        let home = Home::new();
        home.write("home/.docker/config.json", r#"{"credsStore":"endless"}"#);
        home.helper("endless", "exec cat /dev/zero");
        assert!(matches!(home.ask("r.example", "a").await, Err(CredentialError::Helper { .. })));
    }

    #[tokio::test]
    async fn what_was_found_is_kept_until_it_is_forgotten() {
        let home = Home::new();
        let registry: RegistryHost = "r.example".parse().unwrap();
        let source = CredentialSource::from_environment(home.environment.clone());
        assert_eq!(source.credential(&registry, None).await.unwrap(), Credential::Anonymous);
        home.write("run/containers/auth.json", &auths(&[("r.example", "late")]));
        assert_eq!(source.credential(&registry, None).await.unwrap(), Credential::Anonymous);
        source.forget(&registry);
        assert!(matches!(source.credential(&registry, None).await.unwrap(), Credential::Basic { .. }));
    }
}
