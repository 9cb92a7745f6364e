//! Captured registers and a copy of the user stack -> the addresses of the call chain.
//!
//! The unwinder follows the call frame information that every x86-64 binary carries
//! (`.eh_frame`, else `.debug_frame`), so the target needs no frame pointers and no debug
//! information. Where there is none (JIT code, hand-written assembly) the frame-pointer chain is
//! the fallback. A stack is [`StackEnd::Complete`] only if it ends where the program or a thread
//! starts; any other keeps its frames and says why it ends.
//!
//! Nothing here reads the target's memory: the stack comes through a closure, and the only I/O is
//! reading binaries through a [`ModuleSource`]. Nothing panics on odd input.
//!
//! In the order of the data: [`arch`] (registers), `source` (bytes of a binary), `module` (its
//! sections and addresses), `index` (pc -> FDE), `rows` (FDE -> rows), `expression` and `eval`
//! (row + registers -> the caller's registers), `cache` (modules kept), `walk` (the loop).

pub mod arch;
mod cache;
mod eval;
mod expression;
mod index;
mod module;
mod rows;
mod source;
mod stack;
mod walk;

pub use arch::Registers;
pub use cache::{FailedModule, UnwindCounters};
pub use source::{Content, LiveModules, ModuleId, ModuleSource, OpenModule};
pub use stack::{RawFrame, StackEnd, UnwoundStack};
pub use walk::Unwinder;
