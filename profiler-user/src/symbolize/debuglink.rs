//! Finding the separate debug file of a stripped binary.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::elf::{Elf, Source};
use super::error::LoadError;
use crate::binaries::open_in_root;

/// A separate debug file.
pub(super) struct DebugFile {
    pub(super) elf: Elf,
    /// Its path inside the root it was found in.
    pub(super) path: PathBuf,
}

/// Looks for the debug file of a binary by build-id, then by `.gnu_debuglink`, in the target's
/// root and then in ours, in the order and places that GDB documents ("Separate Debug Files").
///
/// A file is taken only if it belongs to the binary: same build-id, or, where either side has none,
/// the CRC-32 that the debug link states.
pub(super) fn find(
    binary: &Elf,
    path: &Path,
    root: &Path,
    debug_dirs: &[PathBuf],
) -> Option<DebugFile> {
    let candidates = candidates(binary, path, debug_dirs);
    [root, Path::new("/")].into_iter().find_map(|root| {
        candidates.iter().find_map(|candidate| {
            let elf = open(root, candidate).ok()?;
            belongs(binary, &elf).then(|| DebugFile { elf, path: candidate.clone() })
        })
    })
}

fn open(root: &Path, path: &Path) -> Result<Elf, LoadError> {
    Elf::parse(Source::File(open_in_root(root, path)?))
}

fn candidates(binary: &Elf, path: &Path, debug_dirs: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if let Some((first, rest)) = binary.build_id.as_deref().and_then(<[u8]>::split_first) {
        let rest: String = rest.iter().take(64).map(|b| format!("{b:02x}")).collect();
        let name = format!(".build-id/{first:02x}/{rest}.debug");
        paths.extend(debug_dirs.iter().map(|dir| dir.join(&name)));
    }
    if let (Some((name, _)), Some(dir)) = (&binary.debuglink, path.parent()) {
        let name = Path::new(OsStr::from_bytes(name));
        // The link is a bare file name; anything else wants to lead elsewhere.
        if name.file_name() == Some(name.as_os_str()) {
            paths.extend([dir.join(name), dir.join(".debug").join(name)]);
            let inside = dir.strip_prefix("/").unwrap_or(dir);
            paths.extend(debug_dirs.iter().map(|debug| debug.join(inside).join(name)));
        }
    }
    paths
}

fn belongs(binary: &Elf, debug: &Elf) -> bool {
    if !debug.holds(".debug_info") && !debug.holds(".zdebug_info") && !debug.holds(".symtab") {
        return false;
    }
    match (&binary.build_id, &debug.build_id, &binary.debuglink) {
        (Some(ours), Some(theirs), _) => ours == theirs,
        (_, _, Some((_, crc))) => file_crc(debug).is_ok_and(|actual| actual == *crc),
        _ => false,
    }
}

/// The CRC-32 (ISO 3309) of a whole file, as `objcopy --add-gnu-debuglink` computes it.
fn file_crc(file: &Elf) -> io::Result<u32> {
    use std::os::unix::fs::FileExt;
    let Source::File(file) = file.source() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut buffer = vec![0; 1 << 20];
    let (mut crc, mut offset) = (!0, 0);
    loop {
        let read = file.read_at(&mut buffer, offset)?;
        if read == 0 {
            return Ok(!crc);
        }
        crc = buffer[..read]
            .iter()
            .fold(crc, |crc, &byte| CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8));
        offset += read as u64;
    }
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};
