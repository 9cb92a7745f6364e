//! The loop: from the leaf to the start of the thread.

use std::ops::Range;

use crate::binaries::{Mapping, ProcessMaps};

use super::arch::{FRAME_POINTER, Registers, STACK_POINTER, frame_pointer_slots};
use super::cache::{ModuleCache, UnwindCounters};
use super::eval::{Context, ReadStack, caller};
use super::module::{Found, Module};
use super::source::ModuleSource;
use super::stack::{RawFrame, StackEnd, UnwoundStack};

/// Frames of a stack that are kept.
const FRAMES_MAX: usize = 512;

/// Unwinds captured stacks; keeps the modules it has read, of any number of processes.
pub struct Unwinder {
    cache: ModuleCache,
}

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").field("counters", self.counters()).finish_non_exhaustive()
    }
}

/// How a frame came to be, which decides where to look it up and what may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// The instruction at `ip` is the one to be executed: the leaf.
    Leaf,
    /// A signal stopped it at `ip`.
    Interrupted,
    /// It made a call that returns to `ip`.
    Called,
}

/// What one step needs besides the frame.
struct Step<'a> {
    maps: &'a ProcessMaps,
    read: ReadStack<'a>,
    /// No frame pointer was followed so far.
    exact: bool,
}

impl Unwinder {
    /// An unwinder without any module loaded.
    #[must_use]
    pub fn new(source: Box<dyn ModuleSource>) -> Self {
        Self { cache: ModuleCache::new(source) }
    }

    /// What was done so far, and which modules could not be used.
    #[must_use]
    pub const fn counters(&self) -> &UnwindCounters {
        &self.cache.counters
    }

    /// Unwinds one stack.
    ///
    /// `maps` are the mappings of the process at (about) the moment of the capture, `read_stack`
    /// yields the 8 bytes at an address of the captured stack, `None` where nothing was captured;
    /// addresses need not be aligned.
    pub fn unwind(
        &mut self,
        maps: &ProcessMaps,
        regs: &Registers,
        read_stack: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> UnwoundStack {
        let mut step = Step { maps, read: read_stack, exact: true };
        let mut frames = Vec::with_capacity(32);
        let mut context = Context::new(*regs);
        let mut arrival = Arrival::Leaf;
        let end = loop {
            let ip = context.registers.ip;
            if frames.len() == FRAMES_MAX {
                break StackEnd::TooDeep;
            }
            let lookup = if arrival == Arrival::Called { ip.wrapping_sub(1) } else { ip };
            frames.push(RawFrame { ip, lookup, sp: context.registers.sp() });
            let frame = frames.len() - 1;
            match self.step(&mut step, &context, arrival, &mut frames[frame]) {
                Ok((next, how)) => (context, arrival) = (next, how),
                Err(end) => break end,
            }
        };
        let counters = &mut self.cache.counters;
        counters.stacks += 1;
        counters.stacks_complete += u64::from(end == StackEnd::Complete);
        counters.frames += frames.len() as u64;
        UnwoundStack { frames, end }
    }

    /// Where the code of the function lies that holds an address of a process.
    pub fn function(&mut self, maps: &ProcessMaps, address: u64) -> Option<Range<u64>> {
        let mapping = maps.find(address)?;
        let module = self.cache.module(maps, mapping)?;
        let pc = virtual_address(module, mapping, address)?;
        let fde = module.find(pc)?.fde;
        let bias = address.wrapping_sub(pc);
        Some(fde.start.wrapping_add(bias)..fde.end.wrapping_add(bias))
    }

    /// The caller of a frame.
    fn step(
        &mut self,
        step: &mut Step<'_>,
        context: &Context,
        arrival: Arrival,
        frame: &mut RawFrame,
    ) -> Result<(Context, Arrival), StackEnd> {
        let mapping = step.maps.find(frame.lookup).ok_or(StackEnd::NoMapping)?;
        if let Some(module) = self.cache.module(step.maps, mapping)
            && let Some(pc) = virtual_address(module, mapping, frame.lookup)
        {
            if module.is_entry(pc) && module.find(pc).is_none() {
                return Err(StackEnd::Complete);
            }
            let bias = frame.lookup.wrapping_sub(pc);
            if let Some((found, pc)) = function(module, pc, arrival) {
                if found.fde.signal {
                    frame.lookup = frame.ip;
                }
                return by_rows(step, context, arrival, found, pc, bias);
            }
        }
        let next = by_frame_pointer(step, context)?;
        step.exact = false;
        self.cache.counters.frame_pointer_frames += 1;
        Ok((next, Arrival::Called))
    }
}

/// The address in the file of an address in the process. Each mapping counts by its own offset: a
/// file may be mapped twice, with different distances.
fn virtual_address(module: &Module, mapping: &Mapping, address: u64) -> Option<u64> {
    let offset = address.checked_sub(mapping.start)?.checked_add(mapping.offset)?;
    module.address_of(offset)
}

/// The function at `pc`, and the pc to take its row at.
fn function(module: &mut Module, pc: u64, arrival: Arrival) -> Option<(Found<'_>, u64)> {
    if module.find(pc).is_some() {
        return module.find(pc).map(|found| (found, pc));
    }
    // The kernel makes a signal handler return to the first instruction of the trampoline, before
    // which there need be no function.
    let next = pc.checked_add(1).filter(|_| arrival == Arrival::Called)?;
    module.find(next).filter(|found| found.fde.signal).map(|found| (found, next))
}

fn by_rows(
    step: &mut Step<'_>,
    context: &Context,
    arrival: Arrival,
    found: Found<'_>,
    pc: u64,
    bias: u64,
) -> Result<(Context, Arrival), StackEnd> {
    let row = found.fde.row(pc).ok_or(StackEnd::BadUnwindInfo)?;
    let next = caller(row, found.section, bias, context, &mut *step.read)?;
    let (sp, caller_sp, ip) = (context.registers.sp(), next.registers.sp(), next.registers.ip);
    if found.fde.signal {
        // The handler may run on a stack of its own, and what it interrupted may be anywhere.
        step.maps.find(ip).ok_or(StackEnd::NoMapping)?;
        return Ok((next, Arrival::Interrupted));
    }
    // A frame that a call made holds at least the return address; code that was stopped anywhere may
    // have dropped it already.
    let advances = if arrival == Arrival::Called { caller_sp > sp } else { caller_sp >= sp };
    if !advances {
        return Err(StackEnd::NoProgress);
    }
    if ip == 0 && step.exact && arrival == Arrival::Called {
        // The outermost function of a thread or coroutine that was started with no return address.
        return Err(StackEnd::Complete);
    }
    if !is_code(step.maps, ip) {
        return Err(StackEnd::NoMapping);
    }
    Ok((next, Arrival::Called))
}

/// Follows the frame pointer of code without unwind information. Nothing vouches for it, so the
/// caller must lie above, inside the copy, and return into code.
fn by_frame_pointer(step: &mut Step<'_>, context: &Context) -> Result<Context, StackEnd> {
    const NONE: StackEnd = StackEnd::NoUnwindInfo;
    let frame_pointer = context.get(FRAME_POINTER).map_err(|why| match why {
        StackEnd::MemoryNotCaptured => why,
        _ => NONE,
    })?;
    let sp = context.registers.sp();
    let (saved_at, return_at, caller_sp) = frame_pointer_slots(frame_pointer).ok_or(NONE)?;
    if frame_pointer < sp {
        return Err(NONE);
    }
    let (Some(saved), Some(ip)) = ((step.read)(saved_at), (step.read)(return_at)) else {
        let stack = step.maps.find(sp);
        let inside = stack.is_some_and(|stack| stack.start <= saved_at && return_at < stack.end);
        return Err(if inside { StackEnd::MemoryNotCaptured } else { NONE });
    };
    if !is_code(step.maps, ip) {
        return Err(NONE);
    }
    let mut next = *context;
    next.registers.ip = ip;
    // What else such code saved where is not known.
    next.keep_only(&[STACK_POINTER, FRAME_POINTER]);
    next.set(STACK_POINTER, Ok(caller_sp));
    next.set(FRAME_POINTER, Ok(saved));
    Ok(next)
}

/// Whether a call can return to `ip`: its last byte lies in code.
fn is_code(maps: &ProcessMaps, ip: u64) -> bool {
    ip.checked_sub(1).and_then(|call| maps.find(call)).is_some_and(|mapping| mapping.executable)
}
