//! Changes inputs at random: bytes, numbers, words, pieces. The same seed makes the same changes.

use super::Target;

/// `SplitMix64`: small, and the same on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 where there is none.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let number = self.number().checked_rem(limit as u64).unwrap_or_default();
        usize::try_from(number).unwrap_or_default()
    }

    /// `true` once in `count` times.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Any byte.
    pub(crate) fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }

    /// One of these, of which there is at least one.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A range of `bytes`, short more often than long.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let longest = if self.one_in(4) { length - start } else { (length - start).min(16) };
        start..start + self.below(longest + 1)
    }
}

/// Numbers at which readers change their mind.
const NUMBERS: [u64; 14] = [
    0,
    1,
    0x7f,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_fffe,
    0xffff_ffff_ffff_ffff,
];

/// Characters at which readers of text change their mind.
const CHARACTERS: [&str; 22] = [
    "\0",
    "\n",
    "\r\n",
    "\t",
    " ",
    "\"",
    "'",
    "\\",
    "/",
    "..",
    "%00",
    "%2f",
    "\u{7f}",
    "\u{85}",
    "é",
    "\u{feff}",
    "\u{2028}",
    "\u{202e}",
    "😀",
    "\u{10ffff}",
    "\u{1b}[2J",
    "K",
];

/// A new input out of those that are there.
pub(super) fn mutate(target: &Target, random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = match target.generate {
        Some(generate) if random.one_in(3) => generate(random),
        _ => parent(random, corpus).to_vec(),
    };
    let most = 1 << random.below(4);
    let count = 1 + random.below(most);
    for _ in 0..count {
        change(target, random, corpus, &mut input);
    }
    input.truncate(target.max_length);
    input
}

/// What came last is chosen more often: it is where the way goes on.
fn parent<'a>(random: &mut Random, corpus: &'a [Vec<u8>]) -> &'a [u8] {
    let recent = if random.one_in(2) { corpus.len().min(32) } else { corpus.len() };
    &corpus[corpus.len() - 1 - random.below(recent)]
}

fn change(target: &Target, random: &mut Random, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    let at = random.below(input.len());
    match random.below(13) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            let new = random.byte();
            if let Some(byte) = input.get_mut(at) {
                *byte = new;
            }
        }
        2 => {
            let change = *random.pick(&[1_u8, 2, 255, 254, 32]);
            if let Some(byte) = input.get_mut(at) {
                *byte = byte.wrapping_add(change);
            }
        }
        3 => drop(input.drain(random.range(input.len()))),
        4 => {
            let word = *random.pick(target.words);
            insert(random, input, word.as_bytes());
        }
        5 => {
            let word = *random.pick(target.words);
            let end = (at + word.len()).min(input.len());
            input.splice(at..end, word.bytes());
        }
        6 => {
            let character = *random.pick(&CHARACTERS);
            insert(random, input, character.as_bytes());
        }
        7 => {
            // A number as it stands in a binary form.
            let bytes = random.pick(&NUMBERS).to_le_bytes();
            let length = *random.pick(&[1, 2, 4, 8]);
            let end = (at + length).min(input.len());
            input[at..end].copy_from_slice(&bytes[..end - at]);
        }
        8 => {
            // A number as it stands in a text.
            let start = input[at..].iter().position(u8::is_ascii_digit).map_or(at, |digit| at + digit);
            let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = random.pick(&NUMBERS).wrapping_add(random.number() % 3).to_string();
            input.splice(start..start + length, number.bytes());
        }
        9 => {
            let piece = input[random.range(input.len())].to_vec();
            insert(random, input, &piece);
        }
        10 => {
            // Depth, and lists that go on and on.
            let piece = input[random.range(input.len())].to_vec();
            let room = (target.max_length / 4) / piece.len().max(1);
            let most = room.min(1 << random.below(14));
            let times = random.below(most + 1);
            insert(random, input, &piece.repeat(times));
        }
        11 => {
            let other = parent(random, corpus);
            let piece = &other[random.range(other.len())];
            insert(random, input, piece);
        }
        _ => {
            // The beginning of this one and the end of another.
            let other = parent(random, corpus);
            let end = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[end..]);
        }
    }
}

fn insert(random: &mut Random, input: &mut Vec<u8>, piece: &[u8]) {
    let at = random.below(input.len() + 1);
    input.splice(at..at, piece.iter().copied());
}
