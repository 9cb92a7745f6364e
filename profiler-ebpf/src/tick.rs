//! Samples of a loop thread on CPU, taken only while a turn is old.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use profiler_common::cause;
use profiler_common::counters::Counter;
use profiler_common::record::{Header, KIND_LEAF, Leaf};
use profiler_common::turn::{NO_ENTRY, Phase};

use crate::capture::{self, Subject};
use crate::maps::config;
use crate::{count, emit, switch, target, task};

/// Samples of one turn are thinned to this many while it doubles its age.
const SAMPLES_PER_DOUBLING: u64 = 128;

#[inline(always)]
pub(crate) fn tick(ctx: *mut c_void) {
    // SAFETY: the helpers have no preconditions.
    let (pid_tgid, now) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_ns()) };
    let tid = pid_tgid as u32;
    if !target::may_be((pid_tgid >> 32) as u32) {
        return;
    }
    let Some(state) = target::thread(tid) else { return };
    if state.guard != 0 {
        return;
    }
    if state.phase() == Phase::Unknown {
        switch::adopt(state, now, false);
    }
    switch::seen_running(state, task::current(), now);
    state.tick(now, config!(sample_period_ns));
    let age = state.age(now);
    if age < config!(threshold_ns) / 2 {
        return;
    }
    let since_last = now.saturating_sub(state.record.turn.last_sample_ns);
    if since_last < age / SAMPLES_PER_DOUBLING {
        return;
    }
    // SAFETY: the context of a perf event program begins with the interrupted registers.
    let in_kernel = !unsafe { interrupted_in_user(ctx) };
    let nr = if in_kernel {
        if !task::current_regs(&mut state.regs) {
            count::one(Counter::RegistersUnreadable);
            return;
        }
        state.regs.syscall() as i32
    } else {
        -1
    };
    state.version += 1;
    let weight = state.sample(now, in_kernel);
    let subject = Subject { cause: cause::CPU, nr, in_kernel, now };
    let (entry, new, ip) = capture::for_turn(state, ctx, &subject);
    if entry != NO_ENTRY {
        state.weigh(entry, weight);
        if !new
            && age >= config!(threshold_ns)
            && let Some(id) = state.stack(entry).map(|stack| stack.id)
        {
            emit::record(&Leaf {
                header: Header {
                    kind: KIND_LEAF,
                    flags: 0,
                    tgid: state.record.header.tgid,
                    tid,
                    time_ns: now,
                    extra: state.record.turn.number,
                },
                ip: ip.0,
                weight_ns: weight,
                id,
                instr: crate::python::leaf(state),
            });
        }
        switch::send_if_stall(state, entry, now);
    }
    state.version += 1;
}

/// Whether the tick interrupted user mode.
#[inline(always)]
unsafe fn interrupted_in_user(ctx: *mut c_void) -> bool {
    // SAFETY: `struct bpf_perf_event_data` begins with `struct pt_regs`; the caller passes it.
    let regs = unsafe { &*ctx.cast::<profiler_common::arch::UserRegs>() };
    regs.is_user()
}
