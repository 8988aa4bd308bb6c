//! Byte ranges of a blob (RFC 9110, section 14): what a request asks for, and what of it there is.

/// One range as a request has it: `bytes=0-9`, `bytes=10-`, `bytes=-5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// From `first` to `last`, both included.
    FromTo {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte.
        last: u64,
    },
    /// From an offset to the end.
    From(u64),
    /// The last so many bytes.
    Last(u64),
}

/// A piece of a blob that exists: `length` bytes, at least one, from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u64,
    /// How many bytes.
    pub length: u64,
}

impl ByteRange {
    /// Reads a `Range` header. `None` for another unit, several ranges or a malformed value: such a header is passed over and
    /// the whole blob is answered, as RFC 9110 section 14.2 allows.
    pub fn parse(header: &str) -> Option<Self> {
        let (unit, text) = header.split_once('=')?;
        let text = unit.eq_ignore_ascii_case("bytes").then(|| text.trim())?;
        // Any number of digits is allowed, and what is too large for a number lies behind the end of every blob.
        let number = |text: &str| -> Option<u64> {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().unwrap_or(u64::MAX))
        };
        match text.split_once('-')? {
            ("", last) => number(last).map(Self::Last),
            (first, "") => number(first).map(Self::From),
            (first, last) => Some(Self::FromTo { first: number(first)?, last: number(last)? }),
        }
    }

    /// The `Range` header that asks for this.
    pub fn header(self) -> String {
        match self {
            Self::FromTo { first, last } => format!("bytes={first}-{last}"),
            Self::From(first) => format!("bytes={first}-"),
            Self::Last(count) => format!("bytes=-{count}"),
        }
    }

    /// What of a blob of `size` bytes this asks for; `None` where there is nothing of it (416).
    pub fn within(self, size: u64) -> Option<Span> {
        let (start, end) = match self {
            Self::FromTo { first, last } if first <= last => (first, last.saturating_add(1).min(size)),
            Self::FromTo { .. } => return None,
            Self::From(first) => (first, size),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (start < end).then(|| Span { start, length: end - start })
    }
}

impl Span {
    /// The `Content-Range` header for a blob of `size` bytes.
    pub fn content_range(self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.start, self.start + self.length - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_specification_is_read() {
        let of = |header: &str, size| ByteRange::parse(header).and_then(|range| range.within(size));
        assert_eq!(of("bytes=0-0", 10), Some(Span { start: 0, length: 1 }));
        assert_eq!(of("bytes=2-", 10), Some(Span { start: 2, length: 8 }));
        assert_eq!(of("bytes=-3", 10), Some(Span { start: 7, length: 3 }));
        assert_eq!(of("bytes=-30", 10), Some(Span { start: 0, length: 10 }));
        assert_eq!(of("bytes=5-99", 10), Some(Span { start: 5, length: 5 }));
        for nothing in ["bytes=5-4", "bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(of(nothing, 10), None, "{nothing}");
        }
        assert_eq!(of("bytes=0-", 0), None);
        for whole in [
            "bytes=0-18446744073709551615",
            "bytes=0-99999999999999999999999",
            "Bytes=0-9",
            "bytes=-99999999999999999999999",
        ] {
            assert_eq!(of(whole, 10), Some(Span { start: 0, length: 10 }), "{whole}");
        }
        assert_eq!(of("bytes=99999999999999999999999-", 10), None);
    }

    #[test]
    fn what_is_no_single_range_is_passed_over() {
        for header in ["bytes=", "bytes=-", "bytes=a-b", "bytes=1-2,4-5", "items=0-1", "bytes=+1-2", "0-1"] {
            assert_eq!(ByteRange::parse(header), None, "{header}");
        }
    }

    #[test]
    fn headers_come_back() {
        for header in ["bytes=0-9", "bytes=10-", "bytes=-5"] {
            assert_eq!(ByteRange::parse(header).map(ByteRange::header).as_deref(), Some(header));
        }
        assert_eq!(Span { start: 2, length: 3 }.content_range(10), "bytes 2-4/10");
    }
}
