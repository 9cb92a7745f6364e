//! Ledger and stacks to a verdict: cause, blocker, advice. No I/O.

mod advice;
mod blocker;
mod detail;
mod verdict;
pub(crate) mod words;

pub use advice::advise;
pub use blocker::{NamedStack, blocker};
pub use detail::detail;
pub use verdict::{Blocker, Boundary, Holder, Outside, Runtime, Stack, Stall, SyscallUse, Task};
pub use words::Word;
