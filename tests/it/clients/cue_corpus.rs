//! Small modules, good and bad, over one filled registry: what `ocimod check` and `ocimod push -n` say of each, and what `cue` says.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::support::clients;
use crate::support::cue::{Cue, module};
use crate::support::docker_registry::DockerRegistry;
use crate::support::modules::write;
use crate::support::ocimod::Ocimod;
use crate::support::process::isolated;

/// A module: what it lists (`path version`, and `default` where it is one), and its files.
struct Case {
    name: &'static str,
    deps: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
}

/// What is in the registry: the path with its major version, the version, what it lists, and its files.
type Published = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [(&'static str, &'static str)],
);

const LEAF: &[(&str, &str)] = &[
    ("leaf.cue", "package leaf\n\nx: 1\n"),
    ("sub/sub.cue", "package sub\n\nx: 1\n"),
    ("sub/deeper/a.cue", "package sub\n\nz: 1\n"),
    ("two/a.cue", "package a\n\nx: 1\n"),
    ("two/b.cue", "package b\n\nx: 1\n"),
    ("hidden/_a.cue", "package hidden\n\nx: 1\n"),
    ("tools/only_tool.cue", "package tools\n\nx: 1\n"),
    ("leaf_tool.cue", "package leaf\n\nimport \"x.example/tool@v0\"\n\ncommand: t: tool.x\n"),
    ("conditional/a.cue", "@if(never)\n\npackage conditional\n\nx: 1\n"),
    ("cond.cue", "@if(never)\n\npackage leaf\n\nimport \"x.example/tool@v0\"\n\nc: tool.x\n"),
];

const PUBLISHED: &[Published] = &[
    ("x.example/tool@v0", "0.1.0", &[], &[("tool.cue", "package tool\n\nx: 1\n")]),
    ("x.example/leaf@v1", "1.0.0", &[("x.example/tool@v0", "v0.1.0")], LEAF),
    ("x.example/leaf@v1", "1.1.0", &[("x.example/tool@v0", "v0.1.0")], LEAF),
    (
        "x.example/leaf@v2",
        "2.0.0",
        &[],
        &[("leaf.cue", "package leaf\n\nx: 2\n"), ("new/new.cue", "package new\n\nx: 2\n")],
    ),
    (
        "x.example/mid@v1",
        "1.0.0",
        &[("x.example/leaf@v1", "v1.0.0")],
        &[("mid.cue", "package mid\n\nimport \"x.example/leaf@v1\"\n\nx: leaf.x\n")],
    ),
    (
        "x.example/side@v1",
        "1.0.0",
        &[("x.example/leaf@v1", "v1.1.0")],
        &[("side.cue", "package side\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    ),
    (
        "x.example/second@v0",
        "0.1.0",
        &[("x.example/leaf@v2", "v2.0.0")],
        &[("second.cue", "package second\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    ),
    (
        "x.example/amb@v0",
        "0.1.0",
        &[],
        &[("amb.cue", "package amb\n\nx: 1\n"), ("in/in.cue", "package in\n\nx: 1\n")],
    ),
    (
        "x.example/amb/in@v0",
        "0.1.0",
        &[],
        &[("in.cue", "package in\n\nx: 1\n"), ("more/more.cue", "package more\n\nx: 1\n")],
    ),
    ("main.example/m@v0", "0.1.0", &[], &[("old/old.cue", "package old\n\nx: 1\n")]),
    ("x.example/b-c@v0", "0.1.0", &[], &[("bc.cue", "package bc\n\nx: 1\n")]),
];

const CASES: &[Case] = &[
    Case { name: "nothing", deps: &[], files: &[("a.cue", "package a\n\nx: 1\n")] },
    Case { name: "no-package", deps: &[], files: &[("a.cue", "x: 1\n")] },
    Case {
        name: "standard",
        deps: &[],
        files: &[(
            "a.cue",
            "package a\n\nimport (\n\t\"list\"\n\t\"encoding/json\"\n)\n\nx: list.Max([1]) + len(json.Marshal(1))\n",
        )],
    },
    Case {
        name: "standard-unknown",
        deps: &[],
        files: &[("a.cue", "package a\n\nimport \"nothing/here\"\n\nx: here.y\n")],
    },
    Case {
        name: "direct",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf@v1\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "direct-without-major",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "without-package-clause",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "import \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "sub-package",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/sub\"\n\nx: sub.x\n")],
    },
    Case {
        name: "instance-below",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/sub/deeper:sub\"\n\nx: sub.x\n")],
    },
    Case {
        name: "wrong-package",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/sub:other\"\n\nx: other.x\n")],
    },
    Case {
        name: "implied-package-absent",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/two\"\n\nx: two.x\n")],
    },
    Case {
        name: "named-package",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/two:b\"\n\nx: b.x\n")],
    },
    Case {
        name: "folder-absent",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/none\"\n\nx: none.x\n")],
    },
    Case {
        name: "folder-with-hidden-files",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/hidden\"\n\nx: hidden.x\n")],
    },
    Case {
        name: "package-of-tools-alone",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/tools\"\n\nx: tools.x\n")],
    },
    Case {
        name: "not-listed",
        deps: &[],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf@v1\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "other-major-listed",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf@v2\"\n\nx: leaf.x\n")],
    },
    Case { name: "unused", deps: &["x.example/leaf@v1 v1.0.0"], files: &[("a.cue", "package a\n\nx: 1\n")] },
    Case {
        name: "unused-beside-used",
        deps: &["x.example/leaf@v1 v1.0.0", "x.example/tool@v0 v0.1.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "version-absent",
        deps: &["x.example/leaf@v1 v1.9.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "module-absent",
        deps: &["x.example/none@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/none\"\n\nx: none.x\n")],
    },
    Case {
        name: "transitive",
        deps: &["x.example/leaf@v1 v1.0.0", "x.example/mid@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/mid\"\n\nx: mid.x\n")],
    },
    Case {
        name: "transitive-not-listed",
        deps: &["x.example/mid@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/mid\"\n\nx: mid.x\n")],
    },
    Case {
        name: "transitive-later",
        deps: &["x.example/leaf@v1 v1.1.0", "x.example/mid@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/mid\"\n\nx: mid.x\n")],
    },
    Case {
        name: "transitive-earlier",
        deps: &["x.example/leaf@v1 v1.0.0", "x.example/side@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/side\"\n\nx: side.x\n")],
    },
    Case {
        name: "both-majors",
        deps: &["x.example/leaf@v1 v1.0.0", "x.example/leaf@v2 v2.0.0"],
        files: &[(
            "a.cue",
            "package a\n\nimport (\n\tone \"x.example/leaf@v1\"\n\ttwo \"x.example/leaf@v2\"\n)\n\nx: [one.x, two.x]\n",
        )],
    },
    Case {
        name: "both-majors-no-default",
        deps: &["x.example/leaf@v1 v1.0.0", "x.example/leaf@v2 v2.0.0"],
        files: &[(
            "a.cue",
            "package a\n\nimport (\n\t\"x.example/leaf\"\n\ttwo \"x.example/leaf@v2\"\n)\n\nx: [leaf.x, two.x]\n",
        )],
    },
    Case {
        name: "both-majors-default",
        deps: &["x.example/leaf@v1 v1.0.0 default", "x.example/leaf@v2 v2.0.0"],
        files: &[(
            "a.cue",
            "package a\n\nimport (\n\t\"x.example/leaf\"\n\ttwo \"x.example/leaf@v2\"\n)\n\nx: [leaf.x, two.x]\n",
        )],
    },
    Case {
        name: "default-of-the-unused",
        deps: &["x.example/leaf@v1 v1.0.0", "x.example/leaf@v2 v2.0.0 default"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "default-alone",
        deps: &["x.example/leaf@v2 v2.0.0 default"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "default-of-a-dependency",
        deps: &["x.example/leaf@v1 v1.0.0 default", "x.example/leaf@v2 v2.0.0", "x.example/second@v0 v0.1.0"],
        files: &[(
            "a.cue",
            "package a\n\nimport (\n\t\"x.example/leaf\"\n\t\"x.example/second\"\n)\n\nx: [leaf.x, second.x]\n",
        )],
    },
    Case {
        name: "tool-file",
        deps: &["x.example/leaf@v1 v1.0.0", "x.example/tool@v0 v0.1.0"],
        files: &[
            ("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n"),
            ("a_tool.cue", "package a\n\nimport \"x.example/tool\"\n\nt: tool.x\n"),
        ],
    },
    Case {
        name: "test-file",
        deps: &["x.example/tool@v0 v0.1.0"],
        files: &[("a_test.cue", "package a\n\nimport \"x.example/tool\"\n\nt: tool.x\n")],
    },
    Case {
        name: "conditional-file",
        deps: &["x.example/tool@v0 v0.1.0"],
        files: &[("a.cue", "@if(foo)\n\npackage a\n\nimport \"x.example/tool\"\n\nt: tool.x\n")],
    },
    Case {
        name: "ignored-file",
        deps: &[],
        files: &[("a.cue", "@ignore()\n\npackage a\n\nimport \"x.example/tool\"\n\nt: tool.x\n")],
    },
    Case {
        name: "ignored-file-with-entry",
        deps: &["x.example/tool@v0 v0.1.0"],
        files: &[("a.cue", "@ignore()\n\npackage a\n\nimport \"x.example/tool\"\n\nt: tool.x\n")],
    },
    Case {
        name: "hidden-files",
        deps: &[],
        files: &[
            ("a.cue", "x: 1\n"),
            ("_b.cue", "package a\n\nimport \"x.example/tool\"\n"),
            (".c.cue", "package a\n\nimport \"x.example/tool\"\n"),
            ("_d/d.cue", "package a\n\nimport \"x.example/tool\"\n"),
            (".e/e.cue", "package a\n\nimport \"x.example/tool\"\n"),
        ],
    },
    Case {
        name: "own-package",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"main.example/m/sub\"\n\nx: sub.x\n"),
            ("sub/sub.cue", "package sub\n\nx: 1\n"),
        ],
    },
    Case {
        name: "own-package-in-its-major",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"main.example/m/sub@v1\"\n\nx: sub.x\n"),
            ("sub/sub.cue", "package sub\n\nx: 1\n"),
        ],
    },
    Case {
        name: "own-package-absent",
        deps: &[],
        files: &[("a.cue", "package a\n\nimport \"main.example/m/sub\"\n\nx: sub.x\n")],
    },
    Case {
        name: "own-package-in-another-major",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"main.example/m/sub@v2\"\n\nx: sub.x\n"),
            ("sub/sub.cue", "package sub\n\nx: 1\n"),
        ],
    },
    Case {
        name: "own-package-leads-on",
        deps: &["x.example/tool@v0 v0.1.0"],
        files: &[
            ("a.cue", "package a\n\nimport \"main.example/m/sub\"\n\nx: sub.x\n"),
            ("sub/sub.cue", "package sub\n\nimport \"x.example/tool\"\n\nx: tool.x\n"),
        ],
    },
    Case {
        name: "nested-module",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nx: 1\n"),
            ("in/cue.mod/module.cue", "module: \"main.example/m/in@v0\"\nlanguage: version: \"v0.9.2\"\n"),
            ("in/a.cue", "package in\n\nimport \"x.example/tool\"\n"),
        ],
    },
    Case {
        name: "nested-module-imported",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"main.example/m/in\"\n\nx: in.x\n"),
            ("in/cue.mod/module.cue", "module: \"main.example/m/in@v0\"\nlanguage: version: \"v0.9.2\"\n"),
            ("in/a.cue", "package in\n\nx: 1\n"),
        ],
    },
    Case {
        name: "ambiguous",
        deps: &["x.example/amb/in@v0 v0.1.0", "x.example/amb@v0 v0.1.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/amb/in\"\n\nx: in.x\n")],
    },
    Case {
        name: "longer-path-alone",
        deps: &["x.example/amb/in@v0 v0.1.0", "x.example/amb@v0 v0.1.0"],
        files: &[(
            "a.cue",
            "package a\n\nimport (\n\t\"x.example/amb\"\n\t\"x.example/amb/in/more\"\n)\n\nx: [amb.x, more.x]\n",
        )],
    },
    Case {
        name: "no-name-in-the-path",
        deps: &["x.example/b-c@v0 v0.1.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/b-c:bc\"\n\nx: bc.x\n")],
    },
    Case {
        name: "no-name-given",
        deps: &["x.example/b-c@v0 v0.1.0"],
        files: &[("a.cue", "package a\n\nimport bc \"x.example/b-c\"\n\nx: bc.x\n")],
    },
    Case {
        name: "package-in-cue-mod",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"y.example/local\"\n\nx: local.x\n"),
            ("cue.mod/pkg/y.example/local/l.cue", "package local\n\nx: 1\n"),
        ],
    },
    Case {
        name: "package-in-cue-mod-and-listed",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[
            ("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n"),
            ("cue.mod/gen/x.example/leaf/l.cue", "package leaf\n\nx: 1\n"),
        ],
    },
    Case {
        name: "full-version-in-an-import",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf@v1.0.0\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "broken-behind-its-imports",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x {{{\n")],
    },
    Case {
        name: "several-import-clauses",
        deps: &["x.example/leaf@v1 v1.0.0", "x.example/tool@v0 v0.1.0"],
        files: &[(
            "a.cue",
            "// A comment.\n\npackage a // of a package\n\nimport \"x.example/leaf\" // one\nimport (\n\t// two\n\tother \"x.example/tool\"\n\t\"list\",\n)\n\nx: [leaf.x, other.x, list.Max([1])]\n",
        )],
    },
    Case { name: "no-cue-at-all", deps: &[], files: &[("README.md", "nothing\n")] },
    Case {
        name: "several-packages",
        deps: &["x.example/leaf@v1 v1.0.0", "x.example/tool@v0 v0.1.0"],
        files: &[
            ("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n"),
            ("b.cue", "package b\n\nimport \"x.example/tool\"\n\nx: tool.x\n"),
        ],
    },
    Case {
        name: "package-and-major",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/two@v1:b\"\n\nx: b.x\n")],
    },
    Case {
        name: "major-behind-the-package",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/two:b@v1\"\n\nx: b.x\n")],
    },
    Case {
        name: "package-underscore",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport l \"x.example/leaf:_\"\n\nx: l.x\n")],
    },
    Case {
        name: "relative",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"./sub\"\n\nx: sub.x\n"),
            ("sub/s.cue", "package sub\n\nx: 1\n"),
        ],
    },
    Case {
        name: "absolute",
        deps: &[],
        files: &[("a.cue", "package a\n\nimport \"/x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "trailing-slash",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport leaf \"x.example/leaf/\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "double-slash",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example//leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "dots-alone",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport leaf \"x.example/leaf/..\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "name-of-windows",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/con\"\n\nx: con.x\n")],
    },
    Case {
        name: "capital-letters",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"main.example/m/Sub\"\n\nx: Sub.x\n"),
            ("Sub/s.cue", "package Sub\n\nx: 1\n"),
        ],
    },
    Case {
        name: "other-letters",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"main.example/m/süb\"\n\nx: süb.x\n"),
            ("süb/s.cue", "package süb\n\nx: 1\n"),
        ],
    },
    Case {
        name: "imports-end-nowhere",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport (\n\t\"x.example/leaf\"\n")],
    },
    Case {
        name: "path-without-its-quote",
        deps: &[],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\n\nx: leaf.x\n")],
    },
    Case {
        name: "broken-before-its-imports",
        deps: &[],
        files: &[("a.cue", "package a\n}{\nimport \"x.example/tool\"\n")],
    },
    Case {
        name: "broken-between-its-imports",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n}{\nimport \"x.example/tool\"\n")],
    },
    Case {
        name: "import-behind-a-field",
        deps: &[],
        files: &[("a.cue", "package a\n\nx: 1\n\nimport \"x.example/tool\"\n")],
    },
    Case {
        name: "no-package-name",
        deps: &[],
        files: &[("a.cue", "package\n\nimport \"x.example/tool\"\n")],
    },
    Case {
        name: "semicolons",
        deps: &[],
        files: &[("a.cue", "package a; import \"x.example/tool\"; x: tool.x\n")],
    },
    Case {
        name: "path-with-an-escape",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/l\\u0065af\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "path-with-an-escape-of-none",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example\\/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "raw-path",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport #\"x.example/leaf\"#\n\nx: leaf.x\n")],
    },
    Case {
        name: "path-of-several-lines",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"\"\"\n\tx.example/leaf\n\t\"\"\"\n\nx: leaf.x\n")],
    },
    Case { name: "empty-path", deps: &[], files: &[("a.cue", "package a\n\nimport e \"\"\n\nx: e.x\n")] },
    Case { name: "nul-in-the-content", deps: &[], files: &[("a.cue", "package a\n\nx: 1\n\0\n")] },
    Case {
        name: "nul-before-the-imports",
        deps: &[],
        files: &[("a.cue", "package a\n\0\nimport \"x.example/tool\"\n")],
    },
    Case { name: "nul-without-a-package", deps: &[], files: &[("a.cue", "x: 1\n\0\n")] },
    Case {
        name: "byte-order-mark",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "\u{feff}package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "carriage-returns",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\r\n\r\nimport \"x.example/leaf\"\r\n\r\nx: leaf.x\r\n")],
    },
    Case {
        name: "conditional-package-of-a-dependency",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf/conditional\"\n\nx: conditional.x\n")],
    },
    Case {
        name: "package-in-a-hidden-folder",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"main.example/m/_d:d\"\n\nx: d.x\n"),
            ("_d/d.cue", "package d\n\nx: 1\n"),
        ],
    },
    Case {
        name: "package-in-a-folder-with-a-dot",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"main.example/m/.d:d\"\n\nx: d.x\n"),
            (".d/d.cue", "package d\n\nx: 1\n"),
        ],
    },
    Case {
        name: "package-in-usr",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"y.example/local\"\n\nx: local.x\n"),
            (
                "cue.mod/usr/y.example/local/l.cue",
                "package local\n\nimport \"y.example/more\"\n\nx: more.x\n",
            ),
            ("cue.mod/gen/y.example/more/m.cue", "package more\n\nx: 1\n"),
        ],
    },
    Case {
        name: "package-in-usr-leads-on",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[
            ("a.cue", "package a\n\nimport \"y.example/local\"\n\nx: local.x\n"),
            (
                "cue.mod/usr/y.example/local/l.cue",
                "package local\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n",
            ),
        ],
    },
    Case {
        name: "unused-package-in-pkg",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nx: 1\n"),
            ("cue.mod/pkg/y.example/local/l.cue", "package local\n\nimport \"x.example/leaf\"\n"),
        ],
    },
    Case {
        name: "unused-and-absent",
        deps: &["x.example/leaf@v1 v1.9.0"],
        files: &[("a.cue", "package a\n\nx: 1\n")],
    },
    Case {
        name: "module-of-another-path",
        deps: &["x.example/liar@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nimport l \"x.example/liar:leaf\"\n\nx: l.x\n")],
    },
    Case {
        name: "module-of-another-major",
        deps: &["x.example/leaf@v1 v1.7.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "lists-itself",
        deps: &["main.example/m@v1 v1.0.0"],
        files: &[("a.cue", "package a\n\nx: 1\n")],
    },
    Case {
        name: "lists-its-other-major",
        deps: &["main.example/m@v0 v0.1.0"],
        files: &[("a.cue", "package a\n\nimport \"main.example/m/old@v0\"\n\nx: old.x\n")],
    },
    Case {
        name: "vendored",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nx: 1\n"),
            ("cue.mod/vendor/x.example/tool/t.cue", "package tool\n\nimport \"x.example/none\"\n"),
        ],
    },
    Case {
        name: "folder-called-like-a-file",
        deps: &[],
        files: &[("a.cue", "package a\n\nx: 1\n"), ("b.cue/c.txt", "c\n")],
    },
    Case {
        name: "local-replacement",
        deps: &["x.example/leaf@v1 v1.0.0"],
        files: &[
            ("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n"),
            (
                "cue.mod/local-module.cue",
                "deps: \"x.example/leaf@v1\": {v: \"v1.0.0\", replaceWith: \"./mine\"}\n",
            ),
            ("mine/cue.mod/module.cue", "module: \"x.example/leaf@v1\"\nlanguage: version: \"v0.9.2\"\n"),
            ("mine/leaf.cue", "package leaf\n\nx: 3\n"),
        ],
    },
    // Module files.
    Case {
        name: "file-with-an-unknown-field",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\nowner: \"me\"\n",
        )],
    },
    Case {
        name: "file-without-language",
        deps: &[],
        files: &[("cue.mod/module.cue", "module: \"main.example/m@v1\"\nsource: kind: \"self\"\n")],
    },
    Case {
        name: "language-not-in-full",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v1\"\nlanguage: version: \"v0.9\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "language-before-modules",
        deps: &[],
        files: &[("cue.mod/module.cue", "module: \"main.example/m@v1\"\nlanguage: version: \"v0.7.0\"\n")],
    },
    Case {
        name: "language-without-source",
        deps: &[],
        files: &[("cue.mod/module.cue", "module: \"main.example/m@v1\"\nlanguage: version: \"v0.8.0\"\n")],
    },
    Case {
        name: "source-in-an-early-language",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v1\"\nlanguage: version: \"v0.8.0\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "language-to-come",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v1\"\nlanguage: version: \"v0.999.0\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "file-without-source",
        deps: &[],
        files: &[("cue.mod/module.cue", "module: \"main.example/m@v1\"\nlanguage: version: \"v0.9.2\"\n")],
    },
    Case {
        name: "source-of-no-kind",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"none\"\n",
        )],
    },
    Case {
        name: "source-git-without-git",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"git\"\n",
        )],
    },
    Case {
        name: "file-without-major",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "file-of-another-major",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v2\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "file-with-a-full-version",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v1.0.0\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "module-without-a-dot",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main/m@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "module-with-capital-letters",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/M@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "module-without-a-name",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n",
        )],
    },
    Case { name: "file-is-empty", deps: &[], files: &[("cue.mod/module.cue", "")] },
    Case { name: "file-is-no-cue", deps: &[], files: &[("cue.mod/module.cue", "module: {{{\n")] },
    Case {
        name: "file-has-a-package",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "package m\n\nmodule: \"main.example/m@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "file-computes",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/\" + \"m@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "file-contradicts-itself",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v1\"\nmodule: \"main.example/n@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "file-says-all-twice",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "module: \"main.example/m@v1\"\nmodule: \"main.example/m@v1\"\nlanguage: version: \"v0.9.2\"\nlanguage: {version: \"v0.9.2\"}\nsource: kind: \"self\"\n",
        )],
    },
    Case {
        name: "file-is-json",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "{\"module\": \"main.example/m@v1\", \"language\": {\"version\": \"v0.9.2\"}, \"source\": {\"kind\": \"self\"}}\n",
        )],
    },
    Case {
        name: "file-with-everything",
        deps: &[],
        files: &[(
            "cue.mod/module.cue",
            "// A module.\nmodule: \"main.example/m@v1\",\nlanguage: version: #\"v0.9.2\"#\nsource: {\n\tkind: \"self\" // self\n}\ndescription: \"\"\"\n\tA module\n\tof two lines\n\t\"\"\"\ncustom: \"a.example\": {x: [1, 0x10, true, null,], y: 'b'}\n@tag(x)\n_hidden: 1\n",
        )],
    },
    Case {
        name: "version-not-in-full",
        deps: &["x.example/leaf@v1 v1.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "version-of-another-major",
        deps: &["x.example/leaf@v1 v2.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "version-with-build-metadata",
        deps: &["x.example/leaf@v1 v1.0.0+b"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "entry-without-major",
        deps: &["x.example/leaf v1.0.0"],
        files: &[("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n")],
    },
    Case {
        name: "two-defaults",
        deps: &["x.example/leaf@v1 v1.0.0 default", "x.example/leaf@v2 v2.0.0 default"],
        files: &[(
            "a.cue",
            "package a\n\nimport (\n\tone \"x.example/leaf@v1\"\n\ttwo \"x.example/leaf@v2\"\n)\n\nx: [one.x, two.x]\n",
        )],
    },
    Case {
        name: "replacement-in-the-file",
        deps: &[],
        files: &[
            ("a.cue", "package a\n\nimport \"x.example/leaf\"\n\nx: leaf.x\n"),
            (
                "cue.mod/module.cue",
                "module: \"main.example/m@v1\"\nlanguage: version: \"v0.17.0\"\nsource: kind: \"self\"\ndeps: \"x.example/leaf@v1\": {v: \"v1.0.0\", replaceWith: \"./mine\"}\n",
            ),
        ],
    },
    // Files that no zip may hold.
    Case {
        name: "name-with-a-colon",
        deps: &[],
        files: &[("a.cue", "package a\n\nx: 1\n"), ("a:b.txt", "x\n")],
    },
    Case {
        name: "name-of-windows-among-the-files",
        deps: &[],
        files: &[("a.cue", "package a\n\nx: 1\n"), ("aux.txt", "x\n")],
    },
    Case {
        name: "names-that-fold",
        deps: &[],
        files: &[("a.cue", "package a\n\nx: 1\n"), ("A.cue", "package a\n\ny: 1\n")],
    },
];

/// Where `cue mod tidy --check` has no objection and `cue mod publish` does: `ocimod check` says what a push would say.
const AS_A_PUSH: &[&str] = &[
    "file-without-source",
    "source-git-without-git",
    "entry-without-major",
    "name-with-a-colon",
    "name-of-windows-among-the-files",
    "names-that-fold",
];

/// What ocimod refuses and `cue` passes over, by which rule, and why.
const OURS_ALONE: &[(&str, &str)] = &[
    // What is listed is not what minimal version selection over the listed modules gives: `side` needs a later version.
    ("transitive-earlier", "dependency-version"),
    // A zip of another module would be embedded under the name of the one that is listed.
    ("module-of-another-path", "dependency-other-module"),
    ("module-of-another-major", "dependency-other-module"),
];

/// What `cue` refuses and ocimod passes over, and why.
const CUES_ALONE: &[&str] = &[
    // Which languages there are, each `cue` knows for itself.
    "language-to-come",
    // What `cue.mod/local-module.cue` says is for this machine and not published, so it is not looked at.
    "local-replacement",
];

fn write_case(folder: &Path, case: &Case) {
    let mut file =
        "module: \"main.example/m@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"self\"\n".to_owned();
    for entry in case.deps {
        let mut words = entry.split(' ');
        let (path, version) = (words.next().unwrap(), words.next().unwrap());
        let default = if words.next().is_some() { ", default: true" } else { "" };
        writeln!(file, "deps: \"{path}\": {{v: \"{version}\"{default}}}").unwrap();
    }
    write(folder, &[("cue.mod/module.cue", &file)]);
    write(folder, case.files);
}

fn fill(ocimod: &Ocimod, registry: &str) {
    for (path, version, deps, files) in PUBLISHED {
        let folder = ocimod.folder(&format!("{}-{version}", path.replace('/', "-")));
        module(&folder, path, deps, files);
        let base = path.split('@').next().unwrap();
        ocimod.push(registry, &folder, &format!("cue:{base}@v{version}"), &["--deps", "none"]);
    }
    // What calls itself otherwise than it is called.
    let crane = clients::find("crane").expect("whoever has `cue` has `crane`");
    for (from, to) in [("leaf:v1.0.0", "liar:v1.0.0"), ("leaf:v2.0.0", "leaf:v1.7.0")] {
        let name = |module: &str| format!("{registry}/x.example/{module}");
        let copied = isolated(&crane, ocimod.home.path())
            .args(["copy", "--insecure", &name(from), &name(to)])
            .output();
        assert!(copied.unwrap().status.success());
    }
}

/// Whether every finding names its file, and its line where it is about one.
fn names_where(said: &str) -> bool {
    let about_the_whole =
        ["lacks", "does not say", "says `source: kind: \"git\"`", "has a NUL", "the name", "differ by case"];
    let mut findings = said.lines().filter(|line| line.ends_with(']')).peekable();
    findings.peek().is_some()
        && findings.all(|finding| {
            let (place, _) = finding.split_once(": ").unwrap_or_default();
            let is_line = place.rsplit_once(':').is_some_and(|(_, line)| line.parse::<usize>().is_ok());
            place.contains('.') && (is_line || about_the_whole.iter().any(|word| finding.contains(word)))
        })
}

#[test]
fn ocimod_and_cue_agree_about_every_module() {
    let (Some(cue), Some(registry)) = (Cue::new(), DockerRegistry::start()) else { return };
    let ocimod = Ocimod::new();
    fill(&ocimod, &registry.address);
    let (mut good, mut bad, mut differ) = (0, 0, Vec::new());
    for case in CASES {
        let folder = ocimod.folder(&format!("case-{}", case.name));
        write_case(&folder, case);
        let shown = folder.display().to_string();
        let tidy = cue.run(&registry.address, &folder, &["mod", "tidy", "--check"]);
        let publish = cue.run(&registry.address, &folder, &["mod", "publish", "--dry-run", "v1.0.0"]);
        let check = ocimod.run(["check", "--registry", &registry.address, &shown]);
        let push = ocimod.run(["push", "-n", "--registry", &registry.address, &shown, "--version", "1.0.0"]);
        let verdicts = [&tidy, &publish, &check, &push].map(|answer| answer.status == Some(0));
        let [tidied, published, ..] = verdicts;
        let alone = OURS_ALONE.iter().find(|(name, _)| *name == case.name);
        let expected = if alone.is_some() {
            [true, true, false, false]
        } else if CUES_ALONE.contains(&case.name) {
            [false, false, true, true]
        } else if AS_A_PUSH.contains(&case.name) {
            [true, false, false, false]
        } else {
            [tidied, published, tidied, published]
        };
        let is_said_well = check.status == Some(0) || names_where(&check.all());
        let by_rule = alone.is_none_or(|(_, rule)| check.all().contains(&format!("[{rule}]")));
        if verdicts != expected || !is_said_well || !by_rule {
            differ.push(format!(
                "{}: {verdicts:?}, expected {expected:?}\n-- tidy\n{}\n-- publish\n{}\n-- check\n{}\n-- push\n{}",
                case.name,
                tidy.all(),
                publish.all(),
                check.all(),
                push.all()
            ));
        }
        *(if published { &mut good } else { &mut bad }) += 1;
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
    assert!(good >= 30 && bad >= 40, "{good} {bad}");
}

/// `cue mod tidy` lists what any file in the folder imports, whether or not that is published; so that is no entry too many.
#[test]
fn files_that_are_not_published_count_as_they_do_for_cue() {
    let (Some(cue), Some(registry)) = (Cue::new(), DockerRegistry::start()) else { return };
    let ocimod = Ocimod::new();
    fill(&ocimod, &registry.address);
    let (ignored, linked) = (ocimod.folder("ignored"), ocimod.folder("linked"));
    let importing = "package a\n\nimport \"x.example/tool\"\n\nt: tool.x\n";
    let text = |kind: &str, deps: &str| {
        format!(
            "module: \"main.example/m@v1\"\nlanguage: version: \"v0.9.2\"\nsource: kind: \"{kind}\"\n{deps}"
        )
    };
    let tool = "deps: \"x.example/tool@v0\": v: \"v0.1.0\"\n";
    write(&ignored, &[(".gitignore", "gen.cue\n"), ("a.cue", "package a\n\nx: 1\n"), ("gen.cue", importing)]);
    write(&linked, &[("a.cue", "package a\n\nx: 1\n")]);
    let outside = ocimod.home.path().join("outside.cue");
    std::fs::write(&outside, importing).unwrap();
    std::os::unix::fs::symlink(&outside, linked.join("link.cue")).unwrap();
    let git = |arguments: &[&str]| {
        let mut command = isolated(Path::new("git"), ocimod.home.path());
        command.current_dir(&ignored).args(["-c", "user.name=A", "-c", "user.email=a@example.com"]);
        assert!(command.args(arguments).output().unwrap().status.success(), "{arguments:?}");
    };
    git(&["init", "-q"]);
    for (folder, kind) in [(&ignored, "git"), (&linked, "self")] {
        for (deps, is_good) in [(tool, true), ("", false)] {
            write(folder, &[("cue.mod/module.cue", &text(kind, deps))]);
            if kind == "git" {
                git(&["add", "-A"]);
                git(&["commit", "-q", "-m", "x"]);
            }
            let shown = folder.display().to_string();
            let tidy = cue.run(&registry.address, folder, &["mod", "tidy", "--check"]);
            let publish = cue.run(&registry.address, folder, &["mod", "publish", "--dry-run", "v1.0.0"]);
            let check = ocimod.run(["check", "--registry", &registry.address, &shown]);
            let push =
                ocimod.run(["push", "-n", "--registry", &registry.address, &shown, "--version", "1.0.0"]);
            for answer in [&tidy, &publish, &check, &push] {
                assert_eq!(answer.status == Some(0), is_good, "{kind} {deps}: {}", answer.all());
            }
            assert!(!push.stdout.contains("gen.cue") && !push.stdout.contains("link.cue"), "{}", push.stdout);
        }
    }
}

#[test]
fn the_zip_has_the_files_that_cue_would_publish() {
    let (Some(cue), Some(registry)) = (Cue::new(), DockerRegistry::start()) else { return };
    let ocimod = Ocimod::new();
    fill(&ocimod, &registry.address);
    let mut compared = 0;
    for case in CASES {
        let folder = ocimod.folder(&format!("case-{}", case.name));
        write_case(&folder, case);
        write(
            &folder,
            &[
                ("README.md", "a module\n"),
                ("vendor/x.txt", "x\n"),
                (".gitignore", "x\n"),
                ("cue.mod/vendor/v", "v\n"),
            ],
        );
        let publish = cue.run(&registry.address, &folder, &["mod", "publish", "--json", "v1.0.0"]);
        if publish.status != Some(0) || OURS_ALONE.iter().any(|(name, _)| *name == case.name) {
            continue;
        }
        let mut theirs: Vec<String> =
            publish.json()["files"].as_array().unwrap().iter().map(file_name).collect();
        let zip = ocimod.home.path().join(format!("{}.zip", case.name));
        let shown = folder.display().to_string();
        let packed = [
            "pack",
            "--registry",
            &registry.address,
            &shown,
            "cue:main.example/m@v1.0.0",
            "-o",
            &zip.display().to_string(),
        ];
        ocimod.run(packed).success();
        let file = std::fs::File::open(&zip).unwrap();
        let size = file.metadata().unwrap().len();
        let listing = ocimod::archive::check_content(file, size, None).unwrap();
        let mut ours: Vec<String> = listing.entries.into_iter().map(|entry| entry.name).collect();
        theirs.sort();
        ours.sort();
        assert_eq!(ours, theirs, "{}", case.name);
        compared += 1;
    }
    assert!(compared >= 30, "{compared}");
}

#[test]
fn what_is_refused_here_alone_is_written_down() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cue.md")).unwrap();
    let (_, section) = page.split_once("### Where the two differ").expect("the page has the section");
    let (section, _) = section.split_once("\n## ").expect("others follow");
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let rule = cells.next()?.trim_matches('`').to_owned();
        (cells.next()? == "refused").then_some(rule)
    });
    let written: BTreeSet<String> = rows.collect();
    let known: BTreeSet<String> = OURS_ALONE.iter().map(|(_, rule)| (*rule).to_owned()).collect();
    assert_eq!(written, known);
}

fn file_name(entry: &Value) -> String {
    entry.as_str().map_or_else(|| entry["path"].as_str().unwrap_or_default().to_owned(), str::to_owned)
}
