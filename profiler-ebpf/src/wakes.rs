//! Who wakes a thread of a turn, and who sends it a signal that stops.

use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use profiler_common::arch::{UserRegs, is_exit, is_futex};
use profiler_common::capture::{Capture, CaptureHead};
use profiler_common::cause;
use profiler_common::layout::ABSENT;
use profiler_common::record::{FLAG_PYTHON, KIND_HOLDER};
use profiler_common::turn::{Phase, ThreadState};
use profiler_common::waits::{
    Stopper, WAKER_CHILD, WAKER_EXITS, WAKER_KERNEL, WAKER_RELEASES, Waker,
};

use crate::maps::STACK_ENDS;
use crate::object::{field, pointer};
use crate::quota::{quotas_matter, throttled};
use crate::task::{self, Task};
use crate::waits::{HOLDERS, NO_STACK, STOPPERS, WAKES, current, is_significant, layout};
use crate::{capture, emit, python, target};

/// `PF_EXITING` and `PF_KTHREAD` (unchanged since 2.6).
const FLAG_EXITING: u32 = 0x4;
const FLAG_KERNEL: u32 = 0x0020_0000;
/// SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU
const STOP_SIGNALS: core::ops::RangeInclusive<u32> = 19..=22;

/// A thread is woken by the current task, or by an interrupt on top of it: the reader must know
/// which of them can be. Runs before the wake-up is noted in the state.
#[inline(always)]
pub(crate) fn woken(state: &ThreadState, task: Task, now: u64) {
    if state.slot == 0 {
        return;
    }
    if quotas_matter()
        && let Some(wake) = WAKES.get_ptr_mut(state.slot.wrapping_sub(1))
    {
        // SAFETY: wake-ups of one thread exclude each other, by its lock in the scheduler.
        unsafe { (*wake).throttled_ns = throttled(task) };
    }
    if state.phase() != Phase::Busy || !state.is_asleep() {
        return;
    }
    let ns = now.saturating_sub(state.mark_ns);
    // One after the other, as each needs much of the stack.
    if is_significant(ns) && note_waker(state, ns, now) {
        add_python(state.slot);
    }
}

/// Whether the current thread's stack was captured.
#[inline(never)]
fn note_waker(state: &ThreadState, ns: u64, now: u64) -> bool {
    let slot = state.slot.wrapping_sub(1);
    // SAFETY: as above.
    let Some(wake) = WAKES.get_ptr_mut(slot).map(|wake| unsafe { &mut *wake }) else {
        return false;
    };
    let waking = task::current();
    let who = current();
    let task_flags: u32 = field(waking, layout!(task_flags), FLAG_KERNEL);
    let tgid = state.record.header.tgid;
    let mut flags = 0;
    let mut nr = -1;
    let mut regs = UserRegs::ZERO;
    if task_flags & FLAG_KERNEL != 0 || who.tgid == 0 {
        flags |= WAKER_KERNEL;
    } else if task::current_regs(&mut regs) {
        nr = regs.syscall() as i32;
    }
    if task_flags & FLAG_EXITING != 0 {
        flags |= WAKER_EXITS;
    }
    if layout!(task_real_parent) != ABSENT {
        let parent = pointer(waking, layout!(task_real_parent));
        if task::tgid(parent) == tgid {
            flags |= WAKER_CHILD;
        }
    }
    let args = regs.args();
    let same_futex = is_futex(i64::from(nr)) && (args[0] == state.futex || args[4] == state.futex);
    if who.tgid == tgid && state.futex != 0 && (same_futex || is_exit(i64::from(nr))) {
        flags |= WAKER_RELEASES;
    }
    wake.waker = Waker { time_ns: now, who, nr, flags };
    let turn = state.record.turn.number;
    if flags & WAKER_RELEASES != 0 && (wake.holder_turn != turn || ns > wake.holder_ns) {
        wake.holder_turn = turn;
        wake.holder_ns = ns;
        capture_holder(state, &regs, now);
        return true;
    }
    false
}

/// Walks the interpreter's frames of the current thread, whose stack has just been captured.
#[inline(always)]
fn add_python(slot: u32) {
    // SAFETY: the helper has no preconditions.
    let ids = unsafe { bpf_get_current_pid_tgid() };
    if python::walk_holder(slot, (ids >> 32) as u32, ids as u32)
        && let Some(capture) = HOLDERS.get_ptr_mut(slot.wrapping_sub(1))
    {
        // SAFETY: as above.
        unsafe { (*capture).head.header.flags = FLAG_PYTHON };
    }
}

/// Copies the current thread's stack: it has just released what the woken thread waited for.
#[inline(always)]
fn capture_holder(state: &ThreadState, regs: &UserRegs, now: u64) {
    // SAFETY: as above.
    let Some(capture) = HOLDERS.get_ptr_mut(state.slot.wrapping_sub(1)).map(|c| unsafe { &mut *c })
    else {
        return;
    };
    // SAFETY: the helper has no preconditions.
    let ids = unsafe { bpf_get_current_pid_tgid() };
    let head = &mut capture.head;
    head.regs = *regs;
    head.header.kind = KIND_HOLDER;
    head.header.tgid = (ids >> 32) as u32;
    head.header.tid = ids as u32;
    head.header.flags = 0;
    head.header.time_ns = now;
    head.header.extra = u64::from(state.record.header.tid);
    head.turn = state.record.turn.number;
    head.total_ns = 0;
    head.count = 1;
    head.id = NO_STACK;
    head.cause = u32::from(cause::LOCK);
    head.nr = regs.syscall() as i32;
    head.in_kernel = 1;
    // How it woke the other inside the kernel says nothing.
    head.kernel_len = 0;
    // SAFETY: the value is a number.
    let stack_end = unsafe { STACK_ENDS.get(ids as u32) }.copied().unwrap_or(0);
    capture::copy_stack(stack_end, capture);
}

/// A signal is sent to a process.
#[inline(always)]
pub(crate) fn signal(signal: u32, receiver: Task) {
    if !STOP_SIGNALS.contains(&signal) {
        return;
    }
    let tgid = task::tgid(receiver);
    if !target::may_be(tgid) {
        return;
    }
    // SAFETY: the helper has no preconditions.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    let _ = STOPPERS.insert(tgid, Stopper { time_ns, who: current(), signal, reserved: 0 }, 0);
}

/// Sends the capture of the thread that ended the longest wait for a lock.
#[inline(always)]
pub(crate) fn send_holder(slot: u32) {
    // SAFETY: the thread runs: nobody wakes it.
    let Some(capture) = HOLDERS.get_ptr_mut(slot).map(|c| unsafe { &mut *c }) else { return };
    python::send_holder(slot.wrapping_add(1), capture);
    // The verifier wants the bound right before the use; read it again to keep it there.
    // SAFETY: a plain read of a valid reference.
    let bytes = unsafe { core::ptr::read_volatile(&raw const capture.head.bytes) };
    if bytes as usize > size_of::<Capture>() || (bytes as usize) < size_of::<CaptureHead>() {
        return;
    }
    // SAFETY: head and pages lie in one buffer, and `bytes` is within it.
    unsafe { emit::output((&raw const *capture).cast(), u64::from(bytes)) };
}
