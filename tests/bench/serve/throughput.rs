//! How many answers a second of the processor gives: the throughput of a server that has a processor to itself and is kept busy.
//!
//! Measured by the clock, a client that cannot keep the faster side busy, or a machine that does something else too, makes the slower
//! side look better than it is; that ratio stands beside it.

use std::time::Duration;

use anyhow::Result;

use crate::client::{Load, Throughput};
use crate::processes::{Processors, Server};
use crate::report::{Demand, Measurement, median, number};

/// As much at once as the runners of a busy CI system ask.
const CONNECTIONS: usize = 16;
const WARM_UP: Duration = Duration::from_millis(200);
const DURATION: Duration = Duration::from_millis(800);

/// One side of a comparison.
pub(crate) struct Side<'a> {
    pub(crate) server: &'a Server,
    pub(crate) path: &'a str,
}

/// Asks two servers in turns for something that has this length, and answers our throughput to theirs.
pub(crate) fn compare(
    name: String,
    theirs: &str,
    [our, their]: [&Side<'_>; 2],
    length: u64,
    rounds: usize,
    processors: Processors,
    demand: Demand,
) -> Result<Measurement> {
    let (mut our_rounds, mut their_rounds) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        our_rounds.push(our.load(length, processors)?);
        their_rounds.push(their.load(length, processors)?);
    }
    let (our_cost, their_cost) = (cost(&our_rounds), cost(&their_rounds));
    let rates = our_rounds.iter().zip(&their_rounds);
    let rates = rates.map(|(our, their)| our.throughput.per_second / their.throughput.per_second);
    Ok(Measurement {
        name,
        value: their_cost / our_cost,
        unit: "",
        demand,
        detail: format!(
            "{} by the clock; {}; {theirs} {}",
            number(median(rates.collect())),
            describe(&our_rounds),
            describe(&their_rounds)
        ),
    })
}

/// One side of one round.
struct Round {
    throughput: Throughput,
    /// How long the server was on a processor, in seconds.
    processor_time: f64,
}

impl Side<'_> {
    fn load(&self, length: u64, processors: Processors) -> Result<Round> {
        let before = self.server.processor_time()?;
        let throughput = Load {
            address: &self.server.address,
            path: self.path,
            length,
            connections: CONNECTIONS,
            warm_up: WARM_UP,
            duration: DURATION,
            processor: processors.client,
        }
        .run()?;
        Ok(Round { throughput, processor_time: self.server.processor_time()? - before })
    }
}

/// Seconds of the processor for an answer. Over all rounds, as the kernel counts in hundredths of a second.
fn cost(rounds: &[Round]) -> f64 {
    let time: f64 = rounds.iter().map(|round| round.processor_time).sum();
    let answers: u32 = rounds.iter().map(|round| round.throughput.answers).sum();
    time / f64::from(answers.max(1))
}

fn describe(rounds: &[Round]) -> String {
    let middle = |of: fn(&Round) -> f64| number(median(rounds.iter().map(of).collect()));
    let per_second = middle(|round| round.throughput.per_second);
    let client = middle(|round| round.throughput.client_share * 100.0);
    format!("{per_second}/s, {} µs of processor each (client {client} % busy)", number(cost(rounds) * 1e6))
}
