//! `profiler-ebpf/object/SOURCES.sha256`: which sources and which compiler made the object.
//!
//! The lines are `sha256sum`'s, so `sha256sum -c` in the repository's root reads them too.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::source_tree;

/// The compiled kernel programs, relative to the root.
pub(crate) const OBJECT: &str = "profiler-ebpf/object/stallscope.bpf.o";
/// What made them.
pub(crate) const RECORD: &str = "profiler-ebpf/object/SOURCES.sha256";

/// Files and folders whose content decides what the compiler makes.
const SOURCES: [&str; 6] = [
    "profiler-common/Cargo.toml",
    "profiler-common/src",
    "profiler-ebpf/.cargo",
    "profiler-ebpf/Cargo.lock",
    "profiler-ebpf/Cargo.toml",
    "profiler-ebpf/src",
];

/// One object's origin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The versions of the compiler and the linker.
    pub(crate) toolchain: String,
    /// The object's hash.
    pub(crate) object: String,
    /// Path and hash of each source, sorted by path.
    pub(crate) sources: Vec<(String, String)>,
}

impl Record {
    /// The record of the sources as they are now, for an object of this content.
    pub(crate) fn of(root: &Path, toolchain: String, object: &[u8]) -> Result<Self> {
        Ok(Self { toolchain, object: hash(object), sources: hash_sources(root)? })
    }

    /// Reads the record that is checked in.
    pub(crate) fn checked_in(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(RECORD))
            .with_context(|| format!("cannot read {RECORD}: run `cargo xtask build-ebpf`"))?;
        Self::parse(&text).with_context(|| format!("{RECORD} is damaged"))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut record =
            Self { toolchain: String::new(), object: String::new(), sources: Vec::new() };
        for line in text.lines() {
            if let Some(toolchain) = line.strip_prefix("# toolchain: ") {
                record.toolchain = toolchain.to_owned();
            } else if let Some((hash, path)) = line.split_once("  ")
                && !line.starts_with('#')
            {
                if path == OBJECT {
                    record.object = hash.to_owned();
                } else {
                    record.sources.push((path.to_owned(), hash.to_owned()));
                }
            }
        }
        if record.toolchain.is_empty() || record.object.is_empty() || record.sources.is_empty() {
            bail!("toolchain, object or sources are missing");
        }
        Ok(record)
    }

    /// The text of the record.
    pub(crate) fn render(&self) -> String {
        let mut text = format!(
            "# Written by `cargo xtask build-ebpf`.\n# toolchain: {}\n# total: {}\n{}  {OBJECT}\n",
            self.toolchain,
            self.total(),
            self.object
        );
        for (path, hash) in &self.sources {
            text.push_str(&format!("{hash}  {path}\n"));
        }
        text
    }

    /// One hash for all sources: over their sorted paths and hashes.
    fn total(&self) -> String {
        let mut hasher = Sha256::new();
        for (path, hash) in &self.sources {
            hasher.update(format!("{hash}  {path}\n"));
        }
        hex(&hasher.finalize())
    }

    /// The paths whose content is not what the record says, with what happened to each.
    fn differences(&self, now: &[(String, String)]) -> Vec<String> {
        let find = |list: &[(String, String)], path: &str| {
            list.iter().find(|(known, _)| known == path).map(|(_, hash)| hash.clone())
        };
        let mut differences = Vec::new();
        for (path, hash) in now {
            match find(&self.sources, path) {
                None => differences.push(format!("{path} (new)")),
                Some(recorded) if recorded != *hash => {
                    differences.push(format!("{path} (changed)"));
                }
                Some(_) => {}
            }
        }
        for (path, _) in &self.sources {
            if find(now, path).is_none() {
                differences.push(format!("{path} (gone)"));
            }
        }
        differences
    }
}

/// Fails if the checked-in object was not made from the sources beside it.
pub(crate) fn check(root: &Path) -> Result<()> {
    let record = Record::checked_in(root)?;
    let differences = record.differences(&hash_sources(root)?);
    if !differences.is_empty() {
        bail!(
            "{OBJECT} was not made from these sources:\n    {}\n  run `cargo xtask build-ebpf` and commit both",
            differences.join("\n    ")
        );
    }
    let object = fs::read(root.join(OBJECT)).with_context(|| format!("cannot read {OBJECT}"))?;
    if hash(&object) != record.object {
        bail!("{OBJECT} is not the object that {RECORD} describes: run `cargo xtask build-ebpf`");
    }
    Ok(())
}

fn hash_sources(root: &Path) -> Result<Vec<(String, String)>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for source in SOURCES {
        if root.join(source).is_dir() {
            paths.extend(source_tree::files_below(root, source)?);
        } else {
            paths.push(source.into());
        }
    }
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        let content = fs::read(root.join(&path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.to_str().context("a source's path is not UTF-8")?.replace('\\', "/");
        sources.push((name, hash(&without_carriage_returns(&content))));
    }
    Ok(sources)
}

/// A checkout may turn line ends around; the compiler does not care, nor must the hash.
fn without_carriage_returns(content: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(content.len());
    for (at, &byte) in content.iter().enumerate() {
        if byte != b'\r' || content.get(at + 1) != Some(&b'\n') {
            normal.push(byte);
        }
    }
    normal
}

fn hash(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_object_is_made_from_the_sources_beside_it() {
        if let Err(error) = check(source_tree::root()) {
            panic!("{error:#}");
        }
    }

    #[test]
    fn a_record_survives_being_written_and_read() {
        let record = Record {
            toolchain: "rustc 1.0.0-nightly, bpf-linker 0.1".into(),
            object: hash(b"object"),
            sources: vec![("a/b.rs".into(), hash(b"b")), ("a/c.rs".into(), hash(b"c"))],
        };
        assert_eq!(Record::parse(&record.render()).expect("parses"), record);
    }

    #[test]
    fn every_way_to_disagree_is_named() {
        let record = Record {
            toolchain: "t".into(),
            object: "o".into(),
            sources: vec![("gone".into(), "1".into()), ("same".into(), "2".into())],
        };
        let now = [("new".to_owned(), "3".to_owned()), ("same".to_owned(), "4".to_owned())];
        assert_eq!(record.differences(&now), ["new (new)", "same (changed)", "gone (gone)"]);
    }

    #[test]
    fn line_ends_do_not_change_the_hash() {
        assert_eq!(without_carriage_returns(b"a\r\nb\rc\r\n"), b"a\nb\rc\n");
    }

    #[test]
    fn sha256_of_a_known_text() {
        assert_eq!(
            hash(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
