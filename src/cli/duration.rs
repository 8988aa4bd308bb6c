//! How long something takes or lasts, as it is typed: `10s`, `90m`, `24h`, `7d`.

use std::time::Duration;

/// Longer ones would not fit behind a time of today everywhere: a thousand years.
const MAX_SECONDS: u64 = 1000 * 365 * 24 * 60 * 60;

/// A whole number and `s`, `m`, `h` or `d`; `0` needs no unit.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration; expected a whole number and s, m, h or d, such as 90m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let seconds = match text.as_bytes().last() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 60 * 60,
        Some(b'd') => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number = &text[..text.len() - 1];
    // A sign would be taken by the parser.
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<u64>().ok().filter(|_| is_number).ok_or_else(wrong)?;
    let seconds = number.checked_mul(seconds).filter(|seconds| *seconds <= MAX_SECONDS);
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("1h").unwrap(), crate::registry::directory::DEFAULT_GRACE);
        assert_eq!(parse_duration("10s").unwrap(), Duration::from_secs(10));
        assert_eq!(parse_duration("90m").unwrap(), Duration::from_mins(90));
        assert_eq!(parse_duration("2d").unwrap(), Duration::from_hours(48));
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        assert_eq!(parse_duration("0s").unwrap(), Duration::ZERO);
        for text in [
            "",
            "h",
            "1",
            "+1h",
            "-1h",
            "1.5h",
            "1 h",
            "1w",
            "99999999999999999999d",
            "1é",
            "18446744073709551615d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
