//! What installing clients ask for: the versions of a module, and the zip of one of them.
//!
//! A zip is named to a client only after its directory was looked at: what a client does with `../` in a name, or with a link, is
//! not ours to mend later.

use std::io::{Read, Seek, SeekFrom};

use futures_util::StreamExt;
use tokio::runtime::Handle;

use crate::archive::{self, Listing, ModuleKind};
use crate::artifact::Content;
use crate::module::{Host, Version};
use crate::oci::ByteRange;
use crate::registry::{Blob, BlobRequest, RegistryError};

use super::error::{OperationError, Result};
use super::finding::Finding;
use super::published::{self, Published, StoredModule};
use super::routes::{ModuleName, Place, Routes};

/// The versions of an OpenTofu module that installing clients may choose from; of modules on `host` alone where it is given.
pub async fn versions(routes: &Routes, module: &ModuleName, host: Option<&Host>) -> Result<Published> {
    let mut published = find(routes, module, host).await?;
    published.leave_unyanked().await?;
    published.leave_modules().await?;
    Ok(published)
}

async fn find(routes: &Routes, module: &ModuleName, host: Option<&Host>) -> Result<Published> {
    let published = published::find(routes, module).await?;
    if let Some(host) = host {
        // A repository holds one module, so one look at the path is enough for all of its versions.
        let stored = published.stored_path().await?;
        let is_here =
            |path: &crate::module::CuePath| [host.as_str(), Host::INTERNAL].contains(&path.first_element());
        if !stored.as_ref().is_none_or(is_here) {
            return Err(OperationError::NoModule {
                module: module.to_string(),
                places: vec![published.place.name()],
            });
        }
    }
    Ok(published)
}

/// The source of a module's newest version, as its annotation says it, where that is https.
pub async fn source(published: &Published) -> Option<String> {
    let stored = published.load(published.versions.last()?).await.ok()?;
    let source = stored.artifact.annotations.get(crate::artifact::media_types::SOURCE)?;
    let url = url::Url::parse(source).ok()?;
    (url.scheme() == "https" && url.username().is_empty() && url.password().is_none())
        .then(|| url.to_string())
}

/// One version, its zip looked at.
pub async fn version(
    routes: &Routes,
    module: &ModuleName,
    host: Option<&Host>,
    version: &Version,
) -> Result<StoredModule> {
    // What else is in the repository does not matter here, so nothing but this version's manifest is read.
    let published = find(routes, module, host).await?;
    let Some(tagged) = published.versions.iter().find(|tagged| tagged.version == *version) else {
        return Err(OperationError::NoModule {
            module: format!("{module}@{version}"),
            places: vec![published.place.name()],
        });
    };
    published.load(tagged).await
}

/// Looks at the directory of a module's zip, by range requests, and refuses what a push would have refused.
pub async fn checked_listing(stored: &StoredModule) -> Result<Listing> {
    let mut reader = RangeReader::new(stored.place.clone(), stored.artifact.archive.clone());
    let (size, name) = (stored.artifact.archive.size, stored.name());
    // Names are held to OpenTofu's rules: what comes through here is installed by it, whoever wrote the zip.
    super::blocking(move || {
        let checked = archive::check_directory(&mut reader, size, Some(ModuleKind::OpenTofu));
        match (reader.failure.take(), checked) {
            (Some(error), _) => Err(OperationError::registry(name)(error)),
            (None, Ok(listing)) => Ok(listing),
            (None, Err(error)) => Err(OperationError::refused(Finding::of_check(&error, &name))),
        }
    })
    .await
}

/// The zip itself, or a piece of it, or where it can be had.
pub async fn archive(place: &Place, content: &Content, request: BlobRequest) -> Result<Blob> {
    let blob = place.registry().blob(&place.repository, &content.digest, request).await;
    blob.map_err(OperationError::registry(place.name()))
}

/// How much is fetched at a time: the end of a zip and the directory of a usual one fit.
const WINDOW: u64 = 64 * 1024;

/// A blob as a file that is read from any position. It belongs on a thread that may wait.
struct RangeReader {
    place: Place,
    content: Content,
    position: u64,
    window_start: u64,
    window: Vec<u8>,
    runtime: Handle,
    /// What the registry said, since an input error would lose it.
    failure: Option<RegistryError>,
}

impl RangeReader {
    fn new(place: Place, content: Content) -> Self {
        let runtime = Handle::current();
        Self { place, content, position: 0, window_start: 0, window: Vec::new(), runtime, failure: None }
    }

    async fn fetch(&self, start: u64, length: u64) -> Result<Vec<u8>, RegistryError> {
        let range = ByteRange::FromTo { first: start, last: start + length - 1 };
        let request = BlobRequest { range: Some(range), location: false };
        let blob = self.place.registry().blob(&self.place.repository, &self.content.digest, request).await?;
        let Blob::Stream(stream) = blob else {
            return Err(RegistryError::Unsupported { operation: "reading blobs elsewhere" });
        };
        if stream.size != self.content.size {
            return Err(RegistryError::SizeMismatch { expected: self.content.size, actual: stream.size });
        }
        let mut window = Vec::new();
        let mut bytes = stream.bytes;
        while let Some(piece) = bytes.next().await {
            window.extend_from_slice(&piece?);
            if window.len() as u64 > length {
                return Err(RegistryError::TooLarge { limit: length });
            }
        }
        if (window.len() as u64) < length {
            return Err(RegistryError::SizeMismatch { expected: length, actual: window.len() as u64 });
        }
        Ok(window)
    }
}

impl Read for RangeReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if buffer.is_empty() || self.position >= self.content.size {
            return Ok(0);
        }
        let inside = self.position.checked_sub(self.window_start).filter(|at| *at < self.window.len() as u64);
        let at = if let Some(at) = inside {
            at
        } else {
            // Zips are read from the end, so a window before the position serves as well as one behind it.
            let wanted = WINDOW.max(buffer.len().min(1 << 20) as u64);
            let end = self.content.size.min(self.position + wanted);
            let start = if end == self.content.size { end.saturating_sub(wanted) } else { self.position };
            match self.runtime.block_on(self.fetch(start, end - start)) {
                Ok(window) => (self.window_start, self.window) = (start, window),
                Err(error) => {
                    self.failure = Some(error);
                    return Err(std::io::Error::other("the registry failed"));
                }
            }
            self.position - self.window_start
        };
        // The offset lies within the window, which is in memory.
        let rest = &self.window[usize::try_from(at).map_err(std::io::Error::other)?..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for RangeReader {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.content.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}
