//! Opening the file behind a mapping.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Mapping, ProcessMaps};

/// What makes two mappings the same file: device, inode and time of the last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BinaryId {
    device: u64,
    inode: u64,
    changed_ns: i64,
}

/// An open binary, read section by section.
#[derive(Debug)]
pub struct Binary {
    /// Identity of the file, the key of every cache.
    pub id: BinaryId,
    /// Path as the target sees it: what reports show.
    pub path: Arc<str>,
    /// The path it was opened by, for files that belong to it (debug links).
    pub opened_as: PathBuf,
    /// The root directory of the target's mount namespace, as seen from here.
    pub root: PathBuf,
    /// The open file; parse it with `object::ReadCache`.
    pub file: File,
}

impl Binary {
    /// Opens a file by a path that stallscope itself can reach.
    ///
    /// # Errors
    /// The file can't be opened, or is no regular file.
    pub fn open(path: &Path, shown: Arc<str>, root: PathBuf) -> io::Result<Self> {
        // Opening a device may do something, so it is not even opened.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let id = BinaryId {
            device: meta.dev(),
            inode: meta.ino(),
            changed_ns: meta.ctime().wrapping_mul(1_000_000_000).wrapping_add(meta.ctime_nsec()),
        };
        Ok(Self { id, path: shown, opened_as: path.to_owned(), root, file })
    }
}

/// Opens the file that a target has mapped.
///
/// `/proc/PID/map_files` names the very inode, whether deleted, replaced or in another mount
/// namespace; where it may not be used (it takes `CAP_CHECKPOINT_RESTORE` or root), the path under
/// `/proc/PID/root` is taken if it still is the same inode.
///
/// # Errors
/// The process is gone, or neither way leads to the mapped file.
pub fn open_mapping(maps: &ProcessMaps, mapping: &Mapping) -> io::Result<Binary> {
    if let Some(files) = maps.files() {
        let path = files.join(mapping.path.trim_start_matches('/'));
        return Binary::open(&path, mapping.path.clone(), files.to_owned());
    }
    let root = PathBuf::from(format!("/proc/{}/root", maps.pid));
    let link = format!("/proc/{}/map_files/{:x}-{:x}", maps.pid, mapping.start, mapping.end);
    // FIFOs and devices can be mapped by nobody, so opening this can't block.
    if let Ok(binary) = Binary::open(Path::new(&link), mapping.path.clone(), root.clone()) {
        return Ok(binary);
    }
    let path = root.join(mapping.path.trim_start_matches('/'));
    if std::fs::symlink_metadata(&path)?.ino() != mapping.inode {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the mapped file was replaced"));
    }
    Binary::open(&path, mapping.path.clone(), root)
}
