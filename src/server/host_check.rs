//! Keeps a server that answers everybody on this machine from answering everybody else.
//!
//! A page in a browser may not read what another origin answers, unless a name of its own leads here: whoever has a name may
//! let it point to 127.0.0.1 (DNS rebinding). Such a request has that name in `Host`. A proxy on this machine makes everybody
//! local; it tells so in its headers. And a page may send some requests without reading the answer: of those, none may change
//! anything.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::App;
use super::error::ApiError;

/// Refuses what a stranger may have sent. Where there are rules, a name does not let anybody in, so any name will do.
pub(super) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    checked(&app, answers_any_name(&app), request, next).await
}

/// Whether a request that only reads may come from wherever it comes.
pub(super) fn may_read(app: &App, uri: &Uri, headers: &HeaderMap) -> bool {
    check_name(app, answers_any_name(app), uri, headers).is_ok()
}

fn answers_any_name(app: &App) -> bool {
    app.options.allow_anonymous || !app.options.access.is_open()
}

/// The same for what answers without rules, whether or not there are any for the rest.
pub(super) async fn check_open(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    checked(&app, app.options.allow_anonymous, request, next).await
}

async fn checked(app: &App, answers_any_name: bool, request: Request, next: Next) -> Response {
    let (uri, headers) = (request.uri(), request.headers());
    let checked = check_origin(request.method(), uri, headers)
        .and_then(|()| check_name(app, answers_any_name, uri, headers));
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check_name(app: &App, answers_any_name: bool, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    if answers_any_name { Ok(()) } else { check_host(uri, headers, app.options.host.as_deref()) }
}

/// Every name that the request was sent to has to be that of this machine, or `own`.
fn check_host(uri: &Uri, headers: &HeaderMap, own: Option<&str>) -> Result<(), ApiError> {
    let is_forwarded = |name: &str| name == "forwarded" || name.starts_with("x-forwarded-");
    if headers.keys().any(|name| is_forwarded(name.as_str())) {
        return Err(ApiError::Proxied);
    }
    let is_own = |authority: &Authority| {
        let host = authority.host();
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        address.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || own.is_some_and(|own| {
                host.eq_ignore_ascii_case(own) || authority.as_str().eq_ignore_ascii_case(own)
            })
    };
    let mut names = authorities(uri, headers).peekable();
    let is_named = names.peek().is_some();
    if is_named && names.all(|name| name.is_some_and(|name| is_own(&name))) {
        Ok(())
    } else {
        Err(ApiError::ForeignHost)
    }
}

/// The target of the request: in HTTP/2 it stands in the URI, in HTTP/1.1 in `Host`, and it may stand in both. `None` for what
/// is no authority.
fn authorities<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> impl Iterator<Item = Option<Authority>> + 'a {
    let hosts = headers.get_all(header::HOST).iter();
    let hosts = hosts.map(|host| Authority::try_from(host.as_bytes()).ok());
    uri.authority().cloned().map(Some).into_iter().chain(hosts)
}

/// A browser says whose page makes it send a request that may change something. Nobody else sends these headers.
fn check_origin(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    if method.is_safe() {
        return Ok(());
    }
    let is_ours = match (headers.get("sec-fetch-site"), headers.get(header::ORIGIN)) {
        (Some(site), _) => site == "same-origin" || site == "none",
        (None, None) => true,
        (None, Some(origin)) => {
            let origin = Uri::try_from(origin.as_bytes()).ok();
            let origin = origin.as_ref().and_then(Uri::authority);
            origin.is_some() && authorities(uri, headers).all(|name| name.as_ref() == origin)
        }
    };
    if is_ours { Ok(()) } else { Err(ApiError::ForeignOrigin) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let parse = |(name, value): &(&'static str, &'static str)| {
            (name.parse().expect("a header's name"), value.parse().expect("a header's value"))
        };
        pairs.iter().map(parse).collect()
    }

    fn host(host: &'static str) -> Result<(), ApiError> {
        check_host(&Uri::from_static("/v2/"), &headers(&[("host", host)]), Some("modules.internal"))
    }

    #[test]
    fn an_open_server_is_asked_by_address_or_as_localhost() {
        for name in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "[::1]:8080",
            "localhost:80",
            "LOCALHOST",
            "192.168.0.7",
            "modules.internal:80",
        ] {
            assert!(host(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil@x",
            "0x7f.1",
            "2130706433",
            "a b",
        ] {
            assert!(matches!(host(name), Err(ApiError::ForeignHost)), "{name}");
        }
        assert!(check_host(&Uri::from_static("/"), &HeaderMap::new(), None).is_err(), "no name at all");
    }

    #[test]
    fn one_good_name_does_not_excuse_a_bad_one() {
        let both = headers(&[("host", "localhost")]);
        assert!(check_host(&Uri::from_static("http://evil.example/v2/"), &both, None).is_err());
        let mut twice = headers(&[("host", "localhost")]);
        twice.append(header::HOST, "evil.example".parse().expect("a header's value"));
        assert!(check_host(&Uri::from_static("/v2/"), &twice, None).is_err());
    }

    #[test]
    fn what_came_through_a_proxy_is_refused() {
        for name in ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"] {
            let headers = headers(&[("host", "localhost"), (name, "x")]);
            assert!(
                matches!(check_host(&Uri::from_static("/"), &headers, None), Err(ApiError::Proxied)),
                "{name}"
            );
        }
    }

    #[test]
    fn a_page_of_another_origin_changes_nothing() {
        let of = |method: Method, pairs: &[(&'static str, &'static str)]| {
            let mut headers = headers(pairs);
            headers.insert(header::HOST, "127.0.0.1:8080".parse().expect("a header's value"));
            check_origin(&method, &Uri::from_static("/v2/"), &headers).is_ok()
        };
        assert!(of(Method::POST, &[]));
        assert!(of(Method::POST, &[("origin", "http://127.0.0.1:8080")]));
        assert!(of(Method::POST, &[("sec-fetch-site", "same-origin")]));
        assert!(of(Method::GET, &[("origin", "https://evil.example")]), "it cannot read the answer");
        assert!(!of(Method::POST, &[("origin", "https://evil.example")]));
        assert!(!of(Method::POST, &[("origin", "http://127.0.0.1:9090")]));
        assert!(!of(Method::POST, &[("origin", "null")]));
        assert!(!of(Method::DELETE, &[("sec-fetch-site", "cross-site")]));
        assert!(!of(Method::POST, &[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:8080")]));
    }
}
