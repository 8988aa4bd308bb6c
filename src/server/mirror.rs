//! The provider network mirror protocol out of an OCI registry.
//!
//! `index.json` is a tag listing, and `VERSION.json` names the zips with both of their hashes, by links that [`super::archive`] makes and
//! answers: clients send their token to the JSON, and none to where a zip is. They take `application/json` and nothing else, wait 10 s,
//! and hardly ask again.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Response};
use serde::Deserialize;

use super::App;
use super::archive::{self, Opened};
use super::archive_link::{GivenLink, Route};
use super::error::ApiError;
use super::modules::{Given, marked, reads, unbuildable};
use super::rendered::Rendered;
use super::request_log::{self, Download, Product};
use crate::artifact::ProviderError;
use crate::module::{PackageName, ProviderAddress, Version};
use crate::operations::OperationError;
use crate::operations::access::Caller;
use crate::operations::providers::export::{ArchiveDocument, ArchivesDocument, VersionsDocument};
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
        let (versions, seen) = observed(Box::pin(mirror::versions(&self.address, &place))).await;
        let versions = versions.map_err(|error| missing(error, || self.unknown()))?;
        let versions = versions.iter().map(ToString::to_string).collect();
        let body = serde_json::to_vec(&VersionsDocument { versions }).map_err(unbuildable)?;
        Ok(marked(Rendered::new(body).answer(headers), seen))
    }

    /// "List Available Installation Packages"
    async fn archives(&self, version: &Version, headers: &HeaderMap) -> Answer {
        let place = self.place()?;
        let (packages, seen) = observed(Box::pin(async {
            let stored = mirror::version(&self.address, &place, version).await?;
            mirror::packages(self.app.installer.zips(), &stored).await
        }))
        .await;
        let packages = packages.map_err(|error| missing(error, || self.unknown_version(version)))?;
        let mut archives = BTreeMap::new();
        for StoredTarget { target, .. } in &packages {
            let name = PackageName::of(&self.address, version, &target.platform);
            let (route, file) = (self.route(&name), name.to_string());
            let url = archive::location(self.app, route, &file, &place, &target.archive).await?;
            let hashes = target.h1.iter().map(ToString::to_string).chain([target.zh()]).collect();
            archives.insert(target.platform.to_string(), ArchiveDocument { hashes, url });
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
        let opened = if let Some(link) = GivenLink::read(query.unwrap_or_default())? {
            archive::opened(self.app, self.route(name), &link)?
        } else {
            let place = self.place()?;
            let found = async {
                let stored = mirror::version(&self.address, &place, &name.version).await?;
                mirror::look(self.app.installer.zips(), &stored, &name.platform).await
            };
            let found =
                found.await.map_err(|error| missing(error, || self.unknown_version(&name.version)))?;
            Opened { place, content: found.target.archive }
        };
        archive::answer(self.app.options.archives.mode, &opened, method, headers).await
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
