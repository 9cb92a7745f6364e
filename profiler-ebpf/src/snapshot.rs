//! What the targets' threads are doing at the moment of attaching.

use core::ffi::c_void;

use profiler_common::arch::UserRegs;
use profiler_common::record::{Header, KIND_SNAPSHOT, Snapshot};

use aya_ebpf::helpers::generated::bpf_ktime_get_ns;

use crate::emit;
use crate::target;
use crate::task::{self, Task};

/// `struct bpf_iter__task`: the second field of the context is the task, null at the end.
#[inline(always)]
pub(crate) fn task(ctx: *mut c_void) {
    // SAFETY: the layout is the kernel's ABI for this iterator.
    let task: Task = unsafe { *ctx.cast::<Task>().add(1) };
    if task.is_null() {
        return;
    }
    let tgid = task::tgid(task);
    if !target::may_be(tgid) {
        return;
    }
    let tid = task::tid(task);
    if target::thread(tid).is_none() {
        return;
    }
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let mut snapshot = Snapshot {
        header: Header { kind: KIND_SNAPSHOT, flags: 0, tgid, tid, time_ns: now, extra: 0 },
        state: task::state(task),
        reserved: 0,
        exec_start: task::exec_start(task),
        now_exec_start: task::exec_start(task::current()),
        regs: UserRegs::ZERO,
    };
    if !task::regs_of(task, &mut snapshot.regs) {
        return;
    }
    emit::record(&snapshot);
}
