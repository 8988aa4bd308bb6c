//! Zips: what passes the check is read by another reader as the same, and what is not the same is refused.

use std::io::{Cursor, Read};

use super::hand_zip::{HandEntry, HandHeader, extra, zip_of, zip_with};
use super::records::{EXTRA_UNICODE_PATH, EXTRA_UNIX, EXTRA_ZIP64};
use super::{Listing, ModuleKind, check_content, check_directory, read_file};
use crate::fuzz::{Random, Target, assert_is_message};

pub(crate) const TARGET: Target = Target {
    name: "zip",
    seeds: || {
        let file = |name: &str| HandEntry::deflated(name, b"resource resource resource resource");
        let wide = |entry: HandEntry| {
            let sizes =
                [entry.central.size, entry.central.compressed_size].map(|size| u64::from(size).to_le_bytes());
            entry.both(|header| {
                (header.size, header.compressed_size) = (u32::MAX, u32::MAX);
                header.extra = extra(EXTRA_ZIP64, &sizes.concat());
            })
        };
        vec![
            zip_of(&[
                file("main.tf"),
                HandEntry::stored("a/", b"").mode(0o040_755),
                HandEntry::stored("a/b", b"text"),
            ]),
            zip_of(&[file("cue.mod/module.cue"), file("x.cue").mode(0o100_644)]),
            zip_of(&[file("d1").described(false, false), file("d2").described(true, true)]),
            zip_of(&[
                HandEntry::stored("d5", b"PK\x07\x08PK\x03\x04").described(true, false),
                file("ünï.tf"),
            ]),
            zip_of(&[wide(file("x")), file("y")]),
            zip_with(&[file("a"), file("b")], |end| (end.zip64, end.saturated) = (true, true)),
            zip_with(&[file("a")], |end| end.comment = b"a comment PK\x05\x06".to_vec()),
            zip_of(&[file("../x"), file("/etc/passwd"), file("C:\\x")]),
            zip_of(&[file("a").mode(0o120_777)]),
            zip_of(&[file("a"), file("A"), file("a")]),
            // 1,000 zeros for each byte.
            zip_of(&[HandEntry::deflated("bomb", &[0; 100_000])]),
            zip_of(&[]),
        ]
    },
    words: &[
        "PK\x03\x04",
        "PK\x01\x02",
        "PK\x05\x06",
        "PK\x06\x06",
        "PK\x06\x07",
        "PK\x07\x08",
        "../",
        "/",
        "\\",
        "a",
        "A",
        ".git/",
        "cue.mod/module.cue",
        "main.tf",
        "up\x05\0",
        "\x01\0\x08\0",
        "\x01\0\x10\0",
        "\x01\0\x18\0",
    ],
    generate: Some(generate),
    max_length: 64 * 1024,
    run,
};

/// A zip that is right, save for some fields.
fn generate(random: &mut Random) -> Vec<u8> {
    let names = [
        "main.tf",
        "a",
        "b",
        "a/",
        "a/b",
        "A",
        "cue.mod/module.cue",
        "x.cue",
        "../x",
        "/a",
        "a//b",
        "./a",
        "a\\b",
        "C:a",
        "CON",
        "é",
        "a.",
        ".git/config",
        "LICENSE",
        "a/b/c/d",
        "a\0b",
        "modules/x/main.tf",
    ];
    let contents: [&[u8]; 5] =
        [b"", b"x", b"resource resource resource", &[0; 3000], b"PK\x03\x04PK\x01\x02PK\x05\x06"];
    let entries: Vec<HandEntry> = (0..random.below(5))
        .map(|_| {
            let (name, content) = (*random.pick(&names), *random.pick(&contents));
            let content = if name.ends_with('/') { b"" } else { content };
            let stored = random.one_in(2);
            let mut entry =
                if stored { HandEntry::stored(name, content) } else { HandEntry::deflated(name, content) };
            if random.one_in(4) {
                entry = entry.described(random.one_in(2), random.one_in(2));
            }
            if random.one_in(4) {
                let mode = *random.pick(&[0o100_644, 0o100_755, 0o040_755, 0o120_777, 0o010_644, 0o644]);
                entry = entry.mode(mode);
            }
            if random.one_in(6) {
                let field = lie(random);
                match random.below(3) {
                    0 => entry = entry.central(field),
                    1 => entry = entry.local(field),
                    _ => entry = entry.both(field),
                }
            }
            if random.one_in(30) {
                entry.offset = Some(u32::from(random.byte()));
            }
            if random.one_in(30) {
                let garbage = random.below(40);
                entry.descriptor.extend(vec![b'P'; garbage]);
            }
            entry
        })
        .collect();
    let (change, value, zip64) = (random.below(24), random.number() % 70, random.one_in(6));
    zip_with(&entries, |end| {
        (end.zip64, end.saturated) = (zip64, zip64 && value.is_multiple_of(2));
        match change {
            0 => end.entries = value,
            1 => end.directory_size = end.directory_size.wrapping_add(value).wrapping_sub(35),
            2 => end.directory_offset = end.directory_offset.wrapping_add(value).wrapping_sub(35),
            3 => end.comment = vec![b'c'; usize::try_from(value).unwrap_or_default()],
            4 => end.disk = 1,
            _ => {}
        }
    })
}

/// Changes one field of a header.
fn lie(random: &mut Random) -> impl Fn(&mut HandHeader) + use<> {
    let (field, number, byte) = (random.below(9), random.number(), random.byte());
    move |header: &mut HandHeader| {
        let [low, high] =
            [number & 0xffff_ffff, number >> 32].map(|half| u32::try_from(half).unwrap_or_default());
        match field {
            0 => header.size = if byte < 64 { u32::MAX } else { low % 64 },
            1 => header.compressed_size = if byte < 64 { u32::MAX } else { low % 64 },
            2 => header.crc32 = low,
            3 => header.method = u16::from(byte % 16),
            4 => header.flags |= 1 << (byte % 16),
            5 => header.name.push(byte),
            6 => header.extra = extra(EXTRA_ZIP64, &vec![0; usize::from(byte % 33)]),
            7 => {
                header.extra =
                    [extra(EXTRA_UNICODE_PATH, b"\x01crc_x"), extra(EXTRA_UNIX, &[0; 12])].concat();
            }
            _ => header.extra = extra(u16::try_from(high & 0xffff).unwrap_or_default(), &[byte; 5]),
        }
    }
}

fn run(input: &[u8]) -> bool {
    let size = input.len() as u64;
    let content = check_content(Cursor::new(input), size, None);
    let directory = check_directory(Cursor::new(input), size, None);
    for kind in [ModuleKind::Cue, ModuleKind::OpenTofu] {
        match check_content(Cursor::new(input), size, Some(kind)) {
            // A kind adds rules and takes none away.
            Ok(listing) => assert_eq!(content.as_ref().ok(), Some(&listing), "as {kind}"),
            Err(error) => assert_is_message(&error.to_string()),
        }
    }
    match &content {
        Ok(listing) => {
            assert_eq!(directory.as_ref().ok(), Some(listing), "the directory alone, and all");
            assert_is_same(input, listing);
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert_is_message(&text);
            assert!(!text.contains(char::is_control), "{text:?} would act on a terminal");
            false
        }
    }
}

/// The library's reader, by the directory and by the local headers alone, sees what we see.
fn assert_is_same(input: &[u8], listing: &Listing) {
    let mut other = zip::ZipArchive::new(Cursor::new(input)).expect("the other reader opens it");
    assert_eq!(other.len(), listing.entries.len(), "the number of entries");
    let mut contents = Vec::new();
    for (index, entry) in listing.entries.iter().enumerate() {
        let own = read_file(&mut Cursor::new(input), entry, entry.size).expect("what passed is read");
        assert_eq!(own.len() as u64, entry.size, "{:?}", entry.name);
        let mut file = other.by_index(index).unwrap_or_else(|error| panic!("{:?}: {error}", entry.name));
        assert_eq!(file.name_raw(), entry.name.as_bytes());
        assert_eq!(file.is_dir(), entry.is_folder(), "{:?}", entry.name);
        let mut theirs = Vec::new();
        file.read_to_end(&mut theirs).unwrap_or_else(|error| panic!("{:?}: {error}", entry.name));
        assert!(own == theirs, "{:?} has two contents", entry.name);
        contents.push((entry, own));
    }
    contents.sort_by_key(|(entry, _)| entry.offset);
    // The stream ends where something comes that cannot be read without the directory.
    let mut stream = Cursor::new(input);
    for (entry, own) in contents {
        let Ok(Some(mut file)) = zip::read::read_zipfile_from_stream(&mut stream) else { return };
        assert_eq!(file.name_raw(), entry.name.as_bytes(), "by the local headers");
        let mut theirs = Vec::new();
        file.read_to_end(&mut theirs).unwrap_or_else(|error| panic!("{:?}: {error}", entry.name));
        assert!(own == theirs, "{:?} has two contents", entry.name);
    }
}
