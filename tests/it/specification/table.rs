//! Holds `docs/conformance.md` to the tests that it names, and the other way round.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::POINTS;

/// What the document puts between backticks and has `::` in it.
fn named() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    let spans = text.split('`').skip(1).step_by(2).filter(|span| span.contains("::"));
    // A span at the end of a command is no name.
    spans.filter(|span| !span.contains(char::is_whitespace)).map(str::to_owned).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Whether there is a test of that path, in the integration tests or beside the code.
fn is_a_test(path: &str) -> bool {
    let (modules, name) = path.rsplit_once("::").unwrap();
    let folders = modules.replace("::", "/");
    let beside = folders.strip_suffix("/tests").unwrap_or(&folders);
    let files = [
        format!("tests/it/{folders}.rs"),
        format!("tests/it/{folders}/mod.rs"),
        format!("src/{beside}.rs"),
        format!("src/{beside}/mod.rs"),
        format!("src/{beside}/tests.rs"),
    ];
    files.iter().filter_map(|file| fs::read_to_string(root().join(file)).ok()).any(|code| {
        let mut lines = code.lines().map(str::trim);
        let mut is_test = false;
        lines.any(|line| {
            let is_here = is_test && (line.contains(&format!("fn {name}()")));
            // Other attributes may stand between the two.
            is_test =
                line.starts_with("#[tokio::test") || line == "#[test]" || (is_test && line.starts_with("#["));
            is_here
        })
    })
}

#[test]
fn every_point_has_its_row_and_every_row_a_test() {
    let named = named();
    let points: BTreeSet<_> = POINTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(points.len(), POINTS.len(), "a point is there twice");
    let without_row: Vec<_> = points.difference(&named).collect();
    assert!(without_row.is_empty(), "docs/conformance.md does not name {without_row:?}");
    let without_test: Vec<_> = named.difference(&points).filter(|path| !is_a_test(path)).collect();
    assert!(without_test.is_empty(), "docs/conformance.md names what is no test: {without_test:?}");
}

#[test]
fn what_is_no_test_is_not_taken_for_one() {
    for none in
        ["limits::nothing", "nothing::at_all", "limits::serve", "store::store", "specification::check"]
    {
        assert!(!is_a_test(none), "{none}");
    }
    assert!(is_a_test("specification::table::every_point_has_its_row_and_every_row_a_test"));
}
