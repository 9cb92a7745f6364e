//! Stalls by blocker: which code, or which outside force, cost how much.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::BlockerSummary;
use crate::blame::{Blocker, Stall};
use crate::stalls::Cause;

/// The closer word that stands next to the cause in a headline: the detail (`dns`, `gc` …), else
/// the system call that slept longest, else the outside force.
#[must_use]
pub fn headline_word(stall: &Stall) -> Option<&str> {
    if let Some(detail) = stall.detail {
        return Some(detail);
    }
    match stall.cause {
        Cause::Syscall => slowest_syscall(stall),
        Cause::Runqueue | Cause::Throttled | Cause::Stopped => {
            stall.outside.as_ref().map(|outside| outside.what)
        }
        _ => None,
    }
}

/// The system call that slept longest; a futex only if nothing else slept, since futex waits are
/// a cause of their own.
pub(crate) fn slowest_syscall(stall: &Stall) -> Option<&str> {
    let by_total = |futex: bool| {
        let calls = stall.syscalls.iter().filter(move |call| (call.name == "futex") == futex);
        calls.max_by_key(|call| call.total_ns).map(|call| call.name)
    };
    by_total(false).or_else(|| by_total(true))
}

/// What makes two stalls the same in a summary: cause, headline word, and the blocker's function
/// and line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockerKey {
    cause: Cause,
    what: Option<Arc<str>>,
    blocker: Option<Place>,
}

/// Function, file and line.
type Place = (Arc<str>, Option<Arc<str>>, Option<u32>);

impl BlockerKey {
    /// The key of one stall.
    #[must_use]
    pub fn of(stall: &Stall) -> Self {
        let blocker = stall.blocker.as_ref();
        Self {
            cause: stall.cause,
            what: headline_word(stall).map(Arc::from),
            blocker: blocker.map(|b| (b.function.clone(), b.file.clone(), b.line)),
        }
    }
}

/// Totals of the stalls with one key.
#[derive(Debug, Clone)]
struct Entry {
    /// The blocker of the longest of these stalls.
    blocker: Option<Blocker>,
    count: u64,
    total_ns: u64,
    max_ns: u64,
}

/// Sums stalls up by blocker.
#[derive(Debug, Clone, Default)]
pub struct Aggregate {
    by_key: BTreeMap<BlockerKey, Entry>,
}

impl Aggregate {
    /// An aggregate without stalls.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a stall that has ended. One that still lasts is left out: it comes again when it ends.
    pub fn add(&mut self, stall: &Stall) {
        if !stall.ongoing {
            self.count(stall);
        }
    }

    /// Adds a stall that still lasted when the observation ended, with the length it had by then.
    /// To be called once for each such stall.
    pub fn add_unfinished(&mut self, stall: &Stall) {
        self.count(stall);
    }

    /// How many stalls were added.
    #[must_use]
    pub fn count_of_stalls(&self) -> u64 {
        self.by_key.values().map(|entry| entry.count).sum()
    }

    /// Nanoseconds of all added stalls together.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.by_key.values().map(|entry| entry.total_ns).sum()
    }

    /// One row per blocker, largest total first. `observed_loop_ns` is the time the loops were
    /// watched, summed over the loops; shares are taken of it (0 if it is 0).
    #[must_use]
    pub fn blockers(&self, observed_loop_ns: u64) -> Vec<BlockerSummary> {
        let mut rows: Vec<_> =
            self.by_key.iter().map(|(key, entry)| row(key, entry, observed_loop_ns)).collect();
        // Stable: rows of equal weight keep the order of their keys.
        rows.sort_by_key(|row| std::cmp::Reverse((row.total_ns, row.max_ns)));
        rows
    }

    fn count(&mut self, stall: &Stall) {
        let entry = self.by_key.entry(BlockerKey::of(stall)).or_insert(Entry {
            blocker: None,
            count: 0,
            total_ns: 0,
            max_ns: 0,
        });
        if entry.count == 0 || stall.duration_ns > entry.max_ns {
            entry.blocker.clone_from(&stall.blocker);
        }
        entry.count += 1;
        entry.total_ns = entry.total_ns.saturating_add(stall.duration_ns);
        entry.max_ns = entry.max_ns.max(stall.duration_ns);
    }
}

fn row(key: &BlockerKey, entry: &Entry, observed_loop_ns: u64) -> BlockerSummary {
    let share = if observed_loop_ns == 0 {
        0.0
    } else {
        // Nanoseconds of centuries lose nothing that a share would show.
        (entry.total_ns as f64 / observed_loop_ns as f64).min(1.0)
    };
    BlockerSummary {
        cause: key.cause,
        what: key.what.clone(),
        blocker: entry.blocker.clone(),
        count: entry.count,
        total_ns: entry.total_ns,
        max_ns: entry.max_ns,
        share,
    }
}
