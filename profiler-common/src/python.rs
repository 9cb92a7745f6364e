//! CPython: what the kernel side needs to walk an interpreter's frames, and what it sends.

use crate::record::Header;

/// Frames of the captured thread that are walked at most.
pub const OWN_FRAMES: usize = 128;
/// Frames of the holder of the interpreter lock that are walked at most.
pub const HOLDER_FRAMES: usize = 64;
/// Room for frames in a record: a power of two, so that the verifier sees masked indexes in bounds.
pub const FRAMES: usize = 256;
/// Bytes that are copied of the object that names a task.
pub const NAME_BYTES: usize = 128;
/// Marks an offset of a field that this version of CPython does not have.
pub const NO_FIELD: u16 = u16::MAX;

/// Where an interpreter keeps what is walked. Offsets are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Python {
    /// Address of the pointer to the first interpreter.
    pub interpreters: u64,
    /// Address of the main interpreter's lock (GIL); 0 if it has none.
    pub gil: u64,
    /// Address of the dictionary of current asyncio tasks; 0 if it is not known or not used.
    pub tasks: u64,
    /// Bytes of a lock.
    pub gil_bytes: u32,
    /// Bytes of a frame that hold what is asked for: at most [`FRAME_MASK`].
    pub frame_bytes: u32,
    /// First thread of an interpreter.
    pub interp_threads: u16,
    /// The interpreter after it.
    pub interp_next: u16,
    /// Pointer to its lock, in versions where each one has its own.
    pub interp_gil: u16,
    /// The thread before.
    pub thread_prev: u16,
    /// The thread after.
    pub thread_next: u16,
    /// Its interpreter.
    pub thread_interp: u16,
    /// What `pthread_self` gives.
    pub thread_id: u16,
    /// Its current frame, or the structure that holds it.
    pub thread_frame: u16,
    /// The current frame in that structure.
    pub cframe_frame: u16,
    /// Its current asyncio task.
    pub thread_task: u16,
    /// The caller's frame.
    pub frame_previous: u16,
    /// The code object.
    pub frame_code: u16,
    /// The instruction: a pointer, or an index.
    pub frame_instr: u16,
    /// One byte that tells where the C stack goes on: `owner`, or `is_entry`.
    pub frame_mark: u16,
    /// File name of a code object; its name follows.
    pub code_filename: u16,
    /// Who had the lock last.
    pub gil_last_holder: u16,
    /// The name of a task.
    pub task_name: u16,
    /// Whether the collector runs, from the beginning of the interpreter.
    pub interp_collecting: u16,
    /// Entries of a dictionary.
    pub dict_keys: u16,
    /// Indexes of a dictionary's keys.
    pub keys_indices: u16,
    /// `KEYS_*`
    pub keys_kind: u16,
    /// Whether it is taken.
    pub gil_locked: u16,
    /// Hash of a text object.
    pub text_hash: u16,
    /// Non-zero: the ids that its threads have in its own memory are those of the initial namespace.
    pub own_ids: u16,
    /// Address of the flag that the collector runs, in versions where it is one for all; else 0.
    pub collecting: u64,
}

/// What the table of threads in PID namespaces of their own is looked up by: the process, and the id that
/// the thread knows itself by.
#[must_use]
pub const fn inner_key(tgid: u32, inner: u32) -> u64 {
    (tgid as u64) << 32 | inner as u64
}

/// Dictionary keys begin as CPython 3.8 to 3.10 lay them out: the number of slots is one word.
pub const KEYS_SIZE: u16 = 0;
/// Dictionary keys begin as CPython 3.11 and later lay them out: logarithms, one byte each.
pub const KEYS_LOG2: u16 = 1;

/// One frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonFrame {
    /// The code object, tag bits as they were; 0 for none.
    pub code: u64,
    /// The instruction; the frame's own address if it is [`OWNED_BY_C`].
    pub instr: u64,
    /// Hash of what identifies the code object; 0 if it could not be read.
    pub identity: u64,
    /// The mark: see [`Python::frame_mark`].
    pub mark: u64,
}

/// Bytes that a frame needs at most, as a mask.
pub const FRAME_MASK: u32 = 127;

/// From this mark on (3.12 and later) a frame runs nothing: it lies on the C stack, in the function that
/// runs the frames before it.
pub const OWNED_BY_C: u64 = 3;

/// The thread's stack has more frames than were walked.
pub const PYTHON_TRUNCATED: u32 = 1;
/// A frame of the thread could not be read.
pub const PYTHON_BROKEN: u32 = 2;
/// The holder's stack has more frames than were walked, or could not be read.
pub const PYTHON_HOLDER_BROKEN: u32 = 4;
/// The collector was running.
pub const PYTHON_COLLECTING: u32 = 8;
/// More than one task was current, or they could not be read.
pub const PYTHON_TASKS_UNCLEAR: u32 = 16;

/// The interpreter's frames that belong to a capture, which follows as the next record of the same
/// thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PythonHead {
    /// Which record and thread it is. `flags`: `PYTHON_*`; `extra`: the turn.
    pub header: Header,
    /// Number of the stack in its turn.
    pub id: u32,
    /// Frames of the thread itself, innermost first.
    pub frames: u32,
    /// Frames of the lock's holder, behind the others.
    pub holder_frames: u32,
    /// System call that the holder sleeps in while it has the lock, plus one; 0 if it does not sleep, or
    /// that is not known.
    pub holder_call: u32,
    /// What `pthread_self` gives in the holder; 0 if there is none.
    pub holder: u64,
    /// The current task; 0 if there is none.
    pub task: u64,
    /// Address of the object that names the task.
    pub name: u64,
    /// Copy of that object, or of its first bytes.
    pub name_bytes: [u64; NAME_BYTES / 8],
}

/// The interpreter's frames as they lie in their buffer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PythonStack {
    /// What is sent before the frames.
    pub head: PythonHead,
    /// The frames.
    pub stack: [PythonFrame; FRAMES],
    /// A frame as it was read.
    pub scratch: [u64; 16],
    /// Words of other objects as they were read.
    pub words: [u64; 16],
    /// Frame to walk next.
    pub next: u64,
    /// Frames walked.
    pub walked: u64,
    /// Hash of the frames.
    pub hash: u64,
}

/// Hash of the words that identify a code object: file name, name and the word after them, and the
/// hash of the name's text.
#[inline(always)]
#[must_use]
pub const fn identity(words: [u64; 4]) -> u64 {
    let mut hash = mix(words[0], words[1]);
    hash = mix(hash, words[2]);
    hash = mix(hash, words[3]);
    if hash == 0 { 1 } else { hash }
}

/// One step of a hash.
#[inline(always)]
#[must_use]
pub const fn mix(hash: u64, word: u64) -> u64 {
    // 2^64 divided by the golden ratio, made odd.
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

const _: () = {
    assert!(size_of::<Python>() == 24 + 8 + 2 * 24 + 8);
    assert!(size_of::<PythonFrame>() == 32);
    assert!(size_of::<PythonHead>() == 32 + 16 + 24 + NAME_BYTES);
};
