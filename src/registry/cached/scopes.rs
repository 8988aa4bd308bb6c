//! Which copies of a repository still count. A copy's key holds a number of its repository; where the number is raised, the
//! copies under the earlier one are out of reach at once, also those that are still on their way.
//!
//! That is how a write is seen by whoever asks after it, though an answer from before it may arrive later.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

/// Repositories of which something is remembered: about 6 MB. Where there are more, all start anew, and their copies are
/// fetched again.
const REMEMBERED: usize = 65_536;

/// A name of fixed length for anything that is said with several words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(pub(super) [u8; 32]);

impl Name {
    pub(super) fn of(words: &[&str]) -> Self {
        let mut hasher = Sha256::new();
        for word in words {
            // No word that is used here holds a zero: names, tags and digests have alphabets of their own.
            hasher.update(word.as_bytes());
            hasher.update([0]);
        }
        Self(hasher.finalize().into())
    }

    /// As part of a path.
    pub(super) fn hex(&self) -> String {
        hex::encode(self.0)
    }
}

/// What a copy is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) name: Name,
    /// Of [`Standing`]; zero for what never changes.
    pub(super) epoch: u64,
}

/// Which copies of a repository count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Of lists, and of what tags point at.
    pub(super) tags: u64,
    /// Of what is in the repository by digest.
    pub(super) contents: u64,
    /// Whether the registry has let this process read here since: what is on disk may come from one with other rights.
    pub(super) is_proven: bool,
    /// Whether manifests of it were kept.
    pub(super) has_manifests: bool,
}

#[derive(Default)]
struct State {
    last: u64,
    /// What those have that nothing is remembered of.
    floor: u64,
    by_scope: HashMap<Name, Standing>,
}

impl State {
    fn standing(&mut self, scope: Name) -> &mut Standing {
        if self.by_scope.len() >= REMEMBERED && !self.by_scope.contains_key(&scope) {
            self.by_scope.clear();
            self.last += 1;
            self.floor = self.last;
        }
        let fresh =
            Standing { tags: self.floor, contents: self.floor, is_proven: false, has_manifests: false };
        self.by_scope.entry(scope).or_insert(fresh)
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The repositories of all registries behind a cache.
#[derive(Default)]
pub(super) struct Scopes(Mutex<State>);

impl Scopes {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn standing(&self, scope: Name) -> Standing {
        self.change(|state| {
            let unknown =
                Standing { tags: state.floor, contents: state.floor, is_proven: false, has_manifests: false };
            state.by_scope.get(&scope).copied().unwrap_or(unknown)
        })
    }

    /// Tags or lists have changed.
    pub(super) fn tags_changed(&self, scope: Name) {
        self.change(|state| {
            let next = state.next();
            state.standing(scope).tags = next;
        });
    }

    /// Something was taken out of the repository.
    pub(super) fn contents_changed(&self, scope: Name) {
        self.change(|state| {
            let next = state.next();
            let standing = state.standing(scope);
            (standing.tags, standing.contents) = (next, next);
        });
    }

    /// The registry lets nobody read here, or not us. `false` where that was known and nothing is kept.
    pub(super) fn revoked(&self, scope: Name) -> bool {
        let is_news = self.change(|state| std::mem::take(&mut state.standing(scope).is_proven));
        if is_news {
            self.contents_changed(scope);
        }
        is_news
    }

    /// Manifests of it are kept from now on.
    pub(super) fn manifests_come(&self, scope: Name) {
        self.change(|state| state.standing(scope).has_manifests = true);
    }

    /// The registry has answered a question that was asked while the repository stood like that.
    pub(super) fn proven(&self, scope: Name, asked: Standing) {
        self.change(|state| {
            let standing = state.standing(scope);
            if standing.contents == asked.contents {
                standing.is_proven = true;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_apart() {
        assert_ne!(Name::of(&["a", "bc"]), Name::of(&["ab", "c"]));
        assert_ne!(Name::of(&["a"]), Name::of(&["a", ""]));
    }

    #[test]
    fn numbers_only_rise() {
        let scopes = Scopes::default();
        let one = Name::of(&["one"]);
        let first = scopes.standing(one);
        scopes.proven(one, first);
        assert!(scopes.standing(one).is_proven);
        scopes.tags_changed(one);
        let second = scopes.standing(one);
        assert!(second.tags > first.tags && second.contents == first.contents && second.is_proven);
        assert!(scopes.revoked(one));
        assert!(!scopes.revoked(one), "known");
        let third = scopes.standing(one);
        assert!(third.tags > second.tags && third.contents > second.contents && !third.is_proven);
        scopes.proven(one, second);
        assert!(!scopes.standing(one).is_proven, "an answer from before does not count");
        for number in 0..=REMEMBERED {
            let name = Name::of(&[&number.to_string()]);
            scopes.proven(name, scopes.standing(name));
        }
        let last = scopes.standing(one);
        assert!(last.tags > third.tags && last.contents > third.contents && !last.is_proven);
    }
}
