//! Module files: what is taken is taken again when it is written by ourselves, and JSON is read as what it is.

use serde_json::{Map, Value as Json, json};

use super::cue_data::{self, WrittenFile};
use super::{ModuleFile, SourceKind};
use crate::fuzz::{Target, assert_is_message, texts};

pub(crate) const TARGET: Target = Target {
    name: "module_file",
    seeds: || {
        let mut seeds = texts([
            "module: \"acme.example/stack@v1\"\nlanguage: {\n\tversion: \"v0.9.2\"\n}\nsource: {\n\tkind: \"self\"\n}\ndeps: {\n\t\"acme.example/label@v1\": {\n\t\tv: \"v1.0.0\"\n\t}\n}\n",
            "module: \"a.b/c@v0\", language: version: \"v0.17.0\", source: kind: \"git\"\ndescription: \"\"\"\n\ttwo\n\t lines\n\t\"\"\"\ndeps: \"a.b/d@v2\": {v: \"v2.0.0-rc.1\", default: true, replaceWith: \"../d\"}",
            "\u{feff}// comment\n@extern(\"x\")\nmodule: \"a.b\" @tag(a, \"b\", [c])\nlanguage: version: \"v0.8.0\"\n_hidden: 1\ncustom: tool: {a: null, b: [1, -2.5e3, 0x1F, 0b11, 0o17, 1Ki, 1_000], c: 'b\\x00\\377', d: #\"raw \\#n\"#}",
            "{\"module\": \"a.b/c@v1\", \"language\": {\"version\": \"v0.9.0\"}, \"custom\": {\"x\": {\"y\": \"\\ud83d\\ude00\\/\\u0000\"}}}",
            "module: \"a.b/c@v1\"\nlanguage: version: \"v0.9.0\"\nmodule: \"a.b/c@v1\"\nlanguage: {version: \"v0.9.0\"}\n",
            "module: \"a.b/c@v1\"\nlanguage: version: \"v0.9.0\"\ncustom: ocimod: {\n\tgenerated: true\n\taddress: \"A/b/c\"\n\tdependencies: [\"a.b/d@v1.0.0\"]\n\tinputs: [{name: \"x\"}]\n}\n",
            "module: \"a.b/c\\(x)\"\nlanguage: version: string",
            "import \"x\"\nmodule: x & y",
            "[[[[[[[[[[[[[[[[",
            "a: b: c: d: {{{{{{",
            "'''\n\t'''",
        ]);
        seeds.push(include_bytes!("../../docs/examples/cue-stack/cue.mod/module.cue").to_vec());
        seeds
    },
    words: &[
        "module:",
        "language:",
        "version:",
        "source:",
        "kind:",
        "deps:",
        "custom:",
        "ocimod:",
        "description:",
        "v:",
        "default:",
        "replaceWith:",
        "generated:",
        "address:",
        "dependencies:",
        "inputs:",
        "\"self\"",
        "\"git\"",
        "true",
        "false",
        "null",
        "\"a.b/c@v1\"",
        "\"v0.9.0\"",
        "\"v1.0.0\"",
        "\"\"\"\n",
        "'''\n",
        "#\"",
        "\"#",
        "\\#(",
        "\\(",
        "\\u",
        "\\U0001F600",
        "\\ud83d\\ude00",
        "\\x",
        "\\377",
        "//",
        "@a(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "?:",
        "!:",
        "...",
        "_a",
        "#a",
        "__a",
        "1_000",
        "0x",
        "0b1",
        "0o7",
        "1.5Mi",
        "1e999",
        ".5",
        "+1",
        "-",
        "let",
        "package",
    ],
    generate: None,
    max_length: 16 * 1024,
    run,
};

fn run(input: &[u8]) -> bool {
    let strict = ModuleFile::parse(input, true);
    let lenient = ModuleFile::parse(input, false);
    if let Ok(json) = serde_json::from_slice::<Json>(input) {
        assert_is_json(input, &json);
    }
    for error in [&strict, &lenient].into_iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert_is_message(&error.to_string());
        let lines = input.split(|byte| *byte == b'\n').count();
        assert!(
            error.line().is_none_or(|line| (1..=lines).contains(&line)),
            "{error}: there are {lines} lines"
        );
    }
    if let Ok(file) = &strict {
        assert_eq!(lenient.as_ref(), Ok(file), "what is right for publishing is right");
        let written = write(file);
        let again =
            ModuleFile::parse(written.as_bytes(), true).unwrap_or_else(|error| panic!("{error}: {written}"));
        assert_same(file, &again, &written);
        assert_eq!(write(&again), written, "written twice");
    }
    if let Ok(file) = &lenient {
        let written = write(file);
        let again =
            ModuleFile::parse(written.as_bytes(), false).unwrap_or_else(|error| panic!("{error}: {written}"));
        assert_same(file, &again, &written);
    }
    strict.is_ok()
}

fn assert_same(file: &ModuleFile, again: &ModuleFile, written: &str) {
    let said = |file: &ModuleFile| {
        let deps = file.deps.iter().map(|dep| format!("{} {} {}", dep.path, dep.version, dep.default));
        (
            (file.module.clone(), file.language_version.clone(), file.source_kind, file.description.clone()),
            deps.collect::<Vec<_>>(),
            file.custom.keys().cloned().collect::<Vec<_>>(),
            file.custom_ocimod().map(|own| {
                (
                    own.is_generated(),
                    own.address().map(str::to_owned),
                    own.dependencies().to_vec(),
                    own.inputs(),
                )
            }),
        )
    };
    assert_eq!(said(file), said(again), "{written}");
}

/// The file as JSON's data, in the form of `cue fmt`.
fn write(file: &ModuleFile) -> String {
    let mut fields = Map::new();
    fields.insert("module".to_owned(), json!(file.module.to_string()));
    fields.insert("language".to_owned(), json!({ "version": format!("v{}", file.language_version) }));
    if let Some(kind) = file.source_kind {
        let kind = if kind == SourceKind::Itself { "self" } else { "git" };
        fields.insert("source".to_owned(), json!({ "kind": kind }));
    }
    if let Some(description) = &file.description {
        fields.insert("description".to_owned(), json!(description));
    }
    let deps = file.deps.iter().map(|dep| {
        let mut fields = Map::new();
        fields.insert("v".to_owned(), json!(format!("v{}", dep.version)));
        if dep.default {
            fields.insert("default".to_owned(), json!(true));
        }
        (dep.path.to_string(), Json::Object(fields))
    });
    fields.insert("deps".to_owned(), Json::Object(deps.collect()));
    let custom = file.custom.iter().map(|(namespace, value)| (namespace.clone(), value.to_json()));
    fields.insert("custom".to_owned(), Json::Object(custom.collect()));
    WrittenFile(&fields).to_string()
}

/// A JSON object is CUE, and the same in both. Save what JSON says twice: there the last one counts, while CUE wants them to agree.
fn assert_is_json(input: &[u8], json: &Json) {
    let text = std::str::from_utf8(input).expect("JSON is UTF-8");
    // What CUE does not take in a string, a carriage return between lines aside.
    if !json.is_object() || text.contains(['\u{feff}', '\u{7f}', '\r']) || has_twice(input) {
        return;
    }
    match cue_data::parse(text) {
        Ok(read) => {
            let read: Map<String, Json> =
                read.iter().map(|field| (field.label.clone(), field.value.to_json())).collect();
            assert!(same(&Json::Object(read.clone()), json), "{} is {json}", Json::Object(read));
        }
        Err(error) => panic!("JSON is not read: {error}"),
    }
}

/// Whether some object has a name twice: then what is left of it is shorter.
fn has_twice(input: &[u8]) -> bool {
    fn names(value: &Json) -> usize {
        match value {
            Json::Array(values) => values.iter().map(names).sum(),
            Json::Object(fields) => fields.len() + fields.values().map(names).sum::<usize>(),
            _ => 0,
        }
    }
    let (mut colons, mut quoted, mut escaped) = (0, false, false);
    for byte in input {
        match byte {
            b'"' if !escaped => quoted = !quoted,
            b':' if !quoted => colons += 1,
            _ => {}
        }
        escaped = *byte == b'\\' && !escaped;
    }
    serde_json::from_slice(input).is_ok_and(|json: Json| names(&json) != colons)
}

/// Numbers are compared as such: the two do not agree on when one is whole.
fn same(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Json::Object(one), Json::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| same(value, other)))
        }
        (Json::Number(one), Json::Number(other)) => {
            one == other
                || one
                    .as_f64()
                    .zip(other.as_f64())
                    .is_some_and(|(one, other)| (one - other).abs() <= f64::EPSILON * one.abs())
        }
        _ => one == other,
    }
}
