//! One record to one event.

use profiler_common::arch::UserRegs;
use profiler_common::capture::{Capture, CaptureHead, PAGE};
use profiler_common::python::{FRAMES, PythonFrame, PythonHead, PythonStack};
use profiler_common::record::{
    Header, KIND_CAPTURE, KIND_EXEC, KIND_EXIT, KIND_FORK, KIND_FUTEX, KIND_HOLDER, KIND_LEAF,
    KIND_LOOP, KIND_PYTHON, KIND_RESOURCE, KIND_SNAPSHOT, KIND_TURN, KIND_WAITS, Leaf, Snapshot,
    TurnRecord,
};
use profiler_common::turn::Turn;
use profiler_common::waits::{Resource, Waits};
use thiserror::Error;

/// Why a record made no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It is shorter than its kind needs.
    #[error("a record of kind {kind} with {bytes} bytes is too short")]
    TooShort {
        /// Its kind; 0 if not even that was there.
        kind: u32,
        /// Its length.
        bytes: usize,
    },
    /// Nobody knows its kind.
    #[error("a record of unknown kind {0}")]
    UnknownKind(u32),
    /// A duration in it is one of years.
    #[error("a record of kind {0} holds a duration of years")]
    Implausible(u32),
}

/// Longer than two years: no stall is. What is shorter can be added up without a thought.
const IMPLAUSIBLE_NS: u64 = 1 << 56;

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

    fn new(head: &CaptureHead, copied: &[u8]) -> Self {
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

/// Decodes a record.
///
/// # Errors
/// The record is shorter than its kind needs, or of a kind nobody knows.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    let header: Header = read(bytes, 0)?;
    let Header { kind, tgid, tid, .. } = header;
    Ok(match kind {
        KIND_LOOP => Event::LoopFound { tgid, tid, class: header.flags, time_ns: header.time_ns },
        KIND_CAPTURE => Event::Capture(Box::new(capture(bytes, kind)?)),
        KIND_FUTEX => {
            Event::FutexQuestion { address: header.extra, capture: Box::new(capture(bytes, kind)?) }
        }
        KIND_RESOURCE => {
            let resource: Resource = read(bytes, kind)?;
            plausible(kind, [resource.slept_ns])?;
            Event::Resource(Box::new(resource))
        }
        KIND_WAITS => {
            let waits: Waits = read(bytes, kind)?;
            plausible(kind, waits.rivals.iter().map(|rival| rival.ns).chain([waits.lock.ns]))?;
            Event::Waits(Box::new(waits))
        }
        KIND_HOLDER => Event::Holder {
            waiter: u32::try_from(header.extra).unwrap_or(0),
            capture: Box::new(capture(bytes, kind)?),
        },
        KIND_LEAF => {
            let leaf: Leaf = read(bytes, kind)?;
            plausible(kind, [leaf.weight_ns])?;
            Event::Leaf(LeafEvent {
                tid,
                turn: header.extra,
                id: leaf.id,
                ip: leaf.ip,
                instr: leaf.instr,
                weight_ns: leaf.weight_ns,
            })
        }
        KIND_TURN => {
            let record: TurnRecord = read(bytes, kind)?;
            plausible(kind, durations(&record))?;
            Event::Turn(Box::new(TurnEvent {
                tgid,
                tid,
                end_ns: header.time_ns,
                flags: header.flags,
                turn: record.turn,
            }))
        }
        KIND_PYTHON => Event::Python(Box::new(python(bytes, kind)?)),
        KIND_FORK => Event::Fork { tgid, tid, new_process: header.extra != 0 },
        KIND_EXEC => Event::Exec { tgid },
        KIND_EXIT => Event::Exit { tgid, tid },
        KIND_SNAPSHOT => {
            let snapshot: Snapshot = read(bytes, kind)?;
            Event::Snapshot(Box::new(SnapshotEvent {
                tgid,
                tid,
                time_ns: header.time_ns,
                state: snapshot.state,
                idle_ns: snapshot.now_exec_start.saturating_sub(snapshot.exec_start),
                regs: snapshot.regs,
            }))
        }
        other => return Err(DecodeError::UnknownKind(other)),
    })
}

fn capture(bytes: &[u8], kind: u32) -> Result<CaptureEvent, DecodeError> {
    let head: CaptureHead = read(bytes, kind)?;
    plausible(kind, [head.total_ns])?;
    Ok(CaptureEvent::new(&head, &bytes[size_of::<CaptureHead>()..]))
}

impl PythonEvent {
    /// Frames that lie in their buffer still.
    #[must_use]
    pub fn waiting(stack: &PythonStack) -> Self {
        Self::new(&stack.head, &stack.stack)
    }

    fn new(head: &PythonHead, frames: &[PythonFrame]) -> Self {
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

fn python(bytes: &[u8], kind: u32) -> Result<PythonEvent, DecodeError> {
    let head: PythonHead = read(bytes, kind)?;
    let frames = bytes[size_of::<PythonHead>()..].chunks_exact(size_of::<PythonFrame>());
    let frames: Result<Vec<PythonFrame>, _> =
        frames.take(FRAMES).map(|frame| read(frame, kind)).collect();
    Ok(PythonEvent::new(&head, &frames?))
}

fn durations(record: &TurnRecord) -> impl Iterator<Item = u64> {
    let turn = &record.turn;
    let whole = record.header.time_ns.saturating_sub(turn.start_ns);
    let stacks = turn.stacks.iter().flat_map(|stack| [stack.total_ns, stack.max_ns]);
    let syscalls = turn.syscalls.iter().flat_map(|slept| [slept.total_ns, slept.max_ns]);
    [whole, turn.longest_ns].into_iter().chain(turn.ledger).chain(stacks).chain(syscalls)
}

fn plausible(kind: u32, durations: impl IntoIterator<Item = u64>) -> Result<(), DecodeError> {
    if durations.into_iter().any(|ns| ns >= IMPLAUSIBLE_NS) {
        return Err(DecodeError::Implausible(kind));
    }
    Ok(())
}

/// Marks types whose every byte pattern is valid.
trait Plain: Copy {}
impl Plain for Header {}
impl Plain for CaptureHead {}
impl Plain for Leaf {}
impl Plain for PythonFrame {}
impl Plain for PythonHead {}
impl Plain for TurnRecord {}
impl Plain for Snapshot {}
impl Plain for Resource {}
impl Plain for Waits {}

fn read<T: Plain>(bytes: &[u8], kind: u32) -> Result<T, DecodeError> {
    if bytes.len() < size_of::<T>() {
        return Err(DecodeError::TooShort { kind, bytes: bytes.len() });
    }
    // SAFETY: the length was checked, the read is unaligned, and every byte pattern of a `Plain`
    // type (integers and arrays of integers) is a valid value.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_unknown_records_are_errors() {
        assert_eq!(decode(&[]).err(), Some(DecodeError::TooShort { kind: 0, bytes: 0 }));
        let mut bytes = vec![0; 32];
        bytes[0] = 99;
        assert_eq!(decode(&bytes).err(), Some(DecodeError::UnknownKind(99)));
        for kind in (1..=9).chain(20..=23) {
            bytes[0] = kind;
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_duration_of_years_is_an_error() {
        let mut bytes = vec![0; size_of::<TurnRecord>()];
        bytes[0] = KIND_TURN as u8;
        assert!(decode(&bytes).is_ok());
        // The end of the turn, whose start is zero.
        bytes[16 + 7] = 1;
        assert_eq!(decode(&bytes).err(), Some(DecodeError::Implausible(KIND_TURN)));
    }

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
