//! What a check finds: where, by which rule, and what to do about it.

use std::fmt;

use crate::archive::CheckError;

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The file within the module; absent where the whole is meant.
    pub file: Option<String>,
    /// The line in that file, from 1.
    pub line: Option<usize>,
    /// Name of the rule; names are not changed.
    pub rule: &'static str,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    /// A finding about the module as a whole.
    pub fn general(rule: &'static str, message: impl Into<String>) -> Self {
        Self { file: None, line: None, rule, message: message.into() }
    }

    /// What a check of a zip found; `name` is the zip.
    pub fn of_check(error: &CheckError, name: &str) -> Self {
        Self::general(error.rule(), format!("{name}: {error}"))
    }
}

impl fmt::Display for Finding {
    /// `file:line: message [rule]`
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(formatter, "{file}:")?;
            if let Some(line) = self.line {
                write!(formatter, "{line}:")?;
            }
            formatter.write_str(" ")?;
        }
        write!(formatter, "{} [{}]", self.message, self.rule)
    }
}
