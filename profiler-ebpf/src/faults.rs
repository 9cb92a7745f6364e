//! Which file a page fault waited for.
//!
//! A fault is no system call and leaves its address nowhere, except on the kernel stack of the thread that
//! waits for it: there lies the kernel's own description of the fault (`struct vm_fault`), which begins with
//! the mapping and has the address behind it. What is taken for one must be a mapping of the thread's own
//! memory, and the address must lie in that mapping.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use profiler_common::arch::{KERNEL_STACK_BYTES, REGS_BYTES};
use profiler_common::layout::ABSENT;
use profiler_common::waits::{Object, RESOURCES, Resource};

use crate::maps::{SHARED, config};
use crate::object::{self, field, pointer};
use crate::resources::{self, RESOURCE_RECORDS};
use crate::task::{self, Task};
use crate::waits::{layout, notes, waiting_stack};

/// Bytes of the kernel stack that are copied, from the user's registers down.
const LOOKED_AT: usize = 1024;
/// Where among them the description is looked for, in words from the registers: it lies in the third or
/// fourth frame (40 words in Linux 6.18).
const NEAREST: usize = 16;
const FARTHEST: usize = 80;
const WORDS: usize = LOOKED_AT / 8;
/// Bits that all kernel addresses have, and bits that no user address of a page has: with 57 bits of address
/// (five levels of tables) as with 48.
const KERNEL: u64 = 0xff00_0000_0000_0000;
const NOT_A_USER_PAGE: u64 = KERNEL | 0xfff;

/// A page fault has ended that was long enough to be worth a look.
#[inline(always)]
pub(crate) fn keep(slot: u32, turn: u64, ns: u64, wake_ns: u64, task: u64) {
    if fault_ask(slot) == 0 {
        return;
    }
    let at = resources::resource_keep(slot, turn, ns, wake_ns);
    if at != resources::NOT_KEPT {
        fault_describe(at, task);
    }
}

/// `struct bpf_iter__task`: describes the fault of the one thread that is asked about, while it waits. It
/// goes where no thread's resources are, behind all of them.
#[inline(always)]
pub(crate) fn ask(ctx: *mut c_void) {
    // SAFETY: the layout is the kernel's ABI for this iterator.
    let task: Task = unsafe { *ctx.cast::<Task>().add(1) };
    // SAFETY: user space writes it before it runs this.
    let asked = SHARED.get(3).map_or(0, |tid| unsafe { core::ptr::read_volatile(tid) });
    if task.is_null() || u64::from(task::tid(task)) != asked {
        return;
    }
    let at = config!(max_loops) * RESOURCES as u32;
    // SAFETY: nobody but this program uses it.
    let Some(resource) = RESOURCE_RECORDS.get_ptr_mut(at).map(|resource| unsafe { &mut *resource })
    else {
        return;
    };
    resource.nr = -1;
    resource.header.tid = asked as u32;
    fault_describe(at, task::number(&mut resource.args[1], task));
}

/// Fills in the spare resource for a fault.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fault_ask(slot: u32) -> u32 {
    let Some(notes) = notes(slot) else { return 0 };
    let Some(resource) = resources::resource(slot, notes.spare) else { return 0 };
    resource.nr = -1;
    resource.args[0] = u64::from(waiting_stack(notes.tid));
    resource.given_len = 0;
    resource.walked_len = 0;
    resource.fd = -1;
    notes.described = 1;
    1
}

/// Describes the file behind the mapping that the thread's fault is in.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fault_describe(at: u32, task: u64) -> u32 {
    let task = task as Task;
    // SAFETY: only the slot's own thread's events use its resources.
    let Some(resource) = RESOURCE_RECORDS.get_ptr_mut(at).map(|resource| unsafe { &mut *resource })
    else {
        return 0;
    };
    resource.object = Object::NONE;
    resource.walked_len = 0;
    let file = fault_file(resource, task);
    if !file.is_null() {
        object::describe_file(resource, file, task);
    }
    0
}

/// Whether this is a mapping of that memory and has the address. What is not known reads as zero. One
/// comparison in the end: the verifier would follow each by itself, in each turn of the loop.
#[inline(always)]
fn is_in(mapping: *const u8, memory: u64, address: u64) -> bool {
    let [of, start, end] = [layout!(mapping_memory), layout!(mapping_start), layout!(mapping_end)]
        .map(|offset| word(mapping, offset));
    // Addresses of user space are small: what is smaller than it should be has the highest bit.
    let outside = address.wrapping_sub(start) | end.wrapping_sub(address).wrapping_sub(1);
    (of ^ memory) | (outside >> 63) == 0
}

#[inline(always)]
fn word(base: *const u8, offset: u32) -> u64 {
    // SAFETY: a checked read; where the kernel has no such field, the address is nonsense.
    unsafe { task::read(base.wrapping_add(offset as usize), 0) }
}

/// The file of the mapping; null if it has none, or if the fault was not found.
#[inline(always)]
fn fault_file(resource: &mut Resource, task: Task) -> *const u8 {
    let behind = layout!(fault_address) as usize / 8;
    if layout!(fault_address) == ABSENT || behind == 0 || behind > 15 {
        return core::ptr::null();
    }
    let stack = pointer(task, config!(task_stack));
    let top = stack.wrapping_add((KERNEL_STACK_BYTES - REGS_BYTES) as usize);
    if layout!(mapping_end) == ABSENT || layout!(mapping_start) == ABSENT {
        return core::ptr::null();
    }
    // The copy passes through where a call's arguments in memory would be: a fault has none.
    let words = (&raw mut resource.given).cast::<u64>();
    let from = top.wrapping_sub(LOOKED_AT).cast::<c_void>();
    // SAFETY: a checked read of less than the destination's size.
    if unsafe { bpf_probe_read_kernel(words.cast(), LOOKED_AT as u32, from) } != 0 {
        return core::ptr::null();
    }
    let memory = field(task, layout!(task_memory), 0_u64);
    // From the outermost frame on: what lies further in may be left over from another fault.
    for back in NEAREST..FARTHEST {
        let index = (WORDS - back) & (WORDS - 1);
        // SAFETY: both are within the bytes that were just copied.
        let (mapping, address) =
            unsafe { (*words.add(index), *words.add((index + behind) & (WORDS - 1))) };
        // The highest bits, all of which a kernel address has, and none of which the other may.
        if (!mapping & KERNEL) | (address & NOT_A_USER_PAGE) == 0
            && is_in(mapping as *const u8, memory, address)
        {
            return pointer(mapping as *const u8, layout!(mapping_file));
        }
    }
    core::ptr::null()
}
