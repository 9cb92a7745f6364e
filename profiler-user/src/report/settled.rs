//! Stalls that count: each once, with its last word. Formats that only write at the end use this.

use crate::aggregate::Unfinished;
use crate::blame::Stall;

/// Keeps those that last until their next word.
#[derive(Debug, Clone, Default)]
pub(super) struct Settled {
    unfinished: Unfinished,
}

impl Settled {
    /// Takes note of a stall; `count` gets what has to be counted now.
    pub(super) fn add(&mut self, stall: &Stall, count: impl FnMut(&Stall)) {
        self.unfinished.settle(stall).iter().for_each(count);
    }

    /// Gives `count` the stalls that never ended, each once.
    pub(super) fn finish(&mut self, count: impl FnMut(&Stall)) {
        std::mem::take(&mut self.unfinished).stalls().for_each(count);
    }
}
