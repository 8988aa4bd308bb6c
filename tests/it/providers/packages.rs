//! Zips of providers, as release tools write them; what is in them is a stand-in.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a zip with these files.
pub(crate) fn zip(path: &Path, files: &[(&str, &[u8])]) {
    let mut writer = zip::ZipWriter::new(std::fs::File::create(path).expect("the folder is ours"));
    for (name, bytes) in files {
        let options = zip::write::SimpleFileOptions::default().unix_permissions(0o755);
        writer.start_file(*name, options).expect("a zip can be written");
        writer.write_all(bytes).expect("a zip can be written");
    }
    writer.finish().expect("a zip can be written");
}

/// The zip of a provider for one platform, in `folder`, under the name that it has everywhere. `content` tells it from others.
pub(crate) fn package(folder: &Path, kind: &str, version: &str, platform: &str, content: &str) -> PathBuf {
    let path = folder.join(format!("terraform-provider-{kind}_{version}_{platform}.zip"));
    let program = format!("terraform-provider-{kind}_v{version}_x5");
    let text = format!("#!/bin/sh\n# {platform} {content}\nexit 1\n");
    zip(&path, &[("LICENSE", b"as is\n"), (&program, text.as_bytes())]);
    path
}
