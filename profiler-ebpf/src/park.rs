//! Entering a park call, seen even if it does not sleep: the exact end of a turn.

use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use profiler_common::arch::{SYS_IO_URING_ENTER, park_class};
use profiler_common::counters::Counter;
use profiler_common::turn::{PARK_EPOLL, Phase, ThreadState};

use crate::target::{self, armed_since};
use crate::{count, emit, futexes, switch, task};

/// Any system call of any process of the host: most leave at the first comparison.
#[inline(always)]
pub(crate) fn sys_enter(nr: i64) {
    let class = park_class(nr);
    if class == 0 {
        return;
    }
    if nr == SYS_IO_URING_ENTER {
        enter_io_uring();
    } else {
        enter_class(class);
    }
}

/// A park call attached by itself.
#[inline(always)]
pub(crate) fn enter(class: u32) {
    enter_class(class);
}

/// `io_uring_enter` parks only if it waits for completions. Its arguments are read from the
/// registers that the thread entered the kernel with, not from the program's own argument: where
/// the kernel's type information knows `struct pt_regs` by name only, as Debian's 5.10 does for
/// this call, the verifier refuses to have that touched.
#[inline(always)]
pub(crate) fn enter_io_uring() {
    let pid_tgid = unsafe_current();
    if !target::may_be((pid_tgid >> 32) as u32) {
        return;
    }
    let Some(state) = target::thread(pid_tgid as u32) else { return };
    if !task::current_regs(&mut state.regs) {
        count::one(Counter::RegistersUnreadable);
    } else if state.regs.waits_for_completions() {
        enter_class(PARK_EPOLL);
    }
}

#[inline(always)]
fn unsafe_current() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_current_pid_tgid() }
}

/// A runtime's worker polls its next task: the turn of the task before ends.
#[inline(always)]
pub(crate) fn enter_task() {
    let pid_tgid = unsafe_current();
    if !target::may_be((pid_tgid >> 32) as u32) {
        return;
    }
    let Some(state) = target::thread(pid_tgid as u32) else { return };
    if state.phase() == Phase::Unknown {
        return;
    }
    state.set_guard(true);
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    state.version += 1;
    switch::seen_running(state, task::current(), now);
    if let Some(turn) = state.enter_park(now, armed_since()) {
        emit::finished(state, turn);
    }
    state.next_task(now);
    state.version += 1;
    // The breakpoint costs about as much as the program.
    count::add(Counter::ParkEnterHits, 2);
    state.set_guard(false);
}

/// Whether the running thread, which has polled others than its own epoll instance or ring before, does
/// so again.
#[inline(always)]
fn is_nested(state: &mut ThreadState) -> bool {
    if state.phase() != Phase::Busy || !task::current_regs(&mut state.regs) {
        return false;
    }
    let nested = !futexes::is_home(state);
    // It does not sleep yet.
    state.futex = 0;
    nested
}

#[inline(always)]
fn enter_class(class: u32) {
    let pid_tgid = unsafe_current();
    if !target::may_be((pid_tgid >> 32) as u32) {
        return;
    }
    let Some(state) = target::thread(pid_tgid as u32) else { return };
    if class & state.park_mask == 0 {
        return;
    }
    if state.phase() == Phase::Unknown && class & PARK_EPOLL == 0 {
        return;
    }
    if class == PARK_EPOLL && state.strange != 0 && is_nested(state) {
        return;
    }
    // The helper calls after setting and before clearing the guard keep the compiler from moving
    // other accesses across it.
    state.set_guard(true);
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    state.version += 1;
    switch::seen_running(state, task::current(), now);
    if state.phase() == Phase::Unknown {
        switch::adopt(state, now, false);
    }
    if state.announced == 0 && class & PARK_EPOLL != 0 {
        // It may never sleep in its park.
        switch::found_loop(state, PARK_EPOLL, now);
    }
    if let Some(turn) = state.enter_park(now, armed_since()) {
        emit::finished(state, turn);
    }
    state.next_turn(now);
    state.version += 1;
    count::one(Counter::ParkEnterHits);
    state.set_guard(false);
}
