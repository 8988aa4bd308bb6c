//! Copies modules and providers from one registry to another, byte for byte: every manifest keeps its digest.
//!
//! What is there is not sent again, so a copy that broke off goes on where it stood. A version's own tag is written last, after
//! everything that belongs to it, and a version that is there with other content is never replaced: that one is reported, and the
//! others go on.

mod content;
mod form;
mod pair;
mod plan;
mod referrers;
mod version;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::module::{AddressAt, Constraint, ProviderPlatform, Version};
use crate::oci::{Digest, Tag};
use crate::registry::RegistryError;

use super::Progress;
use super::catalog::CatalogSource;
use super::connect::Destination;
use super::error::{OperationError, Result};
use super::published::DependencyForm;
use super::routes::{Place, Routes, Target};

use self::content::Transfers;
use self::plan::Batch;

/// Repositories that are looked at or copied at once.
const REPOSITORIES_AT_ONCE: usize = 4;
/// Versions that are copied at once, of all repositories together: enough to hide the delay of a far registry, few enough not to be
/// throttled.
const VERSIONS_AT_ONCE: usize = 8;

/// What to copy, and how.
#[derive(Clone, Debug)]
pub struct CopyRequest {
    /// What.
    pub what: What,
    /// Which versions, where the address does not say it; every one where nothing does.
    pub constraint: Option<Constraint>,
    /// Copy the modules that these were pushed with, too, from their own repositories to their own.
    pub with_dependencies: bool,
    /// Copy what refers to the manifests (signatures, attestations), too.
    pub referrers: bool,
    /// Only these systems of providers; all of them where there is none.
    pub platforms: Vec<ProviderPlatform>,
    /// Bring modules into this form; as they are where absent.
    pub form: Option<DependencyForm>,
    /// Send nothing, and find out what would be sent.
    pub dry_run: bool,
}

/// What to copy.
#[derive(Clone, Debug)]
pub enum What {
    /// What is named.
    Named(Vec<Source>),
    /// Every module and provider of the registries.
    All(CatalogSource),
}

/// One thing to copy.
#[derive(Clone, Debug)]
pub enum Source {
    /// By its address, from the registries that are set.
    Address(Box<AddressAt>),
    /// The version at a tag of a repository that is named outright.
    Tag(Place, Tag),
}

/// What came of a copy.
#[derive(Debug, Default)]
pub struct Copied {
    /// Versions of which something was written, or would be.
    pub copied: Vec<CopiedVersion>,
    /// Versions that were there already, and those that are none.
    pub skipped: Vec<SkippedVersion>,
    /// What could not be copied.
    pub failed: Vec<FailedCopy>,
    /// Bytes of blobs and manifests that were sent, or would be.
    pub bytes_sent: u64,
    /// Whether the rest was given up after a failure that would have met all of it.
    pub is_broken_off: bool,
    /// The files that were written.
    pub files: Vec<WrittenFile>,
}

/// A version that was copied.
#[derive(Clone, Debug)]
pub struct CopiedVersion {
    /// The module or provider, as far as it is known by name; else the repository.
    pub address: String,
    /// The version.
    pub version: Version,
    /// `registry/repository` that it comes from.
    pub from: String,
    /// `registry/repository` that it goes to.
    pub to: String,
    /// What its tag names; `None` where only the mark of its yank was copied.
    pub digest: Option<Digest>,
    /// The tags that were written.
    pub tags: Vec<Tag>,
    /// How many manifests without a tag that refer to it.
    pub referrers: usize,
    /// Bytes of blobs and manifests that were sent.
    pub bytes_sent: u64,
}

/// A version that was not copied, and need not be.
#[derive(Clone, Debug)]
pub struct SkippedVersion {
    /// The module or provider.
    pub address: String,
    /// The version.
    pub version: Version,
    /// `registry/repository` where it would go.
    pub to: String,
    /// Why not.
    pub reason: SkipReason,
}

/// Why a version was not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// It is there.
    Exists(Option<Digest>),
    /// What stands at its tag is neither a module nor a provider, but this.
    NotOurs(String),
    /// It is a provider without any of the systems that were asked for.
    NoPlatform,
}

/// What could not be copied.
#[derive(Debug)]
pub struct FailedCopy {
    /// The module or provider.
    pub address: String,
    /// The version; `None` where it is the whole repository.
    pub version: Option<Version>,
    /// `registry/repository` that it comes from.
    pub from: String,
    /// Why not.
    pub error: OperationError,
}

/// A file that was written.
#[derive(Clone, Debug)]
pub struct WrittenFile {
    /// `layout:FILE.tar`
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// Whether it was written anew; else everything was in it already.
    pub is_changed: bool,
}

/// Copies. Failures that are about one version or repository are in the answer, and the others are copied all the same.
pub async fn copy(
    from: &Routes,
    to: &Destination,
    request: &CopyRequest,
    progress: Arc<dyn Progress>,
) -> Result<Copied> {
    let is_known = |target: &Target| from.targets().any(|other| other.is_same(target));
    let is_from_there = match &request.what {
        What::Named(sources) => sources.iter().any(|source| matches!(source, Source::Address(_))),
        What::All(_) => true,
    };
    if is_from_there && to.routes.targets().all(is_known) {
        return Err(OperationError::Usage {
            message: format!("there is nothing to copy from {} to itself", from.describe()),
            hint: "name another registry with `--from` or `--to`".to_owned(),
        });
    }
    let copier = Arc::new(Copier {
        from: from.clone(),
        to: to.routes.clone(),
        request: request.clone(),
        progress: Arc::clone(&progress),
        transfers: Transfers::default(),
        report: Mutex::default(),
        turns: Arc::new(Semaphore::new(VERSIONS_AT_ONCE)),
        is_broken_off: AtomicBool::new(false),
    });
    progress.started("copying", Some(0));
    let outcome = copier.run().await;
    progress.finished();
    outcome?;
    let mut report = std::mem::take(&mut *copier.report());
    report.is_broken_off = copier.is_broken_off();
    report.sort();
    if !request.dry_run {
        write_files(to, &mut report, &progress).await?;
    }
    Ok(report)
}

/// Writes the files among the destinations; none where the copy broke off, so that no half is carried away for the whole.
async fn write_files(to: &Destination, copied: &mut Copied, progress: &Arc<dyn Progress>) -> Result<()> {
    for file in &to.files {
        if copied.is_broken_off {
            if let Some(folder) = file.registry.left_behind() {
                progress.warn(&format!(
                    "{} was not written; what came of it is kept in {} for the next run",
                    file.name,
                    folder.display()
                ));
            }
            copied.copied.retain(|version| !version.to.starts_with(&file.name));
            continue;
        }
        progress.started(&format!("writing {}", file.name), Some(0));
        let bar = Arc::clone(progress);
        let committed = file.registry.commit(move |bytes| {
            bar.grown(bytes);
            bar.advanced(bytes);
        });
        let committed = committed.await;
        progress.finished();
        let committed = committed.map_err(OperationError::registry(file.name.clone()))?;
        copied.files.push(WrittenFile {
            name: file.name.clone(),
            size: committed.size,
            is_changed: committed.is_changed,
        });
    }
    Ok(())
}

/// What all the parts of one copy share.
struct Copier {
    from: Routes,
    to: Routes,
    request: CopyRequest,
    progress: Arc<dyn Progress>,
    transfers: Transfers,
    report: Mutex<Copied>,
    /// One for each version that may be on its way.
    turns: Arc<Semaphore>,
    is_broken_off: AtomicBool,
}

impl Copier {
    async fn run(self: &Arc<Self>) -> Result<()> {
        match &self.request.what {
            What::Named(sources) => {
                // What is named has to be there, all of it, before anything is sent.
                for batches in self.plan(sources).await? {
                    self.run_batches(batches).await;
                }
                Ok(())
            }
            What::All(source) => self.run_all(source).await,
        }
    }

    /// Copies repositories, a few at once.
    async fn run_batches(self: &Arc<Self>, batches: Vec<Batch>) {
        let mut running = JoinSet::new();
        for batch in batches {
            if running.len() >= REPOSITORIES_AT_ONCE {
                expect_no_panic(running.join_next().await);
            }
            let copier = Arc::clone(self);
            running.spawn(async move { copier.run_batch(batch).await });
        }
        while !running.is_empty() {
            expect_no_panic(running.join_next().await);
        }
    }

    /// Copies the versions of one repository, several at once.
    async fn run_batch(self: &Arc<Self>, batch: Batch) {
        let (Batch { address, pair, parts }, mut running) = (batch, JoinSet::new());
        let address: Arc<str> = address.into();
        for part in parts {
            // The semaphore is never closed.
            let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await else { break };
            if self.is_broken_off() || pair.is_refused() {
                break;
            }
            let (copier, address, pair) = (Arc::clone(self), Arc::clone(&address), Arc::clone(&pair));
            running.spawn(async move {
                copier.run_part(&address, &pair, &part).await;
                drop(turn);
            });
            while let Some(ended) = running.try_join_next() {
                expect_no_panic(Some(ended));
            }
        }
        while !running.is_empty() {
            expect_no_panic(running.join_next().await);
        }
    }

    fn report(&self) -> std::sync::MutexGuard<'_, Copied> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, failed: FailedCopy) {
        if meets_all(&failed.error) {
            self.is_broken_off.store(true, Ordering::Relaxed);
        }
        self.report().failed.push(failed);
    }

    fn is_broken_off(&self) -> bool {
        self.is_broken_off.load(Ordering::Relaxed)
    }
}

/// Whether a failure says that whatever is tried next fails too: the registry is away, wants other credentials, or the disk is full.
fn meets_all(error: &OperationError) -> bool {
    match error.cause() {
        OperationError::Registry { source, .. } => {
            source.is_passing()
                || matches!(source, RegistryError::Unauthorized { .. } | RegistryError::Io { .. })
        }
        OperationError::Io { .. } => true,
        _ => false,
    }
}

/// A panic in a task is a bug, and shall be seen as what it is.
fn expect_no_panic(ended: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(error)) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

impl Copied {
    fn sort(&mut self) {
        self.copied.sort_by(|one, other| (&one.to, &one.version).cmp(&(&other.to, &other.version)));
        self.skipped.sort_by(|one, other| (&one.to, &one.version).cmp(&(&other.to, &other.version)));
        self.failed.sort_by(|one, other| (&one.from, &one.version).cmp(&(&other.from, &other.version)));
    }
}
