//! A lock: which zip every module was that somebody used, so that the same names cannot come to mean something else unnoticed.
//!
//! Versions in a registry do not change where the registry sees to it. A lock does not rely on that, nor on who runs the registry: it has the
//! SHA-256 of each zip. A zip keeps its digest wherever it is copied and in whichever form it is stored, so one lock is good for every registry.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::module::{Constraint, CuePath, ModuleVersion, PathError, Version, VersionQuery};
use crate::oci::{Digest, DigestError};
use crate::registry::whole_file;

use super::closure::Needed;
use super::cue_cache::give_name;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::published;

/// The form that is written, and the only one that is read.
const FORMAT: u64 = 1;
/// As many modules as can be needed take a quarter of this.
const MAX_FILE_SIZE: u64 = 1024 * 1024;
/// What is said where a lock does not fit.
const UPDATE: &str = "where that is what you want, write the lock anew with `--update-lock`";

/// What is locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The module that all of it is about.
    pub module: CuePath,
    /// Its version, where it was pulled; `None` where what it needs is locked alone.
    pub version: Option<Version>,
    /// The digest of each zip. The module itself is among them where it has a version.
    pub modules: BTreeMap<ModuleVersion, Digest>,
}

/// A text is no lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Not what is written here.
    #[error("is no lock that ocimod wrote: {0}")]
    Malformed(String),
    /// Of another release.
    #[error(
        "has the format {0}, and this ocimod reads {FORMAT}; use the ocimod that wrote it, or a newer one"
    )]
    Format(u64),
}

/// The number alone, whatever else there is.
#[derive(Deserialize)]
struct Numbered {
    version: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u64,
    module: String,
    modules: Vec<WrittenModule>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WrittenModule {
    module: String,
    digest: String,
}

impl Lock {
    /// The lock of a module, the first one, with everything that it needs; `None` of nothing.
    pub fn of(everything: &[Needed]) -> Option<Self> {
        let itself = &everything.first()?.module;
        let modules = everything.iter().map(|needed| (needed.module.clone(), needed.archive.digest.clone()));
        Some(Self {
            module: itself.base().clone(),
            version: Some(itself.version().clone()),
            modules: modules.collect(),
        })
    }

    /// Reads the text of a lock.
    pub fn parse(bytes: &[u8]) -> std::result::Result<Self, LockError> {
        let malformed = |reason: String| LockError::Malformed(reason.chars().take(300).collect());
        let json = |error: serde_json::Error| malformed(error.to_string());
        let Numbered { version } = serde_json::from_slice(bytes).map_err(json)?;
        if version != FORMAT {
            return Err(LockError::Format(version));
        }
        let written: Written = serde_json::from_slice(bytes).map_err(json)?;
        let path = |error: PathError| malformed(error.to_string());
        let (module, version) = if written.module.contains('@') {
            let module: ModuleVersion = written.module.parse().map_err(path)?;
            (module.base().clone(), Some(module.version().clone()))
        } else {
            (CuePath::parse(&written.module).map_err(path)?, None)
        };
        let mut modules = BTreeMap::new();
        for WrittenModule { module, digest } in written.modules {
            let name: ModuleVersion = module.parse().map_err(path)?;
            let digest = digest.parse().map_err(|error: DigestError| malformed(error.to_string()))?;
            if modules.insert(name, digest).is_some() {
                return Err(malformed(format!("`{module}` is in it twice")));
            }
        }
        let lock = Self { module, version, modules };
        match lock.itself() {
            Some(itself) if !lock.modules.contains_key(&itself) => {
                Err(malformed(format!("`{itself}` is not among its modules")))
            }
            _ => Ok(lock),
        }
    }

    /// The same bytes for the same modules: JSON, sorted, a module a line.
    pub fn to_text(&self) -> String {
        let modules = self
            .modules
            .iter()
            .map(|(module, digest)| WrittenModule { module: module.to_string(), digest: digest.to_string() });
        let module = self.itself().map_or_else(|| self.module.to_string(), |itself| itself.to_string());
        let written = Written { version: FORMAT, module, modules: modules.collect() };
        // Strings and a number: there is nothing in it that JSON has no words for.
        let mut text = serde_json::to_string_pretty(&written).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The module itself, where it is among them.
    fn itself(&self) -> Option<ModuleVersion> {
        self.version.clone().map(|version| ModuleVersion::new(self.module.clone(), version))
    }

    /// The same without the module itself.
    #[must_use]
    pub fn of_dependencies(mut self) -> Self {
        if let Some(itself) = self.itself() {
            self.modules.remove(&itself);
        }
        Self { version: None, ..self }
    }
}

/// A lock in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockFile {
    /// Where it is.
    pub path: PathBuf,
    /// What is in it; `None` where there is none yet, or where what there is does not count.
    pub lock: Option<Lock>,
}

impl LockFile {
    /// Reads a file, where there is one. Blocks.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |reason: String| {
            let message = format!("{} {reason}", path.display());
            OperationError::Usage { message, hint: "`--update-lock` writes it anew".to_owned() }
        };
        let bytes = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: path.to_owned(), lock: None });
            }
            Err(error) => Err(error),
            Ok(metadata) if !metadata.is_file() => return Err(wrong("is no file".to_owned())),
            Ok(_) => whole_file::read(path, MAX_FILE_SIZE),
        };
        let bytes = bytes.map_err(OperationError::io(format!("reading {}", path.display())))?;
        let (bytes, _) = bytes.ok_or_else(|| wrong("is larger than any lock".to_owned()))?;
        let lock = Lock::parse(&bytes).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { path: path.to_owned(), lock: Some(lock) })
    }

    /// The version that is locked, for who asks for a module and leaves open which one. `None` where no lock counts.
    pub fn version(
        &self,
        module: &CuePath,
        query: Option<&VersionQuery>,
        constraint: Option<&Constraint>,
    ) -> Result<Option<Version>> {
        let Some(lock) = &self.lock else { return Ok(None) };
        self.expect_module(module)?;
        let Some(version) = &lock.version else {
            return Err(self.refused(
                "lock-version",
                format!("has what `{module}` needs, and no version of it: `check` wrote it; {UPDATE}"),
            ));
        };
        let is_asked_for = constraint.is_none_or(|constraint| constraint.matches(version))
            && match query {
                Some(VersionQuery::Constraint(constraint)) => constraint.matches(version),
                Some(VersionQuery::Major(major)) => *major == version.major(),
                Some(VersionQuery::Latest) | None => true,
            };
        if is_asked_for {
            return Ok(Some(version.clone()));
        }
        Err(self.refused(
            "lock-version",
            format!("has version {version} of `{module}`, which is not what is asked for; {UPDATE}"),
        ))
    }

    /// Refuses the lock of another module.
    pub fn expect_module(&self, module: &CuePath) -> Result<()> {
        match &self.lock {
            Some(lock) if !published::same_module(&lock.module, module) => Err(self.refused(
                "lock-module",
                format!(
                    "is the lock of `{}`, not of `{module}`; name another file with `--lock`",
                    lock.module
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses whatever is not as it is locked, each difference by name. Nothing counts as the same where there is no lock.
    pub fn verify(&self, found: &Lock) -> Result<()> {
        let Some(lock) = &self.lock else { return Ok(()) };
        self.expect_module(&found.module)?;
        let mut findings = Vec::new();
        for (module, digest) in &found.modules {
            match lock.modules.get(module) {
                Some(locked) if locked == digest => {}
                Some(locked) => findings.push(self.finding(
                    "lock-differs",
                    format!("`{module}` is locked as {locked}, and the registry has {digest}; somebody published other content by that name"),
                )),
                None => findings.push(
                    self.finding("lock-missing", format!("`{module}` ({digest}) is used and is not in it; {UPDATE}")),
                ),
            }
        }
        for (module, digest) in &lock.modules {
            if !found.modules.contains_key(module) {
                findings.push(self.finding(
                    "lock-unused",
                    format!("`{module}` ({digest}) is in it and is not used; {UPDATE}"),
                ));
            }
        }
        if findings.is_empty() { Ok(()) } else { Err(OperationError::Refused(findings)) }
    }

    /// Writes the file as a whole, where it is not so already; answers whether it was written. Blocks.
    pub fn write(&self, lock: &Lock) -> Result<bool> {
        if self.lock.as_ref() == Some(lock) {
            return Ok(false);
        }
        let writing = || OperationError::io(format!("writing {}", self.path.display()));
        let path = whole_file::followed(&self.path).map_err(writing())?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut temporary =
            tempfile::Builder::new().prefix(".ocimod-").tempfile_in(folder).map_err(writing())?;
        temporary.write_all(lock.to_text().as_bytes()).map_err(writing())?;
        give_name(temporary, &path)?;
        Ok(true)
    }

    fn refused(&self, rule: &'static str, message: String) -> OperationError {
        OperationError::refused(self.finding(rule, message))
    }

    fn finding(&self, rule: &'static str, message: String) -> Finding {
        Finding { file: Some(self.path.display().to_string()), line: None, rule, message }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn lock(modules: &[(&str, char)]) -> Lock {
        let entry = |(module, hex): &(&str, char)| {
            let digest = format!("sha256:{}", hex.to_string().repeat(64));
            (module.parse().unwrap(), digest.parse().unwrap())
        };
        let app = modules.iter().find_map(|(module, _)| module.strip_prefix("example.com/app@v"));
        Lock {
            module: "example.com/app".parse().unwrap(),
            version: app.map(|version| Version::parse(version).unwrap()),
            modules: modules.iter().map(entry).collect(),
        }
    }

    fn file(lock: Lock) -> LockFile {
        LockFile { path: "x.lock".into(), lock: Some(lock) }
    }

    fn rules(outcome: Result<()>) -> Vec<(&'static str, String)> {
        match outcome {
            Ok(()) => Vec::new(),
            Err(OperationError::Refused(findings)) => {
                findings.into_iter().map(|finding| (finding.rule, finding.message)).collect()
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_lock_is_written_sorted_and_read_back() {
        let lock = lock(&[
            ("example.com/b@v1.10.0", 'b'),
            ("example.com/app@v1.0.0", 'a'),
            ("example.com/b@v1.9.0", 'c'),
        ]);
        let text = lock.to_text();
        insta::assert_snapshot!(text, @r#"
        {
          "version": 1,
          "module": "example.com/app@v1.0.0",
          "modules": [
            {
              "module": "example.com/app@v1.0.0",
              "digest": "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            },
            {
              "module": "example.com/b@v1.9.0",
              "digest": "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
            },
            {
              "module": "example.com/b@v1.10.0",
              "digest": "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
            }
          ]
        }
        "#);
        assert_eq!(Lock::parse(text.as_bytes()).unwrap(), lock);
        let dependencies = lock.of_dependencies();
        assert_eq!((dependencies.modules.len(), &dependencies.version), (2, &None));
        assert_eq!(Lock::parse(dependencies.to_text().as_bytes()).unwrap(), dependencies);
    }

    #[test]
    fn what_is_no_lock_is_refused() {
        let good = lock(&[("example.com/app@v1.0.0", 'a')]).to_text();
        for (from, to) in [
            ("\"version\": 1,", ""),
            ("\"version\": 1", "\"version\": \"1\""),
            ("\"version\": 1", "\"version\": -1"),
            ("example.com/app@", "example.com/../app@"),
            ("\"example.com/app@v1.0.0\"", "\"\""),
            ("\"example.com/app@v1.0.0\"", "\"example.com/app@v1.1.0\""),
            ("@v1.0.0", "@v1"),
            ("sha256:a", "sha256:A"),
            ("sha256:", "md5:"),
            ("\"digest\"", "\"signature\": 1, \"digest\""),
            ("\"modules\"", "\"more\": 1, \"modules\""),
            ("{", "[{"),
            ("}\n", "} x"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            assert!(matches!(Lock::parse(bad.as_bytes()), Err(LockError::Malformed(_))), "{bad}");
        }
        let entry =
            format!("{{\"module\": \"example.com/app@v1.0.0\", \"digest\": \"sha256:{}\"}}", "b".repeat(64));
        let twice = good.replacen('[', &format!("[{entry},"), 1);
        assert!(Lock::parse(twice.as_bytes()).unwrap_err().to_string().contains("is in it twice"));
        let newer = good.replacen("\"version\": 1", "\"version\": 2, \"new\": []", 1);
        assert_eq!(Lock::parse(newer.as_bytes()), Err(LockError::Format(2)));
        for text in ["", "{}", "null", "[]", "\u{0}", &"[".repeat(100_000)] {
            assert!(Lock::parse(text.as_bytes()).is_err());
        }
    }

    #[test]
    fn every_difference_is_named() {
        let locked = file(lock(&[("example.com/app@v1.0.0", 'a'), ("example.com/b@v1.0.0", 'b')]));
        let same = lock(&[("example.com/app@v1.0.0", 'a'), ("example.com/b@v1.0.0", 'b')]);
        assert_eq!(rules(locked.verify(&same)), []);
        let other = lock(&[("example.com/app@v1.0.0", 'c'), ("example.com/c@v1.0.0", 'b')]);
        let found = rules(locked.verify(&other));
        let names: Vec<_> = found.iter().map(|(rule, _)| *rule).collect();
        assert_eq!(names, ["lock-differs", "lock-missing", "lock-unused"]);
        assert!(found[0].1.contains("`example.com/app@v1.0.0` is locked as sha256:aaa"), "{}", found[0].1);
        assert!(found[0].1.contains("the registry has sha256:ccc"), "{}", found[0].1);
        assert!(
            found[1].1.contains("`example.com/c@v1.0.0`") && found[2].1.contains("`example.com/b@v1.0.0`")
        );
        let another = Lock { module: "example.com/other".parse().unwrap(), ..same };
        assert_eq!(rules(locked.verify(&another))[0].0, "lock-module");
    }

    #[test]
    fn the_locked_version_is_taken_where_it_will_do() {
        let locked = file(lock(&[("example.com/app@v1.2.0", 'a')]));
        let app: CuePath = "example.com/app".parse().unwrap();
        let constraint = |text: &str| text.parse::<Constraint>().unwrap();
        let version = |query: Option<&VersionQuery>| locked.version(&app, query, None);
        let expected = Some(Version::new(1, 2, 0));
        for query in [None, Some(VersionQuery::Latest), Some(VersionQuery::Major(1))] {
            assert_eq!(version(query.as_ref()).unwrap(), expected);
        }
        assert_eq!(version(Some(&VersionQuery::Constraint(constraint("~> 1.1")))).unwrap(), expected);
        assert!(version(Some(&VersionQuery::Constraint(constraint("1.3.0")))).is_err());
        assert!(version(Some(&VersionQuery::Major(2))).is_err());
        assert!(locked.version(&app, None, Some(&constraint("> 2"))).is_err());
        assert!(locked.version(&"example.com/b".parse().unwrap(), None, None).is_err());
        let dependencies = file(lock(&[("example.com/b@v1.0.0", 'b')]));
        assert!(dependencies.version(&app, None, None).is_err());
        let none = LockFile { path: "x".into(), lock: None };
        assert_eq!(none.version(&app, None, None).unwrap(), None);
    }
}
