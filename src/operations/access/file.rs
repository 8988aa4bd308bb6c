//! The access file on disk: the rules of a running server follow it, and `ocimod token new` adds to it.
//!
//! Where the file has become one that cannot be read, or is gone, the rules that were last read stay in force: whoever makes a
//! mistake in an editor neither locks everybody out nor lets anybody in. That a token was taken away counts from the next second
//! on, since the file's stamp is looked at that often while there are requests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use toml::Value;

use super::rules::is_name;
use super::{Pattern, Right, RuleError, Rules, TokenHash};
use crate::registry::whole_file::{self, ChangeError, Mode, Stamp};

/// Room for some twenty thousand tokens; the file is read into memory.
const MAX_SIZE: u64 = 4 * 1024 * 1024;

/// How long the stamp of the file is believed.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Why an access file cannot be used, or added to.
#[derive(Debug, thiserror::Error)]
pub enum AccessFileError {
    /// It cannot be read.
    #[error("the access file {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// It is too large to be one.
    #[error("{} is larger than {MAX_SIZE} bytes, so it is no access file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It says something wrong.
    #[error("{}:{}: {}", path.display(), error.line, error.problem)]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        error: RuleError,
    },
    /// There is a token of that name.
    #[error("{} has a token with the name `{name}` already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The name cannot be one.
    #[error(
        "`{0}` cannot be the name of a token: it has 1 to 64 letters, digits and `.`, `_`, `-`, `+`, `@`, `:`, `/`"
    )]
    Name(String),
    /// The file is written so that nothing can be put below it.
    #[error(
        "{} lists its tokens in one value, to which nothing can be added; write each as a table that begins with `[[token]]`",
        path.display()
    )]
    NotAppendable {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("the access file {} cannot be written: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// The file that takes its place would belong to somebody else, who may keep the server from reading it.
    #[error(
        "{} belongs to another user or group, and it cannot be replaced by a file that does: {source}",
        path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
}

/// An access file, and the rules that it gave when it was last good.
#[derive(Debug)]
pub struct AccessFile {
    path: PathBuf,
    rules: RwLock<Arc<Rules>>,
    seen: Mutex<Seen>,
}

/// What is known of the file on disk.
#[derive(Debug)]
struct Seen {
    checked: Instant,
    /// `None` where it could not be read, or was being written.
    stamp: Option<Stamp>,
    /// What was last said of it, so that it is said once.
    complaint: Option<String>,
}

impl AccessFile {
    /// Opens a file whose rules are to be followed; one that cannot be used is an error.
    pub fn open(path: &Path) -> Result<Self, AccessFileError> {
        let (rules, stamp) = read(path)?;
        if rules.is_empty() {
            tracing::warn!(
                "{} has no token yet; `ocimod token new NAME --allow read --access {}` adds one",
                path.display(),
                path.display()
            );
        }
        Ok(Self {
            path: path.to_owned(),
            rules: RwLock::new(Arc::new(rules)),
            seen: Mutex::new(Seen { checked: Instant::now(), stamp, complaint: None }),
        })
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it is time to look at the file. It is for one caller, who then calls [`Self::refresh`]; the others go on with what
    /// there is.
    pub fn is_due(&self) -> bool {
        // Where it is held, somebody is looking.
        let Ok(mut seen) = self.seen.try_lock() else { return false };
        let is_due = seen.checked.elapsed() >= CHECK_EVERY;
        if is_due {
            seen.checked = Instant::now();
        }
        is_due
    }

    /// Whether nobody has to look at the file yet, so that [`Self::rules`] is all that there is to know.
    pub fn is_fresh(&self) -> bool {
        self.seen.try_lock().is_ok_and(|seen| seen.checked.elapsed() < CHECK_EVERY)
    }

    /// Looks at the file, and reads it where it is another one. Blocks.
    pub fn refresh(&self) {
        let stamp = fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
        let known = self.seen.lock().unwrap_or_else(PoisonError::into_inner).stamp;
        if stamp.is_none() || stamp != known {
            self.reload();
        }
    }

    /// Reads the file, whatever its stamp. Blocks.
    pub fn reload(&self) {
        // Held over the reading, so that of two that read at the same time the later content stays.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.checked = Instant::now();
        match read(&self.path) {
            Ok((rules, stamp)) => {
                // A file that was being written is read more than once for one change.
                if seen.complaint.is_some() || rules != *self.rules() {
                    let count = rules.len();
                    tracing::info!(tokens = count, "{} was read again: {count} tokens", self.path.display());
                    *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
                }
                seen.stamp = stamp;
                seen.complaint = None;
            }
            Err(error) => {
                let complaint = error.to_string();
                if seen.complaint.as_ref() != Some(&complaint) {
                    tracing::error!("{complaint}; the rules that were read before stay in force");
                }
                seen.stamp = None;
                seen.complaint = Some(complaint);
            }
        }
    }
}

/// Reads a file, with its stamp where that can be relied upon.
fn read(path: &Path) -> Result<(Rules, Option<Stamp>), AccessFileError> {
    let unreadable = |source| AccessFileError::Unreadable { path: path.to_owned(), source };
    let (bytes, stamp) = whole_file::read(path, MAX_SIZE)
        .map_err(unreadable)?
        .ok_or_else(|| AccessFileError::TooLarge { path: path.to_owned() })?;
    let rules = parse(path, text_of(path, &bytes)?)?;
    Ok((rules, stamp))
}

fn text_of<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, AccessFileError> {
    std::str::from_utf8(bytes).map_err(|_| AccessFileError::Unreadable {
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"),
    })
}

fn parse(path: &Path, text: &str) -> Result<Rules, AccessFileError> {
    Rules::parse(text).map_err(|error| AccessFileError::Wrong { path: path.to_owned(), error })
}

/// A token to be added to a file.
pub struct TokenEntry {
    /// What it is called.
    pub name: String,
    /// What is kept of it.
    pub hash: TokenHash,
    /// What it allows; never empty.
    pub rights: Vec<Right>,
    /// Where; everywhere where there is none.
    pub repositories: Vec<Pattern>,
    /// Seconds since 1970.
    pub expires: Option<i64>,
}

impl TokenEntry {
    fn text(&self) -> String {
        let texts = |items: Vec<&str>| Value::from(items).to_string();
        let mut lines = vec![
            "[[token]]".to_owned(),
            format!("name = {}", Value::from(self.name.as_str())),
            format!("sha256 = \"{}\"", self.hash.to_hex()),
            format!("allow = {}", texts(self.rights.iter().map(|right| right.as_str()).collect())),
        ];
        if !self.repositories.is_empty() {
            let patterns = self.repositories.iter().map(Pattern::as_str).collect();
            lines.push(format!("repositories = {}", texts(patterns)));
        }
        if let Some(expires) = self.expires {
            lines.push(format!("expires = {}", crate::operations::rfc3339(expires)));
        }
        lines.join("\n") + "\n"
    }
}

/// Adds a token to a file, which is made where there is none. What stands in the file stays as it is; readers find it whole, before
/// or after. Blocks.
pub fn add_token(path: &Path, entry: &TokenEntry) -> Result<(), AccessFileError> {
    if !is_name(&entry.name) {
        return Err(AccessFileError::Name(entry.name.clone()));
    }
    // Where a link leads is what is replaced, and not the link.
    let path = match fs::canonicalize(path) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => path.to_owned(),
        Err(source) => return Err(AccessFileError::Unreadable { path: path.to_owned(), source }),
    };
    let changed = whole_file::change(&path, MAX_SIZE, Mode::Kept, |old| with(&path, old, entry).map(Some));
    changed.map(|_| ()).map_err(|error| match error {
        ChangeError::Refused(error) => error,
        ChangeError::Unreadable(source) => AccessFileError::Unreadable { path, source },
        ChangeError::TooLarge => AccessFileError::TooLarge { path },
        ChangeError::Unwritable(source) => AccessFileError::Unwritable { path, source },
        ChangeError::Owner(source) => AccessFileError::Owner { path, source },
    })
}

/// The content of a file with one token more.
fn with(path: &Path, old: Option<&[u8]>, entry: &TokenEntry) -> Result<Vec<u8>, AccessFileError> {
    let Some(old) = old else { return Ok(entry.text().into_bytes()) };
    let text = text_of(path, old)?;
    let rules = parse(path, text)?;
    if rules.has_name(&entry.name) {
        return Err(AccessFileError::Exists { path: path.to_owned(), name: entry.name.clone() });
    }
    let separator = match text {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let grown = format!("{text}{separator}{}", entry.text());
    if Rules::parse(&grown).ok().is_none_or(|grown| grown.len() != rules.len() + 1) {
        return Err(AccessFileError::NotAppendable { path: path.to_owned() });
    }
    Ok(grown.into_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn entry(name: &str) -> TokenEntry {
        TokenEntry {
            name: name.to_owned(),
            hash: TokenHash::of(name).unwrap(),
            rights: vec![Right::Read, Right::Push],
            repositories: vec!["acme/*".parse().unwrap()],
            expires: Some(86_400),
        }
    }

    fn holds(file: &AccessFile, token: &str) -> bool {
        file.rules().holder(token, 0).is_some()
    }

    #[test]
    fn what_is_added_is_read_and_what_was_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        add_token(&path, &entry("one")).unwrap();
        let made = fs::read_to_string(&path).unwrap();
        insta::assert_snapshot!(made, @r#"
        [[token]]
        name = "one"
        sha256 = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
        allow = ["read", "push"]
        repositories = ["acme/*"]
        expires = 1970-01-02T00:00:00Z
        "#);
        // Comments, odd spaces and a last line without an end.
        let odd = format!("# ours\n{}\n  # the end", made.replace(" = ", "="));
        fs::write(&path, &odd).unwrap();
        add_token(&path, &TokenEntry { repositories: Vec::new(), expires: None, ..entry("two") }).unwrap();
        let grown = fs::read_to_string(&path).unwrap();
        assert!(
            grown.starts_with(&odd) && grown.contains("# the end\n\n[[token]]\nname = \"two\"\n"),
            "{grown}"
        );
        assert!(!grown[odd.len()..].contains("repositories") && !grown[odd.len()..].contains("expires"));
        assert_eq!(Rules::parse(&grown).unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_added_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        add_token(&path, &entry("one")).unwrap();
        assert!(matches!(add_token(&path, &entry("one")), Err(AccessFileError::Exists { .. })));
        assert!(matches!(add_token(&path, &entry("o ne")), Err(AccessFileError::Name(_))));
        let inline = format!(
            "token = [{{ name = 'a', sha256 = '{}', allow = ['read'] }}]\n",
            TokenHash::of("a").unwrap().to_hex()
        );
        for (text, expected) in [(inline.as_str(), "lists its tokens in one value"), ("[[tokens]]\n", ":1: ")]
        {
            fs::write(&path, text).unwrap();
            let error = add_token(&path, &entry("two")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "nothing is left beside it");
    }

    #[cfg(unix)]
    #[test]
    fn a_new_file_is_its_owner_s_alone_and_an_old_one_keeps_its_mode_and_its_link() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("access.toml"), folder.path().join("link.toml"));
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        add_token(&path, &entry("one")).unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("access.toml", &link).unwrap();
        add_token(&link, &entry("two")).unwrap();
        assert_eq!(mode(), 0o640);
        assert!(link.is_symlink());
        assert_eq!(Rules::parse(&fs::read_to_string(&path).unwrap()).unwrap().len(), 2);
        symlink("nowhere.toml", folder.path().join("dangling.toml")).unwrap();
        add_token(&folder.path().join("dangling.toml"), &entry("three")).unwrap_err();
    }

    #[test]
    fn of_many_who_add_at_the_same_time_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let path = &path;
                scope.spawn(move || add_token(path, &entry(&format!("token-{number}"))).unwrap());
            }
        });
        assert_eq!(Rules::parse(&fs::read_to_string(&path).unwrap()).unwrap().len(), 16);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn the_rules_follow_the_file_and_outlive_its_mistakes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        assert!(matches!(AccessFile::open(&path), Err(AccessFileError::Unreadable { .. })));
        add_token(&path, &entry("one")).unwrap();
        let file = AccessFile::open(&path).unwrap();
        assert!(holds(&file, "one") && !holds(&file, "two"));

        add_token(&path, &entry("two")).unwrap();
        file.refresh();
        assert!(holds(&file, "one") && holds(&file, "two"));

        for mistake in ["[[token]]\nname = 'two'", "[[tokens]]", "\u{0}", "[[token]]\nname = "] {
            fs::write(&path, mistake).unwrap();
            file.refresh();
            assert!(holds(&file, "one") && holds(&file, "two"), "{mistake}");
            assert!(AccessFile::open(&path).is_err(), "{mistake}");
        }
        fs::remove_file(&path).unwrap();
        file.refresh();
        assert!(holds(&file, "one"));

        add_token(&path, &entry("three")).unwrap();
        file.refresh();
        assert!(!holds(&file, "one") && holds(&file, "three"));
    }

    #[test]
    fn a_file_of_the_same_length_that_is_written_within_a_tick_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        let text = |name: &str| TokenEntry { name: "name".to_owned(), ..entry(name) }.text();
        fs::write(&path, text("a")).unwrap();
        let file = AccessFile::open(&path).unwrap();
        for token in ["b", "c", "d"] {
            fs::write(&path, text(token)).unwrap();
            file.refresh();
            assert!(holds(&file, token));
        }
    }

    #[test]
    fn debug_tells_no_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        add_token(&path, &entry("one")).unwrap();
        let shown = format!("{:?}", AccessFile::open(&path).unwrap());
        assert!(
            shown.contains("Rules(1)") && !shown.contains(&TokenHash::of("one").unwrap().to_hex()[..8]),
            "{shown}"
        );
    }
}
