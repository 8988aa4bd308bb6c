//! What the server counts, and `/metrics`, where Prometheus reads it (`OpenMetrics` 1.0 text).
//!
//! One [`Metrics`] belongs to one server; there are no globals, so tests and two servers in one process do not share numbers. A label
//! never takes a value that a stranger makes up: routes are the router's patterns, methods those that are known, registries those of the
//! settings, and namespaces are bounded in number, since each new value is a series that Prometheus keeps for ever.

use std::collections::HashSet;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::metrics::{MetricType, TypedMetric as _};
use prometheus_client::registry::Registry;

use super::App;
use super::error::ApiError;
use super::request_log::Product;
use crate::registry::counted::{Observer, Operation, Outcome};

/// From a cached answer to a request that times out; a factor of two to two and a half, which is what a percentile can be read from.
const SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// How many namespaces have a number of downloads of their own; those of the rest are counted together, as `other`. A namespace is taken
/// from a module or provider that exists, so a stranger cannot invent one, but a registry may hold any number.
const MAX_NAMESPACES: usize = 200;

/// What `prometheus-client` writes.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where `/metrics` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsPlace {
    /// Where everything else is.
    #[default]
    Beside,
    /// At an address of its own ([`super::serve_metrics`]).
    Apart,
}

/// The numbers of a server.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    in_flight: Gauge,
    headers_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    whole_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    request_bytes: Family<RouteLabels, Counter>,
    response_bytes: Family<RouteLabels, Counter>,
    broken: Family<RouteLabels, Counter>,
    refused: Family<RefusalLabels, Counter>,
    connections: Gauge,
    registry_calls: Family<CallLabels, Counter>,
    registry_seconds: Family<OperationLabels, Histogram, fn() -> Histogram>,
    registry_read: Family<RegistryLabels, Counter>,
    registry_written: Family<RegistryLabels, Counter>,
    module_downloads: Family<NamespaceLabels, Counter>,
    provider_downloads: Family<NamespaceLabels, Counter>,
    namespaces: Mutex<HashSet<String>>,
    caches: Caches,
    left_out: LeftOut,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    route: Arc<str>,
    method: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RouteLabels {
    route: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RegistryLabels {
    registry: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    registry: Arc<str>,
    operation: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    registry: Arc<str>,
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NamespaceLabels {
    namespace: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LookupLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// Why a request or a connection was not served, for reasons of its own or of the server's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There were as many requests as the server takes at a time.
    Busy,
    /// There were as many connections.
    Connections,
    /// The answer's headers took too long.
    SlowAnswer,
    /// The request's body came too slowly.
    SlowBody,
}

impl Refusal {
    fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Connections => "connections",
            Self::SlowAnswer => "slow_answer",
            Self::SlowBody => "slow_body",
        }
    }
}

/// The numbers of one sort of things that a cache keeps, since the server began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheNumbers {
    /// What is kept: `listing`, `tag`, `manifest`, `blob`.
    pub kind: &'static str,
    /// Answered from a copy that is fresh.
    pub hits: u64,
    /// Answered by the registry.
    pub misses: u64,
    /// Answered from an old copy, since the registry did not answer.
    pub stale: u64,
    /// How much is kept at the moment.
    pub bytes: u64,
}

type CacheSource = Box<dyn Fn() -> Vec<CacheNumbers> + Send + Sync>;

/// Asks the caches for their numbers when Prometheus asks for them.
#[derive(Clone, Default)]
struct Caches(Arc<OnceLock<CacheSource>>);

impl Debug for Caches {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Caches")
    }
}

impl Collector for Caches {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let numbers = self.0.get().map(|source| source()).unwrap_or_default();
        let help = "Answers of the cache by what was asked for: `hit` from a fresh copy, `miss` from the registry, `stale` from an old copy since the registry was away.";
        let mut lookups =
            encoder.encode_descriptor("ocimod_cache_lookups", help, None, MetricType::Counter)?;
        for CacheNumbers { kind, hits, misses, stale, .. } in &numbers {
            for (result, count) in [("hit", *hits), ("miss", *misses), ("stale", *stale)] {
                let labels = LookupLabels { kind, result };
                ConstCounter::new(count).encode(lookups.encode_family(&labels)?)?;
            }
        }
        let help = "Bytes that the cache keeps at the moment.";
        let mut sizes =
            encoder.encode_descriptor("ocimod_cache_size_bytes", help, None, MetricType::Gauge)?;
        for CacheNumbers { kind, bytes, .. } in &numbers {
            let labels = KindLabels { kind };
            ConstGauge::new(*bytes).encode(sizes.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// What the look through the registries leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchNumbers {
    /// Repositories that could not be read.
    pub repositories: u64,
    /// Registries that have more repositories than are looked through.
    pub registries: u64,
}

type SearchSource = Box<dyn Fn() -> SearchNumbers + Send + Sync>;

/// Asks the search for its numbers when Prometheus asks for them.
#[derive(Clone, Default)]
struct LeftOut(Arc<OnceLock<SearchSource>>);

impl Debug for LeftOut {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("LeftOut")
    }
}

impl Collector for LeftOut {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let SearchNumbers { repositories, registries } =
            self.0.get().map(|source| source()).unwrap_or_default();
        let help = "Repositories that could not be read when the registries were last looked through for embedded modules.";
        gauge(&mut encoder, "ocimod_search_unread_repositories", help, repositories)?;
        let help = "Registries with more repositories than are looked through for embedded modules.";
        gauge(&mut encoder, "ocimod_search_cut_registries", help, registries)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let histograms =
            || Family::<RouteLabels, Histogram, fn() -> Histogram>::new_with_constructor(histogram);
        let mut metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            in_flight: Gauge::default(),
            headers_seconds: histograms(),
            whole_seconds: histograms(),
            request_bytes: Family::default(),
            response_bytes: Family::default(),
            broken: Family::default(),
            refused: Family::default(),
            connections: Gauge::default(),
            registry_calls: Family::default(),
            registry_seconds: Family::new_with_constructor(histogram),
            registry_read: Family::default(),
            registry_written: Family::default(),
            module_downloads: Family::default(),
            provider_downloads: Family::default(),
            namespaces: Mutex::default(),
            caches: Caches::default(),
            left_out: LeftOut::default(),
        };
        metrics.register();
        // A series that begins with its first event hides that event from whoever asks for an increase.
        for refusal in [Refusal::Busy, Refusal::Connections, Refusal::SlowAnswer, Refusal::SlowBody] {
            drop(metrics.refused.get_or_create(&RefusalLabels { reason: refusal.as_str() }));
        }
        metrics
    }
}

impl Metrics {
    /// Names and explains every number. A counter's name gets `_total` when it is written.
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "ocimod_http_requests",
            "Requests that were answered, when the answer has gone out or broken off",
            self.requests.clone(),
        );
        registry.register(
            "ocimod_http_requests_in_flight",
            "Requests that are being answered, bodies included",
            self.in_flight.clone(),
        );
        registry.register(
            "ocimod_http_response_headers_seconds",
            "From a request's headers to those of its answer",
            self.headers_seconds.clone(),
        );
        registry.register(
            "ocimod_http_request_duration_seconds",
            "From a request's headers to the end of its answer",
            self.whole_seconds.clone(),
        );
        registry.register(
            "ocimod_http_request_body_bytes",
            "Bytes of request bodies that were read",
            self.request_bytes.clone(),
        );
        registry.register(
            "ocimod_http_response_body_bytes",
            "Bytes of answers' bodies that went out",
            self.response_bytes.clone(),
        );
        registry.register(
            "ocimod_http_responses_broken",
            "Answers that ended before their time: the caller went away, or what was sent turned out to be wrong",
            self.broken.clone(),
        );
        registry.register(
            "ocimod_http_refused",
            "Requests (and for the reason `connections` connections) that were refused to keep the server within its limits",
            self.refused.clone(),
        );
        registry.register("ocimod_http_connections", "Connections that are open", self.connections.clone());
        registry.register(
            "ocimod_registry_calls",
            "Calls of the registries behind this server, by what came of them",
            self.registry_calls.clone(),
        );
        registry.register(
            "ocimod_registry_call_duration_seconds",
            "How long a registry took to answer; for a blob, to begin",
            self.registry_seconds.clone(),
        );
        registry.register(
            "ocimod_registry_read_bytes",
            "Bytes of blobs that came from a registry",
            self.registry_read.clone(),
        );
        registry.register(
            "ocimod_registry_written_bytes",
            "Bytes of blobs that went to a registry",
            self.registry_written.clone(),
        );
        registry.register(
            "ocimod_module_downloads",
            "Links to a module's zip that were given, by the module's namespace; `other` beyond the first 200 namespaces",
            self.module_downloads.clone(),
        );
        registry.register(
            "ocimod_provider_downloads",
            "Lists of links to the zips of a provider's version that were given, by the provider's namespace; `other` as above",
            self.provider_downloads.clone(),
        );
        registry.register(
            "ocimod_build",
            "The program",
            Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") }),
        );
        registry.register_collector(Box::new(self.caches.clone()));
        registry.register_collector(Box::new(self.left_out.clone()));
        registry.register_collector(Box::new(Process { started: SystemTime::now() }));
    }

    /// Everything, as Prometheus reads it.
    fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Who is told of the calls of a registry. `name` is one of the settings, so there are few of them.
    pub fn observer(self: &Arc<Self>, name: &str) -> Arc<dyn Observer> {
        let labels = RegistryLabels { registry: name.into() };
        // As above: what alerts ask for is there before it happens.
        for operation in Operation::READS {
            for outcome in Outcome::ALL {
                let registry = Arc::clone(&labels.registry);
                let (operation, outcome) = (operation.as_str(), outcome.as_str());
                drop(self.registry_calls.get_or_create(&CallLabels { registry, operation, outcome }));
            }
        }
        Arc::new(RegistryObserver {
            read: self.registry_read.get_or_create_owned(&labels),
            written: self.registry_written.get_or_create_owned(&labels),
            metrics: Arc::clone(self),
            name: labels.registry,
        })
    }

    /// Where the numbers of the search come from; they are asked for whenever somebody reads the metrics. Only the first source counts.
    pub fn search(&self, source: impl Fn() -> SearchNumbers + Send + Sync + 'static) {
        let _ = self.left_out.0.set(Box::new(source));
    }

    /// Where the caches' numbers come from; they are asked for whenever somebody reads the metrics. Only the first source counts.
    pub fn caches(&self, source: impl Fn() -> Vec<CacheNumbers> + Send + Sync + 'static) {
        let _ = self.caches.0.set(Box::new(source));
    }

    /// A link to a module's zip was given, or those of a provider's version.
    pub(super) fn downloaded(&self, product: Product<'_>, namespace: &str) {
        let namespace = self.bounded(namespace);
        let downloads = match product {
            Product::Module(_) => &self.module_downloads,
            Product::Provider(_) => &self.provider_downloads,
        };
        downloads.get_or_create(&NamespaceLabels { namespace }).inc();
    }

    fn bounded(&self, namespace: &str) -> String {
        let mut known = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        let namespace = namespace.to_ascii_lowercase();
        if known.contains(&namespace) {
            namespace
        } else if known.len() < MAX_NAMESPACES {
            known.insert(namespace.clone());
            namespace
        } else {
            "other".to_owned()
        }
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refused.get_or_create(&RefusalLabels { reason: refusal.as_str() }).inc();
    }

    /// Counts something as there until the answer is dropped.
    pub(super) fn request_begins(self: &Arc<Self>) -> Present {
        Present::new(self, |metrics| &metrics.in_flight)
    }

    pub(super) fn connection_opens(self: &Arc<Self>) -> Present {
        Present::new(self, |metrics| &metrics.connections)
    }

    /// The numbers of one sort of answers, to be found once for many of them.
    pub(super) fn numbers(&self, route: &Arc<str>, method: &Method, status: StatusCode) -> AnswerNumbers {
        let (method, status) = (method_name(method), status.as_u16());
        let route = RouteLabels { route: Arc::clone(route) };
        let labels = RequestLabels { route: Arc::clone(&route.route), method, status };
        AnswerNumbers {
            requests: self.requests.get_or_create_owned(&labels),
            headers_seconds: self.headers_seconds.get_or_create_owned(&route),
            whole_seconds: self.whole_seconds.get_or_create_owned(&route),
            response_bytes: self.response_bytes.get_or_create_owned(&route),
        }
    }

    pub(super) fn request_ends(&self, ended: &Ended) {
        let numbers = self.numbers(&ended.route, &ended.method, ended.status);
        numbers.count(ended.until_headers, ended.duration, ended.response_bytes);
        let route = RouteLabels { route: Arc::clone(&ended.route) };
        if ended.request_bytes > 0 {
            self.request_bytes.get_or_create(&route).inc_by(ended.request_bytes);
        }
        if !ended.complete {
            self.broken.get_or_create(&route).inc();
        }
    }
}

/// The numbers that every answer has, of those with one route, method and status.
#[derive(Clone, Debug)]
pub(super) struct AnswerNumbers {
    requests: Counter,
    headers_seconds: Histogram,
    whole_seconds: Histogram,
    response_bytes: Counter,
}

impl AnswerNumbers {
    pub(super) fn count(&self, until_headers: Duration, duration: Duration, response_bytes: u64) {
        self.requests.inc();
        self.headers_seconds.observe(until_headers.as_secs_f64());
        self.whole_seconds.observe(duration.as_secs_f64());
        self.response_bytes.inc_by(response_bytes);
    }
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

/// Anybody may invent a method.
fn method_name(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|name| *name == method.as_str()).unwrap_or("other")
}

/// A request whose answer has gone out or broken off.
pub(super) struct Ended {
    pub(super) route: Arc<str>,
    pub(super) method: Method,
    pub(super) status: StatusCode,
    pub(super) until_headers: Duration,
    pub(super) duration: Duration,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    pub(super) complete: bool,
}

/// Something that is there as long as this is.
pub(super) struct Present(Gauge);

impl Present {
    fn new(metrics: &Metrics, gauge: fn(&Metrics) -> &Gauge) -> Self {
        let gauge = gauge(metrics).clone();
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts the calls of one registry.
struct RegistryObserver {
    metrics: Arc<Metrics>,
    name: Arc<str>,
    read: Counter,
    written: Counter,
}

impl Observer for RegistryObserver {
    fn called(&self, operation: Operation, outcome: Outcome, duration: Duration) {
        let (registry, operation) = (Arc::clone(&self.name), operation.as_str());
        let labels = CallLabels { registry: Arc::clone(&registry), operation, outcome: outcome.as_str() };
        self.metrics.registry_calls.get_or_create(&labels).inc();
        let labels = OperationLabels { registry, operation };
        self.metrics.registry_seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    fn read(&self, bytes: u64) {
        self.read.inc_by(bytes);
    }

    fn written(&self, bytes: u64) {
        self.written.inc_by(bytes);
    }
}

/// What Prometheus' own clients say of a process, under the names that every dashboard knows. Linux tells it in files; elsewhere only
/// the time of the start is known.
#[derive(Debug)]
struct Process {
    started: SystemTime,
}

/// What the kernel counts processor time in, in these files; 100 on every platform that Linux still runs on.
const TICKS_PER_SECOND: f64 = 100.0;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let started = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        gauge(
            &mut encoder,
            "process_start_time_seconds",
            "When the process began, in seconds since 1970.",
            started,
        )?;
        if let Some(bytes) = resident_bytes() {
            gauge(&mut encoder, "process_resident_memory_bytes", "Memory that the process occupies.", bytes)?;
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            // The folder itself is open while it is counted.
            let open = files.count().saturating_sub(1) as u64;
            gauge(&mut encoder, "process_open_fds", "Files and connections that are open.", open)?;
        }
        if let Some(most) = super::limits::open_files() {
            gauge(&mut encoder, "process_max_fds", "Files and connections that may be open.", most)?;
        }
        if let Some(seconds) = processor_seconds() {
            let help = "Processor time that the process took.";
            let counter = ConstCounter::new(seconds);
            let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

fn gauge<N>(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: N) -> fmt::Result
where
    ConstGauge<N>: EncodeMetric,
{
    let metric = encoder.encode_descriptor(name, help, None, ConstGauge::<u64>::TYPE)?;
    ConstGauge::new(value).encode(metric)
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name stands in brackets and may hold anything; the fields behind it are counted from 3 (proc(5)).
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(14 - 3);
    let user = fields.next()?.parse::<u32>().ok()?;
    let system = fields.next()?.parse::<u32>().ok()?;
    Some((f64::from(user) + f64::from(system)) / TICKS_PER_SECOND)
}

/// `/metrics`
pub(super) async fn serve(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let text = app.metrics.text().map_err(|error| ApiError::Unbuildable(Box::new(error)))?;
    let headers = [(header::CONTENT_TYPE, CONTENT_TYPE), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, text).into_response())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The names in a text of metrics, with what their sort is written with.
    fn families(text: &str) -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        lines
            .map(|(name, kind)| match kind {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            })
            .collect()
    }

    /// What is promised to who builds dashboards and alerts.
    #[test]
    fn the_guide_for_operators_names_every_metric_and_no_other() {
        let metrics = Arc::new(Metrics::default());
        metrics.downloaded(Product::Module("acme/vpc/aws"), "acme");
        metrics.downloaded(Product::Provider("registry.opentofu.org/acme/time"), "acme");
        metrics.observer("dir").called(Operation::Tags, Outcome::Ok, Duration::ZERO);
        metrics.request_ends(&Ended {
            route: "/".into(),
            method: Method::POST,
            status: StatusCode::OK,
            until_headers: Duration::ZERO,
            duration: Duration::ZERO,
            request_bytes: 1,
            response_bytes: 1,
            complete: false,
        });
        let written = families(&metrics.text().expect("it can be written"));
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating.md");
        let guide = std::fs::read_to_string(guide).expect("the guide is there");
        let rows = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let names = rows.filter(|name| name.starts_with("ocimod_") || name.starts_with("process_"));
        let documented = names.map(str::to_owned).collect::<BTreeSet<_>>();
        if cfg!(target_os = "linux") {
            assert_eq!(documented, written);
        }
        let is_of_a_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let words = guide.split(|character| !is_of_a_name(character));
        for word in words.filter(|word| word.starts_with("ocimod_")) {
            let bare = ["_bucket", "_count", "_sum"].iter().find_map(|ending| word.strip_suffix(ending));
            assert!(documented.contains(bare.unwrap_or(word)), "{word}");
        }
    }

    #[test]
    fn no_stranger_makes_a_series() {
        let metrics = Metrics::default();
        for number in 0..MAX_NAMESPACES * 2 {
            metrics.downloaded(Product::Module("x"), &format!("namespace-{number}"));
        }
        metrics.downloaded(Product::Module("x"), "Namespace-0");
        let text = metrics.text().expect("it can be written");
        assert_eq!(text.matches("ocimod_module_downloads_total{").count(), MAX_NAMESPACES + 1);
        assert!(text.contains("ocimod_module_downloads_total{namespace=\"namespace-0\"} 2\n"));
        assert!(text.contains("ocimod_module_downloads_total{namespace=\"other\"} 200\n"));
        let invented = Method::from_bytes(b"INVENTED").expect("a method");
        assert_eq!((method_name(&invented), method_name(&Method::PATCH)), ("other", "PATCH"));
    }

    #[test]
    fn what_a_cache_and_the_search_say_is_shown_when_it_is_asked_for() {
        let metrics = Metrics::default();
        metrics.caches(|| vec![CacheNumbers { kind: "tag", hits: 3, misses: 2, stale: 1, bytes: 40 }]);
        metrics.search(|| SearchNumbers { repositories: 2, registries: 1 });
        let text = metrics.text().expect("it can be written");
        for line in [
            "ocimod_search_unread_repositories 2\n",
            "ocimod_search_cut_registries 1\n",
            "ocimod_cache_lookups_total{kind=\"tag\",result=\"hit\"} 3\n",
            "ocimod_cache_lookups_total{kind=\"tag\",result=\"miss\"} 2\n",
            "ocimod_cache_lookups_total{kind=\"tag\",result=\"stale\"} 1\n",
            "ocimod_cache_size_bytes{kind=\"tag\"} 40\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn calls_of_a_registry_are_counted_by_name_operation_and_outcome() {
        let metrics = Arc::new(Metrics::default());
        let observer = metrics.observer("ghcr.io");
        observer.called(Operation::Tags, Outcome::TooManyRequests, Duration::from_millis(3));
        observer.read(7);
        let text = metrics.text().expect("it can be written");
        for line in [
            "ocimod_registry_calls_total{registry=\"ghcr.io\",operation=\"tags\",outcome=\"too_many_requests\"} 1\n",
            "ocimod_registry_call_duration_seconds_count{registry=\"ghcr.io\",operation=\"tags\"} 1\n",
            "ocimod_registry_read_bytes_total{registry=\"ghcr.io\"} 7\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
