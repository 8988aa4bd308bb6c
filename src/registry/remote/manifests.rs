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
use super::provisioning;
use crate::oci::{
    Algorithm, Digest, Hasher, IMAGE_INDEX, IMAGE_MANIFEST, MANIFEST_TYPES, MAX_MANIFEST_SIZE, Manifest,
    ManifestError, Reference, Repository, Tag,
};
use crate::registry::{
    Condition, ManifestHead, NewManifest, PutManifest, RegistryError, Result, StoredManifest,
};

const DOCKER_CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
const OCI_SUBJECT: HeaderName = HeaderName::from_static("oci-subject");
const OCI_TAG: HeaderName = HeaderName::from_static("oci-tag");

impl RemoteRegistry {
    pub(super) async fn read_manifest(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<StoredManifest> {
        let response = self.client.get(manifest_call(Method::GET, repository, reference)).await?;
        let response = self.expect_manifest(response, repository, reference).await?;
        let given = media_type(response.headers());
        let hint: Option<Digest> = parsed(response.headers(), &DOCKER_CONTENT_DIGEST);
        let bytes = self.client.transport.body(response, MAX_MANIFEST_SIZE).await?;
        let media_type = checked_type(given.unwrap_or_else(|| own_type(&bytes)))?;
        let digest = match reference {
            // The header says in which algorithm the manifest is known; its value counts only where it is right.
            Reference::Tag(_) => {
                hint.and_then(|hint| verify(&hint, &bytes).ok()).unwrap_or_else(|| Digest::of(&bytes))
            }
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
        let manifest = Manifest::parse(&new.media_type, &new.bytes)?;
        let digest = match &new.digest {
            Some(digest) => verify(digest, &new.bytes)?,
            None => Digest::of(&new.bytes),
        };
        // Before anything is sent, for a push that is refused changes nothing.
        let tags = match new.condition {
            Condition::None => new.tags.clone(),
            Condition::AbsentOrSame => self.absent_tags(repository, new).await?,
        };
        // What is there need not be sent, but where it has a subject: an earlier push may have ended before the list of referrers.
        let is_there = tags.is_empty() && !new.tags.is_empty();
        if is_there && digest.algorithm() == Algorithm::Sha256 && manifest.subject.is_none() {
            return Ok(PutManifest { digest, subject: None });
        }
        let pushed = self.put_tagged(repository, new, &digest, &tags).await;
        // A registry that keeps tags from moving refuses the loser of a race, and says so in words of its own: the tag tells.
        let is_refused = matches!(pushed, Err(RegistryError::Denied { .. } | RegistryError::Protocol { .. }));
        if new.condition == Condition::AbsentOrSame && (pushed.is_ok() || is_refused) {
            for tag in &tags {
                match self.other_digest(repository, tag, &new.bytes).await {
                    Ok(Some(existing)) => {
                        return Err(RegistryError::TagExists { tag: tag.clone(), existing });
                    }
                    Ok(None) => {}
                    Err(_) if is_refused => break,
                    Err(error) => return Err(error),
                }
            }
        }
        let subject = pushed?;
        let is_kept = self.keep_referrer(repository, new, &manifest, &digest, subject.as_ref()).await?;
        Ok(PutManifest { digest, subject: subject.filter(|_| is_kept) })
    }

    /// The tags of a push that are not there; an error where one is and points at something else.
    async fn absent_tags(&self, repository: &Repository, new: &NewManifest) -> Result<Vec<Tag>> {
        let mut absent = Vec::new();
        for tag in &new.tags {
            match self.other_digest(repository, tag, &new.bytes).await {
                Ok(None) => {}
                Ok(Some(existing)) => return Err(RegistryError::TagExists { tag: tag.clone(), existing }),
                // Where a repository that is not there yet may not be read, the push itself will tell.
                Err(error) if error.is_not_found() || matches!(error, RegistryError::Denied { .. }) => {
                    absent.push(tag.clone());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(absent)
    }

    /// Stores a manifest with its tags in as few requests as the registry can take; answers the subject that it says to keep.
    async fn put_tagged(
        &self,
        repository: &Repository,
        new: &NewManifest,
        digest: &Digest,
        tags: &[Tag],
    ) -> Result<Option<Digest>> {
        let (mut subject, mut named) = (None, Vec::new());
        // One tag is pushed by itself, as everybody does. With more of them, none may move where one may not; and a tag in the
        // path stores by sha256, whatever the manifest is known by. Registries that know of `tag` say which they have set.
        if tags.len() != 1 || digest.algorithm() != Algorithm::Sha256 {
            let by_digest = Reference::Digest(digest.clone());
            let headers = self.put(repository, &by_digest, tags, &new.media_type, &new.bytes).await?;
            subject = parsed(&headers, &OCI_SUBJECT);
            named.extend(headers.get_all(OCI_TAG).iter().cloned());
        }
        for tag in tags.iter().filter(|tag| !named.iter().any(|named| named == tag.as_str())) {
            let by_tag = Reference::Tag(tag.clone());
            let headers = self.put(repository, &by_tag, &[], &new.media_type, &new.bytes).await?;
            subject = parsed(&headers, &OCI_SUBJECT).or(subject);
        }
        Ok(subject)
    }

    /// One PUT, with more tags for what is pushed by digest; answers the headers.
    pub(super) async fn put(
        &self,
        repository: &Repository,
        reference: &Reference,
        tags: &[Tag],
        media_type: &str,
        bytes: &Bytes,
    ) -> Result<HeaderMap> {
        let media_type = HeaderValue::from_str(media_type)
            .map_err(|_| ManifestError::UnknownType(media_type.chars().take(200).collect()))?;
        let scopes = Scopes::push(repository);
        let query: Vec<_> = tags.iter().map(|tag| format!("tag={tag}")).collect();
        let path = match query.join("&") {
            query if query.is_empty() => format!("v2/{repository}/manifests/{reference}"),
            query => format!("v2/{repository}/manifests/{reference}?{query}"),
        };
        let call = Call::new(Method::PUT, path, scopes.clone()).body(media_type, bytes.clone());
        let response = self.client.write(call).await?;
        if response.status().is_success() {
            return Ok(response.headers().clone());
        }
        let status = response.status();
        let purpose = Purpose { operation: "pushing manifests", subject: Subject::Repository(repository) };
        let error = self.client.failure(response, &scopes, purpose).await;
        let error = provisioning::of_push(error, &self.client.transport.registry);
        // Registries with immutable tags have no common word for it.
        let may_be_immutable = matches!(status.as_u16(), 400 | 409 | 412 | 422);
        if may_be_immutable && matches!(error, RegistryError::Protocol { .. }) {
            let tags = match reference {
                Reference::Tag(tag) => std::slice::from_ref(tag),
                Reference::Digest(_) => tags,
            };
            for tag in tags {
                if let Ok(Some(existing)) = self.other_digest(repository, tag, bytes).await {
                    return Err(RegistryError::TagExists { tag: tag.clone(), existing });
                }
            }
        }
        Err(error)
    }

    /// What a tag points at, where that is something else than `bytes`.
    async fn other_digest(&self, repository: &Repository, tag: &Tag, bytes: &[u8]) -> Result<Option<Digest>> {
        let head = self.read_manifest_head(repository, &Reference::Tag(tag.clone())).await?;
        Ok(verify(&head.digest, bytes).is_err().then_some(head.digest))
    }

    /// What a manifest refers to, as far as it can be read.
    async fn subject_of(&self, repository: &Repository, digest: &Digest) -> Result<Option<Digest>> {
        match self.read_manifest(repository, &Reference::Digest(digest.clone())).await {
            Ok(stored) => {
                let manifest = Manifest::parse(&stored.media_type, &stored.bytes).ok();
                Ok(manifest.and_then(|manifest| manifest.subject).map(|subject| subject.digest))
            }
            Err(error) if error.is_passing() => Err(error),
            // Whatever is the matter, to delete it is a question of its own.
            Err(_) => Ok(None),
        }
    }

    pub(super) async fn remove_manifest(&self, repository: &Repository, reference: &Reference) -> Result<()> {
        // Once it is gone, nobody knows any more what it referred to.
        let listed_under = match reference {
            Reference::Tag(_) => None,
            Reference::Digest(digest) => {
                self.subject_of(repository, digest).await?.map(|subject| (subject, digest))
            }
        };
        self.send_delete(repository, reference).await?;
        // Not before: a signature that could not be deleted has to be found still.
        match listed_under {
            Some((subject, digest)) => self.drop_referrer(repository, &subject, digest).await,
            None => Ok(()),
        }
    }

    /// One DELETE.
    pub(super) async fn send_delete(&self, repository: &Repository, reference: &Reference) -> Result<()> {
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
