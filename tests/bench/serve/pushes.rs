//! What a push to the embedded registry costs: beside another registry, and by how much is there already.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ocimod::oci::{Digest, IMAGE_MANIFEST};
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::{Connection, block_on, get, path_of};
use crate::modules;
use crate::peers::docker_registry;
use crate::processes::{Ocimod, Server};
use crate::report::{Demand, Measurement, Report, median, number};

/// How many modules are pushed to two registries.
const MODULES: usize = 1_000;
/// So many to one registry, then to the other, so that what else the machine does meets both.
const TURN: usize = 50;
/// As many clients at once as a busy CI system has.
const CLIENTS: usize = 8;

/// What is there before a push that is compared.
const FEW: usize = 10;
const MANY: usize = 10_000;
/// Pushes of one round.
const PUSHES: usize = 5;

/// What every OpenTofu module has for a configuration.
const CONFIG: &[u8] = b"{}";

pub(crate) fn measure(report: &mut Report, rounds: usize) -> Result<()> {
    beside_docker_registry(report)?;
    by_versions(report, rounds)?;
    by_repositories(report, rounds)
}

/// A module that nobody pushed before: its layers and its manifest. What is in it is a matter of its number, so that two registries
/// get the same bytes.
struct Module {
    layers: [Vec<u8>; 2],
    manifest: Vec<u8>,
}

impl Module {
    fn new(number: usize) -> Self {
        // Zips and digests are noise to whoever stores them.
        let noise = |what: usize| Digest::of(format!("{number} {what}").as_bytes()).hex().to_owned();
        let zip: String = (0..32).map(noise).collect();
        let layers = [zip.into_bytes(), format!("module: \"bench.example/m{number}@v1\"\n").into_bytes()];
        let descriptor = |media_type: &str, bytes: &[u8]| {
            let digest = Digest::of(bytes);
            json!({"mediaType": media_type, "digest": digest.as_str(), "size": bytes.len()})
        };
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": IMAGE_MANIFEST,
            "artifactType": "application/vnd.opentofu.modulepkg",
            "config": descriptor("application/vnd.cue.module.v1+json", CONFIG),
            "layers": [
                descriptor("archive/zip", &layers[0]),
                descriptor("application/vnd.cue.modulefile.v1", &layers[1]),
            ],
        });
        Self { layers, manifest: manifest.to_string().into_bytes() }
    }

    /// Pushes it with the requests of `crane`.
    async fn push(
        &self,
        connection: &mut Connection,
        address: &str,
        repository: &str,
        tag: &str,
    ) -> Result<()> {
        let request = |method: &str, path: &str, media_type: &str, length: usize| {
            format!(
                "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
            )
            .into_bytes()
        };
        let octets =
            |method: &str, path: &str, length| request(method, path, "application/octet-stream", length);
        for blob in [self.layers[0].as_slice(), &self.layers[1], CONFIG] {
            let digest = Digest::of(blob);
            let head = octets("HEAD", &format!("/v2/{repository}/blobs/{digest}"), 0);
            let head = connection.send_head(&head).await?;
            if head.status == 200 {
                continue;
            }
            let post = octets("POST", &format!("/v2/{repository}/blobs/uploads/"), 0);
            let (head, _) = connection.send(&post).await?;
            ensure!(head.status == 202, "POST: {}", head.status);
            let location = path_of(&head.location.context("the place of the upload")?);
            let patch = octets("PATCH", &location, blob.len());
            let (head, _) = connection.send_body(&patch, blob, 1).await?;
            ensure!(head.status == 202, "PATCH: {}", head.status);
            let location = path_of(&head.location.context("the place of the upload")?);
            let joint = if location.contains('?') { '&' } else { '?' };
            let put = octets("PUT", &format!("{location}{joint}digest={digest}"), 0);
            let (head, _) = connection.send(&put).await?;
            ensure!(head.status == 201, "PUT: {}", head.status);
        }
        let path = format!("/v2/{repository}/manifests/{tag}");
        let put = request("PUT", &path, IMAGE_MANIFEST, self.manifest.len());
        let (head, _) = connection.send_body(&put, &self.manifest, 1).await?;
        ensure!(head.status == 201, "PUT {path}: {}", head.status);
        Ok(())
    }
}

/// The time that it takes to push modules of these numbers, each to a repository of its own.
fn push_all(server: &Server, clients: usize, numbers: std::ops::Range<usize>) -> Result<Duration> {
    let modules: Rc<[Module]> = numbers.clone().map(Module::new).collect();
    block_on(async {
        let next = Rc::new(Cell::new(0));
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let (modules, next) = (Rc::clone(&modules), Rc::clone(&next));
            let (address, first) = (server.address.clone(), numbers.start);
            tasks.spawn_local(async move {
                let mut connection = Connection::open(&address).await?;
                while let Some(module) = modules.get(next.get()) {
                    let repository = format!("bench/m{}/null", first + next.get());
                    next.set(next.get() + 1);
                    module.push(&mut connection, &address, &repository, "v1.0.0").await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(started.elapsed())
    })
}

fn beside_docker_registry(report: &mut Report) -> Result<()> {
    let (one, many) = ("one after the other".to_owned(), format!("{CLIENTS} at a time"));
    for (how, clients) in [(one, 1), (many, CLIENTS)] {
        let name = format!("push of {MODULES} small modules, {how}: time to docker-registry's");
        let Some((peer, _)) = docker_registry(None)? else {
            report.skip(format!("{name}, which is not installed"));
            continue;
        };
        let folder = tempfile::tempdir()?;
        let ocimod = Ocimod::new()?;
        let ours = ocimod.serve(&format!("dir:{}", folder.path().display()), &[])?;
        let (mut our_time, mut their_time) = (Duration::ZERO, Duration::ZERO);
        for start in (0..MODULES).step_by(TURN) {
            our_time += push_all(&ours, clients, start..start + TURN)?;
            their_time += push_all(&peer, clients, start..start + TURN)?;
        }
        let each =
            |time: Duration| number(time.as_secs_f64() * 1e3 / u32::try_from(MODULES).map_or(1.0, f64::from));
        report.add(Measurement {
            name,
            value: our_time.as_secs_f64() / their_time.as_secs_f64(),
            unit: "",
            demand: Demand::AtMost(1.0),
            detail: format!("{} ms each; theirs {} ms", each(our_time), each(their_time)),
        });
    }
    Ok(())
}

/// Where a push goes to, and what is there.
struct Store {
    folder: tempfile::TempDir,
    ocimod: Ocimod,
    /// A module's folder whose content is another one before each push.
    module: PathBuf,
    pushed: usize,
}

impl Store {
    fn new() -> Result<Self> {
        let (folder, ocimod) = (tempfile::tempdir()?, Ocimod::new()?);
        modules::make_store(&ocimod, folder.path())?;
        let module = ocimod.home().join("module");
        fs::create_dir_all(&module)?;
        Ok(Self { folder, ocimod, module, pushed: 0 })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn registry(&self) -> String {
        format!("dir:{}", self.path().display())
    }

    /// How long the program takes to push another version.
    fn push(&mut self, registry: &str, repository: &str) -> Result<Duration> {
        self.pushed += 1;
        let text = format!("output \"number\" {{\n  value = {}\n}}\n", self.pushed);
        fs::write(self.module.join("main.tf"), text)?;
        let (folder, address) =
            (self.module.display().to_string(), format!("{repository}@2.0.{}", self.pushed));
        let started = Instant::now();
        self.ocimod.run(&["push", "--registry", registry, &folder, &address])?;
        Ok(started.elapsed())
    }

    /// How long requests on a connection that is there already take.
    fn push_by_requests(&mut self, server: &Server, repository: &str) -> Result<Duration> {
        self.pushed += 1;
        let module = Module::new(self.pushed);
        let tag = format!("v2.0.{}", self.pushed);
        block_on(async {
            let mut connection = Connection::open(&server.address).await?;
            // What is asked for first has been read and connected.
            connection.body(&server.address, "/v2/").await?;
            let started = Instant::now();
            module.push(&mut connection, &server.address, repository, &tag).await?;
            Ok(started.elapsed())
        })
    }
}

/// Compares pushes where there is much with pushes where there is little.
fn compare(
    report: &mut Report,
    rounds: usize,
    name: String,
    mut push: impl FnMut(usize) -> Result<Duration>,
) -> Result<()> {
    let (mut ratios, mut few, mut many) = (Vec::new(), Vec::new(), Vec::new());
    // The first of each is not counted: something is read that is then known.
    for round in 0..=rounds * PUSHES {
        let (little, much) = (push(FEW)?.as_secs_f64(), push(MANY)?.as_secs_f64());
        if round > 0 {
            ratios.push(much / little);
            few.push(little * 1e3);
            many.push(much * 1e3);
        }
    }
    report.add(Measurement {
        name,
        value: median(ratios),
        unit: "",
        demand: Demand::AtMost(2.0),
        detail: format!("{} ms; {} ms with {FEW}", number(median(many)), number(median(few))),
    });
    Ok(())
}

fn by_versions(report: &mut Report, rounds: usize) -> Result<()> {
    let mut store = Store::new()?;
    let repository = |count: usize| format!("bench/v{count}/null");
    for count in [FEW, MANY] {
        modules::write_repository(store.path(), &repository(count), count)?;
    }
    modules::let_settle();
    let (registry, server) = (store.registry(), store.ocimod.serve(&store.registry(), &[])?);
    let name = |how: &str| format!("push at {MANY} versions, {how}: time to one at {FEW}");
    compare(report, rounds, name("requests alone"), |count| {
        store.push_by_requests(&server, &repository(count))
    })?;
    let remote = format!("{}+insecure", server.address);
    compare(report, rounds, name("`ocimod push` to the server"), |count| {
        store.push(&remote, &repository(count))
    })?;
    drop(server);
    compare(report, rounds, name("`ocimod push` to the folder"), |count| {
        store.push(&registry, &repository(count))
    })
}

fn by_repositories(report: &mut Report, rounds: usize) -> Result<()> {
    let mut stores = [(FEW, Store::new()?), (MANY, Store::new()?)];
    for (count, store) in &stores {
        for number in 0..*count {
            modules::write_repository(store.path(), &format!("bench{}/r{number}/null", number % 100), 1)?;
        }
    }
    modules::let_settle();
    let mut servers = Vec::new();
    for (count, store) in &stores {
        let started = Instant::now();
        let server = store.ocimod.serve(&store.registry(), &[])?;
        let status = |path: &str| {
            block_on(async {
                let mut connection = Connection::open(&server.address).await?;
                Ok(connection.send(&get(&server.address, path)).await?.0.status)
            })
        };
        ensure!(status("/v2/")? == 200, "the server answers");
        let answered = started.elapsed().as_secs_f64();
        while status("/readyz")? != 200 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ready = started.elapsed().as_secs_f64();
        if *count == MANY {
            report.add(Measurement {
                name: format!("start with {MANY} repositories: time to the first answer"),
                value: answered,
                unit: "s",
                demand: Demand::AtMost(1.0),
                detail: format!("{} s until every repository was looked at (`/readyz`)", number(ready)),
            });
        }
        servers.push(server);
    }
    let name = format!("push at {MANY} repositories, requests alone: time to one at {FEW}");
    let mut new = 0;
    compare(report, rounds, name, |count| {
        new += 1;
        let at = usize::from(count == MANY);
        stores[at].1.push_by_requests(&servers[at], &format!("new/r{new}/null"))
    })
}
