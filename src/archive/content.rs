//! The content of one entry: found behind its local header, inflated within its declared size, compared with its checksum.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::check::{CheckError, ListedEntry};
use super::records::{
    DESCRIPTOR_SIGNATURE, EXTRA_ZIP64, FLAG_DESCRIPTOR, FLAGS_ENCRYPTED, Fields, LOCAL_LENGTH, LocalHeader,
    METHOD_DEFLATED, extra_fields,
};

/// Goes to the content of `entry` and returns where it begins. The local header must say what the central one says.
pub(super) fn locate_content(
    reader: &mut (impl Read + Seek),
    entry: &ListedEntry,
) -> Result<u64, CheckError> {
    let disagrees = || CheckError::LocalHeader { name: entry.name.clone() };
    let mut fixed = [0; LOCAL_LENGTH];
    reader.seek(SeekFrom::Start(entry.offset)).map_err(CheckError::Unreadable)?;
    reader.read_exact(&mut fixed).map_err(CheckError::Unreadable)?;
    let header = LocalHeader::parse(&fixed).ok_or_else(disagrees)?;
    let mut variable = vec![0; usize::from(header.name_length) + usize::from(header.extra_length)];
    reader.read_exact(&mut variable).map_err(CheckError::Unreadable)?;
    let (name, extra) = variable.split_at(header.name_length.into());
    let has_descriptor = header.flags & FLAG_DESCRIPTOR != 0;
    if name != entry.name.as_bytes()
        || header.method != entry.method
        || header.flags & FLAGS_ENCRYPTED != 0
        || has_descriptor != entry.has_descriptor
    {
        return Err(disagrees());
    }
    let mut zip64 = Fields(&[]);
    for field in extra_fields(extra) {
        if let (EXTRA_ZIP64, content) = field.ok_or_else(disagrees)? {
            zip64 = Fields(content);
        }
    }
    let mut resolve = |narrow: u32| if narrow == u32::MAX { zip64.u64() } else { Some(narrow.into()) };
    let [size, compressed_size] = [header.size, header.compressed_size].map(&mut resolve);
    let agrees =
        |local: Option<u64>, central: u64| local == Some(central) || (has_descriptor && local == Some(0));
    if !agrees(size, entry.size)
        || !agrees(compressed_size, entry.compressed_size)
        || !agrees(Some(header.crc32.into()), entry.crc32.into())
    {
        return Err(disagrees());
    }
    Ok(entry.offset + (LOCAL_LENGTH + variable.len()) as u64)
}

/// Checks the `gap` bytes between the content of `entry`, which has been read, and the next part of the zip: a data
/// descriptor if there is to be one, with or without a signature, of 32 or 64 bits; else nothing.
pub(super) fn check_descriptor(
    reader: &mut impl Read,
    entry: &ListedEntry,
    gap: u64,
) -> Result<(), CheckError> {
    let disagrees = || CheckError::DataDescriptor { name: entry.name.clone() };
    if !entry.has_descriptor {
        return if gap == 0 { Ok(()) } else { Err(CheckError::HiddenData { name: entry.name.clone() }) };
    }
    let (signed, wide) = match gap {
        12 => (false, false),
        16 => (true, false),
        20 => (false, true),
        24 => (true, true),
        _ => return Err(disagrees()),
    };
    let mut bytes = [0; 24];
    let bytes = &mut bytes[..if signed { 16 } else { 12 } + if wide { 8 } else { 0 }];
    reader.read_exact(bytes).map_err(CheckError::Unreadable)?;
    let mut fields = Fields(bytes);
    let mut agrees = || {
        let signature = if signed { fields.u32()? } else { DESCRIPTOR_SIGNATURE };
        let crc32 = fields.u32()?;
        let mut size = || if wide { fields.u64() } else { fields.u32().map(u64::from) };
        let sizes = (size()?, size()?);
        Some(
            signature == DESCRIPTOR_SIGNATURE
                && crc32 == entry.crc32
                && sizes == (entry.compressed_size, entry.size),
        )
    };
    if agrees() == Some(true) { Ok(()) } else { Err(disagrees()) }
}

/// Reads the content of an entry from a reader that stands at its beginning.
///
/// The last read, which returns 0, checks size and checksum: whoever stops before it has unchecked bytes. Refusals
/// come as I/O errors that hold a [`CheckError`]; no read returns more than the declared size.
pub(super) struct ContentReader<R> {
    source: io::Take<R>,
    inflate: Option<Decompress>,
    ended: bool,
    checksum: Crc,
    left: u64,
    entry: ListedEntry,
}

impl<R: BufRead> ContentReader<R> {
    pub(super) fn new(source: R, entry: &ListedEntry) -> Self {
        let inflate = (entry.method == METHOD_DEFLATED).then(|| Decompress::new(false));
        Self {
            source: source.take(entry.compressed_size),
            ended: inflate.is_none(),
            inflate,
            checksum: Crc::new(),
            left: entry.size,
            entry: entry.clone(),
        }
    }

    fn refuse<T>(&self, refusal: impl FnOnce(String) -> CheckError) -> io::Result<T> {
        Err(io::Error::new(io::ErrorKind::InvalidData, refusal(self.entry.name.clone())))
    }

    /// Inflates until there is output or the stream ends.
    fn inflate(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(inflate) = &mut self.inflate else { return self.source.read(buffer) };
        while !self.ended {
            let input = self.source.fill_buf()?;
            let (read, written, input_ended) = (inflate.total_in(), inflate.total_out(), input.is_empty());
            let status = inflate.decompress(input, buffer, FlushDecompress::None);
            let read = inflate.total_in() - read;
            let written = inflate.total_out() - written;
            // Both are at most the length of a slice.
            let (Ok(read), Ok(written)) = (usize::try_from(read), usize::try_from(written)) else { break };
            self.source.consume(read);
            match status {
                Ok(Status::StreamEnd) => self.ended = true,
                Ok(_) if written > 0 || (read > 0 && !input_ended) => {}
                _ => return self.refuse(|name| CheckError::CorruptData { name }),
            }
            if written > 0 {
                return Ok(written);
            }
        }
        Ok(0)
    }
}

impl<R: BufRead> Read for ContentReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let count = self.inflate(buffer)?;
        self.checksum.update(&buffer[..count]);
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => return self.refuse(|name| CheckError::SizeMismatch { name }),
        }
        if count == 0 {
            // What is left over behind the end of the deflate stream would be hidden from everybody.
            if self.left != 0 || self.source.limit() != 0 {
                return self.refuse(|name| CheckError::SizeMismatch { name });
            }
            if self.checksum.sum() != self.entry.crc32 {
                return self.refuse(|name| CheckError::ChecksumMismatch { name });
            }
        }
        Ok(count)
    }
}

/// The content of one file of a zip, at most `limit` bytes of it, checked like every content.
pub fn read_file(
    reader: &mut (impl Read + Seek),
    entry: &ListedEntry,
    limit: u64,
) -> Result<Vec<u8>, CheckError> {
    if entry.size > limit {
        return Err(CheckError::SizeMismatch { name: entry.name.clone() });
    }
    locate_content(reader, entry)?;
    let mut bytes = Vec::new();
    let mut content = ContentReader::new(io::BufReader::new(reader), entry);
    content.read_to_end(&mut bytes).map_err(CheckError::of_read)?;
    Ok(bytes)
}
