//! What files and helpers said, for as long as it is worth something: a server runs for months, and its credentials do not.
//!
//! A file is looked at again every second while there are requests, and read where it has changed; one that has become
//! unreadable leaves in force what was read before, as whoever edits it may be in the middle of it. A helper is asked again
//! after some minutes, before what it gave runs out, and when the registry has refused that. It is asked by one caller at a
//! time, and not more often than a registry that refuses everything would have it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::environment::{CredentialEnvironment, Kind, Place};
use super::file::{BASE64, CredentialFile};
use super::helper::Helper;
use super::{Credential, CredentialError};
use crate::registry::whole_file::{self, Stamp};

/// Credential files are written by `login` commands: a few entries of a few hundred bytes.
pub(super) const MAX_FILE_SIZE: u64 = 1024 * 1024;
/// A helper may ask a person to unlock a keychain.
pub(super) const HELPER_TIMEOUT: Duration = Duration::from_mins(1);
/// More servers and helpers than one process works with; the memory is emptied then.
const MAX_HELPERS: usize = 256;

/// How long things are believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// A file's stamp.
    pub(super) look_every: Duration,
    /// What a helper said: it may be good for less time than the helper knows to say.
    pub(super) helper_life: Duration,
    /// Between two questions to one helper about one server.
    pub(super) helper_rest: Duration,
    /// How long before it runs out a credential is taken for run out.
    pub(super) margin: Duration,
    /// How long a helper may take.
    pub(super) helper_timeout: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            look_every: Duration::from_secs(1),
            helper_life: Duration::from_mins(5),
            helper_rest: Duration::from_secs(10),
            margin: Duration::from_mins(1),
            helper_timeout: HELPER_TIMEOUT,
        }
    }
}

/// A file that was there, with where it is.
pub(super) type Read = (Place, Arc<CredentialFile>);

/// Files and helpers of one environment.
pub(super) struct Kept {
    environment: CredentialEnvironment,
    /// What the variable holds that goes before every file.
    variable: Result<Option<CredentialFile>, CredentialError>,
    pace: Pace,
    files: tokio::sync::Mutex<Files>,
    /// Whether files are looked at before they are due.
    look_now: std::sync::atomic::AtomicBool,
    helpers: Mutex<HashMap<(String, String), Slot>>,
}

#[derive(Default)]
struct Files {
    looked: Option<Instant>,
    by_path: HashMap<PathBuf, Seen>,
    found: Arc<Vec<Read>>,
}

/// What is known of one file.
#[derive(Clone, Default)]
struct Seen {
    /// `None` where it could not be read, was being written, or is not there.
    stamp: Option<Stamp>,
    content: Option<Arc<CredentialFile>>,
    /// What was last said of it, so that it is said once.
    complaint: Option<String>,
}

/// What one helper said of one server; whoever needs it waits for the one who asks.
type Slot = Arc<tokio::sync::Mutex<Option<Answer>>>;

struct Answer {
    outcome: Result<Option<Credential>, CredentialError>,
    asked: Instant,
    until: Instant,
    /// The registry has refused it.
    is_doubted: bool,
    /// It was told in the log that the helper fails.
    is_told: bool,
}

impl Kept {
    pub(super) fn new(environment: CredentialEnvironment, pace: Pace) -> Self {
        Self {
            variable: super::read_variable(&environment),
            environment,
            pace,
            files: tokio::sync::Mutex::default(),
            look_now: false.into(),
            helpers: Mutex::default(),
        }
    }

    /// What stands in the variable.
    pub(super) fn variable(&self) -> Result<Option<&CredentialFile>, CredentialError> {
        self.variable.as_ref().map(Option::as_ref).map_err(CredentialError::clone)
    }

    /// Every file that is there, in order.
    pub(super) async fn files(&self) -> Result<Arc<Vec<Read>>, CredentialError> {
        let mut files = self.files.lock().await;
        let is_wanted = self.look_now.swap(false, std::sync::atomic::Ordering::Relaxed);
        if !is_wanted && files.looked.is_some_and(|looked| looked.elapsed() < self.pace.look_every) {
            return Ok(Arc::clone(&files.found));
        }
        let (places, known) = (self.environment.places_to_read(), files.by_path.clone());
        let looked = tokio::task::spawn_blocking(move || look(places, known)).await;
        let (found, by_path) = looked.map_err(|error| CredentialError::Unreadable {
            path: PathBuf::from("of the user"),
            source: io::Error::other(error.to_string()).into(),
        })??;
        *files = Files { looked: Some(Instant::now()), by_path, found: Arc::new(found) };
        Ok(Arc::clone(&files.found))
    }

    /// What a helper says of a server.
    pub(super) async fn ask(
        &self,
        helper: &str,
        server: &str,
    ) -> Result<Option<Credential>, CredentialError> {
        let slot = self.slot(helper, server);
        let mut slot = slot.lock().await;
        if let Some(answer) = &*slot {
            let is_good = Instant::now() < answer.until && !answer.is_doubted;
            if is_good || answer.asked.elapsed() < self.pace.helper_rest {
                return answer.outcome.clone();
            }
        }
        let asked = Helper::find(&self.environment, helper, self.pace.helper_timeout);
        let outcome = match asked {
            Ok(helper) => helper.get(server).await,
            Err(error) => Err(error),
        };
        let now = Instant::now();
        if let (Err(error), Some(answer)) = (&outcome, &mut *slot)
            && matches!(answer.outcome, Ok(Some(_)))
            && !answer.is_doubted
        {
            if !answer.is_told {
                tracing::warn!("{error}; what it said before stays in use");
            }
            (answer.asked, answer.until, answer.is_told) = (now, now, true);
            return answer.outcome.clone();
        }
        let life = match &outcome {
            Ok(Some(credential)) => self.life(credential),
            Ok(None) => self.pace.helper_life,
            Err(_) => Duration::ZERO,
        };
        *slot = Some(Answer {
            outcome: outcome.clone(),
            asked: now,
            until: now + life,
            is_doubted: false,
            is_told: false,
        });
        outcome
    }

    /// For how long a helper's credential is used without asking again.
    fn life(&self, credential: &Credential) -> Duration {
        let secret = match credential {
            Credential::Basic { password, .. } => password,
            Credential::IdentityToken { token, .. } | Credential::Bearer(token) => token,
            Credential::Anonymous => return self.pace.helper_life,
        };
        let left = expiry(secret).map(|expiry| {
            expiry.duration_since(SystemTime::now()).unwrap_or_default().saturating_sub(self.pace.margin)
        });
        left.map_or(self.pace.helper_life, |left| left.min(self.pace.helper_life))
    }

    /// The registry did not take what was said of it: files are looked at and helpers asked again.
    pub(super) fn doubt(&self, server: &str) {
        self.look_now.store(true, std::sync::atomic::Ordering::Relaxed);
        let helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, slot) in helpers.iter().filter(|((_, known), _)| known == server) {
            // Where it is held, somebody is asking.
            if let Ok(mut slot) = slot.try_lock()
                && let Some(answer) = &mut *slot
            {
                answer.is_doubted = true;
            }
        }
    }

    fn slot(&self, helper: &str, server: &str) -> Slot {
        let key = (helper.to_owned(), server.to_owned());
        let mut helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        if helpers.len() >= MAX_HELPERS && !helpers.contains_key(&key) {
            helpers.clear();
        }
        Arc::clone(helpers.entry(key).or_default())
    }
}

/// What is in the files now, and what to know of them the next time. Blocks.
type Looked = Result<(Vec<Read>, HashMap<PathBuf, Seen>), CredentialError>;

fn look(places: Vec<Place>, mut known: HashMap<PathBuf, Seen>) -> Looked {
    let mut found = Vec::new();
    for place in places {
        let before = known.remove(&place.path).unwrap_or_default();
        let seen = look_at(&place, before)?;
        if let Some(content) = &seen.content {
            found.push((place.clone(), Arc::clone(content)));
        }
        known.insert(place.path, seen);
    }
    Ok((found, known))
}

fn look_at(place: &Place, before: Seen) -> Result<Seen, CredentialError> {
    let stamp = std::fs::metadata(&place.path).ok().map(|metadata| Stamp::of(&metadata));
    if stamp.is_some() && stamp == before.stamp {
        return Ok(before);
    }
    match read_file(place) {
        Ok(Some((content, stamp))) => Ok(Seen { stamp, content: Some(Arc::new(content)), complaint: None }),
        Ok(None) => Ok(Seen::default()),
        Err(error) if before.content.is_some() => {
            let complaint = error.to_string();
            if before.complaint.as_ref() != Some(&complaint) {
                tracing::warn!("{complaint}; what was read before stays in force");
            }
            Ok(Seen { stamp: None, complaint: Some(complaint), ..before })
        }
        Err(error) => Err(error),
    }
}

/// A file, and its stamp where that can be relied upon; `None` where there is none. Blocks.
pub(super) fn read_file(place: &Place) -> Result<Option<(CredentialFile, Option<Stamp>)>, CredentialError> {
    let invalid = || match place.kind {
        Kind::Cue => CredentialError::InvalidCueLogins { path: place.path.clone() },
        _ => CredentialError::Invalid { path: place.path.clone() },
    };
    match whole_file::read(&place.path, MAX_FILE_SIZE) {
        Ok(Some((bytes, stamp))) => {
            let content = CredentialFile::parse(&bytes, place.kind).ok_or_else(invalid)?;
            Ok(Some((content, stamp)))
        }
        Ok(None) => Err(invalid()),
        Err(error) if is_absence(&error) => Ok(None),
        Err(source) => Err(CredentialError::Unreadable { path: place.path.clone(), source: source.into() }),
    }
}

/// Whether there is no such file.
pub(super) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether there is such a file.
pub(super) fn exists(path: &Path) -> bool {
    !std::fs::metadata(path).is_err_and(|error| is_absence(&error))
}

/// When a secret runs out, where it says so: a JWT by `exp`; ECR's passwords are JSON in base64 with `expiration`.
fn expiry(secret: &str) -> Option<SystemTime> {
    let (json, field) = match secret.split('.').collect::<Vec<_>>()[..] {
        [_, payload, _] => (URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?, "exp"),
        [whole] => (BASE64.decode(whole).ok()?, "expiration"),
        _ => return None,
    };
    let json: serde_json::Value = serde_json::from_slice(&json).ok()?;
    let seconds = json.get(field)?.as_f64().filter(|seconds| *seconds >= 0.0)?;
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn secrets_that_say_when_they_run_out_are_understood() {
        let jwt = |payload: &str| format!("h.{}.s", URL_SAFE_NO_PAD.encode(payload));
        let at = |seconds: u64| Some(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(expiry(&jwt(r#"{"exp":1700000000}"#)), at(1_700_000_000));
        assert_eq!(expiry(&jwt(r#"{"exp":1700000000.0}"#)), at(1_700_000_000));
        let ecr = STANDARD.encode(r#"{"payload":"x","version":"2","expiration":1700000000}"#);
        assert_eq!(expiry(&ecr), at(1_700_000_000));
        for secret in [
            "",
            "password",
            "a.b",
            "a.b.c",
            "a.b.c.d",
            "!!.!!.!!",
            &jwt("{}"),
            &jwt(r#"{"exp":"1700000000"}"#),
            &jwt(r#"{"exp":-1}"#),
            &jwt(r#"{"exp":1e300}"#),
            &jwt("[1]"),
            &STANDARD.encode("[]"),
        ] {
            assert_eq!(expiry(secret), None, "{secret}");
        }
    }
}
