//! What a thread of tokio's blocking pool does (`spawn_blocking`, `tokio::fs`), by its stack.
//!
//! A runtime's workers are threads of its blocking pool too, which run the worker's loop for good. They
//! are left out here, as tokio leaves them out of its limit.

use super::park::{BLOCKING_POOL, POLL, classify_futex, is_worker, mentions};
use crate::runtimes::FutexUse;
use crate::symbolize::Frame;

/// `max_blocking_threads` of a runtime, unless its builder was given another.
pub const BLOCKING_THREADS: u32 = 512;

/// What a thread does for the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockingUse {
    /// It is no thread of the pool.
    Outside,
    /// It is a worker, or neither works nor waits for work.
    Unclear,
    /// It waits for work.
    Waits,
    /// It works.
    Works,
}

/// What a thread does for the pool while it is asleep. `frames` go from the root to the leaf.
#[must_use]
pub fn blocking_use(frames: &[Frame]) -> BlockingUse {
    let Some(at) = frames.iter().position(|frame| mentions(frame, &BLOCKING_POOL)) else {
        return BlockingUse::Outside;
    };
    if is_worker(frames) {
        BlockingUse::Unclear
    } else if frames[at + 1..].iter().any(|frame| mentions(frame, &POLL)) {
        // Work is a task like any other, of a future that is ready at its first poll.
        BlockingUse::Works
    } else if classify_futex(frames) == FutexUse::Idle {
        BlockingUse::Waits
    } else {
        BlockingUse::Unclear
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn told(names: &[&str]) -> BlockingUse {
        let frame = |name: &&str| Frame {
            user_code: name.starts_with("app::"),
            ..Frame::of_symbol(Arc::from(*name))
        };
        blocking_use(&names.iter().map(frame).collect::<Vec<_>>())
    }

    #[test]
    fn work_is_told_from_the_wait_for_it_and_workers_are_left_out() {
        let run = "tokio::runtime::blocking::pool::Inner::run";
        let poll = "tokio::runtime::task::raw::poll";
        let wait = "std::sys::sync::condvar::futex::Condvar::wait_timeout";
        assert_eq!(told(&["start", run, wait, "syscall"]), BlockingUse::Waits);
        assert_eq!(told(&["start", run, poll, "app::resize", "read"]), BlockingUse::Works);
        assert_eq!(told(&["start", run, poll, "app::resize", wait]), BlockingUse::Works);
        let worker = "tokio::runtime::scheduler::multi_thread::worker::run";
        assert_eq!(told(&["start", run, poll, worker, wait]), BlockingUse::Unclear);
        assert_eq!(told(&["start", "app::own_thread", poll, wait]), BlockingUse::Outside);
        let hook = told(&["start", run, "app::after_start", wait]);
        assert_eq!(hook, BlockingUse::Unclear, "not the pool's own wait");
    }
}
