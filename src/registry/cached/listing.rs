//! A whole list, and the pages of it that callers ask for.

use crate::oci::{Repository, Tag};
use crate::registry::{Page, PageRequest};

/// What an entry takes in memory beside its text: the pointer to it, its length, and what the allocator adds.
const ENTRY_SIZE: usize = 40;

/// An entry of a list, as it is written.
pub(super) trait Entry: Clone {
    fn text(&self) -> &str;
}

impl Entry for Tag {
    fn text(&self) -> &str {
        self.as_str()
    }
}

impl Entry for Repository {
    fn text(&self) -> &str {
        self.as_str()
    }
}

/// A list as the registry gave it.
pub(super) struct Listing<T> {
    entries: Vec<T>,
    /// By their texts, each once.
    is_sorted: bool,
}

impl<T: Entry> Listing<T> {
    pub(super) fn new(mut entries: Vec<T>) -> Self {
        entries.shrink_to_fit();
        let is_sorted = entries.is_sorted_by(|one, other| one.text() < other.text());
        Self { entries, is_sorted }
    }

    /// About how much memory it takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.entries.iter().map(|entry| entry.text().len() + ENTRY_SIZE).sum()
    }

    /// All of it, in its own order.
    pub(super) fn entries(&self) -> &[T] {
        &self.entries
    }

    /// A part of it, in its own order. `after` is an entry, or in a sorted list any text.
    pub(super) fn page(&self, request: &PageRequest) -> Page<T> {
        let left = match &request.after {
            None => &self.entries[..],
            Some(after) if self.is_sorted => {
                &self.entries[self.entries.partition_point(|entry| entry.text() <= after.as_str())..]
            }
            // Where the entry has gone from a list without order nobody can say what came after it. Then a caller is given
            // some twice, rather than none of the rest.
            Some(after) => {
                let found = self.entries.iter().position(|entry| entry.text() == after);
                &self.entries[found.map_or(0, |found| found + 1)..]
            }
        };
        let items = &left[..request.count.unwrap_or(left.len()).min(left.len())];
        let has_more = items.len() < left.len();
        let next = items.last().filter(|_| has_more).map(|last| last.text().to_owned());
        Page { items: items.to_vec(), next }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn page(listing: &Listing<Tag>, count: Option<usize>, after: Option<&str>) -> (String, Option<String>) {
        let page = listing.page(&PageRequest { count, after: after.map(ToOwned::to_owned) });
        (page.items.iter().map(Tag::as_str).collect::<Vec<_>>().join(" "), page.next)
    }

    fn listing(tags: &str) -> Listing<Tag> {
        Listing::new(tags.split_whitespace().map(|tag| tag.parse().unwrap()).collect())
    }

    #[test]
    fn pages_are_cut_out_of_the_whole() {
        let listing = listing("a b d e");
        assert_eq!(page(&listing, None, None), ("a b d e".into(), None));
        assert_eq!(page(&listing, Some(2), None), ("a b".into(), Some("b".into())));
        assert_eq!(page(&listing, Some(2), Some("b")), ("d e".into(), None));
        assert_eq!(page(&listing, Some(1), Some("c")), ("d".into(), Some("d".into())));
        assert_eq!(page(&listing, Some(0), None), (String::new(), None));
        assert_eq!(page(&listing, Some(9), Some("e")), (String::new(), None));
    }

    #[test]
    fn a_list_without_order_keeps_the_one_it_has() {
        let listing = listing("d a e b");
        assert_eq!(page(&listing, Some(2), None), ("d a".into(), Some("a".into())));
        assert_eq!(page(&listing, Some(9), Some("a")), ("e b".into(), None));
        assert_eq!(page(&listing, None, Some("c")), ("d a e b".into(), None));
    }
}
