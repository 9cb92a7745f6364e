//! What a futex wait is, by its stack: who parks waits in one as who waits for a lock does.

use super::{block_on, tokio};
use crate::blame::Runtime;
use crate::symbolize::Frame;

/// What a futex wait is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FutexUse {
    /// The thread gives itself up to wait for work.
    Park,
    /// The thread is blocked.
    Lock,
    /// The thread waits for work of a pool's: if it was a worker, it is one no more
    /// (`block_in_place` gave its work to another).
    Idle,
}

/// Tells a park from a lock by the stack of a thread asleep in a futex, in a process of that runtime.
/// `frames` go from the root to the leaf.
#[must_use]
pub fn futex_use(runtime: Runtime, frames: &[Frame]) -> FutexUse {
    match runtime {
        Runtime::Tokio => tokio::classify_futex(frames),
        _ => block_on::classify_futex(frames),
    }
}
