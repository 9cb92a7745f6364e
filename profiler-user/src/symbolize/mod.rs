//! Addresses to names: ELF symbols, DWARF lines and inlining, the kernel's symbols.

mod frame;

pub use frame::{Frame, FrameKind};
