//! The log: events of this program and of the crates below it, on stderr.
//!
//! The log is for who runs the program; what its user must know is printed. Crates that speak HTTP write headers and URLs into
//! their debug events, and tokens stand in both, so no level that a user asks for opens more of them than `info`.

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

use super::log_writer::LogWriter;
use super::printer::{LinesAtOnce, Printer};

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

/// Logs from here on, for the life of the process.
///
/// What writes much, `in_background`, is not held up by it.
pub(super) fn start(printer: &Printer, format: LogFormat, level: LogLevel, in_background: bool) {
    if let Some(writer) = in_background.then(|| LogWriter::start(printer)).flatten() {
        let _ = tracing::subscriber::set_global_default(subscriber(move || writer.clone(), format, level));
        return;
    }
    let printer = printer.clone();
    // It fails where a log runs already: tests run many verbs in one process, and the first one's log is as good.
    let _ = tracing::subscriber::set_global_default(subscriber(
        move || LinesAtOnce(printer.clone()),
        format,
        level,
    ));
}

fn subscriber<W: std::io::Write + 'static>(
    writer: impl Fn() -> W + Send + Sync + 'static,
    format: LogFormat,
    level: LogLevel,
) -> impl tracing::Subscriber + Send + Sync + 'static {
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let layer = match format {
        LogFormat::Text => layer.boxed(),
        // The one span that there is would be told twice.
        LogFormat::Json => layer.json().with_span_list(false).boxed(),
    };
    Registry::default().with(layer.with_filter(targets(level)))
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
        let writer = move || LinesAtOnce(printer.clone());
        tracing::subscriber::with_default(subscriber(writer, LogFormat::Json, LogLevel::Info), || {
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
            let writer = move || LinesAtOnce(printer.clone());
            tracing::subscriber::with_default(subscriber(writer, format, LogLevel::Info), || {
                tracing::info!(client = "x\n2026-01-01 INFO token=\"admin\"", "download");
            });
            assert_eq!(stderr.text().lines().count(), 1, "{}", stderr.text());
            assert!(!stderr.text().contains("token=\"admin\""), "{}", stderr.text());
        }
    }
}
