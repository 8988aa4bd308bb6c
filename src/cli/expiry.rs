//! `--expires`: how long something holds (`90d`, `12h`), or until when (`2027-01-31`, `2027-01-31T12:00:00Z`).

use std::str::FromStr;

use super::duration::parse_duration;
use crate::operations::access::parse_moment;

/// The end of something's life, as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expiry(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Seconds from now.
    In(i64),
    /// Seconds since 1970.
    At(i64),
}

/// The year 9999 ends here: a later one has no place in RFC 3339.
const LAST_SECOND: i64 = 253_402_300_799;

impl Expiry {
    /// Seconds since 1970; `None` where that is over already, or beyond all dates.
    pub(super) fn after(self, now: i64) -> Option<i64> {
        let expires = match self.0 {
            Kind::In(seconds) => now.checked_add(seconds)?,
            Kind::At(moment) => moment,
        };
        (now < expires && expires <= LAST_SECOND).then_some(expires)
    }
}

impl FromStr for Expiry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(moment) = parse_moment(text) {
            return Ok(Self(Kind::At(moment)));
        }
        let wrong = |_| {
            format!(
                "`{text}` is neither a time to come nor a date; expected a whole number and its unit, such as 90d, or a date such as \
                 2027-01-31"
            )
        };
        let duration = parse_duration(text).map_err(wrong)?;
        Ok(Self(Kind::In(duration.as_secs().try_into().unwrap_or(i64::MAX))))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn after(text: &str, now: i64) -> Option<i64> {
        text.parse::<Expiry>().unwrap().after(now)
    }

    #[test]
    fn it_is_a_time_to_come_or_a_date() {
        assert_eq!(after("90d", 1), Some(90 * 86_400 + 1));
        assert_eq!(after("12h", 0), Some(43_200));
        assert_eq!(after("5m", 0), Some(300));
        assert_eq!(after("1970-01-02", 0), Some(86_400));
        assert_eq!(after("1970-01-01T00:00:01+00:00", 0), Some(1));
        for text in
            ["", "d", "90", "-1d", "+1d", "1.5d", "1w", "é", "1é", "soon", "2027-1-31", "99999999999999999d"]
        {
            assert!(text.parse::<Expiry>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_over_or_never_ends_is_no_end() {
        assert_eq!(after("1970-01-02", 86_400), None);
        assert_eq!(after("0d", 0), None);
        assert_eq!(after("1d", LAST_SECOND), None);
        assert_eq!(after("1d", i64::MAX), None);
    }
}
