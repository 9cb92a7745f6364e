//! The repository as files: where its root is and what it contains.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the repository.
///
/// Known at compile time: `cargo run` builds xtask in the tree it works on.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the repository")
}

/// Every file below `directory` in a stable order, as paths relative to `root`.
///
/// Leaves out what no author wrote: hidden folders except `.cargo`, `.ci` and `.github`, and `target`.
pub(crate) fn files_below(root: &Path, directory: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![root.join(directory)];
    while let Some(folder) = pending.pop() {
        let entries = fs::read_dir(&folder)
            .with_context(|| format!("cannot list {}", folder.display()))?
            .collect::<Result<Vec<_>, _>>()?;
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                let hidden =
                    name.starts_with('.') && !matches!(name.as_ref(), ".cargo" | ".ci" | ".github");
                if !hidden && name != "target" && name != "node_modules" {
                    pending.push(entry.path());
                }
            } else if kind.is_file() {
                let path = entry.path();
                found.push(path.strip_prefix(root).context("outside the root")?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The files of the whole repository with this ending.
pub(crate) fn files_ending(root: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = files_below(root, "")?;
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    Ok(files)
}
