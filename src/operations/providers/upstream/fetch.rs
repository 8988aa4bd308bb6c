//! A zip on its way from its origin, read by many while it comes, and pushed when it is there.
//!
//! One task fills a temporary file, and each reader follows the file at a pace of its own. The end of a zip is held back until the whole
//! has the checksum that the origin signed and keeps the rules for zips, so that no reader has a whole one that is wrong. The task belongs
//! to nobody who asked: it goes on where every reader has gone, and the next one finds the zip in the registry. Another replica that pushes
//! the same at the same time pushes the same bytes, which is no conflict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use tempfile::TempDir;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::archive::check::MAX_PROVIDER_ZIP_SIZE;
use crate::module::{PackageName, ProviderAddress, ProviderPlatform, Version};
use crate::oci::{Algorithm, Digest, Hasher};
use crate::registry::remote::SiteFile;
use crate::registry::{ByteStream, RegistryError};

use super::super::super::NoProgress;
use super::super::super::error::{OperationError, Result};
use super::super::package::{self, Package};
use super::super::push;
use super::origin::too_long;
use super::{LONGEST, MAX_QUEUE, Upstream, too_slow, unavailable};

/// What is held back until the whole was found to be right: a zip without its end can be opened by nobody.
const HELD_BACK: u64 = 64 * 1024;
/// How much of the file a reader takes at a time.
const READ_SIZE: usize = 64 * 1024;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The provider.
    pub address: ProviderAddress,
    /// Its version.
    pub version: Version,
    /// For which system.
    pub platform: ProviderPlatform,
    /// The zip, by the origin's list of checksums.
    pub digest: Digest,
}

/// How far a fetch is.
#[derive(Clone, Default)]
pub(super) struct Progress {
    /// The file, as soon as the origin sends it.
    zip: Option<Arc<Zip>>,
    /// So many bytes of it may be read.
    readable: u64,
    stage: Stage,
}

#[derive(Clone, Default)]
enum Stage {
    #[default]
    Running,
    /// The whole may be read.
    Whole,
    Failed(Arc<OperationError>),
}

/// A zip on the disk, removed with whoever lets go of it last.
struct Zip {
    path: PathBuf,
    /// Where the origin says how long it is.
    size: Option<u64>,
    _folder: TempDir,
    /// Its place among those that may be on the disk.
    _place: OwnedSemaphorePermit,
}

/// A zip that is being fetched, or was a moment ago.
pub struct Arriving {
    zip: Arc<Zip>,
    progress: watch::Receiver<Progress>,
}

/// Takes a fetch off the list, however it ends.
struct Listed {
    upstream: Arc<Upstream>,
    wanted: Wanted,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.upstream.fetches().remove(&self.wanted);
    }
}

impl Upstream {
    fn fetches(&self) -> MutexGuard<'_, std::collections::HashMap<Wanted, watch::Receiver<Progress>>> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The zip, on its way already or from now on; [`OperationError::NoProvider`] where its origin does not have it.
    pub async fn fetch(self: &Arc<Self>, wanted: &Wanted) -> Result<Arriving> {
        let mut progress = self.join_or_begin(wanted)?;
        loop {
            let Progress { zip, stage, .. } = progress.borrow_and_update().clone();
            match (zip, stage) {
                (_, Stage::Failed(error)) => return Err(OperationError::Shared(error)),
                (Some(zip), _) => return Ok(Arriving { zip, progress }),
                (None, _) => {}
            }
            progress.changed().await.map_err(|_| ended())?;
        }
    }

    fn join_or_begin(self: &Arc<Self>, wanted: &Wanted) -> Result<watch::Receiver<Progress>> {
        let mut fetches = self.fetches();
        if let Some(progress) = fetches.get(wanted) {
            return Ok(progress.clone());
        }
        if fetches.len() >= MAX_QUEUE {
            return Err(unavailable("too many of its zips are waited for"));
        }
        let (sender, progress) = watch::channel(Progress::default());
        fetches.insert(wanted.clone(), progress.clone());
        let listed = Listed { upstream: Arc::clone(self), wanted: wanted.clone() };
        tokio::spawn(async move {
            let Listed { upstream, wanted } = &listed;
            let Wanted { address, version, platform, .. } = wanted;
            match upstream.bring(wanted, &sender).await {
                Ok(package) => upstream.keep(wanted, package).await,
                Err(error) => {
                    tracing::warn!("{address}@{version} for {platform} cannot be fetched: {error}");
                    sender.send_modify(|progress| progress.stage = Stage::Failed(Arc::new(error)));
                }
            }
            // From here on the registry has it, or whoever asks begins anew.
            drop(listed);
        });
        Ok(progress)
    }

    /// Fetches a zip into a file, and lets its end be read when all of it is right.
    async fn bring(self: &Arc<Self>, wanted: &Wanted, sender: &watch::Sender<Progress>) -> Result<Package> {
        let Wanted { address, version, platform, digest } = wanted;
        let place = Arc::clone(&self.zips).acquire_owned().await.map_err(|_| ended())?;
        let origin = self.origin(address.host()).await?;
        let opening = origin.open(address, version, platform, digest, &self.asking);
        let opened = tokio::time::timeout(LONGEST, opening).await.map_err(|_| too_slow())?;
        let Some(SiteFile { size, bytes }) = opened? else {
            let provider = format!("{address}@{version} for {platform}");
            return Err(OperationError::NoProvider { provider, place: address.host().to_string() });
        };
        if size.is_some_and(|size| size > MAX_PROVIDER_ZIP_SIZE) {
            return Err(too_long(address.host(), MAX_PROVIDER_ZIP_SIZE));
        }
        let writing = || OperationError::io(format!("writing {}", self.options.folder.display()));
        let folder = tempfile::Builder::new().prefix("ocimod-").tempdir_in(&self.options.folder);
        let folder = folder.map_err(writing())?;
        let path = folder.path().join(PackageName::of(address, version, platform).to_string());
        let file = File::create_new(&path).await.map_err(writing())?;
        let zip = Arc::new(Zip { path: path.clone(), size, _folder: folder, _place: place });
        sender.send_modify(|progress| progress.zip = Some(Arc::clone(&zip)));
        let written = write(bytes, file, wanted, MAX_PROVIDER_ZIP_SIZE, sender).await?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let package = package::read(&path, address, &name).await?;
        sender.send_modify(|progress| (progress.readable, progress.stage) = (written, Stage::Whole));
        Ok(package)
    }

    /// Pushes the zip. Where that fails, whoever asked has it all the same, and the next one fetches it once more.
    async fn keep(&self, wanted: &Wanted, package: Package) {
        let Wanted { address, version, platform, .. } = wanted;
        let packages = BTreeMap::from([(platform.clone(), package)]);
        match push::push_packages(&self.routes, address, version, &packages, Arc::new(NoProgress)).await {
            Ok(pushed) => tracing::info!("{} has the zip for {platform} from its origin", pushed.reference),
            Err(error) => tracing::error!("{address}@{version} for {platform} cannot be kept: {error}"),
        }
    }
}

/// Writes what comes, up to the limit, and answers how much it was if it has the right digest.
async fn write(
    mut from: ByteStream,
    mut file: File,
    wanted: &Wanted,
    limit: u64,
    sender: &watch::Sender<Progress>,
) -> Result<u64> {
    let name = format!("{}@{}", wanted.address, wanted.version);
    let writing = || OperationError::io(format!("writing a zip of {name}"));
    let failed = || OperationError::registry(name.clone());
    let (mut hasher, mut written) = (Hasher::new(Algorithm::Sha256), 0_u64);
    while let Some(piece) = from.next().await {
        let piece = piece.map_err(|error| failed()(error.into()))?;
        written += piece.len() as u64;
        if written > limit {
            return Err(too_long(wanted.address.host(), limit));
        }
        hasher.update(&piece);
        file.write_all(&piece).await.map_err(writing())?;
        let readable = written.saturating_sub(HELD_BACK);
        if readable > 0 {
            file.flush().await.map_err(writing())?;
            sender.send_modify(|progress| progress.readable = readable);
        }
    }
    file.flush().await.map_err(writing())?;
    let actual = hasher.finish();
    if actual != wanted.digest {
        let expected = wanted.digest.clone();
        return Err(failed()(RegistryError::DigestMismatch { expected, actual }));
    }
    Ok(written)
}

fn ended() -> OperationError {
    unavailable("the fetch has ended before its time")
}

impl Arriving {
    /// Where the origin says how long it is. A zip of another length never comes whole.
    pub fn size(&self) -> Option<u64> {
        self.zip.size
    }

    /// The zip from its beginning. It breaks off where it turns out to be wrong.
    pub fn follow(self) -> BoxStream<'static, Result<Bytes>> {
        struct Reader {
            arriving: Arriving,
            file: Option<File>,
            at: u64,
        }
        let reader = Reader { arriving: self, file: None, at: 0 };
        stream::try_unfold(reader, |mut reader| async move {
            let readable = loop {
                let Progress { readable, stage, .. } = reader.arriving.progress.borrow_and_update().clone();
                match stage {
                    _ if readable > reader.at => break readable,
                    Stage::Whole => return Ok(None),
                    Stage::Failed(error) => return Err(OperationError::Shared(error)),
                    Stage::Running => {}
                }
                reader.arriving.progress.changed().await.map_err(|_| ended())?;
            };
            let path: &Path = &reader.arriving.zip.path;
            let reading = || OperationError::io(format!("reading {}", path.display()));
            let mut file = match reader.file.take() {
                Some(file) => file,
                None => File::open(path).await.map_err(reading())?,
            };
            let length = usize::try_from(readable - reader.at).unwrap_or(usize::MAX).min(READ_SIZE);
            let mut piece = vec![0; length];
            file.read_exact(&mut piece).await.map_err(reading())?;
            reader.at += length as u64;
            reader.file = Some(file);
            Ok(Some((Bytes::from(piece), reader)))
        })
        .boxed()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn wanted(bytes: &[u8]) -> Wanted {
        Wanted {
            address: ProviderAddress::parse("acme/time").unwrap(),
            version: Version::parse("1.0.0").unwrap(),
            platform: "linux_amd64".parse().unwrap(),
            digest: Digest::of(bytes),
        }
    }

    /// Writes pieces under a limit; answers the outcome, what may be read then, and what is on the disk.
    async fn written(pieces: ByteStream, wanted: &Wanted, limit: u64) -> (Result<u64>, u64, u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zip");
        let (sender, progress) = watch::channel(Progress::default());
        let file = File::create_new(&path).await.unwrap();
        let outcome = write(pieces, file, wanted, limit, &sender).await;
        let readable = progress.borrow().readable;
        (outcome, readable, std::fs::metadata(&path).unwrap().len())
    }

    #[tokio::test]
    async fn a_zip_without_end_is_left_at_its_limit() {
        let piece = Bytes::from(vec![0; 16 * 1024]);
        let count = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&count);
        // As good as endless, and still an end where nobody stops it.
        let endless = stream::repeat_with(move || {
            *seen.lock().unwrap() += 1;
            Ok(piece.clone())
        })
        .take(1_000);
        let (outcome, _, size) = written(endless.boxed(), &wanted(b""), 1 << 20).await;
        let outcome = outcome.unwrap_err();
        assert!(outcome.to_string().contains("longer than 1048576 bytes"), "{outcome}");
        assert!(size <= 1 << 20, "{size}");
        assert_eq!(*count.lock().unwrap(), 65);
    }

    #[tokio::test]
    async fn the_end_is_held_back_until_the_whole_is_right() {
        let bytes: Vec<u8> = (0_u32..200_000).map(|number| number.to_le_bytes()[0]).collect();
        let pieces = || {
            stream::iter(
                bytes.clone().chunks(7_000).map(|it| Ok(Bytes::copy_from_slice(it))).collect::<Vec<_>>(),
            )
        };
        let (outcome, readable, size) = written(pieces().boxed(), &wanted(&bytes), 1 << 20).await;
        assert_eq!((outcome.unwrap(), readable, size), (200_000, 200_000 - HELD_BACK, 200_000));
        let (outcome, readable, _) = written(pieces().boxed(), &wanted(b"other"), 1 << 20).await;
        let outcome = outcome.unwrap_err();
        assert!(matches!(
            &outcome,
            OperationError::Registry { source: RegistryError::DigestMismatch { .. }, .. }
        ));
        assert_eq!(readable, 200_000 - HELD_BACK);
    }
}
