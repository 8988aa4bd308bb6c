//! How many bytes, as it is typed: `64MiB`, `10GiB`.

/// The units, each a thousand and some of the one before (IEC 80000-13).
const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

/// A whole number and `KiB`, `MiB`, `GiB` or `TiB`; a number alone is bytes.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is no size; expected a whole number and KiB, MiB, GiB or TiB, such as 64MiB");
    let unit = UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    // A sign would be taken by the parser.
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<u64>().ok().filter(|_| is_number).ok_or_else(wrong)?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_bytes_or_have_a_binary_unit() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("1KiB", 1024),
            ("64MiB", 64 << 20),
            ("10GiB", 10 << 30),
            ("2TiB", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text).unwrap(), size, "{text}");
        }
        for text in ["", "MiB", "1MB", "1M", "1mib", "+1", "-1", "1.5GiB", "1 MiB", "16777216TiB", "1é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
