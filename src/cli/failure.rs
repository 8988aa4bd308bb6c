//! How a verb fails: an exit status for scripts, a kind for programs, a message and a hint for people.
//!
//! Rooms below have typed errors and know nothing of exit statuses; [`Classify`] says here, in one place, what each of their
//! errors means to the caller. The matches are exhaustive, so that a new error forces a decision.

use std::io;
use std::process::ExitCode;

use serde::Serialize;

use crate::artifact::{ArtifactError, ProviderError};
use crate::operations::OperationError;
use crate::operations::routes::RouteError;
use crate::registry::RegistryError;
use crate::registry::credentials::CredentialError;

/// What the process says to the one that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// Done.
    Done = 0,
    /// Failed, for a reason that no other status names.
    Failed = 1,
    /// Wrong usage: the command line, a variable, or `ocimod.toml`.
    WrongUsage = 2,
    /// What was asked for is not there.
    NotFound = 3,
    /// Refused: a check, or a version that exists with other content.
    Refused = 4,
    /// No credentials, wrong ones, or ones without the right.
    NotAuthorized = 5,
    /// Unavailable: a second try may help.
    Unavailable = 6,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status as u8)
    }
}

/// What went wrong, for programs. The list is part of the command line's promise: kinds are added, never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The command line, a variable or `ocimod.toml` is wrong.
    Usage,
    /// What was asked for is not there.
    NotFound,
    /// A check says no.
    Refused,
    /// The version exists with other content, and a published version does not change.
    Immutable,
    /// The registry asks for credentials, or those it got are wrong.
    Unauthorized,
    /// The credentials are right and do not allow this.
    Denied,
    /// The registry cannot be reached, fails, or asks for patience; a second try may help.
    Unavailable,
    /// What is stored or came over the network is not what its digest or its form promises.
    Damaged,
    /// The registry does not offer this.
    Unsupported,
    /// Anything else.
    Failed,
}

impl ErrorKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::Usage,
        Self::NotFound,
        Self::Refused,
        Self::Immutable,
        Self::Unauthorized,
        Self::Denied,
        Self::Unavailable,
        Self::Damaged,
        Self::Unsupported,
        Self::Failed,
    ];

    /// The exit status of a verb that fails so.
    pub fn exit_status(self) -> ExitStatus {
        match self {
            Self::Usage => ExitStatus::WrongUsage,
            Self::NotFound => ExitStatus::NotFound,
            Self::Refused | Self::Immutable => ExitStatus::Refused,
            Self::Unauthorized | Self::Denied => ExitStatus::NotAuthorized,
            Self::Unavailable => ExitStatus::Unavailable,
            Self::Damaged | Self::Unsupported | Self::Failed => ExitStatus::Failed,
        }
    }
}

/// What an error of a room below means to somebody at the command line.
pub trait Classify: std::error::Error {
    /// Its kind.
    fn kind(&self) -> ErrorKind;

    /// What to do about it, where the message does not say it. A sentence that begins in lower case, without a full stop.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// A verb that did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    kind: ErrorKind,
    message: String,
    hints: Vec<String>,
    /// clap's own text, with its colours and the usage line, where the command line was wrong.
    usage: Option<clap::builder::StyledStr>,
    is_broken_pipe: bool,
}

impl Failure {
    /// A failure of that kind; the message names the input that was wrong.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new(), usage: None, is_broken_pipe: false }
    }

    /// The command line, a variable or the settings file is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// A result that cannot be written to stdout.
    pub(super) fn of_output(error: &io::Error) -> Self {
        let is_broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self {
            is_broken_pipe,
            ..Self::new(ErrorKind::Failed, format!("the result cannot be written: {error}"))
        }
    }

    /// With one more hint; one that is there already is not repeated.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        if !self.hints.contains(&hint) {
            self.hints.push(hint);
        }
        self
    }

    /// Without any: they do not fit here.
    #[must_use]
    pub(super) fn without_hints(mut self) -> Self {
        self.hints.clear();
        self
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened and why, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }

    /// All of that in one text, for programs; `None` where there is nothing more to say.
    pub fn hint(&self) -> Option<String> {
        (!self.hints.is_empty()).then(|| self.hints.join("\n"))
    }

    /// clap's rendering of a wrong command line.
    pub(super) fn rendered_usage(&self) -> Option<&clap::builder::StyledStr> {
        self.usage.as_ref()
    }

    /// Whether only the reader of our output has gone, which is his good right.
    pub(super) fn is_broken_pipe(&self) -> bool {
        self.is_broken_pipe
    }

    /// `{"error": {"kind", "message", "hint"}}`.
    pub(super) fn as_json(&self) -> serde_json::Value {
        serde_json::json!({"error": {"kind": self.kind, "message": self.message, "hint": self.hint()}})
    }
}

impl<E: Classify> From<E> for Failure {
    fn from(error: E) -> Self {
        let failure = Self::new(error.kind(), chain(&error));
        match error.hint() {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        let rendered = error.render();
        let plain = rendered.to_string();
        let mut paragraphs = plain.split("\n\n").map(str::trim);
        let message = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
        let hints =
            paragraphs.filter_map(|paragraph| paragraph.strip_prefix("tip: ")).map(one_line).collect();
        Self { hints, usage: Some(rendered), ..Self::usage(one_line(message)) }
    }
}

/// The error and what caused it, without saying anything twice: some errors quote their cause.
fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    message
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Classify for RegistryError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::RepositoryUnknown(_) | Self::RepositoryNotMade { .. } | Self::ManifestUnknown { .. } => {
                ErrorKind::NotFound
            }
            Self::TagExists { .. } => ErrorKind::Immutable,
            Self::Unauthorized { .. } => ErrorKind::Unauthorized,
            Self::Denied { .. } => ErrorKind::Denied,
            Self::TooManyRequests { .. } | Self::Unavailable { .. } | Self::UploadUnknown => {
                ErrorKind::Unavailable
            }
            Self::BlobUnknown(_)
            | Self::DigestMismatch { .. }
            | Self::SizeMismatch { .. }
            | Self::ManifestInvalid(_)
            | Self::Refused(_) => ErrorKind::Damaged,
            Self::NoCatalog | Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::OutOfOrder { .. }
            | Self::RangeNotSatisfiable { .. }
            | Self::ManifestBlobUnknown(_)
            | Self::TooMany { .. }
            | Self::TooLarge { .. }
            | Self::SizeRefused { .. }
            | Self::Full { .. }
            | Self::Protocol { .. }
            | Self::Io { .. } => ErrorKind::Failed,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unauthorized { registry, .. } => {
                format!(
                    "log in with `ocimod login {registry}`; a login of docker, podman or crane will do too"
                )
            }
            Self::Denied { registry, .. } => {
                format!("where it is there, log in as somebody who may: `ocimod login {registry}`")
            }
            Self::RepositoryNotMade { command: Some(command), .. } => format!("make it first: {command}"),
            Self::RepositoryNotMade { .. } => {
                "make it first, or the project that it belongs to, by the registry's own means".into()
            }
            Self::TagExists { .. } => "publish the change under a new version".into(),
            Self::NoCatalog => {
                "name each module, such as `acme/vpc/aws`, or all of them in a file: `--catalog FILE`".into()
            }
            Self::TooManyRequests { retry_after: Some(wait), .. } => {
                format!("try again in {} seconds", wait.as_secs().max(1))
            }
            Self::TooManyRequests { retry_after: None, .. } => {
                "try again later; what has arrived is not sent again".into()
            }
            Self::SizeRefused { .. } => {
                "have the limit raised (`ocimod serve --max-blob`, `client_max_body_size` of nginx), or push less: `.ocimodignore` \
                 leaves files out"
                    .into()
            }
            Self::Full { .. } => {
                "have room made in it, or its quota raised (`ocimod store gc`, `ocimod serve --quota`)".into()
            }
            _ => return None,
        })
    }
}

impl Classify for OperationError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Registry { source, .. } => source.kind(),
            Self::Setting(_)
            | Self::Template(_)
            | Self::Usage { .. }
            | Self::Route(RouteError::NoRegistry(_)) => ErrorKind::Usage,
            Self::NoModule { .. }
            | Self::NoVersion { .. }
            | Self::NotInstallable { .. }
            | Self::NoProvider { .. }
            | Self::NoPlatform { .. } => ErrorKind::NotFound,
            Self::NotAProvider { source, .. } => match source {
                ProviderError::NotAProvider { .. } => ErrorKind::NotFound,
                ProviderError::ArchiveLayers { .. }
                | ProviderError::Algorithm { .. }
                | ProviderError::Elsewhere { .. }
                | ProviderError::Index(_) => ErrorKind::Damaged,
            },
            Self::NotSearchedYet { .. } => ErrorKind::Unavailable,
            Self::Shared(error) => error.kind(),
            Self::NotAModule { source, .. } => match source {
                ArtifactError::NotAModule { .. } => ErrorKind::NotFound,
                ArtifactError::ArchiveLayers(_)
                | ArtifactError::Dependency { .. }
                | ArtifactError::Elsewhere(_)
                | ArtifactError::ModuleFileData(_) => ErrorKind::Damaged,
            },
            Self::Exists { .. } | Self::Differs { .. } | Self::OtherForm { .. } => ErrorKind::Immutable,
            Self::OtherModule { .. }
            | Self::Refused(_)
            | Self::Tag(_)
            | Self::Route(RouteError::Repository(_)) => ErrorKind::Refused,
            Self::Login(error) => match error {
                CredentialError::Overridden(_)
                | CredentialError::TooNarrow { .. }
                | CredentialError::NoPlace => ErrorKind::Usage,
                CredentialError::Unreadable { .. }
                | CredentialError::Invalid { .. }
                | CredentialError::Entry { .. }
                | CredentialError::InvalidCueLogins { .. }
                | CredentialError::Expired { .. }
                | CredentialError::Helper { .. }
                | CredentialError::Unwritable { .. } => ErrorKind::Failed,
            },
            Self::Io { .. } => ErrorKind::Failed,
        }
    }

    fn hint(&self) -> Option<String> {
        match self.cause() {
            Self::Registry { source, .. } => Classify::hint(source),
            other => other.hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::oci::Digest;

    #[test]
    fn exit_statuses_are_those_that_are_documented() {
        let statuses = ErrorKind::ALL.map(|kind| {
            let name = serde_json::to_value(kind).map(|name| name.as_str().map(str::to_owned));
            (name.ok().flatten().unwrap_or_default(), kind.exit_status() as u8)
        });
        let statuses = statuses.iter().map(|(name, status)| (name.as_str(), *status)).collect::<Vec<_>>();
        assert_eq!(
            statuses,
            [
                ("usage", 2),
                ("not-found", 3),
                ("refused", 4),
                ("immutable", 4),
                ("unauthorized", 5),
                ("denied", 5),
                ("unavailable", 6),
                ("damaged", 1),
                ("unsupported", 1),
                ("failed", 1),
            ]
        );
    }

    #[test]
    fn a_registry_s_errors_have_kinds_and_hints() {
        let failure = Failure::from(RegistryError::RepositoryUnknown("acme/vpc/aws".into()));
        assert_eq!(failure.kind(), ErrorKind::NotFound);
        let failure = Failure::from(RegistryError::TooManyRequests {
            registry: "ghcr.io".into(),
            retry_after: Some(Duration::from_secs(30)),
        });
        assert_eq!(failure.kind(), ErrorKind::Unavailable);
        assert_eq!(failure.hints(), ["try again in 30 seconds"]);
        let failure = Failure::from(RegistryError::DigestMismatch {
            expected: Digest::of(b"a"),
            actual: Digest::of(b"b"),
        });
        assert_eq!(failure.kind(), ErrorKind::Damaged);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot pack `{path}`")]
    struct Outer {
        path: &'static str,
        source: RegistryError,
    }

    impl Classify for Outer {
        fn kind(&self) -> ErrorKind {
            ErrorKind::Failed
        }
    }

    #[test]
    fn the_message_tells_the_whole_chain_and_nothing_twice() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let failure = Failure::from(Outer {
            path: "vpc",
            source: RegistryError::Io { action: "reading vpc/main.tf".into(), source: denied },
        });
        assert_eq!(failure.message(), "cannot pack `vpc`: reading vpc/main.tf: permission denied");
    }

    #[test]
    fn hints_are_not_repeated() {
        let failure = Failure::usage("no").with_hint("a").with_hint("a").with_hint("b");
        assert_eq!(failure.hints(), ["a", "b"]);
        assert_eq!(failure.as_json()["error"]["hint"], "a\nb");
        assert_eq!(Failure::usage("no").as_json()["error"]["hint"], serde_json::Value::Null);
    }
}
