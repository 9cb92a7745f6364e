//! stallscope's kernel programs: entry points only.
//!
//! Every program first asks whether the thread belongs to a target ([`target`]); for all others
//! nothing is looked up. The turn logic itself is `profiler_common::turn`.
#![no_std]
#![no_main]

mod capture;
mod count;
mod emit;
mod faults;
mod futexes;
mod lifecycle;
mod maps;
mod object;
mod park;
mod python;
mod python_sleep;
mod python_task;
mod quota;
mod ready;
mod resources;
mod rivals;
mod snapshot;
mod switch;
mod target;
mod task;
mod tick;
mod waits;
mod wakes;
mod walk;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::macros::{btf_tracepoint, fentry, perf_event, uprobe};
use aya_ebpf::programs::{BtfTracePointContext, FEntryContext, PerfEventContext, ProbeContext};
use profiler_common::turn::{PARK_EPOLL, PARK_POLL};

/// `(bool preempt, struct task_struct *prev, *next[, unsigned int prev_state])`
#[btf_tracepoint(function = "sched_switch")]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    switch::sched_switch(&ctx);
    0
}

/// `(struct task_struct *p)`
#[btf_tracepoint(function = "sched_waking")]
fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    switch::sched_waking(&ctx);
    0
}

/// `(int sig, struct kernel_siginfo *info, struct task_struct *task, int group, int result)`
#[btf_tracepoint(function = "signal_generate")]
fn signal_generate(ctx: BtfTracePointContext) -> i32 {
    let signal: i32 = ctx.arg(0);
    wakes::signal(signal as u32, ctx.arg(2));
    0
}

/// `(struct pt_regs *regs, long id)`: polls that do not sleep, where fentry is refused.
#[btf_tracepoint(function = "sys_enter")]
fn sys_enter(ctx: BtfTracePointContext) -> i32 {
    let nr: i64 = ctx.arg(1);
    park::sys_enter(nr);
    0
}

macro_rules! park_enter {
    ($($name:ident: $class:expr),+ $(,)?) => {
        $(
            /// `(const struct pt_regs *regs)`: a park system call is entered. User space loads it
            /// with the name this architecture gives the call.
            #[fentry]
            fn $name(_ctx: FEntryContext) -> u32 {
                park::enter($class);
                0
            }
        )+
    };
}

park_enter!(
    park_epoll_wait: PARK_EPOLL,
    park_epoll_pwait: PARK_EPOLL,
    park_epoll_pwait2: PARK_EPOLL,
    park_poll: PARK_POLL,
    park_ppoll: PARK_POLL,
    park_select: PARK_POLL,
    park_pselect6: PARK_POLL,
);

/// `(const struct pt_regs *regs)`: a park only if it waits for completions.
#[fentry]
fn park_io_uring_enter(_ctx: FEntryContext) -> u32 {
    park::enter_io_uring();
    0
}

/// Entry of a function that polls one task: exact boundaries inside a runtime's worker.
#[uprobe]
fn task_poll(_ctx: ProbeContext) -> u32 {
    park::enter_task();
    0
}

/// One per loop thread, while it runs.
#[perf_event]
fn cpu_tick(ctx: PerfEventContext) -> u32 {
    tick::tick(ctx.as_ptr());
    0
}

/// `(struct task_struct *parent, *child)`
#[btf_tracepoint(function = "sched_process_fork")]
fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    lifecycle::fork(ctx.arg(0), ctx.arg(1));
    0
}

/// `(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`
#[btf_tracepoint(function = "sched_process_exec")]
fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
    let old_tid: i32 = ctx.arg(1);
    lifecycle::exec(old_tid as u32);
    0
}

/// `(struct task_struct *p)`
#[btf_tracepoint(function = "sched_process_exit")]
fn sched_process_exit(_ctx: BtfTracePointContext) -> i32 {
    lifecycle::exit();
    0
}

/// Iterator over all threads: what those of the targets are doing when stallscope attaches.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
fn snapshot_tasks(ctx: *mut core::ffi::c_void) -> i32 {
    snapshot::task(ctx);
    0
}

/// Iterator over all threads: what the fault of one of them waits for.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
fn describe_fault(ctx: *mut core::ffi::c_void) -> i32 {
    faults::ask(ctx);
    0
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// `bpf_task_pt_regs` and the ring buffer helpers need it.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
