//! Many stalls to a summary. No I/O.

mod blockers;
mod filter;
mod groups;
mod shares;
mod stacks;
mod summary;
mod unfinished;

pub use blockers::{Aggregate, BlockerKey, headline_word};
pub use filter::Filter;
pub use groups::{Group, GroupBy, Groups};
pub use shares::{Share, shares};
pub use stacks::{NO_STACK, StalledTime, Weight};
pub use summary::{BlockerSummary, Ended, Health, LoopSummary, Summary};
pub use unfinished::Unfinished;

pub(crate) use blockers::slowest_syscall;
pub(crate) use unfinished::continues;
