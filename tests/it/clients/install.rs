//! OpenTofu and Terraform install modules through `ocimod serve`, over plain http by a `host` block.

use serde_json::json;

use crate::support::clients;
use crate::support::modules::{Root, example, write};
use crate::support::ocimod::Ocimod;

const HOST: &str = "modules.internal";

/// A root module that calls one module and hands on one output.
fn root(source: &str, version: &str, inputs: &str, output: &str) -> String {
    format!(
        "module \"it\" {{\n  source  = \"{source}\"\n  version = \"{version}\"\n{inputs}}}\n\noutput \"it\" {{\n  value = module.it.{output}\n}}\n"
    )
}

const LABEL: &str = "  namespace = \"acme\"\n  stage     = \"test\"\n  name      = \"shop\"\n";

#[test]
fn a_module_is_installed_by_constraint_by_subfolder_and_with_what_it_calls() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    ocimod.push(&registry, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    ocimod.push(&registry, &example("terraform-null-label"), "acme/label/null@1.3.0-rc.1", &[]);
    ocimod.push(&registry, &example("terraform-null-stack"), "acme/stack/null@1.0.0", &[]);
    let serve = ocimod.serve(["--registry", &registry]);

    for tofu in clients::tofus() {
        let name = tofu.file_name().expect("a program has a name").to_string_lossy().into_owned();
        let root_in = |test: &str, main: String| {
            Root::new(&tofu, &ocimod.folder(&format!("{name}-{test}")), HOST, &serve.address, &main)
        };

        let label = root_in("label", root("modules.internal/acme/label/null", "~> 1.0", LABEL, "id"));
        assert_eq!(label.apply("it"), json!("acme-test-shop"), "{name}");

        let inputs = "  seed   = \"acme/test/shop\"\n  length = 8\n";
        let subfolder = root("modules.internal/acme/label/null//modules/suffix", "~> 1.0", inputs, "value");
        assert_eq!(root_in("subfolder", subfolder).apply("it").as_str().map(str::len), Some(8), "{name}");

        let exact =
            root_in("pre-release", root("modules.internal/acme/label/null", "1.3.0-rc.1", LABEL, "id"));
        assert_eq!(exact.apply("it"), json!("acme-test-shop"), "{name}");

        let inputs = format!("{LABEL}  components = [\"api\", \"worker\"]\n");
        let stack = root_in("stack", root("modules.internal/acme/stack/null", "~> 1.0", &inputs, "ids"));
        let ids = json!({"api": "acme-test-shop-api", "worker": "acme-test-shop-worker"});
        assert_eq!(stack.apply("it"), ids, "{name}");
    }
}

#[test]
fn what_is_not_there_is_said_cleanly() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    ocimod.push(&registry, &example("terraform-null-label"), "acme/label/null@1.0.0", &[]);
    let serve = ocimod.serve(["--registry", &registry]);

    for tofu in clients::tofus() {
        let name = tofu.file_name().expect("a program has a name").to_string_lossy().into_owned();
        let init = |test: &str, source: &str, version: &str| {
            let folder = ocimod.folder(&format!("{name}-{test}"));
            let main = root(source, version, LABEL, "id");
            let answer = Root::new(&tofu, &folder, HOST, &serve.address, &main)
                .run(&["init", "-no-color", "-input=false"])
                .fails_with(1);
            answer.all().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let unknown = init("unknown", "modules.internal/acme/nothing/null", "~> 1.0");
        assert!(unknown.contains("Module not found"), "{name}: {unknown}");
        let unsatisfied = init("unsatisfied", "modules.internal/acme/label/null", "~> 2.0");
        assert!(unsatisfied.contains("no available version of module"), "{name}: {unsatisfied}");
    }
}

#[test]
fn a_module_with_odd_names_inside_is_installed() {
    let ocimod = Ocimod::new();
    let registry = format!("dir:{}", ocimod.folder("store").display());
    let module = ocimod.folder("terraform-null-odd");
    write(
        &module,
        &[
            ("main.tf", "output \"text\" {\n  value = file(\"${path.module}/with space/ünï.txt\")\n}\n"),
            ("with space/ünï.txt", "odd"),
            (".hidden", "kept"),
        ],
    );
    ocimod.push(&registry, &module, "acme/odd/null@0.1.0", &[]);
    let serve = ocimod.serve(["--registry", &registry]);
    for tofu in clients::tofus() {
        let name = tofu.file_name().expect("a program has a name").to_string_lossy().into_owned();
        let folder = ocimod.folder(&format!("{name}-odd"));
        let main = root("modules.internal/acme/odd/null", "0.1.0", "", "text");
        assert_eq!(Root::new(&tofu, &folder, HOST, &serve.address, &main).apply("it"), json!("odd"));
    }
}
