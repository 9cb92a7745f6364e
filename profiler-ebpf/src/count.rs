//! Named counters of everything that is lost or cut.

use profiler_common::counters::Counter;

use crate::maps::COUNTERS;

/// Adds to a counter.
#[inline(always)]
pub(crate) fn add(counter: Counter, n: u64) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: a per-CPU value; a program that interrupts this one can lose it a count at worst.
        unsafe { *value += n };
    }
}

/// Counts one.
#[inline(always)]
pub(crate) fn one(counter: Counter) {
    add(counter, 1);
}
