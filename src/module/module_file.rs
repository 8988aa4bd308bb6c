//! Reads the module file `cue.mod/module.cue`, and writes the one of an OpenTofu module.
//!
//! Its rules are those of `cue`, which refuses what it does not know, so that a module which passes here is read there. What
//! ocimod itself has to say stands in `custom: ocimod`, the one place that `cue` leaves to other tools.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, json};

use super::cue_data::{self, CueError, Field, Struct, Value, WrittenFile};
use super::path::{CuePath, ModulePath, ModuleVersion};
use super::tofu::TofuModule;
use super::tofu_address::TofuAddress;
use super::version::Version;

/// The language version of generated files: the first that has `source`, so that every `cue` that knows modules reads them.
const GENERATED_LANGUAGE: &str = "v0.9.0";
/// Where `custom` has what ocimod says.
const NAMESPACE: &str = "ocimod";

/// A module file.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleFile {
    /// The module's path; major version 0 where the file leaves it out.
    pub module: ModulePath,
    /// The version of CUE that the module is written for.
    pub language_version: Version,
    /// Who says which files belong to the module.
    pub source_kind: Option<SourceKind>,
    /// What the module is for.
    pub description: Option<String>,
    /// The modules that it needs, in the order in which they are written.
    pub deps: Vec<Dependency>,
    /// Data of other tools, by namespace.
    pub custom: BTreeMap<String, Value>,
    ocimod: Option<Ocimod>,
}

/// `source: kind`: who says which files belong to a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// `self`: the folder.
    Itself,
    /// `git`: what git has of it.
    Git,
}

/// An entry of `deps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The module.
    pub path: ModulePath,
    /// The lowest version of it that will do.
    pub version: Version,
    /// Whether imports without a major version mean this one.
    pub default: bool,
    /// Whether something else takes its place on somebody's machine (`replaceWith`).
    pub is_replaced: bool,
    /// Where the entry is written, from 1.
    pub line: usize,
}

/// What ocimod wrote into a module file: `custom: ocimod`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ocimod {
    is_generated: bool,
    address: Option<String>,
    dependencies: Vec<ModuleVersion>,
    inputs: serde_json::Value,
    outputs: serde_json::Value,
}

/// The file is not a module file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleFileError {
    /// It is no text.
    #[error("the module file is not UTF-8")]
    NotUtf8,
    /// It is not CUE, or more than data.
    #[error("the module file cannot be read at {0}")]
    Syntax(#[from] CueError),
    /// A field is missing.
    #[error("the module file lacks `{field}`; {hint}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What to do about it.
        hint: &'static str,
    },
    /// A field is wrong.
    #[error("line {line} of the module file: `{field}` {reason}")]
    Field {
        /// Where it is written, from 1.
        line: usize,
        /// The field, with the fields that it is in.
        field: String,
        /// What is wrong with it, and what is right.
        reason: String,
    },
}

impl ModuleFileError {
    /// The line that is wrong, from 1.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::NotUtf8 | Self::Missing { .. } => None,
            Self::Syntax(error) => Some(error.line),
            Self::Field { line, .. } => Some(*line),
        }
    }
}

type Result<T> = std::result::Result<T, ModuleFileError>;

impl ModuleFile {
    /// Reads a module file. `strict` asks for what `cue` asks of a published module: every entry of `deps` with its major version
    /// and a canonical version.
    pub fn parse(bytes: &[u8], strict: bool) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| ModuleFileError::NotUtf8)?;
        let file = cue_data::parse(text)?;
        only(&file, "", &["module", "language", "source", "description", "deps", "custom"])?;
        let language_version = language_version(&file)?;
        let module = module_path(&file)?;
        let custom = custom(&file)?;
        Ok(Self {
            source_kind: source_kind(&file, &language_version)?,
            description: match file.get("description") {
                Some(field) => Some(text_of(field, "description")?.to_owned()),
                None => None,
            },
            deps: dependencies(&file, &module, &language_version, strict)?,
            ocimod: match file.get("custom").and_then(|field| field.value.as_struct()?.get(NAMESPACE)) {
                Some(field) => Some(Ocimod::read(field)?),
                None => None,
            },
            module,
            language_version,
            custom,
        })
    }

    /// Whether git says which files belong to the module.
    pub fn is_from_git(&self) -> bool {
        self.source_kind == Some(SourceKind::Git)
    }

    /// What ocimod wrote.
    pub fn custom_ocimod(&self) -> Option<&Ocimod> {
        self.ocimod.as_ref()
    }
}

fn wrong(field: &Field, name: impl Into<String>, reason: impl Into<String>) -> ModuleFileError {
    ModuleFileError::Field { line: field.line, field: name.into(), reason: reason.into() }
}

/// Refuses fields that are not known.
fn only(fields: &Struct, within: &str, known: &[&str]) -> Result<()> {
    match fields.iter().find(|field| !known.contains(&field.label.as_str())) {
        None => Ok(()),
        Some(field) => {
            let name: String = field.label.chars().take(80).collect();
            Err(wrong(
                field,
                format!("{within}{name}"),
                format!("is not known here; known are {}", known.join(", ")),
            ))
        }
    }
}

fn text_of<'a>(field: &'a Field, name: &str) -> Result<&'a str> {
    field
        .value
        .as_str()
        .ok_or_else(|| wrong(field, name, format!("is {}; it has to be a string", field.value.kind())))
}

fn struct_of<'a>(field: &'a Field, name: &str) -> Result<&'a Struct> {
    field
        .value
        .as_struct()
        .ok_or_else(|| wrong(field, name, format!("is {}; it has to be a struct", field.value.kind())))
}

/// A version in the form that `cue` takes everywhere: with `v`, in full, without build metadata.
fn canonical(text: &str) -> Option<Version> {
    let version = Version::parse(text.strip_prefix('v')?).ok()?;
    (!text.starts_with("vv") && version.build().is_empty()).then_some(version)
}

fn language_version(file: &Struct) -> Result<Version> {
    let missing = ModuleFileError::Missing {
        field: "language: version",
        hint: "add for example `language: version: \"v0.9.0\"`, or run `cue mod fix`",
    };
    let Some(language) = file.get("language") else { return Err(missing) };
    let fields = struct_of(language, "language")?;
    only(fields, "language.", &["version"])?;
    let Some(field) = fields.get("version") else { return Err(missing) };
    let text = text_of(field, "language.version")?;
    let first = Version::parse("0.8.0-alpha.0").ok();
    match canonical(text) {
        Some(version) if Some(&version) >= first.as_ref() => Ok(version),
        Some(_) => Err(wrong(field, "language.version", format!("is `{text}`; modules began with v0.8.0"))),
        None => {
            let reason = "has to be a version in full, as in `v0.9.0`";
            Err(wrong(field, "language.version", reason))
        }
    }
}

fn module_path(file: &Struct) -> Result<ModulePath> {
    let missing = ModuleFileError::Missing {
        field: "module",
        hint: "add its path with the major version, as in `module: \"example.com/net/vpc@v1\"`",
    };
    let Some(field) = file.get("module") else { return Err(missing) };
    match text_of(field, "module")? {
        "" => Err(missing),
        text if text.contains('@') => {
            text.parse().map_err(|error| wrong(field, "module", format!("is wrong: {error}")))
        }
        text => match CuePath::parse(text) {
            Ok(base) => Ok(ModulePath::new(base, 0)),
            Err(error) => Err(wrong(field, "module", format!("is wrong: {error}"))),
        },
    }
}

fn source_kind(file: &Struct, language: &Version) -> Result<Option<SourceKind>> {
    let Some(source) = file.get("source") else { return Ok(None) };
    let fields = struct_of(source, "source")?;
    if Version::parse("0.9.0-alpha.0").is_ok_and(|first| *language < first) {
        return Err(wrong(source, "source", "came with language version v0.9.0; raise `language: version`"));
    }
    only(fields, "source.", &["kind"])?;
    let kind = fields.get("kind").ok_or_else(|| wrong(source, "source", "lacks `kind`: `self` or `git`"))?;
    match text_of(kind, "source.kind")? {
        "self" => Ok(Some(SourceKind::Itself)),
        "git" => Ok(Some(SourceKind::Git)),
        _ => Err(wrong(kind, "source.kind", "has to be `self` or `git`")),
    }
}

fn dependencies(
    file: &Struct,
    module: &ModulePath,
    language: &Version,
    strict: bool,
) -> Result<Vec<Dependency>> {
    let Some(deps) = file.get("deps") else { return Ok(Vec::new()) };
    let mut dependencies = Vec::new();
    // The module itself is what imports of its own path mean.
    let mut defaults = BTreeSet::from([module.base().clone()]);
    for field in struct_of(deps, "deps")?.iter() {
        let label: String = field.label.chars().take(200).collect();
        let name = format!("deps.\"{label}\"");
        let fields = struct_of(field, &name)?;
        only(fields, &format!("{name}."), &["v", "default", "replaceWith"])?;
        if let Some(replacement) = fields.get("replaceWith") {
            let name = format!("{name}.replaceWith");
            text_of(replacement, &name)?;
            if *language < Version::new(0, 17, 0) {
                return Err(wrong(
                    replacement,
                    name,
                    "came with language version v0.17.0; raise `language: version`",
                ));
            }
        }
        let Some(v) = fields.get("v") else {
            return Err(wrong(field, name, "lacks its version: `v: \"v1.2.0\"`"));
        };
        let text = text_of(v, &format!("{name}.v"))?;
        let version = if strict { canonical(text) } else { Version::parse(text).ok() };
        let Some(version) = version else {
            return Err(wrong(v, format!("{name}.v"), "has to be a version in full, as in `v1.2.0`"));
        };
        let path = if strict || field.label.contains('@') {
            field.label.parse().map_err(|error| wrong(field, &name, format!("is wrong: {error}")))?
        } else {
            let base = CuePath::parse(&field.label)
                .map_err(|error| wrong(field, &name, format!("is wrong: {error}")))?;
            ModulePath::new(base, version.major())
        };
        if path.major() != version.major() {
            let reason = format!("is version {version}, which is of another major version than the entry");
            return Err(wrong(v, format!("{name}.v"), reason));
        }
        let default = match fields.get("default") {
            None => false,
            Some(Field { value: Value::Bool(default), .. }) => *default,
            Some(other) => {
                return Err(wrong(other, format!("{name}.default"), "has to be `true` or `false`"));
            }
        };
        if default && !defaults.insert(path.base().clone()) {
            return Err(wrong(
                field,
                name,
                "cannot be `default: true`: another major version of the module is",
            ));
        }
        let is_replaced = fields.get("replaceWith").is_some();
        dependencies.push(Dependency { path, version, default, is_replaced, line: field.line });
    }
    Ok(dependencies)
}

fn custom(file: &Struct) -> Result<BTreeMap<String, Value>> {
    let Some(custom) = file.get("custom") else { return Ok(BTreeMap::new()) };
    let namespaces = struct_of(custom, "custom")?.iter();
    namespaces
        .map(|field| {
            struct_of(field, &format!("custom.\"{}\"", field.label.chars().take(80).collect::<String>()))?;
            Ok((field.label.clone(), field.value.clone()))
        })
        .collect()
}

impl Ocimod {
    /// What a later ocimod adds is passed over.
    fn read(field: &Field) -> Result<Self> {
        let fields = struct_of(field, "custom.ocimod")?;
        let mut dependencies = Vec::new();
        if let Some(list) = fields.get("dependencies") {
            let error = |reason: String| wrong(list, "custom.ocimod.dependencies", reason);
            let Value::List(values) = &list.value else { return Err(error("has to be a list".to_owned())) };
            for value in values {
                let text = value.as_str().ok_or_else(|| error("has to hold strings".to_owned()))?;
                dependencies.push(text.parse().map_err(|cause| error(format!("is wrong: {cause}")))?);
            }
        }
        let list = |name| match fields.get(name) {
            Some(Field { value: list @ Value::List(_), .. }) => list.to_json(),
            _ => json!([]),
        };
        Ok(Self {
            is_generated: matches!(fields.get("generated"), Some(Field { value: Value::Bool(true), .. })),
            address: fields.get("address").and_then(|field| field.value.as_str()).map(str::to_owned),
            dependencies,
            inputs: list("inputs"),
            outputs: list("outputs"),
        })
    }

    /// Whether ocimod wrote the whole file, and so may write it anew.
    pub fn is_generated(&self) -> bool {
        self.is_generated
    }

    /// The module's address in the case in which it was pushed, where that differs from its path.
    pub fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Every version that the module was pushed with, also several of one major version.
    pub fn dependencies(&self) -> &[ModuleVersion] {
        &self.dependencies
    }

    /// The inputs, as [`TofuModule::inputs_json`] has them.
    pub fn inputs(&self) -> serde_json::Value {
        self.inputs.clone()
    }

    /// The outputs, as [`TofuModule::outputs_json`] has them.
    pub fn outputs(&self) -> serde_json::Value {
        self.outputs.clone()
    }
}

/// What the module file of an OpenTofu module says; its text is what it displays as, the same for the same module.
#[derive(Clone, Debug)]
pub struct Generated<'a> {
    /// The module's path.
    pub module: ModulePath,
    /// Its address, in the case in which it is pushed.
    pub address: &'a TofuAddress,
    /// Every version that it is pushed with.
    pub dependencies: &'a [ModuleVersion],
    /// What its files say.
    pub tofu: &'a TofuModule,
}

impl fmt::Display for Generated<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut file = Map::new();
        file.insert("module".to_owned(), json!(self.module.to_string()));
        file.insert("language".to_owned(), json!({ "version": GENERATED_LANGUAGE }));
        file.insert("source".to_owned(), json!({ "kind": "self" }));
        let deps = self.deps();
        if !deps.is_empty() {
            file.insert("deps".to_owned(), deps.into());
        }
        file.insert("custom".to_owned(), json!({ NAMESPACE: self.ocimod() }));
        writeln!(
            formatter,
            "// Written by ocimod from the module's .tf files, and written anew at each push."
        )?;
        write!(formatter, "{}", WrittenFile(&file))
    }
}

impl Generated<'_> {
    /// One entry a path and major version, since `deps` has no room for more: the highest.
    fn deps(&self) -> Map<String, serde_json::Value> {
        let mut highest: BTreeMap<ModulePath, Version> = BTreeMap::new();
        for module in self.dependencies {
            let version = module.version().without_build();
            let known = highest.entry(module.module_path()).or_insert_with(|| version.clone());
            if *known < version {
                *known = version;
            }
        }
        highest
            .into_iter()
            .map(|(path, version)| (path.to_string(), json!({ "v": format!("v{version}") })))
            .collect()
    }

    fn ocimod(&self) -> serde_json::Value {
        let dependencies: BTreeSet<&ModuleVersion> = self.dependencies.iter().collect();
        let dependencies: Vec<String> = dependencies.into_iter().map(ToString::to_string).collect();
        let mut ocimod = Map::new();
        ocimod.insert("generated".to_owned(), json!(true));
        let address = self.address.to_string();
        if address != address.to_ascii_lowercase() {
            ocimod.insert("address".to_owned(), json!(address));
        }
        if let Some(required) = &self.tofu.required_version {
            ocimod.insert("required_version".to_owned(), json!(required));
        }
        ocimod.insert("dependencies".to_owned(), json!(dependencies));
        ocimod.insert("inputs".to_owned(), self.tofu.inputs_json());
        ocimod.insert("outputs".to_owned(), self.tofu.outputs_json());
        ocimod.insert("providers".to_owned(), self.tofu.providers_json());
        ocimod.insert("calls".to_owned(), self.tofu.calls_json());
        ocimod.into()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ModuleFile {
        ModuleFile::parse(text.as_bytes(), true).unwrap_or_else(|error| panic!("{text}\n{error}"))
    }

    fn refused(text: &str) -> ModuleFileError {
        ModuleFile::parse(text.as_bytes(), true).expect_err(text)
    }

    #[test]
    fn files_as_cue_writes_them_are_read() {
        let file = parse(
            r#"module: "foo.com/bar@v0"
language: version: "v0.9.0"
source: kind:      "git"
description: "What it is for"
deps: {
	"example.com@v1": v:         "v1.2.3"
	"other.com/something@v0": {v: "v0.2.3", default: true}
}
custom: "example.com/tool": test: "data"
"#,
        );
        assert_eq!(file.module.to_string(), "foo.com/bar@v0");
        assert_eq!(file.language_version.to_string(), "0.9.0");
        assert!(file.is_from_git());
        assert_eq!(file.description.as_deref(), Some("What it is for"));
        let deps: Vec<_> = file
            .deps
            .iter()
            .map(|dep| (dep.path.to_string(), dep.version.to_string(), dep.default, dep.line))
            .collect();
        let expected = [("example.com@v1", "1.2.3", false, 6), ("other.com/something@v0", "0.2.3", true, 7)];
        assert_eq!(
            deps,
            expected.map(|(path, version, default, line)| (
                path.to_owned(),
                version.to_owned(),
                default,
                line
            ))
        );
        assert_eq!(file.custom.keys().collect::<Vec<_>>(), ["example.com/tool"]);
        assert_eq!(file.custom_ocimod(), None);

        let json = r#"{"module": "cue.example", "language": {"version": "v0.12.0"}}"#;
        assert_eq!(
            (parse(json).module.to_string(), parse(json).source_kind),
            ("cue.example@v0".to_owned(), None)
        );
    }

    #[test]
    fn what_cue_refuses_is_refused_with_its_line() {
        let start = "module: \"example.com/a@v1\"\nlanguage: version: \"v0.9.0\"\n";
        for (rest, line, part) in [
            ("extra: 1", 3, "`extra` is not known"),
            ("source: {kind: \"none\"}", 3, "`self` or `git`"),
            ("source: {}", 3, "lacks `kind`"),
            ("source: kind: \"self\", source: more: 1", 3, "`source.more`"),
            ("description: 1", 3, "is a number; it has to be a string"),
            ("deps: []", 3, "it has to be a struct"),
            ("deps: {\n\"example.com/b\": v: \"v1.0.0\"\n}", 4, "is not a module path with a major version"),
            ("deps: \"example.com/b@v1\": {}", 3, "lacks its version"),
            ("deps: \"example.com/b@v1\": v: null", 3, "is null"),
            ("deps: \"example.com/b@v1\": v: \"1.0.0\"", 3, "in full"),
            ("deps: \"example.com/b@v1\": v: \"vv1.0.0\"", 3, "in full"),
            ("deps: \"example.com/b@v1\": v: \"v1.0\"", 3, "in full"),
            ("deps: \"example.com/b@v1\": v: \"v1.0.0+b\"", 3, "in full"),
            ("deps: \"example.com/b@v1\": v: \"v2.0.0\"", 3, "another major"),
            ("deps: \"example.com/b@v1\": {v: \"v1.0.0\", default: 1}", 3, "`true` or `false`"),
            ("deps: \"example.com/b@v1\": {v: \"v1.0.0\", w: 1}", 3, "is not known"),
            ("deps: \"example.com/b@v1\": {v: \"v1.0.0\", replaceWith: \"./b\"}", 3, "raise"),
            (
                "deps: \"example.com/b@v1\": {v: \"v1.0.0\", default: true}\ndeps: \"example.com/b@v2\": {v: \"v2.0.0\", default: true}",
                4,
                "cannot be `default: true`",
            ),
            ("deps: \"example.com/a@v2\": {v: \"v2.0.0\", default: true}", 3, "cannot be `default: true`"),
            (
                "deps: \"example.com/b@v1\": {v: \"v1.0.0\", replaceWith: \"./b\"}",
                3,
                "raise `language: version`",
            ),
            ("custom: 1", 3, "it has to be a struct"),
            ("custom: tool: 1", 3, "it has to be a struct"),
            ("custom: ocimod: dependencies: [\"x\"]", 3, "`custom.ocimod.dependencies`"),
            ("x: {", 3, "the file ends"),
        ] {
            let error = refused(&format!("{start}{rest}"));
            assert!(error.line() == Some(line) && error.to_string().contains(part), "{rest}: {error}");
        }
        for module in
            ["example.com/a@v1.0.0", "example.com/a@v01", "example.com/a@latest", "example", "Example.com/a"]
        {
            let error = refused(&format!("language: version: \"v0.9.0\"\nmodule: \"{module}\""));
            assert_eq!(error.line(), Some(2), "{module}: {error}");
        }
        for (text, part) in [
            ("", "`language: version`"),
            ("module: \"example.com/a@v1\"", "`language: version`"),
            ("language: version: \"v0.9.0\"", "`module`"),
            ("language: version: \"v0.9.0\"\nmodule: \"\"", "`module`"),
            ("language: version: \"v0.9\"", "in full"),
            ("language: version: \"v0.4.0\"", "modules began"),
            ("module: \"example.com/a@v1\"\nlanguage: version: \"v0.8.0\"\nsource: kind: \"self\"", "raise"),
        ] {
            assert!(refused(text).to_string().contains(part), "{text}: {}", refused(text));
        }
        assert_eq!(ModuleFile::parse(&[0xff], true), Err(ModuleFileError::NotUtf8));
    }

    #[test]
    fn a_file_that_is_not_published_yet_may_leave_out_majors() {
        let text = "module: \"example.com/a\"\nlanguage: version: \"v0.9.0\"\ndeps: \"example.com/b\": v: \"v2.0.0+x\"";
        let file = ModuleFile::parse(text.as_bytes(), false).unwrap();
        assert_eq!(file.deps[0].path.to_string(), "example.com/b@v2");
    }

    fn example() -> (TofuAddress, Vec<ModuleVersion>, TofuModule) {
        let files = [
            (
                "main.tf",
                "terraform {\n  required_version = \">= 1.6\"\n  required_providers {\n    aws = { source = \"hashicorp/aws\" }\n  }\n}\n",
            ),
            (
                "variables.tf",
                "variable \"a\" {\n  type = object({\n    x = string\n  })\n  description = \"A \\\"quoted\\\" one\\n\\t\\\\(x)\"\n}\nvariable \"b\" {\n  default = 1\n}\n",
            ),
            (
                "calls.tf",
                "output \"o\" {\n  value = 1\n}\nmodule \"m\" {\n  source  = \"acme/subnet/aws\"\n  version = \"~> 1.4\"\n}\n",
            ),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        let dependencies = ["1.4.0", "1.10.0+b.2", "1.9.0-rc.1", "2.0.0", "1.4.0"];
        let dependencies = dependencies
            .map(|version| format!("modules.acme.example/acme/subnet/aws@v{version}").parse().unwrap());
        (TofuAddress::parse("Acme/vpc/aws").unwrap(), dependencies.to_vec(), TofuModule::read(&files.into()))
    }

    #[test]
    fn a_generated_file_says_what_the_module_says() {
        let (address, dependencies, tofu) = example();
        let module: ModulePath = "modules.acme.example/acme/vpc/aws@v1".parse().unwrap();
        let generated =
            Generated { module: module.clone(), address: &address, dependencies: &dependencies, tofu: &tofu };
        let text = generated.to_string();
        let file = parse(&text);
        assert_eq!((&file.module, file.source_kind), (&module, Some(SourceKind::Itself)));
        let deps: Vec<_> = file.deps.iter().map(|dep| format!("{} {}", dep.path, dep.version)).collect();
        assert_eq!(
            deps,
            [
                "modules.acme.example/acme/subnet/aws@v1 1.10.0",
                "modules.acme.example/acme/subnet/aws@v2 2.0.0"
            ]
        );
        let ocimod = file.custom_ocimod().unwrap();
        assert!(ocimod.is_generated());
        assert_eq!(ocimod.address(), Some("Acme/vpc/aws"));
        assert_eq!((ocimod.inputs(), ocimod.outputs()), (tofu.inputs_json(), tofu.outputs_json()));
        let all: Vec<_> = ocimod.dependencies().iter().map(|module| module.version().to_string()).collect();
        assert_eq!(all, ["1.4.0", "1.9.0-rc.1", "1.10.0+b.2", "2.0.0"]);
        let mut reversed = dependencies.clone();
        reversed.reverse();
        assert_eq!(
            Generated { module, address: &address, dependencies: &reversed, tofu: &tofu }.to_string(),
            text
        );
    }

    #[test]
    fn a_module_without_anything_has_a_short_file() {
        let address = TofuAddress::parse("acme/vpc/aws").unwrap();
        let (module, tofu) = ("modules.internal/acme/vpc/aws@v0".parse().unwrap(), TofuModule::default());
        let file =
            parse(&Generated { module, address: &address, dependencies: &[], tofu: &tofu }.to_string());
        assert_eq!((file.deps.len(), file.custom_ocimod().unwrap().address()), (0, None));
        assert_eq!(file.custom_ocimod().unwrap().inputs(), json!([]));
    }
}
