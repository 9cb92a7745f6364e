//! One stack: unwound, named, and told what its sleep is.

use profiler_common::arch::UserRegs;

use super::naming::name;
use super::pipeline::Pipeline;
use crate::blame::Runtime;
use crate::events::{CaptureEvent, StackCopy};
use crate::runtimes::{FutexUse, Limiter, NamedPythonStack, Worker, futex_use, stand_in};
use crate::symbolize::Frame;
use crate::unwind::{Registers, StackEnd, UnwoundStack};

impl Pipeline {
    /// Unwinds a stack copy; with mappings read anew if code was loaded since.
    pub fn walk(&mut self, pid: u32, regs: &UserRegs, copy: &StackCopy) -> UnwoundStack {
        let regs = Registers::from_pt_regs(&regs.0);
        let process = self.processes.get(pid, &mut self.symbolizer);
        let mut read = |address| copy.word(address);
        let walked = self.unwinder.unwind(&process.maps, &regs, &mut read);
        if walked.end == StackEnd::NoMapping && self.processes.refresh(pid) {
            let process = self.processes.get(pid, &mut self.symbolizer);
            return self.unwinder.unwind(&process.maps, &regs, &mut read);
        }
        walked
    }

    /// The interpreter's frames of a thread that sleeps.
    pub(super) fn python_of_sleeping(&mut self, pid: u32, tid: u32) -> Option<NamedPythonStack> {
        let process = self.processes.get(pid, &mut self.symbolizer);
        self.python.of_sleeping(process.python.as_ref()?, tid)
    }

    /// The interpreter's frames that the kernel side sent with a question.
    pub(super) fn python_of_question(&mut self, pid: u32, tid: u32) -> Option<NamedPythonStack> {
        let event = self.python_frames.remove(&tid)?;
        let process = self.processes.get(pid, &mut self.symbolizer);
        Some(self.python.name(process.python.as_ref()?, &event))
    }

    /// Threads of the interpreter's pools.
    pub(super) fn workers(&mut self, pid: u32) -> Vec<Worker> {
        let process = self.processes.get(pid, &mut self.symbolizer);
        process.python.as_ref().map(|python| self.python.workers(python)).unwrap_or_default()
    }

    /// What the limiter of AnyIO's worker threads says.
    pub(super) fn limiter(&mut self, pid: u32) -> Option<Limiter> {
        let process = self.processes.get(pid, &mut self.symbolizer);
        self.python.limiter(process.python.as_ref()?)
    }

    /// What a sleep on a futex is, by the runtime of its process.
    pub fn futex_use(&mut self, capture: &CaptureEvent) -> FutexUse {
        let user = self.walk(capture.tgid, &capture.regs, &capture.stack);
        self.classify(capture.tgid, &user)
    }

    /// What a sleep on a futex is, by its stack.
    pub fn classify(&mut self, pid: u32, user: &UnwoundStack) -> FutexUse {
        // Symbols alone are quick and often enough; a park that they show is one.
        let process = self.processes.get(pid, &mut self.symbolizer);
        let runtime = process.runtime.runtime;
        let by_symbols: Vec<Frame> = user
            .frames
            .iter()
            .rev()
            .filter_map(|frame| self.symbolizer.symbol_name(&process.maps, frame.lookup))
            .map(Frame::of_symbol)
            .collect();
        if runtime == Runtime::Tokio && futex_use(runtime, &by_symbols) == FutexUse::Park {
            return FutexUse::Park;
        }
        futex_use(runtime, &self.runtime_frames(pid, user))
    }

    /// A stack's user frames, root to leaf, as far as they tell whose code of the runtime they are.
    pub fn runtime_frames(&mut self, pid: u32, stack: &UnwoundStack) -> Vec<Frame> {
        let process = self.processes.get(pid, &mut self.symbolizer);
        if !process.runtime.stripped {
            return self.user_frames(pid, stack);
        }
        let polls = self.task_polls.get(&pid).map_or(&[][..], Vec::as_slice);
        let functions = stack.frames.iter().rev();
        functions
            .filter_map(|frame| self.unwinder.function(&process.maps, frame.lookup))
            .map(|function| stand_in(&process.maps, function, polls))
            .collect()
    }

    /// Names a stack's user frames, root to leaf.
    pub fn user_frames(&mut self, pid: u32, stack: &UnwoundStack) -> Vec<Frame> {
        let process = self.processes.get(pid, &mut self.symbolizer);
        name(&mut self.symbolizer, &process.maps, stack.frames.iter().map(|f| f.lookup))
    }
}
