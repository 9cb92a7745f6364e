//! Joins the records of one turn: its captures and samples with its ledger.

use std::collections::HashMap;

use profiler_common::record::{FLAG_AT_ATTACH, FLAG_EXACT, FLAG_EXITED};
use profiler_common::turn::Turn;

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
    /// Samples that differ from the stack in their innermost address only: address and weight.
    pub leaves: Vec<(u64, u64)>,
    /// The stack.
    pub stack: S,
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
    /// System calls that slept, longest total first.
    pub syscalls: Vec<SleptIn>,
    /// Stacks, heaviest first.
    pub stacks: Vec<Captured<S>>,
}

/// Joins records by thread and turn.
#[derive(Debug)]
pub struct Assembler<S> {
    turns: HashMap<u32, (u64, Vec<Captured<S>>)>,
}

impl<S> Default for Assembler<S> {
    fn default() -> Self {
        Self { turns: HashMap::new() }
    }
}

impl<S: Clone> Assembler<S> {
    fn stacks(&mut self, tid: u32, turn: u64) -> &mut Vec<Captured<S>> {
        let entry = self.turns.entry(tid).or_insert_with(|| (turn, Vec::new()));
        if entry.0 != turn {
            *entry = (turn, Vec::new());
        }
        &mut entry.1
    }

    /// A stack of a turn that is a stall.
    pub fn capture(&mut self, tid: u32, turn: u64, captured: Captured<S>) {
        self.stacks(tid, turn).push(captured);
    }

    /// A sample whose stack is known.
    pub fn leaf(&mut self, tid: u32, turn: u64, id: u32, ip: u64, weight_ns: u64) {
        if let Some(known) = self.stacks(tid, turn).iter_mut().find(|stack| stack.id == id) {
            known.leaves.push((ip, weight_ns));
        }
    }

    /// Forgets a thread.
    pub fn forget(&mut self, tid: u32) {
        self.turns.remove(&tid);
    }

    /// A stall has ended.
    pub fn ended(
        &mut self,
        tgid: u32,
        tid: u32,
        end_ns: u64,
        flags: u32,
        turn: &Turn,
    ) -> RawStall<S> {
        let stacks = match self.turns.remove(&tid) {
            Some((number, stacks)) if number == turn.number => stacks,
            _ => Vec::new(),
        };
        Self::stall(tgid, tid, end_ns, flags, turn, stacks, false)
    }

    /// A stall still lasts. `open` is the segment that has not been charged yet; `waiting` are
    /// stacks that the kernel side has not sent.
    pub fn ongoing(
        &mut self,
        tgid: u32,
        tid: u32,
        now_ns: u64,
        flags: u32,
        turn: &Turn,
        waiting: Vec<Captured<S>>,
    ) -> RawStall<S> {
        let mut stacks = self.stacks(tid, turn.number).clone();
        for stack in waiting {
            if !stacks.iter().any(|known| known.id == stack.id) {
                stacks.push(stack);
            }
        }
        Self::stall(tgid, tid, now_ns, flags, turn, stacks, true)
    }

    fn stall(
        tgid: u32,
        tid: u32,
        end_ns: u64,
        flags: u32,
        turn: &Turn,
        mut stacks: Vec<Captured<S>>,
        ongoing: bool,
    ) -> RawStall<S> {
        let duration_ns = end_ns.saturating_sub(turn.start_ns);
        let mut ledger = Ledger::new(turn.ledger);
        let missing = duration_ns.saturating_sub(ledger.total());
        ledger.add(Cause::Unexplained, missing);
        let used = (turn.stack_count as usize).min(turn.stacks.len());
        for stack in &mut stacks {
            // The turn's table knows the final weight, unless the stack had to leave it.
            if let Some(known) = turn.stacks[..used].iter().find(|e| e.key != 0 && e.id == stack.id)
            {
                stack.total_ns = stack.total_ns.max(known.total_ns);
                stack.max_ns = stack.max_ns.max(known.max_ns);
                stack.count = stack.count.max(known.count);
            }
        }
        share_cpu(&mut stacks, ledger.get(Cause::Cpu));
        stacks.sort_by_key(|stack| std::cmp::Reverse(stack.total_ns));
        let used = (turn.syscall_count as usize).min(turn.syscalls.len());
        let mut syscalls: Vec<_> = turn.syscalls[..used]
            .iter()
            .map(|s| SleptIn { nr: s.nr, count: s.count, total_ns: s.total_ns, max_ns: s.max_ns })
            .collect();
        syscalls.sort_by_key(|slept| std::cmp::Reverse(slept.total_ns));
        RawStall {
            tgid,
            tid,
            start_ns: turn.start_ns,
            duration_ns,
            ongoing,
            at_attach: flags & FLAG_AT_ATTACH != 0,
            exact: flags & FLAG_EXACT != 0,
            longest_ns: turn.longest_ns,
            exited: flags & FLAG_EXITED != 0,
            ledger,
            kernel_share: (turn.sampled_ns > 0)
                .then(|| turn.sampled_kernel_ns as f64 / turn.sampled_ns as f64),
            syscalls,
            stacks,
        }
    }
}

/// Shares the exact CPU time out to the sampled stacks: samples only rank code inside it.
fn share_cpu<S>(stacks: &mut [Captured<S>], cpu_ns: u64) {
    let sampled: u64 = stacks.iter().filter(|s| s.cause == Cause::Cpu).map(|s| s.total_ns).sum();
    if sampled == 0 {
        return;
    }
    let scaled = |ns: u64| {
        let share = u128::from(ns) * u128::from(cpu_ns) / u128::from(sampled);
        u64::try_from(share).unwrap_or(u64::MAX)
    };
    for stack in stacks.iter_mut().filter(|s| s.cause == Cause::Cpu) {
        stack.total_ns = scaled(stack.total_ns);
        for (_, weight) in &mut stack.leaves {
            *weight = scaled(*weight);
        }
    }
}
