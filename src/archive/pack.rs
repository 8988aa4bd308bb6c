//! Writes the zip of a tree: deterministic, so that who packs the same files gets the same digest.
//!
//! Entries stand in the order of their names' bytes, deflated, dated 1980-01-01, with mode 0644 or 0755, without entries for
//! folders, extra fields or comments; the writer says that it is Unix wherever it runs. Sizes and checksums follow the
//! content in data descriptors (as in the zips of `cue`), so that the zip is written and hashed in one pass.
//! What deflate makes of the bytes is up to the release of the library, and so to the release of ocimod.

use std::io::{self, Write};
use std::path::PathBuf;

use flate2::{Compression, Crc, write::DeflateEncoder};

use super::check::{CheckError, MAX_DIRECTORY_SIZE, MAX_ZIP_SIZE};
use super::records::{
    CENTRAL_SIGNATURE, DESCRIPTOR_SIGNATURE, END_SIGNATURE, FLAG_DESCRIPTOR, FLAG_UTF8, LOCAL_SIGNATURE,
    METHOD_DEFLATED, ZIP64_END_SIGNATURE, ZIP64_END_SIZE_FIELD, ZIP64_LOCATOR_SIGNATURE,
};
use super::tree::{Entry, Tree};
use crate::oci::{Algorithm, Digest, Hasher};

/// Version of the specification that a reader needs (4.4.3): 2.0, deflate.
const VERSION_NEEDED: u16 = 20;
/// The same with zip64.
const VERSION_NEEDED_ZIP64: u16 = 45;
/// Made on Unix (4.4.2), so that the mode counts.
const MADE_ON_UNIX: u16 = 3 << 8;
/// 1980-01-01, the first day of MS-DOS (4.4.6); the time is zero.
const DATE: u16 = 1 << 5 | 1;
/// The level of deflate: zlib's default. Part of what makes the bytes, so it is never a setting.
const LEVEL: u32 = 6;

/// Why a folder or a tree cannot be packed. `name` is relative to the folder, with `/`.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message says what the variant means")]
pub enum PackError {
    /// What would be in the zip breaks a rule.
    #[error(transparent)]
    Refused(#[from] CheckError),
    #[error("`{}` cannot be read", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the rules of `{}` cannot be read", path.display())]
    IgnoreFile { path: PathBuf, source: Box<ignore::Error> },
    #[error("{name:?} changed while it was packed; try again")]
    Changed { name: String },
    #[error("the link {name:?} leads out of the module's folder; copy what it points to into the folder")]
    LinkLeavesFolder { name: String },
    #[error("the link {name:?} leads in a circle")]
    LinkCircle { name: String },
    #[error("the link {name:?} cannot be followed; what it points to must exist")]
    LinkBroken { name: String, source: io::Error },
    #[error("the link {name:?} leads to {target:?}, which is left out of the module")]
    LinkToLeftOut { name: String, target: String },
    #[error("the zip cannot be written")]
    Unwritable(#[source] io::Error),
}

impl PackError {
    /// The stable name of the rule, in kebab case, as [`CheckError::rule`].
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.rule(),
            Self::Unreadable { .. } => "unreadable",
            Self::IgnoreFile { .. } => "ignore-file",
            Self::Changed { .. } => "changed-while-packing",
            Self::LinkLeavesFolder { .. } => "link-leaves-folder",
            Self::LinkCircle { .. } => "link-circle",
            Self::LinkBroken { .. } => "link-broken",
            Self::LinkToLeftOut { .. } => "link-to-left-out",
            Self::Unwritable(_) => "unwritable",
        }
    }

    /// The name of the file that broke the rule, as it stands.
    pub fn entry(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => refusal.entry(),
            Self::Changed { name }
            | Self::LinkLeavesFolder { name }
            | Self::LinkCircle { name }
            | Self::LinkBroken { name, .. }
            | Self::LinkToLeftOut { name, .. } => Some(name),
            Self::Unreadable { .. } | Self::IgnoreFile { .. } | Self::Unwritable(_) => None,
        }
    }
}

/// A zip that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The sha256 digest of the zip's bytes.
    pub digest: Digest,
    /// Bytes of the zip.
    pub size: u64,
    /// Files in it.
    pub files: usize,
}

/// Checks the tree once more (files may have been put into it) and writes its zip to `out`, from front to end.
pub fn pack(tree: &Tree, out: &mut impl Write) -> Result<Packed, PackError> {
    tree.check()?;
    let mut output = Output { out, hasher: Hasher::new(Algorithm::Sha256), size: 0 };
    let mut directory = Vec::new();
    for entry in tree.entries() {
        let offset = narrow(output.size)?;
        let mut header = EntryHeader { entry, crc32: 0, compressed_size: 0, size: 0 };
        output.write_all(&header.local()).map_err(PackError::Unwritable)?;
        header = write_content(tree, entry, &mut output)?;
        output.write_all(&header.descriptor()).map_err(PackError::Unwritable)?;
        directory.extend(header.central(offset));
    }
    let (offset, size) = (output.size, directory.len() as u64);
    if size > MAX_DIRECTORY_SIZE {
        return Err(CheckError::DirectoryTooLarge { size }.into());
    }
    directory.extend(end_records(tree.entries().len() as u64, narrow(offset)?, narrow(size)?));
    output.write_all(&directory).and_then(|()| output.flush()).map_err(PackError::Unwritable)?;
    narrow(output.size)?;
    Ok(Packed { digest: output.hasher.finish(), size: output.size, files: tree.entries().len() })
}

fn write_content<'a>(
    tree: &Tree,
    entry: &'a Entry,
    output: &mut impl Write,
) -> Result<EntryHeader<'a>, PackError> {
    let mut checksum = Crc::new();
    let mut deflate = DeflateEncoder::new(output, Compression::new(LEVEL));
    tree.read_blocks(entry, |block| {
        checksum.update(block);
        deflate.write_all(block).map_err(PackError::Unwritable)
    })?;
    deflate.try_finish().map_err(PackError::Unwritable)?;
    let (size, compressed_size) = (narrow(entry.size)?, narrow(deflate.total_out())?);
    Ok(EntryHeader { entry, crc32: checksum.sum(), compressed_size, size })
}

/// A size or an offset in the zip: more than 32 bits would be beyond the limit by far.
fn narrow(size: u64) -> Result<u32, PackError> {
    let limited = u32::try_from(size).ok().filter(|_| size <= MAX_ZIP_SIZE);
    limited.ok_or_else(|| CheckError::ZipTooLarge { size }.into())
}

/// Hashes and counts what goes out.
struct Output<'a, W> {
    out: &'a mut W,
    hasher: Hasher,
    size: u64,
}

impl<W: Write> Write for Output<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What the three headers of an entry say.
struct EntryHeader<'a> {
    entry: &'a Entry,
    crc32: u32,
    compressed_size: u32,
    size: u32,
}

impl EntryHeader<'_> {
    /// The fields that local and central header share: from the version needed to the length of the name.
    fn shared(&self) -> Vec<u8> {
        let name = &self.entry.name;
        let flags = FLAG_DESCRIPTOR | if name.is_ascii() { 0 } else { FLAG_UTF8 };
        let time = 0;
        let mut bytes = shorts(&[VERSION_NEEDED, flags, METHOD_DEFLATED, time, DATE]);
        bytes.extend(longs(&[self.crc32, self.compressed_size, self.size]));
        // The check of the tree limits names to 1024 bytes.
        bytes.extend(shorts(&[u16::try_from(name.len()).unwrap_or(u16::MAX)]));
        bytes
    }

    fn local(&self) -> Vec<u8> {
        let extra_length = 0;
        [
            longs(&[LOCAL_SIGNATURE]),
            self.shared(),
            shorts(&[extra_length]),
            self.entry.name.clone().into_bytes(),
        ]
        .concat()
    }

    fn descriptor(&self) -> Vec<u8> {
        longs(&[DESCRIPTOR_SIGNATURE, self.crc32, self.compressed_size, self.size])
    }

    fn central(&self, offset: u32) -> Vec<u8> {
        let mode: u32 = if self.entry.executable { 0o100_755 } else { 0o100_644 };
        let [extra_length, comment_length, disk, internal_attributes] = [0; 4];
        [
            longs(&[CENTRAL_SIGNATURE]),
            shorts(&[MADE_ON_UNIX | VERSION_NEEDED]),
            self.shared(),
            shorts(&[extra_length, comment_length, disk, internal_attributes]),
            longs(&[mode << 16, offset]),
            self.entry.name.clone().into_bytes(),
        ]
        .concat()
    }
}

/// The end record; before it zip64's record and locator where there are too many entries for 16 bits.
fn end_records(entries: u64, directory_offset: u32, directory_size: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let count = u16::try_from(entries).ok().filter(|count| *count < u16::MAX);
    if count.is_none() {
        let (disk, directory_disk, disks) = (0, 0, 1);
        let record_offset = u64::from(directory_offset) + u64::from(directory_size);
        bytes.extend(longs(&[ZIP64_END_SIGNATURE]));
        bytes.extend(ZIP64_END_SIZE_FIELD.to_le_bytes());
        bytes.extend(shorts(&[MADE_ON_UNIX | VERSION_NEEDED_ZIP64, VERSION_NEEDED_ZIP64]));
        bytes.extend(longs(&[disk, directory_disk]));
        for field in [entries, entries, directory_size.into(), directory_offset.into()] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(longs(&[ZIP64_LOCATOR_SIGNATURE, disk]));
        bytes.extend(record_offset.to_le_bytes());
        bytes.extend(longs(&[disks]));
    }
    let count = count.unwrap_or(u16::MAX);
    let (disk, directory_disk, comment_length) = (0, 0, 0);
    bytes.extend(longs(&[END_SIGNATURE]));
    bytes.extend(shorts(&[disk, directory_disk, count, count]));
    bytes.extend(longs(&[directory_size, directory_offset]));
    bytes.extend(shorts(&[comment_length]));
    bytes
}

fn shorts(fields: &[u16]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

fn longs(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Cursor, Read};

    use proptest::prelude::*;

    use super::*;
    use crate::archive::{ModuleKind, check_content};

    fn tree(files: &[(&str, &[u8])]) -> Tree {
        files.iter().fold(Tree::default(), |tree, (name, bytes)| tree.with_file(*name, *bytes))
    }

    fn packed(tree: &Tree) -> (Vec<u8>, Packed) {
        let mut bytes = Vec::new();
        let packed = pack(tree, &mut bytes).unwrap();
        (bytes, packed)
    }

    fn refusal(tree: &Tree) -> &'static str {
        pack(tree, &mut io::sink()).unwrap_err().rule()
    }

    /// If this changes, a module that was packed by an earlier release gets another digest from this one: say so in the notes
    /// of the release.
    #[test]
    fn the_same_tree_gives_the_bytes_that_it_always_gave() {
        let text = "resource \"null_resource\" \"this\" {}\n".repeat(10_000);
        let noise: Vec<u8> =
            (0..200_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let tree = tree(&[
            ("main.tf", text.as_bytes()),
            ("cue.mod/module.cue", b"module: \"example.com/a@v1\"\n"),
            ("modules/ünï/noise", &noise),
            ("empty", b""),
        ]);
        let (bytes, packed) = packed(&tree);
        assert_eq!(
            packed.digest.as_str(),
            "sha256:08eb481bfce7db1e44e473864f7e8ff5775deba0aaf456150950e9a532fb0e91"
        );
        assert_eq!((packed.size, packed.files), (bytes.len() as u64, 4));
        assert_eq!(packed.digest, Digest::of(&bytes));
    }

    #[test]
    fn headers_hold_nothing_of_the_machine() {
        let (bytes, _) = packed(&tree(&[("a", b"x")]));
        let local = [
            &b"PK\x03\x04"[..],
            &[20, 0, 8, 0, 8, 0], // version, flags, method
            &[0, 0, 0x21, 0],     // midnight of 1980-01-01
            &[0; 12],             // checksum and sizes: behind the content
            &[1, 0, 0, 0],        // lengths of name and extra fields
            b"a",
        ]
        .concat();
        assert!(bytes.starts_with(&local));
        let central = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
        assert_eq!(bytes[central + 4..central + 16], [20, 3, 20, 0, 8, 0, 8, 0, 0, 0, 0x21, 0]);
        assert_eq!(
            bytes[central + 28..central + 46],
            [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa4, 0x81, 0, 0, 0, 0]
        );
        assert_eq!(bytes.len(), central + 47 + 22);
    }

    #[test]
    fn entries_stand_in_the_order_of_their_bytes() {
        let (bytes, _) = packed(&tree(&[("ü", b""), ("b", b""), ("a/b", b""), ("a.b", b""), ("Z", b"")]));
        let listing = check_content(Cursor::new(&bytes), bytes.len() as u64, None).unwrap();
        let names: Vec<&str> = listing.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["Z", "a.b", "a/b", "b", "ü"]);
    }

    #[test]
    fn more_entries_than_16_bits_count_are_packed_and_read() {
        for count in [65_534, 65_535, 65_536] {
            let entries = (0..count).map(|number| (format!("{number:05}"), Vec::new()));
            let tree = Tree::of_files(entries);
            let (bytes, _) = packed(&tree);
            let listing = check_content(Cursor::new(&bytes), bytes.len() as u64, None).unwrap();
            assert_eq!(listing.entries.len(), count);
            assert_eq!(zip::ZipArchive::new(Cursor::new(&bytes)).unwrap().len(), count);
        }
    }

    #[test]
    fn what_was_put_into_a_tree_is_checked_before_it_is_packed() {
        assert_eq!(refusal(&tree(&[])), "no-files");
        assert_eq!(refusal(&tree(&[("../x", b"")])), "parent-folder");
        assert_eq!(refusal(&tree(&[("cue.mod", b""), ("cue.mod/module.cue", b"")])), "file-and-folder");
        assert_eq!(refusal(&tree(&[("CUE.mod/x", b""), ("a", b"")])), "cue-mod-case");
    }

    #[test]
    fn a_writer_that_fails_is_reported() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(pack(&tree(&[("a", b"x")]), &mut Full).unwrap_err().rule(), "unwritable");
    }

    fn trees() -> impl Strategy<Value = BTreeMap<String, Vec<u8>>> {
        let content = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..100),
            (any::<u8>(), 0..300_000_usize).prop_map(|(byte, length)| vec![byte; length]),
        ];
        // Names that cannot collide: folders end in `-`, files do not.
        proptest::collection::btree_map("([a-zé]{1,3}-/){0,3}[a-zé]{1,4}", content, 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_packed_tree_passes_every_check_and_comes_back_the_same(files in trees()) {
            let tree = Tree::of_files(files.clone());
            let (bytes, first) = packed(&tree);
            check_content(Cursor::new(&bytes), bytes.len() as u64, Some(ModuleKind::OpenTofu)).unwrap();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            let again = Tree::from_zip(file.path(), None).unwrap();
            prop_assert_eq!(tree.content_hash(&[]).unwrap(), again.content_hash(&[]).unwrap());
            prop_assert_eq!((bytes.clone(), first), packed(&again));
            let mut archive = zip::ZipArchive::new(Cursor::new(&bytes)).unwrap();
            prop_assert_eq!(archive.len(), files.len());
            for (name, content) in &files {
                let mut theirs = Vec::new();
                archive.by_name(name).unwrap().read_to_end(&mut theirs).unwrap();
                prop_assert_eq!(&theirs, content);
            }
        }
    }
}
