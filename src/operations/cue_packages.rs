//! Which packages a CUE module imports, all the way down, and which of the modules that it lists provide them.
//!
//! This is what `cue mod tidy --check` looks at, in the order in which it does: every file of the module, the packages that they import, and
//! the packages that those import in turn. A package is looked for in every module that could have it by its path, and has to be in exactly
//! one. What is said of a module that is a dependency is what holds for it there: its tools and tests, and files for which a tag has to be
//! set, take no part.
//!
//! `cue` looks at every file in the module's folder, also at those that are not published: what git does not track, and what a link leads
//! to. So does this, or the two would not say the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::NamedTempFile;

use crate::archive::Tree;
use crate::module::{FileHead, Import, ImportPath, ModuleFile, ModulePath};

use super::cue_module;
use super::download;
use super::error::{OperationError, Result};
use super::finding::Finding;
use super::prepare::{MODULE_FILE, Prepared};
use super::published::StoredModule;

/// The beginning of a file that is read for what it imports; nobody has that much in front of it.
const MAX_HEAD: u64 = 1024 * 1024;
/// What is kept of the files of all modules together, in bytes: the largest modules that there are take some hundred kilobytes.
const MAX_KEPT: usize = 64 << 20;
/// More packages than this are nobody's; every one is a name that some module's file says.
const MAX_PACKAGES: usize = 10_000;
/// Folders that hold no packages, and very many files.
const VERSION_CONTROL: [&str; 5] = [".bzr", ".git", ".hg", ".jj", ".svn"];
/// Where `cue` looks for packages that are in the module's folder and none of its own.
const LOCAL: [&str; 3] = ["cue.mod/gen", "cue.mod/usr", "cue.mod/pkg"];

/// A module that is listed, as it is stored.
pub(super) struct Listed {
    /// What it is.
    pub(super) stored: StoredModule,
    /// Its module file.
    pub(super) file: ModuleFile,
    /// The line of the entry.
    pub(super) line: usize,
}

/// What came of looking.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// What is wrong.
    pub(super) findings: Vec<Finding>,
    /// The listed modules that only tools and tests need.
    pub(super) main_only: BTreeSet<ModulePath>,
}

/// Looks at everything that a module imports.
pub(super) async fn check(
    main: Heads,
    file: &ModuleFile,
    listed: &BTreeMap<ModulePath, Listed>,
) -> Result<Imports> {
    let main = Arc::new(main);
    let mut loader = Loader { main, file, listed, fetched: BTreeMap::new(), room: Room::default() };
    let all = loader.load(View::Main).await?;
    let mut imports = Imports { findings: all.findings, main_only: BTreeSet::new() };
    for (path, entry) in listed.iter().filter(|(path, _)| !all.used.contains(*path)) {
        // Where something could not be found out, it may be what needs it.
        if !all.is_cut {
            imports.findings.push(Finding {
                file: Some(MODULE_FILE.to_owned()),
                line: Some(entry.line),
                rule: "dependency-unused",
                message: format!("`deps` has `{path}`, which nothing imports; run `cue mod tidy`"),
            });
        }
    }
    if imports.findings.is_empty() {
        imports.main_only = loader.main_only().await?;
    }
    Ok(imports)
}

/// The listed modules that only tools and tests of a published module need; none where it does not list what it imports. Every listed one
/// is fetched, and refused where it is not what it is called.
pub(super) async fn main_only(
    main: Heads,
    file: &ModuleFile,
    listed: &BTreeMap<ModulePath, Listed>,
) -> Result<BTreeSet<ModulePath>> {
    let mut loader =
        Loader { main: Arc::new(main), file, listed, fetched: BTreeMap::new(), room: Room::default() };
    for path in listed.keys() {
        loader.heads_of(path).await?;
    }
    let all = loader.load(View::Main).await?;
    if all.findings.is_empty() { loader.main_only().await } else { Ok(BTreeSet::new()) }
}

/// Who looks at the files of the main module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    /// Its own author.
    Main,
    /// Whoever has it as a dependency.
    Dependency,
}

/// The beginnings of a module's `.cue` files, by folder and name; an empty folder is the root.
pub(super) type Heads = BTreeMap<String, BTreeMap<String, FileHead>>;

/// What begins the files of a module: those of its whole folder, or those of a zip.
pub(super) async fn heads_of(prepared: &Prepared) -> Result<Heads> {
    let (source, tree, mut room) = (prepared.source.clone(), prepared.tree.clone(), Room::default());
    super::blocking(move || {
        if source.is_dir() { heads_of_folder(&source, &mut room) } else { heads_of_tree(&tree, &mut room) }
    })
    .await
}

/// How much may still be kept: what a stranger's files say of what they import has no end by itself.
#[derive(Clone, Debug)]
pub(super) struct Room {
    left: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { left: MAX_KEPT }
    }
}

impl Room {
    fn take(&mut self, name: &str, head: &FileHead) -> Result<()> {
        let imports = head.imports.iter().map(|import| import.path.len() + size_of::<Import>());
        let size = name.len() + size_of::<FileHead>() + imports.sum::<usize>();
        match self.left.checked_sub(size) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(OperationError::refused(Finding {
                file: Some(name.to_owned()),
                line: None,
                rule: "too-many-imports",
                message: format!("the files import more than fits into {MAX_KEPT} bytes"),
            })),
        }
    }
}

pub(super) fn heads_of_tree(tree: &Tree, room: &mut Room) -> Result<Heads> {
    let mut heads = Heads::new();
    for entry in tree.entries().iter().filter(|entry| is_cue(&entry.name)) {
        let reading = || OperationError::io(format!("reading {}", entry.name));
        let (folder, name) = entry.name.rsplit_once('/').unwrap_or(("", &entry.name));
        let head = head(tree.open(entry).map_err(reading())?).map_err(reading())?;
        room.take(&entry.name, &head)?;
        heads.entry(folder.to_owned()).or_default().insert(name.to_owned(), head);
    }
    Ok(heads)
}

/// The same of the files in a folder, those of modules within it aside. A link to a file is read, and a link to a folder is none.
fn heads_of_folder(top: &Path, room: &mut Room) -> Result<Heads> {
    let mut heads = Heads::new();
    let mut folders: Vec<(PathBuf, String)> = vec![(top.to_owned(), String::new())];
    while let Some((path, folder)) = folders.pop() {
        let reading = || OperationError::io(format!("reading {}", path.display()));
        let entries = fs::read_dir(&path).map_err(reading())?;
        let entries = entries.collect::<io::Result<Vec<_>>>().map_err(reading())?;
        if !folder.is_empty() && entries.iter().any(|entry| entry.file_name() == "cue.mod") {
            continue;
        }
        for entry in entries {
            // A name that is no UTF-8 is no import path either, and a push refuses it.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let reading = || OperationError::io(format!("reading {}", entry.path().display()));
            if entry.file_type().map_err(reading())?.is_dir() {
                if !VERSION_CONTROL.contains(&name.as_str()) {
                    folders.push((entry.path(), join(&folder, &name)));
                }
            } else if is_cue(&name) && fs::metadata(entry.path()).is_ok_and(|file| file.is_file()) {
                let head = head(fs::File::open(entry.path()).map_err(reading())?).map_err(reading())?;
                room.take(&name, &head)?;
                heads.entry(folder.clone()).or_default().insert(name, head);
            }
        }
    }
    Ok(heads)
}

fn is_cue(name: &str) -> bool {
    name.strip_suffix(".cue").is_some()
}

fn head(file: impl Read) -> io::Result<FileHead> {
    let mut bytes = Vec::new();
    file.take(MAX_HEAD).read_to_end(&mut bytes)?;
    Ok(FileHead::read(&String::from_utf8_lossy(&bytes)))
}

fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

/// Whether a file takes part where its module is a dependency.
fn is_for_dependents(name: &str, head: &FileHead) -> bool {
    !head.is_ignored
        && head.is_built_without_tags
        && !name.ends_with("_tool.cue")
        && !name.ends_with("_test.cue")
}

/// The files of the package `qualifier` in a folder, and those of the same package in the folders above it.
fn package_files<'a>(heads: &'a Heads, folder: &str, qualifier: &str) -> Vec<(String, &'a FileHead)> {
    let mut files = Vec::new();
    let mut folder = folder;
    loop {
        for (name, head) in heads.get(folder).into_iter().flatten() {
            // Of a file that cannot be read nobody knows to which package it belongs.
            if !is_hidden(name) && (head.has_nul || head.package.as_deref() == Some(qualifier)) {
                files.push((join(folder, name), head));
            }
        }
        // Without a file in the folder itself there is no package, and `cue.mod` has no packages above it.
        if files.is_empty() || folder.is_empty() || folder.starts_with("cue.mod/") {
            return files;
        }
        folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Where a package is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Provider {
    Main,
    /// In `cue.mod` of the main module.
    Local,
    Listed(ModulePath),
}

/// Where a package is and what it imports, or the rule that it breaks and in which way.
type Package = Result<(Provider, Vec<ImportPath>), (&'static str, String)>;

/// Who imports a package.
#[derive(Clone, Debug)]
struct Importer {
    /// The file of the main module at the beginning of the chain.
    file: String,
    line: usize,
    /// The package in between, where there is one.
    by: Option<String>,
}

struct Loader<'a> {
    main: Arc<Heads>,
    file: &'a ModuleFile,
    listed: &'a BTreeMap<ModulePath, Listed>,
    fetched: BTreeMap<ModulePath, Arc<Heads>>,
    room: Room,
}

#[derive(Default)]
struct Loaded {
    used: BTreeSet<ModulePath>,
    findings: Vec<Finding>,
    /// Whether a package was not found, whose own imports nobody knows.
    is_cut: bool,
}

impl Loader<'_> {
    async fn load(&mut self, view: View) -> Result<Loaded> {
        let mut loaded = Loaded::default();
        let mut known: BTreeSet<ImportPath> = BTreeSet::new();
        let mut waiting: VecDeque<(ImportPath, Importer)> = VecDeque::new();
        for (folder, files) in &*self.main {
            if folder.split('/').any(|part| part == "cue.mod" || (!part.is_empty() && is_hidden(part))) {
                continue;
            }
            for (name, head) in files.iter().filter(|(name, _)| !is_hidden(name)) {
                let file = join(folder, name);
                if head.has_nul {
                    loaded.is_cut = true;
                    loaded.findings.push(Finding {
                        file: Some(file),
                        line: None,
                        rule: "cue-file",
                        message: "the file has a NUL character, so `cue` does not read it; remove it"
                            .to_owned(),
                    });
                    continue;
                }
                if head.is_ignored || (view == View::Dependency && !is_for_dependents(name, head)) {
                    continue;
                }
                for import in &head.imports {
                    let importer = Importer { file: file.clone(), line: import.line, by: None };
                    if import.is_path {
                        waiting.push_back((ImportPath::parse(&import.path), importer));
                    } else {
                        loaded.is_cut = true;
                        let message =
                            format!("`{}` is no import path; write one in simple quotes", import.path);
                        let (file, line) = (Some(importer.file), Some(importer.line));
                        loaded.findings.push(Finding { file, line, rule: "import-path", message });
                    }
                }
            }
        }
        while let Some((path, importer)) = waiting.pop_front() {
            if path.is_standard() || !known.insert(path.clone()) {
                continue;
            }
            if known.len() > MAX_PACKAGES {
                let message = format!("the module leads to more than {MAX_PACKAGES} packages");
                return Err(OperationError::refused(Finding::general("too-many-packages", message)));
            }
            match self.package(&path, view).await? {
                Ok((provider, imports)) => {
                    if let Provider::Listed(module) = &provider {
                        loaded.used.insert(module.clone());
                    }
                    let by = Some(text_of(&path));
                    for import in imports {
                        let importer = Importer { by: by.clone(), ..importer.clone() };
                        waiting.push_back((self.in_major(import, &provider).await?, importer));
                    }
                }
                Err((rule, reason)) => {
                    loaded.is_cut = true;
                    loaded.findings.push(finding(&importer, rule, &path, &reason));
                }
            }
        }
        Ok(loaded)
    }

    /// The listed modules that nothing leads to where the main module is a dependency.
    async fn main_only(&mut self) -> Result<BTreeSet<ModulePath>> {
        let for_dependents = self.load(View::Dependency).await?.used;
        Ok(self.listed.keys().filter(|path| !for_dependents.contains(*path)).cloned().collect())
    }

    /// Where a package is, and what it imports.
    async fn package(&mut self, path: &ImportPath, view: View) -> Result<Package> {
        if !path.is_valid() {
            let reason = "is no import path; it has a major version at most, as in `example.com/net/vpc@v1`";
            return Ok(Err(("import-path", reason.to_owned())));
        }
        let mut found = self.providers(path, None).await?;
        let provider = match (found.pop(), found.len()) {
            (Some(provider), 0) => provider,
            (None, _) => {
                return Ok(Err((
                    "import-missing",
                    "is in no module that `deps` lists, nor in this one; run `cue mod tidy`".to_owned(),
                )));
            }
            (Some(last), _) => {
                let names: Vec<_> = found.iter().chain([&last]).map(|provider| self.name(provider)).collect();
                return Ok(Err(("import-ambiguous", format!("is in several places: {}", names.join(", ")))));
            }
        };
        match path.qualifier.as_str() {
            // No package can be named by it; the module is needed all the same.
            "" => return Ok(Ok((provider, Vec::new()))),
            "_" => {
                return Ok(Err(("import-path", "names the package `_`, which there cannot be".to_owned())));
            }
            _ => {}
        }
        let (mut imports, mut has_files) = (Vec::new(), false);
        for (heads, folder) in self.folders(&provider, path).await? {
            for (name, head) in package_files(&heads, &folder, &path.qualifier) {
                let unreadable = head.imports.iter().find(|import| !import.is_path);
                if head.has_nul || unreadable.is_some() {
                    let what = unreadable.map_or("a NUL character", |import| &import.path);
                    let message = format!("leads to the file `{name}`, which `cue` cannot read for `{what}`");
                    return Ok(Err(("cue-file", message)));
                }
                let takes_part = match (&provider, view) {
                    (Provider::Main, View::Main) => !head.is_ignored,
                    _ => is_for_dependents(&name, head),
                };
                if takes_part {
                    has_files = true;
                    imports.extend(head.imports.iter().map(|import| ImportPath::parse(&import.path)));
                }
            }
        }
        if has_files {
            Ok(Ok((provider, imports)))
        } else {
            let message = format!("leads to a folder without a file of the package `{}`", path.qualifier);
            Ok(Err(("import-package", message)))
        }
    }

    fn name(&self, provider: &Provider) -> String {
        match provider {
            Provider::Main => format!("`{}`", self.file.module),
            Provider::Local => "`cue.mod`".to_owned(),
            Provider::Listed(module) => format!("`{module}`"),
        }
    }

    /// The major version that a path without one means to a module: to the main one, or to a listed one.
    fn default_major(&self, base: &str, importer: Option<&ModulePath>) -> Option<u64> {
        let file = match importer {
            None => self.file,
            Some(module) => &self.listed.get(module)?.file,
        };
        if file.module.base().as_str() == base {
            return Some(file.module.major());
        }
        let mut majors = file.deps.iter().filter(|entry| entry.path.base().as_str() == base);
        if let Some(entry) = majors.clone().find(|entry| entry.default) {
            return Some(entry.path.major());
        }
        let first = majors.next()?.path.major();
        majors.all(|entry| entry.path.major() == first).then_some(first)
    }

    /// Every place that has `.cue` files where a package would be. Paths without a major version mean what `importer` says.
    async fn providers(&mut self, path: &ImportPath, importer: Option<&ModulePath>) -> Result<Vec<Provider>> {
        let mut found = Vec::new();
        if LOCAL.iter().any(|folder| self.main.contains_key(&join(folder, &path.path))) {
            found.push(Provider::Local);
        }
        for base in path.ancestors() {
            let major = match &path.version {
                Some(version) => version.strip_prefix('v').and_then(|digits| digits.parse().ok()),
                None => self.default_major(base, importer),
            };
            let Some(major) = major else { continue };
            let own = &self.file.module;
            let provider = if (own.base().as_str(), own.major()) == (base, major) {
                Provider::Main
            } else {
                let is_it = |module: &&ModulePath| (module.base().as_str(), module.major()) == (base, major);
                let Some(module) = self.listed.keys().find(is_it) else { continue };
                Provider::Listed(module.clone())
            };
            for (heads, folder) in self.folders(&provider, path).await? {
                if heads.contains_key(&folder) {
                    found.push(provider.clone());
                }
            }
        }
        Ok(found)
    }

    /// The files of a provider, and the folder that a package would be in.
    async fn folders(&mut self, provider: &Provider, path: &ImportPath) -> Result<Vec<(Arc<Heads>, String)>> {
        let below = |base: &ModulePath| {
            path.path
                .strip_prefix(base.base().as_str())
                .unwrap_or_default()
                .trim_start_matches('/')
                .to_owned()
        };
        Ok(match provider {
            Provider::Main => vec![(Arc::clone(&self.main), below(&self.file.module))],
            Provider::Local => {
                LOCAL.iter().map(|folder| (Arc::clone(&self.main), join(folder, &path.path))).collect()
            }
            Provider::Listed(module) => vec![(self.heads_of(module).await?, below(module))],
        })
    }

    async fn heads_of(&mut self, module: &ModulePath) -> Result<Arc<Heads>> {
        if let Some(heads) = self.fetched.get(module) {
            return Ok(Arc::clone(heads));
        }
        let Some(Listed { stored, .. }) = self.listed.get(module) else { return Ok(Arc::default()) };
        let zip: NamedTempFile = download::archive(&stored.place, &stored.artifact.archive).await?;
        let (name, module_path, layer) = (stored.name(), module.clone(), stored.module_file_bytes().await?);
        let mut room = self.room.clone();
        let heads = super::blocking(move || {
            let (tree, _) = cue_module::open(zip.path(), &module_path, layer.as_deref(), &name)?;
            let heads = heads_of_tree(&tree, &mut room)?;
            Ok((Arc::new(heads), room))
        });
        let (heads, room) = heads.await?;
        self.room = room;
        self.fetched.insert(module.clone(), Arc::clone(&heads));
        Ok(heads)
    }

    /// What an import means where it stands: a dependency's own file says which major version it means by a path without one.
    async fn in_major(&mut self, import: ImportPath, provider: &Provider) -> Result<ImportPath> {
        let Provider::Listed(module) = provider else { return Ok(import) };
        if import.version.is_some() || import.is_standard() || !import.is_valid() {
            return Ok(import);
        }
        let found = self.providers(&import, Some(module)).await?;
        Ok(match &found[..] {
            [Provider::Listed(found)] => import.at(found.major()),
            [Provider::Main] => import.at(self.file.module.major()),
            _ => import,
        })
    }
}

fn text_of(path: &ImportPath) -> String {
    let version = path.version.as_ref().map(|version| format!("@{version}")).unwrap_or_default();
    format!("{}{version}", path.path)
}

fn finding(importer: &Importer, rule: &'static str, path: &ImportPath, reason: &str) -> Finding {
    let path = text_of(path);
    let message = match &importer.by {
        None => format!("the import `{path}` {reason}"),
        Some(by) => format!("`{by}` imports `{path}`, which {reason}"),
    };
    Finding { file: Some(importer.file.clone()), line: Some(importer.line), rule, message }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn importing(paths: impl Iterator<Item = String>) -> FileHead {
        let lines: Vec<_> = paths.map(|path| format!("\t\"{path}\"\n")).collect();
        FileHead::read(&format!("package a\n\nimport (\n{})\n", lines.concat()))
    }

    #[tokio::test]
    async fn no_module_leads_to_packages_without_end() {
        let head = importing((0..=MAX_PACKAGES).map(|number| format!("x.example/p{number}")));
        let heads = Heads::from([(String::new(), BTreeMap::from([("a.cue".to_owned(), head)]))]);
        let text = "module: \"main.example/m@v1\"\nlanguage: version: \"v0.9.2\"\n";
        let file = ModuleFile::parse(text.as_bytes(), true).unwrap();
        let error = check(heads, &file, &BTreeMap::new()).await.unwrap_err().to_string();
        assert!(error.contains("[too-many-packages]"), "{error}");
    }

    #[test]
    fn what_is_kept_of_the_files_has_a_limit() {
        let mut room = Room::default();
        let long = importing(std::iter::once("x".repeat(MAX_KEPT / 4)));
        let taken = (0..10).take_while(|_| room.take("a.cue", &long).is_ok()).count();
        assert_eq!(taken, 3);
        let many = importing((0..1000).map(|_| "x".to_owned()));
        let mut room = Room::default();
        let taken = (0..MAX_KEPT).take_while(|_| room.take("a.cue", &many).is_ok()).count();
        assert!(taken * 1000 * size_of::<Import>() <= MAX_KEPT, "{taken}");
    }
}
