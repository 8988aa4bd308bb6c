//! The only place that writes to the terminal: the result on stdout, everything else on stderr.
//!
//! Programs read stdout, so nothing but the one answer of a verb goes there. What is printed as text may quote strangers (a
//! module's description, a tag), so control characters in it are shown instead of sent to the terminal. Progress bars share
//! stderr with notes and log lines, which therefore go through here too.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anstream::adapter::strip_bytes;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::environment::Environment;
use super::failure::{ExitStatus, Failure};
use crate::operations::Progress;

/// How a verb answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object on stdout, of failures too.
    Json,
}

/// What a verb has to say: as JSON by its fields, as text by itself.
pub trait Answer: Serialize {
    /// Writes the answer for people, with a line break at its end. Writing cannot fail for want of a reader.
    fn write_text(&self, text: &mut String) -> std::fmt::Result;
}

/// Where output goes.
pub struct Streams {
    stdout: Box<dyn Write + Send>,
    stderr: Box<dyn Write + Send>,
    /// Whether what goes to stderr has colours.
    colours_stderr: bool,
    shows_progress: bool,
}

impl Streams {
    /// Those of this process.
    pub fn of_process(environment: &Environment) -> Self {
        let choice = |is_terminal| {
            if environment.wants_colour(is_terminal) { ColorChoice::Always } else { ColorChoice::Never }
        };
        let colours_stderr = environment.wants_colour(environment.stderr_is_terminal);
        // Colours that are not wanted are taken out before; the log never has them, and looking for them would take longer than to
        // write it.
        let stderr: Box<dyn Write + Send> = if colours_stderr {
            Box::new(AutoStream::new(io::stderr(), ColorChoice::Always))
        } else {
            Box::new(io::stderr())
        };
        Self {
            stdout: Box::new(AutoStream::new(io::stdout(), choice(environment.stdout_is_terminal))),
            stderr,
            colours_stderr,
            shows_progress: io::stderr().is_terminal() && environment.stderr_is_terminal,
        }
    }
}

/// Prints for one run. Clones print to the same place.
#[derive(Clone)]
pub struct Printer {
    format: Format,
    is_quiet: bool,
    colours_stderr: bool,
    stdout: Output,
    stderr: Output,
    bars: MultiProgress,
}

type Output = Arc<Mutex<Box<dyn Write + Send>>>;

impl Printer {
    /// A printer; a quiet one prints results and failures only.
    pub fn new(streams: Streams, format: Format, is_quiet: bool) -> Self {
        let shows_progress = streams.shows_progress && !is_quiet;
        let target = if shows_progress { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self {
            format,
            is_quiet,
            colours_stderr: streams.colours_stderr,
            stdout: Arc::new(Mutex::new(streams.stdout)),
            stderr: Arc::new(Mutex::new(streams.stderr)),
            bars: MultiProgress::with_draw_target(target),
        }
    }

    /// Prints a verb's result.
    pub fn answer(&self, answer: &impl Answer) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json => {
                let mut json = serde_json::to_string_pretty(answer)
                    .map_err(|error| Failure::of_output(&io::Error::other(error)))?;
                json.push('\n');
                json
            }
            Format::Text => {
                let mut text = String::new();
                answer.write_text(&mut text).map_err(|error| Failure::of_output(&io::Error::other(error)))?;
                visible(&text)
            }
        };
        self.raw(text.as_bytes())
    }

    /// Prints bytes on stdout as they are: help, a completion script.
    pub fn raw(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = lock(&self.stdout);
        self.bars
            .suspend(|| stdout.write_all(bytes).and_then(|()| stdout.flush()))
            .map_err(|error| Failure::of_output(&error))
    }

    /// Tells people something by the way, unless they want quiet.
    pub fn note(&self, text: &str) {
        if !self.is_quiet {
            self.on_stderr(visible(text).as_bytes());
        }
    }

    /// Asks a person something who types the answer behind it: they are asked also where they want quiet.
    pub(super) fn question(&self, text: &str) {
        self.log_lines(visible(text).as_bytes());
    }

    /// Tells people of something that may not be what they want, unless they want quiet.
    pub fn warning(&self, text: &str) {
        if !self.is_quiet {
            self.labelled("warning", AnsiColor::Yellow, text);
        }
    }

    /// Tells people what they might do.
    pub fn hint(&self, text: &str) {
        if !self.is_quiet {
            self.labelled("hint", AnsiColor::Cyan, text);
        }
    }

    /// Prints why a verb failed, on stderr and, where JSON was asked for, on stdout; answers the exit status.
    pub fn failure(&self, failure: &Failure) -> ExitStatus {
        if failure.is_broken_pipe() {
            return ExitStatus::Done;
        }
        if self.format == Format::Json {
            // Whether anybody reads it or not, the verb has failed.
            let _ = self.raw(format!("{:#}\n", failure.as_json()).as_bytes());
        }
        self.failure_beside_answer(failure)
    }

    /// The same of a verb that has answered all the same, with the failure in it where JSON was asked for.
    pub(super) fn failure_beside_answer(&self, failure: &Failure) -> ExitStatus {
        match failure.rendered_usage() {
            Some(usage) => self.on_stderr(usage.ansi().to_string().trim_end().as_bytes()),
            None => self.labelled("error", AnsiColor::Red, failure.message()),
        }
        // clap's own text has its tips in it already.
        let shown = |hint: &&String| failure.rendered_usage().is_none_or(|usage| !contains(usage, hint));
        for hint in failure.hints().iter().filter(shown) {
            self.labelled("hint", AnsiColor::Cyan, hint);
        }
        failure.kind().exit_status()
    }

    /// What shows how far an operation is: bars where a person looks on, and warnings everywhere.
    pub fn progress(&self) -> Arc<dyn Progress> {
        Arc::new(Reporter { printer: self.clone(), current: Mutex::new(None) })
    }

    /// Writes whole lines of the log.
    pub(super) fn log_lines(&self, lines: &[u8]) {
        let mut stderr = lock(&self.stderr);
        // Where it has gone, there is nobody left to tell.
        let _ = self.bars.suspend(|| stderr.write_all(lines).and_then(|()| stderr.flush()));
    }

    /// Whether what goes to stderr has colours.
    pub(super) fn colours_stderr(&self) -> bool {
        self.colours_stderr
    }

    fn labelled(&self, label: &str, colour: AnsiColor, text: &str) {
        let style = Style::new().bold().fg_color(Some(colour.into()));
        self.on_stderr(format!("{style}{label}:{style:#} {}", visible(text)).as_bytes());
    }

    /// A line on stderr, in one piece: others write there too.
    fn on_stderr(&self, line: &[u8]) {
        let line = [line, b"\n"].concat();
        if self.colours_stderr {
            self.log_lines(&line);
        } else {
            self.log_lines(&strip_bytes(&line).into_vec());
        }
    }
}

/// A bar for the transfer that runs; a hidden one where nobody looks on.
struct Reporter {
    printer: Printer,
    current: Mutex<Option<ProgressBar>>,
}

impl Progress for Reporter {
    fn started(&self, what: &str, bytes: Option<u64>) {
        let (bar, template) = match bytes {
            Some(bytes) => (
                ProgressBar::new(bytes),
                "{msg} [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
            ),
            None => (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}"),
        };
        // An unknown placeholder would be ours to mend; the default bar does until then.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bar.with_style(style.progress_chars("=> ")).with_message(visible(what));
        let bar = self.printer.bars.add(bar);
        if bytes.is_none() {
            // Nothing else moves it.
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        if let Some(earlier) = lock(&self.current).replace(bar) {
            earlier.finish_and_clear();
        }
    }

    fn advanced(&self, bytes: u64) {
        if let Some(bar) = &*lock(&self.current) {
            bar.inc(bytes);
        }
    }

    fn grown(&self, bytes: u64) {
        if let Some(bar) = &*lock(&self.current) {
            bar.inc_length(bytes);
        }
    }

    fn finished(&self) {
        if let Some(bar) = lock(&self.current).take() {
            bar.finish_and_clear();
        }
    }

    fn warn(&self, message: &str) {
        self.printer.warning(message);
    }
}

/// Somebody who panicked while printing has left nothing half done that matters.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn contains(usage: &clap::builder::StyledStr, hint: &str) -> bool {
    usage.to_string().split_whitespace().collect::<Vec<_>>().join(" ").contains(hint)
}

/// The text with its control characters shown, so that no stranger's text moves the cursor, sets a title or hides a line.
/// The characters that turn the direction of writing are among them.
pub fn visible(text: &str) -> String {
    let is_hidden = |character: char| {
        (character.is_control() && !matches!(character, '\n' | '\t'))
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut shown, character| {
        if is_hidden(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
        shown
    })
}

/// The same for text that belongs on one line.
pub(super) fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
}

/// Writes rows in columns that stand below each other, without spaces at the end of a line.
pub(super) fn write_columns<const COLUMNS: usize>(
    text: &mut String,
    rows: &[[&str; COLUMNS]],
) -> std::fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            write!(line, "{cell:width$}  ")?;
        }
        writeln!(text, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod captured {
    //! Streams whose output a test reads.

    use super::*;

    /// What was printed.
    #[derive(Clone, Default)]
    pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Captured {
        /// As text.
        pub(crate) fn text(&self) -> String {
            String::from_utf8_lossy(&lock(&self.0)).into_owned()
        }
    }

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Streams without colours or bars, and what comes out of stdout and stderr.
    pub(crate) fn streams() -> (Streams, Captured, Captured) {
        let (stdout, stderr) = (Captured::default(), Captured::default());
        let streams = Streams {
            stdout: Box::new(anstream::StripStream::new(boxed(stdout.clone()))),
            stderr: boxed(stderr.clone()),
            colours_stderr: false,
            shows_progress: false,
        };
        (streams, stdout, stderr)
    }

    fn boxed(captured: Captured) -> Box<dyn Write + Send> {
        Box::new(captured)
    }

    /// Streams whose reader has gone.
    pub(crate) fn broken() -> Streams {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        Streams {
            stdout: Box::new(Broken),
            stderr: Box::new(Broken),
            colours_stderr: false,
            shows_progress: false,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Greeting {
        to: &'static str,
    }

    impl Answer for Greeting {
        fn write_text(&self, text: &mut String) -> std::fmt::Result {
            writeln!(text, "hello {}", self.to)
        }
    }

    fn printed(format: Format, is_quiet: bool, print: impl FnOnce(&Printer)) -> (String, String) {
        let (streams, stdout, stderr) = captured::streams();
        print(&Printer::new(streams, format, is_quiet));
        (stdout.text(), stderr.text())
    }

    #[test]
    fn results_go_to_stdout_and_all_else_to_stderr() {
        let print = |printer: &Printer| {
            printer.note("pushing");
            printer.warning("old");
            printer.answer(&Greeting { to: "jo" }).unwrap();
        };
        let (stdout, stderr) = printed(Format::Text, false, print);
        assert_eq!((stdout.as_str(), stderr.as_str()), ("hello jo\n", "pushing\nwarning: old\n"));
        let (stdout, stderr) = printed(Format::Json, true, print);
        assert_eq!((stdout.as_str(), stderr.as_str()), ("{\n  \"to\": \"jo\"\n}\n", ""));
    }

    #[test]
    fn failures_are_on_stdout_too_where_json_is_asked_for() {
        let failure = Failure::new(super::super::failure::ErrorKind::NotFound, "there is no `acme/vpc/aws`")
            .with_hint("list what there is with `ocimod list`");
        let (stdout, stderr) = printed(Format::Text, true, |printer| {
            assert_eq!(printer.failure(&failure), ExitStatus::NotFound);
        });
        assert_eq!(stdout, "");
        insta::assert_snapshot!(stderr, @r"
        error: there is no `acme/vpc/aws`
        hint: list what there is with `ocimod list`
        ");
        let (stdout, _) = printed(Format::Json, false, |printer| {
            printer.failure(&failure);
        });
        insta::assert_snapshot!(stdout, @r#"
        {
          "error": {
            "kind": "not-found",
            "message": "there is no `acme/vpc/aws`",
            "hint": "list what there is with `ocimod list`"
          }
        }
        "#);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let printer = Printer::new(captured::broken(), Format::Text, false);
        printer.note("nobody hears this");
        let failure = printer.answer(&Greeting { to: "jo" }).unwrap_err();
        assert_eq!(printer.failure(&failure), ExitStatus::Done);
    }

    #[test]
    fn strangers_text_cannot_steer_the_terminal() {
        assert_eq!(visible("a\u{1b}]0;title\u{7}\tb\n"), "a\\u{1b}]0;title\\u{7}\tb\n");
        assert_eq!(visible("\u{202e}txt.exe\r"), "\\u{202e}txt.exe\\r");
        assert_eq!(visible("ü 名"), "ü 名");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let mut text = String::new();
        write_columns(&mut text, &[["a", "b", ""], ["long", "x", "y"]]).unwrap();
        assert_eq!(text, "a     b\nlong  x  y\n");
    }
}
