//! What is read from files and may change while the server runs: keys, certificates, rules of access.
//!
//! Files are looked at again at SIGHUP and every few seconds, so that whatever renews a certificate need not know the process. What
//! cannot be used is logged, once, and what there was before stays in use: a file may be seen half written, or a certificate before
//! its key.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::oci::Digest;

/// How often files are looked at. Whoever changes one and waits for it waits no longer than for a restart.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Keys, certificates with their chains and lists of tokens are far smaller.
const MAX_SIZE: u64 = 4 * 1024 * 1024;

/// A value that may be replaced by another one. Clones are the same value.
pub struct Live<T>(Arc<RwLock<Arc<T>>>);

impl<T> Live<T> {
    /// A value that stays as it is, unless it is one of [`Reloads`].
    pub fn fixed(value: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(value))))
    }

    /// The value at this moment.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}

/// Why files cannot be used. No message quotes what stands in them.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// A file is larger than anything that belongs here.
    #[error("`{}` is larger than {MAX_SIZE} bytes, so it holds nothing that is meant to be here", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The files hold something else.
    #[error("`{}` cannot be used: {reason}", path.display())]
    Invalid {
        /// The first of the files.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// Files with what is made of them.
struct Watched {
    files: Vec<PathBuf>,
    /// Of the contents that were last looked at, or of why there were none.
    seen: Digest,
    take: Box<Take>,
}

/// Makes something of contents and puts it in its place, or says why not.
type Take = dyn Fn(&[Vec<u8>]) -> Result<(), String> + Send;

/// Everything that is read again while the server runs.
#[derive(Default)]
pub struct Reloads(Vec<Watched>);

impl Reloads {
    /// Reads files, and from then on keeps the value what they say. `parse` gets the contents in the order of the files.
    pub fn read<T, E>(
        &mut self,
        files: Vec<PathBuf>,
        parse: impl Fn(&[Vec<u8>]) -> Result<T, E> + Send + 'static,
    ) -> Result<Live<T>, ReloadError>
    where
        T: Send + Sync + 'static,
        E: fmt::Display,
    {
        let contents = read_all(&files)?;
        let live = Live::fixed(parse(&contents).map_err(|error| invalid(&files, error.to_string()))?);
        let value = live.clone();
        let take = move |contents: &[Vec<u8>]| {
            value.set(parse(contents).map_err(|error| error.to_string())?);
            Ok(())
        };
        self.0.push(Watched { seen: fingerprint(&Ok(contents)), files, take: Box::new(take) });
        Ok(live)
    }

    /// Looks at every file, and takes over what is new; with `again` also what is not. Waits for the disk.
    fn check(&mut self, again: bool) {
        for watched in &mut self.0 {
            let contents = read_all(&watched.files);
            let seen = fingerprint(&contents);
            if seen == watched.seen && !again {
                continue;
            }
            watched.seen = seen;
            let taken = contents.and_then(|contents| {
                (watched.take)(&contents).map_err(|reason| invalid(&watched.files, reason))
            });
            let names = || watched.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
            match taken {
                Ok(()) => tracing::info!("read again: {}", names().join(", ")),
                Err(error) => tracing::error!("{error}; what was read before stays in use"),
            }
        }
    }

    /// Keeps everything up to date, for as long as it is polled.
    pub async fn run(mut self, mut hangups: Hangups) {
        loop {
            let again = tokio::select! {
                () = hangups.next() => true,
                () = tokio::time::sleep(CHECK_EVERY) => false,
            };
            let checked = tokio::task::spawn_blocking(move || {
                self.check(again);
                self
            });
            match checked.await {
                Ok(reloads) => self = reloads,
                // The runtime ends, or `parse` panicked; neither leaves anything to go on with.
                Err(_) => return tracing::error!("files are not read again from here on"),
            }
        }
    }
}

/// The signals that ask for everything to be read again. From when there is one on, they no longer end the process.
pub struct Hangups {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangups {
    /// Begins to listen. Where the system has no such signal, there never is one.
    pub fn listen() -> Self {
        Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

fn invalid(files: &[PathBuf], reason: String) -> ReloadError {
    ReloadError::Invalid { path: files.first().cloned().unwrap_or_default(), reason }
}

fn read_all(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, ReloadError> {
    files.iter().map(|file| read(file)).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, ReloadError> {
    let unreadable = |source| ReloadError::Unreadable { path: path.to_owned(), source };
    let mut contents = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_SIZE + 1).read_to_end(&mut contents))
        .map_err(unreadable)?;
    if contents.len() as u64 > MAX_SIZE {
        return Err(ReloadError::TooLarge { path: path.to_owned() });
    }
    Ok(contents)
}

/// Stands for contents, or for the lack of them, so that no copy of a key is kept.
fn fingerprint(contents: &Result<Vec<Vec<u8>>, ReloadError>) -> Digest {
    let mut bytes = Vec::new();
    match contents {
        Ok(contents) => {
            for content in contents {
                bytes.extend((content.len() as u64).to_be_bytes());
                bytes.extend(content);
            }
        }
        Err(error) => bytes.extend(error.to_string().bytes()),
    }
    Digest::of(&bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn number(contents: &[Vec<u8>]) -> Result<u32, String> {
        let text = String::from_utf8_lossy(&contents[0]).trim().to_owned();
        text.parse().map_err(|_| "it is no number".to_owned())
    }

    #[test]
    fn what_changes_is_taken_over_and_what_is_wrong_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        std::fs::write(&file, "1").unwrap();
        let mut reloads = Reloads::default();
        let live = reloads.read(vec![file.clone()], number).unwrap();
        assert_eq!(*live.get(), 1);
        for (content, expected) in [("2", 2), ("nothing", 2), ("", 2), ("3", 3)] {
            std::fs::write(&file, content).unwrap();
            reloads.check(false);
            assert_eq!(*live.get(), expected, "{content}");
        }
        std::fs::remove_file(&file).unwrap();
        reloads.check(false);
        reloads.check(true);
        assert_eq!(*live.get(), 3);
    }

    #[test]
    fn a_file_of_the_same_size_and_time_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        std::fs::write(&file, "1").unwrap();
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        let mut reloads = Reloads::default();
        let live = reloads.read(vec![file.clone()], number).unwrap();
        std::fs::write(&file, "2").unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
        reloads.check(false);
        assert_eq!(*live.get(), 2);
    }

    #[test]
    fn what_cannot_be_used_at_first_is_said_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        let read = || Reloads::default().read(vec![file.clone()], number).unwrap_err().to_string();
        assert!(read().contains("cannot be read"));
        std::fs::write(&file, "my secret").unwrap();
        let said = read();
        assert!(said.contains("it is no number") && !said.contains("secret"), "{said}");
        File::create(&file).unwrap().set_len(MAX_SIZE + 1).unwrap();
        assert!(read().contains("larger than"));
    }
}
