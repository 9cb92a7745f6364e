//! Which code is to blame: the user's own innermost frame that holds the most of the cause.

use std::collections::HashMap;

use super::{Blocker, Stack, doing};
use crate::stalls::{Cause, Ledger};
use crate::symbolize::{Frame, FrameKind};

/// A stack whose frames have names, before equal ones are merged.
pub type NamedStack = Stack;

/// The code to blame for a stall, if any can be.
///
/// Stacks are grouped by the function of their innermost user frame: a loop that spins over ten
/// lines is one culprit, not ten. The line is the heaviest one in that function.
#[must_use]
pub fn blocker(
    cause: Cause,
    detail: Option<&str>,
    ledger: &Ledger,
    stacks: &[Stack],
) -> Option<Blocker> {
    if !cause.has_blocker() {
        return None;
    }
    /// Time of a function, and of its lines.
    type Held<'a> = (u64, Vec<(&'a Frame, u64)>);
    let mut functions: HashMap<(&str, Option<&str>), Held<'_>> = HashMap::new();
    for stack in stacks.iter().filter(|stack| stack.cause == cause) {
        let frame = match cause {
            // Who waits for the lock is its victim.
            Cause::Gil => stack.holder.as_ref().and_then(|holder| culprit(&holder.frames)),
            _ if detail == Some("gc") => {
                doing::v8_collector(stack).or_else(|| collector(&stack.frames))
            }
            _ => culprit(&stack.frames),
        };
        let Some(frame) = frame else { continue };
        let group = functions.entry((&frame.function, frame.file.as_deref())).or_default();
        group.0 += stack.total_ns;
        match group.1.iter_mut().find(|(known, _)| known.line == frame.line) {
            Some((_, ns)) => *ns += stack.total_ns,
            None => group.1.push((frame, stack.total_ns)),
        }
    }
    // The name breaks a tie, so that the same stall always gets the same verdict.
    let (_, (total, lines)) =
        functions.into_iter().max_by_key(|((name, _), (ns, _))| (*ns, std::cmp::Reverse(*name)))?;
    let (frame, _) =
        lines.into_iter().max_by_key(|(frame, ns)| (*ns, std::cmp::Reverse(frame.line)))?;
    let of_cause = ledger.get(cause);
    let share = if of_cause == 0 { 0.0 } else { (total as f64 / of_cause as f64).min(1.0) };
    Some(Blocker {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        kind: frame.kind,
        share,
    })
}

/// The innermost frame of the user's own code; without one the innermost that has a name and does
/// not belong to the kernel.
pub(super) fn culprit(frames: &[Frame]) -> Option<&Frame> {
    let inner_first = || frames.iter().rev();
    // What code without a name did is not its caller's fault.
    if let Some(frame) = inner_first()
        .find(|frame| frame.kind == FrameKind::Python && (frame.user_code || !frame.named))
        && !frame.named
    {
        return Some(frame);
    }
    inner_first()
        .find(|frame| frame.user_code && frame.named)
        .or_else(|| inner_first().find(|frame| frame.user_code))
        .or_else(|| {
            inner_first().find(|f| f.named && f.kind != FrameKind::Kernel && !serves_all(f))
        })
        .or_else(|| inner_first().find(|f| f.named && f.kind != FrameKind::Kernel))
        .or_else(|| inner_first().find(|frame| frame.named))
}

/// Whether a frame is of the C library or of the event loop's own library: every program waits there,
/// so it says less than its caller.
fn serves_all(frame: &Frame) -> bool {
    let module = frame.module.as_deref().unwrap_or_default();
    let file = module.rsplit('/').next().unwrap_or(module);
    ["libc.", "libc-", "libpthread", "ld-linux", "ld-musl", "[vdso]"]
        .iter()
        .any(|name| file.starts_with(name))
        || frame.function.starts_with("uv_")
}

/// The function of the garbage collector that code of the interpreter called: whoever allocated
/// when it was due is not to blame. A collection that the code asked for is the caller's.
fn collector(frames: &[Frame]) -> Option<&Frame> {
    let python = frames.iter().rposition(|frame| frame.kind == FrameKind::Python);
    let native = &frames[python.map_or(0, |index| index + 1)..];
    let called = |frame: &&Frame| matches!(&*frame.function, "gc_collect" | "gc_collect_impl");
    if native.iter().any(|frame| called(&frame)) {
        return culprit(frames);
    }
    const COLLECTOR: [&str; 4] = ["gc_collect_", "collect_", "_PyGC_", "_Py_RunGC"];
    // Without symbols it is what the interpreter's code called; without that nobody knows.
    let unnamed = || native.iter().find(|f| python.is_some() && f.kind == FrameKind::Native);
    native
        .iter()
        .find(|f| f.named && COLLECTOR.iter().any(|name| f.function.starts_with(name)))
        .or_else(unnamed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn code_outside_of_the_collector_is_no_collector() {
        let native = |name: &str| Frame::of_symbol(Arc::from(name));
        let stack = |names: &[&str], ns| {
            let frames = names.iter().map(|name| native(name)).collect();
            Stack::new(Cause::Cpu, ns, 1, frames)
        };
        let stacks = [
            stack(&["_start", "main", "Builtins_ArrayPush"], 30),
            stack(&["_start", "main", "v8::internal::Heap::CollectGarbage", "mark"], 20),
        ];
        let mut ledger = Ledger::default();
        ledger.add(Cause::Cpu, 50);
        let blamed = blocker(Cause::Cpu, Some("gc"), &ledger, &stacks).expect("the collector");
        assert_eq!(&*blamed.function, "v8::internal::Heap::CollectGarbage");
        assert!(blocker(Cause::Cpu, Some("gc"), &ledger, &stacks[..1]).is_none());
    }

    fn frame(function: &str, line: u32, user_code: bool) -> Frame {
        Frame {
            function: Arc::from(function),
            file: Some(Arc::from("src/main.rs")),
            line: Some(line),
            module: None,
            kind: FrameKind::Native,
            inlined: false,
            user_code,
            named: true,
            origin: crate::symbolize::Origin::default(),
        }
    }

    fn stack(cause: Cause, total_ns: u64, frames: Vec<Frame>) -> Stack {
        Stack::new(cause, total_ns, 1, frames)
    }

    #[test]
    fn a_caller_is_not_blamed_for_code_that_is_gone() {
        let python = |named, user_code| Frame {
            kind: FrameKind::Python,
            named,
            ..frame("python", 1, user_code)
        };
        let gone = [python(true, true), python(false, false), frame("__select", 2, false)];
        assert!(!culprit(&gone).expect("a frame").named);
        let around = [python(false, false), python(true, true), python(true, false)];
        assert!(
            culprit(&around).expect("a frame").user_code,
            "it is further out than what is known"
        );
    }

    #[test]
    fn the_function_that_holds_the_most_is_blamed_at_its_heaviest_line() {
        let mut ledger = Ledger::default();
        ledger.add(Cause::Cpu, 100);
        let stacks = vec![
            stack(Cause::Cpu, 30, vec![frame("other", 1, true)]),
            stack(Cause::Cpu, 20, vec![frame("spin", 5, true), frame("std::f", 9, false)]),
            stack(Cause::Cpu, 25, vec![frame("spin", 6, true)]),
            stack(Cause::Syscall, 999, vec![frame("reader", 7, true)]),
        ];
        let blocker = blocker(Cause::Cpu, None, &ledger, &stacks).expect("a blocker");
        assert_eq!((&*blocker.function, blocker.line), ("spin", Some(6)));
        assert!((blocker.share - 0.45).abs() < 1e-9);
    }

    #[test]
    fn nobody_is_blamed_for_being_kept_from_running() {
        let mut ledger = Ledger::default();
        ledger.add(Cause::Runqueue, 100);
        let stacks = vec![stack(Cause::Runqueue, 100, vec![frame("victim", 1, true)])];
        for cause in [Cause::Runqueue, Cause::Throttled, Cause::Stopped, Cause::Unexplained] {
            assert!(blocker(cause, None, &ledger, &stacks).is_none());
        }
    }

    #[test]
    fn without_user_code_the_innermost_named_frame_is_blamed() {
        let mut ledger = Ledger::default();
        ledger.add(Cause::Syscall, 10);
        let mut unnamed = frame("libx.so+0x10", 0, false);
        unnamed.named = false;
        let frames = vec![frame("main", 1, false), frame("nanosleep", 2, false), unnamed];
        let found = blocker(Cause::Syscall, None, &ledger, &[stack(Cause::Syscall, 10, frames)]);
        assert_eq!(&*found.expect("a blocker").function, "nanosleep");
    }
}
