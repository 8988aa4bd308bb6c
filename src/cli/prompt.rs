//! What a person types when asked: a line, or a secret that the terminal does not show.
//!
//! Questions go to stderr, so that stdout stays the answer's. Where stdin is no terminal there is nobody to ask.

use std::io::{self, Read};

use super::Context;
use super::failure::{ErrorKind, Failure};
use super::printer::Printer;

/// Tokens of clouds and keys of service accounts are some KiB.
const MAX_SECRET: u64 = 64 * 1024;

/// Asks for a line.
pub(super) async fn line(context: &Context, question: &str) -> Result<String, Failure> {
    context.printer.question(question);
    read_line().await
}

/// Asks for a line that the terminal does not show.
pub(super) async fn secret(context: &Context, question: &str) -> Result<String, Failure> {
    // Before the question: whoever sees it may type.
    let silence = Silence::begin(context.printer.clone()).map_err(|error| {
        let message = format!("the terminal cannot be kept from showing what is typed: {error}");
        Failure::new(ErrorKind::Failed, message).with_hint("hand the password over with `--password-stdin`")
    })?;
    context.printer.question(question);
    let typed = read_line().await;
    drop(silence);
    typed
}

/// A secret that another program writes to stdin, without the end of its last line.
pub(super) async fn secret_of_stdin() -> Result<String, Failure> {
    let read = blocking(|| {
        let mut bytes = Vec::new();
        io::stdin().lock().take(MAX_SECRET + 1).read_to_end(&mut bytes).map(|_| bytes)
    });
    let mut secret = read.await?;
    if secret.len() as u64 > MAX_SECRET {
        return Err(Failure::usage(format!(
            "what came on stdin is longer than {MAX_SECRET} bytes, so it is no secret"
        )));
    }
    for end in [b'\n', b'\r'] {
        if secret.last() == Some(&end) {
            secret.pop();
        }
    }
    String::from_utf8(secret).map_err(|_| Failure::usage("what came on stdin is no text in UTF-8"))
}

async fn read_line() -> Result<String, Failure> {
    // A terminal hands over whole lines.
    let typed = blocking(|| io::stdin().lines().next().transpose()).await?;
    typed.ok_or_else(|| Failure::usage("nothing was typed"))
}

/// Runs what waits for a person, where it does not hold up the signals of the terminal.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let unreadable =
        |error: io::Error| Failure::new(ErrorKind::Failed, format!("stdin cannot be read: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(|error| unreadable(error.into()))?.map_err(unreadable)
}

/// A terminal that shows nothing of what is typed, until this is dropped: however the verb ends.
#[cfg(unix)]
struct Silence {
    before: rustix::termios::Termios,
    printer: Printer,
}

#[cfg(unix)]
impl Silence {
    fn begin(printer: Printer) -> io::Result<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Drain, &silent)?;
        Ok(Self { before, printer })
    }
}

#[cfg(unix)]
impl Drop for Silence {
    fn drop(&mut self) {
        // Where the terminal has gone, nobody sees what it shows.
        let _ =
            rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Drain, &self.before);
        // It did not show the end of the line either.
        self.printer.question("\n");
    }
}

#[cfg(not(unix))]
struct Silence;

#[cfg(not(unix))]
impl Silence {
    fn begin(_: Printer) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "not on this system"))
    }
}
