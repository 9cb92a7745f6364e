//! Loops as they are found: parked, or stuck already when stallscope attaches.

use profiler_common::arch::{UserRegs, is_futex, park_class};
use profiler_common::cause;
use profiler_common::config::{ADOPT_PARKED, ADOPT_RUNNING, Adopt, FUTEX_PARK, FutexKey};
use profiler_common::turn::{PARK_EPOLL, PARK_FUTEX, PARK_POLL};

use crate::attach::{blocked, proc};
use crate::blame::Runtime;
use crate::events::{SnapshotEvent, StackCopy};
use crate::runtimes::{FutexUse, is_worker};
use crate::session::asked::Sleep;
use crate::session::pipeline::{Pipeline, Walked};
use crate::stalls::{Captured, Cause, Ledger, RawStall, SleptIn};
use crate::unwind::{StackEnd, UnwoundStack};

/// What a thread was found doing.
#[derive(Debug)]
pub(super) enum Found {
    /// A loop that waits for work.
    Parked { adopt: Adopt },
    /// A thread that polls: it may prove to be a loop.
    Polling { adopt: Adopt },
    /// A worker that waits for work on a futex.
    ParkedOnFutex { key: FutexKey, class: u32, adopt: Adopt },
    /// A loop that is in the middle of a turn.
    Stuck(Box<Stuck>),
    /// Nothing that concerns us.
    Nothing,
}

/// A loop thread found asleep inside a turn, or running.
#[derive(Debug)]
pub(super) struct Stuck {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// The turn began then or earlier.
    pub(super) start_ns: u64,
    pub(super) adopt: Adopt,
    asleep_in: Option<(Cause, i32)>,
    regs: UserRegs,
    stack: Walked,
    kernel: Vec<String>,
}

/// Bytes of the stack that are read from outside.
const STACK_BYTES: usize = 64 << 10;
/// `__TASK_STOPPED | __TASK_TRACED`
pub(super) const STOPPED: u32 = 0x4 | 0x8;

/// Decides what a thread was doing. `lone_main` says that no other thread of its process is known
/// to be parked, so that a busy main thread of a process with an epoll instance must be the loop.
pub(super) fn judge(pipeline: &mut Pipeline, seen: &SnapshotEvent, lone_main: bool) -> Found {
    let SnapshotEvent { tgid: pid, tid, time_ns, .. } = *seen;
    let asleep = seen.state != 0;
    let nr = seen.regs.syscall();
    // Who is stopped does not wait for work, wherever it was.
    let stopped = seen.state & STOPPED != 0;
    if asleep && !stopped && park_class(nr) == PARK_EPOLL {
        let nr = PARK_EPOLL as i32;
        return Found::Parked { adopt: Adopt { start_ns: time_ns, cause: ADOPT_PARKED, nr } };
    }
    if asleep && !stopped && park_class(nr) == PARK_POLL && !proc::has_epoll(pid) {
        let nr = PARK_POLL as i32;
        return Found::Polling { adopt: Adopt { start_ns: time_ns, cause: ADOPT_PARKED, nr } };
    }
    let process = pipeline.processes.get(pid, &mut pipeline.symbolizer);
    let tokio = process.runtime.runtime == Runtime::Tokio;
    let parks_in_futex = process.runtime.parks_in_futex;
    let main_is_loop = (lone_main && tid == pid) || (stopped && park_class(nr) == PARK_EPOLL);
    if !parks_in_futex && !main_is_loop {
        return Found::Nothing;
    }
    let waits_for_lock = is_futex(nr)
        && process.python.as_ref().is_some_and(|python| python.is_lock(seen.regs.arg0()));
    if !asleep || waits_for_lock {
        // Its registers are in motion; if it stays on the CPU, its ticks will tell. Who waits for an
        // interpreter's lock wakes every few milliseconds to ask for it.
        let adopt = Adopt { start_ns: time_ns, cause: ADOPT_RUNNING, nr: -1 };
        return if main_is_loop && !tokio {
            Found::Stuck(Box::new(Stuck {
                pid,
                tid,
                start_ns: time_ns,
                adopt,
                asleep_in: None,
                regs: seen.regs,
                stack: empty_stack(),
                kernel: Vec::new(),
            }))
        } else {
            Found::Nothing
        };
    }
    let user = read_stack(pipeline, pid, &seen.regs);
    let in_futex = parks_in_futex && is_futex(nr) && !stopped;
    if in_futex && pipeline.classify(pid, &user) == FutexUse::Park {
        let key = FutexKey { address: seen.regs.arg0(), tgid: pid, tid };
        let nr = PARK_FUTEX as i32;
        let adopt = Adopt { start_ns: time_ns, cause: ADOPT_PARKED, nr };
        return Found::ParkedOnFutex { key, class: FUTEX_PARK, adopt };
    }
    let in_loop =
        if tokio { is_worker(&pipeline.runtime_frames(pid, &user)) } else { main_is_loop };
    if !in_loop {
        return Found::Nothing;
    }
    let (number, cause_of) = if stopped {
        (cause::STOPPED, Cause::Stopped)
    } else if nr < 0 {
        (cause::FAULT, Cause::Fault)
    } else if is_futex(nr) {
        (cause::LOCK, Cause::Lock)
    } else {
        (cause::SYSCALL, Cause::Syscall)
    };
    let nr = if number == cause::SYSCALL || number == cause::LOCK { nr as i32 } else { -1 };
    let start_ns = time_ns.saturating_sub(seen.idle_ns);
    Found::Stuck(Box::new(Stuck {
        pid,
        tid,
        start_ns,
        adopt: Adopt { start_ns, cause: u32::from(number), nr },
        asleep_in: Some((cause_of, nr)),
        regs: seen.regs,
        stack: Walked { user, kernel: Vec::new(), python: pipeline.python_of_sleeping(pid, tid) },
        kernel: proc::kernel_stack(pid, tid),
    }))
}

fn empty_stack() -> Walked {
    let user = UnwoundStack { frames: Vec::new(), end: StackEnd::MemoryNotCaptured };
    Walked { user, kernel: Vec::new(), python: None }
}

/// The stack of a thread that is asleep with these registers, read from outside.
pub(super) fn read_stack(pipeline: &mut Pipeline, pid: u32, regs: &UserRegs) -> UnwoundStack {
    let base = regs.sp().saturating_sub(128) & !7;
    let copy = StackCopy::new(base, blocked::memory(pid, base, STACK_BYTES));
    let mut user = pipeline.walk(pid, regs, &copy);
    if let Some(leaf) = user.frames.first_mut()
        && regs.syscall() >= 0
    {
        // Like a return address: the instruction pointer stands behind the system call.
        leaf.lookup = leaf.ip.wrapping_sub(1);
    }
    user
}

impl Stuck {
    /// The stall so far, while the thread has not moved.
    pub(super) fn so_far(&self, now_ns: u64) -> Option<RawStall<Walked>> {
        let (cause, nr) = self.asleep_in?;
        let duration_ns = now_ns.saturating_sub(self.start_ns);
        let mut ledger = Ledger::default();
        ledger.add(cause, duration_ns);
        let nr = (nr >= 0).then_some(nr);
        Some(RawStall {
            tgid: self.pid,
            tid: self.tid,
            start_ns: self.start_ns,
            duration_ns,
            ongoing: true,
            at_attach: true,
            exact: true,
            longest_ns: duration_ns,
            exited: false,
            ledger,
            kernel_share: None,
            ready_sockets: None,
            syscalls: nr
                .map(|nr| SleptIn { nr, count: 1, total_ns: duration_ns, max_ns: duration_ns })
                .into_iter()
                .collect(),
            stacks: vec![Captured {
                id: 0,
                cause,
                nr,
                total_ns: duration_ns,
                max_ns: duration_ns,
                count: 1,
                leaves: Vec::new(),
                stack: self.stack.clone(),
            }],
        })
    }

    /// The sleep in which it was found, while that lasts.
    pub(super) fn sleep(&self, now_ns: u64) -> Sleep {
        let Self { pid, tid, regs, .. } = *self;
        Sleep { pid, tid, regs, stack: 0, now_ns, slept_ns: now_ns.saturating_sub(self.start_ns) }
    }

    /// The stack that it slept in, for the turn's end: the kernel side has not captured it.
    pub(super) fn stack(&self) -> Option<(Cause, Option<i32>, Walked)> {
        let (cause, nr) = self.asleep_in?;
        Some((cause, (nr >= 0).then_some(nr), self.stack.clone()))
    }

    /// The kernel's frames of the sleep, innermost first.
    pub(super) fn kernel(&self) -> &[String] {
        &self.kernel
    }
}
