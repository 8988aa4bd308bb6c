//! The options of `serve` for what keeps it within bounds, and for where its numbers are read.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;

use super::super::duration::parse_duration;
use super::super::failure::Failure;
use crate::server::Limits;

/// Options for what keeps the server within bounds
#[derive(Args, Clone, Debug, Default)]
pub struct LimitOptions {
    /// How many requests are answered at a time [default: a quarter of the files that may be open, 1024 at most]
    #[arg(long, value_name = "NUMBER")]
    pub max_requests: Option<NonZeroUsize>,
    /// How many connections are open at a time [default: half of the files that may be open, 4096 at most]
    #[arg(long, value_name = "NUMBER")]
    pub max_connections: Option<NonZeroUsize>,
    /// How long an answer's headers may take; uploads of blobs take as long as they take
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub request_timeout: Duration,
    /// Serve `/metrics` here, and not on the address of everything else; without access rules
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_listen: Option<SocketAddr>,
}

impl LimitOptions {
    /// The bounds, completed by what the system allows.
    pub(super) fn limits(&self) -> Result<Limits, Failure> {
        if self.request_timeout < Duration::from_secs(1) {
            return Err(Failure::usage(
                "`--request-timeout` is less than a second, so nothing could be answered",
            ));
        }
        let usual = Limits::default();
        Ok(Limits {
            max_requests: self.max_requests.map_or(usual.max_requests, NonZeroUsize::get),
            max_connections: self.max_connections.map_or(usual.max_connections, NonZeroUsize::get),
            request_timeout: self.request_timeout,
        })
    }
}
