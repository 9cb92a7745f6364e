//! A capture: registers, kernel stack and a copy of the user stack at one instant.

use crate::arch::UserRegs;
use crate::record::Header;

/// Bytes per page of a stack copy.
pub const PAGE: usize = 4096;
/// Pages a capture has room for.
pub const MAX_PAGES: usize = 32;
/// Kernel frames a capture has room for.
pub const KERNEL_FRAMES: usize = 32;
/// Capture buffers of one loop thread. One of them always is free for the next capture; the
/// others hold captures that wait until their turn is known to be a stall.
pub const BUFFERS: u32 = 4;

/// Everything of a capture but the copied pages, which follow it in the record.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CaptureHead {
    /// Which record and thread it is.
    pub header: Header,
    /// The turn it was taken in.
    pub turn: u64,
    /// What the stack accounted for when this was sent; the turn's table may know more.
    pub total_ns: u64,
    /// The stack's number in that turn's table.
    pub id: u32,
    /// What the thread was doing: a cause.
    pub cause: u32,
    /// System call it was in, negative if none.
    pub nr: i32,
    /// Non-zero: sampled while in the kernel.
    pub in_kernel: u32,
    /// User registers.
    pub regs: UserRegs,
    /// Address of the first copied page.
    pub base: u64,
    /// Bit i: page i was copied. A hole stays zero in the copy.
    pub mask: u32,
    /// Size of the record: this head and the copied pages, holes included.
    pub bytes: u32,
    /// Kernel frames, innermost first.
    pub kernel: [u64; KERNEL_FRAMES],
    /// How many of them are used.
    pub kernel_len: u32,
    /// Sleeps or samples when this was sent.
    pub count: u32,
}

/// A capture as it lies in its buffer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Capture {
    /// What was captured.
    pub head: CaptureHead,
    /// Copy of the stack from `head.base` up.
    pub pages: [[u8; PAGE]; MAX_PAGES],
}

const _: () = {
    assert!(size_of::<CaptureHead>() == 32 + 16 + 16 + 168 + 8 + 8 + 256 + 8);
    assert!(size_of::<Capture>() == size_of::<CaptureHead>() + PAGE * MAX_PAGES);
};
