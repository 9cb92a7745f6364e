//! One capture's frames with names.

use std::collections::HashMap;
use std::sync::Arc;

use profiler_common::python::{
    OWNED_BY_C, PYTHON_BROKEN, PYTHON_COLLECTING, PYTHON_HOLDER_BROKEN, PYTHON_TRUNCATED,
    PythonFrame,
};

use super::code::{Code, Codes, TAGS};
use super::copies::Copies;
use super::inside::Site;
use super::interpreter::Interpreter;
use super::memory::TextShape;
use super::threads::Threads;
use crate::events::PythonEvent;
use crate::symbolize::{Frame, FrameKind, Origin, foreign_python};

/// `CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR`
const COROUTINE: u32 = 0x80 | 0x100 | 0x200;

/// What one call of the interpreter's loop runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PythonCall {
    /// Its frames, innermost first.
    pub frames: Vec<Frame>,
    /// An address on the C stack inside of that call, where one is known.
    pub anchor: Option<u64>,
}

/// What asyncio was running.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PythonTask {
    /// The task's name; `None` if there is no task, or it is not known.
    pub name: Option<Arc<str>>,
    /// Coroutines on the stack, outermost first.
    pub chain: Vec<Arc<str>>,
}

/// The interpreter's frames of one capture.
#[derive(Debug, Clone, Default)]
pub struct NamedPythonStack {
    /// Frames by the call of the interpreter's loop that ran them, innermost call first.
    pub calls: Vec<PythonCall>,
    /// Why outer frames are missing.
    pub truncated: Option<&'static str>,
    /// The task.
    pub task: PythonTask,
    /// Whether the collector was running.
    pub collecting: bool,
    /// Who held the interpreter's lock.
    pub holder: Option<LockHolder>,
    /// Where each frame is, innermost first.
    sites: Vec<Site>,
    leaf: Option<Leaf>,
}

/// The thread that had the interpreter's lock when another began to wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Its thread id in the initial namespace.
    pub tid: u32,
    /// Number of the system call that it slept in with the lock; `None` if it is not known to have slept.
    pub asleep_in: Option<u32>,
    /// Its frames, root to leaf; empty if it ran on while they were read.
    pub frames: Vec<Frame>,
}

/// The innermost frame's code, for samples that differ from the capture in their line only.
#[derive(Debug, Clone)]
struct Leaf {
    code: Arc<Code>,
    copies: Option<Copies>,
}

impl NamedPythonStack {
    /// Where each frame is, innermost first; `None` unless the thread's first is among them.
    #[must_use]
    pub fn sites(&self) -> Option<&[Site]> {
        (self.truncated.is_none() && !self.sites.is_empty()).then_some(&self.sites[..])
    }

    /// The frames with another instruction in the innermost one: its distance from the code object.
    #[must_use]
    pub fn at(&self, instr: u32) -> Vec<PythonCall> {
        let mut calls = self.calls.clone();
        if let Some(Leaf { code, copies }) = &self.leaf
            && let Some(frame) = calls.first_mut().and_then(|call| call.frames.first_mut())
        {
            let own = copies.as_ref().map_or(Some(instr), |copies| copies.in_object(instr));
            frame.line = own.and_then(|instr| code.line_of(u64::from(instr)));
        }
        calls
    }
}

/// Names frames, and counts those that could not be named.
#[derive(Debug, Default)]
pub struct PythonFrames {
    pub(super) codes: Codes,
    pub(super) threads: Threads,
    /// AnyIO's limiters, by process.
    pub(super) limiters: HashMap<u32, u64>,
    /// Frames whose code object was gone when its name was looked for.
    pub unresolved: u64,
    /// Stacks of holders that changed while they were read.
    pub torn_holders: u64,
    /// Stacks that could not be read to their end.
    pub broken: u64,
}

impl PythonFrames {
    /// Names what the kernel side walked. To be asked soon: code objects are freed.
    pub fn name(&mut self, of: &Interpreter, event: &PythonEvent) -> NamedPythonStack {
        let mut named = NamedPythonStack {
            collecting: event.flags & PYTHON_COLLECTING != 0,
            ..NamedPythonStack::default()
        };
        if event.flags & PYTHON_BROKEN != 0 {
            self.broken += 1;
            named.truncated = Some("an interpreter's frame could not be read");
        } else if event.flags & PYTHON_TRUNCATED != 0 {
            named.truncated = Some("more interpreter's frames than are walked");
        }
        let mut call = Vec::new();
        let frames = event.frames.iter().map(|&frame| of.straightened(frame));
        for (index, frame) in frames.enumerate() {
            let frame = &frame;
            if is_shim(of, frame) {
                let frames = std::mem::take(&mut call);
                named.calls.push(PythonCall { frames, anchor: Some(frame.instr) });
                continue;
            }
            let code = self.codes.get(of, frame);
            named.sites.push(Site::of(frame, code.as_deref()));
            match &code {
                Some(code) => {
                    if code.flags & COROUTINE != 0 {
                        named.task.chain.push(Arc::clone(&code.name));
                    }
                    if index == 0 {
                        let copies = Copies::read(of, frame.code & !TAGS);
                        named.leaf = Some(Leaf { code: Arc::clone(code), copies });
                    }
                }
                None => self.unresolved += 1,
            }
            call.push(shown(code.as_deref(), frame));
            if ends_call_after(of, frame) {
                named.calls.push(PythonCall { frames: std::mem::take(&mut call), anchor: None });
            }
        }
        if !call.is_empty() {
            named.calls.push(PythonCall { frames: call, anchor: None });
        }
        // Some versions have such a frame below all others.
        while named.calls.last().is_some_and(|call| call.frames.is_empty()) {
            named.calls.pop();
        }
        named.task.chain.reverse();
        if event.task != 0 {
            named.task.name = task_name(of, &event.name).map(Arc::from);
        }
        named.holder = self.holder(of, event);
        named
    }

    /// Names the frames of a thread that sleeps, without the kernel side.
    pub fn of_sleeping(&mut self, of: &Interpreter, tid: u32) -> Option<NamedPythonStack> {
        let (thread, _) = of
            .threads()
            .into_iter()
            .find(|&(_, pthread)| self.threads.find(of, pthread) == Some(tid))?;
        let event = of.walk(tid, thread);
        (!event.frames.is_empty()).then(|| self.name(of, &event))
    }

    /// The holder runs while its frames are read: they count only if the chain is whole and every
    /// code object is what it was.
    fn holder(&mut self, of: &Interpreter, event: &PythonEvent) -> Option<LockHolder> {
        if event.holder == 0 {
            return None;
        }
        let tid = self.threads.find(of, event.holder)?;
        let walked = event.holder_frames.iter().filter(|frame| !is_shim(of, frame));
        let frames: Option<Vec<_>> = walked
            .map(|frame| self.codes.get(of, frame).map(|code| shown(Some(&code), frame)))
            .collect();
        let frames = frames.filter(|_| event.flags & PYTHON_HOLDER_BROKEN == 0);
        let mut frames = frames.unwrap_or_default();
        if frames.is_empty() {
            self.torn_holders += 1;
        }
        frames.reverse();
        Some(LockHolder { tid, asleep_in: event.holder_nr, frames })
    }

    /// Forgets a process.
    pub fn forget(&mut self, pid: u32) {
        self.codes.forget(pid);
        self.threads.forget(pid);
        self.limiters.remove(&pid);
    }
}

/// Whether a frame only marks that the C stack goes on behind it.
pub(super) fn is_shim(of: &Interpreter, frame: &PythonFrame) -> bool {
    of.offsets.minor >= 12 && frame.mark >= OWNED_BY_C
}

/// Whether a frame is the outermost one that its call of the interpreter's loop runs.
fn ends_call_after(of: &Interpreter, frame: &PythonFrame) -> bool {
    match of.offsets.minor {
        ..=10 => true,
        11 => frame.mark != 0,
        _ => false,
    }
}

pub(super) fn shown(code: Option<&Code>, frame: &PythonFrame) -> Frame {
    let (function, file, line) = match code {
        Some(code) => (Arc::clone(&code.name), Some(Arc::clone(&code.file)), code.line(frame)),
        None => (Arc::from("python code that is gone"), None, None),
    };
    Frame {
        user_code: file.as_deref().is_some_and(|file| !foreign_python(file)),
        function,
        file,
        line,
        module: None,
        kind: FrameKind::Python,
        inlined: false,
        named: code.is_some(),
        origin: Origin::default(),
    }
}

/// The name of a task from the copy of the object that names it: a text, or from 3.12 on the number
/// that a default name is made of.
fn task_name(of: &Interpreter, object: &[u8]) -> Option<String> {
    let word = |at: usize| {
        object.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes)
    };
    let header = usize::from(of.offsets.header());
    match of.memory.name_of_type(&of.offsets, word(header - 8)?)?.as_str() {
        "str" => {
            let shape = TextShape::of(&of.offsets, object)?;
            let data = object.get(usize::from(shape.data)..)?;
            match shape.decode(data) {
                Some(name) => Some(crate::symbolize::printable(&name).into_owned()),
                None => Some(format!("{}…", String::from_utf8_lossy(data))),
            }
        }
        // One digit of 30 bits: `lv_tag` (3.12) or `ob_size` says how many.
        "int" => word(header + 8).map(|digit| format!("Task-{}", digit & 0x3fff_ffff)),
        _ => None,
    }
}
