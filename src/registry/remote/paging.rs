//! Lists that come in pages: tags and repositories (specification, "Listing Tags").
//!
//! Registries differ: some sort, some ignore `n` and `last`, some refuse a large `n`, some page by `Link` alone and put
//! something opaque into it. What comes out keeps the seam's word all the same: at most as many as were asked for, only what
//! comes after the given entry, and an end. A `Link` adds its query and nothing else to the next request: a registry, or who
//! made up a page's `after`, cannot lead the request to another path or place.

use std::fmt;
use std::hash::Hash;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::try_join;
use reqwest::header::{HeaderMap, LINK};
use reqwest::{Method, Response, StatusCode};
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use url::Url;
use url::form_urlencoded;

use super::authorization::Scopes;
use super::client::{Call, Client, Purpose, Subject};
use crate::oci::Repository;
use crate::registry::{MAX_LIST_TIME, Page, PageRequest, Pages, Result};

/// A page that is larger is no page. Artifact Registry gives everything at once, with a record for each manifest: this is enough
/// for tens of thousands.
const MAX_PAGE_BYTES: u64 = 16 * 1024 * 1024;
/// A page of more entries is no page either: what two bytes of an answer stand for takes more than that in memory.
const MAX_PAGE_ENTRIES: usize = 250_000;
/// What is asked for where the caller does not say: the most that ECR allows.
const PAGE_LENGTH: usize = 1000;
/// So many pages without an entry are passed over for one that has any.
const MAX_EMPTY_PAGES: usize = 16;
/// A longer `Link` is not read.
const MAX_LINK: usize = 16 * 1024;
/// Marks a query in [`Page::next`]; no tag and no repository begins with it.
const QUERY_MARK: char = '?';

/// A list of a registry.
pub(super) struct List<'a> {
    /// Path below the base, without query.
    pub(super) path: String,
    pub(super) scopes: Scopes,
    pub(super) purpose: Purpose<'a>,
    /// The field of the answer that holds the entries.
    pub(super) field: Field,
}

impl<'a> List<'a> {
    /// Of the tags of a repository.
    pub(super) fn of_tags(repository: &'a Repository) -> Self {
        Self {
            path: format!("v2/{repository}/tags/list"),
            scopes: Scopes::pull(repository),
            purpose: Purpose { operation: "listing tags", subject: Subject::Repository(repository) },
            field: Field::Tags,
        }
    }
}

/// Names an array of an answer.
#[derive(Clone, Copy)]
pub(super) enum Field {
    Tags,
    Repositories,
}

impl Field {
    fn name(self) -> &'static str {
        match self {
            Self::Tags => "tags",
            Self::Repositories => "repositories",
        }
    }
}

/// Either answer.
#[derive(Deserialize)]
struct ListAnswer {
    tags: Option<Entries>,
    repositories: Option<Entries>,
}

/// The entries that are texts. Others are passed over: Nexus lists `null`.
#[derive(Default)]
struct Entries(Vec<String>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Entries, A::Error> {
        let (mut texts, mut count) = (Vec::new(), 0);
        while let Some(Entry(entry)) = entries.next_element()? {
            count += 1;
            if count > MAX_PAGE_ENTRIES {
                return Err(A::Error::custom("too many entries"));
            }
            texts.extend(entry);
        }
        Ok(Entries(texts))
    }
}

/// A text, or something else. Read as it comes: there are many.
struct Entry(Option<String>);

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor).map(Self)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Option<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an entry")
    }

    fn visit_str<E>(self, text: &str) -> Result<Option<String>, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<Option<String>, A::Error> {
        IgnoredAny.visit_seq(entries).map(|_| None)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Option<String>, A::Error> {
        IgnoredAny.visit_map(fields).map(|_| None)
    }
}

/// Whether a registry has refused to be told how many entries are wanted.
#[derive(Default)]
pub(super) struct Habits {
    refuses_count: AtomicBool,
}

/// A page as it came.
struct RawPage {
    entries: Vec<String>,
    /// The query of the next page, as the registry gave it.
    link: Option<String>,
    /// How many entries were asked for; `None` where the registry was not told.
    asked: Option<usize>,
}

/// A page of a list; entries that are no `T` are passed over.
pub(super) async fn read_page<T>(
    client: &Client,
    habits: &Habits,
    list: &List<'_>,
    request: &PageRequest,
) -> Result<Page<T>>
where
    T: FromStr + Clone + Ord + ToString,
{
    let count = request.count;
    if count == Some(0) {
        return Ok(Page { items: Vec::new(), next: None });
    }
    let mut after = request.after.clone();
    for _ in 0..MAX_EMPTY_PAGES {
        let page = open_page(client, habits, list, count, after.as_deref()).await?.read(client, list).await?;
        let page = shape(page, count, after.as_deref());
        // The same page again: the list goes in circles.
        let next = page.next.filter(|next| Some(next) != after.as_ref());
        if !page.items.is_empty() || next.is_none() {
            return Ok(Page { items: page.items, next });
        }
        after = next;
    }
    Err(client.transport.protocol("its list goes on without any entry"))
}

/// Every entry of a list; more than `limit` are an error. Where a page's head says what the next one is, that is asked for while the
/// page itself is still on its way: a list of many pages then takes no longer than the registry takes to send it.
pub(super) async fn read_all<T>(
    client: &Client,
    habits: &Habits,
    list: &List<'_>,
    limit: usize,
) -> Result<Vec<T>>
where
    T: FromStr + Clone + Hash + Ord + ToString,
{
    let open =
        |after: Option<String>| async move { open_page(client, habits, list, None, after.as_deref()).await };
    let (mut pages, mut empty) = (Pages::new(list.field.name(), limit, MAX_LIST_TIME), 0);
    let mut current = open(None).await?;
    loop {
        let after = pages.request.after.clone();
        // A link to the same page again is the end.
        let link = current.link.as_deref().map(link_after).filter(|link| Some(link) != after.as_ref());
        let opening = async {
            match link {
                Some(link) => open(Some(link)).await.map(Some),
                None => Ok(None),
            }
        };
        let taking = async {
            let page = shape(current.read(client, list).await?, None, after.as_deref());
            let next = page.next.filter(|next| Some(next) != after.as_ref());
            empty = if page.items.is_empty() { empty + 1 } else { 0 };
            if empty == MAX_EMPTY_PAGES && next.is_some() {
                return Err(client.transport.protocol("its list goes on without any entry"));
            }
            pages.take(Page { items: page.items, next })
        };
        let (opened, has_more) = try_join(opening, taking).await?;
        if !has_more {
            return Ok(pages.entries);
        }
        current = match opened {
            Some(opened) => opened,
            None => open(pages.request.after.clone()).await?,
        };
    }
}

/// What stands for a `Link` in [`Page::next`].
fn link_after(query: &str) -> String {
    format!("{QUERY_MARK}{query}")
}

/// Makes of a page what was asked for.
fn shape<T: FromStr + Clone + Ord + ToString>(
    raw: RawPage,
    count: Option<usize>,
    after: Option<&str>,
) -> Page<T> {
    let came = raw.entries.len();
    let name = after.filter(|after| !after.starts_with(QUERY_MARK));
    // Whoever heeds `last` does not list it.
    let ignores_last = name.is_some_and(|name| raw.entries.iter().any(|entry| entry == name));
    let mut items: Vec<T> = raw.entries.iter().filter_map(|entry| entry.parse().ok()).collect();
    if let Some(name) = name.filter(|_| ignores_last) {
        items.retain(|item| item.to_string().as_str() > name);
    }
    // More than asked for: the registry ignores `n`, and gives everything that it has.
    let ignores_count = count.is_some_and(|count| items.len() > count) && raw.link.is_none();
    if ignores_last || ignores_count {
        items.sort();
        items.dedup();
    }
    if let Some(count) = count.filter(|count| items.len() > *count) {
        // With a `Link` the rest would be lost, so there the order of the registry has to do.
        items.truncate(count);
        let next = items.last().map(ToString::to_string);
        return Page { items, next };
    }
    // Also an entry that is passed over; but not one that would be taken for a query.
    let last = || raw.entries.into_iter().filter(|entry| !entry.starts_with(QUERY_MARK)).max();
    let next = match raw.link {
        Some(query) => Some(link_after(&query)),
        // A full page without `Link`: there may be more.
        None if !ignores_last && raw.asked == Some(came) => last(),
        None => None,
    };
    Page { items, next }
}

/// A page whose head has come.
struct OpenPage {
    response: Response,
    /// As in [`RawPage`].
    link: Option<String>,
    asked: Option<usize>,
}

impl OpenPage {
    async fn read(self, client: &Client, list: &List<'_>) -> Result<RawPage> {
        let body = client.transport.body(self.response, MAX_PAGE_BYTES).await?;
        let answer: ListAnswer = serde_json::from_slice(&body)
            .map_err(|_| client.transport.protocol("its list is not in the form of the specification"))?;
        let entries = match list.field {
            Field::Tags => answer.tags,
            Field::Repositories => answer.repositories,
        };
        Ok(RawPage { entries: entries.unwrap_or_default().0, link: self.link, asked: self.asked })
    }
}

async fn open_page(
    client: &Client,
    habits: &Habits,
    list: &List<'_>,
    count: Option<usize>,
    after: Option<&str>,
) -> Result<OpenPage> {
    let refused = || habits.refuses_count.load(Ordering::Relaxed);
    let mut asked = (!refused()).then(|| count.unwrap_or(PAGE_LENGTH).min(PAGE_LENGTH));
    loop {
        let path = if let Some(query) = after.and_then(|after| after.strip_prefix(QUERY_MARK)) {
            asked = None;
            format!("{}?{query}", list.path)
        } else {
            let mut query = form_urlencoded::Serializer::new(String::new());
            if let Some(asked) = asked {
                query.append_pair("n", &asked.to_string());
            }
            if let Some(after) = after {
                query.append_pair("last", after);
            }
            let query = query.finish();
            if query.is_empty() { list.path.clone() } else { format!("{}?{query}", list.path) }
        };
        let response = client.get(Call::new(Method::GET, path, list.scopes.clone())).await?;
        let status = response.status();
        if status.is_success() {
            let link = next_query(client, &response)?;
            return Ok(OpenPage { response, link, asked });
        }
        let means_something_else = matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::TOO_MANY_REQUESTS
        );
        if asked.is_none() || !status.is_client_error() || means_something_else {
            return Err(client.failure(response, &list.scopes, list.purpose).await);
        }
        habits.refuses_count.store(true, Ordering::Relaxed);
        asked = None;
    }
}

/// The query of the next page, from `Link` (RFC 8288) with `rel="next"`. Where that leads to another host it is no part of this list,
/// and the list has no end that could be believed.
pub(super) fn next_query(client: &Client, response: &Response) -> Result<Option<String>> {
    next_page(response.url(), response.headers())
        .map_err(|ElsewhereError| client.transport.protocol("its list goes on at another place"))
}

/// The link to the next page leads to another host, or cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ElsewhereError;

/// The query of the next page; `base` is where this one is.
pub(super) fn next_page(base: &Url, headers: &HeaderMap) -> Result<Option<String>, ElsewhereError> {
    for value in headers.get_all(LINK) {
        let Some(target) = next_target(value.to_str().map_err(|_| ElsewhereError)?)? else { continue };
        let target = base.join(&target).map_err(|_| ElsewhereError)?;
        // A registry behind a proxy may not know by which scheme and port it is reached.
        if target.host() != base.host() {
            return Err(ElsewhereError);
        }
        return Ok(target.query().map(str::to_owned));
    }
    Ok(None)
}

/// The target of the link whose relation is `next`.
fn next_target(header: &str) -> Result<Option<String>, ElsewhereError> {
    if header.len() > MAX_LINK {
        return Err(ElsewhereError);
    }
    let mut rest = header;
    loop {
        let Some((target, parameters)) = rest.split_once('<').and_then(|(_, link)| link.split_once('>'))
        else {
            return Ok(None);
        };
        // The parameters go on to the next comma that is not in quotes.
        let mut quoted = false;
        let end = parameters
            .char_indices()
            .find(|(_, character)| {
                quoted ^= *character == '"';
                *character == ',' && !quoted
            })
            .map_or(parameters.len(), |(index, _)| index);
        let is_next = parameters[..end].split(';').any(|parameter| {
            let Some((name, value)) = parameter.split_once('=') else { return false };
            let mut relations = value.trim().trim_matches(['"', '\'']).split_ascii_whitespace();
            name.trim().eq_ignore_ascii_case("rel") && relations.any(|word| word.eq_ignore_ascii_case("next"))
        });
        if is_next {
            return Ok(Some(target.trim().to_owned()));
        }
        let Some(further) = parameters[end..].strip_prefix(',') else { return Ok(None) };
        rest = further;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use axum::body::Body;
    use futures_util::stream;
    use proptest::prelude::*;
    use tokio::sync::Notify;

    use super::super::scripted::{Request, Scripted, reply, status};
    use super::super::{CredentialSource, RemoteOptions, RemoteRegistry};
    use super::*;
    use crate::oci::Tag;
    use crate::registry::Registry;

    fn next(header: &str) -> Result<Option<String>, ElsewhereError> {
        let mut headers = HeaderMap::new();
        headers.insert(LINK, header.parse().unwrap());
        next_page(&"https://r.example/v2/a/tags/list?n=1".parse().unwrap(), &headers)
    }

    #[test]
    fn the_next_page_is_found() {
        for header in [
            r#"</v2/a/tags/list?last=b&n=1>; rel="next""#,
            r"<https://r.example/v2/a/tags/list?last=b&n=1>;rel=next",
            r#"<?last=b&n=1>; type="a,b"; REL="prev next""#,
            r#"</x?y=1>; rel="first", </v2/a/tags/list?last=b&n=1>; rel="next""#,
            r"< /v2/a/tags/list?last=b&n=1 > ; rel = 'next'",
            r#"<http://r.example:5000/v2/a/tags/list?last=b&n=1>; rel="next""#,
        ] {
            assert_eq!(next(header), Ok(Some("last=b&n=1".into())), "{header}");
        }
    }

    #[test]
    fn a_list_that_goes_on_elsewhere_has_no_end_that_could_be_believed() {
        let long = format!("</v2/a/tags/list?last={}>; rel=next", "x".repeat(MAX_LINK));
        for header in [
            r#"<https://evil.example/v2/a/tags/list?last=b>; rel="next""#,
            r#"<//evil.example/?last=b>; rel="next""#,
            r#"<https://r.example@evil.example/?last=b>; rel="next""#,
            r#"<file:///etc/passwd?last=b>; rel="next""#,
            r#"<http://[::>; rel="next""#,
            long.as_str(),
        ] {
            assert_eq!(next(header), Err(ElsewhereError), "{header}");
        }
    }

    #[test]
    fn other_links_are_passed_over() {
        for header in [
            r#"</v2/a/tags/list?last=b>; rel="prev""#,
            r#"</v2/a/tags/list>; rel="next""#,
            r#"</v2/a/tags/list?last=b>; title="rel=next, x""#,
            "<",
            "",
        ] {
            assert_eq!(next(header), Ok(None), "{header}");
        }
    }

    #[test]
    fn a_page_is_read_for_its_texts_within_bounds() {
        let read = |text: &str| serde_json::from_str::<ListAnswer>(text).map(|answer| answer.tags);
        let mixed = read(r#"{"tags":["a",null,7,{"b":["c"]},["d"],"e"],"manifest":{"sha256:f":{}}}"#);
        assert_eq!(mixed.unwrap().unwrap().0, ["a", "e"]);
        for nothing in ["{}", r#"{"tags":null}"#] {
            assert!(read(nothing).unwrap().is_none());
        }
        assert!(read(r#"{"tags":"a"}"#).is_err());
        let many = |count: usize| format!(r#"{{"tags":[{}0]}}"#, "0,".repeat(count - 1));
        assert!(read(&many(MAX_PAGE_ENTRIES)).is_ok());
        assert!(read(&many(MAX_PAGE_ENTRIES + 1)).is_err());
    }

    fn raw(entries: &[&str], link: Option<&str>, asked: Option<usize>) -> RawPage {
        RawPage {
            entries: entries.iter().map(ToString::to_string).collect(),
            link: link.map(Into::into),
            asked,
        }
    }

    fn shaped(page: RawPage, count: Option<usize>, after: Option<&str>) -> (String, Option<String>) {
        let page: Page<Tag> = shape(page, count, after);
        (page.items.iter().map(Tag::as_str).collect::<Vec<_>>().join(" "), page.next)
    }

    #[test]
    fn a_registry_that_ignores_n_and_last_is_paged_all_the_same() {
        let all = ["c", "a", "d", "b"];
        assert_eq!(shaped(raw(&all, None, Some(2)), Some(2), None), ("a b".into(), Some("b".into())));
        assert_eq!(shaped(raw(&all, None, Some(2)), Some(2), Some("b")), ("c d".into(), None));
        assert_eq!(shaped(raw(&all, None, Some(4)), None, None), ("c a d b".into(), Some("d".into())));
        assert_eq!(shaped(raw(&all, None, Some(4)), None, Some("d")), (String::new(), None));
    }

    #[test]
    fn links_and_full_pages_go_on() {
        assert_eq!(
            shaped(raw(&["a", "-no-tag", "b"], Some("last=x%2F"), Some(3)), None, None),
            ("a b".into(), Some("?last=x%2F".into()))
        );
        assert_eq!(shaped(raw(&["a", "b"], None, Some(2)), Some(2), None), ("a b".into(), Some("b".into())));
        assert_eq!(shaped(raw(&["a"], None, Some(2)), Some(2), None), ("a".into(), None));
        assert_eq!(shaped(raw(&["a", "b"], None, None), None, None), ("a b".into(), None));
    }

    fn remote(server: &Scripted) -> RemoteRegistry {
        let registry = server.address.to_string().parse().unwrap();
        RemoteRegistry::new(RemoteOptions::new(registry, CredentialSource::none())).unwrap()
    }

    #[tokio::test]
    async fn the_next_page_is_asked_for_before_this_one_has_come() {
        let is_asked = Arc::new(Notify::new());
        let script = move |request: &Request, _| {
            if request.path == "/v2/" {
                return status(200);
            }
            if request.path.contains("last=a") {
                is_asked.notify_one();
                return reply(200, &[], r#"{"tags":["b"]}"#);
            }
            let is_asked = Arc::clone(&is_asked);
            let late = stream::once(async move {
                is_asked.notified().await;
                Ok::<_, io::Error>(r#"{"tags":["a"]}"#)
            });
            let link = r#"</v2/acme/vpc/tags/list?last=a>; rel="next""#;
            reply(200, &[("link", link)], Body::from_stream(late))
        };
        let server = Scripted::start(script).await;
        let tags = remote(&server).all_tags(&"acme/vpc".parse().unwrap(), 10).await.unwrap();
        assert_eq!(tags.iter().map(Tag::as_str).collect::<Vec<_>>(), ["a", "b"]);
    }

    type Script = fn(&Request, usize) -> axum::http::Response<Body>;

    /// Registries with ways of their own of paging `a` to `e`.
    fn habits() -> Vec<(&'static str, Script)> {
        fn tags(tags: &[&str]) -> String {
            serde_json::json!({ "tags": tags }).to_string()
        }
        fn page(
            request: &Request,
            size: usize,
            link: impl Fn(&str) -> Option<String>,
        ) -> axum::http::Response<Body> {
            let all = ["a", "b", "c", "d", "e"];
            let last =
                request.path.split_once("last=").map_or("", |(_, rest)| rest.split('&').next().unwrap());
            let start = all.partition_point(|tag| *tag <= last);
            let page = &all[start..all.len().min(start + size)];
            let link = page.last().filter(|last| **last != "e").and_then(|last| link(last));
            let link = link.iter().map(|link| ("link", link.as_str())).collect::<Vec<_>>();
            reply(200, &link, tags(page))
        }
        vec![
            ("all at once", |_, _| reply(200, &[], tags(&["a", "b", "c", "d", "e"]))),
            ("by links", |request, _| {
                page(request, 2, |last| Some(format!("</v2/acme/vpc/tags/list?last={last}>; rel=next")))
            }),
            ("links, and one page without entries", |request, _| {
                if request.path.ends_with("list?last=b") {
                    let link = "</v2/acme/vpc/tags/list?x=1&last=b>; rel=next";
                    return reply(200, &[("link", link)], tags(&[]));
                }
                page(request, 2, |last| Some(format!("</v2/acme/vpc/tags/list?last={last}>; rel=next")))
            }),
            ("the last link leads to where it stands", |request, _| {
                if request.path.contains("last=d") {
                    let link = "</v2/acme/vpc/tags/list?last=d>; rel=next";
                    return reply(200, &[("link", link)], tags(&["e"]));
                }
                page(request, 2, |last| Some(format!("</v2/acme/vpc/tags/list?last={last}>; rel=next")))
            }),
            ("null for the last page", |request, _| {
                if request.path.contains("last=e") {
                    return reply(200, &[], r#"{"tags":null}"#);
                }
                let link = "</v2/acme/vpc/tags/list?last=e>; rel=next";
                reply(200, &[("link", link)], tags(&["a", "b", "c", "d", "e"]))
            }),
        ]
    }

    #[tokio::test]
    async fn a_list_is_the_same_whole_or_page_by_page() {
        let repository = "acme/vpc".parse().unwrap();
        for (name, habit) in habits() {
            let server = Scripted::start(habit).await;
            let remote = remote(&server);
            let whole = remote.all_tags(&repository, 100).await.unwrap();
            assert_eq!(whole.iter().map(Tag::as_str).collect::<String>(), "abcde", "{name}");
            let (mut pages, mut request) = (Vec::new(), PageRequest::default());
            loop {
                let page = remote.tags(&repository, &request).await.unwrap();
                pages.extend(page.items);
                let Some(next) = page.next else { break };
                request = PageRequest::after(next);
            }
            assert_eq!(pages, whole, "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_link_makes_us_panic(text in r#"(<|>|;|,|"|rel=|next|/v2/a|\?last=|é|\\| ){0,30}"#) {
            let _ = next_target(&text);
        }
    }
}
