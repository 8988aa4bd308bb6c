//! Manifests of a remote registry (specification, "Pulling manifests", "Pushing Manifests", "Deleting tags").
//!
//! A digest is computed from the bytes. A header of the registry is believed in one place alone, the answer to HEAD by tag:
//! there it is a hint, and whoever then reads by that digest has the bytes verified.

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};

use super::RemoteRegistry;
use super::authorization::Scopes;
use super::client::{Call, Purpose, Subject};
use crate::oci::{
    Algorithm, Digest, Hasher, IMAGE_INDEX, IMAGE_MANIFEST, MANIFEST_TYPES, MAX_MANIFEST_SIZE, Manifest,
    ManifestError, Reference, Repository, Tag,
};
use crate::registry::{
    Condition, ManifestHead, NewManifest, PutManifest, RegistryError, Result, StoredManifest,
};

const DOCKER_CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
const OCI_SUBJECT: HeaderName = HeaderName::from_static("oci-subject");

impl RemoteRegistry {
    pub(super) async fn read_manifest(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<StoredManifest> {
        let response = self.client.get(manifest_call(Method::GET, repository, reference)).await?;
        let response = self.expect_manifest(response, repository, reference).await?;
        let given = media_type(response.headers());
        let bytes = self.client.transport.body(response, MAX_MANIFEST_SIZE).await?;
        let media_type = checked_type(given.unwrap_or_else(|| own_type(&bytes)))?;
        let digest = match reference {
            Reference::Tag(_) => Digest::of(&bytes),
            Reference::Digest(expected) => verify(expected, &bytes)?,
        };
        Ok(StoredManifest { media_type, digest, bytes })
    }

    pub(super) async fn read_manifest_head(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<ManifestHead> {
        let response = self.client.send(&manifest_call(Method::HEAD, repository, reference)).await?;
        let needs_get = self.client.target(&response)?.is_some()
            || matches!(response.status(), StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED);
        if !needs_get {
            let response = self.expect_manifest(response, repository, reference).await?;
            let headers = response.headers();
            let digest = match reference {
                Reference::Digest(digest) => Some(digest.clone()),
                Reference::Tag(_) => parsed(headers, &DOCKER_CONTENT_DIGEST),
            };
            if let Some(((media_type, digest), size)) =
                media_type(headers).zip(digest).zip(parsed(headers, &CONTENT_LENGTH))
            {
                return Ok(ManifestHead { media_type: checked_type(media_type)?, digest, size });
            }
        }
        // Some headers are optional, and a redirect signed for GET does not take HEAD: the bytes say it all.
        let manifest = self.read_manifest(repository, reference).await?;
        let size = manifest.bytes.len() as u64;
        Ok(ManifestHead { media_type: manifest.media_type, digest: manifest.digest, size })
    }

    async fn expect_manifest(
        &self,
        response: Response,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<Response> {
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let purpose =
            Purpose { operation: "reading manifests", subject: Subject::Manifest(repository, reference) };
        Err(self.client.failure(response, &Scopes::pull(repository), purpose).await)
    }

    pub(super) async fn write_manifest(
        &self,
        repository: &Repository,
        new: &NewManifest,
    ) -> Result<PutManifest> {
        if new.bytes.len() as u64 > MAX_MANIFEST_SIZE {
            return Err(ManifestError::TooLarge(new.bytes.len() as u64).into());
        }
        let digest = match &new.digest {
            Some(digest) => verify(digest, &new.bytes)?,
            None => Digest::of(&new.bytes),
        };
        let mut references: Vec<Reference> = new.tags.iter().cloned().map(Reference::Tag).collect();
        // A tag stores by sha256; what is known by another digest has to be pushed by it.
        if references.is_empty() || digest.algorithm() != Algorithm::Sha256 {
            references.insert(0, Reference::Digest(digest.clone()));
        }
        let tagged_as = Digest::of(&new.bytes);
        let mut subject = None;
        for reference in &references {
            let guarded = match (new.condition, reference) {
                (Condition::AbsentOrSame, Reference::Tag(tag)) => Some(tag),
                _ => None,
            };
            if let Some(tag) = guarded {
                match self.read_manifest_head(repository, reference).await {
                    Ok(head) if head.digest == tagged_as || head.digest == digest => continue,
                    Ok(head) => {
                        return Err(RegistryError::TagExists { tag: tag.clone(), existing: head.digest });
                    }
                    Err(error) if error.is_not_found() => {}
                    // Where a repository that is not there yet may not be read, the push itself will tell.
                    Err(RegistryError::Denied { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            subject = self.put(repository, reference, &new.media_type, &new.bytes).await?.or(subject);
            if let Some(tag) = guarded {
                let head = self.read_manifest_head(repository, reference).await?;
                if head.digest != tagged_as && head.digest != digest {
                    return Err(RegistryError::TagExists { tag: tag.clone(), existing: head.digest });
                }
            }
        }
        self.keep_referrer(repository, &new.media_type, &new.bytes, &digest, subject.as_ref()).await?;
        Ok(PutManifest { digest, subject })
    }

    /// One PUT; answers the subject that the registry says to keep.
    pub(super) async fn put(
        &self,
        repository: &Repository,
        reference: &Reference,
        media_type: &str,
        bytes: &Bytes,
    ) -> Result<Option<Digest>> {
        let media_type = HeaderValue::from_str(media_type)
            .map_err(|_| ManifestError::UnknownType(media_type.chars().take(200).collect()))?;
        let scopes = Scopes::push(repository);
        let path = format!("v2/{repository}/manifests/{reference}");
        let call = Call::new(Method::PUT, path, scopes.clone()).body(media_type, bytes.clone());
        let response = self.client.write(call).await?;
        if response.status().is_success() {
            return Ok(parsed(response.headers(), &OCI_SUBJECT));
        }
        let status = response.status();
        let purpose = Purpose { operation: "pushing manifests", subject: Subject::Repository(repository) };
        let error = self.client.failure(response, &scopes, purpose).await;
        // Registries with immutable tags have no common word for it.
        let may_be_immutable = matches!(status.as_u16(), 400 | 409 | 412 | 422);
        if let (true, Reference::Tag(tag), RegistryError::Protocol { .. }) =
            (may_be_immutable, reference, &error)
            && let Some(existing) = self.other_digest(repository, tag, bytes).await
        {
            return Err(RegistryError::TagExists { tag: tag.clone(), existing });
        }
        Err(error)
    }

    /// What a tag points at, where that is something else than `bytes`.
    async fn other_digest(&self, repository: &Repository, tag: &Tag, bytes: &[u8]) -> Option<Digest> {
        let head = self.read_manifest_head(repository, &Reference::Tag(tag.clone())).await.ok()?;
        (verify(&head.digest, bytes).is_err()).then_some(head.digest)
    }

    pub(super) async fn remove_manifest(&self, repository: &Repository, reference: &Reference) -> Result<()> {
        let scopes = Scopes::delete(repository);
        let call =
            Call::new(Method::DELETE, format!("v2/{repository}/manifests/{reference}"), scopes.clone());
        let response = self.client.write(call).await?;
        if response.status().is_success() {
            return Ok(());
        }
        let operation = match reference {
            Reference::Tag(_) => "deleting tags",
            Reference::Digest(_) => "deleting manifests",
        };
        // Older registries take what stands there for a digest, and find that it is none.
        if matches!(reference, Reference::Tag(_)) && response.status() == StatusCode::BAD_REQUEST {
            return Err(RegistryError::Unsupported { operation });
        }
        let purpose = Purpose { operation, subject: Subject::Manifest(repository, reference) };
        Err(self.client.failure(response, &scopes, purpose).await)
    }
}

fn manifest_call<'a>(method: Method, repository: &Repository, reference: &Reference) -> Call<'a> {
    let accept = MANIFEST_TYPES.join(", ");
    let call = Call::new(method, format!("v2/{repository}/manifests/{reference}"), Scopes::pull(repository));
    match HeaderValue::from_str(&accept) {
        Ok(accept) => call.header(ACCEPT, accept),
        Err(_) => call,
    }
}

/// The digest of `bytes` in the algorithm of `expected`, which it must be.
pub(super) fn verify(expected: &Digest, bytes: &[u8]) -> Result<Digest> {
    let mut hasher = Hasher::new(expected.algorithm());
    hasher.update(bytes);
    let actual = hasher.finish();
    if actual == *expected {
        Ok(actual)
    } else {
        Err(RegistryError::DigestMismatch { expected: expected.clone(), actual })
    }
}

/// `Content-Type` without parameters.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    (!essence.is_empty()).then_some(essence)
}

/// What a manifest calls itself, where the registry does not say what it is.
fn own_type(bytes: &Bytes) -> String {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        media_type: Option<String>,
        manifests: Option<serde::de::IgnoredAny>,
    }
    match serde_json::from_slice::<Named>(bytes) {
        Ok(Named { media_type: Some(media_type), .. }) => media_type,
        Ok(Named { manifests: Some(_), .. }) => IMAGE_INDEX.to_owned(),
        _ => IMAGE_MANIFEST.to_owned(),
    }
}

/// A type that was asked for: a page of HTML with status 200 is no manifest.
fn checked_type(media_type: String) -> Result<String> {
    if MANIFEST_TYPES.contains(&media_type.as_str()) {
        Ok(media_type)
    } else {
        Err(ManifestError::UnknownType(media_type.chars().take(200).collect()).into())
    }
}

fn parsed<T: std::str::FromStr>(headers: &HeaderMap, name: &HeaderName) -> Option<T> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// The manifest in `bytes`, where it can be read.
pub(super) fn parse(media_type: &str, bytes: &[u8]) -> Option<Manifest> {
    Manifest::parse(media_type, bytes).ok()
}
