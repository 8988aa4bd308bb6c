//! `versions` that was asked for before, beside a bare handler that sends the same bytes.
//!
//! What is compared is how many answers a second of the processor gives, which is the throughput of a server that has a processor
//! to itself and is kept busy. Measured by the clock, a client that cannot keep the faster side busy, or a machine that does
//! something else too, makes the slower side look better than it is; that ratio stands beside it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::client::{Connection, Load, Throughput, block_on, get};
use crate::modules;
use crate::peers::Peer;
use crate::processes::{self, Ocimod, Processors, Server};
use crate::report::{Demand, Measurement, Report, median, number};

/// As much at once as the runners of a busy CI system ask.
const CONNECTIONS: usize = 16;
/// A thousand manifests are read in far less.
const START: Duration = Duration::from_secs(30);
const WARM_UP: Duration = Duration::from_millis(200);
const DURATION: Duration = Duration::from_millis(800);

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
    modules::let_settle();
    let registry = behind.serve(&directory, &[])?;
    let remote = Ocimod::on(processors.server)?;
    for (kind, ocimod, setting) in [
        ("embedded registry", &embedded, directory.clone()),
        ("remote registry", &remote, format!("{}+insecure", registry.address)),
    ] {
        let server = ocimod.serve(&setting, &[])?;
        // The first look through the registry is no part of an answer.
        block_on(until_ready(&server.address))?;
        for count in counts {
            compare(report, rounds, kind, count, &server, processors)?;
        }
    }
    Ok(())
}

/// Waits until the server has looked through its registry.
async fn until_ready(address: &str) -> Result<()> {
    let mut client = Connection::open(address).await?;
    let end = Instant::now() + START;
    while client.send(&get(address, "/readyz")).await?.0.status != 200 {
        ensure!(Instant::now() < end, "the server does not become ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// One side of one round.
struct Round {
    throughput: Throughput,
    /// How long the server was on a processor, in seconds.
    processor_time: f64,
}

/// Seconds of the processor for an answer. Over all rounds, as the kernel counts in hundredths of a second.
fn cost(rounds: &[Round]) -> f64 {
    let time: f64 = rounds.iter().map(|round| round.processor_time).sum();
    let answers: u32 = rounds.iter().map(|round| round.throughput.answers).sum();
    time / f64::from(answers.max(1))
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
        Ok(Round { throughput, processor_time: server.processor_time()? - before })
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(load(server)?);
        theirs.push(load(&peer)?);
    }
    let (our_cost, their_cost) = (cost(&ours), cost(&theirs));
    let rates = ours.iter().zip(&theirs);
    let rates = rates.map(|(our, their)| our.throughput.per_second / their.throughput.per_second);
    let side = |rounds: &[Round], cost: f64| {
        let middle = |of: fn(&Round) -> f64| number(median(rounds.iter().map(of).collect()));
        let per_second = middle(|round| round.throughput.per_second);
        let client = middle(|round| round.throughput.client_share * 100.0);
        format!("{per_second}/s, {} µs of processor each (client {client} % busy)", number(cost * 1e6))
    };
    report.add(Measurement {
        name: format!("versions warm, {count}, {kind}: throughput of a processor to a bare handler's"),
        value: their_cost / our_cost,
        unit: "",
        demand: Demand::AtLeast(0.8),
        detail: format!(
            "{} by the clock; {} bytes: {}; the handler {}",
            number(median(rates.collect())),
            body.len(),
            side(&ours, our_cost),
            side(&theirs, their_cost)
        ),
    });
    Ok(())
}
