//! Joins what is known of a turn's waits, which comes in records of their own before the turn.

use std::collections::HashMap;

use profiler_common::waits::{Resource, Waits};

/// What a turn waited for, and who made it wait. `S` is what the reader of a stack copy made of it.
#[derive(Clone)]
pub struct TurnWaits<S> {
    /// What system calls waited for, one for each.
    pub resources: Vec<Resource>,
    /// Locks, rivals for the CPU, and who stopped it.
    pub waits: Option<Box<Waits>>,
    /// The thread that ended the longest wait for a lock, and its stack then.
    pub holder: Option<(u32, S)>,
}

impl<S> Default for TurnWaits<S> {
    fn default() -> Self {
        Self { resources: Vec::new(), waits: None, holder: None }
    }
}

impl<S> std::fmt::Debug for TurnWaits<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnWaits")
            .field("resources", &self.resources.len())
            .finish_non_exhaustive()
    }
}

/// Turns that have not ended, by thread: their number and what is known.
#[derive(Debug)]
pub struct WaitNotes<S> {
    turns: HashMap<u32, (u64, TurnWaits<S>)>,
}

impl<S> Default for WaitNotes<S> {
    fn default() -> Self {
        Self { turns: HashMap::new() }
    }
}

impl<S> WaitNotes<S> {
    fn of(&mut self, tid: u32, turn: u64) -> &mut TurnWaits<S> {
        let entry = self.turns.entry(tid).or_insert_with(|| (turn, TurnWaits::default()));
        if entry.0 != turn {
            *entry = (turn, TurnWaits::default());
        }
        &mut entry.1
    }

    /// What a system call waited for.
    pub fn resource(&mut self, resource: &Resource) {
        let header = &resource.header;
        self.of(header.tid, header.extra).resources.push(*resource);
    }

    /// Who made a thread wait.
    pub fn waits(&mut self, waits: &Waits) {
        self.of(waits.header.tid, waits.header.extra).waits = Some(Box::new(*waits));
    }

    /// Everything of a turn, instead of what was known of it.
    pub fn set(&mut self, tid: u32, turn: u64, waits: TurnWaits<S>) {
        *self.of(tid, turn) = waits;
    }

    /// The thread that ended the longest wait of `waiter` for a lock.
    pub fn holder(&mut self, waiter: u32, turn: u64, tid: u32, stack: S) {
        self.of(waiter, turn).holder = Some((tid, stack));
    }

    /// Everything of a turn that has ended.
    pub fn take(&mut self, tid: u32, turn: u64) -> TurnWaits<S> {
        match self.turns.remove(&tid) {
            Some((number, waits)) if number == turn => waits,
            _ => TurnWaits::default(),
        }
    }

    /// Forgets a thread.
    pub fn forget(&mut self, tid: u32) {
        self.turns.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_another_turn_is_not_mixed_in() {
        let mut notes = WaitNotes::default();
        notes.holder(7, 3, 9, "unlock");
        assert!(notes.take(7, 4).holder.is_none());
        notes.holder(7, 3, 9, "unlock");
        notes.holder(7, 4, 8, "drop");
        assert_eq!(notes.take(7, 4).holder, Some((8, "drop")));
        assert!(notes.take(7, 4).holder.is_none(), "taken");
        notes.holder(7, 3, 9, "unlock");
        notes.forget(7);
        assert!(notes.take(7, 3).holder.is_none());
    }
}
