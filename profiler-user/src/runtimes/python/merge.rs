//! The interpreter's and the native frames of one thread in one stack. Pure.

use super::frames::PythonCall;
use crate::symbolize::Frame;

/// The function that runs Python code, in every version.
const EVAL: &str = "_PyEval_EvalFrameDefault";
/// Its parts where each instruction is a function of its own (3.14).
const TAIL_CALL: &str = "_TAIL_CALL_";

/// One native frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NativeFrame {
    /// What it shows: the function and what was inlined into it, innermost first.
    pub shown: Vec<Frame>,
    /// The stack pointer in it.
    pub sp: u64,
}

/// Puts the Python frames in the place of the interpreter's loop that ran them. Both go from the
/// leaf outwards; the result goes from the root to the leaf.
///
/// A call with an anchor belongs to the native frame whose stack has that address; others are told
/// by the name of the function. The stacks fit at the leaf: what is missing is cut off at the root.
#[must_use]
pub fn merge(native: &[NativeFrame], calls: &[PythonCall]) -> Vec<Frame> {
    let mut merged: Vec<Frame> = Vec::new();
    let mut calls = calls.iter().peekable();
    for (index, frame) in native.iter().enumerate() {
        let caller = native.get(index + 1);
        let ran = caller.is_some_and(|caller| {
            calls.peek().is_some_and(|call| runs(native, index + 1, call))
                && is_instruction(frame, caller)
        });
        if ran {
            continue;
        }
        match calls.next_if(|call| runs(native, index, call)) {
            Some(call) => {
                merged.extend(call.frames.iter().cloned());
                // Where the loop is small the compiler puts it into what calls it.
                if !is_eval(frame) {
                    merged.extend(frame.shown.iter().cloned());
                }
            }
            None => merged.extend(frame.shown.iter().cloned()),
        }
    }
    merged.extend(calls.flat_map(|call| &call.frames).cloned());
    merged.reverse();
    merged
}

/// Whether a native frame runs a call's frames.
fn runs(native: &[NativeFrame], index: usize, call: &PythonCall) -> bool {
    let Some(frame) = native.get(index) else { return false };
    match call.anchor {
        Some(anchor) => {
            let end = native.get(index + 1).map_or(u64::MAX, |caller| caller.sp);
            (frame.sp..end).contains(&anchor)
        }
        None => is_eval(frame),
    }
}

/// Whether a frame is one instruction's function, called by the interpreter's loop: in stripped
/// binaries it has no name.
fn is_instruction(frame: &NativeFrame, caller: &NativeFrame) -> bool {
    let (Some(frame), Some(caller)) = (frame.shown.last(), caller.shown.last()) else {
        return false;
    };
    frame.function.starts_with(TAIL_CALL) || (!frame.named && frame.module == caller.module)
}

fn is_eval(frame: &NativeFrame) -> bool {
    frame.shown.iter().any(|frame| frame.function.starts_with(EVAL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::FrameKind;
    use std::sync::Arc;

    fn frame(name: &str, kind: FrameKind) -> Frame {
        Frame { kind, ..Frame::of_symbol(Arc::from(name)) }
    }

    /// Native frames of 16 bytes of stack each; a `?` before a name says that it was made up.
    fn native(leaf_first: &[&str]) -> Vec<NativeFrame> {
        let one = |(index, name): (usize, &&str)| {
            let mut shown = frame(name.trim_start_matches('?'), FrameKind::Native);
            shown.named = !name.starts_with('?');
            NativeFrame { shown: vec![shown], sp: index as u64 * 16 }
        };
        leaf_first.iter().enumerate().map(one).collect()
    }

    fn calls(leaf_first: &[(&[&str], Option<u64>)]) -> Vec<PythonCall> {
        let call = |(names, anchor): &(&[&str], Option<u64>)| PythonCall {
            frames: names.iter().map(|name| frame(name, FrameKind::Python)).collect(),
            anchor: *anchor,
        };
        leaf_first.iter().map(call).collect()
    }

    fn names(frames: &[Frame]) -> Vec<&str> {
        frames.iter().map(|frame| &*frame.function).collect()
    }

    #[test]
    fn python_frames_take_the_place_of_the_loop_that_ran_them() {
        let native = native(&["c_encode", EVAL, "task_step", EVAL, "main"]);
        for anchors in [[None, None], [Some(20), Some(56)]] {
            let calls = calls(&[(&["dumps", "handler"], anchors[0]), (&["run"], anchors[1])]);
            let merged = merge(&native, &calls);
            assert_eq!(
                names(&merged),
                ["main", "run", "task_step", "handler", "dumps", "c_encode"]
            );
        }
    }

    #[test]
    fn a_native_stack_that_is_cut_off_keeps_all_python_frames() {
        let calls = calls(&[(&["nap"], None), (&["run"], None), (&["main"], None)]);
        assert_eq!(
            names(&merge(&native(&["sleep", EVAL]), &calls)),
            ["main", "run", "nap", "sleep"]
        );
    }

    #[test]
    fn loops_beyond_the_walked_frames_stay_native() {
        let cut = native(&["sleep", EVAL, "call", EVAL, "main"]);
        let merged = merge(&cut, &calls(&[(&["nap"], None)]));
        assert_eq!(names(&merged), ["main", EVAL, "call", "nap", "sleep"]);
        assert_eq!(names(&merge(&native(&["poll", "main"]), &[])), ["main", "poll"]);
    }

    #[test]
    fn a_loop_that_was_inlined_is_found_by_its_stack() {
        let native = native(&["sleep", "?python3.14+0x10", "Vector", "task_step", "?x", "Code"]);
        let calls = calls(&[(&["nap"], Some(40)), (&["run"], Some(85))]);
        let merged = merge(&native, &calls);
        assert_eq!(names(&merged), ["Code", "run", "task_step", "Vector", "nap", "sleep"]);
    }
}
