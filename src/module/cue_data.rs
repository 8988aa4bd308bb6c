//! Reads and writes CUE that is nothing but data: fields, strings, numbers, lists, structs, comments and attributes.
//!
//! Module files are such data, and evaluating the whole language for them would be of no use: `cue` itself refuses everything
//! else there. JSON documents are read too, since they are CUE. Depth and number of values are limited, and the time is linear
//! in the text, so any text may be read.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Deeper nesting is nobody's data and could exhaust the stack.
const MAX_DEPTH: usize = 128;
/// More values are nobody's data and take a multiple of the text's size in memory.
const MAX_VALUES: usize = 200_000;

/// A value of data-only CUE.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number: whole ones in decimal, others as written without `_`.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// `'...'`, unescaped.
    Bytes(Vec<u8>),
    /// `[...]`.
    List(Vec<Value>),
    /// `{...}`.
    Struct(Struct),
}

/// A struct: fields in the order in which they were first written.
#[derive(Clone, Debug, Default)]
pub struct Struct {
    fields: Vec<Field>,
    places: BTreeMap<String, usize>,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its label, without quotes.
    pub label: String,
    /// Where it was first written, from 1.
    pub line: usize,
    /// Its value.
    pub value: Value,
}

/// What is written is no data-only CUE.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {reason}")]
pub struct CueError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub reason: String,
}

impl Value {
    /// What it is, with its article, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a truth value",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Struct(_) => "a struct",
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The fields of a struct.
    pub fn as_struct(&self) -> Option<&Struct> {
        if let Self::Struct(fields) = self { Some(fields) } else { None }
    }

    /// The same as JSON. Bytes and numbers that JSON's reader cannot hold become strings.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Number(text) => match (text.parse::<i64>(), text.parse::<u64>(), text.parse::<f64>()) {
                (Ok(number), ..) => number.into(),
                (_, Ok(number), _) => number.into(),
                (.., Ok(number)) if number.is_finite() => number.into(),
                _ => Json::String(text.clone()),
            },
            Self::String(text) => Json::String(text.clone()),
            Self::Bytes(bytes) => Json::String(String::from_utf8_lossy(bytes).into_owned()),
            Self::List(values) => values.iter().map(Self::to_json).collect(),
            Self::Struct(fields) => Json::Object(
                fields.iter().map(|field| (field.label.clone(), field.value.to_json())).collect(),
            ),
        }
    }

    /// Takes in what the same field says a second time; `false` where the two contradict each other.
    fn unify(&mut self, other: Self) -> bool {
        match (self, other) {
            (Self::Struct(fields), Self::Struct(others)) => fields.merge(others),
            (Self::List(values), Self::List(others)) => {
                values.len() == others.len()
                    && values.iter_mut().zip(others).all(|(value, other)| value.unify(other))
            }
            (value, other) => *value == other,
        }
    }
}

impl PartialEq for Struct {
    /// Neither order nor lines matter.
    fn eq(&self, other: &Self) -> bool {
        self.fields.len() == other.fields.len()
            && self
                .iter()
                .all(|field| other.get(&field.label).is_some_and(|found| found.value == field.value))
    }
}

impl Struct {
    /// The field of that label.
    pub fn get(&self, label: &str) -> Option<&Field> {
        self.places.get(label).map(|&place| &self.fields[place])
    }

    /// The fields in order.
    pub fn iter(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter()
    }

    /// `false` where the two contradict each other.
    fn merge(&mut self, other: Self) -> bool {
        other.fields.into_iter().all(|field| self.insert(field.label, field.line, field.value))
    }

    /// `false` where the field is there with a value that contradicts.
    fn insert(&mut self, label: String, line: usize, value: Value) -> bool {
        if let Some(&place) = self.places.get(&label) {
            return self.fields[place].value.unify(value);
        }
        self.places.insert(label.clone(), self.fields.len());
        self.fields.push(Field { label, line, value });
        true
    }
}

/// Reads a file.
pub fn parse(text: &str) -> Result<Struct, CueError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let place = Place { at: 0, line: 1, line_start: 0 };
    Parser { text, place, depth: 0, values: 0 }.fields(None)
}

/// Offsets in bytes; a column is counted only where an error needs it, so that long lines cost nothing.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    line: usize,
    line_start: usize,
}

struct Parser<'a> {
    text: &'a str,
    place: Place,
    depth: usize,
    values: usize,
}

/// What a declaration in a struct begins with.
enum Label {
    Regular(String),
    /// Hidden or optional: read and left out of the data.
    Absent,
}

impl<'a> Parser<'a> {
    /// Fields up to the closing brace, which is taken, or to the end of the file.
    fn fields(&mut self, closing: Option<char>) -> Result<Struct, CueError> {
        let mut fields = Struct::default();
        loop {
            self.blanks();
            match self.peek() {
                None if closing.is_none() => return Ok(fields),
                None => return Err(self.error("the file ends within a struct; `}` is missing")),
                Some('}') if closing.is_some() => {
                    self.next();
                    return Ok(fields);
                }
                Some('@') => self.attribute()?,
                // A struct without a label is part of the one that it stands in; a JSON document is one in a file.
                Some('{') => {
                    let start = self.place;
                    let Value::Struct(embedded) = self.value()? else { continue };
                    if !fields.merge(embedded) {
                        return Err(
                            self.error_at(start, "a field in this struct was given another value before")
                        );
                    }
                }
                Some(_) => self.field(&mut fields)?,
            }
            self.separator(closing)?;
        }
    }

    fn field(&mut self, fields: &mut Struct) -> Result<(), CueError> {
        let start = self.place;
        let label = self.label()?;
        let value = self.labelled_value()?;
        let Label::Regular(label) = label else { return Ok(()) };
        let shown: String = label.chars().take(80).collect();
        if fields.insert(label, start.line, value) {
            return Ok(());
        }
        Err(self.error_at(start, &format!("`{shown}` was given another value before")))
    }

    /// What is behind a label's colon: a value, or another label of a struct with this one field.
    fn labelled_value(&mut self) -> Result<Value, CueError> {
        self.blanks();
        if !self.is_label_next() {
            let value = self.value()?;
            self.inline_blanks();
            while self.peek() == Some('@') {
                self.attribute()?;
                self.inline_blanks();
            }
            return Ok(value);
        }
        self.enter()?;
        let mut fields = Struct::default();
        self.field(&mut fields)?;
        self.depth -= 1;
        Ok(Value::Struct(fields))
    }

    /// Whether a label with its colon is next, and not a value.
    fn is_label_next(&self) -> bool {
        let rest = self.rest();
        let behind = match rest.chars().next() {
            // Multi-line and raw strings are no labels.
            Some('"') if rest.starts_with("\"\"\"") => return false,
            Some('"') => {
                let mut is_escaped = false;
                let end = rest[1..].find(|letter| {
                    let ends = (letter == '"' && !is_escaped) || letter == '\n';
                    is_escaped = letter == '\\' && !is_escaped;
                    ends
                });
                end.map_or("", |end| &rest[end + 2..])
            }
            Some(letter) if is_identifier_start(letter) || letter == '#' => {
                rest.trim_start_matches(|letter| is_identifier_part(letter) || letter == '#')
            }
            _ => return false,
        };
        let behind = behind.trim_start_matches([' ', '\t', '\r', '\n']);
        behind.starts_with(':') || behind.starts_with("?:") || behind.starts_with("!:")
    }

    fn label(&mut self) -> Result<Label, CueError> {
        let label = match self.peek() {
            Some('"') => {
                if self.rest().starts_with("\"\"\"") {
                    return Err(self.error("a label is written on one line"));
                }
                Label::Regular(self.string('"')?)
            }
            Some('#') => return Err(self.error("definitions (`#name`) are no data")),
            Some('(' | '[') => return Err(self.error("computed labels and patterns are no data")),
            Some('.') => return Err(self.error("`...` is no data")),
            Some(letter) if is_identifier_start(letter) => {
                let name = self.identifier();
                if name.starts_with("_#") || name.contains('#') {
                    return Err(self.error("definitions (`#name`) are no data"));
                }
                if name == "_" || name.starts_with("__") {
                    return Err(self.error("`_` and names that begin with `__` are reserved"));
                }
                if name.starts_with('_') { Label::Absent } else { Label::Regular(name.to_owned()) }
            }
            Some(letter) => {
                return Err(self.error(&format!("expected a field, found `{}`", letter.escape_debug())));
            }
            None => return Err(self.error("expected a field, found the end of the file")),
        };
        self.blanks();
        let is_optional = self.peek() == Some('?');
        if is_optional {
            self.next();
        }
        match self.peek() {
            Some(':') => {
                self.next();
                Ok(if is_optional { Label::Absent } else { label })
            }
            Some('!') => Err(self.error("`!` asks for a field and is no data")),
            Some('=') => Err(self.error("aliases are no data")),
            _ => Err(self.error(match &label {
                Label::Regular(name) if name == "package" || name == "import" => {
                    "`package` and `import` have no place in data"
                }
                Label::Regular(name) if matches!(name.as_str(), "let" | "for" | "if") => {
                    "`let`, `for` and `if` are no data"
                }
                _ => "expected `:` behind the label",
            })),
        }
    }

    /// What has to stand between two fields or elements: a comma, a new line or both.
    fn separator(&mut self, closing: Option<char>) -> Result<(), CueError> {
        let line = self.place.line;
        self.blanks();
        match self.peek() {
            Some(',') => {
                self.next();
                Ok(())
            }
            None => Ok(()),
            found if found == closing || self.place.line > line => Ok(()),
            Some(found) => Err(self.error(&format!(
                "expected a comma or a new line, found `{}`; only data is taken here, no expressions",
                found.escape_debug()
            ))),
        }
    }

    fn value(&mut self) -> Result<Value, CueError> {
        self.enter()?;
        let value = self.value_within()?;
        self.depth -= 1;
        Ok(value)
    }

    fn enter(&mut self) -> Result<(), CueError> {
        self.depth += 1;
        self.values += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(&format!("nested deeper than {MAX_DEPTH}")));
        }
        if self.values > MAX_VALUES {
            return Err(self.error(&format!("more than {MAX_VALUES} values")));
        }
        Ok(())
    }

    fn value_within(&mut self) -> Result<Value, CueError> {
        match self.peek() {
            Some('{') => {
                self.next();
                self.fields(Some('}')).map(Value::Struct)
            }
            Some('[') => {
                self.next();
                self.list().map(Value::List)
            }
            Some('"') => self.string('"').map(Value::String),
            Some('\'') => self.bytes().map(Value::Bytes),
            Some('#') => {
                let quote = self.rest().trim_start_matches('#').chars().next();
                match quote {
                    Some('"') => self.string('"').map(Value::String),
                    Some('\'') => self.bytes().map(Value::Bytes),
                    _ => Err(self.error("definitions (`#name`) are no data")),
                }
            }
            Some('-' | '+' | '.' | '0'..='9') if !self.rest().starts_with("...") => self.number(),
            Some(letter) if is_identifier_start(letter) => {
                let start = self.place;
                match self.identifier() {
                    "null" => Ok(Value::Null),
                    "true" => Ok(Value::Bool(true)),
                    "false" => Ok(Value::Bool(false)),
                    name => {
                        let name: String = name.chars().take(80).collect();
                        Err(self.error_at(
                            start,
                            &format!("`{name}` is no data; a string is written in double quotes"),
                        ))
                    }
                }
            }
            Some(letter) => Err(self.error(&format!(
                "expected a value, found `{}`; only data is taken here, no expressions",
                letter.escape_debug()
            ))),
            None => Err(self.error("expected a value, found the end of the file")),
        }
    }

    fn list(&mut self) -> Result<Vec<Value>, CueError> {
        let mut values = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                Some(']') => {
                    self.next();
                    return Ok(values);
                }
                None => return Err(self.error("the file ends within a list; `]` is missing")),
                Some(_) => values.push(self.value()?),
            }
            self.separator(Some(']'))?;
        }
    }

    fn number(&mut self) -> Result<Value, CueError> {
        let start = self.place;
        let is_negative = self.peek() == Some('-');
        if matches!(self.peek(), Some('-' | '+')) {
            self.next();
            self.inline_blanks();
        }
        let rest = self.rest();
        let mut before = ' ';
        let end = rest.find(|letter: char| {
            let is_sign = matches!(letter, '-' | '+') && matches!(before, 'e' | 'E');
            before = letter;
            !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '.' || is_sign)
        });
        let written = &rest[..end.unwrap_or(rest.len())];
        let number = canonical_number(written).ok_or_else(|| {
            self.error_at(
                start,
                &format!("`{}` is not a number", written.chars().take(80).collect::<String>()),
            )
        })?;
        self.place.at += written.len();
        Ok(Value::Number(if is_negative { format!("-{number}") } else { number }))
    }

    /// `@name(...)`: taken for what it is, and left out.
    fn attribute(&mut self) -> Result<(), CueError> {
        self.next();
        self.identifier();
        if self.peek() != Some('(') {
            return Err(self.error("expected `(` behind the name of the attribute"));
        }
        let mut open = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.error("the file ends within an attribute")),
                Some('"') => drop(self.string('"')?),
                Some('\'') => drop(self.bytes()?),
                Some(letter) => {
                    match letter {
                        '(' => open.push(')'),
                        '[' => open.push(']'),
                        '{' => open.push('}'),
                        ')' | ']' | '}' if open.pop() != Some(letter) => {
                            return Err(self.error("the attribute's brackets do not match"));
                        }
                        _ => {}
                    }
                    self.next();
                    if open.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn string(&mut self, quote: char) -> Result<String, CueError> {
        let bytes = self.quoted(quote)?;
        // Only bytes may have the escapes that write single bytes.
        String::from_utf8(bytes).map_err(|_| self.error("the string is not UTF-8"))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, CueError> {
        self.quoted('\'')
    }

    /// Any quoted literal: raw or not, on one line or on several.
    fn quoted(&mut self, quote: char) -> Result<Vec<u8>, CueError> {
        let rest = self.rest();
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        let marks = &rest[..hashes];
        let mut triple: String = quote.to_string().repeat(3);
        if rest[hashes..].starts_with(&triple) {
            triple.push_str(marks);
            self.place.at += hashes + 3;
            return self.several_lines(quote, marks, &triple);
        }
        self.place.at += hashes + 1;
        let closing = format!("{quote}{marks}");
        let mut content = Vec::new();
        loop {
            if self.rest().starts_with(&closing) {
                self.place.at += closing.len();
                return Ok(content);
            }
            match self.peek() {
                None | Some('\n') => {
                    return Err(self.error(&format!("the closing `{closing}` is missing on this line")));
                }
                Some(_) => self.content(quote, marks, &mut content)?,
            }
        }
    }

    /// A literal between triple quotes: the indentation of the closing ones is taken from each line.
    fn several_lines(&mut self, quote: char, marks: &str, closing: &str) -> Result<Vec<u8>, CueError> {
        let newline =
            |text: &str| ["\n", "\r\n"].iter().find(|end| text.starts_with(**end)).map(|end| end.len());
        if newline(self.rest()).is_none() {
            return Err(self.error("a new line has to follow the opening triple quotes"));
        }
        let last = self
            .rest()
            .split('\n')
            .skip(1)
            .find(|line| line.trim_start_matches([' ', '\t']).starts_with(closing));
        let Some(last) = last else {
            return Err(self.error(&format!("the closing `{closing}` is missing on a line of its own")));
        };
        let indentation = &last[..last.len() - last.trim_start_matches([' ', '\t']).len()];
        let mut content = Vec::new();
        let mut is_first = true;
        loop {
            // The cursor is at the end of a line.
            if self.peek() == Some('\r') {
                self.next();
            }
            self.next();
            let line = self.rest();
            if line.trim_start_matches([' ', '\t']).starts_with(closing) {
                self.place.at += indentation.len() + closing.len();
                return Ok(content);
            }
            if !is_first {
                content.push(b'\n');
            }
            is_first = false;
            if line.starts_with(indentation) {
                self.place.at += indentation.len();
            } else if newline(line.trim_start_matches([' ', '\t'])).is_none() {
                return Err(self.error("the line is indented less than the closing triple quotes"));
            } else {
                self.inline_spaces();
            }
            while newline(self.rest()).is_none() {
                if self.peek().is_none() || self.rest().starts_with(closing) {
                    return Err(self.error("the closing triple quotes need a line of their own"));
                }
                self.content(quote, marks, &mut content)?;
            }
        }
    }

    /// One character or escape of a literal.
    fn content(&mut self, quote: char, marks: &str, content: &mut Vec<u8>) -> Result<(), CueError> {
        let is_escape = self.rest().strip_prefix('\\').is_some_and(|rest| rest.starts_with(marks));
        if is_escape {
            return self.escape(quote, marks, content);
        }
        match self.next() {
            Some('\0') => return Err(self.error("a NUL character is no text")),
            Some('\u{feff}') => {
                return Err(self.error("a byte order mark stands at the beginning alone; write `\\ufeff`"));
            }
            Some(letter) => content.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            None => return Err(self.error("the file ends within a string")),
        }
        Ok(())
    }

    fn escape(&mut self, quote: char, marks: &str, content: &mut Vec<u8>) -> Result<(), CueError> {
        let escape = self.rest()[1 + marks.len()..].chars().next();
        let simple = match escape {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(same @ ('\\' | '/' | '"' | '\'')) if same != '"' && same != '\'' || same == quote => same,
            Some('u') => return self.unicode_escape(4, marks, content),
            Some('U') => return self.unicode_escape(8, marks, content),
            Some('x') if quote == '\'' => {
                self.place.at += 2 + marks.len();
                content.push(
                    self.digits(2, 16)
                        .and_then(|byte| u8::try_from(byte).ok())
                        .ok_or_else(|| self.error("expected two hexadecimal digits behind `\\x`"))?,
                );
                return Ok(());
            }
            Some('0'..='7') if quote == '\'' => {
                self.place.at += 1 + marks.len();
                content.push(
                    self.digits(3, 8)
                        .and_then(|byte| u8::try_from(byte).ok())
                        .ok_or_else(|| self.error("expected three octal digits up to 377"))?,
                );
                return Ok(());
            }
            Some('(') => return Err(self.error("interpolation (`\\(...)`) is no data")),
            _ => return Err(self.error("unknown escape")),
        };
        self.place.at += 2 + marks.len();
        content.extend_from_slice(simple.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn unicode_escape(&mut self, count: usize, marks: &str, content: &mut Vec<u8>) -> Result<(), CueError> {
        let invalid =
            "not a Unicode character: expected `\\u` and four, or `\\U` and eight hexadecimal digits";
        self.place.at += 2 + marks.len();
        let mut code = self.digits(count, 16).ok_or_else(|| self.error(invalid))?;
        // JSON writes what is outside the basic plane as two halves.
        if count == 4 && (0xd800..0xdc00).contains(&code) && self.rest().starts_with("\\u") {
            self.place.at += 2;
            let low = self.digits(4, 16).filter(|low| (0xdc00..0xe000).contains(low));
            code = 0x10000 + ((code - 0xd800) << 10) + (low.ok_or_else(|| self.error(invalid))? - 0xdc00);
        }
        let letter = char::from_u32(code).ok_or_else(|| self.error(invalid))?;
        content.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn digits(&mut self, count: usize, radix: u32) -> Option<u32> {
        let digits = self.rest().get(..count)?;
        let number = digits.chars().try_fold(0_u32, |number, digit| {
            number.checked_mul(radix)?.checked_add(digit.to_digit(radix)?)
        })?;
        self.place.at += count;
        Some(number)
    }

    fn identifier(&mut self) -> &'a str {
        let rest = self.rest();
        let name = &rest[..rest.len()
            - rest.trim_start_matches(|letter| is_identifier_part(letter) || letter == '#').len()];
        self.place.at += name.len();
        name
    }

    /// Blanks, new lines and comments.
    fn blanks(&mut self) {
        loop {
            self.inline_blanks();
            if self.peek() != Some('\n') {
                return;
            }
            self.next();
        }
    }

    /// Blanks and a comment, up to the end of the line.
    fn inline_blanks(&mut self) {
        let rest = self.rest().trim_start_matches([' ', '\t', '\r']);
        let rest = if rest.starts_with("//") { rest.find('\n').map_or("", |end| &rest[end..]) } else { rest };
        self.place.at = self.text.len() - rest.len();
    }

    fn inline_spaces(&mut self) {
        self.place.at = self.text.len() - self.rest().trim_start_matches([' ', '\t']).len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.place.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.place.at += letter.len_utf8();
        if letter == '\n' {
            self.place.line += 1;
            self.place.line_start = self.place.at;
        }
        Some(letter)
    }

    fn error(&self, reason: &str) -> CueError {
        self.error_at(self.place, reason)
    }

    fn error_at(&self, place: Place, reason: &str) -> CueError {
        let column = self.text[place.line_start..place.at].chars().count() + 1;
        CueError { line: place.line, column, reason: reason.to_owned() }
    }
}

fn is_identifier_start(letter: char) -> bool {
    letter == '_' || letter == '$' || letter.is_alphabetic()
}

fn is_identifier_part(letter: char) -> bool {
    is_identifier_start(letter) || letter.is_numeric()
}

/// A number without `_`; whole ones in decimal. The sign was read before.
fn canonical_number(digits: &str) -> Option<String> {
    let is_well_separated = !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__");
    if digits.is_empty() || !is_well_separated {
        return None;
    }
    let plain = digits.replace('_', "");
    for (prefix, radix) in [("0x", 16), ("0X", 16), ("0o", 8), ("0b", 2)] {
        if let Some(rest) = plain.strip_prefix(prefix) {
            return if rest.is_empty() || !rest.chars().all(|digit| digit.is_digit(radix)) {
                None
            } else {
                // What does not fit stays as it was written: nothing here computes with it.
                Some(match u128::from_str_radix(rest, radix) {
                    Ok(number) => number.to_string(),
                    Err(_) => plain.clone(),
                })
            };
        }
    }
    if let Some((number, multiplier)) = multiplied(&plain) {
        let is_number = is_decimal(number) || is_float(number);
        let whole = number.parse::<u128>().ok().and_then(|number| number.checked_mul(multiplier));
        return is_number.then(|| whole.map_or_else(|| plain.clone(), |whole| whole.to_string()));
    }
    (is_decimal(&plain) || is_float(&plain)).then_some(plain)
}

fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let all_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            (whole.is_empty() || is_decimal(whole))
                && all_digits(fraction)
                && whole.len() + fraction.len() > 0
        }
        None => is_decimal(mantissa),
    };
    is_mantissa && exponent.is_none_or(|exponent| !exponent.is_empty() && all_digits(exponent))
}

fn is_decimal(digits: &str) -> bool {
    digits == "0"
        || (!digits.is_empty()
            && !digits.starts_with('0')
            && digits.bytes().all(|digit| digit.is_ascii_digit()))
}

/// `1Ki` is 1 and 1024.
fn multiplied(text: &str) -> Option<(&str, u128)> {
    let (text, base) = match text.strip_suffix('i') {
        Some(text) => (text, 1024_u128),
        None => (text, 1000),
    };
    let power = ["K", "M", "G", "T", "P"].iter().position(|letter| text.ends_with(letter))?;
    Some((&text[..text.len() - 1], base.pow(u32::try_from(power).ok()? + 1)))
}

/// The fields of a JSON object in the form of `cue fmt`: a whole file.
pub(super) struct WrittenFile<'a>(pub(super) &'a serde_json::Map<String, serde_json::Value>);

impl fmt::Display for WrittenFile<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_fields(formatter, self.0, 0)
    }
}

fn write_value(
    formatter: &mut fmt::Formatter<'_>,
    value: &serde_json::Value,
    indentation: usize,
) -> fmt::Result {
    use serde_json::Value as Json;
    match value {
        Json::String(text) => write!(formatter, "{}", Quoted(text)),
        Json::Array(values) if values.is_empty() => formatter.write_str("[]"),
        Json::Array(values) if values.iter().all(Json::is_object) => {
            formatter.write_char('[')?;
            for (place, value) in values.iter().enumerate() {
                formatter.write_str(if place == 0 { "" } else { ", " })?;
                write_value(formatter, value, indentation)?;
            }
            formatter.write_char(']')
        }
        Json::Array(values) => {
            formatter.write_str("[\n")?;
            for value in values {
                write_tabs(formatter, indentation + 1)?;
                write_value(formatter, value, indentation + 1)?;
                formatter.write_str(",\n")?;
            }
            write_tabs(formatter, indentation)?;
            formatter.write_char(']')
        }
        Json::Object(fields) if fields.is_empty() => formatter.write_str("{}"),
        Json::Object(fields) => {
            formatter.write_str("{\n")?;
            write_fields(formatter, fields, indentation + 1)?;
            write_tabs(formatter, indentation)?;
            formatter.write_char('}')
        }
        plain => write!(formatter, "{plain}"),
    }
}

/// Fields one a line, a struct of one field on the line of its label. The values of neighbours that take one line each begin in
/// one column, where they are as deep as each other.
fn write_fields(
    formatter: &mut fmt::Formatter<'_>,
    fields: &serde_json::Map<String, serde_json::Value>,
    indentation: usize,
) -> fmt::Result {
    let lines: Vec<Line<'_>> = fields.iter().map(|(label, value)| Line::of(label, value)).collect();
    for run in lines.chunk_by(|one, other| one.is_short() && other.is_short() && one.depth == other.depth) {
        let width = run.iter().map(|line| line.labels.chars().count()).max().unwrap_or_default();
        for line in run {
            write_tabs(formatter, indentation)?;
            let blanks = width - line.labels.chars().count() + 1;
            write!(formatter, "{}:{:blanks$}", line.labels, "")?;
            write_value(formatter, line.value, indentation)?;
            formatter.write_char('\n')?;
        }
    }
    Ok(())
}

/// A field as it begins on a line: its labels, and the value behind the last of them.
struct Line<'a> {
    labels: String,
    depth: usize,
    value: &'a serde_json::Value,
}

impl<'a> Line<'a> {
    fn of(label: &str, mut value: &'a serde_json::Value) -> Self {
        let mut line = Self { labels: WrittenLabel(label).to_string(), depth: 1, value };
        while let serde_json::Value::Object(fields) = value
            && let (1, Some((label, inner))) = (fields.len(), fields.iter().next())
        {
            line.labels.push_str(": ");
            line.labels.push_str(&WrittenLabel(label).to_string());
            line.depth += 1;
            value = inner;
        }
        Self { value, ..line }
    }

    fn is_short(&self) -> bool {
        match self.value {
            serde_json::Value::Array(_) => false,
            serde_json::Value::Object(fields) => fields.is_empty(),
            _ => true,
        }
    }
}

fn write_tabs(formatter: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    (0..count).try_for_each(|_| formatter.write_char('\t'))
}

/// A label: bare where that is an identifier and no word of the language, else quoted.
pub(super) struct WrittenLabel<'a>(pub(super) &'a str);

impl fmt::Display for WrittenLabel<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.0.bytes();
        let is_bare = bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !KEYWORDS.contains(&self.0);
        if is_bare { formatter.write_str(self.0) } else { write!(formatter, "{}", Quoted(self.0)) }
    }
}

const KEYWORDS: [&str; 10] = ["package", "import", "for", "in", "if", "let", "true", "false", "null", "func"];

/// A string in quotes.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(formatter, "\\{letter}")?,
                '\n' => formatter.write_str("\\n")?,
                '\r' => formatter.write_str("\\r")?,
                '\t' => formatter.write_str("\\t")?,
                // A byte order mark counts as an error anywhere but at the beginning.
                letter if letter.is_control() || letter == '\u{feff}' => {
                    write!(formatter, "\\u{:04x}", u32::from(letter))?;
                }
                letter => formatter.write_char(letter)?,
            }
        }
        formatter.write_char('"')
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn json_of(text: &str) -> serde_json::Value {
        Value::Struct(parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))).to_json()
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn fields_are_read_in_every_spelling() {
        let expected = json!({"a": {"b": {"c": 1}}, "d": "x"});
        for text in [
            "a: b: c: 1\nd: \"x\"",
            "a: {b: {c: 1}}, d: \"x\",",
            "a: b: c:    1 // why\n// more\n\n\"d\"  :  \"x\"",
            "{\"a\": {\"b\": {\"c\": 1}}, \"d\": \"x\"}",
            "{\n\ta: \"b\": c: 1\n\td: \"x\"\n},\n// end",
            "\u{feff}a: b: {\r\n\tc: 1\r\n}\r\nd: \"x\"\r\n",
            "a: {b: c: 1}\na: b: c: 1\nd: \"x\"\na: b: {}",
            "@extern(embed)\na: b: c: 1 @tag(x, y=\"\\\")\") @other()\nd:\n\"x\"",
            "a: b: c: 1\nd: #\"x\"#",
            "{a: b: c: 1, {d: \"x\"}}",
            "a: b\n: c: +1\nd: \"x\"",
            "_hidden: {z: 1}\na: b: c: 1\nd: \"x\"\ne?: 5",
        ] {
            assert_eq!(json_of(text), expected, "{text}");
        }
        assert_eq!(
            json_of("größe: 1, $x: 2, for: 3, true: 4"),
            json!({"größe": 1, "$x": 2, "for": 3, "true": 4})
        );
        assert_eq!(json_of(""), json!({}));
    }

    #[test]
    fn fields_keep_their_order_and_lines() {
        let file = parse("b: 1\n\na: 2\nb: 1\n").unwrap();
        let fields: Vec<_> = file.iter().map(|field| (field.label.as_str(), field.line)).collect();
        assert_eq!(fields, [("b", 1), ("a", 3)]);
    }

    #[test]
    fn scalars_and_lists_are_read() {
        assert_eq!(
            json_of("x: [null, true, false, - 3, 0x10, 1_000, 2Ki, 1K, 0b11, 0o17, 1.5, 1e3, .5,]"),
            json!({"x": [null, true, false, -3, 16, 1000, 2048, 1000, 3, 15, 1.5, 1000.0, 0.5]})
        );
        assert_eq!(json_of("x: [\n\t1\n\t2,\n\t[],\n]"), json!({"x": [1, 2, []]}));
        let big = "123456789012345678901234567890123456789012";
        assert_eq!(
            parse(&format!("x: {big}")).unwrap().get("x").unwrap().value,
            Value::Number(big.to_owned())
        );
        for number in
            ["01", "1_", "_1", "1__0", "0x", "0b2", "1e", "1.2.3", "1x", "-", "--1", "1Kii", "01Ki", "1e+"]
        {
            assert!(parse(&format!("x: {number}")).is_err(), "{number}");
        }
    }

    #[test]
    fn strings_are_unescaped() {
        for (written, text) in [
            (r#""""#, ""),
            (r#""a\n\t\"\\\/b""#, "a\n\t\"\\/b"),
            (r#""\u0062\U0001F600""#, "b😀"),
            (r#""\ud83d\ude00""#, "😀"),
            (r##"#"a"b\n\#n"#"##, "a\"b\\n\n"),
            (r###"##"a"#b\##u0041"##"###, "a\"#bA"),
            ("\"\"\"\n\ta\n\t\tb\n\n\tc\\n\"\n\t\"\"\"", "a\n\tb\n\nc\n\""),
            ("\"\"\"\n\"\"\"", ""),
            ("\"\"\"\r\n  a\r\n  b\r\n  \"\"\"", "a\nb"),
            ("#\"\"\"\n  a\\n\"\"\"\n  \"\"\"#", "a\\n\"\"\""),
        ] {
            let file =
                parse(&format!("x: {written}\ny: 1")).unwrap_or_else(|error| panic!("{written}: {error}"));
            assert_eq!(file.get("x").unwrap().value, Value::String(text.to_owned()), "{written}");
            assert_eq!(file.get("y").unwrap().line, written.matches('\n').count() + 2);
        }
        let bytes = parse(r"x: 'a\x00\377\n'").unwrap().get("x").unwrap().value.clone();
        assert_eq!(bytes, Value::Bytes(vec![b'a', 0, 0xff, b'\n']));
        for written in [
            "\"a",
            "\"a\n\"",
            r#""\q""#,
            r#""\u12""#,
            r#""\ud83d""#,
            r#""\ude00""#,
            r#""\x41""#,
            r#""\'""#,
            r"'\400'",
            r#""\(x)""#,
            "\"\"\"a\"\"\"",
            "\"\"\"\n a\n  \"\"\"",
            "\"\"\"\na",
            "\"\"\"\na \"\"\"\n\"\"\"",
            "#\"a\"",
            "\"\0\"",
        ] {
            assert!(parse(&format!("x: {written}")).is_err(), "{written}");
        }
    }

    #[test]
    fn what_is_no_data_is_refused_with_its_place() {
        for (text, start) in [
            ("package x\n", "1:9: `package`"),
            ("import \"x\"\n", "1:8: `package` and `import`"),
            ("a: 1\nb!: 1", "2:2: `!`"),
            ("[string]: 1", "1:1: computed"),
            ("(a): 1", "1:1: computed"),
            ("#a: 1", "1:1: definitions"),
            ("_#a: 1", "1:4: definitions"),
            ("x: #a", "1:4: definitions"),
            ("_: 1", "1:2: `_`"),
            ("x: \"\u{feff}\"", "1:6: a byte order mark"),
            ("...", "1:1: `...`"),
            ("a: {...}", "1:5: `...`"),
            ("a: [...]", "1:5: expected a value"),
            ("a: string", "1:4: `string` is no data"),
            ("a: 1 & 2", "1:6: expected a comma"),
            ("a: 1 | 2", "1:6: expected a comma"),
            ("a: *1", "1:4: expected a value"),
            ("a: (1)", "1:4: expected a value"),
            ("a: >1", "1:4: expected a value"),
            ("a: _|_", "1:4: `_`"),
            ("let x = 1", "1:5: `let`"),
            ("if true {}", "1:4: `let`"),
            ("x=a: 1", "1:2: aliases"),
            ("a: 1 b: 2", "1:6: expected a comma"),
            ("a: 1,, b: 2", "1:6: expected a field"),
            ("a", "1:2: expected `:`"),
            ("a:", "1:3: expected a value"),
            ("a: {", "1:5: the file ends"),
            ("a: [1", "1:6: the file ends"),
            ("a: {b: 1]", "1:9: expected a comma"),
            ("}", "1:1: expected a field"),
            ("{a: 1} b: 2", "1:8: expected a comma"),
            ("a: {b: 1, {b: 2}}", "1:11: a field in this struct"),
            ("__a: 1", "1:4: `_` and names"),
            ("1: 2", "1:1: expected a field"),
            ("ä: 1\nä: é", "2:4: `é` is no data"),
            ("a: 1\na: 2", "2:1: `a` was given another value"),
            ("a: b: 1\na: b: c: 1", "2:1: `a` was given"),
            ("a: @x(", "1:4: expected a value"),
            ("@x(]", "1:4: the attribute's"),
            ("\"\"\"\na\n\"\"\": 1", "1:1: a label"),
        ] {
            let reason = reason(text);
            assert!(reason.starts_with(start), "{text:?}: {reason}");
        }
    }

    #[test]
    fn depth_and_number_of_values_are_limited_and_long_lines_are_quick() {
        for text in [
            "a:".repeat(100_000),
            format!("a: {}", "[".repeat(100_000)),
            "{a:".repeat(100_000),
            "@x(".repeat(100_000),
        ] {
            assert!(parse(&text).is_err());
        }
        assert!(reason(&format!("a: [{}]", "1,".repeat(MAX_VALUES))).contains("more than"));
        let fields = (0..100_000).map(|number| format!("f{number}: true")).collect::<Vec<_>>().join(", ");
        assert_eq!(parse(&fields).unwrap().iter().count(), 100_000);
        let repeated = "a: b: true, ".repeat(60_000);
        assert_eq!(json_of(&repeated), json!({"a": {"b": true}}));
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|value| json!(value)),
            any::<i64>().prop_map(|value| json!(value)),
            any::<String>().prop_map(|value| json!(value)),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::Array),
                proptest::collection::btree_map("\\PC{0,5}", inner, 0..5)
                    .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in any_json()) {
            let file = json!({"x": value, "y": 1});
            let text = WrittenFile(file.as_object().unwrap()).to_string();
            prop_assert_eq!(json_of(&text), file, "{}", text);
        }

        #[test]
        fn json_is_read(value in any_json()) {
            let value = json!({"x": value});
            prop_assert_eq!(json_of(&value.to_string()), value.clone());
            prop_assert_eq!(json_of(&serde_json::to_string_pretty(&value).unwrap()), value);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[\\PC\n\r\t\"'#\\\\{}:,@()\\[\\]]{0,120}") {
            let _ = parse(&text);
        }
    }
}
