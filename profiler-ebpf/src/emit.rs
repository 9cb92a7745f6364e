//! Records into the ring buffer.

use aya_ebpf::helpers::generated::bpf_ringbuf_output;
use profiler_common::capture::{BUFFERS, Capture};
use profiler_common::counters::Counter;
use profiler_common::histogram;
use profiler_common::record::{
    FLAG_AT_ATTACH, FLAG_EXACT, FLAG_UNPROVEN, Header, KIND_CAPTURE, KIND_TURN, TurnRecord,
};
use profiler_common::turn::{Finished, NO_BUFFER, NO_ENTRY, STACKS, ThreadState};

use crate::maps::{CAPTURES, EVENTS, HISTOGRAMS, config};
use crate::{count, ready, waits};

/// Sends a record of fixed size.
#[inline(always)]
pub(crate) fn record<T>(value: &T) -> bool {
    // SAFETY: a valid reference of that size.
    unsafe { output((&raw const *value).cast(), size_of::<T>() as u64) }
}

/// Sends a record that is nothing but its header.
#[inline(always)]
pub(crate) fn event(kind: u32, flags: u32, tgid: u32, tid: u32, time_ns: u64, extra: u64) {
    record(&Header { kind, flags, tgid, tid, time_ns, extra });
}

#[inline(always)]
pub(crate) unsafe fn output(data: *const u8, bytes: u64) -> bool {
    let map = (&raw const EVENTS).cast_mut().cast();
    // SAFETY: the caller vouches for the data; the map is a ring buffer.
    let failed = unsafe { bpf_ringbuf_output(map, data.cast_mut().cast(), bytes, 0) } != 0;
    if failed {
        count::one(Counter::RingFull);
    }
    !failed
}

/// Sends a capture from its buffer, with only the pages it has.
#[inline(always)]
pub(crate) fn capture(state: &ThreadState, buffer: u32, kind: u32, total_ns: u64, samples: u32) {
    if state.slot == 0 || buffer >= BUFFERS {
        return;
    }
    let index = (state.slot - 1) * BUFFERS + buffer;
    let Some(capture) = CAPTURES.get_ptr_mut(index) else { return };
    // SAFETY: the buffer belongs to the thread whose event this is.
    let capture = unsafe { &mut *capture };
    capture.head.header.kind = kind;
    capture.head.total_ns = total_ns;
    capture.head.count = samples;
    crate::python::send(state, buffer, capture);
    // The verifier wants the bound right before the use; read it again to keep it there.
    // SAFETY: a plain read of a valid reference.
    let bytes = unsafe { core::ptr::read_volatile(&raw const capture.head.bytes) };
    if bytes as usize > size_of::<Capture>() {
        return;
    }
    // SAFETY: head and pages lie in one buffer, and `bytes` is within it.
    unsafe { output((&raw const *capture).cast(), u64::from(bytes)) };
}

/// Sends one waiting capture, if it is one.
#[inline(always)]
pub(crate) fn stack(state: &mut ThreadState, index: usize, now: u64) {
    if index >= STACKS {
        return;
    }
    let entry = state.record.turn.stacks[index];
    if entry.buffer == NO_BUFFER {
        return;
    }
    let buffer = state.release(index);
    capture(state, buffer, KIND_CAPTURE, entry.total_ns, entry.count);
    state.record.turn.last_sent_ns = now;
}

/// Sends all captures that waited for their turn to become a stall.
#[inline(always)]
pub(crate) fn waiting_stacks(state: &mut ThreadState, now: u64) {
    for buffer in 0..BUFFERS as usize {
        let owner = state.record.turn.owners[buffer];
        if owner != NO_ENTRY {
            stack(state, owner as usize, now);
        }
    }
}

/// Counts a turn that has ended, and sends it if it was a stall.
#[inline(always)]
pub(crate) fn finished(state: &mut ThreadState, turn: Finished) {
    turn_ended(state, turn.ns, turn.end_ns);
}

/// A function of its own: it is called from every program, and large.
#[inline(never)]
fn turn_ended(state: &mut ThreadState, ns: u64, end_ns: u64) {
    let turn = Finished { ns, end_ns };
    // While polls are not watched, what ends may have been many turns.
    let known = state.record.header.flags & (FLAG_EXACT | FLAG_AT_ATTACH) != 0
        || config!(exact) == 0
        || state.record.turn.longest_ns >= config!(threshold_ns);
    if known {
        state.count_length(turn.ns);
    }
    if known
        && state.slot != 0
        && let Some(histogram) = HISTOGRAMS.get_ptr_mut(state.slot - 1)
    {
        let bucket = histogram::bucket(turn.ns);
        if bucket < histogram::BUCKETS {
            // SAFETY: the index is checked; only this thread's events write its histogram.
            unsafe { (*histogram)[bucket] += 1 };
        }
    }
    if turn.ns < config!(threshold_ns) {
        return;
    }
    state.stats.stalls += 1;
    state.stats.stalled_ns += turn.ns;
    count::one(Counter::Stalls);
    waiting_stacks(state, turn.end_ns);
    waits::send(state);
    state.record.turn.ready = ready::ready_sockets(state.home, state.record.header.tid);
    state.record.header.kind = KIND_TURN;
    if state.announced == 0 {
        state.record.header.flags |= FLAG_UNPROVEN;
    }
    // SAFETY: the record is part of the state.
    unsafe { output((&raw const state.record).cast(), size_of::<TurnRecord>() as u64) };
}
