//! Records in the ring buffer. Each begins with a [`Header`] that tells its kind.

use crate::arch::UserRegs;
use crate::turn::Turn;

/// Beginning of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `KIND_*`.
    pub kind: u32,
    /// `FLAG_*`, by kind.
    pub flags: u32,
    /// Process id (thread group id) in the initial namespace.
    pub tgid: u32,
    /// Thread id in the initial namespace.
    pub tid: u32,
    /// When it happened (`CLOCK_MONOTONIC`).
    pub time_ns: u64,
    /// By kind; see each.
    pub extra: u64,
}

/// A thread parked for the first time: it runs a loop. `flags`: its park class; `extra`: its slot.
pub const KIND_LOOP: u32 = 1;
/// A [`CaptureHead`](crate::capture::CaptureHead) and its pages.
pub const KIND_CAPTURE: u32 = 2;
/// A [`Leaf`].
pub const KIND_LEAF: u32 = 3;
/// A [`TurnRecord`].
pub const KIND_TURN: u32 = 4;
/// A thread was created in a target. `extra`: 1 if it is a new process.
pub const KIND_FORK: u32 = 5;
/// A target executed another program.
pub const KIND_EXEC: u32 = 6;
/// A thread of a target exited.
pub const KIND_EXIT: u32 = 7;
/// A [`Snapshot`], made when attaching.
pub const KIND_SNAPSHOT: u32 = 8;
/// Like [`KIND_CAPTURE`], but a question: is this futex a park? `extra`: the futex's address.
pub const KIND_FUTEX: u32 = 9;
/// A [`Resource`](crate::waits::Resource) of a stall.
pub const KIND_RESOURCE: u32 = 20;
/// The [`Waits`](crate::waits::Waits) of a stall.
pub const KIND_WAITS: u32 = 21;
/// Like [`KIND_CAPTURE`], of the thread that ended a stall's longest wait for a lock. `extra`: the
/// thread that waited.
pub const KIND_HOLDER: u32 = 22;

/// A [`PythonHead`](crate::python::PythonHead) and its frames.
pub const KIND_PYTHON: u32 = 23;

/// In the flags of [`KIND_CAPTURE`]: the record before had its interpreter's frames.
pub const FLAG_PYTHON: u32 = 1;

/// A sample on CPU whose stack is known but for its innermost address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Which record and thread it is. `extra`: the turn.
    pub header: Header,
    /// The instruction pointer.
    pub ip: u64,
    /// CPU time since the sample before.
    pub weight_ns: u64,
    /// Number of the stack in its turn's table.
    pub id: u32,
    /// Distance of the interpreter's instruction from its code object; 0 without an interpreter.
    pub instr: u32,
}

/// In the flags of [`KIND_TURN`]: every poll of the thread was seen during the turn.
pub const FLAG_EXACT: u32 = 1;
/// In the flags of [`KIND_TURN`]: the turn had begun before stallscope attached.
pub const FLAG_AT_ATTACH: u32 = 2;
/// In the flags of [`KIND_TURN`]: the thread exited before the turn ended.
pub const FLAG_EXITED: u32 = 4;

/// In the flags of [`KIND_TURN`]: the thread has not proved to be a loop yet; a [`KIND_LOOP`] may
/// follow.
pub const FLAG_UNPROVEN: u32 = 8;

/// A turn over the threshold has ended. `header.time_ns` is its end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TurnRecord {
    /// Which record and thread it is.
    pub header: Header,
    /// The turn.
    pub turn: Turn,
}

/// What a thread was doing at the moment of attaching.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Which record and thread it is.
    pub header: Header,
    /// `task_struct.__state`; 0 is runnable.
    pub state: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// The scheduler's time of the thread's last run (`se.exec_start`).
    pub exec_start: u64,
    /// The same of the task that took the snapshot: "now" on the scheduler's clock, or earlier.
    pub now_exec_start: u64,
    /// User registers.
    pub regs: UserRegs,
}

const _: () = {
    assert!(size_of::<Header>() == 32);
    assert!(size_of::<Leaf>() == 56);
    assert!(size_of::<TurnRecord>() == 32 + size_of::<Turn>());
    assert!(size_of::<Snapshot>() == 32 + 8 + 16 + 168);
};
