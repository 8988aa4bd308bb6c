//! Signed links to zips: clients send no token to where a download leads, so the link itself is what lets them in.
//!
//! A link holds for one content in one repository of one registry, on one route, until it expires. Within that time it is good for
//! any number of requests: clients send HEAD before GET, and go on with Range where a transfer broke off. They take `checksum` out of
//! the URL and sort what is left (seen with every release of OpenTofu and Terraform), so the digest stands in a second parameter.
//!
//! The registry's identity may be a path of this machine. It is signed and not sent: a link says which of the server's registries
//! it means by number, and the signature tells whether that is the one.

use std::borrow::Cow;

use url::form_urlencoded;

use super::signature::Keys;
use crate::artifact::Content;
use crate::oci::{Digest, Repository};

/// The purpose of signatures for links to a module's zip.
const MODULE_ARCHIVE: &str = "archive of a module";
/// The same for a provider's.
const PROVIDER_ARCHIVE: &str = "archive of a provider";
/// The same for one that is at its origin.
const ORIGIN_ARCHIVE: &str = "archive of a provider at its origin";

/// Where a link is good: the sort of route, and what stands in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    purpose: &'static str,
    path: Vec<String>,
}

impl Route {
    /// The route of a module's zip; the parts of its path that are no constants.
    pub(super) fn module_archive<const N: usize>(path: [&str; N]) -> Self {
        Self { purpose: MODULE_ARCHIVE, path: path.map(str::to_owned).into() }
    }

    /// The route of a zip that was at a provider's origin, likewise.
    pub(super) fn origin_archive<const N: usize>(path: [&str; N]) -> Self {
        Self { purpose: ORIGIN_ARCHIVE, path: path.map(str::to_owned).into() }
    }

    /// The route of a provider's zip, likewise.
    pub(super) fn provider_archive<const N: usize>(path: [&str; N]) -> Self {
        Self { purpose: PROVIDER_ARCHIVE, path: path.map(str::to_owned).into() }
    }
}

/// What a link leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArchiveLink {
    /// Where the link is good.
    pub(super) route: Route,
    /// Which registry, by the name that tells it from every other.
    pub(super) identity: String,
    /// The registry's number in the server's own list.
    pub(super) registry: usize,
    /// The repository, the registry's prefix included.
    pub(super) repository: Repository,
    /// The zip.
    pub(super) content: Content,
    /// Until when: seconds since 1970.
    pub(super) expires: u64,
}

impl ArchiveLink {
    /// The query of the URL. Nothing in it has to be escaped: digests and repositories are made of plain letters.
    pub(super) fn query(&self, keys: &Keys) -> String {
        let (digest, size, repository) = (&self.content.digest, self.content.size, &self.repository);
        let (expires, registry) = (self.expires, self.registry);
        let fields = Fields {
            repository: repository.as_str(),
            digest: digest.as_str(),
            size: &size.to_string(),
            expires: &expires.to_string(),
        };
        let signature = keys.sign(self.route.purpose, &fields.signed(&self.route, &self.identity));
        format!(
            "checksum={digest}&digest={digest}&expires={expires}&registry={registry}&repository={repository}&signature={signature}\
             &size={size}"
        )
    }
}

/// Why a link opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It is not as it was signed, or was signed for something else, or by a key that is gone.
    #[error("this link was not made for this archive, or was altered: run init again for a new one")]
    Invalid,
    /// Its time is over.
    #[error("this link has expired: run init again for a new one")]
    Expired,
}

/// What a signature is for, beside the route and the registry, as it stands in a URL.
struct Fields<'a> {
    repository: &'a str,
    digest: &'a str,
    size: &'a str,
    expires: &'a str,
}

impl<'a> Fields<'a> {
    fn signed(&'a self, route: &'a Route, identity: &'a str) -> Vec<&'a str> {
        let own = [identity, self.repository, self.digest, self.size, self.expires];
        route.path.iter().map(String::as_str).chain(own).collect()
    }
}

/// The parameters of a request that claim to be a link. Nothing in them is believed before [`Self::verify`].
#[derive(Clone, Debug, Default)]
pub(super) struct GivenLink<'a> {
    checksum: Option<Cow<'a, str>>,
    digest: Option<Cow<'a, str>>,
    expires: Option<Cow<'a, str>>,
    registry: Option<Cow<'a, str>>,
    repository: Option<Cow<'a, str>>,
    signature: Option<Cow<'a, str>>,
    size: Option<Cow<'a, str>>,
}

impl<'a> GivenLink<'a> {
    /// Reads a query. `None` where there is no parameter of a link in it; a parameter that stands there twice makes the link invalid,
    /// since it could be read in two ways. Other parameters are whoever's they are.
    pub(super) fn read(query: &'a str) -> Result<Option<Self>, LinkError> {
        let mut given = Self::default();
        let mut is_link = false;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match &*name {
                "checksum" => &mut given.checksum,
                "digest" => &mut given.digest,
                "expires" => &mut given.expires,
                "registry" => &mut given.registry,
                "repository" => &mut given.repository,
                "signature" => &mut given.signature,
                "size" => &mut given.size,
                _ => continue,
            };
            if place.replace(value).is_some() {
                return Err(LinkError::Invalid);
            }
            is_link = true;
        }
        Ok(is_link.then_some(given))
    }

    /// What the link leads to, if it is one of ours, for this route and one of these registries, and not over. The signature is
    /// looked at before anything else is.
    pub(super) fn verify(
        &self,
        keys: &Keys,
        route: Route,
        identities: &[&str],
        now: u64,
    ) -> Result<ArchiveLink, LinkError> {
        let (Some(repository), Some(digest), Some(size), Some(expires), Some(signature)) = (
            self.repository.as_deref(),
            self.digest.as_deref(),
            self.size.as_deref(),
            self.expires.as_deref(),
            self.signature.as_deref(),
        ) else {
            return Err(LinkError::Invalid);
        };
        let fields = Fields { repository, digest, size, expires };
        let signed_for =
            |identity: &str| keys.verify(route.purpose, &fields.signed(&route, identity), signature);
        // The number is a hint: another replica may have its registries in another order.
        let hint = self.registry.as_deref().and_then(|number| number.parse().ok());
        let hinted = hint.and_then(|number: usize| Some((number, *identities.get(number)?)));
        let others = identities.iter().copied().enumerate();
        let (registry, identity) = hinted
            .into_iter()
            .chain(others)
            .find(|(_, identity)| signed_for(identity))
            .ok_or(LinkError::Invalid)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| LinkError::Invalid);
        let expires = number(expires)?;
        if self.checksum.as_deref().is_some_and(|checksum| checksum != digest) {
            return Err(LinkError::Invalid);
        }
        if now >= expires {
            return Err(LinkError::Expired);
        }
        let digest: Digest = digest.parse().map_err(|_| LinkError::Invalid)?;
        let repository: Repository = repository.parse().map_err(|_| LinkError::Invalid)?;
        let content = Content { digest, size: number(size)? };
        Ok(ArchiveLink { identity: identity.to_owned(), registry, repository, content, expires, route })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn route() -> Route {
        Route::module_archive(["acme", "vpc", "aws", "1.0.0"])
    }

    fn link() -> ArchiveLink {
        ArchiveLink {
            route: route(),
            identity: "dir:/srv/modules".to_owned(),
            registry: 1,
            repository: "acme/vpc/aws".parse().unwrap(),
            content: Content { digest: Digest::of(b"zip"), size: 3 },
            expires: NOW + 300,
        }
    }

    const IDENTITIES: [&str; 2] = ["ghcr.io", "dir:/srv/modules"];

    fn verify(keys: &Keys, query: &str, route: Route, now: u64) -> Result<ArchiveLink, LinkError> {
        let given = GivenLink::read(query)?.expect("there are parameters of a link");
        given.verify(keys, route, &IDENTITIES, now)
    }

    #[test]
    fn a_link_leads_to_what_it_was_made_for_until_it_expires() {
        let keys = Keys::generate().unwrap();
        let query = link().query(&keys);
        assert!(!query.contains("/srv"), "{query}");
        for now in [0, NOW, NOW + 299] {
            assert_eq!(verify(&keys, &query, route(), now), Ok(link()));
        }
        for now in [NOW + 300, u64::MAX] {
            assert_eq!(verify(&keys, &query, route(), now), Err(LinkError::Expired));
        }
    }

    #[test]
    fn clients_sort_and_escape_and_take_the_checksum_away() {
        let keys = Keys::generate().unwrap();
        let query = link().query(&keys);
        let mut pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        assert_eq!(pairs.remove(0).0, "checksum");
        pairs.reverse();
        let again = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        assert!(again.contains("sha256%3A") && again.contains("acme%2Fvpc"), "{again}");
        for query in [again.clone(), format!("terraform-get=1&{again}")] {
            assert_eq!(verify(&keys, &query, route(), NOW), Ok(link()), "{query}");
        }
    }

    #[test]
    fn nothing_of_a_link_can_be_changed() {
        let keys = Keys::generate().unwrap();
        let query = link().query(&keys);
        let other = Digest::of(b"other");
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        for (name, value) in [
            ("checksum", other.as_str()),
            ("digest", other.as_str()),
            ("digest", ""),
            ("repository", "acme/secret/aws"),
            ("repository", "acme/vpc/aws/"),
            ("size", "4"),
            ("size", "03"),
            ("size", "+3"),
            ("expires", "9999999999"),
            ("signature", ""),
            ("signature", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        ] {
            let changed = pairs
                .iter()
                .map(|pair| if pair.0 == name { (name, value) } else { (pair.0.as_str(), pair.1.as_str()) });
            let changed = form_urlencoded::Serializer::new(String::new()).extend_pairs(changed).finish();
            assert_eq!(verify(&keys, &changed, route(), NOW), Err(LinkError::Invalid), "{name}={value}");
            let twice = format!("{query}&{name}={value}");
            assert_eq!(verify(&keys, &twice, route(), NOW), Err(LinkError::Invalid), "{twice}");
            let same = pairs.iter().find(|pair| pair.0 == name).map_or("", |pair| &pair.1);
            let twice = format!("{query}&{name}={same}");
            assert_eq!(verify(&keys, &twice, route(), NOW), Err(LinkError::Invalid), "{twice}");
            let without: Vec<_> =
                pairs.iter().filter(|pair| pair.0 != name && pair.0 != "checksum").collect();
            let without = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(without.iter().map(|pair| (&pair.0, &pair.1)))
                .finish();
            let expected = if name == "checksum" { Ok(link()) } else { Err(LinkError::Invalid) };
            assert_eq!(verify(&keys, &without, route(), NOW), expected, "without {name}");
        }
    }

    #[test]
    fn a_link_is_good_on_its_own_route_alone() {
        let keys = Keys::generate().unwrap();
        let query = link().query(&keys);
        for route in [
            Route::module_archive(["acme", "vpc", "aws", "1.0.1"]),
            Route::module_archive(["acme", "vpc", "azure", "1.0.0"]),
            Route::module_archive(["acme", "vpc", "aws1", ".0.0"]),
            Route::module_archive(["registry.example", "acme", "vpc", "aws", "1.0.0"]),
            Route::provider_archive(["acme", "vpc", "aws", "1.0.0"]),
        ] {
            assert_eq!(verify(&keys, &query, route.clone(), NOW), Err(LinkError::Invalid), "{route:?}");
        }
    }

    #[test]
    fn the_registry_is_found_by_its_identity_and_not_by_its_number() {
        let keys = Keys::generate().unwrap();
        let query = link().query(&keys);
        for number in ["0", "7", "x", ""] {
            let moved = query.replace("registry=1", &format!("registry={number}"));
            assert_eq!(verify(&keys, &moved, route(), NOW), Ok(link()), "{number}");
        }
        let given = GivenLink::read(&query).unwrap().unwrap();
        for identities in [&[][..], &["ghcr.io", "dir:/srv/other"]] {
            assert_eq!(given.verify(&keys, route(), identities, NOW), Err(LinkError::Invalid));
        }
    }

    #[test]
    fn a_request_without_parameters_of_a_link_is_none() {
        for query in ["", "terraform-get=1", "a=b&c"] {
            assert!(GivenLink::read(query).unwrap().is_none(), "{query}");
        }
        let keys = Keys::generate().unwrap();
        for query in ["digest", "size=1", "expires=1&signature=x", "checksum=sha256:1"] {
            assert_eq!(verify(&keys, query, route(), NOW), Err(LinkError::Invalid), "{query}");
        }
    }

    #[test]
    fn every_key_of_the_list_opens_and_a_foreign_one_does_not() {
        let one = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
        let new = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";
        let query = link().query(&Keys::parse(one).unwrap());
        let both = Keys::parse(&format!("{new}\n{one}")).unwrap();
        assert_eq!(verify(&both, &query, route(), NOW), Ok(link()));
        assert_eq!(verify(&Keys::parse(new).unwrap(), &query, route(), NOW), Err(LinkError::Invalid));
    }
}
