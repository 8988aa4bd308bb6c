//! A large blob out of the embedded registry, beside servers that do little else than send files.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ocimod::oci::Digest;

use crate::client::{Connection, block_on, get};
use crate::modules;
use crate::processes::{self, Ocimod, Server};
use crate::report::{Demand, Measurement, Report, median, number};

const MIB: usize = 1024 * 1024;
/// The blob, in MiB: so large that a request's own cost is nothing.
const BLOB: usize = 256;
const REPOSITORY: &str = "bench/blob";

pub(crate) fn measure(report: &mut Report, rounds: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let content: Vec<u8> = (0..BLOB * MIB).map(|index| index.to_le_bytes()[1]).collect();
    let digest = Digest::of(&content);
    let path = format!("/v2/{REPOSITORY}/blobs/{digest}");

    let ocimod = Ocimod::new()?;
    let store = folder.path().join("store");
    modules::make_store(&ocimod, &store)?;
    let layout = store.join("repos").join(REPOSITORY).join("_oci");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let blob = blobs.join(digest.hex());
    fs::write(&blob, &content)?;
    drop(content);
    fs::write(layout.join("index.json"), r#"{"schemaVersion":2,"manifests":[]}"#)?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    modules::let_settle();
    let server = ocimod.serve(&format!("dir:{}", store.display()), &[])?;

    // Every server sends the same file of the same disk.
    match docker_registry(folder.path(), &blob, &digest)? {
        Some(peer) => compare(report, rounds, "docker-registry's", &server, &path, &peer, &path)?,
        None => report.skip("large blobs beside docker-registry, which is not installed"),
    }
    match nginx(folder.path(), &blobs)? {
        Some(peer) => {
            compare(report, rounds, "nginx's", &server, &path, &peer, &format!("/{}", digest.hex()))?;
        }
        None => report.skip("large blobs beside nginx, which is not installed"),
    }
    Ok(())
}

fn compare(
    report: &mut Report,
    rounds: usize,
    whose: &str,
    server: &Server,
    path: &str,
    peer: &Server,
    peer_path: &str,
) -> Result<()> {
    let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    // The first answer of each is not counted: it may be checked or read from disk.
    for round in 0..=rounds {
        let our = fetch(server, path)?.as_secs_f64();
        let their = fetch(peer, peer_path)?.as_secs_f64();
        if round > 0 {
            ratios.push(their / our);
            ours.push(rate(our));
            theirs.push(rate(their));
        }
    }
    report.add(Measurement {
        name: format!("GET of a {BLOB} MiB blob: throughput to {whose}"),
        value: median(ratios),
        unit: "",
        demand: Demand::None,
        detail: format!("{} MiB/s; theirs {} MiB/s", number(median(ours)), number(median(theirs))),
    });
    Ok(())
}

/// MiB a second, where the blob took so many seconds.
fn rate(seconds: f64) -> f64 {
    f64::from(u32::try_from(BLOB).unwrap_or(u32::MAX)) / seconds
}

fn fetch(server: &Server, path: &str) -> Result<Duration> {
    block_on(async {
        let mut connection = Connection::open(&server.address).await?;
        let started = Instant::now();
        let (head, length) = connection.send(&get(&server.address, path)).await?;
        ensure!(head.status == 200, "GET {path}: {}", head.status);
        ensure!(length == (BLOB * MIB) as u64, "GET {path}: {length} bytes");
        Ok(started.elapsed())
    })
}

/// Distribution's registry with the blob in its storage, which is links and files of known names.
fn docker_registry(folder: &Path, blob: &Path, digest: &Digest) -> Result<Option<Server>> {
    let Some(program) = processes::find("docker-registry") else { return Ok(None) };
    let storage = folder.join("docker-registry");
    let root = storage.join("docker/registry/v2");
    let hex = digest.hex();
    let data = root.join("blobs/sha256").join(&hex[..2]).join(hex);
    fs::create_dir_all(&data)?;
    fs::hard_link(blob, data.join("data"))?;
    let link = root.join("repositories").join(REPOSITORY).join("_layers/sha256").join(hex);
    fs::create_dir_all(&link)?;
    fs::write(link.join("link"), digest.as_str())?;
    let address = processes::free_address()?;
    let configuration = folder.join("docker-registry.yml");
    let text = format!(
        "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
         http:\n  addr: {address}\n",
        storage.display()
    );
    fs::write(&configuration, text)?;
    let arguments = ["serve", &configuration.display().to_string()];
    processes::foreign(&program, folder, &arguments, &address).map(Some)
}

/// Nginx with the folder of the blob as its root.
fn nginx(folder: &Path, root: &Path) -> Result<Option<Server>> {
    let Some(program) = processes::find("nginx") else { return Ok(None) };
    let address = processes::free_address()?;
    let work = folder.join("nginx");
    fs::create_dir_all(&work)?;
    let configuration = work.join("nginx.conf");
    let text = format!(
        "daemon off;\nmaster_process off;\npid {work}/pid;\nerror_log {work}/error.log;\nevents {{}}\nhttp {{\n  sendfile on;\n  \
         access_log off;\n  client_body_temp_path {work}/body;\n  proxy_temp_path {work}/proxy;\n  fastcgi_temp_path {work}/fastcgi;\n  \
         uwsgi_temp_path {work}/uwsgi;\n  scgi_temp_path {work}/scgi;\n  server {{\n    listen {address};\n    root {root};\n  }}\n}}\n",
        work = work.display(),
        root = root.display(),
    );
    fs::write(&configuration, text)?;
    let arguments =
        ["-p", &work.display().to_string(), "-c", &configuration.display().to_string()].map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    processes::foreign(&program, folder, &arguments, &address).map(Some)
}
