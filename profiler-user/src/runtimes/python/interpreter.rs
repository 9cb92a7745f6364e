//! Finds a process's interpreter: in the program itself or in a libpython, stripped or not.

use profiler_common::python::{KEYS_LOG2, KEYS_SIZE, NO_FIELD, Python};

use super::memory::Memory;
use super::offsets::{FIRST_WITH_TABLE, FIRST_WITH_TASK_IN_THREAD, OLDEST_MINOR, Offsets};
use crate::attach::proc;
use crate::binaries::{Mapping, ProcessMaps};
use crate::symbolize::Symbolizer;

/// Interpreters that are looked at to find the main one.
const INTERPRETERS_MAX: usize = 64;

/// A process's CPython.
#[derive(Debug)]
pub struct Interpreter {
    pub(super) pid: u32,
    pub(super) offsets: Offsets,
    pub(super) memory: Memory,
    runtime: u64,
    main: u64,
    gil: u64,
    tasks: u64,
    task_in_thread: Option<TaskInThread>,
}

/// Where a thread and a task keep what is asked of them, from 3.14 on.
#[derive(Debug, Clone, Copy)]
struct TaskInThread {
    running: u16,
    name: u16,
}

impl Interpreter {
    /// Looks for an interpreter that has been set up; `None` if there is none yet.
    pub fn find(maps: &ProcessMaps, symbolizer: &mut Symbolizer) -> Option<Self> {
        if maps.files().is_some() {
            return None;
        }
        let mut seen = Vec::new();
        for mapping in maps.all().iter().filter(|m| m.executable && m.is_file()) {
            let file = mapping.path.rsplit('/').next().unwrap_or_default();
            // The program first; of the libraries only those that can be one.
            if seen.contains(&&mapping.path) || !(seen.is_empty() || file.contains("python")) {
                continue;
            }
            seen.push(&mapping.path);
            if let Some(found) = Self::in_file(maps, mapping, symbolizer) {
                return Some(found);
            }
        }
        None
    }

    fn in_file(maps: &ProcessMaps, file: &Mapping, symbolizer: &mut Symbolizer) -> Option<Self> {
        let runtime = symbolizer.address_in_process(maps, file, "_PyRuntime")?;
        let memory = Memory::open(maps.pid)?;
        let offsets = match Offsets::of_runtime(&memory, runtime) {
            Some(offsets) => offsets,
            None => Offsets::of_version(version(maps, file, symbolizer, &memory)?)?,
        };
        let main = main_interpreter(&memory, &offsets, runtime)?;
        let gil = match (offsets.free_threaded, offsets.runtime_gil, offsets.interp_gil) {
            (true, ..) => 0,
            (_, Some(gil), _) => runtime + u64::from(gil),
            (_, None, Some(gil)) => memory.field(main, gil)?,
            _ => 0,
        };
        let mut found = Self {
            pid: maps.pid,
            offsets,
            memory,
            runtime,
            main,
            gil,
            tasks: 0,
            task_in_thread: None,
        };
        found.learn_tasks(maps, symbolizer);
        Some(found)
    }

    /// Learns how the current task is found, which is known only after `asyncio` was imported.
    pub fn learn_tasks(&mut self, maps: &ProcessMaps, symbolizer: &mut Symbolizer) {
        if self.tasks != 0 || self.task_in_thread.is_some() {
            return;
        }
        if self.offsets.minor >= FIRST_WITH_TASK_IN_THREAD {
            self.task_in_thread = self.asyncio_debug(maps, symbolizer);
        } else {
            self.tasks = self.current_tasks().unwrap_or(0);
        }
    }

    /// `asyncio.tasks._current_tasks`
    fn current_tasks(&self) -> Option<u64> {
        self.global("asyncio.tasks", "_current_tasks")
    }

    /// A variable of a module that the main interpreter has imported.
    pub(super) fn global(&self, module: &str, name: &str) -> Option<u64> {
        let (memory, offsets) = (&self.memory, &self.offsets);
        let modules = memory.field(self.main, offsets.interp_modules)?;
        let module = memory.lookup(offsets, modules, module)?;
        // `PyModuleObject.md_dict`, right behind the object's header.
        memory.lookup(offsets, memory.field(module, offsets.header())?, name)
    }

    /// Names of the modules that were imported, in any of its interpreters.
    pub fn modules(&self) -> Vec<String> {
        let (memory, offsets) = (&self.memory, &self.offsets);
        let mut names = Vec::new();
        for interp in self.interpreters() {
            let modules = memory.field(interp, offsets.interp_modules);
            let entries = modules.and_then(|dict| memory.entries(offsets, dict));
            let keys = entries.unwrap_or_default().into_iter().map(|(name, _)| name);
            names.extend(keys.filter_map(|name| memory.text(offsets, name)));
        }
        names
    }

    /// The table in `_asyncio`, or in the program that has it built in: `Modules/_asynciomodule.c`,
    /// `Py_AsyncioModuleDebugOffsets`.
    fn asyncio_debug(
        &self,
        maps: &ProcessMaps,
        symbolizer: &mut Symbolizer,
    ) -> Option<TaskInThread> {
        let executable = |m: &&Mapping| m.executable && m.is_file();
        let module = maps.all().iter().filter(executable).find(|m| m.path.contains("/_asyncio."));
        let program = maps.all().iter().find(executable);
        let library = maps.all().iter().filter(executable).find(|m| m.path.contains("/libpython"));
        let section = [module, library, program]
            .into_iter()
            .flatten()
            .find_map(|file| symbolizer.section_in_process(maps, file, ".AsyncioDebug"))?;
        let word = |index: u64| {
            self.memory.word(section + index * 8).and_then(|word| u16::try_from(word).ok())
        };
        // task: size, name, awaited_by, is_task, awaited_by_is_set, coro, node; interpreter: size,
        // tasks_head; thread: size, running_loop, running_task, tasks_head
        let found = TaskInThread { running: word(11)?, name: word(1)? };
        let aligned = found.running.is_multiple_of(8) && found.name.is_multiple_of(8);
        (aligned && found.name < word(0)?).then_some(found)
    }

    /// Whether its threads exclude each other. Those of free-threaded builds (3.13 and later) do not.
    #[must_use]
    pub const fn has_lock(&self) -> bool {
        !self.offsets.free_threaded
    }

    /// Whether a futex belongs to the lock of one of its interpreters.
    #[must_use]
    pub fn is_lock(&self, futex: u64) -> bool {
        let lies_in = |gil: u64| futex.wrapping_sub(gil) < u64::from(self.offsets.gil_bytes);
        if self.gil == 0 || lies_in(self.gil) {
            return self.gil != 0;
        }
        let Some(own) = self.offsets.interp_gil else { return false };
        self.interpreters().any(|interp| self.memory.field(interp, own).is_some_and(lies_in))
    }

    /// All interpreters, the youngest first.
    fn interpreters(&self) -> impl Iterator<Item = u64> {
        let next = |interp: u64| Some(interp).filter(|&interp| interp != 0);
        let first = self.memory.field(self.runtime, self.offsets.interpreters_head);
        std::iter::successors(first.and_then(next), move |&interp| {
            self.memory.field(interp, self.offsets.interp_next).and_then(next)
        })
        .take(INTERPRETERS_MAX)
    }

    pub(super) const fn runtime(&self) -> u64 {
        self.runtime
    }

    /// What the kernel side needs to walk its frames.
    #[must_use]
    pub fn for_kernel(&self) -> Python {
        let offsets = &self.offsets;
        let or_none = |field: Option<u16>| field.unwrap_or(NO_FIELD);
        let collecting = offsets.runtime_gc_collecting;
        Python {
            interpreters: self.runtime + u64::from(offsets.interpreters_head),
            gil: self.gil,
            tasks: self.tasks,
            gil_bytes: u32::from(offsets.gil_bytes),
            frame_bytes: u32::from(offsets.frame_bytes()),
            interp_threads: offsets.interp_threads,
            interp_next: offsets.interp_next,
            interp_gil: or_none(offsets.interp_gil),
            thread_prev: offsets.thread_prev,
            thread_next: offsets.thread_next,
            thread_interp: offsets.thread_interp,
            thread_id: offsets.thread_id,
            thread_frame: offsets.thread_frame,
            cframe_frame: or_none(offsets.cframe_frame),
            thread_task: or_none(self.task_in_thread.map(|task| task.running)),
            frame_previous: offsets.frame_previous,
            frame_code: offsets.frame_code,
            frame_instr: offsets.frame_instr,
            frame_mark: or_none(offsets.frame_mark),
            code_filename: offsets.code_filename,
            gil_last_holder: offsets.gil_last_holder,
            task_name: or_none(offsets.task_name.or(self.task_in_thread.map(|task| task.name))),
            interp_collecting: offsets.interp_gc_collecting.unwrap_or(0),
            dict_keys: offsets.dict_keys,
            keys_indices: offsets.keys_indices,
            keys_kind: if offsets.keys_have_logarithms() { KEYS_LOG2 } else { KEYS_SIZE },
            gil_locked: offsets.gil_locked,
            text_hash: offsets.text_hash(),
            own_ids: u16::from(proc::innermost_tid(self.pid, self.pid) == Some(self.pid)),
            collecting: collecting.map_or(0, |field| self.runtime + u64::from(field)),
        }
    }
}

/// The minor version of an interpreter that has no table of offsets.
fn version(
    maps: &ProcessMaps,
    file: &Mapping,
    symbolizer: &mut Symbolizer,
    memory: &Memory,
) -> Option<u8> {
    let told = symbolizer
        .address_in_process(maps, file, "Py_Version")
        .and_then(|address| memory.half(address))
        .filter(|version| version >> 24 == 3)
        .map(|version| version.to_le_bytes()[2]);
    // Before 3.11 only names tell.
    let named = |path: &str| {
        let (_, rest) = path.rsplit('/').next()?.split_once("python3.")?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    let minor: u8 = told.or_else(|| named(&file.path))?;
    (OLDEST_MINOR..FIRST_WITH_TABLE).contains(&minor).then_some(minor)
}

/// The main interpreter: the oldest, which is last in the list.
fn main_interpreter(memory: &Memory, offsets: &Offsets, runtime: u64) -> Option<u64> {
    let mut interp = memory.field(runtime, offsets.interpreters_head)?;
    for _ in 0..INTERPRETERS_MAX {
        match memory.field(interp, offsets.interp_next)? {
            0 => return Some(interp),
            next => interp = next,
        }
    }
    None
}
