//! Stalls that still last: which report belongs to which stall.

use std::collections::BTreeMap;

use crate::blame::Stall;

/// The last word on each stall that has not ended.
///
/// A stall that lasts is reported again and again (after 1 s, 2 s, 4 s …) and once more when it
/// ends; only the last of these counts. A thread has at most one stall at a time, and reports of
/// the same stall overlap in time, which tells them from the thread's next stall even if their
/// start was refined in between.
#[derive(Debug, Clone, Default)]
pub struct Unfinished {
    by_thread: BTreeMap<(u32, u32), Stall>,
}

impl Unfinished {
    /// Takes note of a report. Returns what has to be counted now: the stall itself if it has
    /// ended, and before it an earlier one of the same thread whose end nobody saw.
    pub fn settle(&mut self, stall: &Stall) -> Vec<Stall> {
        let thread = (stall.pid, stall.tid);
        let mut counted = Vec::new();
        if let Some(earlier) = self.by_thread.remove(&thread)
            && !continues(earlier.start_unix_ns, earlier.duration_ns, stall)
        {
            counted.push(earlier);
        }
        if stall.ongoing {
            self.by_thread.insert(thread, stall.clone());
        } else {
            counted.push(stall.clone());
        }
        counted
    }

    /// The stalls that never ended, by process and thread.
    pub fn stalls(&self) -> impl Iterator<Item = &Stall> {
        self.by_thread.values()
    }
}

/// Whether `stall` is the same stall as one of its thread that began at `start_unix_ns` and had
/// lasted for `duration_ns` when it was last reported.
pub(crate) fn continues(start_unix_ns: u64, duration_ns: u64, stall: &Stall) -> bool {
    stall.start_unix_ns < start_unix_ns.saturating_add(duration_ns)
}
