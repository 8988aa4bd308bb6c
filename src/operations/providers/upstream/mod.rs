//! Providers that the registry lacks, looked up at their origins by the provider registry protocol.
//!
//! It is off unless an operator says for which providers it is on: a server that fetches what strangers name would fetch anything. So an
//! origin is a host that the operator has written out, and callers choose among its providers alone. An origin is asked for documents when
//! a client asks for a list, within the time that a client waits, and for a zip when somebody wants it. What an origin says of a zip is its
//! checksum in `SHA256SUMS`; where it names keys, that has to be signed by one of them. Nobody is shown a credential.
//!
//! What an origin does not answer is not made up for: while it is away, what is stored is all there is. A list that named more would
//! have clients choose a version that nobody can give them.

mod fetch;
mod openpgp;
mod origin;
mod protocol;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use moka::future::Cache;
use tokio::sync::{Semaphore, watch};

use crate::module::{Host, ProviderAddress, ProviderPlatform, Version};
use crate::oci::Digest;
use crate::registry::RegistryError;
use crate::registry::remote::Proxies;

use super::super::error::{OperationError, Result};
use super::super::pattern::{Pattern, PatternError};
use super::super::routes::Routes;
use fetch::Progress;
pub use fetch::{Arriving, Wanted};
use origin::Origin;
use protocol::Versions;

/// A client waits 10 s for a list and does not ask again. What is stored is looked at meanwhile, and some of it after.
const DEADLINE: Duration = Duration::from_secs(6);
/// How long an answer is waited for behind the back of clients, who have it the next time.
const LONGEST: Duration = Duration::from_secs(30);
/// How long what an origin said counts as what it says. Long enough that many jobs at once cause one request, short enough that a release is
/// there when somebody has read of it.
const FRESH: Duration = Duration::from_mins(1);
/// How long an origin that did not answer is not asked the same again: clients would wait for it one by one.
const AWAY: Duration = Duration::from_secs(10);
/// How long counts where an origin says that its protocol is spoken.
const DISCOVERED: Duration = Duration::from_mins(10);
/// About how much memory answers of one sort take.
const MAX_KEPT: u64 = 32 << 20;
/// Documents that are asked for at once, of all origins; whoever wants another one waits.
const MAX_ASKED: usize = 16;
/// Zips that are on the disk at once, until the last reader has them.
const MAX_ZIPS: usize = 8;
/// Zips that are fetched or waited for.
const MAX_QUEUE: usize = 64;

/// The providers of one host that are looked up: `registry.opentofu.org/hashicorp/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    host: Host,
    /// Of `HOST/NAMESPACE/TYPE`.
    pattern: Pattern,
}

/// The text does not say which providers are meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowedError {
    /// No host is written out. Callers would choose which machines are asked.
    #[error(
        "`{0}` names no host: write it out, and behind it `*` for whatever is there, such as `registry.opentofu.org/*`"
    )]
    Host(String),
    /// It is no pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl FromStr for Allowed {
    type Err = AllowedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pattern: Pattern = text.parse()?;
        let host = text.split_once('/').filter(|(host, _)| !host.contains(':'));
        let host = host.and_then(|(host, _)| Host::parse(host).ok());
        Ok(Self { host: host.ok_or_else(|| AllowedError::Host(text.to_owned()))?, pattern })
    }
}

impl Allowed {
    fn allows(&self, address: &ProviderAddress) -> bool {
        *address.host() == self.host && self.pattern.matches(&address.to_string().to_ascii_lowercase())
    }
}

/// What to look up, and how.
#[derive(Clone, Debug)]
pub struct UpstreamOptions {
    /// The providers that are looked up.
    pub allow: Vec<Allowed>,
    /// What stands between us and origins.
    pub proxies: Proxies,
    /// Where zips are while they come.
    pub folder: PathBuf,
}

/// The origins.
pub struct Upstream {
    options: UpstreamOptions,
    /// Where what was fetched is kept.
    routes: Routes,
    origins: Recent<Host, Arc<Origin>>,
    versions: Recent<ProviderAddress, Option<Arc<Versions>>>,
    releases: Recent<(ProviderAddress, Version), Option<Arc<Release>>>,
    asking: Semaphore,
    fetches: Mutex<HashMap<Wanted, watch::Receiver<Progress>>>,
    zips: Arc<Semaphore>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Upstream").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What an origin has of a version.
#[derive(Debug)]
pub struct Release {
    /// The zips by their systems.
    pub packages: BTreeMap<ProviderPlatform, Digest>,
}

impl Upstream {
    /// With nothing known yet. What is fetched is kept by `routes`, which must know of every push by others: a memory in between
    /// would have one replica overwrite what another one has added.
    pub fn new(options: UpstreamOptions, routes: Routes) -> Self {
        let of_versions = |versions: &Option<Arc<Versions>>| {
            versions
                .iter()
                .flat_map(|versions| versions.values())
                .map(|systems| 128 + 96 * systems.len())
                .sum()
        };
        let of_release =
            |release: &Option<Arc<Release>>| release.iter().map(|release| 256 * release.packages.len()).sum();
        Self {
            options,
            routes,
            origins: Recent::new(DISCOVERED, |_| 64 * 1024),
            versions: Recent::new(FRESH, of_versions),
            releases: Recent::new(FRESH, of_release),
            asking: Semaphore::new(MAX_ASKED),
            fetches: Mutex::default(),
            zips: Arc::new(Semaphore::new(MAX_ZIPS)),
        }
    }

    /// Whether a provider is one of those that are looked up.
    pub fn allows(&self, address: &ProviderAddress) -> bool {
        self.options.allow.iter().any(|allowed| allowed.allows(address))
    }

    async fn origin(self: &Arc<Self>, host: &Host) -> Result<Arc<Origin>> {
        let (this, asked) = (Arc::clone(self), host.clone());
        let ask =
            async move { Origin::discover(&asked, &this.options.proxies, &this.asking).await.map(Arc::new) };
        self.origins.get(host, ask.boxed()).await
    }

    /// The versions that the origin of a provider has; `None` where it has no such provider.
    pub async fn versions(self: &Arc<Self>, address: &ProviderAddress) -> Result<Option<Arc<Versions>>> {
        let (this, asked) = (Arc::clone(self), address.clone());
        let ask = async move {
            let origin = this.origin(asked.host()).await?;
            Ok(origin.versions(&asked, &this.asking).await?.map(Arc::new))
        };
        self.versions.get(address, ask.boxed()).await
    }

    /// The zips of a version at its origin, by the signed list of their checksums; `None` where it has no such version.
    pub async fn release(
        self: &Arc<Self>,
        address: &ProviderAddress,
        version: &Version,
    ) -> Result<Option<Arc<Release>>> {
        let key = (address.clone(), version.clone());
        let (this, (address, version)) = (Arc::clone(self), key.clone());
        let ask = async move {
            let versions = this.versions(&address).await?;
            let Some(systems) = versions.as_ref().and_then(|versions| versions.get(&version)) else {
                return Ok(None);
            };
            let origin = this.origin(address.host()).await?;
            let packages = origin.packages(&address, &version, systems, &this.asking).await?;
            Ok(Some(Arc::new(Release { packages })))
        };
        self.releases.get(&key, ask.boxed()).await
    }
}

/// Answers that count for a while.
struct Recent<K, V> {
    answers: Cache<K, V>,
    /// Why there was none, where it may pass.
    failures: Cache<K, Arc<OperationError>>,
}

impl<K, V> Recent<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn new(fresh: Duration, size: impl Fn(&V) -> usize + Send + Sync + 'static) -> Self {
        // A name and what the memory itself needs.
        let weigh = move |_: &K, value: &V| u32::try_from(1024 + size(value)).unwrap_or(u32::MAX);
        let answers = Cache::builder().max_capacity(MAX_KEPT).weigher(weigh).time_to_live(fresh).build();
        let failures = Cache::builder().max_capacity(1_000).time_to_live(AWAY).build();
        Self { answers, failures }
    }

    /// The answer that is known, or what `ask` answers; callers at once share one question. It is asked to its end even where they
    /// wait no longer, so that a slow origin is of use to the next one.
    async fn get(&self, key: &K, ask: BoxFuture<'static, Result<V>>) -> Result<V> {
        if let Some(answer) = self.answers.get(key).await {
            return Ok(answer);
        }
        if let Some(error) = self.failures.get(key).await {
            return Err(OperationError::Shared(error));
        }
        let (answers, failures, key) = (self.answers.clone(), self.failures.clone(), key.clone());
        let asking = tokio::spawn(async move {
            let bounded =
                async { tokio::time::timeout(LONGEST, ask).await.unwrap_or_else(|_| Err(too_slow())) };
            let answer = answers.try_get_with_by_ref(&key, Box::pin(bounded)).await;
            if let Err(error) = &answer
                && error.is_passing()
            {
                failures.insert(key, Arc::clone(error)).await;
            }
            answer
        });
        match tokio::time::timeout(DEADLINE, asking).await {
            Ok(Ok(answer)) => answer.map_err(OperationError::Shared),
            Ok(Err(_)) => Err(unavailable("it could not be asked")),
            Err(_) => Err(too_slow()),
        }
    }
}

fn too_slow() -> OperationError {
    unavailable("it does not answer in time")
}

fn unavailable(reason: &str) -> OperationError {
    let registry = "the origin".to_owned();
    let error = RegistryError::Unavailable { registry: registry.clone(), reason: reason.to_owned() };
    OperationError::registry(registry)(error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn what_is_allowed_is_on_a_host_that_is_written_out() {
        let allows = |text: &str, address: &str| {
            text.parse::<Allowed>().unwrap().allows(&ProviderAddress::parse(address).unwrap())
        };
        for (text, address) in [
            ("registry.opentofu.org/*", "hashicorp/time"),
            ("registry.opentofu.org/hashicorp/*", "HashiCorp/Time"),
            ("registry.opentofu.org/*/time", "hashicorp/time"),
            ("tf.acme.example/acme/tool", "tf.acme.example/acme/tool"),
        ] {
            assert!(allows(text, address), "{text}: {address}");
        }
        for (text, address) in [
            ("registry.opentofu.org/hashicorp/*", "other/time"),
            ("registry.opentofu.org/hashicorp/*", "registry.terraform.io/hashicorp/time"),
            ("registry.opentofu.org/hashicorp/time", "hashicorp/times"),
        ] {
            assert!(!allows(text, address), "{text}: {address}");
        }
        for text in ["*", "*/hashicorp/*", "registry.*/hashicorp/*", "registry.opentofu.org", "a_b/c/*"] {
            let error = text.parse::<Allowed>().unwrap_err();
            assert!(matches!(error, AllowedError::Host(_)), "{text}: {error}");
        }
        for text in ["", "A.example/*", "a.example:8443/*", "a.example//x"] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn who_goes_away_leaves_the_question_to_be_answered() {
        let recent: Recent<u8, u8> = Recent::new(FRESH, |_| 0);
        let (start, started) = oneshot::channel();
        let (open, gate) = oneshot::channel::<()>();
        let slow = async move {
            let _ = start.send(());
            let _ = gate.await;
            Ok(7)
        };
        tokio::select! {
            answer = recent.get(&1, slow.boxed()) => panic!("{answer:?}"),
            started = started => started.unwrap(),
        }
        open.send(()).unwrap();
        assert_eq!(recent.get(&1, async { Err(too_slow()) }.boxed()).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn who_did_not_answer_is_not_asked_again_at_once_and_who_was_refused_is() {
        let recent: Recent<u8, u8> = Recent::new(FRESH, |_| 0);
        assert!(recent.get(&1, async { Err(too_slow()) }.boxed()).await.is_err());
        assert!(recent.get(&1, async { Ok(7) }.boxed()).await.is_err());
        let refused = async { Err(OperationError::Refused(Vec::new())) };
        assert!(recent.get(&2, refused.boxed()).await.is_err());
        assert_eq!(recent.get(&2, async { Ok(7) }.boxed()).await.unwrap(), 7);
    }
}
