//! What a system call that sleeps was asked to do, and what its descriptor stands for: noted for the
//! longest sleeps of a turn.
//!
//! What the call was given is copied when the sleep begins, as the thread's memory can be read then;
//! the descriptor is followed when it ends, if it was long enough to be worth it.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_probe_read_user, bpf_probe_read_user_str};
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use profiler_common::arch::{
    TAKES_CLOCK_AND_TIME, TAKES_FD, TAKES_FD_AND_ADDRESS, TAKES_FD_AND_LATE_ADDRESS, TAKES_FD_LIST,
    TAKES_FD_SETS, TAKES_FOLDER_AND_PATH, TAKES_PATH, TAKES_TIME, UserRegs, takes,
};
use profiler_common::record::KIND_RESOURCE;
use profiler_common::waits::{GIVEN_BYTES, Notes, Object, RESOURCES, Resource};

use crate::object::{self, pointer};
use crate::task::{self, Task};
use crate::waits::{layout, note_waker_of, notes};
use crate::{emit, walk};

#[map]
pub(crate) static RESOURCE_RECORDS: Array<Resource> = Array::with_max_entries(160, 0);

/// `AT_FDCWD`
const CURRENT_FOLDER: i32 = -100;
/// The sleep was shorter than those that are kept.
pub(crate) const NOT_KEPT: u32 = u32::MAX;

/// Notes what a system call was asked to do.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn resource_ask(slot: u32, nr: u32) -> u32 {
    let nr = nr as i32;
    let Some(notes) = notes(slot) else { return 0 };
    let Some(resource) = resource(slot, notes.spare) else { return 0 };
    // The registers pass through where the answer goes: on the stack they would be too large.
    // SAFETY: the buffer is aligned to 8 bytes and larger; every byte pattern is valid.
    let regs = unsafe { &mut *(&raw mut resource.given).cast::<UserRegs>() };
    if !task::current_regs(regs) {
        return 0;
    }
    resource.args = regs.args();
    let args = &resource.args;
    let class = takes(i64::from(nr));
    resource.nr = nr;
    resource.given_len = 0;
    resource.walked_len = 0;
    resource.fd = -1;
    notes.described = 1;
    let given = (&raw mut resource.given).cast::<u8>();
    let mut from = 0_u64;
    let mut bytes = 0_u32;
    if class == TAKES_FD || class == TAKES_FD_AND_ADDRESS || class == TAKES_FD_AND_LATE_ADDRESS {
        resource.fd = args[0] as i32;
    }
    if class == TAKES_PATH || class == TAKES_FOLDER_AND_PATH {
        let path = if class == TAKES_PATH { args[0] } else { args[1] };
        // SAFETY: a checked read of at most the destination's size.
        let copied = unsafe {
            bpf_probe_read_user_str(given.cast(), GIVEN_BYTES as u32, path as *const c_void)
        };
        if copied > 0 {
            resource.given_len = copied as u32;
        }
    } else if class == TAKES_TIME {
        (from, bytes) = (args[0], 16);
    } else if class == TAKES_CLOCK_AND_TIME {
        (from, bytes) = (args[2], 16);
    } else if class == TAKES_FD_AND_ADDRESS {
        (from, bytes) = (args[1], args[2] as u32);
    } else if class == TAKES_FD_AND_LATE_ADDRESS {
        (from, bytes) = (args[4], args[5] as u32);
    } else if class == TAKES_FD_LIST {
        (from, bytes) = (args[0], (args[1] as u32).wrapping_mul(8));
    } else if class == TAKES_FD_SETS {
        (from, bytes) = (if args[1] != 0 { args[1] } else { args[2] }, 120);
    }
    if from == 0 {
        return 0;
    }
    if bytes > 127 {
        bytes = 120;
    }
    // Through memory, so that the compiler can't know the bound and the verifier sees the mask.
    // SAFETY: a valid reference.
    let bytes = unsafe {
        core::ptr::write_volatile(&raw mut resource.given_len, bytes);
        core::ptr::read_volatile(&raw const resource.given_len) & 127
    };
    // SAFETY: a checked read of less than the destination's size.
    if unsafe { bpf_probe_read_user(given.cast(), bytes, from as *const c_void) } != 0 {
        resource.given_len = 0;
    } else if class == TAKES_FD_LIST && bytes >= 8 {
        // SAFETY: four bytes were just written there.
        resource.fd = unsafe { given.cast::<i32>().read_unaligned() };
    } else if class == TAKES_FD_SETS {
        // SAFETY: more bytes were just written there.
        let first = unsafe { given.cast::<u64>().read_unaligned() };
        if first != 0 {
            resource.fd = first.trailing_zeros() as i32;
        }
    }
    0
}

#[inline(always)]
pub(crate) fn resource(slot: u32, index: u32) -> Option<&'static mut Resource> {
    if index >= RESOURCES as u32 {
        return None;
    }
    // SAFETY: only the slot's own thread's events use its resources.
    RESOURCE_RECORDS.get_ptr_mut(place(slot, index)).map(|resource| unsafe { &mut *resource })
}

#[inline(always)]
fn place(slot: u32, index: u32) -> u32 {
    slot.wrapping_sub(1).wrapping_mul(RESOURCES as u32).wrapping_add(index)
}

/// Keeps what a system call slept for and describes it, if this was the longest sleep in it.
#[inline(always)]
pub(crate) fn keep(slot: u32, turn: u64, ns: u64, wake_ns: u64, task: u64) {
    let at = resource_keep(slot, turn, ns, wake_ns);
    if at != NOT_KEPT {
        resource_describe(at, task);
    }
}

/// Returns the number of the resource that is to be described.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn resource_keep(slot: u32, turn: u64, ns: u64, wake_ns: u64) -> u32 {
    let Some(notes) = notes(slot) else { return NOT_KEPT };
    let spare = notes.spare;
    let Some(resource) = resource(slot, spare) else { return NOT_KEPT };
    if notes.described == 0 || notes.waits.header.extra != turn {
        return NOT_KEPT;
    }
    notes.described = 0;
    let nr = resource.nr;
    // The next spare one: that of the same call, else a free one, else that of the shortest sleep.
    let mut next = RESOURCES as u32;
    let mut least = u64::MAX;
    for index in 0..RESOURCES {
        if index as u32 == spare {
            continue;
        }
        let kept = notes.kept_ns[index];
        if kept != 0 && notes.kept_nr[index] == nr {
            next = index as u32;
            least = kept;
            break;
        }
        if kept < least {
            next = index as u32;
            least = kept;
        }
    }
    if ns <= least && least != 0 {
        return NOT_KEPT;
    }
    if next as usize >= RESOURCES || spare as usize >= RESOURCES {
        return NOT_KEPT;
    }
    notes.kept_ns[next as usize] = 0;
    notes.kept_ns[spare as usize] = ns;
    notes.kept_nr[spare as usize] = nr;
    notes.spare = next;
    resource.slept_ns = ns;
    note_waker_of(slot, wake_ns, &mut resource.waker);
    place(slot, spare)
}

/// Describes what the sleep of a kept resource was for.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn resource_describe(at: u32, task: u64) -> u32 {
    let task = task as Task;
    // SAFETY: only the slot's own thread's events use its resources.
    let Some(resource) = RESOURCE_RECORDS.get_ptr_mut(at).map(|resource| unsafe { &mut *resource })
    else {
        return 0;
    };
    resource.walked_len = 0;
    resource.object = Object::NONE;
    let class = takes(i64::from(resource.nr));
    if class == TAKES_PATH || class == TAKES_FOLDER_AND_PATH {
        let absolute = resource.given_len > 0 && resource.given[0] == b'/';
        if absolute {
            return 0;
        }
        let folder = if class == TAKES_PATH { CURRENT_FOLDER } else { resource.args[0] as i32 };
        if folder == CURRENT_FOLDER {
            let fs = pointer(task, layout!(task_fs));
            let start = walk::Place {
                dentry: pointer(fs, layout!(fs_pwd_dentry)),
                mount: pointer(fs, layout!(fs_pwd_mount)),
            };
            walk::up(resource, task, start);
            return 0;
        }
        resource.fd = folder;
    }
    object::describe(resource, task);
    0
}

/// Sends the resources that are kept.
#[inline(always)]
pub(crate) fn send(notes: &Notes, slot: u32, turn: u64, tgid: u32, tid: u32) {
    for index in 0..RESOURCES {
        if notes.kept_ns[index] != 0 && index as u32 != notes.spare {
            if let Some(resource) = resource(slot, index as u32) {
                resource.header.kind = KIND_RESOURCE;
                resource.header.tgid = tgid;
                resource.header.tid = tid;
                resource.header.extra = turn;
                emit::record(resource);
            }
        }
    }
}
