//! Peak memory while large bodies pass: the kernel's own mark (`VmHWM`) of a process that did nothing else.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::client::{Connection, Head, block_on, get, path_of};
use crate::processes::{Ocimod, Server};
use crate::report::{Demand, Measurement, Report, number};

const MIB: usize = 1024 * 1024;

/// Random bytes in the module, in MiB. They do not become smaller, and a zip of more than 500 MiB is no module's.
const MODULE: usize = 499;
/// How many clients fetch it at once.
const CLIENTS: usize = 4;
/// Random bytes in the zip of a provider, in MiB.
const PROVIDER: usize = 1024;
/// What goes up and down through `/v2/`, in MiB.
const BLOB: usize = 1024;

/// In MiB.
const LIMIT: f64 = 64.0;

pub(crate) fn measure(report: &mut Report) -> Result<()> {
    let store = tempfile::tempdir()?;
    let directory = format!("dir:{}", store.path().display());
    module(report, &directory)?;
    provider(report, &directory)?;
    distribution(report, &directory)
}

/// A server, and what it had before anything was asked of it.
struct Watched {
    server: Server,
    before: f64,
}

impl Watched {
    fn new(server: Server) -> Result<Self> {
        Ok(Self { before: server.peak_memory()?, server })
    }

    fn report(&self, report: &mut Report, name: String) -> Result<()> {
        report.add(Measurement {
            name,
            value: self.server.peak_memory()?,
            unit: "MiB",
            demand: Demand::AtMost(LIMIT),
            detail: format!("{} MiB before", number(self.before)),
        });
        Ok(())
    }
}

fn module(report: &mut Report, directory: &str) -> Result<()> {
    let author = Ocimod::new()?;
    let folder = author.home().join("large");
    write_module(&folder)?;
    author.run(&[
        "push",
        "--registry",
        directory,
        &folder.display().to_string(),
        "bench/large/null@1.0.0",
    ])?;
    drop(author);
    let behind = Ocimod::new()?;
    let registry = Watched::new(behind.serve(directory, &[])?)?;
    let ocimod = Ocimod::new()?;
    let setting = format!("{}+insecure", registry.server.address);
    let shim = Watched::new(ocimod.serve(&setting, &[("OCIMOD_ARCHIVES", "proxy")])?)?;
    let address = &shim.server.address;
    block_on(async {
        let base = "/v1/modules/bench/large/null/1.0.0/";
        let mut connection = Connection::open(address).await?;
        let answer = connection.body(address, &format!("{base}download")).await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        let location = answer["location"].as_str().and_then(|link| link.strip_prefix("./"));
        let request = get(address, &format!("{base}{}", location.context("the link")?));
        let fetch = || async {
            let (head, length) = Connection::open(address).await?.send(&request).await?;
            ensure!(head.status == 200, "the zip: {}", head.status);
            ensure!(length > (MODULE * MIB) as u64, "the zip came with {length} bytes");
            Ok(())
        };
        futures_util::future::try_join_all((0..CLIENTS).map(|_| fetch())).await
    })?;
    let name = format!("peak memory, {MODULE} MiB module to {CLIENTS} clients at once");
    shim.report(report, format!("{name}: the shim"))?;
    registry.report(report, format!("{name}: the embedded registry behind it"))
}

/// A module with random bytes beside its code.
fn write_module(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("main.tf"), "output \"it\" {\n  value = 1\n}\n")?;
    let mut random = File::open("/dev/urandom")?.take((MODULE * MIB) as u64);
    io::copy(&mut random, &mut File::create(folder.join("data.bin"))?)?;
    Ok(())
}

/// Push, the mirror and pull, over a registry that is a server too.
fn provider(report: &mut Report, directory: &str) -> Result<()> {
    let (behind, ocimod) = (Ocimod::new()?, Ocimod::new()?);
    let registry = Watched::new(behind.serve(directory, &[])?)?;
    let setting = format!("{}+insecure", registry.server.address);
    let zip = ocimod.home().join("terraform-provider-large_1.0.0_linux_amd64.zip");
    write_provider(&zip)?;
    let address = "bench/large@1.0.0";
    let zip = zip.display().to_string();
    let name = format!("peak memory, {PROVIDER} MiB provider");
    let verb = |arguments: &[&str], what: &str| {
        anyhow::Ok(Measurement {
            name: format!("{name}: {what}"),
            value: ocimod.peak_of(arguments)?,
            unit: "MiB",
            demand: Demand::AtMost(LIMIT),
            detail: String::new(),
        })
    };
    report.add(verb(&["provider", "push", "--registry", &setting, address, &zip], "`provider push`")?);
    report.add(verb(&["provider", "pull", "--registry", &setting, address], "`provider pull`")?);
    let shim = Watched::new(ocimod.serve(&setting, &[("OCIMOD_ARCHIVES", "proxy")])?)?;
    let address = &shim.server.address;
    block_on(async {
        let base = "/v1/mirror/registry.opentofu.org/bench/large/";
        let mut connection = Connection::open(address).await?;
        let answer = connection.body(address, &format!("{base}1.0.0.json")).await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        let url = answer["archives"]["linux_amd64"]["url"].as_str().and_then(|url| url.strip_prefix("./"));
        let request = get(address, &format!("{base}{}", url.context("the link")?));
        let fetch = || async {
            let (head, length) = Connection::open(address).await?.send(&request).await?;
            ensure!(head.status == 200, "the zip: {}", head.status);
            ensure!(length > (PROVIDER * MIB) as u64, "the zip came with {length} bytes");
            Ok(())
        };
        futures_util::future::try_join_all((0..CLIENTS).map(|_| fetch())).await
    })?;
    shim.report(report, format!("{name} to {CLIENTS} clients at once: the mirror"))?;
    registry.report(report, format!("{name}, pushed, pulled and mirrored: the embedded registry"))
}

/// A zip with a program of random bytes, as they are.
fn write_provider(zip: &Path) -> Result<()> {
    let mut writer = zip::ZipWriter::new(File::create(zip)?);
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .unix_permissions(0o755);
    writer.start_file("terraform-provider-large_v1.0.0", options)?;
    io::copy(&mut File::open("/dev/urandom")?.take((PROVIDER * MIB) as u64), &mut writer)?;
    writer.finish()?;
    Ok(())
}

fn distribution(report: &mut Report, directory: &str) -> Result<()> {
    let ocimod = Ocimod::new()?;
    let registry = Watched::new(ocimod.serve(directory, &[])?)?;
    push_and_pull(&registry.server.address)?;
    registry.report(report, format!("peak memory, {BLOB} MiB up and down through /v2/"))
}

/// As registry clients do it: a session, the bytes by PATCH, and the digest at the end.
fn push_and_pull(address: &str) -> Result<()> {
    let mut piece = vec![0; MIB];
    let mut digest = Sha256::new();
    for (index, byte) in piece.iter_mut().enumerate() {
        *byte = index.to_le_bytes()[0];
    }
    for _ in 0..BLOB {
        digest.update(&piece);
    }
    let digest = format!("sha256:{}", hex::encode(digest.finalize()));
    let location = |head: Head| head.location.context("the place of the upload");
    block_on(async {
        let mut connection = Connection::open(address).await?;
        let request = |method: &str, path: &str, length: usize| {
            format!(
                "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
            )
            .into_bytes()
        };
        let (head, _) = connection.send(&request("POST", "/v2/bench/blob/blobs/uploads/", 0)).await?;
        ensure!(head.status == 202, "POST: {}", head.status);
        let append = request("PATCH", &path_of(&location(head)?), BLOB * MIB);
        let (head, _) = connection.send_body(&append, &piece, BLOB).await?;
        ensure!(head.status == 202, "PATCH: {}", head.status);
        let path = path_of(&location(head)?);
        let joint = if path.contains('?') { '&' } else { '?' };
        let (head, _) = connection.send(&request("PUT", &format!("{path}{joint}digest={digest}"), 0)).await?;
        ensure!(head.status == 201, "PUT: {}", head.status);
        let path = format!("/v2/bench/blob/blobs/{digest}");
        let (head, length) = connection.send(&get(address, &path)).await?;
        ensure!(head.status == 200 && length == (BLOB * MIB) as u64, "GET: {}, {length} bytes", head.status);
        Ok(())
    })
}
