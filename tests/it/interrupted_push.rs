//! A push that breaks off, at whichever request, shows nobody anything, and the next one ends well.

use std::path::PathBuf;
use std::sync::Arc;

use ocimod::module::{AddressAt, Version};
use ocimod::operations::published::DependencyForm;
use ocimod::operations::push::{self, PushRequest, Pushed};
use ocimod::operations::routes::{ModuleName, RepositoryTemplate, Routes, Target};
use ocimod::operations::{NoProgress, OperationError, connect, published};
use ocimod::registry::RegistryError;

use crate::failing_registry::{FailingRegistry, Failure, When};
use crate::support::modules::example;

/// Every operation of a push that may fail on its way.
const OPERATIONS: [&str; 6] = ["tags", "manifest", "blob_size", "mount", "put_blob", "put_manifest"];

fn broken() -> RegistryError {
    RegistryError::Unavailable { registry: "registry.example".into(), reason: "it is told to be".into() }
}

struct Rig {
    registry: Arc<FailingRegistry>,
    routes: Routes,
    _folder: tempfile::TempDir,
}

impl Rig {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = FailingRegistry::new(connect::directory(folder.path().to_owned()).await.unwrap());
        let target = Target {
            registry: registry.clone(),
            prefix: String::new(),
            name: "registry.example".into(),
            identity: "registry.example".into(),
            is_local: false,
        };
        let routes = Routes::new(vec![(None, Some(target))], RepositoryTemplate::default());
        Self { registry, routes, _folder: folder }
    }

    async fn push(
        &self,
        source: PathBuf,
        address: &str,
        form: DependencyForm,
    ) -> Result<Pushed, OperationError> {
        let request = PushRequest {
            source,
            naming: ocimod::operations::prepare::Naming {
                address: Some(address.parse().unwrap()),
                ..Default::default()
            },
            host_aliases: Vec::new(),
            form: Some(form),
            strict: false,
            dry_run: false,
            created: Some(0),
        };
        push::push(&self.routes, &request, Arc::new(NoProgress)).await
    }

    /// What readers see of the stack.
    async fn versions(&self) -> Vec<Version> {
        let address: AddressAt = "acme/stack/null".parse().unwrap();
        let module: ModuleName = published::name(&address).unwrap();
        match published::find(&self.routes, &module).await {
            Ok(published) => published.listed().cloned().collect(),
            Err(OperationError::NoModule { .. }) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_breaks_off_shows_nothing_and_the_next_one_ends_well() {
    let expected = {
        let rig = Rig::new().await;
        rig.push(example("terraform-null-label"), "acme/label/null@1.0.0", DependencyForm::Inline)
            .await
            .unwrap();
        rig.push(example("terraform-null-stack"), "acme/stack/null@1.0.0", DependencyForm::Inline)
            .await
            .unwrap()
            .digest
    };
    let mut failures = 0;
    for operation in OPERATIONS {
        for nth in 1.. {
            let rig = Rig::new().await;
            rig.push(example("terraform-null-label"), "acme/label/null@1.0.0", DependencyForm::Inline)
                .await
                .unwrap();
            rig.registry.fail(operation, When::Nth(nth), Failure::error(broken));
            let broken = rig
                .push(example("terraform-null-stack"), "acme/stack/null@1.0.0", DependencyForm::Inline)
                .await;
            rig.registry.work_again();
            let is_over = broken.is_ok();
            if !is_over {
                failures += 1;
                assert!(rig.versions().await.is_empty(), "{operation} {nth}");
            }
            let again = rig
                .push(example("terraform-null-stack"), "acme/stack/null@1.0.0", DependencyForm::Inline)
                .await
                .unwrap();
            assert_eq!((again.created, again.digest), (!is_over, expected.clone()), "{operation} {nth}");
            if is_over {
                break;
            }
        }
    }
    assert!(failures > OPERATIONS.len(), "each operation was reached");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_last_answer_is_lost_is_found_done() {
    for form in [DependencyForm::Inline, DependencyForm::Separate, DependencyForm::None] {
        for nth in 1..=3 {
            let rig = Rig::new().await;
            rig.push(example("terraform-null-label"), "acme/label/null@1.0.0", DependencyForm::Inline)
                .await
                .unwrap();
            rig.registry.fail("put_manifest", When::Nth(nth), Failure::error_afterwards(broken));
            let lost = rig.push(example("terraform-null-stack"), "acme/stack/null@1.0.0", form).await;
            rig.registry.work_again();
            let again =
                rig.push(example("terraform-null-stack"), "acme/stack/null@1.0.0", form).await.unwrap();
            assert_eq!(rig.versions().await.len(), 1);
            // Whatever was lost, the version's own tag is there in the end, and tells what the push tells.
            let third =
                rig.push(example("terraform-null-stack"), "acme/stack/null@1.0.0", form).await.unwrap();
            assert_eq!((third.created, third.bytes_sent, &third.digest), (false, 0, &again.digest));
            if lost.is_ok() {
                break;
            }
        }
    }
}
