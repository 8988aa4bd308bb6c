//! The one list of rules for every zip: on push, on pull and on serve.
//!
//! [`check_directory`] reads the end of a zip alone, so that a server can ask for it by range before it hands out a link.
//! [`check_content`] goes on to what the directory claims: every entry is inflated, within its declared size, and compared
//! with its headers.
//!
//! A zip must be what ordinary writers make: entries from the first byte on, one after the other, the directory right behind
//! them, the end record right behind that, nothing before, between or after. Each deviation is a place where two readers see
//! two zips, and none is needed.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use super::content::{ContentReader, check_descriptor, locate_content};
use super::dirhash::{DirectoryHash, DirectoryHashError};
use super::names::check_entries;
use super::records::{
    self, CentralHeader, END_LENGTH, EXTRA_ASI_UNIX, EXTRA_UNICODE_PATH, EXTRA_UNIX, EXTRA_ZIP64, EndRecord,
    FLAG_DESCRIPTOR, FLAGS_ENCRYPTED, Fields, LOCAL_LENGTH, METHOD_DEFLATED, METHOD_STORED, ZIP64_END_LENGTH,
    ZIP64_LOCATOR_LENGTH,
};
use super::{Contents, ModuleKind};

/// Bytes of a whole zip: the limit of `cue`, which therefore every reader of our modules can take.
pub const MAX_ZIP_SIZE: u64 = 500 << 20;
/// Bytes of all files of a zip together, unpacked: the limit of `cue`.
pub const MAX_UNPACKED_SIZE: u64 = 500 << 20;
/// Bytes of a provider's zip: what can be written without the 64-bit extension, and so be read by everybody. The largest providers have
/// some hundred MiB.
pub const MAX_PROVIDER_ZIP_SIZE: u64 = 4 << 30;
/// Bytes of all files of a provider's zip together, unpacked: a program is packed to a quarter of its size or more. Nothing is held of
/// it, so this only says when to stop.
pub const MAX_PROVIDER_UNPACKED_SIZE: u64 = 16 << 30;
/// Entries of a zip: ten times the largest modules known, and little enough to hold all names in memory.
pub const MAX_ENTRIES: usize = 100_000;
/// Bytes of `cue.mod/module.cue`: the limit of `cue`.
pub const MAX_MODULE_FILE_SIZE: u64 = 16 << 20;
/// Bytes of `LICENSE` at the root: the limit of `cue`.
pub const MAX_LICENSE_SIZE: u64 = 16 << 20;
/// Bytes of a name: a quarter of what Linux takes for a path, which leaves room for the folder that it is unpacked into; it
/// also limits how deep folders nest.
pub const MAX_NAME_LENGTH: usize = 1024;
/// Bytes of one component of a name: the limit of the usual file systems.
pub const MAX_COMPONENT_LENGTH: usize = 255;
/// Bytes of a central directory: all entries with names, extra fields and comments of 280 bytes on average. It is held whole
/// while it is read.
pub const MAX_DIRECTORY_SIZE: u64 = 32 << 20;

/// The longest end of a zip that can hold its end record: with the longest comment, and zip64's two records before it. It is
/// what [`check_directory`] reads first, in most cases all that it reads.
pub const MAX_TAIL: u64 = (END_LENGTH + u16::MAX as usize + ZIP64_LOCATOR_LENGTH + ZIP64_END_LENGTH) as u64;

/// Type bits of a Unix mode.
const TYPE_MASK: u32 = 0o170_000;
const TYPE_FILE: u32 = 0o100_000;
const TYPE_FOLDER: u32 = 0o040_000;
const TYPE_SYMLINK: u32 = 0o120_000;
/// The attribute by which MS-DOS knows a folder.
const DOS_FOLDER: u32 = 0x10;

/// Why a zip, or the folder that was to become one, is refused; one variant a rule. `name` is the entry's name, as it stands.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what the variant means")]
pub enum CheckError {
    #[error("this is not a zip: it has no end of central directory record")]
    NotAZip,
    #[error("the zip is {size} bytes long; at most {limit} are allowed")]
    ZipTooLarge { size: u64, limit: u64 },
    #[error("bytes follow the end of the zip; pack it anew")]
    TrailingData,
    #[error("the zip is one part of several; join them and pack it anew")]
    SplitArchive,
    #[error("the zip's 64-bit and 32-bit fields disagree{}; pack it anew", of_entry(name.as_deref()))]
    Zip64 { name: Option<String> },
    #[error(
        "the central directory does not stand where the end record says, right before it; pack the zip anew"
    )]
    DirectoryBounds,
    #[error("the central directory is {size} bytes long; at most {MAX_DIRECTORY_SIZE} are allowed")]
    DirectoryTooLarge { size: u64 },
    #[error("the central directory is damaged after {entries} entries")]
    DirectoryDamaged { entries: usize },
    #[error("the central directory holds other entries than the {declared} that the end record counts")]
    EntryCount { declared: u64 },
    #[error("{entries} entries; at most {MAX_ENTRIES} are allowed")]
    TooManyEntries { entries: u64 },
    #[error("there is no file in it")]
    NoFiles,
    #[error("{length} bytes stand before the first entry; pack the zip anew")]
    PrependedData { length: u64 },
    #[error("{name:?} overlaps with what follows it in the zip")]
    Overlap { name: String },
    #[error("bytes that belong to no entry follow {name:?}; pack the zip anew")]
    HiddenData { name: String },
    #[error("{name:?} is encrypted; pack it without a password")]
    Encrypted { name: String },
    #[error("{name:?} is compressed by method {method}; only stored (0) and deflate (8) are allowed")]
    CompressionMethod { name: String, method: u16 },
    #[error("{name:?} has an extra field that is cut off")]
    ExtraField { name: String },
    #[error("{name:?} carries another name in an extra field; pack it anew")]
    SecondName { name: String },
    #[error("the name {name:?} is not UTF-8; rename the file")]
    NameNotUtf8 { name: String },
    #[error(
        "the name {name:?} is too long: at most {MAX_NAME_LENGTH} bytes, {MAX_COMPONENT_LENGTH} between slashes"
    )]
    NameTooLong { name: String },
    #[error("the name {name:?} has a control character; rename the file")]
    ControlCharacter { name: String },
    #[error("the name {name:?} has a backslash; only `/` may separate folders")]
    Backslash { name: String },
    #[error("the name {name:?} is absolute")]
    AbsoluteName { name: String },
    #[error("the name {name:?} begins with a drive letter")]
    DriveLetter { name: String },
    #[error("the name {name:?} leads to a parent folder")]
    ParentFolder { name: String },
    #[error("the name {name:?} has an empty component or `.`")]
    UncleanName { name: String },
    #[error("{name:?} stands there twice")]
    DuplicateName { name: String },
    #[error("{name:?} and {other:?} differ by case alone; rename one")]
    CaseClash { name: String, other: String },
    #[error("{name:?} is a file, and a folder in {other:?}")]
    FileAndFolder { name: String, other: String },
    #[error("{name:?} is a symbolic link; clients would unpack it as a text file")]
    Symlink { name: String },
    #[error("{name:?} is a hard link")]
    HardLink { name: String },
    #[error("{name:?} is neither a file nor a folder")]
    SpecialFile { name: String },
    #[error("{name:?} is marked as a folder but does not end in `/`, or ends in `/` and has content")]
    FolderForm { name: String },
    #[error("{name:?} is {size} bytes long; at most {limit} are allowed")]
    FileTooLarge { name: String, size: u64, limit: u64 },
    #[error("all files together are {size} bytes long, unpacked; at most {limit} are allowed")]
    UnpackedTooLarge { size: u64, limit: u64 },
    #[error(
        "{name:?} belongs to another module: only the root may have a `cue.mod`; push that module by itself"
    )]
    NestedCueMod { name: String },
    #[error("{name:?} must be written in lower case: `cue.mod/module.cue`")]
    CueModCase { name: String },
    #[error("{name:?} stands there as an entry of its own; `cue` takes only files in `cue.mod/`")]
    CueModEntry { name: String },
    #[error("{name:?} is for one machine only and may not be published; leave it out")]
    LocalModuleFile { name: String },
    #[error("a CUE module needs `cue.mod/module.cue`; `cue mod init` writes one")]
    ModuleFileMissing,
    #[error("the name {name:?} has the character {character:?}, which `cue` refuses in names")]
    NameCharacter { name: String, character: char },
    #[error("the name {name:?} has a component that ends in a dot, which `cue` refuses")]
    TrailingDot { name: String },
    #[error(
        "{name:?} belongs to version control, whose programs run what is named there where the module is unpacked; leave it out"
    )]
    VersionControl { name: String },
    #[error("the name {name:?} has a component that Windows keeps for a device, which `cue` refuses")]
    ReservedName { name: String },
    #[error("{name:?} has a local header that disagrees with the central directory")]
    LocalHeader { name: String },
    #[error("{name:?} has a data descriptor that disagrees with the central directory")]
    DataDescriptor { name: String },
    #[error("{name:?} has another size than is declared")]
    SizeMismatch { name: String },
    #[error("{name:?} has other content than its checksum says")]
    ChecksumMismatch { name: String },
    #[error("{name:?} is damaged: its compressed data cannot be read to the end")]
    CorruptData { name: String },
    #[error("the zip cannot be read")]
    Unreadable(#[source] io::Error),
}

fn of_entry(name: Option<&str>) -> String {
    name.map(|name| format!(" about {name:?}")).unwrap_or_default()
}

impl CheckError {
    /// The stable name of the rule, in kebab case: what findings show and tests compare.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::NotAZip => "not-a-zip",
            Self::ZipTooLarge { .. } => "zip-too-large",
            Self::TrailingData => "trailing-data",
            Self::SplitArchive => "split-archive",
            Self::Zip64 { .. } => "zip64",
            Self::DirectoryBounds => "directory-bounds",
            Self::DirectoryTooLarge { .. } => "directory-too-large",
            Self::DirectoryDamaged { .. } => "directory-damaged",
            Self::EntryCount { .. } => "entry-count",
            Self::TooManyEntries { .. } => "too-many-entries",
            Self::NoFiles => "no-files",
            Self::PrependedData { .. } => "prepended-data",
            Self::Overlap { .. } => "overlapping-entries",
            Self::HiddenData { .. } => "hidden-data",
            Self::Encrypted { .. } => "encrypted-entry",
            Self::CompressionMethod { .. } => "compression-method",
            Self::ExtraField { .. } => "extra-field",
            Self::SecondName { .. } => "second-name",
            Self::NameNotUtf8 { .. } => "name-not-utf8",
            Self::NameTooLong { .. } => "name-too-long",
            Self::ControlCharacter { .. } => "control-character",
            Self::Backslash { .. } => "backslash",
            Self::AbsoluteName { .. } => "absolute-name",
            Self::DriveLetter { .. } => "drive-letter",
            Self::ParentFolder { .. } => "parent-folder",
            Self::UncleanName { .. } => "unclean-name",
            Self::DuplicateName { .. } => "duplicate-name",
            Self::CaseClash { .. } => "case-clash",
            Self::FileAndFolder { .. } => "file-and-folder",
            Self::Symlink { .. } => "symlink",
            Self::HardLink { .. } => "hard-link",
            Self::SpecialFile { .. } => "special-file",
            Self::FolderForm { .. } => "folder-form",
            Self::FileTooLarge { .. } => "file-too-large",
            Self::UnpackedTooLarge { .. } => "unpacked-too-large",
            Self::NestedCueMod { .. } => "nested-cue-mod",
            Self::CueModCase { .. } => "cue-mod-case",
            Self::CueModEntry { .. } => "cue-mod-entry",
            Self::LocalModuleFile { .. } => "local-module-file",
            Self::ModuleFileMissing => "module-file-missing",
            Self::NameCharacter { .. } => "name-character",
            Self::TrailingDot { .. } => "trailing-dot",
            Self::VersionControl { .. } => "version-control",
            Self::ReservedName { .. } => "reserved-name",
            Self::LocalHeader { .. } => "local-header",
            Self::DataDescriptor { .. } => "data-descriptor",
            Self::SizeMismatch { .. } => "size-mismatch",
            Self::ChecksumMismatch { .. } => "checksum-mismatch",
            Self::CorruptData { .. } => "corrupt-data",
            Self::Unreadable(_) => "unreadable",
        }
    }

    /// The name of the entry that broke the rule, as it stands (it may hold anything: escape it before it is shown).
    pub fn entry(&self) -> Option<&str> {
        match self {
            Self::Zip64 { name } => name.as_deref(),
            Self::Overlap { name }
            | Self::HiddenData { name }
            | Self::Encrypted { name }
            | Self::CompressionMethod { name, .. }
            | Self::ExtraField { name }
            | Self::SecondName { name }
            | Self::NameNotUtf8 { name }
            | Self::NameTooLong { name }
            | Self::ControlCharacter { name }
            | Self::Backslash { name }
            | Self::AbsoluteName { name }
            | Self::DriveLetter { name }
            | Self::ParentFolder { name }
            | Self::UncleanName { name }
            | Self::DuplicateName { name }
            | Self::CaseClash { name, .. }
            | Self::FileAndFolder { name, .. }
            | Self::Symlink { name }
            | Self::HardLink { name }
            | Self::SpecialFile { name }
            | Self::FolderForm { name }
            | Self::FileTooLarge { name, .. }
            | Self::NestedCueMod { name }
            | Self::CueModCase { name }
            | Self::CueModEntry { name }
            | Self::LocalModuleFile { name }
            | Self::NameCharacter { name, .. }
            | Self::TrailingDot { name }
            | Self::VersionControl { name }
            | Self::ReservedName { name }
            | Self::LocalHeader { name }
            | Self::DataDescriptor { name }
            | Self::SizeMismatch { name }
            | Self::ChecksumMismatch { name }
            | Self::CorruptData { name } => Some(name),
            Self::NotAZip
            | Self::ZipTooLarge { .. }
            | Self::TrailingData
            | Self::SplitArchive
            | Self::DirectoryBounds
            | Self::DirectoryTooLarge { .. }
            | Self::DirectoryDamaged { .. }
            | Self::EntryCount { .. }
            | Self::TooManyEntries { .. }
            | Self::NoFiles
            | Self::PrependedData { .. }
            | Self::UnpackedTooLarge { .. }
            | Self::ModuleFileMissing
            | Self::Unreadable(_) => None,
        }
    }

    /// The refusal that a reader of this room wrapped into an I/O error, or the I/O error itself.
    pub(super) fn of_read(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Unreadable)
    }
}

/// An entry of a zip, as the central directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The name, with `/` between folders; that of a folder ends in `/`.
    pub name: String,
    /// Bytes of the content.
    pub size: u64,
    /// Bytes of the content as it stands in the zip.
    pub compressed_size: u64,
    /// Compression method: 0 stored, 8 deflate.
    pub method: u16,
    /// CRC-32 of the content.
    pub crc32: u32,
    /// The Unix mode, type bits included; 0 where the writer recorded none (as `cue` and many others).
    pub mode: u32,
    /// Where the entry's local header begins.
    pub offset: u64,
    /// Whether sizes and checksum follow the content.
    pub(super) has_descriptor: bool,
}

impl ListedEntry {
    /// Whether this is an entry for a folder, which holds nothing.
    pub fn is_folder(&self) -> bool {
        self.name.ends_with('/')
    }

    /// Whether anybody may execute the file.
    pub fn is_executable(&self) -> bool {
        self.mode & 0o111 != 0
    }
}

/// The central directory of a zip that keeps the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The entries in the order of the directory.
    pub entries: Vec<ListedEntry>,
    /// Where the central directory begins: the end of the last entry.
    directory_offset: u64,
}

impl Listing {
    /// The entry of this exact name.
    pub fn get(&self, name: &str) -> Option<&ListedEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The kind that the names make it, by what is at the root.
    pub fn kind(&self) -> ModuleKind {
        ModuleKind::of_names(self.entries.iter().map(|entry| &entry.name))
    }

    /// Whether OpenTofu finds configuration at the root: then the shim serves it.
    pub fn has_tofu_files_at_root(&self) -> bool {
        self.kind() == ModuleKind::OpenTofu
    }

    /// The entries in the order in which they stand in the zip, each with where the next part begins.
    fn in_order(&self) -> Vec<(&ListedEntry, u64)> {
        let mut sorted: Vec<&ListedEntry> = self.entries.iter().collect();
        sorted.sort_by_key(|entry| entry.offset);
        let mut next = self.directory_offset;
        let mut ordered = Vec::with_capacity(sorted.len());
        for entry in sorted.into_iter().rev() {
            ordered.push((entry, next));
            next = entry.offset;
        }
        ordered.reverse();
        ordered
    }
}

/// Reads and checks the central directory of a zip of `size` bytes, and nothing before it: one read of the last 64 KiB,
/// and a second one where the directory is longer. `contents` adds the rules of what is in it.
pub fn check_directory(
    mut reader: impl Read + Seek,
    size: u64,
    contents: impl Into<Contents>,
) -> Result<Listing, CheckError> {
    let contents = contents.into();
    let limit = contents.max_zip_size();
    if size > limit {
        return Err(CheckError::ZipTooLarge { size, limit });
    }
    let tail_offset = size.saturating_sub(MAX_TAIL);
    let tail = read_at(&mut reader, tail_offset, size - tail_offset)?;
    let (end, end_offset) = find_end(&tail, tail_offset)?;
    if (end.disk, end.directory_disk) != (0, 0) || end.entries_on_disk != end.entries {
        return Err(CheckError::SplitArchive);
    }
    if end.directory_offset.checked_add(end.directory_size) != Some(end_offset) {
        return Err(CheckError::DirectoryBounds);
    }
    if end.directory_size > MAX_DIRECTORY_SIZE {
        return Err(CheckError::DirectoryTooLarge { size: end.directory_size });
    }
    if end.entries > MAX_ENTRIES as u64 {
        return Err(CheckError::TooManyEntries { entries: end.entries });
    }
    let in_tail = |offset: u64| offset.checked_sub(tail_offset).and_then(|start| usize::try_from(start).ok());
    let entries = match (in_tail(end.directory_offset), in_tail(end_offset)) {
        (Some(start), Some(stop)) => parse_directory(tail.get(start..stop).unwrap_or_default(), end.entries)?,
        _ => parse_directory(&read_at(&mut reader, end.directory_offset, end.directory_size)?, end.entries)?,
    };
    let listing = Listing { entries, directory_offset: end.directory_offset };
    check_extents(&listing)?;
    check_entries(listing.entries.iter().map(|entry| (entry.name.as_str(), entry.size)), contents)?;
    Ok(listing)
}

/// Checks a zip of `size` bytes in full: the directory, and that every entry is what the directory says. Reads it once, from
/// front to end; holds no content.
pub fn check_content(
    reader: impl Read + Seek,
    size: u64,
    contents: impl Into<Contents>,
) -> Result<Listing, CheckError> {
    read_content(reader, size, contents.into(), |_, content| {
        io::copy(content, &mut io::sink()).map(drop).map_err(CheckError::of_read)
    })
}

/// The same for a provider's package, with its `h1:` hash: that of the zip, as OpenTofu computes it of what it has downloaded, so that
/// entries for folders take part.
pub fn hash_package(reader: impl Read + Seek, size: u64) -> Result<(Listing, String), CheckError> {
    let mut hash = DirectoryHash::new();
    let listing = read_content(reader, size, Contents::Provider, |entry, content| {
        hash.add(&entry.name, content).map_err(|error| match error {
            DirectoryHashError::Unreadable { source, .. } => CheckError::of_read(source),
            DirectoryHashError::LineFeed { name } => CheckError::ControlCharacter { name },
        })
    })?;
    Ok((listing, hash.finish()))
}

/// Checks a zip in full, and hands each entry's content over on the way. `take` reads it to its end.
fn read_content(
    mut reader: impl Read + Seek,
    size: u64,
    contents: Contents,
    mut take: impl FnMut(&ListedEntry, &mut dyn Read) -> Result<(), CheckError>,
) -> Result<Listing, CheckError> {
    let listing = check_directory(&mut reader, size, contents)?;
    let mut reader = BufReader::new(reader);
    for (entry, next) in listing.in_order() {
        let end = locate_content(&mut reader, entry)? + entry.compressed_size;
        let gap = next.checked_sub(end).ok_or_else(|| CheckError::Overlap { name: entry.name.clone() })?;
        take(entry, &mut ContentReader::new(&mut reader, entry))?;
        check_descriptor(&mut reader, entry, gap)?;
    }
    Ok(listing)
}

/// Exactly `length` bytes from `offset` on. The length is within the limits already; the buffer grows with what comes.
fn read_at(reader: &mut (impl Read + Seek), offset: u64, length: u64) -> Result<Vec<u8>, CheckError> {
    let mut bytes = Vec::new();
    reader.seek(SeekFrom::Start(offset)).map_err(CheckError::Unreadable)?;
    reader.take(length).read_to_end(&mut bytes).map_err(CheckError::Unreadable)?;
    if bytes.len() as u64 != length {
        return Err(CheckError::Unreadable(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(bytes)
}

/// The end record, zip64's where there is one, and where the directory must therefore end.
///
/// Readers search backwards and take the last signature; so does this, and then its comment must reach exactly to the end.
fn find_end(tail: &[u8], tail_offset: u64) -> Result<(EndRecord, u64), CheckError> {
    let signature = records::END_SIGNATURE.to_le_bytes();
    let last = tail.len().checked_sub(END_LENGTH).ok_or(CheckError::NotAZip)?;
    let start =
        (0..=last).rev().find(|start| tail[*start..].starts_with(&signature)).ok_or(CheckError::NotAZip)?;
    let (end, comment_length) = EndRecord::parse(&tail[start..]).ok_or(CheckError::NotAZip)?;
    if start + END_LENGTH + usize::from(comment_length) != tail.len() {
        return Err(CheckError::TrailingData);
    }
    let locator =
        start.checked_sub(ZIP64_LOCATOR_LENGTH).and_then(|at| EndRecord::parse_locator(&tail[at..start]));
    let Some((zip64_offset, is_whole)) = locator else {
        return Ok((end, tail_offset + start as u64));
    };
    // Go's reader passes such a locator over and goes by the 32-bit record, others refuse it.
    if !is_whole {
        return Err(CheckError::SplitArchive);
    }
    let zip64_start = start.checked_sub(ZIP64_LOCATOR_LENGTH + ZIP64_END_LENGTH);
    let zip64 = zip64_start
        .filter(|at| tail_offset + *at as u64 == zip64_offset)
        .and_then(|at| EndRecord::parse_zip64(&tail[at..start]))
        .filter(|zip64| end.agrees_with(zip64));
    zip64.map(|zip64| (zip64, zip64_offset)).ok_or(CheckError::Zip64 { name: None })
}

fn parse_directory(directory: &[u8], declared: u64) -> Result<Vec<ListedEntry>, CheckError> {
    let mut fields = Fields(directory);
    let mut entries = Vec::new();
    while !fields.0.is_empty() {
        if entries.len() as u64 == declared {
            return Err(CheckError::EntryCount { declared });
        }
        let header = CentralHeader::parse(&mut fields)
            .ok_or(CheckError::DirectoryDamaged { entries: entries.len() })?;
        entries.push(check_header(&header)?);
    }
    if entries.len() as u64 != declared {
        return Err(CheckError::EntryCount { declared });
    }
    Ok(entries)
}

/// What one central header must keep by itself; the rules about names follow when all are known.
fn check_header(header: &CentralHeader<'_>) -> Result<ListedEntry, CheckError> {
    let name = str::from_utf8(header.name)
        .map_err(|_| CheckError::NameNotUtf8 { name: String::from_utf8_lossy(header.name).into_owned() })?;
    let shown = || name.to_owned();
    if header.flags & FLAGS_ENCRYPTED != 0 {
        return Err(CheckError::Encrypted { name: shown() });
    }
    if ![METHOD_STORED, METHOD_DEFLATED].contains(&header.method) {
        return Err(CheckError::CompressionMethod { name: shown(), method: header.method });
    }
    if header.disk != 0 {
        return Err(CheckError::SplitArchive);
    }
    let mut zip64 = None;
    for field in records::extra_fields(header.extra) {
        match field.ok_or_else(|| CheckError::ExtraField { name: shown() })? {
            (EXTRA_ZIP64, content) if zip64.is_none() => zip64 = Some(content),
            (EXTRA_ZIP64, _) => return Err(CheckError::Zip64 { name: Some(shown()) }),
            (EXTRA_UNICODE_PATH, content) if content.get(5..) != Some(header.name) => {
                return Err(CheckError::SecondName { name: shown() });
            }
            (EXTRA_UNIX, content) if content.len() > 12 => {
                return Err(CheckError::HardLink { name: shown() });
            }
            (EXTRA_ASI_UNIX, content) if content.len() > 14 => {
                return Err(CheckError::Symlink { name: shown() });
            }
            _ => {}
        }
    }
    // Zip64 has exactly the values whose fields are all ones, in this order; anything else is a second opinion.
    let mut wide = Fields(zip64.unwrap_or_default());
    let mut resolve = |narrow: u32| if narrow == u32::MAX { wide.u64() } else { Some(narrow.into()) };
    let resolved = [header.size, header.compressed_size, header.offset].map(&mut resolve);
    let ([Some(size), Some(compressed_size), Some(offset)], []) = (resolved, wide.0) else {
        return Err(CheckError::Zip64 { name: Some(shown()) });
    };
    if header.method == METHOD_STORED && size != compressed_size {
        return Err(CheckError::SizeMismatch { name: shown() });
    }
    // The upper half is a Unix mode only by some writers' word, but some readers take every writer at that word.
    let mode = header.external_attributes >> 16;
    let is_folder = name.ends_with('/');
    match mode & TYPE_MASK {
        TYPE_SYMLINK => return Err(CheckError::Symlink { name: shown() }),
        TYPE_FOLDER if !is_folder => return Err(CheckError::FolderForm { name: shown() }),
        0 | TYPE_FILE | TYPE_FOLDER => {}
        _ => return Err(CheckError::SpecialFile { name: shown() }),
    }
    let marked_as_folder = header.external_attributes & DOS_FOLDER != 0;
    if (is_folder && size != 0) || (!is_folder && marked_as_folder) {
        return Err(CheckError::FolderForm { name: shown() });
    }
    let has_descriptor = header.flags & FLAG_DESCRIPTOR != 0;
    let (method, crc32) = (header.method, header.crc32);
    Ok(ListedEntry { name: shown(), size, compressed_size, method, crc32, mode, offset, has_descriptor })
}

/// Entries follow each other from the first byte to the directory. How long extra fields and descriptors are is known
/// only from the local headers, so that here a gap of their greatest length passes.
fn check_extents(listing: &Listing) -> Result<(), CheckError> {
    const LONGEST_EXTRA: u64 = u16::MAX as u64 + 24;
    let ordered = listing.in_order();
    if let Some((first, _)) = ordered.first()
        && first.offset != 0
    {
        return Err(CheckError::PrependedData { length: first.offset });
    }
    for (entry, next) in ordered {
        let header = (LOCAL_LENGTH + entry.name.len()) as u64;
        let end = entry.offset.saturating_add(header).saturating_add(entry.compressed_size);
        let gap = next.checked_sub(end).ok_or_else(|| CheckError::Overlap { name: entry.name.clone() })?;
        if gap > LONGEST_EXTRA {
            return Err(CheckError::HiddenData { name: entry.name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::super::hand_zip::{HandEntry, extra, zip_of, zip_with};
    use super::super::records::END_SIGNATURE;
    use super::*;

    fn check(zip: &[u8]) -> Result<Listing, CheckError> {
        check_content(Cursor::new(zip), zip.len() as u64, None)
    }

    fn rule(zip: &[u8]) -> &'static str {
        check(zip).map_or_else(|error| error.rule(), |_| "passes")
    }

    fn directory_rule(zip: &[u8]) -> &'static str {
        check_directory(Cursor::new(zip), zip.len() as u64, None)
            .map_or_else(|error| error.rule(), |_| "passes")
    }

    fn file(name: &str) -> HandEntry {
        HandEntry::deflated(name, b"resource resource resource resource")
    }

    /// What only the directory shows must be seen without the entries, as a server sees it.
    #[track_caller]
    fn assert_refused_by_directory(entries: &[HandEntry], expected: &str) {
        let zip = zip_of(entries);
        assert_eq!((directory_rule(&zip), rule(&zip)), (expected, expected));
    }

    #[track_caller]
    fn assert_refused_by_content(entries: &[HandEntry], expected: &str) {
        let zip = zip_of(entries);
        assert_eq!((directory_rule(&zip), rule(&zip)), ("passes", expected));
    }

    #[test]
    fn what_ordinary_writers_make_passes() {
        let entries = [
            HandEntry::stored("empty", b""),
            HandEntry::deflated("empty.too", b""),
            HandEntry::stored("a/", b"").mode(0o040_755),
            HandEntry::deflated("b/", b""),
            HandEntry::stored("a/stored", b"text").mode(0o100_644),
            file("ünï.tf").mode(0o100_755),
            file("d1").described(false, false),
            file("d2").described(true, false),
            file("d3").described(false, true),
            file("d4").described(true, true),
            HandEntry::stored("d5", b"PK\x07\x08").described(true, false),
        ];
        let listing = check(&zip_of(&entries)).unwrap();
        assert_eq!(listing.entries.len(), entries.len());
        let unicode = listing.get("ünï.tf").unwrap();
        assert_eq!(
            (unicode.mode, unicode.size, unicode.method, unicode.is_executable()),
            (0o100_755, 35, 8, true)
        );
        assert!(!listing.get("a/stored").unwrap().is_executable());
        assert!(listing.get("a/").unwrap().is_folder());
        assert!(listing.has_tofu_files_at_root());
        assert!(!check(&zip_of(&[file("a/main.tf")])).unwrap().has_tofu_files_at_root());
    }

    #[test]
    fn order_dates_comments_and_zip64_that_tells_the_truth_pass() {
        let (first, second) = (file("b"), file("a"));
        let mut zip = zip_of(&[first.clone(), second.clone()]);
        let order =
            |zip: &[u8]| check(zip).unwrap().entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>();
        assert_eq!(order(&zip), ["b", "a"]);
        // Both have the same length, so that their headers in the directory can be swapped.
        let (directory, length) = (2 * first.local_bytes().len(), 46 + 1);
        zip[directory..directory + 2 * length].rotate_left(length);
        assert_eq!(order(&zip), ["a", "b"]);
        for (zip64, saturated) in [(true, true), (true, false)] {
            zip = zip_with(&[first.clone(), second.clone()], |end| {
                (end.zip64, end.saturated) = (zip64, saturated);
            });
            assert_eq!((directory_rule(&zip), rule(&zip)), ("passes", "passes"));
        }
        zip = zip_with(std::slice::from_ref(&first), |end| end.comment = vec![b'c'; 65_535]);
        assert_eq!(rule(&zip), "passes");
        let wide = |entry: HandEntry| {
            let sizes = [u64::from(entry.central.size), u64::from(entry.central.compressed_size)]
                .map(u64::to_le_bytes);
            entry.both(|header| {
                (header.size, header.compressed_size) = (u32::MAX, u32::MAX);
                header.extra = extra(EXTRA_ZIP64, &sizes.concat());
            })
        };
        assert_eq!(rule(&zip_of(&[wide(file("x"))])), "passes");
        let only_local = HandEntry { central: file("x").central, ..wide(file("x")) };
        assert_eq!(rule(&zip_of(&[only_local])), "passes");
        let with_other_extras = file("x").both(|header| {
            header.extra =
                [extra(0x5455, &[1, 0, 0, 0, 0]), extra(0x7875, &[1, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0])].concat();
        });
        assert_eq!(rule(&zip_of(&[with_other_extras])), "passes");
        let same_name = file("x").central(|header| header.extra = extra(EXTRA_UNICODE_PATH, b"\x01crc_x"));
        assert_eq!(rule(&zip_of(&[same_name])), "passes");
    }

    #[test]
    fn what_is_no_zip_is_refused() {
        for bytes in
            [&b""[..], b"PK", &[0; 21], &[0; 100], b"main.tf is a text, and longer than an end record is"]
        {
            assert_eq!(rule(bytes), "not-a-zip");
        }
        assert_eq!(rule(&zip_of(&[])), "no-files");
        assert_eq!(rule(&zip_of(&[HandEntry::stored("a/", b"")])), "no-files");
    }

    #[test]
    fn a_zip_begins_and_ends_where_its_parts_do() {
        let zip = zip_of(&[file("a"), file("b")]);
        assert_eq!(rule(&[&zip[..], b"\n"].concat()), "trailing-data");
        assert_eq!(rule(&[b"#!/bin/sh\n", &zip[..]].concat()), "directory-bounds");
        let comment_hides_an_end = zip_with(&[file("a")], |end| {
            end.comment = [&b"x"[..], &END_SIGNATURE.to_le_bytes(), &[0; 18], b"y"].concat();
        });
        assert_eq!(rule(&comment_hides_an_end), "trailing-data");
        let mut prefixed = vec![0; 10];
        prefixed.extend(zip_with(&[HandEntry { offset: Some(10), ..file("a") }], |end| {
            end.directory_offset += 10;
        }));
        assert_eq!(rule(&prefixed), "prepended-data");
        assert_eq!(rule(&zip[..zip.len() - 1]), "not-a-zip");
        assert_eq!(rule(&zip_with(&[file("a")], |end| end.disk = 1)), "split-archive");
        assert_refused_by_directory(&[HandEntry { disk: 1, ..file("a") }], "split-archive");
    }

    #[test]
    fn the_directory_is_where_and_what_the_end_record_says() {
        let entries = [file("a"), file("b")];
        for change in [1_u64, 46, u64::from(u32::MAX) / 2] {
            assert_eq!(rule(&zip_with(&entries, |end| end.directory_offset += change)), "directory-bounds");
            assert_eq!(rule(&zip_with(&entries, |end| end.directory_size += change)), "directory-bounds");
        }
        assert_eq!(rule(&zip_with(&entries, |end| end.entries = 1)), "entry-count");
        assert_eq!(rule(&zip_with(&entries, |end| end.entries = 3)), "entry-count");
        assert_eq!(
            rule(&zip_with(&entries, |end| (end.entries, end.zip64, end.saturated) = (1 << 40, true, true))),
            "too-many-entries"
        );
        let damaged = zip_with(&entries, |end| {
            (end.directory_offset, end.directory_size) = (end.directory_offset + 1, end.directory_size - 1);
        });
        assert_eq!(rule(&damaged), "directory-damaged");
        assert_eq!(rule(&zip_with(&[], |end| end.entries = 1)), "entry-count");
    }

    #[test]
    fn a_huge_directory_is_refused_before_it_is_read() {
        let names = (0..=100_000).map(|number| HandEntry::stored(&number.to_string(), b""));
        let zip = zip_with(&names.collect::<Vec<_>>(), |end| (end.zip64, end.saturated) = (true, true));
        assert_eq!(directory_rule(&zip), "too-many-entries");
        let mut bytes = vec![0; usize::try_from(MAX_DIRECTORY_SIZE).unwrap() + 1];
        let end = zip_with(&[], |end| (end.entries, end.directory_size) = (1, MAX_DIRECTORY_SIZE + 1));
        bytes.extend(end);
        assert_eq!(directory_rule(&bytes), "directory-too-large");
        assert_eq!(check_directory(io::empty(), MAX_ZIP_SIZE + 1, None).unwrap_err().rule(), "zip-too-large");
    }

    #[test]
    fn zip64_that_lies_is_refused() {
        let zip = zip_with(&[file("a")], |end| (end.zip64, end.saturated) = (true, true));
        let record = zip.len() - END_LENGTH - ZIP64_LOCATOR_LENGTH - ZIP64_END_LENGTH;
        let tampered = |at: usize, value: u8| {
            let mut zip = zip.clone();
            zip[record + at] = value;
            rule(&zip)
        };
        assert_eq!(tampered(4, 45), "zip64"); // its own size
        assert_eq!(tampered(0, 0), "zip64"); // its signature
        assert_eq!(tampered(ZIP64_END_LENGTH + 8, 0), "zip64"); // where the locator says it is
        assert_eq!(tampered(ZIP64_END_LENGTH + 4, 1), "split-archive"); // on which disk
        assert_eq!(tampered(ZIP64_END_LENGTH + 16, 2), "split-archive"); // of how many
        assert_eq!(tampered(32, 2), "split-archive"); // entries, of which one is on this disk
        assert_eq!(tampered(48, 1), "directory-bounds"); // where the directory is
        let mut disagreeing = zip_with(&[file("a")], |end| end.zip64 = true);
        let entries = disagreeing.len() - END_LENGTH + 10;
        disagreeing[entries] = 2;
        assert_eq!(rule(&disagreeing), "zip64");

        let zip64 = |values: &[u64]| {
            extra(EXTRA_ZIP64, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
        };
        let with = |values: &'static [u64]| file("a").central(|header| header.extra = zip64(values));
        // Values that nothing asks for, too few, too many, twice.
        assert_refused_by_directory(&[with(&[1])], "zip64");
        let huge = |entry: HandEntry| entry.central(|header| header.size = u32::MAX);
        assert_refused_by_directory(&[huge(file("a"))], "zip64");
        assert_refused_by_directory(&[huge(with(&[35, 35]))], "zip64");
        let twice = file("a").central(|header| header.extra = [zip64(&[35]), zip64(&[36])].concat());
        assert_refused_by_directory(&[huge(twice)], "zip64");
        assert_refused_by_directory(&[huge(with(&[u64::MAX]))], "file-too-large");
        assert_refused_by_content(&[huge(with(&[MAX_UNPACKED_SIZE]))], "local-header");
        let far = file("a").central(|header| {
            header.compressed_size = u32::MAX;
            header.extra = zip64(&[u64::MAX]);
        });
        assert_refused_by_directory(&[far], "overlapping-entries");
    }

    #[test]
    fn entries_that_overlap_are_refused() {
        let (first, second) = (file("a"), file("b"));
        let same = HandEntry { offset: Some(0), ..second.clone() };
        assert_refused_by_directory(&[first.clone(), same], "overlapping-entries");
        let longer = first.clone().central(|header| header.compressed_size += 1);
        assert_refused_by_directory(&[longer, second.clone()], "overlapping-entries");
        let into_directory = second.clone().both(|header| header.compressed_size += 1);
        assert_refused_by_directory(&[first.clone(), into_directory], "overlapping-entries");
        let beyond = HandEntry { offset: Some(u32::MAX - 1), ..second.clone() };
        assert_refused_by_directory(&[first.clone(), beyond], "hidden-data");
        // A quine's trick: the local header says that there are extra fields, which are the next entry.
        let next_in_extra = HandEntry { data: vec![], ..first };
        let mut zip = zip_of(&[next_in_extra.central(|header| header.compressed_size = 0), second]);
        zip[28..30].copy_from_slice(&60_u16.to_le_bytes());
        assert!(
            ["overlapping-entries", "local-header", "size-mismatch"].contains(&rule(&zip)),
            "{}",
            rule(&zip)
        );
    }

    #[test]
    fn bytes_between_entries_are_refused() {
        let hidden = |length| HandEntry { descriptor: vec![0; length], ..file("a") };
        assert_refused_by_content(&[hidden(1), file("b")], "hidden-data");
        assert_refused_by_content(&[file("b"), hidden(16)], "hidden-data");
        assert_refused_by_directory(&[hidden(70_000), file("b")], "hidden-data");
        let mut behind_deflate = file("a");
        behind_deflate.data.extend(b"hidden");
        assert_refused_by_content(
            &[behind_deflate.both(|header| header.compressed_size += 6)],
            "size-mismatch",
        );
    }

    #[test]
    fn encryption_and_unknown_compression_are_refused() {
        for flag in [0_u16, 6, 13] {
            assert_refused_by_directory(
                &[file("a").both(|header| header.flags |= 1 << flag)],
                "encrypted-entry",
            );
        }
        for method in [1, 9, 12, 14, 93, 95, 99, u16::MAX] {
            assert_refused_by_directory(
                &[file("a").both(|header| header.method = method)],
                "compression-method",
            );
        }
    }

    #[test]
    fn links_and_devices_are_refused_by_any_sign_of_them() {
        assert_refused_by_directory(&[HandEntry::stored("a", b"/etc/passwd").mode(0o120_777)], "symlink");
        assert_refused_by_directory(&[HandEntry::stored("a/", b"").mode(0o120_777), file("b")], "symlink");
        for mode in [0o060_600, 0o020_600, 0o010_600, 0o140_600, 0o160_000] {
            assert_refused_by_directory(&[file("a").mode(mode)], "special-file");
        }
        let linked = |identifier, length| {
            file("a").central(move |header| header.extra = extra(identifier, &vec![0; length]))
        };
        assert_refused_by_directory(&[linked(EXTRA_UNIX, 18)], "hard-link");
        assert_refused_by_directory(&[linked(EXTRA_ASI_UNIX, 18)], "symlink");
        assert_eq!(rule(&zip_of(&[linked(EXTRA_UNIX, 12)])), "passes");
    }

    #[test]
    fn what_is_a_folder_says_so_by_its_name() {
        assert_refused_by_directory(&[file("a").mode(0o040_755)], "folder-form");
        assert_refused_by_directory(&[HandEntry { attributes: 0x10, ..file("a") }], "folder-form");
        assert_refused_by_directory(&[file("a/")], "folder-form");
    }

    #[test]
    fn an_entry_has_one_name() {
        let other = file("a").central(|header| header.extra = extra(EXTRA_UNICODE_PATH, b"\x01crc_../b"));
        assert_refused_by_directory(&[other], "second-name");
        let short = file("a").central(|header| header.extra = extra(EXTRA_UNICODE_PATH, b"\x01"));
        assert_refused_by_directory(&[short], "second-name");
        assert_refused_by_directory(
            &[file("a").both(|header| header.name = b"a\xff".into())],
            "name-not-utf8",
        );
        assert_refused_by_content(&[file("a").local(|header| header.name = b"b".into())], "local-header");
        assert_refused_by_directory(
            &[file("a").central(|header| header.extra = vec![1, 2, 9, 0, 1])],
            "extra-field",
        );
        assert_refused_by_content(
            &[file("a").local(|header| header.extra = vec![1, 2, 9, 0, 1])],
            "local-header",
        );
    }

    #[test]
    fn names_are_checked_in_zips_as_in_folders() {
        for (name, expected) in [
            ("../x", "parent-folder"),
            ("/x", "absolute-name"),
            ("C:\\x", "backslash"),
            ("C:x", "drive-letter"),
            ("a\0.tf", "control-character"),
            ("", "unclean-name"),
            ("a/cue.mod/module.cue", "nested-cue-mod"),
        ] {
            assert_refused_by_directory(&[file("x"), file(name)], expected);
        }
        assert_refused_by_directory(&[file("x"), file("x")], "duplicate-name");
        assert_refused_by_directory(&[file("x"), file("X")], "case-clash");
        assert_refused_by_directory(&[file("x"), file("x/y")], "file-and-folder");
        let zip = zip_of(&[file("x.cue")]);
        let refusal = check_content(Cursor::new(&zip), zip.len() as u64, Some(ModuleKind::Cue)).unwrap_err();
        assert_eq!(refusal.rule(), "module-file-missing");
    }

    #[test]
    fn content_is_what_the_headers_say() {
        assert_refused_by_content(&[file("a").both(|header| header.crc32 ^= 1)], "checksum-mismatch");
        assert_refused_by_content(&[file("a").both(|header| header.size += 1)], "size-mismatch");
        assert_refused_by_content(&[file("a").both(|header| header.size -= 1)], "size-mismatch");
        assert_refused_by_content(&[file("a").both(|header| header.size = 0)], "size-mismatch");
        assert_refused_by_directory(
            &[HandEntry::stored("a", b"xy").both(|header| header.size = 1)],
            "size-mismatch",
        );
        for change in [1, 1 << 20] {
            assert_refused_by_content(&[file("a").local(|header| header.size += change)], "local-header");
        }
        assert_refused_by_content(&[file("a").local(|header| header.compressed_size = 0)], "local-header");
        assert_refused_by_content(&[file("a").local(|header| header.crc32 = 0)], "local-header");
        assert_refused_by_content(&[file("a").local(|header| header.method = 0)], "local-header");
        assert_refused_by_content(&[file("a").local(|header| header.flags |= 1)], "local-header");
        assert_refused_by_content(
            &[file("a").local(|header| header.flags |= FLAG_DESCRIPTOR)],
            "local-header",
        );
        let mut truncated = file("a");
        truncated.data.pop();
        assert_refused_by_content(&[truncated.both(|header| header.compressed_size -= 1)], "corrupt-data");
        let mut corrupt = file("a");
        corrupt.data[0] |= 0b110;
        assert_refused_by_content(&[corrupt], "corrupt-data");
    }

    #[test]
    fn a_data_descriptor_tells_the_truth() {
        for at in [4, 8, 12] {
            let mut entry = file("a").described(true, false);
            entry.descriptor[at] ^= 1;
            assert_refused_by_content(&[entry], "data-descriptor");
        }
        let missing = HandEntry { descriptor: vec![], ..file("a").described(true, false) };
        assert_refused_by_content(&[missing], "data-descriptor");
        let mut longer = file("a").described(true, false);
        longer.descriptor.push(0);
        assert_refused_by_content(&[longer], "data-descriptor");
        // Without the promise of a descriptor the local header must know.
        let unannounced = HandEntry { descriptor: vec![], ..file("a").described(true, false) };
        let unannounced = unannounced.both(|header| header.flags = 0);
        assert_refused_by_content(&[unannounced], "local-header");
    }

    #[test]
    fn a_bomb_is_stopped_at_its_declared_size() {
        let zeros = vec![0; 64 << 20];
        let bomb = HandEntry::deflated("bomb", &zeros).both(|header| header.size = 1000);
        assert_refused_by_content(&[bomb], "size-mismatch");
        let honest =
            |name: &str| HandEntry::stored(name, b"").central(|header| header.method = METHOD_DEFLATED);
        let nine = |entry: HandEntry| entry.central(|header| header.size = 60 << 20);
        let many: Vec<HandEntry> = (0..9).map(|number| nine(honest(&number.to_string()))).collect();
        assert_refused_by_directory(&many, "unpacked-too-large");
    }

    /// Notes what is read.
    struct Watched<'a> {
        zip: Cursor<&'a [u8]>,
        lowest: u64,
        total: u64,
    }

    impl Read for Watched<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.lowest = self.lowest.min(self.zip.position());
            let count = self.zip.read(buffer)?;
            self.total += count as u64;
            Ok(count)
        }
    }

    impl Seek for Watched<'_> {
        fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
            self.zip.seek(position)
        }
    }

    #[test]
    fn the_directory_is_read_without_the_entries() {
        let large = HandEntry::stored("large", &vec![7; 1 << 20]);
        let small: Vec<HandEntry> =
            (0..5_000).map(|number| HandEntry::stored(&format!("{number:040}"), b"")).collect();
        let zip = zip_of(&[std::slice::from_ref(&large), &small[..]].concat());
        let entries_end = (large.local_bytes().len() + small.len() * (LOCAL_LENGTH + 40)) as u64;
        let mut watched = Watched { zip: Cursor::new(&zip), lowest: u64::MAX, total: 0 };
        check_directory(&mut watched, zip.len() as u64, None).unwrap();
        assert!(watched.lowest >= entries_end);
        assert!(watched.total <= MAX_TAIL + 5_001 * 100, "{}", watched.total);
        let zip = zip_of(&[large]);
        let mut watched = Watched { zip: Cursor::new(&zip), lowest: u64::MAX, total: 0 };
        check_directory(&mut watched, zip.len() as u64, None).unwrap();
        assert_eq!(watched.total, MAX_TAIL, "one read where the directory is short");
    }

    #[test]
    fn a_file_that_is_shorter_than_said_is_an_error() {
        let zip = zip_of(&[file("a")]);
        assert_eq!(
            check_content(Cursor::new(&zip), zip.len() as u64 + 1, None).unwrap_err().rule(),
            "unreadable"
        );
    }

    /// What another reader makes of a zip.
    fn by_the_zip_crate(zip: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
        let mut archive = zip::ZipArchive::new(Cursor::new(zip)).ok()?;
        (0..archive.len())
            .map(|index| {
                let mut file = archive.by_index(index).ok()?;
                let mut content = Vec::new();
                file.read_to_end(&mut content).ok()?;
                Some((file.name().ok()?.into_owned(), content))
            })
            .collect()
    }

    fn by_us(zip: &[u8], listing: &Listing) -> Vec<(String, Vec<u8>)> {
        let content = |entry: &ListedEntry| {
            let mut reader = Cursor::new(zip);
            locate_content(&mut reader, entry).unwrap();
            let mut content = Vec::new();
            ContentReader::new(reader, entry).read_to_end(&mut content).unwrap();
            (entry.name.clone(), content)
        };
        listing.entries.iter().map(content).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_tampered_zip_is_refused_or_read_by_others_as_by_us(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            described: bool,
        ) {
            let entries = [file("a.tf"), HandEntry::stored("b/c", b"text"), file("d").described(true, described)];
            let mut zip = zip_with(&entries, |end| end.zip64 = described);
            for (index, value) in changes {
                let at = index.index(zip.len());
                zip[at] = value;
            }
            if let Ok(listing) = check(&zip)
                && let Some(theirs) = by_the_zip_crate(&zip)
            {
                prop_assert_eq!(by_us(&zip, &listing), theirs);
            }
        }

        #[test]
        fn no_bytes_make_the_checks_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(check(&bytes));
            let with_end = [&bytes[..], &zip_with(&[], |end| {
                (end.entries, end.directory_size, end.directory_offset) = (1, bytes.len() as u64, 0);
            })].concat();
            drop(check(&with_end));
        }
    }
}
