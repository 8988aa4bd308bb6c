//! Manifests and what they say of a module: read within limits, one reading for one type, and written as they were read.

use super::{Target, assert_is_message, texts};
use crate::archive::ModuleKind;
use crate::artifact::ModuleArtifact;
use crate::oci::{Digest, IMAGE_INDEX, IMAGE_MANIFEST, MANIFEST_TYPES, Manifest};

pub(super) const TARGET: Target = Target {
    name: "manifest",
    seeds: || {
        let fill = |text: &str| {
            let file = Digest::of(b"module: \"example.com/a@v1\"\n").to_string();
            let text = text.replace("EMPTY", Digest::of(b"{}").as_str()).replace("FILE", &file);
            text.replace("ZIP", Digest::of(b"zip").as_str()).into_bytes()
        };
        let mut seeds: Vec<Vec<u8>> = [
            // As `oras` pushes it for `tofu`.
            r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"application/vnd.opentofu.modulepkg","config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"EMPTY","size":2,"data":"e30="},"layers":[{"mediaType":"archive/zip","digest":"ZIP","size":3,"annotations":{"org.opencontainers.image.title":"m.zip"}}],"annotations":null}"#,
            // As it is written here, with a dependency.
            r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"application/vnd.opentofu.modulepkg","config":{"mediaType":"application/vnd.cue.module.v1+json","digest":"EMPTY","size":2},"layers":[{"mediaType":"archive/zip","digest":"ZIP","size":3},{"mediaType":"application/vnd.cue.modulefile.v1","digest":"FILE","size":27,"data":"bW9kdWxlOiAiZXhhbXBsZS5jb20vYUB2MSIK"},{"mediaType":"application/zip","digest":"ZIP","size":3,"annotations":{"works.cue.module":"example.com/b@v1.2.0","works.cue.mainonly":"true"}}],"annotations":{"org.opencontainers.image.version":"1.0.0"}}"#,
            // As `cue mod publish` pushes it.
            r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.cue.module.v1+json","digest":"EMPTY","size":2},"layers":[{"mediaType":"application/zip","digest":"ZIP","size":3},{"mediaType":"application/vnd.cue.modulefile.v1","digest":"FILE","size":27}]}"#,
            // A provider's index, a signature, an image of Docker's.
            r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","artifactType":"application/vnd.opentofu.provider","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"ZIP","size":3,"artifactType":"application/vnd.opentofu.provider-target","platform":{"architecture":"amd64","os":"linux"}}]}"#,
            r#"{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"EMPTY","size":2},"layers":[],"subject":{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"ZIP","size":3}}"#,
            r#"{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","config":{"mediaType":"application/vnd.docker.container.image.v1+json","digest":"EMPTY","size":2},"layers":[{"mediaType":"application/vnd.docker.image.rootfs.diff.tar.gzip","size":9223372036854775807,"digest":"ZIP","urls":["http://169.254.169.254/"]}]}"#,
            // Both at once, and two archives.
            r#"{"schemaVersion":2,"config":{"mediaType":"a/b","digest":"EMPTY","size":2},"layers":[],"manifests":[]}"#,
            r#"{"schemaVersion":2,"artifactType":"application/vnd.opentofu.modulepkg","config":{"mediaType":"a/b","digest":"EMPTY","size":2},"layers":[{"mediaType":"archive/zip","digest":"ZIP","size":3},{"mediaType":"archive/zip","digest":"ZIP","size":3}]}"#,
            r#"{"schemaVersion":2,"config":{"mediaType":"a/b","digest":"sha256:../../x","size":-1}}"#,
        ]
        .map(fill)
        .into();
        seeds.extend(texts([
            r#"{"schemaVersion":2,"manifests":[]}"#,
            r#"{"schemaVersion":1}"#,
            "null",
            "[[[[",
        ]));
        seeds
    },
    words: &[
        "\"schemaVersion\":2",
        "\"mediaType\":",
        "\"artifactType\":",
        "\"config\":",
        "\"layers\":",
        "\"manifests\":",
        "\"subject\":",
        "\"annotations\":",
        "\"digest\":",
        "\"size\":",
        "\"data\":",
        "\"urls\":",
        "\"platform\":",
        "\"works.cue.module\":\"example.com/b@v1.2.0\"",
        "\"works.cue.mainonly\":\"true\"",
        "\"application/vnd.opentofu.modulepkg\"",
        "\"application/vnd.cue.module.v1+json\"",
        "\"application/vnd.cue.modulefile.v1\"",
        "\"archive/zip\"",
        "\"application/zip\"",
        "null",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\\u0000",
        "\\ud800",
        "1e999",
        "-0",
    ],
    generate: None,
    max_length: 32 * 1024,
    run,
};

fn run(input: &[u8]) -> bool {
    let mut taken = Vec::new();
    for media_type in MANIFEST_TYPES {
        match Manifest::parse(media_type, input) {
            Ok(manifest) => {
                assert_holds(media_type, &manifest);
                taken.push(manifest);
            }
            Err(error) => assert_is_message(&error.to_string()),
        }
    }
    // CVE-2021-41190: one text is either an image manifest or an index.
    assert!(!taken.iter().any(Manifest::is_index) || taken.iter().all(Manifest::is_index));
    assert!(Manifest::parse("text/html", input).is_err());
    !taken.is_empty()
}

fn assert_holds(media_type: &str, manifest: &Manifest) {
    assert_eq!(manifest.schema_version, 2);
    assert_eq!(manifest.is_index(), manifest.manifests.is_some());
    assert_eq!(manifest.is_index(), manifest.config.is_none());
    assert!(manifest.media_type.as_ref().is_none_or(|own| own == media_type));
    let written = serde_json::to_vec(manifest).expect("a manifest is JSON");
    assert_eq!(Manifest::parse(media_type, &written).as_ref(), Ok(manifest), "written and read again");
    match ModuleArtifact::read(manifest) {
        Ok(module) => assert_is_module(manifest, &module),
        Err(error) => assert_is_message(&error.to_string()),
    }
}

fn assert_is_module(manifest: &Manifest, module: &ModuleArtifact) {
    assert!(!manifest.is_index(), "an index was taken for a module");
    assert!(module.dependencies.len() <= manifest.layers.len(), "more dependencies than layers");
    let is_layer = |digest: &Digest| manifest.layers.iter().any(|layer| layer.digest == *digest);
    assert!(is_layer(&module.archive.digest), "the archive is no layer");
    assert!(
        module.dependencies.iter().all(|layer| is_layer(&layer.archive.digest)),
        "a dependency is no layer"
    );
    if module.kind == ModuleKind::OpenTofu {
        let archives = manifest.layers.iter().filter(|layer| layer.media_type == "archive/zip");
        assert_eq!(archives.count(), 1, "`tofu` would not know which");
    }
    let mut expected = module.clone();
    if let Some(file) = &mut expected.module_file {
        assert!(is_layer(&file.content.digest), "the module file is no layer");
        if let Some(data) = &file.data {
            assert_eq!(Digest::of(data), file.content.digest, "the module file is another");
        }
        // Long ones do not stand in the manifest that is written.
        file.data = file.data.take().filter(|data| data.len() <= 4096);
    }
    for bytes in [module.to_manifest(), module.to_bundle(&module.to_two_layer_manifest())] {
        let again = Manifest::parse(IMAGE_MANIFEST, &bytes).expect("what is written is a manifest");
        assert_eq!(ModuleArtifact::read(&again).as_ref(), Ok(&expected), "written and read again");
        assert!(Manifest::parse(IMAGE_INDEX, &bytes).is_err());
    }
}
