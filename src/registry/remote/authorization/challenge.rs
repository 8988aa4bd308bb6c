//! What a registry asks for: the challenges of its answers (RFC 9110 section 11.6.1), of which there may be several in one header
//! or in many.

use http_auth::ChallengeParser;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use url::Url;

use crate::registry::remote::redirect::{self, RedirectError};

/// The scopes that a challenge may name beside our own, and the length of each: repository names have 255 bytes at most.
const MAX_SCOPES: usize = 8;
const MAX_SCOPE: usize = 512;

/// How a registry wants to be told who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::registry::remote) enum Challenge {
    /// Not at all.
    Open,
    /// User name and password with every request.
    Basic,
    /// A token of a token service.
    Bearer { realm: Url, service: Option<String> },
    /// In a way that is not ours. A token that was given beforehand may do all the same.
    Unmet(ChallengeError),
}

/// Why no challenge of an answer can be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::registry::remote) enum ChallengeError {
    #[error("it names no way to authenticate that is known here")]
    None,
    #[error("its token service is not trusted: {0}")]
    Realm(#[from] RedirectError),
}

/// What an answer asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::registry::remote) struct Demand {
    pub(in crate::registry::remote) challenge: Challenge,
    /// What the registry thinks that a token should be good for.
    pub(super) scopes: Vec<String>,
}

impl Demand {
    /// Chooses among the challenges of an answer from `base`: the first Bearer whose realm is allowed, else Basic.
    pub(in crate::registry::remote) fn read(base: &Url, headers: &HeaderMap) -> Self {
        let mut otherwise = Challenge::Unmet(ChallengeError::None);
        let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        for challenge in values.flat_map(|value| ChallengeParser::new(value).map_while(Result::ok)) {
            let parameter = |name: &str| {
                let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            if challenge.scheme.eq_ignore_ascii_case("bearer") {
                let realm = parameter("realm").and_then(|realm| realm.parse::<Url>().ok());
                match realm.ok_or(RedirectError::Scheme).and_then(|realm| {
                    redirect::check_realm(base, &realm)?;
                    Ok(realm)
                }) {
                    Ok(realm) => {
                        let scopes = read_scopes(&parameter("scope").unwrap_or_default());
                        let challenge = Challenge::Bearer { realm, service: parameter("service") };
                        return Self { challenge, scopes };
                    }
                    Err(error) if matches!(otherwise, Challenge::Unmet(_)) => {
                        otherwise = Challenge::Unmet(error.into());
                    }
                    Err(_) => {}
                }
            } else if challenge.scheme.eq_ignore_ascii_case("basic") {
                otherwise = Challenge::Basic;
            }
        }
        Self { challenge: otherwise, scopes: Vec::new() }
    }

    /// Whether nothing is asked for.
    pub(super) fn is_nothing(&self) -> bool {
        self.challenge == Challenge::Unmet(ChallengeError::None)
    }
}

/// The scopes that a challenge names, as far as they are such (RFC 6749 section 3.3).
fn read_scopes(text: &str) -> Vec<String> {
    let is_scope = |scope: &&str| {
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        scope.len() <= MAX_SCOPE && scope.bytes().all(is_allowed)
    };
    text.split_whitespace().filter(is_scope).take(MAX_SCOPES).map(str::to_owned).collect()
}

/// Whether a token for `scope` is good for `wanted` too: `TYPE:NAME:ACTION,ACTION`.
pub(super) fn covers(scope: &str, wanted: &str) -> bool {
    match (scope.rsplit_once(':'), wanted.rsplit_once(':')) {
        (Some((resource, has)), Some((other, wants))) => {
            let has_action = |action: &str| has.split(',').any(|known| known == action || known == "*");
            resource == other && wants.split(',').all(has_action)
        }
        _ => scope == wanted,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, value.parse().unwrap());
        }
        headers
    }

    fn demand(values: &[&str]) -> Demand {
        Demand::read(&"https://registry.example/".parse().unwrap(), &headers(values))
    }

    fn read(values: &[&str]) -> Challenge {
        demand(values).challenge
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let bearer = Challenge::Bearer {
            realm: "https://auth.example/token".parse().unwrap(),
            service: Some("registry".into()),
        };
        let one =
            r#"Basic realm="x", Bearer realm="https://auth.example/token",service="registry",scope="a,b""#;
        assert_eq!(read(&[one]), bearer);
        let two = r#"bearer REALM="https://auth.example/token", Service=registry"#;
        assert_eq!(read(&["Basic realm=x", two]), bearer);
        assert_eq!(read(&["Negotiate", r#"Basic realm="x""#]), Challenge::Basic);
        // Of several token services the first that is allowed.
        let refused = r#"Bearer realm="http://auth.example/token""#;
        assert_eq!(read(&[refused, two]), bearer);
        assert_eq!(read(&[&format!("{refused}, {two}")]), bearer);
    }

    #[test]
    fn what_cannot_be_met_is_said() {
        for values in
            [&[][..], &["Negotiate"], &["Bearer realm=\"unclosed"], &["=="], &["Digest realm=\"x\""]]
        {
            assert_eq!(read(values), Challenge::Unmet(ChallengeError::None), "{values:?}");
        }
    }

    #[test]
    fn a_realm_is_checked_before_it_is_used() {
        for (value, error) in [
            (r#"Bearer realm="http://auth.example/token""#, RedirectError::Downgrade),
            (r#"Bearer realm="https://169.254.169.254/latest""#, RedirectError::PrivateAddress),
            (r#"Bearer realm="https://127.0.0.1/token""#, RedirectError::PrivateAddress),
            (r#"Bearer realm="https://[::ffff:10.0.0.1]/token""#, RedirectError::PrivateAddress),
            (r#"Bearer realm="https://user:x@auth.example/token""#, RedirectError::Scheme),
            (r#"Bearer realm="file:///etc/passwd""#, RedirectError::Scheme),
            (r#"Bearer realm="/token""#, RedirectError::Scheme),
            (r#"Bearer service="x""#, RedirectError::Scheme),
        ] {
            assert_eq!(read(&[value]), Challenge::Unmet(ChallengeError::Realm(error)), "{value}");
        }
        let both = [r#"Bearer realm="http://auth.example/""#, r#"Basic realm="x""#];
        assert_eq!(read(&both), Challenge::Basic);
        let reversed = [r#"Basic realm="x""#, r#"Bearer realm="http://auth.example/""#];
        assert_eq!(read(&reversed), Challenge::Basic);
    }

    #[test]
    fn scopes_are_taken_as_far_as_they_are_such() {
        let scopes = |scope: &str| {
            demand(&[&format!(r#"Bearer realm="https://auth.example/token",scope="{scope}""#)]).scopes
        };
        assert_eq!(
            scopes("repository:a/b:pull,push  registry:catalog:*"),
            ["repository:a/b:pull,push", "registry:catalog:*"]
        );
        assert!(scopes("").is_empty());
        assert!(scopes(&"x".repeat(MAX_SCOPE + 1)).is_empty());
        assert_eq!(scopes(&"x ".repeat(100)).len(), MAX_SCOPES);
        assert_eq!(scopes(r#"a\"b c"#), ["c"]);
    }

    #[test]
    fn a_scope_covers_fewer_actions_on_the_same_thing() {
        for (scope, wanted, covered) in [
            ("repository:a:pull,push", "repository:a:pull", true),
            ("repository:a:pull,push", "repository:a:push,pull", true),
            ("repository:a:*", "repository:a:delete", true),
            ("repository:a:pull", "repository:a:pull,push", false),
            ("repository:a:pull", "repository:b:pull", false),
            ("repository(plugin):a:pull", "repository:a:pull", false),
            ("x", "x", true),
            ("x", "y", false),
        ] {
            assert_eq!(covers(scope, wanted), covered, "{scope} {wanted}");
        }
    }

    proptest! {
        #[test]
        fn no_challenge_makes_us_panic(text in "[ -~]{0,200}") {
            let _ = read(&[&text]);
        }

        #[test]
        fn nothing_near_a_challenge_makes_us_panic(
            text in r#"(Bearer|Basic|,| |=|"|\\|realm|service|scope|https://a\.example/|x){0,30}"#
        ) {
            let _ = read(&[&text]);
        }
    }
}
