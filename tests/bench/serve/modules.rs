//! Modules that were never packed: manifests by the thousand, in a store on disk or out of memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use ocimod::archive::ModuleKind;
use ocimod::artifact::{Content, ModuleArtifact, ModuleFileLayer, media_types};
use ocimod::oci::{Digest, IMAGE_MANIFEST};
use serde_json::json;

use crate::processes::Ocimod;

/// A zip that nobody opens here: `versions` is about manifests.
const ZIP: &[u8] = b"never asked for";

/// So many tags, in the order in which registries list them; versions all of them.
pub(crate) fn tags(count: usize) -> Vec<String> {
    let mut tags: Vec<_> = (0..count).map(|number| format!("v1.{}.{}", number / 100, number % 100)).collect();
    tags.sort();
    tags
}

/// What `ocimod push` would write for a small module of that repository.
pub(crate) fn manifest(repository: &str, tag: &str) -> Bytes {
    artifact(repository, tag).to_manifest()
}

fn artifact(repository: &str, tag: &str) -> ModuleArtifact {
    let module_file = format!(
        "// Written by ocimod from the module's .tf files, and written anew at each push.\n\
         module: \"modules.internal/{repository}@v1\"\nlanguage: version: \"v0.9.0\"\nsource: kind: \"self\"\n\
         custom: ocimod: {{\n\tgenerated: true\n\tdependencies: []\n\tinputs: []\n\toutputs: []\n}}\n"
    );
    let annotations = [
        ("org.opencontainers.image.source", format!("https://git.example/{repository}")),
        ("org.opencontainers.image.title", format!("modules.internal/{repository}")),
        (media_types::VERSION, tag.trim_start_matches('v').to_owned()),
    ];
    ModuleArtifact {
        kind: ModuleKind::OpenTofu,
        archive: Content { digest: Digest::of(ZIP), size: ZIP.len() as u64 },
        module_file: Some(ModuleFileLayer::of(module_file.into())),
        dependencies: Vec::new(),
        annotations: annotations
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<BTreeMap<_, _>>(),
    }
}

/// Makes a directory store with a module in it. The program itself does, so the store's form is that of today.
pub(crate) fn make_store(ocimod: &Ocimod, store: &Path) -> Result<()> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/terraform-null-label");
    let registry = format!("dir:{}", store.display());
    ocimod.run(&["push", "--registry", &registry, &example.display().to_string(), "bench/label/null@1.0.0"])
}

/// Waits until files that were just written count as unchanged: the store reads a file again that is younger than two seconds.
pub(crate) fn let_settle() {
    thread::sleep(Duration::from_secs(3));
}

/// Writes a repository with so many versions into a directory store: an image layout, as other tools write it too.
///
/// Pushing ten thousand versions would be the greater part of the benchmark.
pub(crate) fn write_repository(store: &Path, repository: &str, count: usize) -> Result<()> {
    let layout = store.join("repos").join(repository).join("_oci");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let mut entries = Vec::with_capacity(count);
    for tag in tags(count) {
        let manifest = manifest(repository, &tag);
        let digest = Digest::of(&manifest);
        fs::write(blobs.join(digest.hex()), &manifest)?;
        entries.push(json!({
            "mediaType": IMAGE_MANIFEST,
            "digest": digest.as_str(),
            "size": manifest.len(),
            "artifactType": media_types::OPENTOFU_MODULE,
            "annotations": {"org.opencontainers.image.ref.name": tag},
        }));
    }
    let module_file = artifact(repository, "v1.0.0").module_file.and_then(|layer| layer.data);
    for blob in [ZIP, media_types::EMPTY_CONFIG, &module_file.unwrap_or_default()] {
        fs::write(blobs.join(Digest::of(blob).hex()), blob)?;
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": entries,
    });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(())
}
