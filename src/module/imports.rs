//! What a `.cue` file says before its content: its package, what it imports, and whether it takes part at all.
//!
//! Only that much of a file is read, since nothing behind it matters to who looks for dependencies. What is no CUE there is passed over
//! up to where it stops to be any, as `cue` does: it will say so itself when the file is evaluated.

/// What stands at the beginning of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileHead {
    /// The package that the file belongs to, where it says one.
    pub package: Option<String>,
    /// What it imports, in order.
    pub imports: Vec<Import>,
    /// `@ignore()`: the file takes no part in anything.
    pub is_ignored: bool,
    /// Whether the file takes part where no tag is set (`@if(...)`), as it is outside of the main module.
    pub is_built_without_tags: bool,
    /// Whether there is a NUL character as far as `cue` reads the file, which then takes none of it.
    pub has_nul: bool,
}

/// An import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// What is written, without quotes where it is a path.
    pub path: String,
    /// Whether it is a path in quotes; in the place of one there may be a string of another kind, or one without end.
    pub is_path: bool,
    /// Where, from 1.
    pub line: usize,
}

/// An import path in its parts: `path@version:qualifier`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImportPath {
    /// The path.
    pub path: String,
    /// The major version behind `@`, as it is written: `v1`.
    pub version: Option<String>,
    /// The name of the package: behind `:`, else the last part of the path where that can be one; else empty.
    pub qualifier: String,
}

impl ImportPath {
    /// Takes a path apart. Every text is one; [`Self::is_valid`] says which can be meant.
    pub fn parse(text: &str) -> Self {
        let (rest, explicit) = match text.rfind(['/', ':']) {
            Some(at) if text[at..].starts_with(':') => (&text[..at], Some(&text[at + 1..])),
            _ => (text, None),
        };
        let (path, version) = match rest.split_once('@') {
            Some((path, version)) => (path, Some(version.to_owned())),
            None => (rest, None),
        };
        let last = path.rsplit('/').next().unwrap_or_default();
        let implied = if is_package_name(last) { last } else { "" };
        Self { path: path.to_owned(), version, qualifier: explicit.unwrap_or(implied).to_owned() }
    }

    /// Whether the path belongs to `cue` itself: the first part of every other one has a dot.
    pub fn is_standard(&self) -> bool {
        !self.path.split('/').next().unwrap_or_default().contains('.')
    }

    /// Whether a module could provide it.
    pub fn is_valid(&self) -> bool {
        let is_major = |version: &str| {
            version.strip_prefix('v').is_some_and(|digits| super::path::parse_major(digits).is_some())
        };
        let is_part = |part: &str| {
            !part.is_empty()
                && !part.bytes().all(|byte| byte == b'.')
                && !part.ends_with('.')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+".contains(&byte))
        };
        self.version.as_deref().is_none_or(is_major)
            && !self.qualifier.contains('@')
            && !self.path.starts_with('-')
            && self.path.split('/').all(is_part)
    }

    /// The same path in a major version.
    #[must_use]
    pub fn at(&self, major: u64) -> Self {
        Self { version: Some(format!("v{major}")), ..self.clone() }
    }

    /// The path and every path above it, the longest first.
    pub fn ancestors(&self) -> impl Iterator<Item = &str> {
        let ends = self.path.match_indices('/').map(|(at, _)| at).chain([self.path.len()]);
        ends.collect::<Vec<_>>().into_iter().rev().map(move |end| &self.path[..end])
    }
}

fn is_package_name(text: &str) -> bool {
    let mut characters = text.chars();
    let is_first = |first: char| first.is_alphabetic() || first == '_' || first == '$';
    text != "_"
        && characters.next().is_some_and(is_first)
        && characters.all(|next| next.is_alphanumeric() || next == '_' || next == '$')
}

impl FileHead {
    /// Reads the beginning of a file.
    pub fn read(text: &str) -> Self {
        let mut reader = Reader { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
        let mut head = Self { is_built_without_tags: true, ..Self::default() };
        // `cue` stops behind the imports of a file that begins with its package, and reads every other one to its end.
        let is_plain = head.fill(&mut reader) && text.starts_with(['p', ' ', '\t', '\r', '\n', '/']);
        reader.blanks();
        let read = text.len() - reader.rest.len();
        let read = if is_plain { text.len().min(read + 1) } else { text.len() };
        head.has_nul = text.as_bytes()[..read].contains(&0);
        head
    }

    /// Whether the file is a package, its imports and what comes behind them, and no attributes stand among those.
    fn fill(&mut self, reader: &mut Reader<'_>) -> bool {
        let (head, mut is_plain) = (self, true);
        let mut conditions = 0;
        while let Some((name, body)) = reader.attribute() {
            is_plain = false;
            match name {
                "ignore" => head.is_ignored = true,
                "if" => {
                    conditions += 1;
                    head.is_built_without_tags = conditions == 1 && Condition::holds_without_tags(body);
                }
                _ => {}
            }
        }
        if reader.keyword("package") {
            reader.blanks();
            head.package = reader.word().map(str::to_owned);
        }
        while reader.attribute().is_some() {
            is_plain = false;
        }
        while reader.keyword("import") {
            reader.blanks();
            if !reader.sign("(") {
                if !reader.import(&mut head.imports) {
                    return false;
                }
                continue;
            }
            loop {
                reader.blanks();
                if reader.sign(")") {
                    break;
                }
                if !reader.import(&mut head.imports) {
                    return false;
                }
            }
        }
        is_plain && head.package.is_some()
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, count: usize) -> &'a str {
        let (skipped, rest) = self.rest.split_at(count);
        self.line += skipped.bytes().filter(|byte| *byte == b'\n').count();
        self.rest = rest;
        skipped
    }

    /// Blanks, commas and comments: nothing here needs a comma to be understood.
    fn blanks(&mut self) {
        loop {
            let count = self.rest.len() - self.rest.trim_start_matches([' ', '\t', '\r', '\n', ',']).len();
            self.skip(count);
            if !self.rest.starts_with("//") {
                return;
            }
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    fn sign(&mut self, sign: &str) -> bool {
        let is_there = self.rest.starts_with(sign);
        if is_there {
            self.skip(sign.len());
        }
        is_there
    }

    fn word(&mut self) -> Option<&'a str> {
        let is_of_word = |next: char| next.is_alphanumeric() || next == '_' || next == '$' || next == '#';
        let end = self.rest.find(|next| !is_of_word(next)).unwrap_or(self.rest.len());
        (end > 0).then(|| self.skip(end))
    }

    /// A word that stands there as such, and is no field's label.
    fn keyword(&mut self, keyword: &str) -> bool {
        self.blanks();
        let (rest, line) = (self.rest, self.line);
        if self.word() == Some(keyword)
            && !self.rest.trim_start_matches([' ', '\t']).starts_with([':', '?', '!'])
        {
            return true;
        }
        (self.rest, self.line) = (rest, line);
        false
    }

    /// `@name(body)`
    fn attribute(&mut self) -> Option<(&'a str, &'a str)> {
        self.blanks();
        let (rest, line) = (self.rest, self.line);
        let found = self.attribute_here();
        if found.is_none() {
            (self.rest, self.line) = (rest, line);
        }
        found
    }

    fn attribute_here(&mut self) -> Option<(&'a str, &'a str)> {
        if !self.sign("@") {
            return None;
        }
        let name = self.word()?;
        if !self.sign("(") {
            return None;
        }
        let (mut depth, mut quote, mut escaped) = (1_usize, None, false);
        for (at, character) in self.rest.char_indices() {
            match (quote, character) {
                _ if escaped => escaped = false,
                (Some(_), '\\') => escaped = true,
                (Some(open), close) if open == close => quote = None,
                (None, '"' | '\'') => quote = Some(character),
                (None, '(' | '[' | '{') => depth += 1,
                (None, ')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let body = self.skip(at);
                self.skip(1);
                return Some((name, body));
            }
        }
        None
    }

    /// An optional name and a path in quotes; `false` where nothing behind it can be an import any more.
    fn import(&mut self, imports: &mut Vec<Import>) -> bool {
        self.blanks();
        if !self.rest.starts_with('#') {
            self.word();
        }
        self.blanks();
        let line = self.line;
        let rest = self.rest;
        let end = rest.strip_prefix('"').filter(|rest| !rest.starts_with("\"\"")).and_then(string_end);
        let Some(end) = end else {
            // A string of several lines or a raw one, or none that ends.
            if rest.starts_with(['"', '#']) {
                let path = rest.lines().next().unwrap_or_default().trim_end().to_owned();
                imports.push(Import { path, is_path: false, line });
            }
            return false;
        };
        self.skip(end + 2);
        let (path, is_path) = match unescaped(&rest[1..=end]) {
            Some(path) => (path, true),
            None => (rest[..end + 2].to_owned(), false),
        };
        imports.push(Import { path, is_path, line });
        true
    }
}

/// Where the quote is that ends a string in its line.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            '\n' => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at),
            _ => {}
        }
    }
    None
}

/// What a string means; `None` where it has an escape that nobody needs in a path.
fn unescaped(text: &str) -> Option<String> {
    let mut rest = text;
    let mut path = String::new();
    while let Some((before, behind)) = rest.split_once('\\') {
        path.push_str(before);
        let digits = match behind.chars().next()? {
            'u' => 4,
            'U' => 8,
            quoted @ ('\\' | '"') => {
                path.push(quoted);
                rest = &behind[1..];
                continue;
            }
            _ => return None,
        };
        path.push(char::from_u32(u32::from_str_radix(behind.get(1..=digits)?, 16).ok()?)?);
        rest = &behind[digits + 1..];
    }
    path.push_str(rest);
    Some(path)
}

/// The condition of `@if(...)`: words, `!`, `&&`, `||`, parentheses.
struct Condition<'a> {
    rest: &'a str,
    depth: usize,
}

impl Condition<'_> {
    /// Deeper than any that somebody wrote.
    const MAX_DEPTH: usize = 64;

    /// Whether it holds where no word does; one that cannot be read never does.
    fn holds_without_tags(text: &str) -> bool {
        let mut condition = Condition { rest: text, depth: 0 };
        condition.any().is_some_and(|holds| holds && condition.rest.trim_start().is_empty())
    }

    fn sign(&mut self, sign: &str) -> bool {
        match self.rest.trim_start().strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn any(&mut self) -> Option<bool> {
        let mut holds = self.all()?;
        while self.sign("||") {
            holds |= self.all()?;
        }
        Some(holds)
    }

    fn all(&mut self) -> Option<bool> {
        let mut holds = self.one()?;
        while self.sign("&&") {
            holds &= self.one()?;
        }
        Some(holds)
    }

    fn one(&mut self) -> Option<bool> {
        self.depth += 1;
        if self.depth > Self::MAX_DEPTH {
            return None;
        }
        let holds = if self.sign("!") {
            !self.one()?
        } else if self.sign("(") {
            let holds = self.any()?;
            if !self.sign(")") {
                return None;
            }
            holds
        } else {
            let text = self.rest.trim_start();
            let end = text.find(|next: char| !next.is_alphanumeric() && next != '_' && next != '$');
            let (word, rest) = text.split_at(end.unwrap_or(text.len()));
            self.rest = rest;
            if word.is_empty() {
                return None;
            }
            false
        };
        self.depth -= 1;
        Some(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(text: &str) -> Vec<(String, usize)> {
        FileHead::read(text).imports.into_iter().map(|import| (import.path, import.line)).collect()
    }

    #[test]
    fn every_form_of_import_is_read_with_its_line() {
        let text = "// A file.\n@extern(embed)\n\npackage a // its name\n\n@if(x)\nimport \"list\"\nimport b \"x.example/c@v1:b\"\nimport (\n\t// one\n\t\"x.example/d\", e \"x.example/e@v0\"\n)\nimport (\"x.example/f\")\n\nimport: \"x.example/no\"\nx: \"import\"\n";
        let expected = [
            ("list", 7),
            ("x.example/c@v1:b", 8),
            ("x.example/d", 11),
            ("x.example/e@v0", 11),
            ("x.example/f", 13),
        ];
        assert_eq!(imports(text), expected.map(|(path, line)| (path.to_owned(), line)));
        let head = FileHead::read(text);
        assert_eq!(
            (head.package.as_deref(), head.is_ignored, head.is_built_without_tags),
            (Some("a"), false, true)
        );
    }

    #[test]
    fn what_is_no_cue_ends_what_is_read() {
        assert_eq!(imports("import \"a\"\nimport 3\nimport \"b\""), [("a".to_owned(), 1)]);
        for text in ["", "import", "import (", "@", "@if(", "package", "x: 1\nimport \"a\""] {
            assert!(imports(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn what_stands_in_the_place_of_a_path_is_told_from_one() {
        for (text, path, is_path) in [
            (r#"import "x.example/l\u0065\U00000061f""#, "x.example/leaf", true),
            (r#"import "a\\b\"c""#, "a\\b\"c", true),
            (r#"import "x.example\/leaf""#, r#""x.example\/leaf""#, false),
            (r#"import "a\u00e""#, r#""a\u00e""#, false),
            (r#"import "a\ud800""#, r#""a\ud800""#, false),
            ("import \"a\nb\"", "\"a", false),
            ("import \"a\\", "\"a\\", false),
            ("import (\"a", "\"a", false),
            ("import #\"a\"#\nx: 1", "#\"a\"#", false),
            ("import n #\"a\"#", "#\"a\"#", false),
            ("import \"\"\"\n\ta\n\t\"\"\"", "\"\"\"", false),
        ] {
            let found = FileHead::read(text).imports;
            assert_eq!(found, [Import { path: path.to_owned(), is_path, line: 1 }], "{text}");
        }
        assert_eq!(imports("import \"\""), [(String::new(), 1)]);
    }

    #[test]
    fn a_nul_counts_as_far_as_the_file_is_read() {
        for (text, expected) in [
            ("package a\nx: 1\0", false),
            ("// A file.\npackage a\nimport \"b\"\nx: 1\0", false),
            ("package a\n\0", true),
            ("package a // \0\nx: 1", true),
            ("package a\nimport \"b\"\n\0", true),
            ("package a\nimport \"b\n\nx: 1\0", true),
            ("x: 1\n\0", true),
            ("@if(b)\npackage a\nx: 1\0", true),
            ("\u{feff}package a\nx: 1\0", true),
            ("", false),
        ] {
            assert_eq!(FileHead::read(text).has_nul, expected, "{text:?}");
        }
    }

    #[test]
    fn conditions_are_judged_with_no_tag_set() {
        for (text, ignored, built) in [
            ("@ignore()\npackage a", true, true),
            ("@if(foo)\npackage a", false, false),
            ("@if(!foo)\npackage a", false, true),
            ("@if(!(foo && bar) || baz)\npackage a", false, true),
            ("@if(foo + bar)\npackage a", false, false),
            ("@if(!foo)\n@if(!bar)\npackage a", false, false),
            ("package a\n@if(foo)\n", false, true),
            ("x: 1\n@ignore()", false, true),
        ] {
            let head = FileHead::read(text);
            assert_eq!((head.is_ignored, head.is_built_without_tags), (ignored, built), "{text}");
        }
        let deep = format!("@if({}foo)", "!".repeat(100_000));
        assert!(!FileHead::read(&deep).is_built_without_tags);
    }

    #[test]
    fn import_paths_have_a_path_a_major_version_and_a_package() {
        for (text, path, version, qualifier) in [
            ("x.example/a", "x.example/a", None, "a"),
            ("x.example/a@v1", "x.example/a", Some("v1"), "a"),
            ("x.example/a@v1:b", "x.example/a", Some("v1"), "b"),
            ("x.example/a:b", "x.example/a", None, "b"),
            ("x.example/a-b", "x.example/a-b", None, ""),
            ("x.example", "x.example", None, ""),
            ("list", "list", None, "list"),
        ] {
            let parsed = ImportPath::parse(text);
            assert_eq!(
                (parsed.path.as_str(), parsed.version.as_deref(), parsed.qualifier.as_str()),
                (path, version, qualifier)
            );
            assert!(parsed.is_valid(), "{text}");
        }
        for text in [
            "x.example/a@v1.2",
            "x.example/a@latest",
            "x.example//a",
            "/a.b",
            "./a",
            "x.example/a b",
            "x.example/a:b@v1",
        ] {
            assert!(!ImportPath::parse(text).is_valid(), "{text}");
        }
        let path = ImportPath::parse("x.example/a/b");
        assert_eq!(path.ancestors().collect::<Vec<_>>(), ["x.example/a/b", "x.example/a", "x.example"]);
    }
}
