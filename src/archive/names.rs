//! The rules about names and sizes: what may stand in a module, whether it comes from a zip or from a folder.
//!
//! Names are checked as they are and never cleaned: a name that has to be cleaned means one thing to the program that cleans
//! it and another to the next. For a CUE module the rules of `cue` hold too (its `module.CheckFilePath` and `modzip.CheckZip`),
//! since `cue` refuses the whole module otherwise.

use super::check::{
    CheckError, MAX_COMPONENT_LENGTH, MAX_ENTRIES, MAX_LICENSE_SIZE, MAX_MODULE_FILE_SIZE, MAX_NAME_LENGTH,
};
use super::{Contents, ModuleKind};

/// The module file's name in every zip.
pub(super) const MODULE_FILE: &str = "cue.mod/module.cue";
/// The developer's own replacements, meant for one machine; `cue` refuses a zip that holds it.
pub(super) const LOCAL_MODULE_FILE: &str = "cue.mod/local-module.cue";

/// Names that Windows keeps for devices, in any case and with any extension.
const RESERVED_NAMES: [&str; 22] = [
    "con", "prn", "aux", "nul", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9",
    "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
];

/// Checks all entries of a zip: `(name, size)`, where the name of a folder ends in `/`. Sizes are in bytes, unpacked.
pub(super) fn check_entries<'a>(
    entries: impl IntoIterator<Item = (&'a str, u64)>,
    contents: impl Into<Contents>,
) -> Result<(), CheckError> {
    let contents = contents.into();
    let max_unpacked = contents.max_unpacked_size();
    let is_cue = contents == Contents::Module(Some(ModuleKind::Cue));
    let mut unpacked = 0_u64;
    let mut names = Vec::new();
    for (name, size) in entries {
        check_name(name)?;
        if let Contents::Module(kind) = contents {
            check_cue_mod(name, kind)?;
        }
        if is_cue {
            check_cue_name(name)?;
        }
        let limit = match (contents, name) {
            (Contents::Module(_), MODULE_FILE) => MAX_MODULE_FILE_SIZE,
            (Contents::Module(_), "LICENSE") => MAX_LICENSE_SIZE,
            _ => max_unpacked,
        };
        if size > limit {
            return Err(CheckError::FileTooLarge { name: name.to_owned(), size, limit });
        }
        unpacked = unpacked.saturating_add(size);
        names.push(name);
        if names.len() > MAX_ENTRIES {
            return Err(CheckError::TooManyEntries { entries: names.len() as u64 });
        }
    }
    if unpacked > max_unpacked {
        return Err(CheckError::UnpackedTooLarge { size: unpacked, limit: max_unpacked });
    }
    if names.iter().all(|name| name.ends_with('/')) {
        return Err(CheckError::NoFiles);
    }
    check_collisions(&names)?;
    if is_cue && !names.contains(&MODULE_FILE) {
        return Err(CheckError::ModuleFileMissing);
    }
    Ok(())
}

/// What version control keeps beside the files. In a folder that has it, these programs run what is named there.
const VERSION_CONTROL: [&str; 5] = [".git", ".hg", ".svn", ".bzr", ".jj"];

/// What holds for a name of either kind, by itself.
pub(super) fn check_name(name: &str) -> Result<(), CheckError> {
    let shown = || name.to_owned();
    if name.len() > MAX_NAME_LENGTH {
        return Err(CheckError::NameTooLong { name: name.chars().take(MAX_COMPONENT_LENGTH).collect() });
    }
    if name.contains(char::is_control) {
        return Err(CheckError::ControlCharacter { name: shown() });
    }
    if name.contains('\\') {
        return Err(CheckError::Backslash { name: shown() });
    }
    if name.starts_with('/') {
        return Err(CheckError::AbsoluteName { name: shown() });
    }
    if let [letter, b':', ..] = name.as_bytes()
        && letter.is_ascii_alphabetic()
    {
        return Err(CheckError::DriveLetter { name: shown() });
    }
    for component in name.strip_suffix('/').unwrap_or(name).split('/') {
        match component {
            ".." => return Err(CheckError::ParentFolder { name: shown() }),
            "" | "." => return Err(CheckError::UncleanName { name: shown() }),
            _ if VERSION_CONTROL.iter().any(|known| component.eq_ignore_ascii_case(known)) => {
                return Err(CheckError::VersionControl { name: shown() });
            }
            _ if component.len() > MAX_COMPONENT_LENGTH => {
                return Err(CheckError::NameTooLong { name: shown() });
            }
            _ => {}
        }
    }
    Ok(())
}

/// `cue.mod` is the root's, in lower case: below it would be another module, and another case would clash with the module
/// file that a push writes.
fn check_cue_mod(name: &str, kind: Option<ModuleKind>) -> Result<(), CheckError> {
    let shown = || name.to_owned();
    let (first, rest) = name.split_once('/').unwrap_or((name, ""));
    if rest.split('/').any(|component| fold(component) == "cue.mod") {
        return Err(CheckError::NestedCueMod { name: shown() });
    }
    if fold(first) != "cue.mod" {
        return Ok(());
    }
    if first != "cue.mod" || (rest != "module.cue" && fold(rest) == "module.cue") {
        return Err(CheckError::CueModCase { name: shown() });
    }
    if kind == Some(ModuleKind::Cue) {
        if rest.is_empty() {
            return Err(CheckError::CueModEntry { name: shown() });
        }
        if name == LOCAL_MODULE_FILE {
            return Err(CheckError::LocalModuleFile { name: shown() });
        }
    }
    Ok(())
}

/// The form of a name in a CUE module.
fn check_cue_name(name: &str) -> Result<(), CheckError> {
    for component in name.strip_suffix('/').unwrap_or(name).split('/') {
        if let Some(character) = component.chars().find(|character| !is_cue_name_character(*character)) {
            return Err(CheckError::NameCharacter { name: name.to_owned(), character });
        }
        if component.ends_with('.') {
            return Err(CheckError::TrailingDot { name: name.to_owned() });
        }
        let stem = component.split_once('.').map_or(component, |(stem, _)| stem);
        if RESERVED_NAMES.iter().any(|reserved| stem.eq_ignore_ascii_case(reserved)) {
            return Err(CheckError::ReservedName { name: name.to_owned() });
        }
    }
    Ok(())
}

fn is_cue_name_character(character: char) -> bool {
    if character.is_ascii() {
        character.is_ascii_alphanumeric() || "!#$%&()+,-.=@[]^_{}~ ".contains(character)
    } else {
        is_letter(character)
    }
}

/// Unicode's general category L. `Alphabetic` is that and the letter numbers, some marks, and the enclosed letters.
fn is_letter(character: char) -> bool {
    let enclosed = matches!(character,
        '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f149}' | '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}');
    character.is_alphabetic()
        && !character.is_numeric()
        && !unicode_normalization::char::is_combining_mark(character)
        && !enclosed
}

/// Unicode simple case folding: two names with the same result are one name on a file system that ignores case.
pub(super) fn fold(name: &str) -> String {
    name.chars().map(fold_character).collect()
}

/// Lower, upper, lower: the middle step brings together what shares a capital (`σ` and `ς`, `s` and `ſ`). A mapping to several
/// characters is none in simple folding, and neither is that of the dotless `ı`.
fn fold_character(character: char) -> char {
    if character.is_ascii() {
        return character.to_ascii_lowercase();
    }
    if character == 'ı' {
        return character;
    }
    let lower = only(character.to_lowercase(), character);
    let upper = only(lower.to_uppercase(), lower);
    only(upper.to_lowercase(), lower)
}

fn only(mut mapped: impl Iterator<Item = char>, otherwise: char) -> char {
    mapped.next().filter(|_| mapped.next().is_none()).unwrap_or(otherwise)
}

/// No two names may be equal under case folding, folders on the way included, and no file may be a folder too.
///
/// Sorted by their folded components, names that share a folder stand together, so that neighbours alone have to be
/// compared: memory is that of the names, however deep they are.
fn check_collisions(names: &[&str]) -> Result<(), CheckError> {
    // NUL sorts before every character that a name may have, so `a` comes right before all of `a/...`.
    let mut sorted: Vec<(String, &str)> = names
        .iter()
        .map(|name| (fold(name.strip_suffix('/').unwrap_or(name)).replace('/', "\0"), *name))
        .collect();
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        let [(first_key, first), (second_key, second)] = pair else { continue };
        let [name, other] = [*second, *first].map(str::to_owned);
        let components = first_key.split('\0').zip(second_key.split('\0'));
        let shared = components.take_while(|(left, right)| left == right).count();
        if first.split('/').take(shared).ne(second.split('/').take(shared)) {
            return Err(CheckError::CaseClash { name, other });
        }
        if first_key == second_key && first.ends_with('/') == second.ends_with('/') {
            return Err(CheckError::DuplicateName { name });
        }
        let first_holds_second = shared == first_key.split('\0').count();
        if first_key == second_key || (first_holds_second && !first.ends_with('/')) {
            return Err(CheckError::FileAndFolder { name: other, other: name });
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::check::MAX_UNPACKED_SIZE;
    use super::*;
    use proptest::prelude::*;

    fn rule(names: &[&str], kind: Option<ModuleKind>) -> &'static str {
        check_entries(names.iter().map(|name| (*name, 1)), kind)
            .map_or_else(|error| error.rule(), |()| "passes")
    }

    #[test]
    fn names_that_lead_elsewhere_or_mean_two_things_are_refused() {
        for (name, expected) in [
            ("main.tf", "passes"),
            ("a/b c/ünï 😀.tf", "passes"),
            (".hidden/..x/x..", "passes"),
            ("ab:c", "passes"),
            (".gitignore", "passes"),
            (".github/workflows/x.yml", "passes"),
            (".git/config", "version-control"),
            ("a/.GIT/hooks/x", "version-control"),
            ("a/.hg", "version-control"),
            ("..", "parent-folder"),
            ("../x", "parent-folder"),
            ("a/../b", "parent-folder"),
            ("a/..", "parent-folder"),
            ("/etc/passwd", "absolute-name"),
            ("//x", "absolute-name"),
            ("/", "absolute-name"),
            ("C:/x", "drive-letter"),
            ("c:x", "drive-letter"),
            ("..\\x", "backslash"),
            ("\\\\host\\share", "backslash"),
            ("a\0b", "control-character"),
            ("a\nb", "control-character"),
            ("a\u{85}b", "control-character"),
            ("", "unclean-name"),
            (".", "unclean-name"),
            ("./a", "unclean-name"),
            ("a//b", "unclean-name"),
            ("a/./b", "unclean-name"),
        ] {
            assert_eq!(rule(&[name], None), expected, "{name:?}");
        }
        assert_eq!(rule(&[&"a".repeat(255)], None), "passes");
        assert_eq!(rule(&[&"a".repeat(256)], None), "name-too-long");
        assert_eq!(rule(&[&"a/".repeat(511)], None), "no-files");
        assert_eq!(rule(&[&"a/".repeat(513)], None), "name-too-long");
        assert_eq!(rule(&[], None), "no-files");
    }

    #[test]
    fn an_error_escapes_what_would_act_on_a_terminal() {
        let error = check_name("a\x1b[2J\u{202e}b").unwrap_err().to_string();
        assert!(!error.contains('\x1b') && !error.contains('\u{202e}'), "{error}");
        assert!(check_name(&"x".repeat(1 << 20)).unwrap_err().to_string().len() < 500);
    }

    #[test]
    fn names_that_one_file_system_cannot_hold_together_are_refused() {
        for (names, expected) in [
            (&["a", "b", "a/"][..], "file-and-folder"),
            (&["a/", "a/b", "a/c/"], "passes"),
            (&["a", "a"], "duplicate-name"),
            (&["a/", "a/", "x"], "duplicate-name"),
            (&["a", "a/b"], "file-and-folder"),
            (&["a/b/c", "a/b", "a!"], "file-and-folder"),
            (&["README", "readme"], "case-clash"),
            (&["x/y", "X/z"], "case-clash"),
            (&["x", "X/z"], "case-clash"),
            (&["a/K", "a/\u{212a}"], "case-clash"),
            (&["ſ", "S"], "case-clash"),
            (&["σ", "ς"], "case-clash"),
            (&["Ü", "ü"], "case-clash"),
            (&["ß", "ẞ"], "case-clash"),
            (&["ß", "ss", "ı", "i", "İ"], "passes"),
            (&["ab", "a/b", "a.b"], "passes"),
        ] {
            assert_eq!(rule(names, None), expected, "{names:?}");
        }
    }

    #[test]
    fn cue_mod_is_the_roots_and_in_lower_case() {
        for kind in [None, Some(ModuleKind::OpenTofu)] {
            assert_eq!(rule(&["cue.mod/module.cue", "cue.mod/gen/x"], kind), "passes");
            assert_eq!(rule(&["cue.mod/", "a"], kind), "passes");
            assert_eq!(rule(&["a/cue.mod/module.cue"], kind), "nested-cue-mod");
            assert_eq!(rule(&["a/CUE.mod"], kind), "nested-cue-mod");
            assert_eq!(rule(&["cue.mod/pkg/cue.mod/x"], kind), "nested-cue-mod");
            assert_eq!(rule(&["Cue.mod/module.cue"], kind), "cue-mod-case");
            assert_eq!(rule(&["cue.mod/Module.cue"], kind), "cue-mod-case");
        }
    }

    #[test]
    fn a_cue_module_keeps_the_rules_of_cue() {
        let with_module_file = |name| rule(&[MODULE_FILE, name], Some(ModuleKind::Cue));
        for (name, expected) in [
            ("x.cue", "passes"),
            ("main.tf", "passes"),
            ("vendor/", "passes"),
            ("a!#$%&()+,-.=@[]^_{}~ b", "passes"),
            ("ünï.txt", "passes"),
            ("日本.cue", "passes"),
            ("😀", "name-character"),
            ("Ⅷ", "name-character"),
            ("Ⓐ", "name-character"),
            ("a\u{301}", "name-character"),
            ("की", "name-character"),
            ("ab:c", "name-character"),
            ("it's", "name-character"),
            ("a*", "name-character"),
            ("a.", "trailing-dot"),
            ("a/.../b", "trailing-dot"),
            ("aux.cue", "reserved-name"),
            ("x/COM1.a.b/y", "reserved-name"),
            ("auxiliary", "passes"),
            ("cue.mod/local-module.cue", "local-module-file"),
            ("cue.mod/", "cue-mod-entry"),
            ("cue.mod/pkg/x.cue", "passes"),
        ] {
            assert_eq!(with_module_file(name), expected, "{name:?}");
        }
        assert_eq!(rule(&["x.cue"], Some(ModuleKind::Cue)), "module-file-missing");
        assert_eq!(rule(&["x.cue", "cue.mod"], Some(ModuleKind::Cue)), "cue-mod-entry");
    }

    #[test]
    fn sizes_and_counts_have_limits() {
        let check = |entries: &[(&str, u64)]| {
            check_entries(entries.iter().copied(), None).map_err(|error| error.rule())
        };
        assert_eq!(check(&[("a", MAX_UNPACKED_SIZE)]), Ok(()));
        assert_eq!(check(&[("a", MAX_UNPACKED_SIZE + 1)]), Err("file-too-large"));
        assert_eq!(check(&[("a", MAX_UNPACKED_SIZE), ("b", 1)]), Err("unpacked-too-large"));
        assert_eq!(check(&[("LICENSE", MAX_LICENSE_SIZE)]), Ok(()));
        assert_eq!(check(&[("LICENSE", MAX_LICENSE_SIZE + 1)]), Err("file-too-large"));
        assert_eq!(check(&[("a/LICENSE", MAX_LICENSE_SIZE + 1)]), Ok(()));
        assert_eq!(check(&[(MODULE_FILE, MAX_MODULE_FILE_SIZE + 1)]), Err("file-too-large"));
        let provider = |size| check_entries([("LICENSE", 1), ("program", size)], Contents::Provider).is_ok();
        assert!(provider(2 * MAX_UNPACKED_SIZE) && !provider(Contents::Provider.max_unpacked_size()));
        let names: Vec<String> = (0..=MAX_ENTRIES).map(|number| number.to_string()).collect();
        let entries = |count: usize| names.iter().take(count).map(|name| (name.as_str(), 0));
        assert!(check_entries(entries(MAX_ENTRIES), None).is_ok());
        assert_eq!(check_entries(entries(MAX_ENTRIES + 1), None).unwrap_err().rule(), "too-many-entries");
    }

    /// The rule about collisions as one would say it, in quadratic time.
    fn collides(names: &[String]) -> bool {
        let folded: Vec<String> = names.iter().map(|name| fold(name)).collect();
        let ancestors = |name: &str| -> Vec<String> {
            name.match_indices('/').map(|(end, _)| name[..end].to_owned()).collect()
        };
        (0..names.len()).any(|left| {
            (0..names.len()).filter(|right| *right != left).any(|right| {
                folded[left] == folded[right]
                    || ancestors(&folded[left]).contains(&folded[right])
                    || ancestors(&names[left]).iter().any(|above| {
                        ancestors(&names[right])
                            .iter()
                            .any(|other| fold(above) == fold(other) && above != other)
                    })
            })
        })
    }

    proptest! {
        #[test]
        fn neighbours_are_enough_to_find_every_collision(names in proptest::collection::vec("[abA]{1,2}(/[abA!]){0,3}", 1..8)) {
            let names_now: Vec<&str> = names.iter().map(String::as_str).collect();
            prop_assert_eq!(check_collisions(&names_now).is_err(), collides(&names));
        }

        #[test]
        fn no_name_makes_the_checks_panic(name in "\\PC{0,40}|[\\x00-\\x7f]{0,40}") {
            for kind in [None, Some(ModuleKind::Cue), Some(ModuleKind::OpenTofu)] {
                drop(check_entries([(name.as_str(), 0)], kind));
            }
        }
    }
}
