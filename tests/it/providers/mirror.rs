//! The network mirror: what it answers, to whom, and that real clients install from it and straight from the registry.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use ocimod::artifact::{MarkForm, Reason, YankMark, provider_tag, yank_tag};
use ocimod::module::Version;
use ocimod::oci::{Digest, IMAGE_MANIFEST};
use ocimod::operations::connect;
use ocimod::registry::{BytesSource, Condition, NewManifest};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::packages::{package, zip};
use super::{REPOSITORY, TIME, h1, provider, push_with_oras, refused, store, text, zh};
use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::ocimod::{Ocimod, Serve};
use crate::support::process::{Answer, isolated, run};
use crate::support::tls::Certificate;

const MIRROR: &str = "/v1/mirror/registry.opentofu.org/hashicorp/time";

async fn ask(method: Method, address: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    ocimod::registry::remote::install_crypto_provider();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    let request = client.expect("a client").request(method, format!("http://{address}{path}"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.send().await.expect("the server answers")
}

async fn get(address: &str, path: &str) -> Response {
    ask(Method::GET, address, path, &[]).await
}

fn header(response: &Response, name: &str) -> String {
    response.headers().get(name).map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default()
}

/// A store with two versions, one of which has build metadata.
fn filled(ocimod: &Ocimod, registry: &str) -> [PathBuf; 3] {
    let folder = ocimod.folder("zips");
    let linux = package(&folder, "time", "0.14.2", "linux_amd64", "");
    let darwin = package(&folder, "time", "0.14.2", "darwin_arm64", "");
    let build = package(&folder, "time", "1.0.0+b.1", "linux_amd64", "");
    provider(ocimod, registry, &["push", "hashicorp/time@0.14.2", text(&linux), text(&darwin)]);
    provider(ocimod, registry, &["push", "hashicorp/time@1.0.0+b.1", text(&build)]);
    [linux, darwin, build]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocol_is_answered_as_clients_take_it() {
    let (ocimod, registry) = store();
    let [linux, _, build] = filled(&ocimod, &registry);
    let serve = ocimod.serve(["--registry", &registry, "--base-path", "/below"]);
    let (address, mirror) = (serve.address.clone(), format!("/below{MIRROR}"));

    let index = get(&address, &format!("{mirror}/index.json")).await;
    assert_eq!((index.status().as_u16(), header(&index, "content-type").as_str()), (200, "application/json"));
    let etag = header(&index, "etag");
    assert_eq!(index.json::<Value>().await.unwrap(), json!({"versions": {"0.14.2": {}, "1.0.0+b.1": {}}}));
    let again =
        ask(Method::GET, &address, &format!("{mirror}/index.json"), &[("if-none-match", &etag)]).await;
    assert_eq!(again.status(), 304);
    let upper = "/below/v1/mirror/Registry.OpenTofu.org/HashiCorp/Time/index.json";
    assert_eq!(get(&address, upper).await.status(), 200);

    let version = get(&address, &format!("{mirror}/0.14.2.json")).await;
    assert_eq!(header(&version, "content-type"), "application/json");
    assert_eq!(header(&version, "cache-control"), "no-store");
    let archives = version.json::<Value>().await.unwrap()["archives"].clone();
    assert_eq!(archives.as_object().unwrap().keys().collect::<Vec<_>>(), ["darwin_arm64", "linux_amd64"]);
    assert_eq!(archives["linux_amd64"]["hashes"], json!([h1(&linux), zh(&linux)]));
    let url = archives["linux_amd64"]["url"].as_str().unwrap().trim_start_matches("./").to_owned();
    let zip = get(&address, &format!("{mirror}/{url}")).await;
    assert_eq!((zip.status().as_u16(), header(&zip, "content-type").as_str()), (200, "application/zip"));
    assert_eq!(zip.bytes().await.unwrap(), std::fs::read(&linux).unwrap());
    let head = ask(Method::HEAD, &address, &format!("{mirror}/{url}"), &[]).await;
    assert_eq!(header(&head, "content-length"), std::fs::metadata(&linux).unwrap().len().to_string());
    let piece = ask(Method::GET, &address, &format!("{mirror}/{url}"), &[("range", "bytes=0-3")]).await;
    assert_eq!((piece.status().as_u16(), piece.bytes().await.unwrap().as_ref()), (206, &b"PK\x03\x04"[..]));

    for version in ["1.0.0+b.1", "1.0.0%2Bb.1"] {
        let archives =
            get(&address, &format!("{mirror}/{version}.json")).await.json::<Value>().await.unwrap();
        let url =
            archives["archives"]["linux_amd64"]["url"].as_str().unwrap().trim_start_matches("./").to_owned();
        assert!(url.starts_with("terraform-provider-time_1.0.0+b.1_linux_amd64.zip?"), "{url}");
        let zip = get(&address, &format!("{mirror}/{url}")).await.bytes().await.unwrap();
        assert_eq!(zip, std::fs::read(&build).unwrap());
    }

    // A link is good for its own file alone, and for nothing when it was altered.
    let (_, query) = url.split_once('?').unwrap();
    for file in [
        "terraform-provider-time_0.14.2_darwin_arm64.zip",
        "terraform-provider-time_1.0.0+b.1_linux_amd64.zip",
    ] {
        assert_eq!(get(&address, &format!("{mirror}/{file}?{query}")).await.status(), 403, "{file}");
    }
    assert_eq!(get(&address, &format!("{mirror}/{url}0")).await.status(), 403);

    for path in [
        "/v1/mirror/registry.opentofu.org/hashicorp/other/index.json",
        "/v1/mirror/registry.terraform.io/hashicorp/time/index.json",
        "/v1/mirror/host:8443/hashicorp/time/index.json",
        "/v1/mirror/..%2f..%2fx/hashicorp/time/index.json",
        "/v1/mirror/registry.opentofu.org/hashicorp/time/9.9.9.json",
        "/v1/mirror/registry.opentofu.org/hashicorp/time/v0.14.2.json",
        "/v1/mirror/registry.opentofu.org/hashicorp/time/0.14.json",
        "/v1/mirror/registry.opentofu.org/hashicorp/time/x",
        "/v1/mirror/registry.opentofu.org/hashicorp/time/terraform-provider-time_0.14.2_windows_386.zip",
        "/v1/mirror/registry.opentofu.org/hashicorp/time/terraform-provider-tls_0.14.2_linux_amd64.zip",
    ] {
        let answer = get(&address, &format!("/below{path}")).await;
        assert_eq!(
            (answer.status().as_u16(), header(&answer, "content-type").as_str()),
            (404, "application/json"),
            "{path}"
        );
    }
    // A person who names a file needs no link.
    let plain = "terraform-provider-time_0.14.2_linux_amd64.zip";
    assert_eq!(get(&address, &format!("{mirror}/{plain}")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_a_provider_is_told_of_none() {
    let (ocimod, registry) = store();
    filled(&ocimod, &registry);
    let token = |name: &str, repositories: &str| {
        let words = [
            "token",
            "new",
            name,
            "--allow",
            "read",
            "--repositories",
            repositories,
            "--access",
            "access.toml",
        ];
        format!("Bearer {}", ocimod.run(words).success().stdout.trim_end())
    };
    let ours = token("ours", "providers/registry.opentofu.org/hashicorp/*");
    let theirs = token("theirs", "acme/*");
    let serve = ocimod.serve(["--registry", &registry, "--access", "access.toml"]);
    let with = |path: String, token: &str| {
        let (address, token) = (serve.address.clone(), token.to_owned());
        async move { ask(Method::GET, &address, &path, &[("authorization", &token)]).await }
    };
    for file in ["index.json", "0.14.2.json", "9.9.9.json"] {
        let path = format!("{MIRROR}/{file}");
        assert_eq!(get(&serve.address, &path).await.status(), 401, "{file}");
        assert_eq!(with(path.clone(), "Bearer wrong").await.status(), 401, "{file}");
        assert_eq!(with(path, &theirs).await.status(), 404, "{file}");
    }
    let secret = with(format!("{MIRROR}/index.json"), &theirs).await.text().await.unwrap();
    let nothing = with(MIRROR.replace("time", "none") + "/index.json", &theirs).await.text().await.unwrap();
    assert_eq!(secret.replace("time", "none"), nothing);
    assert_eq!(with(format!("{MIRROR}/index.json"), &ours).await.status(), 200);
    let archives = with(format!("{MIRROR}/0.14.2.json"), &ours).await.json::<Value>().await.unwrap();
    let url =
        archives["archives"]["linux_amd64"]["url"].as_str().unwrap().trim_start_matches("./").to_owned();
    // The link lets its bearer in, as clients send no token there; the bare name does not.
    assert_eq!(get(&serve.address, &format!("{MIRROR}/{url}")).await.status(), 200);
    let (bare, _) = url.split_once('?').unwrap();
    assert_eq!(get(&serve.address, &format!("{MIRROR}/{bare}")).await.status(), 404);
    assert_eq!(with(format!("{MIRROR}/{bare}"), &theirs).await.status(), 404);
    assert_eq!(with(format!("{MIRROR}/{bare}"), &ours).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_provider_or_breaks_a_rule_is_left_out() {
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let folder = ocimod.folder("zips");
    let good = package(&folder, "time", "0.14.2", "linux_amd64", "");
    let bad = folder.join("terraform-provider-time_0.14.2_darwin_arm64.zip");
    zip(&bad, &[("../terraform-provider-time", b"x")]);
    let zips = [("linux_amd64", good.clone()), ("darwin_arm64", bad)];
    if push_with_oras(&ocimod.folder("oras"), &registry.address, "0.14.2", &zips).is_none() {
        return;
    }
    // A module under the tag of a version.
    let setting = format!("{}+insecure", registry.address);
    let oras = clients::find("oras").unwrap();
    let mut push = isolated(&oras, ocimod.home.path());
    std::fs::write(ocimod.home.path().join("file.txt"), "no provider").unwrap();
    let place = format!("{}/{REPOSITORY}:9.0.0", registry.address);
    run(push.current_dir(ocimod.home.path()).args(["push", "--plain-http", &place, "file.txt"])).success();

    let serve = ocimod.serve(["--registry", &setting]);
    let index = get(&serve.address, &format!("{MIRROR}/index.json")).await.json::<Value>().await.unwrap();
    assert_eq!(index, json!({"versions": {"0.14.2": {}}}));
    assert_eq!(get(&serve.address, &format!("{MIRROR}/9.0.0.json")).await.status(), 404);
    let archives = get(&serve.address, &format!("{MIRROR}/0.14.2.json")).await.json::<Value>().await.unwrap();
    let archives = archives["archives"].as_object().unwrap();
    assert_eq!(archives.keys().collect::<Vec<_>>(), ["linux_amd64"]);
    assert_eq!(archives["linux_amd64"]["hashes"], json!([zh(&good)]), "`oras` writes no `h1:` down");
    let refused =
        get(&serve.address, &format!("{MIRROR}/terraform-provider-time_0.14.2_darwin_arm64.zip")).await;
    assert_eq!(refused.status(), 422);
}

/// Puts the mark of a yank beside a version, as `ocimod yank` does.
async fn yank(ocimod: &Ocimod, version: &str) {
    let opened = connect::directory(ocimod.folder("store")).await.unwrap();
    let repository = REPOSITORY.parse().unwrap();
    let config = Bytes::from_static(b"{}");
    opened.put_blob(&repository, &Digest::of(&config), &BytesSource(config.clone())).await.unwrap();
    let version = Version::parse(version).unwrap();
    let reason: Reason = "it forgets".parse().unwrap();
    let mark = NewManifest {
        media_type: IMAGE_MANIFEST.to_owned(),
        bytes: YankMark::Yanked(Some(reason)).to_manifest(&version, MarkForm::Artifact),
        digest: None,
        tags: vec![yank_tag(&provider_tag(&version).unwrap()).unwrap()],
        condition: Condition::None,
    };
    opened.put_manifest(&repository, &mark).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_yanked_is_in_no_list_and_there_for_who_names_it() {
    let (ocimod, registry) = store();
    filled(&ocimod, &registry);
    yank(&ocimod, "1.0.0+b.1").await;
    let serve = ocimod.serve(["--registry", &registry, "--cache-for", "0s"]);
    let index = || async {
        get(&serve.address, &format!("{MIRROR}/index.json")).await.json::<Value>().await.unwrap()
    };
    assert_eq!(index().await, json!({"versions": {"0.14.2": {}}}));
    assert_eq!(get(&serve.address, &format!("{MIRROR}/1.0.0+b.1.json")).await.status(), 200);

    let listed = provider(&ocimod, &registry, &["list", "hashicorp/time"]);
    assert_eq!(listed["versions"][0]["yanked"], json!(false));
    assert_eq!(
        (&listed["versions"][1]["yanked"], &listed["versions"][1]["reason"]),
        (&json!(true), &json!("it forgets"))
    );
    let newest = |words: &[&str]| provider(&ocimod, &registry, words)["version"].clone();
    assert_eq!(newest(&["inspect", "hashicorp/time"]), json!("0.14.2"));
    assert_eq!(newest(&["inspect", "hashicorp/time@1.0.0+b.1"]), json!("1.0.0+b.1"));
    let (_, message) = refused(&ocimod, &registry, 3, &["inspect", "hashicorp/time@~> 1.0"]);
    assert!(message.contains("yanked"), "{message}");
    let all = provider(&ocimod, &registry, &["list"]);
    assert_eq!(
        (&all["providers"][0]["version"], &all["providers"][0]["versions"]),
        (&json!("0.14.2"), &json!(2))
    );
    provider(&ocimod, &registry, &["export", "site"]);
    let site = ocimod.home.path().join("site").join(TIME);
    assert!(site.join("0.14.2.json").exists() && !site.join("1.0.0+b.1.json").exists());

    // A provider whose versions are all withdrawn is there, and has none: clients do not look for it elsewhere.
    yank(&ocimod, "0.14.2").await;
    assert_eq!(index().await, json!({"versions": {}}));
    assert_eq!(provider(&ocimod, &registry, &["list"])["providers"][0]["yanked"], json!(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn zips_are_had_by_the_ways_of_modules_and_downloads_are_counted() {
    let (ocimod, registry) = store();
    let [linux, ..] = filled(&ocimod, &registry);
    let serve =
        |mode: &str| ocimod.serve(["--registry", &registry, "--archives", mode, "--log-format", "json"]);
    let mut direct = serve("direct");
    let archives = |address: String| async move {
        let path = format!("{MIRROR}/0.14.2.json");
        let answer = ask(Method::GET, &address, &path, &[("user-agent", "OpenTofu/1.12.6")]).await;
        answer.json::<Value>().await.unwrap()["archives"]["linux_amd64"].clone()
    };
    let url = archives(direct.address.clone()).await["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with(&format!("/v2/{REPOSITORY}/blobs/sha256:")), "{url}");
    assert_eq!(get(&direct.address, &url).await.bytes().await.unwrap(), std::fs::read(&linux).unwrap());
    let metrics = get(&direct.address, "/metrics").await.text().await.unwrap();
    assert!(metrics.contains("ocimod_provider_downloads_total{namespace=\"hashicorp\"} 1\n"), "{metrics}");
    let line = direct.server.wait_for(|line| line.contains("\"download\"").then(|| line.to_owned()));
    let line: Value = serde_json::from_str(&line).unwrap();
    let fields = &line["fields"];
    assert_eq!((&fields["provider"], &fields["version"]), (&json!(TIME), &json!("0.14.2")));
    assert_eq!((&fields["client"], &fields["token"]), (&json!("OpenTofu/1.12.6"), &json!("none")));

    // Through the server, and what was answered once is answered while the registry is away.
    let Some(remote) = DockerRegistry::start() else { return };
    let setting = format!("{}+insecure", remote.address);
    filled(&Ocimod::new(), &setting);
    let through = ocimod.serve(["--registry", &setting, "--archives", "proxy"]);
    let index = format!("{MIRROR}/index.json");
    let before = get(&through.address, &index).await.json::<Value>().await.unwrap();
    let url = archives(through.address.clone()).await["url"].as_str().unwrap().to_owned();
    let zip = get(&through.address, &format!("{MIRROR}/{}", url.trim_start_matches("./"))).await;
    assert_eq!(zip.bytes().await.unwrap(), std::fs::read(&linux).unwrap());
    drop(remote);
    assert_eq!(get(&through.address, &index).await.json::<Value>().await.unwrap(), before);
    assert_eq!(archives(through.address.clone()).await["hashes"], json!([h1(&linux), zh(&linux)]));
}

/// The provider that works without a network, as its releases are packed, and stand-ins for two other systems.
pub(super) fn time_provider(folder: &Path) -> Option<[PathBuf; 3]> {
    let program = std::fs::read(clients::find("terraform-provider-time")?).unwrap();
    let os = if cfg!(target_os = "linux") { "linux" } else { "darwin" };
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let real = folder.join(format!("terraform-provider-time_0.14.2_{os}_{architecture}.zip"));
    zip(&real, &[("LICENSE.txt", b"as is\n"), ("terraform-provider-time_v0.14.2_x5", &program)]);
    let stand_in = |platform: &str| package(folder, "time", "0.14.2", platform, "");
    Some([real, stand_in("windows_amd64"), stand_in("freebsd_arm")])
}

/// A root module that needs the provider, and a client that installs it by `method` alone.
pub(super) struct Root {
    tofu: PathBuf,
    pub(super) folder: PathBuf,
    trusted: PathBuf,
}

pub(super) const HOST: &str = "registry.opentofu.org";

impl Root {
    pub(super) fn new(
        tofu: &Path,
        folder: PathBuf,
        trusted: &Path,
        version: &str,
        installation: &str,
    ) -> Self {
        let main = format!(
            "terraform {{\n  required_providers {{\n    time = {{\n      source  = \"{HOST}/hashicorp/time\"\n      version = \"{version}\"\n    }}\n  }}\n}}\n\n\
             resource \"time_static\" \"it\" {{\n  rfc3339 = \"2020-02-12T06:36:13Z\"\n}}\n\n\
             output \"year\" {{\n  value = time_static.it.year\n}}\n"
        );
        std::fs::write(folder.join("main.tf"), main).unwrap();
        let configuration =
            format!("disable_checkpoint = true\nprovider_installation {{\n{installation}}}\n");
        std::fs::write(folder.join("client.tfrc"), configuration).unwrap();
        Self { tofu: tofu.to_owned(), folder, trusted: trusted.to_owned() }
    }

    fn configure(&self, more: &str) {
        let file = self.folder.join("client.tfrc");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}{more}")).unwrap();
    }

    pub(super) fn command(&self) -> Command {
        let mut command = isolated(&self.tofu, &self.folder);
        command
            .current_dir(&self.folder)
            .env("TF_CLI_CONFIG_FILE", self.folder.join("client.tfrc"))
            .env("CHECKPOINT_DISABLE", "1")
            .env("TF_IN_AUTOMATION", "1")
            .env("SSL_CERT_FILE", &self.trusted);
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Answer {
        run(self.command().args(arguments))
    }

    pub(super) fn init(&self) -> Answer {
        self.run(&["init", "-no-color", "-input=false"])
    }

    /// Applies, and answers what came of it.
    pub(super) fn year(&self) -> Value {
        self.run(&["apply", "-no-color", "-input=false", "-auto-approve"]).success();
        self.run(&["output", "-json", "year"]).success().json()
    }

    pub(super) fn lock(&self) -> String {
        std::fs::read_to_string(self.folder.join(".terraform.lock.hcl")).unwrap_or_default()
    }
}

pub(super) fn network_mirror(serve: &Serve) -> String {
    format!("  network_mirror {{\n    url = \"https://{}/v1/mirror/\"\n  }}\n", serve.address)
}

pub(super) fn name_of(tofu: &Path) -> String {
    tofu.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn clients_install_from_the_mirror_and_lock_what_they_got() {
    let (ocimod, registry) = store();
    let Some(zips) = time_provider(&ocimod.folder("zips")) else { return };
    let [real, windows, freebsd] = zips.each_ref().map(|zip| text(zip));
    provider(&ocimod, &registry, &["push", "hashicorp/time@0.14.2", real, windows, freebsd]);
    let token = ocimod.run([
        "token",
        "new",
        "team",
        "--allow",
        "read",
        "--repositories",
        "providers/*",
        "--access",
        "access.toml",
    ]);
    let token = token.success().stdout.trim_end().to_owned();
    let serve =
        ocimod.serve(["--registry", &registry, "--access", "access.toml", "--tls-self-signed", "tls"]);
    let trusted = ocimod.home.path().join("tls/ca-bundle.pem");
    for tofu in clients::tofus() {
        let name = name_of(&tofu);
        let root = |suffix: &str, version: &str, token: Option<&str>| {
            let folder = ocimod.folder(&format!("{name}-{suffix}"));
            let root = Root::new(&tofu, folder, &trusted, version, &network_mirror(&serve));
            if let Some(token) = token {
                root.configure(&format!("credentials \"{}\" {{\n  token = \"{token}\"\n}}\n", serve.address));
            }
            root
        };
        let installed = root("right", "~> 0.14", Some(&token));
        installed.init().success();
        assert_eq!(installed.year(), json!(2020), "{name}");
        let lock = installed.lock();
        assert!(lock.contains(&h1(&zips[0])), "{name}: {lock}");
        // The hash of another system's zip is in the JSON too, and is verified when that zip is fetched.
        installed
            .run(&[
                "providers",
                "lock",
                "-net-mirror",
                &format!("https://{}/v1/mirror/", serve.address),
                "-platform=windows_amd64",
            ])
            .success();
        assert!(installed.lock().contains(&h1(&zips[1])), "{name}: {}", installed.lock());
        // From the lock alone, into a folder where nothing was installed.
        std::fs::remove_dir_all(installed.folder.join(".terraform")).unwrap();
        installed.init().success();

        for (suffix, token) in
            [("wrong", Some("ocimod_0000000000000000000000000000000000000000000")), ("absent", None)]
        {
            let refused = root(suffix, "0.14.2", token);
            let said = refused.init().fails_with(1).all();
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                said.contains("401")
                    || said.to_lowercase().contains("unauthorized")
                    || said.contains("credentials"),
                "{name}: {said}"
            );
            assert_eq!(refused.lock(), "", "{name}");
        }
        let none = root("none", "~> 3.0", Some(&token));
        none.init().fails_with(1);
    }
}

#[test]
fn clients_install_versions_with_build_metadata_and_refuse_a_wrong_zip() {
    let (ocimod, registry) = store();
    let folder = ocimod.folder("zips");
    let Some([real, ..]) = time_provider(&folder) else { return };
    let platform = real.file_stem().unwrap().to_str().unwrap().split_once("0.14.2_").unwrap().1.to_owned();
    let build = folder.join(format!("terraform-provider-time_0.15.0+b.1_{platform}.zip"));
    std::fs::copy(&real, &build).unwrap();
    provider(&ocimod, &registry, &["push", "hashicorp/time@0.15.0+b.1", text(&build)]);
    let serve = ocimod.serve(["--registry", &registry, "--tls-self-signed", "tls"]);
    let trusted = ocimod.home.path().join("tls/ca-bundle.pem");
    for tofu in clients::tofus() {
        let name = name_of(&tofu);
        let folder = ocimod.folder(&format!("{name}-build"));
        let root = Root::new(&tofu, folder, &trusted, "0.15.0+b.1", &network_mirror(&serve));
        root.init().success();
        assert_eq!(root.year(), json!(2020), "{name}");
    }

    // Another registry with another zip for the same version: the lock file knows better.
    let other = ocimod.folder("other");
    let changed = package(&other, "time", "0.14.2", &platform, "changed");
    let second = format!("dir:{}", ocimod.folder("second").display());
    provider(&ocimod, &registry, &["push", "hashicorp/time@0.14.2", text(&real)]);
    provider(&ocimod, &second, &["push", "hashicorp/time@0.14.2", text(&changed)]);
    let wrong = ocimod.serve(["--registry", &second, "--tls-self-signed", "tls"]);
    for tofu in clients::tofus() {
        let name = name_of(&tofu);
        let folder = ocimod.folder(&format!("{name}-wrong"));
        let root = Root::new(&tofu, folder.clone(), &trusted, "0.14.2", &network_mirror(&serve));
        root.init().success();
        std::fs::remove_dir_all(folder.join(".terraform")).unwrap();
        let lock = root.lock();
        let root = Root::new(&tofu, folder, &trusted, "0.14.2", &network_mirror(&wrong));
        let said = root.init().fails_with(1).all();
        assert!(said.contains("checksum"), "{name}: {said}");
        assert_eq!(root.lock(), lock, "{name}");
    }
}

/// A host that sends the files of a folder over TLS, and `.json` files as what they are.
struct StaticSite {
    address: String,
    _runtime: tokio::runtime::Runtime,
}

impl StaticSite {
    fn start(folder: PathBuf, certificate: &Certificate) -> Self {
        ocimod::registry::remote::install_crypto_provider();
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket of ours");
        let address = listener.local_addr().expect("an address").to_string();
        let read = move |uri: axum::http::Uri| {
            let file = folder.join(uri.path().trim_start_matches('/'));
            async move {
                let is_json = file.extension().is_some_and(|extension| extension == "json");
                let kind = if is_json { "application/json" } else { "application/zip" };
                let bytes = std::fs::read(file).map_err(|_| axum::http::StatusCode::NOT_FOUND)?;
                Ok::<_, axum::http::StatusCode>(([("content-type", kind)], bytes))
            }
        };
        let router = axum::Router::new().fallback(read);
        let (certificate, key) = (certificate.certificate_file.clone(), certificate.key_file.clone());
        runtime.spawn(async move {
            let config = axum_server::tls_rustls::RustlsConfig::from_pem_file(certificate, key).await?;
            axum_server::from_tcp_rustls(listener, config)?.serve(router.into_make_service()).await
        });
        Self { address, _runtime: runtime }
    }
}

#[test]
fn a_zip_that_is_exchanged_on_its_way_is_refused_by_clients() {
    let (ocimod, registry) = store();
    let Some([real, ..]) = time_provider(&ocimod.folder("zips")) else { return };
    provider(&ocimod, &registry, &["push", "hashicorp/time@0.14.2", text(&real)]);
    // The files of the protocol as they are, beside another zip: a static host that was tampered with. Clients take any of the hashes,
    // and neither of them fits.
    provider(&ocimod, &registry, &["export", "site"]);
    let site = ocimod.home.path().join("site");
    let file = site.join(TIME).join(real.file_name().unwrap());
    let platform = real.file_stem().unwrap().to_str().unwrap().split_once("0.14.2_").unwrap().1.to_owned();
    let changed = package(&ocimod.folder("other"), "time", "0.14.2", &platform, "changed");
    let certificate = Certificate::create(ocimod.home.path());
    let server = StaticSite::start(site, &certificate);
    let installation = format!("  network_mirror {{\n    url = \"https://{}/\"\n  }}\n", server.address);
    for tofu in clients::tofus() {
        let name = name_of(&tofu);
        std::fs::copy(&real, &file).unwrap();
        let folder = ocimod.folder(&format!("{name}-site"));
        let root = Root::new(&tofu, folder, &certificate.certificate_file, "0.14.2", &installation);
        root.init().success();
        assert_eq!(root.year(), json!(2020), "{name}");
        std::fs::copy(&changed, &file).unwrap();
        let folder = ocimod.folder(&format!("{name}-tampered"));
        let root = Root::new(&tofu, folder, &certificate.certificate_file, "0.14.2", &installation);
        let said = root.init().fails_with(1).all();
        assert!(said.contains("checksum"), "{name}: {said}");
    }
}

#[test]
fn opentofu_installs_straight_from_the_registry() {
    let ocimod = Ocimod::new();
    let certificate = Certificate::create(ocimod.home.path());
    let Some(zips) = time_provider(&ocimod.folder("zips")) else { return };
    let Some(registry) = DockerRegistry::start_tls(&certificate) else { return };
    let (setting, trusted) = (format!("{}/mirrored", registry.address), text(&certificate.certificate_file));
    let [real, windows, _] = zips.each_ref().map(|zip| text(zip));
    let address = "hashicorp/time@0.14.2";
    provider(&ocimod, &setting, &["push", "--ca-file", trusted, address, real]);
    provider(&ocimod, &setting, &["push", "--ca-file", trusted, address, windows]);
    let template = format!("{}/mirrored/providers/${{hostname}}/${{namespace}}/${{type}}", registry.address);
    let installation = format!("  oci_mirror {{\n    repository_template = \"{template}\"\n  }}\n");
    for tofu in ["tofu-1.12", "tofu-1.10"].into_iter().filter_map(clients::find) {
        let name = name_of(&tofu);
        let folder = ocimod.folder(&format!("{name}-oci"));
        let root = Root::new(&tofu, folder, &certificate.certificate_file, "~> 0.14", &installation);
        root.init().success();
        assert_eq!(root.year(), json!(2020), "{name}");
        assert!(
            root.lock().contains(&zh(&zips[0])) && root.lock().contains(&h1(&zips[0])),
            "{name}: {}",
            root.lock()
        );
    }
}

#[test]
fn what_oras_pushed_is_installed_from_the_mirror() {
    let Some(registry) = DockerRegistry::start() else { return };
    let ocimod = Ocimod::new();
    let Some([real, windows, _]) = time_provider(&ocimod.folder("zips")) else { return };
    let name = real.file_stem().unwrap().to_str().unwrap();
    let platform = name.split_once("0.14.2_").unwrap().1.to_owned();
    let zips = [(platform.as_str(), real.clone()), ("windows_amd64", windows)];
    if push_with_oras(&ocimod.folder("oras"), &registry.address, "0.14.2", &zips).is_none() {
        return;
    }
    let setting = format!("{}+insecure", registry.address);
    let serve = ocimod.serve(["--registry", &setting, "--tls-self-signed", "tls"]);
    let trusted = ocimod.home.path().join("tls/ca-bundle.pem");
    for tofu in clients::tofus() {
        let name = name_of(&tofu);
        let folder = ocimod.folder(&format!("{name}-oras"));
        let root = Root::new(&tofu, folder, &trusted, "0.14.2", &network_mirror(&serve));
        root.init().success();
        assert_eq!(root.year(), json!(2020), "{name}");
    }
}
