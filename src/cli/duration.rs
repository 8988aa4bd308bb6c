//! Durations as they are written in options: `10s`, `5m`, `24h`, `7d`.

use std::time::Duration;

/// The units and their seconds.
const UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 60 * 60), ("d", 24 * 60 * 60)];

/// The text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no duration; write a number and its unit, as in `10s`, `5m`, `24h` or `7d`")]
pub(super) struct DurationError(String);

/// Reads a whole number and its unit.
pub(super) fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let error = || DurationError(text.chars().take(40).collect());
    let (number, seconds) = UNITS
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .ok_or_else(error)?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(error());
    }
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*seconds));
    // Beyond a thousand years nothing that counts from now would fit.
    seconds.filter(|seconds| *seconds <= 1000 * 365 * 24 * 60 * 60).map(Duration::from_secs).ok_or_else(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(parse_duration("24h"), Ok(Duration::from_hours(24)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_hours(7 * 24)));
        for text in ["", "s", "10", "-1s", "1.5h", "1 s", "99999999999999999999d", "400000d", "1w", "+1s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
