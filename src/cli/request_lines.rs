//! The line of a request in the log, in the form of all other lines.
//!
//! A server writes one for each request, and formatting an event for whoever listens takes as long as a short answer does. So these
//! lines are put together here, by hand, and go the way that the others go.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Datelike, Timelike, Utc};
use serde::Serialize;

use super::log_writer::LogWriter;
use super::logging::LogFormat;
use crate::server::{RequestLine, RequestLog};

/// Where the lines say that they come from: the module that knows what is in them.
const TARGET: &str = concat!(env!("CARGO_CRATE_NAME"), "::server::request_log");

/// Longer than most lines.
const USUAL_LENGTH: usize = 512;

/// Writes the lines of requests.
pub(super) struct RequestLines {
    writer: LogWriter,
    form: Form,
}

/// How a line is written.
#[derive(Clone, Copy)]
enum Form {
    Json,
    Text(Paint),
}

/// What is written where a style begins and ends (ECMA-48, "Select Graphic Rendition").
#[derive(Clone, Copy)]
struct Paint {
    bold: &'static str,
    dimmed: &'static str,
    italic: &'static str,
    green: &'static str,
    plain: &'static str,
}

impl Paint {
    const NONE: Self = Self { bold: "", dimmed: "", italic: "", green: "", plain: "" };
    const COLOURS: Self = Self {
        bold: "\u{1b}[1m",
        dimmed: "\u{1b}[2m",
        italic: "\u{1b}[3m",
        green: "\u{1b}[32m",
        plain: "\u{1b}[0m",
    };
}

impl RequestLines {
    pub(super) fn new(writer: LogWriter, format: LogFormat, has_colours: bool) -> Self {
        let form = match format {
            LogFormat::Json => Form::Json,
            LogFormat::Text => Form::Text(if has_colours { Paint::COLOURS } else { Paint::NONE }),
        };
        Self { writer, form }
    }
}

impl RequestLog for RequestLines {
    fn write(&self, line: &RequestLine<'_>) {
        let now = DateTime::from(SystemTime::now());
        let text = match self.form {
            Form::Json => json(line, now),
            Form::Text(paint) => text(line, now, paint),
        };
        self.writer.line(text.as_bytes());
    }
}

/// A line as an object.
#[derive(Serialize)]
struct Object<'a> {
    timestamp: &'a str,
    level: &'static str,
    fields: Fields<'a>,
    target: &'static str,
    span: Span<'a>,
}

#[derive(Serialize)]
struct Fields<'a> {
    message: &'a str,
    method: &'a str,
    route: &'a str,
    status: u16,
    duration_ms: u64,
    bytes: u64,
    received: u64,
    complete: bool,
}

#[derive(Serialize)]
struct Span<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    name: &'static str,
}

fn json(line: &RequestLine<'_>, now: DateTime<Utc>) -> String {
    let RequestLine { id, token, method, route, status, duration, bytes, received, complete } = *line;
    let (mut timestamp, mut message) = (String::with_capacity(32), String::with_capacity(128));
    push_time(&mut timestamp, now);
    push_message(&mut message, line);
    let object = Object {
        timestamp: &timestamp,
        level: "INFO",
        fields: Fields {
            message: &message,
            method,
            route,
            status,
            duration_ms: milliseconds(duration),
            bytes,
            received,
            complete,
        },
        target: TARGET,
        span: Span { id, token, name: "request" },
    };
    // Text and numbers can always be written.
    let mut text = serde_json::to_string(&object).unwrap_or_default();
    text.push('\n');
    text
}

fn text(line: &RequestLine<'_>, now: DateTime<Utc>, paint: Paint) -> String {
    let mut text = Text { text: String::with_capacity(USUAL_LENGTH), paint };
    let Paint { bold, dimmed, green, plain, .. } = paint;
    text.push(&[dimmed]);
    push_time(&mut text.text, now);
    text.push(&[plain, " ", green, " INFO", plain, " ", bold, "request", plain, bold, "{", plain]);
    text.word("id", line.id);
    if let Some(token) = line.token {
        text.push(&[" "]);
        text.word("token", token);
    }
    text.push(&[bold, "}", plain, dimmed, ":", plain, " ", dimmed, TARGET, plain, dimmed, ":", plain, " "]);
    push_message(&mut text.text, line);
    text.push(&[" "]);
    text.word("method", line.method);
    text.push(&[" "]);
    text.word("route", line.route);
    for (name, number) in [
        ("status", line.status.into()),
        ("duration_ms", milliseconds(line.duration)),
        ("bytes", line.bytes),
        ("received", line.received),
    ] {
        text.push(&[" "]);
        text.name(name);
        push_number(&mut text.text, number);
    }
    text.push(&[" "]);
    text.name("complete");
    text.push(&[if line.complete { "true\n" } else { "false\n" }]);
    text.text
}

/// A line of text, as far as it is written.
struct Text {
    text: String,
    paint: Paint,
}

impl Text {
    fn push(&mut self, parts: &[&str]) {
        for part in parts {
            self.text.push_str(part);
        }
    }

    fn name(&mut self, name: &str) {
        let Paint { italic, dimmed, plain, .. } = self.paint;
        self.push(&[italic, name, plain, dimmed, "=", plain]);
    }

    /// In quotes, so that no word can be taken for more than one.
    fn word(&mut self, name: &str, word: &str) {
        self.name(name);
        let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
        if word.bytes().all(is_plain) {
            self.push(&["\"", word, "\""]);
        } else {
            // Into memory, so it cannot fail.
            let _ = write!(self.text, "{word:?}");
        }
    }
}

fn push_message(text: &mut String, line: &RequestLine<'_>) {
    for part in [line.method, " ", line.route, " "] {
        text.push_str(part);
    }
    push_number(text, line.status.into());
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// As [`write!`] would, in a fraction of the time.
fn push_number(text: &mut String, number: u64) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    // One digit.
    text.push(char::from(b'0' + (number % 10) as u8));
}

/// With leading zeros.
fn push_digits(text: &mut String, number: u32, count: u32) {
    for place in (0..count).rev() {
        // One digit.
        text.push(char::from(b'0' + (number / 10_u32.pow(place) % 10) as u8));
    }
}

/// RFC 3339, to the microsecond.
fn push_time(text: &mut String, time: DateTime<Utc>) {
    let year = u32::try_from(time.year()).unwrap_or_default();
    for (number, count, behind) in [
        (year, 4, '-'),
        (time.month(), 2, '-'),
        (time.day(), 2, 'T'),
        (time.hour(), 2, ':'),
        (time.minute(), 2, ':'),
        (time.second(), 2, '.'),
        (time.nanosecond() / 1000 % 1_000_000, 6, 'Z'),
    ] {
        push_digits(text, number, count);
        text.push(behind);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::logging::{self, LogLevel};
    use crate::cli::printer::{Format, Printer, captured};

    /// The line as it would be written for an event, without its time.
    fn as_event(line: &RequestLine<'_>, format: LogFormat, has_colours: bool) -> String {
        let (streams, _, stderr) = captured::streams();
        let writer = LogWriter::AtOnce(Printer::new(streams, Format::Text, false));
        let subscriber = logging::subscriber(writer, format, LogLevel::Info, has_colours);
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::error_span!("request", id = line.id, token = tracing::field::Empty);
            if let Some(token) = line.token {
                span.record("token", token);
            }
            let _entered = span.entered();
            tracing::info!(
                target: "ocimod::server::request_log",
                method = line.method,
                route = line.route,
                status = line.status,
                duration_ms = milliseconds(line.duration),
                bytes = line.bytes,
                received = line.received,
                complete = line.complete,
                "{} {} {}",
                line.method,
                line.route,
                line.status,
            );
        });
        stderr.text()
    }

    /// Without the only part that differs.
    fn without_time(line: &str) -> String {
        let at = line.find(|character: char| character.is_ascii_digit() && !line.starts_with('\u{1b}'));
        let at = at.or_else(|| line.find("m20").map(|at| at + 1)).unwrap();
        format!("{}{}", &line[..at], &line[at + "2026-01-01T00:00:00.000000Z".len()..])
    }

    #[test]
    fn a_line_is_what_an_event_would_be() {
        let usual = RequestLine {
            id: "5d0c3f6a1b2c4d5e",
            token: None,
            method: "GET",
            route: "/v1/modules/{namespace}/{name}/{system}/versions",
            status: 200,
            duration: Duration::from_micros(12_345),
            bytes: 1_234_567,
            received: 0,
            complete: true,
        };
        let odd = RequestLine {
            token: Some("a \"b\" \\ \u{1b}ü"),
            complete: false,
            bytes: u64::MAX,
            ..usual.clone()
        };
        let now = DateTime::from(SystemTime::now());
        for line in [usual, odd] {
            assert_eq!(
                without_time(&json(&line, now)),
                without_time(&as_event(&line, LogFormat::Json, false))
            );
            for (paint, has_colours) in [(Paint::NONE, false), (Paint::COLOURS, true)] {
                let event = as_event(&line, LogFormat::Text, has_colours);
                assert_eq!(without_time(&text(&line, now, paint)), without_time(&event));
            }
        }
    }

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        for time in ["2026-03-01T09:30:00.123456Z", "1999-12-31T23:59:59.000007Z"] {
            let mut text = String::new();
            push_time(&mut text, time.parse().unwrap());
            assert_eq!(text, time);
        }
    }
}
