//! Blobs out of the embedded registry, beside servers that do little else than send files.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ocimod::oci::Digest;

use crate::client::{Connection, block_on, get, on_processor};
use crate::modules;
use crate::peers::{docker_registry, nginx};
use crate::processes::{Ocimod, Processors, Server};
use crate::report::{Demand, Measurement, Report, median, number};
use crate::throughput::{self, Side};

const MIB: usize = 1024 * 1024;
/// So large that a request's own cost is nothing.
const LARGE: usize = 100 * MIB;
/// A module, where nearly all is the request's own cost.
const SMALL: usize = 10 * 1024;
/// So often the large one is asked for in a round: that takes some hundredths of a second.
const FETCHES: usize = 5;
const REPOSITORY: &str = "bench/blob";

/// The same files on the same disk, and who sends them.
struct Files {
    folder: tempfile::TempDir,
    large: Digest,
    small: Digest,
}

/// A server that sends a blob, and what it calls it.
struct Sender {
    server: Server,
    path: fn(&Digest) -> String,
}

pub(crate) fn measure(report: &mut Report, rounds: usize) -> Result<()> {
    let files = Files::write()?;
    large(report, rounds, &files)?;
    small(report, rounds, &files)
}

impl Files {
    fn write() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let contents = [LARGE, SMALL].map(|size| (0..size).map(|index| index.to_le_bytes()[1]).collect());
        let [large, small] = contents.each_ref().map(|content: &Vec<u8>| Digest::of(content));
        let files = Self { folder, large, small };
        modules::make_store(&Ocimod::new()?, &files.store())?;
        let blobs = files.blobs();
        fs::create_dir_all(&blobs)?;
        for (content, digest) in contents.iter().zip([&files.large, &files.small]) {
            fs::write(blobs.join(digest.hex()), content)?;
        }
        let layout = files.layout();
        fs::write(layout.join("index.json"), r#"{"schemaVersion":2,"manifests":[]}"#)?;
        fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        modules::let_settle();
        Ok(files)
    }

    fn store(&self) -> std::path::PathBuf {
        self.folder.path().join("store")
    }

    fn layout(&self) -> std::path::PathBuf {
        self.store().join("repos").join(REPOSITORY).join("_oci")
    }

    fn blobs(&self) -> std::path::PathBuf {
        self.layout().join("blobs/sha256")
    }

    fn ours(&self, ocimod: &Ocimod) -> Result<Sender> {
        let server = ocimod.serve(&format!("dir:{}", self.store().display()), &[])?;
        Ok(Sender { server, path: below_v2 })
    }

    fn nginx(&self, processor: Option<usize>) -> Result<Option<Sender>> {
        let server = nginx(&self.blobs(), processor)?;
        Ok(server.map(|server| Sender { server, path: |digest| format!("/{}", digest.hex()) }))
    }

    /// Distribution's registry with the blobs in its storage, which is links and files of known names.
    fn docker_registry(&self, processor: Option<usize>) -> Result<Option<Sender>> {
        let Some((server, storage)) = docker_registry(processor)? else { return Ok(None) };
        let root = storage.join("docker/registry/v2");
        for digest in [&self.large, &self.small] {
            let hex = digest.hex();
            let data = root.join("blobs/sha256").join(&hex[..2]).join(hex);
            fs::create_dir_all(&data)?;
            fs::hard_link(self.blobs().join(hex), data.join("data"))?;
            let link = root.join("repositories").join(REPOSITORY).join("_layers/sha256").join(hex);
            fs::create_dir_all(&link)?;
            fs::write(link.join("link"), digest.as_str())?;
        }
        // Links do change a file's time of change.
        modules::let_settle();
        Ok(Some(Sender { server, path: below_v2 }))
    }
}

fn below_v2(digest: &Digest) -> String {
    format!("/v2/{REPOSITORY}/blobs/{digest}")
}

/// By the clock, on one connection after the other: a client that takes what it gets as fast as it can. Each side has a processor to
/// itself, for whether two threads get one or two of them decides more than all that they do.
fn large(report: &mut Report, rounds: usize, files: &Files) -> Result<()> {
    let processors = Processors::choose();
    let ocimod = Ocimod::on(processors.server)?;
    for (whose, peer, demand) in [
        ("nginx", files.nginx(processors.server)?, Demand::AtLeast(0.9)),
        ("docker-registry", files.docker_registry(processors.server)?, Demand::None),
    ] {
        let name = format!("GET of a blob of {} MiB: throughput to {whose}'s", LARGE / MIB);
        let Some(peer) = peer else {
            report.skip(format!("{name}, which is not installed"));
            continue;
        };
        let ours = files.ours(&ocimod)?;
        let (mut ratios, mut our_rates, mut their_rates) = (Vec::new(), Vec::new(), Vec::new());
        // The first answer of each is not counted: it may be checked or read from disk.
        for round in 0..=rounds * FETCHES {
            let our = ours.fetch(&files.large, processors)?.as_secs_f64();
            let their = peer.fetch(&files.large, processors)?.as_secs_f64();
            if round > 0 {
                ratios.push(their / our);
                our_rates.push(rate(our));
                their_rates.push(rate(their));
            }
        }
        report.add(Measurement {
            name,
            value: median(ratios),
            unit: "",
            demand,
            detail: format!(
                "{} MiB/s; theirs {} MiB/s",
                number(median(our_rates)),
                number(median(their_rates))
            ),
        });
    }
    Ok(())
}

/// MiB a second, where the large blob took so many seconds.
fn rate(seconds: f64) -> f64 {
    f64::from(u32::try_from(LARGE / MIB).unwrap_or(u32::MAX)) / seconds
}

impl Sender {
    fn fetch(&self, digest: &Digest, processors: Processors) -> Result<Duration> {
        let path = (self.path)(digest);
        let fetch = async || {
            let mut connection = Connection::open(&self.server.address).await?;
            let started = Instant::now();
            let (head, length) = connection.send(&get(&self.server.address, &path)).await?;
            ensure!(head.status == 200, "GET {path}: {}", head.status);
            ensure!(length == LARGE as u64, "GET {path}: {length} bytes");
            Ok(started.elapsed())
        };
        on_processor(processors.client, || block_on(fetch()))
    }
}

/// By the processor, with many connections.
fn small(report: &mut Report, rounds: usize, files: &Files) -> Result<()> {
    let processors = Processors::choose();
    let ocimod = Ocimod::on(processors.server)?;
    for (whose, peer, demand) in [
        ("nginx", files.nginx(processors.server)?, Demand::AtLeast(0.7)),
        ("docker-registry", files.docker_registry(processors.server)?, Demand::None),
    ] {
        let name = format!("GET of a blob of {} KiB: throughput of a processor to {whose}'s", SMALL / 1024);
        let Some(peer) = peer else {
            report.skip(format!("{name}, which is not installed"));
            continue;
        };
        let ours = files.ours(&ocimod)?;
        let (our_path, their_path) = ((ours.path)(&files.small), (peer.path)(&files.small));
        let sides = [
            &Side { server: &ours.server, path: &our_path },
            &Side { server: &peer.server, path: &their_path },
        ];
        report.add(throughput::compare(name, "theirs", sides, SMALL as u64, rounds, processors, demand)?);
    }
    Ok(())
}
