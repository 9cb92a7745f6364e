//! Which threads are watched.

use profiler_common::turn::ThreadState;

use crate::maps::{FILTER, FILTER_BYTES, SHARED, THREADS};

/// Whether a process may be a target: one array read, no hashing.
#[inline(always)]
pub(crate) fn may_be(tgid: u32) -> bool {
    let Some(filter) = FILTER.get_ptr(0) else { return false };
    let index = tgid as usize & (FILTER_BYTES - 1);
    // SAFETY: the index is masked to the array's length.
    unsafe { (*filter)[index] != 0 }
}

/// Marks a process in the cheap filter. Marks are never taken back: a stale one costs a look-up.
#[inline(always)]
pub(crate) fn mark(tgid: u32) {
    if let Some(filter) = FILTER.get_ptr_mut(0) {
        let index = tgid as usize & (FILTER_BYTES - 1);
        // SAFETY: the index is masked to the array's length; a byte store does not tear.
        unsafe { (*filter)[index] = 1 };
    }
}

/// The state of a watched thread.
#[inline(always)]
pub(crate) fn thread(tid: u32) -> Option<&'static mut ThreadState> {
    // SAFETY: only the thread's own events write the state, and they exclude each other (see
    // `profiler_common::turn`); elements are removed only when their thread has exited.
    THREADS.get_ptr_mut(tid).map(|state| unsafe { &mut *state })
}

/// Since when polls that do not sleep are seen; 0 if they are not.
#[inline(always)]
pub(crate) fn armed_since() -> u64 {
    SHARED.get(0).copied().unwrap_or(0)
}
