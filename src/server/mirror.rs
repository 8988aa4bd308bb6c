//! The provider network mirror protocol out of an OCI registry.
//!
//! `index.json` is a tag listing, and `VERSION.json` names the zips with both of their hashes, by links that [`super::archive`] makes and
//! answers: clients send their token to the JSON, and none to where a zip is. They take `application/json` and nothing else, wait 10 s,
//! and hardly ask again.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use serde::Deserialize;

use super::App;
use super::archive::{self, Opened};
use super::archive_link::{GivenLink, LinkError, Route};
use super::error::ApiError;
use super::modules::{Given, marked, reads, unbuildable};
use super::oci;
use super::rendered::Rendered;
use super::request_log::{self, Download, Product};
use crate::artifact::{Content, ProviderError};
use crate::module::{PackageName, ProviderAddress, Version};
use crate::oci::Digest;
use crate::operations::OperationError;
use crate::operations::access::Caller;
use crate::operations::providers::export::{ArchiveDocument, ArchivesDocument, VersionsDocument};
use crate::operations::providers::mirror::Offered;
use crate::operations::providers::upstream::{Upstream, Wanted};
use crate::operations::providers::{StoredTarget, mirror};
use crate::operations::routes::Place;
use crate::registry::cached::observed;

/// A file of the protocol, as it stands in a path below `/v1/mirror/`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct MirrorPath {
    hostname: String,
    namespace: String,
    #[serde(rename = "type")]
    kind: String,
    file: String,
}

/// What a file is.
enum File {
    /// `index.json`
    Versions,
    /// `VERSION.json`
    Archives(Version),
    /// `terraform-provider-TYPE_VERSION_OS_ARCH.zip`
    Package(PackageName),
}

impl File {
    /// Reads a name. A version is asked for as it was listed, so that each has one URL.
    fn parse(name: &str, address: &ProviderAddress) -> Option<Self> {
        if name == "index.json" {
            return Some(Self::Versions);
        }
        if let Some(text) = name.strip_suffix(".json") {
            return Version::parse(text)
                .ok()
                .filter(|version| version.to_string() == text)
                .map(Self::Archives);
        }
        PackageName::parse(name)
            .filter(|package| package.kind == address.kind() && package.to_string() == name)
            .map(Self::Package)
    }
}

type Answer = Result<Response<Body>, ApiError>;

/// Every file of the protocol.
pub(super) async fn serve(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Given<Path<MirrorPath>>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Answer {
    let nothing = || ApiError::NotFound("there is no such provider".to_owned());
    let Path(MirrorPath { hostname, namespace, kind, file }) = path.map_err(|_| nothing())?;
    let address = ProviderAddress::parse(&format!("{hostname}/{namespace}/{kind}")).map_err(|_| nothing())?;
    let asked = Asked { app: &app, caller: &caller, address };
    match File::parse(&file, &asked.address).ok_or_else(|| asked.unknown())? {
        File::Versions => asked.versions(&headers).await,
        File::Archives(version) => asked.archives(&version, &headers).await,
        File::Package(name) => asked.package(&name, query.as_deref(), &method, &headers).await,
    }
}

/// What a link leads to.
enum Linked {
    /// A zip that is in the registry.
    Stored(Opened),
    /// One that is not, or was not when the link was made.
    Origin(Opened),
}

/// A provider that somebody asks for.
struct Asked<'a> {
    app: &'a App,
    caller: &'a Caller,
    address: ProviderAddress,
}

impl Asked<'_> {
    fn unknown(&self) -> ApiError {
        ApiError::NotFound(format!("there is no provider `{}`", self.address))
    }

    fn unknown_version(&self, version: &Version) -> ApiError {
        ApiError::NotFound(format!("there is no version `{version}` of `{}`", self.address))
    }

    /// Where it is. Who may not read there is told that there is none, before anybody looks.
    fn place(&self) -> Result<Place, ApiError> {
        let place = self.app.installer.routes().provider_place(&self.address).ok();
        place.filter(reads(self.caller)).ok_or_else(|| self.unknown())
    }

    /// "List Available Versions"
    async fn versions(&self, headers: &HeaderMap) -> Answer {
        let place = self.place()?;
        let versions = mirror::versions(&self.address, &place, self.upstream());
        let (versions, seen) = observed(Box::pin(versions)).await;
        let versions = versions.map_err(|error| missing(error, || self.unknown()))?;
        let versions = versions.iter().map(ToString::to_string).collect();
        let body = serde_json::to_vec(&VersionsDocument { versions }).map_err(unbuildable)?;
        Ok(marked(Rendered::new(body).answer(headers), seen))
    }

    /// "List Available Installation Packages"
    async fn archives(&self, version: &Version, headers: &HeaderMap) -> Answer {
        let place = self.place()?;
        let zips = self.app.installer.zips();
        let offered = mirror::offered(zips, &self.address, &place, version, self.upstream());
        let (offered, seen) = observed(Box::pin(offered)).await;
        let offered = offered.map_err(|error| missing(error, || self.unknown_version(version)))?;
        let mut archives = BTreeMap::new();
        for (platform, offered) in offered {
            let name = PackageName::of(&self.address, version, &platform);
            let file = name.to_string();
            let (hashes, url) = match offered {
                Offered::Stored(StoredTarget { target, .. }) => {
                    let hashes = target.h1.iter().map(ToString::to_string).chain([target.zh()]).collect();
                    let route = self.route(&name);
                    (hashes, archive::location(self.app, route, &file, &place, &target.archive).await?)
                }
                Offered::Origin(digest) => {
                    let hashes = vec![format!("zh:{}", digest.hex())];
                    // Its length is known when it comes.
                    let content = Content { digest, size: 0 };
                    (hashes, archive::link(self.app, self.origin_route(&name), &file, &place, &content)?)
                }
            };
            archives.insert(platform.to_string(), ArchiveDocument { hashes, url });
        }
        let body = serde_json::to_vec(&ArchivesDocument { archives }).map_err(unbuildable)?;
        let (provider, shown) = (self.address.to_string(), version.to_string());
        let download = Download {
            token: self.caller.name(),
            namespace: self.address.namespace(),
            product: Product::Provider(&provider),
            version: &shown,
        };
        request_log::download(self.app, headers, &download);
        Response::builder()
            .header(CONTENT_TYPE, "application/json")
            .header(CACHE_CONTROL, "no-store")
            .body(Body::from(body))
            .map(|answer| marked(answer, seen))
            .map_err(unbuildable)
    }

    /// A zip, by a link, or by its name alone for who may read it.
    async fn package(
        &self,
        name: &PackageName,
        query: Option<&str>,
        method: &Method,
        headers: &HeaderMap,
    ) -> Answer {
        let link = GivenLink::read(query.unwrap_or_default())?;
        // What the client was told of: a zip that is here, or one that was at its origin when the link was made.
        let (place, told) = match &link {
            Some(link) => match self.opened(name, link)? {
                Linked::Stored(opened) => {
                    return archive::answer(self.app.options.archives.mode, &opened, method, headers).await;
                }
                Linked::Origin(Opened { place, content }) => (place, Some(content.digest)),
            },
            None => (self.place()?, None),
        };
        let is_told = |digest: &Digest| told.as_ref().is_none_or(|told| told == digest);
        let unknown = || self.unknown_version(&name.version);
        // Without an origin to look at, one system is looked at, and what is wrong with its zip is said.
        let Some(upstream) = self.upstream() else {
            let found = async {
                let stored = mirror::version(&self.address, &place, &name.version).await?;
                mirror::look(self.app.installer.zips(), &stored, &name.platform).await
            };
            let StoredTarget { target, .. } = found.await.map_err(|error| missing(error, unknown))?;
            let opened = Opened { place, content: target.archive };
            return if is_told(&opened.content.digest) {
                archive::answer(self.app.options.archives.mode, &opened, method, headers).await
            } else {
                Err(unknown())
            };
        };
        let zips = self.app.installer.zips();
        let offered = mirror::offered(zips, &self.address, &place, &name.version, Some(upstream)).await;
        let mut offered = offered.map_err(|error| missing(error, unknown))?;
        match offered.remove(&name.platform) {
            // It has come meanwhile, or was there already.
            Some(Offered::Stored(StoredTarget { target, .. })) if is_told(&target.archive.digest) => {
                let opened = Opened { place, content: target.archive };
                archive::answer(self.app.options.archives.mode, &opened, method, headers).await
            }
            Some(Offered::Origin(digest)) if is_told(&digest) => {
                self.fetched(upstream, name, digest, method, headers).await
            }
            _ => Err(unknown()),
        }
    }

    /// What a link leads to. One that is over is told from one that is none, whichever of the two it was.
    fn opened(&self, name: &PackageName, link: &GivenLink<'_>) -> Result<Linked, ApiError> {
        let stored = archive::opened(self.app, self.route(name), link).map(Linked::Stored);
        if matches!(stored, Err(ApiError::Link(LinkError::Invalid))) {
            archive::opened(self.app, self.origin_route(name), link).map(Linked::Origin)
        } else {
            stored
        }
    }

    /// A zip that comes from its origin as it is sent on.
    async fn fetched(
        &self,
        upstream: &Arc<Upstream>,
        name: &PackageName,
        digest: Digest,
        method: &Method,
        headers: &HeaderMap,
    ) -> Answer {
        let answer = Response::builder().header(ETAG, oci::etag(&digest)).header(CACHE_CONTROL, "private");
        if oci::is_known(headers, &digest) {
            return answer.status(StatusCode::NOT_MODIFIED).body(Body::empty()).map_err(unbuildable);
        }
        let answer = answer.header(CONTENT_TYPE, "application/zip");
        if method == Method::HEAD {
            return answer.body(Body::empty()).map_err(unbuildable);
        }
        let (address, version, platform) =
            (self.address.clone(), name.version.clone(), name.platform.clone());
        let arriving = upstream.fetch(&Wanted { address, version, platform, digest }).await;
        let arriving = arriving.map_err(|error| missing(error, || self.unknown_version(&name.version)))?;
        let answer = match arriving.size() {
            Some(size) => answer.header(CONTENT_LENGTH, size),
            None => answer,
        };
        answer.body(Body::from_stream(arriving.follow())).map_err(unbuildable)
    }

    /// What looks at origins, where this provider is one of those that it may look for.
    fn upstream(&self) -> Option<&Arc<Upstream>> {
        self.app.upstream.as_ref().filter(|upstream| upstream.allows(&self.address))
    }

    /// Where a link to what is at its origin is good.
    fn origin_route(&self, name: &PackageName) -> Route {
        let address = &self.address;
        let file = name.to_string();
        Route::origin_archive([address.host().as_str(), address.namespace(), address.kind(), &file])
    }

    /// Where a link to a package is good.
    fn route(&self, name: &PackageName) -> Route {
        let address = &self.address;
        let file = name.to_string();
        Route::provider_archive([address.host().as_str(), address.namespace(), address.kind(), &file])
    }
}

/// What is not there, or is something else, or has no registry, is nothing to a client.
fn missing(error: OperationError, unknown: impl FnOnce() -> ApiError) -> ApiError {
    match error.cause() {
        OperationError::NoProvider { .. }
        | OperationError::NoPlatform { .. }
        | OperationError::NotAProvider { source: ProviderError::NotAProvider { .. }, .. }
        | OperationError::Tag(_)
        | OperationError::Route(_) => unknown(),
        _ => error.into(),
    }
}
