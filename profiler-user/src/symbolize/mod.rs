//! Addresses to names: ELF symbols, DWARF lines and inlining, the kernel's symbols.
//!
//! Names come from `.symtab` (else `.dynsym`) of the binary and of its separate debug file, lines
//! and inlining from DWARF 2 to 5, packed sections and split DWARF (`.dwo`, `.dwp`) included. What
//! is not read: `.gnu_debugdata` (xz), `.gnu_debugaltlink` (dwz), debuginfod, and split DWARF that
//! only our own root holds.
//!
//! The target is not trusted. Its files are read, never mapped; every size is bounded before memory
//! is taken for it; names are made [`printable`]. Damage costs names, never the profiler: see
//! [`SymbolCounters`]. A lookup needs about 600 KiB of stack.

mod cache;
mod counters;
mod debuglink;
mod demangle;
mod dwarf;
mod elf;
mod error;
mod foreign;
mod foreign_names;
mod frame;
mod inflate;
mod kernel;
mod module;
mod plt;
mod printable;
mod reader;
mod renamer;
mod split;
mod symbolizer;
mod symbols;
mod user_code;

pub(crate) use foreign::foreign_python;

pub use counters::{FailedBinary, SymbolCounters};
pub use frame::{Frame, FrameKind, Origin};
pub use printable::printable;
pub use renamer::Renamer;
pub use symbolizer::{DefinedSymbol, SymbolOptions, SymbolPattern, Symbolizer};
pub use user_code::{CodePlace, UserCode};
