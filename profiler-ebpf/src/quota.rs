//! CPU quotas: how long a thread's groups were out of it, and so kept the thread from running.
//!
//! Looked at only while a target is under a quota at all; user space says so.

use crate::maps::SHARED;
use crate::object::{field, pointer};
use crate::task::{self, Task};
use crate::waits::{WAKES, layout, notes};

/// Groups that are asked for their throttled time, from the thread's own up.
const GROUPS: usize = 8;

/// Time for which a thread's groups were out of quota, up to the last time that they were refilled.
#[inline(always)]
pub(crate) fn throttled(task: Task) -> u64 {
    // Zero is for "not known", as before the first look.
    let mut total = 1_u64;
    let mut group = pointer(task, layout!(task_group));
    for _ in 0..GROUPS {
        if group.is_null() {
            break;
        }
        total = total.wrapping_add(field(group, layout!(group_throttled_ns), 0));
        group = pointer(group, layout!(group_parent));
    }
    total
}

#[inline(always)]
pub(crate) fn quotas_matter() -> bool {
    SHARED.get(2).copied().unwrap_or(0) != 0
}

/// The current thread is about to be switched out.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn quota_leaves(slot: u32) -> u32 {
    if quotas_matter()
        && let Some(notes) = notes(slot)
    {
        notes.throttled_ns = throttled(task::current());
    }
    0
}

/// A thread is about to be switched in: how long was it kept from that by a quota? `woken` is
/// non-zero if it was woken meanwhile.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn quota_arrives(slot: u32, task: u64, woken: u32) -> u64 {
    if !quotas_matter() {
        return 0;
    }
    let Some(notes) = notes(slot) else { return 0 };
    let mut before = notes.throttled_ns;
    if woken != 0
        && let Some(wake) = WAKES.get(slot.wrapping_sub(1))
    {
        before = wake.throttled_ns;
    }
    if before == 0 { 0 } else { throttled(task as Task).saturating_sub(before) }
}
