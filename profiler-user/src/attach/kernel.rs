//! The kernel side, loaded: programs, links and maps. The only module that links programs.

use std::collections::HashMap as Table;
use std::io::Read as _;

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::fentry::FEntryLinkId;
use aya::programs::perf_event::{
    PerfEvent, PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeLinkId, UProbeScope};
use aya::programs::{BtfTracePoint, FEntry, Iter, ProgramError, UProbe};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use profiler_common::arch::park_functions;
use profiler_common::capture::{BUFFERS, Capture, PAGE};
use profiler_common::config::{Adopt, Config, FUTEX_PARK, FutexKey, Target};
use profiler_common::counters::Counter;
use profiler_common::histogram::BUCKETS;
use profiler_common::turn::{Phase, ThreadState};
use thiserror::Error;

use crate::events::monotonic_ns;

use super::btf::{BtfError, KernelTypes};
use super::limits;

/// The compiled kernel programs; `cargo xtask build-ebpf` makes them.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../profiler-ebpf/object/stallscope.bpf.o"
));

/// Bytes of the ring buffer: some two hundred captures of default size.
const RING_BYTES: u32 = 8 << 20;
/// Length of the kernel's cheap filter by process id.
const FILTER_BYTES: usize = 1 << 16;

/// The programs that follow the scheduler and the lifecycle of threads; `sched_switch` last, so
/// that nothing it relies on is missing.
const SCHEDULER: [&str; 5] = [
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "sched_waking",
    "sched_switch",
];
const TICK: &str = "cpu_tick";
const TASK_POLL: &str = "task_poll";

/// Why the kernel side could not be set up.
#[derive(Debug, Error)]
pub enum KernelError {
    /// Type information is missing or lacks a field.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// aya could not read the kernel's type information.
    #[error("the kernel's type information can't be used: {0}")]
    Btf(#[from] aya::BtfError),
    /// The object or its maps could not be loaded.
    #[error("loading the kernel programs failed: {0}")]
    Load(#[from] EbpfError),
    /// A program was refused.
    #[error("the kernel refused the program {program}: {source}")]
    Program {
        /// Which program.
        program: &'static str,
        /// Why.
        source: ProgramError,
    },
    /// A map could not be read or written.
    #[error("a map of the kernel programs failed: {0}")]
    Map(#[from] MapError),
    /// The object lacks something that this binary expects.
    #[error("the kernel programs and this binary do not fit together: no {0}")]
    Mismatch(&'static str),
    /// The iterator could not be read.
    #[error("reading the task iterator failed: {0}")]
    Iterator(std::io::Error),
}

impl KernelError {
    /// Whether the cause is a missing permission.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = source {
            if let Some(io) = error.downcast_ref::<std::io::Error>()
                && matches!(io.raw_os_error(), Some(libc::EPERM | libc::EACCES))
            {
                return true;
            }
            source = error.source();
        }
        false
    }
}

/// What a run asks of the kernel side.
#[derive(Debug, Clone, Copy)]
pub struct KernelOptions {
    /// Turns this long are stalls.
    pub threshold_ns: u64,
    /// Samples on CPU per second.
    pub sample_rate: u32,
    /// Bytes of user stack per capture.
    pub stack_bytes: usize,
    /// Loop threads that get captures and histograms.
    pub max_loops: u32,
    /// Threads that can be watched.
    pub max_threads: u32,
    /// Whether children of targets become targets.
    pub follow_forks: bool,
}

/// How polls that do not sleep are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundaries {
    /// By programs on the park calls themselves.
    Fentry,
    /// By the tracepoint of all system calls.
    SysEnter,
    /// Not at all: by the scheduler's events alone.
    Sched,
}

impl Boundaries {
    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::SysEnter => "sys_enter",
            Self::Sched => "sched",
        }
    }
}

/// The loaded programs.
pub struct Kernel {
    ebpf: Ebpf,
    btf: Btf,
    types: KernelTypes,
    threads: HashMap<MapData, u32, ThreadState>,
    ticks: Table<u32, PerfEventLinkId>,
    fentry_links: Vec<(&'static str, FEntryLinkId)>,
    sys_enter_link: Option<BtfTracePointLinkId>,
    task_polls: Table<u32, Vec<u64>>,
    task_links: Vec<UProbeLinkId>,
    task_poll_error: Option<String>,
    armed_since: u64,
    sample_period_ns: u64,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("ticks", &self.ticks.len()).finish_non_exhaustive()
    }
}

impl Kernel {
    /// Loads the object with this kernel's field offsets. Nothing is attached yet.
    ///
    /// # Errors
    /// Missing type information, missing permission, or a map that can't be made.
    pub fn load(options: &KernelOptions) -> Result<Self, KernelError> {
        limits::raise_locked_memory();
        let types = KernelTypes::of_running_kernel()?;
        let config = config(&types, options)?;
        let btf = Btf::from_sys_fs()?;
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .override_global("CONFIG", &config, true)
            .map_max_entries("THREADS", options.max_threads)
            .map_max_entries("STACK_ENDS", options.max_threads)
            .map_max_entries("ADOPT", options.max_threads)
            .map_max_entries("CAPTURES", options.max_loops * BUFFERS)
            .map_max_entries("HISTOGRAMS", options.max_loops)
            .map_max_entries("SLOTS", options.max_loops)
            .map_max_entries("EVENTS", RING_BYTES)
            .load(OBJECT)?;
        let threads = HashMap::try_from(
            ebpf.take_map("THREADS").ok_or(KernelError::Mismatch("map THREADS"))?,
        )?;
        let sample_period_ns = config.sample_period_ns;
        Ok(Self {
            ebpf,
            btf,
            types,
            threads,
            ticks: Table::new(),
            fentry_links: Vec::new(),
            sys_enter_link: None,
            task_polls: Table::new(),
            task_links: Vec::new(),
            task_poll_error: None,
            armed_since: 0,
            sample_period_ns,
        })
    }

    /// The running kernel's types.
    #[must_use]
    pub const fn types(&self) -> &KernelTypes {
        &self.types
    }

    /// The stream of records. Can be taken once.
    ///
    /// # Errors
    /// It was taken before.
    pub fn take_events(&mut self) -> Result<RingBuf<MapData>, KernelError> {
        let map = self.ebpf.take_map("EVENTS").ok_or(KernelError::Mismatch("map EVENTS"))?;
        Ok(RingBuf::try_from(map)?)
    }

    /// Has the kernel verify the programs that every run needs: what takes time comes before
    /// anything is attached.
    ///
    /// # Errors
    /// A program is refused.
    pub fn verify(&mut self) -> Result<(), KernelError> {
        for name in SCHEDULER {
            self.load_tracepoint(name)?;
        }
        let tick: &mut PerfEvent = self.program(TICK)?;
        tick.load().map_err(|source| KernelError::Program { program: TICK, source })
    }

    /// Has the kernel verify the programs of one kind of boundaries.
    ///
    /// # Errors
    /// A program is refused.
    pub fn verify_boundaries(&mut self, boundaries: Boundaries) -> Result<(), KernelError> {
        match boundaries {
            Boundaries::Fentry => {
                for (name, function) in self.park_functions() {
                    self.load_fentry(name, function)?;
                }
                Ok(())
            }
            Boundaries::SysEnter => self.load_tracepoint("sys_enter"),
            Boundaries::Sched => Ok(()),
        }
    }

    /// Attaches the programs that every run needs: scheduler and lifecycle.
    ///
    /// # Errors
    /// A program is refused.
    pub fn attach_scheduler(&mut self) -> Result<(), KernelError> {
        for name in SCHEDULER {
            self.attach_tracepoint(name)?;
        }
        Ok(())
    }

    fn program<'a, P>(&'a mut self, name: &'static str) -> Result<&'a mut P, KernelError>
    where
        &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
    {
        self.ebpf
            .program_mut(name)
            .ok_or(KernelError::Mismatch(name))?
            .try_into()
            .map_err(|source| KernelError::Program { program: name, source })
    }

    fn load_tracepoint(&mut self, name: &'static str) -> Result<(), KernelError> {
        let refused = |source| KernelError::Program { program: name, source };
        let btf = self.btf.clone();
        let program: &mut BtfTracePoint = self.program(name)?;
        if program.fd().is_err() {
            program.load(name, &btf).map_err(refused)?;
        }
        Ok(())
    }

    fn attach_tracepoint(
        &mut self,
        name: &'static str,
    ) -> Result<BtfTracePointLinkId, KernelError> {
        self.load_tracepoint(name)?;
        let program: &mut BtfTracePoint = self.program(name)?;
        program.attach().map_err(|source| KernelError::Program { program: name, source })
    }

    fn load_fentry(
        &mut self,
        name: &'static str,
        function: &'static str,
    ) -> Result<(), KernelError> {
        let refused = |source| KernelError::Program { program: name, source };
        let btf = self.btf.clone();
        let program: &mut FEntry = self.program(name)?;
        if program.fd().is_err() {
            program.load(function, &btf).map_err(refused)?;
        }
        Ok(())
    }

    /// The park functions that this kernel has, by program.
    fn park_functions(&self) -> Vec<(&'static str, &'static str)> {
        let there = |&(_, function): &(_, &str)| self.types.has_function(function);
        park_functions().into_iter().filter(there).collect()
    }

    /// Begins to see every poll, in this way. The programs stay loaded when disarmed.
    ///
    /// # Errors
    /// The kernel does not allow it (lockdown, no trampolines); what was attached is detached.
    pub fn arm(&mut self, boundaries: Boundaries) -> Result<(), KernelError> {
        let armed = match boundaries {
            Boundaries::Fentry => self.attach_fentry(),
            Boundaries::SysEnter => self.attach_sys_enter(),
            Boundaries::Sched => return Ok(()),
        };
        if let Err(error) = armed {
            self.disarm();
            return Err(error);
        }
        if let Err(error) = self.attach_task_polls() {
            self.detach_task_polls();
            self.task_poll_error = Some(error.to_string());
        }
        // From now on; a turn that began before is not exact.
        self.set_armed_since(monotonic_ns())
    }

    /// Stops to see polls that do not sleep.
    pub fn disarm(&mut self) {
        let _ = self.set_armed_since(0);
        for (name, link) in std::mem::take(&mut self.fentry_links) {
            if let Ok(program) = self.program::<FEntry>(name) {
                let _ = program.detach(link);
            }
        }
        self.detach_task_polls();
        if let Some(link) = self.sys_enter_link.take()
            && let Ok(program) = self.program::<BtfTracePoint>("sys_enter")
        {
            let _ = program.detach(link);
        }
    }

    /// Since when (`CLOCK_MONOTONIC`) every poll is seen; 0 if they are not.
    #[must_use]
    pub const fn armed_since(&self) -> u64 {
        self.armed_since
    }

    /// Sees each task poll of a process as a turn: `offsets` are the places in its executable where
    /// the functions that poll a task begin. Takes effect at the next [`arm`](Self::arm).
    pub fn set_task_polls(&mut self, pid: u32, offsets: Vec<u64>) {
        self.task_polls.insert(pid, offsets);
    }

    /// Why task polls could not be seen, if they could not.
    #[must_use]
    pub fn task_poll_error(&self) -> Option<&str> {
        self.task_poll_error.as_deref()
    }

    fn attach_task_polls(&mut self) -> Result<(), KernelError> {
        self.detach_task_polls();
        let points = std::mem::take(&mut self.task_polls);
        let attached = points.iter().try_for_each(|(&pid, offsets)| {
            offsets.iter().try_for_each(|&offset| self.attach_task_poll(pid, offset))
        });
        self.task_polls = points;
        attached
    }

    fn attach_task_poll(&mut self, pid: u32, offset: u64) -> Result<(), KernelError> {
        let refused = |source| KernelError::Program { program: TASK_POLL, source };
        let Some(scope) = std::num::NonZeroU32::new(pid).map(UProbeScope::OneProcess) else {
            return Ok(());
        };
        let program: &mut UProbe = self.program(TASK_POLL)?;
        if program.fd().is_err() {
            program.load().map_err(refused)?;
        }
        let location = UProbeAttachLocation::AbsoluteOffset(offset);
        let link = program.attach(location, format!("/proc/{pid}/exe"), scope).map_err(refused)?;
        self.task_links.push(link);
        Ok(())
    }

    fn detach_task_polls(&mut self) {
        for link in std::mem::take(&mut self.task_links) {
            if let Ok(program) = self.program::<UProbe>(TASK_POLL) {
                let _ = program.detach(link);
            }
        }
    }

    fn set_armed_since(&mut self, ns: u64) -> Result<(), KernelError> {
        self.armed_since = ns;
        let mut shared: Array<_, u64> = self.map_mut("SHARED")?;
        Ok(shared.set(0, ns, 0)?)
    }

    fn attach_fentry(&mut self) -> Result<(), KernelError> {
        for (name, function) in self.park_functions() {
            self.load_fentry(name, function)?;
            let program: &mut FEntry = self.program(name)?;
            let link = program
                .attach()
                .map_err(|source| KernelError::Program { program: name, source })?;
            self.fentry_links.push((name, link));
        }
        if self.fentry_links.is_empty() {
            return Err(KernelError::Mismatch("park function in this kernel"));
        }
        Ok(())
    }

    fn attach_sys_enter(&mut self) -> Result<(), KernelError> {
        self.sys_enter_link = Some(self.attach_tracepoint("sys_enter")?);
        Ok(())
    }

    fn map_mut<'a, M>(&'a mut self, name: &'static str) -> Result<M, KernelError>
    where
        M: TryFrom<&'a mut aya::maps::Map, Error = MapError>,
    {
        Ok(self.ebpf.map_mut(name).ok_or(KernelError::Mismatch(name))?.try_into()?)
    }

    fn map<'a, M>(&'a self, name: &'static str) -> Result<M, KernelError>
    where
        M: TryFrom<&'a aya::maps::Map, Error = MapError>,
    {
        Ok(self.ebpf.map(name).ok_or(KernelError::Mismatch(name))?.try_into()?)
    }

    /// Makes a process a target, or changes what is known of it.
    ///
    /// # Errors
    /// The table of targets is full.
    pub fn set_target(&mut self, tgid: u32, target: &Target) -> Result<(), KernelError> {
        let mut targets: HashMap<_, u32, Target> = self.map_mut("TARGETS")?;
        targets.insert(tgid, target, 0)?;
        let mut filter: Array<_, [u8; FILTER_BYTES]> = self.map_mut("FILTER")?;
        let mut marks = filter.get(&0, 0)?;
        marks[tgid as usize % FILTER_BYTES] = 1;
        Ok(filter.set(0, marks, 0)?)
    }

    /// What the kernel side knows of a target.
    #[must_use]
    pub fn target(&self, tgid: u32) -> Option<Target> {
        let targets: HashMap<_, u32, Target> = self.map("TARGETS").ok()?;
        targets.get(&tgid, 0).ok()
    }

    /// Forgets a process.
    pub fn remove_target(&mut self, tgid: u32) {
        if let Ok(mut targets) = self.map_mut::<HashMap<_, u32, Target>>("TARGETS") {
            let _ = targets.remove(&tgid);
        }
    }

    /// Begins to watch an existing thread; one that is watched already stays as it is.
    ///
    /// # Errors
    /// The table of threads is full.
    pub fn watch_thread(&mut self, tgid: u32, tid: u32) -> Result<(), KernelError> {
        /// `BPF_NOEXIST`
        const NO_EXIST: u64 = 1;
        match self.threads.insert(tid, ThreadState::new(tgid, tid), NO_EXIST) {
            Err(MapError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::EEXIST) =>
            {
                Ok(())
            }
            result => Ok(result?),
        }
    }

    /// A consistent copy of a thread's state; `None` if it is not watched, or never at rest.
    #[must_use]
    pub fn thread(&self, tid: u32) -> Option<ThreadState> {
        for _ in 0..4 {
            let first = self.threads.get(&tid, 0).ok()?;
            let second = self.threads.get(&tid, 0).ok()?;
            if first.version == second.version && first.version % 2 == 0 {
                return Some(second);
            }
        }
        None
    }

    /// Forgets a thread and frees its slot.
    pub fn forget_thread(&mut self, tid: u32) {
        if let Some(link) = self.ticks.remove(&tid)
            && let Ok(program) = self.program::<PerfEvent>(TICK)
        {
            let _ = program.detach(link);
        }
        let slot = self.threads.get(&tid, 0).ok().map_or(0, |state| state.slot);
        let _ = self.threads.remove(&tid);
        if slot != 0
            && let Ok(mut slots) = self.map_mut::<HashMap<_, u32, u32>>("SLOTS")
        {
            let _ = slots.remove(&(slot - 1));
        }
        if slot != 0
            && let Ok(mut histograms) = self.map_mut::<Array<_, [u64; BUCKETS]>>("HISTOGRAMS")
        {
            let _ = histograms.set(slot - 1, [0; BUCKETS], 0);
        }
    }

    /// Ids of all watched threads.
    #[must_use]
    pub fn watched_threads(&self) -> Vec<u32> {
        self.threads.keys().filter_map(Result::ok).collect()
    }

    /// Tells where a thread's stack ends.
    pub fn set_stack_end(&mut self, tid: u32, end: u64) {
        if let Ok(mut ends) = self.map_mut::<HashMap<_, u32, u64>>("STACK_ENDS") {
            let _ = ends.insert(tid, end, 0);
        }
    }

    /// Has a thread's next event begin the turn that it was found in.
    ///
    /// # Errors
    /// The map is full.
    pub fn adopt(&mut self, tid: u32, adopt: Adopt) -> Result<(), KernelError> {
        let mut map: HashMap<_, u32, Adopt> = self.map_mut("ADOPT")?;
        Ok(map.insert(tid, adopt, 0)?)
    }

    /// What is known of the futex a thread sleeps on.
    #[must_use]
    pub fn futex(&self, state: &ThreadState) -> Option<u32> {
        let header = &state.record.header;
        if state.futex == 0 {
            return None;
        }
        let key = FutexKey { address: state.futex, tgid: header.tgid, tid: header.tid };
        self.map::<HashMap<_, FutexKey, u32>>("FUTEXES").ok()?.get(&key, 0).ok()
    }

    /// Whether a thread in a turn sleeps in what is known as a park by now: its turn ended when the
    /// sleep began.
    #[must_use]
    pub fn is_parked(&self, state: &ThreadState) -> bool {
        state.phase() == Phase::Busy && state.is_asleep() && self.futex(state) == Some(FUTEX_PARK)
    }

    /// Answers what a futex is.
    pub fn set_futex(&mut self, key: FutexKey, class: u32) {
        if let Ok(mut futexes) = self.map_mut::<HashMap<_, FutexKey, u32>>("FUTEXES") {
            let _ = futexes.insert(key, class, 0);
        }
    }

    /// Histogram of the turns of the loop in a slot (from 1).
    #[must_use]
    pub fn histogram(&self, slot: u32) -> Option<Box<[u64]>> {
        let histograms: Array<_, [u64; BUCKETS]> = self.map("HISTOGRAMS").ok()?;
        let counts = histograms.get(&slot.checked_sub(1)?, 0).ok()?;
        Some(Box::new(counts))
    }

    /// A capture that still waits in its buffer.
    #[must_use]
    pub fn waiting_capture(&self, slot: u32, buffer: u32) -> Option<Box<Capture>> {
        let captures: Array<_, Capture> = self.map("CAPTURES").ok()?;
        let index = slot.checked_sub(1)? * BUFFERS + buffer;
        captures.get(&index, 0).ok().map(Box::new)
    }

    /// Begins to sample a loop thread while it runs.
    ///
    /// # Errors
    /// The event can't be opened: the thread is gone, or file descriptors ran out.
    pub fn tick(&mut self, tid: u32) -> Result<(), KernelError> {
        if self.ticks.contains_key(&tid) {
            return Ok(());
        }
        let period = self.sample_period_ns;
        let program: &mut PerfEvent = self.program(TICK)?;
        let link = program
            .attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::OneProcess { pid: tid, cpu: None },
                SamplePolicy::Period(period),
                false,
            )
            .map_err(|source| KernelError::Program { program: TICK, source })?;
        self.ticks.insert(tid, link);
        Ok(())
    }

    /// Has every thread of the targets reported as it is now, in the stream of records.
    ///
    /// # Errors
    /// The kernel has no task iterator (before Linux 5.8), or refuses it.
    pub fn snapshot(&mut self) -> Result<(), KernelError> {
        const NAME: &str = "snapshot_tasks";
        let refused = |source| KernelError::Program { program: NAME, source };
        let btf = self.btf.clone();
        let program: &mut Iter = self.program(NAME)?;
        if program.fd().is_err() {
            program.load("task", &btf).map_err(refused)?;
        }
        let link = program.attach().map_err(refused)?;
        let link = program.take_link(link).map_err(refused)?;
        let mut file = link
            .into_file()
            .map_err(|error| KernelError::Iterator(std::io::Error::other(error)))?;
        let mut nothing = Vec::new();
        file.read_to_end(&mut nothing).map_err(KernelError::Iterator)?;
        Ok(())
    }

    /// The kernel side's counters, summed over the CPUs.
    ///
    /// # Errors
    /// The map can't be read.
    pub fn counters(&self) -> Result<Vec<(Counter, u64)>, KernelError> {
        let map: PerCpuArray<_, u64> = self.map("COUNTERS")?;
        let mut counts = Vec::new();
        for &counter in Counter::ALL {
            let total = map.get(&(counter as u32), 0)?.iter().sum();
            counts.push((counter, total));
        }
        Ok(counts)
    }

    /// CPU time of all programs, if the kernel counts it (`kernel.bpf_stats_enabled`).
    #[must_use]
    pub fn cpu_time_ns(&self) -> Option<u64> {
        let total = self
            .ebpf
            .programs()
            .filter_map(|(_, program)| program.info().ok())
            .map(|info| u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX))
            .sum();
        (total > 0).then_some(total)
    }
}

fn config(types: &KernelTypes, options: &KernelOptions) -> Result<Config, BtfError> {
    let task = |field| types.offset("task_struct", field);
    let arguments = types.tracepoint_arguments("sched_switch").unwrap_or(0);
    let pages = options.stack_bytes.div_ceil(PAGE);
    Ok(Config {
        threshold_ns: options.threshold_ns,
        sample_period_ns: 1_000_000_000 / u64::from(options.sample_rate.max(1)),
        stack_pages: u32::try_from(pages).unwrap_or(u32::MAX),
        max_loops: options.max_loops,
        follow_forks: u32::from(options.follow_forks),
        has_prev_state: u32::from(arguments >= 4),
        has_task_pt_regs: u32::from(types.has_function("bpf_task_pt_regs")),
        learn_futexes: 1,
        task_pid: task("pid")?,
        task_tgid: task("tgid")?,
        task_state: task("__state").or_else(|_| task("state"))?,
        task_stack: task("stack")?,
        task_jobctl: task("jobctl")?,
        task_exec_start: task("se.exec_start")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_pass_this_kernels_verifier() {
        let options = KernelOptions {
            threshold_ns: 10_000_000,
            sample_rate: 1000,
            stack_bytes: 36 << 10,
            max_loops: 8,
            max_threads: 64,
            follow_forks: true,
        };
        let mut kernel = Kernel::load(&options).expect("load");
        let arm = |kernel: &mut Kernel| kernel.arm(Boundaries::SysEnter);
        let fentry = |kernel: &mut Kernel| kernel.verify_boundaries(Boundaries::Fentry);
        for step in [Kernel::verify, Kernel::attach_scheduler, arm, Kernel::snapshot, fentry] {
            if let Err(error) = step(&mut kernel) {
                let mut text = String::new();
                let mut source: Option<&dyn std::error::Error> = Some(&error);
                while let Some(e) = source {
                    let t = e.to_string();
                    text.push_str(&t[t.len().saturating_sub(6000)..]);
                    text.push('\n');
                    source = e.source();
                }
                panic!("{text}");
            }
        }
    }
}
