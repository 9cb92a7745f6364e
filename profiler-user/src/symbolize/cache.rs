//! Which module a mapping belongs to, and the modules read so far.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::counters::Failures;
use super::error::LoadError;
use super::module::Module;
use crate::binaries::{Binary, BinaryId, Mapping, ProcessMaps, open_mapping};

/// How long a mapping is believed to be the same file. Process ids and inode numbers are reused.
const RECHECK: Duration = Duration::from_secs(2);
/// Most mappings remembered; more belong to processes that are long gone.
const MAX_MAPPINGS: usize = 16 << 10;
/// Memory that modules may use together, in bytes; the least recently used go first.
const MAX_BYTES: usize = 2 << 30;
/// Largest vdso; today's have two pages.
const MAX_VDSO: u64 = 64 << 10;

/// A module's place in the cache; never reused, so that what is derived from it may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ModuleId(u32);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MappingKey {
    pid: u32,
    start: u64,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    path: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ModuleKey {
    File(BinaryId),
    /// The vdso, by its size: 64-bit and 32-bit programs have different ones.
    Vdso(u64),
}

struct Entry {
    id: ModuleId,
    /// `None` where it could not be read: not tried again for the same file.
    module: Option<Box<Module>>,
    last_used: u64,
}

/// All modules that were asked for.
#[derive(Default)]
pub(super) struct Modules {
    mappings: HashMap<MappingKey, (Option<ModuleKey>, Instant)>,
    modules: HashMap<ModuleKey, Entry>,
    next_id: u32,
    uses: u64,
}

impl Modules {
    /// The module behind a mapping, read now if it was not before.
    pub(super) fn get(
        &mut self,
        maps: &ProcessMaps,
        mapping: &Mapping,
        debug_dirs: &[PathBuf],
        failures: &mut Failures,
    ) -> Option<(ModuleId, &mut Module)> {
        let key = self.key(maps, mapping, debug_dirs, failures)?;
        self.uses += 1;
        let entry = self.modules.get_mut(&key)?;
        entry.last_used = self.uses;
        Some((entry.id, entry.module.as_deref_mut()?))
    }

    /// Binaries read so far, damaged ones not counted.
    pub(super) fn count(&self) -> u64 {
        self.modules.values().filter(|entry| entry.module.is_some()).count() as u64
    }

    fn key(
        &mut self,
        maps: &ProcessMaps,
        mapping: &Mapping,
        debug_dirs: &[PathBuf],
        failures: &mut Failures,
    ) -> Option<ModuleKey> {
        let mapping_key = MappingKey {
            pid: maps.pid,
            start: mapping.start,
            offset: mapping.offset,
            device: mapping.device,
            inode: mapping.inode,
            path: Arc::clone(&mapping.path),
        };
        let known = self.mappings.get(&mapping_key).copied();
        if let Some((key, checked)) = known
            && checked.elapsed() < RECHECK
            && key.is_none_or(|key| self.modules.contains_key(&key))
        {
            return key;
        }
        let key = if &*mapping.path == "[vdso]" {
            self.vdso(maps, mapping, failures)
        } else if mapping.is_file() {
            match open_mapping(maps, mapping).or_else(|error| open_after_exit(mapping, error)) {
                Ok(binary) => Some(self.file(binary, debug_dirs, failures)),
                Err(error) => {
                    // The process is gone: what was known of it holds; so does what another
                    // process taught about the same file.
                    let before = known.and_then(|(key, _)| key);
                    let key = before.or_else(|| self.same_file(&mapping_key));
                    if key.is_none() {
                        failures.add(&mapping.path, &LoadError::Io(error));
                    }
                    key
                }
            }
        } else {
            None
        };
        if self.mappings.len() >= MAX_MAPPINGS {
            self.mappings.clear();
        }
        self.mappings.insert(mapping_key, (key, Instant::now()));
        key
    }

    fn same_file(&self, wanted: &MappingKey) -> Option<ModuleKey> {
        self.mappings.iter().find_map(|(known, (key, _))| {
            let same = (known.device, known.inode) == (wanted.device, wanted.inode)
                && known.path == wanted.path;
            key.filter(|_| same)
        })
    }

    fn file(
        &mut self,
        binary: Binary,
        debug_dirs: &[PathBuf],
        failures: &mut Failures,
    ) -> ModuleKey {
        let key = ModuleKey::File(binary.id);
        if !self.modules.contains_key(&key) {
            let path = Arc::clone(&binary.path);
            let mut warnings = Vec::new();
            let loaded = Module::load(binary, debug_dirs, &mut warnings);
            self.insert(key, &path, loaded, &warnings, failures);
        }
        key
    }

    fn vdso(
        &mut self,
        maps: &ProcessMaps,
        mapping: &Mapping,
        failures: &mut Failures,
    ) -> Option<ModuleKey> {
        let size = mapping.end - mapping.start;
        let key = ModuleKey::Vdso(size);
        if size > MAX_VDSO {
            return None;
        }
        if !self.modules.contains_key(&key) {
            let mut warnings = Vec::new();
            let loaded = read_memory(maps, mapping.start, size)
                .map_err(LoadError::Io)
                .and_then(|bytes| Module::from_memory("[vdso]", bytes, &mut warnings));
            self.insert(key, "[vdso]", loaded, &warnings, failures);
        }
        Some(key)
    }

    fn insert(
        &mut self,
        key: ModuleKey,
        path: &str,
        loaded: Result<Module, LoadError>,
        warnings: &[LoadError],
        failures: &mut Failures,
    ) {
        for warning in warnings {
            failures.add(path, warning);
        }
        let module = loaded.map(Box::new).inspect_err(|error| failures.add(path, error)).ok();
        self.make_room();
        let id = ModuleId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.modules.insert(key, Entry { id, module, last_used: self.uses });
    }

    /// Drops the modules used longest ago until the others fit.
    fn make_room(&mut self) {
        let size = |entry: &Entry| entry.module.as_ref().map_or(0, |module| module.bytes());
        let mut total: usize = self.modules.values().map(size).sum();
        while total > MAX_BYTES {
            let oldest = self.modules.iter().min_by_key(|(_, e)| e.last_used).map(|(key, _)| *key);
            let Some(entry) = oldest.and_then(|key| self.modules.remove(&key)) else { return };
            total -= size(&entry);
        }
    }
}

/// The file of a process that has ended, if its path in our own root still leads to it.
fn open_after_exit(mapping: &Mapping, error: io::Error) -> io::Result<Binary> {
    let path = Path::new(&*mapping.path);
    let meta = std::fs::symlink_metadata(path)?;
    let device = (libc::major(meta.dev()), libc::minor(meta.dev()));
    if mapping.deleted || meta.ino() != mapping.inode || device != mapping.device {
        return Err(error);
    }
    Binary::open(path, Arc::clone(&mapping.path), PathBuf::from("/"))
}

fn read_memory(maps: &ProcessMaps, start: u64, size: u64) -> io::Result<Arc<[u8]>> {
    if maps.files().is_some() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "memory was not recorded"));
    }
    let pid = maps.pid;
    let size = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut bytes = vec![0; size];
    std::fs::File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut bytes, start)?;
    Ok(Arc::from(bytes))
}
