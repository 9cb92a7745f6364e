//! The transitions: events in, segments and turns out.

use super::*;
use crate::record::{FLAG_EXACT, FLAG_EXITED};

impl ThreadState {
    /// The thread is switched out. Returns a turn that ended by it.
    ///
    /// The caller has set `off_entry` if it has a stack for this sleep.
    #[inline(always)]
    pub fn switch_out(&mut self, now: u64, off: Off, armed_since: u64) -> Option<Finished> {
        if self.guard != 0 {
            self.cpu = CPU_OFF_GUARDED;
            self.park_ns = now;
            return None;
        }
        self.close_cpu(now);
        self.cpu = CPU_OFF;
        match off {
            Off::Preempted => {
                self.off = OFF_PREEMPTED;
                None
            }
            Off::Sleep { cause, nr } => {
                self.off = OFF_SLEEP;
                self.off_cause = cause as u32;
                self.off_nr = nr;
                None
            }
            Off::Park(class) => {
                self.off = OFF_PARK;
                let finished = self.park(now, class, armed_since);
                self.phase = PHASE_PARKED;
                self.polling = 0;
                finished
            }
        }
    }

    /// Ends the turn that a sleeping park ends.
    #[inline(always)]
    pub(super) fn park(&mut self, now: u64, class: u32, armed_since: u64) -> Option<Finished> {
        if self.stats.since_ns == 0 {
            self.stats.since_ns = now;
        }
        if self.phase != PHASE_BUSY {
            self.park_ns = now;
            return None;
        }
        // Others than those in the mask (a futex) are not seen being entered: the last poll was not
        // this park.
        let started_at_poll = self.polling != 0
            && class & self.park_mask != 0
            && armed_since != 0
            && armed_since <= self.record.turn.start_ns;
        if started_at_poll {
            // The turn before ended when this park was entered, and nothing has run since.
            self.park_ns = self.record.turn.start_ns;
            None
        } else {
            self.park_ns = now;
            Some(self.finish(now, armed_since))
        }
    }

    /// A sleep turned out to be a park after all: user space has classified its futex meanwhile.
    /// Returns the turn that ended when the sleep began.
    #[inline(always)]
    pub fn sleep_was_park(&mut self, armed_since: u64) -> Option<Finished> {
        let at = self.mark_ns;
        let finished =
            if self.phase == PHASE_BUSY { Some(self.finish(at, armed_since)) } else { None };
        self.park_ns = at;
        self.off = OFF_PARK;
        self.phase = PHASE_PARKED;
        self.polling = 0;
        if self.stats.since_ns == 0 {
            self.stats.since_ns = at;
        }
        finished
    }

    /// The thread gets a CPU. Returns the sleep that ended, unless it was a park.
    #[inline(always)]
    pub fn switch_in(&mut self, now: u64) -> Option<Slept> {
        if self.cpu == CPU_OFF_GUARDED {
            self.gap_ns += now.saturating_sub(self.park_ns);
            self.cpu = CPU_ON;
            return None;
        }
        let was_off = self.cpu == CPU_OFF;
        self.cpu = CPU_ON;
        let mark = self.mark_ns;
        let woken = self.wake_ns;
        let woken_seen = woken != self.wake_seen_ns;
        self.wake_seen_ns = woken;
        self.mark_ns = now;
        self.gap_ns = 0;
        if !was_off {
            // Its switch-out was before we watched: nothing is known of the time until now.
            return None;
        }
        // A wake-up can be traced on another CPU just before this thread's own switch-out.
        let wake = if woken_seen { woken.max(mark).min(now) } else { now };
        if self.phase == PHASE_PARKED {
            self.stats.parked_ns += wake.saturating_sub(self.park_ns);
            self.begin(wake);
            self.waited_for_cpu(now.saturating_sub(wake));
            return None;
        }
        if self.phase != PHASE_BUSY {
            return None;
        }
        let away = now.saturating_sub(mark);
        if away > self.record.turn.longest_ns {
            self.record.turn.longest_ns = away;
        }
        if self.off == OFF_PREEMPTED {
            self.waited_for_cpu(now.saturating_sub(mark));
            return None;
        }
        let ns = wake.saturating_sub(mark);
        let cause = self.off_cause as u8;
        self.charge_sleep(cause, ns);
        self.waited_for_cpu(now.saturating_sub(wake));
        if self.off_nr >= 0 {
            self.count_syscall(self.off_nr, ns);
        }
        Some(Slept { cause, ns, wake_missed: !woken_seen })
    }

    /// When a thread that turns out to be running must have got the CPU: its switch-in was not
    /// traced, but the scheduler has charged it `exec_ns` of CPU time in all.
    #[inline(always)]
    #[must_use]
    pub const fn unseen_switch_in(&self, now: u64, exec_ns: u64) -> u64 {
        let away = now.saturating_sub(self.mark_ns);
        let ran = exec_ns.saturating_sub(self.exec_ns);
        now.saturating_sub(if ran < away { ran } else { away })
    }

    /// Another thread wakes this one.
    #[inline(always)]
    pub fn wake(&mut self, now: u64) {
        self.wake_ns = now;
    }

    /// Sets or clears the guard: a tick or a preemption may interrupt the work on a park that is
    /// entered, and then leaves the state alone. The caller puts a call that the compiler can't
    /// see through between this and its other accesses.
    #[inline(always)]
    pub fn set_guard(&mut self, on: bool) {
        // SAFETY: a valid reference; volatile so that the store is not merged with another.
        unsafe { core::ptr::write_volatile(&raw mut self.guard, u32::from(on)) };
    }

    /// The thread enters a park call: whether it will sleep is not known yet. Returns the turn
    /// that ended. The guard is set; call [`next_turn`](Self::next_turn) when the turn has been
    /// dealt with.
    #[inline(always)]
    pub fn enter_park(&mut self, now: u64, armed_since: u64) -> Option<Finished> {
        let finished = match self.phase {
            PHASE_BUSY => {
                self.close_cpu(now);
                Some(self.finish(now, armed_since))
            }
            _ => {
                self.gap_ns = 0;
                None
            }
        };
        self.mark_ns = now;
        finished
    }

    /// Begins the turn of a task after [`enter_park`](Self::enter_park).
    #[inline(always)]
    pub fn next_task(&mut self, now: u64) {
        self.next_turn(now);
        self.polling = 0;
    }

    /// Begins the next turn after [`enter_park`](Self::enter_park).
    #[inline(always)]
    pub fn next_turn(&mut self, now: u64) {
        self.begin(now);
        self.cpu = CPU_ON;
        self.polling = 1;
    }

    /// The thread exits; returns its unfinished turn.
    #[inline(always)]
    pub fn exit(&mut self, now: u64, armed_since: u64) -> Option<Finished> {
        if self.phase != PHASE_BUSY {
            return None;
        }
        self.close_cpu(now);
        let finished = self.finish(now, armed_since);
        self.phase = PHASE_UNKNOWN;
        self.record.header.flags |= FLAG_EXITED;
        Some(finished)
    }

    /// Charges the segment that is still open, up to `now`: for a copy of the state that is read
    /// while the turn lasts.
    pub fn settle(&mut self, now: u64) {
        if self.is_off() {
            if self.wake_ns <= self.mark_ns {
                // Left over from before this sleep, which lasts.
                self.wake_seen_ns = self.wake_ns;
            }
            let entry = self.off_entry;
            if let Some(slept) = self.switch_in(now) {
                self.weigh(entry, slept.ns);
            }
        }
        self.close_cpu(now);
    }

    #[inline(always)]
    pub(super) fn begin(&mut self, start_ns: u64) {
        if self.stats.since_ns == 0 {
            self.stats.since_ns = start_ns;
        }
        let turn = &mut self.record.turn;
        turn.number += 1;
        turn.start_ns = start_ns;
        turn.ledger = [0; cause::COUNT];
        turn.sampled_ns = 0;
        turn.longest_ns = 0;
        turn.sampled_kernel_ns = 0;
        turn.last_sample_ns = 0;
        turn.last_sent_ns = 0;
        turn.stack_count = 0;
        turn.syscall_count = 0;
        turn.next_id = 0;
        turn.open = 0;
        turn.other_sleeps = 0;
        turn.owners = [NO_ENTRY; BUFFERS as usize];
        self.turn_flags = 0;
        self.off_entry = NO_ENTRY;
        self.phase = PHASE_BUSY;
    }

    /// Charges the open CPU segment; a gap inside it was spent on the run queue.
    #[inline(always)]
    pub(super) fn close_cpu(&mut self, now: u64) {
        if self.cpu == CPU_ON && self.phase == PHASE_BUSY {
            let span = now.saturating_sub(self.mark_ns);
            let gap = if self.gap_ns < span { self.gap_ns } else { span };
            self.charge(cause::CPU, span - gap);
            self.charge(cause::RUNQUEUE, gap);
        }
        self.mark_ns = now;
        self.gap_ns = 0;
    }

    /// Charges a cause that is not known when this is compiled. Before Linux 5.12 the verifier forgets
    /// that a number was checked once it was put aside: the mask stands right before the use.
    #[inline(always)]
    fn charge_sleep(&mut self, cause: u8, ns: u64) {
        if usize::from(cause) >= cause::COUNT {
            return;
        }
        // SAFETY: valid references; volatile so that the compiler can't know that the mask does
        // nothing.
        let index = unsafe {
            core::ptr::write_volatile(&raw mut self.search, u32::from(cause));
            core::ptr::read_volatile(&raw const self.search) as usize & 15
        };
        // SAFETY: below the number of causes, as was checked.
        unsafe { *self.record.turn.ledger.as_mut_ptr().add(index) += ns };
    }

    /// Charges a wait for a CPU; as much of it as its groups were throttled was not the queue's.
    #[inline(always)]
    fn waited_for_cpu(&mut self, ns: u64) {
        let throttled = if self.throttled_ns < ns { self.throttled_ns } else { ns };
        self.charge(cause::THROTTLED, throttled);
        self.charge(cause::RUNQUEUE, ns - throttled);
        self.waited_ns = ns - throttled;
        self.throttled_ns = 0;
    }

    #[inline(always)]
    pub(super) fn charge(&mut self, cause: u8, ns: u64) {
        let index = cause as usize;
        if index < cause::COUNT {
            self.record.turn.ledger[index] += ns;
        }
    }

    /// Ends the turn at `end` (all segments are closed up to there).
    #[inline(always)]
    pub(super) fn finish(&mut self, end: u64, armed_since: u64) -> Finished {
        let turn = &mut self.record.turn;
        let ns = end.saturating_sub(turn.start_ns);
        let mut explained = 0;
        for spent in turn.ledger {
            explained += spent;
        }
        turn.ledger[cause::UNEXPLAINED as usize] += ns.saturating_sub(explained);
        for (total, spent) in self.stats.ledger.iter_mut().zip(turn.ledger) {
            *total += spent;
        }
        self.stats.turns += 1;
        self.stats.busy_ns += ns;
        let exact = armed_since != 0 && armed_since <= turn.start_ns;
        self.record.header.flags = self.turn_flags | if exact { FLAG_EXACT } else { 0 };
        self.record.header.time_ns = end;
        Finished { ns, end_ns: end }
    }

    /// Takes note of the length of a turn that ended.
    #[inline(always)]
    pub fn count_length(&mut self, ns: u64) {
        if ns > self.stats.max_ns {
            self.stats.max_ns = ns;
        }
    }

    #[inline(always)]
    pub(super) fn count_syscall(&mut self, nr: i32, ns: u64) {
        let turn = &mut self.record.turn;
        for index in 0..SYSCALLS {
            let entry = &mut turn.syscalls[index];
            if index as u32 >= turn.syscall_count {
                *entry = SyscallUse { total_ns: ns, max_ns: ns, nr, count: 1 };
                turn.syscall_count = index as u32 + 1;
                return;
            }
            if entry.nr == nr {
                entry.total_ns += ns;
                entry.count += 1;
                if ns > entry.max_ns {
                    entry.max_ns = ns;
                }
                return;
            }
        }
        turn.other_sleeps += 1;
    }
}
