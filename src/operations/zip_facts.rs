//! What a module's zip was found to be: its directory is looked at once for each registry and digest, by range requests.
//!
//! A piece of a content cannot be compared with its digest. So what was found is believed of the registry that has sent it, and of no
//! other: one that lies about the digest of another's zip lies about its own alone.
//!
//! What a client does with `../` in a name, or with a link, is not ours to mend later, so a zip is named to nobody before. Its
//! module file says whose zip it is, which is what a dependency layer is believed by.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use moka::future::Cache;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::archive::check::MAX_MODULE_FILE_SIZE;
use crate::archive::{self, CheckError, Contents, Listing, ModuleKind};
use crate::artifact::Content;
use crate::module::{ModuleFile, ModulePath};
use crate::oci::{ByteRange, Digest};
use crate::registry::{self, Blob, BlobRequest, RegistryError};

use super::error::{OperationError, Result};
use super::finding::Finding;
use super::routes::Place;

/// How many zips are remembered, a few hundred bytes each.
const MAX_KNOWN: u64 = 50_000;

/// How many bytes of module files are remembered: some ten thousand usual ones.
const MAX_MODULE_FILES: u64 = 32 * 1024 * 1024;

/// Where a module file is in a zip.
const MODULE_FILE: &str = "cue.mod/module.cue";

/// What is known of a zip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZipFacts {
    /// It keeps the rules.
    Good {
        /// Whether OpenTofu finds configuration at its root.
        has_tofu_files: bool,
        /// Whose zip it says that it is.
        module: NamedModule,
        /// Its module file, where there is one.
        module_file: Option<Content>,
    },
    /// It breaks a rule, so nobody gets it.
    Refused(Finding),
}

/// The module that a zip's own module file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedModule {
    /// There is no module file.
    None,
    /// There is one that cannot be read.
    Unreadable,
    /// That module.
    Path(ModulePath),
}

/// What is known of zips, by registry, digest and size: whoever names the digest of somebody's zip, with its size or another, learns of
/// its own lie, and nobody else shares in it.
pub struct KnownZips {
    known: Cache<Zip, Arc<ZipFacts>>,
    /// Module files that were read out of zips, by their own digests, with which they were compared.
    module_files: Cache<Digest, Bytes>,
    /// Providers' zips, each with the rule that it breaks. They are held to other rules than modules, so one is never taken for the other.
    packages: Cache<Zip, Option<Arc<Finding>>>,
    /// What outlives the process.
    records: Option<Arc<registry::Cache>>,
}

/// A zip of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Zip {
    registry: Arc<str>,
    content: Content,
}

impl Zip {
    fn at(place: &Place, content: &Content) -> Self {
        Self { registry: Arc::clone(&place.target.identity), content: content.clone() }
    }

    /// The name of what is recorded of it: no other registry's record has it.
    fn record_name(&self) -> Digest {
        Digest::of(format!("{}\n{}", self.content.digest, self.registry).as_bytes())
    }
}

/// The kind of the records of good zips. Another name whenever the rules for zips or the record itself are others: what was good by
/// other rules is looked at again.
const RECORD: &str = "zip-4";
/// The same for providers' zips.
const PACKAGE_RECORD: &str = "provider-zip-2";

/// A good zip as it is recorded.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    size: u64,
    has_tofu_files: bool,
    module_file: Option<(Digest, u64)>,
    module: Option<String>,
}

impl KnownZips {
    /// Nothing is known yet, but what `records` has.
    pub fn new(records: Option<Arc<registry::Cache>>) -> Self {
        let weigh = |_: &Digest, file: &Bytes| u32::try_from(file.len()).unwrap_or(u32::MAX);
        let module_files = Cache::builder().weigher(weigh).max_capacity(MAX_MODULE_FILES).build();
        Self { known: Cache::new(MAX_KNOWN), packages: Cache::new(MAX_KNOWN), module_files, records }
    }

    /// The module file of a zip that was looked at.
    pub async fn module_file(&self, place: &Place, archive: &Content, file: &Content) -> Result<Bytes> {
        let read = self.module_files.try_get_with_by_ref(&file.digest, async {
            let bytes = read_module_file(place, archive).await?;
            let actual = Digest::of(&bytes);
            if actual == file.digest {
                return Ok(Bytes::from(bytes));
            }
            // The zip was another one when it was looked at.
            let error = RegistryError::DigestMismatch { expected: file.digest.clone(), actual };
            Err(OperationError::registry(format!("{}@{}", place.name(), archive.digest))(error))
        });
        read.await.map_err(OperationError::Shared)
    }

    /// Looks at a zip, unless it is known; callers that ask at once share one look.
    pub async fn of(&self, place: &Place, content: &Content) -> Result<Arc<ZipFacts>> {
        let zip = Zip::at(place, content);
        let looked = self.known.try_get_with_by_ref(&zip, async {
            if let Some(facts) = self.recorded(&zip).await {
                return Ok(Arc::new(facts));
            }
            let facts = look(place, content).await?;
            self.record(&zip, &facts).await;
            Ok(Arc::new(facts))
        });
        looked.await.map_err(OperationError::Shared)
    }

    /// Looks at the zip of a provider, unless it is known; answers the rule that it breaks.
    pub async fn package(&self, place: &Place, content: &Content) -> Result<Option<Arc<Finding>>> {
        let zip = Zip::at(place, content);
        let looked = self.packages.try_get_with_by_ref(&zip, async {
            let name = zip.record_name();
            // The length stands in the record as it is written, in digits.
            let length = content.size.to_string();
            if let Some(records) = &self.records
                && records.record(PACKAGE_RECORD, &name).await.is_some_and(|known| known == length)
            {
                return Ok(None);
            }
            let finding = look_at_package(place, content).await?;
            if let (Some(records), None) = (&self.records, &finding) {
                records.keep_record(PACKAGE_RECORD, &name, length.into()).await;
            }
            Ok(finding.map(Arc::new))
        });
        looked.await.map_err(OperationError::Shared)
    }

    async fn recorded(&self, zip: &Zip) -> Option<ZipFacts> {
        let bytes = self.records.as_ref()?.record(RECORD, &zip.record_name()).await?;
        let record: Record = serde_json::from_slice(&bytes).ok()?;
        if record.size != zip.content.size {
            return None;
        }
        let module_file = record.module_file.map(|(digest, size)| Content { digest, size });
        let module = match (&module_file, record.module) {
            (None, _) => NamedModule::None,
            (Some(_), None) => NamedModule::Unreadable,
            (Some(_), Some(path)) => NamedModule::Path(path.parse().ok()?),
        };
        Some(ZipFacts::Good { has_tofu_files: record.has_tofu_files, module, module_file })
    }

    /// A refusal is not recorded: it is rare, and a later release may know better.
    async fn record(&self, zip: &Zip, facts: &ZipFacts) {
        let (Some(records), ZipFacts::Good { has_tofu_files, module, module_file }) = (&self.records, facts)
        else {
            return;
        };
        let path = match module {
            NamedModule::Path(path) => Some(path.to_string()),
            NamedModule::None | NamedModule::Unreadable => None,
        };
        let record = Record {
            size: zip.content.size,
            has_tofu_files: *has_tofu_files,
            module_file: module_file.as_ref().map(|file| (file.digest.clone(), file.size)),
            module: path,
        };
        if let Ok(bytes) = serde_json::to_vec(&record) {
            records.keep_record(RECORD, &zip.record_name(), bytes.into()).await;
        }
    }
}

async fn look(place: &Place, content: &Content) -> Result<ZipFacts> {
    let mut reader = RangeReader::new(place.clone(), content.clone());
    let (size, name) = (content.size, format!("{}@{}", place.name(), content.digest));
    super::blocking(move || {
        // Names are held to OpenTofu's rules: what comes through here is installed by it, whoever wrote the zip.
        let checked =
            archive::check_directory(&mut reader, size, Contents::Module(Some(ModuleKind::OpenTofu)))
                .and_then(|listing| Ok((module_file(&mut reader, &listing)?, listing)));
        match (reader.failure.take(), checked) {
            (Some(error), _) => Err(OperationError::registry(name)(error)),
            (None, Ok((file, listing))) => {
                let file = file.as_deref();
                let has_tofu_files = listing.has_tofu_files_at_root();
                let module_file =
                    file.map(|bytes| Content { digest: Digest::of(bytes), size: bytes.len() as u64 });
                Ok(ZipFacts::Good { has_tofu_files, module: NamedModule::of(file), module_file })
            }
            (None, Err(error)) => Ok(ZipFacts::Refused(Finding::of_check(&error, &name))),
        }
    })
    .await
}

async fn look_at_package(place: &Place, content: &Content) -> Result<Option<Finding>> {
    let mut reader = RangeReader::new(place.clone(), content.clone());
    let (size, name) = (content.size, format!("{}@{}", place.name(), content.digest));
    super::blocking(move || {
        let checked = archive::check_directory(&mut reader, size, Contents::Provider);
        match (reader.failure.take(), checked) {
            (Some(error), _) => Err(OperationError::registry(name)(error)),
            (None, Ok(_)) => Ok(None),
            (None, Err(error)) => Ok(Some(Finding::of_check(&error, &name))),
        }
    })
    .await
}

impl NamedModule {
    fn of(module_file: Option<&[u8]>) -> Self {
        match module_file.map(|bytes| ModuleFile::parse(bytes, true)) {
            None => Self::None,
            Some(Err(_)) => Self::Unreadable,
            Some(Ok(file)) => Self::Path(file.module),
        }
    }
}

fn module_file(reader: &mut RangeReader, listing: &Listing) -> Result<Option<Vec<u8>>, CheckError> {
    let entry = listing.get(MODULE_FILE);
    entry.map(|entry| archive::read_file(reader, entry, MAX_MODULE_FILE_SIZE)).transpose()
}

/// Reads the module file out of a zip whose directory is good.
async fn read_module_file(place: &Place, content: &Content) -> Result<Vec<u8>> {
    let mut reader = RangeReader::new(place.clone(), content.clone());
    let (size, name) = (content.size, format!("{}@{}", place.name(), content.digest));
    super::blocking(move || {
        let read = archive::check_directory(&mut reader, size, Contents::Module(Some(ModuleKind::OpenTofu)))
            .and_then(|listing| module_file(&mut reader, &listing));
        match (reader.failure.take(), read) {
            (Some(error), _) => Err(OperationError::registry(name)(error)),
            (None, Ok(file)) => Ok(file.unwrap_or_default()),
            (None, Err(error)) => Err(OperationError::refused(Finding::of_check(&error, &name))),
        }
    })
    .await
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
        let request = BlobRequest { range: Some(range), ..BlobRequest::default() };
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
