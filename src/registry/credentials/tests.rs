//! Files, helpers and logins in a home of the test's own.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use base64::Engine as _;

use super::file::BASE64;
use super::*;

struct Home {
    folder: tempfile::TempDir,
    environment: CredentialEnvironment,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| Some(folder.path().join(name));
        let environment = CredentialEnvironment {
            home: path("home"),
            runtime_folder: path("run"),
            search_path: Some(folder.path().join("bin").into()),
            ..CredentialEnvironment::default()
        };
        Self { folder, environment }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(path)).unwrap_or_default()
    }

    /// Written by another process: a test that starts one at the same moment must not hold the file open for writing.
    #[cfg(unix)]
    fn helper(&self, name: &str, script: &str) {
        use std::io::Write;
        let path = self.folder.path().join(format!("bin/docker-credential-{name}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut writing = std::process::Command::new("sh")
            .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let folder = self.folder.path().display();
        let script = format!("#!/bin/sh\ncd '{folder}' || exit 9\n{script}\n");
        writing.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(writing.wait().unwrap().success());
    }

    /// A source that looks at everything each time, as if time had passed.
    fn impatient(&self) -> CredentialSource {
        CredentialSource::with_pace(self.environment.clone(), IMPATIENT)
    }

    async fn ask(&self, registry: &str, repository: &str) -> Result<Credential, CredentialError> {
        let source = CredentialSource::from_environment(self.environment.clone());
        source.credential(&registry.parse().unwrap(), Some(&repository.parse().unwrap())).await
    }

    async fn user(&self, registry: &str, repository: &str) -> String {
        match self.ask(registry, repository).await.unwrap() {
            Credential::Basic { username, .. } => username,
            other => format!("{other:?}"),
        }
    }
}

const IMPATIENT: Pace = Pace {
    look_every: Duration::ZERO,
    helper_life: Duration::ZERO,
    helper_rest: Duration::ZERO,
    margin: Duration::ZERO,
    helper_timeout: Duration::from_mins(1),
};

async fn user_of(source: &CredentialSource, registry: &str) -> String {
    match source.credential(&registry.parse().unwrap(), None).await.unwrap() {
        Credential::Basic { username, .. } => username,
        other => format!("{other:?}"),
    }
}

fn scope(text: &str) -> LoginScope {
    let (host, prefix) = text.split_once('/').map_or((text, None), |(host, prefix)| (host, Some(prefix)));
    LoginScope { registry: host.parse().unwrap(), prefix: prefix.map(|prefix| prefix.parse().unwrap()) }
}

fn login(user: &str) -> Credential {
    Credential::Basic { username: user.into(), password: "s3cret".into() }
}

fn auths(entries: &[(&str, &str)]) -> String {
    let entries: Vec<_> = entries
        .iter()
        .map(|(key, user)| format!(r#""{key}":{{"auth":"{}"}}"#, BASE64.encode(format!("{user}:p:w"))))
        .collect();
    format!(r#"{{"auths":{{{}}},"credHelpers":null}}"#, entries.join(","))
}

#[tokio::test]
async fn files_are_read_in_the_order_of_opentofu() {
    let mut home = Home::new();
    let registry = "registry.example";
    assert_eq!(home.user(registry, "a").await, "Anonymous");
    home.write("home/.dockercfg", &format!(r#"{{"{registry}":{{"username":"legacy","password":"x"}}}}"#));
    assert_eq!(home.user(registry, "a").await, "legacy");
    home.write("home/.docker/config.json", &auths(&[(registry, "docker")]));
    assert_eq!(home.user(registry, "a").await, "docker");
    home.write("home/.config/containers/auth.json", &auths(&[(registry, "config")]));
    assert_eq!(home.user(registry, "a").await, "config");
    home.write("run/containers/auth.json", &auths(&[(registry, "runtime")]));
    assert_eq!(home.user(registry, "a").await, "runtime");
    home.write("other.json", &auths(&[(registry, "named")]));
    home.environment.registry_auth_file = Some(home.folder.path().join("other.json"));
    assert_eq!(home.user(registry, "a").await, "named");
    home.environment.docker_auth_config = Some(auths(&[(registry, "variable")]));
    assert_eq!(home.user(registry, "a").await, "variable");
}

#[tokio::test]
async fn docker_config_replaces_the_folder() {
    let mut home = Home::new();
    home.write("home/.docker/config.json", &auths(&[("a.example", "home")]));
    home.write("elsewhere/config.json", &auths(&[("b.example", "elsewhere")]));
    home.environment.docker_config = Some(home.folder.path().join("elsewhere"));
    assert_eq!(home.user("a.example", "a").await, "Anonymous");
    assert_eq!(home.user("b.example", "a").await, "elsewhere");
}

#[tokio::test]
async fn the_most_specific_prefix_wins_whatever_the_file() {
    let home = Home::new();
    home.write("run/containers/auth.json", &auths(&[("r.example", "host"), ("r.example/acme/x", "x")]));
    home.write("home/.docker/config.json", &auths(&[("r.example/acme", "acme")]));
    for (repository, user) in
        [("acme/vpc", "acme"), ("acme/x/y", "x"), ("acme/x", "x"), ("acme/xy", "acme"), ("acmeother", "host")]
    {
        assert_eq!(home.user("r.example", repository).await, user, "{repository}");
    }
}

#[tokio::test]
async fn hosts_match_exactly() {
    let home = Home::new();
    home.write(
        "run/containers/auth.json",
        &auths(&[("r.example:5000", "port"), ("https://r.example/v1/", "plain"), ("docker.io", "hub")]),
    );
    for (registry, user) in [
        ("r.example", "plain"),
        ("R.example", "plain"),
        ("r.example:5000", "port"),
        ("r.example:5001", "Anonymous"),
        ("xr.example", "Anonymous"),
        ("r.example.evil", "Anonymous"),
        ("sub.r.example", "Anonymous"),
        ("index.docker.io", "hub"),
    ] {
        assert_eq!(home.user(registry, "a/b").await, user, "{registry}");
    }
}

#[tokio::test]
async fn tokens_are_told_from_passwords() {
    let home = Home::new();
    home.write(
        "run/containers/auth.json",
        &format!(
            r#"{{"auths":{{"i.example":{{"auth":"{}","identitytoken":"it"}},
                "b.example":{{"registrytoken":"rt"}},"e.example":{{}},"n.example":{{"auth":"!!"}},
                "0.example":null,"c.example":{{"auth":"{}"}},"t.example":{{"auth":"{}"}}}}}}"#,
            BASE64.encode("user:"),
            BASE64.encode(":"),
            BASE64.encode("<token>:it"),
        ),
    );
    let token = |user: &str| Credential::identity_token(user.into(), "it".into());
    assert_eq!(home.ask("i.example", "a").await.unwrap(), token("user"));
    assert_eq!(home.ask("t.example", "a").await.unwrap(), token(""));
    assert_eq!(home.ask("b.example", "a").await.unwrap(), Credential::Bearer("rt".into()));
    for nothing in ["e.example", "0.example", "c.example"] {
        assert_eq!(home.ask(nothing, "a").await.unwrap(), Credential::Anonymous, "{nothing}");
    }
    let error = home.ask("n.example", "a").await.unwrap_err().to_string();
    assert!(error.contains("`n.example`") && !error.contains("!!"), "{error}");
}

#[tokio::test]
async fn a_broken_file_is_named_and_not_repeated() {
    let home = Home::new();
    home.write("run/containers/auth.json", r#"{"auths": "s3cret""#);
    let error = home.ask("r.example", "a").await.unwrap_err().to_string();
    assert!(error.contains("run/containers/auth.json") && !error.contains("s3cret"), "{error}");
}

#[tokio::test]
async fn secrets_do_not_show() {
    let credential = Credential::Basic { username: "u".into(), password: "s3cret".into() };
    let shown = format!("{credential:?} {:?}", CredentialSource::fixed(credential.clone()));
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[cfg(unix)]
#[tokio::test]
async fn helpers_answer_for_their_hosts() {
    let home = Home::new();
    home.write(
        "home/.docker/config.json",
        r#"{"credHelpers":{"h.example":"good","t.example":"token","f.example":"bad","m.example":"missing",
            "p.example":"../good"},"credsStore":"store","auths":{"h.example":{}}}"#,
    );
    home.helper("good", r#"read server; printf '{"Username":"%s","Secret":"s3cret"}' "$1-$server""#);
    home.helper("token", r#"echo '{"Username":"<token>","Secret":"refresh"}'"#);
    home.helper("bad", "echo s3cret; exit 1");
    home.helper("store", r"echo 'credentials not found in native keychain'; exit 1");
    assert_eq!(home.user("h.example", "a").await, "get-h.example");
    assert_eq!(
        home.ask("t.example", "a").await.unwrap(),
        Credential::identity_token(String::new(), "refresh".into())
    );
    assert_eq!(home.ask("other.example", "a").await.unwrap(), Credential::Anonymous);
    for (registry, word) in [("f.example", "failed"), ("m.example", "PATH"), ("p.example", "name")] {
        let error = home.ask(registry, "a").await.unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains("s3cret"), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn an_endless_helper_is_broken_off() {
    let home = Home::new();
    home.write("home/.docker/config.json", r#"{"credsStore":"endless"}"#);
    home.helper("endless", "exec cat /dev/zero");
    assert!(matches!(home.ask("r.example", "a").await, Err(CredentialError::Helper { .. })));
}

#[cfg(unix)]
#[tokio::test]
async fn a_helper_that_never_answers_is_left() {
    let home = Home::new();
    home.write("home/.docker/config.json", r#"{"credsStore":"silent"}"#);
    home.helper("silent", "exec sleep 1000");
    let pace = Pace { helper_timeout: Duration::from_millis(50), ..Pace::default() };
    let source = CredentialSource::with_pace(home.environment.clone(), pace);
    let error = source.credential(&"r.example".parse().unwrap(), None).await.unwrap_err().to_string();
    assert!(error.contains("in time"), "{error}");
}

#[tokio::test]
async fn a_file_that_changes_is_read_again() {
    let home = Home::new();
    let source = home.impatient();
    assert_eq!(user_of(&source, "r.example").await, "Anonymous");
    // Of the same length, and within one tick of the clock.
    for user in ["one", "two", "six"] {
        home.write("run/containers/auth.json", &auths(&[("r.example", user)]));
        assert_eq!(user_of(&source, "r.example").await, user);
    }
    home.write("home/.docker/config.json", &auths(&[("r.example", "docker")]));
    assert_eq!(user_of(&source, "r.example").await, "six");
    std::fs::remove_file(home.folder.path().join("run/containers/auth.json")).unwrap();
    assert_eq!(user_of(&source, "r.example").await, "docker");
}

#[tokio::test]
async fn files_are_looked_at_once_a_second_and_at_once_after_a_refusal() {
    let home = Home::new();
    let source = CredentialSource::with_pace(
        home.environment.clone(),
        Pace { look_every: Duration::from_hours(1), ..Pace::default() },
    );
    assert_eq!(user_of(&source, "r.example").await, "Anonymous");
    home.write("run/containers/auth.json", &auths(&[("r.example", "late")]));
    assert_eq!(user_of(&source, "r.example").await, "Anonymous");
    source.doubt(&"r.example".parse().unwrap());
    assert_eq!(user_of(&source, "r.example").await, "late");
}

#[tokio::test]
async fn what_was_read_outlives_a_mistake_in_the_file() {
    let home = Home::new();
    let source = home.impatient();
    home.write("run/containers/auth.json", &auths(&[("r.example", "ann")]));
    assert_eq!(user_of(&source, "r.example").await, "ann");
    for mistake in ["{", "{\"auths\":7}", "\u{0}"] {
        home.write("run/containers/auth.json", mistake);
        assert_eq!(user_of(&source, "r.example").await, "ann", "{mistake}");
        assert!(matches!(home.ask("r.example", "a").await, Err(CredentialError::Invalid { .. })));
    }
    home.write("run/containers/auth.json", &auths(&[("r.example", "ben")]));
    assert_eq!(user_of(&source, "r.example").await, "ben");
}

/// Answers who it was asked how often.
#[cfg(unix)]
const COUNTING: &str =
    r#"echo x >>asked; printf '{"Username":"%s","Secret":"s"}' "$(wc -l <asked | tr -d ' ')""#;

#[cfg(unix)]
#[tokio::test]
async fn a_helper_is_asked_again_when_its_answer_is_old_or_refused() {
    let home = Home::new();
    let registry: RegistryHost = "r.example".parse().unwrap();
    home.write("home/.docker/config.json", r#"{"credHelpers":{"r.example":"counting"}}"#);
    home.helper("counting", COUNTING);
    let hour = Duration::from_hours(1);
    let source = |pace: Pace| {
        let _ = std::fs::remove_file(home.folder.path().join("asked"));
        CredentialSource::with_pace(home.environment.clone(), pace)
    };

    let kept = source(Pace { helper_life: hour, ..IMPATIENT });
    for expected in ["1", "1"] {
        assert_eq!(user_of(&kept, "r.example").await, expected);
    }
    kept.doubt(&"other.example".parse().unwrap());
    assert_eq!(user_of(&kept, "r.example").await, "1");
    kept.doubt(&registry);
    for expected in ["2", "2"] {
        assert_eq!(user_of(&kept, "r.example").await, expected);
    }

    let old = source(IMPATIENT);
    for expected in ["1", "2"] {
        assert_eq!(user_of(&old, "r.example").await, expected);
    }

    // A registry that refuses everything does not have it run for each request.
    let rested = source(Pace { helper_rest: hour, ..IMPATIENT });
    for _ in 0..3 {
        assert_eq!(user_of(&rested, "r.example").await, "1");
        rested.doubt(&registry);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_helper_is_asked_before_what_it_gave_runs_out() {
    let home = Home::new();
    home.write("home/.docker/config.json", r#"{"credHelpers":{"r.example":"expiring"}}"#);
    let hour = Duration::from_hours(1);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    for (expires, users) in [(now + 7200, ["1", "1"]), (now + 30, ["1", "2"]), (now - 30, ["1", "2"])] {
        let _ = std::fs::remove_file(home.folder.path().join("asked"));
        let secret = BASE64.encode(format!(r#"{{"expiration":{expires}}}"#));
        home.helper("expiring", &COUNTING.replace("\"s\"", &format!("\"{secret}\"")));
        let pace = Pace { helper_life: hour, margin: Duration::from_mins(1), ..IMPATIENT };
        let source = CredentialSource::with_pace(home.environment.clone(), pace);
        for user in users {
            assert_eq!(user_of(&source, "r.example").await, user, "{expires}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn what_a_helper_said_outlives_its_failure_and_not_a_refusal() {
    let home = Home::new();
    let registry: RegistryHost = "r.example".parse().unwrap();
    home.write("home/.docker/config.json", r#"{"credHelpers":{"r.example":"counting"}}"#);
    home.helper("counting", COUNTING);
    let source = home.impatient();
    assert_eq!(user_of(&source, "r.example").await, "1");
    home.helper("counting", "exit 1");
    assert_eq!(user_of(&source, "r.example").await, "1");
    source.doubt(&registry);
    assert!(matches!(source.credential(&registry, None).await, Err(CredentialError::Helper { .. })));
    home.helper("counting", COUNTING);
    assert_eq!(user_of(&source, "r.example").await, "2");
}

#[cfg(unix)]
#[tokio::test]
async fn callers_at_the_same_time_ask_a_helper_once() {
    let home = Home::new();
    home.write("home/.docker/config.json", r#"{"credsStore":"counting"}"#);
    home.helper("counting", COUNTING);
    let source = CredentialSource::from_environment(home.environment.clone());
    let asked = (0..20).map(|_| user_of(&source, "r.example"));
    let users = futures_util::future::join_all(asked).await;
    assert!(users.iter().all(|user| user == "1"), "{users:?}");
}

#[tokio::test]
async fn a_login_goes_to_the_file_that_wins() {
    let file = |home: &Home, text: &str| {
        let place = LoginPlace::find(&home.environment, scope(text)).unwrap();
        let path = place.file().strip_prefix(home.folder.path()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (run, config, docker) =
        ("run/containers/auth.json", "home/.config/containers/auth.json", "home/.docker/config.json");
    let mut home = Home::new();
    assert_eq!(file(&home, "r.example"), docker, "where there is none yet");
    home.write("home/.dockercfg", r#"{"r.example":{"auth":"eDp5"}}"#);
    assert_eq!(file(&home, "r.example"), docker, "the file of old is not written");
    home.write(config, &auths(&[("other.example", "x")]));
    assert_eq!(file(&home, "r.example"), config, "where Docker's is not there");
    home.write(docker, "{}");
    assert_eq!(file(&home, "r.example"), docker);
    home.write(run, &auths(&[("r.example", "x"), ("r.example/acme/vpc", "y")]));
    assert_eq!(file(&home, "r.example"), run, "where there is one already");
    assert_eq!(file(&home, "r.example/acme"), docker, "which is another one");
    assert_eq!(file(&home, "r.example/acme/vpc"), run);
    let place = LoginPlace::find(&home.environment, scope("r.example/acme")).unwrap();
    assert_eq!(place.narrower().len(), 1, "{:?}", place.narrower());
    let other = home.folder.path().join("other/auth.json");
    home.environment.registry_auth_file = Some(other);
    assert_eq!(file(&home, "r.example"), "other/auth.json");
    home.environment.docker_auth_config = Some(auths(&[("r.example", "x")]));
    let overridden = LoginPlace::find(&home.environment, scope("r.example"));
    assert!(matches!(overridden, Err(CredentialError::Overridden(_))));
    assert_eq!(file(&home, "s.example"), "other/auth.json");

    let nowhere = LoginPlace::find(&CredentialEnvironment::default(), scope("r.example"));
    assert!(matches!(nowhere, Err(CredentialError::NoPlace)));
}

#[tokio::test]
async fn a_login_is_used_from_then_on_and_forgotten_by_logout() {
    let home = Home::new();
    let source = home.impatient();
    home.write("home/.dockercfg", r#"{"r.example":{"auth":"eDp5"}}"#);
    for (text, user) in [("r.example", "ann"), ("r.example/acme", "ben"), ("docker.io", "hub")] {
        let place = LoginPlace::find(&home.environment, scope(text)).unwrap();
        place.keep(login(user)).await.unwrap();
    }
    assert_eq!(user_of(&source, "r.example").await, "ann");
    assert_eq!(home.user("r.example", "acme/vpc").await, "ben");
    assert_eq!(user_of(&source, "docker.io").await, "hub");
    assert!(home.read("home/.docker/config.json").contains("https://index.docker.io/v1/"));

    let dry = forget_login(&home.environment, &scope("r.example"), true).await.unwrap();
    assert_eq!(dry.files.len(), 2);
    assert_eq!(user_of(&source, "r.example").await, "ann");
    let done = forget_login(&home.environment, &scope("r.example"), false).await.unwrap();
    assert_eq!(done.files, dry.files);
    assert_eq!(done.left.len(), 1, "the prefix: {:?}", done.left);
    assert_eq!(user_of(&source, "r.example").await, "Anonymous");
    assert_eq!(home.user("r.example", "acme/vpc").await, "ben");
    forget_login(&home.environment, &scope("index.docker.io"), false).await.unwrap();
    assert_eq!(user_of(&source, "docker.io").await, "Anonymous");
    let nothing = forget_login(&home.environment, &scope("s.example"), false).await.unwrap();
    assert!(nothing.files.is_empty() && nothing.helpers.is_empty() && nothing.left.is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn a_login_is_for_its_owner_alone_and_respects_links() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let home = Home::new();
    let mode = |path: &str| {
        let metadata = std::fs::metadata(home.folder.path().join(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    let keep = async || {
        let place = LoginPlace::find(&home.environment, scope("r.example")).unwrap();
        place.keep(login("ann")).await.unwrap();
    };
    std::fs::create_dir_all(home.folder.path().join("home")).unwrap();
    keep().await;
    assert_eq!((mode("home/.docker"), mode("home/.docker/config.json")), (0o700, 0o600));

    // Kept with the other settings of the user, which are there already or not.
    for (start, expected) in [(Some(r#"{"currentContext": "x"}"#), "currentContext"), (None, "auths")] {
        let link = home.folder.path().join("home/.docker/config.json");
        std::fs::remove_file(&link).unwrap();
        let _ = std::fs::remove_file(home.folder.path().join("dotfiles/docker.json"));
        if let Some(text) = start {
            home.write("dotfiles/docker.json", text);
        }
        symlink("../../dotfiles/docker.json", &link).unwrap();
        keep().await;
        assert!(link.is_symlink());
        assert_eq!(mode("dotfiles/docker.json"), 0o600);
        assert!(home.read("dotfiles/docker.json").contains(expected));
        assert_eq!(home.user("r.example", "a").await, "ann");
    }
}

/// Keeps logins in files of its own, named for their server.
#[cfg(unix)]
const KEEPING: &str = r#"
input=$(cat)
case $1 in
store)
    server=$(printf '%s' "$input" | sed 's/.*"ServerURL":"\([^"]*\)".*/\1/')
    printf '%s' "$input" >"kept-$(printf '%s' "$server" | tr ':/' '__')" ;;
get) cat "kept-$(printf '%s' "$input" | tr ':/' '__')" 2>/dev/null || { echo 'credentials not found in native keychain'; exit 1; } ;;
erase) rm "kept-$(printf '%s' "$input" | tr ':/' '__')" ;;
esac"#;

#[cfg(unix)]
#[tokio::test]
async fn a_helper_that_the_file_names_keeps_the_login() {
    for (config, helper) in [
        (r#"{"credsStore":"keeping","auths":{"r.example":{"auth":"b2xkOnBhc3N3b3Jk"}}}"#, "keeping"),
        (r#"{"credHelpers":{"r.example":"keeping"},"credsStore":"none"}"#, "keeping"),
    ] {
        let home = Home::new();
        home.write("home/.docker/config.json", config);
        home.helper("keeping", KEEPING);
        home.helper("none", "exit 1");
        for credential in [login("ann"), Credential::identity_token(String::new(), "refresh".into())] {
            let place = LoginPlace::find(&home.environment, scope("r.example")).unwrap();
            assert_eq!(place.helper(), Some(helper));
            place.keep(credential.clone()).await.unwrap();
            assert_eq!(home.ask("r.example", "a").await.unwrap(), credential);
        }
        let file = home.read("home/.docker/config.json");
        assert!(!file.contains("b2xk") && !file.contains("refresh"), "{file}");
        let gone = CredentialEnvironment { search_path: None, ..home.environment.clone() };
        let unable = LoginPlace::find(&gone, scope("r.example"));
        assert!(
            matches!(unable, Err(CredentialError::Helper { .. })),
            "it is told before a password is typed"
        );
        let narrow = LoginPlace::find(&home.environment, scope("r.example/acme"));
        assert!(matches!(narrow, Err(CredentialError::TooNarrow { .. })));

        let done = forget_login(&home.environment, &scope("r.example"), false).await.unwrap();
        assert_eq!(done.helpers, [helper]);
        assert!(!home.folder.path().join("kept-r.example").exists());
        let again = forget_login(&home.environment, &scope("r.example"), false).await.unwrap();
        assert!(again.files.is_empty() && again.helpers.is_empty());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_helper_that_makes_its_credentials_itself_is_told_from_one_that_fails() {
    let home = Home::new();
    let config = r#"{"credHelpers":{"r.example":"cloud"},"auths":{"r.example":{"auth":"eDp5"}}}"#;
    home.write("home/.docker/config.json", config);
    home.helper("cloud", r#"[ "$1" = get ] && echo '{"Username":"AWS","Secret":"s3cret"}' || { echo 'not implemented s3cret'; exit 1; }"#);
    let place = LoginPlace::find(&home.environment, scope("r.example")).unwrap();
    let stored = place.keep(login("ann")).await.unwrap_err().to_string();
    assert!(stored.contains("needs none") && !stored.contains("s3cret"), "{stored}");
    assert_eq!(home.read("home/.docker/config.json"), config, "the old login is not lost");
    // What can be removed is, all the same.
    let erased = forget_login(&home.environment, &scope("r.example"), false).await.unwrap_err().to_string();
    assert!(erased.contains("switched off") && !erased.contains("s3cret"), "{erased}");
    assert!(!home.read("home/.docker/config.json").contains("eDp5"));
}

#[tokio::test]
async fn a_token_of_cue_is_for_its_host_alone_and_comes_last() {
    let mut home = Home::new();
    home.environment.cue_config = Some(home.folder.path().join("cue"));
    let login = |host: &str, more: &str| format!("\"{host}\": {{\"access_token\": \"of {host}\"{more}}}");
    let hosts = [
        login("a.example", ""),
        login("a.example:5000", ", \"expiry\": \"0001-01-01T00:00:00Z\""),
        login("old.example", ", \"refresh_token\": \"r\", \"expiry\": \"2001-01-01T00:00:00+02:00\""),
        login("late.example", ", \"expiry\": \"9000-01-01T00:00:00.5Z\""),
        login("both.example", ""),
    ];
    home.write("cue/logins.json", &format!("{{\"registries\": {{{}}}}}", hosts.join(",")));
    home.write(
        "home/.docker/config.json",
        &format!("{{\"auths\": {{\"both.example\": {{\"auth\": \"{}\"}}}}}}", BASE64.encode("ann:p")),
    );
    for host in ["a.example", "a.example:5000", "late.example"] {
        assert!(home.ask(host, "x").await.unwrap() == Credential::Bearer(format!("of {host}")), "{host}");
    }
    for host in ["b.a.example", "example", "a.example.evil.example", "a.example:5001", "late.example:443x"] {
        if let Ok(registry) = host.parse() {
            let source = CredentialSource::from_environment(home.environment.clone());
            assert!(source.credential(&registry, None).await.unwrap() == Credential::Anonymous, "{host}");
        }
    }
    assert_eq!(home.user("both.example", "x").await, "ann");
    let error = home.ask("old.example", "x").await.unwrap_err().to_string();
    assert!(error.starts_with("the login of `cue` to `old.example` in "), "{error}");
    assert!(!error.contains("of old.example"), "{error}");
    for damaged in [
        "7",
        "{\"registries\": 7}",
        "{\"registries\": {\"a\": {\"access_token\": \"\"}}}",
        "{\"registries\": {\"a\": {}}}",
    ] {
        home.write("cue/logins.json", damaged);
        let error = home.ask("a.example", "x").await.unwrap_err().to_string();
        assert!(error.contains("is not what `cue login` writes"), "{damaged}: {error}");
    }
    for nothing in ["", "{}", "{\"registries\": null}"] {
        home.write("cue/logins.json", nothing);
        assert!(home.ask("a.example", "x").await.unwrap() == Credential::Anonymous, "{nothing}");
    }
}
