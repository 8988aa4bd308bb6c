//! Finds the real clients. One that is absent is skipped, with a word, unless `OCIMOD_TEST_CLIENTS=required`.

use std::path::PathBuf;

/// Where `tests/clients/install` puts them.
fn folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let clients = set("OCIMOD_TEST_CLIENTS_DIR").unwrap_or_else(|| {
        let home = set("HOME").unwrap_or_default();
        set("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("ocimod/clients")
    });
    clients.join("bin")
}

/// The program of that name, or `None` after a word that the test is skipped.
#[track_caller]
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::iter::once(folder())
        .chain(std::env::split_paths(&paths))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file());
    if found.is_none() {
        // `terraform` is under a licence that package registries do not carry it by: it is used where it is found.
        let required = std::env::var_os("OCIMOD_TEST_CLIENTS").is_some_and(|value| value == "required");
        assert!(
            !required || name == "terraform",
            "`{name}` is required and not there; run tests/clients/install"
        );
        #[allow(clippy::print_stderr)] // where cargo shows it to whoever asks why a test was so quick
        {
            eprintln!("skipped: `{name}` is not there; tests/clients/install installs it");
        }
    }
    found
}

/// Every OpenTofu and Terraform that is there.
#[track_caller]
pub(crate) fn tofus() -> Vec<PathBuf> {
    ["tofu-1.12", "tofu-1.10", "terraform"].into_iter().filter_map(find).collect()
}
