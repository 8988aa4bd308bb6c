//! Version constraints by the rules of OpenTofu's and Terraform's module installer.
//!
//! They differ from those of other ecosystems: `= 1.0` means 1.0.0 alone, `~> 1` has no upper end, and a pre-release is chosen
//! only where the whole constraint is that one exact version.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::version::Version;

/// Longer texts are nobody's constraint.
const MAX_LENGTH: usize = 1024;

/// Conditions that a version has to meet, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    operator: Operator,
    version: Version,
    /// How many of the three numbers were written; `~>` leaves the last of them open.
    written: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Pessimistic,
}

/// Longer spellings first, so that none is taken for its own beginning.
const OPERATORS: [(&str, Operator); 7] = [
    ("!=", Operator::NotEqual),
    (">=", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("~>", Operator::Pessimistic),
    ("=", Operator::Equal),
    (">", Operator::Greater),
    ("<", Operator::Less),
];

/// The text is no constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// Nothing stands there, or nothing stands between two commas.
    #[error(
        "the version constraint is empty; write for example `~> 1.2`, in quotes, since a shell takes `>` for itself"
    )]
    Empty,
    /// A part cannot be read.
    #[error("`{0}` is not a version constraint; write for example `1.2.0`, `~> 1.2` or `>= 1.2, < 2.0`")]
    Malformed(String),
}

impl Constraint {
    /// What every version that is no pre-release meets.
    pub fn any() -> Self {
        Self { terms: Vec::new() }
    }

    /// What only this version meets, its build metadata aside.
    pub fn exactly(version: &Version) -> Self {
        Self { terms: vec![Term { operator: Operator::Equal, version: version.clone(), written: 3 }] }
    }

    /// Whether this is [`Constraint::any`].
    pub fn is_any(&self) -> bool {
        self.terms.is_empty()
    }

    /// The one version that is asked for, where it is written with all three numbers and nothing else.
    pub fn exact(&self) -> Option<Version> {
        match &self.terms[..] {
            [Term { operator: Operator::Equal, version, written: 3 }] => Some(version.clone()),
            _ => None,
        }
    }

    /// Whether a version may be chosen. OpenTofu finds no pre-release where a blank stands behind the `=`, which is an accident of
    /// its parser; here `= 1.3.0-rc.1` means what it says.
    pub fn matches(&self, version: &Version) -> bool {
        if version.is_prerelease() {
            return matches!(&self.terms[..], [Term { operator: Operator::Equal, version: only, .. }]
                if only.same_precedence(version));
        }
        self.terms.iter().all(|term| term.matches(version))
    }

    /// The highest version that may be chosen. Of those that differ in build metadata alone, the one that was asked for with it,
    /// else the first, as the clients do.
    pub fn highest<'a>(&self, versions: impl IntoIterator<Item = &'a Version>) -> Option<&'a Version> {
        let exact = self.exact();
        let mut highest: Option<&Version> = None;
        for version in versions.into_iter().filter(|version| self.matches(version)) {
            if exact.as_ref() == Some(version) {
                return Some(version);
            }
            if highest.is_none_or(|known| version.precedence(known) == Ordering::Greater) {
                highest = Some(version);
            }
        }
        highest
    }
}

impl Term {
    /// `version` is no pre-release.
    fn matches(&self, version: &Version) -> bool {
        let order = version.precedence(&self.version);
        match self.operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => order != Ordering::Greater,
            Operator::Pessimistic => {
                let fixed = self.written - 1;
                // With a pre-release on the right, `~>` is about pre-releases, and those are never chosen by it.
                !self.version.is_prerelease()
                    && order != Ordering::Less
                    && version.numbers()[..fixed] == self.version.numbers()[..fixed]
            }
        }
    }
}

impl FromStr for Constraint {
    type Err = ConstraintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Err(ConstraintError::Empty);
        }
        if text.len() > MAX_LENGTH {
            return Err(ConstraintError::Malformed(text.chars().take(64).collect::<String>() + "..."));
        }
        let terms = text.split(',').map(|part| {
            let part = part.trim();
            if part.is_empty() { Err(ConstraintError::Empty) } else { Term::parse(part) }
        });
        Ok(Self { terms: terms.collect::<Result<_, _>>()? })
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, ConstraintError> {
        let malformed = || ConstraintError::Malformed(text.to_owned());
        let (operator, rest) = OPERATORS
            .iter()
            .find_map(|(spelling, operator)| {
                text.strip_prefix(spelling).map(|rest| (*operator, rest.trim_start()))
            })
            .unwrap_or((Operator::Equal, text));
        let bare = rest.strip_prefix('v').unwrap_or(rest);
        // Missing numbers are zeros, and stand before what follows a `-` or `+`.
        let end = bare.find(['-', '+']).unwrap_or(bare.len());
        let (numbers, more) = bare.split_at(end);
        let written = numbers.split('.').count();
        if written > 3 {
            return Err(malformed());
        }
        let padded = format!("{numbers}{}{more}", ".0".repeat(3 - written));
        // `Version::parse` takes a `v` of its own, and one is enough.
        let is_number = numbers.starts_with(|first: char| first.is_ascii_digit());
        let version = Version::parse(&padded).ok().filter(|_| is_number).ok_or_else(malformed)?;
        Ok(Self { operator, version, written })
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return formatter.write_str("any version");
        }
        for (index, term) in self.terms.iter().enumerate() {
            if index > 0 {
                formatter.write_str(", ")?;
            }
            let spelling = OPERATORS.iter().find(|(_, operator)| *operator == term.operator);
            match (term.operator, spelling) {
                (Operator::Equal, _) | (_, None) => {}
                (_, Some((spelling, _))) => write!(formatter, "{spelling} ")?,
            }
            let text = term.version.to_string();
            let zeros = ".0".repeat(3 - term.written);
            let numbers = term.version.numbers().map(|number| number.to_string()).join(".");
            let written = numbers.strip_suffix(&zeros).unwrap_or(&numbers);
            write!(formatter, "{written}{}", &text[numbers.len()..])?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(constraint: &str, version: &str) -> bool {
        constraint.parse::<Constraint>().unwrap().matches(&Version::parse(version).unwrap())
    }

    #[test]
    fn every_operator_means_what_it_means_to_opentofu() {
        for (constraint, yes, no) in [
            ("1.0", &["1.0.0", "1.0.0+b"][..], &["1.0.1", "1.1.0"][..]),
            ("= v1.2.0", &["1.2.0"], &["1.2.1"]),
            ("!= 1.0", &["1.0.1"], &["1.0.0", "1.0.0+b"]),
            ("> 1.2", &["1.2.1", "2.0.0"], &["1.2.0"]),
            (">= 1, < 2", &["1.0.0", "1.99.0"], &["2.0.0", "0.9.0"]),
            ("<=1.2.3", &["1.2.3", "0.0.1"], &["1.2.4"]),
            ("~> 1.2", &["1.2.0", "1.9.0"], &["2.0.0", "1.1.9"]),
            ("~> 1.2.3", &["1.2.3", "1.2.9"], &["1.3.0", "1.2.2"]),
            ("~> 1", &["1.0.0", "2.0.0"], &["0.9.0"]),
            ("~> 0.1, != 0.1.5", &["0.1.4", "0.2.0"], &["0.1.5", "1.0.0"]),
        ] {
            for version in yes {
                assert!(matches(constraint, version), "{constraint} {version}");
            }
            for version in no {
                assert!(!matches(constraint, version), "{constraint} {version}");
            }
        }
    }

    #[test]
    fn a_pre_release_is_chosen_only_by_its_exact_version() {
        for constraint in ["1.3.0-rc.1", "= 1.3.0-rc.1", "=v1.3.0-rc.1", "1.3-rc.1"] {
            assert!(matches(constraint, "1.3.0-rc.1"), "{constraint}");
            assert!(!matches(constraint, "1.3.0"), "{constraint}");
        }
        for constraint in [">= 1.3.0-beta.1", "~> 1.3.0-rc.1", "!= 1.0", "1.3.0-rc.1, >= 1.0", "> 1.0", "1.3"]
        {
            assert!(!matches(constraint, "1.3.0-rc.1"), "{constraint}");
        }
        assert!(!Constraint::any().matches(&Version::parse("1.0.0-a").unwrap()));
        assert!(matches(">= 1.3.0-beta.1", "1.3.0"));
    }

    #[test]
    fn what_is_no_constraint_is_refused() {
        for text in [
            "",
            " ",
            ",",
            "1.0,",
            "latest",
            "^1.0",
            "1.x",
            "~>",
            ">= ",
            "=> 1.0",
            "1.2.3.4",
            "vv1.0",
            "1..0",
            "-1",
            "1.0 2.0",
            "~> 1.2 < 2",
            "1.-1",
        ] {
            assert!(text.parse::<Constraint>().is_err(), "{text:?}");
        }
        assert!("1,".repeat(1000).parse::<Constraint>().is_err());
    }

    #[test]
    fn the_highest_is_chosen_whatever_the_order() {
        let versions: Vec<_> = ["1.0.0", "2.0.0", "1.10.0", "1.9.0", "1.11.0-rc.1"]
            .iter()
            .map(|text| Version::parse(text).unwrap())
            .collect();
        let highest = |constraint: &str| {
            constraint.parse::<Constraint>().unwrap().highest(&versions).map(ToString::to_string)
        };
        assert_eq!(highest("~> 1.0").as_deref(), Some("1.10.0"));
        assert_eq!(highest("< 1.0"), None);
        assert_eq!(Constraint::any().highest(&versions).map(ToString::to_string).as_deref(), Some("2.0.0"));
    }

    #[test]
    fn of_equal_versions_the_one_asked_for_else_the_first_is_chosen() {
        let versions = ["2.0.0+b.1", "2.0.0+b.2"].map(|text| Version::parse(text).unwrap());
        let highest = |constraint: &str| {
            constraint.parse::<Constraint>().unwrap().highest(&versions).unwrap().to_string()
        };
        assert_eq!(highest("2.0.0"), "2.0.0+b.1");
        assert_eq!(highest("2.0.0+b.2"), "2.0.0+b.2");
    }

    #[test]
    fn constraints_are_shown_as_they_were_meant() {
        for text in ["1.2.0", "~> 1.2", ">= 1, < 2", "!= 1.0.0-rc.1", "1.2.0+b", "~> 10.0"] {
            assert_eq!(text.parse::<Constraint>().unwrap().to_string(), text);
        }
        assert_eq!("=v1.2.0".parse::<Constraint>().unwrap().to_string(), "1.2.0");
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(text in "\\PC*") {
            let _ = text.parse::<Constraint>();
        }

        #[test]
        fn comparisons_agree_with_a_naive_model(
            (major, minor, patch) in (0..3u64, 0..3u64, 0..3u64),
            (a, b, c) in (0..3u64, 0..3u64, 0..3u64),
            written in 1..=3usize,
            operator in 0..OPERATORS.len(),
        ) {
            let text = [a, b, c][..written].iter().map(u64::to_string).collect::<Vec<_>>().join(".");
            let constraint: Constraint = format!("{} {text}", OPERATORS[operator].0).parse().unwrap();
            let mut right = [a, b, c];
            right[written..].fill(0);
            let left = [major, minor, patch];
            let expected = match OPERATORS[operator].0 {
                "=" => left == right,
                "!=" => left != right,
                ">" => left > right,
                ">=" => left >= right,
                "<" => left < right,
                "<=" => left <= right,
                _ => left >= right && left[..written - 1] == right[..written - 1],
            };
            prop_assert_eq!(constraint.matches(&Version::new(major, minor, patch)), expected);
        }
    }
}
