//! Runs what was typed, and turns the outcome into an exit status.

use std::process::ExitCode;

use ocimod::cli::{self, Environment, Streams};

fn main() -> anyhow::Result<ExitCode> {
    let environment = Environment::of_process()?;
    let streams = Streams::of_process(&environment);
    Ok(cli::run(std::env::args_os(), environment, streams).into())
}
