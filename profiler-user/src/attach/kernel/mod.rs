//! The kernel side, loaded: programs, links and maps. The only module that links programs.
//!
//! - `boundaries`: programs that are armed and disarmed while others run.
//! - `verify`: the kernel's verifier, ahead of everything else.
//! - `cost`: what they cost, by the kernel's own account.
//! - `maps`: what both sides share.
//! - `error`: why it could not be set up.

mod boundaries;
mod cost;
mod error;
mod maps;
mod verify;

use std::collections::HashMap as Table;
use std::io::Read as _;

use aya::maps::{Array, HashMap, MapData, RingBuf};
use aya::programs::fentry::FEntryLinkId;
use aya::programs::perf_event::{
    PerfEvent, PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::uprobe::UProbeLinkId;
use aya::programs::{BtfTracePoint, Iter, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use profiler_common::capture::{BUFFERS, PAGE};
use profiler_common::config::Config;
use profiler_common::layout::Layout;
use profiler_common::turn::ThreadState;
use profiler_common::waits::{RESOURCES, Resource};

use super::btf::{BtfError, KernelTypes};
use super::limits;

pub use boundaries::Boundaries;
pub use error::KernelError;
pub use maps::NotedWaits;

/// The compiled kernel programs; `cargo xtask build-ebpf` makes them.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../profiler-ebpf/object/stallscope.bpf.o"
));

/// Bytes of the ring buffer: some two hundred captures of default size.
const RING_BYTES: u32 = 8 << 20;

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
const SYS_ENTER: &str = "sys_enter";
const SNAPSHOT: &str = "snapshot_tasks";
const DESCRIBE_FAULT: &str = "describe_fault";
/// Who sends a signal that stops: good to know, but nothing depends on it.
const SIGNAL: &str = "signal_generate";

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
    /// Whether polls are meant to be seen.
    pub exact: bool,
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
    cost: Option<cost::CostWindow>,
    /// What a breakpoint costs besides its program; 0 until it was measured.
    breakpoint_ns: f64,
    sample_period_ns: u64,
    max_loops: u32,
    signals_seen: bool,
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
        Self::load_object(OBJECT, options)
    }

    /// The same with another object than the one that was built in, as the work on it needs.
    ///
    /// # Errors
    /// As [`Self::load`]; and an object that is none.
    pub fn load_object(object: &[u8], options: &KernelOptions) -> Result<Self, KernelError> {
        limits::raise_locked_memory();
        // Read three times, by us, for the programs and by aya's loader for itself: each takes as long
        // as a tenth of the way to the first report.
        let (types, btf, mut loader) = std::thread::scope(|scope| {
            let btf = scope.spawn(Btf::from_sys_fs);
            let types = scope.spawn(KernelTypes::of_running_kernel);
            let loader = EbpfLoader::new();
            (types.join(), btf.join(), loader)
        });
        let types = types.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let btf = btf.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let config = config(&types, options)?;
        let mut ebpf = loader
            .btf(Some(&btf))
            .override_global("CONFIG", &config, true)
            .override_global("LAYOUT", &Layout::new(|of, field| types.offset(of, field).ok()), true)
            .map_max_entries("THREADS", options.max_threads)
            .map_max_entries("STACK_ENDS", options.max_threads)
            .map_max_entries("ADOPT", options.max_threads)
            .map_max_entries("CAPTURES", options.max_loops * BUFFERS)
            .map_max_entries("PYTHON_STACKS", options.max_loops * (BUFFERS + 1))
            .map_max_entries("PYTHON_STATES", options.max_threads)
            .map_max_entries("HISTOGRAMS", options.max_loops)
            .map_max_entries("NOTES", options.max_loops)
            .map_max_entries("WAKES", options.max_loops)
            .map_max_entries("HOLDERS", options.max_loops)
            .map_max_entries("RESOURCE_RECORDS", options.max_loops * RESOURCES as u32 + 1)
            .map_max_entries("SLOTS", options.max_loops)
            .map_max_entries("EVENTS", RING_BYTES)
            .load(object)?;
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
            cost: None,
            breakpoint_ns: 0.0,
            sample_period_ns,
            max_loops: options.max_loops,
            signals_seen: false,
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

    /// Attaches the programs that every run needs: scheduler and lifecycle.
    ///
    /// # Errors
    /// A program is refused.
    pub fn attach_scheduler(&mut self) -> Result<(), KernelError> {
        for name in SCHEDULER {
            self.attach_tracepoint(name)?;
        }
        self.signals_seen = self.attach_tracepoint(SIGNAL).is_ok();
        Ok(())
    }

    /// Whether it is known who stops a target by a signal.
    #[must_use]
    pub const fn signals_seen(&self) -> bool {
        self.signals_seen
    }

    fn attach_tracepoint(
        &mut self,
        name: &'static str,
    ) -> Result<BtfTracePointLinkId, KernelError> {
        self.load_tracepoint(name)?;
        let program: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
        program.attach().map_err(|source| KernelError::Program { program: name, source })
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
        let program: &mut PerfEvent = program(&mut self.ebpf, TICK)?;
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
        self.iterate(SNAPSHOT)
    }

    /// What the page fault of a thread waits for, which sleeps in it: as the kernel side would describe it
    /// at its end. `None` if that can't be told.
    pub fn fault(&mut self, tid: u32) -> Option<Box<Resource>> {
        let mut shared: Array<_, u64> = self.map_mut("SHARED").ok()?;
        shared.set(3, u64::from(tid), 0).ok()?;
        self.iterate(DESCRIBE_FAULT).ok()?;
        let at = self.max_loops * RESOURCES as u32;
        let records: Array<_, Resource> = self.map("RESOURCE_RECORDS").ok()?;
        records.get(&at, 0).ok().map(Box::new).filter(|found| found.header.tid == tid)
    }

    /// Runs an iterator over all threads once.
    fn iterate(&mut self, name: &'static str) -> Result<(), KernelError> {
        let refused = |source| KernelError::Program { program: name, source };
        self.load_iterator(name)?;
        let program: &mut Iter = program(&mut self.ebpf, name)?;
        let link = program.attach().map_err(refused)?;
        let link = program.take_link(link).map_err(refused)?;
        let mut file = link
            .into_file()
            .map_err(|error| KernelError::Iterator(std::io::Error::other(error)))?;
        let mut nothing = Vec::new();
        file.read_to_end(&mut nothing).map_err(KernelError::Iterator)?;
        Ok(())
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

/// A program of the object, by its name there.
fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, KernelError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .ok_or(KernelError::Mismatch(name))?
        .try_into()
        .map_err(|source| KernelError::Program { program: name, source })
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
        exact: u32::from(options.exact),
        task_pid: task("pid")?,
        task_tgid: task("tgid")?,
        task_state: task("__state").or_else(|_| task("state"))?,
        task_stack: task("stack")?,
        task_jobctl: task("jobctl")?,
        task_exec_start: task("se.exec_start")?,
        task_sum_exec: task("se.sum_exec_runtime")?,
        task_thread_pointer: task("thread.fsbase").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_pass_this_kernels_verifier() {
        // SAFETY: geteuid has no preconditions and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                b"SKIPPED: needs root (the_programs_pass_this_kernels_verifier)\n",
            );
            return;
        }
        let options = KernelOptions {
            threshold_ns: 10_000_000,
            sample_rate: 1000,
            stack_bytes: 36 << 10,
            max_loops: 8,
            max_threads: 64,
            follow_forks: true,
            exact: true,
        };
        let mut kernel = Kernel::load(&options).expect("load");
        let arm = |kernel: &mut Kernel| kernel.arm(Boundaries::SysEnter);
        let verify = |kernel: &mut Kernel| kernel.verify(true, || true);
        for step in [verify, Kernel::attach_scheduler, arm, Kernel::snapshot] {
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
