//! Brings a module into another form of `--deps` on its way: its dependencies as layers, beside it, or not at all.
//!
//! The zips stay what they are; the manifest is another one, with another digest, so what refers to it (a signature) does not hold for
//! it any more.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::archive::ModuleKind;
use crate::artifact::{self, Content, DependencyLayer, TaggedVersion, form};
use crate::module::Constraint;
use crate::module::{Host, ModuleVersion};
use crate::oci::{Digest, IMAGE_MANIFEST, Manifest, ManifestError, Reference, Tag};
use crate::operations::closure::name_of;
use crate::operations::error::{OperationError, Result};
use crate::operations::finding::Finding;
use crate::operations::published::{self, DependencyForm, StoredModule};
use crate::operations::resolve::{self, OwnHosts};
use crate::operations::routes::{ModuleName, Place};
use crate::operations::{inspect, list};
use crate::registry::RegistryError;

use super::Copier;
use super::pair::Pair;

/// A version in another form.
pub(super) struct Converted {
    /// The version's tag.
    pub(super) tag: Tag,
    /// The manifest at it.
    pub(super) tagged: Bytes,
    /// The bundle and its tag, where there is one.
    pub(super) bundle: Option<(Tag, Bytes)>,
    /// The zips of dependencies that are in other repositories.
    pub(super) dependencies: Vec<(Place, Content)>,
}

impl Copier {
    /// The version in another form; `None` where it has that form, needs nothing, or is no module.
    pub(super) async fn convert(
        &self,
        pair: &Pair,
        tagged: &TaggedVersion,
        wanted: DependencyForm,
    ) -> Result<Option<Converted>> {
        let stored = match published::load(&pair.from, tagged).await {
            Err(OperationError::NotAModule { .. }) => return Ok(None),
            stored => stored?,
        };
        // Where the bundle's tag alone was copied, the other one is missing.
        if stored.form == wanted && tagged.has_tag {
            return Ok(None);
        }
        let changed = |bytes: std::result::Result<Bytes, ManifestError>| {
            bytes.map_err(RegistryError::from).map_err(OperationError::registry(stored.name()))
        };
        let (mut dependencies, inline, without);
        match stored.form {
            DependencyForm::Inline => {
                dependencies = Vec::new();
                inline = stored.manifest.clone();
                without = changed(form::without_dependencies(&inline))?;
            }
            DependencyForm::Separate => {
                dependencies = Vec::new();
                let reference = Reference::Tag(artifact::bundle_tag(&tagged.tag)?);
                let bundle = self.read(pair, &reference).await?.bytes;
                inline = changed(form::unbundled(&bundle))?;
                without = if tagged.has_tag {
                    stored.manifest.clone()
                } else {
                    rebuilt(&stored, changed(form::without_dependencies(&inline))?)?
                };
            }
            DependencyForm::None => {
                let found = self.dependencies(pair, &stored).await?;
                if found.is_empty() {
                    return Ok(None);
                }
                let layers: Vec<DependencyLayer> = found.iter().map(|(_, layer)| layer.clone()).collect();
                dependencies = found.into_iter().map(|(place, layer)| (place, layer.archive)).collect();
                without = stored.manifest.clone();
                inline = changed(form::with_dependencies(&without, &layers))?;
            }
        }
        let (tagged_bytes, bundle) = match wanted {
            DependencyForm::Inline => (inline, None),
            DependencyForm::Separate => {
                let bundle = changed(form::bundle(&inline, &without))?;
                (without, Some((artifact::bundle_tag(&tagged.tag)?, bundle)))
            }
            DependencyForm::None => {
                dependencies = Vec::new();
                (without, None)
            }
        };
        // A manifest of Docker's type calls itself so, and is not written as one of OCI's.
        changed(Manifest::parse(IMAGE_MANIFEST, &tagged_bytes).map(|_| Bytes::new()))?;
        if self.request.referrers && Digest::of(&tagged_bytes) != stored.digest {
            self.progress
                .warn(&format!("{} gets another manifest, which no signature is about", stored.name()));
        }
        Ok(Some(Converted { tag: tagged.tag.clone(), tagged: tagged_bytes, bundle, dependencies }))
    }

    /// The zips that a version without layers needs, each where it is.
    async fn dependencies(
        &self,
        pair: &Pair,
        stored: &StoredModule,
    ) -> Result<Vec<(Place, DependencyLayer)>> {
        let Some((name, _)) = list::name_of(&pair.from) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for needed in self.needed(&name, stored).await? {
            let Some((_, dependency)) = self.locate(&needed).await? else {
                let message = format!(
                    "{} needs `{needed}`, which is not in {}; without it the module cannot be brought into this form",
                    stored.name(),
                    self.from.describe()
                );
                return Err(OperationError::refused(Finding::general("dependency-missing", message)));
            };
            found.push((needed, dependency));
        }
        let main_only = match stored.artifact.kind {
            ModuleKind::Cue => resolve::main_only(stored, &found).await?,
            ModuleKind::OpenTofu => BTreeSet::new(),
        };
        let layer = |(module, dependency): (ModuleVersion, StoredModule)| {
            let main_only = main_only.contains(&module.module_path());
            (dependency.place, DependencyLayer { module, archive: dependency.artifact.archive, main_only })
        };
        let mut found: Vec<_> = found.into_iter().map(layer).collect();
        found.sort_by(|(_, one), (_, other)| one.module.cmp(&other.module));
        Ok(found)
    }

    /// The versions of other modules that a version needs.
    pub(super) async fn needed(
        &self,
        name: &ModuleName,
        stored: &StoredModule,
    ) -> Result<Vec<ModuleVersion>> {
        let recorded = stored.recorded_dependencies().await?;
        let is_silent = stored.artifact.module_file.is_none() && stored.artifact.kind == ModuleKind::OpenTofu;
        if !recorded.is_empty() || !is_silent {
            return Ok(recorded);
        }
        // Pushed by a tool that says nothing of what the module calls: its files do.
        let tofu = inspect::read_tofu(stored).await?;
        let host = Host::parse(name.path().first_element()).unwrap_or_else(|_| Host::internal());
        let own = OwnHosts { host, aliases: Vec::new() };
        let resolved =
            resolve::opentofu(Some(&self.from), &own, Some(name), stored.version.as_ref(), &tofu).await;
        let resolution = match resolved {
            Err(OperationError::Refused(findings)) => {
                for finding in findings {
                    self.progress.warn(&format!("{}: {finding}", stored.name()));
                }
                return Ok(Vec::new());
            }
            resolution => resolution?,
        };
        Ok(resolution.dependencies.into_iter().map(|dependency| dependency.layer.module).collect())
    }

    /// Where one version of a module is, by itself.
    pub(super) async fn locate(
        &self,
        needed: &ModuleVersion,
    ) -> Result<Option<(TaggedVersion, StoredModule)>> {
        let exact = Constraint::exactly(needed.version());
        match published::find(&self.from, &name_of(needed)).await {
            Ok(published) => published.newest(&exact).await,
            Err(OperationError::NoModule { .. } | OperationError::Route(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The manifest that a bundle is about, made of the bundle; refused where it does not come out as it was.
fn rebuilt(bundle: &StoredModule, without: Bytes) -> Result<Bytes> {
    if bundle.subject.as_ref() == Some(&Digest::of(&without)) {
        return Ok(without);
    }
    let message = format!(
        "{} is a bundle without the version that it is about, and that cannot be made of it; copy it as it is, without `--deps`",
        bundle.name()
    );
    Err(OperationError::refused(Finding::general("form-unknown", message)))
}
