//! `provider import` and `provider export`: folders in the layout of `tofu providers mirror`, in and out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::mirror::{HOST, Root, name_of, time_provider};
use super::packages::{package, zip};
use super::{TIME, h1, platforms, provider, refused, store, text, zh};
use crate::support::clients;
use crate::support::docker_registry::DockerRegistry;
use crate::support::ocimod::Ocimod;
use crate::support::origin::Origin;
use crate::support::process::run;

/// A folder as `tofu providers mirror` of 1.11 (`h1:` alone) or 1.12 (both hashes) writes it.
struct Mirror {
    root: PathBuf,
}

impl Mirror {
    fn add(&self, address: &str, version: &str, platforms: &[&str], with_zh: bool) {
        let folder = self.root.join(address);
        std::fs::create_dir_all(&folder).unwrap();
        let kind = address.rsplit('/').next().unwrap();
        let mut archives = serde_json::Map::new();
        for platform in platforms {
            let file = package(&folder, kind, version, platform, address);
            let mut hashes = vec![h1(&file)];
            hashes.extend(with_zh.then(|| zh(&file)));
            let url = file.file_name().unwrap().to_str().unwrap();
            archives.insert((*platform).to_owned(), json!({ "hashes": hashes, "url": url }));
        }
        write(&folder.join(format!("{version}.json")), &json!({ "archives": archives }));
        let index = folder.join("index.json");
        let mut known = std::fs::read(&index)
            .map_or_else(|_| json!({"versions": {}}), |bytes| serde_json::from_slice(&bytes).unwrap());
        known["versions"][version] = json!({});
        write(&index, &known);
    }
}

fn write(path: &Path, document: &Value) {
    std::fs::write(path, serde_json::to_vec_pretty(document).unwrap()).unwrap();
}

fn mirror(ocimod: &Ocimod) -> Mirror {
    let mirror = Mirror { root: ocimod.folder("mirror") };
    mirror.add(TIME, "0.14.2", &["linux_amd64", "darwin_arm64"], true);
    mirror.add(TIME, "0.9.1", &["linux_amd64"], false);
    mirror.add("registry.terraform.io/hashicorp/tls", "4.0.6+b.1", &["linux_amd64", "windows_386"], true);
    mirror.add("tf.acme.example/acme/tool", "1.0.0-rc.1", &["freebsd_arm"], false);
    mirror
}

/// Every file below a folder: JSON as its meaning, everything else as its bytes.
fn meaning(root: &Path) -> BTreeMap<String, Result<Value, Vec<u8>>> {
    let read = |(name, bytes): (String, Vec<u8>)| {
        let is_json = Path::new(&name).extension().is_some_and(|extension| extension == "json");
        let read = if is_json { Ok(serde_json::from_slice(&bytes).unwrap()) } else { Err(bytes) };
        (name, read)
    };
    bytes(root).into_iter().map(read).collect()
}

/// Whether what was exported means what was written: the same files, and of each zip no other hash. Of several any will do for a
/// client, and which of them are written differs: `zh:` alone, `h1:` alone, or both.
fn means_the_same(exported: &Path, written: &Path) {
    let (mut exported, mut written) = (meaning(exported), meaning(written));
    for (name, written) in &mut written {
        let exported = exported.get_mut(name).unwrap_or_else(|| panic!("{name} did not come out"));
        let (Ok(written), Ok(exported)) = (written, exported) else { continue };
        let Some(Value::Object(archives)) = written.get_mut("archives") else { continue };
        for (platform, archive) in archives {
            let [given, ours] =
                [archive, &mut exported["archives"][platform]].map(|archive| archive["hashes"].take());
            let (given, ours) = (given.as_array().unwrap(), ours.as_array().unwrap());
            assert!(
                !given.is_empty() && given.iter().all(|hash| ours.contains(hash)),
                "{name}: {ours:?}, {given:?}"
            );
        }
    }
    assert!(exported == written, "{:?} and {:?}", exported.keys(), written.keys());
}

fn bytes(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

fn round_trip(registry: &str) {
    let ocimod = Ocimod::new();
    let mirror = mirror(&ocimod);
    let folder = text(&mirror.root);
    let dry = provider(&ocimod, registry, &["import", "-n", folder]);
    assert_eq!(dry["imported"].as_array().unwrap().len(), 4);
    let imported = provider(&ocimod, registry, &["import", folder]);
    assert_eq!(imported["failed"], json!([]));
    let names: Vec<String> = imported["imported"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| format!("{}@{}", it["address"].as_str().unwrap(), it["version"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names,
        [
            format!("{TIME}@0.9.1"),
            format!("{TIME}@0.14.2"),
            "registry.terraform.io/hashicorp/tls@4.0.6+b.1".to_owned(),
            "tf.acme.example/acme/tool@1.0.0-rc.1".to_owned(),
        ]
    );
    let again = provider(&ocimod, registry, &["import", folder]);
    assert_eq!(
        (again["imported"].as_array().unwrap().len(), again["skipped"].as_array().unwrap().len()),
        (0, 4)
    );

    mirror.add(TIME, "0.14.2", &["linux_amd64", "darwin_arm64", "windows_amd64"], true);
    let more = provider(&ocimod, registry, &["import", folder]);
    assert_eq!(more["imported"][0]["platforms"], json!(["windows_amd64"]));
    assert_eq!(more["skipped"].as_array().unwrap().len(), 3);

    let exported = provider(&ocimod, registry, &["export", "site"]);
    assert_eq!((&exported["files"], &exported["written"]), (&json!(14), &json!(14)));
    let site = ocimod.home.path().join("site");
    means_the_same(&site, &mirror.root);
    let hashes = serde_json::from_slice::<Value>(&bytes(&site)[&format!("{TIME}/0.9.1.json")]).unwrap();
    assert_eq!(hashes["archives"]["linux_amd64"]["hashes"].as_array().unwrap().len(), 2);

    let before = bytes(&site);
    assert_eq!(provider(&ocimod, registry, &["export", "site"])["written"], json!(0));
    assert_eq!(bytes(&site), before);
    // What is damaged is written anew.
    let damaged = site.join(TIME).join("terraform-provider-time_0.14.2_linux_amd64.zip");
    std::fs::write(&damaged, "damaged").unwrap();
    std::fs::remove_file(site.join(TIME).join("index.json")).unwrap();
    assert_eq!(provider(&ocimod, registry, &["export", "site", "hashicorp/time"])["written"], json!(2));
    assert_eq!(bytes(&site), before);
    // And what came out goes in again.
    let other = format!("dir:{}", ocimod.folder("other").display());
    assert_eq!(provider(&ocimod, &other, &["import", text(&site)])["imported"].as_array().unwrap().len(), 4);
}

#[test]
fn a_folder_goes_in_and_comes_out() {
    let (_ocimod, registry) = store();
    round_trip(&registry);
}

#[test]
fn a_folder_goes_into_a_registry_of_others_and_comes_out() {
    if let Some(registry) = DockerRegistry::start() {
        round_trip(&format!("{}+insecure", registry.address));
    }
}

/// The clients themselves write the folder here, of a provider that they have from its origin.
#[test]
fn what_clients_mirror_goes_in_and_comes_out() {
    for tofu in clients::tofus() {
        let name = name_of(&tofu);
        let (ocimod, registry) = store();
        let Some(zips) = time_provider(&ocimod.folder("zips")) else { return };
        let origin = Origin::start(&ocimod, HOST, "hashicorp/time", "0.14.2", zips.to_vec());
        let folder = ocimod.folder("root");
        let root = Root::new(&tofu, folder.clone(), Path::new(""), "0.14.2", "  direct {}\n");
        let platform = |zip: &PathBuf| {
            zip.file_stem().unwrap().to_str().unwrap().split_once("0.14.2_").unwrap().1.to_owned()
        };
        let mut mirror = root.command();
        mirror.envs(origin.variables()).args(["providers", "mirror"]);
        mirror.args(zips.iter().map(|zip| format!("-platform={}", platform(zip)))).arg("written");
        run(&mut mirror).success();
        let written = folder.join("written");
        let imported = provider(&ocimod, &registry, &["import", text(&written)]);
        assert_eq!(imported["imported"][0]["platforms"].as_array().unwrap().len(), 3, "{name}");
        provider(&ocimod, &registry, &["export", "site"]);
        means_the_same(&ocimod.home.path().join("site"), &written);
    }
}

#[test]
fn zips_alone_are_imported_as_a_filesystem_mirror_has_them() {
    let (ocimod, registry) = store();
    let folder = ocimod.folder("mirror").join(TIME);
    std::fs::create_dir_all(&folder).unwrap();
    package(&folder, "time", "0.14.2", "linux_amd64", "");
    std::fs::write(folder.join("README.md"), "ours").unwrap();
    let imported = provider(&ocimod, &registry, &["import", "mirror"]);
    assert_eq!(imported["imported"][0]["platforms"], json!(["linux_amd64"]));
    assert_eq!(platforms(&provider(&ocimod, &registry, &["inspect", "hashicorp/time"])), ["linux_amd64"]);
}

/// What is done to the archives of a version.
type Change<'a> = &'a dyn Fn(&mut Value);

#[test]
fn what_the_folder_says_of_its_zips_is_checked() {
    let (ocimod, registry) = store();
    let mirror = mirror(&ocimod);
    let folder = mirror.root.join(TIME);
    let document = folder.join("0.14.2.json");
    let good: Value = serde_json::from_slice(&std::fs::read(&document).unwrap()).unwrap();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut archives = good.clone();
        change(&mut archives["archives"]);
        write(&document, &archives);
    };
    let linux = |archives: &mut Value, field: &str, value: Value| archives["linux_amd64"][field] = value;
    let zeros = "0".repeat(64);
    let elsewhere = "https://example.com/terraform-provider-time_0.14.2_linux_amd64.zip";
    let broken: [(Change<'_>, &str); 6] = [
        (&|it| linux(it, "hashes", json!([format!("zh:{zeros}")])), "is not that of the zip"),
        (
            &|it| linux(it, "hashes", json!(["h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="])),
            "is not that of the zip",
        ),
        (&|it| linux(it, "url", json!("../../escaped.zip")), "not beside it"),
        (&|it| linux(it, "url", json!(elsewhere)), "not beside it"),
        (
            &|it| it["linux_386"] = json!({"url": "terraform-provider-time_0.14.2_linux_386.zip"}),
            "is not there",
        ),
        (&|it| *it = json!("no object"), "0.14.2.json"),
    ];
    for (change, said) in broken {
        changed(change);
        let common = ["provider", "import", "-n", "--registry", &registry, "--format", "json", "mirror"];
        let answer = ocimod.run(common).fails_with(4).json();
        assert_eq!(
            answer["imported"].as_array().unwrap().len(),
            3,
            "{said}: one version does not keep others back"
        );
        let failed = &answer["failed"][0];
        assert_eq!(failed["provider"], json!(format!("{TIME}@0.14.2")));
        assert!(failed["message"].as_str().unwrap().contains(said), "{said}: {failed}");
        assert_eq!(answer["error"]["kind"], json!("refused"));
    }
    // A scheme that is not known says nothing.
    changed(&|it| linux(it, "hashes", json!(["h2:new"])));
    assert_eq!(provider(&ocimod, &registry, &["import", "-n", "mirror"])["failed"], json!([]));

    let mut index: Value =
        serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
    index["versions"]["0.15.0"] = json!({});
    write(&folder.join("index.json"), &index);
    let common = ["provider", "import", "--registry", &registry, "--format", "json", "mirror"];
    let answer = ocimod.run(common).fails_with(4).json();
    assert_eq!(answer["failed"][0]["provider"], json!(format!("{TIME}@0.15.0")));
    assert_eq!(answer["imported"].as_array().unwrap().len(), 4);

    zip(&folder.join("terraform-provider-time_0.16.0_linux_amd64.zip"), &[("a", b"x"), ("A", b"x")]);
    let answer = ocimod.run(common).fails_with(4).json();
    let failed: Vec<_> =
        answer["failed"].as_array().unwrap().iter().map(|it| it["provider"].clone()).collect();
    assert_eq!(failed, [format!("{TIME}@0.15.0"), format!("{TIME}@0.16.0")]);
}

/// What is in a folder and is no file, or cannot be read, is named, and nobody waits for it.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_named_and_keeps_nothing_else_back() {
    let (ocimod, registry) = store();
    let mirror = mirror(&ocimod);
    let time = mirror.root.join(TIME);
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo is there");
        assert!(made.success());
    };
    pipe(&time.join("1.0.0.json"));
    std::fs::create_dir(time.join("1.1.0.json")).unwrap();
    pipe(&time.join("terraform-provider-time_1.2.0_linux_amd64.zip"));
    std::fs::create_dir(time.join("terraform-provider-time_1.3.0_linux_amd64.zip")).unwrap();
    let tls = mirror.root.join("registry.terraform.io/hashicorp/tls");
    std::fs::write(tls.join("index.json"), "no JSON").unwrap();
    std::fs::remove_file(mirror.root.join("tf.acme.example/acme/tool/index.json")).unwrap();
    pipe(&mirror.root.join("tf.acme.example/acme/tool/index.json"));

    let common = ["provider", "import", "--registry", &registry, "--format", "json", "mirror"];
    let answer = ocimod.run(common).fails_with(4).json();
    let failed: Vec<(&str, &str)> = answer["failed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["provider"].as_str().unwrap(), it["message"].as_str().unwrap()))
        .collect();
    let expected = [
        ("registry.terraform.io/hashicorp/tls".to_owned(), "index.json"),
        ("tf.acme.example/acme/tool".to_owned(), "index.json: it is not a file"),
        (format!("{TIME}@1.0.0"), "1.0.0.json: it is not a file"),
        (format!("{TIME}@1.1.0"), "1.1.0.json: it is not a file"),
        (format!("{TIME}@1.2.0"), "terraform-provider-time_1.2.0_linux_amd64.zip: it is not a file"),
        (format!("{TIME}@1.3.0"), "terraform-provider-time_1.3.0_linux_amd64.zip: it is not a file"),
    ];
    assert_eq!(failed.len(), expected.len(), "{failed:?}");
    for ((provider, message), (name, said)) in failed.iter().zip(&expected) {
        assert_eq!(provider, name, "{failed:?}");
        assert!(message.contains(said), "{message}");
    }
    // Every version is there whose own files are right, also those of a list that is none.
    assert_eq!(answer["imported"].as_array().unwrap().len(), 4);
    assert_eq!(provider(&ocimod, &registry, &["list"])["providers"].as_array().unwrap().len(), 3);

    let zip = time.join("terraform-provider-time_1.2.0_linux_amd64.zip");
    let push = ["push", "hashicorp/time@1.2.0", text(&zip)];
    assert!(refused(&ocimod, &registry, 4, &push).1.contains("it is not a file"));
}

#[test]
fn what_would_be_imported_is_said_so_and_nothing_is_written() {
    let (ocimod, registry) = store();
    mirror(&ocimod);
    ocimod.folder("store");
    let words = ["provider", "import", "-n", "--registry", &registry, "mirror"];
    let dry = ocimod.run(words).success();
    assert!(dry.stderr.contains("would be imported"), "{}", dry.stderr);
    assert!(dry.stdout.contains(&format!("{TIME}@0.14.2  darwin_arm64 linux_amd64")), "{}", dry.stdout);
    assert_eq!(provider(&ocimod, &registry, &["import", "-n", "mirror"])["dry_run"], json!(true));
    assert_eq!(provider(&ocimod, &registry, &["list"])["providers"], json!([]));
    let real = ocimod.run(words.into_iter().filter(|word| *word != "-n")).success();
    assert!(!real.stderr.contains("would be"), "{}", real.stderr);
}

#[test]
fn a_folder_without_providers_is_wrong_usage() {
    let (ocimod, registry) = store();
    ocimod.folder("mirror/not/a/provider_");
    assert_eq!(refused(&ocimod, &registry, 2, &["import", "mirror"]).0, "usage");
    assert_eq!(refused(&ocimod, &registry, 1, &["import", "missing"]).0, "failed");
    assert_eq!(refused(&ocimod, &registry, 2, &["export", "site", "hashicorp/time@1.0.0"]).0, "usage");
    assert_eq!(refused(&ocimod, &registry, 3, &["export", "site", "hashicorp/time"]).0, "not-found");
    assert_eq!(provider(&ocimod, &registry, &["export", "site"])["providers"], json!([]));
}
