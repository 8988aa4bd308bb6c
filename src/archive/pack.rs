//! Writes the zip of a tree: deterministic, so that who packs the same files gets the same digest.
//!
//! Entries stand in the order of their names' bytes, deflated, dated 1980-01-01, with mode 0644 or 0755, without entries for
//! folders, extra fields or comments; the writer says that it is Unix wherever it runs. Sizes and checksums follow the
//! content in data descriptors (as in the zips of `cue`), so that the zip is written and hashed in one pass.
//! What deflate makes of the bytes is up to the release of the library, and so to the release of ocimod.
//!
//! [`ZipWriter`] finishes its zip even when it is dropped after an error, and prints to standard error when that fails. So it
//! writes to an [`Output`] that never fails: it keeps the error and takes no more.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;

use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, DateTime, System, ZipWriter};

use super::check::{CheckError, MAX_DIRECTORY_SIZE, MAX_ZIP_SIZE};
use super::records::CENTRAL_LENGTH;
use super::tree::{Entry, Tree};
use crate::oci::{Algorithm, Digest, Hasher};

/// What all entries have in common: nothing of the machine, and nothing that is left to a default of the library. The level
/// is zlib's usual one; it is part of what makes the bytes, so it is never a setting.
const OPTIONS: SimpleFileOptions = SimpleFileOptions::DEFAULT
    .compression_method(CompressionMethod::Deflated)
    .compression_level(Some(6))
    .last_modified_time(DateTime::DEFAULT)
    .system(System::Unix);

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
    #[error("`{}` is one ignore file too many: all of them together may have 256 KiB", path.display())]
    TooManyRules { path: PathBuf },
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
            Self::IgnoreFile { .. } | Self::TooManyRules { .. } => "ignore-file",
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
            Self::Unreadable { .. }
            | Self::IgnoreFile { .. }
            | Self::TooManyRules { .. }
            | Self::Unwritable(_) => None,
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

/// Checks the tree once more (files may have been put into it) and writes its zip to `out`, from front to end. After an error
/// `out` holds what had gone out by then; nothing is added that would make it look whole.
pub fn pack(tree: &Tree, out: &mut impl Write) -> Result<Packed, PackError> {
    tree.check()?;
    check_directory_size(tree)?;
    let output = Output::new(out);
    let mut writer = ZipWriter::new_stream(&output);
    let written = tree.entries().iter().try_for_each(|entry| write_entry(tree, entry, &mut writer, &output));
    if written.is_err() {
        output.close();
    }
    let ended = writer.finish().map(drop).map_err(unwritable);
    written.and(ended)?;
    let (digest, size) = output.finish()?;
    Ok(Packed { digest, size, files: tree.entries().len() })
}

/// The directory is known before anything is written: headers and names.
fn check_directory_size(tree: &Tree) -> Result<(), CheckError> {
    let size = tree.entries().iter().map(|entry| (CENTRAL_LENGTH + entry.name.len()) as u64).sum();
    if size > MAX_DIRECTORY_SIZE { Err(CheckError::DirectoryTooLarge { size }) } else { Ok(()) }
}

fn write_entry<W: Write>(
    tree: &Tree,
    entry: &Entry,
    writer: &mut ZipWriter<StreamWriter<&Output<'_, W>>>,
    output: &Output<'_, W>,
) -> Result<(), PackError> {
    let mode = if entry.executable { 0o755 } else { 0o644 };
    writer.start_file(&entry.name, OPTIONS.unix_permissions(mode)).map_err(unwritable)?;
    tree.read_blocks(entry, |block| {
        writer.write_all(block).map_err(PackError::Unwritable)?;
        output.check()
    })
}

fn unwritable(error: impl Into<io::Error>) -> PackError {
    PackError::Unwritable(error.into())
}

/// Where the writer's bytes go: hashed, counted, limited, handed on to `out`. Writing here always succeeds; whether it did is
/// asked with [`Output::check`].
struct Output<'a, W>(RefCell<OutputState<'a, W>>);

struct OutputState<'a, W> {
    /// `None` once nothing more may go out.
    out: Option<&'a mut W>,
    /// Why, until it is reported.
    failure: Option<PackError>,
    hasher: Hasher,
    size: u64,
}

impl<'a, W: Write> Output<'a, W> {
    fn new(out: &'a mut W) -> Self {
        let hasher = Hasher::new(Algorithm::Sha256);
        Self(RefCell::new(OutputState { out: Some(out), failure: None, hasher, size: 0 }))
    }

    /// From now on bytes go nowhere.
    fn close(&self) {
        self.0.borrow_mut().out = None;
    }

    /// Reports a failure, once.
    fn check(&self) -> Result<(), PackError> {
        self.0.borrow_mut().failure.take().map_or(Ok(()), Err)
    }

    /// The digest and the number of the bytes that went out.
    fn finish(self) -> Result<(Digest, u64), PackError> {
        self.check()?;
        let OutputState { out, hasher, size, .. } = self.0.into_inner();
        out.map_or(Ok(()), Write::flush).map_err(PackError::Unwritable)?;
        Ok((hasher.finish(), size))
    }
}

impl<W: Write> Write for &Output<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        if let Err(failure) = state.write(bytes) {
            state.out = None;
            state.failure = Some(failure);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> OutputState<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let size = self.size + bytes.len() as u64;
        if size > MAX_ZIP_SIZE {
            return Err(CheckError::ZipTooLarge { size, limit: MAX_ZIP_SIZE }.into());
        }
        out.write_all(bytes).map_err(PackError::Unwritable)?;
        self.hasher.update(bytes);
        self.size = size;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Cursor, Read};

    use flate2::{Compression, write::DeflateEncoder};
    use proptest::prelude::*;

    use super::super::records::LOCAL_LENGTH;
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
        assert_eq!(bytes.len(), central + CENTRAL_LENGTH + 1 + 22);
    }

    /// The library uses one compressor for all entries.
    #[test]
    fn the_bytes_of_an_entry_do_not_depend_on_those_before_it() {
        let noise: Vec<u8> =
            (0..200_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let text = noise.iter().map(|byte| byte % 16).collect::<Vec<u8>>();
        let contents = [&noise[..], &text, b"", &noise[1..70_000], &text, b"x"];
        let (bytes, _) =
            packed(&tree(&["a", "b", "c", "d", "e", "f"].into_iter().zip(contents).collect::<Vec<_>>()));
        let mut rest = &bytes[..];
        for content in contents {
            let mut deflate = DeflateEncoder::new(Vec::new(), Compression::new(6));
            deflate.write_all(content).unwrap();
            let deflated = deflate.finish().unwrap();
            rest = rest[LOCAL_LENGTH + 1..].strip_prefix(&deflated[..]).unwrap();
            rest = &rest[16..]; // the data descriptor
        }
        assert!(rest.starts_with(b"PK\x01\x02"));
    }

    #[test]
    fn entries_stand_in_the_order_of_their_bytes() {
        let (bytes, _) = packed(&tree(&[("ü", b""), ("b", b""), ("a/b", b""), ("a.b", b""), ("Z", b"")]));
        let listing = check_content(Cursor::new(&bytes), bytes.len() as u64, None).unwrap();
        let names: Vec<&str> = listing.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["Z", "a.b", "a/b", "b", "ü"]);
    }

    /// Two things that the library does in its own way: it writes zip64's records from 65,536 entries on and counts 65,535 as
    /// such, though the specification gives that value another meaning (4.4.1.4); and its zip64 record asks for version 2.0,
    /// where 4.5 is due (4.4.3.2). Info-ZIP, Python and Go read both: without zip64's records the count is taken as it stands.
    #[test]
    fn more_entries_than_16_bits_count_are_packed_and_read() {
        for (count, zip64) in [(65_534, false), (65_535, false), (65_536, true), (70_000, true)] {
            let entries = (0..count).map(|number| (format!("{number:05}"), Vec::new()));
            let tree = Tree::of_files(entries);
            let (bytes, _) = packed(&tree);
            let locator = &bytes[bytes.len() - 42..][..4];
            assert_eq!(locator == b"PK\x06\x07", zip64, "{count}");
            if zip64 {
                assert_eq!(bytes[bytes.len() - 98..][12..16], [20, 0, 20, 0]);
            }
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

    /// Takes so many bytes, then fails, and remembers whether it was asked again.
    #[derive(Default)]
    struct Full {
        room: usize,
        calls_after_failure: Option<usize>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(calls) = &mut self.calls_after_failure {
                *calls += 1;
            }
            let count = bytes.len().min(self.room);
            if count == 0 {
                self.calls_after_failure.get_or_insert(0);
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.write(b"x").map(drop)
        }
    }

    #[test]
    fn a_writer_that_fails_at_any_byte_is_reported_and_left_alone() {
        let tree = tree(&[("a", b"x"), ("b", &[7; 10_000]), ("c", b"")]);
        let (bytes, _) = packed(&tree);
        for room in 0..=bytes.len() {
            let mut full = Full { room, ..Full::default() };
            assert_eq!(pack(&tree, &mut full).unwrap_err().rule(), "unwritable", "{room}");
            assert_eq!(full.calls_after_failure, Some(0), "{room}");
        }
    }

    #[test]
    fn a_file_that_changes_leaves_no_zip_that_looks_whole() {
        for changed in ["a.tf", "b.tf", "c.tf"] {
            for content in ["", "longer than it was"] {
                let folder = tempfile::tempdir().unwrap();
                for name in ["a.tf", "b.tf", "c.tf"] {
                    std::fs::write(folder.path().join(name), "content").unwrap();
                }
                let tree = Tree::from_folder(folder.path(), ModuleKind::OpenTofu, None).unwrap();
                std::fs::write(folder.path().join(changed), content).unwrap();
                let mut bytes = Vec::new();
                let error = pack(&tree, &mut bytes).unwrap_err();
                assert_eq!((error.rule(), error.entry()), ("changed-while-packing", Some(changed)));
                for signature in [b"PK\x01\x02", b"PK\x05\x06"] {
                    assert!(!bytes.windows(4).any(|window| window == signature), "{changed}");
                }
            }
        }
    }

    /// The library prints past what catches the output of tests, so these are run by themselves.
    #[test]
    fn a_failure_prints_nothing() {
        for test in [
            "a_writer_that_fails_at_any_byte_is_reported_and_left_alone",
            "a_file_that_changes_leaves_no_zip_that_looks_whole",
        ] {
            let run = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &format!("archive::pack::tests::{test}")])
                .output()
                .unwrap();
            assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"), "{test}");
            assert_eq!(String::from_utf8_lossy(&run.stderr), "", "{test}");
        }
    }

    #[test]
    fn a_zip_beyond_the_limit_goes_no_further() {
        let mut out = Vec::new();
        let output = Output::new(&mut out);
        output.0.borrow_mut().size = MAX_ZIP_SIZE - 1;
        (&output).write_all(b"1").unwrap();
        output.check().unwrap();
        (&output).write_all(b"2").unwrap();
        (&output).write_all(b"").unwrap();
        assert_eq!(output.check().unwrap_err().rule(), "zip-too-large");
        assert_eq!(out, b"1");
    }

    #[test]
    fn a_directory_beyond_the_limit_is_refused_before_anything_is_written() {
        let folder = "x".repeat(199);
        let entries = (0..40_000)
            .map(|number| (format!("{folder}/{folder}/{folder}/{folder}/{number:05}"), Vec::new()));
        let mut bytes = Vec::new();
        let error = pack(&Tree::of_files(entries), &mut bytes).unwrap_err();
        assert_eq!((error.rule(), bytes.len()), ("directory-too-large", 0));
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
