//! Zips written field by field, since no decent writer makes what must be refused.

use flate2::Crc;

/// An entry, as both its headers have it.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    /// As it stands in the zip.
    pub(super) data: Vec<u8>,
    pub(super) crc32: u32,
    /// What it is said to be unpacked.
    pub(super) size: u32,
    pub(super) mode: u32,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) extra: Vec<u8>,
    /// In place of where it is.
    pub(super) offset: Option<u32>,
}

/// A file that is stored as it is.
pub(super) fn file(name: &str, content: &[u8]) -> Entry {
    let mut checksum = Crc::new();
    checksum.update(content);
    Entry {
        name: name.into(),
        data: content.into(),
        crc32: checksum.sum(),
        size: u32::try_from(content.len()).unwrap(),
        mode: 0o100_644,
        flags: 0,
        method: 0,
        extra: Vec::new(),
        offset: None,
    }
}

/// A file that is compressed.
pub(super) fn deflated(name: &str, content: &[u8]) -> Entry {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(content).unwrap();
    Entry { data: encoder.finish().unwrap(), method: 8, ..file(name, content) }
}

impl Entry {
    fn header(&self, signature: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut bytes = signature.to_vec();
        bytes.extend([20, 0]);
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.method.to_le_bytes());
        bytes.extend([0, 0, 0x21, 0]);
        bytes.extend(self.crc32.to_le_bytes());
        bytes.extend(u32::try_from(self.data.len()).unwrap().to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(u16::try_from(self.name.len()).unwrap().to_le_bytes());
        bytes.extend(u16::try_from(self.extra.len()).unwrap().to_le_bytes());
        bytes.extend(rest);
        bytes.extend(&self.name);
        bytes.extend(&self.extra);
        bytes
    }
}

/// A whole zip; `count` in place of the number of its entries, which makes its end zip64's.
pub(super) fn zip_of(entries: &[Entry], count: Option<u64>) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let offset = entry.offset.unwrap_or_else(|| u32::try_from(bytes.len()).unwrap());
        let rest = [&[0; 6][..], &(entry.mode << 16).to_le_bytes(), &offset.to_le_bytes()].concat();
        directory.extend(entry.header(b"PK\x01\x02\x14\x03", &rest));
        bytes.extend(entry.header(b"PK\x03\x04", &[]));
        bytes.extend(&entry.data);
    }
    let (size, offset) = (directory.len() as u64, bytes.len() as u64);
    bytes.extend(directory);
    let mut fields = [(entries.len() as u64).to_le_bytes(), size.to_le_bytes(), offset.to_le_bytes()];
    if let Some(count) = count {
        let end = bytes.len() as u64;
        bytes.extend(b"PK\x06\x06");
        bytes.extend(44_u64.to_le_bytes());
        bytes.extend([45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for field in [count, count, size, offset] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend(end.to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
        fields = [[0xff; 8]; 3];
    }
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(&fields[0][..2]);
    bytes.extend(&fields[0][..2]);
    bytes.extend(&fields[1][..4]);
    bytes.extend(&fields[2][..4]);
    bytes.extend([0, 0]);
    bytes
}
