//! What a module is: its path and versions, its module file, and what its `.tf` files say. All of it is pure.

mod address;
mod constraint;
mod cue_data;
#[cfg(test)]
#[path = "../../tests/fuzz/module_file.rs"]
pub(crate) mod fuzz_target;
mod imports;
mod module_file;
mod path;
mod platform;
mod tofu;
mod tofu_address;
mod version;

pub use address::{Address, AddressAt, AddressError, OciAddress, ProviderAddress, VersionQuery};
pub use constraint::{Constraint, ConstraintError};
pub use cue_data::{CueError, Field as CueField, Struct as CueStruct, Value as CueValue, parse as parse_cue};
pub use imports::{FileHead, Import, ImportPath};
pub use module_file::{Dependency, Generated, ModuleFile, ModuleFileError, Ocimod, SourceKind};
pub use path::{CuePath, Host, ModulePath, ModuleVersion, PathError};
pub use platform::{PackageName, PlatformError, ProviderPlatform};
pub use tofu::{Call, Escape, Input, Output, RequiredProvider, Scope, Source, TofuModule, is_tofu_file};
pub use tofu_address::TofuAddress;
pub use version::{Version, VersionError};
