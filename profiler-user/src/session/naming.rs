//! Captured stacks to named ones: native, interpreter's and kernel frames in one.

use std::collections::HashMap;

use super::kernel_frames;
use super::pipeline::{Pipeline, Walked, syscall_name};
use crate::binaries::ProcessMaps;
use crate::blame::{Holder, NO_NAME, Runtime, Stack, Task};
use crate::runtimes::{self, LockHolder, NativeFrame, PythonTask, merge};
use crate::stalls::{Captured, Cause};
use crate::symbolize::{Frame, Symbolizer};

/// A stack with names, and what decides on the verdict beside it.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) stack: Stack,
    /// The system call it was in.
    pub(super) call: Option<&'static str>,
    /// The task that ran.
    pub(super) task: PythonTask,
    /// Whether the garbage collector was running.
    pub(super) collecting: bool,
}

/// Time and samples.
type Weight = (u64, u32);

/// An address, and the interpreter's instruction where that is another than the capture's.
type Place = (Option<u64>, Option<u32>);

impl Pipeline {
    /// Names one captured stack. Samples that differ in their innermost place become stacks of
    /// their own; stacks that read the same are one. `innermost` are frames of the kernel that were not
    /// captured. Returns the place of the last one.
    pub(super) fn named_stacks(
        &mut self,
        pid: u32,
        captured: &Captured<Walked>,
        innermost: &[Frame],
        named: &mut Vec<Named>,
    ) -> Option<usize> {
        let Walked { user, kernel, python } = &captured.stack;
        let leaf = user.frames.first().map(|frame| frame.lookup);
        let leaf_sp = user.frames.first().map_or(0, |frame| frame.sp);
        if leaf.is_none() && python.is_none() {
            return None;
        }
        let mut last = None;
        let callers = user.frames.iter().skip(1).map(|frame| (frame.lookup, frame.sp));
        let outer = self.native(pid, callers.collect());
        let kernel = self.kernel(kernel);
        let holder = python.as_ref().and_then(|python| python.holder.clone());
        let holder = holder.map(|LockHolder { tid, asleep_in, frames }| {
            let thread = self.processes.thread_name(pid, tid);
            let asleep_in = asleep_in.map(|nr| syscall_name(nr.cast_signed()));
            Holder { tid, thread, asleep_in, frames }
        });
        for ((ip, instr), (total_ns, samples)) in places(captured, leaf) {
            let mut native = self.native(pid, ip.into_iter().map(|ip| (ip, leaf_sp)).collect());
            native.extend(outer.iter().cloned());
            let calls = match (python, instr) {
                (Some(python), Some(instr)) => python.at(instr),
                (Some(python), None) => python.calls.clone(),
                (None, _) => Vec::new(),
            };
            let mut frames = merge(&native, &calls);
            frames.extend(kernel.iter().chain(innermost).cloned());
            let call = captured.nr.map(syscall_name);
            let task = python.as_ref().map(|python| python.task.clone()).unwrap_or_default();
            let collecting = python.as_ref().is_some_and(|python| python.collecting);
            let same = |one: &Named| {
                one.stack.cause == captured.cause
                    && one.call == call
                    && one.stack.frames == frames
                    && one.task == task
                    && one.collecting == collecting
                    && same_holder(one.stack.holder.as_ref(), holder.as_ref())
            };
            last = named.iter().position(same).or(Some(named.len()));
            if let Some(one) = last.and_then(|at| named.get_mut(at)) {
                one.stack.total_ns += total_ns;
                one.stack.samples = one.stack.samples.saturating_add(samples);
                if let (Some(known), Some(again)) = (&mut one.stack.holder, &holder) {
                    known.asleep_in = known.asleep_in.or(again.asleep_in);
                }
                continue;
            }
            named.push(Named {
                stack: Stack {
                    call,
                    truncated: user.end.reason().or(python.as_ref().and_then(|p| p.truncated)),
                    holder: holder.clone(),
                    ..Stack::new(captured.cause, total_ns, samples, frames)
                },
                call,
                task,
                collecting,
            });
        }
        last
    }

    /// Frames of a thread by itself, root to leaf, the kernel's last.
    pub(super) fn frames_of(
        &mut self,
        pid: u32,
        nr: Option<i32>,
        stack: Walked,
        innermost: &[Frame],
    ) -> Vec<Frame> {
        let captured = Captured {
            id: 0,
            cause: Cause::Lock,
            nr,
            total_ns: 1,
            max_ns: 1,
            count: 1,
            leaves: Vec::new(),
            stack,
        };
        let mut named = Vec::new();
        self.named_stacks(pid, &captured, innermost, &mut named);
        named.pop().map(|one| one.stack.frames).unwrap_or_default()
    }

    /// Names native frames, each as a group of its own, in the order in which they are given.
    fn native(&mut self, pid: u32, frames: Vec<(u64, u64)>) -> Vec<NativeFrame> {
        let process = self.processes.get(pid, &mut self.symbolizer);
        let symbolizer = &mut self.symbolizer;
        let named = |(lookup, sp)| {
            let shown = symbolizer.frames(&process.maps, lookup);
            NativeFrame { shown, sp }
        };
        frames.into_iter().map(named).collect()
    }

    /// Names kernel frames, outermost first, without those of the measurement itself.
    pub(super) fn kernel(&mut self, addresses: &[u64]) -> Vec<Frame> {
        let frames: Vec<_> =
            addresses.iter().map(|&address| self.symbolizer.kernel_frame(address)).collect();
        kernel_frames::outermost_first(frames)
    }
}

/// The innermost places of a stack with their weights, in the order of their addresses.
fn places(captured: &Captured<Walked>, leaf: Option<u64>) -> Vec<(Place, Weight)> {
    let in_leaves: u64 = captured.leaves.iter().map(|leaf| leaf.weight_ns).sum();
    let own = captured.total_ns.saturating_sub(in_leaves);
    let own_samples = captured.count.saturating_sub(captured.leaves.len() as u32);
    let mut places: HashMap<Place, Weight> = HashMap::new();
    places.insert((leaf, None), (own, own_samples));
    for other in &captured.leaves {
        let instr = captured.stack.python.is_some().then_some(other.instr);
        let weight = places.entry((Some(other.ip), instr)).or_default();
        weight.0 += other.weight_ns;
        weight.1 += 1;
    }
    let mut places: Vec<_> = places.into_iter().filter(|(_, w)| w.0 > 0 || w.1 > 0).collect();
    places.sort_unstable();
    places
}

/// Names addresses, given leaf first, as frames from the root to the leaf.
pub(super) fn name(
    symbolizer: &mut Symbolizer,
    maps: &ProcessMaps,
    leaf_first: impl IntoIterator<Item = u64>,
) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for address in leaf_first {
        frames.extend(symbolizer.frames(maps, address));
    }
    frames.reverse();
    frames
}

/// Whether two are one, whatever the system call it was in.
fn same_holder(one: Option<&Holder>, other: Option<&Holder>) -> bool {
    let key = |holder: &'_ Holder| (holder.tid, holder.frames.clone());
    one.map(key) == other.map(key)
}

/// Time of a cause during which the garbage collector was running.
pub(super) fn collecting(cause: Cause, named: &[Named]) -> u64 {
    let collected = named.iter().filter(|one| one.stack.cause == cause && one.collecting);
    collected.map(|one| one.stack.total_ns).sum()
}

/// What a stack's frames tell of its task.
pub(super) fn task_of(runtime: Runtime, named: &Named) -> Option<Task> {
    if runtime == Runtime::Tokio {
        return runtimes::task_of(&named.stack.frames);
    }
    let task = &named.task;
    if task.name.is_none() && task.chain.is_empty() {
        return None;
    }
    // A coroutine that runs outside of a known task has no name of its own.
    let name = task.name.as_deref().unwrap_or(NO_NAME).to_owned();
    Some(Task { name, chain: task.chain.iter().map(|name| name.to_string()).collect() })
}
