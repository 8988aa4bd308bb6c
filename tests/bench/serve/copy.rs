//! `ocimod copy` of a module with many versions beside `crane copy -a`, between the same registries; and its memory with a large one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use ocimod::archive::ModuleKind;
use ocimod::artifact::{Content, ModuleArtifact, ModuleFileLayer, media_types};
use ocimod::oci::{Digest, IMAGE_MANIFEST, Repository};
use ocimod::registry::credentials::CredentialSource;
use ocimod::registry::remote::{RemoteOptions, RemoteRegistry};
use ocimod::registry::{BytesSource, Condition, NewManifest, Registry};

use crate::client::block_on;
use crate::modules;
use crate::peers::docker_registry;
use crate::processes::{self, Ocimod, Server};
use crate::report::{Demand, Measurement, Report, median, number};

const REPOSITORY: &str = "bench/many/null";
const VERSIONS: usize = 500;
/// A small module's zip, in bytes. Random, so that no two are one blob.
const ZIP: usize = 16 * 1024;
/// Our time to crane's.
const LIMIT: f64 = 1.2;

const MIB: usize = 1024 * 1024;
/// The zip of a large module, in MiB.
const LARGE: usize = 499;
/// Peak memory of a copy, in MiB.
const MEMORY: f64 = 64.0;

pub(crate) fn measure(report: &mut Report, rounds: usize) -> Result<()> {
    if processes::find("docker-registry").is_none() {
        report.skip("copies between docker-registries, which is not installed");
        return Ok(());
    }
    let source = registry()?;
    block_on(fill(&source.address, VERSIONS, ZIP))?;
    match processes::find("crane") {
        Some(crane) => compare(report, rounds, &crane, &source)?,
        None => report.skip("`ocimod copy` beside `crane copy -a`, which is not installed"),
    }
    drop(source);
    memory(report)
}

/// Both copy everything into an empty registry of their own, in turns; and once more, when everything is there.
fn compare(report: &mut Report, rounds: usize, crane: &Path, source: &Server) -> Result<()> {
    let ocimod = Ocimod::new()?;
    let home = tempfile::tempdir()?;
    let from = format!("{}/{REPOSITORY}", source.address);
    let ours =
        |to: &Server| ocimod.run(&["copy", REPOSITORY, "--from", &source.address, "--to", &to.address]);
    let theirs = |to: &Server| run_crane(crane, home.path(), &from, &format!("{}/{REPOSITORY}", to.address));
    let (mut first, mut second, mut details) = (Vec::new(), Vec::new(), Vec::new());
    // The first round of each is not counted: the source may be read from disk.
    for round in 0..=rounds {
        let (our_target, their_target) = (registry()?, registry()?);
        // Whoever is second may find the source warmer, or the machine busier with what the first one left to be written.
        let (our, their) = if round % 2 == 0 {
            let our = timed(|| ours(&our_target))?;
            (our, timed(|| theirs(&their_target))?)
        } else {
            let their = timed(|| theirs(&their_target))?;
            (timed(|| ours(&our_target))?, their)
        };
        let (our_again, their_again) = (timed(|| ours(&our_target))?, timed(|| theirs(&their_target))?);
        if round > 0 {
            first.push(our / their);
            second.push(our_again / their_again);
            details.push((our, their, our_again, their_again));
        }
    }
    let middle = |pick: fn(&(f64, f64, f64, f64)) -> f64| number(median(details.iter().map(pick).collect()));
    report.add(Measurement {
        name: format!("copy of {VERSIONS} versions: time to that of `crane copy -a`"),
        value: median(first),
        unit: "",
        demand: Demand::AtMost(LIMIT),
        detail: format!("{} s; theirs {} s", middle(|it| it.0), middle(|it| it.1)),
    });
    report.add(Measurement {
        name: "the same once more, with all of it there".to_owned(),
        value: median(second),
        unit: "",
        demand: Demand::None,
        detail: format!("{} s; theirs {} s", middle(|it| it.2), middle(|it| it.3)),
    });
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64())
}

fn run_crane(crane: &Path, home: &Path, from: &str, to: &str) -> Result<()> {
    let mut command = Command::new(crane);
    command.args(["copy", "--insecure", "--all-tags", from, to]).env_clear().env("HOME", home);
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "crane: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// An empty registry.
fn registry() -> Result<Server> {
    let (server, _) = docker_registry(None)?.context("docker-registry")?;
    Ok(server)
}

/// Pushes versions whose zips are nobody else's.
async fn fill(address: &str, versions: usize, size: usize) -> Result<()> {
    let options = RemoteOptions::new(address.parse()?, CredentialSource::none());
    let registry = Arc::new(RemoteRegistry::new(options)?);
    // All of them have it. Docker-registry 2.8 loses sight of a blob for a moment while the same one comes again.
    let config = Bytes::from_static(media_types::EMPTY_CONFIG);
    registry.put_blob(&REPOSITORY.parse()?, &Digest::of(&config), &BytesSource(config)).await?;
    let tags = modules::tags(versions);
    stream::iter(tags)
        .map(|tag| push(Arc::clone(&registry), tag, size))
        .buffer_unordered(8)
        .try_collect()
        .await
}

async fn push(registry: Arc<RemoteRegistry>, tag: String, size: usize) -> Result<()> {
    let repository: Repository = REPOSITORY.parse()?;
    let mut zip = vec![0; size];
    getrandom::fill(&mut zip).map_err(|error| anyhow::anyhow!("{error}"))?;
    let zip = Bytes::from(zip);
    let module_file = Bytes::from(format!("module: \"modules.internal/{REPOSITORY}@v1\"\n// {tag}\n"));
    let artifact = ModuleArtifact {
        kind: ModuleKind::OpenTofu,
        archive: Content { digest: Digest::of(&zip), size: zip.len() as u64 },
        module_file: Some(ModuleFileLayer::of(module_file.clone())),
        dependencies: Vec::new(),
        annotations: [(media_types::VERSION.to_owned(), tag.trim_start_matches('v').to_owned())].into(),
    };
    for blob in [zip, module_file] {
        registry.put_blob(&repository, &Digest::of(&blob), &BytesSource(blob)).await?;
    }
    let manifest = NewManifest {
        media_type: IMAGE_MANIFEST.to_owned(),
        bytes: artifact.to_manifest(),
        digest: None,
        tags: vec![tag.parse()?],
        condition: Condition::None,
    };
    registry.put_manifest(&repository, &manifest).await?;
    Ok(())
}

/// The most memory that a copy of a large module has, between registries and into a file.
fn memory(report: &mut Report) -> Result<()> {
    let (source, target, ocimod) = (registry()?, registry()?, Ocimod::new()?);
    let folder = tempfile::tempdir()?;
    block_on(fill(&source.address, 1, LARGE * MIB))?;
    let file = format!("layout:{}", folder.path().join("large.tar").display());
    for (to, name) in [(target.address.as_str(), "another registry"), (&file, "a file")] {
        report.add(Measurement {
            name: format!("peak memory, copy of a {LARGE} MiB module to {name}"),
            value: ocimod.peak_of(&["copy", REPOSITORY, "--from", &source.address, "--to", to])?,
            unit: "MiB",
            demand: Demand::AtMost(MEMORY),
            detail: String::new(),
        });
    }
    Ok(())
}
