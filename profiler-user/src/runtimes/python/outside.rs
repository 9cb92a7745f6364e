//! Walks a thread's frames from outside, while it sleeps: what the kernel side does at a capture,
//! for threads that were asleep before stallscope attached and for those of pools.
//!
//! A thread that runs meanwhile gives garbage, of which the identities tell.

use profiler_common::python::{
    NAME_BYTES, NO_FIELD, OWN_FRAMES, OWNED_BY_C, PYTHON_BROKEN, PYTHON_TRUNCATED, PythonFrame,
};

use super::code::identity_of;
use super::interpreter::Interpreter;
use crate::events::PythonEvent;

/// Interpreters and threads that are looked at.
const THREADS_MAX: usize = 4096;

impl Interpreter {
    /// All threads: the `PyThreadState` and what `pthread_self` gives there.
    pub(super) fn threads(&self) -> Vec<(u64, u64)> {
        let (memory, offsets) = (&self.memory, &self.offsets);
        let mut found = Vec::new();
        let mut interp = memory.field(self.runtime(), offsets.interpreters_head).unwrap_or(0);
        while interp != 0 && found.len() < THREADS_MAX {
            let mut thread = memory.field(interp, offsets.interp_threads).unwrap_or(0);
            while thread != 0 && found.len() < THREADS_MAX {
                let Some(pthread) = memory.field(thread, offsets.thread_id) else { break };
                found.push((thread, pthread));
                thread = memory.field(thread, offsets.thread_next).unwrap_or(0);
            }
            interp = memory.field(interp, offsets.interp_next).unwrap_or(0);
        }
        found
    }

    /// The frames of a `PyThreadState`.
    pub(super) fn walk(&self, tid: u32, thread: u64) -> PythonEvent {
        let mut event = PythonEvent { tid, ..PythonEvent::default() };
        let (frames, flags) = self.walk_with_addresses(thread);
        event.flags = flags;
        event.frames = frames.into_iter().map(|(_, frame)| frame).collect();
        if let Some((task, name)) = self.current_task(thread) {
            (event.task, event.name) = (task, name);
        }
        event
    }

    /// The frames of a `PyThreadState` with their addresses, and `PYTHON_*`.
    pub(super) fn walk_with_addresses(&self, thread: u64) -> (Vec<(u64, PythonFrame)>, u32) {
        let (memory, offsets) = (&self.memory, &self.offsets);
        let (mut frames, mut flags) = (Vec::new(), 0);
        let mut next = memory.field(thread, offsets.thread_frame);
        if let Some(inner) = offsets.cframe_frame {
            next = next.and_then(|cframe| memory.field(cframe, inner));
        }
        while let Some(frame) = next.filter(|&frame| frame != 0) {
            if frames.len() >= OWN_FRAMES {
                flags |= PYTHON_TRUNCATED;
                break;
            }
            let Some((read, previous)) = self.frame(frame) else {
                flags |= PYTHON_BROKEN;
                break;
            };
            frames.push((frame, read));
            next = Some(previous);
        }
        if next.is_none() {
            flags |= PYTHON_BROKEN;
        }
        (frames, flags)
    }

    /// The task that asyncio says is current, and a copy of the object that names it.
    fn current_task(&self, thread: u64) -> Option<(u64, Vec<u8>)> {
        let python = self.for_kernel();
        let field = |object: u64, offset: u16| {
            (offset != NO_FIELD).then(|| self.memory.field(object, offset)).flatten()
        };
        let task = if python.tasks != 0 {
            let entries = self.memory.entries(&self.offsets, python.tasks)?;
            // With several loops it is not known which one is this thread's.
            let [(_, task)] = entries[..] else { return None };
            task
        } else {
            field(thread, python.thread_task)?
        };
        let object = field(task, python.task_name)?;
        let mut name = vec![0; NAME_BYTES];
        if !self.memory.fill(object, &mut name) && !self.memory.fill(object, &mut name[..64]) {
            return None;
        }
        Some((task, name))
    }

    /// One frame, and the one that called it.
    fn frame(&self, frame: u64) -> Option<(PythonFrame, u64)> {
        let (memory, offsets) = (&self.memory, &self.offsets);
        let code = memory.field(frame, offsets.frame_code)?;
        let mut instr = memory.field(frame, offsets.frame_instr)?;
        let mark = match offsets.frame_mark {
            Some(mark) => u64::from(
                memory.half(frame + u64::from(mark & !3))? >> (u32::from(mark & 3) * 8) & 0xff,
            ),
            None => {
                instr &= 0xffff_ffff;
                0
            }
        };
        if mark >= OWNED_BY_C {
            instr = frame;
        }
        let identity = identity_of(self, code & !7).unwrap_or(0);
        Some((
            self.straightened(PythonFrame { code, instr, identity, mark }),
            memory.field(frame, offsets.frame_previous)?,
        ))
    }
}
