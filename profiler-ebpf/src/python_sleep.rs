//! CPython: whether the thread that has the interpreter's lock sleeps in a system call.

use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;
use profiler_common::arch::PTHREAD_TID;
use profiler_common::cause;
use profiler_common::layout::ABSENT;
use profiler_common::python::inner_key;

use crate::object::{self, pointer};
use crate::python::{interpreter, read};
use crate::target;
use crate::task::Task;
use crate::waits::layout;

/// Threads of processes in a PID namespace of their own, by [`inner_key`].
#[map]
static INNER_TIDS: LruHashMap<u64, u32> = LruHashMap::with_max_entries(4096, 0);
/// `sizeof(struct upid)`, which begins with the number.
const NUMBER_BYTES: u32 = 16;
/// `MAX_PID_NS_LEVEL`
const NAMESPACES_MAX: u32 = 32;
/// No sleep that is known.
pub(crate) const AWAKE: u64 = u64::MAX;
/// Which sleep in a system call a thread is in: the call in the low half, and what tells the sleep from
/// others of the same thread. [`AWAKE`] if it does not sleep, or that is not known.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn python_sleep(tgid: u32, pthread: u64) -> u64 {
    let Some(python) = interpreter(tgid) else { return AWAKE };
    for offset in PTHREAD_TID {
        let mut tid = read(pthread.wrapping_add(offset)) as u32;
        if python.own_ids == 0 {
            // SAFETY: the value is a number.
            tid = unsafe { INNER_TIDS.get(inner_key(tgid, tid)) }.copied().unwrap_or(0);
        }
        let Some(state) = target::thread(tid) else { continue };
        // SAFETY: a plain read of a valid reference; another CPU may be changing it.
        let version = unsafe { core::ptr::read_volatile(&raw const state.version) };
        if state.record.header.tgid == tgid
            && version & 1 == 0
            && state.is_asleep()
            && state.off_nr >= 0
            // What guards the lock's own words is taken for a moment only.
            && state.off_cause != u32::from(cause::GIL)
        {
            return version << 32 | u64::from(state.off_nr.cast_unsigned());
        }
    }
    AWAKE
}

/// A thread of a target began: notes the id that it knows itself by, if that is another than ours.
#[inline(always)]
pub(crate) fn began(thread: Task, tgid: u32, tid: u32) {
    if layout!(task_pid) == ABSENT || layout!(pid_level) == ABSENT || layout!(pid_numbers) == ABSENT
    {
        return;
    }
    let pid = pointer(thread, layout!(task_pid));
    let level: u32 = object::field(pid, layout!(pid_level), 0);
    if level == 0 || level > NAMESPACES_MAX {
        return;
    }
    let inner = layout!(pid_numbers).wrapping_add(level.wrapping_mul(NUMBER_BYTES));
    let inner: u32 = object::field(pid, inner, 0);
    if inner != 0 {
        let _ = INNER_TIDS.insert(inner_key(tgid, inner), tid, 0);
    }
}
