//! Joins the records of one turn: its captures and samples with its ledger.

use std::collections::HashMap;

use profiler_common::record::{FLAG_AT_ATTACH, FLAG_EXACT, FLAG_EXITED};
use profiler_common::turn::Turn;

use super::raw::{Captured, LeafUse, RawStall, SleptIn};
use super::{Cause, Ledger};

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
    pub fn leaf(&mut self, tid: u32, turn: u64, id: u32, leaf: LeafUse) {
        if let Some(known) = self.stacks(tid, turn).iter_mut().find(|stack| stack.id == id) {
            known.leaves.push(leaf);
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
            ready_sockets: if ongoing { None } else { turn.ready.checked_sub(1) },
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
        for leaf in &mut stack.leaves {
            leaf.weight_ns = scaled(leaf.weight_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::cause;
    use profiler_common::turn::{StackUse, SyscallUse, ThreadState};

    use super::*;

    const TID: u32 = 7;
    const TURN: u64 = 3;
    const START: u64 = 1_000;

    fn turn(ledger: &[(u8, u64)]) -> Turn {
        let mut turn = ThreadState::new(TID, TID).record.turn;
        (turn.number, turn.start_ns) = (TURN, START);
        for &(cause, ns) in ledger {
            turn.ledger[usize::from(cause)] = ns;
        }
        turn
    }

    /// Puts a stack into the turn's table.
    fn account(turn: &mut Turn, id: u32, total_ns: u64, max_ns: u64, count: u32) {
        let entry =
            StackUse { key: u64::from(id) + 1, id, total_ns, max_ns, count, ..Default::default() };
        turn.stacks[turn.stack_count as usize] = entry;
        turn.stack_count += 1;
    }

    fn captured(id: u32, cause: Cause, total_ns: u64) -> Captured<&'static str> {
        let stack = "as it was sent";
        Captured { id, cause, nr: None, total_ns, max_ns: 0, count: 1, leaves: Vec::new(), stack }
    }

    fn leaf(ip: u64, weight_ns: u64) -> LeafUse {
        LeafUse { ip, instr: 0, weight_ns }
    }

    fn ended(
        assembler: &mut Assembler<&'static str>,
        turn: &Turn,
        ns: u64,
    ) -> RawStall<&'static str> {
        assembler.ended(TID, TID, START + ns, FLAG_EXACT, turn)
    }

    #[test]
    fn what_the_ledger_does_not_explain_has_its_own_line() {
        let mut assembler = Assembler::default();
        let stall = ended(&mut assembler, &turn(&[(cause::SYSCALL, 60), (cause::CPU, 10)]), 100);
        assert_eq!((stall.duration_ns, stall.ledger.total()), (100, 100));
        assert_eq!(stall.ledger.get(Cause::Unexplained), 30);
        assert!(stall.exact && !stall.ongoing && !stall.at_attach && !stall.exited);
        assert!(stall.kernel_share.is_none(), "nothing was sampled");
    }

    #[test]
    fn a_stack_weighs_what_the_turns_table_says_at_its_end() {
        let mut assembler = Assembler::default();
        assembler.capture(TID, TURN, captured(0, Cause::Syscall, 20));
        assembler.capture(TID, TURN, captured(1, Cause::Lock, 5));
        let mut turn = turn(&[(cause::SYSCALL, 90), (cause::LOCK, 10)]);
        account(&mut turn, 0, 90, 70, 4);
        account(&mut turn, 1, 10, 10, 1);
        let stall = ended(&mut assembler, &turn, 100);
        let weights: Vec<_> =
            stall.stacks.iter().map(|s| (s.id, s.total_ns, s.max_ns, s.count)).collect();
        assert_eq!(weights, [(0, 90, 70, 4), (1, 10, 10, 1)], "heaviest first");
    }

    #[test]
    fn a_stack_that_had_to_leave_the_table_keeps_what_it_was_sent_with() {
        let mut assembler = Assembler::default();
        assembler.capture(TID, TURN, captured(0, Cause::Syscall, 20));
        let mut turn = turn(&[(cause::SYSCALL, 90)]);
        // Its place is free again, another one's is not.
        account(&mut turn, 0, 999, 999, 9);
        turn.stacks[0].key = 0;
        account(&mut turn, 5, 70, 70, 1);
        let stall = ended(&mut assembler, &turn, 90);
        assert_eq!((stall.stacks.len(), stall.stacks[0].total_ns), (1, 20));
    }

    #[test]
    fn entries_behind_the_used_ones_do_not_count() {
        let mut assembler = Assembler::default();
        assembler.capture(TID, TURN, captured(0, Cause::Syscall, 20));
        let mut turn = turn(&[(cause::SYSCALL, 90)]);
        account(&mut turn, 0, 80, 80, 1);
        turn.stack_count = 0;
        turn.syscalls[0] = SyscallUse { total_ns: 80, max_ns: 80, nr: 35, count: 1 };
        let stall = ended(&mut assembler, &turn, 90);
        assert_eq!(stall.stacks[0].total_ns, 20);
        assert!(stall.syscalls.is_empty());
        // A number that no table has room for reads what there is.
        (turn.stack_count, turn.syscall_count) = (u32::MAX, u32::MAX);
        assert!(!ended(&mut assembler, &turn, 90).syscalls.is_empty());
    }

    #[test]
    fn samples_share_the_exact_cpu_time_out_with_their_leaves() {
        let mut assembler = Assembler::default();
        // Samples stand for 40, three quarters of them in the first stack; the ledger says 80.
        assembler.capture(TID, TURN, captured(0, Cause::Cpu, 10));
        assembler.leaf(TID, TURN, 0, leaf(0x10, 12));
        assembler.leaf(TID, TURN, 0, leaf(0x20, 8));
        assembler.leaf(TID, TURN, 9, leaf(0x30, 100));
        assembler.capture(TID, TURN, captured(1, Cause::Cpu, 10));
        assembler.capture(TID, TURN, captured(2, Cause::Syscall, 20));
        let mut turn = turn(&[(cause::CPU, 80), (cause::SYSCALL, 20)]);
        account(&mut turn, 0, 30, 0, 3);
        (turn.sampled_ns, turn.sampled_kernel_ns) = (40, 10);
        let stall = ended(&mut assembler, &turn, 100);
        let weights: Vec<_> = stall.stacks.iter().map(|s| (s.id, s.total_ns)).collect();
        assert_eq!(weights, [(0, 60), (1, 20), (2, 20)], "sleeps are exact and stay as they are");
        assert_eq!(stall.stacks[0].leaves, [leaf(0x10, 24), leaf(0x20, 16)]);
        assert_eq!(stall.kernel_share, Some(0.25));
    }

    #[test]
    fn scaling_never_gives_more_than_the_ledger_has() {
        for (cpu, weights) in [(100, [33, 33, 35]), (7, [1 << 50, 1, 3]), (1 << 55, [1, 1, 1])] {
            let mut stacks = weights.map(|ns| captured(0, Cause::Cpu, ns));
            share_cpu(&mut stacks, cpu);
            let total: u64 = stacks.iter().map(|stack| stack.total_ns).sum();
            assert!(total <= cpu && cpu - total < 3, "{total} of {cpu}");
        }
        let mut unsampled = [captured(0, Cause::Cpu, 0)];
        share_cpu(&mut unsampled, 100);
        assert_eq!(unsampled[0].total_ns, 0);
    }

    #[test]
    fn captures_of_another_turn_are_not_mixed_in() {
        let mut assembler = Assembler::default();
        assembler.capture(TID, TURN - 1, captured(0, Cause::Syscall, 20));
        assert!(ended(&mut assembler, &turn(&[]), 100).stacks.is_empty());
        assembler.capture(TID, TURN - 1, captured(0, Cause::Syscall, 20));
        assembler.capture(TID, TURN, captured(1, Cause::Syscall, 30));
        let stall = ended(&mut assembler, &turn(&[(cause::SYSCALL, 30)]), 30);
        assert_eq!(stall.stacks.iter().map(|s| s.id).collect::<Vec<_>>(), [1]);
        assembler.capture(TID, TURN, captured(1, Cause::Syscall, 30));
        assembler.forget(TID);
        assert!(ended(&mut assembler, &turn(&[]), 100).stacks.is_empty());
    }

    #[test]
    fn an_ongoing_stall_has_sent_and_waiting_stacks_once_each_and_goes_on() {
        let mut assembler = Assembler::default();
        assembler.capture(TID, TURN, captured(0, Cause::Syscall, 20));
        let mut turn = turn(&[(cause::SYSCALL, 50)]);
        account(&mut turn, 0, 30, 30, 1);
        account(&mut turn, 1, 20, 20, 1);
        let waiting = || vec![captured(0, Cause::Syscall, 1), captured(1, Cause::Syscall, 1)];
        for now in [60, 90] {
            let stall = assembler.ongoing(TID, TID, START + now, FLAG_AT_ATTACH, &turn, waiting());
            assert!(stall.ongoing && stall.at_attach && !stall.exact);
            assert_eq!((stall.duration_ns, stall.ledger.total()), (now, now));
            let ids: Vec<_> = stall.stacks.iter().map(|s| (s.id, s.total_ns)).collect();
            assert_eq!(ids, [(0, 30), (1, 20)]);
        }
        // What waited was only borrowed: it is sent when the turn ends.
        let stall = ended(&mut assembler, &turn, 100);
        assert_eq!(stall.stacks.iter().map(|s| s.id).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn system_calls_come_longest_first() {
        let mut turn = turn(&[(cause::SYSCALL, 30)]);
        turn.syscalls[0] = SyscallUse { total_ns: 10, max_ns: 10, nr: 0, count: 1 };
        turn.syscalls[1] = SyscallUse { total_ns: 20, max_ns: 5, nr: 35, count: 6 };
        turn.syscall_count = 2;
        let stall = ended(&mut Assembler::default(), &turn, 30);
        let most = SleptIn { nr: 35, count: 6, total_ns: 20, max_ns: 5 };
        assert_eq!((stall.syscalls.len(), stall.syscalls[0]), (2, most));
    }
}
