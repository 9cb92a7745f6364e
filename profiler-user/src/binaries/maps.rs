//! `/proc/PID/maps`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Whether the mapping may be executed.
    pub executable: bool,
    /// Whether the mapping may be written.
    pub writable: bool,
    /// Device and inode of the file; zeros for anonymous memory.
    pub device: (u32, u32),
    /// Inode of the file; zero for anonymous memory.
    pub inode: u64,
    /// Path as the kernel prints it, without ` (deleted)`; empty for anonymous memory.
    pub path: Arc<str>,
    /// Whether the file was deleted or replaced since.
    pub deleted: bool,
}

impl Mapping {
    /// Whether a file stands behind it.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.starts_with('/')
    }

    /// Offset in the file of an address inside the mapping.
    #[must_use]
    pub const fn file_offset(&self, address: u64) -> u64 {
        address - self.start + self.offset
    }
}

/// The mappings of one process at one moment.
#[derive(Debug, Clone, Default)]
pub struct ProcessMaps {
    /// The process whose mappings these are.
    pub pid: u32,
    /// Where the files of recorded mappings lie.
    files: Option<Arc<Path>>,
    mappings: Vec<Mapping>,
}

impl ProcessMaps {
    /// Reads the mappings of a live process.
    ///
    /// # Errors
    /// The process is gone, or its maps may not be read.
    pub fn read(pid: u32) -> std::io::Result<Self> {
        // A hostile path need not be UTF-8.
        let bytes = std::fs::read(PathBuf::from(format!("/proc/{pid}/maps")))?;
        Ok(Self::parse(pid, &String::from_utf8_lossy(&bytes)))
    }

    /// Parses the text of a maps file; lines that make no sense are skipped.
    #[must_use]
    pub fn parse(pid: u32, text: &str) -> Self {
        let mut mappings: Vec<_> = text.lines().filter_map(parse_line).collect();
        mappings.sort_by_key(|m| m.start);
        Self { pid, files: None, mappings }
    }

    /// The mappings of a process of another time or machine. Its files lie below `files`, under the
    /// paths that they were mapped from; nothing else stands behind them.
    #[must_use]
    pub fn recorded(pid: u32, text: &str, files: &Path) -> Self {
        Self { files: Some(Arc::from(files)), ..Self::parse(pid, text) }
    }

    /// Where the files lie, if the mappings are recorded ones.
    #[must_use]
    pub fn files(&self) -> Option<&Path> {
        self.files.as_deref()
    }

    /// The mapping that holds an address.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|m| m.start <= address);
        self.mappings[..after].last().filter(|m| address < m.end)
    }

    /// All mappings, in order of address.
    #[must_use]
    pub fn all(&self) -> &[Mapping] {
        &self.mappings
    }
}

fn parse_line(line: &str) -> Option<Mapping> {
    // 55d0c8a00000-55d0c8a21000 r-xp 00001000 fd:01 1835 /usr/bin/cat (deleted)
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (perms, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (device, rest) = rest.split_once(' ')?;
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let (major, minor) = device.split_once(':')?;
    let path = path.trim_start();
    let (path, deleted) = match path.strip_suffix(" (deleted)") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let (start, end) = (hex(start)?, hex(end)?);
    (start < end).then_some(())?;
    Some(Mapping {
        start,
        end,
        offset: hex(offset)?,
        executable: perms.as_bytes().get(2) == Some(&b'x'),
        writable: perms.as_bytes().get(1) == Some(&b'w'),
        device: (u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?),
        inode: inode.parse().ok()?,
        path: Arc::from(path),
        deleted,
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maps_file_is_parsed_and_searched() {
        let maps = ProcessMaps::parse(
            1,
            "7f00-7f10 rw-p 00000000 00:00 0 \n\
             55d0c8a00000-55d0c8a21000 r-xp 00001000 fd:01 1835                       /usr/bin/a b (deleted)\n\
             nonsense\n\
             7ffd1000-7ffd2000 r-xp 00000000 00:00 0                          [vdso]\n",
        );
        assert_eq!(maps.all().len(), 3);
        let text = maps.find(0x55d0_c8a0_0010).expect("inside the mapping");
        assert_eq!((&*text.path, text.deleted, text.inode), ("/usr/bin/a b", true, 1835));
        assert_eq!(text.file_offset(0x55d0_c8a0_0010), 0x1010);
        assert!(text.executable && !text.writable && text.is_file());
        assert!(maps.find(0x55d0_c8a2_1000).is_none());
        assert!(maps.find(0x7f0f).expect("anonymous").path.is_empty());
        assert_eq!(&*maps.find(0x7ffd_1000).expect("vdso").path, "[vdso]");
    }
}
