//! Which licence a module is under, for the annotation that registries and scanners show.
//!
//! A name for the few texts that nearly all modules use, and none for anything else: a wrong licence is worse than no licence.

use crate::archive::Tree;

/// Where a licence is looked for, at the top of the module.
const FILES: [&str; 4] = ["LICENSE", "LICENSE.md", "LICENSE.txt", "COPYING"];
/// The names stand at the beginning; longer files are read no further.
const MAX_LICENSE: u64 = 128 * 1024;

/// Words that a licence's text begins with (white space and case aside), and its SPDX identifier.
const KNOWN: [(&[&str], &str); 8] = [
    (&["apache license version 2.0"], "Apache-2.0"),
    (&["mozilla public license version 2.0", "mozilla public license, version 2.0"], "MPL-2.0"),
    (&["mit license"], "MIT"),
    (&["bsd 3-clause license"], "BSD-3-Clause"),
    (&["bsd 2-clause license"], "BSD-2-Clause"),
    (&["isc license"], "ISC"),
    (&["business source license 1.1"], "BUSL-1.1"),
    (&["cc0 1.0 universal"], "CC0-1.0"),
];

/// The SPDX identifier of the module's licence, where it is one of the known ones.
pub(super) fn of(tree: &Tree) -> Option<String> {
    let file = FILES.iter().find(|name| tree.get(name).is_some())?;
    let bytes = tree.read(file, MAX_LICENSE).ok()??;
    identify(&String::from_utf8_lossy(&bytes)).map(str::to_owned)
}

fn identify(text: &str) -> Option<&'static str> {
    let start: Vec<_> = text.split_whitespace().take(40).collect();
    let start = start.join(" ").to_lowercase();
    let start = start.trim_start_matches(['#', ' ', '(']);
    KNOWN
        .iter()
        .find(|(names, _)| {
            names.iter().any(|name| start.starts_with(name) || start.starts_with(&format!("the {name}")))
        })
        .map(|(_, identifier)| *identifier)
}

#[cfg(test)]
mod tests {
    use super::identify;

    #[test]
    fn the_common_texts_are_known_and_nothing_is_guessed() {
        assert_eq!(identify("\n   Apache License\n  Version 2.0, January 2004\n"), Some("Apache-2.0"));
        assert_eq!(identify("# MIT License\n\nCopyright"), Some("MIT"));
        assert_eq!(identify("The MIT License (MIT)"), Some("MIT"));
        assert_eq!(identify("Mozilla Public License Version 2.0"), Some("MPL-2.0"));
        assert_eq!(identify("All rights reserved. Not the MIT License"), None);
        assert_eq!(identify(""), None);
    }
}
