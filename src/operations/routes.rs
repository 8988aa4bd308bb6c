//! Which registry and which repository holds a module.
//!
//! [`super::registry_setting`] says which registries there are; here they are open.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::module::{CuePath, Host, ProviderAddress, TofuAddress};
use crate::oci::{Repository, RepositoryError};
use crate::registry::{PrefixedTags, SharedRegistry};

use super::encoding::{Encoding, PathEncoding};

/// How the address of an OpenTofu module becomes a repository: `{namespace}/{name}/{system}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryTemplate(String);

/// The text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryTemplateError {
    /// Two addresses would share a repository.
    #[error(
        "the template `{template}` has no `{{{missing}}}`, so different addresses would share a repository"
    )]
    Missing {
        /// The template.
        template: String,
        /// The placeholder that is not there.
        missing: &'static str,
    },
    /// `{namespace}_{name}` folds `a_b`/`c` and `a`/`b_c` into one.
    #[error(
        "in the template `{template}` the part `{part}` mixes text and a placeholder, so different addresses could share a \
         repository; let each placeholder be a part of its own, as in `{example}`"
    )]
    Mixed {
        /// The template.
        template: String,
        /// The offending part.
        part: String,
        /// One that will do.
        example: &'static str,
    },
    /// Something that a repository's name cannot have.
    #[error("the template `{template}` gives no repository name: {source}")]
    Name {
        /// The template.
        template: String,
        /// Why not.
        source: RepositoryError,
    },
}

const PLACEHOLDERS: [&str; 4] = ["{host}", "{namespace}", "{name}", "{system}"];
const DEFAULT_TEMPLATE: &str = "{namespace}/{name}/{system}";

impl Default for RepositoryTemplate {
    fn default() -> Self {
        Self(DEFAULT_TEMPLATE.to_owned())
    }
}

/// Refuses a template by which two addresses could share a repository, or which gives no repository's name. `example` is one of the
/// same kind that will do.
fn check_template(
    text: &str,
    placeholders: &[&str],
    required: &[&'static str],
    example: &'static str,
) -> Result<(), RepositoryTemplateError> {
    let template = || text.to_owned();
    for missing in required {
        if !text.contains(&format!("{{{missing}}}")) {
            return Err(RepositoryTemplateError::Missing { template: template(), missing });
        }
    }
    for part in text.split('/') {
        if part.contains(['{', '}']) && !placeholders.contains(&part) {
            let part = part.to_owned();
            return Err(RepositoryTemplateError::Mixed { template: template(), part, example });
        }
    }
    let sample = placeholders.iter().fold(template(), |name, placeholder| name.replace(placeholder, "a"));
    match sample.parse::<Repository>() {
        Ok(_) => Ok(()),
        Err(source) => Err(RepositoryTemplateError::Name { template: template(), source }),
    }
}

/// The template with a value for each placeholder.
fn fill<'a>(
    template: &'a str,
    placeholders: &[&str],
    values: &[&'a str],
) -> Result<Repository, RepositoryError> {
    let parts = template.split('/').map(|part| {
        let named = placeholders.iter().zip(values).find(|(placeholder, _)| **placeholder == part);
        named.map_or(part, |(_, value)| *value)
    });
    parts.collect::<Vec<_>>().join("/").parse()
}

impl FromStr for RepositoryTemplate {
    type Err = RepositoryTemplateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        check_template(text, &PLACEHOLDERS, &["namespace", "name", "system"], DEFAULT_TEMPLATE)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for RepositoryTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl RepositoryTemplate {
    /// The repositories where the module may be, best first: as the template says, then below its host, which is where
    /// `cue mod publish` puts a module of that path.
    ///
    /// `path` is `host/namespace/name/system` in lower case.
    fn repositories(&self, path: &CuePath) -> Result<Vec<Repository>, RepositoryError> {
        let parts: Vec<&str> = path.as_str().split('/').collect();
        let mut repositories = vec![fill(&self.0, &PLACEHOLDERS, &parts)?];
        if !self.0.split('/').any(|part| part == "{host}") {
            repositories.extend(repositories[0].below(path.first_element()).ok());
        }
        Ok(repositories)
    }
}

/// How the address of a provider becomes a repository: `providers/{hostname}/{namespace}/{type}`. The placeholders are those of
/// OpenTofu's `repository_template`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderTemplate(String);

const PROVIDER_PLACEHOLDERS: [&str; 3] = ["{hostname}", "{namespace}", "{type}"];
const DEFAULT_PROVIDER_TEMPLATE: &str = "providers/{hostname}/{namespace}/{type}";

impl Default for ProviderTemplate {
    fn default() -> Self {
        Self(DEFAULT_PROVIDER_TEMPLATE.to_owned())
    }
}

impl FromStr for ProviderTemplate {
    type Err = RepositoryTemplateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let required = ["hostname", "namespace", "type"];
        check_template(text, &PROVIDER_PLACEHOLDERS, &required, DEFAULT_PROVIDER_TEMPLATE)?;
        Ok(Self(text.to_owned()))
    }
}

impl ProviderTemplate {
    fn repository(&self, address: &ProviderAddress) -> Result<Repository, RepositoryError> {
        let values = [address.host().as_str(), address.namespace(), address.kind()];
        fill(&self.0, &PROVIDER_PLACEHOLDERS, &values)
    }

    /// The provider that a repository's name stands for; `None` where it is not of this form.
    fn read(&self, name: &str) -> Option<ProviderAddress> {
        let (patterns, values) = (self.0.split('/'), name.split('/'));
        if patterns.clone().count() != values.clone().count() {
            return None;
        }
        let mut found: [Option<&str>; 3] = [None; 3];
        for (pattern, value) in patterns.zip(values) {
            match PROVIDER_PLACEHOLDERS.iter().position(|placeholder| *placeholder == pattern) {
                // A placeholder that stands there twice has one value.
                Some(index) if found[index].is_some_and(|known| known != value) => return None,
                Some(index) => found[index] = Some(value),
                None if pattern == value => {}
                None => return None,
            }
        }
        let [Some(host), Some(namespace), Some(kind)] = found else { return None };
        ProviderAddress::parse(&format!("{host}/{namespace}/{kind}")).ok()
    }
}

/// What the name of a repository says of the module in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RepositoryParts<'a> {
    host: Option<&'a str>,
    namespace: &'a str,
}

impl RepositoryTemplate {
    /// Reads a repository's name by the template, in each of the two forms that it may have.
    fn read<'a>(&self, name: &'a str) -> Vec<RepositoryParts<'a>> {
        let by_template = |name: &'a str| {
            let mut parts = RepositoryParts::default();
            let (mut patterns, mut values) = (self.0.split('/'), name.split('/'));
            loop {
                match (patterns.next(), values.next()) {
                    (None, None) => return Some(parts),
                    (Some("{host}"), Some(value)) => parts.host = Some(value),
                    (Some("{namespace}"), Some(value)) => parts.namespace = value,
                    (Some("{name}" | "{system}"), Some(_)) => {}
                    (Some(text), Some(value)) if text == value => {}
                    _ => return None,
                }
            }
        };
        let below_host = name
            .split_once('/')
            .filter(|(host, _)| host.contains('.'))
            .and_then(|(host, rest)| Some(RepositoryParts { host: Some(host), ..by_template(rest)? }));
        by_template(name).into_iter().chain(below_host).collect()
    }
}

/// An opened registry with the prefix of its repositories.
#[derive(Clone)]
pub struct Target {
    /// The registry.
    pub registry: SharedRegistry,
    /// In front of every repository's name; empty where there is none.
    pub prefix: String,
    /// How it is called in messages and references: `ghcr.io`, or `dir:PATH`.
    pub name: String,
    /// Who it is in comparisons: blobs are mounted only within one registry.
    pub identity: Arc<str>,
    /// Whether it is on this machine's disk, so that asking costs nothing.
    pub is_local: bool,
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl Target {
    /// Whether both lead to the same repositories.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity && self.prefix == other.prefix
    }

    /// A repository of this registry, the prefix in front.
    pub fn place(&self, repository: &Repository) -> Result<Place, RepositoryError> {
        Ok(Place { target: self.clone(), repository: repository.below(&self.prefix)? })
    }

    /// The same registry with some text in front of every tag.
    #[must_use]
    pub fn with_tag_prefix(&self, prefix: String) -> Self {
        Self { registry: PrefixedTags::over(&self.registry, prefix), ..self.clone() }
    }
}

/// A repository of a registry: where a module is or would be.
#[derive(Clone)]
pub struct Place {
    /// The registry.
    pub target: Target,
    /// The repository, the registry's prefix included.
    pub repository: Repository,
}

impl Place {
    /// The registry.
    pub fn registry(&self) -> &dyn crate::registry::Registry {
        &*self.target.registry
    }

    /// What stands in front of the module's tags, where others share the repository.
    pub fn tag_prefix(&self) -> &str {
        self.registry().prefixed().map_or("", PrefixedTags::prefix)
    }

    /// The repository as it is stored, with the tags of everybody in it.
    #[must_use]
    pub fn as_stored(&self) -> Self {
        let registry = self.registry().prefixed().map_or(&self.target.registry, PrefixedTags::inner);
        Self { target: Target { registry: Arc::clone(registry), ..self.target.clone() }, ..self.clone() }
    }

    /// The repository's name below the registry's prefix: what rules and patterns are about.
    pub fn below_prefix(&self) -> &str {
        let name = self.repository.as_str();
        match self.target.prefix.as_str() {
            "" => name,
            prefix => name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name),
        }
    }

    /// `registry/repository`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.target.name, self.repository)
    }

    /// `registry/repository:tag` or `registry/repository@digest`.
    pub fn reference(&self, reference: &crate::oci::Reference) -> String {
        match reference {
            crate::oci::Reference::Tag(tag) => {
                format!("{}:{}{tag}", self.name(), self.tag_prefix())
            }
            crate::oci::Reference::Digest(digest) => format!("{}@{digest}", self.name()),
        }
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.target.identity == other.target.identity
            && self.repository == other.repository
            && self.tag_prefix() == other.tag_prefix()
    }
}

impl Eq for Place {}

impl std::hash::Hash for Place {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.target.identity.hash(state);
        self.repository.hash(state);
        self.tag_prefix().hash(state);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name())
    }
}

/// A module by the name that it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleName {
    /// An OpenTofu module; its path is `host/namespace/name/system`.
    Tofu {
        /// As it was written.
        address: TofuAddress,
        /// The path, its host included.
        path: CuePath,
    },
    /// A CUE module, its major version aside: all of them share a repository.
    Cue(CuePath),
}

impl ModuleName {
    /// An OpenTofu module; where the address names no host, it is on `host`.
    pub fn tofu(address: &TofuAddress, host: &Host) -> Result<Self, crate::module::PathError> {
        Ok(Self::Tofu { address: address.clone(), path: address.cue_path(host)? })
    }

    /// The module's path without a major version.
    pub fn path(&self) -> &CuePath {
        match self {
            Self::Tofu { path, .. } | Self::Cue(path) => path,
        }
    }
}

impl fmt::Display for ModuleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tofu { address, .. } => address.fmt(formatter),
            Self::Cue(path) => path.fmt(formatter),
        }
    }
}

/// Every registry that is set, and how modules are laid out in them.
#[derive(Clone)]
#[allow(clippy::struct_field_names)] // they are what the whole is called after
pub struct Routes {
    routes: Vec<Route>,
    template: RepositoryTemplate,
    providers: ProviderTemplate,
}

/// A registry, and the module paths that lead to it.
#[derive(Clone)]
pub struct Route {
    /// What the paths begin with; every other path where absent.
    pub prefix: Option<String>,
    /// The registry; none where the setting says `none`.
    pub target: Option<Target>,
    /// What modules are called there.
    pub encoding: Encoding,
}

impl fmt::Display for Route {
    /// As a setting has it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(prefix) = &self.prefix {
            write!(formatter, "{prefix}=")?;
        }
        match &self.target {
            None => formatter.write_str("none")?,
            Some(target) if target.prefix.is_empty() => formatter.write_str(&target.name)?,
            Some(target) => write!(formatter, "{}/{}", target.name, target.prefix)?,
        }
        if self.encoding.is_plain() { Ok(()) } else { write!(formatter, " ({})", self.encoding) }
    }
}

/// A module has no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No prefix fits and there is no catch-all.
    #[error(
        "no registry is set for `{0}`; add one for its path to `--registry`, or one without a prefix for all the rest"
    )]
    NoRegistry(String),
    /// The path gives no repository name.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl Routes {
    /// The registries with the prefixes that lead to them; no prefix leads everywhere else, and no registry is one that keeps
    /// nothing.
    pub fn new(routes: Vec<(Option<String>, Option<Target>)>, template: RepositoryTemplate) -> Self {
        let plain = |(prefix, target)| Route { prefix, target, encoding: Encoding::default() };
        Self::encoded(routes.into_iter().map(plain).collect(), template)
    }

    /// The same where modules may be called otherwise than by their paths.
    pub fn encoded(routes: Vec<Route>, template: RepositoryTemplate) -> Self {
        Self { routes, template, providers: ProviderTemplate::default() }
    }

    /// The same routes with providers in other repositories.
    #[must_use]
    pub fn with_providers(self, providers: ProviderTemplate) -> Self {
        Self { providers, ..self }
    }

    /// The same registries, asked anew for each list.
    #[must_use]
    pub fn always_asked(&self) -> Self {
        let asked = |target: &Target| Target {
            registry: target.registry.always_asked().unwrap_or_else(|| Arc::clone(&target.registry)),
            ..target.clone()
        };
        let routes = self.routes.iter();
        let routes =
            routes.map(|route| Route { target: route.target.as_ref().map(asked), ..route.clone() }).collect();
        Self { routes, template: self.template.clone(), providers: self.providers.clone() }
    }

    /// The same routes with every registry wrapped in something, once each: a counter, a cache.
    #[must_use]
    pub fn wrapped(mut self, mut wrap: impl FnMut(&Target) -> SharedRegistry) -> Self {
        let mut known: Vec<(SharedRegistry, SharedRegistry)> = Vec::new();
        for target in self.routes.iter_mut().filter_map(|route| route.target.as_mut()) {
            let wrapped = known.iter().find(|(bare, _)| Arc::ptr_eq(bare, &target.registry));
            let wrapped = wrapped.map_or_else(|| wrap(target), |(_, wrapped)| Arc::clone(wrapped));
            known.push((std::mem::replace(&mut target.registry, Arc::clone(&wrapped)), wrapped));
        }
        self
    }

    /// Every registry.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.routes.iter().filter_map(|route| route.target.as_ref())
    }

    /// Every registry, with what modules are called there.
    pub fn encodings(&self) -> impl Iterator<Item = (&Target, &Encoding)> {
        self.routes.iter().filter_map(|route| Some((route.target.as_ref()?, &route.encoding)))
    }

    /// The one registry that everything is in, where there is one and no prefix leads elsewhere.
    pub fn only_target(&self) -> Option<&Target> {
        match &self.routes[..] {
            [Route { prefix: None, target, .. }] => target.as_ref(),
            _ => None,
        }
    }

    /// The registries in words.
    pub fn describe(&self) -> String {
        let names = self.routes.iter().map(|Route { prefix, target, .. }| {
            let place = match target {
                None => "none".to_owned(),
                Some(target) if target.prefix.is_empty() => target.name.clone(),
                Some(target) => format!("{}/{}", target.name, target.prefix),
            };
            prefix.as_ref().map_or(place.clone(), |prefix| format!("{place} ({prefix})"))
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// The registry for a module path: that of the longest prefix of whole elements.
    pub fn target(&self, path: &CuePath) -> Option<&Target> {
        self.route(path.as_str())?.target.as_ref()
    }

    /// Whether a prefix, and not the catch-all, leads this path to a registry.
    pub fn is_routed(&self, path: &CuePath) -> bool {
        self.route(path.as_str()).is_some_and(|route| route.prefix.is_some() && route.target.is_some())
    }

    /// The hosts of the modules that may be here, for whoever asks without naming one: the placeholder host, which stands for
    /// every one where a catch-all leads, and then the host that each prefix begins with.
    pub fn hosts(&self) -> Vec<Host> {
        let routed = self.routes.iter().filter(|route| route.target.is_some());
        let (prefixed, rest): (Vec<_>, Vec<_>) = routed.partition(|route| route.prefix.is_some());
        let mut hosts: Vec<Host> = rest.iter().map(|_| Host::internal()).collect();
        for prefix in prefixed.iter().filter_map(|route| route.prefix.as_deref()) {
            let first = prefix.split('/').next().unwrap_or(prefix);
            hosts.extend(Host::parse(first).ok().filter(|host| !hosts.contains(host)));
        }
        hosts
    }

    /// What leads a module path to its registry: the longest prefix of whole elements.
    pub fn route(&self, path: &str) -> Option<&Route> {
        let fits = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.routes
            .iter()
            .filter(|route| route.prefix.as_deref().is_none_or(fits))
            .max_by_key(|route| route.prefix.as_ref().map(String::len))
    }

    /// Whether a repository belongs to the namespace of a module: to the same one on the same host for OpenTofu, to the same host for
    /// CUE. What the module in the repository calls itself can only speak against it.
    pub fn shares_namespace(
        &self,
        module: &ModuleName,
        holder: &Place,
        holder_path: Option<&CuePath>,
    ) -> bool {
        let host = module.path().first_element();
        let fits = |other: &str| host == other || [host, other].contains(&Host::INTERNAL);
        if !holder_path.is_none_or(|path| fits(path.first_element())) {
            return false;
        }
        // A name that is no path gives nobody rights by it.
        let is_hidden = |(target, encoding): (&Target, &Encoding)| {
            target.is_same(&holder.target) && *encoding.path() != PathEncoding::Path
        };
        if self.encodings().any(is_hidden) {
            return false;
        }
        // Where a repository is below a host's name, rights to push are given by that name. The placeholder host, which stands for any
        // other, opens the modules of all to none of them.
        let is_below = |other: &str| host == other || other == Host::INTERNAL;
        match module {
            ModuleName::Cue(_) => holder.below_prefix().split('/').next() == Some(host),
            ModuleName::Tofu { path, .. } => {
                let namespace = path.as_str().split('/').nth(1);
                self.template
                    .read(holder.below_prefix())
                    .iter()
                    .any(|parts| Some(parts.namespace) == namespace && parts.host.is_none_or(is_below))
            }
        }
    }

    /// Whether there are modules in a registry that are not called what they are, by their repositories or their tags.
    pub fn is_encoded(&self, target: &Target) -> bool {
        self.encodings().any(|(other, encoding)| other.is_same(target) && !encoding.is_plain())
    }

    /// Where a provider is. Its address leads to a registry as a module's path does.
    pub fn provider_place(&self, address: &ProviderAddress) -> Result<Place, RouteError> {
        let path = address.to_string();
        let target = self.route(&path).and_then(|route| route.target.as_ref());
        let target = target.ok_or(RouteError::NoRegistry(path))?;
        Ok(target.place(&self.providers.repository(address)?)?)
    }

    /// The provider that is kept in a repository, by the repository's name; `None` where none is, or where it would be looked for
    /// elsewhere.
    pub fn provider_at(&self, place: &Place) -> Option<ProviderAddress> {
        let address = self.providers.read(place.below_prefix())?;
        (self.provider_place(&address).ok()? == *place).then_some(address)
    }

    /// Where a module may be, best first; the first one is where it is pushed.
    pub fn places(&self, module: &ModuleName) -> Result<Vec<Place>, RouteError> {
        let path = module.path();
        let no_registry = || RouteError::NoRegistry(path.to_string());
        let Route { target, encoding, .. } = self.route(path.as_str()).ok_or_else(no_registry)?;
        let target = target.as_ref().ok_or_else(no_registry)?;
        let target = target.with_tag_prefix(encoding.tag_prefix(path));
        let encoded = || match encoding.repository(path)? {
            Some(repository) => target.place(&repository),
            None => Ok(Place { target: target.clone(), repository: target.prefix.parse()? }),
        };
        let by_template = || {
            let repositories = self.template.repositories(path)?;
            repositories.iter().map(|repository| target.place(repository)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match (module, encoding.path()) {
            (ModuleName::Tofu { .. }, PathEncoding::Path) => by_template()?,
            (ModuleName::Tofu { .. }, PathEncoding::Stripped(_)) => {
                // The second is where `cue` looks for a module of that path.
                by_template()?.into_iter().take(1).chain([encoded()?]).collect()
            }
            _ => vec![encoded()?],
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_template_never_folds_two_modules_into_one_repository() {
        use RepositoryTemplateError as E;
        let parse = |text: &str| text.parse::<RepositoryTemplate>();
        assert!(parse("modules/{host}/{namespace}/{name}/{system}").is_ok());
        assert!(matches!(parse("{namespace}/{name}"), Err(E::Missing { missing: "system", .. })));
        assert!(matches!(parse("{namespace}_{name}/{system}"), Err(E::Mixed { .. })));
        assert!(matches!(parse("{namespace}/{name}/{system}/{version}"), Err(E::Mixed { .. })));
        assert!(matches!(parse("{namespace}/{name}/{system}/A"), Err(E::Name { .. })));
    }

    #[test]
    fn a_provider_has_one_repository_and_a_repository_one_provider() {
        use RepositoryTemplateError as E;
        let parse = |text: &str| text.parse::<ProviderTemplate>();
        assert!(matches!(parse("{namespace}/{type}"), Err(E::Missing { missing: "hostname", .. })));
        assert!(matches!(parse("{hostname}/{namespace}-{type}"), Err(E::Mixed { .. })));
        assert!(matches!(parse("{hostname}/{namespace}/{type}/{version}"), Err(E::Mixed { .. })));
        let address = ProviderAddress::parse("hashicorp/time").unwrap();
        for (template, name) in [
            (DEFAULT_PROVIDER_TEMPLATE, "providers/registry.opentofu.org/hashicorp/time"),
            ("{type}/{hostname}/x/{namespace}", "time/registry.opentofu.org/x/hashicorp"),
        ] {
            let template = parse(template).unwrap();
            assert_eq!(template.repository(&address).unwrap().as_str(), name);
            assert_eq!(template.read(name), Some(address.clone()));
            for other in ["", "a/b/c", "providers/a/b", "acme/vpc/aws", "providers/a/b/c/d"] {
                assert_eq!(template.read(other), None, "{other}");
            }
        }
        let twice = parse("{type}/{hostname}/{namespace}/{type}").unwrap();
        assert!(twice.read("time/a.b/c/time").is_some() && twice.read("time/a.b/c/other").is_none());
    }

    #[test]
    fn who_may_write_below_some_host_does_not_speak_for_modules_of_a_namespace() {
        struct Nothing;
        impl crate::registry::Registry for Nothing {}
        let target = Target {
            registry: Arc::new(Nothing),
            prefix: String::new(),
            name: "test".into(),
            identity: "test".into(),
            is_local: true,
        };
        let shares = |template: &str, host: &str, holder: &str| {
            let routes = Routes::new(vec![(None, Some(target.clone()))], template.parse().unwrap());
            let address = TofuAddress::parse("acme/label/null").unwrap();
            let module = ModuleName::tofu(&address, &host.parse().unwrap()).unwrap();
            routes.shares_namespace(&module, &target.place(&holder.parse().unwrap()).unwrap(), None)
        };
        for (template, in_front) in
            [("{namespace}/{name}/{system}", ""), ("{host}/{namespace}/{name}/{system}", "a.example/")]
        {
            assert!(shares(template, "a.example", &format!("{in_front}acme/stack/null")));
            assert!(shares(template, "a.example", "a.example/acme/stack/null"));
            assert!(shares(template, "modules.internal", "modules.internal/acme/stack/null"));
            assert!(!shares(template, "modules.internal", "evil.example/acme/stack/null"));
            assert!(!shares(template, "a.example", "evil.example/acme/stack/null"));
            assert!(!shares(template, "a.example", &format!("{in_front}evil/acme/null")));
        }
    }

    #[test]
    fn a_module_is_looked_for_by_the_template_and_below_its_host() {
        let path: CuePath = "modules.acme.example/acme/vpc/aws".parse().unwrap();
        let names = |template: &str| -> Vec<String> {
            let template: RepositoryTemplate = template.parse().unwrap();
            template.repositories(&path).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            names("{namespace}/{name}/{system}"),
            ["acme/vpc/aws", "modules.acme.example/acme/vpc/aws"]
        );
        assert_eq!(names("m/{host}/{namespace}/{name}/{system}"), ["m/modules.acme.example/acme/vpc/aws"]);
    }
}
