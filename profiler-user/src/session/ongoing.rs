//! Stalls that still last.

use std::collections::HashMap;

use profiler_common::arch::UserRegs;
use profiler_common::capture::BUFFERS;
use profiler_common::record::{FLAG_EXACT, FLAG_PYTHON};
use profiler_common::turn::{NO_ENTRY, Phase, ThreadState};

use super::asked::{Asked, Sleep};
use super::watch::WatchError;
use super::watcher::Watcher;
use crate::attach::Kernel;
use crate::events::{CaptureEvent, PythonEvent, TurnEvent, monotonic_ns};

/// A stall is reported as ongoing from this age on, then at twice the age each time.
const FIRST_ONGOING_NS: u64 = 1_000_000_000;
/// So long after the attaching whatever lasts is told of, however young: people wait for a first word,
/// and the turn that was found may have ended before there was something to say of it.
const FIRST_LOOK_NS: u64 = 200_000_000;

impl Watcher<'_> {
    /// Tells of a turn as the kernel side's state has it, up to `until`. `asked` is what is known of
    /// the sleep that goes on.
    pub(super) fn tell(
        &mut self,
        state: &ThreadState,
        until: u64,
        ongoing: bool,
        asked: Option<&Asked>,
    ) -> Result<(), WatchError> {
        let turn = state.record.turn;
        let waiting: Vec<CaptureEvent> = (0..BUFFERS)
            .filter(|&buffer| turn.owners[buffer as usize] != NO_ENTRY)
            .filter_map(|buffer| {
                let mut capture = self.waiting(state.slot, buffer)?;
                if !ongoing {
                    // The park that ended the turn carries no weight, and what its buffer says is of
                    // the capture that was in it before.
                    let entry = turn.stacks.get(turn.owners[buffer as usize] as usize)?;
                    (capture.total_ns, capture.count) = (entry.total_ns, entry.count);
                }
                Some(capture)
            })
            .filter(|capture| capture.turn == turn.number)
            .collect();
        let exact = self.armed && self.kernel.armed_since() <= turn.start_ns;
        let event = TurnEvent {
            tgid: state.record.header.tgid,
            tid: state.record.header.tid,
            end_ns: until,
            flags: state.turn_flags | if exact { FLAG_EXACT } else { 0 },
            turn,
        };
        if !ongoing && let Some(noted) = self.kernel.noted_waits(state.slot, turn.number) {
            self.pipeline.noted(event.tid, turn.number, &noted);
        }
        if let Some(stall) = self.pipeline.stall_of_state(&event, &waiting, ongoing, asked) {
            self.report(&stall)?;
        }
        Ok(())
    }

    /// A capture that has not been sent, with the interpreter's frames.
    fn waiting(&self, slot: u32, buffer: u32) -> Option<CaptureEvent> {
        let capture = self.kernel.waiting_capture(slot, buffer)?;
        let mut event = CaptureEvent::waiting(&capture).ok()?;
        if capture.head.header.flags & FLAG_PYTHON != 0 {
            let stack = self.kernel.waiting_python(slot, buffer)?;
            // Both are set when a capture is sent, which this one was not.
            let python =
                PythonEvent { turn: event.turn, id: event.id, ..PythonEvent::waiting(&stack) };
            event.python = Some(Box::new(python));
        }
        Some(event)
    }

    /// Asks what a thread that sleeps in a turn waits for.
    fn ask(&mut self, state: &ThreadState, now_ns: u64) -> Option<Asked> {
        let turn = &state.record.turn;
        let stack = turn.stacks.get(state.off_entry as usize)?.id;
        if !state.is_asleep() {
            return None;
        }
        let sleep = Sleep {
            pid: state.record.header.tgid,
            tid: state.record.header.tid,
            regs: state.regs,
            stack,
            now_ns,
            slept_ns: now_ns.saturating_sub(state.mark_ns),
        };
        self.ask_of(&sleep)
    }

    fn ask_of(&mut self, sleep: &Sleep) -> Option<Asked> {
        let faults = sleep.regs.syscall() < 0;
        let fault = if faults { self.kernel.fault(sleep.tid) } else { None };
        let regs_of = |tid| last_sleep(&self.kernel, &self.found_asleep, tid);
        self.pipeline.ask(sleep, &regs_of, fault.as_deref())
    }

    /// Tells of stalls that still last: after 1 s, 2 s, 4 s …, or all of them at the end.
    pub(super) fn report_ongoing(&mut self, all: bool) -> Result<(), WatchError> {
        self.report_stuck(self.ended_ns.unwrap_or_else(monotonic_ns), all)?;
        let tids: Vec<u32> = self.loops.keys().copied().collect();
        for tid in tids {
            let Some(mut state) = self.kernel.thread(tid) else { continue };
            // Telling of another stall takes a while: each has its own time.
            let now = self.now_of(&state);
            if state.phase() != Phase::Busy {
                continue;
            }
            let turn = state.record.turn;
            if self.kernel.is_parked(&state) {
                self.parked.answered(tid);
                continue;
            }
            let age = now.saturating_sub(turn.start_ns);
            let at_attach = state.turn_flags != 0;
            let Some(known) = self.loops.get_mut(&tid) else { continue };
            let due = match known.next_report {
                Some((number, at)) if number == turn.number => at,
                _ => first_due(turn.start_ns, at_attach, self.began_ns, self.settings.threshold_ns),
            };
            if (now < due && !all) || age < self.settings.threshold_ns {
                continue;
            }
            known.next_report = Some((turn.number, turn.start_ns + next_age(age)));
            let asked = self.ask(&state, now);
            state.settle(now);
            self.tell(&state, now, true, asked.as_ref())?;
        }
        Ok(())
    }

    /// Threads that were stuck when stallscope attached and have not run since.
    fn report_stuck(&mut self, now: u64, all: bool) -> Result<(), WatchError> {
        let mut still = Vec::new();
        for (stuck, mut due) in std::mem::take(&mut self.stuck) {
            let moved = self.kernel.thread(stuck.tid).is_none_or(|s| s.phase() != Phase::Unknown);
            if moved {
                continue;
            }
            let so_far = stuck.so_far(now);
            if let Some(raw) = so_far
                && raw.duration_ns >= self.settings.threshold_ns
                && (now >= due || all)
            {
                due = stuck.start_ns + next_age(raw.duration_ns);
                let asked = self.ask_of(&stuck.sleep(now));
                if let Some(stall) = self.pipeline.stuck(raw, stuck.kernel(), asked.as_ref()) {
                    self.report(&stall)?;
                }
            }
            still.push((stuck, due));
        }
        self.stuck = still;
        Ok(())
    }
}

/// The registers that a thread last went to sleep with: as the kernel side saw it, or, if it has
/// slept ever since, as it was found.
pub(super) fn last_sleep(
    kernel: &Kernel,
    found: &HashMap<u32, UserRegs>,
    tid: u32,
) -> Option<UserRegs> {
    let seen = kernel.thread(tid).map(|state| state.regs).filter(|regs| *regs != UserRegs::ZERO);
    seen.or_else(|| found.get(&tid).copied())
}

/// The age at which a stall is told of next: 1 s, 2 s, 4 s …
const fn next_age(age: u64) -> u64 {
    let mut next = FIRST_ONGOING_NS;
    while next <= age {
        next *= 2;
    }
    next
}

/// When a turn is first told of if it lasts: one that was found at the attaching at once, one that lasts
/// at the first look then, others at a second of age. All in nanoseconds of the monotonic clock.
const fn first_due(start_ns: u64, at_attach: bool, attached_ns: u64, threshold_ns: u64) -> u64 {
    let stall_from = start_ns + threshold_ns;
    let first_look = attached_ns + FIRST_LOOK_NS;
    if at_attach {
        stall_from
    } else if stall_from <= first_look {
        first_look
    } else if threshold_ns > FIRST_ONGOING_NS {
        stall_from
    } else {
        start_ns + FIRST_ONGOING_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_lasts_at_the_first_look_is_told_then() {
        let attached = 7_000 * MS;
        let look = attached + FIRST_LOOK_NS;
        assert_eq!(first_due(attached + MS, false, attached, 10 * MS), look);
        // Not yet a stall by then.
        let late = look - 5 * MS;
        assert_eq!(first_due(late, false, attached, 10 * MS), late + FIRST_ONGOING_NS);
    }

    #[test]
    fn what_was_found_is_told_once_it_is_a_stall() {
        assert_eq!(first_due(5 * MS, true, 5 * MS, 10 * MS), 15 * MS);
    }

    #[test]
    fn nothing_is_told_below_the_threshold() {
        let threshold = 4 * FIRST_ONGOING_NS;
        assert_eq!(first_due(0, false, 0, threshold), threshold);
    }
}
