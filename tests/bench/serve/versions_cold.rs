//! `versions` of a module that nobody asked for yet: its tags come from the registry, in pages.
//!
//! The peer is a client that pages through the same list of the same registry and throws the pages away: whatever a server does
//! beside waiting for pages is what makes the ratio. Both have a connection open before, and each round has a server of its own
//! with an empty cache; its start is not counted.
//!
//! The demand is on a registry across a network. One on this machine hands a page over in less time than it takes to read it, so
//! there the ratio says what reading, sorting and writing ten thousand versions costs, and nothing of waiting.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::client::{Connection, block_on, get, next_path};
use crate::modules;
use crate::peers::{PAGE, Peer, TAGS};
use crate::processes::{self, Ocimod};
use crate::report::{Demand, Measurement, Report, median, number};

/// How long a registry in the next data centre takes for an answer.
const NEAR: Duration = Duration::from_millis(10);

/// How many ask at once.
const CALLERS: usize = 100;

/// A module of the registry that is asked for before, so that every connection is there.
const OTHER: &str = "bench/label/null";

pub(crate) fn measure(report: &mut Report, rounds: usize) -> Result<()> {
    let near = processes::peer(&Peer::Registry(NEAR), None)?;
    let insecure = |address: &str| format!("{address}+insecure");
    let name = format!("versions cold, {TAGS}, registry {} ms away: time to raw paging's", NEAR.as_millis());
    compare(report, rounds, name, Demand::AtMost(1.2), &insecure(&near.address), Some(&near.address))?;

    let instant = processes::peer(&Peer::Registry(Duration::ZERO), None)?;
    let name = format!("versions cold, {TAGS}, registry that takes no time: time to raw paging's");
    compare(report, rounds, name, Demand::None, &insecure(&instant.address), Some(&instant.address))?;

    let store = tempfile::tempdir()?;
    let behind = Ocimod::new()?;
    let directory = format!("dir:{}", store.path().display());
    modules::make_store(&behind, store.path())?;
    modules::write_repository(store.path(), COLD, TAGS)?;
    modules::let_settle();
    let registry = behind.serve(&directory, &[])?;
    let name = format!("versions cold, {TAGS}, another ocimod as registry: time to raw paging's");
    compare(report, rounds, name, Demand::None, &insecure(&registry.address), Some(&registry.address))?;
    let name = format!("versions cold, {TAGS}, embedded registry: time to raw paging's through /v2/");
    compare(report, rounds, name, Demand::None, &directory, None)?;

    crowd(report)
}

/// The module that is asked for.
const COLD: &str = "bench/cold/null";

fn compare(
    report: &mut Report,
    rounds: usize,
    name: String,
    demand: Demand,
    setting: &str,
    registry: Option<&str>,
) -> Result<()> {
    if let Some(registry) = registry {
        // The registry itself is no part of what is cold.
        block_on(raw_paging(registry, COLD))?;
    }
    let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let ocimod = Ocimod::new()?;
        let server = ocimod.serve(setting, &[])?;
        // The embedded registry is a part of the server, so its peer is a registry that was just started too.
        let (other, registry_server);
        let registry = if let Some(registry) = registry {
            registry
        } else {
            other = Ocimod::new()?;
            registry_server = other.serve(setting, &[])?;
            &registry_server.address
        };
        let (our, their) = block_on(async {
            let mut client = Connection::open(&server.address).await?;
            client.body(&server.address, &versions_path(OTHER)).await?;
            let started = Instant::now();
            let body = client.body(&server.address, &versions_path(COLD)).await?;
            let our = started.elapsed().as_secs_f64();
            ensure!(count_versions(&body)? == TAGS, "not every version is listed");
            Ok((our, raw_paging(registry, COLD).await?))
        })?;
        ratios.push(our / their);
        ours.push(our * 1000.0);
        theirs.push(their * 1000.0);
    }
    let detail = format!("{} ms; raw paging {} ms", number(median(ours)), number(median(theirs)));
    report.add(Measurement { name, value: median(ratios), unit: "", demand, detail });
    Ok(())
}

fn versions_path(repository: &str) -> String {
    format!("/v1/modules/{repository}/versions")
}

fn count_versions(body: &[u8]) -> Result<usize> {
    let answer: Value = serde_json::from_slice(body)?;
    Ok(answer["modules"][0]["versions"].as_array().context("versions")?.len())
}

/// How long a client that throws the pages away takes for all of them, in seconds.
async fn raw_paging(registry: &str, repository: &str) -> Result<f64> {
    let mut client = Connection::open(registry).await?;
    client.body(registry, "/v2/").await?;
    let mut path = format!("/v2/{repository}/tags/list?n={PAGE}");
    let started = Instant::now();
    loop {
        let (head, _) = client.send(&get(registry, &path)).await?;
        ensure!(head.status == 200, "GET {path}: {}", head.status);
        match next_path(&head) {
            Some(next) => path = next,
            None => return Ok(started.elapsed().as_secs_f64()),
        }
    }
}

/// Many ask at once for what nobody asked for yet.
fn crowd(report: &mut Report) -> Result<()> {
    let registry = processes::peer(&Peer::Registry(NEAR), None)?;
    let ocimod = Ocimod::new()?;
    let server = ocimod.serve(&format!("{}+insecure", registry.address), &[])?;
    let (address, path) = (&server.address, versions_path(COLD));
    let counts: Value = block_on(async {
        let mut connections = Vec::new();
        for _ in 0..CALLERS {
            connections.push(Connection::open(address).await?);
        }
        let asked = connections.iter_mut().map(|connection| connection.body(address, &path));
        let bodies = futures_util::future::try_join_all(asked).await?;
        for body in &bodies {
            ensure!(body == &bodies[0], "callers were told different things");
        }
        ensure!(count_versions(&bodies[0])? == TAGS, "not every version is listed");
        let counts = format!("/counts/{COLD}");
        let body = Connection::open(&registry.address).await?.body(&registry.address, &counts).await?;
        Ok(serde_json::from_slice(&body)?)
    })?;
    report.add(Measurement {
        name: format!("listings that {CALLERS} callers at once cause, cold"),
        value: counts["listings"].as_f64().context("listings")?,
        unit: "",
        demand: Demand::Exactly(1.0),
        detail: format!("{} pages, {} manifests", counts["pages"], counts["manifests"]),
    });
    Ok(())
}
