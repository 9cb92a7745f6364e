//! A stall, before its stacks have names.

use super::{Cause, Ledger};

/// A stack as it arrives, `S` being what the reader of the stack copy made of it.
#[derive(Debug, Clone)]
pub struct Captured<S> {
    /// Number of the stack in its turn.
    pub id: u32,
    /// What the thread was doing.
    pub cause: Cause,
    /// System call, if it was in one.
    pub nr: Option<i32>,
    /// What it accounts for.
    pub total_ns: u64,
    /// Longest single sleep in it; 0 for samples.
    pub max_ns: u64,
    /// Sleeps or samples.
    pub count: u32,
    /// Samples that differ from the stack in their innermost place only.
    pub leaves: Vec<LeafUse>,
    /// The stack.
    pub stack: S,
}

/// A sample that differs from its stack in its innermost place only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafUse {
    /// Instruction pointer.
    pub ip: u64,
    /// The interpreter's instruction.
    pub instr: u32,
    /// CPU time that it stands for.
    pub weight_ns: u64,
}

/// A system call that slept in a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleptIn {
    /// The call.
    pub nr: i32,
    /// Sleeps.
    pub count: u32,
    /// Time asleep.
    pub total_ns: u64,
    /// Longest sleep.
    pub max_ns: u64,
}

/// A stall, before its stacks have names.
#[derive(Debug, Clone)]
pub struct RawStall<S> {
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// When the turn began (`CLOCK_MONOTONIC`).
    pub start_ns: u64,
    /// How long it was, or has been so far.
    pub duration_ns: u64,
    /// Whether it still lasts.
    pub ongoing: bool,
    /// Whether it began before stallscope attached.
    pub at_attach: bool,
    /// Whether every poll of the thread was seen meanwhile.
    pub exact: bool,
    /// Longest single stretch off the CPU: that much surely is one turn.
    pub longest_ns: u64,
    /// Whether the thread exited in it.
    pub exited: bool,
    /// The duration by cause; sums to `duration_ns`.
    pub ledger: Ledger,
    /// Share of samples in the kernel; `None` without samples.
    pub kernel_share: Option<f64>,
    /// Sockets that were ready when it ended, if that is known.
    pub ready_sockets: Option<u32>,
    /// System calls that slept, longest total first.
    pub syscalls: Vec<SleptIn>,
    /// Stacks, heaviest first.
    pub stacks: Vec<Captured<S>>,
}
