//! Why an operation failed, in terms that each face translates into its own: an exit status here, an HTTP status there.

use std::fmt::Write as _;

use crate::archive::PackError;
use crate::artifact::{ArtifactError, ProviderError, TagError};
use crate::module::{Constraint, ProviderPlatform, Version};
use crate::oci::Digest;
use crate::registry::RegistryError;
use crate::registry::credentials::CredentialError;

use super::finding::Finding;
use super::registry_setting::RegistrySettingError;
use super::routes::{RepositoryTemplateError, RouteError};

/// The outcome of an operation.
pub type Result<T, E = OperationError> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// A registry failed, or refused.
    #[error("{place}: {source}")]
    Registry {
        /// `registry/repository`, or what else was asked.
        place: String,
        /// Why.
        source: RegistryError,
    },
    /// The registry setting cannot be read.
    #[error(transparent)]
    Setting(#[from] RegistrySettingError),
    /// The repository template cannot be read.
    #[error(transparent)]
    Template(#[from] RepositoryTemplateError),
    /// No registry is set for the module.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// Nothing is published under the module's name.
    #[error("module `{module}` is not in the registry; looked in {}", places.join(" and "))]
    NoModule {
        /// The module.
        module: String,
        /// Where it would be.
        places: Vec<String>,
    },
    /// The module is there, but no version fits.
    #[error("no version of `{module}` satisfies `{constraint}`; {}", available(versions, yanked))]
    NoVersion {
        /// The module.
        module: String,
        /// What was asked for.
        constraint: Constraint,
        /// What there is.
        versions: Vec<Version>,
        /// What there is beside that and is yanked.
        yanked: Vec<Version>,
    },
    /// What is kept under that version is no module.
    #[error("{reference}: {source}")]
    NotAModule {
        /// `registry/repository:tag`.
        reference: String,
        /// What it is.
        source: ArtifactError,
    },
    /// Nothing is published under the provider's name.
    #[error("provider `{provider}` is not in the registry; looked in {place}")]
    NoProvider {
        /// The provider.
        provider: String,
        /// Where it would be.
        place: String,
    },
    /// The provider's version is there, and not for that system.
    #[error("{reference} is not for `{platform}`, but for {}", platforms_text(platforms))]
    NoPlatform {
        /// `registry/repository:tag`.
        reference: String,
        /// What was asked for.
        platform: ProviderPlatform,
        /// What there is.
        platforms: Vec<ProviderPlatform>,
    },
    /// What is kept under that version is no provider.
    #[error("{reference}: {source}")]
    NotAProvider {
        /// `registry/repository:tag`, or its manifest for one system.
        reference: String,
        /// What it is.
        source: ProviderError,
    },
    /// The repository holds a module of another path.
    #[error("{place} holds the module `{stored}`, and a repository holds one module; this one is `{pushed}`")]
    OtherModule {
        /// `registry/repository`.
        place: String,
        /// The path that it holds.
        stored: String,
        /// The path of what was to be pushed.
        pushed: String,
    },
    /// The version is there with other content.
    #[error("{reference} exists already ({digest}) and {difference}; a published version does not change")]
    Exists {
        /// `registry/repository:tag`.
        reference: String,
        /// The stored manifest.
        digest: Digest,
        /// In which way it differs.
        difference: String,
    },
    /// A copy would put something else in the place of what is there.
    #[error("{to} holds {to_digest}, and {from} holds {from_digest}; a published version does not change")]
    Differs {
        /// `registry/repository:tag` of what was to be copied.
        from: String,
        /// What that is.
        from_digest: Digest,
        /// `registry/repository:tag` where it was to go.
        to: String,
        /// What is there.
        to_digest: Digest,
    },
    /// The version is there in another form of `--deps`.
    #[error(
        "{reference} was pushed with `--deps {stored}`, and a published version does not change its form"
    )]
    OtherForm {
        /// `registry/repository:tag`.
        reference: String,
        /// The form that it has.
        stored: &'static str,
    },
    /// Checks failed.
    #[error("{}", findings_text(.0))]
    Refused(Vec<Finding>),
    /// The version cannot be a tag.
    #[error(transparent)]
    Tag(#[from] TagError),
    /// Something that the caller has to say, or said wrong.
    #[error("{message}")]
    Usage {
        /// What is missing or wrong.
        message: String,
        /// What to type.
        hint: String,
    },
    /// Not everything was looked through that the module may be inside of, so nobody knows whether it is.
    #[error(
        "`{module}` may be inside another module, and not all of those could be looked at yet: it takes a while after the start, and longer \
         where a repository fails"
    )]
    NotSearchedYet {
        /// The module.
        module: String,
    },
    /// The module is there, and is none of OpenTofu's.
    #[error("`{module}` holds no `.tf` files, so it is no OpenTofu module")]
    NotInstallable {
        /// The module.
        module: String,
    },
    /// A login cannot be kept, or removed.
    #[error(transparent)]
    Login(#[from] CredentialError),
    /// What several callers waited for at once failed for all of them.
    #[error(transparent)]
    Shared(std::sync::Arc<OperationError>),
    /// A file cannot be read or written.
    #[error("{action}: {source}")]
    Io {
        /// What was being done, with the path.
        action: String,
        /// The operating system's word.
        source: std::io::Error,
    },
}

impl OperationError {
    /// Gives a registry's error the name of what was asked.
    pub fn registry(place: impl Into<String>) -> impl FnOnce(RegistryError) -> Self {
        let place = place.into();
        move |source| Self::Registry { place, source }
    }

    /// An input or output error with what was being done.
    pub fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    /// A folder or tree that cannot be packed.
    pub fn packing(error: PackError) -> Self {
        match error {
            PackError::Unreadable { path, source } => Self::io(format!("reading {}", path.display()))(source),
            PackError::Unwritable(source) => Self::io("writing the zip")(source),
            error => Self::refused(Finding {
                file: error.entry().map(|name| name.escape_debug().to_string()),
                line: None,
                rule: error.rule(),
                message: error.to_string(),
            }),
        }
    }

    /// What went wrong, where several waited for it.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Shared(error) => error.cause(),
            error => error,
        }
    }

    /// Whether a registry says no in a way that may as well mean that there is nothing.
    pub fn may_be_absence(&self) -> bool {
        matches!(self.cause(), Self::Registry { source, .. } if source.may_be_absence())
    }

    /// Whether a registry has gone or asks for patience, so that a second try may help.
    pub fn is_passing(&self) -> bool {
        matches!(self.cause(), Self::Registry { source, .. } if source.is_passing())
    }

    /// One failed check.
    pub fn refused(finding: Finding) -> Self {
        Self::Refused(vec![finding])
    }

    /// What to do about it, where the message does not say it.
    pub fn hint(&self) -> Option<String> {
        match self.cause() {
            Self::Usage { hint, .. } => Some(hint.clone()),
            Self::Exists { .. } => Some("push the change under a new version".to_owned()),
            Self::Differs { .. } => Some(
                "nothing of it was changed; find out which of the two is the right one, and delete the other"
                    .to_owned(),
            ),
            Self::Login(error) => login_hint(error),
            Self::OtherForm { stored, .. } => {
                Some(format!("repeat this with `--deps {stored}`, or publish a new version"))
            }
            Self::OtherModule { stored, .. } => Some(match stored.split_once('/') {
                Some((host, _)) if stored.matches('/').count() == 3 => {
                    format!(
                        "if this is the same module, push it with `--host {host}`; else give it another name"
                    )
                }
                _ => "give it another name, or push it to another registry or prefix".to_owned(),
            }),
            Self::NoVersion { constraint, versions, yanked, .. } => {
                let matching = |version: &&Version| {
                    version.is_prerelease() && constraint.matches(&version.without_prerelease())
                };
                match yanked.iter().rev().find(|version| constraint.matches(version)) {
                    Some(version) => Some(format!(
                        "a yanked version is chosen only by its exact number, such as `{version}`"
                    )),
                    None => versions.iter().rev().find(matching).map(|version| {
                        format!("a pre-release is chosen only by its exact version, such as `{version}`")
                    }),
                }
            }
            _ => None,
        }
    }
}

/// What to do where a login has no place.
fn login_hint(error: &CredentialError) -> Option<String> {
    Some(match error {
        CredentialError::Overridden(_) => "put the login into that variable, or unset it".to_owned(),
        CredentialError::TooNarrow { scope, .. } => format!(
            "log in to `{}` as a whole, or name a file for this login with the variable REGISTRY_AUTH_FILE",
            scope.registry
        ),
        CredentialError::NoPlace => "name a file with the variable REGISTRY_AUTH_FILE".to_owned(),
        _ => return None,
    })
}

fn platforms_text(platforms: &[ProviderPlatform]) -> String {
    match platforms {
        [] => "none at all".to_owned(),
        platforms => platforms.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// The versions there are, the newest few of them.
fn available(versions: &[Version], yanked: &[Version]) -> String {
    match (versions, yanked) {
        ([], []) => "there is no version at all".to_owned(),
        (versions, []) => format!("there is {}", newest_of(versions)),
        ([], yanked) => format!("there are only yanked versions: {}", newest_of(yanked)),
        (versions, yanked) => format!("there is {}; yanked: {}", newest_of(versions), newest_of(yanked)),
    }
}

fn newest_of(versions: &[Version]) -> String {
    const SHOWN: usize = 10;
    let newest: Vec<_> = versions.iter().rev().take(SHOWN).map(ToString::to_string).collect();
    let more = versions.len().saturating_sub(SHOWN);
    let mut text = newest.join(", ");
    if more > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, " and {more} older");
    }
    text
}

fn findings_text(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
