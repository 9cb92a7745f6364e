//! Taking a stack: registers, kernel frames, a copy of the user stack, and its fingerprint.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_probe_read_user};
use profiler_common::arch::RED_ZONE;
use profiler_common::capture::{BUFFERS, Capture, CaptureHead, KERNEL_FRAMES, MAX_PAGES, PAGE};
use profiler_common::config::Target;
use profiler_common::counters::Counter;
use profiler_common::turn::{NO_ENTRY, StackEntry, ThreadState};

use crate::count;
use crate::maps::{CAPTURES, STACK_ENDS, TARGETS, config};

/// Words of the stack that go into the fingerprint: 8 KiB.
const CHUNK_WORDS: usize = 64;
const CHUNKS: usize = 16;
/// Multiplier of the fingerprint: 2^64 divided by the golden ratio, made odd.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a capture is taken of.
pub(crate) struct Subject {
    pub(crate) cause: u8,
    pub(crate) nr: i32,
    pub(crate) in_kernel: bool,
    pub(crate) now: u64,
}

/// Captures the current thread's stack into its spare buffer. Returns the buffer and the stack's
/// fingerprint.
#[inline(always)]
pub(crate) fn take(
    state: &mut ThreadState,
    ctx: *mut c_void,
    subject: &Subject,
) -> Option<(&'static mut Capture, u64)> {
    if state.slot == 0 || state.spare >= BUFFERS {
        return None;
    }
    let index = (state.slot - 1) * BUFFERS + state.spare;
    // SAFETY: the buffer belongs to the thread whose event this is.
    let capture = CAPTURES.get_ptr_mut(index).map(|capture| unsafe { &mut *capture })?;
    count::one(Counter::Captures);
    let head = &mut capture.head;
    if !crate::task::current_regs(&mut head.regs) {
        count::one(Counter::RegistersUnreadable);
        return None;
    }
    head.header.tgid = state.record.header.tgid;
    head.header.tid = state.record.header.tid;
    head.header.flags = 0;
    head.header.time_ns = subject.now;
    head.header.extra = 0;
    head.turn = state.record.turn.number;
    head.cause = u32::from(subject.cause);
    head.nr = subject.nr;
    head.in_kernel = u32::from(subject.in_kernel);
    // SAFETY: the buffer has the size that is passed.
    let kernel_bytes =
        unsafe { bpf_get_stack(ctx, (&raw mut head.kernel).cast(), (KERNEL_FRAMES * 8) as u32, 0) };
    head.kernel_len = if kernel_bytes > 0 { kernel_bytes as u32 / 8 } else { 0 };
    let tgid = state.record.header.tgid;
    let key = capture_user(index, tgid, u32::from(subject.cause), subject.nr as u32);
    Some((capture, key))
}

/// Copies the user stack into a buffer of captures and gives its fingerprint. Verified by itself,
/// once: on each way that leads here the verifier would follow a thousand words again.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn capture_user(index: u32, tgid: u32, cause: u32, nr: u32) -> u64 {
    // SAFETY: the buffer belongs to the thread whose event this is.
    let Some(capture) = CAPTURES.get_ptr_mut(index).map(|capture| unsafe { &mut *capture }) else {
        return 0;
    };
    // SAFETY: the value is a number.
    let stack_end = unsafe { STACK_ENDS.get(capture.head.header.tid) }.copied().unwrap_or(0);
    copy_stack(stack_end, capture);
    fingerprint(tgid, capture, cause, nr)
}

/// Copies the user stack page by page: one flat read would fail at the first hole.
///
/// What was copied is noted in memory and not in registers: the verifier would follow every
/// combination of pages that are there and pages that are not.
#[inline(always)]
pub(crate) fn copy_stack(stack_end: u64, capture: &mut Capture) {
    let sp = capture.head.regs.sp();
    let base = sp.wrapping_sub(RED_ZONE) & !(PAGE as u64 - 1);
    capture.head.base = base;
    note_copied(&mut capture.head, 0, 0);
    let mut failures = 0_u32;
    for index in 0..MAX_PAGES {
        if index as u32 >= config!(stack_pages) {
            break;
        }
        let from = base + (index * PAGE) as u64;
        if stack_end != 0 && from >= stack_end {
            break;
        }
        let to = (&raw mut capture.pages[index]).cast();
        // SAFETY: a checked read of one page into one page.
        if unsafe { bpf_probe_read_user(to, PAGE as u32, from as *const c_void) } == 0 {
            // SAFETY: a valid reference.
            let mask = unsafe { core::ptr::read_volatile(&raw const capture.head.mask) };
            note_copied(&mut capture.head, mask | 1 << index, index as u32 + 1);
            failures = 0;
        } else {
            if stack_end != 0 {
                count::one(Counter::StackPageUnreadable);
            }
            failures += 1;
            if failures == 2 {
                break;
            }
        }
    }
}

#[inline(always)]
fn note_copied(head: &mut CaptureHead, mask: u32, pages: u32) {
    let bytes = size_of::<CaptureHead>() as u32 + pages * PAGE as u32;
    // SAFETY: a valid reference; volatile so that the values stay in memory.
    unsafe {
        core::ptr::write_volatile(&raw mut head.mask, mask);
        core::ptr::write_volatile(&raw mut head.bytes, bytes);
    }
}

/// Identifies a stack by its position and the words in it that point into code. The instruction
/// pointer of a sample on CPU is left out (it is sent beside the weight); that of a sleep is in.
#[inline(always)]
fn fingerprint(tgid: u32, capture: &Capture, cause: u32, nr: u32) -> u64 {
    let regs = &capture.head.regs;
    let sp = regs.sp();
    // Kernel frames of one sample must not stand for samples of the program's own code.
    let where_ = u64::from(capture.head.in_kernel) << 55;
    let mut hash = sp ^ (u64::from(cause) << 56) ^ where_ ^ (u64::from(nr) << 24);
    if cause != u32::from(profiler_common::cause::CPU) {
        hash ^= regs.ip().rotate_left(17);
    }
    // SAFETY: targets are preallocated and only user space changes them.
    let Some(target) = (unsafe { TARGETS.get(tgid) }) else { return hash };
    let ranges = *target;
    mix_stack(hash, capture, sp, &ranges)
}

/// Mixes in the words of the copy from `sp` up, in chunks so that the verifier sees few ways out
/// of the loop. A last incomplete chunk (the process's or thread's own start) is left out.
#[inline(always)]
fn mix_stack(mut hash: u64, capture: &Capture, sp: u64, target: &Target) -> u64 {
    // Below two pages by construction; the mask shows it to the verifier.
    let skip = sp.wrapping_sub(capture.head.base) & (2 * PAGE as u64 - 8);
    let copied = u64::from(capture.head.bytes).wrapping_sub(size_of::<CaptureHead>() as u64);
    let pages: *const u8 = (&raw const capture.pages).cast();
    let words: *const u64 = pages.wrapping_add(skip as usize).cast();
    for chunk in 0..CHUNKS {
        if skip + ((chunk + 1) * CHUNK_WORDS * 8) as u64 > copied {
            break;
        }
        for index in 0..CHUNK_WORDS {
            // SAFETY: `skip` is below two pages, and the chunks end within the second one after it;
            // the capture has more pages than that.
            let word = unsafe { *words.add(chunk * CHUNK_WORDS + index) };
            hash = (hash ^ (word & code_mask(word, target))).wrapping_mul(MIX);
            hash ^= hash >> 29;
        }
    }
    hash
}

/// All ones for a word that points into code, else zero. Without a branch: the verifier follows
/// both ways of each one, a thousand times over.
#[inline(always)]
fn code_mask(word: u64, target: &Target) -> u64 {
    let code = &target.code;
    // The topmost bit of a difference tells which of the two is less, for addresses of user space;
    // it differs between a range's two ends if the word lies between them.
    let inside = (word.wrapping_sub(code[0][0]) ^ word.wrapping_sub(code[0][1]))
        | (word.wrapping_sub(code[1][0]) ^ word.wrapping_sub(code[1][1]))
        | (word.wrapping_sub(code[2][0]) ^ word.wrapping_sub(code[2][1]));
    (inside.cast_signed() >> 63).cast_unsigned()
}

/// Captures the stack for a sleep that begins now, unless the turn already knows it.
/// Returns its entry in the turn's table.
#[inline(always)]
pub(crate) fn for_turn(
    state: &mut ThreadState,
    ctx: *mut c_void,
    subject: &Subject,
) -> (u32, bool, UserIp) {
    let Some((capture, key)) = take(state, ctx, subject) else {
        return (NO_ENTRY, false, UserIp(0));
    };
    let key = key ^ crate::python::walk(state, capture, subject.cause);
    let ip = UserIp(capture.head.regs.ip());
    let StackEntry { index: entry, new, evicted } =
        state.stack_entry(key, subject.cause, subject.nr);
    if evicted {
        count::one(Counter::StackEvicted);
    }
    if !new {
        count::one(Counter::CapturesDeduplicated);
        return (entry, false, ip);
    }
    if let Some(stack) = state.stack(entry) {
        capture.head.id = stack.id;
    }
    if state.keep(entry) {
        count::one(Counter::StackEvicted);
    }
    (entry, true, ip)
}

/// The innermost user address of a capture.
pub(crate) struct UserIp(pub(crate) u64);
