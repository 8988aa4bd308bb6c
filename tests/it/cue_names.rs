//! What a module is called in a registry, by every form of `CUE_REGISTRY`: as `cue` has it.

use serde_json::json;

use crate::support::cue::Cue;
use crate::support::ocimod::Ocimod;

/// A setting, a module with its version, and where `cue mod resolve` finds that; nothing where it finds no registry. The real `cue` is asked for
/// the same in [`the_table_is_what_cue_says`].
fn table() -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>)> {
    include_str!("cue_names.tsv").lines().filter(|line| !line.starts_with('#')).map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [setting, module, place] = columns[..] else { panic!("{line}") };
        (setting, module, Some(place).filter(|place| *place != "-"))
    })
}

#[test]
fn a_module_is_called_what_cue_calls_it() {
    let ocimod = Ocimod::new();
    for (setting, module, place) in table() {
        let shown = ocimod.run(["config", "show", "--format", "json", "--registry", setting, module]);
        let Some(place) = place else {
            let refused = shown.fails_with(2);
            assert!(refused.stderr.contains("no registry is set for"), "{setting}: {}", refused.stderr);
            continue;
        };
        let shown = shown.success().json();
        let [mapping] = &shown["mappings"].as_array().unwrap()[..] else { panic!("{shown}") };
        let part = |name: &str| mapping[name].as_str().unwrap().to_owned();
        let found = format!("{}/{}:{}", part("registry"), part("repository"), part("tag"));
        assert_eq!(found, place, "{setting} {module}");
        assert_eq!(shown["places"], json!([found.rsplit_once(':').unwrap().0]), "{setting} {module}");
    }
}

#[test]
fn the_table_is_what_cue_says() {
    let Some(cue) = Cue::new() else { return };
    let ocimod = Ocimod::new();
    let folder = ocimod.folder("nowhere");
    for (setting, module, place) in table() {
        let said = cue.run(setting, &folder, &["mod", "resolve", module]);
        match place {
            Some(place) => assert_eq!(said.success().stdout.trim(), place, "{setting} {module}"),
            None => assert!(said.fails_with(1).stderr.contains("no registry found"), "{setting} {module}"),
        }
    }
}

#[test]
fn config_show_says_which_rule_leads_to_a_registry() {
    let ocimod = Ocimod::new();
    let path = ocimod.folder("settings").join("registries.cue");
    std::fs::write(
        &path,
        "// Ours.\ndefaultRegistry: registry: \"none\"\nmoduleRegistries: \"example.com\": {\n\tregistry: \"r.example/pre\"\n\tpathEncoding: \
         \"hashAsTag\"\n}\n",
    )
    .unwrap();
    let hash = "a379a6f6eeafb9a55e378c118034e2751e682fab9f2d30ab13d2125586ce1947";
    let setting = format!("file:{}", path.display());
    let shown = ocimod.run(["config", "show", "--registry", &setting, "example.com@v0"]).success();
    let expected = format!(
        "registry    r.example\nrepository  pre\ntag         {hash}-vX.Y.Z\nrule        example.com=r.example/pre (hashAsTag)\n"
    );
    assert_eq!(shown.stdout, expected);
    // A relative path counts from where the setting stands.
    std::fs::write(ocimod.home.path().join("settings/ocimod.toml"), "registry = 'file:registries.cue'\n")
        .unwrap();
    let mut command = ocimod.command();
    command.args(["config", "show", "example.com@v0", "--config", "settings/ocimod.toml"]);
    assert_eq!(crate::support::process::run(&mut command).success().stdout, expected);
}

#[test]
fn a_setting_that_is_wrong_is_named_with_what_to_write() {
    let ocimod = Ocimod::new();
    let not_utf8 = ocimod.home.path().join("not-utf8.cue");
    std::fs::write(&not_utf8, b"\xff").unwrap();
    for (setting, parts) in [
        ("inline:", &["inline names no registry", "defaultRegistry: registry:"][..]),
        ("inline:x: 1", &["inline:1: `x` is not known here", "moduleRegistries"]),
        ("inline:defaultRegistry: 1", &["`defaultRegistry` is a number", "struct"]),
        ("inline:defaultRegistry: {}", &["lacks its `registry`", "ghcr.io/acme"]),
        (
            "inline:defaultRegistry: registry: \"https://a.example\"",
            &["`defaultRegistry.registry`", "is a URL"],
        ),
        (
            "inline:defaultRegistry: {registry: \"a.example/x\", pathEncoding: \"hashAsPath\"}",
            &["`defaultRegistry.pathEncoding` is `hashAsPath`", "hashAsRepo"],
        ),
        (
            "inline:defaultRegistry: {registry: \"a.example\", pathEncoding: \"hashAsRepo\"}",
            &["`defaultRegistry.pathEncoding` needs a repository behind the registry's host"],
        ),
        (
            "inline:defaultRegistry: {registry: \"a.example/x\", pathEncoding: \"hashAsTag\", stripPrefix: true}",
            &["`defaultRegistry.stripPrefix`", "pathEncoding: \"path\""],
        ),
        (
            "inline:defaultRegistry: {registry: \"a.example/x\", stripPrefix: 1}",
            &["has to be `true` or `false`"],
        ),
        (
            "inline:defaultRegistry: {registry: \"a.example/x\", prefixForTags: \"-x\"}",
            &["`defaultRegistry.prefixForTags`", "such as `cue-`"],
        ),
        (
            "inline:moduleRegistries: \"a\": registry: \"r.example\"",
            &["`moduleRegistries.\"a\"`", "example.com/net"],
        ),
        ("inline:moduleRegistries: \"a.b@v1\": registry: \"r.example\"", &["without a version"]),
        ("inline:import \"x\"", &["inline:1:", "data alone"]),
        (
            "inline:defaultRegistry: {registry: \"dir:store\", prefixForTags: \"x\"}",
            &["is for registries elsewhere"],
        ),
        ("file:", &["`file:` needs a path"]),
        ("file:nothing.cue", &["`file:nothing.cue` cannot be read"]),
        ("file:.", &["`file:.` cannot be read: it is no file"]),
        ("file:not-utf8.cue", &["it is not UTF-8"]),
        ("simple:", &["the registry is empty"]),
        ("r.example+bogus", &["`r.example+bogus` is not a registry"]),
    ] {
        let mut command = ocimod.command();
        command.args(["list", "example.com/net/vpc"]).env("OCIMOD_REGISTRY", setting);
        let refused = crate::support::process::run(&mut command).fails_with(2);
        for part in ["OCIMOD_REGISTRY: "].iter().chain(parts) {
            assert!(refused.stderr.contains(part), "{setting}: no {part:?} in {}", refused.stderr);
        }
    }
}

#[test]
fn a_repository_s_settings_do_not_send_credentials_in_the_clear_by_way_of_a_configuration() {
    let ocimod = Ocimod::new();
    let folder = ocimod.folder("repository");
    std::fs::create_dir(folder.join(".git")).unwrap();
    let configuration = "defaultRegistry: registry: \"r.example+insecure\"";
    std::fs::write(folder.join("registries.cue"), configuration).unwrap();
    for registry in ["file:registries.cue".to_owned(), format!("inline:{configuration}")] {
        std::fs::write(folder.join("ocimod.toml"), format!("registry = '{registry}'\n")).unwrap();
        let mut command = ocimod.command();
        command.current_dir(&folder).args(["list", "example.com/net/vpc"]);
        let refused = crate::support::process::run(&mut command).fails_with(2);
        assert!(refused.stderr.contains("whom your credentials are shown to"), "{}", refused.stderr);
    }
}
