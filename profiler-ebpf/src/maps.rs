//! Maps and constants shared by the programs.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use profiler_common::capture::Capture;
use profiler_common::config::{Adopt, Config, FutexKey, Target};
use profiler_common::counters;
use profiler_common::histogram::Histogram;
use profiler_common::turn::ThreadState;

/// Constants of this run, set before loading.
#[unsafe(no_mangle)]
pub(crate) static CONFIG: Config = Config {
    threshold_ns: 0,
    sample_period_ns: 0,
    stack_pages: 0,
    max_loops: 0,
    follow_forks: 0,
    has_prev_state: 0,
    has_task_pt_regs: 0,
    exact: 0,
    task_pid: 0,
    task_tgid: 0,
    task_state: 0,
    task_stack: 0,
    task_jobctl: 0,
    task_exec_start: 0,
    task_sum_exec: 0,
    task_thread_pointer: 0,
};

/// Reads a constant that user space has set.
#[inline(always)]
pub(crate) fn constant<T: Copy>(value: &'static T) -> T {
    // SAFETY: a valid reference; the volatile read keeps the compiler from folding in the zeros
    // that stand there at compile time.
    unsafe { core::ptr::read_volatile(value) }
}

macro_rules! config {
    ($field:ident) => {
        $crate::maps::constant(&$crate::maps::CONFIG.$field)
    };
}
pub(crate) use config;

/// One byte per process id (its low 16 bits): a cheap "surely not a target".
pub(crate) const FILTER_BYTES: usize = 1 << 16;

#[map]
pub(crate) static FILTER: Array<[u8; FILTER_BYTES]> = Array::with_max_entries(1, 0);
#[map]
pub(crate) static TARGETS: HashMap<u32, Target> = HashMap::with_max_entries(1024, 0);
#[map]
pub(crate) static THREADS: HashMap<u32, ThreadState> = HashMap::with_max_entries(4096, 0);
/// The state of a new thread: too large for a BPF program's stack.
#[map]
pub(crate) static BLANK: Array<ThreadState> = Array::with_max_entries(1, 0);
/// End of a thread's stack, where user space knows it.
#[map]
pub(crate) static STACK_ENDS: HashMap<u32, u64> = HashMap::with_max_entries(4096, 0);
#[map]
pub(crate) static CAPTURES: Array<Capture> = Array::with_max_entries(128, 0);
#[map]
pub(crate) static HISTOGRAMS: Array<Histogram> = Array::with_max_entries(32, 0);
/// Loop slots by number: the thread that has it.
#[map]
pub(crate) static SLOTS: HashMap<u32, u32> = HashMap::with_max_entries(1024, 0);
/// [0]: since when `park_enter` is armed, 0 if it is not. [1]: where to look for a free slot.
/// [2]: non-zero if a target's group has a CPU quota. [3]: the thread whose fault is asked about.
#[map]
pub(crate) static SHARED: Array<u64> = Array::with_max_entries(4, 0);
#[map]
pub(crate) static ADOPT: HashMap<u32, Adopt> = HashMap::with_max_entries(1024, 0);
#[map]
pub(crate) static FUTEXES: LruHashMap<FutexKey, u32> = LruHashMap::with_max_entries(8192, 0);
#[map]
pub(crate) static COUNTERS: PerCpuArray<u64> =
    PerCpuArray::with_max_entries(counters::COUNT as u32, 0);
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(8 << 20, 0);
