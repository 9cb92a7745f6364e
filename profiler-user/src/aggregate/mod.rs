//! Many stalls to a summary. No I/O.

mod blockers;
mod stacks;
mod summary;
mod unfinished;

pub use blockers::{Aggregate, BlockerKey, headline_word};
pub use stacks::{NO_STACK, StalledTime, Weight};
pub use summary::{BlockerSummary, Ended, Health, LoopSummary, Summary};
pub use unfinished::Unfinished;

pub(crate) use blockers::slowest_syscall;
pub(crate) use unfinished::continues;
