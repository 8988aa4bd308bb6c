//! Which files of a folder belong to the module.
//!
//! First the folder is read into memory as it is (names only), rules of ignore files applied; then links are resolved in that
//! picture. So a link can only lead to what is packed anyway: one to an ignored file would publish what the author left out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs::{self, FileType, Metadata};
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::ModuleKind;
use super::check::{CheckError, MAX_ENTRIES, MAX_NAME_LENGTH};
use super::names::{LOCAL_MODULE_FILE, fold};
use super::pack::PackError;
use super::tree::{Entry, Source};

/// Folders of version control systems; `.git` may be a file too (in worktrees and submodules).
const VERSION_CONTROL: [&str; 6] = [".bzr", ".git", ".hg", ".jj", ".svn", "CVS"];
/// Those that `cue mod publish` knows.
const VERSION_CONTROL_OF_CUE: [&str; 4] = [".bzr", ".git", ".hg", ".svn"];
/// Files with rules in the syntax of git; in one folder the later wins over the earlier.
const IGNORE_FILES: [&str; 3] = [".gitignore", ".terraformignore", ".ocimodignore"];

/// All ignore files of a module together. Rules are compiled, which takes some thousand times their size; the longest lists that
/// anybody shares have some ten kilobytes.
const MAX_RULES_SIZE: u64 = 256 << 10;

/// Files and folders that are looked at; more than may be in a zip, since some are left out in the end (in nested modules).
const MAX_ITEMS: usize = 10 * MAX_ENTRIES;

/// The files of `dir` that belong to a module of `kind`, in any order, and warnings about what was left out.
pub(super) fn list_folder(
    dir: &Path,
    kind: ModuleKind,
    git_listed: Option<Vec<PathBuf>>,
) -> Result<(Vec<Entry>, Vec<String>), PackError> {
    let root =
        fs::canonicalize(dir).map_err(|source| PackError::Unreadable { path: dir.to_owned(), source })?;
    let listed = git_listed.map(|paths| Listed::new(paths, &root)).transpose()?;
    let mut picture = Picture {
        root,
        kind,
        listed,
        rules: Vec::new(),
        rules_size: 0,
        folders: BTreeMap::new(),
        items: 0,
        warnings: Vec::new(),
    };
    if kind == ModuleKind::OpenTofu {
        picture.read_rules_above()?;
    }
    picture.read_folder(String::new())?;
    let mut entries =
        Placement { picture: &picture, entries: Vec::new(), open: Vec::new(), placed: 0 }.place_all()?;
    let Picture { listed, mut warnings, .. } = picture;
    if kind == ModuleKind::Cue {
        let listed = listed.iter().flat_map(|listed| &listed.paths).map(String::as_str);
        leave_out_nested_modules(&mut entries, listed, &mut warnings);
    }
    Ok((entries, warnings))
}

/// What git knows: paths relative to the root with `/`, and the folders that hold them.
struct Listed {
    paths: HashSet<String>,
    folders: HashSet<String>,
}

impl Listed {
    fn new(paths: Vec<PathBuf>, root: &Path) -> Result<Self, PackError> {
        let mut listed = Self { paths: HashSet::new(), folders: HashSet::new() };
        for path in paths {
            let full = root.join(&path);
            fs::symlink_metadata(&full).map_err(|source| PackError::Unreadable { path: full, source })?;
            let name = slashed(&path).ok_or_else(|| not_utf8(&path))?;
            let above = name.match_indices('/').map(|(end, _)| name[..end].to_owned());
            listed.folders.extend(above.collect::<Vec<_>>());
            listed.paths.insert(name);
        }
        Ok(listed)
    }
}

/// The folder as it is, without what is left out.
struct Picture {
    /// Canonical, so that where a link leads can be compared with it.
    root: PathBuf,
    kind: ModuleKind,
    listed: Option<Listed>,
    /// The ignore rules that hold where the walk is, the nearest last.
    rules: Vec<Gitignore>,
    /// Bytes of the ignore files that were read.
    rules_size: u64,
    /// By the name of the folder (the root is empty): what is in it.
    folders: BTreeMap<String, Vec<(String, Node)>>,
    items: usize,
    warnings: Vec<String>,
}

enum Node {
    File { size: u64, executable: bool },
    Folder,
    Link,
}

impl Picture {
    /// In a git repository, the rules from its root down to the module's folder hold too; elsewhere nothing above does, so that
    /// a file in somebody's home folder decides nothing.
    fn read_rules_above(&mut self) -> Result<(), PackError> {
        let above: Vec<PathBuf> = self.root.ancestors().skip(1).map(Path::to_owned).collect();
        let is_repository = |folder: &Path| folder.join(".git").symlink_metadata().is_ok();
        if is_repository(&self.root) {
            return Ok(());
        }
        let Some(repository) = above.iter().position(|folder| is_repository(folder)) else { return Ok(()) };
        above[..=repository].iter().rev().try_for_each(|folder| self.read_rules(folder))
    }

    fn read_rules(&mut self, folder: &Path) -> Result<(), PackError> {
        let mut builder = GitignoreBuilder::new(folder);
        for path in IGNORE_FILES.map(|name| folder.join(name)).into_iter().filter(|path| path.is_file()) {
            let size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            self.rules_size = self.rules_size.saturating_add(size);
            if self.rules_size > MAX_RULES_SIZE {
                return Err(PackError::TooManyRules { path });
            }
            match builder.add(&path) {
                Some(source) if source.is_io() => {
                    return Err(PackError::IgnoreFile { path, source: Box::new(source) });
                }
                // As git does, but aloud: the rules that can be read hold.
                Some(error) => self.warnings.push(format!("a rule is passed over: {error}")),
                None => {}
            }
        }
        let source_error =
            |source| PackError::IgnoreFile { path: folder.to_owned(), source: Box::new(source) };
        self.rules.push(builder.build().map_err(source_error)?);
        Ok(())
    }

    fn read_folder(&mut self, folder: String) -> Result<(), PackError> {
        let path = self.root.join(&folder);
        if self.kind == ModuleKind::OpenTofu {
            self.read_rules(&path)?;
        }
        let unreadable = |source| PackError::Unreadable { path: path.clone(), source };
        let mut found: Vec<(OsString, FileType)> = fs::read_dir(&path)
            .and_then(|items| {
                items.map(|item| item.and_then(|item| Ok((item.file_name(), item.file_type()?)))).collect()
            })
            .map_err(unreadable)?;
        found.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let mut nodes = Vec::new();
        for (name, file_type) in found {
            let path = path.join(&name);
            let full_name = joined(&folder, &name.to_string_lossy());
            if self.is_ignored(&path, file_type) || !self.is_listed(&full_name, file_type) {
                continue;
            }
            let Ok(name) = name.into_string() else {
                return Err(CheckError::NameNotUtf8 { name: full_name }.into());
            };
            if full_name.len() > MAX_NAME_LENGTH {
                return Err(CheckError::NameTooLong { name: full_name }.into());
            }
            let belongs = match self.kind {
                ModuleKind::OpenTofu => self.belongs_to_opentofu(&name, &full_name, file_type)?,
                ModuleKind::Cue => self.belongs_to_cue(&name, &full_name, file_type),
            };
            if !belongs {
                continue;
            }
            self.items += 1;
            if self.items > MAX_ITEMS {
                return Err(CheckError::TooManyEntries { entries: self.items as u64 }.into());
            }
            if file_type.is_dir() {
                nodes.push((name, Node::Folder));
                self.read_folder(full_name)?;
            } else if file_type.is_symlink() {
                nodes.push((name, Node::Link));
            } else {
                let metadata = path.symlink_metadata();
                let metadata = metadata.map_err(|source| PackError::Unreadable { path, source })?;
                nodes.push((name, Node::File { size: metadata.len(), executable: is_executable(&metadata) }));
            }
        }
        if self.kind == ModuleKind::OpenTofu {
            self.rules.pop();
        }
        self.folders.insert(folder, nodes);
        Ok(())
    }

    /// What the nearest rule that fits says. A folder that is ignored is not entered, so nothing in it can be taken back.
    fn is_ignored(&self, path: &Path, file_type: FileType) -> bool {
        let mut verdicts = self.rules.iter().rev().map(|rules| rules.matched(path, file_type.is_dir()));
        verdicts.find(|verdict| !verdict.is_none()).is_some_and(|verdict| verdict.is_ignore())
    }

    fn is_listed(&self, full_name: &str, file_type: FileType) -> bool {
        self.listed.as_ref().is_none_or(|listed| {
            if file_type.is_dir() {
                listed.folders.contains(full_name)
            } else {
                listed.paths.contains(full_name)
            }
        })
    }

    fn belongs_to_opentofu(
        &mut self,
        name: &str,
        full_name: &str,
        file_type: FileType,
    ) -> Result<bool, PackError> {
        if name == ".git" || (VERSION_CONTROL.contains(&name) && file_type.is_dir()) {
            return Ok(false);
        }
        if name == ".terraform" && !file_type.is_file() {
            return Ok(false);
        }
        if name.contains(".tfstate") {
            self.warn(full_name, "a state may hold secrets");
            return Ok(false);
        }
        if file_type.is_dir() || file_type.is_file() || file_type.is_symlink() {
            return Ok(true);
        }
        Err(CheckError::SpecialFile { name: full_name.to_owned() }.into())
    }

    /// As `cue mod publish --json` lists them (v0.17.1).
    fn belongs_to_cue(&mut self, name: &str, full_name: &str, file_type: FileType) -> bool {
        // The file of a work tree or a submodule, which leads to a folder of this machine.
        if name == ".git" && self.listed.is_none() {
            return false;
        }
        if file_type.is_dir() {
            let is_version_control = VERSION_CONTROL_OF_CUE.contains(&name) && self.listed.is_none();
            return full_name != "cue.mod/vendor" && !is_version_control;
        }
        if full_name == LOCAL_MODULE_FILE {
            self.warn(full_name, "it is for this machine only");
        } else if !file_type.is_file() {
            self.warn(full_name, "it is no ordinary file");
        }
        file_type.is_file() && full_name != LOCAL_MODULE_FILE && full_name != ".hg_archival.txt"
    }

    fn warn(&mut self, full_name: &str, reason: &str) {
        self.warnings.push(format!("{full_name:?} is left out: {reason}"));
    }
}

/// Puts the files of the picture where they will be in the zip: those behind a link stand under the link's name too.
struct Placement<'a> {
    picture: &'a Picture,
    entries: Vec<Entry>,
    /// The folders that the walk is in, by their own names: to come to one of them again is a circle.
    open: Vec<&'a str>,
    /// Folders and files placed: links may multiply them, so they are counted.
    placed: usize,
}

impl Placement<'_> {
    fn place_all(mut self) -> Result<Vec<Entry>, PackError> {
        self.place_folder("", String::new())?;
        Ok(self.entries)
    }

    /// `folder` is where the files are, `name` where they will be.
    fn place_folder(&mut self, folder: &str, name: String) -> Result<(), PackError> {
        let Some((folder, nodes)) = self.picture.folders.get_key_value(folder) else { return Ok(()) };
        if self.open.contains(&folder.as_str()) {
            return Err(PackError::LinkCircle { name });
        }
        self.count(&name)?;
        self.open.push(folder);
        for (item, node) in nodes {
            let (real, name) = (joined(folder, item), joined(&name, item));
            match node {
                Node::File { size, executable } => self.place_file(&real, name, *size, *executable)?,
                Node::Folder => self.place_folder(&real, name)?,
                Node::Link => self.place_link(&real, name)?,
            }
        }
        self.open.pop();
        Ok(())
    }

    fn place_link(&mut self, real: &str, name: String) -> Result<(), PackError> {
        let target = match fs::canonicalize(self.picture.root.join(real)) {
            Ok(target) => target,
            Err(source) => return Err(PackError::LinkBroken { name, source }),
        };
        let Ok(inside) = target.strip_prefix(&self.picture.root) else {
            return Err(PackError::LinkLeavesFolder { name });
        };
        let target = slashed(inside).ok_or_else(|| not_utf8(inside))?;
        if self.picture.folders.contains_key(&target) {
            return self.place_folder(&target, name);
        }
        let (folder, item) = target.rsplit_once('/').unwrap_or(("", &target));
        let nodes = self.picture.folders.get(folder).map(Vec::as_slice).unwrap_or_default();
        match nodes.iter().find(|(other, _)| other == item) {
            Some((_, Node::File { size, executable })) => self.place_file(&target, name, *size, *executable),
            _ => Err(PackError::LinkToLeftOut { name, target }),
        }
    }

    fn place_file(&mut self, real: &str, name: String, size: u64, executable: bool) -> Result<(), PackError> {
        self.count(&name)?;
        let source = Source::File(self.picture.root.join(real));
        self.entries.push(Entry { name, executable, size, source });
        Ok(())
    }

    /// Keeps links from multiplying folders without end, in number and in depth.
    fn count(&mut self, name: &str) -> Result<(), PackError> {
        self.placed += 1;
        if name.len() > MAX_NAME_LENGTH {
            return Err(CheckError::NameTooLong { name: name.to_owned() }.into());
        }
        if self.placed > 2 * MAX_ENTRIES || self.entries.len() > MAX_ENTRIES {
            return Err(CheckError::TooManyEntries { entries: self.placed as u64 }.into());
        }
        Ok(())
    }
}

/// A folder below the root with a `cue.mod` is a module of its own.
/// Git may list a `cue.mod` that is not taken (a link, say), and `cue` goes by that too.
fn leave_out_nested_modules<'a>(
    entries: &mut Vec<Entry>,
    listed: impl Iterator<Item = &'a str>,
    warnings: &mut Vec<String>,
) {
    let mut modules: BTreeSet<String> = listed.filter_map(nested_module).collect();
    modules.extend(entries.iter().filter_map(|entry| nested_module(&entry.name)));
    warnings
        .extend(modules.iter().map(|module| format!("{module:?} is left out: it is a module of its own")));
    entries.retain(|entry| {
        let mut above = entry.name.match_indices('/').map(|(end, _)| &entry.name[..=end]);
        !above.any(|folder| modules.contains(folder))
    });
}

/// The folder below the root, with its `/`, whose module the file is a part of by its name alone.
fn nested_module(name: &str) -> Option<String> {
    let mut start = 0;
    let mut module = None;
    for component in name.split('/') {
        if fold(component) == "cue.mod" {
            module = Some(&name[..start]);
        }
        start += component.len() + 1;
    }
    module.filter(|module| !module.is_empty()).map(str::to_owned)
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// A relative path with `/` between its components; `None` where one is not UTF-8.
fn slashed(path: &Path) -> Option<String> {
    let components: Option<Vec<&str>> =
        path.components().map(|component| component.as_os_str().to_str()).collect();
    Some(components?.join("/"))
}

fn not_utf8(path: &Path) -> PackError {
    CheckError::NameNotUtf8 { name: path.to_string_lossy().into_owned() }.into()
}

#[cfg(unix)]
fn is_executable(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_metadata: &Metadata) -> bool {
    false
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::archive::Tree;

    /// A folder with these files, each holding its own name; a name that ends in `/` is a folder.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            add(&folder, name, name);
        }
        folder
    }

    fn add(folder: &tempfile::TempDir, name: &str, content: &str) {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if name.ends_with('/') {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::write(path, content).unwrap();
        }
    }

    fn link(folder: &tempfile::TempDir, name: &str, target: &str) {
        fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
        symlink(target, folder.path().join(name)).unwrap();
    }

    fn names(tree: &Tree) -> Vec<&str> {
        tree.entries().iter().map(|entry| entry.name.as_str()).collect()
    }

    fn tofu(folder: &Path) -> Result<Tree, PackError> {
        Tree::from_folder(folder, ModuleKind::OpenTofu, None)
    }

    #[track_caller]
    fn assert_refused(folder: &tempfile::TempDir, kind: ModuleKind, rule: &str, name: &str) {
        let refusal = Tree::from_folder(folder.path(), kind, None).unwrap_err();
        assert_eq!((refusal.rule(), refusal.entry()), (rule, Some(name)), "{refusal}");
    }

    #[test]
    fn an_opentofu_module_is_all_but_version_control_working_files_and_state() {
        let folder = folder(&[
            "main.tf",
            ".hidden/x",
            ".terraform.lock.hcl",
            ".terraform/modules/x",
            "examples/a/.terraform/x",
            "examples/a/main.tf",
            "README.md",
            ".git/config",
            "sub/.git",
            "sub/.hg/x",
            "sub/x",
            "CVS/x",
            "terraform.tfstate",
            "a/b.tfstate.backup",
            "terraform.tfstate.d/dev/terraform.tfstate",
            "empty/",
        ]);
        let tree = tofu(folder.path()).unwrap();
        let expected =
            [".hidden/x", ".terraform.lock.hcl", "README.md", "examples/a/main.tf", "main.tf", "sub/x"];
        assert_eq!(names(&tree), expected);
        assert_eq!(tree.warnings().len(), 3, "{:?}", tree.warnings());
        assert!(tree.warnings()[0].contains("a/b.tfstate.backup"));
    }

    #[test]
    fn ignore_files_hold_without_git_and_the_nearest_rule_wins() {
        let folder = folder(&[
            "main.tf",
            "a.log",
            "keep.log",
            "sub/a.log",
            "sub/b.log",
            "build/x",
            "docs/x",
            "secret",
        ]);
        add(&folder, ".gitignore", "*.log\n!keep.log\n/build/\nsecret\n");
        add(&folder, ".terraformignore", "docs/\n");
        add(&folder, "sub/.gitignore", "!b.log\n");
        add(&folder, ".ocimodignore", "!secret\n");
        let tree = tofu(folder.path()).unwrap();
        let expected = [
            ".gitignore",
            ".ocimodignore",
            ".terraformignore",
            "keep.log",
            "main.tf",
            "secret",
            "sub/.gitignore",
            "sub/b.log",
        ];
        assert_eq!(names(&tree), expected);
        assert!(tree.warnings().is_empty());
    }

    #[test]
    fn rules_above_the_module_hold_within_its_repository_only() {
        let folder = folder(&[
            "repository/modules/vpc/main.tf",
            "repository/modules/vpc/a.log",
            "repository/modules/vpc/x",
        ]);
        add(&folder, ".gitignore", "x\n");
        add(&folder, "repository/.gitignore", "*.log\n/modules/vpc/none\nvpc\n");
        let module = folder.path().join("repository/modules/vpc");
        assert_eq!(names(&tofu(&module).unwrap()), ["a.log", "main.tf", "x"]);
        add(&folder, "repository/.git/HEAD", "");
        assert_eq!(names(&tofu(&module).unwrap()), ["main.tf", "x"]);
        assert_eq!(names(&tofu(&folder.path().join("repository")).unwrap()), [".gitignore"]);
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_named() {
        let folder = folder(&["main.tf", "a.log"]);
        add(&folder, ".gitignore", "a{\n*.log\n");
        let tree = tofu(folder.path()).unwrap();
        assert_eq!(names(&tree), [".gitignore", "main.tf"]);
        assert_eq!(tree.warnings().len(), 1);
    }

    #[test]
    fn any_executable_bit_makes_an_executable() {
        let folder = folder(&["main.tf", "group", "owner"]);
        for (name, mode) in [("main.tf", 0o600), ("group", 0o610), ("owner", 0o700)] {
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let tree = tofu(folder.path()).unwrap();
        let executable: Vec<bool> = tree.entries().iter().map(|entry| entry.executable).collect();
        assert_eq!(executable, [true, false, true]);
    }

    #[test]
    fn a_link_within_the_folder_is_packed_as_what_it_points_to() {
        let folder = folder(&["main.tf", "shared/a.tf", "shared/deep/b.tf"]);
        link(&folder, "modules/x/shared", "../../shared");
        link(&folder, "modules/x/a.tf", "../../shared/a.tf");
        link(&folder, "modules/x/chain.tf", "a.tf");
        link(&folder, "through", "modules/x/shared/deep");
        link(&folder, "absolute.tf", folder.path().join("main.tf").to_str().unwrap());
        let tree = tofu(folder.path()).unwrap();
        let expected = [
            "absolute.tf",
            "main.tf",
            "modules/x/a.tf",
            "modules/x/chain.tf",
            "modules/x/shared/a.tf",
            "modules/x/shared/deep/b.tf",
            "shared/a.tf",
            "shared/deep/b.tf",
            "through/b.tf",
        ];
        assert_eq!(names(&tree), expected);
        assert_eq!(tree.read("modules/x/chain.tf", 100).unwrap().unwrap(), b"shared/a.tf");
        assert_eq!(tree.read("through/b.tf", 100).unwrap().unwrap(), b"shared/deep/b.tf");
    }

    #[test]
    fn a_link_that_leads_out_nowhere_or_to_what_is_left_out_is_refused() {
        let outside = folder(&["secret"]);
        let secret = outside.path().join("secret");
        for (target, rule) in [
            (secret.to_str().unwrap(), "link-leaves-folder"),
            ("..", "link-leaves-folder"),
            ("../..", "link-leaves-folder"),
            ("absent", "link-broken"),
            ("sub/link", "link-broken"),
            (".git/config", "link-to-left-out"),
            (".terraform", "link-to-left-out"),
            (".terraform/x", "link-to-left-out"),
            ("ignored/x", "link-to-left-out"),
            ("terraform.tfstate", "link-to-left-out"),
        ] {
            let folder =
                folder(&["main.tf", ".git/config", ".terraform/x", "ignored/x", "terraform.tfstate"]);
            add(&folder, ".gitignore", "ignored\n");
            link(
                &folder,
                "sub/link",
                &if target.starts_with('/') { target.into() } else { format!("../{target}") },
            );
            assert_refused(&folder, ModuleKind::OpenTofu, rule, "sub/link");
        }
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let itself = folder(&["a/main.tf"]);
        link(&itself, "a/b", ".");
        assert_refused(&itself, ModuleKind::OpenTofu, "link-circle", "a/b");
        let root = folder(&["a/main.tf"]);
        link(&root, "a/b", "..");
        assert_refused(&root, ModuleKind::OpenTofu, "link-circle", "a/b");
        let mutual = folder(&["a/main.tf", "b/main.tf"]);
        link(&mutual, "a/to", "../b");
        link(&mutual, "b/to", "../a");
        assert_refused(&mutual, ModuleKind::OpenTofu, "link-circle", "a/to/to");
        let down = folder(&["a/b/main.tf"]);
        link(&down, "z", "a/b");
        link(&down, "a/b/up", "..");
        assert_refused(&down, ModuleKind::OpenTofu, "link-circle", "a/b/up");
    }

    #[test]
    fn links_that_multiply_folders_come_to_an_end() {
        let folder = folder(&["main.tf", "d00/x"]);
        for level in 1..30 {
            for link_name in ["a", "b"] {
                link(&folder, &format!("d{level:02}/{link_name}"), &format!("../d{:02}", level - 1));
            }
        }
        assert_eq!(tofu(folder.path()).unwrap_err().rule(), "too-many-entries");
        fs::remove_file(folder.path().join("d00/x")).unwrap();
        assert_eq!(tofu(folder.path()).unwrap_err().rule(), "too-many-entries");
    }

    #[test]
    fn names_and_kinds_that_no_zip_may_hold_are_refused() {
        let clash = folder(&["README", "readme"]);
        assert_refused(&clash, ModuleKind::OpenTofu, "case-clash", "readme");
        let nested = folder(&["main.tf", "a/cue.mod/module.cue"]);
        assert_refused(&nested, ModuleKind::OpenTofu, "nested-cue-mod", "a/cue.mod/module.cue");
        let backslash = folder(&["a\\b"]);
        assert_refused(&backslash, ModuleKind::OpenTofu, "backslash", "a\\b");
        let not_utf8 = folder(&["main.tf"]);
        fs::write(not_utf8.path().join(OsString::from_vec(b"a\xff".to_vec())), "").unwrap();
        assert_refused(&not_utf8, ModuleKind::OpenTofu, "name-not-utf8", "a\u{fffd}");
        let socket = folder(&["main.tf"]);
        let _listener = std::os::unix::net::UnixListener::bind(socket.path().join("socket")).unwrap();
        assert_refused(&socket, ModuleKind::OpenTofu, "special-file", "socket");
        assert_eq!(tofu(folder(&["empty/"]).path()).unwrap_err().rule(), "no-files");
        assert_eq!(tofu(Path::new("/nowhere/at/all")).unwrap_err().rule(), "unreadable");
    }

    #[test]
    fn folders_deeper_than_a_name_may_be_long_are_refused() {
        let folder = folder(&["main.tf"]);
        add(&folder, &format!("{}x", "a/".repeat(600)), "");
        assert_eq!(tofu(folder.path()).unwrap_err().rule(), "name-too-long");
    }

    const CUE_MODULE: [&str; 20] = [
        "cue.mod/module.cue",
        "cue.mod/local-module.cue",
        "cue.mod/vendor/x",
        "cue.mod/gen/x.cue",
        "x.cue",
        ".hidden/x",
        "_x/x",
        "vendor/x",
        ".gitignore",
        ".git/config",
        "a/.hg/x",
        "a/x.cue",
        "nested/cue.mod/module.cue",
        "nested/x.cue",
        "nested/deep/x.cue",
        "cue.mod/pkg/y/CUE.mod/x",
        "cue.mod/pkg/y/y.cue",
        ".hg_archival.txt",
        "a/.hg_archival.txt",
        "go/go.mod",
    ];

    #[test]
    fn a_cue_module_is_what_cue_would_publish() {
        let folder = folder(&CUE_MODULE);
        add(&folder, ".gitignore", "*.cue\n");
        link(&folder, "link.cue", "x.cue");
        let tree = Tree::from_folder(folder.path(), ModuleKind::Cue, None).unwrap();
        let expected = [
            ".gitignore",
            ".hidden/x",
            "_x/x",
            "a/.hg_archival.txt",
            "a/x.cue",
            "cue.mod/gen/x.cue",
            "cue.mod/module.cue",
            "go/go.mod",
            "vendor/x",
            "x.cue",
        ];
        assert_eq!(names(&tree), expected);
        assert_eq!(tree.warnings().len(), 4, "{:?}", tree.warnings());
    }

    #[test]
    fn a_cue_module_of_a_git_repository_is_what_git_lists() {
        let folder = folder(&CUE_MODULE);
        add(&folder, "linked/x", "");
        let listed = |names: &[&str]| Some(names.iter().map(PathBuf::from).collect());
        link(&folder, "linked/cue.mod", "../x.cue");
        let taken = listed(&[
            "cue.mod/module.cue",
            "x.cue",
            "go/go.mod",
            "nested/x.cue",
            "nested/cue.mod/module.cue",
            "linked/x",
            "linked/cue.mod",
        ]);
        let tree = Tree::from_folder(folder.path(), ModuleKind::Cue, taken).unwrap();
        assert_eq!(names(&tree), ["cue.mod/module.cue", "go/go.mod", "x.cue"]);
        let absent = listed(&["cue.mod/module.cue", "absent.cue"]);
        assert_eq!(
            Tree::from_folder(folder.path(), ModuleKind::Cue, absent).unwrap_err().rule(),
            "unreadable"
        );
    }

    #[test]
    fn a_cue_module_keeps_the_rules_of_cue() {
        assert_refused(&folder(&["cue.mod/module.cue", "a'b"]), ModuleKind::Cue, "name-character", "a'b");
        let missing = Tree::from_folder(folder(&["x.cue"]).path(), ModuleKind::Cue, None).unwrap_err();
        assert_eq!(missing.rule(), "module-file-missing");
    }
}
