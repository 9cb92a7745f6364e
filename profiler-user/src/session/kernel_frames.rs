//! Kernel frames for people: without the measurement's own, outermost first.

use std::sync::Arc;

use crate::symbolize::{Frame, FrameKind};

/// Functions in which a thread leaves the CPU: the program that captured the stack runs inside.
const SWITCH: [&str; 9] = [
    "__schedule",
    "schedule",
    "schedule_timeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "schedule_preempt_disabled",
    "io_schedule",
    "io_schedule_timeout",
    "preempt_schedule_common",
];
/// What every system call has in common at its outer end.
const ENTRY: [&str; 6] = [
    "entry_SYSCALL_64_after_hwframe",
    "entry_SYSCALL_64",
    "do_syscall_64",
    "x64_sys_call",
    "asm_exc_page_fault",
    "ret_from_fork_asm",
];

/// Takes frames innermost first and returns them outermost first.
#[must_use]
pub(super) fn outermost_first(mut frames: Vec<Frame>) -> Vec<Frame> {
    let last_switch = frames
        .iter()
        .take(16)
        .rposition(|frame| SWITCH.contains(&&*frame.function))
        .map_or(0, |index| index + 1);
    frames.drain(..last_switch);
    // Interrupt frames on top of a sample are those of the sampling itself.
    frames.retain(|frame| !ENTRY.contains(&&*frame.function));
    frames.reverse();
    frames
}

/// Frames from names as `/proc/PID/task/TID/stack` gives them, innermost first.
#[must_use]
pub(super) fn from_names(names: &[String]) -> Vec<Frame> {
    let frame = |name: &String| Frame {
        function: Arc::from(name.as_str()),
        file: None,
        line: None,
        module: Some(Arc::from("[kernel]")),
        kind: FrameKind::Kernel,
        inlined: false,
        user_code: false,
        named: true,
    };
    outermost_first(names.iter().map(frame).collect())
}
