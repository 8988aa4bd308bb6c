//! Blobs of a remote registry: read, looked for, mounted, deleted (specification, "Pulling blobs", "Mounting a blob").

use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue, RANGE};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::RemoteRegistry;
use super::authorization::Scopes;
use super::client::{Call, Client, Purpose, Subject};
use super::download::{Download, content_range, other_range};
use super::redirect;
use crate::oci::{ByteRange, Digest, Repository};
use crate::registry::{Blob, BlobRequest, BlobStream, RegistryError, Result};

impl RemoteRegistry {
    pub(super) async fn read_blob(
        &self,
        repository: &Repository,
        digest: &Digest,
        request: BlobRequest,
    ) -> Result<Blob> {
        let mut call = blob_call(Method::GET, repository, digest);
        if let Some(range) = request.range {
            call = with_range(call, range);
        }
        let response = self.client.send(&call).await?;
        if request.location
            && let Some(target) = self.client.target(&response)?
            && !redirect::same_origin(response.url(), &target)
            && !self.client.is_ours(&target, &Scopes::pull(repository)).await?
        {
            self.client.transport.elsewhere(response.url(), &target).await?;
            return Ok(Blob::Location(target));
        }
        let response = self.client.follow(call, response).await?;
        let Some(range) = request.range else {
            if response.status() != StatusCode::OK {
                return Err(blob_failure(&self.client, response, repository, digest).await);
            }
            let size = self.size_of(&response, repository, digest).await?;
            let bytes = Download::whole(&self.client, repository, digest, response, size);
            return Ok(Blob::Stream(BlobStream { size, span: None, bytes }));
        };
        if response.status() != StatusCode::RANGE_NOT_SATISFIABLE {
            return self.read_piece(response, repository, digest, range).await;
        }
        let size = self.read_blob_size(repository, digest).await?;
        let span = range.within(size).ok_or(RegistryError::RangeNotSatisfiable { size })?;
        // It has the piece after all: some registries know only the form with both ends.
        let plain = ByteRange::FromTo { first: span.start, last: span.start + (span.length - 1) };
        let response = self.client.get(with_range(blob_call(Method::GET, repository, digest), plain)).await?;
        self.read_piece(response, repository, digest, plain).await
    }

    pub(super) async fn bare_url(&self, repository: &Repository, digest: &Digest) -> Result<Url> {
        self.client.url(&blob_path(repository, digest)).await
    }

    /// The answer to a request for a piece.
    async fn read_piece(
        &self,
        response: Response,
        repository: &Repository,
        digest: &Digest,
        range: ByteRange,
    ) -> Result<Blob> {
        let (size, span, skipped) = match response.status() {
            // The registry gives the whole all the same (RFC 9110 section 14.2 lets it).
            StatusCode::OK => {
                let size = self.size_of(&response, repository, digest).await?;
                let span = range.within(size).ok_or(RegistryError::RangeNotSatisfiable { size })?;
                (size, span, span.start)
            }
            StatusCode::PARTIAL_CONTENT => {
                let given = content_range(response.headers())
                    .filter(|(span, size)| range.within(*size) == Some(*span));
                let (span, size) = given.ok_or_else(|| other_range(&self.client))?;
                (size, span, 0)
            }
            _ => return Err(blob_failure(&self.client, response, repository, digest).await),
        };
        let bytes = Download::piece(&self.client, repository, digest, response, size, (skipped, span));
        Ok(Blob::Stream(BlobStream { size, span: Some(span), bytes }))
    }

    /// The size of a whole blob that is on its way; a proxy may have taken the header that says it.
    async fn size_of(&self, response: &Response, repository: &Repository, digest: &Digest) -> Result<u64> {
        match content_length(response.headers()) {
            Some(size) => Ok(size),
            None => self.head_blob(repository, digest).await?.ok_or_else(|| self.no_size()),
        }
    }

    fn no_size(&self) -> RegistryError {
        self.client.transport.protocol("it does not say how long a blob is")
    }

    pub(super) async fn read_blob_size(&self, repository: &Repository, digest: &Digest) -> Result<u64> {
        if let Some(size) = self.head_blob(repository, digest).await? {
            return Ok(size);
        }
        // What a redirect leads to is signed for GET alone, so that is asked, and the body is left alone.
        let response = self.client.get(blob_call(Method::GET, repository, digest)).await?;
        match response.status() {
            StatusCode::OK => content_length(response.headers()).ok_or_else(|| self.no_size()),
            _ => Err(blob_failure(&self.client, response, repository, digest).await),
        }
    }

    /// The size by HEAD; `None` where the answer does not say it.
    async fn head_blob(&self, repository: &Repository, digest: &Digest) -> Result<Option<u64>> {
        let response = self.client.send(&blob_call(Method::HEAD, repository, digest)).await?;
        match response.status() {
            StatusCode::OK => Ok(content_length(response.headers())),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Ok(None),
            _ if self.client.target(&response)?.is_some() => Ok(None),
            _ => Err(blob_failure(&self.client, response, repository, digest).await),
        }
    }

    pub(super) async fn remove_blob(&self, repository: &Repository, digest: &Digest) -> Result<()> {
        let scopes = Scopes::delete(repository);
        let call = Call::new(Method::DELETE, blob_path(repository, digest), scopes.clone());
        let response = self.client.write(call).await?;
        if response.status().is_success() {
            return Ok(());
        }
        let purpose = Purpose { operation: "deleting blobs", subject: Subject::Blob(repository, digest) };
        Err(self.client.failure(response, &scopes, purpose).await)
    }

    /// Asks for a mount. Whatever goes wrong, sending the blob is what remains, and it tells what is the matter.
    pub(super) async fn try_mount(
        &self,
        repository: &Repository,
        digest: &Digest,
        from: Option<&Repository>,
    ) -> bool {
        let from_query = from.map(|from| format!("&from={from}")).unwrap_or_default();
        let path = format!("v2/{repository}/blobs/uploads/?mount={digest}{from_query}");
        let call = Call::new(Method::POST, path, Scopes::mount(repository, from)).empty_body();
        let Ok(response) = self.client.write(call).await else { return false };
        if response.status() == StatusCode::ACCEPTED
            && let Ok(Some(session)) = self.client.location(&response)
        {
            // The registry has opened an upload instead. It is not used, and must not be left to lie about either.
            let call = Call::to(Method::DELETE, session, Scopes::push(repository)).once();
            let _ = self.client.send(&call).await;
        }
        response.status() == StatusCode::CREATED
    }
}

fn blob_path(repository: &Repository, digest: &Digest) -> String {
    format!("v2/{repository}/blobs/{digest}")
}

/// The error of an answer to a request for a blob.
pub(super) async fn blob_failure(
    client: &Client,
    response: Response,
    repository: &Repository,
    digest: &Digest,
) -> RegistryError {
    let purpose = Purpose { operation: "reading blobs", subject: Subject::Blob(repository, digest) };
    client.failure(response, &Scopes::pull(repository), purpose).await
}

/// A compressed answer would be no answer: the digest is that of the bytes as they are.
pub(super) fn blob_call<'a>(method: Method, repository: &Repository, digest: &Digest) -> Call<'a> {
    Call::new(method, blob_path(repository, digest), Scopes::pull(repository))
        .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}

pub(super) fn with_range(call: Call<'_>, range: ByteRange) -> Call<'_> {
    match HeaderValue::from_str(&range.header()) {
        Ok(header) => call.header(RANGE, header),
        Err(_) => call,
    }
}

/// The header itself: for HEAD there is no body whose length could be asked.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
