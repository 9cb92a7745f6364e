//! Many stalls to a summary. No I/O.

mod blockers;
mod budget;
mod compare;
mod filter;
mod groups;
mod pools;
mod regression;
mod shares;
mod stacks;
mod summary;
mod unfinished;
mod window;

pub use blockers::{Aggregate, BlockerKey, headline_word};
pub use budget::{Amount, Budget, Budgets, Place, Verdict};
pub use compare::{Change, Kind as ChangeKind, Observed, Side, compare};
pub use filter::Filter;
pub use groups::{Group, GroupBy, Groups};
pub use pools::{BusyThread, PoolKey, PoolLook, PoolStack, PoolSummary, Pools};
pub use regression::{Measured, regressions};
pub use shares::{Share, shares};
pub use stacks::{NO_STACK, StalledTime, Weight};
pub use summary::{BlockerSummary, Ended, Health, LoopSummary, Summary};
pub use unfinished::Unfinished;

pub(crate) use blockers::slowest_syscall;
pub(crate) use unfinished::continues;
pub(crate) use window::between;
