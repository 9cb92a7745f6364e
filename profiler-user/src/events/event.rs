//! What the kernel side tells, as types of its own.

use profiler_common::arch::UserRegs;
use profiler_common::capture::{Capture, CaptureHead, PAGE};
use profiler_common::python::{PythonFrame, PythonHead, PythonStack};
use profiler_common::record::KIND_CAPTURE;
use profiler_common::turn::Turn;
use profiler_common::waits::{Resource, Waits};

use super::decode::DecodeError;

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A thread turned out to run a loop.
    LoopFound {
        /// Process.
        tgid: u32,
        /// Thread.
        tid: u32,
        /// Class of its park: `PARK_*`.
        class: u32,
        /// When it parked.
        time_ns: u64,
    },
    /// A stack of a stall.
    Capture(Box<CaptureEvent>),
    /// A sleep on a futex that may be a park.
    FutexQuestion {
        /// Address of the futex.
        address: u64,
        /// The sleeping thread's stack.
        capture: Box<CaptureEvent>,
    },
    /// What a system call of a stall waited for.
    Resource(Box<Resource>),
    /// Who made a stalled thread wait.
    Waits(Box<Waits>),
    /// The stack of the thread that ended a stall's longest wait for a lock.
    Holder {
        /// The thread that waited.
        waiter: u32,
        /// The other's stack.
        capture: Box<CaptureEvent>,
    },
    /// The interpreter's frames of the next capture of the same thread.
    Python(Box<PythonEvent>),
    /// A sample with a known stack.
    Leaf(LeafEvent),
    /// A stall has ended.
    Turn(Box<TurnEvent>),
    /// A thread or process was created.
    Fork {
        /// Process of the new thread.
        tgid: u32,
        /// The new thread.
        tid: u32,
        /// Whether it is a new process.
        new_process: bool,
    },
    /// A process runs another program.
    Exec {
        /// The process.
        tgid: u32,
    },
    /// A thread exited.
    Exit {
        /// Process.
        tgid: u32,
        /// Thread.
        tid: u32,
    },
    /// A thread's state when stallscope attached.
    Snapshot(Box<SnapshotEvent>),
}

/// Registers, kernel frames and a copy of the user stack.
#[derive(Debug, Clone)]
pub struct CaptureEvent {
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Turn it belongs to.
    pub turn: u64,
    /// Number of the stack in its turn.
    pub id: u32,
    /// A cause, as a number.
    pub cause: u8,
    /// System call, negative if none.
    pub nr: i32,
    /// Whether a sample interrupted the kernel.
    pub in_kernel: bool,
    /// What the stack accounted for when it was sent.
    pub total_ns: u64,
    /// Sleeps or samples when it was sent.
    pub count: u32,
    /// User registers.
    pub regs: UserRegs,
    /// Kernel frames, innermost first.
    pub kernel: Vec<u64>,
    /// The copied stack.
    pub stack: StackCopy,
    /// The interpreter's frames.
    pub python: Option<Box<PythonEvent>>,
}

/// An interpreter's frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PythonEvent {
    /// Thread.
    pub tid: u32,
    /// Turn they belong to.
    pub turn: u64,
    /// Number of the stack in its turn.
    pub id: u32,
    /// `PYTHON_*` of `profiler_common::python`.
    pub flags: u32,
    /// Frames, innermost first.
    pub frames: Vec<PythonFrame>,
    /// What `pthread_self` gives in the thread that had the interpreter's lock; 0 if there is none.
    pub holder: u64,
    /// Its frames, innermost first.
    pub holder_frames: Vec<PythonFrame>,
    /// System call that the holder sleeps in while it has the lock, if it is known to sleep.
    pub holder_nr: Option<u32>,
    /// The current task; 0 if there is none.
    pub task: u64,
    /// Copy of the object that names it.
    pub name: Vec<u8>,
}

impl PythonEvent {
    /// Frames that lie in their buffer still.
    #[must_use]
    pub fn waiting(stack: &PythonStack) -> Self {
        Self::new(&stack.head, &stack.stack)
    }

    pub(super) fn new(head: &PythonHead, frames: &[PythonFrame]) -> Self {
        let own = (head.frames as usize).min(frames.len());
        let all = own.saturating_add(head.holder_frames as usize).min(frames.len());
        Self {
            tid: head.header.tid,
            turn: head.header.extra,
            id: head.id,
            flags: head.header.flags,
            frames: frames[..own].to_vec(),
            holder: head.holder,
            holder_nr: head.holder_call.checked_sub(1),
            holder_frames: frames[own..all].to_vec(),
            task: head.task,
            name: head.name_bytes.iter().flat_map(|word| word.to_le_bytes()).collect(),
        }
    }
}

impl CaptureEvent {
    /// A capture that lies in its buffer still.
    ///
    /// # Errors
    /// Its length makes no sense: it is being overwritten.
    pub fn waiting(capture: &Capture) -> Result<Self, DecodeError> {
        let bytes = capture.head.bytes as usize;
        let too_short = DecodeError::TooShort { kind: KIND_CAPTURE, bytes };
        if !(size_of::<CaptureHead>()..=size_of::<Capture>()).contains(&bytes) {
            return Err(too_short);
        }
        let pages = capture.pages.as_flattened();
        let copied = pages.get(..bytes - size_of::<CaptureHead>()).ok_or(too_short)?;
        Ok(Self::new(&capture.head, copied))
    }

    pub(super) fn new(head: &CaptureHead, copied: &[u8]) -> Self {
        let frames = (head.kernel_len as usize).min(head.kernel.len());
        Self {
            tgid: head.header.tgid,
            tid: head.header.tid,
            turn: head.turn,
            id: head.id,
            cause: u8::try_from(head.cause).unwrap_or(u8::MAX),
            nr: head.nr,
            in_kernel: head.in_kernel != 0,
            total_ns: head.total_ns,
            count: head.count,
            regs: head.regs,
            kernel: head.kernel[..frames].to_vec(),
            stack: StackCopy { base: head.base, mask: head.mask, bytes: copied.to_vec() },
            python: None,
        }
    }
}

/// A copy of a user stack, possibly with holes.
#[derive(Debug, Clone, Default)]
pub struct StackCopy {
    base: u64,
    mask: u32,
    bytes: Vec<u8>,
}

impl StackCopy {
    /// A copy of memory from `base` up, without holes.
    #[must_use]
    pub fn new(base: u64, mut bytes: Vec<u8>) -> Self {
        bytes.truncate(PAGE * 32);
        Self { base, mask: u32::MAX, bytes }
    }

    /// The word at an address; `None` where nothing was copied.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let end = at.checked_add(8)?;
        let whole = |byte: usize| self.mask >> (byte / PAGE).min(31) & 1 != 0;
        let word = self.bytes.get(at..end)?;
        (whole(at) && whole(end - 1)).then(|| word.try_into().ok().map(u64::from_le_bytes))?
    }
}

/// A sample whose stack is known but for its innermost address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafEvent {
    /// Thread.
    pub tid: u32,
    /// Turn.
    pub turn: u64,
    /// Number of the stack in its turn.
    pub id: u32,
    /// Instruction pointer.
    pub ip: u64,
    /// Distance of the interpreter's instruction from its code object, or its index.
    pub instr: u32,
    /// CPU time since the sample before.
    pub weight_ns: u64,
}

/// A stall that has ended, as the kernel counted it.
#[derive(Debug, Clone)]
pub struct TurnEvent {
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// When it ended.
    pub end_ns: u64,
    /// `FLAG_*` of `profiler_common::record`.
    pub flags: u32,
    /// The turn.
    pub turn: Turn,
}

/// What a thread was doing when stallscope attached.
#[derive(Debug, Clone)]
pub struct SnapshotEvent {
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// When it was taken.
    pub time_ns: u64,
    /// `task_struct.__state`; 0 is runnable.
    pub state: u32,
    /// How long it had not run, by the scheduler's clock; a lower bound.
    pub idle_ns: u64,
    /// User registers.
    pub regs: UserRegs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_in_a_stack_copy_is_not_read() {
        let copy = StackCopy { base: 0x1000, mask: 0b101, bytes: vec![1; 3 * PAGE] };
        assert_eq!(copy.word(0x1000), Some(0x0101_0101_0101_0101));
        assert_eq!(copy.word(0x2000), None);
        assert_eq!(copy.word(0x1ffc), None);
        assert_eq!(copy.word(0x3ff8), Some(0x0101_0101_0101_0101));
        assert_eq!(copy.word(0x3ffc), None);
        assert_eq!(copy.word(0xfff), None);
    }
}
