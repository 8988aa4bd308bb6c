//! The log: events of this program and of the crates below it, on stderr.
//!
//! The log is for who runs the program; what its user must know is printed. Crates that speak HTTP write headers and URLs into
//! their debug events, and tokens stand in both, so no level that a user asks for opens more of them than `info`.

use std::io::{self, Write};
use std::sync::Arc;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

use super::log_writer::LogWriter;
use super::printer::{Printer, visible_line};
use super::request_lines::RequestLines;
use crate::server::RequestLog;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// From which importance on events are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What failed.
    Error,
    /// What may need somebody's attention.
    Warn,
    /// What happens: a line per request.
    Info,
    /// How it happens.
    Debug,
    /// Everything.
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Logs from here on, for the life of the process; answers where the lines of requests go, if they are wanted.
///
/// What writes much, `in_background`, is not held up by it.
pub(super) fn start(
    printer: &Printer,
    format: LogFormat,
    level: LogLevel,
    in_background: bool,
) -> Option<Arc<dyn RequestLog>> {
    let writer =
        if in_background { LogWriter::gathered(printer) } else { LogWriter::AtOnce(printer.clone()) };
    let has_colours = printer.colours_stderr();
    // It fails where a log runs already: tests run many verbs in one process, and the first one's log is as good.
    let _ = tracing::subscriber::set_global_default(subscriber(writer.clone(), format, level, has_colours));
    (level >= LogLevel::Info)
        .then(|| Arc::new(RequestLines::new(writer, format, has_colours)) as Arc<dyn RequestLog>)
}

pub(super) fn subscriber(
    writer: LogWriter,
    format: LogFormat,
    level: LogLevel,
    has_colours: bool,
) -> impl tracing::Subscriber + Send + Sync + 'static {
    let writer = move || EventLines { writer: writer.clone(), has_colours };
    let layer = tracing_subscriber::fmt::layer().with_ansi(has_colours).with_writer(writer);
    let layer = match format {
        LogFormat::Text => layer.boxed(),
        // The one span that there is would be told twice.
        LogFormat::Json => layer.json().with_span_list(false).boxed(),
    };
    Registry::default().with(layer.with_filter(targets(level)))
}

/// Takes the lines of events, each whole and in one piece. What they quote may come from strangers, and not all of it is escaped;
/// where the line has no colours of its own, nothing is left that a terminal obeys, and no second line.
struct EventLines {
    writer: LogWriter,
    has_colours: bool,
}

impl Write for EventLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) if !self.has_colours => {
                let mut text = visible_line(text.trim_end_matches('\n'));
                text.push('\n');
                self.writer.line(text.as_bytes());
            }
            _ => self.writer.line(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn targets(level: LogLevel) -> Targets {
    Targets::new()
        .with_default(level.min(LogLevel::Info))
        .with_target("oci_client", level.min(LogLevel::Warn))
        .with_target(env!("CARGO_CRATE_NAME"), level)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::cli::printer::{Format, captured};

    #[test]
    fn other_crates_never_log_what_holds_tokens() {
        let targets = targets(LogLevel::Trace);
        assert!(targets.would_enable("ocimod::registry", &Level::TRACE));
        assert!(targets.would_enable("hyper", &Level::INFO));
        assert!(!targets.would_enable("hyper", &Level::DEBUG));
        assert!(!targets.would_enable("reqwest::connect", &Level::TRACE));
        assert!(!targets.would_enable("oci_client::client", &Level::INFO));
        let targets = super::targets(LogLevel::Error);
        assert!(!targets.would_enable("hyper", &Level::WARN));
    }

    #[test]
    fn the_log_is_on_stderr_in_whole_lines() {
        let (streams, stdout, stderr) = captured::streams();
        let printer = Printer::new(streams, Format::Json, true);
        let subscriber = subscriber(LogWriter::AtOnce(printer), LogFormat::Json, LogLevel::Info, false);
        tracing::subscriber::with_default(subscriber, || {
            let _request = tracing::error_span!("request", id = "7f3c").entered();
            tracing::info!(status = 200, "answered");
            tracing::debug!("not this");
        });
        assert_eq!(stdout.text(), "");
        let line: serde_json::Value = serde_json::from_str(&stderr.text()).unwrap();
        assert_eq!(line["fields"]["message"], "answered");
        assert_eq!(line["fields"]["status"], 200);
        assert_eq!(line["span"]["id"], "7f3c");
        assert!(line.get("spans").is_none());
        assert_eq!(stderr.text().lines().count(), 1);
    }

    #[test]
    fn no_word_of_a_stranger_makes_a_line_or_a_field() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let (streams, _, stderr) = captured::streams();
            let printer = Printer::new(streams, Format::Text, false);
            let subscriber = subscriber(LogWriter::AtOnce(printer.clone()), format, LogLevel::Info, false);
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(client = "x\n2026-01-01 INFO token=\"admin\"", "download");
            });
            let subscriber = self::subscriber(LogWriter::AtOnce(printer), format, LogLevel::Info, false);
            tracing::subscriber::with_default(subscriber, || {
                let said = "\u{1b}]0;title\u{7}\n2026-01-01 INFO";
                tracing::info!(path = said, error = %said, "it said {said}");
            });
            assert!(!stderr.text().contains(['\u{1b}', '\u{7}']), "{}", stderr.text());
            assert_eq!(stderr.text().lines().count(), 2, "{}", stderr.text());
            assert!(!stderr.text().contains("token=\"admin\""), "{}", stderr.text());
        }
    }
}
