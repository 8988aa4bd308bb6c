//! Manifests: every kind that there is, pushed by digest and by tag, listed, pulled, found by what they refer to, and deleted
//! (specification, "Pushing Manifests", "Pulling manifests", "Listing Referrers", "Deleting Manifests").

use std::collections::BTreeMap;

use ocimod::oci::{
    Algorithm, DOCKER_MANIFEST, DOCKER_MANIFEST_LIST, Digest, IMAGE_INDEX, IMAGE_MANIFEST, MAX_MANIFEST_SIZE,
};
use serde_json::{Value, json};

use super::client::{Body, Server, bytes, digest};
use crate::support::answer::Answer;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const EXAMPLE: &str = "application/vnd.example.oci.conformance.v1";
const OTHER_EXAMPLE: &str = "application/vnd.example.oci.conformance.v2";

/// A manifest to be pushed.
struct Manifest {
    media_type: String,
    text: String,
    digest: Digest,
    subject: Option<Digest>,
}

/// What is pushed to a repository, in this order.
struct Data {
    name: &'static str,
    algorithm: Algorithm,
    blobs: Vec<(Digest, Vec<u8>)>,
    manifests: Vec<Manifest>,
    /// Tags, and the manifest that each is for.
    tags: BTreeMap<String, usize>,
    /// Tags go into the query of a push by digest.
    tags_as_parameters: bool,
    /// What lists of referrers have of each subject.
    referrers: BTreeMap<String, Vec<Value>>,
}

fn with(mut manifest: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        manifest[name] = value.clone();
    }
    manifest
}

impl Data {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            algorithm: Algorithm::Sha256,
            blobs: Vec::new(),
            manifests: Vec::new(),
            tags: BTreeMap::new(),
            tags_as_parameters: false,
            referrers: BTreeMap::new(),
        }
    }

    fn blob(&mut self, media_type: &str, content: &[u8]) -> Value {
        let digest = digest(self.algorithm, content);
        if self.blobs.iter().all(|(known, _)| *known != digest) {
            self.blobs.push((digest.clone(), content.to_vec()));
        }
        json!({ "mediaType": media_type, "digest": digest, "size": content.len() })
    }

    /// Bytes that are nobody else's.
    fn own_blob(&mut self, media_type: &str, length: usize) -> Value {
        let content = bytes(&format!("{}-{}-{}", self.name, self.algorithm.name(), self.blobs.len()), length);
        self.blob(media_type, &content)
    }

    /// Adds a manifest, and answers its descriptor. The last of all has the tag.
    fn manifest(&mut self, manifest: &Value) -> Value {
        let text = manifest.to_string();
        let media_type = manifest["mediaType"].as_str().unwrap().to_owned();
        let digest = digest(self.algorithm, text.as_bytes());
        let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": text.len() });
        let subject = manifest["subject"]["digest"].as_str();
        if let Some(subject) = subject {
            let mut listed = descriptor.clone();
            // A manifest's own type, else its configuration's; an index has nothing else.
            let kind = [&manifest["artifactType"], &manifest["config"]["mediaType"]];
            if let Some(kind) = kind.into_iter().find(|kind| kind.is_string()) {
                listed["artifactType"] = kind.clone();
            }
            if manifest["annotations"].is_object() {
                listed["annotations"] = manifest["annotations"].clone();
            }
            self.referrers.entry(subject.to_owned()).or_default().push(listed);
        }
        let subject = subject.map(|subject| subject.parse().unwrap());
        self.manifests.push(Manifest { media_type, text, digest, subject });
        descriptor
    }

    /// An image of two layers.
    fn image(&mut self, fields: &Value) -> Value {
        let layers =
            [self.own_blob(&format!("{LAYER}+gzip"), 300), self.own_blob(&format!("{LAYER}+gzip"), 301)];
        let config =
            format!("{{\"architecture\":\"amd64\",\"os\":\"linux\",\"number\":{}}}", self.blobs.len());
        let config = self.blob(CONFIG, config.as_bytes());
        let image = json!({
            "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": layers,
        });
        self.manifest(&with(image, fields))
    }

    /// Something that is no image, in one layer.
    fn artifact(&mut self, kind: &str, fields: &Value) -> Value {
        let config = self.blob(EMPTY, b"{}");
        let layer = self.own_blob(kind, 200);
        let artifact = json!({
            "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "artifactType": kind, "config": config, "layers": [layer],
        });
        self.manifest(&with(artifact, fields))
    }

    fn index(&mut self, children: &[Value], fields: &Value) -> Value {
        let platforms = ["amd64", "arm64"].into_iter().cycle();
        let children = children.iter().zip(platforms).map(|(child, architecture)| {
            let platform = json!({ "os": "linux", "architecture": architecture });
            with(child.clone(), &json!({ "platform": platform }))
        });
        let children: Vec<_> = children.collect();
        let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": children });
        self.manifest(&with(index, fields))
    }

    /// The manifest that was added last gets a tag.
    fn tag(&mut self, tag: &str) {
        self.tags.insert(tag.to_owned(), self.manifests.len() - 1);
    }

    fn repository(&self) -> String {
        format!("manifests/{}", self.name)
    }

    /// Pushes everything, looks at it from every side, and deletes it.
    async fn check(mut self, server: &Server) {
        if self.tags.is_empty() {
            self.tag(self.name);
        }
        let data = &self;
        data.push(server).await;
        data.is_listed(server).await;
        data.is_pullable(server).await;
        data.is_found_by_subject(server, |_| true).await;
        data.goes_at_once(server).await;
    }

    async fn push(&self, server: &Server) {
        let repository = self.repository();
        for (digest, content) in &self.blobs {
            let target = format!("/v2/{repository}/blobs/uploads/?digest={digest}");
            server.send("POST", &target, &[], content).await.expect(201);
        }
        for (position, manifest) in self.manifests.iter().enumerate() {
            let tags: Vec<_> =
                self.tags.iter().filter(|(_, of)| **of == position).map(|(tag, _)| tag).collect();
            let query = if self.tags_as_parameters && !tags.is_empty() {
                let query: Vec<_> = tags.iter().map(|tag| format!("tag={tag}")).collect();
                format!("?{}", query.join("&"))
            } else {
                String::new()
            };
            let by_digest = format!("{}{query}", manifest.digest);
            let pushed = self.put(server, manifest, &by_digest).await;
            let named: Vec<_> = pushed.headers.get_all("oci-tag").iter().collect();
            if self.tags_as_parameters {
                assert_eq!(named, tags);
                continue;
            }
            assert!(named.is_empty(), "{named:?}");
            for tag in tags {
                server.head(&format!("/v2/{repository}/manifests/{tag}")).await.expect(404);
                if self.algorithm == Algorithm::Sha256 {
                    self.put(server, manifest, tag).await;
                } else {
                    self.put(server, manifest, &format!("{by_digest}?tag={tag}")).await;
                }
            }
        }
    }

    async fn put(&self, server: &Server, manifest: &Manifest, reference: &str) -> Answer {
        let target = format!("/v2/{}/manifests/{reference}", self.repository());
        let headers = [("content-type", manifest.media_type.as_str())];
        let pushed = server.send("PUT", &target, &headers, &manifest.text).await.expect(201);
        assert_eq!(pushed.header("docker-content-digest"), manifest.digest.as_str());
        match &manifest.subject {
            Some(subject) => assert_eq!(pushed.header("oci-subject"), subject.as_str()),
            None => pushed.has_no("oci-subject"),
        }
        is_manifest(&server.get(pushed.header("location")).await.expect(200), manifest);
        pushed
    }

    async fn is_listed(&self, server: &Server) {
        let tags: Vec<_> = self.tags.keys().collect();
        let repository = self.repository();
        assert_eq!(server.tags(&repository).await, json!(tags));
        for (position, tag) in tags.iter().enumerate() {
            let rest = server.get(&format!("/v2/{repository}/tags/list?last={tag}")).await.expect(200).json();
            assert_eq!(rest["tags"], json!(tags[position + 1..]));
        }
    }

    async fn is_pullable(&self, server: &Server) {
        let repository = self.repository();
        let by_digest = self.manifests.iter().map(|manifest| (manifest.digest.to_string(), manifest));
        let by_tag = self.tags.iter().map(|(tag, position)| (tag.clone(), &self.manifests[*position]));
        for (reference, manifest) in by_digest.chain(by_tag) {
            let target = format!("/v2/{repository}/manifests/{reference}");
            is_manifest(&server.get(&target).await.expect(200), manifest);
            let head = server.head(&target).await.expect(200);
            is_manifest(&Answer { body: manifest.text.clone().into(), ..head }, manifest);
        }
        for (digest, content) in &self.blobs {
            let target = format!("/v2/{repository}/blobs/{digest}");
            assert!(server.get(&target).await.expect(200).body == content, "other bytes");
            assert_eq!(
                server.head(&target).await.expect(200).header("content-length"),
                content.len().to_string()
            );
        }
    }

    /// Lists of referrers have exactly those manifests that are `there`, with everything that belongs to them.
    async fn is_found_by_subject(&self, server: &Server, is_there: impl Fn(&Value) -> bool) {
        for (subject, referrers) in &self.referrers {
            let mut expected: Vec<_> = referrers.iter().filter(|referrer| is_there(referrer)).collect();
            expected.sort_by_key(|referrer| referrer["digest"].as_str().unwrap());
            let target = format!("/v2/{}/referrers/{subject}", self.repository());
            let all = server.get(&target).await.expect(200);
            assert_eq!(all.header("content-type"), IMAGE_INDEX);
            all.has_no("oci-filters-applied");
            let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": expected });
            assert_eq!(all.json(), index);
            let kinds = referrers.iter().filter_map(|referrer| referrer["artifactType"].as_str());
            for kind in kinds.chain(["application/vnd.example.nobody+json", ""]) {
                let query = url::form_urlencoded::byte_serialize(kind.as_bytes()).collect::<String>();
                let some = server.get(&format!("{target}?artifactType={query}")).await.expect(200);
                assert_eq!(some.header("oci-filters-applied"), "artifactType");
                let expected: Vec<_> =
                    expected.iter().filter(|referrer| referrer["artifactType"] == kind).collect();
                assert_eq!(some.json()["manifests"], json!(expected), "{kind}");
            }
        }
    }

    async fn goes_at_once(&self, server: &Server) {
        let repository = self.repository();
        for tag in self.tags.keys() {
            let target = format!("/v2/{repository}/manifests/{tag}");
            server.delete(&target).await.expect(202);
            server.head(&target).await.expect(404);
            server.get(&target).await.fails(404, "MANIFEST_UNKNOWN");
            server.delete(&target).await.fails(404, "MANIFEST_UNKNOWN");
        }
        assert_eq!(server.tags(&repository).await, json!([]), "the repository is there, and has no tags");
        // What names others goes first.
        for position in (0..self.manifests.len()).rev() {
            let target = format!("/v2/{repository}/manifests/{}", self.manifests[position].digest);
            server.head(&target).await.expect(200);
            server.delete(&target).await.expect(202);
            server.head(&target).await.expect(404);
            server.get(&target).await.fails(404, "MANIFEST_UNKNOWN");
            server.delete(&target).await.fails(404, "MANIFEST_UNKNOWN");
            let left: Vec<_> =
                self.manifests[..position].iter().map(|manifest| manifest.digest.as_str()).collect();
            let is_left = |listed: &Value| left.contains(&listed["digest"].as_str().unwrap());
            self.is_found_by_subject(server, is_left).await;
        }
        for (digest, _) in &self.blobs {
            let target = format!("/v2/{repository}/blobs/{digest}");
            server.delete(&target).await.expect(202);
            server.head(&target).await.expect(404);
        }
    }
}

/// What a manifest is answered as.
#[track_caller]
fn is_manifest(answer: &Answer, manifest: &Manifest) {
    assert!(answer.body == manifest.text, "other bytes");
    assert_eq!(answer.header("content-type"), manifest.media_type);
    assert_eq!(answer.header("content-length"), manifest.text.len().to_string());
    assert_eq!(answer.header("docker-content-digest"), manifest.digest.as_str());
    assert_eq!(answer.header("etag"), format!("\"{}\"", manifest.digest));
    answer.has_no("content-encoding");
}

pub(super) async fn an_image(server: &Server) {
    let mut data = Data::new("image");
    data.image(&json!({}));
    data.check(server).await;
}

pub(super) async fn an_image_without_compression(server: &Server) {
    let mut data = Data::new("image-uncompressed");
    let layer = data.own_blob(LAYER, 10_240);
    data.image(&json!({ "layers": [layer] }));
    data.check(server).await;
}

pub(super) async fn a_large_manifest(server: &Server) {
    let mut data = Data::new("large-manifest");
    let annotations: BTreeMap<_, _> =
        (0..390).map(|number| (format!("large-annotation-{number}"), "A".repeat(10_000))).collect();
    data.image(&json!({ "annotations": annotations }));
    data.check(server).await;

    // To the last byte that is allowed, and not one more; whether or not the length is told.
    let repository = "manifests/largest";
    let config = server.push_blob(repository, Algorithm::Sha256, b"{}").await;
    let image = json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [] });
    let limit = usize::try_from(MAX_MANIFEST_SIZE).unwrap();
    let padded = |length: usize| format!("{image}{}", " ".repeat(length - image.to_string().len()));
    let headers = [("content-type", IMAGE_MANIFEST)];
    let target = format!("/v2/{repository}/manifests/latest");
    for body in [Body::from(&padded(limit + 1)), Body::Streamed(vec![padded(limit + 1).into()])] {
        server.send("PUT", &target, &headers, body).await.fails(413, "SIZE_INVALID");
        server.head(&target).await.expect(404);
    }
    server.send("PUT", &target, &headers, &padded(limit)).await.expect(201);
    assert_eq!(server.head(&target).await.expect(200).header("content-length"), limit.to_string());
    server.delete(&target).await.expect(202);
}

pub(super) async fn an_index(server: &Server) {
    let mut data = Data::new("index");
    let children = [data.image(&json!({})), data.image(&json!({}))];
    data.index(&children, &json!({}));
    data.check(server).await;
}

pub(super) async fn an_index_of_indexes(server: &Server) {
    let mut data = Data::new("index-of-indexes");
    let mut children = Vec::new();
    for _ in 0..2 {
        let images = [data.image(&json!({})), data.image(&json!({}))];
        children.push(data.index(&images, &json!({})));
    }
    data.manifest(&json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": children }));
    data.check(server).await;
}

pub(super) async fn an_empty_index(server: &Server) {
    let mut data = Data::new("empty-index");
    data.index(&[], &json!({}));
    data.check(server).await;
}

pub(super) async fn an_artifact(server: &Server) {
    let mut data = Data::new("artifact");
    data.artifact(EXAMPLE, &json!({}));
    data.check(server).await;
}

pub(super) async fn an_index_of_artifacts(server: &Server) {
    let mut data = Data::new("artifact-index");
    let children = [data.artifact(EXAMPLE, &json!({})), data.artifact(EXAMPLE, &json!({}))];
    data.index(&children, &json!({ "artifactType": EXAMPLE }));
    data.check(server).await;
}

pub(super) async fn an_artifact_without_layers(server: &Server) {
    let mut data = Data::new("artifact-without-layers");
    let empty = data.blob(EMPTY, b"{}");
    data.artifact(EXAMPLE, &json!({ "layers": [empty] }));
    data.check(server).await;
}

pub(super) async fn artifacts_with_a_subject(server: &Server) {
    let mut data = Data::new("artifacts-with-subject");
    let subject = data.image(&json!({}));
    data.tag("image");
    // Its type is that of its configuration.
    data.image(&json!({ "subject": subject }));
    for (kind, tag) in [(EXAMPLE, "tagged-artifact1"), (OTHER_EXAMPLE, "tagged-artifact2")] {
        let annotations = json!({ "org.opencontainers.conformance": "hello <&> \u{e9}", "tag": tag });
        data.artifact(kind, &json!({ "subject": subject, "annotations": annotations }));
        data.tag(tag);
    }
    data.artifact(EXAMPLE, &json!({ "subject": subject }));
    data.check(server).await;
}

pub(super) async fn an_index_with_a_subject(server: &Server) {
    let mut data = Data::new("index-with-subject");
    let images = [data.image(&json!({})), data.image(&json!({}))];
    let subject = data.index(&images, &json!({}));
    data.tag("index");
    let annotations = json!({ "org.opencontainers.conformance": "hello" });
    let children = [
        data.artifact(EXAMPLE, &json!({ "subject": subject })),
        data.artifact(EXAMPLE, &json!({ "subject": subject })),
    ];
    data.index(
        &children,
        &json!({ "subject": subject, "artifactType": EXAMPLE, "annotations": annotations }),
    );
    data.tag("tagged-artifact");
    // An index without a type has none in a list of referrers either.
    data.index(&children, &json!({ "subject": subject }));
    data.check(server).await;
}

pub(super) async fn a_subject_that_is_missing(server: &Server) {
    let mut data = Data::new("missing-subject");
    let missing = Digest::of(b"missing content");
    let subject = json!({ "mediaType": IMAGE_MANIFEST, "digest": missing, "size": 123 });
    data.artifact(EXAMPLE, &json!({ "subject": subject, "annotations": { "a": "b" } }));
    server.head(&format!("/v2/{}/manifests/{missing}", data.repository())).await.expect(404);
    data.check(server).await;
}

pub(super) async fn descriptors_with_data(server: &Server) {
    let mut data = Data::new("data-field");
    let config = with(data.blob(EMPTY, b"{}"), &json!({ "data": "e30=" }));
    data.image(&json!({ "config": config }));
    data.check(server).await;
}

pub(super) async fn layers_that_are_kept_elsewhere(server: &Server) {
    let mut data = Data::new("non-distributable-layers");
    let elsewhere = |name: &str, media_type: &str, urls: bool| {
        let digest = Digest::of(name.as_bytes());
        let layer = json!({ "mediaType": media_type, "digest": digest, "size": 123_456 });
        let urls =
            if urls { json!({ "urls": [format!("https://store.example.com/{digest}")] }) } else { json!({}) };
        with(layer, &urls)
    };
    let layers = [
        elsewhere("a", "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", true),
        elsewhere("b", "application/vnd.oci.image.layer.nondistributable.v1.tar", true),
        elsewhere("c", "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", false),
        elsewhere("d", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", false),
        elsewhere("e", "application/zip", true),
        data.own_blob(LAYER, 100),
    ];
    data.image(&json!({ "layers": layers }));
    data.check(server).await;
}

pub(super) async fn fields_that_nobody_knows(server: &Server) {
    let mut data = Data::new("custom-fields");
    let own = json!({ "org.example.own": { "deep": [1, null, "<&>\u{e9}"] } });
    let children = [data.image(&own), data.image(&own)];
    data.index(&children, &own);
    data.check(server).await;
}

pub(super) async fn an_image_without_layers(server: &Server) {
    let mut data = Data::new("no-layers");
    data.image(&json!({ "layers": [] }));
    data.check(server).await;
}

pub(super) async fn digests_by_sha512(server: &Server) {
    let mut data = Data { algorithm: Algorithm::Sha512, ..Data::new("sha512") };
    let children = [data.image(&json!({})), data.image(&json!({}))];
    let subject = data.index(&children, &json!({}));
    data.tag("sha512");
    data.artifact(EXAMPLE, &json!({ "subject": subject }));
    data.check(server).await;
}

fn tagged_by_parameters(name: &'static str, algorithm: Algorithm) -> Data {
    let mut data = Data { algorithm, tags_as_parameters: true, ..Data::new(name) };
    let children = [data.image(&json!({})), data.image(&json!({}))];
    data.index(&children, &json!({}));
    for position in 0..3 {
        data.tags.insert(format!("{name}-{position}"), position);
    }
    data.tag(name);
    data
}

pub(super) async fn tags_as_parameters(server: &Server) {
    tagged_by_parameters("tag-param-sha256", Algorithm::Sha256).check(server).await;

    let repository = "manifests/many-tags";
    let config = server.push_blob(repository, Algorithm::Sha256, b"{}").await;
    let image = json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [] });
    let digest = Digest::of(image.to_string().as_bytes());
    let query = |count: usize| {
        let tags: Vec<_> = (0..count).map(|number| format!("tag=t{number:03}")).collect();
        format!("{digest}?{}", tags.join("&"))
    };
    // The specification wants ten, and allows to refuse more.
    server.put_manifest(repository, &query(65), &image).await.fails(414, "MANIFEST_INVALID");
    server
        .put_manifest(repository, &format!("{digest}?tag=a&tag=-"), &image)
        .await
        .fails(400, "MANIFEST_INVALID");
    server.head(&format!("/v2/{repository}/manifests/{digest}")).await.expect(404);
    let pushed = server.put_manifest(repository, &query(64), &image).await.expect(201);
    assert_eq!(pushed.headers.get_all("oci-tag").iter().count(), 64);
    assert_eq!(server.tags(repository).await.as_array().map(Vec::len), Some(64));
}

pub(super) async fn tags_as_parameters_by_sha512(server: &Server) {
    tagged_by_parameters("tag-param-sha512", Algorithm::Sha512).check(server).await;
}

pub(super) async fn docker_s_types(server: &Server) {
    let mut data = Data::new("docker");
    let child = data.image(&json!({ "mediaType": DOCKER_MANIFEST }));
    data.index(&[child], &json!({ "mediaType": DOCKER_MANIFEST_LIST }));
    data.check(server).await;
}

pub(super) async fn a_manifest_with_another_digest(server: &Server) {
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        let repository = format!("manifests/another-digest/{}", algorithm.name());
        let config = server.push_blob(&repository, algorithm, b"{}").await;
        let image =
            json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [] });
        let of_another = digest(algorithm, format!("{image}  ").as_bytes());
        let own = digest(algorithm, image.to_string().as_bytes());
        for reference in [of_another.to_string(), format!("{of_another}?tag=a")] {
            let refused = server.put_manifest(&repository, &reference, &image).await;
            let refused = refused.fails(400, "DIGEST_INVALID");
            assert_eq!(
                refused.json()["errors"][0]["detail"],
                json!({ "expected": of_another, "actual": own })
            );
        }
        for reference in [of_another.as_str(), own.as_str(), "a"] {
            server.head(&format!("/v2/{repository}/manifests/{reference}")).await.expect(404);
        }
    }
}

pub(super) async fn a_manifest_with_a_digest_that_is_none(server: &Server) {
    let repository = "manifests/no-digest";
    let config = server.push_blob(repository, Algorithm::Sha256, b"{}").await;
    let image = json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [] });
    for none in ["sha256:baddigeststring", "sha256:", "md5:d41d8cd98f00b204e9800998ecf8427e", ":"] {
        let target = format!("/v2/{repository}/manifests/{none}");
        server.put_manifest(repository, none, &image).await.fails(400, "DIGEST_INVALID");
        server.get(&target).await.fails(400, "DIGEST_INVALID");
        server.head(&target).await.expect(400);
        server.delete(&target).await.fails(400, "DIGEST_INVALID");
    }
}

pub(super) async fn a_missing_manifest(server: &Server) {
    let repository = "manifests/missing";
    let missing = Digest::of(b"missing");
    for is_there in [false, true] {
        if is_there {
            let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [] });
            server.put_manifest(repository, "another", &index).await.expect(201);
        }
        let code = if is_there { "MANIFEST_UNKNOWN" } else { "NAME_UNKNOWN" };
        for reference in ["missing", missing.as_str()] {
            let target = format!("/v2/{repository}/manifests/{reference}");
            server.head(&target).await.expect(404);
            for answer in [server.get(&target).await, server.delete(&target).await] {
                if server.is_relay {
                    answer.expect(404);
                } else {
                    answer.fails(404, code);
                }
            }
        }
        // What can be no tag is not there either.
        for reference in ["v1.0.0+build", ".hidden", "-dash", &"a".repeat(129)] {
            let target = format!("/v2/{repository}/manifests/{reference}");
            server.get(&target).await.fails(404, "MANIFEST_UNKNOWN");
            server.delete(&target).await.fails(404, "MANIFEST_UNKNOWN");
        }
    }
}

/// The specification lets a registry want everything that a manifest refers to, but for its subject. This one does, so that what it
/// has is whole: the check is made under the lock that a collection of garbage takes too.
pub(super) async fn a_manifest_whose_children_are_missing(server: &Server) {
    let repository = "manifests/sparse";
    let config = server.push_blob(repository, Algorithm::Sha256, b"{}").await;
    let missing = Digest::of(b"missing");
    let absent = json!({ "mediaType": LAYER, "digest": missing, "size": 7 });
    let image = json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [] });
    let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [absent] });
    for manifest in [
        with(image.clone(), &json!({ "layers": [absent] })),
        with(image.clone(), &json!({ "config": absent })),
        index,
    ] {
        let digest = Digest::of(manifest.to_string().as_bytes());
        for reference in ["sparse", digest.as_str()] {
            let refused = server.put_manifest(repository, reference, &manifest).await;
            let refused = refused.fails(400, "MANIFEST_BLOB_UNKNOWN");
            if !server.is_relay {
                assert_eq!(refused.json()["errors"][0]["detail"], json!({ "digest": missing }));
            }
            server.head(&format!("/v2/{repository}/manifests/{reference}")).await.expect(404);
        }
    }
    // What another repository has is not here.
    server.push_blob("manifests/sparse-not", Algorithm::Sha256, b"missing").await;
    let refused =
        server.put_manifest(repository, "sparse", &with(image.clone(), &json!({ "layers": [absent] }))).await;
    refused.fails(400, "MANIFEST_BLOB_UNKNOWN");
    // Nor is it of another length than it says.
    server.push_blob(repository, Algorithm::Sha256, b"missing").await;
    let longer = with(absent.clone(), &json!({ "size": 8 }));
    let refused =
        server.put_manifest(repository, "sparse", &with(image.clone(), &json!({ "layers": [longer] }))).await;
    if server.is_relay {
        refused.expect(502);
    } else {
        refused.fails(400, "MANIFEST_INVALID");
    }
    server.put_manifest(repository, "sparse", &with(image, &json!({ "layers": [absent] }))).await.expect(201);
}

pub(super) async fn whatever_the_client_accepts(server: &Server) {
    let repository = "manifests/accept";
    let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [] });
    // The type is kept without what may stand behind it.
    let headers = [("content-type", &*format!("{IMAGE_INDEX}; charset=utf-8"))];
    let target = format!("/v2/{repository}/manifests/latest");
    // Spelled as no parser would give it back.
    let text = format!(" {index:#}\n\n");
    server.send("PUT", &target, &headers, &text).await.expect(201);
    assert_eq!(server.get(&target).await.expect(200).body, text);
    for accept in [IMAGE_INDEX, IMAGE_MANIFEST, "text/html", "*/*", "application/json;q=0.1, nonsense", ""] {
        for method in ["GET", "HEAD"] {
            let answer = server.send(method, &target, &[("accept", accept)], "").await.expect(200);
            assert_eq!(answer.header("content-type"), IMAGE_INDEX, "{accept}");
        }
    }
    let encoded = server.send("GET", &target, &[("accept-encoding", "gzip, br, zstd")], "").await.expect(200);
    encoded.has_no("content-encoding");
}

pub(super) async fn what_the_client_has_already(server: &Server) {
    let repository = "manifests/known";
    let blob = server.push_blob(repository, Algorithm::Sha256, b"known").await;
    let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [] });
    let pushed = server.put_manifest(repository, "latest", &index).await.expect(201);
    let (tag, by_digest) = (format!("/v2/{repository}/manifests/latest"), pushed.header("location"));
    let blob = format!("/v2/{repository}/blobs/{}", blob["digest"].as_str().unwrap());
    // A tag may move at any time, and what a digest names never changes.
    for (target, caching) in [(tag.as_str(), "no-cache"), (by_digest, "immutable"), (&blob, "immutable")] {
        let etag = server.head(target).await.expect(200).header("etag").to_owned();
        for method in ["GET", "HEAD"] {
            let known = [etag.clone(), format!("W/{etag}"), format!("\"another\", {etag}"), "*".to_owned()];
            for known in &known {
                let answer = server.send(method, target, &[("if-none-match", known)], "").await.expect(304);
                assert!(answer.body.is_empty());
                assert_eq!(answer.header("etag"), etag);
            }
            let answer =
                server.send(method, target, &[("if-none-match", "\"another\"")], "").await.expect(200);
            assert!(answer.header("cache-control").contains(caching), "{:?}", answer.headers);
        }
    }
    // What is not here is not known here, whoever has it.
    let missing = format!("/v2/{repository}/manifests/missing");
    server.send("GET", &missing, &[("if-none-match", "*")], "").await.fails(404, "MANIFEST_UNKNOWN");
    let elsewhere = blob.replace(repository, "manifests/known-not");
    server.send("GET", &elsewhere, &[("if-none-match", "*")], "").await.fails(404, "BLOB_UNKNOWN");
}

pub(super) async fn tags_go_alone_and_manifests_with_their_tags(server: &Server) {
    let repository = "manifests/deleted";
    let config = server.push_blob(repository, Algorithm::Sha256, b"{}").await;
    let image = |number: u32| {
        let annotations = json!({ "number": number.to_string() });
        json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [], "annotations": annotations })
    };
    let target = |reference: &str| format!("/v2/{repository}/manifests/{reference}");
    for tag in ["a", "b", "c"] {
        server.put_manifest(repository, tag, &image(1)).await.expect(201);
    }
    server.put_manifest(repository, "d", &image(2)).await.expect(201);
    let one = Digest::of(image(1).to_string().as_bytes());

    server.delete(&target("a")).await.expect(202);
    assert_eq!(server.tags(repository).await, json!(["b", "c", "d"]));
    server.head(&target(one.as_str())).await.expect(200);
    // A manifest is no blob.
    server.delete(&format!("/v2/{repository}/blobs/{one}")).await.fails(404, "BLOB_UNKNOWN");
    server.head(&target(one.as_str())).await.expect(200);

    server.delete(&target(one.as_str())).await.expect(202);
    for reference in ["b", "c", one.as_str()] {
        server.head(&target(reference)).await.expect(404);
    }
    assert_eq!(server.tags(repository).await, json!(["d"]));
    server.put_manifest(repository, "b", &image(1)).await.expect(201);
    assert_eq!(server.tags(repository).await, json!(["b", "d"]), "it came back under one of its tags");
    assert_eq!(server.head(&target("b")).await.expect(200).header("docker-content-digest"), one.as_str());
}

pub(super) async fn many_at_once(server: &Server) {
    let repository = "manifests/many";
    let pushes = (0..16).map(|number| {
        let server = server.clone();
        tokio::spawn(async move {
            let layer = server.push_blob(repository, Algorithm::Sha256, &bytes(&format!("many {number}"), 3000)).await;
            let config = server.push_blob(repository, Algorithm::Sha256, b"{}").await;
            let image =
                json!({ "schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": config, "layers": [layer] });
            server.put_manifest(repository, &format!("t{number:02}"), &image).await.expect(201);
            server.put_manifest(repository, "latest", &image).await.expect(201);
            Digest::of(image.to_string().as_bytes())
        })
    });
    let mut digests = Vec::new();
    for push in pushes.collect::<Vec<_>>() {
        digests.push(push.await.unwrap());
    }
    let mut expected: Vec<_> = (0..16).map(|number| format!("t{number:02}")).collect();
    expected.insert(0, "latest".to_owned());
    assert_eq!(server.tags(repository).await, json!(expected), "none is lost");
    for (number, digest) in digests.iter().enumerate() {
        let head = server.head(&format!("/v2/{repository}/manifests/t{number:02}")).await.expect(200);
        assert_eq!(head.header("docker-content-digest"), digest.as_str());
    }
    let last = server.get(&format!("/v2/{repository}/manifests/latest")).await.expect(200);
    assert!(digests.iter().any(|digest| digest.as_str() == last.header("docker-content-digest")));
}
