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
        origin: crate::symbolize::Origin::default(),
    };
    outermost_first(names.iter().map(frame).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(innermost_first: &[&str]) -> Vec<String> {
        let names: Vec<_> = innermost_first.iter().map(|name| (*name).to_owned()).collect();
        from_names(&names).iter().map(|frame| frame.function.to_string()).collect()
    }

    #[test]
    fn a_sleep_shows_what_it_waited_in_and_not_how() {
        let seen = functions(&[
            "bpf_prog_sched_switch",
            "bpf_trace_run4",
            "__schedule",
            "schedule",
            "do_nanosleep",
            "hrtimer_nanosleep",
            "__x64_sys_nanosleep",
            "do_syscall_64",
            "entry_SYSCALL_64_after_hwframe",
        ]);
        assert_eq!(seen, ["__x64_sys_nanosleep", "hrtimer_nanosleep", "do_nanosleep"]);
    }

    #[test]
    fn a_sample_in_the_kernel_keeps_its_innermost_frame() {
        let seen =
            functions(&["copy_page_range", "copy_process", "__x64_sys_clone", "do_syscall_64"]);
        assert_eq!(seen, ["__x64_sys_clone", "copy_process", "copy_page_range"]);
    }

    #[test]
    fn a_scheduler_function_far_out_is_no_switch() {
        // A workqueue's stack may have one below what counts; only the innermost part is ours.
        let mut names = vec!["leaf"; 16];
        names.push("schedule");
        assert_eq!(functions(&names).len(), 17);
    }

    #[test]
    fn nothing_is_left_of_a_preempted_thread_and_of_no_stack() {
        assert!(functions(&["__schedule", "asm_exc_page_fault"]).is_empty());
        assert!(functions(&[]).is_empty());
    }

    #[test]
    fn frames_are_the_kernels_and_never_the_users() {
        let frames = from_names(&["do_nanosleep".to_owned()]);
        let frame = frames.first().expect("one frame");
        assert_eq!((frame.kind, frame.user_code, frame.named), (FrameKind::Kernel, false, true));
        assert_eq!(frame.module.as_deref(), Some("[kernel]"));
    }
}
