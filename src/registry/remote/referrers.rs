//! What refers to a manifest (specification, "Listing Referrers", "Referrers Tag Schema").
//!
//! Where a registry has no such list, clients keep it in an index under a tag made of the subject's digest. Only a plain "there
//! is no such thing" leads there: a refusal or a failure is never taken for "nothing refers to it", since that would make
//! a signed module look unsigned.

use bytes::Bytes;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::RemoteRegistry;
use super::authorization::Scopes;
use super::client::{Call, Purpose, Subject};
use super::paging;
use crate::oci::{Descriptor, Digest, IMAGE_INDEX, MAX_MANIFEST_SIZE, Manifest, Reference, Repository, Tag};
use crate::registry::{NewManifest, Page, PageRequest, RegistryError, Result};

/// How often the index under the tag is written when somebody else writes it at the same time.
const FALLBACK_TRIES: usize = 4;
/// A query in [`Page::next`] begins with this, as in lists of tags. Before it may stand the digest after which a page that was
/// cut goes on.
const QUERY_MARK: char = '?';

impl RemoteRegistry {
    pub(super) async fn read_referrers(
        &self,
        repository: &Repository,
        digest: &Digest,
        artifact_type: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<Descriptor>> {
        if page.count == Some(0) {
            return Ok(Page { items: Vec::new(), next: None });
        }
        let after = page.after.as_deref().unwrap_or_default();
        let (after, query) =
            after.split_once(QUERY_MARK).map_or((after, None), |(after, query)| (after, Some(query)));
        let mut found = match self.ask_referrers(repository, digest, artifact_type, query).await? {
            Some(found) => found,
            None => Page { items: self.read_fallback(repository, digest).await?, next: None },
        };
        // Filters are optional for a registry.
        let fits = |descriptor: &Descriptor| {
            artifact_type.is_none_or(|wanted| descriptor.artifact_type.as_deref() == Some(wanted))
        };
        found.items.retain(|descriptor| fits(descriptor) && descriptor.digest.as_str() > after);
        found.items.sort_by(|one, other| one.digest.cmp(&other.digest));
        if let Some(count) = page.count.filter(|count| found.items.len() > *count) {
            // How many are wanted cannot be said to a registry. What is left over is asked for once more.
            found.items.truncate(count);
            let query = query.map(|query| format!("{QUERY_MARK}{query}")).unwrap_or_default();
            found.next = found.items.last().map(|last| format!("{}{query}", last.digest));
        }
        Ok(found)
    }

    /// A page of the registry's own list; `None` where it has none.
    async fn ask_referrers(
        &self,
        repository: &Repository,
        digest: &Digest,
        artifact_type: Option<&str>,
        query: Option<&str>,
    ) -> Result<Option<Page<Descriptor>>> {
        let mut path = format!("v2/{repository}/referrers/{digest}");
        let filter = artifact_type.map(|wanted| {
            form_urlencoded::Serializer::new(String::new()).append_pair("artifactType", wanted).finish()
        });
        if let Some(query) = query.map(str::to_owned).or(filter) {
            path = format!("{path}?{query}");
        }
        let scopes = Scopes::pull(repository);
        let call = Call::new(Method::GET, path, scopes.clone())
            .header(ACCEPT, HeaderValue::from_static(IMAGE_INDEX));
        let response = self.client.get(call).await?;
        match response.status() {
            StatusCode::OK => {
                let next = paging::next_query(&self.client, &response)?;
                let next = next.filter(|next| Some(next.as_str()) != query);
                let body = self.client.transport.body(response, MAX_MANIFEST_SIZE).await?;
                let index = Manifest::parse(IMAGE_INDEX, &body)?;
                let items = index.manifests.unwrap_or_default();
                Ok(Some(Page { items, next: next.map(|query| format!("{QUERY_MARK}{query}")) }))
            }
            status if has_no_list(status) => Ok(None),
            _ => {
                let subject = Subject::Repository(repository);
                let purpose = Purpose { operation: "listing referrers", subject };
                match self.client.failure(response, &scopes, purpose).await {
                    RegistryError::Unsupported { .. } => Ok(None),
                    error => Err(error),
                }
            }
        }
    }

    async fn read_fallback(&self, repository: &Repository, subject: &Digest) -> Result<Vec<Descriptor>> {
        match self.read_manifest(repository, &Reference::Tag(Tag::of_referrers(subject))).await {
            Ok(index) => {
                let index = Manifest::parse(&index.media_type, &index.bytes)?;
                Ok(index.manifests.unwrap_or_default())
            }
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Sees to it that a manifest that was pushed is found by its subject; answers whether the registry does that itself. `kept`: what
    /// it says of that, which is believed once its list answers (ECR said so before it had one).
    pub(super) async fn keep_referrer(
        &self,
        repository: &Repository,
        new: &NewManifest,
        manifest: &Manifest,
        digest: &Digest,
        kept: Option<&Digest>,
    ) -> Result<bool> {
        let Some(subject) = &manifest.subject else { return Ok(false) };
        if kept == Some(&subject.digest)
            && self.ask_referrers(repository, &subject.digest, None, None).await?.is_some()
        {
            return Ok(true);
        }
        let mut descriptor = Descriptor::new(&new.media_type, digest.clone(), new.bytes.len() as u64);
        descriptor.artifact_type = manifest.referrer_type().map(str::to_owned);
        descriptor.annotations = manifest.annotations.clone();
        self.edit_fallback(repository, &subject.digest, &Edit::Add(&descriptor)).await?;
        Ok(false)
    }

    /// Sees to it that a manifest that was deleted is found by its subject no longer, where the registry keeps no list itself.
    pub(super) async fn drop_referrer(
        &self,
        repository: &Repository,
        subject: &Digest,
        deleted: &Digest,
    ) -> Result<()> {
        if self.ask_referrers(repository, subject, None, None).await?.is_some() {
            return Ok(());
        }
        self.edit_fallback(repository, subject, &Edit::Remove(deleted)).await
    }

    async fn edit_fallback(&self, repository: &Repository, subject: &Digest, edit: &Edit<'_>) -> Result<()> {
        for _ in 0..FALLBACK_TRIES {
            if self.write_fallback(repository, subject, edit).await? {
                return Ok(());
            }
        }
        Err(self.client.transport.unavailable("the list of referrers is written by others all the time"))
    }

    /// Changes the index under the tag. `true` once the change is seen there; the last writer wins, so that has to be looked at.
    async fn write_fallback(
        &self,
        repository: &Repository,
        subject: &Digest,
        edit: &Edit<'_>,
    ) -> Result<bool> {
        let tag = Tag::of_referrers(subject);
        // What others wrote is kept as it is, known fields and unknown ones.
        let (mut index, stored) = match self.read_manifest(repository, &Reference::Tag(tag.clone())).await {
            Ok(found) => {
                let parsed = Manifest::parse(&found.media_type, &found.bytes)?;
                if edit.is_done(parsed.entries()) {
                    return Ok(true);
                }
                (serde_json::from_slice(&found.bytes).unwrap_or(Value::Null), Some(found.digest))
            }
            Err(error) if error.is_not_found() => {
                if edit.is_done(&[]) {
                    return Ok(true);
                }
                (json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": []}), None)
            }
            Err(error) => return Err(error),
        };
        let unreadable =
            || self.client.transport.protocol("the tag for its referrers does not name an index");
        let entries = index.get_mut("manifests").and_then(Value::as_array_mut).ok_or_else(unreadable)?;
        match edit {
            Edit::Add(descriptor) => {
                entries.push(serde_json::to_value(descriptor).map_err(|_| unreadable())?);
            }
            Edit::Remove(digest) => entries.retain(|entry| entry["digest"] != digest.as_str()),
        }
        let emptied = stored.filter(|_| entries.is_empty());
        // A list of nothing goes, by its digest: a tag that somebody has moved on meanwhile is left alone like that.
        let is_gone = match emptied {
            None => false,
            Some(digest) => match self.send_delete(repository, &Reference::Digest(digest)).await {
                Ok(()) => true,
                Err(error) if error.is_not_found() => true,
                // Where that may not be, it stays as a list of nothing.
                Err(RegistryError::Unsupported { .. } | RegistryError::Denied { .. }) => false,
                Err(error) => return Err(error),
            },
        };
        if !is_gone {
            // Not as a push of a manifest: a subject in a stranger's index would lead on to the next index, without end.
            let bytes = Bytes::from(index.to_string());
            self.put(repository, &Reference::Tag(tag), &[], IMAGE_INDEX, &bytes).await?;
        }
        Ok(edit.is_done(&self.read_fallback(repository, subject).await?))
    }
}

/// Whether a status says that there is no list of referrers at all, and no more than that.
fn has_no_list(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED)
}

/// A change of the index under the tag.
enum Edit<'a> {
    Add(&'a Descriptor),
    Remove(&'a Digest),
}

impl Edit<'_> {
    /// Whether a list is as it should be.
    fn is_done(&self, entries: &[Descriptor]) -> bool {
        let lists = |digest: &Digest| entries.iter().any(|entry| entry.digest == *digest);
        match self {
            Self::Add(descriptor) => lists(&descriptor.digest),
            Self::Remove(digest) => !lists(digest),
        }
    }
}
