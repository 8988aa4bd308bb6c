//! `versions` that was asked for before, beside a bare handler that sends the same bytes.
//!
//! The server has one processor and the client another, so that the server is what runs out: on shared ones the client's own
//! work would be a part of both sides, and flatter the slower.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use crate::client::{Connection, Load, Throughput, block_on};
use crate::modules;
use crate::peers::Peer;
use crate::processes::{self, Ocimod, Processors, Server};
use crate::report::{Demand, Measurement, Report, median, number};

/// As much at once as the runners of a busy CI system ask.
const CONNECTIONS: usize = 16;
const WARM_UP: Duration = Duration::from_millis(200);
const DURATION: Duration = Duration::from_millis(800);

/// Above this share of its processor the client may be what holds the faster side back.
const MAX_CLIENT_SHARE: f64 = 0.95;

pub(crate) fn measure(report: &mut Report, rounds: usize) -> Result<()> {
    let processors = Processors::choose();
    let store = tempfile::tempdir()?;
    let counts = [5, 1000];
    let embedded = Ocimod::on(processors.server)?;
    let behind = Ocimod::on(processors.behind)?;
    let directory = format!("dir:{}", store.path().display());
    modules::make_store(&embedded, store.path())?;
    for count in counts {
        modules::write_repository(store.path(), &repository(count), count)?;
    }
    let registry = behind.serve(&directory, &[])?;
    let remote = Ocimod::on(processors.server)?;
    for (kind, ocimod, setting) in [
        ("embedded registry", &embedded, directory.clone()),
        ("remote registry", &remote, format!("{}+insecure", registry.address)),
    ] {
        let server = ocimod.serve(&setting, &[])?;
        for count in counts {
            compare(report, rounds, kind, count, &server, processors)?;
        }
    }
    Ok(())
}

/// One side of one round.
struct Round {
    throughput: Throughput,
    /// Seconds of the processor for an answer.
    cost: f64,
}

fn repository(count: usize) -> String {
    format!("bench/m{count}/null")
}

fn compare(
    report: &mut Report,
    rounds: usize,
    kind: &str,
    count: usize,
    server: &Server,
    processors: Processors,
) -> Result<()> {
    let path = format!("/v1/modules/{}/versions", repository(count));
    let body =
        block_on(async { Connection::open(&server.address).await?.body(&server.address, &path).await })?;
    let file = tempfile::NamedTempFile::new()?;
    fs::write(&file, &body)?;
    let peer = processes::peer(&Peer::Handler(file.path().to_owned()), processors.server)?;
    let load = |server: &Server| -> Result<Round> {
        let before = server.processor_time()?;
        let throughput = Load {
            address: &server.address,
            path: &path,
            length: body.len() as u64,
            connections: CONNECTIONS,
            warm_up: WARM_UP,
            duration: DURATION,
            processor: processors.client,
        }
        .run()?;
        let cost = (server.processor_time()? - before) / f64::from(throughput.answers.max(1));
        Ok(Round { throughput, cost })
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(load(server)?);
        theirs.push(load(&peer)?);
    }
    let ratios = ours.iter().zip(&theirs);
    let ratios = ratios.map(|(our, their)| our.throughput.per_second / their.throughput.per_second).collect();
    let side = |rounds: &[Round]| {
        let per_second = median(rounds.iter().map(|round| round.throughput.per_second).collect());
        let cost = median(rounds.iter().map(|round| round.cost * 1e6).collect());
        format!("{}/s, {} µs of processor each", number(per_second), number(cost))
    };
    let mut detail = format!("{} bytes: {}; the handler {}", body.len(), side(&ours), side(&theirs));
    if ours.iter().chain(&theirs).any(|round| round.throughput.client_share > MAX_CLIENT_SHARE) {
        detail.push_str("; the client was at its limit");
    }
    report.add(Measurement {
        name: format!("versions warm, {count}, {kind}: throughput to a bare handler's"),
        value: median(ratios),
        unit: "",
        demand: Demand::AtLeast(0.8),
        detail,
    });
    Ok(())
}
