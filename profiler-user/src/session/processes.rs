//! The processes and threads under watch: mappings, names, runtimes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_common::config::{CODE_RANGES, Target};

use crate::attach::proc;
use crate::binaries::ProcessMaps;
use crate::blame::Runtime;
use crate::runtimes::{Interpreter, ProcessRuntime, recognise, recognise_python, task_polls};
use crate::symbolize::{Symbolizer, printable};

/// Mappings change when code is loaded; they are read again at most this often.
const REFRESH: Duration = Duration::from_millis(200);

/// One process.
#[derive(Debug)]
pub struct Process {
    /// Its mappings as last read.
    pub maps: ProcessMaps,
    /// Its runtime; recognised when it is first needed.
    pub runtime: ProcessRuntime,
    /// Its CPython, once one has been set up.
    pub python: Option<Interpreter>,
    read_at: Instant,
    start_ticks: Option<u64>,
}

/// All processes.
#[derive(Debug, Default)]
pub struct Processes {
    processes: HashMap<u32, Process>,
    names: HashMap<u32, Arc<str>>,
    /// Whether `/proc` is left alone: these are processes of another time.
    recorded: bool,
    /// Whether interpreters are not looked for.
    without_python: bool,
}

impl Processes {
    /// None yet, and none to be looked up on this machine: for replays.
    #[must_use]
    pub fn recorded() -> Self {
        Self { recorded: true, ..Self::default() }
    }

    /// Whether interpreters are left alone, in processes that are read from now on.
    pub const fn leave_python(&mut self, alone: bool) {
        self.without_python = alone;
    }

    /// Adds a process as it was when it was recorded, with the names of its threads.
    pub fn insert(
        &mut self,
        pid: u32,
        maps: ProcessMaps,
        runtime: ProcessRuntime,
        names: &BTreeMap<u32, String>,
    ) {
        let process =
            Process { maps, runtime, python: None, read_at: Instant::now(), start_ticks: None };
        self.processes.insert(pid, process);
        let names = names.iter().map(|(&tid, name)| (tid, Arc::from(&*printable(name))));
        self.names.extend(names);
    }

    /// Takes note of a process, or reads it anew after an exec.
    pub fn read(&mut self, pid: u32, symbolizer: &mut Symbolizer) -> &Process {
        let process = if self.recorded {
            let runtime =
                ProcessRuntime { runtime: Runtime::Native, parks_in_futex: false, stripped: false };
            let maps = ProcessMaps::default();
            Process { maps, runtime, python: None, read_at: Instant::now(), start_ticks: None }
        } else {
            let maps = ProcessMaps::read(pid).unwrap_or_default();
            let start_ticks = proc::start_ticks(pid);
            let python =
                if self.without_python { None } else { Interpreter::find(&maps, symbolizer) };
            let runtime = runtime_of(&maps, python.as_ref(), symbolizer);
            Process { maps, runtime, python, read_at: Instant::now(), start_ticks }
        };
        self.processes.insert(pid, process);
        &self.processes[&pid]
    }

    /// Looks at a process again that has loaded code since it was read: its runtime, and its CPython
    /// and what that has imported.
    pub fn look_again(&mut self, pid: u32, symbolizer: &mut Symbolizer) {
        if self.recorded {
            return;
        }
        self.read_maps(pid);
        let without_python = self.without_python;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        match &mut process.python {
            Some(python) => python.learn_tasks(&process.maps, symbolizer),
            None if without_python => {}
            None => process.python = Interpreter::find(&process.maps, symbolizer),
        }
        if process.runtime.runtime == Runtime::Native || process.python.is_some() {
            process.runtime = runtime_of(&process.maps, process.python.as_ref(), symbolizer);
        }
    }

    /// A process, read if it is new.
    pub fn get(&mut self, pid: u32, symbolizer: &mut Symbolizer) -> &Process {
        if !self.processes.contains_key(&pid) {
            self.read(pid, symbolizer);
        }
        &self.processes[&pid]
    }

    /// Where in its executable a process's runtime begins to poll a task; empty for runtimes that
    /// do not, and for binaries without symbols.
    pub fn task_polls(&mut self, pid: u32, symbolizer: &mut Symbolizer) -> Vec<u64> {
        let process = self.get(pid, symbolizer);
        if process.runtime.runtime == Runtime::Tokio {
            task_polls(&process.maps, symbolizer)
        } else {
            Vec::new()
        }
    }

    /// Reads the mappings again, unless that was done a moment ago or the process is gone.
    /// Returns whether they are new.
    pub fn refresh(&mut self, pid: u32) -> bool {
        let fresh = |process: &Process| process.read_at.elapsed() < REFRESH;
        if self.recorded || self.processes.get(&pid).is_some_and(fresh) {
            return false;
        }
        self.read_maps(pid)
    }

    fn read_maps(&mut self, pid: u32) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        process.read_at = Instant::now();
        match ProcessMaps::read(pid) {
            Ok(maps) if !maps.all().is_empty() => {
                process.maps = maps;
                true
            }
            _ => false,
        }
    }

    /// The runtime of a process that was read before.
    #[must_use]
    pub fn runtime(&self, pid: u32) -> Runtime {
        self.processes.get(&pid).map_or(Runtime::Native, |process| process.runtime.runtime)
    }

    /// Whether the runtime of a process that was read before was recognised without symbols.
    #[must_use]
    pub fn is_stripped(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.runtime.stripped)
    }

    /// Whether a process that was read before still is that process.
    #[must_use]
    pub fn is_alive(&self, pid: u32) -> bool {
        let Some(process) = self.processes.get(&pid) else { return false };
        proc::is_alive(pid) && proc::start_ticks(pid) == process.start_ticks
    }

    /// Processes that were read.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<_> = self.processes.keys().copied().collect();
        pids.sort_unstable();
        pids
    }

    /// Forgets a process; names of its threads are kept for the summary.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// A thread of a process by the id that the process itself knows it by: another one inside a
    /// namespace, where one that has exited can't be told.
    #[must_use]
    pub fn host_thread(&self, pid: u32, own_tid: u32) -> Option<u32> {
        if self.recorded || proc::innermost_tid(pid, pid) == Some(pid) {
            return Some(own_tid);
        }
        proc::host_thread(pid, own_tid)
    }

    /// A thread's name now, or the last one known.
    pub fn thread_name(&mut self, pid: u32, tid: u32) -> Arc<str> {
        if !self.recorded
            && let Some(name) = proc::thread_name(pid, tid)
        {
            let name: Arc<str> = Arc::from(&*printable(&name));
            self.names.insert(tid, name.clone());
            return name;
        }
        self.names.get(&tid).cloned().unwrap_or_else(|| Arc::from("?"))
    }
}

fn runtime_of(
    maps: &ProcessMaps,
    python: Option<&Interpreter>,
    symbolizer: &mut Symbolizer,
) -> ProcessRuntime {
    let by_binaries = recognise(maps, symbolizer);
    match python {
        Some(python) => recognise_python(by_binaries, &python.modules()),
        None => by_binaries,
    }
}

/// What the kernel side needs to know of a process: where its code lies.
#[must_use]
pub(super) fn target(maps: &ProcessMaps, flags: u32) -> Target {
    let mut code = [[0_u64; 2]; CODE_RANGES];
    let executable = maps.all().iter().find(|m| m.executable && m.is_file());
    let program = executable.map(|m| m.path.clone());
    for mapping in maps.all().iter().filter(|m| m.executable) {
        // The program, the libraries, and code without a file (a JIT's), each as one range.
        let range = if !mapping.is_file() {
            if mapping.path.starts_with('[') {
                continue;
            }
            2
        } else if Some(&mapping.path) == program.as_ref() {
            0
        } else {
            1
        };
        let [start, end] = &mut code[range];
        if *end == 0 {
            (*start, *end) = (mapping.start, mapping.end);
        } else {
            (*start, *end) = ((*start).min(mapping.start), (*end).max(mapping.end));
        }
    }
    Target { code, flags, reserved: 0 }
}
