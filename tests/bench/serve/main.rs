//! What `ocimod serve` promises about speed and memory, measured: `cargo bench --bench serve`.
//!
//! Everything is a ratio to a peer that runs on the same machine in the same minute, or a number of bytes or requests, so that
//! a result means the same everywhere. Servers are processes of their own, ours and peers alike; `docs/benchmarks.md` has the
//! rest.

// A report on stdout is what this program is for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod blobs;
mod client;
mod copy;
mod memory;
mod modules;
mod peers;
mod processes;
mod pushes;
mod report;
mod throughput;
mod versions_cold;
mod versions_warm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use peers::Peer;
use report::Report;

/// Measure `ocimod serve` beside its peers
#[derive(Parser)]
struct Options {
    /// How the report is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// End with status 1 where a demand is missed
    #[arg(long)]
    check: bool,
    /// Measure these alone (may be repeated)
    #[arg(long, value_enum)]
    only: Vec<Section>,
    /// How often each side of a comparison is measured, in turns; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Be a peer instead; how this program starts its own
    #[arg(long, hide = true)]
    peer: Option<Peer>,
    /// What cargo says to a benchmark, and not to a test
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// `versions` that was asked for before
    VersionsWarm,
    /// `versions` that nobody asked for yet, and a crowd that does at once
    VersionsCold,
    /// Peak memory with large bodies
    Memory,
    /// Blobs beside other servers
    Blobs,
    /// `ocimod copy` beside crane
    Copy,
    /// Pushes beside another registry, and by how much is there already; and the start
    Pushes,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if let Some(peer) = options.peer {
        peers::run(peer)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !options.bench {
        // `cargo test --all-targets` runs benchmarks as if they were tests; what is timed is never one.
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::default();
    for section in Section::value_variants() {
        if !options.only.is_empty() && !options.only.contains(section) {
            continue;
        }
        match section {
            Section::VersionsWarm => versions_warm::measure(&mut report, options.rounds)?,
            Section::VersionsCold => versions_cold::measure(&mut report, options.rounds)?,
            Section::Memory => memory::measure(&mut report)?,
            Section::Blobs => blobs::measure(&mut report, options.rounds)?,
            Section::Copy => copy::measure(&mut report, options.rounds)?,
            Section::Pushes => pushes::measure(&mut report, options.rounds)?,
        }
    }
    match options.format {
        Format::Text => print!("{}", report.table()),
        Format::Json => println!("{:#}", report.json()),
    }
    let is_failed = options.check && !report.is_met();
    Ok(if is_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
