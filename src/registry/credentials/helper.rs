//! Credential helpers: programs that keep logins, or make them from what the machine is (the protocol of
//! docker-credential-helpers).
//!
//! A helper is a stranger's program that may wait for a person, print without end or never end: it gets a minute, is read to a
//! limit, and does not outlive the question. What it prints is repeated nowhere: it may hold a secret.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Credential, CredentialEnvironment, CredentialError};
use crate::registry::remote::RegistryHost;

/// A helper answers one small JSON object.
const MAX_OUTPUT: u64 = 64 * 1024;
/// What Docker's tools ask a helper for when they mean Docker Hub, and name it by in their files.
pub(super) const DOCKER_HUB_SERVER: &str = "https://index.docker.io/v1/";
/// What a helper says that has nothing for the server, in all languages; some have words of their own.
const NOTHING: &str = "credentials not found";
/// What the protocol's own words for a wrong question begin with.
const WRONG_QUESTION: [&str; 2] = ["no credentials server url", "no credentials username"];

/// What helpers call a registry.
pub(super) fn server(registry: &RegistryHost) -> &str {
    if registry.is_docker_hub() { DOCKER_HUB_SERVER } else { registry.as_str() }
}

/// What a helper answers to `get`, and is told by `store`.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Login {
    #[serde(rename = "ServerURL", default)]
    server: String,
    #[serde(default, alias = "username")]
    username: String,
    #[serde(alias = "secret")]
    secret: String,
}

/// A helper that can be asked.
pub(super) struct Helper<'a> {
    name: &'a str,
    program: PathBuf,
    timeout: Duration,
}

impl<'a> Helper<'a> {
    /// Finds `docker-credential-NAME`.
    pub(super) fn find(
        environment: &CredentialEnvironment,
        name: &'a str,
        timeout: Duration,
    ) -> Result<Self, CredentialError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(failed(name, "has a name that is no name of a program"));
        }
        let program = find_program(environment, &format!("docker-credential-{name}")).ok_or_else(|| {
            failed(name, "is not in PATH; install it, or take it out of the credential file")
        })?;
        Ok(Self { name, program, timeout })
    }

    /// The login for a server; `None` where the helper has none.
    pub(super) async fn get(&self, server: &str) -> Result<Option<Credential>, CredentialError> {
        let (succeeded, output) = self.run("get", server.as_bytes()).await?;
        if !succeeded {
            return if says_nothing(&output) { Ok(None) } else { Err(failed(self.name, FAILED_TO_GET)) };
        }
        let login: Login = serde_json::from_slice(&output)
            .map_err(|_| failed(self.name, "answered something that is no credential"))?;
        Ok(if login.secret.is_empty() { None } else { Credential::of_pair(login.username, login.secret) })
    }

    /// Hands a login over.
    pub(super) async fn store(
        &self,
        server: &str,
        username: &str,
        secret: &str,
    ) -> Result<(), CredentialError> {
        let login =
            Login { server: server.to_owned(), username: username.to_owned(), secret: secret.to_owned() };
        let unusable = |_| failed(self.name, "cannot be told this login");
        let input = serde_json::to_vec(&login).map_err(unusable)?;
        let (succeeded, _) = self.run("store", &input).await?;
        if succeeded { Ok(()) } else { Err(failed(self.name, FAILED_TO_STORE)) }
    }

    /// Has a login forgotten.
    pub(super) async fn erase(&self, server: &str) -> Result<(), CredentialError> {
        let (succeeded, output) = self.run("erase", server.as_bytes()).await?;
        if succeeded || says_nothing(&output) { Ok(()) } else { Err(failed(self.name, FAILED_TO_ERASE)) }
    }

    async fn run(&self, action: &str, input: &[u8]) -> Result<(bool, Vec<u8>), CredentialError> {
        tokio::time::timeout(self.timeout, run(&self.program, action, input))
            .await
            .map_err(|_| failed(self.name, "did not answer in time"))?
            .map_err(|_| failed(self.name, "could not be run, or printed more than any answer has"))
    }
}

const FAILED_TO_GET: &str =
    "failed; run by hand, with `get` and the registry's name as its input, it says more";
const FAILED_TO_STORE: &str = "did not take the login; one that makes its credentials by itself needs none";
const FAILED_TO_ERASE: &str = "did not remove the login; one that makes its credentials by itself is switched off by taking it out of the \
                               credential file";

fn failed(name: &str, reason: &'static str) -> CredentialError {
    CredentialError::Helper { helper: name.chars().take(100).collect(), reason }
}

/// Whether a helper that failed only has nothing to tell.
fn says_nothing(output: &[u8]) -> bool {
    let text = String::from_utf8_lossy(output).to_ascii_lowercase();
    let text = text.trim();
    text.contains(NOTHING)
        || (text.contains("no credentials") && !WRONG_QUESTION.iter().any(|wrong| text.starts_with(wrong)))
}

/// The program's success and standard output; the process does not outlive this.
async fn run(program: &Path, action: &str, input: &[u8]) -> std::io::Result<(bool, Vec<u8>)> {
    let mut process = tokio::process::Command::new(program)
        .arg(action)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
    let writing = async move {
        if let Some(mut stdin) = stdin {
            // A helper that does not read its input may still answer.
            let _ = stdin.write_all(input).await;
        }
    };
    let reading = async move {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(MAX_OUTPUT).read_to_end(&mut output).await?;
        }
        Ok::<_, std::io::Error>(output)
    };
    // Both at once: neither waits for a pipe that the other has to empty.
    let ((), output) = tokio::join!(writing, reading);
    let output = output?;
    if output.len() as u64 == MAX_OUTPUT {
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
