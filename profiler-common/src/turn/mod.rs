//! The state machine of a turn: scheduler events in, ledger out.
//!
//! A thread's own events (switched out, switched in, park entered, tick) never run concurrently
//! with each other, so they alone write the state. The one event that others cause, the wake-up,
//! writes only [`ThreadState::wake_ns`]; it is evaluated at the switch-in.
//!
//! Every segment begins at the timestamp at which the one before it ended, so that the causes of
//! a turn sum to its duration exactly.

mod found;
mod machine;
mod samples;

use crate::arch::UserRegs;
use crate::capture::BUFFERS;
use crate::cause;
use crate::record::TurnRecord;

/// Parks that only an event loop makes: epoll and waiting io_uring calls.
pub const PARK_EPOLL: u32 = 1;
/// Parks that blocking code makes too: poll and select. Only after a thread proved to be a loop.
pub const PARK_POLL: u32 = 2;
/// Futex waits of a runtime's parker.
pub const PARK_FUTEX: u32 = 4;

/// Futex waits in which a thread that was a worker is one no more.
pub const PARK_IDLE: u32 = 8;

/// Stacks a turn has room for: a power of two, so that the verifier sees masked indexes in bounds.
pub const STACKS: usize = 32;
/// Kinds of system calls a turn has room for.
pub const SYSCALLS: usize = 8;
/// Wake-ups that end a poll park are believed to be a loop's after this many from one place.
pub const POLL_PROOF: u32 = 3;

/// Periods after which a tick is so late that the CPU can't have run meanwhile.
const LATE_PERIODS: u64 = 3;

/// No capture buffer.
pub const NO_BUFFER: u32 = u32::MAX;
/// No entry of a turn's tables.
pub const NO_ENTRY: u32 = u32::MAX;

/// What a thread is doing, as far as its events tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// It has not parked yet: not known to run a loop.
    Unknown = 0,
    /// In a turn.
    Busy = 1,
    /// Waiting for work.
    Parked = 2,
}

const PHASE_UNKNOWN: u32 = Phase::Unknown as u32;
const PHASE_BUSY: u32 = Phase::Busy as u32;
const PHASE_PARKED: u32 = Phase::Parked as u32;

// 0: not known.
const CPU_ON: u32 = 1;
const CPU_OFF: u32 = 2;
/// Preempted in the middle of `park_enter`.
const CPU_OFF_GUARDED: u32 = 3;

/// Why a thread was switched out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// Still runnable.
    Preempted,
    /// Asleep in a park of this class.
    Park(u32),
    /// Asleep for another reason.
    Sleep {
        /// The cause it counts for.
        cause: u8,
        /// System call, negative if none.
        nr: i32,
    },
}

const OFF_PREEMPTED: u32 = 0;
const OFF_PARK: u32 = 1;
const OFF_SLEEP: u32 = 2;

/// A kind of system call that slept in a turn.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyscallUse {
    /// Time asleep in it.
    pub total_ns: u64,
    /// Longest sleep.
    pub max_ns: u64,
    /// The call.
    pub nr: i32,
    /// Number of sleeps; 0 marks a free entry.
    pub count: u32,
}

/// A stack of a turn and what it accounts for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackUse {
    /// Hash of what identifies the stack.
    pub key: u64,
    /// Time asleep in it, or CPU time up to its samples.
    pub total_ns: u64,
    /// Longest sleep.
    pub max_ns: u64,
    /// Sleeps, or samples.
    pub count: u32,
    /// Its number, unique in the turn: joins it with its capture.
    pub id: u32,
    /// A cause.
    pub cause: u32,
    /// System call, negative if none.
    pub nr: i32,
    /// Buffer that holds its capture until it is sent; [`NO_BUFFER`] afterwards.
    pub buffer: u32,
    /// Explicit padding.
    pub reserved: u32,
}

impl StackUse {
    const ZERO: Self = Self {
        key: 0,
        total_ns: 0,
        max_ns: 0,
        count: 0,
        id: 0,
        cause: 0,
        nr: 0,
        buffer: 0,
        reserved: 0,
    };

    #[inline(always)]
    const fn new(key: u64, cause: u8, nr: i32, id: u32) -> Self {
        Self { key, cause: cause as u32, nr, id, buffer: NO_BUFFER, ..Self::ZERO }
    }
}

/// One turn.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Its number, unique in the thread.
    pub number: u64,
    /// When it began (`CLOCK_MONOTONIC`).
    pub start_ns: u64,
    /// Nanoseconds by cause.
    pub ledger: [u64; cause::COUNT],
    /// CPU time that samples stand for.
    pub sampled_ns: u64,
    /// The part of it that was sampled in the kernel.
    pub sampled_kernel_ns: u64,
    /// Longest single stretch off the CPU.
    pub longest_ns: u64,
    /// Time of the last sample.
    pub last_sample_ns: u64,
    /// Time of the last capture that was sent.
    pub last_sent_ns: u64,
    /// Used entries of `stacks`.
    pub stack_count: u32,
    /// Used entries of `syscalls`.
    pub syscall_count: u32,
    /// Number for the next stack.
    pub next_id: u32,
    /// Non-zero: it is known to be a stall, captures are sent as they are made.
    pub open: u32,
    /// Threads' sleeps that found the table of system calls full.
    pub other_sleeps: u32,
    /// Sockets that were ready when it ended, plus one; 0 if that is not known. Of stalls only.
    pub ready: u32,
    /// Which stack's capture waits in each buffer; [`NO_ENTRY`] if none does.
    pub owners: [u32; BUFFERS as usize],
    /// Stacks, in the order in which they were first seen (an evicted one leaves its place).
    pub stacks: [StackUse; STACKS],
    /// System calls that slept.
    pub syscalls: [SyscallUse; SYSCALLS],
}

/// What a loop did since it was found.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopStats {
    /// When it was found.
    pub since_ns: u64,
    /// Turns that ended.
    pub turns: u64,
    /// Time in them.
    pub busy_ns: u64,
    /// Time parked.
    pub parked_ns: u64,
    /// Longest turn.
    pub max_ns: u64,
    /// Turns over the threshold.
    pub stalls: u64,
    /// Time in them.
    pub stalled_ns: u64,
    /// Busy time by cause.
    pub ledger: [u64; cause::COUNT],
}

/// Everything the kernel side knows of a watched thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadState {
    /// Odd while the thread's own event is changing the state: readers retry.
    pub version: u64,
    /// When another thread last woke this one.
    pub wake_ns: u64,
    /// The last wake-up that was evaluated.
    pub wake_seen_ns: u64,
    /// Beginning of the open segment.
    pub mark_ns: u64,
    /// Time preempted inside `park_enter` since `mark_ns`.
    pub gap_ns: u64,
    /// Beginning of the park, or of the last poll.
    pub park_ns: u64,
    /// CPU time of the thread by the scheduler's account when it was last switched out.
    pub exec_ns: u64,
    /// Time of the last tick.
    pub tick_ns: u64,
    /// Address of the futex the thread sleeps on.
    pub futex: u64,
    /// How long its groups were out of CPU quota since it was ready to run: set by the caller
    /// before a switch-in.
    pub throttled_ns: u64,
    /// Its last wait for a CPU, the throttled part left out.
    pub waited_ns: u64,
    /// User registers at the last switch-out: they would take a third of a program's stack.
    pub regs: UserRegs,
    /// A `task_struct`'s address, put aside to be a number to the verifier.
    pub task: u64,
    /// Stack pointer of the last sleeping `poll`, to recognise a loop by.
    pub poll_sp: u64,
    /// Instruction pointer of the last sleeping `poll`.
    pub poll_ip: u64,
    /// [`Phase`].
    pub phase: u32,
    /// On a CPU or not.
    pub cpu: u32,
    /// Why it is off.
    pub off: u32,
    /// Cause that the time off the CPU counts for.
    pub off_cause: u32,
    /// System call it sleeps in.
    pub off_nr: i32,
    /// Entry of `stacks` for this sleep.
    pub off_entry: u32,
    /// Non-zero while `park_enter` works on the state.
    pub guard: u32,
    /// Non-zero: the last boundary was a poll, and the thread has not slept in a park since.
    pub polling: u32,
    /// Parks that end this thread's turns.
    pub park_mask: u32,
    /// Consecutive sleeping polls from the same place.
    pub poll_same: u32,
    /// Sleeps in a futex before the thread was known as a loop.
    pub futex_sleeps: u32,
    /// Index of captures and histogram plus one; 0 if there is none.
    pub slot: u32,
    /// The buffer that the next capture goes to.
    pub spare: u32,
    /// Turn flags: see `record`.
    pub turn_flags: u32,
    /// Scratch of a search.
    pub search: u32,
    /// Non-zero: user space was told that this is a loop.
    pub announced: u32,
    /// One more than the epoll instance or the ring that it parks in
    /// ([`park_place`](crate::arch::UserRegs::park_place)); 0 if that is not known.
    pub home: u32,
    /// Non-zero: it has waited for another one.
    pub strange: u32,
    /// Statistics.
    pub stats: LoopStats,
    /// The current turn behind a record header, sent as it lies here.
    pub record: TurnRecord,
}

/// A stack's place in its turn's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackEntry {
    /// Index in the table, or [`NO_ENTRY`].
    pub index: u32,
    /// Whether it was not there before.
    pub new: bool,
    /// Whether another stack had to go.
    pub evicted: bool,
}

/// A sleep that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slept {
    /// What it counted for.
    pub cause: u8,
    /// How long.
    pub ns: u64,
    /// Whether the wake-up was not seen.
    pub wake_missed: bool,
}

/// A turn that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its duration.
    pub ns: u64,
    /// Its end.
    pub end_ns: u64,
}

impl ThreadState {
    /// The state of a thread nothing is known of.
    #[must_use]
    pub fn new(tgid: u32, tid: u32) -> Self {
        // SAFETY: every field is an integer or an array of integers, for which zero is valid.
        let mut state: Self = unsafe { core::mem::zeroed() };
        state.record.header.tgid = tgid;
        state.record.header.tid = tid;
        state.park_mask = PARK_EPOLL;
        state
    }

    /// The phase as a number another program may have written.
    #[inline(always)]
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.phase {
            PHASE_BUSY => Phase::Busy,
            PHASE_PARKED => Phase::Parked,
            _ => Phase::Unknown,
        }
    }

    /// Whether the thread is off the CPU for a sleep (not merely preempted).
    #[must_use]
    pub const fn is_asleep(&self) -> bool {
        self.cpu == CPU_OFF && self.off != OFF_PREEMPTED
    }

    /// Whether the thread is off the CPU.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.cpu == CPU_OFF || self.cpu == CPU_OFF_GUARDED
    }

    /// Age of the current turn; 0 outside a turn.
    #[inline(always)]
    #[must_use]
    pub const fn age(&self, now: u64) -> u64 {
        if self.phase == PHASE_BUSY { now.saturating_sub(self.record.turn.start_ns) } else { 0 }
    }
}

const _: () = {
    assert!(size_of::<SyscallUse>() == 24);
    assert!(size_of::<StackUse>() == 48);
    assert!(size_of::<Turn>() == 56 + cause::COUNT * 8 + 24 + 16 + STACKS * 48 + SYSCALLS * 24);
    assert!(size_of::<LoopStats>() == 56 + cause::COUNT * 8);
};
