//! Runs programs: to their end with a deadline, or as servers that end with the value that stands for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// No client takes longer for the small things that the tests ask of it, even on a busy machine.
const DEADLINE: Duration = Duration::from_mins(3);

/// What a program answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// Fails the test unless the program said that it succeeded.
    #[track_caller]
    pub(crate) fn success(self) -> Self {
        assert_eq!(self.status, Some(0), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Fails the test unless the program ended with that status.
    #[track_caller]
    pub(crate) fn fails_with(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Both streams, for searching.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// The answer on stdout, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// A program with an environment of its own: nothing of the machine's configuration reaches it.
pub(crate) fn isolated(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("TMPDIR", std::env::temp_dir())
        .stdin(Stdio::null());
    command
}

/// Runs a program to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Answer {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| panic!("starting {command:?}: {error}"));
    finish(command, child)
}

/// Runs a program to its end, with this on its stdin.
#[track_caller]
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Answer {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("starting {command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // One that ends before it has read everything says why by its status.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    finish(command, child)
}

#[track_caller]
fn finish(command: &Command, child: Child) -> Answer {
    let pid = child.id();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(DEADLINE) else {
        kill(pid, "KILL");
        panic!("{command:?} took more than {DEADLINE:?}");
    };
    let Output { status, stdout, stderr } = output.expect("the output can be read");
    Answer {
        status: status.code(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    child: Child,
    log: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Server {
    /// Starts a server; its standard error is read line by line.
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("starting {command:?}: {error}"));
        let stderr: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("stderr is piped"));
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Where nobody listens any more, reading goes on: the server must not be stopped by a full pipe.
                let _ = sender.send(line);
            }
        });
        Self { child, log, seen: Vec::new() }
    }

    /// Waits for a line of the log for which `find` answers something.
    #[track_caller]
    pub(crate) fn wait_for<T>(&mut self, mut find: impl FnMut(&str) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            match self.log.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = find(&line);
                    self.seen.push(line);
                    if let Some(found) = found {
                        return found;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout | mpsc::RecvTimeoutError::Disconnected) => {
                    panic!("the server did not say what was waited for:\n{}", self.seen.join("\n"))
                }
            }
        }
    }

    /// Everything that the server logged so far.
    pub(crate) fn log(&mut self) -> String {
        self.seen.extend(self.log.try_iter());
        self.seen.join("\n")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the server's own end; its exit status.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("the server can be waited for").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process by its id.
pub(crate) fn kill(pid: u32, signal: &str) {
    let _ = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
}
