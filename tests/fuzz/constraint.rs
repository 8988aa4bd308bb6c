//! Version constraints, against a reading of their own and against `semver`, where the two languages say the same.

use super::{Target, assert_is_message, texts};
use crate::module::{Constraint, Version};

pub(super) const TARGET: Target = Target {
    name: "constraint",
    seeds: || {
        texts([
            "~> 1.2\n1.2.0\n1.9.9\n2.0.0",
            ">= 1, < 2\n1.0.0\n1.0.0+b\n2.0.0-rc.1",
            "= 1.3.0-rc.1\n1.3.0-rc.1\n1.3.0",
            "!= 1.0.0-rc.1, <=0.9.99\nv0.9.9",
            "~> 0.1, != 0.1.5\n0.1.4\n0.1.5",
            "=v1.2.0+meta.1\n1.2.0+meta.2",
            "> 18446744073709551615\n18446744073709551615.0.0",
            "~> 18446744073709551615.0\n18446744073709551615.18446744073709551615.0",
            "latest\n1.0.0",
            "1.0.0_build\n1.0.0",
            "1..0\n01.0.0",
        ])
    },
    words: &[
        "!=",
        ">=",
        "<=",
        "~>",
        "=",
        ">",
        "<",
        "^",
        ",",
        ", ",
        "v",
        ".0",
        "1.0.0",
        "-rc.1",
        "-0",
        "-01",
        "+b",
        "\n",
        ".x",
        "*",
        " ",
        "18446744073709551615",
    ],
    generate: None,
    max_length: 2048,
    run,
};

/// The first line is a constraint, the others are versions.
fn run(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.split('\n');
    let written = lines.next().unwrap_or_default();
    let versions: Vec<Version> = lines.filter_map(|line| Version::parse(line).ok()).collect();
    for version in &versions {
        assert_eq!(Version::parse(&version.to_string()).as_ref(), Ok(version), "printed and read again");
        assert_eq!(Version::parse(&format!("v{version}")).as_ref(), Ok(version), "with a `v`");
    }
    let constraint: Constraint = match written.parse() {
        Ok(constraint) => constraint,
        Err(error) => {
            assert_is_message(&error.to_string());
            return false;
        }
    };
    let printed = constraint.to_string();
    // Printed, it may be longer than what is read.
    if printed.len() > 1024 {
        return true;
    }
    assert_eq!(printed.parse::<Constraint>().as_ref(), Ok(&constraint), "`{printed}` printed and read again");
    for version in &versions {
        let matches = constraint.matches(version);
        assert_eq!(matches, expected(&printed, version), "`{printed}` and {version}");
        if let Some(exact) = constraint.exact() {
            assert_eq!(matches, exact.same_precedence(version), "`{printed}` and {version}");
        }
        assert!(Constraint::exactly(version).matches(version), "exactly {version}");
        assert!(!matches || !version.is_prerelease() || printed.contains('-'), "`{printed}` chose {version}");
    }
    let highest = constraint.highest(&versions);
    assert_eq!(highest.is_some(), versions.iter().any(|version| constraint.matches(version)));
    if let Some(highest) = highest {
        assert!(constraint.matches(highest), "`{printed}` chose {highest}");
        for version in versions.iter().filter(|version| constraint.matches(version)) {
            assert!(version.precedence(highest).is_le(), "`{printed}` chose {highest}, not {version}");
        }
    }
    true
}

/// What the constraint means, term by term.
fn expected(printed: &str, version: &Version) -> bool {
    let terms: Vec<&str> = printed.split(", ").collect();
    if version.is_prerelease() {
        // Only by its own name, and nothing beside.
        let [term] = terms[..] else { return false };
        let bare = term.split('+').next().unwrap_or_default();
        let (numbers, prerelease) = bare.split_once('-').unwrap_or((bare, ""));
        let padded =
            format!("{numbers}{}-{prerelease}", ".0".repeat(2 - numbers.matches('.').count().min(2)));
        return Version::parse(&padded).is_ok_and(|only| only.same_precedence(version));
    }
    terms.into_iter().all(|term| means(term, version))
}

fn means(term: &str, version: &Version) -> bool {
    let (operator, rest) = term.split_once(' ').unwrap_or(("=", term));
    let end = rest.find(['-', '+']).unwrap_or(rest.len());
    let written: Vec<&str> = rest[..end].split('.').collect();
    let padded = format!("{}{}{}", &rest[..end], ".0".repeat(3 - written.len()), &rest[end..]);
    if operator == "~>" {
        if padded.split('+').next().is_some_and(|bare| bare.contains('-')) {
            return false;
        }
        let numbers = version.numbers().map(|number| number.to_string());
        let fixed = written.len() - 1;
        return numbers[..fixed] == written[..fixed] && by_semver(">=", &padded, version);
    }
    if operator == "!=" { !by_semver("=", &padded, version) } else { by_semver(operator, &padded, version) }
}

/// For versions that are no pre-release, and a right side of three numbers, the two say the same.
fn by_semver(operator: &str, right: &str, version: &Version) -> bool {
    let bare = right.split('+').next().unwrap_or_default();
    let requirement =
        semver::VersionReq::parse(&format!("{operator}{bare}")).expect("a requirement of semver");
    requirement.matches(&semver::Version::parse(&version.to_string()).expect("a version of semver"))
}
