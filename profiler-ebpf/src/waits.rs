//! What a turn waits for and who makes it wait: noted while it lasts, sent if it was a stall.
//!
//! A short wait costs a few stores; descriptors are followed and wakers captured only for waits
//! that are a good part of the threshold.
//!
//! Functions without mangled names are verified by themselves, once, as they take numbers only;
//! others would be verified again wherever they are called, on each of the ways that lead there.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{
    bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_probe_read_user,
};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, LruHashMap};
use profiler_common::capture::Capture;
use profiler_common::cause;
use profiler_common::layout::Layout;
use profiler_common::record::KIND_WAITS;
use profiler_common::turn::{NO_ENTRY, STACKS, ThreadState};
use profiler_common::waits::{Notes, Other, Stopper, Waits, Wake, Waker};

use crate::maps::config;
use crate::object::{field, pointer};
use crate::switch::{STATE_FROZEN, is_frozen_v2};
use crate::task::{self, Task};
use crate::{emit, faults, resources, target, wakes};

/// Where fields lie in this kernel, set before loading.
#[unsafe(no_mangle)]
pub(crate) static LAYOUT: Layout = Layout::UNKNOWN;

macro_rules! layout {
    ($field:ident) => {
        $crate::maps::constant(&$crate::waits::LAYOUT.$field)
    };
}
pub(crate) use layout;

#[map]
pub(crate) static NOTES: Array<Notes> = Array::with_max_entries(32, 0);
#[map]
pub(crate) static WAKES: Array<Wake> = Array::with_max_entries(32, 0);
/// The stack of the thread that ended the longest wait for a lock.
#[map]
pub(crate) static HOLDERS: Array<Capture> = Array::with_max_entries(32, 0);
/// The last stop signal sent to a process.
#[map]
pub(crate) static STOPPERS: LruHashMap<u32, Stopper> = LruHashMap::with_max_entries(1024, 0);

/// Waits below this part of the threshold are not worth a look.
const SIGNIFICANT: u64 = 8;
/// `__TASK_TRACED`
const STATE_TRACED: u32 = 8;
#[inline(always)]
pub(crate) fn notes(slot: u32) -> Option<&'static mut Notes> {
    // SAFETY: only the slot's own thread's events use its notes. Slots count from 1; without one the
    // index is beyond the array.
    NOTES.get_ptr_mut(slot.wrapping_sub(1)).map(|notes| unsafe { &mut *notes })
}

/// The notes of a thread's turn: blank if they are of another.
#[inline(always)]
pub(crate) fn notes_of_turn(slot: u32, number: u64) -> Option<&'static mut Notes> {
    let notes = notes(slot)?;
    if notes.waits.header.extra != number {
        let throttled_ns = notes.throttled_ns;
        // SAFETY: integers and arrays of integers, for which zero is valid.
        *notes = unsafe { core::mem::zeroed() };
        notes.throttled_ns = throttled_ns;
        notes.waits.header.extra = number;
    }
    Some(notes)
}

#[inline(always)]
pub(crate) fn is_significant(ns: u64) -> bool {
    ns >= config!(threshold_ns) / SIGNIFICANT
}

/// The current task.
#[inline(always)]
pub(crate) fn current() -> Other {
    // SAFETY: the helper has no preconditions.
    let ids = unsafe { bpf_get_current_pid_tgid() };
    let mut other = Other { tgid: (ids >> 32) as u32, tid: ids as u32, ..Other::default() };
    // SAFETY: the buffer has the size that is passed.
    unsafe { bpf_get_current_comm((&raw mut other.comm).cast(), other.comm.len() as u32) };
    other
}

/// Any task.
#[inline(always)]
pub(crate) fn other(task: Task) -> Other {
    Other {
        tgid: task::tgid(task),
        tid: task::tid(task),
        comm: field(task, layout!(task_comm), [0; 16]),
    }
}

/// A sleep in a turn begins. The current task is the one that sleeps, so its memory can be read.
#[inline(always)]
pub(crate) fn begin(state: &ThreadState, cause: u8, nr: i32, sleep_state: u32) {
    let turn = state.record.turn.number;
    let (futex, how) = (state.futex, u64::from(sleep_state) << 32 | u64::from(nr as u32));
    waits_begin(state.slot, turn, u32::from(cause), how, futex);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn waits_begin(slot: u32, turn: u64, cause: u32, how: u64, futex: u64) -> u32 {
    let Some(notes) = notes_of_turn(slot, turn) else { return 0 };
    // SAFETY: the helper has no preconditions.
    let ids = unsafe { bpf_get_current_pid_tgid() };
    notes.tid = ids as u32;
    notes.described = 0;
    notes.address = 0;
    if cause == u32::from(cause::SYSCALL) {
        resources::resource_ask(slot, how as u32);
    } else if cause == u32::from(cause::LOCK) {
        notes.address = futex;
        let words = (&raw mut notes.words).cast();
        let bytes = size_of_val(&notes.words) as u32;
        // SAFETY: a checked read of the size of the destination.
        let failed = unsafe { bpf_probe_read_user(words, bytes, futex as *const c_void) };
        notes.readable = u32::from(failed == 0);
    } else if cause == u32::from(cause::STOPPED) {
        stopped((ids >> 32) as u32, &mut notes.waits, (how >> 32) as u32);
    }
    0
}

#[inline(always)]
fn stopped(tgid: u32, waits: &mut Waits, sleep_state: u32) {
    let task = task::current();
    if sleep_state & STATE_FROZEN != 0 || is_frozen_v2(task) {
        waits.frozen = 1;
    } else if sleep_state & STATE_TRACED != 0 {
        waits.tracer = other(pointer(task, layout!(task_parent)));
    } else if let Some(stopper) = unsafe { STOPPERS.get(tgid) } {
        waits.stopper = stopper.who;
        waits.stop_signal = stopper.signal;
    }
}

/// A sleep in a turn has ended.
#[inline(always)]
pub(crate) fn end(state: &ThreadState, task: u64, cause: u8, ns: u64) {
    let (slot, turn) = (state.slot, state.record.turn.number);
    if cause == cause::SYSCALL && (state.record.turn.open != 0 || is_significant(ns)) {
        resources::keep(slot, turn, ns, state.wake_ns, task);
    } else if cause == cause::FAULT && is_significant(ns) {
        faults::keep(slot, turn, ns, state.wake_ns, task);
    } else if cause == cause::LOCK && is_significant(ns) {
        waits_keep_lock(slot, turn, ns, state.wake_ns);
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn waits_keep_lock(slot: u32, turn: u64, ns: u64, wake_ns: u64) -> u32 {
    let Some(notes) = notes(slot) else { return 0 };
    if notes.waits.header.extra != turn {
        return 0;
    }
    let lock = &mut notes.waits.lock;
    if ns <= lock.ns || notes.address == 0 {
        return 0;
    }
    lock.ns = ns;
    lock.address = notes.address;
    lock.words = notes.words;
    lock.readable = notes.readable;
    lock.stack = waiting_stack(notes.tid);
    note_waker_of(slot, wake_ns, &mut lock.waker);
    0
}

/// The number of the stack that a thread waited in.
#[inline(always)]
pub(crate) fn waiting_stack(tid: u32) -> u32 {
    let Some(state) = target::thread(tid) else { return NO_STACK };
    let entry = state.off_entry as usize & (STACKS - 1);
    if state.off_entry == NO_ENTRY { NO_STACK } else { state.record.turn.stacks[entry].id }
}

/// The stack has no number.
pub(crate) const NO_STACK: u32 = u32::MAX;

/// Notes who woke a thread at that time, if it was seen. In place: what passes by value takes stack,
/// of which the programs have 512 bytes from the first function to the last.
#[inline(always)]
pub(crate) fn note_waker_of(slot: u32, wake_ns: u64, waker: &mut Waker) {
    if let Some(wake) = WAKES.get(slot.wrapping_sub(1))
        && wake.waker.time_ns == wake_ns
    {
        *waker = wake.waker;
    } else {
        *waker = Waker::default();
    }
}

/// Sends what is known of the turn that has just ended.
#[inline(always)]
pub(crate) fn send(state: &ThreadState) {
    let header = &state.record.header;
    waits_send(state.slot, state.record.turn.number, header.tgid, header.tid);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn waits_send(slot: u32, turn: u64, tgid: u32, tid: u32) -> u32 {
    let Some(notes) = notes(slot) else { return 0 };
    if notes.waits.header.extra == turn {
        resources::send(notes, slot, turn, tgid, tid);
        notes.waits.header.kind = KIND_WAITS;
        notes.waits.header.tgid = tgid;
        notes.waits.header.tid = tid;
        emit::record(&notes.waits);
    }
    if let Some(wake) = WAKES.get(slot.wrapping_sub(1))
        && wake.holder_turn == turn
    {
        wakes::send_holder(slot.wrapping_sub(1));
    }
    0
}
