//! What a registry answers beside its content: challenges and `Link`s. Neither leads to where it may not.

use std::net::IpAddr;

use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use url::{Host, Url};

use super::authorization::{Challenge, Demand};
use super::paging::next_page;
use crate::fuzz::{Random, Target, assert_is_message, same_place, texts};

pub(crate) const CHALLENGE: Target = Target {
    name: "challenge",
    seeds: || {
        texts([
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:samalba/my-app:pull,push""#,
            "Bearer realm=\"https://auth.example/token\",service=a\nBasic realm=\"x\"",
            r#"Basic realm="a, b", Bearer realm="https://r.example/token""#,
            r#"basic Realm="Registry Realm""#,
            r#"Negotiate, Digest realm="x", nonce="a\"b", BEARER REALM="http://10.0.0.1:5001/token""#,
            r#"Bearer realm="http://169.254.169.254/latest/meta-data""#,
            r#"Bearer realm="https://127.0.0.1/", error="invalid_token""#,
            r#"Bearer realm="http://auth.example/token""#,
            r#"Bearer realm="https://user:password@auth.example/token""#,
            r#"Bearer realm="https://[::ffff:10.0.0.1]/",service="a	b""#,
            r#"Bearer realm="https://0x7f.1/""#,
            r#"Bearer realm="file:///etc/passwd""#,
            r#"Bearer realm=""#,
            "Bearer",
            ",,",
        ])
    },
    words: &[
        "Bearer ",
        "Basic ",
        "Digest ",
        "Negotiate",
        "realm=",
        "service=",
        "scope=",
        "error=",
        "\"",
        "\\\"",
        ", ",
        ",",
        "=",
        "==",
        "\n",
        "\t",
        "https://",
        "http://",
        "HTTPS:",
        "//",
        "@",
        "auth.example",
        "r.example",
        "localhost",
        ".localhost",
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[fd00::1]",
        "[64:ff9b::a00:1]",
        "0x7f.1",
        "2130706433",
        "%31",
        "。",
        ":5000",
        "?service=x",
        "#",
    ],
    generate: Some(challenge),
    max_length: 4096,
    run: run_challenge,
};

pub(crate) const LINK: Target = Target {
    name: "link",
    seeds: || {
        texts([
            r#"</v2/a/tags/list?last=b&n=1>; rel="next""#,
            r"<https://r.example/v2/a/tags/list?last=b&n=1>;rel=next",
            r#"<?last=b&n=1>; type="a,b"; REL="prev next""#,
            r#"</x?y=1>; rel="first", </v2/a/tags/list?last=b&n=1>; rel="next""#,
            "</x?y=1>; rel=first\n</v2/a/tags/list?last=%2F>; rel=next",
            r#"<https://evil.example/v2/a/tags/list?last=b>; rel="next""#,
            r#"<http://r.example/v2/a/tags/list?last=b>; rel="next""#,
            r#"<//evil.example/?last=b>; rel="next""#,
            r#"<https://r.example@evil.example/?last=b>; rel="next""#,
            r#"<\\evil.example\?last=b>; rel="next""#,
            r#"</v2/a/tags/list?last=b#x>; title="rel=next, x""#,
            "<?<>rel=next",
            "<",
        ])
    },
    words: &[
        "<",
        ">",
        ";",
        ",",
        "=",
        "\"",
        "rel=",
        "rel=\"next\"",
        "rel=next",
        "REL",
        "next",
        "prev next",
        "title=",
        "?",
        "last=",
        "n=1",
        "&",
        "#",
        "//",
        "https://",
        "http://",
        "r.example",
        "R.EXAMPLE:443",
        "evil.example",
        "@",
        "..",
        "%2e",
        "%0d%0a",
        "\\",
        "\t",
        "/v2/a/tags/list",
        ":443",
        ":444",
        "javascript:",
    ],
    generate: None,
    // Somewhat more than is read.
    max_length: 20 * 1024,
    run: run_link,
};

/// Registries of every reach.
const BASES: [&str; 5] = [
    "https://r.example/v2/a/tags/list?n=1",
    "http://r.example:5000/v2/a/tags/list",
    "http://127.0.0.1:5000/v2/a/tags/list",
    "https://10.0.0.1/v2/a/tags/list",
    "https://[fd00::1]:444/v2/a/tags/list",
];

fn bases() -> [Url; 5] {
    BASES.map(|base| base.parse().expect("a URL"))
}

/// Each line is a header of this name; those that can be none never come.
fn headers(input: &[u8], name: &HeaderName) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n').take(64) {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(name, value);
        }
    }
    headers
}

/// A challenge that is well-formed, of odd parts.
fn challenge(random: &mut Random) -> Vec<u8> {
    let (schemes, hosts) =
        (["https", "http", "HTTPS", "ftp"], ["auth.example", "r.example", "127.0.0.1", "10.0.0.1"]);
    let paths = ["/token", "/", "", "/a/../b", "?service=x"];
    let start = *random.pick(&["Bearer ", "bearer ", "Basic ", "Negotiate, Bearer "]);
    let (scheme, host, path) = (random.pick(&schemes), random.pick(&hosts), random.pick(&paths));
    let mut text = format!("{start}realm=\"{scheme}://{host}{path}\"");
    if random.one_in(2) {
        text.push_str(random.pick::<&str>(&[
            ",service=\"r.example\"",
            ", service=x",
            ",service=\"\\\"a\\\\\"",
        ]));
    }
    if random.one_in(3) {
        text.push_str(random.pick::<&str>(&[
            ",scope=\"a b\"",
            ", Basic realm=x",
            "\nBasic realm=\"y\"",
            ",error=\"e\"",
        ]));
    }
    text.into_bytes()
}

fn run_challenge(input: &[u8]) -> bool {
    let headers = headers(input, &header::WWW_AUTHENTICATE);
    let mut taken = false;
    for base in bases() {
        match Demand::read(&base, &headers).challenge {
            Challenge::Bearer { realm, service } => {
                assert_is_realm(&base, &realm);
                // As it is asked of the token service.
                let mut asked = realm.clone();
                asked.query_pairs_mut().append_pair("service", service.as_deref().unwrap_or_default());
                assert!(asked.as_str().bytes().all(|byte| byte.is_ascii_graphic()), "{asked}");
                assert!(same_place(&realm, &asked), "{realm} became {asked}");
                let is_control = |character: char| character.is_control() && character != '\t';
                assert!(!service.is_some_and(|service| service.contains(is_control)), "a control character");
                taken = true;
            }
            Challenge::Basic => taken = true,
            Challenge::Open => panic!("a challenge that asks for nothing"),
            Challenge::Unmet(error) => assert_is_message(&error.to_string()),
        }
    }
    taken
}

/// What the rules say, in other words than the crate's.
fn assert_is_realm(base: &Url, realm: &Url) {
    assert!(
        realm.scheme() == "https" || (realm.scheme() == "http" && base.scheme() == "http"),
        "{realm} for {base}"
    );
    assert!(!realm.as_str().contains('@') || !realm.authority().contains('@'), "{realm} has a user");
    let address = match realm.host().expect("a host") {
        Host::Domain(name) => {
            assert!(name != "localhost" || base.host_str() == Some("127.0.0.1"), "{realm} for {base}");
            return;
        }
        Host::Ipv4(address) => IpAddr::V4(address),
        Host::Ipv6(address) => IpAddr::V6(address),
    };
    let is_inner = match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || address.is_unspecified()
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    };
    let is_own = base.host() == realm.host()
        || (base.host_str() == Some("127.0.0.1") && address.to_canonical().is_loopback());
    assert!(!is_inner || is_own, "{realm} for {base}");
}

fn run_link(input: &[u8]) -> bool {
    let headers = headers(input, &header::LINK);
    let mut taken = false;
    for base in bases() {
        let Ok(Some(query)) = next_page(&base, &headers) else { continue };
        taken = true;
        assert!(query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'), "{query:?}");
        let mut next = base.clone();
        next.set_query(Some(&query));
        assert!(same_place(&base, &next), "{base} leads to {next}");
        assert_eq!(next.path(), base.path());
        // Of some target of the answer, and that at this host.
        let lines = headers.get_all(header::LINK).iter().filter_map(|value| value.to_str().ok());
        let is_target = |target: &str| {
            base.join(target).is_ok_and(|url| url.host() == base.host() && url.query() == Some(&*query))
        };
        // All that could be a target is looked at, which takes far longer than the reader does.
        if input.len() <= 2048 && input.split(|byte| *byte == b'<').count() <= 32 {
            let mut rests =
                lines.flat_map(|line| line.match_indices('<').map(move |(at, _)| &line[at + 1..]));
            let is_there =
                rests.any(|rest| rest.split_once('>').is_some_and(|(target, _)| is_target(target)));
            assert!(is_there, "{query:?} stands in no link to {base}");
        }
        // A link written from it is read as it.
        let link = format!("<{}?{query}>; rel=\"next\"", base.path());
        if link.len() <= 16 * 1024 {
            let mut headers = HeaderMap::new();
            headers.append(header::LINK, link.parse().expect("a header"));
            assert_eq!(next_page(&base, &headers), Ok(Some(query)), "written and read again");
        }
    }
    taken
}
