//! The scheduler's events: segments begin and end here.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::programs::BtfTracePointContext;
use profiler_common::arch::{SYS_IO_URING_ENTER, is_futex, park_class};
use profiler_common::cause;
use profiler_common::config::{
    ADOPT_PARKED, ADOPT_RUNNING, EPOLL_KEY, FUTEX_IDLE, FUTEX_PARK, TARGET_HAS_EPOLL,
};
use profiler_common::counters::Counter;
use profiler_common::record::KIND_LOOP;
use profiler_common::turn::{
    NO_ENTRY, Off, PARK_EPOLL, PARK_FUTEX, PARK_IDLE, PARK_POLL, Phase, ThreadState,
};

use crate::capture::{self, Subject};
use crate::maps::{ADOPT, SHARED, SLOTS, TARGETS, config};
use crate::target::{self, armed_since};
use crate::task::{self, Task};
use crate::{count, emit, futexes, python, quota, rivals, waits, wakes};

/// `__TASK_STOPPED | __TASK_TRACED` (unchanged since Linux 2.6.33).
const STATE_STOPPED: u32 = 0x4 | 0x8;
/// `TASK_FROZEN` (Linux 6.1).
pub(crate) const STATE_FROZEN: u32 = 0x8000;
/// `JOBCTL_TRAP_FREEZE` (cgroup v2 freezer, Linux 5.2).
const JOBCTL_TRAP_FREEZE: u64 = 1 << 23;
/// How many slots a new loop tries to claim: more than CPUs that find loops at the same instant.
const SLOT_ATTEMPTS: u32 = 16;
/// `BPF_NOEXIST`
const NO_EXIST: u64 = 1;
/// A stack that holds less than this part of its turn waits for more before it is sent.
const SIGNIFICANT: u64 = 64;

/// The current thread is switched out for another.
#[inline(always)]
pub(crate) fn sched_switch(ctx: &BtfTracePointContext) {
    // SAFETY: the helpers have no preconditions.
    let (pid_tgid, now) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_ns()) };
    if target::may_be((pid_tgid >> 32) as u32)
        && let Some(state) = target::thread(pid_tgid as u32)
    {
        state.version += 1;
        switched_out(ctx, state, now);
        state.version += 1;
    }
    let next: Task = ctx.arg(2);
    if target::may_be(task::tgid(next))
        && let Some(state) = target::thread(task::tid(next))
    {
        state.version += 1;
        switched_in(state, next, now);
        state.version += 1;
    }
}

/// A thread is woken, here or on another CPU.
#[inline(always)]
pub(crate) fn sched_waking(ctx: &BtfTracePointContext) {
    let woken: Task = ctx.arg(0);
    if target::may_be(task::tgid(woken))
        && let Some(state) = target::thread(task::tid(woken))
    {
        // SAFETY: the helper has no preconditions.
        let now = unsafe { bpf_ktime_get_ns() };
        wakes::woken(state, woken, now);
        state.wake(now);
    }
}

#[inline(always)]
fn switched_out(ctx: &BtfTracePointContext, state: &mut ThreadState, now: u64) {
    let prev: Task = ctx.arg(1);
    seen_running(state, prev, now);
    state.exec_ns = task::sum_exec(prev);
    let preempted: u64 = ctx.arg(0);
    let sleep_state = if config!(has_prev_state) != 0 {
        let prev_state: u64 = ctx.arg(3);
        prev_state as u32
    } else {
        task::state(prev)
    };
    quota::quota_leaves(state.slot);
    // A preempted thread may carry any state: the flag alone counts.
    if preempted as u8 != 0 || sleep_state == 0 {
        let next = task::number(&mut state.task, ctx.arg(2));
        let busy = u32::from(state.phase() == Phase::Busy && state.guard == 0);
        rivals::rivals_preempted(state.slot, state.record.turn.number, next, busy);
        state.switch_out(now, Off::Preempted, 0);
        return;
    }
    let before = state.regs.syscall();
    let readable = task::current_regs(&mut state.regs);
    state.regs.undo_restart(before);
    if !readable {
        count::one(Counter::RegistersUnreadable);
        state.off_entry = NO_ENTRY;
        state.switch_out(now, Off::Sleep { cause: cause::UNEXPLAINED, nr: -1 }, 0);
        return;
    }
    let off = why_off(state, prev, sleep_state);
    if let Off::Park(class) = off {
        if let Some(turn) = state.switch_out(now, off, armed_since()) {
            emit::finished(state, turn);
        }
        if class == PARK_IDLE {
            state.forget_phase();
            return;
        }
        if state.announced == 0 && (class != PARK_POLL || state.proved_poll_loop()) {
            found_loop(state, class, now);
        } else if state.slot == 0 {
            take_slot(state);
        }
        return;
    }
    state.off_entry = NO_ENTRY;
    let off = forget_which(state, off);
    if let Off::Sleep { cause, nr } = off
        && state.phase() == Phase::Busy
        && state.guard == 0
    {
        let subject = Subject { cause, nr, in_kernel: true, now };
        let (entry, _, _) = capture::for_turn(state, ctx.as_ptr(), &subject);
        state.off_entry = entry;
        waits::begin(state, cause, nr, sleep_state);
    }
    if state.futex != 0 {
        futexes::ask(ctx, state, now);
    }
    state.switch_out(now, off, 0);
}

/// Whether the thread is stopped by its group's freezer.
#[inline(always)]
pub(crate) fn is_frozen_v2(task: Task) -> bool {
    task::jobctl(task) & JOBCTL_TRAP_FREEZE != 0
}

/// The same, through memory: the verifier would follow what comes now once for each cause.
#[inline(always)]
fn forget_which(state: &mut ThreadState, off: Off) -> Off {
    let Off::Sleep { cause, nr } = off else { return off };
    // SAFETY: valid references; volatile so that the values pass through memory.
    unsafe {
        core::ptr::write_volatile(&raw mut state.off_cause, u32::from(cause));
        core::ptr::write_volatile(&raw mut state.off_nr, nr);
        Off::Sleep {
            cause: core::ptr::read_volatile(&raw const state.off_cause) as u8,
            nr: core::ptr::read_volatile(&raw const state.off_nr),
        }
    }
}

/// Classifies a sleep by the thread's state and the system call it is in.
#[inline(always)]
fn why_off(state: &mut ThreadState, prev: Task, sleep_state: u32) -> Off {
    state.futex = 0;
    let nr = state.regs.syscall();
    if sleep_state & (STATE_STOPPED | STATE_FROZEN) != 0 || is_frozen_v2(prev) {
        return Off::Sleep { cause: cause::STOPPED, nr: -1 };
    }
    if nr < 0 {
        return Off::Sleep { cause: cause::FAULT, nr: -1 };
    }
    let waits = nr != SYS_IO_URING_ENTER || state.regs.waits_for_completions();
    let class = if waits { park_class(nr) } else { 0 };
    if class & state.park_mask != 0 {
        if class == PARK_EPOLL && !futexes::is_home(state) {
            return Off::Sleep { cause: cause::SYSCALL, nr: nr as i32 };
        }
        return Off::Park(class);
    }
    if class == PARK_POLL && state.announced == 0 && !has_epoll(state.record.header.tgid) {
        // Blocking code polls too. Its turns are counted from the first poll on, but told only
        // once it has proved to be a loop.
        let (ip, sp) = (state.regs.ip(), state.regs.sp());
        state.poll_slept(ip, sp);
        return Off::Park(class);
    }
    if is_futex(nr) {
        if python::is_lock(state.record.header.tgid, state.regs.arg0()) {
            return Off::Sleep { cause: cause::GIL, nr: nr as i32 };
        }
        state.futex_sleeps += 1;
        state.futex = state.regs.arg0();
        if state.announced == 0 && state.futex_sleeps > state.poll_same {
            // Whatever it polled for, it waits for its work here.
            state.forget_turn();
        }
        let known = futexes::class(state);
        if known == FUTEX_PARK {
            state.futex = 0;
            return Off::Park(PARK_FUTEX);
        }
        if known == FUTEX_IDLE && state.phase() == Phase::Busy {
            state.futex = 0;
            return Off::Park(PARK_IDLE);
        }
        return Off::Sleep { cause: cause::LOCK, nr: nr as i32 };
    }
    Off::Sleep { cause: cause::SYSCALL, nr: nr as i32 }
}

#[inline(always)]
fn has_epoll(tgid: u32) -> bool {
    // SAFETY: targets are preallocated; the flag is a hint.
    unsafe { TARGETS.get(tgid) }.is_some_and(|target| target.flags & TARGET_HAS_EPOLL != 0)
}

/// A thread parked for the first time.
#[inline(always)]
pub(crate) fn found_loop(state: &mut ThreadState, class: u32, now: u64) {
    state.announced = 1;
    let _ = ADOPT.remove(state.record.header.tid);
    state.park_mask |= class & (PARK_EPOLL | PARK_POLL);
    if state.slot == 0 {
        take_slot(state);
    }
    let tgid = state.record.header.tgid;
    if class == PARK_EPOLL
        && let Some(target) = TARGETS.get_ptr_mut(tgid)
    {
        // SAFETY: a flag that is only ever set.
        unsafe { (*target).flags |= TARGET_HAS_EPOLL };
    }
    emit::event(KIND_LOOP, class, tgid, state.record.header.tid, now, u64::from(state.slot));
}

/// Gives a loop its captures and histogram, while there are some.
#[inline(always)]
pub(crate) fn take_slot(state: &mut ThreadState) {
    // Claimed by inserting: before Linux 5.12 BPF has no atomic that returns a value. The hint
    // only saves attempts.
    let Some(hint) = SHARED.get_ptr_mut(1) else { return };
    // SAFETY: an aligned map value; a lost update costs another attempt.
    let mut slot = unsafe { *hint } as u32;
    for _ in 0..SLOT_ATTEMPTS {
        if slot >= config!(max_loops) {
            // Slots of threads that are gone are free again.
            slot = 0;
        }
        if SLOTS.insert(slot, state.record.header.tid, NO_EXIST).is_ok() {
            state.slot = slot + 1;
            // SAFETY: as above.
            unsafe { *hint = u64::from(slot) + 1 };
            return;
        }
        slot = slot.wrapping_add(1);
    }
    // The thread asks again at its next park: a little further on.
    // SAFETY: as above.
    unsafe { *hint = u64::from(slot) };
    count::one(Counter::LoopSlotsFull);
}

/// The current thread runs. If its switch-in was not traced (the kernel can be told to leave tasks
/// out), it is made up for from the scheduler's account of CPU time.
#[inline(always)]
pub(crate) fn seen_running(state: &mut ThreadState, current: Task, now: u64) {
    if state.is_off() {
        count::one(Counter::SwitchInMissed);
        let at = state.unseen_switch_in(now, task::sum_exec(current));
        switched_in(state, current, at);
    }
}

#[inline(never)]
fn switched_in(state: &mut ThreadState, task: Task, now: u64) {
    if state.phase() == Phase::Unknown && state.guard == 0 {
        let first = !state.is_off();
        adopt(state, now, first);
    }
    if state.futex != 0 {
        // The answer may have come while it slept.
        let known = futexes::class(state);
        let left = known == FUTEX_IDLE && state.phase() == Phase::Busy;
        if state.is_asleep() && (known == FUTEX_PARK || left) {
            if let Some(turn) = state.sleep_was_park(armed_since()) {
                emit::finished(state, turn);
            }
            if left {
                state.forget_phase();
            } else if state.futex & EPOLL_KEY != 0 {
                state.home = (state.futex as u32).wrapping_add(1);
            } else if state.announced == 0 {
                found_loop(state, PARK_FUTEX, now);
            }
        }
        state.futex = 0;
    }
    if !state.is_off() && state.phase() == Phase::Busy {
        count::one(Counter::SwitchOutMissed);
    }
    let task = task::number(&mut state.task, task);
    let woken = u32::from(state.wake_ns > state.mark_ns);
    state.throttled_ns = quota::quota_arrives(state.slot, task, woken);
    state.waited_ns = 0;
    let slept = state.switch_in(now);
    // Asked about at once: kernels before 6.2 refuse a look at a sleep that is not there, and the
    // compiler would look ahead, over a call, of a later question.
    let Some(slept) = slept else {
        waited(state);
        return;
    };
    waits::end(state, task, slept.cause, slept.ns);
    waited(state);
    if slept.wake_missed {
        count::one(Counter::WakeupMissed);
    }
    let entry = state.off_entry;
    state.weigh(entry, slept.ns);
    send_if_stall(state, entry, now);
}

#[inline(always)]
fn waited(state: &ThreadState) {
    let busy = u32::from(state.phase() == Phase::Busy);
    let (turn, tid) = (state.record.turn.number, state.record.header.tid);
    rivals::rivals_waited(state.slot, turn, state.waited_ns, tid, busy);
}

/// Once a turn is over the threshold its captures are sent: those that wait, then each new one
/// that carries weight.
#[inline(always)]
pub(crate) fn send_if_stall(state: &mut ThreadState, entry: u32, now: u64) {
    let age = state.age(now);
    if age < config!(threshold_ns) {
        return;
    }
    if state.record.turn.open == 0 {
        state.record.turn.open = 1;
        emit::waiting_stacks(state, now);
    } else if let Some(stack) = state.stack(entry) {
        let total = stack.total_ns;
        let pause = now.saturating_sub(state.record.turn.last_sent_ns);
        if total >= age / SIGNIFICANT || pause >= age / SIGNIFICANT {
            emit::stack(state, entry as usize, now);
        }
    }
}

/// Applies what user space found the thread doing when it attached. What it slept in holds only if
/// this is its first event since: `first` says that it is switched in without having been seen to
/// be switched out.
#[inline(always)]
pub(crate) fn adopt(state: &mut ThreadState, now: u64, first: bool) {
    let tid = state.record.header.tid;
    // SAFETY: the value is copied; user space writes it once.
    let Some(found) = (unsafe { ADOPT.get(tid) }).copied() else { return };
    let _ = ADOPT.remove(tid);
    let running = found.cause == ADOPT_RUNNING;
    if !first && !running {
        return;
    }
    if state.slot == 0 {
        take_slot(state);
    }
    // Polls have to prove that they are a loop's; whatever else user space knows to be one.
    let poll = found.cause == ADOPT_PARKED && found.nr as u32 == PARK_POLL;
    state.announced = u32::from(!poll);
    if running {
        // Nothing is known of the time until now.
        state.adopt(now, None);
    } else if found.cause == ADOPT_PARKED {
        state.adopt_parked(found.start_ns);
    } else {
        state.adopt(found.start_ns, Some((found.cause as u8, found.nr)));
    }
}
