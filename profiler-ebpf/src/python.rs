//! CPython: walks the interpreter's frames at the moment of a capture, so that they are the frames
//! of that instant; knows its lock.
//!
//! Nothing is trusted: every word comes from a checked read of the target's memory, loops are
//! bounded, and what can't be read is flagged. Names are left to user space.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap};
use profiler_common::capture::{BUFFERS, Capture};
use profiler_common::cause;
use profiler_common::python::{
    FRAME_MASK, FRAMES, HOLDER_FRAMES, NO_FIELD, OWN_FRAMES, OWNED_BY_C, PYTHON_BROKEN,
    PYTHON_COLLECTING, PYTHON_HOLDER_BROKEN, PYTHON_TRUNCATED, Python, PythonFrame, PythonHead,
    PythonStack, identity, mix,
};
use profiler_common::record::{FLAG_PYTHON, Header, KIND_PYTHON};
use profiler_common::turn::{STACKS, ThreadState};

use crate::maps::config;
use crate::python_sleep::{AWAKE, python_sleep};
use crate::{emit, python_task, task};

/// Interpreters of the targets.
#[map]
static PYTHON: HashMap<u32, Python> = HashMap::with_max_entries(1024, 0);
/// Thread to its `PyThreadState`, as it was last found.
#[map]
static PYTHON_STATES: LruHashMap<u32, u64> = LruHashMap::with_max_entries(4096, 0);
/// Frames that belong to the capture in the buffer of the same number.
#[map]
static PYTHON_STACKS: Array<PythonStack> = Array::with_max_entries(128, 0);

/// Threads and interpreters that are looked at to find a thread.
const THREADS_MAX: u32 = 256;
/// Interpreters whose locks are known.
const INTERPRETERS_MAX: u32 = 64;
/// Bits of a pointer to a code object that are tags.
const TAGS: u64 = 7;

/// A word of the target's memory, 0 if it can't be read.
#[inline(always)]
pub(crate) fn read(address: u64) -> u64 {
    let mut word = 0_u64;
    // SAFETY: a checked read of one word into this frame.
    unsafe { bpf_probe_read_user((&raw mut word).cast(), 8, address as *const c_void) };
    word
}

#[inline(always)]
pub(crate) fn field(object: u64, offset: u16) -> u64 {
    read(object.wrapping_add(u64::from(offset)))
}

#[inline(always)]
pub(crate) fn interpreter(tgid: u32) -> Option<&'static Python> {
    // SAFETY: only user space changes the entries; what is torn meanwhile is read as garbage, which
    // the checked reads bear.
    unsafe { PYTHON.get(tgid) }
}

#[inline(always)]
fn stack_of(state: &ThreadState, buffer: u32) -> Option<&'static mut PythonStack> {
    if state.slot == 0 || buffer >= BUFFERS {
        return None;
    }
    stack((state.slot - 1) * BUFFERS + buffer)
}

/// Whether a futex lies in an interpreter's lock.
#[inline(always)]
pub(crate) fn is_lock(tgid: u32, futex: u64) -> bool {
    interpreter(tgid).is_some_and(|python| python.gil != 0) && python_lock(tgid, futex) != 0
}

/// The lock that a futex lies in, 0 if in none: interpreters beside the main one may have their own.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn python_lock(tgid: u32, futex: u64) -> u64 {
    let Some(python) = interpreter(tgid) else { return 0 };
    let bytes = u64::from(python.gil_bytes);
    if futex.wrapping_sub(python.gil) < bytes {
        return python.gil;
    }
    if python.interp_gil == NO_FIELD {
        return 0;
    }
    let mut interp = read(python.interpreters);
    for _ in 0..INTERPRETERS_MAX {
        if interp == 0 {
            break;
        }
        let gil = field(interp, python.interp_gil);
        if futex.wrapping_sub(gil) < bytes {
            return gil;
        }
        interp = field(interp, python.interp_next);
    }
    0
}

/// Walks the frames of the current thread for the capture in its spare buffer. Returns their hash.
#[inline(always)]
pub(crate) fn walk(state: &ThreadState, capture: &mut Capture, cause: u8) -> u64 {
    let Header { tgid, tid, .. } = state.record.header;
    if interpreter(tgid).is_none() || state.slot == 0 || state.spare >= BUFFERS {
        return 0;
    }
    capture.head.header.flags |= FLAG_PYTHON;
    let lock = if cause == cause::GIL { capture.head.regs.arg0() } else { 0 };
    let buffer = (state.slot - 1) * BUFFERS + state.spare;
    let hash = python_walk(buffer, tgid, tid, u32::from(cause), lock);
    // Equal stacks of several tasks are told apart while the turn's table has room for them.
    let room = if cause == cause::CPU { STACKS as u32 / 2 } else { STACKS as u32 - 4 };
    match stack_of(state, state.spare) {
        Some(stack) if state.record.turn.stack_count < room => mix(hash, stack.head.task),
        _ => hash,
    }
}

/// Walks the frames of the current thread, which ends a wait of the thread with that slot: for the
/// capture of its own stack, whose turn is the waiting thread's. Whether there is an interpreter.
#[inline(always)]
pub(crate) fn walk_holder(slot: u32, tgid: u32, tid: u32) -> bool {
    if interpreter(tgid).is_none() {
        return false;
    }
    python_walk(holder_buffer(slot), tgid, tid, u32::from(cause::LOCK), 0);
    true
}

/// Behind the buffers of the captures there is one for each slot's holder.
#[inline(always)]
fn holder_buffer(slot: u32) -> u32 {
    config!(max_loops) * BUFFERS + slot.wrapping_sub(1)
}

/// The same, by numbers: verified by itself, once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn python_walk(buffer: u32, tgid: u32, tid: u32, cause: u32, futex: u64) -> u64 {
    let Some(python) = interpreter(tgid) else { return 0 };
    let Some(out) = stack(buffer) else { return 0 };
    out.head.header.flags = 0;
    out.head.header.tid = tid;
    out.head.frames = 0;
    out.head.holder_frames = 0;
    out.head.holder = 0;
    out.head.holder_call = 0;
    out.head.task = 0;
    out.head.name = 0;
    out.hash = 0;
    let pthread = task::thread_pointer();
    if !is_state_of(python, known_state(tid), pthread) {
        python_find(buffer, tgid, pthread);
        let _ = PYTHON_STATES.insert(tid, out.next, 0);
    }
    let thread = known_state(tid);
    if thread == 0 {
        return out.hash;
    }
    out.next = current_frame(python, thread);
    python_frames(buffer, tgid, 0, OWN_FRAMES as u32, cause);
    out.head.frames = out.walked as u32;
    if out.next != 0 {
        out.head.header.flags |=
            if out.walked >= OWN_FRAMES as u64 { PYTHON_TRUNCATED } else { PYTHON_BROKEN };
    }
    let collecting = if python.collecting != 0 {
        python.collecting
    } else {
        field(thread, python.thread_interp).wrapping_add(u64::from(python.interp_collecting))
    };
    if read(collecting) as u32 != 0 {
        out.head.header.flags |= PYTHON_COLLECTING;
    }
    python_task::find(out, python, thread);
    let gil = if futex == 0 { 0 } else { python_lock(tgid, futex) };
    let holder = if gil == 0 { 0 } else { holder_of(python, thread, gil) };
    if holder != 0 {
        out.head.holder = field(holder, python.thread_id);
        let before = python_sleep(tgid, out.head.holder);
        // Its frames may change while they are read.
        out.next = current_frame(python, holder);
        python_frames(buffer, tgid, out.head.frames, HOLDER_FRAMES as u32, 0);
        out.head.holder_frames = out.walked as u32;
        if out.next != 0 {
            out.head.header.flags |= PYTHON_HOLDER_BROKEN;
        }
        // It slept all the time, and it has the lock still.
        if before != AWAKE
            && before == python_sleep(tgid, out.head.holder)
            && holder_of(python, thread, gil) == holder
        {
            out.head.holder_call = (before as u32).wrapping_add(1);
        }
    }
    out.hash
}

#[inline(always)]
fn stack(buffer: u32) -> Option<&'static mut PythonStack> {
    // SAFETY: the buffer belongs to the thread whose event this is.
    PYTHON_STACKS.get_ptr_mut(buffer).map(|stack| unsafe { &mut *stack })
}

#[inline(always)]
fn known_state(tid: u32) -> u64 {
    // SAFETY: the value is a number.
    unsafe { PYTHON_STATES.get(tid) }.copied().unwrap_or(0)
}

#[inline(always)]
fn current_frame(python: &Python, thread: u64) -> u64 {
    let frame = field(thread, python.thread_frame);
    if python.cframe_frame == NO_FIELD { frame } else { field(frame, python.cframe_frame) }
}

/// Whether a `PyThreadState` is this thread's and still in its interpreter's list: one that was
/// freed is not.
#[inline(never)]
fn is_state_of(python: &Python, thread: u64, pthread: u64) -> bool {
    if thread == 0 || field(thread, python.thread_id) != pthread {
        return false;
    }
    let prev = field(thread, python.thread_prev);
    let link = if prev != 0 {
        field(prev, python.thread_next)
    } else {
        field(field(thread, python.thread_interp), python.interp_threads)
    };
    link == thread
}

/// Looks for this thread in the lists of all interpreters; leaves it in `out.next`, 0 if it is in
/// none.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn python_find(buffer: u32, tgid: u32, pthread: u64) -> u32 {
    let (Some(python), Some(out)) = (interpreter(tgid), stack(buffer)) else { return 0 };
    let mut interp = read(python.interpreters);
    let mut thread = field(interp, python.interp_threads);
    out.next = 0;
    for _ in 0..THREADS_MAX {
        if thread == 0 {
            interp = field(interp, python.interp_next);
            if interp == 0 {
                break;
            }
            thread = field(interp, python.interp_threads);
        } else if field(thread, python.thread_id) == pthread {
            out.next = thread;
            break;
        } else {
            thread = field(thread, python.thread_next);
        }
    }
    0
}

/// Walks from `out.next` on. Leaves the number of frames in `out.walked`, and in `out.next` the
/// frame that was not walked, 0 if the last was.
///
/// Nearly without branches: the verifier follows both ways of each one, in each of the iterations.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn python_frames(buffer: u32, tgid: u32, base: u32, most: u32, cause: u32) -> u32 {
    let (Some(python), Some(out)) = (interpreter(tgid), stack(buffer)) else { return 0 };
    out.walked = 0;
    for index in 0..OWN_FRAMES as u32 {
        // Through memory, so that the verifier forgets which iteration it was.
        // SAFETY: valid references.
        let frame = unsafe { core::ptr::read_volatile(&raw const out.next) };
        if frame == 0 || index >= most || !read_frame(out, python, frame) {
            break;
        }
        let executable = part(out, python.frame_code);
        let code = executable & !TAGS;
        // CPython 3.8 to 3.10 have no mark, and for an instruction an index of 32 bits.
        let has_mark = all_ones(u64::from(python.frame_mark), u64::from(NO_FIELD));
        let mark = part(out, python.frame_mark) & 0xff & has_mark;
        let runs = all_ones(mark, OWNED_BY_C);
        let mut instr = part(out, python.frame_instr) & (has_mark | 0xffff_ffff);
        instr = (instr & runs) | (frame & !runs);
        let previous = part(out, python.frame_previous);
        let place = &mut out.stack[(base.wrapping_add(index)) as usize & (FRAMES - 1)];
        *place = PythonFrame {
            code: executable,
            instr,
            identity: identity_of(&mut out.words, python, code),
            mark,
        };
        let position = if index == 0 && cause == u32::from(cause::CPU) { 0 } else { instr };
        out.hash = mix(mix(out.hash, code), position);
        // SAFETY: valid references.
        unsafe {
            core::ptr::write_volatile(&raw mut out.walked, u64::from(index) + 1);
            core::ptr::write_volatile(&raw mut out.next, previous);
        }
    }
    0
}

/// All ones if `value` is less than `limit`, else zero; both are small. Without a branch.
#[inline(always)]
fn all_ones(value: u64, limit: u64) -> u64 {
    (value.wrapping_sub(limit).cast_signed() >> 63).cast_unsigned()
}

/// Reads a frame.
#[inline(always)]
fn read_frame(out: &mut PythonStack, python: &Python, frame: u64) -> bool {
    let to = (&raw mut out.scratch).cast();
    // Read and masked right before its use: old verifiers lose the bounds of what is kept on the
    // stack, and two constant sizes would be two ways through each step.
    // SAFETY: a valid reference.
    let bytes = unsafe { core::ptr::read_volatile(&raw const python.frame_bytes) } & FRAME_MASK;
    // SAFETY: a checked read of less than the size of the destination.
    unsafe { bpf_probe_read_user(to, bytes, frame as *const c_void) == 0 }
}

/// The field of a frame that was read.
#[inline(always)]
fn part(out: &PythonStack, offset: u16) -> u64 {
    out.scratch[(offset as usize >> 3) & 15] >> ((offset as u64 & 7) * 8)
}

/// What identifies a code object: see [`identity`].
#[inline(always)]
fn identity_of(words: &mut [u64; 16], python: &Python, code: u64) -> u64 {
    let from = code.wrapping_add(u64::from(python.code_filename));
    let to = (&raw mut *words).cast();
    // SAFETY: a checked read of less than the size of the destination.
    let failed = unsafe { bpf_probe_read_user(to, 24, from as *const c_void) };
    let hash = identity([words[0], words[1], words[2], field(words[1], python.text_hash)]);
    hash & !(failed >> 63).cast_unsigned()
}

/// The state of another thread, which has the lock; 0 if none has it.
#[inline(always)]
fn holder_of(python: &Python, thread: u64, gil: u64) -> u64 {
    if field(gil, python.gil_locked) as u32 != 1 {
        return 0;
    }
    let holder = field(gil, python.gil_last_holder);
    if holder == thread { 0 } else { holder }
}

/// Distance of the instruction that was captured last from its code object.
#[inline(always)]
pub(crate) fn leaf(state: &ThreadState) -> u32 {
    if interpreter(state.record.header.tgid).is_none() {
        return 0;
    }
    let Some(stack) = stack_of(state, state.spare) else { return 0 };
    if stack.head.frames == 0 {
        return 0;
    }
    let PythonFrame { code, instr, .. } = stack.stack[0];
    if instr >> 32 == 0 { instr as u32 } else { instr.wrapping_sub(code & !TAGS) as u32 }
}

/// Sends the frames that belong to a capture, before it.
#[inline(always)]
pub(crate) fn send(state: &ThreadState, buffer: u32, capture: &Capture) {
    if capture.head.header.flags & FLAG_PYTHON == 0 {
        return;
    }
    if let Some(stack) = stack_of(state, buffer) {
        send_stack(stack, capture);
    }
}

/// The same for the capture of a holder.
#[inline(always)]
pub(crate) fn send_holder(slot: u32, capture: &Capture) {
    if capture.head.header.flags & FLAG_PYTHON == 0 {
        return;
    }
    if let Some(stack) = stack(holder_buffer(slot)) {
        send_stack(stack, capture);
    }
}

#[inline(always)]
fn send_stack(stack: &mut PythonStack, capture: &Capture) {
    let head = &mut stack.head;
    head.header.kind = KIND_PYTHON;
    head.header.tgid = capture.head.header.tgid;
    head.header.time_ns = capture.head.header.time_ns;
    head.header.extra = capture.head.turn;
    head.id = capture.head.id;
    let frames = (head.frames & 255) + (head.holder_frames & 255);
    let bytes =
        size_of::<PythonHead>() + (frames as usize & (FRAMES - 1)) * size_of::<PythonFrame>();
    // SAFETY: the frames follow the head in one buffer, which has room for all of them.
    unsafe { emit::output((&raw const *stack).cast(), bytes as u64) };
}
