//! Registries, modules and zips that mean harm. Each test is named for a promise that is kept in spite of them: no panic, no memory
//! and no time without bound, no wrong byte taken, and nobody asked whom the user has not named.
//!
//! What a single request and its answer promise is tested beside the code (`src/registry/remote/tests.rs`), and so are the rules for
//! zips (`src/archive/check.rs`); here is what takes raw connections, or the whole way from a registry to a user. Which piece of
//! the code keeps which of these promises is listed in `tests/guards`, where each is taken out once to see its test fail.

mod answers;
mod archives;
mod contents;
mod cue_modules;
mod leads;
mod lists;
mod modules;
mod server;
mod zips;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use ocimod::module::AddressAt;
use ocimod::oci::{Digest, Reference, Repository};
use ocimod::operations::install::Installer;
use ocimod::operations::published::{DependencyForm, StoredModule};
use ocimod::operations::routes::{RepositoryTemplate, Routes, Target};
use ocimod::operations::{NoProgress, OperationError, prepare::Naming, published, pull, push};
use ocimod::registry::credentials::CredentialSource;
use ocimod::registry::remote::{RemoteOptions, RemoteRegistry, RetryPolicy, Timeouts};
use ocimod::registry::{BytesSource, Condition, NewManifest, Registry, SharedRegistry};
use ocimod::server::{App, ServerOptions};
use serde_json::Value;
use tower::ServiceExt as _;

use self::server::{Hostile, Request as Asked, Step, answer};
use crate::support::modules::example;

/// However slow the machine is, nothing that ends takes longer.
const END: Duration = Duration::from_secs(30);

/// A client that loses patience soon.
fn options(server: &Hostile) -> RemoteOptions {
    let moment = Duration::from_millis(1);
    RemoteOptions {
        plain_http: Some(true),
        timeouts: Timeouts {
            answer: Duration::from_secs(2),
            idle: Duration::from_secs(1),
            commit: Duration::from_secs(2),
            ..Timeouts::default()
        },
        retry: RetryPolicy { tries: 2, first_wait: moment, longest_wait: moment, longest_asked: moment },
        ..RemoteOptions::new(server.address.to_string().parse().unwrap(), CredentialSource::none())
    }
}

fn remote(server: &Hostile) -> SharedRegistry {
    Arc::new(RemoteRegistry::new(options(server)).unwrap())
}

fn repository() -> Repository {
    "acme/label/null".parse().unwrap()
}

fn tag(text: &str) -> Reference {
    Reference::Tag(text.parse().unwrap())
}

/// Fails the test where something has no end.
async fn ends<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(END, what).await.expect("everything comes to an end")
}

fn routes(registry: SharedRegistry) -> Routes {
    let target = Target {
        registry,
        prefix: String::new(),
        name: "registry.example".into(),
        identity: "registry.example".into(),
        is_local: false,
    };
    Routes::new(vec![(None, Some(target))], RepositoryTemplate::default())
}

/// A module as it is published: its manifest, and the blobs that this names.
#[derive(Clone)]
pub(crate) struct Module {
    manifest: Value,
    media_type: String,
    blobs: Vec<(Digest, Vec<u8>)>,
    tags: Value,
}

impl Module {
    /// A good one.
    pub(crate) async fn good() -> Self {
        let (_folder, store) = crate::conformance::directory();
        let request = push::PushRequest {
            source: example("terraform-null-label"),
            naming: Naming { address: Some("acme/label/null@1.0.0".parse().unwrap()), ..Naming::default() },
            host_aliases: Vec::new(),
            form: Some(DependencyForm::Inline),
            strict: false,
            dry_run: false,
            created: Some(0),
        };
        push::push(&routes(store.clone()), &request, Arc::new(NoProgress)).await.unwrap();
        let stored = store.manifest(&repository(), &tag("v1.0.0")).await.unwrap();
        let manifest: Value = serde_json::from_slice(&stored.bytes).unwrap();
        let mut blobs = Vec::new();
        let layers = manifest["layers"].as_array().unwrap().iter();
        for descriptor in layers.chain([&manifest["config"]]) {
            let digest: Digest = descriptor["digest"].as_str().unwrap().parse().unwrap();
            let bytes = (&*store as &dyn Registry).small_blob(&repository(), &digest, 1 << 20).await.unwrap();
            blobs.push((digest, bytes.to_vec()));
        }
        Self { manifest, media_type: stored.media_type, blobs, tags: serde_json::json!(["v1.0.0"]) }
    }

    /// The same with another zip.
    fn with_zip(mut self, zip: &[u8]) -> Self {
        let digest = Digest::of(zip);
        self.manifest["layers"][0]["digest"] = digest.as_str().into();
        self.manifest["layers"][0]["size"] = zip.len().into();
        self.blobs.push((digest, zip.to_vec()));
        self
    }

    fn zip(&self) -> &(Digest, Vec<u8>) {
        &self.blobs[0]
    }

    /// What a registry that has it answers.
    fn answer(&self, request: &Asked) -> Vec<Step> {
        let path = request.path().split('?').next().unwrap_or_default();
        let Some(rest) = path.strip_prefix("/v2/acme/label/null/") else { return answer(404, &[], b"") };
        let is_head = request.method() == "HEAD";
        let send = |headers: &[(&str, &str)], body: &[u8]| {
            let length = body.len().to_string();
            let headers = [headers, &[("content-length", length.as_str())]].concat();
            answer(200, &headers, if is_head { b"" } else { body })
        };
        let manifest = self.manifest.to_string();
        match rest.split_once('/') {
            Some(("tags", _)) => send(
                &[],
                serde_json::json!({"name": "acme/label/null", "tags": self.tags}).to_string().as_bytes(),
            ),
            Some(("manifests", reference))
                if reference == "v1.0.0" || reference == Digest::of(manifest.as_bytes()).as_str() =>
            {
                send(&[("content-type", &self.media_type)], manifest.as_bytes())
            }
            Some(("blobs", digest)) => match self.blobs.iter().find(|(known, _)| known.as_str() == digest) {
                Some((_, bytes)) => send(&[], bytes),
                None => answer(404, &[], b""),
            },
            _ => answer(404, &[], b""),
        }
    }

    /// Puts it into a store, as version 1.0.0.
    pub(crate) async fn store(&self, store: &dyn Registry, repository: &Repository) {
        for (digest, bytes) in &self.blobs {
            store.put_blob(repository, digest, &BytesSource(bytes.clone().into())).await.unwrap();
        }
        let manifest = NewManifest {
            media_type: self.media_type.clone(),
            bytes: self.manifest.to_string().into(),
            digest: None,
            tags: vec!["v1.0.0".parse().unwrap()],
            condition: Condition::None,
        };
        store.put_manifest(repository, &manifest).await.unwrap();
    }

    /// A registry that has it, and nothing else.
    async fn serve(self) -> Hostile {
        Hostile::start(move |request| self.answer(request)).await
    }
}

fn address() -> AddressAt {
    "acme/label/null@1.0.0".parse().unwrap()
}

/// What somebody gets who pulls the module: the names of the files, or why there are none. Where there is an error there is no file.
async fn pulled(registry: SharedRegistry) -> Result<Vec<String>, OperationError> {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("module");
    let outcome = ends(async {
        let stored: StoredModule = published::select(&routes(registry), &address(), None).await?;
        pull::pull(&stored, &into).await
    })
    .await;
    if let Err(error) = outcome {
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{error}: {left:?}");
        return Err(error);
    }
    let names =
        std::fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    Ok(names.collect())
}

/// What the server in front of it answers an installing client: the status of `download`, and everything that it says.
async fn offered(registry: SharedRegistry) -> (u16, String) {
    let installer = Installer::without_search(routes(registry.clone()), None);
    let router = ocimod::server::router(Arc::new(App::new(registry, installer, ServerOptions::default())));
    let ask = async |path: &str| {
        let request = Request::get(format!("/v1/modules/acme/label/null/{path}")).header("host", "127.0.0.1");
        let response = ends(router.clone().oneshot(request.body(Body::empty()).unwrap())).await.unwrap();
        let status = response.status().as_u16();
        let headers = format!("{:?}", response.headers());
        let body = ends(axum::body::to_bytes(response.into_body(), 1 << 20)).await.unwrap();
        (status, format!("{headers} {}", String::from_utf8_lossy(&body)))
    };
    let (listed, versions) = ask("versions").await;
    assert!(listed < 500 || [502, 503].contains(&listed), "{listed} {versions}");
    let (status, download) = ask("1.0.0/download").await;
    (status, format!("{versions} {download}"))
}
