//! Turns whose end the kernel side does not know yet: the thread sleeps on a futex that has just
//! been recognised as where it parks.
//!
//! The kernel side ends such a turn when the thread wakes, which may be never, so it is told of
//! from here. What the turn has sent may still be in the ring buffer: first the thread's state is
//! read, then the ring buffer emptied, then the turn told of, if the thread still sleeps.

use std::collections::{BTreeSet, HashMap};

use super::watch::WatchError;
use super::watcher::Watcher;

/// Threads that may be parked without the kernel side knowing.
#[derive(Debug, Default)]
pub(super) struct ParkedTurns {
    /// Threads to look at.
    answered: BTreeSet<u32>,
    /// Threads that were seen parked; all they sent before is handled once the ring is empty.
    seen: Vec<Sleep>,
    /// The last turn told of, by thread.
    told: HashMap<u32, u64>,
}

/// One sleep of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sleep {
    tid: u32,
    turn: u64,
    since_ns: u64,
}

impl ParkedTurns {
    /// What the thread sleeps on was found to be where it parks.
    pub(super) fn answered(&mut self, tid: u32) {
        self.answered.insert(tid);
    }

    /// Whether a turn was told of already.
    pub(super) fn is_told(&self, tid: u32, turn: u64) -> bool {
        self.told.get(&tid) == Some(&turn)
    }
}

impl Watcher<'_> {
    /// To be called when the ring buffer is empty; `true` if it has to be emptied once more.
    pub(super) fn close_parked_turns(&mut self) -> Result<bool, WatchError> {
        for sleep in std::mem::take(&mut self.parked.seen) {
            self.close_parked(sleep)?;
        }
        for tid in std::mem::take(&mut self.parked.answered) {
            let Some(state) = self.kernel.thread(tid).filter(|s| self.kernel.is_parked(s)) else {
                continue;
            };
            let turn = state.record.turn;
            let long = state.mark_ns.saturating_sub(turn.start_ns) >= self.settings.threshold_ns;
            if long && !self.parked.is_told(tid, turn.number) {
                let (turn, since_ns) = (turn.number, state.mark_ns);
                self.parked.seen.push(Sleep { tid, turn, since_ns });
            }
        }
        Ok(!self.parked.seen.is_empty())
    }

    fn close_parked(&mut self, sleep: Sleep) -> Result<(), WatchError> {
        let Sleep { tid, turn, since_ns } = sleep;
        let same = self.kernel.thread(tid).filter(|state| {
            self.kernel.is_parked(state)
                && state.record.turn.number == turn
                && state.mark_ns == since_ns
        });
        let Some(state) = same else { return Ok(()) };
        self.parked.told.insert(tid, turn);
        self.tell(&state, since_ns, false, None)
    }
}
