//! The tar format (POSIX.1-2024, pax, "ustar Interchange Format"), as far as an image layout needs it: where each content lies, and
//! headers that are the same bytes every time.
//!
//! A reader of our own, because nothing is ever unpacked: wanted are names, offsets and sizes, and of these it has to be certain. What
//! two readers could understand in two ways is refused here: links, sparse files, a size or a name that is said twice, names that lead
//! out of the archive. The crates that unpack archives are lenient where readers disagree, which has led to advisories
//! (RUSTSEC-2025-0111, RUSTSEC-2026-0067), and take extended headers of any length into memory.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

/// Everything in a tar begins at a multiple of this.
pub(super) const BLOCK: u64 = 512;
/// The same for buffers.
const BLOCK_LENGTH: usize = 512;
/// What stands behind the last entry: two empty blocks.
pub(super) const END: [u8; 2 * BLOCK_LENGTH] = [0; 2 * BLOCK_LENGTH];

/// A layout with more entries is broken off: an entry takes some 150 bytes of memory.
pub(super) const MAX_ENTRIES: usize = 1_000_000;
/// The records of an extended header that ocimod wants are some 200 bytes; tools add times and attributes.
const MAX_EXTENDED: u64 = 64 * 1024;
/// The largest size that a header can say by itself: eleven octal digits.
const MAX_PLAIN_SIZE: u64 = 0o777_7777_7777;

/// Where the fields of a header are.
mod field {
    use std::ops::Range;

    pub(super) const NAME: Range<usize> = 0..100;
    pub(super) const MODE: Range<usize> = 100..108;
    pub(super) const USER: Range<usize> = 108..116;
    pub(super) const GROUP: Range<usize> = 116..124;
    pub(super) const SIZE: Range<usize> = 124..136;
    pub(super) const MODIFIED: Range<usize> = 136..148;
    pub(super) const CHECKSUM: Range<usize> = 148..156;
    pub(super) const KIND: usize = 156;
    pub(super) const MAGIC: Range<usize> = 257..265;
    pub(super) const DEVICE_MAJOR: Range<usize> = 329..337;
    pub(super) const DEVICE_MINOR: Range<usize> = 337..345;
    pub(super) const PREFIX: Range<usize> = 345..500;
}

/// The magic of POSIX, with its version.
const USTAR: &[u8; 8] = b"ustar\x0000";
/// That of GNU, where what POSIX has for a prefix of the name is something else.
const GNU: &[u8; 8] = b"ustar  \0";

/// Why a file is not read as a tar. Names are shown without control characters.
#[derive(Debug, thiserror::Error)]
pub(super) enum TarError {
    /// It cannot be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Compressed by gzip or zstd.
    #[error("it is compressed by {0}, and a layout is read in place; unpack it first")]
    Compressed(&'static str),
    /// No header where one has to be.
    #[error("it is no tar archive, or damaged: there is no header at byte {0}")]
    NoHeader(u64),
    /// A number of a header cannot be read.
    #[error("`{0}` has a size that cannot be read")]
    Size(String),
    /// The size is said twice, in two ways.
    #[error("`{0}` has two sizes, and readers do not agree which one counts")]
    TwoSizes(String),
    /// It ends before an entry does.
    #[error("it is cut off: it ends within `{0}`")]
    CutOff(String),
    /// It ends without the empty block.
    #[error("it is cut off: the two empty blocks at its end are missing")]
    NoEnd,
    /// A name that is absolute, has `..` in it, or is none.
    #[error("the name `{0}` leads out of the archive, or is none")]
    Name(String),
    /// Anything but a file or a folder.
    #[error("`{0}` is {1}; a layout has files and folders alone")]
    Kind(String, &'static str),
    /// The same name twice.
    #[error("`{0}` is there twice, and readers do not agree which one counts")]
    Duplicate(String),
    /// Extended headers that are too large, or not in their form.
    #[error("the extended header at byte {0} is too large, or not in the form that it must have")]
    Extended(u64),
    /// More entries than any layout has.
    #[error("it has more than {MAX_ENTRIES} entries")]
    TooManyEntries,
}

/// A file or folder of a tar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Without `./` in front and `/` at the end; empty for the root.
    pub(super) name: String,
    pub(super) is_folder: bool,
    /// Where its bytes begin.
    pub(super) offset: u64,
    /// How many there are.
    pub(super) size: u64,
}

/// Goes through the headers of a tar. Contents are passed over, and lie within the file.
pub(super) struct Entries<R> {
    reader: R,
    /// Of the whole file.
    length: u64,
    position: u64,
    count: usize,
}

/// What an extended header says of the entry behind it.
#[derive(Default)]
struct Extended {
    name: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<R: Read + Seek> Entries<R> {
    /// Over a file of that length.
    pub(super) fn new(reader: R, length: u64) -> Self {
        Self { reader, length, position: 0, count: 0 }
    }

    /// The next entry; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, TarError> {
        let mut extended: Option<Extended> = None;
        loop {
            let at = self.position;
            let Some(header) = self.header()? else {
                // An extended header is about something.
                return if extended.is_some() { Err(TarError::Extended(at)) } else { Ok(None) };
            };
            self.count += 1;
            if self.count > MAX_ENTRIES {
                return Err(TarError::TooManyEntries);
            }
            match header[field::KIND] {
                b'x' => {
                    let records = self.extended(&header, at)?;
                    let known = extended.get_or_insert_default();
                    known.add(parse_records(&records, at)?, at)?;
                }
                b'g' => {
                    // What holds for all entries may be a comment, and no name or size.
                    let records = self.extended(&header, at)?;
                    let found = parse_records(&records, at)?;
                    if found.name.is_some() || found.size.is_some() {
                        return Err(TarError::Extended(at));
                    }
                }
                b'L' => {
                    let mut name = self.extended(&header, at)?;
                    name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
                    let found = Extended { name: Some(name), size: None };
                    extended.get_or_insert_default().add(found, at)?;
                }
                _ => return self.entry(&header, extended.unwrap_or_default()).map(Some),
            }
        }
    }

    /// The block where a header has to be; `None` at the end.
    fn header(&mut self) -> Result<Option<[u8; BLOCK_LENGTH]>, TarError> {
        let mut block = [0; BLOCK_LENGTH];
        self.reader.seek(SeekFrom::Start(self.position))?;
        match self.reader.read_exact(&mut block) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                let is_empty = self.position == 0;
                return Err(if is_empty { TarError::NoHeader(0) } else { TarError::NoEnd });
            }
            Err(error) => return Err(error.into()),
        }
        if self.position == 0 {
            match block {
                [0x1f, 0x8b, ..] => return Err(TarError::Compressed("gzip")),
                [0x28, 0xb5, 0x2f, 0xfd, ..] => return Err(TarError::Compressed("zstd")),
                _ => {}
            }
        }
        // The second one may be missing, as with some writers; what comes behind is read by nobody.
        if block.iter().all(|byte| *byte == 0) {
            return if self.position == 0 { Err(TarError::NoHeader(0)) } else { Ok(None) };
        }
        let has_magic = [USTAR, GNU].iter().any(|magic| block[field::MAGIC] == **magic);
        if !has_magic || octal(&block[field::CHECKSUM]) != Some(checksum(&block)) {
            return Err(TarError::NoHeader(self.position));
        }
        self.position += BLOCK;
        Ok(Some(block))
    }

    /// The content of an extended header.
    fn extended(&mut self, header: &[u8; BLOCK_LENGTH], at: u64) -> Result<Vec<u8>, TarError> {
        let size = number(&header[field::SIZE]).filter(|size| *size <= MAX_EXTENDED);
        let size = size.ok_or(TarError::Extended(at))?;
        self.reserve(size, "an extended header")?;
        self.reader.seek(SeekFrom::Start(at + BLOCK))?;
        let mut bytes = Vec::new();
        self.reader.by_ref().take(size).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == size {
            Ok(bytes)
        } else {
            Err(TarError::CutOff("an extended header".into()))
        }
    }

    fn entry(&mut self, header: &[u8; BLOCK_LENGTH], extended: Extended) -> Result<Entry, TarError> {
        let name = extended.name.unwrap_or_else(|| plain_name(header));
        let shown = shown(&name);
        let is_folder = match header[field::KIND] {
            b'0' | 0 | b'7' => false,
            b'5' => true,
            b'1' => return Err(TarError::Kind(shown, "a link to another entry")),
            b'2' => return Err(TarError::Kind(shown, "a symbolic link")),
            b'3' | b'4' => return Err(TarError::Kind(shown, "a device")),
            b'6' => return Err(TarError::Kind(shown, "a pipe")),
            b'S' => return Err(TarError::Kind(shown, "a sparse file")),
            _ => return Err(TarError::Kind(shown, "an entry of a type that ocimod does not know")),
        };
        let plain = number(&header[field::SIZE]).ok_or_else(|| TarError::Size(shown.clone()))?;
        let size = match extended.size {
            // Writers that need the longer form leave the plain one empty, or repeat it.
            Some(size) if plain == 0 || plain == size => size,
            Some(_) => return Err(TarError::TwoSizes(shown)),
            None => plain,
        };
        if is_folder && size != 0 {
            return Err(TarError::Size(shown));
        }
        let name = normal_name(&name, is_folder).ok_or_else(|| TarError::Name(shown.clone()))?;
        let offset = self.position;
        self.reserve(size, &shown)?;
        Ok(Entry { name, is_folder, offset, size })
    }

    /// Moves behind a content, which has to be there to its last byte.
    fn reserve(&mut self, size: u64, what: &str) -> Result<(), TarError> {
        let end = self.position.checked_add(size).filter(|end| *end <= self.length);
        let end = end.ok_or_else(|| TarError::CutOff(what.to_owned()))?;
        self.position = end.checked_next_multiple_of(BLOCK).ok_or(TarError::NoEnd)?;
        Ok(())
    }
}

impl Extended {
    /// Takes in what one more header says; nothing may be said twice.
    fn add(&mut self, more: Self, at: u64) -> Result<(), TarError> {
        for (known, more) in
            [(self.name.is_some(), more.name.is_some()), (self.size.is_some(), more.size.is_some())]
        {
            if known && more {
                return Err(TarError::Extended(at));
            }
        }
        self.name = self.name.take().or(more.name);
        self.size = self.size.or(more.size);
        Ok(())
    }
}

/// The records of a pax header: `LENGTH KEY=VALUE\n`, where the length counts the whole record.
fn parse_records(mut bytes: &[u8], at: u64) -> Result<Extended, TarError> {
    let malformed = || TarError::Extended(at);
    let mut found = Extended::default();
    while !bytes.is_empty() {
        let space = bytes.iter().take(20).position(|byte| *byte == b' ').ok_or_else(malformed)?;
        let length: usize =
            decimal(&bytes[..space]).and_then(|length| length.try_into().ok()).ok_or_else(malformed)?;
        let record = bytes.get(space + 1..length).and_then(|record| record.strip_suffix(b"\n"));
        let record = record.ok_or_else(malformed)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" if found.name.is_none() => found.name = Some(value.to_vec()),
            b"size" if found.size.is_none() => found.size = Some(decimal(value).ok_or_else(malformed)?),
            b"path" | b"size" => return Err(malformed()),
            key if key.starts_with(b"GNU.sparse.") => {
                let name = found.name.as_deref().unwrap_or(b"an entry");
                return Err(TarError::Kind(shown(name), "a sparse file"));
            }
            // Times, owners and the like are of no interest.
            _ => {}
        }
        bytes = &bytes[length..];
    }
    Ok(found)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Octal digits with spaces before, and an end of spaces or zeros.
fn octal(field: &[u8]) -> Option<u64> {
    let start = field.iter().position(|byte| *byte != b' ')?;
    let digits = &field[start..];
    let end = digits.iter().position(|byte| matches!(byte, b' ' | 0)).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if digits.is_empty() || !rest.iter().all(|byte| matches!(byte, b' ' | 0)) {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// A number in either form: octal digits, or GNU's binary one, which begins with a set bit.
fn number(field: &[u8]) -> Option<u64> {
    match field {
        [0x80, rest @ ..] => {
            rest.iter().try_fold(0_u64, |value, byte| value.checked_mul(256)?.checked_add(u64::from(*byte)))
        }
        field => octal(field),
    }
}

/// The sum of a header's bytes, its own field counted as spaces.
fn checksum(header: &[u8; BLOCK_LENGTH]) -> u64 {
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    let own: u64 = header[field::CHECKSUM].iter().map(|byte| u64::from(*byte)).sum();
    sum - own + u64::from(b' ') * 8
}

/// The name in a header itself.
fn plain_name(header: &[u8; BLOCK_LENGTH]) -> Vec<u8> {
    let until_zero =
        |field: &[u8]| field.iter().position(|byte| *byte == 0).map_or(field, |end| &field[..end]).to_vec();
    let name = until_zero(&header[field::NAME]);
    let prefix = if header[field::MAGIC] == *USTAR { until_zero(&header[field::PREFIX]) } else { Vec::new() };
    if prefix.is_empty() { name } else { [prefix, name].join(&b'/') }
}

/// The name within the archive; `None` where it is none, or leads out of it.
fn normal_name(name: &[u8], is_folder: bool) -> Option<String> {
    let text = String::from_utf8_lossy(name);
    let mut text = text.as_ref();
    if is_folder {
        text = text.strip_suffix('/').unwrap_or(text);
    }
    if text == "." {
        return is_folder.then(String::new);
    }
    let text = text.strip_prefix("./").unwrap_or(text);
    let is_fine = |part: &str| !part.is_empty() && part != "." && part != "..";
    (!text.contains('\0') && text.split('/').all(is_fine)).then(|| text.to_owned())
}

/// A stranger's name for a message.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(200).collect::<String>().escape_debug().to_string()
}

/// How many zeros stand behind a content of that size.
pub(super) fn padding(size: u64) -> &'static [u8] {
    // Less than a block, so it fits.
    &END[..usize::try_from(size.next_multiple_of(BLOCK) - size).unwrap_or_default()]
}

/// What stands before a content: the same bytes for the same name and size. No time, no user.
pub(super) fn header(name: &str, is_folder: bool, size: u64) -> Vec<u8> {
    let mut records = Vec::new();
    if name.len() > field::NAME.len() {
        push_record(&mut records, "path", name);
    }
    if size > MAX_PLAIN_SIZE {
        push_record(&mut records, "size", &size.to_string());
    }
    let mut blocks = Vec::new();
    if !records.is_empty() {
        // The name of an extended header is read by nobody who knows what it is.
        blocks.extend(block("PaxHeaders/entry", b'x', 0o644, records.len() as u64));
        blocks.extend(&records);
        blocks.extend(padding(records.len() as u64));
    }
    let (kind, mode) = if is_folder { (b'5', 0o755) } else { (b'0', 0o644) };
    let folder = format!("{name}/");
    blocks.extend(block(
        if is_folder { &folder } else { name },
        kind,
        mode,
        if size > MAX_PLAIN_SIZE { 0 } else { size },
    ));
    blocks
}

/// Adds a record whose length counts itself.
fn push_record(records: &mut Vec<u8>, key: &str, value: &str) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    records.extend(format!("{length} {key}={value}\n").into_bytes());
}

fn block(name: &str, kind: u8, mode: u64, size: u64) -> [u8; BLOCK_LENGTH] {
    let mut block = [0; BLOCK_LENGTH];
    let name = &name.as_bytes()[..name.len().min(field::NAME.len())];
    block[..name.len()].copy_from_slice(name);
    let numbers = [
        (field::MODE, mode),
        (field::USER, 0),
        (field::GROUP, 0),
        (field::SIZE, size),
        (field::MODIFIED, 0),
        (field::DEVICE_MAJOR, 0),
        (field::DEVICE_MINOR, 0),
    ];
    for (field, value) in numbers {
        let digits = format!("{value:0width$o}", width = field.len() - 1);
        block[field.start..field.end - 1].copy_from_slice(digits.as_bytes());
    }
    block[field::KIND] = kind;
    block[field::MAGIC].copy_from_slice(USTAR);
    let sum = format!("{:06o}\0 ", checksum(&block));
    block[field::CHECKSUM].copy_from_slice(sum.as_bytes());
    block
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<Entry>, TarError> {
        let mut entries = Entries::new(Cursor::new(bytes), bytes.len() as u64);
        let mut found = Vec::new();
        while let Some(entry) = entries.next()? {
            found.push(entry);
        }
        Ok(found)
    }

    fn refused(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().to_string()
    }

    /// A header whose checksum is right whatever was changed.
    fn changed(mut header: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let start = header.len() - BLOCK_LENGTH;
        change(&mut header[start..]);
        let last: [u8; BLOCK_LENGTH] = header[start..].try_into().unwrap();
        let sum = format!("{:06o}\0 ", checksum(&last));
        header[start..][field::CHECKSUM].copy_from_slice(sum.as_bytes());
        header
    }

    fn archive(parts: &[&[u8]]) -> Vec<u8> {
        [parts.concat(), END.to_vec()].concat()
    }

    fn file(name: &str, content: &[u8]) -> Vec<u8> {
        let size = content.len() as u64;
        [&header(name, false, size)[..], content, padding(size)].concat()
    }

    /// An extended header of that kind.
    fn extension(kind: u8, content: &[u8]) -> Vec<u8> {
        let size = content.len() as u64;
        [&block("x", kind, 0o644, size)[..], content, padding(size)].concat()
    }

    fn record(key: &str, value: &str) -> Vec<u8> {
        let mut records = Vec::new();
        push_record(&mut records, key, value);
        records
    }

    #[test]
    fn what_is_written_is_read_back() {
        let long = format!("blobs/sha512/{}", "a".repeat(128));
        let parts =
            [file("oci-layout", b"{}"), header("blobs", true, 0), file(&long, &[7; 513]), file("empty", b"")];
        let bytes = archive(&parts.each_ref().map(Vec::as_slice));
        let found = read(&bytes).unwrap();
        let shape: Vec<_> =
            found.iter().map(|entry| (entry.name.as_str(), entry.is_folder, entry.size)).collect();
        assert_eq!(
            shape,
            [("oci-layout", false, 2), ("blobs", true, 0), (long.as_str(), false, 513), ("empty", false, 0)]
        );
        let start = usize::try_from(found[2].offset).unwrap();
        assert_eq!(bytes[start..start + 513], [7; 513]);
    }

    #[test]
    fn sizes_above_eight_gigabytes_are_written_and_read_in_both_forms() {
        let huge = (1 << 33) + 1;
        let entries = |header: Vec<u8>| {
            let mut entries = Entries::new(Cursor::new(header), u64::MAX / 2);
            entries.next().unwrap().unwrap().size
        };
        assert_eq!(entries(header("blob", false, huge)), huge);
        let binary = changed(header("blob", false, 0), |header| {
            let field = &mut header[field::SIZE];
            field.fill(0);
            field[0] = 0x80;
            field[4..].copy_from_slice(&huge.to_be_bytes());
        });
        assert_eq!(entries(binary), huge);
    }

    #[test]
    fn names_of_gnu_tar_and_of_a_folder_that_was_packed_whole_are_read() {
        let long = format!("./blobs/sha512/{}\0", "a".repeat(128));
        let gnu = changed(header("cut", false, 0), |header| header[field::MAGIC].copy_from_slice(GNU));
        let bytes = archive(&[
            &header(".", true, 0),
            &file("./index.json", b"{}"),
            &extension(b'L', long.as_bytes()),
            &gnu,
            &extension(b'g', &record("comment", "0123")),
            &extension(b'x', &[record("mtime", "1.5"), record("path", "a/b")].concat()),
            &file("x", b""),
        ]);
        let names: Vec<_> = read(&bytes).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["", "index.json", long.trim_matches(['\0']).strip_prefix("./").unwrap(), "a/b"]);
    }

    #[test]
    fn what_is_no_file_or_folder_is_refused() {
        for (kind, word) in [
            (b'1', "link"),
            (b'2', "symbolic link"),
            (b'3', "device"),
            (b'4', "device"),
            (b'6', "pipe"),
            (b'S', "sparse"),
            (b'Z', "does not know"),
        ] {
            let entry = changed(header("blobs/x", false, 0), |header| header[field::KIND] = kind);
            let message = refused(&archive(&[&entry]));
            assert!(message.contains("blobs/x") && message.contains(word), "{message}");
        }
        let sparse = extension(b'x', &record("GNU.sparse.major", "1"));
        assert!(refused(&archive(&[&sparse, &file("x", b"")])).contains("sparse"));
    }

    #[test]
    fn names_that_lead_out_of_the_archive_are_refused() {
        for name in ["/etc/passwd", "../x", "a/../b", "a//b", "..", "", "a/", "./", "././a", "a/."] {
            let message = refused(&archive(&[&file(name, b"")]));
            assert!(message.contains("leads out"), "{name:?}: {message}");
            let extended = extension(b'x', &record("path", name));
            assert!(refused(&archive(&[&extended, &file("x", b"")])).contains("leads out"), "{name:?}");
        }
        assert!(refused(&archive(&[&header("../a", true, 0)])).contains("leads out"));
    }

    #[test]
    fn what_is_said_twice_is_refused() {
        let size = extension(b'x', &record("size", "1"));
        assert!(refused(&archive(&[&size, &file("x", b"abc")])).contains("two sizes"));
        for records in
            [[record("path", "a"), record("path", "b")], [record("size", "0"), record("size", "0")]]
        {
            let twice = extension(b'x', &records.concat());
            assert!(refused(&archive(&[&twice, &file("x", b"")])).contains("extended header"));
        }
        let (pax, gnu) = (extension(b'x', &record("path", "a")), extension(b'L', b"b\0"));
        assert!(refused(&archive(&[&pax, &gnu, &file("x", b"")])).contains("extended header"));
        let global = extension(b'g', &record("path", "a"));
        assert!(refused(&archive(&[&global, &file("x", b"")])).contains("extended header"));
    }

    #[test]
    fn extended_headers_are_bounded_and_read_to_the_letter() {
        let large = record("comment", &"x".repeat(usize::try_from(MAX_EXTENDED).unwrap()));
        assert!(refused(&archive(&[&extension(b'x', &large), &file("x", b"")])).contains("too large"));
        // A size that lies costs nothing either.
        let lying = changed(block("x", b'x', 0o644, 0).to_vec(), |header| {
            header[field::SIZE].copy_from_slice(b"77777777777\0");
        });
        assert!(refused(&archive(&[&lying])).contains("too large"));
        for records in
            ["", " ", "x", "5 a=b", "99 a=b\n", "6 a=b\n7", "3 \n", "5 ab\n", "18446744073709551616 a=b\n"]
        {
            let bytes = archive(&[&extension(b'x', records.as_bytes()), &file("x", b"")]);
            assert_eq!(read(&bytes).is_err(), !records.is_empty(), "{records:?}");
        }
        assert!(refused(&archive(&[&extension(b'x', &record("path", "a"))])).contains("extended header"));
    }

    #[test]
    fn an_archive_that_is_cut_off_anywhere_is_refused() {
        let bytes = archive(&[&file("oci-layout", b"{}"), &file("index.json", &[b' '; 600])]);
        // One empty block is enough of an end.
        for length in (0..bytes.len() - BLOCK_LENGTH).step_by(31) {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
        assert!(refused(&bytes[..1100]).contains("cut off"));
        assert!(refused(&bytes[..bytes.len() - END.len()]).contains("cut off"));
    }

    #[test]
    fn what_is_no_tar_is_named() {
        assert!(refused(&[0x1f, 0x8b, 8, 0].repeat(200)).contains("gzip"));
        assert!(refused(&[0x28, 0xb5, 0x2f, 0xfd].repeat(200)).contains("zstd"));
        assert!(refused(b"").contains("no tar"));
        assert!(refused(&[0; 4096]).contains("no tar"));
        assert!(refused(&[b'x'; 4096]).contains("at byte 0"));
        let mut damaged = archive(&[&file("a", b""), &file("b", b"")]);
        damaged[BLOCK_LENGTH + 3] ^= 1;
        assert!(refused(&damaged).contains("at byte 512"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..2048), kind in any::<u8>()) {
            let _ = read(&bytes);
            // The same with a right checksum, so that more of it is read.
            if bytes.len() >= BLOCK_LENGTH {
                bytes[field::MAGIC].copy_from_slice(if kind % 2 == 0 { USTAR } else { GNU });
                bytes[field::KIND] = [b'0', b'x', b'L', b'g', b'5', kind][usize::from(kind % 6)];
                let first: [u8; BLOCK_LENGTH] = bytes[..BLOCK_LENGTH].try_into().unwrap();
                let sum = format!("{:06o}\0 ", checksum(&first));
                bytes[field::CHECKSUM].copy_from_slice(sum.as_bytes());
                let _ = read(&bytes);
            }
        }

        #[test]
        fn no_records_make_it_panic(text in r"(([0-9]{1,3} )?(path|size|a)?=?[a-z0-9]{0,5}\n?){0,4}") {
            let _ = parse_records(text.as_bytes(), 0);
        }

        #[test]
        fn every_name_and_size_comes_back(name in "[a-z0-9]{1,60}(/[a-z0-9]{1,60}){0,3}", size in 0_u64..(1 << 40)) {
            let bytes = header(&name, false, size);
            let mut entries = Entries::new(Cursor::new(&bytes), u64::MAX / 2);
            let entry = entries.next().unwrap().unwrap();
            prop_assert_eq!((entry.name, entry.size, entry.offset), (name, size, bytes.len() as u64));
        }
    }
}
