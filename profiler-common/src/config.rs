//! What user space fixes before the kernel programs are loaded, and what it sets while they run.

/// Constants of one run. They are read-only data of the BPF object, so the verifier removes the
/// branches they rule out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Turns this long are stalls.
    pub threshold_ns: u64,
    /// Shortest distance of two samples on CPU.
    pub sample_period_ns: u64,
    /// Pages of user stack in a capture, at most [`MAX_PAGES`](crate::capture::MAX_PAGES).
    pub stack_pages: u32,
    /// Loop threads that get captures and histograms.
    pub max_loops: u32,
    /// Non-zero: children of the targets become targets.
    pub follow_forks: u32,
    /// Non-zero: `sched_switch` passes the previous state as its fourth argument (Linux 5.18).
    pub has_prev_state: u32,
    /// Non-zero: the kernel has `bpf_task_pt_regs` and `bpf_get_current_task_btf` (Linux 5.15).
    pub has_task_pt_regs: u32,
    /// Non-zero: polls are meant to be seen, so that turns which began while they were not count as
    /// busy time only: they may have been many.
    pub exact: u32,
    /// Offset of `task_struct.pid`.
    pub task_pid: u32,
    /// Offset of `task_struct.tgid`.
    pub task_tgid: u32,
    /// Offset of `task_struct.__state` (`state` before Linux 5.14).
    pub task_state: u32,
    /// Offset of `task_struct.stack`.
    pub task_stack: u32,
    /// Offset of `task_struct.jobctl`.
    pub task_jobctl: u32,
    /// Offset of `task_struct.se.exec_start`.
    pub task_exec_start: u32,
    /// Offset of `task_struct.se.sum_exec_runtime`.
    pub task_sum_exec: u32,
    /// Offset of `task_struct.thread.fsbase`; 0 if there is none.
    pub task_thread_pointer: u32,
}

/// A watched process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Address ranges that hold code (start, end): words of a stack in one of them are taken for
    /// return addresses when two stacks are compared. Unused ones are empty.
    pub code: [[u64; 2]; CODE_RANGES],
    /// `TARGET_*`.
    pub flags: u32,
    /// Explicit padding.
    pub reserved: u32,
}

/// Ranges of code a target has room for.
pub const CODE_RANGES: usize = 4;
/// A thread of the process uses epoll or io_uring, so a lone `poll` is no park.
pub const TARGET_HAS_EPOLL: u32 = 1;
/// Unknown futexes of its threads are to be classified (the runtime parks in futexes).
pub const TARGET_LEARN_FUTEXES: u32 = 2;

/// A futex of a watched process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FutexKey {
    /// Address in the process.
    pub address: u64,
    /// The process.
    pub tgid: u32,
    /// Thread that waits on it: a parker belongs to one thread.
    pub tid: u32,
}

/// Asked, no answer yet.
pub const FUTEX_ASKED: u32 = 1;
/// Waiting on it is a park.
pub const FUTEX_PARK: u32 = 2;
/// Waiting on it is blocked time.
pub const FUTEX_LOCK: u32 = 3;

/// Waiting on it, the thread is no worker any more (it went back to a pool).
pub const FUTEX_IDLE: u32 = 4;

/// Instead of a futex's address: the thread waits for the epoll instance or the ring in the lower half
/// ([`park_place`](crate::arch::UserRegs::park_place)), which is not the one that it parks in. User
/// addresses never have this bit.
pub const EPOLL_KEY: u64 = 1 << 63;

/// What user space found a thread doing when it attached: applied by the thread's next event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopt {
    /// When the turn is known to have begun at the latest (`CLOCK_MONOTONIC`).
    pub start_ns: u64,
    /// What the thread sleeps in: a cause, [`ADOPT_RUNNING`] or [`ADOPT_PARKED`].
    pub cause: u32,
    /// The system call it sleeps in.
    pub nr: i32,
}

/// The adopted thread was runnable or running.
pub const ADOPT_RUNNING: u32 = u32::MAX;
/// The adopted thread was parked; `nr` is its park class.
pub const ADOPT_PARKED: u32 = u32::MAX - 1;
