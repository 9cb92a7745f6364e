//! CPython: which asyncio task is current.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_common::python::{
    KEYS_LOG2, NAME_BYTES, NO_FIELD, PYTHON_TASKS_UNCLEAR, Python, PythonStack,
};

use crate::python::{field, read};

/// Slots of the smallest dictionary, as a logarithm, and the words of its entries.
const SMALL_DICT_LOG2: u64 = 3;
const ENTRY_BYTES: u32 = 5 * 24;

/// The task that asyncio says is current.
#[inline(always)]
pub(crate) fn find(out: &mut PythonStack, python: &Python, thread: u64) {
    if python.thread_task != NO_FIELD {
        out.head.task = field(thread, python.thread_task);
    } else if python.tasks != 0 {
        only_value(out, python);
    }
    if out.head.task == 0 || python.task_name == NO_FIELD {
        return;
    }
    let name = field(out.head.task, python.task_name);
    out.head.name = name;
    let to = (&raw mut out.head.name_bytes).cast();
    // SAFETY: checked reads of the size of the destination and less.
    unsafe {
        // The object may lie at the end of what is mapped.
        if bpf_probe_read_user(to, NAME_BYTES as u32, name as *const c_void) != 0 {
            bpf_probe_read_user(to, NAME_BYTES as u32 / 2, name as *const c_void);
        }
    }
}

/// The value of a dictionary that has exactly one: a process with one loop has at most one task
/// that runs.
#[inline(always)]
fn only_value(out: &mut PythonStack, python: &Python) {
    let keys = field(python.tasks, python.dict_keys);
    let shape = read(keys.wrapping_add(8));
    let (log2, index_bytes) = if python.keys_kind == KEYS_LOG2 {
        (shape & 0xff, 1 << ((shape >> 8) & 7))
    } else {
        (if shape == 8 { SMALL_DICT_LOG2 } else { 0 }, 8)
    };
    if log2 != SMALL_DICT_LOG2 {
        out.head.header.flags |= PYTHON_TASKS_UNCLEAR;
        return;
    }
    let entries = keys.wrapping_add(u64::from(python.keys_indices)).wrapping_add(index_bytes);
    let to = (&raw mut out.words).cast();
    // SAFETY: a checked read of less than the size of the destination.
    if unsafe { bpf_probe_read_user(to, ENTRY_BYTES, entries as *const c_void) } != 0 {
        out.head.header.flags |= PYTHON_TASKS_UNCLEAR;
        return;
    }
    let mut found = 0;
    let mut values = 0;
    for entry in 0..5 {
        let value = out.words[entry * 3 + 2];
        found |= value;
        values += u32::from(value != 0);
    }
    if values > 1 {
        out.head.header.flags |= PYTHON_TASKS_UNCLEAR;
    } else {
        out.head.task = found;
    }
}
