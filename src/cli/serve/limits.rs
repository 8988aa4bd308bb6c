//! The options of `serve` for what keeps it within bounds, and for where its numbers are read.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;

use super::super::duration::parse_duration;
use super::super::failure::Failure;
use super::super::size::parse_size;
use crate::registry::DirectoryOptions;
use crate::server::Limits;

/// Options for what keeps the server within bounds
#[derive(Args, Clone, Debug)]
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
    /// The largest blob that the embedded registry takes
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = parse_size)]
    pub max_blob: u64,
    /// How many uploads the embedded registry writes at a time
    #[arg(long, value_name = "NUMBER", default_value = "64", value_parser = parse_uploads)]
    pub max_uploads: NonZeroUsize,
    /// How much the embedded registry may hold; where its folder has a quota too, the smaller one counts [default: the folder's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub quota: Option<u64>,
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
        if self.max_blob == 0 {
            return Err(Failure::usage("`--max-blob` is `0`, so nothing could be pushed")
                .with_hint("leave it out for 10GiB; `--access` says who may push"));
        }
        if self.quota == Some(0) {
            return Err(Failure::usage("`--quota` is `0`, so nothing could be pushed")
                .with_hint("leave it out for no quota of the server's own; `--access` says who may push"));
        }
        let usual = Limits::default();
        Ok(Limits {
            max_requests: self.max_requests.map_or(usual.max_requests, NonZeroUsize::get),
            max_connections: self.max_connections.map_or(usual.max_connections, NonZeroUsize::get),
            request_timeout: self.request_timeout,
            max_blob: self.max_blob,
        })
    }

    /// The options that are about the embedded registry, as far as they say something else than nothing would.
    pub(super) fn of_the_embedded_registry(&self) -> Vec<&'static str> {
        let (store, usual) = (self.store(), DirectoryOptions::default());
        let said = [
            ("--max-blob", store.upload_limit != usual.upload_limit),
            ("--max-uploads", store.concurrent_uploads != usual.concurrent_uploads),
            ("--quota", store.quota != usual.quota),
        ];
        said.into_iter().filter_map(|(option, is_said)| is_said.then_some(option)).collect()
    }

    /// How the server uses a folder that is its registry.
    pub(super) fn store(&self) -> DirectoryOptions {
        DirectoryOptions {
            upload_limit: self.max_blob,
            quota: self.quota,
            concurrent_uploads: self.max_uploads.get(),
            ..DirectoryOptions::default()
        }
    }
}

/// How many uploads are written at a time.
fn parse_uploads(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse::<usize>().map_err(|_| format!("`{text}` is no whole number, such as 64"))?;
    NonZeroUsize::new(number).ok_or_else(|| {
        "with `0` nothing could be pushed; leave it out for 64 (`--access` says who may push)".to_owned()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        limits: LimitOptions,
    }

    #[test]
    fn what_nobody_says_is_what_the_store_says() {
        let Line { limits } = Line::parse_from(["x"]);
        let (store, usual) = (limits.store(), DirectoryOptions::default());
        assert_eq!(
            (store.upload_limit, store.quota, store.concurrent_uploads),
            (usual.upload_limit, usual.quota, usual.concurrent_uploads)
        );
        let Line { limits } =
            Line::parse_from(["x", "--max-blob=1KiB", "--max-uploads=2", "--quota", "1GiB"]);
        let store = limits.store();
        assert_eq!((store.upload_limit, store.quota, store.concurrent_uploads), (1024, Some(1 << 30), 2));
        assert_eq!(limits.limits().unwrap().max_blob, 1024);
    }

    #[test]
    fn a_server_that_could_not_answer_or_take_anything_is_no_use() {
        for line in [["x", "--request-timeout=0"], ["x", "--max-blob=0"], ["x", "--quota=0"]] {
            assert!(Line::parse_from(line).limits.limits().is_err(), "{line:?}");
        }
        let Err(error) = Line::try_parse_from(["x", "--max-uploads=0"]) else { panic!("it is taken") };
        assert!(error.to_string().contains("nothing could be pushed"), "{error}");
    }

    #[test]
    fn what_is_said_of_the_embedded_registry_is_known() {
        let of = |line: &[&str]| Line::parse_from(line).limits.of_the_embedded_registry();
        assert_eq!(of(&["x"]), Vec::<&str>::new());
        assert_eq!(
            of(&["x", "--quota=1GiB", "--max-blob=1GiB", "--max-uploads=1", "--max-requests=1"]),
            ["--max-blob", "--max-uploads", "--quota"]
        );
    }
}
