//! `ocimod pack`: the zip that a push would send.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::failure::{ExitStatus, Failure};
use super::module_options::ModuleOptions;
use super::printer::Answer;
use crate::operations::pack::{self, PackRequest};

/// Write the zip that `push` would send
#[derive(Args, Clone, Debug)]
pub struct Pack {
    /// The module's folder
    #[arg(value_name = "DIR")]
    pub source: PathBuf,
    /// Its address [default: from the module file, else from the folder's name and `--namespace`]
    #[arg(value_name = "ADDRESS[@VERSION]")]
    pub address: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub module: ModuleOptions,
    /// The zip to write [default: the folder's name, with `.zip`]
    #[arg(long, short, value_name = "FILE.zip")]
    pub output: Option<PathBuf>,
}

/// `address`, `version`, `file`, `digest`, `size`, `files`.
#[derive(Serialize)]
struct PackAnswer {
    address: String,
    version: String,
    file: String,
    digest: String,
    size: u64,
    files: Vec<String>,
}

impl Answer for PackAnswer {
    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}", self.file)
    }
}

impl Pack {
    pub(super) async fn run(&self, context: &Context) -> Result<ExitStatus, Failure> {
        let routes = context.routes_to_read(&context.registry.choose(context)?).await?;
        let source = context.environment.absolute(&self.source);
        let output = self.output.clone().unwrap_or_else(|| {
            let name = source.file_name().unwrap_or_else(|| "module".as_ref());
            let mut name = name.to_os_string();
            name.push(".zip");
            name.into()
        });
        let request = PackRequest {
            naming: self.module.naming(context, self.address.as_deref())?,
            host_aliases: self.module.host_aliases()?,
            strict: self.module.strict,
            output: context.environment.absolute(&output),
            source,
        };
        let packed = pack::pack(&routes, &request).await?;
        context.printer.answer(&PackAnswer {
            address: packed.address,
            version: packed.version.to_string(),
            file: output.display().to_string(),
            digest: packed.digest.to_string(),
            size: packed.size,
            files: packed.files,
        })?;
        Ok(ExitStatus::Done)
    }
}
