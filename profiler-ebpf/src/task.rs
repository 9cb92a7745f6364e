//! Reading `task_struct`, at the offsets that the running kernel's BTF gave.

use aya_ebpf::helpers::generated::{
    bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_task_pt_regs,
};
use profiler_common::arch::{KERNEL_STACK_BYTES, REGS_BYTES, UserRegs};

use crate::maps::config;

/// Address of a `task_struct`.
pub(crate) type Task = *const u8;

/// A value at a kernel address; `default` if it can't be read.
#[inline(always)]
pub(crate) unsafe fn read<T: Copy>(address: *const u8, default: T) -> T {
    let mut value = default;
    // SAFETY: the helper checks the source; the destination is this frame's.
    unsafe {
        bpf_probe_read_kernel((&raw mut value).cast(), size_of::<T>() as u32, address.cast());
    }
    value
}

/// A task's address as a number, by way of memory: functions that are verified by themselves take no
/// pointers.
#[inline(always)]
pub(crate) fn number(aside: &mut u64, task: Task) -> u64 {
    // SAFETY: a valid reference; volatile so that it really goes through memory.
    unsafe {
        core::ptr::write_volatile(aside, task.addr() as u64);
        core::ptr::read_volatile(aside)
    }
}

/// Process id.
#[inline(always)]
pub(crate) fn tgid(task: Task) -> u32 {
    // SAFETY: a checked read at the field's offset.
    unsafe { read(task.wrapping_add(config!(task_tgid) as usize), 0) }
}

/// Thread id.
#[inline(always)]
pub(crate) fn tid(task: Task) -> u32 {
    // SAFETY: as above.
    unsafe { read(task.wrapping_add(config!(task_pid) as usize), 0) }
}

/// State bits; the field is a `long` before Linux 5.14, whose low half is read here.
#[inline(always)]
pub(crate) fn state(task: Task) -> u32 {
    // SAFETY: as above.
    unsafe { read(task.wrapping_add(config!(task_state) as usize), 0) }
}

/// Job control bits.
#[inline(always)]
pub(crate) fn jobctl(task: Task) -> u64 {
    // SAFETY: as above.
    unsafe { read(task.wrapping_add(config!(task_jobctl) as usize), 0) }
}

/// The scheduler's time of the task's last accounting.
#[inline(always)]
pub(crate) fn exec_start(task: Task) -> u64 {
    // SAFETY: as above.
    unsafe { read(task.wrapping_add(config!(task_exec_start) as usize), 0) }
}

/// CPU time that the scheduler has charged to the task; up to date when it is switched out, up to a
/// tick old while it runs.
#[inline(always)]
pub(crate) fn sum_exec(task: Task) -> u64 {
    // SAFETY: as above.
    unsafe { read(task.wrapping_add(config!(task_sum_exec) as usize), 0) }
}

/// The thread pointer of the current thread (`pthread_self` of the C libraries); 0 if it is not known.
#[inline(always)]
pub(crate) fn thread_pointer() -> u64 {
    let offset = config!(task_thread_pointer) as usize;
    if offset == 0 {
        return 0;
    }
    // SAFETY: as above.
    unsafe { read(current().wrapping_add(offset), 0) }
}

/// The current task.
#[inline(always)]
pub(crate) fn current() -> Task {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_current_task() as Task }
}

/// User registers of the current thread.
#[inline(always)]
pub(crate) fn current_regs(regs: &mut UserRegs) -> bool {
    let source = if config!(has_task_pt_regs) != 0 {
        // SAFETY: the helper gets the current task as the verifier demands.
        unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) as *const u8 }
    } else {
        stack_top_regs(current())
    };
    copy_regs(source, regs)
}

/// User registers of another thread, which is not running.
#[inline(always)]
pub(crate) fn regs_of(task: Task, regs: &mut UserRegs) -> bool {
    let source = if config!(has_task_pt_regs) != 0 {
        // SAFETY: the iterator's context gives a trusted task.
        unsafe { bpf_task_pt_regs(task.cast_mut().cast()) as *const u8 }
    } else {
        stack_top_regs(task)
    };
    copy_regs(source, regs)
}

/// Where the registers lie before Linux 5.15 gave a helper for it: at the top of the kernel stack.
#[inline(always)]
fn stack_top_regs(task: Task) -> *const u8 {
    // SAFETY: a checked read at the field's offset.
    let stack: u64 = unsafe { read(task.wrapping_add(config!(task_stack) as usize), 0) };
    (stack + KERNEL_STACK_BYTES - REGS_BYTES) as *const u8
}

#[inline(always)]
fn copy_regs(source: *const u8, regs: &mut UserRegs) -> bool {
    // SAFETY: a checked read of the size of the destination.
    unsafe { bpf_probe_read_kernel((&raw mut *regs).cast(), REGS_BYTES as u32, source.cast()) == 0 }
}
