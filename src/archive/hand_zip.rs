//! For tests: zips written by hand, field by field, since no decent writer makes what must be refused.

use std::io::Write;

use flate2::{Compression, Crc, write::DeflateEncoder};

use super::records::{
    CENTRAL_SIGNATURE, DESCRIPTOR_SIGNATURE, END_SIGNATURE, FLAG_DESCRIPTOR, LOCAL_SIGNATURE,
    METHOD_DEFLATED, METHOD_STORED, ZIP64_END_SIGNATURE, ZIP64_LOCATOR_SIGNATURE,
};

/// What one header says of an entry.
#[derive(Clone)]
pub(super) struct HandHeader {
    pub(super) name: Vec<u8>,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc32: u32,
    pub(super) compressed_size: u32,
    pub(super) size: u32,
    pub(super) extra: Vec<u8>,
}

/// An entry: both headers, and the bytes between this one and the next.
#[derive(Clone)]
pub(super) struct HandEntry {
    pub(super) local: HandHeader,
    pub(super) central: HandHeader,
    pub(super) data: Vec<u8>,
    pub(super) descriptor: Vec<u8>,
    pub(super) attributes: u32,
    pub(super) disk: u16,
    /// In place of where the local header really is.
    pub(super) offset: Option<u32>,
}

impl HandEntry {
    pub(super) fn stored(name: &str, content: &[u8]) -> Self {
        Self::new(name, content, METHOD_STORED, content.to_vec())
    }

    pub(super) fn deflated(name: &str, content: &[u8]) -> Self {
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
        deflate.write_all(content).unwrap();
        Self::new(name, content, METHOD_DEFLATED, deflate.finish().unwrap())
    }

    fn new(name: &str, content: &[u8], method: u16, data: Vec<u8>) -> Self {
        let mut checksum = Crc::new();
        checksum.update(content);
        let header = HandHeader {
            name: name.into(),
            flags: 0,
            method,
            crc32: checksum.sum(),
            compressed_size: u32::try_from(data.len()).unwrap(),
            size: u32::try_from(content.len()).unwrap(),
            extra: Vec::new(),
        };
        Self {
            local: header.clone(),
            central: header,
            data,
            descriptor: vec![],
            attributes: 0,
            disk: 0,
            offset: None,
        }
    }

    /// Changes both headers.
    pub(super) fn both(mut self, change: impl Fn(&mut HandHeader)) -> Self {
        change(&mut self.local);
        change(&mut self.central);
        self
    }

    pub(super) fn central(mut self, change: impl Fn(&mut HandHeader)) -> Self {
        change(&mut self.central);
        self
    }

    pub(super) fn local(mut self, change: impl Fn(&mut HandHeader)) -> Self {
        change(&mut self.local);
        self
    }

    pub(super) fn mode(mut self, mode: u32) -> Self {
        self.attributes = mode << 16;
        self
    }

    /// Sizes and checksum behind the content, in one of the four forms.
    pub(super) fn described(self, signed: bool, wide: bool) -> Self {
        let mut entry = self.both(|header| header.flags |= FLAG_DESCRIPTOR);
        (entry.local.crc32, entry.local.compressed_size, entry.local.size) = (0, 0, 0);
        if signed {
            entry.descriptor.extend(DESCRIPTOR_SIGNATURE.to_le_bytes());
        }
        entry.descriptor.extend(entry.central.crc32.to_le_bytes());
        for size in [entry.central.compressed_size, entry.central.size] {
            let size = u64::from(size).to_le_bytes();
            entry.descriptor.extend(if wide { &size[..] } else { &size[..4] });
        }
        entry
    }

    pub(super) fn local_bytes(&self) -> Vec<u8> {
        let header = header_bytes(LOCAL_SIGNATURE, &[], &self.local, &[]);
        [&header, &self.data, &self.descriptor].map(Vec::as_slice).concat()
    }

    fn central_bytes(&self, offset: u32) -> Vec<u8> {
        let mut rest = vec![0, 0];
        rest.extend(self.disk.to_le_bytes());
        rest.extend([0, 0]);
        rest.extend(self.attributes.to_le_bytes());
        rest.extend(self.offset.unwrap_or(offset).to_le_bytes());
        header_bytes(CENTRAL_SIGNATURE, &[20, 3], &self.central, &rest)
    }
}

fn header_bytes(signature: u32, made_by: &[u8], header: &HandHeader, rest: &[u8]) -> Vec<u8> {
    let mut bytes = signature.to_le_bytes().to_vec();
    bytes.extend(made_by);
    bytes.extend([20, 0]);
    bytes.extend(header.flags.to_le_bytes());
    bytes.extend(header.method.to_le_bytes());
    bytes.extend([0, 0, 0x21, 0]);
    for field in [header.crc32, header.compressed_size, header.size] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(u16::try_from(header.name.len()).unwrap().to_le_bytes());
    bytes.extend(u16::try_from(header.extra.len()).unwrap().to_le_bytes());
    bytes.extend(rest);
    bytes.extend(&header.name);
    bytes.extend(&header.extra);
    bytes
}

/// An extra field.
pub(super) fn extra(identifier: u16, content: &[u8]) -> Vec<u8> {
    [&identifier.to_le_bytes()[..], &u16::try_from(content.len()).unwrap().to_le_bytes(), content].concat()
}

/// The end of a zip, so that each of its fields can lie.
pub(super) struct HandEnd {
    pub(super) disk: u16,
    pub(super) entries: u64,
    pub(super) directory_size: u64,
    pub(super) directory_offset: u64,
    pub(super) comment: Vec<u8>,
    pub(super) zip64: bool,
    /// Whether the 32-bit fields beside zip64 are all ones.
    pub(super) saturated: bool,
}

/// The whole zip of these entries.
pub(super) fn zip_of(entries: &[HandEntry]) -> Vec<u8> {
    zip_with(entries, |_| {})
}

/// The whole zip with its end changed.
pub(super) fn zip_with(entries: &[HandEntry], change: impl FnOnce(&mut HandEnd)) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        directory.extend(entry.central_bytes(u32::try_from(bytes.len()).unwrap()));
        bytes.extend(entry.local_bytes());
    }
    let mut end = HandEnd {
        disk: 0,
        entries: entries.len() as u64,
        directory_size: directory.len() as u64,
        directory_offset: bytes.len() as u64,
        comment: Vec::new(),
        zip64: false,
        saturated: false,
    };
    change(&mut end);
    bytes.extend(directory);
    if end.zip64 {
        let offset = bytes.len() as u64;
        bytes.extend(ZIP64_END_SIGNATURE.to_le_bytes());
        bytes.extend(44_u64.to_le_bytes());
        bytes.extend([45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for field in [end.entries, end.entries, end.directory_size, end.directory_offset] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(ZIP64_LOCATOR_SIGNATURE.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(offset.to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
    }
    let narrow = |field: u64, length: usize| {
        let bytes = if end.saturated { [0xff; 8] } else { field.to_le_bytes() };
        bytes[..length].to_vec()
    };
    bytes.extend(END_SIGNATURE.to_le_bytes());
    bytes.extend(end.disk.to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(narrow(end.entries, 2));
    bytes.extend(narrow(end.entries, 2));
    bytes.extend(narrow(end.directory_size, 4));
    bytes.extend(narrow(end.directory_offset, 4));
    bytes.extend(u16::try_from(end.comment.len()).unwrap().to_le_bytes());
    bytes.extend(end.comment);
    bytes
}
