//! Reads a module's folder or zip and finds out what it is called: what `push`, `pack` and `check` have in common.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::archive::check::{MAX_LICENSE_SIZE, MAX_MODULE_FILE_SIZE};
use crate::archive::{ModuleKind, Tree};
use crate::artifact::DependencyLayer;
use crate::module::{
    Address, AddressAt, CuePath, Generated, Host, ModuleFile, ModulePath, ModuleVersion, SourceKind,
    TofuAddress, TofuModule, Version, VersionQuery, is_tofu_file,
};

use super::error::{OperationError, Result};
use super::finding::Finding;
use super::git::{self, GitState};
use super::routes::ModuleName;

/// Where the module file is, in a folder and in a zip.
pub const MODULE_FILE: &str = "cue.mod/module.cue";
/// A configuration file over this is refused: nobody writes such by hand, and it is read whole.
const MAX_TOFU_FILE: u64 = 4 * 1024 * 1024;
/// All of a module's configuration is in memory while it is read, so that has a limit too. The largest modules of the public
/// registries have some hundred kilobytes.
const MAX_TOFU_FILES: u64 = 32 * 1024 * 1024;

/// A module as it was read.
#[derive(Debug)]
pub struct Prepared {
    /// The folder or zip that it was read from, as it was given.
    pub source: PathBuf,
    /// The name of its folder, or of the zip without `.zip`.
    pub folder_name: String,
    /// Who can read it.
    pub kind: ModuleKind,
    /// Its files.
    pub tree: Tree,
    /// What its `.tf` files say; `None` for a CUE module.
    pub tofu: Option<TofuModule>,
    /// Its module file, where it has one.
    pub module_file: Option<ModuleFile>,
    /// What git knows of the folder.
    pub git: Option<GitState>,
    /// What a push would refuse.
    pub findings: Vec<Finding>,
    /// What deserves a word.
    pub warnings: Vec<String>,
}

/// Reads a folder or a zip. What is so wrong that nothing else can be looked at is [`OperationError::Refused`].
pub async fn read(source: &Path) -> Result<Prepared> {
    let metadata = tokio::fs::metadata(source)
        .await
        .map_err(OperationError::io(format!("reading {}", source.display())))?;
    let is_folder = metadata.is_dir();
    if !is_folder && !metadata.is_file() {
        return Err(OperationError::refused(Finding::general(
            "no-module",
            format!("{} is neither a folder nor a zip", source.display()),
        )));
    }
    let git = if is_folder { git::state(source).await } else { None };
    let tracked = if git.is_some() { tracked(source).await } else { None };
    let path = source.to_owned();
    let prepared = super::blocking(move || read_blocking(&path, is_folder, tracked)).await?;
    let mut prepared = Prepared { git, ..prepared };
    if prepared.git_decides() && !prepared.git.as_ref().is_some_and(|git| git.is_clean) {
        prepared.findings.push(Finding {
            file: Some(MODULE_FILE.to_owned()),
            line: None,
            rule: "source-not-clean",
            message: "the module says `source: kind: \"git\"`, so it can be pushed only from a git work tree without changes; commit \
                      or remove them"
                .to_owned(),
        });
    }
    Ok(prepared)
}

/// What git knows of the files of a folder.
struct Tracked {
    files: Vec<PathBuf>,
    /// The licence at the top of the work tree: `cue` packs it with a module in a folder below that has none.
    license: Option<PathBuf>,
}

async fn tracked(source: &Path) -> Option<Tracked> {
    let files = git::tracked_files(source).await?;
    let license = git::top_folder(source).await.map(|top| top.join("LICENSE"));
    // A link could lead to any file of this machine.
    let is_license = |file: &PathBuf| {
        std::fs::symlink_metadata(file).is_ok_and(|file| file.is_file() && file.len() <= MAX_LICENSE_SIZE)
    };
    Some(Tracked { files, license: license.filter(is_license) })
}

fn read_blocking(source: &Path, is_folder: bool, tracked: Option<Tracked>) -> Result<Prepared> {
    let (kind, tree) = if is_folder { read_folder(source, tracked)? } else { read_zip(source)? };
    let mut findings = Vec::new();
    let tofu = match kind {
        ModuleKind::OpenTofu => Some(read_tofu(&tree)?),
        ModuleKind::Cue => None,
    };
    let module_file = match tree.read(MODULE_FILE, MAX_MODULE_FILE_SIZE) {
        Ok(Some(bytes)) => match ModuleFile::parse(&bytes, true) {
            Ok(file) => Some(file),
            Err(error) => {
                findings.push(Finding {
                    file: Some(MODULE_FILE.to_owned()),
                    line: error.line(),
                    rule: "module-file",
                    message: error.to_string(),
                });
                None
            }
        },
        Ok(None) => None,
        Err(error) => return Err(OperationError::packing(error)),
    };
    if let Some(file) = module_file.as_ref().filter(|_| kind == ModuleKind::Cue) {
        findings.extend(unpublishable(file));
    }
    let mut warnings = tree.warnings().to_vec();
    if let Some(tofu) = &tofu {
        warnings.extend(tofu.warnings.iter().map(ToString::to_string));
        findings.extend(tofu.escapes.iter().map(|escape| Finding {
            file: Some(escape.file.clone()),
            line: Some(escape.line),
            rule: "source-leaves-module",
            message: format!(
                "the source `{}` leads out of the module's folder, so it would not be in the zip; move it inside, or push it as a \
                 module of its own and call it by its address",
                escape.path
            ),
        }));
    }
    Ok(Prepared {
        source: source.to_owned(),
        folder_name: folder_name(source),
        kind,
        tree,
        tofu,
        module_file,
        git: None,
        findings,
        warnings,
    })
}

/// What a module file may say, and not that of a module that is published.
fn unpublishable(file: &ModuleFile) -> Vec<Finding> {
    let finding = |line, message: String| Finding {
        file: Some(MODULE_FILE.to_owned()),
        line,
        rule: "module-file",
        message,
    };
    // From then on a module says who decides which files belong to it.
    let says_source = Version::parse("0.9.0-alpha.2").is_ok_and(|first| file.language_version >= first);
    let silent = (says_source && file.source_kind.is_none()).then(|| {
        let message = "the module file does not say which files belong to the module; run `cue mod edit --source self`, or `--source git`";
        finding(None, message.to_owned())
    });
    let replaced = file.deps.iter().filter(|entry| entry.is_replaced).map(|entry| {
        let message = format!(
            "`deps` replaces `{}`, which nobody else can do the same way; run `cue mod tidy`, which moves that to \
             cue.mod/local-module.cue",
            entry.path
        );
        finding(Some(entry.line), message)
    });
    silent.into_iter().chain(replaced).collect()
}

fn read_folder(source: &Path, tracked: Option<Tracked>) -> Result<(ModuleKind, Tree)> {
    let reading = || OperationError::io(format!("reading {}", source.display()));
    let names = std::fs::read_dir(source)
        .map_err(reading())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(reading())?;
    let kind = ModuleKind::of_names(&names);
    if kind == ModuleKind::Cue && !source.join(MODULE_FILE).is_file() {
        return Err(no_module(source));
    }
    let tracked = tracked.filter(|_| kind == ModuleKind::Cue && says_git(source));
    let (listed, license) = match tracked {
        Some(Tracked { files, license }) => (Some(files), license),
        None => (None, None),
    };
    let mut tree = Tree::from_folder(source, kind, listed).map_err(OperationError::packing)?;
    if let Some(license) = license.filter(|_| tree.get("LICENSE").is_none()) {
        let bytes =
            std::fs::read(&license).map_err(OperationError::io(format!("reading {}", license.display())))?;
        tree = tree.with_file("LICENSE", bytes);
    }
    Ok((kind, tree))
}

/// Whether the module file of a folder leaves it to git which files belong to the module.
fn says_git(source: &Path) -> bool {
    let is_git = |bytes: Vec<u8>| {
        ModuleFile::parse(&bytes, true).is_ok_and(|file| file.source_kind == Some(SourceKind::Git))
    };
    std::fs::read(source.join(MODULE_FILE)).is_ok_and(is_git)
}

fn read_zip(source: &Path) -> Result<(ModuleKind, Tree)> {
    let name = source.display().to_string();
    let open = |kind: Option<ModuleKind>| {
        Tree::from_zip(source, kind)
            .map_err(|error| OperationError::refused(Finding::of_check(&error, &name)))
    };
    let tree = open(None)?;
    let kind = ModuleKind::of_names(tree.entries().iter().map(|entry| &entry.name));
    if kind == ModuleKind::Cue && tree.get(MODULE_FILE).is_none() {
        return Err(no_module(source));
    }
    Ok((kind, open(Some(kind))?))
}

fn no_module(source: &Path) -> OperationError {
    OperationError::refused(Finding::general(
        "no-module",
        format!(
            "{} holds no module: neither `.tf` or `.tofu` files nor {MODULE_FILE} at its top",
            source.display()
        ),
    ))
}

/// What the `.tf` files of a tree say.
pub fn read_tofu(tree: &Tree) -> Result<TofuModule> {
    let mut files = BTreeMap::new();
    let mut left = MAX_TOFU_FILES;
    for entry in tree.entries().iter().filter(|entry| is_tofu_file(&entry.name)) {
        if entry.size > MAX_TOFU_FILE || entry.size > left {
            return Err(OperationError::refused(Finding {
                file: Some(entry.name.clone()),
                line: None,
                rule: "configuration-too-large",
                message: format!(
                    "a configuration file may have {MAX_TOFU_FILE} bytes, and all of a module's {MAX_TOFU_FILES}: they are read for the \
                     modules that they call"
                ),
            }));
        }
        left -= entry.size;
        let bytes = tree.read(&entry.name, MAX_TOFU_FILE).map_err(OperationError::packing)?;
        files.insert(entry.name.clone(), bytes.unwrap_or_default());
    }
    Ok(TofuModule::read(&files))
}

fn folder_name(source: &Path) -> String {
    // `.` and `..` have no name of their own.
    let whole = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.strip_suffix(".zip").map(str::to_owned).unwrap_or(name)
}

/// What the caller says about name and version.
#[derive(Clone, Debug, Default)]
pub struct Naming {
    /// ADDRESS or ADDRESS@VERSION.
    pub address: Option<AddressAt>,
    /// `--version`.
    pub version: Option<Version>,
    /// `--namespace`.
    pub namespace: Option<String>,
    /// `--host`.
    pub host: Option<Host>,
}

/// What a module is called.
#[derive(Clone, Debug)]
pub struct Named {
    /// The module.
    pub module: ModuleName,
    /// The host that users of the module write.
    pub host: Host,
    /// The version, where it was said or found.
    pub version: Option<Version>,
}

impl Named {
    /// The path with the major version, as the module file has it.
    pub fn module_path(&self, version: &Version) -> ModulePath {
        ModulePath::new(self.module.path().clone(), version.major())
    }
}

impl Prepared {
    /// Whether the module file leaves it to git which files belong to the module.
    fn git_decides(&self) -> bool {
        let file = self.module_file.as_ref();
        self.kind == ModuleKind::Cue
            && self.source.is_dir()
            && file.is_some_and(|file| file.source_kind == Some(SourceKind::Git))
    }

    /// The host in the module file, else the placeholder.
    pub fn stated_host(&self) -> Host {
        let stated = self.module_file.as_ref().filter(|_| self.kind == ModuleKind::OpenTofu);
        stated
            .and_then(|file| Host::parse(file.module.base().first_element()).ok())
            .unwrap_or_else(Host::internal)
    }

    /// Whether the module file is written anew at each push.
    pub fn is_module_file_ours(&self) -> bool {
        self.kind == ModuleKind::OpenTofu
            && self
                .module_file
                .as_ref()
                .is_none_or(|file| file.custom_ocimod().is_some_and(crate::module::Ocimod::is_generated))
    }

    /// The name and version of the module: as the caller says, else as the module file, the folder and git say.
    pub fn name(&self, naming: &Naming) -> Result<Named> {
        let named = match self.kind {
            ModuleKind::OpenTofu => self.tofu_name(naming)?,
            ModuleKind::Cue => self.cue_name(naming)?,
        };
        let version = self.version(naming, &named.module)?;
        Ok(Named { version, ..named })
    }

    fn tofu_name(&self, naming: &Naming) -> Result<Named> {
        let file_path = self.module_file.as_ref().map(|file| file.module.base());
        let file_address = file_path.and_then(TofuAddress::from_cue_path);
        let address = match &naming.address {
            Some(AddressAt { address: Address::Tofu(address), .. }) => address.clone(),
            Some(other) => return Err(self.wrong_address(other)),
            None => match &file_address {
                Some(address) => address.clone(),
                None => self.address_from_folder(naming)?,
            },
        };
        // A generated file says where the module was pushed to; only a hand-written one rules over the next push.
        let file_host = file_address.as_ref().and_then(TofuAddress::host).cloned();
        let written = address.host().cloned().filter(|_| naming.address.is_some());
        let host = written.or_else(|| naming.host.clone()).or(file_host).unwrap_or_else(Host::internal);
        if !host.as_str().contains('.') {
            return Err(OperationError::Usage {
                message: format!(
                    "`{host}` cannot be the host of a module: OpenTofu takes a name without a dot for a folder"
                ),
                hint: "give a name such as `modules.acme.example` with `--host`".to_owned(),
            });
        }
        let module = ModuleName::tofu(&address.with_host(host.clone()), &host).map_err(|error| {
            OperationError::refused(Finding::general("module-address", error.to_string()))
        })?;
        if let (Some(stated), false) = (file_path, self.is_module_file_ours())
            && stated != module.path()
        {
            return Err(Self::other_path(stated, &module));
        }
        Ok(Named { module, host, version: None })
    }

    fn cue_name(&self, naming: &Naming) -> Result<Named> {
        let Some(file) = &self.module_file else {
            return Err(OperationError::Refused(self.findings.clone()));
        };
        let module = ModuleName::Cue(file.module.base().clone());
        let asked = match &naming.address {
            None => None,
            Some(AddressAt { address: Address::Cue(path), .. }) => Some(path.clone()),
            Some(AddressAt { address: Address::Tofu(address), .. }) => {
                Some(address.cue_path(&Host::opentofu_default()).map_err(|_| self.wrong_address_text())?)
            }
            Some(other) => return Err(self.wrong_address(other)),
        };
        if asked.is_some_and(|asked| asked != *module.path()) {
            let asked = naming.address.as_ref().map(|asked| asked.address.to_string()).unwrap_or_default();
            return Err(OperationError::refused(Finding {
                file: Some(MODULE_FILE.to_owned()),
                line: None,
                rule: "module-path",
                message: format!("the module calls itself `{}`, not `{asked}`", file.module.base()),
            }));
        }
        let host = naming.host.clone().unwrap_or_else(Host::internal);
        Ok(Named { module, host, version: None })
    }

    fn other_path(stated: &CuePath, module: &ModuleName) -> OperationError {
        OperationError::refused(Finding {
            file: Some(MODULE_FILE.to_owned()),
            line: None,
            rule: "module-path",
            message: format!(
                "the module file, which was written by hand, calls the module `{stated}`, but it is pushed as `{}`; make them agree",
                module.path()
            ),
        })
    }

    fn wrong_address(&self, address: &AddressAt) -> OperationError {
        OperationError::Usage {
            message: format!(
                "`{}` cannot be the address of the module in {}",
                address.address,
                self.source.display()
            ),
            hint: self.example("1.0.0"),
        }
    }

    fn wrong_address_text(&self) -> OperationError {
        OperationError::Usage {
            message: format!("the address does not fit the module in {}", self.source.display()),
            hint: self.example("1.0.0"),
        }
    }

    /// `terraform-aws-vpc` is name `vpc`, system `aws`.
    fn address_from_folder(&self, naming: &Naming) -> Result<TofuAddress> {
        let parts = name_and_system(&self.folder_name);
        let (Some((name, system)), Some(namespace)) = (parts, &naming.namespace) else {
            let missing = match (parts, &naming.namespace) {
                (Some((name, system)), _) => format!("the namespace of the module `{name}` for `{system}`"),
                _ => "the module's address".to_owned(),
            };
            return Err(OperationError::Usage {
                message: format!("{missing} is not known"),
                hint: self.example("1.0.0"),
            });
        };
        TofuAddress::parse(&format!("{namespace}/{name}/{system}")).map_err(|error| OperationError::Usage {
            message: error.to_string(),
            hint: self.example("1.0.0"),
        })
    }

    /// The command to type, with what is known filled in.
    fn example(&self, version: &str) -> String {
        let address = match (&self.module_file, self.kind) {
            (Some(file), _) => file.module.base().to_string(),
            (None, _) => match name_and_system(&self.folder_name) {
                Some((name, system)) => format!("NAMESPACE/{name}/{system}"),
                None => "NAMESPACE/NAME/SYSTEM".to_owned(),
            },
        };
        format!("ocimod push {} {address}@{version}", self.source.display())
    }

    fn version(&self, naming: &Naming, module: &ModuleName) -> Result<Option<Version>> {
        let in_address = match naming.address.as_ref().and_then(|address| address.version.as_ref()) {
            Some(VersionQuery::Constraint(constraint)) => {
                Some(constraint.exact().ok_or_else(|| OperationError::Usage {
                    message: format!("`{constraint}` is not one version"),
                    hint: self.example("1.0.0"),
                })?)
            }
            Some(VersionQuery::Latest) => {
                return Err(OperationError::Usage {
                    message: "`latest` is not a version that can be pushed".to_owned(),
                    hint: self.example("1.0.0"),
                });
            }
            Some(VersionQuery::Major(_)) | None => None,
        };
        let major = match naming.address.as_ref().and_then(|address| address.version.as_ref()) {
            Some(VersionQuery::Major(major)) => Some(*major),
            _ => None,
        };
        let said = match (in_address, &naming.version) {
            (Some(one), Some(other)) if one != *other => {
                return Err(OperationError::Usage {
                    message: format!("the address says version `{one}` and `--version` says `{other}`"),
                    hint: "give one of them".to_owned(),
                });
            }
            (in_address, version) => in_address.or_else(|| version.clone()),
        };
        let version = match said {
            Some(version) => Some(version),
            None => self.version_from_git(module)?,
        };
        if let (Some(major), Some(version)) = (major, &version)
            && version.major() != major
        {
            return Err(OperationError::Usage {
                message: format!("the address says major version {major}, and the version is {version}"),
                hint: "make them agree".to_owned(),
            });
        }
        if let (Some(version), Some(file), false) = (&version, &self.module_file, self.is_module_file_ours())
            && version.major() != file.module.major()
        {
            return Err(OperationError::refused(Finding {
                file: Some(MODULE_FILE.to_owned()),
                line: None,
                rule: "module-path",
                message: format!(
                    "the module calls itself `{}`, so its version cannot be `{version}`",
                    file.module
                ),
            }));
        }
        Ok(version)
    }

    fn version_from_git(&self, module: &ModuleName) -> Result<Option<Version>> {
        let Some(git) = &self.git else { return Ok(None) };
        // The last part of an OpenTofu module's path is its system, of a CUE module's its name.
        let name = module.path().as_str().rsplit('/').nth(usize::from(self.kind == ModuleKind::OpenTofu));
        let found = git::tagged_versions(&git.tags, &[&self.folder_name, name.unwrap_or_default()]);
        match &found[..] {
            [] => Ok(None),
            [version] => Ok(Some(version.clone())),
            several => Err(OperationError::Usage {
                message: format!(
                    "the commit has several versions as tags: {}",
                    several.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                ),
                hint: self.example(&several[several.len() - 1].to_string()),
            }),
        }
    }

    /// The error of a push that has no version.
    pub fn no_version(&self, module: &ModuleName) -> OperationError {
        OperationError::Usage {
            message: format!(
                "the version of `{module}` is not known: neither the command nor a git tag at this commit says it"
            ),
            hint: format!("ocimod push {} {module}@1.0.0", self.source.display()),
        }
    }

    /// The bytes of the module file as it is pushed: the one that is there, or for an OpenTofu module one that is written for it.
    pub fn module_file_bytes(
        &self,
        named: &Named,
        version: &Version,
        dependencies: &[DependencyLayer],
    ) -> Result<Bytes> {
        if !self.is_module_file_ours() {
            let bytes = self.tree.read(MODULE_FILE, MAX_MODULE_FILE_SIZE);
            return Ok(Bytes::from(bytes.map_err(OperationError::packing)?.unwrap_or_default()));
        }
        let empty = TofuModule::default();
        let ModuleName::Tofu { address, .. } = &named.module else {
            return Err(OperationError::Refused(self.findings.clone()));
        };
        let modules: Vec<ModuleVersion> = dependencies.iter().map(|layer| layer.module.clone()).collect();
        let text = Generated {
            module: named.module_path(version),
            address,
            dependencies: &modules,
            tofu: self.tofu.as_ref().unwrap_or(&empty),
        };
        Ok(Bytes::from(text.to_string()))
    }

    /// Where the `deps` of a hand-written module file of an OpenTofu module and its `.tf` files disagree.
    pub fn disagreements(&self, dependencies: &[DependencyLayer]) -> Vec<Finding> {
        let Some(file) = self.module_file.as_ref().filter(|_| self.kind == ModuleKind::OpenTofu) else {
            return Vec::new();
        };
        if self.is_module_file_ours() {
            return Vec::new();
        }
        let finding = |line: Option<usize>, message: String| Finding {
            file: Some(MODULE_FILE.to_owned()),
            line,
            rule: "deps-disagree",
            message,
        };
        let mut needed: BTreeMap<ModulePath, Version> = BTreeMap::new();
        for layer in dependencies {
            let highest =
                needed.entry(layer.module.module_path()).or_insert_with(|| layer.module.version().clone());
            *highest = highest.clone().max(layer.module.version().clone());
        }
        let mut findings = Vec::new();
        for entry in &file.deps {
            match needed.remove(&entry.path) {
                Some(version) if version.same_precedence(&entry.version) => {}
                Some(version) => findings.push(finding(
                    Some(entry.line),
                    format!(
                        "`deps` has `{}` in version {}, but the `.tf` files lead to {version}",
                        entry.path, entry.version
                    ),
                )),
                None => findings.push(finding(
                    Some(entry.line),
                    format!("`deps` has `{}`, which no `.tf` file calls; remove it", entry.path),
                )),
            }
        }
        findings.extend(needed.into_iter().map(|(path, version)| {
            finding(
                None,
                format!("the `.tf` files call `{path}`, which `deps` lacks; add it with `v: \"v{version}\"`"),
            )
        }));
        findings
    }
}

/// `terraform-aws-vpc` is name `vpc`, system `aws`; OpenTofu's spelling is taken too.
fn name_and_system(folder: &str) -> Option<(&str, &str)> {
    let rest = folder.strip_prefix("terraform-").or_else(|| folder.strip_prefix("tofu-"))?;
    let (system, name) = rest.split_once('-')?;
    (!system.is_empty() && !name.is_empty()).then_some((name, system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_the_registrys_form_has_a_name_and_a_system() {
        assert_eq!(name_and_system("terraform-aws-vpc"), Some(("vpc", "aws")));
        assert_eq!(name_and_system("terraform-null-label-extra"), Some(("label-extra", "null")));
        assert_eq!(name_and_system("vpc"), None);
        assert_eq!(name_and_system("terraform-aws"), None);
        assert_eq!(name_and_system("terraform--x"), None);
    }
}
