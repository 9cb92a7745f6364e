//! Source lines to quote.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::report::Sources;
use crate::symbolize::Frame;

/// Files that are quoted, by ending. The path comes from the target, which must not be able to make
/// a report show a line of any file it likes.
const ENDINGS: [&str; 24] = [
    "c", "cc", "cjs", "clj", "cpp", "cxx", "go", "groovy", "h", "hh", "hpp", "java", "js", "jsx",
    "kt", "mjs", "py", "pyi", "pyx", "rs", "scala", "ts", "tsx", "zig",
];
/// No more of a file than this is read to find a line.
const MAX_BYTES: u64 = 4 << 20;
/// Lines remembered; then all are forgotten.
const MAX_CACHED: usize = 4096;

/// Reads source lines and remembers them, missing ones too.
#[derive(Debug)]
pub(super) struct SourceLines {
    sources: Sources,
    cache: HashMap<(u32, Arc<str>, u32), Option<String>>,
}

impl SourceLines {
    pub(super) fn new(sources: Sources) -> Self {
        Self { sources, cache: HashMap::new() }
    }

    /// The line of a frame: as it was recorded, else as it can be read now.
    pub(super) fn of(&mut self, pid: u32, frame: &Frame) -> Option<String> {
        if let Some(source) = &frame.origin.source {
            return Some(source.to_string());
        }
        self.get(pid, frame.file.as_ref()?, frame.line?)
    }

    /// The line without the blanks around it; `None` if it can't be read or is blank.
    fn get(&mut self, pid: u32, file: &Arc<str>, line: u32) -> Option<String> {
        let root = match &self.sources {
            Sources::Off => return None,
            Sources::Target => PathBuf::from(format!("/proc/{pid}/root")),
            Sources::Under(root) => root.clone(),
        };
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        let key = (pid, file.clone(), line);
        self.cache.entry(key).or_insert_with(|| read_line(&root, Path::new(&**file), line)).clone()
    }
}

fn read_line(root: &Path, file: &Path, line: u32) -> Option<String> {
    let ending = file.extension()?.to_str()?.to_ascii_lowercase();
    // Relative paths depend on where the compiler stood; `..` could leave the root.
    if ENDINGS.binary_search(&ending.as_str()).is_err()
        || !file.is_absolute()
        || file.components().any(|part| part == Component::ParentDir)
    {
        return None;
    }
    // Without O_NONBLOCK a FIFO in the file's place would hold us up for ever.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(root.join(file.strip_prefix("/").ok()?))
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut lines = BufReader::new(file.take(MAX_BYTES)).split(b'\n');
    let index = usize::try_from(line.checked_sub(1)?).ok()?;
    let bytes = lines.nth(index)?.ok()?;
    let text = String::from_utf8_lossy(&bytes).replace('\t', "    ");
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_sorted() {
        assert!(ENDINGS.is_sorted());
    }

    #[test]
    fn lines_of_sources_only() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(
            read_line(root, Path::new("/src/lib.rs"), 1).as_deref().map(|l| &l[..3]),
            Some("//!")
        );
        assert_eq!(read_line(root, Path::new("/src/lib.rs"), 0), None);
        assert_eq!(read_line(root, Path::new("/src/lib.rs"), u32::MAX), None);
        assert_eq!(read_line(root, Path::new("/Cargo.toml"), 1), None);
        assert_eq!(read_line(root, Path::new("/src/../src/lib.rs"), 1), None);
        assert_eq!(read_line(root, Path::new("src/lib.rs"), 1), None);
        assert_eq!(read_line(root, Path::new("/src"), 1), None);
    }
}
