//! What every [`Registry`] has to do, whatever is behind it.
//!
//! The cases of the distribution specification's own suite in the terms of the trait, and stricter: the order of lists and where
//! they go on, conditions, immutable tags, concurrency, and what the bytes are. To hold another implementation to it:
//!
//! ```ignore
//! #[tokio::test(flavor = "multi_thread")]
//! async fn another() {
//!     check(Arc::new(Another::new()), Profile::full()).await;
//! }
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use ocimod::oci::{
    Algorithm, ByteRange, Descriptor, Digest, ErrorCode, Hasher, IMAGE_INDEX, IMAGE_MANIFEST,
    MAX_MANIFEST_SIZE, Reference, Repository, Span, Tag,
};
use ocimod::operations::install::Installer;
use ocimod::operations::routes::{RepositoryTemplate, Routes};
use ocimod::registry::credentials::{CredentialEnvironment, CredentialSource};
use ocimod::registry::remote::{RemoteOptions, RemoteRegistry};
use ocimod::registry::{
    Blob, BlobRequest, ByteStream, BytesSource, Cache, CacheOptions, Condition, DirectoryOptions,
    DirectoryRegistry, NewManifest, PageRequest, RegistryError, Result, SharedRegistry, UploadId,
    read_bounded,
};
use ocimod::server::{self, App, ServerOptions};
use serde_json::{Value, json};

use crate::access::{Site, token};
use crate::failing_registry::FailingRegistry;
use crate::support::docker_registry::DockerRegistry;
use crate::support::ocimod::Ocimod;

/// What a registry can do of what the specification leaves open or some registries lack.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // independent facts about a registry
pub(crate) struct Profile {
    /// Every repository of the run is below this, so that runs on one registry do not meet.
    pub(crate) prefix: String,
    /// Which digests it takes.
    pub(crate) algorithms: &'static [Algorithm],
    /// Lists are sorted, and `count` and `after` are heeded.
    pub(crate) has_pages: bool,
    /// A page says that nothing comes after it, also where it is full.
    pub(crate) knows_last_page: bool,
    /// It lists its repositories.
    pub(crate) has_catalog: bool,
    /// In the order of their names.
    pub(crate) sorts_catalog: bool,
    /// It keeps a list of referrers, and says so when a manifest has a subject. Otherwise the client keeps it under a tag.
    pub(crate) has_referrers_list: bool,
    /// It refuses a manifest whose children are missing, also those of an index.
    pub(crate) checks_children: bool,
    /// It takes manifests with layers that are not there because they may not be distributed or have `urls`.
    pub(crate) has_foreign_layers: bool,
    /// A piece of an upload at a wrong offset is refused, and an upload is bound to its repository.
    pub(crate) checks_uploads: bool,
    /// Upload sessions can be used by hand. `false` where an implementation has them for its own use at most.
    pub(crate) has_uploads: bool,
    /// A blob is taken over from another repository.
    pub(crate) has_mount: bool,
    /// A mount without a source finds the blob.
    pub(crate) has_anonymous_mount: bool,
    /// [`Condition::AbsentOrSame`] and immutability hold against concurrent pushes.
    pub(crate) is_atomic: bool,
    /// Tags that begin with `v` do not move.
    pub(crate) has_immutable_tags: bool,
    /// A tag can be deleted without its manifest.
    pub(crate) has_tag_delete: bool,
    /// Manifests and blobs can be deleted.
    pub(crate) has_delete: bool,
    /// Blobs without a byte can be stored.
    pub(crate) has_empty_blobs: bool,
    /// The largest manifest that is taken, and nothing above it.
    pub(crate) manifest_limit: u64,
}

impl Profile {
    /// Everything. Tags that begin with `v` are expected to be immutable.
    pub(crate) fn full() -> Self {
        Self {
            prefix: "conformance".into(),
            algorithms: &[Algorithm::Sha256, Algorithm::Sha512],
            has_pages: true,
            knows_last_page: true,
            has_catalog: true,
            sorts_catalog: true,
            has_referrers_list: true,
            checks_children: true,
            has_foreign_layers: true,
            checks_uploads: true,
            has_uploads: true,
            has_mount: true,
            has_anonymous_mount: true,
            is_atomic: true,
            has_immutable_tags: true,
            has_tag_delete: true,
            has_delete: true,
            has_empty_blobs: true,
            manifest_limit: MAX_MANIFEST_SIZE,
        }
    }

    /// Everything but what no request or answer of the specification has: conditions that hold against others at the same
    /// time, and a word for the end of a list. `Link` is optional ("Listing Tags"), so a full page without it may have more
    /// after it, and whoever took it for the last one would lose tags of registries that go by `last` alone.
    pub(crate) fn remote() -> Self {
        Self { is_atomic: false, knows_last_page: false, ..Self::full() }
    }

    /// Debian's docker-registry 2.8 with deletion allowed, behind a client: no referrers, no order, mutable tags.
    pub(crate) fn docker_registry() -> Self {
        Self {
            algorithms: &[Algorithm::Sha256],
            has_pages: false,
            sorts_catalog: false,
            has_referrers_list: false,
            checks_children: false,
            // The specification lets a registry want every blob that a manifest names ("Pushing Manifests"). This one wants
            // layers of types that it does not know, and refuses `urls` unless its configuration allows them.
            has_foreign_layers: false,
            checks_uploads: false,
            has_anonymous_mount: false,
            has_immutable_tags: false,
            has_tag_delete: false,
            has_empty_blobs: false,
            ..Self::remote()
        }
    }

    /// Distribution 3.1 with deletion allowed, behind a client.
    pub(crate) fn distribution_3() -> Self {
        Self {
            // It takes blobs by sha512, and loses them where they are mounted.
            algorithms: &[Algorithm::Sha256],
            has_referrers_list: false,
            // The specification has no catalog. Here a repository comes before what is named below it.
            sorts_catalog: false,
            // As in 2.8.
            has_foreign_layers: false,
            has_anonymous_mount: false,
            has_immutable_tags: false,
            ..Self::remote()
        }
    }
}

/// Holds a registry to all of it. Panics where it fails, with what was being done.
pub(crate) async fn check(registry: SharedRegistry, profile: Profile) {
    let suite = Suite { registry, profile };
    suite.an_empty_repository().await;
    for algorithm in suite.profile.algorithms {
        suite.blobs(*algorithm).await;
        suite.ranges(*algorithm).await;
        suite.uploads(*algorithm).await;
        suite.mounts(*algorithm).await;
        suite.manifests(*algorithm).await;
    }
    suite.bad_manifests().await;
    suite.tags().await;
    suite.catalog().await;
    suite.conditions().await;
    suite.immutability().await;
    suite.concurrency().await;
    suite.referrers().await;
    suite.referrers_by_tag().await;
    suite.deletes().await;
}

struct Suite {
    registry: SharedRegistry,
    profile: Profile,
}

fn digest_of(algorithm: Algorithm, bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(bytes);
    hasher.finish()
}

fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

fn by_tag(text: &str) -> Reference {
    Reference::Tag(tag(text))
}

fn piece(bytes: &[u8]) -> ByteStream {
    let bytes = Bytes::copy_from_slice(bytes);
    stream::once(async move { Ok(bytes) }).boxed()
}

fn entry(media_type: &str, digest: &Digest, size: usize) -> Value {
    json!({"mediaType": media_type, "digest": digest, "size": size})
}

/// The error must be the specification's `expected` when it is answered.
#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T>, expected: ErrorCode) {
    match outcome {
        Ok(value) => panic!("accepted ({value:?}) what should have been {}", expected.as_str()),
        Err(error) => assert_eq!(error.code(), Some(expected), "{error}"),
    }
}

#[track_caller]
fn not_found<T: std::fmt::Debug>(outcome: Result<T>) {
    match outcome {
        Ok(value) => panic!("found {value:?}"),
        Err(error) => assert!(error.is_not_found(), "{error}"),
    }
}

impl Suite {
    fn repository(&self, case: &str) -> Repository {
        format!("{}/{case}", self.profile.prefix).parse().unwrap()
    }

    async fn put_blob(&self, repository: &Repository, algorithm: Algorithm, bytes: &[u8]) -> Digest {
        let digest = digest_of(algorithm, bytes);
        let source = BytesSource(Bytes::copy_from_slice(bytes));
        self.registry.put_blob(repository, &digest, &source).await.unwrap();
        digest
    }

    async fn read_blob(&self, repository: &Repository, digest: &Digest) -> Result<Bytes> {
        let stream = self.registry.blob_stream(repository, digest).await?;
        assert_eq!(stream.span, None, "a whole blob has no range");
        let size = stream.size;
        let bytes = read_bounded(stream.bytes, 64 << 20).await?;
        assert_eq!(bytes.len() as u64, size);
        Ok(bytes)
    }

    async fn put(
        &self,
        repository: &Repository,
        media_type: &str,
        manifest: &Value,
        tags: &[&str],
        condition: Condition,
    ) -> Result<Digest> {
        let new = NewManifest {
            media_type: media_type.into(),
            bytes: manifest.to_string().into(),
            digest: None,
            tags: tags.iter().copied().map(tag).collect(),
            condition,
        };
        Ok(self.registry.put_manifest(repository, &new).await?.digest)
    }

    /// A manifest of an artifact with one layer, whose blobs are pushed.
    async fn image(&self, repository: &Repository, layer: &str) -> Value {
        let config = self.put_blob(repository, Algorithm::Sha256, b"{}").await;
        let digest = self.put_blob(repository, Algorithm::Sha256, layer.as_bytes()).await;
        json!({
            "schemaVersion": 2,
            "mediaType": IMAGE_MANIFEST,
            "config": entry("application/vnd.example.config+json", &config, 2),
            "layers": [entry("application/vnd.example.layer", &digest, layer.len())],
        })
    }

    async fn push_image(&self, repository: &Repository, layer: &str, tags: &[&str]) -> Digest {
        let manifest = self.image(repository, layer).await;
        self.put(repository, IMAGE_MANIFEST, &manifest, tags, Condition::None).await.unwrap()
    }

    async fn all_tags(&self, repository: &Repository) -> Vec<String> {
        let tags = self.registry.all_tags(repository, 10_000).await.unwrap();
        tags.iter().map(ToString::to_string).collect()
    }

    async fn an_empty_repository(&self) {
        let (registry, repository) = (&self.registry, self.repository("empty"));
        refused(registry.tags(&repository, &PageRequest::default()).await, ErrorCode::NameUnknown);
        let digest = Digest::of(b"nowhere");
        for reference in [by_tag("latest"), digest.clone().into()] {
            not_found(registry.manifest(&repository, &reference).await);
            not_found(registry.manifest_head(&repository, &reference).await);
        }
        not_found(registry.blob(&repository, &digest, BlobRequest::default()).await);
        not_found(registry.blob_size(&repository, &digest).await);
        if self.profile.has_delete {
            not_found(registry.delete_manifest(&repository, &digest).await);
            not_found(registry.delete_blob(&repository, &digest).await);
        }
        if self.profile.has_tag_delete {
            not_found(registry.delete_tag(&repository, &tag("latest")).await);
        }
        let referrers = registry.referrers(&repository, &digest, None, &PageRequest::default()).await;
        assert_eq!(referrers.unwrap().items, []);
        refused(registry.tags(&repository, &PageRequest::default()).await, ErrorCode::NameUnknown);
    }

    async fn blobs(&self, algorithm: Algorithm) {
        let (registry, repository) = (&self.registry, self.repository("blobs"));
        let large = vec![0xa5; 3 << 20];
        let mut contents: Vec<&[u8]> = vec![b"{}", b"some bytes", &large];
        if self.profile.has_empty_blobs {
            contents.push(b"");
        }
        for content in contents {
            let digest = digest_of(algorithm, content);
            refused(registry.blob_size(&repository, &digest).await, ErrorCode::BlobUnknown);
            refused(self.read_blob(&repository, &digest).await, ErrorCode::BlobUnknown);
            for _ in 0..2 {
                self.put_blob(&repository, algorithm, content).await;
                assert_eq!(registry.blob_size(&repository, &digest).await.unwrap(), content.len() as u64);
                assert_eq!(self.read_blob(&repository, &digest).await.unwrap(), content);
            }
            let elsewhere = self.repository("elsewhere");
            refused(registry.blob_size(&elsewhere, &digest).await, ErrorCode::BlobUnknown);
            refused(self.read_blob(&elsewhere, &digest).await, ErrorCode::BlobUnknown);
        }
        let wrong = digest_of(algorithm, b"other bytes");
        let source = BytesSource(Bytes::from_static(b"wrong bytes"));
        refused(registry.put_blob(&repository, &wrong, &source).await, ErrorCode::DigestInvalid);
        refused(registry.blob_size(&repository, &wrong).await, ErrorCode::BlobUnknown);
    }

    async fn ranges(&self, algorithm: Algorithm) {
        let repository = self.repository("ranges");
        let content: Vec<u8> = (0..3000_u32).map(|number| (number % 251) as u8).collect();
        let digest = self.put_blob(&repository, algorithm, &content).await;
        let piece = async |range| -> Result<(u64, Option<Span>, Bytes)> {
            let request = BlobRequest { range: Some(range), ..BlobRequest::default() };
            match self.registry.blob(&repository, &digest, request).await? {
                Blob::Stream(stream) => {
                    Ok((stream.size, stream.span, read_bounded(stream.bytes, 10_000).await?))
                }
                other => panic!("{other:?}, which nobody asked for"),
            }
        };
        for (range, start, end) in [
            (ByteRange::FromTo { first: 0, last: 0 }, 0, 1),
            (ByteRange::FromTo { first: 500, last: 1499 }, 500, 1500),
            (ByteRange::From(500), 500, 3000),
            (ByteRange::Last(500), 2500, 3000),
            (ByteRange::Last(5000), 0, 3000),
            (ByteRange::FromTo { first: 2000, last: 9999 }, 2000, 3000),
            (ByteRange::From(2999), 2999, 3000),
        ] {
            let (size, span, bytes) = piece(range).await.unwrap();
            assert_eq!(size, 3000, "{range:?}");
            let length = (end - start) as u64;
            assert_eq!(span, Some(Span { start: start as u64, length }), "{range:?}");
            assert_eq!(bytes, &content[start..end], "{range:?}");
        }
        for range in [ByteRange::FromTo { first: 5000, last: 10_000 }, ByteRange::From(3000)] {
            match piece(range).await {
                Err(RegistryError::RangeNotSatisfiable { size: 3000 }) => {}
                other => panic!("{range:?}: {other:?}"),
            }
        }
    }

    async fn uploads(&self, algorithm: Algorithm) {
        if !self.profile.has_uploads {
            return;
        }
        let (registry, repository) = (&self.registry, self.repository("uploads"));
        let whole = b"one two three".as_slice();
        let digest = digest_of(algorithm, whole);

        let upload = registry.open_upload(&repository, algorithm).await.unwrap();
        assert_eq!(registry.upload_offset(&repository, &upload).await.unwrap(), 0);
        assert_eq!(registry.append_upload(&repository, &upload, Some(0), piece(b"one ")).await.unwrap(), 4);
        if self.profile.checks_uploads {
            for wrong in [0, 3, 5] {
                match registry.append_upload(&repository, &upload, Some(wrong), piece(b"X")).await {
                    Err(RegistryError::OutOfOrder { offset: 4 }) => {}
                    other => panic!("a piece at {wrong} of 4: {other:?}"),
                }
            }
        }
        assert_eq!(registry.upload_offset(&repository, &upload).await.unwrap(), 4);
        assert_eq!(registry.append_upload(&repository, &upload, None, piece(b"two ")).await.unwrap(), 8);
        assert_eq!(registry.append_upload(&repository, &upload, Some(8), piece(b"three")).await.unwrap(), 13);
        refused(registry.blob_size(&repository, &digest).await, ErrorCode::BlobUnknown);
        if self.profile.checks_uploads {
            let other = self.repository("elsewhere");
            refused(registry.upload_offset(&other, &upload).await, ErrorCode::BlobUploadUnknown);
            refused(registry.finish_upload(&other, &upload, &digest).await, ErrorCode::BlobUploadUnknown);
        }
        registry.finish_upload(&repository, &upload, &digest).await.unwrap();
        assert_eq!(self.read_blob(&repository, &digest).await.unwrap(), whole);
        self.is_gone(&repository, &upload, &digest).await;

        let upload = registry.open_upload(&repository, algorithm).await.unwrap();
        registry.append_upload(&repository, &upload, None, piece(b"abc")).await.unwrap();
        let wrong = digest_of(algorithm, b"abd");
        refused(registry.finish_upload(&repository, &upload, &wrong).await, ErrorCode::DigestInvalid);
        refused(registry.blob_size(&repository, &wrong).await, ErrorCode::BlobUnknown);
        refused(registry.blob_size(&repository, &digest_of(algorithm, b"abc")).await, ErrorCode::BlobUnknown);
        if self.profile.checks_uploads {
            self.is_gone(&repository, &upload, &wrong).await;
        }

        let upload = registry.open_upload(&repository, algorithm).await.unwrap();
        registry.append_upload(&repository, &upload, None, piece(b"abc")).await.unwrap();
        registry.cancel_upload(&repository, &upload).await.unwrap();
        self.is_gone(&repository, &upload, &digest_of(algorithm, b"abc")).await;

        if self.profile.has_empty_blobs {
            let upload = registry.open_upload(&repository, algorithm).await.unwrap();
            let empty = digest_of(algorithm, b"");
            registry.finish_upload(&repository, &upload, &empty).await.unwrap();
            assert_eq!(registry.blob_size(&repository, &empty).await.unwrap(), 0);
        }

        // What a session was opened for does not bind it: clients push sha512 without saying so first.
        let upload = registry.open_upload(&repository, Algorithm::Sha256).await.unwrap();
        registry.append_upload(&repository, &upload, Some(0), piece(b"late")).await.unwrap();
        let digest = digest_of(algorithm, b"late");
        registry.finish_upload(&repository, &upload, &digest).await.unwrap();
        assert_eq!(self.read_blob(&repository, &digest).await.unwrap(), "late");
    }

    async fn is_gone(&self, repository: &Repository, upload: &UploadId, digest: &Digest) {
        let registry = &self.registry;
        refused(registry.upload_offset(repository, upload).await, ErrorCode::BlobUploadUnknown);
        refused(
            registry.append_upload(repository, upload, None, piece(b"X")).await,
            ErrorCode::BlobUploadUnknown,
        );
        refused(registry.finish_upload(repository, upload, digest).await, ErrorCode::BlobUploadUnknown);
        refused(registry.cancel_upload(repository, upload).await, ErrorCode::BlobUploadUnknown);
    }

    async fn mounts(&self, algorithm: Algorithm) {
        let registry = &self.registry;
        let (from, to) = (self.repository("mount/from"), self.repository("mount/to"));
        let content = format!("mounted by {}", algorithm.name());
        let digest = self.put_blob(&from, algorithm, content.as_bytes()).await;
        let absent = digest_of(algorithm, b"mounted from nowhere");
        assert!(!registry.mount(&to, &absent, Some(&from)).await.unwrap());
        assert!(!registry.mount(&to, &absent, None).await.unwrap());
        assert!(!registry.mount(&to, &digest, Some(&self.repository("nowhere"))).await.unwrap());
        refused(registry.blob_size(&to, &digest).await, ErrorCode::BlobUnknown);
        if !self.profile.has_mount {
            assert!(!registry.mount(&to, &digest, Some(&from)).await.unwrap());
            return;
        }
        for _ in 0..2 {
            assert!(registry.mount(&to, &digest, Some(&from)).await.unwrap());
            assert_eq!(self.read_blob(&to, &digest).await.unwrap(), content);
        }
        assert!(registry.mount(&to, &digest, Some(&to)).await.unwrap(), "into itself");
        let other = self.repository("mount/other");
        if self.profile.has_anonymous_mount {
            assert!(registry.mount(&other, &digest, None).await.unwrap());
            assert_eq!(self.read_blob(&other, &digest).await.unwrap(), content);
        }
        if self.profile.has_delete {
            registry.delete_blob(&from, &digest).await.unwrap();
            refused(registry.blob_size(&from, &digest).await, ErrorCode::BlobUnknown);
            assert_eq!(
                self.read_blob(&to, &digest).await.unwrap(),
                content,
                "the other repository has its own"
            );
        }
        if self.profile.has_delete && self.profile.has_anonymous_mount {
            for repository in [&to, &other] {
                registry.delete_blob(repository, &digest).await.unwrap();
            }
            assert!(!registry.mount(&other, &digest, None).await.unwrap(), "nobody has it any longer");
        }
    }

    /// The kinds of manifests that there are: pushed, found by tag and by digest, the same bytes, and deleted.
    async fn manifests(&self, algorithm: Algorithm) {
        let repository = self.repository(&format!("manifests/{}", algorithm.name()));
        let config = self.put_blob(&repository, algorithm, b"{}").await;
        let layer = self.put_blob(&repository, algorithm, b"layer").await;
        let absent = digest_of(algorithm, b"not in the registry");
        let config = entry("application/vnd.example.config+json", &config, 2);
        let layers = json!([entry("application/vnd.example.layer", &layer, 5)]);
        let image = json!({
            "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": layers,
        });
        let with = |fields: Value| {
            let mut manifest = image.clone();
            for (key, value) in fields.as_object().unwrap() {
                manifest[key] = value.clone();
            }
            manifest
        };
        let child = digest_of(algorithm, image.to_string().as_bytes());
        let child = entry(IMAGE_MANIFEST, &child, image.to_string().len());
        let index = json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [child]});
        let nested = digest_of(algorithm, index.to_string().as_bytes());
        let nested = entry(IMAGE_INDEX, &nested, index.to_string().len());
        let foreign = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip";
        let filling = "x".repeat(usize::try_from(self.profile.manifest_limit).unwrap() - 2000);
        let mut inline = config.clone();
        inline["data"] = "e30=".into();
        let mut elsewhere = entry("application/zip", &absent, 3);
        elsewhere["urls"] = json!(["https://example.com/layer.zip"]);
        let mut sets = vec![
            ("image", IMAGE_MANIFEST, image.clone()),
            ("artifact", IMAGE_MANIFEST, with(json!({"artifactType": "application/vnd.example"}))),
            ("no-layers", IMAGE_MANIFEST, with(json!({"layers": []}))),
            ("large", IMAGE_MANIFEST, with(json!({"annotations": {"filling": filling}}))),
            (
                "unknown-fields",
                IMAGE_MANIFEST,
                with(json!({"own": {"deep": [1, null]}, "annotations": null})),
            ),
            ("data", IMAGE_MANIFEST, with(json!({"config": inline}))),
            ("subject", IMAGE_MANIFEST, with(json!({"subject": child}))),
            ("subject-missing", IMAGE_MANIFEST, with(json!({"subject": entry(IMAGE_MANIFEST, &absent, 3)}))),
            ("index", IMAGE_INDEX, index.clone()),
            ("index-nested", IMAGE_INDEX, json!({"schemaVersion": 2, "manifests": [nested]})),
            ("index-empty", IMAGE_INDEX, json!({"schemaVersion": 2, "manifests": []})),
            (
                "index-artifact",
                IMAGE_INDEX,
                json!({"schemaVersion": 2, "artifactType": "application/vnd.example", "manifests": [child], "subject": nested}),
            ),
        ];
        let mut without_type = image.clone();
        without_type.as_object_mut().unwrap().remove("mediaType");
        sets.push(("no-media-type", IMAGE_MANIFEST, without_type));
        if self.profile.has_foreign_layers {
            let foreign = entry(foreign, &absent, 3);
            sets.push(("foreign", IMAGE_MANIFEST, with(json!({"layers": [foreign]}))));
            sets.push(("urls", IMAGE_MANIFEST, with(json!({"layers": [elsewhere]}))));
        }
        let mut pushed = Vec::new();
        for (name, media_type, manifest) in &sets {
            pushed.push(self.round_trip(&repository, algorithm, name, media_type, manifest).await);
        }
        let names: BTreeSet<String> = sets.iter().map(|set| set.0.to_owned()).collect();
        let mut tags: BTreeSet<_> = self.all_tags(&repository).await.into_iter().collect();
        if !self.profile.has_referrers_list {
            tags.retain(|tag| !tag.starts_with("sha256-"));
        }
        assert_eq!(tags, names);
        if self.profile.has_delete {
            for digest in pushed {
                self.registry.delete_manifest(&repository, &digest).await.unwrap();
                not_found(self.registry.manifest(&repository, &digest.clone().into()).await);
                not_found(self.registry.manifest_head(&repository, &digest.into()).await);
            }
            for (name, ..) in &sets {
                not_found(self.registry.manifest(&repository, &by_tag(name)).await);
            }
        }
    }

    async fn round_trip(
        &self,
        repository: &Repository,
        algorithm: Algorithm,
        name: &str,
        media_type: &str,
        manifest: &Value,
    ) -> Digest {
        let registry = &self.registry;
        // Spelling that no parser would give back.
        let bytes = Bytes::from(format!(" {manifest}\n"));
        let bytes =
            if name.starts_with("index") || name == "image" { manifest.to_string().into() } else { bytes };
        let digest = digest_of(algorithm, &bytes);
        let mut new = NewManifest {
            media_type: media_type.into(),
            bytes: bytes.clone(),
            digest: Some(digest.clone()),
            tags: Vec::new(),
            condition: Condition::None,
        };
        let put =
            registry.put_manifest(repository, &new).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(put.digest, digest, "{name}");
        let subject = manifest["subject"]["digest"].as_str().map(|digest| digest.parse().unwrap());
        assert_eq!(put.subject, subject.filter(|_| self.profile.has_referrers_list), "{name}");
        not_found(registry.manifest_head(repository, &by_tag(name)).await);
        new.tags = vec![tag(name)];
        assert_eq!(registry.put_manifest(repository, &new).await.unwrap().digest, digest, "{name}");
        for reference in [digest.clone().into(), by_tag(name)] {
            let stored = registry.manifest(repository, &reference).await.unwrap();
            assert_eq!(stored.bytes, bytes, "{name}: the bytes are those that were pushed");
            assert_eq!(stored.media_type, media_type, "{name}");
            let head = registry.manifest_head(repository, &reference).await.unwrap();
            assert_eq!((head.media_type.as_str(), head.size), (media_type, bytes.len() as u64), "{name}");
            assert_eq!((&head.digest, &stored.digest), (&digest, &digest), "{name}");
        }
        digest
    }

    async fn bad_manifests(&self) {
        let (registry, repository) = (&self.registry, self.repository("bad"));
        let image = self.image(&repository, "layer").await;
        let attempt = async |media_type: &str, bytes: Bytes, digest: Option<Digest>| {
            let new = NewManifest {
                media_type: media_type.into(),
                bytes,
                digest,
                tags: vec![tag("bad")],
                condition: Condition::None,
            };
            let outcome = registry.put_manifest(&repository, &new).await;
            not_found(registry.manifest_head(&repository, &by_tag("bad")).await);
            outcome
        };
        let whole = image.to_string();
        let other = Some(Digest::of(b"other"));
        refused(attempt(IMAGE_MANIFEST, whole.clone().into(), other).await, ErrorCode::DigestInvalid);
        for text in ["", "{", "[]", "null", r#"{"schemaVersion":2}"#, r#"{"schemaVersion":1,"manifests":[]}"#]
        {
            let outcome = attempt(IMAGE_MANIFEST, text.into(), None).await;
            refused(outcome, ErrorCode::ManifestInvalid);
        }
        refused(attempt(IMAGE_INDEX, whole.into(), None).await, ErrorCode::ManifestInvalid);
        let absent = Digest::of(b"absent");
        let mut missing = image.clone();
        missing["layers"] = json!([entry("application/zip", &absent, 6)]);
        let outcome = attempt(IMAGE_MANIFEST, missing.to_string().into(), None).await;
        refused(outcome, ErrorCode::ManifestBlobUnknown);
        let mut missing = image.clone();
        missing["config"] = entry("application/zip", &absent, 6);
        let outcome = attempt(IMAGE_MANIFEST, missing.to_string().into(), None).await;
        refused(outcome, ErrorCode::ManifestBlobUnknown);
        if self.profile.checks_children {
            let index = json!({"schemaVersion": 2, "manifests": [entry(IMAGE_MANIFEST, &absent, 6)]});
            let outcome = attempt(IMAGE_INDEX, index.to_string().into(), None).await;
            refused(outcome, ErrorCode::ManifestBlobUnknown);
            let limit = usize::try_from(self.profile.manifest_limit).unwrap();
            let mut large = image.clone();
            large["annotations"] = json!({"filling": "x".repeat(limit)});
            assert!(attempt(IMAGE_MANIFEST, large.to_string().into(), None).await.is_err());
        }
    }

    async fn tags(&self) {
        let (registry, repository) = (&self.registry, self.repository("tags"));
        let sorted = ["1.0.0", "1.10.0", "1.2.0", "A", "_", "a", "a-b", "a.b", "a_b", "b"];
        for shuffled in [3, 9, 0, 7, 1, 8, 2, 6, 4, 5] {
            self.push_image(&repository, sorted[shuffled], &[sorted[shuffled]]).await;
        }
        let mut all = self.all_tags(&repository).await;
        if !self.profile.has_pages {
            all.sort();
        }
        assert_eq!(all, sorted);
        if !self.profile.has_pages {
            return;
        }
        let page = async |count: Option<usize>, after: Option<&str>| {
            let request = PageRequest { count, after: after.map(ToOwned::to_owned) };
            let page = registry.tags(&repository, &request).await.unwrap();
            (page.items.iter().map(ToString::to_string).collect::<Vec<_>>(), page.next)
        };
        for count in 1..=sorted.len() + 1 {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let (items, next) = page(Some(count), after.as_deref()).await;
                assert!(items.len() <= count);
                assert!(next.is_none() || items.len() == count, "only the last page is short");
                seen.extend(items);
                match next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(seen, sorted, "by {count}");
        }
        assert_eq!(page(Some(0), None).await, (vec![], None));
        if self.profile.knows_last_page {
            assert_eq!(page(Some(sorted.len()), None).await.1, None, "nothing comes after the last");
        }
        assert_eq!(page(None, Some("a-b")).await.0, ["a.b", "a_b", "b"]);
        assert_eq!(page(None, Some("a-")).await.0, ["a-b", "a.b", "a_b", "b"], "one that is not there");
        assert_eq!(page(None, Some("zzz")).await, (vec![], None));
    }

    async fn catalog(&self) {
        if !self.profile.has_catalog {
            refused(self.registry.repositories(&PageRequest::default()).await, ErrorCode::Unsupported);
            return;
        }
        let mut expected = Vec::new();
        // In the order of the bytes `-` comes before `.` and both before `/`, whatever the folders are.
        for name in ["list/a", "list/a-b", "list/a.b", "list/a/b", "list/a/b/c", "list/b"] {
            let repository = self.repository(name);
            self.push_image(&repository, "layer", &["latest"]).await;
            expected.push(repository.to_string());
        }
        let last = format!("{}/list", self.profile.prefix);
        let (mut seen, mut after) = (Vec::new(), Some(last.clone()));
        while let Some(next) = after {
            let request = PageRequest { count: Some(2), after: Some(next) };
            let page = self.registry.repositories(&request).await.unwrap();
            assert!(page.items.len() <= 2);
            seen.extend(page.items.iter().map(ToString::to_string));
            after = page.next;
        }
        seen.retain(|name| name.starts_with(&format!("{last}/")));
        if !self.profile.sorts_catalog {
            seen.sort();
        }
        assert_eq!(seen, expected);
        if self.profile.has_pages {
            let none = PageRequest { count: Some(0), after: None };
            let page = self.registry.repositories(&none).await.unwrap();
            assert_eq!((page.items.len(), page.next), (0, None));
        }
        let all = self.registry.repositories(&PageRequest::default()).await.unwrap();
        let empty = self.repository("empty");
        assert!(!all.items.contains(&empty), "a repository that holds nothing is not there");
    }

    async fn conditions(&self) {
        let repository = self.repository("conditions");
        let (one, two) = (self.image(&repository, "one").await, self.image(&repository, "two").await);
        let put = async |manifest: &Value, tags: &[&str], condition| {
            self.put(&repository, IMAGE_MANIFEST, manifest, tags, condition).await
        };
        let first = put(&one, &["a"], Condition::AbsentOrSame).await.unwrap();
        assert_eq!(put(&one, &["a"], Condition::AbsentOrSame).await.unwrap(), first);
        for tags in [["a"].as_slice(), &["b", "a"], &["a", "b"]] {
            match put(&two, tags, Condition::AbsentOrSame).await {
                Err(RegistryError::TagExists { tag: taken, existing }) => {
                    assert_eq!((taken, existing), (tag("a"), first.clone()));
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(self.all_tags(&repository).await, ["a"], "refused, so nothing has changed");
        }
        let second = put(&two, &["a", "b"], Condition::None).await.unwrap();
        for name in ["a", "b"] {
            let head = self.registry.manifest_head(&repository, &by_tag(name)).await.unwrap();
            assert_eq!(head.digest, second);
        }
        // The manifest that lost its tag is still there.
        let head = self.registry.manifest_head(&repository, &first.clone().into()).await.unwrap();
        assert_eq!(head.digest, first);
    }

    async fn immutability(&self) {
        if !self.profile.has_immutable_tags {
            return;
        }
        let repository = self.repository("immutable");
        let first = self.push_image(&repository, "one", &["v1.0.0", "latest"]).await;
        assert_eq!(self.push_image(&repository, "one", &["v1.0.0"]).await, first);
        let two = self.image(&repository, "two").await;
        let moved = self.put(&repository, IMAGE_MANIFEST, &two, &["latest", "v1.0.0"], Condition::None).await;
        refused(moved, ErrorCode::Denied);
        for name in ["v1.0.0", "latest"] {
            let head = self.registry.manifest_head(&repository, &by_tag(name)).await.unwrap();
            assert_eq!(head.digest, first, "{name}");
        }
        self.put(&repository, IMAGE_MANIFEST, &two, &["latest"], Condition::None).await.unwrap();
        if self.profile.has_tag_delete {
            self.registry.delete_tag(&repository, &tag("v1.0.0")).await.unwrap();
            self.put(&repository, IMAGE_MANIFEST, &two, &["v1.0.0"], Condition::None).await.unwrap();
        }

        let mut entries = Vec::new();
        for os in ["linux", "darwin"] {
            let digest = self.push_image(&repository, os, &[]).await;
            let mut entry = entry(IMAGE_MANIFEST, &digest, 1);
            entry["size"] = self.image(&repository, os).await.to_string().len().into();
            entry["platform"] = json!({"os": os, "architecture": "amd64"});
            entries.push(entry);
        }
        let put = async |entries: &[Value]| {
            let index = json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": entries});
            self.put(&repository, IMAGE_INDEX, &index, &["v2.0.0"], Condition::None).await
        };
        put(&entries[..1]).await.unwrap();
        put(&entries).await.unwrap();
        refused(put(&entries[1..]).await, ErrorCode::Denied);
    }

    async fn concurrency(&self) {
        let repository = self.repository("concurrent");
        let mut pushes = Vec::new();
        for number in 0..8 {
            let manifest = self.image(&repository, &format!("layer {number}")).await;
            pushes.push((format!("t{number}"), manifest));
        }
        let spawn = |tags: Vec<Tag>, manifest: &Value, condition| {
            let (registry, repository) = (self.registry.clone(), repository.clone());
            let new = NewManifest {
                media_type: IMAGE_MANIFEST.into(),
                bytes: manifest.to_string().into(),
                digest: None,
                tags,
                condition,
            };
            tokio::spawn(async move { registry.put_manifest(&repository, &new).await })
        };
        let running: Vec<_> =
            pushes.iter().map(|(name, manifest)| spawn(vec![tag(name)], manifest, Condition::None)).collect();
        for push in running {
            push.await.unwrap().unwrap();
        }
        let mut tags = self.all_tags(&repository).await;
        tags.sort();
        assert_eq!(tags, pushes.iter().map(|push| push.0.clone()).collect::<Vec<_>>(), "none is lost");
        if !self.profile.is_atomic {
            return;
        }
        for round in 0..5 {
            let name = format!("round{round}");
            let running: Vec<_> = pushes
                .iter()
                .map(|(_, manifest)| spawn(vec![tag(&name)], manifest, Condition::AbsentOrSame))
                .collect();
            let (mut winners, mut losers) = (Vec::new(), 0);
            for push in running {
                match push.await.unwrap() {
                    Ok(put) => winners.push(put.digest),
                    Err(RegistryError::TagExists { .. }) => losers += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!((winners.len(), losers), (1, pushes.len() - 1));
            let head = self.registry.manifest_head(&repository, &by_tag(&name)).await.unwrap();
            assert_eq!(head.digest, winners[0]);
        }
    }

    /// Where a registry has no list of referrers, clients keep one in an index under a tag that is made of the subject's digest. What
    /// arrives with that, as copy tools bring it, is found here like everything else, whether or not this registry has a list.
    async fn referrers_by_tag(&self) {
        for algorithm in self.profile.algorithms {
            let repository = self.repository(&format!("referrers/by-tag/{}", algorithm.name()));
            let subject = digest_of(*algorithm, b"the subject of others");
            let mut expected = Vec::new();
            for note in ["1", "2"] {
                let mut manifest = self.image(&repository, note).await;
                manifest["subject"] = entry(IMAGE_MANIFEST, &subject, 21);
                manifest["artifactType"] = "type/a".into();
                let bytes = manifest.to_string();
                let index = json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [
                    {"mediaType": IMAGE_MANIFEST, "digest": Digest::of(bytes.as_bytes()), "size": bytes.len(), "artifactType": "type/a"},
                ]});
                self.put(&repository, IMAGE_MANIFEST, &manifest, &[], Condition::None).await.unwrap();
                if self.profile.has_referrers_list {
                    let tag = Tag::of_referrers(&subject);
                    self.put(&repository, IMAGE_INDEX, &index, &[tag.as_str()], Condition::None)
                        .await
                        .unwrap();
                }
                expected.push(Digest::of(bytes.as_bytes()));
            }
            expected.sort();
            for artifact_type in [None, Some("type/a")] {
                let page = PageRequest::default();
                let found =
                    self.registry.referrers(&repository, &subject, artifact_type, &page).await.unwrap();
                let mut found: Vec<_> = found.items.into_iter().map(|found| found.digest).collect();
                found.sort();
                assert_eq!(found, expected);
            }
        }
    }

    async fn referrers(&self) {
        let (registry, repository) = (&self.registry, self.repository("referrers"));
        let subject = self.image(&repository, "subject").await;
        let subject_digest = Digest::of(subject.to_string().as_bytes());
        let mut expected = Vec::new();
        // Before the subject itself, as signatures of a copy may come.
        for (artifact_type, note) in
            [(Some("type/a"), "1"), (Some("type/b"), "2"), (None, "3"), (Some("type/a"), "4")]
        {
            let mut manifest = self.image(&repository, "signature").await;
            manifest["subject"] = entry(IMAGE_MANIFEST, &subject_digest, subject.to_string().len());
            manifest["annotations"] = json!({"note": note, "works.example": "<&>\u{e9}"});
            if let Some(artifact_type) = artifact_type {
                manifest["artifactType"] = artifact_type.into();
            }
            let bytes = manifest.to_string();
            self.put(&repository, IMAGE_MANIFEST, &manifest, &[], Condition::None).await.unwrap();
            let mut descriptor = Descriptor::of(IMAGE_MANIFEST, bytes.as_bytes());
            let config_type = "application/vnd.example.config+json";
            descriptor.artifact_type = Some(artifact_type.unwrap_or(config_type).into());
            descriptor.annotations.insert("note".into(), note.into());
            descriptor.annotations.insert("works.example".into(), "<&>\u{e9}".into());
            expected.push(descriptor);
        }
        let index = json!({
            "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [],
            "subject": entry(IMAGE_MANIFEST, &subject_digest, subject.to_string().len()),
        });
        self.put(&repository, IMAGE_INDEX, &index, &["an-index"], Condition::None).await.unwrap();
        expected.push(Descriptor::of(IMAGE_INDEX, index.to_string().as_bytes()));
        self.put(&repository, IMAGE_MANIFEST, &subject, &["subject"], Condition::None).await.unwrap();
        expected.sort_by(|one, other| one.digest.cmp(&other.digest));

        let list = async |artifact_type: Option<&str>, count: Option<usize>| {
            let (mut seen, mut request) = (Vec::new(), PageRequest { count, after: None });
            loop {
                let page =
                    registry.referrers(&repository, &subject_digest, artifact_type, &request).await.unwrap();
                assert!(count.is_none_or(|count| page.items.len() <= count));
                seen.extend(page.items);
                let Some(next) = page.next else { break };
                request.after = Some(next);
            }
            seen.sort_by(|one: &Descriptor, other| one.digest.cmp(&other.digest));
            seen
        };
        assert_eq!(list(None, None).await, expected);
        assert_eq!(list(None, Some(2)).await, expected);
        let of_type = |kind: &str| -> Vec<Descriptor> {
            expected.iter().filter(|entry| entry.artifact_type.as_deref() == Some(kind)).cloned().collect()
        };
        for (kind, count) in
            [("type/a", 2), ("type/b", 1), ("application/vnd.example.config+json", 1), ("x/y", 0)]
        {
            assert_eq!(list(Some(kind), None).await, of_type(kind));
            assert_eq!(of_type(kind).len(), count);
        }
        if self.profile.has_delete {
            registry.delete_manifest(&repository, &expected[0].digest).await.unwrap();
            assert_eq!(list(None, None).await, expected[1..]);
        }
    }

    async fn deletes(&self) {
        let (registry, repository) = (&self.registry, self.repository("deletes"));
        if self.profile.has_tag_delete {
            let digest = self.push_image(&repository, "tagged", &["a", "b"]).await;
            registry.delete_tag(&repository, &tag("a")).await.unwrap();
            not_found(registry.manifest_head(&repository, &by_tag("a")).await);
            refused(registry.delete_tag(&repository, &tag("a")).await, ErrorCode::ManifestUnknown);
            assert_eq!(self.all_tags(&repository).await, ["b"]);
            registry.delete_tag(&repository, &tag("b")).await.unwrap();
            let head = registry.manifest_head(&repository, &digest.clone().into()).await.unwrap();
            assert_eq!(head.digest, digest, "the manifest stays");
        } else {
            self.push_image(&repository, "tagged", &["a"]).await;
            refused(registry.delete_tag(&repository, &tag("a")).await, ErrorCode::Unsupported);
            assert_eq!(self.all_tags(&repository).await, ["a"]);
        }
        if !self.profile.has_delete {
            return;
        }
        let digest = self.push_image(&repository, "deleted", &["c", "d"]).await;
        registry.delete_manifest(&repository, &digest).await.unwrap();
        for reference in [digest.clone().into(), by_tag("c"), by_tag("d")] {
            not_found(registry.manifest_head(&repository, &reference).await);
        }
        not_found(registry.delete_manifest(&repository, &digest).await);
        assert_eq!(self.push_image(&repository, "deleted", &["c"]).await, digest, "it can come again");
        let head = registry.manifest_head(&repository, &by_tag("c")).await.unwrap();
        assert_eq!(head.digest, digest);

        let blob = self.put_blob(&repository, Algorithm::Sha256, b"a blob to delete").await;
        registry.delete_blob(&repository, &blob).await.unwrap();
        not_found(registry.blob_size(&repository, &blob).await);
        not_found(self.read_blob(&repository, &blob).await);
        not_found(registry.delete_blob(&repository, &blob).await);
        self.put_blob(&repository, Algorithm::Sha256, b"a blob to delete").await;
        assert_eq!(self.read_blob(&repository, &blob).await.unwrap(), "a blob to delete");
    }
}

/// A store in a new folder in which tags that begin with `v` are immutable, as [`Profile::full`] expects.
pub(crate) fn directory() -> (tempfile::TempDir, SharedRegistry) {
    let folder = tempfile::tempdir().unwrap();
    let options = DirectoryOptions {
        immutable: Some(Arc::new(|tag: &Tag| tag.as_str().starts_with('v').then(Vec::new))),
        ..DirectoryOptions::default()
    };
    let registry = DirectoryRegistry::open(folder.path(), options).unwrap();
    (folder, Arc::new(registry))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory() {
    let (_folder, registry) = directory();
    check(registry, Profile::full()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_fails_on_demand_when_nothing_is_demanded() {
    let (_folder, directory) = directory();
    let registry = FailingRegistry::new(directory);
    check(registry.clone(), Profile::full()).await;
    assert!(registry.count("put_manifest") > 0);
}

/// Our own `/v2/` over a registry, on a port of its own until the test ends.
pub(crate) fn served(registry: SharedRegistry) -> String {
    let installer = Installer::without_search(Routes::new(Vec::new(), RepositoryTemplate::default()), None);
    let options = ServerOptions { distribution: true, ..ServerOptions::default() };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(server::serve(
        listener,
        Arc::new(App::new(registry, installer, options)),
        std::future::pending::<()>(),
    ));
    address
}

/// The registry at an address, over HTTP, as nobody.
pub(crate) fn remote(address: &str) -> SharedRegistry {
    let options = RemoteOptions::new(address.parse().expect("an address"), CredentialSource::none());
    Arc::new(RemoteRegistry::new(options).expect("a client"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_registry_that_is_ours() {
    let (_folder, registry) = directory();
    check(remote(&served(registry)), Profile::remote()).await;
}

/// The registry at an address, over HTTP, with a token as password.
fn remote_with_token(address: &str, token: &str) -> SharedRegistry {
    let auth = STANDARD.encode(format!("anybody:{token}"));
    let auths = json!({"auths": {address: {"auth": auth}}}).to_string();
    let environment =
        CredentialEnvironment { docker_auth_config: Some(auths), ..CredentialEnvironment::default() };
    let credentials = CredentialSource::from_environment(environment);
    let options = RemoteOptions::new(address.parse().expect("an address"), credentials);
    Arc::new(RemoteRegistry::new(options).expect("a client"))
}

/// Our program as it starts without an option, and with rules in each of the ways in which it asks for tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_remote_registry_that_is_our_program() {
    let ocimod = Ocimod::new();
    let serve = ocimod.serve([]);
    check(remote(&serve.address), Profile::remote()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_registry_that_is_our_program_with_access_rules() {
    for anonymous in ["none", "read"] {
        let ocimod = Ocimod::new();
        let store = format!("dir:{}", ocimod.folder("store").display());
        let site = Site::over(ocimod, &store, &["--anonymous", anonymous]);
        check(remote_with_token(&site.serve.address, &token("admin")), Profile::remote()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_registry_that_is_a_remote_registry_that_is_ours() {
    let (_folder, registry) = directory();
    check(remote(&served(remote(&served(registry)))), Profile::remote()).await;
}

/// A registry behind a cache with a folder, which trusts a list for so long.
pub(crate) fn cached(registry: SharedRegistry, fresh: Duration) -> (tempfile::TempDir, SharedRegistry) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = CacheOptions { fresh, folder: Some(folder.path().to_owned()), ..CacheOptions::default() };
    let cache = Cache::open(options).expect("a cache");
    (folder, Arc::new(cache.over(registry, "here")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_over_a_directory() {
    // Also where nothing is asked twice: every write comes through here, and is seen at once.
    for fresh in [Duration::ZERO, Duration::from_hours(1)] {
        let (_folder, registry) = directory();
        let (_cache, registry) = cached(registry, fresh);
        check(registry, Profile::full()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_over_a_remote_registry_that_is_ours() {
    for fresh in [Duration::ZERO, Duration::from_hours(1)] {
        let (_folder, registry) = directory();
        let (_cache, registry) = cached(remote(&served(registry)), fresh);
        // It has the whole list, so it knows where that ends.
        let profile = Profile { knows_last_page: true, ..Profile::remote() };
        check(registry, profile).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_over_a_remote_registry_that_is_docker_registry() {
    let Some(registry) = DockerRegistry::start() else { return };
    let (_cache, registry) = cached(remote(&registry.address), Duration::from_hours(1));
    check(registry, Profile::docker_registry()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_registry_that_is_docker_registry() {
    let Some(registry) = DockerRegistry::start() else { return };
    check(remote(&registry.address), Profile::docker_registry()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_registry_that_is_distribution_3() {
    let Some(registry) = DockerRegistry::start_v3() else { return };
    check(remote(&registry.address), Profile::distribution_3()).await;
}
