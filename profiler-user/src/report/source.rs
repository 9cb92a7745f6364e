//! Source lines to quote.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::attach::proc;
use crate::report::Sources;
use crate::symbolize::{Frame, FrameKind};

/// Files that are quoted, by ending. The path comes from the target, which must not be able to make
/// a report show a line of any file it likes.
const ENDINGS: [&str; 24] = [
    "c", "cc", "cjs", "clj", "cpp", "cxx", "go", "groovy", "h", "hh", "hpp", "java", "js", "jsx",
    "kt", "mjs", "py", "pyi", "pyx", "rs", "scala", "ts", "tsx", "zig",
];
/// No more of a file than this is read to find a line.
const MAX_BYTES: u64 = 4 << 20;
/// `USER_HZ`, the unit of times in `/proc`, on every architecture but Alpha.
const TICKS_PER_SECOND: u64 = 100;
/// What is between the clocks of files and of processes: each counts in ticks of its own.
const CLOCK_ERROR: Duration = Duration::from_millis(50);
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
        self.get(pid, frame, frame.file.as_ref()?, frame.line?)
    }

    /// The line without the blanks around it; `None` if it can't be read or is blank, or if the file
    /// was written after the code that ran: then it need not be what ran.
    fn get(&mut self, pid: u32, frame: &Frame, file: &Arc<str>, line: u32) -> Option<String> {
        let root = match &self.sources {
            Sources::Off => return None,
            Sources::Target => PathBuf::from(format!("/proc/{pid}/root")),
            Sources::Under(root) => root.clone(),
        };
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        let key = (pid, file.clone(), line);
        let line = || {
            let newest = match &self.sources {
                Sources::Target => code_is_from(pid, &root, frame),
                _ => None,
            };
            read_line(&root, Path::new(&**file), line, newest)
        };
        self.cache.entry(key).or_insert_with(line).clone()
    }
}

/// When the code of a frame was there at the latest: at the start of its process, and when its binary
/// was built.
fn code_is_from(pid: u32, root: &Path, frame: &Frame) -> Option<SystemTime> {
    let started = started(pid);
    let module = frame.module.as_deref().filter(|_| frame.kind == FrameKind::Native);
    let built = module.and_then(|module| {
        std::fs::metadata(root.join(module.strip_prefix('/')?)).ok()?.modified().ok()
    });
    started.into_iter().chain(built).min()
}

/// When a process was started.
fn started(pid: u32) -> Option<SystemTime> {
    let ticks = proc::start_ticks(pid)?;
    let since_boot = Duration::from_millis(ticks.saturating_mul(1_000 / TICKS_PER_SECOND));
    let mut up = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value of the right type.
    if unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut up) } != 0 {
        return None;
    }
    let up = Duration::new(u64::try_from(up.tv_sec).ok()?, u32::try_from(up.tv_nsec).ok()?);
    SystemTime::now().checked_sub(up.checked_sub(since_boot)?)
}

fn read_line(root: &Path, file: &Path, line: u32, newest: Option<SystemTime>) -> Option<String> {
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
    let meta = file.metadata().ok()?;
    if !meta.is_file() {
        return None;
    }
    let written = meta.modified().ok()?;
    if newest.is_some_and(|newest| written > newest + CLOCK_ERROR) {
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

    /// It need not be what ran: somebody has edited it since.
    #[test]
    fn a_file_that_is_newer_than_the_code_is_not_quoted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = Path::new("/src/lib.rs");
        let written = std::fs::metadata(root.join("src/lib.rs")).and_then(|meta| meta.modified());
        let written = written.expect("readable");
        let later = written + Duration::from_secs(1);
        assert!(read_line(root, file, 1, Some(later)).is_some());
        let earlier = written - Duration::from_secs(1);
        assert!(read_line(root, file, 1, Some(earlier)).is_none());
        let own = started(std::process::id()).expect("it runs");
        assert!(own <= SystemTime::now() && own.elapsed().is_ok_and(|age| age.as_secs() < 3600));
    }

    #[test]
    fn lines_of_sources_only() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(
            read_line(root, Path::new("/src/lib.rs"), 1, None).as_deref().map(|l| &l[..3]),
            Some("//!")
        );
        assert_eq!(read_line(root, Path::new("/src/lib.rs"), 0, None), None);
        assert_eq!(read_line(root, Path::new("/src/lib.rs"), u32::MAX, None), None);
        assert_eq!(read_line(root, Path::new("/Cargo.toml"), 1, None), None);
        assert_eq!(read_line(root, Path::new("/src/../src/lib.rs"), 1, None), None);
        assert_eq!(read_line(root, Path::new("src/lib.rs"), 1, None), None);
        assert_eq!(read_line(root, Path::new("/src"), 1, None), None);
    }
}
