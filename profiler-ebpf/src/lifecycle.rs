//! Threads and processes come, change and go.

use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use profiler_common::counters::Counter;
use profiler_common::record::{KIND_EXEC, KIND_EXIT, KIND_FORK};
use profiler_common::turn::{NO_ENTRY, PARK_EPOLL};

use crate::maps::{ADOPT, BLANK, TARGETS, THREADS, config};
use crate::target::{self, armed_since};
use crate::task::{self, Task};
use crate::{count, emit, python_sleep};

/// `BPF_NOEXIST`
const NO_EXIST: u64 = 1;

/// A target created a thread, or a process that becomes a target as well.
#[inline(always)]
pub(crate) fn fork(parent: Task, child: Task) {
    let parent_tgid = task::tgid(parent);
    if !target::may_be(parent_tgid) {
        return;
    }
    // SAFETY: targets are preallocated; the value is copied.
    let Some(target) = (unsafe { TARGETS.get(parent_tgid) }).copied() else { return };
    let (tgid, tid) = (task::tgid(child), task::tid(child));
    let new_process = tgid != parent_tgid;
    if new_process {
        if config!(follow_forks) == 0 {
            return;
        }
        target::mark(tgid);
        let _ = TARGETS.insert(tgid, target, 0);
    }
    watch(tgid, tid);
    python_sleep::began(child, tgid, tid);
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    emit::event(KIND_FORK, 0, tgid, tid, now, u64::from(new_process));
}

/// Begins to watch a thread.
#[inline(always)]
fn watch(tgid: u32, tid: u32) {
    let Some(blank) = BLANK.get(0) else { return };
    let _ = THREADS.insert(tid, blank, NO_EXIST);
    match target::thread(tid) {
        Some(state) => {
            state.record.header.tgid = tgid;
            state.record.header.tid = tid;
            state.park_mask = PARK_EPOLL;
            state.off_entry = NO_ENTRY;
        }
        None => count::one(Counter::ThreadTableFull),
    }
}

/// The current process became another program: nothing that was known of it holds.
#[inline(always)]
pub(crate) fn exec(old_tid: u32) {
    // SAFETY: the helpers have no preconditions.
    let (pid_tgid, now) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_ns()) };
    let (tgid, tid) = ((pid_tgid >> 32) as u32, pid_tgid as u32);
    if !target::may_be(tgid) || unsafe { TARGETS.get(tgid) }.is_none() {
        return;
    }
    if let Some(target) = TARGETS.get_ptr_mut(tgid) {
        // SAFETY: flags; user space sets them anew when it has looked at the new program.
        unsafe { (*target).flags = 0 };
    }
    if old_tid != tid {
        // The thread that ran the call got its process's first id; user space removes the entry.
        emit::event(KIND_EXIT, 0, tgid, old_tid, now, 0);
    }
    match target::thread(tid) {
        Some(state) => state.forget_phase(),
        None => watch(tgid, tid),
    }
    emit::event(KIND_EXEC, 0, tgid, tid, now, 0);
}

/// The current thread exits.
#[inline(always)]
pub(crate) fn exit() {
    // SAFETY: the helpers have no preconditions.
    let (pid_tgid, now) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_ns()) };
    let (tgid, tid) = ((pid_tgid >> 32) as u32, pid_tgid as u32);
    if !target::may_be(tgid) {
        return;
    }
    let Some(state) = target::thread(tid) else { return };
    state.version += 1;
    if let Some(turn) = state.exit(now, armed_since()) {
        emit::finished(state, turn);
    }
    state.version += 1;
    let _ = ADOPT.remove(tid);
    // User space reads the statistics of a loop before it removes the entry.
    emit::event(KIND_EXIT, 0, tgid, tid, now, 0);
}
