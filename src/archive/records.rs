//! The records of a zip (APPNOTE.TXT 4.3.7 to 4.3.16), as bytes in and fields out: no rule, no allocation.

/// Local file header (4.3.7).
pub(super) const LOCAL_SIGNATURE: u32 = 0x0403_4b50;
/// Data descriptor (4.3.9.3); many writers put it, the specification only advises it.
pub(super) const DESCRIPTOR_SIGNATURE: u32 = 0x0807_4b50;
/// Central directory header (4.3.12).
pub(super) const CENTRAL_SIGNATURE: u32 = 0x0201_4b50;
/// Zip64 end of central directory record (4.3.14).
pub(super) const ZIP64_END_SIGNATURE: u32 = 0x0606_4b50;
/// Zip64 end of central directory locator (4.3.15).
pub(super) const ZIP64_LOCATOR_SIGNATURE: u32 = 0x0706_4b50;
/// End of central directory record (4.3.16).
pub(super) const END_SIGNATURE: u32 = 0x0605_4b50;

/// Bytes of a local file header without name and extra fields.
pub(super) const LOCAL_LENGTH: usize = 30;
/// Bytes of a central directory header without name, extra fields and comment.
pub(super) const CENTRAL_LENGTH: usize = 46;
/// Bytes of an end record without its comment.
pub(super) const END_LENGTH: usize = 22;
/// Bytes of a zip64 locator.
pub(super) const ZIP64_LOCATOR_LENGTH: usize = 20;
/// Bytes of a zip64 end record without an extensible data sector (which nothing writes).
pub(super) const ZIP64_END_LENGTH: usize = 56;
/// The value of a zip64 end record's own size field: the record without signature and this field.
pub(super) const ZIP64_END_SIZE_FIELD: u64 = 44;

/// General purpose flags (4.4.4): the entry is encrypted, strongly encrypted, or its headers are masked.
pub(super) const FLAGS_ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
/// General purpose flag: sizes and checksum follow the content.
pub(super) const FLAG_DESCRIPTOR: u16 = 1 << 3;

/// Compression method (4.4.5): as it is.
pub(super) const METHOD_STORED: u16 = 0;
/// Compression method: deflate.
pub(super) const METHOD_DEFLATED: u16 = 8;

/// Extra field (4.5.3): the 64-bit values of fields that hold all ones.
pub(super) const EXTRA_ZIP64: u16 = 0x0001;
/// Extra field (4.5.7): times and owner on Unix; anything past 12 bytes is the target of a link or a device number.
pub(super) const EXTRA_UNIX: u16 = 0x000d;
/// Extra field (4.6.9): another name for the entry.
pub(super) const EXTRA_UNICODE_PATH: u16 = 0x7075;
/// Extra field of Info-ZIP (`ASi Unix`): mode and owner; anything past 14 bytes is the target of a link.
pub(super) const EXTRA_ASI_UNIX: u16 = 0x756e;

/// Reads little-endian fields off the front of a slice; `None` where it is too short.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn signature(&mut self, expected: u32) -> Option<()> {
        (self.u32()? == expected).then_some(())
    }
}

/// A central directory header, values as they stand (not yet resolved by zip64).
pub(super) struct CentralHeader<'a> {
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc32: u32,
    pub(super) compressed_size: u32,
    pub(super) size: u32,
    pub(super) disk: u16,
    pub(super) external_attributes: u32,
    pub(super) offset: u32,
    pub(super) name: &'a [u8],
    pub(super) extra: &'a [u8],
}

impl<'a> CentralHeader<'a> {
    pub(super) fn parse(fields: &mut Fields<'a>) -> Option<Self> {
        fields.signature(CENTRAL_SIGNATURE)?;
        fields.bytes(4)?; // version made by, version needed
        let (flags, method) = (fields.u16()?, fields.u16()?);
        fields.bytes(4)?; // time, date
        let (crc32, compressed_size, size) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let [name_length, extra_length, comment_length] = [fields.u16()?, fields.u16()?, fields.u16()?];
        let disk = fields.u16()?;
        fields.u16()?; // internal attributes
        let (external_attributes, offset) = (fields.u32()?, fields.u32()?);
        let name = fields.bytes(name_length.into())?;
        let extra = fields.bytes(extra_length.into())?;
        fields.bytes(comment_length.into())?;
        Some(Self {
            flags,
            method,
            crc32,
            compressed_size,
            size,
            disk,
            external_attributes,
            offset,
            name,
            extra,
        })
    }
}

/// A local file header, values as they stand.
pub(super) struct LocalHeader {
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc32: u32,
    pub(super) compressed_size: u32,
    pub(super) size: u32,
    pub(super) name_length: u16,
    pub(super) extra_length: u16,
}

impl LocalHeader {
    pub(super) fn parse(bytes: &[u8; LOCAL_LENGTH]) -> Option<Self> {
        let mut fields = Fields(bytes);
        fields.signature(LOCAL_SIGNATURE)?;
        fields.u16()?; // version needed
        let (flags, method) = (fields.u16()?, fields.u16()?);
        fields.bytes(4)?; // time, date
        Some(Self {
            flags,
            method,
            crc32: fields.u32()?,
            compressed_size: fields.u32()?,
            size: fields.u32()?,
            name_length: fields.u16()?,
            extra_length: fields.u16()?,
        })
    }
}

/// An end of central directory record, or its zip64 twin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct EndRecord {
    pub(super) disk: u32,
    pub(super) directory_disk: u32,
    pub(super) entries_on_disk: u64,
    pub(super) entries: u64,
    pub(super) directory_size: u64,
    pub(super) directory_offset: u64,
}

impl EndRecord {
    /// The record and the length of the comment that follows it.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, u16)> {
        let mut fields = Fields(bytes);
        fields.signature(END_SIGNATURE)?;
        let record = Self {
            disk: fields.u16()?.into(),
            directory_disk: fields.u16()?.into(),
            entries_on_disk: fields.u16()?.into(),
            entries: fields.u16()?.into(),
            directory_size: fields.u32()?.into(),
            directory_offset: fields.u32()?.into(),
        };
        Some((record, fields.u16()?))
    }

    pub(super) fn parse_zip64(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        fields.signature(ZIP64_END_SIGNATURE)?;
        if fields.u64()? != ZIP64_END_SIZE_FIELD {
            return None;
        }
        fields.bytes(4)?; // version made by, version needed
        Some(Self {
            disk: fields.u32()?,
            directory_disk: fields.u32()?,
            entries_on_disk: fields.u64()?,
            entries: fields.u64()?,
            directory_size: fields.u64()?,
            directory_offset: fields.u64()?,
        })
    }

    /// Where the zip64 end record begins, by the locator in `bytes`, and whether that is on the only disk; `None` if there is no
    /// locator.
    pub(super) fn parse_locator(bytes: &[u8]) -> Option<(u64, bool)> {
        let mut fields = Fields(bytes);
        fields.signature(ZIP64_LOCATOR_SIGNATURE)?;
        let (disk, offset, disks) = (fields.u32()?, fields.u64()?, fields.u32()?);
        Some((offset, (disk, disks) == (0, 1)))
    }

    /// Whether every field of this 32-bit record says what the zip64 record says, or is all ones and so says nothing.
    pub(super) fn agrees_with(&self, zip64: &Self) -> bool {
        let agree = |narrow: u64, ones: u64, wide: u64| narrow == wide || narrow == ones;
        let (ones16, ones32) = (u64::from(u16::MAX), u64::from(u32::MAX));
        agree(self.disk.into(), ones16, zip64.disk.into())
            && agree(self.directory_disk.into(), ones16, zip64.directory_disk.into())
            && agree(self.entries_on_disk, ones16, zip64.entries_on_disk)
            && agree(self.entries, ones16, zip64.entries)
            && agree(self.directory_size, ones32, zip64.directory_size)
            && agree(self.directory_offset, ones32, zip64.directory_offset)
    }
}

/// The extra fields (4.5.1) as pairs of identifier and content; `None` in place of one that runs over the end. Up to three
/// bytes at the end, too few for a field, are padding.
pub(super) fn extra_fields(bytes: &[u8]) -> impl Iterator<Item = Option<(u16, &[u8])>> {
    let mut fields = Fields(bytes);
    std::iter::from_fn(move || {
        if fields.0.len() < 4 {
            return None;
        }
        let (identifier, length) = (fields.u16()?, fields.u16()?);
        let content = fields.bytes(length.into());
        if content.is_none() {
            fields.0 = &[];
        }
        Some(content.map(|content| (identifier, content)))
    })
}
