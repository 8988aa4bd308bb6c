//! What git knows of a module's folder: the commit, tags, and which files are tracked.
//!
//! The `git` program is asked, since nothing else agrees with it on what a work tree is. It may be absent, or the folder may be
//! in no repository: then there is simply nothing to know.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::module::Version;

/// What is known of the commit that a folder is at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitState {
    /// The commit, in hexadecimal.
    pub revision: String,
    /// When it was committed, in seconds since 1970.
    pub commit_time: i64,
    /// Whether the folder has no change that is not committed, and no file that is not tracked.
    pub is_clean: bool,
    /// The tags at the commit.
    pub tags: Vec<String>,
    /// The URL of `origin`, without user, password, query and fragment.
    pub source: Option<String>,
}

/// Asks git about `folder`; `None` where it is in no repository, has no commit, or git is not there.
pub async fn state(folder: &Path) -> Option<GitState> {
    let head = lines(folder, ["log", "-1", "--format=%H%n%ct"]).await?;
    let [revision, time] = &head[..] else { return None };
    let status = lines(folder, ["status", "--porcelain", "--untracked-files=normal", "--", "."]).await?;
    let tags = lines(folder, ["tag", "--points-at", "HEAD"]).await.unwrap_or_default();
    let source = lines(folder, ["remote", "get-url", "origin"]).await.unwrap_or_default();
    Some(GitState {
        revision: revision.clone(),
        commit_time: time.parse().ok()?,
        is_clean: status.is_empty(),
        tags,
        source: source.first().and_then(|url| without_credentials(url)),
    })
}

/// The files below `folder` that git tracks, relative to it; `None` as for [`state`].
pub async fn tracked_files(folder: &Path) -> Option<Vec<PathBuf>> {
    let output = run(folder, ["ls-files", "-z", "--", "."]).await?;
    let names = output.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Some(names.map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned())).collect())
}

/// The top folder of the work tree; `None` as for [`state`].
pub async fn top_folder(folder: &Path) -> Option<PathBuf> {
    Some(PathBuf::from(lines(folder, ["rev-parse", "--show-toplevel"]).await?.first()?))
}

async fn lines<'a>(folder: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Option<Vec<String>> {
    let output = run(folder, arguments).await?;
    Some(String::from_utf8_lossy(&output).lines().map(str::to_owned).collect())
}

async fn run<'a>(folder: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Option<Vec<u8>> {
    let output = Command::new("git")
        // Asking must not write, and starts none of the programs that a configuration may name for it. Filters of the work tree's own
        // configuration are an exception: without them nobody could tell whether a file was changed.
        .args(["-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "log.showSignature=false"])
        .env("GIT_OPTIONAL_LOCKS", "0")
        .args(arguments.into_iter().map(OsStr::new))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .await
        .ok()?;
    output.status.success().then_some(output.stdout)
}

/// The versions that the tags at the commit say for a module of these names: `v1.2.0`, and in a repository of many modules
/// `name/v1.2.0` or `name-v1.2.0`, which go before. Ascending, none twice.
pub fn tagged_versions(tags: &[String], names: &[&str]) -> Vec<Version> {
    let of = |prefix: &str| -> Vec<Version> {
        let bare = tags.iter().filter_map(|tag| tag.strip_prefix(prefix));
        // A tag without `v` could be anything (`2024.1.0`), so it is not taken for a version.
        bare.filter(|tag| tag.starts_with('v')).filter_map(|tag| Version::parse(tag).ok()).collect()
    };
    let own = names.iter().flat_map(|name| [of(&format!("{name}/")), of(&format!("{name}-"))].concat());
    let mut versions: Vec<Version> = own.collect();
    if versions.is_empty() {
        versions = of("");
    }
    versions.sort();
    versions.dedup();
    versions
}

/// The URL of a remote as it may be shown to strangers; `None` for what is no URL of a server.
fn without_credentials(url: &str) -> Option<String> {
    let parse = |url: &str| {
        let mut url = url::Url::parse(url).ok()?;
        url.host_str()?;
        // A URL that holds neither cannot refuse to lose them.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        Some(url.to_string())
    };
    if url.contains("://") {
        return parse(url);
    }
    // git's short form of ssh: `user@host:path`
    let (host, path) = url.split_once(':')?;
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    if host.contains('/') { None } else { parse(&format!("ssh://{host}/{}", path.trim_start_matches('/'))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_cut_out_of_the_source() {
        for (url, shown) in [
            ("https://user:secret@github.com/acme/x.git?t=1#f", Some("https://github.com/acme/x.git")),
            ("https://token@github.com/acme/x", Some("https://github.com/acme/x")),
            ("git@github.com:acme/x.git", Some("ssh://github.com/acme/x.git")),
            ("ssh://git@host:22/x", Some("ssh://host:22/x")),
            ("/srv/git/x", None),
            ("../x", None),
            ("file:///srv/x", None),
        ] {
            assert_eq!(without_credentials(url).as_deref(), shown, "{url}");
        }
    }

    #[test]
    fn a_tag_with_the_modules_name_goes_before() {
        let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        let found = |all: &[&str], name| {
            tagged_versions(&tags(all), &[name]).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(&["v1.2.0"], "vpc"), ["1.2.0"]);
        assert_eq!(found(&["v9.0.0", "vpc/v1.2.0"], "vpc"), ["1.2.0"]);
        assert_eq!(found(&["vpc-v1.2.0", "eks-v2.0.0"], "vpc"), ["1.2.0"]);
        assert!(found(&["eks-v2.0.0", "release", "2024.1.0", "v1"], "vpc").is_empty());
    }
}
