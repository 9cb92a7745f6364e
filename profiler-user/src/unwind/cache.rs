//! The modules opened so far, those that could not be, and what was counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::binaries::{Mapping, ProcessMaps};

use super::module::Module;
use super::source::{ModuleId, ModuleSource};

/// Modules kept; a host runs a few hundred different ones at a time. Past it all are dropped.
const MODULES_MAX: usize = 2048;
/// Mappings remembered, with the module behind each; of dead processes too, hence the bound.
const MAPPINGS_MAX: usize = 1 << 16;
/// Failed modules kept by name; the rest only count.
const FAILURES_KEPT: usize = 64;

/// A module whose unwind information could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedModule {
    /// Path as the target sees it.
    pub path: Arc<str>,
    /// Why.
    pub reason: String,
}

/// What the unwinder did so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnwindCounters {
    /// Stacks unwound.
    pub stacks: u64,
    /// Stacks that end at the start of the program or a thread.
    pub stacks_complete: u64,
    /// Frames found.
    pub frames: u64,
    /// Frames whose caller was found by frame pointer, for want of unwind information.
    pub frame_pointer_frames: u64,
    /// Modules loaded.
    pub modules_loaded: u64,
    /// Modules whose unwind information could not be had.
    pub modules_failed: u64,
    /// The first of those, with reasons.
    pub failed: Vec<FailedModule>,
}

/// A mapping of one process; another file at the same place has another inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct MappingKey {
    pid: u32,
    start: u64,
    offset: u64,
    device: (u32, u32),
    inode: u64,
}

/// Modules by mapping and by identity.
pub(super) struct ModuleCache {
    source: Box<dyn ModuleSource>,
    mappings: HashMap<MappingKey, Option<usize>>,
    ids: HashMap<ModuleId, Option<usize>>,
    modules: Vec<Module>,
    pub(super) counters: UnwindCounters,
}

impl ModuleCache {
    pub(super) fn new(source: Box<dyn ModuleSource>) -> Self {
        Self {
            source,
            mappings: HashMap::new(),
            ids: HashMap::new(),
            modules: Vec::new(),
            counters: UnwindCounters::default(),
        }
    }

    /// The module behind a mapping; `None` for memory that no ELF image stands behind, and where it
    /// could not be loaded (tried once).
    pub(super) fn module(&mut self, maps: &ProcessMaps, mapping: &Mapping) -> Option<&mut Module> {
        if !mapping.is_file() && &*mapping.path != "[vdso]" {
            return None;
        }
        if self.mappings.len() >= MAPPINGS_MAX {
            self.mappings.clear();
        }
        let key = MappingKey {
            pid: maps.pid,
            start: mapping.start,
            offset: mapping.offset,
            device: mapping.device,
            inode: mapping.inode,
        };
        let slot = match self.mappings.get(&key) {
            Some(slot) => *slot,
            None => {
                let slot = self.load(maps, mapping);
                self.mappings.insert(key, slot);
                slot
            }
        };
        self.modules.get_mut(slot?)
    }

    fn load(&mut self, maps: &ProcessMaps, mapping: &Mapping) -> Option<usize> {
        if self.modules.len() >= MODULES_MAX {
            self.modules.clear();
            self.ids.clear();
            self.mappings.clear();
        }
        let reason = match self.source.open(maps, mapping) {
            Err(error) => error.to_string(),
            Ok(open) => match self.ids.entry(open.id) {
                Entry::Occupied(known) => return *known.get(),
                Entry::Vacant(vacant) => match Module::load(open.content) {
                    Ok(module) => {
                        let slot = *vacant.insert(Some(self.modules.len()));
                        self.modules.push(module);
                        self.counters.modules_loaded += 1;
                        return slot;
                    }
                    Err(error) => {
                        vacant.insert(None);
                        error.to_string()
                    }
                },
            },
        };
        self.counters.modules_failed += 1;
        if self.counters.failed.len() < FAILURES_KEPT {
            self.counters.failed.push(FailedModule { path: mapping.path.clone(), reason });
        }
        None
    }
}
