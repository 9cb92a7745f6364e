//! Ledger and stacks to a verdict: cause, blocker, advice. No I/O.

mod verdict;

pub use verdict::{
    Blocker, Boundary, Holder, Outside, Runtime, Stack, Stall, SyscallUse, Task,
};
