//! When a request is sent again, and how long is waited before: three tries, longer each time, with jitter, and as long as the
//! registry asks for (`Retry-After`, RFC 9110 section 10.2.3) unless that is longer than a person would wait.

use std::time::{Duration, SystemTime};

use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// How failures that may pass are met.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// How often a request is sent at most.
    pub tries: u32,
    /// The wait after the first try; it doubles with each one.
    pub first_wait: Duration,
    /// The longest wait of our own.
    pub longest_wait: Duration,
    /// The longest wait that a registry may ask for; beyond it the failure is reported at once.
    pub longest_asked: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: 3,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(8),
            longest_asked: Duration::from_mins(1),
        }
    }
}

impl RetryPolicy {
    /// How long to wait after try number `tried` (the first is 1), or `None` to give up.
    pub(super) fn wait(&self, tried: u32, asked: Option<Duration>) -> Option<Duration> {
        if tried >= self.tries {
            return None;
        }
        if let Some(asked) = asked {
            (asked <= self.longest_asked).then_some(asked)
        } else {
            let doubled = self.first_wait.saturating_mul(1 << (tried - 1).min(16));
            let wait = doubled.min(self.longest_wait);
            // Between half and the whole: clients that failed together do not come back together.
            Some(wait.mul_f64(0.5 + jitter() / 2.0))
        }
    }
}

/// A number in 0..1; fairness wants no more than that.
fn jitter() -> f64 {
    f64::from(getrandom::u32().unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
}

/// Whether a status says that the same request may succeed later. 501 does not: what is not implemented stays so. Nor does 507: a
/// registry that is full, or a quota that is used up, waits for a person.
pub(super) fn is_passing(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS
        || (status.is_server_error()
            && !matches!(status, StatusCode::NOT_IMPLEMENTED | StatusCode::INSUFFICIENT_STORAGE))
}

/// How long the answer asks to wait: so many seconds, or until a date. The clock of whoever wrote that date counts, where the
/// answer shows it (`Date`): ours may be another.
pub(super) fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| Some(headers.get(name)?.to_str().ok()?.trim());
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    let now = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    // A date that has passed asks for no wait at all.
    Some(until.duration_since(now.unwrap_or_else(SystemTime::now)).unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        let policy = RetryPolicy { tries: 20, ..RetryPolicy::default() };
        for (tried, whole) in [(1, 500), (2, 1000), (3, 2000), (19, 8000)] {
            let wait = policy.wait(tried, None).unwrap();
            assert!(
                wait >= Duration::from_millis(whole / 2) && wait <= Duration::from_millis(whole),
                "{wait:?}"
            );
        }
        assert_eq!(policy.wait(20, None), None);
    }

    #[test]
    fn the_registry_is_waited_for_within_reason() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.wait(1, Some(Duration::from_secs(7))), Some(Duration::from_secs(7)));
        assert_eq!(policy.wait(1, Some(Duration::from_secs(61))), None);
        assert_eq!(policy.wait(3, Some(Duration::ZERO)), None);
    }

    #[test]
    fn some_statuses_pass() {
        for (status, passing) in [
            (429, true),
            (500, true),
            (503, true),
            (501, false),
            (507, false),
            (413, false),
            (404, false),
            (401, false),
        ] {
            assert_eq!(is_passing(StatusCode::from_u16(status).unwrap()), passing, "{status}");
        }
    }

    fn asked(retry_after: &str, date: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        date.map(|date| headers.insert(DATE, date.parse().unwrap()));
        asked_wait(&headers)
    }

    #[test]
    fn retry_after_is_read_in_seconds() {
        assert_eq!(asked("3", None), Some(Duration::from_secs(3)));
        for text in ["", "-1", "1.5", "soon", "99999999999999999999999"] {
            assert_eq!(asked(text, None), None, "{text}");
        }
    }

    #[test]
    fn retry_after_is_read_as_a_date_by_the_clock_of_who_wrote_it() {
        let date = Some("Fri, 31 Dec 2027 23:59:50 GMT");
        for text in
            ["Fri, 31 Dec 2027 23:59:59 GMT", "Friday, 31-Dec-27 23:59:59 GMT", "Fri Dec 31 23:59:59 2027"]
        {
            assert_eq!(asked(text, date), Some(Duration::from_secs(9)), "{text}");
        }
        assert_eq!(asked("Fri, 31 Dec 2027 23:59:49 GMT", date), Some(Duration::ZERO), "it has passed");
        assert_eq!(asked("Thu, 01 Jan 1970 00:00:00 GMT", None), Some(Duration::ZERO), "by our own clock");
        let far = asked("Fri, 31 Dec 9999 23:59:59 GMT", Some("no date"));
        assert_eq!(far.map(|wait| wait.is_zero()), Some(false), "by our own clock");
        for text in ["Fri, 31 Dec 2027 23:59:59 CET", "Fri, 99 Dec 2027 23:59:59 GMT"] {
            assert_eq!(asked(text, date), None, "{text}");
        }
    }
}
