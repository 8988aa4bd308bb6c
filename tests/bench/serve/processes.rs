//! Servers as processes of their own, and what the kernel says of them (Linux alone).

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::peers::Peer;

/// No server at hand takes longer to start.
const START: Duration = Duration::from_secs(30);

/// How often the memory of a process is looked at. The kernel keeps the most that it had, so the last look before its end counts.
const LOOK: Duration = Duration::from_millis(5);

/// In what the kernel counts a processor's time; `USER_HZ` is 100 on every Linux that there is.
const TICKS_PER_SECOND: f64 = 100.0;

/// A server that runs until it is dropped.
pub(crate) struct Server {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    child: Child,
    /// A peer of ours ends when this closes, also where we are killed.
    _stdin: Option<ChildStdin>,
    /// Removed when it has ended.
    _home: Option<TempDir>,
}

impl Server {
    /// The most memory that it ever had, in MiB.
    pub(crate) fn peak_memory(&self) -> Result<f64> {
        peak_memory(self.child.id())
    }

    /// How long it was on a processor so far, in seconds.
    pub(crate) fn processor_time(&self) -> Result<f64> {
        processor_time(&format!("/proc/{}/stat", self.child.id()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The most memory that a process ever had, in MiB.
pub(crate) fn peak_memory(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes / 1024.0)
}

/// The fields `utime` and `stime` of `stat` (`proc_pid_stat(5)`, 14 and 15), in seconds.
fn processor_time(stat: &str) -> Result<f64> {
    let text = fs::read_to_string(stat)?;
    // The second field is the program's name in parentheses, which may hold anything.
    let (_, rest) = text.rsplit_once(')').with_context(|| format!("the form of {stat}"))?;
    let times = rest.split_ascii_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(times.sum::<Result<f64, _>>()? / TICKS_PER_SECOND)
}

/// That of the thread that asks.
pub(crate) fn time_of_this_thread() -> Result<f64> {
    processor_time("/proc/thread-self/stat")
}

/// Which processors a comparison uses: one for the server, so that it is what runs out, and others for the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Processors {
    pub(crate) server: Option<usize>,
    pub(crate) client: Option<usize>,
    /// That of the registry behind the server.
    pub(crate) behind: Option<usize>,
}

impl Processors {
    /// Two or three of those that we may use; nothing is kept apart where there is only one, or no `taskset`.
    pub(crate) fn choose() -> Self {
        let allowed = allowed_processors().unwrap_or_default();
        if find("taskset").is_none() {
            return Self::default();
        }
        match allowed[..] {
            [server, client] => Self { server: Some(server), client: Some(client), behind: Some(client) },
            [server, client, behind, ..] => {
                Self { server: Some(server), client: Some(client), behind: Some(behind) }
            }
            _ => Self::default(),
        }
    }
}

fn allowed_processors() -> Result<Vec<usize>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("the list")?;
    let mut processors = Vec::new();
    for range in list.trim().split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        processors.extend(from.parse::<usize>()?..=to.parse()?);
    }
    Ok(processors)
}

/// Keeps the thread that calls to one processor.
pub(crate) fn keep_this_thread_to(processor: usize) -> Result<()> {
    let link = fs::read_link("/proc/thread-self")?;
    let thread = link.file_name().context("the thread's number")?;
    let mut command = Command::new("taskset");
    command.args(["-c", "-p", &processor.to_string()]).arg(thread).stdout(Stdio::null());
    ensure!(command.status()?.success(), "taskset does not keep a thread to processor {processor}");
    Ok(())
}

/// A program, where it is installed: in the folder of `tests/clients/install`, or in `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let clients = set("OCIMOD_TEST_CLIENTS_DIR").unwrap_or_else(|| {
        let home = set("HOME").unwrap_or_default();
        set("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("ocimod/clients")
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(clients.join("bin"))
        .chain(std::env::split_paths(&path))
        // Debian has nginx where only root looks.
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// A command that is kept to a processor, with nothing of this machine's configuration.
fn isolated(program: &Path, home: &Path, processor: Option<usize>) -> Command {
    let mut command = match processor {
        Some(processor) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &processor.to_string()]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("TMPDIR", home)
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

/// The program that is measured, with a home of its own.
pub(crate) struct Ocimod {
    home: TempDir,
    processor: Option<usize>,
}

impl Ocimod {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { home: tempfile::tempdir()?, processor: None })
    }

    /// Keeps its servers to one processor.
    pub(crate) fn on(processor: Option<usize>) -> Result<Self> {
        Ok(Self { processor, ..Self::new()? })
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs a verb to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<()> {
        let mut command = isolated(Path::new(env!("CARGO_BIN_EXE_ocimod")), self.home(), None);
        let output = command.args(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ocimod {}: {}: {stderr}", arguments.join(" "), output.status);
        Ok(())
    }

    /// Runs a verb to its end; answers the most memory that it ever had, in MiB.
    pub(crate) fn peak_of(&self, arguments: &[&str]) -> Result<f64> {
        let mut command = isolated(Path::new(env!("CARGO_BIN_EXE_ocimod")), self.home(), None);
        let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut peak = 0.0;
        loop {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "ocimod {}: {status}", arguments.join(" "));
                break;
            }
            // It has none any more at the moment of its end.
            if let Ok(memory) = peak_memory(child.id()) {
                peak = memory;
            }
            thread::sleep(LOOK);
        }
        ensure!(peak > 0.0, "nothing was seen of the memory of ocimod {}", arguments.join(" "));
        Ok(peak)
    }

    /// `ocimod serve` over a registry, its caches in the home and empty where that is new.
    ///
    /// The log is written as by default, into a file. What is set here by variables is no default, and is what an operator
    /// sets who cares for speed.
    pub(crate) fn serve(&self, registry: &str, variables: &[(&str, &str)]) -> Result<Server> {
        let address_file = self.home().join("address");
        let log_file = self.home().join("log");
        let _ = fs::remove_file(&address_file);
        let mut command = isolated(Path::new(env!("CARGO_BIN_EXE_ocimod")), self.home(), self.processor);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--registry", registry, "--print-address"])
            .arg(&address_file)
            .env("OCIMOD_CACHE_DIR", self.home().join("cache"))
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log_file)?);
        let mut server =
            Server { child: command.spawn()?, address: String::new(), _stdin: None, _home: None };
        let address = || Some(fs::read_to_string(&address_file).ok()?.trim().to_owned());
        let started = wait_for(&mut server.child, address);
        server.address = started.with_context(|| fs::read_to_string(&log_file).unwrap_or_default())?;
        Ok(server)
    }
}

/// A peer of ours: this program again.
pub(crate) fn peer(peer: &Peer, processor: Option<usize>) -> Result<Server> {
    let mut command = isolated(&std::env::current_exe()?, &std::env::temp_dir(), processor);
    command.args(["--peer", &peer.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take().context("the peer's output")?;
    let mut server = Server { child, address: String::new(), _stdin: stdin, _home: None };
    BufReader::new(stdout).read_line(&mut server.address)?;
    server.address = server.address.trim().to_owned();
    ensure!(!server.address.is_empty(), "the peer {peer} did not start");
    Ok(server)
}

/// Another's server with a folder of its own, that is known to be ready once it takes connections at the address.
pub(crate) fn foreign(
    program: &Path,
    home: TempDir,
    arguments: &[&str],
    address: String,
    processor: Option<usize>,
) -> Result<Server> {
    let mut command = isolated(program, home.path(), processor);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Server { child: command.spawn()?, address, _stdin: None, _home: Some(home) };
    let is_ready = || std::net::TcpStream::connect(&server.address).ok();
    wait_for(&mut server.child, is_ready).with_context(|| program.display().to_string())?;
    Ok(server)
}

/// A port that was free just now, for servers that cannot take a free one by themselves.
pub(crate) fn free_address() -> Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn wait_for<T>(child: &mut Child, mut ready: impl FnMut() -> Option<T>) -> Result<T> {
    let end = Instant::now() + START;
    loop {
        if let Some(value) = ready() {
            return Ok(value);
        }
        if let Some(status) = child.try_wait()? {
            bail!("the server ended with {status}");
        }
        ensure!(Instant::now() < end, "the server did not start");
        thread::sleep(Duration::from_millis(2));
    }
}
