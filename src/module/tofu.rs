//! Reads what the configuration files of an OpenTofu module say: its inputs and outputs, the providers that it needs and the
//! modules that it calls.
//!
//! Both syntaxes, HCL and JSON, are read into one small form first. A file that cannot be read gives a warning and nothing
//! else: the module may be written for a newer OpenTofu than this knows, and it can be published all the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use hcl_edit::Span;
use hcl_edit::expr::{Expression, ObjectKey};
use hcl_edit::structure::Body;
use hcl_edit::template::Element;
use serde_json::json;

use super::cue_data::{self, Struct, Value};
use super::tofu_address::TofuAddress;

/// A larger file is not read: nobody wrote it by hand, and what is parsed takes a multiple of it in memory.
const MAX_FILE: usize = 4 * 1024 * 1024;
/// A file with more `=` and `:` than this is not read: the parser compares each key of an object with all before it, so that a
/// file full of keys would take minutes. Files written by hand have some thousands.
const MAX_ASSIGNMENTS: usize = 30_000;
/// More blocks than this are not taken in; the largest published modules have some hundreds.
const MAX_BLOCKS: usize = 10_000;
/// Longer descriptions and types are cut, so that the generated module file stays small.
const MAX_TEXT: usize = 16 * 1024;
/// More warnings than this help nobody.
const MAX_WARNINGS: usize = 100;

/// What the configuration files of a module say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TofuModule {
    /// The variables of the root folder, sorted by name.
    pub inputs: Vec<Input>,
    /// The outputs of the root folder, sorted by name.
    pub outputs: Vec<Output>,
    /// What `required_providers` of the root folder says, sorted by name.
    pub providers: Vec<RequiredProvider>,
    /// The constraint on the version of OpenTofu; several are joined by commas, since all of them hold.
    pub required_version: Option<String>,
    /// Every `module` block that using or testing the module reaches within its own files.
    pub calls: Vec<Call>,
    /// Local sources that lead out of the module's folder.
    pub escapes: Vec<Escape>,
    /// What could not be read.
    pub warnings: Vec<Warning>,
}

/// A `variable` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its type constraint as written.
    pub type_text: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Whether it has no default.
    pub required: bool,
    /// Whether its value is kept out of outputs.
    pub sensitive: bool,
}

/// An `output` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Whether its value is kept out of outputs.
    pub sensitive: bool,
}

/// An entry of `required_providers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredProvider {
    /// The name that the module has for it.
    pub name: String,
    /// Its address as written.
    pub source: Option<String>,
    /// The constraint on its version as written.
    pub version: Option<String>,
}

/// A `module` block: a call of another module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The file, by its path within the module.
    pub file: String,
    /// The line where the block begins, from 1.
    pub line: usize,
    /// The name of the block; for one in a test, that of the `run` block.
    pub name: String,
    /// What is called.
    pub source: Source,
    /// The constraint on its version as written.
    pub version: Option<String>,
    /// Who needs it.
    pub scope: Scope,
}

/// Who needs a called module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Everybody who uses the module.
    Always,
    /// Only who runs the module's tests.
    TestOnly,
}

/// What a `source` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A module in a registry.
    Registry {
        /// Its address.
        address: TofuAddress,
        /// The folder behind `//`.
        subdir: Option<String>,
    },
    /// A folder of the same module, as written.
    Local(String),
    /// Anything else, as written but for passwords and keys.
    Remote(String),
}

/// A local source that leads out of the module's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Escape {
    /// The file, by its path within the module.
    pub file: String,
    /// The line of the source, from 1.
    pub line: usize,
    /// The source as written.
    pub path: String,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file, by its path within the module.
    pub file: String,
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong and what follows from it.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.file)?;
        if let Some(line) = self.line {
            write!(formatter, "{line}:")?;
        }
        write!(formatter, " {}", self.message)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry { address, subdir: None } => write!(formatter, "{address}"),
            Self::Registry { address, subdir: Some(subdir) } => write!(formatter, "{address}//{subdir}"),
            Self::Local(text) | Self::Remote(text) => formatter.write_str(text),
        }
    }
}

/// Whether a file, by its path within the module, is one that [`TofuModule::read`] wants.
pub fn is_tofu_file(name: &str) -> bool {
    FileKind::of(file_name(name)).is_some()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Configuration,
    Test,
}

impl FileKind {
    /// OpenTofu passes over hidden files and what editors leave behind; the latter end otherwise anyway.
    fn of(name: &str) -> Option<Self> {
        if name.starts_with('.') || name.starts_with('#') {
            return None;
        }
        let name = name.strip_suffix(".json").unwrap_or(name);
        if [".tf", ".tofu"].iter().any(|suffix| name.ends_with(suffix)) {
            Some(Self::Configuration)
        } else if [".tftest.hcl", ".tofutest.hcl", ".tftest", ".tofutest"]
            .iter()
            .any(|suffix| name.ends_with(suffix))
        {
            Some(Self::Test)
        } else {
            None
        }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

impl TofuModule {
    /// Reads the files of a module: paths within it (`/` between folders) and contents. Other files among them are passed over.
    pub fn read(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let mut folders: BTreeMap<&str, Vec<(&str, &[u8])>> = BTreeMap::new();
        for (path, bytes) in files {
            folders.entry(folder_of(path)).or_default().push((path, bytes));
        }
        let mut reader = Reader { folders, ..Reader::default() };
        reader.read();
        reader.module
    }

    /// The inputs as an array of objects: `name`, `type`, `description`, `required`, `sensitive`. What is not written is not there.
    pub fn inputs_json(&self) -> serde_json::Value {
        let input = |input: &Input| {
            object([
                ("name", Some(json!(input.name))),
                ("type", input.type_text.as_ref().map(|text| json!(text))),
                ("description", input.description.as_ref().map(|text| json!(text))),
                ("required", Some(json!(input.required))),
                ("sensitive", Some(json!(input.sensitive))),
            ])
        };
        self.inputs.iter().map(input).collect()
    }

    /// The outputs as an array of objects: `name`, `description`, `sensitive`. What is not written is not there.
    pub fn outputs_json(&self) -> serde_json::Value {
        let output = |output: &Output| {
            object([
                ("name", Some(json!(output.name))),
                ("description", output.description.as_ref().map(|text| json!(text))),
                ("sensitive", Some(json!(output.sensitive))),
            ])
        };
        self.outputs.iter().map(output).collect()
    }

    /// The required providers as an array of objects: `name`, `source`, `version`. What is not written is not there.
    pub fn providers_json(&self) -> serde_json::Value {
        let provider = |provider: &RequiredProvider| {
            object([
                ("name", Some(json!(provider.name))),
                ("source", provider.source.as_ref().map(|text| json!(text))),
                ("version", provider.version.as_ref().map(|text| json!(text))),
            ])
        };
        self.providers.iter().map(provider).collect()
    }

    /// The calls as an array of objects: `file`, `name`, `source`, `version`, and `test: true` where only tests need it.
    pub fn calls_json(&self) -> serde_json::Value {
        let call = |call: &Call| {
            object([
                ("file", Some(json!(call.file))),
                ("name", Some(json!(call.name))),
                ("source", Some(json!(call.source.to_string()))),
                ("version", call.version.as_ref().map(|text| json!(text))),
                ("test", (call.scope == Scope::TestOnly).then(|| json!(true))),
            ])
        };
        self.calls.iter().map(call).collect()
    }
}

fn object<const N: usize>(fields: [(&str, Option<serde_json::Value>); N]) -> serde_json::Value {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Where a local source leads.
enum Target {
    Folder(String),
    Outside,
}

#[derive(Default)]
struct Reader<'a> {
    /// Paths and contents by folder.
    folders: BTreeMap<&'a str, Vec<(&'a str, &'a [u8])>>,
    walked: BTreeSet<String>,
    waiting: VecDeque<String>,
    blocks: usize,
    module: TofuModule,
}

impl Reader<'_> {
    fn read(&mut self) {
        self.waiting = self
            .folders
            .keys()
            .filter(|folder| is_entrance(folder))
            .map(|&folder| folder.to_owned())
            .collect();
        self.waiting.push_front(String::new());
        self.walk(Scope::Always);
        for folder in self.walked.clone() {
            for tests in [folder.clone(), join(&folder, "tests")] {
                self.folder(&tests, &folder, FileKind::Test, Scope::TestOnly);
            }
        }
        self.walk(Scope::TestOnly);
        self.module.inputs.sort_by(|one, other| one.name.cmp(&other.name));
        self.module.outputs.sort_by(|one, other| one.name.cmp(&other.name));
        self.module.providers.sort_by(|one, other| one.name.cmp(&other.name));
    }

    /// Reads the folders that wait, and what they reach.
    fn walk(&mut self, scope: Scope) {
        while let Some(folder) = self.waiting.pop_front() {
            if self.walked.insert(folder.clone()) {
                self.folder(&folder, &folder, FileKind::Configuration, scope);
            }
        }
    }

    /// Reads the files of one kind in a folder; local sources in them count from `base`.
    fn folder(&mut self, folder: &str, base: &str, kind: FileKind, scope: Scope) {
        let Some(files) = self.folders.get(folder).cloned() else { return };
        let names: BTreeSet<&str> = files.iter().map(|(path, _)| file_name(path)).collect();
        for (path, bytes) in files {
            let name = file_name(path);
            if FileKind::of(name) != Some(kind) {
                continue;
            }
            // OpenTofu passes over `main.tf` beside `main.tofu`. Terraform reads it, so the modules that it calls count too.
            let is_shadowed = shadow(name).is_some_and(|shadow| names.contains(shadow.as_str()));
            for block in self.parse(path, bytes) {
                self.block(path, base, kind, scope, is_shadowed, &block);
            }
        }
    }

    fn parse(&mut self, path: &str, bytes: &[u8]) -> Vec<Block> {
        if bytes.len() > MAX_FILE {
            self.warn(path, None, format!("the file is over {MAX_FILE} bytes and was not read"));
            return Vec::new();
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.warn(path, None, "the file is not UTF-8 and was not read".to_owned());
            return Vec::new();
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let is_json = path.strip_suffix(".json").is_some();
        if !is_json && text.bytes().filter(|byte| matches!(byte, b'=' | b':')).count() > MAX_ASSIGNMENTS {
            self.warn(
                path,
                None,
                format!("the file has more than {MAX_ASSIGNMENTS} assignments and was not read"),
            );
            return Vec::new();
        }
        let blocks = if is_json {
            cue_data::parse(text).map(|file| json_blocks(&file)).map_err(|error| (error.line, error.reason))
        } else {
            hcl_edit::parser::parse_body(text)
                .map(|body| hcl_blocks(&body, text))
                .map_err(|error| (error.location().line(), error.message().to_owned()))
        };
        blocks.unwrap_or_else(|(line, reason)| {
            let reason: String = reason.chars().take(200).collect();
            self.warn(
                path,
                Some(line),
                format!("the file could not be read, so what it says is not known: {reason}"),
            );
            Vec::new()
        })
    }

    fn block(
        &mut self,
        path: &str,
        base: &str,
        kind: FileKind,
        scope: Scope,
        is_shadowed: bool,
        block: &Block,
    ) {
        self.blocks += 1;
        if self.blocks > MAX_BLOCKS {
            if self.blocks == MAX_BLOCKS + 1 {
                self.warn(
                    path,
                    Some(block.line),
                    format!("the module has more than {MAX_BLOCKS} blocks; the rest is not read"),
                );
            }
            return;
        }
        match (kind, block.kind.as_str(), block.name.as_deref()) {
            (FileKind::Configuration, "module", Some(name)) => self.call(path, base, name, scope, block),
            (FileKind::Test, "run", Some(name)) => {
                for call in block.blocks.iter().filter(|inner| inner.kind == "module") {
                    self.call(path, base, name, scope, call);
                }
            }
            (FileKind::Configuration, kind, name) if base.is_empty() && !is_shadowed => {
                self.describe(kind, name, block);
            }
            _ => {}
        }
    }

    /// Takes in a block of the root folder that says how the module is used.
    fn describe(&mut self, kind: &str, name: Option<&str>, block: &Block) {
        let module = &mut self.module;
        let is_sensitive = matches!(block.argument("sensitive"), Some(Written::Bool(true)));
        let description = || block.text("description").map(shorten);
        match (kind, name) {
            ("variable", Some(name)) if module.inputs.iter().all(|input| input.name != name) => {
                let type_text = match block.argument("type") {
                    Some(Written::Text(text) | Written::Expression(text)) => Some(shorten(text)),
                    _ => None,
                };
                module.inputs.push(Input {
                    name: name.to_owned(),
                    type_text,
                    description: description(),
                    required: block.argument("default").is_none(),
                    sensitive: is_sensitive,
                });
            }
            ("output", Some(name)) if module.outputs.iter().all(|output| output.name != name) => {
                let description = description();
                module.outputs.push(Output { name: name.to_owned(), description, sensitive: is_sensitive });
            }
            ("terraform", None) => {
                if let Some(constraint) = block.text("required_version") {
                    let all = module.required_version.get_or_insert_default();
                    if !all.is_empty() {
                        all.push_str(", ");
                    }
                    all.push_str(&shorten(constraint));
                }
                for providers in block.blocks.iter().filter(|inner| inner.kind == "required_providers") {
                    module.providers.extend(providers.arguments.iter().filter_map(required_provider));
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, path: &str, base: &str, name: &str, scope: Scope, block: &Block) {
        let Some(argument) = block.arguments.iter().find(|argument| argument.name == "source") else {
            // An override file repeats only what it changes.
            if !is_override(file_name(path)) {
                self.warn(path, Some(block.line), format!("module `{name}` has no source"));
            }
            return;
        };
        let Written::Text(written) = &argument.value else {
            let message = format!(
                "the source of module `{name}` is computed, so what it calls is not known and not embedded"
            );
            return self.warn(path, Some(argument.line), message);
        };
        let version = match block.argument("version") {
            Some(Written::Text(version)) => Some(version.clone()),
            Some(_) => {
                let message = format!(
                    "the version of module `{name}` is computed, so it is not known and not embedded"
                );
                return self.warn(path, Some(block.line), message);
            }
            None => None,
        };
        let source = Source::of(written);
        if let Source::Local(written) = &source {
            match local_target(base, written) {
                Target::Outside => {
                    self.module.escapes.push(Escape {
                        file: path.to_owned(),
                        line: argument.line,
                        path: written.clone(),
                    });
                }
                Target::Folder(folder) if self.folders.contains_key(folder.as_str()) => {
                    self.waiting.push_back(folder);
                }
                Target::Folder(_) => {
                    self.warn(
                        path,
                        Some(argument.line),
                        format!("the source `{written}` leads to no configuration files"),
                    );
                }
            }
        }
        let (file, name) = (path.to_owned(), name.to_owned());
        self.module.calls.push(Call { file, line: block.line, name, source, version, scope });
    }

    fn warn(&mut self, file: &str, line: Option<usize>, message: String) {
        if self.module.warnings.len() < MAX_WARNINGS {
            self.module.warnings.push(Warning { file: file.to_owned(), line, message });
        }
    }
}

/// Whether users of a module may call a folder of it directly: the folders under `modules/`, but not their examples and tests.
fn is_entrance(folder: &str) -> bool {
    let mut parts = folder.split('/');
    let is_below = parts.next() == Some("modules") && parts.next().is_some();
    is_below && parts.all(|part| part != "examples" && !part.starts_with("test"))
}

/// The file that hides one for OpenTofu.
fn shadow(name: &str) -> Option<String> {
    let (stem, rest) = match name.strip_suffix(".json") {
        Some(stem) => (stem, ".json"),
        None => (name, ""),
    };
    stem.strip_suffix(".tf").map(|stem| format!("{stem}.tofu{rest}"))
}

fn is_override(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    stem == "override" || stem.ends_with("_override")
}

fn shorten(text: &str) -> String {
    let text = text.trim();
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT)])
}

fn local_target(base: &str, written: &str) -> Target {
    let mut folders: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in written.split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." => {
                if folders.pop().is_none() {
                    return Target::Outside;
                }
            }
            part => folders.push(part),
        }
    }
    Target::Folder(folders.join("/"))
}

impl Source {
    /// What OpenTofu takes a source for.
    fn of(written: &str) -> Self {
        let is_local = ["./", "../", ".\\", "..\\"].iter().any(|prefix| written.starts_with(prefix));
        if is_local || written == "." || written == ".." {
            Self::Local(written.to_owned())
        } else if let Some((address, subdir)) = TofuAddress::parse_source(written) {
            Self::Registry { address, subdir }
        } else {
            Self::Remote(without_credentials(written))
        }
    }
}

/// Parameters of a remote source that say nothing secret; among the others are keys.
const PUBLIC_PARAMETERS: [&str; 7] = ["ref", "depth", "tag", "digest", "archive", "checksum", "version"];

/// A remote source without user, password and keys: it is printed, and kept in the module file.
fn without_credentials(source: &str) -> String {
    let (address, query) = source.split_once('?').map_or((source, ""), |(address, query)| (address, query));
    let mut public = match address.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let host = match authority.rsplit_once('@') {
                // The user of ssh is part of the address, and no secret.
                Some((user, _)) if scheme.ends_with("ssh") && !user.contains(':') => authority,
                Some((_, host)) => host,
                None => authority,
            };
            format!("{scheme}://{host}{path}")
        }
        None => address.to_owned(),
    };
    let is_public = |parameter: &&str| {
        parameter.split_once('=').is_some_and(|(name, _)| PUBLIC_PARAMETERS.contains(&name))
    };
    for (place, parameter) in query.split('&').filter(is_public).enumerate() {
        public.push(if place == 0 { '?' } else { '&' });
        public.push_str(parameter);
    }
    public
}

fn required_provider(argument: &Argument) -> Option<RequiredProvider> {
    let (source, version) = match &argument.value {
        Written::Text(version) => (None, Some(version.clone())),
        Written::Object(fields) => {
            let text = |name: &str| {
                fields
                    .iter()
                    .find(|field| field.name == name)
                    .and_then(|field| field.value.as_text())
                    .map(shorten)
            };
            (text("source"), text("version"))
        }
        _ => return None,
    };
    Some(RequiredProvider { name: argument.name.clone(), source, version })
}

/// A block as both syntaxes have it, as far as it is wanted here.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    kind: String,
    name: Option<String>,
    line: usize,
    arguments: Vec<Argument>,
    blocks: Vec<Block>,
}

#[derive(Debug, PartialEq, Eq)]
struct Argument {
    name: String,
    line: usize,
    value: Written,
}

/// A value as it is written.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    Text(String),
    Bool(bool),
    Object(Vec<Argument>),
    /// What has to be computed, as written.
    Expression(String),
}

impl Written {
    fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

impl Block {
    fn argument(&self, name: &str) -> Option<&Written> {
        self.arguments.iter().find(|argument| argument.name == name).map(|argument| &argument.value)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.argument(name).and_then(Written::as_text)
    }
}

/// Whether a kind of block has a name; `None` for kinds that are not wanted. `outer` is the kind of the block around it.
fn has_name(outer: Option<&str>, kind: &str) -> Option<bool> {
    match (outer, kind) {
        (None, "variable" | "output" | "module" | "run") => Some(true),
        (None, "terraform") | (Some("terraform"), "required_providers") | (Some("run"), "module") => {
            Some(false)
        }
        _ => None,
    }
}

/// Whether an argument of a kind of block is wanted; the other arguments of a `module` block are nobody's business here.
fn is_wanted(kind: &str, name: &str) -> bool {
    match kind {
        "variable" => matches!(name, "type" | "description" | "default" | "sensitive"),
        "output" => matches!(name, "description" | "sensitive"),
        "module" => matches!(name, "source" | "version"),
        "terraform" => name == "required_version",
        "required_providers" => true,
        _ => false,
    }
}

fn hcl_blocks(body: &Body, text: &str) -> Vec<Block> {
    let lines: Vec<usize> = text.match_indices('\n').map(|(offset, _)| offset).collect();
    Hcl { text, lines: &lines }.blocks(body, None)
}

struct Hcl<'a> {
    text: &'a str,
    /// Offsets of the line ends.
    lines: &'a [usize],
}

impl Hcl<'_> {
    fn line(&self, value: &impl Span) -> usize {
        let offset = value.span().map_or(0, |span| span.start);
        self.lines.partition_point(|end| *end < offset) + 1
    }

    fn blocks(&self, body: &Body, outer: Option<&str>) -> Vec<Block> {
        let wanted = body.blocks().filter_map(|block| {
            let kind = block.ident.as_str();
            let name = match (has_name(outer, kind)?, &block.labels[..]) {
                (true, [name]) => Some(name.as_str().to_owned()),
                (false, []) => None,
                _ => return None,
            };
            let wanted = block.body.attributes().filter(|attribute| is_wanted(kind, attribute.key.as_str()));
            let arguments = wanted.map(|attribute| Argument {
                name: attribute.key.as_str().to_owned(),
                line: self.line(&attribute.key),
                value: self.value(&attribute.value),
            });
            Some(Block {
                kind: kind.to_owned(),
                name,
                line: self.line(&block.ident),
                arguments: arguments.collect(),
                blocks: self.blocks(&block.body, Some(kind)),
            })
        });
        wanted.collect()
    }

    fn value(&self, expression: &Expression) -> Written {
        let text = match expression {
            Expression::Bool(value) => return Written::Bool(*value.value()),
            Expression::Object(object) => {
                let fields = object.iter().filter_map(|(key, value)| {
                    let name = match key {
                        ObjectKey::Ident(name) => name.as_str(),
                        ObjectKey::Expression(name) => name.as_str()?,
                    };
                    let value = match value.expr() {
                        // Nothing that is wanted is deeper.
                        Expression::Object(_) => return None,
                        value => self.value(value),
                    };
                    Some(Argument { name: name.to_owned(), line: self.line(key), value })
                });
                return Written::Object(fields.collect());
            }
            Expression::String(text) => Some(text.value().clone()),
            Expression::StringTemplate(template) => literal(template.iter()),
            Expression::HeredocTemplate(heredoc) => {
                let mut heredoc = heredoc.clone();
                heredoc.dedent();
                literal(heredoc.template.iter())
            }
            _ => None,
        };
        let written =
            || expression.span().and_then(|span| self.text.get(span)).unwrap_or_default().to_owned();
        text.map_or_else(|| Written::Expression(written()), Written::Text)
    }
}

/// The text of a template in which nothing is computed.
fn literal<'a>(mut elements: impl Iterator<Item = &'a Element>) -> Option<String> {
    elements.try_fold(String::new(), |text, element| Some(text + element.as_literal()?.as_str()))
}

fn json_blocks(file: &Struct) -> Vec<Block> {
    let mut blocks = Vec::new();
    for field in file.iter() {
        json_block(&field.label, field.line, &field.value, None, &mut blocks);
    }
    blocks
}

/// Takes in the blocks of one kind. Everywhere JSON has one object for a block, it may have a list of them.
fn json_block(kind: &str, line: usize, value: &Value, outer: Option<&str>, blocks: &mut Vec<Block>) {
    let Some(is_named) = has_name(outer, kind) else { return };
    for value in each(value) {
        let Some(fields) = value.as_struct() else { continue };
        if !is_named {
            blocks.push(json_body(kind, None, line, fields));
            continue;
        }
        for named in fields.iter() {
            let bodies = each(&named.value).iter().filter_map(Value::as_struct);
            blocks.extend(bodies.map(|body| json_body(kind, Some(named.label.clone()), named.line, body)));
        }
    }
}

fn each(value: &Value) -> &[Value] {
    if let Value::List(values) = value { values } else { std::slice::from_ref(value) }
}

fn json_body(kind: &str, name: Option<String>, line: usize, fields: &Struct) -> Block {
    let mut block = Block { kind: kind.to_owned(), name, line, arguments: Vec::new(), blocks: Vec::new() };
    for field in fields.iter() {
        if is_wanted(kind, &field.label) {
            let (name, value) = (field.label.clone(), json_value(&field.value));
            block.arguments.push(Argument { name, line: field.line, value });
        } else {
            json_block(&field.label, field.line, &field.value, Some(kind), &mut block.blocks);
        }
    }
    block
}

fn json_value(value: &Value) -> Written {
    match value {
        Value::Bool(value) => Written::Bool(*value),
        // Each string is a template.
        Value::String(text) if text.contains("${") || text.contains("%{") => {
            Written::Expression(text.clone())
        }
        Value::String(text) => Written::Text(text.clone()),
        Value::Struct(fields) => {
            let flat = fields.iter().filter(|field| field.value.as_struct().is_none());
            Written::Object(
                flat.map(|field| Argument {
                    name: field.label.clone(),
                    line: field.line,
                    value: json_value(&field.value),
                })
                .collect(),
            )
        }
        Value::Null | Value::Number(_) | Value::Bytes(_) | Value::List(_) => {
            Written::Expression(String::new())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(files: &[(&str, &str)]) -> TofuModule {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
        TofuModule::read(&files.collect())
    }

    /// File, line, name and source of each call.
    fn calls(module: &TofuModule) -> Vec<(&str, usize, &str, String)> {
        let call = |call: &'_ Call| call.source.to_string();
        module.calls.iter().map(|one| (one.file.as_str(), one.line, one.name.as_str(), call(one))).collect()
    }

    const MAIN: &str = r#"
# The whole of it.
terraform {
  required_version = ">= 1.6"
  required_providers {
    aws  = { source = "hashicorp/aws", version = "~> 5.0" }
    null = "~> 3.0"
  }
}

variable "name" {
  type        = string
  description = "What it is called"
}

variable "tags" {
  type = object({
    owner = optional(string, "nobody")
  })
  default   = null
  sensitive = true
  validation {
    condition     = var.tags != null
    error_message = "no"
  }
}

output "id" {
  description = <<-EOT
    The identifier,
      in full.
  EOT
  value = module.vpc.id
}

module "vpc" {
  source  = "modules.acme.example/acme/vpc/aws//sub/net"
  version = "~> 1.2"
  name    = var.name
}
"#;

    #[test]
    fn the_root_folder_says_how_the_module_is_used() {
        let module =
            read(&[("main.tf", MAIN), ("modules/a/main.tf", "variable \"inner\" {}\noutput \"inner\" {}")]);
        assert_eq!(module.warnings, []);
        assert_eq!(
            module.inputs_json(),
            json!([
                {"name": "name", "type": "string", "description": "What it is called", "required": true, "sensitive": false},
                {
                    "name": "tags",
                    "type": "object({\n    owner = optional(string, \"nobody\")\n  })",
                    "required": false,
                    "sensitive": true,
                },
            ])
        );
        let description = "The identifier,\n  in full.";
        assert_eq!(
            module.outputs_json(),
            json!([{"name": "id", "description": description, "sensitive": false}])
        );
        assert_eq!(
            module.providers_json(),
            json!([
                {"name": "aws", "source": "hashicorp/aws", "version": "~> 5.0"},
                {"name": "null", "version": "~> 3.0"},
            ])
        );
        assert_eq!(module.required_version.as_deref(), Some(">= 1.6"));
        let call = &module.calls[0];
        assert_eq!((call.line, call.name.as_str(), call.version.as_deref()), (36, "vpc", Some("~> 1.2")));
        let Source::Registry { address, subdir } = &call.source else { panic!("{call:?}") };
        assert_eq!(
            (address.to_string().as_str(), subdir.as_deref()),
            ("modules.acme.example/acme/vpc/aws", Some("sub/net"))
        );
    }

    #[test]
    fn json_says_the_same_as_hcl() {
        let json = r#"{
          "//": "a comment",
          "terraform": [{
            "required_version": ">= 1.6",
            "required_providers": {
              "aws": {"source": "hashicorp/aws", "version": "~> 5.0"},
              "null": "~> 3.0"
            }
          }],
          "variable": {
            "name": {"type": "string", "description": "What it is called"},
            "tags": [{"type": "object({\n    owner = optional(string, \"nobody\")\n  })", "default": null, "sensitive": true}]
          },
          "output": {"id": {"description": "The identifier,\n  in full.", "value": "${module.vpc.id}"}},
          "module": {
            "vpc": {"source": "modules.acme.example/acme/vpc/aws//sub/net", "version": "~> 1.2", "name": "${var.name}"}
          }
        }"#;
        let (mut hcl, mut json) = (read(&[("main.tf", MAIN)]), read(&[("main.tf.json", json)]));
        assert_eq!(json.calls[0].line, 16);
        for module in [&mut hcl, &mut json] {
            module.calls[0].file.clear();
            module.calls[0].line = 0;
        }
        assert_eq!(json, hcl);
    }

    #[test]
    fn calls_come_from_what_using_the_module_reaches() {
        let call = |name: &str, source: &str| format!("module \"{name}\" {{\n  source = \"{source}\"\n}}\n");
        let files = [
            ("main.tf", call("inner", "./inner")),
            ("main.tofu", call("other", "acme/other/aws")),
            ("inner/main.tf", call("up", "../lib//x/../")),
            ("lib/x.tf", call("round", "../inner") + &call("reached", "acme/reached/aws")),
            ("modules/sub/main.tf", call("sub", "acme/sub/aws")),
            ("modules/sub/nested/main.tf", call("nested", "acme/nested/aws")),
            ("modules/sub/examples/x/main.tf", call("no", "acme/no/aws")),
            ("modules/test-bed/main.tf", call("bed", "acme/bed/aws")),
            ("examples/x/main.tf", call("no", "acme/no/aws")),
            ("test/main.tf", call("no", "../../..")),
            ("unreached/main.tf", call("no", "acme/no/aws")),
            (".hidden.tf", call("no", "acme/no/aws")),
        ];
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let module = read(&files);
        assert_eq!((&module.warnings[..], &module.escapes[..]), (&[][..], &[][..]));
        assert_eq!(
            calls(&module),
            [
                ("main.tf", 1, "inner", "./inner".to_owned()),
                ("main.tofu", 1, "other", "acme/other/aws".to_owned()),
                ("modules/sub/main.tf", 1, "sub", "acme/sub/aws".to_owned()),
                ("modules/sub/nested/main.tf", 1, "nested", "acme/nested/aws".to_owned()),
                ("modules/test-bed/main.tf", 1, "bed", "acme/bed/aws".to_owned()),
                ("inner/main.tf", 1, "up", "../lib//x/../".to_owned()),
                ("lib/x.tf", 1, "round", "../inner".to_owned()),
                ("lib/x.tf", 4, "reached", "acme/reached/aws".to_owned()),
            ]
        );
        assert!(module.calls.iter().all(|call| call.scope == Scope::Always));
    }

    #[test]
    fn a_tofu_file_hides_the_tf_file_beside_it_but_for_its_calls() {
        let module = read(&[
            ("main.tf", "variable \"old\" {}\nmodule \"old\" {\n  source = \"acme/old/aws\"\n}"),
            ("main.tofu", "variable \"new\" {}\nmodule \"new\" {\n  source = \"acme/new/aws\"\n}"),
        ]);
        assert_eq!(module.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>(), ["new"]);
        assert_eq!(module.calls.len(), 2);
    }

    #[test]
    fn what_only_tests_call_is_marked() {
        let module = read(&[
            ("main.tf", ""),
            (
                "a.tftest.hcl",
                "run \"setup\" {\n  module {\n    source = \"acme/setup/aws\"\n    version = \"1.0.0\"\n  }\n}",
            ),
            (
                "tests/b.tofutest.hcl",
                "run \"b\" {\n  module {\n    source = \"./tests/bed\"\n  }\n}\nrun \"plain\" {}",
            ),
            ("tests/bed/main.tf", "module \"deep\" {\n  source = \"acme/deep/aws\"\n}"),
            ("tests/c.tftest.json", r#"{"run": {"c": {"module": {"source": "acme/c/aws"}}}}"#),
            ("examples/x/d.tftest.hcl", "run \"no\" {\n  module {\n    source = \"acme/no/aws\"\n  }\n}"),
        ]);
        assert_eq!(module.warnings, []);
        assert_eq!(
            calls(&module),
            [
                ("a.tftest.hcl", 2, "setup", "acme/setup/aws".to_owned()),
                ("tests/b.tofutest.hcl", 2, "b", "./tests/bed".to_owned()),
                ("tests/c.tftest.json", 1, "c", "acme/c/aws".to_owned()),
                ("tests/bed/main.tf", 1, "deep", "acme/deep/aws".to_owned()),
            ]
        );
        assert!(module.calls.iter().all(|call| call.scope == Scope::TestOnly));
    }

    #[test]
    fn a_source_that_leads_out_of_the_module_is_an_escape() {
        for source in ["../x", "..", "./a/../../x", "./modules/../..", "..\\\\x"] {
            let text = format!("module \"x\" {{\n  # why\n  source = \"{source}\"\n}}");
            let module = read(&[("main.tf", &text)]);
            assert_eq!(module.escapes.len(), 1, "{source}");
            assert_eq!((module.escapes[0].file.as_str(), module.escapes[0].line), ("main.tf", 3));
        }
        let module = read(&[("main.tf", ""), ("modules/a/x.tf", "module \"x\" {\n  source = \"../../\"\n}")]);
        assert_eq!(module.escapes, []);
    }

    #[test]
    fn sources_are_classified_as_opentofu_does() {
        for (source, is_registry) in [
            ("acme/vpc/aws", true),
            ("acme/vpc/aws//modules/x", true),
            ("registry.example.com:8443/acme/vpc/aws", true),
            ("github.com/acme/vpc", false),
            ("github.com/acme/vpc/aws", false),
            ("git::https://example.com/vpc.git?ref=v1", false),
            ("oci://example.com/vpc", false),
            ("/opt/modules/vpc", false),
            ("", false),
        ] {
            assert_eq!(matches!(Source::of(source), Source::Registry { .. }), is_registry, "{source}");
            assert_eq!(matches!(Source::of(source), Source::Remote(_)), !is_registry, "{source}");
        }
    }

    #[test]
    fn passwords_and_keys_are_left_out_of_remote_sources() {
        for (source, shown) in [
            ("git::https://user:secret@example.com/a.git?ref=v1", "git::https://example.com/a.git?ref=v1"),
            ("https://token@example.com/a@b.zip", "https://example.com/a@b.zip"),
            (
                "git::ssh://git@example.com/a.git?sshkey=c2VjcmV0&ref=v1&depth=1",
                "git::ssh://git@example.com/a.git?ref=v1&depth=1",
            ),
            ("s3::https://s3.example.com/a.zip?aws_access_key_secret=x", "s3::https://s3.example.com/a.zip"),
            ("git@github.com:acme/vpc.git", "git@github.com:acme/vpc.git"),
            ("https://user:secret@example.com", "https://example.com"),
        ] {
            assert_eq!(Source::of(source), Source::Remote(shown.to_owned()), "{source}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_a_warning_with_its_place() {
        let long = format!("a = {}", "(".repeat(100_000));
        let module = read(&[
            ("a.tf", "variable \"x\" {\n  type = \n}"),
            (
                "b.tf",
                "module \"x\" {\n  source = \"${var.x}\"\n}\nmodule \"y\" {\n}\nmodule \"z\" {\n  source = \"./missing\"\n}",
            ),
            ("c.tf.json", "{\"module\": {\n\"x\": {\"source\": \"${var.x}\"}}}"),
            ("d.tf.json", "[1"),
            ("e.tf", &long),
            ("f_override.tf", "module \"x\" {\n  version = \"1.0.0\"\n}"),
        ]);
        let shown: Vec<String> = module.warnings.iter().map(ToString::to_string).collect();
        let starts = [
            "a.tf:2: the file could not",
            "b.tf:2: the source of module `x`",
            "b.tf:4: module `y`",
            "b.tf:7: the source `./m",
        ];
        let starts =
            [&starts[..], &["c.tf.json:2: the source", "d.tf.json:1: the file", "e.tf:1: the file"][..]]
                .concat();
        assert_eq!(shown.len(), starts.len(), "{shown:#?}");
        for (shown, start) in shown.iter().zip(starts) {
            assert!(shown.starts_with(start) && shown.len() < 400, "{shown} / {start}");
        }
        let module = TofuModule::read(&BTreeMap::from([("a.tf".to_owned(), vec![0xff])]));
        assert_eq!(module.warnings[0].to_string(), "a.tf: the file is not UTF-8 and was not read");
    }

    #[test]
    fn a_byte_order_mark_and_windows_line_ends_do_not_matter() {
        let module = read(&[(
            "main.tf",
            "\u{feff}variable \"a\" {}\r\n\r\nmodule \"m\" {\r\n  source = \"a/b/c\"\r\n}\r\n",
        )]);
        assert_eq!((module.inputs.len(), module.calls[0].line, module.warnings.len()), (1, 3, 0));
    }

    #[test]
    fn the_number_of_blocks_is_limited() {
        let module =
            read(&[("main.tf", &"module \"m\" {\n  source = \"a/b/c\"\n}\n".repeat(MAX_BLOCKS + 5))]);
        assert_eq!((module.calls.len(), module.warnings.len()), (MAX_BLOCKS, 1));
        let keys: String =
            (0..=MAX_ASSIGNMENTS).fold(String::new(), |keys, number| keys + &format!("k{number}=1,"));
        let module = read(&[("main.tf", &format!("locals {{\n  a = {{{keys}}}\n}}"))]);
        assert!(module.warnings[0].message.contains("assignments"));
    }

    #[test]
    fn names_tell_which_files_are_wanted() {
        for name in [
            "main.tf",
            "a/b.tofu",
            "x.tf.json",
            "x.tofu.json",
            "t/x.tftest.hcl",
            "x.tofutest.json",
            "x.tftest.hcl.json",
        ] {
            assert!(is_tofu_file(name), "{name}");
        }
        for name in [
            "",
            "README.md",
            ".main.tf",
            "a/.x.tofu",
            "main.tf~",
            "#main.tf#",
            "x.tfvars",
            "x.hcl",
            "tf",
            "main.tf/x",
        ] {
            assert!(!is_tofu_file(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[\\PC\n\"{}$%=<>()\\[\\]]{0,200}", json in "[\\PC\"{}:,\\[\\]]{0,100}") {
            read(&[("a.tf", &text), ("a.tf.json", &json), ("a.tftest.hcl", &text)]);
        }
    }
}
