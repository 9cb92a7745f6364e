//! Kernel records to stalls: joins the captures of a turn with its ledger. No I/O.
//!
//! The turn logic itself is `profiler_common::turn`, which runs in the kernel.

mod assemble;
mod ledger;
mod raw;
mod waits;

pub use assemble::Assembler;
pub use ledger::{Cause, Ledger};
pub use raw::{Captured, LeafUse, RawStall, SleptIn};
pub use waits::{TurnWaits, WaitNotes};
