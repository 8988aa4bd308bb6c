//! A module's manifest in another form of `--deps`: dependency layers put into it, taken out of it, or kept beside it.
//!
//! It is done on the JSON as it stands, so that whatever else is in it stays. A manifest that ocimod wrote comes out as a push in the other
//! form would have written it.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::media_types as types;
use super::module::DependencyLayer;
use crate::oci::{Descriptor, IMAGE_MANIFEST, ManifestError};

/// The manifest with these dependencies as further layers.
pub fn with_dependencies(manifest: &[u8], dependencies: &[DependencyLayer]) -> Result<Bytes, ManifestError> {
    let mut fields = read(manifest)?;
    for dependency in dependencies {
        let layer = serde_json::to_value(dependency.descriptor()).map_err(unreadable)?;
        layers(&mut fields)?.push(layer);
    }
    Ok(written(&fields))
}

/// The manifest without the layers that are dependencies.
pub fn without_dependencies(manifest: &[u8]) -> Result<Bytes, ManifestError> {
    let mut fields = read(manifest)?;
    layers(&mut fields)?.retain(|layer| layer["annotations"][types::DEPENDENCY].is_null());
    Ok(written(&fields))
}

/// The bundle: a manifest with dependency layers, said to be about the one without.
pub fn bundle(manifest: &[u8], without: &[u8]) -> Result<Bytes, ManifestError> {
    let mut fields = read(manifest)?;
    let mut subject = Descriptor::of(IMAGE_MANIFEST, without);
    subject.artifact_type = fields.get("artifactType").and_then(Value::as_str).map(str::to_owned);
    let subject = serde_json::to_value(subject).map_err(unreadable)?;
    // Where everybody who writes manifests has it.
    let position = fields.keys().position(|key| key == "annotations").unwrap_or(fields.len());
    fields.shift_insert(position, "subject".to_owned(), subject);
    Ok(written(&fields))
}

/// What a bundle would be if it were about nothing: the manifest with its dependency layers.
pub fn unbundled(bundle: &[u8]) -> Result<Bytes, ManifestError> {
    let mut fields = read(bundle)?;
    fields.shift_remove("subject");
    Ok(written(&fields))
}

fn read(manifest: &[u8]) -> Result<Map<String, Value>, ManifestError> {
    serde_json::from_slice(manifest).map_err(unreadable)
}

fn layers(fields: &mut Map<String, Value>) -> Result<&mut Vec<Value>, ManifestError> {
    let layers = fields.entry("layers").or_insert_with(|| json!([]));
    layers.as_array_mut().ok_or_else(|| ManifestError::Json("`layers` is no list".to_owned()))
}

fn written(fields: &Map<String, Value>) -> Bytes {
    // It was read as JSON, so it can be written as such.
    serde_json::to_vec(fields).map(Bytes::from).unwrap_or_default()
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` hands it over
fn unreadable(error: serde_json::Error) -> ManifestError {
    ManifestError::Json(error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::archive::ModuleKind;
    use crate::artifact::{Content, ModuleArtifact, ModuleFileLayer};
    use crate::oci::{Annotations, Digest};

    fn content(of: &[u8]) -> Content {
        Content { digest: Digest::of(of), size: of.len() as u64 }
    }

    fn artifact(kind: ModuleKind, annotated: bool) -> ModuleArtifact {
        let dependency = |name: &str, main_only| DependencyLayer {
            module: format!("example.com/{name}@v1.0.0").parse().unwrap(),
            archive: content(name.as_bytes()),
            main_only,
        };
        let annotations: Annotations =
            [("org.opencontainers.image.title", "<é&>"), ("org.opencontainers.image.version", "1.2.0")]
                .into_iter()
                .filter(|_| annotated)
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
        ModuleArtifact {
            kind,
            archive: content(b"zip"),
            module_file: Some(ModuleFileLayer::of(Bytes::from_static(b"module: \"example.com/a@v1\"\n"))),
            dependencies: vec![dependency("b", false), dependency("c", true)],
            annotations,
        }
    }

    #[test]
    fn every_form_comes_out_as_a_push_would_have_written_it() {
        for kind in [ModuleKind::OpenTofu, ModuleKind::Cue] {
            for annotated in [true, false] {
                let artifact = artifact(kind, annotated);
                let (inline, none) = (artifact.to_manifest(), artifact.to_two_layer_manifest());
                let beside = artifact.to_bundle(&none);
                assert_eq!(without_dependencies(&inline).unwrap(), none);
                assert_eq!(with_dependencies(&none, &artifact.dependencies).unwrap(), inline);
                assert_eq!(bundle(&inline, &none).unwrap(), beside);
                assert_eq!(unbundled(&beside).unwrap(), inline);
            }
        }
    }

    #[test]
    fn what_is_not_understood_stays() {
        let text = r#"{"schemaVersion":2,"own":{"b":1,"a":[1.50,null]},"layers":[{"digest":"x","y":1}],"annotations":{"z":"1","a":"2"}}"#;
        let artifact = artifact(ModuleKind::Cue, true);
        let with = with_dependencies(text.as_bytes(), &artifact.dependencies).unwrap();
        assert_eq!(without_dependencies(&with).unwrap(), text.replace("1.50", "1.5"));
        let beside = bundle(&with, text.as_bytes()).unwrap();
        assert_eq!(unbundled(&beside).unwrap(), with);
    }

    #[test]
    fn what_is_no_manifest_is_an_error() {
        for text in ["", "[]", "{", r#"{"layers":{}}"#, r#"{"layers":"x"}"#] {
            assert!(without_dependencies(text.as_bytes()).is_err(), "{text}");
        }
    }
}
