//! `/`: what a user of this server pastes, as text or as a page.
//!
//! It is as far as a person comes who types the server's address into a browser. It names no module and no registry, so it says nothing
//! that the caller did not send. The address in it is the one that the request was sent to, since behind a proxy the server knows no
//! other; that name is the caller's own word, so it is parsed as an address and nothing else, escaped, and kept by no cache: an answer to
//! one caller's words must not become the page of another.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY, VARY,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::response::{IntoResponse, Response};

use super::App;
use crate::module::Host;
use crate::operations::client_setup::{ClientSetup, ClientSetupRequest, Section, ServerAddress};

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Nothing is loaded, run, framed or sent: it is text.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// How the server is reached, as far as a request does not say it.
#[derive(Clone, Debug, Default)]
pub struct StartPage {
    /// Whether it speaks https by itself.
    pub is_tls: bool,
    /// The path in front of every route; empty where there is none.
    pub base_path: String,
    /// Whether callers need a token; `None` where some do.
    pub asks_for_tokens: Option<bool>,
}

/// `/`
pub(super) async fn show(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Response {
    let options = &app.options;
    let server = asked_at(&options.start_page, &uri, &headers).unwrap_or_else(ServerAddress::unknown);
    let setup = ClientSetup::new(&ClientSetupRequest {
        server,
        host: options.host.as_deref().and_then(|host| Host::parse(host).ok()),
        in_place_of: None,
        asks_for_tokens: options.start_page.asks_for_tokens,
        is_registry: Some(options.distribution),
    });
    let (content_type, body) = if wants_page(&headers) {
        ("text/html; charset=utf-8", page(&setup))
    } else {
        ("text/plain; charset=utf-8", format!("ocimod serves modules on {}\n\n{}", setup.url, setup.text()))
    };
    let headers = [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-store"),
        (VARY, "Accept, Host, X-Forwarded-Host, X-Forwarded-Proto"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, body).into_response()
}

/// The address that the request was sent to, where that can be an address. A proxy that was passed on the way says what it was asked for;
/// the first of several is the one that the user speaks to.
fn asked_at(options: &StartPage, uri: &Uri, headers: &HeaderMap) -> Option<ServerAddress> {
    let first = |name: &HeaderName| {
        let value = headers.get(name)?.to_str().ok()?;
        value.split(',').next().map(str::trim)
    };
    let authority = uri.authority().map(Authority::as_str);
    let authority = first(&FORWARDED_HOST).or(authority).or_else(|| first(&HOST))?;
    let scheme = match first(&FORWARDED_PROTO) {
        Some("https") => "https",
        Some("http") => "http",
        Some(_) => return None,
        None if options.is_tls => "https",
        None => "http",
    };
    // A path in the header would be taken for that of the server.
    if authority.contains('/') {
        return None;
    }
    ServerAddress::parse(&format!("{scheme}://{authority}")).ok()?.below(&options.base_path)
}

/// Whether a page is asked for by name, as browsers do; everybody else gets text.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html")))
}

fn page(setup: &ClientSetup) -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>ocimod</title>\n",
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "<h1>ocimod</h1>\n<p>Modules for OpenTofu and Terraform on <code>{}</code></p>",
        escaped(&setup.url)
    );
    let mut last = "";
    for Section { heading, text } in setup.sections() {
        if heading != last {
            let _ = writeln!(page, "<h2>{}</h2>", escaped(heading));
        }
        last = heading;
        let _ = writeln!(page, "<pre>{}</pre>", escaped(text));
    }
    for note in &setup.notes {
        let _ = writeln!(page, "<p>{}</p>", escaped(note));
    }
    page.push_str("</html>\n");
    page
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(options: &StartPage, pairs: &[(&'static str, &'static str)]) -> Option<String> {
        let headers =
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        asked_at(options, &Uri::from_static("/"), &headers).map(|address| address.url())
    }

    #[test]
    fn the_address_is_the_one_that_was_asked() {
        let plain = StartPage::default();
        let tls = StartPage { is_tls: true, ..StartPage::default() };
        assert_eq!(at(&plain, &[("host", "127.0.0.1:8080")]).unwrap(), "http://127.0.0.1:8080");
        assert_eq!(at(&tls, &[("host", "modules.acme.example")]).unwrap(), "https://modules.acme.example");
        let proxied =
            [("host", "10.0.0.7:8080"), ("x-forwarded-host", "a.example, b"), ("x-forwarded-proto", "https")];
        assert_eq!(at(&plain, &proxied).unwrap(), "https://a.example");
        let below = StartPage { base_path: "/ocimod".to_owned(), ..StartPage::default() };
        assert_eq!(at(&below, &proxied).unwrap(), "https://a.example/ocimod");
    }

    #[test]
    fn what_is_no_address_is_not_shown() {
        let plain = StartPage::default();
        for host in [
            "<script>",
            "a\" onload=",
            "a.example/x",
            "a@b.example",
            "a.example:x",
            "javascript:alert",
            "a b",
        ] {
            assert_eq!(at(&plain, &[("host", host)]), None, "{host}");
            assert_eq!(at(&plain, &[("host", "a.example"), ("x-forwarded-host", host)]), None, "{host}");
        }
        assert_eq!(at(&plain, &[("host", "a.example"), ("x-forwarded-proto", "javascript")]), None);
        assert_eq!(at(&plain, &[]), None);
    }

    #[test]
    fn only_who_asks_for_a_page_gets_one() {
        let wants =
            |accept: &'static str| wants_page(&HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]));
        assert!(wants("text/html,application/xhtml+xml,*/*;q=0.8") && wants("text/plain, TEXT/HTML;q=0.5"));
        assert!(!wants("*/*") && !wants("application/json") && !wants_page(&HeaderMap::new()));
    }

    #[test]
    fn a_page_holds_no_markup_but_its_own() {
        assert_eq!(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }
}
